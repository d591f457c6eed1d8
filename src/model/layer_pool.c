/* Maximum and average pooling. Windows that do not fit whole are left out (floor), as in PyTorch and in
 * TensorFlow's VALID. Padding counts as minus infinity for the maximum and as zeros for the average, which is
 * always over the whole kernel area (PyTorch's count_include_pad=True). A tie of maxima goes to the first. */
#include <math.h>

#include "model/layer_impl.h"

#define FIELD(name) offsetof(mst_pool, options.name) - offsetof(mst_pool, options)
static const mst_option pool_options[] = {
    {.name = "kernel",
     .type = MST_OPTION_INT,
     .offset = FIELD(kernel),
     .fallback = "2",
     .min = 1,
     .max = MST_SIDE_MAX,
     .metavar = "N",
     .help = "Height and width of the window."},
    {.name = "stride",
     .type = MST_OPTION_INT,
     .offset = FIELD(stride),
     .fallback = "0",
     .min = 0,
     .max = MST_SIDE_MAX,
     .metavar = "N",
     .help = "Step of the window; 0: its size."},
    {.name = "pad",
     .type = MST_OPTION_INT,
     .offset = FIELD(pad),
     .fallback = "0",
     .min = 0,
     .max = MST_SIDE_MAX,
     .metavar = "N",
     .help = "Pixels of padding on every side."},
    {.name = NULL},
};

static mst_status pool_shape(mst_layer *self)
{
    mst_pool *pool = (mst_pool *)self;
    uint32_t kernel = (uint32_t)pool->options.kernel;
    pool->window = (mst_window){
        .kh = kernel,
        .kw = kernel,
        .stride = pool->options.stride ? (uint32_t)pool->options.stride : kernel,
        .pad = (uint32_t)pool->options.pad,
    };
    if (pool->window.pad > kernel / 2)
        return mst_fail(MST_EINPUT, "%s: pad=%u is more than half of its kernel of %u", self->name,
                        pool->window.pad, kernel);
    self->out.c = self->in.c;
    return mst_window_out(self, &pool->window, &self->out);
}

static uint64_t pool_flops(const mst_layer *self)
{
    const mst_pool *pool = (const mst_pool *)self;
    return mst_dims_size(&self->out) * pool->window.kh * pool->window.kw;
}

/* Calls the body for every window of every plane: i is the output's index, plane the input's first number. */
#define EACH_WINDOW(self, n)                                                                                 \
    for (size_t plane = 0, i = 0; plane < (size_t)(n) * (self)->in.c; plane++)                               \
        for (uint32_t oy = 0; oy < (self)->out.h; oy++)                                                      \
            for (uint32_t ox = 0; ox < (self)->out.w; ox++, i++)

static size_t max_of(const mst_pool *pool, const float *x, uint32_t oy, uint32_t ox)
{
    const mst_dims *in = &pool->base.in;
    mst_window_area part = mst_window_at(&pool->window, in, oy, ox);
    size_t best = (size_t)part.y0 * in->w + part.x0;
    for (uint32_t y = part.y0; y < part.y1; y++)
        for (uint32_t c = part.x0; c < part.x1; c++)
            if (x[(size_t)y * in->w + c] > x[best])
                best = (size_t)y * in->w + c;
    return best;
}

static void maxpool_forward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n,
                            const float *x, float *const *w, float *y)
{
    const mst_pool *pool = (const mst_pool *)self;
    size_t size = (size_t)self->in.h * self->in.w;
    (void)state, (void)pass, (void)w;
    EACH_WINDOW(self, n)
    y[i] = x[plane * size + max_of(pool, x + plane * size, oy, ox)];
}

static void pool_zero(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = 0.0f;
}

static void maxpool_backward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n,
                             const float *x, const float *y, const float *dy, float *const *w, float *dx,
                             float *const *g)
{
    const mst_pool *pool = (const mst_pool *)self;
    size_t size = (size_t)self->in.h * self->in.w;
    (void)state, (void)pass, (void)w, (void)g, (void)y;
    if (dx == NULL)
        return;
    pool_zero(dx, n * mst_dims_size(&self->in));
    EACH_WINDOW(self, n)
    dx[plane * size + max_of(pool, x + plane * size, oy, ox)] += dy[i];
}

static void avgpool_forward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n,
                            const float *x, float *const *w, float *y)
{
    const mst_pool *pool = (const mst_pool *)self;
    size_t size = (size_t)self->in.h * self->in.w;
    float scale = 1.0f / ((float)pool->window.kh * (float)pool->window.kw);
    (void)state, (void)pass, (void)w;
    EACH_WINDOW(self, n)
    {
        mst_window_area part = mst_window_at(&pool->window, &self->in, oy, ox);
        float sum = 0.0f;
        for (uint32_t r = part.y0; r < part.y1; r++)
            for (uint32_t c = part.x0; c < part.x1; c++)
                sum += x[plane * size + (size_t)r * self->in.w + c];
        y[i] = sum * scale;
    }
}

static void avgpool_backward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n,
                             const float *x, const float *y, const float *dy, float *const *w, float *dx,
                             float *const *g)
{
    const mst_pool *pool = (const mst_pool *)self;
    size_t size = (size_t)self->in.h * self->in.w;
    float scale = 1.0f / ((float)pool->window.kh * (float)pool->window.kw);
    (void)state, (void)pass, (void)w, (void)g, (void)x, (void)y;
    if (dx == NULL)
        return;
    pool_zero(dx, n * mst_dims_size(&self->in));
    EACH_WINDOW(self, n)
    {
        mst_window_area part = mst_window_at(&pool->window, &self->in, oy, ox);
        for (uint32_t r = part.y0; r < part.y1; r++)
            for (uint32_t c = part.x0; c < part.x1; c++)
                dx[plane * size + (size_t)r * self->in.w + c] += dy[i] * scale;
    }
}

const mst_layer_ops mst_layer_maxpool = {
    .name = "maxpool",
    .help = "the largest number of each window: maxpool kernel=2 (stride, pad)",
    .size = sizeof(mst_pool),
    .options = pool_options,
    .options_at = offsetof(mst_pool, options),
    .main_option = "kernel",
    .shape = pool_shape,
    .flops = pool_flops,
    .forward = maxpool_forward,
    .backward = maxpool_backward,
};

const mst_layer_ops mst_layer_avgpool = {
    .name = "avgpool",
    .help = "the average of each window, padding counted as zeros: avgpool kernel=2 (stride, pad)",
    .size = sizeof(mst_pool),
    .options = pool_options,
    .options_at = offsetof(mst_pool, options),
    .main_option = "kernel",
    .shape = pool_shape,
    .flops = pool_flops,
    .forward = avgpool_forward,
    .backward = avgpool_backward,
};
