/* A server of a job; contract in job.h. The hooks of the coordinator (ps/server.h) drive the run log. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/figure.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "job/job_impl.h"
#include "job/pulled_eval.h"
#include "ps/server.h"
#include "run/checkpoint.h"
#include "run/run_dir.h"
#include "train/run_graph.h"
#include "train/training.h"

_Static_assert(MST_CLUSTER_MAX <= MST_WORKER_MAX, "a server has room for all workers of a cluster spec");
#define AGO_MAX_S   86400.0 /* a worker that reports a longer time since the loss of server 0 is wrong */
#define DISK_WAIT_S 1       /* between two attempts to open the run on a disk that is full or fails */

typedef struct server_job {
    const mst_job_config *config;
    const mst_train_callbacks *callbacks;
    mst_job_summary *summary;
    mst_training *training;
    mst_job_admission admission;
    mst_end end;
    bool coordinated; /* this process has opened the run */
    bool began;       /* training began since the server last joined */
    mst_server_kept kept;
    char lost[MST_ERROR_MAX]; /* why the job starts again */
    mst_reached reached;      /* the progress before */
    bool no_disk;             /* the run to continue could not be opened: the disk is full or fails */
    uint64_t lost_ns;         /* when it, or a server of it, was lost */
    bool recovers;            /* the run log has received that time, and no step was done since */
} server_job;

/* ---- every server ---- */

static void server_job_set_options(const server_job *job, mst_server_options *out);

static mst_status server_job_adopt(void *arg, const json_t *message, mst_server_options *options)
{
    server_job *job = arg;
    const mst_job_config *config = job->config;
    if (config->adopt == NULL || !json_is_true(json_object_get(message, "resume")) ||
        job->training->description != NULL) /* adopted before the job started again */
        return MST_OK;
    TRY(config->adopt(config->adopt_arg, message));
    TRY(mst_training_reload(job->training));
    server_job_set_options(job, options);
    return MST_OK;
}

/* ---- the coordinator ---- */

static mst_status server_job_admit(void *arg, const json_t *join)
{
    server_job *job = arg;
    return mst_job_admit(&job->admission, job->config, join);
}

/* Logs that synchronous steps have other rows than those of local training, unless they are slices of one
 * order of rows. */
static void server_job_log_order(const server_job *job, const json_t *join)
{
    const mst_strategy_options *o = &job->training->strategy_options;
    bool random = json_is_true(json_object_get(json_object_get(join, "data"), "random"));
    bool sliced = random && o->shard == MST_SHARD_AUTO;
    if (o->mode != MST_MODE_SYNC || o->workers < 2 || o->shard == MST_SHARD_LOCAL || sliced)
        return;
    mst_info("%s divided among %lld workers, so that steps have other rows than in local training%s",
             random ? "the chunks of the data are" : "the data is a stream whose blocks are",
             (long long)o->workers, random ? "" : "; --cache makes them the same");
}

/* Finds out whether the run continues because the job lost its state, and what it had reached. */
static mst_status server_job_continue(server_job *job, const json_t *join)
{
    mst_training *training = job->training;
    if (job->no_disk)
        return mst_training_continue(training, training->continued);
    if (training->log != NULL) { /* another server was lost */
        const mst_train_status *at = mst_run_log_status(training->log);
        job->reached = (mst_reached){.step = at->step, .rows = at->rows, .train_seconds = at->train_seconds};
        return mst_training_continue(training, mst_run_log_path(training->log));
    }
    char *run = mst_job_unfinished_run(job->config, training->assembly.model->ops->name, join);
    const json_t *continues = json_object_get(join, "continues");
    const char *theirs = json_string_value(json_object_get(continues, "run"));
    json_int_t step = json_integer_value(json_object_get(continues, "step"));
    if (run == NULL && theirs != NULL && step > 0 && !mst_path_exists(theirs)) {
        char steps[32];
        mst_warn("server 0 was started again, and %s was deleted: training starts from the beginning, and %s "
                 "steps are lost",
                 theirs, mst_figure_grouped((uint64_t)step, steps));
    }
    if (run == NULL)
        return MST_OK;
    double ago = json_number_value(json_object_get(continues, "seconds_ago"));
    job->reached = (mst_reached){.step = step > 0 ? (uint64_t)step : 0};
    if (ago > 0 && ago < AGO_MAX_S)
        job->lost_ns = mst_now_ns() - (uint64_t)(ago * 1e9);
    snprintf(job->lost, sizeof job->lost, "server 0 was started again");
    mst_status st = mst_training_continue(training, run);
    mst_free(run);
    return st;
}

