/* Figures for Prometheus; contract in serve_metrics.h. */
#include "serve/serve_metrics.h"

/* Statuses that the server answers with; the last row counts all others. */
static const int metric_codes[MST_SERVE_CODES] = {200, 400, 401, 403, 404, 405, 413, 421, 499, 503, 504, 500};

static const double metric_bounds[MST_SERVE_BUCKETS - 1] = {
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5};

void mst_serve_metrics_end(mst_serve_metrics *self, int status, uint64_t latency_ns, uint64_t rows)
{
    int code = status != 0 ? status : 499, c = 0, b = 0;
    while (c < MST_SERVE_CODES - 1 && metric_codes[c] != code)
        c++;
    atomic_fetch_add_explicit(&self->codes[c], 1, memory_order_relaxed);
    if (rows == 0)
        return;
    while (b < MST_SERVE_BUCKETS - 1 && (double)latency_ns * 1e-9 > metric_bounds[b])
        b++;
    atomic_fetch_add_explicit(&self->buckets[b], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&self->latency_ns, latency_ns, memory_order_relaxed);
    atomic_fetch_add_explicit(&self->rows, rows, memory_order_relaxed);
}

static void metrics_head(mst_string *out, const char *name, const char *type, const char *help)
{
    mst_string_format(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void metrics_one(mst_string *out, const mst_serve_figures *f, const char *name, const char *type,
                        const char *help, double value)
{
    metrics_head(out, name, type, help);
    mst_string_format(out, "%s{model=\"%s\"} %.10g\n", name, f->name, value);
}

void mst_serve_metrics_text(mst_serve_metrics *self, const mst_serve_figures *f, mst_string *out)
{
    uint64_t sum = 0;
    metrics_head(out, "muster_serve_requests_total", "counter",
                 "Requests by HTTP status; 499: the client closed the connection first.");
    for (int c = 0; c < MST_SERVE_CODES; c++)
        mst_string_format(out, "muster_serve_requests_total{model=\"%s\",code=\"%d\"} %llu\n", f->name,
                          metric_codes[c], (unsigned long long)atomic_load(&self->codes[c]));
    metrics_one(out, f, "muster_serve_rows_total", "counter", "Rows that predictions were made for.",
                (double)atomic_load(&self->rows));
    metrics_head(out, "muster_serve_request_seconds", "histogram",
                 "Time from the headers of a request to the end of its answer, of predictions.");
    for (int b = 0; b < MST_SERVE_BUCKETS; b++) {
        sum += atomic_load(&self->buckets[b]);
        mst_string_format(out, "muster_serve_request_seconds_bucket{model=\"%s\",le=\"", f->name);
        if (b < MST_SERVE_BUCKETS - 1)
            mst_string_format(out, "%g", metric_bounds[b]);
        else
            mst_string_add(out, "+Inf");
        mst_string_format(out, "\"} %llu\n", (unsigned long long)sum);
    }
    mst_string_format(out, "muster_serve_request_seconds_sum{model=\"%s\"} %.9g\n", f->name,
                      (double)atomic_load(&self->latency_ns) * 1e-9);
    mst_string_format(out, "muster_serve_request_seconds_count{model=\"%s\"} %llu\n", f->name,
                      (unsigned long long)sum);
    metrics_one(out, f, "muster_serve_requests_in_progress", "gauge", "Requests that are not answered yet.",
                (double)atomic_load(&self->in_progress));
    metrics_one(out, f, "muster_serve_connections", "gauge", "Open connections.", (double)f->connections);
    metrics_one(out, f, "muster_serve_batches_total", "counter",
                "Batches of requests that were computed together.", (double)f->batches);
    metrics_one(out, f, "muster_serve_batched_rows_total", "counter", "Rows of these batches.",
                (double)f->batched_rows);
    metrics_one(out, f, "muster_serve_model_step", "gauge", "Training step of the model in use.",
                (double)f->step);
    metrics_one(out, f, "muster_serve_reloads_total", "counter", "Times that a newer checkpoint was loaded.",
                (double)f->reloads);
    metrics_one(out, f, "muster_serve_reload_failures_total", "counter",
                "Checkpoints that could not be loaded.", (double)f->reload_failures);
    metrics_one(out, f, "muster_serve_start_time_seconds", "gauge",
                "Start of the server, in seconds since 1970.", f->start_s);
}
