/* `muster top`: runs live in a terminal; one frame elsewhere. */
#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/signals.h"
#include "cli/cli.h"
#include "dash/top_frame.h"

#define PLAIN_WIDTH 120 /* if the terminal does not report its width */
#define TICK_MS     1000
#define TICK_SHARE  10 /* reading takes at most one in so many */

typedef struct top_options {
    bool once, json;
} top_options;

static const mst_option top_table[] = {
    {.name = "once",
     .type = MST_OPTION_FLAG,
     .offset = offsetof(top_options, once),
     .help = "Print one frame and exit; the default if standard output is not a terminal."},
    {.name = NULL},
};

/* ---- the terminal ---- */

typedef struct terminal {
    struct termios before;
    bool changed;
} terminal;

static void top_on_resize(int number)
{
    (void)number; /* the signal ends a poll */
}

static bool terminal_write(const char *text, size_t n)
{
    while (n > 0) {
        ssize_t done = write(STDOUT_FILENO, text, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        text += done;
        n -= (size_t)done;
    }
    return true;
}

static void terminal_begin(terminal *self)
{
    struct sigaction resize = {.sa_handler = top_on_resize};
    struct termios raw;
    sigaction(SIGWINCH, &resize, NULL);
    self->changed = tcgetattr(STDIN_FILENO, &self->before) == 0;
    if (self->changed) {
        raw = self->before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_cc[VSUSP] = _POSIX_VDISABLE; /* the shell would come back to this screen */
        raw.c_cc[VMIN] = 0;
        raw.c_cc[VTIME] = 0;
        tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    terminal_write("\x1b[?1049h\x1b[?25l\x1b[2J", 18);
}

static void terminal_end(const terminal *self)
{
    terminal_write("\x1b[?25h\x1b[?1049l", 14);
    if (self->changed)
        tcsetattr(STDIN_FILENO, TCSANOW, &self->before);
}

static void terminal_size(mst_frame_options *o)
{
    struct winsize size;
    o->width = 80;
    o->height = 24;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
        o->width = size.ws_col;
        o->height = size.ws_row;
    }
}

static bool terminal_is_utf8(void)
{
    setlocale(LC_CTYPE, "");
    bool utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    setlocale(LC_CTYPE, "C");
    return utf8;
}

/* ---- live ---- */

/* The frame over what stands there: each line is cleared behind its end, and the rest of the screen. */
static mst_status top_show(const mst_board *board, const mst_frame_options *o)
{
    mst_string frame = {0}, screen = {0};
    mst_top_frame(board, o, &frame);
    mst_string_add(&screen, "\x1b[H");
    for (const char *at = frame.text; at != NULL && *at != '\0';) {
        size_t n = strcspn(at, "\n");
        mst_string_addn(&screen, at, n);
        mst_string_add(&screen, at[n] == '\n' ? "\x1b[K\r\n" : "\x1b[K");
        at += n + (at[n] == '\n');
    }
    mst_string_add(&screen, "\x1b[J");
    mst_status st = frame.failed || screen.failed ? mst_fail_memory() : MST_OK;
    if (st == MST_OK && !terminal_write(screen.text, screen.size))
        st = mst_fail(MST_EIO, "the terminal cannot be written to: %s", strerror(errno));
    mst_string_fini(&frame);
    mst_string_fini(&screen);
    return st;
}

static void top_choose(const mst_board *board, mst_frame_options *o, int step)
{
    const mst_board_run *newest = mst_board_newest(board);
    unsigned now = o->chosen != 0 ? o->chosen : newest != NULL ? newest->id : 0;
    for (size_t i = 0; i < board->n; i++)
        if (board->runs[i]->id == now) {
            size_t to = step < 0 ? (i > 0 ? i - 1 : 0) : (i + 1 < board->n ? i + 1 : i);
            o->chosen = board->runs[to]->id;
            return;
        }
}

/* Waits for the next tick or a key; false: the user wants to end. */
static bool top_wait_key(const mst_board *board, mst_frame_options *o, int ms)
{
    char keys[64];
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&in, 1, ms) <= 0)
        return true;
    ssize_t n = read(STDIN_FILENO, keys, sizeof keys);
    if (n <= 0) /* the terminal is gone */
        return false;
    for (ssize_t i = 0; i < n; i++) {
        if (keys[i] == 'q' || keys[i] == 'Q' || keys[i] == 3)
            return false;
        if (keys[i] == 'k' || (keys[i] == 'A' && i >= 2 && keys[i - 1] == '[' && keys[i - 2] == 27))
            top_choose(board, o, -1);
        if (keys[i] == 'j' || (keys[i] == 'B' && i >= 2 && keys[i - 1] == '[' && keys[i - 2] == 27))
            top_choose(board, o, 1);
    }
    return true;
}