/* Whether the run has a checkpoint of a later step: the other server was cut off before it. */
static bool server_job_saved_after(const char *run, uint64_t step)
{
    mst_checkpoint_meta meta = {0};
    char *path = NULL;
    bool after = mst_checkpoint_find(run, &path) == MST_OK && path != NULL &&
                 mst_checkpoint_read_meta(path, &meta) == MST_OK && meta.step > step;
    mst_checkpoint_meta_fini(&meta);
    mst_free(path);
    return after;
}

/* recalled: the state that another server has kept; or NULL. */
static mst_status server_job_start_log(server_job *job, const json_t *recalled, mst_server_start *out)
{
    mst_training *training = job->training;
    json_int_t steps, rows, epoch, position;
    json_t *log;
    if (recalled == NULL || training->continued == NULL)
        return mst_training_start_log(training, &out->plan);
    if (json_unpack((json_t *)recalled, "{s:o, s:[I, I, I, I]}", "log", &log, "at", &steps, &rows, &epoch,
                    &position) != 0)
        return mst_fail(MST_EPEER, "the state of a run that is not one");
    mst_progress at = {.steps = (uint64_t)steps,
                       .rows = (uint64_t)rows,
                       .epoch = (uint64_t)epoch,
                       .position = (uint64_t)position};
    if (server_job_saved_after(training->continued, at.steps))
        return mst_training_start_log(training, &out->plan);
    out->recalled = true;
    snprintf(job->lost, sizeof job->lost, "server 0 was started again; server 1 has a copy of its weights");
    out->plan = json_incref(json_object_get(recalled, "plan"));
    return mst_training_start_log_from(training, log, &at);
}

/* The coordinator: opens the run. join is that of the first worker. */
static mst_status server_job_open_run(server_job *job, const json_t *join, mst_server_start *out)
{
    mst_training *training = job->training;
    const mst_train_options *o = &training->options;
    TRY(server_job_continue(job, join));
    TRY(server_job_start_log(job, json_object_get(join, "recalled"), out));
    bool successor = !job->coordinated && training->continued != NULL;
    if (training->continued != NULL) {
        mst_run_log_lost(training->log, &job->reached, job->lost_ns, job->lost);
        job->recovers = job->lost_ns != 0;
    }
    TRY(mst_training_open_run(training));
    job->coordinated = true;
    if (successor)
        TRY(mst_run_log_process_lost(training->log, "server-0"));
    mst_run_log_observe(training->log, training->observe);
    server_job_log_order(job, join);
    out->restore = training->start != NULL || training->config.from != NULL;
    out->at = *mst_run_log_at(training->log);
    mst_run_log_limits(training->log, &out->limit_steps, &out->limit_rows, &out->limit_epochs);
    out->run = mst_run_log_path(training->log);
    out->evaluates = o->test.n > 0 || o->valid != NULL;
    out->saves = o->save || training->config.in_memory;
    out->keeps_best = out->saves && o->patience > 0;
    out->evaluation_pending = mst_run_log_evaluation_pending(training->log);
    out->exact = mst_run_schedule_is_exact(o);
    return MST_OK;
}

static mst_status server_job_open(void *arg, const json_t *message, mst_server_start *out)
{
    server_job *job = arg;
    mst_training *training = job->training;
    if (!json_is_true(json_object_get(message, "keep")))
        TRY(mst_training_build(training, message));
    job->began = job->config->index != 0;
    job->end = MST_END_STOPPED;
    out->model = (mst_server_model){.model = training->assembly.model,
                                    .optimizer = &training->optimizer,
                                    .params = &training->assembly.params,
                                    .seed = (uint64_t)training->options.seed,
                                    .fresh = !json_is_true(json_object_get(message, "keep"))};
    mst_status st = job->config->index == 0 ? server_job_open_run(job, message, out) : MST_OK;
    bool warned = job->no_disk;
    job->no_disk = st == MST_EIO && training->continued != NULL;
    if (job->no_disk && !warned)
        mst_warn("the run cannot be continued: %s; trying again for up to %g s", mst_error_text(),
                 training->strategy_options.start_timeout);
    if (st == MST_EIO && !job->no_disk) /* a new run: only a person can choose a folder that can be written */
        return mst_fail(MST_EINPUT, "%s", mst_error_text());
    return job->no_disk ? mst_fail(MST_EAGAIN, "%s", mst_error_text()) : st;
}

