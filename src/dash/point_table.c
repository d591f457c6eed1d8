/* Points of curves (point_table.h).
 *
 * Invariants
 * 1. n <= MST_TABLE_POINTS, whatever the file holds.
 * 2. A point changes only when the table is reset or joined; then sent is 0. */
#include "dash/point_table.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"

typedef enum column_use {
    TAKE,
    SINCE, /* less begin */
    RATE,  /* over interval_s */
    SHARE, /* over interval_s times threads */
} column_use;

typedef struct table_column {
    const char *name, *column, *second; /* second: added to it */
    column_use use;
} table_column;

static const table_column train_columns[] = {
    {"t", "train_seconds", NULL, TAKE},       {"step", "step", NULL, TAKE}, {"rows", "rows", NULL, TAKE},
    {"train_loss", "train_loss", NULL, TAKE}, {"lr", "lr", NULL, TAKE},     {NULL, NULL, NULL, TAKE}};

static const table_column evaluated_columns[] = {{"t", "train_seconds", NULL, TAKE},
                                                 {"step", "step", NULL, TAKE},
                                                 {"rows", "rows", NULL, TAKE},
                                                 {"loss", "loss", NULL, TAKE},
                                                 {"accuracy", "accuracy", NULL, TAKE},
                                                 {"auc", "auc", NULL, TAKE},
                                                 {"top5", "top5", NULL, TAKE},
                                                 {"grouped_auc", "grouped_auc", NULL, TAKE},
                                                 {"calibration", "calibration", NULL, TAKE},
                                                 {"normalised_entropy", "normalised_entropy", NULL, TAKE},
                                                 {NULL, NULL, NULL, TAKE}};

static const table_column resources_columns[] = {{"t", "time", NULL, SINCE},
                                                 {"cpu", "proc_cpu_user_s", "proc_cpu_system_s", RATE},
                                                 {"memory", "proc_rss", NULL, TAKE},
                                                 {"disk_read", "proc_read", NULL, RATE},
                                                 {"disk_write", "proc_write", NULL, RATE},
                                                 {"host_cpu", "cpu_user_s", "cpu_system_s", RATE},
                                                 {"host_memory", "mem_used", NULL, TAKE},
                                                 {"host_net_in", "net_in", NULL, RATE},
                                                 {"host_net_out", "net_out", NULL, RATE},
                                                 {NULL, NULL, NULL, TAKE}};

static const table_column spans_columns[] = {{"t", "time", NULL, SINCE},
                                             {"rows", "rows", NULL, RATE},
                                             {"bytes_in", "bytes_in", NULL, RATE},
                                             {"bytes_out", "bytes_out", NULL, RATE},
                                             {"read", "read_s", NULL, SHARE},
                                             {"compute", "compute_s", NULL, SHARE},
                                             {"pull_wait", "pull_wait_s", NULL, SHARE},
                                             {"barrier_wait", "barrier_wait_s", NULL, SHARE},
                                             {"apply", "apply_s", "serve_s", SHARE},
                                             {"idle", "idle_s", NULL, SHARE},
                                             {"staleness", "staleness_mean", NULL, TAKE},
                                             {NULL, NULL, NULL, TAKE}};

static const table_column *const kinds[] = {
    [MST_TABLE_TRAIN] = train_columns,
    [MST_TABLE_EVALUATED] = evaluated_columns,
    [MST_TABLE_RESOURCES] = resources_columns,
    [MST_TABLE_SPANS] = spans_columns,
};

static size_t point_table_n_columns(const mst_point_table *t)
{
    size_t n = 0;
    while (kinds[t->kind][n].name != NULL)
        n++;
    return n;
}

mst_status mst_point_table_init(mst_point_table *self, mst_table_kind kind, const char *name, const char *set,
                                const mst_csv *csv, double begin)
{
    *self = (mst_point_table){.kind = kind, .set = set, .csv = csv, .begin = begin, .stride = 1};
    self->name = mst_strdup(name);
    if (self->name == NULL)
        return mst_fail_memory();
    return MST_OK;
}

void mst_point_table_fini(mst_point_table *self)
{
    mst_free(self->name);
    mst_free(self->points);
    *self = (mst_point_table){0};
}

/* ---- taking lines ---- */

static void point_table_empty_bucket(mst_point_table *t)
{
    memset(t->sums, 0, sizeof t->sums);
    memset(t->counts, 0, sizeof t->counts);
    t->in_bucket = 0;
}

static void point_table_start_over(mst_point_table *t)
{
    t->n = t->sent = t->rows_read = 0;
    t->stride = 1;
    point_table_empty_bucket(t);
}

static void point_table_join_neighbours(mst_point_table *t)
{
    size_t c = point_table_n_columns(t), half = t->n / 2;
    for (size_t i = 0; i < half; i++)
        for (size_t k = 0; k < c; k++) {
            double a = t->points[2 * i * c + k], b = t->points[(2 * i + 1) * c + k];
            t->points[i * c + k] = isnan(a) ? b : isnan(b) ? a : (a + b) / 2;
        }
    t->n = half;
    t->stride *= 2;
    t->sent = 0;
}

