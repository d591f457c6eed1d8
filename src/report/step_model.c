/* The model of a training step (step_model.h). */
#include "report/step_model.h"

#include <math.h>

#define CUSTOMERS_MAX 4096
#define STATIONS      2
#define STATIONS_MAX  8

double mst_step_model_throughput(unsigned customers, double think, const double *demand, size_t n)
{
    double queue[STATIONS_MAX] = {0}, rate = 0;
    for (unsigned k = 1; k <= customers; k++) {
        double cycle = think, residence[STATIONS_MAX];
        for (size_t i = 0; i < n; i++) {
            residence[i] = demand[i] * (1 + queue[i]);
            cycle += residence[i];
        }
        rate = cycle > 0 ? k / cycle : 0;
        for (size_t i = 0; i < n; i++)
            queue[i] = rate * residence[i];
    }
    return rate;
}

double mst_step_model_rate(const mst_step_model *m)
{
    double own = m->own + m->input + m->disk, steps;
    if (m->lockstep) {
        double step = own + m->straggle + m->server + m->server_link + m->worker_link + m->trips;
        steps = m->workers / fmax(step, 1e-9);
    } else {
        double demand[STATIONS] = {m->server_use, m->link_use};
        double customers = m->workers * m->in_flight;
        unsigned n = customers < CUSTOMERS_MAX ? (unsigned)lround(customers) : CUSTOMERS_MAX;
        steps = mst_step_model_throughput(n, own + m->trips + m->worker_link, demand, STATIONS);
        /* requests overlap; a worker's own work does not */
        steps = fmin(steps, m->workers / fmax(own, 1e-9));
    }
    return 1 / (m->training / fmax(steps * m->rows, 1e-9) + (m->evaluation + m->saving) / m->base_workers);
}
