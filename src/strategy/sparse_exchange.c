/* Strategy allreduce: adding up sparse gradients over all ranks; contract in allreduce_impl.h.
 *
 * A rank's contributions are added up per key first, by threads that own disjoint sets of keys; sets of as
 * many owners as there are threads in all, so that owner o is thread o % n of rank o / n. Then the (key, sum)
 * lists travel in one of two ways: gathered    every rank sends all its lists to every other, and adds up for
 * itself; scattered   every rank sends owner o's lists to rank o / n alone, which adds them up and sends the
 * sums round. Scattered brings in fewer bytes where ranks have many keys in common, and takes two messages'
 * time. How many keys each rank has is exchanged first, so that everybody knows what either way would bring
 * to the busiest rank; how many are distinct is taken to be the same share as in the step before. All ranks
 * compute the same numbers and so take the same way.
 *
 * Per key, sums have the order of threads and then of ranks either way, and on a wire of 16 bits both
 * contributions and sums are rounded either way: the choice does not change a bit.
 *
 * A block, what one rank has for another's threads: the keys of those n lists, then their values, padded to 8
 * bytes. How many keys a list has is in the counts. */
#include <limits.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "observe/spans.h"
#include "strategy/allreduce_impl.h"
#include "tensor/clip.h"

#define BLOCK 512u /* floats that are rounded at a time */

mst_status mst_sparse_init(mst_allreduce *self)
{
    mst_sparse_exchange *x = &self->sparse;
    x->n_owners = self->n_ranks * self->n;
    x->union_share = 1.0;
    x->counts = mst_calloc((size_t)x->n_owners * self->n_ranks, sizeof *x->counts);
    x->sum_counts = mst_calloc(x->n_owners, sizeof *x->sum_counts);
    x->out_at = mst_calloc(self->n_ranks + 1, sizeof *x->out_at);
    x->in_at = mst_calloc(self->n_ranks + 1, sizeof *x->in_at);
    x->blocks = mst_calloc((size_t)x->n_owners * self->n_ranks, sizeof *x->blocks);
    x->sum_blocks = mst_calloc(x->n_owners, sizeof *x->sum_blocks);
    if (x->counts == NULL || x->sum_counts == NULL || x->out_at == NULL || x->in_at == NULL ||
        x->blocks == NULL || x->sum_blocks == NULL)
        return mst_fail_memory();
    for (unsigned t = 0; t < self->n; t++) {
        self->workers[t].lists = mst_calloc(self->n_ranks, sizeof *self->workers[t].lists);
        if (self->workers[t].lists == NULL)
            return mst_fail_memory();
    }
    return MST_OK;
}

void mst_sparse_fini(mst_allreduce *self)
{
    mst_sparse_exchange *x = &self->sparse;
    for (unsigned t = 0; self->workers != NULL && t < self->n; t++) {
        mst_allreduce_worker *w = &self->workers[t];
        for (uint32_t r = 0; w->lists != NULL && r < self->n_ranks; r++)
            mst_localiser_fini(&w->lists[r]);
        mst_free(w->lists);
        mst_localiser_fini(&w->merged);
        mst_free(w->decoded);
    }
    mst_free(x->counts);
    mst_free(x->sum_counts);
    mst_free(x->out_at);
    mst_free(x->in_at);
    mst_free(x->blocks);
    mst_free(x->sum_blocks);
    mst_free(x->out.data);
    mst_free(x->in.data);
    mst_free(x->sums.data);
    mst_free(x->sums_in.data);
}

static mst_status buffer_room(mst_allreduce_buffer *b, size_t bytes)
{
    return mst_grow(&b->data, &b->room, bytes, 1) ? MST_OK : mst_fail_memory();
}

/* ---- blocks ---- */

static mst_wire wire_of(const mst_allreduce *self)
{
    return (mst_wire)self->base.options.wire;
}

static size_t value_bytes(const mst_allreduce *self)
{
    return self->workers[0].grad.width * mst_wire_size(wire_of(self));
}

static size_t block_bytes(const mst_allreduce *self, size_t keys)
{
    return (keys * (sizeof(uint32_t) + value_bytes(self)) + 7) / 8 * 8;
}

/* Keys that rank s has for rank p. */
static size_t keys_for(const mst_allreduce *self, uint32_t s, uint32_t p)
{
    const uint32_t *counts = self->sparse.counts + (size_t)s * self->sparse.n_owners + (size_t)p * self->n;
    size_t n = 0;
    for (unsigned t = 0; t < self->n; t++)
        n += counts[t];
    return n;
}

