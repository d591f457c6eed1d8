/* The model of a training step (step_model.h). */
#include "report/step_model.h"

#include <math.h>

#define CLASSES_MAX 2
#define ROUNDS      1000
#define CLOSE       1e-9 /* relative change of the rates after which the fixed point counts as found */

/* Time at a station of a customer of class c: its own service and that of the customers that it finds there,
 * which are those of the whole network without itself. */
static double queue_residence(const mst_queue_class *classes, size_t n, double (*queue)[MST_QUEUE_STATIONS],
                              size_t c, size_t station)
{
    double found = 0;
    for (size_t j = 0; j < n; j++)
        found += queue[j][station] * (j == c ? fmax(0, 1 - 1 / classes[c].customers) : 1);
    return classes[c].demand[station] * (1 + found);
}

void mst_queue_solve(mst_queue_class *classes, size_t n)
{
    double queue[CLASSES_MAX][MST_QUEUE_STATIONS] = {{0}};
    for (size_t c = 0; c < n; c++)
        classes[c].rate = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double residence[CLASSES_MAX][MST_QUEUE_STATIONS], change = 0;
        for (size_t c = 0; c < n; c++) {
            double cycle = classes[c].think, before = classes[c].rate;
            for (size_t i = 0; i < MST_QUEUE_STATIONS; i++)
                cycle += residence[c][i] =
                    classes[c].customers > 0 ? queue_residence(classes, n, queue, c, i) : 0;
            classes[c].rate = cycle > 0 ? classes[c].customers / cycle : 0;
            change = fmax(change, fabs(classes[c].rate - before) / fmax(classes[c].rate, 1e-300));
        }
        for (size_t c = 0; c < n; c++)
            for (size_t i = 0; i < MST_QUEUE_STATIONS; i++)
                queue[c][i] = classes[c].rate * residence[c][i];
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

static double model_queues(const mst_step_model *m, double own)
{
    /* A customer of C shared cores is served by one of them: 1/C of its work at the station, the rest as
     * delay (Seidmann). */
    double apart = fmax(0, own - m->cores_use);
    mst_queue_class classes[] = {
        {.customers = (m->workers - m->near) * m->in_flight,
         .think = apart + m->trips + m->worker_link,
         .demand = {m->server_use, m->link_use, m->cores_use}},
        {.customers = m->near * m->in_flight, .think = apart, .demand = {m->server_use, 0, m->cores_use}},
    };
    mst_queue_solve(classes, 2);
    /* requests overlap; a worker's own work does not */
    return fmin(classes[0].rate, (m->workers - m->near) / fmax(own, 1e-9)) +
           fmin(classes[1].rate, m->near / fmax(own, 1e-9));
}

double mst_step_model_rate(const mst_step_model *m)
{
    double own = m->own + m->input + m->disk;
    double steps = m->lockstep ? model_lockstep(m, own) : model_queues(m, own);
    return 1 / (m->training / fmax(steps * m->rows, 1e-9) + (m->evaluation + m->saving) / m->base_workers);
}
