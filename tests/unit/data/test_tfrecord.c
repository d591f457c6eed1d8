/* TFRecord rows: both layouts, names, kinds of keys, feature order, frames, and the sentence of every bad
 * record. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/crc.h"
#include "data/tfrecord.h"
#include "example_writer.h"

/* ---- reading ---- */

typedef struct fixture {
    text file, features;
    mst_data_options options;
    mst_parse_context context;
    mst_chunk_builder builder;
    mst_status st;
} fixture;

static fixture *f;

static int setup(void **state)
{
    (void)state;
    f = calloc(1, sizeof *f);
    mst_chunk_builder_init(&f->builder);
    return f == NULL;
}

static void finish(void)
{
    if (f->context.prepared != NULL)
        mst_format_tfrecord.unprepare(f->context.prepared);
    f->context.prepared = NULL;
}

static int teardown(void **state)
{
    (void)state;
    finish();
    mst_chunk_builder_fini(&f->builder);
    free(f);
    return 0;
}

/* Reads the file as a dataset would, as one block. */
static mst_status read_file(uint64_t features)
{
    finish();
    mst_chunk_builder_clear(&f->builder);
    f->context = (mst_parse_context){.options = &f->options, .features = features};
    uint8_t *copy = malloc(f->file.n + 1); /* exactly as long, so that a sanitizer sees a step beyond */
    memcpy(copy, f->file.data, f->file.n);
    mst_block block = {.path = "x.tfrecord", .data = copy, .size = f->file.n, .offset = 1000};
    size_t whole = 0;
    f->st = mst_format_tfrecord.find_end(NULL, &block, &whole);
    if (f->st == MST_OK) {
        block.size = whole;
        f->st = mst_format_tfrecord.prepare(&f->context, &block);
    }
    if (f->st == MST_OK)
        f->st = mst_format_tfrecord.parse(&f->context, &block, &f->builder);
    free(copy);
    return f->st;
}

static void expect_row(size_t row, float label, size_t n, const uint32_t *keys, const float *values)
{
    const mst_chunk_builder *b = &f->builder;
    assert_true(row < b->n_rows);
    assert_true(b->labels[row] == label);
    size_t start = b->row_start[row];
    assert_int_equal(b->row_start[row + 1] - start, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(b->keys[start + i], keys[i]);
        assert_true(b->values[start + i] == values[i]);
    }
}

static void expect_failure(uint64_t features, mst_status code, const char *sentence)
{
    assert_int_equal(read_file(features), code);
    assert_string_equal(mst_error_text(), sentence);
}

/* The failure names the given record's offset. */
static void expect_failure_at(uint64_t features, size_t record, const char *sentence)
{
    char expected[300];
    size_t at = 0;
    for (; record > 0; record--)
        at += MST_TFRECORD_HEAD + MST_TFRECORD_TAIL + f->file.data[at] + 256u * f->file.data[at + 1];
    snprintf(expected, sizeof expected, "x.tfrecord at byte %zu: %s", 1000 + at, sentence);
    expect_failure(features, MST_EINPUT, expected);
}

static void pairs(void **state)
{
    (void)state;
    const float ones[3] = {1, 1, 1};
    for (int packed = 0; packed <= 1; packed++) {
        f->file.n = 0;
        put_int(&f->features, "label", -1);
        put_ints(&f->features, "index", packed, 3, (const int64_t[]){7, 3, 4000000000});
        put_floats(&f->features, "value", packed, 3, (const float[]){0.5f, -2, 1e30f});
        end_record(&f->file, &f->features);
        put_floats(&f->features, "value", packed, 1,
                   (const float[]){9}); /* another order, something unknown */
        put_string(&f->features, "uid", "someone");
        put_float(&f->features, "label", 1);
        put_ints(&f->features, "index", packed, 1, (const int64_t[]){0});
        end_record(&f->file, &f->features);
        put_float(&f->features, "label", 0); /* no value: ones */
        put_ints(&f->features, "index", packed, 3, (const int64_t[]){1, 200, 30000});
        end_record(&f->file, &f->features);
        put_float(&f->features, "label", 3); /* an empty row */
        end_record(&f->file, &f->features);
        assert_int_equal(read_file(0), MST_OK);
        assert_int_equal(f->builder.n_rows, 4);
        expect_row(0, -1, 3, (const uint32_t[]){3, 7, 4000000000}, (const float[]){-2, 0.5f, 1e30f});
        expect_row(1, 1, 1, (const uint32_t[]){0}, (const float[]){9});
        expect_row(2, 0, 3, (const uint32_t[]){1, 200, 30000}, ones);
        expect_row(3, 3, 0, NULL, NULL);
        assert_int_equal(f->context.features, 0);
    }
}

