/* Runs on the board: found, followed, torn, gone and replaced; their curves thinned; their events, metrics
 * and pictures; and want of memory. */
#include "dash/board.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/utf8.h"
#include "dash/prometheus.h"
#include "dash/sse.h"
#include "dash/top_frame.h"
#include "unit/report/run_fixture.h"
#include "unit/report/test_folder.h"

#include <fcntl.h>

static void write_run(const char *name, const fixture_run *run)
{
    fixture_write(in_folder(name), run);
}

static void append(const char *name, const char *text)
{
    FILE *f = fopen(in_folder(name), "a");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void replace(const char *name, const char *text)
{
    unlink(in_folder(name));
    append(name, text);
}

static mst_board *open_board(const char *path, bool curves)
{
    mst_board *board = NULL;
    mst_text_list paths = {0};
    assert_int_equal(mst_text_list_add(&paths, path), MST_OK);
    assert_int_equal(mst_board_new(&paths, curves, &board), MST_OK);
    mst_text_list_fini(&paths);
    return board;
}

/* Everything is due. */
static void update(mst_board *board)
{
    board->scan_ns = 0;
    for (size_t i = 0; i < board->n; i++)
        board->runs[i]->due_ns = 1;
    assert_int_equal(mst_board_update(board), MST_OK);
}

static void set_state(const char *run, const char *word)
{
    char name[300], *text = NULL;
    size_t n;
    snprintf(name, sizeof name, "%s/manifest.json", run);
    assert_int_equal(mst_file_read_all(in_folder(name), 1 << 20, &text, &n), MST_OK);
    char *at = strstr(text, "\"state\": \"");
    assert_non_null(at);
    char *end = strchr(at + 10, '"'), *made = NULL;
    *at = '\0';
    made = mst_sprintf("%s\"state\": \"%s%s", text, word, end);
    assert_non_null(made);
    replace(name, made);
    mst_free(made);
    mst_free(text);
}

/* ---- life ---- */

static void test_found(void **state)
{
    (void)state;
    fixture_run job = fixture_job("sync"), local = fixture_local();
    assert_int_equal(mst_make_folders(in_folder("runs/group/runs")), MST_OK);
    mst_board *board = open_board(in_folder("runs"), true);
    assert_int_equal(board->n, 0);
    assert_int_equal(board->notes.n, 1);
    assert_non_null(strstr(board->notes.items[0], "No run yet in "));
    write_run("runs/a", &job);
    write_run("runs/group/runs/b", &local); /* as a sweep has them */
    update(board);
    assert_int_equal(board->n, 2);
    assert_int_equal(board->notes.n, 0);
    for (size_t i = 0; i < 2; i++) {
        const mst_run_view *v = &board->runs[i]->view;
        assert_int_equal(v->life, MST_LIFE_FINISHED);
        assert_true(v->has_verdict && v->verdict.known);
        assert_true(v->rows_per_s > 1000);
        assert_int_equal(v->n_processes, strcmp(board->runs[i]->label, "a") == 0 ? 4 : 1);
        assert_int_equal(v->processes[0].life, MST_LIFE_FINISHED);
    }
    /* of the same name: distinguished by the path */
    write_run("runs/group/a", &local);
    update(board);
    assert_int_equal(board->n, 3);
    for (size_t i = 0; i < 3; i++)
        if (strcmp(board->runs[i]->data->name, "a") == 0)
            assert_string_equal(board->runs[i]->label, board->runs[i]->path);
    mst_board_destroy(board);
    mst_remove_tree(in_folder("runs"));
}

static void test_refused(void **state)
{
    (void)state;
    mst_board *board = NULL;
    mst_text_list paths = {0};
    assert_int_equal(mst_text_list_add(&paths, in_folder("nowhere")), MST_OK);
    assert_int_equal(mst_board_new(&paths, true, &board), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "there is no such run, nor a folder of runs"));
    append("nowhere", "a file");
    assert_int_equal(mst_board_new(&paths, true, &board), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "a run is a folder"));
    mst_text_list_fini(&paths);
    unlink(in_folder("nowhere"));
}

