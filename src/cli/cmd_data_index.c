/* `muster data index`: indexes that give random access to the rows of text and TFRecord files. */
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "data/indexed.h"

typedef struct index_options {
    mst_data_options data; /* those of the table below */
    bool json;
} index_options;

static const mst_option index_table[] = {
    {.name = "format",
     .type = MST_OPTION_TEXT,
     .offset = offsetof(index_options, data.format),
     .fallback = "auto",
     .metavar = "NAME",
     .help = "Format of the files; auto: by content."},
    {.name = "csv-delimiter",
     .type = MST_OPTION_TEXT,
     .offset = offsetof(index_options, data.csv_delimiter),
     .fallback = "auto",
     .metavar = "CHARACTER",
     .help = "csv: the character between fields, or tab; auto: by the first line."},
    {.name = "csv-header",
     .type = MST_OPTION_CHOICE,
     .offset = offsetof(index_options, data.csv_header),
     .fallback = "auto",
     .choices = "auto|yes|no",
     .help = "csv: whether the first line names the columns; auto: by its contents."},
    {.name = "csv-quote",
     .type = MST_OPTION_CHOICE,
     .offset = offsetof(index_options, data.csv_quote),
     .fallback = "double",
     .choices = "double|none",
     .help = "csv: whether double quotes enclose fields, or are characters like any other."},
    {.name = "json",
     .type = MST_OPTION_FLAG,
     .offset = offsetof(index_options, json),
     .help = "Print JSON instead of a table."},
    {.name = NULL},
};
static const mst_command_group index_groups[] = {{"Options", index_table, 0}, {.table = NULL}};
static const mst_column columns[] = {{.key = "file"}, {.key = "rows", .right = true}, {.key = "index"}};

static mst_status index_files(const mst_text_list *paths, const mst_format *format,
                              const mst_data_options *data, mst_table *table)
{
    for (size_t i = 0; i < paths->n; i++) {
        uint64_t rows;
        if (mst_ends_with(paths->items[i], MST_INDEX_SUFFIX))
            continue; /* from a folder or a pattern */
        TRY(mst_index_build(paths->items[i], format, data, &rows));
        char *name = mst_sprintf("%s%s", paths->items[i], MST_INDEX_SUFFIX);
        if (name == NULL)
            return mst_fail_memory();
        mst_table_text(table, paths->items[i]);
        mst_table_count(table, rows);
        mst_table_text(table, name);
        mst_free(name);
    }
    return MST_OK;
}

static mst_status index_run(mst_call *call)
{
    const index_options *o = call->options;
    mst_text_list paths = {0};
    mst_table *table = NULL;
    const mst_format *format = NULL;
    mst_status st;
    if (call->words.n == 0)
        return mst_fail(MST_EUSAGE, "no files given to index");
    if (strcmp(o->data.format, "auto") != 0 &&
        (format = mst_data_kind_format(mst_data_kind_find(o->data.format))) == NULL)
        return mst_fail(MST_EUSAGE,
                        "--format %s: not a format that can be indexed; see 'muster list formats'",
                        o->data.format);
    TRY_OUT(st, mst_glob(&call->words, &paths));
    TRY_OUT(st, mst_table_new(columns, 3, &table));
    TRY_OUT(st, index_files(&paths, format, &o->data, table));
    st = o->json ? mst_cli_print_json(mst_table_json(table)) : mst_table_print(table, NULL, true);
out:
    mst_table_destroy(table);
    mst_text_list_fini(&paths);
    return st;
}

const mst_command mst_cmd_data_index = {
    .name = "index",
    .summary = "index text and TFRecord files for random access to their rows",
    .run = index_run,
    .usage = "data index FILE... [options]",
    .details = "Writes FILE" MST_INDEX_SUFFIX " next to each FILE. It is used until FILE changes.\n",
    .groups = index_groups,
    .options_size = sizeof(index_options),
    .examples = "muster data index day_0.tsv day_1.tsv\n",
};
