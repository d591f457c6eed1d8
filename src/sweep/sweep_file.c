/* Reads the YAML file of a sweep into normal form; contract in sweep.h, the language in docs/SWEEP.md.
 *
 * The document tree of libyaml has the line of every node, which errors name. Every option is stored in the
 * option tables of a training and read back, so that 1k and 1000 are the same value and a wrong one is
 * refused before anything runs.
 *
 * Invariant: nodes are visited to a fixed depth, so that circular aliases are harmless. */
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/alloc.h"
#include "base/file.h"
#include "mpi/mpi.h"
#include "net/cluster.h"
#include "options/option_tables.h"
#include "sweep/sweep.h"
#include "sweep/sweep_metric.h"
#include "train/settings.h"

#define FILE_MAX    (1u << 20)
#define REPEATS_MAX 1000

#define FIELD(name) .offset = offsetof(mst_deploy_options, name)
const mst_option mst_deploy_option_table[] = {
    {.name = "deploy",
     .type = MST_OPTION_CHOICE,
     FIELD(deploy),
     .fallback = "embedded",
     .choices = "embedded|launch|mpi|" MST_DEPLOY_PRESETS,
     .help = "How the processes of a run are started. embedded: one process; launch: servers and workers, "
             "with `muster launch`; mpi: ranks, with `muster launch --mpi`; single, cluster, cluster2: with "
             "`muster launch --deploy`.",
     .facts = MST_OPTION_SELF_NAMED},
    {.name = "hosts",
     .type = MST_OPTION_TEXT,
     FIELD(hosts),
     .metavar = "FILE",
     .help = "As in `muster launch`.",
     .needs = {{.option = "deploy", .values = "launch|mpi|" MST_DEPLOY_PRESETS}}},
    {.name = "ssh",
     .type = MST_OPTION_TEXT,
     FIELD(ssh),
     .metavar = "COMMAND",
     .help = "As in `muster launch`.",
     .needs = {{.option = "deploy", .values = "launch|mpi|" MST_DEPLOY_PRESETS}}},
    {.name = "copy",
     .type = MST_OPTION_FLAG,
     FIELD(copy),
     .help = "As in `muster launch`.",
     .needs = {{.option = "deploy", .values = "launch|" MST_DEPLOY_PRESETS}}},
    {.name = "port",
     .type = MST_OPTION_INT,
     FIELD(port),
     .fallback = MST_CLUSTER_PORT,
     .min = MST_PORT_MIN,
     .max = MST_PORT_MAX,
     .help = "As in `muster launch`.",
     .needs = {{.option = "deploy", .values = "launch|" MST_DEPLOY_PRESETS}}},
    {.name = "mpi-plugin",
     .type = MST_OPTION_CHOICE,
     FIELD(mpi_plugin),
     .fallback = "auto",
     .choices = MST_MPI_KINDS,
     .help = "As in `muster launch`.",
     .needs = {{.option = "deploy", .values = "mpi"}}},
    {.name = "mpi-args",
     .type = MST_OPTION_TEXT,
     FIELD(mpi_args),
     .metavar = "WORDS",
     .help = "As in `muster launch`.",
     .needs = {{.option = "deploy", .values = "mpi"}}},
    {.name = NULL},
};

typedef struct reader {
    const char *path;
    yaml_document_t doc;
    mst_settings settings; /* values are parsed into it */
    mst_deploy_options deploy;
} reader;

/* ---- nodes ---- */

static size_t file_line_of(const yaml_node_t *node)
{
    return node->start_mark.line + 1;
}

static yaml_node_t *file_node_at(reader *r, int index)
{
    return yaml_document_get_node(&r->doc, index);
}

/* The text of a node that must be a scalar. */
static mst_status file_scalar(const reader *r, const yaml_node_t *node, const char *key, const char **out)
{
    if (node->type != YAML_SCALAR_NODE)
        return mst_fail(MST_EUSAGE, "%s:%zu: %s: must be a single value here, not nested", r->path,
                        file_line_of(node), key);
    const char *text = (const char *)node->data.scalar.value;
    if (strlen(text) != node->data.scalar.length)
        return mst_fail(MST_EUSAGE, "%s:%zu: %s: contains a zero byte", r->path, file_line_of(node), key);
    bool plain = node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (plain && (*text == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0))
        return mst_fail(MST_EUSAGE, "%s:%zu: %s: has no value", r->path, file_line_of(node), key);
    *out = text;
    return MST_OK;
}

