/* Building a training; contract in training.h. */
#include "train/training_impl.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "observe/cpu_quota.h"
#include "report/verdict.h"
#include "train/data_identity.h"

static const char *const role_names[] = {
    [MST_TRAINING_LOCAL] = "local",
    [MST_TRAINING_RANK] = "rank",
    [MST_TRAINING_WORKER] = "worker",
    [MST_TRAINING_SERVER] = "server",
};

/* Whether this process runs the training loop and keeps the run log. */
static bool training_leads(const mst_training *self)
{
    mst_training_role role = self->config.role;
    return role == MST_TRAINING_LOCAL || (role == MST_TRAINING_RANK && self->config.index == 0);
}

/* ---- options ---- */

static mst_status training_init_optimizer(mst_training *self)
{
    const mst_strategy_options *strategy = &self->strategy_options;
    mst_optim_options options = *self->config.optim;
    if (strategy->lr_scale != 0) {
        options.lr *= (double)strategy->workers;
        options.lr_sparse *= (double)strategy->workers;
    }
    return mst_optimizer_init_parts(&self->optimizer, &self->optimizer_sparse, &options);
}

mst_status mst_training_reload(mst_training *self)
{
    const mst_train_config *c = &self->config;
    mst_isa isa;
    self->options = *c->train;
    self->epochs_given = c->epochs_given;
    self->strategy_options = *c->strategy;
    if (c->in_memory)
        self->options.save = self->options.observe = false;
    TRY(mst_run_schedule_parse(&self->options, c->strategy->strategy == MST_STRATEGY_PS, &self->schedule));
    TRY(mst_isa_parse(self->options.isa, &isa));
    self->kernels = mst_kernels_get(isa);
    return training_init_optimizer(self);
}

/* ---- the model ---- */

/* Whether keys have their optimizer state next to their weights. */
static bool training_by_rows(const mst_training *self)
{
    return self->strategy_options.strategy == MST_STRATEGY_LOCAL;
}

/* Whether the rules fit the views; state is declared. */
static mst_status training_check_optimizer(const mst_training *self)
{
    const mst_params *params = &self->assembly.params;
    bool keys = false, per_key = false;
    for (uint32_t i = 0; i < params->n_views; i++) {
        keys |= params->views[i].width != 0;
        per_key |= params->views[i].state.per_key;
    }
    if (self->optimizer.sparse != NULL && !keys)
        return mst_fail(MST_EUSAGE,
                        "--optimizer-sparse and --lr-sparse are for weights that have keys; %s has none here",
                        self->assembly.model->ops->name);
    if (self->strategy_options.sparse_mode != 0 && !keys)
        return mst_fail(MST_EUSAGE, "--sparse-mode async is for weights that have keys; %s has none here",
                        self->assembly.model->ops->name);
    if (per_key && self->strategy_options.dense_model)
        return mst_fail(MST_EUSAGE,
                        "--dense-model divides the weights of a key among servers, and rowwise has "
                        "one state for all of them; use adagrad");
    return MST_OK;
}

/* The model's options with the part of this process in the job. Servers compute nothing. */
static mst_model_options training_model_options(const mst_training *self, const mst_model_options *model)
{
    mst_model_options options = *model;
    options.use =
        self->strategy_options.strategy == MST_STRATEGY_LOCAL ? MST_DEVICE_TRAINS : MST_DEVICE_COMPUTES;
    options.device_turn = self->config.device_turn;
    if (self->config.role == MST_TRAINING_SERVER) {
        options.device = NULL;
        options.precision = 0;
    }
    return options;
}

static mst_status training_init_model(mst_training *self, const mst_model_options *model,
                                      const mst_shape *shape)
{
    mst_model_options options = training_model_options(self, model);
    mst_store_spec store = {.optimizer = &self->optimizer,
                            .spare = mst_strategy_spare(&self->strategy_options),
                            .by_rows = training_by_rows(self)};
    TRY(mst_assembly_init(&self->assembly, &options, shape, self->kernels, &store,
                          (uint64_t)self->options.seed));
    return training_check_optimizer(self);
}

