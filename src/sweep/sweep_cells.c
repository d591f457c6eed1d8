/* The cells of a sweep: all combinations of the values of the grid, each with a name and a command line;
 * contract in sweep.h.
 *
 * Rules, in this order (docs/SWEEP.md describes them for users):
 * 1. Missing options follow from others: strategy ps if deploy is launch, cluster or cluster2, or if workers
 * or servers are given; allreduce if deploy is mpi without servers; else local. deploy mpi if strategy is
 *    allreduce, else embedded. servers and workers by the presets cluster and cluster2.
 * 2. local needs embedded or single, which has no workers; allreduce needs MPI ranks and mode sync; ps runs
 * with every other deploy; the presets have a number of servers and workers. Other cells are skipped.
 * 3. Options without effect in a cell, by the needs in their rows, are left out of it.
 * 4. Of cells that are then equal, the first one runs.
 * 5. Runs with another seed than the first hold out the same rows: valid-seed is the seed of the first.
 * 6. Cells whose options the strategy or the training loop refuses (a quorum of more workers than there are,
 *    a condition on a test set that is not given) are skipped with that sentence. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "net/cluster.h"
#include "options/option_tables.h"
#include "sweep/sweep.h"
#include "sweep/sweep_metric.h"
#include "train/run_log.h"
#include "train/settings.h"

#define NAME_MAX_BYTES 160

/* ---- options of a cell ---- */

static const char *cells_get(const json_t *set, const char *name)
{
    return json_string_value(json_object_get(set, name));
}

static bool cells_is(const json_t *set, const char *name, const char *text)
{
    const char *value = cells_get(set, name);
    return value != NULL && strcmp(value, text) == 0;
}

static mst_status cells_put(json_t *set, const char *name, const char *text)
{
    return json_object_set_new(set, name, json_string(text)) == 0 ? MST_OK : mst_fail_memory();
}

/* The row of an option of a cell, which the file's reader has found in one of the tables. */
static const mst_option *cells_option_row(const char *name)
{
    const mst_option *row = mst_option_row(mst_deploy_option_table, name);
    return row != NULL ? row : mst_train_option(name);
}

/* The preset that deploy names; NULL: none. */
static const mst_deploy_preset *cells_preset(const json_t *set)
{
    for (const mst_deploy_preset *p = mst_deploy_presets; p->name != NULL; p++)
        if (cells_is(set, "deploy", p->name))
            return p;
    return NULL;
}

/* The number of servers or workers of a preset, unless the cell has one: rule 2 compares it. */
static mst_status cells_put_count(json_t *set, const char *name, uint32_t n)
{
    char text[16];
    snprintf(text, sizeof text, "%u", n);
    return cells_get(set, name) == NULL ? cells_put(set, name, text) : MST_OK;
}

static mst_status cells_imply(json_t *set)
{
    const mst_deploy_preset *preset = cells_preset(set);
    bool servers = cells_get(set, "servers") != NULL, launch = cells_is(set, "deploy", "launch"),
         mpi = cells_is(set, "deploy", "mpi");
    if (preset != NULL && preset->n_servers > 0) {
        launch = true;
        TRY(cells_put_count(set, "servers", preset->n_servers));
        TRY(cells_put_count(set, "workers", preset->n_workers));
    }
    if (cells_get(set, "strategy") == NULL)
        TRY(cells_put(set, "strategy",
                      mpi && !servers                                                 ? "allreduce"
                      : mpi || launch || servers || cells_get(set, "workers") != NULL ? "ps"
                                                                                      : "local"));
    if (cells_get(set, "deploy") == NULL)
        TRY(cells_put(set, "deploy", cells_is(set, "strategy", "allreduce") ? "mpi" : "embedded"));
    return MST_OK;
}

