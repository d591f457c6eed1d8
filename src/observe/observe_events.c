/* Event files: curves, histograms, graph and options. Contract in observe.h. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/option.h"
#include "observe/observe_impl.h"

/* Locks an event file for a record, after the file's first records. */
static mst_bytes *observe_begin_event(mst_observe *self, mst_record_kind kind, double *wall)
{
    if (self == NULL || !self->options.events)
        return NULL;
    mst_bytes *out = mst_observe_begin_add(self, kind);
    if (out == NULL)
        return NULL;
    *wall = mst_observe_wall(self);
    if (!self->files[kind].opened) {
        mst_event_version(out, *wall);
        mst_event_start(out, *wall, self->options.step + 1);
        self->files[kind].opened = true;
    }
    return out;
}

void mst_observe_scalars(mst_observe *self, mst_record_kind kind, uint64_t step, const mst_scalar *scalars,
                         size_t n)
{
    double wall;
    mst_bytes *out = observe_begin_event(self, kind, &wall);
    if (out == NULL)
        return;
    mst_event_scalars(out, wall, step, scalars, n);
    mst_observe_end_add(self);
}

void mst_observe_histogram(mst_observe *self, uint64_t step, const char *tag, const float *values, uint64_t n)
{
    mst_stretch one = {.values = values, .n = n};
    mst_observe_stretches(self, step, tag, &one, 1);
}

void mst_observe_stretches(mst_observe *self, uint64_t step, const char *tag, const mst_stretch *stretches,
                           size_t n)
{
    double wall;
    mst_histogram h;
    uint64_t values = 0;
    for (size_t i = 0; i < n; i++)
        values += stretches[i].n;
    if (self == NULL || !self->options.events || values == 0)
        return;
    mst_histogram_gather(&h, stretches, n);
    mst_bytes *out = observe_begin_event(self, MST_RECORD_EVENTS, &wall);
    if (out == NULL)
        return;
    mst_event_histogram(out, wall, step, tag, &h);
    mst_observe_end_add(self);
}

void mst_observe_graph(mst_observe *self, const json_t *nodes)
{
    double wall;
    mst_bytes *out = observe_begin_event(self, MST_RECORD_EVENTS, &wall);
    if (out == NULL)
        return;
    mst_event_graph(out, wall, nodes);
    mst_observe_end_add(self);
}

void mst_observe_text(mst_observe *self, uint64_t step, const char *tag, const char *text)
{
    double wall;
    if (self == NULL || !self->options.events)
        return;
    mst_bytes *out = observe_begin_event(self, MST_RECORD_EVALUATIONS, &wall);
    if (out == NULL)
        return;
    mst_event_text(out, wall, step, tag, text);
    mst_observe_end_add(self);
}

void mst_observe_config(mst_observe *self, const char *group, const json_t *options, const json_t *compared)
{
    double wall;
    if (self == NULL || !self->options.events)
        return;
    char *dump = json_dumps(options, JSON_INDENT(1)),
         *text = dump != NULL ? mst_sprintf("```json\n%s\n```", dump) : NULL;
    mst_bytes *out = observe_begin_event(self, MST_RECORD_EVALUATIONS, &wall);
    if (out != NULL) {
        if (text != NULL)
            mst_event_text(out, wall, self->options.step, "configuration", text);
        if (compared != NULL)
            mst_event_run_begins(out, wall, group, compared);
        mst_observe_end_add(self);
    }
    mst_free(text);
    free(dump); /* jansson's allocation */
}

void mst_observe_run_ends(mst_observe *self, bool failed)
{
    double wall;
    mst_bytes *out = observe_begin_event(self, MST_RECORD_EVALUATIONS, &wall);
    if (out == NULL)
        return;
    mst_event_run_ends(out, wall, failed);
    mst_observe_end_add(self);
}
