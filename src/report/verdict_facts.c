/* The facts of a verdict: figures of each process in the training window (verdict_impl.h).
 *
 * Design: the window runs from the first to the last interval in which rows were trained, so that starting,
 * the first read of a cache and the end are excluded. Runs of an older version have no processes/; their
 * manifest has compute, wait and input seconds per worker, which is enough for shares. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "report/history_read.h"
#include "report/verdict_impl.h"

/* ---- sums over resources.csv ---- */

mst_column_use mst_facts_column(const mst_csv *csv, const char *name, double from, double to)
{
    size_t column = mst_csv_column(csv, name), time = mst_csv_column(csv, "time");
    size_t interval = mst_csv_column(csv, "interval_s");
    double sum = 0, shares = 0, seconds = 0, peak = 0;
    for (size_t i = 0; column != MST_CSV_NONE && i < csv->n_rows; i++) {
        double t = mst_csv_value(csv, i, time), s = mst_csv_value(csv, i, interval);
        double x = mst_csv_value(csv, i, column);
        /* an interval belongs to the window when its middle does: the files' clocks differ by parts of it */
        if (isnan(x) || !(s > 0) || t - s / 2 <= from || t - s / 2 > to)
            continue;
        sum += x;
        shares += x * s;
        seconds += s;
        if (s >= 0.5)
            peak = fmax(peak, x / s);
    }
    return (mst_column_use){.rate = sum / seconds, .peak = peak, .level = shares / seconds};
}

static double facts_rate(const mst_csv *csv, const char *name, double from, double to)
{
    return mst_facts_column(csv, name, from, to).rate;
}

/* The speeds of interfaces, for processes without paths: ranks, and runs of older versions. A speed measured
 * on one connection may be a part of a link that several share: the total traffic of the link is another
 * lower bound. */
static void facts_take_links(mst_process_use *to, const mst_process_data *p, double from, double until)
{
    to->link_in = to->link_out = to->link_bytes = NAN;
    for (size_t i = 0; i < p->n_links; i++) {
        char column[64];
        const mst_process_link *link = &p->links[i];
        if (isnan(link->bits_per_s) || strcmp(link->name, "lo") == 0)
            continue;
        snprintf(column, sizeof column, "net_%s_in", link->name);
        mst_column_use received = mst_facts_column(&p->resources, column, from, until);
        snprintf(column, sizeof column, "net_%s_out", link->name);
        mst_column_use sent = mst_facts_column(&p->resources, column, from, until);
        double speed = fmax(link->bits_per_s / 8, fmax(received.peak, sent.peak));
        double in = received.rate / speed, out = sent.rate / speed;
        if (isnan(in) || isnan(out) || in + out <= mst_or_zero(to->link_in) + mst_or_zero(to->link_out))
            continue;
        to->link_in = fmin(in, 1);
        to->link_out = fmin(out, 1);
        to->link_bytes = speed;
    }
}

/* A process whose times are known, and nothing else of it. */
static mst_process_use facts_process_use(const mst_costs *costs)
{
    mst_process_use p = {.seconds = costs->seconds,
                         .thread_seconds = costs->thread_seconds,
                         .steps = costs->steps,
                         .rows = costs->rows,
                         .bytes_in = costs->bytes_in,
                         .bytes_out = costs->bytes_out};
    double *unknown[] = {&p.cpu,       &p.cores,      &p.host_busy,  &p.busiest, &p.iowait,
                         &p.read_rate, &p.fault_rate, &p.delay,      &p.ran,     &p.parsing,
                         &p.link_in,   &p.link_out,   &p.link_bytes, &p.trip_s};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        *unknown[i] = NAN;
    for (int k = 0; k < MST_COSTS; k++)
        p.share[k] = costs->thread_seconds > 0 ? fmin(costs->phase[k] / costs->thread_seconds, 1) : 0;
    return p;
}

