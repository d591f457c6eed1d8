/* Predictions in a program through the public interface, on one thread.
 *
 *     bench_api RUN FILE SECONDS
 *
 * FILE is Criteo text, whose rows are read into memory first; RUN has a model of its format without fields.
 * Prints rows per second of muster_model_predict, with 128 rows and with 1 row per call, and of
 * muster_model_predict_data on a CSR matrix. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "data/dataset.h"
#include "muster/muster.h"

typedef struct matrix {
    uint32_t *keys;
    int64_t *starts;
    size_t n_rows, n_keys, row_capacity, key_capacity;
} matrix;

static mst_status matrix_add(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    matrix *m = arg;
    (void)first_row;
    for (uint32_t i = 0; i < chunk->n_rows; i++) {
        mst_row row;
        float ones[64] = {0};
        mst_chunk_row(chunk, i, &row);
        if (row.n_keys > 64 || row.n_dense > 0 || row.values != NULL)
            return mst_fail(MST_EINPUT, "rows must have up to 64 keys and no numbers");
        if (!mst_grow(&m->keys, &m->key_capacity, m->n_keys + row.n_keys, sizeof *m->keys) ||
            !mst_grow(&m->starts, &m->row_capacity, m->n_rows + 2, sizeof *m->starts))
            return mst_fail_memory();
        for (uint32_t k = 0; k < row.n_keys; k++)
            m->keys[m->n_keys + k] = row.keys[k];
        TRY(mst_sort_row(m->keys + m->n_keys, ones, row.n_keys));
        m->n_keys += row.n_keys;
        m->n_rows++;
        m->starts[m->n_rows] = (int64_t)m->n_keys;
    }
    return MST_OK;
}

static mst_status matrix_read(const char *path, uint64_t features, matrix *out)
{
    mst_data_options options = {.format = (char *)"criteo", .features = (int64_t)features};
    mst_text_list files = {0};
    mst_dataset *dataset = NULL;
    mst_status st;
    TRY_OUT(st, mst_text_list_add(&files, path));
    TRY_OUT(st, mst_dataset_open(&files, &options, &dataset));
    TRY_OUT(st, mst_dataset_each(dataset, 1, matrix_add, out));
    if (out->n_rows == 0)
        TRY_OUT(st, mst_fail(MST_EINPUT, "%s has no rows", path));
    out->starts[0] = 0;
out:
    mst_dataset_destroy(dataset);
    mst_text_list_fini(&files);
    return st;
}

/* Rows per second of predictions with `at_once` rows per call. */
static mst_status measure_rows(const muster_model *model, const matrix *m, size_t at_once, double seconds,
                               double *out)
{
    muster_row rows[128] = {0};
    float probabilities[256];
    uint64_t start = mst_now_ns(), done = 0, end = start + (uint64_t)(seconds * 1e9);
    for (size_t row = 0; mst_now_ns() < end; row = row + 2 * at_once <= m->n_rows ? row + at_once : 0) {
        for (size_t i = 0; i < at_once; i++)
            rows[i] = (muster_row){.keys = m->keys + m->starts[row + i],
                                   .n_keys = (uint32_t)(m->starts[row + i + 1] - m->starts[row + i])};
        if (muster_model_predict(model, rows, at_once, probabilities) != MUSTER_OK)
            return MST_EINPUT;
        done += at_once;
    }
    *out = (double)done / mst_seconds_since(start);
    return MST_OK;
}

static mst_status measure_data(const muster_model *model, const matrix *m, double seconds, double *out)
{
    muster_arrays arrays = {.size = sizeof arrays,
                            .name = "rows",
                            .n_rows = m->n_rows,
                            .n_features = muster_model_features(model),
                            .starts = {m->starts, MUSTER_INT64},
                            .columns = {m->keys, MUSTER_UINT32},
                            .n_entries = m->n_keys};
    float *probabilities = mst_calloc(m->n_rows, 2 * sizeof *probabilities);
    muster_data *data = NULL;
    uint64_t done = 0, start;
    mst_status st = MST_OK;
    if (probabilities == NULL || muster_data_new(&arrays, 1, &data) != MUSTER_OK)
        TRY_OUT(st, MST_EINPUT);
    for (start = mst_now_ns(); mst_seconds_since(start) < seconds; done += m->n_rows)
        if (muster_model_predict_data(model, data, MUSTER_PROBABILITIES, 1, probabilities) != MUSTER_OK)
            TRY_OUT(st, MST_EINPUT);
    *out = (double)done / mst_seconds_since(start);
out:
    muster_data_free(data);
    mst_free(probabilities);
    return st;
}

int main(int argc, char **argv)
{
    muster_model *model = NULL;
    matrix m = {0};
    double seconds = argc == 4 ? atof(argv[3]) : 0.0, many, one, data;
    if (argc != 4) {
        fprintf(stderr, "usage: bench_api RUN FILE SECONDS\n");
        return 2;
    }
    if (muster_model_load(argv[1], NULL, &model) != MUSTER_OK ||
        matrix_read(argv[2], muster_model_features(model), &m) != MST_OK ||
        measure_rows(model, &m, 128, seconds, &many) != MST_OK ||
        measure_rows(model, &m, 1, seconds, &one) != MST_OK ||
        measure_data(model, &m, seconds, &data) != MST_OK) {
        fprintf(stderr, "bench_api: %s\n", muster_error_text());
        return 1;
    }
    printf("rows_128_per_s %.0f\nrows_1_per_s %.0f\ndata_rows_per_s %.0f\n", many, one, data);
    muster_model_free(model);
    mst_free(m.keys);
    mst_free(m.starts);
    return 0;
}
