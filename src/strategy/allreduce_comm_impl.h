/* What allreduce_comm.c and allreduce_reduce.c share; nobody else includes this. */
#ifndef MST_STRATEGY_ALLREDUCE_COMM_IMPL_H
#define MST_STRATEGY_ALLREDUCE_COMM_IMPL_H

#include <pthread.h>

#include "strategy/allreduce_comm.h"

#define MST_COMM_ACTIVE 4    /* reductions under way at a time */
#define MST_COMM_QUEUE  4096 /* posted and not yet done; a power of two */

/* A reduction under way. Requests: contributions in, results in, contributions out, results out; a message
 * that is not under way, not yet or not any more, is MST_MPI_NONE. */
typedef struct mst_reduction {
    mst_reduce_op *op;   /* NULL: free */
    mst_reduce_way way;  /* the op's, or direct where there is no room to gather */
    uint32_t serial;     /* of the posts: the same on all ranks */
    uint32_t n_segments; /* direct: of the own part */
    uint32_t summed;     /* segments */
    bool *decoded;       /* direct, wire other than fp32: per result */
    uint32_t n_requests;
    mst_mpi_request *requests;
    bool *finished; /* of test_some */
    /* The other ranks' contributions, own contributions and results as they travel. */
    char *in, *out, *results;
    const void **parts; /* a segment of every rank, in rank order */
} mst_reduction;

struct mst_comm {
    mst_comm_options options;
    mst_mpi *mpi;
    mst_rank_monitor *monitor;
    mst_mpi_comm world;      /* of messages: a communicator of the strategy's own */
    mst_mpi_comm collective; /* of MPI's own reductions */
    mst_reduction active[MST_COMM_ACTIVE];
    uint32_t n_active;
    size_t in_room; /* numbers that fit in `in` of each */
    uint32_t serial;
    mst_comm_counts counts;
    uint64_t busy_since;

    /* Posts: written by whoever trains, read by the communication thread. */
    mst_reduce_op *queue[MST_COMM_QUEUE];
    atomic_uint_fast64_t tail;
    uint64_t head;

    pthread_t thread;
    bool started; /* the thread exists */
    pthread_mutex_t lock;
    pthread_cond_t wake, changed; /* for the communication thread; for the training thread */
    atomic_bool asleep, waiting;  /* the one; the other */
    /* Guarded by lock: */
    mst_comm_fn *fn; /* to be called; NULL: none */
    void *fn_arg;
    bool fn_done;
    mst_error fn_error;
    bool ready, quit, gone; /* MPI is started, or failed; the thread is to leave; it has left */
    bool ended;             /* all ranks have parted: the training thread's own */
    bool parted;            /* the same, for the communication thread: MPI ends with it */
    mst_error error;        /* why the job cannot go on; valid once broken is set */
    atomic_bool broken;
    bool held;          /* it has, as it seems: the training thread's own */
    atomic_bool in_mpi; /* in a call that a death may hold for ever */
};

/* Takes up posted reductions and moves those under way. *moved: something happened. */
mst_status mst_comm_poll(mst_comm *self, bool *moved);
static inline bool mst_comm_busy(mst_comm *self)
{
    return self->n_active > 0 || self->head != atomic_load(&self->tail);
}

mst_status mst_reduction_room(mst_comm *self);
void mst_reduction_fini(mst_comm *self);
/* op is done: wakes who waits for it. */
void mst_comm_done(mst_comm *self, mst_reduce_op *op);

#endif
