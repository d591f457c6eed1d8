/* The training loop; contract in trainer.h.
 *
 * The loop asks the strategy to run until the next moment when something is due, whichever comes first: a
 * step or row limit, an evaluation, a checkpoint, or a fraction of a second for the progress line. Time spent
 * in the strategy is training time, waiting for input included; evaluation and saving are counted apart.
 *
 * Everything that a resumed run needs to continue bit for bit is in the checkpoint: weights, optimizer state,
 * step, rows, and the position in the epoch's order of rows, which the seed determines. */
#include "train/trainer.h"
#include "muster/muster.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "train/trainer_impl.h"

#define TICK_NS (200 * MST_MS)
#define LINE_NS MST_S /* between training lines of metrics.csv */

const char *mst_end_text(mst_end end)
{
    static const char *const texts[] = {
        "all epochs done",           "step limit reached",        "row limit reached", "time limit reached",
        "--until condition reached", "no better loss on --valid", "asked to stop",
    };
    return texts[end];
}

mst_status mst_trainer_new(const mst_train_config *config, mst_trainer **out)
{
    mst_trainer *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail(MST_ENOMEM, "no memory for training");
    self->config = *config;
    self->options = *config->train;
    self->data = *config->data;
    self->best_valid_loss = INFINITY;
    self->saved_step = UINT64_MAX;
    self->last_train_loss = NAN;
    mst_status st = mst_trainer_set_up(self);
    if (st != MST_OK) {
        mst_trainer_destroy(self);
        return st;
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
    mst_checkpointer_destroy(self->checkpointer);
    mst_checkpointer_destroy(self->best_checkpointer);
    mst_run_destroy(self->run);
    json_decref(self->manifest);
    json_decref(self->data_json);
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

/* ---- the run directory ---- */

static json_t *result_json(const mst_result *r)
{
    json_t *json = json_pack("{s:I}", "rows", (json_int_t)r->rows);
    const struct {
        const char *name;
        double value;
    } figures[] = {{"loss", r->loss}, {"accuracy", r->accuracy}, {"auc", r->auc}, {"seconds", r->seconds}};
    for (size_t i = 0; json != NULL && i < sizeof figures / sizeof *figures; i++)
        if (isfinite(figures[i].value))
            json_object_set_new(json, figures[i].name, json_real(figures[i].value));
    return json;
}

static json_t *data_found_json(const mst_dataset *d)
{
    const mst_data_info *i = &d->info;
    json_t *json = json_pack("{s:o, s:s, s:b, s:I, s:I}", "source", mst_json_text(d->name), "format",
                             d->format ? d->format->name : d->ops->name, "random_access", (int)d->random,
                             "bytes", (json_int_t)i->bytes, "dense", (json_int_t)i->n_dense);
    if (json == NULL)
        return NULL;
    if (i->index_base <= 1)
        json_object_set_new(json, "index_base", json_integer(i->index_base));
    if (i->scanned) {
        json_object_set_new(json, "rows", json_integer((json_int_t)i->n_rows));
        json_object_set_new(json, "features", json_integer((json_int_t)i->n_features));
        json_object_set_new(json, "entries", json_integer((json_int_t)i->n_entries));
        json_object_set_new(json, "labels", json_pack("[f, f]", (double)i->min_label, (double)i->max_label));
        json_object_set_new(json, "positive", json_integer((json_int_t)i->n_positive));
    }
    return json;
}

static mst_status write_manifest(mst_trainer *self, const char *state)
{
    const mst_train_status *s = &self->status;
    json_t *m = self->manifest;
    json_object_set_new(m, "state", json_string(state));
    json_object_set_new(m, "progress",
                        json_pack("{s:I, s:I, s:I, s:f, s:f, s:f}", "step", (json_int_t)s->step, "rows",
                                  (json_int_t)s->rows, "epoch", (json_int_t)s->epoch, "train_seconds",
                                  s->train_seconds, "eval_seconds", s->eval_seconds, "save_seconds",
                                  s->save_seconds));
    if (self->test.last.rows > 0)
        json_object_set_new(m, "test", result_json(&self->test.last));
    if (self->valid.last.rows > 0)
        json_object_set_new(m, "valid", result_json(&self->valid.last));
    return mst_run_manifest(self->run, m);
}

static mst_status open_run(mst_trainer *self)
{
    mst_status st = MST_OK;
    const mst_train_options *o = &self->options;
    mst_run_open how = o->resume ? MST_RUN_RESUME : o->overwrite ? MST_RUN_OVERWRITE : MST_RUN_NEW;
    char *name = NULL, *folder = NULL, *best = NULL, host[256] = "", now[24];
    if (o->run == NULL && (name = mst_run_free_name("runs", self->assembly.model->ops->name)) == NULL)
        return mst_fail(MST_ENOMEM, "no memory for the run's name");
    st = mst_run_new(o->run ? o->run : name, how, self->progress.steps, &self->run);
    while (st == MST_EEXIST && o->run == NULL) { /* another process took the name first */
        mst_free(name);
        if ((name = mst_run_free_name("runs", self->assembly.model->ops->name)) == NULL)
            return mst_fail(MST_ENOMEM, "no memory for the run's name");
        st = mst_run_new(name, how, self->progress.steps, &self->run);
    }
    if (st != MST_OK)
        goto out;
    folder = mst_sprintf("%s/checkpoints", mst_run_path(self->run));
    best = mst_sprintf("%s/best", mst_run_path(self->run));
    if (folder == NULL || best == NULL) {
        st = mst_fail(MST_ENOMEM, "no memory for the run's name");
        goto out;
    }
    const char *const *slots = self->optimizer.ops->slot_names;
    if (o->save)
        TRY_OUT(st, mst_checkpointer_new(folder, (uint32_t)o->keep, slots, &self->checkpointer));
    if (o->save && o->patience > 0)
        TRY_OUT(st, mst_checkpointer_new(best, 1, slots, &self->best_checkpointer));
    gethostname(host, sizeof host - 1);
    mst_wall_time(now);
    self->manifest = json_pack(
        "{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:O?, s:o, s:o, s:o}", "muster", mst_version(), "started", now,
        "host", host, "isa", mst_isa_name(self->kernels->isa), "threads", (json_int_t)self->n_threads,
        "batch", (json_int_t)self->strategy_options.batch, "global_batch",
        (json_int_t)self->strategy_options.global_batch, "options", self->config.options, "files",
        json_array(), "data", data_found_json(self->dataset), "model", mst_model_json(self->assembly.model));
    if (self->manifest == NULL) {
        st = mst_fail(MST_ENOMEM, "no memory for the manifest");
        goto out;
    }
    for (size_t i = 0; i < self->config.files->n; i++)
        json_array_append_new(json_object_get(self->manifest, "files"),
                              mst_json_text(self->config.files->items[i]));
    json_object_set_new(self->manifest, "epochs_given", json_boolean(self->config.epochs_given));
    TRY_OUT(st, write_manifest(self, "running"));
out:
    mst_free(name);
    mst_free(folder);
    mst_free(best);
    return st;
}

static double mean_loss(const mst_loss_sum *sum)
{
    return sum->weight > 0.0 ? sum->loss / sum->weight : (double)NAN;
}

/* A line of metrics.csv. Its training loss is the mean since the last evaluation, so that it does not depend
 * on the clock, which decides only how many lines there are in between. */
static mst_status write_line(mst_trainer *self, const char *set, const mst_result *r)
{
    const mst_train_status *s = &self->status;
    mst_metrics line = {
        .step = s->step,
        .rows = s->rows,
        .epoch = s->epoch,
        .train_seconds = s->train_seconds,
        .eval_seconds = s->eval_seconds,
        .lr = s->lr,
        .train_loss = mean_loss(&self->line_loss),
        .set = set,
        .loss = r ? r->loss : (double)NAN,
        .accuracy = r ? r->accuracy : (double)NAN,
        .auc = r ? r->auc : (double)NAN,
    };
    self->line_ns = mst_now_ns();
    self->worth_keeping = true;
    return mst_run_metrics(self->run, &line);
}

/* ---- what happens between runs of the strategy ---- */

static double due_count(const mst_trainer *self, mst_unit unit)
{
    switch (unit) {
    case MST_UNIT_STEPS:
        return (double)self->progress.steps;
    case MST_UNIT_ROWS:
        return (double)self->progress.rows;
    case MST_UNIT_SECONDS:
        return self->status.train_seconds;
    case MST_UNIT_EPOCHS:
        return (double)self->progress.epoch;
    case MST_UNIT_NEVER:
        break;
    }
    return 0.0;
}

/* The first multiple of the interval beyond where the run stands. */
static void due_schedule(const mst_trainer *self, mst_due *due)
{
    if (due->every.unit == MST_UNIT_NEVER)
        due->next = INFINITY;
    else
        due->next = (floor(due_count(self, due->every.unit) / due->every.n) + 1.0) * due->every.n;
}

static bool due_now(const mst_trainer *self, const mst_due *due)
{
    return due_count(self, due->every.unit) >= due->next;
}

static void limit_u64(uint64_t *limit, double left)
{
    uint64_t n = left <= 0.0 ? 0 : left >= 1e18 ? UINT64_MAX : (uint64_t)ceil(left);
    *limit = n < *limit ? n : *limit;
}

static void limit_budget(const mst_trainer *self, mst_budget *b, mst_unit unit, double next)
{
    double left = next - due_count(self, unit);
    if (unit == MST_UNIT_STEPS)
        limit_u64(&b->steps, left);
    else if (unit == MST_UNIT_ROWS)
        limit_u64(&b->rows, left);
    else if (unit == MST_UNIT_SECONDS && left < 1e9) {
        uint64_t at = mst_now_ns() + (uint64_t)(left > 0.0 ? left * 1e9 : 0.0);
        b->deadline_ns = at < b->deadline_ns ? at : b->deadline_ns;
    }
}

/* Up to when something is due, in whole steps: how often one looks must not change what is learnt. */
static void limit_due(const mst_trainer *self, mst_budget *b, const mst_due *due)
{
    double batch = (double)self->strategy_options.global_batch, rows = (double)self->progress.rows;
    if (due->every.unit == MST_UNIT_ROWS)
        limit_u64(&b->rows, ceil((due->next - rows) / batch) * batch);
    else
        limit_budget(self, b, due->every.unit, due->next);
}

static mst_budget next_budget(const mst_trainer *self)
{
    const mst_train_options *o = &self->options;
    mst_budget b = {.steps = UINT64_MAX,
                    .rows = UINT64_MAX,
                    .deadline_ns = mst_now_ns() + TICK_NS,
                    .stop = self->config.stop};
    limit_due(self, &b, &self->eval);
    limit_due(self, &b, &self->checkpoint);
    if (o->steps > 0)
        limit_budget(self, &b, MST_UNIT_STEPS, (double)o->steps);
    if (o->rows > 0)
        limit_budget(self, &b, MST_UNIT_ROWS, (double)o->rows);
    if (o->seconds > 0.0)
        limit_budget(self, &b, MST_UNIT_SECONDS, o->seconds);
    return b;
}

static bool save_wanted(const mst_trainer *self)
{
    return self->config.save_wanted != NULL && self->config.save_wanted();
}

static bool stop_asked(const mst_trainer *self)
{
    return self->config.stop != NULL && atomic_load(self->config.stop);
}

/* --epochs has a default of one; other limits given alone lift it. */
static uint64_t epoch_limit(const mst_trainer *self)
{
    const mst_train_options *o = &self->options;
    bool other = o->steps > 0 || o->rows > 0 || o->seconds > 0.0 || self->has_until || o->patience > 0;
    if (o->epochs == 0 || (other && o->epochs == 1 && !self->config.epochs_given))
        return UINT64_MAX;
    return (uint64_t)o->epochs;
}

static bool limit_reached(const mst_trainer *self, mst_end *end)
{
    const mst_train_options *o = &self->options;
    if (self->progress.epoch >= epoch_limit(self))
        *end = MST_END_EPOCHS;
    else if (o->steps > 0 && self->progress.steps >= (uint64_t)o->steps)
        *end = MST_END_STEPS;
    else if (o->rows > 0 && self->progress.rows >= (uint64_t)o->rows)
        *end = MST_END_ROWS;
    else if (o->seconds > 0.0 && self->status.train_seconds >= o->seconds)
        *end = MST_END_SECONDS;
    else if (stop_asked(self))
        *end = MST_END_STOPPED;
    else
        return false;
    return true;
}

static double eta_of(const mst_trainer *self)
{
    const mst_train_options *o = &self->options;
    const mst_train_status *s = &self->status;
    double left = INFINITY, rate = s->train_seconds > 0.0 ? (double)s->rows / s->train_seconds : 0.0;
    uint64_t epochs = epoch_limit(self);
    if (rate <= 0.0)
        return NAN;
    if (epochs != UINT64_MAX && s->epoch_rows > 0)
        left = ((double)epochs * (double)s->epoch_rows - (double)s->epoch * (double)s->epoch_rows -
                (double)s->epoch_position) /
               rate;
    if (o->steps > 0)
        left = fmin(left, (double)(o->steps - (int64_t)s->step) *
                              (double)self->strategy_options.global_batch / rate);
    if (o->rows > 0)
        left = fmin(left, (double)(o->rows - (int64_t)s->rows) / rate);
    if (o->seconds > 0.0)
        left = fmin(left, o->seconds - s->train_seconds);
    return isfinite(left) && left > 0.0 ? left : (double)NAN;
}

static void update_status(mst_trainer *self, double seconds, uint64_t rows_before)
{
    mst_train_status *s = &self->status;
    const mst_progress *p = &self->progress;
    s->step = p->steps;
    s->rows = p->rows;
    s->epoch = p->epoch;
    s->epoch_position = p->position;
    s->epoch_rows = mst_feed_epoch_rows(self->feed);
    s->train_seconds += seconds;
    if (seconds > 0.0 && p->rows > rows_before)
        s->rows_per_s = (double)(p->rows - rows_before) / seconds;
    s->lr = (double)mst_learning_rate(&self->optimizer.options, p->steps ? p->steps : 1);
    if (p->loss.rows > 0)
        s->train_loss = mean_loss(&p->loss);
    s->eta_seconds = eta_of(self);
    self->line_loss.loss += p->loss.loss;
    self->line_loss.weight += p->loss.weight;
    self->line_loss.rows += p->loss.rows;
}

/* Evaluates a set, if there is one; *out has 0 rows otherwise. */
static mst_status measure(const mst_eval_set *set, const char *name, mst_result *out)
{
    *out = (mst_result){0};
    if (set->evaluator == NULL)
        return MST_OK;
    TRY(mst_evaluator_run(set->evaluator, out));
    if (out->rows == 0)
        return mst_fail(MST_EINPUT, "%s: the %s set has no rows", set->dataset->name, name);
    return MST_OK;
}

static mst_status record(mst_trainer *self, const mst_observer *observer, mst_eval_set *set, const char *name,
                         const mst_result *result)
{
    if (result->rows == 0)
        return MST_OK;
    set->last = *result;
    self->status.eval_seconds += result->seconds;
    self->n_evaluations++;
    TRY(write_line(self, name, result));
    if (observer->evaluated != NULL)
        observer->evaluated(observer->arg, &self->status, name, result);
    return MST_OK;
}

static double metric_value(const mst_trainer *self, mst_metric metric)
{
    switch (metric) {
    case MST_METRIC_TRAIN_LOSS:
        return self->last_train_loss;
    case MST_METRIC_TEST_LOSS:
        return self->test.last.loss;
    case MST_METRIC_TEST_ACCURACY:
        return self->test.last.accuracy;
    case MST_METRIC_TEST_AUC:
        return self->test.last.auc;
    case MST_METRIC_VALID_LOSS:
        return self->valid.last.loss;
    case MST_METRIC_VALID_ACCURACY:
        return self->valid.last.accuracy;
    case MST_METRIC_VALID_AUC:
        return self->valid.last.auc;
    case MST_METRIC_COUNT:
        break;
    }
    return NAN;
}

static mst_status save(mst_trainer *self, mst_checkpointer *checkpointer)
{
    uint64_t start = mst_now_ns();
    mst_checkpoint_meta meta = {
        .step = self->progress.steps,
        .rows = self->progress.rows,
        .epoch = self->progress.epoch,
        .position = self->progress.position,
        .train_seconds = self->status.train_seconds,
        .eval_seconds = self->status.eval_seconds,
        .model = mst_model_json(self->assembly.model),
        .optimizer = json_pack("{s:s}", "name", self->optimizer.ops->name),
        .extra = json_pack("{s:O, s:I, s:I, s:b, s:[f, f, I]}", "data", self->data_json, "best_step",
                           (json_int_t)self->best_step, "since_best", (json_int_t)self->since_best,
                           "evaluation_due", (int)self->evaluation_due, "line_loss", self->line_loss.loss,
                           self->line_loss.weight, (json_int_t)self->line_loss.rows),
    };
    mst_status st = MST_OK;
    if (self->reading_unknown)
        json_object_set_new(meta.extra, "reading_unknown", json_true());
    if (isfinite(self->best_valid_loss))
        json_object_set_new(meta.extra, "best_valid_loss", json_real(self->best_valid_loss));
    if (isfinite(self->last_train_loss))
        json_object_set_new(meta.extra, "train_loss", json_real(self->last_train_loss));
    if (meta.model == NULL || meta.optimizer == NULL || meta.extra == NULL)
        st = mst_fail(MST_ENOMEM, "no memory for a checkpoint");
    else
        st = mst_checkpointer_begin(checkpointer, &self->assembly.params, &meta);
    mst_checkpoint_meta_fini(&meta);
    self->status.save_seconds += mst_seconds_since(start);
    return st;
}

static mst_status save_regular(mst_trainer *self, const mst_observer *observer)
{
    if (self->checkpointer == NULL || self->saved_step == self->progress.steps)
        return MST_OK;
    TRY(save(self, self->checkpointer));
    self->saved_step = self->progress.steps;
    self->worth_keeping = true;
    if (mst_run_replaces(self->run)) {
        TRY(mst_checkpointer_wait(self->checkpointer, NULL));
        mst_run_settle(self->run);
    }
    if (observer->saved != NULL)
        observer->saved(observer->arg, &self->status, mst_run_path(self->run));
    return MST_OK;
}

/* Keeps the best weights by validation loss; *enough when patience is used up. */
static mst_status watch_patience(mst_trainer *self, bool *enough)
{
    *enough = false;
    if (self->options.patience == 0)
        return MST_OK;
    if (self->valid.last.loss < self->best_valid_loss) {
        self->best_valid_loss = self->valid.last.loss;
        self->best_step = self->progress.steps;
        self->since_best = 0;
        return self->best_checkpointer != NULL ? save(self, self->best_checkpointer) : MST_OK;
    }
    *enough = ++self->since_best >= (uint64_t)self->options.patience;
    return MST_OK;
}

/* Evaluates all sets; *over when that ends the run. What a wish to stop leaves undone, a resumed run does
 * first. */
static mst_status evaluate(mst_trainer *self, const mst_observer *observer, bool *over, mst_end *end)
{
    mst_result valid, test;
    bool enough;
    self->evaluation_due = self->test.evaluator != NULL || self->valid.evaluator != NULL;
    mst_status st = self->evaluation_due && stop_asked(self) ? MST_ESTOPPED : MST_OK;
    if (st == MST_OK)
        st = measure(&self->valid, "valid", &valid);
    if (st == MST_OK)
        st = measure(&self->test, "test", &test);
    if (st == MST_ESTOPPED) {
        *over = true;
        *end = MST_END_STOPPED;
        return MST_OK;
    }
    TRY(st);
    TRY(record(self, observer, &self->valid, "valid", &valid));
    TRY(record(self, observer, &self->test, "test", &test));
    if (!self->evaluation_due)
        TRY(write_line(self, "", NULL));
    self->evaluation_due = false;
    if (self->line_loss.rows > 0)
        self->last_train_loss = mean_loss(&self->line_loss);
    self->line_loss = (mst_loss_sum){0};
    TRY(watch_patience(self, &enough));
    if (self->has_until && mst_condition_holds(&self->until, metric_value(self, self->until.metric))) {
        *over = true;
        *end = MST_END_UNTIL;
    } else if (enough) {
        *over = true;
        *end = MST_END_PATIENCE;
    }
    return MST_OK;
}

static mst_status check_loss(const mst_trainer *self)
{
    const mst_loss_sum *sum = &self->progress.loss;
    if (sum->rows == 0 || isfinite(sum->loss))
        return MST_OK;
    return mst_fail(MST_EINPUT,
                    "the training loss is no longer finite at step %llu: lower --lr, or use --clip-norm",
                    (unsigned long long)self->progress.steps);
}

/* One run of the strategy, up to the next moment something is due. */
static mst_status advance(mst_trainer *self)
{
    mst_progress *p = &self->progress;
    mst_budget budget = next_budget(self);
    uint64_t start = mst_now_ns(), rows_before = p->rows;
    p->loss = (mst_loss_sum){0};
    p->epoch_ended = false;
    mst_status st = self->strategy->ops->run(self->strategy, self->feed, &budget, p);
    double seconds = mst_seconds_since(start);
    if (st == MST_ESTOPPED)
        st = MST_OK; /* the loop looks at the flag itself */
    TRY(st);
    update_status(self, seconds, rows_before);
    uint64_t epoch_rows = mst_feed_epoch_rows(self->feed);
    if (self->dataset->random && epoch_rows > 0 && p->position >= epoch_rows)
        p->epoch_ended = true;
    if (p->epoch_ended && p->position == 0)
        return mst_fail(MST_EINPUT, "%s: no rows to train on", self->dataset->name);
    return check_loss(self);
}

static mst_status loop(mst_trainer *self, const mst_observer *observer, mst_end *end)
{
    mst_progress *p = &self->progress;
    uint64_t evaluated_step = UINT64_MAX;
    update_status(self, 0.0, p->rows);
    bool over = limit_reached(self, end);
    due_schedule(self, &self->eval);
    due_schedule(self, &self->checkpoint);
    self->line_ns = mst_now_ns();
    if (self->evaluation_due)
        TRY(evaluate(self, observer, &over, end));
    if (!over)
        TRY(mst_feed_start(self->feed, p->epoch, p->position));
    while (!over) {
        TRY(advance(self));
        if (p->epoch_ended) {
            p->epoch++;
            p->position = 0;
            self->status.epoch = p->epoch;
            self->status.epoch_position = 0;
        }
        if (observer->progress != NULL)
            observer->progress(observer->arg, &self->status);
        over = limit_reached(self, end);
        bool ends = over && *end != MST_END_STOPPED;
        if ((due_now(self, &self->eval) || ends) && evaluated_step != p->steps) {
            TRY(evaluate(self, observer, &over, end));
            evaluated_step = p->steps;
            due_schedule(self, &self->eval);
        } else if (mst_now_ns() - self->line_ns >= LINE_NS && self->line_loss.rows > 0) {
            TRY(write_line(self, "", NULL));
        }
        if (due_now(self, &self->checkpoint) || save_wanted(self)) {
            TRY(save_regular(self, observer));
            due_schedule(self, &self->checkpoint);
        }
        if (p->epoch_ended && !over)
            TRY(mst_feed_start(self->feed, p->epoch, 0));
    }
    return MST_OK;
}

static mst_status finish(mst_trainer *self, const mst_observer *observer, mst_train_summary *summary)
{
    uint64_t start = mst_now_ns();
    char *path = NULL;
    TRY(save_regular(self, observer));
    if (self->best_checkpointer != NULL)
        TRY(mst_checkpointer_wait(self->best_checkpointer, NULL));
    if (self->checkpointer != NULL)
        TRY(mst_checkpointer_wait(self->checkpointer, &path));
    self->status.save_seconds += mst_seconds_since(start);
    snprintf(summary->run, sizeof summary->run, "%s", mst_run_path(self->run));
    snprintf(summary->checkpoint, sizeof summary->checkpoint, "%s", path ? path : "");
    mst_free(path);
    summary->status = self->status;
    summary->status.train_loss =
        isfinite(self->last_train_loss) ? self->last_train_loss : mean_loss(&self->line_loss);
    summary->test = self->test.last;
    summary->valid = self->valid.last;
    summary->best_valid_loss = isfinite(self->best_valid_loss) ? self->best_valid_loss : (double)NAN;
    summary->best_step = self->best_step;
    summary->n_evaluations = self->n_evaluations;
    summary->feed_wait_seconds = mst_feed_wait_seconds(self->feed);
    json_object_set_new(self->manifest, "end", json_string(mst_end_text(summary->end)));
    return write_manifest(self, summary->end == MST_END_STOPPED ? "stopped" : "done");
}

/* The manifest says what happened. A new run that failed before it had measured or saved anything leaves no
 * directory; one that was to replace another leaves that, unless it has saved a checkpoint. Nothing here
 * hides the first failure. */
static mst_status give_up(mst_trainer *self, mst_status st)
{
    mst_error error;
    mst_error_save(&error, st);
    if (self->run != NULL && (self->worth_keeping || self->options.resume) && !mst_run_replaces(self->run)) {
        json_object_set_new(self->manifest, "error", mst_json_text(error.text));
        write_manifest(self, "failed");
    } else if (self->run != NULL) {
        mst_checkpointer_destroy(self->checkpointer);
        mst_checkpointer_destroy(self->best_checkpointer);
        self->checkpointer = self->best_checkpointer = NULL;
        mst_run_abandon(self->run);
    }
    return mst_error_restore(&error);
}

mst_status mst_trainer_run(mst_trainer *self, const mst_observer *observer, mst_train_summary *summary)
{
    memset(summary, 0, sizeof *summary);
    mst_status st = open_run(self);
    if (st == MST_OK)
        st = loop(self, observer, &summary->end);
    if (st == MST_OK)
        st = finish(self, observer, summary);
    if (st != MST_OK)
        st = give_up(self, st);
    mst_checkpointer_destroy(self->checkpointer);
    mst_checkpointer_destroy(self->best_checkpointer);
    self->checkpointer = self->best_checkpointer = NULL;
    mst_run_destroy(self->run); /* nobody trains into it any more */
    self->run = NULL;
    return st;
}
