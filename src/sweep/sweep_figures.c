/* Figures of a sweep's runs, and their mean and spread over repeats; contract in sweep_report_impl.h.
 *
 * Runs are read one after the other, so that a sweep of thousands needs the memory of one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "sweep/sweep_report_impl.h"

const mst_sweep_figure_info mst_sweep_figures[MST_SWEEP_FIGURES] = {
#define X(name, title, key, unit) {title, key, MST_FIGURE_##unit},
    MST_SWEEP_FIGURES_MAP(X)
#undef X
};

/* The figure with that key; MST_SWEEP_FIGURES: none. */
static mst_sweep_figure sweep_figure_of(const char *key)
{
    int k = 0;
    while (k < MST_SWEEP_FIGURES && strcmp(mst_sweep_figures[k].key, key) != 0)
        k++;
    return (mst_sweep_figure)k;
}

mst_figure_unit mst_sweep_metric_unit(const mst_sweep_report *self)
{
    mst_sweep_figure figure = sweep_figure_of(self->metric.column);
    if (figure != MST_SWEEP_FIGURES)
        return mst_sweep_figures[figure].unit;
    return strcmp(self->metric.column, "top5") == 0 ? MST_FIGURE_SHARE : MST_FIGURE_PLAIN;
}

/* ---- one run ---- */

typedef struct work {
    double steps, wait, traffic, n;
} work;

static void sweep_add_worker(const mst_costs *c, work *sum, mst_sweep_run *out)
{
    double *f = out->figures, waits = c->phase[MST_COST_PULL_WAIT] + c->phase[MST_COST_BARRIER_WAIT];
    sum->steps += c->steps;
    sum->wait += waits * c->seconds / c->thread_seconds;
    sum->traffic += c->bytes_in + c->bytes_out;
    sum->n++;
    f[MST_SWEEP_LEAST] = fmin(f[MST_SWEEP_LEAST], c->rows);
    f[MST_SWEEP_MOST] = fmax(f[MST_SWEEP_MOST], c->rows);
    if (out->n_workers < MST_SWEEP_WORKERS_MAX)
        out->work[out->n_workers++] = c->rows;
}

/* Iterations, rows, bytes and waits of the workers: as the manifest counts them; of a run that an earlier
 * version resumed, whose manifest counts from there, by their spans.csv as far as there are such. */
static void sweep_take_workers(const mst_run_data *run, double train_s, mst_sweep_run *out)
{
    double *f = out->figures;
    work sum = {0};
    size_t i;
    json_t *worker;
    bool resumed =
        json_array_size(json_object_get(run->manifest, "history")) > 1 && !mst_workers_counted(run);
    for (i = 0; resumed && i < run->n_processes; i++) {
        const mst_process_data *p = run->processes[i];
        mst_costs c;
        mst_costs_of(p, NAN, NAN, &c);
        if ((p->role == MST_PROCESS_WORKER || p->role == MST_PROCESS_RANK) && c.thread_seconds > 0)
            sweep_add_worker(&c, &sum, out);
    }
    bool counted = sum.n > 0;
    json_array_foreach(json_object_get(run->manifest, "workers"), i, worker)
    {
        mst_costs c = mst_costs_of_worker(worker, 1);
        double seconds = mst_json_real(worker, "seconds");
        if (out->n_counted < MST_SWEEP_WORKERS_MAX) {
            size_t w = out->n_counted++;
            out->workers[w].steps = c.steps;
            out->workers[w].rows = c.rows;
            out->workers[w].seconds = isnan(seconds) ? train_s : seconds;
            out->workers[w].accuracy = mst_json_real(worker, "last_accuracy");
        }
        if (!counted)
            sweep_add_worker(&c, &sum, out);
    }
    if (sum.n == 0)
        return;
    f[MST_SWEEP_ITERATIONS] = sum.steps;
    f[MST_SWEEP_TRAFFIC] = sum.traffic;
    f[MST_SWEEP_TRAFFIC_RATE] = train_s > 0 ? sum.traffic / train_s : NAN;
    f[MST_SWEEP_WAIT] = train_s > 0 ? fmin(1, sum.wait / (sum.n * train_s)) : NAN;
}

