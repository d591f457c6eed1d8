/* Vowpal Wabbit text: heads of lines, namespaces, hashing, refusals. */
#include "data/text.h"
#include "unit/data/text_helpers.h"

extern const mst_format mst_format_vw;
#define F (&mst_format_vw)

static void heads_of_lines(void **state)
{
    (void)state;
    mst_data_options o = {0};
    parsed p = parse_text(
        F, &o, "1 |f a b:2\n-1 0.5 |f a\n0 2 0.1 'tag|f a\n\n1 'tag |f a\r\n1 2 word|f a\n3 | a\n1 |f\n2|f");
    assert_int_equal(p.st, MST_EINPUT); /* the last one: 2 touches the bar */
    assert_string_equal(mst_error_text(), "data.txt:9: " MST_NO_LABEL " (a word that touches '|' is a tag)");
    assert_int_equal(p.context.features, 1 << 18);
    assert_int_equal(p.b.n_rows, 7);
    float labels[] = {1, -1, 0, 1, 1, 3, 1}, weights[] = {1, 0.5f, 2, 1, 2, 1, 1};
    assert_memory_equal(p.b.labels, labels, sizeof labels);
    assert_memory_equal(p.b.weights, weights, sizeof weights);
    assert_int_equal(row_length(&p.b, 0), 2);
    assert_int_equal(row_length(&p.b, 6), 0);
    mst_chunk_builder_fini(&p.b);
}

static void labels_may_lack_to_predict(void **state)
{
    (void)state;
    mst_data_options o = {.unlabelled = true}, labelled = {0};
    parsed p = parse_text(F, &o, "|f a b:2\n'tag |f a b:2\nname|f a b:2\n  | a\n1 0.5 |f a b:2\n");
    parsed q = parse_text(F, &labelled, "1 |f a b:2\n");
    assert_int_equal(p.st, MST_OK);
    assert_int_equal(p.b.n_rows, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_true(p.b.labels[i] == (i == 4 ? 1.0f : 0.0f) && p.b.weights[i] == (i == 4 ? 0.5f : 1.0f));
        if (i != 3)
            assert_memory_equal(p.b.keys + p.b.row_start[i], q.b.keys, 2 * sizeof *q.b.keys);
    }
    mst_chunk_builder_fini(&p.b);
    mst_chunk_builder_fini(&q.b);
}

/* Key of the only feature of a line. */
static uint32_t key_of(const mst_data_options *o, const char *line)
{
    parsed p = parse_text(F, o, line);
    assert_int_equal(p.st, MST_OK);
    assert_int_equal(p.b.n_entries, 1);
    uint32_t key = p.b.keys[0];
    mst_chunk_builder_fini(&p.b);
    return key;
}

static void names_are_hashed_with_their_namespace(void **state)
{
    (void)state;
    mst_data_options o = {.features = 4294967295}, seeded = {.features = 4294967295, .hash_seed = 1};
    uint32_t key = key_of(&o, "1 |user age\n");
    assert_int_equal(key, key_of(&o, "-1 2 'x |user:3 age:7.5\n"));
    assert_int_equal(key, key_of(&o, "1 |other |user age"));
    assert_int_not_equal(key, key_of(&o, "1 |item age\n"));
    assert_int_not_equal(key, key_of(&o, "1 | age\n"));
    assert_int_not_equal(key, key_of(&o, "1 |user aga\n"));
    assert_int_not_equal(key, key_of(&seeded, "1 |user age\n"));
    assert_int_not_equal(key_of(&o, "1 |user 12\n"), 12);
}

static void keys_stay_below_features(void **state)
{
    (void)state;
    mst_data_options o = {.features = 7};
    char text[4000] = "1 |n", *w = text + 4;
    unsigned seen = 0;
    for (int i = 0; i < 300; i++)
        w += sprintf(w, " f%d", i);
    parsed p = parse_text(F, &o, text);
    assert_int_equal(p.st, MST_OK);
    assert_int_equal(p.b.n_entries, 300);
    for (int i = 0; i < 300; i++) {
        assert_true(p.b.keys[i] < 7);
        seen |= 1u << p.b.keys[i];
    }
    assert_int_equal(seen, 127);
    mst_chunk_builder_fini(&p.b);
}

