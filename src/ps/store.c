/* A server's store: reading requests and keeping their lists; contract in store.h. store_apply.c applies
 * pushes, store_gather.c reads weights.
 *
 * A worker's lists are kept in a ring: the list of request r at r modulo MST_LISTS, with r beside it. The
 * memory of a list grows to the longest one at its place and is kept, so that steps allocate nothing in the
 * long run.
 *
 * Invariants
 * 1. Every float of a kept list is owned by this server, and its ranges and keys ascend without repeats.
 * 2. Memory for a list is allocated only after the size of the message has been checked to justify it: a
 * packed key takes at least 1/32 of a byte.
 * 3. A message that is refused changes no list except the one at its own place, which is then unknown. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "ps/key_pack.h"
#include "ps/store_impl.h"

/* ---- the object ---- */

/* The server's floats, with adjoining partitions joined, so that a range may cover several. */
static mst_status store_join_owned(mst_store *self)
{
    const mst_placement *table = self->options.table;
    mst_owned owned;
    TRY(mst_placement_owned(table, self->options.server, &owned));
    self->owned = owned.extents;
    for (uint32_t i = 0; i < owned.n; i++) {
        mst_extent e = self->owned[i], *last = self->n_owned > 0 ? &self->owned[self->n_owned - 1] : NULL;
        if (last != NULL && last->first + last->count == e.first)
            last->count += e.count;
        else
            self->owned[self->n_owned++] = e;
    }
    return MST_OK;
}

