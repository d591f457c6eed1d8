/* The sentences of a sweep's report, and the report as Markdown, CSV and JSON (sweep_report.h).
 *
 * Invariant: text from a file is written by mst_string_markdown or mst_string_csv. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/figure.h"
#include "base/version.h"
#include "sweep/sweep_report_impl.h"

/* ---- sentences ---- */

static const char *sweep_config_name(const mst_sweep_report *self, size_t config)
{
    return self->sweep->cells[self->configs[config].first].config;
}

static void sweep_spread_text(const mst_stat *s, char *out, size_t size)
{
    if (s->n > 1)
        snprintf(out, size, ", mean of %zu", s->n);
    else
        out[0] = '\0';
}

static void sweep_find_fastest(const mst_sweep_report *self, mst_sweep_choice *out)
{
    char a[40], more[40];
    out->config = self->has_target ? mst_sweep_best(self, MST_SWEEP_TARGET, false) : self->n_configs;
    if (out->config == self->n_configs)
        return;
    const mst_stat *s = &self->configs[out->config].stats[MST_SWEEP_TARGET];
    sweep_spread_text(s, more, sizeof more);
    snprintf(out->sentence, sizeof out->sentence, "Shortest time to %.120s: %.200s, %s of training%s",
             mst_sweep_until(self->sweep), sweep_config_name(self, out->config),
             mst_figure_seconds(s->mean, a), more);
}

/* By the metric of the file, or the loss. */
static void sweep_find_best_quality(const mst_sweep_report *self, mst_sweep_choice *out)
{
    char more[40], value[48], beside[48] = "";
    bool target = strcmp(self->metric_name, "target_s") == 0, loss = target && !self->metric_given;
    mst_sweep_figure figure = loss ? MST_SWEEP_LOSS : MST_SWEEP_METRIC;
    if (target && self->metric_given) /* the shortest time to the target, which has its own sentence */
        return;
    const char *name = loss ? "loss" : self->metric_name;
    bool high = !loss && self->metric.high_is_good;
    out->config = mst_sweep_best(self, figure, high);
    if (out->config == self->n_configs)
        return;
    const mst_sweep_config *c = &self->configs[out->config];
    bool of_loss = strcmp(name, "loss") == 0;
    double other = c->stats[of_loss ? MST_SWEEP_ACCURACY : MST_SWEEP_LOSS].mean;
    if (!isnan(other))
        snprintf(beside, sizeof beside, of_loss ? " (accuracy %.2f%%)" : " (loss %.4g)",
                 of_loss ? other * 100 : other);
    mst_figure_text(loss ? MST_FIGURE_PLAIN : mst_sweep_metric_unit(self), c->stats[figure].mean, value);
    sweep_spread_text(&c->stats[figure], more, sizeof more);
    snprintf(out->sentence, sizeof out->sentence, "%s %s: %.200s, %s%s%s", high ? "Highest" : "Lowest", name,
             sweep_config_name(self, out->config), value, beside, more);
}

static void sweep_find_quickest(const mst_sweep_report *self, mst_sweep_choice *out)
{
    char a[40], b[40], more[40];
    out->config = mst_sweep_best(self, MST_SWEEP_SPEED, true);
    if (out->config == self->n_configs || strcmp(self->metric_name, "rows_per_s") == 0) {
        out->config = self->n_configs;
        return;
    }
    const mst_sweep_config *c = &self->configs[out->config];
    sweep_spread_text(&c->stats[MST_SWEEP_SPEED], more, sizeof more);
    snprintf(out->sentence, sizeof out->sentence, "Most rows per second: %.200s, %s (%s of training)%s%s",
             sweep_config_name(self, out->config), mst_figure_count(c->stats[MST_SWEEP_SPEED].mean, a),
             mst_figure_seconds(c->stats[MST_SWEEP_TIME].mean, b), more,
             self->jobs > 1 ? "; runs shared the machine" : "");
}

