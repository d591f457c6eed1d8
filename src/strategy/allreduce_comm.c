/* The communication thread; contract in allreduce_comm.h, the reductions are in allreduce_reduce.c.
 *
 * The thread sleeps while there is nothing to do. While something is under way it polls MPI, and between two
 * polls that found nothing it steps aside: yielding while somebody waits for the result, for a while, and
 * napping while the cores are better used by those who compute.
 *
 * Invariants
 * 1. MPI is called on this thread only.
 * 2. `broken` is set once, by whoever finds out first (the rank monitor, this thread), after `error` is
 * filled in; every wait looks at it. */
#include "strategy/allreduce_comm.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "strategy/allreduce_comm_impl.h"

#define YIELD_NS    (2 * MST_MS)    /* of polling without a nap, when somebody waits */
#define NAP_NS      (50 * 1000ull)  /* while training computes, and then */
#define LONG_NAP_NS (500 * 1000ull) /* after */
#define NAPPING_NS  (20 * MST_MS)   /* of those */
#define IDLE_NS     (50 * MST_MS)   /* asleep with nothing to do */
#define LEAVE_NS    (MST_S / 4)     /* that a thread in MPI is waited for */
#define NAMED_MS    2000            /* for the rank monitor to report the loss that made MPI fail */
#define PART_NS     (3600 * MST_S)  /* for the other ranks to finish; the rank monitor detects lost ones */
#define END_TAG     (MST_COMM_TAGS - 1)
#define TIMER_SLACK 5000ul /* ns: naps are as long as they say */

/* ---- why the job cannot go on ---- */

/* Keeps the first failure, and wakes everybody. */
static void break_with(mst_comm *self, mst_status st, const char *sentence)
{
    pthread_mutex_lock(&self->lock);
    if (!atomic_load(&self->broken)) {
        self->error.code = st;
        snprintf(self->error.text, sizeof self->error.text, "%s", sentence);
        atomic_store(&self->broken, true);
    }
    pthread_cond_broadcast(&self->changed);
    pthread_cond_broadcast(&self->wake);
    pthread_mutex_unlock(&self->lock);
}

static void on_lost(void *arg, mst_rank_loss reason, const char *sentence)
{
    mst_comm *self = arg;
    break_with(self, MST_EPEER, sentence);
    if (self->options.lost != NULL)
        self->options.lost(self->options.lost_arg, reason, sentence);
}

/* MPI failed: if a rank is lost, the rank monitor names it and MPI does not. */
static void comm_await_loss(mst_comm *self, mst_status st)
{
    mst_error error;
    if (st != MST_EPEER || self->monitor == NULL || atomic_load(&self->broken))
        return;
    mst_error_save(&error, st);
    (void)mst_rank_monitor_await_lost(self->monitor, NAMED_MS);
    (void)mst_error_restore(&error);
}

mst_status mst_comm_lost(mst_comm *self)
{
    return atomic_load(&self->broken) ? mst_error_restore(&self->error) : MST_OK;
}

/* ---- polling ---- */

typedef struct lull {
    uint64_t since; /* nothing has happened */
    uint64_t deadline_ns;
} lull;

static bool on_thread(const mst_comm *self)
{
    return pthread_equal(self->thread, pthread_self());
}

static void nap(uint64_t ns)
{
    struct timespec t = {.tv_nsec = (long)ns};
    nanosleep(&t, NULL);
}

/* A poll found nothing. somebody: waits for it. */
static void step_aside(lull *p, bool somebody)
{
    uint64_t idle = mst_now_ns() - p->since;
    if (somebody && idle < YIELD_NS)
        sched_yield();
    else
        nap(idle < NAPPING_NS ? NAP_NS : LONG_NAP_NS);
}

static lull lull_new(const mst_comm *self, bool forever)
{
    uint64_t now = mst_now_ns();
    return (lull){now, forever ? UINT64_MAX : now + self->options.stall_timeout_ms * MST_MS};
}

static mst_status too_long(const mst_comm *self, const char *what)
{
    return mst_fail(MST_ETIMEOUT, "rank %d has waited %.0f s for %s: is a rank stopped, or the network down?",
                    self->mpi->rank, self->options.stall_timeout_ms * 1e-3, what);
}

static uint32_t left_of(uint32_t n, const mst_mpi_request *requests)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < n; i++)
        left += requests[i].opaque != 0;
    return left;
}

