/* A study in its folder: the commands of its steps and their state; contract in study.h.
 *
 *   FOLDER/study.json         the state
 *   FOLDER/STEP.yaml, STEP/   the file and the folder of a sweep
 *   FOLDER/out/KEY.out, .log  standard output and standard error of a command
 *   FOLDER/report.html, report.md, plots/ */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json_text.h"
#include "study/study.h"

#define STATE_MAX (16u << 20)
#define CELLS_MAX 1000

static mst_status state_read(mst_study *self)
{
    char *path = mst_sprintf("%s/study.json", self->folder), *text = NULL;
    size_t size;
    mst_status st = MST_OK;
    if (path == NULL)
        return mst_fail_memory();
    if (mst_path_exists(path)) {
        st = mst_file_read_all(path, STATE_MAX, &text, &size);
        if (st == MST_OK)
            self->state = json_loadb(text, size, 0, NULL);
        if (st == MST_OK && !json_is_object(json_object_get(self->state, "steps")))
            st = mst_fail(MST_EINPUT, "%s: is damaged; --overwrite starts from the beginning", path);
    } else {
        self->state = json_pack("{s:i, s:s, s:{}}", "version", 1, "study", self->name, "steps");
        st = self->state != NULL ? MST_OK : mst_fail_memory();
    }
    mst_free(text);
    mst_free(path);
    return st;
}

/* A folder with files but without study.json is not this study's. */
static mst_status state_check_folder(const char *folder, bool overwrite)
{
    char *path = mst_sprintf("%s/study.json", folder);
    mst_status st = path != NULL ? MST_OK : mst_fail_memory();
    if (st == MST_OK && mst_path_exists(folder) && !mst_path_exists(path) && rmdir(folder) != 0)
        st =
            mst_fail(MST_EEXIST, "%s: exists and is not the folder of a study; choose another --out", folder);
    if (st == MST_OK && overwrite)
        st = mst_remove_tree(folder);
    mst_free(path);
    return st;
}

mst_status mst_study_new(const char *name, const char *file, const char *folder, json_t *spec, bool full,
                         bool overwrite, mst_study **out)
{
    mst_status st;
    mst_study *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->name = mst_strdup(name);
    self->file = mst_strdup(file);
    self->folder = mst_strdup(folder);
    self->full = full;
    self->spec = json_incref(spec);
    if (self->name == NULL || self->file == NULL || self->folder == NULL)
        TRY_OUT(st, mst_fail_memory());
    TRY_OUT(st, state_check_folder(folder, overwrite));
    TRY_OUT(st, state_read(self));
    *out = self;
    self = NULL;
out:
    mst_study_destroy(self);
    return st;
}

void mst_study_destroy(mst_study *self)
{
    if (self == NULL)
        return;
    json_decref(self->spec);
    json_decref(self->state);
    json_decref(self->rows);
    json_decref(self->columns);
    mst_free(self->name);
    mst_free(self->file);
    mst_free(self->folder);
    mst_free(self);
}

mst_status mst_study_save(const mst_study *self)
{
    char *path = mst_sprintf("%s/study.json", self->folder);
    mst_status st = path != NULL ? mst_make_folders(self->folder) : mst_fail_memory();
    if (st == MST_OK)
        st = mst_json_save(self->state, JSON_INDENT(1), path);
    mst_free(path);
    return st;
}

/* ---- cells ---- */

static mst_status cell_init(const mst_study *self, const json_t *step, json_t *labels, mst_study_cell *out)
{
    mst_string key = {0}, command = {0};
    const char *name = mst_study_text(step, "name"), *axis;
    json_t *label;
    mst_string_add(&key, name);
    json_object_foreach(labels, axis, label)
    {
        mst_string_format(&key, "-%s", json_string_value(label));
    }
    for (size_t i = 0; i < key.size; i++)
        if (strchr("/ ;&|<>\"'", key.text[i]) != NULL)
            key.text[i] = '_';
    if (mst_study_text(step, "sweep") != NULL)
        mst_string_format(&command, "muster sweep %s.yaml --out %s --extend --retry-failed", name, name);
    else
        mst_study_substitute(labels, mst_study_text(step, "run"), &command);
    mst_string_add(&command, "");
    out->step = step;
    out->labels = json_incref(labels);
    out->key = mst_strdup(key.text != NULL ? key.text : "");
    out->command = mst_strdup(command.text != NULL ? command.text : "");
    bool failed = key.failed || command.failed || out->key == NULL || out->command == NULL;
    mst_string_fini(&key);
    mst_string_fini(&command);
    (void)self;
    return failed ? mst_fail_memory() : MST_OK;
}

