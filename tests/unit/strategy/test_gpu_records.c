/* Records of a dataset for a GPU: every chunk is sent once and as it is, in the order of the epoch and before
 * it is needed; failures name the file; rows that the GPU cannot take are found. The GPU is a table of this
 * file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data/array_rows.h"
#include "data/cache.h"
#include "data/write.h"
#include "fake_dataset.h"
#include "strategy/gpu_records.h"
#include "temp_folder.h"

#define ROWS   1003
#define CHUNK  16
#define CHUNKS ((ROWS + CHUNK - 1) / CHUNK)

/* ---- the GPU ---- */

static bool gpu_full; /* has no room */

struct mst_cuda_sparse {
    mst_cuda_sparse_records records;
    mst_cuda_sparse_part parts[CHUNKS + 1]; /* by chunk: places in `words` */
    uint64_t n_words;
    uint32_t *strides, *words, *staged[MST_CUDA_SPARSE_LOADS];
    unsigned sent[CHUNKS + 1], n_sent;
    bool dropped;
};

static mst_status table_hold(mst_cuda_sparse *self, const mst_cuda_sparse_records *r, bool *held)
{
    *held = !gpu_full;
    if (!*held)
        return MST_OK;
    self->records = *r;
    self->strides = malloc(r->n_chunks * sizeof *self->strides);
    self->words = calloc(r->n_words + 1, sizeof *self->words);
    memcpy(self->strides, r->strides, r->n_chunks * sizeof *self->strides);
    return MST_OK;
}

static mst_status table_stage(mst_cuda_sparse *self, uint32_t i, uint32_t **out)
{
    free(self->staged[i]);
    *out = self->staged[i] = calloc(MST_CUDA_SPARSE_LOAD, sizeof(uint32_t));
    return MST_OK;
}

static mst_status table_send(mst_cuda_sparse *self, uint32_t i, const mst_cuda_sparse_part *parts, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t c = parts[k].chunk;
        self->parts[c] = (mst_cuda_sparse_part){.chunk = c, .at = self->n_words, .n = parts[k].n};
        memcpy(self->words + self->n_words, self->staged[i] + parts[k].at, parts[k].n * sizeof(uint32_t));
        self->n_words += parts[k].n;
        self->sent[c]++;
        self->n_sent++;
    }
    return MST_OK;
}

static void table_drop(mst_cuda_sparse *self)
{
    self->dropped = true;
}

static const mst_cuda_sparse_ops table = {
    .hold = table_hold, .stage = table_stage, .send = table_send, .drop = table_drop};

static void table_clear(mst_cuda_sparse *self)
{
    for (uint32_t i = 0; i < MST_CUDA_SPARSE_LOADS; i++)
        free(self->staged[i]);
    free(self->strides), free(self->words);
    memset(self, 0, sizeof *self);
}

static mst_cuda_sparse gpu;

static mst_gpu_records *records_of(mst_feed *feed, const char *name, uint32_t head, unsigned threads)
{
    static mst_model model;
    mst_gpu_records *records = NULL;
    model = (mst_model){.ops = mst_model_find(name), .shape.n_fields = 8};
    mst_gpu_records_options o = {.ops = &table,
                                 .gpu = &gpu,
                                 .model = &model,
                                 .head = head,
                                 .apart = strcmp(name, "logreg") == 0,
                                 .n_threads = threads};
    table_clear(&gpu);
    assert_int_equal(mst_gpu_records_new(&o, feed, &records), MST_OK);
    return records;
}

static mst_feed *feed_of(mst_dataset *d, uint64_t shuffle_rows, uint64_t epoch, uint64_t position)
{
    mst_feed *feed = NULL;
    mst_feed_options o = {
        .seed = 3, .shuffle_rows = shuffle_rows, .n_lanes = 1, .max_take = 100, .prefetch_threads = 1};
    assert_int_equal(mst_feed_new(d, &o, &feed), MST_OK);
    assert_int_equal(mst_feed_start(feed, epoch, position), MST_OK);
    return feed;
}

static void wait_until(mst_gpu_records *records, uint64_t to)
{
    bool usable = false;
    assert_int_equal(mst_gpu_records_wait(records, to, &usable), MST_OK);
    assert_true(usable);
}

