/* What arrives at a worker, and what it attends to while it waits; contract in worker_impl.h.
 *
 * Events only take note (and send marks): they run inside whichever call is polling. What follows from a note
 * happens in mst_worker_attend, between polls. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "observe/observe.h"
#include "ps/worker_impl.h"
#include "run/run_dir.h"

#define TURN_NS   (200 * MST_MS) /* the longest poll: how late a wish to stop may be seen */
#define REPORT_NS (1 * MST_S)
#define BYTES_NS  (50 * MST_MS) /* how far the spans' bytes lag behind at most */
#define GRACE_NS  (2 * MST_S)   /* for the coordinator's word after another server went down */

static uint32_t server_of(const mst_worker *self, uint32_t peer)
{
    for (uint32_t s = 0; s < self->options.n_servers; s++)
        if (self->peers[s] == peer)
            return s;
    return UINT32_MAX;
}

void mst_worker_note(mst_worker *self, mst_status status, bool final)
{
    if (self->failure.code == MST_OK || (final && !self->final_failure)) /* the coordinator knows best */
        mst_error_save(&self->failure, status);
    self->final_failure = self->final_failure || final;
}

void mst_worker_missing(const mst_worker *self, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (uint32_t s = 0; s < self->options.n_servers && n < size; s++)
        if (!self->up[s]) {
            int wrote = snprintf(out + n, size - n, "%sserver %" PRIu32 " at %s", n > 0 ? ", " : "", s,
                                 self->servers[s]);
            n += wrote > 0 ? (size_t)wrote : 0;
        }
}

/* ---- events ---- */

static void on_up(void *arg, uint32_t peer, const mst_identity *who)
{
    mst_worker *self = arg;
    uint32_t s = server_of(self, peer);
    if (s == UINT32_MAX || self->up[s])
        return;
    if (who->role != MST_ROLE_SERVER || who->index != s) {
        mst_worker_note(self,
                        mst_fail(MST_EINPUT,
                                 "%s is %s %" PRIu32 ", but the cluster names it as server %" PRIu32
                                 ": give all processes the same cluster",
                                 self->servers[s], mst_role_name(who->role), who->index, s),
                        true);
        return;
    }
    self->up[s] = true;
    self->n_up++;
}

/* The job may well continue: this worker alone was silent, or sent away. */
static mst_status dropped(const mst_worker *self, uint32_t server, const mst_net_loss *loss)
{
    bool others = json_integer_value(json_object_get(self->welcome, "workers")) > 1;
    if (loss->reason == MST_NET_REFUSED)
        return mst_fail(MST_EPEER, "this worker was sent away: %s", loss->error.text);
    return mst_fail(MST_EPEER, "this worker was silent for %.1f s and server %" PRIu32 " dropped it; %s",
                    loss->silent_s, server,
                    others ? "the job continues without it" : "no other worker is left");
}

static void on_down(void *arg, uint32_t peer, const mst_net_loss *loss)
{
    mst_worker *self = arg;
    const mst_error *why = &loss->error;
    uint32_t s = server_of(self, peer);
    if (s == UINT32_MAX || self->ended)
        return;
    if (self->client != NULL)
        mst_client_down(self->client, peer, why);
    bool was_up = self->up[s];
    self->up[s] = false;
    self->n_up -= was_up;
    if (self->starting && !was_up && why->code == MST_ETIMEOUT) {
        char missing[MST_ERROR_MAX / 2];
        mst_worker_missing(self, missing, sizeof missing);
        mst_worker_note(self,
                        mst_fail(MST_ETIMEOUT, "no answer within %" PRIu32 " s from %s",
                                 self->options.start_timeout_ms / 1000, missing),
                        true);
        return;
    }
    if (self->starting || self->client == NULL) {
        mst_worker_note(self, mst_error_restore(why), s == 0);
        return;
    }
    if (loss->reason == MST_NET_REFUSED || loss->reason == MST_NET_STOPPED) {
        bool silent = loss->reason == MST_NET_STOPPED; /* which also explains what server 0 may have told */
        if (silent)
            self->final_failure = false;
        mst_worker_note(self, dropped(self, s, loss), silent || s == 0);
        return;
    }
    char way_on[MST_ERROR_MAX / 2];
    const char *run = json_string_value(json_object_get(self->welcome, "run"));
    mst_run_way_on(run != NULL ? run : "RUN", way_on, sizeof way_on);
    size_t length = strlen(why->text);
    int keep = (int)(length > 0 && why->text[length - 1] == '.' ? length - 1 : length);
    if (loss->reason == MST_NET_SILENT) /* where it still runs, the job continues without this worker */
        mst_fail(MST_EPEER, "%.*s; this worker ends; if the job has ended too, %s", keep, why->text, way_on);
    else
        mst_fail(MST_EPEER, "%.*s: server %" PRIu32 " is gone and the job cannot continue; %s", keep,
                 why->text, s, way_on);
    mst_worker_note(self, MST_EPEER, s == 0);
}

