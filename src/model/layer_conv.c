/* Convolution. y[o] = b[o] + sum over the channels i of o's group and the kernel of w[o][i] * x[i], without
 * flipping the kernel, as usual in deep learning; the input is padded with zeros. Weights have PyTorch's
 * order: (out, in / groups, kh, kw). */
#include "base/racy.h"
#include "model/layer_impl.h"

#define FIELD(name) offsetof(mst_conv, options.name) - offsetof(mst_conv, options)
static const mst_option conv_options[] = {
    {.name = "filters",
     .type = MST_OPTION_INT,
     .offset = FIELD(filters),
     .fallback = "0",
     .min = 0,
     .max = MST_WIDTH_MAX,
     .metavar = "N",
     .help = "Number of output channels."},
    {.name = "kernel",
     .type = MST_OPTION_INT,
     .offset = FIELD(kernel),
     .fallback = "0",
     .min = 0,
     .max = MST_SIDE_MAX,
     .metavar = "N",
     .help = "Height and width of the kernel."},
    {.name = "kernel-h",
     .type = MST_OPTION_INT,
     .offset = FIELD(kernel_h),
     .fallback = "0",
     .min = 0,
     .max = MST_SIDE_MAX,
     .metavar = "N",
     .help = "Height of the kernel, if it differs."},
    {.name = "kernel-w",
     .type = MST_OPTION_INT,
     .offset = FIELD(kernel_w),
     .fallback = "0",
     .min = 0,
     .max = MST_SIDE_MAX,
     .metavar = "N",
     .help = "Width of the kernel, if it differs."},
    {.name = "stride",
     .type = MST_OPTION_INT,
     .offset = FIELD(stride),
     .fallback = "1",
     .min = 1,
     .max = MST_SIDE_MAX,
     .metavar = "N",
     .help = "Step of the kernel."},
    {.name = "pad",
     .type = MST_OPTION_INT,
     .offset = FIELD(pad),
     .fallback = "0",
     .min = 0,
     .max = MST_SIDE_MAX,
     .metavar = "N",
     .help = "Zeros added on every side of the image."},
    {.name = "groups",
     .type = MST_OPTION_INT,
     .offset = FIELD(groups),
     .fallback = "1",
     .min = 1,
     .max = MST_WIDTH_MAX,
     .metavar = "N",
     .help = "Number of groups of channels that are convolved separately."},
    MST_WEIGHT_ROWS(FIELD(weights)),
    {.name = NULL},
};

static mst_status conv_shape(mst_layer *self)
{
    mst_conv *conv = (mst_conv *)self;
    int64_t filters = conv->options.filters, groups = conv->options.groups;
    int64_t kh = conv->options.kernel_h ? conv->options.kernel_h : conv->options.kernel;
    int64_t kw = conv->options.kernel_w ? conv->options.kernel_w : conv->options.kernel;
    if (filters < 1)
        return mst_fail(MST_EINPUT, "%s: give its number of filters: conv 6 kernel=5", self->name);
    if (kh < 1 || kw < 1)
        return mst_fail(MST_EINPUT, "%s: give the size of its kernel: conv %lld kernel=5", self->name,
                        (long long)filters);
    if (self->in.c % (uint64_t)groups != 0 || filters % groups != 0)
        return mst_fail(MST_EINPUT, "%s: groups=%lld must divide both the %u channels and the %lld filters",
                        self->name, (long long)groups, self->in.c, (long long)filters);
    conv->groups = (uint32_t)groups;
    conv->window = (mst_window){.kh = (uint32_t)kh,
                                .kw = (uint32_t)kw,
                                .stride = (uint32_t)conv->options.stride,
                                .pad = (uint32_t)conv->options.pad};
    self->out.c = (uint32_t)filters;
    TRY(mst_window_out(self, &conv->window, &self->out));
    uint64_t dims[] = {(uint64_t)filters, self->in.c / conv->groups, (uint64_t)kh, (uint64_t)kw};
    mst_layer_weights(self, &conv->options.weights, 4, dims, dims[1] * dims[2] * dims[3],
                      dims[0] * dims[2] * dims[3], dims[0]);
    return MST_OK;
}

static uint64_t conv_flops(const mst_layer *self)
{
    const mst_conv *conv = (const mst_conv *)self;
    uint64_t kernel = (uint64_t)self->in.c / conv->groups * conv->window.kh * conv->window.kw;
    return mst_dims_size(&self->out) * (2 * kernel + (self->n_params > 1));
}

