/* Curves of a plot, reduced where they are dense, and the plot's JSON (plot.h). */
#include "report/plot.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "report/page.h"

void mst_series_fini(mst_series *self)
{
    mst_points_fini(&self->points);
    mst_free(self->low);
    mst_free(self->high);
    self->low = self->high = NULL;
}

/* The buckets are written over the points before them: a bucket has at least one point. */
mst_status mst_series_reduce(mst_series *self)
{
    mst_points *p = &self->points;
    size_t n = p->n, buckets = MST_PLOT_BUCKETS;
    if (n <= MST_PLOT_DENSE)
        return MST_OK;
    self->low = mst_calloc(buckets, sizeof *self->low);
    self->high = mst_calloc(buckets, sizeof *self->high);
    if (self->low == NULL || self->high == NULL)
        return mst_fail_memory();
    for (size_t b = 0; b < buckets; b++) {
        size_t from = n * b / buckets, to = n * (b + 1) / buckets, known = 0;
        double x = 0, y = 0, low = NAN, high = NAN;
        for (size_t i = from; i < to; i++) {
            x += p->x[i];
            if (!isfinite(p->y[i]))
                continue; /* the bucket is a gap */
            y += p->y[i];
            low = fmin(low, p->y[i]);
            high = fmax(high, p->y[i]);
            known++;
        }
        p->x[b] = x / (double)(to - from);
        p->y[b] = known == to - from ? y / (double)known : NAN;
        self->low[b] = low;
        self->high[b] = high;
    }
    p->n = buckets;
    return MST_OK;
}

bool mst_plot_has_points(const mst_plot *plot)
{
    for (size_t s = 0; s < plot->n_series; s++)
        for (size_t i = 0; i < plot->series[s].points.n; i++)
            if (isfinite(plot->series[s].points.x[i]) && isfinite(plot->series[s].points.y[i]))
                return true;
    return false;
}

/* ---- JSON ---- */

static json_t *plot_numbers_json(const double *values, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, isfinite(values[i]) ? json_real(values[i]) : json_null());
    return list;
}

static json_t *series_json(const mst_series *s)
{
    json_t *json = json_pack("{s:o, s:i, s:i, s:b, s:b, s:o, s:o}", "label", mst_page_string(s->label), "run",
                             (int)s->run, "colour", (int)s->colour, "dash", (int)s->dashed, "dots",
                             (int)s->dots, "x", plot_numbers_json(s->points.x, s->points.n), "y",
                             plot_numbers_json(s->points.y, s->points.n));
    if (s->low != NULL && json != NULL) {
        json_object_set_new(json, "low", plot_numbers_json(s->low, s->points.n));
        json_object_set_new(json, "high", plot_numbers_json(s->high, s->points.n));
        json_object_set_new(json, "band", json_true());
    }
    return json;
}

static json_t *mark_json(const mst_mark *m)
{
    static const char *const kinds[] = {
        [MST_MARK_EVALUATION] = "evaluation",
        [MST_MARK_CHECKPOINT] = "checkpoint",
        [MST_MARK_JOIN] = "join",
        [MST_MARK_DEATH] = "death",
    };
    json_t *json = json_pack("{s:s, s:f, s:o, s:i, s:i}", "kind", kinds[m->kind], "from", m->from, "text",
                             mst_page_string(m->text), "lane", (int)m->lane, "colour", (int)m->colour);
    if (isfinite(m->to) && json != NULL)
        json_object_set_new(json, "to", json_real(m->to));
    return json;
}

json_t *mst_plot_json(const mst_plot *plot, const char *axis)
{
    json_t *series = json_array(), *marks = json_array();
    for (size_t i = 0; i < plot->n_series; i++)
        json_array_append_new(series, series_json(&plot->series[i]));
    for (size_t i = 0; i < plot->n_marks; i++)
        if (isfinite(plot->marks[i].from))
            json_array_append_new(marks, mark_json(&plot->marks[i]));
    json_t *json =
        json_pack("{s:o, s:s, s:s, s:b, s:b, s:b, s:i, s:o, s:o}", "title", mst_page_string(plot->title),
                  "unit", mst_figure_unit_name(plot->y_unit), "x", mst_figure_unit_name(plot->x_unit), "zero",
                  (int)plot->zero, "zeroX", (int)!plot->log_x, "logX", (int)plot->log_x, "lanes",
                  (int)(plot->n_lanes < MST_PLOT_LANES ? plot->n_lanes : MST_PLOT_LANES), "series", series,
                  "marks", marks);
    if (axis != NULL && json != NULL)
        json_object_set_new(json, "axis", json_string(axis));
    return json;
}