static void names_by_option(void **state)
{
    (void)state;
    f->options.tf_label = "response";
    f->options.tf_index = "global_indices";
    f->options.tf_value = "global_values";
    f->options.tf_weight = "weight";
    put_int(&f->features, "response", 1);
    put_float(&f->features, "weight", 2.5f);
    put_floats(&f->features, "global_values", true, 2, (const float[]){3, 4});
    put_ints(&f->features, "global_indices", true, 2, (const int64_t[]){5, 6});
    put_float(&f->features, "label", 9);
    end_record(&f->file, &f->features);
    assert_int_equal(read_file(7), MST_OK);
    expect_row(0, 1, 2, (const uint32_t[]){5, 6}, (const float[]){3, 4});
    assert_true(f->builder.weights[0] == 2.5f);
    expect_failure(
        6, MST_EINPUT,
        "x.tfrecord at byte 1000: feature \"global_indices\" holds index 6, which is not below the number "
        "of features 6");
}

/* I1..I12 and C1, C2 in an order of no meaning: numbered by name. */
static void columns_by_name(void **state)
{
    (void)state;
    char name[8];
    uint32_t keys[14];
    float values[14];
    for (int row = 0; row < 3; row++) {
        for (int i = 0; i < 12; i++) {
            int column = (i * 5 + row) % 12;
            snprintf(name, sizeof name, "I%d", column + 1);
            if (row != 2 || column != 4) /* one is missing in the last row */
                put_float(&f->features, name, (float)(100 * row + column));
        }
        put_int(&f->features, "C2", 50 + row);
        put_int(&f->features, "label", row);
        put_int(&f->features, "C1", 12 + row);
        put_value(&f->features, "digest", "\x01\x02", 2); /* neither text nor an image: left out */
        end_record(&f->file, &f->features);
    }
    assert_int_equal(read_file(100), MST_OK);
    assert_int_equal(f->context.left_out->n, 1);
    assert_string_equal(f->context.left_out->items[0], "digest");
    assert_false(((const mst_tf_layout *)f->context.prepared)->hashed);
    for (int row = 0; row < 3; row++) {
        for (int i = 0; i < 12; i++) {
            keys[i] = (uint32_t)i;
            values[i] = row == 2 && i == 4 ? 0.0f : (float)(100 * row + i);
        }
        keys[12] = (uint32_t)(12 + row);
        keys[13] = (uint32_t)(50 + row);
        values[12] = values[13] = 1;
        expect_row((size_t)row, (float)row, 14, keys, values);
    }
    f->options.mark_missing = true;
    assert_int_equal(read_file(100), MST_OK);
    for (size_t i = 0; i < f->builder.n_entries; i++)
        assert_int_equal(isnan(f->builder.values[i]) != 0, i == 2 * 14 + 4);
    f->options.mark_missing = false;
    f->options.tf_columns = "C1..C2,I2";
    assert_int_equal(read_file(100), MST_OK);
    assert_null(f->context.left_out); /* as the user chose */
    expect_row(1, 1, 3, (const uint32_t[]){0, 13, 51}, (const float[]){101, 1, 1});
    assert_int_equal(read_file(51), MST_OK); /* too small for feature numbers: hashed */
    assert_true(((const mst_tf_layout *)f->context.prepared)->hashed);
    f->options.tf_keys = 1;
    expect_failure_at(51, 1, "feature \"C2\" holds index 51, which is not below the number of features 51");
}

