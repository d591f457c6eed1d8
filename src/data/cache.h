/* The cache: a dataset as a binary file that is mapped and read in place, at memory speed and in any order.
 *
 * File: header (magic, version, counts, checksums), chunk bodies exactly as chunk.h lays records out, each
 * starting on a 64-byte boundary, table of chunks (offset, length, rows, layout, CRC-32C each).
 * Little-endian. Every chunk's checksum is verified when it is first loaded. Full description: docs/CACHE.md.
 */
#ifndef MST_DATA_CACHE_H
#define MST_DATA_CACHE_H

#include "data/dataset.h"

#define MST_CACHE_ROWS 4096 /* rows per chunk; fewer when rows are large: at most about 1 MiB per chunk */

/* Opens cache files (one or many) as one random-access dataset with info.scanned set. Several files must have
 * equal rows per chunk, and all but the last must end on a whole chunk; their rows must be of one origin.
 * Chunks must be released before the dataset is destroyed. Files that are changed in place meanwhile, which
 * is possible as they are mapped, are noticed (ops->intact). */
mst_status mst_cache_open(const mst_text_list *paths, mst_dataset **out);
bool mst_cache_sniff(const uint8_t *head, size_t n); /* whether a file that starts so is a cache */
extern const mst_data_kind mst_data_cache;

/* Writes chunks of any size, re-cut to equal rows per chunk, to a file that appears when complete. */
typedef struct mst_cache_writer mst_cache_writer;
/* source_key: what the rows come from; its last line (mst_cache_key_text) is the options that they were read
 * with and their origin, where that is known. */
mst_status mst_cache_writer_new(const char *path, const char *source_key, mst_cache_writer **out);
mst_status mst_cache_writer_add(mst_cache_writer *writer, const mst_chunk *chunk);
/* The facts about rows are counted by the writer; info (may be NULL) adds bytes and index_base,
 * n_features when it knows of more, and the sides of images when they fit the rows. */
mst_status mst_cache_writer_commit(mst_cache_writer *writer, const mst_data_info *info);
void mst_cache_writer_destroy(mst_cache_writer *writer); /* NULL-safe; without commit nothing is left */

/* The last line of a source key: every option about reading, and the origin of the rows, as JSON; either may
 * be NULL. Freed with mst_free; NULL when memory is short. */
char *mst_cache_key_text(const mst_data_options *options, const json_t *origin);

/* The options that the rows of a dataset of caches were read with: {"index-base": ..., ...}, a new reference.
 * NULL when the dataset is none of caches, or its files do not say or do not agree. */
json_t *mst_cache_options(const mst_dataset *dataset);

/* Continues *checksum with that of the file's rows, wherever they came from, and adds their number to *rows.
 */
mst_status mst_cache_checksum(const char *path, uint32_t *checksum, uint64_t *rows);

/* The cache of a source dataset for `train --cache`: path derived from the sources (in `folder`, or beside
 * the first file when folder is NULL), rebuilt when sources or options that shape rows have changed
 * (source_key: their sizes, times and those options). Two processes that want the same cache: one makes it,
 * the other waits for it (lock file held with flock; a dead maker's lock is free) or gives up after 600 s and
 * says whom it waited for. */
mst_status mst_cache_for(mst_dataset *source, const mst_text_list *patterns, const mst_data_options *options,
                         const char *folder, unsigned n_threads, mst_dataset **out);

#endif
