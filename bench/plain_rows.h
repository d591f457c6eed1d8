/* The rows of the plain loops: 13 numbers and 26 categories, one record of 40 words per row, in memory. */
#ifndef MST_BENCH_PLAIN_ROWS_H
#define MST_BENCH_PLAIN_ROWS_H

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "data/cache.h"

enum {
    N_NUMBERS = 13,
    N_CATEGORIES = 26,
    RECORD = 1 + N_NUMBERS + N_CATEGORIES, /* label, numbers, keys: one word each */
};

typedef union word {
    float number;
    uint32_t key;
} word;

typedef struct rows {
    word *records; /* n * RECORD */
    uint64_t n;
} rows;

typedef struct copy_job {
    rows *out;
    uint64_t n_features, capacity;
    const char *path;
} copy_job;

static mst_status copy_chunk(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    copy_job *job = arg;
    for (uint32_t i = 0; i < chunk->n_rows; i++) {
        mst_row row;
        mst_chunk_row(chunk, i, &row);
        if (row.n_dense != N_NUMBERS || row.dense == NULL || row.n_keys != N_CATEGORIES || row.values != NULL)
            return mst_fail(MST_EINPUT,
                            "%s: row %llu is not 13 numbers and 26 categories; make the file with "
                            "`muster data gen criteo`",
                            job->path, (unsigned long long)(first_row + i));
        if (first_row + i >= job->capacity)
            return mst_fail(MST_EINPUT, "%s: more rows than in its header", job->path);
        word *record = job->out->records + (first_row + i) * RECORD;
        record[0].number = row.label > 0 ? 1.0f : 0.0f;
        memcpy(record + 1, row.dense, N_NUMBERS * sizeof *record);
        memcpy(record + 1 + N_NUMBERS, row.keys, N_CATEGORIES * sizeof *record);
        for (int j = 0; j < N_CATEGORIES; j++)
            if (row.keys[j] >= job->n_features)
                return mst_fail(MST_EINPUT, "%s: row %llu has feature %u; give --features above it",
                                job->path, (unsigned long long)(first_row + i), row.keys[j]);
    }
    return MST_OK;
}

/* out->records is the caller's to free; set only on MST_OK. */
static mst_status load(const char *path, uint64_t n_features, rows *out)
{
    mst_status st;
    mst_text_list paths = {0};
    mst_dataset *dataset = NULL;
    rows loaded = {0};
    TRY_OUT(st, mst_text_list_add(&paths, path));
    TRY_OUT(st, mst_cache_open(&paths, &dataset));
    loaded.n = dataset->info.n_rows;
    loaded.records = mst_calloc(loaded.n, RECORD * sizeof *loaded.records);
    if (loaded.records == NULL) {
        st = mst_fail(MST_ENOMEM, "%s: no memory for %llu rows", path, (unsigned long long)loaded.n);
        goto out;
    }
    copy_job job = {.out = &loaded, .n_features = n_features, .capacity = loaded.n, .path = path};
    TRY_OUT(st, mst_dataset_each(dataset, 1, copy_chunk, &job));
    *out = loaded;
    loaded.records = NULL;
out:
    mst_free(loaded.records);
    mst_dataset_destroy(dataset);
    mst_text_list_fini(&paths);
    return st;
}

#endif
