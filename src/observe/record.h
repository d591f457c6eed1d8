/* Records: pieces of the files that the processes of a run write about themselves, on their way to the run's
 * directory. Every process makes records; the one that has the directory files them, its own and those that
 * come over the network from the others.
 *
 * A file is known by process, kind and stamp. What comes off the wire is checked: a process's name is 1 to 31
 * of a-z, 0-9 and '-', so that it cannot lead anywhere else, and the kind is a known one. */
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
    X(TRACE, "trace.json")

typedef enum mst_record_kind {
#define X(name, file) MST_RECORD_##name,
    MST_RECORD_MAP(X)
#undef X
        MST_RECORDS
} mst_record_kind;

#define MST_PROCESS_NAME 32
#define MST_EVALUATOR    "evaluator" /* the folder of MST_RECORD_EVALUATIONS, whoever evaluates */

typedef struct mst_record {
    mst_record_kind kind;
    bool begins;    /* the first of its file by this process; of a CSV file: begins with the header line */
    uint64_t stamp; /* microseconds since 1970 when the process began */
    char process[MST_PROCESS_NAME];
    const void *data; /* borrowed */
    size_t n;
} mst_record;

bool mst_process_name_fits(const char *name);

/* ---- the wire ---- */

#define MST_RECORD_HEAD 48
#define MST_RECORD_MAX  ((size_t)1 << 20) /* most data of one record */
/* The head; the data follow it as they are. */
void mst_record_encode(const mst_record *record, uint8_t *out);
/* data points into body. MST_EINPUT says what is wrong. */
mst_status mst_record_decode(const void *body, size_t size, mst_record *out);

/* ---- the directory ---- */

/* Appends to the file in RUN/processes/, which is made by the first record of a process. process.json is
 * replaced, and trace.json by its first record; a CSV file that is there already with the same header goes on
 * without a second one. MST_EIO when it cannot be written. Any thread; one at a time for one file. */
mst_status mst_record_file(const char *run, const mst_record *record);

#endif
