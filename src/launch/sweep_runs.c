/* Runs of a sweep as processes; contract in sweep_runs.h.
 *
 * A run is one child of the supervisor at a place of its own. A tick checks the time limit of the runs and
 * reports the progress: the runs, the last line of one that runs alone, and the estimate of the time left. */
#include "launch/sweep_runs.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/figure.h"
#include "base/file.h"
#include "base/parent.h"
#include "base/strings.h"
#include "launch/launch_remote.h"
#include "launch/supervisor.h"
#include "train/settings.h"

#define TICK_MS      200
#define SENTENCE_MAX (MST_CHILD_LINE + 64)

/* A run at work. */
typedef struct sweep_place {
    mst_sweep_cell *cell; /* NULL: the place is free */
    mst_runner_how how;
    mst_child *child;
    bool ended, timed_out;
    char epoch_line[160], what[48]; /* its last line of progress */
    FILE *log;
} sweep_place;

struct mst_runner {
    const mst_sweep *sweep;
    double timeout_s;
    char program[4096];
    mst_runner_progress progress;
    mst_supervisor *supervisor;
    uv_timer_t tick;
    double left_s; /* of all that is left, since left_ns; NAN: unknown */
    uint64_t left_ns;
    unsigned n_places, n_running;
    sweep_place places[];
};

bool mst_runner_stopped(const mst_runner *self)
{
    return mst_supervisor_stopped_by(self->supervisor) != 0;
}

unsigned mst_runner_running(const mst_runner *self)
{
    return self->n_running;
}

/* ---- ending runs ---- */

static void place_stop(sweep_place *p)
{
    mst_child_stop(p->child, SIGTERM, MST_RUNNER_GRACE_S * 1000);
}

void mst_runner_stop(mst_runner *self)
{
    for (unsigned i = 0; i < self->n_places; i++)
        if (!self->places[i].child->stopping)
            place_stop(&self->places[i]);
}

static void runner_on_stop(void *arg, int number)
{
    (void)number;
    mst_runner_stop(arg);
}

static void runner_show(mst_runner *r)
{
    char text[400], a[40], b[40];
    int n = 0;
    for (unsigned i = 0; i < r->n_places && n < 240; i++) {
        const sweep_place *s = &r->places[i];
        if (!s->child->running)
            continue;
        n += snprintf(text + n, sizeof text - (size_t)n, "%s%s%.120s  %s", n > 0 ? "  " : "", s->what,
                      s->cell->name, mst_figure_seconds(floor(mst_seconds_since(s->child->began_ns)), a));
        if (s->epoch_line[0] != '\0' && r->n_running == 1)
            n += snprintf(text + n, sizeof text - (size_t)n, "  (%.120s)", s->epoch_line);
    }
    if (n == 0)
        return;
    double left = r->left_s - mst_seconds_since(r->left_ns);
    if (!isnan(left) && n < 360)
        snprintf(text + n, sizeof text - (size_t)n, "  about %s left",
                 mst_figure_seconds(ceil(fmax(0, left)), b));
    r->progress.show(r->progress.arg, text);
}

static void runner_tick(uv_timer_t *timer)
{
    mst_runner *r = timer->data;
    for (unsigned i = 0; i < r->n_places; i++) {
        sweep_place *s = &r->places[i];
        if (!s->child->running)
            continue;
        if (!s->child->stopping && mst_seconds_since(s->child->began_ns) > r->timeout_s) {
            s->timed_out = true;
            place_stop(s);
        }
    }
    if (r->n_running > 0)
        runner_show(r);
}

/* ---- output of a run ---- */

static void runner_on_line(void *arg, mst_child *child, bool is_error, const char *text, size_t n)
{
    mst_runner *r = arg;
    sweep_place *s = &r->places[child->index];
    if (s->log != NULL)
        fprintf(s->log, "%.*s\n", (int)n, text);
    const char *progress = memmem(text, n, "epoch ", 6); /* shown, not decided on */
    if (is_error && progress != NULL)
        snprintf(s->epoch_line, sizeof s->epoch_line, "%.*s", (int)(text + n - progress), progress);
}

static void runner_on_ended(void *arg, mst_child *child)
{
    mst_runner *r = arg;
    r->places[child->index].ended = true;
}

/* ---- the runner ---- */

mst_status mst_runner_new(const mst_sweep *sweep, double timeout_s, unsigned jobs,
                          const mst_runner_progress *progress, mst_runner **out)
{
    static const mst_supervisor_events events = {
        .on_line = runner_on_line, .on_ended = runner_on_ended, .on_stop = runner_on_stop};
    mst_status st;
    mst_runner *r = mst_zalloc(sizeof *r + jobs * sizeof *r->places);
    if (r == NULL)
        return mst_fail_memory();
    r->n_places = jobs;
    r->sweep = sweep;
    r->timeout_s = timeout_s;
    TRY_OUT(st, mst_own_program(r->program, sizeof r->program));
    if (setenv(MST_PARENT_ENV, "15", 1) != 0)
        TRY_OUT(st, mst_fail_memory());
    r->progress = *progress;
    TRY_OUT(st, mst_supervisor_new(jobs, &events, r, &r->supervisor));
    for (unsigned i = 0; i < jobs; i++)
        r->places[i].child = mst_supervisor_child(r->supervisor, i);
    mst_supervisor_timer(r->supervisor, &r->tick, r);
    uv_timer_start(&r->tick, runner_tick, TICK_MS, TICK_MS);
    *out = r;
    r = NULL;
out:
    mst_runner_destroy(r);
    return st;
}

