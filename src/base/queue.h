/* A bounded queue of pointers, which moves ownership of items from one thread to another.
 *
 * Any number of threads may push and pop. The thread that pops an item owns it; items still inside at destroy
 * are the caller's to pop first (mst_queue_destroy cannot free them). Every wait has a deadline. */
#ifndef MST_BASE_QUEUE_H
#define MST_BASE_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mst_queue mst_queue;

/* name, copied, appears in errors ("prefetch"). capacity is at least 1. *out is the caller's to destroy; set
 * only on MST_OK. */
mst_status mst_queue_new(const char *name, size_t capacity, mst_queue **out);

/* No thread may be inside a call on the queue. NULL-safe. */
void mst_queue_destroy(mst_queue *queue);

/* Appends item (not NULL), waiting at most deadline_ms from now for room; 0 never waits. MST_ETIMEOUT when
 * none came free, MST_ESTOPPED once the queue is closed; the item then stays the caller's. */
mst_status mst_queue_push(mst_queue *queue, void *item, uint64_t deadline_ms);

/* Takes the oldest item, waiting at most deadline_ms from now. After close, the remaining items come first,
 * then *item is NULL with MST_OK: the end. MST_ETIMEOUT when nothing came. *item is set only on MST_OK. */
mst_status mst_queue_pop(mst_queue *queue, void **item, uint64_t deadline_ms);

/* Closes the queue: no more items. Wakes all waiting threads. Any thread, any number of times. */
void mst_queue_close(mst_queue *queue);

/* Items inside at this moment. */
size_t mst_queue_length(mst_queue *queue);

#endif
