/* A worker's requests in flight; contract in worker_pipeline.h. */
#include "ps/worker_pipeline.h"

#include <inttypes.h>
#include <math.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "data/stream.h"
#include "observe/observe.h"
#include "observe/trace_file.h"

#define INPUT_POLL_NS (10 * MST_MS) /* polling interval of a live stream without rows */
#define NOTICE_NS     (60 * MST_S)  /* between log lines of a worker without work */

mst_status mst_worker_pipeline_init(mst_worker_pipeline *self, uint32_t max_rows)
{
    self->n_requests = self->job->pipeline + 2;
    self->prepared = MST_NO_REQUEST;
    if (self->n_requests > MST_LISTS)
        return mst_fail(MST_EUSAGE, "--pipeline %" PRIu32 ": at most %d requests may be in flight",
                        self->job->pipeline, MST_LISTS - 2);
    self->requests = mst_calloc(self->n_requests, sizeof *self->requests);
    if (self->requests == NULL)
        return mst_fail_memory();
    for (uint32_t i = 0; i < self->n_requests; i++) {
        self->requests[i].rows = mst_calloc(max_rows, sizeof *self->requests[i].rows);
        if (self->requests[i].rows == NULL)
            return mst_fail_memory();
    }
    if (self->gradient->layout.width != 0 && !self->job->dense_model)
        TRY(mst_row_localiser_new(self->job->model->kernels, mst_worker_gradient_keys(self->gradient),
                                  self->n_requests, &self->localiser));
    return MST_OK;
}

void mst_worker_pipeline_fini(mst_worker_pipeline *self)
{
    mst_row_localiser_destroy(self->localiser);
    self->localiser = NULL;
    for (uint32_t i = 0; self->requests != NULL && i < self->n_requests; i++)
        mst_free(self->requests[i].rows);
    mst_free(self->requests);
    self->requests = NULL;
}

static void pipeline_trace(const mst_worker_pipeline *self)
{
    if (mst_tracing())
        mst_trace_counter(MST_TRACE_FLIGHT, mst_client_in_flight(self->client));
}

/* ---- preparing ---- */

static uint32_t pipeline_free_request(const mst_worker_pipeline *self)
{
    for (uint32_t i = 0; i < self->n_requests; i++)
        if (self->requests[i].state == MST_WORKER_FREE)
            return i;
    return MST_NO_REQUEST;
}

/* Localises the rows of a request's batch: its list is ready to be pulled. */
static mst_status pipeline_localise(mst_worker_pipeline *self, uint32_t request)
{
    mst_worker_request *r = &self->requests[request];
    mst_batch *batch = &r->batch.batch;
    mst_key_list *list = mst_client_list(self->client, request);
    list->n_keys = 0;
    if (self->localiser != NULL && batch->n_rows > 0) {
        uint64_t start = mst_trace_now();
        mst_status st = mst_row_localise(self->localiser, request, batch, self->gradient->n_prefix,
                                         mst_client_key_start(self->client, request), list, r->rows);
        if (st == MST_EINPUT) /* keys were checked when their chunk was read */
            TRY(mst_dataset_intact(self->job->dataset));
        TRY(st);
        batch->rows = r->rows;
        mst_trace_op("localise", start, mst_trace_array(sizeof *list->keys, list->n_keys, 0));
    }
    r->state = MST_WORKER_PREPARED;
    return MST_OK;
}

/* Takes the next batch into a free request, unless one is prepared. */
static mst_status pipeline_prepare(mst_worker_pipeline *self)
{
    if (self->rows->stopped && self->prepared != MST_NO_REQUEST) {
        self->requests[self->prepared].state = MST_WORKER_FREE;
        self->prepared = MST_NO_REQUEST;
    }
    if (self->rows->stopped) {
        mst_worker_rows_drop(self->rows);
        return MST_OK;
    }
    uint32_t request = self->prepared == MST_NO_REQUEST ? pipeline_free_request(self) : MST_NO_REQUEST;
    if (request == MST_NO_REQUEST)
        return MST_OK;
    uint64_t start = mst_now_ns();
    bool taken;
    TRY(mst_worker_rows_take(self->rows, request, &self->requests[request].batch, &taken));
    if (!taken)
        return MST_OK;
    TRY(pipeline_localise(self, request));
    self->prepared = request;
    self->counts->input_seconds += mst_seconds_since(start);
    return MST_OK;
}

/* ---- replies ---- */

