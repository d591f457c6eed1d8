/* Broadcast and gather: texts and vectors between rank 0 and all ranks; contract in comm_broadcast.h. */
#include "strategy/comm_broadcast.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define TEXT_MAX (64u << 20) /* bytes of a text */
#define BLOCK    (1u << 18)  /* floats of weights that travel together, or not at all where all are zero */

/* ---- texts ---- */

typedef struct shared_texts {
    const char *text;
    char *out;
    char **all; /* rank 0 of collect */
} shared_texts;

/* Sends a text to a rank, or receives one: its length first. */
static mst_status text_send(mst_comm *comm, const char *text, int peer)
{
    uint64_t bytes = strlen(text) + 1;
    mst_comm_message m = {&bytes, sizeof bytes, peer, MST_COMM_TAG_TEXT};
    TRY(mst_comm_exchange(comm, &m, 1, NULL, 0, true, "a rank to receive a text"));
    m = (mst_comm_message){(void *)text, bytes, peer, MST_COMM_TAG_TEXT};
    return mst_comm_exchange(comm, &m, 1, NULL, 0, true, "a rank to receive a text");
}

static mst_status text_receive(mst_comm *comm, int peer, char **out)
{
    uint64_t bytes;
    mst_comm_message m = {&bytes, sizeof bytes, peer, MST_COMM_TAG_TEXT};
    TRY(mst_comm_exchange(comm, NULL, 0, &m, 1, true, "a rank's options"));
    if (bytes == 0 || bytes > TEXT_MAX)
        return mst_fail(MST_EPEER, "rank %d sent a text of %llu bytes", peer, (unsigned long long)bytes);
    char *text = mst_alloc(bytes);
    if (text == NULL)
        return mst_fail_memory();
    m = (mst_comm_message){text, bytes, peer, MST_COMM_TAG_TEXT};
    mst_status st = mst_comm_exchange(comm, NULL, 0, &m, 1, true, "a rank's options");
    if (st != MST_OK) {
        mst_free(text);
        return st;
    }
    text[bytes - 1] = '\0';
    *out = text;
    return MST_OK;
}

static mst_status text_share(mst_comm *comm, void *arg)
{
    shared_texts *t = arg;
    if (mst_comm_mpi(comm)->rank != 0)
        return text_receive(comm, 0, &t->out);
    for (int p = 1; p < mst_comm_mpi(comm)->size; p++)
        TRY(text_send(comm, t->text, p));
    t->out = mst_strdup(t->text);
    return t->out != NULL ? MST_OK : mst_fail_memory();
}

mst_status mst_comm_broadcast_text(mst_comm *comm, const char *text, char **out)
{
    shared_texts t = {.text = text};
    TRY(mst_comm_call(comm, text_share, &t));
    *out = t.out;
    return MST_OK;
}

static mst_status text_collect(mst_comm *comm, void *arg)
{
    shared_texts *t = arg;
    if (mst_comm_mpi(comm)->rank != 0)
        return text_send(comm, t->text, 0);
    t->all[0] = mst_strdup(t->text);
    if (t->all[0] == NULL)
        return mst_fail_memory();
    for (int p = 1; p < mst_comm_mpi(comm)->size; p++)
        TRY(text_receive(comm, p, &t->all[p]));
    return MST_OK;
}

mst_status mst_comm_gather_texts(mst_comm *comm, const char *text, char ***out)
{
    size_t n = (size_t)mst_comm_mpi(comm)->size;
    shared_texts t = {.text = text};
    *out = NULL;
    if (mst_comm_mpi(comm)->rank == 0) {
        t.all = mst_calloc(n, sizeof *t.all);
        if (t.all == NULL)
            return mst_fail_memory();
    }
    mst_status st = mst_comm_call(comm, text_collect, &t);
    for (size_t i = 0; st != MST_OK && t.all != NULL && i < n; i++)
        mst_free(t.all[i]);
    if (st != MST_OK)
        mst_free(t.all);
    else
        *out = t.all;
    return st;
}

/* ---- weights ---- */

/* Blocks that are zero on rank 0 are not sent, and not written where they are zero already: memory that was
 * never touched stays unallocated. */
mst_status mst_comm_broadcast_vector(mst_comm *comm, float *data, uint64_t n)
{
    uint64_t n_blocks = (n + BLOCK - 1) / BLOCK;
    bool root = mst_comm_mpi(comm)->rank == 0;
    uint8_t *full = mst_calloc(n_blocks + 1, 1);
    mst_status st;
    if (full == NULL)
        return mst_fail_memory();
    for (uint64_t i = 0; root && i < n_blocks; i++)
        full[i] =
            !mst_is_zero(data + i * BLOCK, (n - i * BLOCK < BLOCK ? n - i * BLOCK : BLOCK) * sizeof *data);
    TRY_OUT(st, mst_comm_broadcast(comm, full, n_blocks + 1));
    for (uint64_t i = 0; i < n_blocks; i++) {
        float *at = data + i * BLOCK;
        uint64_t count = n - i * BLOCK < BLOCK ? n - i * BLOCK : BLOCK;
        if (full[i])
            TRY_OUT(st, mst_comm_broadcast(comm, at, count * sizeof *at));
        else if (!root && !mst_is_zero(at, count * sizeof *at))
            memset(at, 0, count * sizeof *at);
    }
out:
    mst_free(full);
    return st;
}
