/* Commands of the binary: a tree of const tables that dispatch, --help, manual pages, `muster list` and
 * completion read.
 *
 * A command either runs (run) or holds further commands (commands). It returns a status, with its message
 * recorded by mst_fail; only main prints that message and turns the status into an exit code. Results go to
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

/* A group of options of a command: a table, and the offset of its struct in the options of the command. */
typedef struct mst_command_group {
    const char *title; /* heading in --help */
    const mst_option *table;
    size_t offset;
} mst_command_group;

/* One call of a command, or of its option tables for help, manual pages and completion. */
#define MST_CALL_GROUPS 8
typedef struct mst_call {
    const mst_command *command;
    void *options; /* command->options_size bytes */
    mst_option_group *groups;
    size_t n_groups;
    mst_option_group own[MST_CALL_GROUPS]; /* groups, unless begin sets others */
    mst_text_list words;                   /* the positionals */
    int argc;                              /* all words after the name of the command */
    char **argv;
    mst_status parsed; /* MST_OK, unless the command has run_misused */
} mst_call;

struct mst_command {
    const char *name, *summary;        /* summary: one line of `muster --help`, in lower case, no full stop */
    mst_status (*run)(mst_call *call); /* NULL when the command only holds others */
    const char *usage;                 /* after "muster ": "data stat FILE... [options]" */
    const char *details;               /* paragraphs after the usage, each ending in a newline; or NULL */
    const char *examples;              /* command lines, each ending in a newline; or NULL */
    const mst_command_group *groups;   /* the options, up to one without a table; NULL: none */
    size_t options_size;               /* of the struct that the offsets of the groups refer to */
    unsigned hidden;   /* facts of options that the command refuses: help does not show them */
    bool no_words;     /* positionals are refused */
    bool run_misused;  /* run is also called after wrong usage, which call->parsed is */
    const char *words; /* "bash|zsh": values of the first positional, for completion; or NULL */
    /* Called before the words are parsed, which it may change; or NULL. True: it has run the command, with
     * the status *st. */
    bool (*before)(int argc, char **argv, mst_status *st);
    /* For options that another component holds: begin sets the groups of the call, and end frees them. */
    void (*begin)(mst_call *call);
    void (*end)(mst_call *call);
    const mst_command *const *commands; /* NULL-terminated; or NULL */
};

/* The registry, NULL-terminated, in the order of `muster --help`. */
extern const mst_command *const mst_commands[];

extern const mst_command mst_cmd_train, mst_cmd_launch, mst_cmd_eval, mst_cmd_predict, mst_cmd_model;
extern const mst_command mst_cmd_sweep, mst_cmd_study, mst_cmd_plan;
extern const mst_command mst_cmd_data, mst_cmd_report, mst_cmd_list, mst_cmd_doctor, mst_cmd_completion;
extern const mst_command mst_cmd_matmul, mst_cmd_dash, mst_cmd_serve, mst_cmd_top, mst_cmd_jobs, mst_cmd_stop;
extern const mst_command mst_cmd_trace, mst_cmd_man;
extern const mst_command mst_cmd_data_gen, mst_cmd_data_convert, mst_cmd_data_fetch, mst_cmd_data_stat,
    mst_cmd_data_index;

/* ---- running ---- */

/* Runs the command of `commands` that argv[0] names. path: the words before it ("", "data "), for messages.
 * --help and -h print the list; help WORDS is the same as WORDS --help. MST_EUSAGE, with the nearest name,
 * when there is no such command. */
mst_status mst_cli_dispatch(const mst_command *const *commands, const char *path, int argc, char **argv);

/* The groups of a command, with options that are zero. End in any case. */
mst_status mst_call_begin(mst_call *call, const mst_command *command);
void mst_call_end(mst_call *call);

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

extern const mst_option mst_cli_config_table[]; /* --config FILE, a char *; its options are loaded */
extern const mst_option mst_cli_json_table[];   /* --json, a bool */

/* ---- printing ---- */

/* Whether `muster launch` started this process, which reads the lines for it (launch/parent_pipe.h). */
bool mst_cli_launched(void);

/* Prints the message of a failure, with the signal where one stopped the process. A process of a job
 * (MST_PARENT_ORIGIN) also prints where the failure began. */
void mst_cli_print_error(const mst_error *error);

/* Makes the folder of a study or a sweep and takes its lock: only one process at a time runs one there. *fd
 * is the caller's to close, also on failure unless it is negative. */
mst_status mst_cli_lock_folder(const char *folder, const char *what, int *fd);

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
