/* clang-format off */
/* The reducer; contract in reducer.h.
 *
 * gather: every rank sends all of the slice to every other and adds up for itself. The time of one message,
 * and n x (N - 1) floats in and out of every rank: for short slices, and for two ranks.
 *
 * direct: the slice is divided into a share per rank. Every rank sends share p to rank p, which adds it up
 * and sends the sum to all: 2 n (N - 1) / N floats in and out of every rank, the lower bound of any
 * algorithm, and the time of two messages, where a ring takes 2 (N - 1). Shares travel in segments, so that
 * one is added up while the next is under way. Several slices are under way at a time, so that the link is
 * not idle between two.
 *
 * Invariants
 * 1. Contributions are added in the order of ranks, whatever the algorithm. On a wire of 16 bits every
 *    contribution, including the rank's own, is rounded as if sent. Sums are kept in fp32 and rounded once,
 *    as if sent. So all ranks compute the same bits, with either algorithm.
 * 2. Results are received into the slice itself while contributions of the same segment may still count as
 *    being sent from there: the sum that arrives includes that contribution, so it has been sent.
 * 3. All ranks start posted reductions in the same order, a bounded number at a time. A reduction does not
 *    depend on later ones, so every reduction completes. */
/* clang-format on */
#include "strategy/reducer.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

#define SEGMENT      65536u     /* floats */
#define BLOCK        512u       /* floats that are added up at a time */
#define GATHER_LEAST (1u << 18) /* floats that gather may bring in, where direct would not take as many */
#define SERIALS      512u       /* distinct tags: many more than reductions in flight */

typedef struct rank_share {
    size_t from, n;
    uint32_t n_segments;
} rank_share;

static rank_share share_of(size_t n, uint32_t p, uint32_t n_parts)
{
    size_t lines = (n + 15) / 16, from = lines * p / n_parts * 16, to = lines * (p + 1) / n_parts * 16;
    from = from < n ? from : n;
    to = to < n ? to : n;
    return (rank_share){from, to - from, (uint32_t)((to - from + SEGMENT - 1) / SEGMENT)};
}

static size_t share_segment(const rank_share *p, uint32_t segment)
{
    size_t left = p->n - (size_t)segment * SEGMENT;
    return left < SEGMENT ? left : SEGMENT;
}

static int reduction_tag(const mst_reducer *self, const mst_reduction *r, int phase)
{
    return self->first_tag + (int)(r->serial % SERIALS) * 2 + phase;
}

/* ---- sums ---- */

static void floats_add(float *restrict sum, const float *restrict more, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += more[i];
}

/* n floats of every rank, added in rank order to `out`, which may be one of them. rounded: the sum as it is
 * sent on a wire of 16 bits; out is then equal to it. */
static void sum_ranks(const void *const *parts, uint32_t n_parts, size_t n, mst_float_format wire, float *out,
                      void *rounded)
{
    float sum[BLOCK], more[BLOCK];
    size_t size = mst_float_size(wire);
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t count = n - at < BLOCK ? n - at : BLOCK;
        for (uint32_t p = 0; p < n_parts; p++) {
            const char *from = (const char *)parts[p] + at * size;
            if (p == 0 && wire == MST_FLOAT_FP32)
                memcpy(sum, from, count * sizeof *sum);
            else if (p == 0)
                mst_float_decode(wire, from, count, sum);
            else if (wire == MST_FLOAT_FP32)
                floats_add(sum, (const float *)(const void *)from, count);
            else {
                mst_float_decode(wire, from, count, more);
                floats_add(sum, more, count);
            }
        }
        if (wire == MST_FLOAT_FP32) {
            memcpy(out + at, sum, count * sizeof *sum);
            continue;
        }
        mst_float_encode(wire, sum, count, (char *)rounded + at * size);
        mst_float_decode(wire, (char *)rounded + at * size, count, out + at);
    }
}

/* ---- messages ---- */

static mst_status reduction_send(mst_reducer *self, mst_reduction *r, uint32_t request, const void *data,
                                 size_t bytes, uint32_t to, int phase)
{
    self->counts.bytes_out += bytes;
    return self->mpi->ops->isend(self->world, data, bytes, (int)to, reduction_tag(self, r, phase),
                                 &r->requests[request]);
}

static mst_status reduction_receive(mst_reducer *self, mst_reduction *r, uint32_t request, void *data,
                                    size_t bytes, uint32_t from, int phase)
{
    self->counts.bytes_in += bytes;
    return self->mpi->ops->irecv(self->world, data, bytes, (int)from, reduction_tag(self, r, phase),
                                 &r->requests[request]);
}

