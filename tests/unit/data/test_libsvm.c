/* libsvm text: accepted rows, refused rows with their errors, and the fast parser compared with the careful
 * one. */
#include <math.h>

#include "base/rng.h"
#include "data/libsvm_vector.h"
#include "data/text.h"
#include "unit/data/text_helpers.h"

extern const mst_format mst_format_libsvm;
#define F (&mst_format_libsvm)

static void rows_labels_and_comments(void **state)
{
    (void)state;
    mst_data_options o = {0};
    parsed p = parse_text(
        F, &o,
        "+1 1:0.5 3:-2 # a comment 9:9\n\n# only a comment\n   \t\n-1\n0.25\tqid:7 2:1\t 4:1e-2\r\n"
        "3 5:1");
    assert_int_equal(p.st, MST_OK);
    assert_int_equal(p.context.index_base, 1);
    assert_int_equal(p.b.n_rows, 4);
    assert_string_equal(row_text(&p.b, 0), "0:0.5 2:-2");
    assert_string_equal(row_text(&p.b, 1), "");
    assert_string_equal(row_text(&p.b, 2), "1:1 3:0.01");
    assert_string_equal(row_text(&p.b, 3), "4:1");
    float labels[] = {1.0f, -1.0f, 0.25f, 3.0f};
    assert_memory_equal(p.b.labels, labels, sizeof labels);
    mst_chunk_builder_fini(&p.b);
}

static void keys_out_of_order_are_sorted(void **state)
{
    (void)state;
    mst_data_options o = {0};
    parsed p = parse_text(F, &o, "1 5:5 1:1 3:3 3:4\n");
    assert_string_equal(row_text(&p.b, 0), "0:1 2:3 2:4 4:5");
    mst_chunk_builder_fini(&p.b);
}

static void index_base_is_found_or_given(void **state)
{
    (void)state;
    mst_data_options o = {0};
    parsed p = parse_text(F, &o, "1 1:1\n0 0:1 7:1\n");
    assert_int_equal(p.context.index_base, 0);
    assert_string_equal(row_text(&p.b, 0), "1:1");
    mst_chunk_builder_fini(&p.b);
    p = parse_text(F, &o, "1 10:1\n0 20:1 # 0:1\n");
    assert_int_equal(p.context.index_base, 1);
    mst_chunk_builder_fini(&p.b);
    o.index_base = 1; /* --index-base 0 */
    p = parse_text(F, &o, "1 1:1\n");
    assert_string_equal(row_text(&p.b, 0), "1:1");
    mst_chunk_builder_fini(&p.b);
    o.index_base = 2; /* --index-base 1 */
    assert_refused(F, &o, "1 2:1\n1 0:1\n",
                   "data.txt:2: index 0 in a file whose first index was taken to be 1; pass --index-base 0");
}

static void labels_may_lack_to_predict(void **state)
{
    (void)state;
    mst_data_options o = {.unlabelled = true};
    parsed p = parse_text(F, &o, "2:1 5:0.5 # c\n?\n\n? 3:1\n1 2:1\nqid:3 1:2\r\n? # 1:1\n");
    static const char *const rows[] = {"1:1 4:0.5", "", "2:1", "1:1", "0:2", ""};
    assert_int_equal(p.st, MST_OK);
    assert_int_equal(p.b.n_rows, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_string_equal(row_text(&p.b, i), rows[i]);
        assert_true(p.b.labels[i] == (i == 3 ? 1.0f : 0.0f));
    }
    mst_chunk_builder_fini(&p.b);
    assert_refused(F, &o, "?? 2:1\n", "data.txt:1: label \"??\" is not a finite number");
    assert_refused(F, &o, "spam:1 2:1\n", "data.txt:1: label \"spam:1\" is not a finite number");
    o.unlabelled = false;
    assert_refused(F, &o, "1 1:1\n2:1 5:0.5\n", "data.txt:2: " MST_NO_LABEL);
    assert_refused(F, &o, "1 1:1\n? 5:0.5\n", "data.txt:2: " MST_NO_LABEL);
}

