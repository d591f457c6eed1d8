/* Reads the YAML file of a study; contract in study.h, the language in docs/STUDIES.md.
 *
 * The tree of libyaml becomes JSON whose scalars are texts and whose mappings have their line, so that later
 * errors can name it.
 *
 * Invariant: at most NODES_MAX nodes to a fixed depth are visited, so that circular and repeated aliases are
 * harmless. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "base/option.h"
#include "study/study.h"
#include "study/study_expr.h"
#include "sweep/sweep.h"

#define DEPTH_MAX    12
#define NODES_MAX    20000
#define FILE_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

/* ---- YAML to JSON ---- */

typedef struct tree {
    const char *path;
    yaml_document_t doc;
    size_t n_nodes;
} tree;

static mst_status tree_json(tree *t, const yaml_node_t *node, int depth, json_t **out);

/* Whether the value is missing. */
static bool tree_is_empty(const yaml_node_t *node)
{
    return node->type == YAML_SCALAR_NODE && node->data.scalar.length == 0 &&
           node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

static mst_status tree_scalar(const tree *t, const yaml_node_t *node, json_t **out)
{
    const char *text = (const char *)node->data.scalar.value;
    if (strlen(text) != node->data.scalar.length)
        return mst_fail(MST_EUSAGE, "%s:%zu: contains a zero byte", t->path, node->start_mark.line + 1);
    if (tree_is_empty(node))
        return mst_fail(MST_EUSAGE, "%s:%zu: an item of a list has no value", t->path,
                        node->start_mark.line + 1);
    *out = json_string(text);
    return *out != NULL
               ? MST_OK
               : mst_fail(MST_EUSAGE, "%s:%zu: is not valid UTF-8", t->path, node->start_mark.line + 1);
}

static mst_status tree_sequence(tree *t, const yaml_node_t *node, int depth, json_t **out)
{
    mst_status st = MST_OK;
    json_t *list = json_array(), *item;
    for (yaml_node_item_t *i = node->data.sequence.items.start;
         st == MST_OK && i < node->data.sequence.items.top; i++) {
        st = tree_json(t, yaml_document_get_node(&t->doc, *i), depth + 1, &item);
        if (st == MST_OK && json_array_append_new(list, item) != 0)
            st = mst_fail_memory();
    }
    if (st != MST_OK) {
        json_decref(list);
        return st;
    }
    *out = list;
    return MST_OK;
}

static json_t *tree_line(const yaml_node_t *node)
{
    return json_integer((json_int_t)node->start_mark.line + 1);
}

/* The line of a key; of a list, those of the key and of the items. New reference. */
static json_t *tree_lines(tree *t, const yaml_node_t *key, const yaml_node_t *value)
{
    if (value->type != YAML_SEQUENCE_NODE)
        return tree_line(key);
    json_t *lines = json_array();
    json_array_append_new(lines, tree_line(key));
    for (yaml_node_item_t *i = value->data.sequence.items.start; i < value->data.sequence.items.top; i++)
        json_array_append_new(lines, tree_line(yaml_document_get_node(&t->doc, *i)));
    return lines;
}

static mst_status tree_mapping(tree *t, const yaml_node_t *node, int depth, json_t **out)
{
    mst_status st = MST_OK;
    json_t *map = json_object(), *lines = json_object(), *value;
    if (map == NULL || lines == NULL || json_object_set_new(lines, "", tree_line(node)) != 0 ||
        json_object_set(map, MST_STUDY_LINE, lines) != 0)
        st = mst_fail_memory();
    for (yaml_node_pair_t *p = node->data.mapping.pairs.start;
         st == MST_OK && p < node->data.mapping.pairs.top; p++) {
        const yaml_node_t *key = yaml_document_get_node(&t->doc, p->key);
        const yaml_node_t *of = yaml_document_get_node(&t->doc, p->value);
        const char *name = key->type == YAML_SCALAR_NODE ? (const char *)key->data.scalar.value : "";
        if (*name == '\0' || json_object_get(map, name) != NULL)
            st = mst_fail(MST_EUSAGE, "%s:%zu: %s: %s", t->path, key->start_mark.line + 1, name,
                          *name == '\0' ? "the key must be a single value" : "is given twice");
        else if (tree_is_empty(of))
            st = mst_fail(MST_EUSAGE, "%s:%zu: %s: has no value; a text with a comma within { } needs quotes",
                          t->path, key->start_mark.line + 1, name);
        else
            st = tree_json(t, of, depth + 1, &value);
        if (st == MST_OK && (json_object_set_new(map, name, value) != 0 ||
                             json_object_set_new(lines, name, tree_lines(t, key, of)) != 0))
            st = mst_fail(MST_EUSAGE, "%s:%zu: is not valid UTF-8", t->path, key->start_mark.line + 1);
    }
    json_decref(lines);
    if (st != MST_OK) {
        json_decref(map);
        return st;
    }
    *out = map;
    return MST_OK;
}

static mst_status tree_json(tree *t, const yaml_node_t *node, int depth, json_t **out)
{
    if (depth > DEPTH_MAX || ++t->n_nodes > NODES_MAX)
        return mst_fail(MST_EUSAGE, "%s:%zu: is nested too deeply, or has more than %d values", t->path,
                        node->start_mark.line + 1, NODES_MAX);
    return node->type == YAML_SCALAR_NODE     ? tree_scalar(t, node, out)
           : node->type == YAML_SEQUENCE_NODE ? tree_sequence(t, node, depth, out)
                                              : tree_mapping(t, node, depth, out);
}

/* The line of a parser's error, which is a byte where the text is not UTF-8. */
static size_t tree_error_line(const yaml_parser_t *parser, const char *text)
{
    size_t line = 1;
    if (parser->error != YAML_READER_ERROR)
        return parser->problem_mark.line + 1;
    for (size_t i = 0; i < parser->problem_offset; i++)
        line += text[i] == '\n';
    return line;
}

static mst_status tree_read(const char *path, const char *text, size_t size, json_t **out)
{
    mst_status st = MST_OK;
    tree t = {.path = path};
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return mst_fail_memory();
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    if (!yaml_parser_load(&parser, &t.doc)) {
        st = mst_fail(MST_EUSAGE, "%s:%zu: not valid YAML: %s", path, tree_error_line(&parser, text),
                      parser.problem != NULL ? parser.problem : "cannot be read");
        yaml_parser_delete(&parser);
        return st;
    }
    const yaml_node_t *root = yaml_document_get_root_node(&t.doc);
    if (root == NULL || root->type != YAML_MAPPING_NODE)
        st = mst_fail(MST_EUSAGE,
                      "%s:1: a study is a mapping with title:, question:, steps: and conclusion:", path);
    else
        st = tree_json(&t, root, 0, out);
    yaml_document_delete(&t.doc);
    yaml_parser_delete(&parser);
    return st;
}

/* ---- access ---- */

const char *mst_study_text(const json_t *mapping, const char *key)
{
    return json_string_value(json_object_get(mapping, key));
}

int mst_study_line(const json_t *mapping)
{
    return (int)json_integer_value(json_object_get(json_object_get(mapping, MST_STUDY_LINE), ""));
}

int mst_study_line_item(const json_t *mapping, const char *key, size_t item)
{
    const json_t *lines = json_object_get(json_object_get(mapping, MST_STUDY_LINE), key);
    const json_t *line = json_is_array(lines) ? json_array_get(lines, item + 1) : lines;
    if (line == NULL && json_is_array(lines))
        line = json_array_get(lines, 0);
    return line != NULL ? (int)json_integer_value(line) : mst_study_line(mapping);
}

int mst_study_line_of(const json_t *mapping, const char *key)
{
    return mst_study_line_item(mapping, key, SIZE_MAX - 1); /* no item has that number */
}

unsigned mst_study_hosts(const json_t *spec)
{
    const json_t *lab = json_object_get(spec, "lab");
    const char *text = mst_study_text(lab, "hosts");
    char *end = NULL;
    unsigned long n = text != NULL ? strtoul(text, &end, 10) : 5;
    return lab == NULL || (end != NULL && *end != '\0') || n > MST_STUDY_HOSTS_MAX ? 0 : (unsigned)n;
}

/* ---- substitution ---- */

/* prose: the text is for readers, so that large numbers outside of { } get commas. */
static void file_insert(const json_t *values, const char *text, bool prose, mst_string *out)
{
    bool inside = false;
    while (*text != '\0') {
        size_t n = strcspn(text, "$");
        for (size_t i = 0; i < n; i++)
            inside = text[i] == '{' || (inside && text[i] != '}');
        mst_string_addn(out, text, n);
        text += n;
        if (*text == '\0')
            break;
        char name[64], number[MST_FIGURE_SIZE];
        size_t k = strspn(text + 1, FILE_LETTERS);
        snprintf(name, sizeof name, "%.*s", (int)k, text + 1);
        const char *value = k > 0 && !isdigit((unsigned char)name[0]) ? mst_study_text(values, name) : NULL;
        if (value != NULL)
            mst_string_add(out, prose && !inside ? mst_study_grouped(value, number) : value);
        else
            mst_string_addn(out, text, k + 1);
        text += k + 1;
    }
}

void mst_study_substitute(const json_t *values, const char *text, mst_string *out)
{
    file_insert(values, text, false, out);
}

const char *mst_study_grouped(const char *value, char *out)
{
    size_t n = strlen(value);
    bool large = n >= 4 && n <= 15 && strspn(value, "0123456789") == n;
    return large ? mst_figure_grouped(strtoull(value, NULL, 10), out) : value;
}

/* Whether the texts of a key are for readers. */
static bool file_is_prose(const char *key)
{
    static const char *const keys[] = {"title", "question", "note", "differs", "sentence"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

/* The value of a key with its texts replaced, changed in place or new. A text that is one name whose value is
 * a list becomes the list. Takes the reference; NULL when memory is short. */
static json_t *file_substitute(const json_t *values, const char *of, json_t *value)
{
    size_t i;
    const char *key, *text = json_string_value(value);
    json_t *inner, *copy;
    bool failed = value == NULL;
    if (text != NULL) {
        const json_t *list = text[0] == '$' ? json_object_get(values, text + 1) : NULL;
        mst_string out = {0};
        if (json_is_array(list)) {
            json_decref(value);
            return json_deep_copy(list);
        }
        file_insert(values, text, file_is_prose(of), &out);
        failed = out.failed || (out.text != NULL && json_string_set(value, out.text) != 0);
        mst_string_fini(&out);
    } else if (json_is_array(value)) {
        json_array_foreach(value, i, inner)
        {
            copy = file_substitute(values, of, json_incref(inner));
            failed = copy == NULL || json_array_set_new(value, i, copy) != 0 || failed;
        }
    } else if (json_is_object(value)) {
        json_object_foreach(value, key, inner)
        {
            if (strcmp(key, MST_STUDY_LINE) == 0)
                continue;
            copy = file_substitute(values, key, json_incref(inner));
            failed = copy == NULL || json_object_set_new(value, key, copy) != 0 || failed;
        }
    }
    if (failed) {
        json_decref(value);
        return NULL;
    }
    return value;
}

/* Refuses a $NAME that is left in a text of a mapping. Commands and plots of runs (run:) may have variables
 * of the shell and names of each:. */
static mst_status file_refuse_names(const char *path, const json_t *mapping)
{
    size_t i;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)mapping, key, value)
    {
        size_t n = json_is_array(value) ? json_array_size(value) : 1;
        for (i = 0; i < n && strcmp(key, "run") != 0 && strcmp(key, MST_STUDY_LINE) != 0; i++) {
            const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
            const char *text = json_string_value(one);
            while (text != NULL && (text = strchr(text, '$')) != NULL && !isalpha((unsigned char)text[1]))
                text++;
            if (text != NULL)
                return mst_fail(MST_EUSAGE, "%s:%d: %s: $%.*s: there is no such name in size:", path,
                                mst_study_line_item(mapping, key, i), key,
                                (int)strspn(text + 1, FILE_LETTERS), text + 1);
            if (json_is_object(one))
                TRY(file_refuse_names(path, one));
        }
    }
    return MST_OK;
}

/* Whether the value of size: is one text, or a list of texts. */
static bool file_is_size(const json_t *value)
{
    size_t i;
    json_t *inner;
    json_array_foreach(value, i, inner)
    {
        if (!json_is_string(inner))
            return false;
    }
    return json_is_string(value) || json_is_array(value);
}

/* size:, with full: and --set in their place, and the built-in names. New reference. */
static mst_status file_values(const char *path, json_t *spec, const mst_study_size *how, json_t **out)
{
    mst_status st = MST_OK;
    json_t *size = json_object_get(spec, "size"), *full = json_object_get(spec, "full"), *values, *value;
    const char *name;
    if ((size != NULL && !json_is_object(size)) || (full != NULL && !json_is_object(full)))
        return mst_fail(MST_EUSAGE, "%s:%d: size: and full: must be mappings of names to values", path,
                        mst_study_line_of(spec, json_is_object(size) ? "full" : "size"));
    json_object_foreach(full, name, value)
    {
        if (strcmp(name, MST_STUDY_LINE) != 0 && json_object_get(size, name) == NULL)
            return mst_fail(MST_EUSAGE, "%s:%d: full: %s: is not in size:", path,
                            mst_study_line_of(full, name), name);
    }
    values = size != NULL ? json_copy(size) : json_object();
    if (values == NULL || (how->full && full != NULL && json_object_update(values, full) != 0))
        TRY_OUT(st, mst_fail_memory());
    for (size_t i = 0; how->set != NULL && i < how->set->n; i++) {
        const char *text = how->set->items[i], *equals = strchr(text, '=');
        char *key = equals != NULL ? mst_sprintf("%.*s", (int)(equals - text), text) : NULL;
        if (key == NULL || json_object_get(size, key) == NULL)
            st = mst_fail(MST_EUSAGE, "--set %s: must be NAME=VALUE with a NAME of size: in %s", text, path);
        else if (json_object_set_new(values, key, json_string(equals + 1)) != 0)
            st = mst_fail_memory();
        mst_free(key);
        if (st != MST_OK)
            goto out;
    }
    json_object_foreach(values, name, value)
    {
        if (strcmp(name, MST_STUDY_LINE) != 0 && !file_is_size(value))
            TRY_OUT(st,
                    mst_fail(MST_EUSAGE, "%s:%d: size: %s: must be a value or a list of values", path,
                             mst_study_line_of(file_is_size(json_object_get(size, name)) ? full : size, name),
                             name));
    }
    /* The report lists the values in use. */
    if (json_object_set_new(spec, "used", json_deep_copy(values)) != 0 ||
        (how->built_in != NULL && json_object_update(values, (json_t *)how->built_in) != 0))
        TRY_OUT(st, mst_fail_memory());
    *out = json_incref(values);
out:
    json_decref(values);
    return st;
}

/* ---- checks ---- */

typedef enum kind { TEXT, MAP, LIST, TEXT_OR_LIST, ANY } kind;
typedef struct key {
    const char *name;
    kind kind;
    bool required;
} key;

static bool file_is_kind(const json_t *value, kind wanted)
{
    return wanted == ANY || (wanted == TEXT && json_is_string(value)) ||
           (wanted == MAP && json_is_object(value)) || (wanted == LIST && json_is_array(value)) ||
           (wanted == TEXT_OR_LIST && (json_is_string(value) || json_is_array(value)));
}

/* The mapping has these keys only, with values of their kinds. keys ends with a name of NULL; line: of the
 * map, should it be none. */
static mst_status file_check_keys(const char *path, const json_t *map, int line, const char *what,
                                  const key *keys)
{
    static const char *const kinds[] = {"a single value", "a mapping", "a list", "a value or a list", ""};
    const char *name;
    json_t *value;
    if (!json_is_object(map))
        return mst_fail(MST_EUSAGE, "%s:%d: %s: must be a mapping", path, line, what);
    json_object_foreach((json_t *)map, name, value)
    {
        const key *k = keys;
        while (k->name != NULL && strcmp(k->name, name) != 0)
            k++;
        if (strcmp(name, MST_STUDY_LINE) == 0)
            continue;
        if (k->name == NULL)
            return mst_fail(MST_EUSAGE, "%s:%d: %s: %s: unknown key", path, mst_study_line_of(map, name),
                            what, name);
        if (!file_is_kind(value, k->kind))
            return mst_fail(MST_EUSAGE, "%s:%d: %s: %s: must be %s", path, mst_study_line_of(map, name), what,
                            name, kinds[k->kind]);
    }
    for (const key *k = keys; k->name != NULL; k++)
        if (k->required && json_object_get(map, k->name) == NULL)
            return mst_fail(MST_EUSAGE, "%s:%d: %s: %s: is missing", path, mst_study_line(map), what,
                            k->name);
    return MST_OK;
}

/* A copy of a value without the lines of its mappings; new reference or NULL. */
static json_t *file_plain(const json_t *value)
{
    json_t *copy = json_is_object(value) ? json_object() : json_is_array(value) ? json_array() : NULL, *inner;
    size_t i;
    const char *name;
    if (copy == NULL)
        return json_deep_copy(value);
    if (json_is_object(value)) {
        json_object_foreach((json_t *)value, name, inner)
        {
            if (strcmp(name, MST_STUDY_LINE) != 0)
                json_object_set_new(copy, name, file_plain(inner));
        }
    } else {
        json_array_foreach(value, i, inner)
        {
            json_array_append_new(copy, file_plain(inner));
        }
    }
    return copy;
}

/* Adds a value as JSON with each key and item on its line of the file, so that errors about the text name
 * that line. line: of the end of the text. */
static void file_add_lines(const json_t *value, const json_t *lines, size_t *line, mst_string *out)
{
    size_t i, n = 0;
    const char *name;
    json_t *inner;
    if (json_is_object(value)) {
        const json_t *own = json_object_get(value, MST_STUDY_LINE);
        mst_string_add(out, "{");
        json_object_foreach((json_t *)value, name, inner)
        {
            if (strcmp(name, MST_STUDY_LINE) == 0)
                continue;
            json_t *label = json_string(name);
            mst_string_add(out, n++ > 0 ? "," : "");
            for (; *line < (size_t)mst_study_line_of(value, name); ++*line)
                mst_string_add(out, "\n");
            file_add_lines(label, NULL, line, out);
            mst_string_add(out, ": ");
            file_add_lines(inner, json_object_get(own, name), line, out);
            json_decref(label);
        }
        mst_string_add(out, "}");
    } else if (json_is_array(value)) {
        mst_string_add(out, "[");
        json_array_foreach(value, i, inner)
        {
            mst_string_add(out, i > 0 ? "," : "");
            for (; *line < (size_t)json_integer_value(json_array_get(lines, i + 1)); ++*line)
                mst_string_add(out, "\n");
            file_add_lines(inner, NULL, line, out);
        }
        mst_string_add(out, "]");
    } else {
        char *text = json_dumps(value, JSON_ENCODE_ANY);
        mst_string_add(out, text != NULL ? text : "");
        out->failed = out->failed || text == NULL;
        free(text);
    }
}

/* Checks a sweep as one, and keeps its file, as JSON, which is YAML, in the place of the mapping. */
static mst_status file_check_sweep(const char *path, json_t *step)
{
    json_t *sweep = json_object_get(step, "sweep"), *plain = file_plain(sweep), *spec = NULL;
    char *text = plain != NULL ? json_dumps(plain, JSON_INDENT(1)) : NULL;
    mst_string lines = {0};
    size_t line = 1;
    for (; line < (size_t)mst_study_line(sweep); line++)
        mst_string_add(&lines, "\n");
    file_add_lines(sweep, NULL, &line, &lines);
    mst_status st = text == NULL || lines.failed ? mst_fail_memory()
                                                 : mst_sweep_spec_parse(path, lines.text, lines.size, &spec);
    json_decref(spec);
    if (st == MST_OK && json_object_set_new(step, "sweep", json_string(text)) != 0)
        st = mst_fail_memory();
    mst_string_fini(&lines);
    json_decref(plain);
    free(text);
    return st;
}

static mst_status file_check_steps(const char *path, json_t *spec)
{
    static const key keys[] = {{"name", TEXT, true},     {"run", TEXT, false},  {"sweep", MAP, false},
                               {"each", MAP, false},     {"rows", TEXT, false}, {"kill", MAP, false},
                               {"timeout", TEXT, false}, {NULL, ANY, false}};
    static const key kill_keys[] = {{"process", TEXT, true},
                                    {"run", TEXT, true},
                                    {"after", TEXT, true},
                                    {"signal", TEXT, false},
                                    {NULL, ANY, false}};
    size_t i, k;
    json_t *steps = json_object_get(spec, "steps"), *step, *other;
    json_array_foreach(steps, i, step)
    {
        TRY(file_check_keys(path, step, mst_study_line_item(spec, "steps", i), "steps", keys));
        const char *name = mst_study_text(step, "name");
        for (const char *p = name; *p != '\0'; p++)
            if (!islower((unsigned char)*p) && !isdigit((unsigned char)*p) && *p != '_')
                return mst_fail(MST_EUSAGE, "%s:%d: steps: name: %s: use lower-case letters, digits and _",
                                path, mst_study_line_of(step, "name"), name);
        json_array_foreach(steps, k, other)
        {
            if (k < i && strcmp(mst_study_text(other, "name"), name) == 0)
                return mst_fail(MST_EUSAGE, "%s:%d: steps: the name %s is given twice", path,
                                mst_study_line_of(step, "name"), name);
        }
        if ((json_object_get(step, "run") != NULL) == (json_object_get(step, "sweep") != NULL))
            return mst_fail(MST_EUSAGE, "%s:%d: steps: %s: needs run: or sweep:, and not both", path,
                            mst_study_line(step), name);
        if (json_object_get(step, "kill") != NULL)
            TRY(file_check_keys(path, json_object_get(step, "kill"), 0, "kill", kill_keys));
        if (json_object_get(step, "sweep") != NULL)
            TRY(file_check_sweep(path, step));
    }
    return MST_OK;
}

static mst_status file_check_columns(const char *path, const json_t *table)
{
    static const key keys[] = {
        {"of", TEXT, true}, {"title", TEXT, false}, {"unit", TEXT, false}, {NULL, ANY, false}};
    size_t i;
    json_t *column;
    json_array_foreach(json_object_get(table, "columns"), i, column)
    {
        if (json_is_string(column))
            continue;
        TRY(file_check_keys(path, column, mst_study_line_item(table, "columns", i), "columns", keys));
        if (!mst_expr_unit(mst_study_text(column, "unit"), NULL))
            return mst_fail(MST_EUSAGE, "%s:%d: columns: unit: %s: not one of " MST_EXPR_UNITS, path,
                            mst_study_line_of(column, "unit"), mst_study_text(column, "unit"));
    }
    return MST_OK;
}

static bool file_has_step(const json_t *spec, const char *name)
{
    size_t i;
    json_t *step;
    json_array_foreach(json_object_get(spec, "steps"), i, step)
    {
        if (strcmp(mst_study_text(step, "name"), name) == 0)
            return true;
    }
    return false;
}

static mst_status file_check_shown(const char *path, const json_t *spec)
{
    static const key table_keys[] = {
        {"title", TEXT, true},   {"step", TEXT, false},      {"rows", LIST, false}, {"where", TEXT, false},
        {"columns", LIST, true}, {"published", LIST, false}, {"note", TEXT, false}, {NULL, ANY, false}};
    static const key plot_keys[] = {
        {"title", TEXT, true},    {"step", TEXT, true},  {"where", TEXT, false}, {"x", TEXT, false},
        {"y", TEXT, false},       {"by", TEXT, false},   {"unit", TEXT, false},  {"curve", TEXT, false},
        {"over", TEXT, false},    {"load", TEXT, false}, {"run", TEXT, false},   {"x-title", TEXT, false},
        {"y-title", TEXT, false}, {NULL, ANY, false}};
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(spec, "tables"), i, one)
    {
        TRY(file_check_keys(path, one, mst_study_line_item(spec, "tables", i), "tables", table_keys));
        TRY(file_check_columns(path, one));
        if ((mst_study_text(one, "step") != NULL) == (json_object_get(one, "rows") != NULL))
            return mst_fail(MST_EUSAGE, "%s:%d: tables: needs step: or rows:, and not both", path,
                            mst_study_line(one));
        if (mst_study_text(one, "step") != NULL && !file_has_step(spec, mst_study_text(one, "step")))
            return mst_fail(MST_EUSAGE, "%s:%d: tables: there is no step %s", path,
                            mst_study_line_of(one, "step"), mst_study_text(one, "step"));
    }
    json_array_foreach(json_object_get(spec, "plots"), i, one)
    {
        TRY(file_check_keys(path, one, mst_study_line_item(spec, "plots", i), "plots", plot_keys));
        if (!file_has_step(spec, mst_study_text(one, "step")))
            return mst_fail(MST_EUSAGE, "%s:%d: plots: there is no step %s", path,
                            mst_study_line_of(one, "step"), mst_study_text(one, "step"));
        bool xy = json_object_get(one, "x") != NULL && json_object_get(one, "y") != NULL;
        int n = xy + (json_object_get(one, "curve") != NULL) + (json_object_get(one, "load") != NULL);
        if (n != 1)
            return mst_fail(MST_EUSAGE, "%s:%d: plots: give x: and y:, or curve:, or load:", path,
                            mst_study_line(one));
        if (!mst_expr_unit(mst_study_text(one, "unit"), NULL))
            return mst_fail(MST_EUSAGE, "%s:%d: plots: unit: %s: not one of " MST_EXPR_UNITS, path,
                            mst_study_line_of(one, "unit"), mst_study_text(one, "unit"));
    }
    return MST_OK;
}