/* Polls until all requests are done; reductions go on meanwhile. */
static mst_status finish_all(mst_comm *self, uint32_t n, mst_mpi_request *requests, bool *done, bool forever,
                             const char *what)
{
    lull p = lull_new(self, forever);
    while (left_of(n, requests) > 0) {
        uint32_t n_done = 0;
        bool moved = false;
        TRY(mst_comm_lost(self));
        atomic_store(&self->in_mpi, true);
        mst_status st = self->mpi->ops->test_some(n, requests, done, &n_done);
        atomic_store(&self->in_mpi, false);
        TRY(st);
        TRY(mst_comm_poll(self, &moved));
        if (moved || n_done > 0)
            p.since = mst_now_ns();
        else if (mst_now_ns() > p.deadline_ns)
            return too_long(self, what);
        else
            step_aside(&p, true);
    }
    return MST_OK;
}

mst_status mst_comm_exchange(mst_comm *self, const mst_comm_message *sends, uint32_t n_sends,
                             const mst_comm_message *receives, uint32_t n_receives, bool patience,
                             const char *what)
{
    const mst_mpi_ops *ops = self->mpi->ops;
    uint32_t n = n_sends + n_receives;
    mst_mpi_request few[64], *requests = n <= 64 ? few : mst_calloc(n, sizeof *requests);
    bool few_done[64], *done = n <= 64 ? few_done : mst_calloc(n, sizeof *done);
    mst_status st = MST_OK;
    if (requests == NULL || done == NULL)
        st = mst_fail_memory();
    for (uint32_t i = 0; st == MST_OK && i < n; i++)
        requests[i] = MST_MPI_NONE;
    atomic_store(&self->in_mpi, true);
    for (uint32_t i = 0; st == MST_OK && i < n_receives; i++) {
        const mst_comm_message *m = &receives[i];
        st = ops->irecv(self->world, m->data, m->bytes, m->peer, m->tag, &requests[i]);
        self->counts.bytes_in += m->bytes;
    }
    for (uint32_t i = 0; st == MST_OK && i < n_sends; i++) {
        const mst_comm_message *m = &sends[i];
        st = ops->isend(self->world, m->data, m->bytes, m->peer, m->tag, &requests[n_receives + i]);
        self->counts.bytes_out += m->bytes;
    }
    atomic_store(&self->in_mpi, false);
    if (st == MST_OK)
        st = finish_all(self, n, requests, done, patience, what);
    if (requests != few)
        mst_free(requests);
    if (done != few_done)
        mst_free(done);
    return st;
}

mst_status mst_comm_gather(mst_comm *self, const void *mine, size_t bytes, void *all, bool to_root, int tag,
                           const char *what)
{
    int n = self->mpi->size, me = self->mpi->rank;
    uint32_t n_sends = 0, n_receives = 0;
    mst_comm_message *m = mst_calloc(2 * (size_t)n, sizeof *m);
    if (m == NULL)
        return mst_fail_memory();
    for (int p = 0; p < n; p++) {
        if (p == me)
            continue;
        if (!to_root || p == 0)
            m[n_sends++] = (mst_comm_message){(void *)mine, bytes, p, tag};
        if (!to_root || me == 0)
            m[n + (int)n_receives++] = (mst_comm_message){(char *)all + (size_t)p * bytes, bytes, p, tag};
    }
    if (!to_root || me == 0)
        memcpy((char *)all + (size_t)me * bytes, mine, bytes);
    mst_status st = mst_comm_exchange(self, m, n_sends, m + n, n_receives, false, what);
    mst_free(m);
    return st;
}

mst_status mst_comm_broadcast(mst_comm *self, void *data, size_t bytes)
{
    TRY(mst_comm_lost(self));
    atomic_store(&self->in_mpi, true);
    mst_status st = self->mpi->ops->broadcast(self->collective, data, bytes, 0);
    atomic_store(&self->in_mpi, false);
    return st;
}

/* ---- reductions ---- */

mst_status mst_comm_post(mst_comm *self, mst_reduce_op *op)
{
    uint64_t at = atomic_load(&self->tail);
    if (op->n > self->options.max_slice)
        return mst_fail(MST_EUSAGE, "a reduction of %zu floats; at most %zu are possible", op->n,
                        self->options.max_slice);
    if (on_thread(self) && at - self->head >= MST_COMM_QUEUE)
        return mst_fail(MST_EUSAGE, "more than %d reductions at a time", MST_COMM_QUEUE);
    op->posted++;
    self->queue[at % MST_COMM_QUEUE] = op;
    atomic_store(&self->tail, at + 1);
    if (!on_thread(self) && atomic_load(&self->asleep)) {
        pthread_mutex_lock(&self->lock);
        pthread_cond_signal(&self->wake);
        pthread_mutex_unlock(&self->lock);
    }
    return MST_OK;
}