static void test_lives(void **state)
{
    (void)state;
    fixture_run job = fixture_job("sync");
    write_run("run", &job);
    mst_board *board = open_board(in_folder("run"), true);
    mst_board_run *run = board->runs[0];
    assert_int_equal(run->view.life, MST_LIFE_FINISHED);
    assert_true(run->view.share_done == 1);
    set_state("run", "running");
    append("run/marks.csv", "1763200060,worker-1,death,lost\n1763200060,worker-2,leave,\n");
    update(board);
    run = board->runs[0];
    assert_int_equal(run->view.life, MST_LIFE_LIVE);
    assert_int_equal(run->view.processes[1].life, MST_LIFE_LIVE);
    assert_int_equal(run->view.processes[2].life, MST_LIFE_DEAD);
    assert_true(run->view.processes[2].now.seconds == 0 && run->view.processes[2].total.seconds == 60);
    assert_true(isnan(run->view.processes[2].now_use.all[MST_LOAD_CPU].mean));
    assert_int_equal(run->view.processes[3].life, MST_LIFE_FINISHED);
    /* rates are those of the one that is left: about 10,000 rows/s */
    assert_true(run->view.rows_per_s > 9000 && run->view.rows_per_s < 11000);
    assert_non_null(strstr(run->delta.text, "event: run\n"));
    set_state("run", "failed");
    update(board);
    assert_int_equal(board->runs[0]->view.life, MST_LIFE_FAILED);
    set_state("run", "stopped");
    update(board);
    assert_int_equal(board->runs[0]->view.life, MST_LIFE_STOPPED);
    mst_remove_tree(in_folder("run"));
    update(board);
    assert_int_equal(board->n, 1);
    assert_int_equal(board->runs[0]->view.life, MST_LIFE_GONE);
    assert_non_null(strstr(board->runs[0]->text, "folder was removed"));
    assert_non_null(strstr(board->notes.items[0], "is not there any more"));
    unsigned id = board->runs[0]->id;
    mkdir(in_folder("keeps-the-inode-apart"), 0777);
    write_run("run", &job); /* another run in its place */
    update(board);
    assert_int_equal(board->n, 1);
    assert_true(board->runs[0]->view.life == MST_LIFE_FINISHED);
    assert_true(board->runs[0]->id != id || board->dropped.n == 0);
    mst_board_destroy(board);
    mst_remove_tree(in_folder("run"));
}

/* Drops the last lines of a file. */
static void shorten(const char *name, int lines)
{
    char command[700];
    snprintf(command, sizeof command, "sed -i -n -e ':a' -e '1,%d!{P;N;D;};N;ba' '%s'", lines,
             in_folder(name));
    assert_int_equal(system(command), 0);
}

/* A worker that has written nothing for longer than rates are shown of is at 0. */
static void test_stalled(void **state)
{
    (void)state;
    fixture_run job = fixture_job("async");
    write_run("run", &job);
    set_state("run", "running");
    shorten("run/processes/worker-1/spans.csv", 8);
    shorten("run/processes/worker-1/resources.csv", 8);
    mst_board *board = open_board(in_folder("run"), false);
    const mst_run_view *v = &board->runs[0]->view;
    assert_int_equal(v->life, MST_LIFE_LIVE);
    double sum = 0;
    for (size_t i = 0; i < v->n_processes; i++) {
        const mst_process_view *p = &v->processes[i];
        bool stalled = strcmp(p->process->name, "worker-1") == 0;
        if (stalled)
            assert_true(p->rows_per_s == 0 && p->steps_per_s == 0);
        else if (p->process->role == MST_PROCESS_WORKER)
            sum += p->rows_per_s;
    }
    assert_true(sum > 0);
    assert_float_equal(sum / v->rows_per_s, 1, 0.001);
    mst_board_destroy(board);
    mst_remove_tree(in_folder("run"));
}

