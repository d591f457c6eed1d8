/* The run log of a coordinator: figures that arrive later than their step, checkpoints whose floats arrive in
 * pieces, limits known in advance; and the files of a run after every kind of end. */
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "state_names.h"
#include "train/run_log_impl.h"

static char root[64], run[96];
static mst_params params;
static mst_optimizer optimizer;
static atomic_bool stop;

/* The events of an observer. */
static struct {
    int evaluated, saved;
    uint64_t evaluated_step, saved_step;
} heard;

static void on_evaluated(void *arg, const mst_train_status *status, const char *set, const mst_result *result)
{
    (void)arg, (void)set, (void)result;
    heard.evaluated++;
    heard.evaluated_step = status->step;
}

static void on_saved(void *arg, const mst_train_status *status, const char *path)
{
    (void)arg;
    assert_string_equal(path, run);
    heard.saved++;
    heard.saved_step = status->step;
}

static const mst_train_callbacks observer = {.evaluated = on_evaluated, .saved = on_saved};

static int set_up(void **state)
{
    (void)state;
    strcpy(root, "/tmp/muster-test-XXXXXX");
    assert_non_null(mkdtemp(root));
    snprintf(run, sizeof run, "%s/run", root);
    memset(&heard, 0, sizeof heard);
    memset(&params, 0, sizeof params);
    atomic_store(&stop, false);
    assert_int_equal(
        mst_optimizer_init(
            &optimizer,
            &(mst_optim_options){.optimizer = 2, .lr = 0.25, .eps = 1e-8, .decay_steps = 1, .decay = 0.5}),
        MST_OK);
    assert_string_equal(optimizer.ops->name, "adagrad");
    assert_int_equal(mst_params_add(&params, "weight", MST_VIEW_TRAINABLE, 0, 1, (uint64_t[]){60}, NULL),
                     MST_OK);
    assert_int_equal(reserve_named(&params, optimizer.ops->n_slots, 0), MST_OK);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    mst_params_fini(&params);
    return mst_remove_tree(root) == MST_OK ? 0 : -1;
}

static char *sets[] = {"test.svm"};

static mst_train_options make_options(void)
{
    return (mst_train_options){
        .epochs = 1,
        .eval_every = "never",
        .checkpoint_every = "never",
        .run = run,
        .save = true,
        .keep = 2,
    };
}

static mst_run_log *make_run_log(const mst_train_options *options)
{
    mst_run_log *run_log = NULL;
    mst_run_log_options o = {
        .train = options,
        .global_batch = 10,
        .optimizer = &optimizer,
        .model_name = "logreg",
        .model = json_pack("{s:s}", "name", "logreg"),
        .stop = &stop,
    };
    assert_int_equal(mst_run_schedule_parse(options, true, &o.schedule), MST_OK);
    assert_int_equal(mst_run_log_new(&o, &run_log), MST_OK);
    json_decref(o.model);
    return run_log;
}

static mst_run_log *open_run_log(const mst_train_options *options)
{
    mst_run_log *run_log = make_run_log(options);
    json_t *entries = json_pack("{s:i}", "servers", 2);
    assert_int_equal(mst_run_log_open(run_log, entries), MST_OK);
    json_decref(entries);
    assert_string_equal(mst_run_log_path(run_log), run);
    return run_log;
}

/* Ten rows a step, each of this loss; an epoch has a thousand rows. One step a tenth of a second. */
static void train(mst_run_log *run_log, uint64_t steps, double loss)
{
    mst_progress p = *mst_run_log_at(run_log);
    p.steps += steps;
    p.rows += steps * 10;
    p.epoch = p.rows / 1000;
    p.position = p.rows % 1000;
    p.loss =
        (mst_loss_sum){.loss = loss * 10 * (double)steps, .weight = 10 * (double)steps, .rows = steps * 10};
    p.epoch_rows = 1000;
    p.seconds += 0.1 * (double)steps;
    assert_int_equal(mst_run_log_progress(run_log, &p), MST_OK);
}

static mst_eval_outcome evaluated(mst_run_log *run_log, double valid, double test)
{
    mst_eval_outcome verdict;
    mst_result v = {.rows = 5, .loss = valid, .accuracy = NAN, .auc = NAN, .seconds = 0.5},
               t = {.rows = 5, .loss = test, .accuracy = NAN, .auc = NAN, .seconds = 0.25};
    assert_int_equal(mst_run_log_evaluated(run_log, &observer, isnan(valid) ? NULL : &v,
                                           isnan(test) ? NULL : &t, &verdict),
                     MST_OK);
    return verdict;
}

