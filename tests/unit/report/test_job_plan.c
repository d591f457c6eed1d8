/* Forecasts of jobs whose speed is known by construction, the growth of keys, the search, and the costs of a
 * run. */
#include "report/job_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "unit/report/run_fixture.h"
#include "unit/report/test_folder.h"

#define RATE (125e6 * 0.95) /* bytes/s of messages on a link of 1 Gbit/s */

static const mst_job_costs nothing = {.at = {{.rows = 100}},
                                      .n = 1,
                                      .servers = 1,
                                      .entries = NAN,
                                      .value_bytes = 4,
                                      .parameters = 1e6,
                                      .threads = 1,
                                      .cores = 2};
static const mst_job_shape job = {
    .mode = MST_PLAN_SYNC, .servers = 1, .workers = 4, .hosts = 0, .batch = 100, .cores = 8, .link = 125e6};

static mst_job_forecast forecast(const mst_job_costs *costs, const mst_job_shape *shape)
{
    mst_job_forecast f;
    mst_job_forecast_of(costs, shape, &f);
    assert_true(f.n_limits <= MST_PLAN_LIMITS);
    for (size_t i = 1; i < f.n_limits; i++)
        assert_true(f.limits[i - 1].rows_per_s <= f.limits[i].rows_per_s);
    for (size_t i = 0; i < f.n_limits; i++) /* the other limits are those of workers on other hosts */
        if (f.limits[i].kind == MST_BOTTLENECK_COMPUTE || f.limits[i].kind == MST_BOTTLENECK_CORES ||
            f.limits[i].kind == MST_BOTTLENECK_SERVER_CPU)
            assert_true(f.rows_per_s <= 1.001 * f.limits[i].rows_per_s);
    return f;
}

#define assert_near(value, expected, share)                                                                  \
    assert_float_equal((double)(value), (double)(expected), (double)(share)*fabs((double)(expected)))

/* The whole model travels: bytes over bandwidth. */
static void test_bandwidth(void **state)
{
    (void)state;
    mst_job_costs c = nothing;
    mst_job_shape s = job;
    c.at[0].push_bytes = c.at[0].pull_bytes = 4e6;
    s.workers = 2; /* one beside the server, one behind its link */
    mst_job_forecast f = forecast(&c, &s);
    assert_near(f.step_s, 8e6 / RATE, 1e-6);
    assert_near(f.rows_per_s, 200 / (8e6 / RATE), 1e-6);
    assert_int_equal(f.bottleneck, MST_BOTTLENECK_SERVER_NETWORK);
    assert_near(f.server_in, RATE / 2, 1e-6);
    s.workers = 5;
    assert_near(forecast(&c, &s).step_s, 4 * 8e6 / RATE, 0.05);
    /* 4/5 of each message of every host leave it; as a worker it sends while it receives as a server */
    s.servers = 5;
    assert_near(forecast(&c, &s).step_s, 8e6 * 4 / 5 / RATE, 0.1);
    s.servers = 1, s.hosts = 1; /* no link */
    assert_true(forecast(&c, &s).rows_per_s > 1e9);
    s.hosts = 0, s.mode = MST_PLAN_ASYNC; /* directions overlap; the link is shared by the four */
    c.at[0].own_s = 1;
    s.workers = 1000;
    f = forecast(&c, &s);
    assert_near(f.rows_per_s, 100 + 100 * RATE / 4e6, 0.02);
    assert_int_equal(f.bottleneck, MST_BOTTLENECK_SERVER_NETWORK);
}

/* Nothing but a round trip. */
static void test_latency(void **state)
{
    (void)state;
    mst_job_shape s = job;
    s.rtt_s = 2e-3;
    mst_job_forecast f = forecast(&nothing, &s);
    assert_near(f.step_s, 2e-3, 1e-6);
    assert_near(f.rows_per_s, 400 / 2e-3, 1e-6);
    assert_int_equal(f.bottleneck, MST_BOTTLENECK_LATENCY);
    s.mode = MST_PLAN_SSP; /* requests in flight hide it */
    s.pipeline = 3;
    mst_job_costs c = nothing;
    c.at[0].own_s = 1e-6;
    assert_near(forecast(&c, &s).rows_per_s, 4 * 400 / 2e-3, 0.01);
    s.hosts = 1;
    assert_near(forecast(&c, &s).rows_per_s, 400 / 1e-6, 0.01);
}

/* The server works 1 ms for each worker's step. */
static void test_server_cpu(void **state)
{
    (void)state;
    mst_job_costs c = nothing;
    mst_job_shape s = job;
    c.at[0].server_cpu_s = 1e-3;
    c.at[0].push_bytes = c.at[0].pull_bytes = 1;
    mst_job_forecast f = forecast(&c, &s);
    assert_near(f.step_s, 4e-3, 1e-3);
    assert_int_equal(f.bottleneck, MST_BOTTLENECK_SERVER_CPU);
    s.workers = s.servers = 4;
    assert_near(forecast(&c, &s).step_s, 1e-3, 0.1); /* with the requests to more servers */
    s.servers = 1, s.workers = 1000;
    s.mode = MST_PLAN_ASYNC;
    f = forecast(&c, &s);
    assert_near(f.rows_per_s, 1e5, 1e-2);
    assert_int_equal(f.bottleneck, MST_BOTTLENECK_SERVER_CPU);
}

