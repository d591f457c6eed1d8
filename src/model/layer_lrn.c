/* Local response normalisation over channels (Krizhevsky et al. 2012, 3.3), with alpha divided by the size of
 * the window, as in Caffe and PyTorch:
 *   s[c] = k + alpha / size * sum of x[c']^2 over c' in [c - size/2, c + (size-1)/2]
 *   y[c] = x[c] / s[c]^beta
 * Backward: dx[c] = dy[c] / s[c]^beta - 2 alpha beta / size * x[c] * sum of dy[c'] y[c'] / s[c'] over those
 * c' in whose window c lies. */
#include <math.h>

#include "model/layer_impl.h"

#define FIELD(name) offsetof(mst_lrn, options.name) - offsetof(mst_lrn, options)
static const mst_option lrn_options[] = {
    {.name = "size",
     .type = MST_OPTION_INT,
     .offset = FIELD(size),
     .fallback = "5",
     .min = 1,
     .max = MST_SIDE_MAX,
     .metavar = "N",
     .help = "Number of neighbouring channels in the sum."},
    {.name = "alpha",
     .type = MST_OPTION_REAL,
     .offset = FIELD(alpha),
     .fallback = "1e-4",
     .min = 0,
     .max = 1e6,
     .metavar = "X",
     .help = "Factor of the mean square."},
    {.name = "beta",
     .type = MST_OPTION_REAL,
     .offset = FIELD(beta),
     .fallback = "0.75",
     .min = 0,
     .max = 1e3,
     .metavar = "X",
     .help = "Exponent of the sum."},
    {.name = "k",
     .type = MST_OPTION_REAL,
     .offset = FIELD(k),
     .fallback = "1",
     .min = 1e-6,
     .max = 1e6,
     .metavar = "X",
     .help = "Constant added to the sum."},
    {.name = NULL},
};

/* A window's additions, and about ten for the power. */
static uint64_t lrn_flops(const mst_layer *self)
{
    const mst_lrn *lrn = (const mst_lrn *)self;
    return mst_dims_size(&self->in) * (2 * (uint64_t)lrn->options.size + 10);
}

static size_t lrn_state_size(const mst_layer *self, uint32_t n)
{
    return n * mst_dims_size(&self->in) * sizeof(float);
}

/* Channels [*from, *to) that count for c; back: those for which c counts. */
static void lrn_neighbours(const mst_lrn *lrn, uint32_t c, bool back, uint32_t *from, uint32_t *to)
{
    uint32_t size = (uint32_t)lrn->options.size, channels = lrn->base.in.c;
    uint32_t before = back ? (size - 1) / 2 : size / 2, after = size - 1 - before;
    *from = c > before ? c - before : 0;
    *to = after < channels - 1 - c ? c + after + 1 : channels;
}

static void lrn_forward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n, const float *x,
                        float *const *w, float *y)
{
    const mst_lrn *lrn = (const mst_lrn *)self;
    size_t plane = (size_t)self->in.h * self->in.w;
    float *s = state;
    double alpha = lrn->options.alpha / (double)lrn->options.size;
    (void)pass, (void)w;
    for (uint32_t i = 0; i < n; i++, x += self->in.c * plane, y += self->in.c * plane)
        for (uint32_t c = 0; c < self->in.c; c++) {
            uint32_t from, to;
            lrn_neighbours(lrn, c, false, &from, &to);
            for (size_t p = 0; p < plane; p++) {
                double sum = 0.0;
                for (uint32_t q = from; q < to; q++)
                    sum += (double)x[q * plane + p] * (double)x[q * plane + p];
                sum = lrn->options.k + alpha * sum;
                if (s != NULL)
                    *s++ = (float)sum;
                y[c * plane + p] = (float)((double)x[c * plane + p] * pow(sum, -lrn->options.beta));
            }
        }
}

static void lrn_backward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n, const float *x,
                         const float *y, const float *dy, float *const *w, float *dx, float *const *g)
{
    const mst_lrn *lrn = (const mst_lrn *)self;
    size_t plane = (size_t)self->in.h * self->in.w, image = self->in.c * plane;
    const float *s = state;
    double factor = 2.0 * lrn->options.alpha * lrn->options.beta / (double)lrn->options.size;
    (void)pass, (void)w, (void)g;
    for (uint32_t i = 0; dx != NULL && i < n;
         i++, x += image, y += image, dy += image, dx += image, s += image)
        for (uint32_t c = 0; c < self->in.c; c++) {
            uint32_t from, to;
            lrn_neighbours(lrn, c, true, &from, &to);
            for (size_t p = 0; p < plane; p++) {
                size_t at = c * plane + p;
                double sum = 0.0;
                for (uint32_t q = from; q < to; q++)
                    sum += (double)dy[q * plane + p] * (double)y[q * plane + p] / (double)s[q * plane + p];
                dx[at] = (float)((double)dy[at] * pow((double)s[at], -lrn->options.beta) -
                                 factor * (double)x[at] * sum);
            }
        }
}

const mst_layer_ops mst_layer_lrn = {
    .name = "lrn",
    .help = "local response normalisation over channels: lrn size=5 alpha=1e-4 beta=0.75 k=1",
    .size = sizeof(mst_lrn),
    .options = lrn_options,
    .options_at = offsetof(mst_lrn, options),
    .main_option = "size",
    .shape = mst_layer_same_shape,
    .flops = lrn_flops,
    .state_size = lrn_state_size,
    .forward = lrn_forward,
    .backward = lrn_backward,
};
