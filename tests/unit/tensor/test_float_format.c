/* bf16 and fp16 against exact arithmetic: every half decodes to its value, every float encodes to the nearest
 * half; all instruction sets of the machine give the same bits. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tensor/float_format_impl.h"

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The value of a finite half. */
static double value_of(mst_float_format wire, uint16_t half)
{
    int exponent_bits = wire == MST_FLOAT_BF16 ? 8 : 5, fraction_bits = 15 - exponent_bits;
    int bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = half >> fraction_bits & ((1 << exponent_bits) - 1);
    int fraction = half & ((1 << fraction_bits) - 1);
    double size = exponent == 0 ? ldexp(fraction, 1 - bias - fraction_bits)
                                : ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
    return half & 0x8000 ? -size : size;
}

static uint16_t infinity_of(mst_float_format wire)
{
    return wire == MST_FLOAT_BF16 ? 0x7F80 : 0x7C00;
}

static bool is_nan(mst_float_format wire, uint16_t half)
{
    return (half & 0x7FFF) > infinity_of(wire);
}

/* The nearest half of a float, by search among all: ties to the even one, fp16 saturating. */
static uint16_t nearest(mst_float_format wire, float x)
{
    uint16_t sign = bits_of(x) >> 16 & 0x8000, infinity = infinity_of(wire);
    double size = fabs((double)x);
    if (isinf(x))
        return sign | infinity;
    uint32_t low = 0, high = infinity; /* the last half that is not above size; high is beyond */
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (value_of(wire, (uint16_t)middle) <= size)
            low = middle;
        else
            high = middle;
    }
    if (high == infinity && wire == MST_FLOAT_FP16)
        return sign | (uint16_t)low;
    /* bf16's infinity stands for the next power of two */
    double below = size - value_of(wire, (uint16_t)low);
    double above = (high == infinity ? 0x1p128 : value_of(wire, (uint16_t)high)) - size;
    bool up = above < below || (above == below && low % 2 == 1);
    return sign | (uint16_t)(up ? high : low);
}

static void check_encode(mst_float_format wire, const float *in, size_t n)
{
    uint16_t *out = malloc(n * sizeof *out + 1);
    for (mst_isa isa = 0; isa < MST_ISA_COUNT; isa++) {
        if (!mst_isa_supported(isa))
            continue;
        mst_float_encode_with(isa, wire, in, n, out);
        for (size_t i = 0; i < n; i++) {
            if (isnan(in[i])) {
                assert_true(is_nan(wire, out[i]));
                assert_int_equal(out[i] >> 15, bits_of(in[i]) >> 31);
            } else {
                assert_int_equal(out[i], nearest(wire, in[i]));
            }
        }
    }
    free(out);
}

static void all_halves(void **state)
{
    (void)state;
    uint16_t *in = malloc(65536 * sizeof *in), *back = malloc(65536 * sizeof *back);
    float *out = malloc(65536 * sizeof *out);
    for (uint32_t h = 0; h < 65536; h++)
        in[h] = (uint16_t)h;
    for (mst_float_format wire = MST_FLOAT_BF16; wire <= MST_FLOAT_FP16; wire++)
        for (mst_isa isa = 0; isa < MST_ISA_COUNT; isa++) {
            if (!mst_isa_supported(isa))
                continue;
            mst_float_decode_with(isa, wire, in, 65536, out);
            mst_float_encode_with(isa, wire, out, 65536, back);
            for (uint32_t h = 0; h < 65536; h++) {
                assert_int_equal(bits_of(out[h]) >> 31, h >> 15);
                if (is_nan(wire, in[h])) {
                    assert_true(isnan(out[h]) && is_nan(wire, back[h]));
                    continue;
                }
                if ((h & 0x7FFF) == infinity_of(wire))
                    assert_true(isinf(out[h]));
                else
                    assert_true((double)out[h] == value_of(wire, in[h]));
                assert_int_equal(back[h], h);
            }
        }
    free(in);
    free(back);
    free(out);
}

/* Around every half: the middle between it and the next, and a float below and above that. */
static void ties(void **state)
{
    (void)state;
    for (mst_float_format wire = MST_FLOAT_BF16; wire <= MST_FLOAT_FP16; wire++) {
        size_t n = 0;
        float *in = malloc(8 * 32768 * sizeof *in);
        for (uint32_t h = 0; h + 1 < infinity_of(wire); h++) {
            double a = value_of(wire, (uint16_t)h), b = value_of(wire, (uint16_t)(h + 1));
            float middle = (float)((a + b) / 2);
            in[n++] = (float)a;
            in[n++] = middle;
            in[n++] = -middle;
            in[n++] = nextafterf(middle, INFINITY);
            in[n++] = nextafterf(middle, -INFINITY);
        }
        check_encode(wire, in, n);
        free(in);
    }
}