/* Without memory for weights, as a worker and a plan need it. */
static mst_status training_declare_model(mst_training *self, const mst_model_options *model,
                                         const mst_shape *shape)
{
    mst_model_options options = training_model_options(self, model);
    TRY(mst_assembly_declare(&self->assembly, &options, shape, self->kernels));
    mst_optimizer_declare(&self->optimizer, &self->assembly.params);
    return training_check_optimizer(self);
}

mst_status mst_training_build(mst_training *self, const json_t *description)
{
    static const char *const names[] = {"model", "reading", "reading_unknown", MST_LABEL_MINUS_ONE,
                                        "found", "files"};
    mst_model_options options = *self->config.model;
    mst_shape shape;
    TRY(mst_model_from_json(json_object_get(description, "model"), "the first worker's description", &options,
                            &shape));
    if (self->log != NULL) /* the job starts again: the save under way uses the model before */
        mst_run_log_save_abandon(self->log);
    mst_training_close_start(self);
    mst_assembly_fini(&self->assembly);
    TRY(training_init_model(self, &options, &shape));
    json_decref(self->description);
    self->description = json_object();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        json_object_set(self->description, names[i], json_object_get(description, names[i]));
    return self->description != NULL ? MST_OK : mst_fail_memory();
}

/* ---- the run log ---- */

/* The data that the run is trained on (data_identity.h): the files of this process, or of the first worker
 * where they are not here. New reference in *out. */
static mst_status training_find_source(const mst_training *self, json_t **out)
{
    json_t *theirs = json_object_get(self->description, "files");
    bool own =
        self->strategy_options.strategy == MST_STRATEGY_PS && self->strategy_options.shard == MST_SHARD_LOCAL;
    TRY(mst_data_identity_of(self->config.files, own || self->config.open_own != NULL, out));
    if (json_object_get(*out, "checksum") == NULL && json_is_object(theirs))
        json_object_update(*out, theirs);
    return MST_OK;
}

mst_status mst_training_make_log(mst_training *self)
{
    const mst_strategy_options *strategy = &self->strategy_options;
    json_t *source;
    TRY(training_find_source(self, &source));
    mst_run_log_options options = {
        .train = &self->options,
        .schedule = self->schedule,
        .epochs_given = self->epochs_given,
        .global_batch =
            (uint64_t)(strategy->mode == MST_MODE_SYNC ? strategy->global_batch : strategy->batch),
        .optimizer = &self->optimizer,
        .model_name = self->assembly.model->ops->name,
        .model = json_object_get(self->description, "model"),
        .data = json_object_get(self->description, "reading"),
        .source = source,
        .reading_unknown = json_is_true(json_object_get(self->description, "reading_unknown")),
        .label_minus_one = json_is_true(json_object_get(self->description, MST_LABEL_MINUS_ONE)),
        .in_memory = self->config.in_memory,
        .stop = self->config.stop,
        .take_requests = self->config.take_requests,
        .requests_arg = self->config.requests_arg,
    };
    mst_status st = mst_run_log_new(&options, &self->log);
    json_decref(source);
    return st;
}

json_t *mst_training_options(const mst_training *self)
{
    static const char *const found[][2] = {{"augmentation", "normalise"}, {"data", "csv-columns"}};
    const json_t *reading = json_object_get(self->description, "reading");
    const mst_strategy_options *s = &self->strategy_options;
    if (self->config.options == NULL)
        return json_null();
    json_t *copy = json_deep_copy(self->config.options);
    if (copy != NULL && s->threads_chosen) /* training_choose_threads */
        json_object_set_new(json_object_get(copy, "strategy"), "threads", json_integer(s->threads));
    for (size_t i = 0; copy != NULL && i < sizeof found / sizeof *found; i++) {
        json_t *group = json_object_get(copy, found[i][0]), *value = json_object_get(reading, found[i][1]);
        if (group != NULL && value != NULL && json_object_set(group, found[i][1], value) != 0) {
            json_decref(copy);
            copy = NULL;
        }
    }
    return copy;
}

