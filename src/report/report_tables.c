/* The tables of a report: one function each. Reports of one run and of
 * several have the same tables; the first column names the run and, if there is one, the process. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "options/option_tables.h"
#include "report/host_traffic.h"
#include "report/report_impl.h"

#define NO_SAVE_S 1e-6 /* the cost of reading the clock when nothing is saved */

void mst_sheet_name_row(const mst_report *self, mst_sheet *out, size_t run, const char *process)
{
    if (self->n == 1) {
        mst_sheet_text(out, process);
        return;
    }
    char *text = mst_sprintf("%s \xc2\xb7 %s", self->labels[run], process);
    out->failed = out->failed || text == NULL;
    mst_sheet_text(out, text);
    mst_free(text);
}

/* ---- the runs ---- */

static void sheet_overview(const mst_report *self, mst_sheet *out)
{
    *out = (mst_sheet){.title = "Runs", .key = "overview"};
    mst_sheet_column_add(out, "run", "run", false);
    mst_sheet_column_add(out, "state", "state", false);
    mst_sheet_column_add(out, "model", "model", false);
    mst_sheet_column_add(out, "how", "how", false);
    mst_sheet_column_add(out, "batch", "batch", true);
    mst_sheet_column_add(out, "steps", "steps", true);
    mst_sheet_column_add(out, "rows", "rows", true);
    mst_sheet_column_add(out, "training", "train_s", true);
    mst_sheet_column_add(out, "rows/s", "rows_per_s", true);
    mst_sheet_column_add(out, "training loss", "train_loss", true);
    mst_sheet_column_add(out, "training accuracy", "train_accuracy", true);
    mst_sheet_column_add(out, "peak memory", "peak_memory", true);
    mst_sheet_column_add(out, "CPU time", "cpu_s", true);
    mst_sheet_column_add(out, "bottleneck", "bottleneck", false);
    for (size_t i = 0; i < self->n; i++) {
        const mst_run_figures *f = &self->figures[i];
        char how[160], part[64] = "";
        if (f->n_workers >= 1 && strcmp(f->strategy, "allreduce") == 0)
            snprintf(part, sizeof part, ", %.0f rank%s", f->n_workers, f->n_workers == 1 ? "" : "s");
        else if (f->n_workers >= 1)
            snprintf(part, sizeof part, ", %.0f worker%s, %.0f server%s", f->n_workers,
                     f->n_workers == 1 ? "" : "s", f->n_servers >= 0 ? f->n_servers : 0,
                     f->n_servers == 1 ? "" : "s");
        else if (f->n_threads >= 1)
            snprintf(part, sizeof part, ", %.0f thread%s", f->n_threads, f->n_threads == 1 ? "" : "s");
        snprintf(how, sizeof how, "%.32s %.32s%s", f->strategy, f->mode, part);
        mst_sheet_text(out, self->labels[i]);
        mst_sheet_text(out, f->state);
        mst_sheet_text(out, f->model);
        mst_sheet_text(out, how);
        mst_sheet_count(out, f->batch);
        mst_sheet_count(out, f->steps);
        mst_sheet_count(out, f->rows);
        mst_sheet_seconds(out, f->train_s);
        mst_sheet_count(out, f->rows_per_s);
        mst_sheet_real(out, f->train_loss);
        mst_sheet_precise(out, f->train_accuracy);
        mst_sheet_bytes(out, f->peak_memory);
        mst_sheet_seconds(out, f->cpu_s);
        mst_sheet_text(out,
                       self->verdicts[i].known ? mst_bottleneck_name(self->verdicts[i].kind) : "not known");
    }
}

/* ---- the verdict ---- */

