/* The files of an observer: written by its thread, or taken and written by another process; marks; a full
 * disk. */
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "observe/mark_file.h"
#include "observe/observe_impl.h"
#include "observe/trace_file.h"

static char folder[] = "/tmp/muster-test-XXXXXX";
static unsigned n_warnings;
static char warning[512];

static void keep_warning(void *arg, mst_log_level level, const char *line)
{
    (void)arg;
    (void)level;
    n_warnings++;
    snprintf(warning, sizeof warning, "%s", line);
}

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/muster-test-XXXXXX");
    n_warnings = 0;
    mst_log_set(keep_warning, NULL, MST_LOG_WARN);
    return mkdtemp(folder) == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    return mst_remove_tree(folder) != MST_OK;
}

/* The text of RUN/path; the caller frees. */
static char *text_of(const char *path)
{
    char whole[512], *text = NULL;
    size_t size;
    snprintf(whole, sizeof whole, "%s/%s", folder, path);
    assert_int_equal(mst_file_read_all(whole, 1 << 24, &text, &size), MST_OK);
    return text;
}

static unsigned lines_of(const char *path)
{
    unsigned n = 0;
    char *text = text_of(path);
    for (const char *p = text; *p != 0; p++)
        n += *p == '\n';
    mst_free(text);
    return n;
}

static unsigned event_files(const char *process)
{
    char path[512];
    unsigned n = 0;
    struct dirent *found;
    snprintf(path, sizeof path, "%s/processes/%s", folder, process);
    DIR *dir = opendir(path);
    while (dir != NULL && (found = readdir(dir)) != NULL)
        n += strstr(found->d_name, "tfevents") != NULL;
    if (dir != NULL)
        closedir(dir);
    return n;
}

static mst_observe_options options_of(const char *process)
{
    return (mst_observe_options){.process = process,
                                 .role = "worker",
                                 .index = 2,
                                 .n_threads = 1,
                                 .every_s = 0.02,
                                 .events = true,
                                 .trace_to = UINT64_MAX};
}

static void train_a_little(mst_observe *o)
{
    mst_spans_attach(mst_observe_spans(o), 0, MST_PHASE_PREPARE);
    for (int i = 1; i <= 5; i++) {
        mst_span_step((uint64_t)i);
        mst_span_enter(MST_PHASE_COMPUTE);
        mst_span_enter(MST_PHASE_APPLY);
        mst_span_steps(1, 100);
    }
    mst_observe_set_step(o, 10);
    mst_spans_detach();
}

static void test_files_of_a_process(void **state)
{
    (void)state;
    for (unsigned run = 1; run <= 2; run++) { /* the second resumes */
        mst_observe_options options = options_of("worker-2");
        const float weights[] = {1.0f, -2.0f};
        const mst_scalar scalar = {"loss", 0.5};
        options.trace = true;
        options.step = run == 2 ? 5 : 0;
        mst_observe *o = mst_observe_new(&options);
        assert_non_null(o);
        train_a_little(o);
        mst_observe_scalars(o, MST_RECORD_EVALUATIONS, 5, &scalar, 1);
        mst_observe_histogram(o, 5, "weights/w", weights, 2);
        json_t *config = json_pack("{s:{s:f}}", "training", "lr", 0.1);
        mst_observe_config(o, NULL, config, json_object_get(config, "training"));
        json_decref(config);
        mst_observe_file_in(o, folder);
        json_t *phases = mst_observe_phases(o);
        assert_true(json_number_value(json_object_get(phases, "compute")) > 0.0);
        json_decref(phases);
        mst_observe_end(o);
        mst_observe_scalars(o, MST_RECORD_EVENTS, 6, &scalar, 1); /* too late: nothing happens */
        mst_observe_destroy(o);
        assert_int_equal(event_files("worker-2"), run);
        assert_int_equal(event_files("evaluator"), run);
    }
    char *text = text_of("processes/worker-2/process.json");
    json_t *who = json_loads(text, 0, NULL);
    assert_string_equal(json_string_value(json_object_get(who, "process")), "worker-2");
    assert_int_equal(json_integer_value(json_object_get(who, "pid")), getpid());
    json_decref(who);
    mst_free(text);
    text = text_of("processes/worker-2/trace.json");
    json_t *trace = json_loads(text, 0, NULL); /* of the second run alone */
    assert_true(json_is_array(trace) && json_array_size(trace) >= 11);
    json_decref(trace);
    mst_free(text);
    text = text_of("processes/worker-2/spans.csv");
    assert_memory_equal(text, "time,interval_s,threads,steps,rows,read_s,prepare_s,compute_s,", 60);
    assert_null(strstr(text + 1, "time,")); /* one header, though two runs wrote */
    mst_free(text);
    assert_true(lines_of("processes/worker-2/spans.csv") >= 3);
    assert_true(lines_of("processes/worker-2/resources.csv") >= 3);
    assert_int_equal(n_warnings, 0);
}

