/* Records of the processes of a job; contract in server_records.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "observe/observe.h"
#include "observe/trace_file.h"
#include "ps/server_impl.h"

#define RECORDS_NS (1 * MST_S)
#define BYTES_NS   (50 * MST_MS) /* the longest delay of the bytes in spans */
#define LAST_NS    (2 * MST_S)
#define PROBE_NS   (1 * MST_S) /* of silence, after which another path may be measured */

mst_status mst_records_take(mst_server *s, uint32_t peer, const mst_message *m, const void *body)
{
    char name[MST_PROCESS_NAME];
    mst_record record;
    const mst_server_peer *p = mst_peer_table_find(&s->peers, peer);
    if (s->co == NULL || p == NULL)
        return mst_fail(MST_EPEER, "LOG, which only the coordinator receives");
    if (p->kind == MST_PEER_WORKER && !s->workers[p->index].member)
        return MST_OK; /* it left before it was admitted */
    snprintf(name, sizeof name, "%s-%" PRIu32, p->kind == MST_PEER_WORKER ? "worker" : "server", p->index);
    if (mst_record_decode(body, m->size, &record) != MST_OK)
        return mst_fail(MST_EPEER, "LOG: %s", mst_error_text());
    if (strcmp(record.process, name) != 0)
        return mst_fail(MST_EPEER, "LOG with a record of %s", record.process);
    s->hooks->event(s->hooks->arg, &(mst_server_event){.kind = MST_SERVER_RECORD, .record = &record});
    return MST_OK;
}

mst_status mst_records_clock(mst_server *s, uint32_t peer, const mst_message *m, const void *body)
{
    uint32_t worker = mst_server_peer_index(s, peer, MST_PEER_WORKER);
    if (worker != UINT32_MAX && !mst_answer_has_room(s, worker, MST_CLOCK_ANSWER))
        return MST_OK;
    if (s->co != NULL && mst_peer_table_find(&s->peers, peer) != NULL)
        return mst_unless_gone(mst_ps_clock_answer(s->net, peer, m, s->options.observe));
    if (s->co != NULL || peer != s->servers[0])
        return mst_fail(MST_EPEER, "CLOCK, which only the coordinator answers");
    return mst_ps_clock_take(&s->records.clock, s->net, peer, m, body, s->options.observe);
}

mst_status mst_records_probe(mst_server *s, uint32_t peer, const mst_message *m, mst_body *body)
{
    mst_server_records *r = &s->records;
    uint64_t now = mst_now_ns();
    mst_net_stats stats;
    mst_message answer = {.type = MST_PS_PROBE};
    bool taken = r->probed_ns != 0 && r->prober != peer && now - r->probed_ns < PROBE_NS;
    if ((m->size > 0) != (m->flags == MST_PROBE_DATA)) {
        mst_body_release(&s->bodies, body);
        return mst_fail(MST_EPEER, "an invalid PROBE");
    }
    if (m->flags == MST_PROBE_DONE) {
        r->probed_ns = taken ? r->probed_ns : 0;
        return MST_OK;
    }
    answer.flags = m->flags == MST_PROBE_DATA ? MST_PROBE_DATA : taken ? MST_PROBE_BUSY : MST_PROBE_GO;
    if (answer.flags == MST_PROBE_GO)
        r->prober = peer;
    if (r->prober == peer)
        r->probed_ns = now;
    mst_net_stats_get(s->net, peer, &stats);
    if (stats.queued > 0) { /* it does not read the answers */
        mst_body_release(&s->bodies, body);
        return MST_OK;
    }
    return mst_unless_gone(body != NULL ? mst_body_lend(&s->bodies, peer, &answer, body, (size_t)m->size)
                                        : mst_ps_send(s->net, peer, &answer));
}

void mst_records_trace_queue(mst_server *s)
{
    mst_net_stats stats;
    if (!mst_tracing())
        return;
    mst_net_stats_get(s->net, MST_PEER_NONE, &stats);
    if (stats.queued + 1 == s->records.traced_queue)
        return;
    s->records.traced_queue = stats.queued + 1;
    mst_trace_counter(MST_TRACE_FLIGHT, stats.queued);
}

void mst_records_count(mst_server *s, mst_server_peer *peer)
{
    mst_net_stats stats;
    if (s->options.observe == NULL || peer->kind == MST_PEER_UNKNOWN)
        return;
    mst_net_stats_get(s->net, peer->number, &stats);
    mst_observe_traffic(s->options.observe, peer->kind == MST_PEER_WORKER ? "worker" : "server", peer->index,
                        stats.bytes_in - peer->in, stats.bytes_out - peer->out);
    peer->in = stats.bytes_in;
    peer->out = stats.bytes_out;
}

void mst_records_count_all(mst_server *s)
{
    for (size_t i = 0; i < s->peers.capacity; i++)
        mst_records_count(s, &s->peers.items[i]);
}

void mst_records_tick(mst_server *s)
{
    uint64_t now = mst_now_ns();
    mst_net_stats stats;
    if (s->options.observe == NULL || now - s->records.counted_ns < BYTES_NS)
        return;
    s->records.counted_ns = now;
    mst_net_stats_get(s->net, MST_PEER_NONE, &stats);
    mst_span_bytes(stats.bytes_in - s->records.in, stats.bytes_out - s->records.out);
    s->records.in = stats.bytes_in;
    s->records.out = stats.bytes_out;
    if (now - s->records.sent_ns < RECORDS_NS)
        return;
    s->records.sent_ns = now;
    mst_observe_link(s->options.observe, stats.link, 8.0 * (double)stats.rate);
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        if (s->workers[w].peer == MST_PEER_NONE)
            continue;
        mst_net_stats_get(s->net, s->workers[w].peer, &stats);
        mst_observe_path(s->options.observe, w, 8.0 * (double)stats.rate, stats.trip_s);
    }
    mst_records_count_all(s);
    if (s->co != NULL || !s->setup.up || !s->setup.ready)
        return;
    (void)mst_ps_send_log(s->net, s->servers[0], s->options.observe);
    (void)mst_ps_clock_ask(&s->records.clock, s->net, s->servers[0]);
}

void mst_records_send_last(mst_server *s)
{
    if (s->net != NULL)
        mst_records_count_all(s);
    if (s->co != NULL || s->net == NULL || !s->setup.up)
        return;
    mst_observe_end(s->options.observe);
    (void)mst_ps_send_log(s->net, s->servers[0], s->options.observe); /* the job is over either way */
}

void mst_records_await_last(mst_server *s)
{
    uint64_t deadline = mst_now_ns() + LAST_NS;
    bool any = s->co != NULL && s->net != NULL;
    while (any && mst_now_ns() < deadline) {
        any = false;
        for (uint32_t i = 1; i < s->options.n_servers; i++)
            any |= s->servers[i] != MST_PEER_NONE;
        if (any && mst_net_poll(s->net, deadline) != MST_OK)
            return;
    }
}

mst_phase mst_server_phase_of(uint16_t type)
{
    switch (type) {
    case MST_PS_STEP:
    case MST_PS_GRADIENT:
    case MST_PS_CLOSE:
    case MST_PS_GONE:
    case MST_PS_DELTA:
    case MST_PS_COPIED:
    case MST_PS_APPLIED:
        return MST_PHASE_APPLY;
    case MST_PS_CUT:
    case MST_PS_MARKER:
    case MST_PS_FLOATS:
    case MST_PS_SAVED:
        return MST_PHASE_CHECKPOINT;
    default:
        return MST_PHASE_IDLE;
    }
}
