/* clang-format off */
/* Forecast of a job (job_plan.h).
 *
 * W workers and M servers on H hosts; k = ceil(W/H) workers and m = ceil(M/H) servers are on host 1. A
 * worker's step of r rows costs, by the measured points:
 *
 *   own(r), cpu(r)   a + b r; with one point a is MST_STEP_MESSAGE_S, at most half of it
 *   bytes(r)         whole model: constant; keys: c r^e through the two points, or with one point e =
 *                    log(keys) / log(entries), the growth of distinct keys (Heaps) that starts at one
 *   server           a' + b' bytes for each of the M servers, of bytes / M; with one point a' is that too
 *
 * The link of a host with servers carries, per step of all workers and direction,
 *   m/M (W - k) messages of other hosts' workers, and those of its own k workers with the other servers.
 * With one server, or one host, workers beside it are near: their messages use no link.
 *
 * In lockstep, with n workers behind the link and in, out the times of its directions (mst_step_link):
 *   link = max(in, out) + min(in, out) (1/n + (1 - 1/n) x),  x = bytes / (bytes + WINDOW) of one answer.
 * Pushes of own workers to other servers go out while those of other workers come in: the longer counts.
 */
/* clang-format on */
#include "report/job_plan.h"

#include <math.h>
#include <stdlib.h>

#include "report/step_model.h"
#include "report/verdict_thresholds.h"

#define LINK_SHARE  0.95 /* of a link that messages use; the rest are headers */
#define CROWDED     1.1  /* times the CPU time of processes that outnumber their cores: caches are cold */
#define PART_HIDDEN 0.6  /* of own work that overlaps with the transfer of steps in parts */
#define ENOUGH      0.95 /* of the highest rate */

/* ---- costs at other batches ---- */

/* a + b r through the points; with one of them a is a request's. Of two points that fall, the first. */
static double cost_affine(const mst_job_costs *c, double rows, double y0, double y1)
{
    const mst_step_cost *p = c->at;
    double fixed = fmin(MST_STEP_MESSAGE_S, y0 / 2), slope = (y0 - fixed) / p[0].rows;
    if (c->n == 2) {
        slope = fmax(0, (y1 - y0) / (p[1].rows - p[0].rows));
        fixed = y0 - slope * p[0].rows;
        if (fixed < 0) { /* through the origin and the larger one */
            fixed = 0;
            slope = y1 / p[1].rows;
        }
    }
    return fixed + slope * rows;
}

/* The growth of the bytes of a step: an exponent of its rows. */
static double cost_growth(const mst_job_costs *c)
{
    const mst_step_cost *p = c->at;
    if (!c->sparse)
        return 0;
    if (c->n == 2)
        return fmin(1,
                    fmax(0, log((p[1].push_bytes + p[1].pull_bytes) / (p[0].push_bytes + p[0].pull_bytes)) /
                                log(p[1].rows / p[0].rows)));
    double keys = p[0].pull_bytes / c->value_bytes, entries = c->entries * p[0].rows;
    return keys > 1 && entries > keys ? log(keys) / log(entries) : 1;
}

/* The point whose bytes are scaled: the nearest. */
static const mst_step_cost *cost_nearest(const mst_job_costs *c, double rows)
{
    return c->n == 2 && fabs(log(rows / c->at[1].rows)) < fabs(log(rows / c->at[0].rows)) ? &c->at[1]
                                                                                          : &c->at[0];
}

/* CPU time of each of M servers for one worker's step that moves so many bytes. */
static double cost_server(const mst_job_costs *c, double bytes, double servers)
{
    const mst_step_cost *p = c->at;
    double b0 = p[0].push_bytes + p[0].pull_bytes, s0 = p[0].server_cpu_s;
    double fixed = fmin(MST_STEP_MESSAGE_S, s0 / c->servers / 2);
    double slope = (s0 - c->servers * fixed) / fmax(b0, 1);
    if (c->n == 2) {
        double b1 = p[1].push_bytes + p[1].pull_bytes, s1 = p[1].server_cpu_s;
        if (b1 > 1.5 * b0 && s1 > s0 && s0 - (s1 - s0) / (b1 - b0) * b0 > 0) {
            slope = (s1 - s0) / (b1 - b0);
            fixed = (s0 - slope * b0) / c->servers;
        }
    }
    return fixed + slope * bytes / servers;
}

