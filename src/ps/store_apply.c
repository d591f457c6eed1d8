/* A server's store: applying the mean gradient of some pushes; contract in store.h.
 *
 * Additive optimizers apply every push by itself: w -= lr * factor * g, push after push. Others need the mean
 * of a weight's gradients first: the pushes are walked together, ranges by their bounds and keys in a merge,
 * and every chunk of means goes to the optimizer at once, so that no vector of means is ever stored. Clipping
 * walks twice: once for the norm, once to apply.
 *
 * The flat vector and the keys are divided into one share per thread, at quantiles of the largest push.
 *
 * Invariants
 * 1. A weight is read and written by one thread, and its gradients are added in the order of the pushes: the
 * result does not depend on the number of threads (with clipping the norm's last bits do).
 * 2. A single push is multiplied by the learning rate only; products and sums are rounded separately, as in
 * optim/rules.c. One asynchronous worker therefore computes the same weights as local training. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "observe/trace_file.h"
#include "ps/store_impl.h"
#include "tensor/clip.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#define WALK_MIN 4096 /* keys from which a walk may be faster */
#define BLOCK    16   /* keys of a push that are applied before the pull follows */

struct mst_store_push {
    const mst_key_list *list;
    const uint8_t *values;
    uint64_t floats, range_floats;
    mst_float_format wire;
    float factor; /* its rows over all rows */
    bool plain;   /* values are aligned fp32 and used in place */
};

/* Reading position of one thread in one push. */
struct mst_store_cursor {
    uint64_t window_from, window_to; /* floats of the push that the window holds */
    uint64_t before;                 /* floats of the ranges before `range` */
    uint32_t range;
    uint32_t key, key_end; /* numbers in the list */
};

typedef struct apply {
    mst_store *store;
    const mst_update *update;
    uint32_t n;
    unsigned n_threads;
    bool additive, measure; /* measure: sum squares, change nothing */
    uint64_t from, to;      /* of the flat vector; to UINT64_MAX: and all keys */
    float clip;
    const mst_key_list *pull; /* additive, one push: keys to read while applying; NULL: none */
    uint8_t *out;             /* their floats */
    uint64_t float_cuts[MST_STORE_THREADS + 1], key_cuts[MST_STORE_THREADS + 1];
    double squares[MST_STORE_THREADS];
} apply;

/* ---- reading pushes ---- */

/* At least one and at most *n floats of a push from number `at` on, as floats; *n is set to how many. */
static const float *store_floats_at(const apply *job, unsigned t, uint32_t p, uint64_t at, size_t *n)
{
    mst_store *self = job->store;
    const mst_store_push *push = &self->pushes[p];
    if (push->plain)
        return (const float *)(const void *)push->values + at;
    size_t number = (size_t)t * self->options.n_workers + p;
    mst_store_cursor *c = &self->cursors[number];
    float *window = self->windows + number * self->chunk;
    size_t wanted = *n < self->chunk ? *n : self->chunk;
    if (at < c->window_from || at + wanted > c->window_to) {
        uint64_t left = push->floats - at, size = left < self->chunk ? left : self->chunk;
        mst_float_decode(push->wire, push->values + at * mst_float_size(push->wire), (size_t)size, window);
        c->window_from = at;
        c->window_to = at + size;
    }
    *n = wanted;
    return window + (at - c->window_from);
}

/* Number of the first key of a list that is not below `key`. */
static uint32_t store_first_key(const mst_key_list *list, uint64_t key)
{
    return (uint32_t)mst_keys_below(list->keys, list->n_keys, key);
}

/* ---- additive ---- */

static void store_subtract_range(float *restrict w, const float *restrict g, size_t n, float by)
{
    for (size_t i = 0; i < n; i++)
        w[i] -= by * g[i];
}

static void store_subtract_keys(float *w, uint32_t width, const uint32_t *keys, const float *g, size_t n,
                                float by)
{
    size_t near = n > MST_STORE_AHEAD ? n - MST_STORE_AHEAD : 0, i = 0;
    if (width == 1) {
        for (; i < near; i++) {
            __builtin_prefetch(&w[keys[i + MST_STORE_AHEAD]], 1, 2);
            w[keys[i]] -= by * g[i];
        }
        for (; i < n; i++)
            w[keys[i]] -= by * g[i];
        return;
    }
    for (; i < n; i++, g += width) {
        if (i < near)
            __builtin_prefetch(&w[(size_t)keys[i + MST_STORE_AHEAD] * width], 1, 2);
        store_subtract_range(w + (size_t)keys[i] * width, g, width, by);
    }
}

