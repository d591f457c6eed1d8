/* The view of a run (run_view.h).
 *
 * Design: the state of a run is that of its manifest, unless it is "running" and nothing was written for a
 * while: a killed run cannot update its manifest. The last write is the newest modification time of the
 * files; times in them are of the coordinator's clock. If all its processes were on this host and none of
 * their ids exists, a shorter silence is enough. The state of a process follows from its last mark, from the
 * end of the run, or from its silence while others continue. */
#include "dash/run_view.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

#define SILENT_S     15.0 /* at least; or this many missing lines: */
#define SILENT_LINES 5.0
#define LOST_S       3.0 /* of a run whose processes are gone; it may be about to end */
#define ENDED_S      1.0 /* between the mark of a run's end and its manifest */
#define STATS_MAX    32  /* processes whose files' times are read */

const char *mst_life_name(mst_life life)
{
    static const char *const names[] = {
#define X(name, text) text,
        MST_LIFE_MAP(X)
#undef X
    };
    return names[life];
}

const char *mst_odd_loss(double loss, bool is_nan)
{
    if (isinf(loss))
        return loss > 0 ? "inf" : "-inf";
    return is_nan ? "nan" : NULL;
}

/* ---- silence ---- */

static double view_written_at(const char *path)
{
    struct stat info;
    if (path == NULL || stat(path, &info) != 0)
        return NAN;
    return (double)info.st_mtim.tv_sec + (double)info.st_mtim.tv_nsec * 1e-9;
}

static double view_quiet_seconds(const mst_run_data *data)
{
    double last = fmax(view_written_at(data->metrics.path), view_written_at(data->marks.path));
    last = fmax(last, view_written_at(data->manifest_path));
    for (size_t i = 0; i < data->n_processes && i < STATS_MAX; i++) {
        last = fmax(last, view_written_at(data->processes[i]->resources.path));
        last = fmax(last, view_written_at(data->processes[i]->spans.path));
    }
    return fmax(0, mst_wall_s() - last);
}

static double view_silent_after(const mst_run_data *data)
{
    double every = mst_run_data_option_real(data, "resources-every");
    return every > 0 ? fmax(SILENT_S, SILENT_LINES * every) : SILENT_S;
}

/* Whether all processes of the run were on this host and none exists. */
static bool view_all_lost(const mst_run_data *data)
{
    char host[256] = "";
    size_t n = 0;
    gethostname(host, sizeof host - 1);
    for (size_t i = 0; i < data->n_processes; i++) {
        const mst_process_data *p = data->processes[i];
        if (!p->has_info)
            continue;
        if (p->pid <= 0 || p->pid > INT32_MAX || strcmp(p->host, host) != 0 || kill((pid_t)p->pid, 0) == 0 ||
            errno != ESRCH)
            return false;
        n++;
    }
    return n > 0;
}

/* Whether the run's last mark is its end. */
static bool view_has_ended(const mst_run_data *data)
{
    return data->marks.n_rows > 0 && strcmp(mst_run_data_mark(data, data->marks.n_rows - 1).kind, "end") == 0;
}

static mst_life view_life_of_run(const mst_run_view *v, bool gone)
{
    const char *state = v->figures.state;
    if (gone)
        return MST_LIFE_GONE;
    if (strcmp(state, "done") == 0)
        return MST_LIFE_FINISHED;
    if (strcmp(state, "stopped") == 0)
        return MST_LIFE_STOPPED;
    if (strcmp(state, "failed") == 0)
        return MST_LIFE_FAILED;
    if (v->quiet_s > ENDED_S && view_has_ended(v->data))
        return MST_LIFE_FAILED; /* its last manifest could not be written */
    if (v->quiet_s > view_silent_after(v->data) || (v->quiet_s > LOST_S && view_all_lost(v->data)))
        return MST_LIFE_SILENT;
    return MST_LIFE_LIVE;
}

/* ---- processes ---- */

