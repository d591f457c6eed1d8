/* The feed: passes the rows of a dataset to training threads in an order that is a function of the seed
 * alone.
 *
 * Order of an epoch: the chunks are permuted (random access) or in file order (streams); consecutive
 * chunks of that order form a window of at least shuffle_rows rows; rows are permuted within their window.
 * Position p of the epoch is therefore a fixed row, and a slice [p, p+n) is the same rows for every worker. A
 * held-out fraction is chosen by row number and left out (or kept alone) before positions are counted, and so
 * are the rows with negative labels that keep_negatives leaves out.
 *
 * Chunks are loaded or parsed ahead by background threads, in order, at most a bounded number ahead.
 *
 * Workers of one job share an epoch in one of three ways.
 *   Slices: every worker claims global batches (max_take is the global batch) and fills only its own rows of
 *     each. A claim costs work per window it touches, none per row.
 *   Leases: a worker is given ranges of positions: mst_feed_start_range, and mst_feed_extend where the next
 *     range continues the last. With random access a start anywhere costs one window, and nothing when its
 *     window is at hand.
 *   Shards: each of n_shards workers has its own rows from the start, with positions of its own. Random
 *     access: chunk i of the epoch's order is shard i % n_shards's. Streams: a shard
 *     parses block i if i % n_shards is its index, and only reads the other blocks. */
#ifndef MST_DATA_FEED_H
#define MST_DATA_FEED_H

#include "data/augment.h"
#include "data/dataset.h"

typedef enum mst_feed_keep {
    MST_KEEP_ALL,
    MST_KEEP_TRAINING, /* leaves the held-out rows out */
    MST_KEEP_HELD_OUT, /* only the held-out rows */
} mst_feed_keep;

typedef struct mst_feed_options {
    uint64_t seed;
    uint64_t shuffle_rows; /* rows per window; 0: file order */
    double held_out;       /* fraction for `keep` */
    uint64_t valid_seed;   /* chooses the held-out rows */
    mst_feed_keep keep;
    /* Share of the rows with labels not above 0 that are kept, chosen by seed and row number; 0: all. Random
     * access: the labels are read once when the feed is made. */
    double keep_negatives;
    uint64_t first_rows;       /* stop an epoch after this many rows (of the shard's own); 0: all */
    unsigned prefetch_threads; /* that parse; at least 1, or 0 with lanes_prepare; not used where loading is
                                  cheap */
    /* Lanes are threads that have a core each: those without rows parse (a stream of plain text), and the
     * lanes make the windows, so that no other thread takes a core away from them. Not used for a live
     * dataset. */
    bool lanes_prepare;
    bool no_core_left; /* for a thread that checks chunks ahead of lanes that make windows: they check them */
    unsigned n_lanes;  /* threads that call mst_feed_take */
    uint32_t max_take; /* the most rows of one take */
    uint64_t features; /* keys >= features give MST_EINPUT; 0: no check */
    uint32_t fields;   /* of the model: rows without fields, or with others, give MST_EINPUT; 0: no check */
    bool drop_unseen;  /* such keys, and those of other fields, are dropped; affected rows are counted */
    /* Lanes accept any keys and labels. Otherwise those of a mapped file, which another process can overwrite
     * at any time, are copied and checked first. */
    bool any_keys;
    uint32_t classes; /* labels: 0: any; 2: -1/0/1 only; C: whole numbers below C only */
    const atomic_bool
        *stop; /* set by another thread: take returns MST_ESTOPPED instead of waiting; or NULL */
    uint32_t shard, n_shards; /* only this shard's rows; n_shards 0 or 1: all rows */
    /* Changes to rows as they are filled; must outlive the feed. NULL: none. The dataset's images must have
     * its input sides (MST_EINPUT). training: at random. */
    const mst_augment *augment;
    bool training;
} mst_feed_options;

typedef struct mst_feed mst_feed;