/* Requests in flight keep both busy: the bottleneck is the first of the limits, though queues form at each.
 */
static void test_busiest(void **state)
{
    (void)state;
    mst_job_costs c = nothing;
    mst_job_shape s = job;
    s.mode = MST_PLAN_ASYNC;
    s.pipeline = 8;
    c.at[0].server_cpu_s = 1e-3;
    c.at[0].push_bytes = c.at[0].pull_bytes = 1;
    for (double own = 2e-3; own < 6e-3;
         own += 0.2e-3) { /* the server works about 4 ms for a step of all workers */
        c.at[0].own_s = own;
        mst_job_forecast f = forecast(&c, &s);
        assert_int_equal(f.bottleneck, f.limits[0].kind);
        if (own < 3e-3 || own > 5e-3)
            assert_int_equal(f.bottleneck, own < 3e-3 ? MST_BOTTLENECK_SERVER_CPU : MST_BOTTLENECK_COMPUTE);
    }
}

/* Own work alone: it is divided among workers, unless they share cores. */
static void test_cores(void **state)
{
    (void)state;
    mst_job_costs c = nothing;
    mst_job_shape s = job;
    c.at[0].own_s = c.at[0].worker_cpu_s = 10e-3;
    for (int mode = MST_PLAN_SYNC; mode <= MST_PLAN_ASYNC; mode++) {
        s = job;
        s.mode = mode;
        mst_job_forecast f = forecast(&c, &s);
        assert_near(f.rows_per_s, 4 * 100 / 10e-3, 1e-3);
        assert_int_equal(f.bottleneck, MST_BOTTLENECK_COMPUTE);
        s.shared_cores = 2;
        f = forecast(&c, &s);
        assert_near(f.rows_per_s, 2 * 100 / 11e-3, 0.15); /* 1.1 times as long in turns */
        assert_int_equal(f.bottleneck, MST_BOTTLENECK_COMPUTE);
        assert_int_equal(f.limits[0].kind, MST_BOTTLENECK_CORES);
        s.shared_cores = 0, s.hosts = 1, s.cores = 2;
        assert_near(forecast(&c, &s).rows_per_s, 2 * 100 / 11e-3, 1e-3);
    }
    /* half of the work is hidden by a round trip */
    s = job;
    c.at[0].overlap_s = 5e-3;
    s.rtt_s = 20e-3;
    assert_near(forecast(&c, &s).step_s, 25e-3, 1e-6);
}

/* The parts of costs that do not grow with the batch, and keys that grow less than rows. */
static void test_batch(void **state)
{
    (void)state;
    mst_job_costs c = nothing;
    mst_job_shape s = job;
    s.hosts = 1, s.workers = 1, s.batch = 300;
    c.n = 2, c.sparse = true;
    c.at[0] = (mst_step_cost){.rows = 100, .own_s = 2e-3, .push_bytes = 500, .pull_bytes = 400};
    c.at[1] = (mst_step_cost){.rows = 400, .own_s = 5e-3, .push_bytes = 1000, .pull_bytes = 800};
    mst_job_forecast f = forecast(&c, &s); /* bytes grow by the square root */
    assert_near(f.step_s, 4e-3, 1e-6);
    assert_near(f.pull_bytes, 800 * sqrt(3.0 / 4), 1e-6);
    s.batch = 1600;
    assert_near(forecast(&c, &s).push_bytes, 2000, 1e-6);
    s.batch = 1e9, c.parameters = 1e4; /* not more than the model */
    assert_near(forecast(&c, &s).pull_bytes, 4e4, 1e-6);
    assert_near(forecast(&c, &s).push_bytes, 5e4, 1e-6);
    c.n = 1, c.entries = 100; /* 10,000 entries have 100 different keys: the square root */
    s.batch = 400;
    assert_near(forecast(&c, &s).pull_bytes, 800, 1e-6);
    c.entries = NAN;
    assert_near(forecast(&c, &s).pull_bytes, 1600, 1e-6);
}

/* No forecast exceeds what cores and servers do, in any mode and for up to 10,000 workers. */
static void test_bounds(void **state)
{
    (void)state;
    mst_job_costs c = nothing;
    mst_job_shape s = job;
    c.at[0] = (mst_step_cost){.rows = 100,
                              .own_s = 1.5e-3,
                              .overlap_s = 1e-3,
                              .worker_cpu_s = 1.6e-3,
                              .server_cpu_s = 1e-3,
                              .push_bytes = 5e5,
                              .pull_bytes = 4e5};
    s.rtt_s = 1e-4;
    for (int k = 0; k < 3 * 2 * 3 * 3; k++) {
        s.mode = (mst_plan_mode)(k % 3);
        s.pipeline = k / 3 % 2 * 3;
        s.shared_cores = k / 6 % 3 * 64;
        for (s.workers = 1; s.workers <= 10000; s.workers *= 10)
            for (s.servers = 1; s.servers <= s.workers; s.servers *= 10) {
                s.hosts = k / 18 == 0 ? 0 : k / 18 == 1 ? s.workers : 1;
                mst_job_forecast f = forecast(&c, &s);
                assert_true(f.rows_per_s > 0 && f.n_limits > 0 && isfinite(f.step_s));
            }
    }
}

