/* Shared by tcp.c, tcp_peer.c, tcp_listen.c, tcp_dial.c and tcp_rate.c only.
 *
 * tcp.c is the engine (loop, timers, heartbeat thread), tcp_peer.c an authenticated connection (reading,
 * writing, silence, ending), tcp_listen.c and tcp_dial.c the steps before that.
 *
 * Locking: t->mutex guards everything below. The owner holds it in every call, also while it waits in the
 * loop, and releases it only around calls of events. So the heartbeat thread gets it only while the
 * owner is elsewhere. */
#ifndef MST_NET_TCP_IMPL_H
#define MST_NET_TCP_IMPL_H

#include <pthread.h>
#include <stdatomic.h>
#include <uv.h>

#include "base/clock.h"
#include "base/rng.h"
#include "net/frame_out.h"
#include "net/frames.h"
#include "net/join.h"
#include "net/net.h"
#include "net/tcp_address.h"

#define MST_TCP_UNAUTHENTICATED_MAX 256   /* at a time */
#define MST_TCP_PEERS_MAX           4096  /* authenticated, of a listener */
#define MST_TCP_PLACES              65536 /* of peers; a power of two */
#define MST_TCP_HEARTBEAT           (400 * MST_MS)
#define MST_TCP_NAME_MAX            (MST_TCP_ADDRESS_MAX + 32)

typedef struct mst_tcp mst_tcp;
typedef struct mst_tcp_peer mst_tcp_peer;

/* A descriptor in the loop. Owns it; freed by the loop after mst_tcp_fd_close. */
typedef struct mst_tcp_fd {
    uv_poll_t poll;
    int fd, events;
    /* broken: the system reports an error, and the loop no longer polls the descriptor. */
    void (*ready)(void *owner, int events, bool broken);
    void *owner;
} mst_tcp_fd;

/* A message that waits for the socket, or (all of it written) for its `sent`. */
typedef struct mst_tcp_out {
    struct mst_tcp_out *next;
    void *token;
    uint32_t peer;
    bool copied; /* the one piece follows this struct */
    mst_frame_out frame;
} mst_tcp_out;

typedef enum mst_tcp_state {
    MST_TCP_DIALING,
    MST_TCP_UP,
    MST_TCP_DOWN,
} mst_tcp_state;

typedef struct mst_tcp_dial mst_tcp_dial;

/* The memory of the connection is freed when it is DOWN; the rest is kept for its figures until another peer
 * takes the place. */
struct mst_tcp_peer {
    mst_tcp *net;
    uint32_t
        number; /* place in net->peers, plus a multiple of MST_TCP_PLACES that counts the peers before it */
    mst_tcp_state state;
    mst_tcp_dial *dial; /* while DIALING */
    mst_tcp_fd *socket;
    mst_frames *in;
    mst_tls *tls; /* NULL: none */
    mst_identity who;
    size_t n_early;    /* bytes in the stage that were read with the handshake */
    mst_net_loss *why; /* UP: room for the reason; DOWN: the reason, until it is reported */
    bool report;       /* DOWN: `down` is still to be called */
    bool write_broken; /* the system refuses writes; reads find the reason */
    bool corked;       /* messages wait for the answers to messages that have arrived */
    bool is_unix;
    bool listed;        /* in net->todo */
    mst_tcp_peer *next; /* in net->todo or net->past */
    mst_tcp_out *out, *out_last;
    mst_seal seal;        /* of the frames that are sent */
    uint64_t received_ns; /* on the silence clock */
    uint64_t sent_ns;
    mst_net_stats stats;
    double rate;           /* as stats.rate: tcp_rate.c */
    uint64_t sampled_ns;   /* when it was last sampled */
    uint64_t sampled_size; /* of the message sent last */
    char name[MST_TCP_NAME_MAX];
};

typedef struct mst_tcp_unauthenticated mst_tcp_unauthenticated;
typedef struct mst_tcp_listener mst_tcp_listener;

