/* The training loss that a run reports: a mean over enough rows. An interval lasts from one evaluation to the
 * next. Its loss is the mean over its rows and, if it has fewer rows than MST_LOSS_ROWS or than half of the
 * previous interval, over earlier intervals too. So the rows depend only on the steps of the evaluations.
 *
 * Thread: one owner. Plain memory: zeros are an empty window. */
#ifndef MST_TRAIN_LOSS_WINDOW_H
#define MST_TRAIN_LOSS_WINDOW_H

#include <jansson.h>
#include <math.h>

#include "model/model.h"

#define MST_LOSS_ROWS   1000
#define MST_LOSS_PARTS  16 /* for earlier intervals, at least; small ones are merged */
#define MST_LOSS_NEWEST (MST_LOSS_PARTS + 2)

typedef struct mst_loss_window {
    mst_loss_sum parts[MST_LOSS_NEWEST]; /* oldest first */
    uint32_t n;
    uint64_t interval_rows; /* of the interval before */
} mst_loss_window;

/* The sum whose means an interval with this sum so far has. */
mst_loss_sum mst_loss_window_sum(const mst_loss_window *self, const mst_loss_sum *interval);

/* Ends the interval; one without rows does not count. */
void mst_loss_window_close(mst_loss_window *self, const mst_loss_sum *interval);

/* For checkpoints. New reference, or NULL without memory. restore: anything else leaves the window empty. */
json_t *mst_loss_window_json(const mst_loss_window *self);
void mst_loss_window_restore(mst_loss_window *self, const json_t *json);

static inline double mst_mean_loss(const mst_loss_sum *sum)
{
    return sum->weight > 0.0 ? sum->loss / sum->weight : (double)NAN;
}

/* Every row counts once. */
static inline double mst_mean_accuracy(const mst_loss_sum *sum)
{
    return sum->weight > 0.0 && sum->rows > 0 ? sum->correct / (double)sum->rows : (double)NAN;
}

/* For checkpoints: [loss, weight, rows, correct]; new reference or NULL. Those of earlier versions lack the
 * last. */
json_t *mst_loss_sum_json(const mst_loss_sum *sum);
bool mst_loss_sum_restore(mst_loss_sum *sum, const json_t *json);

#endif
