/* Row writers: every format read back gives the written rows; rows that a format cannot represent are
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/rng.h"
#include "data/gen.h"
#include "data/write.h"
#include "temp_folder.h"

static void numbers_are_short_and_exact(void **state)
{
    (void)state;
    static const struct {
        float value;
        const char *text;
    } cases[] = {
        {0, "0"},
        {1, "1"},
        {-1, "-1"},
        {0.5f, "0.5"},
        {2.08f, "2.08"},
        {0.03f, "0.03"},
        {-3.25f, "-3.25"},
        {1.01f, "1.01"},
        {123.456f, "123.456"},
        {100, "100"},
        {16777216, "16777216"},
        {1e-7f, "1e-07"},
        {3.4e38f, "3.4e+38"},
        {0.1f, "0.1"},
        {1999.99f, "1999.99"},
    };
    char text[MST_FLOAT_TEXT + 1];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        text[mst_float_text(cases[i].value, text)] = '\0';
        assert_string_equal(text, cases[i].text);
    }
    mst_rng rng;
    mst_rng_init(&rng, 1, MST_RNG_TEST, 0);
    for (int i = 0; i < 200000; i++) {
        uint32_t bits = mst_rng_u32(&rng);
        float value;
        memcpy(&value, &bits, sizeof value);
        if (i % 2)
            value = (float)bits * 0x1p-32f * (float)(i % 1000);
        if (!isfinite(value))
            continue;
        size_t n = mst_float_text(value, text);
        assert_true(n <= MST_FLOAT_TEXT);
        text[n] = '\0';
        if (strtof(text, NULL) != value)
            fail_msg("%.9g became %s", (double)value, text);
    }
}

static void same_as_printf(double value)
{
    char text[MST_FLOAT_TEXT + 1], expected[64];
    size_t n = mst_number_text9(value, text);
    assert_true(n <= MST_FLOAT_TEXT);
    text[n] = '\0';
    snprintf(expected, sizeof expected, "%.9g", value);
    if (strcmp(text, expected) != 0)
        fail_msg("%s instead of %s", text, expected);
}

static void nine_digits_are_those_of_printf(void **state)
{
    (void)state;
    static const double cases[] = {
        0.0,         -0.0,         1.0,           -1.0,         0.5,   0.1234567895, 0.12345678949999999,
        999999999.5, 999999999.49, 0.99999999949, 0.9999999995, 1e300, 5e-324,       INFINITY,
        -INFINITY,   NAN};
    mst_rng rng;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        same_as_printf(cases[i]);
    for (double power = 1e-6; power < 1e11; power *= 10) {
        double near = power;
        for (int i = 0; i < 4; i++, near = nextafter(near, 0.0))
            same_as_printf(near);
        for (near = power; near < power * (1 + 1e-15); near = nextafter(near, INFINITY))
            same_as_printf(-near);
    }
    mst_rng_init(&rng, 2, MST_RNG_TEST, 0);
    for (int i = 0; i < 50000; i++) {
        uint64_t bits = (uint64_t)mst_rng_u32(&rng) << 32 | mst_rng_u32(&rng);
        double any, scale = pow(10.0, (int)(bits % 15) - 5), unit = (double)(bits >> 11) * 0x1p-53;
        memcpy(&any, &bits, sizeof any);
        same_as_printf(any);
        same_as_printf(unit);
        same_as_printf(unit * scale);
        same_as_printf((double)(float)(unit * scale));
        same_as_printf((double)(bits % 1000000000) * 1e-9 + 0.5e-9); /* ties */
    }
}

/* ---- written and read back ---- */

typedef struct kept {
    mst_chunk *chunks[8];
    size_t n;
} kept;

static mst_status keep(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    kept *k = arg;
    (void)first_row;
    assert_true(k->n < 8);
    mst_chunk_hold(chunk);
    k->chunks[k->n++] = chunk;
    return MST_OK;
}

static void release(kept *k)
{
    for (size_t i = 0; i < k->n; i++)
        mst_chunk_release(k->chunks[i]);
    k->n = 0;
}

