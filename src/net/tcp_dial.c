/* Engine tcp, dialing: from an address to an authenticated connection; contract in tcp_impl.h.
 *
 * A dial tries the addresses of a name one after the other, rests a little longer after each round, and
 * starts again with the name until its deadline. Only an answer that will not change ends it before: a
 * refusal, or a process that is no muster.
 *
 * Invariants
 * 1. A dial has at most one of: a name being looked up, a socket, a time for the next try. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/version.h"
#include "net/join.h"
#include "net/tcp_impl.h"

#define BACKOFF_MIN_MS 5
#define BACKOFF_MAX_MS 200
#define TRY_NS         (2 * MST_S) /* for one connect to be answered */

struct mst_tcp_dial {
    mst_tcp_peer *peer; /* NULL: cancelled, only the look-up keeps this */
    mst_tcp *net;
    mst_tcp_address address;
    uint64_t start_ns, deadline_ns;
    uint64_t try_until_ns; /* of the socket in hand */
    uint64_t retry_ns;     /* when there is none */
    unsigned backoff_ms;
    uv_getaddrinfo_t lookup;
    bool resolving, connected;
    struct addrinfo *found, *next;
    mst_tcp_fd *socket;
    mst_join join;
    char text[MST_TCP_ADDRESS_MAX]; /* the address as given */
    char reason[128];               /* why the last try failed */
};

mst_status mst_tcp_join_begin(const mst_tcp *t, mst_join *join, const char *address, bool dialer, int fd)
{
    static const mst_seal_kind here_seals[] = {[MST_NET_SEAL_AUTO] = MST_SEAL_CHECKSUM,
                                               [MST_NET_SEAL_MAC] = MST_SEAL_MAC,
                                               [MST_NET_SEAL_NONE] = MST_SEAL_NONE};
    bool here = mst_tcp_stays_here(fd), tls = t->tls_keys != NULL && t->options.tls != MST_NET_TLS_OFF &&
                                              (t->options.tls == MST_NET_TLS_ON || !here);
    mst_shake_options options = {.self = &t->options.self,
                                 .secret = t->secret,
                                 .version = mst_version(),
                                 .address = address,
                                 .wire = MST_WIRE_VERSION,
                                 .seal = dialer && tls ? MST_SEAL_NONE
                                         : here        ? here_seals[t->options.seal]
                                                       : MST_SEAL_MAC,
                                 .needs_tls = !dialer && tls,
                                 .other_user = !dialer && t->secret[0] == '\0' && !mst_tcp_same_user(fd)};
    return mst_join_init(join, &options, dialer, dialer && !tls ? NULL : t->tls_keys, fd);
}

static void dial_socket_next(mst_tcp_dial *d);

static void dial_close_socket(mst_tcp_dial *d)
{
    mst_join_fini(&d->join);
    mst_tcp_fd_close(d->socket);
    d->socket = NULL;
}

static void dial_release(mst_tcp_dial *d)
{
    dial_close_socket(d);
    if (d->found != NULL)
        uv_freeaddrinfo(d->found);
    d->found = d->next = NULL;
}

void mst_tcp_dial_cancel(mst_tcp_dial *d)
{
    dial_release(d);
    d->peer = NULL;
    if (d->resolving)
        uv_cancel((uv_req_t *)&d->lookup); /* its callback frees d, whether this works or not */
    else
        mst_free(d);
}

/* The socket in hand is of no use: the next address, or a rest. */
static void dial_again(mst_tcp_dial *d, const char *reason)
{
    snprintf(d->reason, sizeof d->reason, "%s", reason);
    dial_close_socket(d);
    if (d->next != NULL) {
        dial_socket_next(d);
        return;
    }
    dial_release(d);
    d->retry_ns = mst_now_ns() + d->backoff_ms * MST_MS;
    d->backoff_ms = d->backoff_ms * 2 < BACKOFF_MAX_MS ? d->backoff_ms * 2 : BACKOFF_MAX_MS;
    mst_tcp_due(d->net, d->retry_ns);
}

/* A socket connected to itself: no process listens, and the system chose the dialled port. */
static bool dial_is_own_echo(int fd)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t n_here = sizeof here, n_there = sizeof there;
    return getsockname(fd, (struct sockaddr *)&here, &n_here) == 0 && here.ss_family != AF_UNIX &&
           getpeername(fd, (struct sockaddr *)&there, &n_there) == 0 && n_here == n_there &&
           memcmp(&here, &there, n_here) == 0;
}

