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
             "steps: [{name: a, run: 'x $rows $b $more $host', each: {b: $list}}]\n" TAIL;
    json_t *built_in = json_pack("{s:s}", "host", "h");
    mst_text_list set = {0};
    mst_study_size how = {.built_in = built_in};
    json_t *spec = parse(text, &how);
    assert_string_equal(run_of(spec), "x 10 $b 1 h");
    const json_t *each = json_object_get(json_array_get(json_object_get(spec, "steps"), 0), "each");
    assert_int_equal(json_array_size(json_object_get(each, "b")), 2);
    json_decref(spec);
    how.full = true;
    assert_int_equal(mst_text_list_add(&set, "more=7"), MST_OK);
    how.set = &set;
    spec = parse(text, &how);
    assert_string_equal(run_of(spec), "x 1000 $b 7 h");
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
    refuse(HEAD TAIL "steps: [{name: a, sweep: {files: x, train: {bacth: 1}}}]\n", "s.yaml:4: ");
    refuse(HEAD TAIL "full: {rows: 1}\nsteps: []\n", "full: rows: is not in size:");
    refuse(HEAD TAIL "steps: []\ntables: [{title: t, step: b, columns: [x]}]\n", "there is no step b");
    refuse(HEAD TAIL "steps: []\nplots: [{title: t, step: b, x: y}]\n", "there is no step b");
    refuse(HEAD TAIL "steps: [{name: b, run: x}]\nplots: [{title: t, step: b, x: y}]\n", "give x: and y:");
    refuse(HEAD "steps: [{name: a, run: x}]\nconclusion:\n  - {when: a.b >, sentence: s}\n",
           "s.yaml:5: when: \"a.b >\"");
    refuse(HEAD "steps: []\nconclusion: [{sentence: '{b.c}'}]\n", "neither a step");
    refuse(HEAD "steps: [{name: a, run: x}]\nconclusion: [{sentence: '{a.b|miles}'}]\n",
           "unit is not one of");
    refuse(HEAD "steps: []\nvalues: {a: b, b: a}\n" TAIL, "nested too deeply");
    refuse(HEAD "steps: &x [*x]\n" TAIL, "nested too deeply");
    refuse(HEAD TAIL "steps: []\ntables: [{title: a, b}]\n", "s.yaml:5: b: has no value");
    refuse(HEAD TAIL "lab: {hosts: 40}\nsteps: []\n", "between 2 and 32");
    refuse(HEAD TAIL "lab: {hosts: 3x}\nsteps: []\n", "between 2 and 32");
    refuse(HEAD TAIL "needs: gpu\nsteps: []\n", "s.yaml:4: needs: gpu: must be mpi");
    refuse(HEAD TAIL "needs:\n - mpi\n - gpu\nsteps: []\n", "s.yaml:6: needs: gpu");
    refuse(HEAD TAIL "minutes: soon\nsteps: []\n", "s.yaml:4: minutes: soon: must be a number above 0");
    refuse(HEAD TAIL "steps:\n - name: a\n   run: x\n   timeout: 5m\n",
           "s.yaml:7: timeout: 5m: must be a number above 0");
    refuse(HEAD TAIL "steps:\n - name: a\n   run: x\n   timeout: 0\n", "timeout: 0: must be");
    refuse(HEAD TAIL "steps:\n - {name: a, run: x, kill: {run: r, process: p, after: soon}}\n",
           "s.yaml:5: after: soon: must be a number of 0 or more");
    refuse(HEAD TAIL "steps:\n - {name: a, run: x, kill: {run: r, process: p, after: 0, signal: HUP}}\n",
           "s.yaml:5: kill: signal: HUP: not one of KILL, STOP, TERM");
    refuse(HEAD TAIL "steps:\n - {name: a, run: x, kill: {run: r$b, process: p, after: 0}}\n",
           "kill: run: $b: neither a name of size: nor of each:");
    refuse(HEAD TAIL "steps:\n - name: a\n   each: {b: 1}\n   sweep: {files: x}\n",
           "s.yaml:6: steps: each: has no effect on a sweep");
    refuse(HEAD TAIL "steps:\n - name: a\n   run: x $b\n   each:\n    b: []\n",
           "s.yaml:8: each: b: must be a list of one or more values");
    refuse(HEAD TAIL "size: {none: []}\nsteps: [{name: a, run: x, each: {b: 1, c: $none}}]\n",
           "s.yaml:5: each: c: must be a list of one or more values");
    refuse(HEAD TAIL "steps: [{name: a, run: x, each: {b: [1, {c: 2}]}}]\n",
           "s.yaml:4: each: b: must be a list of one or more values");
}