static void runner_free(mst_runner *r, sweep_place *s)
{
    r->n_running -= s->cell != NULL;
    if (s->log != NULL)
        fclose(s->log);
    *s = (sweep_place){.child = s->child};
}

void mst_runner_destroy(mst_runner *self)
{
    if (self == NULL)
        return;
    mst_supervisor_destroy(self->supervisor);
    for (unsigned i = 0; i < self->n_places; i++)
        runner_free(self, &self->places[i]);
    mst_free(self);
}

/* ---- one run ---- */

/* A state of the run's manifest; "" when there is none. */
static void runner_state(const char *path, char *out, size_t size)
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
        runner_state(path, state, sizeof state);
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

static mst_status runner_open_log(const mst_sweep *sweep, const char *name, bool again, FILE **out)
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

/* Returns the --group option that the cell's repeats share: FOLDER/CONFIGURATION if that is a valid name,
 * else the configuration alone. The caller frees. */
static char *runner_group_word(const mst_sweep *sweep, const mst_sweep_cell *cell)
{
    char *name = mst_sprintf("%s/%s", sweep->folder, cell->config), *word = NULL;
    if (name != NULL)
        word = mst_sprintf("--group=%s", mst_group_check(name) == MST_OK ? name : cell->config);
    mst_free(name);
    return word;
}

static mst_status runner_start_child(mst_runner *r, sweep_place *s, const char *word)
{
    mst_status st;
    const mst_sweep_cell *cell = s->cell;
    size_t n = 0;
    char *path = mst_sweep_run_path(r->sweep, cell),
         *run = path != NULL ? mst_sprintf("--run=%s", path) : NULL,
         *group = runner_group_word(r->sweep, cell);
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
    st = mst_child_start(s->child, &(mst_process_start){.argv = argv});
out:
    mst_free(argv);
    mst_free(group);
    mst_free(run);
    mst_free(path);
    return st;
}

/* Marks the cell by the run's exit code and manifest. */
static mst_status runner_conclude(const mst_runner *r, const sweep_place *s)
{
    mst_sweep_cell *cell = s->cell;
    const mst_child *child = s->child;
    char *path = mst_sweep_run_path(r->sweep, cell), state[16] = "", sentence[SENTENCE_MAX + 64];
    if (path == NULL)
        return mst_fail_memory();
    runner_state(path, state, sizeof state);
    mst_free(path);
    if (s->timed_out) {
        snprintf(sentence, sizeof sentence, "took longer than --run-timeout %.0f s", r->timeout_s);
        return mst_sweep_mark(cell, MST_CELL_FAILED, sentence);
    }
    if (child->code == 0 && child->signal == 0 && strcmp(state, "done") == 0)
        return mst_sweep_mark(cell, MST_CELL_DONE, NULL);
    if (mst_runner_stopped(r) || child->stopping || child->killed || strcmp(state, "stopped") == 0)
        return mst_sweep_mark(cell, strcmp(state, "stopped") == 0 ? MST_CELL_STOPPED : MST_CELL_PENDING,
                              NULL);
    if (child->signal != 0)
        snprintf(sentence, sizeof sentence, "killed by signal %d (%s)", child->signal,
                 strsignal(child->signal));
    else if (child->error[0] != '\0')
        snprintf(sentence, sizeof sentence, "%s", child->error);
    else
        snprintf(sentence, sizeof sentence, "ended with exit code %d and no error message", child->code);
    return mst_sweep_mark(cell, MST_CELL_FAILED, sentence);
}

mst_status mst_runner_start(mst_runner *self, mst_sweep_cell *cell, mst_runner_how how, const char *word,
                            const char *what, double left_s)
{
    mst_status st;
    sweep_place *s = self->places;
    while (s->cell != NULL)
        s++;
    s->cell = cell;
    s->how = how;
    snprintf(s->what, sizeof s->what, "%s", what);
    self->left_s = left_s;
    self->left_ns = mst_now_ns();
    self->n_running++;
    TRY_OUT(st, runner_open_log(self->sweep, cell->name, how == MST_RUNNER_RESUME, &s->log));
    st = runner_start_child(self, s, word);
out:
    if (st != MST_OK)
        runner_free(self, s);
    for (unsigned i = 0; i < self->n_places; i++)
        if (self->places[i].cell != NULL && self->places[i].cell->jobs < self->n_running)
            self->places[i].cell->jobs = self->n_running;
    return st;
}

static sweep_place *runner_ended(mst_runner *r)
{
    for (unsigned i = 0; i < r->n_places; i++)
        if (r->places[i].ended)
            return &r->places[i];
    return NULL;
}

mst_status mst_runner_wait(mst_runner *self, mst_sweep_cell **ended)
{
    sweep_place *s;
    while ((s = runner_ended(self)) == NULL)
        mst_supervisor_turn(self->supervisor);
    double seconds = mst_seconds_since(s->child->began_ns);
    mst_sweep_cell *cell = s->cell;
    cell->seconds = s->how == MST_RUNNER_RESUME && !isnan(cell->seconds) ? cell->seconds + seconds : seconds;
    mst_status st = runner_conclude(self, s);
    self->progress.show(self->progress.arg, NULL);
    runner_free(self, s);
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