static void put_local_rows(void)
{
    for (int row = 0; row < 3; row++) {
        put_float(&f->features, "label", 0);
        put_float(&f->features, "x", (float)row);
        put_int(&f->features, "a", row);
        put_int(&f->features, "b", row == 2 ? -7 : row);
        end_record(&f->file, &f->features);
    }
}

static void columns_hashed(void **state)
{
    (void)state;
    put_local_rows();
    assert_int_equal(read_file(0), MST_OK);
    assert_true(((const mst_tf_layout *)f->context.prepared)->hashed);
    assert_int_equal(f->context.features, MST_TFRECORD_HASHED);
    const mst_chunk_builder *b = &f->builder;
    uint32_t found[6];
    for (size_t row = 0; row < 3; row++) {
        assert_int_equal(b->row_start[row + 1] - b->row_start[row], 3);
        assert_int_equal(b->keys[3 * row], 0);
        assert_true(b->values[3 * row] == (float)row && b->values[3 * row + 1] == 1);
        for (size_t i = 0; i < 2; i++) {
            found[2 * row + i] = b->keys[3 * row + 1 + i];
            assert_in_range(found[2 * row + i], 1, MST_TFRECORD_HASHED - 1);
        }
    }
    for (size_t i = 0; i < 6; i++) /* the same value in another column is another key */
        for (size_t j = i + 1; j < 6; j++)
            assert_int_not_equal(found[i], found[j]);
    assert_int_equal(read_file(0), MST_OK); /* and the same again */
    assert_int_equal(b->keys[1], found[0]);
    f->options.hash_seed = 1;
    assert_int_equal(read_file(0), MST_OK);
    assert_int_not_equal(b->keys[1], found[0]);
    assert_int_equal(read_file(10), MST_OK);
    for (size_t i = 0; i < b->n_entries; i++)
        assert_true(b->keys[i] < 10 && (i % 3 == 0) == (b->keys[i] == 0));
    assert_int_equal(f->context.n_fields, 3);
    for (size_t i = 0; i < b->n_entries; i++)
        assert_int_equal(b->fields[i], i % 3);
    expect_failure(1, MST_EINPUT, "x.tfrecord: the float columns alone hold 1 features, and --features is 1");
}

/* Text is found like numbers, and means what it means when it is named. */
static void text_columns(void **state)
{
    (void)state;
    static const char *const words[] = {"red", "caf\xc3\xa9", "", "a b"};
    for (int row = 0; row < 4; row++) {
        put_string(&f->features, "C2", words[row]);
        put_value(&f->features, "digest", "\x00\x9f\x10\xff", 4);
        put_float(&f->features, "I1", (float)row);
        put_string(&f->features, "C10", words[3 - row]);
        put_int(&f->features, "label", row % 2);
        end_record(&f->file, &f->features);
    }
    assert_int_equal(read_file(0), MST_OK);
    assert_int_equal(f->context.features, MST_TFRECORD_HASHED);
    const mst_chunk_builder *b = &f->builder;
    uint32_t found[12];
    assert_int_equal(b->n_entries, 12);
    memcpy(found, b->keys, sizeof found);
    assert_int_equal(f->context.left_out->n, 1);
    assert_string_equal(f->context.left_out->items[0], "digest");
    f->options.tf_columns = "I1,C2,C10";
    assert_int_equal(read_file(0), MST_OK);
    assert_int_equal(b->n_entries, 12);
    assert_memory_equal(found, b->keys, sizeof found);
    f->options.tf_columns = NULL;
    f->options.tf_keys = 1; /* feature numbers only: text is left out, and there are no others */
    assert_int_equal(read_file(0), MST_OK);
    assert_int_equal(b->n_entries, 4);
    assert_int_equal(f->context.left_out->n, 3);
    assert_string_equal(f->context.left_out->items[0], "C2");
}

