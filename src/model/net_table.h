/* The table of a net over embeddings: rows into the outputs of the net's inputs, and their gradients into
 * contributions by key. A key's floats are its factors and then its linear weight (mst_net_table in layer.h).
 *
 *   embedding   field f is the sum of value * factors over the row's keys of that field
 *   numbers     the dense prefix; keys below n_dense (rows whose prefix is shorter) are numbers too
 *   wide        the sum of value * linear weight over the row's keys */
#ifndef MST_MODEL_NET_TABLE_H
#define MST_MODEL_NET_TABLE_H

#include "model/layer.h"
#include "model/model.h"

/* Arrays of the inputs, n_rows each; NULL: the net has no such input, or it is not wanted. */
typedef struct mst_net_inputs {
    float *embedding; /* n_fields * factors */
    float *numbers;   /* n_dense */
    float *wide;      /* 1 */
} mst_net_inputs;

/* sparse: key 0 of the table; keys are `stride` floats apart. Racy in sparse. */
void mst_net_table_load(const mst_net_table *table, const mst_batch *batch, const float *sparse,
                        uint32_t stride, const mst_net_inputs *out);

/* The dense prefix of a row: n_dense numbers. */
void mst_net_table_numbers(const mst_net_table *table, const mst_row *row, float *numbers);
/* The field of key i, counted from the first field of keys; n_fields or more: none. */
uint32_t mst_net_table_field(const mst_net_table *table, const mst_row *row, uint32_t i);

/* Appends the contributions of d, the gradients of embedding and wide. */
mst_status mst_net_table_scatter(const mst_net_table *table, const mst_batch *batch, const mst_net_inputs *d,
                                 mst_grad *grad);

#endif
