/* Header codec; contract in wire.h. */
#include "net/wire.h"

#include <openssl/crypto.h>
#include <string.h>

void mst_pieces_copy(void *to, const mst_piece *pieces, uint32_t n_pieces)
{
    uint8_t *at = to;
    for (uint32_t i = 0; i < n_pieces; i++) {
        if (pieces[i].size > 0)
            memcpy(at, pieces[i].data, pieces[i].size);
        at += pieces[i].size;
    }
}

void mst_header_encode(const mst_message *m, uint8_t out[MST_WIRE_HEADER])
{
    mst_put_u32(out, MST_WIRE_MAGIC);
    mst_put_u16(out + 4, MST_WIRE_VERSION);
    mst_put_u16(out + 6, m->type);
    mst_put_u32(out + 8, m->flags);
    mst_put_u32(out + 12, m->request);
    mst_put_u32(out + 16, m->count);
    mst_put_u64(out + 20, m->step);
    mst_put_u64(out + 28, m->size);
    memset(out + MST_WIRE_FIELDS, 0, MST_WIRE_HEADER - MST_WIRE_FIELDS);
}

void mst_header_seal(uint8_t header[MST_WIRE_HEADER], mst_seal *seal)
{
    mst_seal_header(seal, header, MST_WIRE_FIELDS, header + MST_WIRE_FIELDS);
}

mst_status mst_header_check(const uint8_t header[MST_WIRE_HEADER], mst_seal *seal)
{
    uint8_t expected[MST_SEAL_HEADER];
    mst_seal_header(seal, header, MST_WIRE_FIELDS, expected);
    if (seal->failed || CRYPTO_memcmp(expected, header + MST_WIRE_FIELDS, sizeof expected) != 0)
        return mst_fail(MST_EINPUT, "the header of a message was changed on the way: its %s does not match",
                        mst_seal_name(seal->kind));
    return MST_OK;
}

mst_status mst_header_decode(const uint8_t *bytes, size_t n, uint64_t max_body, mst_message *out)
{
    if (n < MST_WIRE_HEADER)
        return mst_fail(MST_EINPUT, "a message header has %d bytes; only %zu arrived", MST_WIRE_HEADER, n);
    uint32_t magic = mst_get_u32(bytes);
    uint16_t version = mst_get_u16(bytes + 4), type = mst_get_u16(bytes + 6);
    uint64_t size = mst_get_u64(bytes + 28);
    if (magic != MST_WIRE_MAGIC)
        return mst_fail(MST_EINPUT, "a message starts with 0x%08x instead of \"MSTR\"", magic);
    if (version != MST_WIRE_VERSION)
        return mst_fail(MST_EINPUT, "a message has wire version %u; this process has version %d", version,
                        MST_WIRE_VERSION);
    if (type < MST_NET_TYPES && type != MST_WIRE_HEARTBEAT && type != MST_WIRE_DISCONNECT)
        return mst_fail(MST_EINPUT, "a message has the unknown type %u", type);
    if (type == MST_WIRE_HEARTBEAT && size != 0)
        return mst_fail(MST_EINPUT, "a heartbeat has a body of %llu bytes", (unsigned long long)size);
    uint64_t most = type < MST_NET_TYPES ? MST_WIRE_OWN_MAX : max_body;
    if (size > most)
        return mst_fail(MST_EINPUT,
                        "a message of type %u has a body of %llu bytes, at most %llu are accepted", type,
                        (unsigned long long)size, (unsigned long long)most);
    *out = (mst_message){.type = type,
                         .flags = mst_get_u32(bytes + 8),
                         .request = mst_get_u32(bytes + 12),
                         .count = mst_get_u32(bytes + 16),
                         .step = mst_get_u64(bytes + 20),
                         .size = size};
    return MST_OK;
}
