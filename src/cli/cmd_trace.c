/* `muster trace`: what the traces of a run (trace.json, docs/RUNS.md) come to.
 *
 * A trace is read line by line, one event each, so that one which is being written, or was cut off, is read
 * as far as it goes. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/table.h"

#define BLOCK   ((size_t)1 << 20)
#define OPS_MAX 4096 /* names that are told apart */
#define OP_NAME 64

/* ---- sums by name ---- */

typedef struct op {
    char name[OP_NAME], kind[16];
    uint64_t calls;
    double seconds, bytes;
} op;

typedef struct ops {
    op *items;
    size_t n, capacity;
    double phase_seconds; /* of all phases: what shares are of */
    uint64_t n_traces, dropped;
} ops;

static op *find_op(ops *self, const char *name, const char *kind)
{
    for (size_t i = 0; i < self->n; i++)
        if (strcmp(self->items[i].name, name) == 0 && strcmp(self->items[i].kind, kind) == 0)
            return &self->items[i];
    if (self->n == OPS_MAX || !mst_grow(&self->items, &self->capacity, self->n + 1, sizeof *self->items))
        return NULL;
    op *fresh = &self->items[self->n++];
    *fresh = (op){0};
    snprintf(fresh->name, sizeof fresh->name, "%s", name);
    snprintf(fresh->kind, sizeof fresh->kind, "%s", kind);
    return fresh;
}

static void add_event(ops *self, const json_t *event)
{
    const char *name = json_string_value(json_object_get(event, "name")),
               *ph = json_string_value(json_object_get(event, "ph")),
               *kind = json_string_value(json_object_get(event, "cat"));
    const json_t *args = json_object_get(event, "args");
    if (name == NULL || ph == NULL)
        return;
    if (strcmp(name, "dropped") == 0)
        self->dropped += (uint64_t)json_integer_value(json_object_get(args, "value"));
    if (strcmp(ph, "X") != 0 || kind == NULL)
        return;
    op *o = find_op(self, name, kind);
    if (o == NULL)
        return;
    double seconds = json_number_value(json_object_get(event, "dur")) * 1e-6;
    o->calls++;
    o->seconds += seconds;
    o->bytes += json_number_value(json_object_get(args, "bytes"));
    if (strcmp(kind, "phase") == 0)
        self->phase_seconds += seconds;
}

/* One line: "[", "]", or an event with a comma behind it. What is neither is left out. */
static void add_line(ops *self, const char *line, size_t n)
{
    while (n > 0 && (line[n - 1] == ',' || line[n - 1] == '\r' || line[n - 1] == ' '))
        n--;
    if (n < 2 || line[0] != '{')
        return;
    json_t *event = json_loadb(line, n, 0, NULL);
    if (event != NULL)
        add_event(self, event);
    json_decref(event);
}

static mst_status add_trace(ops *self, const char *path)
{
    mst_status st;
    mst_in *in = NULL;
    char *text = mst_alloc(BLOCK);
    size_t held = 0, got = 1;
    if (text == NULL)
        return mst_fail(MST_ENOMEM, "%s: no memory to read it", path);
    TRY_OUT(st, mst_in_open(path, &in));
    while (got > 0) {
        TRY_OUT(st, mst_in_read(in, text + held, BLOCK - held, &got));
        held += got;
        char *line = text, *end;
        while ((end = memchr(line, '\n', (size_t)(text + held - line))) != NULL) {
            add_line(self, line, (size_t)(end - line));
            line = end + 1;
        }
        held -= (size_t)(line - text);
        if (held == BLOCK)
            held = 0; /* no event is that long */
        memmove(text, line, held);
    }
    self->n_traces++;
out:
    mst_in_close(in);
    mst_free(text);
    return st;
}

/* All traces of a run, or one file. */
static mst_status add_run(ops *self, const char *run, const char *process)
{
    struct dirent *found;
    mst_status st = MST_OK;
    if (!mst_path_is_folder(run))
        return add_trace(self, run);
    char *folder = mst_sprintf("%s/processes", run);
    DIR *dir = folder != NULL ? opendir(folder) : NULL;
    while (st == MST_OK && dir != NULL && (found = readdir(dir)) != NULL) {
        if (found->d_name[0] == '.' || (process != NULL && strcmp(found->d_name, process) != 0))
            continue;
        char *path = mst_sprintf("%s/%s/trace.json", folder, found->d_name);
        if (path == NULL)
            st = mst_fail(MST_ENOMEM, "%s: no memory for a path", run);
        else if (mst_path_exists(path))
            st = add_trace(self, path);
        mst_free(path);
    }
    if (dir != NULL)
        closedir(dir);
    mst_free(folder);
    if (st == MST_OK && self->n_traces == 0)
        st = mst_fail(MST_EINPUT, "%s: no trace%s%s: train with --trace", run, process ? " of " : "",
                      process ? process : "");
    return st;
}

