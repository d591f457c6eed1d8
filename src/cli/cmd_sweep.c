/* `muster sweep`: a grid of trainings from a YAML file, and one report of them. */
#include <limits.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/progress_line.h"
#include "cli/sweep_auto.h"
#include "cli/table.h"
#include "launch/sweep_runs.h"
#include "observe/cpu_quota.h"
#include "sweep/sweep_report.h"

#define ALIKE 3 /* so many runs that fail with the same sentence, before any has succeeded, end the sweep */

typedef struct sweep_options {
    char *out, *jobs;
    bool oversubscribe, overwrite, extend, retry_failed, stop_on_failure, dry_run, report_only, search, json;
    double run_timeout, auto_seconds;
} sweep_options;

#define FIELD(name) .offset = offsetof(sweep_options, name)
static const mst_option sweep_table[] = {
    {.name = "out",
     .type = MST_OPTION_TEXT,
     FIELD(out),
     .metavar = "FOLDER",
     .help = "Folder of the sweep. Default: sweeps/NAME for NAME.yaml."},
    {.name = "jobs",
     .type = MST_OPTION_TEXT,
     FIELD(jobs),
     .metavar = "N|auto",
     .help = "Number of concurrent runs, instead of `jobs:` in the file; auto: as many as the cores allow. "
             "The threads of the runs never exceed the number of cores. Default: 1."},
    {.name = "oversubscribe",
     .type = MST_OPTION_FLAG,
     FIELD(oversubscribe),
     .help = "With --jobs N: start N runs even if their threads exceed the number of cores."},
    {.name = "run-timeout",
     .type = MST_OPTION_REAL,
     FIELD(run_timeout),
     .fallback = "3600",
     .min = 1,
     .max = 1e7,
     .metavar = "S",
     .help = "End a run after S seconds and count it as failed."},
    {.name = "stop-on-failure",
     .type = MST_OPTION_FLAG,
     FIELD(stop_on_failure),
     .help = "End the sweep when a run fails. Without it, a sweep ends early only if its first three runs "
             "fail in the same way."},
    {.name = "retry-failed",
     .type = MST_OPTION_FLAG,
     FIELD(retry_failed),
     .help = "Run failed runs again when a sweep is continued."},
    {.name = "extend",
     .type = MST_OPTION_FLAG,
     FIELD(extend),
     .help = "Continue with a changed file. Finished runs with an unchanged command are kept."},
    {.name = "overwrite",
     .type = MST_OPTION_FLAG,
     FIELD(overwrite),
     .help = "Start again and discard earlier runs."},
    {.name = "auto",
     .type = MST_OPTION_FLAG,
     FIELD(search),
     .help = "Search the grid for the shortest time to the target in `for: until` by successive halving, "
             "instead of running all cells. If the grid has no batch sizes, 32 to 32768 are tried."},
    {.name = "auto-seconds",
     .type = MST_OPTION_REAL,
     FIELD(auto_seconds),
     .fallback = "1",
     .min = 0.05,
     .max = 1e6,
     .metavar = "S",
     .help = "With --auto: training time of the first round; each round doubles it."},
    {.name = "report-only",
     .type = MST_OPTION_FLAG,
     FIELD(report_only),
     .help = "Start no runs; write the report of the existing ones."},
    {.name = "dry-run",
     .type = MST_OPTION_FLAG,
     FIELD(dry_run),
     .help = "Print the runs, their commands, and the skipped cells with the reason; start nothing."},
    {.name = NULL},
};

/* ---- before ---- */

/* sweeps/NAME of path/NAME.yaml. The caller frees. */
static char *sweep_default_folder(const char *file)
{
    const char *slash = strrchr(file, '/'), *name = slash != NULL ? slash + 1 : file;
    const char *dot = strrchr(name, '.');
    size_t n = dot != NULL && dot > name ? (size_t)(dot - name) : strlen(name);
    return mst_sprintf("sweeps/%.*s", (int)n, name);
}

