/* safetensors: written files read back, holes are holes, and every kind of damage has its error. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/crc.h"
#include "base/file.h"
#include "run/safetensors.h"
#include "run/sparse_file.h"

static char folder[64], path[128];

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/muster-test-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/t.safetensors", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    mst_sparse_fail_at(0);
    return mst_remove_tree(folder) == MST_OK ? 0 : -1;
}

/* A file of that header and n_data bytes of data; length 0: the header's own. */
static void write_raw(const char *header, uint64_t length, size_t n_data)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    uint64_t n = length ? length : strlen(header);
    assert_int_equal(fwrite(&n, 8, 1, f), 1);
    fputs(header, f);
    for (size_t i = 0; i < n_data; i++)
        fputc(0, f);
    assert_int_equal(fclose(f), 0);
}

static void expect_refused(const char *header, size_t n_data, const char *sentence)
{
    mst_safetensors *file = NULL;
    write_raw(header, 0, n_data);
    assert_int_equal(mst_safetensors_open(path, &file), MST_EINPUT);
    assert_null(file);
    assert_ptr_equal(strstr(mst_error_text(), path), mst_error_text());
    if (strstr(mst_error_text(), sentence) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", mst_error_text(), sentence);
}

static void test_round_trip(void **state)
{
    (void)state;
    float a[6] = {1, -0.0f, 3.5f, -4, 0, 1e-40f}, b[1] = {7}, got[6] = {9, 9, 9, 9, 9, 9};
    mst_tensor tensors[3] = {{.name = "a", .n_dims = 2, .dims = {2, 3}},
                             {.name = "empty", .n_dims = 1, .dims = {0}},
                             {.name = "scalar"}};
    json_t *metadata = json_pack("{s:s}", "key", "a text");
    mst_safetensors *writer = NULL;
    assert_int_equal(mst_safetensors_create(path, tensors, 3, metadata, &writer), MST_OK);
    json_decref(metadata);
    assert_int_equal(mst_safetensors_write_at(writer, 0, 0, 6, a, false), MST_OK);
    assert_int_equal(mst_safetensors_write_at(writer, 2, 0, 1, b, false), MST_OK);
    uint64_t bytes;
    uint32_t crc, crc_read;
    assert_int_equal(mst_safetensors_sync(writer, &bytes, &crc), MST_OK);
    mst_safetensors_close(writer);

    char *text = NULL;
    size_t size;
    assert_int_equal(mst_file_read_all(path, 1 << 20, &text, &size), MST_OK);
    assert_int_equal(size, bytes);
    assert_int_equal(mst_crc32c(0, text, size), crc);
    uint64_t length;
    memcpy(&length, text, 8);
    assert_int_equal((8 + length) % 64, 0);
    assert_memory_equal(text + 8 + length, a, sizeof a);
    assert_int_equal(text[8], '{');
    mst_free(text);

    mst_safetensors *file = NULL;
    assert_int_equal(mst_safetensors_open(path, &file), MST_OK);
    assert_int_equal(mst_safetensors_count(file), 3);
    assert_null(mst_safetensors_find(file, "b"));
    const mst_tensor *t = mst_safetensors_find(file, "a");
    assert_non_null(t);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dims[1], 3);
    assert_int_equal(t->n_elements, 6);
    assert_int_equal(mst_safetensors_read(file, t, got, false), MST_OK);
    assert_memory_equal(got, a, sizeof a);
    assert_int_equal(mst_safetensors_read(file, mst_safetensors_find(file, "scalar"), got, false), MST_OK);
    assert_true(got[0] == 7);
    assert_int_equal(mst_safetensors_crc32c(file, &crc_read), MST_OK);
    assert_int_equal(crc_read, crc);
    mst_safetensors_close(file);
}

/* Blocks of zeros take no disk space, read back as zeros over whatever was there, and leave fresh memory
 * alone. */
