/* Figures of a run that was read: resources of its hosts and processes, their time by phase, its results.
 *
 * A figure that the files do not have is NAN. The only failure is MST_ENOMEM. */
#ifndef MST_REPORT_FIGURES_H
#define MST_REPORT_FIGURES_H

#include <math.h>

#include "report/run_read.h"

static inline double mst_or_zero(double x)
{
    return isnan(x) ? 0 : x;
}

/* ---- resources ---- */

/* Measured of the host first, then of the process; then of the host what its tables have besides. */
typedef enum mst_load_kind {
    MST_LOAD_HOST_CPU,
    MST_LOAD_HOST_MEMORY,
    MST_LOAD_HOST_NET_IN,
    MST_LOAD_HOST_NET_OUT,
    MST_LOAD_HOST_DISK_READ,
    MST_LOAD_HOST_DISK_WRITE,
    MST_LOAD_CPU,
    MST_LOAD_MEMORY,
    MST_LOAD_MESSAGES_IN,
    MST_LOAD_MESSAGES_OUT,
    MST_LOAD_DISK_READ,
    MST_LOAD_DISK_WRITE,
    MST_LOAD_HOST_IDLE, /* cores */
    MST_LOAD_HOST_FREE, /* memory */
    MST_LOADS
} mst_load_kind;

/* CPU: cores, and seconds in total; memory: bytes, no total; the rest: bytes/s, and bytes in total. */
typedef struct mst_load {
    double mean, peak, total;
} mst_load;

typedef struct mst_loads {
    mst_load all[MST_LOADS], training[MST_LOADS]; /* training: without the time of evaluations */
    double seconds, training_seconds;
} mst_loads;

/* Only lines whose interval ends within (from, to] count; NAN: no such limit. */
mst_status mst_loads_of(const mst_run_data *run, const mst_process_data *process, double from, double to,
                        mst_loads *out);

/* Points of a curve; fini frees. y may be NAN: a gap. */
typedef struct mst_points {
    double *x, *y;
    size_t n;
} mst_points;
void mst_points_fini(mst_points *self);
mst_status mst_points_new(size_t n, mst_points *out);

/* x: seconds since the run began; y in the unit of the mean. A gap lies where no line covers half a second or
 * more: the process did not run, or its lines were lost. Empty if the files have no such samples. */
mst_status mst_load_points(const mst_run_data *run, const mst_process_data *process, mst_load_kind kind,
                           mst_points *out);

/* ---- time ---- */

/* X(name, column of spans.csv, title, colour: that of the cause it belongs to, if there is one). */
#define MST_COST_MAP(X)                                                                                      \
    X(READ, "read_s", "waiting for rows", 4)                                                                 \
    X(PREPARE, "prepare_s", "preparing rows", 5)                                                             \
    X(COMPUTE, "compute_s", "computing", 0)                                                                  \
    X(PULL_WAIT, "pull_wait_s", "waiting for weights", 1)                                                    \
    X(BARRIER_WAIT, "barrier_wait_s", "waiting for others", 7)                                               \
    X(PUSH, "push_s", "sending", 2)                                                                          \
    X(APPLY, "apply_s", "applying", 6)                                                                       \
    X(SERVE, "serve_s", "serving", 3)                                                                        \
    X(EVALUATE, "evaluate_s", "evaluating", 8)                                                               \
    X(CHECKPOINT, "checkpoint_s", "saving", 9)                                                               \
    X(IDLE, "idle_s", "idle", 10)

typedef enum mst_cost_kind {
#define X(name, column, title, colour) MST_COST_##name,
    MST_COST_MAP(X)
#undef X
        MST_COSTS
} mst_cost_kind;

typedef struct mst_cost_info {
    const char *column, *title;
    unsigned colour;
} mst_cost_info;
extern const mst_cost_info mst_cost_kinds[MST_COSTS];

typedef struct mst_costs {
    double seconds, thread_seconds; /* of the lines that count; of all threads together */
    double phase[MST_COSTS];        /* thread seconds */
    double evaluate_beside;         /* evaluation by another thread, while these wait or train */
    double steps, rows, bytes_in, bytes_out, dropped_rows;
    double staleness_mean, staleness_max; /* NAN: none */
} mst_costs;
void mst_costs_of(const mst_process_data *process, double from, double to, mst_costs *out);
/* Those of an entry of "workers" in the manifest, as far as it has them, over so many seconds. */
mst_costs mst_costs_of_worker(const json_t *worker, double seconds);

