/* Localising a batch; contract in row_localiser.h.
 *
 * Rows lie at random places of a mapped file: each is fetched into the cache some rows ahead, and read once,
 * into a block of keys. A table numbers the keys of a block: the number of a key is its slot. The table's
 * distinct keys are then sorted (by digits, least significant first), and the last pass of the sort writes
 * the position of each slot, by which the rows' numbers are replaced. Nothing here depends on the number of
 * keys of the model.
 *
 * Most keys of a block are in the table: looking up all of them first, without a store to the table, lets the
 * loads overlap. A bucket has two slots, so that most keys are found at the first look; the others are
 * searched from bucket to bucket. A processor cannot predict whether a key is new, so that the loop over all
 * keys has no branch. (Measured on click logs, batches of 1,000 rows: buckets of 16 keys that are compared at
 * once take a quarter longer; a bitmap over all keys is slower, too, and grows with the model.)
 */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "tensor/row_localiser_impl.h"

#define ROWS_AHEAD  12
#define LINE_KEYS   16
#define COUNTS      (2u << 13) /* of the digits of all passes */
#define SMALL       48         /* keys that are sorted by insertion */
#define MEDIUM      4096       /* keys for which longer digits do not pay: they have more counts to clear */
#define SPARSE      4096 /* entries of which most are different: a table with more slots for them is small */
#define BLOCK       256  /* keys that are looked up before the missing ones among them are added */
#define ENTRIES_MAX ((size_t)1 << 29)

/* Keys of rows, each read once. */
typedef struct key_block {
    uint32_t n, keys[BLOCK];
} key_block;

mst_status mst_row_localiser_new(const mst_kernels *kernels, uint64_t n_keys, unsigned n_banks,
                                 mst_row_localiser **out)
{
    mst_row_localiser *self = mst_zalloc(sizeof *self);
    if (self != NULL)
        self->counts = mst_alloc_lines(COUNTS * sizeof *self->counts);
    if (self != NULL)
        self->banks = mst_calloc(n_banks, sizeof *self->banks);
    if (self == NULL || self->banks == NULL || self->counts == NULL) {
        mst_row_localiser_destroy(self);
        return mst_fail_memory();
    }
    self->n_banks = n_banks;
    self->n_keys = n_keys;
    self->kernels = kernels;
    while (n_keys > (uint64_t)1 << self->key_bits)
        self->key_bits++;
    *out = self;
    return MST_OK;
}

void mst_row_localiser_destroy(mst_row_localiser *self)
{
    if (self == NULL)
        return;
    for (unsigned i = 0; self->banks != NULL && i < self->n_banks; i++)
        mst_free(self->banks[i].keys);
    mst_free(self->banks);
    mst_free(self->table);
    mst_free(self->items);
    mst_free(self->spare);
    mst_free(self->ranks);
    mst_free(self->counts);
    mst_free(self);
}

/* Room for n entries, which may all be different, and an empty table with more slots than entries. */
static mst_status row_localiser_make_room(mst_row_localiser *self, mst_row_bank *b, size_t n,
                                          uint32_t n_prefix)
{
    unsigned bits = 2;
    if (n > ENTRIES_MAX || n_prefix > ENTRIES_MAX)
        return mst_fail(MST_EUSAGE, "a batch of %zu entries is too large; use a smaller --batch", n);
    while ((size_t)1 << bits < (n < SPARSE ? n : n / 2 + n / 8))
        bits++;
    size_t slots = (size_t)2 << bits;
    if (slots > self->table_capacity) {
        uint32_t *table = mst_alloc_lines(slots * sizeof *table);
        if (table == NULL)
            return mst_fail_memory();
        mst_free(self->table);
        self->table = table;
        self->table_capacity = slots;
    }
    if (!mst_grow(&b->keys, &b->capacity, n, sizeof *b->keys) ||
        !mst_grow(&self->items, &self->item_capacity, n, sizeof *self->items) ||
        !mst_grow(&self->spare, &self->spare_capacity, n, sizeof *self->spare) ||
        !mst_grow(&self->ranks, &self->rank_capacity, slots + n_prefix, sizeof *self->ranks))
        return mst_fail_memory();
    for (uint32_t key = 0; key < n_prefix; key++)
        self->ranks[slots + key] = key;
    memset(self->table, 0xff, slots * sizeof *self->table); /* MST_NO_KEY */
    self->table_bits = bits;
    self->n_items = 0;
    self->end = 0;
    return MST_OK;
}