/* Own work, CPU times and messages of a worker's step in the job. */
typedef struct work {
    double own, overlap, cpu; /* of a worker */
    double server;            /* CPU time of each server */
    double push, pull;        /* bytes */
} work;

static work job_work(const mst_job_costs *c, const mst_job_shape *s)
{
    const mst_step_cost *first = c->at, *last = &c->at[c->n - 1], *nearest = cost_nearest(c, s->batch);
    double grown = pow(s->batch / nearest->rows, cost_growth(c));
    if (c->sparse) /* not more than the whole model */
        grown = fmin(grown, c->parameters * c->value_bytes / fmax(nearest->pull_bytes, 1));
    double messages = (s->servers - c->servers) * MST_STEP_MESSAGE_S; /* to more or fewer servers */
    work w = {.push = nearest->push_bytes * grown, .pull = nearest->pull_bytes * grown};
    w.server = cost_server(c, w.push + w.pull, s->servers);
    w.own = fmax(0, cost_affine(c, s->batch, first->own_s, last->own_s) + messages);
    w.cpu = fmax(w.own, cost_affine(c, s->batch, first->worker_cpu_s, last->worker_cpu_s) + messages);
    w.overlap = w.own * fmin(1, nearest->overlap_s / fmax(nearest->own_s, 1e-12));
    if (!c->sparse && c->part > 0 && c->parameters / s->servers > c->part)
        w.overlap = fmax(w.overlap, PART_HIDDEN * w.own);
    return w;
}

/* ---- placement ---- */

typedef struct placement {
    double hosts, beside, servers; /* beside, servers: workers and servers on host 1 */
    double near;                   /* workers whose messages use no link: those beside all servers */
} placement;

static placement job_place(const mst_job_shape *s)
{
    placement p = {.hosts = s->hosts > 0 ? s->hosts : fmax(s->workers, s->servers)};
    p.beside = ceil(s->workers / p.hosts);
    p.servers = ceil(s->servers / p.hosts);
    p.near = p.servers >= s->servers ? p.beside : 0;
    return p;
}

/* Time that cores take for a step of all workers: those of host 1, or the shared ones; 0: each process has a
 * core. Processes that take turns work longer. */
static double job_cores(const mst_job_costs *c, const mst_job_shape *s, const placement *at, work *w)
{
    bool shared = s->shared_cores > 0;
    double cores = shared ? s->shared_cores : s->cores;
    double workers = shared ? s->workers : at->beside, servers = shared ? s->servers : at->servers;
    if (!(cores > 0) || workers * c->threads + servers <= cores)
        return 0;
    w->own *= CROWDED;
    w->overlap *= CROWDED;
    w->cpu *= CROWDED;
    w->server *= CROWDED;
    return (workers * w->cpu + servers * s->workers * w->server) / cores;
}

/* Times of links for a step of all workers. */
typedef struct transfers {
    double in, out;               /* of a host with servers */
    double worker_in, worker_out; /* of a host with workers, another one if there is one */
    double lockstep;              /* of a host with servers, both directions as they overlap */
    double far;                   /* workers behind the link of a server, at least 1 */
    bool at_server;               /* the link of a host with servers takes longer */
} transfers;

static transfers job_transfers(const mst_job_shape *s, const placement *at, const work *w)
{
    double rate = s->link * LINK_SHARE, others = s->workers - at->beside, share = at->servers / s->servers;
    transfers t = {.far = fmax(1, s->workers - at->near)};
    if (at->hosts > 1) {
        t.in = (others * w->push * share + at->beside * w->pull * (1 - share)) / rate;
        t.out = (others * w->pull * share + at->beside * w->push * (1 - share)) / rate;
        double leaves =
            s->servers < at->hosts ? 1 : 1 - share; /* of a message; no host is without a server */
        t.worker_in = at->beside * leaves * w->pull / rate;
        t.worker_out = at->beside * leaves * w->push / rate;
    }
    /* own workers' messages to other servers travel against those of other hosts' workers to this one */
    double longer = at->hosts > 1 ? fmax(others * share, at->beside * (1 - share)) / rate : 0;
    t.lockstep = mst_step_link(longer * w->push, longer * w->pull, t.far, w->pull / s->servers);
    t.at_server = t.lockstep >= t.worker_in + t.worker_out;
    return t;
}

