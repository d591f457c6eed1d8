/* The choices of --strategy: the option and the table agree, and resolving fills in what they need. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "strategy/strategy.h"

static void choices_of_the_option_are_the_table(void **state)
{
    (void)state;
    char names[128] = "";
    const mst_option *option = mst_strategy_option_table;
    for (const mst_strategy_choice *c = mst_strategy_choices; c->name != NULL; c++) {
        size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", n > 0 ? "|" : "", c->name);
        assert_non_null(c->help);
    }
    while (option->name != NULL && strcmp(option->name, "strategy") != 0)
        option++;
    assert_non_null(option->name);
    assert_string_equal(option->choices, names);
}

/* A strategy of the training loop has all required functions; ps has none and is refused by the loop. */
static void the_loop_runs_complete_strategies(void **state)
{
    (void)state;
    mst_strategy *strategy = NULL;
    const mst_strategy_env env = {0};
    for (const mst_strategy_choice *c = mst_strategy_choices; c->name != NULL; c++)
        if (c->ops != NULL)
            assert_true(c->ops->size > 0 && c->ops->init != NULL && c->ops->run != NULL &&
                        c->ops->fini != NULL);
    const mst_strategy_options ps = {.strategy = MST_STRATEGY_PS, .threads = 4, .mode = MST_MODE_ASYNC};
    assert_null(mst_strategy_choices[MST_STRATEGY_PS].ops);
    assert_int_equal(mst_strategy_new(&ps, &env, &strategy), MST_EUSAGE);
    assert_int_equal(mst_strategy_spare(&ps), 0);
    assert_false(mst_strategy_random_rows(&ps));
}

static void resolving_divides_the_global_batch(void **state)
{
    (void)state;
    mst_strategy_options o = {
        .strategy = MST_STRATEGY_PS, .workers = 3, .servers = 0, .threads = 1, .global_batch = 100};
    assert_int_equal(mst_strategy_resolve(&o), MST_OK);
    assert_int_equal(o.batch, 34);
    assert_int_equal(o.servers, 3);
    mst_strategy_options again = o;
    assert_int_equal(mst_strategy_resolve(&again), MST_OK);
    assert_memory_equal(&again, &o, sizeof o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_of_the_option_are_the_table),
        cmocka_unit_test(the_loop_runs_complete_strategies),
        cmocka_unit_test(resolving_divides_the_global_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
