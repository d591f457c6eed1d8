/* The samples of the observer thread, once per second: lines of resources.csv and spans.csv, and the curves
 * derived from them; and process.json. See observe.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json_text.h"
#include "base/log.h"
#include "observe/cpu_quota.h"
#include "observe/observe_impl.h"

#define TRAFFIC_SAMPLES 10 /* between lines of traffic.csv: a server of many workers has one for each */

/* ---- process.json ---- */

/* Returns the speed of an interface in bits per second according to the system; 0: unknown. */
static double sampler_link_speed(const char *name)
{
    char path[64];
    long megabits = 0;
    snprintf(path, sizeof path, "/sys/class/net/%s/speed", name);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0.0;
    if (fscanf(file, "%ld", &megabits) != 1)
        megabits = 0;
    fclose(file);
    return megabits > 0 ? (double)megabits * 1e6 : 0.0;
}

static json_t *sampler_links_json(mst_observe *self, const mst_usage *usage)
{
    json_t *links = json_array();
    char measured[sizeof self->link];
    pthread_mutex_lock(&self->mutex);
    memcpy(measured, self->link, sizeof measured);
    double bits = self->link_bits;
    pthread_mutex_unlock(&self->mutex);
    for (unsigned i = 0; usage != NULL && i < usage->net.n; i++) {
        const char *name = usage->net.links[i].name;
        if (strcmp(name, "lo") == 0)
            continue;
        json_t *link = json_pack("{s:o}", "name", mst_json_text(name));
        double speed = strcmp(name, measured) == 0 ? bits : sampler_link_speed(name);
        if (speed > 0.0)
            json_object_set_new(link, "bits_per_s", json_integer((json_int_t)speed));
        json_array_append_new(links, link);
    }
    return links;
}

/* Returns the paths to other hosts, NULL if none is known. */
static json_t *sampler_paths_json(mst_observe *self)
{
    json_t *paths = json_array();
    mst_observed_path known[MST_OBSERVED_PATHS];
    char to[32];
    pthread_mutex_lock(&self->mutex);
    memcpy(known, self->paths, sizeof known);
    pthread_mutex_unlock(&self->mutex);
    for (unsigned i = 0; i < MST_OBSERVED_PATHS; i++) {
        if (!(known[i].bits_per_s > 0) && !(known[i].trip_s > 0))
            continue;
        snprintf(to, sizeof to, "%s-%u", strcmp(self->role, "server") == 0 ? "worker" : "server", i);
        json_t *path = json_pack("{s:s}", "to", to);
        if (known[i].bits_per_s > 0)
            json_object_set_new(path, "bits_per_s", json_integer((json_int_t)known[i].bits_per_s));
        if (known[i].trip_s > 0)
            json_object_set_new(path, "round_trip_s", json_real(known[i].trip_s));
        json_array_append_new(paths, path);
    }
    if (json_array_size(paths) > 0)
        return paths;
    json_decref(paths);
    return NULL;
}

/* Writes the start of the system's boot id: hosts that have the same one share the cores of a machine, as
 * containers do. "": not known. */
static void sampler_machine(char out[16])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    out[0] = '\0';
    if (file != NULL && fscanf(file, "%15[0-9a-f-]", out) != 1)
        out[0] = '\0';
    if (file != NULL)
        fclose(file);
}

/* Reads its inputs again, so any thread may call it. Of two concurrent calls, the later one wins: it has all
 * the data of the other. */
void mst_sampler_describe(mst_observe *self)
{
    const mst_observe_options *o = &self->options;
    char host[256] = "";
    mst_resources *resources = NULL;
    const mst_usage *usage =
        mst_resources_new("/proc", &resources) == MST_OK ? mst_resources_now(resources) : NULL;
    pthread_mutex_lock(&self->mutex);
    uint64_t number = ++self->describing;
    pthread_mutex_unlock(&self->mutex);
    gethostname(host, sizeof host - 1);
    json_t *json = json_pack("{s:s, s:s, s:I, s:o, s:I, s:f, s:I, s:I, s:f, s:o, s:I}", "process",
                             self->process, "role", self->role, "index", (json_int_t)o->index, "host",
                             mst_json_text(host), "pid", (json_int_t)getpid(), "started",
                             (double)self->stamp * 1e-6, "cores", (json_int_t)sysconf(_SC_NPROCESSORS_ONLN),
                             "memory_bytes", (json_int_t)(usage != NULL ? usage->memory.total : 0),
                             "clock_offset_s", 1e-9 * (double)mst_job_clock_wall_offset(&self->clock),
                             "links", sampler_links_json(self, usage), "threads", (json_int_t)o->n_threads);
    char machine[16];
    sampler_machine(machine);
    if (machine[0] != '\0')
        json_object_set_new(json, "machine", json_string(machine));
    double limit = mst_cpu_allowed();
    if (limit > 0.0)
        json_object_set_new(json, "cpu_limit", json_real(limit));
    json_t *paths = sampler_paths_json(self);
    if (paths != NULL)
        json_object_set_new(json, "paths", paths);
    char *text = json != NULL ? json_dumps(json, JSON_INDENT(1)) : NULL;
    if (text != NULL) {
        pthread_mutex_lock(&self->mutex);
        if (!self->ended && number > self->described) {
            self->described = number;
            self->files[MST_RECORD_PROCESS].pending.n = 0; /* the file is replaced */
            mst_bytes_add(&self->files[MST_RECORD_PROCESS].pending, text, strlen(text));
        }
        pthread_mutex_unlock(&self->mutex);
    }
    free(text); /* jansson's allocation */
    json_decref(json);
    mst_resources_destroy(resources);
}