static void sheet_verdict(const mst_report *self, mst_sheet *out)
{
    *out = (mst_sheet){
        .title = "Worker time by cause",
        .key = "verdict",
        .note = "Computing includes preparing rows, sending and applying, but not waiting for a core."};
    mst_sheet_column_add(out, "run", "run", false);
    for (int k = 0; k < MST_BOTTLENECKS; k++)
        mst_sheet_part_add(out, mst_bottleneck_title((mst_bottleneck)k),
                           mst_bottleneck_name((mst_bottleneck)k), (unsigned)k);
    for (size_t i = 0; i < self->n; i++) {
        if (!self->verdicts[i].known)
            continue;
        mst_sheet_text(out, self->labels[i]);
        for (int k = 0; k < MST_BOTTLENECKS; k++)
            mst_sheet_percent(out, self->verdicts[i].shares[k]);
    }
}

static void sheet_advice(const mst_report *self, mst_sheet *out)
{
    *out = (mst_sheet){.title = "Advice", .key = "advice"};
    mst_sheet_column_add(out, self->n > 1 ? "run and change" : "change", "change", false);
    mst_sheet_column_add(out, "rows/s", "predicted_gain", true);
    mst_sheet_column_add(out, "why", "text", false);
    for (size_t i = 0; i < self->n; i++)
        for (size_t k = 0; k < self->verdicts[i].n_advice; k++) {
            const mst_advice *a = &self->verdicts[i].advice[k];
            char gain[40];
            snprintf(gain, sizeof gain, "\xc3\x97%.2f", a->gain);
            mst_sheet_name_row(self, out, i, a->change);
            mst_sheet_value(out, a->gain, gain);
            mst_sheet_text(out, a->text);
        }
}

static void sheet_evidence(const mst_report *self, mst_sheet *out)
{
    *out = (mst_sheet){.title = "Evidence", .key = "evidence"};
    mst_sheet_column_add(out, self->n > 1 ? "run and figure" : "figure", "what", false);
    mst_sheet_column_add(out, "value", "value", true);
    for (size_t i = 0; i < self->n; i++)
        for (size_t k = 0; k < self->verdicts[i].n_evidence; k++) {
            const mst_evidence *e = &self->verdicts[i].evidence[k];
            char text[64], number[40];
            mst_sheet_name_row(self, out, i, e->what);
            if (strcmp(e->unit, "share") == 0)
                mst_sheet_percent(out, e->value);
            else if (strcmp(e->unit, "bytes") == 0)
                mst_sheet_bytes(out, e->value);
            else if (strcmp(e->unit, "bytes/s") == 0)
                mst_sheet_rate(out, e->value);
            else if (strcmp(e->unit, "s") == 0)
                mst_sheet_seconds(out, e->value);
            else {
                bool ratio = strcmp(e->unit, "ratio") == 0;
                snprintf(text, sizeof text, "%s%s", mst_figure_short(e->value, number),
                         ratio ? " times" : " ");
                strncat(text, ratio ? "" : e->unit, sizeof text - strlen(text) - 1);
                mst_sheet_value(out, e->value, text);
            }
        }
}

/* ---- time ---- */

