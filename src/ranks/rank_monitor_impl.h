/* Shared by rank_monitor.c and rank_records.c only. */
#ifndef MST_RANKS_RANK_MONITOR_IMPL_H
#define MST_RANKS_RANK_MONITOR_IMPL_H

#include <pthread.h>

#include "net/net.h"
#include "ranks/rank_monitor.h"

#define MST_RANK_HOST      64
#define MST_RANK_PURPOSE   40
#define MST_RANK_MESSAGE   900
#define MST_RANK_ADDRESSES 8
#define MST_RANK_NO_PEER   UINT32_MAX

/* Message types. Rank 0 sends ALL, LOST, OPEN and the answer of CLOCK; the others FAIL, RECORD, DONE and the
 * request of CLOCK; every rank LEAVE. */
enum { ALL = MST_NET_TYPES, LEAVE, FAIL, LOST, OPEN, RECORD, DONE, CLOCK };

/* A rank as it identifies itself through MPI. */
typedef struct mst_rank_identity {
    char host[MST_RANK_HOST];
    char purpose[MST_RANK_PURPOSE];
    uint64_t process;
} mst_rank_identity;

typedef struct mst_rank_member {
    uint32_t peer; /* of the net; MST_RANK_NO_PEER: not connected */
    bool joined, left, done;
    void *body; /* of the message that arrives */
} mst_rank_member;

/* State of rank_records.c. */
typedef struct mst_rank_record_state {
    pthread_mutex_t mutex; /* guards `calls`, and is held while one of them runs */
    mst_rank_records calls;
    /* The monitor's thread's. */
    bool open; /* rank 0 accepts records */
    uint64_t looked_ns, clock_sent_ns, ticked_ns;
    uint32_t clock_request;
    /* Guarded by the monitor's mutex. */
    bool opening, finishing, finished;
    int n_done; /* ranks that have sent their last record */
} mst_rank_record_state;

struct mst_rank_monitor {
    mst_rank_monitor_options options;
    int rank, size;
    mst_net *net;
    mst_rank_identity *who;   /* [size]; on ranks other than 0: of rank 0 and of this rank only */
    mst_rank_member *members; /* [size] */
    uint32_t n_joined;
    uint32_t dialled[MST_RANK_ADDRESSES], n_dialled;
    bool reported; /* a loss was reported */
    pthread_t thread;
    bool thread_made;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool ending, failing, failed, lost, all_joined;
    mst_error broken; /* code MST_OK: not broken */
    char message[MST_RANK_MESSAGE];
    mst_rank_record_state records;
};

/* ---- rank_records.c; on the monitor's thread ---- */

/* Sends the records that are due. Returns when to call it again (mst_now_ns); UINT64_MAX: not needed. */
uint64_t mst_rank_records_serve(mst_rank_monitor *self);
/* Handles a message about records from that rank. */
mst_status mst_rank_records_receive(mst_rank_monitor *self, int rank, const mst_message *m, const void *body);

#endif
