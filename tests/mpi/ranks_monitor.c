/* One rank of a program that runs a rank monitor; run by test_mpi_monitor.sh under mpirun.
 *   ranks_monitor leave       every rank leaves, one after the other
 *   ranks_monitor kill R      rank R dies; all others wait in a barrier that never ends
 *   ranks_monitor stop R      rank R is stopped
 *   ranks_monitor fail R      rank R fails with a message of its own
 *   ranks_monitor records     every rank but 0 sends records, small ones and the largest possible; rank 0
 * counts Who is lost prints "rank I: MESSAGE" and exits 3. SIGTERM is ignored and the end put off a little,
 * as muster's own ranks do: mpirun, too, notices that a rank died, terminates the others, and forgets what it
 * had not yet passed on. */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "ranks/rank_monitor.h"

static int own_rank;

static void lost(void *arg, mst_rank_loss reason, const char *message)
{
    (void)arg;
    (void)reason;
    printf("rank %d: %s\n", own_rank, message);
    fflush(stdout);
    struct timespec linger = {.tv_nsec = 300000000};
    nanosleep(&linger, NULL);
    _exit(3);
}

static int failed(mst_status st)
{
    fprintf(stderr, "error: %s\n", mst_error_text());
    return mst_status_exit_code(st);
}

/* ---- records ---- */

#define RECORDS 24

typedef struct mail {
    int rank, next;   /* the sender's */
    int n[64], wrong; /* records of each rank; those that are not as they were sent */
    atomic_int clock; /* answers about rank 0's */
} mail;

static size_t length_of(int number)
{
    return number % 8 == 7 ? MST_RANK_RECORD_MAX : 100 + (size_t)number;
}

static bool next_record(void *arg, void **record, size_t *bytes)
{
    mail *m = arg;
    if (m->next == RECORDS)
        return false;
    *bytes = length_of(m->next);
    uint8_t *text = mst_alloc(*bytes);
    if (text == NULL)
        return false;
    memset(text, m->rank, *bytes);
    text[*bytes - 1] = (uint8_t)m->next++;
    *record = text;
    return true;
}

static void received(void *arg, int rank, const void *record, size_t bytes)
{
    mail *m = arg;
    const uint8_t *text = record;
    if (rank < 1 || rank >= 64 || bytes != length_of(m->n[rank]) || text[0] != rank ||
        text[bytes - 1] != m->n[rank]++)
        m->wrong++;
}

static void answer_clock(void *arg, uint8_t *answer)
{
    (void)arg;
    memset(answer, 5, MST_RANK_CLOCK_SIZE);
}

static bool clocked(void *arg, uint64_t asked_ns, const void *answer, size_t bytes)
{
    mail *m = arg;
    const uint8_t *text = answer;
    if (bytes == MST_RANK_CLOCK_SIZE && text[0] == 5 && text[bytes - 1] == 5 && asked_ns <= mst_now_ns())
        atomic_fetch_add(&m->clock, 1);
    return atomic_load(&m->clock) < 3; /* the next question goes at once */
}

/* The outcome of all records, which are there when await returns. */
static int exchange_records(const mst_mpi *mpi, mst_rank_monitor *monitor)
{
    mail m = {.rank = mpi->rank};
    mst_rank_records records = {.arg = &m,
                                .next = next_record,
                                .received = received,
                                .clock = answer_clock,
                                .clock_received = clocked};
    mst_rank_records_set(monitor, &records);
    if (mpi->rank != 0) {
        (void)mpi->ops->barrier(0); /* rank 0 takes them now */
        uint64_t deadline = mst_now_ns() + 10 * MST_S;
        while (atomic_load(&m.clock) < 3 && mst_now_ns() < deadline)
            sched_yield();
        mst_rank_records_end(monitor, 10000);
        mst_rank_records_set(monitor, NULL);
        if (m.next != RECORDS || m.clock < 3)
            printf("rank %d: %d records left, %d clocks received\n", mpi->rank, m.next, m.clock);
        return m.next != RECORDS;
    }
    (void)mpi->ops->barrier(0);
    mst_rank_records_await(monitor, 10000);
    mst_rank_records_set(monitor, NULL);
    for (int r = 1; r < mpi->size; r++)
        printf("%d records of rank %d\n", m.n[r], r);
    if (m.wrong > 0)
        printf("%d wrong\n", m.wrong);
    return m.wrong > 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "leave";
    int whom = argc > 2 ? atoi(argv[2]) : -1;
    mst_mpi *mpi;
    mst_rank_monitor *monitor;
    signal(SIGTERM, SIG_IGN);
    mst_status st = mst_mpi_start(NULL, &mpi);
    if (st != MST_OK)
        return failed(st);
    own_rank = mpi->rank;
    mst_rank_monitor_options options = {
        .mpi = mpi, .start_timeout_ms = 20000, .peer_timeout_ms = 1500, .lost = lost};
    st = mst_rank_monitor_new(&options, &monitor);
    if (st != MST_OK)
        return failed(st);
    st = mpi->ops->barrier(0); /* nothing of the start is under way any more, in the launcher either */
    if (st != MST_OK)
        return failed(st);
    if (mpi->rank == whom && strcmp(what, "kill") == 0)
        kill(getpid(), SIGKILL);
    if (mpi->rank == whom && strcmp(what, "stop") == 0)
        kill(getpid(), SIGSTOP);
    if (mpi->rank == whom && strcmp(what, "fail") == 0) {
        mst_rank_monitor_fail(monitor, "the disk is full");
        return 1;
    }
    if (whom >= 0) {
        (void)mpi->ops->barrier(0); /* in which MPI hangs */
        return 1;
    }
    if (strcmp(what, "records") == 0 && exchange_records(mpi, monitor) != 0)
        return 1;
    struct timespec turn = {.tv_nsec = 20000000L * (mpi->size - mpi->rank)};
    nanosleep(&turn, NULL); /* rank 0 last, or first with an odd number: no rank may count as lost */
    mst_rank_monitor_destroy(monitor);
    st = mst_mpi_end(mpi);
    if (st != MST_OK)
        return failed(st);
    printf("rank %d left\n", own_rank);
    return 0;
}
