/* SHA-256 (FIPS 180-4), to verify fetched files. */
#ifndef MST_BASE_SHA256_H
#define MST_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mst_sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes so far */
    uint8_t block[64];
} mst_sha256;

void mst_sha256_init(mst_sha256 *hash);
void mst_sha256_add(mst_sha256 *hash, const void *data, size_t n);
void mst_sha256_final(mst_sha256 *hash, uint8_t digest[32]);

/* digest as 64 lower-case hex digits and a NUL. */
void mst_sha256_hex(const uint8_t digest[32], char out[65]);

/* Of a file's bytes as they are on disk (not decompressed). MST_EIO names the path and the reason. */
mst_status mst_sha256_file(const char *path, uint8_t digest[32]);

#endif
