/* `muster man`: manual pages in roff, made from the command and option tables. One page per command:
 * muster.1, muster-train.1, muster-data-gen-criteo.1.
 */
#include <ctype.h>
#include <string.h>

#include "base/alloc.h"
#include "base/strings.h"
#include "base/version.h"
#include "cli/cli.h"

#define SECTION ".1" /* how the names of pages end */

/* A name that a page explains. */
typedef struct man_entry {
    const char *name, *help;
    const char *commands; /* "train|launch": the pages that have it, besides muster.1; NULL: all */
} man_entry;

static const man_entry man_exit_codes[] = {
    {.name = "0", .help = "Success."},
    {.name = "1", .help = "Failure; the last line on standard error is the reason."},
    {.name = "2",
     .help = "Wrong usage: an unknown option, a value out of range, options that exclude each other."},
    {.name = "3",
     .help = "Another process of the job failed or was lost.",
     .commands = "train|launch|matmul|sweep"},
    {.name = "4",
     .help = "With --fail-if-done: the resumed run had reached its limits already.",
     .commands = "train|launch"},
    {.name = "128+N", .help = "Stopped by signal N, for example 130 after Ctrl-C."},
    {.name = NULL},
};

static const man_entry man_environment[] = {
    {.name = "MUSTER_CLUSTER",
     .help = "File with the cluster spec, instead of --cluster.",
     .commands = "train"},
    {.name = "TF_CONFIG",
     .help = "Cluster and role of this process in the format of TensorFlow, instead of --cluster, --role and "
             "--index.",
     .commands = "train"},
    {.name = "MUSTER_MPI",
     .help = "MPI implementation to use, instead of --mpi-plugin: openmpi or mpich.",
     .commands = "train|matmul"},
    {.name = "MUSTER_PLUGINS",
     .help = "Folder with the MPI plug-ins, if they are not in the default location.",
     .commands = "train|matmul|launch|list|doctor"},
    {.name = "OMP_WAIT_POLICY, GOMP_SPINCOUNT",
     .help = "How long OpenMP threads spin while they wait. If neither is set, muster sets GOMP_SPINCOUNT to "
             "1000 for these commands.",
     .commands = "train|eval|predict|matmul"},
    {.name = "TMPDIR",
     .help = "Folder for the copy of its weights that a server makes for a checkpoint.",
     .commands = "train"},
    {.name = "XDG_STATE_HOME",
     .help = "Folder for the state of launched jobs, instead of ~/.local/state.",
     .commands = "launch|jobs|stop"},
    {.name = "MUSTER_NETLAB",
     .help = "The program netlab for studies with a lab, if the binary is not in its source tree.",
     .commands = "study"},
    {.name = "NO_COLOR", .help = "If set, the output has no colours.", .commands = "top"},
    {.name = NULL},
};

static const man_entry man_files[] = {
    {.name = "RUN/manifest.json",
     .help = "Options, environment and outcome of a run.",
     .commands = "train|report"},
    {.name = "RUN/metrics.csv", .help = "Training loss and evaluations.", .commands = "train|report"},
    {.name = "RUN/checkpoints/step-N/",
     .help = "Weights, optimizer state and position of the run at step N.",
     .commands = "train|eval|predict"},
    {.name = "RUN/best/",
     .help = "Checkpoint with the best loss on --valid, with --patience.",
     .commands = "train|eval|predict"},
    {.name = "RUN/marks.csv",
     .help = "Events of the run: evaluations, checkpoints, processes that join or are lost, the end.",
     .commands = "train|report"},
    {.name = "RUN/processes/PROCESS/",
     .help =
         "For each process: resource usage (resources.csv), time per phase (spans.csv) and TensorBoard event "
         "files.",
     .commands = "train|report"},
    {.name = "RUN/trace.json", .help = "Spans of all threads, with --trace.", .commands = "train|trace"},
    {.name = "~/.local/state/muster/HOST/JOB/",
     .help =
         "State of a launched job: its process and command, and of a detached job its output and outcome.",
     .commands = "launch|jobs|stop"},
    {.name = "RUN/report.html", .help = "The report of the run.", .commands = "report"},
    {.name = ".FILE.HASH.cache",
     .help = "Binary cache of FILE, made by train --cache.",
     .commands = "train|data"},
    {.name = "FILE.mstidx",
     .help = "Index of a text file, which gives random access to its rows.",
     .commands = "train|data"},
    {.name = "muster-logs/JOB/", .help = "Output of each process of a job.", .commands = "launch"},
    {.name = "sweeps/NAME/", .help = "Runs and report of a sweep.", .commands = "sweep"},
    {.name = NULL},
};

/* ---- names ---- */

/* Whether the words, separated by '|', have the first command of "muster-data-gen". */
static bool man_has_page(const char *words, const char *page)
{
    const char *command = strchr(page, '-');
    if (words == NULL || command == NULL) /* every page; muster.1 */
        return true;
    size_t n = strcspn(++command, "-");
    for (const char *at = words; at != NULL; at = strchr(at, '|') != NULL ? strchr(at, '|') + 1 : NULL)
        if (strncmp(at, command, n) == 0 && (at[n] == '|' || at[n] == '\0'))
            return true;
    return false;
}