/* ---- lines ---- */

static void sampler_end_line(mst_observe *self, mst_record_kind kind)
{
    if (!self->line.failed)
        mst_observe_add(self, kind, self->line.text, self->line.size);
    self->line.size = 0;
    self->line.failed = false;
}

void mst_sampler_open(mst_observe *self)
{
    mst_sampler_describe(self);
    if (!self->options.guest && self->options.every_s > 0.0 &&
        mst_resources_new("/proc", &self->resources) != MST_OK)
        self->resources = NULL;
    self->sampled_ns = self->begun_ns = mst_now_ns();
    if (self->options.every_s <= 0.0)
        return;
    mst_string *line = &self->line;
    if (self->resources != NULL) {
        mst_resources_header(self->resources, line);
        sampler_end_line(self, MST_RECORD_RESOURCES);
    }
    mst_string_add(line, "time,interval_s,threads,steps,rows");
    for (unsigned p = 0; p < MST_PHASES; p++)
        mst_string_format(line, ",%s_s", mst_phase_name((mst_phase)p));
    mst_string_add(line, ",bytes_in,bytes_out,staleness_mean,staleness_max,dropped_rows\n");
    sampler_end_line(self, MST_RECORD_SPANS);
}

void mst_sampler_close(mst_observe *self)
{
    mst_resources_destroy(self->resources);
    mst_string_fini(&self->line);
    self->resources = NULL;
}

/* Means over the rows since the last sample; NAN: there are none. */
static double sampler_loss(const mst_span_sums *now, const mst_span_sums *before)
{
    double weight = now->weight - before->weight;
    return weight > 0 ? (now->loss - before->loss) / weight : (double)NAN;
}

static double sampler_accuracy(const mst_span_sums *now, const mst_span_sums *before)
{
    uint64_t rows = now->judged - before->judged;
    return rows > 0 ? (double)(now->correct - before->correct) / (double)rows : (double)NAN;
}

/* A line of learning.csv, if the process has trained on rows since the last one. */
static void sampler_add_learning(mst_observe *self, double time, uint64_t now_ns, const mst_span_sums *now,
                                 const mst_span_sums *before)
{
    mst_string *line = &self->line;
    if (now->judged == before->judged)
        return;
    if (!self->learning_begun)
        mst_string_add(line, "time,seconds,steps,rows,loss,accuracy\n");
    self->learning_begun = true;
    mst_string_format(line, "%.6f,%.6f,%llu,%llu", time, 1e-9 * (double)(now_ns - self->begun_ns),
                      (unsigned long long)now->steps, (unsigned long long)now->rows);
    mst_resources_add_real(line, sampler_loss(now, before));
    mst_resources_add_real(line, sampler_accuracy(now, before));
    mst_string_add(line, "\n");
    sampler_end_line(self, MST_RECORD_LEARNING);
}

