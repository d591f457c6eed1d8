/* Datasets in memory for tests of their readers: random access (cheap or not) and streams, with failures on
 * request. Row i is one entry, key FAKE_KEY + i, unless the test makes its own rows. */
#ifndef MST_TESTS_FAKE_DATASET_H
#define MST_TESTS_FAKE_DATASET_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"

#define FAKE_KEY 1000 /* above 0, so that no row becomes dense */

typedef enum fake_kind {
    FAKE_CHEAP,  /* random access, loading makes pointers; see fake_peeks */
    FAKE_COSTLY, /* random access, prefetched */
    FAKE_STREAM, /* chunks of uneven sizes, empty ones among them */
    FAKE_KINDS,
} fake_kind;

typedef mst_status fake_row(void *arg, uint64_t row, mst_chunk_builder *builder);

typedef struct fake_dataset {
    mst_dataset base;
    fake_row *make_row;
    void *arg;
    uint64_t n_rows;
    uint32_t next;                /* stream: chunk to read */
    uint64_t next_row;            /* stream: its first row */
    _Atomic(uint32_t) fail_chunk; /* reading or parsing it fails; UINT32_MAX: none */
    bool fail_in_read;            /* stream: the failure is in read, not in parse */
    uint32_t block_chunk;         /* reading it waits for `open`; UINT32_MAX: none */
    atomic_uint loads;            /* chunks made */
    atomic_uint skips;            /* blocks given back unparsed */
    pthread_mutex_t mutex;
    pthread_cond_t opened;
    bool open;
    mst_chunk **chunks; /* FAKE_CHEAP: ready-made */
} fake_dataset;

struct mst_raw_block {
    uint32_t number;
    uint64_t first_row;
    uint32_t n_rows;
};

static inline mst_status fake_plain_row(void *arg, uint64_t row, mst_chunk_builder *builder)
{
    (void)arg;
    TRY(mst_chunk_builder_room(builder, 1));
    mst_chunk_builder_add(builder, (uint32_t)(FAKE_KEY + row), 1.0f);
    return mst_chunk_builder_end_row(builder, (float)(row % 2), 1.0f);
}

static inline mst_status fake_make(fake_dataset *d, uint32_t number, uint64_t first, uint32_t n,
                                   mst_chunk **out)
{
    mst_chunk_builder builder;
    mst_status st = MST_OK;
    atomic_fetch_add(&d->loads, 1);
    if (number == d->fail_chunk)
        return mst_fail(MST_EINPUT, "%s: chunk %u is broken", d->base.name, number);
    mst_chunk_builder_init(&builder);
    for (uint32_t i = 0; i < n; i++)
        TRY_OUT(st, d->make_row(d->arg, first + i, &builder));
    st = mst_chunk_builder_pack(&builder, 0, n, out);
out:
    mst_chunk_builder_fini(&builder);
    return st;
}

static inline uint32_t fake_rows_of(const fake_dataset *d, uint32_t c)
{
    uint64_t first = (uint64_t)c * d->base.chunk_rows, left = d->n_rows - first;
    return (uint32_t)(left < d->base.chunk_rows ? left : d->base.chunk_rows);
}

static inline mst_status fake_load(mst_dataset *self, uint32_t c, mst_chunk **out)
{
    fake_dataset *d = (fake_dataset *)self;
    if (d->chunks != NULL && c != d->fail_chunk) {
        atomic_fetch_add(&d->loads, 1);
        mst_chunk_hold(d->chunks[c]);
        *out = d->chunks[c];
        return MST_OK;
    }
    return fake_make(d, c, (uint64_t)c * self->chunk_rows, fake_rows_of(d, c), out);
}

static inline mst_status fake_read(mst_dataset *self, mst_raw_block **out)
{
    fake_dataset *d = (fake_dataset *)self;
    if (d->next == d->block_chunk) {
        pthread_mutex_lock(&d->mutex);
        while (!d->open)
            pthread_cond_wait(&d->opened, &d->mutex);
        pthread_mutex_unlock(&d->mutex);
    }
    if (d->next == d->fail_chunk && d->fail_in_read)
        return mst_fail(MST_EIO, "%s: cannot read block %u", self->name, d->next);
    *out = NULL;
    if (d->next_row == d->n_rows)
        return MST_OK;
    /* uneven: empty, short, full */
    uint64_t left = d->n_rows - d->next_row;
    uint32_t n = d->next % 5 == 3 ? 0 : d->next % 3 == 1 ? self->chunk_rows / 2 + 1 : self->chunk_rows;
    mst_raw_block *block = malloc(sizeof *block);
    if (block == NULL)
        return mst_fail(MST_ENOMEM, "%s: block", self->name);
    *block = (mst_raw_block){d->next, d->next_row, (uint32_t)(left < n ? left : n)};
    d->next++;
    d->next_row += block->n_rows;
    *out = block;
    return MST_OK;
}

