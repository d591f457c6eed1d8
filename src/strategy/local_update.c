/* Strategy local: summing gradients and applying updates; contract in local_impl.h. */
#include <string.h>

#include "base/racy.h"
#include "strategy/local_impl.h"
#include "tensor/clip.h"
#include "tensor/past_caches.h"

#define STREAM_PART 1024 /* floats */

mst_status mst_local_sum_sparse(mst_local *self, unsigned t, unsigned n_sources, mst_local_thread *sources)
{
    mst_local_thread *w = &self->threads[t];
    size_t n = 0;
    uint32_t width = w->grad.width;
    unsigned owner = n_sources == 1 ? 0 : t;
    if (width == 0)
        return MST_OK;
    for (unsigned s = 0; s < n_sources; s++)
        n += sources[s].grad.owners[owner].n;
    TRY(mst_key_sums_begin(&w->key_sums, n, width));
    for (unsigned s = 0; s < n_sources; s++)
        mst_key_sums_add(&w->key_sums, &sources[s].grad.owners[owner], width);
    return MST_OK;
}

/* Applies the sums in the scratch floats of keys. */
static void local_apply_touched(const mst_local *self, const mst_update *u, const mst_linear *rows,
                                const uint32_t *keys, size_t n)
{
    const mst_optimizer *optimizer = mst_optimizer_of_keys(self->base.env.optimizer);
    mst_update numbers = mst_update_of_keys(self->base.env.optimizer, u);
    mst_rule rule = optimizer->ops->rule(optimizer, &numbers);
    self->base.env.model->kernels->apply_touched(&rule, rows, keys, n);
}

void mst_local_apply_picks(mst_local *self, unsigned t, uint32_t n_rows, const mst_update *u)
{
    mst_local_thread *w = &self->threads[t];
    const mst_kernels *kernels = self->base.env.model->kernels;
    mst_linear rows = {.sparse = self->weights.sparse, .stride = self->weights.stride};
    size_t n = 0;
    uint64_t start = mst_trace_now();
    for (unsigned i = 0; i < self->n; i++) {
        unsigned block = (t + i) % self->n;
        kernels->approach_picks(&w->picks, block, &rows);
        if (i > 0)
            mst_team_follow(self->team, t, (t + 1) % self->n);
        if (self->weights.by_rows)
            n += kernels->collect_picks(&w->picks, block, w->coefs, 1.0f / (float)n_rows, &rows,
                                        w->touched.keys + n, NULL);
        else
            kernels->subtract_picks(&w->picks, block, w->coefs, u->lr / (float)n_rows, rows.sparse, NULL);
        mst_team_pass(self->team, t);
    }
    mst_trace_op("take turns", start, (mst_trace_output){0});
    if (!self->weights.by_rows)
        return;
    mst_local_barrier(self, t, MST_PHASE_APPLY); /* all sums are complete */
    start = mst_trace_now();
    local_apply_touched(self, u, &rows, w->touched.keys, n);
    mst_trace_op("apply keys", start, mst_trace_floats(n, 0));
}

void mst_local_apply_own(mst_local *self, unsigned t, uint32_t n_rows, bool last, const mst_update *u)
{
    mst_local_thread *w = &self->threads[t];
    const mst_kernels *kernels = self->base.env.model->kernels;
    mst_linear rows = {.sparse = self->weights.sparse, .stride = self->weights.stride};
    uint64_t start = mst_trace_now();
    size_t n = w->picks.ends[0];
    const mst_picks *next = last ? NULL : &w->next;
    for (uint32_t i = 0; i < n_rows; i += 16) /* those of other threads, side by side */
        __builtin_prefetch(self->coefs + i);
    if (self->weights.by_rows) {
        n = kernels->collect_picks(&w->picks, 0, self->coefs, 1.0f / (float)n_rows, &rows, w->touched.keys,
                                   next);
        local_apply_touched(self, u, &rows, w->touched.keys, n);
    } else {
        kernels->subtract_picks(&w->picks, 0, self->coefs, u->lr / (float)n_rows, rows.sparse, next);
    }
    mst_trace_op("apply keys", start, mst_trace_floats(n, 0));
}