/* Adds the curves: rates, and shares of the threads' time. */
static void sampler_add_curves(mst_observe *self, const mst_span_sums *now, const mst_span_sums *before,
                               double seconds, double stale_mean, double stale_max)
{
    static const char *const tags[MST_PHASES] = {
#define X(name, column) "time/" column,
        MST_PHASE_MAP(X)
#undef X
    };
    mst_scalar scalars[MST_PHASES + 12];
    size_t n = 0;
    double all = 0.0, rows = (double)(now->rows - before->rows);
    for (unsigned p = 0; p < MST_PHASES; p++)
        all += (double)(now->ns[p] - before->ns[p]);
    for (unsigned p = 0; p < MST_PHASES && all > 0.0; p++)
        if (now->ns[p] > 0)
            scalars[n++] = (mst_scalar){tags[p], (double)(now->ns[p] - before->ns[p]) / all};
    if (now->rows > 0 && seconds > 0.0)
        scalars[n++] = (mst_scalar){"rows_per_s", rows / seconds};
    if (now->stale_count > 0) {
        scalars[n++] = (mst_scalar){"staleness/mean", stale_mean};
        scalars[n++] = (mst_scalar){"staleness/max", stale_max};
    }
    if (now->judged > before->judged) {
        scalars[n++] = (mst_scalar){"own/loss", sampler_loss(now, before)};
        scalars[n++] = (mst_scalar){"own/accuracy", sampler_accuracy(now, before)};
        scalars[n++] = (mst_scalar){"own/steps", (double)now->steps};
        scalars[n++] = (mst_scalar){"own/seconds", 1e-9 * (double)(mst_now_ns() - self->begun_ns)};
    }
    if (now->dropped_rows > 0)
        scalars[n++] = (mst_scalar){"dropped_rows", (double)now->dropped_rows};
    if (now->bytes_in + now->bytes_out > 0 && seconds > 0.0) {
        scalars[n++] = (mst_scalar){"bytes_in_per_s", (double)(now->bytes_in - before->bytes_in) / seconds};
        scalars[n++] =
            (mst_scalar){"bytes_out_per_s", (double)(now->bytes_out - before->bytes_out) / seconds};
    }
    mst_observe_scalars(self, MST_RECORD_EVENTS, self->curve_step, scalars, n);
}

void mst_sampler_traffic(mst_observe *self)
{
    static const char *const roles[] = {"server", "worker"};
    double time = mst_observe_wall(self);
    mst_string *line = &self->line;
    self->traffic_samples = 0;
    if (!self->traffic_begun)
        mst_string_add(line, "time,process,bytes_in,bytes_out\n");
    size_t empty = line->size;
    pthread_mutex_lock(&self->mutex);
    for (unsigned k = 0; k < 2; k++)
        for (size_t i = 0; i < self->n_traffic[k]; i++) {
            mst_observed_traffic *t = &self->traffic[k][i];
            if (t->in + t->out > 0)
                mst_string_format(line, "%.6f,%s-%zu,%llu,%llu\n", time, roles[k], i,
                                  (unsigned long long)t->in, (unsigned long long)t->out);
            *t = (mst_observed_traffic){0};
        }
    pthread_mutex_unlock(&self->mutex);
    if (line->size == empty)
        line->size = 0;
    else
        self->traffic_begun = true;
    sampler_end_line(self, MST_RECORD_TRAFFIC);
}

void mst_sampler_sample(mst_observe *self)
{
    double time = mst_observe_wall(self);
    mst_string *line = &self->line;
    if (self->resources != NULL) {
        mst_resources_read(self->resources);
        mst_resources_line(self->resources, time, line);
        sampler_end_line(self, MST_RECORD_RESOURCES);
    }
    mst_span_sums now, *before = &self->sums;
    uint64_t now_ns = mst_now_ns(), stale_max;
    pthread_mutex_lock(&self->mutex);
    mst_spans_sum(self->spans, now_ns, &now, &stale_max);
    uint64_t last = self->curve_step > self->options.step ? self->curve_step : self->options.step;
    pthread_mutex_unlock(&self->mutex);
    double seconds = (double)(now_ns - self->sampled_ns) * 1e-9;
    uint64_t stale = now.stale_count - before->stale_count;
    double mean = stale > 0 ? (double)(now.stale_sum - before->stale_sum) / (double)stale : (double)NAN;
    mst_string_format(line, "%.6f,%.6f,%u,%llu,%llu", time, seconds, now.threads,
                      (unsigned long long)(now.steps - before->steps),
                      (unsigned long long)(now.rows - before->rows));
    for (unsigned p = 0; p < MST_PHASES; p++)
        mst_resources_add_real(line, (double)(now.ns[p] - before->ns[p]) * 1e-9);
    mst_string_format(line, ",%llu,%llu", (unsigned long long)(now.bytes_in - before->bytes_in),
                      (unsigned long long)(now.bytes_out - before->bytes_out));
    mst_resources_add_real(line, mean);
    mst_resources_add_real(line, stale > 0 ? (double)stale_max : (double)NAN);
    mst_string_format(line, ",%llu\n", (unsigned long long)(now.dropped_rows - before->dropped_rows));
    sampler_end_line(self, MST_RECORD_SPANS);
    sampler_add_learning(self, time, now_ns, &now, before);
    uint64_t step = atomic_load_explicit(&self->step, memory_order_relaxed);
    if (self->options.events && now.steps > before->steps && step > last) { /* steps of a curve increase */
        self->curve_step = step;
        sampler_add_curves(self, &now, before, seconds, mean, stale > 0 ? (double)stale_max : (double)NAN);
    }
    self->sums = now;
    self->sampled_ns = now_ns;
    if (++self->traffic_samples >= TRAFFIC_SAMPLES)
        mst_sampler_traffic(self);
}
