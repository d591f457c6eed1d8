/* Faults made good; contract in fault.h.
 *
 * Invariants
 * 1. The list only grows at its head and its nodes are never freed, only used again: a handler can walk it at
 * any time. A node of size 0 is not in use.
 * 2. The handler calls nothing but system calls that are safe in a handler on Linux, and leaves errno as it
 * was. */
#include "base/fault.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SINK_BYTES ((size_t)64 << 20) /* the memory that pages of a guard alias after a hit */

struct mst_fault_range {
    mst_fault_range *next;
    atomic_uintptr_t start;
    atomic_size_t size;
    mst_fault_kind kind;
    atomic_bool hit;
};

static struct {
    pthread_mutex_t mutex; /* guards changes of the list and the fields below */
    unsigned n_ranges;     /* in use */
    bool bus, segv;        /* our handler is installed */
    struct sigaction bus_before, segv_before;

    _Atomic(mst_fault_range *) head;
    atomic_uint_fast64_t count;
    size_t page;
} g_faults = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* Gives the whole guard memory that stray keys may read and write, without taking more than SINK_BYTES. */
static bool fault_fill_guard(uintptr_t start, size_t size)
{
    int fd = memfd_create("muster-guard", MFD_CLOEXEC);
    bool good = fd >= 0 && ftruncate(fd, (off_t)SINK_BYTES) == 0;
    for (size_t at = 0; good && at < size; at += SINK_BYTES)
        good = mmap((void *)(start + at), size - at < SINK_BYTES ? size - at : SINK_BYTES,
                    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
    if (fd >= 0)
        close(fd);
    return good;
}

static bool fault_fill_file(uintptr_t from, uintptr_t end)
{
    return mmap((void *)from, end - from, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE,
                -1, 0) != MAP_FAILED;
}

static bool fault_make_good(uintptr_t at)
{
    for (mst_fault_range *r = atomic_load(&g_faults.head); r != NULL; r = r->next) {
        uintptr_t start = atomic_load(&r->start);
        size_t size = atomic_load(&r->size), page = g_faults.page;
        if (size == 0 || at - start >= size)
            continue;
        bool good = r->kind == MST_FAULT_GUARD
                        ? fault_fill_guard(start, size)
                        : fault_fill_file(at & ~(uintptr_t)(page - 1),
                                          (start + size + page - 1) & ~(uintptr_t)(page - 1));
        if (good) {
            atomic_store(&r->hit, true);
            atomic_fetch_add(&g_faults.count, 1);
        }
        return good;
    }
    return false;
}

static void fault_on_signal(int number, siginfo_t *info, void *context)
{
    const struct sigaction *before = number == SIGBUS ? &g_faults.bus_before : &g_faults.segv_before;
    int error = errno;
    if (info->si_code > 0 && fault_make_good((uintptr_t)info->si_addr)) { /* above 0: the kernel's own */
        errno = error;
        return;
    }
    errno = error;
    if (before->sa_flags & SA_SIGINFO)
        before->sa_sigaction(number, info, context);
    else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN)
        before->sa_handler(number);
    else if (info->si_code > 0)
        signal(number, SIG_DFL); /* the instruction runs again, and the process ends as it would have */
    else if (before->sa_handler == SIG_DFL) { /* another process sent it: it is sent again */
        signal(number, SIG_DFL);
        raise(number);
    }
}

/* ---- installation; under the mutex ---- */

static void fault_install(int number, bool *installed, struct sigaction *before)
{
    struct sigaction action = {.sa_sigaction = fault_on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    if (!*installed)
        *installed = sigaction(number, NULL, before) == 0 && sigaction(number, &action, NULL) == 0;
}

/* Restores the previous handler. If another handler has replaced ours, it may call ours, so both stay. */
static void fault_uninstall(int number, bool *installed, const struct sigaction *before)
{
    struct sigaction now;
    if (*installed && sigaction(number, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) &&
        now.sa_sigaction == fault_on_signal)
        *installed = sigaction(number, before, NULL) != 0;
}

mst_fault_range *mst_fault_guard(void *start, size_t size, mst_fault_kind kind)
{
    pthread_mutex_lock(&g_faults.mutex);
    mst_fault_range *r = atomic_load(&g_faults.head);
    while (r != NULL && atomic_load(&r->size) != 0)
        r = r->next;
    bool fresh = r == NULL;
    if (fresh)
        r = calloc(1, sizeof *r); /* not counted: it stays */
    if (r != NULL) {
        if (g_faults.n_ranges++ == 0) {
            g_faults.page = (size_t)sysconf(_SC_PAGESIZE);
            fault_install(SIGBUS, &g_faults.bus, &g_faults.bus_before);
            fault_install(SIGSEGV, &g_faults.segv, &g_faults.segv_before);
        }
        r->kind = kind;
        atomic_store(&r->hit, false);
        atomic_store(&r->start, (uintptr_t)start);
        atomic_store(&r->size, size);
        if (fresh) {
            r->next = atomic_load(&g_faults.head);
            atomic_store(&g_faults.head, r);
        }
    }
    pthread_mutex_unlock(&g_faults.mutex);
    return r;
}

void mst_fault_unguard(mst_fault_range *range)
{
    if (range == NULL)
        return;
    pthread_mutex_lock(&g_faults.mutex);
    atomic_store(&range->size, 0);
    if (--g_faults.n_ranges == 0) {
        fault_uninstall(SIGBUS, &g_faults.bus, &g_faults.bus_before);
        fault_uninstall(SIGSEGV, &g_faults.segv, &g_faults.segv_before);
    }
    pthread_mutex_unlock(&g_faults.mutex);
}

bool mst_fault_hit(const mst_fault_range *range)
{
    return range != NULL && atomic_load_explicit(&range->hit, memory_order_relaxed);
}

uint64_t mst_fault_count(void)
{
    return atomic_load_explicit(&g_faults.count, memory_order_relaxed);
}
