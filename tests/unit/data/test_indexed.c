/* Text with an index: equal to the stream, whatever the file sizes; stale, damaged and foreign indexes
 * refused. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/dataset.h"
#include "data/indexed.h"
#include "data/stream.h"
#include "unit/data/text_helpers.h"

static mst_data_options options;

static const char *write_rows(const char *name, int first, int n)
{
    char *text = malloc((size_t)n * 80 + 1), *w = text;
    for (int i = first; i < first + n; i++) {
        if (i % 100 == 7)
            w += sprintf(w, "\n# row %d follows\n", i);
        w += sprintf(w, "%d 1:0.5 %d:1\n", i, i % 50 + 2);
    }
    const char *path = write_file(name, text, (size_t)(w - text));
    free(text);
    return path;
}

static mst_status open_pattern(const char *pattern, mst_dataset **out)
{
    mst_text_list list = {0};
    assert_int_equal(mst_text_list_add(&list, pattern), MST_OK);
    mst_status st = mst_dataset_open(&list, &options, out);
    mst_text_list_fini(&list);
    return st;
}

static void chunks_span_files(void **state)
{
    (void)state;
    int sizes[] = {5000, 3, 0, 8192, 700}, first = 0;
    char name[32];
    for (int i = 0; i < 5; i++) {
        uint64_t rows;
        sprintf(name, "p%d.txt", i);
        const char *path = write_rows(name, first, sizes[i]);
        assert_int_equal(
            mst_index_build(path, mst_data_kind_format(mst_data_kind_find("libsvm")), NULL, &rows), MST_OK);
        assert_int_equal(rows, sizes[i]);
        first += sizes[i];
    }
    mst_dataset *d;
    assert_int_equal(open_pattern(in_folder("p?.txt"), &d), MST_OK);
    assert_true(d->random);
    assert_true(d->random);
    assert_int_equal(d->info.n_rows, first);
    assert_int_equal(d->chunk_rows, 4096);
    assert_int_equal(d->n_chunks, (first + 4095) / 4096);
    for (uint32_t c = d->n_chunks; c-- > 0;) { /* any order */
        mst_chunk *chunk;
        uint64_t next = (uint64_t)c * 4096;
        assert_int_equal(d->ops->load(d, c, &chunk), MST_OK);
        assert_int_equal(chunk->n_rows, c + 1 < d->n_chunks ? 4096 : first % 4096);
        assert_int_equal(check_order(&next, next, chunk), MST_OK);
        mst_chunk_release(chunk);
    }
    for (unsigned threads = 1; threads <= 3; threads++) {
        uint64_t rows = 0;
        assert_int_equal(mst_dataset_each(d, threads, check_order, &rows), MST_OK);
        assert_int_equal(rows, first);
    }
    assert_int_equal(mst_dataset_scan(d, 2), MST_OK);
    assert_int_equal(d->info.n_features, 51);
    mst_dataset_destroy(d);

    sprintf(name, "p1.txt%s", MST_INDEX_SUFFIX); /* one without: a stream again */
    unlink(in_folder(name));
    assert_int_equal(open_pattern(in_folder("p?.txt"), &d), MST_OK);
    assert_false(d->random);
    mst_dataset_destroy(d);
}

/* Malformed rows have no index; a row that only some commands take is found when it is loaded. */
static void bad_rows_are_named_by_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *row, *problem;
    } cases[] = {{"\n1 oops\n", "\"oops\" is not index:value"}, {"\n1:1\n", MST_NO_LABEL}};
    char *text = malloc(200000), sentence[256];
    for (size_t k = 0; k < 2; k++) {
        char *w = text;
        for (int i = 0; i < 10000; i++)
            w += sprintf(w, "%s", i == 9500 ? cases[k].row : "1 1:1\n");
        const char *path = write_file("bad.txt", text, (size_t)(w - text));
        mst_dataset *d;
        mst_chunk *chunk;
        snprintf(sentence, sizeof sentence, "%s:9502: %s", path, cases[k].problem);
        assert_int_equal(mst_index_build(path, NULL, NULL, NULL), k == 0 ? MST_EINPUT : MST_OK);
        if (k == 1) {
            assert_int_equal(open_pattern(path, &d), MST_OK);
            assert_int_equal(d->ops->load(d, 0, &chunk), MST_OK);
            mst_chunk_release(chunk);
            assert_int_equal(d->ops->load(d, 2, &chunk), MST_EINPUT);
            mst_dataset_destroy(d);
        }
        assert_string_equal(mst_error_text(), sentence);
    }
    free(text);
}

