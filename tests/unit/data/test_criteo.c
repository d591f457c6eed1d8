/* Criteo's click logs: columns, buckets, hashing, the three encodings of the integers, refusals. */
#include <math.h>

#include "unit/data/text_helpers.h"

extern const mst_format mst_format_criteo;
#define F (&mst_format_criteo)

enum { BUCKET, LOG, BOTH };

/* A line with the given integers in the first columns; all else alike. */
static const char *line_with(char *out, const char *label, const char *first, const char *category)
{
    char *w = out;
    w += sprintf(w, "%s\t%s", label, first);
    for (int i = 1; i < 13; i++)
        w += sprintf(w, "\t%d", i);
    w += sprintf(w, "\t%s", category);
    for (int i = 1; i < 26; i++)
        w += sprintf(w, "\t%08x", i * 7919);
    sprintf(w, "\n");
    return out;
}

static void every_row_has_39_keys(void **state)
{
    (void)state;
    mst_data_options o = {0};
    char a[500], b[500], both[1200];
    snprintf(both, sizeof both, "%s\n%s", line_with(a, "1", "", ""), line_with(b, "0", "-3", "ABCDEF01"));
    parsed p = parse_text(F, &o, both);
    assert_int_equal(p.st, MST_OK);
    assert_int_equal(p.context.features, 1 << 20);
    assert_int_equal(p.b.n_rows, 2);
    assert_true(p.b.labels[0] == 1.0f && p.b.labels[1] == 0.0f);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(row_length(&p.b, i), 39);
        for (size_t j = p.b.row_start[i]; j < p.b.row_start[i + 1]; j++) {
            assert_true(p.b.keys[j] < 1 << 20);
            assert_true(p.b.values[j] == 1.0f);
        }
    }
    mst_chunk_builder_fini(&p.b);
}

/* How many columns of two lines have the same key, of 39. */
static int shared(const mst_data_options *o, const char *a, const char *b)
{
    parsed p = parse_text(F, o, a), q = parse_text(F, o, b);
    assert_int_equal(p.st, MST_OK);
    assert_int_equal(q.st, MST_OK);
    int n = 0;
    assert_int_equal(p.b.n_entries, 39);
    assert_int_equal(q.b.n_entries, 39);
    for (size_t i = 0; i < 39; i++)
        n += p.b.keys[i] == q.b.keys[i];
    mst_chunk_builder_fini(&p.b);
    mst_chunk_builder_fini(&q.b);
    return n;
}

static void buckets_and_categories(void **state)
{
    (void)state;
    mst_data_options o = {.features = 4294967295};
    char a[500], b[500];
    struct {
        const char *x, *y;
        bool same;
    } integers[] = {{"0", "1", false},      {"1", "2", false},           {"2", "3", false},
                    {"", "0", false},       {"-1", "-2", true},          {"-1", "0", false},
                    {"-1", "", false},      {"1000", "1001", true},      {"1000", "1500", false},
                    {"5000", "5001", true}, {"99999999999", "3", false}, {"05", "5", true}};
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
        line_with(a, "1", integers[i].x, "0badcafe");
        line_with(b, "0", integers[i].y, "0badcafe");
        assert_int_equal(shared(&o, a, b), 38 + integers[i].same);
    }
    assert_int_equal(shared(&o, line_with(a, "1", "1", "0badcafe"), line_with(b, "1", "1", "0BADCAFE")), 39);
    assert_int_equal(shared(&o, line_with(a, "1", "1", "badcafe"), line_with(b, "1", "1", "0badcafe")), 39);
    assert_int_equal(shared(&o, line_with(a, "1", "1", "1badcafe"), line_with(b, "1", "1", "0badcafe")), 38);
    assert_int_equal(shared(&o, line_with(a, "1", "1", ""), line_with(b, "1", "1", "00000000")), 38);
}

static void equal_keys_are_kept(void **state)
{
    (void)state;
    mst_data_options o = {.features = 3};
    char line[500];
    parsed p = parse_text(F, &o, line_with(line, "1", "1", "2"));
    assert_int_equal(p.b.n_entries, 39);
    unsigned seen = 0;
    for (size_t i = 0; i < 39; i++) {
        assert_true(p.b.keys[i] < 3);
        seen |= 1u << p.b.keys[i];
    }
    assert_int_equal(seen, 7);
    mst_chunk_builder_fini(&p.b);
}

