/* The reducer: adds up slices of gradients over all ranks, as state machines that the communication thread
 * polls (comm_thread.c).
 *
 * Sums have the order of ranks, ((g0 + g1) + g2) + ..., whichever way carries them: choosing a way by
 * measuring does not change a bit of the result. The exception is MST_REDUCE_MPI, whose order is MPI's.
 *
 * Thread: mst_reducer_post and busy may be called by one other thread, the training thread; all other calls
 * are the communication thread's, which makes every call of MPI. Nothing waits. */
#ifndef MST_STRATEGY_REDUCER_H
#define MST_STRATEGY_REDUCER_H

#include <stdatomic.h>

#include "mpi/mpi.h"
#include "tensor/float_format.h"

#define MST_REDUCER_ACTIVE 4    /* reductions under way at a time */
#define MST_REDUCER_QUEUE  4096 /* posted and not yet done; a power of two */

typedef enum mst_reduce_way {
    MST_REDUCE_GATHER, /* every rank sends everything to every other: one message each */
    MST_REDUCE_DIRECT, /* rank r adds up the r-th share and sends the sum to all: the fewest bytes */
    MST_REDUCE_MPI,    /* MPI_Allreduce; fp32 */
    MST_REDUCE_WAYS,
} mst_reduce_way;

/* One slice of a gradient, reduced in place once per post. Owner: the training thread, which does not touch
 * data from post to wait. */
typedef struct mst_reduce_op {
    float *data;
    size_t n;
    bool copy; /* rank 0's values replace the others', instead of being added to them */
    mst_reduce_way way;
    uint64_t posted;
    atomic_uint_fast64_t done; /* of `posted` */
} mst_reduce_op;

typedef struct mst_reduce_counts {
    uint64_t bytes_out, bytes_in;
    uint64_t reductions[MST_REDUCE_WAYS];
    uint64_t busy_ns; /* while a reduction was under way */
} mst_reduce_counts;

/* A reduction under way. Requests: contributions in, results in, contributions out, results out; a message
 * that is not under way is MST_MPI_NONE. */
typedef struct mst_reduction {
    mst_reduce_op *op;   /* NULL: free */
    mst_reduce_way way;  /* the op's, or direct where there is no room to gather */
    uint32_t serial;     /* of the posts: the same on all ranks */
    uint32_t n_segments; /* direct: of the own share */
    uint32_t summed;     /* segments */
    bool *decoded;       /* direct, wire other than fp32: per result */
    uint32_t n_requests;
    mst_mpi_request *requests;
    bool *finished; /* of test_some */
    /* The other ranks' contributions; the own contributions and results as they travel. */
    char *in, *out, *results;
    const void **parts; /* a segment of every rank, in rank order */
} mst_reduction;

typedef struct mst_reducer {
    mst_mpi *mpi;
    mst_mpi_comm world;      /* of messages */
    mst_mpi_comm collective; /* of MPI's own reductions */
    int first_tag;           /* messages have this tag or a higher one */
    mst_float_format wire;
    size_t max_slice; /* floats of the longest reduction */
    size_t in_room;   /* numbers that fit in `in` of each */
    mst_reduction active[MST_REDUCER_ACTIVE];
    uint32_t n_active, serial;
    mst_reduce_counts counts;
    uint64_t busy_since;
    /* Posts: the poster writes the tail, the communication thread the head. */
    mst_reduce_op *queue[MST_REDUCER_QUEUE];
    atomic_uint_fast64_t tail;
    uint64_t head;
} mst_reducer;

/* Allocates for slices of up to max_slice floats on that wire; mpi, communicators and first_tag are set.
 * Again for another shape, with no reduction under way. */
mst_status mst_reducer_shape(mst_reducer *self, mst_float_format wire, size_t max_slice);
void mst_reducer_fini(mst_reducer *self); /* safe on zeroes */

/* Queues a reduction: on all ranks the same ones, in the same order. */
mst_status mst_reducer_post(mst_reducer *self, mst_reduce_op *op);
/* Starts queued reductions and moves those under way. *moved: something happened. done is called for each
 * that ended. */
mst_status mst_reducer_poll(mst_reducer *self, bool *moved, void (*done)(void *arg, mst_reduce_op *op),
                            void *arg);

static inline bool mst_reducer_busy(mst_reducer *self)
{
    return self->n_active > 0 || self->head != atomic_load(&self->tail);
}

#endif
