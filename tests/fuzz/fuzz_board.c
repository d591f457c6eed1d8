/* libFuzzer: any bytes as the files of a run that is shown live (fuzz_folder.h; six more sections are
 * appended before a second reading). The view must be JSON, the metrics valid for Prometheus, the frame
 * within its width, and every table of points within its limit. */
#include "dash/board.h"
#include "dash/prometheus.h"
#include "dash/sse.h"
#include "dash/top_frame.h"
#include "fuzz_folder.h"

static void check_metrics(const mst_board *board)
{
    mst_string text = {0};
    mst_prometheus_text(board, &text);
    for (const char *at = text.text; *at != '\0';) {
        size_t n = strcspn(at, "\n");
        FUZZ_CHECK(strncmp(at, "# HELP muster_", 14) == 0 || strncmp(at, "# TYPE muster_", 14) == 0 ||
                   strncmp(at, "muster_", 7) == 0);
        if (*at == 'm') { /* the value is a number */
            const char *space = memrchr(at, ' ', n);
            char *end;
            FUZZ_CHECK(space != NULL);
            strtod(space + 1, &end);
            FUZZ_CHECK(end == at + n && end > space + 1);
        }
        FUZZ_CHECK(at[n] == '\n');
        at += n + 1;
    }
    mst_string_fini(&text);
}

static void check_frame(const mst_board *board)
{
    mst_string text = {0};
    mst_frame_options o = {.width = 90, .height = 30, .keys = true};
    mst_top_frame(board, &o, &text);
    size_t lines = 1;
    for (const char *at = text.text; *at != '\0';) {
        size_t n = strcspn(at, "\n");
        FUZZ_CHECK(n <= 90); /* ASCII */
        for (size_t i = 0; i < n; i++)
            FUZZ_CHECK(at[i] >= 0x20 && at[i] < 0x7f);
        lines += at[n] == '\n';
        at += n + (at[n] == '\n');
    }
    FUZZ_CHECK(lines <= 30);
    mst_string_fini(&text);
}

static void check_events(const mst_board *board)
{
    mst_listener l = {0};
    char part[4096];
    mst_string all = {0};
    size_t n;
    while ((n = mst_listener_take(&l, board, "", part, sizeof part)) > 0)
        mst_string_addn(&all, part, n);
    for (char *at = all.text; at != NULL && (at = strstr(at, "\ndata: ")) != NULL;) {
        char *end = strchr(at + 7, '\n');
        FUZZ_CHECK(end != NULL);
        json_t *json = json_loadb(at + 7, (size_t)(end - at - 7), JSON_DECODE_ANY, NULL);
        FUZZ_CHECK(json != NULL);
        json_decref(json);
        at = end;
    }
    mst_string_fini(&all);
    mst_listener_fini(&l);
}

static void check(const mst_board *board)
{
    for (size_t i = 0; i < board->n; i++)
        for (size_t k = 0; k < board->runs[i]->n_tables; k++)
            FUZZ_CHECK(board->runs[i]->tables[k].n <= MST_TABLE_POINTS);
    check_events(board);
    check_metrics(board);
    check_frame(board);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mst_board *board = NULL;
    char *items[] = {(char *)fuzz_folder(&data, &size, false)};
    mst_text_list paths = {items, 1};
    FUZZ_CHECK(mst_board_new(&paths, true, &board) == MST_OK);
    check(board);
    fuzz_folder(&data, &size, true);
    board->scan_ns = 0;
    for (size_t i = 0; i < board->n; i++)
        board->runs[i]->due_ns = 0;
    FUZZ_CHECK(mst_board_update(board) == MST_OK);
    check(board);
    mst_board_destroy(board);
    return 0;
}