static void facts_take_process(mst_process_use *to, const mst_process_data *p, double from, double until)
{
    mst_costs costs;
    const mst_csv *r = &p->resources;
    mst_costs_of(p, from, until, &costs);
    *to = facts_process_use(&costs);
    to->process = p;
    to->cores = p->cores;
    snprintf(to->name, sizeof to->name, "%s", p->name);
    to->cpu = facts_rate(r, "proc_cpu_user_s", from, until) +
              mst_or_zero(facts_rate(r, "proc_cpu_system_s", from, until));
    double busy = facts_rate(r, "cpu_user_s", from, until) +
                  mst_or_zero(facts_rate(r, "cpu_system_s", from, until)) +
                  mst_or_zero(facts_rate(r, "cpu_steal_s", from, until));
    double idle = facts_rate(r, "cpu_idle_s", from, until);
    to->iowait = facts_rate(r, "cpu_iowait_s", from, until);
    to->host_busy = busy / (busy + idle + mst_or_zero(to->iowait));
    if (isnan(to->cores))
        to->cores = busy + idle + mst_or_zero(to->iowait);
    to->busiest = mst_facts_column(r, "cpu_busiest", from, until).level;
    to->read_rate = facts_rate(r, "proc_read", from, until);
    to->fault_rate = facts_rate(r, "proc_major_faults", from, until);
    to->delay = facts_rate(r, "proc_delay_s", from, until);
    facts_take_links(to, p, from, until);
    /* There is no CPU time per thread. All threads of a process compete for the same cores, so each is taken
     * to have run for the same part of its runnable time. */
    double got = to->delay > 0 ? to->cpu / (to->cpu + to->delay) : 1, each = got / to->seconds;
    double trains = costs.phase[MST_COST_PREPARE] + costs.phase[MST_COST_COMPUTE] +
                    costs.phase[MST_COST_PUSH] + costs.phase[MST_COST_APPLY];
    double other = costs.phase[MST_COST_EVALUATE] + costs.phase[MST_COST_CHECKPOINT] +
                   costs.phase[MST_COST_SERVE] + costs.evaluate_beside;
    bool known = !isnan(to->cpu) && to->seconds > 0;
    to->ran = known ? fmin(to->cpu, trains * each) : NAN;
    to->parsing = known ? fmax(0, to->cpu - (trains + other) * each) : NAN;
}

/* ---- all processes ---- */

/* The time and step at which the last processes of the run started. */
static mst_status facts_take_since(const mst_run_data *run, mst_facts *out)
{
    mst_history history;
    struct tm tm = {0};
    out->since = out->since_step = NAN;
    TRY(mst_history_of(run, out->figures.steps, out->figures.rows, out->figures.train_s, &history));
    const mst_segment *first = mst_history_same_crew(&history);
    if (first->before != NULL && strptime(first->started, "%Y-%m-%dT%H:%M:%SZ", &tm) != NULL) {
        out->since = (double)timegm(&tm);
        out->since_step = first->step;
    }
    mst_history_fini(&history);
    return MST_OK;
}

/* Whether a process has the role of those that trained the run last. */
static bool facts_is_of_crew(const mst_facts *f, const mst_process_data *p)
{
    bool ps = p->role == MST_PROCESS_WORKER || p->role == MST_PROCESS_SERVER;
    if (isnan(f->since))
        return true;
    double n = p->role == MST_PROCESS_SERVER ? f->figures.n_servers : f->figures.n_workers;
    return (f->ps ? ps : p->role == (f->ranks ? MST_PROCESS_RANK : MST_PROCESS_LOCAL)) &&
           !((double)p->index >= n);
}

/* The window of training that the verdict covers. */
static bool facts_find_window(const mst_facts *f, double *from, double *to)
{
    bool found = mst_whole_window(f->run, MST_VERDICT_OVERLAP_S, from, to);
    *from = fmax(*from, f->since); /* of NAN and a number: the number */
    return found && *to > *from;
}

