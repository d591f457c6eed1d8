/* Trainers of the public interface: a settled copy of the options, and the training loop or job that the
 * options select; contract in muster/muster.h. */
#include <string.h>

#include "api/api_impl.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/float_mode.h"
#include "job/job.h"
#include "tensor/dnnl_ops.h"
#include "train/training.h"

#define LOOK_NS (200 * MST_MS) /* between two calls of a callback without a number of steps */

struct muster_trainer {
    muster_options *options;
    mst_train_config config;
    mst_training *loop; /* strategy local; else NULL */
    mst_start end;      /* of a job in memory, until the model is taken */
    atomic_bool stop;
    bool ran, done;
    mst_train_summary summary;
    /* During run: */
    uint64_t every, reported_step, reported_ns;
    muster_callback *callback;
    void *arg;
};

/* ---- callbacks ---- */

static muster_result trainer_result(const mst_result *r)
{
    return (muster_result){.rows = r->rows,
                           .loss = r->loss,
                           .accuracy = r->accuracy,
                           .auc = r->auc,
                           .top5 = r->top5,
                           .grouped_auc = r->grouped_auc,
                           .calibration = r->calibration,
                           .normalised_entropy = r->normalised_entropy};
}

static muster_progress trainer_progress(muster_event event, const mst_train_status *s)
{
    return (muster_progress){
        .event = event,
        .step = s->step,
        .rows = s->rows,
        .epoch = s->epoch,
        .train_seconds = s->train_seconds,
        .rows_per_s = s->rows_per_s,
        .loss = s->train_loss,
        .lr = s->lr,
        .set = "",
        .path = "",
    };
}

static void trainer_call_back(muster_trainer *self, const muster_progress *p)
{
    if (self->callback(self->arg, p) != 0)
        atomic_store(&self->stop, true);
}

static void trainer_on_progress(void *arg, const mst_train_status *s)
{
    muster_trainer *self = arg;
    uint64_t now = mst_now_ns();
    bool due = self->every > 0 ? s->step / self->every > self->reported_step / self->every
                               : s->step > self->reported_step && now - self->reported_ns >= LOOK_NS;
    if (!due)
        return;
    self->reported_step = s->step;
    self->reported_ns = now;
    muster_progress p = trainer_progress(MUSTER_EVENT_STEPS, s);
    trainer_call_back(self, &p);
}

static void trainer_on_evaluated(void *arg, const mst_train_status *s, const char *set, const mst_result *r)
{
    muster_progress p = trainer_progress(MUSTER_EVENT_EVALUATED, s);
    p.set = set;
    p.result = trainer_result(r);
    trainer_call_back(arg, &p);
}

static void trainer_on_saved(void *arg, const mst_train_status *s, const char *path)
{
    muster_progress p = trainer_progress(MUSTER_EVENT_SAVED, s);
    p.path = path;
    trainer_call_back(arg, &p);
}

/* ---- making ---- */

static mst_status trainer_open_reader(void *arg, const mst_text_list *files, mst_dataset **out)
{
    const muster_options *options = arg;
    for (size_t f = 0; f < files->n; f++)
        for (size_t i = 0; i < options->n_readers; i++) {
            const mst_api_named_reader *r = &options->readers[i];
            if (strcmp(files->items[f], r->name) != 0)
                continue;
            if (files->n > 1)
                return mst_fail(MST_EUSAGE, "reader %s cannot be read together with %s", r->name,
                                files->items[f == 0]);
            return r->rows != NULL ? mst_array_rows_open(r->rows, r->name, out)
                                   : mst_api_reader_open(r->name, &r->reader, out);
        }
    return MST_OK;
}

/* Uses the net of the program in place of options that name or change one. */
static mst_status trainer_use_net(muster_options *options)
{
    mst_settings *s = &options->settings;
    if (options->net == NULL)
        return MST_OK;
    const char *name = mst_options_set_with(s->groups, s->n_groups, MST_MODEL_OPTION_OF_NET);
    if (name != NULL)
        return mst_fail(MST_EUSAGE, "--%s has no effect: the program has its own net", name);
    if (mst_options_is_set(s->groups, s->n_groups, "model") &&
        !mst_model_has(mst_models[s->model.model], MST_MODEL_NET_FILE))
        return mst_fail(MST_EUSAGE, "--model %s has no effect: the program has its own net",
                        mst_models[s->model.model]->name);
    TRY(mst_options_set(s->groups, s->n_groups, "model", "net"));
    s->model.net_text = options->net->text;
    s->model.kinds = options->net->kinds;
    return MST_OK;
}

/* Ends mst_float_flush: gives the thread of the program, and its OpenMP threads, their mode back. */
static void trainer_restore(mst_float_mode mode)
{
    mst_float_mode_set(mode);
    mst_dnnl_restore_mode();
}

