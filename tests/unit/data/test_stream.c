/* The stream dataset and opening by content: blocks and their lines, many files, compression, order over
 * threads. */
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/stream.h"
#include "unit/data/text_helpers.h"

static mst_data_options options;

static mst_status open_paths(const char *const *names, size_t n, mst_dataset **out)
{
    mst_text_list list = {0};
    for (size_t i = 0; i < n; i++)
        assert_int_equal(mst_text_list_add(&list, names[i]), MST_OK);
    mst_status st = mst_dataset_open(&list, &options, out);
    mst_text_list_fini(&list);
    return st;
}

static mst_status open_one(const char *path, mst_dataset **out)
{
    return open_paths(&path, 1, out);
}

/* Rows whose label is their number from `first` on, and some features; about `bytes` of text. */
static size_t write_rows(const char *name, int first, size_t bytes)
{
    mst_out *out;
    int row = first;
    assert_int_equal(mst_out_open(in_folder(name), &out), MST_OK);
    for (; mst_out_offset(out) < bytes; row++)
        assert_int_equal(mst_out_printf(out, "%d 1:0.5 2:%d 1000:1\n", row, row % 10), MST_OK);
    assert_int_equal(mst_out_commit(out), MST_OK);
    mst_out_close(out);
    return (size_t)(row - first);
}

static void files_in_order_whatever_the_threads(void **state)
{
    (void)state;
    size_t n = write_rows("a.txt", 0, 3500000);
    n += write_rows("b.txt.gz", (int)n, 2500000);
    write_file("c.txt", "", 0);
    n += write_rows("d.txt.zst", (int)n, 100);
    const char *pattern = in_folder("[a-d].txt*");
    for (unsigned threads = 1; threads <= 4; threads++) {
        mst_dataset *d;
        uint64_t rows = 0;
        assert_int_equal(open_one(pattern, &d), MST_OK);
        assert_string_equal(d->kind->name, "libsvm");
        assert_false(d->random);
        assert_int_equal(mst_dataset_each(d, threads, check_order, &rows), MST_OK);
        assert_int_equal(rows, n);
        rows = 0; /* again, from the start */
        assert_int_equal(mst_dataset_each(d, threads, check_order, &rows), MST_OK);
        assert_int_equal(rows, n);
        mst_dataset_destroy(d);
    }
}

static void scan_finds_the_facts(void **state)
{
    (void)state;
    const char *text = "1 1:1 2:1\n-1 7:3\n# c\n3\n0.5 2:1";
    for (unsigned threads = 1; threads <= 2; threads++) {
        mst_dataset *d;
        assert_int_equal(open_one(write_file("scan.txt", text, strlen(text)), &d), MST_OK);
        assert_int_equal(mst_dataset_scan(d, threads), MST_OK);
        assert_true(d->info.scanned);
        assert_int_equal(d->info.n_rows, 4);
        assert_int_equal(d->info.n_features, 7);
        assert_int_equal(d->info.n_entries, 4);
        assert_int_equal(d->info.n_positive, 3);
        assert_int_equal(d->info.bytes, strlen(text));
        assert_int_equal(d->info.index_base, 1);
        assert_true(d->info.min_label == -1.0f && d->info.max_label == 3.0f);
        assert_false(d->info.labels_integral);
        mst_dataset_destroy(d);
    }
}

static mst_status stop_at_once(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    (void)first_row;
    (void)chunk;
    ++*(int *)arg;
    return mst_fail(MST_ESTOPPED, "enough");
}

static mst_status count_rows(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    (void)first_row;
    *(uint64_t *)arg += chunk->n_rows;
    return MST_OK;
}

static void failures_stop_the_walk(void **state)
{
    (void)state;
    size_t n = write_rows("long.txt", 0, 5000000);
    FILE *f = fopen(in_folder("long.txt"), "a");
    fputs("1 bad\n", f);
    fclose(f);
    char sentence[256];
    snprintf(sentence, sizeof sentence,
             "%s:%zu: \"bad\" is not index:value (--skip-bad-rows leaves such rows out)",
             in_folder("long.txt"), n + 1);
    for (unsigned threads = 1; threads <= 3; threads++) {
        mst_dataset *d;
        int calls = 0;
        uint64_t rows = 0;
        assert_int_equal(open_one(in_folder("long.txt"), &d), MST_OK);
        assert_int_equal(mst_dataset_each(d, threads, stop_at_once, &calls), MST_ESTOPPED);
        assert_string_equal(mst_error_text(), "enough");
        assert_int_equal(calls, 1);
        assert_int_equal(mst_dataset_each(d, threads, count_rows, &rows), MST_EINPUT);
        assert_string_equal(mst_error_text(), sentence);
        assert_in_range(rows, 1, n);
        mst_dataset_destroy(d);
    }
}

