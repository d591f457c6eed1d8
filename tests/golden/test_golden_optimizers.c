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
    mst_params params = {.w = w, .slots = {a, b}, .size = GOLDEN_WEIGHTS, .n_slots = 2, .n_views = 1};
    params.views[0] = (mst_view){.size = GOLDEN_WEIGHTS};
    mst_optimizer_declare(&optimizer, &params);
    mst_optimizer_start(&optimizer, &params, 0, params.size);
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

/* Keys of several weights, in vectors and by rows. */
static void run_rows(const struct golden_rows *golden, bool by_rows)
{
    mst_optimizer optimizer;
    mst_optim_options options = golden->options;
    mst_params params = {.by_rows = by_rows};
    float w[GOLDEN_KEYS * GOLDEN_WIDTH];
    options.optimizer = index_of("rowwise");
    assert_int_equal(mst_optimizer_init(&optimizer, &options), MST_OK);
    assert_int_equal(mst_params_add(&params, "keys", MST_VIEW_TRAINABLE, GOLDEN_WIDTH, 2,
                                    (uint64_t[]){GOLDEN_KEYS, GOLDEN_WIDTH}, NULL),
                     MST_OK);
    assert_int_equal(mst_params_reserve(&params, mst_optimizer_declare(&optimizer, &params), 0), MST_OK);
    assert_true((params.rows.stride != 0) == by_rows);
    mst_optimizer_start(&optimizer, &params, 0, params.size);
    for (size_t i = 0; i < GOLDEN_KEYS * GOLDEN_WIDTH; i++)
        w[i] = (float)golden_row_start[i];
    mst_params_write(&params, 0, 0, GOLDEN_KEYS * GOLDEN_WIDTH, w);
    for (size_t t = 0; t < GOLDEN_STEPS; t++) {
        mst_update update = mst_optimizer_update(&optimizer, t + 1);
        uint32_t keys[GOLDEN_KEYS], n = 0;
        float g[GOLDEN_KEYS * GOLDEN_WIDTH];
        for (uint32_t k = 0; k < GOLDEN_KEYS; k++) {
            if ((t + k) % 3 == 0)
                continue;
            for (uint32_t j = 0; j < GOLDEN_WIDTH; j++)
                g[n * GOLDEN_WIDTH + j] = (float)golden_row_gradients[t][k * GOLDEN_WIDTH + j];
            keys[n++] = k;
        }
        mst_optimizer_apply_keys(&optimizer, &update, &params, 0, GOLDEN_WIDTH, keys, g, n);
        mst_params_read(&params, 0, 0, GOLDEN_KEYS * GOLDEN_WIDTH, w);
        for (size_t i = 0; i < GOLDEN_KEYS * GOLDEN_WIDTH; i++)
            if (!(fabs(w[i] - golden->after[t][i]) <= TOLERANCE * fmax(1, fabs(golden->after[t][i]))))
                fail_msg("%s: step %zu, weight %zu is %.9g, expected %.9g", golden->name, t + 1, i,
                         (double)w[i], golden->after[t][i]);
    }
    mst_params_fini(&params);
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof golden_rows / sizeof *golden_rows; i++)
        for (int by_rows = 0; by_rows < 2; by_rows++)
            run_rows(&golden_rows[i], by_rows);
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
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_every_optimizer_has_a_case),
        cmocka_unit_test(test_schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