static mst_status file_want(const reader *r, const yaml_node_t *node, yaml_node_type_t type, const char *key,
                            const char *what)
{
    if (node->type == type)
        return MST_OK;
    return mst_fail(MST_EUSAGE, "%s:%zu: %s: must be %s", r->path, file_line_of(node), key, what);
}

/* ---- options ---- */

/* Parses an option, and stores it in the form of a command line in `into`. */
static mst_status file_put_option(reader *r, size_t line, const char *name, const char *value, json_t *into)
{
    mst_settings *s = &r->settings;
    if (mst_train_option_is(name, MST_OPTION_OF_SWEEP))
        return mst_fail(MST_EUSAGE, "%s:%zu: %s: cannot be set: the sweep sets it for each of its runs",
                        r->path, line, name);
    if (json_object_get(into, name) != NULL)
        return mst_fail(MST_EUSAGE, "%s:%zu: %s: is given twice", r->path, line, name);
    mst_status st = mst_options_set(s->groups, s->n_groups, name, value);
    if (st == MST_EUSAGE) {
        mst_error error;
        mst_error_save(&error, MST_EUSAGE);
        const char *text = strncmp(error.text, "--", 2) == 0 ? error.text + 2 : error.text;
        return mst_fail(MST_EUSAGE, "%s:%zu: %s%s%s", r->path, line, text == error.text ? name : "",
                        text == error.text ? ": " : "", text);
    }
    TRY(st);
    json_t *all = mst_options_json(s->groups, s->n_groups), *group, *found = NULL;
    const char *title;
    json_object_foreach(all, title, group)
    {
        if (found == NULL)
            found = json_object_get(group, name);
    }
    char *text = found != NULL ? mst_option_text(found) : NULL;
    json_t *kept = text != NULL ? json_string(text) : NULL;
    bool not_text = text != NULL && kept == NULL;
    mst_free(text);
    json_decref(all);
    if (not_text)
        return mst_fail(MST_EUSAGE, "%s:%zu: %s: is not UTF-8 text", r->path, line, name);
    return json_object_set_new(into, name, kept) == 0 ? MST_OK : mst_fail_memory();
}

/* An option whose value may be a sequence (joined with commas, as lists are). */
static mst_status file_put_node(reader *r, const char *name, const yaml_node_t *value, json_t *into)
{
    const char *text;
    if (value->type != YAML_SEQUENCE_NODE) {
        TRY(file_scalar(r, value, name, &text));
        return file_put_option(r, file_line_of(value), name, text, into);
    }
    json_t *items = json_array();
    mst_status st = items != NULL ? MST_OK : mst_fail_memory();
    for (yaml_node_item_t *i = value->data.sequence.items.start;
         st == MST_OK && i < value->data.sequence.items.top; i++) {
        st = file_scalar(r, file_node_at(r, *i), name, &text);
        if (st == MST_OK && json_array_append_new(items, json_string(text)) != 0)
            st = mst_fail_memory();
    }
    char *joined = st == MST_OK ? mst_option_text(items) : NULL;
    json_decref(items);
    TRY(st);
    st = joined != NULL ? file_put_option(r, file_line_of(value), name, joined, into) : mst_fail_memory();
    mst_free(joined);
    return st;
}

/* A mapping of options; skip: a key that is not one, or NULL. */
static mst_status file_put_mapping(reader *r, const yaml_node_t *node, const char *key, const char *skip,
                                   json_t *into)
{
    TRY(file_want(r, node, YAML_MAPPING_NODE, key, "a mapping of options to values"));
    for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        const char *name;
        TRY(file_scalar(r, file_node_at(r, p->key), key, &name));
        if (skip == NULL || strcmp(name, skip) != 0)
            TRY(file_put_node(r, name, file_node_at(r, p->value), into));
    }
    return MST_OK;
}

/* ---- the grid ---- */

static mst_status file_add_value(const reader *r, json_t *values, size_t line, const char *axis,
                                 const char *label, json_t *set)
{
    size_t i;
    json_t *other;
    json_array_foreach(values, i, other)
    {
        if (strcmp(json_string_value(json_object_get(other, "label")), label) == 0) {
            json_decref(set);
            return mst_fail(MST_EUSAGE, "%s:%zu: %s: the value %s is given twice", r->path, line, axis,
                            label);
        }
    }
    json_t *value = json_pack("{s:s, s:o}", "label", label, "set", set);
    return value != NULL && json_array_append_new(values, value) == 0 ? MST_OK : mst_fail_memory();
}

