/* Kernels: the inner loops, compiled once per instruction set from kernels_impl.h and chosen at run time.
 *
 * Results may differ between instruction sets in the last bits (order of sums, fused multiply-add); within
 * one they are a function of the inputs. Weights that several threads update without locks are read and
 * written as single aligned 32-bit words; kernels called racy may run on such weights at the same time
 * (base/racy.h). */
#ifndef MST_TENSOR_KERNELS_H
#define MST_TENSOR_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/isa.h"
#include "tensor/batch.h"
#include "tensor/grad.h"
#include "tensor/rule.h"
#include "tensor/terms.h"

/* A linear model's weights: dense prefix, key 0 of the sparse part, bias. */
typedef struct mst_linear {
    float *dense;
    float *sparse;
    float *bias; /* NULL: none */
    /* A store by rows: floats between keys, which is 4, and keys below head are in the dense range. 0 or 1:
     * one float per key, and the dense range is in front of the keys. */
    uint32_t stride, head;
    uint32_t shared; /* keys below it are updated by other threads at the same time */
    bool near;       /* all are in a cache */
    uint32_t after;  /* rows that follow those of a call, and are next */
    uint64_t state;  /* by rows: floats from a weight of the dense range or the bias to its state */
} mst_linear;

/* The sums of a step on a store by rows. Every key of the step has a place, which its scratch float holds
 * until it is updated; place 0 is that of keys below head. */
typedef struct mst_row_sums {
    uint32_t n;       /* places so far, 0 included */
    uint32_t *keys;   /* by place; room for one more */
    float *sums;      /* by place */
    uint32_t *places; /* of the keys of the rows last placed, row after row */
} mst_row_sums;

#define MST_HEAD_MAX 1024 /* dense weights of a model that train_rows updates */

/* Maps some keys to other places: those below `prefix`, and n popular ones to the numbers from base on.
 *
 * The hash of a key is the key times an odd factor, so that no two keys have the same one. Its upper bits are
 * the index of a bucket; the bucket has the lower bits in front of the number of the key. Keys that collide
 * are not mapped. */
typedef struct mst_key_map {
    uint32_t prefix, prefix_delta; /* keys below prefix: add prefix_delta */
    uint32_t factor, shift;        /* bits of the hash that are no index: 1 to 31 */
    uint32_t base, n;              /* n is less than the number of buckets */
    const uint32_t *buckets;       /* 1 << (32 - shift) */
} mst_key_map;

/* The number of a key with this bucket; n or more: the bucket is not the key's. */
static inline uint32_t mst_map_number(uint32_t bucket, uint32_t hash, uint32_t shift)
{
    return bucket ^ hash << (32 - shift);
}

/* The bucket of the key with this number. */
static inline uint32_t mst_map_bucket(uint32_t number, uint32_t hash, uint32_t shift)
{
    return number | hash << (32 - shift);
}

#define MST_MAP_UNUSED UINT32_MAX /* a bucket: the number of any key is the largest */

/* The division of keys among blocks: keys below n_prefix are left out; keys that the map translates are
 * popular. */
typedef struct mst_division {
    uint32_t n_prefix;
    const mst_key_map *map;     /* NULL: no key is popular */
    const mst_records *records; /* the rows, which need not be filled then; or NULL */
} mst_division;

#define MST_PLACES_BEHIND 16 /* of the sums of add_places */

/* Buckets of a hash table with 1 << bits of them. */
#define MST_KEY_HASH 0x9E3779B1u
static inline uint32_t mst_key_bucket(uint32_t key, unsigned bits)
{
    return key * MST_KEY_HASH >> (32 - bits);
}
#define MST_NO_KEY UINT32_MAX /* features are at most as many */

#define MST_DESCEND_SCRATCH 8
#define MST_LANES_MAX       16 /* floats of the longest vector of an instruction set */

#define MST_FFM_ROOM(k, n_fields) (3 * ((size_t)(k) * (n_fields) + MST_LANES_MAX))

/* A factorization machine on keys in a store by rows, or side by side in vectors. */
#define MST_FM_FACTORS 64 /* the most factors */
#define MST_FM_KEYS    64 /* of a row of batch 1 */
typedef struct mst_fm_weights {
    float *keys; /* tensor/key_rows.h */
    uint32_t stride;
    uint32_t k;     /* factors */
    float *bias;    /* NULL: none */
    uint64_t state; /* floats from the bias to its state */
    float l2;       /* of the factors */
    float pos_weight;
    bool norm; /* rows are scaled to length 1 */
} mst_fm_weights;

