/* Strategy allreduce: what ranks agree on before they train; contract in allreduce.h. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "strategy/allreduce_impl.h"

#define TEXT_MAX (64u << 20) /* bytes of a text */
#define BLOCK    (1u << 18)  /* floats of weights that travel together, or not at all where all are zero */
#define SIZES    8           /* of slices that are measured */
#define TIMES    3

/* ---- texts ---- */

typedef struct telling {
    const char *text;
    char *out;
    char **all; /* rank 0 of ask */
} telling;

/* Sends a text to a rank, or receives one: its length first. */
static mst_status send_text(mst_comm *comm, const char *text, int peer)
{
    uint64_t bytes = strlen(text) + 1;
    mst_comm_message m = {&bytes, sizeof bytes, peer, MST_TAG_TEXT};
    TRY(mst_comm_exchange(comm, &m, 1, NULL, 0, true, "a rank to take a text"));
    m = (mst_comm_message){(void *)text, bytes, peer, MST_TAG_TEXT};
    return mst_comm_exchange(comm, &m, 1, NULL, 0, true, "a rank to take a text");
}

static mst_status receive_text(mst_comm *comm, int peer, char **out)
{
    uint64_t bytes;
    mst_comm_message m = {&bytes, sizeof bytes, peer, MST_TAG_TEXT};
    TRY(mst_comm_exchange(comm, NULL, 0, &m, 1, true, "a rank's options"));
    if (bytes == 0 || bytes > TEXT_MAX)
        return mst_fail(MST_EPEER, "rank %d sent a text of %llu bytes", peer, (unsigned long long)bytes);
    char *text = mst_alloc(bytes);
    if (text == NULL)
        return mst_fail_memory();
    m = (mst_comm_message){text, bytes, peer, MST_TAG_TEXT};
    mst_status st = mst_comm_exchange(comm, NULL, 0, &m, 1, true, "a rank's options");
    if (st != MST_OK) {
        mst_free(text);
        return st;
    }
    text[bytes - 1] = '\0';
    *out = text;
    return MST_OK;
}

static mst_status tell(mst_comm *comm, void *arg)
{
    telling *t = arg;
    if (mst_comm_mpi(comm)->rank != 0)
        return receive_text(comm, 0, &t->out);
    for (int p = 1; p < mst_comm_mpi(comm)->size; p++)
        TRY(send_text(comm, t->text, p));
    t->out = mst_strdup(t->text);
    return t->out != NULL ? MST_OK : mst_fail_memory();
}

mst_status mst_allreduce_tell(mst_comm *comm, const char *text, char **out)
{
    telling t = {.text = text};
    TRY(mst_comm_call(comm, tell, &t));
    *out = t.out;
    return MST_OK;
}

static mst_status ask(mst_comm *comm, void *arg)
{
    telling *t = arg;
    if (mst_comm_mpi(comm)->rank != 0)
        return send_text(comm, t->text, 0);
    t->all[0] = mst_strdup(t->text);
    if (t->all[0] == NULL)
        return mst_fail_memory();
    for (int p = 1; p < mst_comm_mpi(comm)->size; p++)
        TRY(receive_text(comm, p, &t->all[p]));
    return MST_OK;
}

mst_status mst_allreduce_ask(mst_comm *comm, const char *text, char ***out)
{
    size_t n = (size_t)mst_comm_mpi(comm)->size;
    telling t = {.text = text};
    *out = NULL;
    if (mst_comm_mpi(comm)->rank == 0) {
        t.all = mst_calloc(n, sizeof *t.all);
        if (t.all == NULL)
            return mst_fail_memory();
    }
    mst_status st = mst_comm_call(comm, ask, &t);
    for (size_t i = 0; st != MST_OK && t.all != NULL && i < n; i++)
        mst_free(t.all[i]);
    if (st != MST_OK)
        mst_free(t.all);
    else
        *out = t.all;
    return st;
}

/* ---- weights ---- */