/* The partitions in the order of the table. The caller frees; NULL without memory. */
static mst_part_spec *server_job_parts(const mst_placement *table)
{
    mst_part_spec *parts = mst_calloc(table->n_partitions, sizeof *parts);
    for (uint32_t i = 0; parts != NULL && i < table->n_partitions; i++)
        parts[i] = (mst_part_spec){table->partitions[i].first, table->partitions[i].count,
                                   table->partitions[i].server};
    return parts;
}

/* Training begins. The run may remove the checkpoint that it started from; closing it frees the space. */
static void server_job_begin(server_job *job, const mst_placement *table)
{
    mst_training *training = job->training;
    mst_part_spec *parts = server_job_parts(table);
    mst_run_places places = {.compute = "/job:worker",
                             .store = "/job:server",
                             .parts = parts,
                             .n_parts = table->n_partitions,
                             .n_tasks = table->n_servers};
    mst_run_graph_report(training->observe, &training->assembly, &training->optimizer, &places);
    mst_free(parts);
    mst_training_close_start(training);
}

static mst_status server_job_read(void *arg, uint32_t slot, uint64_t first, uint64_t count, float *out)
{
    server_job *job = arg;
    return mst_training_read_start(job->training, slot, first, count, out);
}

static mst_status server_job_reopen(void *arg, uint32_t server, const char *why, bool *restore)
{
    server_job *job = arg;
    mst_checkpoint_meta meta = {0};
    TRY(mst_training_reopen_start(job->training, &meta));
    *restore = job->training->start != NULL;
    mst_reached at = {.step = meta.step, .rows = meta.rows, .train_seconds = meta.train_seconds};
    mst_status st = mst_run_log_lost_share(job->training->log, server, &at, job->lost_ns, why);
    if (st == MST_EIO) { /* a later change of the manifest writes it */
        mst_warn("the manifest does not state the loss: %s", mst_error_text());
        st = MST_OK;
    }
    job->recovers = job->lost_ns != 0;
    mst_checkpoint_meta_fini(&meta);
    return st;
}

static mst_status server_job_progress(void *arg, const mst_progress *progress, unsigned *due)
{
    server_job *job = arg;
    TRY(mst_run_log_progress(job->training->log, progress));
    job->recovers = job->recovers && mst_run_log_is_recovering(job->training->log);
    if (job->callbacks->progress != NULL)
        job->callbacks->progress(job->callbacks->arg, mst_run_log_status(job->training->log));
    mst_end end;
    *due = mst_run_log_due(job->training->log, &end);
    if (*due & MST_DUE_END)
        job->end = end;
    return *due & MST_DUE_EVAL ? MST_OK : mst_run_log_line(job->training->log);
}

/* Fails for an evaluation without rows: its loss of 0 would end the run. */
static mst_status server_job_check_rows(const char *name, bool wanted, const mst_result *result)
{
    return !wanted || result->rows > 0
               ? MST_OK
               : mst_fail(MST_EUSAGE,
                          "the worker that evaluates has no %s rows: start all processes with the same --%s",
                          name, name);
}

static mst_status server_job_evaluated(void *arg, const json_t *result, mst_server_outcome *out)
{
    server_job *job = arg;
    mst_result valid = {0}, test = {0};
    mst_eval_outcome outcome;
    mst_result_from_json(json_object_get(result, "valid"), &valid);
    mst_result_from_json(json_object_get(result, "test"), &test);
    TRY(server_job_check_rows("valid", job->config->train->train->valid != NULL, &valid));
    TRY(server_job_check_rows("test", job->config->train->train->test.n > 0, &test));
    TRY(mst_run_log_evaluated(job->training->log, job->callbacks, &valid, &test, &outcome));
    *out = (mst_server_outcome){.over = outcome.over, .best = outcome.best};
    if (outcome.over)
        job->end = outcome.end;
    return MST_OK;
}

static bool server_job_can_save(void *arg, bool best)
{
    server_job *job = arg;
    return mst_run_log_can_save(job->training->log, best);
}