static mst_status top_follow(mst_board *board)
{
    mst_status st = MST_OK;
    terminal screen;
    mst_frame_options o = {.colour = getenv("NO_COLOR") == NULL, .utf8 = terminal_is_utf8(), .keys = true};
    uint64_t due = mst_now_ns();
    mst_signals_install();
    terminal_begin(&screen);
    while (st == MST_OK && !*mst_signals_stop()) {
        uint64_t now = mst_now_ns();
        if (now >= due) {
            st = mst_board_update(board);
            uint64_t cost = (mst_now_ns() - now) * TICK_SHARE;
            due = now + (cost > TICK_MS * MST_MS ? cost : TICK_MS * MST_MS);
        }
        terminal_size(&o);
        if (st == MST_OK)
            st = top_show(board, &o);
        now = mst_now_ns();
        if (st == MST_OK && !top_wait_key(board, &o, due > now ? (int)((due - now) / MST_MS) + 1 : 0))
            break;
    }
    terminal_end(&screen);
    return st;
}

/* ---- once ---- */

static mst_status top_print_frame(const mst_board *board)
{
    mst_string frame = {0};
    int64_t columns = 0;
    const char *width = getenv("COLUMNS");
    mst_frame_options o = {.width = PLAIN_WIDTH, .utf8 = terminal_is_utf8()};
    if (width != NULL && mst_parse_int(width, &columns) && columns >= 20 && columns <= 1000)
        o.width = (size_t)columns;
    mst_top_frame(board, &o, &frame);
    mst_status st = frame.failed ? mst_fail_memory() : MST_OK;
    if (st == MST_OK && frame.text != NULL)
        fputs(frame.text, stdout);
    mst_string_fini(&frame);
    return st;
}

static mst_status top_print_json(const mst_board *board)
{
    json_t *list = json_array();
    for (size_t i = 0; i < board->n; i++)
        json_array_append_new(list, mst_run_view_json(&board->runs[i]->view, board->runs[i]->label));
    char *text = list != NULL && json_array_size(list) == board->n
                     ? json_dumps(list, JSON_INDENT(2) | JSON_REAL_PRECISION(14))
                     : NULL;
    json_decref(list);
    if (text == NULL)
        return mst_fail_memory();
    puts(text);
    free(text);
    return MST_OK;
}

static mst_status top_run(mst_call *call)
{
    const top_options *options = call->options;
    mst_board *board = NULL;
    if (call->words.n == 0)
        return mst_fail(MST_EUSAGE, "give the folder of a run, or a folder of runs: muster %s",
                        mst_cmd_top.usage);
    TRY(mst_board_new(&call->words, false, &board));
    mst_status st = options->json ? top_print_json(board)
                    : options->once || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)
                        ? top_print_frame(board)
                        : top_follow(board);
    mst_board_destroy(board);
    return st;
}

static const mst_command_group top_groups[] = {
    {"top", top_table, 0}, {"output", mst_cli_json_table, offsetof(top_options, json)}, {.table = NULL}};

const mst_command mst_cmd_top = {
    .name = "top",
    .summary = "show runs live in the terminal",
    .run = top_run,
    .usage = "top RUN... [options]",
    .details = "Follows runs like 'muster dash', in the terminal; q ends it. Without a terminal, or with "
               "--once, prints one frame. Only reads files.\n",
    .groups = top_groups,
    .options_size = sizeof(top_options),
    .examples = "muster top runs/clicks\n",
};
