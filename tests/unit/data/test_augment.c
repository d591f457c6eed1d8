/* Augmentation: crops, padding, mirroring and normalisation of single rows, through the feed, with the same
 * result for any threads, lanes and shares. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "data/augment.h"
#include "data/feed.h"
#include "data/resident.h"

static void expect_text(const char *part)
{
    if (strstr(mst_error_text(), part) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", part, mst_error_text());
}

enum { C = 2, H = 6, W = 8, N = C * H * W, ROWS = 1500 };

/* Number i of row r; never 0, which is black. */
static uint8_t pixel(uint32_t r, uint32_t i)
{
    return (uint8_t)(1 + (r * 17 + i * 3) % 255);
}

static mst_dataset *make_images(bool bytes)
{
    mst_dataset *d;
    assert_int_equal(mst_resident_new(&(mst_data_kind){.name = "test"}, "images", ROWS, N, bytes, &d),
                     MST_OK);
    for (uint32_t r = 0; r < ROWS; r++) {
        uint32_t *record = mst_resident_record(d, r);
        float label = (float)r;
        memcpy(record, &label, sizeof label);
        for (uint32_t i = 0; i < N; i++)
            if (bytes)
                ((uint8_t *)(record + 1))[i] = pixel(r, i);
            else
                ((float *)(record + 1))[i] = pixel(r, i);
    }
    assert_int_equal(mst_resident_finish(d, 0), MST_OK);
    d->info.channels = C;
    d->info.height = H;
    d->info.width = W;
    return d;
}

/* Row r as bytes, through the augmentation. */
static void augmented(const mst_augment *a, bool training, uint64_t epoch, uint32_t r, uint8_t *in,
                      float *memory, mst_row *row)
{
    for (uint32_t i = 0; i < N; i++)
        in[i] = pixel(r, i);
    *row = (mst_row){.bytes = in, .n_dense = N, .label = (float)r};
    mst_augment_row(a, training, epoch, r, memory, row);
}

static void test_nothing(void **state)
{
    (void)state;
    mst_dataset *d = make_images(true);
    mst_augment a;
    assert_int_equal(mst_augment_init(&a, &(mst_augment_options){.normalise = "none"}, d, 1), MST_OK);
    assert_false(a.any);
    char *text = mst_augment_normalise_text(&a);
    assert_string_equal(text, "none");
    mst_free(text);
    mst_dataset_destroy(d);
}

static void test_mirror(void **state)
{
    (void)state;
    mst_dataset *d = make_images(true);
    mst_augment a;
    assert_int_equal(mst_augment_init(&a, &(mst_augment_options){.mirror = true}, d, 1), MST_OK);
    unsigned mirrored = 0;
    for (uint32_t r = 0; r < ROWS; r++) {
        uint8_t in[N];
        float memory[N];
        mst_row row;
        augmented(&a, true, 3, r, in, memory, &row);
        if (row.bytes == in)
            continue; /* not even copied */
        mirrored++;
        assert_ptr_equal(row.bytes, memory);
        for (uint32_t i = 0; i < N; i++)
            assert_int_equal(row.bytes[i], in[i / W * W + W - 1 - i % W]);
        augmented(&a, false, 3, r, in, memory, &row);
        assert_ptr_equal(row.bytes, in);
    }
    assert_in_range(mirrored, ROWS / 2 - 100, ROWS / 2 + 100);
    mst_dataset_destroy(d);
}

