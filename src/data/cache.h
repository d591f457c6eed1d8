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
 * Chunks must be released before the dataset is destroyed. ops->intact detects changes to the mapped files in
 * place. */
mst_status mst_cache_open(const mst_text_list *paths, mst_dataset **out);
bool mst_cache_sniff(const uint8_t *head, size_t n); /* whether a file that starts so is a cache */
extern const mst_data_kind mst_data_cache;

/* The last line of a source key: every option about reading, and the origin of the rows, as JSON; either may
 * be NULL. Freed with mst_free; NULL when memory is short. */
char *mst_cache_key_text(const mst_data_options *options, const json_t *origin);

/* The options that the rows of a dataset of caches were read with: {"index-base": ..., ...}, a new reference.
 * NULL when the dataset is not a cache, or its files do not record them or disagree. */
json_t *mst_cache_options(const mst_dataset *dataset);

/* Continues *checksum with that of the file's rows, wherever they came from, and adds their number to *rows.
 */
mst_status mst_cache_checksum(const char *path, uint32_t *checksum, uint64_t *rows);

/* The cache of a source dataset for `train --cache`: path derived from the sources (in `folder`, or beside
 * the first file when folder is NULL), rebuilt when sources or options that shape rows have changed
 * (source_key: their sizes, times and those options). When two processes need the same cache, one makes it
 * and the other waits (lock file held with flock; the lock of a dead process is free), or fails after 600 s,
 * naming the holder. */
mst_status mst_cache_for(mst_dataset *source, const mst_text_list *patterns, const mst_data_options *options,
                         const char *folder, unsigned n_threads, mst_dataset **out);

/* The vocabulary of --min-count for `train --cache`, beside that cache and made like it: *path is freed with
 * mst_free. */
mst_status mst_cache_vocabulary_for(const mst_text_list *patterns, const mst_data_options *options,
                                    const char *folder, unsigned n_threads, char **path);

#endif