static void sheet_cost(const mst_report *self, mst_sheet *out)
{
    *out = (mst_sheet){.title = "Time",
                       .key = "cost",
                       .note = "Waiting: the share of the training threads' time spent waiting for rows, for "
                               "weights or for each other. Losses: recovery, and training that was "
                               "repeated."};
    mst_sheet_column_add(out, "run", "run", false);
    mst_sheet_column_add(out, "training", "train_s", true);
    mst_sheet_column_add(out, "evaluation", "eval_s", true);
    mst_sheet_column_add(out, "saving", "save_s", true);
    mst_sheet_column_add(out, "losses", "lost_s", true);
    mst_sheet_column_add(out, "total", "total_s", true);
    mst_sheet_column_add(out, "evaluation share", "eval_share", true);
    mst_sheet_column_add(out, "waiting", "wait_share", true);
    mst_sheet_column_add(out, "per step", "step_s", true);
    mst_sheet_column_add(out, "per epoch", "epoch_s", true);
    for (size_t i = 0; i < self->n; i++) {
        const mst_run_figures *f = &self->figures[i];
        mst_loss_figures losses = mst_losses_of(self->runs[i], f);
        double lost = losses.recovery_s + losses.train_s;
        double total = f->train_s + mst_or_zero(f->eval_s) + mst_or_zero(f->save_s) + lost;
        double wait = 0, of = 0;
        for (size_t p = 0; p < self->runs[i]->n_processes; p++) {
            mst_costs c;
            if (self->runs[i]->processes[p]->role == MST_PROCESS_SERVER)
                continue;
            mst_costs_of(self->runs[i]->processes[p], NAN, NAN, &c);
            wait += c.phase[MST_COST_PULL_WAIT] + c.phase[MST_COST_BARRIER_WAIT] + c.phase[MST_COST_READ];
            of += c.thread_seconds;
        }
        mst_sheet_text(out, self->labels[i]);
        mst_sheet_seconds(out, f->train_s);
        mst_sheet_seconds(out, f->eval_s);
        mst_sheet_seconds(out, f->save_s < NO_SAVE_S ? 0 : f->save_s);
        mst_sheet_seconds(out, lost > 0 ? lost : NAN);
        mst_sheet_seconds(out, total);
        mst_sheet_percent(out, f->eval_s / total);
        mst_sheet_percent(out, of > 0 ? wait / of : NAN);
        mst_sheet_seconds(out, f->steps > 0 ? f->train_s / f->steps : NAN);
        mst_sheet_seconds(out, f->passes >= 1 ? f->train_s / f->passes : NAN);
    }
}

static void sheet_phases(const mst_report *self, mst_sheet *out)
{
    *out = (mst_sheet){.title = "Time of each process by phase",
                       .key = "phases",
                       .note = "Shares of the time of threads that train or serve. Evaluation by a separate "
                               "thread is not included."};
    mst_sheet_column_add(out, "process", "process", false);
    mst_sheet_column_add(out, "thread time", "thread_s", true);
    for (int k = 0; k < MST_COSTS; k++)
        mst_sheet_part_add(out, mst_cost_kinds[k].title, mst_cost_kinds[k].column, mst_cost_kinds[k].colour);
    for (size_t i = 0; i < self->n; i++)
        for (size_t p = 0; p < self->runs[i]->n_processes; p++) {
            mst_costs c;
            mst_costs_of(self->runs[i]->processes[p], NAN, NAN, &c);
            if (c.thread_seconds <= 0)
                continue;
            mst_sheet_name_row(self, out, i, self->runs[i]->processes[p]->name);
            mst_sheet_seconds(out, c.thread_seconds);
            for (int k = 0; k < MST_COSTS; k++)
                mst_sheet_percent(out, c.phase[k] / c.thread_seconds);
        }
}

/* ---- workers ---- */

/* seconds: those of its training. */
static void sheet_add_worker(const mst_report *self, mst_sheet *out, size_t run, const char *name,
                             double all_rows, double seconds, const mst_costs *c)
{
    double wait = c->phase[MST_COST_PULL_WAIT] + c->phase[MST_COST_BARRIER_WAIT];
    mst_sheet_name_row(self, out, run, name);
    mst_sheet_count(out, c->steps);
    mst_sheet_count(out, c->rows);
    mst_sheet_percent(out, all_rows > 0 ? c->rows / all_rows : NAN);
    mst_sheet_count(out, seconds > 0 ? c->rows / seconds : NAN);
    mst_sheet_percent(out, c->phase[MST_COST_COMPUTE] / c->thread_seconds);
    mst_sheet_percent(out, wait / c->thread_seconds);
    mst_sheet_percent(out, c->phase[MST_COST_READ] / c->thread_seconds);
    mst_sheet_bytes(out, c->bytes_in);
    mst_sheet_bytes(out, c->bytes_out);
    mst_sheet_real(out, c->staleness_mean);
    mst_sheet_count(out, c->dropped_rows);
    double lost = mst_process_lost(self->runs[run], name);
    char after[40], state[64] = "";
    if (!isnan(lost))
        snprintf(state, sizeof state, "lost after %s", mst_figure_seconds(fmax(0, lost), after));
    mst_sheet_text(out, state);
}