/* Finds where a row's crop lies by comparing with every place; counts how often each is chosen. */
static void test_crop(void **state)
{
    (void)state;
    mst_dataset *d = make_images(true);
    mst_augment a;
    mst_augment_options o = {.crop = "4x5", .crop_pad = 1};
    assert_int_equal(mst_augment_init(&a, &o, d, 1), MST_OK);
    assert_true(a.height == 4 && a.width == 5 && mst_augment_out(&a) == C * 4 * 5 && mst_augment_in(&a) == N);
    unsigned seen[5][6] = {{0}};
    for (uint32_t r = 0; r < ROWS; r++) {
        uint8_t in[N];
        float memory[N];
        mst_row row;
        augmented(&a, true, 0, r, in, memory, &row);
        assert_int_equal(row.n_dense, C * 4 * 5);
        int found = 0;
        for (int y0 = -1; y0 <= H + 1 - 4; y0++)
            for (int x0 = -1; x0 <= W + 1 - 5; x0++) {
                bool same = true;
                for (int i = 0; i < C * 20 && same; i++) {
                    int c = i / 20, y = y0 + i % 20 / 5, x = x0 + i % 5;
                    bool inside = y >= 0 && y < H && x >= 0 && x < W;
                    same = row.bytes[i] == (inside ? in[c * H * W + y * W + x] : 0);
                }
                found += same;
                seen[y0 + 1][x0 + 1] += same;
            }
        assert_int_equal(found, 1);
        augmented(&a, false, 0, r, in, memory, &row); /* the centre: 1 from the top, 1 from the left */
        assert_int_equal(row.bytes[0], in[1 * W + 1]);
    }
    for (int y = 0; y < 5; y++)
        for (int x = 0; x < 6; x++)
            assert_in_range(seen[y][x], ROWS / 30 / 2, ROWS / 30 * 2);
    mst_dataset_destroy(d);
}

static void test_normalise(void **state)
{
    (void)state;
    mst_dataset *d = make_images(true), *floats = make_images(false);
    mst_augment a;
    mst_augment_options o = {.normalise = "0.5,0.25/0.5,0.125", .crop_pad = 2, .mirror = true};
    uint8_t in[N];
    float memory[N];
    mst_row row;
    assert_int_equal(mst_augment_init(&a, &o, d, 1), MST_OK);
    augmented(&a, false, 0, 7, in, memory, &row);
    assert_null(row.bytes);
    assert_ptr_equal(row.dense, memory);
    for (uint32_t i = 0; i < N; i++) {
        float x = (float)in[i] / 255.0f, want = i < N / 2 ? (x - 0.5f) / 0.5f : (x - 0.25f) / 0.125f;
        assert_true(fabsf(row.dense[i] - want) < 1e-5f);
    }
    /* padding is black, not zero, after normalising: some row is moved down */
    bool black = false;
    for (uint32_t r = 0; r < 50; r++) {
        augmented(&a, true, 0, r, in, memory, &row);
        black |= row.dense[0] == -1.0f && row.dense[W - 1] == -1.0f;
    }
    assert_true(black);

    /* auto: every row, since loading is cheap */
    o = (mst_augment_options){.normalise = "auto"};
    assert_int_equal(mst_augment_init(&a, &o, d, 1), MST_OK);
    double sum = 0, squares = 0;
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t i = 0; i < N / 2; i++) {
            double x = pixel(r, i) / 255.0;
            sum += x;
            squares += x * x;
        }
    double n = (double)ROWS * N / 2, mean = sum / n, deviation = sqrt(squares / n - mean * mean);
    assert_true(fabs(a.mean[0] - mean) < 1e-6 && fabs(a.deviation[0] - deviation) < 1e-6);
    char *text = mst_augment_normalise_text(&a);
    mst_augment again;
    o.normalise = text;
    assert_int_equal(mst_augment_init(&again, &o, d, 1), MST_OK);
    assert_memory_equal(a.mean, again.mean, sizeof a.mean);
    assert_memory_equal(a.deviation, again.deviation, sizeof a.deviation);
    mst_free(text);

    /* numbers that are no bytes are in units of their own */
    o.normalise = "auto";
    assert_int_equal(mst_augment_init(&again, &o, floats, 1), MST_OK);
    assert_true(fabs(again.mean[0] - 255.0 * mean) < 1e-3);
    float dense[N] = {3.0f};
    row = (mst_row){.dense = dense, .n_dense = N};
    mst_augment_row(&again, false, 0, 0, memory, &row);
    assert_true(fabsf(row.dense[0] - (3.0f - again.mean[0]) / again.deviation[0]) < 1e-5f);
    mst_dataset_destroy(d);
    mst_dataset_destroy(floats);
}

static void expect_refused(mst_dataset *d, mst_augment_options o, const char *part)
{
    mst_augment a;
    assert_int_equal(mst_augment_init(&a, &o, d, 1), MST_EUSAGE);
    assert_false(a.any);
    expect_text(part);
}

