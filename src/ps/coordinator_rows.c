/* Rows of workers; contract in coordinator_rows.h. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/figure.h"
#include "base/log.h"
#include "ps/coordinator_impl.h"

#define LEASE_BATCHES 16 /* at most */
#define LEASE_ROWS    64 /* or so many rows, if these are more */
#define LEASES_HELD   8  /* of one worker, at most */

const char *const mst_sharding_names[] = {
    [MST_SHARDING_SLICES] = "slices",
    [MST_SHARDING_LEASES] = "leases",
    [MST_SHARDING_STATIC] = "static",
    [MST_SHARDING_LOCAL] = "local",
};

static bool rows_streams(const mst_coordinator *co)
{
    return co->rows.sharding == MST_SHARDING_STATIC || co->rows.sharding == MST_SHARDING_LOCAL;
}

bool mst_rows_are_streams(const mst_server *s)
{
    return rows_streams(s->co);
}

static uint64_t rows_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t rows_lease_rows(const mst_server *s)
{
    uint64_t rows = (uint64_t)s->options.batch * LEASE_BATCHES;
    return rows < LEASE_ROWS ? LEASE_ROWS : rows;
}

/* The workers that share the rows that are left: those that take part, and those of a job that has just begun
 * that have not joined yet. */
static uint32_t rows_sharing(const mst_server *s)
{
    uint32_t n = 0;
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        const mst_job_member *m = &s->co->members[w];
        n += m->welcomed ? !m->done : m->n_joins == 0 && !s->options.elastic;
    }
    return n > 0 ? n : 1;
}

static uint64_t rows_left_of(uint64_t limit, uint64_t done)
{
    return limit == UINT64_MAX ? UINT64_MAX : limit > done ? limit - done : 0;
}

mst_status mst_rows_choose(mst_server *s, const json_t *join)
{
    mst_coordinator *co = s->co;
    const json_t *data = json_object_get(join, "data");
    bool random = json_is_true(json_object_get(data, "random"));
    json_int_t rows = json_integer_value(json_object_get(data, "rows"));
    co->rows.sharding = !mst_is_sync(s) || mst_has_quorum(s) ? MST_SHARDING_LEASES : MST_SHARDING_SLICES;
    if (s->options.shard == MST_SHARD_LOCAL)
        co->rows.sharding = MST_SHARDING_LOCAL;
    else if (s->options.shard == MST_SHARD_STATIC || !random)
        co->rows.sharding = MST_SHARDING_STATIC;
    if (s->options.replicas && mst_is_sync(s) && rows_streams(co))
        return mst_fail(MST_EUSAGE,
                        "--replicas 1 in --mode sync needs rows that all workers can read, but the "
                        "training data is a stream; use --cache");
    bool known = co->rows.sharding == MST_SHARDING_SLICES || co->rows.sharding == MST_SHARDING_LEASES;
    if (known && rows <= 0)
        return mst_fail(MST_EINPUT, "the training data has no rows");
    co->progress.epoch_rows = known ? (uint64_t)rows : 0;
    return MST_OK;
}

/* ---- slices ---- */

static mst_lease *rows_planned(mst_coordinator *co, uint64_t step)
{
    return &co->rows.planned[step % (MST_AHEAD + 2)];
}

/* Plans steps up to the given one. */
static void rows_plan(mst_server *s, uint64_t step)
{
    mst_coordinator *co = s->co;
    while (co->rows.n_planned < step && !co->rows.no_more) {
        mst_lease slice;
        bool got = false;
        mst_status st = co->phase == MST_JOB_RUN ? mst_leases_take(co->rows.slices, 0, &slice, &got) : MST_OK;
        if (st != MST_OK)
            mst_server_fail(s, st);
        if (!got) {
            co->rows.no_more = true;
            return;
        }
        *rows_planned(co, ++co->rows.n_planned) = slice;
    }
}

static mst_work rows_slice_work(mst_server *s, uint32_t worker, uint64_t step)
{
    mst_coordinator *co = s->co;
    rows_plan(s, step);
    const mst_lease *p = rows_planned(co, step);
    if (step > co->rows.n_planned)
        return (mst_work){.kind = MST_WORK_WAIT};
    return (mst_work){.kind = MST_WORK_SLICE,
                      .share = worker,
                      .n_shares = s->options.n_workers,
                      .step = step,
                      .epoch = p->epoch,
                      .from = p->from,
                      .to = p->to};
}

