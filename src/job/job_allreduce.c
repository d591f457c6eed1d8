/* A rank of an MPI job with strategy allreduce; contract in job.h.
 *
 *   all        start MPI and the rank monitor
 *   rank 0 ->  the job: options and files of a resumed run
 *   -> rank 0  options that all must share; the first difference ends the job
 *   all        build data, model and strategy, each from its own files
 *   -> rank 0  their facts; the first difference ends the job
 *   rank 0 ->  the step of the run, and whether there is an observer
 *   rank 0 ->  weights and optimizer state
 *   rank 0     runs the training loop; the others execute its orders (strategy/allreduce.h)
 *   -> rank 0  records of the other ranks, at the same time (rank_log.h)
 *
 * A rank that fails sends the reason through the rank monitor, and the others end with that message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/parent.h"
#include "job/job_impl.h"
#include "job/rank_log.h"
#include "run/run_dir.h"
#include "strategy/allreduce.h"
#include "strategy/comm_broadcast.h"
#include "train/training.h"

/* Requests to stop and to save for rank 0's training: its own signals, and those of other ranks. */
typedef struct rank_requests {
    atomic_bool stop;
    const atomic_bool *own_stop;
    bool (*own_save)(void *arg);
    void *own_save_arg;
    mst_strategy *strategy; /* of rank 0 */
    mst_job_summary *summary;
} rank_requests;

static void requests_poll(void *arg)
{
    rank_requests *self = arg;
    if (self->own_stop != NULL && atomic_load(self->own_stop))
        atomic_store(&self->stop, true);
}

/* Takes over the requests of all ranks; the run log of rank 0 calls it between runs of the strategy. */
static bool requests_take(void *arg)
{
    rank_requests *self = arg;
    char *stopped_by = self->summary->stopped_by;
    bool own = self->own_save != NULL && self->own_save(self->own_save_arg), save;
    int by;
    mst_allreduce_requested(self->strategy, &by, &save);
    requests_poll(self);
    if (by >= 0 && !atomic_exchange(&self->stop, true))
        snprintf(stopped_by, sizeof self->summary->stopped_by, "rank %d", by);
    return save || own;
}

/* ---- agreement ---- */

/* Fails if an entry of `mine` differs in `theirs`; prefix of its name in the message. */
static mst_status ranks_compare(int rank, const json_t *mine, const json_t *theirs, const char *prefix)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)mine, name, value)
    {
        const json_t *other = json_object_get(theirs, name);
        if (json_equal(value, (json_t *)other))
            continue;
        if (strcmp(name, "files") == 0) {
            char who[24];
            snprintf(who, sizeof who, "rank %d", rank);
            TRY(mst_job_same_data(MST_JOB_TRAIN, other, who, value, "rank 0", false));
            continue;
        }
        char *a = other != NULL ? json_dumps(other, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL,
             *b = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        mst_status st =
            mst_fail(MST_EUSAGE, "rank %d has %s%s %s, rank 0 has %s; all ranks must have the same value",
                     rank, prefix, name, a ? a : "null", b ? b : "null");
        free(a); /* jansson's allocation */
        free(b);
        return st;
    }
    return MST_OK;
}

/* Rank 0 compares the values of all ranks with its own. */
static mst_status ranks_agree(mst_comm *comm, const json_t *mine, const char *prefix)
{
    char *text = json_dumps(mine, JSON_COMPACT), **all = NULL;
    mst_status st = text == NULL ? mst_fail_memory() : mst_comm_gather_texts(comm, text, &all);
    for (int r = 0; st == MST_OK && all != NULL && r < mst_comm_mpi(comm)->size; r++) {
        json_t *theirs = json_loads(all[r], 0, NULL);
        st = json_is_object(theirs) ? ranks_compare(r, mine, theirs, prefix)
                                    : mst_fail(MST_EPEER, "rank %d sent a message that is not JSON", r);
        json_decref(theirs);
    }
    for (int r = 0; all != NULL && r < mst_comm_mpi(comm)->size; r++)
        mst_free(all[r]);
    mst_free(all);
    free(text); /* jansson's allocation */
    return st;
}

