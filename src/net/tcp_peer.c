/* Engine tcp, an authenticated connection: reading, writing, ending; contract in tcp_impl.h.
 *
 * A send writes to the socket at once if the queue is empty. Bytes that the system does not accept are
 * queued: in place if the caller waits for `sent`, otherwise as a copy. Answers are delayed only while
 * further messages of the peer have been read already; they leave together with the answers to those, which
 * reduces the cost per message on both sides of a loaded server. Reading fills the stage or the current body
 * with one call. When a write fails, the peer may have sent a DISCONNECT: the remaining bytes are read first,
 * then the peer is down.
 *
 * A frame is sealed when its turn to be written comes, a large body in chunks, each just before the system
 * copies it: the second of the two finds the bytes in the cache.
 *
 * Invariants
 * 1. p->out's first message may be partly written (frame.done > 0); nothing may be written between its parts.
 * The frames that are sealed, wholly or in part, are the first ones of p->out.
 * 2. stats.queued is the sum of frame.size - frame.done over p->out.
 * 3. The heartbeat thread calls mst_tcp_peer_write and mst_tcp_peer_heartbeat only, and they leave the loop's
 * handles alone. */
#include <errno.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "net/tcp_impl.h"

#define SPARE_MAX       64                      /* records kept for reuse */
#define IOV_MAX_OUT     64                      /* pieces handed to one write */
#define READS_MAX       16                      /* reads from one peer before the others get their turn */
#define WRITE_MAX       (8u << 20)              /* bytes to one peer before the others get their turn */
#define PAST_MAX        1024                    /* past peers that are kept */
#define SEAL_MAX        (512u << 10)            /* bytes sealed at a time, just before they are written */
#define HEARTBEAT_SLACK (MST_TCP_HEARTBEAT / 4) /* a little early, so that one wake-up serves many peers */
#define CORK_MAX        65536                   /* bytes that wait to leave together */
#define DRAIN_MAX       64 /* reads before a close, so that it does not reset the connection */

/* ---- what waits ---- */

static mst_tcp_out *out_new(mst_tcp *t, size_t copied)
{
    mst_tcp_out *o = copied == 0 ? t->spare : NULL;
    if (o != NULL) {
        t->spare = o->next;
        t->n_spare--;
    } else {
        o = mst_alloc(sizeof *o + copied);
    }
    if (o != NULL) {
        o->next = NULL;
        o->copied = copied > 0;
    }
    return o;
}

static void out_free(mst_tcp *t, mst_tcp_out *o)
{
    if (o->copied || t->n_spare == SPARE_MAX) {
        mst_free(o);
        return;
    }
    o->next = t->spare;
    t->spare = o;
    t->n_spare++;
}

static void out_free_list(mst_tcp_out *o)
{
    while (o != NULL) {
        mst_tcp_out *next = o->next;
        mst_free(o);
        o = next;
    }
}

void mst_tcp_out_free_all(mst_tcp *t)
{
    out_free_list(t->spare);
    out_free_list(t->finished);
    t->spare = t->finished = NULL;
}

/* A wholly written message: back to its sender by `sent`, or to the spares. */
static void out_done(mst_tcp *t, mst_tcp_out *o)
{
    if (o->token == NULL) {
        out_free(t, o);
        return;
    }
    o->next = NULL;
    *t->finished_last = o;
    t->finished_last = &o->next;
}

void mst_tcp_report_sent(mst_tcp *t)
{
    mst_tcp_out *o;
    while ((o = t->finished) != NULL) {
        t->finished = o->next;
        if (t->finished == NULL)
            t->finished_last = &t->finished;
        void *token = o->token;
        uint32_t peer = o->peer;
        out_free(t, o);
        const mst_tcp_peer *p = mst_tcp_peer_at(t, peer);
        if (p == NULL || p->state != MST_TCP_UP)
            continue;
        mst_tcp_leave(t);
        t->events.sent(t->arg, peer, token);
        mst_tcp_enter(t);
    }
}

static void peer_list_todo(mst_tcp_peer *p)
{
    if (p->listed)
        return;
    p->listed = true;
    p->next = p->net->todo;
    p->net->todo = p;
}

/* ---- life ---- */

