/* `muster eval`: loss, accuracy, top-5 accuracy and AUC of a trained model on a data set. */
#include <math.h>

#include "cli/cli.h"
#include "cli/cmd_apply.h"
#include "cli/signals.h"
#include "cli/table.h"
#include "train/evaluate.h"

static const mst_option *const tables[] = {mst_apply_table, mst_data_option_table, mst_augment_option_table,
                                           mst_cli_json_table, NULL};

static mst_status print_result(const mst_result *r, bool json)
{
    static const mst_column columns[] = {{"name", false}, {"value", true}};
    mst_table *t;
    TRY(mst_table_new(columns, 2, &t));
    mst_table_text(t, "rows");
    mst_table_count(t, r->rows);
    mst_table_text(t, "loss");
    mst_table_real(t, r->loss, 6);
    mst_table_text(t, "accuracy");
    mst_table_real(t, r->accuracy, 6);
    if (isfinite(r->top5)) {
        mst_table_text(t, "top5");
        mst_table_real(t, r->top5, 6);
    }
    if (isfinite(r->auc)) {
        mst_table_text(t, "auc");
        mst_table_real(t, r->auc, 6);
    }
    mst_table_text(t, "seconds");
    mst_table_real(t, r->seconds, 3);
    mst_status st = json ? mst_cli_print_json(mst_table_json_facts(t)) : mst_table_print(t, NULL, false);
    mst_table_destroy(t);
    return st;
}

static mst_status run(int argc, char **argv)
{
    mst_apply apply = {0};
    mst_cli_json json = {0};
    mst_evaluator *evaluator = NULL;
    mst_result result;
    mst_option_group groups[] = {
        {.title = "evaluation", .table = mst_apply_table, .base = &apply.options},
        {.title = "data", .table = mst_data_option_table, .base = &apply.data},
        {.title = "augmentation", .table = mst_augment_option_table, .base = &apply.augment_options},
        {.title = "output", .table = mst_cli_json_table, .base = &json},
    };
    mst_status st;
    TRY_OUT(st, mst_apply_open(&apply, &mst_cmd_eval, groups, 4, argc, argv));
    if (apply.helped)
        goto out;
    mst_evaluator_options options = {
        .n_threads = apply.n_threads,
        .batch = (uint32_t)apply.options.batch,
        .first_rows = (uint64_t)apply.options.rows,
        .stop = mst_signals_stop(),
        .augment = apply.augment.any ? &apply.augment : NULL,
    };
    TRY_OUT(st, mst_evaluator_new(apply.assembly.model, &apply.assembly.params, apply.dataset, &options,
                                  &evaluator));
    TRY_OUT(st, mst_evaluator_run(evaluator, &result));
    if (result.rows == 0)
        st = mst_fail(MST_EINPUT, "%s: no rows to evaluate", apply.dataset->name);
    else
        st = print_result(&result, json.json);
out:
    mst_evaluator_destroy(evaluator);
    mst_apply_close(&apply);
    mst_options_fini(groups, 4);
    return st;
}

const mst_command mst_cmd_eval = {
    .name = "eval",
    .summary = "evaluate a trained model on a data set",
    .run = run,
    .usage = "eval CHECKPOINT FILE... [options]",
    .details = "CHECKPOINT is a run directory (its newest checkpoint), a checkpoint, or RUN/best. How rows "
               "are read\n"
               "(index base, hashing, feature names) is taken from training unless given.\n",
    .tables = tables,
};
