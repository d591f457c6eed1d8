/* The communication thread of a rank: starts MPI, makes every call of it, runs the rank monitor, and adds up
 * slices of gradients over all ranks (reducer.h) while the training thread computes.
 *
 *   mst_comm_new      the thread runs, MPI is started, the rank monitor connects all ranks
 *   mst_comm_call     runs a function that needs MPI on the thread; the caller waits
 *   mst_comm_post, mst_comm_wait   a reduction runs beside the caller
 *   mst_comm_end      all ranks disconnect together
 *   mst_comm_destroy
 *
 * Thread: one other thread, the training thread, makes all calls but mst_comm_lost. A function that it gives
 * to mst_comm_call runs on the communication thread and may post, wait and exchange there; waiting polls MPI
 * itself and needs no hand-off.
 * Waiting: until the stall timeout, naming what is missing. A lost rank ends every wait with MST_EPEER and
 * the message of the rank monitor. */
#ifndef MST_STRATEGY_COMM_THREAD_H
#define MST_STRATEGY_COMM_THREAD_H

#include "ranks/rank_monitor.h"
#include "strategy/reducer.h"

#define MST_COMM_RANKS 4096 /* at most */

typedef struct mst_comm_options {
    const char *plugin; /* or NULL: the launcher's */
    uint32_t start_timeout_ms, peer_timeout_ms, stall_timeout_ms;
    mst_net_tls tls; /* of the rank monitor */
    /* Called on the communication thread now and then while it has nothing to do. Or NULL. */
    void (*idle)(void *arg);
    void *arg;
    /* Called on the rank monitor's thread once a rank is lost, after everything here fails. Or NULL. */
    void (*lost)(void *lost_arg, mst_rank_loss reason, const char *message);
    void *lost_arg;
    /* In place of mst_mpi_start, for ranks that are threads of one process: there is no rank monitor. Or
     * NULL. */
    mst_status (*start)(void *start_arg, mst_mpi **out);
    void *start_arg;
} mst_comm_options;

typedef struct mst_comm mst_comm;

/* MST_EUSAGE and MST_EUNSUPPORTED as mst_mpi_start. *out is the caller's to destroy; set only on MST_OK. */
mst_status mst_comm_new(const mst_comm_options *options, mst_comm **out);
/* Disconnects from all other ranks, which must do the same; then only destroy may be called, which ends MPI.
 */
mst_status mst_comm_end(mst_comm *self);
/* NULL-safe. Without mst_comm_end before it this rank has failed: the others receive `message` (or NULL).
 * A thread that hangs in MPI is left behind: see mst_mpi_over. */
void mst_comm_destroy(mst_comm *self, const char *message);

const mst_mpi *mst_comm_mpi(const mst_comm *self); /* rank, size, host, for any thread */

/* The wire of reductions and the floats of the longest; before the first post. */
mst_status mst_comm_shape(mst_comm *self, mst_float_format wire, size_t max_slice);

/* Runs fn on the communication thread and returns what it returned. */
typedef mst_status mst_comm_fn(mst_comm *self, void *arg);
mst_status mst_comm_call(mst_comm *self, mst_comm_fn *fn, void *arg);

/* Begins a reduction: on all ranks the same ones, in the same order. */
mst_status mst_comm_post(mst_comm *self, mst_reduce_op *op);
mst_status mst_comm_wait(mst_comm *self, mst_reduce_op *op);

/* The rank monitor; NULL: there is none, or the ranks have disconnected. Not to be destroyed. */
mst_rank_monitor *mst_comm_monitor(const mst_comm *self);

/* MST_EPEER with the message if the job cannot continue. Any thread. */
mst_status mst_comm_lost(mst_comm *self);

/* Whether the thread hangs in MPI after the loss of a rank: memory that it may touch must not be freed. Waits
 * 0.25 s at most. */
bool mst_comm_held(mst_comm *self);

void mst_comm_counts_get(mst_comm *self, mst_reduce_counts *out); /* with no reduction under way */

/* ---- on the communication thread ---- */

/* Tags of messages, by their purpose. */
enum {
    MST_COMM_TAG_MEASURE,
    MST_COMM_TAG_ORDER,
    MST_COMM_TAG_TAIL,
    MST_COMM_TAG_COUNTS,
    MST_COMM_TAG_KEYS,
    MST_COMM_TAG_SUMS,
    MST_COMM_TAG_TEXT,
    MST_COMM_TAG_REPORT,
    MST_COMM_TAG_END = 15,
    MST_COMM_TAGS, /* reductions use the tags from here on */
};

typedef struct mst_comm_message {
    void *data;
    size_t bytes;
    int peer, tag;
} mst_comm_message;

/* Sends and receives all of them; what: for the error when they do not arrive. until_lost: waits as
 * long as no rank is lost. */
mst_status mst_comm_exchange(mst_comm *self, const mst_comm_message *sends, uint32_t n_sends,
                             const mst_comm_message *receives, uint32_t n_receives, bool until_lost,
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
