/* Making and reading the partition table; contract in placement.h. Its JSON form is in placement_json.c.
 *
 * The load of a float is the number of sampled batches that carry it. For keys of the sparse view the sample
 * gives it; dense floats travel with every batch, and the number of batches in the sample is taken as the
 * count of its most frequent key. The sparse view is divided where the load below comes closest to a server's
 * share. Dense floats then fill the servers up to a common level, a cache line of weights at a time; each
 * server gets one run of them, so that a request has few ranges. */
#include "ps/placement.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "ps/placement_impl.h"

/* ---- the sample ---- */

/* Sorts keys by bytes, least significant first; scratch has room for n. */
static void placement_sort_keys(uint32_t *keys, uint32_t *scratch, size_t n)
{
    for (unsigned shift = 0; shift < 32; shift += 8) {
        size_t starts[256] = {0}, at = 0;
        for (size_t i = 0; i < n; i++)
            starts[keys[i] >> shift & 255]++;
        for (unsigned b = 0; b < 256; b++) {
            size_t count = starts[b];
            starts[b] = at;
            at += count;
        }
        for (size_t i = 0; i < n; i++)
            scratch[starts[keys[i] >> shift & 255]++] = keys[i];
        uint32_t *sorted = scratch;
        scratch = keys;
        keys = sorted; /* an even number of passes: the result is in the first array */
    }
}

/* The longest run of equal keys. */
static uint64_t placement_most_frequent(const uint32_t *sorted, size_t n)
{
    uint64_t most = 0, run = 0;
    for (size_t i = 0; i < n; i++) {
        run = i > 0 && sorted[i] == sorted[i - 1] ? run + 1 : 1;
        most = run > most ? run : most;
    }
    return most;
}

/* ---- the sparse view ---- */

typedef struct sparse_load {
    const mst_grad *layout;
    const uint32_t *sample; /* ascending */
    size_t n;
    uint64_t n_batches;
    uint64_t n_keys, offset;
    uint32_t width;
} sparse_load;

/* Floats of dense ranges inside the sparse view below a key. */
static uint64_t placement_prefix_below(const sparse_load *load, uint64_t key)
{
    uint64_t low = load->offset, high = load->offset + key * load->width, floats = 0;
    for (uint32_t i = 0; i < load->layout->n_ranges; i++) {
        const mst_range *r = &load->layout->ranges[i];
        uint64_t from = r->offset > low ? r->offset : low;
        uint64_t to = r->offset + r->size < high ? r->offset + r->size : high;
        floats += from < to ? to - from : 0;
    }
    return floats;
}

static uint64_t placement_load_below(const sparse_load *load, uint64_t key)
{
    if (load->n == 0) /* no sample: all keys are alike */
        return key * load->width;
    return mst_keys_below(load->sample, load->n, key) * load->width +
           load->n_batches * placement_prefix_below(load, key);
}

/* Keys between two possible bounds: the fewest that fill whole lines. */
static uint32_t placement_cut_step(uint32_t width)
{
    uint32_t step = MST_TABLE_LINE;
    while (step > 1 && width % 2 == 0) {
        width /= 2;
        step /= 2;
    }
    return step;
}

/* The bound whose load below comes closest to target. */
static uint64_t placement_find_cut(const sparse_load *load, uint64_t target)
{
    uint64_t step = placement_cut_step(load->width), low = 0, high = (load->n_keys + step - 1) / step;
    while (low < high) { /* the first bound that reaches the target */
        uint64_t middle = (low + high) / 2, key = middle * step;
        if (placement_load_below(load, key < load->n_keys ? key : load->n_keys) < target)
            low = middle + 1;
        else
            high = middle;
    }
    uint64_t key = low * step < load->n_keys ? low * step : load->n_keys;
    if (low == 0)
        return 0;
    uint64_t before = (low - 1) * step;
    return target - placement_load_below(load, before) < placement_load_below(load, key) - target ? before
                                                                                                  : key;
}

