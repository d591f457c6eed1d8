/* Every option table of the program: rows are complete, defaults pass their own checks, needs name options
 * and values that exist, names are unique per command, and facts agree with each other and with the
 * registries. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "cli/cli.h"
#include "model/layer.h"
#include "model/model.h"
#include "optim/optim.h"
#include "options/option_tables.h"
#include "strategy/strategy.h"
#include "sweep/sweep.h"

/* "a|b" has the word, of n bytes. */
static bool has_word(const char *words, const char *word, size_t n)
{
    for (const char *at = words; at != NULL; at = strchr(at, '|') != NULL ? strchr(at, '|') + 1 : NULL)
        if (strncmp(at, word, n) == 0 && (at[n] == '|' || at[n] == '\0'))
            return true;
    return false;
}

static const mst_option *find(const mst_option *const *tables, const char *name)
{
    const mst_option *row = NULL;
    for (; row == NULL && *tables != NULL; tables++)
        row = mst_option_row(*tables, name);
    return row;
}

static void expect_need(const mst_option *const *tables, const mst_option *row, const mst_option_need *need)
{
    const mst_option *decider = find(tables, need->option);
    if (decider == NULL)
        fail_msg("--%s needs --%s, which its command does not have", row->name, need->option);
    if (decider->type == MST_OPTION_FLAG) {
        assert_true(has_word("true|false", need->values, strlen(need->values)));
        return;
    }
    assert_int_equal(decider->type, MST_OPTION_CHOICE);
    for (const char *at = need->values; *at != '\0';) {
        size_t n = strcspn(at, "|");
        if (!has_word(decider->choices, at, n))
            fail_msg("--%s needs --%s %s, which has no such value", row->name, need->option, at);
        at += n + (at[n] == '|');
    }
}

static void expect_row(const mst_option *const *tables, const mst_option *row)
{
    size_t length = row->help != NULL ? strlen(row->help) : 0;
    if (length == 0 || strchr(".)", row->help[length - 1]) == NULL || strchr(row->help, '\n') != NULL)
        fail_msg("--%s: its help is not one paragraph with a full stop", row->name);
    assert_true((row->type == MST_OPTION_CHOICE) == (row->choices != NULL));
    assert_true(row->min <= row->max);
    if (row->min != 0 || row->max != 0)
        assert_true(row->type == MST_OPTION_INT || row->type == MST_OPTION_REAL);
    if (row->type == MST_OPTION_CHOICE)
        assert_non_null(row->fallback);
    if (row->type == MST_OPTION_FLAG)
        assert_true(row->metavar == NULL &&
                    (row->fallback == NULL || has_word("true|false", row->fallback, strlen(row->fallback))));
    for (size_t i = 0; i < MST_OPTION_NEEDS_MAX; i++)
        if (row->needs[i].option != NULL)
            expect_need(tables, row, &row->needs[i]);
    /* A change of an option that every start gives again is recorded only if the option has an effect. */
    if ((row->facts & MST_OPTION_NOT_RECORDED) != 0)
        assert_true((row->facts & MST_OPTION_NOT_RESUMED) != 0);
    if ((row->facts & (MST_OPTION_OF_PROCESS | MST_OPTION_OF_OUTPUT)) != 0)
        assert_int_equal(row->facts & MST_OPTION_PRIVATE, MST_OPTION_PRIVATE);
}

/* A default is a value that a user could type; the table is initialised as a command does it. */
static void expect_defaults(const mst_option *table)
{
    size_t end = 0;
    for (const mst_option *row = table; row->name != NULL; row++)
        end = row->offset > end ? row->offset : end;
    void *base = mst_zalloc(end + sizeof(mst_text_list));
    mst_option_group group = {.title = "options", .table = table, .base = base};
    assert_non_null(base);
    if (mst_options_init(&group, 1) != MST_OK)
        fail_msg("%s", mst_error_text());
    char *help = mst_options_help(&group, 1), *roff = mst_options_roff(&group, 1);
    assert_true(help != NULL && roff != NULL);
    mst_free(help);
    mst_free(roff);
    mst_options_fini(&group, 1);
    mst_free(base);
}

static void expect_tables(const char *command, const mst_option *const *tables)
{
    for (size_t t = 0; tables[t] != NULL; t++) {
        expect_defaults(tables[t]);
        for (const mst_option *row = tables[t]; row->name != NULL; row++) {
            size_t found = 0;
            expect_row(tables, row);
            for (size_t u = 0; tables[u] != NULL; u++)
                for (const mst_option *other = tables[u]; other->name != NULL; other++)
                    found += strcmp(other->name, row->name) == 0;
            if (found != 1)
                fail_msg("%s has %zu options --%s", command, found, row->name);
        }
    }
}

