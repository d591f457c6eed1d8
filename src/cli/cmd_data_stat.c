/* `muster data stat`: statistics of files from one pass over their rows, which also works for standard input.
 *
 * Labels are counted one by one while there are few distinct ones. When there are more, the counts move into
 * a histogram of equal bins, whose width doubles whenever a label is outside. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/signals.h"
#include "cli/cmd_data.h"
#include "cli/stat_fields.h"
#include "cli/table.h"
#include "data/csv_table.h"
#include "data/dataset.h"
#include "data/name_list.h"
#include "data/origin.h"

#define DISTINCT_MAX 64
#define BINS         16
#define SAMPLE_ROWS  1000

typedef struct label_counts {
    size_t n_distinct; /* 0 and binned: too many distinct labels */
    float labels[DISTINCT_MAX];
    uint64_t counts[DISTINCT_MAX];
    bool binned;
    double low, width; /* bin i is [low + i*width, low + (i+1)*width) */
    uint64_t bins[BINS];
    double sum;
    float min, max;
} label_counts;

#define NAMES_SHOWN 100 /* bytes of the names of features */

typedef struct stat_walk {
    const char *feature_names; /* --feature-names; or NULL */
    mst_dataset *dataset;
    mst_bar bar;
    uint64_t rows, entries, positive, features, bytes;
    uint32_t n_dense, min_entries, max_entries;
    bool any_values, any_weights, dense_bytes;
    label_counts labels;
    mst_stat_fields *fields;
    uint32_t n_fields;
    uint32_t *keys; /* of the first SAMPLE_ROWS rows, without dense ones */
    size_t n_keys, key_capacity;
    uint32_t sample_dense;
} stat_walk;

/* ---- labels ---- */

/* Doubles the bins, to the left or to the right, until one of them contains x. */
static void stat_widen(label_counts *l, double x)
{
    while (x < l->low || x >= l->low + BINS * l->width) {
        bool left = x < l->low;
        uint64_t merged[BINS] = {0};
        for (int i = 0; i < BINS; i++)
            merged[(left ? BINS / 2 : 0) + i / 2] += l->bins[i];
        memcpy(l->bins, merged, sizeof merged);
        l->low -= left ? BINS * l->width : 0;
        l->width *= 2;
    }
}

static void stat_bin_add(label_counts *l, double x, uint64_t n)
{
    stat_widen(l, x);
    size_t i = (size_t)((x - l->low) / l->width);
    l->bins[i < BINS ? i : BINS - 1] += n;
}

/* Moves the individual counts into bins. */
static void stat_start_bins(label_counts *l)
{
    l->binned = true;
    l->low = floor((double)l->min);
    l->width = exp2(ceil(log2(((double)l->max - l->low) / BINS + 1e-30)));
    for (size_t i = 0; i < l->n_distinct; i++)
        stat_bin_add(l, l->labels[i], l->counts[i]);
    l->n_distinct = 0;
}

static void stat_label_add(label_counts *l, float label, bool first)
{
    l->min = first || label < l->min ? label : l->min;
    l->max = first || label > l->max ? label : l->max;
    l->sum += label;
    if (l->binned) {
        stat_bin_add(l, label, 1);
        return;
    }
    size_t i = 0;
    while (i < l->n_distinct && l->labels[i] != label)
        i++;
    if (i == DISTINCT_MAX) {
        stat_start_bins(l);
        stat_bin_add(l, label, 1);
        return;
    }
    l->labels[i] = label;
    l->n_distinct += i == l->n_distinct;
    l->counts[i]++;
}

/* ---- rows ---- */

static mst_status stat_sample_row(stat_walk *w, const mst_row *row)
{
    if (!mst_grow(&w->keys, &w->key_capacity, w->n_keys + row->n_keys, sizeof *w->keys))
        return mst_fail_memory();
    if (row->n_keys > 0)
        memcpy(w->keys + w->n_keys, row->keys, row->n_keys * sizeof *w->keys);
    w->n_keys += row->n_keys;
    w->sample_dense = row->n_dense > w->sample_dense ? row->n_dense : w->sample_dense;
    return MST_OK;
}