static mst_status facts_take_processes(const mst_run_data *run, mst_facts *out)
{
    double from, to;
    json_t *workers = json_object_get(run->manifest, "workers");
    size_t n_manifest = json_array_size(workers), room = run->n_processes + n_manifest + 1;
    out->workers = mst_calloc(room, sizeof *out->workers);
    out->servers = mst_calloc(room, sizeof *out->servers);
    if (out->workers == NULL || out->servers == NULL)
        return mst_fail_memory();
    out->spans = facts_find_window(out, &from, &to);
    for (size_t i = 0; out->spans && i < run->n_processes; i++) {
        const mst_process_data *p = run->processes[i];
        if (p->role == MST_PROCESS_OTHER || !facts_is_of_crew(out, p))
            continue;
        mst_process_use process;
        facts_take_process(&process, p, from, to);
        if (out->busy_poll && process.parsing > 0)
            process.parsing = 0; /* or polling */
        if (process.thread_seconds <= 0)
            continue;
        if (p->role == MST_PROCESS_SERVER)
            out->servers[out->n_servers++] = process;
        else if (process.rows > 0)
            out->workers[out->n_workers++] = process;
    }
    double wall = mst_or_zero(out->figures.train_s) + mst_or_zero(out->figures.eval_s);
    for (size_t i = 0; !out->spans && wall > 0 && i < n_manifest; i++) {
        mst_costs costs = mst_costs_of_worker(json_array_get(workers, i), wall);
        mst_process_use *w = &out->workers[out->n_workers++];
        *w = facts_process_use(&costs);
        snprintf(w->name, sizeof w->name, "%s-%zu", out->ranks ? "rank" : "worker", i);
    }
    return MST_OK;
}

/* The workers for which the coordinator held steps open. */
static void facts_take_held(const mst_run_data *run, mst_facts *out)
{
    json_t *workers = json_object_get(run->manifest, "workers");
    double second = 0;
    for (size_t i = 0; i < out->n_workers && out->figures.train_s > 0; i++) {
        mst_process_use *w = &out->workers[i];
        for (size_t k = 0; k < json_array_size(workers); k++) {
            const json_t *one = json_array_get(workers, k), *index = json_object_get(one, "worker");
            if (json_is_integer(index) && w->process != NULL &&
                json_integer_value(index) == w->process->index)
                w->held = fmin(1, mst_or_zero(mst_json_real(one, "held_seconds")) / out->figures.train_s);
        }
        if (w->held > out->workers[out->held_worker].held)
            out->held_worker = i;
    }
    for (size_t i = 0; i < out->n_workers; i++)
        if (i != out->held_worker)
            second = fmax(second, out->workers[i].held);
    if (out->n_workers > 1)
        out->held = out->workers[out->held_worker].held - second;
}

static int facts_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The lower median of the workers' own work per step; *waited: that of the slowest that a step waits for. */
static mst_status facts_order_own(const mst_facts *f, double *out, double *waited)
{
    double *own = mst_calloc(f->n_workers, sizeof *own);
    if (own == NULL)
        return mst_fail_memory();
    for (size_t i = 0; i < f->n_workers; i++)
        own[i] = f->workers[i].own_s;
    qsort(own, f->n_workers, sizeof *own, facts_compare);
    *out = own[(f->n_workers - 1) / 2];
    *waited = own[(size_t)fmax(1, fmin(f->quorum, (double)f->n_workers)) - 1];
    mst_free(own);
    return MST_OK;
}

