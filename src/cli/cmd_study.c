/* `muster study`: runs a study, lists them, or runs all; one page and one Markdown file of each. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/progress_line.h"
#include "cli/table.h"
#include "launch/study_steps.h"
#include "study/study_report.h"

#define FILE_MAX (1u << 20)

typedef struct study_options {
    char *out;
    mst_text_list set;
    bool full, overwrite, dry_run, report_only, json;
} study_options;

#define FIELD(name) .offset = offsetof(study_options, name)
static const mst_option study_table[] = {
    {.name = "out",
     .type = MST_OPTION_TEXT,
     FIELD(out),
     .fallback = "study",
     .metavar = "FOLDER",
     .help = "Folder of the results: FOLDER/NAME, or FOLDER/NAME-full with --full."},
    {.name = "full",
     .type = MST_OPTION_FLAG,
     FIELD(full),
     .help = "Run the published size (`full:` of the file) instead of one for two cores."},
    {.name = "set",
     .type = MST_OPTION_LIST,
     FIELD(set),
     .metavar = "NAME=VALUE",
     .help = "Replace a value of `size:` in the file, for instance the path of real data."},
    {.name = "overwrite",
     .type = MST_OPTION_FLAG,
     FIELD(overwrite),
     .help = "Start again and discard earlier results. Without it, steps that are done are kept."},
    {.name = "report-only",
     .type = MST_OPTION_FLAG,
     FIELD(report_only),
     .help = "Start no steps; write the report of the existing results."},
    {.name = "dry-run",
     .type = MST_OPTION_FLAG,
     FIELD(dry_run),
     .help = "Check the file and print the commands of its steps; start nothing."},
    {.name = NULL},
};

/* ---- files ---- */

/* A study of the binary by its name or number; NULL: there is none. */
static const mst_known_study *study_find(const char *name)
{
    for (const mst_known_study *s = mst_known_studies; s->name != NULL; s++)
        if (strcmp(s->name, name) == 0 || (name[0] != '\0' && strspn(name, "0123456789") == strlen(name) &&
                                           (unsigned)strtoul(name, NULL, 10) == s->number))
            return s;
    return NULL;
}

static mst_status study_unknown(const char *name)
{
    const char *names[64];
    size_t n = 0;
    char near[200];
    for (const mst_known_study *s = mst_known_studies; s->name != NULL && n < 64; s++)
        names[n++] = s->name;
    return mst_fail(MST_EUSAGE,
                    "there is no study %s%s; `muster study list` lists them, and a file ends in .yaml", name,
                    mst_cli_suggest(name, names, n, near, sizeof near));
}

/* Names that the texts of a file can use: hosts of the lab, its agents, cores. New reference. */
static json_t *study_built_in(const char *folder)
{
    char lab[17], name[32], text[64];
    char *netlab = mst_steps_netlab();
    json_t *values = json_object();
    mst_string words = {0};
    mst_study_lab_name(folder, lab);
    mst_string_shell(&words, netlab != NULL ? netlab : "netlab");
    mst_string_format(&words, " --name %s", lab);
    json_object_set_new(values, "netlab", json_string(words.text));
    mst_string_add(&words, " exec");
    json_object_set_new(values, "ssh", json_string(words.text));
    words.size -= strlen("exec");
    mst_string_add(&words, "agent");
    json_object_set_new(values, "agent", json_string(words.text));
    json_object_set_new(values, "hosts", json_string("hosts.txt"));
    for (unsigned h = 1; h <= MST_STUDY_HOSTS_MAX; h++) {
        snprintf(name, sizeof name, "hosts%u", h);
        snprintf(text, sizeof text, "hosts%u.txt", h);
        json_object_set_new(values, name, json_string(text));
    }
    snprintf(text, sizeof text, "%u", mst_cli_threads(0));
    json_object_set_new(values, "cores", json_string(text));
    mst_string_fini(&words);
    mst_free(netlab);
    return values;
}

/* name: a study of the binary, or the path of a file. *out is the caller's to destroy. */
static mst_status study_open(const char *name, const study_options *o, mst_study **out)
{
    mst_status st;
    const mst_known_study *known = study_find(name);
    char *text = NULL, *folder = NULL, *short_name = NULL;
    const char *path = known != NULL ? known->name : name;
    json_t *spec = NULL, *built_in = NULL;
    size_t size;
    if (known == NULL && !mst_ends_with(name, ".yaml"))
        return study_unknown(name);
    if (known == NULL) {
        const char *slash = strrchr(name, '/'), *base = slash != NULL ? slash + 1 : name;
        short_name = mst_sprintf("%.*s", (int)(strlen(base) - strlen(".yaml")), base);
        TRY_OUT(st, mst_file_read_all(name, FILE_MAX, &text, &size));
    } else {
        short_name = mst_strdup(known->name);
        text = mst_strdup(known->text);
        size = strlen(known->text);
    }
    folder = short_name != NULL ? mst_sprintf("%s/%s%s", o->out, short_name, o->full ? "-full" : "") : NULL;
    built_in = folder != NULL ? study_built_in(folder) : NULL;
    if (text == NULL || built_in == NULL)
        TRY_OUT(st, mst_fail_memory());
    mst_study_size how = {.full = o->full, .set = &o->set, .built_in = built_in};
    TRY_OUT(st, mst_study_spec_parse(path, text, size, &how, &spec));
    st = mst_study_new(short_name, path, folder, spec, o->full, o->overwrite && !o->dry_run, out);
out:
    json_decref(built_in);
    json_decref(spec);
    mst_free(short_name);
    mst_free(folder);
    mst_free(text);
    return st;
}