static void test_silent(void **state)
{
    (void)state;
    fixture_run job = fixture_job("sync");
    struct timespec old[2] = {{.tv_sec = 1763200060}, {.tv_sec = 1763200060}};
    static const char *const files[] = {"metrics.csv", "marks.csv", "manifest.json"};
    char name[300];
    write_run("run", &job);
    set_state("run", "running");
    shorten("run/marks.csv", 1); /* its end */
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "run/%s", files[i]);
        assert_int_equal(utimensat(AT_FDCWD, in_folder(name), old, 0), 0);
    }
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "run/processes/%s/%s", job.processes[i].name,
                     k == 0 ? "spans.csv" : "resources.csv");
            assert_int_equal(utimensat(AT_FDCWD, in_folder(name), old, 0), 0);
        }
    mst_board *board = open_board(in_folder("run"), false);
    assert_int_equal(board->runs[0]->view.life, MST_LIFE_SILENT);
    assert_int_equal(board->runs[0]->view.processes[1].life, MST_LIFE_SILENT);
    assert_non_null(strstr(board->runs[0]->text, "may have been killed"));
    mst_board_destroy(board);
    /* its end was written, but no manifest after it: the disk was full */
    append("run/marks.csv", "1763200060.5,,end,no space left\n");
    assert_int_equal(utimensat(AT_FDCWD, in_folder("run/marks.csv"), old, 0), 0);
    board = open_board(in_folder("run"), false);
    assert_int_equal(board->runs[0]->view.life, MST_LIFE_FAILED);
    assert_int_equal(board->runs[0]->view.processes[1].life, MST_LIFE_FINISHED);
    mst_board_destroy(board);
    mst_remove_tree(in_folder("run"));
}

static void test_torn(void **state)
{
    (void)state;
    fixture_run job = fixture_job("sync");
    write_run("run", &job);
    replace("run/manifest.json", "{\"format\": \"muster-run\", \"sta");
    replace("run/processes/worker-0/spans.csv", "time,interval_s\n1,2,3,4\nnonsense");
    replace("run/processes/worker-1/process.json", "\xff\xfe\x00");
    append("run/marks.csv", "1763200001,wor\x1bker\xff,death,\"<script>alert(1)</script>\"\n");
    mst_board *board = open_board(in_folder("run"), true);
    assert_int_equal(board->n, 1);
    assert_non_null(strstr(board->runs[0]->text, "not a JSON object"));
    assert_non_null(strstr(board->runs[0]->text, "torn line"));
    json_t *json = json_loads(board->runs[0]->text, 0, NULL);
    assert_non_null(json);
    json_decref(json);
    mst_remove_tree(in_folder("run/processes"));
    update(board);
    assert_int_equal(board->n, 1);
    mst_board_destroy(board);
    mst_remove_tree(in_folder("run"));
}

/* ---- curves ---- */

static const mst_point_table *find_table(const mst_board_run *run, const char *name)
{
    for (size_t i = 0; i < run->n_tables; i++)
        if (strcmp(run->tables[i].name, name) == 0)
            return &run->tables[i];
    return NULL;
}

static void test_tables(void **state)
{
    (void)state;
    fixture_run job = fixture_job("sync");
    write_run("run", &job);
    mst_board *board = open_board(in_folder("run"), true);
    const mst_point_table *t = find_table(board->runs[0], "eval/test");
    assert_int_equal(t->n, 20);
    assert_int_equal(find_table(board->runs[0], "s/worker-2")->n, 60);
    assert_null(find_table(board->runs[0], "eval/valid"));
    mst_string json = {0};
    mst_point_table_json(find_table(board->runs[0], "r/server-0"), 58, &json);
    json_t *parsed = json_loads(json.text, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(parsed, "table")), "r/server-0");
    assert_int_equal(json_integer_value(json_object_get(parsed, "from")), 58);
    json_t *t_column = json_array_get(json_object_get(parsed, "data"), 0);
    assert_int_equal(json_array_size(t_column), 2);
    assert_true(json_number_value(json_array_get(t_column, 1)) == 60);
    json_decref(parsed);
    mst_string_fini(&json);
    /* a line more is a point more, and nothing else is sent */
    append("run/metrics.csv", "6001,600100,3,61,0,0.1,0.5,test,0.4,0.8,0.84,\n");
    update(board);
    t = find_table(board->runs[0], "eval/test");
    assert_int_equal(t->n, 21);
    assert_non_null(strstr(board->runs[0]->delta.text, "\"table\":\"eval/test\",\"from\":20,"));
    assert_null(strstr(board->runs[0]->delta.text, "r/worker-0"));
    update(board);
    assert_int_equal(board->runs[0]->delta.size, 0);
    mst_board_destroy(board);
    mst_remove_tree(in_folder("run"));
}

