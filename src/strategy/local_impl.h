/* Shared by the files of strategy local (local.c, local_update.c, local_sync.c, local_async.c); no other file
 * includes this. */
#ifndef MST_STRATEGY_LOCAL_IMPL_H
#define MST_STRATEGY_LOCAL_IMPL_H

#include "base/team.h"
#include "observe/trace_file.h"
#include "strategy/hot_weights.h"
#include "strategy/key_sums.h"
#include "strategy/strategy.h"

#define MST_OWN_PIECES 4 /* of the records of a batch, at most; else rows are filled */

/* The state of one thread. */
typedef struct mst_local_thread {
    _Alignas(64) void *scratch;
    float *lrs;      /* learning rates of the steps of a claim */
    mst_rule *rules; /* by rule: of the steps of a claim */
    mst_touched touched;
    mst_picks picks; /* by picks: the keys of this thread's share of a step, */
    mst_batch share; /* ... its rows, with popular keys translated, */
    float *coefs;    /* ... and their coefficients */
    float *hot_sums; /* by picks: the gradient of the popular keys, of this thread's rows */
    float *margins;  /* by owned keys: the sums of all rows over this thread's keys, which are in picks, */
    mst_picks next;  /* ... those of the next step, */
    mst_records records[MST_OWN_PIECES]; /* ... and the records that the latter come from, ... */
    unsigned n_records;                  /* ... in pieces; 0: from filled rows */
    mst_grad grad;
    mst_key_sums key_sums;
    mst_row *rows; /* with hot weights: rows with translated keys */
    uint32_t *keys;
    size_t key_capacity;
    mst_batch first; /* async with hot weights: the first claim of a run */
    double square;   /* sync: this owner's share of the gradient's squared norm */
    mst_loss_sum loss;
    mst_status status;
    mst_error error;
} mst_local_thread;

/* A part of a batch that one thread computes. */
typedef struct mst_local_part {
    _Alignas(64) atomic_uint thread; /* that computes it now, plus 1; 0: none does */
    mst_grad shown;                  /* its gradient, without a sparse part, for the owners */
    mst_loss_sum loss;
} mst_local_part;

#define MST_PARTS_ANY 4 /* parts of each thread's share of a batch that any thread may compute */

/* How a batch is divided into parts: each thread computes a part of fixed_rows rows, if that is not 0; the
 * rest are parts of part_rows rows, for any thread that has time. The order of parts is that of their rows.
 */
typedef struct mst_local_parts {
    uint32_t fixed_rows;
    unsigned n_fixed, n;
} mst_local_parts;

/* The method of a step. */
typedef enum mst_local_way {
    MST_LOCAL_GENERAL, /* gradient, then optimizer */
    MST_LOCAL_DESCEND, /* the model updates in place: async, or one thread */
    MST_LOCAL_RULE,    /* the same with any rule, on a store by rows: one thread, or async */
    MST_LOCAL_OWN,     /* few sync threads of a linear model: each has its own keys in all rows */
    MST_LOCAL_PICK,    /* more of them: coefficients of rows, then their keys, block by block */
} mst_local_way;

