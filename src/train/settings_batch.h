/* The global batch of a resumed run: kept when the number of workers changes. Private to settings.c. */
#ifndef MST_TRAIN_SETTINGS_BATCH_H
#define MST_TRAIN_SETTINGS_BATCH_H

#include "train/settings.h"

/* The batch sizes of a resumed run; zeroed: no run is resumed. */
typedef struct mst_batch_before {
    json_int_t workers, batch, global_batch;
    bool sync;
    bool given, lr_given; /* the command gives --batch or --global-batch, --lr or --lr-scale */
} mst_batch_before;

/* Call it before the options of the manifest are adopted. */
mst_batch_before mst_batch_before_of(const mst_settings *settings, const json_t *manifest);

/* After the workers are counted: sets --global-batch, and --lr where --lr-scale would change the rate, so
 * that synchronous steps stay the same. */
mst_status mst_batch_keep(const mst_batch_before *before, mst_settings *settings);
/* When the strategy is resolved: logs changes of workers and batches. */
void mst_batch_report(const mst_batch_before *before, const mst_settings *settings);

#endif
