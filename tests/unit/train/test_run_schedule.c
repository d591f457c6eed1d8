/* Schedules and conditions: every accepted form, and the refused ones. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "train/run_schedule.h"

static void every_form(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        mst_unit unit;
        double n;
    } cases[] = {
        {"500", MST_UNIT_STEPS, 500},
        {"500 steps", MST_UNIT_STEPS, 500},
        {"1 step", MST_UNIT_STEPS, 1},
        {"1Mrows", MST_UNIT_ROWS, 1e6},
        {"1M rows", MST_UNIT_ROWS, 1e6},
        {"64k rows", MST_UNIT_ROWS, 64000},
        {"10s", MST_UNIT_SECONDS, 10},
        {"0.5 s", MST_UNIT_SECONDS, 0.5},
        {"2 seconds", MST_UNIT_SECONDS, 2},
        {"1 epoch", MST_UNIT_EPOCHS, 1},
        {"3   epochs", MST_UNIT_EPOCHS, 3},
        {"2^10 rows", MST_UNIT_ROWS, 1024},
        {"never", MST_UNIT_NEVER, 0},
        {"1e3 steps", MST_UNIT_STEPS, 1000},
        {"0.001 seconds", MST_UNIT_SECONDS, 0.001},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mst_interval every;
        assert_int_equal(mst_interval_parse("eval-every", cases[i].text, &every), MST_OK);
        assert_int_equal(every.unit, cases[i].unit);
        assert_true(every.n == cases[i].n);
    }
}

static void every_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",          "steps",      "0 steps", "-5 steps",
        "1.5 steps", "0.5 epochs", "x rows",  "10 minutes",
        "nan s",     "inf s",      "0s",      "5 steps 6",
        "1e400 s",   "-1s",        "Never",   "100000000000000000000000000000000000 steps",
        " s"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mst_interval every = {.n = 77};
        assert_int_equal(mst_interval_parse("eval-every", bad[i], &every), MST_EUSAGE);
        assert_non_null(strstr(mst_error_text(), "--eval-every"));
        assert_non_null(strstr(mst_error_text(), "\"1M rows\""));
        assert_true(every.n == 77); /* set only on success */
    }
}

static void condition_form(void **state)
{
    (void)state;
    mst_condition c;
    assert_int_equal(mst_condition_parse("test_loss<=0.35", &c), MST_OK);
    assert_int_equal(c.metric, MST_METRIC_TEST_LOSS);
    assert_true(c.less && c.or_equal && c.value == 0.35);
    assert_int_equal(mst_condition_parse("  valid_auc  >  7.5e-1 ", &c), MST_OK);
    assert_int_equal(c.metric, MST_METRIC_VALID_AUC);
    assert_true(!c.less && !c.or_equal && c.value == 0.75);
    for (mst_metric m = 0; m < MST_METRIC_COUNT; m++) {
        char text[64];
        snprintf(text, sizeof text, "%s>=-1", mst_metric_name(m));
        assert_int_equal(mst_condition_parse(text, &c), MST_OK);
        assert_int_equal(c.metric, m);
        assert_true(!c.less && c.or_equal && c.value == -1.0);
    }
}

static void condition_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "test_loss",
                                      "test_loss=0.35",
                                      "loss<=0.35",
                                      "test_loss<",
                                      "test_loss<=x",
                                      "test_loss<=0.35 or so",
                                      "<=0.35",
                                      "test_loss<=nan",
                                      "test_loss<=inf",
                                      "test_lossy<1",
                                      "test_loss<=<0.3"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mst_condition c;
        assert_int_equal(mst_condition_parse(bad[i], &c), MST_EUSAGE);
        assert_non_null(strstr(mst_error_text(), "example: 'test_loss<=0.35'"));
    }
}

/* Conditions that no value of the metric fulfils would train for ever. */
static void condition_impossible(void **state)
{
    static const char *const never[] = {
        "test_auc>2",          "test_auc>1",       "valid_accuracy>=1.01",
        "test_top5<0",         "test_loss<0",      "train_loss<=-1",
        "valid_grouped_auc>1", "train_accuracy<0", "test_normalised_entropy<0"};
    static const char *const possible[] = {"test_auc>=1", "test_loss<=0",  "test_loss>100",
                                           "test_auc<=0", "valid_top5>-1", "test_normalised_entropy>1.5"};
    mst_condition c;
    (void)state;
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        assert_int_equal(mst_condition_parse(never[i], &c), MST_EUSAGE);
        assert_non_null(strstr(mst_error_text(), "can never be met"));
    }
    for (size_t i = 0; i < sizeof possible / sizeof *possible; i++)
        assert_int_equal(mst_condition_parse(possible[i], &c), MST_OK);
}

static void condition_holds(void **state)
{
    (void)state;
    mst_condition at_most = {.less = true, .or_equal = true, .value = 0.5};
    mst_condition below = {.less = true, .value = 0.5}, above = {.value = 0.5};
    mst_condition at_least = {.or_equal = true, .value = 0.5};
    const struct {
        double value;
        bool at_most, below, above, at_least;
    } cases[] = {{0.4, true, true, false, false},
                 {0.5, true, false, false, true},
                 {0.6, false, false, true, true},
                 {INFINITY, false, false, true, true},
                 {NAN, false, false, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(mst_condition_holds(&at_most, cases[i].value), cases[i].at_most);
        assert_int_equal(mst_condition_holds(&below, cases[i].value), cases[i].below);
        assert_int_equal(mst_condition_holds(&above, cases[i].value), cases[i].above);
        assert_int_equal(mst_condition_holds(&at_least, cases[i].value), cases[i].at_least);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form),           cmocka_unit_test(every_refused),
        cmocka_unit_test(condition_form),       cmocka_unit_test(condition_refused),
        cmocka_unit_test(condition_impossible), cmocka_unit_test(condition_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
