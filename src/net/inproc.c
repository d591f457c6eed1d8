/* Engine inproc: threads of one process; contract in net.h.
 *
 * One mutex for the whole process guards names, links and queues. Bodies are copied outside of it, straight
 * from the sender's pieces to the receiver's memory (or from a copy, if the sender does not wait for `sent`).
 * A net that polls sleeps on its eventfd.
 *
 * A link has two ends, one peer in each net. A message waits in the receiver's end. Ending a link marks the
 * other end, which hands out what arrived before and then reports down.
 *
 * Invariants, under the mutex
 * 1. p->other->other == p while both ends exist; an end that went down has no other.
 * 2. While the first message of an inbox is copied its end is busy; ending the link from the other side waits
 * for that, so that pieces do not change under the copy.
 * 3. p->stats.queued of the sender is the sum of the sizes in its other's inbox. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "net/net.h"
#include "net/wire.h"

#define NAME_MAX_HERE 128
typedef struct inproc inproc;
typedef struct inpeer inpeer;

typedef struct inmessage {
    struct inmessage *next;
    mst_message m;
    void *token;
    uint32_t n_pieces;
    mst_piece pieces[MST_PIECE_MAX];
} inmessage;

typedef struct insent {
    struct insent *next;
    uint32_t peer;
    void *token;
} insent;

typedef enum instate {
    IN_DIALING,
    IN_UP,
    IN_ENDED, /* the other end is gone; what is in the inbox comes first, then `down` */
    IN_DOWN,
} instate;

struct inpeer {
    inproc *net;
    uint32_t number;
    instate state;
    bool fresh; /* linked, but `up` is still to be called */
    bool busy;  /* the first message of the inbox is being copied */
    inpeer *other;
    mst_identity who;
    uint64_t start_ns, deadline_ns; /* while DIALING */
    inmessage *inbox, **inbox_last;
    mst_net_loss why;
    mst_net_stats stats;
    char address[NAME_MAX_HERE];
    char name[NAME_MAX_HERE + 32];
};

typedef struct inname {
    struct inname *next;
    inproc *net;
    char text[NAME_MAX_HERE];
} inname;

struct inproc {
    mst_net base;
    mst_net_options options;
    char *secret;
    mst_net_events events;
    void *arg;
    int event;         /* eventfd: something to do */
    atomic_bool woken; /* by mst_net_wake */
    bool polling;      /* the owner's alone */
    bool flushing;
    inpeer **peers;
    size_t n_peers, peers_capacity;
    insent *sent, **sent_last;
    mst_net_stats total;
    inproc *next; /* of all nets */
};

static pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER; /* guards everything here */
static pthread_cond_t g_copied = PTHREAD_COND_INITIALIZER;  /* some busy message is not busy any more */
static inname *g_names;
static inproc *g_nets;

static void inproc_lock(void)
{
    pthread_mutex_lock(&g_mutex);
}

static void inproc_unlock(void)
{
    pthread_mutex_unlock(&g_mutex);
}

static void inproc_ring(inproc *n)
{
    uint64_t one = 1;
    int e = errno; /* of the code that a signal handler interrupted */
    ssize_t written = write(n->event, &one, sizeof one);
    (void)written; /* full: it rings already */
    errno = e;
}

static inpeer *inpeer_at(const inproc *n, uint32_t number)
{
    return number < n->n_peers ? n->peers[number] : NULL;
}

static inpeer *inpeer_new(inproc *n, const char *address)
{
    if (!mst_grow(&n->peers, &n->peers_capacity, n->n_peers + 1, sizeof(void *)))
        return NULL;
    inpeer *p = mst_zalloc(sizeof *p);
    if (p == NULL)
        return NULL;
    p->net = n;
    p->number = (uint32_t)n->n_peers;
    p->inbox_last = &p->inbox;
    snprintf(p->address, sizeof p->address, "%s", address);
    snprintf(p->name, sizeof p->name, "%s", address);
    n->peers[n->n_peers++] = p;
    return p;
}

