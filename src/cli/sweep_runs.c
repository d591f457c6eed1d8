/* Runs of a sweep as processes; contract in sweep_runs.h.
 *
 * A run is one process of launch_procs, in a loop of its own that also has the signals and a tick, which
 * looks at the clock and shows the progress: the last line that the run said, and what is left. */
#include "cli/sweep_runs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/launch_procs.h"
#include "cli/launch_remote.h"
#include "cli/progress.h"
#include "cli/signal_loop.h"
#include "report/buffer.h"
#include "train/settings.h"

#define TICK_MS      200
#define SENTENCE_MAX 900

typedef enum phase { PHASE_RUN, PHASE_STOPPING, PHASE_KILLING } phase;

struct mst_runner {
    const mst_sweep *sweep;
    double timeout_s;
    char program[4096];
    mst_signal_loop loop;
    uv_timer_t tick;
    int stopped_by; /* signal; 0: nobody */
    char stopped_name[16];
    /* of the current run: */
    mst_procs *procs;
    uint32_t id;
    bool ended, timed_out;
    phase phase;
    int code, signal;
    uint64_t began_ns, kill_ns;
    char sentence[SENTENCE_MAX], last[160];
    FILE *log;
    mst_bar bar;
    const char *what, *name;
    double left_s;
};

const char *mst_runner_stopped(const mst_runner *self)
{
    return self->stopped_by != 0 ? self->stopped_name : NULL;
}

/* ---- ending a run ---- */

static void kill_run(mst_runner *r)
{
    r->phase = PHASE_KILLING;
    mst_procs_kill(r->procs, r->id);
}

static void stop_run(mst_runner *r)
{
    r->phase = PHASE_STOPPING;
    r->kill_ns = mst_now_ns() + MST_RUNNER_GRACE_S * MST_S;
    mst_procs_stop(r->procs, r->id);
}

static void on_signal(uv_signal_t *handle, int number)
{
    mst_runner *r = handle->data;
    bool running = r->procs != NULL && !r->ended;
    if (running && r->stopped_by != 0)
        kill_run(r);
    else if (running && r->phase == PHASE_RUN)
        stop_run(r);
    if (r->stopped_by == 0) {
        r->stopped_by = number;
        mst_signal_name(number, r->stopped_name, sizeof r->stopped_name);
    }
}

static void show(mst_runner *r)
{
    char text[400], a[40], b[40];
    double seconds = mst_seconds_since(r->began_ns);
    int n = snprintf(text, sizeof text, "%s%s  %s", r->what, r->name, mst_figure_seconds(floor(seconds), a));
    if (r->last[0] != '\0' && n < 300)
        n += snprintf(text + n, sizeof text - (size_t)n, "  (%.120s)", r->last);
    double left = r->left_s - seconds;
    if (!isnan(left) && n < 360)
        snprintf(text + n, sizeof text - (size_t)n, "  about %s left",
                 mst_figure_seconds(ceil(fmax(0, left)), b));
    mst_bar_show(text);
}

static void on_tick(uv_timer_t *timer)
{
    mst_runner *r = timer->data;
    if (r->procs == NULL || r->ended)
        return;
    if (r->phase == PHASE_RUN && mst_seconds_since(r->began_ns) > r->timeout_s) {
        r->timed_out = true;
        stop_run(r);
    } else if (r->phase == PHASE_STOPPING && mst_now_ns() > r->kill_ns) {
        kill_run(r);
    }
    if (mst_bar_due(&r->bar))
        show(r);
}

/* ---- hearing a run ---- */

static bool begins(const char *text, size_t n, const char *with)
{
    return n >= strlen(with) && memcmp(text, with, strlen(with)) == 0;
}

static void on_line(void *arg, uint32_t tag, bool is_error, const char *text, size_t n)
{
    mst_runner *r = arg;
    (void)tag;
    if (r->log != NULL)
        fprintf(r->log, "%.*s\n", (int)n, text);
    if (is_error && begins(text, n, "muster: ") && !begins(text, n, "muster: warning: "))
        snprintf(r->sentence, sizeof r->sentence, "%.*s", (int)(n - 8), text + 8);
    const char *bar = memmem(text, n, "epoch ", 6); /* a line of progress */
    if (is_error && bar != NULL)
        snprintf(r->last, sizeof r->last, "%.*s", (int)(text + n - bar), bar);
}

