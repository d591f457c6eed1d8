/* The page of a sweep's report: its document (report/page.h). The page's script groups the configurations
 * into curves: a curve has those that differ in one option only. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "sweep/sweep_report_impl.h"

#define OPTIONS_MAX 20

static void sweep_page_add_sheet(const mst_sweep_report *self, mst_sweep_sheet which, const char *id,
                                 mst_page *page)
{
    const mst_sheet *sheet = &self->sheets[which];
    if (mst_sheet_rows(sheet) == 0)
        return;
    mst_page_section(page, id, sheet->title);
    mst_page_sheet(page, sheet, false);
}

static void sweep_page_add_choices(const mst_sweep_report *self, mst_page *page)
{
    mst_sweep_choice all[MST_SWEEP_CHOICES];
    const char *why = json_string_value(json_object_get(self->sweep->search, "why"));
    size_t decisive = strcmp(self->metric_name, "target_s") == 0 ? 0 : 1;
    mst_sweep_choices(self, all);
    if (why != NULL)
        mst_page_text(page, "verdict fine", NULL, why);
    for (size_t i = 0; i < MST_SWEEP_CHOICES; i++) {
        mst_string command = {0};
        if (all[i].config == self->n_configs)
            continue;
        mst_page_text(page, i == decisive ? "verdict fine" : "", NULL, all[i].sentence);
        mst_sweep_command(&self->sweep->cells[self->configs[all[i].config].first], &command);
        page->failed = page->failed || command.failed;
        mst_page_command(page, command.text);
        mst_string_fini(&command);
    }
}

/* ---- plots against an option ---- */

static const mst_sweep_figure drawn[] = {
    MST_SWEEP_TARGET, MST_SWEEP_TIME, MST_SWEEP_ACCURACY, MST_SWEEP_LOSS,         MST_SWEEP_ITERATIONS,
    MST_SWEEP_SPEED,  MST_SWEEP_CPU,  MST_SWEEP_MEMORY,   MST_SWEEP_TRAFFIC_RATE, MST_SWEEP_WAIT,
};
#define N_DRAWN (sizeof drawn / sizeof *drawn)

/* Batch sizes and workers, and every other axis. */
static size_t sweep_list_options(const mst_sweep_report *self, const char *out[OPTIONS_MAX])
{
    size_t n = 3;
    out[0] = "batch";
    out[1] = "global-batch";
    out[2] = "workers";
    for (size_t a = 0; a < self->n_axes && n < OPTIONS_MAX; a++) {
        const char *axis = self->axes[a];
        if (strcmp(axis, out[0]) != 0 && strcmp(axis, out[1]) != 0 && strcmp(axis, out[2]) != 0)
            out[n++] = axis;
    }
    return n;
}

/* Whether configurations with results have at least two values of the option. */
static bool sweep_option_varies(const mst_sweep_report *self, const char *option)
{
    double first = NAN;
    for (size_t i = 0; i < self->n_configs; i++) {
        const mst_sweep_config *c = &self->configs[i];
        double x = c->n_known > 0 ? mst_sweep_option(self, c, option) : NAN;
        if (!isnan(x) && !isnan(first) && x != first)
            return true;
        first = isnan(first) ? x : first;
    }
    return false;
}

/* Whether the axis's values set that option. */
static bool sweep_axis_sets(const mst_sweep_report *self, const char *axis, const char *option)
{
    const json_t *values = json_object_get(json_object_get(self->sweep->spec, "grid"), axis);
    return json_object_get(json_object_get(json_array_get(values, 0), "set"), option) != NULL;
}

static json_t *sweep_configuration_json(const mst_sweep_report *self, const mst_sweep_config *c)
{
    const char *options[OPTIONS_MAX];
    size_t n = sweep_list_options(self, options);
    json_t *labels = json_object(), *values = json_object(), *figures = json_object();
    for (size_t a = 0; a < self->n_axes; a++)
        json_object_set_new(labels, self->axes[a], mst_page_string(mst_sweep_label(self, c, self->axes[a])));
    for (size_t i = 0; i < n; i++)
        if (!isnan(mst_sweep_option(self, c, options[i])))
            json_object_set_new(values, options[i], json_real(mst_sweep_option(self, c, options[i])));
    for (size_t k = 0; k < N_DRAWN; k++) {
        const mst_stat *s = &c->stats[drawn[k]];
        if (isfinite(s->mean) && isfinite(s->low) && isfinite(s->high))
            json_object_set_new(figures, mst_sweep_figures[drawn[k]].key,
                                json_pack("[f, f, f]", s->mean, s->low, s->high));
    }
    return json_pack("{s:o, s:o, s:o}", "labels", labels, "options", values, "figures", figures);
}

