/* Runs as text (top_frame.h).
 *
 * Design: the pen keeps the current column and drops text that does not fit, so that callers need not check.
 * Colours are escape sequences, which take no column. */
#include "dash/top_frame.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "base/file.h"
#include "base/utf8.h"

#define RUNS_MAX 8  /* lines of the list of runs */
#define NAME_MIN 10 /* columns of their names */

typedef enum ink { PLAIN, DIM, BOLD, RED, GREEN, YELLOW, BLUE, MAGENTA, CYAN } ink;

static const char *const inks[] = {"\x1b[0m",  "\x1b[2m",  "\x1b[1m",  "\x1b[31m", "\x1b[32m",
                                   "\x1b[33m", "\x1b[34m", "\x1b[35m", "\x1b[36m"};

/* ---- the pen ---- */

typedef struct pen {
    mst_string *out;
    const mst_frame_options *o;
    size_t column, line;
} pen;

static bool frame_full(const pen *p)
{
    return p->o->height > 0 && p->line >= p->o->height - (p->o->keys ? 1 : 0);
}

/* For terminals that support only ASCII. */
static void frame_make_ascii(char *text)
{
    char *to = text;
    for (const char *p = text; *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        if (c < 0x80)
            *to++ = *p;
        else if ((c & 0xc0) != 0x80) /* the first byte of a character */
            *to++ = strncmp(p, "\xc2\xb5", 2) == 0 ? 'u' : '?';
    }
    *to = '\0';
}

static void frame_write_text(pen *p, ink with, const char *text)
{
    size_t room = p->o->width > p->column ? p->o->width - p->column : 0;
    char *clean = mst_utf8_clean(text);
    if (clean == NULL || frame_full(p) || room == 0) {
        p->out->failed = p->out->failed || clean == NULL;
        mst_free(clean);
        return;
    }
    if (!p->o->utf8)
        frame_make_ascii(clean);
    size_t n = mst_utf8_prefix(clean, room);
    if (p->o->colour && with != PLAIN)
        mst_string_add(p->out, inks[with]);
    mst_string_addn(p->out, clean, n);
    if (p->o->colour && with != PLAIN)
        mst_string_add(p->out, inks[PLAIN]);
    clean[n] = '\0';
    p->column += mst_utf8_columns(clean);
    mst_free(clean);
}