static char *text_of(const char *file)
{
    char path[160], *text = NULL;
    size_t size;
    snprintf(path, sizeof path, "%s/%s", run, file);
    assert_int_equal(mst_file_read_all(path, 1 << 20, &text, &size), MST_OK);
    return text;
}

static void expect_in(const char *file, const char *wanted, bool there)
{
    char *text = text_of(file);
    if ((strstr(text, wanted) != NULL) != there)
        fail_msg("%s in %s:\n%s", there ? "missing" : "unwanted", file, text);
    mst_free(text);
}

static bool exists(const char *file)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", run, file);
    return mst_path_exists(path);
}

static void finish(mst_run_log *run_log, mst_end end, mst_train_summary *summary)
{
    assert_int_equal(mst_run_log_save(run_log, &observer, &params), MST_OK);
    assert_int_equal(mst_run_log_finish(run_log, end, summary), MST_OK);
    mst_run_log_destroy(run_log);
}

static void test_due_and_limits(void **state)
{
    (void)state;
    mst_train_options o = make_options();
    o.steps = 25;
    o.rows = 900;
    o.eval_every = "10 steps";
    o.checkpoint_every = "150 rows";
    mst_run_log *run_log = open_run_log(&o);
    uint64_t steps, rows, epochs;
    mst_budget budget;
    mst_end end;
    mst_run_log_limits(run_log, &steps, &rows, &epochs);
    assert_int_equal(steps, 25);
    assert_int_equal(rows, 900);
    assert_true(epochs == UINT64_MAX); /* --epochs was not given: the others lift it */
    mst_run_log_budget(run_log, &budget);
    assert_int_equal(budget.steps, 10);
    assert_int_equal(budget.rows, 150);
    assert_int_equal(mst_run_log_due(run_log, &end), 0);
    train(run_log, 10, 1.0);
    assert_int_equal(mst_run_log_due(run_log, &end), MST_DUE_EVAL);
    assert_int_equal(mst_run_log_due(run_log, &end), MST_DUE_EVAL); /* until it begins */
    mst_run_log_evaluation_begins(run_log);
    assert_int_equal(mst_run_log_due(run_log, &end), 0);
    train(run_log, 5, 1.0);
    assert_int_equal(mst_run_log_due(run_log, &end), MST_DUE_SAVE);
    train(run_log, 5, 1.0);
    assert_int_equal(mst_run_log_due(run_log, &end), MST_DUE_SAVE); /* an evaluation is under way */
    evaluated(run_log, NAN, NAN);
    assert_int_equal(mst_run_log_due(run_log, &end), MST_DUE_EVAL | MST_DUE_SAVE);
    assert_int_equal(mst_run_log_save(run_log, &observer, &params), MST_OK);
    assert_int_equal(mst_run_log_due(run_log, &end), MST_DUE_EVAL);
    mst_run_log_limits(run_log, &steps, &rows, &epochs);
    assert_int_equal(steps, 25);
    assert_int_equal(rows, 900);
    train(run_log, 5, 1.0);
    assert_int_equal(mst_run_log_due(run_log, &end), MST_DUE_EVAL | MST_DUE_END);
    assert_int_equal(end, MST_END_STEPS);
    mst_run_log_evaluation_begins(run_log);
    evaluated(run_log, NAN, NAN);
    assert_int_equal(mst_run_log_due(run_log, &end), MST_DUE_END);
    assert_true(mst_run_log_unsaved(run_log));
    mst_train_summary summary;
    finish(run_log, end, &summary);
    assert_int_equal(heard.saved, 2);
    assert_int_equal(heard.saved_step, 25);
    assert_int_equal(summary.end, MST_END_STEPS);
    expect_in("manifest.json", "\"servers\": 2", true);
    expect_in("manifest.json", "\"end\": \"step limit reached\"", true);
    expect_in("manifest.json", "\"state\": \"done\"", true);
}

