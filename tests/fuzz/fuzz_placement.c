/* libFuzzer: any JSON as a partition table. An accepted table must satisfy the invariants of placement.h,
 * assign every float of a list to one server, and survive a round trip through its own JSON. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ps/placement.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_partitions(const mst_placement *t)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < t->n_partitions; i++) {
        if (t->partitions[i].first != at || t->partitions[i].count == 0 ||
            t->partitions[i].server >= t->n_servers)
            abort();
        at += t->partitions[i].count;
    }
    if (at != t->size)
        abort();
}

static void check_parts(const mst_placement *t)
{
    static mst_key_list whole, part;
    uint32_t keys[3] = {0}, first_key, n_keys = 0;
    uint64_t floats = 0;
    whole.n_ranges = t->size != 0;
    whole.ranges[0] = (mst_extent){.first = 0, .count = t->size};
    whole.keys = keys;
    whole.n_keys = 0;
    if (t->width != 0) {
        uint32_t end = t->key_starts[t->n_servers];
        for (uint32_t i = 0; i < 3; i++)
            if (whole.n_keys == 0 || (uint64_t)end * i / 3 > keys[whole.n_keys - 1])
                keys[whole.n_keys++] = (uint32_t)((uint64_t)end * i / 3);
    }
    for (uint32_t s = 0; s < t->n_servers; s++) {
        mst_placement_share(t, &whole, s, &part, &first_key);
        for (uint32_t i = 0; i < part.n_keys; i++)
            if (part.keys[i] < t->key_starts[s] || part.keys[i] >= t->key_starts[s + 1])
                abort();
        floats += mst_key_list_range_floats(&part);
        n_keys += part.n_keys;
    }
    if (floats != t->size || n_keys != whole.n_keys)
        abort();
}

static void check_again(const mst_placement *t)
{
    mst_placement back;
    json_t *json = mst_placement_json(t);
    if (json == NULL || mst_placement_from_json(&back, json) != MST_OK ||
        back.n_partitions != t->n_partitions || back.size != t->size || back.width != t->width)
        abort();
    if (t->width != 0 &&
        memcmp(t->key_starts, back.key_starts, (t->n_servers + 1) * sizeof *t->key_starts) != 0)
        abort();
    json_decref(json);
    mst_placement_fini(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mst_placement t;
    json_t *json = json_loadb((const char *)data, size, 0, NULL);
    if (json == NULL)
        return 0;
    if (mst_placement_from_json(&t, json) == MST_OK) {
        check_partitions(&t);
        check_parts(&t);
        check_again(&t);
    } else if (t.partitions != NULL || t.key_starts != NULL || mst_error_text()[0] == 0) {
        abort();
    }
    mst_placement_fini(&t);
    json_decref(json);
    return 0;
}