/* Kinds in --tf-columns hold the places of columns that the first records lack. */
static void columns_that_lack(void **state)
{
    (void)state;
    put_float(&f->features, "label", 1);
    put_float(&f->features, "b", 4);
    put_string(&f->features, "d", "red");
    end_record(&f->file, &f->features);
    f->options.tf_columns = "a:float[2],b:float,c:bytes,d:bytes,x:y:int64";
    assert_int_equal(read_file(0), MST_OK);
    const mst_tf_layout *layout = f->context.prepared;
    assert_int_equal(layout->n_dense, 3);
    assert_int_equal(f->builder.n_entries, 4);
    expect_row(0, 1, 4, f->builder.keys, (const float[]){0, 0, 4, 1});
    uint32_t key = f->builder.keys[3];
    f->options.tf_columns = "d:bytes,a:float[2],b"; /* another place among the categories: another hash */
    assert_int_equal(read_file(0), MST_OK);
    assert_int_not_equal(f->builder.keys[3], key);
    put_float(&f->features, "label", 1);
    put_string(&f->features, "c", "blue");
    end_record(&f->file, &f->features);
    f->options.tf_columns = "a,b,c,d";
    assert_int_equal(read_file(0), MST_EINPUT); /* a is in no record */
    f->options.tf_columns = "a:float[2],b,c,d";
    assert_int_equal(read_file(0), MST_OK);
    assert_int_equal(f->builder.keys[3], key);
}

static void nothing_to_use(void **state)
{
    (void)state;
    put_int(&f->features, "label", 1);
    put_value(&f->features, "image_raw", "\x00\x01\x02", 3);
    end_record(&f->file, &f->features);
    expect_failure(
        0, MST_EINPUT,
        "x.tfrecord: no feature can be used: \"image_raw\" holds bytes that are neither text, nor a "
        "JPEG or PNG image, nor raw pixels with int64 features height, width and depth");
}

/* Beside index and value nothing is used, which is said. */
static void pairs_leave_out(void **state)
{
    (void)state;
    put_int(&f->features, "label", 1);
    put_int(&f->features, "index", 3);
    put_float(&f->features, "weight", 2);
    put_string(&f->features, "uid", "someone");
    end_record(&f->file, &f->features);
    assert_int_equal(read_file(0), MST_OK);
    assert_int_equal(f->context.left_out->n, 2);
    assert_string_equal(f->context.left_out->items[0], "uid");
    assert_string_equal(f->context.left_out->items[1], "weight");
}

/* Of a name that occurs twice the last counts, as in protobuf; so do two Examples written one after the
 * other. */
static void features_twice(void **state)
{
    (void)state;
    put_float(&f->features, "label", 1);
    put_ints(&f->features, "index", true, 2, (const int64_t[]){1, 2});
    put_floats(&f->features, "value", true, 1, (const float[]){9});
    put_ints(&f->features, "index", false, 1, (const int64_t[]){7});
    put_float(&f->features, "label", 0);
    end_record(&f->file, &f->features);
    put_float(&f->features, "label", 1);
    put_ints(&f->features, "index", true, 1, (const int64_t[]){4});
    end_record(&f->file, &f->features);
    assert_int_equal(read_file(0), MST_OK);
    expect_row(0, 0, 1, (const uint32_t[]){7}, (const float[]){9});
    expect_row(1, 1, 1, (const uint32_t[]){4}, (const float[]){1});
    f->file.n = 0;
    for (int row = 0; row < 2; row++) {
        put_float(&f->features, "label", 1);
        put_float(&f->features, "x", 5);
        put_int(&f->features, "a", 1);
        put_int(&f->features, "b", 2);
        if (row == 1) {
            put_int(&f->features, "a", 3);
            put_floats(&f->features, "x", true, 0, NULL); /* an empty list: absent */
        }
        end_record(&f->file, &f->features);
    }
    f->options.tf_keys = 1;
    assert_int_equal(read_file(0), MST_OK);
    expect_row(0, 1, 3, (const uint32_t[]){0, 1, 2}, (const float[]){5, 1, 1});
    expect_row(1, 1, 3, (const uint32_t[]){0, 3, 2}, (const float[]){0, 1, 1}); /* by column */
    f->file.n = 0; /* of another kind the first time: in the survey, and in rows behind it */
    for (int row = 0; row < 2; row++) {
        put_string(&f->features, "label", "x");
        put_int(&f->features, "x", 7);
        put_float(&f->features, "a", 1);
        put_float(&f->features, "label", 1);
        put_float(&f->features, "x", 5);
        put_int(&f->features, "a", 1);
        end_record(&f->file, &f->features);
    }
    assert_int_equal(read_file(0), MST_OK);
    expect_row(0, 1, 2, (const uint32_t[]){0, 1}, (const float[]){5, 1});
    expect_row(1, 1, 2, (const uint32_t[]){0, 1}, (const float[]){5, 1});
}

