/* What one process of a run writes about itself (docs/RUNS.md): process.json, resources.csv, spans.csv, event
 * files for TensorBoard, and trace.json on request. A thread of its own samples and writes; training only
 * counts (spans.h) and now and then hands over a figure, and never waits for any of it.
 *
 *   mst_observe_new       samples from here on, into memory
 *   mst_observe_file_in   the process has the run's directory: its thread writes files there
 *   mst_observe_take      or it has not: somebody carries the records (record.h) to who has
 *   mst_observe_end       a last sample; nothing is added any more, but events that somebody still takes
 *
 * Nothing here fails a training: without memory or disk there is one warning, and less is written. Memory is
 * bounded: what nobody files or takes in time is dropped, oldest last.
 *
 * Thread: any, but for end and destroy. A NULL object is fine everywhere: nothing is watched. */
#ifndef MST_OBSERVE_OBSERVE_H
#define MST_OBSERVE_OBSERVE_H

#include <jansson.h>

#include "observe/events.h"
#include "observe/job_clock.h"
#include "observe/record.h"
#include "observe/spans.h"

typedef struct mst_observe_options {
    const char *process;       /* "worker-0"; as record.h wants names */
    const char *role;          /* "local", "server", "worker", "rank" */
    unsigned index, n_threads; /* server 0 and rank 0 are coordinators, and a local process is its own */
    double every_s;            /* between lines of resources.csv and spans.csv; 0: none of them */
    bool guest;                /* another part of this process watches the host: no resources.csv */
    bool events;               /* event files */
    bool trace;                /* trace.json, of steps [trace_from, trace_to] */
    uint64_t trace_from, trace_to;
    uint64_t step; /* where the run stands: 0, or where it was resumed */
} mst_observe_options;

typedef struct mst_observe mst_observe;

/* NULL, after a warning, when it cannot be. */
mst_observe *mst_observe_new(const mst_observe_options *options);
void mst_observe_destroy(mst_observe *self); /* ends first, if need be */

void mst_observe_file_in(mst_observe *self, const char *run);
/* The directory is not this run's any more: nothing more is filed there. */
void mst_observe_disown(mst_observe *self);
/* The next record, whose data are the caller's to mst_free; false: none now. */
bool mst_observe_take(mst_observe *self, mst_record *out);
void mst_observe_end(mst_observe *self);
/* A record of another process, which the object's thread files beside its own; after the end it is filed at
 * once. The data are copied. */
void mst_observe_forward(mst_observe *self, const mst_record *record);

/* The job's clock (job_clock.h). The coordinator fills in the answer to a question, MST_CLOCK_ANSWER bytes;
 * another process hands over the answer to a question that it sent at asked_ns. True: ask again at once. */
void mst_observe_clock_answer(mst_observe *self, uint8_t *out);
bool mst_observe_clock_receive(mst_observe *self, uint64_t asked_ns, const void *answer, size_t size);

/* An interface was seen to carry so much; "" and "lo": nothing. For process.json. */
void mst_observe_link(mst_observe *self, const char *name, double bits_per_s);

/* The way to that worker was seen to carry so much. For process.json. */
void mst_observe_path(mst_observe *self, uint32_t worker, double bits_per_s);

/* Something else begins now than what the time went into before: lines of resources.csv and spans.csv end
 * here, a moment later at most. */
void mst_observe_end_interval(mst_observe *self);

/* For mst_spans_attach; NULL for a NULL object. */
mst_spans *mst_observe_spans(mst_observe *self);
/* Sums of the phases up to now; zeros for a NULL object. */
void mst_observe_totals(mst_observe *self, mst_span_sums *out);
/* {"read": seconds, ..., "threads": n}. New reference, or NULL. */
json_t *mst_observe_phases(mst_observe *self);

/* The step that the run begins at, where that is known later than the options: before any curve. */
void mst_observe_set_first_step(mst_observe *self, uint64_t step);
/* The step that the run has reached: what the sampler's own curves are drawn over. */
void mst_observe_set_step(mst_observe *self, uint64_t step);

/* Curves, histograms and texts for TensorBoard. kind: MST_RECORD_EVENTS, or MST_RECORD_EVALUATIONS for those
 * of the evaluator. */
void mst_observe_scalars(mst_observe *self, mst_record_kind kind, uint64_t step, const mst_scalar *scalars,
                         size_t n);
void mst_observe_histogram(mst_observe *self, uint64_t step, const char *tag, const float *values,
                           uint64_t n);
void mst_observe_stretches(mst_observe *self, uint64_t step, const char *tag, const mst_stretch *stretches,
                           size_t n);
/* What is trained, as mst_event_graph takes it; once, by the coordinator. */
void mst_observe_graph(mst_observe *self, const json_t *nodes);
/* The options of the run as text, and for the HParams tab those that runs are compared by, {"name": value}
 * without nested values, in the folder of the evaluator. group: the name of the group of repeated runs that
 * the run belongs to, or NULL. */
void mst_observe_config(mst_observe *self, const char *group, const json_t *options, const json_t *compared);
/* The same, at the end; not for a run that is only interrupted. Of several in a folder, the first counts. */
void mst_observe_run_ends(mst_observe *self, bool failed);

#endif
