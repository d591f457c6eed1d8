/* Server-sent events: their framing, and what one listener is still to be sent.
 *
 * A listener is first given every run whole, one after the other as it takes them, and from then on what
 * changes. One that does not keep up is not written to without end: what waits for it is dropped once it is
 * too much, and it begins anew. One thread. */
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
    unsigned given;     /* runs up to this id were given whole */
    bool begun, behind; /* behind: too much waited; begin anew when what waits is gone */
} mst_listener;

void mst_listener_fini(mst_listener *self);

/* After an update of the board: adds what changed, and events that concern no run (board, drop). */
void mst_listener_offer(mst_listener *self, const mst_board *board, const char *common);

/* Up to size bytes of what is to be sent; 0: nothing now. SIZE_MAX: no memory, end the connection. */
size_t mst_listener_take(mst_listener *self, const mst_board *board, const char *common, char *to,
                         size_t size);

#endif
