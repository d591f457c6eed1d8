/* Engine tcp, listening: new connections until they are authenticated; contract in tcp_impl.h.
 *
 * An unauthenticated peer is a new connection: a descriptor, a handshake of fixed size (join.h) and a time
 * limit, so that a slow one ends too. There are at most MST_TCP_UNAUTHENTICATED_MAX of them, and
 * PER_ADDRESS_MAX from one address (of IPv6: one /64 network). One more closes another at random, of the same
 * address, or of the address that has most: many connections from one place do not keep out others, and among
 * those of one place every connection has the same chance, so that a process which retries gets in.
 *
 * Strangers cost the log a few lines: LINES at first, then one per LINE_NS.
 *
 * Invariants
 * 1. n_unauthenticated is the length of t->unauthenticated. */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/rng.h"
#include "net/join.h"
#include "net/tcp_impl.h"

#define BACKLOG         4096
#define ACCEPTS_MAX     32
#define PAUSE_NS        (100 * MST_MS) /* of a listener when the system has no descriptors left */
#define PER_ADDRESS_MAX 64
#define TLS_MAX         32 /* unauthenticated peers with a TLS session, which has more memory */
#define LINES           4
#define LINE_NS         (10 * MST_S)

struct mst_tcp_unauthenticated {
    mst_tcp *net;
    mst_tcp_unauthenticated *next;
    mst_tcp_fd *socket;
    uint64_t until_ns; /* on the silence clock */
    uint64_t from;     /* the address without its port */
    mst_join join;
    char address[MST_TCP_ADDRESS_MAX];
};

struct mst_tcp_listener {
    mst_tcp *net;
    mst_tcp_listener *next;
    mst_tcp_fd *socket;
    uint64_t resume_ns;                                      /* paused until then; 0: listening */
    char path[sizeof((struct sockaddr_un *)NULL)->sun_path]; /* to remove at the end; "": none */
};

/* ---- unauthenticated peers ---- */

static void unauthenticated_remove(mst_tcp_unauthenticated *s)
{
    mst_tcp *t = s->net;
    for (mst_tcp_unauthenticated **at = &t->unauthenticated; *at != NULL; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            t->n_unauthenticated--;
            break;
        }
    mst_join_fini(&s->join);
    mst_tcp_fd_close(s->socket);
    mst_free(s);
}

/* Logs why a stranger was turned away, or counts it for a later line. */
static void listen_log(mst_tcp *t, const char *text)
{
    uint64_t now = mst_now_ns();
    if (t->lines_left < LINES && now - t->line_ns >= LINE_NS) {
        uint64_t earned = (now - t->line_ns) / LINE_NS;
        t->lines_left = earned < LINES - t->lines_left ? t->lines_left + (unsigned)earned : LINES;
        t->line_ns = now;
    }
    if (t->lines_left == 0) {
        t->n_unlogged++;
        return;
    }
    if (t->lines_left-- == LINES)
        t->line_ns = now;
    if (t->n_unlogged > 0)
        mst_warn("%s (%u more connections were turned away since the last such message)", text,
                 t->n_unlogged);
    else
        mst_warn("%s", text);
    t->n_unlogged = 0;
}

/* A connection is authenticated: it becomes a peer. */
static void unauthenticated_admit(mst_tcp_unauthenticated *s)
{
    mst_tcp *t = s->net;
    mst_tcp_peer *p = NULL;
    char text[MST_TCP_ADDRESS_MAX + 128];
    if (t->n_up >= MST_TCP_PEERS_MAX) {
        snprintf(text, sizeof text, "refused %s: %d processes are connected, which is the most", s->address,
                 MST_TCP_PEERS_MAX);
        listen_log(t, text);
    } else {
        p = mst_tcp_peer_new(t);
    }
    if (p != NULL && mst_tcp_peer_up(p, s->socket, &s->join, s->address) == MST_OK)
        s->socket = NULL; /* handed over */
    else if (p != NULL)
        mst_tcp_peer_end(p, false);
    unauthenticated_remove(s);
    if (p != NULL)
        mst_tcp_peer_begin(p);
}

