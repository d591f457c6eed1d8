/* The clock of a job: exact on one host, estimated on others, never decreasing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "observe/job_clock.h"

#define AHEAD ((int64_t)90 * (int64_t)MST_S) /* of the other host's monotonic clock */

static void put(uint8_t *at, uint64_t value)
{
    memcpy(at, &value, sizeof value);
}

/* The answer of a coordinator on another host, whose clocks are AHEAD, to a question that was sent at
 * asked_ns and reached it late_ns later. */
static void other_host(mst_job_clock *coordinator, uint64_t asked_ns, uint64_t late_ns, uint8_t *answer)
{
    struct timespec wall;
    mst_job_clock_answer(coordinator, answer);
    clock_gettime(CLOCK_REALTIME, &wall);
    put(answer, asked_ns + late_ns + (uint64_t)AHEAD);
    put(answer + 8, (uint64_t)wall.tv_sec * MST_S + (uint64_t)AHEAD);
    put(answer + 16, coordinator->began_ns + (uint64_t)AHEAD);
    put(answer + 24, coordinator->began_wall_ns + (uint64_t)AHEAD);
    answer[32] ^= 1;
}

/* How far the worker's clock is ahead of the coordinator's. */
static int64_t error_at(mst_job_clock *worker, mst_job_clock *coordinator, uint64_t at_ns)
{
    return (int64_t)(mst_job_clock_at(worker, at_ns) - mst_job_clock_at(coordinator, at_ns));
}

static void clocks_init(mst_job_clock *coordinator, mst_job_clock *worker)
{
    mst_job_clock_init(coordinator, true);
    mst_job_clock_init(worker, false);
}

static void clocks_fini(mst_job_clock *coordinator, mst_job_clock *worker)
{
    mst_job_clock_fini(worker);
    mst_job_clock_fini(coordinator);
}

static void test_one_host_has_one_clock(void **state)
{
    mst_job_clock coordinator, worker;
    uint8_t answer[MST_CLOCK_ANSWER];
    (void)state;
    mst_job_clock_init(&coordinator, true);
    assert_true(mst_job_clock_known(&coordinator));
    mst_job_clock_init(&worker, false);
    assert_false(mst_job_clock_known(&worker));
    uint64_t asked = mst_now_ns();
    mst_job_clock_answer(&coordinator, answer);
    /* answered at once and received after 40 ms: the error of the estimate would be half of that */
    assert_true(mst_job_clock_receive(&worker, asked, mst_now_ns() + 40 * MST_MS, answer, sizeof answer));
    assert_true(mst_job_clock_known(&worker));
    for (uint64_t at = asked; at < asked + MST_S; at += 100 * MST_MS)
        assert_int_equal(mst_job_clock_at(&worker, at), mst_job_clock_at(&coordinator, at));
    assert_int_equal(mst_job_clock_began(&worker), mst_job_clock_began(&coordinator));
    assert_int_equal(mst_job_clock_wall_offset(&worker), 0);
    assert_int_equal(mst_job_clock_at(&worker, 1), 0); /* long before the job */
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    assert_true(mst_job_clock_began(&worker) / MST_S <= (uint64_t)now.tv_sec);
    assert_true(mst_job_clock_began(&worker) / MST_S + 3600 > (uint64_t)now.tv_sec);
    clocks_fini(&coordinator, &worker);
}

/* A cloned host has the id of the one it was cloned from, and a clock of its own. */
static void test_the_same_id_is_not_enough(void **state)
{
    mst_job_clock coordinator, worker;
    uint8_t answer[MST_CLOCK_ANSWER];
    (void)state;
    clocks_init(&coordinator, &worker);
    for (unsigned i = 0; i < MST_CLOCK_ANSWERS; i++) {
        uint64_t asked = mst_now_ns();
        assert_false(mst_job_clock_known(&worker));
        other_host(&coordinator, asked, 1000, answer);
        answer[32] ^= 1;
        assert_true(mst_job_clock_receive(&worker, asked, asked + 2000, answer, sizeof answer));
    }
    assert_true(mst_job_clock_known(&worker));
    assert_int_equal(error_at(&worker, &coordinator, mst_now_ns()), 0);
    clocks_fini(&coordinator, &worker);
}

static void test_the_fastest_ways_count(void **state)
{
    mst_job_clock coordinator, worker;
    uint8_t answer[MST_CLOCK_ANSWER];
    (void)state;
    clocks_init(&coordinator, &worker);
    for (unsigned i = 0; i < MST_CLOCK_ANSWERS; i++) {
        /* a busy coordinator looks at its clock 30 ms late, all but once */
        uint64_t late = i == 5 ? 120000 : 30 * MST_MS, asked = mst_now_ns();
        assert_false(mst_job_clock_known(&worker));
        other_host(&coordinator, asked, late, answer);
        assert_true(mst_job_clock_receive(&worker, asked, asked + late + 80000, answer, sizeof answer));
        assert_int_equal(error_at(&worker, &coordinator, asked), i < 5 ? (30 * MST_MS - 80000) / 2 : 20000);
    }
    assert_true(mst_job_clock_known(&worker));
    assert_true(llabs(mst_job_clock_wall_offset(&worker) - AHEAD) < 3600 * (int64_t)MST_S);
    assert_int_equal(mst_job_clock_began(&worker), mst_job_clock_began(&coordinator) + (uint64_t)AHEAD);
    clocks_fini(&coordinator, &worker);
}

