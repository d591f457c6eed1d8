/* The program: finds the command, prints the message of a failure once, and ends with its exit code (0 done,
 * 1 failed, 2 wrong usage, 3 stopped by a peer's failure, 128 + n stopped by signal n).
 *
 * Log lines go to standard error, through the progress bar. Two environment variables serve the fault tests:
 * MUSTER_FAIL_ALLOC=k makes the k-th allocation fail, MUSTER_FAIL_WRITE=k the k-th write to the system,
 * counted apart for checkpoints' tensors.
 *
 * Commands that may compute with nets are begun a second time, by exec, with GOMP_SPINCOUNT in the
 * environment. Threads inside oneDNN's primitives wait for each other in GNU's OpenMP, which spins for
 * milliseconds before it sleeps, unless it is configured before the program is loaded; there is no call for
 * it. On a machine that others use, too, the cores that they spin on are missing elsewhere, and for the
 * thread that they wait for. Seen on two cores with a load of 12, median of five runs of 30 steps of
 * nets/cifar.net by two threads: 13.9 s and 6.8 s of processor time as it comes, 7.6 s and 3.9 s with
 * OMP_WAIT_POLICY=passive, 7.1 s and 3.6 s with 1,000 turns of spinning, which still catch a thread that is
 * about to come, so that an idle machine loses nothing. Either variable, given by the user, stays as it is.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/core_dump.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/version.h"
#include "cli/cli.h"
#include "cli/progress_line.h"
#include "cli/rank_exit.h"
#include "launch/parent_pipe.h"
#include "matmul/npy.h"
#include "model/model.h"
#include "mpi/mpi.h"
#include "run/sparse_file.h"

static const char *const level_names[] = {"error", "warn", "info", "debug"};

static void main_log_line(void *arg, mst_log_level level, const char *line)
{
    (void)arg;
    if (level <= MST_LOG_WARN)
        mst_cli_note("muster: %s%s", level == MST_LOG_WARN ? "warning: " : "", line);
    else
        mst_bar_line(line);
}

static mst_status main_set_level(const char *name)
{
    for (size_t i = 0; i < sizeof level_names / sizeof *level_names; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            mst_log_set(main_log_line, NULL, (mst_log_level)i);
            return MST_OK;
        }
    }
    return mst_fail(MST_EUSAGE, "--log %s: not one of error, warn, info, debug", name);
}

/* A test's number k in the environment; 0 when there is none. */
static mst_status main_read_fault(const char *name, uint64_t *k)
{
    const char *text = getenv(name);
    int64_t value = 0;
    if (text != NULL && (!mst_parse_int(text, &value) || value < 0))
        return mst_fail(MST_EUSAGE, "%s=%s: must be a whole number", name, text);
    *k = (uint64_t)value;
    return MST_OK;
}

static mst_status main_arm_faults(void)
{
    uint64_t alloc = 0, write = 0;
    TRY(main_read_fault("MUSTER_FAIL_ALLOC", &alloc));
    TRY(main_read_fault("MUSTER_FAIL_WRITE", &write));
    if (alloc > 0)
        mst_alloc_fail_at(alloc);
    if (write > 0) {
        mst_out_fail_at(write);
        mst_sparse_fail_at(write);
        mst_npy_fail_at(write);
    }
    return MST_OK;
}

static mst_status main_run(int argc, char **argv)
{
    mst_mpi_launch launch;
    mst_mpi_launched(&launch);
    TRY(main_set_level(launch.launched && launch.rank > 0 ? "warn"
                                                          : "info")); /* only rank 0 logs info lines */
    TRY(main_arm_faults());
    TRY(mst_parent_pipe_secret());
    if (getenv("MUSTER_SECRET") != NULL)
        mst_core_dump_disable();
    TRY(mst_parent_pipe_open());
    while (argc > 0 && strncmp(argv[0], "--log", 5) == 0 && (argv[0][5] == '=' || argv[0][5] == '\0')) {
        bool joined = argv[0][5] == '=';
        if (!joined && argc < 2)
            return mst_fail(MST_EUSAGE, "--log needs a value: error, warn, info or debug");
        TRY(main_set_level(joined ? argv[0] + 6 : argv[1]));
        argc -= joined ? 1 : 2;
        argv += joined ? 1 : 2;
    }
    if (argc > 0 && strcmp(argv[0], "--version") == 0) {
        printf("muster %s\n", mst_version());
        return MST_OK;
    }
    return mst_cli_dispatch(mst_commands, "", argc, argv);
}

