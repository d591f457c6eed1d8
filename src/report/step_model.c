/* The model of a training step (step_model.h). */
#include "report/step_model.h"

#include <math.h>
#include <string.h>

#define CLASSES_MAX 2
#define ROUNDS      1000
#define CLOSE       1e-9 /* change of the queues, per customer, after which the fixed point counts as found */
#define WINDOW      65536 /* bytes that TCP sends at once */

/* The customers that one of class c finds at a station: those of the whole network without itself. */
static double queue_found(const mst_queue_class *classes, size_t n, double (*queue)[MST_STATIONS], size_t c,
                          size_t station)
{
    double found = 0;
    for (size_t j = 0; j < n; j++)
        found += queue[j][station] * (j == c ? fmax(0, 1 - 1 / classes[c].customers) : 1);
    return found;
}

double mst_step_link(double in, double out, double n, double answer)
{
    double together = answer / (answer + WINDOW), others = 1 / fmax(n, 1);
    return fmax(in, out) + fmin(in, out) * (others + (1 - others) * together);
}

static double queue_use(const mst_queue_class *classes, size_t n, mst_station station)
{
    double use = 0;
    for (size_t c = 0; c < n; c++)
        use += classes[c].rate * classes[c].demand[station];
    return use;
}

/* The part of the queue at cores that a customer waits for: some core may be idle although others work
 * (Sakasegawa's approximation of M/M/m relative to one core that is m times as fast). */
static double queue_crowding(const mst_queue_class *classes, size_t n, double cores)
{
    return cores > 1 ? pow(fmin(1, queue_use(classes, n, MST_STATION_CORES)), sqrt(2 * (cores + 1)) - 2) : 1;
}

void mst_queue_solve(mst_queue_class *classes, size_t n, double cores)
{
    double queue[CLASSES_MAX][MST_STATIONS] = {{0}}, crowding = 1;
    for (size_t c = 0; c < n; c++) {
        classes[c].rate = 0;
        memset(classes[c].residence, 0, sizeof classes[c].residence);
    }
    for (int round = 0; round < ROUNDS; round++) {
        double change = 0;
        crowding += (queue_crowding(classes, n, cores) - crowding) / 8; /* it is steep: small steps */
        for (size_t c = 0; c < n; c++) {
            mst_queue_class *k = &classes[c];
            double request = k->delay, *at = k->residence;
            for (size_t i = 0; k->customers > 0 && i < MST_STATIONS; i++) {
                double found = queue_found(classes, n, queue, c, i);
                at[i] = k->demand[i] * (1 + found * (i == MST_STATION_CORES ? crowding : 1));
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
    double over = fmax(1, queue_use(classes, n, MST_STATION_CORES));
    for (size_t c = 0; c < n; c++)
        classes[c].rate /= classes[c].demand[MST_STATION_CORES] > 0 ? over : 1;
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
         .delay = m->trips + m->link_delay + m->worker_link,
         .overlap = m->overlap,
         .demand = {m->server_use, m->link_use, m->cores_use}},
        {.customers = m->near * m->in_flight,
         .think = own,
         .delay = m->local,
         .overlap = m->overlap,
         .demand = {m->server_use, 0, m->cores_use}},
    };
    mst_queue_solve(classes, 2, m->n_cores);
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
