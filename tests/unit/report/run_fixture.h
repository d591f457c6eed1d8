/* Run directories for the tests of reading, verdict and report: written as described in docs/RUNS.md, from a
 * few figures. The numbers are plausible, not measured. */
#ifndef TESTS_RUN_FIXTURE_H
#define TESTS_RUN_FIXTURE_H

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIXTURE_T0        1763200000.0
#define FIXTURE_PROCESSES 12

/* Of a process, per second. Phases are shares of its threads' time; the rest of it is idle. */
typedef struct fixture_process {
    const char *name, *role, *host;
    double threads, cores;
    double read, prepare, compute, pull_wait, barrier_wait, push, apply, serve, evaluate, checkpoint;
    double steps, rows, bytes_in, bytes_out;
    double cpu, host_cpu, iowait; /* cores' worth */
    double rss, disk_read, faults;
    double link_bits;       /* 0: no speed known */
    double delay;           /* cores' worth; 0: not written */
    double cpu_limit;       /* 0: none */
    double net_in, net_out; /* bytes; 0: as the messages */
    const char *paths;      /* of process.json, as it is written; NULL: none */
    int pid;                /* 0: one of its own */
    bool thread;            /* of another process on its host: no resources.csv */
} fixture_process;

typedef struct fixture_run {
    const char *strategy, *mode, *format, *model, *wire;
    const char *launcher;                             /* of an MPI job; or NULL */
    const char *entries;                              /* more of the manifest, each with a comma; or NULL */
    bool once;                                        /* the file is a pipe */
    const char *file, *eval_every, *checkpoint_every; /* NULL: clicks.tsv, 1 epoch, not written */
    int evaluations, saves; /* that many, the last one at the last step; 0: by eval_seconds */
    int global_batch;       /* as it was given; 0: not */
    int servers, workers, batch, threads, seconds;
    int pipeline, quorum, busy_poll;
    double eval_seconds; /* of all those seconds */
    double trained;      /* seconds that the manifest has; 0: all of them */
    bool dense;
    double final_error, speed; /* of the curve */
    int n;
    fixture_process processes[FIXTURE_PROCESSES];
} fixture_run;

/* Within a few percent of 1, the same every time. */
static inline double fixture_noise(unsigned *state)
{
    *state = *state * 1664525u + 1013904223u;
    return 0.96 + 0.08 * (double)(*state >> 8) / (double)(1u << 24);
}

static inline FILE *fixture_open(const char *folder, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        abort();
    return file;
}

static inline void fixture_manifest(const char *folder, const fixture_run *r, double rows, double steps)
{
    FILE *f = fixture_open(folder, "manifest.json");
    char mpi[128] = "", global[40] = "", quorum[40] = "", saving[80] = "";
    if (r->checkpoint_every != NULL)
        snprintf(saving, sizeof saving, "\"checkpoint-every\": \"%s\", ", r->checkpoint_every);
    if (r->quorum > 0)
        snprintf(quorum, sizeof quorum, "\"quorum\": %d, ", r->quorum);
    if (r->global_batch > 0)
        snprintf(global, sizeof global, "\"global-batch\": %d, ", r->global_batch);
    if (r->launcher != NULL)
        snprintf(mpi, sizeof mpi, "\"mpi\": {\"launcher\": \"%s\", \"ranks\": %d}, ", r->launcher,
                 r->workers + r->servers);
    fprintf(f,
            "{%s%s\"format\": \"muster-run\", \"version\": 1, \"muster\": \"0.1.0\", \"started\": "
            "\"2025-11-15T09:46:40Z\", \"host\": \"a\", \"threads\": %d, \"batch\": %d, \"options\": "
            "{\"training\": "
            "{\"epochs\": 3, \"eval-every\": \"%s\", %s\"seed\": 1}, \"strategy\": {\"strategy\": \"%s\", "
            "\"mode\": \"%s\", \"servers\": %d, \"workers\": %d, \"batch\": %d, %s%s"
            "\"wire\": \"%s\", "
            "\"pipeline\": %d, \"busy-poll\": %d, "
            "\"dense-model\": %s}}, \"files\": [\"%s\"], \"source\": {\"once\": %s}, \"data\": {\"source\": "
            "\"clicks.tsv\", "
            "\"format\": \"%s\", \"features\": 1000000}, \"model\": {\"name\": \"%s\"}, \"state\": \"done\", "
            "\"end\": \"all epochs done\", \"progress\": {\"step\": %.0f, \"rows\": %.0f, \"epoch\": 3, "
            "\"train_seconds\": %f, \"eval_seconds\": %f, \"save_seconds\": %g}}\n",
            mpi, r->entries ? r->entries : "", r->threads ? r->threads : 1, r->batch,
            r->eval_every ? r->eval_every : "1 epoch", saving, r->strategy, r->mode, r->servers, r->workers,
            r->batch, global, quorum, r->wire ? r->wire : "fp32", r->pipeline, r->busy_poll,
            r->dense ? "true" : "false", r->file ? r->file : "clicks.tsv", r->once ? "true" : "false",
            r->format ? r->format : "cache", r->model ? r->model : "logreg", steps, rows,
            r->trained > 0 ? r->trained : r->seconds - r->eval_seconds, r->eval_seconds,
            r->trained > 0 ? 0 : 0.5);
    fclose(f);
}