static void listen_on_unauthenticated(void *owner, int events, bool broken)
{
    (void)events;
    mst_tcp_unauthenticated *s = owner;
    switch (broken ? MST_JOIN_CLOSED : mst_join_step(&s->join)) {
    case MST_JOIN_RUNNING:
        return;
    case MST_JOIN_DONE:
        unauthenticated_admit(s);
        return;
    case MST_JOIN_FAILED:
        listen_log(s->net, s->join.shake.text);
        break;
    case MST_JOIN_CLOSED:
        break;
    }
    unauthenticated_remove(s);
}

/* The address as a number, without the port; all Unix sockets are one. */
static uint64_t listen_from(const struct sockaddr_storage *sa)
{
    uint64_t from = 0;
    const struct in6_addr *v6 = &((const struct sockaddr_in6 *)sa)->sin6_addr;
    if (sa->ss_family == AF_INET)
        from = 1ull << 32 | ((const struct sockaddr_in *)sa)->sin_addr.s_addr;
    else if (sa->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(v6))
        memcpy(&from, v6->s6_addr + 12, 4);
    else if (sa->ss_family == AF_INET6)
        memcpy(&from, v6->s6_addr, sizeof from);
    return from;
}

typedef struct listen_choice {
    bool any, with_tls; /* of any address; only those with TLS sessions */
    uint64_t from;
} listen_choice;

static bool listen_is_candidate(const mst_tcp_unauthenticated *s, const listen_choice *c)
{
    return (c->any || s->from == c->from) && (!c->with_tls || s->join.tls != NULL);
}

static unsigned listen_count(const mst_tcp *t, const listen_choice *c)
{
    unsigned n = 0;
    for (const mst_tcp_unauthenticated *s = t->unauthenticated; s != NULL; s = s->next)
        n += listen_is_candidate(s, c);
    return n;
}

/* Closes one of those at random. */
static void listen_evict(mst_tcp *t, const listen_choice *c)
{
    char text[MST_TCP_ADDRESS_MAX + 128];
    uint64_t pick = mst_rng_below(&t->rng, listen_count(t, c));
    mst_tcp_unauthenticated *s = t->unauthenticated;
    for (; s != NULL; s = s->next)
        if (listen_is_candidate(s, c) && pick-- == 0)
            break;
    if (s == NULL)
        return;
    snprintf(text, sizeof text, "turned %s away: too many connections that have not proved the job's secret",
             s->address);
    listen_log(t, text);
    unauthenticated_remove(s);
}

/* The address with most unauthenticated peers. */
static uint64_t listen_crowd(const mst_tcp *t)
{
    unsigned most = 0;
    uint64_t crowd = 0;
    for (const mst_tcp_unauthenticated *s = t->unauthenticated; s != NULL; s = s->next) {
        unsigned n = listen_count(t, &(listen_choice){.from = s->from});
        if (n > most) {
            most = n;
            crowd = s->from;
        }
    }
    return crowd;
}

/* Makes room before one more connection from an address. */
static void listen_make_room(mst_tcp *t, uint64_t from)
{
    listen_choice same = {.from = from}, tls = {.any = true, .with_tls = true};
    if (listen_count(t, &tls) > TLS_MAX)
        listen_evict(t, &tls);
    if (listen_count(t, &same) >= PER_ADDRESS_MAX)
        listen_evict(t, &same);
    else if (t->n_unauthenticated >= MST_TCP_UNAUTHENTICATED_MAX)
        listen_evict(t, &(listen_choice){.from = listen_crowd(t)});
}

