/* Inner product: y = W x + b over all numbers of an image, taken as one row (c, h, w). Weights have PyTorch's
 * order: (out, in). */
#include "base/racy.h"
#include "model/layer_impl.h"

#define FIELD(name) offsetof(mst_linear_layer, options.name) - offsetof(mst_linear_layer, options)
static const mst_option linear_options[] = {
    {.name = "outputs",
     .type = MST_OPTION_INT,
     .offset = FIELD(outputs),
     .fallback = "0",
     .min = 0,
     .max = MST_WIDTH_MAX,
     .metavar = "N",
     .help = "Number of outputs."},
    MST_WEIGHT_ROWS(FIELD(weights)),
    {.name = NULL},
};

static mst_status linear_shape(mst_layer *self)
{
    mst_linear_layer *linear = (mst_linear_layer *)self;
    uint64_t in = mst_dims_size(&self->in), out = (uint64_t)linear->options.outputs;
    if (out < 1)
        return mst_fail(MST_EINPUT, "%s: give its number of outputs: linear 120", self->name);
    self->out = (mst_dims){.c = (uint32_t)out, .h = 1, .w = 1};
    mst_layer_weights(self, &linear->options.weights, 2, (uint64_t[]){out, in}, in, out, out);
    return MST_OK;
}

static uint64_t linear_flops(const mst_layer *self)
{
    return self->out.c * (2 * mst_dims_size(&self->in) + (self->n_params > 1));
}

MST_RACY static void linear_forward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n,
                                    const float *x, float *const *w, float *y)
{
    size_t in = mst_dims_size(&self->in), out = self->out.c;
    (void)state, (void)pass;
    for (uint32_t i = 0; i < n; i++, x += in, y += out)
        for (size_t o = 0; o < out; o++) {
            const float *row = w[0] + o * in;
            double sum = self->n_params > 1 ? (double)w[1][o] : 0.0;
            for (size_t j = 0; j < in; j++)
                sum += (double)(row[j] * x[j]);
            y[o] = (float)sum;
        }
}

MST_RACY static void linear_backward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n,
                                     const float *x, const float *y, const float *dy, float *const *w,
                                     float *dx, float *const *g)
{
    size_t in = mst_dims_size(&self->in), out = self->out.c;
    (void)state, (void)pass, (void)y;
    for (size_t i = 0; dx != NULL && i < n * in; i++)
        dx[i] = 0.0f;
    for (uint32_t i = 0; i < n; i++, x += in, dy += out, dx = dx != NULL ? dx + in : NULL)
        for (size_t o = 0; o < out; o++) {
            const float *row = w[0] + o * in;
            float d = dy[o], *gw = g[0] + o * in;
            for (size_t j = 0; j < in; j++)
                gw[j] += d * x[j];
            for (size_t j = 0; dx != NULL && j < in; j++)
                dx[j] += d * row[j];
            if (self->n_params > 1)
                g[1][o] += d;
        }
}

const mst_layer_ops mst_layer_linear = {
    .name = "linear",
    .help = "fully connected layer: linear OUTPUTS (bias, init)",
    .size = sizeof(mst_linear_layer),
    .options = linear_options,
    .options_at = offsetof(mst_linear_layer, options),
    .main_option = "outputs",
    .shape = linear_shape,
    .flops = linear_flops,
    .forward = linear_forward,
    .backward = linear_backward,
};
