/* `muster eval`: loss, accuracy, AUC, calibration and other figures of a trained model on a data set, with
 * the accuracy so far as progress. */
#include <math.h>

#include "base/signals.h"
#include "cli/cli.h"
#include "cli/cmd_apply.h"
#include "cli/progress_line.h"
#include "cli/result_table.h"
#include "train/evaluate.h"

typedef struct eval_options {
    int64_t accuracy_every;
    char *auc_by;
    bool quiet, json;
    mst_apply apply;
} eval_options;

#define FIELD(name) offsetof(eval_options, name)
static const mst_option eval_table[] = {
    {.name = "accuracy-every",
     .type = MST_OPTION_INT,
     .offset = FIELD(accuracy_every),
     .fallback = "0",
     .min = 0,
     .max = 1e15,
     .metavar = "N",
     .help = "Print the accuracy of the first N rows, of the first 2N, and so on, and of all rows; 0: at the "
             "intervals of the progress display."},
    {.name = "auc-by",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(auc_by),
     .fallback = "-1",
     .metavar = "FIELD",
     .help = "Also print the grouped AUC: the mean AUC within groups of rows that have the same key in this "
             "field, a number from 0 or its name in the data, weighted by rows. -1: off."},
    {.name = "quiet", .type = MST_OPTION_FLAG, .offset = FIELD(quiet), .help = "Print no progress."},
    {.name = NULL},
};

static const mst_command_group eval_groups[] = {{"evaluation", eval_table, 0},
                                                MST_APPLY_GROUPS(eval_options),
                                                {"output", mst_cli_json_table, FIELD(json)},
                                                {.table = NULL}};

/* ---- on the way ---- */

typedef struct view {
    mst_bar bar;
    uint64_t every, next;   /* rows; 0: by the clock */
    uint64_t rows, correct; /* at the last line */
    bool shown;             /* on a line */
} view;

static void eval_on_rows(void *arg, uint64_t rows, uint64_t correct)
{
    view *v = arg;
    char line[128];
    v->rows = rows;
    v->correct = correct;
    v->shown = false;
    if (v->every > 0 ? rows < v->next : !mst_bar_due(&v->bar))
        return;
    mst_text_accuracy("", rows, correct, line, sizeof line);
    if (v->every == 0) {
        mst_bar_show(line);
        return;
    }
    mst_bar_line(line);
    v->shown = true;
    v->next = (rows / v->every + 1) * v->every;
}

/* The rows after the last multiple of N. */
static void eval_on_last_rows(view *v)
{
    char line[128];
    if (v->every == 0 || v->rows == 0 || v->shown)
        return;
    mst_text_accuracy("", v->rows, v->correct, line, sizeof line);
    mst_bar_line(line);
}

/* ---- at the end ---- */

static mst_status eval_print_result(const mst_result *r, const char *checkpoint, bool json)
{
    mst_table *t, *tenths = NULL;
    json_t *facts = NULL;
    mst_status st;
    TRY(mst_facts_new(true, &t));
    mst_facts_add_result(t, "", r, 6);
    mst_table_real(mst_fact(t, "seconds"), r->seconds, 3);
    mst_table_text(mst_fact(t, "checkpoint"), checkpoint);
    TRY_OUT(st, mst_tenths_table(r, &tenths));
    if (json) {
        facts = mst_table_json_facts(t);
        if (facts != NULL && tenths != NULL)
            json_object_set_new(facts, "calibration_tenths", mst_table_json(tenths));
        st = mst_cli_print_json(facts);
        goto out;
    }
    TRY_OUT(st, mst_table_print(t, NULL, false));
    if (tenths != NULL)
        st = mst_table_print(tenths, "\ncalibration by tenths of the rows, lowest scores first", true);
out:
    mst_table_destroy(tenths);
    mst_table_destroy(t);
    return st;
}

static mst_status eval_run(mst_call *call)
{
    eval_options *own = call->options;
    mst_apply *apply = &own->apply;
    mst_evaluator *evaluator = NULL;
    mst_result result;
    mst_status st;
    TRY_OUT(st, mst_apply_open(apply, call));
    mst_evaluator_options options = {
        .n_threads = apply->n_threads,
        .batch = (uint32_t)apply->options.batch,
        .split_every = (uint64_t)own->accuracy_every,
        .auc_by = own->auc_by,
        .first_rows = (uint64_t)apply->options.rows,
        .strict_features = apply->use.strict_features,
        .finite_scores = true,
        .stop = mst_signals_stop(),
        .augment = apply->augment.any ? &apply->augment : NULL,
    };
    TRY_OUT(st, mst_evaluator_new(apply->assembly.model, &apply->assembly.params, apply->dataset, &options,
                                  &evaluator));
    view v = {.every = (uint64_t)own->accuracy_every, .next = (uint64_t)own->accuracy_every};
    mst_bar_start(&v.bar, "evaluating", "rows", 0);
    if (!own->quiet)
        mst_evaluator_on_progress(evaluator, eval_on_rows, &v);
    st = mst_evaluator_run(evaluator, &result);
    if (st == MST_OK)
        eval_on_last_rows(&v);
    mst_bar_end(&v.bar);
    if (st != MST_OK)
        goto out;
    if (result.rows == 0)
        TRY_OUT(st, mst_fail(MST_EINPUT, "%s: no rows to evaluate", apply->dataset->name));
    mst_cli_unseen("", result.unseen, result.rows);
    mst_dataset_warn_skipped(apply->dataset);
    st = eval_print_result(&result, apply->checkpoint, own->json);
out:
    mst_evaluator_destroy(evaluator);
    mst_apply_close(apply);
    return st;
}

const mst_command mst_cmd_eval = {
    .name = "eval",
    .summary = "evaluate a trained model on a data set",
    .run = eval_run,
    .usage = "eval CHECKPOINT FILE... [options]",
    .details = "CHECKPOINT is a checkpoint or a run. Of a run, the newest checkpoint is used, or with "
               "--patience the one with the best valid loss (--last: the newest). Options that describe the "
               "data (index base, hashing, columns) default to those of the training.\n",
    .groups = eval_groups,
    .options_size = sizeof(eval_options),
    .examples = "muster eval runs/clicks clicks-test.cache\n",
};