static json_t *sweep_figures_json(void)
{
    json_t *list = json_array();
    for (size_t k = 0; k < N_DRAWN; k++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:b}", "key", mst_sweep_figures[drawn[k]].key,
                                        "title", mst_sweep_figures[drawn[k]].title, "unit",
                                        mst_figure_unit_name(mst_sweep_figures[drawn[k]].unit), "zero",
                                        (int)(drawn[k] != MST_SWEEP_ACCURACY && drawn[k] != MST_SWEEP_LOSS)));
    return list;
}

static void sweep_page_add_option(const mst_sweep_report *self, const char *option, mst_page *page)
{
    json_t *axes = json_array();
    char *title = mst_sprintf("Against %s", strcmp(option, "batch") == 0     ? "batch size"
                                            : strcmp(option, "workers") == 0 ? "the number of workers"
                                                                             : option);
    char *id = mst_sprintf("by-%s", option);
    for (size_t a = 0; a < self->n_axes; a++)
        if (!sweep_axis_sets(self, self->axes[a], option))
            json_array_append_new(axes, mst_page_string(self->axes[a]));
    page->failed = page->failed || title == NULL || id == NULL;
    mst_page_section(page, id != NULL ? id : "", title);
    mst_page_block(page, json_pack("{s:s}", "kind", "tools"));
    mst_page_block(page, json_pack("{s:s, s:o, s:o, s:o}", "kind", "group", "option", mst_page_string(option),
                                   "axes", axes, "figures", sweep_figures_json()));
    mst_free(title);
    mst_free(id);
}

static void sweep_page_add_plots(const mst_sweep_report *self, mst_page *page)
{
    const char *options[OPTIONS_MAX];
    size_t n = sweep_list_options(self, options);
    json_t *rows = json_array();
    for (size_t i = 0; i < self->n_configs; i++)
        if (self->configs[i].n_known > 0)
            json_array_append_new(rows, sweep_configuration_json(self, &self->configs[i]));
    page->failed = json_object_set_new(page->document, "configurations", rows) != 0 || page->failed;
    for (size_t i = 0; i < n; i++)
        if (sweep_option_varies(self, options[i]))
            sweep_page_add_option(self, options[i], page);
}

/* ---- the page ---- */

static void sweep_page_add_reproduction(const mst_sweep_report *self, mst_page *page)
{
    mst_string command = {0}, folders = {0};
    mst_page_section(page, "configuration", "How to reproduce it");
    mst_string_add(&command, "muster sweep ");
    mst_string_shell(&command, self->sweep->file);
    mst_string_add(&command, self->sweep->search != NULL ? " --auto" : "");
    mst_page_command(page, command.text);
    mst_string_format(&folders,
                      "Every run has a run directory in %s/runs, for muster report and TensorBoard.",
                      self->sweep->folder);
    mst_page_text(page, "", NULL, folders.text);
    page->failed = page->failed || command.failed || folders.failed;
    mst_page_raw(page, "The file of the sweep in normal form", self->sweep->spec);
    mst_string_fini(&command);
    mst_string_fini(&folders);
}

mst_status mst_sweep_report_html(const mst_sweep_report *self, mst_string *out)
{
    mst_page page;
    mst_string text = {0};
    const char *slash = strrchr(self->sweep->folder, '/');
    mst_string_format(&text, "Sweep %s", slash != NULL && slash[1] != '\0' ? slash + 1 : self->sweep->folder);
    mst_page_init(&page, text.text != NULL ? text.text : "");
    mst_string_fini(&text);
    mst_sweep_counts(self, &text);
    mst_page_text(&page, "sub", NULL, text.text);
    sweep_page_add_choices(self, &page);
    mst_page_block(&page, json_pack("{s:s}", "kind", "nav"));
    sweep_page_add_sheet(self, MST_SWEEP_SHEET_SEARCH, "search", &page);
    sweep_page_add_sheet(self, MST_SWEEP_SHEET_RESULTS, "results", &page);
    sweep_page_add_plots(self, &page);
    sweep_page_add_sheet(self, MST_SWEEP_SHEET_WORKLOAD, "workload", &page);
    sweep_page_add_sheet(self, MST_SWEEP_SHEET_WORKERS, "workers", &page);
    sweep_page_add_sheet(self, MST_SWEEP_SHEET_RESOURCES, "resources", &page);
    sweep_page_add_sheet(self, MST_SWEEP_SHEET_PROBLEMS, "problems", &page);
    sweep_page_add_sheet(self, MST_SWEEP_SHEET_LEFT_OUT, "left-out", &page);
    sweep_page_add_reproduction(self, &page);
    mst_status st = mst_page_html(&page, out);
    mst_page_fini(&page);
    mst_string_fini(&text);
    return st;
}