/* Rule 2; NULL: the options fit together. */
static const char *cells_misfit(const json_t *set)
{
    const mst_deploy_preset *preset = cells_preset(set);
    bool single = preset != NULL && preset->n_servers == 0;
    if (single && !cells_is(set, "strategy", "local"))
        return "deploy single is one process without workers, so it needs strategy local";
    if (cells_is(set, "strategy", "local") && !cells_is(set, "deploy", "embedded") && !single)
        return "strategy local is one process, so it needs deploy embedded or single";
    if (preset != NULL && !single &&
        (atoll(cells_get(set, "servers")) != preset->n_servers ||
         atoll(cells_get(set, "workers")) != preset->n_workers))
        return "deploy cluster and cluster2 have a number of servers and workers of their own";
    if (cells_is(set, "strategy", "allreduce") && !cells_is(set, "deploy", "mpi"))
        return "strategy allreduce trains in MPI ranks, so it needs deploy mpi";
    if (cells_is(set, "strategy", "allreduce") && cells_get(set, "mode") != NULL &&
        !cells_is(set, "mode", "sync"))
        return "strategy allreduce is synchronous, so it needs mode sync";
    return NULL;
}

static const char *cells_get_or(const json_t *set, const char *name, const char *otherwise)
{
    return cells_get(set, name) != NULL ? cells_get(set, name) : otherwise;
}

/* Rule 5. */
static mst_status cells_share_hold_out(const mst_sweep *self, json_t *set)
{
    const char *first = cells_get_or(self->n > 0 ? self->cells[0].set : set, "seed", "1");
    if (cells_get(set, "valid") == NULL || cells_get(set, "valid-seed") != NULL ||
        strcmp(cells_get_or(set, "seed", "1"), first) == 0)
        return MST_OK;
    char *end;
    strtod(cells_get(set, "valid"), &end);
    return *end == '\0' ? cells_put(set, "valid-seed", first) : MST_OK; /* a file is the same for all runs */
}

/* The settings of a cell; the caller calls mst_settings_fini in any case. deploy must live as long. */
static mst_status cells_settings_of(const json_t *set, mst_deploy_options *deploy, mst_settings *out)
{
    mst_option_group own = {.title = "deploy", .table = mst_deploy_option_table, .base = deploy};
    const char *name;
    json_t *value;
    mst_settings_begin(out, &own);
    TRY(mst_options_init(out->groups, out->n_groups));
    json_object_foreach((json_t *)set, name, value)
        TRY(mst_options_set(out->groups, out->n_groups, name, json_string_value(value)));
    return MST_OK;
}

/* Rule 3. */
static mst_status cells_leave_out(json_t *set)
{
    mst_settings s;
    mst_deploy_options deploy = {0};
    const char *name;
    json_t *value;
    void *next;
    mst_status st;
    TRY_OUT(st, cells_settings_of(set, &deploy, &s));
    TRY_OUT(st, mst_settings_imply(&s));
    json_object_foreach_safe(set, next, name, value)
    {
        if (mst_options_unmet(s.groups, s.n_groups, cells_option_row(name), MST_NEED_SWEEP, NULL) != NULL)
            json_object_del(set, name);
    }
out:
    mst_settings_fini(&s);
    return st;
}

/* Rule 6: MST_EUSAGE with the sentence of the strategy or the training loop. */
static mst_status cells_check_options(const json_t *set)
{
    mst_settings s;
    mst_deploy_options deploy = {0};
    mst_run_schedule schedule;
    mst_status st;
    TRY_OUT(st, cells_settings_of(set, &deploy, &s));
    s.resolved = s.strategy;
    TRY_OUT(st, mst_strategy_resolve(&s.resolved));
    TRY_OUT(st, mst_run_schedule_parse(&s.train, false, &schedule));
    if (mst_model_has(mst_models[s.model.model], MST_MODEL_BINARY) && s.model.net == NULL)
        st = mst_run_schedule_check(&schedule, &s.train, 1);
out:
    mst_settings_fini(&s);
    return st;
}

