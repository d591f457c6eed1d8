/* Records: pieces of the files of a process (docs/RUNS.md) on their way to the run directory. Every process
 * makes records; the one with the directory writes its own and those that arrive from the others.
 *
 * Process, kind and stamp identify a file. Records from the network are checked: the name of a process has 1
 * to 31 characters of a-z, 0-9 and '-', so it cannot lead out of the directory, and the kind is known. */
#ifndef MST_OBSERVE_RECORD_H
#define MST_OBSERVE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* X(name, file): in RUN/processes/PROCESS/; event files have the stamp in their names. */
#define MST_RECORD_MAP(X)                                                                                    \
    X(PROCESS, "process.json")                                                                               \
    X(RESOURCES, "resources.csv")                                                                            \
    X(SPANS, "spans.csv")                                                                                    \
    X(EVENTS, "events.out.tfevents")                                                                         \
    X(EVALUATIONS, "events.out.tfevents")                                                                    \
    X(TRACE, "trace.json")                                                                                   \
    X(TRAFFIC, "traffic.csv")                                                                                \
    X(LEARNING, "learning.csv")

typedef enum mst_record_kind {
#define X(name, file) MST_RECORD_##name,
    MST_RECORD_MAP(X)
#undef X
        MST_RECORDS
} mst_record_kind;

#define MST_PROCESS_NAME 32
#define MST_EVALUATOR    "evaluator" /* the folder of MST_RECORD_EVALUATIONS */

typedef struct mst_record {
    mst_record_kind kind;
    bool begins; /* the first record of its file from this process; a CSV file starts with the header line */
    uint64_t stamp; /* start of the process in microseconds since 1970 */
    char process[MST_PROCESS_NAME];
    const void *data; /* borrowed */
    size_t n;
} mst_record;

bool mst_process_name_fits(const char *name);

/* ---- the wire ---- */

#define MST_RECORD_HEAD 48
#define MST_RECORD_MAX  ((size_t)1 << 20) /* largest data of one record */
/* Writes the head; the data follow it unchanged. */
void mst_record_encode(const mst_record *record, uint8_t *out);
/* data points into body. MST_EINPUT for an invalid record. */
mst_status mst_record_decode(const void *body, size_t size, mst_record *out);

/* ---- the directory ---- */

/* Appends to the file in RUN/processes/; the first record of a process creates it. process.json is replaced,
 * and so is trace.json by its first record. An existing CSV file with the same header continues without a
 * second one. MST_EIO if the file cannot be written. Thread: any, one at a time per file. */
mst_status mst_record_file(const char *run, const mst_record *record);

#endif