/* Shares of the typical worker: the mean of those that do not straggle. */
static mst_status facts_take_typical(mst_facts *f)
{
    double median = 0, waited = 0, n = 0;
    for (size_t i = 0; i < f->n_workers; i++) {
        mst_process_use *w = &f->workers[i];
        double own = w->share[MST_COST_READ] + w->share[MST_COST_PREPARE] + w->share[MST_COST_COMPUTE] +
                     w->share[MST_COST_PUSH] + w->share[MST_COST_APPLY];
        double wait = w->share[MST_COST_PULL_WAIT] + w->share[MST_COST_BARRIER_WAIT];
        w->own_s = w->steps > 0 ? own * w->seconds / w->steps : own;
        w->wait_s = w->steps > 0 ? wait * w->seconds / w->steps : wait;
    }
    TRY(facts_order_own(f, &median, &waited));
    for (size_t i = 0; i < f->n_workers; i++)
        if (f->workers[i].own_s == waited)
            f->slowest = i;
    f->slowest_ratio = f->n_workers > 1 && median > 0 ? f->workers[f->slowest].own_s / median : NAN;
    for (size_t i = 0; i < f->n_workers; i++) {
        const mst_process_use *w = &f->workers[i];
        f->rows_per_s += w->seconds > 0 ? w->rows / w->seconds : 0;
        if (w->own_s > MST_VERDICT_STRAGGLES * median)
            continue;
        n++;
        for (int k = 0; k < MST_COSTS; k++)
            f->typical[k] += w->share[k];
        f->step_s += w->steps > 0 ? w->seconds / w->steps : 0;
        f->pull_bytes += w->steps > 0 ? w->bytes_in / w->steps : 0;
        f->push_bytes += w->steps > 0 ? w->bytes_out / w->steps : 0;
    }
    for (int k = 0; k < MST_COSTS; k++)
        f->typical[k] /= n;
    f->step_s /= n;
    f->pull_bytes /= n;
    f->push_bytes /= n;
    return MST_OK;
}

/* ---- servers and hosts ---- */

static const mst_process_use *facts_use(const mst_facts *f, size_t i)
{
    return i < f->n_workers ? &f->workers[i] : &f->servers[i - f->n_workers];
}

static bool facts_same_process(const mst_process_use *a, const mst_process_use *b)
{
    return a != b && a->process != NULL && b->process != NULL && a->process->pid == b->process->pid &&
           a->process->pid > 0 && strcmp(a->process->host, b->process->host) == 0;
}

/* Whether another part of the run is in the same process, whose CPU time is then not one part's own. */
static bool facts_shares_process(const mst_facts *f, const mst_process_use *p)
{
    for (size_t i = 0; i < f->n_workers + f->n_servers; i++)
        if (facts_same_process(facts_use(f, i), p))
            return true;
    return false;
}

/* Cores for which the process of p, in all its roles, was running or runnable. NAN: not known. */
static double facts_ready(const mst_facts *f, const mst_process_use *p)
{
    double most = p->cpu + mst_or_zero(p->delay);
    for (size_t i = 0; i < f->n_workers + f->n_servers; i++) {
        const mst_process_use *other = facts_use(f, i);
        if (facts_same_process(other, p))
            most = fmax(most, other->cpu + mst_or_zero(other->delay)); /* of NAN and a number: the number */
    }
    return most;
}

/* CPU time over the cores that the process may use by its threads and CPU quota. NAN: not known, or waits
 * take CPU time, too. */
static double facts_cpu_use(const mst_facts *f, const mst_process_use *p)
{
    double threads = p->seconds > 0 ? fmax(1, p->thread_seconds / p->seconds) : 1, most = threads;
    if (p->cores >= 1)
        most = fmin(most, p->cores);
    if (p->process != NULL && p->process->cpu_limit > 0)
        most = fmin(most, p->process->cpu_limit);
    return f->busy_poll || facts_shares_process(f, p) ? NAN : p->cpu / most;
}

static void facts_take_servers(mst_facts *f)
{
    for (size_t i = 0; i < f->n_servers; i++) {
        const mst_process_use *s = &f->servers[i];
        double busy = s->share[MST_COST_APPLY] + s->share[MST_COST_SERVE];
        busy = fmax(busy, facts_cpu_use(f, s)); /* of NAN and a number: the number */
        if (busy > f->server_busy) {
            f->server_busy = fmin(1, busy);
            f->server_apply = s->share[MST_COST_APPLY];
            f->server_serve = s->share[MST_COST_SERVE];
            f->busiest_server = i;
        }
    }
}

