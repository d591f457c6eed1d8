/* The coordinator's part of copies (--replicas 1, replica.h): the roster, which states the servers that take
 * part and the floats that each owns.
 *
 * When a server other than 0 is lost, its partner owns its floats from then on: the coordinator changes the
 * roster, all servers return to its own step, and the workers join again. The job does not wait for a
 * successor. A successor that joins takes no part in steps until it has a copy of its partner's floats, which
 * is built while training continues; then another change of the roster returns its share to it.
 *
 * When server 0 is lost, server 1 has a copy of its floats and of its state: the progress, the plan of the
 * rows, and the run as a checkpoint describes it. The successor of server 0 waits for the other servers to
 * join. If all of them still have their floats and can return to the step of that copy, it continues from
 * there; server 1 owns its floats until it has them. Otherwise the run continues from the last checkpoint.
 * Server 1 may have been dropped before, so that its copy is from an earlier roster. */
#ifndef MST_PS_TAKEOVER_H
#define MST_PS_TAKEOVER_H

#include <jansson.h>

#include "ps/replica.h"
#include "ps/server.h"

typedef struct mst_takeover_server {
    bool absent;        /* it takes no part: it is lost, or has no copy yet */
    bool moved;         /* server 0: it takes part, but its partner owns its floats */
    json_t *kept;       /* what it has in memory, as its JOIN states, until the table is made; or NULL */
    bool current;       /* it has taken the current roster */
    bool copied;        /* its partner has a whole copy of its floats, */
    uint64_t copy_step; /* for steps from this one on */
    uint64_t applied;   /* sync: steps that it has applied and its partner has copied */
} mst_takeover_server;

typedef struct mst_takeover {
    mst_takeover_server *servers;
    mst_placement base; /* the table when all servers take part */
    bool under_way;     /* not all servers have taken the current roster */
    bool recalled;      /* the job continues from what servers have kept */
    char realign[160];  /* why all servers return to the coordinator's step; "": they do not */
} mst_takeover;

mst_status mst_takeover_init(mst_server *s);
void mst_takeover_fini(mst_server *s);
/* The table is made. */
mst_status mst_takeover_placed(mst_server *s);
/* A server joins before the table is made: keeps what its JOIN states. */
void mst_takeover_joined(mst_server *s, uint32_t server, const json_t *join);
/* Whether a worker that took part before has to wait until all servers have joined: it joins again soon. */
bool mst_takeover_awaits(mst_server *s, uint32_t worker, const json_t *join);
/* The first worker joins: opens the run, with the state that other servers have kept if they have. */
mst_status mst_takeover_open(mst_server *s, const json_t *join, mst_server_start *start);
/* Makes the table of a job that continues so. */
mst_status mst_takeover_place(mst_server *s);
/* The state of the run, {"log", "plan"}. New reference; NULL: it cannot be had. */
json_t *mst_takeover_state(const mst_server *s);
/* Rows, epoch and position after the last step. */
void mst_takeover_progress(const mst_server *s, uint64_t *at);
/* The table of a checkpoint's files, which does not depend on the roster. */
const mst_placement *mst_takeover_base(const mst_server *s);

/* Sends a message, with a body or NULL, to all other servers that take part and are connected. */
mst_status mst_roster_send(mst_server *s, const mst_message *m, const mst_piece *body);
uint32_t mst_roster_count(const mst_server *s); /* servers that take part, this one included */
bool mst_roster_lacks(const mst_server *s, uint32_t server);
bool mst_takeover_under_way(const mst_server *s);
/* Adds the servers that take no part to the JOB of a worker: {"absent": [1]}. New reference or NULL. */
json_t *mst_takeover_job(const mst_server *s);
/* Whether a message of a server was sent before it took the current roster. */
bool mst_takeover_ignores(const mst_server *s, uint32_t server, uint16_t type);

/* Whether the loss of the server costs nothing, because its partner has a copy; and the change of the roster.
 */
bool mst_takeover_can(const mst_server *s, uint32_t server);
mst_status mst_takeover_begin(mst_server *s, uint32_t server, const char *why);
/* A server that takes no part is gone. */
void mst_takeover_lost(mst_server *s, uint32_t server, const char *why);
/* A successor has a store. */
void mst_takeover_ready(mst_server *s, uint32_t server);
/* sync: all servers return to this server's step soon, instead of a rollback to a checkpoint. False: they
 * cannot. */
bool mst_takeover_realign(mst_server *s, const char *why);
/* Lets successors take part that have their copies. */
mst_status mst_takeover_tick(mst_server *s);

/* A whole copy of the server's floats exists. */
mst_status mst_takeover_copied(mst_server *s, uint32_t server, uint32_t roster, uint64_t step);
/* sync: the server has applied the step, and its partner has copied it. */
mst_status mst_takeover_applied(mst_server *s, uint32_t server, uint32_t roster, uint64_t step);
/* sync: whether all other servers have. */
bool mst_takeover_may_apply(const mst_server *s, uint64_t step);
mst_status mst_takeover_took_roster(mst_server *s, uint32_t server, uint32_t roster);

#endif
