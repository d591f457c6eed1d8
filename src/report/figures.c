/* Figures of a run (figures.h).
 *
 * Design: resources.csv and spans.csv hold sums over intervals, so a total is a sum, a mean is a sum over the
 * time, and a peak is the greatest rate of an interval. An interval that lies partly in an evaluation counts
 * for training by the share that does not; its rate is taken to be the same throughout. */
#include "report/figures.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* The last interval of a process may be too short for a meaningful rate: no peak, no point. */
#define PEAK_MIN_S 0.2
#define GAP_MIN_S  0.5 /* that no line of a file covers */
#define WHOLE      0.9 /* of an interval that phases cover: the process trained throughout */
#define SLIVER     0.2 /* of the usual distance of points in rows */
#define COUNTED    0.9 /* of the rows in spans.csv, those of the same steps in the manifest at least */

typedef enum load_unit { UNIT_CPU, UNIT_LEVEL, UNIT_RATE } load_unit;

static const struct {
    const char *column, *second; /* second: added to it */
    load_unit unit;
    bool spans; /* of spans.csv */
} loads[MST_LOADS] = {
    [MST_LOAD_HOST_CPU] = {"cpu_user_s", "cpu_system_s", UNIT_CPU, false},
    [MST_LOAD_HOST_MEMORY] = {"mem_used", NULL, UNIT_LEVEL, false},
    [MST_LOAD_HOST_NET_IN] = {"net_in", NULL, UNIT_RATE, false},
    [MST_LOAD_HOST_NET_OUT] = {"net_out", NULL, UNIT_RATE, false},
    [MST_LOAD_HOST_DISK_READ] = {"disk_read", NULL, UNIT_RATE, false},
    [MST_LOAD_HOST_DISK_WRITE] = {"disk_write", NULL, UNIT_RATE, false},
    [MST_LOAD_CPU] = {"proc_cpu_user_s", "proc_cpu_system_s", UNIT_CPU, false},
    [MST_LOAD_MEMORY] = {"proc_rss", NULL, UNIT_LEVEL, false},
    [MST_LOAD_MESSAGES_IN] = {"bytes_in", NULL, UNIT_RATE, true},
    [MST_LOAD_MESSAGES_OUT] = {"bytes_out", NULL, UNIT_RATE, true},
    [MST_LOAD_DISK_READ] = {"proc_read", NULL, UNIT_RATE, false},
    [MST_LOAD_DISK_WRITE] = {"proc_write", NULL, UNIT_RATE, false},
    [MST_LOAD_HOST_IDLE] = {"cpu_idle_s", NULL, UNIT_CPU, false},
    [MST_LOAD_HOST_FREE] = {"mem_free", NULL, UNIT_LEVEL, false},
};

/* ---- evaluations ---- */

typedef struct window {
    double from, to;
} window;

/* The evaluations of the run, or of that process, in the order of marks.csv. *out is the caller's to free. */
static mst_status figures_find_evaluations(const mst_run_data *run, const char *process, window **out,
                                           size_t *n)
{
    double begun = NAN;
    window *found = mst_alloc((run->marks.n_rows + 1) * sizeof *found);
    if (found == NULL)
        return mst_fail_memory();
    *n = 0;
    for (size_t i = 0; i < run->marks.n_rows; i++) {
        mst_mark_line m = mst_run_data_mark(run, i);
        if (isnan(m.time) || (*m.process != '\0' && strcmp(m.process, process) != 0))
            continue;
        if (strcmp(m.kind, "evaluate_begin") == 0 && isnan(begun)) {
            begun = m.time;
        } else if (strcmp(m.kind, "evaluate_end") == 0 && m.time >= begun) {
            found[(*n)++] = (window){begun, m.time};
            begun = NAN;
        }
    }
    if (!isnan(begun)) /* not over yet */
        found[(*n)++] = (window){begun, INFINITY};
    *out = found;
    return MST_OK;
}

/* Seconds of [from, to] within the windows; *at: the first window to look at, since intervals are in order of
 * time. */