static void special_floats(void **state)
{
    (void)state;
    static const uint32_t bits[] = {
        0,          0x80000000, 1,          0x80000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF,
        0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0xFFFFFFFF,
        0xFF800001, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x477FFFFF, 0x47800000, 0xC7800000,
        0x7F7F7FFF, 0x7F7F8000, 0x33000000, 0x33000001, 0x32FFFFFF, 0x387FFFFF,
    };
    enum { N = sizeof bits / sizeof *bits };
    float in[3 * N];
    for (size_t i = 0; i < 3 * N; i++) /* each at several places of a vector */
        in[i] = float_of(bits[i % N]);
    check_encode(MST_FLOAT_BF16, in, 3 * N);
    check_encode(MST_FLOAT_FP16, in, 3 * N);
    uint16_t half;
    mst_float_encode(MST_FLOAT_FP16, (float[]){-1e30f}, 1, &half);
    assert_int_equal(half, 0xFBFF); /* -65504 */
    mst_float_encode(MST_FLOAT_FP16, (float[]){-INFINITY}, 1, &half);
    assert_int_equal(half, 0xFC00);
    mst_float_encode(MST_FLOAT_BF16, (float[]){1.0f}, 1, &half);
    assert_int_equal(half, 0x3F80);
}

static void random_floats(void **state)
{
    (void)state;
    enum { N = 200000 };
    float *in = malloc(N * sizeof *in);
    mst_rng rng;
    mst_rng_init(&rng, 9, MST_RNG_TEST, 0);
    for (size_t i = 0; i < N; i++)
        in[i] = i % 2 ? float_of(mst_rng_u32(&rng)) : (float)(mst_rng_normal(&rng) * 1e-5);
    check_encode(MST_FLOAT_BF16, in, N);
    check_encode(MST_FLOAT_FP16, in, N);
    free(in);
}

/* All sets give the same bits also for NANs, whatever the length and alignment; nothing else is written. */
static void lengths(void **state)
{
    (void)state;
    float in[100], out[2][101];
    uint8_t wire_bytes[2][402];
    mst_rng rng;
    mst_rng_init(&rng, 10, MST_RNG_TEST, 0);
    for (size_t i = 0; i < 100; i++)
        in[i] = i % 5 ? float_of(mst_rng_u32(&rng)) : float_of(0x7F800001 + mst_rng_below(&rng, 0x7FFFFE));
    for (mst_float_format wire = MST_FLOAT_FP32; wire <= MST_FLOAT_FP16; wire++)
        for (size_t n = 0; n <= 100; n++)
            for (size_t shift = 0; shift < 2; shift++)
                for (mst_isa isa = 0; isa < MST_ISA_COUNT; isa++) {
                    if (!mst_isa_supported(isa))
                        continue;
                    unsigned k = isa != 0;
                    memset(wire_bytes[k], 0xAA, sizeof wire_bytes[k]);
                    memset(out[k], 0xAA, sizeof out[k]);
                    mst_float_encode_with(isa, wire, in, n, wire_bytes[k] + shift);
                    mst_float_decode_with(isa, wire, wire_bytes[k] + shift, n, out[k]);
                    assert_int_equal(wire_bytes[k][shift + n * mst_float_size(wire)], 0xAA);
                    assert_int_equal(bits_of(out[k][n]), 0xAAAAAAAA);
                    assert_memory_equal(wire_bytes[0], wire_bytes[k], sizeof wire_bytes[k]);
                    assert_memory_equal(out[0], out[k], sizeof out[k]);
                    if (wire == MST_FLOAT_FP32)
                        assert_memory_equal(out[k], in, n * sizeof *in);
                }
}

/* Infinities and NANs are found at every position; the largest values are finite. */
static void finite_values(void **state)
{
    (void)state;
    static const float bad[] = {INFINITY, -INFINITY, NAN, -NAN};
    enum { N = 4100 };
    float *in = calloc(N, sizeof *in);
    uint8_t *wire_bytes = malloc(N * sizeof *in + 1);
    for (mst_float_format wire = MST_FLOAT_FP32; wire <= MST_FLOAT_FP16; wire++) {
        for (size_t i = 0; i < N; i++)
            in[i] = float_of(i % 3 == 0 ? 0x7F7F7FFF : i % 3 == 1 ? 0xFF7F7FFF : 1);
        assert_true(mst_float_encodes_finite(wire, in, N));
        for (size_t i = 0; i < N; i = i < 70 ? i + 1 : i + 403)
            for (size_t k = 0; k < 4; k++) {
                float before = in[i];
                in[i] = bad[k];
                assert_false(mst_float_encodes_finite(wire, in, N));
                mst_float_encode(wire, in, N, wire_bytes + 1);
                assert_false(mst_float_finite(wire, wire_bytes + 1, N));
                assert_true(mst_float_finite(wire, wire_bytes + 1, i));
                in[i] = before;
            }
        in[5] = FLT_MAX; /* rounds to the infinity of bf16 */
        mst_float_encode(wire, in, N, wire_bytes);
        assert_int_equal(mst_float_encodes_finite(wire, in, N), wire != MST_FLOAT_BF16);
        assert_int_equal(mst_float_finite(wire, wire_bytes, N), wire != MST_FLOAT_BF16);
    }
    free(in);
    free(wire_bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_halves),    cmocka_unit_test(ties),    cmocka_unit_test(special_floats),
        cmocka_unit_test(random_floats), cmocka_unit_test(lengths), cmocka_unit_test(finite_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