/* ---- messages ---- */

/* A message has left the sender's hands: back to it by `sent`, or freed. */
static void inpeer_release(inpeer *receiver, inmessage *x, bool delivered)
{
    inpeer *sender = receiver->other;
    if (sender != NULL) {
        sender->stats.queued -= mst_frame_size(x->m.size);
        if (sender->net->flushing && sender->stats.queued == 0) {
            atomic_store(&sender->net->woken, true);
            inproc_ring(sender->net);
        }
    }
    void *token = x->token;
    if (!delivered || token == NULL || sender == NULL) {
        mst_free(x);
        return;
    }
    insent *s =
        (insent *)(void *)x; /* a message is larger: its memory is reused, so that no allocation can fail */
    _Static_assert(sizeof(insent) <= sizeof(inmessage), "reuse of a message's memory");
    *s = (insent){.peer = sender->number, .token = token};
    *sender->net->sent_last = s;
    sender->net->sent_last = &s->next;
    inproc_ring(sender->net);
}

/* Empties p's inbox. keeps_copies: a prefix of messages whose pieces were copied stays, since the sender's
 * own pieces are about to change. */
static void inpeer_clear_inbox(inpeer *p, bool keeps_copies)
{
    inmessage **at = &p->inbox;
    while (keeps_copies && *at != NULL && (*at)->token == NULL)
        at = &(*at)->next;
    while (*at != NULL) {
        inmessage *x = *at;
        *at = x->next;
        inpeer_release(p, x, false);
    }
    p->inbox_last = at;
}

/* Ends the link from p's side; the peer receives the message. p itself is not reported. */
static void inpeer_end(inpeer *p, const char *message)
{
    while (p->other != NULL && p->other->busy) /* for the length of a copy; the other end may go meanwhile */
        pthread_cond_wait(&g_copied, &g_mutex);
    inpeer *other = p->other;
    inpeer_clear_inbox(p, false);
    p->other = NULL;
    p->stats.queued = 0;
    p->state = IN_DOWN;
    if (other == NULL)
        return;
    inpeer_clear_inbox(other, true);
    other->other = NULL;
    other->stats.queued = 0;
    other->state = IN_ENDED;
    bool left = message[0] == '\0';
    other->why = (mst_net_loss){.reason = left ? MST_NET_CLOSED : MST_NET_REFUSED, .error.code = MST_EPEER};
    snprintf(other->why.error.text, MST_ERROR_MAX, "%s %s%s", other->name,
             left ? "left" : "closed the connection: ", message);
    inproc_ring(other->net);
}

/* ---- life ---- */

static void inproc_destroy(mst_net *net)
{
    inproc *n = (inproc *)net;
    inproc_lock();
    for (inname **at = &g_names; *at != NULL;)
        if ((*at)->net == n) {
            inname *gone = *at;
            *at = gone->next;
            mst_free(gone);
        } else {
            at = &(*at)->next;
        }
    for (inproc **at = &g_nets; *at != NULL; at = &(*at)->next)
        if (*at == n) {
            *at = n->next;
            break;
        }
    for (size_t i = 0; i < n->n_peers; i++)
        inpeer_end(n->peers[i], "");
    inproc_unlock();
    for (size_t i = 0; i < n->n_peers; i++)
        mst_free(n->peers[i]);
    for (insent *s = n->sent, *next; s != NULL; s = next) {
        next = s->next;
        mst_free(s);
    }
    if (n->event >= 0)
        close(n->event);
    mst_free(n->peers);
    mst_free(n->secret);
    mst_free(n);
}