/* The rows on the GPU are those of the dataset. */
static void check_rows(mst_dataset *d, const mst_gpu_records *records, bool apart)
{
    for (uint32_t c = 0; c < d->n_chunks; c++) {
        mst_chunk *chunk, copy;
        assert_int_equal(d->ops->load(d, c, &chunk), MST_OK);
        const uint32_t *body = gpu.words + gpu.parts[c].at, *end = body + gpu.parts[c].n;
        copy = (mst_chunk){.n_rows = chunk->n_rows,
                           .n_dense = gpu.records.n_dense,
                           .dense_bytes = gpu.records.dense_bytes,
                           .has_weights = gpu.records.has_weights,
                           .has_values = gpu.records.has_values,
                           .has_fields = gpu.records.has_fields,
                           .stride = gpu.strides[c],
                           .offsets = end - (chunk->n_rows + 1),
                           .words = body};
        copy.n_words = (size_t)(end - body) - (copy.stride != 0 ? 0 : chunk->n_rows + 1);
        for (uint32_t i = 0; i < chunk->n_rows; i++) {
            mst_row a, b;
            mst_chunk_row(chunk, i, &a);
            mst_chunk_row(&copy, i, &b);
            assert_true(a.label == b.label && a.weight == b.weight);
            assert_int_equal(a.n_dense, b.n_dense);
            assert_int_equal(a.n_keys, b.n_keys);
            for (uint32_t k = 0; k < a.n_dense; k++)
                assert_true(mst_row_dense(&a, k) == mst_row_dense(&b, k));
            for (uint32_t k = 0; k < a.n_keys; k++) {
                assert_int_equal(a.keys[k], b.keys[k]);
                assert_true(a.values == NULL || a.values[k] == b.values[k]);
                assert_true(a.fields == NULL || a.fields[k] == b.fields[k]);
            }
            assert_int_equal(mst_gpu_records_entries(records, c * d->chunk_rows + i),
                             a.n_keys + (apart ? 0 : a.n_dense));
        }
        mst_chunk_release(chunk);
    }
}

/* ---- tests ---- */

/* The chunks of [from, to) have been sent. */
static void check_sent(const mst_feed *feed, uint64_t from, uint64_t to)
{
    static uint32_t numbers[ROWS];
    for (uint64_t at = from, first, end; at < to; at = end) {
        assert_true(mst_feed_window_at(feed, at, &first, &end));
        mst_feed_window_numbers(feed, first, numbers);
        for (uint64_t i = 0; i < end - first; i++)
            assert_int_equal(gpu.sent[numbers[i] / CHUNK], 1);
    }
}

static void chunks_are_sent_once_in_order(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 3; threads += 2)
        for (uint64_t shuffle = 0; shuffle <= 64; shuffle += 64) {
            fake_dataset *d = fake_new(FAKE_CHEAP, ROWS, CHUNK, NULL, NULL);
            mst_feed *feed = feed_of(&d->base, shuffle, 2, 500);
            mst_gpu_records *records = records_of(feed, "logreg", 0, threads);
            assert_non_null(records);
            assert_true(mst_gpu_records_uniform(records));
            mst_gpu_records_begin(records, 500); /* in the middle of an epoch */
            wait_until(records, 600);
            check_sent(feed, 500, 600);
            mst_gpu_records_pause(records);
            uint32_t n = gpu.n_sent;
            assert_in_range(n, 7, CHUNKS);
            wait_until(records, ROWS);
            check_sent(feed, 500, ROWS);
            mst_gpu_records_pause(records);
            assert_int_equal(mst_feed_start(feed, 3, 0), MST_OK);
            mst_gpu_records_begin(records, 0);
            wait_until(records, ROWS); /* those that were missing */
            check_sent(feed, 0, ROWS);
            assert_int_equal(gpu.n_sent, CHUNKS);
            mst_gpu_records_begin(records, 0);
            wait_until(records, ROWS);
            assert_int_equal(gpu.n_sent, CHUNKS);
            check_rows(&d->base, records, true);
            mst_gpu_records_destroy(records);
            assert_true(gpu.dropped);
            mst_feed_destroy(feed);
            mst_dataset_destroy(&d->base);
        }
}

/* Blocks of rows in the order of the epoch: their chunks are sent, and their numbers are those of the feed,
 * whether chunks remain to be copied (epoch 0) or not, with a pause in the middle. */
