/* What the files of strategy allreduce share (allreduce.c, allreduce_step.c, allreduce_sparse.c,
 * allreduce_join.c); nobody else includes this. */
#ifndef MST_STRATEGY_ALLREDUCE_IMPL_H
#define MST_STRATEGY_ALLREDUCE_IMPL_H

#include "base/team.h"
#include "strategy/allreduce.h"
#include "strategy/localise.h"

/* --reduction */
typedef enum mst_reduction_choice {
    MST_REDUCTION_AUTO,
    MST_REDUCTION_GATHER,
    MST_REDUCTION_DIRECT,
    MST_REDUCTION_MPI,
    MST_REDUCTION_OFF,  /* for measuring: nothing is reduced */
    MST_REDUCTION_ONLY, /* for measuring: nothing is computed */
} mst_reduction_choice;

/* Messages on the communication thread. */
enum {
    MST_TAG_MEASURE,
    MST_TAG_ORDER,
    MST_TAG_TAIL,
    MST_TAG_COUNTS,
    MST_TAG_KEYS,
    MST_TAG_SUMS,
    MST_TAG_TEXT,
    MST_TAG_REPORT,
};

/* What one thread of a rank works with. */
typedef struct mst_allreduce_worker {
    _Alignas(64) void *scratch;
    mst_grad grad;        /* thread 0's dense ranges lie in `flat` */
    mst_localiser *lists; /* of the owners whose contributions this thread adds up, one per rank */
    mst_localiser merged; /* the same over all ranks */
    float *decoded;       /* values of 16 bits, as floats */
    size_t decoded_room;
    double square; /* of what this thread applies */
    mst_loss_sum loss;
    mst_status status;
    mst_error error;
} mst_allreduce_worker;

/* A list of (key, values) that lies in a message. */
typedef struct mst_key_block {
    const uint32_t *keys;
    const char *values;
    uint32_t n;
} mst_key_block;

typedef struct mst_allreduce_buffer {
    char *data;
    size_t room;
} mst_allreduce_buffer;

/* The exchange of sparse gradients; allreduce_sparse.c. */
typedef struct mst_sparse_exchange {
    uint32_t n_owners;    /* ranks x threads: owner o is thread o % n of rank o / n */
    uint32_t *counts;     /* of all ranks: keys of rank s for owner o at s * n_owners + o */
    uint32_t *sum_counts; /* by owner: keys of the sums */
    mst_allreduce_buffer out, in, sums, sums_in;
    size_t *out_at, *in_at;    /* blocks in out: by owner rank; in `in`: by source rank */
    mst_key_block *blocks;     /* by source rank and owner */
    mst_key_block *sum_blocks; /* by owner, when the sums were gathered */
    bool scattered;            /* how this step travelled */
    double union_share;        /* of a step's keys over all ranks: how many are distinct */
    uint64_t n_gathered, n_scattered;
} mst_sparse_exchange;

/* What a rank has done; travels to rank 0 at the end. */
typedef struct mst_allreduce_counts {
    uint64_t steps, rows;
    double compute_seconds, wait_seconds, input_seconds;
    double reduce_seconds; /* while some reduction was under way */
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
    bool overwritten; /* the model overwrites thread 0's gradient, and is alone with it */
    bool on_comm;     /* steps run on the communication thread: nothing to overlap */
    mst_reduction_choice reduction;
    mst_team *team;
    mst_allreduce_worker *workers;
    mst_weights weights;

    /* Dense: thread 0's gradient, ranges in reverse order, cut into slices. */
    float *flat;
    uint64_t n_flat;
    uint64_t flat_at[MST_RANGE_MAX];
    mst_reduce_op *ops;
    uint32_t n_ops, next_op;                                 /* next to be posted */
    uint32_t first_op[MST_RANGE_MAX], end_op[MST_RANGE_MAX]; /* that hold a range */
    uint32_t *last_range;                                    /* of an op: the one that is ready last */
    bool ready[MST_RANGE_MAX], pending[MST_RANGE_MAX];       /* gradient final; reduced, to be applied */
    float clip;                                              /* of the update that is pending */
    bool clip_known;
    bool applied; /* flat holds a gradient that was applied already */
    mst_update update;

    mst_sparse_exchange sparse;

    /* The step under way. */
    mst_feed *feed;
    mst_batch global;  /* batch */
    uint32_t from, to; /* this rank's rows of it */
    uint64_t step;

    uint64_t feed_epoch, feed_position; /* where the feed stands, on ranks that follow */
    bool feed_started;
    double step_seconds; /* lately */
    mst_allreduce_wishes wishes;
    int stopped_by;
    bool save_wished;
    mst_allreduce_counts counts;
    mst_reduce_counts before;
    mst_reduce_counts spanned; /* what the spans know of; the training thread's */
} mst_allreduce;

static inline bool mst_allreduce_reduces(const mst_allreduce *self)
{
    return self->n_ranks > 1 && self->reduction != MST_REDUCTION_OFF;
}

/* ---- allreduce_step.c ---- */

/* Cuts the dense gradient into slices. */
mst_status mst_allreduce_lay_out(mst_allreduce *self, const mst_grad *layout);
/* Trains on self->global: computes, reduces, and applies, but for what the next step applies as it goes. */
mst_status mst_allreduce_step(mst_allreduce *self);
/* Applies what is still to be applied: the weights are current then. */
mst_status mst_allreduce_drain(mst_allreduce *self);
/* Keeps thread t's failure. */
mst_status mst_allreduce_collect(mst_allreduce *self);

/* ---- allreduce_sparse.c ---- */

mst_status mst_sparse_init(mst_allreduce *self);
void mst_sparse_fini(mst_allreduce *self);
/* Adds up the threads' contributions over all ranks, and leaves thread t its share of the sums. The share is
 * what mst_sparse_apply applies, times clip; *square: of all sums. */
mst_status mst_sparse_sum(mst_allreduce *self, double *square);
mst_status mst_sparse_apply(mst_allreduce *self, float clip);

#endif
