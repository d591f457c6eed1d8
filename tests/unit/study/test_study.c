/* A study without its processes: the file and its lines, substitution, rows of CSV and JSON, expressions, and
 * memory that runs out anywhere. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "study/study.h"
#include "study/study_expr.h"
#include "study/study_report.h"

#define HEAD "title: T\nquestion: Q?\n"
#define TAIL "conclusion: [{sentence: done}]\n"

static json_t *parse(const char *text, const mst_study_size *how)
{
    json_t *spec = NULL;
    if (mst_study_spec_parse("s.yaml", text, strlen(text), how, &spec) != MST_OK)
        fail_msg("%s", mst_error_text());
    return spec;
}

static void refuse(const char *text, const char *sentence)
{
    json_t *spec = NULL;
    mst_study_size how = {0};
    assert_int_equal(mst_study_spec_parse("s.yaml", text, strlen(text), &how, &spec), MST_EUSAGE);
    if (strstr(mst_error_text(), sentence) == NULL)
        fail_msg("'%s' lacks '%s'", mst_error_text(), sentence);
    assert_null(spec);
}

static const char *run_of(const json_t *spec)
{
    return mst_study_text(json_array_get(json_object_get(spec, "steps"), 0), "run");
}

static void sizes(void **state)
{
    (void)state;
    static const char text[] =
        HEAD "size: {rows: 10, more: 1, list: [1, 2]}\nfull: {rows: 1000}\n"
             "steps: [{name: a, run: 'x $rows $rowsx $more $host', each: {b: $list}}]\n" TAIL;
    json_t *built_in = json_pack("{s:s}", "host", "h");
    mst_text_list set = {0};
    mst_study_size how = {.built_in = built_in};
    json_t *spec = parse(text, &how);
    assert_string_equal(run_of(spec), "x 10 $rowsx 1 h");
    const json_t *each = json_object_get(json_array_get(json_object_get(spec, "steps"), 0), "each");
    assert_int_equal(json_array_size(json_object_get(each, "b")), 2);
    json_decref(spec);
    how.full = true;
    assert_int_equal(mst_text_list_add(&set, "more=7"), MST_OK);
    how.set = &set;
    spec = parse(text, &how);
    assert_string_equal(run_of(spec), "x 1000 $rowsx 7 h");
    json_decref(spec);
    assert_int_equal(mst_text_list_add(&set, "none=7"), MST_OK);
    assert_int_equal(mst_study_spec_parse("s.yaml", text, strlen(text), &how, &spec), MST_EUSAGE);
    assert_non_null(strstr(mst_error_text(), "--set none=7"));
    mst_text_list_fini(&set);
    json_decref(built_in);
}

static void refusals(void **state)
{
    (void)state;
    refuse("", "s.yaml:1: a study is a mapping");
    refuse(HEAD TAIL, "steps: is missing");
    refuse(HEAD TAIL "steps: [{name: a}]\n", "s.yaml:4: steps: a: needs run: or sweep:");
    refuse(HEAD TAIL "steps: [{name: A, run: x}]\n", "use lower-case letters");
    refuse(HEAD TAIL "steps: [{name: a, run: x}, {name: a, run: y}]\n", "the name a is given twice");
    refuse(HEAD TAIL "steps: [{name: a, run: x, colour: red}]\n", "colour: unknown key");
    refuse(HEAD TAIL "steps: [{name: a, sweep: {files: x, train: {bacth: 1}}}]\n", "step a");
    refuse(HEAD TAIL "full: {rows: 1}\nsteps: []\n", "full: rows: is not in size:");
    refuse(HEAD TAIL "steps: []\ntables: [{title: t, step: b, columns: [x]}]\n", "there is no step b");
    refuse(HEAD TAIL "steps: []\nplots: [{title: t, step: b, x: y}]\n", "there is no step b");
    refuse(HEAD TAIL "steps: [{name: b, run: x}]\nplots: [{title: t, step: b, x: y}]\n", "give x: and y:");
    refuse(HEAD "steps: [{name: a, run: x}]\nconclusion:\n  - {when: a.b >, sentence: s}\n",
           "s.yaml:5: \"a.b >\"");
    refuse(HEAD "steps: []\nconclusion: [{sentence: '{b.c}'}]\n", "neither a step");
    refuse(HEAD "steps: [{name: a, run: x}]\nconclusion: [{sentence: '{a.b|miles}'}]\n",
           "unit is not one of");
    refuse(HEAD "steps: []\nvalues: {a: b, b: a}\n" TAIL, "nested too deeply");
    refuse(HEAD "steps: &x [*x]\n" TAIL, "nested too deeply");
    refuse(HEAD TAIL "steps: []\ntables: [{title: a, b}]\n", "s.yaml:5: a key has no value");
    refuse(HEAD TAIL "lab: {hosts: 40}\nsteps: []\n", "between 2 and 32");
}

static json_t *rows_of(const char *text, const char *path)
{
    json_t *rows = NULL;
    if (mst_study_rows_parse("r", text, strlen(text), path, &rows) != MST_OK)
        fail_msg("%s", mst_error_text());
    return rows;
}

static void rows(void **state)
{
    (void)state;
    json_t *csv = rows_of("mode,global-batch,t\nsync,10,1.5\n\"a,\"\"b\",2,\n", NULL), *row, *json;
    assert_int_equal(json_array_size(csv), 2);
    row = json_array_get(csv, 1);
    assert_string_equal(mst_study_text(row, "mode"), "a,\"b");
    assert_null(json_object_get(row, "t"));
    assert_true(mst_study_row_matches(json_array_get(csv, 0), "mode=sync, global-batch=10.0"));
    assert_false(mst_study_row_matches(json_array_get(csv, 0), "mode=sync, global_batch=2"));
    assert_false(mst_study_row_matches(json_array_get(csv, 0), "mode"));
    assert_true(mst_study_row_matches(row, NULL));
    assert_true(mst_study_row_matches(row, "mode~b"));
    assert_false(mst_study_row_matches(row, "mode~c"));
    assert_false(mst_study_row_matches(row, "global_batch~2"));
    json_decref(csv);
    json = rows_of("{\"a\": {\"b-c\": 3}, \"list\": [{\"x\": 1}, {\"x\": true}]}", NULL);
    assert_int_equal(json_array_size(json), 1);
    assert_true(mst_study_row_matches(json_array_get(json, 0), "a_b_c=3"));
    json_decref(json);
    json = rows_of("{\"list\": [{\"x\": 1}, {\"x\": true}]}", "list");
    assert_int_equal(json_array_size(json), 2);
    assert_true(mst_study_row_matches(json_array_get(json, 1), "x=true"));
    json_decref(json);
    json = rows_of("[{\"p\": \"a\", \"x\": 5, \"ops\": [{\"x\": 1}]}, {\"p\": \"b\", \"ops\": [{\"x\": 2}, "
                   "{\"x\": 3}]}]",
                   "ops");
    assert_int_equal(json_array_size(json), 3);
    assert_true(mst_study_row_matches(json_array_get(json, 0), "x=1, p=a"));
    assert_true(mst_study_row_matches(json_array_get(json, 2), "x=3, p=b"));
    json_decref(json);
    assert_int_equal(mst_study_rows_parse("r", "{", 1, NULL, &json), MST_EINPUT);
    assert_int_equal(mst_study_rows_parse("r", "{}", 2, "list", &json), MST_EINPUT);
    assert_int_equal(mst_study_rows_parse("r", "a\n1,2\n", 6, NULL, &json), MST_EINPUT);
}

static const char spec_text[] = HEAD "steps: [{name: s, run: x}]\nvalues: {half: 's[k=1].t / 2'}\n" TAIL;

static void expect_number(const mst_expr_scope *scope, const char *text, double wanted)
{
    double got = NAN;
    if (mst_expr_number(scope, text, &got) != MST_OK)
        fail_msg("%s: %s", text, mst_error_text());
    if (!(fabs(got - wanted) < 1e-9))
        fail_msg("%s is %g instead of %g", text, got, wanted);
}

static void expect_failure(const mst_expr_scope *scope, const char *text, const char *sentence)
{
    double got;
    assert_int_not_equal(mst_expr_number(scope, text, &got), MST_OK);
    if (strstr(mst_error_text(), sentence) == NULL)
        fail_msg("%s: '%s' lacks '%s'", text, mst_error_text(), sentence);
}

static void expressions(void **state)
{
    (void)state;
    mst_study_size how = {0};
    json_t *spec = parse(spec_text, &how);
    json_t *all = json_pack("{s:o}", "s", rows_of("k,m,t\n1,sync,8\n2,sync,2\n4,async,0.5\n", NULL));
    mst_expr_scope scope = {
        .rows = all, .steps = json_object_get(spec, "steps"), .values = json_object_get(spec, "values")};
    mst_string out = {0};
    expect_number(&scope, "1 + 2 * 3 - -4 / (1 + 1)", 9);
    expect_number(&scope, "s[k=1].t / s[m=sync, k=2].t", 4);
    expect_number(&scope, "half", 4);
    expect_number(&scope, "max(s[m=sync].t) - min(s.t) + mean(s.k * 3)", 8 - 0.5 + 7);
    expect_number(&scope, "count(s.t) == 3 and spread(s.t) >= 16 or 0", 1);
    expect_number(&scope, "slope(s.k, s.t)", -2);
    expect_number(&scope, "within(s[k=1].t, 7.5, 0.1) + within(s[k=1].t, 7, 0.1)", 1);
    expect_number(&scope, "argmin(s.t, m) == 'async'", 1);
    expect_number(&scope, "sum(s.t / s[k=2].t)", 5.25);
    assert_int_equal(
        mst_expr_sentence(&scope,
                          "{argmax(s.t, k)}: {s[k=1].t|seconds}, {if(half > 3, 'more', 'less')}, "
                          "{half / 3|1}, {s[k=4].t|share}.",
                          &out),
        MST_OK);
    assert_string_equal(out.text, "1: 8 s, more, 1.3, 50.00%.");
    mst_string_fini(&out);
    expect_failure(&scope, "s.t", "3 rows match");
    expect_failure(&scope, "s[k=9].t", "step s has no figure t where k=9");
    expect_failure(&scope, "s.nothing", "step s has no figure nothing");
    expect_failure(&scope, "s.k + s[m=sync].k", "3 figures cannot be combined with 2");
    expect_failure(&scope, "1 2", "unexpected text");
    expect_failure(&scope, "(1", "a ) is missing");
    expect_failure(&scope, "s[k=1", "a ] is missing");
    expect_failure(&scope, "cosine(1)", "cosine: not one of");
    expect_failure(&scope, "'a' + 1", "text");
    scope.row = json_array_get(json_object_get(all, "s"), 1);
    expect_number(&scope, "t * k", 4);
    expect_failure(&scope, "none", "there is no figure none");
    json_decref(all);
    json_decref(spec);
}

static void known(void **state)
{
    (void)state;
    size_t n = 0;
    json_t *built_in = json_pack("{s:s}", "cores", "2");
    for (const mst_known_study *s = mst_known_studies; s->name != NULL; s++, n++) {
        for (int full = 0; full < 2; full++) {
            mst_study_size how = {.full = full, .built_in = built_in};
            json_t *spec = parse(s->text, &how);
            json_decref(spec);
        }
        assert_true(n == 0 || s->number > mst_known_studies[n - 1].number);
    }
    json_decref(built_in);
    assert_true(n > 0);
}

static void memory(void **state)
{
    (void)state;
    mst_study_size how = {0};
    for (uint64_t k = 1;; k++) {
        json_t *spec = NULL;
        mst_alloc_fail_at(k);
        mst_status st = mst_study_spec_parse("s.yaml", spec_text, strlen(spec_text), &how, &spec);
        mst_alloc_fail_at(0);
        json_decref(spec);
        if (st == MST_OK)
            break;
        assert_int_equal(st, MST_ENOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),       cmocka_unit_test(refusals), cmocka_unit_test(rows),
        cmocka_unit_test(expressions), cmocka_unit_test(known),    cmocka_unit_test(memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
