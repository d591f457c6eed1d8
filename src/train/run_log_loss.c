/* Work that a run has lost: steps after the checkpoint that it continues from; contract in run_log.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/figure.h"
#include "base/json_text.h"
#include "base/log.h"
#include "train/run_log_impl.h"

#define MEMBERS   "members" /* of the manifest: {"worker-0": IDENTITY} */
#define AGO_MAX_S 86400.0   /* a job that is started again later is no recovery */

void mst_run_log_lost(mst_run_log *self, const mst_reached *reached, uint64_t since_ns, const char *why)
{
    self->loss.continues = true;
    self->loss.reached = *reached;
    self->loss.since_ns = since_ns;
    snprintf(self->loss.why, sizeof self->loss.why, "%s", why);
}

/* The present progress of the run. */
static mst_reached loss_at(const mst_run_log *self)
{
    return (mst_reached){.step = self->progress.steps,
                         .rows = self->progress.rows,
                         .train_seconds = self->status.train_seconds};
}

/* The furthest known progress of the run. metrics.csv has a line per second; other processes may have seen a
 * later step, but not its rows. */
static mst_reached loss_reached(const mst_run_log *self, const mst_reached *recorded)
{
    mst_reached out = self->loss.reached;
    if (recorded->step >= out.step)
        return *recorded;
    if (out.rows == 0) {
        mst_reached from = recorded->step < self->progress.steps ? loss_at(self) : *recorded;
        out.rows = from.rows + (out.step - from.step) * self->options.global_batch;
        out.train_seconds = from.train_seconds;
        if (from.step > 0)
            out.train_seconds *= (double)out.step / (double)from.step;
    }
    return out;
}

/* An entry of "losses" as a sentence without a full stop. */
static void loss_describe(const json_t *loss, char *out, size_t size)
{
    char step[32], steps[32], rows[32], where[48] = "the beginning", what[64] = "the run continues from";
    const json_t *server = json_object_get(loss, "server");
    const char *why = json_string_value(json_object_get(loss, "why"));
    uint64_t at = (uint64_t)json_integer_value(json_object_get(loss, "step"));
    if (server != NULL)
        snprintf(what, sizeof what, "the weights of server %lld return to", json_integer_value(server));
    if (at > 0)
        snprintf(where, sizeof where, "step %s", mst_figure_grouped(at, step));
    uint64_t n_steps = (uint64_t)json_integer_value(json_object_get(loss, "steps")),
             n_rows = (uint64_t)json_integer_value(json_object_get(loss, "rows"));
    snprintf(out, size, "%s; %s %s, and ", why != NULL ? why : "the run ended without a last checkpoint",
             what, where);
    size_t n = strlen(out);
    if (n_steps == 0 && n_rows == 0)
        snprintf(out + n, size - n, "nothing is lost");
    else
        snprintf(out + n, size - n, "%s steps (%s rows) are lost%s", mst_figure_grouped(n_steps, steps),
                 mst_figure_grouped(n_rows, rows), server != NULL ? " there" : " and trained again");
    const json_t *recovery = json_object_get(loss, "recovery_seconds");
    n = strlen(out);
    if (recovery != NULL)
        snprintf(out + n, size - n, "; recovery took %.2f s", json_number_value(recovery));
}

/* An entry of "losses": the run was at `reached` and continues at `at`. New reference or NULL. */
static json_t *loss_entry(mst_reached reached, mst_reached at, const char *why)
{
    char now[24];
    double seconds = reached.train_seconds - at.train_seconds;
    mst_wall_time(now);
    json_t *loss = json_pack("{s:s, s:I, s:I, s:I, s:f}", "time", now, "step", (json_int_t)at.step, "steps",
                             (json_int_t)(reached.step > at.step ? reached.step - at.step : 0), "rows",
                             (json_int_t)(reached.rows > at.rows ? reached.rows - at.rows : 0),
                             "train_seconds", seconds > 0 ? seconds : 0);
    if (loss != NULL && why != NULL)
        json_object_set_new(loss, "why", mst_json_text(why));
    return loss;
}

/* Logs and marks a loss, and adds it to the list, which takes its reference. Its recovery lasts until the
 * first step after it. */
static mst_status loss_state(mst_run_log *self, json_t *losses, json_t *loss)
{
    char text[MST_ERROR_MAX + 160];
    if (loss == NULL)
        return mst_fail_memory();
    loss_describe(loss, text, sizeof text);
    mst_warn("%s", text);
    mst_run_log_mark(self, "", "loss", text);
    self->loss.recovering = self->loss.continues || json_object_get(loss, "server") != NULL;
    return json_array_append_new(losses, loss) == 0 ? MST_OK : mst_fail_memory();
}

static void loss_observe(mst_run_log *self, const json_t *loss)
{
    char text[MST_ERROR_MAX + 160];
    loss_describe(loss, text, sizeof text);
    mst_observe_text(self->observe, (uint64_t)json_integer_value(json_object_get(loss, "step")), "losses",
                     text);
}

void mst_run_log_end_recovery(mst_run_log *self, uint64_t step)
{
    const json_t *losses = json_object_get(self->manifest, "losses");
    json_t *loss = json_array_get(losses, json_array_size(losses) - 1);
    double seconds = mst_seconds_since(self->loss.since_ns);
    self->loss.recovering = false;
    mst_run_log_mark_step(self, "recovered", step);
    if (self->loss.since_ns == 0)
        return;
    if (!self->loss.taken_over) {
        json_object_set_new(loss, "recovery_seconds", json_real(seconds));
        (void)mst_run_log_write_manifest(self, "running"); /* the end of the run writes it too */
        loss_observe(self, loss);
    }
    self->loss.taken_over = false;
    mst_info("training continues after a recovery of %.2f s", seconds);
}