struct mst_tcp {
    mst_net base;
    mst_net_options options;
    char *secret;
    mst_net_events events;
    void *arg;
    pthread_mutex_t mutex;
    uv_loop_t loop;
    uv_async_t async;
    uv_timer_t timer;
    bool polling, woken, flushing;
    uint64_t visible; /* events called, over all polls */
    uint64_t due_ns;  /* when the next timer is due */
    uint64_t left_ns; /* when the owner left poll; 0: never */
    uint64_t away_ns; /* time in which the owner did not poll: does not count as silence of peers */
    mst_tcp_peer **peers;
    size_t n_peers, peers_capacity;
    mst_tcp_peer *todo;              /* to be reported, released or checked, outside of any event */
    mst_tcp_peer *past, **past_last; /* DOWN and released, oldest first */
    size_t n_past;
    mst_tcp_out *finished, **finished_last;
    mst_tcp_out *spare;
    unsigned n_spare;
    mst_tcp_listener *listeners;
    mst_tcp_unauthenticated *unauthenticated; /* newest first */
    unsigned n_unauthenticated;
    size_t n_up;            /* peers */
    unsigned lines_left;    /* about strangers, that may be logged */
    unsigned n_unlogged;    /* strangers without a line, since the last one */
    uint64_t line_ns;       /* since when lines are earned */
    mst_rng rng;            /* chooses the connections to close */
    mst_tls_keys *tls_keys; /* NULL: no secret */
    mst_net_stats total;
    bool async_made, timer_made, loop_made, heartbeat_made;
    pthread_t heartbeat_thread;
    pthread_mutex_t heartbeat_mutex; /* guards ending */
    pthread_cond_t heartbeat_cond;
    bool ending;
    _Atomic uint64_t heartbeat_ns; /* when the heartbeat thread last ran */
    _Atomic uint64_t suspended_ns,
        suspended_end; /* how long it had not run, and until when: the process was suspended */
};

/* ---- tcp_rate.c ---- */

void mst_tcp_rate_begin(mst_tcp_peer *p, int fd);                    /* the connection is up */
void mst_tcp_rate_look(mst_tcp_peer *p, int fd, uint64_t next_size); /* before a message of that size */
void mst_tcp_rate_now(mst_tcp_peer *p);                              /* before the figures are read */

/* ---- tcp.c ---- */

/* *out owns fd from here on; on failure fd stays the caller's. */
mst_status mst_tcp_fd_new(mst_tcp *t, int fd, void (*ready)(void *, int, bool), void *owner,
                          mst_tcp_fd **out);
void mst_tcp_fd_want(mst_tcp_fd *w, int events); /* UV_READABLE, UV_WRITABLE */
void mst_tcp_fd_close(mst_tcp_fd *w);            /* NULL-safe; ready is not called any more */

/* The time for which this process was suspended (not even the heartbeat thread ran), if it is longer than the
 * peer timeout; else 0. */
uint64_t mst_tcp_suspended(mst_tcp *t);

/* The silence clock: time in which the owner did not poll counts for at most one second. */
static inline uint64_t mst_tcp_silence_clock(const mst_tcp *t, uint64_t now_ns)
{
    return now_ns - t->away_ns;
}

static inline void mst_tcp_due(mst_tcp *t, uint64_t at_ns)
{
    if (at_ns < t->due_ns)
        t->due_ns = at_ns;
}

/* NULL: there is none, or another has its place. */
static inline mst_tcp_peer *mst_tcp_peer_at(const mst_tcp *t, uint32_t number)
{
    uint32_t place = number % MST_TCP_PLACES;
    return place < t->n_peers && t->peers[place]->number == number ? t->peers[place] : NULL;
}

/* Around the calls of events. */
static inline void mst_tcp_leave(mst_tcp *t)
{
    t->visible++;
    pthread_mutex_unlock(&t->mutex);
}