/* A peer in a new place, or in that of the oldest past peer if many are kept. NULL: no memory. */
static mst_tcp_peer *peer_place(mst_tcp *t)
{
    mst_tcp_peer *p = t->past;
    if (t->n_past > PAST_MAX) {
        uint32_t number = p->number + MST_TCP_PLACES;
        t->past = p->next;
        t->n_past--;
        *p = (mst_tcp_peer){.number = number};
        return p;
    }
    if (t->n_peers == MST_TCP_PLACES - 1 || /* the last number is MST_PEER_NONE */
        !mst_grow(&t->peers, &t->peers_capacity, t->n_peers + 1, sizeof(void *)) ||
        (p = mst_zalloc(sizeof *p)) == NULL)
        return NULL;
    p->number = (uint32_t)t->n_peers;
    t->peers[t->n_peers++] = p;
    return p;
}

mst_tcp_peer *mst_tcp_peer_new(mst_tcp *t)
{
    mst_net_loss *why = mst_zalloc(sizeof *why);
    mst_tcp_peer *p = why != NULL ? peer_place(t) : NULL;
    if (p == NULL) {
        mst_free(why);
        return NULL;
    }
    p->net = t;
    p->why = why;
    return p;
}

void mst_tcp_peer_end(mst_tcp_peer *p, bool report)
{
    if (p->state == MST_TCP_DOWN)
        return;
    p->net->n_up -= p->state == MST_TCP_UP;
    p->state = MST_TCP_DOWN;
    p->report = report;
    mst_tcp_fd_close(p->socket);
    p->socket = NULL;
    if (p->dial != NULL)
        mst_tcp_dial_cancel(p->dial);
    p->dial = NULL;
    out_free_list(p->out);
    p->out = p->out_last = NULL;
    p->stats.queued = 0;
    peer_list_todo(p);
}

void mst_tcp_peer_fail(mst_tcp_peer *p, mst_net_reason reason, mst_status code, const char *format, ...)
{
    if (p->state == MST_TCP_DOWN)
        return;
    va_list args;
    va_start(args, format);
    mst_vfail(code, format, args);
    va_end(args);
    p->why->reason = reason;
    mst_error_save(&p->why->error, code);
    mst_tcp_peer_end(p, true);
}

/* This end was silent for so long that the peer has dropped it. */
static void peer_fail_stopped(mst_tcp_peer *p, uint64_t silent_ns)
{
    const mst_identity *self = &p->net->options.self;
    p->why->silent_s = (double)silent_ns * 1e-9;
    mst_tcp_peer_fail(p, MST_NET_STOPPED, MST_EPEER, "%s %" PRIu32 " was silent for %.1f s and %s dropped it",
                      mst_role_name(self->role), self->index, p->why->silent_s, p->name);
}

/* The connection ended without a DISCONNECT. If this process was suspended for longer than the peer timeout,
 * that is the reason.
 */
static void peer_fail_died(mst_tcp_peer *p, const char *how)
{
    uint64_t suspended_ns = mst_tcp_suspended(p->net);
    if (suspended_ns > 0)
        peer_fail_stopped(p, suspended_ns);
    else
        mst_tcp_peer_fail(p, MST_NET_DIED, MST_EPEER, "%s died: %s", p->name, how);
}

/* ---- reading ---- */

static mst_status peer_on_body(void *arg, const mst_message *m, void **out)
{
    mst_tcp_peer *p = arg;
    mst_tcp *t = p->net;
    mst_tcp_leave(t);
    mst_status st = t->events.body(t->arg, p->number, m, out);
    mst_tcp_enter(t);
    return st == MST_OK && p->state != MST_TCP_UP ? MST_ESTOPPED : st;
}

static mst_status peer_on_message(void *arg, const mst_message *m, void *body)
{
    mst_tcp_peer *p = arg;
    mst_tcp *t = p->net;
    mst_count_in(&p->stats, &t->total, m);
    p->corked = p->in->more || (p->corked && p->out != NULL);
    mst_tcp_leave(t);
    mst_status st = t->events.message(t->arg, p->number, m, body);
    mst_tcp_enter(t);
    return st == MST_OK && p->state != MST_TCP_UP ? MST_ESTOPPED : st;
}

static mst_status peer_on_own(void *arg, const mst_message *m, const uint8_t *body)
{
    mst_tcp_peer *p = arg;
    if (m->type != MST_WIRE_DISCONNECT)
        return MST_OK;
    char text[MST_WIRE_OWN_MAX + 1];
    memcpy(text, body, (size_t)m->size);
    text[m->size] = '\0';
    mst_utf8_mask(text);
    if (m->flags & MST_WIRE_YOUR_SILENCE)
        peer_fail_stopped(p, m->step);
    else if (text[0] == '\0')
        mst_tcp_peer_fail(p, MST_NET_CLOSED, MST_EPEER, "%s left", p->name);
    else
        mst_tcp_peer_fail(p, MST_NET_REFUSED, MST_EPEER, "%s closed the connection: %s", p->name, text);
    return MST_ESTOPPED;
}

