/* Which rows go to whom, as the coordinator decides it.
 *
 * Slices: synchronous steps over data with random access. Steps are planned MST_AHEAD of the last one closed,
 * with the workers that share them; the item for step t + 3 travels with the answer to t, so that rows of t +
 * 2 can be prepared while the pull for t + 1 travels with the push of t. Leases: rows in small runs, to
 * whoever asks (leases.h). Static and local: every worker reads a stream of its own; it is granted numbers of
 * rows, so that limits hold. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "ps/coordinator_impl.h"

#define LEASE_BATCHES 16
#define LEASE_ROWS    64 /* at least */

static bool streams(const mst_coordinator *co)
{
    return co->sharding == MST_SHARDING_STATIC || co->sharding == MST_SHARDING_LOCAL;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t lease_rows(const mst_server *s)
{
    uint64_t rows = (uint64_t)s->options.batch * LEASE_BATCHES;
    return rows < LEASE_ROWS ? LEASE_ROWS : rows;
}

static uint64_t left_of(uint64_t limit, uint64_t done)
{
    return limit == UINT64_MAX ? UINT64_MAX : limit > done ? limit - done : 0;
}

/* ---- slices ---- */

static mst_planned *planned(mst_coordinator *co, uint64_t step)
{
    return &co->planned[step % (MST_AHEAD + 2)];
}

/* Plans steps up to the given one. */
static void plan(mst_server *s, uint64_t step)
{
    mst_coordinator *co = s->co;
    while (co->n_planned < step && !co->no_more) {
        mst_slice slice;
        size_t missed = co->slices.n_missed;
        bool regular = co->slices.position < co->slices.epoch_rows;
        if (co->phase != MST_JOB_RUN || !mst_slices_next(&co->slices, &slice)) {
            co->no_more = true;
            return;
        }
        mst_planned *p = planned(co, slice.step);
        *p = (mst_planned){.slice = slice, .again = missed > 0 && (!regular || co->slices.n_missed < missed)};
        for (uint32_t w = 0; w < s->options.n_workers; w++)
            if (mst_alive(co, w)) {
                mst_bit_set(p->members, w);
                p->n_members++;
            }
        co->n_planned = slice.step;
    }
}

static uint32_t rank_of(const mst_planned *p, uint32_t worker)
{
    uint32_t rank = 0;
    for (uint32_t w = 0; w < worker; w++)
        rank += mst_bit(p->members, w);
    return rank;
}

static mst_work slice_work(mst_server *s, uint32_t worker, uint64_t step)
{
    mst_coordinator *co = s->co;
    plan(s, step);
    mst_planned *p = planned(co, step);
    if (step > co->n_planned || !mst_bit(p->members, worker))
        return (mst_work){.kind = MST_WORK_WAIT};
    return (mst_work){.kind = MST_WORK_SLICE,
                      .share = rank_of(p, worker),
                      .n_shares = p->n_members,
                      .step = step,
                      .epoch = p->slice.epoch,
                      .from = p->slice.from,
                      .to = p->slice.to};
}

/* ---- streams ---- */

/* A worker's part of a global batch: at least a row, or it would not find the end of its stream. */
static uint64_t stream_share(const mst_server *s, uint32_t worker)
{
    uint64_t rows = s->options.global_batch, n = s->options.n_workers;
    return rows < n ? s->options.batch : rows * (worker + 1) / n - rows * worker / n;
}

/* sync: a step's rows of the worker's own stream. */
static mst_work stream_step(mst_server *s, uint32_t worker, uint64_t step)
{
    mst_coordinator *co = s->co;
    mst_member *m = &co->members[worker];
    bool over = co->phase != MST_JOB_RUN || step > co->start.limit_steps ||
                m->epoch >= co->start.limit_epochs || co->progress.rows >= co->start.limit_rows;
    /* with backup workers a push is for the step after the weights it was computed on, as with leases */
    return (mst_work){.kind = over ? MST_WORK_STOP : MST_WORK_GRANT,
                      .step = mst_has_backups(s) ? 0 : step,
                      .epoch = m->epoch,
                      .to = stream_share(s, worker)};
}

/* async: how many rows of its own stream a worker may be granted now. */
static uint64_t grantable(const mst_server *s, uint32_t worker)
{
    const mst_coordinator *co = s->co;
    uint64_t steps = left_of(co->start.limit_steps, co->granted_steps),
             rows = least(lease_rows(s), left_of(co->start.limit_rows, co->granted_rows));
    if (steps < (rows + s->options.batch - 1) / s->options.batch)
        rows = steps * s->options.batch;
    const mst_member *m = &co->members[worker];
    return m->epoch < co->start.limit_epochs && !m->barren ? rows : 0;
}

static mst_work stream_grant(mst_server *s, uint32_t worker)
{
    mst_coordinator *co = s->co;
    mst_member *m = &co->members[worker];
    uint64_t rows = grantable(s, worker);
    if (rows == 0)
        return (mst_work){.kind = MST_WORK_WAIT};
    co->granted_rows += rows;
    co->granted_steps += (rows + s->options.batch - 1) / s->options.batch;
    m->granted += rows;
    return (mst_work){.kind = MST_WORK_GRANT, .epoch = m->epoch, .to = rows};
}

/* What a worker was granted and will not use. */
static void refund(mst_server *s, uint32_t worker)
{
    mst_coordinator *co = s->co;
    mst_member *m = &co->members[worker];
    co->granted_rows -= least(m->granted, co->granted_rows);
    co->granted_steps -= least((m->granted + s->options.batch - 1) / s->options.batch, co->granted_steps);
    m->granted = 0;
}

/* ---- sending ---- */

static mst_status send_work(mst_server *s, uint32_t worker, const mst_work *items, uint32_t n)
{
    uint8_t body[MST_WORK_SIZE * (MST_AHEAD + 1)];
    for (uint32_t i = 0; i < n; i++)
        mst_work_encode(&items[i], body + (size_t)i * MST_WORK_SIZE);
    mst_piece piece = {body, (size_t)n * MST_WORK_SIZE};
    mst_status st =
        mst_net_send(s->net, s->workers[worker].peer, &(mst_message){.type = MST_PS_WORK}, &piece, 1, NULL);
    return st == MST_ENOMEM ? st : MST_OK;
}

static mst_status give_lease(mst_server *s, uint32_t worker)
{
    mst_coordinator *co = s->co;
    mst_lease lease;
    bool got = false;
    if (co->phase == MST_JOB_RUN)
        TRY(mst_leases_take(co->leases, worker, &lease, &got));
    mst_work work = {.kind = MST_WORK_WAIT};
    if (got)
        work = (mst_work){.kind = MST_WORK_LEASE, .epoch = lease.epoch, .from = lease.from, .to = lease.to};
    if (got && co->members[worker].waits)
        mst_coordinator_catch_up(s, worker);
    co->members[worker].waits = !got && mst_leases_held(co->leases, worker) == 0;
    return send_work(s, worker, &work, 1);
}

static mst_status give_grant(mst_server *s, uint32_t worker)
{
    mst_work work = s->co->phase == MST_JOB_RUN ? stream_grant(s, worker) : (mst_work){.kind = MST_WORK_WAIT};
    if (work.kind == MST_WORK_GRANT && s->co->members[worker].waits)
        mst_coordinator_catch_up(s, worker);
    s->co->members[worker].waits = work.kind == MST_WORK_WAIT && s->co->members[worker].granted == 0;
    return send_work(s, worker, &work, 1);
}

/* Synchronous streams without backup workers are stepped like slices; everything else asks. */
static bool stepped(const mst_server *s)
{
    return mst_is_sync(s) && (s->co->sharding == MST_SHARDING_SLICES || streams(s->co));
}

static mst_work step_work(mst_server *s, uint32_t worker, uint64_t step)
{
    return s->co->sharding == MST_SHARDING_SLICES ? slice_work(s, worker, step)
                                                  : stream_step(s, worker, step);
}

mst_status mst_work_first(mst_server *s, uint32_t worker)
{
    if (!stepped(s))
        return streams(s->co) ? give_grant(s, worker) : give_lease(s, worker);
    mst_work items[MST_AHEAD];
    for (uint32_t i = 0; i < MST_AHEAD; i++)
        items[i] = step_work(s, worker, s->applied + 1 + i);
    return send_work(s, worker, items, MST_AHEAD);
}

bool mst_coordinator_trailer(mst_server *s, uint32_t worker, mst_work *out)
{
    if (!stepped(s))
        return false;
    *out = step_work(s, worker, s->applied + MST_AHEAD);
    return true;
}

/* Every worker has come to the end of its stream. Without a row in any, there would be no end of epochs. */
static mst_status any_rows(const mst_coordinator *co)
{
    return co->progress.rows > co->start.at.rows
               ? MST_OK
               : mst_fail(MST_EINPUT, "no worker has found any rows to train on");
}

mst_status mst_coordinator_epoch_over(mst_server *s)
{
    TRY(any_rows(s->co));
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        if (!s->workers[w].exhausted || !mst_alive(s->co, w))
            continue;
        s->co->members[w].epoch++;
        mst_work items[MST_AHEAD - 1]; /* the one after them goes with the answer */
        for (uint32_t i = 0; i < MST_AHEAD - 1; i++)
            items[i] = step_work(s, w, s->applied + 1 + i);
        TRY(send_work(s, w, items, MST_AHEAD - 1));
    }
    s->co->progress.epoch++;
    s->co->progress.position = 0;
    s->co->at_step = true;
    mst_status st = mst_coordinator_look(s);
    s->co->at_step = false;
    return st;
}

