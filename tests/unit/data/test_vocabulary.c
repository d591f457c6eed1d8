/* Vocabularies: keys of frequent and rare categories, fields one after the other, the same keys from the file
 * with any number of threads, all formats with categories, refusals of damaged and foreign files. */
#include <sys/stat.h>
#include <unistd.h>

#include "data/dataset.h"
#include "data/origin.h"
#include "data/vocabulary.h"
#include "unit/data/text_helpers.h"

#include "unit/data/example_writer.h"

extern const mst_format mst_format_libffm, mst_format_vw, mst_format_criteo;

static char *slurp(const char *path, size_t *n)
{
    static char content[1 << 16];
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    *n = fread(content, 1, sizeof content - 1, file);
    content[*n] = '\0';
    fclose(file);
    return content;
}

static mst_status make(const char *source, mst_data_options *o, unsigned n_threads, const char *path)
{
    char *items[1] = {(char *)source};
    return mst_vocabulary_make(&(mst_text_list){.items = items, .n = 1}, o, n_threads, "k", path);
}

typedef struct rows_text {
    char text[4096];
    size_t n;
    bool ascend;
} rows_text;

static mst_status add_rows(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    rows_text *r = arg;
    (void)first_row;
    for (uint32_t i = 0; i < chunk->n_rows; i++) {
        mst_row row;
        mst_chunk_row(chunk, i, &row);
        for (uint32_t k = 0; k < row.n_keys; k++)
            r->n += (size_t)snprintf(r->text + r->n, sizeof r->text - r->n, "%s%u", k > 0 ? " " : "",
                                     row.keys[k]);
        r->n += (size_t)snprintf(r->text + r->n, sizeof r->text - r->n, "\n");
        r->ascend &= !row.any_order;
    }
    return MST_OK;
}

/* The keys of all rows, read with a vocabulary. */
static const char *keys_of(const char *source, mst_data_options *o, const char *vocabulary)
{
    static rows_text r;
    char *items[1] = {(char *)source};
    mst_dataset *d = NULL;
    mst_data_options with = *o;
    r = (rows_text){.ascend = true};
    with.vocabulary = (char *)vocabulary;
    mst_status st = mst_dataset_open(&(mst_text_list){.items = items, .n = 1}, &with, &d);
    if (st != MST_OK)
        return mst_error_text();
    assert_string_equal(json_string_value(json_object_get(d->origin, "keys")), "vocabulary");
    assert_int_equal(mst_dataset_each(d, 2, add_rows, &r), MST_OK);
    mst_dataset_destroy(d);
    return r.text;
}

static void frequent_and_rare(void **state)
{
    (void)state;
    static const char content[] = "1 0:7:1 1:7:1\n0 0:7:1 1:8:1\n1 0:9:1 1:8:1\n0 0:7:1 3:5:1\n";
    char source[128], path[128];
    snprintf(source, sizeof source, "%s", write_file("a.ffm", content, sizeof content - 1));
    snprintf(path, sizeof path, "%s/a.vocabulary", folder);
    mst_data_options o = {.min_count = 2};
    for (unsigned threads = 1; threads <= 3; threads++) {
        size_t n;
        assert_int_equal(make(source, &o, threads, path), MST_OK);
        assert_string_equal(slurp(path, &n),
                            "muster vocabulary 1\n"
                            "{\"dense\":0,\"features\":6,\"fields\":4,\"key\":\"k\",\"min-count\":2,"
                            "\"origin\":{\"keys\":\"numbers\"}}\n"
                            "0\t0\t1\n1\t0\t3\t7\n"
                            "2\t1\t1\n3\t1\t2\t8\n"
                            "4\t2\t0\n"
                            "5\t3\t1\n");
    }
    assert_true(mst_vocabulary_fits(path, "k"));
    assert_false(mst_vocabulary_fits(path, "other"));
    assert_string_equal(keys_of(source, &o, path), "1 2\n1 3\n0 3\n1 5\n");
    /* A category that was never counted is rare; a field beyond is refused by the reader. */
    static const char other[] = "1 0:1234:1 1:8:1 2:8:1\n";
    assert_string_equal(keys_of(write_file("b.ffm", other, sizeof other - 1), &o, path), "0 3 4\n");
    static const char beyond[] = "1 4:1:1\n";
    char *items[1] = {(char *)write_file("c.ffm", beyond, sizeof beyond - 1)};
    mst_dataset *d = NULL;
    rows_text r = {0};
    o.vocabulary = path;
    assert_int_equal(mst_dataset_open(&(mst_text_list){.items = items, .n = 1}, &o, &d), MST_OK);
    assert_int_equal(mst_dataset_each(d, 1, add_rows, &r), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "field 4 is not below --fields 4"));
    mst_dataset_destroy(d);
    o.min_count = 1;
    o.vocabulary = NULL;
    assert_int_equal(make(source, &o, 2, path), MST_OK);
    assert_string_equal(keys_of(source, &o, path), "1 5\n1 4\n2 4\n1 8\n"); /* 8 occurs more often than 7 */
}

