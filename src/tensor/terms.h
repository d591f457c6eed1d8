/* Terms of a row: what models whose features own rows of parameters (fm, ffm, fwfm) compute with. A term is a
 * feature that the row has, with the places of its parameters, and the place where their gradient goes. */
#ifndef MST_TENSOR_TERMS_H
#define MST_TENSOR_TERMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/key_rows.h"

typedef struct mst_term {
    const float *w; /* linear weight */
    const float *v; /* factors */
    float *g;       /* of the linear weight, then of the factors; unused by forward passes */
    float x;
    uint16_t field; /* below the number of fields */
    bool add;       /* the gradient is added to g; otherwise it is stored there */
} mst_term;

/* The terms of one row. */
typedef struct mst_terms {
    mst_term *terms;
    uint32_t n;
} mst_terms;

/* How a row's gradient is made from its terms. */
typedef struct mst_term_rates {
    float coef; /* d(loss)/d(margin), scaled */
    float l2;   /* times the factors: their L2 regularisation, scaled */
} mst_term_rates;

/* Rows of parameters that a later row of data needs: kernels prefetch them between their computations. */
typedef struct mst_terms_ahead {
    const uint32_t *keys;
    uint32_t n;
    bool by_rows;
    const float *at; /* by rows: tensor/key_rows.h; otherwise key k has `stride` floats at at + k * stride */
    size_t stride;
} mst_terms_ahead;

/* Inlined always: gcc takes a function that only prefetches for one without effect. */
static inline __attribute__((always_inline)) void mst_prefetch_floats(const float *from, size_t n)
{
    const char *at = (const char *)from, *end = (const char *)(from + n);
    for (at -= (uintptr_t)at % 64; at < end; at += 64)
        __builtin_prefetch(at, 1);
}

/* Prefetches the rows of the keys from number i on, below `to`. */
static inline __attribute__((always_inline)) void mst_terms_prefetch(const mst_terms_ahead *a, uint32_t i,
                                                                     uint32_t to)
{
    for (; i < to && i < a->n; i++) {
        if (a->by_rows) {
            __builtin_prefetch(a->at + mst_row_first(a->keys[i], a->stride), 1);
            mst_prefetch_floats(a->at + mst_row_rest(a->keys[i], a->stride), a->stride - MST_ROW_FIRST);
        } else {
            mst_prefetch_floats(a->at + a->keys[i] * a->stride, a->stride);
        }
    }
}

#endif
