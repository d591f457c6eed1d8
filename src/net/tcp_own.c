/* Contract in tcp_own.h.
 *
 * The system keeps the delivery rate of every connection, the last one at which the sender had to wait for
 * the path (TCP_INFO): where it never had to, the rate is no measure of the path. Of all connections the
 * fastest counts, since those of one interface share it; over time the estimate goes up quickly and down
 * slowly, as in tcp_rate.c. */
#include "net/tcp_own.h"

#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "net/tcp_address.h"
#include "net/tcp_info.h"

#define UP   0.25
#define DOWN 0.02

/* Whether it is a connection over a network; its own address then. */
static bool own_is_connection(int fd, struct sockaddr_storage *own)
{
    int type = 0;
    struct sockaddr_storage peer;
    socklen_t size = sizeof type, own_size = sizeof *own, peer_size = sizeof peer;
    own->ss_family = AF_UNSPEC;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM ||
        getsockname(fd, (struct sockaddr *)own, &own_size) != 0 ||
        getpeername(fd, (struct sockaddr *)&peer, &peer_size) != 0)
        return false;
    return own->ss_family == AF_INET || own->ss_family == AF_INET6;
}

void mst_tcp_own_look(mst_tcp_own *self)
{
    mst_tcp_own best = {0};
    struct ifaddrs *all = NULL;
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL || getifaddrs(&all) != 0) {
        if (folder != NULL)
            closedir(folder);
        return;
    }
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        struct sockaddr_storage own;
        mst_tcp_delivery d;
        int fd = entry->d_name[0] != '.' ? atoi(entry->d_name) : -1;
        if (fd < 0 || !own_is_connection(fd, &own) || !mst_tcp_delivery_of(fd, &d) || d.sender_limited ||
            d.bytes_per_s <= best.bytes_per_s)
            continue;
        const struct ifaddrs *link = mst_tcp_interface_of(all, &own);
        if (link == NULL || (link->ifa_flags & IFF_LOOPBACK) != 0)
            continue;
        best.bytes_per_s = d.bytes_per_s;
        snprintf(best.link, sizeof best.link, "%s", link->ifa_name);
    }
    freeifaddrs(all);
    closedir(folder);
    if (best.bytes_per_s <= 0.0)
        return;
    if (strcmp(best.link, self->link) == 0) {
        double step = best.bytes_per_s > self->bytes_per_s ? UP : DOWN;
        best.bytes_per_s = self->bytes_per_s + step * (best.bytes_per_s - self->bytes_per_s);
    }
    *self = best;
}
