/* A team: N threads of one process that run the same function side by side, with barriers between phases.
 *
 * Thread 0 of the team is the caller of mst_team_run. Waits inside a team are for the team's own threads,
 * which compute and never block on anything outside the process; these waits have no
 * deadline (docs/PARAMETER-SERVER.md, "Waits"). A barrier spins briefly and then sleeps; it hardly spins
 * while other programs use the cores. More threads than cores give their cores to each other. */
#ifndef MST_BASE_TEAM_H
#define MST_BASE_TEAM_H

#include "base/status.h"

typedef struct mst_team mst_team;
typedef void mst_team_fn(void *arg, unsigned thread);

/* *out is the caller's to destroy; set only on MST_OK. MST_ENOMEM or MST_EIO when threads cannot be made. */
mst_status mst_team_new(unsigned n_threads, mst_team **out);
void mst_team_destroy(mst_team *team); /* NULL-safe */
unsigned mst_team_size(const mst_team *team);

/* Runs fn(arg, 0..N-1), one per thread, and returns when all have returned. */
void mst_team_run(mst_team *team, mst_team_fn *fn, void *arg);

/* Called by every thread inside fn, with its number: none passes until all have arrived. */
void mst_team_barrier(mst_team *team, unsigned thread);

/* A barrier in two parts: a thread that has arrived may do something else before it waits. */
unsigned mst_team_arrive(mst_team *team, unsigned thread);
void mst_team_await(mst_team *team, unsigned thread, unsigned arrival);

/* Threads that take turns at the parts of something: each passes one on when it is done with it, and follows
 * another thread to the part that this one passes on. follow returns when `other` has passed as often as
 * `thread` has, and what it wrote before is visible then. */
void mst_team_pass(mst_team *team, unsigned thread);
void mst_team_follow(mst_team *team, unsigned thread, unsigned other);

#endif