/* ---- streams ---- */

/* A worker's share of a global batch: at least one row, or it would not reach the end of its stream. */
static uint64_t rows_stream_share(const mst_server *s, uint32_t worker)
{
    uint64_t rows = s->options.global_batch, n = s->options.n_workers;
    return rows < n ? s->options.batch : rows * (worker + 1) / n - rows * worker / n;
}

/* sync: a step's rows of the worker's own stream. */
static mst_work rows_stream_step(mst_server *s, uint32_t worker, uint64_t step)
{
    mst_coordinator *co = s->co;
    mst_job_member *m = &co->members[worker];
    bool over = co->phase != MST_JOB_RUN || step > co->start.limit_steps ||
                m->epoch >= co->start.limit_epochs || mst_rows_at_limit(s);
    /* with a quorum a push is for the step after the version it was computed on, as with leases */
    return (mst_work){.kind = over ? MST_WORK_STOP : MST_WORK_GRANT,
                      .step = mst_has_quorum(s) ? 0 : step,
                      .epoch = m->epoch,
                      .to = rows_stream_share(s, worker)};
}

/* async: how many rows of its own stream a worker may be granted now. */
static uint64_t rows_grantable(const mst_server *s, uint32_t worker)
{
    const mst_coordinator *co = s->co;
    uint64_t steps = rows_left_of(co->start.limit_steps, co->rows.granted_steps),
             left = rows_left_of(co->start.limit_rows, co->rows.granted_rows),
             most = steps < UINT64_MAX / s->options.batch ? steps * s->options.batch : UINT64_MAX,
             rows = mst_lease_rows(rows_least(left, most), rows_sharing(s), s->options.batch,
                                   rows_lease_rows(s));
    rows = rows_least(rows, rows_least(left, most));
    const mst_job_member *m = &co->members[worker];
    return m->epoch < co->start.limit_epochs && !m->no_rows_in_epoch ? rows : 0;
}

static mst_work rows_stream_grant(mst_server *s, uint32_t worker)
{
    mst_coordinator *co = s->co;
    mst_job_member *m = &co->members[worker];
    uint64_t rows = rows_grantable(s, worker);
    if (rows == 0)
        return (mst_work){.kind = MST_WORK_WAIT};
    co->rows.granted_rows += rows;
    co->rows.granted_steps += (rows + s->options.batch - 1) / s->options.batch;
    m->granted += rows;
    return (mst_work){.kind = MST_WORK_GRANT, .epoch = m->epoch, .to = rows};
}

/* Takes back the grant that a worker does not use. */
static void rows_refund(mst_server *s, uint32_t worker)
{
    mst_coordinator *co = s->co;
    mst_job_member *m = &co->members[worker];
    co->rows.granted_rows -= rows_least(m->granted, co->rows.granted_rows);
    co->rows.granted_steps -=
        rows_least((m->granted + s->options.batch - 1) / s->options.batch, co->rows.granted_steps);
    m->granted = 0;
}

/* ---- sending ---- */

static mst_status rows_send_work(mst_server *s, uint32_t worker, const mst_work *items, uint32_t n)
{
    uint8_t body[MST_WORK_SIZE * (MST_AHEAD + 1)];
    for (uint32_t i = 0; i < n; i++)
        mst_work_encode(&items[i], body + (size_t)i * MST_WORK_SIZE);
    mst_piece piece = {body, (size_t)n * MST_WORK_SIZE};
    mst_status st =
        mst_net_send(s->net, s->workers[worker].peer, &(mst_message){.type = MST_PS_WORK}, &piece, 1, NULL);
    return st == MST_ENOMEM ? st : MST_OK;
}

static mst_status rows_give_lease(mst_server *s, uint32_t worker)
{
    mst_coordinator *co = s->co;
    mst_lease lease;
    bool got = false;
    if (co->phase == MST_JOB_RUN) {
        mst_leases_divide(co->rows.leases, rows_sharing(s));
        TRY(mst_leases_take(co->rows.leases, worker, &lease, &got));
    }
    mst_work work = {.kind = MST_WORK_WAIT};
    if (got)
        work = (mst_work){.kind = MST_WORK_LEASE, .epoch = lease.epoch, .from = lease.from, .to = lease.to};
    if (got && co->members[worker].idle)
        mst_pace_catch_up(s, worker);
    co->members[worker].idle = !got && mst_leases_held(co->rows.leases, worker) == 0;
    return rows_send_work(s, worker, &work, 1);
}