/* Divides the view; loads (n_servers) receives the load of each server's keys. */
static void placement_cut_sparse(mst_placement *table, const sparse_load *load, uint64_t *loads)
{
    uint64_t total = placement_load_below(load, load->n_keys), below = 0;
    uint32_t n = table->n_servers;
    table->key_starts[0] = 0;
    for (uint32_t s = 0; s < n; s++) {
        uint64_t end = load->n_keys;
        if (s + 1 < n)
            end = placement_find_cut(load, total / n * (s + 1) + total % n * (s + 1) / n);
        if (end < table->key_starts[s])
            end = table->key_starts[s];
        table->key_starts[s + 1] = (uint32_t)end;
        uint64_t upto = placement_load_below(load, end);
        loads[s] = load->n == 0 ? 0 : upto - below;
        below = upto;
    }
}

/* ---- dense floats ---- */

/* Lines for each server, so that their loads are as equal as possible; line_load: of one line. */
static void placement_share_lines(uint64_t *loads, uint32_t n_servers, uint64_t n_lines, uint64_t line_load,
                                  uint64_t *lines)
{
    uint64_t level = 0, rest = n_lines;
    /* The highest level up to which all servers can be filled, in whole lines, with the lines that there are;
     * the rest goes one by one to the least loaded. */
    uint64_t low = 0, high = n_lines * line_load;
    for (uint32_t s = 0; s < n_servers; s++)
        high = loads[s] + n_lines * line_load > high ? loads[s] + n_lines * line_load : high;
    while (low <= high) {
        uint64_t middle = low + (high - low) / 2, need = 0;
        for (uint32_t s = 0; s < n_servers && need <= n_lines; s++)
            need += loads[s] < middle ? (middle - loads[s]) / line_load : 0;
        if (need <= n_lines) {
            level = middle;
            low = middle + 1;
        } else {
            high = middle - 1; /* need > 0, so middle > 0 */
        }
    }
    for (uint32_t s = 0; s < n_servers; s++) {
        lines[s] = loads[s] < level ? (level - loads[s]) / line_load : 0;
        loads[s] += lines[s] * line_load;
        rest -= lines[s];
    }
    for (; rest > 0; rest--) {
        uint32_t least = 0;
        for (uint32_t s = 1; s < n_servers; s++)
            least = loads[s] < loads[least] ? s : least;
        lines[least]++;
        loads[least] += line_load;
    }
}

/* ---- partitions ---- */

static mst_status placement_add_partition(mst_placement *table, size_t *capacity, uint64_t first,
                                          uint64_t count, uint32_t server)
{
    if (!mst_grow(&table->partitions, capacity, table->n_partitions + 1, sizeof *table->partitions))
        return mst_fail_memory();
    table->partitions[table->n_partitions++] =
        (mst_partition){.first = first, .count = count, .server = server};
    return MST_OK;
}

/* Assigns the dense floats [first, end) to the servers that need more lines, in server order. */
static mst_status placement_add_dense(mst_placement *table, size_t *capacity, uint64_t first, uint64_t end,
                                      uint64_t *lines)
{
    for (uint32_t s = 0; s < table->n_servers && first < end; s++) {
        while (lines[s] > 0 && first < end) {
            uint64_t count = lines[s] * MST_TABLE_LINE;
            count = count < end - first ? count : end - first;
            count = count < MST_PARTITION_FLOATS ? count : MST_PARTITION_FLOATS;
            TRY(placement_add_partition(table, capacity, first, count, s));
            first += count;
            lines[s] -= count / MST_TABLE_LINE;
        }
    }
    return MST_OK;
}

static mst_status placement_add_partitions(mst_placement *table, uint64_t *lines)
{
    size_t capacity = 0;
    if (table->width == 0)
        return placement_add_dense(table, &capacity, 0, table->size, lines);
    uint64_t end = mst_placement_sparse_end(table);
    TRY(placement_add_dense(table, &capacity, 0, table->sparse_offset, lines));
    for (uint32_t s = 0; s < table->n_servers; s++) {
        uint64_t from, to;
        mst_placement_key_floats(table, s, &from, &to);
        if (from < to)
            TRY(placement_add_partition(table, &capacity, from, to - from, s));
    }
    return placement_add_dense(table, &capacity, end, table->size, lines);
}