static mst_status inproc_create(const mst_net_options *options, const mst_net_events *events, void *arg,
                                mst_net **out)
{
    inproc *n = mst_zalloc(sizeof *n);
    if (n == NULL)
        return mst_fail_memory();
    n->base.engine = &mst_net_inproc;
    n->options = *options;
    n->events = *events;
    n->arg = arg;
    n->sent_last = &n->sent;
    n->secret = mst_strdup(options->secret != NULL ? options->secret : "");
    n->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (n->secret == NULL || n->event < 0) {
        mst_status st = n->secret == NULL ? mst_fail_memory()
                                          : mst_fail(MST_EIO, "net inproc: no eventfd: %s", strerror(errno));
        if (n->event >= 0)
            close(n->event);
        mst_free(n->secret);
        mst_free(n);
        return st;
    }
    inproc_lock();
    n->next = g_nets;
    g_nets = n;
    inproc_unlock();
    *out = &n->base;
    return MST_OK;
}

/* ---- names and links ---- */

static inname *inproc_find_name(const char *text)
{
    for (inname *x = g_names; x != NULL; x = x->next)
        if (strcmp(x->text, text) == 0)
            return x;
    return NULL;
}

static mst_status inproc_listen(mst_net *net, const char *address, char *bound, size_t bound_size)
{
    inproc *n = (inproc *)net;
    if (address[0] == '\0' || strlen(address) >= NAME_MAX_HERE)
        return mst_fail(MST_EUSAGE, "%s: a name has 1 to %d characters", address, NAME_MAX_HERE - 1);
    inname *x = mst_zalloc(sizeof *x);
    if (x == NULL)
        return mst_fail_memory();
    x->net = n;
    snprintf(x->text, sizeof x->text, "%s", address);
    inproc_lock();
    bool taken = inproc_find_name(address) != NULL;
    if (!taken) {
        x->next = g_names;
        g_names = x;
        for (inproc *other = g_nets; other != NULL; other = other->next) /* a net may wait for this name */
            inproc_ring(other);
    }
    inproc_unlock();
    if (taken) {
        mst_free(x);
        return mst_fail(MST_EEXIST, "%s is in use by another net of this process; choose another name",
                        address);
    }
    if (bound != NULL && bound_size > 0)
        snprintf(bound, bound_size, "%s", address);
    return MST_OK;
}

static mst_status inproc_connect(mst_net *net, const char *address, uint64_t deadline_ns, uint32_t *peer)
{
    inproc *n = (inproc *)net;
    if (address[0] == '\0' || strlen(address) >= NAME_MAX_HERE)
        return mst_fail(MST_EUSAGE, "%s: a name has 1 to %d characters", address, NAME_MAX_HERE - 1);
    inproc_lock();
    inpeer *p = inpeer_new(n, address);
    if (p != NULL) {
        p->start_ns = mst_now_ns();
        p->deadline_ns = deadline_ns;
        *peer = p->number;
        inproc_ring(n);
    }
    inproc_unlock();
    return p != NULL ? MST_OK : mst_fail_memory();
}

static void inpeer_set_name(inpeer *p, const mst_identity *who)
{
    p->who = *who;
    snprintf(p->name, sizeof p->name, "%s %u (%s)", mst_role_name(who->role), who->index, p->address);
}

static void inpeer_dial_failed(inpeer *p, mst_status code)
{
    p->why.reason = code == MST_ETIMEOUT ? MST_NET_DIED : MST_NET_REFUSED;
    mst_error_save(&p->why.error, code);
    p->state = IN_ENDED;
}