static double figures_overlap(const window *windows, size_t n, size_t *at, double from, double to)
{
    double sum = 0;
    while (*at < n && windows[*at].to <= from)
        (*at)++;
    for (size_t i = *at; i < n && windows[i].from < to; i++)
        sum += fmax(0, fmin(windows[i].to, to) - fmax(windows[i].from, from));
    return fmin(sum, to - from);
}

/* ---- loads ---- */

typedef struct load_columns {
    const mst_csv *csv;
    size_t time, interval, first, second;
} load_columns;

static load_columns figures_find_columns(const mst_process_data *p, mst_load_kind kind)
{
    const mst_csv *csv = loads[kind].spans ? &p->spans : &p->resources;
    return (load_columns){
        .csv = csv,
        .time = mst_csv_column(csv, "time"),
        .interval = mst_csv_column(csv, "interval_s"),
        .first = mst_csv_column(csv, loads[kind].column),
        .second = loads[kind].second != NULL ? mst_csv_column(csv, loads[kind].second) : MST_CSV_NONE,
    };
}

static double figures_sum_of(const load_columns *c, size_t row)
{
    double first = mst_csv_value(c->csv, row, c->first), second = mst_csv_value(c->csv, row, c->second);
    return isnan(second) ? first : first + second;
}

/* Whether the line's interval counts, and how long it is. */
static bool figures_counts(const mst_csv *csv, size_t row, size_t time, size_t interval, double from,
                           double to, double *seconds)
{
    double t = mst_csv_value(csv, row, time);
    *seconds = mst_csv_value(csv, row, interval);
    return *seconds > 0 && !isnan(t) && !(t <= from) && !(t > to);
}

static void figures_add_load(mst_load *to, double *weight, load_unit unit, double value, double seconds,
                             double share)
{
    double rate = unit == UNIT_LEVEL ? value : value / seconds;
    if (share <= 0)
        return;
    to->total += value * share;
    to->mean += rate * seconds * share;
    *weight += seconds * share;
    if (share >= 0.5 && seconds >= PEAK_MIN_S && !(rate <= to->peak))
        to->peak = rate;
}

static void figures_end_load(mst_load *to, double weight, load_unit unit)
{
    to->mean = weight > 0 ? to->mean / weight : NAN;
    to->total = weight > 0 && unit != UNIT_LEVEL ? to->total : NAN;
    to->peak = fmax(to->peak, to->mean); /* of NAN and a number: the number */
}

mst_status mst_loads_of(const mst_run_data *run, const mst_process_data *process, double from, double to,
                        mst_loads *out)
{
    window *windows = NULL;
    size_t n_windows = 0;
    TRY(figures_find_evaluations(run, process->name, &windows, &n_windows));
    *out = (mst_loads){0};
    for (int k = 0; k < MST_LOADS; k++) {
        load_columns c = figures_find_columns(process, (mst_load_kind)k);
        mst_load all = {.peak = NAN}, training = {.peak = NAN};
        double all_s = 0, training_s = 0, seconds;
        size_t at = 0;
        for (size_t i = 0; i < c.csv->n_rows; i++) {
            double value = figures_sum_of(&c, i), t = mst_csv_value(c.csv, i, c.time);
            if (isnan(value) || !figures_counts(c.csv, i, c.time, c.interval, from, to, &seconds))
                continue;
            double evaluating = figures_overlap(windows, n_windows, &at, t - seconds, t);
            figures_add_load(&all, &all_s, loads[k].unit, value, seconds, 1);
            figures_add_load(&training, &training_s, loads[k].unit, value, seconds, 1 - evaluating / seconds);
        }
        figures_end_load(&all, all_s, loads[k].unit);
        figures_end_load(&training, training_s, loads[k].unit);
        out->all[k] = all;
        out->training[k] = training;
        out->seconds = fmax(out->seconds, all_s);
        out->training_seconds = fmax(out->training_seconds, training_s);
    }
    mst_free(windows);
    return MST_OK;
}

/* ---- points ---- */