static void test_refused(void **state)
{
    (void)state;
    mst_dataset *d = make_images(true);
    static const char *const bad[] = {"1",        "0,0",       "0,0/1",   "0,0/1,0",
                                      "0,0/1,-1", "0,0/1,1,1", "a,b/c,d", "0,0/nan,1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_refused(d, (mst_augment_options){.normalise = (char *)bad[i]},
                       "give none, auto, or 2 means separated by commas, a slash and 2 deviations above 0");
    expect_refused(d, (mst_augment_options){.crop = "7x8"},
                   "--crop 7x8: the images of images have 6 x 8 pixels");
    expect_refused(d, (mst_augment_options){.crop = "7"}, "--crop 7: give HxW");
    d->info.channels = 0;
    expect_refused(d, (mst_augment_options){.mirror = true},
                   "--mirror is for images, but the sides of those in");
    mst_dataset_destroy(d);
}

/* ---- through the feed ---- */

/* Sums of the numbers of every row of an epoch, by row number. */
static void epoch_sums(mst_dataset *d, const mst_augment *a, unsigned lanes, uint32_t take, uint64_t epoch,
                       uint64_t shuffle, double *sums)
{
    mst_feed *feed;
    mst_feed_options o = {.seed = 3,
                          .shuffle_rows = shuffle,
                          .prefetch_threads = 1,
                          .n_lanes = lanes,
                          .max_take = take,
                          .features = mst_augment_out(a),
                          .augment = a,
                          .training = true};
    assert_int_equal(mst_feed_new(d, &o, &feed), MST_OK);
    assert_int_equal(mst_feed_start(feed, epoch, 0), MST_OK);
    for (unsigned turn = 0;; turn++) {
        mst_batch batch;
        uint64_t position;
        assert_int_equal(mst_feed_take(feed, turn % lanes, take, &batch, &position), MST_OK);
        if (batch.n_rows == 0)
            break;
        for (uint32_t i = 0; i < batch.n_rows; i++) {
            const mst_row *row = &batch.rows[i];
            double sum = 0;
            assert_int_equal(row->n_dense, mst_augment_out(a));
            for (uint32_t j = 0; j < row->n_dense; j++)
                sum += (j + 1) * (double)(row->bytes != NULL ? row->bytes[j] : row->dense[j]);
            sums[(uint32_t)row->label] = sum;
        }
    }
    mst_feed_destroy(feed);
}

static void test_feed(void **state)
{
    (void)state;
    mst_dataset *d = make_images(true);
    mst_augment a;
    mst_augment_options o = {.crop = "4x5", .crop_pad = 1, .mirror = true, .normalise = "auto"};
    static double first[ROWS], sums[ROWS];
    for (int normalise = 0; normalise < 2; normalise++) {
        o.normalise = normalise ? "auto" : "none";
        assert_int_equal(mst_augment_init(&a, &o, d, 9), MST_OK);
        epoch_sums(d, &a, 1, 32, 0, 65536, first);
        epoch_sums(d, &a, 3, 7, 0, 100, sums); /* other lanes, batches and windows */
        assert_memory_equal(first, sums, sizeof sums);
        epoch_sums(d, &a, 1, 32, 1, 65536, sums); /* another epoch */
        unsigned same = 0;
        for (uint32_t r = 0; r < ROWS; r++)
            same += first[r] == sums[r];
        assert_true(same < ROWS / 10);
        for (uint32_t r = 0; r < 20; r++) { /* what the feed hands out is what the row alone gives */
            uint8_t in[N];
            float memory[N];
            mst_row row;
            double sum = 0;
            augmented(&a, true, 1, r, in, memory, &row);
            for (uint32_t j = 0; j < row.n_dense; j++)
                sum += (j + 1) * (double)(row.bytes != NULL ? row.bytes[j] : row.dense[j]);
            assert_true(sum == sums[r]);
        }
    }
    d->info.width = W - 1; /* another data set */
    mst_feed *feed;
    mst_feed_options options = {.n_lanes = 1, .max_take = 4, .augment = &a};
    assert_int_equal(mst_feed_new(d, &options, &feed), MST_EINPUT);
    expect_text("its images are 2 x 6 x 7, but the model is trained on images of 2 x 6 x 8");
    mst_dataset_destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing),   cmocka_unit_test(test_mirror),  cmocka_unit_test(test_crop),
        cmocka_unit_test(test_normalise), cmocka_unit_test(test_refused), cmocka_unit_test(test_feed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