static void bad_lines_are_named(void **state)
{
    (void)state;
    mst_data_options o = {.features = 100};
    assert_refused(F, &o, "1 2:1\n\n0 200:1\n",
                   "data.txt:3: index 200 is beyond --features 100; a run keeps the number that it was "
                   "started with, so start it with a larger one");
    assert_refused(F, &o, "1 101:1\n",
                   "data.txt:1: index 101 is beyond --features 100; a run keeps the number that it was "
                   "started with, so start it with a larger one");
    assert_refused(F, &o, "1 2:nan\n", "data.txt:1: value \"nan\" is not a finite number");
    assert_refused(F, &o, "1 2:1e39\n", "data.txt:1: value \"1e39\" is not a finite number");
    assert_refused(F, &o, "1 2:\n", "data.txt:1: value \"\" is not a finite number");
    assert_refused(F, &o, "inf 2:1\n", "data.txt:1: label \"inf\" is not a finite number");
    assert_refused(F, &o, "spam 2:1\n", "data.txt:1: label \"spam\" is not a finite number");
    assert_refused(F, &o, "1 2\n", "data.txt:1: index 2 has no value; write it as index:value");
    assert_refused(F, &o, "1 a:2\n", "data.txt:1: \"a:2\" is not index:value");
    assert_refused(F, &o, "1 -3:2\n", "data.txt:1: \"-3:2\" is not index:value");
    assert_refused(F, &o, "1 2:3x\n", "data.txt:1: value \"3x\" is not a finite number");
    o.features = 0;
    assert_refused(F, &o, "1 4294967296:1\n", "data.txt:1: index 4294967296 does not fit 32 bits");
}

/* A long block, most of which the fast path takes, must come out as the numbers that were printed. */
static void long_blocks_are_exact(void **state)
{
    (void)state;
    enum { ROWS = 400, PER_ROW = 30 };
    static uint32_t keys[ROWS][PER_ROW];
    static float values[ROWS][PER_ROW];
    static const char *const forms[] = {"1",           "0",        "1.0",
                                        "-1",          "0.125",    "-12.5",
                                        "1e-3",        "12345678", "1234567.12345678",
                                        "0.123456789", "+2",       ".5",
                                        "7.",          "-0.001",   "1.17549435e-38",
                                        "99999999.5"};
    const char *blanks[] = {" ", "  ", "\t", " \t "};
    char *text = malloc(ROWS * (PER_ROW * 40 + 40)), *w = text;
    mst_rng rng;
    mst_rng_init(&rng, 7, MST_RNG_TEST, 0);
    for (int i = 0; i < ROWS; i++) {
        uint32_t key = 0;
        w += sprintf(w, "%d", i % 3 - 1);
        for (int j = 0; j < PER_ROW; j++) {
            const char *form = forms[mst_rng_below(&rng, i % 2 ? 2 : sizeof forms / sizeof forms[0])];
            key += 1 + mst_rng_below(&rng, j % 5 ? 1000 : 100000000);
            keys[i][j] = key - 1;
            values[i][j] = (float)strtod(form, NULL);
            w += sprintf(w, "%s%u:%s", blanks[i % 4 ? 0 : mst_rng_below(&rng, 4)], key, form);
        }
        w += sprintf(w, "%s", i % 7 == 0 ? "\r\n" : i % 11 == 0 ? " \n\n" : i % 13 == 0 ? " # c\n" : "\n");
    }
    mst_data_options o = {.index_base = 2};
    parsed p = parse_bytes(F, &o, text, (size_t)(w - text));
    assert_int_equal(p.st, MST_OK);
    assert_int_equal(p.b.n_rows, ROWS);
    for (int i = 0; i < ROWS; i++) {
        assert_int_equal(row_length(&p.b, i), PER_ROW);
        assert_true(p.b.labels[i] == (float)(i % 3 - 1));
        assert_memory_equal(p.b.keys + p.b.row_start[i], keys[i], sizeof keys[i]);
        for (int j = 0; j < PER_ROW; j++)
            assert_true(p.b.values[p.b.row_start[i] + (size_t)j] == values[i][j]);
    }
    mst_chunk_builder_fini(&p.b);
    free(text);
}

/* Rows in the form that is parsed eight features at a time: any number of features, keys and values of any
 * length, a point anywhere. Rows of another form in between must not disturb them. */
