/* SHA-256: the examples of FIPS 180-4, a million letters, every way to cut the input, files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/sha256.h"

static void expect_digest(const void *data, size_t n, const char *hex)
{
    mst_sha256 hash;
    uint8_t digest[32];
    char text[65];
    mst_sha256_init(&hash);
    mst_sha256_add(&hash, data, n);
    mst_sha256_final(&hash, digest);
    mst_sha256_hex(digest, text);
    assert_string_equal(text, hex);
}

static void known_answers(void **state)
{
    (void)state;
    const char *two_blocks = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    expect_digest("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect_digest("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect_digest(two_blocks, 56, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    char *letters = malloc(1000000);
    assert_non_null(letters);
    memset(letters, 'a', 1000000);
    expect_digest(letters, 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(letters);
}

static void pieces_equal_whole(void **state)
{
    (void)state;
    uint8_t bytes[200], whole[32], pieced[32];
    mst_sha256 hash;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 31);
    for (size_t n = 0; n <= sizeof bytes; n++) {
        mst_sha256_init(&hash);
        mst_sha256_add(&hash, bytes, n);
        mst_sha256_final(&hash, whole);
        for (size_t step = 1; step < 130; step += 21) {
            mst_sha256_init(&hash);
            for (size_t at = 0; at < n; at += step)
                mst_sha256_add(&hash, bytes + at, n - at < step ? n - at : step);
            mst_sha256_final(&hash, pieced);
            assert_memory_equal(whole, pieced, 32);
        }
    }
}

static void files(void **state)
{
    (void)state;
    char path[] = "/tmp/muster-sha-XXXXXX", text[65];
    uint8_t digest[32];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "abc", 3), 3);
    close(fd);
    assert_int_equal(mst_sha256_file(path, digest), MST_OK);
    mst_sha256_hex(digest, text);
    assert_string_equal(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    unlink(path);
    assert_int_equal(mst_sha256_file(path, digest), MST_EIO);
    assert_non_null(strstr(mst_error_text(), "No such file"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(pieces_equal_whole),
        cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
