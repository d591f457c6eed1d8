/* Claims of rows of a live dataset (feed.h). */
#include "base/clock.h"
#include "data/feed_impl.h"

/* Under the mutex: rows that can be handed out without waiting. */
static uint64_t rows_at_hand(const mst_feed *f)
{
    uint64_t n = f->queued_rows;
    if (f->current != NULL && f->position < f->current->start + f->current->n_rows)
        n += f->current->start + f->current->n_rows - f->position;
    uint64_t left = f->position < f->to ? f->to - f->position : 0;
    return n < left ? n : left;
}

/* Under the mutex: when ready rows are handed out although they do not fill a unit. */
static uint64_t pause_over_ns(const mst_feed *f)
{
    return rows_at_hand(f) > 0 ? f->arrived_ns + MST_FEED_PAUSE_S * MST_S : UINT64_MAX;
}

/* Under the mutex: how many of n rows to claim now; 0: none yet. */
static uint32_t rows_due(const mst_feed *f, uint32_t n, uint32_t unit)
{
    uint64_t have = rows_at_hand(f);
    bool last = f->ended || f->error.code != MST_OK || f->position + have >= f->to;
    if (have >= n || last)
        return have > 0 && have < n ? (uint32_t)have : n;
    return (uint32_t)(have >= unit ? have - have % unit : mst_now_ns() >= pause_over_ns(f) ? have : 0);
}

/* Under the mutex: waits until some of the n rows may be handed out; *take is 0 when it is too late. */
static mst_status wait_some(mst_feed *f, uint32_t n, uint32_t unit, uint64_t deadline_ns, uint32_t *take)
{
    while ((*take = rows_due(f, n, unit)) == 0 && mst_now_ns() < deadline_ns) {
        uint64_t pause_ns = pause_over_ns(f);
        TRY(mst_feed_wait_rows(f, pause_ns < deadline_ns ? pause_ns : deadline_ns));
    }
    return MST_OK;
}

bool mst_feed_ready(mst_feed *f, uint32_t n)
{
    if (!f->dataset->live || (f->options.stop != NULL && atomic_load(f->options.stop)))
        return true;
    pthread_mutex_lock(&f->mutex);
    bool ready = rows_due(f, n, n) > 0;
    pthread_mutex_unlock(&f->mutex);
    return ready;
}

mst_status mst_feed_claim_by(mst_feed *f, unsigned lane_index, uint32_t n, uint32_t unit,
                             uint64_t deadline_ns, mst_batch *batch, uint64_t *position, bool *more)
{
    if (!f->dataset->live) {
        TRY(mst_feed_claim(f, lane_index, n, batch, position));
        *more = batch->n_rows == n;
        return MST_OK;
    }
    mst_feed_lane *l = &f->lanes[lane_index];
    uint32_t take = 0, got = 0;
    *position = 0;
    pthread_mutex_lock(&f->mutex);
    mst_status st = wait_some(f, n < f->options.max_take ? n : f->options.max_take, unit, deadline_ns, &take);
    if (st == MST_OK)
        st = mst_feed_claim_rows(f, l, take, &got, position);
    *more = f->position < f->to && !(f->ended && rows_at_hand(f) == 0);
    pthread_mutex_unlock(&f->mutex);
    if (st == MST_OK)
        *batch = (mst_batch){.rows = l->rows, .n_rows = got};
    return st;
}
