/* Runs of a sweep as processes; contract in sweep_runs.h.
 *
 * A run is one process of launch_procs in a slot of its own. All share a loop that also has the signals and a
 * tick, which looks at the clock and shows the progress: the runs, the last line of one that runs alone, and
 * what is left. */
#include "launch/sweep_runs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/figure.h"
#include "base/file.h"
#include "base/signals.h"
#include "base/strings.h"
#include "cli/cli.h"
#include "cli/progress_line.h"
#include "launch/launch_procs.h"
#include "launch/launch_remote.h"
#include "launch/signal_loop.h"
#include "train/settings.h"

#define TICK_MS      200
#define SENTENCE_MAX 900

typedef enum phase { PHASE_RUN, PHASE_STOPPING, PHASE_KILLING } phase;

/* A run at work. */
typedef struct slot {
    mst_sweep_cell *cell; /* NULL: the slot is free */
    mst_runner_how how;
    mst_procs *procs;
    uint32_t id;
    bool ended, timed_out;
    phase phase;
    int code, signal;
    uint64_t began_ns, kill_ns;
    char sentence[SENTENCE_MAX], last[160], what[48];
    FILE *log;
} slot;

struct mst_runner {
    const mst_sweep *sweep;
    double timeout_s;
    char program[4096];
    mst_signal_loop loop;
    uv_timer_t tick;
    int stopped_by; /* signal; 0: nobody */
    char stopped_name[16];
    mst_bar bar;
    double left_s; /* of all that is left, since left_ns; NAN: not known */
    uint64_t left_ns;
    unsigned n_slots, n_running;
    slot slots[];
};

const char *mst_runner_stopped(const mst_runner *self)
{
    return self->stopped_by != 0 ? self->stopped_name : NULL;
}

unsigned mst_runner_running(const mst_runner *self)
{
    return self->n_running;
}

/* ---- ending runs ---- */

static void kill_run(slot *s)
{
    s->phase = PHASE_KILLING;
    mst_procs_kill(s->procs, s->id);
}

static void stop_run(slot *s)
{
    s->phase = PHASE_STOPPING;
    s->kill_ns = mst_now_ns() + MST_RUNNER_GRACE_S * MST_S;
    mst_procs_stop(s->procs, s->id);
}

static bool is_running(const slot *s)
{
    return s->procs != NULL && !s->ended;
}

void mst_runner_stop(mst_runner *self)
{
    for (unsigned i = 0; i < self->n_slots; i++)
        if (is_running(&self->slots[i]) && self->slots[i].phase == PHASE_RUN)
            stop_run(&self->slots[i]);
}

static void on_signal(uv_signal_t *handle, int number)
{
    mst_runner *r = handle->data;
    if (r->stopped_by == 0)
        mst_runner_stop(r);
    for (unsigned i = 0; r->stopped_by != 0 && i < r->n_slots; i++)
        if (is_running(&r->slots[i]))
            kill_run(&r->slots[i]);
    if (r->stopped_by == 0) {
        r->stopped_by = number;
        mst_signal_name(number, r->stopped_name, sizeof r->stopped_name);
    }
}

static void show(mst_runner *r)
{
    char text[400], a[40], b[40];
    int n = 0;
    for (unsigned i = 0; i < r->n_slots && n < 240; i++) {
        const slot *s = &r->slots[i];
        if (!is_running(s))
            continue;
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%s%.120s  %s", n > 0 ? "  " : "", s->what,
                      s->cell->name, mst_figure_seconds(floor(mst_seconds_since(s->began_ns)), a));
        if (s->last[0] != '\0' && r->n_running == 1)
            n += snprintf(text + n, sizeof text - (size_t)n, "  (%.120s)", s->last);
    }
    if (n == 0)
        return;
    double left = r->left_s - mst_seconds_since(r->left_ns);
    if (!isnan(left) && n < 360)
        snprintf(text + n, sizeof text - (size_t)n, "  about %s left",
                 mst_figure_seconds(ceil(fmax(0, left)), b));
    mst_bar_show(text);
}