static void assert_open_says(const char *path, const char *format, const char *expected)
{
    mst_dataset *d = NULL;
    options.format = (char *)format;
    assert_int_equal(open_pattern(path, &d), MST_EINPUT);
    options.format = NULL;
    assert_null(d);
    if (strstr(mst_error_text(), expected) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", mst_error_text(), expected);
}

static void indexes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    char path[128], beside[160];
    strcpy(path, write_rows("x.txt", 0, 6000));
    snprintf(beside, sizeof beside, "%s" MST_INDEX_SUFFIX, path);
    assert_int_equal(mst_index_build(path, NULL, NULL, NULL), MST_OK);
    assert_open_says(path, "vw",
                     ".mstidx was made for format libsvm, not vw; remove it or run muster data index ");

    char *bytes;
    size_t n;
    assert_int_equal(mst_file_read_all(beside, 1 << 20, &bytes, &n), MST_OK);
    assert_int_equal(n, 64 + 2 * 16 + 4);
    for (size_t i = 0; i < n; i++) { /* any byte changed, any length: refused */
        bytes[i] ^= 0x10;
        write_file("x.txt" MST_INDEX_SUFFIX, bytes, n);
        assert_open_says(path, NULL, "run muster data index ");
        bytes[i] ^= 0x10;
        write_file("x.txt" MST_INDEX_SUFFIX, bytes, i);
        assert_open_says(path, NULL, "run muster data index ");
    }
    write_file("x.txt" MST_INDEX_SUFFIX, bytes, n);
    mst_free(bytes);
    mst_dataset *d;
    assert_int_equal(open_pattern(path, &d), MST_OK);
    mst_dataset_destroy(d);

    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_open_says(path, NULL, " last changed; remove it or run muster data index ");
    assert_int_equal(mst_index_build(path, NULL, NULL, NULL), MST_OK);
    assert_int_equal(open_pattern(path, &d), MST_OK);
    mst_dataset_destroy(d);
}

static void what_cannot_be_indexed(void **state)
{
    (void)state;
    mst_out *out;
    assert_int_equal(mst_out_open(in_folder("z.txt.gz"), &out), MST_OK);
    assert_int_equal(mst_out_printf(out, "1 1:1\n"), MST_OK);
    assert_int_equal(mst_out_commit(out), MST_OK);
    mst_out_close(out);
    assert_int_equal(mst_index_build(in_folder("z.txt.gz"), NULL, NULL, NULL), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "is compressed and cannot be indexed"));
    assert_int_equal(mst_index_build("-", NULL, NULL, NULL), MST_EINPUT);
    assert_int_equal(mst_index_build(in_folder("absent"), NULL, NULL, NULL), MST_EINPUT);
    assert_int_equal(mst_index_build(write_file("odd", "what is this\n", 13), NULL, NULL, NULL), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "odd:1: \"what is this\" is not a row of a known format"));
    const char *path = write_rows("full.txt", 0, 10);
    mst_out_fail_at(1);
    assert_int_equal(mst_index_build(path, NULL, NULL, NULL), MST_EIO);
    mst_out_fail_at(0);
    assert_false(mst_path_exists(in_folder("full.txt" MST_INDEX_SUFFIX)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_span_files),
        cmocka_unit_test(bad_rows_are_named_by_their_line),
        cmocka_unit_test(indexes_that_do_not_fit_are_refused),
        cmocka_unit_test(what_cannot_be_indexed),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