/* One category per field: keys ascend, and nothing is hashed. */
static void criteo_rows(void **state)
{
    (void)state;
    char content[4096], path[128], source[128];
    size_t n = 0;
    for (int row = 0; row < 3; row++) {
        n += (size_t)snprintf(content + n, sizeof content - n, "%d\t%s", row % 2, row == 0 ? "" : "-5");
        for (int i = 1; i < 13; i++)
            n += (size_t)snprintf(content + n, sizeof content - n, "\t%d", i);
        for (int i = 0; i < 26; i++)
            n += (size_t)snprintf(content + n, sizeof content - n, "\t%08x", row == 2 ? 77 : i);
        content[n++] = '\n';
    }
    snprintf(source, sizeof source, "%s", write_file("a.tsv", content, n));
    snprintf(path, sizeof path, "%s/tsv.vocabulary", folder);
    for (int numeric = 0; numeric < 3; numeric++) {
        mst_data_options o = {.min_count = 2, .criteo_numeric = numeric};
        assert_int_equal(make(source, &o, 2, path), MST_OK);
        const char *vocabulary = slurp(path, &n);
        assert_non_null(strstr(vocabulary, "\t00000003\n"));
        assert_null(strstr(vocabulary, "\t0000004d\n")); /* once per field */
        assert_true((strstr(vocabulary, "\t2\t-\n") != NULL) == (numeric != 1));
        mst_vocabulary *v = NULL;
        assert_int_equal(mst_vocabulary_load(path, &v), MST_OK);
        assert_int_equal(mst_vocabulary_fields(v), numeric == 2 ? 52 : 39);
        /* 26 categories and 13 buckets have a rare key and one more; numbers are one each. */
        assert_int_equal(mst_vocabulary_features(v), numeric == 0 ? 78 : numeric == 1 ? 13 + 52 : 13 + 78);
        mst_vocabulary_destroy(v);
        const char *keys = keys_of(source, &o, path);
        static const char *const starts[] = {"0 3 5 ", "14 16 18 ", "13 16 18 "};
        assert_int_equal(strncmp(keys, starts[numeric], strlen(starts[numeric])), 0);
        mst_data_options other = {.criteo_numeric = (numeric + 1) % 3};
        const char *refused = keys_of(source, &other, path);
        assert_non_null(strstr(refused, numeric == 1 ? "its rows have 52 fields, but the vocabulary"
                                                     : "read with --criteo-numeric"));
    }
}

static void names_of_any_bytes(void **state)
{
    (void)state;
    static const char content[] =
        "1 |a x\\y:2 caf\xc3\xa9 |b x\n0 |b x |a x\\y\n1 |c new\n0 |a caf\xc3\xa9\n";
    char source[128], path[128];
    size_t n;
    snprintf(source, sizeof source, "%s", write_file("a.vw", content, sizeof content - 1));
    snprintf(path, sizeof path, "%s/vw.vocabulary", folder);
    mst_data_options o = {.min_count = 2};
    assert_int_equal(make(source, &o, 1, path), MST_OK);
    const char *vocabulary = slurp(path, &n);
    assert_non_null(strstr(vocabulary, "\tcaf\\xc3\\xa9\n"));
    assert_non_null(strstr(vocabulary, "\tx\\x5cy\n"));
    assert_string_equal(keys_of(source, &o, path), "2 1 4\n2 4\n5\n1\n");
    /* The fields are those of the vocabulary, whatever the order of namespaces in a file. */
    static const char other[] = "1 |b x |a caf\xc3\xa9\n";
    assert_string_equal(keys_of(write_file("o.vw", other, sizeof other - 1), &o, path), "1 4\n");
}

static void columns_of_records(void **state)
{
    (void)state;
    static text features, file;
    char source[128], path[128];
    size_t n;
    for (int row = 0; row < 4; row++) {
        put_int(&features, "b", row % 2 ? -9 : row); /* 0, -9, 2, -9 */
        put_float(&features, "x", (float)row);
        put_string(&features, "a", row < 3 ? "red" : "");
        put_int(&features, "label", row % 2);
        end_record(&file, &features);
    }
    snprintf(source, sizeof source, "%s", write_file("a.tfrecord", file.data, file.n));
    snprintf(path, sizeof path, "%s/tf.vocabulary", folder);
    mst_data_options o = {.min_count = 2,
                          .tf_label = (char *)"label",
                          .tf_index = (char *)"index",
                          .tf_value = (char *)"value"};
    assert_int_equal(make(source, &o, 1, path), MST_OK);
    assert_non_null(strstr(slurp(path, &n), "1\t1\t1\n2\t1\t3\tred\n3\t2\t2\n4\t2\t2\t-9\n"));
    assert_string_equal(keys_of(source, &o, path), "2 3\n2 4\n2 3\n1 4\n");
    o.tf_columns = (char *)"x,b";
    assert_non_null(strstr(keys_of(source, &o, path), "column"));
}