static void on_tick(uv_timer_t *timer)
{
    mst_runner *r = timer->data;
    for (unsigned i = 0; i < r->n_slots; i++) {
        slot *s = &r->slots[i];
        if (!is_running(s))
            continue;
        if (s->phase == PHASE_RUN && mst_seconds_since(s->began_ns) > r->timeout_s) {
            s->timed_out = true;
            stop_run(s);
        } else if (s->phase == PHASE_STOPPING && mst_now_ns() > s->kill_ns) {
            kill_run(s);
        }
    }
    if (r->n_running > 0 && mst_bar_due(&r->bar))
        show(r);
}

/* ---- output of a run ---- */

static bool begins(const char *text, size_t n, const char *with)
{
    return n >= strlen(with) && memcmp(text, with, strlen(with)) == 0;
}

static void on_line(void *arg, uint32_t tag, bool is_error, const char *text, size_t n)
{
    slot *s = arg;
    (void)tag;
    if (s->log != NULL)
        fprintf(s->log, "%.*s\n", (int)n, text);
    if (is_error && begins(text, n, "muster: ") && !begins(text, n, "muster: warning: "))
        snprintf(s->sentence, sizeof s->sentence, "%.*s", (int)(n - 8), text + 8);
    const char *bar = memmem(text, n, "epoch ", 6); /* a line of progress */
    if (is_error && bar != NULL)
        snprintf(s->last, sizeof s->last, "%.*s", (int)(text + n - bar), bar);
}

static void on_ended(void *arg, uint32_t tag, int code, int number)
{
    slot *s = arg;
    (void)tag;
    s->ended = true;
    s->code = code;
    s->signal = number;
}

/* ---- the runner ---- */