/* However long a run is, its tables are bounded, in order, and keep its mean. */
static void test_thinned(void **state)
{
    (void)state;
    mst_csv csv;
    mst_point_table t;
    char line[64];
    mst_string text = {0};
    size_t used;
    const size_t lines = 50000;
    assert_int_equal(mst_csv_init(&csv, "nowhere", NULL), MST_OK);
    mst_string_add(&text, "train_seconds,step,rows,train_loss,lr\n");
    for (size_t i = 0; i < lines; i++) {
        snprintf(line, sizeof line, "%zu,%zu,%zu,%d,0.1\n", i, i, i * 10, i % 2 == 0 ? 1 : 3);
        mst_string_add(&text, line);
    }
    assert_int_equal(mst_csv_take(&csv, text.text, text.size, &used), MST_OK);
    assert_int_equal(mst_point_table_init(&t, MST_TABLE_TRAIN, "train", NULL, &csv, 0), MST_OK);
    assert_int_equal(mst_point_table_update(&t), MST_OK);
    assert_true(t.n <= MST_TABLE_POINTS && t.n >= MST_TABLE_POINTS / 2 - 1);
    assert_int_equal(t.stride, 64);
    for (size_t i = 1; i < t.n; i++)
        assert_true(t.points[i * 5] > t.points[(i - 1) * 5]);
    assert_true(fabs(t.points[(t.n / 2) * 5 + 3] - 2) < 0.01);
    mst_point_table_fini(&t);
    mst_csv_fini(&csv);
    mst_string_fini(&text);
}

/* ---- events ---- */

static void test_framing(void **state)
{
    (void)state;
    mst_string out = {0};
    mst_sse_add(&out, "run", "{}");
    assert_string_equal(out.text, "event: run\ndata: {}\n\n");
    mst_string_fini(&out);
    mst_sse_add(&out, "x", "a\nb\r\nc\rd");
    assert_string_equal(out.text, "event: x\ndata: a\ndata: b\ndata: c\ndata: d\n\n");
    mst_string_fini(&out);
    mst_sse_add(&out, "x", "");
    assert_string_equal(out.text, "event: x\ndata: \n\n");
    mst_string_fini(&out);
    mst_sse_add(&out, "x", "a\n");
    assert_string_equal(out.text, "event: x\ndata: a\ndata: \n\n");
    mst_string_fini(&out);
    mst_sse_add(&out, "x", NULL);
    assert_int_equal(out.size, 0);
}

static size_t take_all(mst_listener *l, const mst_board *board, mst_string *out)
{
    char part[100];
    size_t n, total = 0;
    while ((n = mst_listener_take(l, board, "event: board\ndata: {}\n\n", part, sizeof part)) > 0) {
        assert_true(n <= sizeof part);
        mst_string_addn(out, part, n);
        total += n;
    }
    return total;
}

static size_t count(const char *text, const char *word)
{
    size_t n = 0;
    for (const char *p = text; p != NULL && (p = strstr(p, word)) != NULL; p += strlen(word))
        n++;
    return n;
}

