/* CRC-32C: published values, chaining, and the TFRecord mask. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc.h"

static void known_answers(void **state)
{
    (void)state;
    uint8_t bytes[32];
    assert_int_equal(mst_crc32c(0, "", 0), 0);
    assert_int_equal(mst_crc32c(0, "123456789", 9), 0xE3069283u);
    memset(bytes, 0, sizeof bytes); /* RFC 3720, B.4 */
    assert_int_equal(mst_crc32c(0, bytes, 32), 0x8A9136AAu);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(mst_crc32c(0, bytes, 32), 0x62A8AB43u);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(mst_crc32c(0, bytes, 32), 0x46DD794Eu);
}

/* One bit at a time, from the polynomial. */
static uint32_t slow(const uint8_t *data, size_t n)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    }
    return ~crc;
}

static void every_length_and_split(void **state)
{
    (void)state;
    uint8_t bytes[300];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 73 + (i >> 3));
    for (size_t n = 0; n <= sizeof bytes; n++) {
        uint32_t whole = slow(bytes, n);
        assert_int_equal(mst_crc32c(0, bytes, n), whole);
        size_t half = n / 3;
        assert_int_equal(mst_crc32c(mst_crc32c(0, bytes, half), bytes + half, n - half), whole);
    }
}

static void copies(void **state)
{
    (void)state;
    static uint8_t from[40000], to[sizeof from + 1];
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (uint8_t)(i * 31 + (i >> 7));
    for (size_t n = 0; n <= sizeof from; n += n < 3 ? 1 : 7993) {
        memset(to, 0xaa, sizeof to);
        assert_int_equal(mst_crc32c_copy(7, to, from, n), mst_crc32c(7, from, n));
        assert_memory_equal(to, from, n);
        assert_int_equal(to[n], 0xaa);
    }
}

static void masked(void **state)
{
    (void)state;
    /* The length field 0x24f of a file written by TensorFlow carries this masked CRC. */
    const uint8_t length[8] = {0x4f, 0x02};
    assert_int_equal(mst_crc_mask(mst_crc32c(0, length, 8)), 0xe670e770u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(every_length_and_split),
        cmocka_unit_test(copies),
        cmocka_unit_test(masked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