void mst_points_fini(mst_points *self)
{
    mst_free(self->x);
    mst_free(self->y);
    *self = (mst_points){0};
}

mst_status mst_points_new(size_t n, mst_points *out)
{
    mst_points p = {.x = mst_calloc(n + 1, sizeof *p.x), .y = mst_calloc(n + 1, sizeof *p.y)};
    if (p.x == NULL || p.y == NULL) {
        mst_points_fini(&p);
        return mst_fail_memory();
    }
    *out = p;
    return MST_OK;
}

mst_status mst_load_points(const mst_run_data *run, const mst_process_data *process, mst_load_kind kind,
                           mst_points *out)
{
    load_columns c = figures_find_columns(process, kind);
    double begin = mst_run_data_begin(run), covered = NAN, seconds;
    mst_points p = {0};
    TRY(mst_points_new(2 * c.csv->n_rows, &p));
    for (size_t i = 0; i < c.csv->n_rows; i++) {
        double value = figures_sum_of(&c, i), t = mst_csv_value(c.csv, i, c.time);
        if (!figures_counts(c.csv, i, c.time, c.interval, NAN, NAN, &seconds) || isnan(value))
            continue;
        if (p.n > 0 && t - seconds >= covered + GAP_MIN_S) {
            p.x[p.n] = (covered + t - seconds) / 2 - begin;
            p.y[p.n++] = NAN;
        }
        covered = fmax(covered, t);
        if (seconds < PEAK_MIN_S && p.n > 0 && loads[kind].unit != UNIT_LEVEL)
            continue;
        p.x[p.n] = t - begin;
        p.y[p.n++] = loads[kind].unit == UNIT_LEVEL ? value : value / seconds;
    }
    *out = p;
    return MST_OK;
}

/* ---- time ---- */

const mst_cost_info mst_cost_kinds[MST_COSTS] = {
#define X(name, column, title, colour) {column, title, colour},
    MST_COST_MAP(X)
#undef X
};

void mst_costs_of(const mst_process_data *process, double from, double to, mst_costs *out)
{
    const mst_csv *csv = &process->spans;
    size_t time = mst_csv_column(csv, "time"), interval = mst_csv_column(csv, "interval_s");
    size_t threads = mst_csv_column(csv, "threads"), steps = mst_csv_column(csv, "steps");
    size_t rows = mst_csv_column(csv, "rows"), in = mst_csv_column(csv, "bytes_in");
    size_t sent = mst_csv_column(csv, "bytes_out"), dropped = mst_csv_column(csv, "dropped_rows");
    size_t mean = mst_csv_column(csv, "staleness_mean"), max = mst_csv_column(csv, "staleness_max");
    size_t phase[MST_COSTS];
    double stale = 0, stale_steps = 0, seconds;
    for (int k = 0; k < MST_COSTS; k++)
        phase[k] = mst_csv_column(csv, mst_cost_kinds[k].column);
    *out = (mst_costs){.staleness_max = NAN};
    for (size_t i = 0; i < csv->n_rows; i++) {
        if (!figures_counts(csv, i, time, interval, from, to, &seconds))
            continue;
        double n = mst_csv_value(csv, i, threads), n_steps = mst_or_zero(mst_csv_value(csv, i, steps));
        double all = 0, line = seconds * (n > 0 ? n : 1);
        out->seconds += seconds;
        out->thread_seconds += line;
        out->steps += n_steps;
        out->rows += mst_or_zero(mst_csv_value(csv, i, rows));
        out->bytes_in += mst_or_zero(mst_csv_value(csv, i, in));
        out->bytes_out += mst_or_zero(mst_csv_value(csv, i, sent));
        out->dropped_rows += mst_or_zero(mst_csv_value(csv, i, dropped));
        out->staleness_max = fmax(out->staleness_max, mst_csv_value(csv, i, max));
        if (!isnan(mst_csv_value(csv, i, mean))) {
            stale += mst_csv_value(csv, i, mean) * n_steps;
            stale_steps += n_steps;
        }
        for (int k = 0; k < MST_COSTS; k++) {
            out->phase[k] += mst_or_zero(mst_csv_value(csv, i, phase[k]));
            all += mst_or_zero(mst_csv_value(csv, i, phase[k]));
        }
        double beside =
            fmin(fmax(0, all - line), mst_or_zero(mst_csv_value(csv, i, phase[MST_COST_EVALUATE])));
        out->phase[MST_COST_EVALUATE] -= beside;
        out->evaluate_beside += beside;
    }
    out->staleness_mean = stale_steps > 0 ? stale / stale_steps : NAN;
}

