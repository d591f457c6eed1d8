/* The state of a sweep: SWEEP/sweep.json and the manifests of its runs; contract in sweep.h.
 *
 * sweep.json holds the file in normal form, so that a change is detected and can be named, and for each run
 * its command, state, message, wall time and start. The manifest of a run has precedence: a run is done when
 * its manifest has state "done". */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/strings.h"
#include "base/version.h"
#include "sweep/sweep.h"

#define STATE_MAX    (256u << 20)
#define MANIFEST_MAX (64u << 20)

static const char *const state_names[] = {"pending", "running", "stopped", "done", "failed", "skipped"};

const char *mst_cell_state_name(mst_cell_state state)
{
    return state_names[state];
}

/* ---- reading ---- */

/* The object in a JSON file; NULL: no such file, or not an object. */
static json_t *state_read_object(const char *path, size_t limit)
{
    char *text = NULL;
    size_t size;
    if (!mst_path_exists(path) || mst_file_read_all(path, limit, &text, &size) != MST_OK)
        return NULL;
    json_t *json = json_loadb(text, size, 0, NULL);
    mst_free(text);
    if (!json_is_object(json)) {
        json_decref(json);
        return NULL;
    }
    return json;
}

/* Values of an axis as "a, b". The caller frees. */
static char *state_list_text(const json_t *value)
{
    mst_string out = {0};
    size_t i;
    json_t *item;
    if (json_is_string(value))
        return mst_strdup(json_string_value(value));
    json_array_foreach((json_t *)value, i, item)
    {
        const char *label = json_is_string(item) ? json_string_value(item)
                                                 : json_string_value(json_object_get(item, "label"));
        mst_string_add(&out, i > 0 ? ", " : "");
        mst_string_add(&out, label != NULL ? label : "?");
    }
    return out.text != NULL ? out.text : mst_strdup("nothing");
}

/* "batch: 100, 200 was 100" for each key that differs. */
static void state_add_difference(const char *key, const json_t *now, const json_t *before, mst_string *out)
{
    char *a = state_list_text(now), *b = state_list_text(before);
    if (json_equal((json_t *)now, (json_t *)before))
        ;
    else if (now == NULL || before == NULL)
        mst_string_format(out, "%s%s: %s %s", out->size > 0 ? "; " : "", key,
                          now == NULL ? "is gone, was" : "is new:", now == NULL ? b : a);
    else
        mst_string_format(out, "%s%s: %s, was %s", out->size > 0 ? "; " : "", key, a, b);
    mst_free(a);
    mst_free(b);
}

static void state_compare_objects(const json_t *now, const json_t *before, mst_string *out)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)now, key, value)
    {
        state_add_difference(key, value, json_object_get(before, key), out);
    }
    json_object_foreach((json_t *)before, key, value)
    {
        if (json_object_get(now, key) == NULL)
            state_add_difference(key, NULL, value, out);
    }
}

static mst_status state_compare_specs(const mst_sweep *self, const json_t *before)
{
    static const char *const parts[] = {"for", "train", "grid"};
    mst_string text = {0};
    state_add_difference("files", json_object_get(self->spec, "files"), json_object_get(before, "files"),
                         &text);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        state_compare_objects(json_object_get(self->spec, parts[i]), json_object_get(before, parts[i]),
                              &text);
    mst_status st = MST_OK;
    if (text.size > 0)
        st = mst_fail(MST_EEXIST,
                      "%s: has changed since the runs in %s (%.600s); give --extend to keep unchanged runs, "
                      "--overwrite to start again, or another --out",
                      self->file, self->folder, text.text);
    mst_string_fini(&text);
    return st;
}

/* ---- cells ---- */

static char *state_command_text(const mst_sweep_cell *cell)
{
    mst_string out = {0};
    mst_string_add(&out, "muster");
    for (size_t i = 0; i < cell->words.n; i++) {
        mst_string_add(&out, " ");
        mst_string_shell(&out, cell->words.items[i]);
    }
    if (out.failed)
        mst_string_fini(&out);
    return out.text;
}

