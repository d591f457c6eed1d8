/* Rank records to rank 0 over the connections of the rank monitor; contract in rank_monitor.h.
 *
 * MPI cannot carry them: the only thread that uses MPI may be inside a step or waiting, and a rank's MPI may
 * hang when another rank dies. The monitor has a thread and a connection to rank 0 that keep working.
 *
 *   rank 0   OPEN    records are accepted from here on
 *   others   RECORD  all records there are, four times a second
 *            DONE    there are no more
 *            CLOCK   a request once a second, and rank 0's answer
 *
 * Invariants
 * 1. A record is taken only while at most QUEUED_MAX bytes wait for rank 0. So an error report is sent soon,
 * and on a slow connection records stay with the code that writes them, which bounds their memory.
 * 2. A record that was taken is sent once, or its connection is down. */
#include "base/alloc.h"
#include "base/cond.h"
#include "ranks/rank_monitor_impl.h"

#define TICK_NS    MST_S          /* and between requests for the clock */
#define LOOK_NS    (250 * MST_MS) /* a trace may fill the buffer of its process in less than a second */
#define AGAIN_NS   (20 * MST_MS)  /* while records wait for room */
#define QUEUED_MAX ((uint64_t)256 << 10)

static void records_deliver(mst_rank_monitor *w, int rank, const mst_message *m, const void *body,
                            size_t bytes)
{
    mst_piece piece = {.data = body, .size = bytes};
    if (w->members[rank].peer != MST_RANK_NO_PEER)
        (void)mst_net_send(w->net, w->members[rank].peer, m, &piece, bytes > 0, NULL);
}

/* ---- the thread ---- */

static void records_request_clock(mst_rank_monitor *w)
{
    w->records.clock_sent_ns = mst_now_ns();
    records_deliver(w, 0, &(mst_message){.type = CLOCK, .request = ++w->records.clock_request}, NULL, 0);
}

/* Sends records while there is room; returns whether there may be more. */
static bool records_send(mst_rank_monitor *w)
{
    mst_net_stats stats;
    void *record;
    size_t bytes;
    bool more = true;
    pthread_mutex_lock(&w->records.mutex);
    while (w->members[0].peer != MST_RANK_NO_PEER) {
        mst_net_stats_get(w->net, w->members[0].peer, &stats);
        if (stats.queued > QUEUED_MAX)
            break;
        more = w->records.calls.next != NULL && w->records.calls.next(w->records.calls.arg, &record, &bytes);
        if (!more)
            break;
        if (bytes <= MST_RANK_RECORD_MAX)
            records_deliver(w, 0, &(mst_message){.type = RECORD}, record, bytes);
        mst_free(record);
    }
    pthread_mutex_unlock(&w->records.mutex);
    return more && w->members[0].peer != MST_RANK_NO_PEER;
}

/* Returns when the next tick is due; UINT64_MAX: never. */
static uint64_t records_tick(mst_rank_monitor *w, uint64_t now)
{
    pthread_mutex_lock(&w->records.mutex);
    bool ticks = w->records.calls.tick != NULL;
    if (ticks && now >= w->records.ticked_ns + TICK_NS) {
        w->records.ticked_ns = now;
        w->records.calls.tick(w->records.calls.arg);
    }
    pthread_mutex_unlock(&w->records.mutex);
    return ticks ? w->records.ticked_ns + TICK_NS : UINT64_MAX;
}

static void records_serve_zero(mst_rank_monitor *w)
{
    pthread_mutex_lock(&w->mutex);
    bool opening = w->records.opening;
    w->records.opening = false;
    pthread_mutex_unlock(&w->mutex);
    for (int r = 1; opening && r < w->size; r++)
        records_deliver(w, r, &(mst_message){.type = OPEN}, NULL, 0);
}

/* Returns when a rank other than 0 has to look again. */
static uint64_t records_serve_other(mst_rank_monitor *w, uint64_t now)
{
    pthread_mutex_lock(&w->mutex);
    bool finishing = w->records.finishing, finished = w->records.finished;
    pthread_mutex_unlock(&w->mutex);
    if (finished || (!finishing && !w->records.open))
        return UINT64_MAX;
    if (!finishing && now < w->records.looked_ns + LOOK_NS)
        return w->records.looked_ns + LOOK_NS;
    if (!finishing && now >= w->records.clock_sent_ns + TICK_NS)
        records_request_clock(w);
    if (w->records.open && records_send(w))
        return now + AGAIN_NS;
    w->records.looked_ns = now;
    if (!finishing)
        return now + LOOK_NS;
    records_deliver(w, 0, &(mst_message){.type = DONE}, NULL, 0);
    pthread_mutex_lock(&w->mutex);
    w->records.finished = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
    return UINT64_MAX;
}