/* The dataset must outlive the feed and serve no other feed meanwhile if it is a stream. A sharded stream is
 * put back to its first row; it is MST_EUSAGE if it can be read only once, or with keep other than
 * MST_KEEP_ALL or keep_negatives: rows are left out by number, and blocks that are not parsed hide how many
 * they have. */
mst_status mst_feed_new(mst_dataset *dataset, const mst_feed_options *options, mst_feed **out);
void mst_feed_destroy(mst_feed *feed); /* NULL-safe; stops the background threads */

/* Starts an epoch (any number, in any order for random access) at a position, in rows. No lane may be in
 * take; rows that lanes hold stay valid until their next take. A stream is read from its first row again. */
mst_status mst_feed_start(mst_feed *feed, uint64_t epoch, uint64_t position);

/* Same, for the positions [from, to) only: take gives n_rows 0 at `to`, and nothing is loaded beyond the
 * window that holds to - 1. Continues with ready rows of the same epoch where possible: a window that holds
 * `from` is used again, and a stream is not rewound. */
mst_status mst_feed_start_range(mst_feed *feed, uint64_t epoch, uint64_t from, uint64_t to);

uint64_t mst_feed_epoch(const mst_feed *feed); /* that was started last */

/* Extends the last range to `to`, if that is further. Any thread, also while lanes take;
 * does not wait. MST_EUSAGE before the first start. */
mst_status mst_feed_extend(mst_feed *feed, uint64_t to);

/* Takes the next min(n, rows left in the epoch or range) rows; batch->n_rows is 0 at its end. The rows stay
 * valid until the lane's next take. *position is that of the first row. Thread: one per lane. Waits for the
 * background threads at most MST_FEED_PATIENCE_S: then MST_ETIMEOUT naming the dataset; for rows of a live
 * dataset, until they come. */
#define MST_FEED_PATIENCE_S 600
mst_status mst_feed_take(mst_feed *feed, unsigned lane, uint32_t n, mst_batch *batch, uint64_t *position);

/* The two halves of take, for threads that share a lane: one claims, then each fills the rows it needs
 * (disjoint ranges may be filled at the same time). Filling also checks chunks that have not been checked
 * yet; threads that fill at the same time share that work, and all of them get its failure. batch->rows is
 * the same array from claim to claim. Claim works per window, not per row: its cost does not grow with n. */
mst_status mst_feed_claim(mst_feed *feed, unsigned lane, uint32_t n, mst_batch *batch, uint64_t *position);
mst_status mst_feed_fill(mst_feed *feed, unsigned lane, uint32_t from, uint32_t to);

/* The records of the first of rows [from, to) of the last claim, as many as are in one piece, for threads
 * that make their rows themselves in place of filling them: where these are valid as they are, and of one
 * length. Else records->words is NULL, and the rows are to be filled. */
mst_status mst_feed_records(mst_feed *feed, unsigned lane, uint32_t from, uint32_t to, mst_records *records);

/* For callers that augment the rows themselves. mst_feed_augment: the changes; NULL: none.
 * mst_feed_fill_plain: fills rows without them. mst_feed_crops: the place of rows [from, to) of the last
 * claim, which need not be filled, in their images. */
const mst_augment *mst_feed_augment(const mst_feed *feed);
mst_status mst_feed_fill_plain(mst_feed *feed, unsigned lane, uint32_t from, uint32_t to);
void mst_feed_crops(const mst_feed *feed, unsigned lane, uint32_t from, uint32_t to, mst_crop *out);

/* The numbers in the dataset of rows [from, to) of the last claim, which need not be filled. Returns the
 * number of rows of the dataset; 0: rows have no number below 2^32 that would give the same row, before
 * augmentation, again. */
uint64_t mst_feed_numbers(const mst_feed *feed, unsigned lane, uint32_t from, uint32_t to, uint32_t *out);

