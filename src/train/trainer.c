/* The training loop; contract in trainer.h.
 *
 * The loop asks the strategy to run until the next moment when something is due, which the run log knows: an
 * evaluation, a checkpoint, the end, or a fraction of a second for the progress line. Time spent in the
 * strategy is training time, waiting for input included; evaluation and saving are counted apart.
 *
 * Everything that a resumed run needs to continue bit for bit is in the checkpoint: weights, optimizer state,
 * step, rows, and the position in the epoch's order of rows, which the seed determines. */
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json_text.h"
#include "train/closing.h"
#include "train/observing.h"
#include "train/run_graph.h"
#include "train/trainer_impl.h"

mst_status mst_trainer_new(const mst_train_config *config, mst_trainer **out)
{
    mst_trainer *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->config = *config;
    self->options = *config->train;
    self->data = *config->data;
    mst_status st = mst_trainer_set_up(self);
    if (st != MST_OK) {
        mst_trainer_destroy(self);
        return st == MST_ESTOPPED ? mst_fail_lead(st, "stopped", " before training began; nothing was saved")
                                  : st;
    }
    *out = self;
    return MST_OK;
}

static void set_fini(mst_eval_set *set)
{
    mst_evaluator_destroy(set->evaluator);
    mst_dataset_destroy(set->dataset);
}

void mst_trainer_destroy(mst_trainer *self)
{
    if (self == NULL)
        return;
    mst_run_log_destroy(self->log);
    mst_observe_destroy(self->observe);
    json_decref(self->data_json);
    mst_free(self->columns);
    json_decref(self->workers);
    set_fini(&self->test);
    set_fini(&self->valid);
    mst_feed_destroy(self->feed);
    mst_strategy_destroy(self->strategy);
    mst_assembly_fini(&self->assembly);
    mst_dataset_destroy(self->dataset);
    if (self->cached.table != NULL)
        mst_options_fini(&self->cached, 1);
    mst_free(self);
}

void mst_trainer_look_every(mst_trainer *self, uint64_t n)
{
    if (self != NULL)
        self->look_every = n;
}

json_t *mst_trainer_data_json(const mst_trainer *self)
{
    const mst_dataset *d = self->dataset;
    const mst_data_info *i = &d->info;
    json_t *json = json_pack("{s:o, s:s, s:b, s:I, s:I}", "source", mst_json_text(d->name), "format",
                             d->kind->name, "random_access", (int)d->random, "bytes", (json_int_t)i->bytes,
                             "dense", (json_int_t)i->n_dense);
    if (json == NULL)
        return NULL;
    if (d->live)
        json_object_set_new(json, "live", json_true());
    if (i->index_base <= 1)
        json_object_set_new(json, "index_base", json_integer(i->index_base));
    if (d->left_out.n > 0) {
        json_t *names = json_array();
        for (size_t k = 0; k < d->left_out.n; k++)
            json_array_append_new(names, mst_json_text(d->left_out.items[k]));
        json_object_set_new(json, "left_out", names);
    }
    if (i->scanned) {
        json_object_set_new(json, "rows", json_integer((json_int_t)i->n_rows));
        json_object_set_new(json, "features", json_integer((json_int_t)i->n_features));
        json_object_set_new(json, "entries", json_integer((json_int_t)i->n_entries));
        json_object_set_new(json, "labels", json_pack("[f, f]", (double)i->min_label, (double)i->max_label));
        json_object_set_new(json, "positive", json_integer((json_int_t)i->n_positive));
    }
    return json;
}

/* What the manifest says of this run, besides what the run log knows. New reference in *out. */
static mst_status describe(const mst_trainer *self, json_t **out)
{
    const mst_strategy_options *s = &self->strategy_options;
    json_t *files = json_array();
    for (size_t i = 0; i < self->config.files->n; i++)
        json_array_append_new(files, mst_json_text(self->config.files->items[i]));
    *out = json_pack("{s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:b}", "isa", mst_isa_name(self->kernels->isa),
                     "threads", (json_int_t)self->n_threads, "batch", (json_int_t)s->batch, "global_batch",
                     (json_int_t)s->global_batch, "options",
                     mst_manifest_options(self->config.options, self->data_json), "files", files, "data",
                     mst_trainer_data_json(self), "model", mst_model_json(self->assembly.model),
                     "epochs_given", (int)self->config.epochs_given);
    if (*out != NULL && self->config.manifest != NULL)
        json_object_update(*out, self->config.manifest);
    return *out != NULL ? MST_OK : mst_fail_memory();
}

