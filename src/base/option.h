/* Option tables: one table row is the flag, the YAML key, the default, the help line, the range check, the
 * manifest entry and the facts of an option. Everything that treats some options in a special way (help,
 * checks, --resume, jobs, sweeps, reports) reads the facts of the row.
 *
 * A component declares a struct and a table that maps names to its fields; a command joins the tables it
 * needs as groups. Precedence: table default < YAML file < command line. YAML keys are the flag names without
 * the leading dashes ("eval-every"). Nothing here prints: help and errors are returned as text. */
#ifndef MST_BASE_OPTION_H
#define MST_BASE_OPTION_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text_list.h"

typedef enum mst_option_type {
    MST_OPTION_FLAG,   /* bool; --name or --no-name; YAML true/false */
    MST_OPTION_INT,    /* int64_t; 1000, 1e6, 64k, 10M, 2G (decimal), 1Ki, 1Mi, 1Gi (binary), 2^20 */
    MST_OPTION_REAL,   /* double; finite */
    MST_OPTION_TEXT,   /* char *, owned by the group; NULL when not given and without default */
    MST_OPTION_CHOICE, /* int: index into choices */
    MST_OPTION_LIST,   /* mst_text_list; repeatable flag, values split at commas (a backslash before one keeps
                          it); YAML   sequence or scalar */
} mst_option_type;

/* An option has an effect only where another option, a CHOICE or a FLAG, has one of some values. */
typedef enum mst_need_check {
    MST_NEED_STRICT,  /* given elsewhere, the option is refused */
    MST_NEED_LENIENT, /* ... it is accepted without effect; sweeps leave it out of such runs */
    MST_NEED_SWEEP,   /* only sweeps apply the need */
} mst_need_check;
typedef struct mst_option_need {
    const char *option, *values; /* "strategy", "ps|allreduce"; of a FLAG: "true" or "false" */
    const char *or_option;       /* another option that may have one of the values instead; or NULL */
    mst_need_check check;
} mst_option_need;
#define MST_OPTION_NEEDS_MAX 2

/* Facts about an option, bits of mst_option.facts. */
typedef enum mst_option_fact {
    MST_OPTION_MAY_DIFFER = 1 << 0,   /* between the processes of a job */
    MST_OPTION_NOT_RESUMED = 1 << 1,  /* --resume does not take the value over from the run */
    MST_OPTION_NOT_RECORDED = 1 << 2, /* the history of a run does not record that --resume changed it */
    MST_OPTION_NOT_COMPARED = 1 << 3, /* reports do not compare runs by it */
    MST_OPTION_OF_SWEEP = 1 << 4,     /* a sweep sets it for each of its runs */
    MST_OPTION_OF_JOB = 1 << 5,       /* follows from the number and kind of processes that a job has */
    MST_OPTION_OF_PROCESS = 1 << 6,   /* identifies one process of a job */
    MST_OPTION_OF_OUTPUT = 1 << 7,    /* about the output of the command */
    MST_OPTION_OF_FILE = 1 << 8,      /* describes one file, not the rows of other files */
    MST_OPTION_OF_SHAPE = 1 << 9,     /* superseded by the model's shape */
    MST_OPTION_LIMIT = 1 << 10,       /* ends a training, and so can be what the runs of a sweep share */
    MST_OPTION_IF_GIVEN = 1 << 11,    /* passing the default explicitly differs from omitting it */
    MST_OPTION_SELF_NAMED = 1 << 12,  /* its values are clear without its name */
    MST_OPTION_OF_REPEAT = 1 << 13,   /* differs between the repeated runs of a group */
    MST_OPTION_AT_START = 1 << 14,    /* has an effect only where a run starts: --resume refuses a change */
    /* About one process or command, not about the training. */
    MST_OPTION_PRIVATE =
        MST_OPTION_MAY_DIFFER | MST_OPTION_NOT_RESUMED | MST_OPTION_NOT_RECORDED | MST_OPTION_NOT_COMPARED,
    MST_OPTION_FACT_FREE =
        1 << 16, /* this and higher bits: facts that a component names (data/format.h, model.h) */
} mst_option_fact;

