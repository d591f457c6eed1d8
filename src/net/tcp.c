/* Engine tcp: TCP between hosts, Unix sockets on one host, on a libuv loop; contract in net.h, format in
 * docs/WIRE.md.
 *
 * The loop reports the sockets that are ready; reads and writes are made here, directly from and to the
 * memory of bodies. A small message costs one wait, one read and one write. Deadlines, heartbeats and retries
 * are timers; t->due_ns is the time of the next. One timer of libuv wakes the loop for it or for the caller's
 * deadline.
 *
 * The owner may compute for seconds between polls. The heartbeat thread then sends for it: it takes the free
 * mutex, writes queued messages and sends heartbeats. While the owner polls, the owner does both itself. A
 * peer counts as silent only if no data of it is unread. Time in which the owner did not poll counts for at
 * most one second.
 *
 * Invariants
 * 1. The loop is touched with the mutex held only. Events are called without it, but for `doing`.
 * 2. A peer's number gives its place in t->peers. A place is used again when PAST_MAX newer connections have
 * ended, so the number of a past peer stays unused for long.
 * 3. What a connection needs is released outside of any event (mst_tcp_peer_settle), so that an event may
 * drop any peer. */
#include <inttypes.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cond.h"
#include "net/tcp_impl.h"

#define HEARTBEAT_THREAD_MS 200
#define LONG_WAIT           (3600 * MST_S)
#define ABSENCE             MST_S /* the most that an absence counts */
#define OUTQ_WAIT_MIN       (1 * MST_MS)
#define OUTQ_WAIT_MAX       (10 * MST_MS)

/* ---- descriptors in the loop ---- */

static void fd_ready(uv_poll_t *handle, int status, int events)
{
    mst_tcp_fd *w = (mst_tcp_fd *)handle;
    if (w->owner == NULL)
        return;
    if (status < 0)
        w->events = 0;
    w->ready(w->owner, events, status < 0);
}

static void fd_closed(uv_handle_t *handle)
{
    mst_free(handle);
}

mst_status mst_tcp_fd_new(mst_tcp *t, int fd, void (*ready)(void *, int, bool), void *owner, mst_tcp_fd **out)
{
    mst_tcp_fd *w = mst_zalloc(sizeof *w);
    if (w == NULL)
        return mst_fail_memory();
    w->fd = fd;
    w->ready = ready;
    w->owner = owner;
    int e = uv_poll_init(&t->loop, &w->poll, fd);
    if (e != 0) {
        mst_free(w);
        return mst_fail(MST_EIO, "a socket cannot be polled: %s", uv_strerror(e));
    }
    *out = w;
    return MST_OK;
}

void mst_tcp_fd_want(mst_tcp_fd *w, int events)
{
    if (w->events != events)
        uv_poll_start(&w->poll, events, fd_ready);
    w->events = events;
}

void mst_tcp_fd_close(mst_tcp_fd *w)
{
    if (w == NULL)
        return;
    uv_poll_stop(&w->poll);
    close(w->fd);
    w->owner = NULL;
    uv_close((uv_handle_t *)&w->poll, fd_closed);
}

/* ---- timers ---- */

static void tcp_run_timers(mst_tcp *t, uint64_t now)
{
    t->due_ns = now + LONG_WAIT;
    for (size_t i = 0; i < t->n_peers; i++) {
        mst_tcp_peer *p = t->peers[i];
        if (p->state != MST_TCP_UP)
            continue;
        mst_tcp_due(t, mst_tcp_peer_heartbeat(p, now));
        if (mst_tcp_peer_waits(p) && !p->write_broken) /* the heartbeat thread cannot request this */
            mst_tcp_fd_want(p->socket, UV_READABLE | UV_WRITABLE);
        mst_tcp_peer_check_silence(p, now);
    }
    mst_tcp_dial_run_all_timers(t, now);
    mst_tcp_listen_run_timers(t, now);
}