typedef struct mst_local {
    mst_strategy base;
    unsigned n;     /* threads that take rows */
    unsigned inner; /* threads that each of them may use within a batch: all, if the model can use them */
    uint32_t batch, claim_steps;
    mst_local_way way;
    bool additive;
    bool shows;   /* sync: each part has a dense gradient that the owners read, apart from those of threads */
    bool streams; /* ... to which that of the thread is copied past the caches (tensor/past_caches.h) */
    uint32_t part_rows;    /* 0: a part of the batch per thread */
    mst_local_part *parts; /* where the strategy shows */
    unsigned n_parts;      /* at most */
    atomic_uint next_part; /* of those for any thread */
    atomic_uint parts_done;
    bool assists; /* threads without a part assist others */
    bool timed;   /* a step is long enough to time its phases one by one; else they count as compute */
    mst_team *team;
    mst_local_thread *threads;
    mst_hot_weights *hot;        /* async, n > 1, descend; or by picks; or NULL */
    const mst_batch **samples;   /* async with hot weights: the first claims of a run, ... */
    uint64_t next_sample;        /* ... which are a sample from this row of the training on */
    bool sampled;                /* by picks: the popular keys are chosen */
    uint32_t popular, n_popular; /* by picks: place of the first popular key, and their number */
    float *coefs;                /* by owned keys: of all rows of a step */
    mst_weights weights;

    /* The run under way: */
    mst_feed *feed;
    const mst_budget *budget;
    mst_progress *progress;
    mst_batch claim;                                  /* sync: claimed by thread 0 */
    bool over;                                        /* sync: set by thread 0, read by all after a barrier */
    atomic_uint_fast64_t steps_claimed, rows_claimed; /* async: of the budget */
    atomic_uint_fast64_t steps_done, rows_done;
    atomic_uint_fast64_t stop_at; /* sync: the first step that is not applied, because a thread has failed */
    atomic_bool ended, failed;
} mst_local;

static inline float mst_local_lr(const mst_local *self, uint64_t step)
{
    return mst_learning_rate(&self->base.env.optimizer->options, step);
}

/* Rules of n steps from `first` on, into w->rules. */
static inline void mst_local_rules(const mst_local *self, mst_local_thread *w, uint64_t first, uint64_t n)
{
    const mst_optimizer *optimizer = self->base.env.optimizer;
    for (uint64_t i = 0; i < n; i++) {
        mst_update u = mst_optimizer_update(optimizer, first + i);
        w->rules[i] = optimizer->ops->rule(optimizer, &u);
    }
}

/* Steps of local_sync.c for linear models. */
static inline bool mst_local_by_picks(const mst_local *self)
{
    return self->way == MST_LOCAL_OWN || self->way == MST_LOCAL_PICK;
}

/* The model updates the weights itself. */
static inline bool mst_local_in_place(const mst_local *self)
{
    return self->way == MST_LOCAL_DESCEND || self->way == MST_LOCAL_RULE;
}

/* Step `number` for the model, on a share that starts at a row of the batch. */
static inline mst_step mst_local_step(const mst_local *self, uint64_t number, uint64_t first_row)
{
    return (mst_step){.seed = self->base.env.seed, .number = number, .first_row = first_row};
}

static inline uint64_t mst_local_steps(const mst_local *self, uint64_t rows)
{
    return (rows + self->batch - 1) / self->batch;
}

/* A phase within a step begins. */
static inline void mst_local_phase(const mst_local *self, mst_phase phase)
{
    if (self->timed)
        mst_span_enter(phase);
}

/* Waits at a barrier at which thread t has arrived; then a phase begins. */
static inline void mst_local_await(mst_local *self, unsigned t, unsigned arrival, mst_phase then)
{
    uint64_t start = self->timed ? 0 : mst_trace_now(); /* else a phase */
    mst_local_phase(self, MST_PHASE_BARRIER_WAIT);
    mst_team_await(self->team, t, arrival);
    if (!self->timed)
        mst_trace_op("barrier", start, (mst_trace_output){0});
    mst_local_phase(self, then);
}

static inline void mst_local_barrier(mst_local *self, unsigned t, mst_phase then)
{
    mst_local_await(self, t, mst_team_arrive(self->team, t), then);
}

/* Thread t of a run begins, or is done. */
static inline void mst_local_begin(const mst_local *self, unsigned t)
{
    mst_spans_attach(self->base.env.spans, t, MST_PHASE_PREPARE);
}

static inline void mst_local_end(unsigned t)
{
    if (t == 0)
        mst_span_enter(MST_PHASE_IDLE); /* the training loop's own thread */
    else
        mst_spans_detach();
}

