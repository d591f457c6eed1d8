/* Generated images: balanced classes, rows that depend only on seed and number, separable classes,
 * description files, and the errors of invalid ones. */
#include "image_helpers.h"

#include <math.h>

#include "data/gen.h"

typedef struct rows {
    uint8_t *pixels; /* n x size */
    uint32_t *labels;
    uint64_t first, n;
    size_t size;
} rows;

static mst_status keep(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    rows *r = arg;
    for (uint32_t i = 0; i < chunk->n_rows; i++) {
        mst_row row;
        mst_chunk_row(chunk, i, &row);
        assert_int_equal(row.n_dense, r->size);
        assert_non_null(row.bytes);
        uint64_t at = first_row + i - r->first;
        assert_true(at < r->n);
        memcpy(r->pixels + at * r->size, row.bytes, r->size);
        r->labels[at] = (uint32_t)row.label;
    }
    return MST_OK;
}

static rows rows_new(const mst_gen_images_options *o)
{
    rows r = {.first = o->first_row, .n = o->rows, .size = (size_t)o->channels * o->height * o->width};
    r.pixels = malloc(r.n * r.size);
    r.labels = malloc(r.n * sizeof *r.labels);
    assert_true(r.pixels != NULL && r.labels != NULL);
    return r;
}

static void rows_free(rows *r)
{
    free(r->pixels);
    free(r->labels);
}

static rows generate(mst_gen_images_options o)
{
    rows r = rows_new(&o);
    assert_int_equal(mst_gen_images(&o, keep, &r), MST_OK);
    return r;
}

static const mst_gen_images_options usual = {
    .rows = 600, .classes = 50, .channels = 3, .height = 24, .width = 20, .seed = 4, .n_threads = 2};

static void test_rows(void **state)
{
    (void)state;
    mst_gen_images_options o = usual;
    rows all = generate(o);
    unsigned counts[50] = {0};
    for (uint64_t i = 0; i < all.n; i++)
        counts[all.labels[i]]++;
    for (int c = 0; c < 50; c++)
        assert_int_equal(counts[c], 12);
    o.first_row = 333;
    o.rows = 100;
    o.n_threads = 1;
    rows slice = generate(o); /* a slice is the same rows */
    assert_memory_equal(slice.pixels, all.pixels + 333 * all.size, 100 * all.size);
    assert_memory_equal(slice.labels, all.labels + 333, 100 * sizeof *all.labels);
    rows_free(&slice);
    o.seed++;
    slice = generate(o);
    assert_memory_not_equal(slice.pixels, all.pixels + 333 * all.size, all.size);
    rows_free(&slice);
    rows_free(&all);
}

/* The nearest class mean of the first rows names the class of the later ones. */
static void test_learnable(void **state)
{
    (void)state;
    mst_gen_images_options o = usual;
    rows all = generate(o);
    double *means = calloc(50 * all.size, sizeof *means);
    for (uint64_t i = 0; i < 400; i++)
        for (size_t j = 0; j < all.size; j++)
            means[all.labels[i] * all.size + j] += all.pixels[i * all.size + j] / 8.0;
    unsigned right = 0;
    for (uint64_t i = 400; i < 600; i++) {
        double best = INFINITY;
        uint32_t which = 0;
        for (uint32_t c = 0; c < 50; c++) {
            double distance = 0;
            for (size_t j = 0; j < all.size; j++)
                distance += pow(all.pixels[i * all.size + j] - means[c * all.size + j], 2);
            which = distance < best ? c : which;
            best = distance < best ? distance : best;
        }
        right += which == all.labels[i];
        for (uint64_t k = 0; k < i; k++) /* no image comes twice */
            assert_memory_not_equal(all.pixels + i * all.size, all.pixels + k * all.size, all.size);
    }
    assert_true(right >= 198);
    free(means);
    rows_free(&all);
}

static void test_file(void **state)
{
    (void)state;
    mst_gen_images_options o = usual;
    o.first_row = 70;
    rows all = generate(o), read = rows_new(&o);
    read.first = 0;
    assert_int_equal(mst_gen_images_save(&o, path_of("few.gen")), MST_OK);
    char *items[] = {(char *)path_of("few.gen")};
    mst_text_list list = {.items = items, .n = 1};
    mst_data_options options = {.format = "auto"};
    mst_dataset *d;
    assert_int_equal(mst_dataset_open(&list, &options, &d), MST_OK);
    assert_string_equal(d->kind->name, "gen");
    assert_true(d->random && d->info.scanned && d->info.n_rows == 600 && d->info.max_label == 49);
    assert_true(d->info.channels == 3 && d->info.height == 24 && d->info.width == 20);
    assert_int_equal(mst_dataset_each(d, 3, keep, &read), MST_OK);
    assert_memory_equal(read.pixels, all.pixels, 600 * all.size);
    assert_memory_equal(read.labels, all.labels, 600 * sizeof *all.labels);
    uint64_t positive = 0;
    for (uint64_t i = 0; i < all.n; i++)
        positive += all.labels[i] > 0;
    assert_int_equal(d->info.n_positive, positive);
    mst_dataset_destroy(d);
    rows_free(&all);
    rows_free(&read);
}

static void expect_bad(const char *text, const char *part)
{
    write_file("bad.gen", text, strlen(text));
    char *items[] = {(char *)path_of("bad.gen")};
    mst_dataset *d;
    assert_int_equal(mst_gen_images_open(&(mst_text_list){.items = items, .n = 1}, &d), MST_EINPUT);
    expect_text(part);
    expect_text("bad.gen");
}

static void test_bad(void **state)
{
    (void)state;
    expect_bad("hello", "does not begin with \"muster generated images 1\"");
    expect_bad("muster generated images 1\nclasses 50\n", "must give classes, size and rows");
    expect_bad("muster generated images 1\nclasses 1\n", "bad.gen:2:");
    expect_bad("muster generated images 1\nclasses 5\nclasses 5\n", "bad.gen:3:");
    expect_bad("muster generated images 1\nclasses 5\nsize 3x4\nrows 0\n", "bad.gen:4:");
    expect_bad("muster generated images 1\nclasses 5\nsize 20x4x4\nrows 9\n", "cannot be generated");
    expect_bad("muster generated images 1\nsize 16x8192x8192\nclasses 5\nrows 9\n", "cannot be generated");
    expect_bad("muster generated images 1\nclasses 5\nsize 3x4x4\nrows 5e18\n",
               "bad.gen: 5000000000000000000 rows");
    mst_gen_images_options o = usual;
    o.classes = 1;
    assert_int_equal(mst_gen_images(&o, keep, NULL), MST_EUSAGE);
    expect_text("gen images needs 2 to 10000 classes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_learnable),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_bad),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
