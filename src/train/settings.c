/* Settings of a training; contract in settings.h. */
#include "train/settings.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "base/utf8.h"
#include "run/checkpoint.h"
#include "run/run_dir.h"
#include "train/settings_impl.h"

/* --threads 0, sync: fewer rows of a batch cost more in barriers than they gain; and one of many cores is
 * left to the thread that prepares rows, because all wait at a barrier for one that has lost its core. */
#define LOGREG_ROWS 64 /* per thread */
#define ROWS        24 /* the same, of models with several weights per feature */
#define MANY_CORES  4

void mst_settings_begin(mst_settings *self, const mst_option_group *own)
{
    *self = (mst_settings){0};
    mst_option_group *g = self->groups;
    *g++ = (mst_option_group){.title = "training", .table = mst_train_option_table, .base = &self->train};
    *g++ = (mst_option_group){.title = "model", .table = mst_model_option_table, .base = &self->model};
    *g++ = (mst_option_group){.title = "optimizer", .table = mst_optim_option_table, .base = &self->optim};
    *g++ =
        (mst_option_group){.title = "strategy", .table = mst_strategy_option_table, .base = &self->strategy};
    *g++ = (mst_option_group){.title = "data", .table = mst_data_option_table, .base = &self->data};
    *g++ = (mst_option_group){
        .title = "augmentation", .table = mst_augment_option_table, .base = &self->augment};
    if (own != NULL)
        *g++ = *own;
    *g++ = (mst_option_group){.title = "process", .table = mst_process_option_table, .base = &self->process};
    self->n_groups = (size_t)(g - self->groups);
}

void mst_settings_fini(mst_settings *self)
{
    mst_options_fini(self->groups, self->n_groups);
    mst_text_list_fini(&self->files);
    mst_cluster_fini(&self->cluster);
    json_decref(self->options);
    mst_free(self->net);
}

/* ---- the model ---- */

mst_status mst_settings_imply(mst_settings *self)
{
    if (self->model.net == NULL || mst_options_is_set(self->groups, self->n_groups, "model"))
        return MST_OK;
    return mst_options_set(self->groups, self->n_groups, "model", "net");
}

/* Synchronous threads of a linear model for which a batch has enough rows. */
static int64_t settings_most_threads(const mst_settings *s)
{
    const mst_model_ops *model = mst_models[s->model.model];
    bool logreg = mst_model_has(model, MST_MODEL_BINARY) && !mst_model_has(model, MST_MODEL_FACTORS);
    int64_t most = s->resolved.batch / (logreg ? LOGREG_ROWS : ROWS);
    return most > 1 ? most : 1;
}

/* Resolves the strategy, when all other options are settled. */
static mst_status settings_resolve(mst_settings *s)
{
    bool local = s->strategy.strategy == MST_STRATEGY_LOCAL, chosen = local && s->strategy.threads == 0;
    s->resolved = s->strategy;
    TRY(mst_strategy_resolve(&s->resolved));
    /* Nets divide a batch themselves; threads that share the rows of a batch need some rows each. */
    s->resolved.threads_chosen = chosen;
    if (local && s->strategy.mode == MST_MODE_SYNC &&
        mst_model_has(mst_models[s->model.model], MST_MODEL_LINEAR))
        s->resolved.threads_most = settings_most_threads(s);
    if (chosen && s->resolved.threads_most > 0) {
        s->resolved.threads -= s->resolved.threads > MANY_CORES;
        if (s->resolved.threads > s->resolved.threads_most)
            s->resolved.threads = s->resolved.threads_most;
    }
    if (chosen) /* a resumed run has as many */
        s->strategy.threads = s->resolved.threads;
    s->strategy.servers = s->resolved.servers;
    return MST_OK;
}

mst_status mst_fail_split_norm(void)
{
    return mst_fail(MST_EUSAGE, "--clip-norm with --mode sync needs the whole gradient in one place: use one "
                                "server, or --mode async or ssp");
}

mst_status mst_settings_adopt(mst_settings *s, const json_t *job, json_t *shared)
{
    if (!json_is_true(json_object_get(job, "resume")) || !s->train.resume)
        return s->files.n > 0 ? MST_OK : mst_fail(MST_EUSAGE, "no training data given; name the files");
    json_t *copy = json_deep_copy(job);
    mst_status st = mst_resume_manifest(s, copy, "the message of the coordinator");
    json_decref(copy);
    TRY(st);
    mst_settings_count_processes(s);
    TRY(settings_resolve(s));
    json_t *options = mst_options_json(s->groups, s->n_groups), *own = mst_settings_shared(options);
    if (options == NULL || own == NULL || json_object_update(shared, own) != 0)
        st = mst_fail_memory();
    json_decref(options);
    json_decref(own);
    return st;
}

/* Checks the run directory, before the data is read. */
static mst_status settings_check_run(const mst_settings *s, bool dry_run)
{
    const char *run = s->train.run;
    if (!mst_settings_keeps_run(s) || run == NULL)
        return MST_OK;
    if (dry_run || s->train.resume || !mst_path_exists(run))
        return MST_OK;
    if (!mst_path_is_folder(run))
        return mst_fail(MST_EEXIST, "%s already exists and is not a folder; choose another name", run);
    bool job = s->cluster.source != NULL && !s->cluster.ranks; /* it may be a job's own: job/job_continue.c */
    return s->train.overwrite || job || mst_run_is_empty(run) ? MST_OK : mst_run_refuse_existing(run);
}