static void frame_put(pen *p, ink with, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void frame_put(pen *p, ink with, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    frame_write_text(p, with, text);
}

static void frame_newline(pen *p)
{
    if (frame_full(p))
        return;
    mst_string_add(p->out, "\n");
    p->column = 0;
    p->line++;
}

/* Spaces up to that column. */
static void frame_to_column(pen *p, size_t column)
{
    while (p->column < column && p->column < p->o->width && !frame_full(p))
        frame_write_text(p, PLAIN, " ");
}

/* The text, right-aligned to end before the column. */
static void frame_put_right(pen *p, size_t end, ink with, const char *text)
{
    size_t n = mst_utf8_columns(text);
    frame_to_column(p, end > n ? end - n : 0);
    frame_write_text(p, with, text);
}

/* Words over as many lines as they take, at most `lines`. */
static void frame_put_wrapped(pen *p, ink with, const char *text, size_t indent, int lines)
{
    while (*text != '\0' && lines-- > 0) {
        size_t room = p->o->width > p->column ? p->o->width - p->column : 1;
        size_t n = mst_utf8_prefix(text, room), cut = n;
        if (text[n] != '\0') {
            while (cut > 0 && text[cut] != ' ')
                cut--;
            cut = cut > 0 ? cut : n;
        }
        char *line = mst_strndup(text, cut);
        if (line != NULL)
            frame_write_text(p, with, line);
        mst_free(line);
        text += cut;
        while (*text == ' ')
            text++;
        frame_newline(p);
        if (*text != '\0' && lines > 0)
            frame_to_column(p, indent);
    }
}

/* ---- words ---- */

static ink frame_life_ink(mst_life life)
{
    switch (life) {
    case MST_LIFE_LIVE:
        return GREEN;
    case MST_LIFE_SILENT:
    case MST_LIFE_STOPPED:
        return YELLOW;
    case MST_LIFE_FINISHED:
        return BLUE;
    default:
        return RED;
    }
}

/* Whole percents. */
static const char *frame_percent(double share, char *out)
{
    snprintf(out, MST_FIGURE_SIZE, "%.0f%%", share * 100);
    return out;
}

static const char *frame_figure(double value, const char *(*show)(double, char *), char *out)
{
    if (isnan(value))
        memcpy(out, "-", 2);
    else
        show(value, out);
    return out;
}

static void frame_put_words(pen *p, const char *what, ink with, const char *text)
{
    if (p->column > 0 && p->column + strlen(what) + mst_utf8_columns(text) + 4 > p->o->width)
        frame_newline(p);
    if (p->column > 0)
        frame_write_text(p, PLAIN, "   ");
    frame_put(p, DIM, "%s ", what);
    frame_write_text(p, with, text);
}

static void frame_put_fact(pen *p, const char *what, double value, const char *(*show)(double, char *))
{
    char text[40];
    if (!isnan(value))
        frame_put_words(p, what, BOLD, show(value, text));
}

static void frame_put_loss(pen *p, const char *what, double loss, bool is_nan)
{
    const char *odd = mst_odd_loss(loss, is_nan);
    if (odd != NULL)
        frame_put_words(p, what, RED, odd);
    else
        frame_put_fact(p, what, loss, mst_figure_real);
}

/* ---- the list of runs ---- */

static const struct {
    const char *title;
    size_t width;
} run_columns[] = {{"STATE", 10}, {"DONE", 7}, {"ROWS/S", 9}, {"TRAIN LOSS", 12}, {"ERROR", 9}};
#define RUN_COLUMNS (sizeof run_columns / sizeof *run_columns)

/* The width of the names, at least NAME_MIN, and the number of columns that fit after them. */
static size_t frame_fit_columns(const pen *p, const mst_board *board, size_t *name)
{
    size_t longest = NAME_MIN, rest = 0, n = 0;
    for (size_t i = 0; i < board->n; i++) {
        size_t columns = mst_utf8_columns(board->runs[i]->label);
        longest = columns > longest ? columns : longest;
    }
    while (n < RUN_COLUMNS && 2 + NAME_MIN + rest + run_columns[n].width <= p->o->width)
        rest += run_columns[n++].width;
    size_t room = p->o->width > 2 + rest ? p->o->width - 2 - rest : 1;
    *name = longest < room ? longest : room;
    return n;
}

static void frame_draw_runs(pen *p, const mst_board *board, const mst_board_run *chosen)
{
    char text[RUN_COLUMNS][40];
    size_t at = 0, from = 0, name, n = frame_fit_columns(p, board, &name), end = 2 + name;
    if (board->n < 2)
        return;
    while (at < board->n && board->runs[at] != chosen)
        at++;
    from = at >= RUNS_MAX ? at - RUNS_MAX + 1 : 0;
    frame_put(p, DIM, "  RUN");
    for (size_t c = 0; c < n; c++)
        frame_put_right(p, end += run_columns[c].width, DIM, run_columns[c].title);
    frame_newline(p);
    for (size_t i = from; i < board->n && i < from + RUNS_MAX; i++) {
        const mst_board_run *run = board->runs[i];
        const mst_run_view *v = &run->view;
        size_t label = mst_utf8_prefix(run->label, name);
        frame_put(p, run == chosen ? BOLD : PLAIN, "%s %.*s", run == chosen ? ">" : " ", (int)label,
                  run->label);
        snprintf(text[0], sizeof text[0], "%s", mst_life_name(v->life));
        frame_figure(v->share_done, frame_percent, text[1]);
        frame_figure(v->rows_per_s, mst_figure_short, text[2]);
        const char *odd = mst_odd_loss(v->train_loss, v->train_loss_is_nan);
        if (odd != NULL)
            snprintf(text[3], sizeof text[3], "%s", odd);
        else
            frame_figure(v->train_loss, mst_figure_real, text[3]);
        frame_figure(1 - v->figures.test_accuracy, mst_figure_precise, text[4]);
        end = 2 + name;
        for (size_t c = 0; c < n; c++)
            frame_put_right(p, end += run_columns[c].width, c == 0 ? frame_life_ink(v->life) : PLAIN,
                            text[c]);
        frame_newline(p);
    }
    if (board->n > RUNS_MAX) {
        frame_put(p, DIM, "  %zu runs", board->n);
        frame_newline(p);
    }
    frame_newline(p);
}

/* ---- one run ---- */

static void frame_draw_title(pen *p, const mst_board_run *run)
{
    const mst_run_view *v = &run->view;
    const mst_run_figures *f = &v->figures;
    char line[400] = "", text[40];
    frame_put(p, BOLD, "%s", run->label);
    frame_put(p, PLAIN, "  ");
    frame_put(p, frame_life_ink(v->life), "%s", mst_life_name(v->life));
    if (v->life != MST_LIFE_LIVE && v->life != MST_LIFE_SILENT && *f->end != '\0')
        frame_put(p, DIM, ": %s", f->end);
    if (v->life == MST_LIFE_SILENT)
        frame_put(p, YELLOW, ": no file was written for %s", mst_figure_seconds(round(v->quiet_s), text));
    if (v->life == MST_LIFE_GONE)
        frame_put(p, RED, ": its folder is not there any more");
    frame_newline(p);
    if (v->data->manifest == NULL) /* it names the model */
        return;
    int n = snprintf(line, sizeof line, "%.60s %s %.20s %.20s", f->model, p->o->utf8 ? "\xc2\xb7" : "-",
                     f->strategy, f->mode);
    const double counts[] = {f->n_servers, f->n_workers, f->n_threads, f->batch};
    bool ranks = strcmp(f->strategy, "allreduce") == 0;
    const char *const words[] = {"server", ranks ? "rank" : "worker", "thread", "row"};
    for (int i = 0; i < 4; i++)
        if (!isnan(counts[i]) && n < (int)sizeof line)
            n += snprintf(line + n, sizeof line - (size_t)n, ", %s %s%s%s", mst_figure_count(counts[i], text),
                          words[i], counts[i] == 1 ? "" : "s", i == 3 ? " a batch" : "");
    frame_put(p, DIM, "%s", line);
    frame_newline(p);
}

static void frame_draw_progress(pen *p, const mst_run_view *v)
{
    char text[40];
    if (v->life != MST_LIFE_LIVE || isnan(v->share_done))
        return;
    size_t n = p->o->width > 60 ? 40 : p->o->width / 2, done = (size_t)(v->share_done * (double)n + 0.5);
    frame_put(p, PLAIN, p->o->utf8 ? "" : "[");
    for (size_t i = 0; i < n; i++)
        frame_put(p, i < done ? BLUE : DIM, "%s",
                  p->o->utf8 ? (i < done ? "\xe2\x96\x88" : "\xe2\x96\x91")
                  : i < done ? "#"
                             : "-");
    frame_put(p, PLAIN, "%s %.1f%%", p->o->utf8 ? "" : "]", v->share_done * 100);
    if (!isnan(v->left_s))
        frame_put(p, DIM, "  about %s left", mst_figure_seconds(round(v->left_s), text));
    frame_newline(p);
}

static void frame_draw_facts(pen *p, const mst_run_view *v)
{
    const mst_run_figures *f = &v->figures;
    bool valid = strcmp(f->set, "valid") == 0;
    frame_put_fact(p, "rows/s", v->rows_per_s, mst_figure_short);
    frame_put_fact(p, "steps/s", v->steps_per_s, mst_figure_short);
    frame_put_fact(p, "waits", v->waits, frame_percent);
    frame_put_fact(p, "training", f->train_s, mst_figure_seconds);
    frame_put_fact(p, "steps", f->steps, mst_figure_short);
    frame_put_fact(p, "rows", f->rows, mst_figure_short);
    frame_newline(p);
    frame_put_loss(p, "train loss", v->train_loss, v->train_loss_is_nan);
    frame_put_loss(p, valid ? "valid loss" : "test loss", f->test_loss, f->loss_is_nan);
    frame_put_fact(p, valid ? "valid error" : "test error", 1 - f->test_accuracy, mst_figure_precise);
    frame_put_fact(p, "best", 1 - f->best_accuracy, mst_figure_precise);
    frame_put_fact(p, "AUC", f->test_auc, mst_figure_real);
    frame_put_fact(p, "lr", v->lr, mst_figure_real);
    if (p->column > 0)
        frame_newline(p);
}

/* The last values of a curve, a character each, between the least and the greatest of them. */
static void frame_draw_curve(pen *p, const mst_points *points, const char *title,
                             const char *(*show)(double, char *))
{
    static const char *const steps[] = {"\xe2\x96\x81", "\xe2\x96\x82", "\xe2\x96\x83", "\xe2\x96\x84",
                                        "\xe2\x96\x85", "\xe2\x96\x86", "\xe2\x96\x87", "\xe2\x96\x88"};
    static const char *const plain[] = {"_", ".", "-", "~", "=", "+", "*", "#"};
    size_t room = p->o->width > 44 ? p->o->width - 44 : 0, n = points->n < room ? points->n : room;
    double low = INFINITY, high = -INFINITY;
    char text[40];
    if (n < 2)
        return;
    /* a long curve is thinned to one value for each column */
    for (size_t i = 0; i < points->n; i++) {
        low = fmin(low, points->y[i]);
        high = fmax(high, points->y[i]);
    }
    frame_put(p, DIM, "%-12s", title);
    for (size_t i = 0; i < n; i++) {
        double y = points->y[(i + 1) * points->n / n - 1];
        double share = high > low ? (y - low) / (high - low) : 0;
        int k = (int)fmin(7, fmax(0, share * 8));
        frame_put(p, CYAN, "%s", (p->o->utf8 ? steps : plain)[k]);
    }
    frame_put(p, DIM, "  %s to", show(low, text));
    frame_put(p, DIM, " %s", show(high, text));
    frame_newline(p);
}

static void frame_draw_curves(pen *p, const mst_run_view *v)
{
    static const struct {
        const char *column, *title;
        bool evaluated;
    } curves[] = {{"train_loss", "train loss", false}, {"error", "error", true}, {"loss", "loss", true}};
    for (size_t k = 0; k < 3; k++) {
        mst_points points = {0};
        if (curves[k].evaluated && *v->figures.set == '\0')
            continue;
        if (mst_curve(v->data, curves[k].column, curves[k].evaluated ? v->figures.set : "", MST_AXIS_TIME,
                      &points) != MST_OK) {
            p->out->failed = true;
            return;
        }
        frame_draw_curve(p, &points, curves[k].title,
                         strcmp(curves[k].column, "error") == 0 ? mst_figure_precise : mst_figure_real);
        mst_points_fini(&points);
    }
}

static void frame_draw_verdict(pen *p, const mst_run_view *v)
{
    if (!v->has_verdict)
        return;
    frame_newline(p);
    frame_put_wrapped(p, v->verdict.known && v->verdict.kind != MST_BOTTLENECK_NONE ? BOLD : PLAIN,
                      v->verdict.sentence, 0, 4);
}

static void frame_draw_advice(pen *p, const mst_run_view *v)
{
    char text[600];
    if (!v->has_verdict || v->verdict.n_advice == 0)
        return;
    frame_newline(p);
    for (size_t i = 0; i < v->verdict.n_advice && i < 2; i++) {
        const mst_advice *a = &v->verdict.advice[i];
        snprintf(text, sizeof text, "%s: %s", a->change, a->text);
        frame_put(p, GREEN, "  x%.2f ", a->gain);
        frame_put_wrapped(p, PLAIN, text, 8, 2);
    }
}

/* ---- processes ---- */

static const struct {
    mst_cost_kind kind;
    char letter;
    ink with;
} phases[] = {
    {MST_COST_COMPUTE, 'c', BLUE},     {MST_COST_PREPARE, 'p', CYAN},     {MST_COST_READ, 'r', YELLOW},
    {MST_COST_PULL_WAIT, 'w', RED},    {MST_COST_BARRIER_WAIT, 'b', RED}, {MST_COST_PUSH, 's', GREEN},
    {MST_COST_APPLY, 'a', MAGENTA},    {MST_COST_SERVE, 'v', MAGENTA},    {MST_COST_EVALUATE, 'e', YELLOW},
    {MST_COST_CHECKPOINT, 'k', GREEN},
};
#define PHASES (sizeof phases / sizeof *phases)
#define BAR    20

/* Twenty letters for the shares of phases, a dot for none. *used: the phases in it. */
static void frame_draw_bar(pen *p, const mst_process_view *v, bool *used)
{
    double sum = 0;
    size_t drawn = 0;
    for (size_t k = 0; k < PHASES; k++) {
        sum += mst_process_view_share(v, phases[k].kind);
        char letter[2] = {phases[k].letter, '\0'};
        for (; drawn < BAR && (double)drawn + 0.5 < sum * BAR; drawn++) {
            frame_write_text(p, phases[k].with, letter);
            used[k] = true;
        }
    }
    for (; drawn < BAR; drawn++)
        frame_write_text(p, DIM, ".");
}

static void frame_draw_process(pen *p, const mst_process_view *v, bool *used)
{
    char text[40];
    bool trains = v->process->role != MST_PROCESS_SERVER;
    double s = v->now.seconds > 0 ? v->now.seconds : NAN;
    frame_put(p, PLAIN, "%.*s", (int)mst_utf8_prefix(v->process->name, 13), v->process->name);
    frame_to_column(p, 14);
    frame_put(p, frame_life_ink(v->life), "%s", mst_life_name(v->life));
    frame_put_right(p, 29, PLAIN, frame_figure(v->now_use.all[MST_LOAD_CPU].mean, mst_figure_cores, text));
    frame_put_right(p, 40, PLAIN, frame_figure(v->now_use.all[MST_LOAD_MEMORY].mean, mst_figure_bytes, text));
    frame_put_right(p, 49, PLAIN, frame_figure(trains ? v->rows_per_s : NAN, mst_figure_short, text));
    frame_put_right(p, 56, PLAIN,
                    frame_figure(trains && !isnan(s) ? mst_process_view_waits(v) : NAN, frame_percent, text));
    frame_to_column(p, 58);
    frame_draw_bar(p, v, used);
    frame_put_right(p, 89, PLAIN, frame_figure(v->now.bytes_in / s, mst_figure_bytes, text));
    frame_put_right(p, 100, PLAIN, frame_figure(v->now.bytes_out / s, mst_figure_bytes, text));
    frame_to_column(p, 102);
    frame_put(p, DIM, "%s", v->process->host);
    frame_newline(p);
}

static void frame_draw_processes(pen *p, const mst_run_view *v, size_t reserve)
{
    static const char *const heads[] = {"CPU", "MEMORY", "ROWS/S", "WAITS", "IN/S", "OUT/S"};
    static const size_t ends[] = {29, 40, 49, 56, 89, 100};
    size_t n = v->n_processes;
    bool used[PHASES] = {false};
    if (n == 0)
        return;
    frame_newline(p);
    frame_put(p, DIM, "PROCESS");
    frame_to_column(p, 14);
    frame_put(p, DIM, "STATE");
    for (int i = 0; i < 6; i++) {
        if (i == 4) {
            frame_to_column(p, 58);
            frame_put(p, DIM, "TIME GOES TO");
        }
        frame_put_right(p, ends[i], DIM, heads[i]);
    }
    frame_to_column(p, 102);
    frame_put(p, DIM, "HOST");
    frame_newline(p);
    if (p->o->height > 0 && p->line + n + reserve > p->o->height)
        n = p->o->height > p->line + reserve ? p->o->height - p->line - reserve : 1;
    for (size_t i = 0; i < n && i < v->n_processes; i++)
        frame_draw_process(p, &v->processes[i], used);
    if (n < v->n_processes) {
        frame_put(p, DIM, "and %zu more", v->n_processes - n);
        frame_newline(p);
    }
    for (size_t k = 0; k < PHASES; k++) {
        const char *title = mst_cost_kinds[phases[k].kind].title;
        if (!used[k])
            continue;
        if (p->column > 0 && p->column + strlen(title) + 4 > p->o->width)
            frame_newline(p);
        frame_put(p, PLAIN, p->column > 0 ? "  " : "");
        frame_put(p, phases[k].with, "%c", phases[k].letter);
        frame_put(p, DIM, " %s", title);
    }
    if (p->column > 0)
        frame_newline(p);
}

/* ---- events ---- */

static void frame_draw_marks(pen *p, const mst_run_view *v)
{
    size_t room = p->o->height > 0 ? (p->o->height > p->line + 3 ? p->o->height - p->line - 3 : 0) : 8;
    size_t shown = 0;
    for (size_t i = v->data->marks.n_rows; i > 0 && shown < room && shown < 12; i--) {
        mst_mark_line m = mst_run_data_mark(v->data, i - 1);
        char when[16] = "";
        struct tm tm;
        time_t seconds = m.time > 0 && m.time < 1e11 ? (time_t)m.time : 0;
        if (mst_ends_with(m.kind, "_begin")) /* the mark of its end follows */
            continue;
        if (shown++ == 0)
            frame_newline(p);
        if (localtime_r(&seconds, &tm) != NULL)
            strftime(when, sizeof when, "%H:%M:%S", &tm);
        frame_put(p, DIM, "%s  ", when);
        frame_put(p, strcmp(m.kind, "death") == 0 ? RED : PLAIN, "%.60s", m.kind);
        frame_put(p, PLAIN, "%s%.100s", *m.process != '\0' ? " " : "", m.process);
        frame_put(p, DIM, "  %.400s", m.text);
        frame_newline(p);
    }
}

void mst_top_frame(const mst_board *board, const mst_frame_options *options, mst_string *out)
{
    pen p = {.out = out, .o = options};
    const mst_board_run *chosen = mst_board_newest(board);
    for (size_t i = 0; i < board->n; i++)
        if (board->runs[i]->id == options->chosen)
            chosen = board->runs[i];
    for (size_t i = 0; i < board->notes.n; i++) {
        frame_put_wrapped(&p, YELLOW, board->notes.items[i], 0, 2);
    }
    frame_draw_runs(&p, board, chosen);
    if (chosen != NULL) {
        const mst_run_view *v = &chosen->view;
        frame_draw_title(&p, chosen);
        frame_draw_progress(&p, v);
        frame_draw_facts(&p, v);
        frame_draw_curves(&p, v);
        frame_draw_verdict(&p, v);
        frame_draw_processes(&p, v, 4);
        frame_draw_advice(&p, v);
        for (size_t i = 0; i < v->data->warnings.n && i < 3; i++) {
            frame_put(&p, YELLOW, "%s", v->data->warnings.items[i]);
            frame_newline(&p);
        }
        frame_draw_marks(&p, v);
    }
    if (options->keys && options->height > 0) {
        while (!frame_full(&p))
            frame_newline(&p);
        const char *keys = board->n > 1 ? "q ends, up and down choose a run" : "q ends";
        mst_string_add(out, options->colour ? "\x1b[2m" : "");
        mst_string_addn(out, keys, mst_utf8_prefix(keys, options->width));
        mst_string_add(out, options->colour ? "\x1b[0m" : "");
    }
}
