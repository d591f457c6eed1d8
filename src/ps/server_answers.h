/* A server's answers to pulls: whole, or in parts of which each leaves as soon as its weights are updated. */
#ifndef MST_PS_SERVER_ANSWERS_H
#define MST_PS_SERVER_ANSWERS_H

#include "ps/server_peers.h"

#define MST_ANSWER_SMALL 65536 /* bytes up to which an answer leaves at once, or is copied by the net */

/* Whether so many bytes more may wait for the worker: those of the requests that it may have in flight.
 * Otherwise it requests and does not read, and is dropped. */
bool mst_answer_has_room(mst_server *s, uint32_t worker, size_t size);
/* Whether the answer travels in parts. */
bool mst_answer_in_parts(const mst_store_request *r);
/* The whole answer. flags: MST_VALUES_*. */
mst_status mst_answer(mst_server *s, uint32_t worker, const mst_store_request *r, uint32_t flags);
/* Sends the parts that lie below `at` of the flat vector, except for the last part of the answer. */
mst_status mst_answer_parts(mst_server *s, uint32_t worker, const mst_store_request *r, uint64_t at);
/* The rest of an answer whose first parts have left. */
mst_status mst_answer_rest(mst_server *s, uint32_t worker, const mst_store_request *r, uint32_t flags);
/* An answer of `size` bytes that was gathered into a body, which is released unless it is s->reply. */
mst_status mst_answer_body(mst_server *s, uint32_t worker, const mst_store_request *r, uint32_t flags,
                           mst_body *body, size_t size);

#endif