void mst_local_begin_popular(mst_local *self, unsigned t)
{
    if (self->n_popular > 0)
        memset(self->threads[t].hot_sums, 0, (self->n_popular + MST_PLACES_BEHIND) * sizeof(float));
}

/* The sums of all threads for places [from, to) of the popular keys, into those of thread 0. */
static void local_sum_popular(mst_local *self, uint64_t from, uint64_t to)
{
    for (unsigned s = 0; s < self->n; s++)
        for (uint64_t i = from; i < to; i += 16)
            __builtin_prefetch(self->threads[s].hot_sums + i);
    float *restrict sum = self->threads[0].hot_sums;
    for (unsigned s = 1; s < self->n; s++) {
        const float *restrict add = self->threads[s].hot_sums;
        for (uint64_t i = from; i < to; i++)
            sum[i] += add[i];
    }
}

void mst_local_apply_popular(mst_local *self, unsigned t, uint32_t n_rows, const mst_update *u)
{
    mst_local_thread *w = &self->threads[t];
    uint64_t from, to;
    mst_grad_slice(self->n_popular, t, self->n, &from, &to);
    if (from == to)
        return;
    local_sum_popular(self, from, to);
    const float *sums = self->threads[0].hot_sums;
    float *weights = self->weights.sparse + (size_t)self->popular * self->weights.stride;
    if (!self->weights.by_rows) {
        float rate = u->lr / (float)n_rows;
        for (uint64_t i = from; i < to; i++)
            weights[i] -= rate * sums[i];
        return;
    }
    size_t n = 0;
    float scale = 1.0f / (float)n_rows;
    for (uint64_t i = from; i < to; i++) {
        if (sums[i] == 0.0f)
            continue;
        w->touched.keys[n++] = self->popular + (uint32_t)i;
        weights[(i + 1) * self->weights.stride - 1] = sums[i] * scale; /* the scratch float */
    }
    mst_linear rows = {.sparse = self->weights.sparse, .stride = self->weights.stride};
    local_apply_touched(self, u, &rows, w->touched.keys, n);
}

MST_RACY void mst_local_apply_list(mst_local *self, float lr, const mst_contributions *list, uint32_t width)
{
    enum { AHEAD = 64 };
    float *w = self->weights.sparse;
    size_t stride = self->weights.stride;
    for (size_t i = 0; i < list->n; i++) {
        if (i + AHEAD < list->n)
            __builtin_prefetch(&w[list->keys[i + AHEAD] * stride], 1);
        float *at = w + list->keys[i] * stride;
        for (uint32_t c = 0; c < width; c++)
            at[c] -= lr * list->values[i * width + c];
    }
}

void mst_local_sum_dense(mst_local *self, unsigned t, unsigned n_parts)
{
    mst_grad *to = &self->threads[t].grad;
    if (self->shows)
        mst_grad_sum_slices(&self->parts[0].shown, sizeof *self->parts, n_parts, t, self->n, to);
    else if (self->n > 1)
        mst_grad_sum_slices(&self->threads[0].grad, sizeof *self->threads, self->n, t, self->n, to);
}

double mst_local_square(const mst_grad *grad, const mst_key_sums *l, unsigned t, unsigned n)
{
    double square = grad->width != 0 ? mst_clip_squares(l->sums, (size_t)l->n * grad->width) : 0.0;
    for (uint32_t r = 0; r < grad->n_ranges; r++) {
        uint64_t from, to;
        if (grad->ranges[r].state)
            continue;
        mst_grad_slice(grad->ranges[r].size, t, n, &from, &to);
        square += mst_clip_squares(grad->ranges[r].g + from, to - from);
    }
    return square;
}

float mst_local_clip(const mst_local *self, double square)
{
    return mst_clip_factor(square, self->base.env.optimizer->options.clip_norm);
}

/* With asynchronous threads the last write wins. */
MST_RACY static void local_replace(float *w, const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        w[i] = values[i];
}

