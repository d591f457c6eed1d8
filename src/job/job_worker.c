/* A worker of a job; contract in job.h. If the cluster names no servers, a thread of this process is one.
 * Other threads are guests: workers that were lost and whose slots no process has taken. */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cond.h"
#include "base/log.h"
#include "job/job_impl.h"
#include "job/pulled_eval.h"
#include "train/training.h"

/* ---- training ---- */

/* Opens the evaluation sets, on the thread that evaluates. */
static mst_status job_worker_open_sets(void *arg, const atomic_bool *stop, mst_evaluator **test,
                                       mst_evaluator **valid)
{
    mst_training *training = arg;
    TRY(mst_train_data_open_sets(&training->data, &training->assembly, NULL, stop));
    *test = training->data.test.evaluator;
    *valid = training->data.valid.evaluator;
    return MST_OK;
}

/* The JOIN of this worker. continues: of the job that it left at that time; or NULL. New reference in *out.
 */
static mst_status job_worker_join(const mst_job_config *config, const mst_training *training,
                                  json_t *continues, uint64_t left_ns, json_t **out)
{
    json_t *join = mst_job_join(config, "worker");
    mst_status st = MST_OK;
    if (continues != NULL)
        json_object_set(join, "continues", continues);
    if (config->guest)
        json_object_set_new(join, "guest", json_true());
    if (continues != NULL)
        json_object_set_new(continues, "seconds_ago", json_real(mst_seconds_since(left_ns)));
    for (int set = 0; st == MST_OK && set < MST_JOB_N_SETS; set++) {
        json_t *files = NULL;
        st = mst_job_data(config, (mst_job_set)set, &files);
        if (st == MST_OK && json_object_set_new(join, mst_job_sets[set], files) != 0)
            st = mst_fail_memory();
    }
    bool random = training->data.dataset->random;
    /* of an epoch, if its rows are divided by position; shards differ */
    bool shared = random && training->strategy_options.shard == MST_SHARD_AUTO;
    uint64_t rows = shared ? mst_feed_epoch_rows(training->data.feed) : 0;
    if (st == MST_OK &&
        (json_object_update(join, training->description) != 0 ||
         json_object_set_new(join, "data",
                             json_pack("{s:b, s:I}", "random", (int)random, "rows", (json_int_t)rows)) != 0))
        st = mst_fail_memory();
    if (st == MST_OK)
        *out = join;
    else
        json_decref(join);
    return st;
}

/* *continues: the job that the worker took part in before (mst_worker_took_part), replaced by the present
 * one.
 */
static mst_status job_worker_train(const mst_job_config *config, mst_worker *worker, mst_training *training,
                                   json_t **continues, uint64_t left_ns, bool *took_part)
{
    mst_worker_counts counts;
    const mst_strategy_options *o = &training->strategy_options;
    mst_pulled_eval *evaluation = NULL;
    mst_pulled_eval_options eval = {.model = training->assembly.model,
                                    .params = &training->assembly.params,
                                    .dense_model = o->dense_model,
                                    .observe = training->observe,
                                    .arg = training,
                                    .open = job_worker_open_sets};
    TRY(mst_pulled_eval_new(&eval, &evaluation));
    mst_worker_job job = {
        .mode = (mst_mode)o->mode,
        .batch = (uint32_t)o->batch,
        .global_batch = (uint32_t)o->global_batch,
        .pipeline = (uint32_t)o->pipeline,
        .wire = (mst_float_format)o->wire,
        .seed = (uint64_t)training->options.seed,
        .n_threads = (unsigned)o->threads,
        .dense_model = o->dense_model,
        .part_floats = (uint32_t)o->part,
        .elastic = o->elastic && !config->all_begin,
        .clip = o->mode != MST_MODE_SYNC && training->optimizer.options.clip_norm > 0.0,
        .model = training->assembly.model,
        .optimizer = &training->optimizer,
        .params = &training->assembly.params,
        .feed = training->data.feed,
        .dataset = training->data.dataset,
        .evaluation = mst_pulled_eval_for_worker(evaluation),
        .observe = training->observe,
    };
    mst_status st = job_worker_join(config, training, *continues, left_ns, &job.join);
    if (st == MST_OK)
        st = mst_worker_run(worker, &job, &counts);
    if (st == MST_OK)
        st = mst_dataset_intact(training->data.dataset);
    json_decref(job.join);
    if (st == MST_OK)
        mst_train_data_warn_skipped(&training->data); /* of its share */
    mst_train_data_close_sets(&training->data);
    mst_pulled_eval_destroy(evaluation);
    json_t *took = mst_worker_took_part(worker);
    *took_part = took != NULL;
    if (took != NULL) {
        json_decref(*continues);
        *continues = took;
    }
    return st;
}

