/* Options and their checks, additive optimizers, the initial state, and hand-computed steps of the rules. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "optim/optim.h"

enum {
    SGD,
    MOMENTUM,
    ADAGRAD,
    ADAM,
    FTRL,
};

/* The defaults of the option table. */
static mst_optim_options defaults(void)
{
    mst_optim_options options;
    mst_option_group group = {.title = "optimizer", .table = mst_optim_option_table, .base = &options};
    assert_int_equal(mst_options_init(&group, 1), MST_OK);
    mst_options_fini(&group, 1);
    return options;
}

static mst_optimizer make(mst_optim_options options)
{
    mst_optimizer optimizer;
    if (mst_optimizer_init(&optimizer, &options) != MST_OK)
        fail_msg("%s", mst_error_text());
    return optimizer;
}

static void test_defaults(void **state)
{
    (void)state;
    mst_optim_options o = defaults();
    assert_int_equal(o.optimizer, SGD);
    for (size_t i = 0; mst_optimizers[i] != NULL; i++) /* of --lr when not given */
        assert_true(mst_optimizers[i]->lr == (strcmp(mst_optimizers[i]->name, "adam") == 0 ? 0.001 : 0.1));
    assert_true(o.lr == 0.1 && o.l1 == 0 && o.l2 == 0 && o.momentum == 0.9);
    assert_true(o.beta1 == 0.9 && o.beta2 == 0.999 && o.eps == 1e-8);
    assert_true(o.ftrl_beta == 1 && o.adagrad_start == 0 && o.clip_norm == 0);
    assert_true(o.schedule == 0 && o.warmup == 0 && o.decay_steps == 0 && o.decay == 0.1);
    for (o.optimizer = SGD; o.optimizer <= FTRL; o.optimizer++)
        make(o);
}

/* Choices of --optimizer are the registry, in its order. */
static void test_choices_are_the_registry(void **state)
{
    char choices[256] = "";
    (void)state;
    for (int i = 0; mst_optimizers[i] != NULL; i++) {
        snprintf(choices + strlen(choices), sizeof choices - strlen(choices), "%s%s", i ? "|" : "",
                 mst_optimizers[i]->name);
        assert_true(mst_optimizers[i]->n_slots <= MST_SLOT_MAX);
        for (uint32_t k = 0; k < MST_SLOT_MAX; k++)
            assert_int_equal(mst_optimizers[i]->slot_names[k] != NULL, k < mst_optimizers[i]->n_slots);
    }
    const mst_option *row = mst_optim_option_table;
    while (strcmp(row->name, "optimizer") != 0)
        row++;
    assert_string_equal(row->choices, choices);
}

static void test_refused(void **state)
{
    (void)state;
#define REFUSED(which, field, value, text)                                                                   \
    do {                                                                                                     \
        mst_optim_options o_ = defaults();                                                                   \
        mst_optimizer untouched_ = {0};                                                                      \
        o_.optimizer = which;                                                                                \
        o_.field = value;                                                                                    \
        assert_int_equal(mst_optimizer_init(&untouched_, &o_), MST_EUSAGE);                                  \
        assert_string_equal(mst_error_text(), text);                                                         \
        assert_null(untouched_.ops);                                                                         \
    } while (0)
    REFUSED(SGD, lr, 0, "--lr is 0; it must be a number above 0");
    REFUSED(SGD, lr, -1, "--lr is -1; it must be a number above 0");
    REFUSED(SGD, lr, 1e-60,
            "--lr is 1e-60; it must be at least 1.18e-38, because smaller numbers count as 0");
    REFUSED(SGD, lr, 1e-38,
            "--lr is 1e-38; it must be at least 1.18e-38, because smaller numbers count as 0");
    REFUSED(SGD, lr, (double)INFINITY, "--lr is inf; it must be a number above 0");
    REFUSED(SGD, lr, (double)NAN, "--lr is nan; it must be a number above 0");
    REFUSED(ADAM, l1, -0.5, "--l1 is -0.5; it must be 0 or more");
    REFUSED(FTRL, l2, -0.5, "--l2 is -0.5; it must be 0 or more");
    REFUSED(SGD, clip_norm, -2, "--clip-norm is -2; it must be 0 or more");
    REFUSED(MOMENTUM, momentum, 1, "--momentum is 1; it must be at least 0 and below 1");
    REFUSED(ADAM, beta1, 1, "--beta1 is 1; it must be at least 0 and below 1");
    REFUSED(ADAM, beta2, 1, "--beta2 is 1; it must be at least 0 and below 1");
    REFUSED(ADAM, eps, 1e-40,
            "--eps is 1e-40; it must be at least 1.18e-38, because smaller numbers count as 0");
    REFUSED(ADAM, eps, 0, "--eps is 0; it must be a number above 0");
    REFUSED(ADAGRAD, eps, 0, "--eps is 0; it must be a number above 0");
    REFUSED(ADAGRAD, adagrad_start, -1, "--adagrad-start is -1; it must be 0 or more");
    REFUSED(FTRL, ftrl_beta, 0, "--ftrl-beta is 0; it must be a number above 0");
    REFUSED(SGD, warmup, -3, "--warmup is -3; it must be 0 or more steps");
    REFUSED(SGD, schedule, 1, "--schedule step needs --decay-steps, a number of steps above 0");
    REFUSED(SGD, schedule, 2, "--schedule inverse needs --decay-steps, a number of steps above 0");
    REFUSED(SGD, schedule, 3, "--schedule cosine needs --decay-steps, a number of steps above 0");
    REFUSED(SGD, schedule, 4, "there is no schedule number 4");
    REFUSED(6, lr, 0.1, "there is no optimizer number 6");
    REFUSED(-1, lr, 0.1, "there is no optimizer number -1");
#undef REFUSED
}

