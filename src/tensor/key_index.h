/* Positions of keys in a large fixed key list, for evaluation: a bitmap over all keys with counts, a quarter
 * of a byte per key. */
#ifndef MST_TENSOR_KEY_INDEX_H
#define MST_TENSOR_KEY_INDEX_H

#include "tensor/batch.h"
#include "tensor/key_list.h"

typedef struct mst_key_index mst_key_index;

/* n_keys: keys are below this. */
mst_status mst_key_index_new(uint64_t n_keys, mst_key_index **out);
void mst_key_index_destroy(mst_key_index *self); /* NULL-safe */

/* Adds the keys of the batch that are not below n_prefix. */
void mst_key_index_add(mst_key_index *self, const mst_batch *batch, uint32_t n_prefix);
/* After all were added: the distinct keys. */
mst_status mst_key_index_list(mst_key_index *self, mst_key_list *list);
/* Rows whose keys are: those below n_prefix unchanged, others key_start plus their position in the list. keys
 * (room for all keys of the batch) receives them. All keys must have been added. Any thread. */
void mst_key_index_rows(const mst_key_index *self, const mst_batch *batch, uint32_t n_prefix,
                        uint32_t key_start, mst_row *rows, uint32_t *keys);

#endif
