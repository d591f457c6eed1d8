/* `muster trace`: sums of the traces of a run (trace.json, docs/RUNS.md), and all traces in one file.
 *
 * A trace is read line by line, one event per line, so that an incomplete file is read up to its end. */
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "cli/trace_profile.h"

#define BLOCK ((size_t)1 << 20)
/* ---- reading ---- */

/* The receiver of the events of a run. */
typedef struct trace_listener {
    void (*file)(void *arg); /* the events that follow are of another file; or NULL */
    mst_status (*event)(void *arg, const json_t *event, const char *line, size_t n);
    void *arg;
    uint64_t n_traces, n_events;
} trace_listener;

/* One line: "[", "]", or an event with a comma behind it. What is neither is left out. */
static mst_status trace_take_line(trace_listener *to, const char *line, size_t n)
{
    while (n > 0 && (line[n - 1] == ',' || line[n - 1] == '\r' || line[n - 1] == ' '))
        n--;
    if (n < 2 || line[0] != '{')
        return MST_OK;
    json_t *event = json_loadb(line, n, 0, NULL);
    mst_status st = event != NULL ? to->event(to->arg, event, line, n) : MST_OK;
    to->n_events += event != NULL;
    json_decref(event);
    return st;
}

static mst_status trace_take_file(trace_listener *to, const char *path)
{
    mst_status st;
    mst_in *in = NULL;
    char *text = mst_alloc(BLOCK);
    size_t held = 0, got = 1;
    uint64_t before = to->n_events;
    if (text == NULL)
        return mst_fail_memory();
    TRY_OUT(st, mst_in_open(path, &in));
    if (to->file != NULL)
        to->file(to->arg);
    while (got > 0) {
        TRY_OUT(st, mst_in_read(in, text + held, BLOCK - held, &got));
        held += got;
        char *line = text, *end;
        while ((end = memchr(line, '\n', (size_t)(text + held - line))) != NULL) {
            TRY_OUT(st, trace_take_line(to, line, (size_t)(end - line)));
            line = end + 1;
        }
        held -= (size_t)(line - text);
        if (held == BLOCK)
            held = 0; /* no event is longer */
        memmove(text, line, held);
    }
    to->n_traces++;
    if (to->n_events == before)
        mst_cli_note("%s: contains no trace events", path);
out:
    mst_in_close(in);
    mst_free(text);
    return st;
}

/* All traces of a run, or one file. */
static mst_status trace_take_run(trace_listener *to, const char *run, const char *process)
{
    struct dirent *found;
    mst_status st = MST_OK;
    if (!mst_path_is_folder(run))
        return trace_take_file(to, run);
    char *folder = mst_sprintf("%s/processes", run);
    DIR *dir = folder != NULL ? opendir(folder) : NULL;
    while (st == MST_OK && dir != NULL && (found = readdir(dir)) != NULL) {
        if (found->d_name[0] == '.' || (process != NULL && strcmp(found->d_name, process) != 0))
            continue;
        char *path = mst_sprintf("%s/%s/trace.json", folder, found->d_name);
        if (path == NULL)
            st = mst_fail_memory();
        else if (mst_path_exists(path))
            st = trace_take_file(to, path);
        mst_free(path);
    }
    if (dir != NULL)
        closedir(dir);
    mst_free(folder);
    if (st == MST_OK && to->n_traces == 0)
        st = mst_fail(MST_EINPUT, "%s: no trace%s%s: train with --trace", run, process ? " of " : "",
                      process ? process : "");
    return st;
}

/* ---- trace top ---- */

typedef struct trace_top_options {
    char *process;
    int64_t lines;
    bool each, json;
} trace_top_options;

#define FIELD(name) offsetof(trace_top_options, name)
static const mst_option trace_top_table[] = {
    {.name = "process",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(process),
     .metavar = "NAME",
     .help = "Show only this process of the run, for example worker-0. Default: all."},
    {.name = "lines",
     .type = MST_OPTION_INT,
     .offset = FIELD(lines),
     .fallback = "40",
     .min = 0,
     .max = 1e6,
     .metavar = "N",
     .help = "Print at most N ops of a process; 0: all."},
    {.name = "each",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(each),
     .help = "Print every process, not only the sum of the processes of a role. --json has both."},
    {.name = NULL},
};
static const mst_command_group trace_top_groups[] = {
    {"trace", trace_top_table, 0},
    {"output", mst_cli_json_table, offsetof(trace_top_options, json)},
    {.table = NULL},
};

