/* A worker's side of steps: splits requests into one message per server, and assembles the replies.
 *
 * A client has some requests, which are used again and again. A request holds a key list, the weights pulled
 * for it, and the reply. The floats of a request have the order of key_list.h, with the keys' floats starting
 * at key_start * width: key_start is the ranges' floats rounded up to whole keys, so that a row whose keys
 * are numbered key_start, key_start + 1, ... reads its weights at weights + key * width.
 *
 * Thread: the owner of the net makes every call. */
#ifndef MST_PS_CLIENT_H
#define MST_PS_CLIENT_H

#include "ps/placement.h"
#include "ps/proto.h"

typedef struct mst_client mst_client;

typedef struct mst_client_options {
    mst_net *net;
    const mst_placement *table; /* outlives the client */
    const uint32_t *peers;      /* of the servers; MST_PEER_NONE: it takes no part; copied */
    mst_float_format wire;
    uint32_t n_requests;  /* at most MST_LISTS (store.h) */
    uint32_t part_floats; /* a server's share with more floats travels in parts of so many, at least
                             MST_PART_MIN; 0: always in one message */
} mst_client_options;

mst_status mst_client_new(const mst_client_options *options, mst_client **out);
void mst_client_destroy(mst_client *self); /* NULL-safe */

/* The request's list, which the caller fills before it is pulled and then leaves alone until its push is sent
 * or the request is pulled again. */
mst_key_list *mst_client_list(mst_client *self, uint32_t request);

/* A gradient to push. */
typedef struct mst_push {
    uint32_t request; /* of its list */
    const float *g;   /* laid out like the request's weights; may change once the reply has arrived */
    uint64_t step;    /* sync: the step it is for; else the worker's own count */
    uint32_t rows;    /* may be 0 */
    uint32_t correct; /* of them */
    double loss, weight;
    uint32_t flags; /* MST_STEP_EXHAUSTED */
} mst_push;

/* Sends to every server: the push (NULL: none) and the pull of a request's list (MST_NO_REQUEST: none), which
 * is not the push's request. Without a pull the push's request waits for the reply. A list has one push,
 * before MST_LISTS more pulls. The net's `sent` may be called with the client as token, which needs no
 * action. */
mst_status mst_client_send(mst_client *self, const mst_push *push, uint32_t pull);
/* sync: later pulls without a push are answered once so many steps are applied. */
void mst_client_await_version(mst_client *self, uint64_t version);

/* The request's gradient is final from float `from` on: its parts there leave before the push itself, which
 * must be the next one and have the same g. Final floats must not change. */
mst_status mst_client_push_early(mst_client *self, uint32_t request, const float *g, uint64_t from);

/* The reply to a request. */
typedef struct mst_reply {
    uint64_t version; /* steps applied on the coordinator */
    bool dropped;     /* by the coordinator */
    bool has_work;
    mst_work work;
} mst_reply;

bool mst_client_ready(const mst_client *self, uint32_t request);
/* Some of the answer has arrived: the reply's version is known. */
bool mst_client_begun(const mst_client *self, uint32_t request);
/* Bytes that are pushed or requested and not answered yet, over all requests and servers: bodies of requests,
 * and the missing bytes of answers. Any thread. */
uint64_t mst_client_in_flight(const mst_client *self);
/* Floats [first, first + count) of the request's weights have arrived. */
bool mst_client_has(const mst_client *self, uint32_t request, uint64_t first, uint64_t count);
/* Polls the net until all replies to the request have arrived; MST_ETIMEOUT names the servers that have not
 * answered, MST_EPEER is the loss of a server. */
mst_status mst_client_wait(mst_client *self, uint32_t request, uint64_t deadline_ns);
const mst_reply *mst_client_reply(const mst_client *self, uint32_t request);
/* Of a request that is ready; 64-byte aligned; valid until the request is pulled again. */
float *mst_client_weights(mst_client *self, uint32_t request);
/* Floats of a gradient or weights of the request, the gap before the keys included. */
uint64_t mst_client_floats(const mst_client *self, uint32_t request);
uint32_t mst_client_key_start(const mst_client *self, uint32_t request);

/* For the events of the net: messages of type VALUES and WEIGHTS from a server. */
mst_status mst_client_body(mst_client *self, uint32_t peer, const mst_message *m, void **out);
mst_status mst_client_message(mst_client *self, uint32_t peer, const mst_message *m, void *body);
/* A server is lost: all waits fail with its message. Other peers are ignored. */
void mst_client_down(mst_client *self, uint32_t peer, const mst_error *why);

#endif
