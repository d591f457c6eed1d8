/* Options that were given; contract in settings_impl.h.
 *
 * An option that was given and has no effect is a mistake that no figure shows: `--staleness 9` without
 * --strategy ps trains as if it were not there. Its row's `needs` defines where an option has an effect. */
#include "train/settings_impl.h"

#include <string.h>

#include "mpi/mpi.h"

mst_given mst_given_of(const mst_settings *settings)
{
    mst_given given = {.n_groups = settings->n_groups, .strategy = settings->strategy};
    memcpy(given.groups, settings->groups, sizeof given.groups);
    return given;
}

static bool given_has(const mst_given *given, const char *name)
{
    return mst_options_is_set(given->groups, given->n_groups, name);
}

/* The launcher decides the number of processes; --workers and --servers may repeat it. */
static mst_status given_check_counts(const mst_given *given, const mst_settings *s)
{
    const mst_strategy_options *was = &given->strategy, *is = &s->strategy;
    mst_mpi_launch launch;
    mst_mpi_launched(&launch);
    if (s->cluster.source != NULL && given_has(given, "workers") && was->workers != is->workers)
        return mst_fail(MST_EUSAGE, "--workers %lld: %s has %lld", (long long)was->workers, s->cluster.source,
                        (long long)is->workers);
    if (s->cluster.source != NULL && given_has(given, "servers") && was->servers != is->servers)
        return mst_fail(MST_EUSAGE, "--servers %lld: %s has %lld", (long long)was->servers, s->cluster.source,
                        (long long)is->servers);
    if (is->strategy == MST_STRATEGY_ALLREDUCE && given_has(given, "workers") && was->workers != is->workers)
        return launch.launched
                   ? mst_fail(MST_EUSAGE,
                              "--workers %lld: %s started %lld ranks, and all of them are workers",
                              (long long)was->workers, launch.launcher, (long long)is->workers)
                   : mst_fail(MST_EUSAGE,
                              "--workers %lld: the workers of --strategy allreduce are MPI ranks; start them "
                              "with mpirun -n %lld",
                              (long long)was->workers, (long long)was->workers);
    return MST_OK;
}

/* The options of one group. */
static mst_status given_check_group(const mst_option_group *given, const mst_settings *s, const char *only)
{
    for (size_t i = 0; given->table[i].name != NULL; i++) {
        const mst_option *row = &given->table[i];
        const mst_option_need *need =
            (given->set >> i & 1) == 0
                ? NULL
                : mst_options_unmet(s->groups, s->n_groups, row, MST_NEED_STRICT, only);
        char where[256];
        size_t length;
        if (need == NULL)
            continue;
        const char *word = mst_options_word(s->groups, s->n_groups, need->option, &length);
        return mst_fail(MST_EUSAGE, "--%s applies only to %s, but --%s is %.*s", row->name,
                        mst_option_need_text(need, where, sizeof where), need->option, (int)length, word);
    }
    return MST_OK;
}

mst_status mst_given_check(const mst_given *given, const mst_settings *settings, bool strategy_only)
{
    if (settings->cluster.source != NULL && given_has(given, "strategy") &&
        given->strategy.strategy != MST_STRATEGY_PS && !settings->cluster.allreduce)
        return mst_fail(MST_EUSAGE, "--strategy %s: a process of a cluster (%s) trains with ps",
                        mst_strategy_choices[given->strategy.strategy].name, settings->cluster.source);
    for (size_t g = 0; g < given->n_groups; g++)
        TRY(given_check_group(&given->groups[g], settings, strategy_only ? "strategy" : NULL));
    return given_check_counts(given, settings);
}
