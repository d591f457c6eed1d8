/* Functions for all processes of a job, and the job of one process; contract in job.h. */
#include "job/job.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/parent.h"
#include "base/strings.h"
#include "job/job_impl.h"
#include "train/data_identity.h"
#include "train/settings.h"

#define HELLO_MS      5000
#define STOP_GRACE_MS 30000
#define ORDER_S       2             /* longer than server 0: its message and exit code come first */
#define RETRY_NS      (20 * MST_MS) /* between two attempts to join the job again */
#define MAX_QUEUE     (4ull << 30)  /* of replies that a worker has not read; one may be a large model */
#define UNBOUNDED     (1ull << 36)

mst_net_tls mst_job_tls(const mst_strategy_options *o)
{
    return !o->tls_given ? MST_NET_TLS_AUTO : o->tls ? MST_NET_TLS_ON : MST_NET_TLS_OFF;
}

mst_net_options mst_job_net(const mst_job_config *config, mst_role role, const mst_strategy_options *o)
{
    mst_net_options net = {
        .self = {.role = role, .index = config->index},
        .secret = config->cluster->secret,
        .tls = mst_job_tls(o),
        .max_body = UNBOUNDED, /* receivers check the size of messages */
        .max_queue = role == MST_ROLE_WORKER || o->dense_model ? UNBOUNDED : MAX_QUEUE,
        .peer_timeout_ms = (uint32_t)(o->peer_timeout * 1000),
        .hello_timeout_ms = HELLO_MS,
        .busy_poll_us = (uint32_t)o->busy_poll,
    };
    if (getrandom(&net.self.incarnation, sizeof net.self.incarnation, 0) < 0)
        net.self.incarnation = (uint64_t)getpid();
    snprintf(net.self.job, sizeof net.self.job, "%s", config->cluster->job);
    return net;
}

mst_status mst_job_check_replicas(const mst_job_config *config)
{
    if (config->train->strategy->replicas == 0 || config->engine->survives_death)
        return MST_OK;
    return mst_fail(MST_EUSAGE,
                    "--replicas 1 needs servers that are processes of their own, connected with TCP; "
                    "start them with muster launch or --role server");
}

uint32_t mst_job_device_turn(const mst_job_config *config, uint32_t index)
{
    const mst_cluster *cluster = config->cluster;
    mst_mpi_launch launch;
    char own[256], other[256];
    uint32_t turn = 0;
    mst_mpi_launched(&launch);
    if (launch.launched)
        return launch.local_rank >= 0 ? (uint32_t)launch.local_rank : index;
    if (config->engine == &mst_net_inproc || index >= cluster->n_workers)
        return index;
    mst_address_host(cluster->workers[index], own, sizeof own);
    for (uint32_t i = 0; i < index; i++)
        turn += strcmp(mst_address_host(cluster->workers[i], other, sizeof other), own) == 0;
    return turn;
}

void mst_job_log_device(const mst_model *model, const char *role, uint32_t index)
{
    if (model->gpu.ops != NULL)
        mst_info("%s %" PRIu32 " computes on cuda:%" PRIu32, role, index, model->gpu.device);
}

bool mst_job_again(mst_job_retry *self, const mst_job_config *config, bool took_part, mst_status *st)
{
    double patience = config->train->strategy->start_timeout;
    mst_error why;
    mst_error_save(&why, MST_EPEER);
    if (*st == MST_ETIMEOUT && !took_part && self->since_ns != 0) /* the lost process has no successor */
        *st = mst_error_restore(&why);
    if (*st != MST_EAGAIN)
        return false;
    if (config->train->stop != NULL && atomic_load(config->train->stop)) {
        *st = mst_fail_lead(MST_ESTOPPED, "stopped", " while the job started again (%.300s)", why.text);
        return false;
    }
    if (took_part || self->since_ns == 0) {
        if (self->index_taken && !took_part)
            mst_info("another process has index %" PRIu32 "; waiting for up to %g s, because it may be lost",
                     config->index, config->train->strategy->peer_timeout + 1);
        else
            mst_warn("%s; joining the job again", why.text);
        self->since_ns = mst_now_ns();
    }
    if (mst_seconds_since(self->since_ns) < patience + (self->coordinates ? 0 : ORDER_S)) {
        nanosleep(&(struct timespec){.tv_nsec = RETRY_NS}, NULL);
        return true;
    }
    *st = mst_fail(MST_EPEER, "%s; the job has not started again within %g s", why.text, patience);
    return false;
}

json_t *mst_job_join(const mst_job_config *config, const char *role)
{
    char *cluster = mst_cluster_text(config->cluster);
    json_t *join = cluster == NULL ? NULL
                                   : json_pack("{s:s, s:i, s:O, s:s}", "role", role, "index",
                                               (int)config->index, "same", config->same, "cluster", cluster);
    if (config->process[0] != '\0' && !config->guest)
        json_object_set_new(join, "process", json_string(config->process));
    mst_free(cluster);
    return join;
}

