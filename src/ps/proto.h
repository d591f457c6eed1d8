/* Messages of the parameter server: sender, receiver and layout of each (docs/WIRE.md). Messages that are
 * sent once or a few times are JSON; messages of a step are binary, little-endian, and checked here before
 * use.
 *
 * Connections: every worker to every server, every server to server 0 (the coordinator). Workers are not
 * connected to each other. */
#ifndef MST_PS_PROTO_H
#define MST_PS_PROTO_H

#include <stdbool.h>

#include <jansson.h>

#include "net/net.h"
#include "tensor/float_format.h"
#include "tensor/key_list.h"

typedef enum mst_ps_type {
    /* ---- start-up ---- */
    MST_PS_JOB = MST_NET_TYPES, /* coordinator to a connected process: JSON {"resume", "options", ...} */
    MST_PS_JOIN,                /* worker or server to coordinator: JSON: its options, model and data */
    MST_PS_SETUP,               /* coordinator to server: JSON: model, table, steps, restore */
    MST_PS_FLOATS,  /* floats of the store; coordinator to server: restored; server to coordinator: saved.
                     step: first float; count: 0 weights, s + 1 optimizer slot s; body: fp32 */
    MST_PS_READY,   /* server to coordinator: the store is complete; flags MST_READY_* */
    MST_PS_WELCOME, /* coordinator to worker: JSON: table, position of the training; work follows */
    /* ---- steps ---- */
    MST_PS_STEP,   /* worker to server: pushes a gradient, pulls weights, or both */
    MST_PS_VALUES, /* server to worker: the weights pulled */
    MST_PS_WORK,   /* coordinator to worker: one or more work items */
    MST_PS_WANT,   /* worker to coordinator: requests work; count: rows it still holds */
    MST_PS_CLOSE,  /* coordinator to servers: step m.step closes with the pushes of the workers in the body's
                      bitmap (u64 words); none: the run is done, and pushes for that step are dropped */
    MST_PS_GONE, /* coordinator to servers: worker m.count is gone; with a quorum its pushes from step m.step
                    on do not count. With MST_GONE_DECIDED, without a quorum: its pushes up to step m.step
                    count. Server to coordinator, once per MEMBER: the connection to worker m.count has
                    ended; step: steps applied; flags MST_GONE_* */
    /* ---- cuts: one consistent version over all servers ---- */
    MST_PS_CUT, /* coordinator to servers and workers: cut m.count, flags MST_CUT_*; to servers: bitmap of the
                   workers that send markers; step: sync: the version of the cut; request: not 0: the earlier
                   cut whose markers count, because training has waited since */
    MST_PS_MARKER, /* worker to server: later messages come after cut m.count; step and flags as
                    above */
    MST_PS_SAVED,  /* server to coordinator: all floats of cut m.count have been sent; MST_SAVED_FAILED */
    /* ---- evaluation ---- */
    MST_PS_CHIEF,     /* coordinator to worker: this worker evaluates; step: its pass as the chief (pass.h) */
    MST_PS_EVAL_LIST, /* chief to server: the floats that its sets touch; a STEP body without a push; step:
                         the pass of CHIEF */
    MST_PS_EVAL_VALUES, /* server to chief: their values at cut m.count; fp32 */
    MST_PS_EVAL_RESULT, /* chief to coordinator: JSON {"test": {...}, "valid": {...}}, or {"error"}; count:
                           the cut */
    /* ---- the end ---- */
    MST_PS_REPORT, /* worker to coordinator: JSON: counts and times so far; flags MST_REPORT_* */
    MST_PS_STOP,   /* coordinator to workers: finish the requests in flight, report, wait for END */
    MST_PS_END,    /* coordinator to all processes: JSON {"code", "text"}: the outcome of the job; code
                      MST_EAGAIN: it starts again from its last checkpoint, and all processes join again */
    MST_PS_FAIL,   /* worker or server to coordinator: JSON {"code", "text"}: it cannot continue */
    /* ---- parts of steps, which travel before the rest is computed ---- */
    MST_PS_GRADIENT, /* worker to server: part of the gradient for the list of request m.count, from its float
                        m.step on; parts are sent from the end to the beginning, which a STEP carries */
    MST_PS_WEIGHTS, /* server to worker: part of the answer to m.request, from its float m.count on; parts are
                       sent from the beginning to the end, which a VALUES carries; step as in VALUES */
    /* ---- observation ---- */
    MST_PS_LOG,   /* worker or server to coordinator: a record of its observer (observe/record.h) */
    MST_PS_CLOCK, /* worker or server to coordinator: requests its time. The answer has the same request, and
                     a body of MST_CLOCK_ANSWER bytes */
    /* ---- members ---- */
    MST_PS_MEMBER, /* coordinator to servers: the process with incarnation m.step is worker m.count from now
                      on. Server to coordinator: it has taken note. The WELCOME of the worker follows the
                      answers of all servers */
    MST_PS_TAKE,   /* coordinator to worker: no process has taken the slot of the lost worker m.count; this
                      process runs that worker too */
    /* ---- copies of weights on a partner server (--replicas) ---- */
    MST_PS_COPY,  /* server to its partner, and to the coordinator: flags MST_COPY_*; count: the roster; step:
                     steps applied */
    MST_PS_PIECE, /* server to its partner: floats of a copy; step: first float; count: 0 weights, s + 1
                     optimizer slot s; request: floats; body: fp32; flags MST_FLOATS_ZERO */
    MST_PS_DELTA, /* server to its partner: new values of floats after step m.step; request: number of the
                     delta; count: the roster */
    MST_PS_COPIED,  /* the answer: deltas up to number m.request are copied; count: the roster */
    MST_PS_APPLIED, /* sync: server to coordinator: step m.step is applied, and the partner's copy has it;
                       count: the roster */
    MST_PS_STATE,  /* coordinator to its partner: its state after step m.step: 3 x u64: rows, epoch, position;
                      or, flags MST_STATE_RUN, JSON {"log", "plan"}: what a checkpoint has besides */
    MST_PS_ROSTER, /* coordinator to server: JSON {"roster", "table", "steps", "cut", "copied"}: the table and
                    the step from which all servers continue; READY answers, with the roster */
    /* ---- training waits for an evaluation ---- */
    MST_PS_HOLD, /* coordinator to workers: flags MST_HOLD_BEGIN: pushes are not answered until the HOLD
                    without it. To servers, without flags: pushes count again */
    /* ---- the paths between hosts ---- */
    MST_PS_PROBE, /* worker to server and back, before the worker joins: flags MST_PROBE_* (worker_probe.h) */
} mst_ps_type;
const char *mst_ps_type_name(uint16_t type);