/* One value of an axis: of the option with its name, or a named mapping of several options. */
static mst_status file_add_node(reader *r, const char *axis, const yaml_node_t *node, json_t *values)
{
    mst_status st;
    const char *label = NULL;
    json_t *set = json_object();
    if (set == NULL)
        return mst_fail_memory();
    if (node->type != YAML_MAPPING_NODE) {
        TRY_OUT(st, file_put_node(r, axis, node, set));
        label = json_string_value(json_object_get(set, axis));
    } else {
        TRY_OUT(st, file_put_mapping(r, node, axis, "name", set));
        for (yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
            const char *name;
            TRY_OUT(st, file_scalar(r, file_node_at(r, p->key), axis, &name));
            if (strcmp(name, "name") == 0)
                TRY_OUT(st, file_scalar(r, file_node_at(r, p->value), "name", &label));
        }
        if (label == NULL || *label == '\0')
            TRY_OUT(st, mst_fail(MST_EUSAGE,
                                 "%s:%zu: %s: a value with several options needs a name, as in {name: small, "
                                 "batch: 100, lr: 0.1}",
                                 r->path, file_line_of(node), axis));
    }
    st = file_add_value(r, values, file_line_of(node), axis, label, json_incref(set));
out:
    json_decref(set);
    return st;
}

static mst_status file_add_axis(reader *r, const char *axis, const yaml_node_t *node, json_t *grid)
{
    json_t *values = json_array();
    if (json_object_get(grid, axis) != NULL) {
        json_decref(values);
        return mst_fail(MST_EUSAGE, "%s:%zu: %s: is given twice in the grid", r->path, file_line_of(node),
                        axis);
    }
    if (values == NULL || json_object_set_new(grid, axis, values) != 0)
        return mst_fail_memory();
    if (node->type != YAML_SEQUENCE_NODE)
        return file_add_node(r, axis, node, values);
    for (yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top; i++)
        TRY(file_add_node(r, axis, file_node_at(r, *i), values));
    if (json_array_size(values) == 0)
        return mst_fail(MST_EUSAGE, "%s:%zu: %s: has no values", r->path, file_line_of(node), axis);
    return MST_OK;
}

/* repeats: N is an axis of N seeds. */
static mst_status file_add_repeats(reader *r, const yaml_node_t *node, const json_t *train, json_t *grid)
{
    const char *text, *first = json_string_value(json_object_get(train, "seed"));
    int64_t n, seed = 1;
    TRY(file_scalar(r, node, "repeats", &text));
    if (!mst_parse_int(text, &n) || n < 1 || n > REPEATS_MAX)
        return mst_fail(MST_EUSAGE, "%s:%zu: repeats: %s: must be between 1 and %d", r->path,
                        file_line_of(node), text, REPEATS_MAX);
    if (json_object_get(grid, "seed") != NULL)
        return mst_fail(MST_EUSAGE, "%s:%zu: repeats: the grid already names the seeds", r->path,
                        file_line_of(node));
    if (first != NULL)
        mst_parse_int(first, &seed);
    json_t *values = json_array();
    if (values == NULL || json_object_set_new(grid, "seed", values) != 0)
        return mst_fail_memory();
    for (int64_t i = 0; i < n; i++) {
        char label[32];
        snprintf(label, sizeof label, "%lld", (long long)(seed + i));
        json_t *set = json_pack("{s:s}", "seed", label);
        if (set == NULL)
            return mst_fail_memory();
        TRY(file_add_value(r, values, file_line_of(node), "repeats", label, set));
    }
    return MST_OK;
}

/* ---- the file as a whole ---- */

typedef struct parts {
    yaml_node_t *files, *train, *limits, *grid, *repeats, *metric, *jobs;
} parts;

static mst_status file_find_parts(reader *r, parts *out)
{
    struct {
        const char *key;
        yaml_node_t **at;
    } known[] = {{"files", &out->files}, {"train", &out->train},     {"for", &out->limits},
                 {"grid", &out->grid},   {"repeats", &out->repeats}, {"metric", &out->metric},
                 {"jobs", &out->jobs}};
    yaml_node_t *root = yaml_document_get_root_node(&r->doc);
    *out = (parts){0};
    if (root == NULL)
        return mst_fail(MST_EUSAGE, "%s:1: is empty; a sweep has files:, for:, train: and grid:", r->path);
    TRY(file_want(r, root, YAML_MAPPING_NODE, "a sweep", "a mapping with files:, for:, train: and grid:"));
    for (yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top; p++) {
        const char *key;
        yaml_node_t *node = file_node_at(r, p->key);
        size_t i = 0;
        TRY(file_scalar(r, node, "a key", &key));
        while (i < sizeof known / sizeof *known && strcmp(known[i].key, key) != 0)
            i++;
        if (i == sizeof known / sizeof *known)
            return mst_fail(MST_EUSAGE,
                            "%s:%zu: %s: unknown; a sweep has files, for, train, grid, repeats, metric and "
                            "jobs",
                            r->path, file_line_of(node), key);
        if (*known[i].at != NULL)
            return mst_fail(MST_EUSAGE, "%s:%zu: %s: is given twice", r->path, file_line_of(node), key);
        *known[i].at = file_node_at(r, p->value);
    }
    if (out->files == NULL)
        return mst_fail(MST_EUSAGE, "%s:%zu: files: is missing; it names the training data", r->path,
                        file_line_of(root));
    return MST_OK;
}

