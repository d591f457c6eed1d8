/* The hashes that turn names and values into feature numbers. docs/SERVING.md, "Hashes", defines them byte by
 * byte for other programs: a change of any of them makes trained models useless.
 *
 * A hash is scaled, not reduced modulo the range: its upper 32 bits, as a fraction of 2^32, times the range.
 * Ranges are at most 2^32. */
#ifndef MST_DATA_FEATURE_HASH_H
#define MST_DATA_FEATURE_HASH_H

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <stddef.h>
#include <stdint.h>

static inline uint32_t mst_hash_scale(uint64_t hash, uint64_t range)
{
    return (uint32_t)((hash >> 32) * range >> 32);
}

/* A namespace of VW text or a column of a table: the seed of its names or values. */
static inline uint64_t mst_hash_space(const void *name, size_t n, uint64_t seed)
{
    return XXH64(name, n, seed);
}

/* A name of a namespace, or a value of a column, in [0, range). */
static inline uint32_t mst_hash_name(uint64_t space, const void *name, size_t n, uint64_t range)
{
    return mst_hash_scale(XXH64(name, n, space), range);
}

/* Criteo: a value is a category's 32 bits or the bucket of an integer; the tag separates it from an empty
 * field and a negative integer, whose value is 0. Columns 0 to 12 are the integers, 13 to 38 the categories.
 */
enum { MST_CRITEO_VALUE = 0, MST_CRITEO_EMPTY = 1, MST_CRITEO_NEGATIVE = 2 };

static inline uint32_t mst_hash_criteo(unsigned column, unsigned tag, uint32_t value, uint64_t seed,
                                       uint64_t range)
{
    uint64_t id = (uint64_t)(column | tag << 8) << 32 | value;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    id = __builtin_bswap64(id);
#endif
    return mst_hash_scale(XXH3_64bits_withSeed(&id, sizeof id, seed), range);
}

/* The bucket of an integer that is not negative. */
uint32_t mst_criteo_bucket(int64_t v);
/* Its value as a number: log(1 + v) / 4, and 0 for negative ones. */
float mst_criteo_log(int64_t v);

#endif
