/* Successive halving; contract in halving.h. */
#include "sweep/halving.h"

#include <math.h>
#include <string.h>

#include "train/run_schedule.h"
#include "train/run_status.h"

mst_status mst_target_parse(const char *until, mst_target *out)
{
    mst_condition condition;
    if (mst_condition_parse(until, &condition) != MST_OK ||
        !mst_sweep_metric_find(mst_metric_name(condition.metric), &out->metric))
        return mst_fail(MST_EUSAGE, "until: %s: not a condition such as test_loss<=0.35", until);
    out->metric.high_is_good = !condition.less;
    out->value = condition.value;
    return MST_OK;
}

bool mst_target_reached(const char *end)
{
    return strcmp(end, mst_end_text(MST_END_UNTIL)) == 0;
}

/* Whether a is nearer to the target than b; NAN is the farthest. */
static bool halving_is_nearer(double a, double b, bool high_is_good)
{
    if (isnan(a) || isnan(b))
        return !isnan(a);
    return high_is_good ? a > b : a < b;
}

double mst_halving_nearer(double a, double b, bool high_is_good)
{
    return halving_is_nearer(b, a, high_is_good) ? b : a;
}

/* Counts the rounds in which a candidate came no nearer; rounds before its first evaluation do not count. */
static void halving_count_stale(mst_halving_try *t, bool high_is_good)
{
    bool nearer = isnan(t->before) || halving_is_nearer(t->nearest, t->before, high_is_good);
    t->stale = nearer ? 0 : t->stale + 1;
    t->before = t->nearest;
}

mst_halving_end mst_halving_decide(mst_halving_try *tries, size_t n, bool high_is_good, size_t *best)
{
    size_t first = n, nearest = n, alive = 0, last = n;
    for (size_t i = 0; i < n; i++) {
        if (tries[i].alive && tries[i].reached && (first == n || tries[i].seconds < tries[first].seconds))
            first = i;
        if (!isnan(tries[i].nearest) &&
            (nearest == n || halving_is_nearer(tries[i].nearest, tries[nearest].nearest, high_is_good)))
            nearest = i;
        if (tries[i].alive)
            halving_count_stale(&tries[i], high_is_good);
        tries[i].alive = tries[i].alive && !tries[i].over;
        alive += tries[i].alive;
        last = tries[i].alive ? i : last;
    }
    *best = first < n ? first : nearest;
    if (first < n)
        return MST_HALVING_FOUND;
    if (alive == 0)
        return MST_HALVING_NONE;
    if (alive == 1 && tries[last].stale >= MST_HALVING_PATIENCE)
        return MST_HALVING_STUCK;
    for (size_t drop = alive / 2; drop > 0; drop--) {
        size_t worst = n;
        for (size_t i = 0; i < n; i++) /* the last of equals */
            if (tries[i].alive &&
                (worst == n || !halving_is_nearer(tries[i].value, tries[worst].value, high_is_good)))
                worst = i;
        tries[worst].alive = false;
    }
    return MST_HALVING_GO_ON;
}
