/* Graphs of nets (contract: onnx.h). Every value between layers is [N, numbers], except that layers over
 * images, and those between them, keep [N, c, h, w]; Reshape turns one into the other. */
#include "model/onnx.h"

#include <stdio.h>

#include "base/alloc.h"
#include "model/layer_impl.h"

/* The output of a layer. */
typedef struct onnx_value {
    mst_onnx_name name;
    mst_dims dims;
    bool image; /* [N, c, h, w] */
} onnx_value;

typedef struct onnx_net {
    mst_onnx_graph *graph;
    const mst_chain *chain;
    const mst_params *params;
    onnx_value in; /* of plain chains */
    onnx_value values[MST_NET_LAYERS];
} onnx_net;

static mst_onnx_name net_flat(onnx_net *n, const onnx_value *v)
{
    if (!v->image)
        return v->name;
    mst_onnx_name shape = mst_onnx_integers(n->graph, 2, (int64_t[]){-1, (int64_t)mst_dims_size(&v->dims)});
    return mst_onnx_call(n->graph, "Reshape", "", "%s,%s", v->name.text, shape.text);
}

static mst_onnx_name net_image(onnx_net *n, const onnx_value *v)
{
    if (v->image)
        return v->name;
    mst_onnx_name shape = mst_onnx_integers(n->graph, 4, (int64_t[]){-1, v->dims.c, v->dims.h, v->dims.w});
    return mst_onnx_call(n->graph, "Reshape", "", "%s,%s", v->name.text, shape.text);
}

static const onnx_value *net_input(const onnx_net *n, const mst_layer *layer, uint32_t i)
{
    return layer->inputs[i] == MST_INPUT_ROWS ? &n->in : &n->values[layer->inputs[i]];
}

/* A parameter of a layer as a constant. */
static mst_onnx_name net_param(onnx_net *n, const mst_layer *layer, uint32_t i)
{
    const mst_view *view = &n->params->views[layer->views[i]];
    return mst_onnx_weights(n->graph, view->name, layer->params[i].n_dims, layer->params[i].dims,
                            n->params->w + view->offset);
}

/* The flat inputs of a layer in a row; those without numbers are left out. */
static mst_onnx_name net_joined(onnx_net *n, const mst_layer *layer, const char *op, const char *attributes)
{
    mst_string list = {0};
    uint32_t count = 0;
    mst_onnx_name one = {.text = ""};
    for (uint32_t i = 0; i < layer->n_inputs; i++) {
        const onnx_value *v = net_input(n, layer, i);
        if (mst_dims_size(&v->dims) == 0)
            continue;
        one = net_flat(n, v);
        mst_string_format(&list, "%s%s", count++ > 0 ? "," : "", one.text);
    }
    if (list.failed)
        n->graph->failed = true;
    else if (count > 1)
        one = mst_onnx_node(n->graph, op, list.text, attributes);
    mst_string_fini(&list);
    return one;
}

static mst_onnx_name net_window(onnx_net *n, const char *op, const mst_window *w, const char *more,
                                const char *inputs)
{
    char attributes[200];
    snprintf(attributes, sizeof attributes, "kernel_shape=I%u,%u strides=I%u,%u pads=I%u,%u,%u,%u%s", w->kh,
             w->kw, w->stride, w->stride, w->pad, w->pad, w->pad, w->pad, more);
    return mst_onnx_node(n->graph, op, inputs, attributes);
}

static mst_onnx_name net_conv(onnx_net *n, const mst_layer *layer)
{
    const mst_conv *conv = (const mst_conv *)layer;
    mst_onnx_name x = net_image(n, net_input(n, layer, 0)), w = net_param(n, layer, 0), b = {.text = ""};
    char inputs[3 * sizeof x], group[32];
    if (layer->n_params > 1)
        b = net_param(n, layer, 1);
    snprintf(inputs, sizeof inputs, "%s,%s%s%s", x.text, w.text, b.text[0] != '\0' ? "," : "", b.text);
    snprintf(group, sizeof group, " group=i%u", conv->groups);
    return net_window(n, "Conv", &conv->window, group, inputs);
}

static mst_onnx_name net_gemm(onnx_net *n, const mst_layer *layer, const mst_onnx_name *x)
{
    mst_onnx_name w = net_param(n, layer, 0);
    if (layer->n_params == 1)
        return mst_onnx_call(n->graph, "Gemm", "transB=i1", "%s,%s", x->text, w.text);
    mst_onnx_name b = net_param(n, layer, 1);
    return mst_onnx_call(n->graph, "Gemm", "transB=i1", "%s,%s,%s", x->text, w.text, b.text);
}

