/* The partition table as JSON; contract in placement.h.
 *
 *   {"version": 1, "size": floats, "servers": M, "partitions": [count, server, count, server, ...],
 *    "sparse": [offset, width, key_starts[0], ..., key_starts[M]]}
 *
 * Partitions follow each other without gaps, so that their counts determine their positions. Without a sparse
 * view there is no "sparse". Reading checks every invariant of placement.h. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "ps/placement_impl.h"

json_t *mst_placement_json(const mst_placement *table)
{
    json_t *partitions = json_array(), *sparse = table->width != 0 ? json_array() : NULL;
    int failed = partitions == NULL;
    for (uint32_t i = 0; !failed && i < table->n_partitions; i++)
        failed = json_array_append_new(partitions, json_integer((json_int_t)table->partitions[i].count)) |
                 json_array_append_new(partitions, json_integer(table->partitions[i].server));
    if (table->width != 0)
        failed |= json_array_append_new(sparse, json_integer((json_int_t)table->sparse_offset)) |
                  json_array_append_new(sparse, json_integer(table->width));
    for (uint32_t s = 0; !failed && table->width != 0 && s <= table->n_servers; s++)
        failed = json_array_append_new(sparse, json_integer(table->key_starts[s]));
    json_t *json = json_pack("{s:I, s:I, s:I, s:o, s:o*}", "version", (json_int_t)table->version, "size",
                             (json_int_t)table->size, "servers", (json_int_t)table->n_servers, "partitions",
                             partitions, "sparse", sparse);
    if (!failed)
        return json;
    json_decref(json);
    return NULL;
}

/* ---- reading ---- */

/* An integer in [low, high]; `name` is its name in the message. */
static mst_status placement_read_number(const json_t *value, const char *name, uint64_t low, uint64_t high,
                                        uint64_t *out)
{
    if (!json_is_integer(value))
        return mst_fail(MST_EINPUT, "partition table: %s is not a whole number", name);
    json_int_t number = json_integer_value(value);
    if (number < 0 || (uint64_t)number < low || (uint64_t)number > high)
        return mst_fail(MST_EINPUT,
                        "partition table: %s is %" JSON_INTEGER_FORMAT ", not in %" PRIu64 " to %" PRIu64,
                        name, number, low, high);
    *out = (uint64_t)number;
    return MST_OK;
}

static mst_status placement_read_partitions(mst_placement *table, const json_t *array)
{
    size_t n = json_array_size(array); /* 0 also if it is no array */
    uint64_t at = 0, count = 0, server = 0;
    if (!json_is_array(array) || n % 2 != 0)
        return mst_fail(MST_EINPUT, "partition table: partitions are not an array of pairs (count, server)");
    if (n / 2 > table->size / MST_TABLE_LINE)
        return mst_fail(MST_EINPUT, "partition table: %zu partitions of %" PRIu64 " floats", n / 2,
                        table->size);
    table->partitions = mst_calloc(n / 2, sizeof *table->partitions);
    if (table->partitions == NULL)
        return mst_fail_memory();
    for (size_t i = 0; i < n; i += 2) {
        TRY(placement_read_number(json_array_get(array, i), "the count of a partition", MST_TABLE_LINE,
                                  table->size - at, &count));
        TRY(placement_read_number(json_array_get(array, i + 1), "the server of a partition", 0,
                                  table->n_servers - 1, &server));
        if (count % MST_TABLE_LINE != 0)
            return mst_fail(MST_EINPUT,
                            "partition table: a partition of %" PRIu64 " floats, not a multiple of %d", count,
                            MST_TABLE_LINE);
        table->partitions[table->n_partitions++] =
            (mst_partition){.first = at, .count = count, .server = (uint32_t)server};
        at += count;
    }
    if (at != table->size)
        return mst_fail(MST_EINPUT, "partition table: the partitions cover %" PRIu64 " floats of %" PRIu64,
                        at, table->size);
    return MST_OK;
}

