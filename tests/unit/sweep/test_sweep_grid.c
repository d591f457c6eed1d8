/* The file of a sweep, its cells and its state: values as command lines have them, errors by line and key,
 * the rules, going on, and memory that runs out anywhere. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "sweep/sweep.h"
#include "sweep/sweep_metric.h"
#include "sweep/sweep_report.h"

static json_t *parse(const char *text)
{
    json_t *spec = NULL;
    mst_status st = mst_sweep_spec_parse("s.yaml", text, strlen(text), &spec);
    if (st != MST_OK)
        fail_msg("%s", mst_error_text());
    return spec;
}

static mst_sweep *sweep_of(const char *text, const char *folder)
{
    json_t *spec = parse(text);
    mst_sweep *sweep = NULL;
    assert_int_equal(mst_sweep_new("s.yaml", folder, spec, NULL, &sweep), MST_OK);
    json_decref(spec);
    return sweep;
}

static void refuse(const char *text, const char *sentence)
{
    json_t *spec = NULL;
    assert_int_equal(mst_sweep_spec_parse("s.yaml", text, strlen(text), &spec), MST_EUSAGE);
    if (strstr(mst_error_text(), sentence) == NULL)
        fail_msg("'%s' does not say '%s'", mst_error_text(), sentence);
    assert_null(spec);
}

static const char *word(const mst_sweep_cell *cell, const char *start)
{
    for (size_t i = 0; i < cell->words.n; i++)
        if (strncmp(cell->words.items[i], start, strlen(start)) == 0)
            return cell->words.items[i];
    return "";
}

static void values(void **state)
{
    (void)state;
    json_t *spec = parse("files: [a, b]\nfor: {rows: 1k}\ntrain:\n  test: [x.txt, 'y,z.txt']\n  save: no\n"
                         "grid:\n  batch: [1e2, 2^7]\n");
    assert_string_equal(json_string_value(json_object_get(json_object_get(spec, "for"), "rows")), "1000");
    const json_t *train = json_object_get(spec, "train");
    assert_string_equal(json_string_value(json_object_get(train, "test")), "x.txt,y\\,z.txt");
    assert_string_equal(json_string_value(json_object_get(train, "save")), "false");
    const json_t *batch = json_object_get(json_object_get(spec, "grid"), "batch");
    assert_string_equal(json_string_value(json_object_get(json_array_get(batch, 1), "label")), "128");
    json_decref(spec);
}

static void errors(void **state)
{
    (void)state;
    refuse("", "s.yaml:1: is empty");
    refuse("- a\n", "s.yaml:1: a sweep: must be a mapping");
    refuse("files: a\nfiles: b\n", "s.yaml:2: files: is given twice");
    refuse("files: a\ntrain: 5\n", "s.yaml:2: train: must be a mapping of options");
    refuse("files: a\ntrain:\n  lr:\n", "s.yaml:3: lr: has no value");
    refuse("files: a\ntrain:\n  lr: {x: 1}\n", "s.yaml:3: lr: must be a single value here");
    refuse("files: a\ntrain:\n  mode: fast\n", "s.yaml:3: mode");
    refuse("files: a\ntrain:\n  index: 3\n", "s.yaml:3: index: unknown option");
    refuse("files: a\ngrid: [1]\n", "s.yaml:2: grid: must be a mapping of options to lists");
    refuse("files: a\ngrid: {batch: []}\n", "s.yaml:2: batch: has no values");
    refuse("files: []\n", "s.yaml:1: files: has no values");
    refuse("files: ['-']\n", "runs cannot share standard input");
    refuse("files: &a [*a]\n", "files: must be a single value here");
    refuse("files: a\nrepeats: 2\ngrid: {seed: [1]}\n",
           "s.yaml:2: repeats: the grid already names the seeds");
    refuse("files: a\nfor: {rows: 5}\ngrid: {rows: [1, 2]}\n", "rows: is given by the grid");
    refuse("files: a\nmetric: speed\n", "s.yaml:2: metric: speed: not one of loss, accuracy, auc");
    refuse("files: a\nmetric: test_train_loss\n", "s.yaml:2: metric: test_train_loss: not one of");
    refuse("files: a\njobs: 0\n", "s.yaml:2: jobs: 0: must be auto or between 1 and 1024");
    refuse("files: a\njobs: [1]\n", "s.yaml:2: jobs: must be a single value here");
}

static void cells(void **state)
{
    (void)state;
    mst_sweep *s = sweep_of("files: a\ntrain: {seed: 7}\ngrid:\n  mode: [sync, async]\n  batch: [1k, 100]\n"
                            "repeats: 2\n",
                            "f");
    assert_int_equal(s->n, 8);
    assert_string_equal(s->cells[0].name, "sync-batch1000-seed7");
    assert_string_equal(s->cells[0].config, "sync-batch1000");
    assert_string_equal(s->cells[3].name, "async-batch100-seed7"); /* all configurations, then again */
    assert_string_equal(s->cells[4].name, "sync-batch1000-seed8");
    assert_string_equal(word(&s->cells[4], "--seed"), "--seed=8");
    assert_string_equal(word(&s->cells[0], "--strategy"), "--strategy=local");
    mst_sweep_destroy(s);

    s = sweep_of("files: a\n", "f"); /* a grid of one */
    assert_int_equal(s->n, 1);
    assert_string_equal(s->cells[0].name, "run");
    mst_sweep_destroy(s);

    json_t *spec = parse("files: a\nfor: {until: test_loss<=1}\n");
    assert_int_equal(mst_sweep_new("s.yaml", "f", spec, (const char *const[]){"8", "16", NULL}, &s), MST_OK);
    assert_int_equal(s->n, 2);
    assert_string_equal(s->cells[1].name, "batch16");
    assert_string_equal(mst_sweep_until(s), "test_loss<=1");
    mst_sweep_destroy(s);
    json_decref(spec);
    spec = parse("files: a\ngrid:\n  batch: [1, 2]\n  x: [{name: 'a b', batch: 3}]\n");
    assert_int_equal(mst_sweep_new("s.yaml", "f", spec, NULL, &s), MST_EUSAGE);
    assert_non_null(strstr(mst_error_text(), "batch is set by two axes"));
    json_decref(spec);
}

