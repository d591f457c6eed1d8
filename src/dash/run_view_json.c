/* A run's view as JSON (run_view.h). What is not known is left out, so that a page need not tell null from
 * nothing. Text out of files that is not UTF-8 is made so first. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "dash/run_view.h"
#include "report/history_read.h"

static void put(json_t *object, const char *key, double value)
{
    if (isfinite(value))
        json_object_set_new(object, key, json_real(value));
}

static void put_text(json_t *object, const char *key, const char *text)
{
    char *clean = text != NULL && *text != '\0' ? mst_utf8_clean(text) : NULL;
    if (clean != NULL)
        json_object_set_new(object, key, json_string(clean));
    mst_free(clean);
}

/* ---- processes ---- */

static json_t *process_json(const mst_process_view *p)
{
    json_t *json = json_object(), *phases = json_object();
    const mst_load *use = p->now_use.all;
    double s = p->now.seconds;
    put_text(json, "name", p->process->name);
    put_text(json, "role", mst_process_role_name(p->process->role));
    put_text(json, "host", p->process->host);
    json_object_set_new(json, "pid", json_integer(p->process->pid));
    put_text(json, "state", mst_life_name(p->life));
    put(json, "last", p->last);
    put(json, "cores", p->process->cores);
    put(json, "cpu", use[MST_LOAD_CPU].mean);
    put(json, "cpu_s", p->all_use.all[MST_LOAD_CPU].total);
    put(json, "memory", use[MST_LOAD_MEMORY].mean);
    put(json, "memory_peak", p->all_use.all[MST_LOAD_MEMORY].peak);
    put(json, "disk_read_per_s", use[MST_LOAD_DISK_READ].mean);
    put(json, "disk_write_per_s", use[MST_LOAD_DISK_WRITE].mean);
    put(json, "host_cpu", use[MST_LOAD_HOST_CPU].mean);
    put(json, "host_memory", use[MST_LOAD_HOST_MEMORY].mean);
    put(json, "host_net_in_per_s", use[MST_LOAD_HOST_NET_IN].mean);
    put(json, "host_net_out_per_s", use[MST_LOAD_HOST_NET_OUT].mean);
    if (s > 0) {
        put(json, "rows_per_s", p->rows_per_s);
        put(json, "steps_per_s", p->steps_per_s);
        put(json, "bytes_in_per_s", p->now.bytes_in / s);
        put(json, "bytes_out_per_s", p->now.bytes_out / s);
        put(json, "waits", mst_process_view_waits(p));
        put(json, "steps", p->total.steps);
        put(json, "rows", p->total.rows);
        put(json, "bytes_in", p->total.bytes_in);
        put(json, "bytes_out", p->total.bytes_out);
        put(json, "dropped_rows", p->total.dropped_rows);
        put(json, "staleness_mean", p->now.staleness_mean);
        put(json, "staleness_max", p->now.staleness_max);
        for (int k = 0; k < MST_COSTS; k++)
            if (mst_process_view_share(p, (mst_cost_kind)k) > 0)
                put(phases, mst_cost_title((mst_cost_kind)k), mst_process_view_share(p, (mst_cost_kind)k));
    }
    json_object_set_new(json, "phases", phases);
    return json;
}

/* ---- what happened ---- */

static json_t *marks_json(const mst_run_view *v)
{
    const mst_csv *m = &v->data->marks;
    size_t time = mst_csv_column(m, "time"), kind = mst_csv_column(m, "kind");
    size_t who = mst_csv_column(m, "process"), text = mst_csv_column(m, "text");
    json_t *list = json_array();
    for (size_t i = m->n_rows > MST_VIEW_MARKS ? m->n_rows - MST_VIEW_MARKS : 0; i < m->n_rows; i++) {
        json_t *mark = json_object();
        put(mark, "time", mst_csv_value(m, i, time));
        put_text(mark, "process", mst_csv_text(m, i, who));
        put_text(mark, "kind", mst_csv_text(m, i, kind));
        put_text(mark, "text", mst_csv_text(m, i, text));
        json_array_append_new(list, mark);
    }
    return list;
}