static mst_status job_worker_set_up(const mst_job_config *config, mst_training **out)
{
    mst_train_config train = *config->train;
    train.role = MST_TRAINING_WORKER;
    train.index = config->index;
    train.device_turn = mst_job_device_turn(config, config->index);
    train.guest = config->guest || config->engine == &mst_net_inproc;
    TRY(mst_training_new(&train, out));
    mst_job_log_device((*out)->assembly.model, "worker", config->index);
    mst_training_observe(*out, 0);
    return MST_OK;
}

/* ---- guests ---- */

typedef struct worker_guest {
    struct worker_guest *next;
    mst_job_config config;
    pthread_t thread;
    atomic_bool ended;
} worker_guest;

typedef struct worker_guests {
    const mst_job_config *host;
    worker_guest *first;
} worker_guests;

static mst_status job_worker_run(const mst_job_config *config);

static void *job_worker_guest_thread(void *arg)
{
    worker_guest *guest = arg;
    mst_status st = job_worker_run(&guest->config);
    if (st != MST_OK && st != MST_EEXIST) /* EEXIST: a process has taken the slot */
        mst_warn("worker %" PRIu32 ", which this process ran too: %s", guest->config.index, mst_error_text());
    atomic_store(&guest->ended, true);
    return NULL;
}

/* A thread that cannot start is no failure: the coordinator asks another process. */
static void job_worker_take_slot(void *arg, uint32_t index)
{
    worker_guests *guests = arg;
    for (const worker_guest *g = guests->first; g != NULL; g = g->next)
        if (g->config.index == index && !atomic_load(&g->ended))
            return;
    worker_guest *guest = index < guests->host->cluster->n_workers && index != guests->host->index
                              ? mst_zalloc(sizeof *guest)
                              : NULL;
    if (guest == NULL)
        return;
    guest->config = *guests->host;
    guest->config.index = index;
    guest->config.guest = true;
    guest->config.adopt = NULL; /* the options are those of the host */
    if (pthread_create(&guest->thread, NULL, job_worker_guest_thread, guest) != 0) {
        mst_free(guest);
        return;
    }
    mst_info("this process runs worker %" PRIu32 " too, because no process has taken its place", index);
    guest->next = guests->first;
    guests->first = guest;
}

/* Guests end with the job. */
static void job_worker_guests_join(worker_guests *self)
{
    while (self->first != NULL) {
        worker_guest *guest = self->first;
        self->first = guest->next;
        pthread_join(guest->thread, NULL);
        mst_free(guest);
    }
}

/* ---- taking part ---- */

static bool job_worker_is_over(void *arg)
{
    const worker_guests *guests = arg;
    return mst_job_is_over(guests->host);
}

/* Takes part in the job once. *training is made by the first call that gets so far. */
static mst_status job_worker_join_once(const mst_job_config *config, worker_guests *guests,
                                       mst_training **training, json_t **continues, uint64_t left_ns,
                                       bool *took_part)
{
    const mst_strategy_options *o = config->train->strategy;
    mst_worker_options options = {
        .engine = config->engine,
        .net = mst_job_net(config, MST_ROLE_WORKER, o),
        .servers = (const char *const *)config->cluster->servers,
        .n_servers = config->cluster->n_servers,
        .start_timeout_ms = (uint32_t)(o->start_timeout * 1000),
        .stall_timeout_ms = (uint32_t)(o->stall_timeout * 1000),
        .stop_grace_ms = mst_job_stop_grace_ms(),
        .stop = config->train->stop,
        .job_ended = config->train->job_ended,
        .take_slot = config->guest ? NULL : job_worker_take_slot,
        .is_over = job_worker_is_over,
        .arg = guests,
    };
    mst_worker *worker = NULL;
    json_t *job = NULL;
    mst_status st = MST_OK;
    *took_part = false;
    TRY(mst_worker_new(&options, &worker, &job));
    if (*training != NULL)
        mst_training_observe(*training, 0);
    else if (config->adopt != NULL)
        st = config->adopt(config->adopt_arg, job);
    if (st == MST_OK && *training == NULL)
        st = job_worker_set_up(config, training);
    if (st == MST_OK)
        st = job_worker_train(config, worker, *training, continues, left_ns, took_part);
    else if (!config->guest) /* without this guest the job continues to wait for a process */
        mst_worker_fail(worker, st);
    mst_error error;
    mst_error_save(&error, st);
    json_decref(job);
    mst_worker_destroy(worker);
    return st == MST_OK ? MST_OK : mst_error_restore(&error);
}

