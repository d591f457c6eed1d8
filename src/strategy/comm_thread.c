/* The communication thread; contract in comm_thread.h. The reductions are in reducer.c.
 *
 * The thread sleeps while there is nothing to do. While something is under way it polls MPI, and between two
 * polls that found nothing it pauses: it yields for a while if the training thread waits for the result, and
 * sleeps otherwise, so that the cores are free for computing.
 *
 * Invariants
 * 1. MPI is called on this thread only.
 * 2. `broken` is set once, by the first that detects the failure (the rank monitor, this thread), after
 * `error` is filled in; every wait checks it. */
#include "strategy/comm_thread.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/alloc.h"
#include "base/cond.h"

#define YIELD_NS    (2 * MST_MS)    /* of polling without a nap, if the training thread waits */
#define NAP_NS      (50 * 1000ull)  /* while training computes, and then */
#define LONG_NAP_NS (500 * 1000ull) /* after */
#define NAPPING_NS  (20 * MST_MS)   /* of those */
#define IDLE_NS     (50 * MST_MS)   /* asleep with nothing to do */
#define LEAVE_NS    (MST_S / 4)     /* that a thread in MPI is waited for */
#define NAMED_MS    2000            /* for the rank monitor to report the loss that made MPI fail */
#define DETACH_NS   (3600 * MST_S)  /* for the other ranks to finish; the rank monitor detects lost ones */
#define TIMER_SLACK 5000ul          /* ns: keeps naps short */

struct mst_comm {
    mst_comm_options options;
    mst_mpi *mpi;
    mst_rank_monitor *monitor;
    mst_reducer reducer;
    uint64_t bytes_out, bytes_in; /* of messages other than reductions */

    pthread_t thread;
    bool started; /* the thread exists */
    pthread_mutex_t lock;
    pthread_cond_t wake, changed; /* for the communication thread; for the training thread */
    atomic_bool asleep, waiting;  /* the one; the other */
    /* Guarded by lock: */
    mst_comm_fn *fn; /* to be called; NULL: none */
    void *fn_arg;
    bool fn_done;
    mst_error fn_error;
    bool ready, quit, gone; /* MPI is started, or failed; the thread has to end; it has ended */
    bool ended;             /* all ranks have disconnected: the training thread's own */
    bool parted;            /* the same, for the communication thread: MPI ends with it */
    mst_error error;        /* why the job cannot continue; valid once broken is set */
    atomic_bool broken;
    bool held;          /* the thread hangs in MPI: the training thread's own */
    atomic_bool in_mpi; /* in a call that may hang after the loss of a rank */
};

/* ---- why the job cannot continue ---- */

/* Keeps the first failure, and wakes all threads. */
static void comm_break(mst_comm *self, mst_status st, const char *message)
{
    pthread_mutex_lock(&self->lock);
    if (!atomic_load(&self->broken)) {
        self->error.code = st;
        snprintf(self->error.text, sizeof self->error.text, "%s", message);
        atomic_store(&self->broken, true);
    }
    pthread_cond_broadcast(&self->changed);
    pthread_cond_broadcast(&self->wake);
    pthread_mutex_unlock(&self->lock);
}

static void comm_lost(void *arg, mst_rank_loss reason, const char *message)
{
    mst_comm *self = arg;
    comm_break(self, MST_EPEER, message);
    if (self->options.lost != NULL)
        self->options.lost(self->options.lost_arg, reason, message);
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

typedef struct comm_pause {
    uint64_t since; /* nothing has happened */
    uint64_t deadline_ns;
} comm_pause;

static bool comm_on_thread(const mst_comm *self)
{
    return pthread_equal(self->thread, pthread_self());
}

static void comm_nap(uint64_t ns)
{
    struct timespec t = {.tv_nsec = (long)ns};
    nanosleep(&t, NULL);
}

/* A poll found nothing. awaited: the training thread waits. */
static void pause_wait(comm_pause *p, bool awaited)
{
    uint64_t idle = mst_now_ns() - p->since;
    if (awaited && idle < YIELD_NS)
        sched_yield();
    else
        comm_nap(idle < NAPPING_NS ? NAP_NS : LONG_NAP_NS);
}

static comm_pause pause_new(const mst_comm *self, bool forever)
{
    uint64_t now = mst_now_ns();
    return (comm_pause){now, forever ? UINT64_MAX : now + self->options.stall_timeout_ms * MST_MS};
}

static mst_status comm_too_long(const mst_comm *self, const char *what)
{
    return mst_fail(MST_ETIMEOUT, "rank %d has waited %.0f s for %s: is a rank stopped, or the network down?",
                    self->mpi->rank, self->options.stall_timeout_ms * 1e-3, what);
}

static uint32_t comm_left(uint32_t n, const mst_mpi_request *requests)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < n; i++)
        left += requests[i].opaque != 0;
    return left;
}

