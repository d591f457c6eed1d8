/* Localises a batch: lists its distinct keys in ascending order, and replaces the keys of its rows by the
 * positions of their weights among the weights of that list. One object per thread, reused; it grows to the
 * largest batch and then allocates nothing. */
#ifndef MST_TENSOR_ROW_LOCALISER_H
#define MST_TENSOR_ROW_LOCALISER_H

#include "tensor/batch.h"
#include "tensor/kernels.h"
#include "tensor/key_list.h"

typedef struct mst_row_localiser mst_row_localiser;

/* n_keys: keys of the sparse view are below this. n_banks: batches that can be alive at once. */
mst_status mst_row_localiser_new(const mst_kernels *kernels, uint64_t n_keys, unsigned n_banks,
                                 mst_row_localiser **out);
void mst_row_localiser_destroy(mst_row_localiser *self); /* NULL-safe */

/* Fills list->keys with the distinct keys of the rows that are not below n_prefix, and rows (room for
 * batch->n_rows) with the batch's rows, whose keys are: those below n_prefix unchanged, others key_start plus
 * their number in the list. The localiser owns the rows' keys, which are valid until its next call with the
 * same bank. The keys of the batch may be in a file that another process changes meanwhile: each is used as
 * it is read, and one that is not below n_keys is MST_EINPUT. */
mst_status mst_row_localise(mst_row_localiser *self, unsigned bank, const mst_batch *batch, uint32_t n_prefix,
                            uint32_t key_start, mst_key_list *list, mst_row *rows);

#endif
