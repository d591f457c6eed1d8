/* The partition table: its invariants over random models, balance on skewed samples, parts of lists, and JSON
 * that is refused with a sentence. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "ps/placement.h"

#define MAX_SERVERS 8

/* ---- checks ---- */

static uint64_t round_line(uint64_t floats)
{
    return (floats + 15) / 16 * 16;
}

/* Invariants 1 to 3 of placement.h. */
static void check_table(const mst_placement *t, uint64_t size, const mst_view *sparse)
{
    uint64_t at = 0, low = size, high = size;
    assert_int_equal(t->size, size);
    if (sparse != NULL) {
        low = sparse->offset;
        high = round_line(low + sparse->size);
        assert_int_equal(t->width, sparse->width);
        assert_int_equal(t->sparse_offset, sparse->offset);
        assert_int_equal(t->key_starts[0], 0);
        assert_int_equal(t->key_starts[t->n_servers], sparse->size / sparse->width);
        for (uint32_t s = 0; s < t->n_servers; s++) {
            assert_true(t->key_starts[s] <= t->key_starts[s + 1]);
            assert_true(t->key_starts[s] == t->key_starts[t->n_servers] ||
                        (uint64_t)t->key_starts[s] * t->width % 16 == 0);
        }
    } else {
        assert_int_equal(t->width, 0);
    }
    for (uint32_t i = 0; i < t->n_partitions; i++) {
        const mst_partition *p = &t->partitions[i];
        assert_int_equal(p->first, at);
        assert_true(p->count > 0 && p->count % 16 == 0);
        assert_true(p->server < t->n_servers);
        at += p->count;
        if (p->first >= low && p->first < high) {
            uint64_t key = (p->first - low) / sparse->width;
            assert_true(at <= high);
            assert_true(key >= t->key_starts[p->server] && key < t->key_starts[p->server + 1]);
        } else {
            assert_true(p->count <= MST_PARTITION_FLOATS);
        }
    }
    assert_int_equal(at, size);
}

static void check_same(const mst_placement *a, const mst_placement *b)
{
    assert_int_equal(a->version, b->version);
    assert_int_equal(a->n_servers, b->n_servers);
    assert_int_equal(a->size, b->size);
    assert_int_equal(a->n_partitions, b->n_partitions);
    for (uint32_t i = 0; i < a->n_partitions; i++) {
        assert_int_equal(a->partitions[i].first, b->partitions[i].first);
        assert_int_equal(a->partitions[i].count, b->partitions[i].count);
        assert_int_equal(a->partitions[i].server, b->partitions[i].server);
    }
    assert_int_equal(a->width, b->width);
    if (a->width != 0) {
        assert_int_equal(a->sparse_offset, b->sparse_offset);
        assert_memory_equal(a->key_starts, b->key_starts, (a->n_servers + 1) * sizeof *a->key_starts);
    }
}

static void check_json(const mst_placement *t)
{
    mst_placement back;
    json_t *json = mst_placement_json(t);
    assert_non_null(json);
    assert_int_equal(mst_placement_from_json(&back, json), MST_OK);
    check_same(t, &back);
    mst_placement_fini(&back);
    json_decref(json);
}