/* ---- the command ---- */

typedef struct top_options {
    char *process;
    int64_t lines;
} top_options;

#define FIELD(name) offsetof(top_options, name)
static const mst_option top_table[] = {
    {"process", MST_OPTION_TEXT, FIELD(process), NULL, 0, 0, NULL, "NAME",
     "Only this process of the run, e.g. worker-0; all of them when not given."},
    {"lines", MST_OPTION_INT, FIELD(lines), "40", 0, 1e6, NULL, "N", "At most N lines; 0: all."},
    {0},
};
static const mst_option *const top_tables[] = {top_table, mst_cli_json_table, NULL};

static int by_time(const void *a, const void *b)
{
    const op *x = a, *y = b;
    return x->seconds < y->seconds ? 1 : x->seconds > y->seconds ? -1 : strcmp(x->name, y->name);
}

static mst_status print_top(ops *self, size_t lines, bool json)
{
    static const mst_column columns[] = {{"name", false},       {"kind", false}, {"calls", true},
                                         {"total_s", true},     {"share", true}, {"mean_us", true},
                                         {"output_bytes", true}};
    mst_table *t;
    TRY(mst_table_new(columns, sizeof columns / sizeof *columns, &t));
    if (self->n > 0)
        qsort(self->items, self->n, sizeof *self->items, by_time);
    for (size_t i = 0; i < self->n && (lines == 0 || i < lines); i++) {
        const op *o = &self->items[i];
        mst_table_text(t, o->name);
        mst_table_text(t, o->kind);
        mst_table_count(t, o->calls);
        mst_table_real(t, o->seconds, 6);
        mst_table_real(t, self->phase_seconds > 0.0 ? o->seconds / self->phase_seconds : 0.0, 4);
        mst_table_real(t, o->seconds * 1e6 / (double)o->calls, 3);
        if (o->bytes > 0.0)
            mst_table_bytes(t, (uint64_t)(o->bytes / (double)o->calls));
        else
            mst_table_text(t, NULL);
    }
    mst_status st = json ? mst_cli_print_json(mst_table_json(t)) : mst_table_print(t, NULL, true);
    if (st == MST_OK && !json && self->dropped > 0)
        printf("%llu events were dropped: they came faster than they could be written.\n",
               (unsigned long long)self->dropped);
    mst_table_destroy(t);
    return st;
}

static mst_status top_run(int argc, char **argv)
{
    top_options options = {0};
    mst_cli_json json = {0};
    mst_option_group groups[] = {{.title = "trace", .table = top_table, .base = &options},
                                 {.title = "output", .table = mst_cli_json_table, .base = &json}};
    mst_text_list words = {0};
    ops all = {0};
    bool helped;
    mst_status st;
    TRY_OUT(st, mst_cli_parse(&mst_cmd_trace_top, groups, 2, argc, argv, &words, &helped));
    if (helped)
        goto out;
    if (words.n == 0)
        TRY_OUT(st, mst_fail(MST_EUSAGE, "muster trace top needs a run"));
    for (size_t i = 0; i < words.n; i++)
        TRY_OUT(st, add_run(&all, words.items[i], options.process));
    st = print_top(&all, (size_t)options.lines, json.json);
out:
    mst_free(all.items);
    mst_text_list_fini(&words);
    mst_options_fini(groups, 2);
    return st;
}

const mst_command mst_cmd_trace_top = {
    .name = "top",
    .summary = "what took how long, by name: calls, total time, share, output size",
    .run = top_run,
    .usage = "trace top RUN... [options]",
    .details = "RUN is a run directory whose training was given --trace, or a trace.json. Shares are of the "
               "time of\nall phases; ops (layers) are parts of phases.\n",
    .tables = top_tables,
};

static const mst_command *const commands[] = {&mst_cmd_trace_top, NULL};

const mst_command mst_cmd_trace = {
    .name = "trace",
    .summary = "sum up the trace of a run",
    .usage = "trace COMMAND ...",
    .commands = commands,
};