static void unauthenticated_new(mst_tcp *t, int fd, const struct sockaddr_storage *sa, socklen_t length)
{
    listen_make_room(t, listen_from(sa));
    mst_tcp_unauthenticated *s = mst_zalloc(sizeof *s);
    if (s == NULL || (t->secret[0] == '\0' && !mst_tcp_is_local(sa))) {
        mst_free(s);
        close(fd);
        return;
    }
    s->net = t;
    s->from = listen_from(sa);
    mst_tcp_address_format(sa, length, s->address, sizeof s->address);
    if (mst_tcp_join_begin(t, &s->join, s->address, false, fd) != MST_OK ||
        mst_tcp_fd_new(t, fd, listen_on_unauthenticated, s, &s->socket) != MST_OK) {
        mst_join_fini(&s->join);
        mst_free(s);
        close(fd);
        return;
    }
    mst_tcp_tune(fd, sa->ss_family, t->options.peer_timeout_ms);
    uint64_t now = mst_now_ns(), limit = t->options.hello_timeout_ms * MST_MS;
    s->until_ns = mst_tcp_silence_clock(t, now) + limit;
    mst_tcp_due(t, now + limit);
    s->next = t->unauthenticated;
    t->unauthenticated = s;
    t->n_unauthenticated++;
    mst_tcp_fd_want(s->socket, UV_READABLE);
}

/* ---- listening ---- */

