/* Packed keys: round trips over all widths and lengths, the bytes of the format, and input that is refused
 * with a sentence; every variant the machine has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/isa.h"
#include "base/rng.h"
#include "ps/key_pack_impl.h"

#define MAX_KEYS 300

typedef struct variant {
    mst_key_pack_fn *pack;
    mst_key_unpack_fn *unpack;
} variant;

static unsigned variants(variant *out)
{
    unsigned n = 0;
    out[n++] = (variant){mst_key_pack_portable, mst_key_unpack_portable};
#ifdef __x86_64__
    if (mst_isa_supported(MST_ISA_AVX512))
        out[n++] = (variant){mst_key_pack_avx512, mst_key_unpack_avx512};
#endif
    return n;
}

/* The format, bit by bit. */
static size_t pack_plain(const uint32_t *keys, uint32_t n, uint8_t *out)
{
    size_t size = 0;
    if (n == 0)
        return 0;
    for (unsigned i = 0; i < 4; i++)
        out[size++] = (uint8_t)(keys[0] >> 8 * i);
    for (uint32_t from = 1; from < n; from += 32) {
        uint32_t count = n - from < 32 ? n - from : 32;
        unsigned width = 0;
        for (uint32_t i = 0; i < count; i++)
            while ((uint64_t)(keys[from + i] - keys[from + i - 1] - 1) >> width != 0)
                width++;
        out[size++] = (uint8_t)width;
        memset(out + size, 0, (count * width + 7) / 8);
        for (uint32_t i = 0; i < count; i++)
            for (unsigned bit = 0; bit < width; bit++)
                if ((keys[from + i] - keys[from + i - 1] - 1) >> bit & 1)
                    out[size + (i * width + bit) / 8] |= (uint8_t)(1u << (i * width + bit) % 8);
        size += (count * width + 7) / 8;
    }
    return size;
}

/* All variants write what the plain packer does, and read it back; buffers end where they must. */
static void check_round_trip(const uint32_t *keys, uint32_t n)
{
    variant v[4];
    unsigned n_variants = variants(v);
    uint8_t *want = malloc(mst_key_pack_bound(n) + 1);
    size_t size = pack_plain(keys, n, want);
    for (unsigned i = 0; i < n_variants; i++) {
        uint8_t *room = malloc(mst_key_pack_bound(n) + 1);
        assert_int_equal(mst_key_pack_with(v[i].pack, keys, n, room), size);
        assert_memory_equal(room, want, size);
        uint8_t *exact = malloc(size + (size == 0));
        uint32_t *back = malloc(n * sizeof *back + 1);
        memcpy(exact, room, size);
        uint32_t from = n ? keys[0] : 0, to = n ? keys[n - 1] + 1 : 0;
        assert_int_equal(mst_key_unpack_with(v[i].unpack, exact, size, n, from, to, back), MST_OK);
        if (n != 0)
            assert_memory_equal(back, keys, n * sizeof *keys);
        free(back);
        free(exact);
        free(room);
    }
    free(want);
}