static mst_status write_to(const char *format, const char *path, const kept *k)
{
    const mst_row_writer_ops *ops = NULL;
    mst_row_writer *w = NULL;
    TRY(mst_row_writer_find(format, path, &ops));
    TRY(mst_row_writer_new(ops, path, NULL, &w));
    mst_status st = MST_OK;
    for (size_t i = 0; i < k->n && st == MST_OK; i++)
        st = mst_row_writer_add(w, k->chunks[i]);
    if (st == MST_OK)
        st = mst_row_writer_commit(w, NULL);
    mst_row_writer_destroy(w);
    return st;
}

typedef struct compare {
    const kept *want;
    size_t chunk;
    uint32_t row;
    uint64_t n_rows;
    double tolerance;
} compare;

static double feature(const mst_row *row, uint32_t key)
{
    double sum = 0;
    if (key < row->n_dense)
        sum = row->bytes != NULL ? row->bytes[key] / 255.0f : row->dense[key];
    for (uint32_t j = 0; j < row->n_keys; j++)
        if (row->keys[j] == key)
            sum += row->values != NULL ? row->values[j] : 1.0f;
    return sum;
}

static void same_row(const mst_row *got, const mst_row *want, double tolerance)
{
    assert_true(got->label == want->label && got->weight == want->weight);
    for (uint32_t key = 0; key < want->n_dense; key++)
        assert_true(fabs(feature(got, key) - feature(want, key)) <= tolerance);
    for (uint32_t j = 0; j < want->n_keys; j++)
        assert_true(fabs(feature(got, want->keys[j]) - feature(want, want->keys[j])) <= tolerance);
}

static mst_status compare_chunk(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    compare *c = arg;
    (void)first_row;
    for (uint32_t i = 0; i < chunk->n_rows; i++, c->n_rows++) {
        mst_row got, want;
        if (c->row == c->want->chunks[c->chunk]->n_rows) {
            c->row = 0;
            c->chunk++;
            assert_true(c->chunk < c->want->n);
        }
        mst_chunk_row(c->want->chunks[c->chunk], c->row++, &want);
        mst_chunk_row(chunk, i, &got);
        same_row(&got, &want, c->tolerance);
    }
    return MST_OK;
}

static void round_trip(const char *format, const char *name, const kept *k, const char *option,
                       const char *value)
{
    mst_data_options options = {0};
    mst_option_group group = {.title = "data", .table = mst_data_option_table, .base = &options};
    char path[128];
    uint64_t rows = 0;
    mst_dataset *d = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(mst_options_init(&group, 1), MST_OK);
    if (option != NULL)
        assert_int_equal(mst_options_set(&group, 1, option, value), MST_OK);
    if (write_to(format, path, k) != MST_OK)
        fail_msg("%s: %s", name, mst_error_text());
    mst_text_list paths = {.items = (char *[]){path}, .n = 1};
    if (mst_dataset_open(&paths, &options, &d) != MST_OK)
        fail_msg("%s: %s", name, mst_error_text());
    compare c = {.want = k};
    if (mst_dataset_each(d, 1, compare_chunk, &c) != MST_OK)
        fail_msg("%s: %s", name, mst_error_text());
    for (size_t i = 0; i < k->n; i++)
        rows += k->chunks[i]->n_rows;
    assert_int_equal(c.n_rows, rows);
    mst_dataset_destroy(d);
    mst_options_fini(&group, 1);
}

static void click_logs_come_back(void **state)
{
    (void)state;
    kept k = {0};
    mst_gen_criteo_options o = {.rows = 6000, .features = 1000000, .seed = 1};
    assert_int_equal(mst_gen_criteo(&o, keep, &k), MST_OK);
    round_trip(NULL, "clicks.svm", &k, NULL, NULL);
    round_trip(NULL, "clicks.svm.gz", &k, NULL, NULL);
    round_trip(NULL, "clicks.libsvm.zst", &k, NULL, NULL);
    round_trip(NULL, "clicks.cache", &k, NULL, NULL);
    round_trip(NULL, "clicks.tfrecord", &k, NULL, NULL);
    release(&k);
}