static mst_status file_put_files(reader *r, const yaml_node_t *node, json_t *files)
{
    const char *text;
    if (node->type != YAML_SEQUENCE_NODE) {
        TRY(file_scalar(r, node, "files", &text));
        return json_array_append_new(files, json_string(text)) == 0 ? MST_OK : mst_fail_memory();
    }
    for (yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top; i++) {
        TRY(file_scalar(r, file_node_at(r, *i), "files", &text));
        if (strcmp(text, "-") == 0)
            return mst_fail(MST_EUSAGE, "%s:%zu: files: -: runs cannot share standard input; name a file",
                            r->path, file_line_of(node));
        if (json_array_append_new(files, json_string(text)) != 0)
            return mst_fail_memory();
    }
    if (json_array_size(files) == 0)
        return mst_fail(MST_EUSAGE, "%s:%zu: files: has no values", r->path, file_line_of(node));
    return MST_OK;
}

/* rows, steps, epochs or seconds; or until, with any of the others. */
static mst_status file_put_limits(reader *r, const yaml_node_t *node, json_t *limits)
{
    const char *name;
    json_t *value;
    TRY(file_put_mapping(r, node, "for", NULL, limits));
    json_object_foreach(limits, name, value)
    {
        if (!mst_train_option_is(name, MST_OPTION_LIMIT))
            return mst_fail(MST_EUSAGE, "%s:%zu: for: %s: not one of rows, steps, epochs, seconds, until",
                            r->path, file_line_of(node), name);
    }
    size_t n = json_object_size(limits);
    if (n == 0 || (n > 1 && json_object_get(limits, "until") == NULL))
        return mst_fail(MST_EUSAGE,
                        "%s:%zu: for: give one of rows, steps, epochs and seconds, or until with any of them "
                        "as upper limits",
                        r->path, file_line_of(node));
    return MST_OK;
}

/* metric: and jobs: keep the text of the file. */
static mst_status file_put_metric(reader *r, const yaml_node_t *node, json_t *spec)
{
    const char *text;
    mst_sweep_metric metric;
    TRY(file_scalar(r, node, "metric", &text));
    if (!mst_sweep_metric_find(text, &metric))
        return mst_fail(MST_EUSAGE, "%s:%zu: metric: %s: not one of " MST_METRIC_NAMES, r->path,
                        file_line_of(node), text);
    return json_object_set_new(spec, "metric", json_string(text)) == 0 ? MST_OK : mst_fail_memory();
}

static mst_status file_put_jobs(reader *r, const yaml_node_t *node, json_t *spec)
{
    const char *text;
    unsigned jobs;
    TRY(file_scalar(r, node, "jobs", &text));
    if (!mst_sweep_jobs_parse(text, &jobs))
        return mst_fail(MST_EUSAGE, "%s:%zu: jobs: %s: must be auto or between 1 and %d", r->path,
                        file_line_of(node), text, MST_JOBS_MAX);
    return json_object_set_new(spec, "jobs", json_string(text)) == 0 ? MST_OK : mst_fail_memory();
}

bool mst_sweep_jobs_parse(const char *text, unsigned *out)
{
    int64_t n = MST_JOBS_AUTO;
    if (strcmp(text, "auto") != 0 && (!mst_parse_int(text, &n) || n < 1 || n > MST_JOBS_MAX))
        return false;
    *out = (unsigned)n;
    return true;
}

/* The line of a key of a mapping; that of the mapping if it has no such key. */
static size_t file_line_of_key(reader *r, const yaml_node_t *mapping, const char *name)
{
    for (yaml_node_pair_t *p = mapping->data.mapping.pairs.start; p < mapping->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = file_node_at(r, p->key);
        if (key->type == YAML_SCALAR_NODE && strcmp((const char *)key->data.scalar.value, name) == 0)
            return file_line_of(key);
    }
    return file_line_of(mapping);
}