/* The mean shape of the outputs: "10x28", "~213" where calls differ. */
static void trace_add_shape(mst_table *t, const mst_profile_op *op)
{
    char text[96];
    size_t used = 0;
    json_t *shape = op->shapes > 0 ? json_array() : NULL;
    text[0] = '\0';
    for (unsigned i = 0; shape != NULL && i < MST_TRACE_DIMS && op->dims[i] > 0.0; i++) {
        double mean = op->dims[i] / (double)op->shapes;
        json_array_append_new(shape, json_real(mean));
        int n = snprintf(text + used, sizeof text - used, "%s%.0f",
                         i > 0        ? "x"
                         : op->varies ? "~"
                                      : "",
                         mean);
        used += n > 0 && (size_t)n < sizeof text - used ? (size_t)n : 0;
    }
    mst_table_value(t, shape != NULL ? shape : json_null(), text);
}

/* The first and the last column are in JSON only. */
static const mst_column trace_columns[] = {{"process", false}, {"name", false},   {"kind", false},
                                           {"calls", true},    {"total_s", true}, {"step_us", true},
                                           {"share", true},    {"mean_us", true}, {"output_bytes", true},
                                           {"elements", true}, {"shape", false},  {"named", true}};
#define TRACE_COLUMNS (sizeof trace_columns / sizeof *trace_columns)

static void trace_add_ops(mst_table *t, const mst_profile *p, size_t lines, bool json)
{
    double named, all = mst_profile_step_seconds(p, &named);
    for (size_t i = 0; i < p->n_ops && (lines == 0 || i < lines); i++) {
        const mst_profile_op *op = &p->ops[i];
        bool in_step = op->kind == MST_PROFILE_OP || op->kind == MST_PROFILE_WAIT;
        uint64_t steps = op->kind == MST_PROFILE_BESIDE ? p->all_steps : p->steps;
        if (json)
            mst_table_text(t, p->process);
        mst_table_text(t, op->name);
        mst_table_text(t, mst_profile_kind_name(op->kind));
        mst_table_count(t, op->calls);
        mst_table_real(t, op->seconds, 6);
        mst_table_real(t, steps > 0 ? op->seconds * 1e6 / (double)steps : NAN, 3);
        mst_table_real(t, in_step && all > 0.0 ? op->seconds / all : NAN, 4);
        mst_table_real(t, op->seconds * 1e6 / (double)op->calls, 3);
        double bytes = op->outputs > 0 ? op->bytes / (double)op->outputs : 0.0;
        if (bytes > 0.0 && bytes < 1e18)
            mst_table_bytes(t, (uint64_t)bytes);
        else
            mst_table_text(t, NULL);
        mst_table_real(t, op->shapes > 0 ? op->elements / (double)op->shapes : NAN, 0);
        trace_add_shape(t, op);
        if (json)
            mst_table_text(t, NULL);
    }
}

/* A row of a phase, or of all phases of a step, in JSON. */
static void trace_add_sum(mst_table *t, const mst_profile *p, const char *name, const char *kind,
                          double seconds, double share, double named)
{
    mst_table_text(t, p->process);
    mst_table_text(t, name);
    mst_table_text(t, kind);
    if (strcmp(kind, "step") == 0)
        mst_table_count(t, p->steps);
    else
        mst_table_text(t, NULL);
    mst_table_real(t, seconds, 6);
    mst_table_real(t, p->steps > 0 ? seconds * 1e6 / (double)p->steps : NAN, 3);
    mst_table_real(t, share, 4);
    for (unsigned i = 0; i < 4; i++)
        mst_table_text(t, NULL);
    mst_table_real(t, named, 4);
}

/* The part of a phase that has a name. */
static double trace_named(const mst_profile *p, mst_phase phase)
{
    return !mst_profile_in_step(phase)  ? NAN
           : mst_profile_is_wait(phase) ? 1.0
                                        : p->covered[phase] / p->phases[phase];
}

