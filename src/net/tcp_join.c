/* Engine tcp, up to an authenticated connection: listening, unauthenticated peers, dialing;
 * contract in tcp_impl.h.
 *
 * An unauthenticated peer is a new connection: a descriptor, a handshake of fixed size and a time limit.
 * There are at most MST_TCP_UNAUTHENTICATED_MAX; one more closes the oldest, so idle connections cannot block
 * others.
 *
 * A dial tries the addresses of a name one after the other, rests a little longer after each round, and
 * starts again with the name until its deadline. Only an answer that will not change ends it before: a
 * refusal, or a process that is no muster.
 *
 * Invariants
 * 1. n_unauthenticated is the length of t->unauthenticated.
 * 2. A dial has at most one of: a name being looked up, a socket, a time for the next try. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/version.h"
#include "net/tcp_impl.h"

#define BACKLOG        512
#define ACCEPTS_MAX    16
#define BACKOFF_MIN_MS 5
#define BACKOFF_MAX_MS 200
#define TRY_NS         (2 * MST_S)    /* for one connect to be answered */
#define PAUSE_NS       (100 * MST_MS) /* of a listener when the system has no descriptors left */
#define SHAKE_READ     512
#define REFUSAL_NS     (1 * MST_S) /* between two lines about the refused */

struct mst_tcp_unauthenticated {
    mst_tcp *net;
    mst_tcp_unauthenticated *next;
    mst_tcp_fd *socket;
    uint64_t until_ns; /* on the silence clock */
    mst_shake shake;
    char address[MST_TCP_ADDRESS_MAX];
};

struct mst_tcp_listener {
    mst_tcp *net;
    mst_tcp_listener *next;
    mst_tcp_fd *socket;
    uint64_t resume_ns;                                      /* paused until then; 0: listening */
    char path[sizeof((struct sockaddr_un *)NULL)->sun_path]; /* to remove at the end; "": none */
};

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
    mst_shake shake;
    char text[MST_TCP_ADDRESS_MAX]; /* the address as given */
    char reason[128];               /* why the last try failed */
};

/* Reads and answers on a socket in its handshake. *left: bytes beyond the handshake's end, in bytes[*at ...].
 * False: the other end has closed, or the system failed (why in errno, 0: closed). */
