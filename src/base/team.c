/* Teams of threads; contract in team.h.
 *
 * One generation counter per wait: a waiter spins on it for a few microseconds (a barrier inside a training
 * step is that short when every thread has a core) and then sleeps on it with a futex. */
#include "base/team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"

#define SPINS 500

typedef struct gate {
    _Alignas(64) atomic_uint generation;
    atomic_uint sleepers;
} gate;

typedef struct member {
    mst_team *team;
    unsigned index;
    pthread_t thread;
} member;

struct mst_team {
    unsigned n;
    unsigned n_started; /* threads that exist, for destroy after a partial start */
    unsigned
        spins; /* 0 where threads outnumber cores: spinning would take the core from the awaited thread */
    member *members;
    mst_team_fn *fn;
    void *arg;
    bool leaving; /* guarded by start's generation */
    gate start;
    gate barrier;
    _Alignas(64) atomic_uint arrived;
};

static void team_gate_wait(gate *g, unsigned seen, unsigned spins)
{
    for (unsigned i = 0; i < spins; i++) {
        if (atomic_load_explicit(&g->generation, memory_order_acquire) != seen)
            return;
#ifdef __x86_64__
        __builtin_ia32_pause();
#endif
    }
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->generation) == seen)
        syscall(SYS_futex, &g->generation, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&g->sleepers, 1);
}

static void team_gate_open(gate *g)
{
    atomic_fetch_add(&g->generation, 1);
    if (atomic_load(&g->sleepers) != 0)
        syscall(SYS_futex, &g->generation, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void mst_team_barrier(mst_team *team)
{
    if (team->n == 1)
        return;
    unsigned seen = atomic_load_explicit(&team->barrier.generation, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel) + 1 == team->n) {
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        team_gate_open(&team->barrier);
    } else {
        team_gate_wait(&team->barrier, seen, team->spins);
    }
}

static void *team_member_main(void *arg)
{
    member *self = arg;
    mst_team *team = self->team;
    unsigned seen = 0;
    for (;;) {
        team_gate_wait(&team->start, seen, team->spins);
        seen++;
        if (team->leaving)
            return NULL;
        team->fn(team->arg, self->index);
        mst_team_barrier(team);
    }
}

mst_status mst_team_new(unsigned n_threads, mst_team **out)
{
    mst_team *team = mst_alloc_lines(sizeof *team);
    if (team == NULL)
        return mst_fail_memory();
    *team = (mst_team){.n = n_threads, .n_started = 1};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    team->spins = (long)n_threads <= cores ? SPINS : 0;
    team->members = mst_calloc(n_threads, sizeof *team->members);
    if (team->members == NULL) {
        mst_team_destroy(team);
        return mst_fail_memory();
    }
    for (unsigned i = 1; i < n_threads; i++) {
        team->members[i] = (member){.team = team, .index = i};
        if (pthread_create(&team->members[i].thread, NULL, team_member_main, &team->members[i]) != 0) {
            mst_team_destroy(team);
            return mst_fail(MST_EIO, "cannot start thread %u of %u", i + 1, n_threads);
        }
        team->n_started++;
    }
    *out = team;
    return MST_OK;
}

void mst_team_destroy(mst_team *team)
{
    if (team == NULL)
        return;
    team->leaving = true;
    team_gate_open(&team->start);
    for (unsigned i = 1; i < team->n_started; i++)
        pthread_join(team->members[i].thread, NULL);
    mst_free(team->members);
    mst_free(team);
}

unsigned mst_team_size(const mst_team *team)
{
    return team->n;
}

void mst_team_run(mst_team *team, mst_team_fn *fn, void *arg)
{
    team->fn = fn;
    team->arg = arg;
    if (team->n > 1)
        team_gate_open(&team->start);
    fn(arg, 0);
    mst_team_barrier(team);
}