static const mst_frames_events frame_events = {
    .body = peer_on_body, .message = peer_on_message, .own = peer_on_own};

static void peer_uncork(mst_tcp_peer *p)
{
    if (p->corked)
        mst_tcp_peer_write(p);
    p->corked = false;
}

/* n bytes have arrived. False: the peer is down now. */
static bool peer_take(mst_tcp_peer *p, size_t n)
{
    p->received_ns = mst_tcp_silence_clock(p->net, mst_now_ns());
    mst_status st = mst_frames_take(p->in, n, &frame_events, p);
    if (st != MST_OK && p->state == MST_TCP_UP) {
        char text[MST_WIRE_OWN_MAX];
        snprintf(text, sizeof text, "%s", mst_error_text());
        mst_tcp_peer_disconnect(p, 0, text);
        mst_tcp_peer_fail(p, MST_NET_DIED, MST_EPEER, "%s was dropped: %s", p->name, text);
    }
    if (p->state != MST_TCP_UP)
        return false;
    if (p->corked && p->out != NULL)
        mst_tcp_doing(p->net, MST_NET_WRITES);
    peer_uncork(p);
    if (mst_tcp_peer_waits(p) && !p->write_broken)
        mst_tcp_fd_want(p->socket, UV_READABLE | UV_WRITABLE);
    return true;
}

/* Reads what is there; to_end: all of it, else a fair share. */
static void peer_read_some(mst_tcp_peer *p, bool to_end)
{
    bool more = false; /* TLS has more than the socket shows */
    for (int i = 0; to_end || more || i < READS_MAX; i++) {
        struct iovec room[2];
        mst_tcp_doing(p->net, MST_NET_READS);
        int n_room = mst_frames_room(p->in, room);
        size_t most = room[0].iov_len + (n_room > 1 ? room[1].iov_len : 0);
        ssize_t n = p->tls != NULL ? mst_tls_readv(p->tls, room, n_room) : readv(p->socket->fd, room, n_room);
        if (n > 0) {
            more = p->tls != NULL && mst_tls_has_more(p->tls);
            if (!peer_take(p, (size_t)n) || ((size_t)n < most && !to_end && !more))
                return;
        } else if (n == 0) {
            peer_fail_died(p, "the connection closed unexpectedly");
            return;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != EINTR) {
            char how[160];
            if (errno == EBADMSG)
                snprintf(how, sizeof how, "a TLS record was changed on the way");
            else
                snprintf(how, sizeof how, "the connection broke (%s)", strerror(errno));
            peer_fail_died(p, how);
            return;
        }
    }
}

static void peer_on_ready(void *owner, int events, bool broken)
{
    mst_tcp_peer *p = owner;
    if (events & UV_WRITABLE) {
        mst_tcp_doing(p->net, MST_NET_WRITES);
        mst_tcp_peer_write(p);
    }
    if (events & UV_READABLE || broken)
        peer_read_some(p, broken);
    if (p->state != MST_TCP_UP)
        return;
    if (broken)
        peer_fail_died(p, "the connection broke");
    else
        mst_tcp_fd_want(p->socket,
                        UV_READABLE | (mst_tcp_peer_waits(p) && !p->write_broken ? UV_WRITABLE : 0));
}

/* Frames in and their seals in both directions. */
static mst_status peer_open_frames(mst_tcp_peer *p, const mst_shake *shake)
{
    uint8_t keys[2][MST_SEAL_KEY]; /* in, out */
    mst_seal in;
    if (!mst_shake_key(shake, !shake->dialer, keys[0]) || !mst_shake_key(shake, shake->dialer, keys[1]))
        return mst_fail(MST_EIO, "no keys can be made for the connection");
    p->in = mst_alloc(sizeof *p->in);
    mst_status st = p->in != NULL ? mst_seal_init(&in, shake->seal, keys[0]) : mst_fail_memory();
    if (st == MST_OK && (st = mst_seal_init(&p->seal, shake->seal, keys[1])) != MST_OK)
        mst_seal_fini(&in);
    OPENSSL_cleanse(keys, sizeof keys);
    if (st != MST_OK) {
        mst_free(p->in);
        p->in = NULL;
        return st;
    }
    mst_frames_init(p->in, p->net->options.max_body, &in);
    return MST_OK;
}

