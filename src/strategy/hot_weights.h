/* Hot weights: private copies of the weights that nearly every row touches, one set per asynchronous thread.
 *
 * Threads that update shared weights without locks are slowed down by the few cache lines they all write: the
 * dense prefix and the bias (every row), and the lines that hold the most popular keys (Zipf). Each thread
 * therefore works on its own copy of those, and now and then adds what it changed to the shared copy and
 * takes over what others changed. Everything else stays shared and unlocked.
 *
 * Copies live in the spare part of the parameter vector, so that a translated key reaches them like any other
 * weight: kernels do not know about them. While a hot set is in use the store's own values of hot weights are
 * stale; end writes them back. */
#ifndef MST_STRATEGY_HOT_WEIGHTS_H
#define MST_STRATEGY_HOT_WEIGHTS_H

#include <stdatomic.h>

#include "model/model.h"

#define MST_HOT_LINES 256  /* lines of 16 keys at most */
#define MST_HOT_DENSE 1024 /* dense range floats at most; larger models have no hot set */

typedef struct mst_hot_weights mst_hot_weights;

/* Floats to reserve beyond the parameters for n threads. */
uint64_t mst_hot_weights_spare(unsigned n_threads);

/* For models with a width-1 sparse view and small dense ranges; *out is NULL (and MST_OK) for others. */
mst_status mst_hot_weights_new(const mst_model *model, mst_params *params, unsigned n_threads,
                               mst_hot_weights **out);
void mst_hot_weights_destroy(mst_hot_weights *hot); /* NULL-safe */

/* Chooses the popular lines from a sample of rows and copies their weights out. One thread, before the others
 * start. */
void mst_hot_weights_begin(mst_hot_weights *hot, const mst_batch *sample);

/* Writes hot weights back to the store. One thread, after the others have published for the last time. */
void mst_hot_weights_end(mst_hot_weights *hot);

/* The weights thread t computes on, and the map that takes keys to their private places. */
const mst_weights *mst_hot_weights_of(const mst_hot_weights *hot, unsigned t);
const mst_key_map *mst_hot_weights_map(const mst_hot_weights *hot, unsigned t);

/* Exchanges thread t's changes of the dense ranges, or of the popular lines, with the shared copy. */
void mst_hot_weights_publish_dense(mst_hot_weights *hot, unsigned t);
void mst_hot_weights_publish_lines(mst_hot_weights *hot, unsigned t);

#endif
