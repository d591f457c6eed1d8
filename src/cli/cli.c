/* Code that commands share: dispatch, parsing of options, --help, printing; contract in cli.h. */
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "base/file.h"
#include "base/log.h"
#include "base/parent.h"
#include "base/signals.h"
#include "base/strings.h"
#include "cli/progress_line.h"
#include "launch/parent_pipe.h"
#include "run/run_dir.h"

#define NAMES_MAX 64

const mst_option mst_cli_config_table[] = {
    {.name = "config",
     .type = MST_OPTION_TEXT,
     .metavar = "FILE",
     .help = "YAML file with options; keys are option names without the leading dashes. Options on the "
             "command line take precedence."},
    {.name = NULL},
};

const mst_option mst_cli_json_table[] = {
    {.name = "json", .type = MST_OPTION_FLAG, .help = "Print JSON instead of tables."},
    {.name = NULL},
};

/* ---- suggestions ---- */

const char *mst_cli_suggest(const char *typed, const char *const *names, size_t n, char *out, size_t size)
{
    const char *best = NULL;
    size_t length = strlen(typed), best_distance = length / 3 + 2; /* a larger distance means another word */
    for (size_t i = 0; i < n && length <= MST_EDIT_MAX; i++) {
        size_t d = strlen(names[i]) <= MST_EDIT_MAX ? mst_edit_distance(typed, names[i]) : MST_EDIT_MAX;
        if (length >= 2 && strncmp(names[i], typed, length) == 0)
            d = 0; /* a prefix of a name */
        if (d < best_distance && d < strlen(names[i])) {
            best = names[i];
            best_distance = d;
        }
    }
    snprintf(out, size, best != NULL ? " (did you mean %s?)" : "", best);
    return out;
}

/* ---- help ---- */

static bool cli_asks_for_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static void cli_print_commands(const mst_command *const *commands)
{
    int width = 0;
    for (size_t i = 0; commands[i] != NULL; i++)
        width = (int)strlen(commands[i]->name) > width ? (int)strlen(commands[i]->name) : width;
    for (size_t i = 0; commands[i] != NULL; i++)
        printf("  %-*s  %s\n", width, commands[i]->name, commands[i]->summary);
}

static void cli_print_overview(const mst_command *const *commands, const char *path)
{
    if (*path == '\0')
        printf("muster trains models by stochastic gradient descent and finds the bottleneck.\n\n"
               "usage: muster [--log error|warn|info|debug] COMMAND [options]\n"
               "       muster --version\n\n");
    else
        printf("usage: muster %sCOMMAND [options]\n\n", path);
    printf("Commands:\n");
    cli_print_commands(commands);
    printf("\n'muster %sCOMMAND --help' or 'muster help %sCOMMAND' describes a command.\n", path, path);
}

/* Paragraphs, each ending in a newline, wrapped. */
static void cli_add_paragraphs(mst_string *out, const char *text)
{
    while (*text != '\0') {
        char paragraph[1024];
        size_t n = strcspn(text, "\n");
        snprintf(paragraph, sizeof paragraph, "%.*s", (int)n, text);
        mst_string_wrap(out, paragraph, 0, MST_HELP_COLUMNS);
        text += n + (text[n] == '\n');
    }
}

static mst_status cli_print_help(const mst_call *call)
{
    const mst_command *command = call->command;
    mst_string out = {0};
    char *options = mst_options_help(call->groups, call->n_groups);
    mst_string_format(&out, "usage: muster %s\n\n%c%s.\n",
                      command->usage != NULL ? command->usage : command->name,
                      toupper((unsigned char)command->summary[0]), command->summary + 1);
    if (command->details != NULL) {
        mst_string_add(&out, "\n");
        cli_add_paragraphs(&out, command->details);
    }
    if (options != NULL && *options != '\0')
        mst_string_format(&out, "\n%s", options);
    for (const char *line = command->examples; line != NULL && *line != '\0'; line = strchr(line, '\n') + 1)
        mst_string_format(&out, "%s  %.*s\n", line == command->examples ? "\nExamples:\n" : "",
                          (int)strcspn(line, "\n"), line);
    mst_status st = options != NULL && !out.failed ? MST_OK : mst_fail_memory();
    if (st == MST_OK)
        fputs(out.text, stdout);
    mst_free(options);
    mst_string_fini(&out);
    return st;
}

