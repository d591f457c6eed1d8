/* Fingerprints: equal for copies and for caches of equal rows, different for everything else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "data/cache.h"
#include "data/fingerprint.h"
#include "data/write.h"
#include "temp_folder.h"

static mst_fingerprint of(const char *pattern)
{
    mst_fingerprint out;
    assert_int_equal(
        mst_fingerprint_files(&(mst_text_list){.items = (char *[]){(char *)pattern}, .n = 1}, &out), MST_OK);
    return out;
}

static bool equal(const char *a, const char *b)
{
    mst_fingerprint x = of(a), y = of(b);
    assert_true(x.known && y.known);
    return x.rows == y.rows && x.bytes == y.bytes && x.checksum == y.checksum;
}

/* n lines, of which one may end in another letter. */
static void write_text(const char *path, unsigned n, unsigned other)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (unsigned i = 0; i < n; i++)
        fprintf(file, "%u %u:1 %c\n", i % 2, i + 1, i == other ? 'x' : 'a');
    assert_int_equal(fclose(file), 0);
}

static void write_cache(const char *path, const char *source_key, uint32_t n, uint32_t last_key)
{
    mst_row_writer *writer;
    mst_chunk_builder b;
    mst_chunk *chunk;
    mst_chunk_builder_init(&b);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(mst_chunk_builder_room(&b, 1), MST_OK);
        mst_chunk_builder_add(&b, i + 1 == n ? last_key : i, 1.0f);
        assert_int_equal(mst_chunk_builder_end_row(&b, 1.0f, 1.0f), MST_OK);
    }
    assert_int_equal(mst_chunk_builder_pack(&b, 0, n, &chunk), MST_OK);
    assert_int_equal(mst_row_writer_new(&mst_row_writer_cache, path, source_key, &writer), MST_OK);
    assert_int_equal(mst_row_writer_add(writer, chunk), MST_OK);
    assert_int_equal(mst_row_writer_commit(writer, NULL), MST_OK);
    mst_row_writer_destroy(writer);
    mst_chunk_release(chunk);
    mst_chunk_builder_fini(&b);
}

static void test_text(void **state)
{
    (void)state;
    write_text("a", 10, 10);
    write_text("copy", 10, 10);
    write_text("first", 10, 0);
    write_text("last", 10, 9);
    write_text("longer", 11, 11);
    assert_true(equal("a", "copy"));
    assert_false(equal("a", "first"));
    assert_false(equal("a", "last"));
    assert_false(equal("a", "longer"));
    assert_int_equal(of("a").rows, 0);
}

static void test_caches(void **state)
{
    (void)state;
    write_cache("a.cache", "made here", 5000, 5000);
    write_cache("b.cache", "made on another host, from a file with a longer path", 5000, 5000);
    write_cache("c.cache", "made here", 5000, 5001);
    assert_true(equal("a.cache", "b.cache"));
    assert_false(equal("a.cache", "c.cache"));
    assert_false(equal("a.cache", "a"));
    assert_int_equal(of("a.cache").rows, 5000);
}

static void test_folders(void **state)
{
    (void)state;
    const char *const roots[] = {"one", "two", "three"};
    for (size_t i = 0; i < 3; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/cats", roots[i]);
        assert_int_equal(mst_make_folders(path), MST_OK);
        snprintf(path, sizeof path, "%s/cats/a.png", roots[i]);
        write_text(path, i == 2 ? 2 : 1, 9);
    }
    assert_true(equal("one", "two"));
    assert_false(equal("one", "three"));
}

static void test_unknown(void **state)
{
    (void)state;
    assert_false(of("absent").known);
    assert_false(of("-").known);
    assert_false(of("absent-*").known);
}

static void test_damaged_cache(void **state)
{
    (void)state;
    mst_fingerprint out;
    write_cache("damaged.cache", "key", 100, 100);
    assert_int_equal(truncate("damaged.cache", 200), 0);
    assert_int_equal(
        mst_fingerprint_files(&(mst_text_list){.items = (char *[]){"damaged.cache"}, .n = 1}, &out),
        MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "damaged.cache"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),    cmocka_unit_test(test_caches),        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_unknown), cmocka_unit_test(test_damaged_cache),
    };
    return cmocka_run_group_tests(tests, enter_folder, remove_folder);
}