/* An epoch of 7 steps: limits, evaluations and checkpoints count in it, and the data repeats. */
/* The progressive loss counts the first pass alone. */
static void test_progressive_loss(void **state)
{
    (void)state;
    mst_train_summary summary;
    mst_train_options o = make_options();
    mst_run_log *run_log = open_run_log(&o);
    train(run_log, 50, 1.0);
    train(run_log, 50, 0.5);
    assert_true(fabs(mst_run_log_status(run_log)->progressive_loss - 0.75) < 1e-12);
    train(run_log, 50, 0.1);
    assert_true(isnan(mst_run_log_status(run_log)->progressive_loss));
    finish(run_log, MST_END_STOPPED, &summary);
    assert_true(fabs(summary.status.progressive_loss - 0.75) < 1e-12);
}

static void test_steps_per_epoch(void **state)
{
    (void)state;
    mst_train_options o = make_options();
    o.epochs = 3;
    o.steps_per_epoch = 7;
    o.eval_every = "1 epoch";
    o.checkpoint_every = "2 epochs";
    mst_run_log *run_log = open_run_log(&o);
    uint64_t steps, rows, epochs;
    mst_budget budget;
    mst_end end;
    mst_run_log_limits(run_log, &steps, &rows, &epochs);
    assert_int_equal(steps, 21);
    assert_true(rows == UINT64_MAX && epochs == UINT64_MAX);
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        mst_run_log_budget(run_log, &budget);
        assert_int_equal(budget.steps, 7);
        train(run_log, 7, 1.0);
        unsigned due = epoch == 2 ? MST_DUE_EVAL | MST_DUE_SAVE : MST_DUE_EVAL;
        assert_int_equal(mst_run_log_due(run_log, &end), epoch == 3 ? MST_DUE_EVAL | MST_DUE_END : due);
        mst_run_log_evaluation_begins(run_log);
        evaluated(run_log, NAN, NAN);
        if (epoch == 2)
            assert_int_equal(mst_run_log_save(run_log, &observer, &params), MST_OK);
    }
    assert_int_equal(end, MST_END_EPOCHS);
    mst_train_summary summary;
    finish(run_log, end, &summary);

    o = make_options(); /* --steps ends it sooner; passes over the data do not */
    o.steps_per_epoch = 150;
    o.epochs = 2;
    o.steps = 250;
    o.overwrite = true;
    run_log = open_run_log(&o);
    train(run_log, 220, 1.0);
    assert_int_equal(mst_run_log_due(run_log, &end) & MST_DUE_END, 0);
    train(run_log, 30, 1.0);
    assert_int_equal(mst_run_log_due(run_log, &end) & MST_DUE_END, MST_DUE_END);
    assert_int_equal(end, MST_END_STEPS);
    finish(run_log, end, &summary);
}

/* A stop ends the run without an evaluation; the resumed run log makes it up. */
static void test_stop_and_resume(void **state)
{
    (void)state;
    mst_train_options o = make_options();
    mst_train_summary summary;
    mst_end end;
    o.test = (mst_text_list){.items = sets, .n = 1};
    o.eval_every = "10 steps";
    mst_run_log *run_log = open_run_log(&o);
    train(run_log, 10, 2.0);
    mst_run_log_evaluation_begins(run_log);
    train(run_log, 10, 4.0);
    atomic_store(&stop, true);
    assert_int_equal(mst_run_log_due(run_log, &end), MST_DUE_END);
    assert_int_equal(end, MST_END_STOPPED);
    finish(run_log, end, &summary);
    expect_in("manifest.json", "\"state\": \"stopped\"", true);
    assert_int_equal(heard.evaluated, 0);
    assert_true(summary.status.train_loss == 3.0);

    mst_checkpoint_meta meta;
    assert_int_equal(mst_checkpoint_read_meta(summary.checkpoint, &meta), MST_OK);
    atomic_store(&stop, false);
    o.resume = true;
    run_log = make_run_log(&o);
    mst_run_log_resume(run_log, &meta);
    mst_checkpoint_meta_fini(&meta);
    assert_int_equal(mst_run_log_open(run_log, NULL), MST_OK);
    assert_int_equal(mst_run_log_at(run_log)->steps, 20);
    train(run_log, 0, 0.0);
    assert_true(mst_run_log_evaluation_pending(run_log));
    mst_run_log_evaluation_begins(run_log);
    assert_false(mst_run_log_evaluation_pending(run_log));
    evaluated(run_log, NAN, 0.5);
    expect_in("metrics.csv", "20,200,0,2", true);
    assert_int_equal(heard.evaluated_step, 20);
    train(run_log, 80, 1.0);
    assert_int_equal(mst_run_log_due(run_log, &end), MST_DUE_EVAL | MST_DUE_END);
    assert_int_equal(end, MST_END_EPOCHS);
    finish(run_log, end, &summary);
    assert_true(summary.status.train_loss == 3.0); /* of the 20 steps before the owed evaluation */
}

