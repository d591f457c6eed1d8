/* Tables of a sweep's report: one function each. A line is a configuration;
 * figures are means over its repeats, followed by the standard deviation if there are several. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "sweep/sweep_report_impl.h"

static void sweep_sheet_add_stat(mst_sheet *out, mst_figure_unit unit, const mst_stat *s)
{
    char text[2 * MST_FIGURE_SIZE];
    mst_sheet_value(out, s->mean, mst_figure_spread(unit, s->mean, s->n > 1 ? s->deviation : NAN, text));
}

static void sweep_sheet_add_columns(const mst_sweep_figure *columns, size_t n, mst_sheet *out)
{
    for (size_t k = 0; k < n; k++)
        mst_sheet_column_add(out, mst_sweep_figures[columns[k]].title, mst_sweep_figures[columns[k]].key,
                             true);
}

static void sweep_sheet_results(const mst_sweep_report *self, mst_sheet *out)
{
    static const mst_sweep_figure columns[] = {MST_SWEEP_ITERATIONS, MST_SWEEP_ROWS,   MST_SWEEP_TIME,
                                               MST_SWEEP_SPEED,      MST_SWEEP_TARGET, MST_SWEEP_ACCURACY,
                                               MST_SWEEP_LOSS,       MST_SWEEP_AUC};
    const size_t n = sizeof columns / sizeof *columns;
    bool shown = false;
    for (size_t k = 0; k < n; k++)
        shown = shown || strcmp(mst_sweep_figures[columns[k]].key, self->metric_name) == 0;
    size_t winner = mst_sweep_winner(self);
    *out = (mst_sheet){
        .title = "Results",
        .key = "results",
        .note = "Iterations: the sum over workers. Training time: until the last worker was done, without "
                "evaluations. After \xc2\xb1: the standard deviation over repeats. Best: by the metric of "
                "the sweep, or by the search."};
    mst_sheet_column_add(out, "configuration", "configuration", false);
    sweep_sheet_add_columns(columns, n, out);
    if (!shown)
        mst_sheet_column_add(out, self->metric_name, "metric", true);
    mst_sheet_column_add(out, "best", "best", false);
    mst_sheet_column_add(out, "reached", "reached", true);
    mst_sheet_column_add(out, "runs", "runs", true);
    mst_sheet_column_add(out, "bottleneck", "bottleneck", false);
    for (size_t i = 0; i < self->n_configs; i++) {
        const mst_sweep_config *c = &self->configs[i];
        char text[48];
        mst_sheet_text(out, self->sweep->cells[c->first].config);
        for (size_t k = 0; k < n; k++)
            sweep_sheet_add_stat(out, mst_sweep_figures[columns[k]].unit, &c->stats[columns[k]]);
        if (!shown)
            sweep_sheet_add_stat(out, mst_sweep_metric_unit(self), &c->stats[MST_SWEEP_METRIC]);
        mst_sheet_text(out, i == winner ? "best" : "");
        snprintf(text, sizeof text, "%zu of %zu", c->n_reached, c->n_known);
        mst_sheet_value(out, self->has_target && c->n_known > 0 ? (double)c->n_reached : NAN, text);
        snprintf(text, sizeof text, c->n_known == c->n ? "%zu" : "%zu of %zu", c->n_known, c->n);
        mst_sheet_value(out, (double)c->n_known, text);
        mst_sheet_text(out, c->bottleneck);
    }
}

static void sweep_sheet_resources(const mst_sweep_report *self, mst_sheet *out)
{
    static const mst_sweep_figure columns[] = {
        MST_SWEEP_CPU,        MST_SWEEP_HOST_CPU,    MST_SWEEP_CPU_TIME, MST_SWEEP_MEMORY,
        MST_SWEEP_MEMORY_ALL, MST_SWEEP_HOST_MEMORY, MST_SWEEP_TRAFFIC,  MST_SWEEP_TRAFFIC_RATE,
        MST_SWEEP_WAIT,       MST_SWEEP_TOTAL};
    const size_t n = sizeof columns / sizeof *columns;
    *out = (mst_sheet){.title = "CPU, memory and network",
                       .key = "resources",
                       .note = "Sums over all processes of a run; peaks of the busiest host, other programs "
                               "included. Network: bytes that workers sent and received, "
                               "over the training time; messages within one process use no network."};
    mst_sheet_column_add(out, "configuration", "configuration", false);
    sweep_sheet_add_columns(columns, n, out);
    for (size_t i = 0; i < self->n_configs; i++) {
        if (self->configs[i].n_known == 0)
            continue;
        mst_sheet_text(out, self->sweep->cells[self->configs[i].first].config);
        for (size_t k = 0; k < n; k++)
            sweep_sheet_add_stat(out, mst_sweep_figures[columns[k]].unit,
                                 &self->configs[i].stats[columns[k]]);
    }
}

static void sweep_sheet_workload(const mst_sweep_report *self, mst_sheet *out)
{
    static const char *const titles[] = {"worker 0", "worker 1", "worker 2",  "worker 3",
                                         "worker 4", "worker 5", "worker 6",  "worker 7",
                                         "worker 8", "worker 9", "worker 10", "worker 11"};
    size_t most = 0;
    for (size_t i = 0; i < self->n_configs; i++)
        most = self->configs[i].n_workers > most ? self->configs[i].n_workers : most;
    size_t shown = most < sizeof titles / sizeof *titles ? most : sizeof titles / sizeof *titles;
    *out = (mst_sheet){.title = "Workload per worker",
                       .key = "workload",
                       .note = "Rows of each worker, mean over repeats. Most over least: 1 is even."};
    mst_sheet_column_add(out, "configuration", "configuration", false);
    for (size_t w = 0; w < shown; w++)
        mst_sheet_column_add(out, titles[w], titles[w], true);
    mst_sheet_column_add(out, "mean", "mean", true);
    mst_sheet_column_add(out, "most over least", "imbalance", true);
    for (size_t i = 0; i < self->n_configs; i++) {
        const mst_sweep_config *c = &self->configs[i];
        double sum = 0, low = INFINITY, high = 0;
        if (c->n_workers < 2)
            continue;
        mst_sheet_text(out, self->sweep->cells[c->first].config);
        for (size_t w = 0; w < c->n_workers; w++) {
            sum += c->work[w];
            low = fmin(low, c->work[w]);
            high = fmax(high, c->work[w]);
        }
        for (size_t w = 0; w < shown; w++)
            mst_sheet_count(out, w < c->n_workers ? c->work[w] : NAN);
        mst_sheet_count(out, sum / (double)c->n_workers);
        mst_sheet_real(out, low > 0 ? high / low : NAN);
    }
}

static void sweep_sheet_workers(const mst_sweep_report *self, mst_sheet *out)
{
    *out =
        (mst_sheet){.title = "Workers of each run",
                    .key = "workers",
                    .note = "Accuracy: of the last rows that the worker trained on, before their updates."};
    mst_sheet_column_add(out, "run and worker", "worker", false);
    mst_sheet_column_add(out, "steps", "steps", true);
    mst_sheet_column_add(out, "rows", "rows", true);
    mst_sheet_column_add(out, "time", "seconds", true);
    mst_sheet_column_add(out, "accuracy", "last_accuracy", true);
    for (size_t i = 0; i < self->sweep->n; i++) {
        const mst_sweep_run *run = &self->runs[i];
        for (size_t w = 0; run->known && run->n_counted > 1 && w < run->n_counted; w++) {
            char name[256];
            snprintf(name, sizeof name, "%.200s, worker %zu", self->sweep->cells[i].name, w);
            mst_sheet_text(out, name);
            mst_sheet_count(out, run->workers[w].steps);
            mst_sheet_count(out, run->workers[w].rows);
            mst_sheet_seconds(out, run->workers[w].seconds);
            mst_sheet_percent(out, run->workers[w].accuracy);
        }
    }
}

static bool sweep_sheet_is_dropped(const json_t *round, const char *who)
{
    size_t i;
    json_t *name;
    json_array_foreach(json_object_get(round, "dropped"), i, name)
    {
        if (who != NULL && json_is_string(name) && strcmp(json_string_value(name), who) == 0)
            return true;
    }
    return false;
}

/* The outcome of a try of a round. stopped: why no candidate continues after it; NULL: some do, or may. */
static const char *sweep_sheet_decision(const json_t *round, const json_t *one, const char *stopped)
{
    const char *sentence = json_string_value(json_object_get(one, "sentence"));
    if (sentence != NULL)
        return sentence;
    if (json_is_true(json_object_get(one, "reached")))
        return "reached the target";
    if (json_is_true(json_object_get(one, "over")))
        return "ended by its limit";
    if (sweep_sheet_is_dropped(round, json_string_value(json_object_get(one, "name"))))
        return "dropped: in the worse half";
    return stopped != NULL ? stopped : "continues";
}

