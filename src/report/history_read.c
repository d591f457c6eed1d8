/* Reads the history of a run; contract in history_read.h. */
#include "report/history_read.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/option.h"
#include "report/report_impl.h"

static mst_status no_memory(void)
{
    return mst_fail(MST_ENOMEM, "no memory for the history of a run");
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value != NULL ? value : "";
}

/* The value before or after a change; NULL: not a change. */
static json_t *side(const json_t *pair, size_t index)
{
    return json_is_array(pair) && json_array_size(pair) == 2 ? json_array_get(pair, index) : NULL;
}

/* How a segment that was resumed had ended. */
static const char *end_of(const json_t *record)
{
    const char *end = text(record, "end"), *state = text(record, "state");
    return *end != '\0' ? end : strcmp(state, "running") == 0 ? "cut off" : state;
}

json_t *mst_segment_changed(const mst_segment *segment)
{
    return json_object_get(segment->record, "changed");
}

const json_t *mst_segment_files(const mst_segment *segment)
{
    return side(json_object_get(segment->record, "files"), 1);
}

/* Undoes what a segment changed. */
static mst_status go_back(const mst_segment *segment, mst_history *out)
{
    const char *group, *name;
    json_t *changed, *pair, *files = side(json_object_get(segment->record, "files"), 0);
    json_object_foreach(mst_segment_changed(segment), group, changed)
    {
        json_t *options = json_object_get(out->options, group);
        json_object_foreach(changed, name, pair)
        {
            if (side(pair, 0) != NULL && options != NULL &&
                json_object_set(options, name, side(pair, 0)) != 0)
                return no_memory();
        }
    }
    out->files = json_is_array(files) ? files : out->files;
    return MST_OK;
}

mst_status mst_history_of(const mst_run_data *run, double to_step, double to_rows, double to_train_s,
                          mst_history *out)
{
    mst_status st = MST_OK;
    const json_t *all = json_object_get(run->manifest, "history"),
                 *options = json_object_get(run->manifest, "options");
    size_t n = json_array_size(all);
    mst_history self = {.n = n > 0 ? n : 1,
                        .options = json_deep_copy(options),
                        .files = json_object_get(run->manifest, "files")};
    self.segments = mst_calloc(self.n, sizeof *self.segments);
    if (self.segments == NULL || (options != NULL && self.options == NULL))
        TRY_OUT(st, no_memory());
    for (size_t i = self.n; i-- > 0;) {
        mst_segment *s = &self.segments[i];
        bool last = i + 1 == self.n;
        const json_t *record = json_array_get(all, i), *from = n > 0 ? record : run->manifest;
        *s = (mst_segment){.record = record,
                           .step = n > 0 ? number(record, "step") : 0,
                           .rows = n > 0 ? number(record, "rows") : 0,
                           .train_s = n > 0 ? number(record, "train_seconds") : 0,
                           .started = text(from, "started"),
                           .host = text(from, "host"),
                           .end = end_of(last ? run->manifest : record),
                           .to_step = last ? to_step : s[1].step,
                           .to_rows = last ? to_rows : s[1].rows,
                           .to_train_s = last ? to_train_s : s[1].train_s};
        TRY_OUT(st, go_back(s, &self));
    }
    self.unrecorded =
        json_is_true(json_object_get(json_array_get(all, 0), "unrecorded")) ||
        (n == 0 && json_is_true(json_object_get(json_object_get(options, "training"), "resume")));
    *out = self;
    self = (mst_history){0};
out:
    mst_history_fini(&self);
    return st;
}

void mst_history_fini(mst_history *self)
{
    json_decref(self->options);
    mst_free(self->segments);
    *self = (mst_history){0};
}

/* ", NAME BEFORE -> NOW" */
static void add_change(const char *name, const json_t *pair, mst_buffer *out)
{
    mst_buffer_format(out, "%s%s ", out->size > 0 ? ", " : "", name);
    for (size_t i = 0; i < 2; i++) {
        const json_t *value = side(pair, i);
        bool nothing = value == NULL || json_is_null(value) || json_is_object(value) ||
                       (json_is_array(value) && json_array_size(value) == 0);
        char *shown = nothing ? mst_strdup("none") : mst_option_text(value);
        out->failed = out->failed || shown == NULL;
        mst_buffer_format(out, "%s%.200s", i > 0 ? " \xe2\x86\x92 " : "", shown != NULL ? shown : "");
        mst_free(shown);
    }
}

void mst_segment_changes(const mst_segment *segment, mst_buffer *out)
{
    const char *group, *name;
    json_t *changed, *pair, *files = json_object_get(segment->record, "files");
    json_object_foreach(json_object_get(segment->record, "changed"), group, changed)
    {
        json_object_foreach(changed, name, pair)
        {
            if (mst_report_option_matters(group, name))
                add_change(name, pair, out);
        }
    }
    if (files != NULL)
        add_change("files", files, out);
}

void mst_history_sentence(const mst_history *self, mst_buffer *out)
{
    const mst_segment *last = &self->segments[self->n - 1];
    mst_buffer changes = {0};
    char times[40], step[40];
    if (self->n < 2)
        return;
    mst_segment_changes(last, &changes);
    snprintf(times, sizeof times, self->n == 2 ? "once" : "%zu times", self->n - 1);
    mst_buffer_format(out, "It was resumed %s, last after step %s%s%s%s.", times,
                      mst_figure_count(last->step, step), changes.size > 0 ? " (" : "",
                      changes.text != NULL ? changes.text : "", changes.size > 0 ? ")" : "");
    out->failed = out->failed || changes.failed;
    mst_buffer_fini(&changes);
}