uint64_t mst_rank_records_serve(mst_rank_monitor *w)
{
    uint64_t now = mst_now_ns(), due = records_tick(w, now), other = UINT64_MAX;
    if (w->rank == 0)
        records_serve_zero(w);
    else
        other = records_serve_other(w, now);
    return due < other ? due : other;
}

static void records_receive_clock(mst_rank_monitor *w, const mst_message *m, const void *body)
{
    if (m->request != w->records.clock_request || w->records.clock_sent_ns == 0 || body == NULL)
        return;
    pthread_mutex_lock(&w->records.mutex);
    bool again =
        w->records.calls.clock_received != NULL &&
        w->records.calls.clock_received(w->records.calls.arg, w->records.clock_sent_ns, body, m->size);
    pthread_mutex_unlock(&w->records.mutex);
    if (again)
        records_request_clock(w);
}

static void records_answer_clock(mst_rank_monitor *w, int rank, const mst_message *m)
{
    uint8_t answer[MST_RANK_CLOCK_SIZE];
    pthread_mutex_lock(&w->records.mutex);
    bool any = w->records.calls.clock != NULL;
    if (any)
        w->records.calls.clock(w->records.calls.arg, answer);
    pthread_mutex_unlock(&w->records.mutex);
    if (any)
        records_deliver(w, rank, &(mst_message){.type = CLOCK, .request = m->request}, answer, sizeof answer);
}

static void records_receive_done(mst_rank_monitor *w, int rank)
{
    if (w->members[rank].done)
        return;
    w->members[rank].done = true;
    pthread_mutex_lock(&w->mutex);
    w->records.n_done++;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

mst_status mst_rank_records_receive(mst_rank_monitor *w, int rank, const mst_message *m, const void *body)
{
    if (w->rank != 0 && m->type == OPEN) {
        w->records.open = true;
    } else if (w->rank != 0 && m->type == CLOCK) {
        records_receive_clock(w, m, body);
    } else if (w->rank == 0 && m->type == CLOCK) {
        records_answer_clock(w, rank, m);
    } else if (w->rank == 0 && m->type == DONE) {
        records_receive_done(w, rank);
    } else if (w->rank == 0 && m->type == RECORD) {
        pthread_mutex_lock(&w->records.mutex);
        if (w->records.calls.received != NULL)
            w->records.calls.received(w->records.calls.arg, rank, body, body != NULL ? m->size : 0);
        pthread_mutex_unlock(&w->records.mutex);
    } else {
        return mst_fail(MST_EINPUT, "message type %u is not one of the rank monitor's", m->type);
    }
    return MST_OK;
}

/* ---- any thread ---- */

void mst_rank_records_set(mst_rank_monitor *w, const mst_rank_records *records)
{
    if (w == NULL)
        return;
    pthread_mutex_lock(&w->records.mutex);
    w->records.calls = records != NULL ? *records : (mst_rank_records){0};
    pthread_mutex_unlock(&w->records.mutex);
    pthread_mutex_lock(&w->mutex);
    w->records.opening = w->rank == 0 && records != NULL;
    pthread_mutex_unlock(&w->mutex);
    if (w->thread_made)
        mst_net_wake(w->net);
}

/* Waits for *flag or that many finished ranks, or until a rank is lost. */
static void records_await(mst_rank_monitor *w, const bool *flag, int n_done, uint32_t timeout_ms)
{
    uint64_t deadline = mst_now_ns() + timeout_ms * MST_MS;
    pthread_mutex_lock(&w->mutex);
    while (!*flag && w->records.n_done < n_done && !w->lost && w->broken.code == MST_OK &&
           mst_now_ns() < deadline)
        mst_cond_wait(&w->changed, &w->mutex, deadline);
    pthread_mutex_unlock(&w->mutex);
}

void mst_rank_records_end(mst_rank_monitor *w, uint32_t timeout_ms)
{
    if (w == NULL || !w->thread_made || w->rank == 0)
        return;
    pthread_mutex_lock(&w->mutex);
    w->records.finishing = true;
    pthread_mutex_unlock(&w->mutex);
    mst_net_wake(w->net);
    records_await(w, &w->records.finished, w->size, timeout_ms);
}

void mst_rank_records_await(mst_rank_monitor *w, uint32_t timeout_ms)
{
    static const bool never = false;
    if (w != NULL && w->thread_made && w->rank == 0)
        records_await(w, &never, w->size - 1, timeout_ms);
}