static mst_status on_body(void *arg, uint32_t peer, const mst_message *m, void **out)
{
    mst_worker *self = arg;
    uint32_t s = server_of(self, peer);
    if (s == UINT32_MAX)
        return mst_fail(MST_EINPUT, "a worker takes no messages from strangers");
    if ((m->type == MST_PS_VALUES || m->type == MST_PS_WEIGHTS) && self->client != NULL)
        return mst_client_body(self->client, peer, m, out);
    if (m->type == MST_PS_EVAL_VALUES)
        return mst_worker_eval_body(self, s, m, out);
    uint64_t most;
    switch (m->type) {
    case MST_PS_JOB:
    case MST_PS_WELCOME:
    case MST_PS_END:
        most = MST_PS_JSON_MAX;
        break;
    case MST_PS_CLOCK:
        most = MST_CLOCK_ANSWER;
        break;
    case MST_PS_WORK:
        most = (uint64_t)MST_WORKER_ITEMS * MST_WORK_SIZE;
        break;
    default:
        return mst_fail(MST_EINPUT, "a worker expects no %s with %" PRIu64 " bytes",
                        mst_ps_type_name(m->type), m->size);
    }
    if (s != 0 || m->size > most)
        return mst_fail(MST_EINPUT, "a worker expects no %s of %" PRIu64 " bytes from server %" PRIu32,
                        mst_ps_type_name(m->type), m->size, s);
    if (!mst_grow(&self->bodies[s], &self->body_capacity[s], m->size, 1))
        return mst_fail_memory();
    *out = self->bodies[s];
    return MST_OK;
}

static mst_status take_json(const mst_message *m, const void *body, json_t **out)
{
    json_t *json = NULL;
    TRY(mst_ps_json(m, body, &json));
    json_decref(*out);
    *out = json;
    return MST_OK;
}

static mst_status take_end(mst_worker *self, const mst_message *m, const void *body)
{
    json_t *json = NULL;
    TRY(mst_ps_json(m, body, &json));
    json_int_t code = json_integer_value(json_object_get(json, "code"));
    const char *text = json_string_value(json_object_get(json, "text"));
    self->ended = true;
    self->end.code = code >= MST_OK && code <= MST_EUNSUPPORTED ? (mst_status)code : MST_EPEER;
    snprintf(self->end.text, sizeof self->end.text, "%s",
             text != NULL && text[0] != '\0' ? text : "the coordinator ended the job without a word");
    json_decref(json);
    return MST_OK;
}

static mst_status take_work(mst_worker *self, const mst_message *m, const uint8_t *body)
{
    if (m->size % MST_WORK_SIZE != 0)
        return mst_fail(MST_EINPUT, "a WORK of %" PRIu64 " bytes; items have %d each", m->size,
                        MST_WORK_SIZE);
    for (uint64_t at = 0; at < m->size; at += MST_WORK_SIZE) {
        mst_work work;
        TRY(mst_work_decode(body + at, m->size - at, &work));
        TRY(mst_worker_add_item(self, &work));
    }
    return MST_OK;
}

