/* A server's copies (--replicas 1): servers 2k and 2k + 1 are partners, and each holds a copy of the floats
 * that the other owns, at their places in the flat vector. If one is lost, the other owns its floats too: no
 * float is copied then.
 *
 * A copy is built while training continues: the owner sends its floats in pieces, and after every step (sync)
 * or push a delta with the new values of the floats that it changed (delta.h). Both travel on one connection,
 * in order. The owner answers pushes after the partner has copied their delta, so that nothing that a worker
 * has an answer for is lost with one server.
 *
 * Synchronous steps: server 0 applies step t after all other servers have applied it and their partners have
 * copied it. So with server 0 at step T, every other owner and copy is at T or T + 1. Servers and copies keep
 * the values before their last step and can return to T.
 *
 * A roster is a table of owners. The coordinator changes it when a server is lost or a successor has its copy
 * (takeover.h): all servers forget their workers, which join again, and continue from step T. Messages
 * between servers carry the roster; those of an earlier roster are ignored.
 *
 * Invariants
 * 1. A server writes floats that it does not own only as a copy, and only those of its partner.
 * 2. out is the state of the partner's copy of this server's floats, in that of the copy here.
 * 3. A copy that is complete has the values of its owner after step `step`. */
#ifndef MST_PS_REPLICA_H
#define MST_PS_REPLICA_H

#include <jansson.h>

#include "ps/delta.h"
#include "ps/float_cursor.h"
#include "ps/server_peers.h"

typedef enum mst_copy_state {
    MST_COPY_NONE,
    MST_COPY_BUILT, /* being built */
    MST_COPY_WHOLE,
} mst_copy_state;

/* The coordinator's state on its partner. */
typedef struct mst_replica_state {
    uint64_t at[3];           /* rows, epoch and position after the copy's step, */
    uint64_t next[3];         /* and after the step whose delta, or end of a copy, follows */
    json_t *run, *run_before; /* the newest STATE with MST_STATE_RUN, and the one before it */
} mst_replica_state;

typedef struct mst_replica {
    bool on;          /* --replicas 1 */
    uint32_t partner; /* the server */
    uint32_t roster;
    uint64_t lost_ns; /* when the connection to a partner that owns floats was lost; 0: it is there */
    bool answers;     /* a roster is taken, and READY not sent: pieces of a checkpoint are on their way */
    /* ---- this server's floats, copied by the partner ---- */
    mst_copy_state out;
    bool wanted;               /* the partner has requested a copy */
    uint32_t wanted_roster;    /* in that roster */
    mst_float_cursor next;     /* the next piece */
    unsigned in_flight;        /* pieces that are being sent */
    uint32_t n_sent, n_copied; /* deltas of this roster, and those that the partner has copied */
    mst_delta step;            /* the floats of the last step, as they were before it (sync) */
    bool undoable;             /* step has them */
    /* ---- the partner's floats ---- */
    mst_copy_state in;
    uint64_t in_step; /* sync: steps that the copy has */
    mst_delta in_delta;
    bool in_undoable;
    mst_replica_state state;
    uint64_t state_ns; /* the coordinator: when its state was last sent */
} mst_replica;

/* What a server keeps when it loses the coordinator, whose successor may continue with it. */
typedef struct mst_replica_kept {
    mst_placement table; /* of the roster */
    bool whole;          /* there is a copy of the partner's floats, */
    uint64_t in_step;    /* after this step */
    mst_delta step, in_delta;
    bool undoable, in_undoable;
    mst_replica_state state;
} mst_replica_kept;

/* The server ends because it lost the coordinator: *out is NULL, or the caller's to destroy. */
mst_status mst_replica_keep(mst_server *s, mst_replica_kept **out);
void mst_replica_kept_destroy(mst_replica_kept *self);
/* For JOIN: {"key", "steps", "owns", "undo"} and, if there is a copy of the coordinator's floats, {"copy":
 * {"step", "table", "at", "log", "plan"}}. owns: it took part, so that it has the values of its floats. New
 * reference or NULL. */
json_t *mst_replica_kept_json(const mst_server *s);
/* SETUP with what was kept, after `had` steps: returns to the coordinator's step. */
mst_status mst_replica_recall(mst_server *s, mst_replica_kept *kept, uint64_t had, uint64_t steps);
/* The coordinator: sends its state to the partner: now and then all of it, and before every delta what
 * changes with it. */
mst_status mst_replica_send_run(mst_server *s);

void mst_replica_init(mst_server *s);
/* Connects to the partner, if this server is the one that does: every other server connects to server 0. */
mst_status mst_replica_connect(mst_server *s);
void mst_replica_fini(mst_server *s);

/* The partner is connected, or gone. Both servers have a store: the copies are requested. */
void mst_replica_up(mst_server *s);
void mst_replica_down(mst_server *s);
mst_status mst_replica_begin(mst_server *s);
/* Messages between partners: whether a type is one of them, its largest body, and a message. */
bool mst_replica_takes(const mst_server *s, uint32_t server, uint16_t type);
uint64_t mst_replica_most_bytes(const mst_server *s, uint16_t type);
mst_status mst_replica_message(mst_server *s, const mst_message *m, const uint8_t *body);
/* A piece of a copy has left. */
void mst_replica_sent(mst_server *s);
/* Fails the server if its partner is lost and the coordinator has not noticed it. */
void mst_replica_tick(mst_server *s);

/* Before pushes are applied, and after: sends the delta. */
mst_status mst_replica_before(mst_server *s, const mst_store_request *const *requests, uint32_t n);
mst_status mst_replica_after(mst_server *s);
/* Whether answers wait until the partner has copied the last delta; or that of number `delta`. */
static inline bool mst_replica_waits_for(const mst_replica *self, uint32_t delta)
{
    return self->out != MST_COPY_NONE && self->n_copied < delta;
}
static inline bool mst_replica_waits(const mst_replica *self)
{
    return mst_replica_waits_for(self, self->n_sent);
}
/* sync: informs the coordinator that a step is applied and copied. */
mst_status mst_replica_report(mst_server *s, uint64_t step);

/* ROSTER, from the coordinator. */
mst_status mst_replica_take_roster(mst_server *s, const json_t *json);
/* Takes a roster with its table, which is taken over. copied: this server and its partner have whole copies
 * of each other's floats. cut: the number of the last cut. why: for the workers, which are dropped. */
mst_status mst_replica_set_roster(mst_server *s, uint32_t roster, mst_placement *table, uint64_t steps,
                                  uint32_t cut, bool copied, const char *why);
/* Answers ROSTER once no piece of a checkpoint is on its way. */
mst_status mst_replica_roster_ready(mst_server *s);

#endif
