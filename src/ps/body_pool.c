/* Buffers for bodies of messages; contract in body_pool.h. */
#include "ps/body_pool.h"

#include "base/alloc.h"
#include "base/clock.h"

#define TRIM_NS (5 * MST_S)

static mst_body *body_use(mst_body_pool *self, mst_body *body)
{
    self->used += body->capacity;
    self->peak = self->used > self->peak ? self->used : self->peak;
    return body;
}

mst_body *mst_body_take(mst_body_pool *self, size_t size)
{
    for (mst_body **at = &self->free; *at != NULL; at = &(*at)->next)
        if ((*at)->capacity >= size && (*at)->capacity / 4 <= size + 65536) {
            mst_body *found = *at;
            *at = found->next;
            return body_use(self, found);
        }
    size_t capacity = (size + size / 4 + 4095) / 4096 * 4096;
    mst_body *fresh = mst_alloc_lines(sizeof *fresh + capacity);
    if (fresh == NULL)
        return NULL;
    *fresh = (mst_body){.capacity = capacity, .lent_to = MST_PEER_NONE};
    return body_use(self, fresh);
}

void mst_body_release(mst_body_pool *self, mst_body *body)
{
    if (body == NULL)
        return;
    self->used -= body->capacity;
    body->next = self->free;
    self->free = body;
}

mst_status mst_body_lend(mst_body_pool *self, uint32_t peer, const mst_message *m, mst_body *body,
                         size_t size)
{
    mst_piece piece = {body->data, size};
    mst_status st = mst_net_send(self->net, peer, m, &piece, size > 0, size > 0 ? body : NULL);
    if (st != MST_OK || size == 0) {
        mst_body_release(self, body);
        return st;
    }
    body->lent_to = peer;
    body->next = self->lent;
    self->lent = body;
    return MST_OK;
}

void mst_body_returned(mst_body_pool *self, uint32_t peer, const mst_body *only)
{
    for (mst_body **at = &self->lent; *at != NULL;) {
        mst_body *body = *at;
        if (body->lent_to != peer || (only != NULL && body != only)) {
            at = &body->next;
            continue;
        }
        *at = body->next;
        body->lent_to = MST_PEER_NONE;
        body->restores = 0;
        mst_body_release(self, body);
    }
}

static void body_free_list(mst_body *list)
{
    while (list != NULL) {
        mst_body *next = list->next;
        mst_free(list);
        list = next;
    }
}

void mst_body_pool_trim(mst_body_pool *self, uint64_t now_ns)
{
    if (now_ns - self->trimmed_ns < TRIM_NS)
        return;
    size_t most = self->peak > self->peak_before ? self->peak : self->peak_before, kept = self->used;
    for (mst_body **at = &self->free; *at != NULL;) {
        mst_body *body = *at;
        if (kept + body->capacity <= most) {
            kept += body->capacity;
            at = &body->next;
            continue;
        }
        *at = body->next;
        mst_free(body);
    }
    self->trimmed_ns = now_ns;
    self->peak_before = self->peak;
    self->peak = self->used;
}

void mst_body_pool_fini(mst_body_pool *self)
{
    body_free_list(self->lent);
    body_free_list(self->free);
}