/* Whether two processes share cores: they are on one host, or on hosts of one machine. */
static bool facts_share_cores(const mst_process_data *a, const mst_process_data *b)
{
    return strcmp(a->host, b->host) == 0 || (a->machine[0] != '\0' && strcmp(a->machine, b->machine) == 0);
}

/* Cores that the run's processes on the cores of that process use; *n: the number of processes. */
static double facts_used_beside(const mst_facts *f, const mst_process_data *one, size_t *n)
{
    double sum = 0;
    *n = 0;
    for (size_t i = 0; i < f->n_workers + f->n_servers; i++) {
        const mst_process_use *p = i < f->n_workers ? &f->workers[i] : &f->servers[i - f->n_workers];
        if (p->process == NULL || !facts_share_cores(p->process, one))
            continue;
        sum += mst_or_zero(p->cpu);
        ++*n;
    }
    return sum;
}

/* The cores of hosts that the run uses, and those that others use. */
static void facts_take_hosts(mst_facts *f)
{
    f->apart = f->n_servers == 0 && !f->ranks;
    for (size_t i = 0; i < f->n_servers * f->n_workers; i++)
        f->apart = f->apart || mst_facts_apart(&f->servers[i / f->n_workers], &f->workers[i % f->n_workers]);
    for (size_t i = 1; f->ranks && i < f->n_workers; i++)
        f->apart = f->apart || mst_facts_apart(&f->workers[0], &f->workers[i]);
    double waits[2] = {0}; /* of workers, of servers */
    for (size_t i = 0; i < f->n_workers + f->n_servers; i++) {
        const mst_process_use *p = i < f->n_workers ? &f->workers[i] : &f->servers[i - f->n_workers];
        double *sum = &waits[i >= f->n_workers], wait = isnan(p->delay) ? INFINITY : p->delay;
        if (!isnan(p->delay) || !facts_shares_process(f, p))
            *sum = f->lockstep ? *sum + wait : fmax(*sum, wait);
    }
    f->core_waits = waits[0] + waits[1];
    for (size_t i = 0; i < f->n_workers; i++) {
        const mst_process_use *w = &f->workers[i];
        size_t n;
        if (w->process == NULL || isnan(w->host_busy * w->cores))
            continue;
        double busy = w->host_busy * w->cores, own = facts_used_beside(f, w->process, &n),
               others = busy - own;
        bool several =
            n > 1 || (w->thread_seconds > 1.5 * w->seconds && others >= MST_VERDICT_CROWDING * w->cores);
        /* threads that share fewer cores wait for each other */
        double room = w->process->cpu_limit > 0 ? fmin(w->process->cpu_limit, w->cores) : w->cores;
        bool limited = mst_facts_alone(f) && w->thread_seconds > 1.5 * room * w->seconds &&
                       w->cpu >= MST_VERDICT_FULL * room;
        f->crowded = f->crowded || (several && w->host_busy >= MST_VERDICT_CROWDED) || limited;
        if (n == f->n_workers + f->n_servers && n > 1)
            f->shared_cores = own / w->cores;
        if (others > f->others && (n == 1 || w->seconds >= MST_VERDICT_OVERLAP_S)) {
            f->others = others;
            f->guest = w;
        }
    }
}

/* Whether a worker uses all of its CPU quota; not known if waits take CPU time, too. */
static bool facts_uses_quota(const mst_facts *f, const mst_process_use *w)
{
    double limit = w->process != NULL ? w->process->cpu_limit : NAN;
    return limit > 0 && !f->busy_poll && !facts_shares_process(f, w) && w->cpu >= MST_VERDICT_FULL * limit;
}

/* Whether the cores that a worker's process may use are saturated by the processes of the run. */
static bool facts_is_full(const mst_facts *f, const mst_process_use *w)
{
    return w->host_busy >= MST_VERDICT_CROWDED || facts_uses_quota(f, w);
}

