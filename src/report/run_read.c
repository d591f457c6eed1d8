/* Run directories read and followed (run_read.h).
 *
 * Design: JSON files are small and replaced whole, so they are read again when their inode, size or time
 * changed; CSV files grow, so csv.c follows them. A process is a folder of processes/; one that appears later
 * is found by the next update.
 *
 * Invariants
 * 1. Only plain files are opened: a pipe with the name of a file cannot block the reader.
 * 2. An unusable file becomes a warning and never hides another one. */
#include "report/run_read.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"

#define JSON_MAX      ((size_t)32 << 20)
#define PROCESSES_MAX 4096
#define FOLDER_MAX    200 /* characters of a process's folder */

static const char *const metrics_texts[] = {"set", NULL};
static const char *const marks_texts[] = {"process", "kind", "text", NULL};
static const char *const resources_texts[] = {"cpu_cores", NULL};
static const char *const traffic_texts[] = {"process", NULL};

static const char *const role_names[] = {"local", "server", "worker", "rank", "other"};

const char *mst_process_role_name(mst_process_role role)
{
    return role_names[role];
}

/* ---- JSON files ---- */

/* Changes whenever the file is replaced or written; -1: there is no plain file. */
static int64_t run_data_stamp_of(const struct stat *info)
{
    uint64_t h = (uint64_t)info->st_ino * 0x9e3779b97f4a7c15ull;
    h = (h ^ (uint64_t)info->st_size) * 0x9e3779b97f4a7c15ull;
    h = (h ^ (uint64_t)info->st_mtim.tv_sec) * 0x9e3779b97f4a7c15ull;
    h = (h ^ (uint64_t)info->st_mtim.tv_nsec) * 0x9e3779b97f4a7c15ull;
    return (int64_t)(h >> 1);
}