/* ---- running ---- */

static void study_show(void *arg, const char *text)
{
    mst_bar *bar = arg;
    if (text == NULL)
        mst_bar_end(bar);
    else if (mst_bar_due(bar))
        mst_bar_show(text);
}

static void study_note(void *arg, const char *text)
{
    (void)arg;
    mst_cli_note("%s", text);
}

static mst_status study_print_steps(const mst_study *study, bool json)
{
    static const mst_column columns[] = {{"step", false}, {"state", false}, {"command", false}};
    mst_study_cell *cells;
    mst_table *t;
    size_t n;
    TRY(mst_study_cells(study, &cells, &n));
    mst_status st = mst_table_new(columns, 3, &t);
    if (st == MST_OK) {
        for (size_t i = 0; i < n; i++) {
            mst_table_text(t, cells[i].key);
            mst_table_text(t, mst_study_is_done(study, &cells[i]) ? "done" : "pending");
            mst_table_text(t, cells[i].command);
        }
        st = json ? mst_cli_print_json(mst_table_json(t)) : mst_table_print(t, NULL, true);
        mst_table_destroy(t);
    }
    mst_study_cells_free(cells, n);
    return st;
}

/* Of the study with that number; the texts of several studies are added. */
typedef struct study_summary {
    unsigned number;
    mst_string text;
} study_summary;

/* Writes the report and prints the conclusion. */
static mst_status study_conclude(mst_study *study, bool json, study_summary *summary)
{
    mst_string text = {0};
    bool found;
    mst_text_list unused = {0};
    TRY(mst_study_read_rows(study));
    TRY(mst_study_report_write(study));
    TRY(mst_study_unused(study, &unused));
    for (size_t i = 0; i < unused.n; i++)
        mst_cli_note("%s: %s", study->name, unused.items[i]);
    mst_text_list_fini(&unused);
    if (summary != NULL)
        TRY(mst_study_summary(study, summary->number, &summary->text));
    mst_status st = mst_study_conclusion(study, &text, &found);
    if (st == MST_OK && json)
        st = mst_cli_print_json(json_pack("{s:s, s:s, s:b, s:s}", "study", study->name, "conclusion",
                                          text.text, "found", (int)found, "report", study->folder));
    else if (st == MST_OK)
        printf("%s: %s\n%s/report.html\n", study->name, text.text, study->folder);
    mst_string_fini(&text);
    return st;
}

/* *skipped: why the study cannot run here, or NULL; the caller frees. summary: may be NULL. */
static mst_status study_run_one(const char *name, const study_options *o, study_summary *summary,
                                char **skipped)
{
    mst_status st, report = MST_OK;
    mst_study *study = NULL;
    mst_bar bar;
    mst_steps_progress progress = {.arg = &bar, .show = study_show, .note = study_note};
    int lock = -1;
    char *failure = NULL;
    *skipped = NULL;
    if (o->report_only && o->overwrite)
        return mst_fail(MST_EUSAGE,
                        "--report-only reads the results that --overwrite removes: use one of the two");
    TRY_OUT(st, study_open(name, o, &study));
    /* NOLINTBEGIN(clang-analyzer-core.NullDereference): study_open sets it on success */
    if (o->dry_run) {
        st = study_print_steps(study, o->json);
        goto out;
    }
    if (o->report_only && !mst_path_exists(study->folder))
        TRY_OUT(st,
                mst_fail(MST_EINPUT, "%s: no results found, so there is nothing to report", study->folder));
    if (!o->report_only && (*skipped = mst_steps_obstacle(study)) != NULL)
        goto out;
    TRY_OUT(st, mst_cli_lock_folder(study->folder, "study", &lock));
    /* NOLINTEND(clang-analyzer-core.NullDereference) */
    mst_bar_start(&bar, "study", "steps", 0);
    if (!o->report_only)
        st = mst_steps_run(study, &progress);
    if (st == MST_OK || st == MST_ESTOPPED) {
        mst_error stopped = {0};
        mst_error_save(&stopped, st);
        report = study_conclude(study, o->json, summary);
        if (st == MST_ESTOPPED)
            mst_error_restore(&stopped);
        st = st == MST_OK ? report : st;
    }
    failure = st == MST_OK ? mst_study_failure(study) : NULL;
    if (failure != NULL)
        st = mst_fail(MST_EINPUT, "study %s: step %s", study->name, failure);
out:
    if (lock >= 0)
        close(lock);
    mst_free(failure);
    mst_study_destroy(study);
    return st;
}