/* Workers as the manifest counts them, of runs without spans.csv. */
static void sheet_add_manifest_workers(const mst_report *self, mst_sheet *out, size_t run)
{
    json_t *worker, *workers = json_object_get(self->runs[run]->manifest, "workers");
    double rows = 0, seconds = self->figures[run].train_s;
    size_t i;
    json_array_foreach(workers, i, worker) rows += mst_costs_of_worker(worker, seconds).rows;
    json_array_foreach(workers, i, worker)
    {
        char name[40];
        mst_costs c = mst_costs_of_worker(worker, seconds);
        snprintf(name, sizeof name, "worker-%zu", i);
        sheet_add_worker(self, out, run, name, rows, seconds, &c);
    }
}

static void sheet_workers(const mst_report *self, mst_sheet *out)
{
    *out = (mst_sheet){.title = "Workers", .key = "workers"};
    for (size_t i = 0; i < self->n; i++)
        if (mst_losses_of(self->runs[i], &self->figures[i]).n > 0 && !mst_workers_counted(self->runs[i]))
            out->note = "Rows and steps that were lost and trained again count twice.";
    mst_sheet_column_add(out, "worker", "worker", false);
    mst_sheet_column_add(out, "steps", "steps", true);
    mst_sheet_column_add(out, "rows", "rows", true);
    mst_sheet_column_add(out, "of all rows", "rows_share", true);
    mst_sheet_column_add(out, "rows/s", "rows_per_s", true);
    mst_sheet_column_add(out, "computing", "compute_share", true);
    mst_sheet_column_add(out, "waiting for others", "wait_share", true);
    mst_sheet_column_add(out, "waiting for rows", "read_share", true);
    mst_sheet_column_add(out, "received", "bytes_in", true);
    mst_sheet_column_add(out, "sent", "bytes_out", true);
    mst_sheet_column_add(out, "staleness", "staleness_mean", true);
    mst_sheet_column_add(out, "rows dropped", "dropped_rows", true);
    mst_sheet_column_add(out, "state", "state", false);
    for (size_t i = 0; i < self->n; i++) {
        const mst_run_data *run = self->runs[i];
        double rows = 0;
        size_t before = out->n_cells;
        mst_costs c;
        for (int pass = 0; pass < 2; pass++)
            for (size_t p = 0; p < run->n_processes; p++) {
                if (run->processes[p]->role == MST_PROCESS_SERVER)
                    continue;
                mst_costs_of(run->processes[p], NAN, NAN, &c);
                mst_costs_count(run, run->processes[p], &c);
                if (pass == 0)
                    rows += c.rows;
                else if (c.rows > 0)
                    sheet_add_worker(self, out, i, run->processes[p]->name, rows,
                                     mst_process_train_s(run, &self->figures[i], run->processes[p], &c), &c);
            }
        if (out->n_cells == before)
            sheet_add_manifest_workers(self, out, i);
    }
}

/* ---- resources ---- */

