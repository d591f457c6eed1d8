/* The rounds of --auto; contract in sweep_auto.h.
 *
 * sweep->search is {"target": text, "rounds": [{"seconds": s, "tries": [{"name", "given_s", "train_s",
 * "value", "nearest", "reached", "over", "sentence"}], "dropped": [name]}], "best": name, "why": sentence,
 * "stopped": why the remaining candidates did not continue}. An incomplete round has no "dropped"; "why" and
 * the entries after it exist once the search has ended. Replaying complete rounds gives the same decisions,
 * so an interrupted search continues where it was. */
#include "cli/sweep_auto.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "base/file.h"
#include "base/strings.h"
#include "cli/cli.h"
#include "report/figures.h"
#include "sweep/halving.h"
#include "train/training.h"

const char *const mst_auto_batches[] = {"32", "128", "512", "2048", "8192", "32768", NULL};

typedef struct search {
    mst_sweep *sweep;
    mst_runner *runner;
    mst_sweep_metric metric; /* selects the better half: metric: of the file, else that of the target */
    mst_halving_try *tries;  /* of the sweep's cells */
    json_t *rounds;
    double cap_s, timeout_s; /* cap: of for: seconds; INFINITY: none */
} search;

/* ---- one try ---- */

/* The result of a run so far. */
static mst_status auto_look(search *s, size_t i, double budget_s)
{
    const mst_sweep_cell *cell = &s->sweep->cells[i];
    mst_halving_try *t = &s->tries[i];
    char *path = mst_sweep_run_path(s->sweep, cell);
    mst_run_data *run = NULL;
    mst_run_figures f;
    mst_points points = {0};
    mst_status st;
    if (path == NULL)
        return mst_fail_memory();
    if (cell->state == MST_CELL_FAILED || mst_run_data_new(path, &run) != MST_OK) {
        t->over = true;
        mst_free(path);
        return MST_OK;
    }
    TRY_OUT(st, mst_run_figures_of(run, &f));
    TRY_OUT(st, mst_curve(run, s->metric.column, s->metric.any_set ? f.set : s->metric.set, MST_AXIS_TIME,
                          &points));
    t->seconds = f.train_s;
    t->value = points.n > 0 ? points.y[points.n - 1] : NAN;
    for (size_t k = 0; k < points.n; k++)
        t->nearest = mst_halving_nearer(t->nearest, points.y[k], s->metric.high_is_good);
    t->reached = mst_target_reached(f.end);
    t->over = !t->reached && (strcmp(f.end, mst_end_text(MST_END_SECONDS)) != 0 || budget_s >= s->cap_s);
out:
    mst_points_fini(&points);
    mst_run_data_destroy(run);
    mst_free(path);
    return st;
}

static json_t *auto_real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static mst_status auto_record(const search *s, json_t *tries, size_t i, double given_s)
{
    const mst_sweep_cell *cell = &s->sweep->cells[i];
    const mst_halving_try *t = &s->tries[i];
    json_t *json =
        json_pack("{s:s, s:f, s:f, s:o, s:o, s:b, s:b}", "name", cell->name, "given_s", given_s, "train_s",
                  isnan(t->seconds) ? 0.0 : t->seconds, "value", auto_real_or_null(t->value), "nearest",
                  auto_real_or_null(t->nearest), "reached", t->reached, "over", t->over);
    if (json != NULL && cell->sentence != NULL)
        json_object_set_new(json, "sentence", json_string(cell->sentence));
    return json != NULL && json_array_append_new(tries, json) == 0 ? MST_OK : mst_fail_memory();
}

/* Takes over a try that was recorded earlier; false: there is none. */
static bool auto_replay(search *s, const json_t *tries, size_t i)
{
    size_t k;
    json_t *item;
    json_array_foreach((json_t *)tries, k, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        if (name == NULL || strcmp(name, s->sweep->cells[i].name) != 0)
            continue;
        const json_t *value = json_object_get(item, "value"), *nearest = json_object_get(item, "nearest");
        if (!json_is_number(nearest))
            nearest = value;
        s->tries[i].seconds = json_number_value(json_object_get(item, "train_s"));
        s->tries[i].value = json_is_number(value) ? json_number_value(value) : NAN;
        s->tries[i].nearest = mst_halving_nearer(s->tries[i].nearest,
                                                 json_is_number(nearest) ? json_number_value(nearest) : NAN,
                                                 s->metric.high_is_good);
        s->tries[i].reached = json_is_true(json_object_get(item, "reached"));
        s->tries[i].over = json_is_true(json_object_get(item, "over"));
        return true;
    }
    return false;
}

static void auto_tell(const search *s, size_t round, double budget_s, size_t i)
{
    const mst_halving_try *t = &s->tries[i];
    char a[40], b[40];
    if (s->sweep->cells[i].state == MST_CELL_FAILED)
        mst_cli_note("round %zu: %s failed: %s", round + 1, s->sweep->cells[i].name,
                     s->sweep->cells[i].sentence);
    else
        mst_cli_note("round %zu (%s): %s %s after %s of training, %s %s", round + 1,
                     mst_figure_seconds(budget_s, b), s->sweep->cells[i].name,
                     t->reached ? "reached the target"
                     : t->over  ? "ended before the target"
                                : "has not reached it yet",
                     mst_figure_seconds(t->seconds, a), s->metric.column,
                     mst_figure_real(t->value, (char[40]){0}));
}

