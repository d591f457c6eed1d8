/* Histograms of the chief's gradients, for TensorBoard; contract in worker_impl.h.
 *
 * An evaluation wants one of each view. They are of the gradient that was computed last, which lies in its
 * buffer until the next one is begun: while a push of it is under way both only read it. Where that is being
 * computed just now, or where the worker had nothing to do since the histograms before, they follow when
 * there is a new one: steps of a curve grow.
 *
 * What the worker knows of gradients is the owner's of the net, as everything that events touch: while
 * communication overlaps, there is no gradient here. */
#include <stdio.h>

#include "base/clock.h"
#include "observe/observe.h"
#include "ps/worker_impl.h"

/* Where the whole of a view's gradient stands in g; NULL: it is not whole, or is no gradient. */
static const float *gradient_of(const mst_worker *self, const mst_view *view, const float *g)
{
    const mst_grad *l = &self->layout;
    for (uint32_t i = 0; i < l->n_ranges; i++) {
        const mst_range *range = &l->ranges[i];
        if (view->offset >= range->offset && view->offset + view->size <= range->offset + range->size)
            return range->state ? NULL : g + self->range_at[i] + (view->offset - range->offset);
    }
    return self->job->dense_model ? g + view->offset : NULL;
}

static void write_all(mst_worker *self, uint64_t now)
{
    mst_worker_watch *w = &self->watch;
    const mst_params *params = self->job->params;
    char tag[64];
    mst_phase before = mst_span_enter(MST_PHASE_EVALUATE);
    for (uint32_t v = 0; v < params->n_views; v++) {
        const mst_view *view = &params->views[v];
        const float *g = gradient_of(self, view, w->g);
        snprintf(tag, sizeof tag, "gradients/%s", view->name);
        if (g != NULL)
            mst_observe_histogram(self->job->observe, w->step, tag, g, view->size);
    }
    mst_span_enter(before);
    w->written = w->step;
    w->spent_ns += mst_now_ns() - now;
}

void mst_worker_watch_gradient(mst_worker *self)
{
    mst_worker_watch *w = &self->watch;
    if (!w->due || w->g == NULL || w->step <= w->written)
        return;
    uint64_t now = mst_now_ns();
    w->due = false;
    if (self->job->observe != NULL && w->spent_ns <= (now - w->begun_ns) / MST_HISTOGRAM_SHARE)
        write_all(self, now);
}
