/* Commands of the binary: a tree of const tables that dispatch, --help, `muster list` and completion all
 * read.
 *
 * A command either runs (run) or holds further commands (commands). It returns a status, with its sentence
 * recorded by mst_fail; only main prints that sentence and turns the status into an exit code. What a command
 * is asked for goes to standard output; progress, log lines and errors go to standard error. */
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
    const char *words; /* "bash|zsh": what its first positional may be, for completion; or NULL */
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

/* Runs the command of `commands` that argv[0] names. path is what was typed before it ("", "data "), for
 * messages.
 * --help and -h print the list, help WORDS is WORDS --help. MST_EUSAGE, with the nearest name, when there is
 * no such command. */
mst_status mst_cli_dispatch(const mst_command *const *commands, const char *path, int argc, char **argv);

/* The beginning of every command: sets defaults, answers --help (then *helped is true and the command returns
 * MST_OK), parses argv, and loads the YAML file when the groups have an option "config" and it was given. The
 * caller ends with mst_options_fini in any case. positionals as in mst_options_parse. */
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

/* Writes the value and a newline to standard output; takes the reference. NULL is MST_ENOMEM: so that what a
 * builder returned can be passed on unlooked at. */
mst_status mst_cli_print_json(json_t *value);

/* Writes a line to standard error, clearing a progress bar that stands there first. Any thread. */
void mst_cli_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Warns that so many of a set's rows had features that the model does not have; nothing for none. */
void mst_cli_unseen(const char *set, uint64_t unseen, uint64_t rows);

/* "test accuracy 0.8730 of the first 5,000 rows": of an evaluation under way; set may be "". */
void mst_text_accuracy(const char *set, uint64_t rows, uint64_t correct, char *out, size_t size);

/* MST_EEXIST when a file is at the path that a command is to write and --overwrite was not given. "-", and
 * what is no plain file (a device, a pipe), is free. */
mst_status mst_cli_check_free(const char *path, bool overwrite);
/* The same, but a file whose text (decompressed) begins with one of the heads may be replaced: it is a former
 * output of the command. heads ends with NULL. */
mst_status mst_cli_check_own(const char *path, const char *const *heads, bool overwrite);

/* Threads for work on data: the option, or one per core when it is 0. */
unsigned mst_cli_threads(int64_t option);

#endif