static void a_cut_file_is_named(void **state)
{
    (void)state;
    char sentence[256];
    for (unsigned threads = 1; threads <= 3; threads += 2) {
        mst_dataset *d;
        uint64_t rows = 0;
        struct stat info;
        write_rows("cut.txt", 0, 3000000);
        assert_int_equal(stat(in_folder("cut.txt"), &info), 0);
        snprintf(sentence, sizeof sentence, "%s was cut from %lld to 1500000 bytes while it was in use",
                 in_folder("cut.txt"), (long long)info.st_size);
        assert_int_equal(open_one(in_folder("cut.txt"), &d), MST_OK);
        assert_int_equal(truncate(in_folder("cut.txt"), 1500000), 0);
        assert_int_equal(mst_dataset_each(d, threads, count_rows, &rows), MST_EINPUT);
        assert_string_equal(mst_error_text(), sentence);
        mst_dataset_destroy(d);
    }
}

static void long_lines_grow_the_block(void **state)
{
    (void)state;
    size_t entries = 400000, n = 0;
    char *text = malloc(entries * 12 + 100);
    n += (size_t)sprintf(text + n, "0 1:1\n1");
    for (size_t i = 0; i < entries; i++)
        n += (size_t)sprintf(text + n, " %zu:1", i + 1);
    n += (size_t)sprintf(text + n, "\n2 3:1\n");
    mst_dataset *d;
    uint64_t rows = 0;
    assert_int_equal(open_one(write_file("wide.txt", text, n), &d), MST_OK);
    assert_int_equal(mst_dataset_each(d, 2, check_order, &rows), MST_OK);
    assert_int_equal(rows, 3);
    mst_dataset_destroy(d);
    free(text);
}

static void too_long_a_line_is_refused(void **state)
{
    (void)state;
    size_t n = (size_t)MST_STREAM_MAX_RECORD + 100;
    char *text = malloc(n), sentence[256];
    memset(text, ' ', n);
    memcpy(text, "1 1:1\n1 ", 8);
    options.format = "libsvm";
    mst_dataset *d;
    uint64_t rows = 0;
    snprintf(sentence, sizeof sentence, "%s:2: a record is longer than 64 MiB",
             write_file("endless", text, n));
    mst_status st = open_one(in_folder("endless"), &d);
    if (st == MST_OK) {
        st = mst_dataset_each(d, 1, count_rows, &rows);
        mst_dataset_destroy(d);
    }
    assert_int_equal(st, MST_EINPUT);
    assert_string_equal(mst_error_text(), sentence);
    unlink(in_folder("endless"));
    options.format = NULL;
    free(text);
}

/* The sentence of an open that must fail. */
static const char *refused(const char *const *paths, size_t n, mst_status code)
{
    mst_dataset *d = NULL;
    assert_int_equal(open_paths(paths, n, &d), code);
    assert_null(d);
    return mst_error_text();
}

static void formats_are_told_apart(void **state)
{
    (void)state;
    mst_dataset *d;
    char sentence[512], a[128], b[128];
    const char *paths[2] = {a, b};
    strcpy(a, write_file("one.vw", "1 |f x\n", 7));
    strcpy(b, write_file("one.svm", "1 1:1\n", 6));
    assert_int_equal(open_one(a, &d), MST_OK);
    assert_string_equal(d->kind->name, "vw");
    assert_int_equal(d->info.n_features, 1 << 18);
    assert_int_equal(mst_dataset_scan(d, 1), MST_OK);
    assert_int_equal(d->info.n_features, 1 << 18);
    mst_dataset_destroy(d);
    snprintf(sentence, sizeof sentence,
             "%s is libsvm but %s is vw; all files of a dataset must have one format", b, a);
    assert_string_equal(refused(paths, 2, MST_EINPUT), sentence);

    strcpy(a, write_file("junk", "\x7f\0\1\2\3\4\5", 7));
    snprintf(sentence, sizeof sentence,
             "%s is in none of the known formats (libsvm, tfrecord, criteo, vw, libffm, csv, idx, cifar10, "
             "cifar100, images, numpy, gen, cache); name one with "
             "--format",
             a);
    assert_string_equal(refused(paths, 1, MST_EINPUT), sentence);
    paths[0] = b, paths[1] = a;
    snprintf(sentence, sizeof sentence,
             "%s does not look like libsvm, which %s is; all files of a dataset must have one format", a, b);
    assert_string_equal(refused(paths, 2, MST_EINPUT), sentence);

    paths[0] = write_file("empty", "", 0);
    assert_int_equal(open_one(paths[0], &d), MST_OK); /* no rows, in any format */
    assert_int_equal(mst_dataset_scan(d, 1), MST_OK);
    assert_int_equal(d->info.n_rows, 0);
    mst_dataset_destroy(d);
    options.format = "nope";
    assert_string_equal(
        refused(paths, 1, MST_EUSAGE),
        "unknown format nope; the formats are auto, libsvm, tfrecord, criteo, vw, libffm, csv, idx, "
        "cifar10, cifar100, images, numpy, gen, cache");
    options.format = "libsvm"; /* said to be: then an empty file has no rows */
    uint64_t rows = 0;
    assert_int_equal(open_one(paths[0], &d), MST_OK);
    assert_int_equal(mst_dataset_each(d, 1, count_rows, &rows), MST_OK);
    assert_int_equal(rows, 0);
    mst_dataset_destroy(d);
    options.format = NULL;
}