/* The sums of a step of fm. */
typedef struct mst_fm_sums {
    uint32_t n;        /* distinct keys so far */
    uint32_t *keys;    /* of them; room for one more at least */
    uint32_t stride;   /* floats of a sum: the factors, rounded up to MST_LANES_MAX */
    float *g;          /* stride of each: the sum of c x s; zero beyond the keys */
    float *scalars;    /* 2 of each: the sums of c x, and of c x^2 - l2; zero beyond the keys */
    uint32_t *numbers; /* of the keys of the rows last forwarded, row after row */
    float *rows;       /* stride of each of these rows: s */
} mst_fm_sums;

typedef struct mst_kernels {
    mst_isa isa;

    /* margins[i] = bias + x_i . w. Racy. */
    void (*margins)(const mst_row *rows, uint32_t n, const mst_linear *w, float *margins);

    /* Logistic loss at margin m, label y (> 0 positive), row weight v (times pos_weight for positives):
     * coefs[i] = v * d(loss)/d(m); returns the sum of v * loss. Finite at any margin. margins and coefs may
     * be one. */
    double (*logistic)(const mst_row *rows, uint32_t n, const float *margins, float pos_weight, float *coefs);

    /* w += coefs[i] * scale * x_i over all rows: in place. Racy. */
    void (*scatter)(const mst_row *rows, uint32_t n, const float *coefs, float scale, const mst_linear *w);

    /* The dense part of scatter: prefix and bias, which keys below n_prefix join. */
    void (*scatter_dense)(const mst_row *rows, uint32_t n, const float *coefs, float scale, uint32_t n_prefix,
                          const mst_linear *w);

    /* Appends the contributions coefs[i] * scale * x_i of keys that are not below n_prefix to the lists of
     * their owners (mst_grad_owner), row by row. Each list needs room for all of them. */
    void (*emit_keys)(const mst_row *rows, uint32_t n, const float *coefs, float scale, uint32_t n_prefix,
                      mst_contributions *owners, uint32_t n_owners);

    /* A step of several threads. divide_keys divides the keys of the rows of a thread among blocks, for whose
     * picks there must be room. out[i] is rows[i]; with a map, its popular keys are translated, all its keys
     * are copied to keys, and popular ones are not picked.
     * add_places adds coefs[i] * value to sums[key - first] for all keys in [first, first + n_places); what
     * is in the MST_PLACES_BEHIND floats behind the sums afterwards has no meaning. Then, for the picks of a
     * block: subtract_picks subtracts coefs[row] * scale * value from the weights; collect_picks adds it to
     * the scratch floats of a store by rows and writes the distinct keys, in the order of their first
     * appearance, to touched (room for all keys of the block, and one more), and returns their number;
     * approach_picks only prefetches the first weights.
     *
     * pick_own, in place of divide_keys: appends the keys of n rows, or records, that are not below n_prefix
     * and belong to `owner` of n_owners to block 0; the rows are numbered from `first` on. sum_picks adds up
     * weight * value of these in the margins of their rows, and add_prefix adds the rest: prefix, bias and
     * keys below n_prefix. next: picks whose weights are fetched on the way; or NULL. make_rows makes rows
     * [from, to) of records. */
    void (*divide_keys)(const mst_row *rows, uint32_t n, const mst_division *d, mst_row *out, uint32_t *keys,
                        mst_picks *picks);
    void (*add_places)(const mst_row *rows, uint32_t n, uint32_t first, uint32_t n_places, const float *coefs,
                       float *sums);
    void (*approach_picks)(const mst_picks *picks, uint32_t block, const mst_linear *w);
    void (*subtract_picks)(const mst_picks *picks, uint32_t block, const float *coefs, float scale,
                           float *sparse, const mst_picks *next);
    size_t (*collect_picks)(const mst_picks *picks, uint32_t block, const float *coefs, float scale,
                            const mst_linear *w, uint32_t *touched, const mst_picks *next);
    void (*pick_own)(const mst_row *rows, const mst_records *records, uint32_t first, uint32_t n,
                     uint32_t n_prefix, uint32_t owner, uint32_t n_owners, mst_picks *picks);
    void (*sum_picks)(const mst_picks *picks, const mst_linear *w, float *margins);
    void (*make_rows)(const mst_records *records, uint32_t from, uint32_t to, mst_row *out);
    void (*add_prefix)(const mst_row *rows, uint32_t n, uint32_t n_prefix, const mst_linear *w,
                       float *margins);

    /* SGD with batch 1: row after row, margin then update with lrs[i]. margins (n) are those before each
     * row's update. With a map, keys are translated on the way; scratch is then room for MST_DESCEND_SCRATCH
     * times the keys of the longest row. Racy. */
    void (*descend_rows)(const mst_row *rows, uint32_t n, float pos_weight, const mst_linear *w,
                         const float *lrs, float *margins, const mst_key_map *map, uint32_t *scratch);

    /* Batch 1 with any rule, on a store by rows: row after row, margin, then the update of step i under
     * rules[i], which all have one kind. Keys that repeat in a row are updated once, by their sum. map and
     * scratch: as in descend_rows. Racy. */
    void (*train_rows)(const mst_row *rows, uint32_t n, float pos_weight, const mst_linear *w,
                       const mst_rule *rules, float *margins, const mst_key_map *map, uint32_t *scratch);

    /* A batch on a store by rows, some rows at a time. place_rows computes margins, finds the places of the
     * keys that are not below head, and clears the sums of new ones; sum_rows adds coefs[i] * scale * x_i of
     * these rows to the sums; apply_sums updates all keys by their sums. A key whose row another thread
     * writes (shared) may get two places, and is then updated twice. Racy. */
    void (*place_rows)(const mst_row *rows, uint32_t n, const mst_linear *w, mst_row_sums *sums,
                       float *margins);
    void (*sum_rows)(const mst_row *rows, uint32_t n, const float *coefs, float scale, mst_row_sums *sums);
    void (*apply_sums)(const mst_rule *rule, const mst_linear *w, const mst_row_sums *sums);
    /* Updates distinct keys by the sums in their scratch floats, which it clears. Racy. */
    void (*apply_touched)(const mst_rule *rule, const mst_linear *w, const uint32_t *touched, size_t n);
    /* n dense weights from w on, with state at w + state and w + 2 * state, by gradient g. Racy. */
    void (*apply_dense)(const mst_rule *rule, float *w, uint64_t state, const float *g, uint64_t n);

    /* out[i] is rows[i] with its keys translated, which are written to keys (as many as all rows have). */
    void (*translate)(const mst_row *rows, uint32_t n, const mst_key_map *map, mst_row *out, uint32_t *keys);

    /* Localising. A table has 1 << bits buckets (bits 1 to 30) of two slots; a slot holds a key or
     * MST_NO_KEY, and the number of a key is its slot. look_up_keys writes the numbers of n keys that are in
     * their bucket, and lists the places of the others, whose numbers are undefined, in missing (room for n
     * and 8 more); returns how many these are. MST_NO_KEY is in no bucket. */
    uint32_t (*look_up_keys)(const uint32_t *table, unsigned bits, const uint32_t *keys, uint32_t n,
                             uint32_t *numbers, uint32_t *missing);
    /* numbers[i] = ranks[numbers[i]]; numbers are below 1 << 31. */
    void (*rank_numbers)(uint32_t *numbers, size_t n, const uint32_t *ranks);
    /* counts[i] = the sum of counts[0] to counts[i - 1]; n is a multiple of 16. */
    void (*sum_counts)(uint32_t *counts, uint32_t n);

    /* sum of v * logistic loss at the given margins. */
    double (*logistic_loss)(const mst_row *rows, uint32_t n, const float *margins, float pos_weight);

    /* out[i] = bytes[i] / 255 */
    void (*unpack_bytes)(const uint8_t *bytes, uint32_t n, float *out);

    /* y (n x c) = x (n x k) * w^T (c x k) + b (c; NULL: none); rows of x are `ldx` floats apart. Racy in w.
     */
    void (*dense_forward)(const float *x, size_t ldx, uint32_t n, uint32_t k, const float *w, const float *b,
                          uint32_t c, float *y);

    /* gw (c x k) += d^T (c x n) * x (n x k); gb (c; NULL: none) += column sums of d (n x c). */
    void (*dense_backward)(const float *x, size_t ldx, uint32_t n, uint32_t k, const float *d, uint32_t c,
                           float *gw, float *gb);

    /* Softmax cross-entropy, row weights v: d (n x c) = scale * v * (softmax(y) - onehot(label)); returns the
     * sum of v * loss. d may be y. Finite for any finite y. */
    double (*softmax)(const mst_row *rows, uint32_t n, uint32_t c, const float *y, float scale, float *d);

    /* The loss alone. */
    double (*softmax_loss)(const mst_row *rows, uint32_t n, uint32_t c, const float *y);

    /* Whether n keys are known to be distinct; false of more than 64 that do not ascend. */
    bool (*keys_distinct)(const uint32_t *keys, uint32_t n);

    /* The update of n distinct keys with several weights, on a store by rows with key 0 at w
     * (tensor/key_rows.h); g is n * width. Scratch floats are set to zero. Racy. */
    void (*update_rows)(const mst_rule *rule, float *w, uint32_t stride, uint32_t width, const uint32_t *keys,
                        const float *g, size_t n);

    /* Second-order models with k factors: the margin of a row without the bias, and then the gradient of its
     * terms' parameters. Racy in the terms' parameters.
     *
     * fm: sums (k, rounded up to MST_LANES_MAX) passes from margin to gradient. */
    float (*fm_margin)(const mst_terms *t, uint32_t k, float *sums);
    void (*fm_gradient)(const mst_terms *t, uint32_t k, const mst_term_rates *r, const float *sums);
    /* fm without terms. Batch 1, Adagrad without L1: row after row, margin, then the update under rules[i].
     * Returns the number of rows before the first that it does not take (values, a dense prefix, too many
     * keys, or one that repeats). Racy. */
    uint32_t (*fm_train_rows)(const mst_row *rows, uint32_t n, const mst_fm_weights *fm,
                              const mst_rule *rules, float *margins);
    /* A batch, if fm_batch_takes all of its rows. fm_forward_rows computes margins and numbers the keys
     * (n_after more rows follow in the batch: they are prefetched); fm_add_rows adds these rows to the sums,
     * with d(loss)/d(margin) in coefs; fm_apply_sums updates the keys and clears the sums. */
    bool (*fm_batch_takes)(const mst_row *rows, uint32_t n);
    void (*fm_forward_rows)(const mst_row *rows, uint32_t n, uint32_t n_after, const mst_fm_weights *fm,
                            mst_fm_sums *sums, float *margins);
    void (*fm_add_rows)(const mst_row *rows, uint32_t n, const mst_fm_weights *fm, const float *coefs,
                        float scale, mst_fm_sums *sums);
    void (*fm_apply_sums)(const mst_rule *rule, const mst_fm_weights *fm, mst_fm_sums *sums);
    /* The same rows on keys side by side in vectors (fm->stride is 1 + k): margins and the sums of rows,
     * `stride` floats of each; then adds the gradient to g, which is laid out like the weights. */
    void (*fm_margins)(const mst_row *rows, uint32_t n, const mst_fm_weights *fm, float *sums,
                       uint32_t stride, float *margins);
    void (*fm_add_gradient)(const mst_row *rows, uint32_t n, const mst_fm_weights *fm, const float *coefs,
                            float scale, const float *sums, uint32_t stride, float *g);
    /* ffm: n_fields x k factors per term. */
    float (*ffm_margin)(const mst_terms *t, uint32_t k);
    void (*ffm_gradient)(const mst_terms *t, uint32_t k, uint32_t n_fields, const mst_term_rates *r);
    /* The gradient and the update in place, by Adagrad without L1 and L2, of terms whose parameters are
     * distinct keys of a store by rows: k is a multiple of 4, and their fields are consecutive; room is for
     * MST_FFM_ROOM(k, n_fields) floats. Racy. */
    void (*ffm_descend)(const mst_terms *t, uint32_t k, uint32_t n_fields, const mst_term_rates *r,
                        const mst_rule *rule, float *room, const mst_terms_ahead *ahead);
    /* fwfm: pairs (n_fields x stride) is symmetric; its diagonal is 0, and the weights of pairs within a
     * field are in `diagonal` (stride). stride is a multiple of MST_LANES_MAX, with zeros beyond n_fields.
     * sums and weighted (k x stride each) and within (stride) pass from margin to gradient. Adds to
     * pair_gradient (n_fields x stride): [f][g] is the derivative by the weight of fields f and g. */
    float (*fwfm_margin)(const mst_terms *t, uint32_t k, const float *pairs, const float *diagonal,
                         uint32_t stride, float *sums, float *weighted, float *within);
    void (*fwfm_gradient)(const mst_terms *t, uint32_t k, const float *diagonal, uint32_t stride,
                          const mst_term_rates *r, const float *sums, const float *weighted,
                          const float *within, float *pair_gradient);
} mst_kernels;

/* The kernels for an instruction set that this machine supports. */
const mst_kernels *mst_kernels_get(mst_isa isa);

#endif
