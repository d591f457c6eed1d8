/* A worker's life: connecting, joining, training, the end; contract in worker.h.
 *
 * Invariants
 * 1. The coordinator decides how the run ends: once its END has arrived, that is the outcome, whatever else
 * failed.
 * 2. Markers are sent inside the event that brings the cut, so that all later messages follow them.
 * 3. Nothing waits outside mst_worker_link_poll, except for the feed. */
#include "ps/worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "observe/observe.h"
#include "ps/worker_impl.h"

#define FIRST_NOTICE_NS (1 * MST_S) /* a shorter wait at start-up is not logged */
#define NEXT_NOTICE_NS  (5 * MST_S)
#define FLUSH_NS        (1 * MST_S) /* for the message of a failure to leave */
#define END_PATIENCE_S  600         /* the least time for servers to save and to end the job */

/* ---- start ---- */

static mst_status worker_too_late(void)
{
    return mst_fail(MST_EPEER, "the job has ended already; this worker is too late");
}

/* Polls until done; a log line names the missing processes, and another one if they have changed. */
static mst_status worker_wait_start(mst_worker *self, bool (*done)(const mst_worker *self),
                                    const char *for_what, uint64_t patience_ms)
{
    uint64_t now = mst_now_ns(), deadline = now + patience_ms * MST_MS, notice = now + FIRST_NOTICE_NS;
    char missing[MST_ERROR_MAX / 2], logged[MST_ERROR_MAX / 2] = "";
    while (!done(self)) {
        TRY(mst_worker_link_poll(&self->link, notice < deadline ? notice : deadline));
        if (self->link.ended || self->leaving)
            return MST_OK;
        if (!self->link.up[0] && self->options.job_ended != NULL && atomic_load(self->options.job_ended))
            return worker_too_late();
        now = mst_now_ns();
        mst_worker_link_missing(&self->link, missing, sizeof missing);
        const char *what = missing[0] != '\0' ? missing : for_what;
        if (now >= deadline && !done(self))
            return mst_fail(MST_ETIMEOUT, "waited %" PRIu64 " s for %s", patience_ms / 1000, what);
        if (now >= notice && !self->link.up[0] && self->options.is_over != NULL &&
            self->options.is_over(self->options.arg))
            return worker_too_late();
        if (now >= notice) {
            if (strcmp(logged, what) != 0)
                mst_info("waiting for %s", what);
            snprintf(logged, sizeof logged, "%s", what);
            notice = now + NEXT_NOTICE_NS;
        }
    }
    return MST_OK;
}

static bool worker_has_job(const mst_worker *self)
{
    return self->job_json != NULL && mst_worker_link_whole(&self->link);
}

static bool worker_has_welcome(const mst_worker *self)
{
    return self->welcome != NULL;
}

mst_status mst_worker_new(const mst_worker_options *options, mst_worker **out, json_t **job_json)
{
    mst_status st;
    mst_worker *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->options = *options;
    self->options.servers = NULL; /* the link has copies */
    self->link.attend = mst_worker_attend;
    self->link.attend_arg = self;
    TRY_OUT(st, mst_worker_link_init(&self->link, options, &mst_worker_events, self));
    char from[128];
    snprintf(from, sizeof from, "server 0 at %.80s to describe the job", self->link.addresses[0]);
    TRY_OUT(st, worker_wait_start(self, worker_has_job, from, options->start_timeout_ms));
    if (self->link.ended) {
        st = self->link.end.code != MST_OK ? mst_worker_link_end_status(&self->link) : worker_too_late();
        goto out;
    }
    if (self->leaving) {
        (void)mst_net_flush(self->link.net, mst_now_ns() + FLUSH_NS);
        st = mst_fail_lead(MST_ESTOPPED, "stopped", " before this worker joined the job");
        goto out;
    }
    self->link.starting = false;
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
    mst_worker_eval_fini(&self->eval);
    mst_worker_link_fini(&self->link);
    json_decref(self->job_json);
    json_decref(self->welcome);
    mst_free(self);
}

/* ---- joining ---- */

