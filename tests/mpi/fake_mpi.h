/* MPI for tests: ranks are threads of one process, messages are copied through queues. It implements the
 * table of the plug-ins without MPI, so code above the table runs in unit tests and under sanitizers.
 *
 *   fake_world world;
 *   fake_init(&world, n);
 *   rank r's thread: mst_comm_new with .start = fake_start, .start_arg = &(fake_rank){&world, r}
 *   fake_fini(&world);
 *
 * A message is done for its sender at once; for its receiver when it is tested. Collectives wait for all
 * ranks. */
#ifndef MST_TESTS_FAKE_MPI_H
#define MST_TESTS_FAKE_MPI_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "mpi/mpi.h"

#define FAKE_RANKS 16
#define FAKE_SLOTS 4096

typedef struct fake_message {
    struct fake_message *next;
    int comm, from, tag;
    size_t bytes;
    char data[];
} fake_message;

typedef struct fake_world {
    int n;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    fake_message *first[FAKE_RANKS], *last[FAKE_RANKS]; /* waiting for each rank, oldest first */
    int arrived;
    unsigned generation;
    const void *shared; /* what a broadcast's root has */
    uint64_t n_messages;
    mst_mpi ranks[FAKE_RANKS];
} fake_world;

typedef struct fake_rank {
    fake_world *world;
    int rank;
} fake_rank;

typedef struct fake_receive {
    bool used;
    int comm, from, tag;
    void *data;
    size_t bytes;
} fake_receive;

static _Thread_local fake_world *fake_mine;
static _Thread_local int fake_me;
static _Thread_local fake_receive fake_receives[FAKE_SLOTS];
static _Thread_local int fake_comms;

static mst_status fake_dup(mst_mpi_comm comm, mst_mpi_comm *out)
{
    (void)comm;
    *out = ++fake_comms; /* all ranks make them in the same order */
    return MST_OK;
}

static mst_status fake_isend(mst_mpi_comm comm, const void *data, size_t bytes, int to, int tag,
                             mst_mpi_request *out)
{
    fake_message *m = malloc(sizeof *m + bytes);
    if (m == NULL)
        return mst_fail(MST_ENOMEM, "no memory for a message");
    *m = (fake_message){.comm = comm, .from = fake_me, .tag = tag, .bytes = bytes};
    memcpy(m->data, data, bytes);
    pthread_mutex_lock(&fake_mine->lock);
    if (fake_mine->last[to] != NULL)
        fake_mine->last[to]->next = m;
    else
        fake_mine->first[to] = m;
    fake_mine->last[to] = m;
    fake_mine->n_messages++;
    pthread_mutex_unlock(&fake_mine->lock);
    *out = MST_MPI_NONE;
    return MST_OK;
}

static mst_status fake_irecv(mst_mpi_comm comm, void *data, size_t bytes, int from, int tag,
                             mst_mpi_request *out)
{
    static _Thread_local uint32_t turn;
    for (uint32_t i = 0; i < FAKE_SLOTS; i++) {
        uint32_t at = turn++ % FAKE_SLOTS;
        if (fake_receives[at].used)
            continue;
        fake_receives[at] = (fake_receive){true, comm, from, tag, data, bytes};
        out->opaque = at + 1;
        return MST_OK;
    }
    return mst_fail(MST_EUSAGE, "too many receives");
}

/* The oldest message that fits, taken out. Requests of one sender and tag are tested in the order they were
 * made. */
static fake_message *fake_take(const fake_receive *r)
{
    fake_message **at = &fake_mine->first[fake_me], *before = NULL;
    for (; *at != NULL; before = *at, at = &(*at)->next) {
        fake_message *m = *at;
        if (m->comm != r->comm || m->from != r->from || m->tag != r->tag)
            continue;
        *at = m->next;
        if (fake_mine->last[fake_me] == m)
            fake_mine->last[fake_me] = before;
        return m;
    }
    return NULL;
}

/* Under the lock from first to last: a message that arrives meanwhile is not for a later request. */
static mst_status fake_test_some(uint32_t n, mst_mpi_request *requests, bool *done, uint32_t *n_done)
{
    mst_status st = MST_OK;
    *n_done = 0;
    pthread_mutex_lock(&fake_mine->lock);
    for (uint32_t i = 0; i < n; i++) {
        done[i] = false;
        fake_receive *r = requests[i].opaque != 0 ? &fake_receives[requests[i].opaque - 1] : NULL;
        fake_message *m = r != NULL ? fake_take(r) : NULL;
        if (m == NULL)
            continue;
        if (m->bytes == r->bytes)
            memcpy(r->data, m->data, m->bytes);
        else
            st = mst_fail(MST_EPEER, "a message of %zu bytes where %zu are expected", m->bytes, r->bytes);
        free(m);
        r->used = false;
        requests[i] = MST_MPI_NONE;
        done[i] = true;
        ++*n_done;
    }
    pthread_mutex_unlock(&fake_mine->lock);
    return st;
}

static mst_status fake_barrier(mst_mpi_comm comm)
{
    fake_world *w = fake_mine;
    (void)comm;
    pthread_mutex_lock(&w->lock);
    unsigned generation = w->generation;
    if (++w->arrived == w->n) {
        w->arrived = 0;
        w->generation++;
        pthread_cond_broadcast(&w->changed);
    }
    while (w->generation == generation)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    return MST_OK;
}

static mst_status fake_broadcast(mst_mpi_comm comm, void *data, size_t bytes, int root)
{
    if (fake_me == root)
        fake_mine->shared = data;
    fake_barrier(comm);
    if (fake_me != root)
        memcpy(data, fake_mine->shared, bytes);
    return fake_barrier(comm);
}

/* In the order of ranks. */
static mst_status fake_allreduce_f32(mst_mpi_comm comm, float *data, size_t n)
{
    static float *parts[FAKE_RANKS];
    parts[fake_me] = data;
    float *sum = calloc(n > 0 ? n : 1, sizeof *sum);
    if (sum == NULL)
        return mst_fail(MST_ENOMEM, "no memory for a sum");
    fake_barrier(comm);
    for (int r = 0; r < fake_mine->n; r++)
        for (size_t i = 0; i < n; i++)
            sum[i] = r == 0 ? parts[r][i] : sum[i] + parts[r][i];
    fake_barrier(comm);
    memcpy(data, sum, n * sizeof *sum);
    free(sum);
    return fake_barrier(comm);
}

static const mst_mpi_ops fake_ops = {
    .abi = MST_MPI_ABI,
    .name = "fake",
    .dup = fake_dup,
    .isend = fake_isend,
    .irecv = fake_irecv,
    .test_some = fake_test_some,
    .barrier = fake_barrier,
    .broadcast = fake_broadcast,
    .allreduce_f32 = fake_allreduce_f32,
};

static inline void fake_init(fake_world *w, int n)
{
    memset(w, 0, sizeof *w);
    w->n = n;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
}

static inline void fake_fini(fake_world *w)
{
    for (int r = 0; r < w->n; r++)
        while (w->first[r] != NULL) {
            fake_message *m = w->first[r];
            w->first[r] = m->next;
            free(m);
        }
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
}

/* For mst_comm_options.start: on the communication thread of a rank. */
static mst_status fake_start(void *arg, mst_mpi **out)
{
    const fake_rank *rank = arg;
    fake_mine = rank->world;
    fake_me = rank->rank;
    mst_mpi *mpi = &rank->world->ranks[rank->rank];
    *mpi = (mst_mpi){.ops = &fake_ops, .rank = rank->rank, .size = rank->world->n, .host = "here"};
    *out = mpi;
    return MST_OK;
}

#endif
