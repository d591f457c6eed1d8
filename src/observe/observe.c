/* Contract in observe.h.
 *
 * Every file has a buffer for its next bytes, guarded by the mutex; the observer thread, or the caller of
 * take, empties it. The mutex is held for the time of a copy, never across a write.
 *
 * Invariants
 * 1. `pending` of a file takes further bytes while it has less than PENDING_MAX; otherwise they are dropped.
 * At the end a trace takes the entries of its rings up to LAST_MAX, and always its last line.
 * 2. Only the observer thread writes files; after `end`, only the caller of end.
 * 3. The state of the sampler (resources, sums) belongs to the observer thread. */
#include "observe/observe.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cond.h"
#include "base/log.h"
#include "base/option.h"
#include "observe/observe_impl.h"

#define PENDING_MAX ((size_t)8 << 20)
#define LAST_MAX    ((size_t)32 << 20)
#define FOREIGN_MAX ((size_t)64 << 20)
#define TRACE_MAX   ((uint64_t)512 << 20) /* bytes of a trace.json */
#define TRACE_TICK  (100 * MST_MS)

/* ---- files ---- */

/* NULL, without a lock, if `most` bytes are pending. */
static mst_bytes *observe_begin_add(mst_observe *self, mst_record_kind kind, size_t most)
{
    pthread_mutex_lock(&self->mutex);
    mst_bytes *out = &self->files[kind].pending;
    bool ended = self->ended && (self->run != NULL || kind != MST_RECORD_EVENTS);
    if (!self->broken && !ended && out->n < most && !out->failed)
        return out;
    if (!self->ended && !self->broken)
        self->gaps |= 1u << kind;
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

mst_bytes *mst_observe_begin_add(mst_observe *self, mst_record_kind kind)
{
    return observe_begin_add(self, kind, PENDING_MAX);
}

void mst_observe_end_add(mst_observe *self)
{
    pthread_mutex_unlock(&self->mutex);
}

void mst_observe_add(mst_observe *self, mst_record_kind kind, const void *data, size_t n)
{
    mst_bytes *out = mst_observe_begin_add(self, kind);
    if (out == NULL)
        return;
    mst_bytes_add(out, data, n);
    mst_observe_end_add(self);
}

static void observe_fill_record(const mst_observe *self, mst_record_kind kind, mst_record *out)
{
    *out = (mst_record){.kind = kind, .begins = !self->files[kind].begun, .stamp = self->stamp};
    memcpy(out->process, self->process, sizeof out->process);
}

bool mst_observe_take(mst_observe *self, mst_record *out)
{
    bool found = false;
    if (self == NULL)
        return false;
    pthread_mutex_lock(&self->mutex);
    for (unsigned k = 0; k < MST_RECORDS && !found; k++) {
        mst_bytes *from = &self->files[k].pending;
        size_t n = from->n < MST_RECORD_MAX ? from->n : MST_RECORD_MAX;
        uint8_t *data = n > 0 ? mst_alloc(n) : NULL;
        if (data == NULL)
            continue;
        memcpy(data, from->data, n);
        memmove(from->data, from->data + n, from->n - n);
        from->n -= n;
        observe_fill_record(self, (mst_record_kind)k, out);
        out->data = data;
        out->n = n;
        self->files[k].begun = true;
        found = true;
    }
    pthread_mutex_unlock(&self->mutex);
    return found;
}

/* Writes a record; the first failure is the last attempt. */
static void observe_file_record(mst_observe *self, const mst_record *record)
{
    mst_status st = mst_record_file(self->run, record);
    pthread_mutex_lock(&self->mutex);
    bool first = st != MST_OK && !self->broken;
    self->broken |= st != MST_OK;
    pthread_mutex_unlock(&self->mutex);
    if (first)
        mst_warn("%s; resources, phases and traces are not recorded any more", mst_error_text());
}

/* Writes pending bytes if there is a directory. Thread: the observer's. */
static void observe_file_all(mst_observe *self)
{
    for (unsigned k = 0; k < MST_RECORDS; k++) {
        mst_record record;
        pthread_mutex_lock(&self->mutex);
        mst_bytes taken = self->files[k].pending;
        bool any = self->run != NULL && taken.n > 0 && !self->broken;
        if (any) {
            self->files[k].pending = self->spare;
            observe_fill_record(self, (mst_record_kind)k, &record);
            self->files[k].begun = true;
        }
        pthread_mutex_unlock(&self->mutex);
        if (!any)
            continue;
        record.data = taken.data;
        record.n = taken.n;
        observe_file_record(self, &record);
        taken.n = 0;
        taken.failed = false;
        self->spare = taken;
    }
}

/* ---- records of other processes ---- */

typedef struct mst_foreign {
    struct mst_foreign *next;
    mst_record record;
    uint8_t data[];
} mst_foreign;

void mst_observe_forward(mst_observe *self, const mst_record *record)
{
    if (self == NULL)
        return;
    pthread_mutex_lock(&self->mutex);
    bool late = self->ended && self->run != NULL && !self->broken,
         full = self->foreign_bytes + record->n > FOREIGN_MAX;
    mst_foreign *f = self->ended || full ? NULL : mst_alloc(sizeof *f + record->n);
    if (f == NULL && !self->ended)
        self->foreign_gaps = true;
    if (f != NULL) {
        *f = (mst_foreign){.record = *record};
        memcpy(f->data, record->data, record->n);
        f->record.data = f->data;
        *self->foreign_tail = f;
        self->foreign_tail = &f->next;
        self->foreign_bytes += record->n;
    }
    pthread_mutex_unlock(&self->mutex);
    if (late)
        observe_file_record(self, record);
}

/* Writes the records of other processes if there is a directory. Thread: the observer's. */
static void observe_file_foreign(mst_observe *self)
{
    pthread_mutex_lock(&self->mutex);
    mst_foreign *list = self->run != NULL ? self->foreign : NULL;
    bool broken = self->broken;
    if (list != NULL) {
        self->foreign = NULL;
        self->foreign_tail = &self->foreign;
        self->foreign_bytes = 0;
    }
    pthread_mutex_unlock(&self->mutex);
    while (list != NULL) {
        mst_foreign *next = list->next;
        if (!broken)
            observe_file_record(self, &list->record);
        mst_free(list);
        list = next;
    }
}

/* ---- time ---- */

double mst_observe_wall(mst_observe *self)
{
    return mst_wall_s() + 1e-9 * (double)mst_job_clock_wall_offset(&self->clock);
}

/* ---- the trace ---- */

/* Returns the number of the process in a trace of the whole run. */
static unsigned observe_trace_pid(const mst_observe_options *o)
{
    return strcmp(o->role, "server") == 0 ? 10001 + o->index : 1 + o->index;
}

static mst_trace_identity observe_trace_identity(mst_observe *self, unsigned lane)
{
    return (mst_trace_identity){.process = self->process,
                                .pid = observe_trace_pid(&self->options),
                                .tid = lane,
                                .clock = &self->clock};
}

/* Like observe_begin_add, but refused bytes stay in the ring for the next call. */
static mst_bytes *observe_begin_trace_add(mst_observe *self, size_t most)
{
    pthread_mutex_lock(&self->mutex);
    bool full = self->files[MST_RECORD_TRACE].pending.n >= most;
    self->trace_waited |= full;
    pthread_mutex_unlock(&self->mutex);
    return full ? NULL : observe_begin_add(self, MST_RECORD_TRACE, most);
}

static void observe_drain_trace(mst_observe *self, size_t most)
{
    const mst_observe_options *o = &self->options;
    uint64_t dropped_here, dropped = 0;
    for (unsigned i = 0; i < MST_LANE_MAX && o->trace; i++) {
        mst_trace_identity who = observe_trace_identity(self, i);
        if (self->rings[i] == NULL)
            continue;
        mst_bytes *out = self->traced < TRACE_MAX ? observe_begin_trace_add(self, most) : NULL;
        if (out == NULL)
            continue; /* the ring drops further entries */
        size_t before = out->n;
        if (!self->trace_dated) {
            mst_trace_date(out, &who);
            self->trace_dated = true;
        }
        if (mst_trace_drain(self->rings[i], &who, out, &dropped_here) > 0 && !self->named[i]) {
            char name[24];
            snprintf(name, sizeof name, i > o->n_threads ? "parser %u" : "thread %u",
                     i > o->n_threads ? i - o->n_threads - 1 : i);
            mst_trace_thread(out, &who, name);
            self->named[i] = true;
        }
        self->traced += out->n - before;
        dropped += dropped_here;
        mst_observe_end_add(self);
    }
    if (dropped > self->trace_dropped) /* some rings may have been skipped */
        self->trace_dropped = dropped;
}

static void observe_begin_trace(mst_observe *self)
{
    mst_trace_identity who = observe_trace_identity(self, 0);
    unsigned n = self->options.n_threads + 1 + self->options.n_parsers;
    n = n < MST_LANE_MAX ? n : MST_LANE_MAX;
    for (unsigned i = 0; i < n; i++)
        if (mst_trace_ring_new(self->options.trace_from, self->options.trace_to, &self->rings[i]) == MST_OK)
            mst_spans_lane(self->spans, i)->trace = self->rings[i];
    mst_bytes *out = mst_observe_begin_add(self, MST_RECORD_TRACE);
    if (out == NULL)
        return;
    mst_trace_begin(out, &who);
    mst_observe_end_add(self);
}

static void observe_end_trace(mst_observe *self)
{
    mst_trace_identity who = observe_trace_identity(self, 0);
    observe_drain_trace(self, LAST_MAX);
    mst_bytes *out = observe_begin_add(self, MST_RECORD_TRACE, SIZE_MAX);
    if (out == NULL)
        return;
    mst_trace_end(out, &who, self->trace_dropped);
    mst_observe_end_add(self);
}

/* ---- the thread ---- */

static void observe_wait_until(mst_observe *self, uint64_t at_ns)
{
    pthread_mutex_lock(&self->mutex);
    while (!self->stopping && !self->cut && mst_now_ns() < at_ns)
        mst_cond_wait(&self->wake, &self->mutex, at_ns);
    pthread_mutex_unlock(&self->mutex);
}

/* Returns whether mst_observe_end_interval was called, and resets it. */
static bool observe_take_interval_end(mst_observe *self)
{
    pthread_mutex_lock(&self->mutex);
    bool cut = self->cut;
    self->cut = false;
    pthread_mutex_unlock(&self->mutex);
    return cut;
}

static bool observe_is_stopping(mst_observe *self)
{
    pthread_mutex_lock(&self->mutex);
    bool stop = self->stopping;
    pthread_mutex_unlock(&self->mutex);
    return stop;
}

static void *observe_thread(void *arg)
{
    mst_observe *self = arg;
    uint64_t every = (uint64_t)(self->options.every_s * 1e9), next = mst_now_ns() + every;
    pthread_setname_np(pthread_self(), "observe");
    mst_sampler_open(self);
    while (!observe_is_stopping(self)) {
        uint64_t now = mst_now_ns(), at = every > 0 ? next : now + MST_S;
        if (self->options.trace && now + TRACE_TICK < at)
            at = now + TRACE_TICK;
        observe_wait_until(self, at);
        if (self->options.trace && mst_job_clock_known(&self->clock))
            observe_drain_trace(self, PENDING_MAX);
        now = mst_now_ns();
        bool cut = observe_take_interval_end(self);
        if (every > 0 && (now >= next || cut)) {
            mst_sampler_sample(self);
            next = next > now ? next : next + every > now ? next + every : now + every;
        }
        observe_file_all(self);
        observe_file_foreign(self);
    }
    if (every > 0) {
        mst_sampler_sample(self);
        mst_sampler_traffic(self);
    }
    if (self->options.trace)
        observe_end_trace(self);
    mst_sampler_close(self);
    return NULL;
}

static mst_status observe_start_thread(mst_observe *self)
{
    sigset_t all, before;
    pthread_mutex_init(&self->mutex, NULL);
    mst_cond_init(&self->wake);
    if (self->options.trace)
        observe_begin_trace(self);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* other threads handle signals */
    int error = pthread_create(&self->thread, NULL, observe_thread, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    self->running = error == 0;
    return self->running ? MST_OK
                         : mst_fail(MST_EIO, "cannot start the observer thread: %s", strerror(error));
}

/* Returns whether the clock of this process is the clock of the job. */
static bool observe_is_coordinator(const mst_observe_options *o)
{
    return strcmp(o->role, "worker") != 0 && o->index == 0;
}

mst_observe *mst_observe_new(const mst_observe_options *options)
{
    mst_observe *self = mst_zalloc(sizeof *self);
    if (self == NULL || !mst_process_name_fits(options->process)) {
        mst_warn("the run is not observed: %s",
                 self == NULL ? "out of memory" : "the name of its process is invalid");
        mst_free(self);
        return NULL;
    }
    self->options = *options;
    self->foreign_tail = &self->foreign;
    snprintf(self->process, sizeof self->process, "%s", options->process);
    snprintf(self->role, sizeof self->role, "%s", options->role);
    self->options.process = self->process;
    self->options.role = self->role;
    mst_job_clock_init(&self->clock, observe_is_coordinator(options));
    self->stamp = mst_wall_ns() / 1000;
    atomic_init(&self->step, options->step);
    mst_status st = mst_spans_new(&self->spans);
    if (st == MST_OK)
        st = observe_start_thread(self);
    if (st != MST_OK) {
        mst_warn("the run is not observed: %s", mst_error_text());
        mst_spans_destroy(self->spans);
        mst_job_clock_fini(&self->clock);
        mst_free(self);
        return NULL;
    }
    return self;
}

void mst_observe_file_in(mst_observe *self, const char *run)
{
    if (self == NULL)
        return;
    char *copy = mst_strdup(run);
    pthread_mutex_lock(&self->mutex);
    char *before = self->run;
    if (before == NULL)
        self->run = copy;
    pthread_cond_signal(&self->wake);
    pthread_mutex_unlock(&self->mutex);
    if (before != NULL)
        mst_free(copy);
}

void mst_observe_disown(mst_observe *self)
{
    if (self == NULL)
        return;
    pthread_mutex_lock(&self->mutex);
    self->broken = true;
    pthread_mutex_unlock(&self->mutex);
}

/* Warns about gaps in the files. */
static void observe_warn_gaps(mst_observe *self)
{
    static const char *const files[] = {
#define X(name, file) [MST_RECORD_##name] = file,
        MST_RECORD_MAP(X)
#undef X
    };
    char names[160] = "";
    pthread_mutex_lock(&self->mutex);
    unsigned gaps = self->gaps;
    bool foreign = self->foreign_gaps;
    pthread_mutex_unlock(&self->mutex);
    if (self->trace_waited && self->trace_dropped > 0)
        gaps |= 1u << MST_RECORD_TRACE;
    for (unsigned k = 0; k < MST_RECORDS; k++)
        if ((gaps & 1u << k) != 0 && strstr(names, files[k]) == NULL) {
            size_t n = strlen(names);
            snprintf(names + n, sizeof names - n, "%s%s", n > 0 ? ", " : "", files[k]);
        }
    if (names[0] != '\0')
        mst_warn("%s of %s has gaps: data arrived faster than it could be sent or written%s", names,
                 self->process,
                 (gaps & 1u << MST_RECORD_TRACE) != 0 ? "; --trace-steps traces fewer steps" : "");
    const mst_observe_options *o = &self->options;
    bool traced = self->trace_dropped > 0;
    for (unsigned i = 0; i < MST_LANE_MAX; i++)
        traced |= self->named[i];
    if (o->trace && (o->trace_from > 0 || o->trace_to < UINT64_MAX) && self->run != NULL && !traced)
        mst_warn("the trace of %s is empty: none of the steps that --trace-steps selects was trained",
                 self->process);
    if (foreign)
        mst_warn("the files of other processes have gaps: records arrived faster than they could be written");
}

void mst_observe_end(mst_observe *self)
{
    if (self == NULL || !self->running)
        return;
    pthread_mutex_lock(&self->mutex);
    self->stopping = true;
    pthread_cond_signal(&self->wake);
    pthread_mutex_unlock(&self->mutex);
    pthread_join(self->thread, NULL);
    self->running = false;
    observe_warn_gaps(self);
    observe_file_all(self);
    observe_file_foreign(self);
    pthread_mutex_lock(&self->mutex);
    self->ended = true;
    pthread_mutex_unlock(&self->mutex);
}

void mst_observe_destroy(mst_observe *self)
{
    if (self == NULL)
        return;
    mst_observe_end(self);
    for (unsigned k = 0; k < MST_RECORDS; k++)
        mst_bytes_fini(&self->files[k].pending);
    for (unsigned k = 0; k < 2; k++)
        mst_free(self->traffic[k]);
    for (unsigned i = 0; i < MST_LANE_MAX; i++)
        mst_trace_ring_destroy(self->rings[i]);
    while (self->foreign != NULL) {
        mst_foreign *next = self->foreign->next;
        mst_free(self->foreign);
        self->foreign = next;
    }
    mst_bytes_fini(&self->spare);
    mst_spans_destroy(self->spans);
    mst_job_clock_fini(&self->clock);
    pthread_cond_destroy(&self->wake);
    pthread_mutex_destroy(&self->mutex);
    mst_free(self->run);
    mst_free(self);
}

/* ---- figures from training ---- */

void mst_observe_clock_answer(mst_observe *self, uint8_t *out)
{
    mst_job_clock_answer(self != NULL ? &self->clock : NULL, out);
}

bool mst_observe_clock_receive(mst_observe *self, uint64_t sent_ns, const void *answer, size_t size)
{
    if (self == NULL)
        return false;
    int64_t before = mst_job_clock_wall_offset(&self->clock);
    bool valid = mst_job_clock_receive(&self->clock, sent_ns, mst_now_ns(), answer, size);
    if (mst_job_clock_wall_offset(&self->clock) != before)
        mst_sampler_describe(self);
    return valid && !mst_job_clock_known(&self->clock);
}

#define LINK_NEWS 0.05 /* relative change of a speed that causes a new process.json */

void mst_observe_link(mst_observe *self, const char *name, double bits_per_s)
{
    if (self == NULL || name[0] == '\0' || !(bits_per_s > 0) || strlen(name) >= sizeof self->link)
        return;
    pthread_mutex_lock(&self->mutex);
    bool news =
        strcmp(name, self->link) != 0 || fabs(bits_per_s - self->link_bits) > LINK_NEWS * self->link_bits;
    if (news) {
        snprintf(self->link, sizeof self->link, "%s", name);
        self->link_bits = bits_per_s;
    }
    pthread_mutex_unlock(&self->mutex);
    if (news)
        mst_sampler_describe(self);
}

void mst_observe_path(mst_observe *self, uint32_t index, double bits_per_s, double trip_s)
{
    if (self == NULL || index >= MST_OBSERVED_PATHS)
        return;
    pthread_mutex_lock(&self->mutex);
    mst_observed_path *path = &self->paths[index];
    bool news = fabs(bits_per_s - path->bits_per_s) > LINK_NEWS * path->bits_per_s ||
                fabs(trip_s - path->trip_s) > LINK_NEWS * path->trip_s;
    if (news)
        *path = (mst_observed_path){.bits_per_s = bits_per_s, .trip_s = trip_s};
    pthread_mutex_unlock(&self->mutex);
    if (news)
        mst_sampler_describe(self);
}

void mst_observe_traffic(mst_observe *self, const char *role, uint32_t index, uint64_t bytes_in,
                         uint64_t bytes_out)
{
    unsigned k = strcmp(role, "server") == 0 ? 0 : 1;
    if (self == NULL || bytes_in + bytes_out == 0)
        return;
    pthread_mutex_lock(&self->mutex);
    size_t n = self->n_traffic[k];
    if (index >= n && mst_grow(&self->traffic[k], &self->traffic_capacity[k], (size_t)index + 1,
                               sizeof *self->traffic[k])) {
        memset(self->traffic[k] + n, 0, (index + 1 - n) * sizeof *self->traffic[k]);
        self->n_traffic[k] = (size_t)index + 1;
    }
    if (index < self->n_traffic[k]) {
        self->traffic[k][index].in += bytes_in;
        self->traffic[k][index].out += bytes_out;
    } else {
        self->gaps |= 1u << MST_RECORD_TRAFFIC;
    }
    pthread_mutex_unlock(&self->mutex);
}

void mst_observe_end_interval(mst_observe *self)
{
    if (self == NULL)
        return;
    pthread_mutex_lock(&self->mutex);
    self->cut = true;
    pthread_cond_signal(&self->wake);
    pthread_mutex_unlock(&self->mutex);
}

mst_spans *mst_observe_spans(mst_observe *self)
{
    return self != NULL ? self->spans : NULL;
}

void mst_observe_totals(mst_observe *self, mst_span_sums *out)
{
    memset(out, 0, sizeof *out);
    if (self == NULL)
        return;
    pthread_mutex_lock(&self->mutex);
    mst_spans_sum(self->spans, mst_now_ns(), out, NULL);
    pthread_mutex_unlock(&self->mutex);
}

json_t *mst_observe_phases(mst_observe *self)
{
    mst_span_sums sums;
    json_t *json = self != NULL ? json_object() : NULL;
    if (json == NULL)
        return NULL;
    mst_observe_totals(self, &sums);
    for (unsigned p = 0; p < MST_PHASES; p++)
        json_object_set_new(json, mst_phase_name((mst_phase)p), json_real((double)sums.ns[p] * 1e-9));
    return json;
}

void mst_observe_set_first_step(mst_observe *self, uint64_t step)
{
    if (self == NULL)
        return;
    pthread_mutex_lock(&self->mutex);
    self->options.step = step;
    pthread_mutex_unlock(&self->mutex);
    mst_observe_set_step(self, step);
}

void mst_observe_set_step(mst_observe *self, uint64_t step)
{
    if (self != NULL)
        atomic_store_explicit(&self->step, step, memory_order_relaxed);
}