static bool reduction_under_way(const mst_reduction *r, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        if (r->requests[i].opaque != 0)
            return true;
    return false;
}

/* The slice as it travels: itself, or a copy of 16 bits a number. */
static const char *reduction_outgoing(mst_reducer *self, mst_reduction *r)
{
    if (self->wire == MST_FLOAT_FP32)
        return (const char *)r->op->data;
    mst_float_encode(self->wire, r->op->data, r->op->n, r->out);
    return r->out;
}

/* ---- gather, copy ---- */

static mst_status gather_start(mst_reducer *self, mst_reduction *r)
{
    uint32_t n_ranks = (uint32_t)self->mpi->size, me = (uint32_t)self->mpi->rank, i = 0;
    size_t bytes = r->op->n * mst_float_size(self->wire);
    const char *out = reduction_outgoing(self, r);
    for (uint32_t p = 0; p < n_ranks; p++) {
        r->parts[p] = p == me ? out : r->in + i * bytes;
        if (p == me)
            continue;
        TRY(reduction_receive(self, r, i, r->in + i * bytes, bytes, p, 0));
        i++;
    }
    for (uint32_t p = 0; p < n_ranks; p++)
        if (p != me)
            TRY(reduction_send(self, r, i++, out, bytes, p, 0));
    r->n_requests = i;
    return MST_OK;
}

static mst_status gather_move(mst_reducer *self, mst_reduction *r, bool *over)
{
    if (reduction_under_way(r, 0, r->n_requests)) /* buffers that are being sent must not change */
        return MST_OK;
    sum_ranks(r->parts, (uint32_t)self->mpi->size, r->op->n, self->wire, r->op->data, r->results);
    *over = true;
    return MST_OK;
}

static mst_status copy_start(mst_reducer *self, mst_reduction *r)
{
    size_t bytes = r->op->n * sizeof(float);
    if (self->mpi->rank != 0) {
        r->n_requests = 1;
        return reduction_receive(self, r, 0, r->op->data, bytes, 0, 0);
    }
    for (uint32_t p = 1; p < (uint32_t)self->mpi->size; p++)
        TRY(reduction_send(self, r, p - 1, r->op->data, bytes, p, 0));
    r->n_requests = (uint32_t)self->mpi->size - 1;
    return MST_OK;
}

/* ---- direct ---- */

/* The first index of each kind of requests after the first kind, and their number. */
typedef struct direct_layout {
    uint32_t results, contributions_out, results_out, end;
} direct_layout;

static direct_layout direct_layout_of(const mst_reducer *self, size_t n)
{
    uint32_t n_ranks = (uint32_t)self->mpi->size, me = (uint32_t)self->mpi->rank, theirs = 0;
    for (uint32_t p = 0; p < n_ranks; p++)
        theirs += p != me ? share_of(n, p, n_ranks).n_segments : 0;
    uint32_t mine = share_of(n, me, n_ranks).n_segments * (n_ranks - 1);
    return (direct_layout){mine, mine + theirs, mine + 2 * theirs, 2 * (mine + theirs)};
}

/* The buffer for the contribution of the i-th other rank to a segment of the own part. */
static char *direct_arrival(const mst_reducer *self, const mst_reduction *r, const rank_share *own,
                            uint32_t segment, uint32_t i)
{
    size_t size = mst_float_size(self->wire);
    return r->in + ((size_t)i * own->n + (size_t)segment * SEGMENT) * size;
}

static mst_status direct_start(mst_reducer *self, mst_reduction *r)
{
    uint32_t n_ranks = (uint32_t)self->mpi->size, me = (uint32_t)self->mpi->rank, others = n_ranks - 1;
    size_t size = mst_float_size(self->wire), n = r->op->n;
    direct_layout at = direct_layout_of(self, n);
    rank_share own = share_of(n, me, n_ranks);
    const char *out = reduction_outgoing(self, r);
    char *results = self->wire == MST_FLOAT_FP32 ? (char *)r->op->data : r->results;
    r->n_segments = own.n_segments;
    r->n_requests = at.end;
    for (uint32_t i = 0; i < at.end; i++)
        r->requests[i] = MST_MPI_NONE;
    memset(r->decoded, 0, (at.contributions_out - at.results) * sizeof *r->decoded);
    for (uint32_t s = 0, i = 0; s < own.n_segments; s++)
        for (uint32_t p = 0, k = 0; p < n_ranks; p++)
            if (p != me) {
                TRY(reduction_receive(self, r, i++, direct_arrival(self, r, &own, s, k),
                                      share_segment(&own, s) * size, p, 0));
                k++;
            }
    /* Each rank begins with the one after it, so that they do not all send to the same one first. */
    for (uint32_t j = 1, i = 0; j <= others; j++) {
        uint32_t p = (me + j) % n_ranks;
        rank_share theirs = share_of(n, p, n_ranks);
        for (uint32_t s = 0; s < theirs.n_segments; s++, i++) {
            size_t offset = (theirs.from + (size_t)s * SEGMENT) * size,
                   bytes = share_segment(&theirs, s) * size;
            TRY(reduction_receive(self, r, at.results + i, results + offset, bytes, p, 1));
            TRY(reduction_send(self, r, at.contributions_out + i, out + offset, bytes, p, 0));
        }
    }
    return MST_OK;
}