/* Writes a block of n lists; list(t) as thread t has it. */
static void pack(mst_allreduce *self, char *at,
                 const mst_localiser *(*list)(mst_allreduce *, uint32_t, unsigned), uint32_t p)
{
    uint32_t width = self->workers[0].grad.width;
    size_t n = 0;
    for (unsigned t = 0; t < self->n; t++) {
        const mst_localiser *l = list(self, p, t);
        if (l->n > 0)
            memcpy(at + n * sizeof(uint32_t), l->keys, l->n * sizeof(uint32_t));
        n += l->n;
    }
    at += n * sizeof(uint32_t);
    for (unsigned t = 0; t < self->n; t++) {
        const mst_localiser *l = list(self, p, t);
        if (l->n > 0)
            mst_wire_encode(wire_of(self), l->sums, (size_t)l->n * width, at);
        at += l->n * value_bytes(self);
    }
}

static const mst_localiser *list_for(mst_allreduce *self, uint32_t p, unsigned t)
{
    return &self->workers[t].lists[p];
}

static const mst_localiser *merged_list(mst_allreduce *self, uint32_t p, unsigned t)
{
    (void)p;
    return &self->workers[t].merged;
}

/* Points n lists at a block whose lists have these counts. */
static void unpack(const mst_allreduce *self, const char *at, const uint32_t *counts, mst_key_block *out)
{
    size_t n = 0;
    for (unsigned t = 0; t < self->n; t++)
        n += counts[t];
    const char *values = at + n * sizeof(uint32_t);
    for (unsigned t = 0; t < self->n; t++) {
        out[t] = (mst_key_block){(const uint32_t *)(const void *)at, values, counts[t]};
        at += counts[t] * sizeof(uint32_t);
        values += counts[t] * value_bytes(self);
    }
}

/* ---- which way ---- */

/* Bytes that come to the busiest rank, either way. */
static bool scatter_is_less(const mst_allreduce *self)
{
    const uint32_t n = self->n_ranks;
    size_t gathered = 0, scattered = 0, total = 0;
    for (uint32_t s = 0; s < n; s++)
        for (uint32_t p = 0; p < n; p++)
            total += keys_for(self, s, p);
    for (uint32_t r = 0; r < n; r++) {
        size_t own = 0, in = 0, mine = 0;
        for (uint32_t s = 0; s < n; s++) {
            own += keys_for(self, r, s);
            mine += keys_for(self, s, r);
            in += s != r ? keys_for(self, s, r) : 0;
        }
        in += (size_t)((double)(total - mine) * self->sparse.union_share);
        gathered = total - own > gathered ? total - own : gathered;
        scattered = in > scattered ? in : scattered;
    }
    return scattered < gathered;
}

/* ---- messages, on the communication thread ---- */

static mst_status too_large(size_t bytes)
{
    return bytes <= INT_MAX
               ? MST_OK
               : mst_fail(MST_EUSAGE,
                          "a sparse gradient of %zu bytes in one message: use a smaller batch, or more ranks",
                          bytes);
}

/* Lists to whom they are for, or all to all. */
static mst_status exchange_lists(mst_comm *comm, void *arg)
{
    mst_allreduce *self = arg;
    mst_sparse_exchange *x = &self->sparse;
    const uint32_t n = self->n_ranks, me = self->rank;
    mst_comm_message *m = mst_calloc(2 * (size_t)n, sizeof *m);
    uint32_t n_sends = 0, n_receives = 0;
    mst_status st;
    if (m == NULL)
        return mst_fail_memory();
    TRY_OUT(st, mst_comm_gather(comm, x->counts + (size_t)me * x->n_owners, x->n_owners * sizeof *x->counts,
                                x->counts, false, MST_TAG_COUNTS, "the sizes of sparse gradients"));
    x->scattered = scatter_is_less(self);
    x->in_at[0] = 0;
    for (uint32_t s = 0; s < n; s++) {
        size_t bytes = 0;
        for (uint32_t p = 0; p < n; p++)
            bytes += s != me && (!x->scattered || p == me) ? block_bytes(self, keys_for(self, s, p)) : 0;
        TRY_OUT(st, too_large(bytes));
        x->in_at[s + 1] = x->in_at[s] + bytes;
    }
    TRY_OUT(st, buffer_room(&x->in, x->in_at[n] + 8));
    for (uint32_t p = 0; p < n; p++) {
        if (p == me)
            continue;
        size_t from = x->scattered ? x->out_at[p] : 0, to = x->scattered ? x->out_at[p + 1] : x->out_at[n];
        TRY_OUT(st, too_large(to - from));
        if (to > from)
            m[n_sends++] = (mst_comm_message){x->out.data + from, to - from, (int)p, MST_TAG_KEYS};
        if (x->in_at[p + 1] > x->in_at[p])
            m[n + n_receives++] = (mst_comm_message){x->in.data + x->in_at[p], x->in_at[p + 1] - x->in_at[p],
                                                     (int)p, MST_TAG_KEYS};
    }
    st = mst_comm_exchange(comm, m, n_sends, m + n, n_receives, false, "a sparse gradient");
out:
    mst_free(m);
    return st;
}