static void on_ended(void *arg, uint32_t tag, int code, int number)
{
    mst_runner *r = arg;
    (void)tag;
    r->ended = true;
    r->code = code;
    r->signal = number;
}

/* ---- the runner ---- */

mst_status mst_runner_new(const mst_sweep *sweep, double timeout_s, mst_runner **out)
{
    mst_status st;
    mst_runner *r = mst_zalloc(sizeof *r);
    if (r == NULL)
        return mst_fail(MST_ENOMEM, "no memory to run a sweep");
    r->sweep = sweep;
    r->timeout_s = timeout_s;
    TRY_OUT(st, mst_own_program(r->program, sizeof r->program));
    if (setenv("MUSTER_WATCH_STDIN", "15", 1) != 0)
        TRY_OUT(st, mst_fail(MST_ENOMEM, "no memory to run a sweep"));
    TRY_OUT(st, mst_signal_loop_init(&r->loop, on_signal, false, r));
    mst_signal_loop_timer(&r->loop, &r->tick, r);
    uv_timer_start(&r->tick, on_tick, TICK_MS, TICK_MS);
    mst_bar_start(&r->bar, "sweep", "runs", 0);
    *out = r;
    r = NULL;
out:
    mst_runner_destroy(r);
    return st;
}

void mst_runner_destroy(mst_runner *self)
{
    if (self == NULL)
        return;
    mst_procs_destroy(self->procs);
    mst_signal_loop_fini(&self->loop);
    mst_free(self);
}

/* ---- one run ---- */

/* A state of the run's manifest; "" when there is none. */
static void run_state(const char *path, char *out, size_t size)
{
    char *file = mst_sprintf("%s/manifest.json", path);
    json_t *manifest = file != NULL ? json_load_file(file, 0, NULL) : NULL;
    const char *state = json_string_value(json_object_get(manifest, "state"));
    snprintf(out, size, "%s", state != NULL ? state : "");
    json_decref(manifest);
    mst_free(file);
}

mst_runner_how mst_runner_how_to(const mst_sweep *sweep, const mst_sweep_cell *cell)
{
    char *path = mst_sweep_run_path(sweep, cell), state[16] = "";
    mst_runner_how how = MST_RUNNER_NEW;
    const char *save = json_string_value(json_object_get(cell->set, "save"));
    if (path != NULL && mst_path_exists(path)) {
        run_state(path, state, sizeof state);
        how = MST_RUNNER_OVERWRITE;
        if (cell->state == MST_CELL_STOPPED && strcmp(state, "stopped") == 0 &&
            (save == NULL || strcmp(save, "true") == 0))
            how = MST_RUNNER_RESUME;
        if (state[0] == '\0' && mst_remove_tree(path) == MST_OK) /* cut off before it had a manifest */
            how = MST_RUNNER_NEW;
    }
    mst_free(path);
    return how;
}

static mst_status open_log(mst_runner *r, const char *name, bool again)
{
    char *folder = mst_sprintf("%s/logs", r->sweep->folder),
         *path = folder != NULL ? mst_sprintf("%s/%s.log", folder, name) : NULL;
    mst_status st = path != NULL ? mst_make_folders(folder) : mst_fail(MST_ENOMEM, "no memory for a log");
    if (st == MST_OK) {
        r->log = fopen(path, again ? "ae" : "we");
        if (r->log == NULL)
            st = mst_fail(MST_EIO, "%s: cannot be written", path);
    }
    mst_free(folder);
    mst_free(path);
    return st;
}

/* What the cell's repeats share, as --group takes it: the sweep's folder in front of the configuration, where
 * that is fit for a name. The caller frees. */
static char *group_word(const mst_sweep *sweep, const mst_sweep_cell *cell)
{
    char *name = mst_sprintf("%s/%s", sweep->folder, cell->config), *word = NULL;
    if (name != NULL)
        word = mst_sprintf("--group=%s", mst_group_check(name) == MST_OK ? name : cell->config);
    mst_free(name);
    return word;
}