/* The key of a column does not depend on the other columns, and its position is its field. */
static void columns_are_fields(void **state)
{
    (void)state;
    char a[500], b[500];
    static const uint32_t fields[] = {39, 39, 52};
    for (int mode = BUCKET; mode <= BOTH; mode++) {
        mst_data_options o = {.criteo_numeric = mode};
        parsed p = parse_text(F, &o, line_with(a, "1", "77", "2"));
        parsed q = parse_text(F, &o, line_with(b, "1", "77", "99"));
        assert_int_equal(p.context.n_fields, fields[mode]);
        assert_int_equal(p.b.n_entries, fields[mode]);
        unsigned changed = fields[mode] - 26; /* the first category */
        for (unsigned i = 0; i < fields[mode]; i++)
            assert_int_equal(p.b.keys[i] == q.b.keys[i], i != changed);
        mst_chunk *c = NULL;
        assert_int_equal(mst_chunk_builder_pack(&p.b, 0, 1, &c), MST_OK);
        assert_true(c->fielded && !c->has_fields && c->any_order);
        assert_int_equal(c->max_field, fields[mode] - 1);
        assert_int_equal(c->n_dense, mode == BUCKET ? 0 : 13);
        mst_row row;
        mst_chunk_row(c, 0, &row);
        for (uint32_t i = 0; i < row.n_keys; i++) {
            assert_int_equal(mst_row_field(&row, i), row.n_dense + i);
            assert_true(row.keys[i] <= c->max_key);
        }
        mst_chunk_release(c);
        mst_chunk_builder_fini(&p.b);
        mst_chunk_builder_fini(&q.b);
    }
}

static void integers_as_numbers(void **state)
{
    (void)state;
    char line[500];
    for (int mode = LOG; mode <= BOTH; mode++) {
        mst_data_options o = {.criteo_numeric = mode};
        parsed p = parse_text(F, &o, line_with(line, "1", "100000", "2"));
        assert_int_equal(p.b.n_entries, mode == LOG ? 39 : 52);
        for (uint32_t i = 0; i < 13; i++) {
            assert_int_equal(p.b.keys[i], i);
            assert_float_equal(p.b.values[i], log(1.0 + (i ? i : 100000)) / 4, 1e-6);
        }
        for (size_t i = 13; i < p.b.n_entries; i++)
            assert_true(p.b.keys[i] >= 13 && p.b.values[i] == 1.0f);
        mst_chunk_builder_fini(&p.b);
        p = parse_text(F, &o, line_with(line, "1", "-7", "2"));
        assert_true(p.b.values[0] == 0.0f);
        mst_chunk_builder_fini(&p.b);
        p = parse_text(F, &o, line_with(line, "1", "", "2"));
        assert_true(p.b.keys[0] == 0 && p.b.values[0] == 0.0f);
        mst_chunk_builder_fini(&p.b);
    }
    mst_data_options o = {.criteo_numeric = LOG, .features = 13};
    parsed p = parse_text(F, &o, line);
    assert_int_equal(p.st, MST_EUSAGE);
    mst_chunk_builder_fini(&p.b);
}

static void carriage_returns_and_a_missing_last_newline(void **state)
{
    (void)state;
    mst_data_options o = {0};
    char line[500], crlf[520];
    line_with(line, "1", "1", "2");
    line[strlen(line) - 1] = '\0';
    snprintf(crlf, sizeof crlf, "%s\r\n", line);
    assert_int_equal(shared(&o, line, crlf), 39);
    strrchr(line, '\t')[1] = '\0'; /* the last column empty, right at the end of the block */
    parsed p = parse_text(F, &o, line);
    assert_int_equal(p.st, MST_OK);
    assert_int_equal(p.b.n_entries, 39);
    mst_chunk_builder_fini(&p.b);
}

/* With a first integer of 0 or 1, which could be a label, and in one file with rows that have one. */
static void labels_may_lack_to_predict(void **state)
{
    (void)state;
    mst_data_options o = {.unlabelled = true};
    char line[500], both[1200];
    for (o.criteo_numeric = 0; o.criteo_numeric < 3; o.criteo_numeric++) {
        line_with(line, "1", "0", "2");
        snprintf(both, sizeof both, "%s%s", line + 2, line);
        parsed p = parse_text(F, &o, both);
        assert_int_equal(p.st, MST_OK);
        assert_int_equal(p.b.n_rows, 2);
        size_t n = row_length(&p.b, 0);
        assert_true(p.b.labels[0] == 0.0f && p.b.labels[1] == 1.0f);
        assert_int_equal(row_length(&p.b, 1), n);
        assert_memory_equal(p.b.keys, p.b.keys + n, n * sizeof *p.b.keys);
        assert_memory_equal(p.b.values, p.b.values + n, n * sizeof *p.b.values);
        mst_chunk_builder_fini(&p.b);
    }
    o.criteo_numeric = 0;
    char sparse[64]; /* all but the last column empty */
    memset(sparse, '\t', 38);
    strcpy(sparse + 38, "abc\n");
    parsed p = parse_text(F, &o, sparse);
    assert_int_equal(p.st, MST_OK);
    assert_int_equal(p.b.n_entries, 39);
    mst_chunk_builder_fini(&p.b);
    assert_refused(F, &o, line_with(line, "1", "1.5", "2") + 2,
                   "data.txt:1: column 1 (I1): \"1.5\" is not an integer");
    assert_refused(F, &o, "1\t2\t3\n",
                   "data.txt:1: 3 columns instead of 40 (label, 13 integers, 26 categories)");
}

