/* The end of a rank; contract in rank_exit.h. */
#include "cli/rank_exit.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/signals.h"
#include "cli/cli.h"
#include "matmul/matmul.h"
#include "mpi/mpi.h"
#include "run/run_dir.h"

#define START_MIN_MS 10000
#define ABORT_MS     3000  /* for the rank monitor to end a process that MPI aborts */
#define LINGER_MS    300   /* between a message and the end */
#define DETACH_MS    60000 /* for other ranks to finish printing */
#define STOP_POLL_MS 50    /* between looks at the stop request */

/* Locked by the thread that prints last, and never unlocked. */
static pthread_mutex_t last_print = PTHREAD_MUTEX_INITIALIZER;

static void rank_exit_nap_ms(uint32_t ms)
{
    uint64_t until = mst_now_ns() + ms * MST_MS, now;
    while ((now = mst_now_ns()) < until) {
        struct timespec rest = {.tv_sec = (time_t)((until - now) / MST_S),
                                .tv_nsec = (long)((until - now) % MST_S)};
        nanosleep(&rest, NULL);
    }
}

static bool rank_exit_make_thread(void *(*fn)(void *), void *arg)
{
    pthread_t thread;
    sigset_t all, before; /* signals are for the program's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool made = pthread_create(&thread, NULL, fn, arg) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (made)
        pthread_detach(thread);
    return made;
}

/* ---- the beginning ---- */

static uint32_t start_ms;
static const atomic_bool *stop; /* a signal has requested the end of this process */

/* Not starting any more, or not yet: MPI is started right after this thread. */
static void *rank_exit_start_main(void *arg)
{
    (void)arg;
    rank_exit_nap_ms(start_ms);
    if (!mst_mpi_starting())
        return NULL;
    pthread_mutex_lock(&last_print);
    char line[256];
    mst_mpi_launch launch;
    mst_mpi_launched(&launch);
    int n =
        snprintf(line, sizeof line,
                 "muster: rank %d of %d: MPI has not started within %.1f s; have all ranks started, and can "
                 "the hosts reach each other?\n",
                 launch.rank, launch.size, start_ms / 1000.0);
    ssize_t written = write(STDERR_FILENO, line, n > 0 && (size_t)n < sizeof line ? (size_t)n : 0);
    (void)written;
    _exit(mst_status_exit_code(MST_EPEER));
}

/* In the handler: the rank monitor's thread ends the process meanwhile. */
static void rank_exit_on_abort(int number)
{
    (void)number;
    bool stopped = atomic_load(stop); /* ranks that received a stop request do not wait for others */
    (void)poll(NULL, 0, stopped ? LINGER_MS : ABORT_MS);
    if (stopped)
        _exit(mst_signals_exit_code(MST_ESTOPPED)); /* NOLINT(bugprone-signal-handler): reads an atomic */
    signal(SIGABRT, SIG_DFL);                       /* after return, abort continues as usual */
}

void mst_rank_exit_prepare(uint32_t start_timeout_ms)
{
    mst_mpi_launch launch;
    mst_mpi_launched(&launch);
    if (!launch.launched)
        return;
    start_ms = start_timeout_ms > START_MIN_MS ? start_timeout_ms : START_MIN_MS;
    stop = mst_signals_stop();
    rank_exit_make_thread(rank_exit_start_main, NULL);
    signal(SIGABRT, rank_exit_on_abort);
}

/* ---- the end ---- */

static void *rank_exit_stop_main(void *arg)
{
    const char *what = arg;
    char line[256];
    while (!atomic_load(stop))
        rank_exit_nap_ms(STOP_POLL_MS);
    rank_exit_nap_ms(LINGER_MS);
    pthread_mutex_lock(&last_print);
    mst_matmul_abandon();
    int n = snprintf(line, sizeof line, "muster: stopped by %s: %s\n", mst_signals_name(), what);
    ssize_t written = write(STDERR_FILENO, line, n > 0 && (size_t)n < sizeof line ? (size_t)n : 0);
    (void)written;
    _exit(mst_signals_exit_code(MST_ESTOPPED));
}

void mst_rank_exit_on_stop(const char *what)
{
    if (stop != NULL)
        rank_exit_make_thread(rank_exit_stop_main, (void *)(uintptr_t)what);
}

void mst_rank_exit_lost(void *arg, mst_rank_loss reason, const char *message)
{
    const char *run = arg;
    char line[MST_ERROR_MAX + 512], resume_hint[500] = "the job ends";
    pthread_mutex_lock(&last_print);
    mst_matmul_abandon();
    bool death = reason != MST_RANK_FAILED,
         stopped = !death && mst_signals_name() != NULL; /* as all ranks were: none is lost */
    if (death && run != NULL)
        mst_run_resume_hint(run, resume_hint, sizeof resume_hint);
    int n = snprintf(line, sizeof line, "muster: %s; %s\n", message, resume_hint);
    if (!stopped && n > 0) { /* in one piece, and past a lock that the main thread may hold */
        ssize_t written = write(STDERR_FILENO, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
        (void)written;
    }
    rank_exit_nap_ms(LINGER_MS);
    _exit(mst_signals_exit_code(stopped ? MST_ESTOPPED : MST_EPEER));
}

_Noreturn void mst_rank_exit_failed(mst_rank_monitor *monitor, const mst_error *error)
{
    pthread_mutex_lock(&last_print);
    mst_cli_print_error(error);
    mst_rank_monitor_fail(monitor, error->text);
    _exit(mst_signals_exit_code(error->code));
}

void mst_rank_exit_claim(void)
{
    if (!mst_mpi_over())
        pthread_mutex_lock(&last_print);
}

/* Ends a process whose MPI does not. */
typedef struct guard {
    uint32_t ms;
    int code;
} guard;

static void *rank_exit_guard_main(void *arg)
{
    const guard *g = arg;
    rank_exit_nap_ms(g->ms);
    _exit(g->code);
}

void mst_rank_exit_end(int code)
{
    static guard g; /* outlives this call, for the thread */
    if (mst_mpi_over())
        return;
    mst_mpi *mpi = mst_mpi_detached();
    if (mpi == NULL || mst_mpi_detach(mpi, mst_now_ns() + DETACH_MS * MST_MS) != MST_OK)
        _exit(code);
    g = (guard){mst_mpi_end_ms(mpi), code};
    if (!rank_exit_make_thread(rank_exit_guard_main, &g) || mst_mpi_end(mpi) != MST_OK || !mst_mpi_over())
        _exit(code);
}