/* An answer of a coordinator on another host, whose wall clock is so much ahead. */
static void receive_clock(mst_observe *o, double ahead_s)
{
    uint8_t answer[MST_CLOCK_ANSWER];
    uint64_t asked = mst_now_ns(), wall;
    mst_observe_clock_answer(NULL, answer);
    memset(answer + 32, 7, MST_CLOCK_ANSWER - 32); /* the host */
    memcpy(&wall, answer + 8, sizeof wall);
    wall += (uint64_t)(ahead_s * 1e9);
    memcpy(answer + 8, &wall, sizeof wall);
    assert_true(mst_observe_clock_receive(o, asked, answer, sizeof answer)); /* and asks for more */
}

static bool clock_is_near(const char *file, double ahead_s)
{
    char *text = text_of(file);
    json_t *who = json_loads(text, 0, NULL);
    double got = json_number_value(json_object_get(who, "clock_offset_s"));
    json_decref(who);
    mst_free(text);
    return got > ahead_s - 0.5 && got < ahead_s + 0.5;
}

static void test_records_travel(void **state)
{
    mst_observe_options options = options_of("server-1");
    mst_record record, got;
    unsigned kinds = 0, n = 0;
    (void)state;
    mst_observe *o = mst_observe_new(&options);
    train_a_little(o);
    receive_clock(o, 2.5);
    mst_observe_end(o);
    while (mst_observe_take(o, &record)) {
        uint8_t *body = mst_alloc(MST_RECORD_HEAD + record.n);
        mst_record_encode(&record, body);
        memcpy(body + MST_RECORD_HEAD, record.data, record.n);
        assert_int_equal(mst_record_decode(body, MST_RECORD_HEAD + record.n, &got), MST_OK);
        assert_int_equal(got.kind, record.kind);
        assert_int_equal(got.begins, record.begins);
        assert_int_equal(got.stamp, record.stamp);
        assert_string_equal(got.process, "server-1");
        assert_int_equal(mst_record_file(folder, &got), MST_OK);
        assert_int_equal(mst_record_decode(body, MST_RECORD_HEAD + record.n - 1, &got), MST_EINPUT);
        mst_free(body);
        mst_free((void *)record.data);
        kinds |= 1u << record.kind;
        n++;
    }
    assert_true(n >= 4);
    assert_int_equal(kinds, 1u << MST_RECORD_PROCESS | 1u << MST_RECORD_RESOURCES | 1u << MST_RECORD_SPANS |
                                1u << MST_RECORD_EVENTS);
    assert_true(clock_is_near("processes/server-1/process.json", 2.5));
    mst_observe_destroy(o);
}

