/* Teams of threads; contract in team.h.
 *
 * One generation counter per wait, and one per thread that passes something on: a waiter spins on it for some
 * tenths of a millisecond (a barrier inside a training step is shorter when every thread has a core; waking a
 * thread that sleeps takes as long as a step) and then sleeps on it with a futex. Where threads outnumber
 * cores, a waiter gives its core to other threads instead, of which one may be the awaited one. If it is
 * without its core for long then, another program has it, and in its next waits the thread sleeps at once: a
 * thread that wakes up gets a core sooner.
 *
 * Threads arrive in groups, and the last of a group arrives for it: 16 threads that count on one line take
 * 1.7 us, because the line moves 16 times, one after the other. */
#include "base/team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"

#define SPINS       5000
#define SPINS_LEAST 200
#define SHORT_NS    50000 /* a sleep that is shorter than this was not worth it */
#define MISSED_NS   100000
#define YIELD_NS    1000000
#define LONG_NS     200000 /* a thread of the team does not keep a core for as long */
#define NO_YIELDS   1024   /* waits */
#define GROUP       4      /* threads that count on one line */

typedef struct gate {
    _Alignas(64) atomic_uint generation;
    atomic_uint sleepers;
} gate;

typedef struct member {
    _Alignas(64) mst_team *team;
    unsigned index;
    unsigned spins;     /* before it sleeps; 0 where threads outnumber cores */
    unsigned no_yields; /* where they do: waits to come in which it sleeps at once */
    pthread_t thread;
    gate passed; /* its generation: how often the thread has passed */
} member;

struct mst_team {
    unsigned n;
    unsigned n_started; /* threads that exist, for destroy after a partial start */
    member *members;
    mst_team_fn *fn;
    void *arg;
    bool leaving; /* guarded by start's generation */
    gate start;
    gate barrier;
    struct arrivals {
        _Alignas(64) atomic_uint n;
    } * groups, all; /* threads of each group; groups that are complete */
};

/* Lets other threads run; false if the thread shall sleep. */
static bool team_gate_yield(const gate *g, unsigned seen, member *self)
{
    self->no_yields -= self->no_yields > 0;
    for (uint64_t start = mst_now_ns(), now = start; now - start < YIELD_NS && self->no_yields == 0;) {
        uint64_t before = now;
        if (atomic_load_explicit(&g->generation, memory_order_acquire) != seen)
            return true;
        sched_yield();
        now = mst_now_ns();
        if (now - before > LONG_NS)
            self->no_yields = NO_YIELDS;
    }
    return false;
}

/* Spins at most self->spins times and adapts it: where a sleep was long, another program has the core of an
 * awaited thread, and spinning would only keep a core from it; where it was short, spinning would have been
 * shorter.
 */
static void team_gate_wait(gate *g, unsigned seen, member *self)
{
    unsigned *spins = &self->spins;
    for (unsigned i = 0; i <= *spins; i++) {
        if (atomic_load_explicit(&g->generation, memory_order_acquire) != seen)
            return;
#ifdef __x86_64__
        __builtin_ia32_pause();
#endif
    }
    if (*spins == 0 && team_gate_yield(g, seen, self))
        return;
    uint64_t start = *spins != 0 ? mst_now_ns() : 0;
    atomic_fetch_add(&g->sleepers, 1);
    while (atomic_load(&g->generation) == seen)
        syscall(SYS_futex, &g->generation, FUTEX_WAIT_PRIVATE, seen, &(struct timespec){.tv_nsec = MISSED_NS},
                NULL, 0);
    atomic_fetch_sub(&g->sleepers, 1);
    if (*spins == 0)
        return;
    if (mst_now_ns() - start < SHORT_NS)
        *spins = SPINS;
    else
        *spins = *spins / 4 > SPINS_LEAST ? *spins / 4 : SPINS_LEAST;
}

static void team_gate_wake(gate *g)
{
    if (atomic_load(&g->sleepers) != 0)
        syscall(SYS_futex, &g->generation, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

static void team_gate_open(gate *g)
{
    atomic_fetch_add(&g->generation, 1);
    team_gate_wake(g);
}

/* Counts one of n arrivals; true for the last, which starts the count again. */
static bool team_arrive(struct arrivals *at, unsigned n)
{
    if (atomic_fetch_add_explicit(&at->n, 1, memory_order_acq_rel) + 1 < n)
        return false;
    atomic_store_explicit(&at->n, 0, memory_order_relaxed);
    return true;
}

unsigned mst_team_arrive(mst_team *team, unsigned thread)
{
    unsigned seen = atomic_load_explicit(&team->barrier.generation, memory_order_relaxed);
    unsigned n_groups = (team->n + GROUP - 1) / GROUP, group = thread / GROUP;
    unsigned size = group + 1 < n_groups ? GROUP : team->n - group * GROUP;
    if (team->n > 1 && team_arrive(&team->groups[group], size) && team_arrive(&team->all, n_groups))
        team_gate_open(&team->barrier);
    return seen;
}

void mst_team_await(mst_team *team, unsigned thread, unsigned arrival)
{
    if (team->n > 1)
        team_gate_wait(&team->barrier, arrival, &team->members[thread]);
}

void mst_team_barrier(mst_team *team, unsigned thread)
{
    mst_team_await(team, thread, mst_team_arrive(team, thread));
}

void mst_team_pass(mst_team *team, unsigned thread)
{
    gate *g = &team->members[thread].passed;
    unsigned n = atomic_load_explicit(&g->generation, memory_order_relaxed);
    /* No atomic addition: it would wait for all earlier stores. So a sleeper may be missed, for MISSED_NS. */
    atomic_store_explicit(&g->generation, n + 1, memory_order_release);
    team_gate_wake(g);
}

void mst_team_follow(mst_team *team, unsigned thread, unsigned other)
{
    member *self = &team->members[thread];
    gate *g = &team->members[other].passed;
    unsigned n = atomic_load_explicit(&self->passed.generation, memory_order_relaxed), seen;
    while ((int)((seen = atomic_load_explicit(&g->generation, memory_order_acquire)) - n) < 0)
        team_gate_wait(g, seen, self);
}

static void *team_member_main(void *arg)
{
    member *self = arg;
    mst_team *team = self->team;
    unsigned seen = 0;
    for (;;) {
        team_gate_wait(&team->start, seen, self);
        seen++;
        if (team->leaving)
            return NULL;
        team->fn(team->arg, self->index);
        mst_team_barrier(team, self->index);
    }
}

mst_status mst_team_new(unsigned n_threads, mst_team **out)
{
    mst_team *team = mst_alloc_lines(sizeof *team);
    if (team == NULL)
        return mst_fail_memory();
    *team = (mst_team){.n = n_threads, .n_started = 1};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    team->members = mst_alloc_lines(n_threads * sizeof *team->members);
    team->groups = mst_alloc_lines(((n_threads + GROUP - 1) / GROUP) * sizeof *team->groups);
    if (team->members == NULL || team->groups == NULL) {
        mst_team_destroy(team);
        return mst_fail_memory();
    }
    for (unsigned i = 0; i < n_threads; i += GROUP)
        atomic_init(&team->groups[i / GROUP].n, 0);
    for (unsigned i = 0; i < n_threads; i++)
        team->members[i] = (member){.team = team, .index = i, .spins = (long)n_threads <= cores ? SPINS : 0};
    for (unsigned i = 1; i < n_threads; i++) {
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
    mst_free(team->groups);
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
    mst_team_barrier(team, 0);
}