/* Whether the reader of standard output is gone: it has what it wanted, as in `muster list | head -1`. */
static bool main_reader_is_gone(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO};
    return poll(&out, 1, 0) == 1 && (out.revents & (POLLERR | POLLHUP)) != 0;
}

/* Keeps descriptors 0 to 2 occupied if they were closed at the start; otherwise the next file or pipe would
 * get one. The placeholder can be neither read nor written, so that using the stream fails as before. */
static void main_occupy_closed_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return;
}

/* The first word that is no option of the program's own; NULL: there is none. */
static const char *main_command_of(char **argv)
{
    for (argv++; *argv != NULL && strncmp(*argv, "--log", 5) == 0; argv++)
        if (strcmp(*argv, "--log") == 0 && argv[1] != NULL)
            argv++;
    return *argv;
}

/* Whether a training may use a net, by its words: --model decides, before all other options. */
static bool main_may_train_net(char *const *words)
{
    bool may = false;
    for (; *words != NULL; words++) {
        const char *word = *words;
        if (strcmp(word, "--model") == 0 || strncmp(word, "--model=", 8) == 0) {
            const char *name = word[7] == '=' ? word + 8 : words[1];
            const mst_model_ops *ops = mst_model_find(name);
            return ops == NULL || mst_model_has(ops, MST_MODEL_NET);
        }
        may |= strncmp(word, "--net", 5) == 0 || strncmp(word, "--config", 8) == 0 ||
               strcmp(word, "--resume") == 0;
    }
    return may;
}

/* Returns where there is nothing to do; and where it cannot be done, which only costs time. */
static void main_spin_briefly(char **argv)
{
    static const char *const computing[] = {"train", "eval", "predict", "matmul"};
    const char *command = main_command_of(argv);
    char path[PATH_MAX];
    bool computes = false;
    for (size_t i = 0; command != NULL && i < sizeof computing / sizeof *computing; i++)
        computes |= strcmp(command, computing[i]) == 0;
    if (computes && strcmp(command, "train") == 0)
        computes = main_may_train_net(argv);
    if (!computes || getenv("OMP_WAIT_POLICY") != NULL || getenv("GOMP_SPINCOUNT") != NULL)
        return;
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0 || setenv("GOMP_SPINCOUNT", "1000", 1) != 0)
        return;
    path[n] = '\0';
    execv(path, argv);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        main_spin_briefly(argv);
    main_occupy_closed_streams();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit of a file's size fails like one to a full disk */
    mst_status st = main_run(argc - 1, argv + 1);
    errno = 0;
    bool unwritten = fflush(stdout) != 0 || ferror(stdout);
    int reason = errno != 0 ? errno : EIO;
    if ((unwritten && st == MST_OK && main_reader_is_gone()) || (st == MST_EIO && mst_out_unread())) {
        mst_rank_exit_end(EXIT_FAILURE);
        return EXIT_FAILURE;
    }
    if (unwritten && st == MST_OK)
        st = mst_fail(MST_EIO, "standard output: cannot be written: %s", strerror(reason));
    mst_rank_exit_claim();
    mst_error error;
    mst_error_save(&error, st);
    if (st != MST_OK)
        mst_cli_print_error(&error);
    mst_rank_exit_end(mst_signals_exit_code(st));
    return mst_signals_exit_code(st);
}