mst_costs mst_costs_of_worker(const json_t *worker, double seconds)
{
    mst_costs c = {.seconds = seconds,
                   .thread_seconds = seconds,
                   .steps = mst_or_zero(mst_json_real(worker, "steps")),
                   .rows = mst_or_zero(mst_json_real(worker, "rows")),
                   .bytes_in = mst_or_zero(mst_json_real(worker, "bytes_in")),
                   .bytes_out = mst_or_zero(mst_json_real(worker, "bytes_out")),
                   .dropped_rows = mst_or_zero(mst_json_real(worker, "dropped_rows")),
                   .staleness_mean = NAN,
                   .staleness_max = NAN};
    c.phase[MST_COST_COMPUTE] = mst_or_zero(mst_json_real(worker, "compute_seconds"));
    c.phase[MST_COST_READ] = mst_or_zero(mst_json_real(worker, "input_seconds"));
    c.phase[MST_COST_BARRIER_WAIT] = mst_or_zero(mst_json_real(worker, "wait_seconds"));
    c.phase[MST_COST_EVALUATE] = mst_or_zero(mst_json_real(worker, "eval_seconds"));
    return c;
}

/* Whether the threads worked on rows for half of an interval or more, or waited for them, though none was
 * done in it: rows that come slowly are part of training. */
static bool figures_works(const mst_csv *csv, size_t line)
{
    static const char *const own[] = {"read_s", "prepare_s", "compute_s"};
    double sum = 0, all = mst_csv_value(csv, line, mst_csv_column(csv, "threads")) *
                          mst_csv_value(csv, line, mst_csv_column(csv, "interval_s"));
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        sum += mst_csv_value(csv, line, mst_csv_column(csv, own[i]));
    return sum >= 0.5 * all && all > 0;
}

bool mst_training_window(const mst_run_data *run, double *from, double *to)
{
    *from = *to = NAN;
    for (size_t p = 0; p < run->n_processes; p++) {
        const mst_csv *csv = &run->processes[p]->spans;
        size_t time = mst_csv_column(csv, "time"), interval = mst_csv_column(csv, "interval_s");
        size_t rows = mst_csv_column(csv, "rows");
        if (run->processes[p]->role == MST_PROCESS_SERVER || run->processes[p]->role == MST_PROCESS_OTHER)
            continue;
        for (size_t i = 0; i < csv->n_rows; i++) {
            double seconds, t = mst_csv_value(csv, i, time);
            if ((!(mst_csv_value(csv, i, rows) > 0) && !figures_works(csv, i)) ||
                !figures_counts(csv, i, time, interval, NAN, NAN, &seconds))
                continue;
            *from = fmin(*from, t - seconds);
            *to = fmax(*to, t);
        }
    }
    return *to > *from;
}

/* The end of the last interval, up to the first with rows, of which the phases of the process cover a part
 * only: it began to train then. NAN: there is none. */
static double figures_first_whole(const mst_csv *csv)
{
    size_t time = mst_csv_column(csv, "time"), interval = mst_csv_column(csv, "interval_s");
    size_t threads = mst_csv_column(csv, "threads"), rows = mst_csv_column(csv, "rows");
    double end = NAN;
    bool trains = false;
    for (size_t i = 0; i < csv->n_rows && !trains; i++) {
        double covered = mst_or_zero(mst_csv_value(csv, i, mst_csv_column(csv, "idle_s")));
        for (int k = 0; k < MST_COSTS; k++)
            covered += mst_or_zero(mst_csv_value(csv, i, mst_csv_column(csv, mst_cost_kinds[k].column)));
        double all = mst_csv_value(csv, i, interval) * fmax(1, mst_csv_value(csv, i, threads));
        end = covered < WHOLE * all ? mst_csv_value(csv, i, time) : end;
        trains = mst_csv_value(csv, i, rows) > 0;
    }
    return end;
}

