/* Phases add up for every reader, and trace rings return their entries. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "observe/trace_file.h"

static void spin(uint64_t ns)
{
    for (uint64_t start = mst_now_ns(); mst_now_ns() - start < ns;)
        ;
}

static void test_phases_add_up(void **state)
{
    mst_spans *spans = NULL;
    mst_span_sums sums;
    uint64_t stale, start = mst_now_ns();
    (void)state;
    assert_int_equal(mst_span_enter(MST_PHASE_READ), MST_PHASE_READ); /* not observed */
    assert_int_equal(mst_spans_new(&spans), MST_OK);
    mst_spans_attach(spans, 3, MST_PHASE_PREPARE);
    spin(MST_MS);
    mst_phase before = mst_span_enter(MST_PHASE_READ);
    assert_int_equal(before, MST_PHASE_PREPARE);
    spin(2 * MST_MS);
    mst_span_enter(before);
    assert_int_equal(mst_span_keep(before), before);
    assert_int_equal(mst_span_keep(MST_PHASE_COMPUTE), before);
    mst_span_steps(2, 200);
    mst_span_bytes(10, 20);
    mst_span_stale(4);
    mst_span_stale(2);
    mst_span_dropped(7);
    spin(MST_MS);
    uint64_t now = mst_now_ns();
    mst_spans_sum(spans, now, &sums, &stale);
    assert_true(sums.ns[MST_PHASE_PREPARE] >= MST_MS);
    assert_true(sums.ns[MST_PHASE_READ] >= 2 * MST_MS);
    assert_true(sums.ns[MST_PHASE_COMPUTE] >= MST_MS); /* under way */
    uint64_t all = 0;
    for (unsigned p = 0; p < MST_PHASES; p++)
        all += sums.ns[p];
    assert_true(all <= now - start);
    assert_int_equal(sums.threads, 1);
    assert_int_equal(sums.steps, 2);
    assert_int_equal(sums.rows, 200);
    assert_int_equal(sums.bytes_out, 20);
    assert_int_equal(sums.stale_sum, 6);
    assert_int_equal(sums.stale_count, 2);
    assert_int_equal(sums.dropped_rows, 7);
    assert_int_equal(stale, 4);
    mst_spans_sum(spans, mst_now_ns(), &sums, &stale);
    assert_int_equal(stale, 0); /* since the last look */
    mst_spans_detach();
    assert_null(mst_this_lane);
    mst_spans_attach(spans, MST_LANE_MAX, MST_PHASE_READ); /* beyond the last lane: not observed */
    assert_null(mst_this_lane);
    mst_spans_attach(NULL, 0, MST_PHASE_READ);
    mst_spans_detach();
    mst_spans_destroy(spans);
}

/* Rows that an evaluation reads are no input of training, and a thread beside those that train is none of
 * them. */
static void test_evaluation_is_apart(void **state)
{
    mst_spans *spans = NULL;
    mst_span_sums sums;
    (void)state;
    assert_int_equal(mst_spans_new(&spans), MST_OK);
    mst_spans_attach(spans, 0, MST_PHASE_EVALUATE);
    mst_phase before = mst_span_enter(MST_PHASE_READ);
    assert_int_equal(before, MST_PHASE_EVALUATE);
    spin(2 * MST_MS);
    mst_span_enter(before);
    mst_span_enter(MST_PHASE_IDLE);
    uint64_t reading = mst_now_ns();
    before = mst_span_enter(MST_PHASE_READ);
    assert_int_equal(before, MST_PHASE_IDLE);
    mst_spans_detach();
    reading = mst_now_ns() - reading;
    mst_spans_attach_beside(spans, 1, MST_PHASE_EVALUATE);
    mst_spans_sum(spans, mst_now_ns(), &sums, NULL);
    assert_int_equal(sums.threads, 1);
    assert_true(sums.ns[MST_PHASE_EVALUATE] >= 2 * MST_MS);
    assert_true(sums.ns[MST_PHASE_READ] <= reading);
    mst_spans_leave();
    mst_spans_destroy(spans);
}

typedef struct busy {
    mst_spans *spans;
    unsigned index;
} busy;

static void *work(void *arg)
{
    const busy *b = arg;
    mst_spans_attach(b->spans, b->index, MST_PHASE_PREPARE);
    for (int i = 0; i < 20000; i++) {
        mst_span_enter(MST_PHASE_COMPUTE);
        mst_span_enter(MST_PHASE_BARRIER_WAIT);
        mst_span_steps(1, 10);
    }
    mst_spans_detach();
    return NULL;
}

