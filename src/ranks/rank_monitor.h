/* The rank monitor: detects that a rank of an MPI job is lost, which MPI does not report.
 *
 * Ranks connect to rank 0 over net's tcp engine, beside MPI. MPI carries rank 0's addresses and a fresh
 * secret at the start, so the user configures no port. Rank 0 detects a rank that dies, is cut off or is
 * silent for the timeout, and reports it to all others; all ranks detect the loss of rank 0.
 *
 * Thread: the monitor has a thread of its own. It calls `lost` once, with the reason and a whole message.
 * The thread that uses MPI may hang in a collective by then, so `lost` must not wait for it. Waiting:
 * mst_rank_monitor_new waits for all ranks, at most start_timeout_ms; MST_ETIMEOUT names the missing ones. It
 * is the first call that ranks make together: MST_EUSAGE, on all of them, if their purposes differ. */
#ifndef MST_RANKS_RANK_MONITOR_H
#define MST_RANKS_RANK_MONITOR_H

#include "mpi/mpi.h"
#include "net/net.h"

/* Why a rank is lost. The values travel in a message between ranks of one version. */
typedef enum mst_rank_loss {
    MST_RANK_FAILED,  /* it failed and reported its error */
    MST_RANK_DIED,    /* its connection ended without an end message */
    MST_RANK_SILENT,  /* nothing arrived from it for peer_timeout_ms */
    MST_RANK_STOPPED, /* it was silent itself, and the other side dropped it */
} mst_rank_loss;

typedef struct mst_rank_monitor_options {
    mst_mpi *mpi; /* used by mst_rank_monitor_new only, on the caller's thread */
    uint32_t start_timeout_ms, peer_timeout_ms;
    mst_net_tls tls;
    /* message: "rank 3 (host b, process 4711) died", or the rank and its error. */
    void (*lost)(void *arg, mst_rank_loss reason, const char *message);
    void *arg;
    const char *purpose; /* of this process, "--strategy ps"; must be the same on all ranks; or NULL */
} mst_rank_monitor_options;

typedef struct mst_rank_monitor mst_rank_monitor;
mst_status mst_rank_monitor_new(const mst_rank_monitor_options *options, mst_rank_monitor **out);

/* This rank fails with its own error: on all others `lost` gets the message with the rank in front. Any
 * thread. Waits a second at most until the message is sent. */
void mst_rank_monitor_fail(mst_rank_monitor *self, const char *message);

/* For a rank in which MPI failed, perhaps because another rank died: waits until `lost` was called,
 * timeout_ms at most. Returns whether it was. Any thread but the monitor's. */
bool mst_rank_monitor_await_lost(mst_rank_monitor *self, uint32_t timeout_ms);

/* ---- rank records (rank_records.c) ---- */

/* Ranks other than 0 send records about themselves to rank 0 over the monitor's connections, in order, on the
 * monitor's thread; neither MPI nor a training thread takes part. Delivery is best effort: losing a record
 * never fails the job. */
#define MST_RANK_RECORD_MAX (((size_t)1 << 20) + 64) /* bytes */
#define MST_RANK_CLOCK_SIZE 56

/* Called on the monitor's thread; must not wait. Any may be NULL. */
typedef struct mst_rank_records {
    void *arg;
    /* The next record, which the monitor frees with mst_free; false: there is none. Called about once a
     * second. */
    bool (*next)(void *arg, void **record, size_t *bytes);
    /* On rank 0: a record of that rank has arrived; valid during the call. */
    void (*received)(void *arg, int rank, const void *record, size_t bytes);
    /* On rank 0: writes the answer to a request for its clock, MST_RANK_CLOCK_SIZE bytes. */
    void (*clock)(void *arg, uint8_t *answer);
    /* On the others: rank 0's answer to a request that was sent at asked_ns. Requests follow about once a
     * second, and at once if this returns true. */
    bool (*clock_received)(void *arg, uint64_t asked_ns, const void *answer, size_t bytes);
    void (*tick)(void *arg); /* about once a second, on all ranks */
} mst_rank_records;

/* Sets the functions; NULL: none, and none of the former ones runs once this returns. The other ranks send
 * records once rank 0 has set its functions. Any thread. A NULL monitor does nothing, here and below. */
void mst_rank_records_set(mst_rank_monitor *self, const mst_rank_records *records);

/* On ranks other than 0: sends the last records and reports to rank 0 that they were the last. Waits until
 * they are sent, timeout_ms at most. */
void mst_rank_records_end(mst_rank_monitor *self, uint32_t timeout_ms);

/* On rank 0: waits until all other ranks have sent their last records or a rank is lost, timeout_ms at most.
 */
void mst_rank_records_await(mst_rank_monitor *self, uint32_t timeout_ms);

/* This rank has finished: the others do not count it as lost. Waits for no rank; NULL-safe. */
void mst_rank_monitor_destroy(mst_rank_monitor *self);

#endif