static bool stop_asked(const mst_trainer *self)
{
    return self->config.stop != NULL && atomic_load(self->config.stop);
}

/* Who hears of an evaluation as it goes on. */
typedef struct listener {
    const mst_observer *observer;
    const char *set;
} listener;

static void tell_evaluating(void *arg, uint64_t rows, uint64_t correct)
{
    const listener *l = arg;
    l->observer->evaluating(l->observer->arg, l->set, rows, correct);
}

/* Evaluates a set, if there is one; *out has 0 rows otherwise. */
static mst_status measure(const mst_eval_set *set, const mst_observer *observer, const char *name,
                          mst_result *out)
{
    listener l = {observer, name};
    *out = (mst_result){0};
    if (set->evaluator == NULL)
        return MST_OK;
    if (observer != NULL && observer->evaluating != NULL)
        mst_evaluator_watch(set->evaluator, tell_evaluating, &l);
    mst_status st = mst_evaluator_run(set->evaluator, out);
    mst_evaluator_watch(set->evaluator, NULL, NULL);
    TRY(st);
    if (out->rows == 0)
        return mst_fail(MST_EINPUT, "%s: the %s set has no rows", set->dataset->name, name);
    return MST_OK;
}

static void watch_weights(mst_trainer *self)
{
    const mst_strategy *s = self->strategy;
    mst_observe_weights(self->observe, self->progress.steps, &self->assembly.params,
                        s->ops->gradient != NULL ? s->ops->gradient(s) : NULL, self->begun_ns,
                        &self->histogram_ns);
}

/* Evaluates all sets; *over when that ends the run. What a wish to stop leaves undone, a resumed run does
 * first. */
static mst_status evaluate(mst_trainer *self, const mst_observer *observer, bool *over, mst_end *end)
{
    mst_result valid, test;
    mst_judgement verdict;
    bool sets = self->test.evaluator != NULL || self->valid.evaluator != NULL;
    mst_run_log_evaluation_begins(self->log);
    if (sets)
        mst_span_enter(MST_PHASE_EVALUATE);
    mst_status st = sets && stop_asked(self) ? MST_ESTOPPED : MST_OK;
    if (st == MST_OK)
        st = measure(&self->valid, observer, "valid", &valid);
    if (st == MST_OK)
        st = measure(&self->test, observer, "test", &test);
    watch_weights(self);
    mst_span_enter(MST_PHASE_IDLE);
    if (st == MST_ESTOPPED) {
        *over = true;
        *end = MST_END_STOPPED;
        return MST_OK;
    }
    TRY(st);
    TRY(mst_run_log_evaluated(self->log, observer, &valid, &test, &verdict));
    if (verdict.best)
        TRY(mst_run_log_save_best(self->log, &self->assembly.params));
    if (verdict.over) {
        *over = true;
        *end = verdict.end;
    }
    return MST_OK;
}

/* One run of the strategy, up to the next moment something is due; *ended when it ended an epoch. */
static mst_status advance(mst_trainer *self, bool *ended)
{
    mst_progress *p = &self->progress;
    mst_budget budget;
    mst_run_log_budget(self->log, &budget);
    if (self->look_every > 0) {
        uint64_t left = self->look_every - p->steps % self->look_every;
        budget.steps = left < budget.steps ? left : budget.steps;
    }
    uint64_t start = mst_now_ns();
    p->loss = (mst_loss_sum){0};
    p->epoch_ended = false;
    mst_status st = self->strategy->ops->run(self->strategy, self->feed, &budget, p);
    if (st == MST_OK)
        st = mst_dataset_intact(self->dataset); /* before anything of it is evaluated or saved */
    if (st == MST_OK && mst_params_strayed(&self->assembly.params))
        st = mst_fail(MST_EINPUT, "%s was changed while it was in use: a row has a key out of range",
                      self->dataset->name);
    p->seconds += mst_seconds_since(start);
    if (st == MST_ESTOPPED)
        st = MST_OK; /* the run log looks at the flag itself */
    TRY(st);
    p->epoch_rows = mst_feed_epoch_rows(self->feed);
    *ended = p->epoch_ended || (self->dataset->random && p->epoch_rows > 0 && p->position >= p->epoch_rows);
    if (*ended && p->position == 0)
        return mst_fail(MST_EINPUT, "%s: no rows to train on", self->dataset->name);
    if (*ended) {
        p->epoch++;
        p->position = 0;
    }
    return mst_run_log_progress(self->log, p);
}