/* async: the epoch of the job is that of the worker furthest behind. */
static mst_status count_epochs(mst_server *s)
{
    mst_coordinator *co = s->co;
    uint64_t behind = UINT64_MAX;
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        if (mst_alive(co, w) && !co->members[w].barren && co->members[w].epoch < behind)
            behind = co->members[w].epoch;
    if (behind == UINT64_MAX)
        return any_rows(co);
    if (behind > co->progress.epoch) {
        co->progress.epoch = behind;
        co->progress.position = 0;
    }
    return MST_OK;
}

static mst_status end_stream(mst_server *s, uint32_t worker)
{
    mst_member *m = &s->co->members[worker];
    refund(s, worker);
    m->epoch++;
    m->barren = m->rows == m->rows_before;
    m->rows_before = m->rows;
    return count_epochs(s);
}

/* ---- what happens ---- */

mst_status mst_work_begin(mst_server *s)
{
    mst_coordinator *co = s->co;
    const mst_server_start *start = &co->start;
    json_t *plan = start->plan;
    uint64_t epoch_rows = co->progress.epoch_rows;
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        co->members[w].epoch = start->at.epoch;
    if (co->sharding == MST_SHARDING_SLICES) {
        co->slices = (mst_slices){.epoch_rows = epoch_rows,
                                  .batch = s->options.global_batch,
                                  .epochs = start->limit_epochs,
                                  .steps = start->limit_steps,
                                  .rows = start->limit_rows,
                                  .step = start->at.steps,
                                  .done_rows = start->at.rows,
                                  .epoch = start->at.epoch,
                                  .position = start->at.position};
        co->n_planned = start->at.steps;
        json_t *missed = json_object_get(plan, "missed"), *item;
        size_t i;
        json_array_foreach(missed, i, item)
        {
            json_int_t epoch, from, to;
            if (json_unpack(item, "[I, I, I]", &epoch, &from, &to) != 0 || from < 0 || to < from ||
                (uint64_t)to > epoch_rows)
                return mst_fail(MST_EINPUT, "the checkpoint's rows to make up for do not fit these data");
            TRY(mst_slices_miss(&co->slices, (uint64_t)epoch, (uint64_t)from, (uint64_t)to));
            co->slices.done_rows += (uint64_t)(to - from); /* they were never counted */
        }
        return MST_OK;
    }
    if (streams(co)) {
        co->granted_steps = start->at.steps;
        co->granted_rows = start->at.rows;
        return MST_OK;
    }
    mst_lease_options options = {.epoch_rows = epoch_rows,
                                 .batch = s->options.batch,
                                 .lease_rows = lease_rows(s),
                                 .segment_rows = s->options.shuffle_rows,
                                 .n_workers = s->options.n_workers,
                                 .epochs = start->limit_epochs,
                                 .steps = left_of(start->limit_steps, start->at.steps),
                                 .rows = left_of(start->limit_rows, start->at.rows)};
    json_t *leases = json_object_get(plan, "leases");
    return leases != NULL ? mst_leases_resume(&options, leases, &co->leases)
                          : mst_leases_new(&options, start->at.epoch, start->at.position, &co->leases);
}

