/* Numbers in text: every parser against the C library's, and at the edges of its range. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "data/numbers.h"

static void digits_of_every_length(void **state)
{
    (void)state;
    const char *text = "98765432";
    for (unsigned n = 1; n <= 8; n++) {
        char field[17] = "................";
        memcpy(field, text, n);
        uint64_t word = mst_load8((const uint8_t *)field);
        assert_int_equal(mst_digits_count8(word), n);
        char spelled[9] = {0};
        memcpy(spelled, text, n);
        assert_int_equal(mst_digits_value8(word, n), strtoul(spelled, NULL, 10));
    }
}

static void every_byte_is_a_digit_or_not(void **state)
{
    (void)state;
    for (int place = 0; place < 8; place++)
        for (int c = 0; c < 256; c++) {
            uint8_t text[8];
            memset(text, '5', 8);
            text[place] = (uint8_t)c;
            assert_int_equal(mst_digits_count8(mst_load8(text)), c >= '0' && c <= '9' ? 8 : place);
        }
}

static void unsigned_stops_at_64_bits(void **state)
{
    (void)state;
    uint64_t v;
    const uint8_t *most = (const uint8_t *)"18446744073709551615x",
                  *more = (const uint8_t *)"18446744073709551616";
    assert_ptr_equal(mst_number_unsigned(most, most + 21, &v), most + 20);
    assert_true(v == UINT64_MAX);
    assert_null(mst_number_unsigned(more, more + 20, &v));
    assert_null(mst_number_unsigned(most, most, &v));
}

static void reals_equal_strtod(void **state)
{
    (void)state;
    static const char *const texts[] = {"0",
                                        "-0",
                                        "+1",
                                        "1.",
                                        ".5",
                                        "0.1",
                                        "-0.123",
                                        "123.456e3",
                                        "1e22",
                                        "1e23",
                                        "1e-22",
                                        "1E+5",
                                        "9007199254740993",
                                        "3.4028235e38",
                                        "1.17549435e-38",
                                        "5e-324",
                                        "2.2250738585072014e-308",
                                        "123456789012345678901234567890",
                                        "0.000000000000000000000000000000000000001",
                                        "1797693134862315708145274237317043567981e269",
                                        "00000000000000000000000000000000000000000000000012.5"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        double got, want = strtod(texts[i], NULL);
        const uint8_t *p = (const uint8_t *)texts[i], *end = p + strlen(texts[i]);
        assert_ptr_equal(mst_number_real(p, end, &got), end);
        assert_memory_equal(&got, &want, sizeof got);
    }
}

static void random_reals_equal_strtod(void **state)
{
    (void)state;
    mst_rng rng;
    mst_rng_init(&rng, 1, MST_RNG_TEST, 0);
    for (int i = 0; i < 20000; i++) {
        char text[64];
        double x = ldexp(mst_rng_uniform(&rng) - 0.5, (int)mst_rng_below(&rng, 120) - 60);
        int n = snprintf(text, sizeof text, "%.*g", 1 + (int)mst_rng_below(&rng, 17), x);
        double got, want = strtod(text, NULL);
        assert_ptr_equal(mst_number_real((uint8_t *)text, (uint8_t *)text + n, &got), text + n);
        assert_memory_equal(&got, &want, sizeof got);
    }
}

static void what_is_no_real(void **state)
{
    (void)state;
    static const char *const texts[] = {"",    "-",    "+",  ".",   "e5", "nan",
                                        "inf", "-inf", "1e", "1e+", "x1", "--1"};
    double v;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_null(
            mst_number_real((const uint8_t *)texts[i], (const uint8_t *)texts[i] + strlen(texts[i]), &v));
    const uint8_t *huge = (const uint8_t *)"1e999999999999";
    assert_ptr_equal(mst_number_real(huge, huge + 14, &v), huge + 14);
    assert_true(isinf(v));
    const uint8_t *two = (const uint8_t *)"1.5.2";
    assert_ptr_equal(mst_number_real(two, two + 5, &v), two + 3);
}

static void hex_of_eight(void **state)
{
    (void)state;
    uint32_t v;
    assert_true(mst_number_hex8((const uint8_t *)"7e5C2fF4", &v));
    assert_int_equal(v, 0x7e5c2ff4);
    assert_true(mst_number_hex8((const uint8_t *)"00000001", &v));
    assert_int_equal(v, 1);
    for (int place = 0; place < 8; place++)
        for (int c = 0; c < 256; c++) {
            uint8_t text[8];
            memset(text, 'a', 8);
            text[place] = (uint8_t)c;
            bool digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
            assert_int_equal(mst_number_hex8(text, &v), digit);
        }
}

static void hex_of_any_length(void **state)
{
    (void)state;
    uint32_t v;
    const uint8_t *text = (const uint8_t *)"fF012345678";
    assert_true(mst_number_hex(text, text + 3, &v));
    assert_int_equal(v, 0xff0);
    assert_false(mst_number_hex(text, text, &v));
    assert_false(mst_number_hex(text, text + 9, &v));
    assert_false(mst_number_hex((const uint8_t *)"1g", (const uint8_t *)"1g" + 2, &v));
}

static void signed_whole_numbers(void **state)
{
    (void)state;
    int64_t v;
    const uint8_t *text = (const uint8_t *)"-42";
    assert_ptr_equal(mst_number_signed(text, text + 3, &v), text + 3);
    assert_int_equal(v, -42);
    const uint8_t *large = (const uint8_t *)"9223372036854775808";
    assert_null(mst_number_signed(large, large + 19, &v));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digits_of_every_length),
        cmocka_unit_test(every_byte_is_a_digit_or_not),
        cmocka_unit_test(unsigned_stops_at_64_bits),
        cmocka_unit_test(reals_equal_strtod),
        cmocka_unit_test(random_reals_equal_strtod),
        cmocka_unit_test(what_is_no_real),
        cmocka_unit_test(hex_of_eight),
        cmocka_unit_test(hex_of_any_length),
        cmocka_unit_test(signed_whole_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
