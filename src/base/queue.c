/* Bounded queue between threads; contract in queue.h.
 *
 * A ring under one mutex, with one condition for "there is room" and one for "there is an item". Deadlines
 * are on the monotonic clock, so setting the wall clock does not change them.
 *
 * Invariants, under the mutex
 * 1. n <= capacity; the items are ring[(first + i) % capacity], i in [0, n).
 * 2. closed never goes back to false, and after it n only falls. */
#include "base/queue.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/alloc.h"
#include "base/cond.h"

struct mst_queue {
    char *name;
    void **ring;
    size_t capacity;
    pthread_mutex_t mutex; /* guards the fields below */
    pthread_cond_t room, items;
    size_t first, n;
    bool closed;
};

mst_status mst_queue_new(const char *name, size_t capacity, mst_queue **out)
{
    if (capacity == 0)
        return mst_fail(MST_EUSAGE, "queue %s: capacity must be at least 1", name);
    mst_queue *queue = mst_zalloc(sizeof *queue);
    char *copy = mst_strdup(name);
    void **ring = mst_calloc(capacity, sizeof *ring);
    if (queue == NULL || copy == NULL || ring == NULL) {
        mst_free(ring);
        mst_free(copy);
        mst_free(queue);
        return mst_fail_memory();
    }
    pthread_mutex_init(&queue->mutex, NULL);
    mst_cond_init(&queue->room);
    mst_cond_init(&queue->items);
    queue->name = copy;
    queue->ring = ring;
    queue->capacity = capacity;
    *out = queue;
    return MST_OK;
}

void mst_queue_destroy(mst_queue *queue)
{
    if (queue == NULL)
        return;
    pthread_cond_destroy(&queue->items);
    pthread_cond_destroy(&queue->room);
    pthread_mutex_destroy(&queue->mutex);
    mst_free(queue->ring);
    mst_free(queue->name);
    mst_free(queue);
}

static uint64_t queue_deadline_after(uint64_t ms)
{
    const uint64_t most = 1000ull * 86400 * 36500; /* a century: keeps the sum in range */
    return mst_now_ns() + (ms < most ? ms : most) * MST_MS;
}

mst_status mst_queue_push(mst_queue *queue, void *item, uint64_t deadline_ms)
{
    mst_status st = MST_OK;
    uint64_t deadline = queue_deadline_after(deadline_ms);
    pthread_mutex_lock(&queue->mutex);
    while (!queue->closed && queue->n == queue->capacity && mst_now_ns() < deadline)
        mst_cond_wait(&queue->room, &queue->mutex, deadline);
    if (queue->closed) {
        st = mst_fail(MST_ESTOPPED, "queue %s is closed", queue->name);
    } else if (queue->n == queue->capacity) {
        st = mst_fail(MST_ETIMEOUT, "queue %s stayed full (%zu items) for %llu ms", queue->name,
                      queue->capacity, (unsigned long long)deadline_ms);
    } else {
        queue->ring[(queue->first + queue->n++) % queue->capacity] = item;
        pthread_cond_signal(&queue->items);
    }
    pthread_mutex_unlock(&queue->mutex);
    return st;
}

mst_status mst_queue_pop(mst_queue *queue, void **item, uint64_t deadline_ms)
{
    mst_status st = MST_OK;
    uint64_t deadline = queue_deadline_after(deadline_ms);
    pthread_mutex_lock(&queue->mutex);
    while (!queue->closed && queue->n == 0 && mst_now_ns() < deadline)
        mst_cond_wait(&queue->items, &queue->mutex, deadline);
    if (queue->n > 0) {
        *item = queue->ring[queue->first];
        queue->first = (queue->first + 1) % queue->capacity;
        queue->n--;
        pthread_cond_signal(&queue->room);
    } else if (queue->closed) {
        *item = NULL;
    } else {
        st = mst_fail(MST_ETIMEOUT, "queue %s stayed empty for %llu ms", queue->name,
                      (unsigned long long)deadline_ms);
    }
    pthread_mutex_unlock(&queue->mutex);
    return st;
}

void mst_queue_close(mst_queue *queue)
{
    pthread_mutex_lock(&queue->mutex);
    queue->closed = true;
    pthread_cond_broadcast(&queue->room);
    pthread_cond_broadcast(&queue->items);
    pthread_mutex_unlock(&queue->mutex);
}

size_t mst_queue_length(mst_queue *queue)
{
    pthread_mutex_lock(&queue->mutex);
    size_t n = queue->n;
    pthread_mutex_unlock(&queue->mutex);
    return n;
}
