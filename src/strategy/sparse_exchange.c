/* Sparse gradients over all ranks; contract in sparse_exchange.h.
 *
 * A rank's contributions are added up per key first, by threads that own disjoint sets of keys: as many sets
 * as there are threads in all, so that owner o is thread o % n of rank o / n. Then the (key, sum) lists
 * travel in one of two ways:
 *
 *   gathered    every rank sends all its lists to every other rank, which adds them up
 *   scattered   every rank sends the lists of owner o to rank o / n only, which sends the sums to all
 *
 * Scattered needs fewer bytes where ranks have many keys in common, and takes the time of two messages. Ranks
 * exchange the sizes of their lists first, so that each can compute the bytes that the busiest rank would
 * receive in either way; the share of distinct keys is taken from the step before. All ranks compute the same
 * numbers and so choose the same way.
 *
 * Per key, sums have the order of threads and then of ranks either way, and on a wire of 16 bits both
 * contributions and sums are rounded: both methods give bit-identical results.
 *
 * A block holds one rank's lists for the threads of another rank: the keys of those n lists, then their
 * values, padded to 8 bytes. The counts have the number of keys of each list. */
#include "strategy/sparse_exchange.h"

#include <limits.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "observe/trace_file.h"
#include "tensor/clip.h"

#define BLOCK 512u /* floats that are rounded at a time */

mst_status mst_sparse_init(mst_sparse_exchange *x, const mst_sparse_options *options,
                           const mst_grad *const *grads)
{
    uint32_t n_ranks = (uint32_t)mst_comm_mpi(options->comm)->size;
    x->o = *options;
    x->rank = (uint32_t)mst_comm_mpi(options->comm)->rank;
    x->n_ranks = n_ranks;
    x->n_owners = n_ranks * options->n_threads;
    x->width = grads[0]->width;
    x->union_share = 1.0;
    x->counts = mst_calloc((size_t)x->n_owners * n_ranks, sizeof *x->counts);
    x->sum_counts = mst_calloc(x->n_owners, sizeof *x->sum_counts);
    x->out_at = mst_calloc(n_ranks + 1, sizeof *x->out_at);
    x->in_at = mst_calloc(n_ranks + 1, sizeof *x->in_at);
    x->blocks = mst_calloc((size_t)x->n_owners * n_ranks, sizeof *x->blocks);
    x->sum_blocks = mst_calloc(x->n_owners, sizeof *x->sum_blocks);
    x->threads = mst_alloc_lines(options->n_threads * sizeof *x->threads);
    if (x->threads != NULL)
        memset(x->threads, 0, options->n_threads * sizeof *x->threads);
    if (x->counts == NULL || x->sum_counts == NULL || x->out_at == NULL || x->in_at == NULL ||
        x->blocks == NULL || x->sum_blocks == NULL || x->threads == NULL)
        return mst_fail_memory();
    for (unsigned t = 0; t < options->n_threads; t++) {
        x->threads[t].grad = grads[t];
        x->threads[t].lists = mst_calloc(n_ranks, sizeof *x->threads[t].lists);
        if (x->threads[t].lists == NULL)
            return mst_fail_memory();
    }
    return MST_OK;
}