/* The sums of the own lists to all. */
static mst_status exchange_sums(mst_comm *comm, void *arg)
{
    mst_allreduce *self = arg;
    mst_sparse_exchange *x = &self->sparse;
    const uint32_t n = self->n_ranks, me = self->rank;
    mst_comm_message *m = mst_calloc(2 * (size_t)n, sizeof *m);
    uint32_t n_sends = 0, n_receives = 0, mine[MST_COMM_RANKS];
    mst_status st;
    if (m == NULL)
        return mst_fail_memory();
    for (unsigned t = 0; t < self->n; t++)
        mine[t] = self->workers[t].merged.n;
    TRY_OUT(st, mst_comm_gather(comm, mine, self->n * sizeof *mine, x->sum_counts, false, MST_TAG_COUNTS,
                                "the sizes of sparse sums"));
    size_t at = 0, own = 0;
    for (uint32_t p = 0; p < n; p++) {
        size_t keys = 0;
        for (unsigned t = 0; t < self->n; t++)
            keys += x->sum_counts[p * self->n + t];
        TRY_OUT(st, too_large(block_bytes(self, keys)));
        own = p == me ? block_bytes(self, keys) : own;
        x->in_at[p] = at;
        at += p == me ? 0 : block_bytes(self, keys);
    }
    x->in_at[n] = at;
    TRY_OUT(st, buffer_room(&x->sums, own + 8));
    TRY_OUT(st, buffer_room(&x->sums_in, at + 8));
    pack(self, x->sums.data, merged_list, me);
    for (uint32_t p = 0; p < n; p++) {
        size_t bytes = x->in_at[p + 1] - x->in_at[p];
        if (p != me && own > 0)
            m[n_sends++] = (mst_comm_message){x->sums.data, own, (int)p, MST_TAG_SUMS};
        if (bytes > 0)
            m[n + n_receives++] =
                (mst_comm_message){x->sums_in.data + x->in_at[p], bytes, (int)p, MST_TAG_SUMS};
    }
    TRY_OUT(st, mst_comm_exchange(comm, m, n_sends, m + n, n_receives, false, "sparse sums"));
    for (uint32_t p = 0; p < n; p++)
        unpack(self, p == me ? x->sums.data : x->sums_in.data + x->in_at[p], x->sum_counts + p * self->n,
               x->sum_blocks + p * self->n);
out:
    mst_free(m);
    return st;
}

/* ---- threads ---- */

static void keep(mst_allreduce_worker *w, mst_status st)
{
    w->status = st;
    mst_error_save(&w->error, st);
}

/* Thread t: the threads' contributions to its owners' keys, in thread order. */
static mst_status add_up(mst_allreduce *self, unsigned t)
{
    mst_allreduce_worker *w = &self->workers[t];
    uint32_t width = w->grad.width;
    for (uint32_t r = 0; r < self->n_ranks; r++) {
        size_t n = 0;
        for (unsigned s = 0; s < self->n; s++)
            n += self->workers[s].grad.owners[r * self->n + t].n;
        TRY(mst_localiser_begin(&w->lists[r], n, width));
        for (unsigned s = 0; s < self->n; s++)
            mst_localiser_add(&w->lists[r], &self->workers[s].grad.owners[r * self->n + t], width);
    }
    return MST_OK;
}

static void add_up_thread(void *arg, unsigned t)
{
    mst_allreduce *self = arg;
    keep(&self->workers[t], add_up(self, t));
}

/* The values of a list as floats: where they lie, or in the thread's room for `at` floats before them. */
static const float *floats_of(mst_allreduce *self, mst_allreduce_worker *w, const mst_key_block *b, size_t at)
{
    if (wire_of(self) == MST_WIRE_FP32)
        return (const float *)(const void *)b->values;
    mst_wire_decode(wire_of(self), b->values, (size_t)b->n * w->grad.width, w->decoded + at);
    return w->decoded + at;
}

