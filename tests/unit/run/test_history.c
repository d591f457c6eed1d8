/* The history in a manifest: pieces, changes, pieces that do not count, and manifests without history. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "run/history.h"

/* The manifest of a piece, before its history is added. */
static json_t *manifest(const char *started, int batch, const char *file, bool resume)
{
    json_t *m =
        json_pack("{s:s, s:s, s:s, s:[s], s:{s:{s:b, s:s}, s:{s:i, s:f}, s:{s:b}}}", "muster", "1", "host",
                  "h", "started", started, "files", file, "options", "training", "resume", resume, "run",
                  started, "strategy", "batch", batch, "lr", 0.5, "output", "quiet", resume);
    assert_non_null(m);
    return m;
}

/* The piece that resumes `before` (stolen) at that step; its manifest then says how it ended. */
static json_t *piece(json_t *before, uint64_t step, json_t *now, const char *state)
{
    mst_history_point at = {.step = step, .rows = 100 * step, .train_seconds = 0.5 * (double)step};
    assert_int_equal(mst_history_add(before, at, false, now), MST_OK);
    json_object_set_new(now, "state", json_string(state));
    json_decref(before);
    return now;
}

static const json_t *segment(const json_t *m, size_t i)
{
    return json_array_get(json_object_get(m, "history"), i);
}

static void expect_segment(const json_t *m, size_t i, const char *want)
{
    json_t *wanted = json_loads(want, 0, NULL);
    assert_non_null(wanted);
    if (!json_equal((json_t *)segment(m, i), wanted))
        fail_msg("segment %zu is %s", i, json_dumps(segment(m, i), 0));
    json_decref(wanted);
}

static void changes(void **state)
{
    (void)state;
    json_t *m = piece(NULL, 0, manifest("a", 100, "x", false), "done");
    assert_int_equal(json_array_size(json_object_get(m, "history")), 1);
    m = piece(m, 30, manifest("b", 1000, "x", true), "running");
    m = piece(m, 40, manifest("c", 1000, "y", true), "done");
    assert_int_equal(json_array_size(json_object_get(m, "history")), 3);
    expect_segment(m, 0,
                   "{\"step\": 0, \"rows\": 0, \"train_seconds\": 0.0, \"started\": \"a\", \"host\": \"h\", "
                   "\"muster\": \"1\", \"by\": \"train\", \"state\": \"done\"}");
    expect_segment(m, 1,
                   "{\"step\": 30, \"rows\": 3000, \"train_seconds\": 15.0, \"started\": \"b\", \"host\": "
                   "\"h\", \"muster\": \"1\", \"by\": \"train\", \"state\": \"running\", \"changed\": "
                   "{\"strategy\": {\"batch\": "
                   "[100, 1000]}}}");
    expect_segment(m, 2,
                   "{\"step\": 40, \"rows\": 4000, \"train_seconds\": 20.0, \"started\": \"c\", \"host\": "
                   "\"h\", \"muster\": \"1\", \"by\": \"train\", \"files\": [[\"x\"], [\"y\"]]}");
    json_decref(m);
}

/* A piece that saved nothing leaves nothing in the weights; what changed is against the last that did. */
static void pieces_that_do_not_count(void **state)
{
    (void)state;
    json_t *m = piece(NULL, 0, manifest("a", 100, "x", false), "stopped");
    m = piece(m, 30, manifest("b", 1000, "y", true), "failed");
    m = piece(m, 30, manifest("c", 200, "x", true), "done");
    assert_int_equal(json_array_size(json_object_get(m, "history")), 2);
    expect_segment(
        m, 1,
        "{\"step\": 30, \"rows\": 3000, \"train_seconds\": 15.0, \"started\": \"c\", \"host\": "
        "\"h\", \"muster\": \"1\", \"by\": \"train\", \"changed\": {\"strategy\": {\"batch\": [100, 200]}}}");
    json_decref(m);
}

static void starters(void **state)
{
    (void)state;
    static const char *const entries[][2] = {
        {"{}", "train"},
        {"{\"cluster\": {\"by\": \"launch\"}}", "launch"},
        {"{\"cluster\": {\"by\": \"roles\"}, \"mpi\": {\"launcher\": \"srun\"}}", "srun"},
        {"{\"mpi\": {\"launcher\": null}}", "mpirun"}};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        json_t *m = manifest("a", 100, "x", false), *more = json_loads(entries[i][0], 0, NULL);
        json_object_update(m, more);
        m = piece(NULL, 0, m, "done");
        assert_string_equal(json_string_value(json_object_get(segment(m, 0), "by")), entries[i][1]);
        json_decref(more);
        json_decref(m);
    }
}

static void manifests_without(void **state)
{
    (void)state;
    for (int resumed = 0; resumed < 2; resumed++) {
        json_t *m = piece(manifest("old", 100, "x", resumed), 7, manifest("new", 50, "x", true), "done");
        assert_int_equal(json_array_size(json_object_get(m, "history")), 2);
        assert_string_equal(json_string_value(json_object_get(segment(m, 0), "started")), "old");
        assert_int_equal(json_is_true(json_object_get(segment(m, 0), "unrecorded")), resumed);
        assert_non_null(json_object_get(segment(m, 1), "changed"));
        json_decref(m);
    }
    /* whatever stands there, a history is kept from here on */
    static const char *const odd[] = {"{}", "{\"history\": 5}", "{\"history\": [3]}",
                                      "{\"history\": [{}, {\"changed\": [1]}], \"options\": []}",
                                      "{\"history\": [{}, {\"step\": 9, \"files\": {}, \"changed\": {\"a\": "
                                      "{\"b\": 1}}}], \"options\": {\"a\": 3}, \"files\": 2}"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        json_t *m = piece(json_loads(odd[i], 0, NULL), 7, manifest("new", 50, "x", true), "done");
        size_t n = json_array_size(json_object_get(m, "history"));
        assert_int_equal(json_integer_value(json_object_get(segment(m, n - 1), "step")), 7);
        json_decref(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(changes), cmocka_unit_test(pieces_that_do_not_count),
                                       cmocka_unit_test(starters), cmocka_unit_test(manifests_without)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
