/* Ordered chunks from several threads (contract: chunk_ring.h).
 *
 * Invariants
 * 1. One thread claims at a time (claim_mutex, locked before mutex), so the order of numbers is the order of
 * the input.
 * 2. A number is claimed only when it is less than capacity ahead of the next one to be taken: memory is
 * bounded, and the place of a claimed number is empty.
 * 3. The first failure in order of numbers sets `end` to its number; chunks before it still come out. */
#include "data/chunk_ring.h"

#include <pthread.h>

#include "base/alloc.h"

struct mst_chunk_ring {
    mst_chunk_maker maker;
    pthread_t *threads;
    unsigned n_threads;
    mst_chunk_builder builder; /* of a ring without threads */

    pthread_mutex_t claim_mutex;       /* held during a claim */
    pthread_mutex_t mutex;             /* guards the rest */
    pthread_cond_t work, filled, idle; /* something to claim; a chunk or the end; no thread at work */
    bool stopped, leaving;
    unsigned busy;              /* threads at work */
    uint64_t next_in, next_out; /* the next number to claim, and to take */
    uint64_t end;               /* one past the last number */
    mst_error error;            /* why the chunk at `end` failed; code MST_OK: it did not */
    mst_chunk **chunks;         /* number % capacity; NULL: empty */
    uint32_t capacity;
};

/* Under the mutex: the numbers end before `number`, with a failure unless st is MST_OK. */
static void ring_end_at(mst_chunk_ring *r, uint64_t number, mst_status st)
{
    if (number >= r->end)
        return;
    r->end = number;
    mst_error_save(&r->error, st);
    pthread_cond_broadcast(&r->filled);
}

/* Under the mutex: a thread is no longer busy. */
static void ring_rest(mst_chunk_ring *r)
{
    if (--r->busy == 0)
        pthread_cond_broadcast(&r->idle);
}

static bool ring_can_claim(const mst_chunk_ring *r)
{
    return !r->stopped && r->next_in < r->end && r->next_in - r->next_out < r->capacity;
}

/* Claims the next number with its input, if there is room for it; waits while another thread claims. The
 * thread counts as busy on true. */
static bool ring_claim(mst_chunk_ring *r, uint64_t *number, mst_raw_block **block, bool *tried)
{
    mst_status st = MST_OK;
    bool more = true;
    *block = NULL;
    pthread_mutex_lock(&r->claim_mutex);
    pthread_mutex_lock(&r->mutex);
    *number = r->next_in;
    *tried = ring_can_claim(r);
    r->busy += *tried;
    pthread_mutex_unlock(&r->mutex);
    if (*tried && r->maker.claim != NULL)
        st = r->maker.claim(r->maker.arg, *number, block, &more);
    if (*tried) {
        pthread_mutex_lock(&r->mutex);
        if (st != MST_OK || !more) {
            ring_end_at(r, *number, st);
            ring_rest(r);
        } else {
            r->next_in++;
            pthread_cond_signal(&r->work);
        }
        pthread_mutex_unlock(&r->mutex);
    }
    pthread_mutex_unlock(&r->claim_mutex);
    return *tried && st == MST_OK && more;
}

/* Claims a number and makes its chunk, if there is room for it; returns whether there was. */
static bool ring_work(mst_chunk_ring *r, mst_chunk_builder *builder)
{
    uint64_t number;
    mst_raw_block *block;
    mst_chunk *chunk = NULL;
    bool tried;
    if (!ring_claim(r, &number, &block, &tried))
        return tried;
    mst_status st = r->maker.make(r->maker.arg, number, block, builder, &chunk);
    pthread_mutex_lock(&r->mutex);
    if (st != MST_OK) {
        ring_end_at(r, number, st);
    } else if (r->stopped) {
        mst_chunk_release(chunk);
    } else {
        r->chunks[number % r->capacity] = chunk;
        if (number == r->next_out) /* the one that take waits for */
            pthread_cond_signal(&r->filled);
    }
    ring_rest(r);
    pthread_mutex_unlock(&r->mutex);
    return true;
}

static void *ring_main(void *arg)
{
    mst_chunk_ring *r = arg;
    mst_chunk_builder builder;
    mst_chunk_builder_init(&builder);
    pthread_mutex_lock(&r->mutex);
    while (!r->leaving) {
        if (!ring_can_claim(r)) {
            pthread_cond_wait(&r->work, &r->mutex);
            continue;
        }
        pthread_mutex_unlock(&r->mutex);
        ring_work(r, &builder);
        if (r->maker.made != NULL)
            r->maker.made(r->maker.arg);
        pthread_mutex_lock(&r->mutex);
    }
    pthread_mutex_unlock(&r->mutex);
    mst_chunk_builder_fini(&builder);
    return NULL;
}

