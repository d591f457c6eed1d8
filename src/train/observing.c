/* Contract in observing.h. */
#include "train/observing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* A step number at *text, which ends up behind it; `none` where there are no digits. */
static bool step_of(const char **text, uint64_t none, uint64_t *out)
{
    char *end;
    *out = none;
    if (**text < '0' || **text > '9')
        return true;
    unsigned long long value = strtoull(*text, &end, 10);
    *out = value;
    *text = end;
    return value < UINT64_MAX;
}

mst_status mst_trace_steps_parse(const char *text, uint64_t *from, uint64_t *to)
{
    const char *p = text;
    *from = 0;
    *to = UINT64_MAX;
    if (text == NULL)
        return MST_OK;
    if (!step_of(&p, 0, from) || *p++ != ':' || !step_of(&p, UINT64_MAX, to) || *p != 0 || *from > *to)
        return mst_fail(MST_EUSAGE, "--trace-steps %s: give A:B, the first step and the last", text);
    return MST_OK;
}

mst_observe *mst_train_observe(const mst_train_options *options, const mst_observing *who)
{
    char process[MST_PROCESS_NAME];
    mst_observe_options o = {
        .process = process,
        .role = who->role,
        .index = who->index,
        .n_threads = who->n_threads,
        .every_s = options->resources_every,
        .guest = who->guest,
        .events = true,
        .trace = options->trace || options->trace_steps != NULL,
        .step = who->step,
    };
    if (!options->observe ||
        mst_trace_steps_parse(options->trace_steps, &o.trace_from, &o.trace_to) != MST_OK)
        return NULL;
    if (strcmp(who->role, "local") == 0)
        snprintf(process, sizeof process, "local");
    else
        snprintf(process, sizeof process, "%s-%u", who->role, who->index);
    return mst_observe_new(&o);
}

void mst_observe_weights(mst_observe *observe, uint64_t step, const mst_params *params, const mst_grad *grad,
                         uint64_t begun_ns, uint64_t *spent_ns)
{
    uint64_t start = mst_now_ns();
    char tag[64];
    if (observe == NULL || *spent_ns > (start - begun_ns) / MST_HISTOGRAM_SHARE)
        return;
    for (uint32_t v = 0; v < params->n_views; v++) {
        const mst_view *view = &params->views[v];
        snprintf(tag, sizeof tag, "weights/%s", view->name);
        mst_observe_histogram(observe, step, tag, params->w + view->offset, view->size);
        for (uint32_t r = 0; grad != NULL && r < grad->n_ranges; r++) {
            const mst_range *range = &grad->ranges[r];
            if (range->state || view->offset < range->offset ||
                view->offset + view->size > range->offset + range->size)
                continue;
            snprintf(tag, sizeof tag, "gradients/%s", view->name);
            mst_observe_histogram(observe, step, tag, range->g + (view->offset - range->offset), view->size);
        }
    }
    *spent_ns += mst_now_ns() - start;
}
