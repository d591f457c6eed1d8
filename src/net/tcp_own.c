/* Contract in tcp_own.h.
 *
 * The system keeps the delivery rate of every connection, the last one at which the sender had to wait for
 * the path (TCP_INFO): where it never had to, the rate is no measure of the path. Of all connections the
 * fastest counts, since those of one interface share it; over time the estimate goes up quickly and down
 * slowly: the sizes of the messages are not known here, as they are in tcp_rate.c. */
#include "net/tcp_own.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "net/tcp_address.h"
#include "net/tcp_info.h"

#define UP   0.25
#define DOWN 0.02

static bool own_is_stream(int fd)
{
    int type = 0;
    socklen_t size = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

void mst_tcp_own_look(mst_tcp_own *self)
{
    mst_tcp_own best = {0};
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL)
        return;
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        char link[sizeof best.link];
        mst_tcp_delivery d;
        int fd = entry->d_name[0] != '.' ? atoi(entry->d_name) : -1;
        if (fd < 0 || !own_is_stream(fd) || !mst_tcp_delivery_of(fd, &d) || d.sender_limited ||
            d.bytes_per_s <= best.bytes_per_s)
            continue;
        mst_tcp_link_of(fd, link, sizeof link);
        if (link[0] == '\0')
            continue;
        best.bytes_per_s = d.bytes_per_s;
        memcpy(best.link, link, sizeof link);
    }
    closedir(folder);
    if (best.bytes_per_s <= 0.0)
        return;
    if (strcmp(best.link, self->link) == 0) {
        double step = best.bytes_per_s > self->bytes_per_s ? UP : DOWN;
        best.bytes_per_s = self->bytes_per_s + step * (best.bytes_per_s - self->bytes_per_s);
    }
    *self = best;
}