/* From the beginning of the first interval in which a training process ended a step to the end of the last
 * one; false if spans.csv has none. */
bool mst_training_window(const mst_run_data *run, double *from, double *to);
/* The same without the first interval if a process trained in a part of it only, so that every second of the
 * window has steps; if `least` seconds remain. */
bool mst_whole_window(const mst_run_data *run, double least, double *from, double *to);

/* ---- the run as a whole ---- */

typedef struct mst_run_figures {
    const char *state, *end, *model, *strategy, *mode; /* "" when not known; live with the manifest */
    double steps, rows, epochs;                        /* epochs: whole ones */
    double passes;                  /* over the data, with the part of the last one; NAN: not known */
    double train_s, eval_s, save_s; /* wall time; they do not overlap */
    double rows_per_s, steps_per_s; /* of training time */
    double n_workers, n_servers, n_threads, batch;
    double threads_most; /* more synchronous threads are slower; infinite: not known */
    /* of the last evaluation of the test set, or valid; the loss may be infinite */
    double train_loss, train_accuracy; /* of the last line of metrics.csv */
    double test_loss, test_accuracy, test_auc, test_top5;
    double test_grouped_auc, test_calibration, test_normalised_entropy;
    double progressive_loss;                   /* of the first pass over the data */
    bool loss_is_nan;                          /* the file has nan: training diverged */
    double best_loss, best_accuracy, best_auc; /* over all of them that are finite */
    double best_accuracy_s;                    /* training seconds at that */
    const char *set;                           /* "test", "valid", or "": nothing was evaluated */
    double peak_memory;                        /* of the process that used most; NAN: not known */
    double cpu_s;                              /* of all processes */
} mst_run_figures;
mst_status mst_run_figures_of(const mst_run_data *run, mst_run_figures *out);

/* Seconds of training for the rate of that process, comparable with the run's: those of the run, or fewer if
 * the process existed for less. costs: all of the process's. */
double mst_process_train_s(const mst_run_data *run, const mst_run_figures *figures,
                           const mst_process_data *process, const mst_costs *costs);

/* Whether "workers" of the manifest has all steps of the run. */
bool mst_workers_counted(const mst_run_data *run);

/* Replaces steps, rows and bytes by those of the process in the manifest of a run that is over, if it has
 * them from the beginning: the spans.csv of a killed process lacks the time after its last report. costs: all
 * of the process's. */
void mst_costs_count(const mst_run_data *run, const mst_process_data *process, mst_costs *costs);

/* Seconds since the run began at which that process was lost for good; NAN: it was not. */
double mst_process_lost(const mst_run_data *run, const char *process);

/* Losses of a run, over all its starts ("losses" and "lost_processes" of the manifest). */
typedef struct mst_loss_figures {
    double n, from_start; /* times that the run continued after a loss; of these: from its beginning */
    double steps, rows;   /* of these losses: trained again */
    double train_s;       /* that these had taken */
    double shares;        /* times that a single server returned to a checkpoint */
    double share_steps, share_rows; /* lost in its weights */
    double recovery_s;              /* from a loss to the first step after it */
    double processes;               /* lost processes, with those that joined again */
    double share;                   /* of the wall time: recoveries, and training that was repeated */
} mst_loss_figures;
mst_loss_figures mst_losses_of(const mst_run_data *run, const mst_run_figures *figures);

/* The x axes of curves. */
typedef enum mst_axis { MST_AXIS_TIME, MST_AXIS_STEPS, MST_AXIS_ROWS, MST_AXES } mst_axis;

/* A column of learning.csv ("loss", "accuracy"): x: seconds since the run began, or the process's own steps
 * or rows over all its starts. Empty: the process has none. */
mst_status mst_learning_points(const mst_run_data *run, const mst_process_data *process, const char *column,
                               mst_axis axis, mst_points *out);

/* A column of metrics.csv ("loss", "accuracy", "error": 1 - accuracy, "train_loss", "lr") over an axis; set:
 * of that set's evaluations only, or "": of every line. Time is training time. */
mst_status mst_curve(const mst_run_data *run, const char *column, const char *set, mst_axis axis,
                     mst_points *out);
/* The column at the set's last evaluation (set "": on the last line), even if it is not finite; NAN: no
 * number. */
double mst_run_last(const mst_run_data *run, const char *column, const char *set);
/* Whether the run has an evaluation of that set. */
bool mst_run_has_set(const mst_run_data *run, const char *set);

#endif
