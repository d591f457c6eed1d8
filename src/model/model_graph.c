/* A model as a graph, for people; contract in model.h. */
#include <stdio.h>

#include <jansson.h>

#include "model/chain_impl.h"
#include "model/model.h"

#define NAME 112 /* of a node: a layer's or model's name, and a view's */

/* Appends a node (inputs, shape and attr are taken over). A node that cannot be made is left out. */
static void graph_add_node(json_t *nodes, const char *name, const char *op, json_t *inputs, json_t *shape,
                           json_t *attr)
{
    json_array_append_new(nodes, json_pack("{s:s, s:s, s:o, s:o, s:o*}", "name", name, "op", op, "inputs",
                                           inputs, "shape", shape, "attr", attr));
}

/* Of a batch: any number of rows. */
static json_t *batch_of(const mst_dims *d)
{
    return d->h == 1 && d->w == 1
               ? json_pack("[i, I]", -1, (json_int_t)d->c)
               : json_pack("[i, I, I, I]", -1, (json_int_t)d->c, (json_int_t)d->h, (json_int_t)d->w);
}

/* A parameter as a node, and as an input of the layer or model that it belongs to. */
static void add_view(json_t *nodes, const char *scope, const char *short_name, const mst_view *view,
                     json_t *inputs)
{
    char name[NAME];
    json_t *shape = json_array();
    for (uint32_t d = 0; d < view->n_dims; d++)
        json_array_append_new(shape, json_integer((json_int_t)view->dims[d]));
    snprintf(name, sizeof name, "%s/%s", scope, short_name);
    json_array_append_new(nodes, json_pack("{s:s, s:s, s:[], s:o, s:s, s:{s:b}}", "name", name, "op",
                                           "VariableV2", "inputs", "shape", shape, "view", view->name, "attr",
                                           "trainable", (int)(view->kind == MST_VIEW_TRAINABLE)));
    json_array_append_new(inputs, json_string(name));
}

/* The node of a layer; of MST_INPUT_ROWS, that of the rows. */
static const char *graph_name(const mst_chain *chain, uint32_t layer, char out[NAME])
{
    if (layer == MST_INPUT_ROWS)
        return "rows";
    snprintf(out, NAME, "%s/%s", chain->layers[layer]->name, chain->layers[layer]->ops->name);
    return out;
}

/* Adds a layer behind the nodes that it reads. */
static void graph_add_layer(json_t *nodes, const mst_chain *chain, uint32_t index, const mst_params *params)
{
    const mst_layer *layer = chain->layers[index];
    const mst_net_table *table = &chain->table;
    char name[NAME];
    mst_option_group group = mst_layer_options(layer);
    json_t *inputs = json_array(), *options = mst_options_json(&group, 1),
           *attr = json_object_get(options, layer->ops->name);
    attr = attr != NULL ? json_incref(attr) : json_object();
    if (layer->ops->flops != NULL)
        json_object_set_new(attr, "flops", json_integer((json_int_t)layer->ops->flops(layer)));
    for (uint32_t i = 0; i < layer->n_inputs; i++)
        json_array_append_new(inputs, json_string(graph_name(chain, layer->inputs[i], name)));
    if (layer->n_inputs == 0)
        json_array_append_new(inputs, json_string("rows"));
    for (uint32_t p = 0; p < layer->n_params; p++)
        add_view(nodes, layer->name, layer->params[p].name, &params->views[layer->views[p]], inputs);
    if (table->width != 0 && index == (table->factors != 0 ? table->embedding : table->wide))
        add_view(nodes, layer->name, "weight", &params->views[table->view], inputs);
    graph_add_node(nodes, graph_name(chain, index, name), layer->ops->name, inputs, batch_of(&layer->out),
                   attr);
    json_decref(options);
}

/* A model without layers: all its parameters act on the rows at once. */
static void add_whole(json_t *nodes, const mst_model *self, const mst_params *params, char before[NAME])
{
    json_t *inputs = json_pack("[s]", before);
    for (uint32_t v = 0; v < params->n_views; v++)
        add_view(nodes, self->ops->name, params->views[v].name, &params->views[v], inputs);
    snprintf(before, NAME, "%s/scores", self->ops->name);
    graph_add_node(nodes, before, self->ops->name, inputs,
                   json_pack("[i, I]", -1, (json_int_t)self->n_scores), NULL);
}

json_t *mst_model_graph(const mst_model *self, const mst_params *params)
{
    const mst_chain *chain = mst_model_chain(self);
    json_t *nodes = json_array();
    char last[NAME] = "rows";
    graph_add_node(nodes, last, "Placeholder", json_array(),
                   chain != NULL && chain->in.c != 0
                       ? batch_of(&chain->in)
                       : json_pack("[i, I]", -1, (json_int_t)self->shape.n_features),
                   NULL);
    for (uint32_t i = 0; chain != NULL && i < chain->n_layers; i++)
        graph_add_layer(nodes, chain, i, params);
    if (chain != NULL)
        graph_name(chain, chain->n_layers - 1, last);
    if (chain == NULL)
        add_whole(nodes, self, params, last);
    graph_add_node(nodes, "labels", "Placeholder", json_array(), json_pack("[i]", -1), NULL);
    graph_add_node(nodes, "loss", self->n_scores == 1 ? "logistic" : "softmax_cross_entropy",
                   json_pack("[s, s]", last, "labels"), json_array(), NULL);
    return nodes;
}