static bool shake_step(mst_shake *h, int fd, uint8_t bytes[SHAKE_READ], size_t *at, size_t *left)
{
    *left = 0;
    ssize_t n = recv(fd, bytes, SHAKE_READ, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    if (n == 0) {
        errno = 0;
        return false;
    }
    *at = mst_shake_take(h, bytes, (size_t)n);
    *left = (size_t)n - *at;
    size_t n_out = h->n_out;
    h->n_out = 0;
    /* A new socket takes these few bytes; one that does not is not worth waiting for. */
    return n_out == 0 || send(fd, h->out, n_out, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n_out;
}

static mst_shake_options shake_options(const mst_tcp *t, const char *address, int fd)
{
    return (mst_shake_options){.self = &t->options.self,
                               .secret = t->secret,
                               .version = mst_version(),
                               .address = address,
                               .wire = MST_WIRE_VERSION,
                               .seal = mst_tcp_stays_here(fd) ? MST_SEAL_CHECKSUM : MST_SEAL_MAC};
}

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
    mst_tcp_fd_close(s->socket);
    mst_free(s);
}

/* At most one warning per REFUSAL_NS: unauthenticated peers cannot fill the log. */
static void join_log_refusal(mst_tcp *t, const mst_shake *shake)
{
    uint64_t now = mst_now_ns();
    bool rare = t->refusal_ns == 0 || now - t->refusal_ns >= REFUSAL_NS;
    if (shake->refused && rare)
        t->refusal_ns = now;
    mst_log(shake->refused && rare ? MST_LOG_WARN : MST_LOG_DEBUG, "%s", shake->text);
}

static void join_on_unauthenticated(void *owner, int events, bool broken)
{
    (void)events;
    mst_tcp_unauthenticated *s = owner;
    mst_tcp *t = s->net;
    uint8_t bytes[SHAKE_READ];
    size_t at = 0, left = 0;
    bool open = !broken && shake_step(&s->shake, s->socket->fd, bytes, &at, &left);
    if (s->shake.state == MST_SHAKE_DONE && open) {
        mst_tcp_peer *p = mst_tcp_peer_new(t);
        mst_tcp_fd *w = s->socket;
        if (p != NULL) {
            char address[MST_TCP_ADDRESS_MAX];
            mst_shake shake = s->shake;
            memcpy(address, s->address, sizeof address);
            s->socket = NULL; /* handed over */
            unauthenticated_remove(s);
            if (mst_tcp_peer_up(p, w, &shake, address, bytes + at, left) != MST_OK) {
                mst_tcp_fd_close(w);
                mst_tcp_peer_end(p, false);
            }
            return;
        }
    } else if (open && s->shake.state == MST_SHAKE_RUNNING) {
        return;
    }
    if (s->shake.state == MST_SHAKE_FAILED)
        join_log_refusal(t, &s->shake);
    unauthenticated_remove(s);
}

static void unauthenticated_new(mst_tcp *t, int fd, const struct sockaddr_storage *sa, socklen_t length)
{
    mst_tcp_unauthenticated *s = mst_zalloc(sizeof *s);
    if (s == NULL || (t->secret[0] == '\0' && !mst_tcp_is_local(sa))) {
        mst_free(s);
        close(fd);
        return;
    }
    s->net = t;
    mst_tcp_address_format(sa, length, s->address, sizeof s->address);
    mst_shake_options options = shake_options(t, s->address, fd);
    if (mst_shake_init(&s->shake, &options, false) != MST_OK ||
        mst_tcp_fd_new(t, fd, join_on_unauthenticated, s, &s->socket) != MST_OK) {
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
    if (++t->n_unauthenticated > MST_TCP_UNAUTHENTICATED_MAX) {
        mst_tcp_unauthenticated *oldest = t->unauthenticated;
        while (oldest->next != NULL)
            oldest = oldest->next;
        unauthenticated_remove(oldest);
    }
    mst_tcp_fd_want(s->socket, UV_READABLE);
}

/* ---- listening ---- */

static void join_on_listener(void *owner, int events, bool broken)
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
static bool join_stale_removed(const mst_tcp_address *a)
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
    bool bound = bind(fd, sa, a->length) == 0 ||
                 (errno == EADDRINUSE && a->is_unix && join_stale_removed(a) && bind(fd, sa, a->length) == 0);
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
    mst_status st = l != NULL ? mst_tcp_fd_new(t, fd, join_on_listener, l, &l->socket) : mst_fail_memory();
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

/* ---- dialing ---- */

static void dial_socket_next(mst_tcp_dial *d);

static void dial_release(mst_tcp_dial *d)
{
    mst_tcp_fd_close(d->socket);
    d->socket = NULL;
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
    mst_tcp_fd_close(d->socket);
    d->socket = NULL;
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
static bool join_is_own_echo(int fd)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t n_here = sizeof here, n_there = sizeof there;
    return getsockname(fd, (struct sockaddr *)&here, &n_here) == 0 && here.ss_family != AF_UNIX &&
           getpeername(fd, (struct sockaddr *)&there, &n_there) == 0 && n_here == n_there &&
           memcmp(&here, &there, n_here) == 0;
}

static void dial_connected(mst_tcp_dial *d)
{
    mst_tcp *t = d->net;
    int fd = d->socket->fd;
    if (join_is_own_echo(fd)) {
        dial_again(d, strerror(ECONNREFUSED));
        return;
    }
    mst_shake_options options = shake_options(t, d->text, fd);
    if (mst_shake_init(&d->shake, &options, true) != MST_OK) {
        mst_tcp_peer_fail(d->peer, MST_NET_DIED, MST_EIO, "%s", mst_error_text());
        return;
    }
    d->connected = true;
    d->try_until_ns = mst_now_ns() + t->options.hello_timeout_ms * MST_MS;
    mst_tcp_due(t, d->try_until_ns);
    ssize_t n = send(fd, d->shake.out, d->shake.n_out, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n != (ssize_t)d->shake.n_out) {
        dial_again(d, n < 0 ? strerror(errno) : "it takes no bytes");
        return;
    }
    d->shake.n_out = 0;
    mst_tcp_fd_want(d->socket, UV_READABLE);
}

static void dial_shake(mst_tcp_dial *d, bool broken)
{
    uint8_t bytes[SHAKE_READ];
    size_t at = 0, left = 0;
    errno = 0;
    bool open = shake_step(&d->shake, d->socket->fd, bytes, &at, &left);
    mst_tcp_peer *p = d->peer;
    if (d->shake.state == MST_SHAKE_FAILED) {
        mst_tcp_peer_fail(p, MST_NET_REFUSED, d->shake.refused ? MST_EUSAGE : MST_EPEER, "%s", d->shake.text);
    } else if (!open || broken) {
        dial_again(d, errno != 0 ? strerror(errno) : "it closed the connection during the handshake");
    } else if (d->shake.state == MST_SHAKE_RUNNING) { /* one answer more: it may take its time again */
        d->try_until_ns = mst_now_ns() + d->net->options.hello_timeout_ms * MST_MS;
    } else {
        mst_tcp_fd *w = d->socket;
        mst_shake shake = d->shake;
        char address[MST_TCP_ADDRESS_MAX];
        memcpy(address, d->text, sizeof address);
        d->socket = NULL; /* handed over */
        p->dial = NULL;
        mst_tcp_dial_cancel(d);
        mst_status st = mst_tcp_peer_up(p, w, &shake, address, bytes + at, left);
        if (st != MST_OK) {
            mst_tcp_fd_close(w);
            mst_tcp_peer_fail(p, MST_NET_DIED, st, "%s: %s", address, mst_error_text());
        }
    }
}

static void join_on_dial(void *owner, int events, bool broken)
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
    if (mst_tcp_fd_new(t, fd, join_on_dial, d, &d->socket) != MST_OK) {
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

static void join_not_without_secret(mst_tcp_dial *d)
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
        join_not_without_secret(d);
    else
        dial_socket(d, ai->ai_addr, ai->ai_addrlen);
}

static void join_on_lookup(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
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
            join_not_without_secret(d);
        else
            dial_socket(d, (const struct sockaddr *)&d->address.sa, d->address.length);
        return;
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    d->lookup.data = d;
    int e = uv_getaddrinfo(&t->loop, &d->lookup, join_on_lookup, d->address.host, d->address.port, &hints);
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

/* ---- all of it ---- */

void mst_tcp_join_run_timers(mst_tcp *t, uint64_t now_ns)
{
    uint64_t clock_ns = mst_tcp_silence_clock(t, now_ns);
    for (size_t i = 0; i < t->n_peers; i++)
        if (t->peers[i]->dial != NULL)
            dial_run_timers(t->peers[i]->dial, now_ns);
    for (mst_tcp_unauthenticated *s = t->unauthenticated, *next; s != NULL; s = next) {
        next = s->next;
        if (clock_ns >= s->until_ns)
            unauthenticated_remove(s);
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

void mst_tcp_join_close(mst_tcp *t)
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
