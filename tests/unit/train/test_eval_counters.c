/* Evaluation counts: AUC against a direct count of pairs, sums that do not depend on order or threads bit for
 * bit, weights of rows, and losses beyond all bounds. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/team.h"
#include "train/eval_counters.h"

#define N_ROWS 900
#define BATCH  37

static mst_row rows[N_ROWS];
static float scores[N_ROWS * 3];

static mst_model *make_model(int which, uint32_t classes)
{
    mst_model *model = NULL;
    mst_model_options options = {.model = which, .bias = true, .pos_weight = 3.0};
    mst_shape shape = {.n_features = 10, .n_classes = classes};
    assert_int_equal(mst_model_new(&options, &shape, mst_kernels_get(mst_isa_best()), &model), MST_OK);
    return model;
}

/* Rows with labels and scores only; few distinct scores when `ties`. */
static void make_rows(uint64_t seed, bool ties, uint32_t classes)
{
    mst_rng rng;
    mst_rng_init(&rng, seed, MST_RNG_TEST, 0);
    for (uint32_t i = 0; i < N_ROWS; i++) {
        uint32_t label = mst_rng_below(&rng, classes);
        rows[i] = (mst_row){.label = classes == 2 && seed % 2 ? (label ? 1.0f : -1.0f) : (float)label,
                            .weight = i % 5 == 0 ? 0.25f : 1.0f};
        for (uint32_t c = 0; c < (classes == 2 ? 1 : classes); c++) {
            double noise = mst_rng_normal(&rng) * 2.0 + (classes == 2 && label ? 1.0 : 0.0);
            scores[classes == 2 ? i : i * classes + c] = ties ? (float)floor(noise) : (float)noise;
        }
    }
}

static void add_batch(mst_eval_counters *counters, const mst_model *model, uint32_t b)
{
    mst_batch all = {.rows = rows, .n_rows = N_ROWS};
    mst_batch batch = mst_batch_range(&all, b * BATCH, BATCH);
    mst_eval_counters_add(counters, model, &batch, NULL, scores + (size_t)b * BATCH * model->n_scores);
}

enum { N_BATCHES = (N_ROWS + BATCH - 1) / BATCH };

static void count_all(mst_eval_counters *counters, const mst_model *model, mst_result *out)
{
    mst_eval_counters_clear(counters);
    for (uint32_t b = 0; b < N_BATCHES; b++)
        add_batch(counters, model, b);
    mst_eval_counters_result(counters, out);
}

static double direct_auc(void)
{
    double pairs = 0.0, wins = 0.0;
    for (uint32_t i = 0; i < N_ROWS; i++)
        for (uint32_t j = 0; j < N_ROWS; j++)
            if (rows[i].label > 0.0f && rows[j].label <= 0.0f) {
                pairs += 1.0;
                wins += scores[i] > scores[j] ? 1.0 : scores[i] == scores[j] ? 0.5 : 0.0;
            }
    return wins / pairs;
}

static void auc_is_the_share_of_pairs(void **state)
{
    (void)state;
    mst_model *model = make_model(0, 2);
    mst_eval_counters counters;
    mst_result r;
    mst_eval_counters_init(&counters, model, -1);
    for (uint64_t seed = 1; seed <= 6; seed++)
        for (int ties = 0; ties <= 1; ties++) {
            make_rows(seed, ties, 2);
            count_all(&counters, model, &r);
            double direct = direct_auc();
            assert_true(fabs(r.auc - direct) <= 1e-12);
        }
    mst_eval_counters_fini(&counters);
    mst_model_destroy(model);
}

