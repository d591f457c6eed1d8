/* A worker's part of a job; contract in job.h. Where the cluster names no servers, a thread of this process
 * serves. */
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "job/job_impl.h"
#include "job/pulled_eval.h"
#include "train/observing.h"
#include "train/trainer_impl.h"

/* ---- training ---- */

/* Opens the sets on the thread that evaluates. */
static mst_status open_sets(void *arg, const atomic_bool *stop, mst_evaluator **test, mst_evaluator **valid)
{
    mst_trainer *trainer = arg;
    TRY(mst_trainer_open_sets(trainer, NULL, stop));
    *test = trainer->test.evaluator;
    *valid = trainer->valid.evaluator;
    return MST_OK;
}

static mst_status describe(const mst_job_config *config, const mst_trainer *trainer, json_t **out)
{
    json_t *join = mst_job_join(config, "worker");
    mst_status st = MST_OK;
    for (int set = 0; st == MST_OK && set < MST_JOB_N_SETS; set++) {
        json_t *files = NULL;
        st = mst_job_data(config, (mst_job_set)set, &files);
        if (st == MST_OK && json_object_set_new(join, mst_job_sets[set], files) != 0)
            st = mst_fail_memory();
    }
    if (st != MST_OK) {
        json_decref(join);
        return st;
    }
    /* of an epoch, where its rows are divided by position: shards differ */
    bool shared = trainer->dataset->random && trainer->strategy_options.shard == MST_SHARD_AUTO;
    uint64_t rows = shared ? mst_feed_epoch_rows(trainer->feed) : 0;
    json_object_set_new(join, "model", mst_model_json(trainer->assembly.model));
    json_object_set_new(
        join, "data",
        json_pack("{s:b, s:I}", "random", (int)trainer->dataset->random, "rows", (json_int_t)rows));
    json_object_set_new(join, "found", mst_trainer_data_json(trainer));
    json_object_set(join, "reading", trainer->data_json);
    json_object_set_new(join, "reading_unknown", json_boolean(trainer->reading_unknown));
    *out = join;
    return MST_OK;
}

static mst_status train(const mst_job_config *config, mst_worker *worker, mst_trainer *trainer,
                        mst_worker_counts *counts)
{
    const mst_strategy_options *o = &trainer->strategy_options;
    mst_pulled_eval *evaluation = NULL;
    mst_pulled_eval_options eval = {.model = trainer->assembly.model,
                                    .params = &trainer->assembly.params,
                                    .dense_model = o->dense_model,
                                    .observe = trainer->observe,
                                    .arg = trainer,
                                    .open = open_sets};
    TRY(mst_pulled_eval_new(&eval, &evaluation));
    mst_worker_job job = {
        .mode = (mst_mode)o->mode,
        .batch = (uint32_t)o->batch,
        .global_batch = (uint32_t)o->global_batch,
        .pipeline = (uint32_t)o->pipeline,
        .wire = (mst_wire)o->wire,
        .seed = (uint64_t)trainer->options.seed,
        .n_threads = trainer->n_threads,
        .dense_model = o->dense_model,
        .part_floats = (uint32_t)o->part,
        .clip = o->mode != MST_MODE_SYNC && trainer->optimizer.options.clip_norm > 0.0,
        .model = trainer->assembly.model,
        .optimizer = &trainer->optimizer,
        .params = &trainer->assembly.params,
        .feed = trainer->feed,
        .dataset = trainer->dataset,
        .evaluation = mst_pulled_eval_for_worker(evaluation),
        .observe = trainer->observe,
    };
    mst_status st = describe(config, trainer, &job.join);
    if (st == MST_OK)
        st = mst_worker_run(worker, &job, counts);
    if (st == MST_OK)
        st = mst_dataset_intact(trainer->dataset);
    json_decref(job.join);
    mst_pulled_eval_destroy(evaluation);
    return st;
}

/* The trainer is ready: from here on it is watched. */
static void watch(const mst_job_config *config, mst_trainer *trainer, mst_trainer **out)
{
    mst_observing who = {.role = "worker",
                         .index = config->index,
                         .n_threads = trainer->n_threads,
                         .guest = config->engine == &mst_net_inproc};
    trainer->observe = mst_train_observe(&trainer->options, &who);
    *out = trainer;
}

static mst_status set_up(const mst_job_config *config, mst_trainer **out)
{
    mst_trainer *trainer = mst_zalloc(sizeof *trainer);
    if (trainer == NULL)
        return mst_fail_memory();
    trainer->config = *config->train;
    trainer->options = *config->train->train;
    trainer->data = *config->train->data;
    mst_status st = mst_trainer_set_up_worker(trainer, config->index);
    if (st == MST_OK)
        st = mst_job_optimizer(config, &trainer->strategy_options, &trainer->optimizer);
    if (st != MST_OK)
        mst_trainer_destroy(trainer);
    else
        watch(config, trainer, out);
    return st;
}

static mst_status work(const mst_job_config *config, mst_worker_counts *counts)
{
    mst_strategy_options o = *config->train->strategy;
    TRY(mst_strategy_resolve(&o));
    mst_worker_options options = {
        .engine = config->engine,
        .net = mst_job_net(config, MST_ROLE_WORKER, &o),
        .servers = (const char *const *)config->cluster->servers,
        .n_servers = config->cluster->n_servers,
        .start_timeout_ms = (uint32_t)(o.start_timeout * 1000),
        .stall_timeout_ms = (uint32_t)(o.stall_timeout * 1000),
        .stop = config->train->stop,
        .job_ended = config->train->job_ended,
    };
    mst_worker *worker = NULL;
    mst_trainer *trainer = NULL;
    json_t *job = NULL;
    TRY(mst_worker_new(&options, &worker, &job));
    mst_status st = config->adopt != NULL ? config->adopt(config->adopt_arg, job) : MST_OK;
    if (st == MST_OK)
        st = set_up(config, &trainer);
    if (st == MST_OK)
        st = train(config, worker, trainer, counts);
    else
        mst_worker_fail(worker, st);
    mst_error error;
    mst_error_save(&error, st);
    json_decref(job);
    mst_worker_destroy(worker);
    mst_trainer_destroy(trainer);
    return st == MST_OK ? MST_OK : mst_error_restore(&error);
}

/* ---- a server beside it ---- */

typedef struct beside {
    const mst_job_config *config;
    const mst_observer *observer;
    mst_job_summary *summary;
    mst_error error; /* code MST_OK: it ended well */
} beside;

static void *serve_beside(void *arg)
{
    beside *b = arg;
    mst_error_save(&b->error, mst_job_server(b->config, b->observer, b->summary));
    return NULL;
}

mst_status mst_job_worker(const mst_job_config *config, const mst_observer *observer,
                          mst_worker_counts *counts, mst_job_summary *summary)
{
    *summary = (mst_job_summary){0};
    if (!config->cluster->colocated)
        return work(config, counts);
    pthread_t thread;
    beside b = {.config = config, .observer = observer, .summary = summary};
    if (pthread_create(&thread, NULL, serve_beside, &b) != 0)
        return mst_fail(MST_EIO, "cannot start the thread that serves");
    mst_status st = work(config, counts);
    mst_error error;
    mst_error_save(&error, st);
    pthread_join(thread, NULL);
    /* a server that could not begin is why its worker could not either */
    bool cause = b.error.code != MST_OK && (st == MST_OK || st == MST_EPEER || st == MST_ETIMEOUT);
    if (cause)
        return mst_error_restore(&b.error);
    return st == MST_OK ? MST_OK : mst_error_restore(&error);
}