static mst_status sweep_print_cells(const mst_sweep *sweep, bool json)
{
    static const mst_column columns[] = {{"run", false}, {"state", false}, {"command", false}};
    mst_table *t;
    TRY(mst_table_new(columns, 3, &t));
    for (size_t i = 0; i < sweep->n; i++) {
        const mst_sweep_cell *cell = &sweep->cells[i];
        mst_string command = {0};
        mst_string_add(&command, cell->state == MST_CELL_SKIPPED ? cell->sentence : "muster");
        for (size_t k = 0; cell->state != MST_CELL_SKIPPED && k < cell->words.n; k++) {
            mst_string_add(&command, " ");
            mst_string_shell(&command, cell->words.items[k]);
        }
        mst_table_text(t, cell->name);
        mst_table_text(t, mst_cell_state_name(cell->state));
        mst_table_text(t, command.text);
        mst_string_fini(&command);
    }
    mst_status st = json ? mst_cli_print_json(mst_table_json(t)) : mst_table_print(t, NULL, true);
    mst_table_destroy(t);
    return st;
}

static mst_status sweep_check_left(const mst_sweep *sweep)
{
    size_t counts[MST_CELL_SKIPPED + 1];
    mst_sweep_count(sweep, counts);
    if (counts[MST_CELL_SKIPPED] < sweep->n)
        return MST_OK;
    return mst_fail(MST_EUSAGE, "%s: no run of the grid can be started; the first, %s: %s", sweep->file,
                    sweep->cells[0].name, sweep->cells[0].sentence);
}

/* Lists the runs, and fails if the sweep would fail. */
static mst_status sweep_dry_run(const mst_sweep *sweep, bool json)
{
    size_t n = 0, bad = 0, first = 0;
    mst_error error = {0};
    TRY(sweep_print_cells(sweep, json));
    TRY(sweep_check_left(sweep));
    for (size_t i = 0; i < sweep->n; i++) {
        if (sweep->cells[i].state == MST_CELL_SKIPPED)
            continue;
        n++;
        mst_status st = mst_sweep_check_files(sweep, &sweep->cells[i]);
        if (st == MST_OK)
            continue;
        if (bad++ > 0)
            continue;
        first = i;
        mst_error_save(&error, st);
    }
    return bad == 0 ? MST_OK
                    : mst_fail(error.code, "%zu of %zu runs would fail; the first: %s: %s", bad, n,
                               sweep->cells[first].name, error.text);
}

/* ---- the runs ---- */

static void sweep_tell_left_out(const mst_sweep *sweep)
{
    size_t n;
    const char *why;
    for (size_t i = 0; i < sweep->n; i++)
        if (mst_sweep_left_out(sweep, i, &n, &why))
            mst_cli_note("skipped %zu run%s of the grid: %s", n, n == 1 ? "" : "s", why);
}

static void sweep_tell_end(const mst_sweep_cell *cell, const char *what)
{
    char a[40];
    if (cell->state == MST_CELL_DONE)
        mst_cli_note("%s%s done in %s", what, cell->name, mst_figure_seconds(cell->seconds, a));
    else if (cell->state == MST_CELL_FAILED)
        mst_cli_note("%s%s failed: %s", what, cell->name, cell->sentence);
}

static bool sweep_is_to_run(const mst_sweep_cell *cell, const sweep_options *o)
{
    return cell->state == MST_CELL_PENDING || cell->state == MST_CELL_STOPPED ||
           (cell->state == MST_CELL_FAILED && o->retry_failed);
}

/* Whether the first runs have failed with one sentence and none has succeeded, so that the others would fail,
 * too. */
static bool sweep_is_hopeless(const mst_sweep *sweep)
{
    const char *first = NULL;
    size_t alike = 0;
    for (size_t i = 0; i < sweep->n; i++) {
        const mst_sweep_cell *cell = &sweep->cells[i];
        if (cell->state == MST_CELL_DONE)
            return false;
        if (cell->state != MST_CELL_FAILED || cell->sentence == NULL)
            continue;
        if (first != NULL && strcmp(first, cell->sentence) != 0)
            return false;
        first = cell->sentence;
        alike++;
    }
    return alike >= ALIKE;
}