/* The order of the started epoch without its rows. mst_feed_window_at: the positions [*first, *end) of the
 * window that holds a position; false: it is beyond the epoch, or numbers of rows do not follow from the
 * order of the chunks alone (streams, options that leave rows out). mst_feed_window_numbers: the numbers in
 * the dataset of all rows of that window, in order. Any thread, between two starts. */
bool mst_feed_window_at(const mst_feed *feed, uint64_t position, uint64_t *first, uint64_t *end);
void mst_feed_window_numbers(const mst_feed *feed, uint64_t first, uint32_t *out);

/* Whole chunks in place of claimed rows. mst_feed_chunks: the dataset, of which chunk c has the rows from
 * number c * chunk_rows on; NULL: rows have no numbers, are augmented or lose features, or other workers have
 * a share of them. mst_feed_chunk_order: the chunks of the started epoch, or of its rest from the window that
 * holds `position` on, in order; valid until the next start. mst_feed_chunks_until: how many of them hold the
 * positions below `to`. mst_feed_check: fails if the rows of a chunk do not fit the model; damaged ones may
 * pass. Any thread, between two starts. */
mst_dataset *mst_feed_chunks(const mst_feed *feed);
uint32_t mst_feed_chunk_order(const mst_feed *feed, uint64_t position, const uint32_t **chunks);
uint32_t mst_feed_chunks_until(const mst_feed *feed, uint64_t position, uint64_t to);
mst_status mst_feed_check(const mst_feed *feed, uint32_t c, mst_chunk *chunk);

/* Claim for a live dataset (dataset.h), where rows may come late: takes as many of n as are ready, in
 * whole units of `unit` rows; fewer when the epoch ends, or when no row has come for MST_FEED_PAUSE_S. Gives
 * no rows when there are none by deadline_ns. *more is false once the epoch has no rows left. Any other
 * dataset: mst_feed_claim, and *more is false when fewer than n were left. A failure to read rows comes after
 * all whole units of the rows before it. */
#define MST_FEED_PAUSE_S 1
mst_status mst_feed_claim_by(mst_feed *feed, unsigned lane, uint32_t n, uint32_t unit, uint64_t deadline_ns,
                             mst_batch *batch, uint64_t *position, bool *more);

/* Whether mst_feed_claim_by with this n as its unit would return at once: with rows, at the end, with a
 * failure, or a stop request. Always so for a dataset that is not live. */
bool mst_feed_ready(mst_feed *feed, uint32_t n);

/* The first rows of the dataset, whatever the epoch and the position: at most n of its first chunk, which is
 * the caller's to release (mst_chunk_release). For random access; a stream gives none, and no chunk. */
mst_status mst_feed_first_rows(const mst_feed *feed, uint32_t n, mst_row *rows, uint32_t *n_rows,
                               mst_chunk **chunk);

/* Rows of an epoch, of the own shard: known for random access (for the epoch started last: chunks differ),
 * and for a stream once an epoch has been read; 0 before. */
uint64_t mst_feed_epoch_rows(const mst_feed *feed);

/* Rows filled so far, in all epochs, that had keys at or beyond options.features. */
uint64_t mst_feed_unseen(const mst_feed *feed);

/* Traces the parsing of chunks in lanes of the spans from first_lane on (observe/trace_file.h), one for each
 * thread that parses. NULL: no more; the spans may go when it returns. */
struct mst_spans;
unsigned mst_feed_parsers(const mst_feed *feed); /* the number of these threads; 0 for NULL */
void mst_feed_trace(mst_feed *feed, struct mst_spans *spans, unsigned first_lane);

/* Total time lanes have waited in take, for the summary. */
double mst_feed_wait_seconds(const mst_feed *feed);

/* Leaves the features at or beyond `features` out of n rows, of a feed or others, whose keys ascend
 * (mst_chunk_drop_unseen: rows with fields); returns how many rows had some. */
uint64_t mst_feed_drop_unseen(mst_row *rows, uint32_t n, uint64_t features);

#endif
