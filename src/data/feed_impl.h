/* Shared by feed.c, feed_check.c, feed_claim.c, feed_order.c and feed_produce.c; private to them. */
#ifndef MST_DATA_FEED_IMPL_H
#define MST_DATA_FEED_IMPL_H

#include <pthread.h>

#include "data/chunk_ring.h"
#include "data/feed.h"

#define MST_FEED_RING 8 /* parsed chunks waiting, beyond those that threads are parsing */
#define MST_FEED_DIVIDED                                                                                     \
    128                  /* the same of divided text, whose chunks are small: lanes go on parsing meanwhile */
#define MST_FEED_QUEUE 1 /* windows waiting */

#define MST_FEED_PARSERS 64 /* threads whose parsing is traced */

typedef struct mst_feed_place {
    uint32_t chunk, row;
} mst_feed_place;

typedef struct mst_feed_window {
    struct mst_feed_window *next; /* in the queue or the pool */
    uint64_t start;               /* position of its first row */
    uint32_t n_rows, n_chunks;
    unsigned references;         /* guarded by the mutex */
    atomic_bool checked;         /* all chunks are */
    const mst_feed_place *order; /* n_rows: places, or the feed's file_order */
    mst_feed_place *places;
    size_t place_capacity;
    mst_chunk **chunks;
    size_t chunk_capacity;
    uint64_t *first_rows; /* number of the first row of each chunk */
    size_t first_capacity;
    uint64_t epoch;
    bool mapped;   /* chunks are in mapped files: labels are checked and keys copied when rows are filled */
    size_t n_keys; /* the most words that the copies for all rows of such chunks take */
    bool unseen;   /* some rows have keys that are to be left out */
} mst_feed_window;

typedef struct mst_feed_piece {
    mst_feed_window *w;
    uint32_t from, n;
} mst_feed_piece;

typedef struct mst_feed_lane {
    _Alignas(64) mst_row *rows; /* max_take */
    mst_feed_piece *pieces;
    size_t n_pieces, piece_capacity;
    uint32_t *keys; /* copies of mapped rows' keys; touched only where needed; or NULL */
    size_t key_capacity;
    atomic_size_t n_keys;      /* words of copies for rows filled since the last claim */
    uint64_t look_ns, faults;  /* when to check the files again, and the fault count of the last check */
    mst_chunk_builder builder; /* for chunks made while the lane waits for rows */
    uint8_t *augmented; /* max_take rows of augmented_stride bytes, touched only where needed; or NULL */
} mst_feed_lane;

/* A window to be: chunks[first] up to chunks[that of the next range]. */
typedef struct mst_feed_range {
    uint64_t start; /* position of its first row */
    uint32_t first;
} mst_feed_range;

/* Random access: the chunks and windows of an epoch in order. Changed by start only, while no thread is at
 * work. */
typedef struct mst_feed_order {
    uint32_t *kept;          /* rows of each chunk that `keep` keeps; NULL: all */
    uint32_t *chunks;        /* the epoch's chunks in order; the shard's own */
    mst_feed_range *windows; /* n_windows, and one that marks the end of the last */
    uint32_t n_chunks, n_windows;
    uint64_t epoch;
    uint64_t n_rows; /* of the epoch; at most first_rows */
} mst_feed_order;

struct mst_feed {
    mst_dataset *dataset;
    mst_feed_options options; /* n_shards at least 1 */
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* anything below changed */
    pthread_t window_thread;
    bool window_started, leaving;

    /* Random access in file order, where a window is one chunk and a chunk only pointers: lanes make windows
     * when they need them. The window thread only checks chunks ahead of them, once, while a core is idle. */
    bool by_lanes;
    mst_feed_place *file_order;      /* of all rows of a chunk */
    atomic_uint_fast32_t next_check; /* chunk of the epoch that the window thread or a waiting lane checks */
    uint32_t check_from;             /* its first value */
    bool all_checked;

    /* Production of the current epoch. generation grows with every start that does not continue with ready
     * rows; a thread drops its work when it changes. */
    uint64_t generation, epoch;
    bool producing;       /* an epoch was started */
    bool busy;            /* the window thread, or a lane that makes a window, is at work for a generation */
    mst_feed_order order; /* random access */

    mst_chunk_ring *ring; /* chunks in the order of the epoch, or of the stream */
    uint64_t blocks_read; /* of the stream; changed by the ring's claim and while the ring is stopped */

    /* Of the next window to be produced: its first position, its number in the order, ... */
    uint64_t next_position;
    uint32_t next_window;
    uint64_t next_chunk, next_row; /* ... its next chunk and row of the stream: for the thread that is busy */
    mst_feed_window *making;       /* lanes_prepare: the chunks so far, while no thread is busy; or NULL */