static void add_history(const mst_run_view *v, json_t *list)
{
    const mst_run_figures *f = &v->figures;
    mst_history history;
    mst_string text = {0};
    if (mst_history_of(v->data, f->steps, f->rows, f->train_s, &history) != MST_OK)
        return;
    mst_history_sentence(&history, &text);
    char *clean = text.text != NULL ? mst_utf8_clean(text.text) : NULL;
    if (clean != NULL)
        json_array_append_new(list, json_string(clean));
    mst_free(clean);
    mst_string_fini(&text);
    mst_history_fini(&history);
}

static void add_notes(const mst_run_view *v, json_t *json)
{
    json_t *list = json_array();
    char text[160];
    if (v->life == MST_LIFE_GONE)
        json_array_append_new(list, json_string("The run's folder is gone; this is what was read of it."));
    if (v->life == MST_LIFE_SILENT) {
        snprintf(text, sizeof text,
                 "Nothing was written for %.0f s: its processes may have been killed, or wait.", v->quiet_s);
        json_array_append_new(list, json_string(text));
    }
    for (size_t i = 0; i < v->data->warnings.n && i < 10; i++) {
        char *clean = mst_utf8_clean(v->data->warnings.items[i]);
        if (clean != NULL)
            json_array_append_new(list, json_string(clean));
        mst_free(clean);
    }
    add_history(v, list);
    json_object_set_new(json, "notes", list);
}

/* ---- the run ---- */

static void add_figures(const mst_run_view *v, json_t *json)
{
    const mst_run_figures *f = &v->figures;
    put_text(json, "model", f->model);
    put_text(json, "strategy", f->strategy);
    put_text(json, "mode", f->mode);
    put_text(json, "end_text", f->end);
    put_text(json, "set", f->set);
    put_text(json, "host", mst_run_data_text(v->data, "host", NULL));
    put_text(json, "muster", mst_run_data_text(v->data, "muster", NULL));
    put_text(json, "data", mst_run_data_text(v->data, "data", "source", NULL));
    put(json, "begin", v->begin);
    put(json, "end", v->end);
    put(json, "quiet_s", v->quiet_s);
    put(json, "share_done", v->share_done);
    put(json, "left_s", v->left_s);
    put(json, "steps", f->steps);
    put(json, "rows", f->rows);
    put(json, "epochs", f->epochs);
    put(json, "train_s", f->train_s);
    put(json, "eval_s", f->eval_s);
    put(json, "rows_per_s", v->rows_per_s);
    put(json, "mean_rows_per_s", f->rows_per_s);
    put(json, "steps_per_s", v->steps_per_s);
    put(json, "waits", v->waits);
    put(json, "workers", f->n_workers);
    put(json, "servers", f->n_servers);
    put(json, "threads", f->n_threads);
    put(json, "batch", f->batch);
    put(json, "train_loss", v->train_loss);
    put_text(json, "train_loss_text", mst_odd_loss(v->train_loss, v->train_loss_is_nan));
    put(json, "lr", v->lr);
    put(json, "loss", f->test_loss);
    put_text(json, "loss_text", mst_odd_loss(f->test_loss, f->loss_is_nan));
    put(json, "accuracy", f->test_accuracy);
    put(json, "auc", f->test_auc);
    put(json, "top5", f->test_top5);
    put(json, "best_loss", f->best_loss);
    put(json, "best_accuracy", f->best_accuracy);
    put(json, "peak_memory", f->peak_memory);
    put(json, "cpu_s", f->cpu_s);
}

json_t *mst_run_view_json(const mst_run_view *self, const char *label)
{
    json_t *json = json_object(), *processes = json_array();
    put_text(json, "name", label);
    put_text(json, "path", self->data->path);
    put_text(json, "state", mst_life_name(self->life));
    add_figures(self, json);
    for (size_t i = 0; i < self->n_processes && i < MST_VIEW_PROCESSES; i++)
        json_array_append_new(processes, process_json(&self->processes[i]));
    json_object_set_new(json, "processes", processes);
    if (self->n_processes > MST_VIEW_PROCESSES)
        put(json, "more_processes", (double)(self->n_processes - MST_VIEW_PROCESSES));
    if (self->has_verdict)
        json_object_set_new(json, "verdict", mst_verdict_json(&self->verdict));
    json_object_set_new(json, "marks", marks_json(self));
    add_notes(self, json);
    if (json == NULL || json_object_get(json, "notes") == NULL)
        mst_fail_memory();
    return json;
}