/* Outside of any event: what events and failures left to do. Events called here may add more. */
static void tcp_settle(mst_tcp *t)
{
    if (t->finished != NULL)
        mst_tcp_report_sent(t);
    while (t->todo != NULL) {
        mst_tcp_peer *p = t->todo;
        t->todo = p->next;
        p->listed = false;
        mst_tcp_peer_settle(p);
    }
}

/* ---- the heartbeat thread ---- */

uint64_t mst_tcp_suspended(mst_tcp *t)
{
    uint64_t limit = t->options.peer_timeout_ms * MST_MS, before = atomic_load(&t->heartbeat_ns);
    uint64_t now = mst_now_ns(), until = atomic_load(&t->suspended_end);
    if (now > before && now - before >= limit) /* the heartbeat thread has not run since */
        return now - before;
    return until != 0 && (now < until || now - until < limit) ? atomic_load(&t->suspended_ns) : 0;
}

static void heartbeat_record_run(mst_tcp *t)
{
    uint64_t now = mst_now_ns(), before = atomic_load(&t->heartbeat_ns);
    if (now - before >= t->options.peer_timeout_ms * MST_MS) {
        atomic_store(&t->suspended_ns, now - before);
        atomic_store(&t->suspended_end, now);
    }
    atomic_store(&t->heartbeat_ns, now);
}

static void *heartbeat_main(void *arg)
{
    mst_tcp *t = arg;
    pthread_mutex_lock(&t->heartbeat_mutex);
    while (!t->ending) {
        uint64_t until = mst_now_ns() + HEARTBEAT_THREAD_MS * MST_MS;
        mst_cond_wait(&t->heartbeat_cond, &t->heartbeat_mutex, until);
        heartbeat_record_run(t);
        if (t->ending || pthread_mutex_trylock(&t->mutex) != 0)
            continue;
        uint64_t now = mst_now_ns();
        for (size_t i = 0; i < t->n_peers; i++)
            if (t->peers[i]->state == MST_TCP_UP) {
                mst_tcp_peer_write(t->peers[i]);
                mst_tcp_peer_heartbeat(t->peers[i], now);
            }
        pthread_mutex_unlock(&t->mutex);
    }
    pthread_mutex_unlock(&t->heartbeat_mutex);
    return NULL;
}

