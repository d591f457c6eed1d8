/* Messages that arrive at a worker, and its work between polls; contract in worker_impl.h.
 *
 * Events only record (and send markers): they run inside any call that polls. mst_worker_attend acts on the
 * records, between polls. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "observe/observe.h"
#include "observe/trace_file.h"
#include "ps/worker_impl.h"
#include "run/run_dir.h"

/* ---- connections ---- */

static void worker_on_up(void *arg, uint32_t peer, const mst_identity *who)
{
    mst_worker *self = arg;
    mst_worker_link *link = &self->link;
    uint32_t s = mst_worker_link_server(link, peer);
    if (s == UINT32_MAX || link->up[s])
        return;
    if (who->role != MST_ROLE_SERVER || who->index != s) {
        mst_worker_link_note(link,
                             mst_fail(MST_EINPUT,
                                      "%s is %s %" PRIu32 ", but the cluster lists it as server %" PRIu32
                                      "; give all processes the same cluster",
                                      link->addresses[s], mst_role_name(who->role), who->index, s),
                             true);
        return;
    }
    link->up[s] = true;
}

/* Whether this worker may join the job again after the loss of a connection. If its own fault was the reason,
 * server 0 has ended it with END. */
static bool worker_heals(const mst_worker *self, const mst_net_loss *loss, bool was_up)
{
    return self->options.engine->survives_death && loss->error.code == MST_EPEER &&
           (was_up || loss->reason != MST_NET_REFUSED);
}

/* The loss of a server, or of this worker by a server. */
static mst_status worker_lost(const mst_worker *self, uint32_t server, const mst_net_loss *loss, bool was_up)
{
    mst_status code = worker_heals(self, loss, was_up) ? MST_EAGAIN : loss->error.code;
    const char *run = json_string_value(json_object_get(self->welcome, "run"));
    char resume_hint[MST_ERROR_MAX / 2];
    if (loss->reason == MST_NET_STOPPED)
        return mst_fail(code, "this worker was silent for %.1f s and server %" PRIu32 " dropped it",
                        loss->silent_s, server);
    if (code == MST_EAGAIN || self->client == NULL || loss->reason == MST_NET_REFUSED)
        return mst_fail(code, "%s", loss->error.text);
    mst_run_resume_hint(run != NULL ? run : "RUN", resume_hint, sizeof resume_hint);
    return mst_fail(code, "%s: server %" PRIu32 " is gone and the job cannot continue; %s", loss->error.text,
                    server, resume_hint);
}

static void worker_on_down(void *arg, uint32_t peer, const mst_net_loss *loss)
{
    mst_worker *self = arg;
    mst_worker_link *link = &self->link;
    const mst_error *why = &loss->error;
    uint32_t s = mst_worker_link_server(link, peer);
    if (s == UINT32_MAX || link->ended)
        return;
    if (self->client != NULL)
        mst_client_down(self->client, peer, why);
    bool was_up = link->up[s];
    link->up[s] = false;
    if (link->starting && !was_up && why->code == MST_ETIMEOUT) {
        char missing[MST_ERROR_MAX / 2];
        mst_worker_link_missing(link, missing, sizeof missing);
        mst_worker_link_note(link,
                             mst_fail(MST_ETIMEOUT, "no answer within %" PRIu32 " s from %s",
                                      self->options.start_timeout_ms / 1000, missing),
                             true);
    } else {
        bool silent = loss->reason == MST_NET_STOPPED; /* also explains a failure that server 0 reported */
        if (silent)
            link->failure_is_final = false;
        mst_worker_link_note(link, worker_lost(self, s, loss, was_up), silent || s == 0);
    }
}

/* ---- messages ---- */

/* The largest body of a message from the coordinator other than values; 0: it has none. */
static uint64_t worker_most_bytes(uint16_t type)
{
    switch (type) {
    case MST_PS_JOB:
    case MST_PS_WELCOME:
    case MST_PS_END:
        return MST_PS_JSON_MAX;
    case MST_PS_CLOCK:
        return MST_CLOCK_ANSWER;
    case MST_PS_WORK:
        return (uint64_t)MST_WORKER_ITEMS * MST_WORK_SIZE;
    default:
        return 0;
    }
}

