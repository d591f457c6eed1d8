/* Figures of `muster serve` for Prometheus. Any thread. */
#ifndef MST_SERVE_SERVE_METRICS_H
#define MST_SERVE_SERVE_METRICS_H

#include <stdatomic.h>

#include "base/strings.h"

#define MST_SERVE_BUCKETS 15 /* of the latency, the last without a bound */
#define MST_SERVE_CODES   12

typedef struct mst_serve_metrics {
    atomic_uint_fast64_t codes[MST_SERVE_CODES];                 /* requests by HTTP status; see the source */
    atomic_uint_fast64_t buckets[MST_SERVE_BUCKETS], latency_ns; /* of predictions with status 200 */
    atomic_uint_fast64_t rows;                                   /* answered */
    atomic_int_fast64_t in_progress;
} mst_serve_metrics;

/* A request has ended. status 0: the client closed the connection first. rows: of a prediction that was
 * answered with 200, or 0. */
void mst_serve_metrics_end(mst_serve_metrics *self, int status, uint64_t latency_ns, uint64_t rows);

/* Figures that others hold. */
typedef struct mst_serve_figures {
    const char *name; /* of the model: letters, digits, '_', '-' and '.' */
    uint64_t step, reloads, reload_failures, connections, batches, batched_rows;
    double start_s; /* since 1970 */
} mst_serve_figures;

void mst_serve_metrics_text(mst_serve_metrics *self, const mst_serve_figures *figures, mst_string *out);

#endif