/* Reads the object in the file if it has changed, and replaces *out. A missing file changes nothing. */
static mst_status run_data_read_json(const char *path, int64_t *stamp, json_t **out)
{
    mst_status st = MST_OK;
    struct stat info;
    char *text = NULL;
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? MST_OK
                   : mst_fail(MST_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        TRY_OUT(st, mst_fail(MST_EINPUT, "%s: is not a plain file", path));
    if (run_data_stamp_of(&info) == *stamp)
        goto out;
    if (info.st_size < 0 || (uint64_t)info.st_size > JSON_MAX)
        TRY_OUT(st, mst_fail(MST_EINPUT, "%s: larger than %zu MB", path, JSON_MAX >> 20));
    text = mst_alloc((size_t)info.st_size + 1);
    if (text == NULL)
        TRY_OUT(st, mst_fail_memory());
    while (n < (size_t)info.st_size) {
        ssize_t got = read(fd, text + n, (size_t)info.st_size - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    json_error_t error;
    json_t *root = json_loadb(text, n, 0, &error);
    if (!json_is_object(root)) {
        st = mst_fail(MST_EINPUT, "%s:%d: not a JSON object: %s", path, root == NULL ? error.line : 1,
                      root == NULL ? error.text : "something else");
        json_decref(root);
        goto out;
    }
    json_decref(*out);
    *out = root;
    *stamp = run_data_stamp_of(&info);
out:
    mst_free(text);
    close(fd);
    return st;
}

/* ---- warnings ---- */

/* Turns a failure into a warning, except MST_ENOMEM. */
static mst_status run_data_note(mst_run_data *self, mst_status st)
{
    if (st == MST_OK || st == MST_ENOMEM)
        return st;
    char text[MST_ERROR_MAX];
    strncpy(text, mst_error_text(), sizeof text - 1);
    text[sizeof text - 1] = '\0';
    return mst_text_list_add(&self->warnings, text);
}

/* must: a column that every such file has. */
static mst_status run_data_note_csv(mst_run_data *self, const mst_csv *csv, const char *must)
{
    if (csv->n_columns > 0 && mst_csv_column(csv, must) == MST_CSV_NONE)
        TRY(mst_text_list_format(
            &self->warnings, "%s: its first line names no column %s: none of it is shown", csv->path, must));
    if (csv->n_bad > 0)
        TRY(mst_text_list_format(&self->warnings, "%s: %zu torn line%s left out", csv->path, csv->n_bad,
                                 csv->n_bad == 1 ? " is" : "s are"));
    if (csv->full)
        TRY(mst_text_list_format(&self->warnings, "%s: only its first %zu lines are shown", csv->path,
                                 csv->n_rows));
    return MST_OK;
}

/* ---- processes ---- */

static void process_data_destroy(mst_process_data *p)
{
    if (p == NULL)
        return;
    mst_csv_fini(&p->resources);
    mst_csv_fini(&p->spans);
    mst_csv_fini(&p->traffic);
    mst_csv_fini(&p->learning);
    mst_free(p->name);
    mst_free(p->host);
    mst_free(p->info_path);
    mst_free(p);
}

static mst_process_role run_data_find_role(const char *text, size_t n)
{
    for (int i = 0; i < MST_PROCESS_OTHER; i++)
        if (strlen(role_names[i]) == n && memcmp(role_names[i], text, n) == 0)
            return (mst_process_role)i;
    return MST_PROCESS_OTHER;
}

static double run_data_is_positive(const json_t *object, const char *key)
{
    double x = mst_json_real(object, key);
    return x > 0 && x < 1e300 ? x : NAN;
}

static void run_data_adopt_paths(mst_process_data *p, const json_t *paths)
{
    const char *role = p->role == MST_PROCESS_SERVER ? "worker-" : "server-";
    for (size_t i = 0; i < MST_PROCESS_PATHS_MAX; i++)
        p->paths[i] = (mst_process_path){NAN, NAN};
    for (size_t i = 0; i < json_array_size(paths); i++) {
        const json_t *path = json_array_get(paths, i);
        const char *to = json_string_value(json_object_get(path, "to"));
        unsigned other;
        if (to != NULL && strncmp(to, role, strlen(role)) == 0 &&
            sscanf(to + strlen(role), "%u", &other) == 1 && other < MST_PROCESS_PATHS_MAX)
            p->paths[other] = (mst_process_path){run_data_is_positive(path, "bits_per_s"),
                                                 run_data_is_positive(path, "round_trip_s")};
    }
}

static mst_status process_data_new(const mst_run_data *run, const char *name, mst_process_data **out)
{
    mst_status st = MST_OK;
    char *resources = mst_sprintf("%s/processes/%s/resources.csv", run->path, name);
    char *spans = mst_sprintf("%s/processes/%s/spans.csv", run->path, name);
    char *traffic = mst_sprintf("%s/processes/%s/traffic.csv", run->path, name);
    char *learning = mst_sprintf("%s/processes/%s/learning.csv", run->path, name);
    mst_process_data *p = mst_zalloc(sizeof *p);
    if (p != NULL) {
        p->name = mst_strdup(name);
        p->host = mst_strdup("");
        p->info_path = mst_sprintf("%s/processes/%s/process.json", run->path, name);
    }
    if (p == NULL || resources == NULL || spans == NULL || traffic == NULL || learning == NULL ||
        p->name == NULL || p->host == NULL || p->info_path == NULL)
        TRY_OUT(st, mst_fail_memory());
    const char *dash = strrchr(name, '-');
    p->role = run_data_find_role(name, dash != NULL ? (size_t)(dash - name) : strlen(name));
    p->index = dash != NULL ? strtol(dash + 1, NULL, 10) : 0;
    p->info_stamp = -1;
    run_data_adopt_paths(p, NULL);
    p->started = p->cores = p->threads = p->memory_bytes = p->cpu_limit = NAN;
    TRY_OUT(st, mst_csv_init(&p->resources, resources, resources_texts));
    TRY_OUT(st, mst_csv_init(&p->spans, spans, NULL));
    TRY_OUT(st, mst_csv_init(&p->traffic, traffic, traffic_texts));
    TRY_OUT(st, mst_csv_init(&p->learning, learning, NULL));
    *out = p;
    p = NULL;
out:
    process_data_destroy(p);
    mst_free(resources);
    mst_free(learning);
    mst_free(spans);
    mst_free(traffic);
    return st;
}

/* The values of process.json; missing ones stay unknown. */
static mst_status run_data_adopt_info(mst_process_data *p, const json_t *info)
{
    const char *role = json_string_value(json_object_get(info, "role"));
    const char *host = json_string_value(json_object_get(info, "host"));
    const json_t *index = json_object_get(info, "index"), *links = json_object_get(info, "links");
    if (role != NULL)
        p->role = run_data_find_role(role, strlen(role));
    if (json_is_integer(index))
        p->index = json_integer_value(index);
    if (host != NULL && strcmp(host, p->host) != 0) {
        char *copy = mst_strdup(host);
        if (copy == NULL)
            return mst_fail_memory();
        mst_free(p->host);
        p->host = copy;
    }
    p->pid = json_integer_value(json_object_get(info, "pid"));
    p->started = run_data_is_positive(info, "started");
    p->cores = run_data_is_positive(info, "cores");
    p->threads = run_data_is_positive(info, "threads");
    p->memory_bytes = run_data_is_positive(info, "memory_bytes");
    p->cpu_limit = run_data_is_positive(info, "cpu_limit");
    const char *machine = json_string_value(json_object_get(info, "machine"));
    snprintf(p->machine, sizeof p->machine, "%s", machine != NULL ? machine : "");
    p->n_links = 0;
    for (size_t i = 0; i < json_array_size(links) && p->n_links < MST_PROCESS_LINKS_MAX; i++) {
        const json_t *link = json_array_get(links, i);
        const char *name = json_string_value(json_object_get(link, "name"));
        mst_process_link *to = &p->links[p->n_links];
        if (name == NULL || strlen(name) >= sizeof to->name)
            continue;
        memcpy(to->name, name, strlen(name) + 1);
        to->bits_per_s = run_data_is_positive(link, "bits_per_s");
        p->n_links++;
    }
    run_data_adopt_paths(p, json_object_get(info, "paths"));
    p->has_info = true;
    return MST_OK;
}

static mst_status process_data_update(mst_run_data *self, mst_process_data *p, bool *changed)
{
    json_t *info = NULL;
    int64_t stamp = p->info_stamp;
    TRY(run_data_note(self, run_data_read_json(p->info_path, &stamp, &info)));
    if (info != NULL) {
        mst_status st = run_data_adopt_info(p, info);
        json_decref(info);
        TRY(st);
        p->info_stamp = stamp;
        *changed = true;
    }
    TRY(run_data_note(self, mst_csv_update(&p->resources, changed)));
    TRY(run_data_note(self, mst_csv_update(&p->spans, changed)));
    TRY(run_data_note(self, mst_csv_update(&p->traffic, changed)));
    TRY(run_data_note(self, mst_csv_update(&p->learning, changed)));
    TRY(run_data_note_csv(self, &p->resources, "time"));
    TRY(run_data_note_csv(self, &p->spans, "time"));
    TRY(run_data_note_csv(self, &p->traffic, "time"));
    return run_data_note_csv(self, &p->learning, "time");
}

static int process_compare(const void *a, const void *b)
{
    const mst_process_data *x = *(mst_process_data *const *)a, *y = *(mst_process_data *const *)b;
    if (x->role != y->role)
        return x->role < y->role ? -1 : 1;
    if (x->index != y->index)
        return x->index < y->index ? -1 : 1;
    return strcmp(x->name, y->name);
}

static bool run_data_has_process(const mst_run_data *self, const char *name)
{
    for (size_t i = 0; i < self->n_processes; i++)
        if (strcmp(self->processes[i]->name, name) == 0)
            return true;
    return false;
}

/* Finds new folders in processes/. */
static mst_status run_data_find_processes(mst_run_data *self)
{
    mst_status st = MST_OK;
    struct dirent *found;
    char *path = mst_sprintf("%s/processes", self->path);
    if (path == NULL)
        return mst_fail_memory();
    DIR *dir = opendir(path);
    while (st == MST_OK && dir != NULL && (found = readdir(dir)) != NULL) {
        if (found->d_name[0] == '.' || strlen(found->d_name) > FOLDER_MAX ||
            run_data_has_process(self, found->d_name))
            continue;
        char *folder = mst_sprintf("%s/%s", path, found->d_name);
        bool is_folder = folder != NULL && mst_path_is_folder(folder);
        mst_free(folder);
        if (!is_folder)
            continue;
        if (self->n_processes == PROCESSES_MAX) {
            st =
                mst_text_list_format(&self->warnings, "%s: only %d processes are shown", path, PROCESSES_MAX);
            break;
        }
        mst_process_data *p = NULL;
        size_t capacity = self->n_processes;
        st = process_data_new(self, found->d_name, &p);
        if (st == MST_OK && !mst_grow(&self->processes, &capacity, self->n_processes + 1, sizeof(void *))) {
            process_data_destroy(p);
            st = mst_fail_memory();
        } else if (st == MST_OK) {
            self->processes[self->n_processes++] = p;
        }
    }
    if (dir != NULL)
        closedir(dir);
    mst_free(path);
    return st;
}

/* ---- the run ---- */

static mst_status run_data_read_all(mst_run_data *self, bool *changed)
{
    bool any = false;
    int64_t manifest = self->manifest_stamp, verdict = self->verdict_stamp;
    mst_text_list_fini(&self->warnings);
    TRY(run_data_note(self, run_data_read_json(self->manifest_path, &self->manifest_stamp, &self->manifest)));
    TRY(run_data_note(self, run_data_read_json(self->verdict_path, &self->verdict_stamp, &self->verdict)));
    any = manifest != self->manifest_stamp || verdict != self->verdict_stamp;
    TRY(run_data_note(self, mst_csv_update(&self->metrics, &any)));
    TRY(run_data_note(self, mst_csv_update(&self->marks, &any)));
    TRY(run_data_note_csv(self, &self->metrics, "step"));
    TRY(run_data_note_csv(self, &self->marks, "time"));
    TRY(run_data_find_processes(self));
    for (size_t i = 0; i < self->n_processes; i++)
        TRY(process_data_update(self, self->processes[i], &any));
    if (self->n_processes > 1)
        qsort(self->processes, self->n_processes, sizeof(void *), process_compare);
    if (changed != NULL)
        *changed = any;
    return MST_OK;
}

void mst_run_data_destroy(mst_run_data *self)
{
    if (self == NULL)
        return;
    for (size_t i = 0; i < self->n_processes; i++)
        process_data_destroy(self->processes[i]);
    mst_free(self->processes);
    mst_csv_fini(&self->metrics);
    mst_csv_fini(&self->marks);
    json_decref(self->manifest);
    json_decref(self->verdict);
    mst_text_list_fini(&self->warnings);
    mst_free(self->path);
    mst_free(self->name);
    mst_free(self->manifest_path);
    mst_free(self->verdict_path);
    mst_free(self);
}

/* Every manifest has the options of the training, or its progress. */
static bool run_data_is_ours(const json_t *manifest)
{
    static const char *const keys[] = {"options", "progress", "state", "model"};
    const char *format = json_string_value(json_object_get(manifest, "format"));
    bool any = format != NULL;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        any = any || json_object_get(manifest, keys[i]) != NULL;
    return any && (format == NULL || strcmp(format, "muster-run") == 0);
}

/* Files that a finished run has, unless they were removed. */
static mst_status run_data_warn_missing(mst_run_data *self)
{
    const char *state = mst_run_data_text(self, "state", NULL);
    bool over = state != NULL && strcmp(state, "running") != 0;
    if (self->manifest == NULL)
        TRY(mst_text_list_format(&self->warnings, "%s: no manifest can be read: options are not known",
                                 self->path));
    if (over && !self->metrics.present)
        TRY(mst_text_list_format(&self->warnings, "%s: no metrics.csv: there are no curves", self->path));
    if (over && self->n_processes == 0 && !(mst_run_data_option_real(self, "resources-every") <= 0))
        TRY(mst_text_list_format(&self->warnings,
                                 "%s: no processes/: where the time went and what was used is not known",
                                 self->path));
    for (size_t i = 0; over && i < self->n_processes; i++) {
        const mst_process_data *p = self->processes[i];
        if (p->role != MST_PROCESS_OTHER && !p->has_info && !p->resources.present && !p->spans.present)
            TRY(mst_text_list_format(&self->warnings, "%s/processes/%s: there is nothing of a process in it",
                                     self->path, p->name));
    }
    return MST_OK;
}

mst_status mst_run_data_update(mst_run_data *self, bool *changed)
{
    TRY(run_data_read_all(self, changed));
    return run_data_warn_missing(self);
}

/* Whether a folder in it has a manifest. */
static bool run_data_holds_runs(const char *path)
{
    DIR *dir = opendir(path);
    const struct dirent *found;
    bool any = false;
    while (dir != NULL && !any && (found = readdir(dir)) != NULL) {
        char *manifest =
            found->d_name[0] != '.' ? mst_sprintf("%s/%s/manifest.json", path, found->d_name) : NULL;
        any = manifest != NULL && mst_path_exists(manifest);
        mst_free(manifest);
    }
    if (dir != NULL)
        closedir(dir);
    return any;
}

/* The folder's last word; of "." and the like, that of the real path. */
static char *run_data_name_of(const char *path)
{
    char *real = realpath(path, NULL);
    const char *from = real != NULL ? real : path, *slash = strrchr(from, '/');
    char *name = mst_strdup(slash != NULL && slash[1] != '\0' ? slash + 1 : from);
    free(real);
    return name;
}

mst_status mst_run_data_open(const char *path, mst_run_data **out)
{
    mst_status st = MST_OK;
    char *metrics = NULL, *marks = NULL;
    if (!mst_path_exists(path))
        return mst_fail(MST_EINPUT, "%s: there is no such run", path);
    if (!mst_path_is_folder(path))
        return mst_fail(MST_EINPUT, "%s: not a run: a run is a folder that muster train creates", path);
    mst_run_data *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    self->path = mst_strndup(path, n);
    self->name = run_data_name_of(path);
    self->manifest_path = mst_sprintf("%.*s/manifest.json", (int)n, path);
    self->verdict_path = mst_sprintf("%.*s/verdict.json", (int)n, path);
    self->manifest_stamp = self->verdict_stamp = -1;
    metrics = mst_sprintf("%.*s/metrics.csv", (int)n, path);
    marks = mst_sprintf("%.*s/marks.csv", (int)n, path);
    if (self->path == NULL || self->name == NULL || self->manifest_path == NULL ||
        self->verdict_path == NULL || metrics == NULL || marks == NULL)
        TRY_OUT(st, mst_fail_memory());
    TRY_OUT(st, mst_csv_init(&self->metrics, metrics, metrics_texts));
    TRY_OUT(st, mst_csv_init(&self->marks, marks, marks_texts));
    TRY_OUT(st, run_data_read_all(self, NULL));
    if (self->manifest == NULL && !self->metrics.present && self->n_processes == 0) {
        if (self->warnings.n > 0)
            st =
                mst_fail(MST_EINPUT, "%s: nothing of the run can be read: %s", path, self->warnings.items[0]);
        else
            st = mst_fail(MST_EINPUT,
                          "%s: not a run: it has neither a manifest.json nor a metrics.csv of muster%s", path,
                          run_data_holds_runs(path) ? "; it holds runs: give them one by one" : "");
        goto out;
    }
    if (self->n_processes == 0 && !self->metrics.present && !run_data_is_ours(self->manifest))
        TRY_OUT(st,
                mst_fail(MST_EINPUT, "%s: not a run: muster did not write %s", path, self->manifest_path));
    TRY_OUT(st, run_data_warn_missing(self));
    *out = self;
    self = NULL;
out:
    mst_run_data_destroy(self);
    mst_free(metrics);
    mst_free(marks);
    return st;
}

/* Whether a table has not reached the end of its file. */
static bool run_data_is_behind(const mst_run_data *self)
{
    bool behind = self->metrics.behind || self->marks.behind;
    for (size_t i = 0; i < self->n_processes && !behind; i++)
        behind = self->processes[i]->resources.behind || self->processes[i]->spans.behind ||
                 self->processes[i]->traffic.behind || self->processes[i]->learning.behind;
    return behind;
}

mst_status mst_run_data_new(const char *path, mst_run_data **out)
{
    mst_run_data *self = NULL;
    TRY(mst_run_data_open(path, &self));
    while (run_data_is_behind(self)) {
        mst_status st = mst_run_data_update(self, NULL);
        if (st != MST_OK) {
            mst_run_data_destroy(self);
            return st;
        }
    }
    *out = self;
    return MST_OK;
}

/* ---- access ---- */

static const json_t *run_data_find_option(const mst_run_data *self, const char *name)
{
    const char *title;
    json_t *group, *options = json_object_get(self->manifest, "options");
    json_object_foreach(options, title, group)
    {
        const json_t *value = json_object_get(group, name);
        if (value != NULL)
            return value;
    }
    return NULL;
}

char *mst_run_data_option(const mst_run_data *self, const char *name)
{
    const json_t *value = run_data_find_option(self, name);
    return value != NULL && !json_is_null(value) && !json_is_object(value) ? mst_option_text(value) : NULL;
}

bool mst_run_data_option_is(const mst_run_data *self, const char *name, const char *text)
{
    const char *value = json_string_value(run_data_find_option(self, name));
    return value != NULL && strcmp(value, text) == 0;
}

double mst_run_data_option_real(const mst_run_data *self, const char *name)
{
    const json_t *value = run_data_find_option(self, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static const json_t *run_data_walk(const json_t *at, va_list keys)
{
    const char *key;
    while (at != NULL && (key = va_arg(keys, const char *)) != NULL)
        at = json_object_get(at, key);
    return at;
}

const char *mst_run_data_text(const mst_run_data *self, ...)
{
    va_list keys;
    va_start(keys, self);
    const char *text = json_string_value(run_data_walk(self->manifest, keys));
    va_end(keys);
    return text;
}

double mst_run_data_real(const mst_run_data *self, ...)
{
    va_list keys;
    va_start(keys, self);
    const json_t *value = run_data_walk(self->manifest, keys);
    va_end(keys);
    double x = json_is_number(value) ? json_number_value(value) : NAN;
    return isfinite(x) ? x : NAN;
}

double mst_json_real(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

mst_mark_line mst_run_data_mark(const mst_run_data *self, size_t line)
{
    const mst_csv *m = &self->marks;
    return (mst_mark_line){.time = mst_csv_value(m, line, mst_csv_column(m, "time")),
                           .process = mst_csv_text(m, line, mst_csv_column(m, "process")),
                           .kind = mst_csv_text(m, line, mst_csv_column(m, "kind")),
                           .text = mst_csv_text(m, line, mst_csv_column(m, "text"))};
}

double mst_run_data_begin(const mst_run_data *self)
{
    double begin = mst_run_data_mark(self, 0).time;
    for (size_t i = 0; i < self->n_processes; i++) {
        const mst_process_data *p = self->processes[i];
        const mst_csv *csv[] = {&p->resources, &p->spans};
        begin = fmin(begin, p->started); /* of NAN and a number: the number */
        for (int k = 0; k < 2; k++)
            if (csv[k]->n_rows > 0)
                begin = fmin(begin, mst_csv_value(csv[k], 0, mst_csv_column(csv[k], "time")) -
                                        mst_csv_value(csv[k], 0, mst_csv_column(csv[k], "interval_s")));
    }
    struct tm tm = {0};
    const char *started = mst_run_data_text(self, "started", NULL);
    if (isnan(begin) && started != NULL && strptime(started, "%Y-%m-%dT%H:%M:%SZ", &tm) != NULL)
        begin = (double)timegm(&tm);
    return begin;
}

double mst_run_data_end(const mst_run_data *self)
{
    double end = mst_csv_last(&self->marks, "time");
    for (size_t i = 0; i < self->n_processes; i++) {
        end = fmax(end, mst_csv_last(&self->processes[i]->resources, "time"));
        end = fmax(end, mst_csv_last(&self->processes[i]->spans, "time"));
    }
    return end;
}