static void send_marks(mst_worker *self, const mst_message *cut)
{
    mst_message m = {.type = MST_PS_MARK, .flags = cut->flags, .count = cut->count, .step = cut->step};
    for (uint32_t s = 0; s < self->options.n_servers; s++) {
        mst_status st = self->up[s] ? mst_ps_send(self->net, self->peers[s], &m) : MST_OK;
        if (st != MST_OK)
            mst_worker_note(self, st, false);
    }
}

static mst_status on_message(void *arg, uint32_t peer, const mst_message *m, void *body)
{
    mst_worker *self = arg;
    uint32_t s = server_of(self, peer);
    if (s == UINT32_MAX)
        return mst_fail(MST_EINPUT, "a worker takes no messages from strangers");
    if ((m->type == MST_PS_VALUES || m->type == MST_PS_WEIGHTS) && self->client != NULL) {
        TRY(mst_client_message(self->client, peer, m, body));
        mst_worker_trace_flight(self);
        return MST_OK;
    }
    if (m->type == MST_PS_EVAL_VALUES)
        return mst_worker_eval_values(self, s, m);
    if (s != 0)
        return mst_fail(MST_EINPUT, "a worker expects no %s from server %" PRIu32, mst_ps_type_name(m->type),
                        s);
    self->heard_ns = mst_now_ns();
    switch (m->type) {
    case MST_PS_JOB:
        return take_json(m, body, &self->job_json);
    case MST_PS_WELCOME:
        return take_json(m, body, &self->welcome);
    case MST_PS_WORK:
        return take_work(self, m, body);
    case MST_PS_CUT:
        send_marks(self, m);
        if ((m->flags & MST_CUT_EVAL) != 0)
            mst_worker_eval_asked(self, m->count);
        return MST_OK;
    case MST_PS_CHIEF:
        self->eval.chief = true;
        return MST_OK;
    case MST_PS_CLOCK:
        return mst_ps_clock_heard(&self->clock, self->net, peer, m, body,
                                  self->job != NULL ? self->job->observe : NULL);
    case MST_PS_STOP:
        self->stopped = true;
        mst_observe_end_interval(self->job != NULL ? self->job->observe
                                                   : NULL); /* what follows is not training */
        return MST_OK;
    case MST_PS_END:
        return take_end(self, m, body);
    default:
        return mst_fail(MST_EINPUT, "a worker expects no %s", mst_ps_type_name(m->type));
    }
}

static void on_sent(void *arg, uint32_t peer, void *token)
{
    (void)arg;
    (void)peer;
    (void)token; /* the client's, which needs no telling */
}

const mst_net_events mst_worker_events = {
    .up = on_up,
    .down = on_down,
    .body = on_body,
    .message = on_message,
    .sent = on_sent,
};

/* ---- attending ---- */

json_t *mst_worker_text(const char *text)
{
    char plain[MST_ERROR_MAX];
    json_t *json = json_string(text);
    if (json != NULL)
        return json;
    snprintf(plain, sizeof plain, "%s", text);
    for (char *c = plain; *c != '\0'; c++)
        *c = (unsigned char)*c < 128 ? *c : '?';
    return json_string(plain);
}

static void count_bytes(mst_worker *self, mst_net_stats *stats)
{
    mst_net_stats_get(self->net, MST_PEER_NONE, stats);
    mst_span_bytes(stats->bytes_in - self->told_in, stats->bytes_out - self->told_out);
    self->told_in = stats->bytes_in;
    self->told_out = stats->bytes_out;
    self->told_ns = mst_now_ns();
}