/* Every float of a list is in exactly one server's part, in the list's order. */
static void check_parts(const mst_placement *t, const mst_key_list *list)
{
    static mst_key_list part;
    uint64_t floats = 0;
    uint32_t keys = 0, first_key;
    for (uint32_t s = 0; s < t->n_servers; s++) {
        uint64_t end = 0;
        mst_placement_share(t, list, s, &part, &first_key);
        assert_int_equal(part.key_capacity, 0);
        if (part.n_keys != 0) {
            assert_int_equal(first_key, keys);
            assert_ptr_equal(part.keys, list->keys + keys);
            assert_true(part.keys[0] >= t->key_starts[s]);
            assert_true(part.keys[part.n_keys - 1] < t->key_starts[s + 1]);
        }
        keys += part.n_keys;
        floats += mst_key_list_range_floats(&part);
        for (uint32_t i = 0; i < part.n_ranges; i++) {
            uint64_t from = part.ranges[i].first, to = from + part.ranges[i].count;
            bool inside = false;
            assert_true(from >= end && to > from);
            end = to;
            for (uint32_t r = 0; r < list->n_ranges; r++)
                inside |=
                    from >= list->ranges[r].first && to <= list->ranges[r].first + list->ranges[r].count;
            assert_true(inside);
            for (uint32_t p = 0; p < t->n_partitions; p++)
                if (t->partitions[p].first < to && from < t->partitions[p].first + t->partitions[p].count)
                    assert_int_equal(t->partitions[p].server, s);
        }
    }
    assert_int_equal(keys, t->width != 0 ? list->n_keys : 0);
    assert_int_equal(floats, mst_key_list_range_floats(list));
}

static void check_owned(const mst_placement *t)
{
    uint64_t floats = 0;
    for (uint32_t s = 0; s < t->n_servers; s++) {
        mst_owned owned;
        uint64_t sum = 0;
        assert_int_equal(mst_placement_owned(t, s, &owned), MST_OK);
        for (uint32_t i = 0; i < owned.n; i++)
            sum += owned.extents[i].count;
        assert_int_equal(sum, owned.floats);
        assert_int_equal(mst_placement_has(t, s), owned.floats > 0);
        floats += sum;
        mst_free(owned.extents);
    }
    assert_int_equal(floats, t->size);
}

/* ---- models ---- */

typedef struct model {
    mst_params params;
    mst_grad layout;
    const mst_view *sparse; /* or NULL */
} model;

/* Views of random sizes; at most one of them sparse, perhaps with a dense prefix. */
static void random_model(model *m, mst_rng *rng)
{
    memset(m, 0, sizeof *m);
    uint32_t n_views = 1 + mst_rng_below(rng, 4), sparse = mst_rng_below(rng, n_views + 1);
    static const uint32_t widths[] = {1, 2, 3, 10, 16, 48};
    for (uint32_t i = 0; i < n_views; i++) {
        char name[8] = {'v', (char)('0' + i), 0};
        uint32_t width = widths[mst_rng_below(rng, 6)], most = mst_rng_below(rng, 2) ? 3000000 : 300, index;
        uint64_t dims[2] = {1 + mst_rng_below(rng, most / width), width};
        mst_range *range = &m->layout.ranges[m->layout.n_ranges];
        assert_int_equal(
            mst_params_add(&m->params, name, MST_VIEW_TRAINABLE, i == sparse ? width : 0, 2, dims, &index),
            MST_OK);
        const mst_view *view = &m->params.views[index];
        if (i == sparse) {
            m->sparse = view;
            m->layout.sparse_offset = view->offset;
            m->layout.width = width;
            uint64_t prefix = mst_rng_below(rng, 2) ? mst_rng_below(rng, 20) : 0;
            prefix = prefix < dims[0] ? prefix : dims[0];
            if (prefix > 0) {
                *range = (mst_range){.offset = view->offset, .size = prefix * width};
                m->layout.n_ranges++;
            }
        } else {
            *range = (mst_range){.offset = view->offset, .size = view->size};
            m->layout.n_ranges++;
        }
    }
}

static void list_of(const model *m, mst_key_list *list, mst_rng *rng)
{
    list->n_ranges = list->n_keys = 0;
    for (uint32_t i = 0; i < m->layout.n_ranges; i++)
        list->ranges[list->n_ranges++] =
            (mst_extent){.first = m->layout.ranges[i].offset, .count = m->layout.ranges[i].size};
    if (m->sparse == NULL)
        return;
    uint64_t n_keys = m->sparse->size / m->sparse->width, key = mst_rng_below(rng, 3);
    assert_int_equal(mst_key_list_room(list, 1000), MST_OK);
    for (; key < n_keys && list->n_keys < 1000; key += 1 + mst_rng_below(rng, (uint32_t)(n_keys / 500 + 1)))
        list->keys[list->n_keys++] = (uint32_t)key;
}

