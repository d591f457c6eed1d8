/* The model of a training step: the advice of the verdict (verdict_advice.c) and `muster plan` (job_plan.c)
 * use it.
 *
 * A step of one worker consists of parts. Their unit is free: seconds, or the present time of a step. A part
 * is the time of one worker's step, except that `server`, `server_link` and `cores` are the times that a
 * server, its link and shared cores take for the step of all workers in lockstep.
 *
 *  Lockstep: time per step is the sum of own work and waits,
 *      t = own + input + disk + straggle + trips + server + server link + worker link - overlap,
 *      where the overlap is at most the waits; but at least cores + trips - overlap.
 *  Queueing, without lockstep: servers, their links and shared cores are stations at which the workers queue.
 *      A worker takes own + input + disk by itself; then trips, link delay and worker link, and visits of
 *      server and link, each for its `_use`, which the overlap shortens as above. Waits for shared cores
 *      come on top. Workers beside the server (`near`) have `local` for trips and use no link. Steps per time
 * by approximate mean value analysis (Schweitzer) of that closed network of two classes, with Sakasegawa's
 *      factor for the waits at several cores. `in_flight` requests of a worker overlap, its own work does
 * not.
 *
 * Evaluation and saving are added in both, for the same rows: T = training * t + evaluation + saving. */
#ifndef MST_REPORT_STEP_MODEL_H
#define MST_REPORT_STEP_MODEL_H

#include <stdbool.h>
#include <stddef.h>

typedef struct mst_step_model {
    bool lockstep;               /* workers close a step together */
    double workers;              /* at least 1 */
    double near;                 /* of these, without lockstep: on the host of the server */
    double rows;                 /* of a worker's step */
    double own, input, disk;     /* a worker's own work: compute, waits for rows, waits for disks */
    double overlap;              /* of own: runs while the worker waits for an answer */
    double straggle;             /* wait for the slowest worker; in lockstep only */
    double trips;                /* round trips and barriers */
    double server, server_link;  /* in lockstep, for the step of all workers */
    double worker_link;          /* transfer over the worker's own link */
    double cores;                /* in lockstep: CPU time of all processes on shared cores, over the cores */
    double server_use, link_use; /* without lockstep: of a server and of its link, per worker's step */
    double link_delay;           /* likewise of its other direction, for which none queue */
    double cores_use;            /* likewise of shared cores, each step's CPU time over the cores */
    double n_cores;              /* that are shared */
    double local;                /* without lockstep: of near workers, instead of trips */
    double in_flight;            /* requests of a worker at a time, without lockstep; at least 1 */
    double evaluation, saving;   /* beside training: part of the time of `base_workers` */
    double training, base_workers; /* the rest of that time */
} mst_step_model;

/* Rows per unit of time of all workers, with evaluation and saving. */
double mst_step_model_rate(const mst_step_model *self);

/* Steps per unit of time of all workers while they train; *near: those of the near ones. */
double mst_step_model_steps(const mst_step_model *self, double *near);

/* The time of a server's link for a step in lockstep. in, out: the times of its directions; n: workers behind
 * it; answer: bytes for one of them. Pushes come in before answers go out. Answers that fit into a window of
 * TCP leave one after the other, so the first workers push again while the last ones still receive; large
 * ones share the link and arrive together. */
double mst_step_link(double in, double out, double n, double answer);

#define MST_STEP_MESSAGE_S 15e-6 /* CPU time of a request besides its values, at a worker and at a server */
#define MST_STEP_LOCAL_S   20e-6 /* a request and its answer within a host: two wake-ups */

/* A closed network of queues. A customer of a class works `think` on its own, which takes longer by its waits
 * for cores; then a request takes `delay` and visits server and link in turn for demand[i], one at a time.
 * The first `overlap` of the request's time is not waited for. cores: in the station of cores. */
typedef enum mst_station {
    MST_STATION_SERVER,
    MST_STATION_LINK,
    MST_STATION_CORES,
    MST_STATIONS
} mst_station;
typedef struct mst_queue_class {
    double customers, think, delay, overlap, demand[MST_STATIONS];
    /* the result: cycles per unit of time of all customers of the class, and the time of one at a station */
    double rate, residence[MST_STATIONS];
} mst_queue_class;
void mst_queue_solve(mst_queue_class *classes, size_t n, double cores);

#endif
