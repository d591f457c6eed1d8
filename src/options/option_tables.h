/* All options of a training, by name: the place where every part of the program finds the facts of an option
 * that it has the name of, as in the "options" of a manifest.
 *
 * The header depends on base/ alone, so that readers of run directories may include it. */
#ifndef MST_OPTIONS_OPTION_TABLES_H
#define MST_OPTIONS_OPTION_TABLES_H

#include "base/option.h"

/* The tables of `muster train`, NULL-terminated. A name is in one of them only. */
extern const mst_option *const mst_train_tables[];

/* The row of an option of a training; NULL when there is none, as of a manifest of another version. */
const mst_option *mst_train_option(const char *name);

/* Whether the option has the fact, an mst_option_fact; false of names without a row. */
bool mst_train_option_is(const char *name, unsigned fact);

/* The options that runs are compared by, {"name": value} with lists as text, from {"title": {"name": value}}.
 * grouped: the run is one of a group of repeats. New reference or NULL. */
json_t *mst_train_compared(const json_t *options, bool grouped);

#endif