/* One cell for each combination of the values of each:, the first axis outermost. */
static mst_status cells_add(const mst_study *self, const json_t *step, void *axis, json_t *labels,
                            mst_study_cell **cells, size_t *n, size_t *capacity)
{
    json_t *each = json_object_get(step, "each");
    while (axis != NULL && strcmp(json_object_iter_key(axis), MST_STUDY_LINE) == 0)
        axis = json_object_iter_next(each, axis);
    if (axis == NULL) {
        if (*n == CELLS_MAX)
            return mst_fail(MST_EUSAGE, "%s: step %s has more than %d commands", self->file,
                            mst_study_text(step, "name"), CELLS_MAX);
        json_t *copy = json_copy(labels);
        if (copy == NULL || !mst_grow(cells, capacity, *n + 1, sizeof **cells)) {
            json_decref(copy);
            return mst_fail_memory();
        }
        mst_study_cell *cell = &(*cells)[(*n)++];
        *cell = (mst_study_cell){0};
        mst_status st = cell_init(self, step, copy, cell);
        json_decref(copy);
        return st;
    }
    json_t *values = json_object_iter_value(axis), *one;
    for (size_t i = 0; i < (json_is_array(values) ? json_array_size(values) : 1); i++) {
        one = json_is_array(values) ? json_array_get(values, i) : values;
        if (json_object_set(labels, json_object_iter_key(axis), one) != 0)
            return mst_fail_memory();
        TRY(cells_add(self, step, json_object_iter_next(each, axis), labels, cells, n, capacity));
    }
    return MST_OK;
}

mst_status mst_study_cells(const mst_study *self, mst_study_cell **cells, size_t *n)
{
    mst_status st = MST_OK;
    size_t i, capacity = 0;
    json_t *step;
    *cells = NULL;
    *n = 0;
    json_array_foreach(json_object_get(self->spec, "steps"), i, step)
    {
        json_t *labels = json_object(), *each = json_object_get(step, "each");
        st = labels != NULL ? cells_add(self, step, each != NULL ? json_object_iter(each) : NULL, labels,
                                        cells, n, &capacity)
                            : mst_fail_memory();
        json_decref(labels);
        if (st != MST_OK)
            break;
    }
    if (st != MST_OK) {
        mst_study_cells_free(*cells, *n);
        *cells = NULL;
        *n = 0;
    }
    return st;
}

void mst_study_cells_free(mst_study_cell *cells, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        mst_free(cells[i].key);
        mst_free(cells[i].command);
        json_decref(cells[i].labels);
    }
    mst_free(cells);
}

/* The command, and for a sweep its file: a change of either makes the cell run again. New reference. */
static json_t *cell_command(const mst_study_cell *cell)
{
    const char *sweep = mst_study_text(cell->step, "sweep");
    return sweep != NULL ? json_pack("[s, s]", cell->command, sweep) : json_pack("[s]", cell->command);
}

bool mst_study_is_done(const mst_study *self, const mst_study_cell *cell)
{
    const json_t *known = json_object_get(json_object_get(self->state, "steps"), cell->key);
    const char *state = mst_study_text(known, "state");
    json_t *command = cell_command(cell);
    bool done =
        state != NULL && strcmp(state, "done") == 0 && json_equal(command, json_object_get(known, "command"));
    json_decref(command);
    return done;
}

bool mst_study_is_changed(const mst_study *self, const mst_study_cell *cell)
{
    const json_t *known = json_object_get(json_object_get(self->state, "steps"), cell->key);
    json_t *command = cell_command(cell);
    bool changed = known != NULL && !json_equal(command, json_object_get(known, "command"));
    json_decref(command);
    return changed;
}