#define MST_NO_REQUEST UINT32_MAX

/* Flags of STEP. */
#define MST_STEP_PUSH 1u /* m.count is the request whose list the gradient belongs to */
#define MST_STEP_PULL 2u /* m.request names the list from now on */
#define MST_STEP_EXHAUSTED                                                                                   \
    4u /* no more rows in this epoch: the worker does not count until the next (sync, streams) */
#define MST_STEP_WIRE_SHIFT 8 /* mst_float_format of the floats, both ways */
/* Flags of VALUES. m.step: steps applied on this server when the values were read. */
#define MST_VALUES_DROPPED 1u /* the push of the request was late and had no effect */
#define MST_VALUES_WORK    2u /* after the values: a work item (coordinator, sync) */
/* Flags of WANT. */
#define MST_WANT_EPOCH_ENDED 1u /* the epoch of the worker's own stream has ended */
/* Flags of CUT. */
#define MST_CUT_EVAL 1u
#define MST_CUT_SAVE 2u
#define MST_CUT_LAST 4u /* training is over */
#define MST_CUT_HOLD 8u /* training waits from the cut on, until HOLD: servers apply no push */
/* Flag of HOLD. */
#define MST_HOLD_BEGIN 1u
/* Flags of GONE from a server to the coordinator. */
#define MST_GONE_SILENT 1u  /* the server dropped the worker because it was silent */
#define MST_GONE_FAULT  2u  /* the server dropped the worker because of an invalid message; body: why */
#define MST_GONE_NAN    32u /* ... because of a gradient that is not finite (--on-nan drop) */
#define MST_GONE_PUSHED 4u  /* sync: the worker's push for step m.step + 1 waits */
#define MST_GONE_LACKS                                                                                       \
    8u /* quorum: the coordinator counts a push of the worker that does not arrive here                      \
        */