void mst_comm_done(mst_comm *self, mst_reduce_op *op)
{
    atomic_store(&op->done, op->posted);
    if (atomic_load(&self->waiting)) {
        pthread_mutex_lock(&self->lock);
        pthread_cond_broadcast(&self->changed);
        pthread_mutex_unlock(&self->lock);
    }
}

static void deadline_in(uint64_t ns, struct timespec *out)
{
    uint64_t at = mst_now_ns() + ns;
    *out = (struct timespec){.tv_sec = (time_t)(at / MST_S), .tv_nsec = (long)(at % MST_S)};
}

/* The training thread sleeps until the communication thread is done with it. */
static mst_status sleep_until_done(mst_comm *self, mst_reduce_op *op)
{
    uint64_t deadline = mst_now_ns() + self->options.stall_timeout_ms * MST_MS;
    mst_status st = MST_OK;
    pthread_mutex_lock(&self->lock);
    atomic_store(&self->waiting, true);
    while (atomic_load(&op->done) != op->posted && !atomic_load(&self->broken) && mst_now_ns() < deadline) {
        struct timespec until;
        deadline_in(MST_S, &until);
        pthread_cond_timedwait(&self->changed, &self->lock, &until);
    }
    atomic_store(&self->waiting, false);
    pthread_mutex_unlock(&self->lock);
    if (atomic_load(&op->done) == op->posted)
        return MST_OK;
    st = mst_comm_lost(self);
    return st != MST_OK ? st : too_long(self, "the sum of a gradient");
}

mst_status mst_comm_wait(mst_comm *self, mst_reduce_op *op)
{
    if (atomic_load(&op->done) == op->posted)
        return MST_OK;
    if (!on_thread(self))
        return sleep_until_done(self, op);
    lull p = lull_new(self, false);
    while (atomic_load(&op->done) != op->posted) {
        bool moved = false;
        TRY(mst_comm_lost(self));
        TRY(mst_comm_poll(self, &moved));
        if (moved)
            p.since = mst_now_ns();
        else if (mst_now_ns() > p.deadline_ns)
            return too_long(self, "the sum of a gradient");
        else
            step_aside(&p, true);
    }
    return MST_OK;
}

void mst_comm_counts_get(mst_comm *self, mst_comm_counts *out)
{
    *out = self->counts;
}

mst_status mst_comm_measure(mst_comm *self, mst_reduce_op *op, mst_reduce_way way, uint32_t times,
                            double *seconds)
{
    double mine = 0.0, *all = mst_calloc((size_t)self->mpi->size, sizeof *all);
    mst_reduce_way before = op->way;
    mst_status st = all == NULL ? mst_fail_memory() : MST_OK;
    op->way = way;
    for (uint32_t i = 0; st == MST_OK && i <= times; i++) {
        uint64_t start = mst_now_ns();
        st = mst_comm_post(self, op);
        if (st == MST_OK)
            st = mst_comm_wait(self, op);
        double took = mst_seconds_since(start);
        if (i > 0 && (i == 1 || took < mine)) /* the first one finds memory that nobody has touched */
            mine = took;
    }
    op->way = before;
    if (st == MST_OK)
        st = mst_comm_gather(self, &mine, sizeof mine, all, false, 0, "the measurement of reductions");
    for (int r = 0; st == MST_OK && r < self->mpi->size; r++)
        *seconds = r == 0 || all[r] > *seconds ? all[r] : *seconds;
    mst_free(all);
    return st;
}

/* ---- the thread ---- */

static mst_status start_mpi(mst_comm *self)
{
    const mst_comm_options *o = &self->options;
    TRY(o->start != NULL ? o->start(o->start_arg, &self->mpi) : mst_mpi_start(o->plugin, &self->mpi));
    if (self->mpi->size > MST_COMM_RANKS)
        return mst_fail(MST_EUSAGE, "%d ranks; at most %d are possible", self->mpi->size, MST_COMM_RANKS);
    mst_rank_monitor_options monitor = {.mpi = self->mpi,
                                        .start_timeout_ms = o->start_timeout_ms,
                                        .peer_timeout_ms = o->peer_timeout_ms,
                                        .lost = on_lost,
                                        .arg = self,
                                        .purpose = "--strategy allreduce"};
    if (o->start == NULL) /* before any collective, in which ranks that do something else would not be */
        TRY(mst_rank_monitor_new(&monitor, &self->monitor));
    TRY(self->mpi->ops->dup(0, &self->world));
    return self->mpi->ops->dup(0, &self->collective);
}

