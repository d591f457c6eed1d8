/* Passes; contract in pass.h. */
#include "ps/pass.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

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
