/* Points of curves from a growing CSV file of a run, in bounded memory: a table of at most MST_TABLE_POINTS
 * points, each the mean of `stride` lines.
 *
 * When a table is full, neighbours are joined and the stride doubles; listeners then receive the whole table
 * again. One thread; the CSV table must outlive this one. */
#ifndef MST_DASH_POINT_TABLE_H
#define MST_DASH_POINT_TABLE_H

#include "base/strings.h"
#include "report/csv.h"

#define MST_TABLE_POINTS  1024
#define MST_TABLE_COLUMNS 16

typedef enum mst_table_kind {
    MST_TABLE_TRAIN,     /* metrics.csv: every line */
    MST_TABLE_EVALUATED, /* metrics.csv: evaluations of one set */
    MST_TABLE_RESOURCES, /* resources.csv of a process */
    MST_TABLE_SPANS,     /* spans.csv of a process */
} mst_table_kind;

typedef struct mst_point_table {
    mst_table_kind kind;
    char *name;
    const char *set; /* of evaluations; constant text */
    const mst_csv *csv;
    double begin; /* seconds since 1970 that times are counted from */
    size_t stride, rows_read, in_bucket;
    double sums[MST_TABLE_COLUMNS];
    unsigned counts[MST_TABLE_COLUMNS];
    double *points; /* n x columns */
    size_t n, capacity;
    size_t sent; /* points that listeners have; 0 after a reset or a join */
    ino_t inode;
} mst_point_table;

/* Takes a copy of the name. */
mst_status mst_point_table_init(mst_point_table *self, mst_table_kind kind, const char *name, const char *set,
                                const mst_csv *csv, double begin);
void mst_point_table_fini(mst_point_table *self);

/* Takes the new lines of the CSV table. MST_ENOMEM only. */
mst_status mst_point_table_update(mst_point_table *self);

/* {"table": NAME, "from": FROM, "columns": [...], "data": [[...], ...]}, a list for each column: the points
 * from `from` on, which replace those that a listener has from there on. */
void mst_point_table_json(const mst_point_table *self, size_t from, mst_string *out);

#endif