static void pipeline_enter_flight(mst_worker_pipeline *self, uint32_t request, mst_worker_request_state state,
                                  const mst_push *push, uint64_t version)
{
    mst_worker_request *r = &self->requests[request];
    r->state = state;
    r->carries_push = push != NULL;
    r->push_rows = push != NULL ? push->rows : 0;
    r->push_loss = push != NULL ? (mst_loss_sum){push->loss, push->weight, push->rows, push->correct}
                                : (mst_loss_sum){0};
    r->push_version = version;
    self->flight[self->n_flight++] = request;
    pipeline_trace(self);
}

/* Waits for the reply to the oldest request. The reply to an exhausted worker comes when the other workers
 * have ended the epoch, however long that takes, and not at all if no epoch follows. The time limit begins
 * again when training continues after an evaluation. */
static mst_status pipeline_await(mst_worker_pipeline *self, uint32_t request,
                                 bool (*there)(const mst_client *, uint32_t))
{
    const mst_worker_request *r = &self->requests[request];
    uint64_t start = mst_now_ns(), patience = self->stall_timeout_ms * MST_MS, notice = start + NOTICE_NS,
             deadline = start + patience;
    bool unbounded = r->state == MST_WORKER_PUSHED && r->batch.exhausted;
    mst_status st = MST_OK;
    mst_phase waits = self->job->mode == MST_MODE_SYNC ? MST_PHASE_BARRIER_WAIT : MST_PHASE_PULL_WAIT,
              before = mst_span_enter(self->link->held ? MST_PHASE_EVALUATE : waits);
    double held_s = 0;
    while (!there(self->client, request) && !self->link->ended && !self->rows->abandoned &&
           !(unbounded && self->rows->stopped)) {
        uint64_t now = mst_now_ns();
        bool held = self->link->held;
        mst_span_keep(held ? MST_PHASE_EVALUATE : waits);
        if (held)
            deadline = now + patience;
        if (!unbounded && now >= deadline) {
            st = mst_client_wait(self->client, request, now);
            break;
        }
        if (unbounded && now >= notice) {
            mst_info("waiting for the other workers to end epoch %" PRIu64, self->rows->epoch);
            notice = now + NOTICE_NS;
        }
        st = mst_worker_link_poll(self->link, unbounded ? notice : deadline);
        held_s += held ? mst_seconds_since(now) : 0;
        if (st != MST_OK)
            break;
    }
    mst_span_enter(before);
    self->counts->wait_seconds += mst_seconds_since(start) - held_s;
    return st;
}

/* Counts the push that the oldest request carried, and takes the work item of its reply. */
static mst_status pipeline_settle(mst_worker_pipeline *self, uint32_t request)
{
    const mst_worker_request *r = &self->requests[request];
    const mst_reply *reply = mst_client_reply(self->client, request);
    mst_worker_counts *counts = self->counts;
    self->n_flight--;
    for (uint32_t i = 0; i < self->n_flight; i++)
        self->flight[i] = self->flight[i + 1];
    if (r->carries_push && r->push_rows > 0) {
        counts->steps += !reply->dropped;
        counts->rows += reply->dropped ? 0 : r->push_rows;
        counts->dropped_steps += reply->dropped;
        counts->dropped_rows += reply->dropped ? r->push_rows : 0;
        mst_span_steps(!reply->dropped, reply->dropped ? 0 : r->push_rows);
        if (!reply->dropped && isfinite(r->push_loss.loss)) {
            mst_span_loss(r->push_loss.loss, r->push_loss.weight, r->push_rows,
                          (uint64_t)r->push_loss.correct);
            mst_add_loss(&counts->recent, &r->push_loss);
        }
        mst_span_dropped(reply->dropped ? r->push_rows : 0);
        if (self->job->mode != MST_MODE_SYNC && reply->version > r->push_version)
            mst_span_stale(reply->version - r->push_version - 1); /* pushes of other workers in between */
        mst_observe_set_step(self->job->observe, reply->version);
        self->version = reply->version;
    }
    return reply->has_work && !self->rows->stopped ? mst_worker_rows_add(self->rows, &reply->work) : MST_OK;
}

/* The number of the request's push: the coordinator's for the step (sync), the one after the version it was
 * computed on (sync with a quorum), or the worker's own. The reply has begun to arrive. */
static uint64_t pipeline_step_number(const mst_worker_pipeline *self, uint32_t request)
{
    const mst_worker_batch *batch = &self->requests[request].batch;
    if (self->job->mode != MST_MODE_SYNC)
        return self->own_steps + 1;
    return batch->step != 0 ? batch->step : mst_client_reply(self->client, request)->version + 1;
}

/* ---- computing and pushing ---- */

