/* A worker's life: connecting, joining, the end; contract in worker.h.
 *
 *   worker.c           connect, hear of the job, join, train, wait for the end
 *   worker_events.c    what arrives, and what is attended to while waiting
 *   worker_steps.c     the loop: pull, compute, push
 *   worker_work.c      work items to batches
 *   worker_gradient.c  batches and pulled weights to gradients
 *   worker_overlap.c   sending and receiving while a large model computes
 *   worker_eval.c      evaluation by the chief
 *
 * Invariants
 * 1. The coordinator has the last word: once its END is here, that is how the run ends, whatever else failed.
 * A server that goes down is therefore given a moment, in which the coordinator may say why.
 * 2. Marks are sent inside the event that brings the cut, so that everything sent later follows them.
 * 3. Nothing waits outside mst_worker_turn, but for the feed. */
#include "ps/worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "observe/observe.h"
#include "ps/worker_impl.h"

#define FIRST_WORD_NS  (1 * MST_S) /* how long a wait at start-up is not worth a line */
#define NEXT_WORD_NS   (5 * MST_S)
#define FAREWELL_NS    (1 * MST_S) /* for a failure's sentence to leave */
#define END_PATIENCE_S 600         /* the least time for servers to save and to end the job */

/* ---- start ---- */

static mst_status copy_servers(mst_worker *self)
{
    uint32_t n = self->options.n_servers;
    mst_status st = mst_fail_memory();
    self->servers = mst_calloc(n, sizeof *self->servers);
    self->peers = mst_calloc(n, sizeof *self->peers);
    self->up = mst_calloc(n, sizeof *self->up);
    self->bodies = mst_calloc(n, sizeof *self->bodies);
    self->body_capacity = mst_calloc(n, sizeof *self->body_capacity);
    if (self->servers == NULL || self->peers == NULL || self->up == NULL || self->bodies == NULL ||
        self->body_capacity == NULL)
        return st;
    for (uint32_t s = 0; s < n; s++) {
        self->peers[s] = MST_PEER_NONE;
        self->servers[s] = mst_strdup(self->options.servers[s]);
        if (self->servers[s] == NULL)
            return st;
    }
    self->options.servers = NULL;
    return MST_OK;
}

static mst_status too_late(void)
{
    return mst_fail(MST_EPEER, "the job has ended already: this worker came too late");
}

/* Polls until *done; every few seconds a line says for what. */
static mst_status wait_start(mst_worker *self, bool (*done)(const mst_worker *self), const char *for_what,
                             uint64_t patience_ms)
{
    uint64_t now = mst_now_ns(), deadline = now + patience_ms * MST_MS, word = now + FIRST_WORD_NS;
    char missing[MST_ERROR_MAX / 2];
    while (!done(self)) {
        TRY(mst_worker_turn(self, word < deadline ? word : deadline));
        if (self->ended || self->leaving)
            return MST_OK;
        if (!self->up[0] && self->options.job_ended != NULL && atomic_load(self->options.job_ended))
            return too_late();
        now = mst_now_ns();
        mst_worker_missing(self, missing, sizeof missing);
        const char *whom = missing[0] != '\0' ? missing : for_what;
        if (now >= deadline && !done(self))
            return mst_fail(MST_ETIMEOUT, "waited %" PRIu64 " s for %s", patience_ms / 1000, whom);
        if (now >= word) {
            mst_info("waiting for %s", whom);
            word = now + NEXT_WORD_NS;
        }
    }
    return MST_OK;
}

static bool job_known(const mst_worker *self)
{
    return self->n_up == self->options.n_servers && self->job_json != NULL;
}

static bool welcome_known(const mst_worker *self)
{
    return self->welcome != NULL;
}

/* What the coordinator's last word is for the caller. */
static mst_status end_status(const mst_worker *self)
{
    return self->end.code == MST_OK ? MST_OK : mst_error_restore(&self->end);
}

