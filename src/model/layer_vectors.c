/* Layers over vectors of one length, such as the fields of an embedding: fm and dot.
 *
 *   fm    sum over pairs of vectors of their product, elementwise, by ((sum v)^2 - sum v^2) / 2: K numbers,
 * or their sum dot   the dot product of every pair i < j, in the order (0,1), (0,2), (1,2), (0,3), ... */
#include <string.h>

#include "model/layer_impl.h"

mst_status mst_layer_vectors(const mst_layer *self, uint32_t *n, uint32_t *length)
{
    *n = *length = 0;
    for (uint32_t i = 0; i < self->n_inputs; i++) {
        const mst_dims *d = &self->parts[i];
        bool vectors = d->h == 1 && d->w > 1;
        uint32_t k = vectors ? d->w : (uint32_t)mst_dims_size(d);
        if (k == 0)
            continue;
        if (*length != 0 && k != *length)
            return mst_fail(MST_EINPUT, "%s: its vectors have %u and %u numbers; they must be equally long",
                            self->name, *length, k);
        *length = k;
        *n += vectors ? d->c : 1;
    }
    if (*n < 2)
        return mst_fail(MST_EINPUT,
                        "%s: it reads one vector; pairs need two, such as an embedding of several fields",
                        self->name);
    return MST_OK;
}

/* ---- fm ---- */

static const mst_option fm_options[] = {
    {.name = "sum",
     .type = MST_OPTION_FLAG,
     .offset = 0,
     .fallback = "true",
     .help = "One number; false: one per element of the vectors."},
    {.name = NULL},
};

static mst_status fm_shape(mst_layer *self)
{
    uint32_t n, k;
    TRY(mst_layer_vectors(self, &n, &k));
    self->out = (mst_dims){((const mst_fm *)self)->options.sum ? 1 : k, 1, 1};
    return MST_OK;
}

static uint64_t fm_flops(const mst_layer *self)
{
    return 3 * mst_dims_size(&self->in);
}

static void fm_forward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n, const float *x,
                       float *const *w, float *y)
{
    uint32_t n_vectors, k, out = self->out.c;
    (void)state, (void)pass, (void)w;
    if (mst_layer_vectors(self, &n_vectors, &k) != MST_OK)
        return;
    for (uint32_t r = 0; r < n; r++, x += (size_t)n_vectors * k, y += out) {
        memset(y, 0, out * sizeof *y);
        for (uint32_t j = 0; j < k; j++) {
            double sum = 0.0, squares = 0.0;
            for (uint32_t v = 0; v < n_vectors; v++) {
                double value = (double)x[(size_t)v * k + j];
                sum += value;
                squares += value * value;
            }
            y[out == 1 ? 0 : j] += (float)(0.5 * (sum * sum - squares));
        }
    }
}

static void fm_backward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n, const float *x,
                        const float *y, const float *dy, float *const *w, float *dx, float *const *g)
{
    uint32_t n_vectors, k, out = self->out.c;
    (void)state, (void)pass, (void)y, (void)w, (void)g;
    if (dx == NULL || mst_layer_vectors(self, &n_vectors, &k) != MST_OK)
        return;
    for (uint32_t r = 0; r < n; r++, x += (size_t)n_vectors * k, dx += (size_t)n_vectors * k, dy += out)
        for (uint32_t j = 0; j < k; j++) {
            float sum = 0.0f, d = dy[out == 1 ? 0 : j];
            for (uint32_t v = 0; v < n_vectors; v++)
                sum += x[(size_t)v * k + j];
            for (uint32_t v = 0; v < n_vectors; v++)
                dx[(size_t)v * k + j] = d * (sum - x[(size_t)v * k + j]);
        }
}

const mst_layer_ops mst_layer_fm = {
    .name = "fm",
    .help = "second-order term of a factorisation machine over vectors: fm from=embedding (sum=false: per "
            "element)",
    .size = sizeof(mst_fm),
    .options = fm_options,
    .options_at = offsetof(mst_fm, options),
    .many = true,
    .shape = fm_shape,
    .flops = fm_flops,
    .forward = fm_forward,
    .backward = fm_backward,
};

/* ---- dot ---- */

static mst_status dot_shape(mst_layer *self)
{
    uint32_t n, k;
    TRY(mst_layer_vectors(self, &n, &k));
    if (n > 1 << 14)
        return mst_fail(MST_EINPUT, "%s: it reads %u vectors; at most 2^14 are possible", self->name, n);
    self->out = (mst_dims){n * (n - 1) / 2, 1, 1};
    return MST_OK;
}

static uint64_t dot_flops(const mst_layer *self)
{
    uint32_t n = 0, k = 0;
    return mst_layer_vectors(self, &n, &k) == MST_OK ? 2ull * self->out.c * k : 0;
}

static void dot_forward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n, const float *x,
                        float *const *w, float *y)
{
    uint32_t n_vectors, k;
    (void)state, (void)pass, (void)w;
    if (mst_layer_vectors(self, &n_vectors, &k) != MST_OK)
        return;
    for (uint32_t r = 0; r < n; r++, x += (size_t)n_vectors * k)
        for (uint32_t i = 1; i < n_vectors; i++)
            for (uint32_t j = 0; j < i; j++) {
                const float *a = x + (size_t)i * k, *b = x + (size_t)j * k;
                float sum = 0.0f;
                for (uint32_t e = 0; e < k; e++)
                    sum += a[e] * b[e];
                *y++ = sum;
            }
}

static void dot_backward(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n, const float *x,
                         const float *y, const float *dy, float *const *w, float *dx, float *const *g)
{
    uint32_t n_vectors, k;
    (void)state, (void)pass, (void)y, (void)w, (void)g;
    if (dx == NULL || mst_layer_vectors(self, &n_vectors, &k) != MST_OK)
        return;
    memset(dx, 0, n * mst_dims_size(&self->in) * sizeof *dx);
    for (uint32_t r = 0; r < n; r++, x += (size_t)n_vectors * k, dx += (size_t)n_vectors * k)
        for (uint32_t i = 1; i < n_vectors; i++)
            for (uint32_t j = 0; j < i; j++) {
                const float *a = x + (size_t)i * k, *b = x + (size_t)j * k;
                float *da = dx + (size_t)i * k, *db = dx + (size_t)j * k, d = *dy++;
                for (uint32_t e = 0; e < k; e++) {
                    da[e] += d * b[e];
                    db[e] += d * a[e];
                }
            }
}

const mst_layer_ops mst_layer_dot = {
    .name = "dot",
    .help = "dot products of all pairs of vectors: dot from=embedding,NAME",
    .size = sizeof(mst_layer),
    .many = true,
    .shape = dot_shape,
    .flops = dot_flops,
    .forward = dot_forward,
    .backward = dot_backward,
};