/* Brings the lines from `line` up to that of `end` into the cache, in order: the processor prefetches
 * consecutive loads, and not scattered ones. Returns the next line. */
static const char *store_touch_lines(const char *line, const float *end)
{
    for (; line <= (const char *)end; line += 64)
        (void)*(const volatile char *)line;
    return line;
}

/* One push of single plain floats and its pull: applies a block of keys, then reads the pulled keys up to
 * there while their lines are in the cache. */
static void store_walk_keys(const apply *job, unsigned t, float by)
{
    const mst_store *self = job->store;
    const mst_store_push *push = &self->pushes[0];
    const uint32_t *pushed = push->list->keys, *pulled = job->pull->keys;
    const float *g = (const float *)(const void *)push->values + push->range_floats;
    float *w = self->options.params->w + self->options.table->sparse_offset;
    uint32_t p = store_first_key(push->list, job->key_cuts[t]),
             p_end = store_first_key(push->list, job->key_cuts[t + 1]);
    uint32_t q = store_first_key(job->pull, job->key_cuts[t]),
             q_end = store_first_key(job->pull, job->key_cuts[t + 1]);
    uint32_t low = p < p_end ? pushed[p] : 0;
    low = q < q_end && pulled[q] < low ? pulled[q] : low;
    const char *line = (const char *)((uintptr_t)&w[low] / 64 * 64);
    while (p < p_end) {
        uint32_t block = p_end - p < BLOCK ? p_end : p + BLOCK, last = pushed[block - 1];
        line = store_touch_lines(line, &w[last]);
        for (; p < block; p++)
            w[pushed[p]] -= by * g[p];
        for (; q < q_end && pulled[q] <= last; q++)
            memcpy(job->out + (size_t)q * sizeof *w, &w[pulled[q]], sizeof *w);
    }
    mst_store_read_keys(w, 1, pulled + q, q_end - q, job->out + (size_t)q * sizeof *w);
}

/* One push in thread t's share. */
static void store_subtract_push(const apply *job, unsigned t, uint32_t p)
{
    const mst_store *self = job->store;
    const mst_store_push *push = &self->pushes[p];
    const mst_key_list *list = push->list;
    float *w = self->options.params->w, by = job->update->lr;
    uint32_t width = self->options.table->width;
    uint64_t before = 0;
    if (push->factor != 1.0f)
        by *= push->factor;
    for (uint32_t r = 0; r < list->n_ranges; before += list->ranges[r++].count) {
        uint64_t first = list->ranges[r].first, end = first + list->ranges[r].count;
        uint64_t from = first > job->float_cuts[t] ? first : job->float_cuts[t];
        uint64_t to = end < job->float_cuts[t + 1] ? end : job->float_cuts[t + 1];
        while (from < to) {
            size_t n = (size_t)(to - from);
            const float *g = store_floats_at(job, t, p, before + (from - first), &n);
            store_subtract_range(w + from, g, n, by);
            from += n;
        }
    }
    if (job->pull != NULL) {
        store_walk_keys(job, t, by);
        return;
    }
    if (list->n_keys == 0)
        return;
    w += self->options.table->sparse_offset;
    uint32_t key = store_first_key(list, job->key_cuts[t]), end = store_first_key(list, job->key_cuts[t + 1]);
    while (key < end) {
        size_t n = (size_t)(end - key) * width;
        const float *g = store_floats_at(job, t, p, push->range_floats + (uint64_t)key * width, &n);
        store_subtract_keys(w, width, list->keys + key, g, n / width, by);
        key += (uint32_t)(n / width);
    }
}

/* ---- means ---- */

/* Prepares g, which may be the thread's chunk, for the optimizer. */
static const float *store_clipped(const apply *job, unsigned t, const float *g, size_t n)
{
    if (job->clip == 1.0f)
        return g;
    float *chunk = job->store->chunks + t * job->store->chunk;
    for (size_t i = 0; i < n; i++)
        chunk[i] = g[i] * job->clip;
    return chunk;
}