mst_status mst_sweep_check_files(const mst_sweep *self, const mst_sweep_cell *cell)
{
    mst_settings s;
    mst_deploy_options deploy = {0};
    mst_text_list found = {0};
    char *end = NULL;
    size_t i;
    json_t *file;
    mst_status st;
    TRY_OUT(st, cells_settings_of(cell->set, &deploy, &s));
    if (deploy.hosts != NULL) /* files on other hosts cannot be checked here */
        goto out;
    json_array_foreach(json_object_get(self->spec, "files"), i, file)
        TRY_OUT(st, mst_text_list_add(&s.files, json_string_value(file)));
    for (i = 0; i < s.train.test.n; i++)
        TRY_OUT(st, mst_text_list_add(&s.files, s.train.test.items[i]));
    if (s.train.valid != NULL)
        strtod(s.train.valid, &end);
    if (end != NULL && *end != '\0') /* not a fraction */
        TRY_OUT(st, mst_text_list_add(&s.files, s.train.valid));
    st = mst_glob(&s.files, &found);
out:
    mst_text_list_fini(&found);
    mst_settings_fini(&s);
    return st;
}

/* ---- names ---- */

/* Whether the values of an axis are clear without its name. */
static bool cells_is_self_named(const char *axis, const json_t *value)
{
    const json_t *set = json_object_get(value, "set");
    return json_object_size(set) != 1 || json_object_get(set, axis) == NULL ||
           (cells_option_row(axis)->facts & MST_OPTION_SELF_NAMED) != 0;
}

/* Appends "-axisvalue" in characters that are safe in file names and shells. */
static void cells_add_part(char *name, const char *axis, const char *label)
{
    size_t n = strlen(name);
    if (n > 0 && n < NAME_MAX_BYTES)
        name[n++] = '-';
    for (int part = 0; part < 2; part++)
        for (const char *p = part == 0 ? axis : label; *p != '\0' && n < NAME_MAX_BYTES; p++)
            name[n++] = isalnum((unsigned char)*p) || strchr("._+=-", *p) != NULL ? *p : '_';
    name[n] = '\0';
}

static bool cells_has_name(const mst_sweep *self, const char *name)
{
    for (size_t i = 0; i < self->n; i++)
        if (strcmp(self->cells[i].name, name) == 0)
            return true;
    return false;
}

static mst_status cells_name_cell(mst_sweep *self, mst_sweep_cell *cell, const json_t *grid)
{
    char config[NAME_MAX_BYTES + 1] = "", name[NAME_MAX_BYTES + 1] = "", unique[NAME_MAX_BYTES + 24];
    const char *axis;
    json_t *values;
    json_object_foreach((json_t *)grid, axis, values)
    {
        const char *label = json_string_value(json_object_get(cell->labels, axis));
        if (label != NULL && json_array_size(values) > 1 && strcmp(axis, "seed") != 0)
            cells_add_part(config, cells_is_self_named(axis, json_array_get(values, 0)) ? "" : axis, label);
    }
    memcpy(name, config, sizeof name);
    if (json_array_size(json_object_get(grid, "seed")) > 1)
        cells_add_part(name, "seed", json_string_value(json_object_get(cell->labels, "seed")));
    snprintf(unique, sizeof unique, "%s", name[0] != '\0' ? name : "run");
    for (unsigned k = 2; cells_has_name(self, unique); k++)
        snprintf(unique, sizeof unique, "%s~%u", name[0] != '\0' ? name : "run", k);
    cell->name = mst_strdup(unique);
    cell->config = mst_strdup(config[0] != '\0' ? config : "run");
    return cell->name != NULL && cell->config != NULL ? MST_OK : mst_fail_memory();
}

/* ---- command lines ---- */

static mst_status cells_add_option(mst_text_list *words, const char *name, const char *value)
{
    if (cells_option_row(name)->type == MST_OPTION_FLAG)
        return mst_text_list_format(words, "--%s%s", strcmp(value, "true") == 0 ? "" : "no-", name);
    return mst_text_list_format(words, "--%s=%s", name, value);
}

