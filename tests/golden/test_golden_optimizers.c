/* Optimizers and schedules against trajectories of PyTorch and of FTRL's paper (make_optimizers.py).
 * Gradients do not depend on the weights, so errors do not feed back; they are relative to the largest
 * magnitude of a weight so far, the scale of single precision. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "optim/optim.h"

#include "golden/optimizers.h"

#define TOLERANCE 1e-6

static int index_of(const char *name)
{
    for (int i = 0; mst_optimizers[i] != NULL; i++)
        if (strcmp(mst_optimizers[i]->name, name) == 0)
            return i;
    fail_msg("no optimizer %s", name);
    return -1;
}

static void run_case(const struct golden_case *golden)
{
    mst_optimizer optimizer;
    mst_optim_options options = golden->options;
    float w[GOLDEN_WEIGHTS], a[GOLDEN_WEIGHTS] = {0}, b[GOLDEN_WEIGHTS] = {0}, g[GOLDEN_WEIGHTS];
    float *slots[] = {a, b};
    double largest[GOLDEN_WEIGHTS];

    options.optimizer = index_of(golden->optimizer);
    assert_int_equal(mst_optimizer_init(&optimizer, &options), MST_OK);
    mst_params params = {.w = w, .slots = {a, b}, .size = GOLDEN_WEIGHTS, .n_slots = 2};
    mst_optimizer_start(&optimizer, &params);
    for (size_t i = 0; i < GOLDEN_WEIGHTS; i++) {
        w[i] = (float)golden->start[i];
        largest[i] = fabs(golden->start[i]);
    }
    for (size_t t = 0; t < GOLDEN_STEPS; t++) {
        mst_update update = {.lr = mst_learning_rate(&options, t + 1), .step = t + 1};
        for (size_t i = 0; i < GOLDEN_WEIGHTS; i++)
            g[i] = (float)golden_gradients[t][i];
        optimizer.ops->apply_range(&optimizer, &update, w, slots, g, GOLDEN_WEIGHTS);
        for (size_t i = 0; i < GOLDEN_WEIGHTS; i++) {
            double expected = golden->after[t][i];
            largest[i] = fmax(largest[i], fabs(expected));
            if (!(fabs(w[i] - expected) <= TOLERANCE * largest[i]))
                fail_msg("%s: step %zu, weight %zu is %.9g, expected %.9g", golden->name, t + 1, i,
                         (double)w[i], expected);
            if (expected == 0)
                assert_true(w[i] == 0);
        }
    }
}

static void test_trajectories(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden_cases / sizeof *golden_cases; i++)
        run_case(&golden_cases[i]);
}

static void test_every_optimizer_has_a_case(void **state)
{
    (void)state;
    for (int k = 0; mst_optimizers[k] != NULL; k++) {
        size_t found = 0;
        for (size_t i = 0; i < sizeof golden_cases / sizeof *golden_cases; i++)
            found += strcmp(golden_cases[i].optimizer, mst_optimizers[k]->name) == 0;
        assert_true(found > 0);
    }
}

static void test_schedules(void **state)
{
    static const char *const names[] = {"constant", "step", "inverse", "cosine"};
    (void)state;
    for (size_t i = 0; i < sizeof golden_schedules / sizeof *golden_schedules; i++) {
        const struct golden_schedule *golden = &golden_schedules[i];
        mst_optim_options options = {.lr = 0.25, .decay_steps = golden->decay_steps, .decay = golden->decay};
        while (strcmp(names[options.schedule], golden->name) != 0)
            options.schedule++;
        for (uint64_t t = 0; t < GOLDEN_STEPS; t++)
            assert_true(fabs(mst_learning_rate(&options, t + 1) - golden->rates[t]) <=
                        TOLERANCE * golden->rates[t]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trajectories),
        cmocka_unit_test(test_every_optimizer_has_a_case),
        cmocka_unit_test(test_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