static void images_come_back(void **state)
{
    (void)state;
    kept k = {0};
    mst_gen_digits_options o = {.rows = 300, .seed = 1};
    assert_int_equal(mst_gen_digits_rows(&o, keep, &k), MST_OK);
    round_trip("libsvm", "digits.txt", &k, NULL, NULL);
    round_trip("cache", "digits.cache", &k, NULL, NULL);
    round_trip("tfrecord", "digits.tfrecords", &k, NULL, NULL);
    release(&k);
}

static void add(mst_chunk_builder *b, float label, float weight, float value)
{
    assert_int_equal(mst_chunk_builder_room(b, 2), MST_OK);
    mst_chunk_builder_add(b, 3, value);
    mst_chunk_builder_add(b, 70000, 1);
    assert_int_equal(mst_chunk_builder_end_row(b, label, weight), MST_OK);
}

static void check_text(const char *format, const kept *k, const char *text)
{
    char path[128], *data;
    size_t n;
    snprintf(path, sizeof path, "%s/text.%s", folder, format);
    assert_int_equal(write_to(format, path, k), MST_OK);
    assert_int_equal(mst_file_read_all(path, 1 << 20, &data, &n), MST_OK);
    assert_string_equal(data, text);
    mst_free(data);
}

/* Keys that repeat become one index each in libsvm, and stay as they are in vw. */
static void libsvm_has_each_index_once(void **state)
{
    (void)state;
    static const uint32_t keys[] = {0, 1, 1, 5, 5, 5, 7, 7, 9};
    static const float values[] = {2, 1, 0.5f, 1, 1, 1, 3e38f, 3e38f, 1};
    kept k = {.n = 1};
    mst_chunk_builder b;
    mst_chunk_builder_init(&b);
    for (int with_values = 0; with_values < 2; with_values++) {
        assert_int_equal(mst_chunk_builder_room(&b, 9), MST_OK);
        for (int i = 0; i < 9; i++)
            mst_chunk_builder_add(&b, keys[i], with_values ? values[i] : 1);
        assert_int_equal(mst_chunk_builder_end_row(&b, 1, 1), MST_OK);
    }
    assert_int_equal(mst_chunk_builder_pack(&b, 0, 1, &k.chunks[0]), MST_OK);
    assert_int_equal(k.chunks[0]->n_dense, 1);
    check_text("libsvm", &k, "1 1:1 2:2 6:3 8:2 10:1\n");
    check_text("vw", &k, "1 | 0:1 1 1 5 5 5 7 7 9\n");
    mst_chunk_release(k.chunks[0]);
    assert_int_equal(mst_chunk_builder_pack(&b, 1, 2, &k.chunks[0]), MST_OK);
    check_text("libsvm", &k, "1 1:2 2:1.5 6:3 8:3e+38 8:3e+38 10:1\n"); /* the sum is no float */
    mst_chunk_release(k.chunks[0]);
    mst_chunk_builder_fini(&b);
}