static inline void fixture_metrics(const char *folder, const fixture_run *r, double rows, double steps)
{
    FILE *f = fixture_open(folder, "metrics.csv");
    double speed = r->speed > 0 ? r->speed : 4, final = r->final_error > 0 ? r->final_error : 0.2;
    fprintf(f, "step,rows,epoch,train_seconds,eval_seconds,lr,train_loss,set,loss,accuracy,auc,top5\n");
    for (int i = 1; i <= 20; i++) {
        double x = i / 20.0, error = final + (0.5 - final) * exp(-speed * x);
        double train = (r->trained > 0 ? r->trained : r->seconds - r->eval_seconds) * x,
               eval = r->eval_seconds * x;
        fprintf(f, "%.0f,%.0f,%d,%f,%f,0.1,%f,%s,%f,%f,%f,\n", steps * x, rows * x, (int)(3 * x), train, eval,
                error * 1.9, "test", error * 2, 1 - error, 1 - error * 0.8);
    }
    fclose(f);
}

/* Evaluations at a third and at two thirds, a checkpoint after each, in the middle of their share. */
static inline void fixture_marks(const char *folder, const fixture_run *r, double steps)
{
    FILE *f = fixture_open(folder, "marks.csv");
    double half = r->eval_seconds / 2;
    fprintf(f, "time,process,kind,text\n%f,,start,\n", FIXTURE_T0);
    for (int i = 0; i < r->n; i++)
        fprintf(f, "%f,%s,join,\n", FIXTURE_T0 + 0.1, r->processes[i].name);
    for (int k = 1; k <= r->evaluations; k++)
        fprintf(f, "%f,,evaluate_begin,step %.0f\n", FIXTURE_T0 + (double)r->seconds * k / r->evaluations,
                floor(steps * k / r->evaluations));
    for (int k = 1; k <= r->saves; k++)
        fprintf(f, "%f,,checkpoint_begin,step %.0f\n", FIXTURE_T0 + (double)r->seconds * k / r->saves,
                floor(steps * k / r->saves));
    for (int k = 1; k <= 2 && half > 0 && r->evaluations == 0; k++) {
        double at = FIXTURE_T0 + r->seconds * k / 3.0;
        fprintf(f, "%f,,evaluate_begin,test\n%f,,evaluate_end,\"test, loss 0.4\"\n", at, at + half);
        fprintf(f, "%f,,checkpoint_begin,\n%f,,checkpoint_end,step-1\n", at + half, at + half + 0.4);
    }
    fprintf(f, "%f,,end,all epochs done\n", FIXTURE_T0 + r->seconds);
    fclose(f);
}

