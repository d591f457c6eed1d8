/* Histograms of a worker's gradients: one for each evaluation, and none twice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "observe/observe.h"
#include "ps/worker_histograms.h"

/* Histograms written since the last call. */
static unsigned written(mst_observe *observe)
{
    mst_record record;
    unsigned n = 0;
    while (mst_observe_take(observe, &record)) {
        const char *at = record.data, *end = at + record.n;
        while (record.kind == MST_RECORD_EVENTS &&
               (at = memmem(at, (size_t)(end - at), "gradients/bias", 14)) != NULL) {
            n++;
            at++;
        }
        mst_free((void *)record.data);
    }
    return n;
}

static void test_no_step_comes_twice(void **state)
{
    static const float g[] = {1.0f, -2.0f};
    static mst_worker_gradient gradient;
    mst_worker_histograms histograms = {.gradient = &gradient};
    mst_params params = {.n_views = 1, .size = 2};
    mst_observe_options options = {.process = "worker-0", .role = "worker", .n_threads = 1, .events = true};
    (void)state;
    params.views[0] = (mst_view){.name = "bias", .size = 2, .n_dims = 1, .dims = {2}};
    mst_worker_job job = {.params = &params, .observe = mst_observe_new(&options)};
    gradient.job = &job;
    gradient.layout = (mst_grad){.n_ranges = 1, .ranges = {{.size = 2}}};
    histograms.due = true;
    mst_worker_histograms_write(&histograms);
    assert_int_equal(written(job.observe), 0); /* nothing was computed yet */
    gradient.last = g;
    gradient.last_step = 7;
    mst_worker_histograms_write(&histograms);
    assert_int_equal(written(job.observe), 1);
    mst_worker_histograms_write(&histograms);
    assert_int_equal(written(job.observe), 0); /* there is no evaluation */
    histograms.due = true;
    mst_worker_histograms_write(&histograms);
    assert_int_equal(written(job.observe), 0); /* the worker had no rows since */
    gradient.last_step = 12;
    mst_worker_histograms_write(&histograms);
    assert_int_equal(written(job.observe), 1); /* for the evaluation that had none */
    mst_observe_destroy(job.observe);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_step_comes_twice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
