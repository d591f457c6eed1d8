/* Communication beside computation; contract in worker_impl.h.
 *
 * While the training thread computes on a model that is large enough, the net and everything of the worker
 * that its events touch belong to a loop thread: it takes weights as they come, so that the forward pass
 * starts with the first layer's, and sends parts of the gradient as the backward pass finishes them. The
 * training thread hands the net over before it computes and takes it back afterwards; in between it only
 * reads weights that were announced, writes gradients that it has not announced, and touches what is named
 * here.
 *
 *   need   waits until the loop thread has announced the range's weights (here)
 *   ready  announces the range's gradient (final), and wakes the loop thread
 *
 * Invariants
 * 1. phase, under the lock, says whose the net is: RUN and END the loop thread's, IDLE the training thread's.
 * 2. here[i] is set, with release, after the last float of range i was received; final[i] after its last
 * float was computed. Neither goes back before the next batch.
 * 3. What the loop thread failed with is kept in `failure`; it then stops polling, and waits under way end.
 * 4. Parts leave in descending order of their floats: a range that is final waits for those behind it. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "observe/spans.h"
#include "ps/worker_impl.h"

#define LOOP_NS (200 * MST_MS) /* how long the loop thread polls at a time; it is woken for everything */

/* Waits a while for the other thread, under the lock. */
static void wait_moved(mst_worker_overlap *o, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / MST_S), .tv_nsec = (long)(until_ns % MST_S)};
    pthread_cond_timedwait(&o->moved, &o->lock, &until);
}

static bool is_set(const atomic_bool *flag)
{
    return atomic_load_explicit(flag, memory_order_acquire);
}

/* ---- the loop thread ---- */

/* Announces ranges whose weights have come. */
static void announce(mst_worker *self)
{
    mst_worker_overlap *o = &self->overlap;
    bool news = false;
    for (uint32_t i = 0; i < self->layout.n_ranges; i++) {
        if (is_set(&o->here[i]) ||
            !mst_client_has(self->client, o->slot, self->range_at[i], self->layout.ranges[i].size))
            continue;
        atomic_store_explicit(&o->here[i], true, memory_order_release);
        news = true;
    }
    if (!news)
        return;
    pthread_mutex_lock(&o->lock);
    pthread_cond_broadcast(&o->moved);
    pthread_mutex_unlock(&o->lock);
}

/* Sends what the backward pass has finished. */
static mst_status send_final(mst_worker *self)
{
    mst_worker_overlap *o = &self->overlap;
    uint32_t n = o->n_sent;
    while (n < self->layout.n_ranges && is_set(&o->final[o->order[n]]))
        n++;
    if (n == o->n_sent)
        return MST_OK;
    o->n_sent = n;
    return mst_client_push_early(self->client, o->slot, mst_worker_gradient_of(self, o->slot)->g,
                                 self->range_at[o->order[n - 1]]);
}

static bool runs(mst_worker_overlap *o)
{
    pthread_mutex_lock(&o->lock);
    bool run = o->phase == MST_OVERLAP_RUN;
    pthread_mutex_unlock(&o->lock);
    return run;
}

static void loop(mst_worker *self)
{
    mst_status st = MST_OK;
    announce(self);
    while (st == MST_OK && !self->ended && runs(&self->overlap)) {
        st = mst_worker_turn(self, mst_now_ns() + LOOP_NS);
        announce(self);
        if (st == MST_OK)
            st = send_final(self);
    }
    if (st != MST_OK)
        mst_error_save(&self->overlap.failure, st);
}

