/* The connected peers of a server; contract in peer_table.h. */
#include "ps/peer_table.h"

#include "base/alloc.h"

#define LEAST 16 /* places */

/* The place of a number: its own, or the free one where it belongs. The table has free places. */
static mst_server_peer *peer_table_place(mst_server_peer *items, size_t capacity, uint32_t number)
{
    size_t i = number & (capacity - 1);
    while (items[i].kind != MST_PEER_UNKNOWN && items[i].number != number)
        i = (i + 1) & (capacity - 1);
    return &items[i];
}

mst_server_peer *mst_peer_table_find(const mst_peer_table *self, uint32_t number)
{
    if (self->capacity == 0)
        return NULL;
    mst_server_peer *place = peer_table_place(self->items, self->capacity, number);
    return place->kind != MST_PEER_UNKNOWN ? place : NULL;
}

/* Moves the peers to a table of that many places. */
static mst_status peer_table_resize(mst_peer_table *self, size_t capacity)
{
    mst_server_peer *items = mst_calloc(capacity, sizeof *items);
    if (items == NULL)
        return mst_fail_memory();
    for (size_t i = 0; i < self->capacity; i++)
        if (self->items[i].kind != MST_PEER_UNKNOWN)
            *peer_table_place(items, capacity, self->items[i].number) = self->items[i];
    mst_free(self->items);
    self->items = items;
    self->capacity = capacity;
    return MST_OK;
}

mst_status mst_peer_table_add(mst_peer_table *self, uint32_t number, mst_peer_kind kind, uint32_t index)
{
    if (2 * (self->n + 1) > self->capacity)
        TRY(peer_table_resize(self, self->capacity == 0 ? LEAST : 2 * self->capacity));
    mst_server_peer *place = peer_table_place(self->items, self->capacity, number);
    self->n += place->kind == MST_PEER_UNKNOWN;
    *place = (mst_server_peer){.kind = kind, .number = number, .index = index};
    return MST_OK;
}

void mst_peer_table_remove(mst_peer_table *self, uint32_t number)
{
    mst_server_peer *gone = mst_peer_table_find(self, number);
    if (gone == NULL)
        return;
    gone->kind = MST_PEER_UNKNOWN;
    self->n--;
    /* the peers behind it may belong to a place before theirs */
    for (size_t i = (size_t)(gone - self->items + 1) & (self->capacity - 1);
         self->items[i].kind != MST_PEER_UNKNOWN; i = (i + 1) & (self->capacity - 1)) {
        mst_server_peer moved = self->items[i];
        self->items[i].kind = MST_PEER_UNKNOWN;
        *peer_table_place(self->items, self->capacity, moved.number) = moved;
    }
}

void mst_peer_table_fini(mst_peer_table *self)
{
    mst_free(self->items);
    *self = (mst_peer_table){0};
}