static void sheet_add_load_columns(mst_sheet *out, bool host)
{
    mst_sheet_column_add(out, host ? "host and time" : "process and time", host ? "host" : "process", false);
    mst_sheet_column_add(out, "CPU cores", "cpu_mean", true);
    mst_sheet_column_add(out, "peak", "cpu_peak", true);
    if (host)
        mst_sheet_column_add(out, "idle", "cpu_idle", true);
    mst_sheet_column_add(out, "CPU time", "cpu_total_s", true);
    mst_sheet_column_add(out, "memory", "memory_mean", true);
    mst_sheet_column_add(out, "peak", "memory_peak", true);
    if (host)
        mst_sheet_column_add(out, "free", "memory_free", true);
    mst_sheet_column_add(out, "in", "in_mean", true);
    mst_sheet_column_add(out, "peak", "in_peak", true);
    mst_sheet_column_add(out, "total", "in_total", true);
    mst_sheet_column_add(out, "out", "out_mean", true);
    mst_sheet_column_add(out, "peak", "out_peak", true);
    mst_sheet_column_add(out, "total", "out_total", true);
    mst_sheet_column_add(out, "disk read", "read_mean", true);
    mst_sheet_column_add(out, "peak", "read_peak", true);
    mst_sheet_column_add(out, "total", "read_total", true);
    mst_sheet_column_add(out, "disk write", "write_mean", true);
    mst_sheet_column_add(out, "peak", "write_peak", true);
    mst_sheet_column_add(out, "total", "write_total", true);
}

/* cores: of the host. */
static void sheet_add_loads(mst_sheet *out, const mst_load *loads, mst_load_kind first, double cores)
{
    char mean[40], peak[40];
    bool host = first == MST_LOAD_HOST_CPU;
    snprintf(mean, sizeof mean, "%.2f", loads[first].mean);
    snprintf(peak, sizeof peak, "%.2f", loads[first].peak);
    mst_sheet_value(out, loads[first].mean, mean);
    mst_sheet_value(out, loads[first].peak, peak);
    if (host)
        mst_sheet_percent(out, loads[MST_LOAD_HOST_IDLE].mean / cores);
    mst_sheet_seconds(out, loads[first].total);
    mst_sheet_bytes(out, loads[first + 1].mean);
    mst_sheet_bytes(out, loads[first + 1].peak);
    if (host)
        mst_sheet_bytes(out, loads[MST_LOAD_HOST_FREE].mean);
    for (int k = 2; k < 6; k++) {
        mst_sheet_rate(out, loads[first + k].mean);
        mst_sheet_rate(out, loads[first + k].peak);
        mst_sheet_bytes(out, loads[first + k].total);
    }
}

/* A file may exist without figures. */
static bool loads_have_any(const mst_load *loads)
{
    bool any = false;
    for (int k = 0; k < 6; k++)
        any = any || !isnan(loads[k].mean);
    return any;
}

static void sheet_add_both(const mst_report *self, mst_sheet *out, size_t run, const mst_process_data *p,
                           const char *of, mst_load_kind first)
{
    mst_loads loads = {0};
    char *training = mst_sprintf("%s, training", of), *all = mst_sprintf("%s, with evaluation", of);
    out->failed = out->failed || training == NULL || all == NULL ||
                  mst_loads_of(self->runs[run], p, NAN, NAN, &loads) != MST_OK;
    if (!out->failed && loads_have_any(&loads.all[first])) {
        mst_sheet_name_row(self, out, run, training);
        sheet_add_loads(out, loads.training, first, p->cores);
        mst_sheet_name_row(self, out, run, all);
        sheet_add_loads(out, loads.all, first, p->cores);
    }
    mst_free(training);
    mst_free(all);
}

/* Whether a process before p of the run is on the same host. */
static bool host_is_seen(const mst_run_data *run, size_t p)
{
    for (size_t i = 0; i < p; i++)
        if (run->processes[i]->resources.n_rows > 0 &&
            strcmp(run->processes[i]->host, run->processes[p]->host) == 0)
            return true;
    return false;
}

static void sheet_hosts(const mst_report *self, mst_sheet *out)
{
    *out =
        (mst_sheet){.title = "Resources of each host",
                    .key = "hosts",
                    .note = "In and out: all network interfaces except loopback. Training excludes the time "
                            "of evaluations."};
    sheet_add_load_columns(out, true);
    for (size_t i = 0; i < self->n; i++)
        for (size_t p = 0; p < self->runs[i]->n_processes; p++) {
            const mst_process_data *process = self->runs[i]->processes[p];
            if (process->resources.n_rows > 0 && !host_is_seen(self->runs[i], p))
                sheet_add_both(self, out, i, process, process->host[0] != '\0' ? process->host : "host",
                               MST_LOAD_HOST_CPU);
        }
}

