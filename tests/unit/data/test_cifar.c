/* CIFAR's binary files: rows, labels, several files, compressed ones, recognition, and the sentences of bad
 * files. */
#include "image_helpers.h"

#include <zlib.h>

#include "data/cache.h"
#include "data/cifar.h"
#include "data/guess.h"

enum { RECORD = 3073, RECORD_100 = 3074 };

static uint8_t pixel(uint32_t row, uint32_t i)
{
    return (uint8_t)(row * 31 + i * 7 + i / 1024);
}

/* n rows from number `first` on; row r is of class r % 10, or of the pair (r % 20, r % 100). */
static uint8_t *make_records(uint32_t first, uint32_t n, bool hundred)
{
    size_t size = hundred ? RECORD_100 : RECORD;
    uint8_t *data = calloc(n, size);
    assert_non_null(data);
    for (uint32_t r = 0; r < n; r++) {
        uint8_t *at = data + r * size;
        if (hundred)
            *at++ = (uint8_t)((first + r) % 20);
        *at++ = (uint8_t)((first + r) % (hundred ? 100 : 10));
        for (uint32_t i = 0; i < MST_CIFAR_PIXELS; i++)
            at[i] = pixel(first + r, i);
    }
    return data;
}

static void write_records(const char *name, uint32_t first, uint32_t n, bool hundred, size_t cut)
{
    uint8_t *data = make_records(first, n, hundred);
    write_file(name, data, n * (hundred ? RECORD_100 : RECORD) - cut);
    free(data);
}

static mst_status open_data(const char *const *names, size_t n, mst_data_options *options, mst_dataset **out)
{
    char *items[4];
    for (size_t i = 0; i < n; i++)
        items[i] = strdup(path_of(names[i]));
    mst_text_list list = {.items = items, .n = n};
    mst_status st = mst_dataset_open(&list, options, out);
    for (size_t i = 0; i < n; i++)
        free(items[i]);
    return st;
}

static mst_status open_one(const char *name, const char *format, mst_dataset **out)
{
    mst_data_options options = {.format = (char *)format};
    return open_data(&name, 1, &options, out);
}

static void check_rows(mst_dataset *d, uint32_t n_rows, uint32_t classes)
{
    assert_true(d->random && d->load_is_cheap);
    assert_int_equal(d->info.n_rows, n_rows);
    assert_int_equal(d->info.channels, 3);
    assert_int_equal(d->info.height, 32);
    assert_int_equal(d->info.width, 32);
    assert_int_equal(d->info.n_dense, MST_CIFAR_PIXELS);
    uint32_t number = 0;
    for (uint32_t c = 0; c < d->n_chunks; c++) {
        mst_chunk *chunk;
        assert_int_equal(d->ops->load(d, c, &chunk), MST_OK);
        for (uint32_t i = 0; i < chunk->n_rows; i++, number++) {
            mst_row row;
            mst_chunk_row(chunk, i, &row);
            assert_true(row.label == (float)(number % classes));
            assert_non_null(row.bytes);
            for (uint32_t j = 0; j < MST_CIFAR_PIXELS; j++)
                assert_int_equal(row.bytes[j], pixel(number, j));
        }
        mst_chunk_release(chunk);
    }
    assert_int_equal(number, n_rows);
}

static void test_rows(void **state)
{
    (void)state;
    static const char *const names[] = {"data_batch_1.bin", "data_batch_2.bin"};
    mst_data_options options = {.format = "auto"};
    mst_dataset *d;
    write_records(names[0], 0, 1030, false, 0);
    write_records(names[1], 1030, 25, false, 0);
    assert_int_equal(open_data(names, 2, &options, &d), MST_OK);
    check_rows(d, 1055, 10);
    assert_string_equal(d->kind->name, "cifar10");
    assert_int_equal(d->info.bytes, 1055 * RECORD);
    assert_true(d->info.scanned && d->info.labels_integral && d->info.max_label == 9);
    mst_dataset_destroy(d);
}

static void test_hundred(void **state)
{
    (void)state;
    mst_dataset *d;
    const char *name = "train.bin";
    write_records(name, 0, 120, true, 0);
    assert_int_equal(open_one(name, "auto", &d), MST_OK);
    assert_string_equal(d->kind->name, "cifar100");
    check_rows(d, 120, 100);
    mst_dataset_destroy(d);
    mst_data_options options = {.format = "cifar100", .cifar_label = 1};
    assert_int_equal(open_data(&name, 1, &options, &d), MST_OK);
    check_rows(d, 120, 20);
    mst_dataset_destroy(d);
}

