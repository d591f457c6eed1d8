/* Shared by the files of a sweep's report. */
#ifndef MST_SWEEP_SWEEP_REPORT_IMPL_H
#define MST_SWEEP_SWEEP_REPORT_IMPL_H

#include "base/figure.h"
#include "report/figures.h"
#include "report/page.h"
#include "report/sheet.h"
#include "report/verdict.h"
#include "sweep/halving.h"
#include "sweep/sweep_report.h"

/* X(name, title, key, unit): figures of a run. */
#define MST_SWEEP_FIGURES_MAP(X)                                                                             \
    X(ITERATIONS, "iterations", "iterations", COUNT)                                                         \
    X(TIME, "training time", "train_s", SECONDS)                                                             \
    X(TARGET, "time to target", "target_s", SECONDS)                                                         \
    X(TOTAL, "with evaluation and saving", "total_s", SECONDS)                                               \
    X(ROWS, "rows", "rows", COUNT)                                                                           \
    X(SPEED, "rows/s", "rows_per_s", COUNT)                                                                  \
    X(ACCURACY, "accuracy", "accuracy", SHARE)                                                               \
    X(LOSS, "loss", "loss", PLAIN)                                                                           \
    X(AUC, "AUC", "auc", PLAIN)                                                                              \
    X(METRIC, "metric", "metric", PLAIN)                                                                     \
    X(CPU, "CPU cores in use", "cpu_cores", PLAIN)                                                           \
    X(CPU_TIME, "CPU time", "cpu_s", SECONDS)                                                                \
    X(MEMORY, "memory, largest process", "memory", BYTES)                                                    \
    X(MEMORY_ALL, "memory, all processes", "memory_all", BYTES)                                              \
    X(HOST_CPU, "CPU cores of a host, peak", "host_cpu_peak", PLAIN)                                         \
    X(HOST_MEMORY, "memory of a host, peak", "host_memory_peak", BYTES)                                      \
    X(TRAFFIC, "bytes between processes", "traffic", BYTES)                                                  \
    X(TRAFFIC_RATE, "network", "traffic_rate", RATE)                                                         \
    X(WAIT, "workers waiting", "wait_share", SHARE)                                                          \
    X(LEAST, "least work of a worker", "least_rows", COUNT)                                                  \
    X(MOST, "most work of a worker", "most_rows", COUNT)

typedef enum mst_sweep_figure {
#define X(name, title, key, unit) MST_SWEEP_##name,
    MST_SWEEP_FIGURES_MAP(X)
#undef X
        MST_SWEEP_FIGURES
} mst_sweep_figure;

typedef struct mst_sweep_figure_info {
    const char *title, *key;
    mst_figure_unit unit;
} mst_sweep_figure_info;
extern const mst_sweep_figure_info mst_sweep_figures[MST_SWEEP_FIGURES];

#define MST_SWEEP_WORKERS_MAX 64 /* whose work is listed separately */

typedef struct mst_sweep_run {
    bool known; /* the run is done and was read */
    double figures[MST_SWEEP_FIGURES];
    double work[MST_SWEEP_WORKERS_MAX]; /* rows of each worker */
    size_t n_workers;
    struct {
        double steps, rows, seconds, accuracy; /* seconds that it took part; its last training accuracy */
    } workers[MST_SWEEP_WORKERS_MAX];
    size_t n_counted; /* of workers */
    char bottleneck[24];
} mst_sweep_run;

typedef struct mst_stat {
    double mean, deviation, low, high; /* deviation: of the sample; NAN with less than two */
    size_t n;
} mst_stat;

/* Cells that differ in their seed only. */
typedef struct mst_sweep_config {
    size_t first; /* its first cell */
    size_t n, n_known, n_failed, n_reached;
    mst_stat stats[MST_SWEEP_FIGURES];
    double work[MST_SWEEP_WORKERS_MAX];
    size_t n_workers;
    const char *bottleneck; /* the most frequent; "" when not known */
} mst_sweep_config;

/* The tables, in the order of Markdown and JSON. */
typedef enum mst_sweep_sheet {
    MST_SWEEP_SHEET_RESULTS,
    MST_SWEEP_SHEET_RESOURCES,
    MST_SWEEP_SHEET_WORKLOAD,
    MST_SWEEP_SHEET_WORKERS,
    MST_SWEEP_SHEET_SEARCH,
    MST_SWEEP_SHEET_PROBLEMS,
    MST_SWEEP_SHEET_LEFT_OUT,
    MST_SWEEP_SHEETS
} mst_sweep_sheet;

struct mst_sweep_report {
    const mst_sweep *sweep;
    mst_sweep_run *runs; /* of the sweep's cells */
    mst_sweep_config *configs;
    size_t n_configs;
    const char *axes[16]; /* that vary, but for the seed */
    size_t n_axes;
    bool has_target;
    bool metric_given;       /* the file has metric: */
    const char *metric_name; /* decides which is best: metric: of the file, else time to target or loss */
    mst_sweep_metric metric; /* MST_SWEEP_METRIC is its value */
    unsigned jobs;           /* the most runs that ran at the same time */
    mst_sheet sheets[MST_SWEEP_SHEETS];
};

/* The value of a configuration on an axis; "" if the axis does not apply to it. */
const char *mst_sweep_label(const mst_sweep_report *self, const mst_sweep_config *config, const char *axis);
/* An option of a configuration as a number; the default of a training where it is not set. NAN: none. */
double mst_sweep_option(const mst_sweep_report *self, const mst_sweep_config *config, const char *option);

/* The command "muster ...", quoted for a shell. */
void mst_sweep_command(const mst_sweep_cell *cell, mst_string *out);

/* The best by a figure, low or high, among those with at least one run (of all: TARGET); n_configs: none. */
size_t mst_sweep_best(const mst_sweep_report *self, mst_sweep_figure figure, bool high);

mst_figure_unit mst_sweep_metric_unit(const mst_sweep_report *self);

/* The best by the metric, or the result of a search. n_configs: none. */
size_t mst_sweep_winner(const mst_sweep_report *self);

/* One of the best configurations, and the sentence about it. */
typedef struct mst_sweep_choice {
    size_t config; /* n_configs: there is none */
    char sentence[640];
} mst_sweep_choice;
#define MST_SWEEP_CHOICES 3 /* the shortest time to the target, the best by the metric, the most rows/s */
void mst_sweep_choices(const mst_sweep_report *self, mst_sweep_choice out[MST_SWEEP_CHOICES]);

/* A sentence: the number of configurations and runs, and how long a run is. */
void mst_sweep_counts(const mst_sweep_report *self, mst_string *out);

/* Makes the sheets of a report whose other fields are set (sweep_tables.c). */
mst_status mst_sweep_make_sheets(mst_sweep_report *self);

#endif
