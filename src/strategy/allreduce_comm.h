/* The communication thread of a rank: starts MPI, makes every call of it, keeps the watch, and adds up slices
 * of gradients over all ranks while the training thread computes.
 *
 *   mst_comm_new      the thread is there, MPI is started, all ranks watch each other
 *   mst_comm_call     something else that needs MPI runs on the thread; the caller waits
 *   mst_comm_post, mst_comm_wait   a reduction runs beside the caller
 *   mst_comm_end      all ranks leave together
 *   mst_comm_destroy
 *
 * Sums have the order of ranks, ((g0 + g1) + g2) + ..., whichever algorithm carries them: who chooses one by
 * measuring does not change a bit of the result. The exception is MST_REDUCE_MPI, whose order is MPI's.
 *
 * Thread: one other thread, the training thread, makes all calls but mst_comm_lost; what it has given to
 * mst_comm_call runs on the communication thread and may post, wait and exchange from there, where waiting
 * polls MPI itself and costs no hand-off.
 * Waiting: until the stall timeout, naming what did not come; and a rank that the watch finds dead ends every
 * wait with MST_EPEER and the watch's sentence. */
#ifndef MST_STRATEGY_ALLREDUCE_COMM_H
#define MST_STRATEGY_ALLREDUCE_COMM_H

#include <stdatomic.h>

#include "ranks/rank_monitor.h"
#include "tensor/half.h"

#define MST_COMM_RANKS 4096 /* at most */

typedef enum mst_reduce_way {
    MST_REDUCE_GATHER, /* everybody sends everything to everybody: one message each */
    MST_REDUCE_DIRECT, /* rank r adds up the r-th part and hands the sum round: the fewest bytes */
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

typedef struct mst_comm_options {
    const char *plugin; /* or NULL: the launcher's */
    uint32_t start_timeout_ms, peer_timeout_ms, stall_timeout_ms;
    mst_wire wire;
    size_t max_slice; /* floats of the longest reduction */
    /* Called on the communication thread every now and then while it has nothing to do. Or NULL. */
    void (*idle)(void *arg);
    void *arg;
    /* Called on the watch's thread once another rank is dead, after everything here fails. Or NULL. */
    void (*lost)(void *lost_arg, mst_rank_loss reason, const char *sentence);
    void *lost_arg;
    /* In place of mst_mpi_start, for ranks that are threads of one process: no watch is kept. Or NULL. */
    mst_status (*start)(void *start_arg, mst_mpi **out);
    void *start_arg;
} mst_comm_options;

typedef struct mst_comm_counts {
    uint64_t bytes_out, bytes_in;
    uint64_t reductions[MST_REDUCE_WAYS];
    uint64_t busy_ns; /* while some reduction was under way */
} mst_comm_counts;

typedef struct mst_comm mst_comm;

/* MST_EUSAGE and MST_EUNSUPPORTED as mst_mpi_start. *out is the caller's to destroy; set only on MST_OK. */
mst_status mst_comm_new(const mst_comm_options *options, mst_comm **out);
/* Parts from all other ranks, who must do the same; nothing may be called but destroy then, which ends MPI.
 */
mst_status mst_comm_end(mst_comm *self);
/* NULL-safe. Without mst_comm_end before it this rank has failed: the others hear `sentence` (or NULL). A
 * thread that MPI does not let go is left behind: mst_mpi_over tells. */
void mst_comm_destroy(mst_comm *self, const char *sentence);

const mst_mpi *mst_comm_mpi(const mst_comm *self); /* rank, size, host, for any thread */

/* How reductions travel, and the longest of them, from here on; before the first post. */
mst_status mst_comm_shape(mst_comm *self, mst_wire wire, size_t max_slice);

/* Runs fn on the communication thread and returns what it returned. */
typedef mst_status mst_comm_fn(mst_comm *self, void *arg);
mst_status mst_comm_call(mst_comm *self, mst_comm_fn *fn, void *arg);

/* Begins a reduction: on all ranks the same ones, in the same order. */
mst_status mst_comm_post(mst_comm *self, mst_reduce_op *op);
mst_status mst_comm_wait(mst_comm *self, mst_reduce_op *op);

/* The watch over the ranks; NULL: none is kept, or the ranks have parted. Not to be destroyed. */
mst_rank_monitor *mst_comm_monitor(const mst_comm *self);

/* Whether the job cannot go on: MST_EPEER with the sentence then. Any thread. */
mst_status mst_comm_lost(mst_comm *self);

/* Whether MPI holds the thread after a death, as it seems for ever: what it may touch must not be freed.
 * Waits 0.25 s at most to see. */
bool mst_comm_held(mst_comm *self);

void mst_comm_counts_get(mst_comm *self, mst_comm_counts *out); /* with no reduction under way */

/* ---- on the communication thread ---- */

/* One message; tags are 0..MST_COMM_TAGS - 2 here. */
#define MST_COMM_TAGS 16
typedef struct mst_comm_message {
    void *data;
    size_t bytes;
    int peer, tag;
} mst_comm_message;

/* Sends and receives all of them; what, for the sentence when they do not come. patience: as long as it
 * takes, while the watch finds nobody dead. */
mst_status mst_comm_exchange(mst_comm *self, const mst_comm_message *sends, uint32_t n_sends,
                             const mst_comm_message *receives, uint32_t n_receives, bool patience,
                             const char *what);

/* bytes of every rank, rank r's at all + r * bytes, to every rank, or (to_root) to rank 0 alone. */
mst_status mst_comm_gather(mst_comm *self, const void *mine, size_t bytes, void *all, bool to_root, int tag,
                           const char *what);

/* Rank 0's bytes to all. */
mst_status mst_comm_broadcast(mst_comm *self, void *data, size_t bytes);

/* The time that a way takes for op's data, which it changes; the slowest rank's, on all ranks. */
mst_status mst_comm_measure(mst_comm *self, mst_reduce_op *op, mst_reduce_way way, uint32_t times,
                            double *seconds);

#endif