static void sweep_sheet_search(const mst_sweep_report *self, mst_sheet *out)
{
    const json_t *search = self->sweep->search;
    json_t *rounds = json_object_get(search, "rounds"), *round, *one;
    const char *stopped = json_string_value(json_object_get(search, "stopped"));
    size_t i, k;
    if (stopped == NULL && json_object_get(search, "why") != NULL)
        stopped = "stopped: the search had ended";
    *out = (mst_sheet){
        .title = "The search",
        .key = "search",
        .note = "Each round doubles the training time, up to the shortest time in which a candidate "
                "has reached the target. If none reached it, the better half continues. Value: "
                "at the end of the round. Nearest: over all evaluations so far."};
    mst_sheet_column_add(out, "candidate", "candidate", false);
    mst_sheet_column_add(out, "round", "round", true);
    mst_sheet_column_add(out, "time given", "budget_s", true);
    mst_sheet_column_add(out, "trained", "train_s", true);
    mst_sheet_column_add(out, "value", "value", true);
    mst_sheet_column_add(out, "nearest", "nearest", true);
    mst_sheet_column_add(out, "outcome", "decision", false);
    json_array_foreach(rounds, i, round)
    {
        bool last = i + 1 == json_array_size(rounds);
        json_array_foreach(json_object_get(round, "tries"), k, one)
        {
            mst_sheet_text(out, json_string_value(json_object_get(one, "name")));
            mst_sheet_count(out, (double)i + 1);
            double given = mst_json_real(one, "given_s");
            mst_sheet_seconds(out, isnan(given) ? mst_json_real(round, "seconds") : given);
            mst_sheet_seconds(out, mst_json_real(one, "train_s"));
            mst_sheet_real(out, mst_json_real(one, "value"));
            mst_sheet_real(out, mst_json_real(one, "nearest"));
            mst_sheet_text(out, sweep_sheet_decision(round, one, last ? stopped : NULL));
        }
    }
}

