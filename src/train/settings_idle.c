/* Options that say nothing; contract in settings_idle.h.
 *
 * An option that was given and changes nothing is a mistake that no figure shows: `--staleness 9` without
 * --strategy ps trains, and teaches nothing about staleness. One table says what each option depends on.
 * Sweeps, whose options are for many runs, leave out of a run what the same table says of it. */
#include "train/settings_idle.h"

#include <string.h>

#include "mpi/mpi.h"

#define BUILT_IN "lenet lenet-small alexnet alexnet-paper mlp"

static const mst_option_meaning meanings[] = {
    {"servers", "strategy", "ps"},
    {"workers", "strategy", "ps allreduce"},
    {"quorum", "strategy", "ps"},
    {"staleness", "strategy", "ps"},
    {"pipeline", "strategy", "ps"},
    {"wire", "strategy", "ps allreduce"},
    {"dense-model", "strategy", "ps"},
    {"part", "strategy", "ps"},
    {"shard", "strategy", "ps"},
    {"peer-timeout", "strategy", "ps allreduce"},
    {"start-timeout", "strategy", "ps allreduce"},
    {"stall-timeout", "strategy", "ps allreduce"},
    {"reduction", "strategy", "allreduce"},
    {"staleness", "mode", "ssp"},
    {"bias", "model", "logreg softmax"},
    {"pos-weight", "model", "logreg"},
    {"image", "model", "net " BUILT_IN},
    {"init", "model", "net " BUILT_IN},
    {"executor", "model", "net " BUILT_IN},
    {"activation", "model", BUILT_IN},
    {"hidden", "model", "mlp"},
    {"momentum", "optimizer", "momentum"},
    {"beta1", "optimizer", "adam"},
    {"beta2", "optimizer", "adam"},
    {"eps", "optimizer", "adagrad adam"},
    {"ftrl-beta", "optimizer", "ftrl"},
    {"adagrad-start", "optimizer", "adagrad"},
    {"decay-steps", "schedule", "step inverse cosine"},
    {"decay", "schedule", "step"},
};

static bool among(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = words; at != NULL; at = strchr(at, ' ') != NULL ? strchr(at, ' ') + 1 : NULL)
        if (strncmp(at, word, n) == 0 && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}

static const char *value_of(const json_t *options, const char *name)
{
    const char *title;
    json_t *group;
    json_object_foreach((json_t *)options, title, group)
    {
        const char *value = json_string_value(json_object_get(group, name));
        if (value != NULL)
            return value;
    }
    return NULL;
}

const mst_option_meaning *mst_option_idle(const json_t *options, const char *name, bool strategy_only)
{
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
        const mst_option_meaning *m = &meanings[i];
        if (strcmp(m->option, name) != 0 || (strategy_only && strcmp(m->decider, "strategy") != 0))
            continue;
        const char *value = value_of(options, m->decider);
        if (value != NULL && !among(m->values, value))
            return m;
    }
    return NULL;
}

mst_given mst_given_of(const mst_settings *settings)
{
    mst_given given = {.n_groups = settings->n_groups, .strategy = settings->strategy};
    memcpy(given.groups, settings->groups, sizeof given.groups);
    return given;
}

static bool is_given(const mst_given *given, const char *name)
{
    return mst_options_is_set(given->groups, given->n_groups, name);
}

/* "ps allreduce" as "ps or allreduce". */
static const char *alternatives(const char *words, char *out, size_t size)
{
    size_t used = 0;
    for (const char *at = words; *at != '\0' && used < size;) {
        size_t n = strcspn(at, " ");
        const char *next = at + n + (at[n] == ' ');
        const char *join = at == words ? "" : strchr(at, ' ') == NULL ? " or " : ", ";
        used += (size_t)snprintf(out + used, size - used, "%s%.*s", join, (int)n, at);
        at = next;
    }
    return out;
}

/* How many processes there are is said by who started them; --workers and --servers may repeat it. */
static mst_status check_counts(const mst_given *given, const mst_settings *s)
{
    const mst_strategy_options *was = &given->strategy, *is = &s->strategy;
    mst_mpi_launch launch;
    mst_mpi_launched(&launch);
    if (s->cluster.source != NULL && is_given(given, "workers") && was->workers != is->workers)
        return mst_fail(MST_EUSAGE, "--workers %lld: %s has %lld", (long long)was->workers, s->cluster.source,
                        (long long)is->workers);
    if (s->cluster.source != NULL && is_given(given, "servers") && was->servers != is->servers)
        return mst_fail(MST_EUSAGE, "--servers %lld: %s has %lld", (long long)was->servers, s->cluster.source,
                        (long long)is->servers);
    if (is->strategy == MST_STRATEGY_ALLREDUCE && is_given(given, "workers") && was->workers != is->workers)
        return launch.launched
                   ? mst_fail(MST_EUSAGE, "--workers %lld: %s started %lld ranks, and all of them work",
                              (long long)was->workers, launch.launcher, (long long)is->workers)
                   : mst_fail(
                         MST_EUSAGE,
                         "--workers %lld: workers of --strategy allreduce are ranks of an MPI job; start "
                         "them with mpirun -n %lld",
                         (long long)was->workers, (long long)was->workers);
    return MST_OK;
}

mst_status mst_given_check(const mst_given *given, const mst_settings *settings, bool strategy_only)
{
    mst_status st = MST_OK;
    char words[128];
    json_t *options = mst_options_json(settings->groups, settings->n_groups);
    if (options == NULL)
        return mst_fail_memory();
    if (settings->cluster.source != NULL && is_given(given, "strategy") &&
        given->strategy.strategy != MST_STRATEGY_PS)
        st = mst_fail(MST_EUSAGE, "--strategy %s: a process of a cluster (%s) trains with ps",
                      mst_strategies[given->strategy.strategy]->name, settings->cluster.source);
    for (size_t i = 0; st == MST_OK && i < sizeof meanings / sizeof *meanings; i++) {
        const char *name = meanings[i].option;
        const mst_option_meaning *m =
            is_given(given, name) ? mst_option_idle(options, name, strategy_only) : NULL;
        if (m != NULL)
            st = mst_fail(MST_EUSAGE, "--%s is for --%s %s, and --%s is %s", name, m->decider,
                          alternatives(m->values, words, sizeof words), m->decider,
                          value_of(options, m->decider));
    }
    json_decref(options);
    return st != MST_OK ? st : check_counts(given, settings);
}