/* What an optimizer does not use does not stop it. */
static void test_unused_options_are_not_checked(void **state)
{
    (void)state;
    mst_optim_options o = defaults();
    o.momentum = 1;
    o.eps = 0;
    o.ftrl_beta = 0;
    make(o);
}

static void test_additive(void **state)
{
    (void)state;
    mst_optim_options o = defaults();
    for (o.optimizer = SGD; o.optimizer <= FTRL; o.optimizer++) {
        mst_optimizer optimizer = make(o);
        assert_int_equal(optimizer.ops->additive(&optimizer), o.optimizer == SGD);
    }
    mst_optim_options with[3];
    with[0] = with[1] = with[2] = defaults();
    with[0].l1 = 1e-9;
    with[1].l2 = 1e-9;
    with[2].clip_norm = 1;
    for (int i = 0; i < 3; i++) {
        mst_optimizer optimizer = make(with[i]);
        assert_false(optimizer.ops->additive(&optimizer));
    }
}

static size_t pages_in_core(const void *memory, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (size + page - 1) / page, found = 0;
    unsigned char seen[4096];
    assert_true(n <= sizeof seen);
    assert_int_equal(mincore((void *)(uintptr_t)memory, size, seen), 0);
    for (size_t i = 0; i < n; i++)
        found += seen[i] & 1;
    return found;
}

static void test_start(void **state)
{
    (void)state;
    const uint64_t size = 1000000;
    for (int optimizer = SGD; optimizer <= FTRL; optimizer++)
        for (int filled = 0; filled < 2; filled++) {
            mst_optim_options o = defaults();
            o.optimizer = optimizer;
            o.adagrad_start = filled ? 0.25 : 0;
            mst_optimizer self = make(o);
            mst_params params = {0};
            assert_int_equal(mst_params_add(&params, "weight", MST_VIEW_TRAINABLE, 1, 1, &size, NULL),
                             MST_OK);
            assert_int_equal(mst_params_reserve(&params, self.ops->n_slots, 16), MST_OK);
            mst_optimizer_start(&self, &params, 0, params.size);
            if (optimizer == ADAGRAD && filled) {
                assert_true(params.slots[0][0] == 0.25f && params.slots[0][size - 1] == 0.25f);
            } else {
                for (uint32_t i = 0; i < self.ops->n_slots; i++)
                    assert_int_equal(pages_in_core(params.slots[i], size * sizeof(float)), 0);
                assert_int_equal(pages_in_core(params.w, size * sizeof(float)), 0);
            }
            mst_params_fini(&params);
        }
}

/* One step of one weight from state a, b. */
static float once(mst_optim_options options, uint64_t step, float w, float *a, float *b, float g)
{
    mst_optimizer optimizer = make(options);
    mst_update update = {.lr = (float)options.lr, .step = step};
    float *slots[] = {a, b};
    optimizer.ops->apply_range(&optimizer, &update, &w, slots, &g, 1);
    return w;
}

static void assert_near(float value, double expected)
{
    if (!(fabs(value - expected) <= 5e-7 * fabs(expected)))
        fail_msg("%.9g, expected %.9g", (double)value, expected);
}