static void test_holes(void **state)
{
    (void)state;
    size_t n = (size_t)4 << 20; /* 16 MB */
    float *w = mst_pages_reserve(n * sizeof *w, false), *r = mst_pages_reserve(n * sizeof *r, false);
    assert_non_null(w);
    assert_non_null(r);
    const size_t touched[] = {0, 5, 70000, 1 << 20, (1 << 20) + 40000, n - 1};
    for (size_t i = 0; i < sizeof touched / sizeof *touched; i++)
        w[touched[i]] = (float)i + 1;
    w[300000] = -0.0f;
    mst_tensor tensor = {.name = "w", .n_dims = 1, .dims = {n}};
    mst_safetensors *writer = NULL;
    assert_int_equal(mst_safetensors_create(path, &tensor, 1, NULL, &writer), MST_OK);
    assert_int_equal(mst_safetensors_write_at(writer, 0, 0, n, w, true), MST_OK);
    uint64_t bytes;
    uint32_t crc, crc_read;
    assert_int_equal(mst_safetensors_sync(writer, &bytes, &crc), MST_OK);
    mst_safetensors_close(writer);
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_true((uint64_t)info.st_size >= n * sizeof *w);
    assert_true((uint64_t)info.st_blocks * 512 < (uint64_t)info.st_size / 4 ||
                (uint64_t)info.st_blocks * 512 >= (uint64_t)info.st_size); /* a file system without holes */

    /* The checksum is that of the bytes, whether they are stored or not. */
    char *text = NULL;
    size_t size;
    assert_int_equal(mst_file_read_all(path, (size_t)64 << 20, &text, &size), MST_OK);
    assert_int_equal(mst_crc32c(0, text, size), crc);
    assert_memory_equal(text + size - n * sizeof *w, w, n * sizeof *w);
    mst_free(text);

    r[12345] = 3;   /* under a block with data */
    r[2000000] = 4; /* under a hole */
    mst_safetensors *file = NULL;
    assert_int_equal(mst_safetensors_open(path, &file), MST_OK);
    assert_int_equal(mst_safetensors_crc32c(file, &crc_read), MST_OK);
    assert_int_equal(crc_read, crc);
    assert_int_equal(mst_safetensors_read(file, mst_safetensors_at(file, 0), r, true), MST_OK);
    mst_safetensors_close(file);
    /* Element 3,000,000 lies in a hole and was never touched: its page must still be absent. */
    uint64_t entry = 0;
    long page = sysconf(_SC_PAGESIZE);
    int fd = open("/proc/self/pagemap", O_RDONLY);
    if (fd >= 0 && pread(fd, &entry, 8, (off_t)((uintptr_t)(r + 3000000) / (uintptr_t)page * 8)) == 8)
        assert_int_equal(entry >> 62, 0);
    if (fd >= 0)
        close(fd);
    assert_memory_equal(r, w, n * sizeof *w);
    mst_pages_release(w, n * sizeof *w);
    mst_pages_release(r, n * sizeof *r);
}

static void test_other_types(void **state)
{
    (void)state;
    mst_safetensors *file = NULL;
    float x[2];
    write_raw("{\"d\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]},"
              "\"h\":{\"dtype\":\"BF16\",\"shape\":[3,1],\"data_offsets\":[16,22]},"
              "\"f\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[22,24]}}   ",
              0, 24);
    assert_int_equal(mst_safetensors_open(path, &file), MST_OK);
    assert_int_equal(mst_safetensors_count(file), 3);
    assert_string_equal(mst_safetensors_at(file, 1)->dtype, "BF16");
    assert_int_equal(mst_safetensors_read(file, mst_safetensors_at(file, 0), x, false), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "tensor \"d\" is F64, and only F32 can be used"));
    mst_safetensors_close(file);
}