static mst_status sweep_take_resources(const mst_run_data *run, mst_sweep_run *out)
{
    double *f = out->figures, cpu_s = 0, seconds = 0, memory = 0;
    bool any = false;
    for (size_t i = 0; i < run->n_processes; i++) {
        mst_loads use;
        TRY(mst_loads_of(run, run->processes[i], NAN, NAN, &use));
        if (isnan(use.all[MST_LOAD_CPU].total))
            continue;
        any = true;
        cpu_s += use.all[MST_LOAD_CPU].total;
        memory += mst_or_zero(use.all[MST_LOAD_MEMORY].peak);
        seconds = fmax(seconds, use.seconds);
        f[MST_SWEEP_MEMORY] = fmax(f[MST_SWEEP_MEMORY], use.all[MST_LOAD_MEMORY].peak);
        f[MST_SWEEP_HOST_CPU] = fmax(f[MST_SWEEP_HOST_CPU], use.all[MST_LOAD_HOST_CPU].peak);
        f[MST_SWEEP_HOST_MEMORY] = fmax(f[MST_SWEEP_HOST_MEMORY], use.all[MST_LOAD_HOST_MEMORY].peak);
    }
    f[MST_SWEEP_CPU_TIME] = any ? cpu_s : NAN;
    f[MST_SWEEP_CPU] = any && seconds > 0 ? cpu_s / seconds : NAN;
    f[MST_SWEEP_MEMORY_ALL] = any ? memory : NAN;
    return MST_OK;
}

/* The metric of a run whose other figures are known. */
static double sweep_metric_of(const mst_sweep_metric *metric, const mst_run_data *run,
                              const mst_run_figures *r, const double *f)
{
    if (!metric->evaluated)
        return f[sweep_figure_of(metric->column)];
    return mst_run_last(run, metric->column, metric->any_set ? r->set : metric->set);
}

static mst_status sweep_take_run(const mst_sweep_metric *metric, const mst_run_data *run, mst_sweep_run *out)
{
    mst_run_figures r;
    mst_verdict verdict;
    double *f = out->figures;
    TRY(mst_run_figures_of(run, &r));
    TRY(mst_verdict_of(run, &verdict));
    f[MST_SWEEP_ITERATIONS] = r.steps;
    f[MST_SWEEP_TIME] = r.train_s;
    f[MST_SWEEP_TOTAL] = r.train_s + mst_or_zero(r.eval_s) + mst_or_zero(r.save_s);
    f[MST_SWEEP_TARGET] = mst_target_reached(r.end) ? r.train_s : NAN;
    f[MST_SWEEP_ROWS] = r.rows;
    f[MST_SWEEP_SPEED] = r.rows_per_s;
    f[MST_SWEEP_ACCURACY] = r.test_accuracy;
    f[MST_SWEEP_LOSS] = r.test_loss;
    f[MST_SWEEP_AUC] = r.test_auc;
    sweep_take_workers(run, r.train_s, out);
    TRY(sweep_take_resources(run, out));
    if (verdict.known)
        snprintf(out->bottleneck, sizeof out->bottleneck, "%s", mst_bottleneck_name(verdict.kind));
    f[MST_SWEEP_METRIC] = sweep_metric_of(metric, run, &r, f);
    out->known = true;
    return MST_OK;
}

