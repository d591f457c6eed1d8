/* Evaluation on pulled weights: the list has the keys of the rows, and the figures equal, bit for bit, those
 * of an evaluator on the store of the values; for linear models with a dense prefix, sparse and dense
 * softmax, and the whole vector. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "fake_dataset.h"
#include "job/pulled_eval.h"
#include "train/assembly.h"

#define N_ROWS   500
#define FEATURES 5000
#define DENSE    2

typedef struct rows_arg {
    uint64_t seed;
    uint32_t classes;
} rows_arg;

static mst_status make_row(void *arg, uint64_t row, mst_chunk_builder *b)
{
    const rows_arg *a = arg;
    mst_rng rng;
    mst_rng_init(&rng, a->seed, 3, row);
    TRY(mst_chunk_builder_room(b, DENSE + 4));
    for (uint32_t i = 0; i < DENSE; i++)
        mst_chunk_builder_add(b, i, (float)(mst_rng_uniform(&rng) - 0.5));
    uint32_t key = DENSE;
    for (uint32_t i = 0; i < 4; i++) {
        key += 1 + mst_rng_below(&rng, 1000);
        mst_chunk_builder_add(b, key, (float)(1 + mst_rng_below(&rng, 4)) / 2.0f);
    }
    return mst_chunk_builder_end_row(b, (float)mst_rng_below(&rng, a->classes), 1.0f);
}

typedef struct bench {
    rows_arg test_rows, valid_rows;
    mst_assembly assembly;
    mst_model_options model;
    mst_shape shape;
    fake_dataset *test, *valid;
    mst_evaluator_options test_options, valid_options;
    mst_evaluator *test_evaluator, *valid_evaluator; /* on pulled weights */
    mst_status open_status;
    bool no_valid, no_test;
} bench;

static void bench_init(bench *b, const char *model, uint32_t classes, uint32_t features)
{
    memset(b, 0, sizeof *b);
    b->test_rows = (rows_arg){1, classes};
    b->valid_rows = (rows_arg){2, classes};
    b->model = (mst_model_options){.model = strcmp(model, "softmax") == 0, .bias = true, .pos_weight = 1.0};
    b->shape = (mst_shape){.n_features = features, .n_dense = DENSE, .n_classes = classes};
    b->test = fake_new(FAKE_CHEAP, N_ROWS, 64, make_row, &b->test_rows);
    b->valid = fake_new(FAKE_COSTLY, N_ROWS, 50, make_row, &b->valid_rows);
    b->test_options = (mst_evaluator_options){
        .n_threads = 2, .batch = 70, .auc_by = classes == 2 && b->model.model == 0 ? "2" : NULL};
    b->valid_options = (mst_evaluator_options){.n_threads = 1,
                                               .batch = 33,
                                               .first_rows = 100,
                                               .valid_seed = 9,
                                               .held_out = 0.4,
                                               .keep = MST_KEEP_HELD_OUT};
    assert_int_equal(mst_assembly_init(&b->assembly, &b->model, &b->shape, mst_kernels_get(mst_isa_best()),
                                       &(mst_store_spec){0}, 1),
                     MST_OK);
    mst_rng rng;
    mst_rng_init(&rng, 4, 4, 4);
    for (uint64_t i = 0; i < b->assembly.params.size; i++)
        b->assembly.params.w[i] = (float)(mst_rng_uniform(&rng) - 0.5);
}

static void bench_fini(bench *b)
{
    mst_evaluator_destroy(b->test_evaluator);
    mst_evaluator_destroy(b->valid_evaluator);
    mst_dataset_destroy(&b->test->base);
    mst_dataset_destroy(&b->valid->base);
    mst_assembly_fini(&b->assembly);
}

