/* Rows without the features and fields that a model does not have; contract in chunk.h. */
#include "base/alloc.h"
#include "data/chunk.h"
#include "data/chunk_pool.h"

static void chunk_destroy_dropped(mst_chunk *self)
{
    mst_free(self->dropped);
    mst_chunk_pool_give(self);
}

/* Adds the entries of a row that the model has; false: it lost some. */
static bool chunk_add_seen(const mst_row *row, uint64_t features, uint32_t fields, mst_chunk_builder *b)
{
    size_t before = b->n_entries;
    uint32_t n_dense = row->dense != NULL || row->bytes != NULL ? row->n_dense : 0;
    for (uint32_t k = 0; k < n_dense; k++)
        if (k < features && k < fields)
            mst_chunk_builder_add_field(b, (uint16_t)k, k, mst_row_dense(row, k));
    for (uint32_t k = 0; k < row->n_keys; k++)
        if (row->keys[k] < features && mst_row_field(row, k) < fields)
            mst_chunk_builder_add_field(b, (uint16_t)mst_row_field(row, k), row->keys[k],
                                        row->values != NULL ? row->values[k] : 1.0f);
    return b->n_entries - before == (size_t)row->n_dense + row->n_keys;
}

mst_status mst_chunk_drop_unseen(const mst_chunk *from, uint64_t features, uint32_t fields, mst_chunk **out)
{
    mst_status st = MST_OK;
    mst_chunk_builder b;
    mst_chunk_builder_init(&b);
    mst_chunk_builder_set_order(&b, MST_ORDER_FIELDS, from->n_dense);
    uint8_t *dropped = mst_calloc((size_t)from->n_rows + 1, 1);
    if (dropped == NULL)
        TRY_OUT(st, mst_fail_memory());
    for (uint32_t i = 0; i < from->n_rows; i++) {
        mst_row row;
        mst_chunk_row(from, i, &row);
        TRY_OUT(st, mst_chunk_builder_room(&b, (size_t)row.n_dense + row.n_keys));
        dropped[i] = !chunk_add_seen(&row, features, fields != 0 ? fields : MST_FIELDS_MAX, &b);
        TRY_OUT(st, mst_chunk_builder_end_row(&b, row.label, row.weight));
    }
    TRY_OUT(st, mst_chunk_builder_pack(&b, 0, b.n_rows, out));
    (*out)->bytes_read = from->bytes_read;
    (*out)->dropped = dropped;
    (*out)->destroy = chunk_destroy_dropped;
    dropped = NULL;
out:
    mst_free(dropped);
    mst_chunk_builder_fini(&b);
    return st;
}