static bool all_zero(const float *data, uint64_t n)
{
    const uint32_t *words = (const uint32_t *)(const void *)data; /* bits: -0 is not what was there */
    uint32_t any = 0;
    for (uint64_t i = 0; i < n; i++)
        any |= words[i];
    return any == 0;
}

/* A vector becomes rank 0's. What is zero there does not travel, and is not written where it is zero already:
 * memory of weights that nobody has touched is not there yet. */
static mst_status share_vector(mst_comm *comm, float *data, uint64_t n)
{
    uint64_t n_blocks = (n + BLOCK - 1) / BLOCK;
    bool root = mst_comm_mpi(comm)->rank == 0;
    uint8_t *full = mst_calloc(n_blocks + 1, 1);
    mst_status st;
    if (full == NULL)
        return mst_fail_memory();
    for (uint64_t i = 0; root && i < n_blocks; i++)
        full[i] = !all_zero(data + i * BLOCK, n - i * BLOCK < BLOCK ? n - i * BLOCK : BLOCK);
    TRY_OUT(st, mst_comm_broadcast(comm, full, n_blocks + 1));
    for (uint64_t i = 0; i < n_blocks; i++) {
        float *at = data + i * BLOCK;
        uint64_t count = n - i * BLOCK < BLOCK ? n - i * BLOCK : BLOCK;
        if (full[i])
            TRY_OUT(st, mst_comm_broadcast(comm, at, count * sizeof *at));
        else if (!root && !all_zero(at, count))
            memset(at, 0, count * sizeof *at);
    }
out:
    mst_free(full);
    return st;
}

/* ---- ways of reducing ---- */

/* All slices of about a size take the way that was fastest for one of them. */
static mst_status choose_ways(mst_comm *comm, mst_allreduce *self)
{
    static const mst_reduce_way given[] = {[MST_REDUCTION_GATHER] = MST_REDUCE_GATHER,
                                           [MST_REDUCTION_DIRECT] = MST_REDUCE_DIRECT,
                                           [MST_REDUCTION_MPI] = MST_REDUCE_MPI};
    size_t sizes[SIZES];
    mst_reduce_way ways[SIZES];
    uint32_t n_sizes = 0;
    bool measures = self->reduction == MST_REDUCTION_AUTO || self->reduction == MST_REDUCTION_ONLY;
    for (uint32_t i = 0; i < self->n_ops; i++) {
        mst_reduce_op *op = &self->ops[i];
        uint32_t s = 0;
        if (op->copy || self->reduction == MST_REDUCTION_OFF)
            continue;
        if (!measures) {
            op->way = given[self->reduction];
            continue;
        }
        while (s < n_sizes && (op->n * 2 < sizes[s] || op->n > sizes[s] * 2))
            s++;
        if (s == SIZES)
            s--;
        if (s == n_sizes) {
            double gather, direct;
            TRY(mst_comm_measure(comm, op, MST_REDUCE_GATHER, TIMES, &gather));
            TRY(mst_comm_measure(comm, op, MST_REDUCE_DIRECT, TIMES, &direct));
            sizes[n_sizes] = op->n;
            ways[n_sizes++] = gather < direct ? MST_REDUCE_GATHER : MST_REDUCE_DIRECT;
        }
        op->way = ways[s];
    }
    memset(self->flat, 0, self->n_flat * sizeof *self->flat);
    return MST_OK;
}

static mst_status join(mst_comm *comm, void *arg)
{
    mst_allreduce *self = arg;
    mst_params *params = self->base.env.params;
    if (self->n_ranks > 1) {
        TRY(share_vector(comm, params->w, params->size));
        for (uint32_t s = 0; s < params->n_slots; s++)
            TRY(share_vector(comm, params->slots[s], params->size));
        TRY(choose_ways(comm, self));
    }
    mst_comm_counts_get(comm, &self->before);
    self->spanned = self->before;
    return MST_OK;
}

mst_status mst_allreduce_join(mst_strategy *base, const mst_allreduce_wishes *wishes)
{
    mst_allreduce *self = (mst_allreduce *)base;
    self->wishes = *wishes;
    return mst_comm_call(self->comm, join, self);
}
