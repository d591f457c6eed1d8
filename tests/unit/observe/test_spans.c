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

/* The trace of one lane, after it was drained, as an array of events. */
static json_t *events_of(mst_trace_ring *ring)
{
    mst_bytes out = {0};
    uint64_t dropped;
    mst_job_clock clock;
    mst_trace_identity who = {.process = "worker-1", .pid = 2, .tid = 0, .clock = &clock};
    mst_job_clock_init(&clock, true);
    mst_trace_begin(&out, &who);
    mst_trace_drain(ring, &who, &out, &dropped);
    mst_trace_end(&out, &who, dropped);
    json_t *root = json_loadb((const char *)out.data, out.n, 0, NULL);
    mst_bytes_fini(&out);
    mst_job_clock_fini(&clock);
    return root;
}

static double number_of(const json_t *root, size_t i, const char *key)
{
    const json_t *event = json_array_get(root, i), *args = json_object_get(event, "args");
    const json_t *value = json_object_get(event, key);
    return json_number_value(value != NULL ? value : json_object_get(args, key));
}

static void expect_event(const json_t *root, size_t i, const char *kind, const char *name)
{
    const json_t *event = json_array_get(root, i);
    assert_string_equal(json_string_value(json_object_get(event, "cat")), kind);
    assert_string_equal(json_string_value(json_object_get(event, "name")), name);
}

/* Ops have shapes and follow one another, lie within their phase, and steps are counted. */
static void test_ops_of_a_step(void **state)
{
    mst_spans *spans = NULL;
    mst_trace_ring *rings[2] = {NULL, NULL};
    mst_trace_chain chain = {0};
    (void)state;
    assert_int_equal(mst_trace_op("none", mst_trace_now(), mst_trace_floats(1, 0)), 0); /* not observed */
    assert_int_equal(mst_spans_new(&spans), MST_OK);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(mst_trace_ring_new(3, 9, &rings[i]), MST_OK);
        mst_spans_lane(spans, i)->trace = rings[i];
    }
    mst_spans_attach(spans, 0, MST_PHASE_IDLE);
    mst_trace_beside(spans, 1, "parse", mst_now_ns(), mst_trace_array(8, 100, 0)); /* step 0: left out */
    mst_span_step(3);
    mst_span_enter(MST_PHASE_PREPARE); /* idle time counts from the first step on */
    uint64_t early = mst_trace_now();
    mst_span_enter(MST_PHASE_COMPUTE);
    uint64_t at = mst_trace_op("dot", early, mst_trace_floats(10, 4)); /* begun in the phase before */
    at = mst_trace_op("loss", at, (mst_trace_output){.bytes = 7});
    mst_trace_next(&chain, "receive", (mst_trace_output){0});
    mst_trace_next(&chain, "decode", (mst_trace_output){.bytes = 5});
    mst_trace_next(&chain, NULL, (mst_trace_output){.bytes = 6});
    mst_trace_next(&chain, NULL, (mst_trace_output){0}); /* no op is under way */
    mst_trace_beside(spans, 1, "parse", mst_now_ns(), mst_trace_array(8, 100, 0));
    mst_span_steps(1, 10);
    mst_spans_detach();

    json_t *root = events_of(rings[0]);
    assert_int_equal(json_array_size(root), 1 + 8 + 1);
    expect_event(root, 1, "phase", "idle");
    expect_event(root, 2, "phase", "prepare");
    expect_event(root, 3, "op", "dot");
    expect_event(root, 4, "op", "loss");
    expect_event(root, 5, "op", "receive");
    expect_event(root, 6, "op", "decode");
    expect_event(root, 7, "steps", "steps");
    expect_event(root, 8, "phase", "compute");
    assert_true(number_of(root, 3, "bytes") == 160);
    const json_t *args = json_object_get(json_array_get(root, 3), "args"),
                 *shape = json_object_get(args, "shape");
    assert_int_equal(json_array_size(shape), 2);
    assert_int_equal(json_integer_value(json_array_get(shape, 0)), 10);
    assert_int_equal(json_integer_value(json_array_get(shape, 1)), 4);
    assert_null(json_object_get(json_object_get(json_array_get(root, 4), "args"), "shape"));
    assert_true(number_of(root, 5, "bytes") == 5 && number_of(root, 6, "bytes") == 6);
    assert_true(number_of(root, 7, "steps") == 1 && number_of(root, 7, "rows") == 10);
    assert_true(number_of(root, 7, "step") == 3);
    assert_true(number_of(root, 3, "ts") >= number_of(root, 8, "ts")); /* within its phase */
    json_decref(root);

    root = events_of(rings[1]);
    assert_int_equal(json_array_size(root), 3);
    expect_event(root, 1, "op", "parse");
    assert_true(number_of(root, 1, "step") == 3 && number_of(root, 1, "bytes") == 800);
    json_decref(root);
    mst_trace_ring_destroy(rings[0]);
    mst_trace_ring_destroy(rings[1]);
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
    mst_trace_op("conv\"1\\ with a name that is far too long", from, mst_trace_floats(2, 8));
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
        mst_trace_put(ring, MST_TRACE_OP, "op", 1, 1, 2, (mst_trace_output){0});
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
        cmocka_unit_test(test_phases_add_up),           cmocka_unit_test(test_evaluation_is_apart),
        cmocka_unit_test(test_a_reader_beside_writers), cmocka_unit_test(test_traces_are_json),
        cmocka_unit_test(test_ops_of_a_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
