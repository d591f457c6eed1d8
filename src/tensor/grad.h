/* A gradient, as one thread adds to it: dense ranges of the flat vector, and sparse contributions by key.
 *
 * Dense ranges are declared once (the dense prefix of a linear model, its bias; every view of a net) and
 * accumulate in place. Sparse contributions are appended as (key, width floats) to one of `n_owners` lists:
 * the list of the owner thread that will sum them and apply the update, so that no two threads ever write one
 * weight. A key may be appended many times. The owner (mst_grad_owner) is a function of the key alone. */
#ifndef MST_TENSOR_GRAD_H
#define MST_TENSOR_GRAD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"

#define MST_RANGE_MAX  128
#define MST_PICK_SLACK 16 /* elements beyond the end of picks that kernels may write */
#define MST_FEW_BLOCKS 4  /* of keys: that many are quicker to divide than keys are to translate */

typedef struct mst_range {
    uint64_t offset, size; /* in the flat vector */
    float *g;
    bool state; /* g is the new value, which replaces the old one, instead of something to add up */
} mst_range;

typedef struct mst_contributions {
    uint32_t *keys; /* n */
    float *values;  /* n * width */
    size_t n, capacity;
} mst_contributions;

typedef struct mst_grad {
    uint32_t n_ranges;
    mst_range ranges[MST_RANGE_MAX];
    uint64_t sparse_offset; /* where key 0 lies in the flat vector */
    uint32_t width;         /* floats per key; 0: no sparse part */
    uint32_t n_owners;
    mst_contributions *owners; /* n_owners */
    /* The dense ranges hold no data: the first addition overwrites them and clears this. For models that can
     * (mst_model.overwrites); never set otherwise. */
    bool fresh;
} mst_grad;

/* Declares ranges and the sparse part; allocates the dense buffers. fini is safe after any failure. */
mst_status mst_grad_init(mst_grad *grad, const mst_range *ranges, uint32_t n_ranges, uint64_t sparse_offset,
                         uint32_t width, uint32_t n_owners);
void mst_grad_fini(mst_grad *grad);

/* Zeroes the dense ranges and empties the lists. */
void mst_grad_clear(mst_grad *grad);

/* Empties the lists; the first addition to a dense range overwrites it. */
void mst_grad_renew(mst_grad *grad);

/* Makes room for n more contributions in every list; call once per batch, before appending. */
mst_status mst_grad_room(mst_grad *grad, size_t n);

/* Thread t's of n slices of a dense range, split at multiples of 16 floats so that no two share a line. */
void mst_grad_slice(uint64_t size, unsigned t, unsigned n, uint64_t *from, uint64_t *to);

/* Copies the dense ranges, state left out, for other threads to read; past the caches (tensor/past_caches.h).
 */
void mst_grad_show(const mst_grad *grad, mst_grad *to);

/* Sums the slices of thread t of n of the dense ranges of n_grads gradients in their order, ((g0 + g1) + g2)
 * + ..., into those of `to`, which may be one of them; state is not a gradient and stays. Gradient s begins
 * s * stride bytes after the first. */
void mst_grad_sum_slices(const mst_grad *first, size_t stride, unsigned n_grads, unsigned t, unsigned n,
                         mst_grad *to);

/* Spreads neighbouring keys over owners in runs of 16 (one cache line of weights has one owner). */
#define MST_OWNER_SHIFT  4
#define MST_OWNER_FACTOR 0x9E3779B1u
static inline uint32_t mst_grad_owner(uint32_t key, uint32_t n_owners)
{
    return (uint32_t)((uint64_t)((key >> MST_OWNER_SHIFT) * MST_OWNER_FACTOR) * n_owners >> 32);
}

/* Keys of rows in a step: those of a thread's rows, divided among blocks of keys (mst_grad_owner), or those
 * of all rows that a thread owns, in one block. The alternative to lists of contributions for models whose
 * contributions are a coefficient of the row times the value of the key. */
typedef struct mst_pick {
    uint32_t key, row; /* number of the row among these rows */
} mst_pick;

typedef struct mst_picks {
    uint32_t n_blocks;
    size_t room; /* of each block, with MST_PICK_SLACK: the picks of block b are [b * room, ends[b]) */
    size_t *ends;
    mst_pick *at;  /* in the order of rows */
    float *values; /* the same, if valued */
    bool valued;   /* some value is not 1 */
    size_t capacity;
} mst_picks;

/* fini is safe after a failure, and of zeros. */
mst_status mst_picks_init(mst_picks *picks, uint32_t n_blocks);
void mst_picks_fini(mst_picks *picks);
/* Empties the blocks and makes room for n keys in each of them, with values or without. */
mst_status mst_picks_begin(mst_picks *picks, size_t n, bool valued);

#endif
