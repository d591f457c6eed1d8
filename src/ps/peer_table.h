/* The connected peers of a server, by their number in the net. Numbers are never used again, so that an array
 * would grow with every connection: this is a hash table of the peers that are connected. */
#ifndef MST_PS_PEER_TABLE_H
#define MST_PS_PEER_TABLE_H

#include "ps/body_pool.h"
#include "ps/store.h"

/* A push that arrives in parts. */
typedef struct mst_staged {
    mst_store_parts parts;
    mst_body *body; /* its values; NULL: no part has arrived */
} mst_staged;

typedef enum mst_peer_kind { MST_PEER_UNKNOWN, MST_PEER_SERVER, MST_PEER_WORKER } mst_peer_kind;

typedef struct mst_server_peer {
    mst_peer_kind kind; /* UNKNOWN: a free place of the table */
    uint32_t number;
    uint32_t index;
    bool faulty;          /* it has sent an invalid message */
    uint64_t in, out;     /* bytes of the connection that the observer has */
    mst_body *incoming;   /* of a message that is being received */
    mst_staged staged;    /* of a worker; the STEP that is its last part takes it */
    mst_store_parts next; /* staged.parts after the part that is being received */
} mst_server_peer;

typedef struct mst_peer_table {
    mst_server_peer *items; /* linear probing */
    size_t capacity;        /* a power of two, or 0 */
    size_t n;
    uint64_t logged_ns; /* when a dropped worker was last logged; 0: never */
} mst_peer_table;

/* NULL: not connected. Valid until a peer is added or removed. */
mst_server_peer *mst_peer_table_find(const mst_peer_table *self, uint32_t number);
mst_status mst_peer_table_add(mst_peer_table *self, uint32_t number, mst_peer_kind kind, uint32_t index);
/* Removes a peer, whose bodies are released, if it is there. */
void mst_peer_table_remove(mst_peer_table *self, uint32_t number);
void mst_peer_table_fini(mst_peer_table *self);

#endif