static mst_status rows_give_grant(mst_server *s, uint32_t worker)
{
    mst_work work =
        s->co->phase == MST_JOB_RUN ? rows_stream_grant(s, worker) : (mst_work){.kind = MST_WORK_WAIT};
    if (work.kind == MST_WORK_GRANT && s->co->members[worker].idle)
        mst_pace_catch_up(s, worker);
    s->co->members[worker].idle = work.kind == MST_WORK_WAIT && s->co->members[worker].granted == 0;
    return rows_send_work(s, worker, &work, 1);
}

/* Synchronous slices and streams come step by step; other work comes on request. */
static bool rows_stepped(const mst_server *s)
{
    return mst_is_sync(s) && (s->co->rows.sharding == MST_SHARDING_SLICES || rows_streams(s->co));
}

static mst_work rows_step_work(mst_server *s, uint32_t worker, uint64_t step)
{
    return s->co->rows.sharding == MST_SHARDING_SLICES ? rows_slice_work(s, worker, step)
                                                       : rows_stream_step(s, worker, step);
}

mst_status mst_rows_first(mst_server *s, uint32_t worker)
{
    if (!rows_stepped(s))
        return rows_streams(s->co) ? rows_give_grant(s, worker) : rows_give_lease(s, worker);
    mst_work items[MST_AHEAD];
    uint64_t first = mst_has_slots(s) ? s->co->members[worker].first_step : s->steps.applied + 1;
    for (uint32_t i = 0; i < MST_AHEAD; i++)
        items[i] = rows_step_work(s, worker, first + i);
    return rows_send_work(s, worker, items, MST_AHEAD);
}

bool mst_rows_trailer(mst_server *s, uint32_t worker, mst_work *out)
{
    if (!rows_stepped(s))
        return false;
    *out = rows_step_work(s, worker, s->steps.applied + MST_AHEAD);
    return true;
}

/* ---- epochs of streams ---- */

/* Fails if no worker has rows, because the epoch could never end. */
static mst_status rows_check_any(const mst_coordinator *co)
{
    return co->progress.rows > co->start.at.rows ? MST_OK
                                                 : mst_fail(MST_EINPUT, "no worker has any rows to train on");
}

mst_status mst_rows_epoch_over(mst_server *s)
{
    TRY(rows_check_any(s->co));
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        if (!s->workers[w].exhausted || !mst_alive(s, w))
            continue;
        s->co->members[w].epoch++;
        s->co->members[w].stream_from = 0;
        s->co->members[w].rows_before = s->co->members[w].rows;
        mst_work items[MST_AHEAD - 1]; /* the next one goes with the answer */
        for (uint32_t i = 0; i < MST_AHEAD - 1; i++)
            items[i] = rows_step_work(s, w, s->steps.applied + 1 + i);
        TRY(rows_send_work(s, w, items, MST_AHEAD - 1));
    }
    s->co->progress.epoch++;
    s->co->progress.position = 0;
    return mst_coordinator_advance_at_step(s);
}

/* async: the epoch of the job is that of the worker furthest behind. */
static mst_status rows_count_epochs(mst_server *s)
{
    mst_coordinator *co = s->co;
    uint64_t behind = UINT64_MAX;
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        if (mst_alive(s, w) && !co->members[w].no_rows_in_epoch && co->members[w].epoch < behind)
            behind = co->members[w].epoch;
    if (behind == UINT64_MAX)
        return rows_check_any(co);
    if (behind > co->progress.epoch) {
        co->progress.epoch = behind;
        co->progress.position = 0;
    }
    return MST_OK;
}

static mst_status rows_end_stream(mst_server *s, uint32_t worker)
{
    mst_job_member *m = &s->co->members[worker];
    rows_refund(s, worker);
    m->epoch++;
    m->no_rows_in_epoch = m->rows == m->rows_before;
    m->rows_before = m->rows;
    return rows_count_epochs(s);
}

/* ---- the plan ---- */

