/* Datasets: opens files by their content, and reads all chunks in order (contract: dataset.h).
 *
 * Folders are recognised by their contents. For everything else, opening reads the first 64 KiB of the
 * (decompressed) contents and tests it against every kind of data. */
#include "data/dataset.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "base/file.h"
#include "base/log.h"
#include "data/chunk_ring.h"
#include "data/csv_table.h"
#include "data/guess.h"
#include "data/indexed.h"
#include "data/origin.h"
#include "data/stream.h"
#include "data/text.h"
#include "data/tfrecord.h"

#define MAGIC_BYTES  64           /* enough to recognise binary files */
#define IMAGE_WINDOW (128u << 20) /* bytes of images that a window of the feed holds */

/* ---- opening ---- */

/* The head of a file, the open input it came from, and the kind of data that it is. */
typedef struct sniffed {
    bool no_rows;              /* an empty file, or text without rows: fits any kind */
    const mst_data_kind *kind; /* NULL: none, or no_rows */
    mst_in *in;
    uint8_t head[MST_SNIFF_BYTES];
    size_t n;
} sniffed;

static uint64_t sniffed_file_size(const sniffed *s)
{
    return mst_in_compressed(s->in) ? 0 : mst_in_file_size(s->in);
}

/* Recognises the first n bytes of the head. */
static void sniffed_recognise(sniffed *s, size_t n)
{
    s->no_rows = n == 0 || mst_data_no_rows(s->head, n);
    s->kind = s->no_rows ? NULL : mst_data_guess(s->head, n, sniffed_file_size(s));
}

/* The end of the last whole line of the head if one of its lines is a row; 0 otherwise. */
static size_t whole_lines(const sniffed *s)
{
    const uint8_t *at = s->head, *last = memrchr(s->head, '\n', s->n);
    for (const uint8_t *end; last != NULL && at <= last; at = end + 1) {
        end = mst_line_end(at, last);
        if (mst_line_is_row(at, end))
            return (size_t)(last - s->head) + 1;
    }
    return 0;
}

/* Live: reads no more of the head than it takes to recognise it: the first line that is a row, or the bytes
 * of a magic number. */
static mst_status sniff_live(sniffed *s)
{
    size_t got;
    for (;;) {
        TRY(mst_in_read_some(s->in, s->head + s->n, sizeof s->head - s->n, -1, &got));
        s->n += got;
        bool full = got == 0 || s->n == sizeof s->head, text = mst_looks_like_text(s->head, s->n);
        size_t lines = text && !full ? whole_lines(s) : 0;
        sniffed_recognise(s, lines > 0 ? lines : s->n);
        if (full || lines > 0 || (!text && (s->no_rows || s->kind != NULL || s->n >= MAGIC_BYTES)))
            return MST_OK;
    }
}

/* Opens and reads the head; the caller closes s->in. */
static mst_status dataset_sniff(const char *path, bool live, sniffed *s)
{
    s->in = NULL;
    s->n = 0;
    TRY(mst_in_open(path, &s->in));
    if (live && mst_path_reads_once(path))
        return sniff_live(s);
    TRY(mst_in_read(s->in, s->head, sizeof s->head, &s->n));
    sniffed_recognise(s, s->n);
    return MST_OK;
}

static void sniff_close(sniffed *s)
{
    mst_in_close(s->in);
    s->in = NULL;
}

/* Whether the head shows a binary file of the kind, rather than text that may be of several. */
static bool sniffed_is_binary(const sniffed *s)
{
    return s->kind != NULL &&
           mst_data_sniff(s->kind, s->head, s->n, sniffed_file_size(s)) == MST_SNIFF_BINARY;
}

