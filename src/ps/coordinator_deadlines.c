/* Time limits; contract in coordinator_deadlines.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "ps/coordinator_impl.h"

#define EVALUATIONS 10  /* an evaluation may take so many times as long as the longest before it */
#define HURRY       0.3 /* shares of the time after a stop request: the others continue without workers that */
#define LAST        0.6 /* have not finished; the job ends without its last checkpoint */
#define SLOT        6   /* part of --start-timeout after which a live worker takes over an empty slot */

static void deadlines_drop(mst_server *s, uint32_t worker, const char *what, uint64_t limit_ns)
{
    char why[160];
    snprintf(why, sizeof why, "it has not %s within %.1f s", what, 1e-9 * (double)limit_ns);
    mst_server_refuse_worker(s, worker, why);
}

/* Workers that are connected and do not join. */
static void deadlines_check_joins(mst_server *s, uint64_t now)
{
    uint64_t limit = s->options.stall_timeout_ms * MST_MS;
    for (uint32_t w = 0; w < s->options.n_workers && !s->over; w++)
        if (s->workers[w].peer != MST_PEER_NONE && !s->co->members[w].joined &&
            now - s->workers[w].up_ns > limit)
            deadlines_drop(s, w, "joined", limit);
}

void mst_deadlines_chief_begins(mst_server *s)
{
    s->co->deadlines.chief_ns = mst_now_ns();
}

void mst_deadlines_chief_evaluated(mst_server *s)
{
    mst_job_deadlines *d = &s->co->deadlines;
    uint64_t took = mst_now_ns() - d->chief_ns;
    d->longest_ns = took > d->longest_ns ? took : d->longest_ns;
}

/* The chief opens its sets, or evaluates. */
static void deadlines_check_chief(mst_server *s, uint64_t now)
{
    const mst_coordinator *co = s->co;
    uint64_t stall = s->options.stall_timeout_ms * MST_MS, limit = EVALUATIONS * stall;
    bool opens = co->start.evaluates && co->cuts.n_listed < mst_roster_count(s);
    if (co->cuts.chief == UINT32_MAX || (!opens && !co->cuts.evaluating))
        return;
    if (!opens && co->deadlines.longest_ns > 0) {
        limit = EVALUATIONS * co->deadlines.longest_ns;
        limit = limit < stall ? stall : limit;
    }
    if (now - co->deadlines.chief_ns > limit)
        deadlines_drop(s, co->cuts.chief, opens ? "opened the sets to evaluate on" : "evaluated", limit);
}

/* Workers that have no more work and do not report their end. */
static void deadlines_check_ends(mst_server *s, uint64_t now)
{
    mst_coordinator *co = s->co;
    uint64_t limit = s->options.stall_timeout_ms * MST_MS, since = co->deadlines.end_ns;
    if (co->phase != MST_JOB_STOP)
        return;
    if (since == 0)
        since = co->deadlines.end_ns = now;
    since = since > co->pace.closed_ns ? since : co->pace.closed_ns;
    for (uint32_t w = 0; w < s->options.n_workers && !s->over && now - since > limit; w++)
        if (mst_alive(s, w) && !co->members[w].done)
            deadlines_drop(s, w, "reported its end", limit);
}

/* After a stop request nothing that a peer does or does not do delays the end. */
static void deadlines_check_stop(mst_server *s, uint64_t now)
{
    mst_coordinator *co = s->co;
    mst_job_deadlines *d = &co->deadlines;
    uint64_t grace = s->options.stop_grace_ms * MST_MS, hurry = (uint64_t)(HURRY * (double)grace);
    co->outcome.stopped |= s->options.stop != NULL && atomic_load(s->options.stop);
    if (!co->outcome.stopped && co->outcome.failure.code == MST_OK)
        return;
    if (d->stop_ns == 0)
        d->stop_ns = now;
    if (now - d->stop_ns > hurry && !d->hurried) {
        d->hurried = true;
        if (co->phase == MST_JOB_FINAL && (co->cuts.evaluating || co->cuts.eval_due))
            mst_warn("the last evaluation is left out: the worker that evaluates has not finished it");
        mst_cuts_abandon_evaluation(s);
        for (uint32_t w = 0; w < s->options.n_workers && !s->over; w++)
            if (mst_alive(s, w) && !co->members[w].done)
                deadlines_drop(s, w, "finished its requests", hurry);
    }
    if (s->over || now - d->stop_ns <= (uint64_t)(LAST * (double)grace))
        return;
    if (co->outcome.failure.code != MST_OK)
        mst_server_fail(s, mst_error_restore(&co->outcome.failure));
    else
        mst_server_fail(s, mst_fail_lead(MST_ESTOPPED, "stopped",
                                         "; the last checkpoint was not complete within %.1f s",
                                         LAST * 1e-9 * (double)grace));
}

/* Whether the job waits for a process to take the slot of the worker. */
static bool deadlines_slot_waits(const mst_server *s, uint32_t worker)
{
    const mst_coordinator *co = s->co;
    if (co->phase == MST_JOB_RUN)
        return mst_members_slot_empty(s, worker) && !co->members[worker].joined;
    return co->phase == MST_JOB_START && co->joins.again && !co->members[worker].joined;
}

/* The worker whose process is to run the slot too: the next one after that which was requested before;
 * UINT32_MAX: none. */
