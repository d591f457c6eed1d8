/* Histograms of gradients; contract in worker_histograms.h. */
#include "ps/worker_histograms.h"

#include <stdio.h>

#include "base/clock.h"
#include "observe/observe.h"

/* The gradient of a whole view; NULL: it is incomplete, or the view is no parameter with a gradient. */
static const float *histograms_view(const mst_worker_gradient *gradient, const mst_view *view)
{
    const mst_grad *l = &gradient->layout;
    for (uint32_t i = 0; i < l->n_ranges; i++) {
        const mst_range *range = &l->ranges[i];
        if (view->offset >= range->offset && view->offset + view->size <= range->offset + range->size)
            return range->state ? NULL
                                : gradient->last + gradient->range_at[i] + (view->offset - range->offset);
    }
    return gradient->job->dense_model ? gradient->last + view->offset : NULL;
}

static void histograms_write_views(mst_worker_histograms *self, uint64_t now)
{
    const mst_worker_gradient *gradient = self->gradient;
    const mst_params *params = gradient->job->params;
    char tag[64];
    mst_phase before = mst_span_enter(MST_PHASE_EVALUATE);
    for (uint32_t v = 0; v < params->n_views; v++) {
        const mst_view *view = &params->views[v];
        const float *g = histograms_view(gradient, view);
        snprintf(tag, sizeof tag, "gradients/%s", view->name);
        if (g != NULL)
            mst_observe_histogram(gradient->job->observe, gradient->last_step, tag, g, view->size);
    }
    mst_span_enter(before);
    self->written = gradient->last_step;
    self->spent_ns += mst_now_ns() - now;
}

void mst_worker_histograms_write(mst_worker_histograms *self)
{
    const mst_worker_gradient *gradient = self->gradient;
    if (!self->due || gradient->last == NULL || gradient->last_step <= self->written)
        return;
    uint64_t now = mst_now_ns();
    self->due = false;
    if (gradient->job->observe != NULL && self->spent_ns <= (now - self->begun_ns) / MST_HISTOGRAM_SHARE)
        histograms_write_views(self, now);
}