static void metrics(void **state)
{
    (void)state;
    static const struct {
        const char *name, *set, *column;
        bool evaluated, high;
    } known[] = {{"loss", "", "loss", true, false},
                 {"valid_auc", "valid", "auc", true, true},
                 {"train_loss", "", "train_loss", true, false},
                 {"train_accuracy", "", "train_accuracy", true, true},
                 {"test_accuracy", "test", "accuracy", true, true},
                 {"rows_per_s", "", "rows_per_s", false, true},
                 {"memory", "", "memory", false, false}};
    mst_sweep_metric m;
    bool given;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_true(mst_sweep_metric_find(known[i].name, &m));
        assert_string_equal(m.set, known[i].set);
        assert_string_equal(m.column, known[i].column);
        assert_int_equal(m.evaluated, known[i].evaluated);
        assert_int_equal(m.high_is_good, known[i].high);
    }
    assert_false(mst_sweep_metric_find("valid_rows_per_s", &m));
    mst_sweep *s = sweep_of("files: a\nmetric: auc\n", "f");
    assert_string_equal(mst_sweep_metric_name(s, &given), "auc");
    assert_true(given);
    mst_sweep_destroy(s);
    s = sweep_of("files: a\n", "f");
    assert_string_equal(mst_sweep_metric_name(s, &given), "loss");
    assert_false(given);
    mst_sweep_destroy(s);
}

/* Repeats hold the rows of the first seed out, whatever theirs is. */
static void hold_outs(void **state)
{
    (void)state;
    mst_sweep *s = sweep_of("files: a\ntrain: {valid: 0.1, seed: 0}\ngrid: {lr: [1, 2]}\nrepeats: 2\n", "f");
    assert_string_equal(word(&s->cells[1], "--valid-seed"), ""); /* its own seed is that */
    assert_string_equal(word(&s->cells[2], "--seed"), "--seed=1");
    assert_string_equal(word(&s->cells[2], "--valid-seed"), "--valid-seed=0");
    assert_string_equal(word(&s->cells[3], "--valid-seed"), "--valid-seed=0");
    mst_sweep_destroy(s);
    s = sweep_of("files: a\ntrain: {valid: 0.1, valid-seed: 9}\nrepeats: 2\n", "f");
    assert_string_equal(word(&s->cells[1], "--valid-seed"), "--valid-seed=9");
    mst_sweep_destroy(s);
    s = sweep_of("files: a\ntrain: {valid: rows.txt}\nrepeats: 2\n", "f");
    assert_string_equal(word(&s->cells[1], "--valid-seed"), "");
    mst_sweep_destroy(s);
    s = sweep_of("files: a\ntrain: {valid: 0.1}\ngrid: {x: [{name: p, lr: 1}, {name: q, seed: 5}]}\n", "f");
    assert_string_equal(word(&s->cells[1], "--valid-seed"), "--valid-seed=1");
    mst_sweep_destroy(s);
}

