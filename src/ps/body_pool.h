/* Buffers for the bodies of messages, reused, so that a step allocates nothing. Buffers that were not needed
 * for a while are freed.
 *
 * Thread: one, the owner of the net. */
#ifndef MST_PS_BODY_POOL_H
#define MST_PS_BODY_POOL_H

#include <stddef.h>

#include "net/net.h"

#define MST_BODY_COPY UINT32_MAX /* a piece of a copy for the partner (replica.h) */

typedef struct mst_body {
    struct mst_body *next;
    size_t capacity;
    uint32_t restores; /* the server + 1 whose restored floats it carries; 0: none; or MST_BODY_COPY */
    uint32_t lent_to;  /* the peer that it is being sent to; MST_PEER_NONE: none */
    _Alignas(64) uint8_t data[];
} mst_body;

typedef struct mst_body_pool {
    mst_net *net;
    mst_body *free;
    mst_body *lent;     /* being sent */
    size_t used;        /* bytes of the buffers that are taken, */
    size_t peak;        /* the most since the last trim, */
    size_t peak_before; /* and between the last two */
    uint64_t trimmed_ns;
} mst_body_pool;

mst_body *mst_body_take(mst_body_pool *self, size_t size);  /* NULL: no memory */
void mst_body_release(mst_body_pool *self, mst_body *body); /* NULL-safe */
/* Sends a body's first `size` bytes; mst_body_returned gives the body back. It is released here on failure,
 * or if size is 0. */
mst_status mst_body_lend(mst_body_pool *self, uint32_t peer, const mst_message *m, mst_body *body,
                         size_t size);
/* Releases a body that was sent to a peer; NULL: all that were lent to it, because it is gone. */
void mst_body_returned(mst_body_pool *self, uint32_t peer, const mst_body *only);
/* Now and then: frees the buffers beyond the most that were taken at a time recently. */
void mst_body_pool_trim(mst_body_pool *self, uint64_t now_ns);
void mst_body_pool_fini(mst_body_pool *self);

/* The body of received data; NULL for NULL. */
static inline mst_body *mst_body_of(void *data)
{
    return data == NULL ? NULL : (mst_body *)((uint8_t *)data - offsetof(mst_body, data));
}

#endif
