/* The observer: records the resources, phases and events of one process (docs/RUNS.md) as process.json,
 * resources.csv, spans.csv, event files for TensorBoard, and trace.json on request. A separate thread samples
 * and writes. Training threads only count (spans.h) and occasionally pass a figure; they never wait for the
 * observer.
 *
 *   mst_observe_new       starts sampling into memory
 *   mst_observe_file_in   for the process that has the run directory: the thread writes files there
 *   mst_observe_take      for the others: the caller sends the records (record.h) to that process
 *   mst_observe_end       takes a last sample; only events for mst_observe_take may follow
 *
 * The observer never fails a training: without memory or disk it prints one warning and records less. Memory
 * is bounded: when the buffer is full, new records are dropped.
 *
 * Thread: any, except end and destroy. Every function accepts a NULL object and does nothing. */
#ifndef MST_OBSERVE_OBSERVE_H
#define MST_OBSERVE_OBSERVE_H

#include <jansson.h>

#include "observe/events.h"
#include "observe/job_clock.h"
#include "observe/record.h"
#include "observe/spans.h"

typedef struct mst_observe_options {
    const char *process;       /* "worker-0"; a name as defined in record.h */
    const char *role;          /* "local", "server", "worker", "rank" */
    unsigned index, n_threads; /* server 0, rank 0 and a local process are coordinators */
    unsigned n_parsers; /* threads that parse rows; in a trace they have the lanes from n_threads + 1 on */
    double every_s;     /* interval of resources.csv and spans.csv; 0: neither */
    bool guest;         /* another observer of this process records the host: no resources.csv */
    bool events;        /* event files */
    bool trace;         /* trace.json, of steps [trace_from, trace_to] */
    uint64_t trace_from, trace_to;
    uint64_t step; /* first step of the run: 0, or that of the resume */
} mst_observe_options;

typedef struct mst_observe mst_observe;

/* Returns NULL, after a warning, on failure. */
mst_observe *mst_observe_new(const mst_observe_options *options);
void mst_observe_destroy(mst_observe *self); /* calls end if necessary */

void mst_observe_file_in(mst_observe *self, const char *run);
/* Stops writing, because the directory does not belong to this run any more. */
void mst_observe_disown(mst_observe *self);
/* Returns the next record; the caller frees its data with mst_free. False: none at present. */
bool mst_observe_take(mst_observe *self, mst_record *out);
void mst_observe_end(mst_observe *self);
/* Passes a record of another process to the observer thread, which writes it to the directory; after the end
 * it is written at once. The data are copied. */
void mst_observe_forward(mst_observe *self, const mst_record *record);

/* The job's clock (job_clock.h). The coordinator writes the answer to a request, MST_CLOCK_ANSWER bytes.
 * Another process passes the answer to its request of sent_ns; true: send another request at once. */
void mst_observe_clock_answer(mst_observe *self, uint8_t *out);
bool mst_observe_clock_receive(mst_observe *self, uint64_t sent_ns, const void *answer, size_t size);

/* Records the measured speed of an interface for process.json; ignores "". */
void mst_observe_link(mst_observe *self, const char *name, double bits_per_s);

/* Records the capacity and the round trip of the path to a process on another host for process.json: a
 * server's to a worker, a worker's to a server. 0: not known. */
void mst_observe_path(mst_observe *self, uint32_t index, double bits_per_s, double trip_s);

/* Counts bytes of messages from and to another process for traffic.csv. role: "server" or "worker". */
void mst_observe_traffic(mst_observe *self, const char *role, uint32_t index, uint64_t bytes_in,
                         uint64_t bytes_out);

/* Ends the current lines of resources.csv and spans.csv, because a different kind of work begins. */
void mst_observe_end_interval(mst_observe *self);

/* Returns the spans for mst_spans_attach. */
mst_spans *mst_observe_spans(mst_observe *self);
/* Returns the sums of the phases up to now; zeros for a NULL object. */
void mst_observe_totals(mst_observe *self, mst_span_sums *out);
/* Returns {"read": seconds, ...}: a new reference, or NULL. */
json_t *mst_observe_phases(mst_observe *self);

/* Sets the first step of the run if it is known later than the options, before any curve. */
void mst_observe_set_first_step(mst_observe *self, uint64_t step);
/* Sets the current step of the run, the x value of the sampler's curves. */
void mst_observe_set_step(mst_observe *self, uint64_t step);

/* Curves and histograms for TensorBoard. kind: MST_RECORD_EVENTS, or MST_RECORD_EVALUATIONS for those of the
 * evaluator. */
void mst_observe_scalars(mst_observe *self, mst_record_kind kind, uint64_t step, const mst_scalar *scalars,
                         size_t n);
void mst_observe_histogram(mst_observe *self, uint64_t step, const char *tag, const float *values,
                           uint64_t n);
void mst_observe_stretches(mst_observe *self, uint64_t step, const char *tag, const mst_stretch *stretches,
                           size_t n);
/* A text, in the folder of the evaluator. */
void mst_observe_text(mst_observe *self, uint64_t step, const char *tag, const char *text);
/* Records the graph of the training (mst_event_graph); once, by the coordinator. */
void mst_observe_graph(mst_observe *self, const json_t *nodes);
/* The options of the run as text, and for the HParams tab those that runs are compared by, {"name": value}
 * without nested values, in the folder of the evaluator. group: the name of the group of repeated runs that
 * the run belongs to, or NULL. */
void mst_observe_config(mst_observe *self, const char *group, const json_t *options, const json_t *compared);
/* Records the end of the run for the HParams tab; not for an interrupted run. The first of several in a
 * folder counts. */
void mst_observe_run_ends(mst_observe *self, bool failed);

#endif
