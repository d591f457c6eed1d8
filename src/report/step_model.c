/* The model of a training step (step_model.h). */
#include "report/step_model.h"

#include <math.h>
#include <string.h>

#define CLASSES_MAX 2
#define ROUNDS      1000
#define CLOSE       1e-9 /* change of the queues, per customer, after which the fixed point counts as found */

/* The customers that one of class c finds at a station: those of the whole network without itself. */
static double queue_found(const mst_queue_class *classes, size_t n, double (*queue)[MST_STATIONS], size_t c,
                          size_t station)
{
    double found = 0;
    for (size_t j = 0; j < n; j++)
        found += queue[j][station] * (j == c ? fmax(0, 1 - 1 / classes[c].customers) : 1);
    return found;
}

void mst_queue_solve(mst_queue_class *classes, size_t n)
{
    double queue[CLASSES_MAX][MST_STATIONS] = {{0}};
    for (size_t c = 0; c < n; c++) {
        classes[c].rate = 0;
        memset(classes[c].residence, 0, sizeof classes[c].residence);
    }
    for (int round = 0; round < ROUNDS; round++) {
        double change = 0;
        for (size_t c = 0; c < n; c++) {
            mst_queue_class *k = &classes[c];
            double request = k->delay, *at = k->residence;
            for (size_t i = 0; k->customers > 0 && i < MST_STATIONS; i++) {
                at[i] = k->demand[i] * (1 + queue_found(classes, n, queue, c, i));
                request += i != MST_STATION_CORES ? at[i] : 0;
            }
            /* the service of cores is in think and in the server's demand */
            double cycle = k->think + fmax(0, at[MST_STATION_CORES] - k->demand[MST_STATION_CORES]) +
                           fmax(0, request - k->overlap);
            k->rate = cycle > 0 ? k->customers / cycle : 0;
        }
        for (size_t c = 0; c < n; c++)
            for (size_t i = 0; i < MST_STATIONS; i++) {
                double length = fmin(classes[c].customers, classes[c].rate * classes[c].residence[i]);
                change = fmax(change, fabs(length - queue[c][i]) / fmax(classes[c].customers, 1e-300));
                queue[c][i] = length;
            }
        if (change < CLOSE)
            break;
    }
}

static double model_lockstep(const mst_step_model *m, double own)
{
    double wait = m->trips + m->server + m->server_link + m->worker_link;
    double step = own + fmax(0, wait - m->overlap);
    step = m->cores > 0 ? fmax(step, m->cores + fmax(0, m->trips - m->overlap)) : step;
    return m->workers / fmax(step + m->straggle, 1e-9);
}

static double model_queues(const mst_step_model *m, double own, double *near)
{
    mst_queue_class classes[] = {
        {.customers = (m->workers - m->near) * m->in_flight,
         .think = own,
         .delay = m->trips + m->worker_link,
         .overlap = m->overlap,
         .demand = {m->server_use, m->link_use, m->cores_use}},
        {.customers = m->near * m->in_flight,
         .think = own,
         .overlap = m->overlap,
         .demand = {m->server_use, 0, m->cores_use}},
    };
    mst_queue_solve(classes, 2);
    /* requests overlap; a worker's own work does not */
    *near = fmin(classes[1].rate, m->near / fmax(own, 1e-9));
    return *near + fmin(classes[0].rate, (m->workers - m->near) / fmax(own, 1e-9));
}

double mst_step_model_steps(const mst_step_model *m, double *near)
{
    double own = m->own + m->input + m->disk;
    *near = 0;
    return m->lockstep ? model_lockstep(m, own) : model_queues(m, own, near);
}

double mst_step_model_rate(const mst_step_model *m)
{
    double near, steps = mst_step_model_steps(m, &near);
    return 1 / (m->training / fmax(steps * m->rows, 1e-9) + (m->evaluation + m->saving) / m->base_workers);
}