static mst_status worker_on_body(void *arg, uint32_t peer, const mst_message *m, void **out)
{
    mst_worker *self = arg;
    uint32_t s = mst_worker_link_server(&self->link, peer);
    if (s == UINT32_MAX)
        return mst_fail(MST_EINPUT, "a worker receives messages from its servers only");
    if ((m->type == MST_PS_VALUES || m->type == MST_PS_WEIGHTS) && self->client != NULL)
        return mst_client_body(self->client, peer, m, out);
    if (m->type == MST_PS_EVAL_VALUES)
        return mst_worker_eval_body(&self->eval, s, m, out);
    if (m->type == MST_PS_PROBE)
        return mst_worker_probe_body(&self->probe, m, out);
    uint64_t most = worker_most_bytes(m->type);
    if (most == 0)
        return mst_fail(MST_EINPUT, "a worker expects no %s with %" PRIu64 " bytes",
                        mst_ps_type_name(m->type), m->size);
    if (s != 0 || m->size > most)
        return mst_fail(MST_EINPUT, "a worker expects no %s of %" PRIu64 " bytes from server %" PRIu32,
                        mst_ps_type_name(m->type), m->size, s);
    if (!mst_grow(&self->link.body, &self->link.body_capacity, m->size, 1))
        return mst_fail_memory();
    *out = self->link.body;
    return MST_OK;
}

static mst_status worker_take_json(const mst_message *m, const void *body, json_t **out)
{
    json_t *json = NULL;
    TRY(mst_ps_json(m, body, &json));
    json_decref(*out);
    *out = json;
    return MST_OK;
}

static mst_status worker_take_work(mst_worker *self, const mst_message *m, const uint8_t *body)
{
    if (m->size % MST_WORK_SIZE != 0)
        return mst_fail(MST_EINPUT, "a WORK of %" PRIu64 " bytes; items have %d each", m->size,
                        MST_WORK_SIZE);
    for (uint64_t at = 0; at < m->size; at += MST_WORK_SIZE) {
        mst_work work;
        TRY(mst_work_decode(body + at, m->size - at, &work));
        TRY(mst_worker_rows_add(&self->rows, &work));
    }
    return MST_OK;
}

static void worker_send_markers(mst_worker *self, const mst_message *cut)
{
    mst_worker_link *link = &self->link;
    mst_message m = {.type = MST_PS_MARKER, .flags = cut->flags, .count = cut->count, .step = cut->step};
    for (uint32_t s = 0; s < link->n_servers; s++) {
        mst_status st = link->up[s] ? mst_ps_send(link->net, link->peers[s], &m) : MST_OK;
        if (st != MST_OK)
            mst_worker_link_note(link, st, false);
    }
}

static mst_status worker_take_weights(mst_worker *self, uint32_t peer, const mst_message *m, void *body)
{
    mst_trace_next(&self->link.net_op, "decode", (mst_trace_output){.bytes = m->size});
    TRY(mst_client_message(self->client, peer, m, body));
    mst_trace_next(&self->link.net_op, NULL, (mst_trace_output){.bytes = m->size});
    if (mst_tracing())
        mst_trace_counter(MST_TRACE_FLIGHT, mst_client_in_flight(self->client));
    return MST_OK;
}