void mst_sweep_choices(const mst_sweep_report *self, mst_sweep_choice out[MST_SWEEP_CHOICES])
{
    out[1].config = out[2].config = self->n_configs;
    sweep_find_fastest(self, &out[0]);
    if (self->sweep->search == NULL) /* a search does not train the others to the end */
        sweep_find_best_quality(self, &out[1]);
    if (!self->has_target)
        sweep_find_quickest(self, &out[2]);
}

void mst_sweep_report_best(const mst_sweep_report *self, mst_string *out)
{
    mst_sweep_choice all[MST_SWEEP_CHOICES];
    const char *why = json_string_value(json_object_get(self->sweep->search, "why"));
    mst_sweep_choices(self, all);
    if (why != NULL)
        mst_string_format(out, "Search: %s.\n", why);
    for (size_t i = 0; i < MST_SWEEP_CHOICES; i++) {
        if (all[i].config == self->n_configs)
            continue;
        mst_string_format(out, "%s.\n  ", all[i].sentence);
        mst_sweep_command(&self->sweep->cells[self->configs[all[i].config].first], out);
        mst_string_add(out, "\n");
    }
}

/* "; 200,000 rows each": the length of a run, or its limit if there is a target. */
static void sweep_add_limit(const char *name, const char *value, bool at_most, mst_string *out)
{
    char *end = NULL, text[40];
    double number = value != NULL ? strtod(value, &end) : NAN;
    if (value == NULL || end == value || *end != '\0')
        mst_string_format(out, "; %s %s", name, value != NULL ? value : "?");
    else
        mst_string_format(out, "; %s%s %.*s each", at_most ? "at most " : "", mst_figure_count(number, text),
                          (int)strlen(name) - (number == 1.0), name); /* names are plurals */
}

/* The last try of a candidate by the search; NULL: none. */
static const json_t *sweep_last_try(const json_t *search, const char *name)
{
    const json_t *found = NULL;
    size_t i, k;
    json_t *round, *one;
    json_array_foreach(json_object_get(search, "rounds"), i, round)
    {
        json_array_foreach(json_object_get(round, "tries"), k, one)
        {
            const char *who = json_string_value(json_object_get(one, "name"));
            found = who != NULL && strcmp(who, name) == 0 ? one : found;
        }
    }
    return found;
}

/* The outcomes of a search's candidates, most of which are not trained to the end. */
static void sweep_add_candidates(const mst_sweep_report *self, size_t total, mst_string *out)
{
    size_t tried = 0, reached = 0, limited = 0, failed = 0;
    for (size_t i = 0; i < self->sweep->n; i++) {
        const json_t *one = sweep_last_try(self->sweep->search, self->sweep->cells[i].name);
        if (self->sweep->cells[i].state == MST_CELL_SKIPPED || one == NULL)
            continue;
        tried++;
        if (self->sweep->cells[i].state == MST_CELL_FAILED)
            failed++;
        else if (json_is_true(json_object_get(one, "reached")))
            reached++;
        else if (json_is_true(json_object_get(one, "over")))
            limited++;
    }
    mst_string_format(out, "%zu of %zu candidates tried: %zu reached the target, %zu cut short", tried, total,
                      reached, tried - reached - limited - failed);
    if (limited > 0)
        mst_string_format(out, ", %zu ended by a limit", limited);
    if (failed > 0)
        mst_string_format(out, ", %zu failed", failed);
}

void mst_sweep_counts(const mst_sweep_report *self, mst_string *out)
{
    size_t counts[MST_CELL_SKIPPED + 1];
    mst_sweep_count(self->sweep, counts);
    size_t total = self->sweep->n - counts[MST_CELL_SKIPPED];
    if (self->sweep->search != NULL) {
        sweep_add_candidates(self, total, out);
    } else {
        mst_string_format(out, "%zu configuration%s, %zu of %zu runs done", self->n_configs,
                          self->n_configs == 1 ? "" : "s", counts[MST_CELL_DONE], total);
        if (counts[MST_CELL_FAILED] > 0)
            mst_string_format(out, ", %zu failed", counts[MST_CELL_FAILED]);
    }
    if (counts[MST_CELL_SKIPPED] > 0)
        mst_string_format(out, ", %zu left out", counts[MST_CELL_SKIPPED]);
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(self->sweep->spec, "for"), name, value)
    {
        sweep_add_limit(name, json_string_value(value), self->has_target, out);
    }
    mst_string_add(out, ".");
    if (self->jobs > 1)
        mst_string_format(
            out,
            " Up to %u runs ran at the same time: times, rates and CPU figures are not those of a "
            "run alone on the machine.",
            self->jobs);
}

