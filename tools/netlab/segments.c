/* Frames of a TAP with virtio headers: a frame for segmentation (gso_size) represents several TCP segments,
 * each with a copy of the headers. Some of them can be taken out of it as a frame of their own. */
#include "netlab.h"

#include <string.h>

enum {
    ETH_HEADER = 14,
    ETH_LEAST = 60, /* shorter frames are padded on a wire */
    IP4_LEAST = 20,
    TCP_LEAST = 20,
    TCP_CWR = 0x80, /* only of the first segment */
    TCP_PSH = 0x08, /* only of the last segment */
    TCP_FIN = 0x01,
};

static uint32_t get16(const unsigned char *p)
{
    return (uint32_t)p[0] << 8 | p[1];
}

static void put16(unsigned char *p, uint32_t value)
{
    p[0] = (unsigned char)(value >> 8);
    p[1] = (unsigned char)value;
}

static void put32(unsigned char *p, uint32_t value)
{
    put16(p, value >> 16);
    put16(p + 2, value & 0xffff);
}

netlab_segments netlab_segments_of(const unsigned char *bytes, uint32_t size)
{
    struct virtio_net_hdr vnet;
    memcpy(&vnet, bytes, sizeof vnet);
    const unsigned char *eth = bytes + NETLAB_VNET;
    netlab_segments s = {.n = 1, .wire = size - NETLAB_VNET, .size = size};
    int kind = vnet.gso_type & ~VIRTIO_NET_HDR_GSO_ECN;
    if ((kind == VIRTIO_NET_HDR_GSO_TCPV4 || kind == VIRTIO_NET_HDR_GSO_TCPV6) && vnet.gso_size > 0 &&
        vnet.csum_start >= ETH_HEADER + IP4_LEAST && vnet.csum_start + (uint32_t)TCP_LEAST <= s.wire) {
        uint32_t header = vnet.csum_start + (uint32_t)(eth[vnet.csum_start + 12] >> 4) * 4;
        if (header < s.wire && s.wire - header > vnet.gso_size) {
            s.n = (s.wire - header + vnet.gso_size - 1) / vnet.gso_size;
            s.header = header;
            s.bytes = vnet.gso_size;
            s.wire += (s.n - 1) * header;
        }
    }
    if (s.wire < ETH_LEAST)
        s.wire = ETH_LEAST;
    return s;
}

/* One's complement sum of 16-bit words; size is even. */
static uint32_t checksum_add(uint32_t sum, const unsigned char *bytes, uint32_t size)
{
    for (uint32_t i = 0; i < size; i += 2)
        sum += get16(bytes + i);
    return sum;
}

static uint32_t checksum_fold(uint32_t sum)
{
    while (sum > 0xffff)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

uint32_t netlab_segments_copy(const netlab_segments *all, const unsigned char *bytes, uint32_t first,
                              uint32_t end, unsigned char *out)
{
    struct virtio_net_hdr vnet;
    memcpy(&vnet, bytes, sizeof vnet);
    if (all->n == 1 || (vnet.gso_type & ~VIRTIO_NET_HDR_GSO_ECN) != VIRTIO_NET_HDR_GSO_TCPV4) {
        memcpy(out, bytes, all->size); /* no IPv6 in a lab */
        return all->size;
    }
    uint32_t payload = all->size - NETLAB_VNET - all->header;
    uint32_t from = first * all->bytes, to = end == all->n ? payload : end * all->bytes;
    uint32_t wire = all->header + to - from;
    unsigned char *eth = out + NETLAB_VNET, *ip = eth + ETH_HEADER, *tcp = eth + vnet.csum_start;
    memcpy(eth, bytes + NETLAB_VNET, all->header);
    memcpy(eth + all->header, bytes + NETLAB_VNET + all->header + from, to - from);

    put16(ip + 2, wire - ETH_HEADER);
    put16(ip + 4, get16(ip + 4) + first);
    put16(ip + 10, 0);
    put16(ip + 10, ~checksum_fold(checksum_add(0, ip, (uint32_t)(ip[0] & 15) * 4)) & 0xffff);
    uint32_t sequence = get16(tcp + 4) << 16 | get16(tcp + 6);
    put32(tcp + 4, sequence + from);
    if (first > 0)
        tcp[13] &= (unsigned char)~TCP_CWR;
    if (end < all->n)
        tcp[13] &= (unsigned char)~(TCP_PSH | TCP_FIN);
    /* The sum of the pseudo header; the receiving kernel adds the rest (VIRTIO_NET_HDR_F_NEEDS_CSUM). */
    uint32_t length = wire - vnet.csum_start;
    put16(tcp + 16, checksum_fold(checksum_add(ip[9] + length, ip + 12, 8)));
    if (to - from <= all->bytes) {
        vnet.gso_type = VIRTIO_NET_HDR_GSO_NONE;
        vnet.gso_size = 0;
    }
    memcpy(out, &vnet, sizeof vnet);
    return NETLAB_VNET + wire;
}