static void store_take_range(apply *job, unsigned t, uint64_t at, const float *g, size_t n)
{
    const mst_store_options *o = &job->store->options;
    if (job->measure) {
        job->squares[t] += mst_clip_squares(g, n);
        return;
    }
    mst_optimizer_apply_range(o->optimizer, job->update, o->params, at, store_clipped(job, t, g, n), n);
}

static void store_take_keys(apply *job, unsigned t, const uint32_t *keys, const float *g, size_t n)
{
    const mst_store_options *o = &job->store->options;
    uint32_t width = o->table->width;
    if (job->measure) {
        job->squares[t] += mst_clip_squares(g, n * width);
        return;
    }
    mst_optimizer_apply_keys(o->optimizer, job->update, o->params, o->table->sparse_offset, width, keys,
                             store_clipped(job, t, g, n * width), n);
}

/* Adds n floats of a push to sums, or starts them. */
static void store_add_floats(float *restrict sums, const float *restrict g, size_t n, float factor,
                             bool start)
{
    if (start)
        for (size_t i = 0; i < n; i++)
            sums[i] = factor * g[i];
    else
        for (size_t i = 0; i < n; i++)
            sums[i] += factor * g[i];
}

/* A chunk fits a thread's buffer; a single plain push without clipping needs no buffer. */
static size_t store_chunk_of(const apply *job)
{
    const mst_store *self = job->store;
    bool alone = job->n == 1 && self->pushes[0].plain && job->clip == 1.0f;
    return alone ? SIZE_MAX : self->chunk;
}

/* The next floats from `pos` on that some push has in a range, up to the next bound of any push: [*pos,
 * returned). *pos == end: there are none. */
static uint64_t store_next_piece(const apply *job, unsigned t, uint64_t *pos, uint64_t end)
{
    mst_store *self = job->store;
    uint64_t from = end, to = end;
    for (uint32_t p = 0; p < job->n; p++) {
        const mst_key_list *list = self->pushes[p].list;
        mst_store_cursor *c = &self->cursors[(size_t)t * self->options.n_workers + p];
        while (c->range < list->n_ranges &&
               list->ranges[c->range].first + list->ranges[c->range].count <= *pos)
            c->before += list->ranges[c->range++].count;
        if (c->range < list->n_ranges && list->ranges[c->range].first < from)
            from = list->ranges[c->range].first > *pos ? list->ranges[c->range].first : *pos;
    }
    for (uint32_t p = 0; p < job->n && from < end; p++) {
        const mst_key_list *list = self->pushes[p].list;
        const mst_store_cursor *c = &self->cursors[(size_t)t * self->options.n_workers + p];
        if (c->range == list->n_ranges)
            continue;
        const mst_extent *e = &list->ranges[c->range];
        uint64_t bound = e->first > from ? e->first : e->first + e->count;
        to = bound < to ? bound : to;
    }
    *pos = from;
    return to;
}

static void store_mean_ranges(apply *job, unsigned t)
{
    mst_store *self = job->store;
    float *sums = self->chunks + t * self->chunk;
    uint64_t pos = job->float_cuts[t], end = job->float_cuts[t + 1], to;
    size_t most = store_chunk_of(job);
    while (to = store_next_piece(job, t, &pos, end), pos < end) {
        while (pos < to) {
            size_t n = to - pos < most ? (size_t)(to - pos) : most;
            const float *mean = sums;
            bool start = true;
            for (uint32_t p = 0; p < job->n; p++) {
                const mst_key_list *list = self->pushes[p].list;
                const mst_store_cursor *c = &self->cursors[(size_t)t * self->options.n_workers + p];
                if (c->range == list->n_ranges || list->ranges[c->range].first > pos)
                    continue;
                const float *g =
                    store_floats_at(job, t, p, c->before + (pos - list->ranges[c->range].first), &n);
                if (job->n == 1 && self->pushes[p].factor == 1.0f)
                    mean = g;
                else
                    store_add_floats(sums, g, n, self->pushes[p].factor, start);
                start = false;
            }
            store_take_range(job, t, pos, mean, n);
            pos += n;
        }
    }
}