static void dial_shake(mst_tcp_dial *d, bool broken)
{
    mst_join_state state = mst_join_step(&d->join);
    mst_tcp_peer *p = d->peer;
    if (state == MST_JOIN_FAILED) {
        mst_tcp_peer_fail(p, MST_NET_REFUSED, d->join.shake.refused ? MST_EUSAGE : MST_EPEER, "%s",
                          d->join.shake.text);
    } else if (state == MST_JOIN_CLOSED) {
        dial_again(d, errno != 0 ? strerror(errno) : "it closed the connection during the handshake");
    } else if (broken) {
        dial_again(d, "the connection broke during the handshake");
    } else if (state == MST_JOIN_RUNNING) { /* one answer more: it may take its time again */
        d->try_until_ns = mst_now_ns() + d->net->options.hello_timeout_ms * MST_MS;
    } else {
        mst_status st = mst_tcp_peer_up(p, d->socket, &d->join, d->text);
        if (st != MST_OK) {
            mst_tcp_peer_fail(p, MST_NET_DIED, st, "%s: %s", d->text, mst_error_text());
            return;
        }
        d->socket = NULL; /* handed over */
        p->dial = NULL;
        mst_tcp_dial_cancel(d);
        mst_tcp_peer_begin(p);
    }
}

static void dial_connected(mst_tcp_dial *d)
{
    mst_tcp *t = d->net;
    if (dial_is_own_echo(d->socket->fd)) {
        dial_again(d, strerror(ECONNREFUSED));
        return;
    }
    if (t->secret[0] == '\0' && !mst_tcp_same_user(d->socket->fd)) {
        mst_tcp_peer_fail(d->peer, MST_NET_REFUSED, MST_EUSAGE,
                          "%s belongs to another user: give the job a secret, or use another name", d->text);
        return;
    }
    if (mst_tcp_join_begin(t, &d->join, d->text, true, d->socket->fd) != MST_OK) {
        mst_tcp_peer_fail(d->peer, MST_NET_DIED, MST_EIO, "%s", mst_error_text());
        return;
    }
    d->connected = true;
    d->try_until_ns = mst_now_ns() + t->options.hello_timeout_ms * MST_MS;
    mst_tcp_due(t, d->try_until_ns);
    mst_tcp_fd_want(d->socket, UV_READABLE);
    dial_shake(d, false);
}

static void dial_on_ready(void *owner, int events, bool broken)
{
    (void)events;
    mst_tcp_dial *d = owner;
    if (d->connected) {
        dial_shake(d, broken);
        return;
    }
    int e = 0;
    socklen_t length = sizeof e;
    if (getsockopt(d->socket->fd, SOL_SOCKET, SO_ERROR, &e, &length) != 0)
        e = errno;
    if (e != 0 || broken)
        dial_again(d, strerror(e != 0 ? e : ECONNREFUSED));
    else
        dial_connected(d);
}

static void dial_socket(mst_tcp_dial *d, const struct sockaddr *sa, socklen_t length)
{
    mst_tcp *t = d->net;
    int fd = mst_tcp_socket(sa->sa_family);
    if (fd < 0) {
        dial_again(d, strerror(errno));
        return;
    }
    if (mst_tcp_fd_new(t, fd, dial_on_ready, d, &d->socket) != MST_OK) {
        close(fd);
        dial_again(d, mst_error_text());
        return;
    }
    mst_tcp_tune(fd, sa->sa_family, t->options.peer_timeout_ms);
    d->connected = false;
    d->try_until_ns = mst_now_ns() + TRY_NS;
    mst_tcp_due(t, d->try_until_ns);
    if (connect(fd, sa, length) == 0)
        dial_connected(d);
    else if (errno == EINPROGRESS)
        mst_tcp_fd_want(d->socket, UV_WRITABLE);
    else
        dial_again(d, strerror(errno));
}

static void dial_not_without_secret(mst_tcp_dial *d)
{
    mst_tcp_peer_fail(d->peer, MST_NET_REFUSED, MST_EUSAGE,
                      "%s is on another machine: give the job a secret to connect beyond this one", d->text);
}