void mst_sparse_fini(mst_sparse_exchange *x)
{
    for (unsigned t = 0; x->threads != NULL && t < x->o.n_threads; t++) {
        mst_sparse_thread *w = &x->threads[t];
        for (uint32_t r = 0; w->lists != NULL && r < x->n_ranks; r++)
            mst_key_sums_fini(&w->lists[r]);
        mst_free(w->lists);
        mst_key_sums_fini(&w->merged);
        mst_free(w->decoded);
    }
    mst_free(x->threads);
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

static mst_status sparse_buffer_room(mst_sparse_buffer *b, size_t bytes)
{
    return mst_grow(&b->data, &b->room, bytes, 1) ? MST_OK : mst_fail_memory();
}

/* ---- blocks ---- */

static size_t sparse_value_bytes(const mst_sparse_exchange *x)
{
    return x->width * mst_float_size(x->o.wire);
}

static size_t sparse_block_bytes(const mst_sparse_exchange *x, size_t keys)
{
    return (keys * (sizeof(uint32_t) + sparse_value_bytes(x)) + 7) / 8 * 8;
}

/* Keys that rank s has for rank p. */
static size_t sparse_keys_for(const mst_sparse_exchange *x, uint32_t s, uint32_t p)
{
    const uint32_t *counts = x->counts + (size_t)s * x->n_owners + (size_t)p * x->o.n_threads;
    size_t n = 0;
    for (unsigned t = 0; t < x->o.n_threads; t++)
        n += counts[t];
    return n;
}

/* Writes a block of n lists; list(t) as thread t has it. */
static void block_pack(mst_sparse_exchange *x, char *at,
                       const mst_key_sums *(*list)(mst_sparse_exchange *, uint32_t, unsigned), uint32_t p)
{
    uint32_t width = x->width;
    size_t n = 0;
    for (unsigned t = 0; t < x->o.n_threads; t++) {
        const mst_key_sums *l = list(x, p, t);
        if (l->n > 0)
            memcpy(at + n * sizeof(uint32_t), l->keys, l->n * sizeof(uint32_t));
        n += l->n;
    }
    at += n * sizeof(uint32_t);
    for (unsigned t = 0; t < x->o.n_threads; t++) {
        const mst_key_sums *l = list(x, p, t);
        if (l->n > 0)
            mst_float_encode(x->o.wire, l->sums, (size_t)l->n * width, at);
        at += l->n * sparse_value_bytes(x);
    }
}

static const mst_key_sums *sparse_list_for(mst_sparse_exchange *x, uint32_t p, unsigned t)
{
    return &x->threads[t].lists[p];
}

static const mst_key_sums *sparse_merged_list(mst_sparse_exchange *x, uint32_t p, unsigned t)
{
    (void)p;
    return &x->threads[t].merged;
}

/* Points n lists at a block whose lists have these counts. */
static void block_unpack(const mst_sparse_exchange *x, const char *at, const uint32_t *counts,
                         mst_key_block *out)
{
    size_t n = 0;
    for (unsigned t = 0; t < x->o.n_threads; t++)
        n += counts[t];
    const char *values = at + n * sizeof(uint32_t);
    for (unsigned t = 0; t < x->o.n_threads; t++) {
        out[t] = (mst_key_block){(const uint32_t *)(const void *)at, values, counts[t]};
        at += counts[t] * sizeof(uint32_t);
        values += counts[t] * sparse_value_bytes(x);
    }
}

/* ---- choice of the method ---- */

/* Whether the busiest rank receives fewer bytes with scattered lists than with gathered ones. */
static bool sparse_scatter_is_less(const mst_sparse_exchange *x)
{
    const uint32_t n = x->n_ranks;
    size_t gathered = 0, scattered = 0, total = 0;
    for (uint32_t s = 0; s < n; s++)
        for (uint32_t p = 0; p < n; p++)
            total += sparse_keys_for(x, s, p);
    for (uint32_t r = 0; r < n; r++) {
        size_t own = 0, in = 0, mine = 0;
        for (uint32_t s = 0; s < n; s++) {
            own += sparse_keys_for(x, r, s);
            mine += sparse_keys_for(x, s, r);
            in += s != r ? sparse_keys_for(x, s, r) : 0;
        }
        in += (size_t)((double)(total - mine) * x->union_share);
        gathered = total - own > gathered ? total - own : gathered;
        scattered = in > scattered ? in : scattered;
    }
    return scattered < gathered;
}

/* ---- messages, on the communication thread ---- */

static mst_status sparse_check_size(size_t bytes)
{
    return bytes <= INT_MAX
               ? MST_OK
               : mst_fail(MST_EUSAGE,
                          "a sparse gradient of %zu bytes in one message: use a smaller batch, or more ranks",
                          bytes);
}

/* Sends lists to their owners, or all lists to all. */
static mst_status sparse_exchange_lists(mst_comm *comm, void *arg)
{
    mst_sparse_exchange *x = arg;
    const uint32_t n = x->n_ranks, me = x->rank;
    mst_comm_message *m = mst_calloc(2 * (size_t)n, sizeof *m);
    uint32_t n_sends = 0, n_receives = 0;
    mst_status st;
    if (m == NULL)
        return mst_fail_memory();
    TRY_OUT(st, mst_comm_gather(comm, x->counts + (size_t)me * x->n_owners, x->n_owners * sizeof *x->counts,
                                x->counts, false, MST_COMM_TAG_COUNTS, "the sizes of sparse gradients"));
    x->scattered = sparse_scatter_is_less(x);
    x->in_at[0] = 0;
    for (uint32_t s = 0; s < n; s++) {
        size_t bytes = 0;
        for (uint32_t p = 0; p < n; p++)
            bytes +=
                s != me && (!x->scattered || p == me) ? sparse_block_bytes(x, sparse_keys_for(x, s, p)) : 0;
        TRY_OUT(st, sparse_check_size(bytes));
        x->in_at[s + 1] = x->in_at[s] + bytes;
    }
    TRY_OUT(st, sparse_buffer_room(&x->in, x->in_at[n] + 8));
    for (uint32_t p = 0; p < n; p++) {
        if (p == me)
            continue;
        size_t from = x->scattered ? x->out_at[p] : 0, to = x->scattered ? x->out_at[p + 1] : x->out_at[n];
        TRY_OUT(st, sparse_check_size(to - from));
        if (to > from)
            m[n_sends++] = (mst_comm_message){x->out.data + from, to - from, (int)p, MST_COMM_TAG_KEYS};
        if (x->in_at[p + 1] > x->in_at[p])
            m[n + n_receives++] = (mst_comm_message){x->in.data + x->in_at[p], x->in_at[p + 1] - x->in_at[p],
                                                     (int)p, MST_COMM_TAG_KEYS};
    }
    st = mst_comm_exchange(comm, m, n_sends, m + n, n_receives, false, "a sparse gradient");
out:
    mst_free(m);
    return st;
}

/* Sends the sums of the own lists to all. */
static mst_status sparse_exchange_sums(mst_comm *comm, void *arg)
{
    mst_sparse_exchange *x = arg;
    const uint32_t n = x->n_ranks, me = x->rank;
    mst_comm_message *m = mst_calloc(2 * (size_t)n, sizeof *m);
    uint32_t n_sends = 0, n_receives = 0, mine[MST_COMM_RANKS];
    mst_status st;
    if (m == NULL)
        return mst_fail_memory();
    for (unsigned t = 0; t < x->o.n_threads; t++)
        mine[t] = x->threads[t].merged.n;
    TRY_OUT(st, mst_comm_gather(comm, mine, x->o.n_threads * sizeof *mine, x->sum_counts, false,
                                MST_COMM_TAG_COUNTS, "the sizes of sparse sums"));
    size_t at = 0, own = 0;
    for (uint32_t p = 0; p < n; p++) {
        size_t keys = 0;
        for (unsigned t = 0; t < x->o.n_threads; t++)
            keys += x->sum_counts[p * x->o.n_threads + t];
        TRY_OUT(st, sparse_check_size(sparse_block_bytes(x, keys)));
        own = p == me ? sparse_block_bytes(x, keys) : own;
        x->in_at[p] = at;
        at += p == me ? 0 : sparse_block_bytes(x, keys);
    }
    x->in_at[n] = at;
    TRY_OUT(st, sparse_buffer_room(&x->sums, own + 8));
    TRY_OUT(st, sparse_buffer_room(&x->sums_in, at + 8));
    block_pack(x, x->sums.data, sparse_merged_list, me);
    for (uint32_t p = 0; p < n; p++) {
        size_t bytes = x->in_at[p + 1] - x->in_at[p];
        if (p != me && own > 0)
            m[n_sends++] = (mst_comm_message){x->sums.data, own, (int)p, MST_COMM_TAG_SUMS};
        if (bytes > 0)
            m[n + n_receives++] =
                (mst_comm_message){x->sums_in.data + x->in_at[p], bytes, (int)p, MST_COMM_TAG_SUMS};
    }
    TRY_OUT(st, mst_comm_exchange(comm, m, n_sends, m + n, n_receives, false, "sparse sums"));
    for (uint32_t p = 0; p < n; p++)
        block_unpack(x, p == me ? x->sums.data : x->sums_in.data + x->in_at[p],
                     x->sum_counts + p * x->o.n_threads, x->sum_blocks + p * x->o.n_threads);
out:
    mst_free(m);
    return st;
}

/* ---- threads ---- */

static void sparse_keep(mst_sparse_thread *w, mst_status st)
{
    w->status = st;
    mst_error_save(&w->error, st);
}

static mst_status sparse_collect(const mst_sparse_exchange *x)
{
    for (unsigned t = 0; t < x->o.n_threads; t++)
        if (x->threads[t].status != MST_OK)
            return mst_error_restore(&x->threads[t].error);
    return MST_OK;
}

/* Thread t: the threads' contributions to its owners' keys, in thread order. */
static mst_status sparse_add_up(mst_sparse_exchange *x, unsigned t)
{
    mst_sparse_thread *w = &x->threads[t];
    uint32_t width = x->width;
    for (uint32_t r = 0; r < x->n_ranks; r++) {
        size_t n = 0;
        for (unsigned s = 0; s < x->o.n_threads; s++)
            n += x->threads[s].grad->owners[r * x->o.n_threads + t].n;
        TRY(mst_key_sums_begin(&w->lists[r], n, width));
        for (unsigned s = 0; s < x->o.n_threads; s++)
            mst_key_sums_add(&w->lists[r], &x->threads[s].grad->owners[r * x->o.n_threads + t], width);
    }
    return MST_OK;
}

static void sparse_add_up_thread(void *arg, unsigned t)
{
    mst_sparse_exchange *x = arg;
    sparse_keep(&x->threads[t], sparse_add_up(x, t));
}

/* The values of a list as floats: where they lie, or in the thread's room for `at` floats before them. */
static const float *sparse_floats_of(mst_sparse_exchange *x, mst_sparse_thread *w, const mst_key_block *b,
                                     size_t at)
{
    if (x->o.wire == MST_FLOAT_FP32)
        return (const float *)(const void *)b->values;
    mst_float_decode(x->o.wire, b->values, (size_t)b->n * x->width, w->decoded + at);
    return w->decoded + at;
}

static mst_status sparse_check_keys(const mst_sparse_exchange *x, const mst_key_block *b)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < b->n; i++)
        most = b->keys[i] > most ? b->keys[i] : most;
    return b->n == 0 || most < x->o.n_features
               ? MST_OK
               : mst_fail(MST_EPEER, "another rank sent key %u of a model of %llu features", most,
                          (unsigned long long)x->o.n_features);
}