static mst_status sweep_read_run(const mst_sweep_report *self, const mst_sweep_cell *cell, mst_sweep_run *out)
{
    char *path = mst_sweep_run_path(self->sweep, cell);
    mst_run_data *run = NULL;
    mst_status st = path != NULL ? MST_OK : mst_fail_memory();
    for (int k = 0; k < MST_SWEEP_FIGURES; k++)
        out->figures[k] = NAN;
    if (st == MST_OK && cell->state == MST_CELL_DONE) {
        st = mst_run_data_new(path, &run);
        if (st == MST_OK)
            st = sweep_take_run(&self->metric, run, out);
        st = st == MST_ENOMEM ? st : MST_OK; /* a run that cannot be read has no figures */
    }
    mst_run_data_destroy(run);
    mst_free(path);
    return st;
}

/* ---- configurations ---- */

static void sweep_add_stat(mst_stat *s, double value)
{
    if (isnan(value))
        return;
    /* Welford: deviation holds the sum of squares until the end */
    s->n++;
    double before = s->mean;
    s->mean += (value - s->mean) / (double)s->n;
    s->deviation += (value - before) * (value - s->mean);
    s->low = s->n == 1 ? value : fmin(s->low, value);
    s->high = s->n == 1 ? value : fmax(s->high, value);
}

static void sweep_end_stat(mst_stat *s)
{
    s->deviation = s->n > 1 ? sqrt(s->deviation / (double)(s->n - 1)) : NAN;
    if (s->n == 0)
        s->mean = s->low = s->high = NAN;
}

static void sweep_sum_up(mst_sweep_report *self, mst_sweep_config *config)
{
    const char *name = self->sweep->cells[config->first].config;
    size_t most = 0, seen[MST_BOTTLENECKS + 1] = {0};
    config->bottleneck = "";
    for (size_t i = config->first; i < self->sweep->n; i++) {
        const mst_sweep_cell *cell = &self->sweep->cells[i];
        const mst_sweep_run *run = &self->runs[i];
        if (cell->state == MST_CELL_SKIPPED || strcmp(cell->config, name) != 0)
            continue;
        config->n++;
        config->n_failed += cell->state == MST_CELL_FAILED;
        config->n_known += run->known;
        config->n_reached += !isnan(run->figures[MST_SWEEP_TARGET]);
        for (int k = 0; k < MST_SWEEP_FIGURES; k++)
            sweep_add_stat(&config->stats[k], run->figures[k]);
        if (run->n_workers > config->n_workers)
            config->n_workers = run->n_workers;
        for (size_t w = 0; w < run->n_workers; w++)
            config->work[w] += run->work[w];
        for (int b = 0; b <= MST_BOTTLENECKS; b++)
            if (strcmp(run->bottleneck, mst_bottleneck_name((mst_bottleneck)b)) == 0 && ++seen[b] > most) {
                most = seen[b];
                config->bottleneck = mst_bottleneck_name((mst_bottleneck)b);
            }
    }
    for (int k = 0; k < MST_SWEEP_FIGURES; k++)
        sweep_end_stat(&config->stats[k]);
    for (size_t w = 0; w < config->n_workers && config->n_known > 0; w++)
        config->work[w] /= (double)config->n_known;
}

static void sweep_find_configs(mst_sweep_report *self)
{
    for (size_t i = 0; i < self->sweep->n; i++) {
        bool is_new = self->sweep->cells[i].state != MST_CELL_SKIPPED;
        for (size_t k = 0; is_new && k < self->n_configs; k++)
            is_new =
                strcmp(self->sweep->cells[self->configs[k].first].config, self->sweep->cells[i].config) != 0;
        if (is_new)
            self->configs[self->n_configs++].first = i;
    }
    for (size_t k = 0; k < self->n_configs; k++)
        sweep_sum_up(self, &self->configs[k]);
}

