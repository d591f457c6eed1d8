/* The parameter store: one flat float32 vector [0, D) with named views, plus optimizer state in vectors of
 * the same length (slots).
 *
 * Invariants
 * 1. Views start on 64-byte boundaries (multiples of 16 floats) and do not overlap; gaps are never read.
 * 2. Memory is reserved lazily and zero at first: untouched weights cost nothing.
 * 3. w may be followed by a guard, which is not part of it.
 * 4. `spare` floats beyond D (by rows: keys beyond the last) are scratch of the local strategy (replicas of
 * hot weights), never checkpointed.
 * 5. The flat vector is a contract of views and ranges, not of a memory layout. If `by_rows` was asked for, a
 * key's weights and their state are near each other in memory (key_rows.h), so that a key costs few cache
 * misses. Dense views, and the keys of a sparse view below its `head`, are contiguous in w and slots. Ranges
 * that may have keys of the sparse view are copied with mst_params_read and mst_params_write.
 * 6. Views differ in the number of their slots, and a key may have one float of state for all its weights
 * (mst_view_state). The floats of a view in slot s then start at its offset, too, without gaps between keys:
 * mst_view_floats of them. Floats of slots that no view has are never touched, so that they take no memory.
 */
#ifndef MST_TENSOR_PARAMS_H
#define MST_TENSOR_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/key_rows.h"

#define MST_VIEW_MAX 128 /* views in a store */
#define MST_SLOT_MAX 4   /* optimizer state vectors */
/* Floats of a store: 16 TiB of them, and as much for each slot, fit into the address space of 128 TiB. */
#define MST_PARAMS_MAX (1ull << 42)
#define MST_VIEW_NDIM  4

typedef enum mst_view_kind {
    MST_VIEW_TRAINABLE,
    MST_VIEW_STATE, /* replaced, never added to (running mean of a batch norm); checkpointed */
} mst_view_kind;

/* The optimizer state of a view. */
typedef struct mst_view_state {
    uint32_t n_slots;
    bool per_key; /* keys from `head` on have one float of each slot; otherwise every weight has one */
    const char *names[MST_SLOT_MAX]; /* in checkpoints: "accumulator", "m", "v", ...; static */
} mst_view_state;

typedef struct mst_view {
    char name[48]; /* "weight", "bias", later "conv1.weight" */
    mst_view_kind kind;
    uint64_t offset, size; /* in floats */
    uint32_t
        width; /* parameters per key for sparse access: key k is [offset + k*width, +width); 0: dense only */
    uint32_t head; /* keys below it are a dense range; set by the model after mst_params_add */
    uint32_t n_dims;
    uint64_t dims[MST_VIEW_NDIM]; /* product = size */
    mst_view_state state;         /* set before mst_params_reserve */
} mst_view;

/* Floats of a view in slot - 1, or of its weights (slot 0). */
static inline uint64_t mst_view_floats(const mst_view *view, uint32_t slot)
{
    uint64_t dense = (uint64_t)view->head * view->width;
    return slot > view->state.n_slots          ? 0
           : slot == 0 || !view->state.per_key ? view->size
                                               : dense + (view->size - dense) / view->width;
}

/* The state of the weight at float `at` of the flat vector, as a position in slot - 1: of the first key that
 * begins at `at` or behind it, where keys have one float. mst_view_weight_at is the reverse. */
static inline uint64_t mst_view_state_at(const mst_view *view, uint32_t slot, uint64_t at)
{
    uint64_t dense = view->offset + (uint64_t)view->head * view->width;
    return slot == 0 || !view->state.per_key || at <= dense
               ? at
               : dense + (at - dense + view->width - 1) / view->width;
}

static inline uint64_t mst_view_weight_at(const mst_view *view, uint32_t slot, uint64_t at)
{
    uint64_t dense = view->offset + (uint64_t)view->head * view->width;
    return slot == 0 || !view->state.per_key || at <= dense ? at : dense + (at - dense) * view->width;
}

