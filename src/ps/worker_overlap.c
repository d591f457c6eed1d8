/* Communication while a worker computes; contract in worker_overlap.h.
 *
 * Invariants
 * 1. phase, under the lock, states the owner of the net: the loop thread in RUN and END, the training thread
 * in IDLE.
 * 2. here[i] is set, with release, after the last float of range i was received; final[i] after its last
 * float was computed. Neither is cleared before the next batch.
 * 3. A failure of the loop thread is kept in `failure`; the thread then stops polling, and waits end.
 * 4. Parts leave in descending order of their floats: a range that is final waits for the ranges behind it.
 */
#include "ps/worker_overlap.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/cond.h"
#include "observe/spans.h"
#include "observe/trace_file.h"

#define LOOP_NS (200 * MST_MS) /* the longest poll of the loop thread, which is woken for every change */

/* Waits for the other thread, under the lock. */
static void overlap_wait(mst_worker_overlap *self, uint64_t until_ns)
{
    mst_cond_wait(&self->moved, &self->lock, until_ns);
}

static bool overlap_is_set(const atomic_bool *flag)
{
    return atomic_load_explicit(flag, memory_order_acquire);
}

/* ---- the loop thread ---- */

/* Announces ranges whose weights have arrived. */
static void overlap_announce(mst_worker_overlap *self)
{
    bool news = false;
    for (uint32_t i = 0; i < self->gradient->layout.n_ranges; i++) {
        if (overlap_is_set(&self->here[i]) ||
            !mst_client_has(self->gradient->client, self->request, self->gradient->range_at[i],
                            self->gradient->layout.ranges[i].size))
            continue;
        atomic_store_explicit(&self->here[i], true, memory_order_release);
        news = true;
    }
    if (!news)
        return;
    pthread_mutex_lock(&self->lock);
    pthread_cond_broadcast(&self->moved);
    pthread_mutex_unlock(&self->lock);
}

/* Sends the ranges that the backward pass has finished. */
static mst_status overlap_send_final(mst_worker_overlap *self)
{
    uint32_t n = self->n_sent;
    while (n < self->gradient->layout.n_ranges && overlap_is_set(&self->final[self->order[n]]))
        n++;
    if (n == self->n_sent)
        return MST_OK;
    self->n_sent = n;
    return mst_client_push_early(self->gradient->client, self->request,
                                 mst_worker_gradient_of(self->gradient, self->request),
                                 self->gradient->range_at[self->order[n - 1]]);
}

static bool overlap_runs(mst_worker_overlap *self)
{
    pthread_mutex_lock(&self->lock);
    bool run = self->phase == MST_OVERLAP_RUN;
    pthread_mutex_unlock(&self->lock);
    return run;
}

static void overlap_loop(mst_worker_overlap *self)
{
    mst_status st = MST_OK;
    overlap_announce(self);
    while (st == MST_OK && !self->link->ended && overlap_runs(self)) {
        st = mst_worker_link_poll(self->link, mst_now_ns() + LOOP_NS);
        overlap_announce(self);
        if (st == MST_OK)
            st = overlap_send_final(self);
    }
    if (st != MST_OK)
        mst_error_save(&self->failure, st);
}