static void listen_on_listener(void *owner, int events, bool broken)
{
    (void)events;
    mst_tcp_listener *l = owner;
    for (int i = 0; i < ACCEPTS_MAX && !broken; i++) {
        struct sockaddr_storage sa = {0};
        socklen_t length = sizeof sa;
        int fd = accept4(l->socket->fd, (struct sockaddr *)&sa, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            unauthenticated_new(l->net, fd, &sa, length);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            mst_tcp_fd_want(l->socket, 0);
            l->resume_ns = mst_now_ns() + PAUSE_NS;
            mst_tcp_due(l->net, l->resume_ns);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

/* A Unix path that exists: true when no process listens there any more and it has been removed. */
static bool listen_stale_removed(const mst_tcp_address *a)
{
    const char *path = ((const struct sockaddr_un *)&a->sa)->sun_path;
    struct stat st;
    if (path[0] == '\0' || lstat(path, &st) != 0 || !S_ISSOCK(st.st_mode))
        return false;
    int fd = mst_tcp_socket(AF_UNIX);
    if (fd < 0)
        return false;
    bool stale = connect(fd, (const struct sockaddr *)&a->sa, a->length) != 0 && errno == ECONNREFUSED;
    close(fd);
    return stale && unlink(path) == 0;
}

/* A listening socket on an address that is already in numbers. */
static mst_status listen_socket(mst_tcp *t, const char *text, const mst_tcp_address *a, int *out)
{
    int one = 1, fd = -1;
    if (t->secret[0] == '\0' && !mst_tcp_is_local(&a->sa))
        return mst_fail(
            MST_EUSAGE,
            "%s can be reached from other machines: give the job a secret, or listen on 127.0.0.1", text);
    fd = mst_tcp_socket(a->sa.ss_family);
    if (fd < 0)
        return mst_fail(MST_EIO, "%s: no socket: %s", text, strerror(errno));
    if (!a->is_unix)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    const struct sockaddr *sa = (const struct sockaddr *)&a->sa;
    bool bound = bind(fd, sa, a->length) == 0 || (errno == EADDRINUSE && a->is_unix &&
                                                  listen_stale_removed(a) && bind(fd, sa, a->length) == 0);
    if (bound && listen(fd, BACKLOG) == 0) {
        *out = fd;
        return MST_OK;
    }
    int e = errno;
    close(fd);
    if (e == EADDRINUSE)
        return mst_fail(MST_EEXIST, "%s is in use by another process; stop it or choose another address",
                        text);
    return mst_fail(MST_EIO, "cannot listen on %s: %s", text, strerror(e));
}

/* The first address of the name that can be listened on. */
static mst_status listen_name(mst_tcp *t, const char *text, mst_tcp_address *a, int *out)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    int e = getaddrinfo(a->host, a->port, &hints, &found);
    if (e != 0)
        return mst_fail(MST_EINPUT, "%s: the name %s cannot be resolved: %s", text, a->host, gai_strerror(e));
    mst_status st = mst_fail(MST_EINPUT, "%s: the name %s has no address", text, a->host);
    for (const struct addrinfo *ai = found; ai != NULL && st != MST_OK; ai = ai->ai_next) {
        if (ai->ai_addrlen > sizeof a->sa)
            continue;
        memcpy(&a->sa, ai->ai_addr, ai->ai_addrlen);
        a->length = ai->ai_addrlen;
        st = listen_socket(t, text, a, out);
    }
    freeaddrinfo(found);
    return st;
}

mst_status mst_tcp_listen(mst_tcp *t, const char *address, char *bound, size_t bound_size)
{
    mst_tcp_address a;
    int fd = -1;
    TRY(mst_tcp_address_parse(address, &a));
    TRY(a.numeric ? listen_socket(t, address, &a, &fd) : listen_name(t, address, &a, &fd));
    mst_tcp_listener *l = mst_zalloc(sizeof *l);
    mst_status st = l != NULL ? mst_tcp_fd_new(t, fd, listen_on_listener, l, &l->socket) : mst_fail_memory();
    if (st != MST_OK) {
        mst_free(l);
        close(fd);
        return st;
    }
    if (a.is_unix)
        memcpy(l->path, ((struct sockaddr_un *)&a.sa)->sun_path, sizeof l->path);
    l->net = t;
    l->next = t->listeners;
    t->listeners = l;
    mst_tcp_fd_want(l->socket, UV_READABLE);
    if (bound == NULL || bound_size == 0)
        return MST_OK;
    snprintf(bound, bound_size, "%s", address);
    struct sockaddr_storage sa = {0};
    socklen_t length = sizeof sa;
    if (!a.is_unix &&
        getsockname(fd, (struct sockaddr *)&sa, &length) == 0) { /* the host as given, the port as is */
        char numbers[MST_TCP_ADDRESS_MAX];
        mst_tcp_address_format(&sa, length, numbers, sizeof numbers);
        snprintf(bound, bound_size, "%.*s%s", (int)(strrchr(address, ':') - address), address,
                 strrchr(numbers, ':'));
    }
    return MST_OK;
}

/* ---- timers and the end ---- */

static void unauthenticated_time_out(mst_tcp_unauthenticated *s)
{
    char text[MST_TCP_ADDRESS_MAX + 128];
    snprintf(text, sizeof text, "turned %s away: it has not proved the job's secret within %.1f s",
             s->address, s->net->options.hello_timeout_ms / 1000.0);
    listen_log(s->net, text);
    unauthenticated_remove(s);
}

void mst_tcp_listen_run_timers(mst_tcp *t, uint64_t now_ns)
{
    uint64_t clock_ns = mst_tcp_silence_clock(t, now_ns);
    for (mst_tcp_unauthenticated *s = t->unauthenticated, *next; s != NULL; s = next) {
        next = s->next;
        if (clock_ns >= s->until_ns)
            unauthenticated_time_out(s);
        else
            mst_tcp_due(t, now_ns + (s->until_ns - clock_ns));
    }
    for (mst_tcp_listener *l = t->listeners; l != NULL; l = l->next) {
        if (l->resume_ns != 0 && now_ns >= l->resume_ns) {
            l->resume_ns = 0;
            mst_tcp_fd_want(l->socket, UV_READABLE);
        } else if (l->resume_ns != 0) {
            mst_tcp_due(t, l->resume_ns);
        }
    }
}

void mst_tcp_listen_close(mst_tcp *t)
{
    while (t->unauthenticated != NULL)
        unauthenticated_remove(t->unauthenticated);
    while (t->listeners != NULL) {
        mst_tcp_listener *l = t->listeners;
        t->listeners = l->next;
        if (l->path[0] != '\0')
            (void)unlink(l->path);
        mst_tcp_fd_close(l->socket);
        mst_free(l);
    }
}
