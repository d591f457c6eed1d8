/* A chunk ring: threads make chunks ahead of time, several at once, and the chunks come out in order.
 *
 * Chunks are numbered. A thread claims the next number together with its input (a block of a stream), makes
 * that chunk, and puts it into a ring from which the owner takes chunks by number. A ring without threads
 * makes each chunk when it is taken. Other threads can help: a thread that waits for rows makes a chunk.
 *
 * Thread: one owner makes all calls, except that `stop`, `extend`, `help` and `ready` may come from any
 * thread. Waiting: `take` waits for threads of the ring, which compute or read files; `stop` ends that wait.
 */
#ifndef MST_DATA_CHUNK_RING_H
#define MST_DATA_CHUNK_RING_H

#include "data/dataset.h"

typedef struct mst_chunk_maker {
    /* Finds the input of chunk `number`; *more is false when there is no such chunk, which ends the numbers.
     * One call at a time, in order of numbers. NULL: there is nothing to find. */
    mst_status (*claim)(void *arg, uint64_t number, mst_raw_block **block, bool *more);
    /* Makes the chunk and consumes the block. Any thread. The builder is the thread's own. */
    mst_status (*make)(void *arg, uint64_t number, mst_raw_block *block, mst_chunk_builder *builder,
                       mst_chunk **out);
    /* Called by the threads of the ring when a chunk has been made, or the numbers have ended; without locks.
     * NULL: nothing to call. */
    void (*made)(void *arg);
    void *arg;
} mst_chunk_maker;

typedef struct mst_chunk_ring mst_chunk_ring;

/* n_threads make chunks, at most capacity beyond the one taken last. name is for messages and must outlive
 * the ring. A new ring is stopped. *out is the caller's to destroy; set only on MST_OK. */
mst_status mst_chunk_ring_new(const mst_chunk_maker *maker, const char *name, unsigned n_threads,
                              uint32_t capacity, mst_chunk_ring **out);
void mst_chunk_ring_destroy(mst_chunk_ring *self); /* NULL-safe */

/* Starts a stopped ring: chunks first .. end-1 come out. end UINT64_MAX: until `claim` finds no more. */
void mst_chunk_ring_start(mst_chunk_ring *self, uint64_t first, uint64_t end);
/* Moves the end further, unless a chunk has failed. */
void mst_chunk_ring_extend(mst_chunk_ring *self, uint64_t end);
/* Claims nothing any more; chunks that are made already can still be taken. */
void mst_chunk_ring_finish(mst_chunk_ring *self);
/* Drops all chunks. When it returns, no thread is at work; `take` finds no chunk until the next start. */
void mst_chunk_ring_stop(mst_chunk_ring *self);

/* The next chunk, the caller's to release; NULL at the end or when stopped. A failure to claim or make a
 * chunk is returned in its place, after all chunks before it. */
mst_status mst_chunk_ring_take(mst_chunk_ring *self, mst_chunk **out);

/* Whether `take` would return at once, without making a chunk. */
bool mst_chunk_ring_ready(mst_chunk_ring *self);

/* Makes one chunk on the calling thread, with a builder of its own, if one may be claimed now; returns
 * whether it tried. Waits for a claim under way, for nothing else. */
bool mst_chunk_ring_help(mst_chunk_ring *self, mst_chunk_builder *builder);

/* Calls fn for chunks 0 .. end-1, or until `claim` finds no more; stops at the first failure. fn is called on
 * the calling thread, and not for chunks without rows. With n_threads 0 or 1 the maker also runs on the
 * calling thread. */
mst_status mst_chunks_each(const mst_chunk_maker *maker, const char *name, unsigned n_threads, uint64_t end,
                           mst_chunk_fn *fn, void *arg);

#endif
