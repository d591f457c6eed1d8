/* Figures of evaluations against scikit-learn (make_metrics.py): weighted loss, calibration and normalised
 * entropy, AUC alone and by groups, calibration by tenths. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "golden/metrics.h"
#include "train/eval_counters.h"

enum { FIELD = 3, BATCH = 100 };

static mst_row rows[GOLDEN_ROWS];
static uint32_t keys[GOLDEN_ROWS][3];
static uint16_t fields[GOLDEN_ROWS][3];
static float dense[GOLDEN_ROWS][4], scores[GOLDEN_ROWS];

/* How a row has its group. */
typedef enum group_as { AS_FIELD, AS_POSITION, AS_NUMBER } group_as;

static void make_rows(bool ties, group_as as)
{
    for (uint32_t i = 0; i < GOLDEN_ROWS; i++) {
        bool positive = (i * i + i / 5) % 7 == 1;
        int32_t at = (int32_t)(ties ? (37 * i + i * i / 11) % 7 : 577 * i % GOLDEN_ROWS);
        uint32_t group = i < 30 ? 100 + i / 2 : i * i / 3 % GOLDEN_GROUPS;
        bool missing = group == GOLDEN_GROUPS - 1;
        scores[i] =
            ties ? (float)(at - 5) / 2.0f : (float)(at - 700) / 256.0f + (positive ? 257.0f / 512.0f : 0.0f);
        rows[i] = (mst_row){.label = positive ? 1.0f
                                     : i % 2  ? -1.0f
                                              : 0.0f,
                            .weight = (float)(1 + i % 3) / 2.0f,
                            .keys = keys[i]};
        switch (as) {
        case AS_FIELD: /* among other fields, with a second key of the same field */
            keys[i][0] = 7;
            keys[i][1] = 1000 + group;
            keys[i][2] = 5000 + i;
            fields[i][0] = 1;
            fields[i][1] = missing ? 2 : FIELD;
            fields[i][2] = missing ? 2 : FIELD;
            rows[i].fields = fields[i];
            rows[i].n_keys = 3;
            break;
        case AS_POSITION: /* behind two numbers */
            keys[i][0] = 7;
            keys[i][1] = 1000 + group;
            rows[i].dense = dense[i];
            rows[i].n_dense = 2;
            rows[i].n_keys = missing ? 1 : 2;
            break;
        case AS_NUMBER:
            dense[i][FIELD] = missing ? NAN : (float)group - 20.0f;
            rows[i].dense = dense[i];
            rows[i].n_dense = 4;
            break;
        }
    }
}

static void near(double a, double b)
{
    assert_true(fabs(a - b) <= 1e-6 * fmax(1.0, fabs(b)));
}

static void check(const golden_figures *golden, bool ties, group_as as)
{
    mst_model *model = NULL;
    mst_model_options options = {.bias = true, .pos_weight = 5.0}; /* of training: does not count */
    mst_shape shape = {.n_features = 10000, .n_classes = 2};
    mst_eval_counters counters;
    mst_result r;
    mst_batch all = {rows, GOLDEN_ROWS};
    assert_int_equal(mst_model_new(&options, &shape, mst_kernels_get(mst_isa_best()), &model), MST_OK);
    make_rows(ties, as);
    mst_eval_counters_init(&counters, model, FIELD);
    for (uint32_t from = 0; from < GOLDEN_ROWS; from += BATCH) {
        mst_batch batch = mst_batch_range(&all, from, BATCH);
        mst_eval_counters_add(&counters, model, &batch, NULL, scores + from);
    }
    mst_eval_counters_result(&counters, &r);
    near(r.loss, golden->loss);
    near(r.auc, golden->auc);
    near(r.calibration, golden->calibration);
    near(r.normalised_entropy, golden->normalised_entropy);
    near(r.grouped_auc, golden->grouped_auc);
    assert_int_equal(r.groups, golden->groups);
    assert_int_equal(r.groups_left_out, golden->groups_left_out);
    assert_int_equal(r.rows_left_out, golden->rows_left_out);
    assert_int_equal(r.n_tenths, MST_AUC_TENTHS);
    double predicted = 0.0, observed = 0.0;
    for (uint32_t t = 0; t < r.n_tenths; t++) {
        predicted += (double)r.tenths[t].rows * r.tenths[t].predicted;
        observed += (double)r.tenths[t].rows * r.tenths[t].observed;
        if (ties) /* rows of equal scores divide their positives: no order of them to compare with */
            continue;
        assert_int_equal(r.tenths[t].rows, golden->rows[t]);
        near(r.tenths[t].predicted, golden->predicted[t]);
        near(r.tenths[t].observed, golden->observed[t]);
    }
    for (uint32_t i = 0; i < GOLDEN_ROWS; i++) {
        predicted -= mst_probability((double)scores[i]);
        observed -= rows[i].label > 0.0f;
    }
    assert_true(fabs(predicted) < 1e-6 && fabs(observed) < 1e-6);
    mst_eval_counters_fini(&counters);
    mst_model_destroy(model);
}

static void figures_of_distinct_scores(void **state)
{
    (void)state;
    check(&golden_scores, false, AS_FIELD);
    check(&golden_scores, false, AS_POSITION);
    check(&golden_scores, false, AS_NUMBER);
}

static void figures_of_ties(void **state)
{
    (void)state;
    check(&golden_ties, true, AS_FIELD);
    check(&golden_ties, true, AS_POSITION);
    check(&golden_ties, true, AS_NUMBER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_of_distinct_scores),
        cmocka_unit_test(figures_of_ties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
