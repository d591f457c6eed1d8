/* Shared by observe.c, observe_events.c, sampler.c and their tests. */
#ifndef MST_OBSERVE_OBSERVE_IMPL_H
#define MST_OBSERVE_OBSERVE_IMPL_H

#include <pthread.h>

#include "observe/observe.h"
#include "observe/resources.h"
#include "observe/trace_file.h"

#define MST_OBSERVED_PATHS 64

/* To a process on another host. 0: not known. */
typedef struct mst_observed_path {
    double bits_per_s, trip_s;
} mst_observed_path;

/* Bytes from and to another process that traffic.csv does not have yet. */
typedef struct mst_observed_traffic {
    uint64_t in, out;
} mst_observed_traffic;

typedef struct mst_observed_file {
    mst_bytes pending; /* guarded by the mutex */
    bool begun;        /* a record of it was taken or written */
    bool opened;       /* events: the first records are in */
} mst_observed_file;

struct mst_observe {
    mst_observe_options options;
    char process[MST_PROCESS_NAME], role[16];
    uint64_t stamp;
    mst_job_clock clock;
    atomic_uint_fast64_t step;
    mst_spans *spans;

    pthread_t thread;
    bool running; /* the thread must be joined; only the owner uses it */
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    mst_observed_file files[MST_RECORDS];        /* guarded by the mutex, like the rest of this block */
    char *run;                                   /* set once */
    struct mst_foreign *foreign, **foreign_tail; /* records of other processes, to be written */
    size_t foreign_bytes;
    bool stopping, ended, broken, cut;
    uint64_t describing, described; /* number of the newest description begun, and of the newest done */
    char link[16];                  /* interface with a measured speed; "": none */
    double link_bits;
    mst_observed_path paths[MST_OBSERVED_PATHS]; /* to workers, or to servers */
    mst_observed_traffic *traffic[2];            /* with servers, with workers; by index */
    size_t n_traffic[2], traffic_capacity[2];
    unsigned gaps;     /* bit set of kinds with dropped bytes */
    bool foreign_gaps; /* the same for other processes */

    /* Used by the observer thread only. */
    mst_bytes spare;
    mst_resources *resources; /* NULL: not observed */
    mst_string line;          /* under way */
    mst_span_sums sums;
    uint64_t begun_ns, sampled_ns; /* when it began, and its last sample */
    uint64_t curve_step;           /* step of the sampler's last point */
    uint64_t traced, trace_dropped;
    bool trace_waited; /* the file was full for a while */
    bool trace_dated;  /* the file has the start of the job */
    bool named[MST_LANE_MAX];
    bool traffic_begun;       /* traffic.csv has its header */
    bool learning_begun;      /* learning.csv has its header */
    unsigned traffic_samples; /* since its last lines */

    mst_trace_ring *rings[MST_LANE_MAX]; /* set before the thread starts */
};

/* Locks the file for an addition. Returns NULL, without a lock, if it is full or closed. Events of a process
 * without the directory may be added after the end. */
mst_bytes *mst_observe_begin_add(mst_observe *self, mst_record_kind kind);
void mst_observe_end_add(mst_observe *self);
void mst_observe_add(mst_observe *self, mst_record_kind kind, const void *data, size_t n);
double mst_observe_wall(mst_observe *self); /* seconds since 1970 on the coordinator's clock */

/* sampler.c. Thread: the observer's, except describe. */
void mst_sampler_open(mst_observe *self);
void mst_sampler_sample(mst_observe *self);
void mst_sampler_traffic(mst_observe *self); /* the lines of traffic.csv, now */
void mst_sampler_close(mst_observe *self);
void mst_sampler_describe(mst_observe *self); /* process.json; any thread */

#endif