static mst_life view_life_of_process(const mst_run_view *v, const mst_process_view *p)
{
    mst_life life = MST_LIFE_LIVE;
    for (size_t i = 0; i < v->data->marks.n_rows; i++) {
        mst_mark_line m = mst_run_data_mark(v->data, i);
        if (strcmp(m.process, p->process->name) != 0)
            continue;
        if (strcmp(m.kind, "death") == 0)
            life = MST_LIFE_DEAD;
        else if (strcmp(m.kind, "leave") == 0)
            life = MST_LIFE_FINISHED;
        else if (strcmp(m.kind, "join") == 0)
            life = MST_LIFE_LIVE;
    }
    if (life != MST_LIFE_LIVE)
        return life;
    if (v->life == MST_LIFE_SILENT)
        return MST_LIFE_SILENT;
    if (v->life != MST_LIFE_LIVE)
        return MST_LIFE_FINISHED;
    return v->end - p->last > view_silent_after(v->data) ? MST_LIFE_SILENT : MST_LIFE_LIVE;
}

static mst_status view_process(const mst_run_view *v, mst_process_view *p)
{
    p->last = fmax(mst_csv_last(&p->process->resources, "time"), mst_csv_last(&p->process->spans, "time"));
    p->life = view_life_of_process(v, p);
    double from = NAN; /* of a run that is over: all of it */
    if (v->life == MST_LIFE_LIVE)
        from = p->life != MST_LIFE_LIVE /* INFINITY: nothing */
                   ? INFINITY
                   : fmax(p->last - MST_VIEW_RECENT_S, v->end - 2 * MST_VIEW_RECENT_S);
    mst_costs_of(p->process, NAN, NAN, &p->total);
    mst_costs_of(p->process, from, NAN, &p->now);
    mst_costs_count(v->data, p->process, &p->total);
    if (v->life != MST_LIFE_LIVE)
        p->now = p->total;
    bool over = v->life != MST_LIFE_LIVE && v->figures.train_s > 0;
    double s = over ? mst_process_train_s(v->data, &v->figures, p->process, &p->total) : p->now.seconds;
    p->rows_per_s = p->now.seconds > 0 && s > 0 ? p->now.rows / s : NAN;
    p->steps_per_s = p->now.seconds > 0 && s > 0 ? p->now.steps / s : NAN;
    double every = mst_run_data_option_real(v->data, "resources-every");
    if (v->life == MST_LIFE_LIVE && v->end - p->last > MST_VIEW_RECENT_S + (every > 0 ? every : 0))
        p->rows_per_s = p->steps_per_s = 0;              /* it has written nothing in the time shown */
    if (over && p->process->role == MST_PROCESS_LOCAL) { /* the only one that trains */
        p->rows_per_s = v->figures.rows_per_s;
        p->steps_per_s = v->figures.steps_per_s;
    }
    TRY(mst_loads_of(v->data, p->process, NAN, NAN, &p->all_use));
    return mst_loads_of(v->data, p->process, from, NAN, &p->now_use);
}

double mst_process_view_share(const mst_process_view *self, mst_cost_kind kind)
{
    return self->now.thread_seconds > 0 ? self->now.phase[kind] / self->now.thread_seconds : 0;
}

double mst_process_view_waits(const mst_process_view *self)
{
    return mst_process_view_share(self, MST_COST_PULL_WAIT) +
           mst_process_view_share(self, MST_COST_BARRIER_WAIT) + mst_process_view_share(self, MST_COST_READ);
}

/* ---- the run ---- */

/* A newest loss that is not finite is on no curve. Every line has a loss, except evaluations before the first
 * trained row. */
static void view_take_odd_loss(mst_run_view *v)
{
    const mst_csv *m = &v->data->metrics;
    size_t column = mst_csv_column(m, "train_loss"), rows = mst_csv_column(m, "rows");
    for (size_t i = m->n_rows; i > 0 && column != MST_CSV_NONE; i--) {
        double loss = mst_csv_any_value(m, i - 1, column);
        double before = i > 1 ? mst_csv_value(m, i - 2, rows) : 0;
        if (isnan(loss) && !(mst_csv_value(m, i - 1, rows) > before))
            continue;
        if (!isfinite(loss))
            v->train_loss = loss;
        v->train_loss_is_nan = isnan(loss);
        return;
    }
}

/* The used share of a limit; NAN: there is none. */
static double view_used(double done, double limit)
{
    return limit > 0 && done >= 0 ? fmin(1, done / limit) : NAN;
}

