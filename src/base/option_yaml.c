/* Options from a YAML file; contract in option.h.
 *
 * The file is one mapping of option names to scalars, or to sequences of scalars for LIST options. It is read
 * as libyaml's event stream, and other YAML (nesting, aliases, several documents) is refused
 * with file and line. A key the command line has set is checked for its name only. */
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/option.h"
#include "base/option_impl.h"

#define FILE_MAX   (1u << 20)
#define PREFIX_MAX 4400 /* PATH_MAX and a line number */

typedef struct loader {
    mst_option_group *groups;
    size_t n;
    const char *path;
    yaml_parser_t parser;
    yaml_event_t event; /* the current one; zeroed when there is none */
    uint32_t *lines;    /* [group * 64 + row]: line of that option in the file; 0: not yet */
    uint64_t *fixed;    /* [group]: set by the command line */
} loader;

static size_t yaml_event_line(const loader *l)
{
    return l->event.start_mark.line + 1;
}

static mst_status yaml_next_event(loader *l)
{
    yaml_event_delete(&l->event);
    memset(&l->event, 0, sizeof l->event);
    if (yaml_parser_parse(&l->parser, &l->event))
        return MST_OK;
    memset(&l->event, 0, sizeof l->event);
    if (l->parser.error == YAML_MEMORY_ERROR)
        return mst_fail_memory();
    return mst_fail(MST_EUSAGE, "%s:%zu: not valid YAML: %s", l->path, l->parser.problem_mark.line + 1,
                    l->parser.problem ? l->parser.problem : "cannot be read");
}

/* The text of the current event, which must be a scalar; `what` names it in the error. Valid until the next
 * event. */
static mst_status yaml_scalar_text(loader *l, const char *what, const char **out)
{
    if (l->event.type != YAML_SCALAR_EVENT)
        return mst_fail(MST_EUSAGE, "%s:%zu: %s must be a single value, not nested", l->path,
                        yaml_event_line(l), what);
    const char *value = (const char *)l->event.data.scalar.value;
    if (strlen(value) != l->event.data.scalar.length)
        return mst_fail(MST_EUSAGE, "%s:%zu: %s contains a zero byte", l->path, yaml_event_line(l), what);
    bool plain = l->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (plain && (*value == '\0' || strcmp(value, "~") == 0 || strcmp(value, "null") == 0))
        return mst_fail(MST_EUSAGE, "%s:%zu: %s has no value", l->path, yaml_event_line(l), what);
    *out = value;
    return MST_OK;
}

/* The sequence whose start is the current event; its items are taken whole, commas and all. */
static mst_status yaml_load_sequence(loader *l, const mst_option_place *place, bool store)
{
    mst_text_list list = {0};
    mst_status st = MST_OK;
    for (;;) {
        const char *value = NULL;
        TRY_OUT(st, yaml_next_event(l));
        if (l->event.type == YAML_SEQUENCE_END_EVENT)
            break;
        TRY_OUT(st, yaml_scalar_text(l, place->row->name, &value));
        TRY_OUT(st, mst_text_list_add(&list, value));
    }
    if (store) {
        mst_text_list *field = (mst_text_list *)((char *)place->group->base + place->row->offset);
        mst_text_list_fini(field);
        *field = list;
        list = (mst_text_list){0};
        mst_option_place_mark(place);
    }
out:
    mst_text_list_fini(&list);
    return st;
}

/* The key that is the current event, and its value. */
static mst_status yaml_load_pair(loader *l)
{
    const char *name, *value;
    char prefix[PREFIX_MAX];
    mst_option_place place;
    size_t key_line = yaml_event_line(l);
    TRY(yaml_scalar_text(l, "a key", &name));
    snprintf(prefix, sizeof prefix, "%s:%zu: ", l->path, key_line);
    if (!mst_option_find(l->groups, l->n, name, &place))
        return mst_option_unknown(l->groups, l->n, prefix, "", name);
    size_t group = (size_t)(place.group - l->groups);
    uint32_t *line = &l->lines[group * 64 + place.index];
    if (*line != 0)
        return mst_fail(MST_EUSAGE, "%s%s is given twice (first on line %u)", prefix, name, *line);
    *line = (uint32_t)key_line;
    bool store = (l->fixed[group] >> place.index & 1) == 0;
    TRY(yaml_next_event(l));
    if (l->event.type == YAML_SEQUENCE_START_EVENT && place.row->type == MST_OPTION_LIST)
        return yaml_load_sequence(l, &place, store);
    TRY(yaml_scalar_text(l, place.row->name, &value));
    if (!store)
        return MST_OK;
    TRY(mst_option_assign(&place, prefix, value, false));
    mst_option_place_mark(&place);
    return MST_OK;
}

static mst_status yaml_load_stream(loader *l)
{
    TRY(yaml_next_event(l)); /* stream start */
    TRY(yaml_next_event(l));
    if (l->event.type == YAML_STREAM_END_EVENT)
        return MST_OK;
    TRY(yaml_next_event(l)); /* after the start of the document */
    bool empty = l->event.type == YAML_SCALAR_EVENT && l->event.data.scalar.length == 0;
    if (l->event.type != YAML_MAPPING_START_EVENT && !empty)
        return mst_fail(MST_EUSAGE, "%s:%zu: must be a mapping of option names to values", l->path,
                        yaml_event_line(l));
    while (!empty) {
        TRY(yaml_next_event(l));
        if (l->event.type == YAML_MAPPING_END_EVENT)
            break;
        TRY(yaml_load_pair(l));
    }
    TRY(yaml_next_event(l)); /* document end */
    TRY(yaml_next_event(l));
    if (l->event.type != YAML_STREAM_END_EVENT)
        return mst_fail(MST_EUSAGE, "%s:%zu: has a second document; only one is allowed", l->path,
                        yaml_event_line(l));
    return MST_OK;
}

mst_status mst_options_load_yaml(mst_option_group *groups, size_t n, const char *path)
{
    mst_status st;
    char *data = NULL;
    size_t size;
    bool parser_made = false;
    loader l = {.groups = groups, .n = n, .path = path};
    l.lines = mst_calloc(n * 64, sizeof *l.lines);
    l.fixed = mst_calloc(n, sizeof *l.fixed);
    if (l.lines == NULL || l.fixed == NULL)
        TRY_OUT(st, mst_fail_memory());
    for (size_t g = 0; g < n; g++)
        l.fixed[g] = groups[g].set;
    TRY_OUT(st, mst_file_read_all(path, FILE_MAX, &data, &size));
    parser_made = yaml_parser_initialize(&l.parser);
    if (!parser_made)
        TRY_OUT(st, mst_fail_memory());
    yaml_parser_set_input_string(&l.parser, (const unsigned char *)data, size);
    st = yaml_load_stream(&l);
out:
    if (parser_made) {
        yaml_event_delete(&l.event);
        yaml_parser_delete(&l.parser);
    }
    mst_free(data);
    mst_free(l.lines);
    mst_free(l.fixed);
    return st;
}