static void test_a_reader_beside_writers(void **state)
{
    enum { N = 3 };
    mst_spans *spans = NULL;
    mst_span_sums sums, last = {0};
    pthread_t threads[N];
    busy b[N];
    (void)state;
    assert_int_equal(mst_spans_new(&spans), MST_OK);
    for (unsigned i = 0; i < N; i++) {
        b[i] = (busy){spans, i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &b[i]), 0);
    }
    for (int look = 0; look < 200; look++) {
        mst_spans_sum(spans, mst_now_ns(), &sums, NULL);
        for (unsigned p = 0; p < MST_PHASES; p++)
            assert_true(sums.ns[p] >= last.ns[p]);
        last = sums;
    }
    for (unsigned i = 0; i < N; i++)
        pthread_join(threads[i], NULL);
    mst_spans_sum(spans, mst_now_ns(), &sums, NULL);
    assert_int_equal(sums.threads, N);
    assert_int_equal(sums.steps, N * 20000);
    assert_int_equal(sums.rows, N * 200000);
    mst_spans_destroy(spans);
}

static void test_traces_are_json(void **state)
{
    mst_spans *spans = NULL;
    mst_trace_ring *ring = NULL;
    mst_bytes out = {0};
    uint64_t dropped;
    mst_job_clock clock;
    mst_trace_identity who = {.process = "worker-1", .pid = 2, .tid = 5, .clock = &clock};
    (void)state;
    mst_job_clock_init(&clock, true);
    assert_int_equal(mst_spans_new(&spans), MST_OK);
    assert_int_equal(mst_trace_ring_new(2, 3, &ring), MST_OK);
    mst_spans_lane(spans, 5)->trace = ring;
    assert_false(mst_tracing());
    mst_spans_attach(spans, 5, MST_PHASE_PREPARE);
    mst_span_step(1);
    mst_span_enter(MST_PHASE_COMPUTE);
    mst_span_step(2);
    uint64_t from = mst_trace_now();
    mst_trace_op("conv\"1\\ with a name that is far too long", from, 64);
    mst_trace_flow(MST_TRACE_FLOW_OUT, &(mst_trace_push){.step = 3, .worker = 1});
    mst_trace_flow(MST_TRACE_FLOW_OUT, &(mst_trace_push){.step = 4, .worker = 1}); /* left out */
    mst_trace_counter(MST_TRACE_FLIGHT, 77);
    mst_span_enter(MST_PHASE_PUSH);
    mst_spans_detach();
    mst_trace_begin(&out, &who);
    mst_trace_date(&out, &who);
    mst_trace_thread(&out, &who, "thread 5");
    assert_int_equal(mst_trace_drain(ring, &who, &out, &dropped), 5); /* step 1 is left out */
    assert_int_equal(dropped, 0);
    mst_trace_end(&out, &who, dropped);
    json_t *root = json_loadb((const char *)out.data, out.n, 0, NULL);
    assert_int_equal(json_array_size(root), 9);
    const json_t *date = json_object_get(json_array_get(root, 1), "args");
    assert_true(json_integer_value(json_object_get(date, "unix_us")) / 1000000 - time(NULL) < 3600);
    const json_t *op = json_array_get(root, 3);
    assert_string_equal(json_string_value(json_object_get(op, "ph")), "X");
    assert_string_equal(json_string_value(json_object_get(op, "name")), "conv\"1\\ with a name th");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(op, "args"), "bytes")), 64);
    assert_true(json_number_value(json_object_get(op, "ts")) < 3600e6); /* since the start of the job */
    assert_string_equal(json_string_value(json_object_get(json_array_get(root, 4), "ph")), "s");
    const json_t *counter = json_array_get(root, 5);
    assert_string_equal(json_string_value(json_object_get(counter, "ph")), "C");
    assert_string_equal(json_string_value(json_object_get(counter, "name")), "bytes in flight");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(counter, "args"), "value")), 77);
    assert_string_equal(json_string_value(json_object_get(json_array_get(root, 6), "name")), "compute");
    json_decref(root);
    for (int i = 0; i < 20000; i++) /* more than there is room for */
        mst_trace_put(ring, MST_TRACE_OP, "op", 1, 1, 2, 0);
    out.n = 0;
    assert_true(mst_trace_drain(ring, &who, &out, &dropped) + dropped == 20000);
    assert_true(dropped > 0);
    mst_bytes_fini(&out);
    mst_trace_ring_destroy(ring);
    mst_job_clock_fini(&clock);
    mst_spans_destroy(spans);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_phases_add_up),
        cmocka_unit_test(test_evaluation_is_apart),
        cmocka_unit_test(test_a_reader_beside_writers),
        cmocka_unit_test(test_traces_are_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