/* Flag of GONE from the coordinator. */
#define MST_GONE_DECIDED 16u
/* Flag of STOP. */
#define MST_STOP_NOW 1u /* requests in flight are not answered */
/* Flags of READY. */
#define MST_READY_EVAL_LIST 1u /* the server has the evaluation list of worker m.count */
#define MST_READY_ROSTER    2u /* the server has taken roster m.count */
/* Flags of COPY. */
#define MST_COPY_WANTED 1u /* to the partner: send a copy of your floats */
#define MST_COPY_BEGIN  2u /* to the partner: the pieces of a copy follow, with deltas between them */
#define MST_COPY_END    4u /* to the partner: it is complete */
#define MST_COPY_HERE   8u /* to the coordinator: a copy of the partner's floats is complete here */
/* Flags of STATE. */
#define MST_STATE_RUN  1u
#define MST_STATE_SIZE 24
/* Flags of FLOATS and PIECE. */
#define MST_FLOATS_ZERO 1u /* no body: m.request floats are zero */
/* Flags of SAVED. */
#define MST_SAVED_FAILED 1u /* the server could not copy its floats: the checkpoint is to be discarded */
/* Flags of PROBE. */
#define MST_PROBE_ASK  1u      /* worker: may this path be measured now? */
#define MST_PROBE_GO   2u      /* server: yes */
#define MST_PROBE_BUSY 3u      /* server: another path is being measured; ask again */
#define MST_PROBE_DATA 4u      /* worker: a body, which the server returns */
#define MST_PROBE_DONE 5u      /* worker: another path may be measured */
#define MST_PROBE_MAX  4194304 /* bytes of a body */
/* Flags of REPORT. */
#define MST_REPORT_LAST   1u
#define MST_REPORT_LEAVES 2u /* elastic: it leaves the job, which continues; an END follows */

/* A work item. A slice is the global batch of one synchronous step, of which the worker takes its share; a
 * lease is a range of rows, taken batch by batch; a grant is a number of rows of the worker's own stream. */
typedef enum mst_work_kind {
    MST_WORK_SLICE = 1,
    MST_WORK_LEASE,
    MST_WORK_GRANT, /* from 0 to n */
    MST_WORK_WAIT,  /* no work now; more may follow */
    MST_WORK_STOP,  /* no more work */
} mst_work_kind;

#define MST_WORK_SIZE 48
typedef struct mst_work {
    mst_work_kind kind;
    uint32_t share,
        n_shares;  /* slice: the worker's rows are [n * share / n_shares, n * (share + 1) / n_shares) */
    uint64_t step; /* slice: its number */
    uint64_t epoch, from, to; /* positions in the epoch's order of rows */
} mst_work;
void mst_work_encode(const mst_work *work, uint8_t *out); /* MST_WORK_SIZE bytes */
/* Reads the first MST_WORK_SIZE of `size` bytes; mst_work_share accepts the result. */
mst_status mst_work_decode(const uint8_t *in, size_t size, mst_work *out);

/* The share's rows, as positions. */
static inline void mst_work_share(const mst_work *w, uint64_t *from, uint64_t *to)
{
    uint64_t n = w->to - w->from;
    *from = w->from + n * w->share / w->n_shares;
    *to = w->from + n * (w->share + 1) / w->n_shares;
}

