/* libFuzzer: any bytes as packed keys. The first four bytes select the number of keys and the limits;
 * unpacked keys must ascend within them and survive a round trip. All variants agree. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/isa.h"
#include "ps/key_pack_impl.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_KEYS 512

static void check(const uint32_t *keys, uint32_t n, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < n; i++)
        if (keys[i] < from || keys[i] >= to || (i > 0 && keys[i] <= keys[i - 1]))
            abort();
    uint8_t *packed = malloc(mst_key_pack_bound(n) + 1);
    uint32_t *back = malloc(n * sizeof *back + 1);
    if (packed == NULL || back == NULL)
        abort();
    size_t size = mst_key_pack(keys, n, packed);
    if (mst_key_unpack(packed, size, n, from, to, back) != MST_OK ||
        (n != 0 && memcmp(back, keys, n * sizeof *keys) != 0))
        abort();
    free(packed);
    free(back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4)
        return 0;
    uint32_t n = (data[0] | (uint32_t)data[1] << 8) % MAX_KEYS, from = data[2];
    uint32_t to = data[3] % 2 ? UINT32_MAX : (uint32_t)data[3] << 16;
    uint8_t *in = malloc(size - 4 + 1); /* exact, so that one byte too many is seen */
    uint32_t *keys = malloc(n * sizeof *keys + 1), *again = malloc(n * sizeof *keys + 1);
    if (in == NULL || keys == NULL || again == NULL)
        abort();
    in = realloc(in, size - 4 + (size == 4));
    memcpy(in, data + 4, size - 4);
    mst_status st = mst_key_unpack_with(mst_key_unpack_portable, in, size - 4, n, from, to, keys);
    if (mst_key_unpack(in, size - 4, n, from, to, again) != st)
        abort();
    if (st == MST_OK) {
        if (n != 0 && memcmp(keys, again, n * sizeof *keys) != 0)
            abort();
        check(keys, n, from, to);
    } else if (mst_error_text()[0] == 0) {
        abort();
    }
    free(in);
    free(keys);
    free(again);
    return 0;
}
