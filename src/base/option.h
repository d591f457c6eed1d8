/* Option tables: one table row is the flag, the YAML key, the default, the help line, the range check and the
 * manifest entry of an option.
 *
 * A component declares a struct and a table that maps names to its fields; a command joins the tables it
 * needs as groups. Precedence: table default < YAML file < command line. YAML keys are the flag names without
 * dashes in front
 * ("eval-every"). Nothing here prints: help and errors come back as text. */
#ifndef MST_BASE_OPTION_H
#define MST_BASE_OPTION_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum mst_option_type {
    MST_OPTION_FLAG,   /* bool; --name or --no-name; YAML true/false */
    MST_OPTION_INT,    /* int64_t; 1000, 1e6, 64k, 10M, 2G (decimal), 1Ki, 1Mi, 1Gi (binary), 2^20 */
    MST_OPTION_REAL,   /* double; finite */
    MST_OPTION_TEXT,   /* char *, owned by the group; NULL when not given and without default */
    MST_OPTION_CHOICE, /* int: index into choices */
    MST_OPTION_LIST,   /* mst_text_list; repeatable flag, values split at commas (a backslash before one keeps
                          it); YAML   sequence or scalar */
} mst_option_type;

typedef struct mst_text_list {
    char **items;
    size_t n;
} mst_text_list;

/* A table ends with a row whose name is NULL. */
typedef struct mst_option {
    const char *name; /* "eval-every" */
    mst_option_type type;
    size_t offset;        /* of the field in the group's struct */
    const char *fallback; /* default, in the text form a user would type; NULL: 0 / NULL / empty */
    double min, max;      /* INT and REAL: inclusive; no check when both are 0 */
    const char *choices;  /* CHOICE: "sync|async" */
    const char *metavar;  /* help: what the value is, e.g. "N"; NULL: from the type */
    const char *help;     /* one sentence; --help wraps it */
} mst_option;

typedef struct mst_option_group {
    const char *title; /* heading in --help, key in the manifest */
    const mst_option *table;
    void *base;   /* the struct */
    uint64_t set; /* bit i: row i was given by YAML or command line (tables have at most 64 rows) */
} mst_option_group;

/* Sets every field to its default. Fields of TEXT and LIST are owned by the group from here on. */
mst_status mst_options_init(mst_option_group *groups, size_t n);
void mst_options_fini(mst_option_group *groups,
                      size_t n); /* frees TEXT and LIST fields; safe after a failed init */

/* Reads argv[0..argc). "--name value", "--name=value", "--" ends options. Everything else is a positional and
 * goes to `positionals` in order (pass NULL: MST_EUSAGE on the first). Unknown option: MST_EUSAGE with the
 * nearest name. A value that starts with a dash must be given as --name=value, unless it is "-" or a number.
 */
mst_status mst_options_parse(mst_option_group *groups, size_t n, int argc, char **argv,
                             mst_text_list *positionals);

/* Sets options that the command line has not set. Call after mst_options_parse. Errors name file and line. */
mst_status mst_options_load_yaml(mst_option_group *groups, size_t n, const char *path);

/* Sets one option from text, with the same checks (used by resume and by tests). MST_EUSAGE when unknown. */
mst_status mst_options_set(mst_option_group *groups, size_t n, const char *name, const char *value);

/* Takes over the values of one group of mst_options_json's object for options that the user has not set: what
 * a resumed run or a checkpoint was made with. */
mst_status mst_options_adopt(mst_option_group *groups, size_t n, const json_t *values);

/* A value of mst_options_json as a user would have typed it: items of a list joined with commas, "" for none.
 * The caller frees; NULL when memory is short. */
char *mst_option_text(const json_t *value);

bool mst_options_is_set(const mst_option_group *groups, size_t n, const char *name);

/* Help for the groups, wrapped to 100 columns; the caller frees. NULL when memory is short. */
char *mst_options_help(const mst_option_group *groups, size_t n);

/* {"title": {"name": value, ...}, ...}: resolved values, for manifests and --dry-run. New reference or NULL.
 */
json_t *mst_options_json(const mst_option_group *groups, size_t n);

/* Parses the INT notation above. False when text is not such a number or does not fit. */
bool mst_parse_int(const char *text, int64_t *out);

void mst_text_list_fini(mst_text_list *list);
mst_status mst_text_list_add(mst_text_list *list, const char *text);

#endif
