/* The speed of the path to a peer, from the delivery rate of the connection (TCP_INFO). A sample is read now
 * and then before a message is sent, if the messages before it have arrived.
 *
 * The rate of a message that the path's round trip dominates is no measure of the path's speed: a sample
 * counts when the sender had to wait for the path (as the system reports), or when sending the message at
 * that rate takes at least four times the shortest round trip. Samples are noisy (acknowledgements come in
 * bunches, and other traffic shares the path). The estimate rises quickly and falls slowly, so that it stays
 * near the greatest rates that recur. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "net/tcp_impl.h"
#include "net/tcp_info.h"

#define SAMPLE_NS  (2 * MST_MS) /* between looks */
#define SAMPLE_MIN 16384        /* bytes of a message whose delivery is worth a look */
#define UP         0.25
#define DOWN       0.02

void mst_tcp_rate_begin(mst_tcp_peer *p, int fd)
{
    struct sockaddr_storage own = {0};
    socklen_t size = sizeof own;
    struct ifaddrs *all = NULL;
    p->stats.link[0] = '\0';
    if (p->is_unix || getsockname(fd, (struct sockaddr *)&own, &size) != 0 || getifaddrs(&all) != 0)
        return;
    const struct ifaddrs *link = mst_tcp_interface_of(all, &own);
    if (link != NULL)
        snprintf(p->stats.link, sizeof p->stats.link, "%s", link->ifa_name);
    freeifaddrs(all);
}

void mst_tcp_rate_look(mst_tcp_peer *p, int fd, uint64_t next_size)
{
    mst_tcp_delivery d;
    uint64_t last = p->sampled_size, now;
    if (p->stats.link[0] == '\0' || (last < SAMPLE_MIN && next_size < SAMPLE_MIN))
        return;
    p->sampled_size = next_size;
    if (last < SAMPLE_MIN || (now = mst_now_ns()) - p->sampled_ns < SAMPLE_NS)
        return;
    p->sampled_ns = now;
    if (!mst_tcp_delivery_of(fd, &d) ||
        (d.sender_limited && (double)last < 4.0 * d.bytes_per_s * d.shortest_trip_s))
        return;
    double step = d.bytes_per_s > p->rate ? UP : DOWN;
    p->rate = p->rate > 0.0 ? p->rate + step * (d.bytes_per_s - p->rate) : d.bytes_per_s;
    p->stats.rate = (uint64_t)p->rate;
}
