/* What the files of a server share (server*.c, coordinator*.c); nobody else includes this.
 *
 *   server.c             life, events, start-up
 *   server_steps.c       pushes and pulls
 *   server_cut.c         cuts: values for evaluations, parts for checkpoints
 *   server_log.c         what processes write about themselves
 *   coordinator.c        joins, members, cuts and the end, as server 0 decides them
 *   coordinator_work.c   which rows go to whom */
#ifndef MST_PS_SERVER_IMPL_H
#define MST_PS_SERVER_IMPL_H

#include "observe/spans.h"
#include "ps/leases.h"
#include "ps/proto.h"
#include "ps/server.h"
#include "ps/slices.h"
#include "ps/store.h"

/* ---- buffers for bodies ---- */

typedef struct mst_buffer {
    struct mst_buffer *next;
    size_t capacity;
    uint32_t restores; /* the server + 1 whose restored floats it carries; 0: none */
    uint32_t lent_to;  /* the peer that is being sent its data; MST_PEER_NONE: none */
    _Alignas(64) uint8_t data[];
} mst_buffer;

/* A push that comes in parts. */
typedef struct mst_staged {
    mst_store_parts parts;
    mst_buffer *buffer; /* its values; NULL: no part has come */
} mst_staged;

/* ---- workers, as a server sees them ---- */

typedef struct mst_server_worker {
    uint32_t peer; /* MST_PEER_NONE: not connected */
    uint64_t incarnation;
    bool gone;          /* lost, or left */
    uint64_t gone_from; /* sync: the first step it does not count for */
    bool exhausted;     /* no rows until the next epoch */
    uint32_t mark;      /* the newest cut it has marked */
    /* sync: the push that waits for its step. */
    bool pending;
    uint64_t label;
    mst_store_request request;
    mst_buffer *body, *values; /* values: of a push that came in parts, or NULL */
    uint64_t answered;         /* floats of the answer that left as parts */
    /* asynchronous */
    uint64_t pushes;                       /* ssp: raised to the slowest's when it comes or comes back */
    mst_store_request deferred[MST_LISTS]; /* ssp: pulls whose answers are held back */
    uint32_t n_deferred;
    bool stuck; /* it asks and does not read; sent away by the loop, not in the middle of a step */
} mst_server_worker;

/* A STEP that came after its worker's mark. */
typedef struct mst_held_step {
    struct mst_held_step *next;
    uint32_t worker;
    mst_message m;
    mst_buffer *body;
    mst_staged staged;
} mst_held_step;

/* sync with backup workers: the coordinator's decision. */
typedef struct mst_step_close {
    uint64_t step;
    uint64_t slots[(1024 + 63) / 64];
} mst_step_close;

/* A cut under way. */
typedef struct mst_server_cut {
    uint32_t number; /* the newest heard of */
    uint32_t taken;  /* the newest taken */
    uint32_t flags;
    uint64_t step;        /* sync: the version it is about */
    uint64_t markers[16]; /* async: workers that mark it */
} mst_server_cut;

/* A checkpoint's floats on their way to the coordinator. */
typedef struct mst_part_stream {
    uint32_t cut, slot, extent; /* where the next piece begins */
    uint64_t at;
    unsigned in_flight;
    float *copy; /* the owned floats of weights and slots, one after the other, in an unlinked file */
    size_t copy_bytes;
} mst_part_stream;

typedef enum mst_peer_kind { MST_PEER_STRANGER, MST_PEER_SERVER, MST_PEER_WORKER } mst_peer_kind;

typedef struct mst_peer {
    mst_peer_kind kind;
    uint32_t index;
    mst_buffer *incoming; /* of a message not whole yet */
    mst_staged staged;    /* of a worker; goes with the STEP that is its last part */
    mst_store_parts next; /* what it will be with the part that is being received */
} mst_peer;

typedef struct mst_coordinator mst_coordinator;