static mst_status server_job_save_begin(void *arg, const mst_placement *table, json_t *plan, bool best)
{
    server_job *job = arg;
    mst_part_spec *parts = server_job_parts(table);
    mst_status st = parts == NULL ? mst_fail_memory() : MST_OK;
    mst_run_log_plan(job->training->log, plan);
    if (st == MST_OK)
        st = mst_run_log_save_begin(job->training->log, best, &job->training->assembly.params, parts,
                                    table->n_partitions);
    mst_free(parts);
    return st;
}

static mst_status server_job_save_write(void *arg, uint32_t slot, uint64_t first, uint64_t count,
                                        const float *data)
{
    server_job *job = arg;
    return mst_run_log_save_write(job->training->log, slot, first, count, data, false);
}

static mst_status server_job_save_end(void *arg, bool keep)
{
    server_job *job = arg;
    if (keep)
        return mst_run_log_save_complete(job->training->log, job->callbacks);
    mst_run_log_save_abandon(job->training->log);
    return MST_OK;
}

static void server_job_mark(server_job *job, const mst_server_event *event, const char *kind)
{
    char name[MST_PROCESS_NAME];
    snprintf(name, sizeof name, "%s-%u", mst_role_name(event->role), event->index);
    if (job->training->log != NULL)
        mst_run_log_mark(job->training->log, name, kind, event->text);
}

static void server_job_death(server_job *job, const mst_server_event *event)
{
    char name[MST_PROCESS_NAME];
    snprintf(name, sizeof name, "%s-%u", mst_role_name(event->role), event->index);
    server_job_mark(job, event, "death");
    if (event->role == MST_ROLE_SERVER && !job->recovers)
        job->lost_ns = mst_now_ns();
    if (job->training->log != NULL && mst_run_log_path(job->training->log) != NULL &&
        mst_run_log_process_lost(job->training->log, name) != MST_OK)
        mst_warn("%s", mst_error_text());
}

static void server_job_joined(server_job *job, const mst_server_event *event)
{
    char name[MST_PROCESS_NAME];
    snprintf(name, sizeof name, "%s-%u", mst_role_name(event->role), event->index);
    server_job_mark(job, event, "join");
    const char *process = json_string_value(json_object_get(job->admission.processes, name));
    if (process != NULL && mst_run_log_process_joined(job->training->log, name, process) != MST_OK)
        mst_warn("%s", mst_error_text());
}

static void server_job_left(server_job *job, const mst_server_event *event)
{
    char name[MST_PROCESS_NAME];
    snprintf(name, sizeof name, "%s-%u", mst_role_name(event->role), event->index);
    server_job_mark(job, event, "leave");
    if (!event->returns && job->training->log != NULL)
        mst_run_log_process_left(job->training->log, name);
}

static void server_job_event(void *arg, const mst_server_event *event)
{
    server_job *job = arg;
    char *stopped_by = job->summary->stopped_by;
    switch (event->kind) {
    case MST_SERVER_BEGIN:
        job->began = true;
        server_job_begin(job, event->placement);
        if (job->callbacks->began != NULL)
            job->callbacks->began(job->callbacks->arg, mst_run_log_path(job->training->log));
        break;
    case MST_SERVER_EVALUATE:
        mst_run_log_evaluation_begins(job->training->log);
        break;
    case MST_SERVER_JOIN:
        server_job_joined(job, event);
        break;
    case MST_SERVER_LEAVE:
        server_job_left(job, event);
        break;
    case MST_SERVER_DEATH:
        server_job_death(job, event);
        break;
    case MST_SERVER_TAKEOVER:
        mst_run_log_taken_over(job->training->log, job->lost_ns);
        job->recovers = true;
        break;
    case MST_SERVER_SLOW:
        server_job_mark(job, event, "slow");
        break;
    case MST_SERVER_STOP:
        if (stopped_by[0] == '\0')
            snprintf(stopped_by, sizeof job->summary->stopped_by, "%s %u", mst_role_name(event->role),
                     event->index);
        break;
    case MST_SERVER_RESTORED:
        mst_training_close_start(job->training);
        break;
    case MST_SERVER_RECORD:
        mst_observe_forward(job->training->observe, event->record);
        break;
    }
}

static mst_status server_job_count(void *arg, json_t *workers)
{
    const server_job *job = arg;
    return mst_run_log_count_workers(job->training->log, workers);
}

static json_t *server_job_state(void *arg)
{
    const server_job *job = arg;
    return mst_run_log_state(job->training->log);
}