/* Fails when a file cannot be of the dataset's kind; a file with an inconclusive head passes. */
static mst_status check_alike(const mst_data_kind *kind, const char *first, const char *path, sniffed *s)
{
    mst_status st;
    TRY_OUT(st, dataset_sniff(path, false, s));
    bool alike = s->no_rows || s->kind == kind ||
                 (!sniffed_is_binary(s) && mst_data_sniff(kind, s->head, s->n, 0) > 0);
    if (!alike && s->kind == NULL)
        st = mst_fail(MST_EINPUT,
                      "%s does not look like %s, which %s is; all files of a dataset must have one format",
                      path, kind->name, first);
    else if (!alike)
        st = mst_fail(MST_EINPUT, "%s is %s but %s is %s; all files of a dataset must have one format", path,
                      s->kind->name, first, kind->name);
out:
    sniff_close(s);
    return st;
}

/* Finds the kind of the files. found->in stays open only when it can be read just once; further such files
 * are not read. */
static mst_status dataset_detect(const mst_text_list *paths, const mst_data_options *options, sniffed *found,
                                 sniffed *other)
{
    size_t i;
    for (i = 0; i < paths->n; i++) {
        TRY(dataset_sniff(paths->items[i], options->live, found));
        if (mst_path_reads_once(paths->items[i]) || !found->no_rows)
            break;
        sniff_close(found);
    }
    if (i == paths->n)
        i--;
    if (found->n == 0) /* no rows, in any format */
        found->kind =
            strstr(paths->items[i], "tfrecord") != NULL ? &mst_format_tfrecord.kind : mst_data_kinds[0];
    if (found->kind == NULL && options->csv_columns != NULL && mst_data_may_be_table(found->head, found->n))
        found->kind = &mst_format_csv.kind; /* a table whose columns are not those of the list */
    if (found->kind == NULL) {
        (void)mst_data_unknown(mst_path_shown(paths->items[i]), found->head, found->n);
        return MST_EINPUT;
    }
    if (!mst_path_reads_once(paths->items[i]))
        sniff_close(found);
    for (size_t j = i + 1; j < paths->n; j++)
        if (!mst_path_reads_once(paths->items[j]))
            TRY(check_alike(found->kind, paths->items[i], paths->items[j], other));
    return MST_OK;
}

/* The kind that --format names, or folders show; NULL: the files decide. */
static mst_status choose_kind(const mst_text_list *patterns, const mst_data_options *options,
                              const mst_data_kind **out)
{
    char names[128];
    *out = NULL;
    if (options->format != NULL && strcmp(options->format, "auto") != 0) {
        *out = mst_data_kind_find(options->format);
        return *out != NULL ? MST_OK
                            : mst_fail(MST_EUSAGE, "unknown format %s; the formats are auto, %s",
                                       options->format, mst_data_kind_names(names, sizeof names));
    }
    for (size_t i = 0; mst_data_kinds[i] != NULL && *out == NULL; i++)
        if (mst_data_kinds[i]->claims != NULL && mst_data_kinds[i]->claims(patterns, options->unlabelled))
            *out = mst_data_kinds[i];
    return MST_OK;
}

/* Fails when a file that --format takes for text is a binary file of another kind, before rows are read. */
static mst_status check_named(const mst_data_kind *kind, const mst_text_list *paths, sniffed *s)
{
    mst_status st = MST_OK;
    for (size_t i = 0; i < paths->n && st == MST_OK; i++) {
        if (mst_path_reads_once(paths->items[i]))
            continue;
        st = dataset_sniff(paths->items[i], false, s);
        if (st == MST_OK && s->kind != kind && sniffed_is_binary(s))
            st = mst_fail(MST_EUSAGE,
                          "--format %s: %s has format %s; omit --format, which is for all data files",
                          kind->name, paths->items[i], s->kind->name);
        sniff_close(s);
    }
    return st;
}

/* Sets the label of class 0, in the origin too. A cache keeps the one it was made with. */
static mst_status settle_labels(const mst_data_options *options, mst_dataset *d)
{
    int64_t from = options->labels_from;
    bool cached = mst_dataset_has(d, MST_DATA_CACHED);
    if (options->unlabelled) {
        json_object_del(d->origin, MST_ORIGIN_LABELS);
        return MST_OK;
    }
    if (cached && (from != 0 || mst_data_options_given(options, "labels-from")) && from != d->labels_from)
        return mst_fail(MST_EUSAGE,
                        "--labels-from %lld: %s was made with --labels-from %lld, and its labels cannot "
                        "change: convert its source again",
                        (long long)from, d->name, (long long)d->labels_from);
    if (cached)
        return MST_OK;
    if (from != 0 && mst_dataset_has(d, MST_DATA_OWN_CLASSES))
        return mst_fail(MST_EUSAGE, "--labels-from %lld: the classes of %s are numbered from 0",
                        (long long)from, d->name);
    d->labels_from = from;
    if (d->origin != NULL && json_object_set_new(d->origin, MST_ORIGIN_LABELS, json_integer(from)) != 0)
        return mst_fail_memory();
    return MST_OK;
}