mst_status mst_runner_new(const mst_sweep *sweep, double timeout_s, unsigned jobs, mst_runner **out)
{
    mst_status st;
    mst_runner *r = mst_zalloc(sizeof *r + jobs * sizeof *r->slots);
    if (r == NULL)
        return mst_fail_memory();
    r->n_slots = jobs;
    r->sweep = sweep;
    r->timeout_s = timeout_s;
    TRY_OUT(st, mst_own_program(r->program, sizeof r->program));
    if (setenv("MUSTER_WATCH_STDIN", "15", 1) != 0)
        TRY_OUT(st, mst_fail_memory());
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

/* Whatever still runs is killed. */
static void free_slot(mst_runner *r, slot *s)
{
    r->n_running -= s->cell != NULL;
    mst_procs_destroy(s->procs);
    if (s->log != NULL)
        fclose(s->log);
    *s = (slot){0};
}

void mst_runner_destroy(mst_runner *self)
{
    if (self == NULL)
        return;
    for (unsigned i = 0; i < self->n_slots; i++)
        free_slot(self, &self->slots[i]);
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

static mst_status open_log(const mst_sweep *sweep, const char *name, bool again, FILE **out)
{
    char *folder = mst_sprintf("%s/logs", sweep->folder),
         *path = folder != NULL ? mst_sprintf("%s/%s.log", folder, name) : NULL;
    mst_status st = path != NULL ? mst_make_folders(folder) : mst_fail_memory();
    if (st == MST_OK) {
        *out = fopen(path, again ? "ae" : "we");
        if (*out == NULL)
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

static mst_status start(mst_runner *r, slot *s, const char *word)
{
    static const mst_proc_events events = {.line = on_line, .ended = on_ended};
    mst_status st;
    const mst_sweep_cell *cell = s->cell;
    size_t n = 0;
    char *path = mst_sweep_run_path(r->sweep, cell),
         *run = path != NULL ? mst_sprintf("--run=%s", path) : NULL, *group = group_word(r->sweep, cell);
    const char **argv = mst_calloc(cell->words.n + 7, sizeof *argv);
    if (run == NULL || group == NULL || argv == NULL)
        TRY_OUT(st, mst_fail_memory());
    argv[n++] = r->program;
    for (size_t i = 0; i < cell->words.n; i++)
        argv[n++] = cell->words.items[i];
    argv[n++] = run;
    argv[n++] = group;
    if (s->how != MST_RUNNER_NEW)
        argv[n++] = s->how == MST_RUNNER_RESUME ? "--resume" : "--overwrite";
    if (word != NULL)
        argv[n++] = word;
    TRY_OUT(st, mst_procs_new(&r->loop.uv, &events, s, &s->procs));
    mst_proc_start process = {.argv = argv};
    st = mst_procs_start(s->procs, &process, &s->id);
out:
    mst_free(argv);
    mst_free(group);
    mst_free(run);
    mst_free(path);
    return st;
}

/* What became of it, by its exit code and its manifest. */
static mst_status conclude(const mst_runner *r, const slot *s)
{
    mst_sweep_cell *cell = s->cell;
    char *path = mst_sweep_run_path(r->sweep, cell), state[16] = "", sentence[SENTENCE_MAX + 64];
    if (path == NULL)
        return mst_fail_memory();
    run_state(path, state, sizeof state);
    mst_free(path);
    if (s->timed_out) {
        snprintf(sentence, sizeof sentence, "took longer than --run-timeout %.0f s", r->timeout_s);
        return mst_sweep_mark(cell, MST_CELL_FAILED, sentence);
    }
    if (s->code == 0 && s->signal == 0 && strcmp(state, "done") == 0)
        return mst_sweep_mark(cell, MST_CELL_DONE, NULL);
    if (r->stopped_by != 0 || s->phase != PHASE_RUN || strcmp(state, "stopped") == 0)
        return mst_sweep_mark(cell, strcmp(state, "stopped") == 0 ? MST_CELL_STOPPED : MST_CELL_PENDING,
                              NULL);
    if (s->signal != 0)
        snprintf(sentence, sizeof sentence, "killed by signal %d (%s)", s->signal, strsignal(s->signal));
    else if (s->sentence[0] != '\0')
        snprintf(sentence, sizeof sentence, "%s", s->sentence);
    else
        snprintf(sentence, sizeof sentence, "ended with exit code %d and no sentence", s->code);
    return mst_sweep_mark(cell, MST_CELL_FAILED, sentence);
}

mst_status mst_runner_start(mst_runner *self, mst_sweep_cell *cell, mst_runner_how how, const char *word,
                            const char *what, double left_s)
{
    mst_status st;
    slot *s = self->slots;
    while (s->cell != NULL)
        s++;
    s->cell = cell;
    s->how = how;
    snprintf(s->what, sizeof s->what, "%s", what);
    self->left_s = left_s;
    self->left_ns = s->began_ns = mst_now_ns();
    self->n_running++;
    TRY_OUT(st, open_log(self->sweep, cell->name, how == MST_RUNNER_RESUME, &s->log));
    st = start(self, s, word);
out:
    if (st != MST_OK)
        free_slot(self, s);
    for (unsigned i = 0; i < self->n_slots; i++)
        if (self->slots[i].cell != NULL && self->slots[i].cell->jobs < self->n_running)
            self->slots[i].cell->jobs = self->n_running;
    return st;
}

static slot *ended_slot(mst_runner *r)
{
    for (unsigned i = 0; i < r->n_slots; i++)
        if (r->slots[i].ended)
            return &r->slots[i];
    return NULL;
}

mst_status mst_runner_wait(mst_runner *self, mst_sweep_cell **ended)
{
    slot *s;
    while ((s = ended_slot(self)) == NULL)
        uv_run(&self->loop.uv, UV_RUN_ONCE);
    double seconds = mst_seconds_since(s->began_ns);
    mst_sweep_cell *cell = s->cell;
    cell->seconds = s->how == MST_RUNNER_RESUME && !isnan(cell->seconds) ? cell->seconds + seconds : seconds;
    mst_status st = conclude(self, s);
    mst_bar_end(&self->bar);
    free_slot(self, s);
    *ended = cell;
    return st;
}

mst_status mst_runner_run(mst_runner *self, mst_sweep_cell *cell, mst_runner_how how, const char *word,
                          const char *what, double left_s)
{
    mst_sweep_cell *ended;
    TRY(mst_runner_start(self, cell, how, word, what, left_s));
    return mst_runner_wait(self, &ended);
}