bool mst_whole_window(const mst_run_data *run, double least, double *from, double *to)
{
    double whole = NAN;
    bool found = mst_training_window(run, from, to);
    for (size_t p = 0; p < run->n_processes; p++)
        if (run->processes[p]->role != MST_PROCESS_SERVER && run->processes[p]->role != MST_PROCESS_OTHER)
            whole = fmax(whole, figures_first_whole(&run->processes[p]->spans));
    if (found && *to - whole >= least)
        *from = fmax(*from, whole);
    return found;
}

/* ---- the run as a whole ---- */

static const char *figures_or_empty(const char *text)
{
    return text != NULL ? text : "";
}

bool mst_run_has_set(const mst_run_data *run, const char *set)
{
    size_t column = mst_csv_column(&run->metrics, "set");
    for (size_t i = 0; i < run->metrics.n_rows; i++)
        if (strcmp(mst_csv_text(&run->metrics, i, column), set) == 0)
            return true;
    return false;
}

/* The column at the set's last evaluation, even if it is not finite, and the best of all of them; at:
 * training seconds at the best. */
static void figures_last_and_best(const mst_run_data *run, const char *set, const char *column,
                                  bool high_is_good, double *last, double *best, double *at)
{
    const mst_csv *m = &run->metrics;
    size_t value = mst_csv_column(m, column), of = mst_csv_column(m, "set");
    size_t seconds = mst_csv_column(m, "train_seconds");
    *last = *best = *at = NAN;
    for (size_t i = 0; i < m->n_rows; i++) {
        double x = mst_csv_value(m, i, value);
        if (strcmp(mst_csv_text(m, i, of), set) != 0)
            continue;
        *last = mst_csv_any_value(m, i, value);
        if (isnan(x))
            continue;
        if (isnan(*best) || (high_is_good ? x > *best : x < *best)) {
            *best = x;
            *at = mst_csv_value(m, i, seconds);
        }
    }
}

double mst_run_last(const mst_run_data *run, const char *column, const char *set)
{
    const mst_csv *m = &run->metrics;
    size_t value = mst_csv_column(m, column), of = mst_csv_column(m, "set");
    for (size_t i = m->n_rows; i > 0; i--)
        if (*set == '\0' || strcmp(mst_csv_text(m, i - 1, of), set) == 0)
            return mst_csv_any_value(m, i - 1, value);
    return NAN;
}

/* Passes over the data by the rows, if these fit the epochs that were counted: the manifest does not record
 * rows that were skipped or held out. */
static double figures_count_passes(const mst_run_data *run, const mst_run_figures *f)
{
    double per_epoch = mst_run_data_option_real(run, "steps-per-epoch");
    double passes =
        per_epoch > 0 ? f->steps / per_epoch : f->rows / mst_run_data_real(run, "data", "rows", NULL);
    return passes > f->epochs - 0.1 && passes < f->epochs + 1.1 ? passes : f->epochs;
}

static double figures_first_known(double a, double b)
{
    return isnan(a) ? b : a;
}

static double figures_some(double count)
{
    return count > 0 ? count : NAN;
}

/* The processes of the last piece: earlier pieces have folders as well. */
static void figures_count_processes(const mst_run_data *run, double workers, double ranks, double servers,
                                    mst_run_figures *f)
{
    const json_t *cluster = json_object_get(run->manifest, "cluster");
    f->n_workers = f->n_servers = NAN;
    if (strcmp(f->strategy, "allreduce") == 0) {
        f->n_workers = figures_first_known(mst_run_data_real(run, "mpi", "ranks", NULL), figures_some(ranks));
    } else if (strcmp(f->strategy, "local") != 0) {
        bool ps = strcmp(f->strategy, "ps") == 0;
        f->n_workers = figures_first_known(
            figures_some((double)json_array_size(json_object_get(cluster, "workers"))),
            figures_first_known(figures_some(workers), ps ? mst_run_data_option_real(run, "workers") : NAN));
        f->n_servers = figures_first_known(
            figures_some((double)json_array_size(json_object_get(cluster, "servers"))),
            figures_first_known(figures_some(servers), ps ? mst_run_data_option_real(run, "servers") : NAN));
    }
}

