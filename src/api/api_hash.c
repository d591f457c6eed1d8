/* Hashes of names for other programs; contract in muster/muster.h. */
#include "api/api_impl.h"
#include "data/feature_hash.h"
#include "data/numbers.h"
#include "data/text.h"

/* NULL is the text of no bytes. */
static const char *hash_text(const char *text)
{
    return text != NULL ? text : "";
}

uint32_t muster_hash_vw(const char *space, size_t n_space, const char *name, size_t n_name, uint64_t seed,
                        uint64_t features)
{
    return mst_hash_name(mst_hash_space(hash_text(space), n_space, seed), hash_text(name), n_name, features);
}

uint32_t muster_hash_csv(const char *column, size_t n_column, const char *value, size_t n_value,
                         uint32_t n_numbers, uint64_t seed, uint64_t features)
{
    return n_numbers + mst_hash_name(mst_hash_space(hash_text(column), n_column, seed), hash_text(value),
                                     n_value, features - n_numbers);
}

muster_status muster_hash_criteo(uint32_t column, const char *text, size_t n_text, uint32_t n_numbers,
                                 uint64_t seed, uint64_t features, uint32_t *key)
{
    enum { INTEGERS = 13, COLUMNS = 39 };
    const uint8_t *p = (const uint8_t *)text, *end = p + n_text;
    unsigned tag = n_text == 0 ? MST_CRITEO_EMPTY : MST_CRITEO_VALUE;
    uint32_t value = 0;
    int64_t integer = 0;
    if (column >= COLUMNS || features <= n_numbers)
        return muster_fail(MUSTER_EUSAGE,
                           "muster_hash_criteo: column %u of 39, %llu features beside %u numbers", column,
                           (unsigned long long)features, n_numbers);
    if (tag == MST_CRITEO_VALUE && column < INTEGERS) {
        if (mst_number_signed(p, end, &integer) != end)
            return muster_fail(MUSTER_EINPUT, "column %u: \"%s\" is not an integer", column,
                               mst_token_show(p, end).text);
        tag = *p == '-' ? MST_CRITEO_NEGATIVE : MST_CRITEO_VALUE;
        value = tag == MST_CRITEO_VALUE ? mst_criteo_bucket(integer) : 0;
    } else if (tag == MST_CRITEO_VALUE && !mst_number_hex(p, end, &value)) {
        return muster_fail(MUSTER_EINPUT, "column %u: \"%s\" is not a category of up to 8 hex digits", column,
                           mst_token_show(p, end).text);
    }
    *key = n_numbers + mst_hash_criteo(column, tag, value, seed, features - n_numbers);
    return MUSTER_OK;
}

float muster_criteo_log(int64_t v)
{
    return mst_criteo_log(v);
}
