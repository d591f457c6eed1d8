/* Server-sent events: their framing, and the queue of one listener.
 *
 * A listener first receives every run as a whole, one after another as it reads them, and then the changes.
 * The queue of a slow listener is bounded: when it is full it is dropped, and the listener starts over. One
 * thread. */
#ifndef MST_DASH_SSE_H
#define MST_DASH_SSE_H

#include "base/strings.h"

/* Appends an event whose data is the text: each of its lines (ended by \n, \r or \r\n) becomes a data line.
 * event: a plain word. data NULL: nothing is added. */
void mst_sse_add(mst_string *out, const char *event, const char *data);

#define MST_LISTENER_PENDING ((size_t)4 << 20)

typedef struct mst_board mst_board;

typedef struct mst_listener {
    mst_string pending;
    size_t at;          /* bytes of it that were taken */
    unsigned given;     /* runs up to this id were sent as a whole */
    bool begun, behind; /* behind: the queue was full; start over when it is empty */
} mst_listener;

void mst_listener_fini(mst_listener *self);

/* After an update of the board: queues the changes, and events about no run (board, drop). */
void mst_listener_offer(mst_listener *self, const mst_board *board, const char *common);

/* Up to size bytes to send; 0: none at present. SIZE_MAX: no memory, end the connection. */
size_t mst_listener_take(mst_listener *self, const mst_board *board, const char *common, char *to,
                         size_t size);

#endif
