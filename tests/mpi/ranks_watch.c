/* One rank of a program that keeps a watch; run by test_mpi_watch.sh under mpirun.
 *   ranks_watch leave       every rank leaves, one after the other
 *   ranks_watch kill R      rank R dies; all others wait in a barrier that never ends
 *   ranks_watch stop R      rank R is stopped
 *   ranks_watch fail R      rank R fails with a sentence of its own
 * Who is lost prints "rank I: SENTENCE" and exits 3. SIGTERM is ignored and the end put off a little, as
 * muster's own ranks do: mpirun, too, notices that a rank died, terminates the others, and forgets what it
 * had not yet passed on. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "mpi/watch.h"

static int own_rank;

static void lost(void *arg, const char *sentence)
{
    (void)arg;
    printf("rank %d: %s\n", own_rank, sentence);
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

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "leave";
    int whom = argc > 2 ? atoi(argv[2]) : -1;
    mst_mpi *mpi;
    mst_watch *watch;
    signal(SIGTERM, SIG_IGN);
    mst_status st = mst_mpi_start(NULL, &mpi);
    if (st != MST_OK)
        return failed(st);
    own_rank = mpi->rank;
    mst_watch_options options = {
        .mpi = mpi, .start_timeout_ms = 20000, .peer_timeout_ms = 1500, .lost = lost};
    st = mst_watch_new(&options, &watch);
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
        mst_watch_fail(watch, "the disk is full");
        return 1;
    }
    if (whom >= 0) {
        (void)mpi->ops->barrier(0); /* in which MPI hangs */
        return 1;
    }
    struct timespec turn = {.tv_nsec = 20000000L * (mpi->size - mpi->rank)};
    nanosleep(&turn, NULL); /* rank 0 last, or first with an odd number: nobody may be lost by that */
    mst_watch_destroy(watch);
    st = mst_mpi_end(mpi);
    if (st != MST_OK)
        return failed(st);
    printf("rank %d left\n", own_rank);
    return 0;
}