/* ---- parts of a page ---- */

static void man_entries(mst_string *out, const char *heading, const man_entry *entries, const char *page)
{
    bool any = false;
    for (; entries->name != NULL; entries++) {
        if (!man_has_page(entries->commands, page))
            continue;
        if (!any)
            mst_string_format(out, ".SH %s\n", heading);
        any = true;
        mst_string_add(out, ".TP\n.B ");
        mst_string_roff(out, entries->name);
        mst_string_add(out, "\n");
        mst_string_roff(out, entries->help);
        mst_string_add(out, "\n");
    }
}

/* Lines of text as they are. */
static void man_lines(mst_string *out, const char *text)
{
    mst_string_add(out, ".nf\n");
    mst_string_roff(out, text);
    mst_string_add(out, text[0] != '\0' && text[strlen(text) - 1] == '\n' ? ".fi\n" : "\n.fi\n");
}

/* Paragraphs, each ending in a newline; an empty one makes a gap. */
static void man_paragraphs(mst_string *out, const char *text)
{
    for (bool first = true; *text != '\0'; first = false) {
        size_t n = strcspn(text, "\n");
        char paragraph[1024];
        snprintf(paragraph, sizeof paragraph, "%.*s", (int)n, text);
        mst_string_add(out, n == 0 ? ".PP\n" : first ? "" : ".br\n");
        mst_string_roff(out, paragraph);
        mst_string_add(out, n == 0 ? "" : "\n");
        text += n + (text[n] == '\n');
    }
}

static void man_head(mst_string *out, const char *page, const char *summary)
{
    mst_string_add(out, ".TH ");
    for (const char *p = page; *p != '\0'; p++)
        mst_string_format(out, "%c", toupper((unsigned char)*p));
    mst_string_format(out, " 1 \"\" \"muster %s\" \"User Commands\"\n.SH NAME\n", mst_version());
    mst_string_roff(out, page);
    mst_string_add(out, " \\- ");
    mst_string_roff(out, summary);
    mst_string_add(out, "\n.SH SYNOPSIS\n");
}

static void man_commands(mst_string *out, const char *page, const mst_command *const *commands)
{
    mst_string_add(out, ".SH COMMANDS\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        mst_string_add(out, ".TP\n.BR ");
        mst_string_roff(out, page);
        mst_string_add(out, "\\-");
        mst_string_roff(out, commands[i]->name);
        mst_string_add(out, " (1)\n");
        mst_string_roff(out, commands[i]->summary);
        mst_string_add(out, "\n");
    }
}

static void man_see_also(mst_string *out, const char *page, const mst_command *const *commands)
{
    const char *parent_end = strrchr(page, '-');
    char parent[64];
    mst_string_add(out, ".SH SEE ALSO\n");
    snprintf(parent, sizeof parent, "%.*s", parent_end != NULL ? (int)(parent_end - page) : 0, page);
    if (parent[0] != '\0') {
        mst_string_add(out, ".BR ");
        mst_string_roff(out, parent);
        mst_string_add(out, commands != NULL ? " (1),\n" : " (1)\n");
    }
    for (size_t i = 0; commands != NULL && commands[i] != NULL; i++) {
        mst_string_add(out, ".BR ");
        mst_string_roff(out, page);
        mst_string_add(out, "\\-");
        mst_string_roff(out, commands[i]->name);
        mst_string_add(out, commands[i + 1] != NULL ? " (1),\n" : " (1)\n");
    }
}

static void man_tail(mst_string *out, const char *page, const char *examples,
                     const mst_command *const *commands)
{
    man_entries(out, "EXIT STATUS", man_exit_codes, page);
    man_entries(out, "ENVIRONMENT", man_environment, page);
    man_entries(out, "FILES", man_files, page);
    if (examples != NULL) {
        mst_string_add(out, ".SH EXAMPLES\n");
        man_lines(out, examples);
    }
    man_see_also(out, page, commands);
}

static mst_status man_print(mst_string *out)
{
    mst_status st = out->failed ? mst_fail_memory() : MST_OK;
    if (st == MST_OK)
        fputs(out->text, stdout);
    mst_string_fini(out);
    return st;
}

