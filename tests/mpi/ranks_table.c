/* One rank of a program that uses every function of the table in mpi/mpi.h and checks the results; run by
 * test_mpi_start.sh under mpirun. Prints "rank R of N: ok (LIBRARY)", or the failure with the exit code of
 * muster. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "mpi/mpi.h"

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s does not hold: %s\n", __FILE__, __LINE__, #condition,                 \
                    mst_error_text());                                                                       \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
#define DO(call) CHECK((call) == MST_OK)

static uint64_t soon(void)
{
    return mst_now_ns() + 20 * MST_S;
}

static void messages(mst_mpi *mpi)
{
    enum { N = 5 };
    const mst_mpi_ops *o = mpi->ops;
    static char out[N][100000], in[N][100000];
    mst_mpi_request requests[2 * N];
    int next = (mpi->rank + 1) % mpi->size, before = (mpi->rank + mpi->size - 1) % mpi->size;
    for (int i = 0; i < N; i++)
        memset(out[i], 'a' + i + mpi->rank, sizeof out[i]);
    for (int i = 0; i < N; i++)
        DO(o->irecv(0, in[i], sizeof in[i], before, 7, &requests[i]));
    for (int i = 0; i < N; i++)
        DO(o->isend(0, out[i], sizeof out[i], next, 7, &requests[N + i]));
    DO(mst_mpi_wait(mpi, 2 * N, requests, soon(), "the neighbours' messages"));
    for (int i = 0; i < N; i++)
        CHECK(in[i][0] == 'a' + i + before && in[i][sizeof in[i] - 1] == 'a' + i + before);

    /* One that never comes. */
    DO(o->irecv(0, in[0], 8, next, 11, &requests[0]));
    CHECK(mst_mpi_wait(mpi, 1, requests, mst_now_ns() + 20 * MST_MS, "a message of tag 11") == MST_ETIMEOUT);
    CHECK(strstr(mst_error_text(), "waited too long for a message of tag 11: 1 of 1 messages") != NULL);
    DO(o->cancel(&requests[0]));
    CHECK(requests[0].opaque == 0);
    CHECK(o->isend(0, out[0], 1, mpi->size, 0, &requests[0]) == MST_EUSAGE);
    CHECK(strstr(mst_error_text(), "there is no rank") != NULL);
    CHECK(o->barrier(63) == MST_EUSAGE);
}

static void collectives(mst_mpi *mpi, mst_mpi_comm comm)
{
    enum { N = 70000 };
    const mst_mpi_ops *o = mpi->ops;
    static float f[N];
    double d[3];
    int rank = mpi->rank, size = mpi->size;
    DO(o->barrier(comm));
    int word = rank == size - 1 ? 4711 : 0;
    DO(o->broadcast(comm, &word, sizeof word, size - 1));
    CHECK(word == 4711);
    for (int i = 0; i < N; i++)
        f[i] = (float)(i % 100 + rank);
    DO(o->allreduce_f32(comm, f, N));
    for (int i = 0; i < N; i++)
        CHECK(f[i] == (float)(i % 100 * size + size * (size - 1) / 2));
    for (int i = 0; i < 3; i++)
        d[i] = 0.5 * rank + i;
    DO(o->allreduce_f64(comm, d, 3));
    CHECK(d[2] == 0.25 * size * (size - 1) + 2 * size);

    int all[64], mine = rank * rank;
    CHECK(size <= 64);
    DO(o->allgather(comm, &mine, sizeof mine, all));
    for (int r = 0; r < size; r++)
        CHECK(all[r] == r * r);
}

int main(void)
{
    mst_mpi *mpi, *again;
    mst_mpi_comm twin;
    char library[128];
    mst_status st = mst_mpi_start(NULL, &mpi);
    if (st != MST_OK) {
        fprintf(stderr, "error: %s\n", mst_error_text());
        return mst_status_exit_code(st);
    }
    DO(mst_mpi_start(NULL, &again));
    CHECK(mpi == again);
    messages(mpi);
    collectives(mpi, 0);
    DO(mpi->ops->dup(0, &twin));
    collectives(mpi, twin);
    mpi->ops->library(library, sizeof library);
    printf("rank %d of %d: ok (%s)\n", mpi->rank, mpi->size, library);
    fflush(stdout);
    DO(mst_mpi_end(mpi));
    CHECK(mst_mpi_start(NULL, &again) == MST_EUSAGE);
    return 0;
}
