/* The checkpoint that a run starts from; contract in training.h. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "data/origin.h"
#include "run/tensors_load.h"
#include "train/training_impl.h"

/* The scores of a model are corrected by the logarithm of --keep-negatives (mst_model_score). Where the run
 * corrects by another one than the checkpoint's, the bias takes the difference, so that the run starts with
 * the checkpoint's scores. */
static mst_status training_find_shift(mst_training *self, const char *path, const json_t *theirs)
{
    const json_t *was = json_object_get(theirs, "keep_negatives");
    double before = json_is_number(was) ? json_number_value(was) : 1.0,
           now = self->assembly.model->options.keep_negatives;
    now = now > 0.0 ? now : 1.0;
    self->shift = (float)(log(before) - log(now));
    if (self->shift == 0.0f)
        return MST_OK;
    if (!mst_model_bias(self->assembly.model, &self->assembly.params, &self->shift_at))
        return mst_fail(MST_EUSAGE,
                        "%s was trained with --keep-negatives %g, and the model has no bias that could take "
                        "the correction: give --keep-negatives %g",
                        path, before, before);
    mst_info("%s was trained with --keep-negatives %g and this run has %g: the bias starts with the "
             "difference, %+.4f",
             path, before, now, (double)self->shift);
    return MST_OK;
}

static mst_status training_use_start(mst_training *self, const char *path, mst_checkpoint_meta *meta,
                                     mst_start_use use, bool resumes)
{
    const mst_train_options *o = &self->options;
    const json_t *description = self->description;
    const mst_dataset *dataset = self->data.dataset;
    TRY(mst_checkpoint_read_meta(path, meta));
    if (!o->force)
        TRY(mst_origin_check(mst_origin_in(json_object_get(meta->extra, "data")), path,
                             mst_origin_in(json_object_get(description, "reading")),
                             dataset != NULL ? dataset->name : "the training data"));
    TRY(mst_checkpoint_fits(path, meta->model, json_object_get(description, "model"),
                            self->config.data->features != 0));
    self->has_slots = resumes;
    TRY(training_find_shift(self, path, meta->model));
    if (use == MST_START_LOAD) {
        TRY(mst_checkpoint_load(path, &self->assembly.params, resumes));
        if (self->shift != 0.0f) {
            float bias;
            mst_params_read(&self->assembly.params, 0, self->shift_at, 1, &bias);
            bias += self->shift;
            mst_params_write(&self->assembly.params, 0, self->shift_at, 1, &bias);
        }
        return MST_OK;
    }
    return use == MST_START_OPEN ? mst_checkpoint_open(path, &self->assembly.params, resumes, &self->start)
                                 : MST_OK;
}

/* A resumed run must not validate on rows that it was trained on. The rows of a smaller fraction of one seed
 * are among those of a larger one. */
static mst_status training_check_held_out(const mst_training *self)
{
    mst_resumed run = mst_resumed_of(&self->config);
    mst_held_out now;
    TRY(mst_held_out_parse(&self->options, &now));
    if (!run.known || now.fraction == 0.0 || mst_run_log_has_new_data(self->log) ||
        (now.seed == run.held_out.seed && now.fraction <= run.held_out.fraction))
        return MST_OK;
    return mst_fail(MST_EUSAGE,
                    "--valid %s: the run was trained on rows that this would hold out; give a file of other "
                    "rows to --valid, or start a new run",
                    self->options.valid);
}

const char *mst_training_sparse_name(const mst_training *self)
{
    return self->optimizer.sparse != NULL ? self->optimizer.sparse->ops->name : "";
}

/* Copies the weights of a model in memory and, with has_slots, its state. */
static mst_status training_copy(mst_training *self, const mst_params *params)
{
    enum { BLOCK = 1 << 14 };
    mst_params *to = &self->assembly.params;
    float *block = mst_alloc(BLOCK * sizeof *block);
    if (block == NULL)
        return mst_fail_memory();
    for (uint32_t slot = 0; slot <= (self->has_slots ? to->n_slots : 0); slot++)
        for (uint64_t at = 0, first, count; mst_params_next_piece(to, slot, &at, to->size, &first, &count);)
            while (count > 0) {
                uint64_t n = count < BLOCK ? count : BLOCK;
                mst_params_read(params, slot, first, n, block);
                mst_params_write(to, slot, first, n, block);
                first += n;
                count -= n;
            }
    mst_free(block);
    return MST_OK;
}

/* Takes over the weights of a model in memory, its state if it is of the same optimizer, and its progress. */
static mst_status training_start_from(mst_training *self, const mst_start *from, mst_start_use use)
{
    json_t *theirs = mst_model_json(from->assembly.model);
    mst_status st = theirs != NULL ? mst_checkpoint_fits("the model", theirs,
                                                         json_object_get(self->description, "model"), false)
                                   : mst_fail_memory();
    json_decref(theirs);
    TRY(st);
    self->has_slots = strcmp(from->optimizer, self->optimizer.ops->name) == 0 &&
                      strcmp(from->sparse, mst_training_sparse_name(self)) == 0;
    if (use == MST_START_LOAD)
        TRY(training_copy(self, &from->assembly.params));
    if (from->state == NULL)
        return MST_OK;
    mst_progress at = {0};
    at.steps = (uint64_t)json_integer_value(json_object_get(from->state, "step"));
    at.rows = (uint64_t)json_integer_value(json_object_get(from->state, "rows"));
    at.epoch = (uint64_t)json_integer_value(json_object_get(from->state, "epoch"));
    at.position = (uint64_t)json_integer_value(json_object_get(from->state, "position"));
    self->options.resume_data = MST_RESUME_NEW; /* limits count from here */
    return mst_run_log_resume_state(self->log, from->state, &at);
}