static void invariants(void **state)
{
    (void)state;
    static mst_key_list list;
    static uint32_t sample[5000];
    mst_rng rng;
    mst_rng_init(&rng, 1, MST_RNG_TEST, 0);
    for (int round = 0; round < 200; round++) {
        model m;
        random_model(&m, &rng);
        size_t n = 0;
        if (m.sparse != NULL && mst_rng_below(&rng, 4) != 0)
            n = mst_rng_below(&rng, 5000);
        for (size_t i = 0; i < n; i++) {
            double u = mst_rng_uniform(&rng);
            sample[i] = (uint32_t)(u * u * u * (double)(m.sparse->size / m.sparse->width));
        }
        list_of(&m, &list, &rng);
        for (uint32_t servers = 1; servers <= MAX_SERVERS; servers++) {
            for (int dense = 0; dense < 2; dense++) {
                mst_placement t;
                assert_int_equal(mst_placement_make(&t, &m.params, &m.layout, servers, sample, n, dense),
                                 MST_OK);
                check_table(&t, m.params.size, dense ? NULL : m.sparse);
                check_json(&t);
                check_parts(&t, &list);
                check_owned(&t);
                mst_placement_fini(&t);
            }
        }
    }
    mst_key_list_fini(&list);
}

/* ---- balance ---- */

/* Most loaded server over the mean, of floats by server. */
static double excess(const uint64_t *floats, uint32_t n)
{
    uint64_t sum = 0, most = 0;
    for (uint32_t s = 0; s < n; s++) {
        sum += floats[s];
        most = floats[s] > most ? floats[s] : most;
    }
    return (double)most * n / (double)sum - 1;
}

/* What batches of the whole sample carry per server: their keys and every range once per batch. */
static void carried(const mst_placement *t, const model *m, const uint32_t *sample, size_t n,
                    uint64_t n_batches, uint64_t *floats)
{
    static mst_key_list ranges, part;
    memset(floats, 0, t->n_servers * sizeof *floats);
    for (size_t i = 0; i < n; i++) {
        uint32_t s = 0;
        while (sample[i] >= t->key_starts[s + 1])
            s++;
        floats[s] += t->width;
    }
    ranges.n_ranges = 0;
    for (uint32_t i = 0; i < m->layout.n_ranges; i++)
        ranges.ranges[ranges.n_ranges++] =
            (mst_extent){.first = m->layout.ranges[i].offset, .count = m->layout.ranges[i].size};
    for (uint32_t s = 0; s < t->n_servers; s++) {
        uint32_t first_key;
        mst_placement_share(t, &ranges, s, &part, &first_key);
        floats[s] += n_batches * mst_key_list_range_floats(&part);
    }
}

/* Batches of distinct keys, most of them among the first, as click logs have them. */
static size_t skewed_sample(uint32_t n_keys, uint32_t n_batches, uint32_t per_batch, uint32_t **out)
{
    uint32_t *keys = calloc((size_t)n_batches * per_batch, sizeof *keys);
    uint8_t *seen = calloc(n_keys, 1);
    size_t n = 0;
    mst_rng rng;
    mst_rng_init(&rng, 7, MST_RNG_TEST, per_batch);
    for (uint32_t b = 0; b < n_batches; b++) {
        size_t from = n;
        for (uint32_t i = 0; i < per_batch; i++) {
            uint32_t key = (uint32_t)(pow(n_keys, mst_rng_uniform(&rng)) - 1);
            if (!seen[key])
                keys[n++] = key;
            seen[key] = 1;
        }
        for (size_t i = from; i < n; i++)
            seen[keys[i]] = 0;
    }
    free(seen);
    *out = keys;
    return n;
}