static mst_status worker_on_message(void *arg, uint32_t peer, const mst_message *m, void *body)
{
    mst_worker *self = arg;
    uint32_t s = mst_worker_link_server(&self->link, peer);
    struct mst_observe *observe = self->job != NULL ? self->job->observe : NULL;
    if (s == UINT32_MAX)
        return mst_fail(MST_EINPUT, "a worker receives messages from its servers only");
    if ((m->type == MST_PS_VALUES || m->type == MST_PS_WEIGHTS) && self->client != NULL)
        return worker_take_weights(self, peer, m, body);
    if (m->type == MST_PS_EVAL_VALUES)
        return mst_worker_eval_values(&self->eval, s, m, &self->histograms.due);
    if (m->type == MST_PS_PROBE) {
        mst_worker_probe_take(&self->probe, m);
        return MST_OK;
    }
    if (s != 0)
        return mst_fail(MST_EINPUT, "a worker expects no %s from server %" PRIu32, mst_ps_type_name(m->type),
                        s);
    self->link.received_ns = mst_now_ns();
    switch (m->type) {
    case MST_PS_JOB:
        TRY(worker_take_json(m, body, &self->job_json));
        return mst_worker_link_without(&self->link, json_object_get(self->job_json, "absent"));
    case MST_PS_WELCOME:
        return worker_take_json(m, body, &self->welcome);
    case MST_PS_WORK:
        return worker_take_work(self, m, body);
    case MST_PS_CUT:
        worker_send_markers(self, m);
        if ((m->flags & MST_CUT_EVAL) != 0)
            mst_worker_eval_announce(&self->eval, m->count);
        return MST_OK;
    case MST_PS_CHIEF:
        self->eval.chief = true;
        self->eval.pass = m->step;
        return MST_OK;
    case MST_PS_HOLD:
        self->link.held = (m->flags & MST_HOLD_BEGIN) != 0;
        return MST_OK;
    case MST_PS_CLOCK:
        return mst_ps_clock_take(&self->report.clock, self->link.net, peer, m, body, observe);
    case MST_PS_STOP:
        self->rows.stopped = true;
        self->rows.abandoned |= (m->flags & MST_STOP_NOW) != 0;
        mst_observe_end_interval(observe); /* no training follows */
        return MST_OK;
    case MST_PS_TAKE:
        if (self->options.take_slot != NULL)
            self->options.take_slot(self->options.arg, m->count);
        return MST_OK;
    case MST_PS_END:
        return mst_worker_link_end(&self->link, m, body);
    default:
        return mst_fail(MST_EINPUT, "a worker expects no %s", mst_ps_type_name(m->type));
    }
}

static void worker_on_sent(void *arg, uint32_t peer, void *token)
{
    (void)arg;
    (void)peer;
    (void)token; /* the client's, which needs no notice */
}

static void worker_on_doing(void *arg, mst_net_doing what)
{
    mst_worker *self = arg;
    mst_trace_next(&self->link.net_op,
                   what == MST_NET_READS    ? "receive"
                   : what == MST_NET_WRITES ? "write"
                                            : NULL,
                   (mst_trace_output){0});
}

const mst_net_events mst_worker_events = {
    .up = worker_on_up,
    .down = worker_on_down,
    .body = worker_on_body,
    .message = worker_on_message,
    .sent = worker_on_sent,
    .doing = worker_on_doing,
};

/* ---- between polls ---- */

/* Informs the coordinator of the stop flag. It ends the job with a checkpoint; until then other workers may
 * depend on this worker's pushes. */
static mst_status worker_leave(mst_worker *self)
{
    self->leaving = true;
    self->leaving_ns = mst_now_ns();
    if (self->client != NULL && self->job->elastic) {
        mst_info("received a stop request; finishing the rows of this worker");
        self->rows.leaving = true;
        return MST_OK;
    }
    mst_info("received a stop request; informing server 0");
    if (!self->link.up[0])
        return MST_OK;
    return mst_ps_send_error(self->link.net, self->link.peers[0], MST_PS_FAIL,
                             &(mst_error){.code = MST_ESTOPPED, .text = "stop requested"});
}

mst_status mst_worker_attend(void *arg)
{
    mst_worker *self = arg;
    if (self->link.ended)
        return MST_OK;
    if (self->link.failure.code != MST_OK)
        return mst_worker_link_failed(&self->link);
    if (!self->leaving && self->options.stop != NULL &&
        atomic_load_explicit(self->options.stop, memory_order_relaxed))
        TRY(worker_leave(self));
    if (self->leaving && mst_now_ns() - self->leaving_ns > self->options.stop_grace_ms * MST_MS)
        return mst_fail_lead(MST_ESTOPPED, "stopped", "; server 0 has not ended the job within %" PRIu32 " s",
                             self->options.stop_grace_ms / 1000);
    if (self->client == NULL)
        return MST_OK;
    mst_worker_histograms_write(&self->histograms); /* before the result, which may be the last message */
    TRY(mst_worker_eval_attend(&self->eval));
    return mst_worker_report_tick(&self->report);
}