static mst_status file_check(const char *path, json_t *spec)
{
    static const key keys[] = {
        {"title", TEXT, true},    {"question", TEXT, true},       {"size", MAP, false},
        {"full", MAP, false},     {"used", MAP, false},           {"published", TEXT, false},
        {"lab", MAP, false},      {"needs", TEXT_OR_LIST, false}, {"steps", LIST, true},
        {"tables", LIST, false},  {"plots", LIST, false},         {"values", MAP, false},
        {"differs", LIST, false}, {"conclusion", LIST, true},     {"minutes", TEXT, false},
        {NULL, ANY, false}};
    static const key lab_keys[] = {{"hosts", TEXT, false}, {"options", TEXT, false}, {NULL, ANY, false}};
    static const key rule_keys[] = {{"when", TEXT, false}, {"sentence", TEXT, true}, {NULL, ANY, false}};
    size_t i;
    json_t *rule;
    TRY(file_check_keys(path, spec, 1, "a study", keys));
    TRY(file_check_steps(path, spec));
    if (json_object_get(spec, "lab") != NULL) {
        TRY(file_check_keys(path, json_object_get(spec, "lab"), 0, "lab", lab_keys));
        if (mst_study_hosts(spec) < 2 || mst_study_hosts(spec) > MST_STUDY_HOSTS_MAX)
            return mst_fail(MST_EUSAGE, "%s:%d: lab: hosts: must be between 2 and %d", path,
                            mst_study_line_of(json_object_get(spec, "lab"), "hosts"), MST_STUDY_HOSTS_MAX);
    }
    TRY(file_check_shown(path, spec));
    json_array_foreach(json_object_get(spec, "conclusion"), i, rule)
    {
        TRY(file_check_keys(path, rule, mst_study_line_item(spec, "conclusion", i), "conclusion", rule_keys));
    }
    json_t *columns = mst_study_sweep_columns(spec);
    mst_study_known known = {.columns = columns};
    mst_status st = columns != NULL ? mst_study_check(path, spec, &known) : mst_fail_memory();
    json_decref(columns);
    return st;
}

mst_status mst_study_spec_parse(const char *path, const char *text, size_t size, const mst_study_size *how,
                                json_t **out)
{
    mst_status st;
    json_t *spec = NULL, *values = NULL, *inner;
    const char *name;
    TRY(tree_read(path, text, size, &spec));
    TRY_OUT(st, file_values(path, spec, how, &values));
    json_object_foreach(spec, name, inner)
    {
        if (strcmp(name, "size") != 0 && strcmp(name, "full") != 0 && strcmp(name, "used") != 0) {
            json_t *changed = file_substitute(values, name, json_incref(inner));
            if (changed == NULL || json_object_set_new(spec, name, changed) != 0)
                TRY_OUT(st, mst_fail_memory());
        }
    }
    TRY_OUT(st, file_refuse_names(path, spec));
    TRY_OUT(st, file_check(path, spec));
    *out = json_incref(spec);
out:
    json_decref(values);
    json_decref(spec);
    return st;
}
