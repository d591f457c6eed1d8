/* Reads the history of a run; contract in history_read.h. */
#include "report/history_read.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "base/option.h"
#include "options/option_tables.h"
#include "report/report_impl.h"

static const char *history_text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    return value != NULL ? value : "";
}

/* The value before or after a change; NULL: not a change. */
static json_t *history_side(const json_t *pair, size_t index)
{
    return json_is_array(pair) && json_array_size(pair) == 2 ? json_array_get(pair, index) : NULL;
}

/* The end of a segment that was resumed later. */
static const char *history_end_of(const json_t *record)
{
    const char *end = history_text(record, "end"), *state = history_text(record, "state");
    return *end != '\0' ? end : strcmp(state, "running") == 0 ? "cut off" : state;
}

json_t *mst_segment_changed(const mst_segment *segment)
{
    return json_object_get(segment->record, "changed");
}

const json_t *mst_segment_files(const mst_segment *segment)
{
    return history_side(json_object_get(segment->record, "files"), 1);
}

/* Undoes the changes of a segment. */
static mst_status history_go_back(const mst_segment *segment, mst_history *out)
{
    const char *group, *name;
    json_t *changed, *pair, *files = history_side(json_object_get(segment->record, "files"), 0);
    json_object_foreach(mst_segment_changed(segment), group, changed)
    {
        json_t *options = json_object_get(out->options, group);
        json_object_foreach(changed, name, pair)
        {
            if (history_side(pair, 0) != NULL && options != NULL &&
                json_object_set(options, name, history_side(pair, 0)) != 0)
                return mst_fail_memory();
        }
    }
    out->files = json_is_array(files) ? files : out->files;
    return MST_OK;
}

static mst_crew_strategy history_strategy_of(const json_t *options)
{
    static const char *const names[] = {
        [MST_CREW_LOCAL] = "local", [MST_CREW_PS] = "ps", [MST_CREW_ALLREDUCE] = "allreduce"};
    const char *name = history_text(options, "strategy");
    for (int i = MST_CREW_LOCAL; i <= MST_CREW_ALLREDUCE; i++)
        if (strcmp(names[i], name) == 0)
            return (mst_crew_strategy)i;
    return MST_CREW_UNKNOWN;
}

/* The starter of a segment that does not record it; last: the one that the manifest describes. */
static const char *history_find_starter(const mst_run_data *run, const mst_crew *crew, bool last)
{
    const char *launcher = mst_run_data_text(run, "mpi", "launcher", NULL);
    const json_t *cluster = json_object_get(run->manifest, "cluster"),
                 *worker = json_array_get(json_object_get(cluster, "workers"), 0);
    const char *name = json_string_value(worker);
    if (crew->strategy == MST_CREW_ALLREDUCE || (last && launcher != NULL))
        return launcher != NULL ? launcher : "muster launch --mpi";
    bool embedded = name != NULL && strncmp(name, "thread-", 7) == 0;
    return crew->strategy == MST_CREW_PS && !(last && (cluster == NULL || embedded)) ? "launch" : "train";
}

/* Whether the workers of the manifest's cluster are its servers too, and as many as those of the crew. */
static void history_take_hosting(const mst_run_data *run, mst_crew *crew)
{
    const json_t *cluster = json_object_get(run->manifest, "cluster"),
                 *servers = json_object_get(cluster, "servers");
    const char *given = mst_run_data_text(run, "cluster", "given_strategy", NULL);
    crew->hosted = crew->strategy == MST_CREW_PS && json_array_size(servers) > 0 &&
                   json_equal(servers, json_object_get(cluster, "workers")) &&
                   (double)json_array_size(servers) == crew->workers && crew->servers == crew->workers;
    crew->given_allreduce = crew->hosted && given != NULL && strcmp(given, "allreduce") == 0;
}