mst_status mst_run_figures_of(const mst_run_data *run, mst_run_figures *out)
{
    mst_run_figures f = {
        .state = figures_or_empty(mst_run_data_text(run, "state", NULL)),
        .end = figures_or_empty(mst_run_data_text(run, "end", NULL)),
        .model = figures_or_empty(mst_run_data_text(run, "model", "name", NULL)),
        .strategy = figures_or_empty(mst_run_data_text(run, "options", "strategy", "strategy", NULL)),
        .mode = figures_or_empty(mst_run_data_text(run, "options", "strategy", "mode", NULL)),
        .save_s = mst_run_data_real(run, "progress", "save_seconds", NULL),
        .n_workers = NAN,
        .n_servers = NAN,
        .n_threads = mst_run_data_real(run, "threads", NULL),
        .threads_most = mst_run_data_real(run, "threads_most", NULL),
        .batch = mst_run_data_real(run, "batch", NULL),
        .peak_memory = NAN,
        .cpu_s = NAN,
    };
    double ignored, workers = 0, ranks = 0, servers = 0;
    if (!(f.threads_most >= 1))
        f.threads_most = INFINITY;
    /* metrics.csv has a line per second, the manifest is written less often: the greater value is newer */
    f.steps = fmax(mst_run_data_real(run, "progress", "step", NULL), mst_csv_last(&run->metrics, "step"));
    f.rows = fmax(mst_run_data_real(run, "progress", "rows", NULL), mst_csv_last(&run->metrics, "rows"));
    f.epochs = fmax(mst_run_data_real(run, "progress", "epoch", NULL), mst_csv_last(&run->metrics, "epoch"));
    f.train_s = fmax(mst_run_data_real(run, "progress", "train_seconds", NULL),
                     mst_csv_last(&run->metrics, "train_seconds"));
    f.eval_s = fmax(mst_run_data_real(run, "progress", "eval_seconds", NULL),
                    mst_csv_last(&run->metrics, "eval_seconds"));
    f.train_loss = mst_csv_last(&run->metrics, "train_loss");
    f.train_accuracy = mst_csv_last(&run->metrics, "train_accuracy");
    f.passes = figures_count_passes(run, &f);
    f.rows_per_s = f.train_s > 0 ? f.rows / f.train_s : NAN;
    f.steps_per_s = f.train_s > 0 ? f.steps / f.train_s : NAN;
    f.set = mst_run_has_set(run, "test") ? "test" : mst_run_has_set(run, "valid") ? "valid" : "";
    figures_last_and_best(run, f.set, "loss", false, &f.test_loss, &f.best_loss, &ignored);
    /* an evaluation always has a loss, so an empty field is one that is no number */
    f.loss_is_nan =
        *f.set != '\0' && isnan(f.test_loss) && mst_csv_column(&run->metrics, "loss") != MST_CSV_NONE;
    figures_last_and_best(run, f.set, "accuracy", true, &f.test_accuracy, &f.best_accuracy,
                          &f.best_accuracy_s);
    figures_last_and_best(run, f.set, "auc", true, &f.test_auc, &f.best_auc, &ignored);
    figures_last_and_best(run, f.set, "top5", true, &f.test_top5, &ignored, &ignored);
    f.progressive_loss = mst_csv_last(&run->metrics, "progressive_loss");
    f.test_grouped_auc = mst_run_last(run, "grouped_auc", f.set);
    f.test_calibration = mst_run_last(run, "calibration", f.set);
    f.test_normalised_entropy = mst_run_last(run, "normalised_entropy", f.set);
    for (size_t i = 0; i < run->n_processes; i++) {
        mst_loads use;
        const mst_process_data *p = run->processes[i];
        workers += p->role == MST_PROCESS_WORKER;
        ranks += p->role == MST_PROCESS_RANK;
        servers += p->role == MST_PROCESS_SERVER;
        TRY(mst_loads_of(run, p, NAN, NAN, &use));
        f.peak_memory = fmax(f.peak_memory, use.all[MST_LOAD_MEMORY].peak);
        if (!isnan(use.all[MST_LOAD_CPU].total))
            f.cpu_s = mst_or_zero(f.cpu_s) + use.all[MST_LOAD_CPU].total;
    }
    figures_count_processes(run, workers, ranks, servers, &f);
    *out = f;
    return MST_OK;
}