static inline void mst_tcp_enter(mst_tcp *t)
{
    pthread_mutex_lock(&t->mutex);
}

/* Inside poll; the mutex stays held. */
static inline void mst_tcp_doing(mst_tcp *t, mst_net_doing what)
{
    if (t->events.doing != NULL)
        t->events.doing(t->arg, what);
}

/* ---- tcp_peer.c ---- */

/* A peer with a new number, DIALING. NULL: no memory. */
mst_tcp_peer *mst_tcp_peer_new(mst_tcp *t);

/* The connection in w is authenticated (the join is DONE). Takes over w, the TLS session and the bytes that
 * were read. A failure: nothing was done. mst_tcp_peer_begin follows, when the caller has released the join.
 */
mst_status mst_tcp_peer_up(mst_tcp_peer *p, mst_tcp_fd *w, mst_join *join, const char *address);
/* Calls `up`, and handles what has arrived. */
void mst_tcp_peer_begin(mst_tcp_peer *p);

/* Something waits for the socket. */
static inline bool mst_tcp_peer_waits(const mst_tcp_peer *p)
{
    return p->out != NULL || (p->tls != NULL && mst_tls_has_unsent(p->tls));
}

/* Ends p; the message is reported by the poll under way or the next one. why must hold it already (p->why).
 */
void mst_tcp_peer_end(mst_tcp_peer *p, bool report);
void mst_tcp_peer_fail(mst_tcp_peer *p, mst_net_reason reason, mst_status code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

mst_status mst_tcp_peer_send(mst_tcp_peer *p, const mst_message *m, const mst_piece *pieces,
                             uint32_t n_pieces, void *token);

/* Writes what waits, as far as the system takes it. Any thread that has the mutex. */
void mst_tcp_peer_write(mst_tcp_peer *p);

/* Sends a heartbeat if nothing was sent for a while; any thread that has the mutex. Returns when it is next
 * due. */
uint64_t mst_tcp_peer_heartbeat(mst_tcp_peer *p, uint64_t now_ns);

/* Ends p if it was silent for the peer timeout and no data of it is unread; else lowers t->due_ns to the next
 * check. */
void mst_tcp_peer_check_silence(mst_tcp_peer *p, uint64_t now_ns);

/* Sends DISCONNECT with the reason ("": none), if a message can still be sent. */
void mst_tcp_peer_disconnect(mst_tcp_peer *p, uint64_t silent_ns, const char *message);

/* Outside of any event: reads the remaining data, reports and releases, according to p's flags. */
void mst_tcp_peer_settle(mst_tcp_peer *p);

/* Hands finished sends back. */
void mst_tcp_report_sent(mst_tcp *t);
void mst_tcp_out_free_all(mst_tcp *t);

/* ---- tcp_listen.c ---- */

mst_status mst_tcp_listen(mst_tcp *t, const char *address, char *bound, size_t bound_size);
/* Time limits of unauthenticated peers and pauses of listeners; lowers t->due_ns to the next one. */
void mst_tcp_listen_run_timers(mst_tcp *t, uint64_t now_ns);
void mst_tcp_listen_close(mst_tcp *t); /* all unauthenticated peers and listeners */

/* ---- tcp_dial.c ---- */

mst_status mst_tcp_dial_new(mst_tcp *t, const char *address, uint64_t deadline_ns, uint32_t *peer);
void mst_tcp_dial_cancel(mst_tcp_dial *d); /* frees it, as soon as the loop allows */
/* Retries and deadlines; lowers t->due_ns to the next one. */
void mst_tcp_dial_run_all_timers(mst_tcp *t, uint64_t now_ns);

/* Begins the join of a connected socket, with TLS and seals as the options and its two ends ask. */
mst_status mst_tcp_join_begin(const mst_tcp *t, mst_join *join, const char *address, bool dialer, int fd);

#endif
