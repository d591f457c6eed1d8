/* A run directory (docs/RUNS.md) in memory: of a run that is finished, running, interrupted, half-deleted or
 * made by an older version.
 *
 * Missing data is empty; unusable files become warnings. An update reads only new data, so that a page or a
 * terminal can follow a run. Reads files only and writes none. One thread. */
#ifndef MST_REPORT_RUN_READ_H
#define MST_REPORT_RUN_READ_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/option.h"
#include "base/status.h"
#include "report/csv.h"

typedef enum mst_process_role {
    MST_PROCESS_LOCAL,
    MST_PROCESS_SERVER,
    MST_PROCESS_WORKER,
    MST_PROCESS_RANK,
    MST_PROCESS_OTHER, /* the evaluator, and unknown roles */
} mst_process_role;

typedef struct mst_process_link {
    char name[32];
    double bits_per_s; /* NAN: not known */
} mst_process_link;

/* To a process on another host: a server's to a worker, a worker's to a server. NAN: not known. */
typedef struct mst_process_path {
    double bits_per_s, trip_s;
} mst_process_path;

#define MST_PROCESS_LINKS_MAX 16
#define MST_PROCESS_PATHS_MAX 64

/* One folder of processes/. */
typedef struct mst_process_data {
    char *name, *host; /* host: "" when not known */
    mst_process_role role;
    int64_t index, pid;
    double started, cores, threads, memory_bytes; /* NAN: not known */
    double cpu_limit;                             /* cores' worth that it may use; NAN: no limit is known */
    mst_process_link links[MST_PROCESS_LINKS_MAX];
    size_t n_links;
    mst_process_path paths[MST_PROCESS_PATHS_MAX]; /* by the index of the other process */
    char machine[16];                              /* equal for hosts that share cores; "" when not known */
    mst_csv resources, spans, traffic, learning;
    char *info_path;
    int64_t info_stamp; /* of process.json, to see that it was replaced; -1: never read */
    bool has_info;
} mst_process_data;

typedef struct mst_run_data {
    char *path, *name;          /* name: the folder's last word, which need not be unique */
    json_t *manifest, *verdict; /* objects; NULL: none that can be read */
    mst_csv metrics, marks;
    mst_process_data **processes; /* local, servers, workers, ranks, others; by index */
    size_t n_processes;
    mst_text_list warnings; /* of the last update; sentences */
    char *manifest_path, *verdict_path;
    int64_t manifest_stamp, verdict_stamp;
} mst_run_data;

/* Reads the run at path. MST_EINPUT if there is no run. *out is the caller's to
 * destroy; set only on MST_OK. */
mst_status mst_run_data_new(const char *path, mst_run_data **out);
/* The same for a view that follows the run: of large files, each call reads a part only. */
mst_status mst_run_data_open(const char *path, mst_run_data **out);
void mst_run_data_destroy(mst_run_data *self); /* NULL-safe */

/* Reads new and changed data; *changed (may be NULL): whether there was any. Data of files that were removed
 * stays. MST_ENOMEM only; other failures are warnings. */
mst_status mst_run_data_update(mst_run_data *self, bool *changed);

/* ---- access ---- */

/* An option of the manifest by its flag's name, in the form that a user types; NULL: not there. The caller
 * frees. */
char *mst_run_data_option(const mst_run_data *self, const char *name);
/* Compares such an option. */
bool mst_run_data_option_is(const mst_run_data *self, const char *name, const char *text);
double mst_run_data_option_real(const mst_run_data *self, const char *name); /* NAN: not there, no number */

/* A text or number of the manifest by its keys, e.g. "progress", "rows"; NULL key ends. NULL and NAN: not
 * there. The text lives as long as the manifest. */
const char *mst_run_data_text(const mst_run_data *self, ...) __attribute__((sentinel));
double mst_run_data_real(const mst_run_data *self, ...) __attribute__((sentinel));

/* A number of a JSON object; NAN: not there. */
double mst_json_real(const json_t *object, const char *key);

/* A line of marks.csv. Unknown: NAN and "". The texts live until the next update. */
typedef struct mst_mark_line {
    double time;
    const char *process, *kind, *text;
} mst_mark_line;
mst_mark_line mst_run_data_mark(const mst_run_data *self, size_t line);

/* The start of the run and the newest time in any file, in seconds since 1970; NAN: not known. */
double mst_run_data_begin(const mst_run_data *self);
double mst_run_data_end(const mst_run_data *self);

const char *mst_process_role_name(mst_process_role role);

#endif
