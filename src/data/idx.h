/* IDX files (MNIST's format) as a random-access dataset: all records are built when the files are opened, so
 * that loading a chunk is a matter of a reference count. Images of unsigned bytes stay bytes. Items of two
 * dimensions are images of one channel, those of three have channels first.
 *
 * paths are files of items (two dimensions or more), one or many with items of equal size; each has its
 * labels in a file named as usual (images-idx3 -> labels-idx1, .gz or .zst or not), or, for a single file, in
 * options->labels. With options->unlabelled none are needed. A labels file among paths is ignored when
 * its images are there too, so that a whole folder can be named. */
#ifndef MST_DATA_IDX_H
#define MST_DATA_IDX_H

#include "data/resident.h"

#define MST_IDX_ROWS MST_RESIDENT_ROWS /* rows per chunk */

extern const mst_data_kind mst_data_idx;

/* *out is the caller's to destroy; set only on MST_OK. Wrong magic, cut-off or trailing bytes, and counts
 * that do not agree are MST_EINPUT. Chunks may outlive the dataset. */
mst_status mst_idx_open(const mst_text_list *paths, const mst_data_options *options, mst_dataset **out);

#endif