static void refuse(const char *content, const char *sentence)
{
    mst_vocabulary *v = NULL;
    assert_int_equal(mst_vocabulary_parse("v", content, strlen(content), &v), MST_EINPUT);
    if (strstr(mst_error_text(), sentence) == NULL)
        print_error("%s: %s\n", sentence, mst_error_text());
    assert_non_null(strstr(mst_error_text(), sentence));
}

#define HEAD "muster vocabulary 1\n{\"dense\":1,\"fields\":3,\"features\":4,\"origin\":{\"keys\":\"vw\"}}\n"

static void damage_is_refused(void **state)
{
    (void)state;
    mst_vocabulary *v = NULL;
    static const char good[] = HEAD "1\t1\t0\n2\t1\t5\ta\n3\t2\t9\n";
    assert_int_equal(mst_vocabulary_parse("v", good, sizeof good - 1, &v), MST_OK);
    assert_int_equal(mst_vocabulary_key(v, 1, "a", 1), 2);
    assert_int_equal(mst_vocabulary_key(v, 2, "a", 1), 3);
    assert_int_equal(mst_vocabulary_key(v, 60000, "a", 1), 3);
    mst_vocabulary_destroy(v);
    for (size_t n = 0; n < sizeof good - 1; n++) { /* cut off anywhere */
        assert_int_equal(mst_vocabulary_parse("v", good, n, &v), MST_EINPUT);
    }
    refuse("x\n", "is not a vocabulary of muster");
    refuse("muster vocabulary 1\n{}\n", "v:2: the vocabulary is damaged: it has no facts");
    refuse("muster vocabulary 1\n{\"dense\":3,\"fields\":3,\"features\":4,\"origin\":{\"keys\":\"vw\"}}\n",
           "its facts are impossible");
    refuse(HEAD "1\t1\t0\n2\t1\t5\ta\n3\t1\t4\ta\n",
           "v:5: the vocabulary is damaged: a category occurs twice");
    refuse(HEAD "1\t1\t0\n3\t1\t5\ta\n",
           "v:4: the vocabulary is damaged: a line does not start with its key");
    refuse(HEAD "1\t2\t0\n", "its fields are not in order");
    refuse(HEAD "1\t1\t0\n2\t1\t5\t\\q\n", "a line is not valid");
    refuse(HEAD "1\t1\t0\n2\t1\tx\ta\n", "a line has no count");
    refuse(HEAD "1\t1\t0\n2\t2\t0\n3\t2\t1\ta\n4\t2\t1\tb\n", "it has more keys than its facts state");
    assert_int_equal(mst_vocabulary_load("/nowhere/v", &v), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(),
                           "/nowhere/v, the vocabulary that gives categories their keys, does not exist"));
}

static void data_without_categories(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/none.vocabulary", folder);
    mst_data_options o = {.min_count = 2};
    assert_int_equal(make(write_file("a.svm", "1 3:1\n", 6), &o, 1, path), MST_EUSAGE);
    assert_string_equal(mst_error_text(), "--min-count: libsvm data has no categories");
    o.vocabulary = path;
    char *items[1] = {(char *)in_folder("a.svm")};
    mst_dataset *d = NULL;
    assert_int_equal(mst_dataset_open(&(mst_text_list){.items = items, .n = 1}, &o, &d), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "a.svm: libsvm data has no categories, but the model needs"));
    assert_null(strstr(mst_error_text(), "--vocabulary"));
    items[0] = (char *)write_file("empty", "", 0);
    assert_int_equal(mst_dataset_open(&(mst_text_list){.items = items, .n = 1}, &o, &d), MST_OK);
    mst_dataset_destroy(d);
    o.vocabulary = NULL;
    assert_int_equal(mst_dataset_open(&(mst_text_list){.items = items, .n = 1}, &o, &d), MST_EUSAGE);
    assert_string_equal(mst_error_text(), "--min-count is for data convert and for train --cache");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequent_and_rare),  cmocka_unit_test(criteo_rows),
        cmocka_unit_test(names_of_any_bytes), cmocka_unit_test(columns_of_records),
        cmocka_unit_test(damage_is_refused),  cmocka_unit_test(data_without_categories),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