/* $NAME in a command: a name of the file, or a variable of the shell. */
static void names_of_commands(void **state)
{
    static const char *const good[] = {
        "x $each ${each} $? $1 $$ $(y)",
        "for i in 1 2; do x $i; done",
        "n=3\n      x $n",
        "y | while read -r a b; do x $a $b; done",
        "x '$none' \\$none # don't use $none\n      y '$none'",
        "x ${none:-0} ${none-0}; y $muster_test_variable",
        "cat <<EOF\n      $none\n      EOF",
    };
    static const char *const bad[] = {"x $none",
                                      "x \"$none\"",
                                      "x ${none}",
                                      "x --none $none",
                                      "echo none; x $none",
                                      "x 'a'\"'$none'\"",
                                      "for i in $none; do :; done",
                                      "nonesuch=1; x $none"};
    (void)state;
    setenv("muster_test_variable", "1", 1);
    for (size_t i = 0; i < sizeof good / sizeof *good + sizeof bad / sizeof *bad; i++) {
        bool fine = i < sizeof good / sizeof *good;
        char text[400];
        snprintf(text, sizeof text,
                 HEAD "steps:\n  - name: a\n    each: {each: 1}\n    run: |\n      %s\n" TAIL,
                 fine ? good[i] : bad[i - sizeof good / sizeof *good]);
        if (fine)
            json_decref(parse(text, &(mst_study_size){0}));
        else
            refuse(text, "s.yaml:6: run: $none: neither a name of size: or each:");
    }
}

/* A good file of 33 lines; the tests replace one of them. */
static const char *const good_lines[] = {
    "title: T",                                                                /* 1 */
    "question: >-",                                                            /* 2 */
    "  One?",                                                                  /* 3 */
    "  Or two?",                                                               /* 4 */
    "size: {rows: 10,",                                                        /* 5 */
    "  batches: [1, 100]}",                                                    /* 6 */
    "full: {rows: 20}",                                                        /* 7 */
    "lab:",                                                                    /* 8 */
    "  hosts: 3",                                                              /* 9 */
    "steps:",                                                                  /* 10 */
    "  - name: data",                                                          /* 11 */
    "    run: x $rows",                                                        /* 12 */
    "  - name: grid",                                                          /* 13 */
    "    sweep:",                                                              /* 14 */
    "      files: data",                                                       /* 15 */
    "      for: {rows: $rows}",                                                /* 16 */
    "      train:",                                                            /* 17 */
    "        {lr: 0.1,",                                                       /* 18 */
    "        save: false}",                                                    /* 19 */
    "      grid: {mode: [sync, async], batch: $batches}",                      /* 20 */
    "tables:",                                                                 /* 21 */
    "  - title: One",                                                          /* 22 */
    "    step: grid",                                                          /* 23 */
    "    where: mode=sync, lr=0.1",                                            /* 24 */
    "    columns:",                                                            /* 25 */
    "      - batch",                                                           /* 26 */
    "      - {of: published_s / train_s, title: ratio}",                       /* 27 */
    "    published:",                                                          /* 28 */
    "      - {batch: 1, published_s: 5}",                                      /* 29 */
    "plots: [{title: P, step: grid, x: batch, y: train_s, by: mode},",         /* 30 */
    "  {title: C, step: grid, curve: loss, over: rows, where: mode~a}]",       /* 31 */
    "values:",                                                                 /* 32 */
    "  gain: grid[mode=sync, batch=1].train_s / max(grid.train_s)",            /* 33 */
    "conclusion:",                                                             /* 34 */
    "  - {when: gain > 1, sentence: '{argmin(grid.train_s, configuration)}'}", /* 35 */
    "  - sentence: >-",                                                        /* 36 */
    "      {data.any[thing] thing}",                                           /* 37 */
};
#define N_GOOD (sizeof good_lines / sizeof *good_lines)

/* The file with that line replaced; 0: none. The caller frees. */
static char *good_file(size_t line, const char *text)
{
    mst_string out = {0};
    for (size_t i = 0; i < N_GOOD; i++)
        mst_string_format(&out, "%s\n", i + 1 == line ? text : good_lines[i]);
    char *copy = mst_strdup(out.text);
    mst_string_fini(&out);
    return copy;
}