bool mst_facts_is_starved(const mst_facts *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n_workers; i++)
        n += facts_uses_quota(f, &f->workers[i]);
    return 2 * n <= f->n_workers && f->slowest_ratio >= MST_VERDICT_SLOWER &&
           facts_uses_quota(f, &f->workers[f->slowest]);
}

static const char *facts_pipe_of(const json_t *manifest)
{
    const json_t *files = json_object_get(manifest, "files");
    const char *first = json_string_value(json_array_get(files, 0));
    if (first != NULL && strcmp(first, "-") == 0)
        return "standard input";
    if (!json_is_true(json_object_get(json_object_get(manifest, "source"), "once")))
        return NULL;
    return first != NULL && json_array_size(files) == 1 ? first : "pipes";
}

/* Whether rows are parsed whenever they are read; of a run of an older version: by the format. */
static bool facts_parses(const json_t *manifest, const char *format)
{
    const json_t *parsed = json_object_get(json_object_get(manifest, "data"), "parsed");
    if (parsed != NULL)
        return json_is_true(parsed);
    return format == NULL ||
           (strcmp(format, "cache") != 0 && strcmp(format, "idx") != 0 && strncmp(format, "cifar", 5) != 0);
}

/* In a synchronous step of threads one of them takes the rows, and the others wait for it at the barrier:
 * their waits for its rows are waits for input. */
static void facts_take_claims(mst_facts *f)
{
    if (!mst_facts_alone(f) || !f->lockstep)
        return;
    const mst_process_use *w = &f->workers[0];
    double others = w->seconds > 0 ? fmax(1, w->thread_seconds / w->seconds) - 1 : 0;
    double held = fmin(f->typical[MST_COST_BARRIER_WAIT], others * f->typical[MST_COST_READ]);
    f->typical[MST_COST_READ] += held;
    f->typical[MST_COST_BARRIER_WAIT] -= held;
}

/* Parsing of rows, and whether it takes cores from training. */
static void facts_take_input(mst_facts *f)
{
    const char *format = mst_run_data_text(f->run, "data", "format", NULL);
    double n = 0, ready = 0, all;
    f->pipe = facts_pipe_of(f->run->manifest);
    f->parses = facts_parses(f->run->manifest, format);
    f->cores_full = f->n_workers > 0;
    for (size_t i = 0; i < f->n_workers; i++) {
        const mst_process_use *w = &f->workers[i];
        f->cores_full = f->cores_full && facts_is_full(f, w);
        if (isnan(w->ran) || facts_shares_process(f, w))
            continue;
        f->training += w->ran;
        f->parsing += w->parsing;
        ready += w->parsing + mst_or_zero(w->delay);
        n++;
    }
    f->training = n > 0 ? f->training / n : NAN;
    f->parsing = n > 0 ? f->parsing / n : NAN;
    /* if workers and servers are threads of one process, parsing is at most all of its work */
    all = n > 0 ? ready / n : f->n_workers > 0 ? facts_ready(f, &f->workers[0]) : NAN;
    f->source_waits = all < MST_VERDICT_SOURCE * f->typical[MST_COST_READ]; /* NAN: false */
}

/* The step in the text of a mark ("step 300"); NAN: none. */
static double facts_step_of(const char *text)
{
    char *end;
    if (strncmp(text, "step ", 5) != 0)
        return NAN;
    double step = strtod(text + 5, &end);
    return end > text + 5 && *end == '\0' ? step : NAN;
}

static void facts_take_events(const mst_run_data *run, const char *kind, mst_events *out)
{
    double last = mst_run_data_real(run, "progress", "step", NULL), first_step = NAN, last_step = NAN, from,
           to = NAN;
    mst_training_window(run, &from, &to);
    *out = (mst_events){.known = run->marks.n_rows > 0, .spacing = NAN};
    for (size_t i = 0; i < run->marks.n_rows; i++) {
        mst_mark_line m = mst_run_data_mark(run, i);
        if (strcmp(m.kind, kind) != 0)
            continue;
        double step = facts_step_of(m.text);
        out->all++;
        if (!isnan(step) ? !(step < last) : !(m.time < to))
            continue;
        out->during++;
        first_step = isnan(first_step) ? step : first_step;
        last_step = step;
    }
    if (out->during >= 2 && last_step > first_step)
        out->spacing = (last_step - first_step) / (out->during - 1);
}