/* A page of a command that runs. */
static mst_status man_print_command(const char *page, const mst_call *call)
{
    const mst_command *command = call->command;
    mst_string out = {0};
    char *options = mst_options_roff(call->groups, call->n_groups), summary[512];
    if (options == NULL)
        return mst_fail_memory();
    man_head(&out, page, command->summary);
    mst_string_add(&out, ".nf\n.B muster ");
    for (const char *p = command->usage; *p != '\0';) { /* further lines begin with "       muster" */
        char line[256];
        size_t length = strcspn(p, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, p);
        mst_string_roff(&out, line);
        p += length;
        if (*p == '\n') {
            p += 1 + strspn(p + 1, " ");
            mst_string_add(&out, "\n.B ");
        }
    }
    mst_string_add(&out, "\n.fi\n.SH DESCRIPTION\n");
    snprintf(summary, sizeof summary, "%c%s.\n", toupper((unsigned char)command->summary[0]),
             command->summary + 1);
    mst_string_roff(&out, summary);
    if (command->details != NULL) {
        mst_string_add(&out, ".PP\n");
        man_paragraphs(&out, command->details);
    }
    mst_string_format(&out, ".SH OPTIONS\n%s", options);
    mst_string_add(&out, call->n_groups > 1 ? ".SS Help\n" : "");
    mst_string_add(&out, ".TP\n\\fB\\-\\-help\\fR\nPrint a summary of the options and exit.\n");
    man_tail(&out, page, command->examples, NULL);
    mst_free(options);
    return man_print(&out);
}

/* A page of a command that holds others, or of the program (command NULL). */
static mst_status man_print_overview(const char *page, const mst_command *command)
{
    mst_string out = {0};
    const mst_command *const *commands = command != NULL ? command->commands : mst_commands;
    man_head(&out, page, command != NULL ? command->summary : MST_CLI_SUMMARY);
    if (command == NULL) {
        man_lines(&out, MST_CLI_USAGE);
        mst_string_add(&out, ".SH DESCRIPTION\n");
        man_paragraphs(&out, MST_CLI_DESCRIPTION);
        man_commands(&out, page, commands);
        mst_string_add(
            &out,
            ".SH OPTIONS\n.TP\n\\fB\\-\\-log\\fR \\fIerror|warn|info|debug\\fR\nLog lines of this level and "
            "above. (default: info; for ranks other than 0: warn)\n"
            ".TP\n\\fB\\-\\-version\\fR\nPrint the version and exit.\n"
            ".TP\n\\fB\\-\\-help\\fR\nPrint the list of commands and exit.\n");
    } else {
        mst_string_add(&out, ".B ");
        for (const char *p = page; *p != '\0'; p++) /* "muster-data-gen": muster data gen */
            mst_string_format(&out, "%c", *p == '-' ? ' ' : *p);
        mst_string_add(&out, " COMMAND [options]\n");
        man_commands(&out, page, commands);
    }
    man_tail(&out, page, command != NULL ? command->examples : MST_CLI_EXAMPLES, commands);
    return man_print(&out);
}

/* ---- the command ---- */

static void man_list(const mst_command *const *commands, const char *before)
{
    for (size_t i = 0; commands[i] != NULL; i++) {
        char page[128];
        snprintf(page, sizeof page, "%.90s-%.30s", before, commands[i]->name);
        printf("%s" SECTION "\n", page);
        if (commands[i]->commands != NULL)
            man_list(commands[i]->commands, page);
    }
}

/* The command of a page "muster-data-gen"; NULL: there is none. */
static const mst_command *man_command(const char *page)
{
    const mst_command *const *commands = mst_commands;
    const mst_command *found = NULL;
    const char *at = strchr(page, '-');
    while (at != NULL && commands != NULL) {
        size_t n = strcspn(++at, "-");
        for (found = NULL; *commands != NULL && found == NULL; commands++)
            if (strlen((*commands)->name) == n && strncmp((*commands)->name, at, n) == 0)
                found = *commands;
        commands = found != NULL ? found->commands : NULL;
        at = strchr(at, '-');
    }
    return at == NULL ? found : NULL;
}

static mst_status man_print_page(const char *name)
{
    char page[128];
    size_t n = strlen(name), end = strlen(SECTION);
    snprintf(page, sizeof page, "%.*s", (int)(n > end && strcmp(name + n - end, SECTION) == 0 ? n - end : n),
             name);
    if (strcmp(page, "muster") == 0)
        return man_print_overview(page, NULL);
    const mst_command *command = strncmp(page, "muster-", 7) == 0 ? man_command(page) : NULL;
    if (command == NULL)
        return mst_fail(MST_EUSAGE, "man %s: unknown page; 'muster man' lists the pages", name);
    if (command->run == NULL)
        return man_print_overview(page, command);
    mst_call call;
    mst_status st = mst_call_begin(&call, command);
    if (st == MST_OK)
        st = man_print_command(page, &call);
    mst_call_end(&call);
    return st;
}

static mst_status man_run(mst_call *call)
{
    const mst_text_list *names = &call->words;
    if (names->n > 1)
        return mst_fail(MST_EUSAGE, "man %s %s: name one page", names->items[0], names->items[1]);
    if (names->n == 1)
        return man_print_page(names->items[0]);
    puts("muster" SECTION);
    man_list(mst_commands, "muster");
    return MST_OK;
}

const mst_command mst_cmd_man = {
    .name = "man",
    .summary = "print a manual page",
    .run = man_run,
    .usage = "man [PAGE]",
    .details = "Prints the page in roff, the input format of man(1); without PAGE, prints the names of all "
               "pages. 'make install' installs the pages.\n",
    .examples = "muster man muster-train | man -l -\n",
};