/* Figures that come 7 steps late are filed where the evaluation began, and so is the loss of its line. */
static void test_late_figures(void **state)
{
    (void)state;
    mst_train_options o = make_options();
    mst_train_summary summary;
    o.test = (mst_text_list){.items = sets, .n = 1};
    o.until = "train_loss<2.5";
    o.eval_every = "1000 epochs"; /* the test begins evaluations itself */
    mst_run_log *run_log = open_run_log(&o);
    train(run_log, 10, 3.0);
    mst_run_log_evaluation_begins(run_log);
    train(run_log, 7, 1.0);
    mst_eval_outcome verdict = evaluated(run_log, NAN, 0.5);
    assert_false(verdict.over);
    assert_int_equal(heard.evaluated_step, 10);
    expect_in("metrics.csv", "\n10,100,0,1.000000,0.250000,0.25,3,test,0.5,", true);
    expect_in("metrics.csv", "\n17,", false);
    train(run_log, 3, 2.0);
    mst_run_log_evaluation_begins(run_log);
    train(run_log, 1, 50.0);
    verdict = evaluated(run_log, NAN, 0.25); /* (10 * 3 + 7 * 1 + 3 * 2) / 20: 10 steps alone are few */
    assert_true(verdict.over);
    assert_int_equal(verdict.end, MST_END_UNTIL);
    finish(run_log, verdict.end, &summary);
    assert_true(fabs(summary.status.train_loss - 2.15) < 1e-12);
    assert_int_equal(summary.n_evaluations, 2);
    assert_true(summary.test.loss == 0.25);
    assert_true(summary.status.eval_seconds == 0.5);
}

static void test_patience(void **state)
{
    (void)state;
    mst_train_options o = make_options();
    mst_train_summary summary;
    o.valid = "valid.svm";
    o.patience = 2;
    o.eval_every = "1000 epochs";
    mst_run_log *run_log = open_run_log(&o);
    static const double losses[] = {0.5, 0.4, 0.45, 0.41};
    for (int i = 0; i < 4; i++) {
        train(run_log, 10, 1.0);
        mst_run_log_evaluation_begins(run_log);
        train(run_log, 3, 1.0);
        mst_eval_outcome verdict = evaluated(run_log, losses[i], NAN);
        assert_int_equal(verdict.best, i < 2);
        assert_int_equal(verdict.over, i == 3);
        if (verdict.best)
            assert_int_equal(mst_run_log_save_best(run_log, &params), MST_OK);
    }
    finish(run_log, MST_END_PATIENCE, &summary);
    assert_true(summary.best_valid_loss == 0.4);
    assert_int_equal(summary.best_step, 23);
    assert_true(exists("best/step-000000000026/manifest.json"));
    assert_false(exists("best/step-000000000013"));
}

static const mst_part_spec halves[] = {{0, 33, 0}, {33, 31, 1}};

static mst_status give(mst_run_log *run_log)
{
    TRY(mst_run_log_save_write(run_log, 1, 0, 64, params.slots[0], false));
    TRY(mst_run_log_save_write(run_log, 0, 40, 24, params.w + 40, false));
    return mst_run_log_save_write(run_log, 0, 0, 40, params.w, false);
}