#define F32(shape, offsets) "{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void test_refused(void **state)
{
    (void)state;
    expect_refused("{\"w\":" F32("[2,2]", "[0,16]") "}", 15, "tensor \"w\" lies beyond the end of the file");
    expect_refused("{\"w\":" F32("[2,2]", "[0,16]") "}", 17, "1 bytes at its end belong to no tensor");
    expect_refused("{\"w\":" F32("[2,2]", "[16,0]") "}", 16, "ends before it begins");
    expect_refused("{\"w\":" F32("[2,3]", "[0,16]") "}", 16, "do not fit its size in bytes");
    expect_refused("{\"w\":" F32("[2]", "[0,8]") ",\"v\":" F32("[2]", "[4,12]") "}", 12,
                   "\"v\" overlaps another");
    expect_refused("{\"w\":" F32("[2]", "[0,8]") ",\"v\":" F32("[1]", "[12,16]") "}", 16, "leaves a gap");
    expect_refused("{\"w\":" F32("[1]", "[0,4]") ",\"w\":" F32("[1]", "[4,8]") "}", 8, "a name occurs twice");
    expect_refused("{\"w\":" F32("[4294967296,4294967296]", "[0,0]") "}", 0, "too large to exist");
    expect_refused("{\"w\":" F32("[4611686018427387904]", "[0,0]") "}", 0, "too large to exist");
    expect_refused("{\"w\":" F32("[-1]", "[0,4]") "}", 4, "shape that is not whole numbers");
    expect_refused("{\"w\":" F32("[1]", "[0,4.0]") "}", 4, "data_offsets that are not two whole numbers");
    expect_refused("{\"w\":" F32("[1]", "[0]") "}", 4, "data_offsets that are not two whole numbers");
    expect_refused("{\"w\":" F32("[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, "more than 8 dimensions");
    expect_refused("{\"w\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "unknown dtype");
    expect_refused("{\"w\\n\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor \"w?\" lacks dtype, shape or");
    expect_refused("{\"w\":7}", 0, "lacks dtype, shape or data_offsets");
    expect_refused("{\"__metadata__\":{\"a\":1}}", 0, "is not an object of texts");
    expect_refused("[1]", 0, "the header is not a JSON object");
    expect_refused("{\"w\":", 0, "the header is not a JSON object (byte 13)");
}

static void test_refused_lengths(void **state)
{
    (void)state;
    mst_safetensors *file = NULL;
    write_raw("{}", 3, 0);
    assert_int_equal(mst_safetensors_open(path, &file), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "a header of 3 bytes in a file of 10"));
    write_raw("{}", UINT64_MAX, 0);
    assert_int_equal(mst_safetensors_open(path, &file), MST_EINPUT);
    write_raw("{}", 100000001, 0);
    assert_int_equal(truncate(path, 200000000), 0);
    assert_int_equal(mst_safetensors_open(path, &file), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "a header of 100000001 bytes in a file of 200000000"));
    assert_int_equal(truncate(path, 7), 0);
    assert_int_equal(mst_safetensors_open(path, &file), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "only 7 bytes long"));
    assert_int_equal(mst_safetensors_open(folder, &file), MST_EINPUT);
    assert_int_equal(mst_safetensors_open("/nowhere/at/all", &file), MST_EIO);
    assert_non_null(strstr(mst_error_text(), "/nowhere/at/all: cannot be opened: No such file or directory"));
    /* Depth: refused by the parser, not by the stack. */
    char *deep = malloc(200001);
    memset(deep, '[', 200000);
    deep[200000] = 0;
    expect_refused(deep, 0, "the header is not a JSON object");
    free(deep);
    assert_null(file);
}

static void test_disk_full(void **state)
{
    (void)state;
    float a[4] = {1, 2, 3, 4};
    mst_tensor tensor = {.name = "a", .n_dims = 1, .dims = {4}};
    mst_safetensors *writer = NULL;
    mst_sparse_fail_at(1);
    assert_int_equal(mst_safetensors_create(path, &tensor, 1, NULL, &writer), MST_EIO);
    assert_null(writer);
    assert_false(mst_path_exists(path));
    assert_non_null(strstr(mst_error_text(), "t.safetensors: cannot be written: No space left on device"));
    mst_sparse_fail_at(2);
    assert_int_equal(mst_safetensors_create(path, &tensor, 1, NULL, &writer), MST_OK);
    assert_int_equal(mst_safetensors_write_at(writer, 0, 0, 4, a, false), MST_EIO);
    mst_safetensors_close(writer);
    /* An existing file is never written into. */
    assert_int_equal(mst_safetensors_create(path, &tensor, 1, NULL, &writer), MST_EIO);
    assert_true(mst_path_exists(path));
}

static void test_no_memory(void **state)
{
    (void)state;
    mst_tensor tensor = {.name = "a", .n_dims = 1, .dims = {4}};
    mst_alloc_stats before, after;
    mst_alloc_stats_get(&before);
    mst_status st = MST_ENOMEM;
    for (uint64_t k = 1; st == MST_ENOMEM; k++) {
        mst_safetensors *writer = NULL;
        mst_safetensors *file = NULL;
        unlink(path);
        mst_alloc_fail_at(k);
        st = mst_safetensors_create(path, &tensor, 1, NULL, &writer);
        mst_safetensors_close(writer);
        if (st == MST_OK)
            st = mst_safetensors_open(path, &file);
        mst_safetensors_close(file);
        assert_true(st == MST_OK || st == MST_ENOMEM);
        assert_true(k < 100);
    }
    mst_alloc_fail_at(0);
    mst_alloc_stats_get(&after);
    assert_int_equal(after.blocks, before.blocks);
}

static void test_is_zero(void **state)
{
    (void)state;
    uint8_t block[100] = {0};
    for (size_t n = 0; n <= sizeof block; n++)
        assert_true(mst_is_zero(block, n));
    for (size_t i = 0; i < sizeof block; i++) {
        block[i] = 1;
        assert_false(mst_is_zero(block, sizeof block));
        assert_true(mst_is_zero(block, i));
        block[i] = 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_holes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_other_types, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_refused_lengths, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_disk_full, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory, set_up, tear_down),
        cmocka_unit_test(test_is_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
