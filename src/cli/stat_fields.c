/* Contract in stat_fields.h.
 *
 * Distinct keys of a field are counted exactly up to EXACT of them and estimated beyond by HyperLogLog, with
 * a standard error of 0.8% (P. Flajolet et al., "HyperLogLog: the analysis of a near-optimal cardinality
 * estimation algorithm", AofA 2007). */
#include "cli/stat_fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "data/origin.h"

#define EXACT     4096 /* keys */
#define SLOTS     (2 * EXACT)
#define REGISTERS 16384 /* a power of two */

typedef struct field_stat {
    uint64_t rows;    /* that have a number, or a key of the field which does not stand for a missing value */
    uint64_t entries; /* keys, or numbers of the dense prefix */
    uint64_t last;    /* the last row that has one, counted from 1 */
    bool dense;       /* numbers: keys are not counted */
    bool has_missing;
    uint32_t missing; /* the key that stands for a missing value, with has_missing */
    uint32_t n_exact;
    uint32_t *exact; /* SLOTS keys + 1; 0: free */
    uint8_t *registers;
} field_stat;

struct mst_stat_fields {
    const json_t *origin;
    uint64_t n_rows;
    uint32_t n_fields;
    bool marked, too_many;
    field_stat fields[MST_STAT_FIELDS];
};

mst_status mst_stat_fields_new(const json_t *origin, bool marked, mst_stat_fields **out)
{
    mst_stat_fields *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->origin = origin;
    self->marked = marked;
    *out = self;
    return MST_OK;
}

void mst_stat_fields_destroy(mst_stat_fields *self)
{
    for (uint32_t i = 0; self != NULL && i < self->n_fields; i++) {
        mst_free(self->fields[i].exact);
        mst_free(self->fields[i].registers);
    }
    mst_free(self);
}

/* The field, made when it is new; NULL when there are too many, or memory is short. */
static field_stat *stat_field(mst_stat_fields *self, uint32_t number)
{
    if (number >= MST_STAT_FIELDS) {
        self->too_many = true;
        return NULL;
    }
    for (; self->n_fields <= number; self->n_fields++) {
        field_stat *f = &self->fields[self->n_fields];
        f->exact = mst_calloc(SLOTS, sizeof *f->exact);
        f->registers = mst_calloc(REGISTERS, 1);
        if (f->exact == NULL || f->registers == NULL) {
            mst_free(f->exact);
            mst_free(f->registers);
            return NULL;
        }
        f->has_missing = mst_origin_missing_key(self->origin, self->n_fields, &f->missing);
    }
    return &self->fields[number];
}

static void stat_count_key(field_stat *f, uint32_t key)
{
    uint64_t hash = ((uint64_t)key + 1) * 0x9e3779b97f4a7c15u;
    hash = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9u;
    hash ^= hash >> 32;
    uint32_t at = (uint32_t)hash & (REGISTERS - 1);
    uint8_t rank = (uint8_t)(__builtin_ctzll(hash >> 14 | 1ull << 50) + 1);
    f->registers[at] = rank > f->registers[at] ? rank : f->registers[at];
    if (f->n_exact > EXACT)
        return;
    uint32_t slot = (uint32_t)(hash >> 40) & (SLOTS - 1);
    while (f->exact[slot] != 0 && f->exact[slot] != key + 1)
        slot = (slot + 1) & (SLOTS - 1);
    if (f->exact[slot] == 0 && f->n_exact++ < EXACT)
        f->exact[slot] = key + 1;
}

static uint64_t stat_distinct(const field_stat *f)
{
    if (f->n_exact <= EXACT)
        return f->n_exact;
    double sum = 0, m = REGISTERS;
    uint32_t empty = 0;
    for (uint32_t i = 0; i < REGISTERS; i++) {
        sum += ldexp(1.0, -f->registers[i]);
        empty += f->registers[i] == 0;
    }
    double estimate = 0.7213 / (1 + 1.079 / m) * m * m / sum;
    if (estimate < 2.5 * m && empty > 0)
        estimate = m * log(m / empty);
    return (uint64_t)(estimate + 0.5);
}

mst_status mst_stat_fields_add(mst_stat_fields *self, const mst_row *row)
{
    self->n_rows++;
    for (uint32_t j = 0; j < row->n_dense + row->n_keys && !self->too_many; j++) {
        bool dense = j < row->n_dense;
        field_stat *f = stat_field(self, dense ? j : mst_row_field(row, j - row->n_dense));
        if (f == NULL)
            return self->too_many ? MST_OK : mst_fail_memory();
        uint32_t key = dense ? 0 : row->keys[j - row->n_dense];
        bool present = dense ? !isnan(mst_row_dense(row, j)) : !f->has_missing || key != f->missing;
        f->entries++;
        f->dense |= dense;
        f->rows += present && f->last != self->n_rows;
        f->last = present ? self->n_rows : f->last;
        if (!dense)
            stat_count_key(f, key);
    }
    return MST_OK;
}

mst_status mst_stat_fields_table(const mst_stat_fields *self, mst_table **out)
{
    static const mst_column columns[] = {{.key = "field", .right = true},
                                         {.key = "name"},
                                         {.key = "distinct", .right = true},
                                         {.key = "missing", .right = true},
                                         {.key = "entries_per_row", .right = true}};
    mst_table *t;
    *out = NULL;
    if (self->n_fields == 0 || self->too_many)
        return MST_OK;
    TRY(mst_table_new(columns, sizeof columns / sizeof *columns, &t));
    for (uint32_t i = 0; i < self->n_fields; i++) {
        const field_stat *f = &self->fields[i];
        char name[64];
        mst_origin_field_name(self->origin, i, name, sizeof name);
        mst_table_count(t, i);
        mst_table_text(t, name[0] != '\0' ? name : NULL);
        bool numbers = f->dense && f->n_exact == 0;
        if (numbers)
            mst_table_text(t, NULL);
        else
            mst_table_count(t, stat_distinct(f));
        if (numbers && !self->marked)
            mst_table_value(t, json_null(), "-");
        else
            mst_table_real(t, 1.0 - (double)f->rows / (double)self->n_rows, 4);
        mst_table_real(t, (double)f->entries / (double)self->n_rows, 2);
    }
    *out = t;
    return MST_OK;
}