static void widths(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {0, 1, 2, 3, 31, 32, 33, 34, 64, 65, 66, 95, 97, 129, 200, 300};
    uint32_t keys[MAX_KEYS];
    mst_rng rng;
    mst_rng_init(&rng, 3, MST_RNG_TEST, 0);
    for (unsigned width = 0; width <= 32; width++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            for (int round = 0; round < 20; round++) {
                uint64_t key = mst_rng_below(&rng, 1000);
                uint32_t n = 0;
                while (n < lengths[l] && key < UINT32_MAX) {
                    keys[n++] = (uint32_t)key;
                    uint64_t gap = width ? mst_rng_u64(&rng) >> (64 - width) : 0;
                    if (width > 24 && n % 40 != 7) /* few large gaps fit below 2^32 */
                        gap >>= width - 8;
                    key += gap + 1;
                }
                check_round_trip(keys, n);
            }
}

static void boundaries(void **state)
{
    (void)state;
    uint32_t keys[MAX_KEYS];
    check_round_trip((uint32_t[]){0}, 1);
    check_round_trip((uint32_t[]){UINT32_MAX - 1}, 1);
    check_round_trip((uint32_t[]){0, UINT32_MAX - 1}, 2);
    check_round_trip((uint32_t[]){0, 1, UINT32_MAX - 2, UINT32_MAX - 1}, 4);
    for (uint32_t i = 0; i < MAX_KEYS; i++)
        keys[i] = UINT32_MAX - MAX_KEYS + i; /* the last possible ones */
    check_round_trip(keys, MAX_KEYS);
    for (uint32_t at = 1; at < MAX_KEYS; at += 13) { /* one gap of 32 bits anywhere */
        for (uint32_t i = 0; i < MAX_KEYS; i++)
            keys[i] = i < at ? i : UINT32_MAX - MAX_KEYS + i;
        check_round_trip(keys, MAX_KEYS);
    }
}

static void golden_bytes(void **state)
{
    (void)state;
    static const uint32_t keys[] = {258, 259, 262, 263, 270};
    static const uint8_t want[] = {2, 1, 0, 0, 3, 0x10, 0x0C}; /* gaps 0 2 0 6, 3 bits each */
    uint8_t out[256];
    uint32_t run[34];
    assert_true(mst_key_pack_bound(5) <= sizeof out);
    assert_int_equal(mst_key_pack(keys, 5, out), sizeof want);
    assert_memory_equal(out, want, sizeof want);
    for (uint32_t i = 0; i < 34; i++)
        run[i] = 7 + i + (i == 33); /* 32 gaps of nothing, then one of 1 */
    assert_int_equal(mst_key_pack(run, 34, out), 7);
    assert_memory_equal(out, ((uint8_t[]){7, 0, 0, 0, 0, 1, 1}), 7);
    assert_int_equal(mst_key_pack(NULL, 0, out), 0);
    assert_int_equal(mst_key_pack_bound(0), 0);
}

/* Every cut and every extension of good input is refused, and nothing behind it is read. */
static void cut_and_extended(void **state)
{
    (void)state;
    uint32_t keys[100], back[100];
    variant v[4];
    unsigned n_variants = variants(v);
    mst_rng rng;
    mst_rng_init(&rng, 5, MST_RNG_TEST, 0);
    for (uint32_t n = 1; n <= 100; n += 11) {
        uint8_t room[1024];
        keys[0] = 5;
        for (uint32_t i = 1; i < n; i++)
            keys[i] = keys[i - 1] + 1 + mst_rng_below(&rng, 1 + (n << 10));
        size_t size = mst_key_pack(keys, n, room);
        for (size_t length = 0; length <= size + 3; length++) {
            uint8_t *exact = calloc(length + 1, 1);
            uint8_t *tight = realloc(exact, length ? length : 1);
            memset(tight, 0, length);
            memcpy(tight, room, length < size ? length : size);
            for (unsigned i = 0; i < n_variants; i++) {
                mst_status st = mst_key_unpack_with(v[i].unpack, tight, length, n, 0, UINT32_MAX, back);
                assert_int_equal(st, length == size ? MST_OK : MST_EINPUT);
                if (st != MST_OK)
                    assert_ptr_equal(strstr(mst_error_text(), "packed keys: "), mst_error_text());
            }
            free(tight);
        }
    }
}

/* Whatever the bytes are: refused, or ascending keys within the limits. */
static void corrupted(void **state)
{
    (void)state;
    uint32_t keys[100], back[100];
    uint8_t room[1024];
    variant v[4];
    unsigned n_variants = variants(v);
    mst_rng rng;
    mst_rng_init(&rng, 6, MST_RNG_TEST, 0);
    for (int round = 0; round < 20000; round++) {
        uint32_t n = 1 + mst_rng_below(&rng, 100), from = mst_rng_below(&rng, 3);
        keys[0] = 5;
        for (uint32_t i = 1; i < n; i++)
            keys[i] = keys[i - 1] + 1 + mst_rng_below(&rng, round % 2 ? 100 : 40000000);
        uint32_t to = keys[n - 1] + 1 + mst_rng_below(&rng, 3);
        size_t size = mst_key_pack(keys, n, room);
        for (uint32_t i = mst_rng_below(&rng, 4); i > 0; i--)
            room[mst_rng_below(&rng, (uint32_t)size)] = (uint8_t)mst_rng_u32(&rng);
        mst_status first = MST_OK;
        for (unsigned i = 0; i < n_variants; i++) {
            mst_status st = mst_key_unpack_with(v[i].unpack, room, size, n, from, to, back);
            assert_true(i == 0 || st == first); /* all variants agree */
            first = st;
            for (uint32_t k = 0; st == MST_OK && k < n; k++)
                assert_true(back[k] >= from && back[k] < to && (k == 0 || back[k] > back[k - 1]));
        }
    }
}

static void refuse(const uint8_t *in, size_t size, uint32_t n, uint32_t from, uint32_t to,
                   const char *sentence)
{
    uint32_t keys[64];
    variant v[4];
    unsigned n_variants = variants(v);
    for (unsigned i = 0; i < n_variants; i++) {
        assert_int_equal(mst_key_unpack_with(v[i].unpack, in, size, n, from, to, keys), MST_EINPUT);
        assert_string_equal(mst_error_text(), sentence);
    }
    assert_int_equal(mst_key_unpack(in, size, n, from, to, keys), MST_EINPUT);
}

static void sentences(void **state)
{
    (void)state;
    static const uint8_t good[] = {2, 1, 0, 0, 3, 0x10, 0x0C};
    static const uint8_t wide[] = {0, 0, 0, 0, 33, 0, 0, 0, 0, 0};
    static const uint8_t padding[] = {0, 0, 0, 0, 3, 0x08};
    static const uint8_t beyond[] = {1, 0, 0, 0, 32, 0xFF, 0xFF, 0xFF, 0xFF};
    static const uint8_t far[] = {9, 0, 0, 0, 32, 0xF8, 0xFF, 0xFF, 0xFF};
    refuse(good, 7, 0, 0, 10, "packed keys: 7 bytes for no keys");
    refuse(good, 3, 5, 0, 1000, "packed keys: 3 bytes for 5 keys");
    refuse(good, 4, 5, 0, 1000, "packed keys: 4 bytes end before the last 4 of 5 keys");
    refuse(good, 6, 5, 0, 1000, "packed keys: 6 bytes end before the last 4 of 5 keys");
    refuse(good, 7, 2, 0, 1000, "packed keys: 1 bytes too many after 2 keys");
    refuse(good, 7, 1, 0, 1000, "packed keys: 3 bytes too many after 1 keys");
    refuse(good, 7, 5, 0, 270, "packed keys: 258 to 270 are not all in 0 to below 270");
    refuse(good, 7, 5, 259, 1000, "packed keys: 258 to 270 are not all in 259 to below 1000");
    refuse(wide, 10, 2, 0, 1000, "packed keys: gaps of 33 bits; at most 32 are possible");
    refuse(padding, 6, 2, 0, 1000, "packed keys: the padding after the last key is not zero");
    refuse(beyond, 9, 2, 0, UINT32_MAX, "packed keys: the gaps exceed 32 bits");
    refuse(far, 9, 2, 0, UINT32_MAX, "packed keys: the gaps exceed 32 bits");
}

/* A sum that goes around in the middle of whole blocks, where the last key is fine again. */
static void wrapped_blocks(void **state)
{
    (void)state;
    uint8_t in[4 + 2 * 129];
    for (unsigned at = 0; at < 64; at++) {
        memset(in, 0, sizeof in);
        in[4] = in[4 + 129] = 32;
        memset(in + 5 + (at / 32) * 129 + at % 32 * 4, 0xFF, 4); /* a gap of 2^32 - 1: the key repeats */
        in[0] = 1;
        uint32_t keys[65];
        variant v[4];
        unsigned n_variants = variants(v);
        for (unsigned i = 0; i < n_variants; i++)
            assert_int_equal(mst_key_unpack_with(v[i].unpack, in, sizeof in, 65, 0, UINT32_MAX, keys),
                             MST_EINPUT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widths),           cmocka_unit_test(boundaries), cmocka_unit_test(golden_bytes),
        cmocka_unit_test(cut_and_extended), cmocka_unit_test(corrupted),  cmocka_unit_test(sentences),
        cmocka_unit_test(wrapped_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