/* Links p with the net that listens under its name, if there is one that fits. */
static void inpeer_dial(inpeer *p, uint64_t now)
{
    inproc *n = p->net;
    const inname *name = inproc_find_name(p->address);
    if (name == NULL) {
        if (now >= p->deadline_ns)
            inpeer_dial_failed(p,
                               mst_fail(MST_ETIMEOUT, "%s was not reached within %.1f s: no thread listens",
                                        p->address, (double)(now - p->start_ns) * 1e-9));
        return;
    }
    inproc *m = name->net;
    const mst_identity *here = &n->options.self, *there = &m->options.self;
    inpeer_set_name(p, there);
    if (strcmp(n->secret, m->secret) != 0) {
        inpeer_dial_failed(p, mst_fail(MST_EUSAGE, "refused %s: " MST_WIRE_OTHER_SECRET, p->name));
        return;
    }
    if (here->job[0] != '\0' && there->job[0] != '\0' && strcmp(here->job, there->job) != 0) {
        inpeer_dial_failed(
            p, mst_fail(MST_EUSAGE, "refused by %s: that %s belongs to job %s, this %s to job %s", p->name,
                        mst_role_name(there->role), there->job, mst_role_name(here->role), here->job));
        return;
    }
    inpeer *q = inpeer_new(m, p->address);
    if (q == NULL) {
        inpeer_dial_failed(p, mst_fail_memory());
        return;
    }
    inpeer_set_name(q, here);
    p->other = q;
    q->other = p;
    p->state = q->state = IN_UP;
    p->fresh = q->fresh = true;
    inproc_ring(m);
}

/* ---- handling what has arrived; the mutex is let go around every event ---- */

/* An event or the format refuses p's message: both ends go. */
static void inpeer_drop_for(inpeer *p, const char *message)
{
    char text[MST_WIRE_OWN_MAX];
    snprintf(text, sizeof text, "%s", message);
    inpeer_end(p, text);
    p->state = IN_ENDED;
    mst_fail(MST_EPEER, "%s was dropped: %s", p->name, text);
    p->why.reason = MST_NET_DIED;
    mst_error_save(&p->why.error, MST_EPEER);
}

/* The first message of p's inbox. */
static void inpeer_deliver(inpeer *p)
{
    inproc *n = p->net;
    inmessage *x = p->inbox;
    mst_message m = x->m;
    void *body = NULL;
    mst_status st = MST_OK;
    if (n->events.doing != NULL)
        n->events.doing(n->arg, MST_NET_READS);
    if (m.size > n->options.max_body) {
        mst_fail(MST_EINPUT,
                 "a message of type %u has a body of %" PRIu64 " bytes, at most %" PRIu64 " are accepted",
                 m.type, m.size, n->options.max_body);
        inpeer_drop_for(p, mst_error_text());
        return;
    }
    if (m.size > 0) {
        inproc_unlock();
        st = n->events.body(n->arg, p->number, &m, &body);
        inproc_lock();
    }
    /* The event may have dropped the peer; its sender may have taken the message back. */
    if (p->state != IN_UP && p->state != IN_ENDED)
        return;
    if (st != MST_OK) {
        inpeer_drop_for(p, mst_error_text());
        return;
    }
    if (p->inbox != x)
        return;
    if (m.size > 0) {
        p->busy = true;
        inproc_unlock();
        mst_pieces_copy(body, x->pieces, x->n_pieces);
        inproc_lock();
        p->busy = false;
        pthread_cond_broadcast(&g_copied);
    }
    p->inbox = x->next;
    if (p->inbox == NULL)
        p->inbox_last = &p->inbox;
    inpeer_release(p, x, true);
    mst_count_in(&p->stats, &n->total, &m);
    inproc_unlock();
    st = n->events.message(n->arg, p->number, &m, body);
    inproc_lock();
    if (st != MST_OK && (p->state == IN_UP || p->state == IN_ENDED))
        inpeer_drop_for(p, mst_error_text());
}

#define BATCH 64 /* messages of one peer before the others get their turn */

/* Does what is to be done for p; true when an event was called. */
static bool inpeer_attend(inpeer *p, uint64_t now)
{
    inproc *n = p->net;
    bool any = false;
    if (p->state == IN_DIALING)
        inpeer_dial(p, now);
    if (p->fresh && p->state != IN_DOWN) {
        p->fresh = false;
        mst_identity who = p->who;
        inproc_unlock();
        n->events.up(n->arg, p->number, &who);
        inproc_lock();
        any = true;
    }
    for (int i = 0; i < BATCH && p->inbox != NULL && (p->state == IN_UP || p->state == IN_ENDED); i++) {
        inpeer_deliver(p);
        any = true;
    }
    if (p->state == IN_ENDED && p->inbox == NULL) {
        mst_net_loss why = p->why;
        p->state = IN_DOWN;
        inproc_unlock();
        n->events.down(n->arg, p->number, &why);
        inproc_lock();
        any = true;
    }
    if (p->inbox != NULL) /* more than a turn's worth: the next poll does not sleep */
        inproc_ring(n);
    return any;
}