static mst_status auto_try_one(search *s, size_t round, double budget_s, size_t i)
{
    mst_sweep_cell *cell = &s->sweep->cells[i];
    char word[48], what[48];
    const char *save = json_string_value(json_object_get(cell->set, "save"));
    mst_runner_how how = mst_runner_how_to(s->sweep, cell);
    if (how == MST_RUNNER_OVERWRITE && round > 0 && (save == NULL || strcmp(save, "true") == 0))
        how = MST_RUNNER_RESUME;
    snprintf(word, sizeof word, "--seconds=%.9g", budget_s);
    snprintf(what, sizeof what, "round %zu: ", round + 1);
    TRY(mst_sweep_mark(cell, MST_CELL_RUNNING, NULL));
    TRY(mst_sweep_save(s->sweep));
    TRY(mst_runner_run(s->runner, cell, how, word, what, NAN));
    if (mst_runner_stopped(s->runner))
        return MST_OK;
    TRY(auto_look(s, i, budget_s));
    auto_tell(s, round, budget_s, i);
    return MST_OK;
}

/* Training time of a candidate: at most the shortest time to the target so far, and at most for: seconds. */
static double auto_given(const search *s, double budget_s)
{
    budget_s = fmin(budget_s, s->cap_s);
    for (size_t i = 0; i < s->sweep->n; i++)
        if (s->tries[i].alive && s->tries[i].reached)
            budget_s = fmin(budget_s, s->tries[i].seconds);
    return budget_s;
}

/* ---- rounds ---- */

/* The round of that number, new or partly done; NULL when memory is short. */
static json_t *auto_round_at(search *s, size_t round, double budget_s)
{
    json_t *found = json_array_get(s->rounds, round);
    if (found != NULL)
        return found;
    found = json_pack("{s:f, s:[]}", "seconds", budget_s, "tries");
    return found != NULL && json_array_append_new(s->rounds, found) == 0 ? found : NULL;
}

static mst_status auto_run_round(search *s, size_t round, double budget_s)
{
    json_t *entry = auto_round_at(s, round, budget_s), *tries = json_object_get(entry, "tries");
    if (entry == NULL || !json_is_array(tries))
        return mst_fail_memory();
    for (size_t i = 0; i < s->sweep->n && !mst_runner_stopped(s->runner); i++) {
        if (!s->tries[i].alive || auto_replay(s, tries, i))
            continue;
        double given_s = auto_given(s, budget_s);
        TRY(auto_try_one(s, round, given_s, i));
        if (!mst_runner_stopped(s->runner))
            TRY(auto_record(s, tries, i, given_s));
        TRY(mst_sweep_save(s->sweep));
    }
    return MST_OK;
}

/* Decides after a complete round, and records the dropped candidates. */
static mst_status auto_decide(search *s, size_t round, mst_halving_end *end, size_t *best)
{
    json_t *entry = json_array_get(s->rounds, round), *dropped = json_array();
    bool *before = mst_calloc(s->sweep->n, sizeof *before);
    mst_status st = before != NULL && dropped != NULL ? MST_OK : mst_fail_memory();
    for (size_t i = 0; st == MST_OK && i < s->sweep->n; i++)
        before[i] = s->tries[i].alive;
    if (st == MST_OK)
        *end = mst_halving_decide(s->tries, s->sweep->n, s->metric.high_is_good, best);
    for (size_t i = 0; st == MST_OK && *end == MST_HALVING_GO_ON && i < s->sweep->n; i++)
        if (before[i] && !s->tries[i].alive && !s->tries[i].over &&
            json_array_append_new(dropped, json_string(s->sweep->cells[i].name)) != 0)
            st = mst_fail_memory();
    if (st == MST_OK && json_object_set(entry, "dropped", dropped) != 0)
        st = mst_fail_memory();
    json_decref(dropped);
    mst_free(before);
    return st;
}

/* The only candidate left; "" when there are several. */
static const char *auto_last_name(const search *s)
{
    const char *name = "";
    for (size_t i = 0; i < s->sweep->n; i++)
        name = s->tries[i].alive ? s->sweep->cells[i].name : name;
    return name;
}

/* Why no run reached the target. The caller frees. */
static char *auto_why_not(const search *s, mst_halving_end end, const char *until)
{
    if (end == MST_HALVING_NONE)
        return mst_sprintf("no run reached %s within the limits of for:", until);
    if (end == MST_HALVING_STUCK)
        return mst_sprintf("no run reached %s: %s, the last one left, came no nearer in %d rounds", until,
                           auto_last_name(s), MST_HALVING_PATIENCE);
    return mst_sprintf("no run reached %s before a round would take longer than --run-timeout", until);
}