/* Whether an option that some kinds only read may change the rows of a dataset. Rows of a program, of no kind
 * in the registry, may be read from files elsewhere by the same options. */
static bool dataset_obeys(const mst_dataset *d, const mst_option *row)
{
    if (d->no_rows || mst_data_kind_find(d->kind->name) != d->kind)
        return true;
    return (row->facts & MST_DATA_OPTION_OF_IMAGES) != 0 ? d->encoded
                                                         : mst_data_kind_reads(d->kind, row->name);
}

static bool dataset_option_is_special(const mst_option *row)
{
    bool reads = false;
    for (size_t k = 0; mst_data_kinds[k] != NULL; k++)
        reads |= mst_data_kind_reads(mst_data_kinds[k], row->name);
    return reads;
}

static mst_status dataset_refuse_option(const mst_dataset *d, const mst_option *row)
{
    if (mst_dataset_has(d, MST_DATA_CACHED))
        return mst_fail(MST_EUSAGE,
                        "--%s has no effect: the rows of %s are as they were read when the cache was made",
                        row->name, d->name);
    if ((row->facts & MST_DATA_OPTION_OF_IMAGES) != 0)
        return mst_fail(MST_EUSAGE, "--%s is for JPEG and PNG images, but %s holds %s", row->name, d->name,
                        d->info.channels > 0 ? "raw pixels" : "none");
    return mst_fail(MST_EUSAGE, "--%s has no effect: %s is %s data", row->name, d->name, d->kind->name);
}

mst_status mst_dataset_check_given(const mst_data_options *options, const mst_dataset *const *datasets,
                                   size_t n)
{
    for (size_t i = 0; mst_data_option_table[i].name != NULL; i++) {
        const mst_option *row = &mst_data_option_table[i];
        const mst_dataset *other = NULL;
        bool obeyed = (options->given >> i & 1) == 0 || !dataset_option_is_special(row);
        for (size_t d = 0; d < n && !obeyed; d++) {
            if (datasets[d] == NULL)
                continue;
            other = other == NULL ? datasets[d] : other;
            obeyed = dataset_obeys(datasets[d], row);
        }
        if (!obeyed && other != NULL)
            return dataset_refuse_option(other, row);
    }
    return MST_OK;
}

mst_status mst_format_open(const mst_data_kind *self, mst_data_source *source, mst_dataset **out)
{
    const mst_format *format = mst_data_kind_format(self);
    if (source->in == NULL && mst_indexed_available(source->paths))
        return mst_indexed_open(source->paths, format, source->options, out);
    mst_in *in = source->in;
    source->in = NULL;
    return mst_stream_open(source->paths, format, source->options, in, source->head,
                           in != NULL ? source->n_head : 0, out);
}