/* The body of a STEP: head, pushed floats, ranges of the pull list, packed keys of the pull list. */
#define MST_STEP_HEAD 48
#define MST_PART_MIN  256 /* floats of a part, at least */
typedef struct mst_step_head {
    double loss, weight; /* sums over the rows, before the update */
    uint32_t rows;
    uint32_t push_floats;
    uint32_t pull_ranges, pull_keys, packed_bytes;
    uint32_t part_floats; /* the answer may arrive in parts of so many floats; 0: in one message */
    uint32_t correct;     /* rows that the model classified correctly, before the update */
} mst_step_head;
void mst_step_head_encode(const mst_step_head *head, uint8_t *out);
/* Checks the flags, and that the sections are those of the flags and add up to m->size exactly. */
mst_status mst_step_head_decode(const mst_message *m, const uint8_t *body, mst_step_head *out);

/* The list of a pull as it ends the body: ranges, then packed keys. encode sets the head's pull_* and
 * packed_bytes and returns the bytes written, at most the bound. */
#define MST_RANGE_SIZE 16
size_t mst_step_list_bound(const mst_key_list *list);
mst_extent mst_step_range_decode(const uint8_t *in);
size_t mst_step_list_encode(const mst_key_list *list, mst_step_head *head, uint8_t *out);

/* The body of a DELTA: head, ranges, packed keys, zeros up to a multiple of 4, then the values of all floats,
 * ranges first: the weights, then every optimizer slot. */
#define MST_DELTA_HEAD 16
typedef struct mst_delta_head {
    uint32_t n_ranges, n_keys, packed_bytes;
} mst_delta_head;
void mst_delta_head_encode(const mst_delta_head *head, uint8_t *out);
/* Checks that the list fits `size` bytes. */
mst_status mst_delta_head_decode(const uint8_t *in, uint64_t size, mst_delta_head *out);
static inline uint64_t mst_delta_list_size(const mst_delta_head *head)
{
    return MST_DELTA_HEAD + (uint64_t)head->n_ranges * MST_RANGE_SIZE +
           ((uint64_t)head->packed_bytes + 3) / 4 * 4;
}
void mst_step_range_encode(const mst_extent *range, uint8_t *out);

/* A JSON body of at most MST_PS_JSON_MAX bytes; the message names the type. New reference. A body that is
 * not JSON is MST_EPEER. */
#define MST_PS_JSON_MAX   (64u << 20)
#define MST_PS_JOIN_MAX   (4u << 20) /* of JOIN */
#define MST_PS_REPORT_MAX (1u << 16) /* of REPORT, FAIL and EVAL_RESULT */
mst_status mst_ps_json(const mst_message *m, const void *body, json_t **out);
/* Sends JSON (takes the reference; NULL is MST_ENOMEM). */
mst_status mst_ps_send_json(mst_net *net, uint32_t peer, const mst_message *m, json_t *json);
/* A message as JSON, in which bytes that are not UTF-8 (of a file name) become '?'. New reference or NULL.
 */
json_t *mst_ps_text(const char *text);
/* Sends END or FAIL, and reads it; a code that is missing or unknown is MST_EPEER. */
mst_status mst_ps_send_error(mst_net *net, uint32_t peer, mst_ps_type type, const mst_error *error);
void mst_ps_read_error(const json_t *json, mst_error *out);
/* Sends the records of `observe` (or NULL) to the coordinator. */
struct mst_observe;
mst_status mst_ps_send_log(mst_net *net, uint32_t peer, struct mst_observe *observe);
/* The last request for the coordinator's time (observe/job_clock.h); zeroed at first. mst_ps_clock_take takes
 * an answer, and repeats the request if more answers are needed at once. */
typedef struct mst_ps_clock {
    uint32_t number;
    uint64_t asked_ns;
} mst_ps_clock;
mst_status mst_ps_clock_ask(mst_ps_clock *self, mst_net *net, uint32_t peer);
mst_status mst_ps_clock_answer(mst_net *net, uint32_t peer, const mst_message *m,
                               struct mst_observe *observe);
mst_status mst_ps_clock_take(mst_ps_clock *self, mst_net *net, uint32_t peer, const mst_message *m,
                             const void *body, struct mst_observe *observe);
/* Sends a message without a body. */
mst_status mst_ps_send(mst_net *net, uint32_t peer, const mst_message *m);

#endif