static mst_status placement_find_sparse(const mst_params *params, const mst_grad *layout, uint64_t *n_keys)
{
    for (uint32_t i = 0; i < params->n_views; i++) {
        const mst_view *v = &params->views[i];
        if (v->offset == layout->sparse_offset && v->width == layout->width && v->size > 0) {
            *n_keys = v->size / v->width;
            return MST_OK;
        }
    }
    return mst_fail(MST_EUSAGE, "the model's sparse part at %" PRIu64 ", %" PRIu32 " wide, is not a view",
                    layout->sparse_offset, layout->width);
}

/* Divides the sparse view by the sample; *n_batches receives the estimated number of batches in the sample.
 */
static mst_status placement_make_sparse(mst_placement *table, const mst_grad *layout, uint64_t n_keys,
                                        const uint32_t *sample, size_t n, uint64_t *loads,
                                        uint64_t *n_batches)
{
    for (size_t i = 0; i < n; i++)
        if (sample[i] >= n_keys)
            return mst_fail(MST_EINPUT, "a sampled batch has key %" PRIu32 "; the model has %" PRIu64 " keys",
                            sample[i], n_keys);
    uint32_t *sorted = mst_calloc(2 * n, sizeof *sorted);
    table->key_starts = mst_calloc(table->n_servers + 1, sizeof *table->key_starts);
    if (sorted == NULL || table->key_starts == NULL) {
        mst_free(sorted);
        return mst_fail_memory();
    }
    if (n > 0)
        memcpy(sorted, sample, n * sizeof *sorted);
    placement_sort_keys(sorted, sorted + n, n);
    sparse_load load = {
        .layout = layout,
        .sample = sorted,
        .n = n,
        .n_batches = placement_most_frequent(sorted, n),
        .n_keys = n_keys,
        .offset = layout->sparse_offset,
        .width = layout->width,
    };
    placement_cut_sparse(table, &load, loads);
    *n_batches = load.n_batches > 0 ? load.n_batches : 1;
    mst_free(sorted);
    return MST_OK;
}

mst_status mst_placement_make(mst_placement *table, const mst_params *params, const mst_grad *layout,
                              uint32_t n_servers, const uint32_t *sample, size_t n, bool dense_model)
{
    mst_status st = MST_OK;
    uint64_t loads[MST_SERVER_MAX] = {0}, lines[MST_SERVER_MAX] = {0}, n_keys = 0, n_batches = 1;
    memset(table, 0, sizeof *table);
    if (n_servers == 0 || n_servers > MST_SERVER_MAX)
        return mst_fail(MST_EUSAGE, "%" PRIu32 " servers; there can be 1 to %d", n_servers, MST_SERVER_MAX);
    table->version = 1;
    table->n_servers = n_servers;
    table->size = params->size;
    uint64_t dense = table->size;
    if (layout->width != 0 && !dense_model) {
        TRY_OUT(st, placement_find_sparse(params, layout, &n_keys));
        table->sparse_offset = layout->sparse_offset;
        table->width = layout->width;
        TRY_OUT(st, placement_make_sparse(table, layout, n_keys, sample, n, loads, &n_batches));
        dense -= mst_placement_sparse_end(table) - table->sparse_offset;
    }
    placement_share_lines(loads, n_servers, dense / MST_TABLE_LINE, n_batches * MST_TABLE_LINE, lines);
    TRY_OUT(st, placement_add_partitions(table, lines));
out:
    if (st != MST_OK)
        mst_placement_fini(table);
    return st;
}

void mst_placement_fini(mst_placement *table)
{
    mst_free(table->partitions);
    mst_free(table->key_starts);
    memset(table, 0, sizeof *table);
}

/* ---- reading ---- */

