/* The training loop; contract in training.h.
 *
 * The loop lets the strategy run until the run log has something due: an evaluation, a checkpoint, the end,
 * or a fraction of a second for the progress line. Time in the strategy is training time, waiting for input
 * included; evaluation and saving are counted apart.
 *
 * A checkpoint holds everything that a resumed run needs to continue bit for bit: weights, optimizer state,
 * step, rows, and the position in the epoch's order of rows, which the seed determines. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "train/run_graph.h"
#include "train/training.h"

/* One call of mst_training_run. */
typedef struct training_loop {
    mst_training *training;
    const mst_train_callbacks *callbacks;
    mst_progress progress;
    mst_end end;
    bool rescue; /* reading rows or an evaluation has failed; the steps before it are whole */
    uint64_t begun_ns, histogram_ns; /* when the run began; time spent on histograms */
} training_loop;

void mst_training_report_every(mst_training *self, uint64_t n)
{
    self->report_every = n;
}

static bool loop_stop_requested(const training_loop *self)
{
    const atomic_bool *stop = self->training->config.stop;
    return stop != NULL && atomic_load(stop);
}

/* ---- evaluations ---- */

/* The progress of an evaluation, for callbacks->evaluating. */
typedef struct eval_progress {
    const mst_train_callbacks *callbacks;
    const char *set;
} eval_progress;

static void loop_on_evaluating(void *arg, uint64_t rows, uint64_t correct)
{
    const eval_progress *p = arg;
    p->callbacks->evaluating(p->callbacks->arg, p->set, rows, correct);
}

/* Evaluates a set, if there is one; *out has 0 rows otherwise. */
static mst_status loop_evaluate_set(const training_loop *self, const mst_eval_set *set, const char *name,
                                    mst_result *out)
{
    eval_progress progress = {self->callbacks, name};
    *out = (mst_result){0};
    if (set->evaluator == NULL)
        return MST_OK;
    if (self->callbacks->evaluating != NULL)
        mst_evaluator_on_progress(set->evaluator, loop_on_evaluating, &progress);
    mst_status st = mst_evaluator_run(set->evaluator, out);
    mst_evaluator_on_progress(set->evaluator, NULL, NULL);
    TRY(st);
    if (out->rows == 0)
        return mst_fail(MST_EINPUT, "%s: the %s set has no rows", set->dataset->name, name);
    return MST_OK;
}

/* The weights in rows as stretches of `out`: by rows of several weights, the keys of each place in a group,
 * first weights and others. Returns their number. */
static size_t loop_row_stretches(const mst_key_rows *rows, mst_stretch out[2 * MST_ROW_GROUP])
{
    uint64_t n_keys = (rows->end - rows->first) / rows->width, head = rows->n_keys - n_keys;
    size_t n = 0;
    if (!rows->grouped) {
        *out = (mst_stretch){.values = mst_key_first(rows, head),
                             .n = n_keys * rows->width,
                             .width = rows->width,
                             .stride = rows->stride};
        return 1;
    }
    for (uint64_t q = 0; q < MST_ROW_GROUP && q < n_keys; q++) {
        uint64_t keys = (n_keys - q + MST_ROW_GROUP - 1) / MST_ROW_GROUP;
        mst_stretch firsts = {.values = mst_key_first(rows, head + q),
                              .n = keys,
                              .width = 1,
                              .stride = MST_ROW_GROUP * rows->stride};
        mst_stretch others = firsts;
        others.values = mst_key_rest(rows, head + q);
        others.width = rows->width - 1;
        others.n = keys * others.width;
        out[n++] = firsts;
        out[n++] = others;
    }
    return n;
}

/* The weights of a view: the part in front of its rows, if it has any, and the rows. */
static void loop_observe_view(mst_observe *observe, uint64_t step, const char *tag, const mst_params *params,
                              const mst_view *view)
{
    mst_stretch stretches[1 + 2 * MST_ROW_GROUP];
    bool in_rows = mst_params_in_rows(params, view->offset, view->size);
    uint64_t in_front = in_rows ? params->rows.first - view->offset : view->size;
    size_t n = in_front > 0;
    if (in_front > 0)
        *stretches = (mst_stretch){.values = params->w + view->offset, .n = in_front};
    if (in_rows)
        n += loop_row_stretches(&params->rows, stretches + n);
    mst_observe_stretches(observe, step, tag, stretches, n);
}

/* Gives the observer histograms of the views, and of the dense ranges of the last gradient, as long as they
 * take less than a hundredth of the run's time. */
