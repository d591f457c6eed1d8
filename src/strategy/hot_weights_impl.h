/* Shared by the files hot_*.c of hot weights: threads, blocks, and where the copies lie. */
#ifndef MST_STRATEGY_HOT_WEIGHTS_IMPL_H
#define MST_STRATEGY_HOT_WEIGHTS_IMPL_H

#include <stdatomic.h>
#include <string.h>

#include "strategy/hot_keys.h"
#include "strategy/hot_weights.h"

#define HOT_DENSE_ROWS 64 /* between two exchanges, at least */
#define HOT_PARTS      15 /* part p of the key blocks: [2^p - 1, 2^(p + 1) - 1) */
_Static_assert(MST_HOT_PRIVATE < 1u << HOT_PARTS, "each block of keys is in a part");

#define HOT_BLOCK 63 /* floats */
typedef struct hot_block {
    _Alignas(64) atomic_uint exchanges; /* twice those so far; odd: taken by a thread that exchanges */
    float at[HOT_BLOCK];                /* guarded by exchanges */
} hot_block;

/* A thread's last exchange of a block. */
typedef struct hot_last {
    uint64_t steps;     /* of the thread at that time */
    unsigned exchanges; /* of the block with this one; at first 0, as of the blocks at begin */
} hot_last;

typedef struct hot_thread {
    _Alignas(64) mst_key_map map;
    mst_weights weights;
    float (*seen)[HOT_BLOCK + 1]; /* by block */
    float *stiff, all_stiff;      /* by block, and their sum: stiff units of a row */
    mst_rule rule;                /* of the last exchange */
    float second;                 /* bound of p * (1 - p) */
    uint64_t steps;               /* so far */
    hot_last *last;               /* by block */
    uint32_t since[HOT_PARTS];    /* rows since the last exchange */
} hot_thread;

struct mst_hot_weights {
    const mst_model *model;
    mst_params *params;
    unsigned n_threads;
    bool by_rows, sums;
    mst_grad layout;
    uint32_t range_at[MST_RANGE_MAX]; /* place of each dense range in the copies */
    uint32_t n_dense;                 /* floats taken by the dense ranges */
    uint32_t sections;                /* 1, and by rows 1 for each slot: of the dense part */
    uint32_t width;                   /* weights of a key */
    uint32_t unit;                    /* floats of a key: 1, or those of a row */
    uint32_t sent;                    /* floats of a key that are exchanged: the weights, and sums */
    uint32_t prefix, prefix_at;       /* keys below `prefix` are in a dense range, from prefix_at on */
    mst_hot_keys popular;
    hot_thread *threads;
    float *dense; /* by rows: `mine` of the dense part, n_threads times */
    uint32_t per_block, keys_per_block, n_dense_blocks, n_blocks;
    hot_block *blocks;
    float *curve, *share; /* by unit, dense and then keys: mean of v * x^2; share of the rows that have it */
    uint32_t rows_of_part[HOT_PARTS];
};

/* The dense part and the keys of thread t; of vectors they are in the spare floats, one after the other. */
static inline float *hot_mine_dense(const mst_hot_weights *hot, unsigned t)
{
    return hot->by_rows ? hot->dense + (size_t)t * hot->n_dense * hot->sections
                        : hot->params->w + hot->params->size +
                              t * mst_hot_weights_spare(hot->n_threads) / hot->n_threads;
}

/* By rows: the key of the store that is the first copy of thread t, the first of its group. */
static inline uint64_t hot_first_copy(const mst_hot_weights *hot, unsigned t)
{
    uint64_t n = hot->params->rows.n_keys;
    return (n + MST_ROW_GROUP - 1) / MST_ROW_GROUP * MST_ROW_GROUP + (uint64_t)t * hot->popular.most;
}

static inline float *hot_mine_keys(const mst_hot_weights *hot, unsigned t)
{
    const mst_key_rows *rows = &hot->params->rows;
    return hot->by_rows ? rows->at + hot_first_copy(hot, t) * rows->stride
                        : hot_mine_dense(hot, t) + hot->n_dense;
}

/* Key k of the store. */
static inline float *hot_key(const mst_hot_weights *hot, uint32_t key)
{
    return hot->by_rows ? hot->params->rows.at + (uint64_t)key * hot->unit
                        : hot->params->w + hot->layout.sparse_offset + key;
}

/* Copies between key rows of several weights and floats side by side: the weights, then their state. */
static inline void hot_gather(const mst_hot_weights *hot, uint64_t key, float *restrict out)
{
    const mst_key_rows *rows = &hot->params->rows;
    const float *first = mst_key_first(rows, key), *rest = mst_key_rest(rows, key);
    uint32_t n = hot->width - 1;
    for (uint32_t s = 0; s < 2; s++) {
        out[s * hot->width] = first[s];
        memcpy(out + s * hot->width + 1, rest + s * n, n * sizeof *out);
    }
}

static inline void hot_scatter(const mst_hot_weights *hot, uint64_t key, const float *restrict in)
{
    const mst_key_rows *rows = &hot->params->rows;
    float *first = mst_key_first(rows, key), *rest = mst_key_rest(rows, key);
    uint32_t n = hot->width - 1;
    for (uint32_t s = 0; s < 2; s++) {
        first[s] = in[s * hot->width];
        memcpy(rest + s * n, in + s * hot->width + 1, n * sizeof *in);
    }
}

/* Float j of unit i of block b, in the copy of thread t, is at base + i * step + j * jump; not so of keys of
 * several weights: `key` is the place of the block's one key then, otherwise 0. */
typedef struct hot_place {
    float *base;
    const float *curve, *share;
    size_t step, jump;
    uint64_t key;
    uint32_t n, sent; /* units, and floats of each that are exchanged */
} hot_place;

static inline hot_place hot_find(const mst_hot_weights *hot, unsigned t, uint32_t b)
{
    bool dense = b < hot->n_dense_blocks;
    uint32_t most = dense ? hot->per_block : hot->keys_per_block;
    uint32_t first = (dense ? b : b - hot->n_dense_blocks) * most;
    uint32_t left = (dense ? hot->n_dense : hot->popular.n) - first;
    size_t step = dense ? 1 : hot->unit;
    return (hot_place){.base = (dense ? hot_mine_dense(hot, t) : hot_mine_keys(hot, t)) + first * step,
                       .curve = hot->curve + (dense ? first : hot->n_dense + first),
                       .share = hot->share + (dense ? first : hot->n_dense + first),
                       .step = step,
                       .jump = dense ? hot->n_dense : 1,
                       .key = dense || hot->width == 1 ? 0 : hot_first_copy(hot, t) + first,
                       .sent = dense ? hot->sent / hot->width : hot->sent,
                       .n = left < most ? left : most};
}

/* Exchanges the blocks [first, to), of the dense ranges or of keys, of thread t. all: also those of several
 * weights whose linear weight has not changed. */
void mst_hot_exchange_blocks(mst_hot_weights *hot, unsigned t, uint32_t first, uint32_t to,
                             const mst_rule *rule, bool all);

#endif