static void auc_at_the_edges(void **state)
{
    (void)state;
    mst_model *model = make_model(0, 2);
    mst_eval_counters counters;
    mst_result r;
    mst_eval_counters_init(&counters, model, -1);
    static const struct {
        float negative, positive;
        double auc;
    } cases[] = {{-1e-30f, 1e-30f, 1.0}, {1.0f, -1.0f, 0.0},        {-3e38f, 3e38f, 1.0},
                 {-0.0f, 0.0f, 0.5},     {0.0f, -0.0f, 0.5},        {-2.0f, -1.0f, 1.0},
                 {-1.0f, -2.0f, 0.0},    {0.25f, 0.25f, 0.5},       {1.0f, 1.001f, 1.0},
                 {0.0f, 1e-45f, 1.0},    {-3.4768f, -3.4769f, 0.0}, {5000.0f, 5000.001f, 1.0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mst_row two[2] = {{.label = 0.0f, .weight = 1.0f}, {.label = 1.0f, .weight = 1.0f}};
        float s[2] = {cases[i].negative, cases[i].positive};
        mst_eval_counters_clear(&counters);
        mst_eval_counters_add(&counters, model, &(mst_batch){two, 2}, NULL, s);
        mst_eval_counters_result(&counters, &r);
        assert_true(r.auc == cases[i].auc);
        mst_eval_counters_clear(&counters); /* one class only */
        mst_eval_counters_add(&counters, model, &(mst_batch){two, 1}, NULL, s);
        mst_eval_counters_result(&counters, &r);
        assert_true(isnan(r.auc));
    }
    mst_eval_counters_clear(&counters);
    mst_eval_counters_result(&counters, &r);
    assert_int_equal(r.rows, 0);
    assert_true(isnan(r.loss) && isnan(r.accuracy) && isnan(r.auc));
    mst_eval_counters_fini(&counters);
    mst_model_destroy(model);
}

/* Against plain sums: rows count by their weight in the loss and once in the accuracy; --pos-weight does not
 * count. */
static void figures_are_right(void **state)
{
    (void)state;
    for (uint32_t classes = 2; classes <= 3; classes++) {
        mst_model *model = make_model(classes == 2 ? 0 : 1, classes);
        mst_eval_counters counters;
        mst_result r;
        double loss = 0.0, weight = 0.0, correct = 0.0;
        make_rows(4, false, classes);
        for (uint32_t i = 0; i < N_ROWS; i++) {
            const float *y = scores + (size_t)i * model->n_scores;
            double one;
            if (classes == 2) {
                one = log1p(exp(rows[i].label > 0.0f ? -(double)y[0] : (double)y[0]));
                correct += (y[0] > 0.0f) == (rows[i].label > 0.0f);
            } else {
                double sum = exp((double)y[0]) + exp((double)y[1]) + exp((double)y[2]);
                one = log(sum) - (double)y[(int)rows[i].label];
                uint32_t best = y[1] > y[0] ? 1 : 0;
                correct += (y[2] > y[best] ? 2.0f : (float)best) == rows[i].label;
            }
            loss += one * (double)rows[i].weight;
            weight += (double)rows[i].weight;
        }
        mst_eval_counters_init(&counters, model, -1);
        count_all(&counters, model, &r);
        assert_int_equal(r.rows, N_ROWS);
        assert_true(fabs(r.loss - loss / weight) < 1e-6);
        assert_true(r.accuracy == correct / N_ROWS);
        assert_int_equal(isnan(r.auc) != 0, classes == 3);
        mst_eval_counters_fini(&counters);
        mst_model_destroy(model);
    }
}

typedef struct shared_count {
    mst_eval_counters *counters;
    const mst_model *model;
    unsigned n_threads;
} shared_count;

static void count_thread(void *arg, unsigned t)
{
    shared_count *s = arg;
    for (uint32_t b = 0; b < N_BATCHES; b++)
        if (b % s->n_threads == t)
            add_batch(s->counters, s->model, b);
}

static void order_and_threads_do_not_count(void **state)
{
    (void)state;
    for (uint32_t classes = 2; classes <= 3; classes++) {
        mst_model *model = make_model(classes == 2 ? 0 : 1, classes);
        mst_eval_counters counters;
        mst_result first, r;
        make_rows(7, false, classes);
        mst_eval_counters_init(&counters, model, -1);
        count_all(&counters, model, &first);
        mst_eval_counters_clear(&counters);
        for (uint32_t b = N_BATCHES; b-- > 0;)
            add_batch(&counters, model, b);
        mst_eval_counters_result(&counters, &r);
        assert_true(r.loss == first.loss && r.accuracy == first.accuracy);
        assert_true(classes == 3 || r.auc == first.auc);
        for (unsigned n = 2; n <= 4; n++) {
            mst_team *team = NULL;
            shared_count s = {&counters, model, n};
            mst_eval_counters_clear(&counters);
            assert_int_equal(mst_team_new(n, &team), MST_OK);
            mst_team_run(team, count_thread, &s);
            mst_team_destroy(team);
            mst_eval_counters_result(&counters, &r);
            assert_int_equal(r.rows, N_ROWS);
            assert_true(r.loss == first.loss && r.accuracy == first.accuracy);
            assert_true(classes == 3 || r.auc == first.auc);
        }
        mst_eval_counters_fini(&counters);
        mst_model_destroy(model);
    }
}

/* Top-5 accuracy against sorting: equal scores stand in the order of their classes, as in the choice of the
 * best one. */
static void top5_counts_who_stands_before(void **state)
{
    (void)state;
    enum { CLASSES = 9, ROWS = 200 };
    mst_model *model = make_model(1, CLASSES);
    mst_eval_counters counters;
    mst_result r;
    mst_rng rng;
    mst_row ten[ROWS];
    float y[ROWS * CLASSES];
    double hits = 0.0;
    mst_rng_init(&rng, 3, MST_RNG_TEST, 0);
    for (uint32_t i = 0; i < ROWS; i++) {
        uint32_t label = mst_rng_below(&rng, CLASSES), order[CLASSES];
        ten[i] = (mst_row){.label = (float)label, .weight = 1.0f};
        for (uint32_t c = 0; c < CLASSES; c++)
            y[i * CLASSES + c] = (float)mst_rng_below(&rng, 4);
        for (uint32_t c = 0; c < CLASSES; c++) { /* insertion keeps equal ones in order */
            uint32_t at = c;
            for (; at > 0 && y[i * CLASSES + order[at - 1]] < y[i * CLASSES + c]; at--)
                order[at] = order[at - 1];
            order[at] = c;
        }
        for (uint32_t k = 0; k < 5; k++)
            hits += order[k] == label;
    }
    mst_eval_counters_init(&counters, model, -1);
    mst_eval_counters_add(&counters, model, &(mst_batch){ten, ROWS}, NULL, y);
    mst_eval_counters_result(&counters, &r);
    assert_true(r.top5 == hits / ROWS);
    assert_true(r.top5 > r.accuracy && r.top5 < 1.0);
    for (uint32_t i = 0; i < ROWS * CLASSES; i++) /* a diverged model must not look good */
        y[i] = NAN;
    mst_eval_counters_clear(&counters);
    mst_eval_counters_add(&counters, model, &(mst_batch){ten, ROWS}, NULL, y);
    mst_eval_counters_result(&counters, &r);
    assert_true(r.top5 == 0.0);
    mst_eval_counters_fini(&counters);
    mst_model_destroy(model);
    model = make_model(1, 5); /* of five classes it would always be 1 */
    mst_eval_counters_init(&counters, model, -1);
    mst_eval_counters_add(&counters, model, &(mst_batch){ten, 0}, NULL, y);
    mst_eval_counters_result(&counters, &r);
    assert_true(isnan(r.top5));
    mst_eval_counters_fini(&counters);
    mst_model_destroy(model);
}

/* A diverged model must never look good. */
static void loss_beyond_all_bounds(void **state)
{
    (void)state;
    mst_model *model = make_model(0, 2);
    mst_eval_counters counters;
    mst_result r;
    mst_eval_counters_init(&counters, model, -1);
    static const float wild[] = {1e13f, 1e20f, 3e38f, INFINITY, NAN};
    for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
        mst_row row = {.label = 0.0f, .weight = 1.0f};
        mst_eval_counters_clear(&counters);
        for (int n = 0; n < 100; n++)
            mst_eval_counters_add(&counters, model, &(mst_batch){&row, 1}, NULL, &wild[i]);
        mst_eval_counters_result(&counters, &r);
        assert_int_equal(r.rows, 100);
        assert_true(i == 0 ? fabs(r.loss / 1e13 - 1.0) < 1e-6 : r.loss == (double)INFINITY);
    }
    mst_eval_counters_clear(&counters); /* and is forgotten */
    mst_eval_counters_add(&counters, model, &(mst_batch){&(mst_row){.weight = 1.0f}, 1}, NULL,
                          &(float){0.0f});
    mst_eval_counters_result(&counters, &r);
    assert_true(fabs(r.loss - log(2.0)) < 1e-6);
    mst_eval_counters_fini(&counters);
    mst_model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auc_is_the_share_of_pairs), cmocka_unit_test(auc_at_the_edges),
        cmocka_unit_test(figures_are_right),         cmocka_unit_test(order_and_threads_do_not_count),
        cmocka_unit_test(loss_beyond_all_bounds),    cmocka_unit_test(top5_counts_who_stands_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