/* The start of output channel o's weights and input channels. */
typedef struct conv_place {
    uint32_t n_in;
    size_t kernel, first_in; /* floats of a kernel; first input channel */
} conv_place;

static conv_place conv_place_of(const mst_conv *conv, uint32_t o)
{
    const mst_layer *self = &conv->base;
    uint32_t n_in = self->in.c / conv->groups;
    return (conv_place){.n_in = n_in,
                        .kernel = (size_t)conv->window.kh * conv->window.kw,
                        .first_in = (size_t)(o / (self->out.c / conv->groups)) * n_in};
}

MST_RACY static float conv_point(const mst_conv *conv, const float *x, const float *w, uint32_t o,
                                 uint32_t oy, uint32_t ox)
{
    const mst_dims *in = &conv->base.in;
    conv_place p = conv_place_of(conv, o);
    mst_window_area part = mst_window_at(&conv->window, in, oy, ox);
    size_t plane = (size_t)in->h * in->w;
    double sum = 0.0;
    for (uint32_t i = 0; i < p.n_in; i++) {
        const float *image = x + (p.first_in + i) * plane, *kernel = w + ((size_t)o * p.n_in + i) * p.kernel;
        for (uint32_t y = part.y0; y < part.y1; y++)
            for (uint32_t c = part.x0; c < part.x1; c++)
                sum += (double)(image[(size_t)y * in->w + c] *
                                kernel[(size_t)((int64_t)y - part.top) * conv->window.kw +
                                       (size_t)((int64_t)c - part.left)]);
    }
    return (float)sum;
}

MST_RACY static void conv_forward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n,
                                  const float *x, float *const *w, float *y)
{
    const mst_conv *conv = (const mst_conv *)self;
    (void)state, (void)pass;
    for (uint32_t i = 0; i < n; i++, x += mst_dims_size(&self->in))
        for (uint32_t o = 0; o < self->out.c; o++)
            for (uint32_t oy = 0; oy < self->out.h; oy++)
                for (uint32_t ox = 0; ox < self->out.w; ox++)
                    *y++ = conv_point(conv, x, w[0], o, oy, ox) + (self->n_params > 1 ? w[1][o] : 0.0f);
}

/* The part of one output's derivative d. */
MST_RACY static void conv_point_back(const mst_conv *conv, const float *x, const float *w, uint32_t o,
                                     uint32_t oy, uint32_t ox, float d, float *dx, float *gw)
{
    const mst_dims *in = &conv->base.in;
    conv_place p = conv_place_of(conv, o);
    mst_window_area part = mst_window_at(&conv->window, in, oy, ox);
    size_t plane = (size_t)in->h * in->w;
    for (uint32_t i = 0; i < p.n_in; i++) {
        size_t image = (p.first_in + i) * plane, kernel = ((size_t)o * p.n_in + i) * p.kernel;
        for (uint32_t y = part.y0; y < part.y1; y++)
            for (uint32_t c = part.x0; c < part.x1; c++) {
                size_t at = image + (size_t)y * in->w + c;
                size_t k = kernel + (size_t)((int64_t)y - part.top) * conv->window.kw +
                           (size_t)((int64_t)c - part.left);
                gw[k] += d * x[at];
                if (dx != NULL)
                    dx[at] += d * w[k];
            }
    }
}

MST_RACY static void conv_backward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n,
                                   const float *x, const float *y, const float *dy, float *const *w,
                                   float *dx, float *const *g)
{
    const mst_conv *conv = (const mst_conv *)self;
    size_t in = mst_dims_size(&self->in);
    (void)state, (void)pass, (void)y;
    for (size_t i = 0; dx != NULL && i < n * in; i++)
        dx[i] = 0.0f;
    for (uint32_t i = 0; i < n; i++, x += in, dx = dx != NULL ? dx + in : NULL)
        for (uint32_t o = 0; o < self->out.c; o++)
            for (uint32_t oy = 0; oy < self->out.h; oy++)
                for (uint32_t ox = 0; ox < self->out.w; ox++) {
                    float d = *dy++;
                    conv_point_back(conv, x, w[0], o, oy, ox, d, dx, g[0]);
                    if (self->n_params > 1)
                        g[1][o] += d;
                }
}

const mst_layer_ops mst_layer_conv = {
    .name = "conv",
    .help = "convolution: conv FILTERS kernel=N (stride, pad, groups, bias, init)",
    .size = sizeof(mst_conv),
    .options = conv_options,
    .options_at = offsetof(mst_conv, options),
    .main_option = "filters",
    .shape = conv_shape,
    .flops = conv_flops,
    .forward = conv_forward,
    .backward = conv_backward,
};