static mst_status server_job_finish(void *arg, json_t *workers, bool no_workers)
{
    server_job *job = arg;
    TRY(mst_run_log_count_workers(job->training->log, workers));
    job->summary->workers = json_incref(mst_run_log_workers(job->training->log));
    uint64_t skipped = 0;
    size_t i;
    json_t *one;
    json_array_foreach(job->summary->workers, i, one) skipped +=
        (uint64_t)json_integer_value(json_object_get(one, "skipped_rows"));
    TRY(mst_training_note_skipped(job->training, skipped, &job->summary->train));
    return mst_run_log_finish(job->training->log, no_workers ? MST_END_NO_WORKERS : job->end,
                              &job->summary->train);
}

/* ---- life ---- */

/* Options of the server that a resumed run may change. */
static void server_job_set_options(const server_job *job, mst_server_options *out)
{
    const mst_strategy_options *o = &job->training->strategy_options;
    out->start_timeout_ms = (uint32_t)(o->start_timeout * 1000);
    out->stall_timeout_ms = (uint32_t)(o->stall_timeout * 1000);
    out->n_threads = (unsigned)o->threads;
    out->mode = (mst_mode)o->mode;
    out->quorum = o->quorum > 0 ? (uint32_t)o->quorum : out->n_workers;
    out->sparse_async = o->sparse_mode != 0;
    out->all_begin = job->config->all_begin;
    out->elastic = o->elastic && !out->all_begin;
    out->staleness = (uint32_t)o->staleness;
    out->batch = (uint32_t)o->batch;
    out->global_batch = (uint32_t)o->global_batch;
    out->shuffle_rows = (uint64_t)job->training->options.shuffle_rows;
    out->dense_model = o->dense_model;
    out->shard = (mst_shard_kind)o->shard;
    out->recover_share = o->recover != MST_RECOVER_ALL;
    out->replicas = o->replicas > 0;
    out->on_nan = (mst_on_nan)o->on_nan;
    out->n_requests = (uint32_t)o->pipeline + 2;
}

/* The workers that may take part. */
static uint32_t server_job_n_workers(const mst_job_config *config)
{
    bool elastic = config->train->strategy->elastic && !config->all_begin;
    uint32_t n = config->cluster->n_workers + (elastic ? MST_ELASTIC_MORE : 0);
    return n < MST_WORKER_MAX ? n : MST_WORKER_MAX;
}

static mst_status server_job_serve(server_job *job)
{
    const mst_job_config *config = job->config;
    json_t *join = mst_job_join(config, "server");
    json_t *message = config->index == 0 ? mst_job_json(config->train) : NULL;
    if (join == NULL || (message == NULL && config->index == 0)) {
        json_decref(join);
        return mst_fail_memory();
    }
    mst_server_options options = {
        .engine = config->engine,
        .net = mst_job_net(config, MST_ROLE_SERVER, config->train->strategy),
        .servers = (const char *const *)config->cluster->servers,
        .n_servers = config->cluster->n_servers,
        .n_workers = server_job_n_workers(config),
        .join = join,
        .job = message,
        .stop_grace_ms = mst_job_stop_grace_ms(),
        .kept = &job->kept,
        .stop = config->train->stop,
        .no_workers = config->train->no_workers,
        .observe = job->training->observe,
    };
    server_job_set_options(job, &options);
    static const mst_server_checkpoint checkpoint = {
        .can_begin = server_job_can_save,
        .begin = server_job_save_begin,
        .write = server_job_save_write,
        .end = server_job_save_end,
        .reopen = server_job_reopen,
        .read = server_job_read,
    };
    mst_server_hooks hooks = {
        .arg = job,
        .open = server_job_open,
        .adopt = server_job_adopt,
        .admit = server_job_admit,
        .progress = server_job_progress,
        .evaluated = server_job_evaluated,
        .event = server_job_event,
        .count = server_job_count,
        .state = server_job_state,
        .finish = server_job_finish,
        .checkpoint = &checkpoint,
    };
    mst_status st = mst_server_run(&options, &hooks);
    json_decref(join);
    json_decref(message);
    return st;
}

