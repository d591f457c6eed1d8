/* `muster report`: the report of one run, or of several together. */
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/cli.h"
#include "report/report.h"
#include "train/settings.h"

typedef struct report_options {
    char *out, *svg;
    bool overwrite, markdown, csv, json;
} report_options;

static const mst_option report_table[] = {
    {.name = "out",
     .type = MST_OPTION_TEXT,
     .offset = offsetof(report_options, out),
     .metavar = "FILE",
     .help = "Output file; \"-\": standard output. Default: RUN/report.html of the first run; --markdown and "
             "--csv print to standard output. An existing report is replaced."},
    {.name = "overwrite",
     .type = MST_OPTION_FLAG,
     .offset = offsetof(report_options, overwrite),
     .help = "Replace --out even if it is not a report."},
    {.name = "markdown",
     .type = MST_OPTION_FLAG,
     .offset = offsetof(report_options, markdown),
     .help = "Write Markdown instead of HTML: sentences and tables."},
    {.name = "csv",
     .type = MST_OPTION_FLAG,
     .offset = offsetof(report_options, csv),
     .help = "Write CSV instead of HTML: one line table,row,column,value per figure."},
    {.name = "svg",
     .type = MST_OPTION_TEXT,
     .offset = offsetof(report_options, svg),
     .metavar = "FOLDER",
     .help = "Also write each plot to a file in this folder."},
    {.name = NULL},
};

/* To --out, or standard output if it is not given. MST_EEXIST if --out is a file but not a report. Markdown
 * is recognised by its title. */
static mst_status report_print_or_save(const mst_string *text, const report_options *options)
{
    char title[256] = "";
    const char *heads[] = {"<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n",
                           "table,row,column,value\n", "{\n  \"overview\": [",
                           options->markdown ? title : NULL, NULL};
    if (options->out == NULL || text->failed)
        return mst_string_save(text, "-");
    snprintf(title, sizeof title, "%.*s", (int)strcspn(text->text, "\n") + 1, text->text);
    TRY(mst_cli_check_own(options->out, heads, options->overwrite));
    return mst_string_save(text, options->out);
}

static mst_status report_write_html(const mst_report *report, const mst_run_data *first,
                                    const report_options *options)
{
    mst_status st;
    mst_string text = {0};
    char *path = options->out != NULL ? mst_strdup(options->out) : mst_sprintf("%s/report.html", first->path);
    if (path == NULL)
        TRY_OUT(st, mst_fail_memory());
    TRY_OUT(st, mst_report_html(report, &text));
    TRY_OUT(st, options->out != NULL ? report_print_or_save(&text, options) : mst_string_save(&text, path));
    if (strcmp(path, "-") != 0)
        printf("%s\n", path);
out:
    mst_string_fini(&text);
    mst_free(path);
    return st;
}

static mst_status report_write_text(const mst_report *report, const report_options *options)
{
    mst_string text = {0};
    mst_status st = options->markdown ? mst_report_markdown(report, &text) : mst_report_csv(report, &text);
    if (st == MST_OK)
        st = report_print_or_save(&text, options);
    mst_string_fini(&text);
    return st;
}

static mst_status report_write_json(const mst_report *report, const report_options *options)
{
    json_t *json = mst_report_json(report);
    if (json == NULL)
        return MST_ENOMEM;
    if (options->out == NULL)
        return mst_cli_print_json(json);
    mst_string text = {0};
    char *dumped = json_dumps(json, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(json);
    if (dumped == NULL)
        return mst_fail_memory();
    mst_string_add(&text, dumped);
    mst_string_add(&text, "\n");
    free(dumped);
    mst_status st = report_print_or_save(&text, options);
    mst_string_fini(&text);
    return st;
}

/* The default options of a training; NULL when memory is short. */
static json_t *report_defaults(void)
{
    mst_settings settings;
    mst_settings_begin(&settings, NULL);
    json_t *json = mst_options_init(settings.groups, settings.n_groups) == MST_OK
                       ? mst_options_json(settings.groups, settings.n_groups)
                       : NULL;
    mst_settings_fini(&settings);
    return json;
}

static mst_status report_write(mst_run_data *const *runs, size_t n, const report_options *options)
{
    mst_status st;
    mst_report *report = NULL;
    size_t plots = 0;
    json_t *defaults = report_defaults();
    TRY_OUT(st, mst_report_new(runs, n, defaults, &report));
    if (options->svg != NULL) {
        TRY_OUT(st, mst_report_svg(report, options->svg, &plots));
        mst_cli_note("%s: %zu plots", options->svg, plots);
    }
    if (options->json)
        st = report_write_json(report, options);
    else if (options->markdown || options->csv)
        st = report_write_text(report, options);
    else
        st = report_write_html(report, runs[0], options);
out:
    mst_report_destroy(report);
    json_decref(defaults);
    return st;
}

static mst_status report_run(mst_call *call)
{
    const report_options *options = call->options;
    const mst_text_list *words = &call->words;
    if (words->n == 0)
        return mst_fail(MST_EUSAGE, "give the folder of a run: muster %s", mst_cmd_report.usage);
    if (options->markdown + options->csv + options->json > 1)
        return mst_fail(MST_EUSAGE, "--markdown, --csv and --json exclude each other");
    mst_status st = MST_OK;
    mst_run_data **runs = mst_calloc(words->n, sizeof(void *));
    if (runs == NULL)
        return mst_fail_memory();
    for (size_t i = 0; i < words->n; i++) {
        TRY_OUT(st, mst_run_data_new(words->items[i], &runs[i]));
        for (size_t k = 0; k < runs[i]->warnings.n; k++)
            mst_cli_note("%s", runs[i]->warnings.items[k]);
    }
    st = report_write(runs, words->n, options);
out:
    for (size_t i = 0; i < words->n; i++)
        mst_run_data_destroy(runs[i]);
    mst_free(runs);
    return st;
}

static const mst_command_group report_groups[] = {
    {"report", report_table, 0},
    {"output", mst_cli_json_table, offsetof(report_options, json)},
    {.table = NULL}};

const mst_command mst_cmd_report = {
    .name = "report",
    .summary = "write a report on one or several runs",
    .run = report_run,
    .usage = "report RUN... [options]",
    .details = "Reads the run directories of finished, running or interrupted runs. The report, "
               "RUN/report.html, is one file that needs no network: curves, tables, resource usage, the "
               "bottleneck, and the commands that reproduce the run.\n",
    .groups = report_groups,
    .options_size = sizeof(report_options),
    .examples = "muster report runs/clicks\n"
                "muster report runs/* --out compare.html\n",
};