static mst_status cells_add_launch(mst_text_list *words, const json_t *set)
{
    const char *servers = cells_get(set, "servers"), *workers = cells_get(set, "workers"), *name;
    bool mpi = cells_is(set, "deploy", "mpi");
    json_t *value;
    TRY(mst_text_list_add(words, "launch"));
    if (mpi) {
        long long ranks = atoll(workers != NULL ? workers : "1");
        if (cells_is(set, "strategy", "ps"))
            ranks += atoll(servers != NULL ? servers : "1");
        TRY(mst_text_list_add(words, "--mpi"));
        TRY(mst_text_list_format(words, "--ranks=%lld", ranks));
    } else if (cells_preset(set) != NULL) {
        TRY(mst_text_list_format(words, "--deploy=%s", cells_get(set, "deploy")));
    } else {
        TRY(mst_text_list_format(words, "--servers=%s", servers != NULL ? servers : "1"));
        TRY(mst_text_list_format(words, "--workers=%s", workers != NULL ? workers : "1"));
    }
    json_object_foreach((json_t *)set, name, value)
    {
        if (mst_option_row(mst_deploy_option_table, name) != NULL && strcmp(name, "deploy") != 0)
            TRY(cells_add_option(words, name, json_string_value(value)));
    }
    TRY(mst_text_list_add(words, "--logs=none"));
    return mst_text_list_add(words, "--");
}

static mst_status cells_make_words(mst_sweep_cell *cell, const json_t *files)
{
    const json_t *set = cell->set;
    bool embedded = cells_is(set, "deploy", "embedded"), mpi = cells_is(set, "deploy", "mpi");
    const char *name;
    json_t *value;
    size_t i;
    if (!embedded)
        TRY(cells_add_launch(&cell->words, set));
    TRY(mst_text_list_add(&cell->words, "train"));
    json_array_foreach((json_t *)files, i, value)
        TRY(mst_text_list_add(&cell->words, json_string_value(value)));
    json_object_foreach((json_t *)set, name, value)
    {
        bool of_job = (cells_option_row(name)->facts & MST_OPTION_OF_JOB) != 0;
        bool by_launch = of_job && (mpi ? strcmp(name, "workers") == 0 : !embedded);
        if (mst_option_row(mst_deploy_option_table, name) == NULL && !by_launch)
            TRY(cells_add_option(&cell->words, name, json_string_value(value)));
    }
    return MST_OK;
}

/* ---- cells ---- */

static void sweep_cell_fini(mst_sweep_cell *cell)
{
    mst_free(cell->name);
    mst_free(cell->config);
    mst_free(cell->sentence);
    json_decref(cell->set);
    json_decref(cell->labels);
    mst_text_list_fini(&cell->words);
}

mst_status mst_sweep_mark(mst_sweep_cell *cell, mst_cell_state state, const char *sentence)
{
    char *copy = sentence != NULL ? mst_strdup(sentence) : NULL;
    if (sentence != NULL && copy == NULL)
        return mst_fail_memory();
    mst_free(cell->sentence);
    cell->sentence = copy;
    cell->state = state;
    if (state == MST_CELL_RUNNING)
        cell->began = mst_wall_s();
    return MST_OK;
}

/* Adds the options of a value to those of a cell, and the label of its axis. */
static mst_status cells_merge(const mst_sweep *self, mst_sweep_cell *cell, const char *axis,
                              const json_t *value)
{
    const char *name;
    json_t *text;
    json_object_foreach(json_object_get(value, "set"), name, text)
    {
        if (json_object_get(cell->set, name) != NULL && strcmp(name, "seed") != 0)
            return mst_fail(MST_EUSAGE, "%s: grid: %s: %s is set by two axes", self->file, axis, name);
        if (json_object_set(cell->set, name, text) != 0)
            return mst_fail_memory();
    }
    return json_object_set(cell->labels, axis, json_object_get(value, "label")) == 0 ? MST_OK
                                                                                     : mst_fail_memory();
}