/* ---- files that all must share ---- */

const char *const mst_job_sets[MST_JOB_N_SETS] = {"files", "test_files", "valid_files"};

mst_status mst_job_data(const mst_job_config *config, mst_job_set set, json_t **out)
{
    const mst_train_config *train = config->train;
    char *valid = train->train->valid;
    /* a fraction is not a file (train_data.c) */
    const mst_text_list one = {.items = &valid, .n = valid != NULL && mst_path_exists(valid) ? 1 : 0},
                        *files = set == MST_JOB_TRAIN  ? train->files
                                 : set == MST_JOB_TEST ? &train->train->test
                                                       : &one;
    bool own = set == MST_JOB_TRAIN && (train->strategy->shard == MST_SHARD_LOCAL || train->open_own != NULL);
    json_t *source = NULL;
    if (files->n > 0)
        TRY(mst_data_identity_of(files, own, &source));
    *out = json_object_get(source, "checksum") != NULL ? json_incref(source) : json_null();
    json_decref(source);
    return MST_OK;
}

static const char *job_data_text(const json_t *data, const char *key)
{
    const char *text = json_string_value(json_object_get(data, key));
    return text != NULL ? text : "?";
}

mst_status mst_job_same_data(mst_job_set set, const json_t *theirs, const char *who, const json_t *ours,
                             const char *whose, bool shardable)
{
    static const char *const uses[] = {"trains on", "has --test", "has --valid"};
    if (!json_is_object(theirs) || !json_is_object(ours) ||
        (strcmp(job_data_text(theirs, "checksum"), job_data_text(ours, "checksum")) == 0 &&
         strcmp(job_data_text(theirs, "size"), job_data_text(ours, "size")) == 0))
        return MST_OK;
    char one[256], other[256];
    return mst_fail(
        MST_EINPUT,
        "%s %s %s (%s, checksum %s), but %s was given %s (%s, checksum %s): give all the same data%s", who,
        uses[set], mst_data_identity_name(theirs, one, sizeof one), job_data_text(theirs, "size"),
        job_data_text(theirs, "checksum"), whose, mst_data_identity_name(ours, other, sizeof other),
        job_data_text(ours, "size"), job_data_text(ours, "checksum"),
        shardable && set == MST_JOB_TRAIN ? ", or --shard local where each has its own" : "");
}

/* ---- one process ---- */

typedef struct embedded_process {
    mst_job_config config;
    const mst_train_callbacks *callbacks;
    bool server;
    atomic_bool *job_ended; /* set by server 0, for a worker that has not connected yet */
    mst_job_summary summary;
    mst_error error; /* code MST_OK: success */
    pthread_t thread;
} embedded_process;

static void *embedded_thread(void *arg)
{
    embedded_process *p = arg;
    mst_status st = p->server ? mst_job_server(&p->config, p->callbacks, &p->summary)
                              : mst_job_worker(&p->config, p->callbacks, &p->summary);
    mst_error_save(&p->error, st);
    if (p->server && p->config.index == 0)
        atomic_store(p->job_ended, true);
    return NULL;
}

static mst_status embedded_cluster(const mst_strategy_options *o, mst_cluster *out)
{
    static atomic_uint jobs;
    unsigned job = atomic_fetch_add(&jobs, 1);
    char servers[MST_CLUSTER_MAX][80], workers[MST_CLUSTER_MAX][32];
    const char *server_names[MST_CLUSTER_MAX], *worker_names[MST_CLUSTER_MAX];
    for (int64_t i = 0; i < o->servers; i++) {
        snprintf(servers[i], sizeof servers[i], "unix:@muster-%ld-%u-%lld", (long)getpid(), job,
                 (long long)i);
        server_names[i] = servers[i];
    }
    for (int64_t i = 0; i < o->workers; i++) {
        snprintf(workers[i], sizeof workers[i], "thread-%lld", (long long)i);
        worker_names[i] = workers[i];
    }
    return mst_cluster_make(server_names, (size_t)o->servers, worker_names, (size_t)o->workers, out);
}

