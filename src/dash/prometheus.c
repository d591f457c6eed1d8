/* Prometheus' text format (prometheus.h).
 *
 * Design: the lines of a metric follow its HELP and TYPE, so each metric is a function of a run or process
 * and a row in a table. Unknown values have no line, and a metric without lines has no head. Labels are the
 * name of the run as on the page, and the process, its role and its host. */
#include "dash/prometheus.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"

/* ---- labels ---- */

static void prometheus_add_label(mst_string *out, const char *name, const char *value)
{
    char *clean = mst_utf8_clean(value);
    mst_string_format(out, "%s=\"", name);
    for (const char *p = clean; p != NULL && *p != '\0'; p++) {
        if (*p == '"' || *p == '\\')
            mst_string_add(out, "\\");
        mst_string_addn(out, p, 1);
    }
    mst_string_add(out, "\"");
    out->failed = out->failed || clean == NULL;
    mst_free(clean);
}

/* Collects the lines of a metric; the first one writes its head. */
typedef struct metric {
    mst_string *out;
    const char *name, *type, *help;
    bool begun;
} metric;

static void prometheus_add_value(mst_string *out, double value)
{
    if (isfinite(value))
        mst_string_format(out, "} %.10g\n", value);
    else
        mst_string_add(out, isnan(value) ? "} NaN\n" : value > 0 ? "} +Inf\n" : "} -Inf\n");
}

/* Whatever the value is. */
static void prometheus_add_any(metric *m, const mst_board_run *run, const mst_process_view *process,
                               const char *key, const char *value_of_key, double value)
{
    if (!m->begun)
        mst_string_format(m->out, "# HELP %s %s\n# TYPE %s %s\n", m->name, m->help, m->name, m->type);
    m->begun = true;
    mst_string_format(m->out, "%s{", m->name);
    prometheus_add_label(m->out, "run", run->label);
    if (process != NULL) {
        mst_string_add(m->out, ",");
        prometheus_add_label(m->out, "process", process->process->name);
        mst_string_add(m->out, ",");
        prometheus_add_label(m->out, "role", mst_process_role_name(process->process->role));
        mst_string_add(m->out, ",");
        prometheus_add_label(m->out, "host", process->process->host);
    }
    if (key != NULL) {
        mst_string_add(m->out, ",");
        prometheus_add_label(m->out, key, value_of_key);
    }
    prometheus_add_value(m->out, value);
}

static void prometheus_add_sample(metric *m, const mst_board_run *run, const mst_process_view *process,
                                  const char *key, const char *value_of_key, double value)
{
    if (isfinite(value))
        prometheus_add_any(m, run, process, key, value_of_key, value);
}

/* ---- runs ---- */

#define RECENT(what) what ", recently; once the run is over, of its training time without evaluations."

typedef double run_fn(const mst_run_view *v);

#define OF_RUN(name, expression)                                                                             \
    static double run_##name(const mst_run_view *v)                                                          \
    {                                                                                                        \
        return expression;                                                                                   \
    }
OF_RUN(steps, v->figures.steps)
OF_RUN(rows, v->figures.rows)
OF_RUN(epochs, v->figures.epochs)
OF_RUN(train, v->figures.train_s)
OF_RUN(eval, v->figures.eval_s)
OF_RUN(rate, v->rows_per_s)
OF_RUN(waits, v->waits)
OF_RUN(train_loss, v->train_loss)
OF_RUN(lr, v->lr)
OF_RUN(progress, v->share_done)
OF_RUN(begin, v->begin)
OF_RUN(workers, v->figures.n_workers)
OF_RUN(servers, v->figures.n_servers)
OF_RUN(live, v->life == MST_LIFE_LIVE)

static const struct {
    const char *name, *type, *help;
    run_fn *fn;
} run_metrics[] = {
    {"muster_run_live", "gauge", "1 while the run trains, 0 when it is over or silent.", run_live},
    {"muster_run_steps_total", "counter", "Steps of training.", run_steps},
    {"muster_run_rows_total", "counter", "Rows trained on.", run_rows},
    {"muster_run_epochs", "gauge", "Passes over the data.", run_epochs},
    {"muster_run_training_seconds_total", "counter", "Time of training, without evaluations.", run_train},
    {"muster_run_evaluation_seconds_total", "counter", "Time of evaluations.", run_eval},
    {"muster_run_rows_per_second", "gauge", RECENT("Rows per second of all workers"), run_rate},
    {"muster_run_wait_ratio", "gauge", "Share of the workers' time spent waiting, recently.", run_waits},
    {"muster_run_progress_ratio", "gauge", "Share of the run that is done, by its first limit.",
     run_progress},
    {"muster_run_training_loss", "gauge", "Newest training loss.", run_train_loss},
    {"muster_run_learning_rate", "gauge", "Newest learning rate.", run_lr},
    {"muster_run_start_time_seconds", "gauge", "Start of the run, in seconds since 1970.", run_begin},
    {"muster_run_workers", "gauge", "Workers of the run.", run_workers},
    {"muster_run_servers", "gauge", "Servers of the run.", run_servers},
};