/* The partition that holds a float. */
static uint32_t placement_partition_of(const mst_placement *table, uint64_t at)
{
    uint32_t low = 0, high = table->n_partitions;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (table->partitions[middle].first <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void mst_placement_share(const mst_placement *table, const mst_key_list *list, uint32_t server,
                         mst_key_list *part, uint32_t *first_key)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->n_ranges; i++) {
        uint64_t first = list->ranges[i].first, end = first + list->ranges[i].count;
        uint32_t own = n; /* pieces of this range start here; neighbours become one */
        for (uint32_t p = placement_partition_of(table, first); p < table->n_partitions; p++) {
            const mst_partition *cut = &table->partitions[p];
            if (cut->first >= end)
                break;
            if (cut->server != server)
                continue;
            uint64_t from = cut->first > first ? cut->first : first;
            uint64_t to = cut->first + cut->count < end ? cut->first + cut->count : end;
            if (from >= to)
                continue;
            if (n > own && part->ranges[n - 1].first + part->ranges[n - 1].count == from)
                part->ranges[n - 1].count += to - from;
            else if (n < MST_EXTENT_MAX)
                part->ranges[n++] = (mst_extent){.first = from, .count = to - from};
        }
    }
    size_t low = 0, high = 0;
    if (table->width != 0 && list->n_keys != 0) {
        low = mst_keys_below(list->keys, list->n_keys, table->key_starts[server]);
        high = low + mst_keys_below(list->keys + low, list->n_keys - low, table->key_starts[server + 1]);
    }
    part->n_ranges = n;
    part->n_keys = (uint32_t)(high - low);
    part->keys = list->keys != NULL ? list->keys + low : NULL;
    part->key_capacity = 0;
    *first_key = (uint32_t)low;
}

mst_status mst_placement_owned(const mst_placement *table, uint32_t server, mst_owned *out)
{
    mst_extent *extents = mst_calloc(table->n_partitions ? table->n_partitions : 1, sizeof *extents);
    if (extents == NULL)
        return mst_fail_memory();
    *out = (mst_owned){.extents = extents};
    for (uint32_t i = 0; i < table->n_partitions; i++) {
        const mst_partition *p = &table->partitions[i];
        if (p->server != server)
            continue;
        extents[out->n++] = (mst_extent){.first = p->first, .count = p->count};
        out->floats += p->count;
    }
    return MST_OK;
}

bool mst_placement_has(const mst_placement *table, uint32_t server)
{
    for (uint32_t i = 0; i < table->n_partitions; i++)
        if (table->partitions[i].server == server)
            return true;
    return false;
}

bool mst_placement_owns(const mst_placement *table, uint32_t server, uint64_t first, uint64_t count)
{
    if (count == 0 || first >= table->size || count > table->size - first)
        return false;
    for (uint32_t p = placement_partition_of(table, first);
         p < table->n_partitions && table->partitions[p].first < first + count; p++)
        if (table->partitions[p].server != server)
            return false;
    return true;
}

bool mst_placement_owns_state(const mst_placement *table, uint32_t server, const mst_params *params,
                              uint32_t slot, uint64_t first, uint64_t count)
{
    return slot <= params->n_slots && count > 0 && mst_params_weights_of(params, slot, &first, &count) &&
           mst_placement_owns(table, server, first, count);
}

/* ---- other owners ---- */

mst_status mst_placement_copy(const mst_placement *from, mst_placement *out)
{
    *out = *from;
    out->key_starts = NULL;
    out->partitions = mst_calloc(from->n_partitions, sizeof *out->partitions);
    if (from->width != 0)
        out->key_starts = mst_calloc(from->n_servers + 1, sizeof *out->key_starts);
    if (out->partitions == NULL || (from->width != 0 && out->key_starts == NULL)) {
        mst_placement_fini(out);
        return mst_fail_memory();
    }
    memcpy(out->partitions, from->partitions, from->n_partitions * sizeof *out->partitions);
    if (from->width != 0)
        memcpy(out->key_starts, from->key_starts, (from->n_servers + 1) * sizeof *out->key_starts);
    return MST_OK;
}

void mst_placement_move(mst_placement *table, uint32_t from, uint32_t to)
{
    table->version++;
    for (uint32_t i = 0; i < table->n_partitions; i++)
        if (table->partitions[i].server == from)
            table->partitions[i].server = to;
    if (table->width != 0 && to > from)
        table->key_starts[to] = table->key_starts[from];
    else if (table->width != 0)
        table->key_starts[from] = table->key_starts[from + 1];
}
