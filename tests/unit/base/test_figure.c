/* Numbers and units as people read them: single figures, figures of a column, means with their spread. */
#include "base/figure.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_single(void **state)
{
    (void)state;
    char t[MST_FIGURE_SIZE];
    assert_string_equal(mst_figure_grouped(0, t), "0");
    assert_string_equal(mst_figure_grouped(UINT64_MAX, t), "18,446,744,073,709,551,615");
    assert_string_equal(mst_figure_size(12, t), "12 bytes");
    assert_string_equal(mst_figure_size(1500000, t), "1.50 MB");
    assert_string_equal(mst_figure_size(999600, t), "1.00 MB");
    assert_string_equal(mst_figure_count(1234567, t), "1,234,567");
    assert_string_equal(mst_figure_count(-1234.4, t), "-1,234");
    assert_string_equal(mst_figure_short(45600, t), "45.6k");
    assert_string_equal(mst_figure_short(0.25, t), "0.25");
    assert_string_equal(mst_figure_short(0.0012, t), "0.0012");
    assert_string_equal(mst_figure_bytes(1.5e6, t), "1.5 MB");
    assert_string_equal(mst_figure_bytes(12.4, t), "12 B");
    assert_string_equal(mst_figure_rate(2e9, t), "2 GB/s");
    assert_string_equal(mst_figure_seconds(0.0123, t), "12.3 ms");
    assert_string_equal(mst_figure_seconds(0, t), "0 s");
    assert_string_equal(mst_figure_seconds(200, t), "3 min 20 s");
    assert_string_equal(mst_figure_seconds(180, t), "3 min");
    assert_string_equal(mst_figure_seconds(7500, t), "2 h 5 min");
    assert_string_equal(mst_figure_percent(0.123, t), "12%");
    assert_string_equal(mst_figure_percent(0.0123, t), "1.2%");
    assert_string_equal(mst_figure_precise(0.12345, t), "12.35%");
    assert_string_equal(mst_figure_cores(1.25, t), "1.25");
    assert_string_equal(mst_figure_bits(12.5e6, t), "100 Mbit/s");
    assert_string_equal(mst_figure_bits(312.5e6, t), "2.5 Gbit/s");
    assert_string_equal(mst_figure_real(NAN, t), MST_FIGURE_NONE);
    assert_string_equal(mst_figure_seconds(INFINITY, t), MST_FIGURE_NONE);
    assert_string_equal(mst_figure_bytes(1e300, t), MST_FIGURE_NONE);
}

static void test_column(void **state)
{
    (void)state;
    static const struct {
        mst_figure_unit unit;
        double value;
        const char *text;
    } tries[] = {{MST_FIGURE_PLAIN, 0.768, "0.7680"},    {MST_FIGURE_PLAIN, 1e-5, "1e-05"},
                 {MST_FIGURE_SECONDS, 8, "8.00 s"},      {MST_FIGURE_SECONDS, 180, "3 min"},
                 {MST_FIGURE_BYTES, 17e6, "17.0 MB"},    {MST_FIGURE_BYTES, 12, "12 B"},
                 {MST_FIGURE_BYTES, 0, MST_FIGURE_NONE}, {MST_FIGURE_RATE, 1e6, "1.00 MB/s"},
                 {MST_FIGURE_SHARE, 0.5, "50%"},         {MST_FIGURE_COUNT, 1e6, "1,000,000"}};
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        char t[MST_FIGURE_SIZE];
        assert_string_equal(mst_figure_column(tries[i].unit, tries[i].value, t), tries[i].text);
    }
}

static void test_spread(void **state)
{
    (void)state;
    char t[2 * MST_FIGURE_SIZE];
    assert_string_equal(mst_figure_spread(MST_FIGURE_COUNT, 1.17e6, 3e4, t), "1.17 \xc2\xb1 0.03M");
    assert_string_equal(mst_figure_spread(MST_FIGURE_COUNT, 8000, 0, t), "8,000");
    assert_string_equal(mst_figure_spread(MST_FIGURE_BYTES, 54e6, NAN, t), "54.0 MB");
    assert_string_equal(mst_figure_spread(MST_FIGURE_SECONDS, 0.5, 0.01, t), "500 \xc2\xb1 10 ms");
    assert_string_equal(mst_figure_spread(MST_FIGURE_SECONDS, 200, 3, t), "3 min 20 s \xc2\xb1 3 s");
    assert_string_equal(mst_figure_spread(MST_FIGURE_PLAIN, 0.4567, 0.0012, t), "0.4567 \xc2\xb1 0.0012");
    assert_string_equal(mst_figure_spread(MST_FIGURE_SHARE, 0.873, NAN, t), "87.30%");
    assert_string_equal(mst_figure_spread(MST_FIGURE_PLAIN, NAN, NAN, t), MST_FIGURE_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_single),
        cmocka_unit_test(test_column),
        cmocka_unit_test(test_spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