static void trace_add_json(mst_table *t, const mst_profile *p)
{
    double named, all = mst_profile_step_seconds(p, &named);
    trace_add_sum(t, p, "step", "step", all, all > 0.0 ? 1.0 : NAN, all > 0.0 ? named / all : NAN);
    for (unsigned i = 0; i < MST_PHASES; i++) {
        mst_phase phase = (mst_phase)i;
        bool step = mst_profile_in_step(phase);
        if (p->phases[i] > 0.0)
            trace_add_sum(t, p, mst_phase_name(phase), step ? "phase" : "aside", p->phases[i],
                          step && all > 0.0 ? p->phases[i] / all : NAN, trace_named(p, phase));
    }
    trace_add_ops(t, p, 0, true);
}

static mst_status trace_phase_table(const mst_profile *p, mst_table **out)
{
    static const mst_column columns[] = {
        {"phase", false}, {"total_s", true}, {"step_us", true}, {"named", true}};
    mst_table *t;
    TRY(mst_table_new(columns, sizeof columns / sizeof *columns, &t));
    for (unsigned i = 0; i < MST_PHASES; i++) {
        if (p->phases[i] <= 0.0)
            continue;
        mst_table_text(t, mst_phase_name((mst_phase)i));
        mst_table_real(t, p->phases[i], 6);
        mst_table_real(t, p->steps > 0 ? p->phases[i] * 1e6 / (double)p->steps : NAN, 3);
        mst_table_real(t, trace_named(p, (mst_phase)i), 4);
    }
    *out = t;
    return MST_OK;
}

static mst_status trace_print_profile(const mst_profile *p, size_t lines)
{
    mst_table *ops = NULL, *phases = NULL;
    double named, all = mst_profile_step_seconds(p, &named), steps = (double)p->steps;
    char title[256];
    mst_status st;
    TRY_OUT(st, mst_table_new(trace_columns + 1, TRACE_COLUMNS - 2, &ops));
    trace_add_ops(ops, p, lines, false);
    TRY_OUT(st, trace_phase_table(p, &phases));
    if (p->steps > 0)
        snprintf(title, sizeof title, "%s: %llu step%s of %.4g rows, %.3f us each%s", p->process,
                 (unsigned long long)p->steps, p->steps == 1 ? "" : "s", (double)p->rows / steps,
                 all * 1e6 / steps, p->n_threads > p->n_processes ? " (sum of all threads)" : "");
    else
        snprintf(title, sizeof title, "%s: no completed step", p->process);
    TRY_OUT(st, mst_table_print(ops, title, true));
    if (p->steps > 0 && all > 0.0)
        printf("Named ops and waits: %.3f of %.3f us (%.1f%%)\n", named * 1e6 / steps, all * 1e6 / steps,
               100.0 * named / all);
    putchar('\n');
    TRY_OUT(st, mst_table_print(phases, NULL, true));
    if (p->dropped > 0)
        printf("%llu events were dropped because they could not be written fast enough; --trace-steps traces "
               "fewer steps.\n",
               (unsigned long long)p->dropped);
out:
    mst_table_destroy(ops);
    mst_table_destroy(phases);
    return st;
}

/* Whether a sum that is printed contains the process. */
static bool trace_is_summed(const mst_profiles *all, const mst_profile *p)
{
    const char *dash = strrchr(p->process, '-');
    size_t n = dash != NULL ? (size_t)(dash - p->process) : 0;
    for (size_t i = 0; i < all->n && n > 0; i++)
        if (&all->items[i] != p && strncmp(all->items[i].process, p->process, n) == 0 &&
            strcmp(all->items[i].process + n, "-*") == 0)
            return true;
    return false;
}

static mst_status trace_print_json(const mst_profiles *all)
{
    mst_table *t;
    TRY(mst_table_new(trace_columns, TRACE_COLUMNS, &t));
    for (size_t i = 0; i < all->n; i++)
        trace_add_json(t, &all->items[i]);
    mst_status st = mst_cli_print_json(mst_table_json(t));
    mst_table_destroy(t);
    return st;
}

static mst_status trace_print_top(const mst_profiles *all, const trace_top_options *options)
{
    bool first = true;
    if (options->json)
        return trace_print_json(all);
    for (size_t i = 0; i < all->n; i++) {
        const mst_profile *p = &all->items[i];
        if (!options->each && trace_is_summed(all, p))
            continue;
        if (!first)
            putchar('\n');
        first = false;
        TRY(trace_print_profile(p, (size_t)options->lines));
    }
    return MST_OK;
}