static uint32_t deadlines_slot_taker(const mst_server *s, uint32_t slot)
{
    const mst_job_member *members = s->co->members;
    uint32_t n = s->options.n_workers, from = members[slot].asked_ns != 0 ? members[slot].asked + 1 : 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t w = (from + i) % n;
        if (members[w].joined && !members[w].guest)
            return w;
    }
    return UINT32_MAX;
}

void mst_deadlines_check_slots(mst_server *s, uint64_t now)
{
    mst_coordinator *co = s->co;
    uint64_t patience = s->options.start_timeout_ms * MST_MS / SLOT;
    if (!mst_has_slots(s) || !mst_heals(s) || s->options.all_begin ||
        co->rows.sharding == MST_SHARDING_LOCAL) /* only its own process has its rows */
        return;
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        mst_job_member *m = &co->members[w];
        if (!deadlines_slot_waits(s, w)) {
            m->asked_ns = 0;
            continue;
        }
        uint64_t since = co->phase == MST_JOB_START ? co->joins.began_ns : m->lost_ns;
        since = m->asked_ns > since ? m->asked_ns : since;
        uint32_t taker = now - since > patience ? deadlines_slot_taker(s, w) : UINT32_MAX;
        if (taker == UINT32_MAX)
            continue;
        mst_warn("no process has taken the place of worker %" PRIu32 " within %.1f s; worker %" PRIu32
                 " takes over its share",
                 w, 1e-9 * (double)patience, taker);
        m->asked = taker;
        m->asked_ns = now;
        (void)mst_ps_send(s->net, s->workers[taker].peer, &(mst_message){.type = MST_PS_TAKE, .count = w});
    }
}

/* The worker without which the job waits; UINT32_MAX: none. */
static uint32_t deadlines_awaited(const mst_server *s)
{
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        if (mst_members_slot_empty(s, w))
            return w;
    return UINT32_MAX;
}

/* No worker can join a job whose processes all began with it. */
bool mst_deadlines_abandoned(mst_server *s)
{
    mst_coordinator *co = s->co;
    uint64_t now = mst_now_ns();
    uint32_t awaited = deadlines_awaited(s);
    bool none = mst_members_none_left(s);
    if (!none && awaited == UINT32_MAX) {
        co->outcome.alone_ns = 0;
        return false;
    }
    if (co->outcome.alone_ns == 0) {
        co->outcome.alone_ns = now;
        if (!s->options.all_begin && none && !mst_recover_awaits_workers(s))
            mst_warn("no worker is left; waiting up to %" PRIu32 " s for one to join",
                     s->options.start_timeout_ms / 1000);
    }
    co->outcome.absent = none ? UINT32_MAX : awaited;
    if (none && s->options.no_workers != NULL && atomic_load(s->options.no_workers))
        return true;
    return s->options.all_begin || now - co->outcome.alone_ns > s->options.start_timeout_ms * MST_MS;
}

/* ---- waiting for processes to join ---- */

static void deadlines_name_missing(const mst_server *s, char *out, size_t size)
{
    const mst_coordinator *co = s->co;
    size_t n = 0;
    unsigned named = 0, more = 0;
    uint32_t need = mst_is_sync(s) ? s->options.n_workers : mst_members_to_start(s);
    out[0] = 0;
    for (uint32_t i = 1; i < s->options.n_servers; i++)
        if (!co->joins.servers[i].joined && (named++ < 8 || !++more))
            n += (size_t)snprintf(out + n, size - n, "%sserver %" PRIu32 " at %.80s", n ? ", " : "", i,
                                  s->options.servers[i]);
    for (uint32_t w = 0; w < s->options.n_workers && (need > 1 || co->joins.first == NULL); w++)
        if (!co->members[w].joined && named++ < 8)
            n += (size_t)snprintf(out + n, size - n, "%sworker %" PRIu32, n ? ", " : "", w);
    if (named > 8)
        snprintf(out + n, size - n, " and %u more", named - 8);
    if (named == 0)
        snprintf(out, size, "servers to be ready");
}

void mst_deadlines_await(mst_server *s)
{
    mst_coordinator *co = s->co;
    char missing[sizeof co->joins.logged];
    uint64_t now = mst_now_ns(), waited = now - co->joins.began_ns;
    if (s->options.stop != NULL && atomic_load(s->options.stop)) {
        mst_server_fail(s, mst_fail_lead(MST_ESTOPPED, "stopped", " before training began"));
        return;
    }
    mst_deadlines_check_slots(s, now);
    deadlines_name_missing(s, missing, sizeof missing);
    if (waited > s->options.start_timeout_ms * MST_MS)
        mst_server_fail(s, mst_fail(MST_ETIMEOUT, "waited %" PRIu32 " s for %s",
                                    s->options.start_timeout_ms / 1000, missing));
    else if (waited > MST_S &&
             now - co->joins.notice_ns > (co->joins.notice_ns == co->joins.began_ns ? MST_S : 5 * MST_S)) {
        if (strcmp(co->joins.logged, missing) != 0)
            mst_info("waiting for %s", missing);
        snprintf(co->joins.logged, sizeof co->joins.logged, "%s", missing);
        co->joins.notice_ns = now;
    }
}

/* ---- all of them ---- */

void mst_deadlines_check(mst_server *s)
{
    uint64_t now = mst_now_ns();
    deadlines_check_stop(s, now);
    if (!s->over)
        deadlines_check_joins(s, now);
    if (!s->over)
        deadlines_check_chief(s, now);
    if (!s->over)
        deadlines_check_ends(s, now);
    if (!s->over)
        mst_deadlines_check_slots(s, now);
}