static mst_status check_keys(const mst_allreduce *self, const mst_key_block *b)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < b->n; i++)
        most = b->keys[i] > most ? b->keys[i] : most;
    return b->n == 0 || most < self->base.env.model->shape.n_features
               ? MST_OK
               : mst_fail(MST_EPEER, "another rank sent key %u of a model of %llu features", most,
                          (unsigned long long)self->base.env.model->shape.n_features);
}

/* What travels of a number is what everybody keeps of it. */
static void round_sums(mst_wire wire, float *sums, size_t n)
{
    uint16_t rounded[BLOCK];
    for (size_t at = 0; wire != MST_WIRE_FP32 && at < n; at += BLOCK) {
        size_t count = n - at < BLOCK ? n - at : BLOCK;
        mst_wire_encode(wire, sums + at, count, rounded);
        mst_wire_decode(wire, rounded, count, sums + at);
    }
}

/* Thread t: the ranks' lists of its owners, in rank order: of its rank's owner alone, or of all. */
static mst_status merge(mst_allreduce *self, unsigned t)
{
    const mst_sparse_exchange *x = &self->sparse;
    mst_allreduce_worker *w = &self->workers[t];
    uint32_t width = w->grad.width, first = x->scattered ? self->rank : 0,
             end = x->scattered ? self->rank + 1 : self->n_ranks;
    size_t total = 0, most = 0;
    for (uint32_t r = first; r < end; r++)
        for (uint32_t s = 0; s < self->n_ranks; s++) {
            const mst_key_block *b = &x->blocks[s * x->n_owners + r * self->n + t];
            total += b->n;
            most = b->n > most ? b->n : most;
            TRY(check_keys(self, b));
        }
    if (!mst_grow(&w->decoded, &w->decoded_room, most * width + 1, sizeof *w->decoded))
        return mst_fail_memory();
    TRY(mst_localiser_begin(&w->merged, total, width));
    for (uint32_t r = first; r < end; r++)
        for (uint32_t s = 0; s < self->n_ranks; s++) {
            const mst_key_block *b = &x->blocks[s * x->n_owners + r * self->n + t];
            mst_contributions list = {
                .keys = (uint32_t *)b->keys, .values = (float *)floats_of(self, w, b, 0), .n = b->n};
            mst_localiser_add(&w->merged, &list, width);
        }
    round_sums(wire_of(self), w->merged.sums, (size_t)w->merged.n * width);
    return MST_OK;
}

static void merge_thread(void *arg, unsigned t)
{
    mst_allreduce *self = arg;
    keep(&self->workers[t], merge(self, t));
}

/* The i-th list of what thread t applies; false: there are no more. Sums that were scattered are decoded to
 * the thread's room, at *used. */
static bool share_of(mst_allreduce *self, unsigned t, uint32_t i, size_t *used, mst_contributions *out)
{
    mst_allreduce_worker *w = &self->workers[t];
    const mst_sparse_exchange *x = &self->sparse;
    bool local = !mst_allreduce_reduces(self);
    if (local || !x->scattered) {
        const mst_localiser *l = local ? &w->lists[i] : &w->merged;
        if (i >= (local ? self->n_ranks : 1))
            return false;
        *out = (mst_contributions){.keys = l->keys, .values = l->sums, .n = l->n};
        return true;
    }
    if (i >= self->n_ranks)
        return false;
    const mst_key_block *b = &x->sum_blocks[i * self->n + t];
    *out = (mst_contributions){
        .keys = (uint32_t *)b->keys, .values = (float *)floats_of(self, w, b, *used), .n = b->n};
    *used += (size_t)b->n * w->grad.width;
    return true;
}

static mst_status find_square(mst_allreduce *self, unsigned t)
{
    mst_allreduce_worker *w = &self->workers[t];
    const mst_sparse_exchange *x = &self->sparse;
    mst_contributions list;
    size_t used = 0, most = 0;
    for (uint32_t r = 0; mst_allreduce_reduces(self) && x->scattered && r < self->n_ranks; r++) {
        most += (size_t)x->sum_blocks[r * self->n + t].n * w->grad.width;
        TRY(check_keys(self, &x->sum_blocks[r * self->n + t]));
    }
    if (!mst_grow(&w->decoded, &w->decoded_room, most + 1, sizeof *w->decoded))
        return mst_fail_memory();
    w->square = 0.0;
    if (self->base.env.optimizer->options.clip_norm <= 0.0)
        return MST_OK;
    for (uint32_t i = 0; share_of(self, t, i, &used, &list); i++)
        w->square += mst_clip_squares(list.values, list.n * w->grad.width);
    return MST_OK;
}

