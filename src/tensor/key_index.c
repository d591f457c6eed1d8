/* Positions of keys in a large fixed list; contract in key_index.h.
 *
 * A cell covers 32 keys: which of them are in the list, and how many keys of the list are below them. A key's
 * position is the count of its cell plus the bits below its own, so that translating a key costs one access
 * to memory, which is prefetched some rows ahead. */
#include <string.h>

#include "base/alloc.h"
#include "tensor/key_index.h"

#define ROWS_AHEAD 8
#define CELL_KEYS  32

typedef struct key_cell {
    uint32_t bits;
    uint32_t below;
} key_cell;

struct mst_key_index {
    uint64_t n_cells;
    key_cell *cells; /* untouched pages cost nothing */
};

mst_status mst_key_index_new(uint64_t n_keys, mst_key_index **out)
{
    mst_key_index *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->n_cells = n_keys / CELL_KEYS + 1;
    self->cells = mst_pages_reserve((size_t)self->n_cells * sizeof *self->cells, true);
    if (self->cells == NULL) {
        mst_free(self);
        return mst_fail_memory();
    }
    *out = self;
    return MST_OK;
}

void mst_key_index_destroy(mst_key_index *self)
{
    if (self == NULL)
        return;
    mst_pages_release(self->cells, (size_t)self->n_cells * sizeof *self->cells);
    mst_free(self);
}

static inline const key_cell *key_index_cell_of(const mst_key_index *self, uint32_t key)
{
    return &self->cells[key / CELL_KEYS];
}

/* Prefetches the cells of a row. */
static inline void key_index_fetch_cells(const mst_key_index *self, const mst_row *row)
{
    for (uint32_t i = 0; i < row->n_keys; i++)
        __builtin_prefetch(key_index_cell_of(self, row->keys[i]));
}

static inline void key_index_fetch_row(const mst_row *row)
{
    for (uint32_t i = 0; i < row->n_keys; i += 16)
        __builtin_prefetch(row->keys + i);
}

/* Before row r is read: prefetches the keys of a later row and the cells of a nearer one. */
static inline void key_index_fetch_ahead(const mst_key_index *self, const mst_batch *batch, uint32_t r)
{
    if (r + 2 * ROWS_AHEAD < batch->n_rows)
        key_index_fetch_row(&batch->rows[r + 2 * ROWS_AHEAD]);
    if (r + ROWS_AHEAD < batch->n_rows)
        key_index_fetch_cells(self, &batch->rows[r + ROWS_AHEAD]);
}

void mst_key_index_add(mst_key_index *self, const mst_batch *batch, uint32_t n_prefix)
{
    for (uint32_t r = 0; r < batch->n_rows; r++) {
        const mst_row *row = &batch->rows[r];
        key_index_fetch_ahead(self, batch, r);
        for (uint32_t i = 0; i < row->n_keys; i++)
            if (row->keys[i] >= n_prefix)
                self->cells[row->keys[i] / CELL_KEYS].bits |= (uint32_t)1 << row->keys[i] % CELL_KEYS;
    }
}

/* Number of bits set, without an instruction that the oldest machines lack. */
static inline uint32_t key_index_count_bits(uint32_t x)
{
    x -= x >> 1 & 0x55555555;
    x = (x & 0x33333333) + (x >> 2 & 0x33333333);
    return ((x + (x >> 4)) & 0x0F0F0F0F) * 0x01010101 >> 24;
}

mst_status mst_key_index_list(mst_key_index *self, mst_key_list *list)
{
    uint32_t n = 0;
    for (uint64_t c = 0; c < self->n_cells; c++) {
        if (self->cells[c].bits == 0)
            continue; /* this keeps untouched pages unallocated */
        self->cells[c].below = n;
        n += key_index_count_bits(self->cells[c].bits);
    }
    TRY(mst_key_list_room(list, n));
    list->n_keys = 0;
    for (uint64_t c = 0; c < self->n_cells; c++)
        for (uint32_t bits = self->cells[c].bits; bits != 0; bits &= bits - 1)
            list->keys[list->n_keys++] = (uint32_t)c * CELL_KEYS + (uint32_t)__builtin_ctz(bits);
    return MST_OK;
}

void mst_key_index_rows(const mst_key_index *self, const mst_batch *batch, uint32_t n_prefix,
                        uint32_t key_start, mst_row *rows, uint32_t *keys)
{
    for (uint32_t r = 0; r < batch->n_rows; r++) {
        const mst_row *row = &batch->rows[r];
        key_index_fetch_ahead(self, batch, r);
        rows[r] = *row;
        rows[r].keys = keys;
        for (uint32_t i = 0; i < row->n_keys; i++) {
            uint32_t key = row->keys[i];
            const key_cell *c = key_index_cell_of(self, key);
            uint32_t place =
                key_start + c->below + key_index_count_bits(c->bits & (((uint32_t)1 << key % CELL_KEYS) - 1));
            keys[i] = key < n_prefix ? key : place;
        }
        keys += row->n_keys;
    }
}