static mst_status save(mst_trainer *self, const mst_observer *observer)
{
    mst_span_enter(MST_PHASE_CHECKPOINT);
    mst_status st = mst_run_log_save(self->log, observer, &self->assembly.params);
    mst_span_enter(MST_PHASE_IDLE);
    return st;
}

static mst_status loop(mst_trainer *self, const mst_observer *observer, mst_end *end)
{
    mst_progress *p = &self->progress;
    mst_run_log *run_log = self->log;
    p->epoch_rows = mst_feed_epoch_rows(self->feed);
    TRY(mst_run_log_progress(run_log, p));
    bool over = mst_run_log_due(run_log, end) & MST_DUE_END, ended;
    if (mst_run_log_evaluation_owed(run_log))
        TRY(evaluate(self, observer, &over, end));
    if (!over)
        TRY(mst_feed_start(self->feed, p->epoch, p->position));
    while (!over) {
        TRY(advance(self, &ended));
        if (observer->progress != NULL)
            observer->progress(observer->arg, mst_run_log_status(run_log));
        unsigned due = mst_run_log_due(run_log, end);
        over = due & MST_DUE_END;
        if (due & MST_DUE_EVAL)
            TRY(evaluate(self, observer, &over, end));
        else
            TRY(mst_run_log_line(run_log));
        if (due & MST_DUE_SAVE)
            TRY(save(self, observer));
        if (ended && !over)
            TRY(mst_feed_start(self->feed, p->epoch, 0));
    }
    mst_observe_end_interval(self->observe); /* the time of the last save is not training's */
    return save(self, observer);
}

/* From here on the run writes about itself, and its threads are timed. */
static void watch(mst_trainer *self)
{
    mst_observing who = {.role = self->config.role != NULL ? self->config.role : "local",
                         .n_threads = self->n_threads,
                         .step = mst_run_log_at(self->log)->steps};
    mst_observe_destroy(self->observe); /* of a run before */
    self->observe = mst_train_observe(&self->options, &who);
    self->begun_ns = mst_now_ns();
    self->histogram_ns = 0;
    self->strategy->env.spans = mst_observe_spans(self->observe);
    mst_spans_attach(self->strategy->env.spans, 0, MST_PHASE_IDLE);
    mst_run_log_watch(self->log, self->observe);
    char place[32];
    snprintf(place, sizeof place, "/job:%s", who.role);
    mst_run_graph_tell(self->observe, &self->assembly, self->strategy->env.optimizer,
                       &(mst_run_places){.compute = place, .store = place});
    if (self->config.watched != NULL)
        self->config.watched(self->config.watched_arg, self->observe);
}

static mst_status report_workers(mst_trainer *self)
{
    TRY(self->strategy->ops->report(self->strategy, &self->workers));
    return mst_run_log_note(self->log, "workers", json_deep_copy(self->workers));
}

mst_status mst_trainer_run(mst_trainer *self, const mst_observer *observer, mst_train_summary *summary)
{
    mst_end end = MST_END_STOPPED;
    json_t *entries = NULL;
    char *run = NULL;
    memset(summary, 0, sizeof *summary);
    mst_status st = describe(self, &entries);
    if (st == MST_OK)
        st = mst_run_log_open(self->log, entries);
    if (st == MST_OK) {
        watch(self);
        st = loop(self, observer, &end);
        mst_span_enter(MST_PHASE_CHECKPOINT); /* the last one may still be on its way */
    }
    if (st == MST_OK && self->strategy->ops->report != NULL)
        st = report_workers(self);
    if (self->options.observe && mst_run_log_path(self->log) != NULL)
        run = mst_strdup(mst_run_log_path(self->log));
    if (st == MST_OK)
        st = mst_run_log_finish(self->log, end, summary);
    if (st == MST_OK)
        summary->feed_wait_seconds = mst_feed_wait_seconds(self->feed);
    else
        st = mst_run_log_give_up(self->log, st);
    mst_spans_detach();
    mst_train_closing(run);
    mst_free(run);
    json_decref(entries);
    return st;
}