/* The entry "cluster" of the manifest, besides those that the configuration has. New reference or NULL. */
static json_t *server_job_manifest(const mst_job_config *config)
{
    const mst_cluster *cluster = config->cluster;
    json_t *servers = mst_json_texts(cluster->servers, cluster->n_servers),
           *workers = mst_json_texts(cluster->workers, cluster->n_workers);
    const char *by = config->engine == &mst_net_inproc ? "train" : mst_job_is_launched() ? "launch" : "roles";
    json_t *manifest = json_pack("{s:{s:o, s:o, s:s, s:o?}}", "cluster", "servers", servers, "workers",
                                 workers, "by", by, "identity", mst_job_identity(config));
    if (cluster->allreduce)
        json_object_set_new(json_object_get(manifest, "cluster"), "given_strategy", json_string("allreduce"));
    if (config->train->manifest != NULL)
        json_object_update(manifest, config->train->manifest);
    return manifest;
}

/* The job did not start again: adds how to resume it to the recorded message. */
static mst_status server_job_add_hint(const server_job *job)
{
    char hint[MST_ERROR_MAX / 2];
    const char *run = mst_run_log_path(job->training->log);
    if (run == NULL) /* it could not be opened */
        run = job->training->continued;
    mst_run_resume_hint(run != NULL ? run : "RUN", hint, sizeof hint);
    return mst_fail(MST_EPEER, "%s; %s", mst_error_text(), hint);
}

/* A stop request ended the job without a last checkpoint: adds what is saved. */
static mst_status server_job_add_saved(const char *run)
{
    mst_error error;
    char hint[MST_ERROR_MAX / 2];
    mst_error_save(&error, MST_ESTOPPED);
    size_t n = strlen(error.text);
    mst_run_saved_hint(run, hint, sizeof hint);
    snprintf(error.text + n, sizeof error.text - n, "; %s", hint);
    return mst_error_restore(&error);
}

mst_status mst_job_server(const mst_job_config *config, const mst_train_callbacks *callbacks,
                          mst_job_summary *summary)
{
    server_job job = {.config = config, .callbacks = callbacks, .summary = summary, .end = MST_END_STOPPED};
    mst_train_config train = *config->train;
    mst_job_retry retry = {.coordinates = config->index == 0};
    json_t *manifest = server_job_manifest(config);
    *summary = (mst_job_summary){.coordinated = config->index == 0};
    train.role = MST_TRAINING_SERVER;
    train.index = config->index;
    train.guest = config->cluster->colocated || (config->engine == &mst_net_inproc && config->index > 0);
    train.manifest = manifest;
    mst_status st = manifest == NULL ? mst_fail_memory() : mst_job_check_run(config);
    if (st == MST_OK)
        st = mst_job_check_replicas(config);
    if (st == MST_OK)
        st = mst_training_new(&train, &job.training);
    if (st == MST_OK) {
        mst_training *training = job.training;
        do {
            if (training->observe == NULL || config->index != 0) /* its records begin again with the job */
                mst_training_observe(training, 0);
            job.began = false;
            st = server_job_serve(&job);
            if (st == MST_EAGAIN && job.no_disk)
                nanosleep(&(struct timespec){.tv_sec = DISK_WAIT_S}, NULL);
            if (st == MST_EAGAIN && job.began)
                snprintf(job.lost, sizeof job.lost, "%s", mst_error_text());
            if (st == MST_EAGAIN && job.began && !job.recovers)
                job.lost_ns = mst_now_ns();
        } while (mst_job_again(&retry, config, job.began, &st));
        if (st == MST_EPEER && !job.began && training->log != NULL)
            st = server_job_add_hint(&job);
        const char *run = training->log != NULL ? mst_run_log_path(training->log) : NULL;
        char *path = run != NULL ? mst_strdup(run) : NULL;
        if (st == MST_ESTOPPED && job.lost[0] != '\0' && !job.began)
            st = mst_fail_lead(MST_ESTOPPED, "stopped", " while the job started again (%.300s)", job.lost);
        if (st != MST_OK && run != NULL)
            st = mst_run_log_give_up(training->log, st);
        if (st == MST_ESTOPPED && path != NULL)
            st = server_job_add_saved(path);
        mst_free(path);
        mst_training_write_verdict(training);
        if (st == MST_OK && config->index == 0 && train.in_memory)
            st = mst_training_take(training, &summary->end);
        mst_training_destroy(training);
    }
    mst_server_kept_fini(&job.kept);
    mst_job_admission_fini(&job.admission);
    json_decref(manifest);
    return st;
}