static void test_records_that_are_refused(void **state)
{
    uint8_t body[MST_RECORD_HEAD + 3];
    mst_record r = {.kind = MST_RECORD_SPANS, .process = "worker-1", .n = 3}, got;
    (void)state;
    mst_record_encode(&r, body);
    assert_int_equal(mst_record_decode(body, sizeof body, &got), MST_OK);
    assert_int_equal(mst_record_decode(body, 10, &got), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "are shorter than its head"));
    body[0] = 200;
    assert_int_equal(mst_record_decode(body, sizeof body, &got), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "unknown kind"));
    static const char *const names[] = {"", "../x", "a/b", "a.b", "Worker", "a b"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(r.process, sizeof r.process, "%s", names[i]);
        mst_record_encode(&r, body);
        assert_int_equal(mst_record_decode(body, sizeof body, &got), MST_EINPUT);
        assert_non_null(strstr(mst_error_text(), "invalid name of its process"));
    }
    memset(body + 16, 'a', MST_PROCESS_NAME); /* not terminated */
    assert_int_equal(mst_record_decode(body, sizeof body, &got), MST_EINPUT);
}

static void test_a_torn_line_is_ended(void **state)
{
    mst_record r = {.kind = MST_RECORD_SPANS, .begins = true, .process = "local", .data = "a,b\n1,2", .n = 7};
    (void)state;
    assert_int_equal(mst_record_file(folder, &r), MST_OK);
    r.data = "a,b\n3,4\n";
    r.n = 8;
    assert_int_equal(mst_record_file(folder, &r), MST_OK);
    r.data = "a,b,c\n3,4,5\n"; /* other columns: a header of its own */
    r.n = 12;
    assert_int_equal(mst_record_file(folder, &r), MST_OK);
    char *text = text_of("processes/local/spans.csv");
    assert_string_equal(text, "a,b\n1,2\n3,4\na,b,c\n3,4,5\n");
    mst_free(text);
}

static void test_a_disk_that_refuses(void **state)
{
    mst_observe_options options = options_of("local");
    const mst_scalar scalar = {"loss", 0.5};
    char path[64];
    (void)state;
    snprintf(path, sizeof path, "%s/processes", folder);
    FILE *file = fopen(path, "w"); /* where a folder should be */
    fclose(file);
    mst_observe *o = mst_observe_new(&options);
    mst_observe_file_in(o, folder);
    train_a_little(o);
    for (int i = 0; i < 100; i++)
        mst_observe_scalars(o, MST_RECORD_EVENTS, 1, &scalar, 1);
    mst_observe_destroy(o);
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(warning, "resources, phases and traces are not recorded any more"));
}

static void test_pending_records_are_bounded(void **state)
{
    mst_observe_options options = options_of("worker-0");
    static float weights[4096];
    mst_record record;
    size_t total = 0;
    (void)state;
    options.every_s = 0.0;
    for (int i = 0; i < 4096; i++) /* many buckets */
        weights[i] = (float)(i % 2 ? 1 : -1) * (float)(1u << i % 30) * (1.0f + (float)(i % 4) / 4.0f);
    mst_observe *o = mst_observe_new(&options);
    for (int i = 0; i < 8000; i++)
        mst_observe_histogram(o, 1, "w", weights, 4096);
    mst_observe_end(o);
    while (mst_observe_take(o, &record)) {
        assert_true(record.n <= MST_RECORD_MAX);
        total += record.n;
        mst_free((void *)record.data);
    }
    assert_true(total > 1 << 20 && total < 9 << 20);
    assert_int_equal(n_warnings, 1);
    assert_string_equal(
        warning,
        "events.out.tfevents of worker-0 has gaps: data arrived faster than it could be sent or written");
    mst_observe_destroy(o);
}

static size_t pending_trace(mst_observe *o)
{
    pthread_mutex_lock(&o->mutex);
    size_t n = o->files[MST_RECORD_TRACE].pending.n;
    pthread_mutex_unlock(&o->mutex);
    return n;
}

static bool trace_waits(mst_observe *o)
{
    pthread_mutex_lock(&o->mutex);
    bool waits = o->trace_waited;
    pthread_mutex_unlock(&o->mutex);
    return waits;
}

/* Entries that are not taken for a while stay in the rings; further ones are dropped, but not the end of the
 * file. */
