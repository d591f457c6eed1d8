/* A run's directory: runs/NAME/ with manifest.json, metrics.csv and checkpoints/.
 *
 * Whatever shows something to people reads only these files. An existing directory is refused unless the run
 * resumes it or is told to overwrite it; only what muster made (a folder with its manifest.json) is ever
 * removed. */
#ifndef MST_OBSERVE_RUN_H
#define MST_OBSERVE_RUN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum mst_run_open {
    MST_RUN_NEW,       /* refuse an existing one: MST_EEXIST */
    MST_RUN_OVERWRITE, /* remove an existing one first */
    MST_RUN_RESUME,    /* continue: metrics.csv is cut back to the resumed step and appended to */
} mst_run_open;

/* One line of metrics.csv. NAN: the column is empty. */
typedef struct mst_metrics {
    uint64_t step, rows, epoch;
    double train_seconds, eval_seconds; /* so far, apart from each other */
    double lr, train_loss;              /* loss: since the last evaluation */
    const char *set;                    /* "", or which set was evaluated: "test", "valid" */
    double loss, accuracy, auc;
} mst_metrics;

typedef struct mst_run mst_run;

mst_status mst_run_new(const char *path, mst_run_open how, uint64_t resume_step, mst_run **out);
void mst_run_destroy(mst_run *self); /* NULL-safe */

/* Replaces manifest.json atomically. */
mst_status mst_run_manifest(mst_run *self, const json_t *manifest);

/* Appends a line and flushes it, so that a killed run keeps what it measured. */
mst_status mst_run_metrics(mst_run *self, const mst_metrics *metrics);

const char *mst_run_path(const mst_run *self);

/* A free directory name: runs/NAME-1, runs/NAME-2, ... The caller frees. */
char *mst_run_free_name(const char *folder, const char *stem);

#endif