mst_status mst_sweep_report_new(const mst_sweep *sweep, mst_sweep_report **out)
{
    mst_status st = MST_OK;
    const char *axis;
    json_t *values;
    mst_sweep_report *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->sweep = sweep;
    self->has_target = mst_sweep_until(sweep) != NULL;
    self->metric_name = mst_sweep_metric_name(sweep, &self->metric_given);
    if (!self->metric_given && self->has_target)
        self->metric_name = "target_s";
    mst_sweep_metric_find(self->metric_name, &self->metric);
    for (size_t i = 0; i < sweep->n; i++)
        self->jobs = sweep->cells[i].jobs > self->jobs ? sweep->cells[i].jobs : self->jobs;
    self->runs = mst_calloc(sweep->n, sizeof *self->runs);
    self->configs = mst_calloc(sweep->n, sizeof *self->configs);
    if (self->runs == NULL || self->configs == NULL)
        TRY_OUT(st, mst_fail_memory());
    json_object_foreach(json_object_get(sweep->spec, "grid"), axis, values)
    {
        if (json_array_size(values) > 1 && strcmp(axis, "seed") != 0 &&
            self->n_axes < sizeof self->axes / sizeof *self->axes)
            self->axes[self->n_axes++] = axis;
    }
    for (size_t i = 0; i < sweep->n; i++)
        TRY_OUT(st, sweep_read_run(self, &sweep->cells[i], &self->runs[i]));
    sweep_find_configs(self);
    TRY_OUT(st, mst_sweep_make_sheets(self));
    *out = self;
    self = NULL;
out:
    mst_sweep_report_destroy(self);
    return st;
}

void mst_sweep_report_destroy(mst_sweep_report *self)
{
    if (self == NULL)
        return;
    for (int i = 0; i < MST_SWEEP_SHEETS; i++)
        mst_sheet_fini(&self->sheets[i]);
    mst_free(self->runs);
    mst_free(self->configs);
    mst_free(self);
}

/* ---- access ---- */

const char *mst_sweep_label(const mst_sweep_report *self, const mst_sweep_config *config, const char *axis)
{
    const char *label = json_string_value(json_object_get(self->sweep->cells[config->first].labels, axis));
    return label != NULL ? label : "";
}

double mst_sweep_option(const mst_sweep_report *self, const mst_sweep_config *config, const char *option)
{
    const json_t *set = self->sweep->cells[config->first].set;
    const char *text = json_string_value(json_object_get(set, option));
    char *end;
    if (text == NULL && (strcmp(option, "workers") == 0 || strcmp(option, "servers") == 0))
        text = "1";
    if (text == NULL)
        return NAN;
    double value = strtod(text, &end);
    return end != text && *end == '\0' ? value : NAN;
}

void mst_sweep_command(const mst_sweep_cell *cell, mst_string *out)
{
    mst_string_add(out, "muster");
    for (size_t i = 0; i < cell->words.n; i++) {
        if (strcmp(cell->words.items[i], "--logs=none") == 0)
            continue;
        mst_string_add(out, " ");
        mst_string_shell(out, cell->words.items[i]);
    }
}

size_t mst_sweep_best(const mst_sweep_report *self, mst_sweep_figure figure, bool high)
{
    size_t best = self->n_configs;
    for (size_t i = 0; i < self->n_configs; i++) {
        const mst_sweep_config *c = &self->configs[i];
        double value = c->stats[figure].mean;
        if (isnan(value) || (figure == MST_SWEEP_TARGET && c->n_reached < c->n_known))
            continue;
        if (best == self->n_configs || (high ? value > self->configs[best].stats[figure].mean
                                             : value < self->configs[best].stats[figure].mean))
            best = i;
    }
    return best;
}

size_t mst_sweep_winner(const mst_sweep_report *self)
{
    const char *found = json_string_value(json_object_get(self->sweep->search, "best"));
    size_t i = 0;
    if (self->sweep->search == NULL)
        return mst_sweep_best(
            self, strcmp(self->metric_name, "target_s") == 0 ? MST_SWEEP_TARGET : MST_SWEEP_METRIC,
            self->metric.high_is_good);
    while (found != NULL && i < self->n_configs &&
           strcmp(self->sweep->cells[self->configs[i].first].name, found) != 0)
        i++;
    return found != NULL ? i : self->n_configs;
}