/* The keys of a sparse view. In vectors (`grouped` is false), and by rows with one weight per key, key k has
 * its `width` weights at at + k * stride. In vectors it has `state_width` floats of each slot (width, or 1),
 * state_stride apart from those of the next key. By rows, key_rows.h defines the places of its weights and
 * state; the scratch float is zero between steps. */
typedef struct mst_key_rows {
    float *at;
    uint32_t width, stride; /* 64-bit products: stride * key may be beyond 2^32 */
    uint32_t state_width, state_stride;
    bool grouped; /* by rows, with several weights per key */
    uint64_t n_keys;
    uint64_t first, end; /* floats of the flat vector that are here, and not in w and slots */
} mst_key_rows;

/* The first weight of a key, and its other weights, side by side. */
static inline float *mst_key_first(const mst_key_rows *rows, uint64_t key)
{
    return rows->at + (rows->grouped ? mst_row_first(key, rows->stride) : key * rows->stride);
}

static inline float *mst_key_rest(const mst_key_rows *rows, uint64_t key)
{
    return rows->at + (rows->grouped ? mst_row_rest(key, rows->stride) : key * rows->stride + 1);
}

/* Inlined always: gcc takes a function that only prefetches for one without effect. */
static inline __attribute__((always_inline)) void mst_key_prefetch(const mst_key_rows *rows, uint64_t key)
{
    const float *rest = mst_key_rest(rows, key);
    uint32_t n = rows->grouped ? rows->stride - MST_ROW_FIRST : rows->width - 1;
    __builtin_prefetch(mst_key_first(rows, key), 1);
    for (uint32_t i = 0; i < n; i += 16)
        __builtin_prefetch(rest + i, 1);
}

typedef struct mst_params {
    float *w;                   /* [0, size + spare) */
    float *slots[MST_SLOT_MAX]; /* optimizer state, [0, size) each; n_slots of them */
    uint64_t size, spare;       /* size: D, the end of the last view rounded up to a multiple of 16 floats */
    uint32_t n_views, n_slots;
    mst_view views[MST_VIEW_MAX];
    /* Asks for state next to the weights of a key; set before mst_params_reserve. Takes effect if there is
     * state, and for the first view with keys beyond its head. */
    bool by_rows;
    mst_key_rows rows; /* stride 0: the store is not by rows */
    struct {           /* of the view with keys, known from mst_params_reserve on */
        uint64_t first, end;
        uint64_t state; /* position of the state of key 0 in the slots */
        uint32_t n_slots, state_width;
    } keyed;
    uint64_t slot_step; /* by rows: slots[s] is w + (s + 1) * slot_step */
    /* If a view has one float per key, w is followed by inaccessible pages, so many that no 32-bit key of
     * the view is beyond them (base/fault.h). NULL: none, and keys must be below the view's size. */
    struct mst_fault_range *guard;
    size_t reach; /* bytes from w on, guard included; 0: none */
} mst_params;

/* Declares a view; call for all views before mst_params_reserve. Returns its index through *out (may be
 * NULL). */
mst_status mst_params_add(mst_params *params, const char *name, mst_view_kind kind, uint32_t width,
                          uint32_t n_dims, const uint64_t *dims, uint32_t *out);

/* Whether some of the floats [first, first + count) are in rows. */
static inline bool mst_params_in_rows(const mst_params *params, uint64_t first, uint64_t count)
{
    return params->rows.stride != 0 && first < params->rows.end && first + count > params->rows.first;
}

/* The end of the floats of slot - 1, or of the weights (slot 0), that are in rows; they begin at rows.first.
 */
static inline uint64_t mst_params_rows_end(const mst_params *params, uint32_t slot)
{
    const mst_key_rows *rows = &params->rows;
    return slot == 0 ? rows->end : rows->first + (rows->end - rows->first) / rows->width * rows->state_width;
}

/* The memory of the rows with floats [first, first + count) of a slot, all of which are in rows: of whole
 * groups of keys. */