static void pipeline_trace_push(const mst_worker_pipeline *self, uint64_t step)
{
    for (uint32_t s = 0; mst_tracing() && s < self->link->n_servers; s++)
        mst_trace_flow(MST_TRACE_FLOW_OUT, &(mst_trace_push){.step = step,
                                                             .incarnation = self->self.incarnation,
                                                             .worker = self->self.index,
                                                             .server = s});
}

/* Pushes the oldest request's gradient, and pulls the next batch's weights with it. */
static mst_status pipeline_push(mst_worker_pipeline *self, uint32_t request, const mst_loss_sum *sum)
{
    mst_worker_request *r = &self->requests[request];
    TRY(pipeline_prepare(self));
    mst_push push = {
        .request = request,
        .g = mst_worker_gradient_of(self->gradient, request),
        .step = pipeline_step_number(self, request),
        .rows = r->batch.batch.n_rows,
        .correct = (uint32_t)sum->correct,
        .loss = sum->loss,
        .weight = sum->weight,
        .flags = r->batch.exhausted ? MST_STEP_EXHAUSTED : 0,
    };
    uint32_t next = r->batch.exhausted ? MST_NO_REQUEST : self->prepared;
    uint64_t version = mst_client_reply(self->client, request)->version;
    self->own_steps++;
    mst_phase before = mst_span_enter(MST_PHASE_PUSH);
    uint64_t start = mst_trace_now();
    pipeline_trace_push(self, push.step);
    mst_status st = mst_client_send(self->client, &push, next);
    mst_trace_op("push", start, mst_trace_floats(mst_client_floats(self->client, request), 0));
    mst_span_enter(before);
    TRY(st);
    if (next == MST_NO_REQUEST) {
        pipeline_enter_flight(self, request, MST_WORKER_PUSHED, &push, version);
        return MST_OK;
    }
    r->state = MST_WORKER_FREE;
    pipeline_enter_flight(self, next, MST_WORKER_PULLED, &push, version);
    self->prepared = MST_NO_REQUEST;
    return MST_OK;
}

static mst_status pipeline_compute(mst_worker_pipeline *self, uint32_t request, mst_loss_sum *sum)
{
    mst_phase before = mst_span_enter(MST_PHASE_COMPUTE);
    mst_span_step(pipeline_step_number(self, request));
    mst_status st = mst_worker_gradient_compute(self->gradient, request, &self->requests[request].batch, sum);
    if (st == MST_OK)
        mst_worker_histograms_write(self->histograms);
    mst_span_enter(before);
    return st;
}

/* Advances the oldest request. When communication overlaps, computing begins with the first of the reply. */
static mst_status pipeline_advance(mst_worker_pipeline *self, uint32_t request, bool *over)
{
    mst_worker_request *r = &self->requests[request];
    bool early = self->gradient->overlap != NULL && r->state == MST_WORKER_PULLED;
    mst_loss_sum sum = {0};
    *over = true;
    if (early) {
        TRY(pipeline_await(self, request, mst_client_begun));
        if (self->link->ended || !mst_client_begun(self->client, request))
            return MST_OK;
        mst_status st = pipeline_compute(self, request, &sum);
        if (self->link->ended)
            return MST_OK;
        TRY(st);
    }
    TRY(pipeline_await(self, request, mst_client_ready));
    if (self->link->ended || !mst_client_ready(self->client, request))
        return MST_OK;
    *over = false;
    TRY(pipeline_settle(self, request));
    if (r->state != MST_WORKER_PULLED) {
        r->state = MST_WORKER_FREE;
        return MST_OK;
    }
    if (!early)
        TRY(pipeline_compute(self, request, &sum));
    return pipeline_push(self, request, &sum);
}

/* ---- the loop ---- */

/* Waits for work, which may come as long as the coordinator has not ended the job. */
static mst_status pipeline_wait_work(mst_worker_pipeline *self)
{
    const mst_worker_rows *rows = self->rows;
    uint64_t start = mst_now_ns(), notice = start + NOTICE_NS;
    mst_phase before = mst_span_enter(MST_PHASE_IDLE);
    mst_status st = rows->n_items == 0 && !rows->stopped ? mst_worker_rows_request_idle(self->rows) : MST_OK;
    while (st == MST_OK && rows->n_items == 0 && !rows->stopped && !rows->leaving && !self->link->ended) {
        st = mst_worker_link_poll(self->link, notice);
        if (mst_now_ns() >= notice) {
            mst_info("waiting for rows from server 0");
            notice += NOTICE_NS;
        }
    }
    mst_span_enter(before);
    self->counts->wait_seconds += mst_seconds_since(start);
    return st;
}

