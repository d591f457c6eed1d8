/* What observe.c, observe_events.c and sampler.c share; nobody else includes this, but tests. */
#ifndef MST_OBSERVE_OBSERVE_IMPL_H
#define MST_OBSERVE_OBSERVE_IMPL_H

#include <pthread.h>

#include "observe/observe.h"
#include "observe/resources.h"
#include "observe/trace_file.h"

#define MST_OBSERVED_PATHS 64

typedef struct mst_observed_file {
    mst_bytes pending; /* guarded by the mutex */
    bool begun;        /* a record of it was taken or filed */
    bool opened;       /* events: the first record is in */
} mst_observed_file;

struct mst_observe {
    mst_observe_options options;
    char process[MST_PROCESS_NAME], role[16];
    uint64_t stamp;
    mst_job_clock clock;
    atomic_uint_fast64_t step;
    mst_spans *spans;

    pthread_t thread;
    bool running; /* the thread is to be joined; the owner's */
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    mst_observed_file files[MST_RECORDS];        /* guarded, as the rest of this block */
    char *run;                                   /* set once */
    struct mst_foreign *foreign, **foreign_tail; /* records of others, to be filed */
    size_t foreign_bytes;
    bool stopping, ended, broken, cut;
    uint64_t describing, described; /* who describes the process, by number; the newest that has */
    char link[16];                  /* whose speed was measured; "": none */
    double link_bits;
    double path_bits[MST_OBSERVED_PATHS]; /* to workers; 0: not known */
    unsigned gaps;                        /* kinds of which something was not added, as bits */
    bool foreign_gaps;                    /* so of others */

    /* The thread's own. */
    mst_bytes spare;
    mst_resources *resources; /* NULL: not watched */
    char *line;
    size_t line_max;
    mst_span_sums sums;
    uint64_t sampled_ns;
    uint64_t curve_step; /* of the sampler's last point */
    uint64_t traced, trace_dropped;
    bool trace_waited; /* no room for what the rings have, for a while */
    bool trace_dated;  /* the file says when the job began */
    bool named[MST_LANE_MAX];

    mst_trace_ring *rings[MST_LANE_MAX]; /* set before the thread starts */
};

/* Locks the file for adding to it; NULL, and not locked, when it takes no more. Who takes records may do so
 * after the end, and gets what an evaluation then adds. */
mst_bytes *mst_observe_begin_add(mst_observe *self, mst_record_kind kind);
void mst_observe_end_add(mst_observe *self);
void mst_observe_add(mst_observe *self, mst_record_kind kind, const void *data, size_t n);
double mst_observe_wall(mst_observe *self); /* seconds since 1970 on the coordinator's clock */

/* sampler.c; the object's thread, but for describe. */
void mst_sampler_open(mst_observe *self);
void mst_sampler_sample(mst_observe *self);
void mst_sampler_close(mst_observe *self);
void mst_sampler_describe(mst_observe *self); /* process.json; any thread */

#endif
