/* IDX files: bytes and other types, labels by name and by option, many files, chunks, and the sentence of
 * every bad file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "data/idx.h"

static char folder[64];

static const char *path_of(const char *name)
{
    static char paths[4][128];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static int setup(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/muster-idx-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int teardown(void **state)
{
    (void)state;
    return mst_remove_tree(folder) != MST_OK;
}

/* Writes magic, dimensions and n bytes of body; gz by name. */
static void write_idx(const char *name, unsigned type, unsigned n_dimensions, const uint32_t *dimensions,
                      const void *body, size_t n)
{
    uint8_t head[64] = {0, 0, (uint8_t)type, (uint8_t)n_dimensions};
    for (unsigned d = 0; d < n_dimensions; d++)
        for (unsigned i = 0; i < 4; i++)
            head[4 + 4 * d + i] = (uint8_t)(dimensions[d] >> (24 - 8 * i));
    bool gz = strstr(name, ".gz") != NULL;
    gzFile file = gzopen(path_of(name), gz ? "wb" : "wbT");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, head, 4 + 4 * n_dimensions), 4 + 4 * n_dimensions);
    if (n > 0)
        assert_int_equal(gzwrite(file, body, (unsigned)n), n);
    assert_int_equal(gzclose(file), Z_OK);
}

static mst_status open_idx(const char *name, const char *labels, mst_dataset **out)
{
    char *items[] = {(char *)path_of(name)};
    mst_text_list list = {.items = items, .n = 1};
    mst_data_options options = {.labels = (char *)labels};
    return mst_idx_open(&list, &options, out);
}

static void expect_failure(const char *name, const char *labels, mst_status code, const char *part)
{
    mst_dataset *d = NULL;
    assert_int_equal(open_idx(name, labels, &d), code);
    assert_null(d);
    if (strstr(mst_error_text(), part) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", part, mst_error_text());
    assert_non_null(strstr(mst_error_text(), folder));
}

enum { ROWS = 2500, SIDE = 3 };

static void write_digits(const char *images, const char *labels)
{
    static uint8_t pixels[ROWS * SIDE * SIDE], classes[ROWS];
    for (int i = 0; i < ROWS; i++) {
        classes[i] = (uint8_t)(i % 10);
        for (int j = 0; j < SIDE * SIDE; j++)
            pixels[i * SIDE * SIDE + j] = (uint8_t)(i * 7 + j * 31);
    }
    write_idx(images, 8, 3, (const uint32_t[]){ROWS, SIDE, SIDE}, pixels, sizeof pixels);
    write_idx(labels, 8, 1, (const uint32_t[]){ROWS}, classes, sizeof classes);
}

static void check_digits(mst_dataset *d, uint64_t n_rows)
{
    assert_true(d->random && d->load_is_cheap && d->info.scanned && d->info.labels_integral);
    assert_int_equal(d->info.n_rows, n_rows);
    assert_int_equal(d->info.n_features, 9);
    assert_int_equal(d->info.n_dense, 9);
    assert_int_equal(d->info.n_positive, n_rows / 10 * 9);
    assert_true(d->info.min_label == 0 && d->info.max_label == 9);
    assert_true(d->info.channels == 1 && d->info.height == SIDE && d->info.width == SIDE);
    assert_int_equal(d->chunk_rows, MST_IDX_ROWS);
    assert_int_equal(d->n_chunks, (n_rows + MST_IDX_ROWS - 1) / MST_IDX_ROWS);
    uint64_t at = 0;
    for (uint32_t c = 0; c < d->n_chunks; c++) {
        mst_chunk *chunk;
        assert_int_equal(d->ops->load(d, c, &chunk), MST_OK);
        assert_int_equal(chunk->max_key, 8);
        for (uint32_t i = 0; i < chunk->n_rows; i++, at++) {
            mst_row row;
            uint64_t number = at % ROWS;
            mst_chunk_row(chunk, i, &row);
            assert_true(row.label == (float)(number % 10) && row.weight == 1.0f);
            assert_int_equal(row.n_dense, 9);
            assert_int_equal(row.n_keys, 0);
            assert_non_null(row.bytes);
            for (int j = 0; j < 9; j++)
                assert_int_equal(row.bytes[j], (uint8_t)(number * 7 + (unsigned)j * 31));
        }
        mst_chunk_release(chunk);
    }
    assert_int_equal(at, n_rows);
}

static void bytes(void **state)
{
    (void)state;
    mst_dataset *d;
    write_digits("train-images-idx3-ubyte", "train-labels-idx1-ubyte");
    assert_int_equal(open_idx("train-images-idx3-ubyte", NULL, &d), MST_OK);
    check_digits(d, ROWS);
    assert_string_equal(d->name, path_of("train-images-idx3-ubyte"));
    mst_chunk *kept; /* a chunk outlives its dataset */
    assert_int_equal(d->ops->load(d, 2, &kept), MST_OK);
    d->ops->destroy(d);
    mst_row row;
    mst_chunk_row(kept, 0, &row);
    assert_true(row.label == (float)(2048 % 10));
    mst_chunk_release(kept);
}

static void labels_from_1(void **state)
{
    (void)state;
    uint8_t pixels[4] = {0}, classes[4] = {1, 26, 3, 1};
    mst_dataset *d;
    char *images = (char *)path_of("letters-images-idx1-ubyte");
    mst_text_list list = {.items = &images, .n = 1};
    mst_data_options options = {.labels_from = 1};
    write_idx("letters-images-idx1-ubyte", 8, 3, (const uint32_t[]){4, 1, 1}, pixels, 4);
    write_idx("letters-labels-idx1-ubyte", 8, 1, (const uint32_t[]){4}, classes, 4);
    options.labels = strdup(path_of("letters-labels-idx1-ubyte"));
    assert_int_equal(mst_idx_open(&list, &options, &d), MST_OK);
    assert_true(d->info.min_label == 0 && d->info.max_label == 25);
    d->ops->destroy(d);
    options.labels_from = 3;
    assert_int_equal(mst_idx_open(&list, &options, &d), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "row 1 has label 1, which is below --labels-from 3"));
    free(options.labels);
}

