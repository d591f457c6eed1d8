/* The model of a training step: the advice of the verdict (verdict_advice.c) uses it.
 *
 * A step of one worker consists of parts. Their unit is free: seconds, or the present time of a step. A part
 * is the time of one worker's step, except that `server` and `server_link` are the times that a server and
 * its link take for the step of all workers in lockstep.
 *
 *  Lockstep: time per step is their sum,
 *      t = own + input + disk + straggle + trips + server + server link + worker link.
 *  Queueing, without lockstep: servers and their links are stations at which the workers queue. A worker
 *      takes own + input + disk + trips + worker link by itself and then visits the stations in turn, each
 *      for its `_use`; steps per time by exact mean value analysis of that closed network. `in_flight`
 *      requests of a worker overlap, its own work does not.
 *
 * Evaluation and saving are added in both, for the same rows: T = training * t + evaluation + saving. */
#ifndef MST_REPORT_STEP_MODEL_H
#define MST_REPORT_STEP_MODEL_H

#include <stdbool.h>
#include <stddef.h>

typedef struct mst_step_model {
    bool lockstep;                 /* workers close a step together */
    double workers;                /* at least 1 */
    double rows;                   /* of a worker's step */
    double own, input, disk;       /* a worker's own work: compute, waits for rows, waits for disks */
    double straggle;               /* wait for the slowest worker; in lockstep only */
    double trips;                  /* round trips and barriers */
    double server, server_link;    /* in lockstep, for the step of all workers */
    double worker_link;            /* transfer over the worker's own link */
    double server_use, link_use;   /* without lockstep: of a server and of its link, per worker's step */
    double in_flight;              /* requests of a worker at a time, without lockstep; at least 1 */
    double evaluation, saving;     /* beside training: part of the time of `base_workers` */
    double training, base_workers; /* the rest of that time */
} mst_step_model;

/* Rows per unit of time of all workers, with evaluation and saving. */
double mst_step_model_rate(const mst_step_model *self);

/* Steps per unit of time of `customers` workers that each work `think` on their own and then visit n <= 8
 * stations in turn for demand[i], one at a time: exact mean value analysis. */
double mst_step_model_throughput(unsigned customers, double think, const double *demand, size_t n);

#endif
