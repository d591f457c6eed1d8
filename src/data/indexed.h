/* Files with an index: random access to the rows of plain text and TFRecord files.
 *
 * FILE.mstidx (little-endian): magic "MSTINDEX", version u32, rows per entry u32, size of FILE u64, its time
 * of modification in ns i64, rows u64, entries u64, name of the format (16 bytes, zero-padded), then byte
 * offset u64 and number u64, from 1, of the line or record of rows 0, n, 2 n ... (n rows per entry), and the
 * CRC-32C u32 of all before it. */
#ifndef MST_DATA_INDEXED_H
#define MST_DATA_INDEXED_H

#include "data/dataset.h"

#define MST_INDEX_ROWS   4096 /* per entry, and per chunk of the dataset: at most */
#define MST_INDEX_SUFFIX ".mstidx"

/* Writes path's index beside it, over one that is there. format NULL: by content. options: of formats whose
 * records are not lines (csv). Compressed files, standard input, kinds of data that need no index, and rows
 * that are malformed with all options of reading are MST_EINPUT. *n_rows (may be NULL) is set on MST_OK. */
mst_status mst_index_build(const char *path, const mst_format *format, const mst_data_options *options,
                           uint64_t *n_rows);

/* Whether every path has an index file beside it, valid or not. */
bool mst_indexed_available(const mst_text_list *paths);

/* Opens files by their indexes. An index that is damaged, or was made for other contents or another
 * format, is MST_EINPUT with a remedy. *out is the caller's to destroy; set only on MST_OK. options must
 * outlive it. */
mst_status mst_indexed_open(const mst_text_list *paths, const mst_format *format,
                            const mst_data_options *options, mst_dataset **out);

#endif