static void threads(void **state)
{
    (void)state;
    static const struct {
        const char *train;
        unsigned threads;
    } tries[] = {{"{lr: 1}", 1},          {"{threads: 3}", 3},
                 {"{threads: 0}", 8},     {"{strategy: ps, workers: 2, servers: 2}", 4},
                 {"{deploy: launch}", 2}, {"{strategy: allreduce, workers: 2, threads: 2}", 4}};
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        char text[128];
        snprintf(text, sizeof text, "files: a\ntrain: %s\n", tries[i].train);
        mst_sweep *s = sweep_of(text, "f");
        assert_int_equal(mst_sweep_cell_threads(&s->cells[0], 8), tries[i].threads);
        mst_sweep_destroy(s);
    }
    unsigned jobs = 7;
    assert_true(mst_sweep_jobs_parse("auto", &jobs));
    assert_int_equal(jobs, MST_JOBS_AUTO);
    assert_true(mst_sweep_jobs_parse("4", &jobs));
    assert_int_equal(jobs, 4);
    assert_false(mst_sweep_jobs_parse("-1", &jobs));
}

/* What the first cell that is left out says. */
static void expect_skip(const char *text, size_t n_runs, const char *why)
{
    mst_sweep *s = sweep_of(text, "f");
    size_t counts[MST_CELL_SKIPPED + 1];
    mst_sweep_count(s, counts);
    assert_int_equal(counts[MST_CELL_PENDING], n_runs);
    for (size_t i = 0; i < s->n; i++)
        if (s->cells[i].state == MST_CELL_SKIPPED) {
            if (strstr(s->cells[i].sentence, why) == NULL)
                fail_msg("'%s' does not say '%s'", s->cells[i].sentence, why);
            break;
        }
    mst_sweep_destroy(s);
}

