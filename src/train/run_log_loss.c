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
    self->loss.continues = self->loss.stands = true;
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

/* An entry of "losses" as a sentence without a full stop. */
static void loss_describe(const json_t *loss, char *out, size_t size)
{
    char step[32], steps[32], rows[32], what[64] = "the run continues from";
    const json_t *server = json_object_get(loss, "server");
    const char *why = json_string_value(json_object_get(loss, "why"));
    if (server != NULL)
        snprintf(what, sizeof what, "the weights of server %lld return to", json_integer_value(server));
    snprintf(out, size, "%s; %s step %s, and %s steps (%s rows) are lost%s",
             why != NULL ? why : "the run was cut off", what,
             mst_figure_grouped((uint64_t)json_integer_value(json_object_get(loss, "step")), step),
             mst_figure_grouped((uint64_t)json_integer_value(json_object_get(loss, "steps")), steps),
             mst_figure_grouped((uint64_t)json_integer_value(json_object_get(loss, "rows")), rows),
             server != NULL ? " there" : " and trained again");
}

/* An entry of "losses": the run was at `reached` and continues at `at`. New reference or NULL. */
static json_t *loss_entry(mst_reached reached, mst_reached at, const char *why)
{
    char now[24];
    mst_wall_time(now);
    json_t *loss = json_pack("{s:s, s:I, s:I, s:I}", "time", now, "step", (json_int_t)at.step, "steps",
                             (json_int_t)(reached.step > at.step ? reached.step - at.step : 0), "rows",
                             (json_int_t)(reached.rows > at.rows ? reached.rows - at.rows : 0));
    if (loss != NULL && why != NULL)
        json_object_set_new(loss, "why", mst_json_text(why));
    return loss;
}

/* Logs and marks a loss, and adds it to the list, which takes its reference. */
static mst_status loss_state(mst_run_log *self, json_t *losses, json_t *loss)
{
    char text[MST_ERROR_MAX + 160];
    if (loss == NULL)
        return mst_fail_memory();
    loss_describe(loss, text, sizeof text);
    mst_warn("%s", text);
    mst_run_log_mark(self, "", "loss", text);
    return json_array_append_new(losses, loss) == 0 ? MST_OK : mst_fail_memory();
}

static void loss_observe(mst_run_log *self, const json_t *loss)
{
    char text[MST_ERROR_MAX + 160];
    loss_describe(loss, text, sizeof text);
    mst_observe_text(self->observe, (uint64_t)json_integer_value(json_object_get(loss, "step")), "losses",
                     text);
}

mst_status mst_run_log_record_loss(mst_run_log *self, const json_t *before, const mst_reached *recorded)
{
    mst_reached reached = loss_reached(self, recorded),
                at = {.step = self->progress.steps, .rows = self->progress.rows};
    bool any = self->loss.continues || reached.step > at.step;
    json_t *losses = json_deep_copy(json_object_get(before, "losses"));
    if (losses == NULL && !any)
        return MST_OK;
    if (!json_is_array(losses)) {
        json_decref(losses);
        losses = json_array();
    }
    if (losses == NULL || json_object_set_new(self->manifest, "losses", losses) != 0)
        return mst_fail_memory();
    return any ? loss_state(self, losses,
                            loss_entry(reached, at, self->loss.continues ? self->loss.why : NULL))
               : MST_OK;
}

mst_status mst_run_log_lost_share(mst_run_log *self, uint32_t server, uint64_t step, uint64_t rows,
                                  const char *why)
{
    json_t *losses = json_object_get(self->manifest, "losses"), *loss;
    mst_reached reached = {.step = self->progress.steps, .rows = self->progress.rows};
    if (losses == NULL) {
        losses = json_array();
        if (losses == NULL || json_object_set_new(self->manifest, "losses", losses) != 0)
            return mst_fail_memory();
    }
    loss = loss_entry(reached, (mst_reached){.step = step, .rows = rows}, why);
    if (loss != NULL)
        json_object_set_new(loss, "server", json_integer(server));
    TRY(loss_state(self, losses, loss));
    loss_observe(self, loss);
    self->loss.stands = true;
    return mst_run_log_write_manifest(self, "running");
}

void mst_run_log_observe_losses(mst_run_log *self)
{
    json_t *loss;
    size_t i;
    json_array_foreach(json_object_get(self->manifest, "losses"), i, loss) loss_observe(self, loss);
}
