/* The exchange of sparse gradients: adds up (key, values) lists of all threads of all ranks.
 *
 * Thread: the training thread makes all calls; the work runs on the team, messages on the communication
 * thread. */
#ifndef MST_STRATEGY_SPARSE_EXCHANGE_H
#define MST_STRATEGY_SPARSE_EXCHANGE_H

#include "base/team.h"
#include "optim/optim.h"
#include "strategy/comm_thread.h"
#include "strategy/key_sums.h"
#include "tensor/grad.h"
#include "tensor/params.h"

/* Everything stays the caller's. */
typedef struct mst_sparse_options {
    mst_comm *comm;
    mst_team *team;
    unsigned n_threads;
    mst_float_format wire;
    uint64_t n_features;
    bool reduces;      /* else only the threads of this rank are added up */
    bool needs_square; /* for --clip-norm */
} mst_sparse_options;

/* The state of one thread. */
typedef struct mst_sparse_thread {
    _Alignas(64) const mst_grad *grad;
    mst_key_sums *lists; /* of the owners whose contributions this thread adds up, one per rank */
    mst_key_sums merged; /* the same over all ranks */
    float *decoded;      /* values of 16 bits, as floats */
    size_t decoded_room;
    double square; /* of what this thread applies */
    mst_status status;
    mst_error error;
} mst_sparse_thread;

/* A list of (key, values) inside a message. */
typedef struct mst_key_block {
    const uint32_t *keys;
    const char *values;
    uint32_t n;
} mst_key_block;

typedef struct mst_sparse_buffer {
    char *data;
    size_t room;
} mst_sparse_buffer;

typedef struct mst_sparse_exchange {
    mst_sparse_options o;
    uint32_t rank, n_ranks, width;
    mst_sparse_thread *threads;
    uint32_t n_owners;    /* ranks x threads: owner o is thread o % n of rank o / n */
    uint32_t *counts;     /* of all ranks: keys of rank s for owner o at s * n_owners + o */
    uint32_t *sum_counts; /* by owner: keys of the sums */
    mst_sparse_buffer out, in, sums, sums_in;
    size_t *out_at, *in_at;    /* blocks in out: by owner rank; in `in`: by source rank */
    mst_key_block *blocks;     /* by source rank and owner */
    mst_key_block *sum_blocks; /* by owner, when the sums were scattered */
    bool scattered;            /* the way of this step */
    double union_share;        /* distinct keys of a step over all ranks, as a share of all keys */
    uint64_t n_gathered, n_scattered;
} mst_sparse_exchange;

/* grads[t] is the gradient of thread t and outlives the exchange. The caller ends with fini, also on failure.
 */
mst_status mst_sparse_init(mst_sparse_exchange *self, const mst_sparse_options *options,
                           const mst_grad *const *grads);
void mst_sparse_fini(mst_sparse_exchange *self); /* safe on zeroes */

/* Adds up the threads' contributions over all ranks, and leaves thread t its share of the sums. *square: of
 * all sums, where needed. Adds the time of waiting to *wait_seconds. */
mst_status mst_sparse_sum(mst_sparse_exchange *self, double *square, double *wait_seconds);
/* Applies the sums, times clip. */
void mst_sparse_apply(mst_sparse_exchange *self, const mst_optimizer *optimizer, const mst_update *update,
                      float clip, mst_params *params);

#endif