static mst_cell_state state_of(const char *name)
{
    for (size_t i = 0; name != NULL && i < sizeof state_names / sizeof *state_names; i++)
        if (strcmp(name, state_names[i]) == 0)
            return (mst_cell_state)i;
    return MST_CELL_PENDING;
}

/* Takes over the state in the manifest of the run. */
static mst_status state_look_at_run(const mst_sweep *self, mst_sweep_cell *cell)
{
    char *run = mst_sweep_run_path(self, cell),
         *path = run != NULL ? mst_sprintf("%s/manifest.json", run) : NULL;
    json_t *manifest = path != NULL ? state_read_object(path, MANIFEST_MAX) : NULL;
    const char *state = json_string_value(json_object_get(manifest, "state"));
    bool done = state != NULL && strcmp(state, "done") == 0,
         stopped = state != NULL && strcmp(state, "stopped") == 0;
    mst_status st = path != NULL ? MST_OK : mst_fail_memory();
    if (st == MST_OK && done)
        st = mst_sweep_mark(cell, MST_CELL_DONE, NULL);
    else if (st == MST_OK && stopped)
        st = mst_sweep_mark(cell, MST_CELL_STOPPED, NULL);
    else if (st == MST_OK && cell->state != MST_CELL_FAILED)
        st = mst_sweep_mark(cell, MST_CELL_PENDING, NULL);
    json_decref(manifest);
    mst_free(run);
    mst_free(path);
    return st;
}

/* Time of the last write to the run directory, in seconds since 1970; NAN: not known. */
static double state_last_sign(const mst_sweep *self, const mst_sweep_cell *cell)
{
    static const char *const files[] = {"manifest.json", "metrics.csv"};
    char *run = mst_sweep_run_path(self, cell);
    double last = NAN;
    for (size_t i = 0; run != NULL && i < sizeof files / sizeof *files; i++) {
        char *path = mst_sprintf("%s/%s", run, files[i]);
        struct stat s;
        if (path != NULL && stat(path, &s) == 0)
            last = fmax(last, (double)s.st_mtim.tv_sec + 1e-9 * (double)s.st_mtim.tv_nsec);
        mst_free(path);
    }
    mst_free(run);
    return last;
}

/* Wall time so far. A piece that was interrupted with the sweep lasted until the last write of the run. */
static double state_seconds_of(const mst_sweep *self, const mst_sweep_cell *cell, const json_t *before,
                               bool cut_off)
{
    const json_t *seconds = json_object_get(before, "seconds"), *began = json_object_get(before, "began");
    double sum = json_is_number(seconds) ? json_number_value(seconds) : NAN;
    double piece =
        cut_off && json_is_number(began) ? state_last_sign(self, cell) - json_number_value(began) : NAN;
    if (!(piece > 0))
        return sum;
    return isnan(sum) ? piece : sum + piece;
}

static mst_status state_adopt_cell(mst_sweep *self, mst_sweep_cell *cell, const json_t *before)
{
    const char *command = json_string_value(json_object_get(before, "command"));
    const char *sentence = json_string_value(json_object_get(before, "sentence"));
    mst_cell_state state = state_of(json_string_value(json_object_get(before, "state")));
    char *now = state_command_text(cell);
    if (now == NULL)
        return mst_fail_memory();
    bool same = command != NULL && strcmp(command, now) == 0;
    mst_free(now);
    if (!same || cell->state == MST_CELL_SKIPPED || state == MST_CELL_SKIPPED || state == MST_CELL_PENDING)
        return MST_OK;
    cell->jobs = (unsigned)json_integer_value(json_object_get(before, "jobs"));
    cell->seconds = state_seconds_of(self, cell, before, state == MST_CELL_RUNNING);
    TRY(mst_sweep_mark(cell, state, sentence));
    return state_look_at_run(self, cell);
}