static void *loop_main(void *arg)
{
    mst_worker *self = arg;
    mst_worker_overlap *o = &self->overlap;
    pthread_mutex_lock(&o->lock);
    while (o->phase != MST_OVERLAP_QUIT) {
        if (o->phase != MST_OVERLAP_RUN) {
            wait_moved(o, mst_now_ns() + MST_S);
            continue;
        }
        pthread_mutex_unlock(&o->lock);
        loop(self);
        pthread_mutex_lock(&o->lock);
        o->phase = MST_OVERLAP_IDLE;
        pthread_cond_broadcast(&o->moved);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* ---- the step, on the threads that compute ---- */

static mst_status need(mst_step *step, uint32_t range)
{
    mst_worker *self = ((mst_overlap_step *)step)->worker;
    mst_worker_overlap *o = &self->overlap;
    if (is_set(&o->here[range]))
        return MST_OK;
    uint64_t start = mst_now_ns(), deadline = start + self->options.stall_timeout_ms * MST_MS;
    mst_phase before =
        mst_span_enter(self->job->mode == MST_MODE_SYNC ? MST_PHASE_BARRIER_WAIT : MST_PHASE_PULL_WAIT);
    pthread_mutex_lock(&o->lock);
    while (!is_set(&o->here[range]) && o->phase == MST_OVERLAP_RUN && mst_now_ns() < deadline)
        wait_moved(o, deadline);
    o->waited_ns += mst_now_ns() - start;
    pthread_mutex_unlock(&o->lock);
    mst_span_enter(before);
    mst_worker_trace_flight(self);
    if (is_set(&o->here[range]))
        return MST_OK;
    TRY(mst_worker_overlap_end(self));
    if (self->ended)
        return mst_fail(MST_ESTOPPED, "the coordinator has ended the job");
    return mst_client_wait(self->client, o->slot, mst_now_ns()); /* which names the server */
}

static mst_status ready(mst_step *step, uint32_t range)
{
    mst_worker *self = ((mst_overlap_step *)step)->worker;
    atomic_store_explicit(&self->overlap.final[range], true, memory_order_release);
    mst_net_wake(self->net);
    return MST_OK;
}

/* ---- from outside ---- */

/* Ranges by where they end, the last one first. */
static void order_ranges(mst_worker *self)
{
    mst_worker_overlap *o = &self->overlap;
    for (uint32_t i = 0; i < self->layout.n_ranges; i++) {
        uint32_t at = i;
        for (; at > 0 && self->range_at[o->order[at - 1]] < self->range_at[i]; at--)
            o->order[at] = o->order[at - 1];
        o->order[at] = i;
    }
}

mst_status mst_worker_overlap_init(mst_worker *self)
{
    mst_worker_overlap *o = &self->overlap;
    uint64_t most = 0;
    if (self->layout.width != 0 || self->job->dense_model || self->job->part_floats == 0)
        return MST_OK;
    for (uint32_t s = 0; s < self->table.n_servers; s++) {
        uint64_t floats = 0;
        for (uint32_t i = 0; i < self->table.n_partitions; i++)
            floats += self->table.partitions[i].server == s ? self->table.partitions[i].count : 0;
        most = floats > most ? floats : most;
    }
    o->part_floats = self->job->part_floats > MST_PART_MIN ? self->job->part_floats : MST_PART_MIN;
    if (most <= o->part_floats)
        return MST_OK;
    order_ranges(self);
    pthread_condattr_t attributes;
    bool made = pthread_mutex_init(&o->lock, NULL) == 0;
    if (!made || pthread_condattr_init(&attributes) != 0)
        return mst_fail_memory();
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    made = pthread_cond_init(&o->moved, &attributes) == 0;
    pthread_condattr_destroy(&attributes);
    if (!made || pthread_create(&o->thread, NULL, loop_main, self) != 0)
        return mst_fail(MST_EIO, "cannot start the thread that sends while another computes");
    o->on = true;
    return MST_OK;
}

void mst_worker_overlap_fini(mst_worker *self)
{
    mst_worker_overlap *o = &self->overlap;
    if (!o->on)
        return;
    pthread_mutex_lock(&o->lock);
    o->phase = MST_OVERLAP_QUIT;
    pthread_cond_broadcast(&o->moved);
    pthread_mutex_unlock(&o->lock);
    pthread_join(o->thread, NULL);
    pthread_cond_destroy(&o->moved);
    pthread_mutex_destroy(&o->lock);
    o->on = false;
}

void mst_worker_overlap_begin(mst_worker *self, uint32_t slot, mst_overlap_step *step)
{
    mst_worker_overlap *o = &self->overlap;
    step->worker = self;
    step->step.need = need;
    o->slot = slot;
    o->n_sent = 0;
    o->waited_ns = 0;
    o->failure.code = MST_OK;
    for (uint32_t i = 0; i < self->layout.n_ranges; i++) {
        atomic_store_explicit(&o->here[i], false, memory_order_relaxed);
        atomic_store_explicit(&o->final[i], false, memory_order_relaxed);
    }
    pthread_mutex_lock(&o->lock);
    o->phase = MST_OVERLAP_RUN;
    pthread_cond_broadcast(&o->moved);
    pthread_mutex_unlock(&o->lock);
}

void mst_worker_overlap_last(mst_overlap_step *step)
{
    step->step.ready = ready;
}

mst_status mst_worker_overlap_end(mst_worker *self)
{
    mst_worker_overlap *o = &self->overlap;
    pthread_mutex_lock(&o->lock);
    if (o->phase == MST_OVERLAP_RUN) {
        o->phase = MST_OVERLAP_END;
        mst_net_wake(self->net);
        pthread_cond_broadcast(&o->moved);
    }
    while (o->phase != MST_OVERLAP_IDLE) /* the loop thread never polls for longer than that */
        wait_moved(o, mst_now_ns() + LOOP_NS);
    pthread_mutex_unlock(&o->lock);
    return o->failure.code == MST_OK ? MST_OK : mst_error_restore(&o->failure);
}