mst_status mst_worker_new(const mst_worker_options *options, mst_worker **out, json_t **job_json)
{
    mst_status st;
    mst_worker *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->options = *options;
    self->prepared = MST_NO_REQUEST;
    self->starting = true;
    if (options->n_servers == 0) {
        st = mst_fail(MST_EUSAGE, "a worker needs at least one server");
        goto out;
    }
    TRY_OUT(st, copy_servers(self));
    TRY_OUT(st, mst_net_new(options->engine, &options->net, &mst_worker_events, self, &self->net));
    uint64_t deadline = mst_now_ns() + options->start_timeout_ms * MST_MS;
    for (uint32_t s = 0; s < options->n_servers; s++)
        TRY_OUT(st, mst_net_connect(self->net, self->servers[s], deadline, &self->peers[s]));
    char from[128];
    snprintf(from, sizeof from, "server 0 at %.80s to say what the job is", self->servers[0]);
    TRY_OUT(st, wait_start(self, job_known, from, options->start_timeout_ms));
    if (self->ended) {
        st = self->end.code != MST_OK ? end_status(self) : too_late();
        goto out;
    }
    if (self->leaving) {
        (void)mst_net_flush(self->net, mst_now_ns() + FAREWELL_NS);
        st = mst_fail(MST_ESTOPPED, "asked to stop");
        goto out;
    }
    self->starting = false;
    *job_json = json_incref(self->job_json);
    *out = self;
    self = NULL;
out:
    mst_worker_destroy(self);
    return st;
}

void mst_worker_destroy(mst_worker *self)
{
    if (self == NULL)
        return;
    mst_worker_eval_fini(self);
    mst_net_destroy(self->net);
    for (uint32_t s = 0; s < self->options.n_servers; s++) {
        if (self->servers != NULL)
            mst_free(self->servers[s]);
        if (self->bodies != NULL)
            mst_free(self->bodies[s]);
    }
    mst_free(self->servers);
    mst_free(self->peers);
    mst_free(self->up);
    mst_free(self->bodies);
    mst_free(self->body_capacity);
    json_decref(self->job_json);
    json_decref(self->welcome);
    mst_free(self);
}

/* ---- joining ---- */

static mst_status join(mst_worker *self)
{
    json_t *sample = NULL;
    TRY(mst_worker_sample(self, &sample));
    json_t *join = self->job->join != NULL ? json_copy(self->job->join) : json_object();
    if (join != NULL && sample != NULL && json_object_set_new(join, "sample", sample) != 0) {
        json_decref(join);
        join = NULL;
    }
    mst_message m = {.type = MST_PS_JOIN};
    return mst_ps_send_json(self->net, self->peers[0], &m, join);
}

/* Reads the welcome: the table must be one of this model and these servers. */
static mst_status read_welcome(mst_worker *self)
{
    const mst_params *params = self->job->params;
    TRY(mst_placement_from_json(&self->table, json_object_get(self->welcome, "table")));
    uint32_t width = self->job->dense_model ? 0 : self->layout.width;
    if (self->table.size != params->size || self->table.width != width)
        return mst_fail(MST_EINPUT,
                        "server 0 speaks of %" PRIu64 " weights, %" PRIu32
                        " for each key, but the model here has %" PRIu64 " and %" PRIu32
                        ": start all processes with the same options",
                        self->table.size, self->table.width, params->size, width);
    if (self->table.n_servers != self->options.n_servers)
        return mst_fail(MST_EINPUT,
                        "server 0 speaks of %" PRIu32 " servers, but this worker was told of %" PRIu32
                        ": give all processes the same cluster",
                        self->table.n_servers, self->options.n_servers);
    return MST_OK;
}

static mst_status make_client(mst_worker *self)
{
    const mst_worker_job *job = self->job;
    mst_client_options client = {
        .net = self->net,
        .table = &self->table,
        .peers = self->peers,
        .wire = job->wire,
        .n_requests = self->n_slots,
        .part_floats = self->overlap.on ? self->overlap.part_floats : 0,
    };
    self->one_gradient = job->pipeline == 0 && (!self->overlap.on || self->table.n_servers == 1);
    TRY(mst_client_new(&client, &self->client));
    for (uint32_t slot = 0; slot < self->n_slots; slot++)
        mst_worker_ranges(self, mst_client_list(self->client, slot));
    return MST_OK;
}

static mst_status make_turns(mst_worker *self)
{
    const mst_worker_job *job = self->job;
    self->n_slots = job->pipeline + 2;
    self->max_rows = job->batch > job->global_batch ? job->batch : job->global_batch;
    self->turns = mst_calloc(self->n_slots, sizeof *self->turns);
    if (self->turns == NULL)
        return mst_fail_memory();
    for (uint32_t slot = 0; slot < self->n_slots; slot++) {
        self->turns[slot].rows = mst_calloc(self->max_rows, sizeof *self->turns[slot].rows);
        if (self->turns[slot].rows == NULL)
            return mst_fail_memory();
    }
    return MST_OK;
}