#define UNKNOWN_HOST    "unknown host"
#define TRAFFIC_COLUMNS 4 /* of the table, besides those of hosts */

/* The hosts of all runs that have a column. */
typedef struct traffic_hosts {
    const char *names[MST_SHEET_COLUMNS - TRAFFIC_COLUMNS];
    size_t n;
} traffic_hosts;

/* The column of a host; n: it has none. */
static size_t traffic_column(const traffic_hosts *self, const char *host)
{
    size_t k = 0;
    while (k < self->n && strcmp(self->names[k], host) != 0)
        k++;
    return k;
}

static void sheet_add_traffic(const mst_report *self, mst_sheet *out, size_t run, const traffic_hosts *hosts,
                              const mst_host_traffic *t)
{
    for (size_t from = 0; from < t->n_hosts; from++) {
        double to[MST_SHEET_COLUMNS] = {0}, others = 0; /* to[hosts->n]: to hosts without a column */
        for (size_t h = 0; h < t->n_hosts; h++) {
            double bytes = h != from ? t->bytes[from * t->n_hosts + h] : 0;
            to[traffic_column(hosts, t->hosts[h])] += bytes;
            others += bytes;
        }
        size_t own = traffic_column(hosts, t->hosts[from]);
        mst_sheet_name_row(self, out, run, t->hosts[from][0] != '\0' ? t->hosts[from] : UNKNOWN_HOST);
        for (size_t k = 0; k < hosts->n; k++)
            mst_sheet_bytes(out, k != own ? to[k] : NAN);
        mst_sheet_bytes(out, to[hosts->n] > 0 ? to[hosts->n] : NAN);
        mst_sheet_bytes(out, others);
        mst_sheet_bytes(out, t->bytes[from * t->n_hosts + from]);
    }
}

static void sheet_traffic(const mst_report *self, mst_sheet *out)
{
    *out =
        (mst_sheet){.title = "Bytes between hosts",
                    .key = "traffic",
                    .note = "Messages of training, evaluation and saving from the host of the row to that of "
                            "the column. Bytes between processes of the same host do not use the network."};
    traffic_hosts hosts = {.n = 0};
    mst_host_traffic *all = mst_calloc(self->n, sizeof *all);
    out->failed = all == NULL;
    for (size_t i = 0; i < self->n && !out->failed; i++) {
        out->failed = mst_host_traffic_of(self->runs[i], &all[i]) != MST_OK;
        for (size_t h = 0; h < all[i].n_hosts; h++)
            if (traffic_column(&hosts, all[i].hosts[h]) == hosts.n &&
                hosts.n < MST_SHEET_COLUMNS - TRAFFIC_COLUMNS)
                hosts.names[hosts.n++] = all[i].hosts[h];
    }
    mst_sheet_column_add(out, self->n > 1 ? "run and host" : "host", "host", false);
    for (size_t k = 0; k < hosts.n; k++) {
        const char *name = hosts.names[k][0] != '\0' ? hosts.names[k] : UNKNOWN_HOST;
        mst_sheet_column_add(out, name, name, true);
    }
    mst_sheet_column_add(out, "further hosts", "further_hosts", true);
    mst_sheet_column_add(out, "all other hosts", "other_hosts", true);
    mst_sheet_column_add(out, "same host", "same_host", true);
    for (size_t i = 0; i < self->n && all != NULL; i++) {
        if (!out->failed)
            sheet_add_traffic(self, out, i, &hosts, &all[i]);
        mst_host_traffic_fini(&all[i]);
    }
    mst_free(all);
}