static void keys_by_option(void **state)
{
    (void)state;
    put_local_rows();
    f->options.tf_keys = 1;
    expect_failure_at(0, 0,
                      "feature \"a\" holds index 0, which is that of a float column: use --tf-keys hash");
    f->options.tf_columns = "a,b";
    expect_failure_at(0, 2, "feature \"b\" holds the negative index -7");
    f->file.n = 0;
    put_float(&f->features, "label", 0);
    put_int(&f->features, "a", 5);
    put_string(&f->features, "b", "red");
    end_record(&f->file, &f->features);
    f->options.tf_columns = "a,b";
    expect_failure(0, MST_EUSAGE, "x.tfrecord: columns of bytes are not feature numbers: use --tf-keys hash");
    f->options.tf_keys = 0;
    assert_int_equal(read_file(0), MST_OK);
    assert_int_equal(f->builder.n_entries, 2);
}

static void wide_column(void **state)
{
    (void)state;
    put_float(&f->features, "label", 4);
    put_floats(&f->features, "pixels", true, 3, (const float[]){1, 2, 3});
    put_float(&f->features, "bright", 9);
    end_record(&f->file, &f->features);
    assert_int_equal(read_file(0), MST_OK);
    expect_row(0, 4, 4, (const uint32_t[]){0, 1, 2, 3}, (const float[]){9, 1, 2, 3});
    put_float(&f->features, "label", 4);
    put_floats(&f->features, "pixels", false, 2, (const float[]){1, 2});
    end_record(&f->file, &f->features);
    expect_failure(
        0, MST_EINPUT,
        "x.tfrecord: feature \"pixels\" is a float list of varying length, which cannot be a column: name it "
        "with --tf-value and its indices with --tf-index, or name the columns with --tf-columns");
}

/* With --tf-label or not, a label that is there is not looked at. */
static void labels_may_lack_to_predict(void **state)
{
    (void)state;
    f->options.unlabelled = true;
    put_ints(&f->features, "index", true, 2, (const int64_t[]){3, 5});
    end_record(&f->file, &f->features);
    put_string(&f->features, "label", "cat");
    put_ints(&f->features, "index", true, 1, (const int64_t[]){4});
    end_record(&f->file, &f->features);
    assert_int_equal(read_file(0), MST_OK);
    assert_int_equal(f->builder.n_rows, 2);
    expect_row(0, 0, 2, (const uint32_t[]){3, 5}, (const float[]){1, 1});
    expect_row(1, 0, 1, (const uint32_t[]){4}, (const float[]){1});
}

