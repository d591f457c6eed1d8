/* Functions of single numbers: relu, tanh, sigmoid. Derivatives are functions of the output y alone, so that
 * executors may compute in place: relu: y > 0, tanh: 1 - y^2, sigmoid: y (1 - y). */
#include <math.h>

#include "model/layer_impl.h"

static uint64_t one_flop(const mst_layer *self)
{
    return mst_dims_size(&self->in);
}

#define ACTIVATION(kind, text, value, derivative)                                                            \
    static void kind##_forward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n,         \
                               const float *x, float *const *w, float *y)                                    \
    {                                                                                                        \
        size_t size = n * mst_dims_size(&self->in);                                                          \
        (void)state, (void)pass, (void)w;                                                                    \
        for (size_t i = 0; i < size; i++)                                                                    \
            y[i] = (value);                                                                                  \
    }                                                                                                        \
    static void kind##_backward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n,        \
                                const float *x, const float *y, const float *dy, float *const *w, float *dx, \
                                float *const *g)                                                             \
    {                                                                                                        \
        size_t size = dx != NULL ? n * mst_dims_size(&self->in) : 0;                                         \
        (void)state, (void)pass, (void)w, (void)g, (void)x;                                                  \
        for (size_t i = 0; i < size; i++)                                                                    \
            dx[i] = dy[i] * (derivative);                                                                    \
    }                                                                                                        \
    const mst_layer_ops mst_layer_##kind = {                                                                 \
        .name = #kind,                                                                                       \
        .help = text,                                                                                        \
        .size = sizeof(mst_layer),                                                                           \
        .shape = mst_layer_same_shape,                                                                       \
        .flops = one_flop,                                                                                   \
        .forward = kind##_forward,                                                                           \
        .backward = kind##_backward,                                                                         \
    }

ACTIVATION(relu, "max(x, 0)", x[i] > 0.0f ? x[i] : 0.0f, y[i] > 0.0f ? 1.0f : 0.0f);
ACTIVATION(tanh, "hyperbolic tangent", tanhf(x[i]), 1.0f - y[i] * y[i]);
ACTIVATION(sigmoid, "1 / (1 + exp(-x))", 1.0f / (1.0f + expf(-x[i])), y[i] * (1.0f - y[i]));