/* A reduction has ended: wakes the training thread if it waits. */
static void comm_done(void *arg, mst_reduce_op *op)
{
    mst_comm *self = arg;
    atomic_store(&op->done, op->posted);
    if (atomic_load(&self->waiting)) {
        pthread_mutex_lock(&self->lock);
        pthread_cond_broadcast(&self->changed);
        pthread_mutex_unlock(&self->lock);
    }
}

static mst_status comm_poll(mst_comm *self, bool *moved)
{
    atomic_store(&self->in_mpi, true);
    mst_status st = mst_reducer_poll(&self->reducer, moved, comm_done, self);
    atomic_store(&self->in_mpi, false);
    return st;
}

/* Polls until all requests are done; reductions continue meanwhile. */
static mst_status comm_finish(mst_comm *self, uint32_t n, mst_mpi_request *requests, bool *done, bool forever,
                              const char *what)
{
    comm_pause p = pause_new(self, forever);
    while (comm_left(n, requests) > 0) {
        uint32_t n_done = 0;
        bool moved = false;
        TRY(mst_comm_lost(self));
        atomic_store(&self->in_mpi, true);
        mst_status st = self->mpi->ops->test_some(n, requests, done, &n_done);
        atomic_store(&self->in_mpi, false);
        TRY(st);
        TRY(comm_poll(self, &moved));
        if (moved || n_done > 0)
            p.since = mst_now_ns();
        else if (mst_now_ns() > p.deadline_ns)
            return comm_too_long(self, what);
        else
            pause_wait(&p, true);
    }
    return MST_OK;
}

mst_status mst_comm_exchange(mst_comm *self, const mst_comm_message *sends, uint32_t n_sends,
                             const mst_comm_message *receives, uint32_t n_receives, bool until_lost,
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
        st = ops->irecv(self->reducer.world, m->data, m->bytes, m->peer, m->tag, &requests[i]);
        self->bytes_in += m->bytes;
    }
    for (uint32_t i = 0; st == MST_OK && i < n_sends; i++) {
        const mst_comm_message *m = &sends[i];
        st = ops->isend(self->reducer.world, m->data, m->bytes, m->peer, m->tag, &requests[n_receives + i]);
        self->bytes_out += m->bytes;
    }
    atomic_store(&self->in_mpi, false);
    if (st == MST_OK)
        st = comm_finish(self, n, requests, done, until_lost, what);
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
    mst_status st = self->mpi->ops->broadcast(self->reducer.collective, data, bytes, 0);
    atomic_store(&self->in_mpi, false);
    return st;
}

/* ---- reductions ---- */

mst_status mst_comm_post(mst_comm *self, mst_reduce_op *op)
{
    if (comm_on_thread(self) && atomic_load(&self->reducer.tail) - self->reducer.head >= MST_REDUCER_QUEUE)
        return mst_fail(MST_EUSAGE, "more than %d reductions at a time", MST_REDUCER_QUEUE);
    TRY(mst_reducer_post(&self->reducer, op));
    if (!comm_on_thread(self) && atomic_load(&self->asleep)) {
        pthread_mutex_lock(&self->lock);
        pthread_cond_signal(&self->wake);
        pthread_mutex_unlock(&self->lock);
    }
    return MST_OK;
}

/* The training thread sleeps until the communication thread is done with it. */
static mst_status comm_sleep_until_done(mst_comm *self, mst_reduce_op *op)
{
    uint64_t deadline = mst_now_ns() + self->options.stall_timeout_ms * MST_MS;
    mst_status st = MST_OK;
    pthread_mutex_lock(&self->lock);
    atomic_store(&self->waiting, true);
    while (atomic_load(&op->done) != op->posted && !atomic_load(&self->broken) && mst_now_ns() < deadline)
        mst_cond_wait(&self->changed, &self->lock, deadline);
    atomic_store(&self->waiting, false);
    pthread_mutex_unlock(&self->lock);
    if (atomic_load(&op->done) == op->posted)
        return MST_OK;
    st = mst_comm_lost(self);
    return st != MST_OK ? st : comm_too_long(self, "the sum of a gradient");
}

