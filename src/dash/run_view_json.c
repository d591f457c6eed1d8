/* A run's view as JSON (run_view.h). Unknown values are left out. Text from files is made valid UTF-8. */
#include <math.h>
#include <string.h>

#include "dash/run_view.h"
#include "report/history_read.h"
#include "report/page.h"

static void view_json_put(json_t *object, const char *key, double value)
{
    if (isfinite(value))
        json_object_set_new(object, key, json_real(value));
}

static void view_json_put_text(json_t *object, const char *key, const char *text)
{
    if (text != NULL && *text != '\0')
        json_object_set_new(object, key, mst_page_string(text));
}

/* ---- processes ---- */

static json_t *view_json_process_json(const mst_process_view *p)
{
    json_t *json = json_object(), *phases = json_object();
    const mst_load *use = p->now_use.all;
    double s = p->now.seconds;
    view_json_put_text(json, "name", p->process->name);
    view_json_put_text(json, "role", mst_process_role_name(p->process->role));
    view_json_put_text(json, "host", p->process->host);
    json_object_set_new(json, "pid", json_integer(p->process->pid));
    view_json_put_text(json, "state", mst_life_name(p->life));
    view_json_put(json, "last", p->last);
    view_json_put(json, "cores", p->process->cores);
    view_json_put(json, "cpu", use[MST_LOAD_CPU].mean);
    view_json_put(json, "cpu_s", p->all_use.all[MST_LOAD_CPU].total);
    view_json_put(json, "memory", use[MST_LOAD_MEMORY].mean);
    view_json_put(json, "memory_peak", p->all_use.all[MST_LOAD_MEMORY].peak);
    view_json_put(json, "disk_read_per_s", use[MST_LOAD_DISK_READ].mean);
    view_json_put(json, "disk_write_per_s", use[MST_LOAD_DISK_WRITE].mean);
    view_json_put(json, "host_cpu", use[MST_LOAD_HOST_CPU].mean);
    view_json_put(json, "host_memory", use[MST_LOAD_HOST_MEMORY].mean);
    view_json_put(json, "host_net_in_per_s", use[MST_LOAD_HOST_NET_IN].mean);
    view_json_put(json, "host_net_out_per_s", use[MST_LOAD_HOST_NET_OUT].mean);
    if (s > 0) {
        view_json_put(json, "rows_per_s", p->rows_per_s);
        view_json_put(json, "steps_per_s", p->steps_per_s);
        view_json_put(json, "bytes_in_per_s", p->now.bytes_in / s);
        view_json_put(json, "bytes_out_per_s", p->now.bytes_out / s);
        view_json_put(json, "waits", mst_process_view_waits(p));
        view_json_put(json, "steps", p->total.steps);
        view_json_put(json, "rows", p->total.rows);
        view_json_put(json, "bytes_in", p->total.bytes_in);
        view_json_put(json, "bytes_out", p->total.bytes_out);
        view_json_put(json, "dropped_rows", p->total.dropped_rows);
        view_json_put(json, "staleness_mean", p->now.staleness_mean);
        view_json_put(json, "staleness_max", p->now.staleness_max);
        for (int k = 0; k < MST_COSTS; k++)
            if (mst_process_view_share(p, (mst_cost_kind)k) > 0)
                view_json_put(phases, mst_cost_kinds[k].title, mst_process_view_share(p, (mst_cost_kind)k));
    }
    json_object_set_new(json, "phases", phases);
    return json;
}

/* ---- events ---- */

static json_t *view_json_marks_json(const mst_run_view *v)
{
    size_t n = v->data->marks.n_rows;
    json_t *list = json_array();
    for (size_t i = n > MST_VIEW_MARKS ? n - MST_VIEW_MARKS : 0; i < n; i++) {
        mst_mark_line m = mst_run_data_mark(v->data, i);
        json_t *mark = json_object();
        view_json_put(mark, "time", m.time);
        view_json_put_text(mark, "process", m.process);
        view_json_put_text(mark, "kind", m.kind);
        view_json_put_text(mark, "text", m.text);
        json_array_append_new(list, mark);
    }
    return list;
}

static void view_json_add_history(const mst_run_view *v, json_t *list)
{
    const mst_run_figures *f = &v->figures;
    mst_history history;
    mst_string text = {0};
    if (mst_history_of(v->data, f->steps, f->rows, f->train_s, &history) != MST_OK)
        return;
    mst_history_sentence(&history, &text);
    if (text.text != NULL)
        json_array_append_new(list, mst_page_string(text.text));
    mst_string_fini(&text);
    mst_history_fini(&history);
}

