/* Two properties of the path to a peer on another host, from the figures of the system (TCP_INFO): its
 * capacity and its round trip. A connection between two addresses of one host has neither.
 *
 * Capacity: the delivery rate after a message. The rate of a sender that had no more data is not a sample.
 * Neither is that of a message whose last byte leaves in the first round trips: the window that the sender
 * begins with limits it, which the system does not report. So sending the message at that rate must take at
 * least LONG times the shortest round trip. Connections that share a link measure parts of it: a sample is a
 * lower bound, so lower ones change nothing. A higher one moves the estimate by a part of the difference,
 * because acknowledgements that come in bunches let single samples exceed the capacity; if it is MUCH higher,
 * it replaces the estimate, which did not measure the path.
 *
 * Round trip: the shortest that the system has seen, which excludes queues and the work of the peer. */
#include "base/clock.h"
#include "net/tcp_impl.h"
#include "net/tcp_info.h"

#define SAMPLE_NS  (2 * MST_MS) /* between samples */
#define SAMPLE_MIN 65536        /* bytes of a message whose delivery is worth a sample */
#define LONG       4.0          /* round trips that sending a message takes at least */
#define UP         0.25         /* of the difference to a higher sample */
#define MUCH       1.5          /* times the estimate */

void mst_tcp_rate_begin(mst_tcp_peer *p, int fd)
{
    mst_tcp_link_of(fd, p->stats.link, sizeof p->stats.link);
    p->sampled_size = 0;
}

static void rate_take(mst_tcp_peer *p, int fd)
{
    mst_tcp_delivery d;
    uint64_t size = p->sampled_size;
    p->sampled_ns = mst_now_ns();
    if (!mst_tcp_delivery_of(fd, &d))
        return;
    p->stats.trip_s = d.shortest_trip_s;
    if (size < SAMPLE_MIN || d.sender_limited || (double)size < LONG * d.bytes_per_s * d.shortest_trip_s ||
        d.bytes_per_s <= p->rate)
        return;
    p->rate = d.bytes_per_s > MUCH * p->rate ? d.bytes_per_s : p->rate + UP * (d.bytes_per_s - p->rate);
    p->stats.rate = (uint64_t)p->rate;
}

void mst_tcp_rate_look(mst_tcp_peer *p, int fd, uint64_t next_size)
{
    if (p->stats.link[0] == '\0')
        return;
    if (p->sampled_size >= SAMPLE_MIN && mst_now_ns() - p->sampled_ns >= SAMPLE_NS)
        rate_take(p, fd);
    p->sampled_size = next_size;
}

void mst_tcp_rate_now(mst_tcp_peer *p)
{
    if (p->stats.link[0] != '\0' && p->state == MST_TCP_UP && p->out == NULL &&
        mst_now_ns() - p->sampled_ns >= SAMPLE_NS)
        rate_take(p, p->socket->fd);
}