/* The metadata of a checkpoint is that of its start, and training continues in the meantime. */
static void test_save_in_pieces(void **state)
{
    (void)state;
    mst_train_options o = make_options();
    mst_train_summary summary;
    mst_checkpoint_meta meta;
    mst_end end;
    o.checkpoint_every = "10 steps";
    mst_run_log *run_log = open_run_log(&o);
    for (int i = 0; i < 60; i++)
        params.w[i] = (float)i;
    train(run_log, 10, 1.0);
    assert_int_equal(mst_run_log_due(run_log, &end), MST_DUE_SAVE);
    assert_true(mst_run_log_can_save(run_log, false));
    assert_false(mst_run_log_can_save(run_log, true)); /* no --patience */
    assert_int_equal(mst_run_log_save_begin(run_log, true, &params, halves, 2), MST_EUSAGE);
    assert_int_equal(mst_run_log_save_complete(run_log, &observer), MST_EUSAGE);
    assert_int_equal(mst_run_log_save_begin(run_log, false, &params, halves, 2), MST_OK);
    assert_int_equal(mst_run_log_save_begin(run_log, false, &params, halves, 2), MST_EUSAGE);
    assert_false(mst_run_log_can_save(run_log, false));
    assert_false(mst_run_log_unsaved(run_log));
    train(run_log, 4, 1.0);
    assert_true(mst_run_log_unsaved(run_log));
    assert_int_equal(mst_run_log_due(run_log, &end), 0);
    assert_int_equal(give(run_log), MST_OK);
    assert_int_equal(mst_run_log_save_complete(run_log, &observer), MST_OK);
    assert_int_equal(heard.saved_step, 10);
    train(run_log, 6, 1.0);
    assert_int_equal(mst_run_log_due(run_log, &end), MST_DUE_SAVE);
    /* One that is abandoned, and one that fails, count for nothing. */
    assert_int_equal(mst_run_log_save_begin(run_log, false, &params, halves, 2), MST_OK);
    mst_run_log_save_abandon(run_log);
    assert_int_equal(mst_run_log_save_begin(run_log, false, &params, halves, 2), MST_OK);
    assert_int_equal(give(run_log), MST_OK);
    assert_int_equal(mst_run_log_save_write(run_log, 0, 0, 1, params.w, false), MST_EINPUT);
    assert_int_equal(mst_run_log_save_complete(run_log, &observer), MST_EUSAGE);
    assert_true(mst_run_log_unsaved(run_log));
    assert_int_equal(mst_run_log_save_begin(run_log, false, &params, halves, 2), MST_OK);
    assert_int_equal(give(run_log), MST_OK);
    assert_int_equal(mst_run_log_save_complete(run_log, &observer), MST_OK);
    assert_false(mst_run_log_unsaved(run_log));
    assert_int_equal(mst_run_log_note(run_log, "workers", json_pack("[{s:i}]", "steps", 20)), MST_OK);
    assert_int_equal(mst_run_log_finish(run_log, MST_END_STOPPED, &summary), MST_OK);
    mst_run_log_destroy(run_log);
    expect_in("manifest.json", "\"workers\": [", true);
    assert_int_equal(heard.saved, 2);
    assert_non_null(strstr(summary.checkpoint, "step-000000000020"));
    assert_true(exists("checkpoints/step-000000000010/part-00001.safetensors"));
    assert_int_equal(mst_checkpoint_read_meta(summary.checkpoint, &meta), MST_OK);
    assert_int_equal(meta.rows, 200);
    assert_true(json_is_object(json_object_get(meta.extra, "data")));
    mst_checkpoint_meta_fini(&meta);
    mst_params loaded = {0};
    assert_int_equal(mst_params_add(&loaded, "weight", MST_VIEW_TRAINABLE, 0, 1, (uint64_t[]){60}, NULL),
                     MST_OK);
    assert_int_equal(reserve_named(&loaded, 1, 0), MST_OK);
    assert_int_equal(mst_checkpoint_load(summary.checkpoint, &loaded, true), MST_OK);
    assert_memory_equal(loaded.w, params.w, 60 * sizeof(float));
    mst_params_fini(&loaded);
}

static void save_in_seconds(mst_run_log *run_log, double seconds)
{
    mst_end end;
    assert_int_equal(mst_run_log_due(run_log, &end), MST_DUE_SAVE);
    assert_int_equal(mst_run_log_save_begin(run_log, false, &params, halves, 2), MST_OK);
    assert_int_equal(give(run_log), MST_OK);
    run_log->status.save_seconds = run_log->save.open_seconds + seconds; /* not the time that it took here */
    assert_int_equal(mst_run_log_save_complete(run_log, &observer), MST_OK);
}