/* ---- Markdown, CSV, JSON ---- */

static mst_status sweep_finish(const mst_string *out)
{
    return out->failed ? mst_fail_memory() : MST_OK;
}

mst_status mst_sweep_report_markdown(const mst_sweep_report *self, mst_string *out)
{
    mst_sweep_choice all[MST_SWEEP_CHOICES];
    mst_string text = {0};
    const char *why = json_string_value(json_object_get(self->sweep->search, "why"));
    mst_sweep_choices(self, all);
    mst_string_add(out, "# Sweep ");
    mst_string_markdown(out, self->sweep->folder);
    mst_string_add(out, "\n\n");
    mst_sweep_counts(self, &text);
    mst_string_markdown(out, text.text);
    mst_string_fini(&text);
    mst_string_add(out, "\n\n");
    if (why != NULL) {
        mst_string_markdown(out, why);
        mst_string_add(out, ".\n\n");
    }
    for (size_t i = 0; i < MST_SWEEP_CHOICES; i++) {
        if (all[i].config == self->n_configs)
            continue;
        mst_string_markdown(out, all[i].sentence);
        mst_string_add(out, ":\n```\n");
        mst_sweep_command(&self->sweep->cells[self->configs[all[i].config].first], out);
        mst_string_add(out, "\n```\n\n");
    }
    for (int i = 0; i < MST_SWEEP_SHEETS; i++)
        mst_sheet_markdown(&self->sheets[i], out);
    return sweep_finish(out);
}

static void sweep_add_number(mst_string *out, double value)
{
    if (isfinite(value))
        mst_string_format(out, ",%.10g", value);
    else
        mst_string_add(out, ",");
}

static void sweep_add_axes(const mst_sweep_report *self, const json_t *labels, mst_string *out)
{
    for (size_t i = 0; i < self->n_axes; i++) {
        const char *label = labels != NULL ? json_string_value(json_object_get(labels, self->axes[i])) : NULL;
        mst_string_add(out, ",");
        mst_string_csv(out, labels == NULL ? self->axes[i] : label != NULL ? label : "");
    }
}

mst_status mst_sweep_report_runs_csv(const mst_sweep_report *self, mst_string *out)
{
    mst_string_add(out, "run,configuration");
    sweep_add_axes(self, NULL, out);
    mst_string_add(out, ",seed,state,wall_s,jobs");
    for (int k = 0; k < MST_SWEEP_FIGURES; k++)
        mst_string_format(out, ",%s", mst_sweep_figures[k].key);
    mst_string_add(out, ",bottleneck,sentence\n");
    for (size_t i = 0; i < self->sweep->n; i++) {
        const mst_sweep_cell *cell = &self->sweep->cells[i];
        const char *seed = json_string_value(json_object_get(cell->set, "seed"));
        mst_string_csv(out, cell->name);
        mst_string_add(out, ",");
        mst_string_csv(out, cell->config);
        sweep_add_axes(self, cell->labels, out);
        mst_string_format(out, ",%s,%s", seed != NULL ? seed : "1", mst_cell_state_name(cell->state));
        sweep_add_number(out, cell->seconds);
        sweep_add_number(out, cell->jobs > 0 ? cell->jobs : NAN);
        for (int k = 0; k < MST_SWEEP_FIGURES; k++)
            sweep_add_number(out, self->runs[i].figures[k]);
        mst_string_format(out, ",%s,", self->runs[i].bottleneck);
        mst_string_csv(out, cell->sentence != NULL ? cell->sentence : "");
        mst_string_add(out, "\n");
    }
    return sweep_finish(out);
}