/* ---- running ---- */

static mst_status cli_unknown_command(const mst_command *const *commands, const char *path, const char *typed)
{
    const char *names[NAMES_MAX];
    char suggestion[128];
    size_t n = 0;
    for (; n < NAMES_MAX && commands[n] != NULL; n++)
        names[n] = commands[n]->name;
    return mst_fail(MST_EUSAGE, "unknown command %s%s%s; 'muster %s--help' lists the commands", path, typed,
                    mst_cli_suggest(typed, names, n, suggestion, sizeof suggestion), path);
}

mst_status mst_call_begin(mst_call *call, const mst_command *command)
{
    *call = (mst_call){.command = command, .groups = call->own};
    call->options = mst_zalloc(command->options_size + 1);
    if (call->options == NULL)
        return mst_fail_memory();
    for (const mst_command_group *g = command->groups; g != NULL && g->table != NULL; g++)
        call->own[call->n_groups++] = (mst_option_group){.title = g->title,
                                                         .table = g->table,
                                                         .base = (char *)call->options + g->offset,
                                                         .hidden = command->hidden};
    if (command->begin != NULL)
        command->begin(call);
    return MST_OK;
}

void mst_call_end(mst_call *call)
{
    if (call->options != NULL && call->command->end != NULL)
        call->command->end(call);
    else
        mst_options_fini(call->groups, call->n_groups);
    mst_text_list_fini(&call->words);
    mst_free(call->options);
}

/* The value of option --config; NULL when there is no such option or it was not given. */
static const char *cli_config_path(const mst_call *call)
{
    for (size_t g = 0; g < call->n_groups; g++) {
        const mst_option *row = mst_option_row(call->groups[g].table, "config");
        if (row != NULL && row->type == MST_OPTION_TEXT)
            return *(char *const *)((const char *)call->groups[g].base + row->offset);
    }
    return NULL;
}

static mst_status cli_parse(mst_call *call)
{
    TRY(mst_options_init(call->groups, call->n_groups));
    TRY(mst_options_parse(call->groups, call->n_groups, call->argc, call->argv,
                          call->command->no_words ? NULL : &call->words));
    const char *path = cli_config_path(call);
    return path != NULL ? mst_options_load_yaml(call->groups, call->n_groups, path) : MST_OK;
}

static mst_status cli_run(const mst_command *command, int argc, char **argv)
{
    mst_status st;
    mst_call call;
    if (command->before != NULL && command->before(argc, argv, &st))
        return st;
    TRY_OUT(st, mst_call_begin(&call, command));
    call.argc = argc;
    call.argv = argv;
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (cli_asks_for_help(argv[i])) {
            st = cli_print_help(&call);
            goto out;
        }
    call.parsed = st = cli_parse(&call);
    if (st == MST_OK || command->run_misused)
        st = command->run(&call);
out:
    mst_call_end(&call);
    return st;
}

mst_status mst_cli_dispatch(const mst_command *const *commands, const char *path, int argc, char **argv)
{
    if (argc == 0)
        return mst_fail(MST_EUSAGE, "no command given; 'muster %s--help' lists the commands", path);
    bool help = strcmp(argv[0], "help") == 0;
    if (cli_asks_for_help(argv[0]) || (help && (argc == 1 || strcmp(argv[1], "help") == 0))) {
        cli_print_overview(commands, path);
        return MST_OK;
    }
    if (help) { /* help data gen: data gen --help */
        memmove(argv, argv + 1, (size_t)(argc - 1) * sizeof *argv);
        argv[argc - 1] = (char *)"--help";
    }
    for (size_t i = 0; commands[i] != NULL; i++) {
        const mst_command *command = commands[i];
        if (strcmp(command->name, argv[0]) != 0)
            continue;
        if (command->run != NULL)
            return cli_run(command, argc - 1, argv + 1);
        char deeper[128];
        snprintf(deeper, sizeof deeper, "%s%s ", path, command->name);
        return mst_cli_dispatch(command->commands, deeper, argc - 1, argv + 1);
    }
    if (argv[0][0] == '-')
        return mst_fail(MST_EUSAGE,
                        "unknown option %s before a command; 'muster %s--help' lists the commands", argv[0],
                        path);
    return cli_unknown_command(commands, path, argv[0]);
}

