/* The header of every message on a wire (docs/WIRE.md, "Frames"): 48 bytes, little-endian, no padding.
 *
 *   offset  0  u32 magic "MSTR"    4  u16 version   6  u16 type
 *           8  u32 flags          12  u32 request  16  u32 count
 *          20  u64 step           28  u64 size of the body that follows
 *          36  seal of the header (seal.h)
 *
 * A body that is not empty is followed by its seal.
 *
 * Pure functions on bytes. Any thread. */
#ifndef MST_NET_WIRE_H
#define MST_NET_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "net/net.h"
#include "net/seal.h"

#define MST_WIRE_MAGIC   0x5254534du /* "MSTR" in the order of the bytes */
#define MST_WIRE_VERSION 4
#define MST_WIRE_FIELDS  36 /* bytes of the header before its seal */
#define MST_WIRE_HEADER  (MST_WIRE_FIELDS + MST_SEAL_HEADER)

/* Net's own types of messages. */
#define MST_WIRE_HEARTBEAT    1   /* no body: the peer is alive */
#define MST_WIRE_DISCONNECT   2   /* body: why, as text; the last message of a connection */
#define MST_WIRE_YOUR_SILENCE 1u  /* flag of a DISCONNECT: the receiver was silent for `step` nanoseconds */
#define MST_WIRE_OWN_MAX      512 /* bytes of body of net's own messages */

/* The error of all engines for a process with another secret. */
#define MST_WIRE_OTHER_SECRET                                                                                \
    "its job secret differs from that of this process; use one secret for all processes of a job"

static inline void mst_put_u16(uint8_t *at, uint16_t v)
{
    at[0] = (uint8_t)v;
    at[1] = (uint8_t)(v >> 8);
}

static inline void mst_put_u32(uint8_t *at, uint32_t v)
{
    mst_put_u16(at, (uint16_t)v);
    mst_put_u16(at + 2, (uint16_t)(v >> 16));
}

static inline void mst_put_u64(uint8_t *at, uint64_t v)
{
    mst_put_u32(at, (uint32_t)v);
    mst_put_u32(at + 4, (uint32_t)(v >> 32));
}

static inline uint16_t mst_get_u16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static inline uint32_t mst_get_u32(const uint8_t *at)
{
    return (uint32_t)mst_get_u16(at) | (uint32_t)mst_get_u16(at + 2) << 16;
}

static inline uint64_t mst_get_u64(const uint8_t *at)
{
    return (uint64_t)mst_get_u32(at) | (uint64_t)mst_get_u32(at + 4) << 32;
}

/* Bytes of a frame whose body has that size. */
static inline uint64_t mst_frame_size(uint64_t size)
{
    return MST_WIRE_HEADER + size + (size > 0 ? MST_SEAL_BODY : 0);
}

/* Counts a message that has arrived, or that was sent, for its peer and for the whole net. */
static inline void mst_count_in(mst_net_stats *peer, mst_net_stats *total, const mst_message *m)
{
    peer->bytes_in += mst_frame_size(m->size);
    total->bytes_in += mst_frame_size(m->size);
    peer->messages_in++;
    total->messages_in++;
}

static inline void mst_count_out(mst_net_stats *peer, mst_net_stats *total, const mst_message *m)
{
    peer->bytes_out += mst_frame_size(m->size);
    total->bytes_out += mst_frame_size(m->size);
    peer->messages_out++;
    total->messages_out++;
}

/* The pieces one after the other; to holds them all. */
void mst_pieces_copy(void *to, const mst_piece *pieces, uint32_t n_pieces);

/* The fields; the seal is zero. */
void mst_header_encode(const mst_message *m, uint8_t out[MST_WIRE_HEADER]);

/* Seals the header of the next frame. */
void mst_header_seal(uint8_t header[MST_WIRE_HEADER], mst_seal *seal);

/* Checks the seal of a received header. MST_EINPUT when it does not match. */
mst_status mst_header_check(const uint8_t header[MST_WIRE_HEADER], mst_seal *seal);

/* Reads the fields of the first MST_WIRE_HEADER of n bytes, without the seal. MST_EINPUT, with a message
 * without the peer's name, when there are fewer, when they are no header of this version, or when the body is
 * larger than max_body (or, for net's own types, than MST_WIRE_OWN_MAX). *out is set only on MST_OK. */
mst_status mst_header_decode(const uint8_t *bytes, size_t n, uint64_t max_body, mst_message *out);

#endif
