/* The stream dataset: files of one format, read one after the other in blocks of whole records, plain or
 * compressed, or from input that can be read only once: standard input and pipes. */
#ifndef MST_DATA_STREAM_H
#define MST_DATA_STREAM_H

#include "base/file.h"
#include "data/dataset.h"

#define MST_STREAM_BLOCK      (1u << 20)  /* bytes read at a time, unless dealt (dataset.h) */
#define MST_STREAM_MAX_RECORD (64u << 20) /* a longer record is an error */

struct mst_stream_file;

/* A run of whole records on its way from read to parse. Owned by its holder; parse takes it back. */
struct mst_raw_block {
    mst_block block;              /* text of a plain file: data is NULL until parse reads it, line is 0 */
    struct mst_stream_file *file; /* whose bytes it reads then; or NULL */
    uint64_t sequence;            /* 0, 1, 2 ... in file order since the last rewind */
    uint8_t *bytes;
    size_t capacity;
    mst_raw_block *next; /* in the stream's list of blocks to use again */
};

/* Opens paths (expanded already); MST_EUSAGE when one that is read only once is named twice. The first block
 * is read here, so that the format can prepare itself (mst_format.prepare). opened, if not
 * NULL, is the first of the paths that is read only once, after `head` was read from it; the stream closes
 * it, on failure too. *out is the caller's to destroy; set only on MST_OK. options must outlive it. */
mst_status mst_stream_open(const mst_text_list *paths, const mst_format *format,
                           const mst_data_options *options, mst_in *opened, const uint8_t *head,
                           size_t n_head, mst_dataset **out);

/* Whether the input at path can be read only once: "-", a pipe, a device. */
bool mst_path_reads_once(const char *path);

/* For a stream that can be read only once, the name of the input that makes it so, "standard input" for "-";
 * NULL for every other dataset. */
const char *mst_stream_reads_once(const mst_dataset *dataset);

/* "PATH", or "PATH and N more": mst_dataset.name. The caller frees; NULL when memory is short. */
char *mst_paths_name(const mst_text_list *paths);

/* Bytes on disk of all the paths; those without a known size count 0. */
uint64_t mst_paths_bytes(const mst_text_list *paths);

/* A path as messages name it: "standard input" for "-". */
const char *mst_path_shown(const char *path);
/* The part of a path after its last slash. */
const char *mst_path_name(const char *path);

#endif
