/* The partition table of a job, made from the sample of its first worker, divides Criteo-like data of
 * 33,762,578 features evenly among servers: for rows outside the sample, keys to apply and bytes per batch
 * are within 15% of the mean for 2 and 3 servers. Equal ranges of keys are far from that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "job_trial.h"
#include "ps/proto.h"
#include "tensor/row_localiser.h"

#define FEATURES  MST_GEN_CRITEO_FEATURES
#define NUMERIC   MST_GEN_CRITEO_NUMERIC
#define N_SERVERS 3

static int make_data(void **state)
{
    if (trial_make_root(state) != 0)
        return -1;
    trial_clicks("train.cache", 12000, 0, FEATURES);
    return 0;
}

/* Which keys servers have, as the checkpoint's parts say it: starts[s] is server s's first. */
static void read_starts(const char *run, int servers, uint32_t *starts)
{
    char *checkpoint = NULL, path[800];
    assert_int_equal(mst_checkpoint_find(run, &checkpoint), MST_OK);
    snprintf(path, sizeof path, "%s/manifest.json", checkpoint);
    mst_free(checkpoint);
    json_t *manifest = json_load_file(path, 0, NULL), *parts = json_object_get(manifest, "parts");
    assert_int_equal(json_array_size(parts), servers);
    for (int s = 0; s < servers; s++) {
        json_t *tensors = json_object_get(json_array_get(parts, (size_t)s), "tensors"), *tensor;
        size_t i;
        bool found = false;
        json_array_foreach(tensors, i, tensor)
        {
            json_int_t first = json_integer_value(json_object_get(tensor, "first"));
            if (strcmp(json_string_value(json_object_get(tensor, "name")), "weight") != 0 || found)
                continue;
            starts[s] = (uint32_t)first;
            found = true;
        }
        assert_true(found);
    }
    starts[servers] = FEATURES;
    for (int s = 0; s < servers; s++)
        assert_true(starts[s] < starts[s + 1]);
    json_decref(manifest);
}

/* Batches of later rows, and what servers have of them. */
typedef struct load {
    int servers;
    uint32_t batch, starts[N_SERVERS + 1];
    double keys[N_SERVERS], bytes[N_SERVERS], equal[N_SERVERS];
    mst_row_localiser *localiser;
    mst_key_list list;
    mst_row *rows;
    uint8_t *packed;
} load;

/* Both ways: values as fp32, keys as they are packed. */
static void add_batch(load *l, const mst_batch *batch)
{
    assert_int_equal(mst_row_localise(l->localiser, 0, batch, NUMERIC, NUMERIC, &l->list, l->rows), MST_OK);
    uint32_t at = 0;
    for (int s = 0; s < l->servers; s++) {
        mst_key_list part = {.keys = l->list.keys + at};
        mst_step_head head = {0};
        for (; at < l->list.n_keys && l->list.keys[at] < l->starts[s + 1]; at++)
            part.n_keys++;
        assert_true(mst_step_list_bound(&part) <= 1u << 20);
        l->keys[s] += part.n_keys;
        l->bytes[s] += (double)(mst_step_list_encode(&part, &head, l->packed) + 8ull * part.n_keys);
    }
    for (uint32_t i = 0; i < l->list.n_keys; i++)
        l->equal[(uint64_t)l->list.keys[i] * (uint64_t)l->servers / FEATURES]++;
}

static mst_status add_chunk(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    load *l = arg;
    (void)first_row;
    for (uint32_t from = 0; from + l->batch <= chunk->n_rows; from += l->batch) {
        mst_row rows[1000];
        for (uint32_t i = 0; i < l->batch; i++)
            mst_chunk_row(chunk, from + i, &rows[i]);
        add_batch(l, &(mst_batch){.rows = rows, .n_rows = l->batch});
    }
    return MST_OK;
}

/* The largest distance from the mean, as a share of it. */
static double imbalance(const double *x, int n)
{
    double sum = 0.0, most = 0.0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    for (int i = 0; i < n; i++)
        most = fmax(most, fabs(x[i] * n / sum - 1.0));
    return most;
}

static void servers_share_alike(void **state)
{
    static const uint32_t batches[] = {100, 1000};
    (void)state;
    for (int servers = 2; servers <= 3; servers++)
        for (int b = 0; b < 2; b++) {
            trial t;
            load l = {.servers = servers, .batch = batches[b]};
            job_init(&t, "train.cache", NULL, servers, 2);
            trial_int(&t, "features", FEATURES);
            trial_int(&t, "batch", batches[b]);
            trial_set(&t, "steps", "3");
            job_must_run(&t, NULL);
            read_starts(t.train.run, servers, l.starts);
            trial_fini(&t);

            l.rows = calloc(l.batch, sizeof *l.rows);
            l.packed = malloc(1u << 20);
            assert_true(l.rows != NULL && l.packed != NULL);
            assert_int_equal(
                mst_row_localiser_new(mst_kernels_get(mst_isa_best()), FEATURES, 1, &l.localiser), MST_OK);
            mst_gen_criteo_options gen = {
                .rows = 10000, .first_row = 5000000, .features = FEATURES, .seed = 3, .n_threads = 1};
            assert_int_equal(mst_gen_criteo(&gen, add_chunk, &l), MST_OK);
            assert_true(l.keys[0] > 1000);
            double keys = imbalance(l.keys, servers), bytes = imbalance(l.bytes, servers),
                   equal = imbalance(l.equal, servers);
            if (!(keys < 0.15 && bytes < 0.15))
                print_error("%d servers, batch %u: keys %g, bytes %g, by equal ranges %g\n", servers, l.batch,
                            keys, bytes, equal);
            assert_true(keys < 0.15 && bytes < 0.15);
            assert_true(servers == 2 || equal > 0.3);
            mst_key_list_fini(&l.list);
            mst_row_localiser_destroy(l.localiser);
            free(l.rows);
            free(l.packed);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(servers_share_alike)};
    return cmocka_run_group_tests(tests, make_data, trial_remove_root);
}
