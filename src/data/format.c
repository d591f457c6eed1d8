/* The options that control how data is read, and functions that all formats share (contract: format.h). */
#include "data/format.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "data/name_list.h"
#include "data/origin.h"
#include "data/text.h"
#include "data/vocabulary.h"

#define BAD_ROWS_SHOWN 10 /* with --skip-bad-rows */

#define FIELD(name) offsetof(mst_data_options, name)

const mst_option mst_data_option_table[] = {
    {.name = "format",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(format),
     .fallback = "auto",
     .metavar = "NAME",
     .help = "Format of the data; auto: by content. `muster list formats` lists the names.",
     .facts = MST_OPTION_MAY_DIFFER | MST_OPTION_OF_FILE},
    {.name = "features",
     .type = MST_OPTION_INT,
     .offset = FIELD(features),
     .fallback = "0",
     .min = 0,
     .max = 4294967295.0,
     .help =
         "Number of features; 0: found in the data. criteo, csv and vw hash into it (0: 2^20, 2^18 for vw).",
     .facts = MST_OPTION_MAY_DIFFER | MST_OPTION_OF_SHAPE},
    {.name = "fields",
     .type = MST_OPTION_INT,
     .offset = FIELD(fields),
     .fallback = "0",
     .min = 0,
     .max = MST_FIELDS_MAX,
     .help = "libffm: number of fields; 0: found in the data.",
     .facts = MST_OPTION_MAY_DIFFER | MST_OPTION_OF_SHAPE | MST_OPTION_AT_START},
    {.name = "vw-fields",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(vw_fields),
     .metavar = "LIST",
     .help = "vw: namespaces that are fields 0, 1, ..., separated by commas; all others are one more field. "
             "Default: those of the first megabyte, in the order of their first row; none if there is only "
             "one.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "csv-columns",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(csv_columns),
     .metavar = "LIST",
     .help = "csv: NAME:KIND of columns, separated by commas, such as age:log,C1..C26:category,id:ignore; "
             "kinds are "
             "number, standard, log, bucket, category, label, weight and ignore. *:KIND is for all other "
             "columns. "
             "Default: found in the first megabyte.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "csv-label",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(csv_label),
     .metavar = "NAME",
     .help = "csv: column with the label, by name or by number from 1. Default: label, target, y, class, "
             "click or "
             "clicked, or the first column without a header.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "csv-weight",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(csv_weight),
     .metavar = "NAME",
     .help = "csv: column with the weight of the row, by name or by number from 1. Default: none.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "csv-numeric",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(csv_numeric),
     .fallback = "standard",
     .choices = "standard|number|log|bucket",
     .help = "csv: columns of numbers whose kind is not given: with mean 0 and deviation 1, as they are, as "
             "log(1+v), "
             "or as buckets, which are hashed like categories.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "csv-delimiter",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(csv_delimiter),
     .fallback = "auto",
     .metavar = "CHARACTER",
     .help = "csv: the character between fields, or tab; auto: the one of , tab ; | that the first line has "
             "most of.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "csv-header",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(csv_header),
     .fallback = "auto",
     .choices = "auto|yes|no",
     .help = "csv: whether the first line names the columns; auto: by its contents.",
     .facts = MST_OPTION_MAY_DIFFER | MST_OPTION_OF_FILE},
    {.name = "csv-quote",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(csv_quote),
     .fallback = "double",
     .choices = "double|none",
     .help = "csv: whether double quotes enclose fields, or are characters like any other.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "classes",
     .type = MST_OPTION_INT,
     .offset = FIELD(classes),
     .fallback = "0",
     .min = 0,
     .max = 1e6,
     .help = "Number of classes; 0: found in the data.",
     .facts = MST_OPTION_MAY_DIFFER | MST_OPTION_OF_SHAPE},
    {.name = "labels-from",
     .type = MST_OPTION_INT,
     .offset = FIELD(labels_from),
     .fallback = "0",
     .min = 0,
     .max = 1e6,
     .metavar = "N",
     .help = "Label of the first class: 1 if classes are numbered 1, 2, ... predict prints classes with "
             "these numbers.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "index-base",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(index_base),
     .fallback = "auto",
     .choices = "auto|0|1",
     .help =
         "libsvm: number of the first feature; auto: 0 if the first megabyte has an index 0, otherwise 1.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "tf-label",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(tf_label),
     .fallback = "label",
     .metavar = "NAME",
     .help = "tfrecord: feature with the label. TFRecords of images may have it as image/class/label.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "tf-index",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(tf_index),
     .fallback = "index",
     .metavar = "NAME",
     .help = "tfrecord: feature with the feature numbers of the row.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "tf-value",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(tf_value),
     .fallback = "value",
     .metavar = "NAME",
     .help = "tfrecord: feature with the feature values of the row.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "tf-weight",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(tf_weight),
     .metavar = "NAME",
     .help = "tfrecord: feature with the weight of the row. Default: none.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "tf-columns",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(tf_columns),
     .metavar = "LIST",
     .help = "tfrecord: columns in order, such as I1..I13,C1..C26 or I1:float,C1:bytes, or the feature with "
             "the image. Default: an image, or all features with numbers or text in the first megabyte.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "tf-keys",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(tf_keys),
     .fallback = "auto",
     .choices = "auto|global|hash",
     .help = "tfrecord: whether int64 columns contain feature numbers (global) or are hashed with their "
             "column into --features, 2^20 by default (hash); auto: global if the values in the first "
             "megabyte ascend from column to column and are above the float columns.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "labels",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(labels),
     .metavar = "FILE",
     .help = "idx, numpy: file with the labels, if its name does not follow from that of the rows.",
     .facts = MST_OPTION_MAY_DIFFER | MST_OPTION_OF_FILE},
    {.name = "criteo-numeric",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(criteo_numeric),
     .fallback = "bucket",
     .choices = "bucket|log|both",
     .help = "criteo: the 13 integers as hashed buckets, as 13 dense features log(1+v)/4, or both.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "hash-seed",
     .type = MST_OPTION_INT,
     .offset = FIELD(hash_seed),
     .fallback = "0",
     .help = "Seed of the hash that maps categories and names to features.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "min-count",
     .type = MST_OPTION_INT,
     .offset = FIELD(min_count),
     .fallback = "0",
     .min = 0,
     .max = 1e15,
     .metavar = "N",
     .help = "criteo, csv, libffm, vw and columns of tfrecord, in data convert and train --cache: categories "
             "that "
             "occur N times or more have a feature of their own, all others of a field share one. The data "
             "is read twice; the vocabulary is written beside the cache. 0: categories are hashed.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "vocabulary",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(vocabulary),
     .metavar = "FILE",
     .help = "Categories have the features of this vocabulary, which --min-count made. Default: that of the "
             "model, or none: categories are hashed.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "feature-names",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(feature_names),
     .metavar = "FILE",
     .help = "libsvm and libffm: names of the features, one per line, the first feature first. They are for "
             "model export --names, data stat, serve and other programs. The default of --features is their "
             "number.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "skip-bad-rows",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(skip_bad_rows),
     .help = "Leave malformed rows of text and TFRecords out, with warnings, instead of ending at the first "
             "one. Not for files with an index.",
     .facts = MST_OPTION_MAY_DIFFER | MST_OPTION_OF_FILE | MST_DATA_OPTION_SKIPS},
    {.name = "cifar-label",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(cifar_label),
     .fallback = "fine",
     .choices = "fine|coarse",
     .help = "cifar100: which of the two labels is the class of the row.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "image-size",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(image_size),
     .fallback = "224x224",
     .metavar = "HxW",
     .help = "JPEG and PNG images: height and width of the rows. Images are scaled to cover this size and "
             "cropped at the centre.",
     .facts = MST_OPTION_MAY_DIFFER | MST_DATA_OPTION_OF_IMAGES},
    {.name = "image-resize",
     .type = MST_OPTION_INT,
     .offset = FIELD(image_resize),
     .fallback = "0",
     .min = 0,
     .max = 8192,
     .help = "JPEG and PNG images: length of the shorter side before cropping to --image-size; 0: the "
             "smallest that covers it.",
     .facts = MST_OPTION_MAY_DIFFER | MST_DATA_OPTION_OF_IMAGES},
    {.name = "image-gray",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(image_gray),
     .help = "JPEG and PNG images: one brightness channel instead of red, green and blue.",
     .facts = MST_OPTION_MAY_DIFFER | MST_DATA_OPTION_OF_IMAGES},
    {.name = "image-classes",
     .type = MST_OPTION_LIST,
     .offset = FIELD(image_classes),
     .metavar = "NAMES",
     .help = "images: folders of classes 0, 1, ... Default: all folders, sorted by name.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = NULL},
};

void mst_data_options_note(mst_data_options *self, const mst_option_group *groups, size_t n_groups)
{
    for (size_t g = 0; g < n_groups; g++)
        if (groups[g].table == mst_data_option_table)
            self->given = groups[g].set;
}

bool mst_data_options_given(const mst_data_options *self, const char *name)
{
    return (self->given >> (mst_option_row(mst_data_option_table, name) - mst_data_option_table) & 1) != 0;
}

mst_status mst_data_options_check_seed(const mst_data_options *self)
{
    bool vocabulary = self->vocabulary != NULL || self->counter != NULL;
    return !vocabulary || !mst_data_options_given(self, "hash-seed")
               ? MST_OK
               : mst_fail(MST_EUSAGE, "--hash-seed has no effect: categories have the features of a "
                                      "vocabulary (--vocabulary, --min-count)");
}

mst_status mst_parse_context_init(mst_parse_context *context, const mst_format *format,
                                  const mst_block *first)
{
    const mst_data_options *o = context->options;
    mst_vocabulary *v = NULL;
    context->vocabulary = o->counter;
    TRY(mst_data_options_check_seed(o));
    bool no_rows = first->size == 0; /* an empty file fits every model, in whatever format it is opened */
    if (o->vocabulary != NULL && o->counter == NULL && (format->categories || !no_rows)) {
        if (!format->categories)
            return mst_fail(MST_EINPUT,
                            "%s: %s data has no categories, but the model needs rows with categories "
                            "(vocabulary %s)",
                            first->path, format->kind.name, o->vocabulary);
        TRY(mst_vocabulary_load(o->vocabulary, &v));
        context->vocabulary = v;
        context->features = mst_vocabulary_features(v);
    }
    if (o->feature_names != NULL && context->features == 0) {
        mst_name_list *names = NULL;
        if (!format->numbered)
            return mst_fail(MST_EUSAGE,
                            "--feature-names %s: only libsvm and libffm data has numbered features",
                            o->feature_names);
        TRY(mst_name_list_load(o->feature_names, &names));
        context->features = mst_name_list_size(names);
        context->names = o->feature_names;
        mst_name_list_destroy(names);
    }
    TRY(format->prepare != NULL ? format->prepare(context, first) : MST_OK);
    context->ready = true;
    if (v != NULL && context->n_fields > mst_vocabulary_fields(v))
        return mst_fail(MST_EINPUT, "%s: its rows have %u fields, but the vocabulary %s is for %u",
                        first->path, context->n_fields, o->vocabulary, mst_vocabulary_fields(v));
    if (v != NULL && context->n_fields > 0)
        context->n_fields = mst_vocabulary_fields(v);
    return MST_OK;
}

void mst_parse_context_fini(mst_parse_context *context, const mst_format *format)
{
    if (context->ready && format->unprepare != NULL)
        format->unprepare(context->prepared);
    if (context->vocabulary != NULL && context->options->counter == NULL)
        mst_vocabulary_destroy((mst_vocabulary *)context->vocabulary);
}

mst_status mst_format_origin(const mst_format *format, const mst_parse_context *context, json_t **out)
{
    json_t *origin = format->origin != NULL ? format->origin(context) : mst_origin_numbers();
    if (origin == NULL)
        return mst_fail_memory();
    mst_status st =
        context->vocabulary != NULL ? mst_vocabulary_adopt(context->vocabulary, "the data", &origin) : MST_OK;
    if (st == MST_OK)
        *out = origin;
    else
        json_decref(origin);
    return st;
}

mst_status mst_block_fail(const mst_format *format, const mst_block *block, const uint8_t *at,
                          const char *message, ...)
{
    char text[MST_ERROR_MAX];
    va_list args;
    va_start(args, message);
    vsnprintf(text, sizeof text, message, args);
    va_end(args);
    size_t before = (size_t)(at - block->data);
    if (format->text)
        return mst_fail(MST_EINPUT, "%s:%llu: %s", block->path,
                        (unsigned long long)(block->line + mst_count_newlines(block->data, before)), text);
    return mst_fail(MST_EINPUT, "%s at byte %llu: %s", block->path,
                    (unsigned long long)(block->offset + before), text);
}

mst_status mst_format_advise(const mst_parse_context *context, mst_status st)
{
    mst_error error;
    if (st != MST_EINPUT || context->options->skip_bad_rows || context->options->unlabelled)
        return st;
    mst_error_save(&error, st);
    size_t n = strlen(error.text);
    snprintf(error.text + n, sizeof error.text - n, " (--skip-bad-rows leaves such rows out)");
    return mst_error_restore(&error);
}

/* The start of row number `row` of a block. */
static const uint8_t *find_row(const mst_format *format, const mst_parse_context *context,
                               const mst_block *block, size_t row)
{
    const uint8_t *p = block->data, *end = p + block->size;
    while (!mst_format_has_lines(format) && p < end) {
        mst_block rest = *block;
        size_t n = 0;
        bool is_row = true;
        rest.data = p;
        rest.size = (size_t)(end - p);
        rest.offset += (uint64_t)(p - block->data);
        if (format->record(context, &rest, &n, &is_row) != MST_OK || n == 0)
            return block->data;
        if (is_row && row-- == 0)
            return p;
        p += n;
    }
    while (p < end) {
        const uint8_t *line_end = mst_line_end(p, end);
        if (mst_line_is_row(p, line_end) && row-- == 0)
            return p;
        p = line_end + (line_end < end);
    }
    return block->data;
}

mst_status mst_format_parse(const mst_format *format, const mst_parse_context *context,
                            const mst_block *block, mst_chunk_builder *out)
{
    size_t before = out->n_rows;
    float from = (float)context->options->labels_from;
    TRY(format->parse(context, block, out));
    for (size_t i = before; from != 0.0f && !context->options->unlabelled && i < out->n_rows; i++) {
        if (!(out->labels[i] >= from))
            return mst_block_fail(format, block, find_row(format, context, block, i - before),
                                  "label %g is below --labels-from %g", (double)out->labels[i], (double)from);
        out->labels[i] -= from;
    }
    return MST_OK;
}

void mst_bad_rows_rewind(mst_bad_rows *self)
{
    self->most = mst_bad_rows_count(self);
    atomic_store(&self->pass, 0);
}

uint64_t mst_bad_rows_count(const mst_bad_rows *self)
{
    uint64_t pass = atomic_load(&self->pass);
    return pass > self->most ? pass : self->most;
}

/* Counts a row that is left out, whose error is recorded, and reports it: the first ten, then every power of
 * ten. */
static void format_report_bad(mst_bad_rows *bad)
{
    uint64_t n = atomic_fetch_add(&bad->pass, 1) + 1, power = BAD_ROWS_SHOWN;
    while (power < n)
        power *= 10;
    if (n <= bad->most)
        return;
    if (n <= BAD_ROWS_SHOWN)
        mst_warn("%s; the row is left out (--skip-bad-rows)", mst_error_text());
    else if (n == power)
        mst_warn("%" PRIu64 " malformed rows have been left out", n);
}

mst_status mst_format_parse_good(const mst_format *format, const mst_parse_context *context,
                                 const mst_block *block, mst_bad_rows *bad, mst_chunk_builder *out)
{
    const uint8_t *end = block->data + block->size;
    mst_block one = *block;
    while (one.data < end) {
        size_t n = 0, n_rows = out->n_rows, n_entries = out->n_entries;
        bool is_row;
        one.size = (size_t)(end - one.data);
        if (mst_format_has_lines(format)) {
            const uint8_t *line_end = mst_line_end(one.data, end);
            n = (size_t)(line_end - one.data) + (line_end < end);
        } else {
            TRY(format->record(context, &one, &n, &is_row));
        }
        one.size = n > 0 ? n : one.size;
        mst_status st = mst_format_parse(format, context, &one, out);
        if (st != MST_OK && st != MST_EINPUT)
            return st;
        if (st != MST_OK) {
            out->n_rows = n_rows;
            out->n_entries = n_entries;
        }
        if (st != MST_OK && bad != NULL)
            format_report_bad(bad);
        one.offset += one.size;
        one.line += format->text ? mst_count_newlines(one.data, one.size) : 0;
        one.data += one.size;
    }
    return MST_OK;
}

mst_first_rows mst_first_rows_of(const mst_format *format, const mst_parse_context *context,
                                 const mst_block *first)
{
    mst_first_rows out = {0};
    float from = (float)context->options->labels_from;
    mst_chunk *chunk = NULL;
    mst_chunk_builder builder;
    mst_chunk_builder_init(&builder);
    mst_status st = format->parse(context, first, &builder);
    if (st == MST_EINPUT && context->options->skip_bad_rows) {
        mst_chunk_builder_clear(&builder);
        st = mst_format_parse_good(format, context, first, NULL, &builder);
        from = 0.0f; /* it is off the labels already */
    }
    if (st == MST_OK && mst_chunk_builder_pack(&builder, 0, builder.n_rows, &chunk) == MST_OK) {
        out.n_dense = chunk->n_dense;
        out.features = chunk->n_entries > 0 ? (uint64_t)chunk->max_key + 1 : 0;
        out.min_label = chunk->n_rows > 0 ? chunk->min_label - from : 0.0f;
        out.max_label = chunk->n_rows > 0 ? chunk->max_label - from : 0.0f;
    }
    mst_chunk_release(chunk);
    mst_chunk_builder_fini(&builder);
    return out;
}
