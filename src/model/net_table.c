/* The table of a net over embeddings; contract in net_table.h. */
#include "model/net_table.h"

#include <string.h>

#include "base/racy.h"

#define AHEAD 2 /* rows whose floats are prefetched: keys are scattered over the table */

static void table_prefetch(const mst_net_table *table, const mst_row *row, const float *sparse,
                           uint32_t stride)
{
    for (uint32_t i = 0; i < row->n_keys; i++) {
        const float *at = sparse + (size_t)row->keys[i] * stride;
        __builtin_prefetch(at);
        __builtin_prefetch(at + table->width - 1);
    }
}

static inline uint32_t table_field(const mst_net_table *table, const mst_row *row, uint32_t i)
{
    return table->by_field ? mst_row_field(row, i) - table->n_dense : 0;
}

uint32_t mst_net_table_field(const mst_net_table *table, const mst_row *row, uint32_t i)
{
    return table_field(table, row, i);
}

static inline float row_value(const mst_row *row, uint32_t i)
{
    return row->values != NULL ? row->values[i] : 1.0f;
}

void mst_net_table_numbers(const mst_net_table *table, const mst_row *row, float *numbers)
{
    for (uint32_t i = 0; i < row->n_dense; i++)
        numbers[i] = mst_row_dense(row, i);
    for (uint32_t i = row->n_dense; i < table->n_dense; i++)
        numbers[i] = 0.0f;
    for (uint32_t i = 0; row->n_dense < table->n_dense && i < row->n_keys; i++)
        if (row->keys[i] < table->n_dense)
            numbers[row->keys[i]] += row_value(row, i);
}

MST_RACY static void load_keys(const mst_net_table *table, const mst_row *row, const float *sparse,
                               uint32_t stride, float *embedding, float *wide)
{
    const uint32_t factors = table->factors;
    float sum = 0.0f;
    if (embedding != NULL)
        memset(embedding, 0, (size_t)table->n_fields * factors * sizeof *embedding);
    for (uint32_t i = 0; i < row->n_keys; i++) {
        uint32_t field = table_field(table, row, i);
        if (row->keys[i] < table->n_dense || field >= table->n_fields)
            continue;
        const float *from = sparse + (size_t)row->keys[i] * stride, value = row_value(row, i);
        float *to = embedding != NULL ? embedding + (size_t)field * factors : NULL;
        for (uint32_t k = 0; to != NULL && k < factors; k++)
            to[k] += value * from[k];
        if (table->linear)
            sum += value * from[factors];
    }
    if (wide != NULL)
        *wide = sum;
}

void mst_net_table_load(const mst_net_table *table, const mst_batch *batch, const float *sparse,
                        uint32_t stride, const mst_net_inputs *out)
{
    size_t size = (size_t)table->n_fields * table->factors;
    for (uint32_t r = 0; r < batch->n_rows; r++) {
        const mst_row *row = &batch->rows[r];
        if (table->width != 0 && r + AHEAD < batch->n_rows)
            table_prefetch(table, &batch->rows[r + AHEAD], sparse, stride);
        if (out->numbers != NULL)
            mst_net_table_numbers(table, row, out->numbers + (size_t)r * table->n_dense);
        if (table->width != 0)
            load_keys(table, row, sparse, stride, out->embedding != NULL ? out->embedding + r * size : NULL,
                      out->wide != NULL ? out->wide + r : NULL);
    }
}

static void scatter_row(const mst_net_table *table, const mst_row *row, const float *embedding,
                        const float *wide, mst_grad *grad)
{
    const uint32_t factors = table->factors, width = table->width;
    for (uint32_t i = 0; i < row->n_keys; i++) {
        uint32_t key = row->keys[i], field = table_field(table, row, i);
        if (key < table->n_dense || field >= table->n_fields)
            continue;
        mst_contributions *list = &grad->owners[mst_grad_owner(key, grad->n_owners)];
        float *to = list->values + list->n * width, value = row_value(row, i);
        list->keys[list->n++] = key;
        const float *from = embedding != NULL ? embedding + (size_t)field * factors : NULL;
        for (uint32_t k = 0; k < factors; k++)
            to[k] = from != NULL ? value * from[k] : 0.0f;
        if (table->linear)
            to[factors] = wide != NULL ? value * *wide : 0.0f;
    }
}

mst_status mst_net_table_scatter(const mst_net_table *table, const mst_batch *batch, const mst_net_inputs *d,
                                 mst_grad *grad)
{
    size_t size = (size_t)table->n_fields * table->factors, n_keys = 0;
    if (table->width == 0)
        return MST_OK;
    for (uint32_t r = 0; r < batch->n_rows; r++)
        n_keys += batch->rows[r].n_keys;
    TRY(mst_grad_room(grad, n_keys));
    for (uint32_t r = 0; r < batch->n_rows; r++)
        scatter_row(table, &batch->rows[r], d->embedding != NULL ? d->embedding + r * size : NULL,
                    d->wide != NULL ? d->wide + r : NULL, grad);
    return MST_OK;
}