static mst_status open_sets(void *arg, const atomic_bool *stop, mst_evaluator **test, mst_evaluator **valid)
{
    bench *b = arg;
    if (b->open_status != MST_OK)
        return mst_fail(b->open_status, "test.data: no such file");
    b->test_options.stop = b->valid_options.stop = stop;
    if (!b->no_test)
        TRY(mst_evaluator_new(b->assembly.model, NULL, &b->test->base, &b->test_options, &b->test_evaluator));
    if (!b->no_valid)
        TRY(mst_evaluator_new(b->assembly.model, NULL, &b->valid->base, &b->valid_options,
                              &b->valid_evaluator));
    *test = b->test_evaluator;
    *valid = b->valid_evaluator;
    return MST_OK;
}

static mst_pulled_eval *pulled_new(bench *b, bool dense_model)
{
    mst_pulled_eval_options options = {.model = b->assembly.model,
                                       .params = &b->assembly.params,
                                       .dense_model = dense_model,
                                       .arg = b,
                                       .open = open_sets};
    mst_pulled_eval *pulled = NULL;
    assert_int_equal(mst_pulled_eval_new(&options, &pulled), MST_OK);
    return pulled;
}

/* The values of a list, as servers would send them. */
static float *values_of(const bench *b, const mst_key_list *list, uint32_t width)
{
    uint64_t at = 0, ranges = mst_key_list_range_floats(list);
    uint64_t start = width > 0 ? (ranges + width - 1) / width * width : ranges;
    float *values = calloc(start + (uint64_t)list->n_keys * width + 1, sizeof *values);
    for (uint32_t i = 0; i < list->n_ranges; i++) {
        assert_true(i == 0 || list->ranges[i].first >= list->ranges[i - 1].first + list->ranges[i - 1].count);
        memcpy(values + at, b->assembly.params.w + list->ranges[i].first,
               list->ranges[i].count * sizeof *values);
        at += list->ranges[i].count;
    }
    for (uint32_t i = 0; i < list->n_keys; i++) {
        assert_true(list->keys[i] >= DENSE && (i == 0 || list->keys[i] > list->keys[i - 1]));
        memcpy(values + start + (uint64_t)i * width, b->assembly.params.w + (uint64_t)list->keys[i] * width,
               width * sizeof *values);
    }
    return values;
}

static void expect_same(bench *b, fake_dataset *data, const mst_evaluator_options *options,
                        const json_t *json)
{
    mst_evaluator *e = NULL;
    mst_result direct, pulled;
    assert_int_equal(mst_evaluator_new(b->assembly.model, &b->assembly.params, &data->base, options, &e),
                     MST_OK);
    assert_int_equal(mst_evaluator_run(e, &direct), MST_OK);
    assert_true(mst_result_from_json(json, &pulled));
    assert_int_equal(pulled.rows, direct.rows);
    assert_true(pulled.loss == direct.loss);
    assert_true(pulled.accuracy == direct.accuracy);
    for (const mst_result_figure *f = mst_result_figures; f->name != NULL; f++) {
        double a = mst_result_value(&pulled, f), c = mst_result_value(&direct, f);
        assert_true(a == c || (isnan(a) && isnan(c)));
    }
    assert_int_equal(pulled.groups, direct.groups);
    assert_int_equal(pulled.n_tenths, direct.n_tenths);
    mst_evaluator_destroy(e);
}

static void check_same(const char *model, uint32_t classes, uint32_t features, uint32_t width,
                       bool dense_model)
{
    bench b;
    bench_init(&b, model, classes, features);
    mst_key_list *list = calloc(1, sizeof *list);
    json_t *result = NULL;
    mst_pulled_eval *pulled = pulled_new(&b, dense_model);
    mst_worker_evaluation evaluation = mst_pulled_eval_for_worker(pulled);
    assert_int_equal(evaluation.open(evaluation.arg, list), MST_OK);
    if (width > 0) { /* 600 rows, four of up to 4000 keys each */
        assert_true(list->n_keys > 1000 && list->n_keys < 4 * 700);
    } else {
        assert_int_equal(list->n_keys, 0);
    }
    float *values = values_of(&b, list, width);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(evaluation.run(evaluation.arg, values, &result), MST_OK);
        expect_same(&b, b.test, &b.test_options, json_object_get(result, "test"));
        expect_same(&b, b.valid, &b.valid_options, json_object_get(result, "valid"));
        json_decref(result);
    }
    free(values);
    mst_key_list_fini(list);
    free(list);
    bench_fini(&b);
    mst_pulled_eval_destroy(pulled);
}