/* Updates weights that all threads read next. */
static void local_apply_streamed(const mst_local *self, const mst_update *u, uint64_t at, const float *g,
                                 size_t n)
{
    _Alignas(64) float part[STREAM_PART];
    mst_params *params = self->base.env.params;
    for (size_t some; n > 0; at += some, g += some, n -= some) {
        some = n < STREAM_PART ? n : STREAM_PART;
        memcpy(part, params->w + at, some * sizeof *part);
        mst_optimizer_apply_copy(self->base.env.optimizer, u, params, at, part, g, some);
        mst_stream_copy(params->w + at, part, some);
    }
}

void mst_local_apply_dense(mst_local *self, mst_grad *grad, const mst_grad *state, unsigned t, unsigned n,
                           float clip, const mst_update *u)
{
    mst_params *params = self->base.env.params;
    for (uint32_t r = 0; r < grad->n_ranges; r++) {
        uint64_t from, to;
        mst_grad_slice(grad->ranges[r].size, t, n, &from, &to);
        if (from == to)
            continue;
        float *g = grad->ranges[r].g + from;
        uint64_t at = grad->ranges[r].offset + from;
        if (grad->ranges[r].state) {
            local_replace(params->w + at, state->ranges[r].g + from, to - from);
            continue;
        }
        mst_clip_scale(g, to - from, clip);
        if (self->streams && (uintptr_t)(params->w + at) % 64 == 0)
            local_apply_streamed(self, u, at, g, to - from);
        else
            mst_optimizer_apply_range(self->base.env.optimizer, u, params, at, g, to - from);
    }
    if (self->streams)
        mst_stream_end();
}

void mst_local_show_grad(const mst_local *self, const mst_local_thread *w, unsigned part)
{
    if (!self->streams)
        return;
    uint64_t start = mst_trace_now();
    mst_grad_show(&w->grad, &self->parts[part].shown);
    mst_trace_op("show", start, (mst_trace_output){0});
}

mst_grad *mst_local_begin_grad(mst_local *self, unsigned t, unsigned part)
{
    uint64_t start = mst_trace_now();
    mst_grad *grad = self->shows && !self->streams ? &self->parts[part].shown : &self->threads[t].grad;
    if (self->base.env.model->overwrites)
        mst_grad_renew(grad);
    else
        mst_grad_clear(grad);
    mst_trace_op("clear", start, (mst_trace_output){0});
    return grad;
}

void mst_local_trace_apply(const mst_local_thread *w, uint64_t from_ns)
{
    uint64_t n = w->grad.width != 0 ? (uint64_t)w->key_sums.n * w->grad.width : 0;
    for (uint32_t r = 0; r < w->grad.n_ranges; r++)
        n += w->grad.ranges[r].size;
    mst_trace_op("apply", from_ns, mst_trace_floats(n, 0));
}

/* An update that is divided among the threads of a model. */
typedef struct local_shares {
    mst_local *self;
    mst_local_thread *w;
    float clip;
    const mst_update *u;
} local_shares;

static void local_apply_share(void *arg, unsigned i)
{
    const local_shares *p = arg;
    mst_local_apply_dense(p->self, &p->w->grad, &p->w->grad, i, p->self->inner, p->clip, p->u);
}

void mst_local_apply_alone(mst_local *self, mst_local_thread *w, float clip, const mst_update *u)
{
    local_shares p = {.self = self, .w = w, .clip = clip, .u = u};
    mst_model_each(self->base.env.model, w->scratch, self->inner, local_apply_share, &p);
}

void mst_local_apply_sparse(mst_local *self, unsigned t, float clip, const mst_update *u)
{
    mst_key_sums *l = &self->threads[t].key_sums;
    const mst_grad *grad = &self->threads[t].grad;
    if (grad->width == 0)
        return;
    mst_clip_scale(l->sums, (size_t)l->n * grad->width, clip);
    mst_optimizer_apply_keys(self->base.env.optimizer, u, self->base.env.params, grad->sparse_offset,
                             grad->width, l->keys, l->sums, l->n);
}