static void test_listener(void **state)
{
    (void)state;
    fixture_run job = fixture_job("sync"), local = fixture_local();
    mst_listener l = {0};
    mst_string out = {0};
    assert_int_equal(mst_make_folders(in_folder("runs")), MST_OK);
    write_run("runs/a", &job);
    mst_board *board = open_board(in_folder("runs"), true);
    assert_true(take_all(&l, board, &out) > 1000);
    assert_int_equal(strncmp(out.text, "event: begin\ndata: {}\n\nevent: board\n", 36), 0);
    assert_int_equal(count(out.text, "event: run\n"), 1);
    assert_int_equal(count(out.text, "event: points\n"), board->runs[0]->n_tables);
    mst_string_fini(&out);
    /* a new run is given whole, once */
    write_run("runs/b", &local);
    update(board);
    mst_listener_offer(&l, board, "event: board\ndata: {}\n\n");
    take_all(&l, board, &out);
    assert_int_equal(count(out.text, "event: run\n"), 1);
    assert_non_null(strstr(out.text, "\"name\":\"b\""));
    mst_string_fini(&out);
    /* what changes is given as it is */
    append("runs/a/metrics.csv", "6001,600100,3,61,0,0.1,0.5,,,,,\n");
    update(board);
    mst_listener_offer(&l, board, "");
    take_all(&l, board, &out);
    assert_int_equal(count(out.text, "event: points\n"), 1);
    mst_string_fini(&out);
    /* a client that takes nothing is dropped, and starts again when it takes */
    char *much = mst_alloc(1 << 20);
    assert_non_null(much);
    memset(much, 'x', (1 << 20) - 1);
    much[(1 << 20) - 1] = '\0';
    for (int i = 0; i < 10; i++)
        mst_listener_offer(&l, board, much);
    assert_true(l.behind);
    assert_true(l.pending.size <= MST_LISTENER_PENDING);
    mst_free(much);
    take_all(&l, board, &out);
    assert_int_equal(count(out.text, "event: begin\n"), 1);
    assert_int_equal(count(strstr(out.text, "event: begin\n"), "event: run\n"), 2);
    assert_false(l.behind);
    mst_string_fini(&out);
    mst_listener_fini(&l);
    mst_board_destroy(board);
    mst_remove_tree(in_folder("runs"));
}

/* ---- texts ---- */

