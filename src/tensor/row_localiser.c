/* Localising a batch; contract in row_localiser.h.
 *
 * Rows lie at random places of a mapped file: each is fetched into the cache some rows ahead, and read once.
 * A table numbers the keys in order of appearance; numbered keys are then sorted (by digits, least
 * significant first), which gives the position of each number, and the rows' numbers are replaced by the
 * positions. Nothing here depends on the number of keys of the model.
 *
 * The table has one bucket per hash value and no chains: a key whose bucket another key has taken gets a
 * second number, and sorting brings the two together. It is not cleared between batches: Numbers increase
 * across batches; an entry below the batch's first number is stale. A processor cannot predict whether a key
 * is new, so that the loop over keys has no branch. (Measured on click logs: sorting all entries takes a
 * tenth longer; a bitmap over all keys takes as long for batches of 1,000 rows and 1.5 times as long for 100
 * rows, and grows with the model.)
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
#define TABLE_BITS  12         /* at least */
#define BLOCK       64         /* keys that are looked up before the missing ones among them are added */
#define ENTRIES_MAX ((size_t)1 << 31)

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

/* Room for n entries, which may all be different. Numbers are above n_prefix. */
static mst_status row_localiser_make_room(mst_row_localiser *self, mst_row_bank *b, size_t n,
                                          uint32_t n_prefix)
{
    unsigned bits = self->table_bits ? self->table_bits : TABLE_BITS;
    if (n > ENTRIES_MAX || n_prefix > ENTRIES_MAX)
        return mst_fail(MST_EUSAGE, "a batch of %zu entries is too large; use a smaller --batch", n);
    while ((size_t)1 << bits < n / 2)
        bits++;
    if (bits != self->table_bits || self->next > UINT32_MAX - n || self->next <= n_prefix) {
        uint64_t *table = self->table;
        if (bits != self->table_bits) {
            table = mst_alloc_lines(sizeof *table << bits);
            if (table == NULL)
                return mst_fail_memory();
            mst_free(self->table);
            self->table = table;
            self->table_bits = bits;
        }
        memset(table, 0, sizeof *table << bits);
        self->next = n_prefix + 1;
    }
    if (!mst_grow(&b->keys, &b->capacity, n + 1, sizeof *b->keys) ||
        !mst_grow(&self->items, &self->item_capacity, n + 1, sizeof *self->items) ||
        !mst_grow(&self->spare, &self->spare_capacity, n, sizeof *self->spare) ||
        !mst_grow(&self->ranks, &self->rank_capacity, n, sizeof *self->ranks))
        return mst_fail_memory();
    return MST_OK;
}

static inline void row_localiser_fetch_row(const mst_row *row)
{
    for (uint32_t i = 0; i < row->n_keys; i += LINE_KEYS)
        __builtin_prefetch(row->keys + i);
    if (row->n_keys != 0)
        __builtin_prefetch(row->keys + row->n_keys - 1);
}

/* Numbers n keys; items has room for one more than there are. Returns the next number. Most keys are in the
 * table: looking up a block of them first, without a store to the table, lets the loads overlap. A separate
 * function, so that the loops' variables fit in registers. */
__attribute__((noinline)) static uint32_t number_keys(const mst_row_localiser *self, const uint32_t *keys,
                                                      uint32_t n, uint32_t base, uint32_t next,
                                                      uint32_t *numbers)
{
    uint64_t *table = self->table, *items = self->items;
    uint64_t current = ((uint64_t)1 << 32) - base;
    unsigned bits = self->table_bits;
    uint32_t missing[BLOCK + 8];
    for (uint32_t from = 0; from < n; from += BLOCK, keys += BLOCK, numbers += BLOCK) {
        uint32_t n_missing = self->kernels->look_up_keys(
            table, bits, keys, n - from < BLOCK ? n - from : BLOCK, base, numbers, missing);
        for (uint32_t m = 0; m < n_missing; m++) { /* an earlier one may be the same */
            uint64_t key = __atomic_load_n(&keys[missing[m]], __ATOMIC_RELAXED), high = key << 32;
            uint64_t *at = &table[mst_key_bucket((uint32_t)key, bits)];
            uint64_t number = *at - high, fresh = number - base >= current;
            number ^= (number ^ next) & -fresh;
            *at = high | number;
            items[next - base] = high | next;
            next += (uint32_t)fresh;
            numbers[missing[m]] = (uint32_t)number;
        }
    }
    return next;
}

static void row_localiser_sort_small(uint64_t *items, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        uint64_t item = items[i];
        uint32_t at = i;
        for (; at > 0 && items[at - 1] > item; at--)
            items[at] = items[at - 1];
        items[at] = item;
    }
}