static mst_status job_worker_run(const mst_job_config *config)
{
    mst_training *training = NULL;
    worker_guests guests = {.host = config};
    mst_job_retry retry = {0};
    /* by then a predecessor with the same index that is lost has been noticed */
    uint64_t taken_until = mst_now_ns() + (uint64_t)((config->train->strategy->peer_timeout + 1) * 1e9);
    json_t *continues = NULL;
    mst_status st;
    mst_error error;
    bool took_part, returns = false; /* returns: an earlier connection of this worker may hold its index */
    TRY(mst_job_check_replicas(config));
    do {
        st = job_worker_join_once(config, &guests, &training, &continues, retry.since_ns, &took_part);
        returns = returns || took_part;
        retry.index_taken = st == MST_EEXIST && !returns;
        if (st == MST_EEXIST && (returns || (!config->guest && mst_now_ns() < taken_until))) {
            mst_error_save(&error, MST_EAGAIN);
            st = mst_error_restore(&error);
        }
    } while (mst_job_again(&retry, config, took_part, &st));
    mst_error_save(&error, st);
    job_worker_guests_join(&guests);
    json_decref(continues);
    mst_training_destroy(training);
    return st == MST_OK ? MST_OK : mst_error_restore(&error);
}

/* ---- with a server in the same process ---- */

typedef struct worker_server {
    const mst_job_config *process;
    mst_job_config server, worker; /* of the two threads */
    const mst_train_callbacks *callbacks;
    mst_job_summary *summary;
    mst_error error; /* code MST_OK: success */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool settled; /* guarded by lock: the server has taken over the options of a resumed run, or has ended */
} worker_server;

static void job_worker_settle(worker_server *b)
{
    pthread_mutex_lock(&b->lock);
    b->settled = true;
    pthread_cond_signal(&b->changed);
    pthread_mutex_unlock(&b->lock);
}

static mst_status job_worker_server_adopts(void *arg, const json_t *job)
{
    worker_server *b = arg;
    mst_status st = b->process->adopt(b->process->adopt_arg, job);
    if (st == MST_OK)
        job_worker_settle(b);
    return st;
}

/* The options of a resumed run are those of the process: only its server changes them. */
static mst_status job_worker_adopts(void *arg, const json_t *job)
{
    worker_server *b = arg;
    const mst_train_config *train = b->process->train;
    if (!json_is_true(json_object_get(job, "resume")))
        return b->process->adopt(b->process->adopt_arg, job);
    uint64_t until = mst_now_ns() + (uint64_t)((train->strategy->start_timeout + 1.0) * 1e9);
    pthread_mutex_lock(&b->lock);
    while (!b->settled && mst_now_ns() < until)
        mst_cond_wait(&b->changed, &b->lock, until);
    bool settled = b->settled;
    pthread_mutex_unlock(&b->lock);
    return settled ? MST_OK
                   : mst_fail(MST_ETIMEOUT,
                              "the server of this process has not received the options of the "
                              "resumed run from server 0 within %g s",
                              train->strategy->start_timeout);
}

static void *job_worker_server_thread(void *arg)
{
    worker_server *b = arg;
    mst_error_save(&b->error, mst_job_server(&b->server, b->callbacks, b->summary));
    job_worker_settle(b);
    return NULL;
}

mst_status mst_job_worker(const mst_job_config *config, const mst_train_callbacks *callbacks,
                          mst_job_summary *summary)
{
    *summary = (mst_job_summary){0};
    if (!config->cluster->colocated)
        return job_worker_run(config);
    pthread_t thread;
    worker_server b = {.process = config,
                       .server = *config,
                       .worker = *config,
                       .callbacks = callbacks,
                       .summary = summary,
                       .lock = PTHREAD_MUTEX_INITIALIZER,
                       .settled = config->index == 0}; /* its settings are those of the run */
    mst_cond_init(&b.changed);
    if (config->adopt != NULL) {
        b.server.adopt = job_worker_server_adopts;
        b.worker.adopt = job_worker_adopts;
        b.server.adopt_arg = b.worker.adopt_arg = &b;
    }
    if (pthread_create(&thread, NULL, job_worker_server_thread, &b) != 0)
        return mst_fail(MST_EIO, "cannot start the thread of the server");
    mst_status st = job_worker_run(&b.worker);
    mst_error error;
    mst_error_save(&error, st);
    pthread_join(thread, NULL);
    /* the failure of the server explains that of its worker */
    bool cause = b.error.code != MST_OK && (st == MST_OK || st == MST_EPEER || st == MST_ETIMEOUT);
    if (cause)
        return mst_error_restore(&b.error);
    return st == MST_OK ? MST_OK : mst_error_restore(&error);
}
