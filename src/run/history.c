/* The history of a run; contract in history.h. */
#include "run/history.h"

#include <stdbool.h>
#include <string.h>

#include "options/option_tables.h"

/* Undoes the changes of a segment: options are changed in place, *files is replaced. */
static void history_undo(const json_t *segment, json_t *options, json_t **files)
{
    const char *group, *name;
    json_t *changed, *pair, *before = json_array_get(json_object_get(segment, "files"), 0);
    json_object_foreach(json_object_get(segment, "changed"), group, changed)
    {
        json_t *of_group = json_object_get(options, group);
        json_object_foreach(changed, name, pair)
        {
            json_object_set(of_group, name, json_array_get(pair, 0));
        }
    }
    if (json_is_array(before)) {
        json_incref(before);
        json_decref(*files);
        *files = before;
    }
}

/* The differences, {group: {option: [before, now]}}. New reference or NULL. */
static json_t *history_differences(const json_t *before, const json_t *now)
{
    const char *group, *name;
    json_t *options, *value, *out = json_object();
    bool fine = out != NULL;
    json_object_foreach((json_t *)now, group, options)
    {
        json_object_foreach(options, name, value)
        {
            json_t *was = json_object_get(json_object_get(before, group), name);
            if (was == NULL || json_equal(was, value) || mst_train_option_is(name, MST_OPTION_NOT_RECORDED))
                continue;
            if (json_object_get(out, group) == NULL)
                fine = fine && json_object_set_new(out, group, json_object()) == 0;
            fine = fine && json_object_set_new(json_object_get(out, group), name,
                                               json_pack("[O, O]", was, value)) == 0;
        }
    }
    if (!fine) {
        json_decref(out);
        return NULL;
    }
    return out;
}

/* The segments of a manifest; without any, a first segment from its other entries. New reference or NULL. */
static json_t *history_segments(const json_t *manifest)
{
    static const char *const kept[] = {"started", "host", "muster"};
    json_t *history = json_object_get(manifest, "history");
    if (json_is_array(history) && json_is_object(json_array_get(history, 0)))
        return json_deep_copy(history);
    json_t *first = json_pack("{s:i, s:i, s:f}", "step", 0, "rows", 0, "train_seconds", 0.0);
    for (size_t i = 0; first != NULL && i < sizeof kept / sizeof *kept; i++)
        if (json_is_string(json_object_get(manifest, kept[i])))
            json_object_set(first, kept[i], json_object_get(manifest, kept[i]));
    const json_t *training = json_object_get(json_object_get(manifest, "options"), "training");
    if (json_is_true(json_object_get(training, "resume")))
        json_object_set_new(first, "unrecorded", json_true());
    return first != NULL ? json_pack("[o]", first) : NULL;
}

static json_int_t history_step(const json_t *segment)
{
    return json_integer_value(json_object_get(segment, "step"));
}

/* Ends the last segment that counts, and fills `changed` and `files` of the new one. */
static mst_status history_compare(const json_t *before, json_t *segments, json_t *segment, const json_t *now)
{
    json_t *files = json_incref(json_object_get(before, "files")), *changed = NULL;
    json_t *options = json_deep_copy(json_object_get(before, "options"));
    mst_status st = MST_OK;
    json_int_t step = history_step(segment);
    size_t n = json_array_size(segments);
    while (n > 1 && history_step(json_array_get(segments, n - 1)) >= step) {
        history_undo(json_array_get(segments, n - 1), options, &files);
        json_array_remove(segments, --n);
    }
    json_t *last = json_array_get(segments, n - 1), *now_files = json_object_get(now, "files");
    static const char *const ends[] = {"state", "end"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (json_is_string(json_object_get(before, ends[i])))
            json_object_set(last, ends[i], json_object_get(before, ends[i]));
    changed = history_differences(options, json_object_get(now, "options"));
    if (changed == NULL)
        TRY_OUT(st, mst_fail_memory());
    if (json_object_size(changed) > 0 && json_object_set(segment, "changed", changed) != 0)
        TRY_OUT(st, mst_fail_memory());
    if (json_is_array(files) && json_is_array(now_files) && !json_equal(files, now_files) &&
        json_object_set_new(segment, "files", json_pack("[O, O]", files, now_files)) != 0)
        st = mst_fail_memory();
out:
    json_decref(files);
    json_decref(options);
    json_decref(changed);
    return st;
}

/* The program that started the processes of a run. */
static const char *history_starter(const json_t *manifest)
{
    const json_t *mpi = json_object_get(manifest, "mpi"), *cluster = json_object_get(manifest, "cluster");
    const char *by = json_string_value(json_object_get(mpi, "launcher"));
    if (mpi == NULL)
        by = json_string_value(json_object_get(cluster, "by"));
    return by != NULL ? by : mpi != NULL ? "mpirun" : "train";
}

/* The segments of a run that continues at `step`, with the same options. */
static mst_status history_keep(const json_t *before, uint64_t step, json_t *now)
{
    json_t *segments = history_segments(before);
    size_t n = json_array_size(segments);
    while (n > 1 && (uint64_t)history_step(json_array_get(segments, n - 1)) > step)
        json_array_remove(segments, --n);
    return segments != NULL && json_object_set_new(now, "history", segments) == 0 ? MST_OK
                                                                                  : mst_fail_memory();
}

mst_status mst_history_add(const json_t *before, mst_history_point at, bool continues, json_t *now)
{
    if (continues && before != NULL)
        return history_keep(before, at.step, now);
    json_t *segments = before != NULL && at.step > 0 ? history_segments(before) : json_array();
    json_t *segment = json_pack("{s:I, s:I, s:f, s:O?, s:O?, s:O?, s:s}", "step", (json_int_t)at.step, "rows",
                                (json_int_t)at.rows, "train_seconds", at.train_seconds, "started",
                                json_object_get(now, "started"), "host", json_object_get(now, "host"),
                                "muster", json_object_get(now, "muster"), "by", history_starter(now));
    mst_status st = segments != NULL && segment != NULL ? MST_OK : mst_fail_memory();
    if (json_object_get(now, "source") != NULL)
        json_object_set(segment, "source", json_object_get(now, "source"));
    if (st == MST_OK && json_array_size(segments) > 0)
        st = history_compare(before, segments, segment, now);
    if (st == MST_OK &&
        (json_array_append(segments, segment) != 0 || json_object_set(now, "history", segments) != 0))
        st = mst_fail_memory();
    json_decref(segment);
    json_decref(segments);
    return st;
}
