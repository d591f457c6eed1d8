/* Shared by the files of nets (chain.c, chain_parse.c, net_model.c, known_nets.c). */
#ifndef MST_MODEL_CHAIN_IMPL_H
#define MST_MODEL_CHAIN_IMPL_H

#include "model/layer_impl.h"
#include "tensor/grad.h"

/* A layer with its options at their defaults. *out is the caller's to destroy. */
mst_status mst_layer_new(const mst_layer_ops *ops, mst_layer **out);
void mst_layer_destroy(mst_layer *layer); /* NULL-safe */

/* Its options as a group; the table is empty for kinds without. */
mst_option_group mst_layer_options(const mst_layer *layer);

/* The next of the sizes in *at, "400,400"; *at is NULL after the last. False: that is no size. */
bool mst_hidden_next(const char **at, uint32_t *size);

#endif
