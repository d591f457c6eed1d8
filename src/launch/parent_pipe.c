/* The pipe from the supervisor; contract in parent_pipe.h. The thread runs as long as the process and owns
 * nothing. Its signals are blocked, so that handlers run on the threads that do the work. */
#include "launch/parent_pipe.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/parent.h"
#include "mpi/mpi.h"

#define SECRET_MAX 4096
#define SECRET_NS  (60 * MST_S)

static atomic_bool g_job_ended, g_no_workers;

const atomic_bool *mst_parent_pipe_job_ended(void)
{
    return &g_job_ended;
}

const atomic_bool *mst_parent_pipe_no_workers(void)
{
    return &g_no_workers;
}

static void *parent_pipe_main(void *arg)
{
    char bytes[256];
    struct timespec grace = {.tv_sec = (time_t)(intptr_t)arg};
    int number = SIGTERM;
    for (;;) {
        ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
        if (n > 0 && memchr(bytes, *MST_PARENT_CHECKPOINT, (size_t)n) != NULL)
            kill(getpid(), SIGUSR1);
        if (n > 0 && memchr(bytes, *MST_PARENT_INT, (size_t)n) != NULL)
            number = SIGINT;
        if (n > 0 && memchr(bytes, *MST_PARENT_HUP, (size_t)n) != NULL)
            number = SIGHUP;
        if (n > 0 && memchr(bytes, *MST_PARENT_ENDED, (size_t)n) != NULL)
            atomic_store(&g_job_ended, true);
        if (n > 0 && memchr(bytes, *MST_PARENT_NO_WORKERS, (size_t)n) != NULL)
            atomic_store(&g_no_workers, true);
        if (n < 0 && errno == EAGAIN) {
            struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
            poll(&in, 1, -1);
            continue;
        }
        if (n == 0 || (n < 0 && errno != EINTR))
            break;
    }
    kill(getpid(), number);
    while (nanosleep(&grace, &grace) != 0 && errno == EINTR) {
    }
    kill(getpid(), SIGKILL);
    return NULL;
}

mst_status mst_parent_pipe_secret(void)
{
    const char *from = getenv(MST_PARENT_SECRET_ENV);
    char line[SECRET_MAX];
    size_t n = 0;
    uint64_t deadline = mst_now_ns() + SECRET_NS;
    if (from == NULL || *from == '\0')
        return MST_OK;
    if (strcmp(from, "stdin") != 0)
        return mst_fail(MST_EUSAGE, MST_PARENT_SECRET_ENV "=%s: must be stdin", from);
    while (n < sizeof line && (n == 0 || line[n - 1] != '\n')) {
        struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
        uint64_t now = mst_now_ns();
        if (now >= deadline || (poll(&in, 1, (int)((deadline - now) / MST_MS) + 1) < 0 && errno != EINTR))
            break;
        ssize_t got = in.revents != 0 ? read(STDIN_FILENO, line + n, 1) : -1; /* the rest is not its own */
        if (got == 0 || (got < 0 && in.revents != 0 && errno != EINTR && errno != EAGAIN))
            break;
        n += got > 0;
    }
    if (n == 0 || line[n - 1] != '\n')
        return mst_fail(MST_EPEER,
                        "the job's secret has not arrived on standard input; the launching process "
                        "has ended, or the connection to it is lost");
    line[n - 1] = '\0';
    int rc = setenv("MUSTER_SECRET", line, 1);
    explicit_bzero(line, sizeof line);
    unsetenv(MST_PARENT_SECRET_ENV);
    return rc == 0 ? MST_OK : mst_fail_memory();
}

mst_status mst_parent_pipe_open(void)
{
    int64_t seconds;
    TRY(mst_parent_grace(&seconds));
    if (seconds < 0)
        return MST_OK;
    mst_mpi_launch launch;
    mst_mpi_launched(&launch);
    if (launch.launched && launch.rank > 0)
        return MST_OK; /* MPI's launchers connect rank 0's input only */
    sigset_t all, before;
    pthread_t thread;
    prctl(PR_SET_PDEATHSIG, SIGCONT); /* stopped, it could not see the end of its input */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = pthread_create(&thread, NULL, parent_pipe_main, (void *)(intptr_t)seconds);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return mst_fail(MST_EIO, "no thread to read standard input: %s", strerror(rc));
    pthread_detach(thread);
    return MST_OK;
}
