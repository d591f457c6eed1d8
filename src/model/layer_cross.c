/* A cross layer of DCN v2 (Wang et al. 2020), with a full matrix:
 *   y = x0 * u + x, u = W x + b
 * where * is elementwise. It reads x0 and x; one input is both. "cross 3" is three layers, which share x0
 * (chain_parse.c).
 *
 * Backward: du = dy * x0; dx = dy + W^T du, dx0 = dy * u. */
#include <string.h>

#include "base/racy.h"
#include "model/layer_impl.h"

#define FIELD(name) offsetof(mst_cross, options.name) - offsetof(mst_cross, options)
static const mst_option cross_options[] = {
    {.name = "layers",
     .type = MST_OPTION_INT,
     .offset = FIELD(layers),
     .fallback = "1",
     .min = 1,
     .max = 32,
     .metavar = "N",
     .help = "Number of cross layers."},
    MST_WEIGHT_ROWS(FIELD(weights)),
    {.name = NULL},
};

static mst_status cross_shape(mst_layer *self)
{
    const mst_cross *cross = (const mst_cross *)self;
    uint64_t d = mst_dims_size(&self->parts[0]);
    if (self->n_inputs > 2 || (self->n_inputs == 2 && mst_dims_size(&self->parts[1]) != d))
        return mst_fail(MST_EINPUT,
                        "%s: it reads x0 and x, which must be equally long, or one layer that is both",
                        self->name);
    self->out = (mst_dims){(uint32_t)d, 1, 1};
    mst_layer_weights(self, &cross->options.weights, 2, (uint64_t[]){d, d}, d, d, d);
    return MST_OK;
}

static uint64_t cross_flops(const mst_layer *self)
{
    uint64_t d = self->out.c;
    return d * (2 * d + 2 + (self->n_params > 1));
}

/* u of every row. */
static size_t cross_state_size(const mst_layer *self, uint32_t n)
{
    return (size_t)n * self->out.c * sizeof(float);
}

MST_RACY static void cross_forward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n,
                                   const float *x, float *const *w, float *y)
{
    size_t d = self->out.c, in = mst_dims_size(&self->in);
    float *u = state;
    (void)pass;
    for (uint32_t r = 0; r < n; r++, x += in, y += d, u = u != NULL ? u + d : NULL) {
        const float *now = x + in - d;
        for (size_t o = 0; o < d; o++) {
            double sum = self->n_params > 1 ? (double)w[1][o] : 0.0;
            for (size_t j = 0; j < d; j++)
                sum += (double)(w[0][o * d + j] * now[j]);
            if (u != NULL)
                u[o] = (float)sum;
            y[o] = x[o] * (float)sum + now[o];
        }
    }
}

MST_RACY static void cross_backward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n,
                                    const float *x, const float *y, const float *dy, float *const *w,
                                    float *dx, float *const *g)
{
    size_t d = self->out.c, in = mst_dims_size(&self->in);
    const float *u = state;
    (void)pass, (void)y;
    for (uint32_t r = 0; r < n; r++, x += in, dy += d, u += d, dx = dx != NULL ? dx + in : NULL) {
        const float *now = x + in - d;
        if (dx != NULL) {
            memset(dx, 0, in * sizeof *dx);
            for (size_t o = 0; o < d; o++)
                dx[o] = dy[o] * u[o];
            for (size_t o = 0; o < d; o++)
                dx[in - d + o] += dy[o];
        }
        for (size_t o = 0; o < d; o++) {
            float du = dy[o] * x[o];
            const float *row = w[0] + o * d;
            for (size_t j = 0; j < d; j++)
                g[0][o * d + j] += du * now[j];
            for (size_t j = 0; dx != NULL && j < d; j++)
                dx[in - d + j] += du * row[j];
            if (self->n_params > 1)
                g[1][o] += du;
        }
    }
}

const mst_layer_ops mst_layer_cross = {
    .name = "cross",
    .help = "cross layers of DCN v2, x0 * (W x + b) + x: cross LAYERS, or from=X0,X (bias, init)",
    .size = sizeof(mst_cross),
    .options = cross_options,
    .options_at = offsetof(mst_cross, options),
    .main_option = "layers",
    .many = true,
    .shape = cross_shape,
    .flops = cross_flops,
    .state_size = cross_state_size,
    .forward = cross_forward,
    .backward = cross_backward,
};
