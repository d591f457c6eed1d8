/* The decisions of --auto: dropped runs, the winner, and the comparison with a target. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sweep/halving.h"

static void targets(void **state)
{
    mst_target t;
    (void)state;
    assert_int_equal(mst_target_parse("test_loss<=0.35", &t), MST_OK);
    assert_string_equal(t.metric.set, "test");
    assert_string_equal(t.metric.column, "loss");
    assert_false(t.metric.high_is_good);
    assert_true(t.value == 0.35);
    assert_int_equal(mst_target_parse(" valid_accuracy > 0.9 ", &t), MST_OK);
    assert_string_equal(t.metric.set, "valid");
    assert_string_equal(t.metric.column, "accuracy");
    assert_true(t.metric.high_is_good);
    assert_int_equal(mst_target_parse("train_loss<1", &t), MST_OK);
    assert_string_equal(t.metric.set, "");
    assert_string_equal(t.metric.column, "train_loss");
    assert_int_equal(mst_target_parse("train_accuracy>=0.9", &t), MST_OK);
    assert_string_equal(t.metric.column, "train_accuracy");
    assert_false(t.metric.any_set);
    static const char *const wrong[] = {"",
                                        "test_",
                                        "loss<=1",
                                        "test_loss",
                                        "test_loss<=",
                                        "test_loss<=x",
                                        "test_loss<=1 2",
                                        "test_lossy<=1",
                                        "test_loss=1",
                                        "test_loss<=nan",
                                        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa<=1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(mst_target_parse(wrong[i], &t), MST_EUSAGE);
        assert_non_null(strstr(mst_error_text(), "not a condition such as"));
    }
    assert_true(mst_target_reached("--until condition reached"));
    assert_false(mst_target_reached("row limit reached"));
}

/* n candidates after a second each, with these losses. */
static void fill(mst_halving_try *t, const double *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        t[i] = (mst_halving_try){
            .alive = true, .seconds = 1, .value = values[i], .nearest = values[i], .before = NAN};
}

static void halves(void **state)
{
    mst_halving_try t[5];
    size_t best;
    (void)state;
    fill(t, (double[]){0.5, 0.3, NAN, 0.4, 0.6}, 5);
    assert_int_equal(mst_halving_decide(t, 5, false, &best), MST_HALVING_GO_ON);
    assert_true(t[0].alive && t[1].alive &&
                t[3].alive); /* of five, two go: the worst, and who showed nothing */
    assert_false(t[2].alive || t[4].alive);
    assert_int_equal(best, 1);
    assert_int_equal(mst_halving_decide(t, 5, false, &best), MST_HALVING_GO_ON);
    assert_true(t[1].alive && t[3].alive && !t[0].alive);
    assert_int_equal(mst_halving_decide(t, 5, false, &best), MST_HALVING_GO_ON);
    assert_true(t[1].alive && !t[3].alive);
    t[1].nearest = 0.29;
    assert_int_equal(mst_halving_decide(t, 5, false, &best), MST_HALVING_GO_ON); /* the last one stays */
    assert_true(t[1].alive);

    fill(t, (double[]){0.5, 0.3, 0.4}, 3);
    assert_int_equal(mst_halving_decide(t, 3, true, &best), MST_HALVING_GO_ON);
    assert_true(t[0].alive && t[2].alive && !t[1].alive); /* high is good */
    fill(t, (double[]){0.5, 0.5}, 2);
    assert_int_equal(mst_halving_decide(t, 2, false, &best), MST_HALVING_GO_ON);
    assert_true(t[0].alive && !t[1].alive); /* of equals the first */
}

static void finds(void **state)
{
    mst_halving_try t[4];
    size_t best;
    (void)state;
    fill(t, (double[]){0.30, 0.31, 0.1, 0.2}, 4);
    t[0].reached = t[1].reached = true;
    t[1].seconds = 0.25;
    assert_int_equal(mst_halving_decide(t, 4, false, &best), MST_HALVING_FOUND);
    assert_int_equal(best, 1); /* the shortest time, not the best value */
    fill(t, (double[]){0.30, 0.31, 0.1, 0.2}, 4);
    t[2].reached = true;
    t[2].alive = false; /* dropped before: does not count any more */
    assert_int_equal(mst_halving_decide(t, 4, false, &best), MST_HALVING_GO_ON);
}

