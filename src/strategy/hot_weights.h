/* Hot weights: private copies of the weights that nearly every row touches, one set per asynchronous thread.
 *
 * Threads that update shared weights without locks are slowed down by the few cache lines that all of them
 * write: the dense prefix and the bias (every row), and the lines of the popular keys (Zipf). So each thread
 * works on its own copy of those, with their optimizer state if the store is by rows. At intervals it adds
 * its changes to a shared copy and takes over the changes of others. All other weights stay shared and
 * unlocked.
 *
 * Copies are in the spare part of the parameter vector, so that a translated key reaches them like any other
 * weight, and kernels need no special case. While hot weights are in use, the values in the store are stale;
 * end writes the copies back. */
#ifndef MST_STRATEGY_HOT_WEIGHTS_H
#define MST_STRATEGY_HOT_WEIGHTS_H

#include <stdatomic.h>

#include "model/model.h"

#define MST_HOT_KEYS  2048 /* popular keys at most */
#define MST_HOT_DENSE 1024 /* floats of dense ranges at most; larger models have no hot weights */

typedef struct mst_hot_weights mst_hot_weights;

/* Floats to reserve beyond the parameters for n threads; by rows: keys. */
uint64_t mst_hot_weights_spare(unsigned n_threads);

/* For models with a width-1 sparse view and small dense ranges; *out is NULL (and MST_OK) for others. sums:
 * the state of the optimizer is sums, so that changes of several threads add up; otherwise the last one wins.
 */
mst_status mst_hot_weights_new(const mst_model *model, mst_params *params, unsigned n_threads, bool sums,
                               mst_hot_weights **out);
void mst_hot_weights_destroy(mst_hot_weights *hot); /* NULL-safe */

/* Chooses the popular keys from a sample of rows and copies their weights. One thread, before the others
 * start. */
void mst_hot_weights_begin(mst_hot_weights *hot, const mst_batch *sample);

/* Writes hot weights back to the store. One thread, after the others have published for the last time. */
void mst_hot_weights_end(mst_hot_weights *hot);

/* The weights that thread t computes on, and the map from keys to their private positions. */
const mst_weights *mst_hot_weights_of(const mst_hot_weights *hot, unsigned t);
const mst_key_map *mst_hot_weights_map(const mst_hot_weights *hot, unsigned t);

/* Exchanges thread t's changes of the dense ranges, of the most popular keys, or of all popular keys with the
 * shared copy. */
void mst_hot_weights_publish_dense(mst_hot_weights *hot, unsigned t);
void mst_hot_weights_publish_top(mst_hot_weights *hot, unsigned t);
void mst_hot_weights_publish_keys(mst_hot_weights *hot, unsigned t);

#endif
