/* `muster data convert`: reads rows in any input format and writes them in any output format. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/cmd_data.h"
#include "data/cache.h"
#include "data/images.h"
#include "data/origin.h"
#include "data/vocabulary.h"
#include "data/write.h"

typedef struct convert_options {
    int64_t skip_rows, rows;
    mst_data_out_options out;
    mst_data_options data;
    char *config;
} convert_options;

static const mst_option convert_table[] = {
    {.name = "skip-rows",
     .type = MST_OPTION_INT,
     .offset = offsetof(convert_options, skip_rows),
     .fallback = "0",
     .min = 0,
     .max = 1e15,
     .help = "Skip the first N rows."},
    {.name = "rows",
     .type = MST_OPTION_INT,
     .offset = offsetof(convert_options, rows),
     .fallback = "0",
     .min = 0,
     .max = 1e15,
     .help = "Stop after N rows; 0: convert all rows."},
    {.name = NULL},
};

static const mst_command_group convert_groups[] = {
    {"Output", mst_data_out_table, offsetof(convert_options, out)},
    {"Rows", convert_table, 0},
    {"Data", mst_data_option_table, offsetof(convert_options, data)},
    {"Other", mst_cli_config_table, offsetof(convert_options, config)},
    {.table = NULL},
};

/* Number of rows that will be written; 0 when it is not known before reading. */
static uint64_t convert_expected_rows(const mst_dataset *dataset, const convert_options *convert)
{
    uint64_t skip = (uint64_t)convert->skip_rows, limit = (uint64_t)convert->rows, n = dataset->info.n_rows;
    if (!dataset->random)
        return limit;
    n = n > skip ? n - skip : 0;
    return limit > 0 && limit < n ? limit : n;
}

static mst_status convert_rows(mst_dataset *dataset, const convert_options *convert, mst_data_sink *sink)
{
    const mst_data_out_options *out = &convert->out;
    sink->skip = (uint64_t)convert->skip_rows;
    sink->limit = (uint64_t)convert->rows;
    TRY(mst_data_sink_open(sink, out, "converting", convert_expected_rows(dataset, convert),
                           dataset->info.bytes));
    mst_status st = mst_dataset_each(dataset, mst_cli_threads(out->threads), mst_data_sink_take, sink);
    if (st != MST_OK && !sink->full)
        return st;
    if (sink->rows == 0)
        return mst_fail(MST_EINPUT, "%s has no rows to convert%s", dataset->name,
                        convert->skip_rows > 0 ? " beyond --skip-rows" : "");
    TRY(mst_data_sink_commit(sink, &dataset->info));
    mst_dataset_warn_skipped(dataset);
    const mst_row_writer_ops *to;
    if (dataset->labels_from != 0 && mst_row_writer_find(out->to, out->out, &to) == MST_OK &&
        !to->keeps_origin)
        mst_warn("%s: classes are numbered from 0; in %s they are numbered from %g", out->out, dataset->name,
                 (double)dataset->labels_from);
    return MST_OK;
}

/* The reading options and origin of the rows, for the cache: a training on it reads other files in the same
 * way. NULL when it is not known, or memory is short. */
static char *convert_source_key(const mst_dataset *dataset, const mst_data_options *options)
{
    mst_data_options settled = *options;
    if (dataset->format != NULL || mst_images_files(dataset) != NULL) {
        settled.image_classes = (mst_text_list){.items = dataset->class_names, .n = dataset->n_class_names};
        if (mst_dataset_has(dataset, MST_DATA_INDEX_BASE))
            settled.index_base = (int)dataset->info.index_base + 1;
        char *names = settled.feature_names != NULL ? realpath(settled.feature_names, NULL) : NULL;
        settled.feature_names = names; /* readers of the cache may work in another folder */
        char *key = mst_cache_key_text(&settled, dataset->origin);
        free(names);
        return key;
    }
    json_t *known = mst_cache_options(dataset),
           *root = json_pack("{s:o*, s:O*}", "data", known, MST_ORIGIN, dataset->origin);
    char *text = json_object_size(root) > 0 ? json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    char *key = text ? mst_sprintf("%s\n", text) : NULL;
    free(text); /* jansson's allocation */
    json_decref(root);
    return key;
}

