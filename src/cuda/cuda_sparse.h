/* Sparse models on a GPU: the section of the plug-in's table for logreg, softmax, fm, ffm and fwfm.
 *
 * The host packs rows into blocks of whole steps, in pinned memory. `prepare` copies a block and finds the
 * entries of each key in each step, which depends on the rows alone, while the GPU trains on an earlier
 * block. `train` runs steps of a prepared block. Both enqueue work and return.
 *
 * A row is a list of entries: key, value, field. The dense prefix of a row is entries too, or, for logreg, an
 * array. In synchronous
 * training the contributions to a key are added in a fixed order, so that results repeat bit for bit on one
 * kind of GPU; they equal those of the CPU to rounding. */
#ifndef MST_CUDA_CUDA_SPARSE_H
#define MST_CUDA_CUDA_SPARSE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/rule.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MST_CUDA_SPARSE_SLOTS   4          /* blocks that are packed, prepared or in training */
#define MST_CUDA_SPARSE_ENTRIES (1u << 30) /* most entries of a block */
#define MST_CUDA_SPARSE_DENSE   64         /* longest head of rows that logreg takes as an array */
#define MST_CUDA_SPARSE_LOADS   16         /* loads of chunks on their way to the GPU */
#define MST_CUDA_SPARSE_LOAD    (1u << 20) /* words of a load: a copy of 4 MB has 0.96 of the bandwidth */
#define MST_CUDA_SPARSE_PARTS   16         /* chunks of a load, at most */

typedef enum mst_cuda_sparse_kind {
    MST_CUDA_LOGREG,
    MST_CUDA_SOFTMAX,
    MST_CUDA_FM,
    MST_CUDA_FFM,
    MST_CUDA_FWFM,
} mst_cuda_sparse_kind;

/* The model, in floats of the flat vector of the parameter store. */
typedef struct mst_cuda_sparse_spec {
    uint32_t device;
    mst_cuda_sparse_kind kind;
    uint64_t n_features;
    uint64_t size;        /* of the flat vector */
    uint32_t n_slots;     /* state vectors */
    uint64_t weight_at;   /* the weights of the keys */
    uint32_t width;       /* weights of a key */
    uint64_t key_step;    /* from a key's weight to the same one of the next key */
    uint64_t weight_step; /* from a weight of a key to its next one */
    uint32_t head;        /* keys below it are updated in every step, weight by weight */
    bool state_per_key;   /* keys from `head` on have one float of state */
    uint64_t bias_at;
    uint32_t n_bias;   /* 0: no bias */
    uint64_t pairs_at; /* fwfm: weights of pairs of fields f <= g, row after row */
    uint32_t factors, fields;
    float pos_weight, l2_factors, clip_norm; /* clip_norm 0: off */
    bool atomic;                             /* asynchronous: atomic additions where the rule allows them */
    uint32_t batch;
} mst_cuda_sparse_spec;

/* A block in pinned memory, for the caller to fill. */
typedef struct mst_cuda_sparse_rows {
    uint32_t row_capacity, entry_capacity;
    float *labels, *weights;
    uint32_t *ends; /* of each row: the end of its entries */
    uint32_t *keys;
    float *values;
    uint16_t *fields;
    float *dense;      /* head of them for each row, if n_dense; NULL where the model takes entries only */
    uint32_t *numbers; /* of the rows in the dataset, for `prepare_held` */
    uint32_t n_rows, n_entries;
    uint32_t n_dense;     /* the head, if the numbers of all rows are in `dense`; 0: they are entries */
    uint32_t row_entries; /* of every row; 0: they differ, see ends */
    bool weighted, valued, fielded;
    bool distinct_fields; /* no row has two entries of one field */
    bool fill_head;       /* some row lacks keys of the head */
} mst_cuda_sparse_rows;

/* The records of a dataset: chunks as data/chunk.h lays them out. A chunk whose stride is 0 ends with the
 * positions of its records. */
typedef struct mst_cuda_sparse_records {
    uint64_t n_rows, n_words;      /* words of all chunks */
    uint32_t n_chunks, chunk_rows; /* rows of every chunk but the last */
    uint64_t longest;              /* words of a chunk, at most */
    const uint32_t *strides;       /* of each chunk */
    uint32_t n_dense;              /* of every row */
    bool dense_bytes, has_weights, has_values, has_fields;
    float min_label, max_label; /* of all rows, whose numbers are finite: others are found */
    bool row_norm;              /* the values of a row are divided by their length */
} mst_cuda_sparse_records;