static void square_thread(void *arg, unsigned t)
{
    mst_allreduce *self = arg;
    keep(&self->workers[t], find_square(self, t));
}

static void apply_thread(void *arg, unsigned t)
{
    mst_allreduce *self = arg;
    const mst_optimizer *optimizer = self->base.env.optimizer;
    mst_params *params = self->base.env.params;
    mst_allreduce_worker *w = &self->workers[t];
    mst_contributions list;
    float *slots[MST_SLOT_MAX];
    size_t used = 0;
    uint64_t at = w->grad.sparse_offset;
    for (uint32_t s = 0; s < params->n_slots; s++)
        slots[s] = params->slots[s] + at;
    for (uint32_t i = 0; share_of(self, t, i, &used, &list); i++) {
        mst_clip_scale(list.values, list.n * w->grad.width, self->clip);
        optimizer->ops->apply_keys(optimizer, &self->update, params->w + at, slots, list.keys, list.values,
                                   list.n, w->grad.width);
    }
}

/* ---- all of it ---- */

static mst_status exchange(mst_allreduce *self)
{
    mst_sparse_exchange *x = &self->sparse;
    const uint32_t n = self->n_ranks, me = self->rank;
    uint32_t *mine = x->counts + (size_t)me * x->n_owners;
    uint64_t start = mst_now_ns();
    x->out_at[0] = 0;
    for (uint32_t p = 0; p < n; p++) {
        for (unsigned t = 0; t < self->n; t++)
            mine[p * self->n + t] = self->workers[t].lists[p].n;
        x->out_at[p + 1] = x->out_at[p] + block_bytes(self, keys_for(self, me, p));
    }
    TRY(buffer_room(&x->out, x->out_at[n] + 8));
    for (uint32_t p = 0; p < n; p++)
        pack(self, x->out.data + x->out_at[p], list_for, p);
    mst_span_enter(MST_PHASE_BARRIER_WAIT);
    TRY(mst_comm_call(self->comm, exchange_lists, self));
    mst_span_enter(MST_PHASE_PREPARE);
    for (uint32_t s = 0; s < n; s++) {
        const char *at = s == me ? x->out.data : x->in.data + x->in_at[s];
        for (uint32_t p = 0; p < n; p++) {
            if (x->scattered && p != me)
                continue;
            if (s == me)
                at = x->out.data + x->out_at[p];
            unpack(self, at, x->counts + (size_t)s * x->n_owners + p * self->n,
                   x->blocks + (size_t)s * x->n_owners + p * self->n);
            at += block_bytes(self, keys_for(self, s, p));
        }
    }
    self->counts.wait_seconds += mst_seconds_since(start);
    return MST_OK;
}

/* How many of the keys were distinct: for the next step's choice. */
static void learn(mst_allreduce *self)
{
    mst_sparse_exchange *x = &self->sparse;
    uint64_t total = 0, distinct = 0;
    for (size_t i = 0; i < (size_t)x->n_owners * self->n_ranks; i++)
        total += x->counts[i];
    for (uint32_t o = 0; x->scattered && o < x->n_owners; o++)
        distinct += x->sum_counts[o];
    for (unsigned t = 0; !x->scattered && t < self->n; t++)
        distinct += self->workers[t].merged.n;
    if (total > 0)
        x->union_share = (double)distinct / (double)total;
    *(x->scattered ? &x->n_scattered : &x->n_gathered) += 1;
}

mst_status mst_sparse_sum(mst_allreduce *self, double *square)
{
    mst_team_run(self->team, add_up_thread, self);
    TRY(mst_allreduce_collect(self));
    if (mst_allreduce_reduces(self)) {
        TRY(exchange(self));
        mst_team_run(self->team, merge_thread, self);
        TRY(mst_allreduce_collect(self));
        if (self->sparse.scattered) {
            uint64_t start = mst_now_ns();
            TRY(mst_comm_call(self->comm, exchange_sums, self));
            self->counts.wait_seconds += mst_seconds_since(start);
        }
        learn(self);
    }
    mst_team_run(self->team, square_thread, self);
    TRY(mst_allreduce_collect(self));
    *square = 0.0;
    for (unsigned t = 0; t < self->n; t++)
        *square += self->workers[t].square;
    return MST_OK;
}

mst_status mst_sparse_apply(mst_allreduce *self, float clip)
{
    self->clip = clip;
    mst_team_run(self->team, apply_thread, self);
    return MST_OK;
}
