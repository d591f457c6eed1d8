/* The clock of a job: nanoseconds since the job began, the same on every host.
 *
 * The coordinator's monotonic clock is the job's. Another process asks the coordinator for the time, now and
 * then, and converts its own monotonic clock:
 *   - on the same host (same kernel, same time namespace) both read one clock, and nothing is estimated;
 *   - on another host the difference is estimated from the fastest way there and the fastest way back among
 *     many questions and answers. Old ones count for less, since clocks drift.
 * A better estimate changes the offset gradually, by at most 1/MST_CLOCK_SLEW of the elapsed time: job time
 * never runs backwards, so that slices which nest by the process's own clock nest in the trace.
 *
 * Thread: any. */
#ifndef MST_OBSERVE_JOB_CLOCK_H
#define MST_OBSERVE_JOB_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MST_CLOCK_ANSWER  56 /* bytes of an answer (docs/WIRE.md) */
#define MST_CLOCK_ANSWERS 8  /* that another host's process needs before its first estimate counts */
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
    unsigned answers;         /* heard so far */
    uint64_t began_ns;        /* the job, on the coordinator's monotonic clock */
    uint64_t began_wall_ns;   /* and since 1970, a whole number of microseconds */
    int64_t wall_offset;      /* coordinator's wall clock minus this host's */
    int64_t low, high;        /* bounds of the monotonic offset */
    uint64_t low_ns, high_ns; /* when the answers came that gave them */
    size_t n_turns;
    mst_clock_turn turns[MST_CLOCK_TURNS]; /* of the monotonic offset, oldest first */
} mst_job_clock;

/* The job begins now, by this process; a process that hears answers later takes over the coordinator's. */
void mst_job_clock_init(mst_job_clock *self, bool coordinator);
void mst_job_clock_fini(mst_job_clock *self);

/* The coordinator's answer to a question; `self` NULL: a job that began now. */
void mst_job_clock_answer(mst_job_clock *self, uint8_t *out);
/* An answer came at heard_ns to the question sent at asked_ns. False: it is malformed, and ignored. */
bool mst_job_clock_receive(mst_job_clock *self, uint64_t asked_ns, uint64_t heard_ns, const uint8_t *answer,
                           size_t size);
/* Whether job time is known well enough to be written down. */
bool mst_job_clock_known(mst_job_clock *self);

/* Nanoseconds from the beginning of the job to at_ns, a time of mst_now_ns; 0 before it. Never falls as at_ns
 * grows, as long as at_ns is not in the future. */
uint64_t mst_job_clock_at(mst_job_clock *self, uint64_t at_ns);
/* When the job began, in nanoseconds since 1970 on the coordinator's wall clock. */
uint64_t mst_job_clock_began(mst_job_clock *self);
/* Coordinator's wall clock minus this host's, in nanoseconds. */
int64_t mst_job_clock_wall_offset(mst_job_clock *self);

#endif
