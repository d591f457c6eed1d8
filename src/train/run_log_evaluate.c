/* Evaluations in the run log: their lines, --patience and --until; contract in run_log.h. */
#include <inttypes.h>
#include <math.h>

#include "base/log.h"
#include "train/run_log_impl.h"

void mst_run_log_evaluation_begins(mst_run_log *self)
{
    const mst_train_options *o = self->options.train;
    self->evals.under_way = true;
    self->evals.incomplete = o->test.n > 0 || o->valid != NULL;
    self->evals.at = self->status;
    self->evals.step = self->progress.steps;
    mst_add_loss(&self->evals.loss, &self->line_loss);
    self->line_loss = (mst_loss_sum){0};
    mst_run_log_schedule(self, &self->eval_due);
    if (self->evals.incomplete)
        mst_run_log_mark_step(self, "evaluate_begin", self->status.step);
}

bool mst_run_log_evaluation_pending(const mst_run_log *self)
{
    return self->evals.incomplete && !self->evals.under_way;
}

static mst_status run_log_record(mst_run_log *self, const mst_train_callbacks *callbacks, const char *name,
                                 const mst_result *result, mst_result *last)
{
    if (result == NULL || result->rows == 0)
        return MST_OK;
    *last = *result;
    self->status.eval_seconds += result->seconds;
    self->evals.at.eval_seconds = self->status.eval_seconds;
    self->evals.count++;
    if (isinf(result->loss) && !self->evals.warned)
        mst_warn("the %s loss of step %" PRIu64
                 " is not finite: scores are too large for it; lower --lr, use "
                 "--clip-norm, or check the values of the rows",
                 name, self->evals.at.step);
    self->evals.warned |= isinf(result->loss);
    TRY(mst_run_log_write_line(self, &self->evals.at, &self->evals.loss, name, result));
    if (callbacks->evaluated != NULL)
        callbacks->evaluated(callbacks->arg, &self->evals.at, name, result);
    return MST_OK;
}

static double run_log_metric(const mst_run_log *self, mst_metric metric)
{
    const mst_result *test = &self->evals.test, *valid = &self->evals.valid;
    const double values[MST_METRIC_COUNT] = {
        [MST_METRIC_TRAIN_LOSS] = self->evals.train_loss,
        [MST_METRIC_TRAIN_ACCURACY] = self->evals.train_accuracy,
        [MST_METRIC_TEST_LOSS] = test->loss,
        [MST_METRIC_TEST_ACCURACY] = test->accuracy,
        [MST_METRIC_TEST_AUC] = test->auc,
        [MST_METRIC_TEST_TOP5] = test->top5,
        [MST_METRIC_TEST_GROUPED_AUC] = test->grouped_auc,
        [MST_METRIC_TEST_NORMALISED_ENTROPY] = test->normalised_entropy,
        [MST_METRIC_VALID_LOSS] = valid->loss,
        [MST_METRIC_VALID_ACCURACY] = valid->accuracy,
        [MST_METRIC_VALID_AUC] = valid->auc,
        [MST_METRIC_VALID_TOP5] = valid->top5,
        [MST_METRIC_VALID_GROUPED_AUC] = valid->grouped_auc,
        [MST_METRIC_VALID_NORMALISED_ENTROPY] = valid->normalised_entropy,
    };
    return values[metric];
}

/* *best: the loss on --valid is better than all before. True when --patience is used up. */
static bool run_log_patience_over(mst_run_log *self, bool *best)
{
    if (self->options.train->patience == 0)
        return false;
    *best = self->evals.valid.loss < self->evals.best_valid_loss;
    if (!*best)
        return ++self->evals.since_best >= (uint64_t)self->options.train->patience;
    self->evals.best_valid_loss = self->evals.valid.loss;
    self->evals.best_step = self->evals.at.step;
    self->evals.since_best = 0;
    return false;
}

mst_status mst_run_log_evaluated(mst_run_log *self, const mst_train_callbacks *callbacks,
                                 const mst_result *valid, const mst_result *test, mst_eval_outcome *out)
{
    const mst_run_schedule *schedule = &self->options.schedule;
    mst_eval_outcome outcome = {0};
    TRY(run_log_record(self, callbacks, "valid", valid, &self->evals.valid));
    TRY(run_log_record(self, callbacks, "test", test, &self->evals.test));
    if (self->evals.incomplete)
        mst_run_log_mark_step(self, "evaluate_end", self->evals.at.step);
    else
        TRY(mst_run_log_write_line(self, &self->evals.at, &self->evals.loss, "", NULL));
    self->evals.under_way = self->evals.incomplete = false;
    if (self->evals.loss.rows > 0) {
        mst_loss_sum recent = mst_loss_window_sum(&self->evals.window, &self->evals.loss);
        self->evals.train_loss = mst_mean_loss(&recent);
        self->evals.train_accuracy = mst_mean_accuracy(&recent);
    }
    mst_loss_window_close(&self->evals.window, &self->evals.loss);
    self->evals.loss = (mst_loss_sum){0};
    bool enough = run_log_patience_over(self, &outcome.best);
    bool met = schedule->has_until &&
               mst_condition_holds(&schedule->until, run_log_metric(self, schedule->until.metric));
    outcome.over = met || enough;
    outcome.end = met ? MST_END_UNTIL : MST_END_PATIENCE;
    *out = outcome;
    return MST_OK;
}
