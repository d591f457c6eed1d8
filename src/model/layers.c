/* Registry of layers and functions of the built-in ones (layer_impl.h). */
#include <string.h>

#include "model/layer_impl.h"

const mst_layer_ops *const mst_layers[] = {
    &mst_layer_conv,      &mst_layer_linear,  &mst_layer_maxpool, &mst_layer_avgpool,
    &mst_layer_relu,      &mst_layer_tanh,    &mst_layer_sigmoid, &mst_layer_lrn,
    &mst_layer_batchnorm, &mst_layer_dropout, &mst_layer_concat,  &mst_layer_add,
    &mst_layer_cross,     &mst_layer_fm,      &mst_layer_dot,     NULL,
};

void mst_layer_weights(mst_layer *self, const mst_weight_options *options, uint32_t n_dims,
                       const uint64_t *dims, uint64_t fan_in, uint64_t fan_out, uint64_t n_out)
{
    mst_layer_param *weight = &self->params[0], *bias = &self->params[1];
    *weight = (mst_layer_param){
        .name = "weight",
        .kind = MST_VIEW_TRAINABLE,
        .n_dims = n_dims,
        .init = (mst_init)options->init,
        .init_scale = options->init_scale,
        .fan_in = fan_in,
        .fan_out = fan_out,
    };
    memcpy(weight->dims, dims, n_dims * sizeof *dims);
    self->n_params = 1;
    if (!options->bias)
        return;
    *bias = (mst_layer_param){
        .name = "bias",
        .kind = MST_VIEW_TRAINABLE,
        .n_dims = 1,
        .dims = {n_out},
        .init = MST_INIT_CONSTANT,
        .init_scale = options->bias_init,
        .fan_in = fan_in,
        .fan_out = fan_out,
    };
    self->n_params = 2;
}

mst_status mst_layer_same_shape(mst_layer *self)
{
    self->out = self->in;
    return MST_OK;
}

mst_status mst_window_out(const mst_layer *self, const mst_window *window, mst_dims *out)
{
    uint64_t h = (uint64_t)self->in.h + 2ull * window->pad, w = (uint64_t)self->in.w + 2ull * window->pad;
    if (window->kh > h || window->kw > w)
        return mst_fail(
            MST_EINPUT, "%s: a kernel of %ux%u does not fit its input of %ux%ux%u%s", self->name, window->kh,
            window->kw, self->in.c, self->in.h, self->in.w,
            self->in.h == 1 && self->in.w == 1
                ? "; where rows are images, give their size: \"input CxHxW\" in the net, or --image CxHxW"
                : "");
    out->h = (uint32_t)((h - window->kh) / window->stride + 1);
    out->w = (uint32_t)((w - window->kw) / window->stride + 1);
    return MST_OK;
}

mst_window_area mst_window_at(const mst_window *window, const mst_dims *in, uint32_t oy, uint32_t ox)
{
    int64_t top = (int64_t)oy * window->stride - window->pad, bottom = top + window->kh;
    int64_t left = (int64_t)ox * window->stride - window->pad, right = left + window->kw;
    return (mst_window_area){
        .top = top,
        .left = left,
        .y0 = top > 0 ? (uint32_t)top : 0,
        .y1 = bottom < in->h ? (uint32_t)(bottom > 0 ? bottom : 0) : in->h,
        .x0 = left > 0 ? (uint32_t)left : 0,
        .x1 = right < in->w ? (uint32_t)(right > 0 ? right : 0) : in->w,
    };
}