static inline void row_localiser_fetch_row(const mst_row *row)
{
    for (uint32_t i = 0; i < row->n_keys; i += LINE_KEYS)
        __builtin_prefetch(row->keys + i);
    if (row->n_keys != 0)
        __builtin_prefetch(row->keys + row->n_keys - 1);
}

/* Numbers the keys of a block, and empties it. Returns where the next numbers go. A separate function, so
 * that the loops' variables fit in registers. */
__attribute__((noinline)) static uint32_t *number_keys(mst_row_localiser *self, key_block *block,
                                                       uint32_t *numbers)
{
    uint32_t *table = self->table, mask = (1u << self->table_bits) - 1;
    unsigned bits = self->table_bits;
    uint64_t *items = self->items;
    uint32_t missing[BLOCK + 8], next = self->n_items;
    uint64_t end = self->end;
    uint32_t n_missing = self->kernels->look_up_keys(table, bits, block->keys, block->n, numbers, missing);
    for (uint32_t m = 0; m < n_missing; m++) { /* an earlier one may be the same */
        uint32_t key = block->keys[missing[m]], at = mst_key_bucket(key, bits);
        end = key >= end ? (uint64_t)key + 1 : end;
        uint32_t first = table[2 * at], second = table[2 * at + 1];
        while (first != key && second != key && second != MST_NO_KEY) {
            at = (at + 1) & mask;
            first = table[2 * at];
            second = table[2 * at + 1];
        }
        if (first == key || second == key) { /* rare, so that it is predicted well */
            numbers[missing[m]] = 2 * at + (first != key);
            continue;
        }
        uint32_t slot = 2 * at + (first != MST_NO_KEY);
        numbers[missing[m]] = slot;
        table[slot] = key;
        items[next++] = (uint64_t)key << 32 | slot;
    }
    self->n_items = next;
    self->end = end;
    numbers += block->n;
    block->n = 0;
    return numbers;
}

/* Appends keys [from, to) of a row to a block with room for them. */
static inline void row_localiser_copy_keys(const mst_row *row, uint32_t from, uint32_t to, key_block *block)
{
    uint32_t *out = block->keys + block->n;
    block->n += to - from;
    for (; from + 8 <= to; from += 8, out += 8)
        memcpy(out, row->keys + from, 8 * sizeof *out);
    for (; from < to; from++)
        *out++ = row->keys[from];
}

/* Numbers the keys of all rows, one row after the other. Those below n_prefix come first in their row. */
static void row_localiser_number_rows(mst_row_localiser *self, const mst_batch *batch, uint32_t n_prefix,
                                      uint32_t *numbers, mst_row *rows)
{
    key_block block = {.n = 0};
    for (uint32_t r = 0; r < batch->n_rows && r < ROWS_AHEAD; r++)
        row_localiser_fetch_row(&batch->rows[r]);
    for (uint32_t r = 0; r < batch->n_rows; r++) {
        const mst_row *row = &batch->rows[r];
        uint32_t i = 0, key;
        if (r + ROWS_AHEAD < batch->n_rows)
            row_localiser_fetch_row(&batch->rows[r + ROWS_AHEAD]);
        rows[r] = *row;
        rows[r].keys = numbers + block.n;
        while (i < row->n_keys && (key = __atomic_load_n(&row->keys[i], __ATOMIC_RELAXED)) < n_prefix) {
            numbers = number_keys(self, &block, numbers);
            *numbers++ = (2u << self->table_bits) + key;
            i++;
        }
        while (i < row->n_keys) {
            if (block.n == BLOCK)
                numbers = number_keys(self, &block, numbers);
            uint32_t room = BLOCK - block.n, to = row->n_keys - i < room ? row->n_keys : i + room;
            row_localiser_copy_keys(row, i, to, &block);
            i = to;
        }
    }
    number_keys(self, &block, numbers);
}

