/* Option tables as text: --help, manual pages, and the resolved values as JSON; contract in option.h. */
#include <ctype.h>
#include <string.h>

#include "base/alloc.h"
#include "base/option.h"
#include "base/option_impl.h"
#include "base/strings.h"

#define LABEL_MAX    30 /* a longer label gets a line of its own */
#define CHOICES_SHOW 24 /* longer choices are listed in the help sentence */

/* ---- one option ---- */

static const char *help_metavar(const mst_option *row)
{
    if (row->metavar != NULL)
        return row->metavar;
    switch (row->type) {
    case MST_OPTION_INT:
        return "N";
    case MST_OPTION_REAL:
        return "X";
    case MST_OPTION_CHOICE:
        return strlen(row->choices) <= CHOICES_SHOW ? row->choices : "NAME";
    case MST_OPTION_LIST:
        return "A,B,...";
    default:
        return "TEXT";
    }
}

/* A flag that is on by default is shown as --[no-]name. */
static const char *help_no(const mst_option *row)
{
    bool on = row->type == MST_OPTION_FLAG && row->fallback != NULL && strcmp(row->fallback, "true") == 0;
    return on ? "[no-]" : "";
}

/* "  --name N" */
static void help_label(mst_string *out, const mst_option *row)
{
    mst_string_format(out, "  --%s%s", help_no(row), row->name);
    if (row->type != MST_OPTION_FLAG)
        mst_string_format(out, " %s", help_metavar(row));
}

/* The help, and in parentheses the choices, the default and the needs. */
static void help_sentence(mst_string *out, const mst_option *row)
{
    const char *open = " (";
    mst_string_add(out, row->help != NULL ? row->help : "");
    if (row->type == MST_OPTION_CHOICE && strcmp(help_metavar(row), row->choices) != 0) {
        const char *choice;
        size_t length;
        mst_string_format(out, "%sone of", open);
        for (int i = 0; (choice = mst_option_choice(row->choices, i, &length)) != NULL; i++)
            mst_string_format(out, "%s %.*s", i ? "," : "", (int)length, choice);
        open = "; ";
    }
    if (row->type != MST_OPTION_FLAG && row->fallback != NULL && *row->fallback != '\0') {
        mst_string_format(out, "%sdefault: %s", open, row->fallback);
        open = "; ";
    }
    for (size_t i = 0, shown = 0; i < MST_OPTION_NEEDS_MAX && row->needs[i].option != NULL; i++) {
        const mst_option_need *need = &row->needs[i];
        char text[256];
        if (need->check == MST_NEED_SWEEP)
            continue;
        if (strcmp(need->values, "false") == 0)
            mst_string_format(out, "%snot with --%s", open, need->option);
        else
            mst_string_format(out, "%s%s",
                              shown++ > 0      ? " and "
                              : open[0] == ' ' ? " (only with "
                                               : "; only with ",
                              mst_option_need_text(need, text, sizeof text));
        open = "; ";
    }
    mst_string_add(out, open[0] == ';' ? ")" : "");
}

/* ---- --help ---- */

/* The column where the sentences begin. */
static size_t help_indent(const mst_option_group *groups, size_t n, mst_string *label)
{
    size_t indent = 0;
    for (size_t g = 0; g < n; g++) {
        for (const mst_option *row = groups[g].table; row->name != NULL; row++) {
            label->size = 0;
            help_label(label, row);
            if (label->size <= LABEL_MAX && label->size + 2 > indent)
                indent = label->size + 2;
        }
    }
    return indent > 0 ? indent : LABEL_MAX;
}

static void help_option(mst_string *out, const mst_option *row, size_t indent, mst_string *sentence)
{
    size_t start = out->size;
    help_label(out, row);
    size_t width = out->size - start;
    sentence->size = 0;
    help_sentence(sentence, row);
    if (width + 2 > indent) {
        mst_string_add(out, "\n");
        width = 0;
    }
    mst_string_format(out, "%*s", (int)(indent - width), "");
    mst_string_wrap(out, sentence->failed ? "" : sentence->text, indent, MST_HELP_COLUMNS);
}

/* The text of `out`, which the caller frees; NULL when it or `part` failed. */
static char *help_finish(mst_string *out, mst_string *part)
{
    out->failed = out->failed || part->failed;
    mst_string_fini(part);
    if (out->failed)
        mst_string_fini(out);
    return out->text;
}

char *mst_options_help(const mst_option_group *groups, size_t n)
{
    mst_string help = {0}, part = {0};
    size_t indent = help_indent(groups, n, &part);
    mst_string_add(&help, "");
    for (size_t g = 0; g < n; g++) {
        if (groups[g].table->name == NULL)
            continue;
        const char *title = groups[g].title;
        mst_string_format(&help, "%s%c%s:\n", help.size > 0 ? "\n" : "", toupper((unsigned char)title[0]),
                          title + 1);
        for (const mst_option *row = groups[g].table; row->name != NULL; row++)
            if (!(row->facts & groups[g].hidden))
                help_option(&help, row, indent, &part);
    }
    return help_finish(&help, &part);
}

/* ---- manual pages ---- */

char *mst_options_roff(const mst_option_group *groups, size_t n)
{
    mst_string page = {0}, part = {0};
    mst_string_add(&page, "");
    for (size_t g = 0; g < n; g++) {
        if (groups[g].table->name == NULL)
            continue;
        if (n > 1)
            mst_string_format(&page, ".SS \"%c%s\"\n", toupper((unsigned char)groups[g].title[0]),
                              groups[g].title + 1);
        for (const mst_option *row = groups[g].table; row->name != NULL; row++) {
            if (row->facts & groups[g].hidden)
                continue;
            mst_string_add(&page, ".TP\n\\fB\\-\\-");
            mst_string_roff(&page, help_no(row));
            mst_string_roff(&page, row->name);
            mst_string_add(&page, "\\fR");
            if (row->type != MST_OPTION_FLAG) {
                mst_string_add(&page, " \\fI");
                mst_string_roff(&page, help_metavar(row));
                mst_string_add(&page, "\\fR");
            }
            mst_string_add(&page, "\n");
            part.size = 0;
            help_sentence(&part, row);
            if (!part.failed)
                mst_string_roff(&page, part.text);
            mst_string_add(&page, "\n");
        }
    }
    return help_finish(&page, &part);
}