double mst_process_lost(const mst_run_data *run, const char *process)
{
    double at = NAN;
    for (size_t i = 0; i < run->marks.n_rows; i++) {
        mst_mark_line m = mst_run_data_mark(run, i);
        if (strcmp(m.process, process) != 0)
            continue;
        if (strcmp(m.kind, "death") == 0)
            at = m.time - mst_run_data_begin(run);
        else if (strcmp(m.kind, "join") == 0)
            at = NAN; /* it joined again */
    }
    return at;
}

mst_loss_figures mst_losses_of(const mst_run_data *run, const mst_run_figures *figures)
{
    mst_loss_figures out = {0};
    const json_t *loss;
    const char *process;
    size_t i;
    json_array_foreach(json_object_get(run->manifest, "losses"), i, loss)
    {
        bool share = json_object_get(loss, "server") != NULL;
        *(share ? &out.shares : &out.n) += 1;
        *(share ? &out.share_steps : &out.steps) += mst_or_zero(mst_json_real(loss, "steps"));
        *(share ? &out.share_rows : &out.rows) += mst_or_zero(mst_json_real(loss, "rows"));
        out.from_start += !share && mst_json_real(loss, "step") == 0;
        out.train_s += share ? 0 : mst_or_zero(mst_json_real(loss, "train_seconds"));
        out.recovery_s += mst_or_zero(mst_json_real(loss, "recovery_seconds"));
    }
    json_object_foreach(json_object_get(run->manifest, "lost_processes"), process, loss)
    {
        out.processes += json_number_value(loss);
    }
    double lost = out.train_s + out.recovery_s, wall = lost + mst_or_zero(figures->train_s) +
                                                       mst_or_zero(figures->eval_s) +
                                                       mst_or_zero(figures->save_s);
    out.share = wall > 0 ? lost / wall : 0;
    return out;
}

double mst_process_train_s(const mst_run_data *run, const mst_run_figures *figures,
                           const mst_process_data *process, const mst_costs *costs)
{
    double there = costs->seconds > 0 ? costs->seconds : NAN;
    double lost = mst_process_lost(run, process->name) + mst_run_data_begin(run) - process->started;
    return fmin(figures->train_s, fmax(there, lost)); /* of NAN and a number: the number */
}

bool mst_workers_counted(const mst_run_data *run)
{
    return mst_run_data_real(run, "workers_since", NULL) == 0;
}

/* Whether the run continued after a loss: "workers" of the manifest of an earlier version counts from there.
 */
static bool figures_rolled_back(const mst_run_data *run)
{
    const json_t *loss;
    size_t i;
    if (mst_workers_counted(run))
        return false;
    json_array_foreach(json_object_get(run->manifest, "losses"), i, loss)
    {
        if (json_object_get(loss, "server") == NULL)
            return true;
    }
    return false;
}

