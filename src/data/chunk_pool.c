/* Memory of chunks; contract in chunk_pool.h. Free chunks are linked by `owner`, newest first: their memory
 * is the most likely to be in a cache. There are never more than were in use at once. */
#include "data/chunk_pool.h"

#include <pthread.h>

#include "base/alloc.h"

#define ROOM_SHARE 8 /* a new chunk gets 1/8 more than asked for: the next ones are about as large */

struct mst_chunk_pool {
    pthread_mutex_t mutex; /* guards free */
    mst_chunk *free;
    atomic_uint references; /* the owner's, and one for each chunk in use */
};

mst_chunk_pool *mst_chunk_pool_new(void)
{
    mst_chunk_pool *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return NULL;
    pthread_mutex_init(&self->mutex, NULL);
    atomic_init(&self->references, 1);
    return self;
}

static void pool_free_unused(mst_chunk_pool *self)
{
    while (self->free != NULL) {
        mst_chunk *next = self->free->owner;
        mst_free(self->free);
        self->free = next;
    }
}

void mst_chunk_pool_release(mst_chunk_pool *self)
{
    if (self == NULL || atomic_fetch_sub_explicit(&self->references, 1, memory_order_acq_rel) != 1)
        return;
    pool_free_unused(self);
    pthread_mutex_destroy(&self->mutex);
    mst_free(self);
}

mst_chunk *mst_chunk_pool_take(mst_chunk_pool *self, size_t bytes)
{
    mst_chunk *chunk = NULL;
    if (self != NULL) {
        pthread_mutex_lock(&self->mutex);
        chunk = self->free;
        if (chunk != NULL)
            self->free = chunk->owner;
        pthread_mutex_unlock(&self->mutex);
        bytes += chunk == NULL || chunk->capacity < bytes ? bytes / ROOM_SHARE : 0;
    }
    if (chunk != NULL && chunk->capacity < bytes) {
        mst_free(chunk);
        chunk = NULL;
    }
    if (chunk == NULL) {
        chunk = mst_alloc_lines(bytes);
        if (chunk == NULL)
            return NULL;
        chunk->capacity = bytes;
    }
    chunk->pool = self;
    if (self != NULL)
        atomic_fetch_add_explicit(&self->references, 1, memory_order_relaxed);
    return chunk;
}

void mst_chunk_pool_give(mst_chunk *chunk)
{
    mst_chunk_pool *self = chunk->pool;
    if (self == NULL) {
        mst_free(chunk);
        return;
    }
    pthread_mutex_lock(&self->mutex);
    chunk->owner = self->free;
    self->free = chunk;
    pthread_mutex_unlock(&self->mutex);
    mst_chunk_pool_release(self);
}
