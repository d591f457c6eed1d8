/* The rows of every worker.
 *
 * Slices: synchronous steps over data with random access: leases of one global batch each, which all workers
 * share. Steps are planned MST_AHEAD beyond the last one that closed; every worker, by its index, has a fixed
 * share, which its successor takes over; the work item for step t + 3 travels with the answer to t, so that
 * rows of t + 2 can be prepared while the pull for t + 1 travels with the push of t. Leases: short ranges of
 * rows, on request (leases.h). Static and local: every worker reads its own stream and is granted numbers of
 * rows, so that limits hold. */
#ifndef MST_PS_COORDINATOR_ROWS_H
#define MST_PS_COORDINATOR_ROWS_H

#include "ps/leases.h"
#include "ps/server_steps.h"

/* Synchronous steps that workers have received beyond the one that closed last: the one they compute, the one
 * whose weights are arriving, and the one whose rows are being prepared. */
#define MST_AHEAD 3

typedef enum mst_sharding {
    MST_SHARDING_SLICES, /* synchronous without a quorum, random access */
    MST_SHARDING_LEASES, /* random access */
    MST_SHARDING_STATIC, /* every worker has its share of a stream */
    MST_SHARDING_LOCAL,  /* every worker has files of its own */
} mst_sharding;

typedef struct mst_job_rows {
    mst_sharding sharding;
    mst_leases *slices;               /* as of one worker; NULL: other sharding */
    mst_lease planned[MST_AHEAD + 2]; /* steps that workers have received, by step number */
    uint64_t n_planned;               /* the newest */
    bool no_more;                     /* nothing follows it */
    bool scattered; /* the run was resumed with rows left in several places, which checkpoints list */
    mst_leases *leases;
    uint64_t granted_steps, granted_rows; /* streams */
    uint64_t repeats;                     /* rows trained on twice */
} mst_job_rows;

extern const char *const mst_sharding_names[]; /* in WELCOME */

/* Decides how rows are divided, from the first worker's JOIN. */
mst_status mst_rows_choose(mst_server *s, const json_t *join);
mst_status mst_rows_begin(mst_server *s);
/* The first work of a worker that was just welcomed. */
mst_status mst_rows_first(mst_server *s, uint32_t worker);
/* WANT, from a worker. */
mst_status mst_rows_wanted(mst_server *s, uint32_t worker, const mst_message *m);
void mst_rows_pushed(mst_server *s, uint32_t worker, uint64_t rows);
/* A step has closed: updates the position. */
void mst_rows_closed(mst_server *s, uint64_t step);
/* The worker is lost; other workers get its rows, except for slices, which its successor gets. */
mst_status mst_rows_lost(mst_server *s, uint32_t worker);
/* The rows that the worker holds, and those of pushes that some servers may lack, are free again; slices stay
 * planned. */
mst_status mst_rows_return(mst_server *s, uint32_t worker);
/* Other workers get the leased rows of a worker that makes no progress. */
mst_status mst_rows_take_back(mst_server *s, uint32_t worker);
/* Whether that is due for a worker that has pushed nothing for silent_ns, while others are idle. */
bool mst_rows_overdue(const mst_server *s, uint32_t worker, uint64_t silent_ns);
/* All rows within the limits are trained on. */
bool mst_rows_finished(const mst_server *s);
/* Slices: no planned step can close any more: stops the workers; flags MST_STOP_*. */
mst_status mst_rows_end_slices(mst_server *s, uint32_t flags);
/* Sends work to idle workers. */
mst_status mst_rows_offer(mst_server *s);
/* For a checkpoint: new reference or NULL. */
json_t *mst_rows_json(const mst_server *s);
void mst_rows_fini(mst_job_rows *self);

#endif