static mst_status auto_conclude(search *s, mst_halving_end end, size_t best, size_t rounds)
{
    char a[40], stuck[64];
    const char *until = mst_sweep_until(s->sweep);
    char *why, *none = auto_why_not(s, end, until);
    snprintf(stuck, sizeof stuck, "stopped: came no nearer in %d rounds", MST_HALVING_PATIENCE);
    const char *stopped = end == MST_HALVING_FOUND   ? "stopped: another run reached the target"
                          : end == MST_HALVING_STUCK ? stuck
                                                     : "stopped: the next round would be longer than "
                                                       "--run-timeout";
    if (end == MST_HALVING_FOUND)
        why = mst_sprintf("%s reached %s after %s of training, in round %zu; no other remaining candidate "
                          "reached it in that time",
                          s->sweep->cells[best].name, until, mst_figure_seconds(s->tries[best].seconds, a),
                          rounds);
    else if (best < s->sweep->n && none != NULL)
        why = mst_sprintf("%s; %s came nearest, with %s %s", none, s->sweep->cells[best].name,
                          s->metric.column, mst_figure_real(s->tries[best].nearest, a));
    else
        why = mst_sprintf("no run reached %s, and no run was evaluated; check eval-every and test", until);
    mst_free(none);
    if (why == NULL)
        return mst_fail_memory();
    bool fine = json_object_set_new(s->sweep->search, "why", json_string(why)) == 0;
    fine = fine && json_object_set_new(s->sweep->search, "stopped", json_string(stopped)) == 0;
    fine =
        fine && json_object_set_new(s->sweep->search, "found", json_boolean(end == MST_HALVING_FOUND)) == 0;
    if (best < s->sweep->n)
        fine = fine &&
               json_object_set_new(s->sweep->search, "best", json_string(s->sweep->cells[best].name)) == 0;
    mst_free(why);
    return fine ? mst_sweep_save(s->sweep) : mst_fail_memory();
}

static mst_status auto_run_rounds(search *s, double first_s)
{
    mst_halving_end end = MST_HALVING_GO_ON;
    size_t best = s->sweep->n, round = 0;
    double budget_s = first_s;
    for (;; round++, budget_s *= 2) {
        TRY(auto_run_round(s, round, budget_s));
        if (mst_runner_stopped(s->runner))
            return MST_OK;
        TRY(auto_decide(s, round, &end, &best));
        TRY(mst_sweep_save(s->sweep));
        if (end != MST_HALVING_GO_ON || 2 * budget_s > s->timeout_s)
            break;
    }
    return auto_conclude(s, end, best, round + 1);
}

/* Cells that take part: those with the first seed. */
static mst_status auto_choose(search *s)
{
    const char *first = NULL;
    size_t n = 0;
    for (size_t i = 0; i < s->sweep->n; i++) {
        mst_sweep_cell *cell = &s->sweep->cells[i];
        const char *seed = json_string_value(json_object_get(cell->labels, "seed"));
        s->tries[i] = (mst_halving_try){.seconds = NAN, .value = NAN, .nearest = NAN, .before = NAN};
        if (cell->state == MST_CELL_SKIPPED)
            continue;
        first = first == NULL ? seed : first;
        if (seed != NULL && strcmp(seed, first) != 0) {
            TRY(mst_sweep_mark(cell, MST_CELL_SKIPPED, "--auto tries the first seed only"));
            continue;
        }
        s->tries[i].alive = true;
        n++;
    }
    return n > 0 ? MST_OK : mst_fail(MST_EUSAGE, "%s: --auto: no run is left", s->sweep->file);
}

mst_status mst_sweep_auto(mst_sweep *sweep, mst_runner *runner, double first_s, double timeout_s)
{
    mst_status st;
    const char *until = mst_sweep_until(sweep),
               *seconds = json_string_value(json_object_get(json_object_get(sweep->spec, "for"), "seconds"));
    search s = {.sweep = sweep,
                .runner = runner,
                .timeout_s = timeout_s,
                .cap_s = seconds != NULL ? strtod(seconds, NULL) : INFINITY};
    mst_target target;
    bool given;
    const char *metric = mst_sweep_metric_name(sweep, &given);
    TRY(mst_target_parse(until, &target));
    s.metric = target.metric;
    if (given && mst_sweep_metric_find(metric, &s.metric) && !s.metric.evaluated)
        return mst_fail(MST_EUSAGE,
                        "%s: metric: %s: --auto keeps the better half by an evaluation: give loss, accuracy, "
                        "auc or top5",
                        sweep->file, metric);
    s.tries = mst_calloc(sweep->n, sizeof *s.tries);
    if (s.tries == NULL)
        return mst_fail_memory();
    TRY_OUT(st, auto_choose(&s));
    if (sweep->search == NULL)
        sweep->search = json_pack("{s:s, s:[]}", "target", until, "rounds");
    s.rounds = json_object_get(sweep->search, "rounds");
    if (!json_is_array(s.rounds))
        TRY_OUT(st, mst_fail_memory());
    st = auto_run_rounds(&s, first_s);
out:
    mst_free(s.tries);
    return st;
}