mst_status mst_store_new(const mst_store_options *options, mst_store **out)
{
    const mst_placement *table = options->table;
    mst_status st;
    if (options->server >= table->n_servers || options->n_workers == 0 || options->n_threads == 0 ||
        options->n_threads > MST_STORE_THREADS)
        return mst_fail(MST_EUSAGE,
                        "a store of server %" PRIu32 " of %" PRIu32 " with %" PRIu32
                        " workers and %u threads",
                        options->server, table->n_servers, options->n_workers, options->n_threads);
    if (table->size > options->params->size)
        return mst_fail(MST_EUSAGE, "a table of %" PRIu64 " floats over a store of %" PRIu64, table->size,
                        options->params->size);
    mst_store *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->options = *options;
    self->large = options->large != 0 ? options->large : MST_STORE_LARGE;
    if (table->width != 0) {
        self->key_from = table->key_starts[options->server];
        self->key_to = table->key_starts[options->server + 1];
    }
    self->chunk = table->width > MST_STORE_CHUNK ? table->width : MST_STORE_CHUNK;
    self->lists = mst_calloc(options->n_workers, sizeof(mst_store_list *));
    self->chunks = mst_alloc_lines(options->n_threads * self->chunk * sizeof *self->chunks);
    self->chunk_keys = mst_alloc_lines(options->n_threads * self->chunk * sizeof *self->chunk_keys);
    if (self->lists == NULL || self->chunks == NULL || self->chunk_keys == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    TRY_OUT(st, store_join_owned(self));
    if (options->n_threads > 1)
        TRY_OUT(st, mst_team_new(options->n_threads, &self->team));
    *out = self;
    self = NULL;
    st = MST_OK;
out:
    mst_store_destroy(self);
    return st;
}

void mst_store_destroy(mst_store *self)
{
    if (self == NULL)
        return;
    mst_team_destroy(self->team);
    for (uint32_t w = 0; self->lists != NULL && w < self->options.n_workers; w++) {
        for (uint32_t i = 0; self->lists[w] != NULL && i < MST_LISTS; i++)
            mst_key_list_fini(&self->lists[w][i].list);
        mst_free(self->lists[w]);
    }
    mst_free(self->lists);
    mst_key_list_fini(&self->eval.list);
    mst_store_apply_fini(self);
    mst_free(self->owned);
    mst_free(self->chunks);
    mst_free(self->chunk_keys);
    mst_free(self);
}

/* ---- reading ---- */

static mst_status store_read_ranges(const mst_store *self, const uint8_t *in, uint32_t n, mst_key_list *list)
{
    uint64_t end = 0; /* of the previous range */
    uint32_t o = 0;
    for (uint32_t i = 0; i < n; i++, in += MST_RANGE_SIZE) {
        mst_extent e = mst_step_range_decode(in);
        if (e.count == 0 || e.first < end || e.count > UINT64_MAX - e.first)
            return mst_fail(MST_EINPUT,
                            "range %" PRIu32 " of a list, %" PRIu64 " floats from %" PRIu64
                            " on, is empty or not behind the range before it",
                            i, e.count, e.first);
        while (o < self->n_owned && self->owned[o].first + self->owned[o].count <= e.first)
            o++;
        end = e.first + e.count;
        if (o == self->n_owned || e.first < self->owned[o].first ||
            end > self->owned[o].first + self->owned[o].count)
            return mst_fail(MST_EINPUT,
                            "range %" PRIu32 " of a list, %" PRIu64 " floats from %" PRIu64
                            " on, is not wholly on server %" PRIu32,
                            i, e.count, e.first, self->options.server);
        list->ranges[i] = e;
    }
    list->n_ranges = n;
    return MST_OK;
}

static mst_status store_read_list(mst_store *self, const mst_step_head *head, const uint8_t *in,
                                  mst_key_list *list)
{
    uint64_t n = head->pull_keys, most = self->key_to - self->key_from;
    TRY(store_read_ranges(self, in, head->pull_ranges, list));
    in += (size_t)head->pull_ranges * MST_RANGE_SIZE;
    if (n > most)
        return mst_fail(MST_EINPUT, "a list of %" PRIu64 " keys; server %" PRIu32 " has %" PRIu64, n,
                        self->options.server, most);
    if (n > (uint64_t)head->packed_bytes * 32 + 1)
        return mst_fail(MST_EINPUT, "a list of %" PRIu64 " keys packed in %" PRIu32 " bytes", n,
                        head->packed_bytes);
    if (n == 0 && head->packed_bytes != 0)
        return mst_fail(MST_EINPUT, "a list without keys has %" PRIu32 " bytes of packed keys",
                        head->packed_bytes);
    TRY(mst_key_list_room(list, (size_t)n));
    if (n > 0)
        TRY(mst_key_unpack(in, head->packed_bytes, (uint32_t)n, (uint32_t)self->key_from,
                           (uint32_t)self->key_to, list->keys));
    list->n_keys = (uint32_t)n;
    return MST_OK;
}

/* Fills a place with the list of a message; on failure it is unknown and empty. */
static mst_status store_keep_list(mst_store *self, mst_store_list *place, uint32_t request,
                                  const mst_step_head *head, const uint8_t *in)
{
    place->known = false;
    place->list.n_ranges = place->list.n_keys = 0;
    mst_status st = store_read_list(self, head, in, &place->list);
    if (st != MST_OK) {
        place->list.n_ranges = place->list.n_keys = 0;
        return st;
    }
    place->known = true;
    place->request = request;
    return MST_OK;
}

/* The list of a push. */
static mst_status store_find_list(const mst_store *self, uint32_t worker, uint32_t request,
                                  const mst_key_list **out)
{
    const mst_store_list *ring = worker < self->options.n_workers ? self->lists[worker] : NULL;
    const mst_store_list *place = ring != NULL ? &ring[request % MST_LISTS] : NULL;
    if (place == NULL || !place->known || place->request != request)
        return mst_fail(MST_EINPUT,
                        "worker %" PRIu32 " pushes for its request %" PRIu32
                        ", whose list is not known to server %" PRIu32,
                        worker, request, self->options.server);
    *out = &place->list;
    return MST_OK;
}

static mst_status store_check_floats(const mst_store *self, uint32_t worker, uint32_t request,
                                     uint64_t floats, const mst_key_list *list)
{
    uint64_t n = mst_key_list_floats(list, self->options.table->width);
    if (n != floats)
        return mst_fail(MST_EINPUT,
                        "worker %" PRIu32 " pushes %" PRIu64 " floats for its request %" PRIu32
                        ", whose list has %" PRIu64,
                        worker, floats, request, n);
    return MST_OK;
}

mst_status mst_store_part(const mst_store *self, uint32_t worker, const mst_message *m,
                          const mst_store_parts *parts, mst_store_parts *next)
{
    const mst_key_list *list = NULL;
    uint32_t wire = m->flags >> MST_STEP_WIRE_SHIFT;
    if (wire > MST_FLOAT_FP16 || (m->flags & ((1u << MST_STEP_WIRE_SHIFT) - 1)) != 0)
        return mst_fail(MST_EINPUT, "a %s with flags 0x%" PRIx32 ", some of which are undefined",
                        mst_ps_type_name(m->type), m->flags);
    TRY(store_find_list(self, worker, m->count, &list));
    size_t size = mst_float_size((mst_float_format)wire);
    uint64_t floats = mst_key_list_floats(list, self->options.table->width), n = m->size / size;
    uint64_t end = parts->floats != 0 ? parts->from : floats;
    if (parts->floats != 0 &&
        (parts->request != m->count || parts->floats != floats || parts->wire != (mst_float_format)wire))
        return mst_fail(MST_EINPUT,
                        "worker %" PRIu32 " pushes a part for its request %" PRIu32 " before request %" PRIu32
                        " is complete",
                        worker, m->count, parts->request);
    if (n == 0 || m->size % size != 0 || n > end || m->step != end - n)
        return mst_fail(MST_EINPUT,
                        "worker %" PRIu32 " pushes a part of %" PRIu64 " bytes from float %" PRIu64
                        " on, where %" PRIu64 " floats are to come",
                        worker, m->size, m->step, end);
    *next = (mst_store_parts){
        .request = m->count, .wire = (mst_float_format)wire, .floats = floats, .from = end - n};
    return MST_OK;
}

/* The push of a STEP; at: after its head. */
static mst_status store_read_push(const mst_store *self, uint32_t worker, const mst_message *m,
                                  const mst_store_parts *parts, void *values, const uint8_t *at,
                                  mst_store_request *r)
{
    uint64_t floats = r->head.push_floats;
    TRY(store_find_list(self, worker, m->count, &r->pushed));
    if (parts != NULL) {
        if (parts->request != m->count || parts->wire != r->wire || floats != parts->from)
            return mst_fail(MST_EINPUT,
                            "worker %" PRIu32 " pushes %" PRIu64 " floats for its request %" PRIu32
                            ", where parts left %" PRIu64 " of request %" PRIu32,
                            worker, floats, m->count, parts->from, parts->request);
        floats = parts->floats;
    }
    TRY(store_check_floats(self, worker, m->count, floats, r->pushed));
    r->pushed_request = m->count;
    r->values = at;
    if (parts != NULL) {
        memcpy(values, at, r->head.push_floats * mst_float_size(r->wire));
        r->values = values;
        r->head.push_floats = (uint32_t)floats;
    }
    return MST_OK;
}

/* A push without rows has no effect. */
static mst_status store_check_finite(mst_store_request *r)
{
    r->nan = r->head.rows > 0 && isnan(r->head.loss);
    if (r->nan || r->head.rows == 0)
        return MST_OK;
    if (!isfinite(r->head.weight) || !mst_float_finite(r->wire, r->values, r->head.push_floats))
        return mst_fail(MST_EINPUT, "a gradient with NaN or infinite values");
    return MST_OK;
}

mst_status mst_store_read(mst_store *self, uint32_t worker, const mst_message *m, const void *body,
                          const mst_store_parts *parts, void *values, mst_store_request *out)
{
    mst_step_head head;
    if (worker >= self->options.n_workers)
        return mst_fail(MST_EINPUT, "a %s of worker %" PRIu32 "; there are %" PRIu32,
                        mst_ps_type_name(m->type), worker, self->options.n_workers);
    TRY(mst_step_head_decode(m, body, &head));
    mst_store_request r = {
        .worker = worker,
        .request = m->request,
        .flags = m->flags,
        .wire = (mst_float_format)(m->flags >> MST_STEP_WIRE_SHIFT),
        .head = head,
    };
    const uint8_t *at = (const uint8_t *)body + MST_STEP_HEAD;
    if (m->flags & MST_STEP_PUSH) {
        TRY(store_read_push(self, worker, m, parts, values, at, &r));
        at += head.push_floats * mst_float_size(r.wire);
        TRY(store_check_finite(&r));
    }
    if (m->flags & MST_STEP_PULL) {
        if (r.pushed != NULL && m->count % MST_LISTS == m->request % MST_LISTS)
            return mst_fail(MST_EINPUT,
                            "worker %" PRIu32 " pulls with request %" PRIu32
                            " a list in place of the one it pushes for, of request %" PRIu32,
                            worker, m->request, m->count);
        if (self->lists[worker] == NULL)
            self->lists[worker] = mst_calloc(MST_LISTS, sizeof **self->lists);
        if (self->lists[worker] == NULL)
            return mst_fail_memory();
        mst_store_list *place = &self->lists[worker][m->request % MST_LISTS];
        TRY(store_keep_list(self, place, m->request, &head, at));
        r.pulled = &place->list;
    }
    *out = r;
    return MST_OK;
}

void mst_store_forget(mst_store *self, uint32_t worker)
{
    for (uint32_t i = 0; self->lists[worker] != NULL && i < MST_LISTS; i++)
        self->lists[worker][i].known = false;
}

/* ---- evaluation ---- */

mst_status mst_store_eval_list(mst_store *self, const mst_message *m, const void *body)
{
    mst_step_head head;
    mst_message pull = *m;
    if ((m->flags & ~MST_STEP_PULL) != 0)
        return mst_fail(MST_EINPUT, "message %s with flags 0x%" PRIx32 ", some of which are undefined",
                        mst_ps_type_name(m->type), m->flags);
    pull.flags = MST_STEP_PULL;
    TRY(mst_step_head_decode(&pull, body, &head));
    if (head.part_floats != 0)
        return mst_fail(MST_EINPUT, "a %s that requests its answer in parts", mst_ps_type_name(m->type));
    return store_keep_list(self, &self->eval, m->request, &head, (const uint8_t *)body + MST_STEP_HEAD);
}

size_t mst_store_eval_size(const mst_store *self)
{
    return (size_t)mst_key_list_floats(&self->eval.list, self->options.table->width) * sizeof(float);
}

void mst_store_eval_values(mst_store *self, void *out)
{
    const mst_key_list *list = &self->eval.list;
    mst_store_gather(self, list, MST_FLOAT_FP32, 0, mst_key_list_range_floats(list), true, out);
}