static void vector_rows_are_exact(void **state)
{
    (void)state;
    enum { ROWS = 3000, MOST = 70 };
    static uint32_t keys[ROWS][MOST];
    static float values[ROWS][MOST];
    static size_t counts[ROWS];
    char *text = malloc(ROWS * (MOST * 24 + 40)), *w = text;
    mst_rng rng;
    mst_rng_init(&rng, 8, MST_RNG_TEST, 0);
    for (int i = 0; i < ROWS; i++) {
        uint32_t key = 0;
        counts[i] = i < MOST ? (size_t)i : mst_rng_below(&rng, MOST);
        w += sprintf(w, "%d", i % 2);
        for (size_t j = 0; j < counts[i]; j++) {
            char form[16];
            unsigned digits = 1 + mst_rng_below(&rng, 8), before = mst_rng_below(&rng, digits + 1);
            unsigned number = mst_rng_below(&rng, 100000000), limit = 1;
            for (unsigned d = 0; d < digits; d++)
                limit *= 10;
            sprintf(form, "%0*u", (int)digits, number % limit);
            if (mst_rng_below(&rng, 2) && before > 0 && before < digits && digits < 8) {
                memmove(form + before + 1, form + before, digits - before + 1);
                form[before] = '.';
            }
            if (i % 500 == 499 && j == 3)
                strcpy(form, "-2.5e1");
            key += 1 + mst_rng_below(&rng, j % 5 ? 100 : 3000000);
            keys[i][j] = key - 1;
            values[i][j] = (float)strtod(form, NULL);
            w += sprintf(w, " %u:%s", key, form);
        }
        w += sprintf(w, i % 3 ? "\n" : " \n");
    }
    mst_data_options o = {.index_base = 2};
    parsed p = parse_bytes(F, &o, text, (size_t)(w - text));
    assert_int_equal(p.st, MST_OK);
    assert_int_equal(p.b.n_rows, ROWS);
    for (int i = 0; i < ROWS; i++) {
        assert_int_equal(row_length(&p.b, (size_t)i), counts[i]);
        assert_true(p.b.labels[i] == (float)(i % 2));
        assert_memory_equal(p.b.keys + p.b.row_start[i], keys[i], counts[i] * sizeof keys[i][0]);
        assert_memory_equal(p.b.values + p.b.row_start[i], values[i], counts[i] * sizeof values[i][0]);
    }
    mst_chunk_builder_fini(&p.b);
    free(text);
}

/* Parses " FEATURE..." followed by a line feed and more text; returns whether the row has the form. */
static bool vector_row(const char *features, uint64_t limit, uint32_t *n)
{
    char text[400];
    int size = snprintf(text, sizeof text, "%s\n", features);
    memset(text + size, '7', sizeof text - (size_t)size);
    mst_chunk_builder b;
    static mst_libsvm_list list;
    mst_chunk_builder_init(&b);
    assert_int_equal(mst_chunk_builder_room(&b, sizeof text / 4 + 1), MST_OK);
    mst_libsvm_list_init(&list, (const uint8_t *)text);
    const uint8_t *end = mst_libsvm_vector_row(&list, (const uint8_t *)text,
                                               (const uint8_t *)text + sizeof text, 1, limit, &b);
    assert_true(end == NULL || end == (const uint8_t *)text + size - 1);
    assert_true(end != NULL || b.n_entries == 0);
    *n = (uint32_t)b.n_entries;
    mst_chunk_builder_fini(&b);
    return end != NULL;
}

static void vector_rows_of_other_forms_are_left(void **state)
{
    (void)state;
    uint32_t n;
    static const char *const good[] = {
        "", " ", " 1:1", " 1:1 2:0.5 ", " 12345678:12345678", " 1:1 2:1 3:1 4:1 5:1 6:1 7:1 8:123456.7 9:0"};
    static const char *const other[] = {" 1",
                                        " 1:",
                                        " :1",
                                        " 1:1  2:1",
                                        " 1:1\t2:1",
                                        " 1:-1",
                                        " 1:.5",
                                        " 1:5.",
                                        " 1:.",
                                        " 1:1e3",
                                        " 1:1:1",
                                        " 123456789:1",
                                        " 1:123456789",
                                        " 1:1.2.3",
                                        " 1:1 # c",
                                        " qid:1 1:1",
                                        " 0:1",
                                        " 1:1\r",
                                        " 1:1 2 3:1 4:1:1",
                                        " 1 1:1",
                                        " 99999999:1",
                                        " 1:1 2:1 3:1 4:1 5:1 6:1 7:1 8:1 9:x",
                                        " 1:1 2:1 3:1 4:1 5:1 6:1 7:1 8:1 x:9",
                                        " 1:1 x",
                                        " 1:+1",
                                        " 1/1",
                                        " 1:1 2:1 3:1 4:1 5:1 6:1 7:1 8:1 9 10:1:1"};
    if (!mst_libsvm_vector_works())
        skip();
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(vector_row(good[i], 1u << 30, &n));
        uint32_t colons = 0;
        for (const char *c = good[i]; *c != '\0'; c++)
            colons += *c == ':';
        assert_int_equal(n, colons);
    }
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (vector_row(other[i], 50000000, &n))
            fail_msg("\"%s\" was taken", other[i]);
}

