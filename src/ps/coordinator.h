/* The coordinator, as the files of a server see it: the part of server 0 that admits processes, assigns rows,
 * closes steps, orders cuts and ends the job.
 *
 *   coordinator           messages, the course of the job, its end
 *   coordinator_members   joins, admission, set-up of the other servers, losses
 *   coordinator_rows      the rows of every worker
 *   coordinator_pace      counts of pushes; the quorum; workers that are ahead or stalled
 *   coordinator_stragglers  workers that are slow for long
 *   coordinator_cuts      evaluations and checkpoints
 *   coordinator_deadlines time limits of workers, and of the job after a stop request
 *   coordinator_recover   a lost server whose share alone returns to the last checkpoint
 *   takeover              a lost server whose partner continues in its place (--replicas) */
#ifndef MST_PS_COORDINATOR_H
#define MST_PS_COORDINATOR_H

#include "ps/server_steps.h"

typedef struct mst_coordinator mst_coordinator;

mst_status mst_coordinator_init(mst_server *s); /* makes s->co */
void mst_coordinator_fini(mst_server *s);
mst_status mst_coordinator_message(mst_server *s, uint32_t peer, const mst_message *m, const void *body);
/* Checks time limits and the stop flag, then advances the job; called after every poll. */
mst_status mst_coordinator_tick(mst_server *s);
/* Acts on a change: reports progress, begins cuts, offers rows, ends the job. */
mst_status mst_coordinator_advance(mst_server *s);
void mst_coordinator_broadcast_end(mst_server *s);
mst_status mst_coordinator_send_end(mst_server *s, uint32_t peer); /* to one process */
/* A worker cannot continue: the job ends with that status and its recorded message, after a checkpoint if
 * there are steps to save. */
void mst_coordinator_end_with(mst_server *s, mst_status status);
/* The state of the job is incomplete, because of `why`: all processes join again, and training continues from
 * the last complete checkpoint, or from the beginning if there is none. With an engine that does not survive
 * deaths, the job fails. Takes effect when the server's loop continues: s->over is set. */
void mst_coordinator_roll_back(mst_server *s, const char *why);

/* ---- coordinator_members.c ---- */

mst_status mst_members_up(mst_server *s, uint32_t peer);
void mst_members_lost(mst_server *s, uint32_t worker, const mst_net_loss *loss, bool nan);
/* Whether a worker that fails has not joined a job that has begun: it is refused, and the job continues. */
bool mst_members_fails_early(const mst_server *s, uint32_t worker);
/* Refuses a worker that has not joined, with the recorded message. */
void mst_members_refuse(mst_server *s, uint32_t worker, mst_status status);
/* A process connects as a worker: ends the guest that has its slot, if any. */
void mst_members_end_guest(mst_server *s, uint32_t worker);
/* Another server is gone: the job rolls back, unless the server had no weights yet or can be recovered. */
void mst_members_server_lost(mst_server *s, uint32_t server, const mst_net_loss *loss);
/* A piece of the server's restored floats has left. */
void mst_restore_sent(mst_server *s, uint32_t server);

/* ---- coordinator_rows.c ---- */

/* The work item that goes with an answer of a synchronous step; false: none. */
bool mst_rows_trailer(mst_server *s, uint32_t worker, mst_work *out);
/* Whether workers read streams of their own, and end their epochs themselves. */
bool mst_rows_are_streams(const mst_server *s);
/* The steps or rows of the run are done. */
bool mst_rows_at_limit(const mst_server *s);
/* sync on streams: all workers have exhausted their rows of the epoch. */
mst_status mst_rows_epoch_over(mst_server *s);

/* ---- coordinator_pace.c ---- */

/* A synchronous push has arrived; last: it completes the step. */
void mst_pace_arrived(mst_server *s, uint32_t worker, bool last);
/* Before the answers of a step or push leave: counts it; a cut may begin. */
mst_status mst_pace_applied(mst_server *s, uint64_t step, const mst_store_request *const *requests,
                            uint32_t n);
/* A push arrived too late for its step. */
void mst_pace_dropped(mst_server *s, uint32_t worker, const mst_store_request *request);
/* sync with a quorum: whether enough pushes have arrived to close the step, and which of them count. */
bool mst_pace_quorum_reached(const mst_server *s, uint64_t step, mst_step_close *close);
/* ssp: whether the worker is too far ahead of the slowest. */
bool mst_pace_ahead(const mst_server *s, uint32_t worker);

/* ---- coordinator_cuts.c ---- */

/* The coordinator has taken its share of the cut: the current state is evaluated and saved. */
mst_status mst_cuts_taken(mst_server *s);
/* All floats of one server for the checkpoint of cut `number` are written; failed: they will not arrive. */
mst_status mst_cuts_saved(mst_server *s, uint32_t number, bool failed);
/* A server has received the evaluation list of a worker. */
mst_status mst_cuts_listed(mst_server *s, uint32_t worker);

#endif
