/* net: messages between processes (or threads) over any engine. One const table per engine, in
 * mst_net_engines; all pass one contract suite (tests/contract/test_net.c).
 *
 * An mst_net is one process's end: it listens, connects, and exchanges messages with peers. A message is a
 * fixed header and a body of up to max_body bytes. Messages between two ends arrive whole, once and in the
 * order they were sent, or the peer is reported down.
 *
 * Thread: one owner thread makes every call but mst_net_wake; the caller may pass ownership on.
 * Events are called inside mst_net_poll only, on the owner thread; they may call anything here but poll and
 * destroy. Waiting: only poll waits. Nothing else blocks; a send fails if the peer's queue is full.
 * Failure: a peer that closes, dies, breaks the format, is silent for peer_timeout_ms or cannot be reached by
 * its deadline is reported down once, with an error that names it, and its number is never used again. */
#ifndef MST_NET_NET_H
#define MST_NET_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum mst_role {
    MST_ROLE_SERVER,
    MST_ROLE_WORKER,
    MST_ROLE_PROBE, /* muster doctor --cluster */
} mst_role;
const char *mst_role_name(mst_role role);

#define MST_JOB_MAX 40

/* The identity of a process; part of the handshake (docs/WIRE.md). */
typedef struct mst_identity {
    mst_role role;
    uint32_t index;
    uint64_t incarnation;  /* random per process: distinguishes a restarted process from the one before */
    char job[MST_JOB_MAX]; /* "" matches any job */
} mst_identity;

/* A message's header. Types below MST_NET_TYPES are net's own (heartbeat, disconnect). */
#define MST_NET_TYPES 16
typedef struct mst_message {
    uint16_t type;
    uint32_t flags;
    uint32_t request; /* the sender's number; a reply repeats it */
    uint32_t count;
    uint64_t step;
    uint64_t size; /* of the body */
} mst_message;

typedef struct mst_piece {
    const void *data;
    size_t size;
} mst_piece;

#define MST_PIECE_MAX 8
#define MST_PEER_NONE UINT32_MAX

/* Why a peer is down, for program logic; `error.text` is for users. */
typedef enum mst_net_reason {
    MST_NET_DIED,    /* the connection ended without a DISCONNECT, or was never made */
    MST_NET_SILENT,  /* nothing arrived from the peer for peer_timeout_ms */
    MST_NET_CLOSED,  /* the peer left */
    MST_NET_REFUSED, /* the peer dropped this end with a message (mst_net_drop), or refused to connect */
    MST_NET_STOPPED, /* the peer dropped this end because this end was silent: stopped, or cut off */
} mst_net_reason;

typedef struct mst_net_loss {
    mst_net_reason reason;
    double silent_s; /* SILENT: the silence of the peer; STOPPED: that of this process */
    mst_error error; /* text is a whole message that names the peer */
} mst_net_loss;

typedef enum mst_net_doing {
    MST_NET_WAITS,  /* until something arrives, or can be sent */
    MST_NET_READS,  /* what has arrived */
    MST_NET_WRITES, /* what was queued */
} mst_net_doing;

typedef struct mst_net_events {
    /* The peer has proved its identity. No message of it is read before. */
    void (*up)(void *arg, uint32_t peer, const mst_identity *who);
    /* Once for every peer that was up, and for every connect that failed. The error's code is MST_EUSAGE if a
     * connect reached a process of another secret, job or version. */
    void (*down)(void *arg, uint32_t peer, const mst_net_loss *why);
    /* A header with a body has arrived: *out is the memory for its m->size bytes, valid until message or
     * down. A failure drops the peer, which receives the message. */
    mst_status (*body)(void *arg, uint32_t peer, const mst_message *m, void **out);
    /* The whole message has arrived; body is the memory that `body` returned, NULL if m->size is 0. A failure
     * drops the peer, which receives the message. */
    mst_status (*message)(void *arg, uint32_t peer, const mst_message *m, void *body);
    /* The pieces of the send with this token may change now. Not called for peers that went down. */
    void (*sent)(void *arg, uint32_t peer, void *token);
    /* Reports the next activity of poll. Called often, so it must be cheap; it must not call this interface.
     * May be NULL. An engine that cannot distinguish these (mpi) does not call it. */
    void (*doing)(void *arg, mst_net_doing what);
} mst_net_events;

/* Engine tcp: the connections that use TLS. */
typedef enum mst_net_tls {
    MST_NET_TLS_AUTO, /* those that leave the host */
    MST_NET_TLS_ON,   /* all; needs a secret */
    MST_NET_TLS_OFF,  /* none; frames between hosts carry a MAC */
} mst_net_tls;

/* Engine tcp: the seals of frames without TLS on loopback and Unix sockets. */
typedef enum mst_net_seal {
    MST_NET_SEAL_AUTO, /* a checksum */
    MST_NET_SEAL_MAC,
    MST_NET_SEAL_NONE, /* for measuring the others */
} mst_net_seal;

typedef struct mst_net_options {
    mst_identity self;
    mst_net_tls tls; /* a listener accepts more than that, not less */
    mst_net_seal seal;
    const char
        *secret;       /* of the job; NULL or "": only loopback and Unix sockets are accepted and connected */
    uint64_t max_body; /* larger bodies drop the peer before anything is allocated */
    uint64_t max_queue;        /* bytes that may wait for one peer beyond what the system takes */
    uint32_t peer_timeout_ms;  /* silence after which a peer is down */
    uint32_t hello_timeout_ms; /* time limit of the handshake */
    uint32_t busy_poll_us;     /* engines that sleep: a wait begins with so much polling without sleep */
} mst_net_options;