mst_status mst_dataset_open(const mst_text_list *patterns, const mst_data_options *options, mst_dataset **out)
{
    mst_status st;
    mst_text_list paths = {0};
    mst_data_source source = {.patterns = patterns, .paths = &paths, .options = options};
    const mst_data_kind *kind;
    mst_dataset *d = NULL;
    sniffed *s = mst_calloc(2, sizeof *s);
    if (s == NULL)
        return mst_fail_memory();
    if (patterns->n == 0) {
        st = mst_fail(MST_EUSAGE, "no data files given");
        goto out;
    }
    if (options->min_count > 0 && options->vocabulary == NULL && options->counter == NULL) {
        st = mst_fail(MST_EUSAGE, "--min-count is for data convert and for train --cache");
        goto out;
    }
    TRY_OUT(st, choose_kind(patterns, options, &kind));
    if (kind == NULL || !mst_data_kind_has(kind, MST_DATA_FOLDERS))
        TRY_OUT(st, mst_glob(patterns, &paths));
    if (kind != NULL && mst_data_kind_format(kind) != NULL)
        TRY_OUT(st, check_named(kind, &paths, &s[1]));
    if (kind == NULL) {
        TRY_OUT(st, dataset_detect(&paths, options, &s[0], &s[1]));
        kind = s->kind;
        source.in = s->in;
        source.head = s->head;
        source.n_head = s->n;
        s->in = NULL;
    }
    if (source.in != NULL && !mst_data_kind_has(kind, MST_DATA_FORMAT)) {
        st = mst_fail(MST_EINPUT, "%s files cannot be read from %s; give the file's name", kind->name,
                      mst_in_path(source.in));
        goto out;
    }
    TRY_OUT(st, kind->open(kind, &source, &d));
    if (options->counter != NULL && (d->format == NULL || !d->format->categories)) {
        st = mst_fail(MST_EUSAGE, "--min-count: %s data has no categories", kind->name);
        goto out;
    }
    if (mst_data_kind_has(kind, MST_DATA_FIXED_ROWS))
        d->origin = mst_origin_numbers();
    TRY_OUT(st, settle_labels(options, d));
    d->no_rows = s->no_rows;
    *out = d;
    d = NULL;
out:
    mst_dataset_destroy(d);
    mst_in_close(source.in);
    sniff_close(s);
    mst_text_list_fini(&paths);
    mst_free(s);
    return st;
}

void mst_dataset_destroy(mst_dataset *self)
{
    if (self == NULL)
        return;
    json_decref(self->origin);
    self->ops->destroy(self);
}

mst_status mst_dataset_take_context(mst_dataset *self, mst_parse_context *context)
{
    uint64_t row = (uint64_t)context->channels * context->height * context->width;
    self->info.n_fields = context->n_fields;
    self->info.n_numbers = context->n_numbers;
    for (size_t i = 0; context->left_out != NULL && i < context->left_out->n; i++)
        TRY(mst_text_list_add(&self->left_out, context->left_out->items[i]));
    for (size_t i = 0; context->doubts != NULL && i < context->doubts->n; i++)
        TRY(mst_text_list_add(&self->doubts, context->doubts->items[i]));
    if (context->classes != NULL && context->classes->n > 0) {
        mst_text_list names = {0};
        mst_status st = MST_OK;
        for (size_t i = 0; i < context->classes->n && st == MST_OK; i++)
            st = mst_text_list_add(&names, context->classes->items[i]);
        self->class_names = names.items;
        self->n_class_names = (uint32_t)names.n;
        TRY(st);
    }
    if (row == 0)
        return MST_OK;
    self->info.channels = context->channels;
    self->info.height = context->height;
    self->info.width = context->width;
    self->info.first_features = row;
    self->encoded = context->encoded;
    self->window_rows = (uint32_t)(IMAGE_WINDOW / row) + 1;
    context->max_dense = (uint32_t)row;
    return MST_OK;
}

void mst_dataset_take_first(mst_dataset *self, mst_parse_context *context, const mst_block *first)
{
    mst_first_rows rows = mst_first_rows_of(self->format, context, first);
    context->max_dense = rows.n_dense;
    self->info.first_features = rows.features;
    self->info.first_min_label = rows.min_label;
    self->info.first_max_label = rows.max_label;
}

void mst_dataset_warn(const mst_dataset *self)
{
    const mst_text_list *left = &self->left_out;
    char names[600];
    size_t n = 0, i = 0;
    for (; i < left->n && n + strlen(left->items[i]) + 32 < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i > 0 ? ", " : "", left->items[i]);
    if (i < left->n)
        snprintf(names + n, sizeof names - n, "%s%zu more", i > 0 ? " and " : "", left->n - i);
    if (left->n > 0)
        mst_warn("%s: features left out%s: %s; --tf-columns chooses the features to use", self->name,
                 self->info.channels != 0 ? ", as rows are images" : "", names);
    for (i = 0; i < self->doubts.n; i++)
        mst_warn("%s", self->doubts.items[i]);
}