static inline const float *mst_params_row_memory(const mst_params *params, uint32_t slot, uint64_t first,
                                                 uint64_t count, size_t *bytes)
{
    const mst_key_rows *rows = &params->rows;
    uint32_t width = slot == 0 ? rows->width : rows->state_width;
    uint64_t head = rows->n_keys - (rows->end - rows->first) / rows->width,
             from = head + (first - rows->first) / width,
             to = head + (first - rows->first + count + width - 1) / width;
    from -= from % MST_ROW_GROUP;
    to += (MST_ROW_GROUP - to % MST_ROW_GROUP) % MST_ROW_GROUP;
    *bytes = (size_t)(to - from) * rows->stride * sizeof(float);
    return rows->at + from * rows->stride;
}

/* Copies floats [first, first + count) of the weights (slot 0) or of state slot - 1 out of the store, or into
 * it. */
void mst_params_read(const mst_params *params, uint32_t slot, uint64_t first, uint64_t count, float *out);
void mst_params_write(mst_params *params, uint32_t slot, uint64_t first, uint64_t count, const float *in);
/* Sets the state in slot - 1 of the weights [first, first + count). */
void mst_params_fill(mst_params *params, uint32_t slot, uint64_t first, uint64_t count, float value);

/* The floats [*at, end) of the flat vector in slot - 1, or the weights (slot 0), piece by piece: the next
 * piece is *count floats from *first on. False: there are no more. *at moves to the end of the piece. */
bool mst_params_next_piece(const mst_params *params, uint32_t slot, uint64_t *at, uint64_t end,
                           uint64_t *first, uint64_t *count);
/* The reverse: the weights of `count` floats from *first on of slot - 1. False: the slot does not have them.
 */
bool mst_params_weights_of(const mst_params *params, uint32_t slot, uint64_t *first, uint64_t *count);

/* The state vectors of the weights from `at` on, for optimizers; of ranges that are not in rows. */
static inline void mst_params_slots(const mst_params *params, uint64_t at, float **slots)
{
    for (uint32_t s = 0; s < params->n_slots; s++)
        slots[s] = params->slots[s] + at;
}

/* The keys of the sparse view at `offset`, for optimizers and models. slots: their state in vectors, or by
 * rows the state of the first weight of key 0. */
static inline mst_key_rows mst_params_keys(const mst_params *params, uint64_t offset, uint32_t width,
                                           float **slots)
{
    mst_key_rows rows = params->rows;
    if (rows.stride == 0)
        rows = (mst_key_rows){.at = params->w + offset,
                              .width = width,
                              .stride = width,
                              .state_width = params->keyed.state_width,
                              .state_stride = params->keyed.state_width};
    for (uint32_t s = 0; slots != NULL && s < params->keyed.n_slots; s++)
        slots[s] = params->rows.stride != 0 ? rows.at + 1 + s : params->slots[s] + params->keyed.state;
    return rows;
}

/* Reserves w and n_slots state vectors. If no view has state, every trainable one gets n_slots floats per
 * weight. D beyond MST_PARAMS_MAX is MST_EINPUT. */
mst_status mst_params_reserve(mst_params *params, uint32_t n_slots, uint64_t spare);
void mst_params_fini(mst_params *params);

/* Whether some key pointed into the guard, which then received the write. */
bool mst_params_strayed(const mst_params *params);

bool mst_params_huge(const mst_params *params); /* the store is backed by huge pages */
/* Makes the pages of w and state present. For training on a store that is backed by huge pages (nothing
 * happens otherwise): random keys touch every one of those within the first rows anyway, one fault at a time.
 */
void mst_params_populate(mst_params *params);
void mst_params_populate_part(mst_params *params, uint64_t first,
                              uint64_t count); /* floats [first, +count) only */

/* The rows of keys, before mst_params_reserve those that it will make; stride 0: there are none. */
mst_key_rows mst_params_planned_rows(const mst_params *params);
/* Bytes of weights and state that the store takes when all of it is touched, without spare floats; reserved
 * or not. */
uint64_t mst_params_bytes(const mst_params *params);

/* The number of parameters: the sizes of all views, without the gaps between them. */
uint64_t mst_params_count(const mst_params *params);

const mst_view *mst_params_find(const mst_params *params, const char *name); /* NULL when absent */

#endif