static void numbers_are_those_of_the_feed(void **state)
{
    (void)state;
    enum { BLOCK = 90 };
    uint32_t numbers[BLOCK], window[2 * 64];
    for (unsigned threads = 1; threads <= 4; threads += 3)
        for (uint64_t shuffle = 0; shuffle <= 64; shuffle += 64) {
            fake_dataset *d = fake_new(FAKE_CHEAP, ROWS, CHUNK, NULL, NULL);
            mst_feed *feed = feed_of(&d->base, shuffle, 0, 0);
            mst_gpu_records *records = records_of(feed, "logreg", 0, threads);
            for (uint64_t epoch = 0; epoch < 2; epoch++) {
                mst_gpu_records_pause(records);
                assert_int_equal(mst_feed_start(feed, epoch, 0), MST_OK);
                mst_gpu_records_begin(records, 0);
                assert_true(mst_gpu_records_ordered(records));
                for (uint64_t at = 0; at < ROWS; at += BLOCK) {
                    uint32_t n = ROWS - at < BLOCK ? (uint32_t)(ROWS - at) : BLOCK;
                    if (at == 5 * BLOCK)
                        mst_gpu_records_pause(records);
                    wait_until(records, at + n);
                    assert_int_equal(mst_gpu_records_numbers(records, at, n, numbers), MST_OK);
                    for (uint32_t i = 0; i < n; i++) {
                        uint64_t first, end;
                        assert_true(mst_feed_window_at(feed, at + i, &first, &end));
                        mst_feed_window_numbers(feed, first, window);
                        assert_int_equal(numbers[i], window[at + i - first]);
                        assert_int_equal(gpu.sent[numbers[i] / CHUNK], 1);
                    }
                }
            }
            mst_gpu_records_destroy(records);
            mst_feed_destroy(feed);
            mst_dataset_destroy(&d->base);
        }
}

/* Rows of 0 to 4 keys after two numbers; row *arg repeats a key. */
static mst_status make_ragged(void *arg, uint64_t row, mst_chunk_builder *b)
{
    TRY(mst_chunk_builder_room(b, 8));
    mst_chunk_builder_add(b, 0, 1.5f);
    mst_chunk_builder_add(b, 1, (float)row);
    for (uint32_t k = 0; k < row % 5; k++)
        mst_chunk_builder_add(b, 10 + (arg != NULL && row == *(uint64_t *)arg ? 0 : 3 * k), (float)(k + row));
    return mst_chunk_builder_end_row(b, (float)(row % 2), row % 7 == 0 ? 0.5f : 1.0f);
}

static void rows_of_several_lengths_keep_them(void **state)
{
    (void)state;
    fake_dataset *d = fake_new(FAKE_CHEAP, ROWS, CHUNK, make_ragged, NULL);
    for (uint32_t head = 2; head <= 5; head += 3) {
        mst_feed *feed = feed_of(&d->base, 64, 0, 0);
        mst_gpu_records *records = records_of(feed, "logreg", head, 2);
        assert_non_null(records);
        assert_false(mst_gpu_records_uniform(records));
        mst_gpu_records_begin(records, 0);
        wait_until(records, ROWS);
        check_rows(&d->base, records, head == 2); /* all rows have the whole head: it is an array */
        mst_cuda_sparse_rows rows;
        mst_gpu_records_describe(records, 10, &rows);
        assert_int_equal(rows.n_dense, head == 2 ? 2 : 0);
        assert_true(rows.weighted && rows.valued && rows.row_entries == 0 && rows.fill_head == (head == 5));
        mst_gpu_records_destroy(records);
        mst_feed_destroy(feed);
    }
    mst_dataset_destroy(&d->base);
}

static void arrays_become_records(void **state)
{
    (void)state;
    enum { N = 37 };
    float dense[N * 3], labels[N], weights[N], values[N * 4];
    uint8_t bytes[N * 3];
    int32_t starts[N + 1] = {0}, keys[N * 4];
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < 3; j++) {
            dense[i * 3 + j] = (float)(i - j);
            bytes[i * 3 + j] = (uint8_t)(i * 7 + j);
        }
        labels[i] = (float)(i % 2);
        weights[i] = (float)i + 0.5f;
        starts[i + 1] = starts[i];
        for (int j = 0; j < i % 4; j++, starts[i + 1]++) {
            keys[starts[i + 1]] = 3 + 5 * j + i % 5;
            values[starts[i + 1]] = (float)(i * j);
        }
    }
    for (int kind = 0; kind < 3; kind++) {
        mst_array_spec spec = {.name = "arrays",
                               .n_rows = N,
                               .n_features = 40,
                               .n_dense = 3,
                               .dense = {kind == 2 ? (const void *)bytes : dense,
                                         kind == 2 ? MST_ARRAY_UINT8 : MST_ARRAY_FLOAT32},
                               .labels = {labels, MST_ARRAY_FLOAT32},
                               .n_classes = 2};
        if (kind == 0) {
            spec.starts = (mst_array){starts, MST_ARRAY_INT32};
            spec.keys = (mst_array){keys, MST_ARRAY_INT32};
            spec.values = (mst_array){values, MST_ARRAY_FLOAT32};
            spec.n_entries = (uint64_t)starts[N];
            spec.weights = (mst_array){weights, MST_ARRAY_FLOAT32};
        } else {
            spec.n_features = 3;
        }
        mst_array_rows *rows = NULL;
        mst_dataset *d = NULL;
        assert_int_equal(mst_array_rows_new(&spec, 1, &rows), MST_OK);
        assert_int_equal(mst_array_rows_open(rows, "arrays", &d), MST_OK);
        mst_feed *feed = feed_of(d, 0, 0, 0);
        mst_gpu_records *records = records_of(feed, "softmax", 3, 1);
        assert_non_null(records);
        mst_gpu_records_begin(records, 0);
        wait_until(records, N);
        check_rows(d, records, false);
        mst_gpu_records_destroy(records);
        mst_feed_destroy(feed);
        mst_dataset_destroy(d);
        mst_array_rows_release(rows);
    }
}