/* A chunk in a load: words [at, at + n) of it. */
typedef struct mst_cuda_sparse_part {
    uint32_t chunk;
    uint64_t at, n;
} mst_cuda_sparse_part;

/* Rules of a step: of the keys, and of the other weights. */
typedef struct mst_cuda_sparse_rules {
    mst_rule keys, rest;
} mst_cuda_sparse_rules;

/* Sums over the rows of the steps since the last `finish`. */
typedef struct mst_cuda_sparse_sums {
    double loss, weight, correct;
} mst_cuda_sparse_sums;

typedef struct mst_cuda_sparse mst_cuda_sparse;

typedef struct mst_cuda_sparse_ops {
    /* Weights and state are zero. *out is the caller's to close; set only on MST_OK. */
    mst_status (*open)(const mst_cuda_sparse_spec *spec, mst_cuda_sparse **out);
    void (*close)(mst_cuda_sparse *self); /* NULL-safe */

    /* Floats [first, first + count) of the weights (slot 0) or of state slot - 1. Waits for all steps. Any
     * thread. */
    mst_status (*write)(mst_cuda_sparse *self, uint32_t slot, uint64_t first, uint64_t count,
                        const float *in);
    mst_status (*read)(mst_cuda_sparse *self, uint32_t slot, uint64_t first, uint64_t count, float *out);

    /* The most steps of a block: the number of a step and a key fit in 32 bits. */
    uint32_t (*block_steps)(const mst_cuda_sparse *self);
    /* The memory of block `at` with room for this much; *out is valid until the next reserve of the block.
     * Waits until no step uses the block. One thread may call reserve and the functions below, while another
     * one calls prepare and train. */
    mst_status (*reserve)(mst_cuda_sparse *self, uint32_t at, uint32_t rows, uint32_t entries,
                          mst_cuda_sparse_rows **out);
    mst_status (*prepare)(mst_cuda_sparse *self, uint32_t at);

    /* Records that stay on the GPU. `hold` makes room for them, once; *held is false when there is none.
     * `stage`: pinned memory of load i, MST_CUDA_SPARSE_LOAD words, or a longest chunk if that is more; waits
     * until its last copy is done. `send` copies n chunks that are in it, one after the other. Any thread may
     * call these two: for each load one at a time, and one send at a time.
     * `reserve_held`: as reserve, for the numbers and, where rows differ in their entries, the ends of rows;
     * their chunks were sent before.
     * `prepare_held`, called as prepare is: the block has the rows with those numbers, whose chunks were
     * sent, with the parts that it describes. `drop`: the records are no longer needed. */
    mst_status (*hold)(mst_cuda_sparse *self, const mst_cuda_sparse_records *records, bool *held);
    mst_status (*stage)(mst_cuda_sparse *self, uint32_t i, uint32_t **out);
    mst_status (*send)(mst_cuda_sparse *self, uint32_t i, const mst_cuda_sparse_part *parts, uint32_t n);
    mst_status (*reserve_held)(mst_cuda_sparse *self, uint32_t at, uint32_t rows, mst_cuda_sparse_rows **out);
    mst_status (*prepare_held)(mst_cuda_sparse *self, uint32_t at);
    void (*drop)(mst_cuda_sparse *self);
    /* Prepares block `at`, which reserve_held made and the caller described, and runs its n steps, whatever
     * the GPU has as records: memory is there and kernels are loaded then. Before `write`: weights and state
     * change. */
    mst_status (*rehearse)(mst_cuda_sparse *self, uint32_t at, uint32_t n,
                           const mst_cuda_sparse_rules *rules);

    /* Steps [first, first + n) of a prepared block, with a rule for each. */
    mst_status (*train)(mst_cuda_sparse *self, uint32_t at, uint32_t first, uint32_t n,
                        const mst_cuda_sparse_rules *rules);
    /* Waits for all steps; MST_ETIMEOUT after 600 s. MST_EINPUT: a row had a key beyond the features. */
    mst_status (*finish)(mst_cuda_sparse *self, mst_cuda_sparse_sums *sums);
} mst_cuda_sparse_ops;

extern const mst_cuda_sparse_ops mst_cuda_sparse_table; /* inside the plug-in */

#ifdef __cplusplus
}
#endif
#endif
