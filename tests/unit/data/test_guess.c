/* Descriptions of files of unknown format, and of nearly valid files. */
#include "data/dataset.h"
#include "data/guess.h"
#include "data/indexed.h"
#include "unit/data/text_helpers.h"

typedef struct sample {
    const char *bytes;
    size_t n;
    const char *said;
} sample;
#define SAMPLE(bytes, said)                                                                                  \
    {                                                                                                        \
        bytes, sizeof bytes - 1, said                                                                        \
    }

static void unknown_formats(void **state)
{
    (void)state;
    static const sample samples[] = {
        SAMPLE("5.1 3.5 setosa\n4.9 3 virginica\n", "x looks like a table with blanks (3 columns)"),
        SAMPLE("PK\3\4..........................", "x looks like a zip archive"),
        SAMPLE("PAR1\x15\x04\x15",
               "x looks like a Parquet file, which muster does not read; write it as CSV, in Python with "
               "pandas.read_parquet(FILE).to_csv(\"data.csv\", index=False)"),
        SAMPLE("\x89HDF\r\n\x1a\n\0\0", "x looks like an HDF5 file"),
        SAMPLE("ORC\x0a\x10", "x looks like an ORC file"),
        SAMPLE("Obj\x01\x04\x16", "x looks like an Avro file"),
        SAMPLE("ARROW1\0\0",
               "x looks like an Arrow or Feather file, which muster does not read; write it as CSV"),
        SAMPLE("\x80\x04\x95\x0b", "x looks like a Python pickle"),
        SAMPLE("{\"a\": 1}\n{\"a\": 2}\n", "x looks like JSON lines"),
        SAMPLE("[{\"a\": 1},\n{\"a\": 2}]\n", "x looks like JSON,"),
        SAMPLE("BZh91AY&SY",
               "x looks like a file compressed with bzip2, which muster does not read; pipe it: bzcat"),
        SAMPLE("\xfd"
               "7zXZ\0\0",
               "x looks like a file compressed with xz"),
        SAMPLE("\xff\xfe"
               "1\0 \0"
               "1\0:\0"
               "1\0",
               "x looks like text in UTF-16, which muster does not read; convert it: iconv"),
        SAMPLE("\0001\0 \0001\0:\0001\0\n",
               "x looks like text in UTF-16, which muster does not read; convert it: iconv -f UTF-16BE"),
        SAMPLE("1\0 \0001\0:\0001\0\n\0",
               "x looks like text in UTF-16, which muster does not read; convert it: iconv -f UTF-16LE"),
        SAMPLE("\xff\xfe\0\0001\0\0\0",
               "x looks like text in UTF-32, which muster does not read; convert it: iconv -f UTF-32LE"),
        SAMPLE("1\0\0\0 \0\0\0001\0\0\0",
               "x looks like text in UTF-32, which muster does not read; convert it: iconv -f UTF-32LE"),
        SAMPLE("\0\0\0001\0\0\0 \0\0\0001",
               "x looks like text in UTF-32, which muster does not read; convert it: iconv -f UTF-32BE"),
        SAMPLE("\x1f\x8b\10\0",
               "x looks like a file that is compressed twice, which muster does not read; unpack it once"),
        SAMPLE("\x7f"
               "ELF\2\1",
               "x looks like a program or library"),
        SAMPLE("%PDF-1.4\n%\xe2\xe3", "x looks like a PDF document"),
        SAMPLE("<!DOCTYPE html>\n<html>\n", "x looks like a web page"),
        SAMPLE("version https://git-lfs.github.com/spec/v1\noid\n", "x looks like a Git LFS pointer"),
        SAMPLE("\xff\xd8\xff\xe0", "x looks like a single image"),
        SAMPLE("@relation iris\n@attribute a numeric\n", "x looks like an ARFF file"),
        SAMPLE("# nothing\n\n  # at all\n", "x has no rows: every line is blank or a comment"),
        SAMPLE("\n# first\nhello world\nmore\n", "x:3: \"hello world\" is not a row of a known format"),
        SAMPLE("\x7f"
               "OLD\0\1\2",
               "x is in none of the known formats (libsvm, "),
    };
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        const sample *s = &samples[i];
        uint8_t *copy = malloc(s->n + 1); /* exactly as long, so that a sanitizer sees a step beyond */
        memcpy(copy, s->bytes, s->n);
        assert_null(mst_data_guess(copy, s->n, 0));
        assert_int_equal(mst_data_unknown("x", copy, s->n), MST_EINPUT);
        if (strncmp(mst_error_text(), s->said, strlen(s->said)) != 0)
            fail_msg("\"%s\" does not begin with \"%s\"", mst_error_text(), s->said);
        free(copy);
    }
    assert_int_equal(mst_data_unknown("a.tfrecord", (const uint8_t *)"\1\2\3\4\0\0\0\0\0\0\0\0", 12),
                     MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "a.tfrecord is named like a TFRecord file, but"));
}

