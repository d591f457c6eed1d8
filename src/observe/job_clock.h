/* The clock of a job: nanoseconds since the job began, the same on every host.
 *
 * The coordinator's monotonic clock is the clock of the job. Another process requests the time from the
 * coordinator periodically and converts its own monotonic clock:
 *   - on the same host (same kernel, same time namespace) both read one clock, and no estimate is needed;
 *   - on another host the difference is estimated from the fastest request and the fastest answer among many.
 * Old ones count for less, because clocks drift. A better estimate changes the offset gradually, by at most
 * 1/MST_CLOCK_SLEW of the elapsed time: job time never decreases, so slices that nest on the clock of the
 * process also nest in the trace.
 *
 * Thread: any. */
#ifndef MST_OBSERVE_JOB_CLOCK_H
#define MST_OBSERVE_JOB_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MST_CLOCK_ANSWER  56 /* bytes of an answer (docs/WIRE.md) */
#define MST_CLOCK_ANSWERS 8  /* needed on another host before the first estimate is used */
#define MST_CLOCK_SLEW    200
#define MST_CLOCK_TURNS   256

/* From at_ns on, by this process's clock, the offset changes from `from` to `to`. */
typedef struct mst_clock_turn {
    uint64_t at_ns;
    int64_t from, to;
} mst_clock_turn;

typedef struct mst_job_clock {
    pthread_mutex_t mutex;    /* guards what follows */
    bool own, same;           /* this process is the coordinator; it is on the coordinator's host */
    unsigned answers;         /* received so far */
    uint64_t began_ns;        /* start of the job on the coordinator's monotonic clock */
    uint64_t began_wall_ns;   /* the same since 1970, in whole microseconds */
    int64_t wall_offset;      /* coordinator's wall clock minus this host's */
    int64_t low, high;        /* bounds of the monotonic offset */
    uint64_t low_ns, high_ns; /* arrival times of the answers that gave them */
    size_t n_turns;
    mst_clock_turn turns[MST_CLOCK_TURNS]; /* of the monotonic offset, oldest first */
} mst_job_clock;

/* Starts the job clock now. A process that receives answers later adopts the coordinator's clock. */
void mst_job_clock_init(mst_job_clock *self, bool coordinator);
void mst_job_clock_fini(mst_job_clock *self);

/* Writes the coordinator's answer to a request; `self` NULL: a job that starts now. */
void mst_job_clock_answer(mst_job_clock *self, uint8_t *out);
/* Processes an answer that arrived at received_ns to the request sent at sent_ns. Returns false for a
 * malformed answer, which is ignored. */
bool mst_job_clock_receive(mst_job_clock *self, uint64_t sent_ns, uint64_t received_ns, const uint8_t *answer,
                           size_t size);
/* Returns whether job time is precise enough to be recorded. */
bool mst_job_clock_known(mst_job_clock *self);

/* Returns the nanoseconds from the start of the job to at_ns, a time of mst_now_ns; 0 before the start. Does
 * not decrease as at_ns grows, as long as at_ns is not in the future. */
uint64_t mst_job_clock_at(mst_job_clock *self, uint64_t at_ns);
/* Returns the start of the job in nanoseconds since 1970 on the coordinator's wall clock. */
uint64_t mst_job_clock_began(mst_job_clock *self);
/* Returns the coordinator's wall clock minus this host's, in nanoseconds. */
int64_t mst_job_clock_wall_offset(mst_job_clock *self);

#endif
