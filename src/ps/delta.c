/* Values of some floats; contract in delta.h. */
#include "ps/delta.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ps/key_pack.h"
#include "strategy/strategy.h"

#define AHEAD 64 /* keys from prefetch to use */

void mst_delta_fini(mst_delta *self)
{
    mst_free(self->list.ranges);
    mst_free(self->list.keys);
    mst_free(self->list.merged);
    mst_free(self->values);
    *self = (mst_delta){0};
}

/* ---- lists ---- */

/* Whether the ranges are the same, as those of the pushes of one step usually are. */
static bool delta_has_ranges(const mst_delta_list *self, const mst_key_list *list)
{
    size_t n = list->n_ranges;
    return n == 0 ||
           (self->n_ranges == n && memcmp(self->ranges, list->ranges, n * sizeof *self->ranges) == 0);
}

static size_t delta_merge(const uint32_t *a, size_t n_a, const uint32_t *b, size_t n_b, uint32_t *out)
{
    size_t i = 0, k = 0, n = 0;
    while (i < n_a && k < n_b) {
        uint32_t x = a[i], y = b[k];
        out[n++] = x < y ? x : y;
        i += x <= y;
        k += y <= x;
    }
    if (i < n_a)
        memcpy(out + n, a + i, (n_a - i) * sizeof *out);
    n += n_a - i;
    if (k < n_b)
        memcpy(out + n, b + k, (n_b - k) * sizeof *out);
    return n + (n_b - k);
}

static mst_status delta_add_keys(mst_delta_list *self, const uint32_t *keys, size_t n)
{
    if (n == 0)
        return MST_OK;
    if (!mst_grow(&self->merged, &self->merged_capacity, self->n_keys + n, sizeof *self->merged))
        return mst_fail_memory();
    self->n_keys = delta_merge(self->keys, self->n_keys, keys, n, self->merged);
    uint32_t *before = self->keys;
    size_t capacity = self->key_capacity;
    self->keys = self->merged;
    self->key_capacity = self->merged_capacity;
    self->merged = before;
    self->merged_capacity = capacity;
    return MST_OK;
}