static void prometheus_add_runs(const mst_board *board, mst_string *out)
{
    for (size_t k = 0; k < sizeof run_metrics / sizeof *run_metrics; k++) {
        metric m = {out, run_metrics[k].name, run_metrics[k].type, run_metrics[k].help, false};
        for (size_t i = 0; i < board->n; i++) {
            const mst_run_view *v = &board->runs[i]->view;
            if (run_metrics[k].fn == run_train_loss && mst_odd_loss(v->train_loss, v->train_loss_is_nan))
                prometheus_add_any(&m, board->runs[i], NULL, NULL, NULL, v->train_loss);
            else
                prometheus_add_sample(&m, board->runs[i], NULL, NULL, NULL, run_metrics[k].fn(v));
        }
    }
    metric m = {out, "muster_run_state", "gauge", "1 for the state that the run is in.", false};
    for (size_t i = 0; i < board->n; i++)
        for (int k = 0; k < MST_LIVES; k++)
            if (k != MST_LIFE_DEAD)
                prometheus_add_sample(&m, board->runs[i], NULL, "state", mst_life_name((mst_life)k),
                                      board->runs[i]->view.life == (mst_life)k);
}

static void prometheus_add_quality(const mst_board *board, mst_string *out)
{
    static const char *const names[] = {"muster_run_loss",
                                        "muster_run_accuracy",
                                        "muster_run_auc",
                                        "muster_run_top5_accuracy",
                                        "muster_run_grouped_auc",
                                        "muster_run_normalised_entropy",
                                        "muster_run_calibration_ratio"};
    static const char *const helps[] = {"Loss of the last evaluation.",
                                        "Accuracy of the last evaluation.",
                                        "Area under the ROC curve of the last evaluation.",
                                        "Top-5 accuracy of the last evaluation.",
                                        "Grouped AUC of the last evaluation.",
                                        "Loss over the entropy of the base rate in the last evaluation.",
                                        "Mean predicted over mean observed in the last evaluation."};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        metric m = {out, names[k], "gauge", helps[k], false};
        for (size_t i = 0; i < board->n; i++) {
            const mst_run_figures *f = &board->runs[i]->view.figures;
            double values[] = {f->test_loss,       f->test_accuracy,    f->test_auc,
                               f->test_top5,       f->test_grouped_auc, f->test_normalised_entropy,
                               f->test_calibration};
            if (k == 0 && (isinf(f->test_loss) || f->loss_is_nan))
                prometheus_add_any(&m, board->runs[i], NULL, "set", f->set, f->test_loss);
            else
                prometheus_add_sample(&m, board->runs[i], NULL, "set", f->set, values[k]);
        }
    }
}

static void prometheus_add_verdicts(const mst_board *board, mst_string *out)
{
    metric kind = {out, "muster_run_bottleneck", "gauge", "1 for what limits the run, so far.", false};
    for (size_t i = 0; i < board->n; i++) {
        const mst_verdict *v = &board->runs[i]->view.verdict;
        if (board->runs[i]->view.has_verdict && v->known)
            prometheus_add_sample(&kind, board->runs[i], NULL, "bottleneck", mst_bottleneck_name(v->kind), 1);
    }
    metric share = {out, "muster_run_time_ratio", "gauge", "Shares of a typical worker's time, so far.",
                    false};
    for (size_t i = 0; i < board->n; i++) {
        const mst_verdict *v = &board->runs[i]->view.verdict;
        for (int k = 0; board->runs[i]->view.has_verdict && v->known && k < MST_BOTTLENECKS; k++)
            prometheus_add_sample(&share, board->runs[i], NULL, "part",
                                  mst_bottleneck_name((mst_bottleneck)k), v->shares[k]);
    }
}

/* ---- processes ---- */

typedef double process_fn(const mst_process_view *p);

#define OF_PROCESS(name, expression)                                                                         \
    static double process_##name(const mst_process_view *p)                                                  \
    {                                                                                                        \
        return expression;                                                                                   \
    }