static mst_data_options options;

static mst_status open_one(const char *name, const void *data, size_t n, mst_dataset **out)
{
    char *path = (char *)write_file(name, data, n);
    return mst_dataset_open(&(mst_text_list){.items = &path, .n = 1}, &options, out);
}

/* Text of which most lines are rows has their format, and its parser names the line that is none. */
static void one_bad_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *format, *said;
    } cases[] = {
        {"1 1:1\n0 2:1\n1 x:3\n0 1:1\n", "libsvm", ":3: \"x:3\" is not index:value"},
        {"# rows\n1 1:1\nhello\n", "libsvm", ":3: label \"hello\" is not a finite number"},
        {"label a b\n1 1:1\n0\n", "libsvm", ":1: label \"label\" is not a finite number"},
        {"1 |a b\n0 a b\n1 |c\n", "vw", ":2: the row has no '|'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mst_dataset *d;
        assert_int_equal(open_one("bad", cases[i].text, strlen(cases[i].text), &d), MST_OK);
        assert_string_equal(d->kind->name, cases[i].format);
        assert_int_equal(mst_dataset_scan(d, 1), MST_EINPUT);
        if (strstr(mst_error_text(), cases[i].said) == NULL)
            fail_msg("\"%s\" lacks \"%s\"", mst_error_text(), cases[i].said);
        mst_dataset_destroy(d);
    }
}

static mst_status count_rows(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    (void)first_row;
    *(uint64_t *)arg += chunk->n_rows;
    return MST_OK;
}

/* A byte order mark is no part of the text: in a stream, with an index, and in the second of two files. */
static void byte_order_mark(void **state)
{
    (void)state;
    static const char text[] = "\xef\xbb\xbf-1 1:1\n1 2:1\n";
    mst_dataset *d;
    uint64_t rows = 0;
    assert_int_equal(open_one("mark.svm", text, sizeof text - 1, &d), MST_OK);
    assert_false(d->random);
    assert_int_equal(mst_dataset_scan(d, 1), MST_OK);
    assert_int_equal(d->info.n_rows, 2);
    assert_true(d->info.min_label == -1);
    mst_dataset_destroy(d);
    assert_int_equal(mst_index_build(in_folder("mark.svm"), NULL, NULL, &rows), MST_OK);
    assert_int_equal(rows, 2);
    assert_int_equal(open_one("mark.svm.not", text, 0, &d), MST_OK);
    mst_dataset_destroy(d);
    char *paths[2] = {NULL, NULL};
    paths[0] = strdup(in_folder("mark.svm"));
    assert_int_equal(mst_dataset_open(&(mst_text_list){.items = paths, .n = 1}, &options, &d), MST_OK);
    assert_true(d->random);
    rows = 0;
    assert_int_equal(mst_dataset_each(d, 1, count_rows, &rows), MST_OK);
    assert_int_equal(rows, 2);
    mst_dataset_destroy(d);
    free(paths[0]);
    paths[0] = strdup(write_file("a.svm", "1 1:1\n", 6));
    paths[1] = strdup(write_file("b.svm", text, sizeof text - 1));
    assert_int_equal(mst_dataset_open(&(mst_text_list){.items = paths, .n = 2}, &options, &d), MST_OK);
    rows = 0;
    assert_int_equal(mst_dataset_each(d, 1, count_rows, &rows), MST_OK);
    assert_int_equal(rows, 3);
    mst_dataset_destroy(d);
    free(paths[0]);
    free(paths[1]);
}

/* Files without rows are empty data sets, alone and among others. */
static void empty_files(void **state)
{
    (void)state;
    mst_dataset *d;
    assert_int_equal(open_one("none.tfrecord", "", 0, &d), MST_OK);
    assert_string_equal(d->kind->name, "tfrecord");
    assert_int_equal(mst_dataset_scan(d, 1), MST_OK);
    assert_int_equal(d->info.n_rows, 0);
    mst_dataset_destroy(d);
    char *paths[3];
    paths[0] = strdup(write_file("0.svm", "", 0));
    paths[1] = strdup(write_file("1.svm", "# a header\n", 11));
    paths[2] = strdup(write_file("2.svm", "1 |a\n", 5));
    assert_int_equal(mst_dataset_open(&(mst_text_list){.items = paths, .n = 3}, &options, &d), MST_OK);
    assert_string_equal(d->kind->name, "vw");
    assert_int_equal(mst_dataset_scan(d, 1), MST_OK);
    assert_int_equal(d->info.n_rows, 1);
    mst_dataset_destroy(d);
    for (int i = 0; i < 3; i++)
        free(paths[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_formats),
        cmocka_unit_test(one_bad_line),
        cmocka_unit_test(byte_order_mark),
        cmocka_unit_test(empty_files),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