/* Every rank keeps the rounded sums that travel. */
static void sparse_round(mst_float_format wire, float *sums, size_t n)
{
    uint16_t rounded[BLOCK];
    for (size_t at = 0; wire != MST_FLOAT_FP32 && at < n; at += BLOCK) {
        size_t count = n - at < BLOCK ? n - at : BLOCK;
        mst_float_encode(wire, sums + at, count, rounded);
        mst_float_decode(wire, rounded, count, sums + at);
    }
}

/* Thread t: the ranks' lists of its owners, in rank order: of its rank's owner alone, or of all. */
static mst_status sparse_merge(mst_sparse_exchange *x, unsigned t)
{
    mst_sparse_thread *w = &x->threads[t];
    uint32_t width = x->width, first = x->scattered ? x->rank : 0,
             end = x->scattered ? x->rank + 1 : x->n_ranks;
    size_t total = 0, most = 0;
    for (uint32_t r = first; r < end; r++)
        for (uint32_t s = 0; s < x->n_ranks; s++) {
            const mst_key_block *b = &x->blocks[s * x->n_owners + r * x->o.n_threads + t];
            total += b->n;
            most = b->n > most ? b->n : most;
            TRY(sparse_check_keys(x, b));
        }
    if (!mst_grow(&w->decoded, &w->decoded_room, most * width + 1, sizeof *w->decoded))
        return mst_fail_memory();
    TRY(mst_key_sums_begin(&w->merged, total, width));
    for (uint32_t r = first; r < end; r++)
        for (uint32_t s = 0; s < x->n_ranks; s++) {
            const mst_key_block *b = &x->blocks[s * x->n_owners + r * x->o.n_threads + t];
            mst_contributions list = {
                .keys = (uint32_t *)b->keys, .values = (float *)sparse_floats_of(x, w, b, 0), .n = b->n};
            mst_key_sums_add(&w->merged, &list, width);
        }
    sparse_round(x->o.wire, w->merged.sums, (size_t)w->merged.n * width);
    return MST_OK;
}

