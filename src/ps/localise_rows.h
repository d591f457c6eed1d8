/* Localising a batch: its distinct keys in ascending order, and its rows with keys replaced by where their
 * weights stand among the pulled ones (client.h). One object per thread, reused; grows to the largest batch
 * and then allocates nothing. */
#ifndef MST_PS_LOCALISE_ROWS_H
#define MST_PS_LOCALISE_ROWS_H

#include "ps/list.h"
#include "tensor/batch.h"

typedef struct mst_row_localiser mst_row_localiser;

/* n_keys: keys of the sparse view are below this. n_banks: batches that can be alive at once. */
mst_status mst_row_localiser_new(uint64_t n_keys, unsigned n_banks, mst_row_localiser **out);
void mst_row_localiser_destroy(mst_row_localiser *self); /* NULL-safe */

/* Fills list->keys with the distinct keys of the rows that are not below n_prefix, and rows (room for
 * batch->n_rows) with the batch's rows, whose keys are: those below n_prefix unchanged, others key_start plus
 * their number in the list. The rows' keys are the localiser's, valid until its next call with the same bank.
 */
mst_status mst_row_localise(mst_row_localiser *self, unsigned bank, const mst_batch *batch, uint32_t n_prefix,
                            uint32_t key_start, mst_list *list, mst_row *rows);

/* Where keys stand in a large fixed list (evaluation): a bitmap over all keys with counts, a quarter of a
 * byte per key. */
typedef struct mst_key_rank mst_key_rank;
mst_status mst_key_rank_new(uint64_t n_keys, mst_key_rank **out);
void mst_key_rank_destroy(mst_key_rank *self); /* NULL-safe */
void mst_key_rank_add(mst_key_rank *self, const mst_batch *batch,
                      uint32_t n_prefix); /* keys not below n_prefix */
/* After all were added: the distinct keys. */
mst_status mst_key_rank_list(mst_key_rank *self, mst_list *list);
/* Rows with keys replaced as above; keys (room for all keys of the batch) receives them. All keys were added
 * before. Any thread. */
void mst_key_rank_rows(const mst_key_rank *self, const mst_batch *batch, uint32_t n_prefix,
                       uint32_t key_start, mst_row *rows, uint32_t *keys);

#endif