/* Sends the job of rank 0 to all ranks; the others take over the options of a resumed run. */
static mst_status ranks_share_job(const mst_job_config *config, mst_comm *comm)
{
    json_t *job = mst_job_json(config->train);
    char *text = job != NULL ? json_dumps(job, JSON_COMPACT) : NULL, *received = NULL;
    json_decref(job);
    mst_status st = text == NULL ? mst_fail_memory() : mst_comm_broadcast_text(comm, text, &received);
    free(text); /* jansson's allocation */
    TRY(st);
    job = json_loads(received, 0, NULL);
    mst_free(received);
    if (!json_is_object(job))
        st = mst_fail(MST_EPEER, "rank 0 sent a message that is not JSON");
    else if (mst_comm_mpi(comm)->rank != 0 && config->adopt != NULL)
        st = config->adopt(config->adopt_arg, job);
    json_decref(job);
    return st;
}

/* The data and the model of this rank, which all ranks must share. New reference in *out. */
static mst_status rank_describe(const mst_job_config *config, const mst_training *t, json_t **out)
{
    json_t *files = NULL;
    TRY(mst_job_data(config, MST_JOB_TRAIN, &files));
    *out = json_pack("{s:O, s:I, s:I, s:o, s:I}", "model", json_object_get(t->description, "model"),
                     "parameters", (json_int_t)t->assembly.params.size, "rows",
                     (json_int_t)mst_feed_epoch_rows(t->data.feed), "files", files, "threads",
                     (json_int_t)t->strategy_options.threads);
    return *out != NULL ? MST_OK : mst_fail_memory();
}

/* ---- a rank ---- */

/* Sends the step of rank 0's run to all ranks, and whether there is an observer. */
static mst_status ranks_share_start(mst_comm *comm, const mst_training *training, uint64_t *step,
                                    bool *observed)
{
    char text[64], *shared = NULL;
    unsigned long long at = 0;
    int observes = 0;
    bool root = mst_comm_mpi(comm)->rank == 0;
    snprintf(text, sizeof text, "%llu %d",
             root ? (unsigned long long)mst_run_log_at(training->log)->steps : 0ull,
             (int)training->options.observe);
    TRY(mst_comm_broadcast_text(comm, text, &shared));
    int n = sscanf(shared, "%llu %d", &at, &observes);
    mst_free(shared);
    *step = at;
    *observed = observes != 0;
    return n == 2 ? MST_OK : mst_fail(MST_EPEER, "rank 0 did not send the step of the run");
}

static void rank_on_step(void *arg, uint64_t step)
{
    mst_observe_set_step(arg, step);
}

/* A rank other than 0. */
static mst_status rank_follow(const mst_job_config *config, mst_comm *comm, mst_training *training,
                              uint64_t step, bool observed)
{
    if (observed)
        mst_training_observe(training, step);
    training->strategy->env.spans = mst_observe_spans(training->observe);
    mst_spans_attach(training->strategy->env.spans, 0, MST_PHASE_IDLE);
    mst_rank_log_send(comm, training->observe);
    mst_allreduce_signals own = {.stop = config->train->stop,
                                 .save_wanted = config->train->take_requests,
                                 .save_arg = config->train->requests_arg,
                                 .at = rank_on_step,
                                 .at_arg = training->observe};
    mst_status st = mst_allreduce_join(training->strategy, &own);
    if (st == MST_OK)
        st = mst_allreduce_follow(training->strategy, training->data.feed);
    mst_spans_detach();
    if (st == MST_OK)
        mst_rank_log_finish(comm, training->observe);
    return st;
}

static mst_status rank_train(const mst_job_config *config, mst_comm *comm, mst_training *training,
                             rank_requests *requests, const mst_train_callbacks *callbacks,
                             mst_job_summary *summary)
{
    uint64_t step;
    bool observed;
    TRY(ranks_share_start(comm, training, &step, &observed));
    if (mst_comm_mpi(comm)->rank != 0)
        return rank_follow(config, comm, training, step, observed);
    mst_allreduce_signals own = {.stop = config->train->stop,
                                 .save_wanted = config->train->take_requests,
                                 .save_arg = config->train->requests_arg};
    TRY(mst_allreduce_join(training->strategy, &own));
    mst_train_callbacks shown = *callbacks;
    shown.evaluating = NULL; /* for local training only */
    requests->strategy = training->strategy;
    requests->summary = summary;
    TRY(mst_training_run(training, &shown, &summary->train));
    summary->coordinated = true;
    summary->workers = json_incref(training->workers);
    return MST_OK;
}