/* Sorts by n_passes digits of `bits` bits of the key, into keys; ranks gets the position of each slot. */
static inline __attribute__((always_inline)) void row_localiser_sort_digits(const mst_row_localiser *self,
                                                                            unsigned bits, unsigned n_passes,
                                                                            uint32_t first, uint32_t *keys)
{
    uint64_t *items = self->items, *spare = self->spare;
    uint32_t *counts = self->counts, *ranks = self->ranks, digits = 1u << bits, n = self->n_items;
    memset(counts, 0, (size_t)n_passes * digits * sizeof *counts);
    for (uint32_t i = 0; i < n; i++)
        for (unsigned p = 0; p < n_passes; p++)
            counts[p * digits + (items[i] >> (32 + p * bits) & (digits - 1))]++;
    for (unsigned p = 0; p < n_passes; p++, counts += digits) {
        self->kernels->sum_counts(counts, digits);
        if (p + 1 == n_passes)
            break;
        for (uint32_t i = 0; i < n; i++)
            spare[counts[items[i] >> (32 + p * bits) & (digits - 1)]++] = items[i];
        uint64_t *sorted = spare;
        spare = items;
        items = sorted;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = counts[items[i] >> (32 + (n_passes - 1) * bits) & (digits - 1)]++;
        keys[at] = (uint32_t)(items[i] >> 32);
        ranks[(uint32_t)items[i]] = first + at;
    }
}

static void row_localiser_sort_small(const mst_row_localiser *self, uint32_t first, uint32_t *keys)
{
    uint64_t *items = self->items;
    for (uint32_t i = 1; i < self->n_items; i++) {
        uint64_t item = items[i];
        uint32_t at = i;
        for (; at > 0 && items[at - 1] > item; at--)
            items[at] = items[at - 1];
        items[at] = item;
    }
    for (uint32_t i = 0; i < self->n_items; i++) {
        keys[i] = (uint32_t)(items[i] >> 32);
        self->ranks[(uint32_t)items[i]] = first + i;
    }
}

static void row_localiser_sort_items(const mst_row_localiser *self, uint32_t first, uint32_t *keys)
{
    unsigned bits = self->key_bits;
    if (self->n_items <= SMALL)
        row_localiser_sort_small(self, first, keys);
    else if (bits <= 9) /* constants: loops over passes unroll */
        row_localiser_sort_digits(self, 9, 1, first, keys);
    else if (bits <= 18)
        row_localiser_sort_digits(self, 9, 2, first, keys);
    else if (bits <= 26 && self->n_items > MEDIUM)
        row_localiser_sort_digits(self, 13, 2, first, keys);
    else if (bits <= 27)
        row_localiser_sort_digits(self, 9, 3, first, keys);
    else if (self->n_items > MEDIUM)
        row_localiser_sort_digits(self, 11, 3, first, keys);
    else
        row_localiser_sort_digits(self, 8, 4, first, keys);
}

mst_status mst_row_localise(mst_row_localiser *self, unsigned index, const mst_batch *batch,
                            uint32_t n_prefix, uint32_t key_start, mst_key_list *list, mst_row *rows)
{
    mst_row_bank *b = &self->banks[index];
    size_t n = 0;
    for (uint32_t r = 0; r < batch->n_rows; r++)
        n += batch->rows[r].n_keys;
    TRY(row_localiser_make_room(self, b, n, n_prefix));
    row_localiser_number_rows(self, batch, n_prefix, b->keys, rows);
    list->n_keys = 0;
    if (self->end > self->n_keys)
        return mst_fail(MST_EINPUT, "a row has a key that is not below %" PRIu64, self->n_keys);
    TRY(mst_key_list_room(list, self->n_items));
    row_localiser_sort_items(self, key_start, list->keys);
    list->n_keys = self->n_items;
    self->kernels->rank_numbers(b->keys, n, self->ranks);
    return MST_OK;
}
