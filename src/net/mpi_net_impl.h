/* Shared by mpi_net.c and mpi_channel.c only.
 *
 * A *channel* connects to one rank: an ordered stream of frames each way. A *link* (peer) is a connection of
 * the contract; it runs on the channel of its rank and has a number that every frame carries, so that frames
 * of an older link are recognised. A frame is one MPI message (tag HEAD) with
 *
 *   offset  0  header as in wire.h, without seals (MPI is not the network of an adversary: docs/SECURITY.md)
 *          64  u64 link   72  u64 bytes of the body that are in here   80  u32 n: pieces of the rest
 *          84  u32 kind   88  u64 sizes of the pieces [8]   152  bytes of the body
 *
 * and, where the body is larger, one MPI message (tag BODY) for every MST_MPI_SEGMENT bytes of each piece,
 * received straight into the memory of the body. Net's own frames have a kind, and the type of a DISCONNECT;
 * the kind of others is 0. */
#ifndef MST_NET_MPI_NET_IMPL_H
#define MST_NET_MPI_NET_IMPL_H

#include <stdatomic.h>

#include "mpi/mpi.h"
#include "net/wire.h"

#define MST_MPI_TAG_HELLO 21010
#define MST_MPI_TAG_HEAD  21011
#define MST_MPI_TAG_BODY  21012

#define MST_MPI_HEAD      (16u << 10) /* bytes of the longest frame */
#define MST_MPI_FIXED     152u        /* of which before the body */
#define MST_MPI_SEGMENT   (4u << 20)
#define MST_MPI_IN_SLOTS  8  /* segments that are being received at once, of a channel */
#define MST_MPI_OUT_SLOTS 16 /* messages that are being sent at once */
#define MST_MPI_SLOTS     (1 + MST_MPI_IN_SLOTS + MST_MPI_OUT_SLOTS) /* requests of a channel */

/* Kinds of net's own frames; as types of messages within the engine. */
#define MST_MPI_WELCOME    8  /* body: identity */
#define MST_MPI_REFUSE     9  /* body: identity, message */
#define MST_MPI_READY      10 /* the link is up */
#define MST_MPI_DISCONNECT 11 /* body: a message, or nothing */
#define MST_MPI_CLOSED     12 /* the answer to a DISCONNECT: nothing follows */

typedef struct mst_mpi_net mst_mpi_net;

/* A message to send; the frame and copies of pieces follow in its memory. */
typedef struct mst_mpi_out {
    struct mst_mpi_out *next;
    uint32_t peer; /* MST_PEER_NONE: no link is notified */
    void *token;
    uint64_t bytes;        /* as counted in queued; 0: net's own */
    uint64_t frame;        /* bytes of the frame */
    uint32_t n_pieces, at; /* pieces of the rest; at: the next of which something is to be sent */
    uint64_t at_offset;
    bool begun, posted;   /* its frame was, all of it was given to MPI */
    uint32_t n_under_way; /* of its messages */
    mst_piece pieces[MST_PIECE_MAX];
    uint8_t head[];
} mst_mpi_out;

/* The message that is coming in. */
typedef struct mst_mpi_in {
    bool active;
    bool discard; /* it is dropped: its bytes are discarded */
    uint32_t peer;
    mst_message m;
    uint8_t *body;
    uint64_t sizes[MST_PIECE_MAX], at_offset, filled; /* filled: bytes of the body up to what was posted */
    uint32_t n_pieces, at, n_under_way;
} mst_mpi_in;

typedef struct mst_mpi_channel {
    int rank;
    uint8_t *head; /* MST_MPI_HEAD bytes */
    mst_mpi_in in;
    mst_mpi_out *out, **out_last; /* in the order of sending; the first ones are under way */
    mst_mpi_out *next_out;        /* the first that is not posted as a whole */
    mst_mpi_out *owners[MST_MPI_OUT_SLOTS];
} mst_mpi_channel;

typedef enum mst_mpi_state {
    MST_MPI_DIALING,
    MST_MPI_JOINING, /* welcomed; READY has not arrived */
    MST_MPI_UP,
    MST_MPI_ENDED, /* `down` is to be called */
    MST_MPI_DOWN,
} mst_mpi_state;

typedef struct mst_mpi_peer {
    mst_mpi_state state;
    int rank;
    uint64_t link;
    bool was_up;
    bool final_out, final_in; /* the last frame of the link was queued, has come */
    uint64_t start_ns, deadline_ns;
    mst_identity who;
    mst_net_loss why;
    mst_net_stats stats;
    char name[80];
} mst_mpi_peer;

struct mst_mpi_net {
    mst_net base;
    mst_net_options options;
    char *secret;
    mst_net_events events;
    void *arg;
    mst_mpi *mpi;
    mst_mpi_peer **peers; /* by number; only grows */
    size_t n_peers, peers_capacity;
    mst_mpi_channel **channels; /* in the order of first use */
    size_t n_channels, channels_capacity;
    mst_mpi_request *requests; /* the receive of a hello, then MST_MPI_SLOTS of every channel */
    bool *done;
    size_t requests_capacity, done_capacity;
    uint8_t hello[MST_MPI_FIXED];
    bool listening, polling;
    uint32_t n_pending; /* peers that are dialing, joining or ended */
    uint8_t *scratch;   /* MST_MPI_SEGMENT bytes, for dropped messages */
    mst_net_stats total;
    mst_mpi_backoff backoff;
    atomic_bool woken;
};

/* ---- mpi_channel.c ---- */

/* The channel of a rank, made if needed; NULL if memory is short. */
mst_mpi_channel *mst_mpi_channel_of(mst_mpi_net *n, int rank);
/* Room for the requests of that many channels; false when memory is short. */
bool mst_mpi_channels_room(mst_mpi_net *n, size_t n_channels);
void mst_mpi_channels_free(mst_mpi_net *n);

/* Queues a message and begins to send. m->size and the rest as in mst_net_send; type may be net's
 * own. MST_ENOMEM: nothing was queued. */
mst_status mst_mpi_channel_send(mst_mpi_net *n, mst_mpi_channel *channel, uint32_t peer, uint64_t link,
                                const mst_message *m, const mst_piece *pieces, uint32_t n_pieces,
                                void *token);

/* Drops messages to the peer that were not begun. */
void mst_mpi_channel_forget(mst_mpi_net *n, mst_mpi_channel *channel, uint32_t peer);

/* The peer ends while a message of it arrives: waits a second at most for the segments being received, and
 * discards the rest. */
mst_status mst_mpi_channel_detach(mst_mpi_net *n, mst_mpi_channel *channel, uint32_t peer);

/* Tests everything under way and hands out messages that have arrived; *any: something has happened. */
mst_status mst_mpi_channels_turn(mst_mpi_net *n, bool *any);

/* Whether something is still being sent, or a message of a link is half received. */
bool mst_mpi_channel_busy(const mst_mpi_channel *channel);

/* ---- mpi_net.c ---- */

/* A frame of net's own, for the links of that rank. */
mst_status mst_mpi_control(mst_mpi_net *n, int rank, const mst_message *m, uint64_t link,
                           const uint8_t *body);
mst_status mst_mpi_hello_came(mst_mpi_net *n);
/* The peer of a link that is up; MST_PEER_NONE: there is none. */
uint32_t mst_mpi_peer_of(const mst_mpi_net *n, int rank, uint64_t link);
/* The format or an event refuses a message of the peer (the thread's error has the reason): both ends are
 * dropped. */
void mst_mpi_refuse(mst_mpi_net *n, uint32_t peer);

#endif