mst_status mst_tcp_peer_up(mst_tcp_peer *p, mst_tcp_fd *w, mst_join *join, const char *address)
{
    mst_tcp *t = p->net;
    const mst_identity *who = &join->shake.other;
    TRY(peer_open_frames(p, &join->shake));
    p->who = *who;
    p->tls = join->tls;
    join->tls = NULL; /* handed over */
    memcpy(p->in->stage, join->bytes + join->at, join->left);
    p->n_early = join->left;
    struct sockaddr_storage here = {0};
    socklen_t length = sizeof here;
    p->is_unix = getsockname(w->fd, (struct sockaddr *)&here, &length) == 0 && here.ss_family == AF_UNIX;
    int n = snprintf(p->name, sizeof p->name, "%s %u", mst_role_name(who->role), who->index);
    if (!p->is_unix)
        snprintf(p->name + n, sizeof p->name - (size_t)n, " (%s)", address);
    mst_tcp_rate_begin(p, w->fd);
    p->socket = w;
    w->owner = p;
    w->ready = peer_on_ready;
    p->state = MST_TCP_UP;
    t->n_up++;
    p->sent_ns = mst_now_ns();
    p->received_ns = mst_tcp_silence_clock(t, p->sent_ns);
    mst_tcp_due(t, p->sent_ns + MST_TCP_HEARTBEAT);
    mst_tcp_fd_want(w, UV_READABLE);
    return MST_OK;
}

void mst_tcp_peer_begin(mst_tcp_peer *p)
{
    mst_tcp *t = p->net;
    if (p->state != MST_TCP_UP)
        return;
    mst_tcp_leave(t);
    t->events.up(t->arg, p->number, &p->who);
    mst_tcp_enter(t);
    if (p->n_early > 0 && p->state == MST_TCP_UP)
        peer_take(p, p->n_early);
    if (p->tls != NULL && p->state == MST_TCP_UP) /* more may be in its buffers than the socket shows */
        peer_read_some(p, false);
}

void mst_tcp_peer_settle(mst_tcp_peer *p)
{
    mst_tcp *t = p->net;
    if (p->state == MST_TCP_UP && p->write_broken) {
        peer_read_some(p, true);
        peer_fail_died(p, "it no longer accepts messages");
        return; /* listed again */
    }
    if (p->state != MST_TCP_DOWN)
        return;
    if (p->report) {
        p->report = false;
        mst_tcp_leave(t);
        t->events.down(t->arg, p->number, p->why);
        mst_tcp_enter(t);
    }
    if (p->in != NULL)
        mst_frames_fini(p->in);
    mst_seal_fini(&p->seal);
    mst_tls_destroy(p->tls);
    p->tls = NULL;
    mst_free(p->in);
    mst_free(p->why);
    p->in = NULL;
    p->why = NULL;
    p->next = NULL;
    *t->past_last = p;
    t->past_last = &p->next;
    t->n_past++;
}

/* ---- writing ---- */

static void peer_break_writes(mst_tcp_peer *p)
{
    p->write_broken = true;
    peer_list_todo(p);
}

/* Writes as many bytes as the socket accepts, and returns their number; -1: the socket is closed for writing.
 */
static ssize_t peer_write_some(mst_tcp_peer *p, struct iovec *iov, size_t n_iov)
{
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = n_iov};
    ssize_t n;
    if (p->tls != NULL) {
        n = mst_tls_writev(p->tls, iov, n_iov);
        if (n > 0)
            p->sent_ns = mst_now_ns();
        return n;
    }
    do
        n = sendmsg(p->socket->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ? 0 : -1;
    if (n > 0)
        p->sent_ns = mst_now_ns();
    return n;
}

/* Writes the frames from o on, a chunk of them: *asked bytes. As peer_write_some. */
static ssize_t peer_write_chunk(mst_tcp_peer *p, mst_tcp_out *o, uint64_t *asked)
{
    struct iovec iov[IOV_MAX_OUT];
    uint64_t most = p->seal.kind == MST_SEAL_NONE ? WRITE_MAX : SEAL_MAX;
    size_t n_iov = 0;
    *asked = 0;
    for (; o != NULL && *asked < most; o = o->next) {
        if (!mst_frame_out_seal(&o->frame, &p->seal, o->frame.done + most - *asked)) {
            errno = EPROTO;
            return -1;
        }
        n_iov += mst_frame_out_gather(&o->frame, iov + n_iov, IOV_MAX_OUT - n_iov);
        *asked += o->frame.sealed - o->frame.done;
        if (n_iov + MST_PIECE_MAX + 2 > IOV_MAX_OUT || o->frame.sealed < o->frame.size)
            break;
    }
    return peer_write_some(p, iov, n_iov);
}