static void loop_observe_weights(training_loop *self)
{
    const mst_training *t = self->training;
    const mst_params *params = &t->assembly.params;
    const mst_strategy *strategy = t->strategy;
    const mst_grad *grad = strategy->ops->gradient != NULL ? strategy->ops->gradient(strategy) : NULL;
    uint64_t start = mst_now_ns(), step = self->progress.steps;
    char tag[64];
    if (t->observe == NULL || self->histogram_ns > (start - self->begun_ns) / MST_HISTOGRAM_SHARE)
        return;
    for (uint32_t v = 0; v < params->n_views; v++) {
        const mst_view *view = &params->views[v];
        snprintf(tag, sizeof tag, "weights/%s", view->name);
        loop_observe_view(t->observe, step, tag, params, view);
        for (uint32_t r = 0; grad != NULL && r < grad->n_ranges; r++) {
            const mst_range *range = &grad->ranges[r];
            if (range->state || view->offset < range->offset ||
                view->offset + view->size > range->offset + range->size)
                continue;
            snprintf(tag, sizeof tag, "gradients/%s", view->name);
            mst_observe_histogram(t->observe, step, tag, range->g + (view->offset - range->offset),
                                  view->size);
        }
    }
    self->histogram_ns += mst_now_ns() - start;
}

/* Evaluates all sets; *over when that ends the run. A resumed run first completes an evaluation that a stop
 * interrupted. */
static mst_status loop_evaluate(training_loop *self, bool *over)
{
    mst_training *t = self->training;
    mst_result valid, test;
    mst_eval_outcome outcome;
    bool sets = t->data.test.evaluator != NULL || t->data.valid.evaluator != NULL;
    TRY(mst_strategy_settle(t->strategy));
    mst_run_log_evaluation_begins(t->log);
    if (sets)
        mst_span_enter(MST_PHASE_EVALUATE);
    mst_status st = sets && loop_stop_requested(self) ? MST_ESTOPPED : MST_OK;
    if (st == MST_OK)
        st = loop_evaluate_set(self, &t->data.valid, "valid", &valid);
    if (st == MST_OK)
        st = loop_evaluate_set(self, &t->data.test, "test", &test);
    loop_observe_weights(self);
    mst_span_enter(MST_PHASE_IDLE);
    if (st == MST_ESTOPPED) {
        *over = true;
        self->end = MST_END_STOPPED;
        return MST_OK;
    }
    self->rescue = st != MST_OK;
    TRY(st);
    TRY(mst_run_log_evaluated(t->log, self->callbacks, &valid, &test, &outcome));
    if (outcome.best)
        TRY(mst_run_log_save_best(t->log, &t->assembly.params));
    if (outcome.over) {
        *over = true;
        self->end = outcome.end;
    }
    return MST_OK;
}

/* ---- steps ---- */

/* Runs the strategy until something is due; *ended when that ended an epoch. */
static mst_status loop_advance(training_loop *self, bool *ended)
{
    mst_training *t = self->training;
    mst_dataset *dataset = t->data.dataset;
    mst_progress *p = &self->progress;
    mst_budget budget;
    mst_run_log_budget(t->log, &budget);
    if (t->report_every > 0) {
        uint64_t left = t->report_every - p->steps % t->report_every;
        budget.steps = left < budget.steps ? left : budget.steps;
    }
    uint64_t start = mst_now_ns(), position = p->position, rows = p->rows;
    p->loss = (mst_loss_sum){0};
    p->epoch_ended = false;
    mst_status st = t->strategy->ops->run(t->strategy, t->data.feed, &budget, p);
    if (st == MST_OK) /* before an evaluation or a checkpoint uses it */
        st = mst_params_kept(&t->assembly.params, dataset);
    p->seconds += mst_seconds_since(start);
    if (st == MST_ESTOPPED)
        st = MST_OK; /* the run log reads the flag itself */
    if (st != MST_OK) {
        mst_error error;
        mst_error_save(&error, st);
        p->position = position + (p->rows - rows);
        bool finite = mst_run_log_progress(t->log, p) == MST_OK; /* the steps before the failure */
        self->rescue = st == MST_EINPUT && finite && t->config.role == MST_TRAINING_LOCAL;
        return mst_error_restore(&error);
    }
    p->epoch_rows = mst_feed_epoch_rows(t->data.feed);
    *ended = p->epoch_ended || (dataset->random && p->epoch_rows > 0 && p->position >= p->epoch_rows);
    if (*ended && p->position == 0)
        return mst_fail(MST_EINPUT, "%s: no rows to train on", dataset->name);
    if (*ended) {
        p->epoch++;
        p->position = 0;
    }
    return mst_run_log_progress(t->log, p);
}

static mst_status loop_save(training_loop *self)
{
    mst_training *t = self->training;
    TRY(mst_strategy_settle(t->strategy));
    if (t->strategy->ops->counts != NULL)
        TRY(mst_run_log_count_workers(t->log, t->strategy->ops->counts(t->strategy)));
    mst_span_enter(MST_PHASE_CHECKPOINT);
    mst_status st = mst_run_log_save(t->log, self->callbacks, &t->assembly.params);
    mst_span_enter(MST_PHASE_IDLE);
    return st;
}

