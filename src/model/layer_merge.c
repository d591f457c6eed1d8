/* Layers that join others: concat and add. The inputs of a layer are one row already (layer.h), so concat
 * copies it. */
#include <string.h>

#include "model/layer_impl.h"

static uint64_t merge_flops(const mst_layer *self)
{
    return mst_dims_size(&self->in);
}

/* ---- concat ---- */

static mst_status concat_shape(mst_layer *self)
{
    self->out = (mst_dims){(uint32_t)mst_dims_size(&self->in), 1, 1};
    return MST_OK;
}

static void concat_forward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n,
                           const float *x, float *const *w, float *y)
{
    (void)state, (void)pass, (void)w;
    memcpy(y, x, n * mst_dims_size(&self->in) * sizeof *y);
}

static void concat_backward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n,
                            const float *x, const float *y, const float *dy, float *const *w, float *dx,
                            float *const *g)
{
    (void)state, (void)pass, (void)x, (void)y, (void)w, (void)g;
    if (dx != NULL)
        memcpy(dx, dy, n * mst_dims_size(&self->in) * sizeof *dx);
}

const mst_layer_ops mst_layer_concat = {
    .name = "concat",
    .help = "the numbers of several layers in a row: concat from=NAME,NAME",
    .size = sizeof(mst_layer),
    .many = true,
    .shape = concat_shape,
    .flops = merge_flops,
    .forward = concat_forward,
    .backward = concat_backward,
};

/* ---- add ---- */

static mst_status add_shape(mst_layer *self)
{
    self->out = (mst_dims){0, 1, 1};
    for (uint32_t i = 0; i < self->n_inputs; i++) {
        uint64_t size = mst_dims_size(&self->parts[i]);
        if (size == 0)
            continue;
        if (self->out.c != 0 && size != mst_dims_size(&self->out))
            return mst_fail(
                MST_EINPUT, "%s: its inputs have %llu and %llu numbers; they must be equally long",
                self->name, (unsigned long long)mst_dims_size(&self->out), (unsigned long long)size);
        if (self->out.c == 0)
            self->out = self->parts[i];
    }
    return MST_OK;
}

static void add_forward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n, const float *x,
                        float *const *w, float *y)
{
    size_t in = mst_dims_size(&self->in), out = mst_dims_size(&self->out);
    (void)state, (void)pass, (void)w;
    for (uint32_t r = 0; r < n; r++, x += in, y += out) {
        memcpy(y, x, out * sizeof *y);
        for (size_t at = out; at < in; at += out)
            for (size_t i = 0; i < out; i++)
                y[i] += x[at + i];
    }
}

static void add_backward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n, const float *x,
                         const float *y, const float *dy, float *const *w, float *dx, float *const *g)
{
    size_t in = mst_dims_size(&self->in), out = mst_dims_size(&self->out);
    (void)state, (void)pass, (void)x, (void)y, (void)w, (void)g;
    for (uint32_t r = 0; dx != NULL && r < n; r++, dx += in, dy += out)
        for (size_t at = 0; at < in; at += out)
            memcpy(dx + at, dy, out * sizeof *dx);
}

const mst_layer_ops mst_layer_add = {
    .name = "add",
    .help = "the sum of layers of one size: add from=NAME,NAME",
    .size = sizeof(mst_layer),
    .many = true,
    .shape = add_shape,
    .flops = merge_flops,
    .forward = add_forward,
    .backward = add_backward,
};
