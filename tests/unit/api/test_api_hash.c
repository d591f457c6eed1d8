/* The hashes of names: the values of docs/SERVING.md, and the features that the formats give the same names.
 */
#include "muster/muster.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "data/format.h"

extern const mst_format mst_format_vw, mst_format_criteo;

static uint32_t criteo(uint32_t column, const char *text, uint32_t n_numbers, uint64_t seed,
                       uint64_t features)
{
    uint32_t key = UINT32_MAX;
    assert_int_equal(muster_hash_criteo(column, text, strlen(text), n_numbers, seed, features, &key),
                     MUSTER_OK);
    return key;
}

static void test_page(void **state)
{
    (void)state;
    assert_int_equal(muster_hash_vw("user", 4, "u17", 3, 0, 1 << 18), 242553);
    assert_int_equal(muster_hash_csv("city", 4, "Rome", 4, 3, 0, 1 << 20), 387458);
    assert_int_equal(muster_hash_csv("city", 4, "", 0, 3, 0, 1 << 20), 810089);
    assert_int_equal(criteo(13, "68fd1e64", 0, 0, 1 << 20), 423580);
    assert_int_equal(criteo(13, "68FD1E64", 0, 0, 1 << 20), 423580);
    assert_int_equal(criteo(0, "17", 0, 0, 1 << 20), 944849);
    assert_int_equal(criteo(0, "", 0, 0, 1 << 20), 740795);
    assert_int_equal(criteo(0, "-7", 13, 5, 33762578), 3824838);
    assert_true(muster_criteo_log(-3) == 0.0f && muster_criteo_log(0) == 0.0f &&
                muster_criteo_log(1) > 0.17f);
}

/* The keys of one line. */
static void parse(const mst_format *format, const mst_data_options *options, const char *line,
                  mst_chunk_builder *out)
{
    mst_parse_context context = {.options = options, .features = (uint64_t)options->features};
    mst_block block = {.path = "test", .data = (const uint8_t *)line, .size = strlen(line), .line = 1};
    mst_chunk_builder_init(out);
    assert_int_equal(mst_parse_context_init(&context, format, &block), MST_OK);
    assert_int_equal(format->parse(&context, &block, out), MST_OK);
    assert_int_equal(out->n_rows, 1);
    mst_parse_context_fini(&context, format);
}

static void test_formats(void **state)
{
    (void)state;
    mst_chunk_builder b;
    mst_data_options vw = {.features = 5000, .hash_seed = 9};
    parse(&mst_format_vw, &vw, "1 |a long-name-of-more-than-thirty-two-bytes\n", &b);
    assert_int_equal(b.keys[0],
                     muster_hash_vw("a", 1, "long-name-of-more-than-thirty-two-bytes", 39, 9, 5000));
    mst_chunk_builder_fini(&b);
    mst_data_options log = {.features = 100000, .hash_seed = 3, .criteo_numeric = 2}; /* both */
    char line[400] = "1\t7\t-1\t\t123456789";
    for (int i = 4; i < 38; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line), i < 13 ? "\t%d" : "\t%x", 1000 * i);
    strcat(line, "\tdeadbeef\n");
    parse(&mst_format_criteo, &log, line, &b);
    assert_int_equal(b.n_entries, 52);
    assert_true(b.values[0] == muster_criteo_log(7) && b.values[1] == 0.0f && b.values[2] == 0.0f);
    assert_int_equal(b.keys[13], criteo(0, "7", 13, 3, 100000));
    assert_int_equal(b.keys[14], criteo(1, "-1", 13, 3, 100000));
    assert_int_equal(b.keys[15], criteo(2, "", 13, 3, 100000));
    assert_int_equal(b.keys[16], criteo(3, "123456789", 13, 3, 100000));
    assert_int_equal(b.keys[51], criteo(38, "deadbeef", 13, 3, 100000));
    mst_chunk_builder_fini(&b);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        uint32_t column;
        const char *text;
        uint32_t n_numbers;
        uint64_t features;
        muster_status status;
    } cases[] = {{39, "1", 0, 100, MUSTER_EUSAGE},         {0, "1", 13, 13, MUSTER_EUSAGE},
                 {0, "x", 0, 100, MUSTER_EINPUT},          {0, "-", 0, 100, MUSTER_EINPUT},
                 {0, "1.5", 0, 100, MUSTER_EINPUT},        {0, "99999999999999999999", 0, 100, MUSTER_EINPUT},
                 {13, "123456789", 0, 100, MUSTER_EINPUT}, {13, "xyz", 0, 100, MUSTER_EINPUT}};
    uint32_t key;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(muster_hash_criteo(cases[i].column, cases[i].text, strlen(cases[i].text),
                                            cases[i].n_numbers, 0, cases[i].features, &key),
                         cases[i].status);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_page), cmocka_unit_test(test_formats),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