static void bad_rows(void **state)
{
    (void)state;
    struct {
        const char *sentence;
        int what;
    } cases[] = {
        {"the record has no feature \"label\": name the one with the label with --tf-label (only predict "
         "takes rows "
         "without a label)",
         0},
        {"feature \"label\" holds 2 numbers instead of one", 1},
        {"feature \"label\" is not a finite number", 2},
        {"feature \"label\" is not a number", 3},
        {"feature \"value\" holds 1 numbers, but \"index\" holds 2", 4},
        {"feature \"value\" holds a number that is not finite", 5},
        {"feature \"index\" holds the negative index -3", 6},
        {"feature \"index\" holds index 4294967295, which is not below the number of features 4294967295", 7},
        {"feature \"value\" is not a list of floats", 9},
        {"feature \"index\" is not a list of int64", 10},
    };
    const int64_t two[2] = {1, 2};
    char expected[300];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int what = cases[i].what;
        text *t = &f->features;
        f->file.n = 0;
        put_float(t, "label", 1);
        put_ints(t, "index", true, 1, two);
        end_record(&f->file, t);
        size_t at = 1000 + f->file.n;
        if (what == 1)
            put_ints(t, "label", true, 2, two);
        else if (what == 2)
            put_float(t, "label", NAN);
        else if (what == 3)
            put_string(t, "label", "yes");
        else if (what != 0)
            put_float(t, "label", 1);
        if (what == 6)
            put_int(t, "index", -3);
        else if (what == 7)
            put_int(t, "index", 4294967295);
        else if (what == 10)
            put_float(t, "index", 1);
        else
            put_ints(t, "index", true, 2, two);
        if (what == 4)
            put_float(t, "value", 1);
        if (what == 5)
            put_floats(t, "value", true, 2, (const float[]){1, INFINITY});
        if (what == 9)
            put_ints(t, "value", true, 2, two);
        end_record(&f->file, t);
        snprintf(expected, sizeof expected, "x.tfrecord at byte %zu: %s", at, cases[i].sentence);
        expect_failure(0, MST_EINPUT, expected);
        assert_int_equal(f->builder.n_rows, 1); /* what came before stays */
        assert_int_equal(f->builder.n_entries, 1);
    }
}

/* The records before one without a length are found; after them it is an error. */
static void expect_no_length(size_t at, const char *sentence)
{
    size_t whole;
    mst_block block = {.path = "x", .data = f->file.data, .size = f->file.n};
    assert_int_equal(mst_format_tfrecord.find_end(NULL, &block, &whole), MST_OK);
    assert_int_equal(whole, at);
    block = (mst_block){.path = "x", .data = f->file.data + at, .size = f->file.n - at, .offset = 100};
    assert_int_equal(mst_format_tfrecord.find_end(NULL, &block, &whole), MST_EINPUT);
    assert_string_equal(mst_error_text(), sentence);
}

static void frames(void **state)
{
    (void)state;
    put_float(&f->features, "label", 1);
    put_int(&f->features, "index", 1);
    end_record(&f->file, &f->features);
    size_t one = f->file.n;
    put_bytes(&f->file, f->file.data, one);
    assert_int_equal(mst_format_tfrecord.kind.sniff(f->file.data, one, 0), 2);
    assert_int_equal(mst_format_tfrecord.kind.sniff(f->file.data, 11, 0), 0);
    assert_int_equal(mst_format_tfrecord.kind.sniff((const uint8_t *)"1 1:1 2:1 3:1", 13, 0), 0);
    for (size_t n = 0; n <= f->file.n; n++) {
        mst_block block = {.path = "x", .data = f->file.data, .size = n};
        size_t whole;
        assert_int_equal(mst_format_tfrecord.find_end(NULL, &block, &whole), MST_OK);
        assert_int_equal(whole, n / one * one);
    }
    f->file.data[one + 20] ^= 1;
    expect_failure_at(0, 1, "the record's checksum is wrong (--skip-bad-rows leaves such rows out)");
    f->file.data[one + 3] ^= 1;
    expect_no_length(one,
                     "x at byte 100: the checksum of the record's length is wrong: later records are lost");
    uint64_t length = 1ull << 40;
    uint32_t crc = mst_crc_mask(mst_crc32c(0, &length, 8));
    memcpy(f->file.data + one, &length, 8);
    memcpy(f->file.data + one + 8, &crc, 4);
    expect_no_length(one, "x at byte 100: a record of 1099511627776 bytes; the limit is 67108864");
}

