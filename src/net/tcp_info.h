/* Figures of the system about a TCP connection; in its own file because <linux/tcp.h> and libuv's headers
 * exclude each other. */
#ifndef MST_NET_TCP_INFO_H
#define MST_NET_TCP_INFO_H

#include <stdbool.h>

typedef struct mst_tcp_delivery {
    double bytes_per_s;     /* recent delivery rate */
    double shortest_trip_s; /* least round trip so far */
    bool sender_limited;    /* the sender had no more data, so the path may have more capacity */
} mst_tcp_delivery;

/* False: the system has none. Any thread. */
bool mst_tcp_delivery_of(int fd, mst_tcp_delivery *out);

#endif