static void sparse_merge_thread(void *arg, unsigned t)
{
    mst_sparse_exchange *x = arg;
    sparse_keep(&x->threads[t], sparse_merge(x, t));
}

/* The i-th list of what thread t applies; false: there are no more. Sums that were scattered are decoded to
 * the thread's room, at *used. */
static bool sparse_share_of(mst_sparse_exchange *x, unsigned t, uint32_t i, size_t *used,
                            mst_contributions *out)
{
    mst_sparse_thread *w = &x->threads[t];
    bool local = !x->o.reduces;
    if (local || !x->scattered) {
        const mst_key_sums *l = local ? &w->lists[i] : &w->merged;
        if (i >= (local ? x->n_ranks : 1))
            return false;
        *out = (mst_contributions){.keys = l->keys, .values = l->sums, .n = l->n};
        return true;
    }
    if (i >= x->n_ranks)
        return false;
    const mst_key_block *b = &x->sum_blocks[i * x->o.n_threads + t];
    *out = (mst_contributions){
        .keys = (uint32_t *)b->keys, .values = (float *)sparse_floats_of(x, w, b, *used), .n = b->n};
    *used += (size_t)b->n * x->width;
    return true;
}

static mst_status sparse_find_square(mst_sparse_exchange *x, unsigned t)
{
    mst_sparse_thread *w = &x->threads[t];
    mst_contributions list;
    size_t used = 0, most = 0;
    for (uint32_t r = 0; x->o.reduces && x->scattered && r < x->n_ranks; r++) {
        most += (size_t)x->sum_blocks[r * x->o.n_threads + t].n * x->width;
        TRY(sparse_check_keys(x, &x->sum_blocks[r * x->o.n_threads + t]));
    }
    if (!mst_grow(&w->decoded, &w->decoded_room, most + 1, sizeof *w->decoded))
        return mst_fail_memory();
    w->square = 0.0;
    if (!x->o.needs_square)
        return MST_OK;
    for (uint32_t i = 0; sparse_share_of(x, t, i, &used, &list); i++)
        w->square += mst_clip_squares(list.values, list.n * x->width);
    return MST_OK;
}