mst_status mst_training_note_skipped(mst_training *self, uint64_t skipped, mst_train_summary *summary)
{
    summary->skipped = skipped;
    if (skipped == 0)
        return MST_OK;
    json_t *data = json_copy(json_object_get(self->description, "found"));
    if (data == NULL || json_object_set_new(data, "skipped", json_integer((json_int_t)skipped)) != 0) {
        json_decref(data);
        return mst_fail_memory();
    }
    return mst_run_log_note(self->log, "data", data);
}

mst_status mst_training_open_run(mst_training *self)
{
    const mst_strategy_options *s = &self->strategy_options;
    const json_t *description = self->description;
    unsigned used = self->strategy != NULL ? self->strategy->n_threads : 0,
             threads = used > 0 ? used : (unsigned)s->threads;
    json_t *entries = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:O?, s:O, s:I, s:b}", "isa", mst_isa_name(self->kernels->isa),
        "threads", (json_int_t)threads, "threads_most", (json_int_t)s->threads_most, "batch",
        (json_int_t)s->batch, "global_batch", (json_int_t)s->global_batch, "options",
        mst_training_options(self), "files", mst_json_texts(self->config.files->items, self->config.files->n),
        "data", json_object_get(description, "found"), "model", json_object_get(description, "model"),
        "store_bytes", (json_int_t)mst_params_bytes(&self->assembly.params), "epochs_given",
        (int)self->epochs_given);
    if (entries != NULL && self->config.manifest != NULL)
        json_object_update(entries, self->config.manifest);
    if (self->config.lost != NULL)
        mst_run_log_lost(self->log, &(mst_reached){0}, self->config.lost_ns, self->config.lost);
    mst_status st = entries != NULL ? mst_run_log_open(self->log, entries) : mst_fail_memory();
    json_decref(entries);
    return st;
}

void mst_training_write_verdict(const mst_training *self)
{
    const char *run = NULL;
    mst_error error;
    if (self->log != NULL)
        run =
            mst_run_log_path(self->log) != NULL ? mst_run_log_path(self->log) : mst_run_log_folder(self->log);
    if (!self->options.observe || run == NULL || !mst_path_is_folder(run))
        return;
    mst_error_save(&error, MST_EIO);
    if (mst_verdict_write(run) != MST_OK)
        mst_warn("%s; the run has no verdict", mst_error_text());
    (void)mst_error_restore(&error);
}

/* ---- processes with data ---- */

/* For the run log of this process or of server 0. "found" follows when the data is open. */
static mst_status training_describe(mst_training *self)
{
    const mst_train_data *d = &self->data;
    const mst_data_info *i = &d->dataset->info;
    bool minus_one = (i->scanned ? i->min_label : i->first_min_label) < 0.0f;
    self->description = json_pack("{s:o, s:O, s:b, s:b}", "model", mst_model_json(self->assembly.model),
                                  "reading", d->reading, "reading_unknown", (int)d->reading_unknown,
                                  MST_LABEL_MINUS_ONE, (int)minus_one);
    return self->description != NULL ? MST_OK : mst_fail_memory();
}

/* Training threads. Asynchronous ones slow each other down, because they share weights, while parsing scales;
 * and parsing takes 30% (adagrad) to 50% (sgd) of the work of a row of text for a linear model. So where
 * there is a thread for every core, a quarter of them only parse: with 16 of both, 12 + 4 threads have 26.5M
 * to 28.3M rows/s, and 16 that train and parse 23.1M to 26.0M. */