/* Cores that this process may use. */
static unsigned sweep_count_cores(void)
{
    long all = sysconf(_SC_NPROCESSORS_ONLN);
    double allowed = mst_cpu_allowed();
    return allowed >= 1 ? (unsigned)allowed : allowed > 0 || all < 1 ? 1 : (unsigned)all;
}

/* Number of concurrent runs, and the cores that they share; UINT_MAX cores: any number of threads. */
static mst_status sweep_count_jobs(const mst_sweep *sweep, const sweep_options *o, unsigned *jobs,
                                   unsigned *cores)
{
    const char *text = o->jobs != NULL ? o->jobs : json_string_value(json_object_get(sweep->spec, "jobs"));
    *jobs = 1;
    *cores = sweep_count_cores();
    if (text != NULL && !mst_sweep_jobs_parse(text, jobs))
        return mst_fail(MST_EUSAGE, "--jobs %s: must be auto or between 1 and %d", text, MST_JOBS_MAX);
    if (*jobs == MST_JOBS_AUTO && o->oversubscribe)
        return mst_fail(MST_EUSAGE, "--oversubscribe needs a number of runs: give --jobs N");
    if (*jobs == MST_JOBS_AUTO)
        *jobs = *cores < MST_JOBS_MAX ? *cores : MST_JOBS_MAX;
    if (o->oversubscribe)
        *cores = UINT_MAX;
    return MST_OK;
}

/* A run on other hosts, whose cores and ports are unknown, runs alone. */
static unsigned sweep_cores_wanted(const mst_sweep_cell *cell, unsigned cores)
{
    return json_object_get(cell->set, "hosts") != NULL ? UINT_MAX : mst_sweep_cell_threads(cell, cores);
}

typedef struct grid_run {
    mst_sweep *sweep;
    mst_runner *runner;
    const sweep_options *options;
    unsigned jobs, cores, busy; /* busy: threads of the current runs */
    size_t total, started;      /* started: including those that ended earlier */
    size_t next;                /* the cells before it are started */
    bool given_up;
} grid_run;

/* Whether the cell may run together with the current runs. */
static bool sweep_fits(const grid_run *g, const mst_sweep_cell *cell)
{
    unsigned wanted = sweep_cores_wanted(cell, g->cores);
    return mst_runner_running(g->runner) == 0 ||
           (mst_runner_running(g->runner) < g->jobs && wanted <= g->cores && g->busy <= g->cores - wanted);
}

static mst_status sweep_start_cell(grid_run *g, mst_sweep_cell *cell)
{
    char what[48];
    double left_s = mst_sweep_estimate(g->sweep) / g->jobs;
    mst_runner_how how = mst_runner_how_to(g->sweep, cell);
    snprintf(what, sizeof what, "[%zu/%zu] ", ++g->started, g->total);
    TRY(mst_sweep_mark(cell, MST_CELL_RUNNING, NULL));
    TRY(mst_runner_start(g->runner, cell, how, NULL, what, left_s));
    unsigned wanted = sweep_cores_wanted(cell, g->cores);
    g->busy = wanted < UINT_MAX - g->busy ? g->busy + wanted : UINT_MAX;
    return mst_sweep_save(g->sweep);
}

/* Starts runs in order, as long as they fit. */
static mst_status sweep_start_some(grid_run *g)
{
    while (g->next < g->sweep->n && !g->given_up && !mst_runner_stopped(g->runner)) {
        mst_sweep_cell *cell = &g->sweep->cells[g->next];
        if (sweep_is_to_run(cell, g->options)) {
            if (!sweep_fits(g, cell))
                return MST_OK;
            TRY(sweep_start_cell(g, cell));
        }
        g->next++;
    }
    return MST_OK;
}

