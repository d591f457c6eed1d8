/* A server's store: its partitions of the weights and optimizer state, the key lists of its workers'
 * requests, and the application of gradients. It has no connections: server_steps.c and server_answers.c call
 * it.
 *
 * Address space is reserved for the whole flat vector, so that keys need no translation; only owned
 * partitions are ever touched. The last MST_LISTS lists of a worker are kept, so that a push carries values
 * only.
 *
 * Thread: one caller. Large applies and gathers use the apply threads inside the call. */
#ifndef MST_PS_STORE_H
#define MST_PS_STORE_H

#include "optim/optim.h"
#include "ps/placement.h"
#include "ps/proto.h"

#define MST_LISTS 16 /* per worker: pipeline + 2 at most */

typedef struct mst_store mst_store;

typedef struct mst_store_options {
    const mst_optimizer *optimizer;
    mst_params *params;         /* reserved by the caller; outlives the store */
    const mst_placement *table; /* outlives the store */
    uint32_t server, n_workers;
    unsigned n_threads; /* for large requests; at least 1 */
    uint32_t large;     /* floats from which they are used; 0: a default */
    bool clip;          /* apply --clip-norm here: where this server sees the whole mean gradient */
} mst_store_options;

mst_status mst_store_new(const mst_store_options *options, mst_store **out);
void mst_store_destroy(mst_store *self); /* NULL-safe */

/* A STEP that has been read and checked. Points into the message's body and the store's lists: a list is
 * replaced by that of the worker's pull whose request has the same number modulo MST_LISTS. */
typedef struct mst_store_request {
    uint32_t worker, request, flags;
    mst_float_format wire;
    mst_step_head head;
    const void *values;         /* pushed floats as on the wire; NULL: no push */
    const mst_key_list *pushed; /* their list, and its request */
    uint32_t pushed_request;
    const mst_key_list *pulled; /* NULL: no pull */
    bool nan;                   /* the worker declares that its gradient is not finite, with a loss of NaN */
} mst_store_request;

/* A push that arrives in parts before its STEP: from the end of its values to the beginning, which the STEP
 * carries. All zero: no part has arrived. */
typedef struct mst_store_parts {
    uint32_t request; /* of the list */
    mst_float_format wire;
    uint64_t floats; /* of the list */
    uint64_t from;   /* floats [from, floats) have arrived */
} mst_store_parts;

/* Checks a GRADIENT by its header, before its body is received: *next replaces `parts` once it has arrived.
 * Its floats start at number next->from of the push's values, which have room for next->floats. The error
 * describes the fault of the message. */
mst_status mst_store_part(const mst_store *self, uint32_t worker, const mst_message *m,
                          const mst_store_parts *parts, mst_store_parts *next);

/* Checks a STEP from a worker and keeps its pull list. A gradient that is not finite must be declared. The
 * body must stay until the request is applied. The error of a failure describes the fault of the message; the
 * caller then drops the worker. parts: of its push that arrived before (NULL: none); the floats of the body
 * are copied to theirs, in values, which must stay until the request is applied. */
mst_status mst_store_read(mst_store *self, uint32_t worker, const mst_message *m, const void *body,
                          const mst_store_parts *parts, void *values, mst_store_request *out);

/* Applies the mean gradient of n pushes (at most n_workers), each weighted with its rows, in the order given.
 * Pushes without rows have no effect. MST_EINPUT, with nothing applied, when a push's list was replaced.
 */
mst_status mst_store_apply(mst_store *self, const mst_store_request *const *requests, uint32_t n,
                           const mst_update *update);

/* The same for the weights at [from, to) of the flat vector; keys belong to the piece whose `to` is
 * UINT64_MAX. The pieces of an update are applied one after the other, from 0 on; together they equal
 * mst_store_apply, bit for bit. From MST_STORE_END on there are keys only, and before it ranges only. */
#define MST_STORE_END (UINT64_MAX - 1)
mst_status mst_store_apply_piece(mst_store *self, const mst_store_request *const *requests, uint32_t n,
                                 const mst_update *update, uint64_t from, uint64_t to);

/* Bytes of the values a request pulls, and the values themselves. */
size_t mst_store_reply_size(const mst_store *self, const mst_store_request *request);
void mst_store_reply(mst_store *self, const mst_store_request *request, void *out);

/* Parts of an answer consist of floats of the ranges, numbered as in the values. This is the position of one
 * in the flat vector; UINT64_MAX: there are fewer. */
uint64_t mst_store_reply_place(const mst_store_request *request, uint64_t number);
/* Floats [first, first + count) of the values inside the store: the number of pieces, or 0 if there are more
 * than `most` or they travel in a different format. */
uint32_t mst_store_reply_pieces(const mst_store *self, const mst_store_request *request, uint64_t first,
                                uint64_t count, mst_piece *pieces, uint32_t most);
/* Reads those floats; and those from `first` on, then the keys. */
void mst_store_reply_part(mst_store *self, const mst_store_request *request, uint64_t first, uint64_t count,
                          void *out);
void mst_store_reply_rest(mst_store *self, const mst_store_request *request, uint64_t first, void *out);

/* mst_store_apply of one request, then mst_store_reply, in one walk over the weights if that is faster. */
mst_status mst_store_step(mst_store *self, const mst_store_request *request, const mst_update *update,
                          void *out);

/* Forgets the lists of a worker that is gone. Requests of it that were read before stay valid. */
void mst_store_forget(mst_store *self, uint32_t worker);

/* Evaluation: keeps a list (a STEP body with ranges and keys only; flags MST_STEP_PULL or none), and reads
 * its values, as fp32. Without a list the size is 0. */
mst_status mst_store_eval_list(mst_store *self, const mst_message *m, const void *body);
size_t mst_store_eval_size(const mst_store *self);
void mst_store_eval_values(mst_store *self, void *out);

#endif