static void model_of(model *m, uint64_t n_keys, uint32_t width, uint32_t prefix, uint64_t dense)
{
    memset(m, 0, sizeof *m);
    assert_int_equal(
        mst_params_add(&m->params, "weight", MST_VIEW_TRAINABLE, width, 2, (uint64_t[]){n_keys, width}, NULL),
        MST_OK);
    assert_int_equal(mst_params_add(&m->params, "bias", MST_VIEW_TRAINABLE, 0, 1, (uint64_t[]){dense}, NULL),
                     MST_OK);
    m->sparse = &m->params.views[0];
    m->layout.width = width;
    m->layout.n_ranges = 2;
    m->layout.ranges[0] = (mst_range){.offset = 0, .size = (uint64_t)prefix * width};
    m->layout.ranges[1] = (mst_range){.offset = m->params.views[1].offset, .size = dense};
}

static void balance_sparse(void **state)
{
    (void)state;
    static const struct {
        uint32_t width, prefix, per_batch;
        uint64_t dense;
    } cases[] = {
        {1, 13, 3000, 1}, {1, 13, 300, 1}, {10, 13, 300, 10}, {1, 100, 1000, 5000}, {4, 0, 100, 300000},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        model m;
        uint32_t *sample, n_batches = 50;
        size_t n = skewed_sample(1000000, n_batches, cases[c].per_batch, &sample);
        model_of(&m, 1000000, cases[c].width, cases[c].prefix, cases[c].dense);
        for (uint32_t servers = 2; servers <= 3; servers++) {
            mst_placement t;
            uint64_t floats[3];
            assert_int_equal(mst_placement_make(&t, &m.params, &m.layout, servers, sample, n, false), MST_OK);
            carried(&t, &m, sample, n, n_batches, floats);
            assert_true(excess(floats, servers) <= 0.15);
            mst_placement_fini(&t);
        }
        free(sample);
    }
}

/* Without a sample keys are cut equally. */
static void balance_unknown(void **state)
{
    (void)state;
    model m;
    mst_placement t;
    model_of(&m, 3000000, 1, 13, 1);
    assert_int_equal(mst_placement_make(&t, &m.params, &m.layout, 3, NULL, 0, false), MST_OK);
    assert_in_range(t.key_starts[1], 1000000 - 16, 1000000 + 16);
    assert_in_range(t.key_starts[2], 2000000 - 16, 2000000 + 16);
    mst_placement_fini(&t);
}

static void balance_dense(void **state)
{
    (void)state;
    static const uint64_t features[] = {200, 784, 4096, 3000000};
    for (size_t f = 0; f < sizeof features / sizeof *features; f++) {
        model m = {0};
        mst_params_add(&m.params, "weight", MST_VIEW_TRAINABLE, 0, 2, (uint64_t[]){10, features[f]}, NULL);
        mst_params_add(&m.params, "bias", MST_VIEW_TRAINABLE, 0, 1, (uint64_t[]){10}, NULL);
        m.layout.n_ranges = 2;
        m.layout.ranges[0] = (mst_range){.offset = 0, .size = 10 * features[f]};
        m.layout.ranges[1] = (mst_range){.offset = m.params.views[1].offset, .size = 10};
        for (uint32_t servers = 2; servers <= MAX_SERVERS; servers++) {
            mst_placement t;
            uint64_t floats[MAX_SERVERS];
            assert_int_equal(mst_placement_make(&t, &m.params, &m.layout, servers, NULL, 0, false), MST_OK);
            carried(&t, &m, NULL, 0, 1, floats);
            assert_true(excess(floats, servers) <= 0.15);
            uint32_t runs = 1; /* one after the other: a request names few ranges */
            for (uint32_t i = 1; i < t.n_partitions; i++)
                runs += t.partitions[i].server != t.partitions[i - 1].server;
            assert_int_equal(runs, servers);
            mst_placement_fini(&t);
        }
    }
}

/* ---- refusals ---- */