/* ---- list and all ---- */

static mst_status study_list(const study_options *o)
{
    static const mst_column columns[] = {
        {"number", true}, {"name", false}, {"minutes", true}, {"question", false}, {"skipped", false}};
    mst_table *t;
    TRY(mst_table_new(columns, 5, &t));
    mst_status st = MST_OK;
    for (const mst_known_study *s = mst_known_studies; s->name != NULL && st == MST_OK; s++) {
        mst_study *study = NULL;
        study_options one = {.out = o->out, .full = o->full, .dry_run = true};
        st = study_open(s->name, &one, &study);
        if (st == MST_OK) {
            char *why = mst_steps_obstacle(study), number[16];
            const char *minutes = mst_study_text(study->spec, "minutes");
            snprintf(number, sizeof number, "%u", s->number);
            mst_table_text(t, number);
            mst_table_text(t, s->name);
            mst_table_text(t, minutes != NULL ? minutes : "");
            mst_table_text(t, mst_study_text(study->spec, "question"));
            mst_table_text(t, why != NULL ? why : "");
            mst_free(why);
        }
        mst_study_destroy(study);
    }
    if (st == MST_OK)
        st = o->json ? mst_cli_print_json(mst_table_json(t)) : mst_table_print(t, NULL, true);
    mst_table_destroy(t);
    return st;
}

/* OUT/summary.md: the conclusions of all studies. */
static mst_status study_save_summary(const study_options *o, const mst_string *text)
{
    char *path = mst_sprintf("%s/summary.md", o->out);
    mst_status st = path != NULL ? mst_make_folders(o->out) : mst_fail_memory();
    if (st == MST_OK)
        st = mst_string_save(text, path);
    mst_free(path);
    return st;
}

static mst_status study_run_all(const study_options *o)
{
    size_t n = 0, n_failed = 0, n_skipped = 0;
    mst_error first = {0};
    study_summary summary = {0};
    mst_status st = MST_OK;
    for (const mst_known_study *s = mst_known_studies; s->name != NULL; s++, n++) {
        char *skipped;
        if (!o->dry_run)
            mst_cli_note("study %u, %s", s->number, s->name);
        summary.number = s->number;
        st = study_run_one(s->name, o, &summary, &skipped);
        if (skipped != NULL) {
            mst_cli_note("%s is skipped: %s", s->name, skipped);
            mst_string_format(&summary.text, "### %u. %s\nSkipped: %s.\n\n", s->number, s->name, skipped);
        }
        n_skipped += skipped != NULL;
        mst_free(skipped);
        if (st == MST_ESTOPPED || st == MST_ENOMEM)
            goto out;
        if (st != MST_OK) {
            if (n_failed++ == 0)
                mst_error_save(&first, st);
            mst_cli_note("%s", mst_error_text());
        }
    }
    if (n_skipped > 0)
        mst_cli_note("%zu of %zu studies skipped", n_skipped, n);
    st = o->dry_run ? MST_OK : study_save_summary(o, &summary.text);
    if (st == MST_OK && n_failed > 0)
        st = mst_fail(first.code, "%zu of %zu studies failed; the first: %s", n_failed, n, first.text);
out:
    mst_string_fini(&summary.text);
    return st;
}

static mst_status study_run(mst_call *call)
{
    const study_options *o = call->options;
    if (call->words.n != 1)
        return mst_fail(MST_EUSAGE, "give one study: muster %s", mst_cmd_study.usage);
    const char *name = call->words.items[0];
    if (strcmp(name, "list") == 0)
        return study_list(o);
    if (strcmp(name, "all") == 0)
        return study_run_all(o);
    char *skipped;
    mst_status st = study_run_one(name, o, NULL, &skipped);
    if (st == MST_OK && skipped != NULL)
        st = mst_fail(MST_EUNSUPPORTED, "study %s is skipped: %s", name, skipped);
    mst_free(skipped);
    return st;
}

static const mst_command_group study_groups[] = {
    {"study", study_table, 0},
    {"output", mst_cli_json_table, offsetof(study_options, json)},
    {.table = NULL}};

const mst_command mst_cmd_study = {
    .name = "study",
    .summary = "run a complete experiment and draw its conclusion",
    .run = study_run,
    .usage = "study NAME|FILE.yaml|list|all [options]",
    .details = "A study asks one question, runs the sweeps and commands that answer it, and writes a page "
               "and a Markdown "
               "file with tables, plots, published figures and a conclusion that follows from the results. "
               "`list` lists the "
               "studies of this binary; FILE.yaml is one's own (docs/STUDIES.md). The same command continues "
               "a study that "
               "was stopped. The report is FOLDER/NAME/report.html.\n",
    .groups = study_groups,
    .options_size = sizeof(study_options),
    .examples = "muster study list\n"
                "muster study batch-size\n"
                "muster study all --out results\n",
};