/* Runs what waits to be called, if anything does. */
static bool answer_call(mst_comm *self)
{
    pthread_mutex_lock(&self->lock);
    mst_comm_fn *fn = self->fn;
    void *arg = self->fn_arg;
    pthread_mutex_unlock(&self->lock);
    if (fn == NULL)
        return false;
    mst_error error;
    mst_status st = fn(self, arg);
    comm_await_loss(self, st);
    mst_error_save(&error, st == MST_EPEER && atomic_load(&self->broken) ? mst_comm_lost(self) : st);
    pthread_mutex_lock(&self->lock);
    self->fn = NULL;
    self->fn_error = error;
    self->fn_done = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    return true;
}

static void sleep_until_asked(mst_comm *self)
{
    struct timespec until;
    deadline_in(IDLE_NS, &until);
    pthread_mutex_lock(&self->lock);
    atomic_store(&self->asleep, true);
    if (self->fn == NULL && !self->quit && !mst_comm_busy(self))
        pthread_cond_timedwait(&self->wake, &self->lock, &until);
    atomic_store(&self->asleep, false);
    pthread_mutex_unlock(&self->lock);
    if (self->options.idle != NULL)
        self->options.idle(self->options.arg);
}

static bool leaving(mst_comm *self)
{
    pthread_mutex_lock(&self->lock);
    bool quit = self->quit;
    pthread_mutex_unlock(&self->lock);
    return quit;
}

static void serve(mst_comm *self)
{
    lull p = {0};
    while (!leaving(self)) {
        bool moved = answer_call(self);
        if (atomic_load(&self->broken) || !mst_comm_busy(self)) {
            if (!moved)
                sleep_until_asked(self);
            p.since = mst_now_ns();
            continue;
        }
        mst_status st = mst_comm_poll(self, &moved);
        if (st != MST_OK) {
            comm_await_loss(self, st);
            break_with(self, st, mst_error_text());
        }
        if (moved)
            p.since = mst_now_ns();
        else
            step_aside(&p, atomic_load(&self->waiting));
    }
}

static void *run(void *arg)
{
    mst_comm *self = arg;
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK, 0, 0, 0);
    mst_status st = start_mpi(self);
    if (st != MST_OK)
        break_with(self, st, mst_error_text());
    pthread_mutex_lock(&self->lock);
    self->ready = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    if (st == MST_OK)
        serve(self);
    if (self->parted)
        (void)mst_mpi_end(self->mpi);
    pthread_mutex_lock(&self->lock);
    self->gone = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

mst_status mst_comm_call(mst_comm *self, mst_comm_fn *fn, void *arg)
{
    mst_error error;
    if (on_thread(self))
        return fn(self, arg);
    pthread_mutex_lock(&self->lock);
    self->fn = fn;
    self->fn_arg = arg;
    self->fn_done = false;
    pthread_cond_signal(&self->wake);
    /* What the thread runs has deadlines of its own; only MPI itself may hold it for ever, after a death. */
    uint64_t held_since = 0;
    while (!self->fn_done) {
        struct timespec until;
        uint64_t now = mst_now_ns();
        if (!atomic_load(&self->broken) || !atomic_load(&self->in_mpi))
            held_since = 0;
        else if (held_since == 0)
            held_since = now;
        else if (now - held_since > LEAVE_NS) {
            self->held = true;
            break;
        }
        deadline_in(MST_S / 20, &until);
        pthread_cond_timedwait(&self->changed, &self->lock, &until);
    }
    error = self->fn_done ? self->fn_error : self->error;
    pthread_mutex_unlock(&self->lock);
    return error.code == MST_OK ? MST_OK : mst_error_restore(&error);
}

bool mst_comm_held(mst_comm *self)
{
    uint64_t deadline = mst_now_ns() + LEAVE_NS;
    if (self->held || !atomic_load(&self->broken))
        return self->held;
    while (atomic_load(&self->in_mpi) && mst_now_ns() < deadline)
        nap(LONG_NAP_NS);
    self->held = atomic_load(&self->in_mpi);
    return self->held;
}