mst_status mst_work_wanted(mst_server *s, uint32_t worker, const mst_message *m)
{
    mst_coordinator *co = s->co;
    if (!mst_alive(co, worker) || stepped(s))
        return mst_fail(MST_EPEER, "it asked for work that it is not due");
    if (streams(co) && m->flags & 1) /* the epoch of its stream is over */
        TRY(end_stream(s, worker));
    TRY(streams(co) ? give_grant(s, worker) : give_lease(s, worker));
    if (mst_has_backups(s)) /* which do not wait for one that has no rows */
        TRY(mst_server_try_close(s));
    return mst_coordinator_look(s);
}

mst_status mst_work_pushed(mst_server *s, uint32_t worker, uint64_t rows)
{
    mst_coordinator *co = s->co;
    mst_member *m = &co->members[worker];
    m->heard_ns = mst_now_ns();
    if (co->sharding == MST_SHARDING_LEASES) {
        co->repeats += mst_leases_done(co->leases, worker, rows);
        mst_leases_position(co->leases, &co->progress.epoch, &co->progress.position);
    } else if (streams(co)) {
        m->granted -= least(rows, m->granted);
        co->progress.position += rows;
    }
    return MST_OK;
}

/* Rows that a lost worker has left are still to be trained on after the step. */
static bool owes_rows(mst_coordinator *co, uint64_t step)
{
    bool owes = co->slices.n_missed > 0;
    while (!owes && step < co->n_planned)
        owes = planned(co, ++step)->again;
    return owes;
}

