/* The localiser's fields, for row_localiser.c and its test. */
#ifndef MST_TENSOR_ROW_LOCALISER_IMPL_H
#define MST_TENSOR_ROW_LOCALISER_IMPL_H

#include "tensor/row_localiser.h"

/* The keys of a batch's rows. */
typedef struct mst_row_bank {
    uint32_t *keys;
    size_t capacity;
} mst_row_bank;

struct mst_row_localiser {
    unsigned n_banks, key_bits; /* bits of the largest key */
    mst_row_bank *banks;
    uint64_t n_keys;
    const mst_kernels *kernels;
    uint64_t *table; /* 1 << table_bits: key << 32 | number */
    unsigned table_bits;
    uint32_t next;    /* the number of the next new key */
    uint64_t *items;  /* numbered keys in order of appearance: key << 32 | number */
    uint64_t *spare;  /* for sorting; as many */
    uint32_t *counts; /* for sorting: by digit */
    uint32_t *ranks;  /* where numbers stand, by number less the batch's first */
    size_t item_capacity, spare_capacity, rank_capacity;
};

#endif