static mst_status heartbeat_start(mst_tcp *t)
{
    atomic_store(&t->heartbeat_ns, mst_now_ns());
    sigset_t all, before; /* signals are for the program's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(&t->heartbeat_thread, NULL, heartbeat_main, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (e != 0)
        return mst_fail(MST_EIO, "net tcp: no thread can be started: %s", strerror(e));
    t->heartbeat_made = true;
    return MST_OK;
}

static void heartbeat_stop(mst_tcp *t)
{
    if (!t->heartbeat_made)
        return;
    pthread_mutex_lock(&t->heartbeat_mutex);
    t->ending = true;
    pthread_cond_signal(&t->heartbeat_cond);
    pthread_mutex_unlock(&t->heartbeat_mutex);
    pthread_join(t->heartbeat_thread, NULL);
}

/* ---- life ---- */

static void tcp_on_async(uv_async_t *handle)
{
    ((mst_tcp *)handle->data)->woken = true;
}

static void tcp_on_timer(uv_timer_t *handle)
{
    uv_stop(handle->loop); /* also when it fires before the wait: the loop would then wait without an end */
}

static void tcp_destroy(mst_net *net)
{
    mst_tcp *t = (mst_tcp *)net;
    heartbeat_stop(t);
    for (size_t i = 0; i < t->n_peers; i++) {
        mst_tcp_peer *p = t->peers[i];
        if (p->state == MST_TCP_UP)
            mst_tcp_peer_disconnect(p, 0, "");
        if (p->state != MST_TCP_DOWN)
            mst_tcp_peer_end(p, false);
        p->report = false;
    }
    t->events = (mst_net_events){0};
    mst_tcp_listen_close(t);
    while (t->todo != NULL) {
        mst_tcp_peer *p = t->todo;
        t->todo = p->next;
        mst_tcp_peer_settle(p);
    }
    if (t->async_made)
        uv_close((uv_handle_t *)&t->async, NULL);
    if (t->timer_made)
        uv_close((uv_handle_t *)&t->timer, NULL);
    if (t->loop_made) {
        uv_run(&t->loop,
               UV_RUN_DEFAULT); /* closes; a name that is being looked up ends by the resolver's timeout */
        uv_loop_close(&t->loop);
    }
    for (size_t i = 0; i < t->n_peers; i++)
        mst_free(t->peers[i]);
    mst_tcp_out_free_all(t);
    pthread_cond_destroy(&t->heartbeat_cond);
    pthread_mutex_destroy(&t->heartbeat_mutex);
    pthread_mutex_destroy(&t->mutex);
    mst_free(t->peers);
    mst_tls_keys_destroy(t->tls_keys);
    if (t->secret != NULL)
        explicit_bzero(t->secret, strlen(t->secret));
    mst_free(t->secret);
    mst_free(t);
}

static mst_status tcp_create(const mst_net_options *options, const mst_net_events *events, void *arg,
                             mst_net **out)
{
    mst_status st = MST_OK;
    mst_tcp *t = mst_zalloc(sizeof *t);
    if (t == NULL)
        return mst_fail_memory();
    pthread_mutex_init(&t->mutex, NULL);
    pthread_mutex_init(&t->heartbeat_mutex, NULL);
    mst_cond_init(&t->heartbeat_cond);
    t->base.engine = &mst_net_tcp;
    t->options = *options;
    t->events = *events;
    t->arg = arg;
    t->due_ns = mst_now_ns() + LONG_WAIT;
    t->finished_last = &t->finished;
    t->past_last = &t->past;
    t->secret = mst_strdup(options->secret != NULL ? options->secret : "");
    t->options.secret = t->secret;
    if (t->secret == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    int e = uv_loop_init(&t->loop);
    t->loop_made = e == 0;
    if (e == 0)
        t->async_made = (e = uv_async_init(&t->loop, &t->async, tcp_on_async)) == 0;
    if (e == 0)
        t->timer_made = (e = uv_timer_init(&t->loop, &t->timer)) == 0;
    if (e != 0) {
        st = mst_fail(MST_EIO, "net tcp: the event loop cannot be made: %s", uv_strerror(e));
        goto out;
    }
    t->async.data = t;
    if (t->secret[0] != '\0')
        TRY_OUT(st, mst_tls_keys_new(t->secret, 0, &t->tls_keys));
    else if (options->tls == MST_NET_TLS_ON)
        TRY_OUT(st, mst_fail(MST_EUSAGE, "TLS needs a secret of the job; give it one, or omit --tls"));
    mst_rng_init(&t->rng, mst_now_ns(), MST_RNG_NET, 0);
    TRY_OUT(st, heartbeat_start(t));
    *out = &t->base;
    t = NULL;
out:
    if (t != NULL)
        tcp_destroy(&t->base);
    return st;
}

/* ---- calls ---- */

/* Turns without waiting for as long as a wait may begin so; ends when something was handled or a wake came. A
 * process that sleeps between messages gets its core back late if others run there. Returns the time. */
static uint64_t tcp_poll_busily(mst_tcp *t, uint64_t now, uint64_t until)
{
    uint64_t seen = t->visible, end = now + t->options.busy_poll_us * (MST_MS / 1000);
    end = end < until ? end : until;
    mst_tcp_doing(t, MST_NET_WAITS);
    while (now < end && t->visible == seen && !t->woken) {
        uv_run(&t->loop, UV_RUN_NOWAIT);
        tcp_settle(t);
        now = mst_now_ns();
    }
    return now;
}

/* One turn of the loop, waiting until `until` at the latest. Returns the time. */
static uint64_t tcp_turn(mst_tcp *t, uint64_t now, uint64_t until)
{
    uint64_t seen = t->visible;
    if (until > t->due_ns)
        until = t->due_ns;
    if (until > now && t->options.busy_poll_us > 0)
        now = tcp_poll_busily(t, now, until);
    bool wait = until > now && t->visible == seen && !t->woken;
    if (wait) {
        uint64_t ns = until - now < LONG_WAIT ? until - now : LONG_WAIT;
        uv_update_time(&t->loop);
        uv_timer_start(&t->timer, tcp_on_timer, (ns + MST_MS - 1) / MST_MS, 0);
        mst_tcp_doing(t, MST_NET_WAITS);
    }
    uv_run(&t->loop, wait ? UV_RUN_ONCE : UV_RUN_NOWAIT);
    tcp_settle(t);
    uint64_t after = mst_now_ns(), planned = wait ? until : now;
    if (after > planned + ABSENCE) /* in events, or the process was suspended */
        t->away_ns += after - planned - ABSENCE;
    if (after >= t->due_ns) {
        tcp_run_timers(t, after);
        tcp_settle(t);
    }
    return after;
}

/* With the mutex held. Turns until something was handled, a wake came or the deadline has passed. */
static void tcp_listen_until(mst_tcp *t, uint64_t deadline)
{
    uint64_t now = mst_now_ns(), before = t->visible;
    if (t->left_ns != 0 && now - t->left_ns > ABSENCE)
        t->away_ns += now - t->left_ns - ABSENCE;
    t->polling = true;
    tcp_settle(t);
    do
        now = tcp_turn(t, now, t->visible != before ? now : deadline);
    while (t->visible == before && !t->woken && now < deadline);
    t->woken = false;
    t->polling = false;
    t->left_ns = now;
}

static mst_status tcp_poll(mst_net *net, uint64_t deadline_ns)
{
    mst_tcp *t = (mst_tcp *)net;
    mst_tcp_enter(t);
    tcp_listen_until(t, deadline_ns);
    pthread_mutex_unlock(&t->mutex);
    return MST_OK;
}

static void tcp_wake(mst_net *net)
{
    uv_async_send(&((mst_tcp *)net)->async);
}

/* A peer that has not taken all that was sent to it: from here, or (not yet received) from the system. */
static const mst_tcp_peer *tcp_laggard(mst_tcp *t, bool *in_system)
{
    const mst_tcp_peer *found = NULL;
    for (size_t i = 0; i < t->n_peers; i++) {
        const mst_tcp_peer *p = t->peers[i];
        int unreceived = 0;
        if (p->state != MST_TCP_UP || p->write_broken)
            continue;
        if (mst_tcp_peer_waits(p)) {
            *in_system = false;
            return p;
        }
        if (!p->is_unix && ioctl(p->socket->fd, SIOCOUTQ, &unreceived) == 0 && unreceived > 0) {
            *in_system = true;
            found = p;
        }
    }
    return found;
}

/* Bytes in the system's hands would be lost when the connection is reset at its end, so TCP's
 * acknowledgements are waited for as well; no event reports them, so they are polled at growing
 * intervals. A Unix socket's bytes stay with the receiver in any case. */
static mst_status tcp_flush_until(mst_tcp *t, uint64_t deadline)
{
    uint64_t pause = OUTQ_WAIT_MIN;
    bool in_system = false;
    for (;;) {
        const mst_tcp_peer *p = tcp_laggard(t, &in_system);
        uint64_t now = mst_now_ns();
        if (p == NULL)
            return MST_OK;
        if (now >= deadline)
            return mst_fail(MST_ETIMEOUT,
                            "%s has not received everything that was sent to it: %" PRIu64
                            " bytes are still queued",
                            p->name, p->stats.queued);
        uint64_t until = deadline;
        if (in_system && deadline - now > pause) {
            until = now + pause;
            pause = pause * 2 < OUTQ_WAIT_MAX ? pause * 2 : OUTQ_WAIT_MAX;
        }
        tcp_listen_until(t, until);
    }
}

static mst_status tcp_flush(mst_net *net, uint64_t deadline_ns)
{
    mst_tcp *t = (mst_tcp *)net;
    mst_tcp_enter(t);
    mst_status st;
    if (t->polling) {
        st = mst_fail(MST_EUSAGE, "net tcp: flush was called inside an event");
    } else {
        t->flushing = true;
        st = tcp_flush_until(t, deadline_ns);
        t->flushing = false;
    }
    pthread_mutex_unlock(&t->mutex);
    return st;
}

static mst_status tcp_listen(mst_net *net, const char *address, char *bound, size_t bound_size)
{
    mst_tcp *t = (mst_tcp *)net;
    mst_tcp_enter(t);
    mst_status st = mst_tcp_listen(t, address, bound, bound_size);
    pthread_mutex_unlock(&t->mutex);
    return st;
}

static mst_status tcp_connect(mst_net *net, const char *address, uint64_t deadline_ns, uint32_t *peer)
{
    mst_tcp *t = (mst_tcp *)net;
    mst_tcp_enter(t);
    mst_status st = mst_tcp_dial_new(t, address, deadline_ns, peer);
    pthread_mutex_unlock(&t->mutex);
    return st;
}

static mst_status tcp_send(mst_net *net, uint32_t peer, const mst_message *m, const mst_piece *pieces,
                           uint32_t n_pieces, void *token)
{
    mst_tcp *t = (mst_tcp *)net;
    mst_tcp_enter(t);
    mst_tcp_peer *p = mst_tcp_peer_at(t, peer);
    mst_status st = p != NULL ? mst_tcp_peer_send(p, m, pieces, n_pieces, token)
                              : mst_fail(MST_EPEER, "net tcp: peer %u is not connected", peer);
    pthread_mutex_unlock(&t->mutex);
    return st;
}

static void tcp_drop(mst_net *net, uint32_t peer, const char *message)
{
    mst_tcp *t = (mst_tcp *)net;
    mst_tcp_enter(t);
    mst_tcp_peer *p = mst_tcp_peer_at(t, peer);
    if (p != NULL && p->state == MST_TCP_UP)
        mst_tcp_peer_disconnect(p, 0, message != NULL ? message : "");
    if (p != NULL && p->state != MST_TCP_DOWN)
        mst_tcp_peer_end(p, false);
    if (p != NULL)
        p->report = false;
    pthread_mutex_unlock(&t->mutex);
}

static void tcp_stats(const mst_net *net, uint32_t peer, mst_net_stats *out)
{
    mst_tcp *t = (mst_tcp *)net; /* the mutex is not part of what const promises */
    mst_tcp_enter(t);
    mst_tcp_peer *p = mst_tcp_peer_at(t, peer);
    if (p != NULL)
        mst_tcp_rate_now(p);
    *out = p != NULL ? p->stats : t->total;
    for (size_t i = 0; peer == MST_PEER_NONE && i < t->n_peers; i++) {
        const mst_net_stats *one = &t->peers[i]->stats;
        out->queued += one->queued;
        if (one->rate <= out->rate)
            continue;
        out->rate = one->rate;
        memcpy(out->link, one->link, sizeof out->link);
    }
    pthread_mutex_unlock(&t->mutex);
}

static void tcp_name_of(const mst_net *net, uint32_t peer, char *out, size_t size)
{
    mst_tcp *t = (mst_tcp *)net;
    mst_tcp_enter(t);
    const mst_tcp_peer *p = mst_tcp_peer_at(t, peer);
    snprintf(out, size, "%s", p != NULL ? p->name : "an unknown peer");
    pthread_mutex_unlock(&t->mutex);
}

const mst_net_engine mst_net_tcp = {
    .name = "tcp",
    .help = "TCP between hosts and Unix sockets on one host",
    .detects_death = true,
    .survives_death = true,
    .sleeps = true,
    .create = tcp_create,
    .destroy = tcp_destroy,
    .listen = tcp_listen,
    .connect = tcp_connect,
    .send = tcp_send,
    .drop = tcp_drop,
    .poll = tcp_poll,
    .wake = tcp_wake,
    .flush = tcp_flush,
    .stats = tcp_stats,
    .name_of = tcp_name_of,
};