static void formats_say_what_they_cannot_hold(void **state)
{
    (void)state;
    kept plain = {.n = 1}, weighted = {.n = 1};
    mst_chunk_builder b;
    char path[128];
    mst_chunk_builder_init(&b);
    add(&b, 1, 1, 0.25f);
    add(&b, -1, 1, 1);
    assert_int_equal(mst_chunk_builder_pack(&b, 0, 2, &plain.chunks[0]), MST_OK);
    add(&b, 0.5f, 2, 1e-3f);
    assert_int_equal(mst_chunk_builder_pack(&b, 1, 3, &weighted.chunks[0]), MST_OK);
    mst_chunk_builder_fini(&b);

    check_text("libsvm", &plain, "1 4:0.25 70001:1\n-1 4:1 70001:1\n");
    check_text("vw", &weighted, "-1 | 3 70000\n0.5 2 | 3:0.001 70000\n");
    round_trip("cache", "weighted.cache", &weighted, NULL, NULL);

    snprintf(path, sizeof path, "%s/refused", folder);
    assert_int_equal(write_to("libsvm", path, &weighted), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "cannot hold row weights"));
    assert_false(mst_path_exists(path));
    assert_int_equal(write_to("criteo", path, &plain), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "row 1 does not fit Criteo's columns"));
    assert_int_equal(write_to("tfrecord-columns", path, &plain), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "fixed columns"));
    assert_int_equal(write_to("parquet", path, &plain), MST_EUSAGE);
    assert_non_null(strstr(mst_error_text(), "there are libsvm, libffm, tfrecord"));
    assert_int_equal(write_to(NULL, path, &plain), MST_EUSAGE);
    assert_non_null(strstr(mst_error_text(), "--to"));
    assert_false(mst_path_exists(path));
    snprintf(path, sizeof path, "%s/no/such/folder/x.svm", folder);
    assert_int_equal(write_to(NULL, path, &plain), MST_EIO);
    release(&plain);
    release(&weighted);
}

static void criteo_columns_have_forty_fields(void **state)
{
    (void)state;
    kept k = {0};
    char path[128], *data;
    size_t n, tabs = 0, lines = 0;
    mst_gen_criteo_options o = {.rows = 50, .features = 1000, .seed = 1};
    assert_int_equal(mst_gen_criteo(&o, keep, &k), MST_OK);
    snprintf(path, sizeof path, "%s/clicks.tsv", folder);
    assert_int_equal(write_to(NULL, path, &k), MST_OK);
    assert_int_equal(mst_file_read_all(path, 1 << 20, &data, &n), MST_OK);
    for (size_t i = 0; i < n; i++) {
        tabs += data[i] == '\t';
        lines += data[i] == '\n';
    }
    assert_int_equal(lines, 50);
    assert_int_equal(tabs, 50 * 39);
    mst_free(data);
    snprintf(path, sizeof path, "%s/columns.tfrecord", folder);
    assert_int_equal(write_to("tfrecord-columns", path, &k), MST_OK);
    release(&k);
}

/* Whatever write or allocation fails: a status, and no file. */
static void failures_leave_nothing_behind(void **state)
{
    (void)state;
    kept k = {0};
    char path[128];
    mst_gen_criteo_options o = {.rows = 3000, .features = 1000, .seed = 1};
    assert_int_equal(mst_gen_criteo(&o, keep, &k), MST_OK);
    for (size_t i = 0; mst_row_writers[i] != NULL; i++)
        for (int writes = 0; writes < 2; writes++) {
            mst_alloc_stats before, after;
            mst_status st = MST_EIO;
            snprintf(path, sizeof path, "%s/failing.%zu.%d", folder, i, writes);
            mst_alloc_stats_get(&before);
            for (uint64_t n = 1; st != MST_OK && n < 200; n++) {
                if (writes)
                    mst_out_fail_at(n);
                else
                    mst_alloc_fail_at(n);
                st = write_to(mst_row_writers[i]->name, path, &k);
                mst_out_fail_at(0);
                mst_alloc_fail_at(0);
                assert_int_equal(mst_path_exists(path), st == MST_OK);
                if (st != MST_OK)
                    assert_true(st == MST_EIO || st == MST_ENOMEM);
            }
            assert_int_equal(st, MST_OK);
            mst_alloc_stats_get(&after);
            assert_int_equal(before.blocks, after.blocks);
        }
    release(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_short_and_exact),
        cmocka_unit_test(nine_digits_are_those_of_printf),
        cmocka_unit_test(click_logs_come_back),
        cmocka_unit_test(images_come_back),
        cmocka_unit_test(libsvm_has_each_index_once),
        cmocka_unit_test(formats_say_what_they_cannot_hold),
        cmocka_unit_test(criteo_columns_have_forty_fields),
        cmocka_unit_test(failures_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
