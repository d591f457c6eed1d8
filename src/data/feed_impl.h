/* What feed.c and feed_produce.c share; nobody else includes this. */
#ifndef MST_DATA_FEED_IMPL_H
#define MST_DATA_FEED_IMPL_H

#include <pthread.h>

#include "data/feed.h"

#define MST_FEED_RING  8 /* parsed chunks waiting */
#define MST_FEED_QUEUE 1 /* windows waiting */

typedef struct mst_feed_place {
    uint32_t chunk, row;
} mst_feed_place;

typedef struct mst_feed_window {
    struct mst_feed_window *next; /* in the queue or the pool */
    uint64_t start;               /* position of its first row */
    uint32_t n_rows, n_chunks;
    unsigned references;   /* guarded by the mutex */
    atomic_bool checked;   /* all chunks are */
    mst_feed_place *order; /* n_rows */
    size_t order_capacity;
    mst_chunk **chunks;
    size_t chunk_capacity;
} mst_feed_window;

typedef struct mst_feed_piece {
    mst_feed_window *w;
    uint32_t from, n;
} mst_feed_piece;

typedef struct mst_feed_lane {
    _Alignas(64) mst_row *rows; /* max_take */
    mst_feed_piece *pieces;
    size_t n_pieces, piece_capacity;
} mst_feed_lane;

struct mst_feed {
    mst_dataset *dataset;
    mst_feed_options options;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* anything below changed */
    pthread_t window_thread, *parse_threads;
    unsigned n_parse_threads;
    bool window_started, leaving;

    /* Production of the current epoch. generation grows with every start; a thread that sees it change drops
     * what it is doing. */
    uint64_t generation, epoch, skip;
    bool producing;        /* an epoch was started and not yet produced to its end */
    unsigned busy;         /* threads at work for a generation */
    uint32_t *chunk_order; /* random access: n_chunks */

    mst_chunk *ring[MST_FEED_RING];
    bool ring_full[MST_FEED_RING];
    uint64_t ring_next_in,
        ring_next_out;          /* sequence numbers: claimed by parsers, taken by the window thread */
    uint64_t ring_end;          /* sequence number one past the last chunk; UINT64_MAX: not known yet */
    mst_error ring_error;       /* why the chunk at ring_end failed; code MST_OK: it did not */
    pthread_mutex_t read_mutex; /* one reader of the stream at a time */

    mst_feed_window *queue, *current, *pool;
    unsigned queued;
    uint32_t claimed; /* rows of current handed out */
    bool ended;       /* the last window of the epoch is queued or taken */
    mst_error error;  /* code MST_OK: none */
    uint64_t epoch_rows;
    uint64_t wait_ns;

    mst_feed_lane *lanes;
};

/* Under the mutex: tells everybody that something changed. */
void mst_feed_wake(mst_feed *f);
/* Under the mutex: waits for a change, at most a second; callers look at their condition again, and at
 * deadlines. */
void mst_feed_wait_change(mst_feed *f);

/* Under the mutex: drops a reference; the last one returns the window to the pool. */
void mst_feed_unref(mst_feed *f, mst_feed_window *w);
void mst_feed_window_free(mst_feed_window *w); /* NULL-safe */

/* Checks the chunks that nobody has checked yet; when wait, also waits for those that others are at. */
mst_status mst_feed_check_window(mst_feed_window *w, bool wait);

/* Whether the row is held out under o->held_out. */
bool mst_feed_held_out(const mst_feed_options *o, uint64_t row);

/* The background threads; arg is the feed. */
void *mst_feed_parse_main(void *arg);
void *mst_feed_window_main(void *arg);

#endif