static void test_memory(void **state)
{
    (void)state;
    mst_job_costs c = nothing;
    mst_job_shape s = job;
    c.store_bytes = 12e6, c.server_base = 10e6, c.worker_base = 20e6;
    s.servers = 2, s.replicas = 1;
    mst_job_forecast f = forecast(&c, &s);
    assert_near(f.server_memory, 10e6 + 2 * 3 * 2e6, 1e-6);
    assert_near(f.worker_memory, 20e6 + 8e6, 1e-6);
}

static void test_best(void **state)
{
    (void)state;
    mst_job_costs c = nothing;
    mst_job_shape s = job;
    /* 10 ms of own work, 1 ms of the server: one server carries about ten workers */
    c.at[0] = (mst_step_cost){
        .rows = 100, .own_s = 10e-3, .server_cpu_s = 1e-3, .push_bytes = 10, .pull_bytes = 10};
    s.mode = MST_PLAN_ASYNC;
    mst_job_shape best = mst_job_best(&c, &s, 10000, false);
    assert_true(best.workers >= 1000 && best.workers <= 10000 && best.servers > 10);
    s.workers = 40;
    best = mst_job_best(&c, &s, 40, true);
    assert_true(best.workers == 40 && best.servers >= 4 && best.servers <= 32);
    mst_job_shape one = s;
    one.servers = 1;
    assert_true(forecast(&c, &best).rows_per_s > 2 * forecast(&c, &one).rows_per_s);
    s.hosts = 1, s.cores = 4; /* one host: no more than its cores do */
    best = mst_job_best(&c, &s, 10000, false);
    assert_true(best.servers == 1 && best.workers <= 16);
    c.at[0].server_cpu_s = 0, c.at[0].push_bytes = c.at[0].pull_bytes = 0;
    s = job;
    best = mst_job_best(&c, &s, 777, false); /* nothing limits it */
    assert_true(best.workers > 0.94 * 777 && best.workers <= 777 && best.servers == 1);
}

/* ---- costs of a run ---- */

static mst_status add_run(const fixture_run *r, mst_job_costs *c)
{
    mst_run_data *run = NULL;
    assert_int_equal(mst_remove_tree(folder), MST_OK);
    fixture_write(folder, r);
    assert_int_equal(mst_run_data_new(folder, &run), MST_OK);
    mst_status st = mst_job_costs_add(c, run);
    mst_run_data_destroy(run);
    return st;
}

static void test_costs(void **state)
{
    (void)state;
    mst_job_costs c = {0};
    fixture_run r = fixture_job("sync"), local = fixture_local();
    for (int i = 0; i < r.n; i++)
        r.processes[i].host = i == 0 ? "a" : "b", r.processes[i].delay = r.processes[i].cpu;
    assert_int_equal(add_run(&r, &c), MST_OK);
    /* 100 steps/s; own 0.92 of the time, half of which without a core; the server works 0.1 of a core */
    assert_int_equal(c.n, 1);
    assert_near(c.at[0].own_s, 9.2e-3 / 2, 0.05);
    assert_near(c.at[0].overlap_s, 1e-3 / 2, 0.05);
    assert_near(c.at[0].worker_cpu_s, 9.5e-3, 0.05);
    assert_near(c.at[0].server_cpu_s, 0.1 / 300, 0.05);
    assert_near(c.at[0].push_bytes, 2e4, 0.05);
    assert_true(c.sparse && c.servers == 1 && c.cores == 2);
    assert_near(c.parameters, 1000001, 1e-6);
    assert_near(c.store_bytes, 4e6, 1e-3); /* the manifest has none: weights only */
    assert_true(c.worker_base >= 8e6 && c.server_base >= 8e6);
    assert_int_equal(add_run(&r, &c), MST_EINPUT); /* the same batch */
    r.batch = 50;
    assert_int_equal(add_run(&r, &c), MST_OK); /* in order */
    assert_true(c.n == 2 && c.at[0].rows == 50 && c.at[1].rows == 100);
    r.batch = 20;
    assert_int_equal(add_run(&r, &c), MST_EINPUT); /* a third */
    c = (mst_job_costs){0};
    assert_int_equal(add_run(&local, &c), MST_EINPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bandwidth),
        cmocka_unit_test(test_latency),
        cmocka_unit_test(test_server_cpu),
        cmocka_unit_test(test_busiest),
        cmocka_unit_test(test_cores),
        cmocka_unit_test(test_batch),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_best),
        cmocka_unit_test_setup_teardown(test_costs, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