mst_status mst_comm_wait(mst_comm *self, mst_reduce_op *op)
{
    if (atomic_load(&op->done) == op->posted)
        return MST_OK;
    if (!comm_on_thread(self))
        return comm_sleep_until_done(self, op);
    comm_pause p = pause_new(self, false);
    while (atomic_load(&op->done) != op->posted) {
        bool moved = false;
        TRY(mst_comm_lost(self));
        TRY(comm_poll(self, &moved));
        if (moved)
            p.since = mst_now_ns();
        else if (mst_now_ns() > p.deadline_ns)
            return comm_too_long(self, "the sum of a gradient");
        else
            pause_wait(&p, true);
    }
    return MST_OK;
}

void mst_comm_counts_get(mst_comm *self, mst_reduce_counts *out)
{
    *out = self->reducer.counts;
    out->bytes_out += self->bytes_out;
    out->bytes_in += self->bytes_in;
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
        if (i > 0 && (i == 1 || took < mine)) /* the first one touches new memory */
            mine = took;
    }
    op->way = before;
    if (st == MST_OK)
        st = mst_comm_gather(self, &mine, sizeof mine, all, false, MST_COMM_TAG_MEASURE,
                             "the measurement of reductions");
    for (int r = 0; st == MST_OK && r < self->mpi->size; r++)
        *seconds = r == 0 || all[r] > *seconds ? all[r] : *seconds;
    mst_free(all);
    return st;
}

/* ---- the thread ---- */

static mst_status comm_start_mpi(mst_comm *self)
{
    const mst_comm_options *o = &self->options;
    TRY(o->start != NULL ? o->start(o->start_arg, &self->mpi) : mst_mpi_start(o->plugin, &self->mpi));
    if (self->mpi->size > MST_COMM_RANKS)
        return mst_fail(MST_EUSAGE, "%d ranks; at most %d are possible", self->mpi->size, MST_COMM_RANKS);
    mst_rank_monitor_options monitor = {.mpi = self->mpi,
                                        .start_timeout_ms = o->start_timeout_ms,
                                        .peer_timeout_ms = o->peer_timeout_ms,
                                        .tls = o->tls,
                                        .lost = comm_lost,
                                        .arg = self,
                                        .purpose = "--strategy allreduce"};
    if (o->start == NULL) /* before any collective: ranks of another purpose would not take part */
        TRY(mst_rank_monitor_new(&monitor, &self->monitor));
    self->reducer.mpi = self->mpi;
    self->reducer.first_tag = MST_COMM_TAGS;
    TRY(self->mpi->ops->dup(0, &self->reducer.world));
    return self->mpi->ops->dup(0, &self->reducer.collective);
}

/* Runs the function that mst_comm_call has given, if there is one. */
static bool comm_answer_call(mst_comm *self)
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

static void comm_sleep(mst_comm *self)
{
    uint64_t until = mst_now_ns() + IDLE_NS;
    pthread_mutex_lock(&self->lock);
    atomic_store(&self->asleep, true);
    if (self->fn == NULL && !self->quit && !mst_reducer_busy(&self->reducer))
        mst_cond_wait(&self->wake, &self->lock, until);
    atomic_store(&self->asleep, false);
    pthread_mutex_unlock(&self->lock);
    if (self->options.idle != NULL)
        self->options.idle(self->options.arg);
}

static bool comm_leaving(mst_comm *self)
{
    pthread_mutex_lock(&self->lock);
    bool quit = self->quit;
    pthread_mutex_unlock(&self->lock);
    return quit;
}

static void comm_serve(mst_comm *self)
{
    comm_pause p = {0};
    while (!comm_leaving(self)) {
        bool moved = comm_answer_call(self);
        if (atomic_load(&self->broken) || !mst_reducer_busy(&self->reducer)) {
            if (!moved)
                comm_sleep(self);
            p.since = mst_now_ns();
            continue;
        }
        mst_status st = comm_poll(self, &moved);
        if (st != MST_OK) {
            comm_await_loss(self, st);
            comm_break(self, st, mst_error_text());
        }
        if (moved)
            p.since = mst_now_ns();
        else
            pause_wait(&p, atomic_load(&self->waiting));
    }
}

