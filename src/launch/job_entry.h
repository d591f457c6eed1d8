/* The entry of a launching process in the state folder (job_state.h), and the requests that it serves there.
 *
 * Requests arrive over the socket `control`, which only this user can connect to: one line, answered with
 * one line. "add N" starts N more workers.
 *
 * Thread: one. */
#ifndef MST_LAUNCH_JOB_ENTRY_H
#define MST_LAUNCH_JOB_ENTRY_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "base/status.h"

typedef struct mst_job_entry mst_job_entry;

typedef struct mst_job_entry_info {
    const char *job, *command; /* command: the whole line that was typed */
    const char *logs;          /* folder of the logs; NULL: none */
    uint32_t grace_s;
} mst_job_entry_info;

/* Makes the entry and takes its lock. MST_EEXIST if a job of this name runs. *out is the caller's to end; set
 * only on MST_OK. */
mst_status mst_job_entry_new(const mst_job_entry_info *info, mst_job_entry **out);
/* Writes the outcome of a detached job, with the message recorded for st, or removes the entry; frees it.
 * NULL-safe. */
void mst_job_entry_end(mst_job_entry *entry, mst_status st);

typedef enum mst_job_detached {
    MST_JOB_CHILD,    /* this is the new process */
    MST_JOB_BEGAN,    /* the job has begun its work */
    MST_JOB_STARTING, /* it has not within the time */
    MST_JOB_DONE,     /* it has ended well */
} mst_job_detached;

/* Continues in a new process without a terminal, which owns the entry from there on; its output goes to the
 * file of the entry. In this process: returns when the job has begun its work, has ended, or wait_s have
 * passed; the entry is freed. A job that has failed: its error, with its exit code. */
mst_status mst_job_entry_detach(mst_job_entry *entry, uint32_t wait_s, mst_job_detached *out);

/* The job has begun its work. Calls after the first have no effect. NULL-safe. */
void mst_job_entry_started(mst_job_entry *entry);

/* Serves requests until the loop closes its handles: add is called for "add N" and returns MST_OK, or a
 * failure whose message is the answer. An entry whose path is too long for a socket has no requests.
 * NULL-safe. */
typedef mst_status mst_job_add_fn(void *arg, uint32_t n);
void mst_job_entry_serve(mst_job_entry *entry, uv_loop_t *loop, mst_job_add_fn *add, void *arg);

/* The other side: sends "add N" to a job and waits for the answer, at most 10 s. */
mst_status mst_job_request_add(const char *job, uint32_t n);

#endif