static int64_t training_threads(const mst_training *self)
{
    const mst_strategy_options *o = &self->strategy_options;
    const mst_model_ops *model = self->assembly.model->ops;
    if (o->strategy != MST_STRATEGY_LOCAL || o->mode != MST_MODE_ASYNC || self->options.prefetch != 0 ||
        !self->data.dataset->read_is_cheap || !mst_model_has(model, MST_MODEL_LINEAR) ||
        !mst_model_has(model, MST_MODEL_BINARY) || o->threads < (int64_t)mst_cpu_cores())
        return o->threads;
    return o->threads - o->threads / 4;
}

static mst_strategy_env training_env(mst_training *self)
{
    return (mst_strategy_env){.model = self->assembly.model,
                              .optimizer = &self->optimizer,
                              .params = &self->assembly.params,
                              .seed = (uint64_t)self->options.seed,
                              .comm = self->config.comm};
}

/* Now that the model is known: the number of threads of --threads 0, and how many are useful. */
static void training_choose_threads(mst_training *self)
{
    mst_strategy_options *o = &self->strategy_options;
    mst_strategy_env env = training_env(self);
    unsigned least = mst_strategy_least_threads(o, &env);
    if (o->threads_most > 0 && (o->threads_most < least || mst_cpu_cores() < least))
        o->threads_most = 1;
    if (o->threads_chosen && o->threads < least)
        o->threads = 1;
}

/* Warns of synchronous threads of a local training that are slower than fewer. */
static void training_warn_threads(mst_training *self)
{
    const mst_strategy_options *o = &self->strategy_options;
    mst_strategy_env env = training_env(self);
    unsigned n = self->strategy->n_threads, cores = mst_cpu_cores();
    int64_t better = n < mst_strategy_least_threads(o, &env) ? 1 : o->threads_most;
    if (o->strategy != MST_STRATEGY_LOCAL || o->mode != MST_MODE_SYNC || o->threads_chosen ||
        self->assembly.model->gpu.ops != NULL)
        return;
    if (n > cores)
        mst_warn("%u threads share %u core%s: synchronous threads without a core let the others wait; see "
                 "--threads 0",
                 n, cores, cores == 1 ? "" : "s");
    else if (n > better && better > 0)
        mst_warn("%u synchronous threads are slower than %lld with this model and batches of %lld row%s; see "
                 "--threads 0",
                 n, (long long)better, (long long)o->batch, o->batch == 1 ? "" : "s");
}

static mst_status training_make_strategy(mst_training *self)
{
    mst_strategy_options options = self->strategy_options;
    options.threads = training_threads(self);
    mst_strategy_env env = training_env(self);
    mst_status st = mst_strategy_new(&options, &env, &self->strategy);
    if (st == MST_OK || !mst_model_leave_gpu(self->assembly.model))
        return st;
    options.threads = training_threads(self);
    return mst_strategy_new(&options, &env, &self->strategy);
}

/* Threads that parse ahead unless --prefetch is given. Asynchronous training threads parse text while they
 * wait for rows, so more threads than cores would only take turns. */
static unsigned training_parsers(const mst_training *self)
{
    unsigned threads = (unsigned)self->strategy_options.threads, cores = mst_cpu_cores();
    if (self->strategy == NULL || self->strategy->n_lanes == 1 || !self->data.dataset->read_is_cheap)
        return threads;
    unsigned lanes = self->strategy->n_lanes, left = cores > lanes ? cores - lanes : 0,
             rest = threads - lanes;
    return left > threads ? threads : left > rest ? left : rest;
}

/* Whether a worker localises its rows, which copies and checks the keys, and the model computes with any
 * labels and without fields. */
static bool training_localises(const mst_training *self)
{
    const mst_model_ops *model = self->assembly.model->ops;
    return mst_model_has(model, MST_MODEL_LINEAR) && mst_model_has(model, MST_MODEL_BINARY) &&
           !mst_model_has(model, MST_MODEL_FIELDS) && !self->strategy_options.dense_model;
}