    mst_feed_window *queue, *current, *pool;
    unsigned queued;
    uint64_t queued_rows;
    uint64_t arrived_ns;   /* when the last window was queued */
    uint64_t position, to; /* of the next row to hand out; where handing out ends */
    bool ended;            /* stream: the last window of the epoch is queued or taken */
    mst_error error;       /* code MST_OK: none */
    uint64_t epoch_rows;
    uint64_t wait_ns;

    atomic_uint_fast64_t unseen; /* rows that lost keys */

    struct mst_spans *spans; /* guarded by the mutex: parsing is traced in lanes from first_lane on */
    unsigned first_lane, n_parsers;
    const mst_chunk_builder *parsers[MST_FEED_PARSERS]; /* of the threads, in the order of their lanes */
    atomic_bool traced;                                 /* spans are set */

    mst_feed_lane *lanes;
    size_t augmented_stride; /* 0: rows are not changed */
};

/* Under the mutex: wakes all waiting threads. */
void mst_feed_wake(mst_feed *f);
/* Under the mutex: waits for a change, at most a second; callers look at their condition again, and at
 * deadlines. */
void mst_feed_wait_change(mst_feed *f);
void mst_feed_wait_change_until(mst_feed *f, uint64_t until_ns); /* and until the time */

/* Under the mutex: takes the first window off the queue. */
void mst_feed_pop_window(mst_feed *f);
/* Under the mutex: drops the lane's references to windows. */
void mst_feed_drop_pieces(mst_feed *f, mst_feed_lane *l);

/* Under the mutex: drops a reference; the last one returns the window to the pool. */
void mst_feed_unref(mst_feed *f, mst_feed_window *w);

/* Checks the chunks that no thread has checked yet, and waits for those that other threads are checking. */
mst_status mst_feed_check_window(mst_feed *f, mst_feed_window *w);
/* By lanes: checks the next chunk of the epoch that no thread has begun to check; false if there is none. A
 * failure is left to the lane that gets the rows. */
bool mst_feed_check_next(mst_feed *f);
/* Fails when a file of the rows has changed during the training. It looks at intervals, or where it is due.
 */
mst_status mst_feed_check_files(mst_feed *f, mst_feed_lane *l, bool due);

/* Whether some rows of the chunk have features that the model does not have. */
bool mst_feed_has_unseen(const mst_feed_options *o, const mst_chunk *c);
/* Whether rows have fields that the model does not have. */
bool mst_feed_has_other_fields(const mst_feed_options *o, const mst_chunk *c);
/* Refuses a chunk with rows that do not fit the model; first_row is the number of its first row. */
mst_status mst_feed_check_chunk(const mst_feed *f, mst_chunk *c, uint64_t first_row);

/* Under the mutex: whether another window is needed for the current range. */
bool mst_feed_window_wanted(const mst_feed *f);

/* Makes the order of epoch 0: MST_ENOMEM. f->options and f->dataset are set. */
mst_status mst_feed_order_init(mst_feed *f);
void mst_feed_order_fini(mst_feed_order *p);
void mst_feed_order_epoch(mst_feed *f, uint64_t epoch);
/* The window that holds the position; n_windows when it is beyond the last. */
uint32_t mst_feed_order_find(const mst_feed_order *p, uint64_t position);
/* Number of chunks that hold the positions below `to`. */
uint64_t mst_feed_order_chunks(const mst_feed_order *p, uint64_t to);
/* Shuffles the n rows of the window that starts at the position. */
void mst_feed_shuffle(mst_feed_place *order, uint32_t n, uint64_t seed, uint64_t epoch, uint64_t start);
/* Whether rows have numbers below 2^32 that give the same row again. */
static inline bool mst_feed_has_numbers(const mst_feed *f)
{
    return f->dataset->random && f->dataset->info.n_rows <= UINT32_MAX;
}
/* Whether the options leave no row out. */
bool mst_feed_keeps_all(const mst_feed_options *o);
/* Whether the options keep row i of the chunk, which has this number in the dataset. */
bool mst_feed_keeps(const mst_feed_options *o, uint64_t row, const mst_chunk *chunk, uint32_t i);

/* Makes the ring; f->options and f->dataset are set. */
mst_status mst_feed_ring_init(mst_feed *f);

/* By lanes, under the mutex: queues the next window, unless it has no rows, or saves the failure. */
void mst_feed_make_window(mst_feed *f);

/* lanes_prepare, under the mutex, which is released meanwhile: adds the chunks that are ready to the next
 * window, and queues it when it has all of them. False: nothing is to be added now. */
bool mst_feed_prepare(mst_feed *f);

/* The window thread; arg is the feed. */
void *mst_feed_window_main(void *arg);

#endif