static mst_status direct_add_segment(mst_reducer *self, mst_reduction *r, const direct_layout *at,
                                     const rank_share *own)
{
    uint32_t n_ranks = (uint32_t)self->mpi->size, me = (uint32_t)self->mpi->rank, s = r->summed++, k = 0;
    mst_float_format wire = self->wire;
    size_t size = mst_float_size(wire), from = own->from + (size_t)s * SEGMENT, n = share_segment(own, s);
    float *sum = r->op->data + from;
    char *travels = wire == MST_FLOAT_FP32 ? (char *)sum : r->results + from * size;
    for (uint32_t p = 0; p < n_ranks; p++)
        r->parts[p] = p != me                  ? direct_arrival(self, r, own, s, k++)
                      : wire == MST_FLOAT_FP32 ? (const char *)sum
                                               : r->out + from * size;
    sum_ranks(r->parts, n_ranks, n, wire, sum, travels);
    for (uint32_t j = 1; j < n_ranks; j++)
        TRY(reduction_send(self, r, at->results_out + s * (n_ranks - 1) + j - 1, travels, n * size,
                           (me + j) % n_ranks, 1));
    return MST_OK;
}

/* Results of 16 bits that have arrived, as floats. */
static bool direct_decode(mst_reducer *self, mst_reduction *r, const direct_layout *at)
{
    uint32_t n_ranks = (uint32_t)self->mpi->size, me = (uint32_t)self->mpi->rank;
    size_t size = mst_float_size(self->wire);
    bool all = true;
    for (uint32_t j = 1, i = 0; j < n_ranks; j++) {
        rank_share theirs = share_of(r->op->n, (me + j) % n_ranks, n_ranks);
        for (uint32_t s = 0; s < theirs.n_segments; s++, i++) {
            size_t from = theirs.from + (size_t)s * SEGMENT;
            if (r->requests[at->results + i].opaque != 0) {
                all = false;
                continue;
            }
            if (!r->decoded[i] && self->wire != MST_FLOAT_FP32)
                mst_float_decode(self->wire, r->results + from * size, share_segment(&theirs, s),
                                 r->op->data + from);
            r->decoded[i] = true;
        }
    }
    return all;
}

static mst_status direct_move(mst_reducer *self, mst_reduction *r, bool *over)
{
    uint32_t n_ranks = (uint32_t)self->mpi->size, others = n_ranks - 1;
    direct_layout at = direct_layout_of(self, r->op->n);
    rank_share own = share_of(r->op->n, (uint32_t)self->mpi->rank, n_ranks);
    while (r->summed < r->n_segments && !reduction_under_way(r, r->summed * others, (r->summed + 1) * others))
        TRY(direct_add_segment(self, r, &at, &own));
    bool arrived = direct_decode(self, r, &at);
    *over = arrived && r->summed == r->n_segments && !reduction_under_way(r, at.contributions_out, at.end);
    return MST_OK;
}

/* ---- all ---- */

static mst_status reducer_start(mst_reducer *self, mst_reduction *r, mst_reduce_op *op)
{
    size_t least;
    r->op = op;
    r->serial = self->serial++;
    r->summed = r->n_segments = r->n_requests = 0;
    if (self->mpi->size == 1 || op->n == 0)
        return MST_OK;
    if (op->copy)
        return copy_start(self, r);
    r->way = op->way;
    if (r->way == MST_REDUCE_GATHER && op->n * (size_t)(self->mpi->size - 1) > self->in_room)
        r->way = MST_REDUCE_DIRECT;
    self->counts.reductions[r->way]++;
    switch (r->way) {
    case MST_REDUCE_GATHER:
        return gather_start(self, r);
    case MST_REDUCE_DIRECT:
        return direct_start(self, r);
    default:
        least = op->n * sizeof(float) * 2 * (size_t)(self->mpi->size - 1) / (size_t)self->mpi->size;
        self->counts.bytes_out += least; /* MPI does not report the bytes; this is the lower bound */
        self->counts.bytes_in += least;
        return self->mpi->ops->allreduce_f32(self->collective, op->data, op->n);
    }
}