/* The time in which the workers' lines have training, but not more than the run has recorded: a line of a
 * very short run begins before its training. */
static void facts_take_trained(mst_facts *f)
{
    double recorded = f->figures.train_s + mst_or_zero(f->figures.eval_s) + mst_or_zero(f->figures.save_s);
    for (size_t i = 0; i < f->n_workers; i++)
        f->trained_s = fmax(f->trained_s, f->workers[i].seconds);
    if (isnan(f->since))
        f->trained_s = fmin(f->trained_s, recorded); /* of NAN and a number: the number */
}

mst_status mst_facts_of(const mst_run_data *run, mst_facts *out)
{
    mst_facts f = {.run = run, .server_link = NAN, .worker_link = NAN, .latency = NAN, .trip_s = NAN};
    mst_status st;
    TRY_OUT(st, mst_run_figures_of(run, &f.figures));
    f.losses = mst_losses_of(run, &f.figures);
    f.ps = strcmp(f.figures.strategy, "ps") == 0;
    f.ranks = strcmp(f.figures.strategy, "allreduce") == 0;
    f.launcher = mst_run_data_text(run, "mpi", "launcher", NULL);
    f.lockstep = strcmp(f.figures.mode, "async") != 0;
    const char *given = mst_run_data_text(run, "cluster", "given_strategy", NULL);
    f.given_allreduce = given != NULL && strcmp(given, "allreduce") == 0;
    f.busy_poll = mst_run_data_option_real(run, "busy-poll") > 0;
    f.quorum = mst_run_data_option_real(run, "quorum");
    f.quorum = f.quorum > 0 && f.ps && f.lockstep ? f.quorum : INFINITY;
    json_t *dense = json_object_get(json_object_get(json_object_get(run->manifest, "options"), "strategy"),
                                    "dense-model");
    f.sparse = json_number_value(json_object_get(json_object_get(run->manifest, "data"), "features")) > 0 &&
               strcmp(f.figures.model, "logreg") == 0 && !json_is_true(dense);
    double wall =
        mst_or_zero(f.figures.train_s) + mst_or_zero(f.figures.eval_s) + mst_or_zero(f.figures.save_s);
    f.eval_share = wall > 0 ? mst_or_zero(f.figures.eval_s) / wall : 0;
    TRY_OUT(st, facts_take_since(run, &f));
    TRY_OUT(st, facts_take_processes(run, &f));
    if (f.n_workers > 0)
        TRY_OUT(st, facts_take_typical(&f));
    facts_take_held(run, &f);
    facts_take_trained(&f);
    double from, to;
    if (facts_find_window(&f, &from, &to))
        mst_facts_take_network(&f, from, to);
    facts_take_servers(&f);
    facts_take_hosts(&f);
    f.hosted = f.n_servers > 0 && facts_shares_process(&f, &f.servers[0]) && f.n_servers == f.n_workers;
    facts_take_claims(&f);
    facts_take_input(&f);
    facts_take_events(run, "evaluate_begin", &f.evaluations);
    facts_take_events(run, "checkpoint_begin", &f.saves);
    f.own = f.typical[MST_COST_READ] + f.typical[MST_COST_PREPARE] + f.typical[MST_COST_COMPUTE] +
            f.typical[MST_COST_PUSH] + f.typical[MST_COST_APPLY];
    f.wait = f.typical[MST_COST_PULL_WAIT] + f.typical[MST_COST_BARRIER_WAIT];
    *out = f;
    return MST_OK;
out:
    mst_facts_fini(&f);
    return st;
}

void mst_facts_fini(mst_facts *self)
{
    mst_free(self->workers);
    mst_free(self->servers);
    *self = (mst_facts){0};
}