static mst_status loop_train(training_loop *self)
{
    mst_training *t = self->training;
    const mst_train_callbacks *callbacks = self->callbacks;
    mst_progress *p = &self->progress;
    p->epoch_rows = mst_feed_epoch_rows(t->data.feed);
    TRY(mst_run_log_progress(t->log, p));
    bool over = mst_run_log_due(t->log, &self->end) & MST_DUE_END, ended = false;
    if (mst_run_log_evaluation_pending(t->log))
        TRY(loop_evaluate(self, &over));
    if (!over)
        TRY(mst_feed_start(t->data.feed, p->epoch, p->position));
    if (!over && t->strategy->ops->ready != NULL)
        TRY(t->strategy->ops->ready(t->strategy, t->data.feed));
    while (!over) {
        TRY(loop_advance(self, &ended));
        if (callbacks->progress != NULL)
            callbacks->progress(callbacks->arg, mst_run_log_status(t->log));
        unsigned due = mst_run_log_due(t->log, &self->end);
        over = due & MST_DUE_END;
        if (due & MST_DUE_EVAL)
            TRY(loop_evaluate(self, &over));
        else
            TRY(mst_run_log_line(t->log));
        if (due & MST_DUE_SAVE)
            TRY(loop_save(self));
        if (ended && !over)
            TRY(mst_feed_start(t->data.feed, p->epoch, 0));
    }
    mst_observe_end_interval(t->observe); /* the last save does not count as training */
    return loop_save(self);
}

/* Bad input or a failed evaluation ends the run: saves the steps before it, those from `first` on, or states
 * that there is none. Returns st with its message. */
static mst_status loop_rescue(training_loop *self, uint64_t first, mst_status st)
{
    mst_error error;
    mst_error_save(&error, st);
    size_t n = strlen(error.text);
    if (self->progress.steps == first)
        snprintf(error.text + n, sizeof error.text - n, "; no step was trained%s",
                 first > 0 ? " since the run was resumed" : "");
    if (mst_run_log_keeps_failure(self->training->log) && loop_save(self) != MST_OK)
        mst_warn("no last checkpoint is saved: %s", mst_error_text());
    return mst_error_restore(&error);
}

/* ---- a run ---- */

/* Starts the observer of the run and the spans of its threads. */
static void loop_observe(training_loop *self)
{
    mst_training *t = self->training;
    bool rank = t->config.role == MST_TRAINING_RANK;
    const char *place = rank ? "/job:rank" : "/job:local";
    mst_training_observe(t, self->progress.steps);
    self->begun_ns = mst_now_ns();
    t->strategy->env.spans = mst_observe_spans(t->observe);
    mst_spans_attach(t->strategy->env.spans, 0, MST_PHASE_IDLE);
    mst_run_log_observe(t->log, t->observe);
    mst_run_graph_report(t->observe, &t->assembly, &t->optimizer,
                         &(mst_run_places){.compute = place, .store = place});
    if (t->config.observed != NULL)
        t->config.observed(t->config.observed_arg, t->observe);
}

static mst_status loop_report_workers(mst_training *t)
{
    json_decref(t->workers);
    t->workers = NULL;
    json_t *here = NULL;
    TRY(t->strategy->ops->report(t->strategy, &here));
    TRY(mst_run_log_count_workers(t->log, here));
    t->workers = json_incref(mst_run_log_workers(t->log));
    return MST_OK;
}

mst_status mst_training_run(mst_training *self, const mst_train_callbacks *callbacks,
                            mst_train_summary *summary)
{
    training_loop loop = {.training = self,
                          .callbacks = callbacks,
                          .progress = *mst_run_log_at(self->log),
                          .end = MST_END_STOPPED};
    const uint64_t first = loop.progress.steps;
    memset(summary, 0, sizeof *summary);
    mst_status st = mst_training_open_run(self);
    if (st == MST_OK) {
        loop_observe(&loop);
        if (callbacks->began != NULL)
            callbacks->began(callbacks->arg, mst_run_log_path(self->log));
        st = loop_train(&loop);
        if (loop.rescue)
            st = loop_rescue(&loop, first, st);
        mst_span_enter(MST_PHASE_CHECKPOINT); /* the last one may still be under way */
    }
    if (st == MST_OK && self->strategy->ops->report != NULL)
        st = loop_report_workers(self);
    if (st == MST_OK)
        st = mst_training_note_skipped(self, mst_dataset_skipped(self->data.dataset), summary);
    if (st == MST_OK)
        st = mst_run_log_finish(self->log, loop.end, summary);
    if (st == MST_OK) {
        summary->feed_wait_seconds = mst_feed_wait_seconds(self->data.feed);
        mst_train_data_warn_skipped(&self->data);
    } else {
        st = mst_run_log_give_up(self->log, st);
    }
    mst_spans_detach();
    mst_training_write_verdict(self);
    return st;
}