static mst_status placement_read_sparse(mst_placement *table, const json_t *array)
{
    uint64_t offset = 0, width = 1, start = 0, before = 0;
    uint32_t n = table->n_servers;
    if (array == NULL)
        return MST_OK;
    if (!json_is_array(array) || json_array_size(array) != (size_t)n + 3)
        return mst_fail(MST_EINPUT,
                        "partition table: sparse is not an array of offset, width and %" PRIu32 " starts",
                        n + 1);
    TRY(placement_read_number(json_array_get(array, 0), "the sparse view's offset", 0, table->size, &offset));
    TRY(placement_read_number(json_array_get(array, 1), "the sparse view's width", 1, UINT32_MAX, &width));
    if (offset % MST_TABLE_LINE != 0)
        return mst_fail(MST_EINPUT,
                        "partition table: the sparse view begins at %" PRIu64 ", not at a multiple of %d",
                        offset, MST_TABLE_LINE);
    uint64_t n_keys = (table->size - offset) / width; /* at most */
    table->key_starts = mst_calloc((size_t)n + 1, sizeof *table->key_starts);
    if (table->key_starts == NULL)
        return mst_fail_memory();
    for (uint32_t s = 0; s <= n; s++) {
        uint64_t high = s == 0 ? 0 : n_keys < UINT32_MAX ? n_keys : UINT32_MAX;
        TRY(placement_read_number(json_array_get(array, s + 2), "where a server's keys begin", before, high,
                                  &start));
        table->key_starts[s] = (uint32_t)start;
        before = start;
    }
    for (uint32_t s = 0; s <= n; s++)
        if (table->key_starts[s] != before && table->key_starts[s] * width % MST_TABLE_LINE != 0)
            return mst_fail(MST_EINPUT,
                            "partition table: keys are cut at %" PRIu32
                            ", which is not a multiple of %d floats",
                            table->key_starts[s], MST_TABLE_LINE);
    if (before == 0)
        return mst_fail(MST_EINPUT, "partition table: a sparse view without keys");
    table->sparse_offset = offset;
    table->width = (uint32_t)width;
    return MST_OK;
}

/* Partitions of the sparse view belong to the servers of its keys; others are not too large. */
static mst_status placement_check_servers(const mst_placement *table)
{
    uint64_t low = table->size, high = low, from = 0, to = 0;
    uint32_t s = 0;
    if (table->width != 0) {
        low = table->sparse_offset;
        high = mst_placement_sparse_end(table);
        mst_placement_key_floats(table, 0, &from, &to);
    }
    for (uint32_t i = 0; i < table->n_partitions; i++) {
        const mst_partition *p = &table->partitions[i];
        uint64_t end = p->first + p->count;
        if (end <= low || p->first >= high) {
            if (p->count > MST_PARTITION_FLOATS)
                return mst_fail(MST_EINPUT,
                                "partition table: a dense partition of %" PRIu64
                                " floats; at most %u are possible",
                                p->count, MST_PARTITION_FLOATS);
            continue;
        }
        while (s + 1 < table->n_servers && to <= p->first)
            mst_placement_key_floats(table, ++s, &from, &to);
        if (p->first < from || end > to)
            return mst_fail(MST_EINPUT,
                            "partition table: the %" PRIu64 " floats at %" PRIu64
                            " are more than one server's keys, or partly keys",
                            p->count, p->first);
        if (p->server != s)
            return mst_fail(MST_EINPUT,
                            "partition table: the floats at %" PRIu64 " are server %" PRIu32
                            "'s, but the keys there are server %" PRIu32 "'s",
                            p->first, p->server, s);
    }
    return MST_OK;
}

/* The floats of a server form few enough ranges for a key list. */
static mst_status placement_check_runs(const mst_placement *table)
{
    uint32_t runs[MST_SERVER_MAX] = {0};
    for (uint32_t i = 0; i < table->n_partitions; i++) {
        uint32_t s = table->partitions[i].server;
        if ((i == 0 || table->partitions[i - 1].server != s) && ++runs[s] > MST_TABLE_RUNS)
            return mst_fail(MST_EINPUT,
                            "partition table: server %" PRIu32 "'s floats lie in more than %d places", s,
                            MST_TABLE_RUNS);
    }
    return MST_OK;
}

mst_status mst_placement_from_json(mst_placement *table, const json_t *json)
{
    mst_status st = MST_OK;
    uint64_t version = 0, n_servers = 0;
    memset(table, 0, sizeof *table);
    if (!json_is_object(json))
        return mst_fail(MST_EINPUT, "partition table: not a JSON object");
    TRY(placement_read_number(json_object_get(json, "version"), "the version", 0, UINT32_MAX, &version));
    TRY(placement_read_number(json_object_get(json, "servers"), "the number of servers", 1, MST_SERVER_MAX,
                              &n_servers));
    TRY(placement_read_number(json_object_get(json, "size"), "the size", 0, MST_PARAMS_MAX, &table->size));
    if (table->size % MST_TABLE_LINE != 0) {
        uint64_t size = table->size;
        memset(table, 0, sizeof *table);
        return mst_fail(MST_EINPUT, "partition table: a vector of %" PRIu64 " floats, not a multiple of %d",
                        size, MST_TABLE_LINE);
    }
    table->version = (uint32_t)version;
    table->n_servers = (uint32_t)n_servers;
    TRY_OUT(st, placement_read_partitions(table, json_object_get(json, "partitions")));
    TRY_OUT(st, placement_read_sparse(table, json_object_get(json, "sparse")));
    TRY_OUT(st, placement_check_servers(table));
    TRY_OUT(st, placement_check_runs(table));
out:
    if (st != MST_OK)
        mst_placement_fini(table);
    return st;
}