static void other_datasets_are_packed(void **state)
{
    (void)state;
    for (fake_kind kind = FAKE_CHEAP; kind < FAKE_KINDS; kind++) {
        fake_dataset *d = fake_new(kind, ROWS, CHUNK, NULL, NULL);
        mst_feed *feed = feed_of(&d->base, 64, 0, 0);
        for (int full = 0; full < 2; full++) {
            gpu_full = full != 0;
            mst_gpu_records *records = records_of(feed, "logreg", 0, 1);
            assert_true((records != NULL) == (kind == FAKE_CHEAP && !full));
            mst_gpu_records_destroy(records);
        }
        gpu_full = false;
        mst_feed_destroy(feed);
        mst_dataset_destroy(&d->base);
    }
}

/* Second-order models add the values of a repeated key up, which the host does. */
static void repeated_keys_are_found(void **state)
{
    (void)state;
    uint64_t row = 704;
    fake_dataset *d = fake_new(FAKE_CHEAP, ROWS, CHUNK, make_ragged, &row);
    for (int factors = 0; factors < 2; factors++) {
        bool usable = false;
        mst_feed *feed = feed_of(&d->base, 0, 0, 0);
        mst_gpu_records *records = records_of(feed, factors ? "fm" : "logreg", 2, 1);
        assert_non_null(records);
        mst_gpu_records_begin(records, 0);
        assert_int_equal(mst_gpu_records_wait(records, ROWS, &usable), MST_OK);
        assert_true(usable == !factors);
        mst_gpu_records_destroy(records);
        mst_feed_destroy(feed);
    }
    mst_dataset_destroy(&d->base);
}

/* ---- files ---- */

static void write_cache(const char *path, uint64_t n_rows)
{
    mst_row_writer *w = NULL;
    mst_chunk_builder b;
    mst_chunk *chunk;
    mst_chunk_builder_init(&b);
    assert_int_equal(mst_row_writer_new(&mst_row_writer_cache, path, "key", &w), MST_OK);
    for (uint64_t i = 0; i < n_rows; i++)
        assert_int_equal(make_ragged(NULL, i, &b), MST_OK);
    assert_int_equal(mst_chunk_builder_pack(&b, 0, b.n_rows, &chunk), MST_OK);
    assert_int_equal(mst_row_writer_add(w, chunk), MST_OK);
    mst_chunk_release(chunk);
    assert_int_equal(mst_row_writer_commit(w, &(mst_data_info){0}), MST_OK);
    mst_row_writer_destroy(w);
    mst_chunk_builder_fini(&b);
}

static void a_cut_file_is_named(void **state)
{
    (void)state;
    static char path[] = "cut.cache";
    char *paths[] = {path};
    mst_dataset *d = NULL;
    bool usable;
    write_cache(path, 20000);
    assert_int_equal(mst_cache_open(&(mst_text_list){.items = paths, .n = 1}, &d), MST_OK);
    mst_feed *feed = feed_of(d, 0, 0, 0);
    mst_gpu_records *records = records_of(feed, "logreg", 2, 2);
    assert_non_null(records);
    assert_int_equal(truncate(path, 300000), 0);
    mst_gpu_records_begin(records, 0);
    assert_int_equal(mst_gpu_records_wait(records, 20000, &usable), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "cut.cache was cut from"));
    mst_gpu_records_destroy(records);
    mst_feed_destroy(feed);
    mst_dataset_destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_are_sent_once_in_order),
        cmocka_unit_test(numbers_are_those_of_the_feed),
        cmocka_unit_test(rows_of_several_lengths_keep_them),
        cmocka_unit_test(arrays_become_records),
        cmocka_unit_test(other_datasets_are_packed),
        cmocka_unit_test(repeated_keys_are_found),
        cmocka_unit_test(a_cut_file_is_named),
    };
    int failed = cmocka_run_group_tests(tests, enter_folder, remove_folder);
    table_clear(&gpu);
    return failed;
}