static mst_onnx_name net_cross(onnx_net *n, const mst_layer *layer)
{
    mst_onnx_name x0 = net_flat(n, net_input(n, layer, 0)),
                  x = net_flat(n, net_input(n, layer, layer->n_inputs - 1));
    mst_onnx_name u = net_gemm(n, layer, &x);
    mst_onnx_name product = mst_onnx_call(n->graph, "Mul", "", "%s,%s", x0.text, u.text);
    return mst_onnx_call(n->graph, "Add", "", "%s,%s", product.text, x.text);
}

/* The inputs of fm and dot as [N, vectors, length]. */
static mst_status net_vectors(onnx_net *n, const mst_layer *layer, uint32_t *count, uint32_t *length,
                              mst_onnx_name *out)
{
    TRY(mst_layer_vectors(layer, count, length));
    mst_onnx_name flat = net_joined(n, layer, "Concat", "axis=i1");
    mst_onnx_name shape = mst_onnx_integers(n->graph, 3, (int64_t[]){-1, *count, *length});
    *out = mst_onnx_call(n->graph, "Reshape", "", "%s,%s", flat.text, shape.text);
    return MST_OK;
}

static mst_status net_fm(onnx_net *n, const mst_layer *layer, mst_onnx_name *out)
{
    mst_onnx_graph *g = n->graph;
    uint32_t count, k;
    mst_onnx_name v, axis = mst_onnx_integers(g, 1, (int64_t[]){1}), half = mst_onnx_number(g, 0.5);
    TRY(net_vectors(n, layer, &count, &k, &v));
    mst_onnx_name sum = mst_onnx_call(g, "ReduceSum", "keepdims=i0", "%s,%s", v.text, axis.text);
    mst_onnx_name all = mst_onnx_call(g, "Mul", "", "%s,%s", sum.text, sum.text);
    mst_onnx_name each = mst_onnx_call(g, "ReduceSumSquare", "axes=I1 keepdims=i0", "%s", v.text);
    mst_onnx_name difference = mst_onnx_call(g, "Sub", "", "%s,%s", all.text, each.text);
    *out = mst_onnx_call(g, "Mul", "", "%s,%s", difference.text, half.text);
    if (layer->out.c == 1 && k > 1)
        *out = mst_onnx_call(g, "ReduceSum", "keepdims=i1", "%s,%s", out->text, axis.text);
    return MST_OK;
}

static mst_status net_dot(onnx_net *n, const mst_layer *layer, mst_onnx_name *out)
{
    mst_onnx_graph *g = n->graph;
    uint32_t count, k;
    size_t at = 0;
    mst_onnx_name v;
    TRY(net_vectors(n, layer, &count, &k, &v));
    int64_t *pairs = mst_alloc(((size_t)count * count / 2 + 1) * sizeof *pairs);
    if (pairs == NULL)
        return mst_fail_memory();
    for (uint32_t i = 1; i < count; i++)
        for (uint32_t j = 0; j < i; j++)
            pairs[at++] = (int64_t)i * count + j;
    mst_onnx_name chosen = mst_onnx_integers(g, at, pairs);
    mst_free(pairs);
    mst_onnx_name turned = mst_onnx_call(g, "Transpose", "perm=I0,2,1", "%s", v.text);
    mst_onnx_name products = mst_onnx_call(g, "MatMul", "", "%s,%s", v.text, turned.text);
    mst_onnx_name shape = mst_onnx_integers(g, 2, (int64_t[]){-1, (int64_t)count * count});
    mst_onnx_name flat = mst_onnx_call(g, "Reshape", "", "%s,%s", products.text, shape.text);
    *out = mst_onnx_call(g, "Gather", "axis=i1", "%s,%s", flat.text, chosen.text);
    return MST_OK;
}

static mst_status net_lrn(onnx_net *n, const mst_layer *layer, mst_onnx_name *out)
{
    const mst_lrn *lrn = (const mst_lrn *)layer;
    char attributes[160];
    mst_onnx_name x = net_image(n, net_input(n, layer, 0));
    if (lrn->options.size % 2 == 0)
        return mst_fail(
            MST_EUSAGE,
            "%s: ONNX divides a window of %lld channels in another way; only odd sizes can be exported",
            layer->name, (long long)lrn->options.size);
    snprintf(attributes, sizeof attributes, "size=i%lld alpha=f%.9g beta=f%.9g bias=f%.9g",
             (long long)lrn->options.size, lrn->options.alpha, lrn->options.beta, lrn->options.k);
    *out = mst_onnx_call(n->graph, "LRN", attributes, "%s", x.text);
    return MST_OK;
}