static void rules(void **state)
{
    (void)state;
    expect_skip("files: a\ngrid: {strategy: [local, ps], servers: [1, 2]}\n", 3, "is the same as local");
    expect_skip("files: a\ngrid: {strategy: [local], deploy: [embedded, launch]}\n", 1,
                "strategy local is one process");
    expect_skip("files: a\ngrid: {strategy: [allreduce], mode: [sync, async]}\n", 1, "so it needs mode sync");
    expect_skip("files: a\ngrid: {strategy: [allreduce, ps], deploy: [mpi, embedded]}\n", 3,
                "so it needs deploy mpi");
    expect_skip("files: a\ngrid: {strategy: [allreduce], servers: [1, 2], workers: [2, 4]}\n", 2,
                "is the same as");
    expect_skip("files: a\ngrid: {workers: [1, 2], quorum: [2]}\n", 1,
                "--quorum 2: there are only 1 workers");
    expect_skip("files: a\ngrid: {strategy: [ps], mode: [sync, async], staleness: [1, 2]}\n", 2,
                "is the same as");
    expect_skip("files: a\ngrid: {strategy: [ps], mode: [ssp], staleness: [1, 2]}\n", 2, "");
    expect_skip("files: a\ngrid: {optimizer: [sgd, momentum], momentum: [0.5, 0.9]}\n", 3, "is the same as");
    expect_skip("files: a\ngrid: {model: [softmax, logreg], pos-weight: [1, 2]}\n", 3, "is the same as");
    expect_skip("files: a\nfor: {until: test_loss<=0.4, rows: 1k}\n", 0,
                "--until test_loss<=0.4 needs a --test set");
    expect_skip("files: a\nfor: {until: test_auc>=0.4}\ngrid: {x: [{name: p, test: t}, {name: q, lr: 1}]}\n",
                1, "needs a --test set");
    expect_skip("files: a\ntrain: {test: t}\nfor: {until: test_top5>=0.4}\n", 0, "can never be met");
    expect_skip("files: a\ngrid: {patience: [0, 3]}\n", 1, "--patience needs --valid");
    expect_skip("files: a\ntrain: {net: n.net}\ngrid: {image: [1x4x4, 1x2x8]}\n", 2, "");
    mst_sweep *s =
        sweep_of("files: a\ntrain: {deploy: mpi, servers: 2, workers: 3, mpi-plugin: mpich}\n", "f");
    assert_string_equal(word(&s->cells[0], "--ranks"), "--ranks=5"); /* ps among ranks */
    assert_string_equal(word(&s->cells[0], "--mpi-plugin"), "--mpi-plugin=mpich");
    assert_string_equal(word(&s->cells[0], "--servers"), "--servers=2");
    assert_string_equal(word(&s->cells[0], "--strategy"), "--strategy=ps");
    mst_sweep_destroy(s);
    s = sweep_of("files: a\ntrain: {hosts: h.txt, deploy: launch, copy: true}\n", "f");
    assert_string_equal(s->cells[0].words.items[0], "launch");
    assert_string_equal(word(&s->cells[0], "--hosts"), "--hosts=h.txt");
    assert_string_equal(word(&s->cells[0], "--copy"), "--copy");
    assert_string_equal(word(&s->cells[0], "--strategy"), ""); /* launch says it */
    mst_sweep_destroy(s);
    /* Presets of launch --deploy. */
    expect_skip("files: a\ngrid: {deploy: [single, cluster], strategy: [ps]}\n", 1,
                "deploy single is one process without workers");
    expect_skip("files: a\ngrid: {deploy: [cluster, cluster2], workers: [3]}\n", 1,
                "have a number of servers and workers of their own");
    expect_skip("files: a\ngrid: {deploy: [single, cluster, cluster2], mode: [sync, async]}\n", 6, "");
    expect_skip("files: a\ngrid: {deploy: [cluster, cluster2], quorum: [3]}\n", 1,
                "--quorum 3: there are only 2 workers");
    s = sweep_of("files: a\ntrain: {hosts: h.txt}\ngrid: {deploy: [single, cluster2]}\n", "f");
    assert_string_equal(word(&s->cells[0], "--deploy"), "--deploy=single");
    assert_string_equal(word(&s->cells[0], "--hosts"), "--hosts=h.txt");
    assert_string_equal(word(&s->cells[0], "--workers"), "");
    assert_string_equal(word(&s->cells[1], "--deploy"), "--deploy=cluster2");
    assert_string_equal(word(&s->cells[1], "--workers"), ""); /* the preset sets it */
    assert_int_equal(mst_sweep_cell_threads(&s->cells[1], 2), 4);
    mst_sweep_destroy(s);
    size_t n;
    const char *why;
    s = sweep_of("files: a\ngrid: {strategy: [local, ps], servers: [1, 2, 3]}\n", "f");
    assert_false(mst_sweep_left_out(s, 0, &n, &why));
    assert_true(mst_sweep_left_out(s, 1, &n, &why));
    assert_int_equal(n, 2);
    assert_string_equal(why, "are the same as other runs, which are started once");
    assert_false(mst_sweep_left_out(s, 2, &n, &why)); /* already reported */
    mst_sweep_destroy(s);
}

/* ---- state ---- */

static const char grid[] = "files: a\ngrid: {batch: [1, 2, 3]}\n";

static void write_manifest(const mst_sweep *s, size_t cell, const char *text)
{
    char *path = mst_sweep_run_path(s, &s->cells[cell]);
    assert_int_equal(mst_make_folders(path), MST_OK);
    char *file = mst_sprintf("%s/manifest.json", path);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    mst_free(file);
    mst_free(path);
}