mst_status mst_study_forget_later(mst_study *self, const mst_study_cell *cell)
{
    bool later = false,
         sweeps = mst_study_text(cell->step, "sweep") == NULL && mst_study_is_changed(self, cell);
    mst_study_cell *cells;
    size_t n;
    TRY(mst_study_cells(self, &cells, &n));
    mst_status st = MST_OK;
    for (size_t i = 0; i < n && st == MST_OK; i++) {
        bool sweep = mst_study_text(cells[i].step, "sweep") != NULL;
        later = later || (i > 0 && cells[i - 1].step == cell->step && cells[i].step != cell->step);
        if (!later || (sweep && !sweeps))
            continue;
        json_object_del(json_object_get(self->state, "steps"), cells[i].key);
        if (sweep) { /* it would keep the runs */
            char *folder = mst_sprintf("%s/%s", self->folder, mst_study_text(cells[i].step, "name"));
            st = folder != NULL ? mst_remove_tree(folder) : mst_fail_memory();
            mst_free(folder);
        }
    }
    mst_study_cells_free(cells, n);
    return st == MST_OK ? mst_study_save(self) : st;
}

mst_status mst_study_mark(mst_study *self, const mst_study_cell *cell, double seconds, const char *sentence)
{
    json_t *record = json_pack("{s:o, s:s, s:f}", "command", cell_command(cell), "state",
                               sentence == NULL ? "done" : "failed", "seconds", seconds);
    if (record != NULL && sentence != NULL)
        json_object_set_new(record, "sentence", json_string(sentence));
    if (record == NULL || json_object_set_new(json_object_get(self->state, "steps"), cell->key, record) != 0)
        return mst_fail_memory();
    return mst_study_save(self);
}

char *mst_study_failure(const mst_study *self)
{
    mst_study_cell *cells;
    size_t n;
    char *found = NULL;
    if (mst_study_cells(self, &cells, &n) != MST_OK)
        return NULL;
    for (size_t i = 0; i < n && found == NULL; i++) {
        const json_t *record = json_object_get(json_object_get(self->state, "steps"), cells[i].key);
        const char *sentence = mst_study_text(record, "sentence");
        if (sentence != NULL)
            found = mst_sprintf("%s: %s", cells[i].key, sentence);
    }
    mst_study_cells_free(cells, n);
    return found;
}

/* ---- inputs ---- */

void mst_study_lab_name(const char *folder, char out[17])
{
    char here[4096], *path = NULL;
    if (folder[0] != '/' && getcwd(here, sizeof here) != NULL)
        path = mst_sprintf("%s/%s", here, folder);
    const char *whole = path != NULL ? path : folder;
    unsigned long long hash = XXH3_64bits(whole, strlen(whole));
    memcpy(out, "study-", 6);
    for (int i = 6; i < 14; i++, hash /= 26)
        out[i] = (char)('a' + hash % 26);
    out[14] = '\0';
    mst_free(path);
}

static mst_status input_save(const mst_study *self, const char *name, const mst_string *text)
{
    char *path = mst_sprintf("%s/%s", self->folder, name);
    mst_status st = path != NULL ? mst_string_save(text, path) : mst_fail_memory();
    mst_free(path);
    return st;
}

mst_status mst_study_write_inputs(const mst_study *self)
{
    size_t i;
    json_t *step;
    char name[80], lab[17];
    char *folder = mst_sprintf("%s/out", self->folder);
    mst_status st = folder != NULL ? mst_make_folders(folder) : mst_fail_memory();
    mst_free(folder);
    TRY(st);
    json_array_foreach(json_object_get(self->spec, "steps"), i, step)
    {
        if (mst_study_text(step, "sweep") == NULL)
            continue;
        mst_string text = {0};
        mst_string_format(&text, "%s\n", mst_study_text(step, "sweep"));
        snprintf(name, sizeof name, "%.64s.yaml", mst_study_text(step, "name"));
        st = input_save(self, name, &text);
        mst_string_fini(&text);
        TRY(st);
    }
    mst_study_lab_name(self->folder, lab);
    for (unsigned h = 1; h <= mst_study_hosts(self->spec) && st == MST_OK; h++) {
        mst_string text = {0};
        for (unsigned k = 1; k <= h; k++)
            mst_string_format(&text, "%s%u\n", lab, k);
        snprintf(name, sizeof name, "hosts%u.txt", h);
        st = input_save(self, name, &text);
        if (st == MST_OK && h == mst_study_hosts(self->spec))
            st = input_save(self, "hosts.txt", &text);
        mst_string_fini(&text);
    }
    return st;
}
