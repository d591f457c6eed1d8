/* Hot weights: copies of the weights that nearly every row touches.
 *
 * Threads that update shared weights without locks are slowed down by the few cache lines that all of them
 * write: the dense prefix and the bias (every row), and the lines of the popular keys (Zipf). So each
 * asynchronous thread works on its own copy of those, with their optimizer state if the store is by rows. At
 * intervals it publishes its changes and takes over the changes of others. All other weights stay shared and
 * unlocked.
 *
 * Synchronous threads have one copy for all, of the popular keys alone: side by side, they can be summed like
 * a dense range.
 *
 * Copies are in the spare part of the parameter vector, so that a translated key reaches them like any other
 * weight, and kernels need no special case. While hot weights are in use, the values in the store are stale;
 * end writes the copies back. */
#ifndef MST_STRATEGY_HOT_WEIGHTS_H
#define MST_STRATEGY_HOT_WEIGHTS_H

#include "model/model.h"

#define MST_HOT_KEYS    2048  /* popular keys of one copy at most, ... */
#define MST_HOT_PRIVATE 16384 /* ... and of the copies of threads */
#define MST_HOT_DENSE   1024  /* floats of dense ranges at most; larger models have no hot weights */

typedef struct mst_hot_weights mst_hot_weights;

/* Floats to reserve beyond the parameters for n threads; by rows: keys. */
uint64_t mst_hot_weights_spare(unsigned n_threads);

/* For models with a width-1 sparse view and small dense ranges, and for asynchronous threads of models with
 * a few weights per key, Adagrad and no dense range but a bias; *out is NULL (and MST_OK) for others.
 * n_threads: asynchronous threads, or 1 for synchronous ones. sums: the state of the optimizer is sums, so
 * that changes of several threads add up; otherwise each thread has its own, and the mean remains. */
mst_status mst_hot_weights_new(const mst_model *model, mst_params *params, unsigned n_threads, bool sums,
                               mst_hot_weights **out);
void mst_hot_weights_destroy(mst_hot_weights *hot); /* NULL-safe */

/* Chooses the popular keys from samples of rows, of which it reads MST_HOT_SAMPLE each at most, and copies
 * their weights; without a sample it copies the keys of the last ones. One thread, before the others start.
 */
#define MST_HOT_SAMPLE 2048
void mst_hot_weights_begin(mst_hot_weights *hot, const mst_batch *const *samples, unsigned n_samples);
/* Makes the copies of asynchronous thread t, which calls it after begin and before it trains. */
void mst_hot_weights_join(mst_hot_weights *hot, unsigned t);

/* Writes hot weights back to the store. One thread, when the others have finished. */
void mst_hot_weights_end(mst_hot_weights *hot);

/* The weights that thread t computes on, and the map from keys to their private positions. */
const mst_weights *mst_hot_weights_of(const mst_hot_weights *hot, unsigned t);
const mst_key_map *mst_hot_weights_map(const mst_hot_weights *hot, unsigned t);

/* The place of the first popular key as a translated key of the first copy; returns the number of popular
 * keys, which follow one another. */
uint32_t mst_hot_weights_places(const mst_hot_weights *hot, uint32_t *first);

/* Asynchronous thread t calls exchange after every `interval` rows. It publishes the changes that n_steps
 * steps of n_rows rows made to the dense ranges, and those of popular keys that are due, and takes over the
 * changes of others. rule: of the last step. loss: the recent mean of a row. rows_so_far: of all threads
 * since the start of the training. */
uint32_t mst_hot_weights_interval(const mst_hot_weights *hot, uint64_t rows_so_far);
void mst_hot_weights_exchange(mst_hot_weights *hot, unsigned t, uint32_t n_rows, uint64_t n_steps,
                              const mst_rule *rule, float loss, uint64_t rows_so_far);

#endif