static void test_a_trace_that_is_not_taken(void **state)
{
    mst_observe_options options = options_of("worker-0");
    (void)state;
    options.every_s = 0.0;
    options.trace = true;
    options.trace_to = UINT64_MAX;
    for (unsigned never = 0; never < 2; never++) {
        mst_record record;
        uint8_t answer[MST_CLOCK_ANSWER];
        uint64_t asked = mst_now_ns(), deadline = asked + 30 * MST_S;
        mst_observe *o = mst_observe_new(&options);
        mst_observe_clock_answer(NULL, answer); /* until then nothing has a time */
        assert_false(mst_observe_clock_receive(o, asked, answer, sizeof answer));
        mst_spans_attach(mst_observe_spans(o), 0, MST_PHASE_IDLE);
        for (size_t n = 0, before = 0; n < 8 << 20; before = n) {
            for (int i = 0; i < 7000; i++) /* the ring has room for them */
                mst_span_enter(i % 2 ? MST_PHASE_IDLE : MST_PHASE_COMPUTE);
            while ((n = pending_trace(o)) == before) {
                assert_true(mst_now_ns() < deadline);
                usleep(1000);
            }
        }
        while (never && !trace_waits(o)) {
            assert_true(mst_now_ns() < deadline);
            usleep(1000);
        }
        for (int i = 0; never && i < 50000; i++) /* more than the ring has room for */
            mst_span_enter(i % 2 ? MST_PHASE_IDLE : MST_PHASE_COMPUTE);
        mst_spans_detach();
        while (!never && mst_observe_take(o, &record))
            mst_free((void *)record.data);
        mst_observe_end(o);
        assert_int_equal(n_warnings, never);
        bool ends = false;
        while (mst_observe_take(o, &record)) {
            if (record.kind == MST_RECORD_TRACE)
                ends = record.n > 2 && memcmp((const char *)record.data + record.n - 2, "]\n", 2) == 0;
            mst_free((void *)record.data);
        }
        assert_true(ends);
        mst_observe_destroy(o);
    }
    assert_string_equal(warning,
                        "trace.json of worker-0 has gaps: data arrived faster than it could be sent or "
                        "written; --trace-steps traces fewer steps");
}

static void test_nothing_is_fine(void **state)
{
    mst_observe_options options = options_of("not/a/name");
    mst_record record;
    mst_span_sums sums;
    (void)state;
    assert_null(mst_observe_new(&options));
    assert_int_equal(n_warnings, 1);
    mst_alloc_fail_at(1);
    options.process = "local";
    assert_null(mst_observe_new(&options));
    mst_alloc_fail_at(0);
    assert_int_equal(n_warnings, 2);
    mst_observe_set_step(NULL, 1);
    mst_observe_scalars(NULL, MST_RECORD_EVENTS, 1, NULL, 0);
    mst_observe_config(NULL, NULL, NULL, NULL);
    mst_observe_file_in(NULL, folder);
    assert_false(mst_observe_take(NULL, &record));
    mst_observe_totals(NULL, &sums);
    assert_null(mst_observe_phases(NULL));
    assert_false(mst_observe_clock_receive(NULL, 0, NULL, 0));
    mst_observe_run_ends(NULL, false);
    mst_observe_destroy(NULL);
}

static void test_marks(void **state)
{
    (void)state;
    mst_mark_write(folder, "", "start", NULL);
    mst_mark_write(folder, "worker-1", "death", "it said \"no\", and\nwent");
    char *text = text_of("marks.csv");
    assert_memory_equal(text, "time,process,kind,text\n", 23);
    assert_non_null(strstr(text, ",,start,\n"));
    assert_non_null(strstr(text, ",worker-1,death,\"it said \"\"no\"\", and went\"\n"));
    mst_free(text);
    mst_mark_write("/nonexistent", "", "end", NULL);
    mst_mark_write("/nonexistent", "", "end", NULL);
    assert_int_equal(n_warnings, 1);
}

/* Lines of RUN/path so far; 0: it is not there yet. */
static unsigned access_of(const char *path)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s/%s", folder, path);
    return mst_path_exists(whole) ? lines_of(path) : 0;
}