/* Reads SWEEP/sweep.json at path. New reference in *out; NULL where it is ignored. */
static mst_status read_state(const mst_sweep *self, const char *path, mst_sweep_change change, json_t **out)
{
    json_t *state = state_read_object(path, STATE_MAX);
    const json_t *format = json_object_get(state, "format");
    mst_status st = MST_OK;
    if (json_is_string(format) && strcmp(json_string_value(format), "muster-sweep") != 0)
        st = mst_fail(MST_EEXIST, "%s: is not the state of a sweep; choose another --out", path);
    else if (!json_is_string(format) && change != MST_SWEEP_OVERWRITE)
        st = mst_fail(MST_EINPUT,
                      "%s: is damaged; give --overwrite to start again, --report-only to report on the "
                      "existing runs, or another --out",
                      path);
    else if (change == MST_SWEEP_SAME)
        st = state_compare_specs(self, json_object_get(state, "spec"));
    if (st == MST_OK && change != MST_SWEEP_OVERWRITE)
        *out = json_incref(state);
    json_decref(state);
    return st;
}

/* Takes over the state of the cells. */
static mst_status adopt_state(mst_sweep *self, const json_t *state, mst_sweep_change change)
{
    json_t *by_name = NULL, *item, *search = json_object_get(state, "search");
    size_t i;
    if (change == MST_SWEEP_EXTEND && json_is_object(search))
        return MST_OK; /* the runs of a search end early */
    by_name = json_object();
    mst_status st = by_name != NULL ? MST_OK : mst_fail_memory();
    json_array_foreach(json_object_get(state, "cells"), i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name != NULL && by_name != NULL)
            json_object_set(by_name, name, item);
    }
    for (i = 0; st == MST_OK && i < self->n; i++)
        st = state_adopt_cell(self, &self->cells[i], json_object_get(by_name, self->cells[i].name));
    if (st == MST_OK && change == MST_SWEEP_SAME && json_is_object(search))
        self->search = json_incref(search);
    json_decref(by_name);
    return st;
}

mst_status mst_sweep_load(mst_sweep *self, mst_sweep_change change)
{
    mst_status st = MST_OK;
    char *path = mst_sprintf("%s/sweep.json", self->folder), *runs = mst_sprintf("%s/runs", self->folder);
    json_t *state = NULL;
    if (path == NULL || runs == NULL)
        TRY_OUT(st, mst_fail_memory());
    if (change == MST_SWEEP_RUNS) {
        for (size_t i = 0; st == MST_OK && i < self->n; i++)
            if (self->cells[i].state != MST_CELL_SKIPPED)
                st = state_look_at_run(self, &self->cells[i]);
    } else if (mst_path_exists(path)) {
        TRY_OUT(st, read_state(self, path, change, &state));
        st = state != NULL ? adopt_state(self, state, change) : MST_OK;
    } else if (mst_path_exists(runs)) {
        st = mst_fail(MST_EEXIST, "%s: contains runs but no sweep.json; choose another --out", self->folder);
    }
out:
    json_decref(state);
    mst_free(path);
    mst_free(runs);
    return st;
}

/* ---- writing ---- */

static json_t *state_cell_json(const mst_sweep_cell *cell)
{
    char *command = state_command_text(cell);
    json_t *json = json_pack("{s:s, s:s, s:O, s:s}", "name", cell->name, "config", cell->config, "values",
                             cell->labels, "state", state_names[cell->state]);
    bool fine = json != NULL && command != NULL;
    json_t *text = fine ? json_string(command) : NULL;
    fine = fine && json_object_set_new(json, "command", text != NULL ? text : json_string("")) == 0;
    if (fine && !isnan(cell->seconds))
        fine = json_object_set_new(json, "seconds", json_real(cell->seconds)) == 0;
    if (fine && !isnan(cell->began))
        fine = json_object_set_new(json, "began", json_real(cell->began)) == 0;
    if (fine && cell->jobs > 0)
        fine = json_object_set_new(json, "jobs", json_integer((json_int_t)cell->jobs)) == 0;
    if (fine && cell->sentence != NULL) {
        text = json_string(cell->sentence);
        fine = json_object_set_new(json, "sentence", text != NULL ? text : json_string("?")) == 0;
    }
    mst_free(command);
    if (!fine) {
        json_decref(json);
        return NULL;
    }
    return json;
}

