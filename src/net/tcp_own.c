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
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "net/tcp_info.h"

#define UP   0.25
#define DOWN 0.02

/* Whether it is a connection over a network; its own address then. */
static bool own_is_connection(int fd, struct sockaddr_storage *own)
{
    int type = 0;
    struct sockaddr_storage peer;
    own->ss_family = AF_UNSPEC;
    socklen_t size = sizeof type, own_size = sizeof *own, peer_size = sizeof peer;
    own->ss_family = AF_UNSPEC;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM ||
        getsockname(fd, (struct sockaddr *)own, &own_size) != 0 ||
        getpeername(fd, (struct sockaddr *)&peer, &peer_size) != 0)
        return false;
    return own->ss_family == AF_INET || own->ss_family == AF_INET6;
}

static bool own_is_address(const struct sockaddr *a, const struct sockaddr_storage *own)
{
    if (a == NULL || a->sa_family != own->ss_family)
        return false;
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)own)->sin_addr.s_addr;
    return memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
                  &((const struct sockaddr_in6 *)own)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

/* The interface that has the address; NULL: none, or loopback. */
static const char *own_link_of(const struct ifaddrs *all, const struct sockaddr_storage *own)
{
    for (const struct ifaddrs *i = all; i != NULL; i = i->ifa_next)
        if (own_is_address(i->ifa_addr, own))
            return (i->ifa_flags & IFF_LOOPBACK) == 0 ? i->ifa_name : NULL;
    return NULL;
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
        const char *link = own_link_of(all, &own);
        if (link == NULL || strlen(link) >= sizeof best.link)
            continue;
        best.bytes_per_s = d.bytes_per_s;
        memset(best.link, 0, sizeof best.link);
        memcpy(best.link, link, strlen(link));
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
