/* Packing keys; format and contract in key_pack.h. A variant for the machine packs whole blocks of 32
 * (key_pack_impl.h); the last, shorter block is packed here.
 *
 * Eight gaps of b bits fill b whole bytes, so that blocks of 32 have no padding. A gap is at most 32 bits and
 * begins at most 7 bits into a byte: a 64-bit word read or written at that byte holds it.
 *
 * Unpacking checks everything: a block's length is checked before it is read, and a sum of gaps that goes
 * beyond 32 bits shows as a key that is not larger than its gap. Keys that ascend are in [from, to) when the
 * first and the last are. */
#include "ps/key_pack.h"

#include <endian.h>
#include <inttypes.h>
#include <string.h>

#include "base/isa.h"
#include "ps/key_pack_impl.h"

static inline uint64_t key_pack_load64(const uint8_t *at)
{
    uint64_t x;
    memcpy(&x, at, sizeof x);
    return le64toh(x);
}

static inline void key_pack_store64(uint8_t *at, uint64_t x)
{
    x = htole64(x);
    memcpy(at, &x, sizeof x);
}

static inline unsigned key_pack_width_of(uint32_t gaps)
{
    return gaps == 0 ? 0 : 32 - (unsigned)__builtin_clz(gaps);
}

static inline size_t key_pack_block_bytes(uint32_t n, unsigned b)
{
    return ((size_t)n * b + 7) / 8;
}

size_t mst_key_pack_bound(uint32_t n)
{
    if (n == 0)
        return 0;
    size_t blocks = ((size_t)n - 1 + MST_KEY_PACK_BLOCK - 1) / MST_KEY_PACK_BLOCK;
    return 4 + blocks + 4 * ((size_t)n - 1) + MST_KEY_PACK_SLACK;
}

/* ---- packing ---- */

/* Gaps of b bits, `group` of which fit a word beside 7 bits. Writes up to 8 bytes beyond the end. */
static inline void key_pack_pack_gaps(const uint32_t *gaps, uint32_t n, unsigned b, unsigned group,
                                      uint8_t *out)
{
    uint64_t word = 0;
    unsigned fill = 0;
    for (uint32_t i = 0; i < n; i += group) {
        uint64_t x = gaps[i];
        for (unsigned k = 1; k < group; k++)
            x |= (uint64_t)gaps[i + k] << k * b;
        word |= x << fill;
        key_pack_store64(out, word);
        fill += group * b;
        out += fill / 8;
        word >>= fill & ~7u; /* at most 56 */
        fill %= 8;
    }
}

uint8_t *mst_key_pack_portable(const uint32_t *keys, size_t n_blocks, uint8_t *out)
{
    for (; n_blocks > 0; n_blocks--, keys += MST_KEY_PACK_BLOCK) {
        uint32_t gaps[MST_KEY_PACK_BLOCK], all = 0;
        for (unsigned i = 0; i < MST_KEY_PACK_BLOCK; i++) {
            gaps[i] = keys[i] - keys[(int)i - 1] - 1;
            all |= gaps[i];
        }
        unsigned b = key_pack_width_of(all);
        *out++ = (uint8_t)b;
        if (b <= 14)
            key_pack_pack_gaps(gaps, MST_KEY_PACK_BLOCK, b, 4, out);
        else if (b <= 28)
            key_pack_pack_gaps(gaps, MST_KEY_PACK_BLOCK, b, 2, out);
        else
            key_pack_pack_gaps(gaps, MST_KEY_PACK_BLOCK, b, 1, out);
        out += 4 * b;
    }
    return out;
}

size_t mst_key_pack_with(mst_key_pack_fn *pack, const uint32_t *keys, uint32_t n, uint8_t *out)
{
    uint8_t *start = out;
    if (n == 0)
        return 0;
    for (unsigned i = 0; i < 4; i++)
        *out++ = (uint8_t)(keys[0] >> 8 * i);
    size_t n_blocks = (n - 1) / MST_KEY_PACK_BLOCK;
    out = pack(keys + 1, n_blocks, out);
    keys += 1 + n_blocks * MST_KEY_PACK_BLOCK;
    uint32_t rest = (n - 1) % MST_KEY_PACK_BLOCK;
    if (rest != 0) {
        uint32_t gaps[MST_KEY_PACK_BLOCK], all = 0;
        for (uint32_t i = 0; i < rest; i++) {
            gaps[i] = keys[i] - keys[(int)i - 1] - 1;
            all |= gaps[i];
        }
        unsigned b = key_pack_width_of(all);
        *out++ = (uint8_t)b;
        key_pack_pack_gaps(gaps, rest, b, 1, out);
        out += key_pack_block_bytes(rest, b);
    }
    return (size_t)(out - start);
}

/* ---- unpacking ---- */

/* n gaps of b bits from bytes that 8 more follow; the sum starts at key. */
static inline bool key_pack_unpack_gaps(const uint8_t *in, uint32_t n, unsigned b, uint32_t key,
                                        uint32_t *keys)
{
    uint64_t mask = ((uint64_t)1 << b) - 1;
    uint32_t wrapped = 0;
    for (uint32_t i = 0, bit = 0; i < n; i++, bit += b) {
        uint32_t gap = (uint32_t)(key_pack_load64(in + bit / 8) >> bit % 8 & mask);
        key += gap + 1;
        wrapped |= key <= gap;
        keys[i] = key;
    }
    return wrapped;
}

