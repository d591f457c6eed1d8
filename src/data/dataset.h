/* A dataset: rows in chunks, from one or many files of one format.
 *
 * Either it can be read at random (cache files, IDX, text with an index): n_rows and the chunk of every row
 * are known and chunk c may be loaded at any time from any thread. Or it is a stream (text, compressed files,
 * standard input): chunks come in file order, and the caller parses them.
 *
 * Reading a stream from several threads: ops->read returns raw blocks in order, one call at a time;
 * ops->parse turns a block into a chunk on any thread. chunk_ring.h does both. */
#ifndef MST_DATA_DATASET_H
#define MST_DATA_DATASET_H

#include "data/format.h"

/* Facts about a dataset: those known before its rows are read (zero: unknown), and the results of a scan. */
typedef struct mst_data_info {
    uint64_t n_rows;
    uint64_t n_features;     /* largest feature number + 1 */
    uint32_t n_dense;        /* features 0..n_dense-1 are present in every row (largest over chunks) */
    uint64_t first_features; /* text: largest feature number + 1 in the block read to open it */
    float first_min_label, first_max_label; /* text: the labels of that block; 0: none */
    uint64_t n_entries;
    float min_label, max_label;
    uint64_t n_positive; /* rows with label > 0 */
    bool labels_integral;
    uint32_t index_base; /* libsvm: found or given */
    uint64_t bytes;      /* of the files */
    /* Fields of the rows, the dense prefix included; 0: rows have none, or their number is found by a scan.
     */
    uint32_t n_fields;
    uint32_t n_numbers; /* formats with categories: keys below are numbers */
    bool scanned;       /* the label and feature figures are facts about every row */
    /* Rows are images: the dense prefix is channels x height x width, plane after plane. 0: not known. */
    uint32_t channels, height, width;
} mst_data_info;

typedef struct mst_dataset mst_dataset;
typedef struct mst_raw_block mst_raw_block;

typedef struct mst_dataset_ops {
    /* Random access: chunk c with one reference for the caller. NULL for streams. Any thread. */
    mst_status (*load)(mst_dataset *self, uint32_t c, mst_chunk **out);
    /* Like load, but the rows must not be read before mst_chunk_check succeeds, so that several threads can
     * share that work. NULL: load has no work to defer. */
    mst_status (*peek)(mst_dataset *self, uint32_t c, mst_chunk **out);
    /* Random access: copies the records of chunk c, and their positions where they differ in length, to `to`,
     * and compares the copy with its checksum. Numbers, keys and positions are not checked. NULL: there is no
     * checksum. Any thread. */
    mst_status (*copy)(mst_dataset *self, uint32_t c, uint32_t *to);
    /* Stream: the next block, *out NULL at the end; one caller at a time. NULL for random access. */
    mst_status (*read)(mst_dataset *self, mst_raw_block **out);
    /* Stream: block to chunk; consumes the block in any case; any thread. *out may have 0 rows. */
    mst_status (*parse)(mst_dataset *self, mst_raw_block *block, mst_chunk_builder *builder, mst_chunk **out);
    /* Stream: gives a block back unparsed; any thread. NULL for random access. */
    void (*skip)(mst_dataset *self, mst_raw_block *block);
    /* Stream: from here on makes blocks so small that n_shards readers, each of which parses every n-th, get
     * about the same number of rows, and the same blocks from equal files; rewinds. MST_EUSAGE for input that
     * can be read only once. NULL: blocks are small enough. */
    mst_status (*deal)(mst_dataset *self, uint32_t n_shards);
    /* Stream: a read under way, and every later one, is MST_ESTOPPED soon; any thread. NULL: reading does not
     * wait for long. */
    void (*interrupt)(mst_dataset *self);
    /* Stream: back to the first row. Standard input cannot: MST_EINPUT. */
    mst_status (*rewind)(mst_dataset *self);
    /* MST_EINPUT naming the file if a mapped file has been modified since it was opened. Any thread. NULL:
     * no file is mapped. */
    mst_status (*intact)(const mst_dataset *self);
    void (*destroy)(mst_dataset *self);
} mst_dataset_ops;