static mst_status worker_join(mst_worker *self)
{
    json_t *sample = NULL;
    TRY(mst_worker_pipeline_sample(&self->pipeline, &sample));
    json_t *join = self->job->join != NULL ? json_copy(self->job->join) : json_object();
    if (join != NULL && sample != NULL && json_object_set_new(join, "sample", sample) != 0) {
        json_decref(join);
        join = NULL;
    }
    return mst_ps_send_json(self->link.net, self->link.peers[0], &(mst_message){.type = MST_PS_JOIN}, join);
}

/* Reads the welcome. The table must fit this model and these servers. */
static mst_status worker_read_welcome(mst_worker *self)
{
    const mst_params *params = self->job->params;
    TRY(mst_placement_from_json(&self->table, json_object_get(self->welcome, "table")));
    uint32_t width = self->job->dense_model ? 0 : self->gradient.layout.width;
    if (self->table.size != params->size || self->table.width != width)
        return mst_fail(MST_EINPUT,
                        "server 0 has %" PRIu64 " weights, %" PRIu32
                        " per key, but the model here has %" PRIu64 " and %" PRIu32
                        "; start all processes with the same options",
                        self->table.size, self->table.width, params->size, width);
    if (self->table.n_servers != self->link.n_servers)
        return mst_fail(MST_EINPUT,
                        "server 0 has a cluster of %" PRIu32 " servers, but this worker has one of %" PRIu32
                        "; give all processes the same cluster",
                        self->table.n_servers, self->link.n_servers);
    return MST_OK;
}

static mst_status worker_make_client(mst_worker *self)
{
    const mst_worker_job *job = self->job;
    bool overlaps = self->overlap.on;
    mst_client_options options = {
        .net = self->link.net,
        .table = &self->table,
        .peers = self->link.peers,
        .wire = job->wire,
        .n_requests = self->pipeline.n_requests,
        .part_floats = overlaps ? self->overlap.part_floats : 0,
    };
    TRY(mst_client_new(&options, &self->client));
    self->pipeline.client = self->gradient.client = self->client;
    self->gradient.overlap = overlaps ? &self->overlap : NULL;
    self->gradient.one_buffer = job->pipeline == 0 && (!overlaps || self->table.n_servers == 1);
    for (uint32_t i = 0; i < self->pipeline.n_requests; i++)
        mst_worker_gradient_ranges(&self->gradient, mst_client_list(self->client, i));
    return MST_OK;
}

/* Connects the parts of the worker with each other. */
static void worker_connect_parts(mst_worker *self)
{
    const mst_worker_job *job = self->job;
    const mst_identity *me = &self->options.net.self;
    uint64_t apart = job->mode == MST_MODE_SYNC ? 0 : me->index;
    uint32_t max_rows = job->batch > job->global_batch ? job->batch : job->global_batch;
    self->rows.job = job;
    self->rows.link = &self->link;
    self->rows.index = me->index;
    self->rows.max_rows = max_rows;
    self->report.job = job;
    self->report.link = &self->link;
    self->gradient.job = job;
    self->gradient.seed = job->seed + apart * 0x9E3779B97F4A7C15ull;
    self->gradient.counts = &self->report.counts;
    self->histograms.gradient = &self->gradient;
    self->histograms.begun_ns = mst_now_ns();
    self->overlap.link = &self->link;
    self->overlap.gradient = &self->gradient;
    /* a synchronous step may wait for the successor of a worker */
    self->overlap.stall_timeout_ms =
        self->options.stall_timeout_ms + (job->mode == MST_MODE_SYNC ? self->options.start_timeout_ms : 0);
    self->eval.job = job;
    self->eval.link = &self->link;
    self->eval.report = &self->report;
    self->eval.table = &self->table;
    self->pipeline.job = job;
    self->pipeline.self = *me;
    self->pipeline.stall_timeout_ms = self->overlap.stall_timeout_ms;
    self->pipeline.link = &self->link;
    self->pipeline.rows = &self->rows;
    self->pipeline.gradient = &self->gradient;
    self->pipeline.histograms = &self->histograms;
    self->pipeline.counts = &self->report.counts;
}

/* ---- training ---- */

static mst_status worker_wait_end(mst_worker *self)
{
    const mst_worker_link *link = &self->link;
    uint64_t patience = self->options.stall_timeout_ms * MST_MS * 10;
    if (patience < END_PATIENCE_S * MST_S)
        patience = END_PATIENCE_S * MST_S;
    uint64_t start = mst_now_ns();
    while (!link->ended) {
        uint64_t since = link->received_ns > start ? link->received_ns : start;
        if (mst_now_ns() >= since + patience)
            return mst_fail(MST_ETIMEOUT, "server 0 at %s has not ended the job for %" PRIu64 " s",
                            link->addresses[0], (uint64_t)(patience / MST_S));
        TRY(mst_worker_link_poll(&self->link, since + patience));
    }
    return MST_OK;
}