typedef struct mst_net_stats {
    uint64_t bytes_in, bytes_out, messages_in,
        messages_out; /* headers included, heartbeats and handshakes not */
    uint64_t queued;  /* bytes not yet taken by the system */
    uint64_t rate;    /* capacity of the path to the peer in bytes/s; of all: the fastest; 0: unknown */
    double trip_s;    /* shortest round trip to the peer; of all, or unknown: 0 */
    char link[16];    /* the interface that leads to the peer's host; "": it is this host, or unknown */
} mst_net_stats;

typedef struct mst_net mst_net;

typedef struct mst_net_engine {
    const char *name, *help;
    bool detects_death;  /* the death of a process is detected at once, not only by silence */
    bool survives_death; /* the other processes continue */
    bool sleeps;         /* poll waits without using the processor */
    mst_status (*create)(const mst_net_options *options, const mst_net_events *events, void *arg,
                         mst_net **out);
    void (*destroy)(mst_net *net);
    mst_status (*listen)(mst_net *net, const char *address, char *bound, size_t bound_size);
    mst_status (*connect)(mst_net *net, const char *address, uint64_t deadline_ns, uint32_t *peer);
    /* m->size is set, and type and number of the pieces are valid. */
    mst_status (*send)(mst_net *net, uint32_t peer, const mst_message *m, const mst_piece *pieces,
                       uint32_t n_pieces, void *token);
    void (*drop)(mst_net *net, uint32_t peer, const char *message);
    mst_status (*poll)(mst_net *net, uint64_t deadline_ns);
    void (*wake)(mst_net *net);
    mst_status (*flush)(mst_net *net, uint64_t deadline_ns);
    void (*stats)(const mst_net *net, uint32_t peer, mst_net_stats *out);
    void (*name_of)(const mst_net *net, uint32_t peer, char *out, size_t size);
} mst_net_engine;

struct mst_net {
    const mst_net_engine *engine;
};

extern const mst_net_engine mst_net_inproc, mst_net_tcp, mst_net_mpi;
/* Engine mpi: a rank is lost, by the rank monitor: polls fail with MST_EPEER and this message from here on.
 * Any thread. */
void mst_net_mpi_lost(const char *message);
extern const mst_net_engine *const mst_net_engines[]; /* NULL-terminated */

/* *out is the caller's to destroy; set only on MST_OK. */
static inline mst_status mst_net_new(const mst_net_engine *engine, const mst_net_options *options,
                                     const mst_net_events *events, void *arg, mst_net **out)
{
    return engine->create(options, events, arg, out);
}

/* Closes every connection at once (flush first); no event is called any more. NULL-safe. */
void mst_net_destroy(mst_net *net);

/* "host:port" (port 0: any), "unix:/path", "unix:@name" (Linux abstract); inproc: any name; mpi: "mpi:RANK".
 * bound receives the address that others connect to. An address in use is MST_EEXIST. */
static inline mst_status mst_net_listen(mst_net *net, const char *address, char *bound, size_t bound_size)
{
    return net->engine->listen(net, address, bound, bound_size);
}

/* Begins to connect and retries until the deadline, so that processes may start in any order; `up` or
 * `down` follows. */
static inline mst_status mst_net_connect(mst_net *net, const char *address, uint64_t deadline_ns,
                                         uint32_t *peer)
{
    return net->engine->connect(net, address, deadline_ns, peer);
}

/* Sends a message whose body is the pieces, one after the other; m->size is set from them. The pieces must
 * not change before `sent` is called with the token; token NULL: they were copied or sent before send
 * returned (for small messages). A message may be sent within send; within the event of a message it may wait
 * until further messages of that peer that have arrived are handled. MST_EPEER when the peer is not up,
 * MST_ETIMEOUT when more than max_queue bytes are waiting already: nothing was sent then. */
mst_status mst_net_send(mst_net *net, uint32_t peer, const mst_message *m, const mst_piece *pieces,
                        uint32_t n_pieces, void *token);

/* Sends the message to the peer (for its `down`) and closes. No `down` is called here. */
static inline void mst_net_drop(mst_net *net, uint32_t peer, const char *message)
{
    net->engine->drop(net, peer, message);
}

/* Handles what has arrived; when nothing has, waits for something, for a wake or for the deadline (0: does
 * not wait). Returns MST_OK in all these cases. */
static inline mst_status mst_net_poll(mst_net *net, uint64_t deadline_ns)
{
    return net->engine->poll(net, deadline_ns);
}

/* Makes the poll under way, or the next one, return. Any thread; also from a signal handler. */
static inline void mst_net_wake(mst_net *net)
{
    net->engine->wake(net);
}

/* Waits until everything sent has left, handling events meanwhile; MST_ETIMEOUT names the peer that does not
 * receive it. */
static inline mst_status mst_net_flush(mst_net *net, uint64_t deadline_ns)
{
    return net->engine->flush(net, deadline_ns);
}

/* Of a peer, also after it went down; MST_PEER_NONE: of all together. */
static inline void mst_net_stats_get(const mst_net *net, uint32_t peer, mst_net_stats *out)
{
    net->engine->stats(net, peer, out);
}

/* "worker 2 (10.0.0.3:51234)", for messages. */
static inline void mst_net_name_of(const mst_net *net, uint32_t peer, char *out, size_t size)
{
    net->engine->name_of(net, peer, out, size);
}

#endif