static mst_status sweep_end_one(grid_run *g)
{
    mst_sweep_cell *cell;
    char what[48];
    size_t counts[MST_CELL_SKIPPED + 1];
    TRY(mst_runner_wait(g->runner, &cell));
    unsigned wanted = sweep_cores_wanted(cell, g->cores);
    g->busy = g->busy == UINT_MAX ? 0 : g->busy - wanted;
    mst_sweep_count(g->sweep, counts);
    snprintf(what, sizeof what, "[%zu/%zu] ", counts[MST_CELL_DONE] + counts[MST_CELL_FAILED], g->total);
    sweep_tell_end(cell, what);
    if (cell->state == MST_CELL_FAILED && (g->options->stop_on_failure || sweep_is_hopeless(g->sweep))) {
        g->given_up = true;
        mst_runner_stop(g->runner);
    }
    return mst_sweep_save(g->sweep);
}

static mst_status sweep_run_grid(mst_sweep *sweep, const sweep_options *o, grid_run *g)
{
    size_t counts[MST_CELL_SKIPPED + 1];
    mst_sweep_count(sweep, counts);
    g->total = sweep->n - counts[MST_CELL_SKIPPED];
    g->started = counts[MST_CELL_DONE] + (o->retry_failed ? 0 : counts[MST_CELL_FAILED]);
    if (counts[MST_CELL_DONE] > 0)
        mst_cli_note("%zu of %zu runs are already done", counts[MST_CELL_DONE], g->total);
    for (;;) {
        TRY(sweep_start_some(g));
        if (mst_runner_running(g->runner) == 0)
            return MST_OK;
        TRY(sweep_end_one(g));
    }
}

/* ---- after ---- */

static mst_status sweep_write_report(const mst_sweep *sweep, bool json)
{
    mst_status st;
    mst_sweep_report *report = NULL;
    mst_string best = {0};
    TRY_OUT(st, mst_sweep_report_new(sweep, &report));
    TRY_OUT(st, mst_sweep_report_write(report));
    if (json) {
        st = mst_cli_print_json(mst_sweep_report_json(report));
        goto out;
    }
    mst_sweep_report_best(report, &best);
    printf("%s%s%s/report.html\n", best.text != NULL ? best.text : "", best.text != NULL ? "\n" : "",
           sweep->folder);
out:
    mst_string_fini(&best);
    mst_sweep_report_destroy(report);
    return st;
}

/* The status of the sweep: stopped, failed, or success. */
static mst_status sweep_outcome(const mst_sweep *sweep, bool stopped)
{
    size_t counts[MST_CELL_SKIPPED + 1], first = 0;
    mst_sweep_count(sweep, counts);
    size_t total = sweep->n - counts[MST_CELL_SKIPPED];
    if (stopped)
        return mst_fail_lead(MST_ESTOPPED, "stopped",
                             " with %zu of %zu runs done; the same command continues", counts[MST_CELL_DONE],
                             total);
    if (counts[MST_CELL_FAILED] == 0)
        return MST_OK;
    while (sweep->cells[first].state != MST_CELL_FAILED)
        first++;
    return mst_fail(MST_EINPUT, "%zu of %zu runs failed%s; the first: %s: %s", counts[MST_CELL_FAILED], total,
                    sweep_is_hopeless(sweep) && counts[MST_CELL_PENDING] > 0
                        ? " in the same way, so the others were not started"
                        : "",
                    sweep->cells[first].name, sweep->cells[first].sentence);
}

static void sweep_show_progress(void *arg, const char *text)
{
    mst_bar *bar = arg;
    if (text == NULL)
        mst_bar_end(bar);
    else if (mst_bar_due(bar))
        mst_bar_show(text);
}

static mst_status sweep_work(mst_sweep *sweep, const sweep_options *o)
{
    mst_status st;
    mst_runner *runner = NULL;
    mst_bar bar;
    mst_runner_progress progress = {.arg = &bar, .show = sweep_show_progress};
    TRY(sweep_check_left(sweep));
    if (o->report_only)
        return sweep_write_report(sweep, o->json);
    sweep_tell_left_out(sweep);
    mst_bar_start(&bar, "sweep", "runs", 0);
    grid_run grid = {.sweep = sweep, .options = o};
    TRY(sweep_count_jobs(sweep, o, &grid.jobs, &grid.cores));
    if (o->search && grid.jobs > 1)
        mst_cli_note("--auto compares training times, so runs are started one at a time");
    TRY_OUT(st, mst_runner_new(sweep, o->run_timeout, o->search ? 1 : grid.jobs, &progress, &runner));
    grid.runner = runner;
    st = o->search ? mst_sweep_auto(sweep, runner, o->auto_seconds, o->run_timeout)
                   : sweep_run_grid(sweep, o, &grid);
    if (st != MST_OK)
        goto out;
    TRY_OUT(st, sweep_write_report(sweep, o->json));
    st = sweep_outcome(sweep, mst_runner_stopped(runner));
out:
    mst_runner_destroy(runner);
    return st;
}