OF_PROCESS(live, p->life == MST_LIFE_LIVE)
OF_PROCESS(cpu, p->all_use.all[MST_LOAD_CPU].total)
OF_PROCESS(memory, p->now_use.all[MST_LOAD_MEMORY].mean)
OF_PROCESS(disk_read, p->all_use.all[MST_LOAD_DISK_READ].total)
OF_PROCESS(disk_write, p->all_use.all[MST_LOAD_DISK_WRITE].total)
OF_PROCESS(host_cpu, p->all_use.all[MST_LOAD_HOST_CPU].total)
OF_PROCESS(host_memory, p->now_use.all[MST_LOAD_HOST_MEMORY].mean)
OF_PROCESS(host_in, p->all_use.all[MST_LOAD_HOST_NET_IN].total)
OF_PROCESS(host_out, p->all_use.all[MST_LOAD_HOST_NET_OUT].total)
OF_PROCESS(steps, p->total.seconds > 0 ? p->total.steps : NAN)
OF_PROCESS(rows, p->total.seconds > 0 ? p->total.rows : NAN)
OF_PROCESS(rate, p->rows_per_s)
OF_PROCESS(in, p->total.seconds > 0 ? p->total.bytes_in : NAN)
OF_PROCESS(sent, p->total.seconds > 0 ? p->total.bytes_out : NAN)
OF_PROCESS(dropped, p->total.seconds > 0 ? p->total.dropped_rows : NAN)
OF_PROCESS(stale, p->now.staleness_mean)

static const struct {
    const char *name, *type, *help;
    process_fn *fn;
} process_metrics[] = {
    {"muster_process_live", "gauge", "1 while the process works, 0 when it has ended or is silent.",
     process_live},
    {"muster_process_cpu_seconds_total", "counter", "Processor time of the process.", process_cpu},
    {"muster_process_resident_memory_bytes", "gauge", "Resident memory of the process.", process_memory},
    {"muster_process_disk_read_bytes_total", "counter", "Bytes that the process read from disks.",
     process_disk_read},
    {"muster_process_disk_written_bytes_total", "counter", "Bytes that the process wrote to disks.",
     process_disk_write},
    {"muster_process_steps_total", "counter", "Steps that the process has completed.", process_steps},
    {"muster_process_rows_total", "counter", "Rows that the process has trained on.", process_rows},
    {"muster_process_rows_per_second", "gauge", RECENT("Rows per second"), process_rate},
    {"muster_process_received_bytes_total", "counter", "Bytes of messages received.", process_in},
    {"muster_process_sent_bytes_total", "counter", "Bytes of messages sent.", process_sent},
    {"muster_process_dropped_rows_total", "counter", "Rows pushed too late and dropped.", process_dropped},
    {"muster_process_staleness_steps", "gauge", "Mean staleness of its gradients, recently.", process_stale},
    {"muster_host_cpu_seconds_total", "counter", "Processor time of the process's host, all programs.",
     process_host_cpu},
    {"muster_host_memory_used_bytes", "gauge", "Memory in use on the process's host.", process_host_memory},
    {"muster_host_received_bytes_total", "counter", "Bytes received on all interfaces except loopback.",
     process_host_in},
    {"muster_host_sent_bytes_total", "counter", "Bytes sent on all interfaces except loopback.",
     process_host_out},
};

static void prometheus_add_processes(const mst_board *board, mst_string *out)
{
    for (size_t k = 0; k < sizeof process_metrics / sizeof *process_metrics; k++) {
        metric m = {out, process_metrics[k].name, process_metrics[k].type, process_metrics[k].help, false};
        for (size_t i = 0; i < board->n; i++)
            for (size_t p = 0; p < board->runs[i]->view.n_processes; p++)
                prometheus_add_sample(&m, board->runs[i], &board->runs[i]->view.processes[p], NULL, NULL,
                                      process_metrics[k].fn(&board->runs[i]->view.processes[p]));
    }
    metric m = {out, "muster_process_phase_seconds_total", "counter",
                "Time of the process's threads by phase.", false};
    for (size_t i = 0; i < board->n; i++)
        for (size_t p = 0; p < board->runs[i]->view.n_processes; p++) {
            const mst_process_view *v = &board->runs[i]->view.processes[p];
            for (int k = 0; k < MST_COSTS && v->total.seconds > 0; k++) {
                char phase[32];
                const char *column = mst_cost_kinds[k].column;
                snprintf(phase, sizeof phase, "%.*s", (int)strlen(column) - 2, column); /* less its _s */
                prometheus_add_sample(&m, board->runs[i], v, "phase", phase, v->total.phase[k]);
            }
        }
}

void mst_prometheus_text(const mst_board *board, mst_string *out)
{
    prometheus_add_runs(board, out);
    prometheus_add_quality(board, out);
    prometheus_add_verdicts(board, out);
    prometheus_add_processes(board, out);
    mst_string_format(out,
                      "# HELP muster_dash_runs Runs that are shown.\n# TYPE muster_dash_runs gauge\n"
                      "muster_dash_runs %zu\n",
                      board->n);
}
