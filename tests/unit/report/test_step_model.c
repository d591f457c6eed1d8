/* The model of a step on cases whose result is known: sums, one customer, saturated stations. */
#include "report/step_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Training only, of one row per step. */
static mst_step_model model_of(bool lockstep, double workers)
{
    return (mst_step_model){.lockstep = lockstep,
                            .workers = workers,
                            .rows = 1,
                            .in_flight = 1,
                            .training = 1,
                            .base_workers = workers};
}

/* One customer never queues; a saturated station gives 1 / demand. */
static void test_throughput(void **state)
{
    (void)state;
    double demand[] = {0.2, 0.1};
    assert_float_equal(mst_step_model_throughput(1, 0.7, demand, 2), 1.0, 1e-12);
    assert_float_equal(mst_step_model_throughput(1000, 0.7, demand, 2), 5.0, 1e-3);
    double one[] = {1};
    assert_float_equal(mst_step_model_throughput(2, 0, one, 1), 1.0, 1e-12);
    double balanced[] = {1, 1}; /* N / (N + 1) for two equal stations */
    assert_float_equal(mst_step_model_throughput(3, 0, balanced, 2), 0.75, 1e-12);
}

static void test_lockstep(void **state)
{
    (void)state;
    mst_step_model m = model_of(true, 3);
    m.own = 1, m.input = 2, m.disk = 3, m.straggle = 4, m.trips = 5, m.server = 6;
    m.server_link = 7, m.worker_link = 8;
    m.rows = 12;
    assert_float_equal(mst_step_model_rate(&m), 3 * 12 / 36.0, 1e-12);
    m.server_use = m.link_use = 100; /* of the queues only */
    assert_float_equal(mst_step_model_rate(&m), 1, 1e-12);
}

static void test_queues(void **state)
{
    (void)state;
    mst_step_model m = model_of(false, 1);
    m.own = 1, m.trips = 0.5, m.worker_link = 0.5, m.server_use = 1, m.link_use = 1;
    m.server = m.server_link = m.straggle = 100; /* of lockstep only */
    assert_float_equal(mst_step_model_rate(&m), 1 / 4.0, 1e-12);
    m.in_flight = 1000; /* round trips and transfers overlap; own work is sequential */
    m.server_use = 0.1, m.link_use = 0.1;
    assert_float_equal(mst_step_model_rate(&m), 1, 1e-2);
    m.in_flight = 1;
    m.workers = m.base_workers = 100000; /* the slower station limits all of them */
    m.link_use = 0.25;
    assert_float_equal(mst_step_model_rate(&m), 4, 1e-2);
}

/* Evaluation and saving take the same time for the same rows, however fast the training is. */
static void test_evaluation(void **state)
{
    (void)state;
    mst_step_model m = model_of(true, 1);
    m.own = 1, m.training = 0.5, m.evaluation = 0.3, m.saving = 0.2;
    assert_float_equal(mst_step_model_rate(&m), 1, 1e-12);
    m.own = 0.5;
    assert_float_equal(mst_step_model_rate(&m), 1 / 0.75, 1e-12);
    m.workers = 2; /* twice the rows of those base_workers in a step */
    assert_float_equal(mst_step_model_rate(&m), 1 / (0.125 + 0.5), 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_throughput),
        cmocka_unit_test(test_lockstep),
        cmocka_unit_test(test_queues),
        cmocka_unit_test(test_evaluation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