static void compressed_and_many(void **state)
{
    (void)state;
    mst_dataset *d;
    write_digits("a-images-idx3-ubyte.gz", "a-labels-idx1-ubyte.gz");
    assert_int_equal(open_idx("a-images-idx3-ubyte.gz", NULL, &d), MST_OK);
    check_digits(d, ROWS);
    d->ops->destroy(d);
    write_digits("b-images-idx3-ubyte", "b-labels-idx1-ubyte");
    write_digits("c.images", "c.labels");
    assert_int_equal(open_idx("c.images", path_of("c.labels"), &d), MST_OK);
    check_digits(d, ROWS);
    d->ops->destroy(d);

    char *items[] = {(char *)path_of("a-images-idx3-ubyte.gz"), (char *)path_of("b-images-idx3-ubyte"),
                     (char *)path_of("b-labels-idx1-ubyte")};
    mst_text_list list = {.items = items, .n = 3};
    mst_data_options options = {0};
    assert_int_equal(mst_idx_open(&list, &options, &d), MST_OK);
    check_digits(d, 2 * ROWS);
    assert_non_null(strstr(d->name, "a-images-idx3-ubyte.gz and 1 more"));
    d->ops->destroy(d);
    options.labels = "x";
    assert_int_equal(mst_idx_open(&list, &options, &d), MST_EUSAGE);
    list = (mst_text_list){.items = items + 2, .n = 1};
    assert_int_equal(mst_idx_open(&list, &options, &d), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "labels without items"));
}

static void other_types(void **state)
{
    (void)state;
    const struct {
        unsigned type;
        uint8_t body[16];
        size_t n;
    } cases[] = {
        {0x09, {0xff, 0x02}, 2},
        {0x0b, {0xff, 0xff, 0x00, 0x02}, 4},
        {0x0c, {0xff, 0xff, 0xff, 0xff, 0, 0, 0, 2}, 8},
        {0x0d, {0xbf, 0x80, 0, 0, 0x40, 0, 0, 0}, 8},
        {0x0e, {0xbf, 0xf0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0}, 16},
    };
    const uint8_t label[1] = {7};
    write_idx("t-labels-idx1", 8, 1, (const uint32_t[]){1}, label, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mst_dataset *d;
        mst_chunk *chunk;
        mst_row row;
        write_idx("t-images-idx3", cases[i].type, 2, (const uint32_t[]){1, 2}, cases[i].body, cases[i].n);
        assert_int_equal(open_idx("t-images-idx3", NULL, &d), MST_OK);
        assert_int_equal(d->ops->load(d, 0, &chunk), MST_OK);
        mst_chunk_row(chunk, 0, &row);
        assert_null(row.bytes);
        assert_true(row.label == 7 && row.dense[0] == -1.0f && row.dense[1] == 2.0f);
        mst_chunk_release(chunk);
        d->ops->destroy(d);
    }
    const uint8_t nan_body[8] = {0, 0, 0, 0, 0x7f, 0xc0};
    write_idx("t-images-idx3", 0x0d, 2, (const uint32_t[]){1, 2}, nan_body, 8);
    expect_failure("t-images-idx3", NULL, MST_EINPUT, "at byte 16: a number that is not finite");
}