static void bad_calls(void **state)
{
    (void)state;
    model m;
    mst_placement t;
    model_of(&m, 100, 1, 0, 1);
    assert_int_equal(mst_placement_make(&t, &m.params, &m.layout, 0, NULL, 0, false), MST_EUSAGE);
    assert_int_equal(mst_placement_make(&t, &m.params, &m.layout, 2000, NULL, 0, false), MST_EUSAGE);
    assert_string_equal(mst_error_text(), "2000 servers; there can be 1 to 1024");
    assert_int_equal(mst_placement_make(&t, &m.params, &m.layout, 2, (uint32_t[]){3, 100}, 2, false),
                     MST_EINPUT);
    assert_string_equal(mst_error_text(), "a sampled batch has key 100; the model has 100 keys");
    m.layout.sparse_offset = 16;
    assert_int_equal(mst_placement_make(&t, &m.params, &m.layout, 2, NULL, 0, false), MST_EUSAGE);
    assert_null(t.partitions);
    mst_placement_fini(&t);
}

static void no_memory(void **state)
{
    (void)state;
    model m;
    mst_placement t;
    mst_alloc_stats before, after;
    static uint32_t sample[] = {1, 2, 3};
    model_of(&m, 100, 1, 0, 3000000);
    mst_alloc_stats_get(&before);
    for (uint64_t k = 1;; k++) {
        mst_alloc_fail_at(k);
        mst_status st = mst_placement_make(&t, &m.params, &m.layout, 2, sample, 3, false);
        mst_alloc_fail_at(0);
        mst_placement_fini(&t);
        if (st == MST_OK) {
            assert_true(k > 3);
            break;
        }
        assert_int_equal(st, MST_ENOMEM);
    }
    mst_alloc_stats_get(&after);
    assert_int_equal(after.blocks, before.blocks);
}