static void scales_multiply(void **state)
{
    (void)state;
    mst_data_options o = {.features = 1};
    parsed p = parse_text(F, &o, "1 |a:0.5 x:4 y |b x:3\n");
    assert_string_equal(row_text(&p.b, 0), "0:2 0:0.5 0:3");
    mst_chunk_builder_fini(&p.b);
}

static void bad_lines_are_named(void **state)
{
    (void)state;
    mst_data_options o = {0};
    assert_refused(F, &o, "1 |f a\n|f a\n", "data.txt:2: " MST_NO_LABEL);
    assert_refused(F, &o, "1 2 3 4 |f a\n",
                   "data.txt:1: \"4\" is one word too many before the first '|'; a tag starts with '");
    assert_refused(F, &o, "x |f a\n", "data.txt:1: label \"x\" is not a finite number");
    assert_refused(F, &o, "1 nan |f a\n", "data.txt:1: importance \"nan\" is not a finite number");
    assert_refused(F, &o, "1 -2 |f a\n", "data.txt:1: importance -2 is negative");
    assert_refused(F, &o, "1 a b\n", "data.txt:1: the row has no '|'");
    assert_refused(F, &o, "1 |f a:inf\n", "data.txt:1: value \"inf\" of a is not a finite number");
    assert_refused(F, &o, "1 |f a:\n", "data.txt:1: value \"\" of a is not a finite number");
    assert_refused(F, &o, "1 |f :3\n", "data.txt:1: \":3\" has no feature name before its colon");
    assert_refused(F, &o, "1 |f:1e30 a:1e30\n",
                   "data.txt:1: value of a times its namespace's scale is not finite");
}

static int sniff(const char *text)
{
    return F->kind.sniff((const uint8_t *)text, strlen(text), 0);
}

static void sniffing(void **state)
{
    (void)state;
    assert_int_equal(sniff("1 |f a\n-1 2 'x |f b\n"), 2);
    assert_int_equal(sniff("|f a\n"), 2);
    assert_int_equal(sniff("1 1:2\n"), 0);
    assert_int_equal(sniff("1 |f a\nno bar\n"), 0);
    assert_int_equal(sniff("| a | markdown | table |\nwith text | x\n"), 0);
    assert_int_equal(sniff(""), 0);
    char head[MST_SNIFF_BYTES + 1]; /* ends in the first row */
    memset(head, 'x', MST_SNIFF_BYTES);
    head[MST_SNIFF_BYTES] = '\0';
    memcpy(head, "1 |f a:1 ", 9);
    assert_int_equal(sniff(head), 2);
    memcpy(head, "a |f a:1 ", 9);
    assert_int_equal(sniff(head), 0);
}

/* Namespaces are fields; a single one makes rows without. */
static void namespaces_are_fields(void **state)
{
    (void)state;
    static const char text[] = "1 |user a b |item:2 c\n0 |item d |user e\n1 | f |user g\n";
    mst_data_options o = {.features = 1000}, given = {.features = 1000, .vw_fields = (char *)"item"};
    parsed p = parse_text(F, &o, text), plain = parse_text(F, &o, "1 |user a b\n"),
           some = parse_text(F, &given, text);
    assert_int_equal(p.context.n_fields, 4); /* user, item, the nameless one, and others */
    assert_int_equal(plain.context.n_fields, 0);
    assert_int_equal(some.context.n_fields, 2);
    static const uint16_t fields[] = {0, 0, 1, 0, 1, 0, 2}, two[] = {0, 1, 1, 0, 1, 1, 1};
    assert_int_equal(p.b.n_entries, 7);
    assert_int_equal(some.b.n_entries, 7);
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(p.b.fields[i], fields[i]);
        assert_int_equal(some.b.fields[i], two[i]);
    }
    assert_true(p.b.values[2] == 2 && some.b.values[0] == 2);
    assert_int_equal(p.b.keys[0] + p.b.keys[1], plain.b.keys[0] + plain.b.keys[1]); /* keys are the same */
    mst_chunk_builder_fini(&p.b);
    mst_chunk_builder_fini(&plain.b);
    mst_chunk_builder_fini(&some.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(namespaces_are_fields),      cmocka_unit_test(heads_of_lines),
        cmocka_unit_test(labels_may_lack_to_predict), cmocka_unit_test(names_are_hashed_with_their_namespace),
        cmocka_unit_test(keys_stay_below_features),   cmocka_unit_test(scales_multiply),
        cmocka_unit_test(bad_lines_are_named),        cmocka_unit_test(sniffing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