static void bad_lines_are_named(void **state)
{
    (void)state;
    mst_data_options o = {0};
    char line[500], text[1200];
    line_with(line, "1", "1", "2");
    snprintf(text, sizeof text, "%s%s", line, line + 2);
    assert_refused(F, &o, text,
                   "data.txt:2: 39 columns instead of 40, as in Criteo's test file: " MST_NO_LABEL);
    assert_refused(F, &o, "1\t2\t3\n",
                   "data.txt:1: 3 columns instead of 40 (label, 13 integers, 26 categories)");
    assert_refused(F, &o, line_with(line, "2", "1", "2"), "data.txt:1: label \"2\" is neither 0 nor 1");
    assert_refused(F, &o, line_with(line, "", "1", "2"), "data.txt:1: label \"\" is neither 0 nor 1");
    assert_refused(F, &o, line_with(line, "1", "1.5", "2"),
                   "data.txt:1: column 2 (I1): \"1.5\" is not an integer");
    assert_refused(F, &o, line_with(line, "1", "-", "2"),
                   "data.txt:1: column 2 (I1): \"-\" is not an integer");
    assert_refused(F, &o, line_with(line, "1", "99999999999999999999", "2"),
                   "data.txt:1: column 2 (I1): \"99999999999999999999\" is not an integer");
    assert_refused(F, &o, line_with(line, "1", "1", "xyz"),
                   "data.txt:1: column 15 (C1): \"xyz\" is not a category of up to 8 hex digits");
    assert_refused(F, &o, line_with(line, "1", "1", "123456789"),
                   "data.txt:1: column 15 (C1): \"123456789\" is not a category of up to 8 hex digits");
}

static void sniffing(void **state)
{
    (void)state;
    char line[500];
    line_with(line, "1", "", "");
    assert_int_equal(F->kind.sniff((const uint8_t *)line, strlen(line), 0), 2);
    assert_int_equal(F->kind.sniff((const uint8_t *)line + 2, strlen(line) - 2, 0), 1);
    line_with(line, "1", "", "not hex");
    assert_int_equal(F->kind.sniff((const uint8_t *)line, strlen(line), 0), 1);
    assert_int_equal(F->kind.sniff((const uint8_t *)"1 1:1\n", 6, 0), 0);
    assert_int_equal(F->kind.sniff((const uint8_t *)"", 0, 0), 0);
}

/* Files that are Criteo's but for a row or two are taken for it, so that the parser can name the row. */
static void sniffing_what_is_nearly_right(void **state)
{
    (void)state;
    char text[2000], line[500];
    size_t n = strlen(line_with(text, "1", "5", "a1b2c3d4"));
    line_with(text + n, "yes", "5", "a1b2c3d4");
    assert_int_equal(F->kind.sniff((const uint8_t *)text, strlen(text), 0), 1);
    line_with(line, "1", "5", "a1b2c3d4");
    sprintf(text + n, "%.*s\tone more\n", (int)strcspn(line, "\n"), line);
    assert_int_equal(F->kind.sniff((const uint8_t *)text, strlen(text), 0), 1);
    strcpy(text + n, "other\nlines\n"); /* most rows have other columns */
    assert_int_equal(F->kind.sniff((const uint8_t *)text, strlen(text), 0), 0);
    char *p = text; /* 40 columns of words */
    for (int i = 0; i < 40; i++)
        p += sprintf(p, "word%d%s", i, i < 39 ? "\t" : "\n");
    assert_int_equal(F->kind.sniff((const uint8_t *)text, strlen(text), 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_has_39_keys),
        cmocka_unit_test(buckets_and_categories),
        cmocka_unit_test(equal_keys_are_kept),
        cmocka_unit_test(columns_are_fields),
        cmocka_unit_test(integers_as_numbers),
        cmocka_unit_test(carriage_returns_and_a_missing_last_newline),
        cmocka_unit_test(bad_lines_are_named),
        cmocka_unit_test(labels_may_lack_to_predict),
        cmocka_unit_test(sniffing),
        cmocka_unit_test(sniffing_what_is_nearly_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
