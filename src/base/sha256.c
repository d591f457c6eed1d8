/* SHA-256 as FIPS 180-4 states it, one 64-byte block at a time; portable, about 0.3 GB/s. */
#include "base/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes (FIPS 180-4, 4.2.2). */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static inline uint32_t sha256_rotate(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

static void sha256_compress(uint32_t state[8], const uint8_t block[64])
{
    uint32_t w[64];
    for (unsigned t = 0; t < 16; t++)
        w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 |
               (uint32_t)block[4 * t + 2] << 8 | block[4 * t + 3];
    for (unsigned t = 16; t < 64; t++) {
        uint32_t s0 = sha256_rotate(w[t - 15], 7) ^ sha256_rotate(w[t - 15], 18) ^ w[t - 15] >> 3;
        uint32_t s1 = sha256_rotate(w[t - 2], 17) ^ sha256_rotate(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (unsigned t = 0; t < 64; t++) {
        uint32_t s1 = sha256_rotate(e, 6) ^ sha256_rotate(e, 11) ^ sha256_rotate(e, 25);
        uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + round_constants[t] + w[t];
        uint32_t s0 = sha256_rotate(a, 2) ^ sha256_rotate(a, 13) ^ sha256_rotate(a, 22);
        uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + t1;
        d = c;
        c = b;
        b = a;
        a = t1 + t2;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
    state[5] += f;
    state[6] += g;
    state[7] += h;
}

void mst_sha256_init(mst_sha256 *hash)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, start, sizeof start);
    hash->length = 0;
}

void mst_sha256_add(mst_sha256 *hash, const void *data, size_t n)
{
    const uint8_t *at = data;
    size_t held = hash->length % 64;
    hash->length += n;
    if (held > 0) {
        size_t take = n < 64 - held ? n : 64 - held;
        memcpy(hash->block + held, at, take);
        at += take;
        n -= take;
        if (held + take < 64)
            return;
        sha256_compress(hash->state, hash->block);
    }
    for (; n >= 64; at += 64, n -= 64)
        sha256_compress(hash->state, at);
    if (n > 0)
        memcpy(hash->block, at, n);
}

void mst_sha256_final(mst_sha256 *hash, uint8_t digest[32])
{
    static const uint8_t padding[64] = {0x80};
    uint8_t bits[8];
    for (unsigned i = 0; i < 8; i++)
        bits[i] = (uint8_t)(hash->length * 8 >> (56 - 8 * i));
    size_t held = hash->length % 64;
    mst_sha256_add(hash, padding, held < 56 ? 56 - held : 120 - held);
    mst_sha256_add(hash, bits, 8);
    for (unsigned i = 0; i < 32; i++)
        digest[i] = (uint8_t)(hash->state[i / 4] >> (24 - 8 * (i % 4)));
}

void mst_sha256_hex(const uint8_t digest[32], char out[65])
{
    for (unsigned i = 0; i < 32; i++) {
        out[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    out[64] = '\0';
}

mst_status mst_sha256_file(const char *path, uint8_t digest[32])
{
    enum { PIECE = 1 << 16 };
    mst_status st = MST_OK;
    uint8_t *buffer = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return mst_fail(MST_EIO, "%s: cannot open: %s", path, strerror(errno));
    buffer = mst_alloc(PIECE);
    if (buffer == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    mst_sha256 hash;
    mst_sha256_init(&hash);
    for (;;) {
        ssize_t got = read(fd, buffer, PIECE);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            st = mst_fail(MST_EIO, "%s: cannot read: %s", path, strerror(errno));
            goto out;
        }
        if (got == 0)
            break;
        mst_sha256_add(&hash, buffer, (size_t)got);
    }
    mst_sha256_final(&hash, digest);
out:
    mst_free(buffer);
    close(fd);
    return st;
}