static void bad_options(void **state)
{
    (void)state;
    put_float(&f->features, "label", 1);
    put_float(&f->features, "I1", 1);
    end_record(&f->file, &f->features);
    f->options.tf_columns = "I1,I2";
    expect_failure(
        0, MST_EINPUT,
        "x.tfrecord: the first 1 records have no feature \"I2\" (--tf-columns); I2:bytes, I2:int64 or "
        "I2:float gives its type");
    f->options.tf_columns = "I1:int64";
    expect_failure(0, MST_EINPUT, "x.tfrecord: feature \"I1\" holds float, but --tf-columns declares int64");
    f->options.tf_columns = "I1,I1";
    expect_failure(0, MST_EUSAGE, "the --tf-... options name the feature \"I1\" twice");
    f->options.tf_columns = "I2..I1";
    expect_failure(0, MST_EUSAGE, "--tf-columns: \"I2..I1\" is not a range such as I1..I13");
    f->options.tf_columns = "I1..C2";
    expect_failure(0, MST_EUSAGE, "--tf-columns: \"I1..C2\" is not a range such as I1..I13");
}

/* What the library writes, it reads. */
static void written_and_read(void **state)
{
    (void)state;
    float dense[13], values[26];
    uint32_t keys[26], all[39];
    float all_values[39];
    for (uint32_t i = 0; i < 39; i++)
        all[i] = i < 13 ? i : 13 + (i - 13) * 1298560u;
    for (int layout = 0; layout < 2; layout++) {
        mst_example_buffer buffer = {0};
        for (int row = 0; row < 50; row++) {
            for (int i = 0; i < 39; i++) {
                all_values[i] = i < 13 ? (float)(row * i) : 1.0f;
                if (i < 13)
                    dense[i] = all_values[i];
                else {
                    keys[i - 13] = all[i] + (uint32_t)row;
                    values[i - 13] = 1.0f;
                }
            }
            mst_row r = {
                .dense = dense, .n_dense = 13, .keys = keys, .n_keys = 26, .label = (float)row, .weight = 1};
            if (layout == MST_EXAMPLE_PAIRS && row % 2)
                r.values = values;
            assert_int_equal(mst_example_append(&buffer, (mst_example_layout)layout, &r), MST_OK);
        }
        f->file.n = 0;
        put_bytes(&f->file, buffer.data, buffer.n);
        mst_free(buffer.data);
        assert_int_equal(read_file(33762578), MST_OK);
        assert_int_equal(f->builder.n_rows, 50);
        for (int row = 0; row < 50; row++) {
            uint32_t expected[39];
            for (int i = 0; i < 39; i++) {
                expected[i] = i < 13 ? (uint32_t)i : all[i] + (uint32_t)row;
                all_values[i] = i < 13 ? (float)(row * i) : 1.0f;
            }
            expect_row((size_t)row, (float)row, 39, expected, all_values);
        }
    }
}

static void fail_every_allocation(void)
{
    for (uint64_t k = 1;; k++) {
        mst_chunk_builder_fini(&f->builder);
        mst_chunk_builder_init(&f->builder);
        mst_alloc_fail_at(k);
        mst_status st = read_file(0);
        mst_alloc_fail_at(0);
        if (st == MST_OK)
            break;
        assert_int_equal(st, MST_ENOMEM);
        assert_true(k < 100);
    }
}

static void memory_failures(void **state)
{
    (void)state;
    put_local_rows();
    fail_every_allocation();
    f->file.n = 0;
    put_int(&f->features, "label", 1); /* an image, features left out, one of them twice */
    put_int(&f->features, "height", 1);
    put_int(&f->features, "width", 2);
    put_value(&f->features, "image_raw", "\0\1", 2);
    put_string(&f->features, "name", "a");
    put_string(&f->features, "name", "b");
    end_record(&f->file, &f->features);
    fail_every_allocation();
    assert_int_equal(f->builder.n_rows, 1);
    assert_int_equal(f->builder.row_bytes, 2);
    assert_memory_equal(f->builder.bytes, "\0\1", 2);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(pairs),
        TEST(names_by_option),
        TEST(columns_by_name),
        TEST(columns_hashed),
        TEST(text_columns),
        TEST(nothing_to_use),
        TEST(pairs_leave_out),
        TEST(features_twice),
        TEST(keys_by_option),
        TEST(wide_column),
        TEST(bad_rows),
        TEST(frames),
        TEST(bad_options),
        TEST(written_and_read),
        TEST(memory_failures),
        TEST(labels_may_lack_to_predict),
        TEST(columns_that_lack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
