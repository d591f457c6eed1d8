/* Keys on the wire: ascending distinct 32-bit keys as packed gaps.
 *
 *   u32 first key, then for every block of 32 following keys (the last may be shorter): one byte b, 0..32,
 * and the block's gaps (key - previous key - 1) as b-bit numbers, least significant bit first, padded to a
 * whole byte.
 *
 * 1,000 keys spread over 33,762,578 take about 2.2 bytes each, 1,000,000 about 1. */
#ifndef MST_PS_KEY_PACK_H
#define MST_PS_KEY_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Most bytes n keys can take; out of mst_key_pack must have this much room. */
size_t mst_key_pack_bound(uint32_t n);

/* Returns the bytes written. keys ascend without repeats (the caller's promise). n 0 writes nothing. */
size_t mst_key_pack(const uint32_t *keys, uint32_t n, uint8_t *out);

/* Unpacks exactly n keys out of exactly `size` bytes, all in [from, to). Anything else is MST_EINPUT with a
 * message; nothing beyond `in + size` is read, and at most n keys are written. */
mst_status mst_key_unpack(const uint8_t *in, size_t size, uint32_t n, uint32_t from, uint32_t to,
                          uint32_t *keys);

#endif
