/* Which launcher started this process, which plug-in belongs to it, and its start; contract in mpi.h.
 *
 * Invariants
 * 1. A process loads one plug-in to use it, and starts MPI once; `list` loads and unloads each in turn.
 * 2. No variable that is set already is changed: defaults for MPI are set only where nothing is. */
#include "mpi/mpi.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/plugin_path.h"
#include "mpi/plugin.h"

static const char *const plugin_names[] = {"openmpi", "mpich"};
#define PMI2      "srun --mpi=pmi2"
#define N_PLUGINS (sizeof plugin_names / sizeof *plugin_names)

static const mst_mpi_host host = {.fail = mst_fail};

/* ---- the launcher ---- */

/* -1: not set, or no number. */
static int mpi_env_number(const char *name)
{
    const char *text = getenv(name);
    char *end;
    if (text == NULL || *text == '\0')
        return -1;
    errno = 0;
    long value = strtol(text, &end, 10);
    return errno == 0 && *end == '\0' && value >= 0 && value <= INT_MAX ? (int)value : -1;
}

static bool mpi_ranked(mst_mpi_launch *l, const char *rank, const char *size)
{
    l->rank = mpi_env_number(rank);
    l->size = mpi_env_number(size);
    return l->rank >= 0 && l->size > l->rank;
}