static mst_status training_make_feed(mst_training *self)
{
    const mst_strategy_options *o = &self->strategy_options;
    const mst_strategy *strategy = self->strategy;
    bool random = self->data.dataset->random;
    mst_feed_options lanes = {.n_lanes = 1,
                              .max_take = (uint32_t)o->batch,
                              .stop = self->config.stop,
                              .prefetch_threads = training_parsers(self)};
    if (strategy != NULL) {
        unsigned cores = mst_cpu_cores();
        lanes.n_lanes = strategy->n_lanes;
        lanes.max_take = strategy->max_take;
        /* synchronous threads wait for one that has lost its core: where they need all cores, the one that
         * claims rows of a cache makes the windows */
        lanes.no_core_left = o->mode == MST_MODE_SYNC && strategy->n_threads >= cores;
        /* otherwise a thread for windows of a cache needs little of an idle core, and less than lanes that do
         * its work */
        lanes.lanes_prepare = strategy->n_lanes > 1
                                  ? self->data.dataset->read_is_cheap || strategy->n_lanes >= cores
                                  : lanes.no_core_left && self->data.dataset->load_is_cheap;
        lanes.any_keys = strategy->any_keys;
        lanes.stop = strategy->stops_with_others ? NULL : self->config.stop;
    } else if (self->config.role == MST_TRAINING_WORKER) {
        bool whole = o->shard == MST_SHARD_LOCAL || (o->shard == MST_SHARD_AUTO && random);
        lanes.n_lanes = (unsigned)o->pipeline + 2;
        lanes.max_take = (uint32_t)(o->global_batch > o->batch ? o->global_batch : o->batch);
        lanes.shard = whole ? 0 : self->config.index;
        lanes.n_shards = whole ? 0 : (uint32_t)o->workers;
        lanes.any_keys = training_localises(self);
        /* a step that workers share needs the rows of each until the coordinator ends the job */
        lanes.stop = random ? NULL : self->config.stop;
    }
    return mst_train_data_make_feed(&self->data, self->assembly.model, &lanes);
}

static mst_status training_open(mst_training *self)
{
    const mst_train_config *c = &self->config;
    mst_train_data *data = &self->data;
    mst_params *params = &self->assembly.params;
    bool leads = training_leads(self), weights = c->role != MST_TRAINING_WORKER && !c->plan;
    mst_shape shape;
    json_t *plan;
    TRY(mst_train_data_open(data, c, &self->options, &self->epochs_given,
                            !c->plan && mst_strategy_random_rows(&self->strategy_options), &shape));
    if (c->index == 0)
        mst_train_data_warn(data);
    TRY((weights ? training_init_model : training_declare_model)(self, c->model, &shape));
    self->assembly.params.by_rows = training_by_rows(self); /* also of a plan, which reserves nothing */
    TRY(mst_assembly_check_rows(&self->assembly, &data->augment, data->dataset));
    if (weights || c->plan)
        training_choose_threads(self);
    if (self->strategy_options.batch == 1 && mst_model_normalises_rows(self->assembly.model))
        return mst_fail(MST_EUSAGE, "--batch 1: the net has a batch norm, which needs at least two rows to "
                                    "normalise over");
    if (weights)
        TRY(mst_model_check_memory(self->assembly.model, params, self->optimizer.options.adagrad_start > 0,
                                   mst_params_bytes(params)));
    TRY(training_describe(self));
    if (leads || !weights)
        TRY(mst_run_schedule_check(&self->schedule, &self->options, self->assembly.model->n_scores));
    if (leads && weights)
        TRY(mst_training_make_log(self));
    if (weights) {
        mst_params_populate(params);
        mst_assembly_start_keys(&self->assembly, (uint64_t)self->options.seed);
        mst_optimizer_start(&self->optimizer, params, 0, params->size);
    }
    if (leads) {
        TRY(mst_training_start(self, weights ? MST_START_LOAD : MST_START_CHECK, &plan));
        json_decref(plan);
        TRY(mst_train_data_open_sets(data, &self->assembly, weights ? params : NULL, c->stop));
    }
    if (weights) {
        TRY(training_make_strategy(self));
        training_warn_threads(self);
    }
    TRY(training_make_feed(self));
    json_t *found = mst_train_data_json(data);
    return found != NULL && json_object_set_new(self->description, "found", found) == 0 ? MST_OK
                                                                                        : mst_fail_memory();
}