/* Speeds that were measured reach process.json; a cut ends a line. */
static void test_links_and_cuts(void **state)
{
    (void)state;
    mst_observe_options o = {.process = "server-0", .role = "server", .n_threads = 1, .every_s = 3600};
    mst_observe *self = mst_observe_new(&o);
    assert_non_null(self);
    mst_observe_file_in(self, folder);
    mst_observe_link(self, "", 1e9);
    mst_observe_path(self, 2, 5e7, 0.25);
    mst_observe_path(self, 3, 0, 0);
    mst_observe_path(self, 1 << 20, 5e7, 0.25);
    mst_observe_traffic(self, "worker", 1, 100, 7);
    mst_observe_traffic(self, "worker", 1, 20, 0);
    mst_observe_traffic(self, "worker", 0, 0, 0);
    mst_observe_traffic(self, "server", 2, 3, 4);
    mst_observe_end_interval(self);
    for (unsigned i = 0; i < 1000 && access_of("processes/server-0/spans.csv") < 2; i++)
        usleep(10000);
    mst_observe_end(self);
    assert_int_equal(lines_of("processes/server-0/spans.csv"), 3); /* header, the cut's and the end's */
    char *text = text_of("processes/server-0/traffic.csv");
    assert_memory_equal(text, "time,process,bytes_in,bytes_out\n", 32);
    assert_non_null(strstr(text, ",server-2,3,4\n"));
    assert_non_null(strstr(text, ",worker-1,120,7\n"));
    assert_null(strstr(text, "worker-0")); /* no bytes, no line */
    mst_free(text);
    text = text_of("processes/server-0/process.json");
    assert_non_null(strstr(text, "\"to\": \"worker-2\""));
    assert_non_null(strstr(text, "50000000"));
    assert_non_null(strstr(text, "\"round_trip_s\": 0.25"));
    assert_null(strstr(text, "worker-3"));
    assert_non_null(strstr(text, "\"clock_offset_s\": 0.0,"));
    assert_null(strstr(text, "\"bits_per_s\": 1000000000,"));
    mst_free(text);
    mst_observe_destroy(self);
}

/* Of two samples at one step, only the first is a point of the curves. */
static void test_steps_of_curves_grow(void **state)
{
    mst_observe_options o = options_of("worker-1");
    mst_record record;
    unsigned points = 0, lines = 0;
    (void)state;
    o.every_s = 3600;
    o.step = 4;
    mst_observe *self = mst_observe_new(&o);
    mst_spans_attach(mst_observe_spans(self), 0, MST_PHASE_COMPUTE);
    for (uint64_t sample = 0; sample < 4; sample++) {
        size_t before, n;
        pthread_mutex_lock(&self->mutex);
        before = n = self->files[MST_RECORD_SPANS].pending.n;
        pthread_mutex_unlock(&self->mutex);
        mst_observe_set_step(self, 4 + sample / 2); /* 4: where the run was resumed */
        mst_span_steps(1, 10);
        mst_observe_end_interval(self);
        for (unsigned i = 0; i < 1000 && (n == before || before == 0); i++) {
            usleep(10000);
            pthread_mutex_lock(&self->mutex);
            n = self->files[MST_RECORD_SPANS].pending.n;
            before = before == 0 ? n : before; /* the header */
            pthread_mutex_unlock(&self->mutex);
        }
    }
    mst_spans_detach();
    mst_observe_end(self);
    while (mst_observe_take(self, &record)) {
        const char *text = (const char *)record.data, *end = text + record.n;
        for (const char *p = text;
             record.kind == MST_RECORD_EVENTS && (p = memmem(p, (size_t)(end - p), "rows_per_s", 10)) != NULL;
             p++)
            points++;
        for (const char *p = text;
             record.kind == MST_RECORD_SPANS && (p = memchr(p, '\n', (size_t)(end - p))) != NULL; p++)
            lines++;
        mst_free((void *)record.data);
    }
    assert_true(lines >= 3);
    assert_int_equal(points, 1);
    mst_observe_destroy(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_steps_of_curves_grow, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_files_of_a_process, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_records_travel, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_records_that_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_torn_line_is_ended, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_disk_that_refuses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_pending_records_are_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_links_and_cuts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_trace_that_is_not_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_nothing_is_fine, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_marks, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