static void sweep_sheet_problems(const mst_sweep_report *self, mst_sheet *out)
{
    *out = (mst_sheet){.title = "Missing runs", .key = "problems"};
    mst_sheet_column_add(out, "run", "run", false);
    mst_sheet_column_add(out, "state", "state", false);
    mst_sheet_column_add(out, "why", "why", false);
    for (size_t i = 0; i < self->sweep->n; i++) {
        const mst_sweep_cell *cell = &self->sweep->cells[i];
        if (cell->state == MST_CELL_SKIPPED || (cell->state == MST_CELL_DONE && self->runs[i].known))
            continue;
        mst_sheet_text(out, cell->name);
        mst_sheet_text(out, mst_cell_state_name(cell->state));
        mst_sheet_text(out, cell->sentence != NULL         ? cell->sentence
                            : cell->state == MST_CELL_DONE ? "cannot read its folder"
                                                           : "has not run yet");
    }
}

static void sweep_sheet_left_out(const mst_sweep_report *self, mst_sheet *out)
{
    size_t n;
    const char *why;
    *out = (mst_sheet){.title = "Omitted from the grid", .key = "left_out"};
    mst_sheet_column_add(out, "why", "why", false);
    mst_sheet_column_add(out, "runs", "runs", true);
    mst_sheet_column_add(out, "first run", "first", false);
    for (size_t i = 0; i < self->sweep->n; i++) {
        if (!mst_sweep_left_out(self->sweep, i, &n, &why))
            continue;
        mst_sheet_text(out, why);
        mst_sheet_count(out, (double)n);
        mst_sheet_text(out, self->sweep->cells[i].name);
    }
}

mst_status mst_sweep_make_sheets(mst_sweep_report *self)
{
    static void (*const makers[MST_SWEEP_SHEETS])(const mst_sweep_report *self, mst_sheet *out) = {
        [MST_SWEEP_SHEET_RESULTS] = sweep_sheet_results,
        [MST_SWEEP_SHEET_RESOURCES] = sweep_sheet_resources,
        [MST_SWEEP_SHEET_WORKLOAD] = sweep_sheet_workload,
        [MST_SWEEP_SHEET_WORKERS] = sweep_sheet_workers,
        [MST_SWEEP_SHEET_SEARCH] = sweep_sheet_search,
        [MST_SWEEP_SHEET_PROBLEMS] = sweep_sheet_problems,
        [MST_SWEEP_SHEET_LEFT_OUT] = sweep_sheet_left_out,
    };
    for (int i = 0; i < MST_SWEEP_SHEETS; i++) {
        makers[i](self, &self->sheets[i]);
        if (self->sheets[i].failed)
            return mst_fail_memory();
    }
    return MST_OK;
}
