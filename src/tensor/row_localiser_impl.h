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
    uint32_t *table;     /* 2 << table_bits slots */
    unsigned table_bits; /* of this batch */
    uint64_t *items;     /* the batch's keys in order of appearance: key << 32 | slot */
    uint64_t *spare;     /* for sorting; as many */
    uint32_t *counts;    /* for sorting: by digit */
    uint32_t *ranks; /* positions of keys: by slot, and beyond the slots those of the keys of the prefix */
    uint32_t n_items;
    uint64_t end; /* keys of the batch are below */
    size_t table_capacity, item_capacity, spare_capacity, rank_capacity;
};

#endif