typedef struct mst_server {
    mst_server_options options;
    const mst_server_hooks *hooks;
    mst_net *net;
    uint32_t index;
    uint32_t *servers; /* peers; of the others on the coordinator, only [0] elsewhere */
    mst_server_worker *workers;
    mst_peer *peers; /* by number */
    size_t peer_capacity;
    mst_coordinator *co; /* server 0 */

    mst_server_model model;
    mst_placement table;
    mst_extent *owned;
    uint32_t n_owned;
    uint64_t owned_floats;
    mst_store *store;           /* NULL: not set up yet */
    uint64_t restored, restore; /* floats that have come, and that are to come */
    bool ready;

    uint64_t applied;       /* steps */
    uint64_t max_step_body; /* bytes of the largest STEP that makes sense */
    mst_step_close *closes; /* decisions not carried out yet */
    size_t n_closes, close_capacity;
    mst_held_step *held, **held_tail;
    mst_server_cut cut;
    mst_part_stream parts;
    uint32_t chief;    /* the worker whose list is watched; UINT32_MAX: none */
    uint64_t set_hash; /* sync: of all (step, worker) that were averaged, in order */
    bool up, leaving;  /* not the coordinator: it is connected; it was told that this server is to stop */

    mst_ps_clock clock;
    uint64_t log_ns, told_ns, told_in, told_out; /* when records last left; bytes that the spans know of */
    uint64_t traced_queue;                       /* bytes queued that the trace knows of, + 1; 0: none yet */

    mst_buffer *pool;
    mst_buffer *lent;  /* on their way to a peer */
    mst_buffer *reply; /* for answers that leave at once */

    bool over;
    mst_error end; /* code MST_OK: a good end */
} mst_server;

static inline bool mst_is_sync(const mst_server *s)
{
    return s->options.mode == MST_MODE_SYNC;
}

/* sync with fewer pushes than workers per step. */
static inline bool mst_has_backups(const mst_server *s)
{
    return mst_is_sync(s) && s->options.quorum < s->options.n_workers;
}