/* A table ends with a row whose name is NULL. */
typedef struct mst_option {
    const char *name; /* "eval-every" */
    mst_option_type type;
    size_t offset;        /* of the field in the group's struct */
    const char *fallback; /* default, in the text form a user would type; NULL: 0 / NULL / empty */
    double min, max;      /* INT and REAL: inclusive; no check when both are 0 */
    const char *choices;  /* CHOICE: "sync|async" */
    const char *metavar;  /* placeholder of the value in help, e.g. "N"; NULL: from the type */
    const char *help;     /* --help wraps it, and adds choices, default and needs */
    mst_option_need needs[MST_OPTION_NEEDS_MAX]; /* all of them must be met; unused ones are zero */
    unsigned facts;                              /* mst_option_fact */
} mst_option;

typedef struct mst_option_group {
    const char *title; /* heading in --help, key in the manifest */
    const mst_option *table;
    void *base;      /* the struct */
    uint64_t set;    /* bit i: row i was given by YAML or command line (tables have at most 64 rows) */
    unsigned hidden; /* facts: help does not show rows with one of them */
} mst_option_group;

/* Sets every field to its default. Fields of TEXT and LIST are owned by the group from here on. */
mst_status mst_options_init(mst_option_group *groups, size_t n);
void mst_options_fini(mst_option_group *groups,
                      size_t n); /* frees TEXT and LIST fields; safe after a failed init */

/* Reads argv[0..argc). "--name value", "--name=value", "--" ends options. Everything else is a positional and
 * goes to `positionals` in order (pass NULL: MST_EUSAGE on the first). Unknown option: MST_EUSAGE with the
 * nearest name. A value that starts with a dash must be given as --name=value, unless it is "-" or a number.
 * The last of several values of an option counts; a flag given both ways is MST_EUSAGE. */
mst_status mst_options_parse(mst_option_group *groups, size_t n, int argc, char **argv,
                             mst_text_list *positionals);

/* Sets options that the command line has not set. Call after mst_options_parse. Errors name file and line. */
mst_status mst_options_load_yaml(mst_option_group *groups, size_t n, const char *path);

/* Sets one option from text, with the same checks (used by resume and by tests). MST_EUSAGE when unknown. */
mst_status mst_options_set(mst_option_group *groups, size_t n, const char *name, const char *value);

/* Sets options that the user has not set from one group of an object of mst_options_json, as a resumed run or
 * a checkpoint has it. */
mst_status mst_options_adopt(mst_option_group *groups, size_t n, const json_t *values);
/* The same for one group: names that its table does not have are left out. */
mst_status mst_options_adopt_known(mst_option_group *group, const json_t *values);

/* A value of mst_options_json as a user would have typed it: items of a list joined with commas, "" for none.
 * The caller frees; NULL when memory is short. */
char *mst_option_text(const json_t *value);

bool mst_options_is_set(const mst_option_group *groups, size_t n, const char *name);
/* The name of the first option that is set and has the fact; NULL: none. */
const char *mst_options_set_with(const mst_option_group *groups, size_t n, unsigned fact);

/* The row of that name; NULL when the table has none. */
const mst_option *mst_option_row(const mst_option *table, const char *name);

/* The first need of the row that the values of the groups do not meet; NULL: the option has an effect. A need
 * of an option that the groups do not have counts as met. check: the weakest kind of needs to look at. only:
 * needs of this option and no others, unless NULL. */
const mst_option_need *mst_options_unmet(const mst_option_group *groups, size_t n, const mst_option *row,
                                         mst_need_check check, const char *only);

/* "--strategy ps or allreduce", "--mpi" or "no --mpi"; out is returned. */
const char *mst_option_need_text(const mst_option_need *need, char *out, size_t size);

/* The value of a CHOICE or FLAG option of the groups as text ("true" or "false" of a FLAG), which *length
 * limits; NULL: the groups have no such option. */
const char *mst_options_word(const mst_option_group *groups, size_t n, const char *name, size_t *length);

#define MST_HELP_COLUMNS 100
/* Help for the groups, wrapped to MST_HELP_COLUMNS; the caller frees. NULL when memory is short. */
char *mst_options_help(const mst_option_group *groups, size_t n);
/* The same as the paragraphs of a manual page, in roff. */
char *mst_options_roff(const mst_option_group *groups, size_t n);

/* {"title": {"name": value, ...}, ...}: resolved values, for manifests and --dry-run. New reference or NULL.
 */
json_t *mst_options_json(const mst_option_group *groups, size_t n);

/* Parses the INT notation above. False when text is not such a number or does not fit. */
bool mst_parse_int(const char *text, int64_t *out);

#endif
