/* A server's store: reading the weights of a list; contract in store_impl.h.
 *
 * Keys ascend but are scattered over a store that is larger than any cache, so loads are started some keys
 * ahead. Large lists are divided among the threads in equal shares. */
#include <string.h>

#include "observe/trace_file.h"
#include "ps/store_impl.h"

typedef struct gather {
    mst_store *store;
    const mst_key_list *list;
    mst_float_format wire;
    uint8_t *out;
    uint64_t from, to; /* floats of the ranges */
    unsigned n_threads;
    bool keys;
} gather;

void mst_store_read_keys(const float *w, uint32_t width, const uint32_t *keys, size_t n, uint8_t *out)
{
    size_t near = n > MST_STORE_AHEAD ? n - MST_STORE_AHEAD : 0, i = 0;
    if (width == 1) {
        for (; i < near; i++) {
            __builtin_prefetch(&w[keys[i + MST_STORE_AHEAD]], 0, 2);
            memcpy(out + i * sizeof *w, &w[keys[i]], sizeof *w);
        }
        for (; i < n; i++)
            memcpy(out + i * sizeof *w, &w[keys[i]], sizeof *w);
        return;
    }
    size_t size = width * sizeof *w;
    for (; i < n; i++) {
        if (i < near)
            __builtin_prefetch(&w[(size_t)keys[i + MST_STORE_AHEAD] * width], 0, 2);
        memcpy(out + i * size, &w[(size_t)keys[i] * width], size);
    }
}

static void store_keys_part(const gather *job, unsigned t)
{
    const mst_store *self = job->store;
    const mst_placement *table = self->options.table;
    const float *w = self->options.params->w + table->sparse_offset;
    uint32_t width = table->width;
    uint64_t n = job->list->n_keys, from = n * t / job->n_threads, to = n * (t + 1) / job->n_threads;
    size_t size = mst_float_size(job->wire);
    uint8_t *out = job->out + (job->to - job->from + from * width) * size;
    if (from == to)
        return;
    if (job->wire == MST_FLOAT_FP32) {
        mst_store_read_keys(w, width, job->list->keys + from, (size_t)(to - from), out);
        return;
    }
    float *chunk = self->chunks + t * self->chunk;
    size_t most = self->chunk / width;
    while (from < to) {
        size_t part = to - from < most ? (size_t)(to - from) : most;
        mst_store_read_keys(w, width, job->list->keys + from, part, (uint8_t *)chunk);
        mst_float_encode(job->wire, chunk, part * width, out);
        out += part * width * size;
        from += part;
    }
}

static void store_ranges_part(const gather *job, unsigned t)
{
    const float *w = job->store->options.params->w;
    uint64_t n = job->to - job->from, at = 0;
    uint64_t from = job->from + n * t / job->n_threads, to = job->from + n * (t + 1) / job->n_threads;
    size_t size = mst_float_size(job->wire);
    for (uint32_t i = 0; i < job->list->n_ranges && at < to; i++) {
        mst_extent e = job->list->ranges[i];
        uint64_t a = at > from ? at : from, b = at + e.count < to ? at + e.count : to;
        if (a < b)
            mst_float_encode(job->wire, w + e.first + (a - at), (size_t)(b - a),
                             job->out + (a - job->from) * size);
        at += e.count;
    }
}

static void store_run_part(void *arg, unsigned t)
{
    const gather *job = arg;
    store_ranges_part(job, t);
    if (job->keys)
        store_keys_part(job, t);
}

void mst_store_gather(mst_store *self, const mst_key_list *list, mst_float_format wire, uint64_t from,
                      uint64_t to, bool keys, void *out)
{
    gather job = {
        .store = self, .list = list, .wire = wire, .out = out, .from = from, .to = to, .keys = keys};
    uint64_t key_floats = keys ? (uint64_t)list->n_keys * self->options.table->width : 0;
    uint64_t start = mst_trace_now();
    job.n_threads = mst_store_threads(self, to - from + key_floats);
    if (job.n_threads > 1)
        mst_team_run(self->team, store_run_part, &job);
    else
        store_run_part(&job, 0);
    mst_trace_op(wire == MST_FLOAT_FP32 ? "gather" : "gather+encode", start,
                 mst_trace_array(mst_float_size(wire), to - from + key_floats, 0));
}

/* ---- answers ---- */

size_t mst_store_reply_size(const mst_store *self, const mst_store_request *request)
{
    if (request->pulled == NULL)
        return 0;
    return (size_t)mst_key_list_floats(request->pulled, self->options.table->width) *
           mst_float_size(request->wire);
}

void mst_store_reply(mst_store *self, const mst_store_request *request, void *out)
{
    if (request->pulled != NULL)
        mst_store_reply_rest(self, request, 0, out);
}

void mst_store_reply_part(mst_store *self, const mst_store_request *request, uint64_t first, uint64_t count,
                          void *out)
{
    mst_store_gather(self, request->pulled, request->wire, first, first + count, false, out);
}

void mst_store_reply_rest(mst_store *self, const mst_store_request *request, uint64_t first, void *out)
{
    uint64_t all = mst_key_list_range_floats(request->pulled);
    mst_store_gather(self, request->pulled, request->wire, first, all, true, out);
}

uint64_t mst_store_reply_place(const mst_store_request *request, uint64_t number)
{
    const mst_key_list *list = request->pulled;
    for (uint32_t i = 0; i < list->n_ranges; number -= list->ranges[i++].count)
        if (number < list->ranges[i].count)
            return list->ranges[i].first + number;
    return UINT64_MAX;
}

uint32_t mst_store_reply_pieces(const mst_store *self, const mst_store_request *request, uint64_t first,
                                uint64_t count, mst_piece *pieces, uint32_t most)
{
    const mst_key_list *list = request->pulled;
    uint64_t before = 0, end = first + count;
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->n_ranges && before < end; before += list->ranges[i++].count) {
        mst_extent e = list->ranges[i];
        uint64_t a = before > first ? before : first, b = before + e.count < end ? before + e.count : end;
        if (a >= b)
            continue;
        if (n == most || request->wire != MST_FLOAT_FP32)
            return 0;
        pieces[n++] = (mst_piece){.data = self->options.params->w + e.first + (a - before),
                                  .size = (size_t)(b - a) * sizeof(float)};
    }
    return n;
}