static void same_figures(void **state)
{
    (void)state;
    check_same("logreg", 2, FEATURES, 1, false);
    check_same("logreg", 2, FEATURES, 0, true);
    check_same("softmax", 4, FEATURES, 4, false);
    check_same("softmax", 4, 4096, 0, false);
    check_same("softmax", 4, FEATURES, 0, true);
}

static void sets_that_are_not_there(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, "logreg", 2, FEATURES);
    b.no_test = b.no_valid = true;
    mst_key_list *list = calloc(1, sizeof *list);
    mst_pulled_eval *pulled = pulled_new(&b, false);
    mst_worker_evaluation evaluation = mst_pulled_eval_for_worker(pulled);
    assert_int_equal(evaluation.open(evaluation.arg, list), MST_OK);
    assert_int_equal(list->n_ranges + list->n_keys, 0);
    mst_pulled_eval_destroy(pulled);
    b.open_status = MST_EIO;
    pulled = pulled_new(&b, false);
    evaluation = mst_pulled_eval_for_worker(pulled);
    assert_int_equal(evaluation.open(evaluation.arg, list), MST_EIO);
    mst_pulled_eval_destroy(pulled);
    mst_key_list_fini(list);
    free(list);
    bench_fini(&b);
}

static void empty_sets_are_named(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, "logreg", 2, FEATURES);
    mst_dataset_destroy(&b.valid->base);
    b.valid = fake_new(FAKE_CHEAP, 0, 50, make_row, &b.valid_rows);
    mst_key_list *list = calloc(1, sizeof *list);
    mst_pulled_eval *pulled = pulled_new(&b, false);
    mst_worker_evaluation evaluation = mst_pulled_eval_for_worker(pulled);
    assert_int_equal(evaluation.open(evaluation.arg, list), MST_EINPUT);
    assert_string_equal(mst_error_text(), "fake.data: the valid set has no rows");
    mst_pulled_eval_destroy(pulled);
    mst_key_list_fini(list);
    free(list);
    bench_fini(&b);
}

static void results_travel(void **state)
{
    (void)state;
    mst_result in = {.rows = 7,
                     .loss = (double)INFINITY,
                     .accuracy = 0.5,
                     .auc = (double)NAN,
                     .top5 = 0.75,
                     .grouped_auc = 0.625,
                     .calibration = 1.5,
                     .normalised_entropy = (double)NAN,
                     .seconds = 0.25,
                     .groups = 3,
                     .rows_left_out = 2,
                     .n_tenths = 2,
                     .tenths = {{4, 0.25, 0.5}, {0, (double)NAN, (double)NAN}}},
               out;
    json_t *json = mst_result_json(&in);
    assert_true(mst_result_from_json(json, &out));
    assert_true(out.rows == 7 && isinf(out.loss) && out.accuracy == 0.5 && isnan(out.auc) &&
                out.top5 == 0.75 && out.seconds == 0.25);
    assert_true(out.grouped_auc == 0.625 && out.calibration == 1.5 && isnan(out.normalised_entropy));
    assert_true(out.groups == 3 && out.groups_left_out == 0 && out.rows_left_out == 2 && out.n_tenths == 2);
    assert_true(out.tenths[0].rows == 4 && out.tenths[0].predicted == 0.25 && out.tenths[0].observed == 0.5);
    assert_true(out.tenths[1].rows == 0 && isnan(out.tenths[1].predicted));
    json_decref(json);
    assert_false(mst_result_from_json(NULL, &out));
    assert_int_equal(out.rows, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_figures),
        cmocka_unit_test(sets_that_are_not_there),
        cmocka_unit_test(empty_sets_are_named),
        cmocka_unit_test(results_travel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