/* Corrections are spread: what was converted before stays, time never falls, and the error shrinks. */
static void test_corrections_are_spread(void **state)
{
    mst_job_clock coordinator, worker;
    uint8_t answer[MST_CLOCK_ANSWER];
    uint64_t asked, before, last;
    (void)state;
    clocks_init(&coordinator, &worker);
    for (unsigned i = 0; i < MST_CLOCK_ANSWERS; i++) { /* 80 ms, all of them on the way there */
        asked = mst_now_ns();
        other_host(&coordinator, asked, 80 * MST_MS, answer);
        assert_true(mst_job_clock_receive(&worker, asked, asked + 80 * MST_MS, answer, sizeof answer));
    }
    asked = mst_now_ns();
    before = mst_job_clock_at(&worker, asked);
    assert_int_equal(error_at(&worker, &coordinator, asked), 40 * MST_MS);
    other_host(&coordinator, asked, 0, answer); /* received late, which does not matter: the request counts */
    assert_true(mst_job_clock_receive(&worker, asked, asked + 5 * MST_MS, answer, sizeof answer));
    assert_int_equal(mst_job_clock_at(&worker, asked), before);
    last = before;
    for (uint64_t at = asked; at < asked + 20 * MST_S; at += 10 * MST_MS + 7) {
        uint64_t now = mst_job_clock_at(&worker, at);
        assert_true(now >= last);
        assert_true(now - last <= 11 * MST_MS);
        last = now;
    }
    assert_int_equal(error_at(&worker, &coordinator, mst_now_ns() + 20 * MST_S), 0);
    /* a worse answer changes nothing, until the better one is old: the clocks may have drifted */
    other_host(&coordinator, asked, 3 * MST_MS, answer);
    assert_true(mst_job_clock_receive(&worker, asked, asked + 3 * MST_MS, answer, sizeof answer));
    assert_int_equal(error_at(&worker, &coordinator, mst_now_ns() + 20 * MST_S), 0);
    asked += 3600 * MST_S;
    other_host(&coordinator, asked, 3 * MST_MS, answer);
    assert_true(mst_job_clock_receive(&worker, asked, asked + 3 * MST_MS, answer, sizeof answer));
    assert_int_equal(error_at(&worker, &coordinator, mst_now_ns() + 20 * MST_S), 3 * MST_MS / 2);
    clocks_fini(&coordinator, &worker);
}

/* More corrections than are remembered keep the order. */
static void test_a_long_history(void **state)
{
    mst_job_clock coordinator, worker;
    uint8_t answer[MST_CLOCK_ANSWER];
    uint64_t last = 0;
    (void)state;
    clocks_init(&coordinator, &worker);
    for (unsigned i = 0; i < 3 * MST_CLOCK_TURNS; i++) {
        uint64_t asked = mst_now_ns();
        other_host(&coordinator, asked, (i % 2) * 30 * MST_MS, answer); /* contradicts the one before */
        assert_true(mst_job_clock_receive(&worker, asked, asked, answer, sizeof answer));
        uint64_t now = mst_job_clock_at(&worker, mst_now_ns());
        assert_true(now >= last || i < MST_CLOCK_ANSWERS);
        last = now;
    }
    assert_int_equal(worker.n_turns, MST_CLOCK_TURNS);
    clocks_fini(&coordinator, &worker);
}

static void test_answers_that_are_refused(void **state)
{
    mst_job_clock coordinator, worker;
    uint8_t answer[MST_CLOCK_ANSWER];
    (void)state;
    clocks_init(&coordinator, &worker);
    uint64_t now = mst_now_ns();
    mst_job_clock_answer(&coordinator, answer);
    assert_false(mst_job_clock_receive(&worker, now, now + 1, answer, sizeof answer - 1));
    assert_false(mst_job_clock_receive(&worker, now + 1, now, answer, sizeof answer));
    memset(answer, 0xff, 8);
    answer[7] = 0x7f;
    assert_false(mst_job_clock_receive(&worker, now, now + 1, answer, sizeof answer));
    mst_job_clock_answer(&coordinator, answer);
    memset(answer + 16, 0xff, 8); /* a job that begins in the future */
    assert_false(mst_job_clock_receive(&worker, now, now + 1, answer, sizeof answer));
    assert_false(mst_job_clock_known(&worker));
    mst_job_clock_answer(NULL, answer); /* the coordinator is not observed */
    assert_true(mst_job_clock_receive(&worker, now, mst_now_ns(), answer, sizeof answer));
    clocks_fini(&coordinator, &worker);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_host_has_one_clock), cmocka_unit_test(test_the_same_id_is_not_enough),
        cmocka_unit_test(test_the_fastest_ways_count), cmocka_unit_test(test_corrections_are_spread),
        cmocka_unit_test(test_a_long_history),         cmocka_unit_test(test_answers_that_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