/* ---- the end ---- */

static mst_status wait_end(mst_worker *self)
{
    uint64_t patience = self->options.stall_timeout_ms * MST_MS * 10;
    if (patience < END_PATIENCE_S * MST_S)
        patience = END_PATIENCE_S * MST_S;
    uint64_t start = mst_now_ns();
    while (!self->ended) {
        uint64_t since = self->heard_ns > start ? self->heard_ns : start;
        if (mst_now_ns() >= since + patience)
            return mst_fail(MST_ETIMEOUT, "server 0 at %s has not ended the job for %" PRIu64 " s",
                            self->servers[0], (uint64_t)(patience / MST_S));
        TRY(mst_worker_turn(self, since + patience));
    }
    return MST_OK;
}

static mst_status train(mst_worker *self)
{
    const mst_worker_job *job = self->job;
    char from[128];
    if (job->pipeline + 2 > MST_LISTS)
        return mst_fail(MST_EUSAGE, "--pipeline %" PRIu32 ": at most %d requests may be in flight",
                        job->pipeline, MST_LISTS - 2);
    TRY(make_turns(self));
    TRY(mst_worker_gradient_init(self));
    TRY(join(self));
    if (job->observe != NULL)
        TRY(mst_ps_clock_ask(&self->clock, self->net, self->peers[0]));
    snprintf(from, sizeof from, "server 0 at %.80s to let this worker in", self->servers[0]);
    /* longer than the coordinator waits, who knows for whom */
    TRY(wait_start(self, welcome_known, from,
                   2ull * self->options.start_timeout_ms + self->options.net.peer_timeout_ms));
    if (!self->ended && !self->leaving) {
        TRY(read_welcome(self));
        mst_observe_set_first_step(job->observe,
                                   (uint64_t)json_integer_value(json_object_get(self->welcome, "step")));
        TRY(mst_worker_overlap_init(self));
        TRY(make_client(self));
        mst_net_stats_get(self->net, MST_PEER_NONE, &self->start_stats);
        self->told_in = self->start_stats.bytes_in;
        self->told_out = self->start_stats.bytes_out;
        self->watch.begun_ns = mst_now_ns();
        TRY(mst_worker_steps(self));
    }
    if (!self->ended) {
        TRY(mst_worker_report(self, MST_REPORT_LAST));
        TRY(wait_end(self));
    }
    return MST_OK;
}

mst_status mst_worker_run(mst_worker *self, const mst_worker_job *job, mst_worker_counts *counts)
{
    self->job = job;
    mst_status st = train(self);
    if (st == MST_EPEER && !self->ended)
        st = mst_worker_lost(self, st);
    if (self->ended)
        st = end_status(self);
    else if (st != MST_OK)
        mst_worker_fail(self, st);
    mst_error error;
    mst_error_save(&error, st);
    mst_worker_overlap_fini(self);
    mst_worker_eval_fini(self);
    *counts = self->counts;
    mst_spans_detach();
    mst_client_destroy(self->client);
    self->client = NULL;
    mst_row_localiser_destroy(self->localiser);
    self->localiser = NULL;
    for (uint32_t slot = 0; self->turns != NULL && slot < self->n_slots; slot++) {
        mst_free(self->turns[slot].rows);
        mst_free(self->turns[slot].g);
    }
    mst_free(self->turns);
    self->turns = NULL;
    mst_worker_gradient_fini(self);
    mst_placement_fini(&self->table);
    self->job = NULL;
    return st == MST_OK ? MST_OK : mst_error_restore(&error);
}

void mst_worker_fail(mst_worker *self, mst_status status)
{
    mst_error error;
    if (!self->up[0])
        return;
    mst_error_save(&error, status);
    mst_message m = {.type = MST_PS_FAIL};
    if (mst_ps_send_json(
            self->net, self->peers[0], &m,
            json_pack("{s:i, s:o}", "code", (int)error.code, "text", mst_worker_text(error.text))) == MST_OK)
        (void)mst_net_flush(self->net, mst_now_ns() + FAREWELL_NS);
    mst_error_restore(&error);
}