/* One push: its keys are distinct already. */
static void store_single_keys(apply *job, unsigned t)
{
    const mst_store *self = job->store;
    const mst_store_push *push = &self->pushes[0];
    uint32_t width = self->options.table->width;
    uint32_t key = store_first_key(push->list, job->key_cuts[t]),
             end = store_first_key(push->list, job->key_cuts[t + 1]);
    size_t most = store_chunk_of(job);
    while (key < end) {
        size_t n = (size_t)(end - key) * width;
        n = n < most ? n : most / width * width;
        const float *g = store_floats_at(job, t, 0, push->range_floats + (uint64_t)key * width, &n);
        store_take_keys(job, t, push->list->keys + key, g, n / width);
        key += (uint32_t)(n / width);
    }
}

/* A heap of (key, push), smallest first: equal keys come out in the order of the pushes. */
static void store_sift_down(uint64_t *heap, uint32_t n, uint32_t at)
{
    uint64_t moved = heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= n)
            break;
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (moved <= heap[child])
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
}

static void store_merged_keys(apply *job, unsigned t)
{
    mst_store *self = job->store;
    uint32_t width = self->options.table->width, n_heap = 0;
    uint64_t *heap = self->heaps + (size_t)t * self->options.n_workers;
    mst_store_cursor *cursors = self->cursors + (size_t)t * self->options.n_workers;
    float *sums = self->chunks + t * self->chunk;
    uint32_t *keys = self->chunk_keys + t * self->chunk;
    size_t n = 0, most = self->chunk / width;
    for (uint32_t p = 0; p < job->n; p++) {
        const mst_key_list *list = self->pushes[p].list;
        cursors[p].key = store_first_key(list, job->key_cuts[t]);
        cursors[p].key_end = store_first_key(list, job->key_cuts[t + 1]);
        if (cursors[p].key < cursors[p].key_end)
            heap[n_heap++] = (uint64_t)list->keys[cursors[p].key] << 32 | p;
    }
    for (uint32_t i = n_heap / 2; i-- > 0;)
        store_sift_down(heap, n_heap, i);
    while (n_heap > 0) {
        uint32_t key = (uint32_t)(heap[0] >> 32), p = (uint32_t)heap[0];
        const mst_store_push *push = &self->pushes[p];
        mst_store_cursor *c = &cursors[p];
        bool start = n == 0 || keys[n - 1] != key;
        if (start && n == most) {
            store_take_keys(job, t, keys, sums, n);
            n = 0;
        }
        if (start)
            keys[n++] = key;
        size_t count = width;
        const float *g = store_floats_at(job, t, p, push->range_floats + (uint64_t)c->key * width, &count);
        store_add_floats(sums + (n - 1) * width, g, width, push->factor, start);
        if (++c->key < c->key_end)
            heap[0] = (uint64_t)push->list->keys[c->key] << 32 | p;
        else
            heap[0] = heap[--n_heap];
        store_sift_down(heap, n_heap, 0);
    }
    if (n > 0)
        store_take_keys(job, t, keys, sums, n);
}

/* ---- threads ---- */

static void store_run_part(void *arg, unsigned t)
{
    apply *job = arg;
    mst_store *self = job->store;
    memset(self->cursors + (size_t)t * self->options.n_workers, 0, job->n * sizeof *self->cursors);
    if (job->additive) {
        for (uint32_t p = 0; p < job->n; p++)
            store_subtract_push(job, t, p);
        return;
    }
    job->squares[t] = 0.0;
    store_mean_ranges(job, t);
    if (self->options.table->width == 0)
        return;
    if (job->n == 1)
        store_single_keys(job, t);
    else
        store_merged_keys(job, t);
}

/* Divides the work among the threads, at quantiles of the push with most floats. */
static void store_divide(apply *job)
{
    const mst_store_push *most = &job->store->pushes[0];
    for (uint32_t p = 1; p < job->n; p++)
        if (job->store->pushes[p].floats > most->floats)
            most = &job->store->pushes[p];
    uint64_t before = 0, low = mst_key_list_below(most->list, job->from),
             high = mst_key_list_below(most->list, job->to);
    uint32_t r = 0;
    bool keys = job->to == UINT64_MAX;
    job->float_cuts[0] = job->from;
    for (unsigned t = 1; t < job->n_threads; t++) {
        uint64_t at = low + (high - low) * t / job->n_threads;
        while (r < most->list->n_ranges && before + most->list->ranges[r].count <= at)
            before += most->list->ranges[r++].count;
        job->float_cuts[t] = r < most->list->n_ranges
                                 ? (most->list->ranges[r].first + (at - before)) / 16 * 16
                                 : job->float_cuts[t - 1];
        job->float_cuts[t] = job->float_cuts[t] > job->from ? job->float_cuts[t] : job->from;
        job->float_cuts[t] = job->float_cuts[t] < job->to ? job->float_cuts[t] : job->to;
        uint32_t n = most->list->n_keys;
        job->key_cuts[t] = n > 0 && keys ? most->list->keys[(uint64_t)n * t / job->n_threads] / 16 * 16 : 0;
    }
    job->float_cuts[job->n_threads] = job->to;
    job->key_cuts[job->n_threads] = keys ? UINT64_MAX : 0;
}