mst_status mst_job_embedded(const mst_job_config *config, const mst_train_callbacks *callbacks,
                            mst_job_summary *summary)
{
    const mst_strategy_options *o = config->train->strategy;
    size_t n = (size_t)(o->servers + o->workers), started = 0;
    mst_cluster cluster = {0};
    atomic_bool job_ended = false;
    mst_train_config train = *config->train;
    train.job_ended = &job_ended;
    *summary = (mst_job_summary){0};
    TRY(embedded_cluster(o, &cluster));
    embedded_process *processes = mst_calloc(n, sizeof *processes);
    mst_status st = processes == NULL ? mst_fail_memory() : MST_OK;
    for (; st == MST_OK && started < n; started++) {
        embedded_process *p = &processes[started];
        p->server = started < (size_t)o->servers;
        p->config = *config;
        p->config.train = &train;
        p->job_ended = &job_ended;
        p->config.cluster = &cluster;
        p->config.engine = &mst_net_inproc;
        p->config.adopt = NULL;     /* all threads read the same options */
        p->config.all_begin = true; /* else a small job could end before some threads have started */
        p->config.index = (uint32_t)(p->server ? started : started - (size_t)o->servers);
        p->callbacks = callbacks;
        if (pthread_create(&p->thread, NULL, embedded_thread, p) != 0) {
            st = mst_fail(MST_EIO, "cannot start thread %zu of %zu", started + 1,
                          n); /* the others stop waiting after --start-timeout */
            break;
        }
    }
    mst_error first = {0};
    mst_error_save(&first, st);
    for (size_t i = 0; i < started; i++)
        pthread_join(processes[i].thread, NULL);
    if (started > 0) {
        *summary = processes[0].summary;
        if (processes[0].error.code != MST_OK)
            first = processes[0].error; /* the coordinator has the reason for the end of the job */
    }
    for (size_t i = 1; i < started; i++)
        if (processes[i].error.code != MST_OK && first.code == MST_OK)
            first = processes[i].error;
    mst_free(processes);
    mst_cluster_fini(&cluster);
    return first.code == MST_OK ? MST_OK : mst_error_restore(&first);
}

json_t *mst_job_json(const mst_train_config *train)
{
    json_t *files = json_array();
    if (!train->train->resume)
        return json_pack("{s:b, s:o}", "resume", 0, "files", files);
    for (size_t i = 0; i < train->files->n; i++)
        json_array_append_new(files, json_string(train->files->items[i]));
    return json_pack("{s:b, s:o, s:O, s:{s:s, s:s?}, s:[I, I, I]}", "resume", 1, "files", files, "options",
                     train->options, "model", "name", mst_models[train->model->model]->name, "net",
                     train->model->net_text, "resumed", (json_int_t)mst_resumed_of(train).features,
                     (json_int_t)mst_resumed_of(train).classes, (json_int_t)mst_resumed_of(train).fields);
}

bool mst_job_is_launched(void)
{
    int64_t seconds;
    return mst_parent_grace(&seconds) == MST_OK && seconds >= 0;
}

uint32_t mst_job_stop_grace_ms(void)
{
    int64_t seconds;
    return mst_parent_grace(&seconds) == MST_OK && seconds > 0 ? (uint32_t)seconds * 1000 : STOP_GRACE_MS;
}

mst_status mst_job_mpi_entry(const mst_mpi *mpi, json_t **out)
{
    const char *launcher = mst_job_is_launched() ? "muster launch --mpi" : mpi->launch.launcher;
    *out = json_pack("{s:{s:s?, s:i}}", "mpi", "launcher", launcher, "ranks", mpi->size);
    return *out != NULL ? MST_OK : mst_fail_memory();
}

/* ---- the job of the settings ---- */

typedef struct adoption {
    mst_settings *settings;
    json_t *shared; /* mst_job_config.same, which follows the adopted options */
} adoption;

static mst_status job_adopt(void *arg, const json_t *job)
{
    const adoption *a = arg;
    return mst_settings_adopt(a->settings, job, a->shared);
}

mst_status mst_job_run(mst_settings *settings, const mst_train_config *config, const mst_job_lost *lost,
                       const mst_train_callbacks *callbacks, mst_job_summary *summary)
{
    adoption adopted = {settings, mst_settings_shared(config->options)};
    mst_job_config job = {
        .train = config,
        .cluster = &settings->cluster,
        .index = (uint32_t)settings->process.index,
        .engine = &mst_net_tcp,
        .same = adopted.shared,
        .adopt = job_adopt,
        .adopt_arg = &adopted,
    };
    mst_status st;
    *summary = (mst_job_summary){0};
    if (job.same == NULL)
        st = mst_fail_memory();
    else if ((st = mst_random_hex(sizeof job.process / 2, job.process)) != MST_OK)
        ; /* the message is recorded */
    else if (settings->strategy.strategy == MST_STRATEGY_ALLREDUCE)
        st = mst_job_allreduce(&job, lost, callbacks, summary);
    else if (settings->cluster.source == NULL)
        st = mst_job_embedded(&job, callbacks, summary);
    else if (settings->cluster.ranks)
        st = mst_job_ranks(&job, lost, callbacks, summary);
    else if (settings->process.role == 1)
        st = mst_job_server(&job, callbacks, summary);
    else
        st = mst_job_worker(&job, callbacks, summary);
    json_decref(job.same);
    return st;
}