static inline void fixture_info(const char *folder, const fixture_process *p, int index)
{
    FILE *f = fixture_open(folder, "process.json");
    fprintf(f,
            "{\"process\": \"%s\", \"role\": \"%s\", \"index\": %d, \"host\": \"%s\", \"pid\": %d, "
            "\"started\": %f, "
            "\"cores\": %.0f, \"memory_bytes\": 25000000000, \"clock_offset_s\": 0, \"links\": [{\"name\": "
            "\"eth0\"",
            p->name, p->role, index, p->host, p->pid != 0 ? p->pid : 4000 + index, FIXTURE_T0, p->cores);
    if (p->link_bits > 0)
        fprintf(f, ", \"bits_per_s\": %.0f", p->link_bits);
    fprintf(f, "}], ");
    if (p->cpu_limit > 0)
        fprintf(f, "\"cpu_limit\": %f, ", p->cpu_limit);
    if (p->paths != NULL)
        fprintf(f, "\"paths\": %s, ", p->paths);
    fprintf(f, "\"threads\": %.0f}\n", p->threads);
    fclose(f);
}

static inline void fixture_lines(const char *folder, const fixture_run *r, const fixture_process *p)
{
    FILE *spans = fixture_open(folder, "spans.csv"), *resources = fixture_open(folder, "resources.csv");
    unsigned state = 7 + (unsigned)strlen(p->name) + (unsigned)p->name[strlen(p->name) - 1];
    double net_in = p->net_in > 0 ? p->net_in : p->bytes_in,
           net_out = p->net_out > 0 ? p->net_out : p->bytes_out;
    fprintf(spans,
            "time,interval_s,threads,steps,rows,read_s,prepare_s,compute_s,pull_wait_s,barrier_wait_s,push_s,"
            "apply_s,serve_s,evaluate_s,checkpoint_s,idle_s,bytes_in,bytes_out,staleness_mean,staleness_max,"
            "dropped_rows\n");
    fprintf(resources,
            "time,interval_s,cpu_user_s,cpu_system_s,cpu_iowait_s,cpu_idle_s,cpu_steal_s,cpu_busiest,"
            "cpu_cores,mem_used,mem_free,mem_cached,page_ins,context_switches,disk_read,disk_write,net_in,"
            "net_out,net_eth0_in,net_eth0_out,net_lo_in,net_lo_out,proc_cpu_user_s,proc_cpu_system_s,"
            "proc_rss,proc_read,proc_write,proc_major_faults,proc_switches,proc_waits,proc_delay_s\n");
    for (int i = 1; i <= r->seconds; i++) {
        double t = FIXTURE_T0 + i, n = fixture_noise(&state), k = p->threads;
        double sum = p->read + p->prepare + p->compute + p->pull_wait + p->barrier_wait + p->push + p->apply +
                     p->serve + p->evaluate + p->checkpoint;
        fprintf(spans, "%f,1,%.0f,%.0f,%.0f,%f,%f,%f,%f,%f,%f,%f,%f,%f,%f,%f,%.0f,%.0f,,,0\n", t, k,
                p->steps * n, p->rows * n, p->read * k, p->prepare * k, p->compute * k, p->pull_wait * k,
                p->barrier_wait * k, p->push * k, p->apply * k, p->serve * k, p->evaluate * k,
                p->checkpoint * k, (sum < 1 ? 1 - sum : 0) * k, p->bytes_in * n, p->bytes_out * n);
        char delay[32] = "";
        if (p->delay > 0)
            snprintf(delay, sizeof delay, "%f", p->delay);
        fprintf(resources,
                "%f,1,%f,%f,%f,%f,0,%f,%f "
                "%f,%.0f,%.0f,%.0f,0,900,%.0f,%.0f,%.0f,%.0f,%.0f,%.0f,0,0,%f,%f,%.0f,%.0f,"
                "%.0f,%.0f,5,50,%s\n",
                t, p->host_cpu * 0.8 * n, p->host_cpu * 0.2, p->iowait,
                fmax(0, p->cores - p->host_cpu - p->iowait), fmin(1, p->host_cpu * n), fmin(1, p->host_cpu),
                p->host_cpu / 2, 2e9 + 1e6 * i, 20e9, 3e9, p->disk_read * n, i % 20 == 0 ? 4e7 : 1e4,
                net_in * n, net_out * n, net_in * n, net_out * n, p->cpu * 0.9 * n, p->cpu * 0.1,
                (p->rss > 0 ? p->rss : 2e8) * (1 - exp(-i / 8.0)), p->disk_read * n, 1e3, p->faults, delay);
    }
    fclose(spans);
    fclose(resources);
    if (p->thread) {
        char path[1024];
        snprintf(path, sizeof path, "%s/resources.csv", folder);
        unlink(path);
    }
}