static void store_run(apply *job)
{
    if (job->n_threads > 1)
        mst_team_run(job->store->team, store_run_part, job);
    else
        store_run_part(job, 0);
}

/* ---- from outside ---- */

static mst_status store_make_room(mst_store *self, bool windows)
{
    size_t n = self->options.n_workers, n_all = n * self->options.n_threads;
    if (self->pushes == NULL)
        self->pushes = mst_calloc(n, sizeof *self->pushes);
    if (self->cursors == NULL)
        self->cursors = mst_calloc(n_all, sizeof *self->cursors);
    if (self->heaps == NULL)
        self->heaps = mst_calloc(n_all, sizeof *self->heaps);
    if (windows && self->windows == NULL)
        self->windows = mst_calloc(n_all, self->chunk * sizeof *self->windows);
    if (self->pushes == NULL || self->cursors == NULL || self->heaps == NULL ||
        (windows && self->windows == NULL))
        return mst_fail_memory();
    return MST_OK;
}

void mst_store_apply_fini(mst_store *self)
{
    mst_free(self->pushes);
    mst_free(self->cursors);
    mst_free(self->heaps);
    mst_free(self->windows);
}

/* Whether the floats can be used in place. */
static bool store_is_plain(const mst_store_request *r)
{
    return r->wire == MST_FLOAT_FP32 && (uintptr_t)r->values % sizeof(float) == 0;
}

/* Whether one walk that touches every line between the keys is faster than a load per key: two consecutive
 * lines cost less than one separate load. */
static bool store_walks(const mst_store *self, const mst_store_request *r)
{
    const mst_optimizer *optimizer = self->options.optimizer;
    if (r->values == NULL || r->head.rows == 0 || r->pulled == NULL || self->options.table->width != 1 ||
        !store_is_plain(r) || !mst_optimizer_additive(optimizer))
        return false;
    const mst_key_list *a = r->pushed, *b = r->pulled;
    if (a->n_keys < WALK_MIN || b->n_keys < WALK_MIN)
        return false;
    uint64_t from = a->keys[0] < b->keys[0] ? a->keys[0] : b->keys[0];
    uint64_t to =
        a->keys[a->n_keys - 1] > b->keys[b->n_keys - 1] ? a->keys[a->n_keys - 1] : b->keys[b->n_keys - 1];
    return (to - from) / 16 <= 2 * ((uint64_t)a->n_keys + b->n_keys);
}

/* State (a running mean) is not added up: the values of the first push replace it after the optimizer has
 * run.
 */
static void store_replace_state(mst_store *self, const mst_store_push *push, uint64_t low, uint64_t high)
{
    const mst_params *params = self->options.params;
    size_t size = mst_float_size(push->wire);
    for (uint32_t v = 0; v < params->n_views; v++) {
        const mst_view *view = &params->views[v];
        uint64_t before = 0;
        for (uint32_t r = 0; view->kind == MST_VIEW_STATE && r < push->list->n_ranges; r++) {
            const mst_extent *e = &push->list->ranges[r];
            uint64_t from = e->first > view->offset ? e->first : view->offset;
            uint64_t to = e->first + e->count < view->offset + view->size ? e->first + e->count
                                                                          : view->offset + view->size;
            from = from > low ? from : low;
            to = to < high ? to : high;
            if (from < to)
                mst_float_decode(push->wire,
                                 (const uint8_t *)push->values + (before + (from - e->first)) * size,
                                 to - from, params->w + from);
            before += e->count;
        }
    }
}