/* One turn over everything; *due is lowered to the next deadline of a dial. */
static bool inproc_attend_all(inproc *n, uint64_t now, uint64_t *due)
{
    bool any = false;
    while (n->sent != NULL) {
        insent *s = n->sent;
        n->sent = s->next;
        if (n->sent == NULL)
            n->sent_last = &n->sent;
        insent done = *s;
        mst_free(s);
        if (n->peers[done.peer]->state != IN_UP)
            continue;
        inproc_unlock();
        n->events.sent(n->arg, done.peer, done.token);
        inproc_lock();
        any = true;
    }
    for (size_t i = 0; i < n->n_peers; i++) {
        inpeer *p = n->peers[i];
        any |= inpeer_attend(p, now);
        if (p->state == IN_DIALING && p->deadline_ns < *due)
            *due = p->deadline_ns;
    }
    return any;
}

/* Sleeps until the bell rings or until `until`. */
static void inproc_sleep_until(inproc *n, uint64_t now, uint64_t until)
{
    uint64_t ns = until > now ? until - now : 0, count;
    struct timespec wait = {.tv_sec = (time_t)(ns / MST_S), .tv_nsec = (long)(ns % MST_S)};
    if (ns > 3600 * MST_S)
        wait = (struct timespec){.tv_sec = 3600};
    struct pollfd fd = {.fd = n->event, .events = POLLIN};
    if (ppoll(&fd, 1, &wait, NULL) > 0 && read(n->event, &count, sizeof count) < 0)
        return; /* only the owner reads, so this cannot happen */
}

static void inproc_run_until(inproc *n, uint64_t deadline)
{
    n->polling = true;
    for (;;) {
        uint64_t now = mst_now_ns(), due = deadline;
        inproc_lock();
        bool any = inproc_attend_all(n, now, &due);
        inproc_unlock();
        if (any || atomic_exchange(&n->woken, false) || now >= deadline)
            break;
        if (n->events.doing != NULL)
            n->events.doing(n->arg, MST_NET_WAITS);
        inproc_sleep_until(n, now, due);
    }
    n->polling = false;
}

/* ---- calls ---- */

static mst_status inproc_poll(mst_net *net, uint64_t deadline_ns)
{
    inproc_run_until((inproc *)net, deadline_ns);
    return MST_OK;
}

static void inproc_wake(mst_net *net)
{
    inproc *n = (inproc *)net;
    atomic_store(&n->woken, true);
    inproc_ring(n);
}

static inmessage *inmessage_new(const mst_message *m, const mst_piece *pieces, uint32_t n_pieces, void *token)
{
    bool copy = token == NULL && m->size > 0;
    inmessage *x = mst_alloc(sizeof *x + (copy ? (size_t)m->size : 0));
    if (x == NULL)
        return NULL;
    *x = (inmessage){.m = *m, .token = token, .n_pieces = n_pieces};
    if (n_pieces > 0)
        memcpy(x->pieces, pieces, n_pieces * sizeof *pieces);
    if (copy) {
        mst_pieces_copy(x + 1, pieces, n_pieces);
        x->n_pieces = 1;
        x->pieces[0] = (mst_piece){.data = x + 1, .size = (size_t)m->size};
    }
    return x;
}