/* Sorts by n_passes digits of `bits` bits of the key; the sorted items are in the array returned. */
static inline __attribute__((always_inline)) uint64_t *row_localiser_sort_digits(
    const mst_row_localiser *self, uint32_t n, unsigned bits, unsigned n_passes)
{
    uint64_t *items = self->items, *spare = self->spare;
    uint32_t *counts = self->counts, digits = 1u << bits;
    memset(counts, 0, (size_t)n_passes * digits * sizeof *counts);
    for (uint32_t i = 0; i < n; i++)
        for (unsigned p = 0; p < n_passes; p++)
            counts[p * digits + (items[i] >> (32 + p * bits) & (digits - 1))]++;
    for (unsigned p = 0; p < n_passes; p++, counts += digits) {
        uint32_t at = 0;
        for (uint32_t d = 0; d < digits; d++) {
            uint32_t count = counts[d];
            counts[d] = at;
            at += count;
        }
        for (uint32_t i = 0; i < n; i++)
            spare[counts[items[i] >> (32 + p * bits) & (digits - 1)]++] = items[i];
        uint64_t *sorted = spare;
        spare = items;
        items = sorted;
    }
    return items;
}

static uint64_t *row_localiser_sort_items(const mst_row_localiser *self, uint32_t n)
{
    unsigned bits = self->key_bits;
    if (n <= SMALL) {
        row_localiser_sort_small(self->items, n);
        return self->items;
    }
    if (bits <= 9) /* constants: loops over passes unroll */
        return row_localiser_sort_digits(self, n, 9, 1);
    if (bits <= 18)
        return row_localiser_sort_digits(self, n, 9, 2);
    if (bits <= 26 && n > MEDIUM)
        return row_localiser_sort_digits(self, n, 13, 2);
    if (bits <= 27)
        return row_localiser_sort_digits(self, n, 9, 3);
    return n > MEDIUM ? row_localiser_sort_digits(self, n, 11, 3) : row_localiser_sort_digits(self, n, 8, 4);
}

/* Sorted items to distinct keys, and where each number stands among them. Returns how many there are, or
 * UINT32_MAX if a key is not below n_keys. */
static uint32_t row_localiser_rank_items(const uint64_t *sorted, uint32_t n, uint32_t base, uint64_t n_keys,
                                         uint32_t key_start, uint32_t *keys, uint32_t *ranks)
{
    uint32_t n_distinct = 0;
    uint64_t before = UINT64_MAX, largest = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t key = sorted[i] >> 32;
        n_distinct += key != before;
        before = key;
        largest = key > largest ? key : largest;
        keys[n_distinct - 1] = (uint32_t)key;
        ranks[(uint32_t)sorted[i] - base] = key_start + n_distinct - 1;
    }
    return n == 0 || largest < n_keys ? n_distinct : UINT32_MAX;
}

/* Copies the keys of a row below n_prefix, which come first. Returns how many there are. */
static inline uint32_t row_localiser_copy_prefix(const mst_row *row, uint32_t n_prefix, uint32_t *out)
{
    uint32_t i = 0, key;
    while (i < row->n_keys && (key = __atomic_load_n(&row->keys[i], __ATOMIC_RELAXED)) < n_prefix)
        out[i++] = key;
    return i;
}

mst_status mst_row_localise(mst_row_localiser *self, unsigned index, const mst_batch *batch,
                            uint32_t n_prefix, uint32_t key_start, mst_key_list *list, mst_row *rows)
{
    mst_row_bank *b = &self->banks[index];
    size_t n = 0, n_prefixed = 0;
    for (uint32_t r = 0; r < batch->n_rows; r++)
        n += batch->rows[r].n_keys;
    TRY(row_localiser_make_room(self, b, n, n_prefix));

    uint32_t base = self->next, next = base;
    uint32_t *numbers = b->keys;
    for (uint32_t r = 0; r < batch->n_rows && r < ROWS_AHEAD; r++)
        row_localiser_fetch_row(&batch->rows[r]);
    for (uint32_t r = 0; r < batch->n_rows; r++) {
        const mst_row *row = &batch->rows[r];
        if (r + ROWS_AHEAD < batch->n_rows)
            row_localiser_fetch_row(&batch->rows[r + ROWS_AHEAD]);
        uint32_t prefix = row_localiser_copy_prefix(row, n_prefix, numbers);
        next = number_keys(self, row->keys + prefix, row->n_keys - prefix, base, next, numbers + prefix);
        n_prefixed += prefix;
        rows[r] = *row;
        rows[r].keys = numbers;
        numbers += row->n_keys;
    }
    self->next = next;

    uint32_t n_items = next - base;
    TRY(mst_key_list_room(list, n_items));
    list->n_keys = row_localiser_rank_items(row_localiser_sort_items(self, n_items), n_items, base,
                                            self->n_keys, key_start, list->keys, self->ranks);
    if (list->n_keys == UINT32_MAX) {
        list->n_keys = 0;
        return mst_fail(MST_EINPUT, "a row has a key that is not below %" PRIu64, self->n_keys);
    }

    if (n_prefixed == 0) {
        self->kernels->rank_numbers(b->keys, n, base, self->ranks);
        return MST_OK;
    }
    for (size_t i = 0; i < n; i++)
        if (b->keys[i] >= base)
            b->keys[i] = self->ranks[b->keys[i] - base];
    return MST_OK;
}