static void cells_drop_labels(mst_sweep_cell *cell, const json_t *grid)
{
    const char *axis, *name;
    json_t *values, *text;
    size_t i;
    json_t *value;
    json_object_foreach((json_t *)grid, axis, values)
    {
        bool counts = false;
        json_array_foreach(values, i, value)
        {
            json_object_foreach(json_object_get(value, "set"), name, text) counts =
                counts || json_object_get(cell->set, name) != NULL;
        }
        if (!counts)
            json_object_del(cell->labels, axis);
    }
}

/* Applies the rules. seen: options -> name, of all cells so far. */
static mst_status cells_settle(mst_sweep *self, mst_sweep_cell *cell, const json_t *grid, json_t *seen)
{
    TRY(cells_imply(cell->set));
    const char *why = cells_misfit(cell->set);
    if (why == NULL) {
        TRY(cells_leave_out(cell->set));
        TRY(cells_share_hold_out(self, cell->set));
        cells_drop_labels(cell, grid);
    }
    char *key = json_dumps(cell->set, JSON_COMPACT | JSON_SORT_KEYS);
    if (key == NULL)
        return mst_fail_memory();
    const char *same = json_string_value(json_object_get(seen, key));
    char *sentence = same != NULL ? mst_sprintf("is the same as %s", same) : NULL;
    mst_status st = same == NULL || sentence != NULL ? cells_name_cell(self, cell, grid) : mst_fail_memory();
    if (st == MST_OK && same == NULL && json_object_set_new(seen, key, json_string(cell->name)) != 0)
        st = mst_fail_memory();
    free(key); /* jansson's allocation */
    if (st == MST_OK && same == NULL && why == NULL) {
        st = cells_check_options(cell->set);
        why = st == MST_EUSAGE ? mst_error_text() : NULL;
        st = st == MST_EUSAGE ? MST_OK : st;
    }
    cell->is_duplicate = why == NULL && same != NULL;
    if (st == MST_OK && (why != NULL || same != NULL))
        st = mst_sweep_mark(cell, MST_CELL_SKIPPED, why != NULL ? why : sentence);
    if (st == MST_OK)
        st = cells_make_words(cell, json_object_get(self->spec, "files"));
    mst_free(sentence);
    return st;
}

static mst_status cells_add_cell(mst_sweep *self, const json_t *grid, const size_t *at, json_t *seen)
{
    mst_status st;
    const char *axis;
    json_t *values;
    size_t k = 0;
    mst_sweep_cell cell = {.set = json_copy(json_object_get(self->spec, "for")),
                           .labels = json_object(),
                           .seconds = NAN,
                           .began = NAN};
    if (cell.set == NULL || cell.labels == NULL ||
        json_object_update(cell.set, json_object_get(self->spec, "train")) != 0)
        TRY_OUT(st, mst_fail_memory());
    json_object_foreach((json_t *)grid, axis, values)
        TRY_OUT(st, cells_merge(self, &cell, axis, json_array_get(values, at[k++])));
    TRY_OUT(st, cells_settle(self, &cell, grid, seen));
    self->cells[self->n++] = cell;
    cell = (mst_sweep_cell){0};
out:
    sweep_cell_fini(&cell);
    return st;
}

/* The grid with the seeds first, so that they are the outermost loop, and with batch sizes if it has none.
 * New reference or NULL. */
static json_t *cells_ordered_grid(const json_t *spec, const char *const *batches)
{
    json_t *grid = json_object(), *from = json_object_get(spec, "grid"), *values;
    const char *axis;
    bool fine = grid != NULL;
    if (fine && json_object_get(from, "seed") != NULL)
        fine = json_object_set(grid, "seed", json_object_get(from, "seed")) == 0;
    json_object_foreach(from, axis, values) fine = fine && json_object_set(grid, axis, values) == 0;
    bool has_batch = json_object_get(json_object_get(spec, "train"), "batch") != NULL ||
                     json_object_get(json_object_get(spec, "train"), "global-batch") != NULL;
    json_object_foreach(from, axis, values)
    {
        const json_t *set = json_object_get(json_array_get(values, 0), "set");
        has_batch = has_batch || json_object_get(set, "batch") != NULL ||
                    json_object_get(set, "global-batch") != NULL;
    }
    json_t *added = fine && batches != NULL && !has_batch ? json_array() : NULL;
    for (size_t i = 0; added != NULL && batches[i] != NULL; i++)
        fine = json_array_append_new(added, json_pack("{s:s, s:{s:s}}", "label", batches[i], "set", "batch",
                                                      batches[i])) == 0 &&
               fine;
    if (added != NULL)
        fine = json_object_set_new(grid, "batch", added) == 0 && fine;
    if (!fine) {
        json_decref(grid);
        return NULL;
    }
    return grid;
}