static mst_status inproc_send(mst_net *net, uint32_t peer, const mst_message *m, const mst_piece *pieces,
                              uint32_t n_pieces, void *token)
{
    inproc *n = (inproc *)net;
    inproc_lock();
    mst_status st = MST_OK;
    inpeer *p = inpeer_at(n, peer);
    inmessage *x = NULL;
    if (p == NULL)
        st = mst_fail(MST_EUSAGE, "net inproc: there is no peer %u", peer);
    else if (p->state != IN_UP || p->other == NULL)
        st = mst_fail(MST_EPEER, "%s is not connected", p->name);
    else if (p->stats.queued > n->options.max_queue)
        st = mst_fail(MST_ETIMEOUT, "%s has not received %" PRIu64 " bytes that were sent to it before",
                      p->name, p->stats.queued);
    inproc_unlock(); /* the peer may close while unlocked; check it again */
    TRY(st);
    x = inmessage_new(m, pieces, n_pieces, token);
    if (x == NULL)
        return mst_fail_memory();
    inproc_lock();
    if (p->other == NULL) {
        st = mst_fail(MST_EPEER, "%s is not connected", p->name);
        mst_free(x);
    } else {
        inpeer *q = p->other;
        bool first = q->inbox == NULL;
        *q->inbox_last = x;
        q->inbox_last = &x->next;
        p->stats.queued += mst_frame_size(m->size);
        mst_count_out(&p->stats, &n->total, m);
        if (first)
            inproc_ring(q->net);
    }
    inproc_unlock();
    return st;
}

static void inproc_drop(mst_net *net, uint32_t peer, const char *message)
{
    inproc *n = (inproc *)net;
    inproc_lock();
    inpeer *p = inpeer_at(n, peer);
    if (p != NULL)
        inpeer_end(p, message != NULL ? message : "");
    inproc_unlock();
}

static mst_status inproc_flush(mst_net *net, uint64_t deadline_ns)
{
    inproc *n = (inproc *)net;
    mst_status st = MST_OK;
    if (n->polling)
        return mst_fail(MST_EUSAGE, "net inproc: flush was called inside an event");
    for (;;) {
        bool late = mst_now_ns() >= deadline_ns;
        const inpeer *slow = NULL;
        inproc_lock();
        for (size_t i = 0; i < n->n_peers && slow == NULL; i++)
            if (n->peers[i]->stats.queued > 0)
                slow = n->peers[i];
        if (slow != NULL && late)
            st = mst_fail(MST_ETIMEOUT,
                          "%s has not received everything that was sent to it: %" PRIu64 " bytes wait here",
                          slow->name, slow->stats.queued);
        n->flushing = slow != NULL && !late;
        inproc_unlock();
        if (slow == NULL || late)
            return st;
        inproc_run_until(n, deadline_ns);
    }
}

static void inproc_stats(const mst_net *net, uint32_t peer, mst_net_stats *out)
{
    const inproc *n = (const inproc *)net;
    inproc_lock();
    const inpeer *p = inpeer_at(n, peer);
    *out = p != NULL ? p->stats : n->total;
    if (peer == MST_PEER_NONE)
        for (size_t i = 0; i < n->n_peers; i++)
            out->queued += n->peers[i]->stats.queued;
    inproc_unlock();
}

static void inproc_name_of(const mst_net *net, uint32_t peer, char *out, size_t size)
{
    inproc_lock();
    const inpeer *p = inpeer_at((const inproc *)net, peer);
    snprintf(out, size, "%s", p != NULL ? p->name : "an unknown peer");
    inproc_unlock();
}

const mst_net_engine mst_net_inproc = {
    .name = "inproc",
    .help = "threads of one process",
    .detects_death = false,
    .survives_death = false,
    .sleeps = true,
    .create = inproc_create,
    .destroy = inproc_destroy,
    .listen = inproc_listen,
    .connect = inproc_connect,
    .send = inproc_send,
    .drop = inproc_drop,
    .poll = inproc_poll,
    .wake = inproc_wake,
    .flush = inproc_flush,
    .stats = inproc_stats,
    .name_of = inproc_name_of,
};