static void trace_top_file(void *arg)
{
    mst_profiles_file(arg);
}

static mst_status trace_top_event(void *arg, const json_t *event, const char *line, size_t n)
{
    (void)line;
    (void)n;
    return mst_profiles_event(arg, event);
}

static mst_status trace_top_run(mst_call *call)
{
    const trace_top_options *options = call->options;
    mst_profiles all = {0};
    mst_status st;
    if (call->words.n == 0)
        return mst_fail(MST_EUSAGE, "muster trace top needs a run");
    trace_listener to = {.file = trace_top_file, .event = trace_top_event, .arg = &all};
    for (size_t i = 0; i < call->words.n; i++)
        TRY_OUT(st, trace_take_run(&to, call->words.items[i], options->process));
    mst_profiles_file(&all);
    TRY_OUT(st, mst_profiles_sum(&all));
    st = trace_print_top(&all, options);
out:
    mst_profiles_fini(&all);
    return st;
}

static const mst_command cmd_trace_top = {
    .name = "top",
    .summary = "profile one step by operation: calls, time, share, output size",
    .run = trace_top_run,
    .usage = "trace top RUN... [options]",
    .details =
        "RUN is a run directory of a training with --trace, or a trace.json. step_us is the mean of the "
        "traced steps. Shares are relative to the time of a step; ops beside the steps (parse) and in "
        "evaluations are not part of it. See docs/RUNS.md.\n",
    .groups = trace_top_groups,
    .options_size = sizeof(trace_top_options),
    .examples = "muster trace top runs/clicks\n"
                "muster trace top runs/job --process worker-0\n",
};

/* ---- trace merge ---- */

typedef struct trace_merge_options {
    char *out;
    bool overwrite;
} trace_merge_options;

static const mst_option trace_merge_table[] = {
    {.name = "out",
     .type = MST_OPTION_TEXT,
     .offset = offsetof(trace_merge_options, out),
     .metavar = "FILE",
     .help = "Output file. Default: RUN/trace.json. An existing trace is replaced."},
    {.name = "overwrite",
     .type = MST_OPTION_FLAG,
     .offset = offsetof(trace_merge_options, overwrite),
     .help = "Replace --out even if it is not a trace."},
    {.name = NULL},
};
static const mst_command_group trace_merge_groups[] = {{"trace", trace_merge_table, 0}, {.table = NULL}};

/* Files are read twice, because the output of one depends on the others. */
typedef struct merging {
    mst_out *out;
    uint64_t n;
    int64_t began, base; /* microseconds since 1970: start of this job; start of the earliest job, which is 0
                            in the output */
    int64_t *ends[2];    /* ids of arrow starts and of arrow ends; sorted when all are known */
    size_t n_ends[2], capacity[2];
} merging;

static void trace_next_file(void *arg)
{
    merging *m = arg;
    m->began = 0;
}

static bool trace_is_named(const json_t *event, const char *key, const char *value)
{
    const char *text = json_string_value(json_object_get(event, key));
    return text != NULL && strcmp(text, value) == 0;
}

/* 0 for the start of an arrow, 1 for its end, -1 for other events. */
static int trace_arrow_end(const json_t *event)
{
    return trace_is_named(event, "ph", "s") ? 0 : trace_is_named(event, "ph", "f") ? 1 : -1;
}

static mst_status trace_survey_event(void *arg, const json_t *event, const char *line, size_t n)
{
    merging *m = arg;
    int end = trace_arrow_end(event);
    (void)line;
    (void)n;
    if (trace_is_named(event, "name", "job_start"))
        m->began = json_integer_value(json_object_get(json_object_get(event, "args"), "unix_us"));
    if (json_object_get(event, "ts") != NULL && m->began < m->base) /* without a date: since 1970 */
        m->base = m->began;
    if (end < 0)
        return MST_OK;
    if (!mst_grow(&m->ends[end], &m->capacity[end], m->n_ends[end] + 1, sizeof **m->ends))
        return mst_fail_memory();
    m->ends[end][m->n_ends[end]++] = json_integer_value(json_object_get(event, "id"));
    return MST_OK;
}