static void *overlap_main(void *arg)
{
    mst_worker_overlap *self = arg;
    pthread_mutex_lock(&self->lock);
    while (self->phase != MST_OVERLAP_QUIT) {
        if (self->phase != MST_OVERLAP_RUN) {
            overlap_wait(self, mst_now_ns() + MST_S);
            continue;
        }
        pthread_mutex_unlock(&self->lock);
        overlap_loop(self);
        pthread_mutex_lock(&self->lock);
        self->phase = MST_OVERLAP_IDLE;
        pthread_cond_broadcast(&self->moved);
    }
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

/* ---- the step, on the threads that compute ---- */

static mst_status overlap_need(mst_step *step, uint32_t range)
{
    mst_worker_overlap *self = ((mst_overlap_step *)step)->overlap;
    if (overlap_is_set(&self->here[range]))
        return MST_OK;
    uint64_t start = mst_now_ns(), deadline = start + self->stall_timeout_ms * MST_MS;
    mst_phase before = mst_span_enter(self->gradient->job->mode == MST_MODE_SYNC ? MST_PHASE_BARRIER_WAIT
                                                                                 : MST_PHASE_PULL_WAIT);
    pthread_mutex_lock(&self->lock);
    while (!overlap_is_set(&self->here[range]) && self->phase == MST_OVERLAP_RUN && mst_now_ns() < deadline)
        overlap_wait(self, deadline);
    self->waited_ns += mst_now_ns() - start;
    pthread_mutex_unlock(&self->lock);
    mst_span_enter(before);
    if (mst_tracing())
        mst_trace_counter(MST_TRACE_FLIGHT, mst_client_in_flight(self->gradient->client));
    if (overlap_is_set(&self->here[range]))
        return MST_OK;
    TRY(mst_worker_overlap_end(self));
    if (self->link->ended)
        return mst_fail(MST_ESTOPPED, "the coordinator has ended the job");
    return mst_client_wait(self->gradient->client, self->request, mst_now_ns()); /* names the server */
}

static mst_status overlap_ready(mst_step *step, uint32_t range)
{
    mst_worker_overlap *self = ((mst_overlap_step *)step)->overlap;
    atomic_store_explicit(&self->final[range], true, memory_order_release);
    mst_net_wake(self->link->net);
    return MST_OK;
}

/* ---- from outside ---- */

/* Sorts the ranges by position, the last one first. */
static void overlap_order_ranges(mst_worker_overlap *self)
{
    for (uint32_t i = 0; i < self->gradient->layout.n_ranges; i++) {
        uint32_t at = i;
        for (; at > 0 && self->gradient->range_at[self->order[at - 1]] < self->gradient->range_at[i]; at--)
            self->order[at] = self->order[at - 1];
        self->order[at] = i;
    }
}

mst_status mst_worker_overlap_init(mst_worker_overlap *self, const mst_placement *table)
{
    uint64_t most = 0;
    if (self->gradient->layout.width != 0 || self->gradient->job->dense_model ||
        self->gradient->job->part_floats == 0)
        return MST_OK;
    for (uint32_t s = 0; s < table->n_servers; s++) {
        uint64_t floats = 0;
        for (uint32_t i = 0; i < table->n_partitions; i++)
            floats += table->partitions[i].server == s ? table->partitions[i].count : 0;
        most = floats > most ? floats : most;
    }
    self->part_floats =
        self->gradient->job->part_floats > MST_PART_MIN ? self->gradient->job->part_floats : MST_PART_MIN;
    if (most <= self->part_floats)
        return MST_OK;
    overlap_order_ranges(self);
    pthread_mutex_init(&self->lock, NULL);
    mst_cond_init(&self->moved);
    if (pthread_create(&self->thread, NULL, overlap_main, self) != 0)
        return mst_fail(MST_EIO, "cannot start the thread that communicates while the worker computes");
    self->on = true;
    return MST_OK;
}

void mst_worker_overlap_fini(mst_worker_overlap *self)
{
    if (!self->on)
        return;
    pthread_mutex_lock(&self->lock);
    self->phase = MST_OVERLAP_QUIT;
    pthread_cond_broadcast(&self->moved);
    pthread_mutex_unlock(&self->lock);
    pthread_join(self->thread, NULL);
    pthread_cond_destroy(&self->moved);
    pthread_mutex_destroy(&self->lock);
    self->on = false;
}

void mst_worker_overlap_begin(mst_worker_overlap *self, uint32_t request, mst_overlap_step *step)
{
    step->overlap = self;
    step->step.need = overlap_need;
    self->request = request;
    self->n_sent = 0;
    self->waited_ns = 0;
    self->failure.code = MST_OK;
    for (uint32_t i = 0; i < self->gradient->layout.n_ranges; i++) {
        atomic_store_explicit(&self->here[i], false, memory_order_relaxed);
        atomic_store_explicit(&self->final[i], false, memory_order_relaxed);
    }
    pthread_mutex_lock(&self->lock);
    self->phase = MST_OVERLAP_RUN;
    pthread_cond_broadcast(&self->moved);
    pthread_mutex_unlock(&self->lock);
}

void mst_worker_overlap_last(mst_overlap_step *step)
{
    step->step.ready = overlap_ready;
}

mst_status mst_worker_overlap_end(mst_worker_overlap *self)
{
    pthread_mutex_lock(&self->lock);
    if (self->phase == MST_OVERLAP_RUN) {
        self->phase = MST_OVERLAP_END;
        mst_net_wake(self->link->net);
        pthread_cond_broadcast(&self->moved);
    }
    while (self->phase != MST_OVERLAP_IDLE) /* the loop thread polls no longer than that */
        overlap_wait(self, mst_now_ns() + LOOP_NS);
    pthread_mutex_unlock(&self->lock);
    return self->failure.code == MST_OK ? MST_OK : mst_error_restore(&self->failure);
}