static mst_status sweep_load(mst_sweep *sweep, const sweep_options *o)
{
    mst_status st = mst_sweep_load(sweep, o->overwrite ? MST_SWEEP_OVERWRITE
                                          : o->extend  ? MST_SWEEP_EXTEND
                                                       : MST_SWEEP_SAME);
    if (st == MST_EINPUT && o->report_only) {
        mst_warn("%s/sweep.json is damaged; the report uses the run directories only", sweep->folder);
        return mst_sweep_load(sweep, MST_SWEEP_RUNS);
    }
    if (st == MST_OK && sweep->search != NULL && !o->search && !o->report_only)
        return mst_fail(MST_EEXIST,
                        "%s: contains a search, whose runs end early; continue it with --auto, start again "
                        "with --overwrite, or choose another --out",
                        sweep->folder);
    return st;
}

static mst_status sweep_file(const char *file, const sweep_options *o)
{
    mst_status st;
    json_t *spec = NULL;
    mst_sweep *sweep = NULL;
    int lock = -1;
    char *folder = o->out != NULL ? mst_strdup(o->out) : sweep_default_folder(file);
    if (folder == NULL)
        return mst_fail_memory();
    TRY_OUT(st, mst_sweep_spec_read(file, &spec));
    TRY_OUT(st, mst_sweep_new(file, folder, spec, o->search ? mst_auto_batches : NULL, &sweep));
    if (o->search && mst_sweep_until(sweep) == NULL)
        TRY_OUT(st,
                mst_fail(MST_EUSAGE,
                         "%s: --auto searches for the shortest time to a target: give one as for: {until: "
                         "test_loss<=0.5}",
                         file));
    if (o->dry_run) {
        st = sweep_dry_run(sweep, o->json);
        goto out;
    }
    if (o->report_only && !mst_path_exists(folder))
        TRY_OUT(st, mst_fail(MST_EINPUT, "%s: no sweep found, so there is nothing to report", folder));
    TRY_OUT(st, mst_cli_lock_folder(folder, "sweep", &lock));
    TRY_OUT(st, sweep_load(sweep, o));
    st = sweep_work(sweep, o);
out:
    if (lock >= 0)
        close(lock);
    mst_sweep_destroy(sweep);
    json_decref(spec);
    mst_free(folder);
    return st;
}

static mst_status sweep_run(mst_call *call)
{
    if (call->words.n != 1)
        return mst_fail(MST_EUSAGE, "give the file of one sweep: muster %s", mst_cmd_sweep.usage);
    return sweep_file(call->words.items[0], call->options);
}

static const mst_command_group sweep_groups[] = {
    {"sweep", sweep_table, 0},
    {"output", mst_cli_json_table, offsetof(sweep_options, json)},
    {.table = NULL}};

const mst_command mst_cmd_sweep = {
    .name = "sweep",
    .summary = "train a grid of configurations and report on all of them",
    .run = sweep_run,
    .usage = "sweep FILE.yaml [options]",
    .details = "FILE.yaml names the training data, options for all runs, and a grid of options, batch sizes, "
               "workers, strategies and ways to start processes; docs/SWEEP.md describes it. Each run has "
               "its own directory in SWEEP/runs. The same command continues a sweep that was stopped. The "
               "report is SWEEP/report.html; report.md, report.csv and runs.csv are in the same folder.\n",
    .groups = sweep_groups,
    .options_size = sizeof(sweep_options),
    .examples = "muster sweep grid.yaml --dry-run\n"
                "muster sweep grid.yaml --jobs auto\n",
};
