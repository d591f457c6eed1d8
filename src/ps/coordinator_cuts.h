/* Evaluations and checkpoints, which are taken at a cut. One cut is under way at a time; an evaluation
 * or checkpoint that becomes due meanwhile waits for its end.
 *
 * Exact evaluation: training waits from the step at which an evaluation is due until its result is here. If
 * the evaluation cannot begin at once (the chief is opening its sets, a checkpoint is being written), a cut
 * without another purpose stops all servers at one version, and the evaluation follows at that version. If
 * the run ends meanwhile, the pushes that wait are discarded: the weights stay those that were evaluated.
 *
 * The last checkpoint follows the last evaluation, as in local training: a resumed run does not repeat it. */
#ifndef MST_PS_COORDINATOR_CUTS_H
#define MST_PS_COORDINATOR_CUTS_H

#include <jansson.h>

#include "ps/server_peers.h"
#include "ps/server_steps.h"

/* A message of a checkpoint that arrived before the coordinator's own share was taken. */
typedef struct mst_early_piece {
    struct mst_early_piece *next;
    mst_message m;
    mst_body *body;
} mst_early_piece;

typedef struct mst_cut_plan {
    uint32_t chief;    /* the worker that evaluates; UINT32_MAX: none */
    uint32_t n_listed; /* servers that have its evaluation list */
    bool eval_due, save_due;
    bool evaluating, saving;
    bool saving_best;           /* the weights being saved are those being evaluated */
    bool best_here, best_known; /* all their floats have arrived; the evaluation result has arrived */
    bool best;                  /* the evaluated weights are the best */
    uint32_t eval_cut, save_cut;
    bool at_step; /* sync: a step is complete and not answered, so that no server is beyond it */
    mst_early_piece *early, **early_tail;
    uint32_t n_saved;        /* servers whose floats have all arrived, or will not */
    bool save_failed;        /* those of a server will not */
    uint64_t evaluated_step; /* UINT64_MAX: none yet */
    uint64_t saved_step;
    bool held;         /* training waits, from this cut on: */
    uint32_t held_cut; /* its number and the workers that mark it */
    uint64_t held_workers[MST_WORKER_WORDS];
    uint64_t held_since_ns, held_ns; /* when that began; how long training has waited before */
} mst_cut_plan;

void mst_cuts_init(mst_cut_plan *self);
void mst_cuts_fini(mst_cut_plan *self);
/* due: mst_due_bits, to which the end is added if an evaluation without sets ends the run. */
mst_status mst_cuts_due(mst_server *s, unsigned *due);
/* Begins a cut if one is due and possible. */
mst_status mst_cuts_begin(mst_server *s);
/* The job ends: the last evaluation and checkpoint are due, unless the state is evaluated and saved. */
void mst_cuts_last(mst_server *s);
mst_status mst_cuts_begin_last(mst_server *s);
static inline bool mst_cuts_under_way(const mst_cut_plan *self)
{
    return self->evaluating || self->saving;
}
/* Nothing is due or under way. */
bool mst_cuts_idle(const mst_server *s);
/* A chief is lost: another worker evaluates. */
mst_status mst_cuts_name_chief(mst_server *s, uint32_t worker);
void mst_cuts_replace_chief(mst_server *s);
/* Informs the worker if training waits. */
mst_status mst_cuts_inform(mst_server *s, uint32_t worker);
/* How long training has waited in all. */
uint64_t mst_cuts_held_ns(const mst_cut_plan *self);
/* Training continues if it waits. */
mst_status mst_cuts_resume(mst_server *s);
/* No result is awaited any more. */
void mst_cuts_abandon_evaluation(mst_server *s);
/* All workers join again: a cut that is under way is repeated, and another chief is named. */
mst_status mst_cuts_interrupt(mst_server *s);
/* EVAL_RESULT, from the chief. */
mst_status mst_cuts_result(mst_server *s, const mst_message *m, const json_t *json);
/* FLOATS or SAVED, from another server. */
mst_status mst_cuts_piece(mst_server *s, const mst_message *m, const void *body);
/* Keeps or discards the checkpoint of the best weights, once its floats and the verdict have arrived. */
mst_status mst_cuts_settle_best(mst_server *s);

#endif