/* Each of these lines in the place of the good one is refused, with its line number. */
static void lines(void **state)
{
    (void)state;
    static const struct {
        size_t line; /* that is replaced */
        const char *text, *error;
    } bad[] = {
        {1, "titel: T", "1: a study: titel: unknown key"},
        {5, "size: {rows: {a: 1},", "5: size: rows: must be a value"},
        {7, "full: {rosw: 20}", "7: full: rosw: is not in size:"},
        {7, "full:", "7: full: has no value"},
        {7, "full: [1]", "7: size: and full: must be mappings"},
        {9, "  hosts: 1", "9: lab: hosts: must be between"},
        {9, "  hots: 3", "9: lab: hots: unknown key"},
        {11, "  - name: Data", "11: steps: name: Data: use lower-case"},
        {12, "    rnu: x", "12: steps: rnu: unknown key"},
        {12, "    run: [x]", "12: steps: run: must be a single value"},
        {13, "  - name: data", "13: steps: the name data is given twice"},
        {13, "  - name: grid\n    each: {a: $lst}", "14: a: $lst: there is no such name"},
        {15, "      flies: data", "15: flies: unknown"},
        {16, "      for: {rwos: $rows}", "16: rwos: unknown option"},
        {18, "        {lr: fast,", "18: "},
        {18, "        {rows: 7,", "18: rows: is given by for: and by train:"},
        {19, "        bacth: 1}", "19: "},
        {19, "        save: $svae}", "19: save: $svae: there is no such name"},
        {20, "      grid: {mode: [sync, slow], batch: 1}", "20: mode"},
        {20, "      grid: {mode: [sync, async], lr: [1, 2]}", "18: lr: is given by the grid and by train:"},
        {23, "    step: gird", "23: tables: there is no step gird"},
        {24, "    where: mod=sync", "24: where: step grid has no column mod"},
        {24, "    where: mode=snyc", "24: where: no row of step grid has mode=snyc"},
        {24, "    where: lr=1", "24: where: no row of step grid has lr=1"},
        {24, "    where: mode", "24: where: mode: is not a condition"},
        {26, "      - bacth", "26: columns: \"bacth\": bacth: neither a column of the rows"},
        {27, "      - {of: published_s / tarin_s, title: ratio}",
         "27: columns: \"published_s / tarin_s\": tarin_s: neither a column"},
        {27, "      - {of: train_s, unit: miles}", "27: columns: unit: miles: not one of"},
        {27, "      - {title: ratio}", "27: columns: of: is missing"},
        {29, "      - {bacth: 1, published_s: 5}", "29: published: bacth: neither a column of the rows"},
        {29, "      - {batch: 1, publised_s: 5}", "29: published: publised_s: neither a column"},
        {29, "      - {published_s: 5}", "29: published: names no column of the rows"},
        {29, "      - {batch: 1, published_s: about 5}",
         "29: published: \"published_s / train_s\": the text about 5 cannot be computed with"},
        {29, "      - {batch: 1, published_s: 5 s}\n      - {batch: 100, published_s: 3}",
         "29: published: \"published_s / train_s\": the text 5 s cannot"},
        {29, "      - 5", "29: published: must be a mapping"},
        {30, "plots: [{title: P, step: gird, x: batch, y: train_s, by: mode},",
         "30: plots: there is no step"},
        {30, "plots: [{title: P, step: grid, x: bacth, y: train_s, by: mode},", "30: x: \"bacth\""},
        {30, "plots: [{title: P, step: grid, x: batch, y: train, by: mode},", "30: y: \"train\""},
        {30, "plots: [{title: P, step: grid, x: batch, y: train_s, by: mdoe},",
         "30: by: step grid has no column mdoe"},
        {31, "  {title: C, step: grid, curve: lsos}]", "31: curve: lsos: not one of accuracy, auc"},
        {31, "  {title: C, step: grid, curve: loss, over: row}]", "31: over: row: not one of time"},
        {31, "  {title: C, step: grid, curve: loss, where: batch=7}]", "31: where: no row of step grid has"},
        {31, "  {title: C, step: grid, load: cup, run: x}]", "31: load: cup: not one of cpu, memory"},
        {31, "  {title: C, step: grid, load: cpu}]", "31: load: needs run:"},
        {33, "  gain: grid[mode=snyc].train_s", "33: gain: no row of step grid has mode=snyc"},
        {33, "  gain: grid.tarin_s", "33: gain: step grid has no column tarin_s"},
        {33, "  gain: [1]", "33: values: gain: must be an expression"},
        {35, "  - {when: gian > 1, sentence: s}", "35: when: \"gian > 1\": gian: neither a step"},
        {35, "  - {when: gain > 1,\n    sentence: '{argmin(grid.train_s, mdoe)}'}",
         "36: sentence: step grid has no column mdoe"},
        {36, "  - {sentence: '{grid.nothing}'}\n  - sentence: >-", "36: sentence: step grid has no column"},
        {37, "      {max(grid.loss)", "36: sentence: \"max(grid.loss)\": a } is missing"},
        {37, "\t- x", "37: not valid YAML"},
        {28, "    published: \xff", "28: not valid YAML"},
    };
    mst_study_size how = {0};
    char *text = good_file(37, "      {max(grid.loss)}");
    json_decref(parse(text, &how));
    mst_free(text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *error = mst_sprintf("s.yaml:%s", bad[i].error);
        text = good_file(bad[i].line, bad[i].text);
        refuse(text, error);
        mst_free(text);
        mst_free(error);
    }
}