static void bad_json(void **state)
{
    (void)state;
    static const struct {
        const char *json, *sentence;
    } cases[] = {
        {"[]", "partition table: not a JSON object"},
        {"{}", "partition table: the version is not a whole number"},
        {"{\"version\":1,\"servers\":0,\"size\":32,\"partitions\":[32,0]}",
         "partition table: the number of servers is 0, not in 1 to 1024"},
        {"{\"version\":-1,\"servers\":1,\"size\":32,\"partitions\":[32,0]}",
         "partition table: the version is -1, not in 0 to 4294967295"},
        {"{\"version\":1,\"servers\":1,\"size\":33,\"partitions\":[33,0]}",
         "partition table: a vector of 33 floats, not a multiple of 16"},
        {"{\"version\":1,\"servers\":1,\"size\":32,\"partitions\":[32]}",
         "partition table: partitions are not an array of pairs (count, server)"},
        {"{\"version\":1,\"servers\":1,\"size\":32}",
         "partition table: partitions are not an array of pairs (count, server)"},
        {"{\"version\":1,\"servers\":1,\"size\":32,\"partitions\":[16,0]}",
         "partition table: the partitions cover 16 floats of 32"},
        {"{\"version\":1,\"servers\":1,\"size\":32,\"partitions\":[16,0,32,0]}",
         "partition table: the count of a partition is 32, not in 16 to 16"},
        {"{\"version\":1,\"servers\":1,\"size\":32,\"partitions\":[24,0,8,0]}",
         "partition table: a partition of 24 floats, not a multiple of 16"},
        {"{\"version\":1,\"servers\":1,\"size\":32,\"partitions\":[16,0,16,1]}",
         "partition table: the server of a partition is 1, not in 0 to 0"},
        {"{\"version\":1,\"servers\":1,\"size\":32,\"partitions\":[16,0,8,0,8,0]}",
         "partition table: 3 partitions of 32 floats"},
        {"{\"version\":1,\"servers\":1,\"size\":1048592,\"partitions\":[1048592,0]}",
         "partition table: a dense partition of 1048592 floats; at most 1048576 are possible"},
        {"{\"version\":1,\"servers\":2,\"size\":32,\"partitions\":[16,0,16,1],\"sparse\":[0,1,0,16]}",
         "partition table: sparse is not an array of offset, width and 3 starts"},
        {"{\"version\":1,\"servers\":2,\"size\":32,\"partitions\":[16,0,16,1],\"sparse\":[0,1,0,20,32]}",
         "partition table: keys are cut at 20, which is not a multiple of 16 floats"},
        {"{\"version\":1,\"servers\":2,\"size\":32,\"partitions\":[16,0,16,1],\"sparse\":[0,1,0,32,16]}",
         "partition table: where a server's keys begin is 16, not in 32 to 32"},
        {"{\"version\":1,\"servers\":2,\"size\":32,\"partitions\":[16,0,16,1],\"sparse\":[0,1,1,16,32]}",
         "partition table: where a server's keys begin is 1, not in 0 to 0"},
        {"{\"version\":1,\"servers\":2,\"size\":32,\"partitions\":[16,0,16,1],\"sparse\":[0,1,0,0,0]}",
         "partition table: a sparse view without keys"},
        {"{\"version\":1,\"servers\":2,\"size\":32,\"partitions\":[16,0,16,1],\"sparse\":[8,1,0,16,16]}",
         "partition table: the sparse view begins at 8, not at a multiple of 16"},
        {"{\"version\":1,\"servers\":2,\"size\":32,\"partitions\":[16,1,16,0],\"sparse\":[0,1,0,16,32]}",
         "partition table: the floats at 0 are server 1's, but the keys there are server 0's"},
        {"{\"version\":1,\"servers\":2,\"size\":32,\"partitions\":[32,0],\"sparse\":[0,1,0,16,32]}",
         "partition table: the 32 floats at 0 are more than one server's keys, or partly keys"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mst_placement t;
        json_t *json = json_loads(cases[i].json, 0, NULL);
        assert_non_null(json);
        assert_int_equal(mst_placement_from_json(&t, json), MST_EINPUT);
        assert_string_equal(mst_error_text(), cases[i].sentence);
        assert_null(t.partitions);
        json_decref(json);
    }
}

/* Floats that lie in too many places for a list. */
static void bad_runs(void **state)
{
    (void)state;
    mst_placement t;
    json_t *partitions = json_array();
    for (int i = 0; i < 400; i++) {
        json_array_append_new(partitions, json_integer(16));
        json_array_append_new(partitions, json_integer(i % 2));
    }
    json_t *json =
        json_pack("{s:i,s:i,s:i,s:o}", "version", 1, "servers", 2, "size", 6400, "partitions", partitions);
    assert_int_equal(mst_placement_from_json(&t, json), MST_EINPUT);
    assert_string_equal(mst_error_text(), "partition table: server 0's floats lie in more than 192 places");
    json_decref(json);
}

static void lists(void **state)
{
    (void)state;
    static mst_key_list list;
    uint32_t borrowed[2] = {1, 2};
    list.keys = borrowed;
    mst_key_list_fini(&list); /* not its own: not freed */
    list.keys = borrowed;
    assert_int_equal(mst_key_list_room(&list, 10), MST_OK);
    assert_ptr_not_equal(list.keys, borrowed);
    assert_true(list.key_capacity >= 10);
    list.keys[9] = 1;
    mst_alloc_fail_at(1);
    assert_int_equal(mst_key_list_room(&list, 100), MST_ENOMEM);
    assert_non_null(strstr(mst_error_text(), "out of memory: cannot allocate "));
    mst_key_list_fini(&list);
    assert_null(list.keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invariants),    cmocka_unit_test(balance_sparse), cmocka_unit_test(balance_unknown),
        cmocka_unit_test(balance_dense), cmocka_unit_test(bad_calls),      cmocka_unit_test(no_memory),
        cmocka_unit_test(bad_json),      cmocka_unit_test(bad_runs),       cmocka_unit_test(lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