static mst_status trainer_set_up(muster_trainer *self)
{
    muster_options *options = self->options;
    mst_settings *s = &options->settings;
    TRY(trainer_use_net(options));
    TRY(mst_settings_settle(s, false));
    if (s->train.cache && options->n_readers > 0)
        return mst_fail(MST_EUSAGE, "--cache is for files, but the program reads rows itself");
    self->config = mst_settings_config(s);
    self->config.stop = &self->stop;
    self->config.open_own = trainer_open_reader;
    self->config.open_arg = options;
    bool one_process = s->strategy.strategy != MST_STRATEGY_ALLREDUCE && s->cluster.source == NULL;
    if (!one_process && (options->in_memory || options->model != NULL))
        return mst_fail(MST_EUSAGE,
                        "a training in memory, or from a model in memory, needs a single process: leave out "
                        "the cluster, or train in a run directory and continue it with --resume");
    if (options->model != NULL && (s->train.resume || s->train.init_from != NULL))
        return mst_fail(MST_EUSAGE, "the program gives the model to start from: leave out --resume and "
                                    "--init-from");
    self->config.in_memory = options->in_memory;
    if (options->model != NULL)
        self->config.from = mst_api_model_start(options->model);
    if (!mst_settings_local(s))
        return MST_OK;
    TRY(mst_training_new(&self->config, &self->loop));
    self->config.from = NULL; /* it is copied */
    return MST_OK;
}

muster_status muster_trainer_new(const muster_options *options, muster_trainer **out)
{
    muster_trainer *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return muster_fail(MUSTER_ENOMEM, "no memory for training");
    atomic_init(&self->stop, false);
    mst_float_mode mode = mst_float_flush(); /* for the threads that are made here */
    mst_status st = mst_api_options_copy(options, &self->options);
    if (st == MST_OK)
        st = trainer_set_up(self);
    trainer_restore(mode);
    if (st != MST_OK) {
        muster_trainer_free(self);
        return (muster_status)st;
    }
    *out = self;
    return MUSTER_OK;
}

void muster_trainer_free(muster_trainer *self)
{
    if (self == NULL)
        return;
    mst_training_destroy(self->loop);
    mst_start_fini(&self->end);
    muster_options_free(self->options);
    mst_free(self);
}

muster_status muster_trainer_model(muster_trainer *self, muster_model **out)
{
    mst_start end = {0};
    if (!self->done)
        return muster_fail(MUSTER_EUSAGE, "the trainer has no model: its training has not ended well, or its "
                                          "model was taken before");
    if (!self->config.in_memory && self->summary.checkpoint[0] == '\0')
        return muster_fail(MUSTER_EUSAGE, "the trainer has no checkpoint (--no-save)");
    if (!self->config.in_memory)
        return muster_model_load_state(self->summary.run, self->options->net, out);
    self->done = false;
    mst_status st = MST_OK;
    if (self->loop != NULL)
        st = mst_training_take(self->loop, &end);
    else
        end = self->end;
    self->end = (mst_start){0};
    if (st == MST_OK)
        st = mst_api_model_of(&end, self->options->net, out);
    return (muster_status)st;
}

void muster_trainer_stop(muster_trainer *self)
{
    atomic_store(&self->stop, true);
}

/* ---- running ---- */

static void trainer_fill_summary(const muster_trainer *self, bool has_run, muster_summary *out)
{
    const mst_train_summary *s = &self->summary;
    *out = (muster_summary){.has_run = has_run, .end = "", .run = s->run, .checkpoint = s->checkpoint};
    if (!has_run)
        return;
    out->stopped = s->end == MST_END_STOPPED;
    out->end = mst_end_text(s->end);
    out->step = s->status.step;
    out->rows = s->status.rows;
    out->train_seconds = s->status.train_seconds;
    out->train_loss = s->status.train_loss;
    out->test = trainer_result(&s->test);
    out->valid = trainer_result(&s->valid);
}

static mst_status trainer_run_job(muster_trainer *self, const mst_train_callbacks *callbacks, bool *has_run)
{
    mst_job_summary summary;
    mst_status st =
        mst_job_run(&self->options->settings, &self->config, &(mst_job_lost){0}, callbacks, &summary);
    *has_run = summary.coordinated;
    self->config.from = NULL; /* it was copied */
    self->end = summary.end;
    if (st == MST_OK && summary.coordinated)
        self->summary = summary.train;
    json_decref(summary.workers);
    return st;
}

muster_status muster_trainer_run(muster_trainer *self, uint64_t every, muster_callback *callback, void *arg,
                                 muster_summary *summary)
{
    mst_train_callbacks callbacks = {.arg = self};
    bool has_run = true;
    if (self->ran)
        return muster_fail(
            MUSTER_EUSAGE,
            "this trainer has run; to continue its run, create a new one with the option resume");
    self->ran = true;
    self->every = every;
    self->callback = callback;
    self->arg = arg;
    self->reported_ns = mst_now_ns();
    if (callback != NULL) {
        callbacks.progress = trainer_on_progress;
        callbacks.evaluated = trainer_on_evaluated;
        callbacks.saved = trainer_on_saved;
        if (self->loop != NULL)
            mst_training_report_every(self->loop, every);
    }
    mst_float_mode mode = mst_float_flush();
    mst_status st = self->loop != NULL ? mst_training_run(self->loop, &callbacks, &self->summary)
                                       : trainer_run_job(self, &callbacks, &has_run);
    trainer_restore(mode);
    self->done = st == MST_OK && has_run;
    if (st == MST_OK && summary != NULL)
        trainer_fill_summary(self, has_run, summary);
    return (muster_status)st;
}