/* No option of some is one of the options of a mapping of the file, train: or for:. */
static mst_status file_refuse_twice(reader *r, const json_t *some, const char *where, const json_t *others,
                                    const yaml_node_t *node, const char *other)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)some, name, value)
    {
        if (node != NULL && json_object_get(others, name) != NULL)
            return mst_fail(MST_EUSAGE, "%s:%zu: %s: is given by %s and by %s", r->path,
                            file_line_of_key(r, node, name), name, where, other);
    }
    return MST_OK;
}

static mst_status file_read_spec(reader *r, json_t *spec)
{
    parts p;
    const char *axis;
    json_t *files = json_array(), *limits = json_object(), *train = json_object(), *grid = json_object(),
           *values;
    if (json_object_set_new(spec, "files", files) + json_object_set_new(spec, "for", limits) +
            json_object_set_new(spec, "train", train) + json_object_set_new(spec, "grid", grid) !=
        0)
        return mst_fail_memory();
    TRY(file_find_parts(r, &p));
    TRY(file_put_files(r, p.files, files));
    if (p.train != NULL)
        TRY(file_put_mapping(r, p.train, "train", NULL, train));
    if (p.limits != NULL)
        TRY(file_put_limits(r, p.limits, limits));
    TRY(file_refuse_twice(r, limits, "for:", train, p.train, "train:"));
    if (p.grid != NULL) {
        TRY(file_want(r, p.grid, YAML_MAPPING_NODE, "grid", "a mapping of options to lists of values"));
        for (yaml_node_pair_t *q = p.grid->data.mapping.pairs.start; q < p.grid->data.mapping.pairs.top;
             q++) {
            TRY(file_scalar(r, file_node_at(r, q->key), "grid", &axis));
            TRY(file_add_axis(r, axis, file_node_at(r, q->value), grid));
        }
    }
    if (p.repeats != NULL)
        TRY(file_add_repeats(r, p.repeats, train, grid));
    if (p.metric != NULL)
        TRY(file_put_metric(r, p.metric, spec));
    if (p.jobs != NULL)
        TRY(file_put_jobs(r, p.jobs, spec));
    json_object_foreach(grid, axis, values)
    {
        size_t i;
        json_t *value;
        json_array_foreach(values, i, value)
        {
            const json_t *set = json_object_get(value, "set");
            TRY(file_refuse_twice(r, set, "the grid", limits, p.limits, "for:"));
            if (strcmp(axis, "seed") != 0)
                TRY(file_refuse_twice(r, set, "the grid", train, p.train, "train:"));
        }
    }
    return MST_OK;
}

mst_status mst_sweep_spec_parse(const char *path, const char *text, size_t size, json_t **out)
{
    mst_status st;
    reader *r = mst_zalloc(sizeof *r);
    yaml_parser_t parser;
    bool has_parser = false, has_doc = false;
    json_t *spec = json_object();
    if (r == NULL || spec == NULL) {
        mst_free(r);
        json_decref(spec);
        return mst_fail_memory();
    }
    r->path = path;
    mst_option_group deploy = {.title = "deploy", .table = mst_deploy_option_table, .base = &r->deploy};
    mst_settings_begin(&r->settings, &deploy);
    r->settings.n_groups--; /* without the last group: a sweep has no options of a process */
    TRY_OUT(st, mst_options_init(r->settings.groups, r->settings.n_groups));
    has_parser = yaml_parser_initialize(&parser);
    if (!has_parser)
        TRY_OUT(st, mst_fail_memory());
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    has_doc = yaml_parser_load(&parser, &r->doc);
    if (!has_doc)
        TRY_OUT(st, mst_fail(MST_EUSAGE, "%s:%zu: not valid YAML: %s", path, parser.problem_mark.line + 1,
                             parser.problem != NULL ? parser.problem : "cannot be read"));
    TRY_OUT(st, file_read_spec(r, spec));
    *out = json_incref(spec);
out:
    if (has_doc)
        yaml_document_delete(&r->doc);
    if (has_parser)
        yaml_parser_delete(&parser);
    mst_settings_fini(&r->settings);
    mst_free(r);
    json_decref(spec);
    return st;
}

mst_status mst_sweep_spec_read(const char *path, json_t **out)
{
    char *text = NULL;
    size_t size;
    TRY(mst_file_read_all(path, FILE_MAX, &text, &size));
    mst_status st = mst_sweep_spec_parse(path, text, size, out);
    mst_free(text);
    return st;
}