static mst_status stat_take(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    stat_walk *w = arg;
    (void)first_row;
    TRY(mst_signals_check("not all rows were read"));
    for (uint32_t i = 0; i < chunk->n_rows; i++) {
        mst_row row;
        mst_chunk_row(chunk, i, &row);
        bool first = w->rows == 0;
        uint32_t entries = row.n_dense + row.n_keys;
        stat_label_add(&w->labels, row.label, first);
        w->positive += row.label > 0;
        w->min_entries = first || entries < w->min_entries ? entries : w->min_entries;
        w->max_entries = entries > w->max_entries ? entries : w->max_entries;
        if (w->rows < SAMPLE_ROWS)
            TRY(stat_sample_row(w, &row));
        if (chunk->fielded)
            TRY(mst_stat_fields_add(w->fields, &row));
        w->rows++;
    }
    w->entries += chunk->n_entries;
    if (chunk->fielded && chunk->max_field >= w->n_fields)
        w->n_fields = chunk->max_field + 1;
    if (chunk->n_entries > 0 && (uint64_t)chunk->max_key + 1 > w->features)
        w->features = (uint64_t)chunk->max_key + 1;
    w->n_dense = chunk->n_dense > w->n_dense ? chunk->n_dense : w->n_dense;
    w->any_values |= chunk->has_values;
    w->any_weights |= chunk->has_weights;
    w->dense_bytes |= chunk->dense_bytes;
    w->bytes += chunk->bytes_read;
    mst_bar_update(&w->bar, w->dataset->random ? w->rows : w->bytes, w->rows);
    return MST_OK;
}