static mst_status settings_check_usage(mst_settings *s, bool dry_run)
{
    TRY(mst_settings_check_ranks(s));
    if (s->files.n == 0 && s->process.role == 0 && !(mst_settings_follows_rank_0(s) && s->train.resume))
        return mst_fail(MST_EUSAGE, "no training data given; name the files (\"-\" is standard input)");
    TRY(settings_check_run(s, dry_run));
    if (s->augment.normalise != NULL && strcmp(s->augment.normalise, "auto") == 0 &&
        s->strategy.strategy == MST_STRATEGY_PS && s->strategy.shard == MST_SHARD_LOCAL)
        return mst_fail(
            MST_EUSAGE,
            "--normalise auto: with --shard local, each worker would compute its own means; give the values");
    TRY(settings_resolve(s));
    if (s->optim.clip_norm > 0.0 && s->resolved.sparse_mode != 0)
        return mst_fail(MST_EUSAGE, "--clip-norm needs the whole gradient of a step, and with --sparse-mode "
                                    "async a part of it is used earlier; leave out one of them");
    if (s->optim.clip_norm > 0.0 && s->resolved.strategy == MST_STRATEGY_PS &&
        s->resolved.mode == MST_MODE_SYNC && s->resolved.servers > 1)
        return mst_fail_split_norm();
    return MST_OK;
}

mst_status mst_group_check(const char *group)
{
    if (*group == '\0')
        return mst_fail(MST_EUSAGE, "--group: the name of the group is empty");
    if (strlen(group) > MST_GROUP_MAX)
        return mst_fail(MST_EUSAGE, "--group: the name has %zu bytes; at most %d are allowed", strlen(group),
                        MST_GROUP_MAX);
    if (!mst_utf8_plain(group))
        return mst_fail(MST_EUSAGE,
                        "--group: the name must be one line of UTF-8 text without control characters");
    return MST_OK;
}

/* A model that a run starts from has rows of its own columns, so tables are read with its list of them. A
 * checkpoint that this process cannot read is reported by the one that loads it. */
static mst_status settings_adopt_columns(mst_settings *s)
{
    mst_checkpoint_meta meta = {0};
    char *path = NULL;
    bool best;
    if (s->train.init_from == NULL || s->train.resume ||
        mst_options_is_set(s->groups, s->n_groups, "csv-columns") ||
        mst_checkpoint_find_model(s->train.init_from, false, &path, &best) != MST_OK)
        return MST_OK;
    mst_status st = MST_OK;
    if (mst_checkpoint_read_meta(path, &meta) == MST_OK) {
        const char *list =
            json_string_value(json_object_get(json_object_get(meta.extra, "data"), "csv-columns"));
        if (list != NULL)
            st = mst_options_set(s->groups, s->n_groups, "csv-columns", list);
    }
    mst_checkpoint_meta_fini(&meta);
    mst_free(path);
    return st;
}

mst_status mst_settings_settle(mst_settings *self, bool dry_run)
{
    static const char *const plugins[] = {"auto", "openmpi", "mpich"};
    if (self->process.mpi_plugin != 0 && setenv("MUSTER_MPI", plugins[self->process.mpi_plugin], 1) != 0)
        return mst_fail(MST_ENOMEM, "no memory for --mpi-plugin");
    for (size_t i = 0, named = self->files.n; named == 0 && i < self->process.files.n; i++)
        TRY(mst_text_list_add(&self->files, self->process.files.items[i]));
    mst_given given = mst_given_of(self);
    mst_batch_before before = {0};
    mst_data_options_note(&self->data, self->groups, self->n_groups);
    self->strategy.tls_given = mst_options_is_set(self->groups, self->n_groups, "tls");
    TRY(mst_settings_find_cluster(self));
    if (self->train.run != NULL && *self->train.run == '\0')
        return mst_fail(MST_EUSAGE, "--run: the name of the folder is empty");
    if (self->train.group != NULL)
        TRY(mst_group_check(self->train.group));
    if (self->train.resume && self->train.run == NULL && mst_settings_keeps_run(self))
        return mst_fail(MST_EUSAGE, "--resume needs --run, the directory of the run to continue");
    if (self->train.resume && mst_settings_keeps_run(self))
        TRY(mst_resume_run(self, &before));
    TRY(settings_adopt_columns(self));
    TRY(mst_settings_imply(self));
    if (!mst_options_is_set(self->groups, self->n_groups, "lr"))
        self->optim.lr = mst_optimizers[self->optim.optimizer]->lr;
    mst_settings_count_processes(self);
    TRY(mst_batch_keep(&before, self));
    TRY(mst_given_check(&given, self, self->train.resume && !mst_settings_keeps_run(self)));
    TRY(settings_check_usage(self, dry_run));
    mst_batch_report(&before, self);
    if (self->cluster.allreduce && self->process.index == 0)
        mst_info("--strategy allreduce without MPI: each of the %u workers of %s holds a share of the model "
                 "(--strategy ps without servers)",
                 self->cluster.n_workers, self->cluster.source);
    self->options = mst_options_json(self->groups, self->n_groups);
    return self->options != NULL ? MST_OK : mst_fail_memory();
}

mst_train_config mst_settings_config(mst_settings *self)
{
    return (mst_train_config){
        .files = &self->files,
        .train = &self->train,
        .data = &self->data,
        .augment = &self->augment,
        .model = &self->model,
        .optim = &self->optim,
        .strategy = &self->resolved,
        .options = self->options,
        .data_options = json_object_get(self->options, "data"),
        .augment_options = json_object_get(self->options, "augmentation"),
        .epochs_given = mst_options_is_set(self->groups, self->n_groups, "epochs"),
        .resumed = &self->resumed,
        .shuffle_given = mst_options_is_set(self->groups, self->n_groups, "shuffle-rows"),
    };
}