static void test_hand_computed(void **state)
{
    (void)state;
    mst_optim_options o = defaults();
    float a = 0, b = 0;
    o.lr = 0.5;
    o.l2 = 0.25;
    o.l1 = 0.125;
    /* d = 1 + 0.25*2 = 1.5; 2 - 0.75 = 1.25; shrink by 0.0625 */
    assert_near(once(o, 1, 2, NULL, NULL, 1), 1.1875);
    assert_near(once(o, 1, -2, NULL, NULL, -1), -1.1875);
    /* m = 0.9*1 + 1.5 = 2.4; 2 - 1.2 = 0.8; shrink by 0.0625/(1 - 0.9) */
    o.optimizer = MOMENTUM;
    a = 1;
    assert_near(once(o, 1, 2, &a, NULL, 1), 0.175);
    assert_near(a, 2.4);
    /* s = 1.75 + 1.5^2 = 4; rate = 0.5/2; 2 - 0.375; shrink by 0.03125 */
    o.optimizer = ADAGRAD;
    a = 1.75f;
    assert_near(once(o, 1, 2, &a, NULL, 1), 1.59375);
    assert_near(a, 4);
    /* Step 1 of adam: m^ = d, sqrt(v^) = |d|; 2 - 0.5; shrink by 0.5*0.125/1.5 */
    o.optimizer = ADAM;
    a = b = 0;
    assert_near(once(o, 1, 2, &a, &b, 1), 1.5 - 0.0625 / 1.5);
    assert_near(a, 0.15);
    assert_near(b, 0.00225);
    /* From nothing: n = 9, q = (1 + 3)/0.5 + 0.25, z = 3; w = (0.125 - 3)/q */
    o.optimizer = FTRL;
    a = b = 0;
    assert_near(once(o, 1, 0, &a, &b, 3), -2.875 / 8.25);
    assert_near(a, 3);
    assert_near(b, 9);
}

/* Weights loaded without FTRL's state are where it goes on from, and a falling rate does not pull weights to
 * zero. */
static void test_ftrl_keeps_weights(void **state)
{
    (void)state;
    mst_optim_options o = defaults();
    float a = 0, b = 0;
    o.optimizer = FTRL;
    o.l1 = 0.5;
    float w = once(o, 1, 2, &a, &b, 1e-6f);
    assert_true(fabsf(w - 2) < 1e-5f);
    o.lr = 0.001;
    assert_true(fabsf(once(o, 2, w, &a, &b, 1e-6f) - 2) < 1e-5f);

    mst_optimizer self = make(o);
    mst_update last = {.lr = 0, .step = 3}; /* the end of a cosine */
    float *slots[] = {&a, &b}, g = 5, before = w;
    self.ops->apply_range(&self, &last, &w, slots, &g, 1);
    assert_true(fabsf(w - before) <= 2 * FLT_EPSILON * before);
}

/* A weight that is pushed across zero stops at it while |z| <= l1. */
static void test_ftrl_stops_at_zero(void **state)
{
    (void)state;
    mst_optim_options o = defaults();
    float a = 0, b = 0;
    o.optimizer = FTRL;
    o.l1 = 1;
    float w = once(o, 1, 0, &a, &b, -1.5f);
    assert_true(w > 0);
    w = once(o, 2, w, &a, &b, 2);
    assert_true(w == 0 && fabsf(a) <= 1);
    w = once(o, 3, w, &a, &b, 0.5f);
    assert_true(w == 0 && fabsf(a) <= 1);
    w = once(o, 4, w, &a, &b, 2);
    assert_true(w < 0);
}

/* Divergence must show: L1 may not turn what is not a number into zero. */
static void test_nan_stays(void **state)
{
    (void)state;
    mst_optim_options o = defaults();
    o.l1 = 0.1;
    for (o.optimizer = SGD; o.optimizer <= FTRL; o.optimizer++) {
        float a = 0, b = 0;
        assert_true(isnan(once(o, 1, 1, &a, &b, NAN)));
        a = b = 0;
        assert_true(isnan(once(o, 1, NAN, &a, &b, 1)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_choices_are_the_registry),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_unused_options_are_not_checked),
        cmocka_unit_test(test_additive),
        cmocka_unit_test(test_start),
        cmocka_unit_test(test_hand_computed),
        cmocka_unit_test(test_ftrl_keeps_weights),
        cmocka_unit_test(test_ftrl_stops_at_zero),
        cmocka_unit_test(test_nan_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