static mst_status start(mst_runner *r, const mst_sweep_cell *cell, mst_runner_how how, const char *word)
{
    static const mst_proc_events events = {.line = on_line, .ended = on_ended};
    mst_status st;
    size_t n = 0;
    char *path = mst_sweep_run_path(r->sweep, cell),
         *run = path != NULL ? mst_sprintf("--run=%s", path) : NULL, *group = group_word(r->sweep, cell);
    const char **argv = mst_calloc(cell->words.n + 7, sizeof *argv);
    if (run == NULL || group == NULL || argv == NULL)
        TRY_OUT(st, mst_fail(MST_ENOMEM, "no memory for a command line"));
    argv[n++] = r->program;
    for (size_t i = 0; i < cell->words.n; i++)
        argv[n++] = cell->words.items[i];
    argv[n++] = run;
    argv[n++] = group;
    if (how != MST_RUNNER_NEW)
        argv[n++] = how == MST_RUNNER_RESUME ? "--resume" : "--overwrite";
    if (word != NULL)
        argv[n++] = word;
    TRY_OUT(st, mst_procs_new(&r->loop.uv, &events, r, &r->procs));
    mst_proc_start process = {.argv = argv};
    st = mst_procs_start(r->procs, &process, &r->id);
out:
    mst_free(argv);
    mst_free(group);
    mst_free(run);
    mst_free(path);
    return st;
}

/* What became of it, by its exit code and its manifest. */
static mst_status conclude(mst_runner *r, mst_sweep_cell *cell)
{
    char *path = mst_sweep_run_path(r->sweep, cell), state[16] = "", sentence[SENTENCE_MAX + 64];
    if (path == NULL)
        return mst_fail(MST_ENOMEM, "no memory for a run's folder");
    run_state(path, state, sizeof state);
    mst_free(path);
    if (r->timed_out) {
        snprintf(sentence, sizeof sentence, "took longer than --run-timeout %.0f s", r->timeout_s);
        return mst_sweep_mark(cell, MST_CELL_FAILED, sentence);
    }
    if (r->code == 0 && r->signal == 0 && strcmp(state, "done") == 0)
        return mst_sweep_mark(cell, MST_CELL_DONE, NULL);
    if (r->stopped_by != 0 || strcmp(state, "stopped") == 0)
        return mst_sweep_mark(cell, strcmp(state, "stopped") == 0 ? MST_CELL_STOPPED : MST_CELL_PENDING,
                              NULL);
    if (r->signal != 0)
        snprintf(sentence, sizeof sentence, "killed by signal %d (%s)", r->signal, strsignal(r->signal));
    else if (r->sentence[0] != '\0')
        snprintf(sentence, sizeof sentence, "%s", r->sentence);
    else
        snprintf(sentence, sizeof sentence, "ended with exit code %d and no sentence", r->code);
    return mst_sweep_mark(cell, MST_CELL_FAILED, sentence);
}

mst_status mst_runner_run(mst_runner *self, mst_sweep_cell *cell, mst_runner_how how, const char *word,
                          const char *what, double left_s)
{
    mst_status st;
    self->ended = self->timed_out = false;
    self->phase = PHASE_RUN;
    self->code = self->signal = 0;
    self->sentence[0] = self->last[0] = '\0';
    self->what = what;
    self->name = cell->name;
    self->left_s = left_s;
    TRY_OUT(st, open_log(self, cell->name, how == MST_RUNNER_RESUME));
    self->began_ns = mst_now_ns();
    TRY_OUT(st, start(self, cell, how, word));
    while (!self->ended)
        uv_run(&self->loop.uv, UV_RUN_ONCE);
    double seconds = mst_seconds_since(self->began_ns);
    cell->seconds = how == MST_RUNNER_RESUME && !isnan(cell->seconds) ? cell->seconds + seconds : seconds;
    st = conclude(self, cell);
out:
    mst_bar_end(&self->bar);
    mst_procs_destroy(self->procs);
    self->procs = NULL;
    if (self->log != NULL)
        fclose(self->log);
    self->log = NULL;
    return st;
}