mst_status mst_sweep_save(const mst_sweep *self)
{
    mst_status st;
    char *path = mst_sprintf("%s/sweep.json", self->folder), *text = NULL;
    mst_string out = {0};
    json_t *cells = json_array();
    json_t *state = cells != NULL ? json_pack("{s:s, s:i, s:s, s:s, s:O, s:O}", "format", "muster-sweep",
                                              "version", 1, "muster", mst_version(), "file", self->file,
                                              "spec", self->spec, "cells", cells)
                                  : NULL;
    if (path == NULL || state == NULL)
        TRY_OUT(st, mst_fail_memory());
    for (size_t i = 0; i < self->n; i++)
        if (json_array_append_new(cells, state_cell_json(&self->cells[i])) != 0)
            TRY_OUT(st, mst_fail_memory());
    if (self->search != NULL && json_object_set(state, "search", self->search) != 0)
        TRY_OUT(st, mst_fail_memory());
    text = json_dumps(state, JSON_INDENT(1));
    if (text == NULL)
        TRY_OUT(st, mst_fail_memory());
    mst_string_add(&out, text);
    mst_string_add(&out, "\n");
    TRY_OUT(st, mst_make_folders(self->folder));
    st = mst_string_save(&out, path);
out:
    free(text); /* jansson's allocation */
    mst_string_fini(&out);
    json_decref(state);
    json_decref(cells);
    mst_free(path);
    return st;
}

/* ---- counting ---- */

void mst_sweep_count(const mst_sweep *self, size_t counts[MST_CELL_SKIPPED + 1])
{
    memset(counts, 0, (MST_CELL_SKIPPED + 1) * sizeof *counts);
    for (size_t i = 0; i < self->n; i++)
        counts[self->cells[i].state]++;
}

static const char *state_reason(const mst_sweep_cell *cell)
{
    return cell->is_duplicate ? "are the same as other runs, which are started once" : cell->sentence;
}

bool mst_sweep_left_out(const mst_sweep *self, size_t cell, size_t *n, const char **why)
{
    const mst_sweep_cell *c = self->cells;
    if (c[cell].state != MST_CELL_SKIPPED)
        return false;
    *n = 0;
    *why = state_reason(&c[cell]);
    for (size_t i = 0; i < self->n; i++) {
        if (c[i].state != MST_CELL_SKIPPED || strcmp(state_reason(&c[i]), *why) != 0)
            continue;
        if (i < cell)
            return false;
        ++*n;
    }
    return true;
}

double mst_sweep_estimate(const mst_sweep *self)
{
    double sum = 0, n = 0, left = 0;
    for (size_t i = 0; i < self->n; i++)
        if (self->cells[i].state == MST_CELL_DONE && !isnan(self->cells[i].seconds)) {
            sum += self->cells[i].seconds;
            n++;
        }
    if (n == 0)
        return NAN;
    for (size_t i = 0; i < self->n; i++) {
        const mst_sweep_cell *cell = &self->cells[i];
        double same = 0, n_same = 0;
        if (cell->state != MST_CELL_PENDING && cell->state != MST_CELL_STOPPED)
            continue;
        for (size_t k = 0; k < self->n; k++)
            if (self->cells[k].state == MST_CELL_DONE && !isnan(self->cells[k].seconds) &&
                strcmp(self->cells[k].config, cell->config) == 0) {
                same += self->cells[k].seconds;
                n_same++;
            }
        left += n_same > 0 ? same / n_same : sum / n;
    }
    return left;
}
