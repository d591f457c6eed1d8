/* Addresses and socket options; contract in tcp_address.h. */
#include "net/tcp_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define UNIX_BUFFER (4 << 20) /* bytes; a wake-up then carries megabytes of a large body */

static mst_status address_parse_unix(const char *text, const char *path, mst_tcp_address *out)
{
    struct sockaddr_un *sun = (struct sockaddr_un *)&out->sa;
    size_t n = strlen(path);
    bool abstract = path[0] == '@';
    if (n < 1 + (size_t)abstract)
        return mst_fail(MST_EUSAGE, "%s: a path or @name must follow unix:", text);
    if (n >= sizeof sun->sun_path)
        return mst_fail(MST_EUSAGE, "%s: the path of a Unix socket is at most %zu characters", text,
                        sizeof sun->sun_path - 1);
    sun->sun_family = AF_UNIX;
    memcpy(sun->sun_path, path, n + 1);
    if (abstract)
        sun->sun_path[0] = '\0';
    out->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + !abstract);
    out->is_unix = out->numeric = true;
    return MST_OK;
}

mst_status mst_tcp_address_parse(const char *text, mst_tcp_address *out)
{
    memset(out, 0, sizeof *out);
    if (strncmp(text, "unix:", 5) == 0)
        return address_parse_unix(text, text + 5, out);
    const char *colon = strrchr(text, ':'), *host = text;
    if (colon == NULL || colon == text)
        return mst_fail(MST_EUSAGE, "%s: an address is host:port, unix:/path or unix:@name", text);
    size_t n_host = (size_t)(colon - text);
    if (host[0] == '[' && host[n_host - 1] == ']') {
        host++;
        n_host -= 2;
    } else if (memchr(host, ':', n_host) != NULL) {
        return mst_fail(MST_EUSAGE, "%s: write an IPv6 address in brackets, [::1]:5000", text);
    }
    char *end;
    long port = strtol(colon + 1, &end, 10);
    if (colon[1] < '0' || colon[1] > '9' || *end != '\0' || port < 0 || port > 65535)
        return mst_fail(MST_EUSAGE, "%s: the port must be a number from 0 to 65535", text);
    if (n_host == 0 || n_host >= sizeof out->host)
        return mst_fail(MST_EUSAGE, "%s: a host name has 1 to %zu characters", text, sizeof out->host - 1);
    memcpy(out->host, host, n_host);
    snprintf(out->port, sizeof out->port, "%ld", port);
    struct sockaddr_in *v4 = (struct sockaddr_in *)&out->sa;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&out->sa;
    if (inet_pton(AF_INET, out->host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        out->length = sizeof *v4;
        out->numeric = true;
    } else if (inet_pton(AF_INET6, out->host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        out->length = sizeof *v6;
        out->numeric = true;
    }
    return MST_OK;
}

bool mst_tcp_is_local(const struct sockaddr_storage *sa)
{
    if (sa->ss_family == AF_UNIX)
        return true;
    if (sa->ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)sa)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *a = &((const struct sockaddr_in6 *)sa)->sin6_addr;
    return sa->ss_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] == 127));
}

bool mst_tcp_stays_here(int fd)
{
    struct sockaddr_storage peer = {0};
    socklen_t length = sizeof peer;
    return getpeername(fd, (struct sockaddr *)&peer, &length) == 0 && mst_tcp_is_local(&peer);
}

bool mst_tcp_same_user(int fd)
{
    struct sockaddr_storage peer = {0};
    struct ucred process;
    socklen_t length = sizeof peer, size = sizeof process;
    if (getpeername(fd, (struct sockaddr *)&peer, &length) == 0 && peer.ss_family != AF_UNIX)
        return true;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &process, &size) == 0 &&
           (process.uid == 0 || process.uid == geteuid());
}

void mst_tcp_address_format(const struct sockaddr_storage *sa, socklen_t length, char *out, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (sa->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)sa;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        snprintf(out, size, "%s:%u", host, ntohs(v4->sin_port));
    } else if (sa->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)sa;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        snprintf(out, size, "[%s]:%u", host, ntohs(v6->sin6_port));
    } else {
        const struct sockaddr_un *sun = (const struct sockaddr_un *)sa;
        size_t n = length > offsetof(struct sockaddr_un, sun_path)
                       ? length - offsetof(struct sockaddr_un, sun_path)
                       : 0;
        if (n > sizeof sun->sun_path)
            n = sizeof sun->sun_path;
        if (n == 0)
            snprintf(out, size, "a Unix socket");
        else if (sun->sun_path[0] == '\0')
            snprintf(out, size, "unix:@%.*s", (int)(n - 1), sun->sun_path + 1);
        else
            snprintf(out, size, "unix:%.*s", (int)strnlen(sun->sun_path, n), sun->sun_path);
    }
}

static bool address_same_host(const struct sockaddr *a, const struct sockaddr_storage *b)
{
    if (a == NULL || a->sa_family != b->ss_family)
        return false;
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    return a->sa_family == AF_INET6 &&
           memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr, &((const struct sockaddr_in6 *)b)->sin6_addr,
                  sizeof(struct in6_addr)) == 0;
}

/* The interface that has this address, whatever its port; NULL: none. */
static const struct ifaddrs *address_interface(const struct ifaddrs *all, const struct sockaddr_storage *own)
{
    while (all != NULL && !address_same_host(all->ifa_addr, own))
        all = all->ifa_next;
    return all;
}

void mst_tcp_link_of(int fd, char *out, size_t size)
{
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_size = sizeof own, peer_size = sizeof peer;
    struct ifaddrs *all = NULL;
    out[0] = '\0';
    if (getsockname(fd, (struct sockaddr *)&own, &own_size) != 0 ||
        getpeername(fd, (struct sockaddr *)&peer, &peer_size) != 0 || mst_tcp_is_local(&peer) ||
        getifaddrs(&all) != 0)
        return;
    const struct ifaddrs *link = address_interface(all, &own);
    if (link != NULL && (link->ifa_flags & IFF_LOOPBACK) == 0 && address_interface(all, &peer) == NULL)
        snprintf(out, size, "%s", link->ifa_name);
    freeifaddrs(all);
}

int mst_tcp_socket(int family)
{
    return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static void address_set(int fd, int level, int option, int value)
{
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

void mst_tcp_tune(int fd, int family, unsigned peer_timeout_ms)
{
    if (family == AF_UNIX) {
        address_set(fd, SOL_SOCKET, SO_SNDBUF, UNIX_BUFFER);
        address_set(fd, SOL_SOCKET, SO_RCVBUF, UNIX_BUFFER);
        return;
    }
    /* TCP's buffers grow by themselves; setting them would stop that. TCP_USER_TIMEOUT stays off: it would
     * also end connections to a peer that computes with its window full; a cut link is noticed by missing
     * heartbeats. */
    int seconds = (int)(peer_timeout_ms / 3000) + 1;
    address_set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    address_set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    address_set(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
    address_set(fd, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
    address_set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}