static void sheet_processes(const mst_report *self, mst_sheet *out)
{
    *out =
        (mst_sheet){.title = "Resources of each process",
                    .key = "processes",
                    .note = "In and out: messages of training. Training excludes the time of evaluations."};
    sheet_add_load_columns(out, false);
    for (size_t i = 0; i < self->n; i++)
        for (size_t p = 0; p < self->runs[i]->n_processes; p++) {
            const mst_process_data *process = self->runs[i]->processes[p];
            if (process->resources.n_rows > 0)
                sheet_add_both(self, out, i, process, process->name, MST_LOAD_CPU);
        }
}

/* ---- options ---- */

static bool options_are_alike(const mst_report *self, const char *title, const char *name)
{
    const json_t *first = NULL;
    for (size_t i = 0; i < self->n; i++) {
        const json_t *options = json_object_get(self->runs[i]->manifest, "options");
        const json_t *value = json_object_get(json_object_get(options, title), name);
        if (i > 0 && !json_equal((json_t *)first, (json_t *)value) && !(first == NULL && value == NULL))
            return false;
        first = value;
    }
    return true;
}

/* A report of one run leaves out options that are not set. */
static bool sheet_option_is_unset(const json_t *value, bool several)
{
    bool empty = json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0);
    return !several && empty;
}

/* Each piece of runs that were resumed, with its changes. */
static void sheet_history(const mst_report *self, mst_sheet *out)
{
    *out =
        (mst_sheet){.title = "History",
                    .key = "history",
                    .note = "One line for each start or resume. Changed options have their values before and "
                            "after."};
    mst_sheet_column_add(out, "piece", "piece", false);
    mst_sheet_column_add(out, "from step", "from_step", true);
    mst_sheet_column_add(out, "to step", "to_step", true);
    mst_sheet_column_add(out, "rows", "rows", true);
    mst_sheet_column_add(out, "training", "train_s", true);
    mst_sheet_column_add(out, "started", "started", false);
    mst_sheet_column_add(out, "host", "host", false);
    mst_sheet_column_add(out, "changed", "changed", false);
    mst_sheet_column_add(out, "ended", "ended", false);
    for (size_t i = 0; i < self->n; i++) {
        const mst_history *h = &self->histories[i];
        for (size_t k = 0; h->n > 1 && k < h->n; k++) {
            const mst_segment *s = &h->segments[k];
            mst_string changes = {0};
            char number[24];
            snprintf(number, sizeof number, "%zu", k + 1);
            mst_segment_changes(s, &changes);
            out->failed = out->failed || changes.failed;
            mst_sheet_name_row(self, out, i, number);
            mst_sheet_count(out, s->step + 1);
            mst_sheet_count(out, s->to_step);
            mst_sheet_count(out, s->to_rows - s->rows);
            mst_sheet_seconds(out, s->to_train_s - s->train_s);
            mst_sheet_text(out, s->started);
            mst_sheet_text(out, s->host);
            mst_sheet_text(out, changes.text != NULL      ? changes.text
                                : k == 0 && h->unrecorded ? "resumed before; not recorded"
                                                          : "");
            mst_sheet_text(out, s->end);
            mst_string_fini(&changes);
        }
    }
}