mst_status mst_sweep_new(const char *file, const char *folder, const json_t *spec, const char *const *batches,
                         mst_sweep **out)
{
    mst_status st;
    const char *axis;
    json_t *values, *seen = json_object(), *grid = cells_ordered_grid(spec, batches);
    size_t total = 1, sizes[64], at[64] = {0}, n_axes = 0;
    mst_sweep *self = mst_zalloc(sizeof *self);
    if (self == NULL || seen == NULL || grid == NULL)
        TRY_OUT(st, mst_fail_memory());
    self->file = mst_strdup(file);
    self->folder = mst_strdup(folder);
    self->spec = json_deep_copy(spec);
    if (self->file == NULL || self->folder == NULL || self->spec == NULL ||
        json_object_set(self->spec, "grid", grid) != 0)
        TRY_OUT(st, mst_fail_memory());
    json_object_foreach(grid, axis, values)
    {
        if (n_axes == sizeof sizes / sizeof *sizes)
            TRY_OUT(st, mst_fail(MST_EUSAGE, "%s: grid: more than 64 axes", file));
        sizes[n_axes++] = json_array_size(values);
        total *= json_array_size(values);
        if (total > MST_SWEEP_CELLS_MAX)
            TRY_OUT(st, mst_fail(MST_EUSAGE, "%s: grid: more than %d runs", file, MST_SWEEP_CELLS_MAX));
    }
    self->cells = mst_calloc(total, sizeof *self->cells);
    if (self->cells == NULL)
        TRY_OUT(st, mst_fail_memory());
    for (size_t i = 0; i < total; i++) {
        TRY_OUT(st, cells_add_cell(self, grid, at, seen));
        for (size_t k = n_axes; k > 0 && ++at[k - 1] == sizes[k - 1]; k--)
            at[k - 1] = 0;
    }
    *out = self;
    self = NULL;
    st = MST_OK;
out:
    json_decref(seen);
    json_decref(grid);
    mst_sweep_destroy(self);
    return st;
}

void mst_sweep_destroy(mst_sweep *self)
{
    if (self == NULL)
        return;
    for (size_t i = 0; i < self->n; i++)
        sweep_cell_fini(&self->cells[i]);
    mst_free(self->cells);
    mst_free(self->file);
    mst_free(self->folder);
    json_decref(self->spec);
    json_decref(self->search);
    mst_free(self);
}

char *mst_sweep_run_path(const mst_sweep *self, const mst_sweep_cell *cell)
{
    return mst_sprintf("%s/runs/%s", self->folder, cell->name);
}

const char *mst_sweep_metric_name(const mst_sweep *self, bool *given)
{
    const char *name = json_string_value(json_object_get(self->spec, "metric"));
    if (given != NULL)
        *given = name != NULL;
    return name != NULL ? name : MST_METRIC_DEFAULT;
}

unsigned mst_sweep_cell_threads(const mst_sweep_cell *cell, unsigned cores)
{
    long threads = atol(cells_get_or(cell->set, "threads", "1")),
         workers = atol(cells_get_or(cell->set, "workers", "1")),
         servers = cells_is(cell->set, "strategy", "ps") ? atol(cells_get_or(cell->set, "servers", "1")) : 0;
    return (unsigned)(workers * (threads > 0 ? threads : (long)cores) + servers);
}

const char *mst_sweep_until(const mst_sweep *self)
{
    return json_string_value(json_object_get(json_object_get(self->spec, "for"), "until"));
}
