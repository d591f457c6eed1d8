/* Stragglers; contract in coordinator_stragglers.h. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "ps/coordinator_impl.h"

#define WINDOW_NS (2 * MST_S)
#define WINDOWS   5   /* in a row make a straggler */
#define SLOW      2.0 /* times the median */

static const char *const slow_reasons[] = {
    [MST_SLOW_CPU] = "its CPU: it computes for longer than others",
    [MST_SLOW_INPUT] = "its input: it reads rows more slowly than others",
    [MST_SLOW_NETWORK] =
        "its network, or other programs on its host: it neither computes nor reads for longer "
        "than others",
};

mst_slow_reason mst_slow_reason_of(const mst_row_times *worker, const mst_row_times *median)
{
    double compute = worker->compute > median->compute ? worker->compute - median->compute : 0,
           input = worker->input > median->input ? worker->input - median->input : 0,
           rest = worker->excess - compute - input;
    if (compute >= input && compute >= rest)
        return MST_SLOW_CPU;
    return input >= rest ? MST_SLOW_INPUT : MST_SLOW_NETWORK;
}

/* A worker in the window. */
typedef struct straggler_sample {
    uint32_t worker;
    double seconds, held; /* per row; of the window */
    mst_row_times times;
} straggler_sample;

static int stragglers_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The lower median: of two, the smaller. */
static double stragglers_median(const straggler_sample *samples, uint32_t n, size_t offset)
{
    double values[MST_WORKER_MAX] = {0};
    for (uint32_t i = 0; i < n; i++)
        values[i] = *(const double *)((const char *)&samples[i] + offset);
    qsort(values, n, sizeof *values, stragglers_by_value);
    return values[(n - 1) / 2];
}

/* Begins the next window of a worker, and takes the sample of this one; false: it has none. */
static bool stragglers_sample(mst_server *s, uint32_t worker, double window, straggler_sample *out)
{
    mst_job_member *m = &s->co->members[worker];
    mst_straggler before = m->straggler;
    m->straggler.rows = m->rows;
    m->straggler.held_ns = m->held_ns;
    m->straggler.compute = json_number_value(json_object_get(m->report, "compute_seconds"));
    m->straggler.input = json_number_value(json_object_get(m->report, "input_seconds"));
    double compute = m->straggler.compute - before.compute, input = m->straggler.input - before.input;
    if (!mst_alive(s, worker) || m->idle || m->rows <= before.rows || compute < 0 || input < 0)
        return false;
    double rows = (double)(m->rows - before.rows);
    *out = (straggler_sample){.worker = worker,
                              .seconds = window / rows,
                              .held = 1e-9 * (double)(m->held_ns - before.held_ns),
                              .times = {.compute = compute / rows, .input = input / rows}};
    return true;
}

static void stragglers_name(mst_server *s, const straggler_sample *sample, double times,
                            const mst_row_times *median)
{
    char text[256], hint[96] = "";
    if (mst_has_slots(s) && s->options.n_workers > 2)
        snprintf(hint, sizeof hint, "; --quorum %" PRIu32 " would close steps without it",
                 s->options.n_workers - 1);
    snprintf(text, sizeof text, "%.1f times the time of the median worker; likely reason: %s", times,
             slow_reasons[mst_slow_reason_of(&sample->times, median)]);
    mst_warn("%s is slow: %s%s", s->co->members[sample->worker].name, text, hint);
    s->hooks->event(s->hooks->arg, &(mst_server_event){.kind = MST_SERVER_SLOW,
                                                       .role = MST_ROLE_WORKER,
                                                       .index = sample->worker,
                                                       .text = text});
}

static void stragglers_judge(mst_server *s, straggler_sample *sample, double window, double seconds,
                             const mst_row_times *median)
{
    mst_job_member *m = &s->co->members[sample->worker];
    double rest = window - sample->held,
           times = mst_has_slots(s) ? window / (rest > 0.01 ? rest : 0.01) : sample->seconds / seconds;
    bool slow = times > SLOW;
    sample->times.excess =
        mst_has_slots(s) ? sample->seconds * sample->held / window : sample->seconds - seconds;
    m->straggler.windows = slow ? m->straggler.windows + 1 : 0;
    if (m->straggler.named && !slow)
        mst_info("%s is not slow any more", m->name);
    if (!m->straggler.named && m->straggler.windows >= WINDOWS)
        stragglers_name(s, sample, times, median);
    m->straggler.named = slow && m->straggler.windows >= WINDOWS;
    if (s->co->rows.leases != NULL)
        mst_leases_shrink(s->co->rows.leases, sample->worker, m->straggler.named ? 1 / times : 1);
}

void mst_stragglers_check(mst_server *s)
{
    mst_coordinator *co = s->co;
    straggler_sample samples[MST_WORKER_MAX];
    uint64_t now = mst_now_ns();
    uint32_t n = 0;
    if (co->phase != MST_JOB_RUN || now - co->stragglers.window_ns < WINDOW_NS)
        return;
    double window = 1e-9 * (double)(now - co->stragglers.window_ns);
    co->stragglers.window_ns = now;
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        n += stragglers_sample(s, w, window, &samples[n]);
    if (n < 2 || window > 1e-9 * 2 * (double)WINDOW_NS) /* this process was stopped, or training begins */
        return;
    double seconds = stragglers_median(samples, n, offsetof(straggler_sample, seconds));
    mst_row_times median = {
        .compute = stragglers_median(samples, n, offsetof(straggler_sample, times.compute)),
        .input = stragglers_median(samples, n, offsetof(straggler_sample, times.input)),
    };
    for (uint32_t i = 0; i < n; i++)
        stragglers_judge(s, &samples[i], window, seconds, &median);
}
