/* Work that a run has lost: steps after the checkpoint that it continues from; contract in run_log.h. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/figure.h"
#include "base/json_text.h"
#include "base/log.h"
#include "train/run_log_impl.h"

void mst_run_log_lost(mst_run_log *self, uint64_t steps, uint64_t rows, const char *why)
{
    self->loss.continues = true;
    self->loss.reached = (mst_reached){.step = steps, .rows = rows};
    snprintf(self->loss.why, sizeof self->loss.why, "%s", why);
}

/* The furthest known progress of the run. metrics.csv has a line per second; other processes may have seen a
 * later step, but not its rows. */
static mst_reached loss_reached(const mst_run_log *self, const mst_reached *recorded)
{
    mst_reached out = self->loss.reached;
    if (recorded->step >= out.step)
        return *recorded;
    if (out.rows == 0) {
        mst_reached from = *recorded;
        if (from.step < self->progress.steps)
            from = (mst_reached){.step = self->progress.steps, .rows = self->progress.rows};
        out.rows = from.rows + (out.step - from.step) * self->options.global_batch;
    }
    return out;
}

void mst_run_log_describe_loss(const json_t *loss, char *out, size_t size)
{
    char step[32], steps[32], rows[32];
    uint64_t n_steps = (uint64_t)json_integer_value(json_object_get(loss, "steps"));
    const char *why = json_string_value(json_object_get(loss, "why"));
    snprintf(out, size,
             "%s; the run continues from step %s, and %s steps (%s rows) are lost and trained again",
             why != NULL ? why : "the run was cut off",
             mst_figure_grouped((uint64_t)json_integer_value(json_object_get(loss, "step")), step),
             mst_figure_grouped(n_steps, steps),
             mst_figure_grouped((uint64_t)json_integer_value(json_object_get(loss, "rows")), rows));
}

mst_status mst_run_log_record_loss(mst_run_log *self, const json_t *before, const mst_reached *recorded)
{
    mst_reached reached = loss_reached(self, recorded);
    const mst_progress *at = &self->progress;
    json_t *losses = json_deep_copy(json_object_get(before, "losses")), *loss;
    char now[24], text[MST_ERROR_MAX + 160];
    bool any = self->loss.continues || reached.step > at->steps;
    if (losses == NULL && !any)
        return MST_OK;
    if (!json_is_array(losses)) {
        json_decref(losses);
        losses = json_array();
    }
    if (any) {
        mst_wall_time(now);
        loss = json_pack("{s:s, s:I, s:I, s:I}", "time", now, "step", (json_int_t)at->steps, "steps",
                         (json_int_t)(reached.step > at->steps ? reached.step - at->steps : 0), "rows",
                         (json_int_t)(reached.rows > at->rows ? reached.rows - at->rows : 0));
        if (self->loss.continues)
            json_object_set_new(loss, "why", mst_json_text(self->loss.why));
        mst_run_log_describe_loss(loss, text, sizeof text);
        mst_warn("%s", text);
        mst_run_log_mark(self, "", "loss", text);
        json_array_append_new(losses, loss);
    }
    return json_object_set_new(self->manifest, "losses", losses) == 0 ? MST_OK : mst_fail_memory();
}

void mst_run_log_observe_losses(mst_run_log *self)
{
    char text[MST_ERROR_MAX + 160];
    json_t *loss;
    size_t i;
    json_array_foreach(json_object_get(self->manifest, "losses"), i, loss)
    {
        mst_run_log_describe_loss(loss, text, sizeof text);
        mst_observe_text(self->observe, (uint64_t)json_integer_value(json_object_get(loss, "step")), "losses",
                         text);
    }
}