/* Appends the resume instructions to the error of a training that the loss of another rank ended. */
static mst_status rank_add_resume_hint(const mst_train_options *options)
{
    mst_error error;
    char resume_hint[MST_ERROR_MAX / 2];
    mst_error_save(&error, MST_EPEER);
    mst_run_resume_hint(options->run != NULL ? options->run : "FOLDER", resume_hint, sizeof resume_hint);
    return mst_fail(MST_EPEER, "%.900s; %s", error.text, resume_hint);
}

static mst_status rank_take_part(const mst_job_config *config, mst_comm *comm, rank_requests *requests,
                                 const mst_train_callbacks *callbacks, mst_job_summary *summary)
{
    mst_training *training = NULL;
    json_t *found = NULL, *entry = NULL;
    mst_status st;
    TRY(ranks_share_job(config, comm));
    TRY(ranks_agree(comm, config->same, "--"));
    mst_train_config train_config = *config->train;
    train_config.comm = comm;
    train_config.role = MST_TRAINING_RANK;
    train_config.index = (uint32_t)mst_comm_mpi(comm)->rank;
    train_config.device_turn = mst_job_device_turn(config, train_config.index);
    if (mst_comm_mpi(comm)->rank == 0) {
        train_config.observed = mst_rank_log_take;
        train_config.observed_arg = comm;
        TRY_OUT(st, mst_job_mpi_entry(mst_comm_mpi(comm), &entry));
        train_config.manifest = entry;
        (void)mst_parent_lost(&train_config.lost_ns, &train_config.lost);
        train_config.stop = &requests->stop;
        train_config.take_requests = requests_take;
        train_config.requests_arg = requests;
    }
    TRY_OUT(st, mst_training_new(&train_config, &training));
    mst_job_log_device(training->assembly.model, "rank", train_config.index);
    TRY_OUT(st, rank_describe(config, training, &found));
    TRY_OUT(st, ranks_agree(comm, found, ""));
    st = rank_train(config, comm, training, requests, callbacks, summary);
    if (st == MST_EPEER && config->train->train->save)
        st = rank_add_resume_hint(config->train->train);
out:
    json_decref(found);
    json_decref(entry);
    mst_rank_log_stop(comm);
    mst_error error;
    mst_error_save(&error, st);
    if (st == MST_OK || !mst_comm_held(comm))
        mst_training_destroy(training); /* else the communication thread may still use its gradients */
    return st == MST_OK ? MST_OK : mst_error_restore(&error);
}

mst_status mst_job_allreduce(const mst_job_config *config, const mst_job_lost *lost,
                             const mst_train_callbacks *callbacks, mst_job_summary *summary)
{
    /* static: a communication thread that hangs in MPI may use it after this call */
    static rank_requests requests;
    const mst_strategy_options *o = config->train->strategy;
    mst_comm *comm = NULL;
    mst_comm_options options = {
        .start_timeout_ms = (uint32_t)(o->start_timeout * 1000),
        .tls = mst_job_tls(o),
        .peer_timeout_ms = (uint32_t)(o->peer_timeout * 1000),
        .stall_timeout_ms = (uint32_t)(o->stall_timeout * 1000),
        .idle = requests_poll,
        .arg = &requests,
        .lost = lost->call,
        .lost_arg = lost->arg,
    };
    *summary = (mst_job_summary){0};
    requests.own_stop = config->train->stop;
    requests.own_save = config->train->take_requests;
    requests.own_save_arg = config->train->requests_arg;
    atomic_store(&requests.stop, false);
    TRY(mst_comm_new(&options, &comm));
    mst_status st = rank_take_part(config, comm, &requests, callbacks, summary);
    if (st == MST_OK)
        st = mst_comm_end(comm);
    mst_error error;
    mst_error_save(&error, st);
    mst_comm_destroy(comm, st != MST_OK ? error.text : NULL);
    return st == MST_OK ? MST_OK : mst_error_restore(&error);
}
