/* Passes; contract in pass.h. */
#include "ps/pass.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

mst_status mst_pass_key(char key[MST_PASS_KEY])
{
    uint8_t bytes[(MST_PASS_KEY - 1) / 2];
    if (RAND_bytes(bytes, sizeof bytes) != 1)
        return mst_fail(MST_EIO, "the system returned no random bytes for the passes of workers");
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(key + 2 * i, 3, "%02x", bytes[i]);
    return MST_OK;
}

uint64_t mst_pass_of(const char *key, uint32_t worker, uint64_t incarnation)
{
    const uint64_t numbers[] = {worker, incarnation};
    uint8_t text[sizeof numbers], digest[EVP_MAX_MD_SIZE];
    uint64_t pass = 0;
    unsigned n = 0;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (uint8_t)(numbers[i / 8] >> 8 * (i % 8));
    if (key[0] == '\0' || HMAC(EVP_sha256(), key, (int)strlen(key), text, sizeof text, digest, &n) == NULL)
        return 0;
    for (size_t i = 0; i < sizeof pass; i++)
        pass |= (uint64_t)digest[i] << 8 * i;
    return pass;
}