static inline mst_status fake_parse(mst_dataset *self, mst_raw_block *block, mst_chunk_builder *builder,
                                    mst_chunk **out)
{
    mst_raw_block b = *block;
    (void)builder;
    free(block);
    return fake_make((fake_dataset *)self, b.number, b.first_row, b.n_rows, out);
}

static inline void fake_skip(mst_dataset *self, mst_raw_block *block)
{
    atomic_fetch_add(&((fake_dataset *)self)->skips, 1);
    free(block);
}

static inline mst_status fake_rewind(mst_dataset *self)
{
    fake_dataset *d = (fake_dataset *)self;
    d->next = 0;
    d->next_row = 0;
    return MST_OK;
}

static inline void fake_destroy(mst_dataset *self)
{
    fake_dataset *d = (fake_dataset *)self;
    for (uint32_t c = 0; d->chunks != NULL && c < self->n_chunks; c++)
        mst_chunk_release(d->chunks[c]);
    free(d->chunks);
    pthread_mutex_destroy(&d->mutex);
    pthread_cond_destroy(&d->opened);
    free(d);
}

static inline void fake_open(fake_dataset *d)
{
    pthread_mutex_lock(&d->mutex);
    d->open = true;
    pthread_cond_broadcast(&d->opened);
    pthread_mutex_unlock(&d->mutex);
}

static const mst_data_kind fake_data_kind = {.name = "fake"};
static const mst_dataset_ops fake_random_ops = {.load = fake_load, .destroy = fake_destroy};
static const mst_dataset_ops fake_stream_ops = {.read = fake_read,
                                                .parse = fake_parse,
                                                .skip = fake_skip,
                                                .rewind = fake_rewind,
                                                .destroy = fake_destroy};

/* make_row NULL: plain rows. The caller destroys with mst_dataset_destroy. */
static inline fake_dataset *fake_new(fake_kind kind, uint64_t n_rows, uint32_t chunk_rows, fake_row *make_row,
                                     void *arg)
{
    static char name[] = "fake.data";
    fake_dataset *d = calloc(1, sizeof *d);
    if (d == NULL)
        abort();
    d->base = (mst_dataset){.kind = &fake_data_kind,
                            .ops = kind == FAKE_STREAM ? &fake_stream_ops : &fake_random_ops,
                            .name = name,
                            .random = kind != FAKE_STREAM,
                            .load_is_cheap = kind == FAKE_CHEAP,
                            .n_chunks = (uint32_t)((n_rows + chunk_rows - 1) / chunk_rows),
                            .chunk_rows = chunk_rows};
    d->make_row = make_row != NULL ? make_row : fake_plain_row;
    d->arg = arg;
    d->n_rows = n_rows;
    d->fail_chunk = d->block_chunk = UINT32_MAX;
    pthread_mutex_init(&d->mutex, NULL);
    pthread_cond_init(&d->opened, NULL);
    if (kind != FAKE_STREAM)
        d->base.info.n_rows = n_rows;
    if (kind == FAKE_CHEAP) {
        d->chunks = calloc(d->base.n_chunks + 1, sizeof *d->chunks);
        for (uint32_t c = 0; c < d->base.n_chunks; c++)
            if (fake_make(d, c, (uint64_t)c * chunk_rows, fake_rows_of(d, c), &d->chunks[c]) != MST_OK)
                abort();
        d->loads = 0;
    }
    return d;
}

/* FAKE_CHEAP: lanes make windows of rows in file order themselves. */
static inline void fake_peeks(fake_dataset *d)
{
    static const mst_dataset_ops ops = {.load = fake_load, .peek = fake_load, .destroy = fake_destroy};
    d->base.ops = &ops;
}

#endif