/* --checkpoint-every auto: every minute, or so rarely that saving takes 2% of the time. */
static void test_auto_interval(void **state)
{
    (void)state;
    mst_train_options o = make_options();
    mst_train_summary summary;
    mst_end end;
    o.checkpoint_every = "auto";
    o.epochs = 100;
    mst_run_log *run_log = open_run_log(&o);
    train(run_log, 590, 1.0);
    assert_int_equal(mst_run_log_due(run_log, &end), 0);
    train(run_log, 10, 1.0); /* 60 s */
    save_in_seconds(run_log, 3.0);
    train(run_log, 890, 1.0);
    assert_int_equal(mst_run_log_due(run_log, &end), 0);
    train(run_log, 20, 1.0); /* 151 s: 3 s are less than 2% of 151 s */
    save_in_seconds(run_log, 0.1);
    train(run_log, 300, 1.0); /* 181 s: every minute again */
    save_in_seconds(run_log, 0.1);
    assert_int_equal(mst_run_log_finish(run_log, MST_END_STOPPED, &summary), MST_OK);
    mst_run_log_destroy(run_log);
    expect_in("manifest.json", "\"every_s\": 60.0", true);
    o.checkpoint_every = "never";
    o.overwrite = true;
    run_log = open_run_log(&o);
    train(run_log, 9000, 1.0);
    assert_int_equal(mst_run_log_due(run_log, &end), 0);
    mst_run_log_destroy(run_log);
}

/* Steps after the checkpoint that a run continues from are stated: those in metrics.csv, or those that the
 * job knows of. */
static void test_losses(void **state)
{
    (void)state;
    mst_train_options o = make_options();
    mst_train_summary summary;
    mst_run_log *run_log = open_run_log(&o);
    train(run_log, 10, 1.0);
    mst_run_log_evaluation_begins(run_log);
    evaluated(run_log, 0.5, 0.5); /* a line of metrics.csv */
    mst_run_log_destroy(run_log); /* cut off */
    o.resume = true;
    run_log = open_run_log(&o);
    expect_in("manifest.json", "\"losses\": [", true);
    expect_in("manifest.json", "\"steps\": 10,", true);
    expect_in("manifest.json", "\"rows\": 100", true);
    train(run_log, 5, 1.0);
    mst_run_log_destroy(run_log);
    run_log = make_run_log(&o);
    mst_reached reached = {.step = 15, .rows = 150, .train_seconds = 1.5};
    mst_run_log_lost(run_log, &reached, mst_now_ns() - MST_S, "server 1 died");
    assert_int_equal(mst_run_log_open(run_log, NULL), MST_OK);
    assert_true(mst_run_log_is_recovering(run_log));
    expect_in("manifest.json", "\"steps\": 10,", true); /* stays */
    expect_in("manifest.json", "\"steps\": 15,", true);
    expect_in("manifest.json", "\"rows\": 150,", true);
    expect_in("manifest.json", "\"train_seconds\": 1.5", true);
    expect_in("manifest.json", "\"why\": \"server 1 died\"", true);
    expect_in("manifest.json", "\"recovery_seconds\"", false);
    train(run_log, 1, 1.0);
    assert_false(mst_run_log_is_recovering(run_log));
    expect_in("manifest.json", "\"recovery_seconds\"", true);
    assert_int_equal(mst_run_log_process_lost(run_log, "worker-1"), MST_OK);
    mst_run_log_destroy(run_log); /* cut off */
    run_log = open_run_log(&o);
    assert_int_equal(mst_run_log_process_lost(run_log, "worker-1"), MST_OK);
    expect_in("manifest.json", "\"worker-1\": 2", true);
    finish(run_log, MST_END_STOPPED, &summary);
    assert_int_equal(summary.losses.n, 2); /* nothing in metrics.csv: the last start has lost nothing */
    assert_int_equal(summary.losses.processes, 2);
    assert_int_equal(summary.losses.steps, 25);
    assert_int_equal(summary.losses.rows, 250);
    assert_true(summary.losses.recovery_seconds >= 1.0);
}