mst_status mst_rows_begin(mst_server *s)
{
    mst_coordinator *co = s->co;
    const mst_server_start *start = &co->start;
    json_t *plan = start->plan;
    uint64_t epoch_rows = co->progress.epoch_rows;
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        co->members[w].epoch = start->at.epoch;
    if (rows_streams(co)) {
        json_t *streams = json_object_get(plan, "streams");
        bool same = mst_has_slots(s) && json_array_size(streams) == s->options.n_workers;
        for (uint32_t w = 0; same && w < s->options.n_workers; w++) {
            json_int_t from = json_integer_value(json_array_get(streams, w));
            co->members[w].stream_from = from > 0 ? (uint64_t)from : 0;
        }
        co->rows.granted_steps = start->at.steps;
        co->rows.granted_rows = start->at.rows;
        return MST_OK;
    }
    bool slices = co->rows.sharding == MST_SHARDING_SLICES;
    uint32_t batch = slices ? s->options.global_batch : s->options.batch;
    mst_lease_options options = {.epoch_rows = epoch_rows,
                                 .batch = batch,
                                 .lease_rows = slices ? batch : rows_lease_rows(s),
                                 .segment_rows = slices ? batch : s->options.shuffle_rows,
                                 .n_workers = slices ? 1 : s->options.n_workers,
                                 .epochs = start->limit_epochs,
                                 .steps = UINT64_MAX,
                                 .rows = UINT64_MAX};
    if (!mst_has_quorum(s)) { /* which drops some batches: mst_rows_at_limit ends the job */
        options.steps = rows_left_of(start->limit_steps, start->at.steps);
        options.rows = rows_left_of(start->limit_rows, start->at.rows);
    }
    mst_leases **out = slices ? &co->rows.slices : &co->rows.leases;
    json_t *leases = json_object_get(plan, "leases");
    co->rows.n_planned = start->at.steps;
    co->rows.scattered = leases != NULL;
    return leases != NULL ? mst_leases_resume(&options, leases, out)
                          : mst_leases_new(&options, start->at.epoch, start->at.position, out);
}

mst_status mst_rows_wanted(mst_server *s, uint32_t worker, const mst_message *m)
{
    mst_coordinator *co = s->co;
    if (!mst_alive(s, worker) || rows_stepped(s))
        return mst_fail(MST_EPEER, "it sent WANT, but its work is not assigned on request");
    if (!mst_answer_has_room(s, worker, MST_WORK_SIZE))
        return MST_OK;
    if (co->rows.leases != NULL &&
        mst_leases_held(co->rows.leases, worker) > LEASES_HELD * rows_lease_rows(s))
        return mst_fail(MST_EPEER, "it requests rows and has %" PRIu64 " that it has not trained on",
                        mst_leases_held(co->rows.leases, worker));
    if (rows_streams(co) && m->flags & MST_WANT_EPOCH_ENDED)
        TRY(rows_end_stream(s, worker));
    TRY(rows_streams(co) ? rows_give_grant(s, worker) : rows_give_lease(s, worker));
    if (mst_has_quorum(s)) /* which does not count a worker without rows */
        TRY(mst_steps_try_close(s));
    return mst_coordinator_advance(s);
}

void mst_rows_pushed(mst_server *s, uint32_t worker, uint64_t rows)
{
    mst_coordinator *co = s->co;
    mst_job_member *m = &co->members[worker];
    m->pushed_ns = mst_now_ns();
    if (co->rows.sharding == MST_SHARDING_LEASES) {
        co->rows.repeats += mst_leases_done(co->rows.leases, worker, rows);
        mst_leases_position(co->rows.leases, &co->progress.epoch, &co->progress.position);
    } else if (rows_streams(co)) {
        m->granted -= rows_least(rows, m->granted);
        co->progress.position += rows;
    }
}

void mst_rows_closed(mst_server *s, uint64_t step)
{
    mst_coordinator *co = s->co;
    if (co->rows.sharding != MST_SHARDING_SLICES)
        return;
    const mst_lease *p = rows_planned(co, step);
    mst_leases_done(co->rows.slices, 0, p->to - p->from);
    mst_leases_position(co->rows.slices, &co->progress.epoch, &co->progress.position);
}

mst_status mst_rows_return(mst_server *s, uint32_t worker)
{
    uint64_t rows;
    if (s->co->rows.leases != NULL) { /* of its last pushes, parts may be on their way to servers */
        TRY(mst_leases_redo(s->co->rows.leases, worker, s->options.n_requests - 1, &rows));
        s->co->rows.repeats += rows;
        return mst_leases_return(s->co->rows.leases, worker, &rows);
    }
    if (rows_streams(s->co))
        rows_refund(s, worker);
    return MST_OK;
}