static inline bool mst_bit(const uint64_t *bits, uint32_t i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

static inline void mst_bit_set(uint64_t *bits, uint32_t i)
{
    bits[i / 64] |= 1ull << (i % 64);
}

/* ---- server.c ---- */

mst_buffer *mst_server_buffer(mst_server *s, size_t size);  /* NULL: no memory */
void mst_server_release(mst_server *s, mst_buffer *buffer); /* NULL-safe */
/* Sends a buffer's first `size` bytes as the body; the buffer comes back by itself, also on failure. */
mst_status mst_server_lend(mst_server *s, uint32_t peer, const mst_message *m, mst_buffer *buffer,
                           size_t size);
/* Whether a failure to send means more than that a peer is gone, which is reported by itself. */
static inline mst_status mst_unless_gone(mst_status st)
{
    return st == MST_EPEER || st == MST_ETIMEOUT ? MST_OK : st;
}
/* Sends away a process that has just come, and hears the recorded sentence. */
void mst_server_refuse(mst_server *s, uint32_t peer, mst_status status);
/* Sends a worker away, which hears why. */
void mst_server_expel(mst_server *s, uint32_t worker, const char *why);
/* Ends the server's loop with the status and its recorded sentence. */
void mst_server_fail(mst_server *s, mst_status status);
/* Makes the store from the model and the table. */
mst_status mst_server_make_store(mst_server *s);

/* ---- server_steps.c ---- */

/* Takes a STEP; consumes body and staged. A failure means the message was bad. */
mst_status mst_server_step(mst_server *s, uint32_t worker, const mst_message *m, mst_buffer *body,
                           mst_staged staged);
/* A GRADIENT is arriving: where its floats go. */
mst_status mst_server_part_body(mst_server *s, uint32_t peer, const mst_message *m, void **out);
/* sync: closes what can be closed. */
mst_status mst_server_try_close(mst_server *s);
/* ssp on the coordinator: answers those who are no longer ahead. */
mst_status mst_server_release_deferred(mst_server *s);
/* Forgets a worker; its pending push stays when it counts for a step (gone_from). */
void mst_server_forget(mst_server *s, uint32_t worker);

/* ---- server_cut.c ---- */

mst_status mst_server_hear_cut(mst_server *s, const mst_message *m, const uint64_t *markers);
mst_status mst_server_hear_mark(mst_server *s, uint32_t worker, const mst_message *m);
/* Takes the cut when it is time: after a step, a mark, a loss. */
mst_status mst_server_try_cut(mst_server *s);
void mst_server_part_sent(mst_server *s);
void mst_server_cut_fini(mst_server *s);

/* ---- server_log.c ---- */

mst_phase mst_server_phase_of(uint16_t type); /* what a message of that type is worked on for */

/* Takes a LOG of another process, which may write in its own name only; also when the job is over. */
mst_status mst_server_hear_log(mst_server *s, uint32_t peer, const mst_message *m, const void *body);
mst_status mst_server_hear_clock(mst_server *s, uint32_t peer, const mst_message *m,
                                 const void *body); /* either side */
/* With --trace: the counter of bytes queued to be sent, where that is another number now. */
void mst_server_trace_queue(mst_server *s);
/* Sends what this server writes about itself, now and then; and at the end, all that is left. */
void mst_server_write_about(mst_server *s);
void mst_server_farewell(mst_server *s);
/* The coordinator: waits a moment for what other servers still send about themselves, until they have left.
 */
void mst_server_last_words(mst_server *s);

/* ---- coordinator ---- */

mst_status mst_coordinator_new(mst_server *s, mst_coordinator **out);
void mst_coordinator_destroy(mst_coordinator *co); /* NULL-safe */
mst_status mst_coordinator_up(mst_server *s, uint32_t peer);
mst_status mst_coordinator_message(mst_server *s, uint32_t peer, const mst_message *m, const void *body);
void mst_coordinator_lost(mst_server *s, uint32_t worker, const mst_net_loss *why);
/* Another server has gone; true: before it had anything to lose, so that it may come again. */
bool mst_coordinator_server_left(mst_server *s, uint32_t server, const char *why);
const char *mst_coordinator_run_path(const mst_server *s); /* of the run, for sentences */
/* A synchronous push has come; last: all the others' are here. */
void mst_coordinator_arrived(mst_server *s, uint32_t worker, bool last);
/* Before the answers of a step or push leave: it is counted, and a cut may begin. slots: the workers whose
 * pushes were applied; late: those whose pushes were dropped. */
mst_status mst_coordinator_applied(mst_server *s, uint64_t step, const mst_store_request *const *requests,
                                   uint32_t n);
void mst_coordinator_dropped(mst_server *s, uint32_t worker, const mst_store_request *request);
/* The work item that goes with an answer of a synchronous step; false: none. */
bool mst_coordinator_trailer(mst_server *s, uint32_t worker, mst_work *out);
/* sync with backup workers: whether a push of the worker may be coming. */
bool mst_coordinator_expects(const mst_server *s, uint32_t worker);
/* sync on streams: all workers have exhausted their rows of the epoch. */
mst_status mst_coordinator_epoch_over(mst_server *s);
/* ssp: whether the worker is too far ahead of the slowest. */
bool mst_coordinator_ahead(const mst_server *s, uint32_t worker);
mst_status mst_coordinator_tick(mst_server *s);
/* A piece of the server's restored floats has left. */
void mst_coordinator_piece_sent(mst_server *s, uint32_t server);
/* The coordinator has taken its part of the cut: what is evaluated and saved is what is counted now. */
mst_status mst_coordinator_cut_taken(mst_server *s);
/* Own floats of cut `number` are written, or another server's are all here. */
mst_status mst_coordinator_saved(mst_server *s, uint32_t number);
/* A server watches the list of the chief. */
mst_status mst_coordinator_watches(mst_server *s, uint32_t worker);
void mst_coordinator_broadcast_end(mst_server *s);

#endif