static mst_status worker_train(mst_worker *self)
{
    const mst_worker_job *job = self->job;
    char from[128];
    TRY(mst_worker_gradient_init(&self->gradient, self->rows.max_rows));
    TRY(mst_worker_pipeline_init(&self->pipeline, self->rows.max_rows));
    if (job->observe != NULL && json_object_get(job->join, "continues") == NULL)
        TRY(mst_worker_probe_run(&self->probe, &self->link, self->rows.index));
    TRY(worker_join(self));
    if (job->observe != NULL)
        TRY(mst_ps_clock_ask(&self->report.clock, self->link.net, self->link.peers[0]));
    snprintf(from, sizeof from, "server 0 at %.80s to admit this worker", self->link.addresses[0]);
    /* longer than the coordinator waits, which names the missing process */
    TRY(worker_wait_start(self, worker_has_welcome, from,
                          2ull * self->options.start_timeout_ms + self->options.net.peer_timeout_ms));
    if (!self->link.ended && !self->leaving) {
        TRY(worker_read_welcome(self));
        mst_observe_set_first_step(job->observe,
                                   (uint64_t)json_integer_value(json_object_get(self->welcome, "step")));
        json_int_t rows = json_integer_value(json_object_get(self->welcome, "stream_from"));
        self->rows.stream_from = rows > 0 ? (uint64_t)rows : 0;
        TRY(mst_worker_overlap_init(&self->overlap, &self->table));
        TRY(worker_make_client(self));
        mst_worker_report_begin(&self->report);
        TRY(mst_worker_pipeline_run(&self->pipeline));
    }
    if (!self->link.ended) {
        TRY(mst_worker_report_send(&self->report,
                                   MST_REPORT_LAST | (self->rows.leaving ? MST_REPORT_LEAVES : 0)));
        TRY(worker_wait_end(self));
    }
    return MST_OK;
}

mst_status mst_worker_run(mst_worker *self, const mst_worker_job *job, mst_worker_counts *counts)
{
    self->job = job;
    worker_connect_parts(self);
    mst_status st = worker_train(self);
    if (st == MST_EPEER && !self->link.ended)
        st = mst_worker_link_lost(&self->link, st);
    if (self->link.ended)
        st = mst_worker_link_end_status(&self->link);
    else if (st == MST_EPEER && self->options.engine->survives_death)
        st = mst_fail(MST_EAGAIN, "%s", mst_error_text());
    if (!self->link.ended && st != MST_OK && st != MST_EAGAIN)
        mst_worker_fail(self, st);
    mst_error error;
    mst_error_save(&error, st);
    mst_worker_overlap_fini(&self->overlap);
    mst_worker_eval_fini(&self->eval);
    *counts = self->report.counts;
    mst_spans_detach();
    mst_client_destroy(self->client);
    self->client = self->pipeline.client = self->gradient.client = NULL;
    mst_worker_pipeline_fini(&self->pipeline);
    mst_worker_gradient_fini(&self->gradient);
    mst_placement_fini(&self->table);
    self->job = NULL;
    return st == MST_OK ? MST_OK : mst_error_restore(&error);
}

json_t *mst_worker_took_part(const mst_worker *self)
{
    if (self->welcome == NULL)
        return NULL;
    json_int_t began = json_integer_value(json_object_get(self->welcome, "step")),
               seen = (json_int_t)self->pipeline.version;
    return json_pack("{s:O?, s:I}", "run", json_object_get(self->welcome, "run"), "step",
                     seen > began ? seen : began);
}

void mst_worker_fail(mst_worker *self, mst_status status)
{
    mst_error error;
    if (!self->link.up[0])
        return;
    mst_error_save(&error, status);
    if (mst_ps_send_error(self->link.net, self->link.peers[0], MST_PS_FAIL, &error) == MST_OK)
        (void)mst_net_flush(self->link.net, mst_now_ns() + FLUSH_NS);
    mst_error_restore(&error);
}
