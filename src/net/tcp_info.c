/* Contract in tcp_info.h. */
#include "net/tcp_info.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

bool mst_tcp_delivery_of(int fd, mst_tcp_delivery *out)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
        size < offsetof(struct tcp_info, tcpi_delivery_rate) + sizeof info.tcpi_delivery_rate ||
        info.tcpi_delivery_rate == 0)
        return false;
    *out = (mst_tcp_delivery){.bytes_per_s = (double)info.tcpi_delivery_rate,
                              .shortest_trip_s = (double)info.tcpi_min_rtt * 1e-6,
                              .sender_limited = info.tcpi_delivery_rate_app_limited};
    return true;
}