void mst_costs_count(const mst_run_data *run, const mst_process_data *process, mst_costs *costs)
{
    const json_t *workers = json_object_get(run->manifest, "workers");
    const char *state = figures_or_empty(mst_run_data_text(run, "state", NULL));
    if ((process->role != MST_PROCESS_WORKER && process->role != MST_PROCESS_RANK) ||
        strcmp(state, "running") == 0 || figures_rolled_back(run))
        return;
    for (size_t i = 0; i < json_array_size(workers); i++) {
        const json_t *worker = json_array_get(workers, i), *index = json_object_get(worker, "worker");
        double rows = mst_json_real(worker, "rows");
        /* much less than in spans.csv: the manifest of a run that an earlier version resumed counts from
         * there */
        if (!json_is_integer(index) || json_integer_value(index) != process->index ||
            (!mst_workers_counted(run) && !(rows > COUNTED * costs->rows)))
            continue;
        costs->rows = rows;
        costs->steps = figures_first_known(mst_json_real(worker, "steps"), costs->steps);
        costs->dropped_rows = figures_first_known(mst_json_real(worker, "dropped_rows"), costs->dropped_rows);
        costs->bytes_in = fmax(costs->bytes_in, mst_json_real(worker, "bytes_in"));
        costs->bytes_out = fmax(costs->bytes_out, mst_json_real(worker, "bytes_out"));
    }
}

/* The mean number of rows between two lines of metrics.csv about training; 0: not known. */
static double figures_mean_gap(const mst_csv *metrics)
{
    size_t rows = mst_csv_column(metrics, "rows"), n = 0;
    double newest = NAN, sum = 0;
    for (size_t i = 0; i < metrics->n_rows; i++) {
        double at = mst_csv_value(metrics, i, rows);
        if (at > newest) {
            sum += at - newest;
            n++;
        }
        newest = isnan(at) ? newest : at;
    }
    return n > 0 ? sum / (double)n : 0;
}

mst_status mst_curve(const mst_run_data *run, const char *column, const char *set, mst_axis axis,
                     mst_points *out)
{
    static const char *const axes[] = {"train_seconds", "step", "rows"};
    const mst_csv *m = &run->metrics;
    bool error = strcmp(column, "error") == 0;
    size_t x = mst_csv_column(m, axes[axis]), y = mst_csv_column(m, error ? "accuracy" : column);
    size_t of = mst_csv_column(m, "set"), rows = mst_csv_column(m, "rows");
    bool of_training = strncmp(column, "train_", 6) == 0;
    double newest_rows = NAN, gap = SLIVER * figures_mean_gap(m);
    mst_points p = {0};
    TRY(mst_points_new(m->n_rows, &p));
    for (size_t i = 0; i < m->n_rows; i++) {
        double at = mst_csv_value(m, i, x), value = mst_csv_value(m, i, y);
        if (isnan(at) || isnan(value) || (*set != '\0' && strcmp(mst_csv_text(m, i, of), set) != 0))
            continue;
        /* a mean over the few steps between an evaluation and its neighbouring line is mostly noise */
        double advance = mst_csv_value(m, i, rows) - newest_rows;
        if (of_training && p.n > 1 && fabs(advance) < gap)
            continue;
        newest_rows = mst_csv_value(m, i, rows);
        p.x[p.n] = at;
        p.y[p.n++] = error ? 1 - value : value;
    }
    *out = p;
    return MST_OK;
}

mst_status mst_learning_points(const mst_run_data *run, const mst_process_data *process, const char *column,
                               mst_axis axis, mst_points *out)
{
    static const char *const axes[] = {"time", "steps", "rows"};
    const mst_csv *csv = &process->learning;
    size_t x = mst_csv_column(csv, axes[axis]), y = mst_csv_column(csv, column);
    double from = axis == MST_AXIS_TIME ? -mst_run_data_begin(run) : 0, last = 0;
    mst_points p = {0};
    TRY(mst_points_new(csv->n_rows, &p));
    for (size_t i = 0; i < csv->n_rows; i++) {
        double at = mst_csv_value(csv, i, x), value = mst_csv_value(csv, i, y);
        if (isnan(at) || isnan(value))
            continue;
        if (axis != MST_AXIS_TIME && at < last) /* it was started again */
            from += last;
        last = at;
        p.x[p.n] = from + at;
        p.y[p.n++] = value;
    }
    *out = p;
    return MST_OK;
}