static void view_json_add_notes(const mst_run_view *v, json_t *json)
{
    json_t *list = json_array();
    char text[160];
    if (v->life == MST_LIFE_GONE)
        json_array_append_new(
            list, json_string("The run's folder was removed; the page shows the data read before."));
    if (v->life == MST_LIFE_SILENT) {
        snprintf(text, sizeof text,
                 "No file was written for %.0f s: the processes may have been killed, or are waiting.",
                 v->quiet_s);
        json_array_append_new(list, json_string(text));
    }
    for (size_t i = 0; i < v->data->warnings.n && i < 10; i++)
        json_array_append_new(list, mst_page_string(v->data->warnings.items[i]));
    view_json_add_history(v, list);
    json_object_set_new(json, "notes", list);
}

/* ---- the run ---- */

static void view_json_add_figures(const mst_run_view *v, json_t *json)
{
    const mst_run_figures *f = &v->figures;
    view_json_put_text(json, "model", f->model);
    view_json_put_text(json, "strategy", f->strategy);
    view_json_put_text(json, "mode", f->mode);
    view_json_put_text(json, "end_text", f->end);
    view_json_put_text(json, "set", f->set);
    view_json_put_text(json, "host", mst_run_data_text(v->data, "host", NULL));
    view_json_put_text(json, "muster", mst_run_data_text(v->data, "muster", NULL));
    view_json_put_text(json, "data", mst_run_data_text(v->data, "data", "source", NULL));
    view_json_put(json, "begin", v->begin);
    view_json_put(json, "end", v->end);
    view_json_put(json, "quiet_s", v->quiet_s);
    view_json_put(json, "share_done", v->share_done);
    view_json_put(json, "left_s", v->left_s);
    view_json_put(json, "steps", f->steps);
    view_json_put(json, "rows", f->rows);
    view_json_put(json, "epochs", f->epochs);
    view_json_put(json, "train_s", f->train_s);
    view_json_put(json, "eval_s", f->eval_s);
    view_json_put(json, "rows_per_s", v->rows_per_s);
    view_json_put(json, "mean_rows_per_s", f->rows_per_s);
    view_json_put(json, "steps_per_s", v->steps_per_s);
    view_json_put(json, "waits", v->waits);
    view_json_put(json, "workers", f->n_workers);
    view_json_put(json, "servers", f->n_servers);
    view_json_put(json, "threads", f->n_threads);
    view_json_put(json, "batch", f->batch);
    view_json_put(json, "train_loss", v->train_loss);
    view_json_put_text(json, "train_loss_text", mst_odd_loss(v->train_loss, v->train_loss_is_nan));
    view_json_put(json, "lr", v->lr);
    view_json_put(json, "loss", f->test_loss);
    view_json_put_text(json, "loss_text", mst_odd_loss(f->test_loss, f->loss_is_nan));
    view_json_put(json, "accuracy", f->test_accuracy);
    view_json_put(json, "auc", f->test_auc);
    view_json_put(json, "top5", f->test_top5);
    view_json_put(json, "grouped_auc", f->test_grouped_auc);
    view_json_put(json, "calibration", f->test_calibration);
    view_json_put(json, "normalised_entropy", f->test_normalised_entropy);
    view_json_put(json, "best_loss", f->best_loss);
    view_json_put(json, "best_accuracy", f->best_accuracy);
    view_json_put(json, "peak_memory", f->peak_memory);
    view_json_put(json, "cpu_s", f->cpu_s);
}

json_t *mst_run_view_json(const mst_run_view *self, const char *label)
{
    json_t *json = json_object(), *processes = json_array();
    view_json_put_text(json, "name", label);
    view_json_put_text(json, "path", self->data->path);
    view_json_put_text(json, "state", mst_life_name(self->life));
    view_json_add_figures(self, json);
    for (size_t i = 0; i < self->n_processes && i < MST_VIEW_PROCESSES; i++)
        json_array_append_new(processes, view_json_process_json(&self->processes[i]));
    json_object_set_new(json, "processes", processes);
    if (self->n_processes > MST_VIEW_PROCESSES)
        view_json_put(json, "more_processes", (double)(self->n_processes - MST_VIEW_PROCESSES));
    if (self->has_verdict)
        json_object_set_new(json, "verdict", mst_verdict_json(&self->verdict));
    json_object_set_new(json, "marks", view_json_marks_json(self));
    view_json_add_notes(self, json);
    if (json == NULL || json_object_get(json, "notes") == NULL)
        mst_fail_memory();
    return json;
}
