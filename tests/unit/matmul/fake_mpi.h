/* MPI among threads of one process, as much of it as matmul uses: every thread is a rank. A send completes
 * when its receiver has copied it from the sender's buffer, as with large messages of a real MPI. A program
 * has one job of ranks at a time: fake_run. */
#ifndef MST_TEST_FAKE_MPI_H
#define MST_TEST_FAKE_MPI_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "mpi/mpi.h"

#define FAKE_RANKS 8

typedef struct fake_message {
    struct fake_message *next, *older;
    bool is_send, taken;
    int from, to, tag;
    const void *data;
    void *out;
    size_t bytes;
} fake_message;

static struct {
    pthread_mutex_t mutex;
    pthread_barrier_t barrier;
    fake_message *first, **last; /* sent and not taken yet */
    fake_message *newest;        /* of all, freed at the end */
    void *shared[FAKE_RANKS];
    int size;
} fake = {.mutex = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local int fake_rank;

static fake_message *fake_new(fake_message message)
{
    fake_message *m = malloc(sizeof *m);
    pthread_mutex_lock(&fake.mutex);
    *m = message;
    m->older = fake.newest;
    fake.newest = m;
    pthread_mutex_unlock(&fake.mutex);
    return m;
}

static mst_status fake_isend(mst_mpi_comm comm, const void *data, size_t bytes, int to, int tag,
                             mst_mpi_request *out)
{
    (void)comm;
    fake_message *m = fake_new((fake_message){.is_send = true, .from = fake_rank, .to = to, .tag = tag});
    m->data = data;
    m->bytes = bytes;
    pthread_mutex_lock(&fake.mutex);
    *fake.last = m;
    fake.last = &m->next;
    pthread_mutex_unlock(&fake.mutex);
    out->opaque = (uintptr_t)m;
    return MST_OK;
}

static mst_status fake_irecv(mst_mpi_comm comm, void *data, size_t bytes, int from, int tag,
                             mst_mpi_request *out)
{
    (void)comm;
    fake_message *m = fake_new((fake_message){.from = from, .to = fake_rank, .tag = tag, .bytes = bytes});
    m->out = data;
    out->opaque = (uintptr_t)m;
    return MST_OK;
}

/* With the mutex held. */
static bool fake_take(fake_message *want)
{
    for (fake_message **at = &fake.first; *at != NULL; at = &(*at)->next) {
        fake_message *m = *at;
        if (m->from != want->from || m->to != want->to || m->tag != want->tag)
            continue;
        if (m->bytes != want->bytes)
            abort();
        memcpy(want->out, m->data, m->bytes);
        *at = m->next;
        if (fake.last == &m->next)
            fake.last = at;
        m->taken = true;
        return true;
    }
    return false;
}

static mst_status fake_test_some(uint32_t n, mst_mpi_request *requests, bool *done, uint32_t *n_done)
{
    *n_done = 0;
    pthread_mutex_lock(&fake.mutex);
    for (uint32_t i = 0; i < n; i++) {
        fake_message *m = (fake_message *)(uintptr_t)requests[i].opaque;
        done[i] = m != NULL && (m->is_send ? m->taken : fake_take(m));
        if (!done[i])
            continue;
        requests[i] = MST_MPI_NONE;
        ++*n_done;
    }
    pthread_mutex_unlock(&fake.mutex);
    return MST_OK;
}

static mst_status fake_barrier(mst_mpi_comm comm)
{
    (void)comm;
    pthread_barrier_wait(&fake.barrier);
    return MST_OK;
}

static mst_status fake_allgather(mst_mpi_comm comm, const void *mine, size_t bytes, void *all)
{
    fake.shared[fake_rank] = (void *)(uintptr_t)mine;
    fake_barrier(comm);
    for (int r = 0; r < fake.size; r++)
        memcpy((char *)all + (size_t)r * bytes, fake.shared[r], bytes);
    return fake_barrier(comm);
}

static mst_status fake_broadcast(mst_mpi_comm comm, void *data, size_t bytes, int root)
{
    fake.shared[fake_rank] = data;
    fake_barrier(comm);
    if (fake_rank != root)
        memcpy(data, fake.shared[root], bytes);
    return fake_barrier(comm);
}

static mst_status fake_allreduce(mst_mpi_comm comm, double *data, size_t n)
{
    double *sum = calloc(n, sizeof *sum);
    fake.shared[fake_rank] = data;
    fake_barrier(comm);
    for (int r = 0; r < fake.size; r++)
        for (size_t i = 0; i < n; i++)
            sum[i] += ((double *)fake.shared[r])[i];
    fake_barrier(comm);
    memcpy(data, sum, n * sizeof *sum);
    free(sum);
    return MST_OK;
}

static const mst_mpi_ops fake_ops = {
    .abi = MST_MPI_ABI,
    .name = "threads",
    .isend = fake_isend,
    .irecv = fake_irecv,
    .test_some = fake_test_some,
    .barrier = fake_barrier,
    .allgather = fake_allgather,
    .broadcast = fake_broadcast,
    .allreduce_f64 = fake_allreduce,
};

typedef struct fake_thread {
    mst_mpi mpi;
    void (*fn)(mst_mpi *mpi, void *arg);
    void *arg;
} fake_thread;

static void *fake_main(void *arg)
{
    fake_thread *t = arg;
    fake_rank = t->mpi.rank;
    t->fn(&t->mpi, t->arg);
    return NULL;
}

/* Runs fn on `size` ranks and waits for all of them; whether everything sent was received. */
static bool fake_run(int size, void (*fn)(mst_mpi *mpi, void *arg), void *arg)
{
    fake_thread threads[FAKE_RANKS];
    pthread_t ids[FAKE_RANKS];
    fake.size = size;
    fake.first = NULL;
    fake.last = &fake.first;
    pthread_barrier_init(&fake.barrier, NULL, (unsigned)size);
    for (int r = 0; r < size; r++) {
        threads[r] = (fake_thread){.mpi = {.ops = &fake_ops, .rank = r, .size = size}, .fn = fn, .arg = arg};
        threads[r].mpi.launch.local_size = size;
        pthread_create(&ids[r], NULL, fake_main, &threads[r]);
    }
    for (int r = 0; r < size; r++)
        pthread_join(ids[r], NULL);
    pthread_barrier_destroy(&fake.barrier);
    bool all_taken = fake.first == NULL;
    for (fake_message *m = fake.newest, *older; m != NULL; m = older) {
        older = m->older;
        free(m);
    }
    fake.newest = NULL;
    return all_taken;
}

#endif