/* An epoch is over when its last row is trained on, and what was left on the way. */
void mst_work_closed(mst_server *s, uint64_t step)
{
    mst_coordinator *co = s->co;
    if (co->sharding != MST_SHARDING_SLICES)
        return;
    const mst_planned *p = planned(co, step);
    if (!p->again) {
        co->progress.epoch = p->slice.epoch;
        co->progress.position = p->slice.to;
    }
    if (co->progress.position == co->slices.epoch_rows && !owes_rows(co, step)) {
        co->progress.epoch++;
        co->progress.position = 0;
    }
}

mst_status mst_work_lost(mst_server *s, uint32_t worker, uint64_t first)
{
    mst_coordinator *co = s->co;
    uint64_t rows = 0;
    if (co->leases != NULL)
        TRY(mst_leases_return(co->leases, worker, &rows));
    else if (streams(co))
        refund(s, worker);
    for (uint64_t step = first; co->sharding == MST_SHARDING_SLICES && step <= co->n_planned; step++) {
        const mst_planned *p = planned(co, step);
        if (!mst_bit(p->members, worker))
            continue;
        mst_work share = {
            .from = p->slice.from, .to = p->slice.to, .share = rank_of(p, worker), .n_shares = p->n_members};
        uint64_t from, to;
        mst_work_share(&share, &from, &to);
        rows += to - from;
        TRY(mst_slices_miss(&co->slices, p->slice.epoch, from, to));
    }
    if (streams(co) && co->phase == MST_JOB_RUN)
        mst_warn("what worker %" PRIu32 " had left to read is not trained on: nobody else reads it", worker);
    if (rows > 0 && !mst_deserted(s))
        mst_info("%" PRIu64 " rows of worker %" PRIu32 " go to others", rows, worker);
    return MST_OK;
}