void mst_run_log_taken_over(mst_run_log *self, uint64_t since_ns)
{
    self->loss.since_ns = since_ns;
    self->loss.recovering = self->loss.taken_over = true;
}

bool mst_run_log_is_recovering(const mst_run_log *self)
{
    return self->loss.recovering;
}

mst_status mst_run_log_process_lost(mst_run_log *self, const char *process)
{
    json_t *lost = json_object_get(self->manifest, "lost_processes");
    if (lost == NULL) {
        lost = json_object();
        if (lost == NULL || json_object_set_new(self->manifest, "lost_processes", lost) != 0)
            return mst_fail_memory();
    }
    mst_run_log_process_left(self, process);
    json_int_t n = json_integer_value(json_object_get(lost, process)) + 1;
    if (json_object_set_new(lost, process, json_integer(n)) != 0)
        return mst_fail_memory();
    return mst_run_log_write_manifest(self, "running");
}

mst_status mst_run_log_process_joined(mst_run_log *self, const char *process, const char *identity)
{
    json_t *members = json_object_get(self->manifest, MEMBERS);
    const char *before = json_string_value(json_object_get(members, process));
    if (before != NULL && strcmp(before, identity) == 0)
        return MST_OK;
    if (before != NULL)
        TRY(mst_run_log_process_lost(self, process));
    if (members == NULL) {
        members = json_object();
        if (members == NULL || json_object_set_new(self->manifest, MEMBERS, members) != 0)
            return mst_fail_memory();
    }
    if (json_object_set_new(members, process, json_string(identity)) != 0)
        return mst_fail_memory();
    self->loss.members_changed = true;
    return MST_OK;
}

void mst_run_log_process_left(mst_run_log *self, const char *process)
{
    json_object_del(json_object_get(self->manifest, MEMBERS), process);
}

void mst_run_log_write_members(mst_run_log *self)
{
    if (self->loss.members_changed)
        (void)mst_run_log_write_manifest(self, "running"); /* a later write of the manifest has them too */
    self->loss.members_changed = false;
}

void mst_run_log_sum_losses(const mst_run_log *self, mst_run_losses *out)
{
    const json_t *loss;
    const char *process;
    size_t i;
    *out = (mst_run_losses){0};
    json_array_foreach(json_object_get(self->manifest, "losses"), i, loss)
    {
        uint64_t steps = (uint64_t)json_integer_value(json_object_get(loss, "steps")),
                 rows = (uint64_t)json_integer_value(json_object_get(loss, "rows"));
        bool share = json_object_get(loss, "server") != NULL;
        *(share ? &out->share_steps : &out->steps) += steps;
        *(share ? &out->share_rows : &out->rows) += rows;
        out->train_seconds += share ? 0 : json_number_value(json_object_get(loss, "train_seconds"));
        out->recovery_seconds += json_number_value(json_object_get(loss, "recovery_seconds"));
        out->n++;
    }
    json_object_foreach(json_object_get(self->manifest, "lost_processes"), process, loss)
    {
        out->processes += (uint64_t)json_integer_value(loss);
    }
}

mst_status mst_run_log_record_loss(mst_run_log *self, const json_t *before, const mst_reached *recorded)
{
    mst_reached reached = loss_reached(self, recorded), at = loss_at(self);
    bool any = self->loss.continues || reached.step > at.step;
    if (self->loss.continues && self->loss.since_ns == 0 && recorded->seconds_ago > 0 &&
        recorded->seconds_ago < AGO_MAX_S)
        self->loss.since_ns = mst_now_ns() - (uint64_t)(recorded->seconds_ago * 1e9);
    json_t *losses = json_deep_copy(json_object_get(before, "losses")),
           *processes = json_deep_copy(json_object_get(before, "lost_processes")),
           *members = self->loss.continues ? json_deep_copy(json_object_get(before, MEMBERS)) : NULL;
    if ((processes != NULL && json_object_set_new(self->manifest, "lost_processes", processes) != 0) ||
        (json_is_object(members) && json_object_set(self->manifest, MEMBERS, members) != 0)) {
        json_decref(losses);
        json_decref(members);
        return mst_fail_memory();
    }
    json_decref(members);
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

mst_status mst_run_log_lost_share(mst_run_log *self, uint32_t server, const mst_reached *at,
                                  uint64_t since_ns, const char *why)
{
    json_t *losses = json_object_get(self->manifest, "losses"), *loss;
    self->loss.since_ns = since_ns;
    if (losses == NULL) {
        losses = json_array();
        if (losses == NULL || json_object_set_new(self->manifest, "losses", losses) != 0)
            return mst_fail_memory();
    }
    loss = loss_entry(loss_at(self), *at, why);
    if (loss != NULL)
        json_object_set_new(loss, "server", json_integer(server));
    TRY(loss_state(self, losses, loss));
    loss_observe(self, loss);
    return mst_run_log_write_manifest(self, "running");
}

void mst_run_log_observe_losses(mst_run_log *self)
{
    json_t *loss;
    size_t i;
    json_array_foreach(json_object_get(self->manifest, "losses"), i, loss)
    {
        loss_observe(self, loss);
    }
}