void mst_mpi_launched(mst_mpi_launch *out)
{
    mst_mpi_launch l = {.launched = true, .local_rank = -1, .local_size = -1};
    bool slurm = mpi_env_number("SLURM_PROCID") >= 0;
    if (mpi_ranked(&l, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")) {
        l.launcher = "mpirun (Open MPI)";
        l.plugin = "openmpi";
        l.local_rank = mpi_env_number("OMPI_COMM_WORLD_LOCAL_RANK");
        l.local_size = mpi_env_number("OMPI_COMM_WORLD_LOCAL_SIZE");
    } else if (mpi_ranked(&l, "PMI_RANK", "PMI_SIZE")) {
        bool hydra = mpi_env_number("MPI_LOCALRANKID") >= 0 || !slurm;
        l.launcher = hydra ? "mpiexec (MPICH)" : PMI2;
        l.plugin = "mpich";
        l.local_rank = mpi_env_number(hydra ? "MPI_LOCALRANKID" : "SLURM_LOCALID");
        l.local_size = hydra ? mpi_env_number("MPI_LOCALNRANKS") : -1;
    } else if (slurm && getenv("PMIX_RANK") != NULL &&
               (mpi_ranked(&l, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS") ||
                mpi_ranked(&l, "SLURM_PROCID", "SLURM_NTASKS"))) {
        l.launcher = "srun --mpi=pmix";
        l.plugin = "openmpi";
        l.local_rank = mpi_env_number("SLURM_LOCALID");
    } else {
        l = (mst_mpi_launch){.local_rank = -1, .local_size = -1};
    }
    *out = l;
}

static mst_status mpi_not_launched(void)
{
    if (mpi_env_number("SLURM_PROCID") >= 0)
        return mst_fail(MST_EUSAGE, "srun started this process without MPI: add --mpi=pmix (Open MPI) or "
                                    "--mpi=pmi2 (MPICH) to srun");
    return mst_fail(MST_EUSAGE,
                    "this process was not started by MPI: put `mpirun -n RANKS` (Open MPI), `mpiexec "
                    "-n RANKS` (MPICH) or `srun --mpi=pmix` (Slurm) in front of the command");
}

/* ---- plug-ins ---- */

/* The path of the plug-in of that name; false: not found. */
static bool mpi_find_plugin(const char *name, char *out, size_t size)
{
    char file[64];
    snprintf(file, sizeof file, "muster_mpi_%s.so", name);
    return mst_plugin_find(file, out, size);
}

/* Loads it, so that it could be started. *handle is the caller's to close. */
static mst_status mpi_load(const char *path, int flags, void **handle, const mst_mpi_ops **out)
{
    static const mst_plugin_kind kind = {.symbol = MST_MPI_SYMBOL,
                                         .host_symbol = MST_MPI_HOST_SYMBOL,
                                         .host = &host,
                                         .abi = MST_MPI_ABI,
                                         .renewal = "install both together"};
    const void *table;
    TRY(mst_plugin_load(&kind, path, flags, handle, &table));
    *out = table;
    return MST_OK;
}

uint32_t mst_mpi_plugins(mst_mpi_info *out, uint32_t n)
{
    uint32_t found = 0;
    for (size_t i = 0; i < N_PLUGINS && found < n; i++) {
        mst_mpi_info *info = &out[found];
        const mst_mpi_ops *ops;
        void *handle;
        *info = (mst_mpi_info){.name = plugin_names[i]};
        if (!mpi_find_plugin(info->name, info->path, sizeof info->path))
            continue;
        found++;
        info->loads = mpi_load(info->path, RTLD_NOW | RTLD_LOCAL, &handle, &ops) == MST_OK;
        if (info->loads) {
            ops->library(info->library, sizeof info->library);
            dlclose(handle);
        } else {
            snprintf(info->library, sizeof info->library, "%s", mst_error_text());
        }
    }
    return found;
}

/* ---- defaults ---- */

/* Whether processes may read each other's memory; a container's filter forbids even one's own. */
static bool mpi_may_read_memory(void)
{
    char from = 1, to = 0;
    struct iovec mine = {&to, 1}, other = {&from, 1};
    return process_vm_readv(getpid(), &mine, 1, &other, 1, 0) == 1;
}

static void mpi_set_default(const char *name, const char *value)
{
    setenv(name, value, 0);
}

/* Sets defaults that MPI needs in containers and when ranks outnumber processors. */
static void mpi_set_defaults(const char *plugin)
{
    if (strcmp(plugin, "openmpi") == 0) {
        mpi_set_default("OMPI_MCA_mpi_yield_when_idle", "1");
        mpi_set_default("OMPI_MCA_btl_base_warn_component_unused", "0");
        if (!mpi_may_read_memory())
            mpi_set_default("OMPI_MCA_btl_vader_single_copy_mechanism", "none");
    } else {
        mpi_set_default("UCX_LOG_LEVEL", "error");
        mpi_set_default("UCX_WARN_UNUSED_ENV_VARS", "n");
        mpi_set_default("UCX_HANDLE_ERRORS", "none"); /* no backtrace, no debugger that waits for a key */
        mpi_set_default("UCX_ERROR_SIGNALS", "");
    }
}

/* ---- start ---- */

static pthread_mutex_t one_lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static mst_mpi one;
static enum { NOT_STARTED, STARTED, PARTED, ENDING, ENDED, FAILED } one_state;
static pthread_t one_thread; /* that uses it; once started */
static bool one_loaded;      /* MPI itself may be there */
static atomic_bool starting;

/* The name of the plug-in to use: the given one, MUSTER_MPI's, or the launcher's. */
static mst_status mpi_choose(const char *given, const mst_mpi_launch *l, const char **out)
{
    const char *env = getenv("MUSTER_MPI");
    const char *from = given != NULL ? "--mpi-plugin" : "MUSTER_MPI";
    const char *name = given != NULL ? given : env != NULL && *env != '\0' ? env : NULL;
    if (name == NULL || strcmp(name, "auto") == 0) {
        *out = l->plugin;
        return MST_OK;
    }
    for (size_t i = 0; i < N_PLUGINS; i++)
        if (strcmp(name, plugin_names[i]) == 0) {
            *out = plugin_names[i];
            return MST_OK;
        }
    return mst_fail(MST_EUSAGE, "%s %s: there is no such plug-in; choose auto, openmpi or mpich", from, name);
}

static mst_status mpi_no_plugin(const char *name, const mst_mpi_launch *l)
{
    mst_mpi_info there[N_PLUGINS];
    uint32_t n = mst_mpi_plugins(there, N_PLUGINS);
    const char *package = strcmp(name, "openmpi") == 0 ? "libopenmpi-dev" : "libmpich-dev";
    const char *pretty = strcmp(name, "openmpi") == 0 ? "Open MPI" : "MPICH";
    if (n > 0)
        return mst_fail(
            MST_EUNSUPPORTED,
            "%s started this process, but muster was built without %s (only with %s): install %s and "
            "build again, or start with the launcher of %s",
            l->launcher, pretty, there[0].name, package, there[0].library);
    return mst_fail(
        MST_EUNSUPPORTED,
        "%s started this process, but there is no MPI plug-in: install %s and build muster again, or "
        "name the plug-ins' folder in MUSTER_PLUGINS",
        l->launcher, package);
}

static mst_status mpi_wrong_pairing(const mst_mpi_ops *ops, const mst_mpi_launch *l, int size)
{
    char library[128];
    ops->library(library, sizeof library);
    if (size == 1 && ops->finalize() == MST_OK) /* alone, each process can end what it started */
        one_loaded = false;
    bool forced = l->plugin != NULL && strcmp(l->plugin, ops->name) != 0;
    const char *cure = strcmp(ops->name, "openmpi") == 0 ? "start with Open MPI's mpirun or `srun --mpi=pmix`"
                                                         : "start with MPICH's mpiexec or `srun --mpi=pmi2`";
    return mst_fail(
        MST_EUSAGE,
        "%s started %d processes, but %s (plug-in %s) sees %d: it does not belong to that launcher; "
        "%s%s%s%s",
        l->launcher, l->size, library, ops->name, size, forced ? "use --mpi-plugin " : "",
        forced ? l->plugin : "", forced ? ", or " : "", cure);
}

static mst_status mpi_load_and_start(const char *given, mst_mpi *out)
{
    mst_mpi mpi = {0};
    char path[512];
    const char *name = NULL;
    void *handle;
    mst_mpi_launched(&mpi.launch);
    if (!mpi.launch.launched)
        return mpi_not_launched();
    TRY(mpi_choose(given, &mpi.launch, &name));
    if (mpi.launch.plugin != NULL && strcmp(name, "openmpi") == 0 && strcmp(mpi.launch.launcher, PMI2) == 0)
        return mst_fail(MST_EUSAGE,
                        "Open MPI (plug-in openmpi) cannot be started by `%s`: use --mpi-plugin "
                        "mpich, or start with `srun --mpi=pmix`",
                        PMI2); /* it would end the process itself, with a page of its own */
    if (!mpi_find_plugin(name, path, sizeof path))
        return mpi_no_plugin(name, &mpi.launch);
    mpi_set_defaults(name);
    /* The modules that Open MPI itself loads look for its symbols among the global ones. */
    TRY(mpi_load(path, RTLD_NOW | RTLD_GLOBAL, &handle, &mpi.ops));
    one_loaded = true;
    mst_status st = mpi.ops->start(&mpi.rank, &mpi.size);
    if (st != MST_OK)
        return st; /* MPI is in an unknown state: its library stays */
    if (mpi.size != mpi.launch.size)
        return mpi_wrong_pairing(mpi.ops, &mpi.launch, mpi.size);
    prctl(PR_SET_TIMERSLACK, 1000ul); /* of this thread, in ns: or a nap of 50 us takes twice that */
    if (gethostname(mpi.host, sizeof mpi.host) != 0)
        snprintf(mpi.host, sizeof mpi.host, "?");
    mpi.host[sizeof mpi.host - 1] = '\0';
    *out = mpi;
    return MST_OK;
}

mst_status mst_mpi_start(const char *plugin, mst_mpi **out)
{
    mst_status st = MST_OK;
    pthread_mutex_lock(&one_lock);
    if (one_state == NOT_STARTED) {
        atomic_store(&starting, true);
        st = mpi_load_and_start(plugin, &one);
        atomic_store(&starting, false);
        one_state = st == MST_OK ? STARTED : FAILED;
        one_thread = pthread_self();
    } else if (one_state != STARTED) {
        st = mst_fail(MST_EUSAGE, "MPI can be started only once in a process; it %s already",
                      one_state == FAILED ? "failed to start" : "was ended");
    }
    pthread_mutex_unlock(&one_lock);
    if (st == MST_OK)
        *out = &one;
    return st;
}

bool mst_mpi_starting(void)
{
    return atomic_load(&starting);
}

/* ---- the end ---- */

#define TAG_PART    21003 /* and the rounds after it: 2^31 ranks have 31 */
#define ANSWER_MS   500
#define END_ZERO_MS 1000
#define END_MS      2000

static void mpi_enter(int state)
{
    pthread_mutex_lock(&one_lock);
    one_state = state;
    pthread_mutex_unlock(&one_lock);
}

/* After round i every rank has messages from 2^(i + 1) - 1 preceding ranks. */
mst_status mst_mpi_detach(mst_mpi *self, uint64_t deadline_ns)
{
    char gone = 1, received = 0;
    int tag = TAG_PART;
    for (int64_t step = 1; step < self->size; step *= 2, tag++) {
        int to = (int)((self->rank + step) % self->size);
        int from = (int)((self->rank - step + self->size) % self->size);
        mst_mpi_request two[2];
        TRY(self->ops->irecv(0, &received, sizeof received, from, tag, &two[0]));
        TRY(self->ops->isend(0, &gone, sizeof gone, to, tag, &two[1]));
        TRY(mst_mpi_wait(self, 2, two, deadline_ns, "the other ranks to finish"));
    }
    if (self == &one)
        mpi_enter(PARTED);
    return MST_OK;
}

/* MPICH's mpiexec considers a process that ends without this message dead, and kills the others. It answers,
 * so the process must wait. srun needs no message. */
static void mpi_inform_launcher(void)
{
    static const char word[] = "cmd=finalize\n";
    char answer[64];
    struct pollfd fd = {.fd = mpi_env_number("PMI_FD"), .events = POLLIN};
    bool hydra = mpi_env_number("MPI_LOCALRANKID") >= 0;
    if (hydra && fd.fd > STDERR_FILENO && write(fd.fd, word, sizeof word - 1) == sizeof word - 1 &&
        poll(&fd, 1, ANSWER_MS) == 1) {
        ssize_t n = read(fd.fd, answer, sizeof answer);
        (void)n;
    }
}

mst_status mst_mpi_end(mst_mpi *self)
{
    pthread_mutex_lock(&one_lock);
    bool here = self == &one && (one_state == STARTED || one_state == PARTED);
    if (here)
        one_state = ENDING;
    pthread_mutex_unlock(&one_lock);
    if (!here)
        return MST_OK;
    if (self->ops->hangs()) {
        mpi_inform_launcher();
        return MST_OK;
    }
    mst_status st = self->ops->finalize();
    if (st == MST_OK)
        mpi_enter(ENDED);
    return st;
}

uint32_t mst_mpi_end_ms(const mst_mpi *self)
{
    return self->rank == 0 ? END_ZERO_MS : END_MS;
}

bool mst_mpi_over(void)
{
    pthread_mutex_lock(&one_lock);
    bool over = !one_loaded || one_state == ENDED;
    pthread_mutex_unlock(&one_lock);
    return over;
}

mst_mpi *mst_mpi_detached(void)
{
    pthread_mutex_lock(&one_lock);
    bool parted = one_state == PARTED && pthread_equal(one_thread, pthread_self());
    pthread_mutex_unlock(&one_lock);
    return parted ? &one : NULL;
}

/* ---- waiting ---- */

#define YIELDS 100 /* before the first sleep: a rank that shares its processor answers within a few */
#define NAPS   40  /* of 50 us, before those of 500 us: 2 ms */

void mst_mpi_idle(mst_mpi_backoff *self)
{
    uint32_t idle = self->idle++;
    if (idle < YIELDS) {
        sched_yield();
        return;
    }
    bool long_ago = idle >= YIELDS + NAPS;
    if (long_ago)
        self->idle = YIELDS + NAPS; /* never overflows */
    struct timespec nap = {.tv_nsec = long_ago ? 500000 : 50000};
    nanosleep(&nap, NULL);
}

mst_status mst_mpi_wait(mst_mpi *self, uint32_t n, mst_mpi_request *requests, uint64_t deadline_ns,
                        const char *what)
{
    mst_mpi_backoff backoff = {0};
    bool done[64];
    for (;;) {
        uint32_t left = 0, finished = 0;
        for (uint32_t i = 0; i < n; i += 64) {
            uint32_t some = n - i < 64 ? n - i : 64, here;
            TRY(self->ops->test_some(some, requests + i, done, &here));
            finished += here;
            for (uint32_t k = 0; k < some; k++)
                left += requests[i + k].opaque != 0;
        }
        if (left == 0)
            return MST_OK;
        if (mst_now_ns() >= deadline_ns)
            return mst_fail(MST_ETIMEOUT,
                            "rank %d waited too long for %s: %u of %u messages have not arrived", self->rank,
                            what, left, n);
        if (finished > 0)
            mst_mpi_busy(&backoff);
        else
            mst_mpi_idle(&backoff);
    }
}
