/* Incoming frames: the bytes of one connection in, whole messages out. No sockets: the caller reads into the
 * offered memory and reports the bytes that arrived, so that any byte sequence can be tried.
 *
 * Small messages come through a stage, several at a time; the body of a large one is read directly into the
 * receiver's buffer. Memory use is fixed: the stage only. Thread: one at a time. */
#ifndef MST_NET_FRAMES_H
#define MST_NET_FRAMES_H

#include <stdbool.h>
#include <sys/uio.h>

#include "net/wire.h"

#define MST_FRAMES_STAGE (64 * 1024)
#define MST_FRAMES_CHUNK                                                                                     \
    (128 * 1024) /* bytes of a body to seal or to check at a time, while they are in the cache */

typedef struct mst_frames_events {
    mst_status (*body)(void *arg, const mst_message *m, void **out);         /* as in mst_net_events */
    mst_status (*message)(void *arg, const mst_message *m, void *body);      /* as in mst_net_events */
    mst_status (*own)(void *arg, const mst_message *m, const uint8_t *body); /* net's own types */
} mst_frames_events;

typedef struct mst_frames {
    uint64_t max_body;
    mst_seal seal; /* of the frames that arrive */
    size_t staged; /* bytes at the start of stage that are not a whole header (or message of net's own) yet */
    bool open;     /* m's body, or its seal, is under way: got of m.size bytes are at body */
    bool more;     /* during the event of a message: another whole one is here already */
    mst_message m;
    uint8_t *body;
    uint64_t got;
    uint8_t stage[MST_FRAMES_STAGE];
} mst_frames;

/* Starts with nothing read; takes the seal over. Leaves the stage as it is. */
void mst_frames_init(mst_frames *f, uint64_t max_body, const mst_seal *seal);
void mst_frames_fini(mst_frames *f);

/* The buffers for the next bytes, in order: one or two parts of non-zero size. */
int mst_frames_room(mst_frames *f, struct iovec out[2]);

/* n more bytes are in the room. Calls the events; the first failure of an event is returned at once and ends
 * the connection, as do bytes that are no frame, or that were changed on the way (MST_EINPUT): f is not used
 * again. A header is checked before `body`, a body before `message`. */
mst_status mst_frames_take(mst_frames *f, size_t n, const mst_frames_events *events, void *arg);

#endif
