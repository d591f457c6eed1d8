/* `muster plan`: the speed, traffic and memory of a job of servers and workers that has not run, from the
 * measured costs of a step (job_costs.c) and the model of a step (step_model.h). docs/PLAN.md has the
 * formulas and the assumptions.
 *
 * Processes are placed as `muster launch` places them: servers, then workers, on the hosts in turn. Times are
 * in seconds, sizes in bytes. */
#ifndef MST_REPORT_JOB_PLAN_H
#define MST_REPORT_JOB_PLAN_H

#include "report/verdict.h"

/* The costs of a worker's step, of one run. */
typedef struct mst_step_cost {
    double rows;
    double own_s, overlap_s; /* own work of the training threads; of that: preparing the next rows */
    double worker_cpu_s;     /* CPU time of the worker's process */
    double server_cpu_s;     /* CPU time of the servers, all together */
    double push_bytes, pull_bytes;
} mst_step_cost;

/* The costs of a training, from one run or from two that differ in their batch. */
typedef struct mst_job_costs {
    mst_step_cost at[2]; /* by rows */
    size_t n;
    double servers; /* of the runs */
    bool sparse;    /* only the keys of a batch travel */
    double entries; /* of a row; NAN: not known */
    double parameters;
    double store_bytes;              /* weights and optimizer state of all servers, without replicas */
    double value_bytes;              /* of a weight on the wire */
    double worker_base, server_base; /* resident memory besides the formulas of docs/PLAN.md */
    double part;                     /* floats of a server from which steps travel in parts; 0: never */
    double threads, cores;           /* of a worker; of its host */
    double link, rtt_s;              /* bytes/s of the fastest path, mean round trip; 0: not known */
} mst_job_costs;

/* Adds the costs of a run. MST_EINPUT if it has no servers and workers in processes
 * of their own, no spans, or more than two runs are added; MST_ENOMEM. costs: zeroes at first. */
mst_status mst_job_costs_add(mst_job_costs *self, const mst_run_data *run);

typedef enum mst_plan_mode { MST_PLAN_SYNC, MST_PLAN_SSP, MST_PLAN_ASYNC } mst_plan_mode;

typedef struct mst_job_shape {
    mst_plan_mode mode;
    double servers, workers, hosts; /* hosts 0: one for each worker or server, whichever are more */
    double batch;                   /* rows of a worker's step */
    double pipeline, replicas;
    double cores;        /* of each host */
    double shared_cores; /* that all hosts share, as virtual machines on one host do; 0: none */
    double link;         /* bytes/s of a host's link, each way */
    double rtt_s;
} mst_job_shape;

/* A resource and the rate that it would allow alone. */
typedef struct mst_plan_limit {
    mst_bottleneck kind;
    double seconds; /* per step of all workers */
    double rows_per_s;
} mst_plan_limit;
#define MST_PLAN_LIMITS 6

typedef struct mst_job_forecast {
    double step_s;                       /* sync: of all workers together; else the mean of a worker's */
    double rows_per_s;                   /* of all workers */
    double push_bytes, pull_bytes;       /* of a worker's step */
    double server_in, server_out;        /* bytes/s on the link of a host with servers */
    double worker_memory, server_memory; /* of a process */
    mst_bottleneck bottleneck;
    mst_plan_limit limits[MST_PLAN_LIMITS]; /* those that apply, the lowest rate first */
    size_t n_limits;
} mst_job_forecast;
void mst_job_forecast_of(const mst_job_costs *costs, const mst_job_shape *shape, mst_job_forecast *out);

/* The fewest processes with at least 95% of the highest rate of 1 to max_workers workers and 1 to as many
 * servers; with fixed workers: of servers alone. hosts of the shape: as above. */
mst_job_shape mst_job_best(const mst_job_costs *costs, const mst_job_shape *shape, double max_workers,
                           bool fixed_workers);

#endif