mst_status mst_worker_report(mst_worker *self, uint32_t flags)
{
    mst_worker_counts *c = &self->counts;
    mst_net_stats stats;
    count_bytes(self, &stats);
    c->bytes_out = stats.bytes_out - self->start_stats.bytes_out - self->eval.bytes_out;
    c->bytes_in = stats.bytes_in - self->start_stats.bytes_in - c->eval_bytes_in;
    self->last_report_ns = mst_now_ns();
    mst_observe_link(self->job->observe, stats.link, 8.0 * (double)stats.rate);
    if (flags & MST_REPORT_LAST)
        mst_observe_end(self->job->observe);
    TRY(mst_ps_send_log(self->net, self->peers[0], self->job->observe));
    if (self->job->observe != NULL && !(flags & MST_REPORT_LAST))
        TRY(mst_ps_clock_ask(&self->clock, self->net, self->peers[0]));
    json_t *json = json_pack(
        "{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:f, s:I}", "steps", (json_int_t)c->steps, "rows",
        (json_int_t)c->rows, "dropped_steps", (json_int_t)c->dropped_steps, "dropped_rows",
        (json_int_t)c->dropped_rows, "compute_seconds", c->compute_seconds, "wait_seconds", c->wait_seconds,
        "input_seconds", c->input_seconds, "bytes_out", (json_int_t)c->bytes_out, "bytes_in",
        (json_int_t)c->bytes_in, "eval_bytes_in", (json_int_t)c->eval_bytes_in, "eval_seconds",
        c->eval_seconds, "n_evaluations", (json_int_t)c->n_evaluations);
    mst_message m = {.type = MST_PS_REPORT, .flags = flags};
    return mst_ps_send_json(self->net, self->peers[0], &m, json);
}

/* A failure was noted: the coordinator may know better, and has a moment to say so. */
static mst_status halt(mst_worker *self)
{
    uint64_t deadline = mst_now_ns() + GRACE_NS;
    while (!self->ended && !self->final_failure && (self->up[0] || self->starting) && mst_now_ns() < deadline)
        TRY(mst_net_poll(self->net, deadline));
    self->final_failure = true;
    return self->ended ? MST_OK : mst_error_restore(&self->failure);
}

mst_status mst_worker_lost(mst_worker *self, mst_status status)
{
    mst_error error;
    mst_error_save(&error, status);
    uint64_t deadline = mst_now_ns() + GRACE_NS;
    while (!self->ended && self->failure.code == MST_OK && mst_now_ns() < deadline)
        if (mst_net_poll(self->net, deadline) != MST_OK)
            break;
    if (self->failure.code == MST_OK)
        return self->ended ? MST_OK : mst_error_restore(&error);
    return halt(self);
}

/* The coordinator ends the job, with a checkpoint; until then others may depend on this worker's pushes. */
static mst_status leave(mst_worker *self)
{
    mst_message m = {.type = MST_PS_FAIL};
    self->leaving = true;
    mst_info("asked to stop: telling server 0");
    if (!self->up[0])
        return MST_OK;
    return mst_ps_send_json(self->net, self->peers[0], &m,
                            json_pack("{s:i, s:s}", "code", (int)MST_ESTOPPED, "text", "asked to stop"));
}

mst_status mst_worker_attend(mst_worker *self)
{
    mst_status st = MST_OK;
    if (self->ended)
        return MST_OK;
    if (self->failure.code != MST_OK)
        return halt(self);
    if (!self->leaving && self->options.stop != NULL &&
        atomic_load_explicit(self->options.stop, memory_order_relaxed))
        st = leave(self);
    if (st == MST_OK && self->client != NULL) {
        mst_worker_watch_gradient(self); /* before the answer, which may be the last thing that is sent */
        st = mst_worker_eval_attend(self);
        uint64_t now = mst_now_ns();
        mst_net_stats stats;
        if (st == MST_OK && now - self->last_report_ns >= REPORT_NS)
            st = mst_worker_report(self, 0);
        else if (st == MST_OK && self->job->observe != NULL && now - self->told_ns >= BYTES_NS)
            count_bytes(self, &stats);
    }
    return st;
}

mst_status mst_worker_turn(mst_worker *self, uint64_t deadline_ns)
{
    uint64_t soon = mst_now_ns() + TURN_NS;
    TRY(mst_net_poll(self->net, deadline_ns < soon ? deadline_ns : soon));
    return mst_worker_attend(self);
}