/* ---- forecast ---- */

static mst_step_model job_model(const mst_job_shape *s, const placement *at, const work *w,
                                const transfers *t, double cores)
{
    mst_step_model m = {.lockstep = s->mode == MST_PLAN_SYNC,
                        .workers = s->workers,
                        .near = s->mode == MST_PLAN_ASYNC ? at->near : 0,
                        .rows = s->batch,
                        .own = w->own,
                        .overlap = w->overlap,
                        .trips = at->near < s->workers ? s->rtt_s : 0,
                        .server = s->workers * w->server,
                        .server_use = w->server,
                        .cores = cores,
                        .cores_use = cores / s->workers,
                        .n_cores = s->shared_cores,
                        .in_flight = 1 + s->pipeline,
                        .training = 1,
                        .base_workers = s->workers};
    if (m.lockstep) {
        m.server_link = t->at_server ? t->lockstep : 0;
        m.worker_link = t->at_server ? 0 : t->worker_in + t->worker_out;
        return m;
    }
    /* the busier direction is a station, the other one a delay */
    m.link_use = t->at_server ? fmax(t->in, t->out) / t->far : 0;
    m.link_delay = t->at_server ? fmin(t->in, t->out) / t->far : 0;
    m.worker_link = t->at_server ? 0 : t->worker_in + t->worker_out;
    if (s->shared_cores <= 0 && cores > 0) { /* the processes of a host take turns */
        m.own = fmax(w->own, cores);
        m.cores_use = 0;
    }
    return m;
}

static void job_add_limit(mst_job_forecast *f, mst_bottleneck kind, double seconds, double rows)
{
    mst_plan_limit limit = {.kind = kind, .seconds = seconds, .rows_per_s = rows / seconds};
    if (!(seconds > 0))
        return;
    size_t at = f->n_limits++;
    for (; at > 0 && f->limits[at - 1].rows_per_s > limit.rows_per_s; at--)
        f->limits[at] = f->limits[at - 1];
    f->limits[at] = limit;
}

static void job_add_limits(const mst_step_model *m, const transfers *t, double own, mst_job_forecast *f)
{
    double rows = m->workers * m->rows;
    job_add_limit(f, MST_BOTTLENECK_COMPUTE, own, rows);
    job_add_limit(f, MST_BOTTLENECK_CORES, m->cores, rows);
    job_add_limit(f, MST_BOTTLENECK_SERVER_CPU, m->server, rows);
    if (m->lockstep) {
        job_add_limit(f, MST_BOTTLENECK_SERVER_NETWORK, t->lockstep, rows);
        job_add_limit(f, MST_BOTTLENECK_WORKER_NETWORK, t->worker_in + t->worker_out, rows);
        job_add_limit(f, MST_BOTTLENECK_LATENCY, m->trips, rows);
    } else { /* of the workers behind a link */
        rows *= (m->workers - m->near) / m->workers;
        job_add_limit(f, MST_BOTTLENECK_SERVER_NETWORK, fmax(t->in, t->out), rows);
        job_add_limit(f, MST_BOTTLENECK_WORKER_NETWORK, fmax(t->worker_in, t->worker_out), rows);
        job_add_limit(f, MST_BOTTLENECK_LATENCY, m->trips / m->in_flight, rows);
    }
}

/* Without lockstep: the station that is used most (it has the lowest of the limits), if queues form there;
 * else the greatest part of the time of a worker. In lockstep: the greatest part. */