/* The factor that brings the mean gradient, all of it, down to the limit. */
static float store_clip_factor(apply *job, double limit)
{
    uint64_t to = job->to;
    double square = 0.0;
    job->to = UINT64_MAX;
    job->measure = true;
    store_divide(job);
    store_run(job);
    for (unsigned t = 0; t < job->n_threads; t++)
        square += job->squares[t];
    job->measure = false;
    job->to = to;
    return mst_clip_factor(square, limit);
}

/* Applies the update to [from, to). pull: a request whose keys are read in the same walk into out. */
static mst_status store_apply_pushes(mst_store *self, const mst_store_request *const *requests, uint32_t n,
                                     const mst_update *update, uint64_t from, uint64_t to,
                                     const mst_key_list *pull, uint8_t *out)
{
    const mst_optimizer *optimizer = self->options.optimizer;
    uint32_t width = self->options.table->width;
    uint64_t rows = 0, floats = 0, start = mst_trace_now();
    bool windows = false;
    if (n > self->options.n_workers)
        return mst_fail(MST_EUSAGE, "%" PRIu32 " pushes for one update; there are %" PRIu32 " workers", n,
                        self->options.n_workers);
    for (uint32_t i = 0; i < n; i++) {
        const mst_store_request *r = requests[i];
        if (r->values == NULL || r->head.rows == 0)
            continue;
        const mst_store_list *place = mst_store_list_of(r->pushed);
        if (place->request != r->pushed_request ||
            mst_key_list_floats(r->pushed, width) != r->head.push_floats)
            return mst_fail(MST_EINPUT,
                            "worker %" PRIu32 " replaced a list that its push of %" PRIu32
                            " floats belongs to",
                            r->worker, r->head.push_floats);
        rows += r->head.rows;
        windows |= !store_is_plain(r);
    }
    TRY(store_make_room(self, windows));
    apply job = {
        .store = self,
        .update = update,
        .additive = mst_optimizer_additive(optimizer),
        .from = from,
        .to = to,
        .clip = 1.0f,
        .pull = pull,
        .out = out,
    };
    for (uint32_t i = 0; i < n; i++) {
        const mst_store_request *r = requests[i];
        if (r->values == NULL || r->head.rows == 0)
            continue;
        self->pushes[job.n++] = (mst_store_push){
            .list = r->pushed,
            .values = r->values,
            .floats = r->head.push_floats,
            .range_floats = mst_key_list_range_floats(r->pushed),
            .wire = r->wire,
            .factor = (float)((double)r->head.rows / (double)rows),
            .plain = store_is_plain(r),
        };
        floats += r->head.push_floats;
    }
    if (floats == 0)
        return MST_OK;
    job.n_threads = mst_store_threads(self, floats);
    double limit = optimizer->options.clip_norm;
    if (self->options.clip && limit > 0.0) {
        if (from == 0)
            self->clip = store_clip_factor(&job, limit);
        job.clip = self->clip;
    }
    store_divide(&job);
    store_run(&job);
    store_replace_state(self, &self->pushes[0], from, to);
    mst_trace_op(pull != NULL ? "apply+gather"
                 : job.n > 1  ? "sum+apply"
                              : "apply",
                 start, mst_trace_floats(floats, 0));
    return MST_OK;
}

mst_status mst_store_apply(mst_store *self, const mst_store_request *const *requests, uint32_t n,
                           const mst_update *update)
{
    return store_apply_pushes(self, requests, n, update, 0, UINT64_MAX, NULL, NULL);
}

mst_status mst_store_apply_piece(mst_store *self, const mst_store_request *const *requests, uint32_t n,
                                 const mst_update *update, uint64_t from, uint64_t to)
{
    return store_apply_pushes(self, requests, n, update, from, to, NULL, NULL);
}

mst_status mst_store_step(mst_store *self, const mst_store_request *request, const mst_update *update,
                          void *out)
{
    if (store_walks(self, request)) {
        uint8_t *keys = (uint8_t *)out + mst_key_list_range_floats(request->pulled) * sizeof(float);
        TRY(store_apply_pushes(self, &request, 1, update, 0, UINT64_MAX, request->pulled, keys));
        mst_store_gather(self, request->pulled, request->wire, 0, mst_key_list_range_floats(request->pulled),
                         false, out);
        return MST_OK;
    }
    TRY(store_apply_pushes(self, &request, 1, update, 0, UINT64_MAX, NULL, NULL));
    mst_store_reply(self, request, out);
    return MST_OK;
}