static void goes_on(void **state)
{
    const char *folder = *state;
    mst_sweep *s = sweep_of(grid, folder);
    assert_true(isnan(mst_sweep_estimate(s)));
    assert_int_equal(mst_sweep_load(s, MST_SWEEP_SAME), MST_OK); /* nothing there yet */
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(mst_sweep_mark(&s->cells[i], MST_CELL_RUNNING, NULL), MST_OK);
    s->cells[0].seconds = 3;
    s->cells[0].began -= 20; /* the piece in which the sweep was cut off */
    assert_int_equal(mst_sweep_mark(&s->cells[2], MST_CELL_FAILED, "no \"luck\""), MST_OK);
    assert_int_equal(mst_sweep_save(s), MST_OK);
    write_manifest(s, 0, "{\"state\": \"done\"}");
    write_manifest(s, 1, "{\"state\": \"stopped\"}");
    mst_sweep_destroy(s);

    s = sweep_of(grid, folder);
    assert_int_equal(mst_sweep_load(s, MST_SWEEP_SAME), MST_OK);
    assert_int_equal(s->cells[0].state, MST_CELL_DONE); /* by its manifest */
    assert_int_equal(s->cells[1].state, MST_CELL_STOPPED);
    assert_int_equal(s->cells[2].state, MST_CELL_FAILED);
    assert_string_equal(s->cells[2].sentence, "no \"luck\"");
    assert_true(s->cells[0].seconds > 22.9 && s->cells[0].seconds < 1000); /* both pieces */
    assert_true(mst_sweep_estimate(s) == s->cells[0].seconds);
    s->cells[0].seconds = 3; /* its end has it: nothing is added */
    assert_int_equal(mst_sweep_save(s), MST_OK);
    mst_sweep_destroy(s);
    s = sweep_of(grid, folder);
    assert_int_equal(mst_sweep_load(s, MST_SWEEP_SAME), MST_OK);
    assert_true(s->cells[0].seconds == 3);
    mst_sweep_destroy(s);

    s = sweep_of(grid, folder); /* a torn manifest: it has to run again */
    write_manifest(s, 0, "{\"state\": \"do");
    assert_int_equal(mst_sweep_load(s, MST_SWEEP_SAME), MST_OK);
    assert_int_equal(s->cells[0].state, MST_CELL_PENDING);
    mst_sweep_destroy(s);

    s = sweep_of("files: b\ntrain: {lr: 1}\ngrid: {batch: [1, 2, 4]}\n", folder);
    assert_int_equal(mst_sweep_load(s, MST_SWEEP_SAME), MST_EEXIST);
    assert_non_null(
        strstr(mst_error_text(), "(files: b, was a; lr: is new: 1; batch: 1, 2, 4, was 1, 2, 3)"));
    assert_int_equal(mst_sweep_load(s, MST_SWEEP_OVERWRITE), MST_OK);
    assert_int_equal(mst_sweep_load(s, MST_SWEEP_EXTEND), MST_OK); /* no command is the same */
    assert_int_equal(s->cells[1].state, MST_CELL_PENDING);
    mst_sweep_destroy(s);
    s = sweep_of("files: a\ngrid: {batch: [1, 2, 4]}\n", folder);
    assert_int_equal(mst_sweep_load(s, MST_SWEEP_EXTEND), MST_OK);
    assert_int_equal(s->cells[1].state, MST_CELL_STOPPED);
    mst_sweep_destroy(s);

    s = sweep_of(grid, folder); /* runs of a search are cut short: as those of a grid, they do not count */
    assert_int_equal(mst_sweep_load(s, MST_SWEEP_SAME), MST_OK);
    s->search = json_object();
    assert_int_equal(mst_sweep_save(s), MST_OK);
    mst_sweep_destroy(s);
    s = sweep_of(grid, folder);
    assert_int_equal(mst_sweep_load(s, MST_SWEEP_EXTEND), MST_OK);
    assert_int_equal(s->cells[1].state, MST_CELL_PENDING);
    assert_null(s->search);
    assert_int_equal(mst_sweep_load(s, MST_SWEEP_SAME), MST_OK);
    assert_int_equal(s->cells[1].state, MST_CELL_STOPPED);
    assert_non_null(s->search);
    mst_sweep_destroy(s);
}

static void foreign(void **state)
{
    const char *folder = *state;
    mst_sweep *s = sweep_of(grid, folder);
    char *path = mst_sprintf("%s/sweep.json", folder);
    static const char *const texts[] = {"", "{", "[]", "{\"format\": 5}", "{\"format\": \"other\"}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        bool damaged = strstr(texts[i], "other") == NULL; /* else something else's */
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(texts[i], f);
        fclose(f);
        for (int change = MST_SWEEP_SAME; change <= MST_SWEEP_EXTEND; change++) {
            assert_int_equal(mst_sweep_load(s, (mst_sweep_change)change), damaged ? MST_EINPUT : MST_EEXIST);
            assert_non_null(strstr(mst_error_text(),
                                   damaged ? "is damaged; give --overwrite" : "not the state of a sweep"));
        }
        assert_int_equal(mst_sweep_load(s, MST_SWEEP_OVERWRITE), damaged ? MST_OK : MST_EEXIST);
    }
    write_manifest(s, 1, "{\"state\": \"done\"}");
    assert_int_equal(mst_sweep_load(s, MST_SWEEP_RUNS), MST_OK);
    assert_int_equal(s->cells[0].state, MST_CELL_PENDING);
    assert_int_equal(s->cells[1].state, MST_CELL_DONE);
    assert_int_equal(mst_sweep_mark(&s->cells[1], MST_CELL_PENDING, NULL), MST_OK);
    FILE *f = fopen(path, "w"); /* right in its form, wrong in every part */
    assert_non_null(f);
    fputs("{\"format\": \"muster-sweep\", \"spec\": 5, \"cells\": [1, {}, {\"name\": 3}, {\"name\": "
          "\"batch1\", "
          "\"command\": [], \"seconds\": \"x\"}], \"search\": 4}",
          f);
    fclose(f);
    assert_int_equal(mst_sweep_load(s, MST_SWEEP_SAME), MST_EEXIST);
    assert_int_equal(mst_sweep_load(s, MST_SWEEP_EXTEND), MST_OK);
    mst_free(path);
    mst_sweep_destroy(s);
}