static void standard_input_is_read_once(void **state)
{
    (void)state;
    size_t n = write_rows("input.txt", 0, 1500000);
    int saved = dup(0);
    assert_non_null(freopen(in_folder("input.txt"), "r", stdin));
    mst_dataset *d;
    uint64_t rows = 0;
    assert_int_equal(open_one("-", &d), MST_OK);
    assert_int_equal(mst_dataset_scan(d, 1), MST_EINPUT);
    assert_string_equal(
        mst_error_text(),
        "standard input can be read only once: give --features N (softmax: and --classes N), or "
        "name a file");
    assert_int_equal(mst_dataset_each(d, 2, check_order, &rows), MST_OK);
    assert_int_equal(rows, n);
    assert_int_equal(mst_dataset_each(d, 1, count_rows, &rows), MST_EINPUT);
    assert_string_equal(mst_error_text(), "standard input can be read only once; give a file instead");
    mst_dataset_destroy(d);
    dup2(saved, 0);
    close(saved);
}

/* Rows through a named pipe, which is opened once: a second opening would wait for a writer for ever. */
static void pipes_are_read_once(void **state)
{
    (void)state;
    size_t n = write_rows("source.txt", 0, 1500000);
    const char *source = in_folder("source.txt"), *pipe_path = in_folder("pipe");
    char sentence[256];
    for (int named = 0; named < 2; named++) { /* by content, and with --format */
        assert_int_equal(mkfifo(pipe_path, 0600), 0);
        pid_t child = fork();
        if (child == 0) {
            execlp("cp", "cp", source, pipe_path, (char *)NULL);
            _exit(1);
        }
        mst_dataset *d;
        uint64_t rows = 0;
        options.format = named ? "libsvm" : NULL;
        assert_int_equal(open_one(pipe_path, &d), MST_OK);
        options.format = NULL;
        assert_int_equal(mst_dataset_scan(d, 1), MST_EINPUT);
        snprintf(sentence, sizeof sentence,
                 "%s can be read only once: give --features N (softmax: and --classes N), or name a file",
                 pipe_path);
        assert_string_equal(mst_error_text(), sentence);
        assert_int_equal(mst_dataset_each(d, 2, check_order, &rows), MST_OK);
        assert_int_equal(rows, n);
        assert_int_equal(mst_dataset_each(d, 1, count_rows, &rows), MST_EINPUT);
        snprintf(sentence, sizeof sentence, "%s can be read only once; give a file instead", pipe_path);
        assert_string_equal(mst_error_text(), sentence);
        mst_dataset_destroy(d);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(unlink(pipe_path), 0);
    }
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    options.format = "libsvm";
    mst_dataset *d;
    assert_int_equal(open_paths((const char *[]){pipe_path, pipe_path}, 2, &d), MST_EUSAGE);
    options.format = NULL;
    snprintf(sentence, sizeof sentence, "%s can be read only once and is named twice", pipe_path);
    assert_string_equal(mst_error_text(), sentence);
    assert_int_equal(unlink(pipe_path), 0);
}

/* Every allocation made to fail in turn: MST_ENOMEM and nothing lost (the sanitizer looks), until all
 * succeed. */
static void short_memory(void **state)
{
    (void)state;
    write_rows("small.txt", 0, 2000);
    mst_status st = MST_ENOMEM;
    mst_text_list list = {0};
    assert_int_equal(mst_text_list_add(&list, in_folder("small.txt")), MST_OK);
    for (uint64_t k = 1; st != MST_OK; k++) {
        mst_dataset *d = NULL;
        uint64_t rows = 0;
        mst_alloc_fail_at(k);
        st = mst_dataset_open(&list, &options, &d);
        if (st == MST_OK)
            st = mst_dataset_each(d, 1, count_rows, &rows);
        mst_alloc_fail_at(0);
        mst_dataset_destroy(d);
        assert_true(st == MST_OK || st == MST_ENOMEM);
        assert_true(k < 1000);
    }
    mst_text_list_fini(&list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_in_order_whatever_the_threads),
        cmocka_unit_test(scan_finds_the_facts),
        cmocka_unit_test(failures_stop_the_walk),
        cmocka_unit_test(a_cut_file_is_named),
        cmocka_unit_test(long_lines_grow_the_block),
        cmocka_unit_test(too_long_a_line_is_refused),
        cmocka_unit_test(formats_are_told_apart),
        cmocka_unit_test(standard_input_is_read_once),
        cmocka_unit_test(pipes_are_read_once),
        cmocka_unit_test(short_memory),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