/* ---- life ---- */

mst_status mst_training_new(const mst_train_config *config, mst_training **out)
{
    mst_training *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->config = *config;
    mst_status st = mst_training_reload(self);
    if (st == MST_OK && config->role != MST_TRAINING_SERVER)
        st = training_open(self);
    if (st != MST_OK) {
        bool leads = training_leads(self);
        mst_training_destroy(self);
        return st == MST_ESTOPPED && leads
                   ? mst_fail_lead(st, "stopped", " before training began; nothing was saved")
                   : st;
    }
    *out = self;
    return MST_OK;
}

void mst_training_destroy(mst_training *self)
{
    if (self == NULL)
        return;
    mst_training_close_start(self);
    mst_run_log_destroy(self->log);
    mst_feed_trace(self->data.feed, NULL, 0);
    mst_observe_destroy(self->observe);
    mst_strategy_destroy(self->strategy); /* it may hold rows of the data */
    mst_train_data_fini(&self->data);
    mst_assembly_fini(&self->assembly);
    json_decref(self->description);
    json_decref(self->workers);
    mst_free(self->continued);
    mst_free(self);
}

void mst_start_fini(mst_start *self)
{
    if (self->assembly.model != NULL)
        mst_assembly_fini(&self->assembly);
    json_decref(self->state);
    *self = (mst_start){0};
}

mst_status mst_training_take(mst_training *self, mst_start *out)
{
    json_t *state = mst_run_log_state(self->log);
    if (state == NULL)
        return mst_fail_memory();
    json_object_del(json_object_get(state, "extra"), "best_valid_loss"); /* it is of these sets */
    mst_train_data_close_sets(&self->data);                              /* they point at the parameters */
    mst_strategy_destroy(self->strategy);
    self->strategy = NULL;
    mst_run_log_restore_best(self->log, &self->assembly.params);
    *out = (mst_start){.assembly = self->assembly, .state = state};
    self->assembly = (mst_assembly){0};
    snprintf(out->optimizer, sizeof out->optimizer, "%s", self->optimizer.ops->name);
    snprintf(out->sparse, sizeof out->sparse, "%s", mst_training_sparse_name(self));
    return MST_OK;
}

void mst_training_observe(mst_training *self, uint64_t step)
{
    const mst_train_config *c = &self->config;
    const mst_train_options *o = &self->options;
    const char *role = role_names[c->role];
    char process[MST_PROCESS_NAME];
    mst_observe_options options = {
        .process = process,
        .role = role,
        .index = c->index,
        .n_threads = (unsigned)self->strategy_options.threads,
        .n_parsers = mst_feed_parsers(self->data.feed),
        .every_s = o->resources_every,
        .guest = c->guest,
        .events = true,
        .trace = o->trace || o->trace_steps != NULL,
        .step = step,
    };
    mst_feed_trace(self->data.feed, NULL, 0);
    mst_observe_destroy(self->observe);
    self->observe = NULL;
    if (!o->observe ||
        mst_trace_steps_parse(o->trace_steps, &options.trace_from, &options.trace_to) != MST_OK)
        return;
    snprintf(process, sizeof process, c->role == MST_TRAINING_LOCAL ? "%s" : "%s-%u", role, c->index);
    self->observe = mst_observe_new(&options);
    if (self->observe != NULL && options.trace)
        mst_feed_trace(self->data.feed, mst_observe_spans(self->observe), options.n_threads + 1);
}