/* ---- life ---- */

static void init_locks(mst_comm *self)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&self->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&self->wake, &attr);
    pthread_cond_init(&self->changed, &attr);
    pthread_condattr_destroy(&attr);
}

mst_status mst_comm_new(const mst_comm_options *options, mst_comm **out)
{
    mst_comm *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->options = *options;
    init_locks(self);
    if (pthread_create(&self->thread, NULL, run, self) != 0) {
        mst_comm_destroy(self, NULL);
        return mst_fail(MST_EIO, "cannot start a communication thread");
    }
    self->started = true;
    pthread_mutex_lock(&self->lock); /* MPI and the rank monitor have their own deadlines */
    while (!self->ready && !atomic_load(&self->broken))
        pthread_cond_wait(&self->changed, &self->lock);
    pthread_mutex_unlock(&self->lock);
    mst_status st = mst_comm_lost(self);
    if (st != MST_OK) {
        mst_error error;
        mst_error_save(&error, st);
        mst_comm_destroy(self, NULL);
        return mst_error_restore(&error);
    }
    *out = self;
    return MST_OK;
}

static mst_status take_shape(mst_comm *self, void *arg)
{
    (void)arg;
    return mst_reduction_room(self);
}

mst_status mst_comm_shape(mst_comm *self, mst_wire wire, size_t max_slice)
{
    self->options.wire = wire;
    self->options.max_slice = max_slice;
    return mst_comm_call(self, take_shape, NULL);
}

const mst_mpi *mst_comm_mpi(const mst_comm *self)
{
    return self->mpi;
}

mst_rank_monitor *mst_comm_monitor(const mst_comm *self)
{
    return self->monitor;
}

static mst_status end_mpi(mst_comm *self, void *arg)
{
    int n = self->mpi->size;
    mst_comm_message *byes = mst_calloc((size_t)n, sizeof *byes);
    char bye = 0;
    (void)arg;
    if (byes == NULL)
        return mst_fail_memory();
    for (int p = 0; p < n; p++)
        byes[p] = (mst_comm_message){&bye, sizeof bye, p, END_TAG};
    uint32_t n_sends = self->mpi->rank == 0 ? (uint32_t)n - 1 : 0, n_receives = self->mpi->rank == 0 ? 0 : 1;
    mst_status st = mst_comm_exchange(self, byes + 1, n_sends, byes, n_receives, true, "rank 0's end");
    mst_free(byes);
    TRY(st);
    if (self->options.start != NULL)
        return MST_OK;
    atomic_store(&self->in_mpi, true);
    st = mst_mpi_part(self->mpi, mst_now_ns() + PART_NS);
    atomic_store(&self->in_mpi, false);
    TRY(st);
    mst_rank_monitor_destroy(self->monitor);
    self->monitor = NULL;
    self->parted = true;
    return MST_OK;
}

mst_status mst_comm_end(mst_comm *self)
{
    TRY(mst_comm_call(self, end_mpi, NULL));
    self->ended = true;
    return MST_OK;
}

/* Whether the thread has left; it is asked to. */
static bool dismiss(mst_comm *self)
{
    uint64_t deadline =
        mst_now_ns() + (self->ended && self->mpi != NULL ? mst_mpi_end_ms(self->mpi) * MST_MS : LEAVE_NS);
    pthread_mutex_lock(&self->lock);
    self->quit = true;
    pthread_cond_broadcast(&self->wake);
    while (!self->gone && mst_now_ns() < deadline) {
        struct timespec until;
        deadline_in(MST_S / 20, &until);
        pthread_cond_timedwait(&self->changed, &self->lock, &until);
    }
    bool gone = self->gone;
    pthread_mutex_unlock(&self->lock);
    return gone;
}

void mst_comm_destroy(mst_comm *self, const char *sentence)
{
    if (self == NULL)
        return;
    if (!self->ended && self->monitor != NULL && !atomic_load(&self->broken))
        mst_rank_monitor_fail(self->monitor, sentence != NULL ? sentence : "left");
    if (self->started && (self->held || !dismiss(self))) {
        pthread_detach(self->thread); /* it is inside MPI, and keeps what it may touch */
        return;
    }
    if (self->started)
        pthread_join(self->thread, NULL);
    mst_rank_monitor_destroy(self->monitor);
    if (self->mpi != NULL)
        mst_reduction_fini(self);
    pthread_cond_destroy(&self->wake);
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->lock);
    mst_free(self);
}
