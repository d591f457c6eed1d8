/* Row writers: rows out of muster, to a file of one of several formats. `data convert` and `data gen` share
 * them.
 *
 * One const ops table per format, listed in mst_row_writers. A writer takes chunks in order and the file
 * appears, complete, at commit. Names ending in .gz or .zst are compressed (not the cache). One thread at a
 * time. */
#ifndef MST_DATA_WRITE_H
#define MST_DATA_WRITE_H

#include "data/dataset.h"

typedef struct mst_row_writer mst_row_writer;

typedef struct mst_row_writer_ops {
    const char *name, *help;
    const char *suffixes; /* of file names that mean this format: ".svm .libsvm" */
    size_t size;          /* of the derived struct, which starts as zeros */
    bool keeps_origin;    /* the file records --labels-from and the origin of the rows */
    mst_status (*open)(mst_row_writer *self);
    /* MST_EINPUT with a message when the format cannot hold a row. */
    mst_status (*add)(mst_row_writer *self, const mst_chunk *chunk);
    mst_status (*commit)(mst_row_writer *self, const mst_data_info *info);
    void (*close)(mst_row_writer *self); /* safe after a failed open */
} mst_row_writer_ops;

struct mst_row_writer {
    const mst_row_writer_ops *ops;
    char *path;
    const char *source_key; /* of a cache; borrowed until open returns */
    uint64_t n_rows;        /* added so far */
};

extern const mst_row_writer_ops *const mst_row_writers[]; /* NULL-terminated */
extern const mst_row_writer_ops mst_row_writer_libsvm, mst_row_writer_libffm, mst_row_writer_vw,
    mst_row_writer_criteo, mst_row_writer_cache;

/* By name; MST_EUSAGE listing the names when unknown. name NULL: by the path's suffix (.gz and .zst passed
 * over); MST_EUSAGE for an unknown suffix. */
mst_status mst_row_writer_find(const char *name, const char *path, const mst_row_writer_ops **out);

/* source_key: of a cache (cache.h), or NULL; other formats ignore it. *out is the
 * caller's to destroy; set only on MST_OK. */
mst_status mst_row_writer_new(const mst_row_writer_ops *ops, const char *path, const char *source_key,
                              mst_row_writer **out);
mst_status mst_row_writer_add(mst_row_writer *writer, const mst_chunk *chunk);
/* info: facts about the rows' source, for a cache; may be NULL. */
mst_status mst_row_writer_commit(mst_row_writer *writer, const mst_data_info *info);
void mst_row_writer_destroy(mst_row_writer *writer); /* NULL-safe; without commit nothing is left behind */

/* Writes a number as the shortest plain text that reads back as the same float; returns its length. Whole
 * numbers have no point. out holds at least MST_FLOAT_TEXT bytes; no terminating NUL. The value must be
 * finite. */
#define MST_FLOAT_TEXT 24
size_t mst_float_text(float value, char *out);
/* The same text as printf's %.9g, of any number. */
size_t mst_number_text9(double value, char *out);

#endif