/* Rows of a live stream have not arrived: handles messages for a moment. */
static mst_status pipeline_wait_input(mst_worker_pipeline *self)
{
    uint64_t start = mst_now_ns();
    mst_phase before = mst_span_enter(MST_PHASE_READ);
    mst_status st = mst_worker_link_poll(self->link, start + INPUT_POLL_NS);
    mst_span_enter(before);
    self->counts->input_seconds += mst_seconds_since(start);
    return st;
}

static mst_status pipeline_step(mst_worker_pipeline *self, bool *over)
{
    TRY(self->link->attend(self->link->attend_arg));
    TRY(pipeline_prepare(self));
    if (self->prepared != MST_NO_REQUEST && self->n_flight <= self->job->pipeline) {
        uint64_t step = self->requests[self->prepared].batch.step;
        const mst_key_list *list = mst_client_list(self->client, self->prepared);
        mst_span_enter(MST_PHASE_PUSH);
        uint64_t start = mst_trace_now();
        mst_client_await_version(self->client, step > 0 ? step - 1 : 0);
        TRY(mst_client_send(self->client, NULL, self->prepared));
        mst_trace_op("pull", start, mst_trace_array(sizeof *list->keys, list->n_keys, 0));
        mst_span_enter(MST_PHASE_PREPARE);
        pipeline_enter_flight(self, self->prepared, MST_WORKER_PULLED, NULL, 0);
        self->prepared = MST_NO_REQUEST;
        return MST_OK;
    }
    if (self->n_flight == 0) {
        *over = self->rows->stopped || self->rows->leaving;
        if (*over)
            return MST_OK;
        return self->rows->late ? pipeline_wait_input(self) : pipeline_wait_work(self);
    }
    return pipeline_advance(self, self->flight[0], over);
}

mst_status mst_worker_pipeline_run(mst_worker_pipeline *self)
{
    bool over = false;
    mst_spans_attach(mst_observe_spans(self->job->observe), 0, MST_PHASE_PREPARE);
    while (!over && !self->link->ended && !self->rows->abandoned)
        TRY(pipeline_step(self, &over));
    return MST_OK;
}

/* ---- keys for the partition table ---- */

#define SAMPLE_KEYS    4096 /* sent to the coordinator, at most */
#define SAMPLE_BATCHES 64
#define SAMPLE_SHARE   1024 /* of one batch */

/* Adds an even choice of the batch's distinct keys. */
static mst_status sample_add(json_t *sample, const mst_key_list *list)
{
    uint32_t n = list->n_keys < SAMPLE_SHARE ? list->n_keys : SAMPLE_SHARE;
    for (uint32_t i = 0; i < n && json_array_size(sample) < SAMPLE_KEYS; i++) {
        uint32_t key = list->keys[(uint64_t)i * list->n_keys / n];
        if (json_array_append_new(sample, json_integer((json_int_t)key)) != 0)
            return mst_fail_memory();
    }
    return MST_OK;
}

static mst_status sample_fill(mst_worker_pipeline *self, json_t *sample)
{
    mst_feed *feed = self->job->feed;
    uint32_t n_prefix = self->gradient->n_prefix;
    mst_key_list *list = mst_zalloc(sizeof *list);
    mst_status st = MST_OK;
    if (list == NULL)
        return mst_fail_memory();
    TRY_OUT(st, mst_feed_start(feed, 0, 0));
    for (unsigned i = 0; i < SAMPLE_BATCHES && json_array_size(sample) < SAMPLE_KEYS; i++) {
        mst_batch batch;
        uint64_t position;
        TRY_OUT(st, mst_feed_take(feed, 0, self->job->batch, &batch, &position));
        if (batch.n_rows == 0)
            break;
        TRY_OUT(st, mst_row_localise(self->localiser, 0, &batch, n_prefix, n_prefix, list,
                                     self->requests[0].rows));
        TRY_OUT(st, sample_add(sample, list));
    }
out:
    mst_key_list_fini(list);
    mst_free(list);
    return st;
}

mst_status mst_worker_pipeline_sample(mst_worker_pipeline *self, json_t **out)
{
    *out = NULL;
    if (self->localiser == NULL)
        return MST_OK;
    json_t *sample = json_array();
    if (sample == NULL)
        return mst_fail_memory();
    /* Rows that can be read only once are left for training. */
    if (self->job->dataset->random || mst_stream_reads_once(self->job->dataset) == NULL) {
        mst_status st = sample_fill(self, sample);
        if (st != MST_OK) {
            json_decref(sample);
            return st;
        }
    }
    *out = sample;
    return MST_OK;
}