static int stat_compare_keys(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Distinct features in the first rows: the number that a batch of that size touches. */
static uint64_t stat_distinct_keys(stat_walk *w)
{
    uint64_t n = w->sample_dense;
    if (w->n_keys > 0)
        qsort(w->keys, w->n_keys, sizeof *w->keys, stat_compare_keys);
    for (size_t i = 0; i < w->n_keys; i++)
        n += w->keys[i] >= w->sample_dense && (i == 0 || w->keys[i] != w->keys[i - 1]);
    return n;
}

/* ---- showing ---- */

static const mst_column label_columns[] = {
    {.key = "label", .right = true}, {.key = "rows", .right = true}, {.key = "share", .right = true}};
static const mst_column bin_columns[] = {{.key = "from", .right = true},
                                         {.key = "to", .right = true},
                                         {.key = "rows", .right = true},
                                         {.key = "share", .right = true}};

static json_t *stat_json_number(double x)
{
    return x == floor(x) && fabs(x) < 0x1p53 ? json_integer((json_int_t)x) : json_real(x);
}

static void stat_number_cell(mst_table *t, double x)
{
    char text[32];
    snprintf(text, sizeof text, "%g", x);
    mst_table_value(t, stat_json_number(x), text);
}

/* How many names the file has, and the first ones. A file that cannot be read has failed before. */
static void stat_feature_names(mst_table *t, const char *path)
{
    mst_name_list *names = NULL;
    mst_string text = {0};
    if (path == NULL || mst_name_list_load(path, &names) != MST_OK)
        return;
    uint32_t n = mst_name_list_size(names);
    mst_string_format(&text, "%u: ", n);
    for (uint32_t i = 0; i < n && text.size < NAMES_SHOWN; i++) {
        const char *name = mst_name_list_get(names, i);
        mst_string_format(&text, "%s%s", i > 0 ? ", " : "", name != NULL ? name : "");
        if (i + 1 < n && text.size >= NAMES_SHOWN)
            mst_string_add(&text, ", ...");
    }
    mst_table_text(mst_fact(t, "feature names"), text.text);
    mst_string_fini(&text);
    mst_name_list_destroy(names);
}

static void stat_fill_facts(mst_table *t, stat_walk *w, double seconds)
{
    const mst_dataset *d = w->dataset;
    double rows = w->rows > 0 ? (double)w->rows : 1;
    mst_table_text(mst_fact(t, "file"), d->name);
    mst_table_text(mst_fact(t, "format"), d->kind->name);
    mst_table_bytes(mst_fact(t, "bytes"), d->info.bytes);
    mst_table_flag(mst_fact(t, "random access"), d->random);
    mst_table_count(mst_fact(t, "rows"), w->rows);
    if (mst_dataset_skipped(d) > 0)
        mst_table_count(mst_fact(t, "skipped rows"), mst_dataset_skipped(d));
    mst_table_count(mst_fact(t, "features"),
                    d->info.n_features > w->features ? d->info.n_features : w->features);
    stat_feature_names(t, w->feature_names);
    mst_table_real(mst_fact(t, "entries per row"), (double)w->entries / rows, 2);
    mst_table_count(mst_fact(t, "entries per row min"), w->min_entries);
    mst_table_count(mst_fact(t, "entries per row max"), w->max_entries);
    mst_table_count(mst_fact(t, "dense prefix"), w->n_dense);
    mst_table_flag(mst_fact(t, "dense as bytes"), w->dense_bytes);
    if (d->info.channels != 0) {
        char sides[48];
        snprintf(sides, sizeof sides, "%u x %u x %u", d->info.channels, d->info.height, d->info.width);
        mst_table_text(mst_fact(t, "images"), sides);
    }
    mst_table_flag(mst_fact(t, "sparse values all one"), !w->any_values);
    mst_table_flag(mst_fact(t, "row weights"), w->any_weights);
    mst_table_count(mst_fact(t, "fields"), d->info.n_fields > w->n_fields ? d->info.n_fields : w->n_fields);
    mst_table_count(mst_fact(t, "distinct features in 1000 rows"), stat_distinct_keys(w));
    if (mst_dataset_has(d, MST_DATA_INDEX_BASE))
        mst_table_count(mst_fact(t, "index base"), d->info.index_base);
    stat_number_cell(mst_fact(t, "label min"), w->labels.min);
    stat_number_cell(mst_fact(t, "label max"), w->labels.max);
    mst_table_real(mst_fact(t, "label mean"), w->labels.sum / rows, 4);
    mst_table_real(mst_fact(t, "share of positives"), (double)w->positive / rows, 4);
    mst_table_count(mst_fact(t, "rows read per second"),
                    (uint64_t)((double)w->rows / (seconds > 1e-9 ? seconds : 1e-9)));
}

static void stat_fill_distinct(mst_table *t, const label_counts *l, double rows)
{
    size_t order[DISTINCT_MAX] = {0}; /* insertion sort by label */
    for (size_t k = 1; k < l->n_distinct; k++) {
        size_t at = k;
        for (; at > 0 && l->labels[order[at - 1]] > l->labels[k]; at--)
            order[at] = order[at - 1];
        order[at] = k;
    }
    for (size_t k = 0; k < l->n_distinct; k++) {
        stat_number_cell(t, l->labels[order[k]]);
        mst_table_count(t, l->counts[order[k]]);
        mst_table_real(t, (double)l->counts[order[k]] / rows, 4);
    }
}

static void stat_fill_bins(mst_table *t, const label_counts *l, double rows)
{
    int last = BINS - 1;
    while (last > 0 && l->bins[last] == 0)
        last--;
    for (int i = 0; i <= last; i++) {
        double low = l->low + i * l->width;
        stat_number_cell(t, low);
        stat_number_cell(t, low + l->width);
        mst_table_count(t, l->bins[i]);
        mst_table_real(t, (double)l->bins[i] / rows, 4);
    }
}

/* The columns of a table of text, from the list of its origin; *out stays NULL without one. */
static mst_status stat_columns(const char *list, mst_table **out)
{
    static const mst_column columns[] = {{.key = "name"}, {.key = "kind"}};
    mst_csv_list entries = {0};
    mst_status st;
    if (list == NULL)
        return MST_OK;
    TRY_OUT(st, mst_csv_list_read(&entries, list));
    TRY_OUT(st, mst_table_new(columns, 2, out));
    for (uint32_t i = 0; i < entries.n; i++) {
        mst_string kind = {0};
        mst_csv_kind_text(&entries.items[i], &kind);
        mst_table_text(*out, entries.items[i].name);
        mst_table_text(*out, kind.text);
        mst_string_fini(&kind);
    }
out:
    mst_csv_list_fini(&entries);
    return st;
}

/* Prints the tables, or appends them to `all` as one object. */
static mst_status stat_show(stat_walk *w, double seconds, json_t *all)
{
    const label_counts *l = &w->labels;
    mst_table *facts = NULL, *labels = NULL, *fields = NULL, *columns = NULL;
    const json_t *list = json_object_get(w->dataset->origin, MST_ORIGIN_CSV);
    mst_status st;
    TRY_OUT(st, mst_facts_new(false, &facts));
    TRY_OUT(st,
            l->binned ? mst_table_new(bin_columns, 4, &labels) : mst_table_new(label_columns, 3, &labels));
    TRY_OUT(st, mst_stat_fields_table(w->fields, &fields));
    TRY_OUT(st, stat_columns(json_string_value(list), &columns));
    stat_fill_facts(facts, w, seconds);
    if (l->binned)
        stat_fill_bins(labels, l, (double)w->rows);
    else
        stat_fill_distinct(labels, l, w->rows > 0 ? (double)w->rows : 1);
    if (all == NULL) {
        TRY_OUT(st, mst_table_print(facts, NULL, false));
        if (columns != NULL)
            TRY_OUT(st, mst_table_print(columns, "columns", true));
        TRY_OUT(st, mst_table_print(labels, "labels", true));
        if (fields != NULL)
            st = mst_table_print(fields, "fields", true);
    } else {
        json_t *object = mst_table_json_facts(facts);
        if (json_object_set_new(object, "labels", mst_table_json(labels)) != 0 ||
            (list != NULL && json_object_set(object, "csv_columns", (json_t *)list) != 0) ||
            (fields != NULL && json_object_set_new(object, "field_table", mst_table_json(fields)) != 0) ||
            json_array_append(all, object) != 0)
            st = mst_fail_memory();
        json_decref(object);
    }
out:
    mst_table_destroy(facts);
    mst_table_destroy(labels);
    mst_table_destroy(fields);
    mst_table_destroy(columns);
    return st;
}

static mst_status stat_describe(const char *pattern, const mst_data_options *data, unsigned n_threads,
                                json_t *all)
{
    mst_text_list patterns = {.items = &(char *){(char *)pattern}, .n = 1};
    stat_walk w = {.feature_names = data->feature_names};
    mst_status st;
    TRY_OUT(st, mst_dataset_open(&patterns, data, &w.dataset));
    mst_dataset_warn(w.dataset);
    TRY_OUT(st, mst_stat_fields_new(w.dataset->origin, w.dataset->format != NULL, &w.fields));
    uint64_t start = mst_now_ns();
    mst_bar_start(&w.bar, "reading", "rows",
                  w.dataset->random ? w.dataset->info.n_rows : w.dataset->info.bytes);
    st = mst_dataset_each(w.dataset, n_threads, stat_take, &w);
    mst_bar_end(&w.bar);
    if (st == MST_OK)
        mst_dataset_warn_skipped(w.dataset);
    if (st == MST_OK)
        st = stat_show(&w, mst_seconds_since(start), all);
out:
    mst_stat_fields_destroy(w.fields);
    mst_dataset_destroy(w.dataset);
    mst_free(w.keys);
    return st;
}

typedef struct stat_options {
    int64_t threads;
    bool json;
    mst_data_options data;
} stat_options;

static const mst_option stat_table[] = {
    {.name = "threads",
     .type = MST_OPTION_INT,
     .offset = offsetof(stat_options, threads),
     .fallback = "0",
     .min = 0,
     .max = 1024,
     .help = "Threads that parse; 0: one per core."},
    {.name = "json",
     .type = MST_OPTION_FLAG,
     .offset = offsetof(stat_options, json),
     .help = "Print a JSON array with one object per FILE."},
    {.name = NULL},
};
static const mst_command_group stat_groups[] = {
    {"Options", stat_table, 0},
    {"Data", mst_data_option_table, offsetof(stat_options, data)},
    {.table = NULL},
};

static mst_status stat_run(mst_call *call)
{
    stat_options *o = call->options;
    const mst_text_list *paths = &call->words;
    json_t *all = NULL;
    mst_status st = MST_OK;
    if (paths->n == 0)
        return mst_fail(MST_EUSAGE, "no files given; \"-\" is standard input");
    mst_data_options_note(&o->data, call->groups, call->n_groups);
    o->data.mark_missing = true;
    if (o->json && (all = json_array()) == NULL)
        return mst_fail_memory();
    mst_signals_install();
    for (size_t i = 0; i < paths->n; i++) {
        if (i > 0 && all == NULL)
            printf("\n");
        TRY_OUT(st, stat_describe(paths->items[i], &o->data, mst_cli_threads(o->threads), all));
    }
    if (all != NULL)
        return mst_cli_print_json(all);
out:
    json_decref(all);
    return st;
}

const mst_command mst_cmd_data_stat = {
    .name = "stat",
    .summary = "describe data: rows, features, fields, labels, sizes",
    .run = stat_run,
    .usage = "data stat FILE... [--json] [options]",
    .details = "FILE may be a pattern or a folder, which is described as one data set.\n",
    .groups = stat_groups,
    .options_size = sizeof(stat_options),
    .examples = "muster data stat train.svm\n",
};