static void gives_up(void **state)
{
    mst_halving_try t[3];
    size_t best;
    (void)state;
    fill(t, (double[]){0.5, 0.4, 0.6}, 3);
    t[0].over = t[2].over = true;
    assert_int_equal(mst_halving_decide(t, 3, false, &best), MST_HALVING_GO_ON);
    assert_true(t[1].alive && !t[0].alive && !t[2].alive); /* those that are over count for no half */
    t[1].over = true;
    assert_int_equal(mst_halving_decide(t, 3, false, &best), MST_HALVING_NONE);
    assert_int_equal(best, 1);
    fill(t, (double[]){NAN, NAN, NAN}, 3);
    t[0].over = t[1].over = t[2].over = true;
    assert_int_equal(mst_halving_decide(t, 3, false, &best), MST_HALVING_NONE);
    assert_int_equal(best, 3); /* no run was evaluated */
}

/* Last values are of different rounds: who was dropped early may have been nearer. */
static void tells_the_nearest(void **state)
{
    mst_halving_try t[2];
    size_t best;
    (void)state;
    fill(t, (double[]){0.50, 0.52}, 2);
    assert_int_equal(mst_halving_decide(t, 2, false, &best), MST_HALVING_GO_ON);
    assert_true(t[0].alive && !t[1].alive);
    t[0].value = 0.6; /* got worse, and was at 0.5 before */
    t[0].over = true;
    assert_int_equal(mst_halving_decide(t, 2, false, &best), MST_HALVING_NONE);
    assert_int_equal(best, 0);
    t[1].nearest = 0.49; /* between evaluations at the ends of rounds */
    assert_int_equal(mst_halving_decide(t, 2, false, &best), MST_HALVING_NONE);
    assert_int_equal(best, 1);
    assert_true(mst_halving_nearer(0.5, 0.4, false) == 0.4 && mst_halving_nearer(0.5, 0.4, true) == 0.5);
    assert_true(mst_halving_nearer(NAN, 0.4, false) == 0.4 && mst_halving_nearer(0.5, NAN, true) == 0.5);
    assert_true(isnan(mst_halving_nearer(NAN, NAN, false)));
}

static void leaves_the_last_one(void **state)
{
    mst_halving_try t[2];
    size_t best;
    (void)state;
    fill(t, (double[]){0.6, 0.5}, 2);
    t[0].over = true;
    assert_int_equal(mst_halving_decide(t, 2, false, &best), MST_HALVING_GO_ON);
    t[1].value = 0.51;
    assert_int_equal(mst_halving_decide(t, 2, false, &best), MST_HALVING_GO_ON); /* once is no reason */
    t[1].value = t[1].nearest = 0.49;
    assert_int_equal(mst_halving_decide(t, 2, false, &best), MST_HALVING_GO_ON);
    assert_int_equal(mst_halving_decide(t, 2, false, &best), MST_HALVING_GO_ON);
    assert_int_equal(mst_halving_decide(t, 2, false, &best), MST_HALVING_STUCK);
    assert_int_equal(best, 1);
    fill(t, (double[]){NAN, NAN}, 2); /* one that has shown nothing may only be slow */
    for (int k = 0; k < 5; k++)
        assert_int_equal(mst_halving_decide(t, 2, false, &best), MST_HALVING_GO_ON);
    fill(t, (double[]){0.6, 0.5}, 2);
    t[1].alive = false;
    for (int k = 0; k < 2; k++)
        assert_int_equal(mst_halving_decide(t, 2, false, &best), MST_HALVING_GO_ON);
    assert_int_equal(mst_halving_decide(t, 2, false, &best), MST_HALVING_STUCK);
    assert_int_equal(best, 1); /* who came nearest, though dropped */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets),
        cmocka_unit_test(halves),
        cmocka_unit_test(finds),
        cmocka_unit_test(gives_up),
        cmocka_unit_test(tells_the_nearest),
        cmocka_unit_test(leaves_the_last_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