struct mst_dataset {
    const mst_data_kind *kind;
    const mst_dataset_ops *ops;
    const mst_format *format; /* the kind as a format; NULL when it is none */
    char *name;               /* for messages: the path, or "PATH and N more" */
    bool random;              /* load works; n_rows, n_chunks and chunk_rows are set */
    bool live;          /* stream: rows come when another process writes them; a long wait is not a failure */
    bool load_is_cheap; /* load only makes pointers: no need to prefetch */
    bool read_is_cheap; /* stream: read only divides files, and parse reads them */
    uint32_t n_chunks;
    uint32_t chunk_rows; /* rows of every chunk but the last */
    /* The most rows that a window of the feed should hold, where loaded rows take much memory; 0: any number.
     */
    uint32_t window_rows;
    bool encoded; /* rows are decoded from JPEG or PNG images */
    bool no_rows; /* an empty file, which fits any kind */
    int64_t
        labels_from; /* the label of class 0 in the files (--labels-from): it is subtracted from row labels */
    mst_text_list left_out; /* TFRecord: features that no row uses, where no option chose them; owned */
    mst_text_list doubts;   /* csv: sentences about guesses that may be wrong; owned */
    char **class_names;     /* the names of classes 0, 1, ...; owned; NULL: unknown */
    uint32_t n_class_names;
    json_t *origin;   /* the meaning of keys (origin.h); owned; NULL: unknown */
    mst_bad_rows bad; /* stream: those that were left out. A cache made of one takes them over */
    mst_data_info info;
};

static inline bool mst_dataset_has(const mst_dataset *self, mst_data_capability capability)
{
    return mst_data_kind_has(self->kind, capability);
}

/* Opens files by content or options->format. *out is the caller's to destroy; set only on MST_OK.
 * options must outlive the dataset. */
mst_status mst_dataset_open(const mst_text_list *patterns, const mst_data_options *options,
                            mst_dataset **out);
void mst_dataset_destroy(mst_dataset *self); /* NULL-safe */

/* MST_EUSAGE for an option of reading that was given and has an effect on none of these datasets (NULL: there
 * is none in this place). */
mst_status mst_dataset_check_given(const mst_data_options *options, const mst_dataset *const *datasets,
                                   size_t n);
static inline mst_status mst_dataset_intact(const mst_dataset *self)
{
    return self->ops->intact != NULL ? self->ops->intact(self) : MST_OK;
}

/* Bytes of images that a block or chunk may become: images may take far more memory than the bytes they are
 * read from. */
#define MST_IMAGE_BLOCK (8u << 20)

/* For openers of formats, after prepare: takes fields and the features left out from the context and, if rows
 * are images, their shape and a window that fits them; sets context->max_dense then. */
mst_status mst_dataset_take_context(mst_dataset *self, mst_parse_context *context);
/* After that, where rows are not images: takes the facts of the first block, and sets context->max_dense. */
void mst_dataset_take_first(mst_dataset *self, mst_parse_context *context, const mst_block *first);

/* Logs a warning that names self->left_out, unless there is nothing in it, and one for each doubt. */
void mst_dataset_warn(const mst_dataset *self);

/* The distinct malformed rows that were left out of what was read, of a dealt stream the reader's own blocks;
 * and a warning with their number, unless it is 0. Thread: that of rewind. */
uint64_t mst_dataset_skipped(const mst_dataset *self);
void mst_dataset_warn_skipped(const mst_dataset *self); /* unless it has been stated; NULL-safe */

/* Reads everything once (unless info.scanned) and fills info; streams are rewound after it. n_threads parse.
 * Standard input is MST_EINPUT saying which options to give instead. */
mst_status mst_dataset_scan(mst_dataset *self, unsigned n_threads);

/* Calls fn for every chunk in file order, parsed by n_threads; stops at the first failure. */
typedef mst_status mst_chunk_fn(void *arg, uint64_t first_row, mst_chunk *chunk);
mst_status mst_dataset_each(mst_dataset *self, unsigned n_threads, mst_chunk_fn *fn, void *arg);

#endif
