/* Resident datasets (contract: resident.h).
 *
 * Invariants
 * 1. The region is freed with the last of its chunks; the dataset holds one reference to each. */
#include "data/resident.h"

#include <inttypes.h>
#include <math.h>

#include "base/alloc.h"

#define MAX_REGION ((uint64_t)1 << 42)

typedef struct resident_chunk {
    mst_chunk base;
    struct resident_store *store;
} resident_chunk;

/* The memory of the chunks; lives until the last chunk is released. */
typedef struct resident_store {
    atomic_uint n_chunks;
    uint32_t *words;
    size_t region; /* bytes */
    resident_chunk *chunks;
} resident_store;

typedef struct resident_dataset {
    mst_dataset base;
    resident_store *store;
    uint32_t n_dense;
    size_t stride; /* words of a record */
    bool bytes;
} resident_dataset;

static void store_release(resident_store *store)
{
    mst_pages_release(store->words, store->region);
    mst_free(store->chunks);
    mst_free(store);
}

static void resident_chunk_destroy(mst_chunk *self)
{
    resident_store *store = ((resident_chunk *)self)->store;
    if (atomic_fetch_sub_explicit(&store->n_chunks, 1, memory_order_acq_rel) == 1)
        store_release(store);
}

static mst_status resident_load(mst_dataset *self, uint32_t c, mst_chunk **out)
{
    mst_chunk *chunk = &((resident_dataset *)self)->store->chunks[c].base;
    mst_chunk_hold(chunk);
    *out = chunk;
    return MST_OK;
}

static void resident_destroy(mst_dataset *self)
{
    resident_dataset *d = (resident_dataset *)self;
    if (d == NULL)
        return;
    resident_store *store = d->store;
    unsigned n = store != NULL ? atomic_load_explicit(&store->n_chunks, memory_order_relaxed) : 0;
    if (store != NULL && n == 0)
        store_release(store);
    for (unsigned c = 0; c < n; c++) /* the last of them takes the store along, unless others hold chunks */
        mst_chunk_release(&store->chunks[c].base);
    mst_text_list_fini(&(mst_text_list){.items = d->base.class_names, .n = d->base.n_class_names});
    mst_free(d->base.name);
    mst_free(d);
}

static const mst_dataset_ops resident_ops = {.load = resident_load, .destroy = resident_destroy};

mst_status mst_resident_new(const mst_data_kind *kind, const char *name, uint64_t n_rows, uint32_t n_dense,
                            bool bytes, mst_dataset **out)
{
    mst_status st = MST_OK;
    resident_dataset *d = mst_zalloc(sizeof *d);
    if (d == NULL)
        return mst_fail_memory();
    d->base.kind = kind;
    d->base.ops = &resident_ops;
    d->base.info.n_rows = n_rows;
    d->n_dense = n_dense;
    d->bytes = bytes;
    d->stride = 1 + (size_t)(bytes ? ((uint64_t)n_dense + 3) / 4 : n_dense);
    d->base.name = mst_strdup(name);
    d->store = mst_zalloc(sizeof *d->store);
    if (d->base.name == NULL || d->store == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    if (n_rows > MAX_REGION / 4 / d->stride || n_rows > (uint64_t)UINT32_MAX * MST_RESIDENT_ROWS) {
        st = mst_fail(MST_ENOMEM, "%s: %" PRIu64 " rows of %zu bytes do not fit into memory", name, n_rows,
                      d->stride * 4);
        goto out;
    }
    d->store->region = n_rows * d->stride * 4 + 4; /* there is always something to point at */
    d->store->words = mst_pages_reserve(d->store->region, false);
    if (d->store->words == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    *out = &d->base;
    d = NULL;
out:
    resident_destroy(d != NULL ? &d->base : NULL);
    return st;
}

uint32_t *mst_resident_record(mst_dataset *self, uint64_t row)
{
    resident_dataset *d = (resident_dataset *)self;
    return d->store->words + row * d->stride;
}

/* Chunk c of n rows from `first` on; adds its labels to the dataset's figures. */
static void make_chunk(resident_dataset *d, uint32_t c, uint64_t first, uint32_t n)
{
    resident_store *store = d->store;
    mst_data_info *info = &d->base.info;
    mst_chunk *chunk = &store->chunks[c].base;
    store->chunks[c].store = store;
    chunk->n_rows = n;
    chunk->n_dense = d->n_dense;
    chunk->dense_bytes = d->bytes;
    chunk->stride = (uint32_t)d->stride;
    chunk->words = store->words + first * d->stride;
    chunk->n_words = n * d->stride;
    chunk->max_key = d->n_dense - 1;
    chunk->n_entries = (uint64_t)n * d->n_dense;
    chunk->bytes_read = chunk->n_entries * (d->bytes ? 1 : 4);
    chunk->destroy = resident_chunk_destroy;
    atomic_init(&chunk->references, 1);
    const float *labels = (const float *)chunk->words;
    chunk->min_label = chunk->max_label = labels[0];
    for (uint32_t i = 0; i < n; i++) {
        float label = labels[i * d->stride];
        chunk->min_label = fminf(chunk->min_label, label);
        chunk->max_label = fmaxf(chunk->max_label, label);
        info->n_positive += label > 0.0f;
        info->labels_integral &= label == floorf(label);
    }
    info->min_label = c == 0 ? chunk->min_label : fminf(info->min_label, chunk->min_label);
    info->max_label = c == 0 ? chunk->max_label : fmaxf(info->max_label, chunk->max_label);
}

static mst_status shift_labels(resident_dataset *d, float from)
{
    for (uint64_t row = 0; from != 0.0f && row < d->base.info.n_rows; row++) {
        float *label = (float *)(d->store->words + row * d->stride);
        if (!(*label >= from))
            return mst_fail(MST_EINPUT, "%s: row %" PRIu64 " has label %g, which is below --labels-from %g",
                            d->base.name, row + 1, (double)*label, (double)from);
        *label -= from;
    }
    return MST_OK;
}

mst_status mst_resident_finish(mst_dataset *self, int64_t labels_from)
{
    resident_dataset *d = (resident_dataset *)self;
    mst_data_info *info = &self->info;
    uint64_t n_rows = info->n_rows;
    uint32_t n_chunks = (uint32_t)((n_rows + MST_RESIDENT_ROWS - 1) / MST_RESIDENT_ROWS);
    d->store->chunks = mst_calloc(n_chunks + 1u, sizeof *d->store->chunks);
    if (d->store->chunks == NULL)
        return mst_fail_memory();
    TRY(shift_labels(d, (float)labels_from));
    info->labels_integral = true;
    for (uint32_t c = 0; c < n_chunks; c++) {
        uint64_t first = (uint64_t)c * MST_RESIDENT_ROWS, left = n_rows - first;
        make_chunk(d, c, first, (uint32_t)(left < MST_RESIDENT_ROWS ? left : MST_RESIDENT_ROWS));
    }
    atomic_init(&d->store->n_chunks, n_chunks);
    info->n_dense = d->n_dense;
    info->n_features = d->n_dense;
    info->n_entries = n_rows * d->n_dense;
    info->scanned = true;
    self->random = true;
    self->load_is_cheap = true;
    self->n_chunks = n_chunks;
    self->chunk_rows = MST_RESIDENT_ROWS;
    return MST_OK;
}