static mst_onnx_name net_batchnorm(onnx_net *n, const mst_layer *layer, bool image)
{
    const mst_batchnorm *norm = (const mst_batchnorm *)layer;
    const onnx_value *in = net_input(n, layer, 0);
    mst_onnx_name x = image ? net_image(n, in) : net_flat(n, in), p[4];
    char attributes[48];
    for (uint32_t i = 0; i < 4; i++)
        p[i] = net_param(n, layer, i);
    snprintf(attributes, sizeof attributes, "epsilon=f%.9g", norm->options.eps);
    return mst_onnx_call(n->graph, "BatchNormalization", attributes, "%s,%s,%s,%s,%s", x.text, p[0].text,
                         p[1].text, p[2].text, p[3].text);
}

static mst_status net_layer(onnx_net *n, const mst_layer *layer, onnx_value *out)
{
    const mst_layer_ops *ops = layer->ops;
    static const onnx_value none = {.image = false};
    const onnx_value *in = layer->n_inputs > 0 ? net_input(n, layer, 0) : &none;
    static const struct {
        const mst_layer_ops *ops;
        const char *op;
    } plain[] = {{&mst_layer_relu, "Relu"}, {&mst_layer_tanh, "Tanh"}, {&mst_layer_sigmoid, "Sigmoid"}};
    out->dims = layer->out;
    out->image = false;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (ops == plain[i].ops) {
            out->image = in->image;
            out->name = mst_onnx_call(n->graph, plain[i].op, "", "%s", in->name.text);
            return MST_OK;
        }
    if (ops == &mst_layer_dropout) { /* drops nothing outside of training */
        out->name = in->name;
        out->image = in->image;
        return MST_OK;
    }
    if (ops == &mst_layer_conv || ops == &mst_layer_maxpool || ops == &mst_layer_avgpool ||
        ops == &mst_layer_lrn || (ops == &mst_layer_batchnorm && layer->in.h * layer->in.w > 1))
        out->image = true;
    if (ops == &mst_layer_conv) {
        out->name = net_conv(n, layer);
    } else if (ops == &mst_layer_maxpool || ops == &mst_layer_avgpool) {
        mst_onnx_name x = net_image(n, in);
        bool max = ops == &mst_layer_maxpool;
        out->name = net_window(n, max ? "MaxPool" : "AveragePool", &((const mst_pool *)layer)->window,
                               max ? "" : " count_include_pad=i1", x.text);
    } else if (ops == &mst_layer_linear) {
        mst_onnx_name x = net_joined(n, layer, "Concat", "axis=i1");
        out->name = net_gemm(n, layer, &x);
    } else if (ops == &mst_layer_lrn) {
        TRY(net_lrn(n, layer, &out->name));
    } else if (ops == &mst_layer_batchnorm) {
        out->name = net_batchnorm(n, layer, out->image);
    } else if (ops == &mst_layer_concat) {
        out->name = net_joined(n, layer, "Concat", "axis=i1");
    } else if (ops == &mst_layer_add) {
        out->name = net_joined(n, layer, "Sum", "");
    } else if (ops == &mst_layer_cross) {
        out->name = net_cross(n, layer);
    } else if (ops == &mst_layer_fm) {
        TRY(net_fm(n, layer, &out->name));
    } else if (ops == &mst_layer_dot) {
        TRY(net_dot(n, layer, &out->name));
    } else {
        return mst_fail(MST_EUSAGE, "%s: layers of kind %s have no ONNX form", layer->name, ops->name);
    }
    return MST_OK;
}