/* By the options of a segment, which count the processes that there were (train/settings.c). */
static mst_crew history_crew_of(const mst_run_data *run, const json_t *record, const json_t *options,
                                bool last)
{
    const json_t *o = json_object_get(options, "strategy");
    mst_crew crew = {.strategy = history_strategy_of(o),
                     .sync = strcmp(history_text(o, "mode"), "sync") == 0,
                     .by = history_text(record, "by"),
                     .workers = mst_json_real(o, "workers"),
                     .servers = mst_json_real(o, "servers"),
                     .batch = mst_json_real(o, "batch"),
                     .global_batch = mst_json_real(o, "global-batch")};
    if (crew.strategy == MST_CREW_LOCAL)
        crew.workers = 1;
    if (crew.strategy != MST_CREW_PS)
        crew.servers = 0;
    if (crew.global_batch > 0)
        crew.batch = ceil(crew.global_batch / crew.workers);
    else
        crew.global_batch = crew.batch * crew.workers;
    if (*crew.by == '\0')
        crew.by = history_find_starter(run, &crew, last);
    history_take_hosting(run, &crew);
    return crew;
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
        TRY_OUT(st, mst_fail_memory());
    for (size_t i = self.n; i-- > 0;) {
        mst_segment *s = &self.segments[i];
        bool last = i + 1 == self.n;
        const json_t *record = json_array_get(all, i), *from = n > 0 ? record : run->manifest;
        *s = (mst_segment){.record = record,
                           .step = n > 0 ? mst_json_real(record, "step") : 0,
                           .rows = n > 0 ? mst_json_real(record, "rows") : 0,
                           .train_s = n > 0 ? mst_json_real(record, "train_seconds") : 0,
                           .started = history_text(from, "started"),
                           .host = history_text(from, "host"),
                           .end = history_end_of(last ? run->manifest : record),
                           .crew = history_crew_of(run, record, self.options, last),
                           .before = i > 0 ? s - 1 : NULL,
                           .to_step = last ? to_step : s[1].step,
                           .to_rows = last ? to_rows : s[1].rows,
                           .to_train_s = last ? to_train_s : s[1].train_s};
        TRY_OUT(st, history_go_back(s, &self));
    }
    if (self.n > 1 && self.segments[self.n - 1].to_step <= self.segments[self.n - 1].step)
        self.n--;
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

const mst_segment *mst_history_same_crew(const mst_history *self)
{
    const mst_segment *s = &self->segments[self->n - 1];
    while (s->before != NULL && s->before->crew.strategy == s->crew.strategy &&
           s->before->crew.workers == s->crew.workers && s->before->crew.servers == s->crew.servers)
        s = s->before;
    return s;
}

/* Counts that segments ran with, in place of the options of that name. */
static const struct {
    const char *name;
    size_t offset;
} counts[] = {{"workers", offsetof(mst_crew, workers)},
              {"servers", offsetof(mst_crew, servers)},
              {"batch", offsetof(mst_crew, batch)},
              {"global-batch", offsetof(mst_crew, global_batch)}};
#define N_COUNTS (sizeof counts / sizeof *counts)

static double history_count(const mst_crew *crew, size_t which)
{
    double value;
    memcpy(&value, (const char *)crew + counts[which].offset, sizeof value);
    return value;
}

static bool history_counted(const mst_segment *segment, const char *name)
{
    for (size_t i = 0; i < N_COUNTS; i++)
        if (strcmp(counts[i].name, name) == 0)
            return segment->before != NULL && !isnan(history_count(&segment->crew, i)) &&
                   !isnan(history_count(&segment->before->crew, i));
    return false;
}

/* Servers and the global batch only if both segments have them. */
static void history_add_counts(const mst_segment *segment, mst_string *out)
{
    const mst_crew *now = &segment->crew, *was = segment->before != NULL ? &segment->before->crew : now;
    for (size_t i = 0; i < N_COUNTS; i++) {
        double a = history_count(was, i), b = history_count(now, i);
        bool global = strcmp(counts[i].name, "global-batch") == 0;
        if (isnan(a) || isnan(b) || a == b || (strcmp(counts[i].name, "servers") == 0 && a * b == 0) ||
            (global && (!(now->sync && was->sync) || (now->workers == 1 && was->workers == 1))))
            continue;
        mst_string_format(out, "%s%s %.0f \xe2\x86\x92 %.0f", out->size > 0 ? ", " : "", counts[i].name, a,
                          b);
    }
}

/* ", NAME BEFORE -> NOW" */
static void history_add_change(const char *name, const json_t *pair, mst_string *out)
{
    mst_string_format(out, "%s%s ", out->size > 0 ? ", " : "", name);
    for (size_t i = 0; i < 2; i++) {
        const json_t *value = history_side(pair, i);
        bool nothing = value == NULL || json_is_null(value) || json_is_object(value) ||
                       (json_is_array(value) && json_array_size(value) == 0);
        char *shown = nothing ? mst_strdup("none") : mst_option_text(value);
        out->failed = out->failed || shown == NULL;
        mst_string_format(out, "%s%.200s", i > 0 ? " \xe2\x86\x92 " : "", shown != NULL ? shown : "");
        mst_free(shown);
    }
}

void mst_segment_changes(const mst_segment *segment, mst_string *out)
{
    const char *group, *name;
    json_t *changed, *pair, *files = json_object_get(segment->record, "files");
    json_object_foreach(json_object_get(segment->record, "changed"), group, changed)
    {
        json_object_foreach(changed, name, pair)
        {
            if (!mst_train_option_is(name, MST_OPTION_NOT_COMPARED) && !history_counted(segment, name))
                history_add_change(name, pair, out);
        }
    }
    history_add_counts(segment, out);
    if (files != NULL)
        history_add_change("files", files, out);
}

void mst_history_sentence(const mst_history *self, mst_string *out)
{
    const mst_segment *last = &self->segments[self->n - 1];
    mst_string changes = {0};
    char times[40], step[40];
    if (self->n < 2)
        return;
    mst_segment_changes(last, &changes);
    snprintf(times, sizeof times, self->n == 2 ? "once" : "%zu times", self->n - 1);
    mst_string_format(out, "It was resumed %s, last after step %s%s%s%s.", times,
                      mst_figure_count(last->step, step), changes.size > 0 ? " (" : "",
                      changes.text != NULL ? changes.text : "", changes.size > 0 ? ")" : "");
    out->failed = out->failed || changes.failed;
    mst_string_fini(&changes);
}