/* Records the failure of thread w and ends all threads. */
void mst_local_fail(mst_local *self, mst_local_thread *w, mst_status st);

/* The same for synchronous threads, which stop together before the step. Called before the barrier after
 * which the step is applied. */
void mst_local_stop(mst_local *self, mst_local_thread *w, mst_status st, uint64_t step);

/* Thread functions for mst_team_run. */
void mst_local_sync_thread(void *self, unsigned t);
void mst_local_async_thread(void *self, unsigned t);

/* The gradient with the state of a step: that of the first rows. */
static inline const mst_grad *mst_local_state(const mst_local *self)
{
    return self->shows && !self->streams ? &self->parts[0].shown : &self->threads[0].grad;
}

/* The parts of a batch. */
mst_local_parts mst_local_divide(const mst_local *self, uint32_t n_rows);

/* ---- the update (local_update.c) ---- */

/* Sums the contributions of `sources` for owner t of the sync threads (n_sources 1: all of that source) per
 * key, in the order of sources, into the key sums of thread t. */
mst_status mst_local_sum_sparse(mst_local *self, unsigned t, unsigned n_sources, mst_local_thread *sources);

/* Before a step: clears thread t's gradient of the popular keys. */
void mst_local_begin_popular(mst_local *self, unsigned t);

/* Updates the keys of thread t's share of a step of n_rows rows by their coefficients, block after block. The
 * threads take turns at the blocks: thread t begins with block t, and follows thread t + 1. Afterwards all
 * threads have added up the gradient of their popular keys. */
void mst_local_apply_picks(mst_local *self, unsigned t, uint32_t n_rows, const mst_update *u);

/* The same for the keys that thread t owns, by the coefficients of all rows; unless it is the last step of a
 * claim, fetches the weights of the next one. */
void mst_local_apply_own(mst_local *self, unsigned t, uint32_t n_rows, bool last, const mst_update *u);

/* The same for the popular keys that owner t updates, by the sums of all threads. */
void mst_local_apply_popular(mst_local *self, unsigned t, uint32_t n_rows, const mst_update *u);

/* Sums the dense gradients of the parts of a batch, in order, into that of thread t; only the slices of owner
 * t. State is not summed. */
void mst_local_sum_dense(mst_local *self, unsigned t, unsigned n_parts);

/* Squared norm of what owner t of n has: its slices of the dense ranges of grad, state left out, and the
 * sums by key. */
double mst_local_square(const mst_grad *grad, const mst_key_sums *l, unsigned t, unsigned n);
/* The factor of the gradient under --clip-norm. */
float mst_local_clip(const mst_local *self, double square);

/* Prepares the gradient that thread t adds to for a part of a batch: its own, or that of the part. */
mst_grad *mst_local_begin_grad(mst_local *self, unsigned t, unsigned part);

/* The gradient of a part is complete: copies it where it is in that of thread w. */
void mst_local_show_grad(const mst_local *self, const mst_local_thread *w, unsigned part);

/* With one thread that takes rows: all of mst_local_apply_dense, by the threads of its model. */
void mst_local_apply_alone(mst_local *self, mst_local_thread *w, float clip, const mst_update *u);

/* Applies the slices of owner t of n of the dense ranges of grad, where state is replaced by that of `state`;
 * and the key sums of thread t. */
void mst_local_apply_dense(mst_local *self, mst_grad *grad, const mst_grad *state, unsigned t, unsigned n,
                           float clip, const mst_update *u);
void mst_local_apply_sparse(mst_local *self, unsigned t, float clip, const mst_update *u);

/* Ends the op of an update of thread w that began at from_ns. */
void mst_local_trace_apply(const mst_local_thread *w, uint64_t from_ns);

/* Additive optimizers: w -= lr * contribution, one by one. */
void mst_local_apply_list(mst_local *self, float lr, const mst_contributions *list, uint32_t width);

#endif