static mst_status point_table_end_bucket(mst_point_table *t)
{
    size_t c = point_table_n_columns(t);
    if (t->n == MST_TABLE_POINTS)
        point_table_join_neighbours(
            t); /* this bucket has half as many lines as those; for one point that is fine */
    if (!mst_grow(&t->points, &t->capacity, (t->n + 1) * c, sizeof *t->points))
        return mst_fail_memory();
    for (size_t k = 0; k < c; k++)
        t->points[t->n * c + k] = t->counts[k] > 0 ? t->sums[k] / t->counts[k] : NAN;
    t->n++;
    point_table_empty_bucket(t);
    return MST_OK;
}

typedef struct found_columns {
    size_t first[MST_TABLE_COLUMNS], second[MST_TABLE_COLUMNS], interval, threads, set, must;
} found_columns;

static void point_table_find_columns(const mst_point_table *t, found_columns *f)
{
    const table_column *columns = kinds[t->kind];
    for (size_t k = 0; columns[k].name != NULL; k++) {
        f->first[k] = mst_csv_column(t->csv, columns[k].column);
        f->second[k] = columns[k].second != NULL ? mst_csv_column(t->csv, columns[k].second) : MST_CSV_NONE;
    }
    f->interval = mst_csv_column(t->csv, "interval_s");
    f->threads = mst_csv_column(t->csv, "threads");
    f->set = mst_csv_column(t->csv, "set");
    f->must = t->kind == MST_TABLE_TRAIN ? mst_csv_column(t->csv, "train_loss") : f->first[0];
}

/* Whether the line is one of the table's. */
static bool point_table_fits(const mst_point_table *t, const found_columns *f, size_t row)
{
    if (isnan(mst_csv_value(t->csv, row, f->first[0])) || isnan(mst_csv_value(t->csv, row, f->must)))
        return false;
    if (t->kind == MST_TABLE_EVALUATED)
        return strcmp(mst_csv_text(t->csv, row, f->set), t->set) == 0;
    return t->kind == MST_TABLE_TRAIN || mst_csv_value(t->csv, row, f->interval) >= 0.2;
}

static double point_table_value_of(const mst_point_table *t, const found_columns *f, size_t row, size_t k)
{
    double value = mst_csv_value(t->csv, row, f->first[k]), more = mst_csv_value(t->csv, row, f->second[k]);
    double interval = mst_csv_value(t->csv, row, f->interval),
           threads = mst_csv_value(t->csv, row, f->threads);
    value = isnan(more) ? value : value + more;
    switch (kinds[t->kind][k].use) {
    case SINCE:
        return value - t->begin;
    case RATE:
        return value / interval;
    case SHARE:
        return value / (interval * (threads > 0 ? threads : 1));
    default:
        return value;
    }
}

mst_status mst_point_table_update(mst_point_table *self)
{
    const mst_csv *csv = self->csv;
    found_columns f = {0};
    if (csv->n_rows < self->rows_read || csv->inode != self->inode)
        point_table_start_over(self);
    self->inode = csv->inode;
    if (csv->n_rows == self->rows_read)
        return MST_OK;
    point_table_find_columns(self, &f);
    for (; self->rows_read < csv->n_rows; self->rows_read++) {
        if (!point_table_fits(self, &f, self->rows_read))
            continue;
        for (size_t k = 0; kinds[self->kind][k].name != NULL; k++) {
            double value = point_table_value_of(self, &f, self->rows_read, k);
            if (!isfinite(value))
                continue;
            self->sums[k] += value;
            self->counts[k]++;
        }
        if (++self->in_bucket >= self->stride)
            TRY(point_table_end_bucket(self));
    }
    return MST_OK;
}

/* ---- JSON ---- */

static void point_table_add_number(mst_string *out, double value)
{
    if (!isfinite(value))
        mst_string_add(out, "null");
    else if (fabs(value) < 1e15 && value == floor(value))
        mst_string_format(out, "%.0f", value);
    else
        mst_string_format(out, "%.6g", value);
}

static void point_table_add_quoted(mst_string *out, const char *text)
{
    mst_string_add(out, "\"");
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\')
            mst_string_format(out, "\\u%04x", c);
        else
            mst_string_addn(out, text, 1);
    }
    mst_string_add(out, "\"");
}

void mst_point_table_json(const mst_point_table *self, size_t from, mst_string *out)
{
    size_t c = point_table_n_columns(self);
    mst_string_add(out, "{\"table\":");
    point_table_add_quoted(out, self->name);
    mst_string_format(out, ",\"from\":%zu,\"columns\":[", from);
    for (size_t k = 0; k < c; k++)
        mst_string_format(out, "%s\"%s\"", k > 0 ? "," : "", kinds[self->kind][k].name);
    mst_string_add(out, "],\"data\":[");
    for (size_t k = 0; k < c; k++) {
        mst_string_add(out, k > 0 ? ",[" : "[");
        for (size_t i = from; i < self->n; i++) {
            mst_string_add(out, i > from ? "," : "");
            point_table_add_number(out, self->points[i * c + k]);
        }
        mst_string_add(out, "]");
    }
    mst_string_add(out, "]}");
}