static mst_bottleneck job_bottleneck(const mst_step_model *m, const transfers *t)
{
    double near, steps = mst_step_model_steps(m, &near);
    const struct {
        mst_bottleneck kind;
        double part, use;
    } parts[] = {
        {MST_BOTTLENECK_COMPUTE, m->lockstep ? fmax(m->own, m->cores) : m->own,
         steps * fmax(m->cores_use, m->own / m->workers)},
        {MST_BOTTLENECK_LATENCY, m->trips, 0},
        {MST_BOTTLENECK_SERVER_CPU, m->lockstep ? m->server : m->server_use, steps * m->server_use},
        {t->at_server ? MST_BOTTLENECK_SERVER_NETWORK : MST_BOTTLENECK_WORKER_NETWORK,
         m->worker_link + (m->lockstep ? m->server_link : m->link_use + m->link_delay),
         (steps - near) * m->link_use},
    };
    size_t part = 0, use = 0;
    for (size_t i = 1; i < sizeof parts / sizeof *parts; i++) {
        part = parts[i].part > parts[part].part ? i : part;
        use = parts[i].use > parts[use].use ? i : use;
    }
    return !m->lockstep && parts[use].use >= MST_VERDICT_QUEUES ? parts[use].kind : parts[part].kind;
}

static void job_take_memory(const mst_job_costs *c, const mst_job_shape *s, mst_job_forecast *f)
{
    f->server_memory = c->server_base + c->store_bytes / s->servers * (1 + s->replicas) +
                       s->workers * (f->push_bytes + f->pull_bytes) / s->servers;
    /* weights, gradient and both messages of the keys of a batch, or of all weights */
    double held = c->sparse ? f->pull_bytes / c->value_bytes : c->parameters;
    f->worker_memory = c->worker_base + held * 2 * sizeof(float) + f->push_bytes + f->pull_bytes;
}

void mst_job_forecast_of(const mst_job_costs *c, const mst_job_shape *s, mst_job_forecast *out)
{
    work w = job_work(c, s);
    placement at = job_place(s);
    transfers t = job_transfers(s, &at, &w);
    double cores = job_cores(c, s, &at, &w);
    mst_step_model m = job_model(s, &at, &w, &t, cores);
    double near, steps = mst_step_model_steps(&m, &near);
    *out = (mst_job_forecast){.push_bytes = w.push, .pull_bytes = w.pull};
    out->rows_per_s = mst_step_model_rate(&m);
    out->step_s = s->workers * s->batch / out->rows_per_s;
    /* steps of a worker behind the link, per second, and what the link carries for one of each of them */
    double carried =
        (steps - near) / (s->workers - m.near > 0 ? s->workers - m.near : 1) * s->link * LINK_SHARE;
    out->server_in = t.in * carried;
    out->server_out = t.out * carried;
    out->bottleneck = job_bottleneck(&m, &t);
    job_add_limits(&m, &t, w.own, out);
    job_take_memory(c, s, out);
}

/* ---- search ---- */

/* 1, 2, 3, 4, 6, 8, 12, ... up to `most`, which is the last. */
static uint64_t job_next(uint64_t n, uint64_t most)
{
    uint64_t power = 1;
    while (power <= n / 2)
        power *= 2;
    uint64_t next = n < 2 ? n + 1 : n < power + power / 2 ? power + power / 2 : 2 * power;
    return n < most && next > most ? most : next;
}

mst_job_shape mst_job_best(const mst_job_costs *costs, const mst_job_shape *shape, double max_workers,
                           bool fixed_workers)
{
    mst_job_shape best = *shape;
    double highest = 0, fewest = INFINITY, reached = 0;
    uint64_t most = (uint64_t)(fixed_workers ? shape->workers : max_workers);
    /* two servers on a host gain nothing */
    uint64_t limit = shape->hosts > 0 ? (uint64_t)shape->hosts : most;
    for (int pass = 0; pass < 2; pass++)
        for (uint64_t w = fixed_workers ? most : 1; w <= most; w = job_next(w, most)) {
            uint64_t most_servers = w < limit ? w : limit;
            for (uint64_t servers = 1; servers <= most_servers; servers = job_next(servers, most_servers)) {
                mst_job_shape s = *shape;
                mst_job_forecast f;
                s.workers = (double)w;
                s.servers = (double)servers;
                if (s.replicas > 0 && servers % 2 != 0)
                    continue;
                mst_job_forecast_of(costs, &s, &f);
                highest = fmax(highest, pass == 0 ? f.rows_per_s : 0);
                double processes = s.workers + s.servers;
                bool fewer = processes < fewest || (processes == fewest && f.rows_per_s > reached);
                if (pass == 1 && f.rows_per_s >= ENOUGH * highest && fewer) {
                    fewest = processes;
                    reached = f.rows_per_s;
                    best = s;
                }
            }
        }
    return best;
}