/* Each time that a run, or one server of it, lost steps. */
static void sheet_losses(const mst_report *self, mst_sheet *out)
{
    *out = (mst_sheet){.title = "Losses",
                       .key = "losses",
                       .note = "Steps after the checkpoint that the run continued from were trained again; "
                               "those of a single server are lost in its weights."};
    mst_sheet_column_add(out, "time", "time", false);
    mst_sheet_column_add(out, "reason", "why", false);
    mst_sheet_column_add(out, "of", "of", false);
    mst_sheet_column_add(out, "back to step", "step", true);
    mst_sheet_column_add(out, "steps lost", "steps", true);
    mst_sheet_column_add(out, "rows lost", "rows", true);
    mst_sheet_column_add(out, "training lost", "train_s", true);
    mst_sheet_column_add(out, "recovery", "recovery_s", true);
    for (size_t i = 0; i < self->n; i++) {
        const json_t *loss;
        size_t k;
        json_array_foreach(json_object_get(self->runs[i]->manifest, "losses"), k, loss)
        {
            const char *time = json_string_value(json_object_get(loss, "time")),
                       *why = json_string_value(json_object_get(loss, "why"));
            const json_t *server = json_object_get(loss, "server");
            char of[32] = "the run";
            if (server != NULL)
                snprintf(of, sizeof of, "server %lld", (long long)json_integer_value(server));
            mst_sheet_name_row(self, out, i, time != NULL ? time : "");
            mst_sheet_text(out, why != NULL ? why : "the run was cut off");
            mst_sheet_text(out, of);
            mst_sheet_count(out, mst_json_real(loss, "step"));
            mst_sheet_count(out, mst_json_real(loss, "steps"));
            mst_sheet_count(out, mst_json_real(loss, "rows"));
            mst_sheet_seconds(out, mst_json_real(loss, "train_seconds"));
            mst_sheet_seconds(out, mst_json_real(loss, "recovery_seconds"));
        }
    }
}

/* One run: options that differ from their defaults. Several: options that differ between runs, one line for
 * each run and option. */
static void sheet_options(const mst_report *self, mst_sheet *out)
{
    *out = (mst_sheet){.title = self->n > 1 ? "Options that differ" : "Options", .key = "options"};
    mst_sheet_column_add(out, "option", "option", false);
    mst_sheet_column_add(out, "value", "value", false);
    for (size_t i = 0; i < self->n; i++) {
        const char *title, *name;
        json_t *group, *value, *options = json_object_get(self->runs[i]->manifest, "options");
        json_object_foreach(options, title, group)
        {
            json_object_foreach(group, name, value)
            {
                json_t *usual = json_object_get(json_object_get(self->defaults, title), name);
                if (mst_train_option_is(name, MST_OPTION_NOT_COMPARED) ||
                    sheet_option_is_unset(value, self->n > 1) ||
                    (self->n > 1 ? options_are_alike(self, title, name) : json_equal(value, usual)))
                    continue;
                char *flag = mst_sprintf("--%s", name);
                char *text =
                    json_is_null(value) || json_is_object(value) ? mst_strdup("") : mst_option_text(value);
                out->failed = out->failed || flag == NULL || text == NULL;
                if (flag != NULL && text != NULL) {
                    mst_sheet_name_row(self, out, i, flag);
                    mst_sheet_text(out, text);
                }
                mst_free(flag);
                mst_free(text);
            }
        }
    }
}

mst_status mst_report_make_sheets(mst_report *self)
{
    static void (*const makers[MST_REPORT_SHEETS])(const mst_report *self, mst_sheet *out) = {
        [MST_SHEET_OVERVIEW] = sheet_overview,
        [MST_SHEET_HISTORY] = sheet_history,
        [MST_SHEET_LOSSES] = sheet_losses,
        [MST_SHEET_ACCURACY] = mst_sheet_accuracy,
        [MST_SHEET_CALIBRATION] = mst_sheet_calibration,
        [MST_SHEET_VERDICT] = sheet_verdict,
        [MST_SHEET_ADVICE] = sheet_advice,
        [MST_SHEET_EVIDENCE] = sheet_evidence,
        [MST_SHEET_COST] = sheet_cost,
        [MST_SHEET_PHASES] = sheet_phases,
        [MST_SHEET_WORKERS] = sheet_workers,
        [MST_SHEET_HOSTS] = sheet_hosts,
        [MST_SHEET_PROCESSES] = sheet_processes,
        [MST_SHEET_TRAFFIC] = sheet_traffic,
        [MST_SHEET_OPTIONS] = sheet_options,
    };
    for (int i = 0; i < MST_REPORT_SHEETS; i++) {
        makers[i](self, &self->sheets[i]);
        if (self->sheets[i].failed)
            return mst_fail_memory();
    }
    return MST_OK;
}