mst_status mst_cli_lock_folder(const char *folder, const char *what, int *fd)
{
    char *path = mst_sprintf("%s/.lock", folder);
    mst_status st = path != NULL ? mst_make_folders(folder) : mst_fail_memory();
    if (st == MST_OK) {
        *fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0666);
        if (*fd < 0)
            st = mst_fail(MST_EIO, "%s: cannot be opened: %s", path, strerror(errno));
        else if (flock(*fd, LOCK_EX | LOCK_NB) != 0)
            st = mst_fail(MST_EEXIST, "%s: another %s is running in this folder", folder, what);
    }
    mst_free(path);
    return st;
}

/* ---- printing ---- */

mst_status mst_cli_print_json(json_t *value)
{
    char *text = value != NULL ? json_dumps(value, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(value);
    if (text == NULL)
        return mst_fail_memory();
    puts(text);
    free(text);
    return MST_OK;
}

void mst_cli_note(const char *format, ...)
{
    char line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    mst_bar_line(line);
}

bool mst_cli_launched(void)
{
    int64_t grace;
    return getenv(MST_RUN_LAUNCH_ENV) != NULL && mst_parent_grace(&grace) == MST_OK && grace >= 0;
}

/* Whether the process would fail in the same way if it were started again. */
static bool cli_is_final(mst_status code)
{
    return code != MST_EIO && code != MST_ENOMEM && code != MST_EPEER && code != MST_ESTOPPED;
}

void mst_cli_print_error(const mst_error *error)
{
    const char *signal_name = mst_signals_name();
    int lead = (int)error->lead;
    bool launched = mst_cli_launched();
    if (launched && error->code != MST_ESTOPPED && lead > 0)
        mst_cli_note(MST_PARENT_ORIGIN "%.*s", lead, error->text);
    if (launched && cli_is_final(error->code))
        mst_cli_note(MST_PARENT_FINAL);
    if (error->code != MST_ESTOPPED || signal_name == NULL)
        mst_cli_note("muster: %s", error->text);
    else if (lead == 0)
        mst_cli_note("muster: stopped by %s: %s", signal_name, error->text);
    else
        mst_cli_note("muster: %.*s by %s%s", lead, error->text, signal_name, error->text + lead);
}

void mst_cli_unseen(const char *set, uint64_t unseen, uint64_t rows)
{
    char some[32], all[32];
    if (unseen > 0)
        mst_warn("%s of %s %s%srows have features that the model does not have; these features are ignored "
                 "(--strict-features refuses them)",
                 mst_figure_grouped(unseen, some), mst_figure_grouped(rows, all), set,
                 *set != '\0' ? " " : "");
}

void mst_text_accuracy(const char *set, uint64_t rows, uint64_t correct, char *out, size_t size)
{
    char count[32];
    snprintf(out, size, "%s%saccuracy %.4f of the first %s rows", set, *set != '\0' ? " " : "",
             rows > 0 ? (double)correct / (double)rows : 0.0, mst_figure_grouped(rows, count));
}

mst_status mst_cli_check_free(const char *path, bool overwrite)
{
    struct stat found;
    if (overwrite || strcmp(path, "-") == 0 || stat(path, &found) != 0 || !S_ISREG(found.st_mode))
        return MST_OK;
    return mst_fail(MST_EEXIST, "%s already exists; choose another name, or replace it with --overwrite",
                    path);
}

mst_status mst_cli_check_own(const char *path, const char *const *heads, bool overwrite)
{
    char text[4096];
    size_t got = 0;
    mst_in *in = NULL;
    mst_status st = mst_cli_check_free(path, overwrite);
    if (st != MST_EEXIST || mst_in_open(path, &in) != MST_OK)
        return st;
    bool read = mst_in_read(in, text, sizeof text, &got) == MST_OK;
    mst_in_close(in);
    for (; read && *heads != NULL; heads++) {
        size_t n = strlen(*heads);
        if (n <= got && memcmp(text, *heads, n) == 0)
            return MST_OK;
    }
    return mst_cli_check_free(path, overwrite);
}

unsigned mst_cli_threads(int64_t option)
{
    cpu_set_t set;
    if (option > 0)
        return (unsigned)option;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}