/* A successor is recognised by its identity: its predecessor counts once, unless it had left. */
static void test_members(void **state)
{
    (void)state;
    mst_train_options o = make_options();
    mst_train_summary summary;
    mst_run_log *run_log = open_run_log(&o);
    assert_int_equal(mst_run_log_process_joined(run_log, "worker-0", "a"), MST_OK);
    assert_int_equal(mst_run_log_process_joined(run_log, "worker-1", "b"), MST_OK);
    assert_int_equal(mst_run_log_process_joined(run_log, "worker-2", "c"), MST_OK);
    assert_int_equal(mst_run_log_process_joined(run_log, "worker-3", "d"), MST_OK);
    train(run_log, 5, 1.0);
    expect_in("manifest.json", "\"worker-1\": \"b\"", true);
    assert_int_equal(mst_run_log_process_lost(run_log, "worker-3"), MST_OK);
    mst_run_log_destroy(run_log); /* cut off */
    o.resume = true;
    run_log = make_run_log(&o);
    mst_run_log_lost(run_log, &(mst_reached){0}, 0, "server 0 was started again");
    assert_int_equal(mst_run_log_open(run_log, NULL), MST_OK);
    mst_run_log_process_left(run_log, "worker-2");
    assert_int_equal(mst_run_log_process_joined(run_log, "worker-0", "a"), MST_OK); /* has joined again */
    assert_int_equal(mst_run_log_process_joined(run_log, "worker-1", "e"), MST_OK);
    assert_int_equal(mst_run_log_process_joined(run_log, "worker-2", "f"), MST_OK);
    assert_int_equal(mst_run_log_process_joined(run_log, "worker-3", "g"), MST_OK); /* counted already */
    train(run_log, 1, 1.0);
    expect_in("manifest.json", "\"worker-1\": 1", true);
    expect_in("manifest.json", "\"worker-1\": \"e\"", true);
    mst_run_log_destroy(run_log); /* cut off, and resumed by hand: every process is new */
    run_log = open_run_log(&o);
    assert_int_equal(mst_run_log_process_joined(run_log, "worker-0", "h"), MST_OK);
    finish(run_log, MST_END_STOPPED, &summary);
    assert_int_equal(summary.losses.processes, 2);
    expect_in("manifest.json", "\"members\"", false);
}

/* All processes of a job were lost: the time of the loss is that of the last line of metrics.csv. */
static void test_loss_of_all(void **state)
{
    (void)state;
    mst_train_options o = make_options();
    mst_train_summary summary;
    mst_run_log *run_log = open_run_log(&o);
    train(run_log, 5, 1.0);
    mst_run_log_destroy(run_log); /* cut off */
    struct timespec times[2] = {{.tv_sec = time(NULL) - 100}, {.tv_sec = time(NULL) - 100}};
    char path[128];
    snprintf(path, sizeof path, "%s/metrics.csv", run);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    o.resume = true;
    run_log = make_run_log(&o);
    mst_run_log_lost(run_log, &(mst_reached){0}, 0, "server 0 was started again");
    assert_int_equal(mst_run_log_open(run_log, NULL), MST_OK);
    train(run_log, 1, 1.0);
    finish(run_log, MST_END_STOPPED, &summary);
    assert_int_equal(summary.losses.n, 1);
    assert_true(summary.losses.recovery_seconds >= 99.0);
    assert_true(summary.losses.recovery_seconds < 1000.0);
}

/* The supervisor starts a lost run without a checkpoint from the beginning: its steps are lost, and earlier
 * losses stay. */
static void test_loss_from_start(void **state)
{
    (void)state;
    mst_train_options o = make_options();
    mst_train_summary summary;
    mst_run_log *run_log = open_run_log(&o);
    for (int i = 0; i < 2; i++) {
        train(run_log, 10, 1.0);
        mst_run_log_evaluation_begins(run_log);
        evaluated(run_log, 0.5, 0.5); /* a line of metrics.csv */
        mst_run_log_destroy(run_log); /* cut off */
        o.overwrite = true;
        run_log = make_run_log(&o);
        mst_run_log_lost(run_log, &(mst_reached){0}, mst_now_ns() - MST_S, "a rank was killed");
        assert_int_equal(mst_run_log_open(run_log, NULL), MST_OK);
    }
    train(run_log, 1, 1.0);
    finish(run_log, MST_END_STOPPED, &summary);
    assert_int_equal(summary.losses.n, 2);
    assert_int_equal(summary.losses.steps, 20);
    assert_int_equal(summary.losses.rows, 200);
    assert_true(summary.losses.recovery_seconds >= 2.0);
    assert_true(summary.losses.recovery_seconds < 600.0);
}

/* A run that fails before its first step leaves nothing; one that has begun stays, as failed, unless it was
 * to replace a run with a result. */
