/* Commands of the binary: a tree of const tables that dispatch, --help, manual pages, `muster list` and
 * completion read.
 *
 * A command either runs (run) or holds further commands (commands). It returns a status, with its sentence
 * recorded by mst_fail; only main prints that sentence and turns the status into an exit code. Results go to
 * standard output; progress, log lines and errors go to standard error. */
#ifndef MST_CLI_CLI_H
#define MST_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/option.h"
#include "base/status.h"

typedef struct mst_command mst_command;
struct mst_command {
    const char *name, *summary; /* summary: one line of `muster --help`, in lower case, no full stop */
    /* argv[0] is the first word after the command's name. NULL when the command only holds others. */
    mst_status (*run)(int argc, char **argv);
    const char *usage;               /* after "muster ": "data stat FILE... [options]" */
    const char *details;             /* paragraphs after the usage, each ending in a newline; or NULL */
    const char *examples;            /* command lines, each ending in a newline; or NULL */
    const mst_option *const *tables; /* NULL-terminated: the options, for completion; or NULL */
    const char *words;               /* "bash|zsh": values of the first positional, for completion; or NULL */
    const mst_command *const *commands; /* NULL-terminated; or NULL */
};

/* The registry, NULL-terminated, in the order of `muster --help`. */
extern const mst_command *const mst_commands[];

extern const mst_command mst_cmd_train, mst_cmd_launch, mst_cmd_eval, mst_cmd_predict, mst_cmd_model;
extern const mst_command mst_cmd_sweep;
extern const mst_command mst_cmd_data, mst_cmd_report, mst_cmd_list, mst_cmd_doctor, mst_cmd_completion;
extern const mst_command mst_cmd_matmul, mst_cmd_dash, mst_cmd_top;
extern const mst_command mst_cmd_trace, mst_cmd_man;
extern const mst_command mst_cmd_data_gen, mst_cmd_data_convert, mst_cmd_data_fetch, mst_cmd_data_stat,
    mst_cmd_data_index;

/* ---- running ---- */

/* Runs the command of `commands` that argv[0] names. path: the words before it ("", "data "), for messages.
 * --help and -h print the list; help WORDS is the same as WORDS --help. MST_EUSAGE, with the nearest name,
 * when there is no such command. */
mst_status mst_cli_dispatch(const mst_command *const *commands, const char *path, int argc, char **argv);

/* First call of every command: sets defaults, handles --help (*helped is then true and the command returns
 * MST_OK), parses argv, and loads the YAML file if the groups have an option "config" and it was given. The
 * caller calls mst_options_fini in any case. positionals as in mst_options_parse. */
mst_status mst_cli_parse(const mst_command *command, mst_option_group *groups, size_t n, int argc,
                         char **argv, mst_text_list *positionals, bool *helped);

/* In place of --help: the manual page of the command, in roff (cmd_man.c). */
#define MST_CLI_HELP_ROFF "--help=roff"
mst_status mst_cli_print_roff(const mst_command *command, const mst_option_group *groups, size_t n);

/* The program as a whole, for `muster --help` and muster(1). */
#define MST_CLI_SUMMARY "train models by stochastic gradient descent and find the bottleneck"
#define MST_CLI_USAGE                                                                                        \
    "muster [--log error|warn|info|debug] COMMAND [options]\n"                                               \
    "muster --version\n"
#define MST_CLI_DESCRIPTION                                                                                  \
    "muster trains linear models and neural nets on files of any size: in one process, on parameter "        \
    "servers, or with MPI. Every training leaves a run directory with its options, metrics, checkpoints "    \
    "and resource usage. Reports name the bottleneck.\n"
#define MST_CLI_EXAMPLES                                                                                     \
    "muster data gen criteo --rows 1M --out clicks.cache\n"                                                  \
    "muster train clicks.cache --optimizer adagrad --lr 0.05 --run runs/clicks\n"                            \
    "muster report runs/clicks\n"

/* " (did you mean NAME?)" when a name of the n is near, "" when none is. out is returned. */
const char *mst_cli_suggest(const char *typed, const char *const *names, size_t n, char *out, size_t size);

/* ---- shared option tables ---- */

/* --config FILE. */
typedef struct mst_cli_config {
    char *config;
} mst_cli_config;
extern const mst_option mst_cli_config_table[];

/* --json. */
typedef struct mst_cli_json {
    bool json;
} mst_cli_json;
extern const mst_option mst_cli_json_table[];

/* ---- printing ---- */

/* Prints the sentence of a failure, with the signal where one stopped the process. A process of a job
 * (MST_PARENT_ORIGIN) also prints where the failure began. */
void mst_cli_print_error(const mst_error *error);

/* Writes the value and a newline to standard output; takes the reference. NULL returns MST_ENOMEM, so that
 * the result of a builder can be passed on without a check. */
mst_status mst_cli_print_json(json_t *value);

/* Writes a line to standard error; clears a progress bar first. Any thread. */
void mst_cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Warns that `unseen` rows of a set had features that the model does not have; does nothing for 0. */
void mst_cli_unseen(const char *set, uint64_t unseen, uint64_t rows);

/* "test accuracy 0.8730 of the first 5,000 rows", for an evaluation in progress; set may be "". */
void mst_text_accuracy(const char *set, uint64_t rows, uint64_t correct, char *out, size_t size);

/* MST_EEXIST when a file exists at the output path of a command and --overwrite was not given. "-", devices
 * and pipes are always accepted. */
mst_status mst_cli_check_free(const char *path, bool overwrite);
/* The same, but a file whose decompressed text begins with one of the heads may be replaced: it is an earlier
 * output of the command. heads ends with NULL. */
mst_status mst_cli_check_own(const char *path, const char *const *heads, bool overwrite);

/* Threads for work on data: the option, or one per core when it is 0. */
unsigned mst_cli_threads(int64_t option);

#endif