static void sparse_square_thread(void *arg, unsigned t)
{
    mst_sparse_exchange *x = arg;
    sparse_keep(&x->threads[t], sparse_find_square(x, t));
}

typedef struct sparse_update {
    mst_sparse_exchange *x;
    const mst_optimizer *optimizer;
    const mst_update *update;
    float clip;
    mst_params *params;
} sparse_update;

static void sparse_apply_thread(void *arg, unsigned t)
{
    const sparse_update *u = arg;
    mst_sparse_exchange *x = u->x;
    mst_contributions list;
    size_t used = 0;
    uint64_t at = x->threads[t].grad->sparse_offset;
    for (uint32_t i = 0; sparse_share_of(x, t, i, &used, &list); i++) {
        mst_clip_scale(list.values, list.n * x->width, u->clip);
        mst_optimizer_apply_keys(u->optimizer, u->update, u->params, at, x->width, list.keys, list.values,
                                 list.n);
    }
}

/* ---- the exchange ---- */

static mst_status sparse_exchange(mst_sparse_exchange *x, double *wait_seconds)
{
    const uint32_t n = x->n_ranks, me = x->rank;
    uint32_t *mine = x->counts + (size_t)me * x->n_owners;
    uint64_t start = mst_now_ns();
    x->out_at[0] = 0;
    for (uint32_t p = 0; p < n; p++) {
        for (unsigned t = 0; t < x->o.n_threads; t++)
            mine[p * x->o.n_threads + t] = x->threads[t].lists[p].n;
        x->out_at[p + 1] = x->out_at[p] + sparse_block_bytes(x, sparse_keys_for(x, me, p));
    }
    TRY(sparse_buffer_room(&x->out, x->out_at[n] + 8));
    uint64_t traced = mst_trace_now();
    for (uint32_t p = 0; p < n; p++)
        block_pack(x, x->out.data + x->out_at[p], sparse_list_for, p);
    mst_trace_op("pack", traced, (mst_trace_output){.bytes = x->out_at[n]});
    mst_span_enter(MST_PHASE_BARRIER_WAIT);
    TRY(mst_comm_call(x->o.comm, sparse_exchange_lists, x));
    mst_span_enter(MST_PHASE_PREPARE);
    traced = mst_trace_now();
    for (uint32_t s = 0; s < n; s++) {
        const char *at = s == me ? x->out.data : x->in.data + x->in_at[s];
        for (uint32_t p = 0; p < n; p++) {
            if (x->scattered && p != me)
                continue;
            if (s == me)
                at = x->out.data + x->out_at[p];
            block_unpack(x, at, x->counts + (size_t)s * x->n_owners + p * x->o.n_threads,
                         x->blocks + (size_t)s * x->n_owners + p * x->o.n_threads);
            at += sparse_block_bytes(x, sparse_keys_for(x, s, p));
        }
    }
    mst_trace_op("unpack", traced, (mst_trace_output){0});
    *wait_seconds += mst_seconds_since(start);
    return MST_OK;
}