static double view_share_done(const mst_run_view *v)
{
    const mst_run_figures *f = &v->figures;
    double share = view_used(f->steps, mst_run_data_option_real(v->data, "steps"));
    share = fmax(share, view_used(f->rows, mst_run_data_option_real(v->data, "rows")));
    share = fmax(share, view_used(f->train_s, mst_run_data_option_real(v->data, "seconds")));
    double epochs = mst_run_data_option_real(v->data, "epochs");
    if (isnan(share) && !(mst_run_data_option_real(v->data, "steps-per-epoch") > 0)) {
        share = view_used(f->rows, epochs * mst_run_data_real(v->data, "data", "rows", NULL));
        share = isnan(share) ? view_used(f->epochs, epochs) : share;
    }
    return v->life == MST_LIFE_FINISHED ? 1 : share;
}

/* Rates over the processes that train; a process that has ended in a live run has none. */
static void view_sum_up(mst_run_view *v)
{
    double waits = 0, threads = 0;
    /* without lockstep, every worker's steps count */
    bool apart = strcmp(v->figures.strategy, "ps") == 0 && strcmp(v->figures.mode, "sync") != 0;
    v->rows_per_s = v->steps_per_s = NAN;
    for (size_t i = 0; i < v->n_processes; i++) {
        const mst_process_view *p = &v->processes[i];
        bool counts = p->process->role != MST_PROCESS_SERVER && p->process->role != MST_PROCESS_OTHER;
        if (!counts || !(p->now.seconds > 0) || (v->life == MST_LIFE_LIVE && p->life != MST_LIFE_LIVE))
            continue;
        v->rows_per_s = (isnan(v->rows_per_s) ? 0 : v->rows_per_s) + p->rows_per_s;
        v->steps_per_s = apart && !isnan(v->steps_per_s) ? v->steps_per_s + p->steps_per_s
                                                         : fmax(v->steps_per_s, p->steps_per_s);
        waits += mst_process_view_waits(p) * p->now.thread_seconds;
        threads += p->now.thread_seconds;
    }
    v->waits = threads > 0 ? waits / threads : NAN;
    if (isnan(v->rows_per_s) || (v->life != MST_LIFE_LIVE && v->figures.train_s > 0)) {
        v->rows_per_s = v->figures.rows_per_s;
        v->steps_per_s = v->figures.steps_per_s;
    }
}

/* The evaluator, for example, has only event files. */
static bool view_shown(const mst_process_data *p)
{
    return p->has_info || p->resources.n_rows + p->spans.n_rows > 0;
}

mst_status mst_run_view_init(const mst_run_data *data, bool gone, bool judge, mst_run_view *out)
{
    mst_status st = MST_OK;
    mst_run_view v = {.data = data};
    TRY_OUT(st, mst_run_figures_of(data, &v.figures));
    v.quiet_s = view_quiet_seconds(data);
    v.begin = mst_run_data_begin(data);
    v.end = mst_run_data_end(data);
    v.life = view_life_of_run(&v, gone);
    mst_points losses = {0}; /* as it is drawn: without a last mean over a few steps */
    TRY_OUT(st, mst_curve(data, "train_loss", "", MST_AXIS_STEPS, &losses));
    v.train_loss = losses.n > 0 ? losses.y[losses.n - 1] : NAN;
    view_take_odd_loss(&v);
    mst_points_fini(&losses);
    v.lr = mst_csv_last(&data->metrics, "lr");
    v.processes = mst_calloc(data->n_processes + 1, sizeof *v.processes);
    if (v.processes == NULL)
        TRY_OUT(st, mst_fail_memory());
    for (size_t i = 0; i < data->n_processes; i++) {
        if (!view_shown(data->processes[i]))
            continue;
        mst_process_view *p = &v.processes[v.n_processes++];
        p->process = data->processes[i];
        TRY_OUT(st, view_process(&v, p));
    }
    view_sum_up(&v);
    v.share_done = view_share_done(&v);
    v.left_s = v.life == MST_LIFE_LIVE && v.share_done > 0.001
                   ? v.figures.train_s * (1 - v.share_done) / v.share_done
                   : NAN;
    if (judge)
        TRY_OUT(st, mst_verdict_of(data, &v.verdict));
    v.has_verdict = judge;
    *out = v;
    v.processes = NULL;
out:
    mst_free(v.processes);
    return st;
}

void mst_run_view_fini(mst_run_view *self)
{
    mst_free(self->processes);
    *self = (mst_run_view){0};
}
