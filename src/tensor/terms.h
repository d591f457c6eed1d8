/* Terms of a row: what models whose features own rows of parameters (fm, ffm, fwfm) compute with. A term is a
 * feature that the row has, with the place of its parameters, [linear weight, factors], and the place where
 * their gradient goes. */
#ifndef MST_TENSOR_TERMS_H
#define MST_TENSOR_TERMS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mst_term {
    const float *w; /* 1 + n factors */
    float *g;       /* the same; unused by forward passes */
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

#endif