/* Reports of sweeps of which nothing is there, or nothing that can be read. */
static void reports_on_nothing(void **state)
{
    const char *folder = *state;
    mst_sweep *s = sweep_of(
        "files: <a>\nfor: {until: test_loss<=1, rows: 9}\ntrain: {test: t}\ngrid: {batch: [1, 2], mode: "
        "[sync, async]}\n"
        "repeats: 2\n",
        folder);
    mst_sweep_report *report = NULL;
    mst_string text = {0};
    assert_int_equal(mst_sweep_mark(&s->cells[0], MST_CELL_DONE, NULL), MST_OK);
    write_manifest(s, 0, "{}");
    assert_int_equal(mst_sweep_mark(&s->cells[1], MST_CELL_FAILED, "<b>&"), MST_OK);
    assert_int_equal(mst_sweep_report_new(s, &report), MST_OK);
    assert_int_equal(mst_sweep_report_html(report, &text), MST_OK);
    assert_non_null(strstr(text.text, "\"\\u003cb>&\""));
    assert_null(strstr(text.text, "<b>&"));
    assert_non_null(strstr(text.text, "; at most 9 rows each"));
    assert_non_null(strstr(text.text, "default-src 'none'"));
    mst_string_fini(&text);
    mst_sweep_report_best(report, &text);
    assert_int_equal(text.size, 0);
    assert_int_equal(mst_sweep_report_write(report), MST_OK);
    json_t *json = mst_sweep_report_json(report);
    assert_int_equal(json_array_size(json_object_get(json, "results")), 4);
    json_decref(json);
    mst_string_fini(&text);
    mst_sweep_report_destroy(report);
    mst_sweep_destroy(s);
}

/* Every allocation of ours fails once: a status and no leak. */
static void memory_runs_out(void **state)
{
    const char *folder = *state;
    static const char text[] = "files: [a, b]\ntrain: {test: [x, y], lr: 0.5}\nfor: {rows: 1k}\n"
                               "grid: {strategy: [local, ps], batch: [1, 2]}\nrepeats: 2\n";
    mst_alloc_stats before;
    mst_alloc_stats_get(&before);
    for (uint64_t k = 1; k < 100000; k++) {
        json_t *spec = NULL;
        mst_sweep *s = NULL;
        mst_alloc_fail_at(k);
        mst_status st = mst_sweep_spec_parse("s.yaml", text, strlen(text), &spec);
        if (st == MST_OK)
            st = mst_sweep_new("s.yaml", folder, spec, NULL, &s);
        if (st == MST_OK)
            st = mst_sweep_save(s);
        mst_alloc_fail_at(0);
        json_decref(spec);
        mst_sweep_destroy(s);
        mst_alloc_stats now;
        mst_alloc_stats_get(&now);
        assert_int_equal(now.blocks, before.blocks);
        if (st != MST_OK && st != MST_ENOMEM && st != MST_EIO) /* EIO: of a file that is written */
            fail_msg("allocation %d: %s", (int)k, mst_error_text());
        if (st == MST_OK && k > 100)
            break;
    }
}

static int make_folder(void **state)
{
    static char folder[64];
    snprintf(folder, sizeof folder, "/tmp/muster-sweep-XXXXXX");
    if (mkdtemp(folder) == NULL)
        return -1;
    *state = folder;
    return 0;
}

static int remove_folder(void **state)
{
    return mst_remove_tree(*state) == MST_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(errors),
        cmocka_unit_test(cells),
        cmocka_unit_test(metrics),
        cmocka_unit_test(hold_outs),
        cmocka_unit_test(threads),
        cmocka_unit_test(rules),
        cmocka_unit_test_setup_teardown(goes_on, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(foreign, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(reports_on_nothing, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(memory_runs_out, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
