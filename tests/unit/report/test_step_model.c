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

static double queue_rate(double customers, double think, double a, double b)
{
    mst_queue_class c = {.customers = customers, .think = think, .demand = {a, b}};
    mst_queue_solve(&c, 1, 1);
    return c.rate;
}

/* One customer never queues; a saturated station gives 1 / demand. */
static void test_one_class(void **state)
{
    (void)state;
    assert_float_equal(queue_rate(1, 0.7, 0.2, 0.1), 1.0, 1e-9);
    assert_float_equal(queue_rate(1000, 0.7, 0.2, 0.1), 5.0, 1e-2);
    assert_float_equal(queue_rate(10000, 0.7, 0, 0), 10000 / 0.7, 1e-3);
    assert_float_equal(queue_rate(2, 0, 1, 0), 1.0, 1e-6);
    assert_float_equal(queue_rate(3, 0, 1, 1), 0.75, 1e-6); /* N / (N + 1) for two equal stations */
    assert_float_equal(queue_rate(2, 1, 1, 0), 0.8, 0.04);  /* the exact analysis gives 0.8 */
}

/* Classes that share no station do not disturb each other; at a saturated station they share its rate. */
static void test_two_classes(void **state)
{
    (void)state;
    mst_queue_class apart[] = {{.customers = 1, .think = 1, .demand = {1, 0}},
                               {.customers = 2, .think = 0, .demand = {0, 0.5}}};
    mst_queue_solve(apart, 2, 1);
    assert_float_equal(apart[0].rate, 0.5, 1e-9);
    assert_float_equal(apart[1].rate, 2, 1e-6);
    mst_queue_class shared[] = {{.customers = 50, .think = 1, .demand = {0.1}},
                                {.customers = 50, .think = 1, .demand = {0.1}}};
    mst_queue_solve(shared, 2, 1);
    assert_float_equal(shared[0].rate, shared[1].rate, 1e-6);
    assert_float_equal(shared[0].rate + shared[1].rate, 10, 0.1);
}

/* Answers that fit into a window leave one after the other, so that pushes overlap with them; others do not.
 */
static void test_link(void **state)
{
    (void)state;
    assert_float_equal(mst_step_link(2, 1, 1, 1e9), 3, 1e-9);
    assert_float_equal(mst_step_link(2, 1, 4, 1e12), 3, 1e-6);
    assert_float_equal(mst_step_link(2, 1, 4, 0), 2.25, 1e-9);
    assert_float_equal(mst_step_link(1, 2, 4, 0), 2.25, 1e-9);
}

/* With several cores a customer waits less than at one that is as fast as all of them; when they are full,
 * neither can do more. */
static void test_cores(void **state)
{
    (void)state;
    for (int n = 1; n <= 64; n *= 4) {
        double cores = n;
        mst_queue_class few = {
            .customers = 1.5 * cores, .think = 1, .demand = {[MST_STATION_CORES] = 1 / cores}};
        mst_queue_class many = few, alone = few;
        few.delay = alone.delay = 1;
        many.customers = 100 * cores;
        mst_queue_solve(&few, 1, cores);
        mst_queue_solve(&alone, 1, 1);
        assert_true(cores == 1 ? few.rate == alone.rate : few.rate > alone.rate);
        mst_queue_solve(&many, 1, cores);
        assert_float_equal(many.rate, cores, 0.03 * cores);
    }
}

static void test_lockstep(void **state)
{
    (void)state;
    mst_step_model m = model_of(true, 3);
    m.own = 1, m.input = 2, m.disk = 3, m.straggle = 4, m.trips = 5, m.server = 6;
    m.server_link = 7, m.worker_link = 8;
    m.rows = 12;
    assert_float_equal(mst_step_model_rate(&m), 3 * 12 / 36.0, 1e-12);
    m.server_use = m.link_use = m.cores_use = m.near = 100; /* of the queues only */
    assert_float_equal(mst_step_model_rate(&m), 1, 1e-12);
    m.overlap = 4;
    assert_float_equal(mst_step_model_rate(&m), 3 * 12 / 32.0, 1e-12);
    m.overlap = 100; /* of the waits (26), not of more */
    assert_float_equal(mst_step_model_rate(&m), 3 * 12 / 10.0, 1e-12);
    m.overlap = 0, m.cores = 91; /* with trips and straggle: 100 */
    assert_float_equal(mst_step_model_rate(&m), 3 * 12 / 100.0, 1e-12);
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

/* A worker beside the server has neither round trips nor transfers. */
static void test_near(void **state)
{
    (void)state;
    mst_step_model m = model_of(false, 2);
    m.own = 1, m.trips = 3, m.link_use = 1, m.near = 1;
    assert_float_equal(mst_step_model_rate(&m), 1 + 1 / 5.0, 1e-6);
    /* two shared cores: each step takes 1 of one core, so at most 2 steps per unit of time */
    m.workers = m.base_workers = 50, m.near = 50;
    m.cores_use = 0.5;
    assert_float_equal(mst_step_model_rate(&m), 2, 0.05);
    /* alone on them it waits for none */
    m.workers = m.base_workers = m.near = 1;
    assert_float_equal(mst_step_model_rate(&m), 1, 1e-6);
    m.server_use = 0.75, m.overlap = 0.5;
    assert_float_equal(mst_step_model_rate(&m), 1 / 1.25, 1e-6);
    m.overlap = 0.8;
    assert_float_equal(mst_step_model_rate(&m), 1, 1e-6);
    /* overlapped requests queue as well: the server limits all workers, in both classes */
    m = model_of(false, 100);
    m.own = 1.5, m.overlap = 1, m.server_use = 0.05;
    assert_float_equal(mst_step_model_rate(&m), 20, 0.2);
    m.near = 50;
    assert_float_equal(mst_step_model_rate(&m), 20, 0.2);
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
        cmocka_unit_test(test_one_class), cmocka_unit_test(test_two_classes), cmocka_unit_test(test_link),
        cmocka_unit_test(test_cores),     cmocka_unit_test(test_lockstep),    cmocka_unit_test(test_queues),
        cmocka_unit_test(test_near),      cmocka_unit_test(test_evaluation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