static void test_utf8(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"plain", "plain"},
        {"\xc3\xa9t\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80",
         "\xc3\xa9t\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"a\xff"
         "b",
         "a\xef\xbf\xbd"
         "b"},
        {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\x1b[31m", "\xef\xbf\xbd[31m"},
        {"\xc2\x9b"
         "1m",
         "\xef\xbf\xbd"
         "1m"},
        {"\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *clean = mst_utf8_clean(cases[i][0]);
        assert_string_equal(clean, cases[i][1]);
        assert_int_equal(mst_utf8_plain(cases[i][0]), strcmp(clean, cases[i][0]) == 0);
        mst_free(clean);
    }
    assert_int_equal(mst_utf8_columns("\xe2\x82\xac"
                                      "ab"),
                     3);
    assert_int_equal(mst_utf8_prefix("\xe2\x82\xac"
                                     "ab",
                                     2),
                     4);
    assert_int_equal(mst_utf8_prefix("ab", 5), 2);
}

static void test_prometheus(void **state)
{
    (void)state;
    fixture_run job = fixture_job("sync");
    mst_string out = {0};
    write_run("a \"b\" \\c", &job);
    set_state("a \"b\" \\c", "running");
    mst_board *board = open_board(in_folder("a \"b\" \\c"), false);
    mst_prometheus_text(board, &out);
    assert_false(out.failed);
    assert_non_null(strstr(out.text, "\nmuster_run_rows_total{run=\"a \\\"b\\\" \\\\c\"} "));
    assert_non_null(strstr(out.text, "muster_run_state{run=\"a \\\"b\\\" \\\\c\",state=\"live\"} 1\n"));
    assert_non_null(
        strstr(out.text, "process=\"worker-1\",role=\"worker\",host=\"worker-1\",phase=\"compute\"} "));
    assert_non_null(strstr(out.text, "muster_dash_runs 1\n"));
    assert_null(strstr(out.text, "nan"));
    assert_null(strstr(out.text, "inf"));
    /* each metric has one head, and its lines stand together */
    for (const char *p = out.text; (p = strstr(p, "# TYPE ")) != NULL; p++) {
        char name[128];
        assert_int_equal(sscanf(p, "# TYPE %120s", name), 1);
        strcat(name, " ");
        char head[160];
        snprintf(head, sizeof head, "# TYPE %s", name);
        assert_int_equal(count(out.text, head), 1);
    }
    mst_string_fini(&out);
    mst_board_destroy(board);
    mst_remove_tree(in_folder("a \"b\" \\c"));
}

static void check_frame(const mst_board *board, size_t width, size_t height, bool colour, bool utf8)
{
    mst_string out = {0};
    mst_frame_options o = {
        .width = width, .height = height, .colour = colour, .utf8 = utf8, .keys = height > 0};
    mst_top_frame(board, &o, &out);
    assert_false(out.failed);
    size_t lines = 1;
    for (const char *at = out.text; *at != '\0';) {
        size_t n = strcspn(at, "\n"), columns = 0;
        for (size_t i = 0; i < n; i++) {
            if (at[i] == 27) { /* colours take no room */
                while (i < n && at[i] != 'm')
                    i++;
                continue;
            }
            columns += ((unsigned char)at[i] & 0xc0) != 0x80;
            assert_true(utf8 || (unsigned char)at[i] < 0x80);
        }
        assert_true(columns <= width);
        lines += at[n] == '\n';
        at += n + (at[n] == '\n');
    }
    assert_true(height == 0 || lines <= height);
    if (!colour)
        assert_null(strchr(out.text, 27));
    mst_string_fini(&out);
}

static void test_frame(void **state)
{
    (void)state;
    fixture_run job = fixture_job("sync"), local = fixture_local();
    assert_int_equal(mst_make_folders(in_folder("runs")), MST_OK);
    mst_board *board = open_board(in_folder("runs"), false);
    check_frame(board, 80, 24, true, true);
    write_run("runs/a", &job);
    set_state("runs/a", "running");
    write_run("runs/b", &local);
    append("runs/a/marks.csv", "1763200061,worker-1,death,lost \x1b[31mred\n");
    update(board);
    static const size_t sizes[][2] = {{80, 24}, {200, 60}, {40, 10}, {20, 3}, {5, 2}, {1, 1}, {120, 0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_frame(board, sizes[i][0], sizes[i][1], true, true);
        check_frame(board, sizes[i][0], sizes[i][1], false, false);
    }
    mst_string out = {0};
    mst_frame_options o = {.width = 120};
    mst_top_frame(board, &o, &out);
    assert_non_null(strstr(out.text, "> a "));
    assert_non_null(strstr(out.text, "worker-1      dead "));
    assert_non_null(strstr(out.text, "server-0      live "));
    assert_non_null(strstr(out.text, "death worker-1"));
    assert_non_null(strstr(out.text, "Computing is the bottleneck"));
    assert_non_null(strstr(out.text, "cccccccc"));
    assert_non_null(strstr(out.text, "c computing"));
    assert_non_null(strstr(out.text, "p preparing rows"));
    mst_string_fini(&out);
    mst_board_destroy(board);
    mst_remove_tree(in_folder("runs"));
}

static void test_memory(void **state)
{
    (void)state;
    fixture_run job = fixture_job("sync");
    mst_text_list paths = {0};
    write_run("run", &job);
    assert_int_equal(mst_text_list_add(&paths, in_folder("run")), MST_OK);
    for (uint64_t k = 1; k < 400; k++) {
        mst_board *board = NULL;
        mst_string out = {0};
        mst_alloc_fail_at(k);
        mst_status st = mst_board_new(&paths, true, &board);
        if (st == MST_OK && board->n > 0 && board->runs[0]->looked)
            mst_prometheus_text(board, &out);
        mst_alloc_fail_at(0);
        assert_true(st == MST_OK || st == MST_ENOMEM);
        mst_string_fini(&out);
        mst_board_destroy(board);
    }
    mst_text_list_fini(&paths);
    mst_remove_tree(in_folder("run"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),    cmocka_unit_test(test_refused), cmocka_unit_test(test_lives),
        cmocka_unit_test(test_stalled),  cmocka_unit_test(test_silent),  cmocka_unit_test(test_torn),
        cmocka_unit_test(test_tables),   cmocka_unit_test(test_thinned), cmocka_unit_test(test_framing),
        cmocka_unit_test(test_listener), cmocka_unit_test(test_utf8),    cmocka_unit_test(test_prometheus),
        cmocka_unit_test(test_frame),    cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