static void test_compressed(void **state)
{
    (void)state;
    mst_dataset *d;
    uint8_t *data = make_records(0, 20, false);
    gzFile file = gzopen(path_of("test_batch.bin.gz"), "wb");
    assert_int_equal(gzwrite(file, data, 20 * RECORD), 20 * RECORD);
    assert_int_equal(gzclose(file), Z_OK);
    free(data);
    assert_int_equal(open_one("test_batch.bin.gz", "auto", &d), MST_OK);
    check_rows(d, 20, 10);
    mst_dataset_destroy(d);
}

/* The sides go through a cache. */
static void test_cache(void **state)
{
    (void)state;
    mst_dataset *d, *cached;
    char *items[] = {(char *)path_of("few.bin")};
    mst_text_list list = {.items = items, .n = 1};
    mst_data_options options = {.format = "auto"};
    write_records("few.bin", 0, 30, false, 0);
    assert_int_equal(mst_dataset_open(&list, &options, &d), MST_OK);
    assert_int_equal(mst_cache_for(d, &list, &options, path_of("caches"), 1, &cached), MST_OK);
    mst_dataset_destroy(d);
    check_rows(cached, 30, 10);
    mst_dataset_destroy(cached);
}

static void test_bad(void **state)
{
    (void)state;
    mst_dataset *d;
    write_records("cut.bin", 0, 3, false, 100);
    assert_int_equal(open_one("cut.bin", "cifar10", &d), MST_EINPUT);
    expect_text("cut.bin at byte 6146: cut off within a record");
    assert_int_equal(open_one("cut.bin", "auto", &d), MST_EINPUT);
    expect_text("none of the known formats");
    uint8_t *data = make_records(0, 3, false);
    data[2 * RECORD] = 10;
    write_file("label.bin", data, 3 * RECORD);
    free(data);
    assert_int_equal(open_one("label.bin", "cifar10", &d), MST_EINPUT);
    expect_text("label.bin at byte 6146: this is not a label of CIFAR-10");
    write_file("empty.bin", "", 0);
    assert_int_equal(open_one("empty.bin", "cifar10", &d), MST_EINPUT);
    expect_text("empty.bin is empty");
    write_records("a.bin", 0, 2, false, 0);
    write_records("b.bin", 0, 2, true, 0);
    static const char *const names[] = {"a.bin", "b.bin"};
    mst_data_options options = {.format = "auto"};
    assert_int_equal(open_data(names, 2, &options, &d), MST_EINPUT);
    expect_text("is cifar100 but");
}

static void test_sniff(void **state)
{
    (void)state;
    uint8_t *data = make_records(0, 2, false), *hundred = make_records(10, 2, true);
    assert_ptr_equal(mst_data_guess(data, 2 * RECORD, 2 * RECORD), &mst_data_cifar10);
    assert_ptr_equal(mst_data_guess(data, 2 * RECORD, 0), &mst_data_cifar10);
    assert_null(mst_data_guess(data, RECORD + 1, 2 * RECORD + 1));
    assert_null(mst_data_guess(data, RECORD - 1, RECORD));
    assert_ptr_equal(mst_data_guess(hundred, 2 * RECORD_100, 2 * RECORD_100), &mst_data_cifar100);
    free(data);
    free(hundred);
}

static void test_no_memory(void **state)
{
    (void)state;
    write_records("few.bin", 0, 3, false, 0);
    mst_status st = MST_ENOMEM;
    for (uint64_t k = 1; st != MST_OK; k++) {
        mst_dataset *d = NULL;
        mst_alloc_stats before, after;
        mst_alloc_stats_get(&before);
        mst_alloc_fail_at(k);
        st = open_one("few.bin", "cifar10", &d);
        mst_alloc_fail_at(0);
        mst_dataset_destroy(d);
        mst_alloc_stats_get(&after);
        assert_int_equal(after.blocks, before.blocks);
        assert_true(st == MST_OK || st == MST_ENOMEM);
        assert_true(k < 200);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),      cmocka_unit_test(test_hundred), cmocka_unit_test(test_compressed),
        cmocka_unit_test(test_cache),     cmocka_unit_test(test_bad),     cmocka_unit_test(test_sniff),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