static void bad_files(void **state)
{
    (void)state;
    const uint8_t zeros[64] = {0};
    const uint32_t three[] = {3, 2, 2}, four[] = {4}, huge[] = {0xffffffff, 0xffff, 0xffff},
                   none[] = {3, 0, 2};
    write_idx("x-labels-idx1", 8, 1, three, zeros, 3);
    write_idx("x-images-idx3", 8, 3, three, zeros, 12);
    expect_failure("absent", NULL, MST_EINPUT, "absent");
    expect_failure("x-images-idx3", path_of("absent"), MST_EINPUT, "absent");

    write_idx("x-images-idx3", 8, 3, three, zeros, 11);
    expect_failure("x-images-idx3", NULL, MST_EINPUT, "cut off: 27 bytes, where its header requires 28");
    write_idx("x-images-idx3", 8, 3, three, zeros, 14);
    expect_failure("x-images-idx3", NULL, MST_EINPUT, "2 bytes too many");
    write_idx("x-images-idx3.gz", 8, 3, three, zeros, 11);
    expect_failure("x-images-idx3.gz", NULL, MST_EINPUT, "cut off at byte 27");
    write_idx("x-images-idx3.gz", 8, 3, three, zeros, 13);
    expect_failure("x-images-idx3.gz", NULL, MST_EINPUT, "more bytes after the items");
    write_idx("x-images-idx3", 7, 3, three, zeros, 12);
    expect_failure("x-images-idx3", NULL, MST_EINPUT, "not an IDX file");
    write_idx("x-images-idx3", 8, 0, three, zeros, 12);
    expect_failure("x-images-idx3", NULL, MST_EINPUT, "not an IDX file");
    write_idx("x-images-idx3", 8, 3, huge, zeros, 12);
    expect_failure("x-images-idx3", NULL, MST_EINPUT, "items of more than");
    write_idx("x-images-idx3", 8, 3, none, zeros, 0);
    expect_failure("x-images-idx3", NULL, MST_EINPUT, "items of no numbers");
    write_idx("x-images-idx3", 8, 3, three, zeros, 12);
    assert_int_equal(truncate(path_of("x-images-idx3"), 9), 0);
    expect_failure("x-images-idx3", NULL, MST_EINPUT, "ends within its header");

    write_idx("x-images-idx3", 8, 3, three, zeros, 12);
    write_idx("x-labels-idx1", 8, 1, four, zeros, 4);
    expect_failure("x-images-idx3", NULL, MST_EINPUT, "holds 4 labels for the 3 items of");
    expect_failure("x-images-idx3", path_of("x-images-idx3"), MST_EINPUT, "labels have one dimension");
    assert_int_equal(unlink(path_of("x-labels-idx1")), 0);
    expect_failure("x-images-idx3", NULL, MST_EINPUT, "name their file with --labels");
    write_idx("y", 8, 3, three, zeros, 12);
    expect_failure("y", NULL, MST_EINPUT, "with --labels");
}

static void sniffing(void **state)
{
    (void)state;
    const uint8_t images[16] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 28, 0, 0, 0, 28};
    assert_int_equal(mst_data_idx.sniff(images, 16, 0), MST_SNIFF_BINARY);
    assert_int_equal(mst_data_idx.sniff(images, 15, 0), 0);
    assert_int_equal(mst_data_idx.sniff((const uint8_t *)"\0\0\x0a\1\0\0\0\1", 8, 0), 0);
    assert_int_equal(mst_data_idx.sniff((const uint8_t *)"1 1:1\n\n\n\n", 8, 0), 0);
    assert_int_equal(mst_data_idx.sniff(NULL, 0, 0), 0);
}

static void memory_failures(void **state)
{
    (void)state;
    mst_dataset *d;
    write_digits("m-images-idx3", "m-labels-idx1");
    for (uint64_t k = 1;; k++) {
        mst_alloc_fail_at(k);
        mst_status st = open_idx("m-images-idx3", NULL, &d);
        mst_alloc_fail_at(0);
        if (st == MST_OK)
            break;
        assert_int_equal(st, MST_ENOMEM);
        assert_true(k < 100);
    }
    d->ops->destroy(d);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(bytes),    TEST(compressed_and_many), TEST(other_types),   TEST(bad_files),
        TEST(sniffing), TEST(memory_failures),     TEST(labels_from_1),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