mst_status mst_rows_lost(mst_server *s, uint32_t worker)
{
    mst_coordinator *co = s->co;
    char count[MST_FIGURE_SIZE];
    uint64_t rows = 0;
    if (co->rows.leases != NULL)
        TRY(mst_leases_return(co->rows.leases, worker, &rows));
    else if (rows_streams(co))
        rows_refund(s, worker);
    if (rows_streams(co) && co->phase == MST_JOB_RUN)
        mst_warn("worker %" PRIu32
                 " has left rows unread that no other worker reads; they are not trained on",
                 worker);
    if (rows > 0 && !mst_members_none_left(s) && !mst_recover_awaits_workers(s))
        mst_info("%s rows of worker %" PRIu32 " go to other workers", mst_figure_grouped(rows, count),
                 worker);
    return MST_OK;
}

bool mst_rows_overdue(const mst_server *s, uint32_t worker, uint64_t silent_ns)
{
    const mst_leases *leases = s->co->rows.leases;
    return leases != NULL && mst_leases_overdue(leases, worker, silent_ns);
}

mst_status mst_rows_take_back(mst_server *s, uint32_t worker)
{
    char count[MST_FIGURE_SIZE];
    uint64_t rows;
    TRY(mst_leases_return(s->co->rows.leases, worker, &rows));
    mst_warn("worker %" PRIu32 " makes no progress; %s of its rows go to other workers", worker,
             mst_figure_grouped(rows, count));
    return MST_OK;
}

mst_status mst_rows_offer(mst_server *s)
{
    mst_coordinator *co = s->co;
    if (co->rows.sharding == MST_SHARDING_SLICES)
        return MST_OK;
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        if (!mst_alive(s, w) || !co->members[w].idle || co->members[w].done || co->phase != MST_JOB_RUN)
            continue;
        if (co->rows.leases != NULL && !mst_leases_dry(co->rows.leases))
            TRY(rows_give_lease(s, w));
        else if (rows_streams(co) && !rows_stepped(s) && rows_grantable(s, w) > 0)
            TRY(rows_give_grant(s, w));
    }
    return MST_OK;
}

mst_status mst_rows_end_slices(mst_server *s, uint32_t flags)
{
    mst_coordinator *co = s->co;
    co->phase = MST_JOB_STOP;
    co->rows.sharding = MST_SHARDING_LEASES; /* there are none: no more steps are planned */
    return mst_coordinator_send_stop(s, flags);
}

bool mst_rows_at_limit(const mst_server *s)
{
    const mst_coordinator *co = s->co;
    return s->steps.applied >= co->start.limit_steps || co->progress.rows >= co->start.limit_rows;
}

bool mst_rows_finished(const mst_server *s)
{
    const mst_coordinator *co = s->co;
    if (co->rows.sharding == MST_SHARDING_SLICES)
        return co->rows.no_more && s->steps.applied == co->rows.n_planned;
    if (co->rows.leases != NULL)
        return mst_leases_finished(co->rows.leases) || (mst_has_quorum(s) && mst_rows_at_limit(s));
    if (rows_stepped(s))
        return mst_rows_at_limit(s);
    uint32_t idle = 0;
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        if (mst_alive(s, w) && !co->members[w].idle)
            return false;
        idle += mst_alive(s, w);
    }
    return idle > 0;
}

/* sync: the rows of their epochs that the workers have trained on. New reference or NULL. */
static json_t *rows_streams_json(const mst_server *s)
{
    json_t *streams = json_array();
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        const mst_job_member *m = &s->co->members[w];
        json_array_append_new(streams, json_integer((json_int_t)(m->stream_from + m->rows - m->rows_before)));
    }
    return streams;
}

json_t *mst_rows_json(const mst_server *s)
{
    const mst_coordinator *co = s->co;
    const mst_leases *left = co->rows.scattered ? co->rows.slices : NULL; /* others are at a position */
    left = co->rows.leases != NULL ? co->rows.leases : left;
    if (left == NULL && rows_streams(co) && mst_has_slots(s))
        return json_pack("{s:o}", "streams", rows_streams_json(s));
    return left != NULL ? json_pack("{s:o}", "leases", mst_leases_json(left)) : json_object();
}

void mst_rows_fini(mst_job_rows *self)
{
    mst_leases_destroy(self->leases);
    mst_leases_destroy(self->slices);
}
