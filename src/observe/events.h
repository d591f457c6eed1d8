/* Event files of TensorBoard: records framed as TFRecord does (length, masked CRC-32C of the length, bytes,
 * masked CRC-32C of the bytes), each one an Event message of TensorFlow's event.proto. The encoder is our
 * own: the dozen fields that are written do not warrant a dependency.
 *
 * Every function appends one framed record to `out`, whose `failed` tells of missing memory. wall: seconds
 * since 1970. Text that is not UTF-8 is the caller's to avoid (mst_json_text). Thread: any, one per `out`. */
#ifndef MST_OBSERVE_EVENTS_H
#define MST_OBSERVE_EVENTS_H

#include <jansson.h>

#include "observe/bytes.h"
#include "observe/histogram.h"

typedef struct mst_scalar {
    const char *tag; /* "loss", "test/accuracy" */
    double value;    /* not finite: left out */
} mst_scalar;

/* The first record of every file. */
void mst_event_version(mst_bytes *out, double wall);

/* The second record of every file: what files before it in the folder say of this step and later ones is
 * void, for a run may have been resumed before where they end. TensorBoard takes the first such record of a
 * folder for the run's beginning, and the others only at their word. */
void mst_event_start(mst_bytes *out, double wall, uint64_t step);

/* Nothing is written when no value is finite. */
void mst_event_scalars(mst_bytes *out, double wall, uint64_t step, const mst_scalar *scalars, size_t n);
void mst_event_histogram(mst_bytes *out, double wall, uint64_t step, const char *tag,
                         const mst_histogram *histogram);

/* For the text tab; Markdown. */
void mst_event_text(mst_bytes *out, double wall, uint64_t step, const char *tag, const char *text);

/* For the Graphs tab. nodes: an array of objects, in any order:
 *   "name"    parts of one scope share what is before a slash: "conv1/weight"
 *   "op"      what it computes; "Placeholder" and "VariableV2" are what TensorFlow calls inputs and
 * parameters "inputs"  names of other nodes "device"  where it lives, "/job:server/task:1"; may be missing
 *   "shape"   of its floats, -1 for any number; missing: not known
 *   "attr"    an object of numbers, booleans and texts; others are left out; may be missing */
void mst_event_graph(mst_bytes *out, double wall, const json_t *nodes);

/* For the HParams tab: with what this run was started, and how it ended. values: an object of numbers,
 * booleans and texts; others are left out. group: what repeats share, whose figures are shown as their mean;
 * or NULL. What is compared (columns, metrics, which values differ) TensorBoard finds out over all runs: a
 * record that says so would count for all of them, whichever run it came from. The metrics are the scalars of
 * the same folder. */
void mst_event_run_begins(mst_bytes *out, double wall, const char *group, const json_t *values);
void mst_event_run_ends(mst_bytes *out, double wall, bool failed);

#endif
