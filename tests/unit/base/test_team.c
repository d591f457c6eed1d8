/* Teams: every thread runs, the caller is thread 0, barriers hold all threads, turns are taken in order, and
 * more threads than cores work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/alloc.h"
#include "base/team.h"

#define MOST 9

typedef struct work {
    mst_team *team;
    unsigned n;
    pthread_t caller;
    unsigned rounds;
    unsigned plain[MOST]; /* not atomic: the barrier alone orders it */
    atomic_uint runs[MOST], wrong;
} work;

static void phases(void *arg, unsigned thread)
{
    work *w = arg;
    atomic_fetch_add(&w->runs[thread], 1);
    if ((thread == 0) != (pthread_equal(pthread_self(), w->caller) != 0))
        atomic_fetch_add(&w->wrong, 1);
    for (unsigned round = 1; round <= w->rounds; round++) {
        w->plain[thread]++;
        mst_team_barrier(w->team, thread);
        for (unsigned other = 1; other < w->n; other++)
            if (w->plain[other] != w->plain[0])
                atomic_fetch_add(&w->wrong, 1);
        mst_team_barrier(w->team, thread);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    const unsigned sizes[] = {1, 2, 3, MOST};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        work w = {.n = sizes[s], .caller = pthread_self(), .rounds = 200};
        assert_int_equal(mst_team_new(w.n, &w.team), MST_OK);
        assert_int_equal(mst_team_size(w.team), w.n);
        for (unsigned run = 1; run <= 5; run++) {
            mst_team_run(w.team, phases, &w);
            for (unsigned t = 0; t < MOST; t++) {
                assert_int_equal(atomic_load(&w.runs[t]), t < w.n ? run : 0);
                assert_int_equal(w.plain[t], t < w.n ? run * w.rounds : 0);
            }
        }
        assert_int_equal(atomic_load(&w.wrong), 0);
        mst_team_destroy(w.team);
    }
    mst_team_destroy(NULL);
}

/* A barrier in two parts: what a thread writes before it arrives is visible to all that have waited; what it
 * does between the parts is its own affair. */
static void two_parts(void *arg, unsigned thread)
{
    work *w = arg;
    for (unsigned round = 1; round <= w->rounds; round++) {
        w->plain[thread]++;
        unsigned arrival = mst_team_arrive(w->team, thread);
        atomic_fetch_add(&w->runs[thread], 1);
        mst_team_await(w->team, thread, arrival);
        for (unsigned other = 1; other < w->n; other++)
            if (w->plain[other] != w->plain[0])
                atomic_fetch_add(&w->wrong, 1);
        mst_team_await(w->team, thread, mst_team_arrive(w->team, thread));
    }
}

static void test_barriers_in_two_parts(void **state)
{
    (void)state;
    const unsigned sizes[] = {1, 2, 3, MOST};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        work w = {.n = sizes[s], .rounds = 200};
        assert_int_equal(mst_team_new(w.n, &w.team), MST_OK);
        mst_team_run(w.team, two_parts, &w);
        for (unsigned t = 0; t < w.n; t++)
            assert_int_equal(atomic_load(&w.runs[t]), w.rounds);
        assert_int_equal(atomic_load(&w.wrong), 0);
        mst_team_destroy(w.team);
    }
}

/* Threads take turns at parts: thread t at part t first, and at each part after thread t + 1. */
static void turns(void *arg, unsigned thread)
{
    work *w = arg;
    for (unsigned round = 0; round < w->rounds; round++) {
        for (unsigned i = 0; i < w->n; i++) {
            unsigned part = (thread + i) % w->n;
            if (i > 0)
                mst_team_follow(w->team, thread, (thread + 1) % w->n);
            /* not atomic; a part is taken by threads part, part - 1, ... */
            if (w->plain[part]++ != round * w->n + i)
                atomic_fetch_add(&w->wrong, 1);
            mst_team_pass(w->team, thread);
        }
        mst_team_barrier(w->team, thread);
    }
}

static void test_turns(void **state)
{
    (void)state;
    const unsigned sizes[] = {1, 2, 3, MOST};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        work w = {.n = sizes[s], .rounds = 60};
        assert_int_equal(mst_team_new(w.n, &w.team), MST_OK);
        for (unsigned run = 0; run < 3; run++) {
            memset(w.plain, 0, sizeof w.plain);
            mst_team_run(w.team, turns, &w);
            for (unsigned part = 0; part < w.n; part++)
                assert_int_equal(w.plain[part], w.rounds * w.n);
        }
        assert_int_equal(atomic_load(&w.wrong), 0);
        mst_team_destroy(w.team);
    }
}

static void add_one(void *arg, unsigned thread)
{
    ((unsigned *)arg)[thread * 16]++;
}

/* Many short runs: no thread misses a start, and writes of threads are visible when run returns. */
static void test_many_runs(void **state)
{
    (void)state;
    mst_team *team;
    unsigned counts[3 * 16] = {0};
    assert_int_equal(mst_team_new(3, &team), MST_OK);
    for (unsigned run = 1; run <= 3000; run++) {
        mst_team_run(team, add_one, counts);
        for (unsigned t = 0; t < 3; t++)
            assert_int_equal(counts[t * 16], run);
    }
    mst_team_destroy(team);
}

static void test_unused(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        mst_team *team;
        assert_int_equal(mst_team_new(4, &team), MST_OK);
        mst_team_destroy(team);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    mst_alloc_stats before, after;
    mst_alloc_stats_get(&before);
    for (uint64_t k = 1; k <= 2; k++) {
        mst_team *team = NULL;
        mst_alloc_fail_at(k);
        assert_int_equal(mst_team_new(2, &team), MST_ENOMEM);
        assert_non_null(strstr(mst_error_text(), "out of memory: cannot allocate "));
        assert_null(team);
    }
    mst_alloc_fail_at(0);
    mst_alloc_stats_get(&after);
    assert_int_equal(before.blocks, after.blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),  cmocka_unit_test(test_barriers_in_two_parts),
        cmocka_unit_test(test_turns),  cmocka_unit_test(test_many_runs),
        cmocka_unit_test(test_unused), cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
