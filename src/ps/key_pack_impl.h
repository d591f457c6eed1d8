/* Shared by key_pack.c and its variants: packing and unpacking of whole blocks. Every variant writes and
 * reads the same bytes. */
#ifndef MST_PS_KEY_PACK_IMPL_H
#define MST_PS_KEY_PACK_IMPL_H

#include <stdbool.h>

#include "ps/key_pack.h"

#define MST_KEY_PACK_BLOCK 32
#define MST_KEY_PACK_SLACK 128 /* bytes beyond a block that packing may overwrite */

/* Packs n_blocks blocks; keys[-1] is the key before the first. Returns the end of the bytes written. */
typedef uint8_t *mst_key_pack_fn(const uint32_t *keys, size_t n_blocks, uint8_t *out);

/* Unpacks at most n_blocks blocks to keys, whose keys[-1] is set, and stops before a block that does not lie
 * within `size` or is wider than 32 bits. Returns how many were unpacked; *in moves behind them, and *wrapped
 * is set when a key went beyond 32 bits. */
typedef size_t mst_key_unpack_fn(const uint8_t **in, const uint8_t *end, size_t n_blocks, uint32_t *keys,
                                 bool *wrapped);

mst_key_pack_fn mst_key_pack_portable;
mst_key_unpack_fn mst_key_unpack_portable;
#ifdef __x86_64__
mst_key_pack_fn mst_key_pack_avx512;
mst_key_unpack_fn mst_key_unpack_avx512;
#endif

/* mst_key_pack and mst_key_unpack with a variant of choice. */
size_t mst_key_pack_with(mst_key_pack_fn *pack, const uint32_t *keys, uint32_t n, uint8_t *out);
mst_status mst_key_unpack_with(mst_key_unpack_fn *unpack, const uint8_t *in, size_t size, uint32_t n,
                               uint32_t from, uint32_t to, uint32_t *keys);

#endif