/* Wherever a block ends, its rows are those of the text up to there: no read depends on what follows. */
static void any_block_length(void **state)
{
    (void)state;
    mst_data_options o = {.index_base = 2};
    char text[2000], *w = text;
    for (int i = 0; i < 30; i++)
        w += sprintf(w, "1 %d:1 %d:0.5 12345678:1 20000000:-3.25\n", i + 1, i + 2);
    size_t rows = 0;
    for (char *p = text; p < w; p++) {
        if (*p != '\n')
            continue;
        rows++;
        for (int newline = 0; newline < 2; newline++) {
            parsed out = parse_bytes(F, &o, text, (size_t)(p - text) + (size_t)newline);
            assert_int_equal(out.st, MST_OK);
            assert_int_equal(out.b.n_rows, rows);
            assert_int_equal(out.b.n_entries, rows * 4);
            assert_int_equal(out.b.keys[out.b.n_entries - 1], 19999999);
            assert_true(out.b.values[out.b.n_entries - 1] == -3.25f);
            mst_chunk_builder_fini(&out.b);
        }
    }
}

static void error_lines_in_long_blocks(void **state)
{
    (void)state;
    mst_data_options o = {.index_base = 2};
    char *text = malloc(1 << 20), *w = text;
    for (int i = 0; i < 1000; i++)
        w += sprintf(w, i == 776 ? "1 3:1 4:0x5 9:1\n" : "1 3:1 4:0.5 9:1\n");
    *w = '\0';
    assert_refused(F, &o, text, "data.txt:777: value \"0x5\" is not a finite number");
    free(text);
}

static int sniff(const char *text)
{
    size_t n = strlen(text);
    uint8_t *copy = malloc(n ? n : 1); /* of the exact size */
    memcpy(copy, text, n);
    int score = F->kind.sniff(copy, n, 0);
    free(copy);
    return score;
}

static void sniffing(void **state)
{
    (void)state;
    assert_int_equal(sniff("1 1:2 3:4\n-1 5:6\n"), 2);
    assert_int_equal(sniff("# c\n\n1 qid:3 1:2\n"), 2);
    assert_int_equal(sniff("1\n0\n"), 1);
    assert_int_equal(sniff("1:2 3:4\n5:6\n"), 1);
    assert_int_equal(sniff("? 1:2 3:4\n?\n"), 1);
    assert_int_equal(sniff("1 1:2\n5:6\n"), 1);
    assert_int_equal(sniff("?\n"), 0);
    assert_int_equal(sniff("1 |f a b\n"), 0);
    assert_int_equal(sniff("1 1:2\nhello world\n"), 0);
    assert_int_equal(sniff("1 2:1 :1"), 0);
    assert_int_equal(sniff("1 qid:1"), 2);
    assert_int_equal(sniff(""), 0);
    assert_int_equal(F->kind.sniff((const uint8_t *)"1 1:1\0\n", 7, 0), 0);
    uint8_t head[MST_SNIFF_BYTES]; /* ends in the first row, in the middle of an index */
    memset(head, '1', sizeof head);
    for (size_t i = 1; i + 5 < sizeof head; i += 5)
        memcpy(head + i, " 11:1", 5);
    assert_int_equal(F->kind.sniff(head, sizeof head, 0), 2);
    memcpy(head + 1001, " word", 5);
    assert_int_equal(F->kind.sniff(head, sizeof head, 0), 0);
    memset(head, '1', sizeof head); /* nothing but a number so far */
    assert_int_equal(F->kind.sniff(head, sizeof head, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_labels_and_comments),
        cmocka_unit_test(keys_out_of_order_are_sorted),
        cmocka_unit_test(index_base_is_found_or_given),
        cmocka_unit_test(bad_lines_are_named),
        cmocka_unit_test(long_blocks_are_exact),
        cmocka_unit_test(vector_rows_are_exact),
        cmocka_unit_test(vector_rows_of_other_forms_are_left),
        cmocka_unit_test(any_block_length),
        cmocka_unit_test(labels_may_lack_to_predict),
        cmocka_unit_test(error_lines_in_long_blocks),
        cmocka_unit_test(sniffing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
