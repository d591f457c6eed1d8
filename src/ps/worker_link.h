/* A worker's connections to its servers, and the end of the job as they report it.
 *
 * The coordinator decides how the run ends: once its END has arrived, `end` is the outcome, whatever else
 * failed. A failure of another server is therefore noted, and the coordinator has a moment to state the
 * cause.
 *
 * Thread: the owner of the net makes every call. Waiting: in poll, at most until its deadline and never long;
 * in failed and lost, two seconds. */
#ifndef MST_PS_WORKER_LINK_H
#define MST_PS_WORKER_LINK_H

#include <stdbool.h>

#include "observe/trace_file.h"
#include "ps/proto.h"
#include "ps/worker.h"

/* Bytes of a connection to a server that the observer has. */
typedef struct mst_counted_bytes {
    uint32_t peer;
    uint64_t in, out;
} mst_counted_bytes;

typedef struct mst_worker_link {
    mst_net *net;
    uint32_t n_servers;
    char **addresses; /* by server, as the next four */
    uint32_t *peers;
    mst_counted_bytes *counted;
    bool *up;
    bool *absent; /* it takes no part (takeover.h) */
    void *body;   /* of the coordinator's message that is being received, other than values */
    size_t body_capacity;
    bool starting;         /* until the coordinator has described the job */
    mst_error failure;     /* code MST_OK: none; the loss of a server, or a failure inside an event */
    bool failure_is_final; /* the coordinator cannot state a better cause */
    bool ended;            /* the coordinator has ended the job, with: */
    mst_error end;
    uint64_t received_ns;   /* time of the coordinator's last message */
    bool held;              /* training waits for an evaluation: pushes are not answered */
    mst_trace_chain net_op; /* the activity of the net, for a trace */
    /* Work of the worker between polls: evaluation, reports, the stop flag, failures. */
    mst_status (*attend)(void *arg);
    void *attend_arg;
} mst_worker_link;

/* Connects to the servers; events are called with `arg`. */
mst_status mst_worker_link_init(mst_worker_link *self, const mst_worker_options *options,
                                const mst_net_events *events, void *arg);
void mst_worker_link_fini(mst_worker_link *self);

/* The server of a peer; UINT32_MAX: none. */
uint32_t mst_worker_link_server(const mst_worker_link *self, uint32_t peer);
/* Drops the connections to servers that take no part: an array of their indices in a JOB, or NULL. */
mst_status mst_worker_link_without(mst_worker_link *self, const json_t *absent);
/* All servers that take part are up. */
bool mst_worker_link_whole(const mst_worker_link *self);
/* Writes "server 1 at host:port, server 2 at ..." for those that are not up. */
void mst_worker_link_missing(const mst_worker_link *self, char *out, size_t size);

/* Keeps a failure of an event. The first one counts, but a final one replaces one that is not. */
void mst_worker_link_note(mst_worker_link *self, mst_status status, bool final);
/* Handles messages, then attends. MST_EPEER or worse is a failure; the end of the job is not: `ended`. */
mst_status mst_worker_link_poll(mst_worker_link *self, uint64_t deadline_ns);
/* A failure was noted: returns it, or MST_OK if the coordinator ends the job within a moment. */
mst_status mst_worker_link_failed(mst_worker_link *self);
/* A send failed with MST_EPEER: the loss of its server, or the coordinator's END, arrives in a moment and is
 * more precise. */
mst_status mst_worker_link_lost(mst_worker_link *self, mst_status status);
/* Reads the coordinator's END. */
mst_status mst_worker_link_end(mst_worker_link *self, const mst_message *m, const void *body);
/* The coordinator's END as a status with its message. */
mst_status mst_worker_link_end_status(const mst_worker_link *self);

#endif