void mst_sweep_report_columns(mst_string *out)
{
    static const char *const ends[] = {"", "_sd", "_min", "_max"};
    mst_string_add(out, ",runs,done,failed,reached");
    for (int k = 0; k < MST_SWEEP_FIGURES; k++)
        for (size_t e = 0; e < sizeof ends / sizeof *ends; e++)
            mst_string_format(out, ",%s%s", mst_sweep_figures[k].key, ends[e]);
    mst_string_add(out, ",bottleneck");
}

mst_status mst_sweep_report_csv(const mst_sweep_report *self, mst_string *out)
{
    mst_string_add(out, "configuration");
    sweep_add_axes(self, NULL, out);
    mst_sweep_report_columns(out);
    mst_string_add(out, "\n");
    for (size_t i = 0; i < self->n_configs; i++) {
        const mst_sweep_config *c = &self->configs[i];
        mst_string_csv(out, sweep_config_name(self, i));
        sweep_add_axes(self, self->sweep->cells[c->first].labels, out);
        mst_string_format(out, ",%zu,%zu,%zu,%zu", c->n, c->n_known, c->n_failed, c->n_reached);
        for (int k = 0; k < MST_SWEEP_FIGURES; k++) {
            sweep_add_number(out, c->stats[k].mean);
            sweep_add_number(out, c->stats[k].deviation);
            sweep_add_number(out, c->stats[k].low);
            sweep_add_number(out, c->stats[k].high);
        }
        mst_string_format(out, ",%s\n", c->bottleneck);
    }
    return sweep_finish(out);
}

json_t *mst_sweep_report_json(const mst_sweep_report *self)
{
    json_t *root =
        json_pack("{s:s, s:s, s:[]}", "folder", self->sweep->folder, "metric", self->metric_name, "best");
    mst_sweep_choice all[MST_SWEEP_CHOICES];
    bool fine = root != NULL;
    for (int i = 0; fine && i < MST_SWEEP_SHEETS; i++)
        fine = mst_sheet_json(&self->sheets[i], root);
    mst_sweep_choices(self, all);
    for (size_t i = 0; fine && i < MST_SWEEP_CHOICES; i++) {
        mst_string command = {0};
        if (all[i].config == self->n_configs)
            continue;
        mst_sweep_command(&self->sweep->cells[self->configs[all[i].config].first], &command);
        json_t *one =
            json_pack("{s:s, s:s, s:s}", "configuration", sweep_config_name(self, all[i].config), "sentence",
                      all[i].sentence, "command", command.text != NULL ? command.text : "");
        fine = one != NULL && json_array_append_new(json_object_get(root, "best"), one) == 0;
        mst_string_fini(&command);
    }
    if (!fine) {
        json_decref(root);
        mst_fail_memory();
        return NULL;
    }
    return root;
}

/* ---- files ---- */

mst_status mst_sweep_report_write(const mst_sweep_report *self)
{
    static const struct {
        const char *name;
        mst_status (*make)(const mst_sweep_report *self, mst_string *out);
    } files[] = {{"report.html", mst_sweep_report_html},
                 {"report.md", mst_sweep_report_markdown},
                 {"report.csv", mst_sweep_report_csv},
                 {"runs.csv", mst_sweep_report_runs_csv}};
    mst_status st = MST_OK;
    for (size_t i = 0; st == MST_OK && i < sizeof files / sizeof *files; i++) {
        mst_string out = {0};
        char *path = mst_sprintf("%s/%s", self->sweep->folder, files[i].name);
        st = path != NULL ? files[i].make(self, &out) : mst_fail_memory();
        if (st == MST_OK)
            st = mst_string_save(&out, path);
        mst_string_fini(&out);
        mst_free(path);
    }
    return st;
}
