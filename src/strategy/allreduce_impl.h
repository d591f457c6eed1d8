/* The strategy allreduce; shared by allreduce.c and allreduce_step.c only. */
#ifndef MST_STRATEGY_ALLREDUCE_IMPL_H
#define MST_STRATEGY_ALLREDUCE_IMPL_H

#include "base/team.h"
#include "strategy/allreduce.h"
#include "strategy/grad_slices.h"
#include "strategy/sparse_exchange.h"

/* --reduction */
typedef enum mst_reduction_choice {
    MST_REDUCTION_AUTO,
    MST_REDUCTION_GATHER,
    MST_REDUCTION_DIRECT,
    MST_REDUCTION_MPI,
    MST_REDUCTION_OFF,  /* for measuring: nothing is reduced */
    MST_REDUCTION_ONLY, /* for measuring: nothing is computed */
} mst_reduction_choice;

/* One thread of a rank. */
typedef struct mst_allreduce_thread {
    _Alignas(64) void *scratch;
    mst_grad grad; /* thread 0's dense ranges lie in the slices' vector */
    mst_loss_sum loss;
    mst_status status;
    mst_error error;
} mst_allreduce_thread;

/* The update of the gradient that is under way or was reduced last. */
typedef struct mst_pending_update {
    bool range[MST_RANGE_MAX]; /* reduced, to be applied */
    float clip;
    bool clip_known;
    bool applied; /* the vector holds a gradient that was applied already */
    mst_update update;
} mst_pending_update;

/* The step under way. */
typedef struct mst_allreduce_now {
    mst_feed *feed;
    mst_batch global;  /* batch */
    uint32_t from, to; /* this rank's rows of it */
    uint64_t step;
} mst_allreduce_now;

/* Position of the feed on ranks that follow. */
typedef struct mst_allreduce_position {
    uint64_t epoch, position;
    bool started;
} mst_allreduce_position;

/* The counters of a rank; sent to rank 0 after every order and at the end. */
typedef struct mst_allreduce_counts {
    uint64_t steps, rows;
    double accuracy; /* on the rows of the last order */
    double compute_seconds, wait_seconds, input_seconds;
    double reduce_seconds; /* while a reduction was under way */
    uint64_t bytes_out, bytes_in;
    uint64_t reductions[MST_REDUCE_WAYS], sparse_gathered, sparse_scattered;
    char name[64];
} mst_allreduce_counts;

typedef struct mst_allreduce {
    mst_strategy base;
    mst_comm *comm;
    uint32_t rank, n_ranks;
    unsigned n;     /* threads that take rows */
    unsigned inner; /* that each of them may use in a batch */
    uint32_t batch, global_batch;
    bool overwritten; /* the model overwrites thread 0's gradient, the only one */
    bool on_comm;     /* steps run on the communication thread: nothing to overlap */
    mst_reduction_choice reduction;
    mst_team *team;
    mst_allreduce_thread *threads;
    mst_weights weights;
    mst_grad_slices slices;     /* of the dense gradient */
    mst_sparse_exchange sparse; /* of the sparse one */
    mst_pending_update pending;
    mst_allreduce_now now;
    mst_allreduce_position followed;
    double step_seconds; /* of recent steps */
    mst_allreduce_signals signals;
    int stopped_by; /* the rank that requested to stop; -1: none */
    bool save_requested;
    mst_allreduce_counts counts, *all; /* all: on rank 0, those of all ranks at the end of the last order */
    mst_reduce_counts before;          /* at the start */
    mst_reduce_counts spanned;         /* already in the spans; the training thread's */
} mst_allreduce;

static inline bool mst_allreduce_reduces(const mst_allreduce *self)
{
    return self->n_ranks > 1 && self->reduction != MST_REDUCTION_OFF;
}

/* ---- allreduce_step.c ---- */

/* Trains on self->now: computes, reduces, and applies, except for ranges that the next step applies. */
mst_status mst_allreduce_step(mst_allreduce *self);
/* Applies all pending ranges: the weights are current then. */
mst_status mst_allreduce_drain(mst_allreduce *self);
/* Returns the first failure of a thread. */
mst_status mst_allreduce_collect(mst_allreduce *self);

#endif