void mst_tcp_peer_write(mst_tcp_peer *p)
{
    mst_tcp *t = p->net;
    uint64_t written = 0, asked = 0;
    if (p->out == NULL && !p->write_broken && mst_tcp_peer_waits(p) && peer_write_some(p, NULL, 0) < 0)
        peer_break_writes(p);
    while (p->out != NULL && !p->write_broken && written < WRITE_MAX) {
        ssize_t n = peer_write_chunk(p, p->out, &asked);
        if (n < 0)
            peer_break_writes(p);
        if (n <= 0)
            return;
        written += (uint64_t)n;
        p->stats.queued -= (uint64_t)n;
        for (uint64_t left = (uint64_t)n; left > 0 && p->out != NULL;) {
            mst_tcp_out *o = p->out;
            uint64_t part = o->frame.size - o->frame.done < left ? o->frame.size - o->frame.done : left;
            o->frame.done += part;
            left -= part;
            if (o->frame.done == o->frame.size) {
                p->out = o->next;
                out_done(t, o);
            }
        }
        if (p->out == NULL)
            p->out_last = NULL;
    }
    t->visible += t->flushing && !mst_tcp_peer_waits(p);
}

/* Writes o, which is not in the queue, as far as the system takes it. False: it takes nothing any more. */
static bool peer_write_alone(mst_tcp_peer *p, mst_tcp_out *o)
{
    for (uint64_t asked = 1, taken = 1; taken == asked && o->frame.done < o->frame.size;) {
        ssize_t n = peer_write_chunk(p, o, &asked);
        if (n < 0) {
            peer_break_writes(p);
            return false;
        }
        taken = (uint64_t)n;
        o->frame.done += taken;
    }
    return true;
}

static void peer_enqueue(mst_tcp_peer *p, mst_tcp_out *o)
{
    if (p->out_last != NULL)
        p->out_last->next = o;
    else
        p->out = o;
    p->out_last = o;
    p->stats.queued += o->frame.size - o->frame.done;
}

static void out_init(mst_tcp_out *o, const mst_tcp_peer *p, const mst_message *m, const mst_piece *pieces,
                     uint32_t n_pieces, void *token)
{
    o->next = NULL;
    o->copied = false;
    o->token = token;
    o->peer = p->number;
    mst_frame_out_init(&o->frame, m, pieces, n_pieces);
}

/* o for the queue, with a copy of its body. NULL: no memory; the frame counts as not sent, or, if half of it
 * is out, nothing can follow it. */
static mst_tcp_out *out_copy(mst_tcp_peer *p, const mst_tcp_out *o)
{
    size_t body = 0;
    for (uint32_t i = 0; i < o->frame.n_pieces; i++)
        body += o->frame.pieces[i].size;
    mst_tcp_out *copy = out_new(p->net, body);
    if (copy == NULL) {
        if (o->frame.sealed > 0)
            p->seal.frame = o->frame.number;
        if (o->frame.done > 0)
            peer_break_writes(p);
        return NULL;
    }
    *copy = *o;
    copy->copied = body > 0;
    if (body > 0) {
        mst_pieces_copy(copy + 1, o->frame.pieces, o->frame.n_pieces);
        copy->frame.n_pieces = 1;
        copy->frame.pieces[0] = (mst_piece){.data = copy + 1, .size = body};
    }
    return copy;
}

