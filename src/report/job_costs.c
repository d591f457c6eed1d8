/* The costs of a worker's step from a run directory, for `muster plan` (job_plan.h).
 *
 * Times are CPU times, or times of phases without the waits for a core, so that a busy machine changes them
 * little: each phase of a process is taken to have run for the same part of its runnable time. */
#include <math.h>
#include <string.h>

#include "report/job_plan.h"
#include "report/verdict_impl.h"

#define BASE_BYTES 8e6 /* resident memory of a process that holds no rows and no weights */

/* The part of the time in which a process wanted a core and had one; 1 if not known. */
static double costs_got(const mst_process_use *p)
{
    return p->delay > 0 && p->cpu > 0 ? p->cpu / (p->cpu + p->delay) : 1;
}

static mst_status costs_check(const mst_facts *f, const mst_run_data *run)
{
    if (!f->ps || f->n_servers == 0 || f->n_workers == 0)
        return mst_fail(
            MST_EINPUT,
            "%s: not a run of servers and workers that trained for a second or more; make one with "
            "muster launch, or give the training after --",
            run->path);
    for (size_t i = 0; i < f->n_workers; i++)
        for (size_t k = 0; k < f->n_servers; k++) {
            const mst_process_data *w = f->workers[i].process, *s = f->servers[k].process;
            if (w->pid == s->pid && strcmp(w->host, s->host) == 0)
                return mst_fail(MST_EINPUT,
                                "%s: its servers and workers are threads of one process, whose CPU times are "
                                "not separate; make a run with muster launch",
                                run->path);
        }
    if (isnan(f->workers[0].cpu) || isnan(f->servers[0].cpu) || !(f->figures.batch >= 1))
        return mst_fail(MST_EINPUT, "%s: the run has no resources.csv with CPU times", run->path);
    return MST_OK;
}

static mst_step_cost costs_of_step(const mst_facts *f)
{
    double got = 0, cpu = 0, server = 0, steps = 0, all_steps = 0, out = 0, in = 0, n = (double)f->n_workers;
    for (size_t i = 0; i < f->n_workers; i++) {
        const mst_process_use *w = &f->workers[i];
        mst_costs all;
        mst_costs_of(w->process, -INFINITY, INFINITY, &all);
        got += costs_got(w) / n;
        cpu += w->cpu * w->seconds;
        steps += w->steps;
        all_steps += all.steps;
        out += all.bytes_out;
        in += all.bytes_in;
    }
    for (size_t i = 0; i < f->n_servers; i++)
        server += f->servers[i].cpu * f->servers[i].seconds;
    return (mst_step_cost){.rows = f->figures.batch,
                           .own_s = f->own * f->step_s * got,
                           .overlap_s = f->typical[MST_COST_PREPARE] * f->step_s * got,
                           .worker_cpu_s = cpu * (1 - f->typical[MST_COST_EVALUATE]) / fmax(steps, 1),
                           .server_cpu_s = server / fmax(steps, 1),
                           .push_bytes = out / fmax(all_steps, 1),
                           .pull_bytes = in / fmax(all_steps, 1)};
}

/* The network of the run, by the paths of its workers and servers to processes on other hosts. */
static void costs_take_network(const mst_facts *f, mst_job_costs *c)
{
    double trips = 0, n_trips = 0;
    for (size_t i = 0; i < f->n_workers + f->n_servers; i++) {
        const mst_process_use *use = i < f->n_workers ? &f->workers[i] : &f->servers[i - f->n_workers];
        for (size_t k = 0; k < MST_PROCESS_PATHS_MAX; k++) {
            const mst_process_path *path = &use->process->paths[k];
            c->link = fmax(c->link, path->bits_per_s / 8); /* of NAN and a number: the number */
            trips += mst_or_zero(path->trip_s);
            n_trips += !isnan(path->trip_s);
        }
    }
    c->rtt_s = n_trips > 0 ? trips / n_trips : c->rtt_s;
}

/* The memory of the processes beyond the formulas. */
static mst_status costs_take_memory(const mst_run_data *run, const mst_facts *f, mst_job_costs *c)
{
    mst_job_forecast formula;
    mst_job_shape shape = {.servers = (double)f->n_servers,
                           .workers = (double)f->n_workers,
                           .batch = f->figures.batch,
                           .replicas = mst_or_zero(mst_run_data_option_real(run, "replicas")),
                           .link = 1};
    mst_loads worker, server;
    c->worker_base = c->server_base = 0;
    mst_job_forecast_of(c, &shape, &formula);
    TRY(mst_loads_of(run, f->workers[0].process, NAN, NAN, &worker));
    TRY(mst_loads_of(run, f->servers[0].process, NAN, NAN, &server));
    c->worker_base = fmax(BASE_BYTES, worker.all[MST_LOAD_MEMORY].peak - formula.worker_memory);
    c->server_base = fmax(BASE_BYTES, server.all[MST_LOAD_MEMORY].peak - formula.server_memory);
    return MST_OK;
}

mst_status mst_job_costs_add(mst_job_costs *c, const mst_run_data *run)
{
    mst_facts f;
    mst_status st;
    if (c->n == 2)
        return mst_fail(MST_EINPUT, "%s: a plan needs one run, or two that differ in their batch", run->path);
    TRY(mst_facts_of(run, &f));
    TRY_OUT(st, costs_check(&f, run));
    mst_step_cost cost = costs_of_step(&f);
    if (c->n == 1 && (cost.rows == c->at[0].rows || c->sparse != f.sparse))
        TRY_OUT(st, mst_fail(MST_EINPUT, "%s: the runs of a plan must differ in their batch, and in it alone",
                             run->path));
    size_t at = c->n == 1 && cost.rows > c->at[0].rows;
    if (c->n == 1 && at == 0)
        c->at[1] = c->at[0];
    c->at[at] = cost;
    c->n++;
    double rows = mst_run_data_real(run, "data", "rows", NULL);
    c->servers = (double)f.n_servers;
    c->sparse = f.sparse;
    c->entries = mst_run_data_real(run, "data", "entries", NULL) / rows;
    c->value_bytes = mst_run_data_option_is(run, "wire", "fp32") ? 4 : 2;
    c->parameters =
        f.sparse ? mst_run_data_real(run, "data", "features", NULL) + 1 : cost.pull_bytes / c->value_bytes;
    double store = mst_run_data_real(run, "store_bytes", NULL);
    c->store_bytes =
        isnan(store) ? c->parameters * sizeof(float) : store; /* of a run of an earlier version */
    c->part = mst_or_zero(mst_run_data_option_real(run, "part"));
    c->threads = fmax(1, mst_or_zero(f.figures.n_threads));
    c->cores = mst_or_zero(f.workers[0].cores);
    costs_take_network(&f, c);
    st = costs_take_memory(run, &f, c);
out:
    mst_facts_fini(&f);
    return st;
}