/* --set may leave rows out that the conclusion names; the columns are checked all the same. */
static void set_values(void **state)
{
    (void)state;
    char *text = good_file(37, "      {max(grid.loss)}"), *bad = good_file(37, "      {max(grid.lsos)}");
    mst_text_list set = {0};
    mst_study_size how = {.set = &set};
    json_t *spec = NULL;
    assert_int_equal(mst_text_list_add(&set, "batches=7"), MST_OK);
    json_decref(parse(text, &how));
    assert_int_equal(mst_study_spec_parse("s.yaml", bad, strlen(bad), &how, &spec), MST_EUSAGE);
    mst_text_list_fini(&set);
    mst_free(text);
    mst_free(bad);
}

/* Names in the rows of a command are checked once the rows are known. */
static void names_of_results(void **state)
{
    (void)state;
    mst_study_size how = {0};
    json_t *spec = parse(HEAD "steps: [{name: a, run: x}]\n"
                              "tables:\n"
                              "  - {title: t, step: a, where: host~one, columns: [rate]}\n"
                              "conclusion: [{sentence: '{max(a[host=one].rate)}'}]\n",
                         &how);
    static const struct {
        const char *csv, *error;
    } bad[] = {{"hots,rate\none,1\n", "s.yaml:5: where: step a has no column host"},
               {"host,rate\ntwo,1\n", "s.yaml:5: where: no row of step a has host~one"},
               {"host,rates\none,1\n", "s.yaml:5: columns: \"rate\": rate: neither a column"},
               {"host,rate\none two,1\n", "s.yaml:6: sentence: no row of step a has host=one"},
               {"host,rate\none,\n", NULL}}; /* a column without values is known */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *columns = json_object(), *rows = NULL;
        assert_int_equal(mst_study_rows_parse("r", bad[i].csv, strlen(bad[i].csv), NULL, columns, &rows),
                         MST_OK);
        json_t *all = json_pack("{s:o}", "a", rows), *names = json_pack("{s:o}", "a", columns);
        mst_study_known known = {.columns = names, .rows = all};
        mst_status st = mst_study_check("s.yaml", spec, &known);
        assert_int_equal(st, bad[i].error != NULL ? MST_EUSAGE : MST_OK);
        if (bad[i].error != NULL && strstr(mst_error_text(), bad[i].error) == NULL)
            fail_msg("'%s' lacks '%s'", mst_error_text(), bad[i].error);
        json_decref(all);
        json_decref(names);
    }
    json_decref(spec);
}

static json_t *rows_of(const char *text, const char *path)
{
    json_t *rows = NULL;
    if (mst_study_rows_parse("r", text, strlen(text), path, NULL, &rows) != MST_OK)
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
    assert_int_equal(mst_study_rows_parse("r", "{", 1, NULL, NULL, &json), MST_EINPUT);
    assert_int_equal(mst_study_rows_parse("r", "{}", 2, "list", NULL, &json), MST_EINPUT);
    assert_int_equal(mst_study_rows_parse("r", "a\n1,2\n", 6, NULL, NULL, &json), MST_EINPUT);
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
    json_t *built_in = json_pack("{s:s, s:s, s:s, s:s}", "cores", "2", "hosts", "hosts.txt", "ssh",
                                 "netlab exec", "netlab", "netlab");
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
    char *text = good_file(37, "      {max(grid.loss)}");
    for (uint64_t k = 1;; k++) {
        json_t *spec = NULL;
        mst_alloc_fail_at(k);
        mst_status st = mst_study_spec_parse("s.yaml", text, strlen(text), &how, &spec);
        mst_alloc_fail_at(0);
        json_decref(spec);
        if (st == MST_OK)
            break;
        if (st != MST_ENOMEM)
            fail_msg("allocation %llu: %s", (unsigned long long)k, mst_error_text());
    }
    mst_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(refusals),
        cmocka_unit_test(names_of_commands),
        cmocka_unit_test(rows),
        cmocka_unit_test(lines),
        cmocka_unit_test(set_values),
        cmocka_unit_test(names_of_results),
        cmocka_unit_test(expressions),
        cmocka_unit_test(known),
        cmocka_unit_test(memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