/* The inputs of a net over embeddings: parts of the rows of the table, summed by field, and numbers. */
static void net_table(onnx_net *n)
{
    const mst_net_table *t = &n->chain->table;
    mst_onnx_graph *g = n->graph;
    mst_onnx_name terms = {.text = ""};
    if (t->width > 0) {
        const mst_view *view = &n->params->views[t->view];
        mst_onnx_input(g, "indices", true, "N,K");
        mst_onnx_input(g, "values", false, "N,K");
        mst_onnx_name table = mst_onnx_weights(g, view->name, 2, (uint64_t[]){t->n_keys, t->width},
                                               n->params->w + view->offset);
        terms = mst_onnx_terms(g, table.text, "values");
    }
    mst_onnx_name axis1 = {.text = ""}, axis2 = {.text = ""};
    if ((t->embedding != MST_INPUT_ROWS && !t->by_field) || t->wide != MST_INPUT_ROWS)
        axis1 = mst_onnx_integers(g, 1, (int64_t[]){1});
    if (t->width > 0)
        axis2 = mst_onnx_integers(g, 1, (int64_t[]){2});
    if (t->embedding != MST_INPUT_ROWS) {
        mst_onnx_name zero = mst_onnx_integers(g, 1, (int64_t[]){0}),
                      k = mst_onnx_integers(g, 1, (int64_t[]){t->factors});
        mst_onnx_name factors =
            mst_onnx_call(g, "Slice", "", "%s,%s,%s,%s", terms.text, zero.text, k.text, axis2.text);
        mst_onnx_name sums;
        if (t->by_field) {
            mst_onnx_input(g, "fields", true, "N,K");
            mst_onnx_name by_field = mst_onnx_by_field(g, t->n_fields, t->n_dense);
            sums = mst_onnx_call(g, "MatMul", "", "%s,%s", by_field.text, factors.text);
        } else {
            sums = mst_onnx_call(g, "ReduceSum", "keepdims=i1", "%s,%s", factors.text, axis1.text);
        }
        mst_onnx_name shape = mst_onnx_integers(g, 2, (int64_t[]){-1, (int64_t)t->n_fields * t->factors});
        n->values[t->embedding].name = mst_onnx_call(g, "Reshape", "", "%s,%s", sums.text, shape.text);
    }
    if (t->wide != MST_INPUT_ROWS) {
        mst_onnx_name from = mst_onnx_integers(g, 1, (int64_t[]){t->factors}),
                      to = mst_onnx_integers(g, 1, (int64_t[]){t->width});
        mst_onnx_name linear =
            mst_onnx_call(g, "Slice", "", "%s,%s,%s,%s", terms.text, from.text, to.text, axis2.text);
        n->values[t->wide].name =
            mst_onnx_call(g, "ReduceSum", "keepdims=i0", "%s,%s", linear.text, axis1.text);
    }
    if (t->numbers != MST_INPUT_ROWS && t->n_dense > 0) {
        char dims[32];
        snprintf(dims, sizeof dims, "N,%u", t->n_dense);
        mst_onnx_input(g, "numbers", false, dims);
        n->values[t->numbers].name = (mst_onnx_name){.text = "numbers"};
    }
}

/* The rows of a plain chain, normalised. */
static mst_status net_rows(onnx_net *n, const mst_onnx_options *o)
{
    const mst_dims *in = &n->chain->in;
    bool image = in->h > 1 || in->w > 1;
    char dims[64];
    n->in = (onnx_value){.name = {.text = "x"}, .dims = *in, .image = image};
    if (!image) {
        n->in.name = mst_onnx_rows(n->graph, o, in->c);
        return MST_OK;
    }
    snprintf(dims, sizeof dims, "N,%u,%u,%u", in->c, in->h, in->w);
    mst_onnx_input(n->graph, "x", false, dims);
    if (o->mean == NULL)
        return MST_OK;
    if (o->n_channels != in->c)
        return mst_fail(MST_EUSAGE, "rows that were normalised as images of %u channels do not fit the net",
                        o->n_channels);
    uint64_t shape[] = {in->c, 1, 1};
    mst_onnx_name mean = mst_onnx_floats(n->graph, 3, shape, o->mean),
                  scale = mst_onnx_floats(n->graph, 3, shape, o->scale);
    mst_onnx_name moved = mst_onnx_call(n->graph, "Sub", "", "x,%s", mean.text);
    n->in.name = mst_onnx_call(n->graph, "Mul", "", "%s,%s", moved.text, scale.text);
    return MST_OK;
}

mst_status mst_onnx_net(mst_onnx_graph *self, const mst_chain *chain, const mst_params *params,
                        const mst_onnx_options *options, mst_onnx_name *scores)
{
    const mst_net_table *t = &chain->table;
    bool table = t->embedding != MST_INPUT_ROWS || t->numbers != MST_INPUT_ROWS || t->wide != MST_INPUT_ROWS;
    onnx_net *n = mst_zalloc(sizeof *n);
    mst_status st = MST_OK;
    if (n == NULL)
        return mst_fail_memory();
    n->graph = self;
    n->chain = chain;
    n->params = params;
    if (table)
        net_table(n);
    else
        st = net_rows(n, options);
    for (uint32_t i = 0; i < chain->n_layers && st == MST_OK; i++) {
        n->values[i].dims = chain->layers[i]->out;
        if (!table || (i != t->embedding && i != t->numbers && i != t->wide))
            st = net_layer(n, chain->layers[i], &n->values[i]);
    }
    if (st == MST_OK) {
        const onnx_value *last = &n->values[chain->n_layers - 1];
        *scores = net_flat(n, last);
        if (mst_dims_size(&last->dims) == 1) {
            mst_onnx_name flat = mst_onnx_integers(self, 1, (int64_t[]){-1});
            *scores = mst_onnx_call(self, "Reshape", "", "%s,%s", scores->text, flat.text);
        }
    }
    mst_free(n);
    return st;
}
