/* Types that strategies, the parameter server and the run log share: how updates are applied, how rows are
 * divided, how far a training has come, and what is due. */
#ifndef MST_STRATEGY_PROGRESS_H
#define MST_STRATEGY_PROGRESS_H

#include "model/model.h"

/* --mode. */
typedef enum mst_mode {
    MST_MODE_SYNC,
    MST_MODE_ASYNC,
    MST_MODE_SSP,
} mst_mode;

/* --shard. */
typedef enum mst_shard_kind {
    MST_SHARD_AUTO,
    MST_SHARD_STATIC,
    MST_SHARD_LOCAL,
} mst_shard_kind;

/* --recover. */
typedef enum mst_recover_kind {
    MST_RECOVER_AUTO,
    MST_RECOVER_ALL,
    MST_RECOVER_SHARE,
} mst_recover_kind;

/* The progress of a training. */
typedef struct mst_progress {
    uint64_t steps, rows;     /* over the whole training */
    uint64_t epoch, position; /* rows into the current epoch; asynchronous ps: of the first unfinished one */
    uint64_t epoch_rows;      /* 0: unknown */
    double seconds;           /* of training in this process */
    mst_loss_sum loss;        /* of the rows trained on since the last report, before their updates */
    bool epoch_ended;         /* the feed has no more rows in this epoch */
    const char *waiting; /* no step for a second: the workers that have not pushed, "worker 2"; or NULL */
} mst_progress;

typedef enum mst_due_bit {
    MST_DUE_EVAL = 1,
    MST_DUE_SAVE = 2,
    MST_DUE_END = 4,
} mst_due_bit;

#endif