/* --min-count: writes the vocabulary beside the cache, and reads the rows with it. */
static mst_status convert_make_vocabulary(const mst_call *call, convert_options *o, char **out)
{
    const mst_row_writer_ops *to;
    char number[32], count[32];
    bool given = o->data.vocabulary != NULL;
    if ((given || o->data.min_count != 0) && o->data.features != 0)
        return mst_fail(MST_EUSAGE,
                        "--features has no effect: categories have the features of the vocabulary%s",
                        given ? "" : " that --min-count makes");
    if (o->data.min_count == 0)
        return MST_OK;
    if (given)
        return mst_fail(MST_EUSAGE,
                        "--min-count makes a vocabulary, and --vocabulary %s is one: give one of them",
                        o->data.vocabulary);
    if (o->rows != 0 || o->skip_rows != 0)
        return mst_fail(
            MST_EUSAGE,
            "--min-count counts the categories of all rows, also of those that --rows and --skip-rows "
            "leave out; put the rows into a file of their own");
    TRY(mst_row_writer_find(o->out.to, o->out.out, &to));
    if (!to->keeps_origin)
        return mst_fail(MST_EUSAGE,
                        "--min-count: only a cache records its vocabulary; give --out FILE.cache");
    if (mst_path_exists(o->out.out) && !o->out.overwrite)
        return MST_OK; /* refused later */
    char *path = mst_sprintf("%s" MST_VOCABULARY_SUFFIX, o->out.out);
    if (path == NULL)
        return mst_fail_memory();
    mst_status st = mst_vocabulary_make(&call->words, &o->data, mst_cli_threads(o->out.threads), NULL, path);
    char *full = st == MST_OK ? realpath(path, NULL) : NULL;
    if (st == MST_OK && full == NULL)
        st = mst_fail_memory();
    mst_free(path);
    TRY(st);
    *out = mst_strdup(full);
    free(full);
    if (*out == NULL)
        return mst_fail_memory();
    o->data.vocabulary = *out;
    mst_vocabulary *v = NULL;
    TRY(mst_vocabulary_load(*out, &v));
    if (!o->out.quiet)
        mst_info("%s: %s features for categories that occur at least %s time%s", *out,
                 mst_figure_grouped(mst_vocabulary_features(v), number),
                 mst_figure_grouped((uint64_t)o->data.min_count, count), o->data.min_count == 1 ? "" : "s");
    mst_vocabulary_destroy(v);
    return MST_OK;
}

static mst_status convert_run(mst_call *call)
{
    convert_options *o = call->options;
    mst_dataset *dataset = NULL;
    mst_data_sink sink = {0};
    char *key = NULL, *vocabulary = NULL;
    mst_status st;
    if (call->words.n == 0)
        return mst_fail(MST_EUSAGE, "no input files given; \"-\" is standard input");
    if (o->out.out == NULL)
        return mst_fail(MST_EUSAGE, "no output file given; add --out FILE");
    mst_data_options_note(&o->data, call->groups, call->n_groups);
    TRY_OUT(st, convert_make_vocabulary(call, o, &vocabulary));
    TRY_OUT(st, mst_dataset_open(&call->words, &o->data, &dataset));
    TRY_OUT(st, mst_dataset_check_given(&o->data, (const mst_dataset *const *)&dataset, 1));
    mst_dataset_warn(dataset);
    key = convert_source_key(dataset, &o->data);
    sink.source_key = key;
    st = convert_rows(dataset, o, &sink);
out:
    mst_data_sink_close(&sink);
    if (vocabulary != NULL) {
        if (st != MST_OK)
            unlink(vocabulary);
        o->data.vocabulary = NULL;
    }
    mst_free(vocabulary);
    mst_free(key);
    mst_dataset_destroy(dataset);
    return st;
}

const mst_command mst_cmd_data_convert = {
    .name = "convert",
    .summary = "convert data from one format to another",
    .run = convert_run,
    .usage = "data convert IN... --out FILE [--to FORMAT] [options]",
    .details = "IN is a file, a pattern, a folder or \"-\". Several inputs of one format become one file.\n",
    .groups = convert_groups,
    .options_size = sizeof(convert_options),
    .examples = "muster data convert 'day_*.tsv.gz' --features 2^20 --out days.cache\n",
};