mst_status mst_work_take_back(mst_server *s, uint32_t worker)
{
    uint64_t rows;
    if (s->co->leases == NULL)
        return MST_OK;
    TRY(mst_leases_return(s->co->leases, worker, &rows));
    mst_warn("worker %" PRIu32 " does not move: %" PRIu64 " of its rows go to others", worker, rows);
    return MST_OK;
}

/* All planned steps have closed, and a worker that was lost on the way has left rows: workers, who wait, go
 * on. */
static mst_status resume_slices(mst_server *s)
{
    mst_coordinator *co = s->co;
    if (co->phase != MST_JOB_RUN || !co->no_more || s->applied != co->n_planned || co->slices.n_missed == 0)
        return MST_OK;
    co->no_more = false;
    plan(s, s->applied + 1);
    for (uint32_t w = 0; co->n_planned > s->applied && w < s->options.n_workers; w++)
        if (mst_alive(co, w))
            TRY(mst_work_first(s, w));
    if (co->n_planned == s->applied)
        co->slices.n_missed = 0; /* beyond the limits */
    return MST_OK;
}

mst_status mst_work_offer(mst_server *s)
{
    mst_coordinator *co = s->co;
    if (co->sharding == MST_SHARDING_SLICES)
        return resume_slices(s);
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        if (!mst_alive(co, w) || !co->members[w].waits || co->members[w].done || co->phase != MST_JOB_RUN)
            continue;
        if (co->leases != NULL && !mst_leases_dry(co->leases))
            TRY(give_lease(s, w));
        else if (streams(co) && !stepped(s) && grantable(s, w) > 0)
            TRY(give_grant(s, w));
    }
    return MST_OK;
}

bool mst_work_finished(const mst_server *s)
{
    const mst_coordinator *co = s->co;
    if (co->sharding == MST_SHARDING_SLICES)
        return co->no_more && s->applied == co->n_planned &&
               (co->phase != MST_JOB_RUN || co->slices.n_missed == 0);
    if (co->leases != NULL)
        return mst_leases_finished(co->leases);
    if (stepped(s))
        return s->applied >= co->start.limit_steps || co->progress.rows >= co->start.limit_rows;
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        if (mst_alive(co, w) && !co->members[w].waits)
            return false;
    return true;
}

json_t *mst_work_json(const mst_server *s)
{
    const mst_coordinator *co = s->co;
    if (co->leases != NULL)
        return json_pack("{s:o}", "leases", mst_leases_json(co->leases));
    json_t *missed = json_array();
    for (size_t i = 0; i < co->slices.n_missed; i++) {
        const mst_slice *m = &co->slices.missed[i];
        json_array_append_new(
            missed, json_pack("[I, I, I]", (json_int_t)m->epoch, (json_int_t)m->from, (json_int_t)m->to));
    }
    for (uint64_t step = s->applied + 1; co->sharding == MST_SHARDING_SLICES && step <= co->n_planned;
         step++) {
        const mst_planned *p = &co->planned[step % (MST_AHEAD + 2)];
        if (p->again)
            json_array_append_new(missed, json_pack("[I, I, I]", (json_int_t)p->slice.epoch,
                                                    (json_int_t)p->slice.from, (json_int_t)p->slice.to));
    }
    return json_pack("{s:o}", "missed", missed);
}

void mst_work_fini(mst_coordinator *co)
{
    mst_slices_fini(&co->slices);
    mst_leases_destroy(co->leases);
}