/* Makes the folder and everything in it. */
static inline void fixture_write(const char *folder, const fixture_run *r)
{
    char path[900];
    double rows = 0, steps = 0;
    for (int i = 0; i < r->n; i++) {
        rows += r->processes[i].rows * r->seconds;
        steps = fmax(steps, r->processes[i].steps * r->seconds);
    }
    mkdir(folder, 0777);
    fixture_manifest(folder, r, rows, steps);
    fixture_metrics(folder, r, rows, steps);
    fixture_marks(folder, r, steps);
    snprintf(path, sizeof path, "%s/processes", folder);
    mkdir(path, 0777);
    for (int i = 0; i < r->n; i++) {
        const char *dash = strrchr(r->processes[i].name, '-');
        snprintf(path, sizeof path, "%s/processes/%s", folder, r->processes[i].name);
        mkdir(path, 0777);
        fixture_info(path, &r->processes[i], dash != NULL ? atoi(dash + 1) : 0);
        fixture_lines(path, r, &r->processes[i]);
    }
}

/* ---- processes to start from ---- */

static inline fixture_process fixture_worker(const char *name)
{
    return (fixture_process){.name = name,
                             .role = "worker",
                             .host = name,
                             .threads = 1,
                             .cores = 2,
                             .prepare = 0.1,
                             .compute = 0.8,
                             .push = 0.02,
                             .barrier_wait = 0.05,
                             .steps = 100,
                             .rows = 10000,
                             .bytes_in = 2e6,
                             .bytes_out = 2e6,
                             .cpu = 0.95,
                             .host_cpu = 1,
                             .link_bits = 1e9};
}

static inline fixture_process fixture_server(const char *name)
{
    return (fixture_process){.name = name,
                             .role = "server",
                             .host = name,
                             .threads = 1,
                             .cores = 2,
                             .apply = 0.05,
                             .serve = 0.05,
                             .steps = 100,
                             .bytes_in = 4e6,
                             .bytes_out = 4e6,
                             .cpu = 0.1,
                             .host_cpu = 0.15,
                             .link_bits = 1e9};
}

/* A parameter server job of 3 workers and 1 server in which computing dominates. */
static inline fixture_run fixture_job(const char *mode)
{
    fixture_run r = {
        .strategy = "ps", .mode = mode, .servers = 1, .workers = 3, .batch = 100, .seconds = 60, .n = 4};
    r.processes[0] = fixture_server("server-0");
    r.processes[1] = fixture_worker("worker-0");
    r.processes[2] = fixture_worker("worker-1");
    r.processes[3] = fixture_worker("worker-2");
    return r;
}

/* Ranks of strategy allreduce, each on a host of its own. */
static inline fixture_run fixture_ranks(void)
{
    static const char *const names[] = {"rank-0", "rank-1", "rank-2"}, *const hosts[] = {"a", "b", "c"};
    fixture_run r = {.strategy = "allreduce",
                     .mode = "sync",
                     .launcher = "mpirun (Open MPI)",
                     .workers = 3,
                     .batch = 100,
                     .seconds = 60,
                     .n = 3};
    for (int i = 0; i < 3; i++) {
        r.processes[i] = fixture_worker(names[i]);
        r.processes[i].role = "rank";
        r.processes[i].host = hosts[i];
        r.processes[i].link_bits = 0;
    }
    return r;
}

static inline fixture_run fixture_local(void)
{
    fixture_run r = {.strategy = "local", .mode = "sync", .batch = 100, .threads = 2, .seconds = 60, .n = 1};
    r.processes[0] = fixture_worker("local");
    r.processes[0].role = "local";
    r.processes[0].threads = 2;
    r.processes[0].cpu = 1.9;
    r.processes[0].host_cpu = 1.95;
    r.processes[0].bytes_in = r.processes[0].bytes_out = 0;
    return r;
}

#endif