static int delta_compare(const void *a, const void *b)
{
    const mst_extent *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

/* Sorts the ranges and joins those that overlap or adjoin. */
static void delta_join_ranges(mst_delta_list *self)
{
    size_t n = 0;
    qsort(self->ranges, self->n_ranges, sizeof *self->ranges, delta_compare);
    for (size_t i = 0; i < self->n_ranges; i++) {
        mst_extent e = self->ranges[i], *last = n > 0 ? &self->ranges[n - 1] : NULL;
        uint64_t end = e.first + e.count;
        if (last == NULL || last->first + last->count < e.first)
            self->ranges[n++] = e;
        else if (last->first + last->count < end)
            last->count = end - last->first;
    }
    self->n_ranges = n;
}

mst_status mst_delta_add(mst_delta *self, const mst_key_list *list)
{
    mst_delta_list *l = &self->list;
    if (!delta_has_ranges(l, list)) {
        bool more = l->n_ranges > 0;
        if (!mst_grow(&l->ranges, &l->range_capacity, l->n_ranges + list->n_ranges, sizeof *l->ranges))
            return mst_fail_memory();
        memcpy(l->ranges + l->n_ranges, list->ranges, list->n_ranges * sizeof *l->ranges);
        l->n_ranges += list->n_ranges;
        if (more)
            delta_join_ranges(l);
    }
    return delta_add_keys(l, list->keys, list->n_keys);
}

/* Floats of a key in slot - 1, or of its weights (slot 0). */
static uint32_t delta_key_width(const mst_params *params, const mst_placement *table, uint32_t slot)
{
    return slot == 0 ? table->width : slot <= params->keyed.n_slots ? params->keyed.state_width : 0;
}

uint64_t mst_delta_floats(const mst_delta *self, const mst_params *params, const mst_placement *table)
{
    uint64_t ranges = 0, key = 0;
    for (size_t i = 0; i < self->list.n_ranges; i++)
        ranges += self->list.ranges[i].count;
    for (uint32_t slot = 0; slot <= params->n_slots; slot++)
        key += delta_key_width(params, table, slot);
    return ranges * (1 + params->n_slots) + self->list.n_keys * key;
}

/* ---- values ---- */

/* Vector `slot`: 0 the weights, s + 1 optimizer slot s. */
static float *delta_vector(const mst_params *params, uint32_t slot)
{
    return slot == 0 ? params->w : params->slots[slot - 1];
}

/* Key 0 in it. */
static float *delta_keys(const mst_params *params, const mst_placement *table, uint32_t slot)
{
    return delta_vector(params, slot) + (slot == 0 ? table->sparse_offset : params->keyed.state);
}

static void delta_read(const mst_delta_list *self, const mst_params *params, const mst_placement *table,
                       uint8_t *out)
{
    for (uint32_t slot = 0; slot <= params->n_slots; slot++) {
        const float *w = delta_vector(params, slot), *sparse = delta_keys(params, table, slot);
        size_t width = delta_key_width(params, table, slot), key_size = width * sizeof(float);
        for (size_t i = 0; i < self->n_ranges; i++) {
            size_t size = (size_t)self->ranges[i].count * sizeof *w;
            memcpy(out, w + self->ranges[i].first, size);
            out += size;
        }
        for (size_t i = 0; width > 0 && i < self->n_keys; i++, out += key_size) {
            if (i + AHEAD < self->n_keys)
                __builtin_prefetch(sparse + self->keys[i + AHEAD] * width, 0, 2);
            memcpy(out, sparse + self->keys[i] * width, key_size);
        }
    }
}

static void delta_write(const mst_delta_list *self, const uint8_t *in, mst_params *params,
                        const mst_placement *table)
{
    for (uint32_t slot = 0; slot <= params->n_slots; slot++) {
        float *w = delta_vector(params, slot), *sparse = delta_keys(params, table, slot);
        size_t width = delta_key_width(params, table, slot), key_size = width * sizeof(float);
        for (size_t i = 0; i < self->n_ranges; i++) {
            size_t size = (size_t)self->ranges[i].count * sizeof *w;
            memcpy(w + self->ranges[i].first, in, size);
            in += size;
        }
        for (size_t i = 0; width > 0 && i < self->n_keys; i++, in += key_size) {
            if (i + AHEAD < self->n_keys)
                __builtin_prefetch(sparse + self->keys[i + AHEAD] * width, 1, 2);
            memcpy(sparse + self->keys[i] * width, in, key_size);
        }
    }
}

mst_status mst_delta_keep(mst_delta *self, const mst_params *params, const mst_placement *table)
{
    uint64_t n = mst_delta_floats(self, params, table);
    if (!mst_grow(&self->values, &self->capacity, (size_t)n, sizeof *self->values))
        return mst_fail_memory();
    delta_read(&self->list, params, table, (uint8_t *)self->values);
    return MST_OK;
}

void mst_delta_restore(const mst_delta *self, mst_params *params, const mst_placement *table)
{
    delta_write(&self->list, (const uint8_t *)self->values, params, table);
}

void mst_delta_copy(const mst_delta *self, const uint8_t *values, mst_params *params,
                    const mst_placement *table)
{
    delta_write(&self->list, values, params, table);
}

/* ---- on the wire ---- */

size_t mst_delta_bound(const mst_delta *self, const mst_params *params, const mst_placement *table)
{
    mst_delta_head head = {.n_ranges = (uint32_t)self->list.n_ranges,
                           .packed_bytes = (uint32_t)mst_key_pack_bound((uint32_t)self->list.n_keys)};
    return (size_t)(mst_delta_list_size(&head) + mst_delta_floats(self, params, table) * sizeof(float));
}

size_t mst_delta_encode(const mst_delta *self, const mst_params *params, const mst_placement *table,
                        uint8_t *out)
{
    const mst_delta_list *l = &self->list;
    mst_delta_head head = {.n_ranges = (uint32_t)l->n_ranges, .n_keys = (uint32_t)l->n_keys};
    uint8_t *at = out + MST_DELTA_HEAD;
    for (size_t i = 0; i < l->n_ranges; i++, at += MST_RANGE_SIZE)
        mst_step_range_encode(&l->ranges[i], at);
    head.packed_bytes = (uint32_t)mst_key_pack(l->keys, head.n_keys, at);
    mst_delta_head_encode(&head, out);
    size_t size = (size_t)mst_delta_list_size(&head);
    memset(at + head.packed_bytes, 0, (size_t)(out + size - (at + head.packed_bytes)));
    delta_read(l, params, table, out + size);
    return size + (size_t)mst_delta_floats(self, params, table) * sizeof(float);
}

static mst_status delta_decode_ranges(mst_delta_list *self, const uint8_t *in, uint32_t n,
                                      const mst_placement *table, uint32_t server)
{
    uint64_t end = 0;
    if (!mst_grow(&self->ranges, &self->range_capacity, n, sizeof *self->ranges))
        return mst_fail_memory();
    for (uint32_t i = 0; i < n; i++, in += MST_RANGE_SIZE) {
        mst_extent e = mst_step_range_decode(in);
        if (e.first < end || !mst_placement_owns(table, server, e.first, e.count))
            return mst_fail(MST_EPEER,
                            "a DELTA of %" PRIu64 " floats from %" PRIu64
                            " on, which are not all on server %" PRIu32 " or not in order",
                            e.count, e.first, server);
        end = e.first + e.count;
        self->ranges[self->n_ranges++] = e;
    }
    return MST_OK;
}

static mst_status delta_decode_keys(mst_delta_list *self, const uint8_t *in, const mst_delta_head *head,
                                    const mst_placement *table, uint32_t server)
{
    uint32_t n = head->n_keys, from = 0, to = 0;
    if (table->width != 0) {
        from = table->key_starts[server];
        to = table->key_starts[server + 1];
    }
    if (n > to - from || (n == 0) != (head->packed_bytes == 0))
        return mst_fail(MST_EPEER, "a DELTA of %" PRIu32 " keys; server %" PRIu32 " has %" PRIu32, n, server,
                        to - from);
    if (n == 0)
        return MST_OK;
    if (!mst_grow(&self->keys, &self->key_capacity, n, sizeof *self->keys))
        return mst_fail_memory();
    if (mst_key_unpack(in, head->packed_bytes, n, from, to, self->keys) != MST_OK)
        return mst_fail(MST_EPEER, "%s", mst_error_text());
    self->n_keys = n;
    return MST_OK;
}

mst_status mst_delta_decode(mst_delta *self, const uint8_t *in, uint64_t size, const mst_params *params,
                            const mst_placement *table, uint32_t server, const uint8_t **values)
{
    mst_delta_head head;
    mst_delta_clear(self);
    TRY(mst_delta_head_decode(in, size, &head));
    if (head.n_ranges > MST_WORKER_MAX * MST_EXTENT_MAX) /* those of one push of every worker */
        return mst_fail(MST_EPEER, "a DELTA with %" PRIu32 " ranges", head.n_ranges);
    uint64_t list = mst_delta_list_size(&head);
    const uint8_t *ranges = in + MST_DELTA_HEAD, *keys = ranges + (size_t)head.n_ranges * MST_RANGE_SIZE;
    TRY(delta_decode_ranges(&self->list, ranges, head.n_ranges, table, server));
    TRY(delta_decode_keys(&self->list, keys, &head, table, server));
    uint64_t bytes = mst_delta_floats(self, params, table) * sizeof(float);
    if (size - list != bytes)
        return mst_fail(MST_EPEER, "a DELTA with %" PRIu64 " bytes of values, whose list has %" PRIu64,
                        size - list, bytes);
    for (const uint8_t *pad = keys + head.packed_bytes; pad < in + list; pad++)
        if (*pad != 0)
            return mst_fail(MST_EPEER, "a DELTA with bytes after its keys that are not zero");
    *values = in + list;
    return MST_OK;
}
