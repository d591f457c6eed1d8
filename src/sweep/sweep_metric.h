/* The metric of a sweep: a figure of a run, and whether high or low is good (metric: of the file). */
#ifndef MST_SWEEP_SWEEP_METRIC_H
#define MST_SWEEP_SWEEP_METRIC_H

#include <stdbool.h>

#define MST_METRIC_DEFAULT "loss"
#define MST_METRIC_NAMES                                                                                     \
    "loss, accuracy, auc, grouped_auc, normalised_entropy, top5 (of the test set, else of the validation "   \
    "set), the same with test_ or valid_ before them, train_loss, train_accuracy, rows_per_s, train_s, "     \
    "target_s, total_s, cpu_s, "                                                                             \
    "memory, memory_all, traffic"

typedef struct mst_sweep_metric {
    char set[8];        /* "test", "valid", or "" */
    const char *column; /* of metrics.csv where it is evaluated, else the key of a figure; a constant text */
    bool evaluated, high_is_good;
    bool any_set; /* of the test set, else of the validation set */
} mst_sweep_metric;

/* False: no metric has that name. */
bool mst_sweep_metric_find(const char *name, mst_sweep_metric *out);

#endif