/* Records the share of distinct keys for the next step's choice. */
static void sparse_learn(mst_sparse_exchange *x)
{
    uint64_t total = 0, distinct = 0;
    for (size_t i = 0; i < (size_t)x->n_owners * x->n_ranks; i++)
        total += x->counts[i];
    for (uint32_t o = 0; x->scattered && o < x->n_owners; o++)
        distinct += x->sum_counts[o];
    for (unsigned t = 0; !x->scattered && t < x->o.n_threads; t++)
        distinct += x->threads[t].merged.n;
    if (total > 0)
        x->union_share = (double)distinct / (double)total;
    *(x->scattered ? &x->n_scattered : &x->n_gathered) += 1;
}

mst_status mst_sparse_sum(mst_sparse_exchange *x, double *square, double *wait_seconds)
{
    uint64_t at = mst_trace_now();
    mst_team_run(x->o.team, sparse_add_up_thread, x);
    TRY(sparse_collect(x));
    mst_trace_op("sum", at, (mst_trace_output){0});
    if (x->o.reduces) {
        TRY(sparse_exchange(x, wait_seconds));
        at = mst_trace_now();
        mst_team_run(x->o.team, sparse_merge_thread, x);
        TRY(sparse_collect(x));
        at = mst_trace_op("merge", at, (mst_trace_output){0});
        if (x->scattered) {
            uint64_t start = mst_now_ns();
            TRY(mst_comm_call(x->o.comm, sparse_exchange_sums, x));
            mst_trace_op("exchange sums", at, (mst_trace_output){0});
            *wait_seconds += mst_seconds_since(start);
        }
        sparse_learn(x);
    }
    mst_team_run(x->o.team, sparse_square_thread, x);
    TRY(sparse_collect(x));
    *square = 0.0;
    for (unsigned t = 0; t < x->o.n_threads; t++)
        *square += x->threads[t].square;
    return MST_OK;
}

void mst_sparse_apply(mst_sparse_exchange *x, const mst_optimizer *optimizer, const mst_update *update,
                      float clip, mst_params *params)
{
    sparse_update u = {.x = x, .optimizer = optimizer, .update = update, .clip = clip, .params = params};
    mst_team_run(x->o.team, sparse_apply_thread, &u);
}
