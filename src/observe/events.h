/* Event files of TensorBoard: records framed as TFRecord does (length, masked CRC-32C of the length, bytes,
 * masked CRC-32C of the bytes), each one an Event message of TensorFlow's event.proto. The encoder is
 * written here: a dozen fields do not justify a dependency.
 *
 * Every function appends one framed record to `out`, which sets `failed` without memory. wall is in seconds
 * since 1970. The caller passes UTF-8 text (mst_json_text). Thread: any, one per `out`. */
#ifndef MST_OBSERVE_EVENTS_H
#define MST_OBSERVE_EVENTS_H

#include <jansson.h>

#include "observe/bytes.h"
#include "observe/histogram.h"

typedef struct mst_scalar {
    const char *tag; /* "loss", "test/accuracy" */
    double value;    /* omitted if not finite */
} mst_scalar;

/* The first record of every file. */
void mst_event_version(mst_bytes *out, double wall);

/* The second record of every file. It invalidates this step and later ones in earlier files of the folder,
 * because a resumed run may start before their end. TensorBoard takes the first such record of a folder as
 * the start of the run. */
void mst_event_start(mst_bytes *out, double wall, uint64_t step);

/* Writes nothing if no value is finite. */
void mst_event_scalars(mst_bytes *out, double wall, uint64_t step, const mst_scalar *scalars, size_t n);
void mst_event_histogram(mst_bytes *out, double wall, uint64_t step, const char *tag,
                         const mst_histogram *histogram);

/* For the Text tab, in Markdown. */
void mst_event_text(mst_bytes *out, double wall, uint64_t step, const char *tag, const char *text);

/* For the Graphs tab. nodes: an array of objects, in any order:
 *   "name"    nodes of one scope share the prefix before a slash: "conv1/weight"
 *   "op"      the operation; "Placeholder" and "VariableV2" are TensorFlow's names of inputs and parameters
 *   "inputs"  names of other nodes
 *   "device"  "/job:server/task:1"; optional
 *   "shape"   of its floats, -1 for any number; optional
 *   "attr"    an object of numbers, booleans and texts; other values are ignored; optional */
void mst_event_graph(mst_bytes *out, double wall, const json_t *nodes);

/* For the HParams tab: the options of the run, and its outcome. values is an object of numbers, booleans and
 * texts; other values are ignored. group is the name that repeats share, or NULL; TensorBoard shows the mean
 * over a group. TensorBoard determines columns, metrics and differing values over all runs: a record with
 * these would apply to all of them. The metrics are the scalars of the same folder. */
void mst_event_run_begins(mst_bytes *out, double wall, const char *group, const json_t *values);
void mst_event_run_ends(mst_bytes *out, double wall, bool failed);

#endif