uint64_t mst_dataset_skipped(const mst_dataset *self)
{
    return mst_bad_rows_count(&self->bad);
}

void mst_dataset_warn_skipped(const mst_dataset *self)
{
    char number[32];
    uint64_t n = self != NULL ? mst_dataset_skipped(self) : 0;
    if (n > 0 && !self->bad.stated)
        mst_warn("%s: %s malformed row%s left out (--skip-bad-rows)", self->name,
                 mst_figure_grouped(n, number), n == 1 ? " was" : "s were");
}

/* ---- all chunks in order ---- */

static mst_status dataset_claim(void *arg, uint64_t number, mst_raw_block **block, bool *more)
{
    mst_dataset *d = arg;
    (void)number;
    TRY(d->ops->read(d, block));
    *more = *block != NULL;
    return MST_OK;
}

static mst_status dataset_make(void *arg, uint64_t number, mst_raw_block *block, mst_chunk_builder *builder,
                               mst_chunk **out)
{
    mst_dataset *d = arg;
    return d->random ? d->ops->load(d, (uint32_t)number, out) : d->ops->parse(d, block, builder, out);
}

mst_status mst_dataset_each(mst_dataset *self, unsigned n_threads, mst_chunk_fn *fn, void *arg)
{
    mst_chunk_maker maker = {.claim = self->random ? NULL : dataset_claim, .make = dataset_make, .arg = self};
    if (!self->random)
        TRY(self->ops->rewind(self));
    TRY(mst_chunks_each(&maker, self->name, n_threads, self->random ? self->n_chunks : UINT64_MAX, fn, arg));
    return mst_dataset_intact(self);
}

/* ---- scanning ---- */

typedef struct scan {
    mst_data_info info;
    bool any;
} scan;

static mst_status scan_chunk(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    scan *s = arg;
    mst_data_info *info = &s->info;
    (void)first_row;
    for (uint32_t i = 0; i < chunk->n_rows; i++) {
        mst_row row;
        mst_chunk_row(chunk, i, &row);
        info->n_positive += row.label > 0.0f;
        bool small = fabsf(row.label) < 2147483648.0f; /* larger floats are all whole numbers */
        info->labels_integral &= !small || row.label == (float)(int32_t)row.label;
    }
    if (!s->any || chunk->min_label < info->min_label)
        info->min_label = chunk->min_label;
    if (!s->any || chunk->max_label > info->max_label)
        info->max_label = chunk->max_label;
    if (chunk->n_entries > 0 && (uint64_t)chunk->max_key + 1 > info->n_features)
        info->n_features = (uint64_t)chunk->max_key + 1;
    if (chunk->n_dense > info->n_dense)
        info->n_dense = chunk->n_dense;
    if (chunk->fielded && chunk->max_field >= info->n_fields)
        info->n_fields = chunk->max_field + 1;
    info->n_rows += chunk->n_rows;
    info->n_entries += chunk->n_entries;
    s->any = true;
    return MST_OK;
}

mst_status mst_dataset_scan(mst_dataset *self, unsigned n_threads)
{
    if (self->info.scanned)
        return MST_OK;
    const char *once = mst_stream_reads_once(self);
    if (once != NULL)
        return mst_fail(
            MST_EINPUT,
            "%s can be read only once: give --features N (softmax: and --classes N), or name a file", once);
    scan s = {.info = {.labels_integral = true,
                       .index_base = self->info.index_base,
                       .bytes = self->info.bytes,
                       .n_fields = self->info.n_fields,
                       .channels = self->info.channels,
                       .height = self->info.height,
                       .width = self->info.width}};
    TRY(mst_dataset_each(self, n_threads, scan_chunk, &s));
    if (!self->random)
        TRY(self->ops->rewind(self));
    if (self->info.n_features > 0) /* keys are hashed into that many */
        s.info.n_features = self->info.n_features;
    s.info.scanned = true;
    self->info = s.info;
    return MST_OK;
}