mst_status mst_tcp_peer_send(mst_tcp_peer *p, const mst_message *m, const mst_piece *pieces,
                             uint32_t n_pieces, void *token)
{
    mst_tcp *t = p->net;
    if (p->state != MST_TCP_UP || p->write_broken)
        return mst_fail(MST_EPEER, "%s is not connected", p->name);
    if (p->stats.queued > t->options.max_queue)
        return mst_fail(MST_ETIMEOUT, "%s has not received %" PRIu64 " bytes that were sent to it before",
                        p->name, p->stats.queued);
    mst_tcp_out local, *o = &local;
    if (token != NULL && (o = out_new(t, 0)) == NULL)
        return mst_fail_memory();
    out_init(o, p, m, pieces, n_pieces, token);
    if (p->stats.queued + o->frame.size > CORK_MAX)
        peer_uncork(p);
    mst_tcp_rate_look(p, p->socket->fd, o->frame.size);
    if (p->out == NULL && !p->corked && !peer_write_alone(p, o)) {
        if (o != &local)
            out_free(t, o);
        return mst_fail(MST_EPEER, "%s no longer receives messages (%s)", p->name, strerror(errno));
    }
    if (o->frame.done < o->frame.size) {
        if (o == &local && (o = out_copy(p, &local)) == NULL)
            return mst_fail_memory();
        peer_enqueue(p, o);
        if (!p->corked)
            mst_tcp_fd_want(p->socket, UV_READABLE | UV_WRITABLE);
    } else if (o != &local) {
        out_done(t, o);
    }
    if (p->tls != NULL && mst_tls_has_unsent(p->tls))
        mst_tcp_fd_want(p->socket, UV_READABLE | UV_WRITABLE);
    mst_count_out(&p->stats, &t->total, m);
    return MST_OK;
}

uint64_t mst_tcp_peer_heartbeat(mst_tcp_peer *p, uint64_t now_ns)
{
    if (mst_tcp_peer_waits(p) || p->write_broken)
        return now_ns + MST_TCP_HEARTBEAT;
    if (now_ns + HEARTBEAT_SLACK < p->sent_ns + MST_TCP_HEARTBEAT)
        return p->sent_ns + MST_TCP_HEARTBEAT;
    mst_tcp_out beat, *rest;
    out_init(&beat, p, &(mst_message){.type = MST_WIRE_HEARTBEAT}, NULL, 0, NULL);
    if (!peer_write_alone(p, &beat))
        return now_ns + MST_TCP_HEARTBEAT;
    if (beat.frame.done == 0)
        p->seal.frame = beat.frame.number; /* not sent */
    else if (beat.frame.done < beat.frame.size && (rest = out_copy(p, &beat)) != NULL)
        peer_enqueue(p, rest);
    return now_ns + MST_TCP_HEARTBEAT;
}

void mst_tcp_peer_check_silence(mst_tcp_peer *p, uint64_t now_ns)
{
    mst_tcp *t = p->net;
    uint64_t limit = t->options.peer_timeout_ms * MST_MS, clock_ns = mst_tcp_silence_clock(t, now_ns);
    uint64_t silent = clock_ns > p->received_ns ? clock_ns - p->received_ns
                                                : 0; /* 0 if a byte arrived after `now_ns` was read */
    if (silent < limit) {
        mst_tcp_due(t, now_ns + (limit - silent));
        return;
    }
    char byte;
    if (recv(p->socket->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 ||
        errno != EAGAIN) { /* unread bytes, or the end */
        p->received_ns = clock_ns;
        mst_tcp_due(t, now_ns + limit);
        return;
    }
    char text[64];
    snprintf(text, sizeof text, "it was silent for %.1f s", (double)silent * 1e-9);
    mst_tcp_peer_disconnect(p, silent, text);
    p->why->silent_s = (double)silent * 1e-9;
    mst_tcp_peer_fail(
        p, MST_NET_SILENT, MST_EPEER,
        "%s has been silent for %.1f s: its process is stopped or the link is cut (peer timeout %.1f s)",
        p->name, (double)silent * 1e-9, (double)limit * 1e-9);
}

void mst_tcp_peer_disconnect(mst_tcp_peer *p, uint64_t silent_ns, const char *message)
{
    peer_uncork(p);
    if (p->write_broken || (p->out != NULL && p->out->frame.done > 0))
        return;
    uint8_t scratch[4096];
    uint64_t asked = 0;
    mst_tcp_out last;
    size_t length = strlen(message) < MST_WIRE_OWN_MAX ? strlen(message) : MST_WIRE_OWN_MAX;
    mst_message m = {.type = MST_WIRE_DISCONNECT,
                     .flags = silent_ns > 0 ? MST_WIRE_YOUR_SILENCE : 0,
                     .step = silent_ns,
                     .size = length};
    mst_piece piece = {.data = message, .size = length};
    if (p->out != NULL && p->out->frame.sealed > 0) /* it takes the place of the first message that waits */
        p->seal.frame = p->out->frame.number;
    out_init(&last, p, &m, &piece, 1, NULL);
    (void)peer_write_chunk(p, &last, &asked);
    for (int i = 0; i < DRAIN_MAX; i++)
        if (recv(p->socket->fd, scratch, sizeof scratch, MSG_DONTWAIT) <= 0)
            break;
}