static mst_status reducer_move(mst_reducer *self, mst_reduction *r, bool *moved, bool *over)
{
    uint32_t n_done = 0;
    *over = true;
    if (self->mpi->size == 1 || r->op->n == 0 || (!r->op->copy && r->way == MST_REDUCE_MPI))
        return MST_OK;
    if (r->n_requests > 0)
        TRY(self->mpi->ops->test_some(r->n_requests, r->requests, r->finished, &n_done));
    *moved = *moved || n_done > 0;
    *over = false;
    if (r->op->copy)
        *over = !reduction_under_way(r, 0, r->n_requests);
    else if (r->way == MST_REDUCE_GATHER)
        TRY(gather_move(self, r, over));
    else
        TRY(direct_move(self, r, over));
    return MST_OK;
}

mst_status mst_reducer_post(mst_reducer *self, mst_reduce_op *op)
{
    uint64_t at = atomic_load(&self->tail);
    if (op->n > self->max_slice)
        return mst_fail(MST_EUSAGE, "a reduction of %zu floats; at most %zu are possible", op->n,
                        self->max_slice);
    op->posted++;
    self->queue[at % MST_REDUCER_QUEUE] = op;
    atomic_store(&self->tail, at + 1);
    return MST_OK;
}

mst_status mst_reducer_poll(mst_reducer *self, bool *moved, void (*done)(void *arg, mst_reduce_op *op),
                            void *arg)
{
    for (uint32_t i = 0; i < MST_REDUCER_ACTIVE && self->head != atomic_load(&self->tail); i++) {
        mst_reduction *r = &self->active[i];
        if (r->op != NULL)
            continue;
        if (self->n_active++ == 0)
            self->busy_since = mst_now_ns();
        TRY(reducer_start(self, r, self->queue[self->head % MST_REDUCER_QUEUE]));
        self->head++;
        *moved = true;
    }
    for (uint32_t i = 0; i < MST_REDUCER_ACTIVE; i++) {
        mst_reduction *r = &self->active[i];
        bool over;
        if (r->op == NULL)
            continue;
        TRY(reducer_move(self, r, moved, &over));
        if (!over)
            continue;
        mst_reduce_op *op = r->op;
        r->op = NULL;
        if (--self->n_active == 0)
            self->counts.busy_ns += mst_now_ns() - self->busy_since;
        *moved = true;
        done(arg, op);
    }
    return MST_OK;
}

void mst_reducer_fini(mst_reducer *self)
{
    for (uint32_t i = 0; i < MST_REDUCER_ACTIVE; i++) {
        mst_reduction *r = &self->active[i];
        mst_free(r->requests);
        mst_free(r->finished);
        mst_free(r->decoded);
        mst_free(r->in);
        mst_free(r->out);
        mst_free(r->results);
        mst_free((void *)r->parts);
        *r = (mst_reduction){0};
    }
}

mst_status mst_reducer_shape(mst_reducer *self, mst_float_format wire, size_t max_slice)
{
    size_t n = max_slice, others = (size_t)self->mpi->size - 1, size = mst_float_size(wire);
    self->wire = wire;
    self->max_slice = max_slice;
    size_t longest = ((n + 15) / 16 / (others + 1) + 1) * 16; /* part */
    size_t requests = 4 * others * (longest / SEGMENT + 1);
    mst_reducer_fini(self);
    self->in_room = longest * others > GATHER_LEAST ? longest * others : GATHER_LEAST;
    if (others == 0)
        return MST_OK;
    for (uint32_t i = 0; i < MST_REDUCER_ACTIVE; i++) {
        mst_reduction *r = &self->active[i];
        r->requests = mst_calloc(requests, sizeof *r->requests);
        r->finished = mst_calloc(requests, sizeof *r->finished);
        r->decoded = mst_calloc(requests, sizeof *r->decoded);
        r->parts = mst_calloc(others + 1, sizeof *r->parts);
        r->in = mst_alloc_lines(self->in_room * size);
        r->out = size != sizeof(float) ? mst_alloc_lines(n * size + 64) : NULL;
        r->results = size != sizeof(float) ? mst_alloc_lines(n * size + 64) : NULL;
        if (r->requests == NULL || r->finished == NULL || r->decoded == NULL || r->parts == NULL ||
            r->in == NULL || (size != sizeof(float) && (r->out == NULL || r->results == NULL)))
            return mst_fail_memory();
    }
    return MST_OK;
}