mst_status mst_training_start(mst_training *self, mst_start_use use, json_t **plan)
{
    const mst_train_options *o = &self->options;
    mst_checkpoint_meta meta = {0};
    char *path = NULL;
    bool best, resumes = o->resume;
    mst_status st = resumes ? mst_checkpoint_find(o->run, &path) : MST_OK;
    *plan = NULL;
    if (self->config.from != NULL)
        return training_start_from(self, self->config.from, use);
    if (st == MST_EINPUT && self->continued != NULL) { /* nothing was saved before the loss */
        resumes = false;
        st = MST_OK;
    }
    if (st == MST_OK && !resumes && o->init_from != NULL && mst_tensors_is_file(o->init_from)) {
        if (self->strategy_options.strategy != MST_STRATEGY_LOCAL)
            return mst_fail(
                MST_EUSAGE,
                "--init-from %s: only --strategy local starts from a file without a checkpoint; train "
                "one step with it, and start from that run",
                o->init_from);
        return use == MST_START_LOAD ? mst_tensors_load(o->init_from, &self->assembly.params) : MST_OK;
    }
    if (st == MST_OK && !resumes && o->init_from != NULL)
        st = mst_checkpoint_find_model(o->init_from, false, &path, &best);
    if (st == MST_OK && path != NULL)
        st = training_use_start(self, path, &meta, use, resumes);
    if (st == MST_OK && resumes && self->log != NULL) {
        mst_run_log_resume(self->log, &meta);
        st = training_check_held_out(self);
        if (st == MST_OK && !mst_run_log_has_new_data(self->log))
            *plan = json_incref(json_object_get(meta.extra, "plan"));
    }
    mst_checkpoint_meta_fini(&meta);
    mst_free(path);
    return st;
}

mst_status mst_training_continue(mst_training *self, const char *run)
{
    mst_train_options *o = &self->options;
    if (run == NULL)
        return mst_fail(MST_EEXIST,
                        "the run's folder was deleted and holds another run: choose another --run");
    char *copy = mst_strdup(run);
    if (copy == NULL)
        return mst_fail_memory();
    mst_run_log_destroy(self->log); /* waits for the checkpoint that is being written */
    self->log = NULL;
    mst_free(self->continued);
    o->run = self->continued = copy;
    o->resume = true;
    o->overwrite = false;
    if (o->resume_data == MST_RESUME_NEW)
        o->resume_data = MST_RESUME_AUTO;
    return MST_OK;
}

mst_status mst_training_start_log(mst_training *self, json_t **plan)
{
    TRY(mst_run_schedule_check(&self->schedule, &self->options, self->assembly.model->n_scores));
    TRY(mst_training_make_log(self));
    return mst_training_start(self, MST_START_OPEN, plan);
}

mst_status mst_training_start_log_from(mst_training *self, const json_t *state, const mst_progress *at)
{
    TRY(mst_run_schedule_check(&self->schedule, &self->options, self->assembly.model->n_scores));
    TRY(mst_training_make_log(self));
    return mst_run_log_resume_state(self->log, state, at);
}

mst_status mst_training_read_start(mst_training *self, uint32_t slot, uint64_t first, uint64_t count,
                                   float *out)
{
    if ((slot == 0 || self->has_slots) && self->config.from != NULL) {
        mst_params_read(&self->config.from->assembly.params, slot, first, count, out);
        return MST_OK;
    }
    if (slot == 0 || self->has_slots) {
        TRY(mst_checkpoint_read(self->start, slot, first, count, out));
        if (slot == 0 && self->shift != 0.0f && self->shift_at >= first && self->shift_at - first < count)
            out[self->shift_at - first] += self->shift;
        return MST_OK;
    }
    mst_params_read(&self->assembly.params, slot, first, count, out); /* fresh state */
    return MST_OK;
}

mst_status mst_training_reopen_start(mst_training *self, mst_checkpoint_meta *meta)
{
    const char *run = mst_run_log_path(self->log);
    char *path = NULL;
    bool best;
    mst_checkpoint_meta ignored = {0};
    mst_training_close_start(self);
    mst_status st = run != NULL ? mst_checkpoint_find(run, &path) : MST_EINPUT;
    bool own = st == MST_OK;
    if (st == MST_EINPUT && self->options.init_from != NULL)
        st = mst_checkpoint_find_model(self->options.init_from, false, &path, &best);
    else if (st == MST_EINPUT)
        st = MST_OK;
    if (st == MST_OK && path != NULL)
        st = training_use_start(self, path, own ? meta : &ignored, MST_START_OPEN, own);
    mst_checkpoint_meta_fini(&ignored);
    mst_free(path);
    return st;
}

void mst_training_close_start(mst_training *self)
{
    mst_checkpoint_close(self->start);
    self->start = NULL;
}
