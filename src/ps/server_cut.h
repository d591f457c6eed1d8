/* Cuts on a server: one version of the weights, the same on all servers (server.h). Taking a cut sends the
 * values of the evaluation list to the chief, and starts the server's share of a checkpoint.
 *
 * Invariants
 * 1. Cuts are taken in order, one at a time; the coordinator begins none before all servers have finished the
 * last.
 * 2. Synchronous: a cut of step t is taken when exactly t steps are applied. Workers send markers before they
 * push for t + 1, and messages keep their order. A marker that arrives before its cut delays step t + 1 until
 * the coordinator's CUT arrives; without a CUT, its worker is dropped.
 * 3. Asynchronous: steps that arrive after a worker's marker are held until the cut is taken.
 * 4. After a cut with MST_CUT_HOLD no push is applied before the coordinator's HOLD. Cuts that follow
 * meanwhile are of the same version. */
#ifndef MST_PS_SERVER_CUT_H
#define MST_PS_SERVER_CUT_H

#include "ps/server_steps.h"

typedef struct mst_server_cut {
    uint32_t number; /* the newest announced */
    uint32_t taken;  /* the newest taken */
    uint32_t flags;
    uint64_t step;                      /* sync: its version */
    uint64_t markers[MST_WORKER_WORDS]; /* async: workers that mark it; */
    uint32_t marked;                    /* or that have marked this one, at which training waits */
    bool holds;                         /* training waits: no push is applied */
    uint32_t chief;                     /* the worker that evaluates; UINT32_MAX: none */
} mst_server_cut;

/* CUT, from the coordinator. */
mst_status mst_cut_announced(mst_server *s, const mst_message *m, const uint64_t *markers);
/* MARKER, from a worker. */
mst_status mst_cut_marked(mst_server *s, uint32_t worker, const mst_message *m);
/* sync: whether a marker of this version has arrived before its cut: no step closes until the cut is here. */
bool mst_cut_awaited(const mst_server *s);
/* Drops the workers that have marked a cut that the coordinator does not announce. */
void mst_cut_check_markers(mst_server *s);
/* The worker's connection is gone. */
void mst_cut_forget(mst_server *s, uint32_t worker);
/* EVAL_LIST, from the chief. */
mst_status mst_cut_eval_list(mst_server *s, uint32_t worker, const mst_message *m, const void *body);
/* Training continues: takes the steps that were held. */
mst_status mst_cut_resume(mst_server *s);
/* Takes the cut when it is time: after a step, a marker, a loss. */
mst_status mst_cut_try(mst_server *s);

#endif