size_t mst_key_unpack_portable(const uint8_t **in, const uint8_t *end, size_t n_blocks, uint32_t *keys,
                               bool *wrapped)
{
    size_t done = 0;
    for (const uint8_t *at = *in; done < n_blocks; done++, keys += MST_KEY_PACK_BLOCK) {
        if (end - at < 1 || *at > 32 || end - at < 1 + 4 * (ptrdiff_t)*at)
            break;
        unsigned b = *at++;
        if (end - at >= 4 * (ptrdiff_t)b + 8) {
            *wrapped |= key_pack_unpack_gaps(at, MST_KEY_PACK_BLOCK, b, keys[-1], keys);
        } else { /* the last: not followed by 8 bytes that may be read */
            uint8_t padded[4 * 32 + 8] = {0};
            memcpy(padded, at, 4 * b);
            *wrapped |= key_pack_unpack_gaps(padded, MST_KEY_PACK_BLOCK, b, keys[-1], keys);
        }
        at += 4 * b;
        *in = at;
    }
    return done;
}

/* The last, shorter block, which must end with the bytes. */
static mst_status key_pack_unpack_rest(const uint8_t *in, size_t size, uint32_t n, uint32_t *keys,
                                       bool *wrapped)
{
    uint8_t padded[4 * 32 + 8] = {0};
    unsigned b = *in++;
    memcpy(padded, in, size - 1);
    if (n * b % 8 != 0 && padded[size - 2] >> n * b % 8 != 0)
        return mst_fail(MST_EINPUT, "packed keys: the padding after the last key is not zero");
    *wrapped |= key_pack_unpack_gaps(padded, n, b, keys[-1], keys);
    return MST_OK;
}

mst_status mst_key_unpack_with(mst_key_unpack_fn *unpack, const uint8_t *in, size_t size, uint32_t n,
                               uint32_t from, uint32_t to, uint32_t *keys)
{
    const uint8_t *at = in, *end = in + size;
    bool wrapped = false;
    if (n == 0) {
        if (size != 0)
            return mst_fail(MST_EINPUT, "packed keys: %zu bytes for no keys", size);
        return MST_OK;
    }
    if (size < 4)
        return mst_fail(MST_EINPUT, "packed keys: %zu bytes for %" PRIu32 " keys", size, n);
    keys[0] = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
    at += 4;
    size_t n_blocks = (n - 1) / MST_KEY_PACK_BLOCK, done = unpack(&at, end, n_blocks, keys + 1, &wrapped);
    uint32_t rest = (n - 1) % MST_KEY_PACK_BLOCK, missing = n - 1 - (uint32_t)done * MST_KEY_PACK_BLOCK;
    if (missing != 0) {
        if (at == end)
            return mst_fail(MST_EINPUT,
                            "packed keys: %zu bytes end before the last %" PRIu32 " of %" PRIu32 " keys",
                            size, missing, n);
        if (*at > 32)
            return mst_fail(MST_EINPUT, "packed keys: gaps of %u bits; at most 32 are possible", *at);
        uint32_t count = missing < MST_KEY_PACK_BLOCK ? missing : MST_KEY_PACK_BLOCK;
        if ((size_t)(end - at) - 1 < key_pack_block_bytes(count, *at))
            return mst_fail(MST_EINPUT,
                            "packed keys: %zu bytes end before the last %" PRIu32 " of %" PRIu32 " keys",
                            size, missing, n);
    }
    size_t rest_bytes = rest != 0 ? 1 + key_pack_block_bytes(rest, *at) : 0;
    if ((size_t)(end - at) != rest_bytes)
        return mst_fail(MST_EINPUT, "packed keys: %zu bytes too many after %" PRIu32 " keys",
                        (size_t)(end - at) - rest_bytes, n);
    if (rest != 0)
        TRY(key_pack_unpack_rest(at, rest_bytes, rest, keys + n - rest, &wrapped));
    if (wrapped)
        return mst_fail(MST_EINPUT, "packed keys: the gaps exceed 32 bits");
    if (keys[0] < from || keys[n - 1] >= to)
        return mst_fail(MST_EINPUT,
                        "packed keys: %" PRIu32 " to %" PRIu32 " are not all in %" PRIu32
                        " to below %" PRIu32,
                        keys[0], keys[n - 1], from, to);
    return MST_OK;
}

/* ---- the machine's variant ---- */

size_t mst_key_pack(const uint32_t *keys, uint32_t n, uint8_t *out)
{
#ifdef __x86_64__
    if (mst_isa_supported(MST_ISA_AVX512))
        return mst_key_pack_with(mst_key_pack_avx512, keys, n, out);
#endif
    return mst_key_pack_with(mst_key_pack_portable, keys, n, out);
}

mst_status mst_key_unpack(const uint8_t *in, size_t size, uint32_t n, uint32_t from, uint32_t to,
                          uint32_t *keys)
{
#ifdef __x86_64__
    if (mst_isa_supported(MST_ISA_AVX512))
        return mst_key_unpack_with(mst_key_unpack_avx512, in, size, n, from, to, keys);
#endif
    return mst_key_unpack_with(mst_key_unpack_portable, in, size, n, from, to, keys);
}