static void *comm_main(void *arg)
{
    mst_comm *self = arg;
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK, 0, 0, 0);
    mst_status st = comm_start_mpi(self);
    if (st != MST_OK)
        comm_break(self, st, mst_error_text());
    pthread_mutex_lock(&self->lock);
    self->ready = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    if (st == MST_OK)
        comm_serve(self);
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
    if (comm_on_thread(self))
        return fn(self, arg);
    pthread_mutex_lock(&self->lock);
    self->fn = fn;
    self->fn_arg = arg;
    self->fn_done = false;
    pthread_cond_signal(&self->wake);
    /* The function has its own deadlines; only MPI itself may hang, after the loss of a rank. */
    uint64_t held_since = 0;
    while (!self->fn_done) {
        uint64_t now = mst_now_ns();
        if (!atomic_load(&self->broken) || !atomic_load(&self->in_mpi))
            held_since = 0;
        else if (held_since == 0)
            held_since = now;
        else if (now - held_since > LEAVE_NS) {
            self->held = true;
            break;
        }
        mst_cond_wait(&self->changed, &self->lock, now + MST_S / 20);
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
        comm_nap(LONG_NAP_NS);
    self->held = atomic_load(&self->in_mpi);
    return self->held;
}

/* ---- life ---- */

static void comm_init_locks(mst_comm *self)
{
    pthread_mutex_init(&self->lock, NULL);
    mst_cond_init(&self->wake);
    mst_cond_init(&self->changed);
}

mst_status mst_comm_new(const mst_comm_options *options, mst_comm **out)
{
    mst_comm *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->options = *options;
    comm_init_locks(self);
    if (pthread_create(&self->thread, NULL, comm_main, self) != 0) {
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

typedef struct comm_shape {
    mst_float_format wire;
    size_t max_slice;
} comm_shape;

static mst_status comm_set_shape(mst_comm *self, void *arg)
{
    const comm_shape *shape = arg;
    return mst_reducer_shape(&self->reducer, shape->wire, shape->max_slice);
}

mst_status mst_comm_shape(mst_comm *self, mst_float_format wire, size_t max_slice)
{
    return mst_comm_call(self, comm_set_shape, &(comm_shape){wire, max_slice});
}

const mst_mpi *mst_comm_mpi(const mst_comm *self)
{
    return self->mpi;
}

mst_rank_monitor *mst_comm_monitor(const mst_comm *self)
{
    return self->monitor;
}

static mst_status comm_end_mpi(mst_comm *self, void *arg)
{
    int n = self->mpi->size;
    mst_comm_message *ends = mst_calloc((size_t)n, sizeof *ends);
    char byte = 0;
    (void)arg;
    if (ends == NULL)
        return mst_fail_memory();
    for (int p = 0; p < n; p++)
        ends[p] = (mst_comm_message){&byte, sizeof byte, p, MST_COMM_TAG_END};
    uint32_t n_sends = self->mpi->rank == 0 ? (uint32_t)n - 1 : 0, n_receives = self->mpi->rank == 0 ? 0 : 1;
    mst_status st = mst_comm_exchange(self, ends + 1, n_sends, ends, n_receives, true, "rank 0's end");
    mst_free(ends);
    TRY(st);
    if (self->options.start != NULL)
        return MST_OK;
    atomic_store(&self->in_mpi, true);
    st = mst_mpi_detach(self->mpi, mst_now_ns() + DETACH_NS);
    atomic_store(&self->in_mpi, false);
    TRY(st);
    mst_rank_monitor_destroy(self->monitor);
    self->monitor = NULL;
    self->parted = true;
    return MST_OK;
}

mst_status mst_comm_end(mst_comm *self)
{
    TRY(mst_comm_call(self, comm_end_mpi, NULL));
    self->ended = true;
    return MST_OK;
}

/* Requests the thread to end; returns whether it has. */
static bool comm_end_thread(mst_comm *self)
{
    uint64_t deadline =
        mst_now_ns() + (self->ended && self->mpi != NULL ? mst_mpi_end_ms(self->mpi) * MST_MS : LEAVE_NS);
    pthread_mutex_lock(&self->lock);
    self->quit = true;
    pthread_cond_broadcast(&self->wake);
    while (!self->gone && mst_now_ns() < deadline)
        mst_cond_wait(&self->changed, &self->lock, deadline);
    bool gone = self->gone;
    pthread_mutex_unlock(&self->lock);
    return gone;
}

void mst_comm_destroy(mst_comm *self, const char *message)
{
    if (self == NULL)
        return;
    if (!self->ended && self->monitor != NULL && !atomic_load(&self->broken))
        mst_rank_monitor_fail(self->monitor, message != NULL ? message : "left");
    if (self->started && (self->held || !comm_end_thread(self))) {
        pthread_detach(self->thread); /* it is inside MPI, and keeps what it may touch */
        return;
    }
    if (self->started)
        pthread_join(self->thread, NULL);
    mst_rank_monitor_destroy(self->monitor);
    mst_reducer_fini(&self->reducer);
    pthread_cond_destroy(&self->wake);
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->lock);
    mst_free(self);
}