mst_status mst_chunk_ring_new(const mst_chunk_maker *maker, const char *name, unsigned n_threads,
                              uint32_t capacity, mst_chunk_ring **out)
{
    mst_status st = MST_OK;
    mst_chunk_ring *r = mst_zalloc(sizeof *r);
    if (r == NULL)
        return mst_fail_memory();
    r->maker = *maker;
    r->capacity = capacity;
    r->stopped = true;
    mst_chunk_builder_init(&r->builder);
    pthread_mutex_init(&r->claim_mutex, NULL);
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->work, NULL);
    pthread_cond_init(&r->filled, NULL);
    pthread_cond_init(&r->idle, NULL);
    r->chunks = mst_calloc(capacity, sizeof *r->chunks);
    r->threads = mst_calloc(n_threads + 1, sizeof *r->threads);
    if (r->chunks == NULL || r->threads == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    while (r->n_threads < n_threads && pthread_create(&r->threads[r->n_threads], NULL, ring_main, r) == 0)
        r->n_threads++;
    if (r->n_threads == 0 && n_threads > 0) {
        st = mst_fail(MST_EIO, "%s: cannot start a reading thread", name);
        goto out;
    }
    *out = r;
    r = NULL;
out:
    mst_chunk_ring_destroy(r);
    return st;
}

void mst_chunk_ring_start(mst_chunk_ring *self, uint64_t first, uint64_t end)
{
    pthread_mutex_lock(&self->mutex);
    self->next_in = self->next_out = first;
    self->end = end;
    self->error.code = MST_OK;
    self->stopped = false;
    pthread_cond_broadcast(&self->work);
    pthread_mutex_unlock(&self->mutex);
}

void mst_chunk_ring_extend(mst_chunk_ring *self, uint64_t end)
{
    pthread_mutex_lock(&self->mutex);
    if (self->error.code == MST_OK && end > self->end) {
        self->end = end;
        pthread_cond_broadcast(&self->work);
        pthread_cond_broadcast(&self->filled);
    }
    pthread_mutex_unlock(&self->mutex);
}

void mst_chunk_ring_finish(mst_chunk_ring *self)
{
    pthread_mutex_lock(&self->mutex);
    ring_end_at(self, self->next_out, MST_OK);
    pthread_mutex_unlock(&self->mutex);
}

void mst_chunk_ring_stop(mst_chunk_ring *self)
{
    pthread_mutex_lock(&self->mutex);
    self->stopped = true;
    pthread_cond_broadcast(&self->filled);
    while (self->busy != 0)
        pthread_cond_wait(&self->idle, &self->mutex);
    for (uint32_t i = 0; i < self->capacity; i++) {
        mst_chunk_release(self->chunks[i]);
        self->chunks[i] = NULL;
    }
    pthread_mutex_unlock(&self->mutex);
}

mst_status mst_chunk_ring_take(mst_chunk_ring *self, mst_chunk **out)
{
    mst_status st = MST_OK;
    *out = NULL;
    if (self->n_threads == 0 && !mst_chunk_ring_ready(self))
        ring_work(self, &self->builder);
    pthread_mutex_lock(&self->mutex);
    mst_chunk **place = &self->chunks[self->next_out % self->capacity];
    while (!self->stopped && *place == NULL && self->next_out < self->end)
        pthread_cond_wait(&self->filled, &self->mutex);
    if (!self->stopped && *place != NULL) {
        *out = *place;
        *place = NULL;
        self->next_out++;
        pthread_cond_signal(&self->work);
    } else if (!self->stopped && self->error.code != MST_OK) {
        st = mst_error_restore(&self->error);
    }
    pthread_mutex_unlock(&self->mutex);
    return st;
}

bool mst_chunk_ring_ready(mst_chunk_ring *self)
{
    pthread_mutex_lock(&self->mutex);
    bool ready =
        self->stopped || self->chunks[self->next_out % self->capacity] != NULL || self->next_out >= self->end;
    pthread_mutex_unlock(&self->mutex);
    return ready;
}

bool mst_chunk_ring_help(mst_chunk_ring *self, mst_chunk_builder *builder)
{
    return ring_work(self, builder);
}

void mst_chunk_ring_destroy(mst_chunk_ring *self)
{
    if (self == NULL)
        return;
    if (self->chunks != NULL)
        mst_chunk_ring_stop(self);
    pthread_mutex_lock(&self->mutex);
    self->leaving = true;
    pthread_cond_broadcast(&self->work);
    pthread_mutex_unlock(&self->mutex);
    for (unsigned i = 0; i < self->n_threads; i++)
        pthread_join(self->threads[i], NULL);
    mst_chunk_builder_fini(&self->builder);
    pthread_cond_destroy(&self->idle);
    pthread_cond_destroy(&self->filled);
    pthread_cond_destroy(&self->work);
    pthread_mutex_destroy(&self->mutex);
    pthread_mutex_destroy(&self->claim_mutex);
    mst_free(self->chunks);
    mst_free(self->threads);
    mst_free(self);
}

mst_status mst_chunks_each(const mst_chunk_maker *maker, const char *name, unsigned n_threads, uint64_t end,
                           mst_chunk_fn *fn, void *arg)
{
    mst_status st;
    mst_chunk_ring *ring = NULL;
    uint64_t first_row = 0;
    TRY(mst_chunk_ring_new(maker, name, n_threads > 1 ? n_threads : 0, 2 * n_threads + 2, &ring));
    mst_chunk_ring_start(ring, 0, end);
    for (mst_chunk *chunk;;) {
        TRY_OUT(st, mst_chunk_ring_take(ring, &chunk));
        if (chunk == NULL)
            break;
        if (chunk->n_rows > 0)
            st = fn(arg, first_row, chunk);
        first_row += chunk->n_rows;
        mst_chunk_release(chunk);
        if (st != MST_OK)
            break;
    }
out:
    mst_chunk_ring_destroy(ring);
    return st;
}
