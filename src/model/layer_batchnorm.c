/* Batch normalisation, per channel c over the m = n * h * w numbers of a batch:
 *   z = (x - mean) / sqrt(var + eps), y = weight[c] * z + bias[c]
 * In training mean and var are the batch's own (var over m); inference takes the running ones, which training
 * moves by momentum towards the batch's (there var is over m - 1), as in PyTorch. The running values are
 * state: their "gradient" is the new value. Backward: dx = weight / sqrt(var + eps) * (dy - mean of dy - z *
 * mean of dy z). */
#include <math.h>

#include "base/racy.h"
#include "model/layer_impl.h"

enum { WEIGHT, BIAS, RUNNING_MEAN, RUNNING_VAR };

#define FIELD(name) offsetof(mst_batchnorm, options.name) - offsetof(mst_batchnorm, options)
static const mst_option batchnorm_options[] = {
    {.name = "momentum",
     .type = MST_OPTION_REAL,
     .offset = FIELD(momentum),
     .fallback = "0.1",
     .min = 0,
     .max = 1,
     .metavar = "X",
     .help = "Weight of a batch in the running mean and variance."},
    {.name = "eps",
     .type = MST_OPTION_REAL,
     .offset = FIELD(eps),
     .fallback = "1e-5",
     .min = 1e-12,
     .max = 1,
     .metavar = "X",
     .help = "Added to the variance."},
    {.name = NULL},
};

static mst_status batchnorm_shape(mst_layer *self)
{
    static const char *const names[] = {"weight", "bias", "running_mean", "running_var"};
    static const double first[] = {1.0, 0.0, 0.0, 1.0};
    self->out = self->in;
    self->n_params = 4;
    for (uint32_t i = 0; i < 4; i++)
        self->params[i] = (mst_layer_param){
            .name = names[i],
            .kind = i < RUNNING_MEAN ? MST_VIEW_TRAINABLE : MST_VIEW_STATE,
            .n_dims = 1,
            .dims = {self->in.c},
            .init = MST_INIT_CONSTANT,
            .init_scale = first[i],
            .fan_in = 1,
            .fan_out = 1,
        };
    return MST_OK;
}

static uint64_t batchnorm_flops(const mst_layer *self)
{
    return mst_dims_size(&self->in) * 2;
}

/* Mean, then variance, of every channel. */
static size_t batchnorm_state_size(const mst_layer *self, uint32_t n)
{
    (void)n;
    return 2 * (size_t)self->in.c * sizeof(double);
}

static void batchnorm_measure(const mst_layer *self, uint32_t n, const float *x, uint32_t c, double *mean,
                              double *var)
{
    size_t plane = (size_t)self->in.h * self->in.w, image = self->in.c * plane;
    double m = (double)n * (double)plane, sum = 0.0, square = 0.0;
    for (uint32_t i = 0; i < n; i++)
        for (size_t p = 0; p < plane; p++)
            sum += (double)x[i * image + c * plane + p];
    *mean = sum / m;
    for (uint32_t i = 0; i < n; i++)
        for (size_t p = 0; p < plane; p++) {
            double d = (double)x[i * image + c * plane + p] - *mean;
            square += d * d;
        }
    *var = square / m;
}

MST_RACY static void batchnorm_forward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n,
                                       const float *x, float *const *w, float *y)
{
    const mst_batchnorm *norm = (const mst_batchnorm *)self;
    size_t plane = (size_t)self->in.h * self->in.w, image = self->in.c * plane;
    double *means = state, *vars = pass->training ? means + self->in.c : NULL;
    for (uint32_t c = 0; c < self->in.c; c++) {
        double mean = (double)w[RUNNING_MEAN][c], var = (double)w[RUNNING_VAR][c];
        if (pass->training) {
            batchnorm_measure(self, n, x, c, &mean, &var);
            means[c] = mean;
            vars[c] = var;
        }
        double scale = (double)w[WEIGHT][c] / sqrt(var + norm->options.eps);
        for (uint32_t i = 0; i < n; i++)
            for (size_t p = 0; p < plane; p++) {
                size_t at = i * image + c * plane + p;
                y[at] = (float)(((double)x[at] - mean) * scale + (double)w[BIAS][c]);
            }
    }
}

MST_RACY static void batchnorm_backward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n,
                                        const float *x, const float *y, const float *dy, float *const *w,
                                        float *dx, float *const *g)
{
    const mst_batchnorm *norm = (const mst_batchnorm *)self;
    size_t plane = (size_t)self->in.h * self->in.w, image = self->in.c * plane;
    double m = (double)n * (double)plane, momentum = norm->options.momentum;
    const double *means = state, *vars = means + self->in.c;
    (void)pass, (void)y;
    for (uint32_t c = 0; c < self->in.c; c++) {
        double inverse = 1.0 / sqrt(vars[c] + norm->options.eps), sum = 0.0, product = 0.0;
        for (uint32_t i = 0; i < n; i++)
            for (size_t p = 0; p < plane; p++) {
                size_t at = i * image + c * plane + p;
                sum += (double)dy[at];
                product += (double)dy[at] * ((double)x[at] - means[c]) * inverse;
            }
        g[WEIGHT][c] += (float)product;
        g[BIAS][c] += (float)sum;
        g[RUNNING_MEAN][c] = (float)((1.0 - momentum) * (double)w[RUNNING_MEAN][c] + momentum * means[c]);
        g[RUNNING_VAR][c] = (float)((1.0 - momentum) * (double)w[RUNNING_VAR][c] +
                                    momentum * vars[c] * (m > 1.0 ? m / (m - 1.0) : 1.0));
        for (uint32_t i = 0; dx != NULL && i < n; i++)
            for (size_t p = 0; p < plane; p++) {
                size_t at = i * image + c * plane + p;
                double z = ((double)x[at] - means[c]) * inverse;
                dx[at] =
                    (float)((double)w[WEIGHT][c] * inverse * ((double)dy[at] - sum / m - z * product / m));
            }
    }
}

const mst_layer_ops mst_layer_batchnorm = {
    .name = "batchnorm",
    .help = "normalises channels over the batch: batchnorm momentum=0.1 eps=1e-5",
    .size = sizeof(mst_batchnorm),
    .options = batchnorm_options,
    .options_at = offsetof(mst_batchnorm, options),
    .shape = batchnorm_shape,
    .flops = batchnorm_flops,
    .state_size = batchnorm_state_size,
    .forward = batchnorm_forward,
    .backward = batchnorm_backward,
};