static int trace_by_id(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool trace_has_both_ends(const merging *m, const json_t *event, int end)
{
    int64_t id = json_integer_value(json_object_get(event, "id"));
    return m->n_ends[!end] > 0 &&
           bsearch(&id, m->ends[!end], m->n_ends[!end], sizeof id, trace_by_id) != NULL;
}

/* Writes the line with its time, microseconds with a fraction, relative to the start of the output. */
static mst_status trace_write_shifted(const merging *m, const char *line, size_t n)
{
    static const char key[] = "\"ts\":";
    const char *at = memmem(line, n, key, sizeof key - 1);
    char number[32];
    int64_t us = 0;
    if (at == NULL || m->began == m->base)
        return mst_out_write(m->out, line, n);
    at += sizeof key - 1;
    TRY(mst_out_write(m->out, line, (size_t)(at - line)));
    for (; at < line + n && *at >= '0' && *at <= '9'; at++)
        us = us * 10 + (*at - '0');
    int digits = snprintf(number, sizeof number, "%lld", (long long)(us + m->began - m->base));
    TRY(mst_out_write(m->out, number, (size_t)digits));
    return mst_out_write(m->out, at, (size_t)(line + n - at));
}

static mst_status trace_write_event(void *arg, const json_t *event, const char *line, size_t n)
{
    merging *m = arg;
    int end = trace_arrow_end(event);
    if (end >= 0 && !trace_has_both_ends(m, event, end))
        return MST_OK;
    if (trace_is_named(event, "name", "job_start")) {
        m->began = json_integer_value(json_object_get(json_object_get(event, "args"), "unix_us"));
        if (m->began != m->base)
            return MST_OK; /* the earliest one is in the output */
    }
    TRY(mst_out_write(m->out, m->n > 0 ? ",\n" : "\n", m->n > 0 ? 2 : 1));
    m->n++;
    return trace_write_shifted(m, line, n);
}

static mst_status trace_merge_run(mst_call *call)
{
    const trace_merge_options *options = call->options;
    merging m = {.base = INT64_MAX};
    mst_status st;
    if (call->words.n != 1)
        return mst_fail(MST_EUSAGE, "muster trace merge needs one run");
    const char *run = call->words.items[0];
    char *path = options->out != NULL ? mst_strdup(options->out) : mst_sprintf("%s/trace.json", run);
    if (path == NULL)
        return mst_fail_memory();
    trace_listener survey = {.file = trace_next_file, .event = trace_survey_event, .arg = &m};
    TRY_OUT(st, trace_take_run(&survey, run, NULL));
    for (int end = 0; end < 2; end++)
        if (m.n_ends[end] > 0)
            qsort(m.ends[end], m.n_ends[end], sizeof **m.ends, trace_by_id);
    if (options->out != NULL)
        TRY_OUT(st,
                mst_cli_check_own(path, (const char *const[]){"[\n{\"", "[\n]\n", NULL}, options->overwrite));
    TRY_OUT(st, mst_out_open(path, &m.out));
    TRY_OUT(st, mst_out_write(m.out, "[", 1));
    trace_listener to = {.file = trace_next_file, .event = trace_write_event, .arg = &m};
    TRY_OUT(st, trace_take_run(&to, run, NULL));
    TRY_OUT(st, mst_out_write(m.out, "\n]\n", 3));
    TRY_OUT(st, mst_out_commit(m.out));
    printf("%s: %llu event%s of %llu process%s\n", path, (unsigned long long)m.n, m.n == 1 ? "" : "s",
           (unsigned long long)to.n_traces, to.n_traces == 1 ? "" : "es");
out:
    mst_out_close(m.out);
    mst_free(m.ends[0]);
    mst_free(m.ends[1]);
    mst_free(path);
    return st;
}

static const mst_command cmd_trace_merge = {
    .name = "merge",
    .summary = "merge the traces of all processes into one file for Perfetto or chrome://tracing",
    .run = trace_merge_run,
    .usage = "trace merge RUN [options]",
    .details = "Times start at the start of the job, on the clock of the coordinator. An arrow is kept if "
               "both of its ends were traced.\n",
    .groups = trace_merge_groups,
    .options_size = sizeof(trace_merge_options),
    .examples = "muster trace merge runs/job\n",
};

static const mst_command *const commands[] = {&cmd_trace_top, &cmd_trace_merge, NULL};

const mst_command mst_cmd_trace = {
    .name = "trace",
    .summary = "summarise the traces of a run, or merge them into one file",
    .usage = "trace COMMAND ...",
    .commands = commands,
};