static void test_give_up(void **state)
{
    (void)state;
    mst_train_options o = make_options();
    mst_train_summary summary;
    mst_run_log *run_log = open_run_log(&o);
    assert_int_equal(mst_run_log_give_up(run_log, mst_fail(MST_EPEER, "server 1 is gone")), MST_EPEER);
    assert_string_equal(mst_error_text(), "server 1 is gone");
    assert_false(mst_path_exists(run));
    mst_run_log_destroy(run_log);

    run_log = open_run_log(&o);
    train(run_log, 1, 1.0);
    assert_int_equal(mst_run_log_give_up(run_log, mst_fail(MST_EPEER, "server 1 is gone")), MST_EPEER);
    mst_run_log_destroy(run_log);
    expect_in("manifest.json", "\"state\": \"failed\"", true);
    expect_in("manifest.json", "\"error\": \"server 1 is gone\"", true);
    expect_in("metrics.csv", "\n1,10,", true); /* steps after the last checkpoint */

    o.overwrite = true; /* nothing is lost with that */
    run_log = open_run_log(&o);
    train(run_log, 1, 1.0);
    assert_int_equal(mst_run_log_give_up(run_log, mst_fail(MST_EPEER, "server 2 is gone")), MST_EPEER);
    mst_run_log_destroy(run_log);
    expect_in("manifest.json", "\"error\": \"server 2 is gone\"", true);
    run_log = open_run_log(&o); /* before a step: that stays as it was */
    assert_int_equal(mst_run_log_give_up(run_log, mst_fail(MST_EPEER, "server 3 is gone")), MST_EPEER);
    mst_run_log_destroy(run_log);
    expect_in("manifest.json", "\"error\": \"server 2 is gone\"", true);

    run_log = open_run_log(&o);
    train(run_log, 5, 1.0);
    finish(run_log, MST_END_STOPPED, &summary);
    run_log = open_run_log(&o);
    train(run_log, 6, 1.0);
    mst_run_log_evaluation_begins(run_log);
    evaluated(run_log, NAN, NAN);
    assert_int_equal(mst_run_log_save_begin(run_log, false, &params, halves, 2), MST_OK);
    assert_int_equal(mst_run_log_give_up(run_log, mst_fail(MST_EPEER, "server 1 is gone")), MST_EPEER);
    mst_run_log_destroy(run_log);
    assert_true(exists("checkpoints/step-000000000005/manifest.json")); /* as it was */
    assert_false(exists("checkpoints/step-000000000006"));

    /* A complete checkpoint counts, even if its completion was not reported. */
    run_log = open_run_log(&o);
    train(run_log, 6, 1.0);
    assert_int_equal(mst_run_log_save_begin(run_log, false, &params, halves, 2), MST_OK);
    assert_int_equal(give(run_log), MST_OK);
    assert_int_equal(mst_run_log_save_complete(run_log, &observer), MST_OK);
    assert_int_equal(mst_run_log_give_up(run_log, mst_fail(MST_EPEER, "server 1 is gone")), MST_EPEER);
    mst_run_log_destroy(run_log);
    assert_true(exists("checkpoints/step-000000000006/manifest.json"));
    assert_false(exists("checkpoints/step-000000000005"));
    expect_in("manifest.json", "\"error\": \"server 1 is gone\"", true);
    expect_in("manifest.json", "\"state\": \"failed\"", true);
}

static void test_loss_not_finite(void **state)
{
    (void)state;
    mst_train_options o = make_options();
    mst_run_log *run_log = open_run_log(&o);
    mst_progress p = {
        .steps = 3, .rows = 30, .seconds = 1.0, .loss = {.loss = NAN, .weight = 30, .rows = 30}};
    assert_int_equal(mst_run_log_progress(run_log, &p), MST_EINPUT);
    assert_string_equal(mst_error_text(),
                        "the training loss is no longer finite by step 3: lower --lr, or use --clip-norm");
    mst_run_log_destroy(run_log); /* neither finished nor given up: the directory stays */
    assert_true(exists("manifest.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_due_and_limits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_progressive_loss, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_steps_per_epoch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stop_and_resume, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_late_figures, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_patience, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_save_in_pieces, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_auto_interval, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_losses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_members, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_loss_of_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_loss_from_start, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_give_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_loss_not_finite, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
