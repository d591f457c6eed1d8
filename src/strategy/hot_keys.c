/* Popular keys; contract in hot_keys.h. */
#include "strategy/hot_keys.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define TRIES     16 /* hash factors tried for a map that drops few keys */
#define BITS_MIN  12 /* of the map */
#define BITS_MORE 2  /* buckets for each key: 4 */
#define HASH_BITS 18
#define FEW_KEYS  4096

typedef struct mst_hot_count {
    uint32_t key, count; /* count 0: unused */
} mst_hot_count;

static unsigned hot_bits(uint32_t n)
{
    unsigned bits = BITS_MIN - BITS_MORE;
    while (n > 1u << bits)
        bits++;
    return bits + BITS_MORE;
}

mst_status mst_hot_keys_init(mst_hot_keys *hot, uint32_t most)
{
    size_t n_buckets = (size_t)1 << hot_bits(most);
    *hot = (mst_hot_keys){.most = most, .factor = MST_KEY_HASH, .shift = 32 - BITS_MIN};
    hot->keys = mst_calloc(most, sizeof *hot->keys);
    hot->counts = mst_calloc(most, sizeof *hot->counts);
    hot->buckets = mst_alloc_lines(n_buckets * sizeof *hot->buckets);
    hot->hashes = mst_alloc((size_t)1 << HASH_BITS);
    if (hot->keys == NULL || hot->counts == NULL || hot->buckets == NULL || hot->hashes == NULL)
        return mst_fail_memory();
    for (uint32_t i = 0; i < n_buckets; i++)
        hot->buckets[i] = MST_MAP_UNUSED;
    return MST_OK;
}

void mst_hot_keys_fini(mst_hot_keys *hot)
{
    mst_free(hot->keys);
    mst_free(hot->counts);
    mst_free(hot->buckets);
    mst_free(hot->hashes);
    mst_free(hot->sample);
    mst_free(hot->table);
    *hot = (mst_hot_keys){0};
}

static int by_count(const void *a, const void *b)
{
    const mst_hot_count *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* Copies the keys of the samples in [prefix, n_keys) to hot->sample; keys of a mapped file may be any. */
static size_t hot_gather_keys(mst_hot_keys *hot, const mst_batch *const *samples, unsigned n_samples,
                              uint32_t max_rows, uint32_t prefix, uint64_t n_keys)
{
    size_t n = 0, room = 0;
    hot->n_rows = 0;
    for (unsigned s = 0; s < n_samples; s++)
        for (uint32_t i = 0; i < samples[s]->n_rows && i < max_rows; i++, hot->n_rows++)
            room += samples[s]->rows[i].n_keys;
    if (!mst_grow(&hot->sample, &hot->sample_capacity, room, sizeof *hot->sample))
        return 0;
    for (unsigned s = 0; s < n_samples; s++)
        for (uint32_t i = 0; i < samples[s]->n_rows && i < max_rows; i++)
            for (uint32_t j = 0; j < samples[s]->rows[i].n_keys && n < room; j++) {
                uint32_t key = samples[s]->rows[i].keys[j];
                hot->sample[n] = key;
                n += key >= prefix && key < n_keys;
            }
    return n;
}

static mst_hot_count *hot_count_of(mst_hot_count *table, unsigned bits, uint32_t key)
{
    size_t at = mst_key_bucket(key, bits), mask = ((size_t)1 << bits) - 1;
    while (table[at].count != 0 && table[at].key != key)
        at = (at + 1) & mask;
    return &table[at];
}

/* Counts the occurrences of each of n keys in a hash table; returns the number of popular keys, sorted to the
 * front of the table. Most keys are rare: a first pass counts hashes of keys, in a table that fits a cache,
 * and the second one leaves out the keys whose hash is rare. */
static size_t hot_count_keys(mst_hot_keys *hot, size_t n, uint32_t least)
{
    size_t some = 0, popular = 0;
    unsigned bits = 1;
    uint32_t enough = least < UINT8_MAX ? least : UINT8_MAX;
    memset(hot->hashes, 0, (size_t)1 << HASH_BITS);
    for (size_t i = 0; i < n; i++) {
        uint8_t *count = &hot->hashes[mst_key_bucket(hot->sample[i], HASH_BITS)];
        *count += *count < UINT8_MAX;
    }
    for (size_t i = 0; i < n; i++) {
        hot->sample[some] = hot->sample[i];
        some += hot->hashes[mst_key_bucket(hot->sample[i], HASH_BITS)] >= enough;
    }
    while ((size_t)1 << bits < 2 * some)
        bits++;
    size_t size = (size_t)1 << bits;
    if (bits > 31 || !mst_grow(&hot->table, &hot->table_capacity, size, sizeof *hot->table))
        return 0;
    memset(hot->table, 0, size * sizeof *hot->table);
    for (size_t i = 0; i < some; i++) {
        mst_hot_count *count = hot_count_of(hot->table, bits, hot->sample[i]);
        count->key = hot->sample[i];
        count->count++;
    }
    for (size_t i = 0; i < size; i++)
        if (hot->table[i].count >= least)
            hot->table[popular++] = hot->table[i];
    qsort(hot->table, popular, sizeof *hot->table, by_count);
    return popular < hot->most ? popular : hot->most;
}

/* Puts the n keys into the map, the popular ones first; returns the rows of keys that do not fit. */
static uint64_t hot_place_keys(mst_hot_keys *hot, size_t n, uint32_t factor)
{
    uint64_t missed = 0;
    hot->n = 0;
    hot->factor = factor;
    for (uint32_t i = 0; i < 1u << (32 - hot->shift); i++)
        hot->buckets[i] = MST_MAP_UNUSED;
    for (size_t i = 0; i < n; i++) {
        uint32_t key = hot->table[i].key, hash = key * factor, *bucket = &hot->buckets[hash >> hot->shift];
        if (*bucket != MST_MAP_UNUSED) {
            missed += hot->table[i].count;
            continue;
        }
        *bucket = mst_map_bucket(hot->n, hash, hot->shift);
        hot->keys[hot->n] = key;
        hot->counts[hot->n++] = hot->table[i].count;
    }
    return missed;
}

void mst_hot_keys_choose(mst_hot_keys *hot, const mst_batch *const *samples, unsigned n_samples,
                         uint32_t max_rows, uint32_t prefix, uint64_t n_keys, uint32_t least)
{
    size_t n = hot_count_keys(hot, hot_gather_keys(hot, samples, n_samples, max_rows, prefix, n_keys), least);
    uint32_t best = MST_KEY_HASH;
    uint64_t fewest = UINT64_MAX;
    hot->shift = 32 - hot_bits((uint32_t)n);
    uint32_t tries = n > FEW_KEYS ? 1 : TRIES; /* of many keys, each factor drops about as many */
    for (uint32_t i = 0, factor = best; i < tries && fewest > 0; i++, factor *= 0x85EBCA6Bu) {
        uint64_t missed = hot_place_keys(hot, n, factor);
        if (missed < fewest) {
            fewest = missed;
            best = factor;
        }
    }
    hot_place_keys(hot, n, best);
}
