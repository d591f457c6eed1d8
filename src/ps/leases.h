/* Leases: the rows of an epoch that each worker trains on, when rows are not fixed to steps (asynchronous
 * training, or a quorum). Every row of an epoch is leased once; rows that a lost worker has not done go to
 * other workers.
 *
 * Leases are whole batches of the epoch's order of rows, so that a single worker takes the same batches as
 * local training. A worker receives the rows after its last ones while its segment has some (about a shuffle
 * window, so that a worker's feed stays in one window), then a segment of its own, then rows of another
 * worker's segment. The slices of synchronous steps are leases of one global batch, taken as of one worker.
 * A lease is at most half of a worker's equal share of the rows that are left, so that leases become shorter
 * towards the end of the run, and all workers get some and end at about the same time.
 *
 * Thread: one. */
#ifndef MST_PS_LEASES_H
#define MST_PS_LEASES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"

typedef struct mst_lease_options {
    uint64_t epoch_rows;   /* of every epoch; above 0 */
    uint32_t batch;        /* rows of a step */
    uint64_t lease_rows;   /* the most rows of a lease; rounded to whole batches */
    uint64_t segment_rows; /* see above */
    uint32_t n_workers;
    uint64_t epochs;      /* epochs from this number on do not begin */
    uint64_t steps, rows; /* upper limits on further leases; UINT64_MAX: no limit */
} mst_lease_options;

typedef struct mst_lease {
    uint64_t epoch, from, to;
} mst_lease;

typedef struct mst_leases mst_leases;

/* Starts at a position of an epoch. */
mst_status mst_leases_new(const mst_lease_options *options, uint64_t epoch, uint64_t position,
                          mst_leases **out);
/* Starts from the result of mst_leases_json. MST_EINPUT if it does not fit. */
mst_status mst_leases_resume(const mst_lease_options *options, const json_t *json, mst_leases **out);
void mst_leases_destroy(mst_leases *self); /* NULL-safe */

/* The number of workers that share the rows from now on; at first n_workers. */
void mst_leases_divide(mst_leases *self, uint32_t n_workers);
/* An equal share of `rows` for leases of one of n workers: whole batches, from one to `most` rows. */
uint64_t mst_lease_rows(uint64_t rows, uint32_t n_workers, uint32_t batch, uint64_t most);
/* The next rows for a worker; *got false: there are none now. */
mst_status mst_leases_take(mst_leases *self, uint32_t worker, mst_lease *out, bool *got);
/* The worker has trained on the next `rows` rows of its oldest lease(s). Rows it holds no lease for are
 * ignored (they were taken back) and returned as repeats. */
uint64_t mst_leases_done(mst_leases *self, uint32_t worker, uint64_t rows);
/* Further leases of the worker have this share of the usual rows, at least a batch. */
void mst_leases_shrink(mst_leases *self, uint32_t worker, double share);
/* Takes back the rows that the worker has not done, which are leased again first. *rows: how many. */
mst_status mst_leases_return(mst_leases *self, uint32_t worker, uint64_t *rows);

/* The rows of the worker's last `pushes` pushes, at most MST_LEASES_RECENT, are to be trained on again,
 * because some server may lack them: they are leased again first. *rows: how many. */
#define MST_LEASES_RECENT 16
mst_status mst_leases_redo(mst_leases *self, uint32_t worker, uint32_t pushes, uint64_t *rows);

/* A worker with leases and without a push for this long makes no progress. */
#define MST_LEASE_PATIENCE_NS (5 * MST_S)
/* Whether idle workers should get the rows of a worker that has pushed nothing for silent_ns: it makes no
 * progress, and nothing else is left to lease. */
bool mst_leases_overdue(const mst_leases *self, uint32_t worker, uint64_t silent_ns);

uint64_t mst_leases_held(const mst_leases *self, uint32_t worker); /* rows leased and not done */
bool mst_leases_finished(const mst_leases *self);                  /* nothing is leased and nothing is left */
bool mst_leases_dry(const mst_leases *self);                       /* nothing is left to lease */
/* The first epoch with rows not done, and how many of its rows are. */
void mst_leases_position(const mst_leases *self, uint64_t *epoch, uint64_t *rows_done);

/* The unfinished rows, as {"next": [epoch, position], "todo": [[epoch, from, to], ...]}. New reference or
 * NULL.
 */
json_t *mst_leases_json(const mst_leases *self);

#endif
