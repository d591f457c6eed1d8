/* A server's data: reading the weights of a list; contract in shard_impl.h.
 *
 * Keys ascend but are scattered over a store that is larger than any cache, so the loads are started some
 * keys ahead. Large lists are shared by the threads in equal parts, each writing its own part of the result.
 */
#include <string.h>

#include "ps/shard_impl.h"

typedef struct gather {
    mst_shard *shard;
    const mst_list *list;
    mst_wire wire;
    uint8_t *out;
    uint64_t range_floats;
    unsigned n_threads;
    bool ranges_only;
} gather;

void mst_shard_read_keys(const float *w, uint32_t width, const uint32_t *keys, size_t n, uint8_t *out)
{
    size_t near = n > MST_SHARD_AHEAD ? n - MST_SHARD_AHEAD : 0, i = 0;
    if (width == 1) {
        for (; i < near; i++) {
            __builtin_prefetch(&w[keys[i + MST_SHARD_AHEAD]], 0, 2);
            memcpy(out + i * sizeof *w, &w[keys[i]], sizeof *w);
        }
        for (; i < n; i++)
            memcpy(out + i * sizeof *w, &w[keys[i]], sizeof *w);
        return;
    }
    size_t size = width * sizeof *w;
    for (; i < n; i++) {
        if (i < near)
            __builtin_prefetch(&w[(size_t)keys[i + MST_SHARD_AHEAD] * width], 0, 2);
        memcpy(out + i * size, &w[(size_t)keys[i] * width], size);
    }
}

static void keys_part(const gather *job, unsigned t)
{
    const mst_shard *self = job->shard;
    const mst_placement *table = self->options.table;
    const float *w = self->options.params->w + table->sparse_offset;
    uint32_t width = table->width;
    uint64_t n = job->list->n_keys, from = n * t / job->n_threads, to = n * (t + 1) / job->n_threads;
    size_t size = mst_wire_size(job->wire);
    uint8_t *out = job->out + (job->range_floats + from * width) * size;
    if (from == to)
        return;
    if (job->wire == MST_WIRE_FP32) {
        mst_shard_read_keys(w, width, job->list->keys + from, (size_t)(to - from), out);
        return;
    }
    float *chunk = self->chunks + t * self->chunk;
    size_t most = self->chunk / width;
    while (from < to) {
        size_t part = to - from < most ? (size_t)(to - from) : most;
        mst_shard_read_keys(w, width, job->list->keys + from, part, (uint8_t *)chunk);
        mst_wire_encode(job->wire, chunk, part * width, out);
        out += part * width * size;
        from += part;
    }
}

static void ranges_part(const gather *job, unsigned t)
{
    const float *w = job->shard->options.params->w;
    uint64_t from = job->range_floats * t / job->n_threads, at = 0;
    uint64_t to = job->range_floats * (t + 1) / job->n_threads;
    size_t size = mst_wire_size(job->wire);
    for (uint32_t i = 0; i < job->list->n_ranges && at < to; i++) {
        mst_extent e = job->list->ranges[i];
        uint64_t a = at > from ? at : from, b = at + e.count < to ? at + e.count : to;
        if (a < b)
            mst_wire_encode(job->wire, w + e.first + (a - at), (size_t)(b - a), job->out + a * size);
        at += e.count;
    }
}

static void run_part(void *arg, unsigned t)
{
    const gather *job = arg;
    ranges_part(job, t);
    if (!job->ranges_only)
        keys_part(job, t);
}

void mst_shard_gather(mst_shard *self, const mst_list *list, mst_wire wire, bool ranges_only, void *out)
{
    gather job = {.shard = self, .list = list, .wire = wire, .out = out, .ranges_only = ranges_only};
    job.range_floats = mst_list_range_floats(list);
    uint64_t key_floats = ranges_only ? 0 : (uint64_t)list->n_keys * self->options.table->width;
    job.n_threads = mst_shard_threads(self, job.range_floats + key_floats);
    if (job.n_threads > 1)
        mst_team_run(self->team, run_part, &job);
    else
        run_part(&job, 0);
}
