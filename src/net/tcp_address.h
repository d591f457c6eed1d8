/* Addresses of engine tcp: "host:port", "[v6 address]:port", "unix:/path", "unix:@name" (Linux abstract), and
 * the sockets they name. Pure functions but for mst_tcp_socket. */
#ifndef MST_NET_TCP_ADDRESS_H
#define MST_NET_TCP_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "base/status.h"

#define MST_TCP_HOST_MAX    128
#define MST_TCP_ADDRESS_MAX 160 /* bytes of an address as text */

typedef struct mst_tcp_address {
    bool is_unix;
    bool numeric; /* sa is set: a Unix socket or a numeric host */
    char host[MST_TCP_HOST_MAX];
    char port[8];
    struct sockaddr_storage sa;
    socklen_t length;
} mst_tcp_address;

/* MST_EUSAGE names the error in the text. */
mst_status mst_tcp_address_parse(const char *text, mst_tcp_address *out);

/* The other end can only be on this machine. */
bool mst_tcp_is_local(const struct sockaddr_storage *sa);

/* Both ends of the connected socket are on this machine. */
bool mst_tcp_stays_here(int fd);
/* The other end of the connected socket is not a Unix socket, or its process has the user of this one, or is
 * root's. For the dialer, the process that began to listen counts. */
bool mst_tcp_same_user(int fd);

/* "10.0.0.3:51234", "[::1]:5000", "unix:/path", "unix:@name"; "a Unix socket" for the nameless end of one. */
void mst_tcp_address_format(const struct sockaddr_storage *sa, socklen_t length, char *out, size_t size);

/* Writes the name of the interface that the connection uses to another host; "": none, because both ends are
 * on this host, at whichever of its addresses, or it is not a TCP connection. */
void mst_tcp_link_of(int fd, char *out, size_t size);

/* A non-blocking socket of the address's family, or -1 with errno. */
int mst_tcp_socket(int family);

/* No delays, keepalive, and buffers of a size for large bodies; what the system refuses stays at its default.
 */
void mst_tcp_tune(int fd, int family, unsigned peer_timeout_ms);

#endif
