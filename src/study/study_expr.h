/* Expressions over the rows of a study's steps (docs/STUDIES.md, "Expressions"): column formulas, the
 * conditions of a conclusion, and the figures in its sentence.
 *
 *   batches[mode=sync, batch=1].train_s / batches[mode=async, batch=1].train_s
 *   argmin(batches[mode=sync].train_s, batch)
 *
 * A value is a text, or one number or several; several come from several rows. Missing rows and columns are
 * failures with a sentence, never a wrong number. */
#ifndef MST_STUDY_STUDY_EXPR_H
#define MST_STUDY_STUDY_EXPR_H

#include <jansson.h>
#include <stdbool.h>

#include "base/figure.h"
#include "base/status.h"
#include "base/strings.h"

#define MST_EXPR_UNITS "plain, count, seconds, bytes, rate, share, cores, or a number of decimals"

/* A unit, or a number of decimals. */
typedef struct mst_expr_form {
    mst_figure_unit unit;
    int decimals; /* -1: as the unit has it */
} mst_expr_form;
/* By its name; false: there is no such unit. NULL is plain. out may be NULL. */
bool mst_expr_unit(const char *name, mst_expr_form *out);
/* A number in that form. out holds MST_FIGURE_SIZE bytes and is returned. */
const char *mst_expr_text(mst_expr_form form, double value, char *out);

/* The rows that an expression can name. */
typedef struct mst_expr_scope {
    const json_t *rows;   /* step -> [row]; NULL: syntax and names are checked only, and every figure is 1 */
    const json_t *steps;  /* the steps of the file: their names are allowed */
    const json_t *values; /* values: of the file; or NULL */
    const json_t *row;    /* whose columns are names, too; or NULL */

    /* When checking. */
    const struct mst_study_known *known; /* columns of steps */
    const json_t *columns;               /* of the row, by name; NULL: names of columns are not allowed */
    bool any_column;                     /* the columns of the row are not known */
} mst_expr_scope;

/* Checks the syntax and the names of an expression; rows of the scope is NULL. MST_EUSAGE. */
mst_status mst_expr_check(const mst_expr_scope *scope, const char *text);

/* The number of an expression; MST_EINPUT if it has none, MST_EUSAGE if its syntax is wrong. */
mst_status mst_expr_number(const mst_expr_scope *scope, const char *text, double *out);
/* Adds a sentence in which {EXPRESSION} and {EXPRESSION|UNIT} stand for their values. */
mst_status mst_expr_sentence(const mst_expr_scope *scope, const char *text, mst_string *out);

#endif