static void dial_socket_next(mst_tcp_dial *d)
{
    const struct addrinfo *ai = d->next;
    d->next = ai->ai_next;
    struct sockaddr_storage sa = {0};
    memcpy(&sa, ai->ai_addr, ai->ai_addrlen < sizeof sa ? ai->ai_addrlen : sizeof sa);
    if (d->net->secret[0] == '\0' && !mst_tcp_is_local(&sa))
        dial_not_without_secret(d);
    else
        dial_socket(d, ai->ai_addr, ai->ai_addrlen);
}

static void dial_on_lookup(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    mst_tcp_dial *d = request->data;
    d->resolving = false;
    if (d->peer == NULL) {
        uv_freeaddrinfo(found);
        mst_free(d);
        return;
    }
    if (status != 0 || found == NULL) {
        uv_freeaddrinfo(found);
        dial_again(d, status != 0 ? uv_strerror(status) : "the name has no address");
        return;
    }
    d->found = d->next = found;
    dial_socket_next(d);
}

static void dial_try(mst_tcp_dial *d)
{
    mst_tcp *t = d->net;
    d->retry_ns = 0;
    if (d->address.numeric) {
        if (t->secret[0] == '\0' && !mst_tcp_is_local(&d->address.sa))
            dial_not_without_secret(d);
        else
            dial_socket(d, (const struct sockaddr *)&d->address.sa, d->address.length);
        return;
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    d->lookup.data = d;
    int e = uv_getaddrinfo(&t->loop, &d->lookup, dial_on_lookup, d->address.host, d->address.port, &hints);
    if (e != 0) {
        dial_again(d, uv_strerror(e));
        return;
    }
    d->resolving = true;
}

mst_status mst_tcp_dial_new(mst_tcp *t, const char *address, uint64_t deadline_ns, uint32_t *peer)
{
    mst_tcp_address a;
    TRY(mst_tcp_address_parse(address, &a));
    if (strlen(address) >= MST_TCP_ADDRESS_MAX)
        return mst_fail(MST_EUSAGE, "%s: an address has at most %d characters", address,
                        MST_TCP_ADDRESS_MAX - 1);
    mst_tcp_dial *d = mst_zalloc(sizeof *d);
    mst_tcp_peer *p = d != NULL ? mst_tcp_peer_new(t) : NULL;
    if (p == NULL) {
        mst_free(d);
        return mst_fail_memory();
    }
    d->peer = p;
    d->net = t;
    d->address = a;
    d->start_ns = mst_now_ns();
    d->deadline_ns = deadline_ns;
    d->backoff_ms = BACKOFF_MIN_MS;
    snprintf(d->text, sizeof d->text, "%s", address);
    snprintf(d->reason, sizeof d->reason, "there was no time to try");
    snprintf(p->name, sizeof p->name, "%s", address);
    p->dial = d;
    d->retry_ns = d->start_ns; /* the next poll begins, so that no event is due before */
    mst_tcp_due(t, d->start_ns);
    *peer = p->number;
    return MST_OK;
}

static void dial_run_timers(mst_tcp_dial *d, uint64_t now)
{
    mst_tcp *t = d->net;
    mst_tcp_peer *p = d->peer;
    if (now >= d->deadline_ns && now > d->start_ns) {
        if (d->resolving)
            snprintf(d->reason, sizeof d->reason, "the name is not resolved yet");
        else if (d->socket != NULL)
            snprintf(d->reason, sizeof d->reason, "%s",
                     d->connected ? "it accepts the connection but does not answer the handshake"
                                  : "nothing answers");
        mst_tcp_peer_fail(p, MST_NET_DIED, MST_ETIMEOUT, "%s was not reached within %.1f s: %s", d->text,
                          (double)(now - d->start_ns) * 1e-9, d->reason);
        return;
    }
    if (d->socket != NULL && now >= d->try_until_ns)
        dial_again(d, d->connected ? "it accepts the connection but does not answer the handshake"
                                   : "nothing answers");
    else if (d->retry_ns != 0 && now >= d->retry_ns)
        dial_try(d);
    if (p->dial != d) /* over */
        return;
    mst_tcp_due(t, d->deadline_ns);
    if (d->socket != NULL)
        mst_tcp_due(t, d->try_until_ns);
    else if (d->retry_ns != 0)
        mst_tcp_due(t, d->retry_ns);
}

void mst_tcp_dial_run_all_timers(mst_tcp *t, uint64_t now_ns)
{
    for (size_t i = 0; i < t->n_peers; i++)
        if (t->peers[i]->dial != NULL)
            dial_run_timers(t->peers[i]->dial, now_ns);
}