static void expect_commands(const mst_command *const *commands, size_t *n)
{
    for (; *commands != NULL; commands++) {
        const mst_command *c = *commands;
        assert_true(c->name != NULL && c->summary != NULL && (c->run == NULL) == (c->commands != NULL));
        assert_true(c->run == NULL || c->usage != NULL);
        *n += c->run != NULL;
        if (c->run != NULL) {
            const mst_option *tables[MST_CALL_GROUPS + 1] = {NULL};
            mst_call call;
            assert_int_equal(mst_call_begin(&call, c), MST_OK);
            for (size_t g = 0; g < call.n_groups; g++)
                tables[g] = call.groups[g].table;
            expect_tables(c->name, tables);
            mst_call_end(&call);
        }
        if (c->commands != NULL)
            expect_commands(c->commands, n);
    }
}

static void test_commands(void **state)
{
    (void)state;
    size_t n = 0;
    expect_commands(mst_commands, &n);
    assert_true(n > 20);
    const mst_option *const deploy[] = {mst_deploy_option_table, NULL};
    expect_tables("sweep", deploy);
    for (size_t i = 0; mst_layers[i] != NULL; i++) {
        const mst_option *const layer[] = {mst_layers[i]->options, NULL}; /* or none */
        expect_tables(mst_layers[i]->name, layer);
    }
}

/* Choices of rows are the names of registries, in their order, and needs follow capabilities. */
static void expect_choice(const char *option, size_t i, const char *name)
{
    const mst_option *row = mst_train_option(option);
    const char *at = row->choices;
    for (; i > 0 && at != NULL; i--)
        at = strchr(at, '|') != NULL ? strchr(at, '|') + 1 : NULL;
    assert_non_null(at);
    assert_int_equal(strcspn(at, "|"), strlen(name));
    assert_memory_equal(at, name, strlen(name));
}

static void test_registries(void **state)
{
    (void)state;
    for (size_t i = 0; mst_models[i] != NULL; i++) {
        const char *name = mst_models[i]->name;
        expect_choice("model", i, name);
        assert_int_equal(has_word(mst_train_option("image")->needs[0].values, name, strlen(name)),
                         mst_model_has(mst_models[i], MST_MODEL_NET));
        assert_int_equal(has_word(mst_train_option("bias")->needs[0].values, name, strlen(name)),
                         mst_model_has(mst_models[i], MST_MODEL_LINEAR));
        assert_int_equal(has_word(mst_train_option("pos-weight")->needs[0].values, name, strlen(name)),
                         mst_model_has(mst_models[i], MST_MODEL_BINARY) ||
                             mst_model_has(mst_models[i], MST_MODEL_NET_FILE));
    }
    for (size_t i = 0; mst_optimizers[i] != NULL; i++)
        expect_choice("optimizer", i, mst_optimizers[i]->name);
    for (size_t i = 0; mst_strategy_choices[i].name != NULL; i++)
        expect_choice("strategy", i, mst_strategy_choices[i].name);
}

/* The options with a fact, in the order of the tables. */
static void expect_fact(unsigned fact, const char *want)
{
    char got[2048] = "";
    for (size_t t = 0; mst_train_tables[t] != NULL; t++)
        for (const mst_option *row = mst_train_tables[t]; row->name != NULL; row++)
            if ((row->facts & fact) != 0)
                snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", got[0] != '\0' ? " " : "",
                         row->name);
    assert_string_equal(got, want);
}

/* Changing one of these changes what processes compare, what --resume keeps or what reports show. */
static void test_facts(void **state)
{
    (void)state;
    expect_fact(MST_OPTION_NOT_RESUMED,
                "run resume resume-data fail-if-done overwrite init-from force tls config dry-run json quiet "
                "role index cluster mpi-plugin files");
    expect_fact(MST_OPTION_NOT_RECORDED,
                "run resume resume-data fail-if-done overwrite config dry-run json quiet role index cluster "
                "mpi-plugin files");
    expect_fact(MST_OPTION_NOT_COMPARED, "run group resume overwrite config dry-run json quiet role index "
                                         "cluster mpi-plugin files");
    expect_fact(MST_OPTION_OF_SWEEP, "run group resume overwrite");
    expect_fact(MST_OPTION_OF_JOB, "strategy servers workers");
    expect_fact(MST_OPTION_OF_PROCESS, "role index cluster");
    expect_fact(MST_OPTION_LIMIT, "epochs steps rows seconds until");
    expect_fact(MST_OPTION_OF_FILE, "format csv-header labels skip-bad-rows");
    expect_fact(MST_OPTION_OF_SHAPE, "features fields classes");
    expect_fact(MST_OPTION_IF_GIVEN, "epochs lr tls");
    /* All processes of a job agree on the rest. */
    const char *shared =
        "strict-features seed valid-seed shuffle-rows observe resources-every trace trace-steps "
        "mode batch global-batch lr-scale quorum staleness pipeline wire dense-model part shard "
        "reduction elastic recover replicas on-nan";
    for (const char *at = shared; *at != '\0'; at += strspn(at, " ")) {
        char name[64];
        size_t n = strcspn(at, " ");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        assert_non_null(mst_train_option(name));
        assert_false(mst_train_option_is(name, MST_OPTION_MAY_DIFFER));
        at += n;
    }
    assert_false(mst_train_option_is("no-such-option", MST_OPTION_MAY_DIFFER));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_registries),
        cmocka_unit_test(test_facts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
