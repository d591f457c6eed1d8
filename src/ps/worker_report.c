/* A worker's reports; contract in worker_report.h. */
#include "ps/worker_report.h"

#include <math.h>

#include "base/clock.h"
#include "observe/observe.h"

#define REPORT_NS     (1 * MST_S)
#define ACCURACY_ROWS 1000          /* of the reported accuracy, at least, if there are so many */
#define BYTES_NS      (50 * MST_MS) /* the longest delay of the bytes in spans */

void mst_worker_report_begin(mst_worker_report *self)
{
    mst_net_stats_get(self->link->net, MST_PEER_NONE, &self->start);
    self->in = self->start.bytes_in;
    self->out = self->start.bytes_out;
    self->begun_ns = mst_now_ns();
    self->counts.accuracy = NAN;
}

static void report_count_bytes(mst_worker_report *self, mst_net_stats *stats)
{
    mst_spans *spans = mst_observe_spans(self->job->observe);
    mst_lane *lane = spans != NULL ? mst_spans_lane(spans, 0) : NULL;
    mst_net_stats_get(self->link->net, MST_PEER_NONE, stats);
    if (lane != NULL) { /* that of the training thread; the owner of the net may be another thread */
        mst_lane_add(&lane->bytes_in, stats->bytes_in - self->in);
        mst_lane_add(&lane->bytes_out, stats->bytes_out - self->out);
    }
    self->in = stats->bytes_in;
    self->out = stats->bytes_out;
    self->counted_ns = mst_now_ns();
}

/* Counts the bytes of the connections to the servers for the observer. The last bytes of a connection that
 * was replaced count with those of its successor. */
static void report_count_traffic(mst_worker_report *self)
{
    mst_worker_link *link = self->link;
    for (uint32_t s = 0; s < link->n_servers; s++) {
        mst_counted_bytes *c = &link->counted[s];
        uint32_t peers[] = {c->peer, link->peers[s]};
        for (int i = c->peer == link->peers[s]; i < 2; i++) {
            mst_net_stats stats;
            if (peers[i] == MST_PEER_NONE)
                continue;
            if (peers[i] != c->peer)
                *c = (mst_counted_bytes){.peer = peers[i]};
            mst_net_stats_get(link->net, peers[i], &stats);
            mst_observe_traffic(self->job->observe, "server", s, stats.bytes_in - c->in,
                                stats.bytes_out - c->out);
            c->in = stats.bytes_in;
            c->out = stats.bytes_out;
        }
    }
}

/* skipped: malformed rows that were left out. */
static json_t *report_json(const mst_worker_counts *c, uint64_t skipped)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:f, s:I, s:f, s:o*, s:o*}", "steps",
                     (json_int_t)c->steps, "rows", (json_int_t)c->rows, "dropped_steps",
                     (json_int_t)c->dropped_steps, "dropped_rows", (json_int_t)c->dropped_rows,
                     "compute_seconds", c->compute_seconds, "wait_seconds", c->wait_seconds, "input_seconds",
                     c->input_seconds, "bytes_out", (json_int_t)c->bytes_out, "bytes_in",
                     (json_int_t)c->bytes_in, "eval_bytes_in", (json_int_t)c->eval_bytes_in, "eval_seconds",
                     c->eval_seconds, "n_evaluations", (json_int_t)c->n_evaluations, "seconds", c->seconds,
                     "last_accuracy", c->accuracy >= 0 ? json_real(c->accuracy) : NULL, "skipped_rows",
                     skipped > 0 ? json_integer((json_int_t)skipped) : NULL);
}

mst_status mst_worker_report_send(mst_worker_report *self, uint32_t flags)
{
    mst_worker_counts *c = &self->counts;
    mst_worker_link *link = self->link;
    struct mst_observe *observe = self->job->observe;
    mst_net_stats stats;
    report_count_bytes(self, &stats);
    c->bytes_out = stats.bytes_out - self->start.bytes_out - self->eval_bytes_out;
    c->bytes_in = stats.bytes_in - self->start.bytes_in - c->eval_bytes_in;
    self->reported_ns = mst_now_ns();
    c->seconds = mst_seconds_since(self->begun_ns);
    if (c->recent.rows >= ACCURACY_ROWS || (c->recent.rows > 0 && isnan(c->accuracy)))
        c->accuracy = c->recent.correct / (double)c->recent.rows;
    if (c->recent.rows >= ACCURACY_ROWS)
        c->recent = (mst_loss_sum){0};
    mst_observe_link(observe, stats.link, 8.0 * (double)stats.rate);
    for (uint32_t s = 0; s < link->n_servers; s++) {
        mst_net_stats_get(link->net, link->peers[s], &stats);
        mst_observe_path(observe, s, 8.0 * (double)stats.rate, stats.trip_s);
    }
    if (observe != NULL)
        report_count_traffic(self);
    if (flags & MST_REPORT_LAST)
        mst_observe_end(observe);
    TRY(mst_ps_send_log(link->net, link->peers[0], observe));
    if (observe != NULL && !(flags & MST_REPORT_LAST))
        TRY(mst_ps_clock_ask(&self->clock, link->net, link->peers[0]));
    mst_message m = {.type = MST_PS_REPORT, .flags = flags};
    uint64_t skipped = flags & MST_REPORT_LAST ? mst_dataset_skipped(self->job->dataset) : 0;
    return mst_ps_send_json(link->net, link->peers[0], &m, report_json(c, skipped));
}

mst_status mst_worker_report_tick(mst_worker_report *self)
{
    uint64_t now = mst_now_ns();
    mst_net_stats stats;
    if (now - self->reported_ns >= REPORT_NS)
        return mst_worker_report_send(self, 0);
    if (self->job->observe != NULL && now - self->counted_ns >= BYTES_NS)
        report_count_bytes(self, &stats);
    return MST_OK;
}
