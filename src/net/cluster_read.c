/* Reading the cluster spec out of YAML, MUSTER_CLUSTER and TF_CONFIG; contract in cluster.h.
 *
 * The YAML file is read as an option file (base/option_yaml.c), so that its errors are those of every
 * other one. JSON is walked key by key: a key that is not known is refused with the nearest one. */
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/core_dump.h"
#include "base/file.h"
#include "base/log.h"
#include "net/cluster.h"
#include "net/cluster_impl.h"

#define TEXT_MAX (1u << 20)

/* The contents of a source, unchecked. */
typedef struct spec {
    mst_text_list servers, workers;
    char *job, *secret_file;
} spec;

static const mst_option spec_table[] = {
    {.name = "servers",
     .type = MST_OPTION_LIST,
     .offset = offsetof(spec, servers),
     .help = "Addresses of the servers."},
    {.name = "workers",
     .type = MST_OPTION_LIST,
     .offset = offsetof(spec, workers),
     .help = "Hosts of the workers."},
    {.name = "job", .type = MST_OPTION_TEXT, .offset = offsetof(spec, job), .help = "Name of the job."},
    {.name = "secret-file",
     .type = MST_OPTION_TEXT,
     .offset = offsetof(spec, secret_file),
     .help = "File with the secret of the job."},
    {.name = NULL},
};
static const char *const spec_keys[] = {"servers", "workers", "job", "secret-file", NULL};
static const mst_cluster_keys spec_lists = {"servers", "workers"};
static const mst_cluster_keys tf_lists = {"cluster.ps", "cluster.worker"};

static void spec_fini(spec *s)
{
    mst_text_list_fini(&s->servers);
    mst_text_list_fini(&s->workers);
    mst_free(s->job);
    mst_free(s->secret_file);
}

static const char *spec_or_null(const char *text)
{
    return text != NULL && *text != '\0' ? text : NULL;
}

/* ---- job and secret ---- */

static mst_status cluster_set_job(mst_cluster *c, const char *job, const char *from)
{
    size_t n = strlen(job);
    if (n >= sizeof c->job)
        return mst_fail(MST_EUSAGE, "%s: the job's name %s is longer than %zu characters", from, job,
                        sizeof c->job - 1);
    for (const char *p = job; *p != '\0'; p++)
        if (!isalnum((unsigned char)*p) && strchr("._-", *p) == NULL)
            return mst_fail(MST_EUSAGE,
                            "%s: the job's name %s may have a-z, 0-9, dot, dash and underscore "
                            "only",
                            from, job);
    memcpy(c->job, job, n + 1);
    return MST_OK;
}

static int cluster_n_distinct(const char *text, size_t n)
{
    bool seen[256] = {false};
    int distinct = 0;
    for (size_t i = 0; i < n; i++) {
        distinct += !seen[(unsigned char)text[i]];
        seen[(unsigned char)text[i]] = true;
    }
    return distinct;
}

/* The secret in memory of its own; errors never show it. */
static mst_status cluster_set_secret(mst_cluster *c, const char *text, const char *from)
{
    size_t n = strlen(text);
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    if (n > MST_SECRET_MAX)
        return mst_fail(MST_EUSAGE, "%s: a secret has %d to %d characters; this one has %zu", from,
                        MST_SECRET_MIN, MST_SECRET_MAX, n);
    if (n == 0)
        return mst_fail(MST_EUSAGE, "%s: the secret is empty; use the output of openssl rand -hex 16", from);
    if (n < MST_SECRET_MIN || cluster_n_distinct(text, n) < MST_SECRET_DISTINCT)
        return mst_fail(
            MST_EUSAGE,
            "%s: the secret is easy to guess (characters: %zu, different ones: %d); use at least %d random "
            "characters, such as the output of openssl rand -hex 16",
            from, n, cluster_n_distinct(text, n), MST_SECRET_MIN);
    mst_free(c->secret);
    c->secret = mst_strndup(text, n);
    return c->secret != NULL ? MST_OK : mst_fail_memory();
}

static mst_status cluster_read_secret(mst_cluster *c, const char *file, const char *beside)
{
    mst_status st;
    char *data = NULL;
    size_t size = 0;
    struct stat info;
    const char *slash = beside != NULL && *file != '/' ? strrchr(beside, '/') : NULL;
    char *path =
        slash != NULL ? mst_sprintf("%.*s/%s", (int)(slash - beside), beside, file) : mst_strdup(file);
    if (path == NULL)
        return mst_fail_memory();
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        TRY_OUT(st, mst_fail(MST_EUSAGE, "%s: secret-file %s is not a file", c->source, path));
    if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        mst_warn("%s: the secret can be read by others; run chmod 600 on the file", path);
    mst_core_dump_disable();
    TRY_OUT(st, mst_file_read_all(path, 4096, &data, &size));
    if (strlen(data) != size)
        TRY_OUT(st, mst_fail(MST_EUSAGE, "%s: a secret is one line of text; this has a zero byte", path));
    st = cluster_set_secret(c, data, path);
out:
    if (data != NULL)
        explicit_bzero(data, size);
    mst_free(data);
    mst_free(path);
    return st;
}

/* Common to all sources: moves the lists, sets job and secret. */
static mst_status spec_finish(mst_cluster *c, spec *s, const mst_cluster_keys *keys,
                              const mst_cluster_env *env, const char *beside)
{
    const char *job = env != NULL ? spec_or_null(env->job) : NULL,
               *secret = env != NULL ? spec_or_null(env->secret) : NULL;
    TRY(mst_cluster_fill(c, &s->servers, &s->workers, keys));
    if (job != NULL)
        TRY(cluster_set_job(c, job, "MUSTER_JOB"));
    else if (s->job != NULL)
        TRY(cluster_set_job(c, s->job, c->source));
    if (secret != NULL)
        return cluster_set_secret(c, secret, "MUSTER_SECRET");
    return s->secret_file != NULL ? cluster_read_secret(c, s->secret_file, beside) : MST_OK;
}

/* ---- YAML ---- */

mst_status mst_cluster_read_yaml(const char *path, const mst_cluster_env *env, mst_cluster *out)
{
    mst_status st;
    mst_cluster c = {0};
    spec s = {0};
    mst_option_group group = {.title = "cluster", .table = spec_table, .base = &s};
    TRY_OUT(st, mst_cluster_begin(&c, path));
    TRY_OUT(st, mst_options_init(&group, 1));
    TRY_OUT(st, mst_options_load_yaml(&group, 1, path));
    st = spec_finish(&c, &s, &spec_lists, env, path);
out:
    spec_fini(&s);
    return mst_cluster_settle(st, &c, out);
}

/* ---- JSON ---- */

/* Letters that one word has and the other lacks, wherever they stand: small for typing errors. */
static size_t spec_distance(const char *a, const char *b)
{
    int count[256] = {0};
    size_t more = 0, less = 0;
    for (; *a != '\0'; a++)
        count[(unsigned char)*a]++;
    for (; *b != '\0'; b++)
        count[(unsigned char)*b]--;
    for (size_t i = 0; i < 256; i++) {
        more += count[i] > 0 ? (size_t)count[i] : 0;
        less += count[i] < 0 ? (size_t)-count[i] : 0;
    }
    return more > less ? more : less;
}

/* Every key of the object is one of the names. `where` is "", or the path to the object with a dot at its
 * end. */
static mst_status spec_check_keys(const char *source, const char *where, json_t *object,
                                  const char *const *names)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        const char *nearest = NULL;
        size_t best = 3;
        for (size_t i = 0; names[i] != NULL && best > 0; i++) {
            size_t apart = spec_distance(key, names[i]);
            if (strcmp(key, names[i]) == 0 || (apart < best && apart < strlen(names[i]))) {
                nearest = names[i];
                best = strcmp(key, names[i]) == 0 ? 0 : apart > 0 ? apart : 1;
            }
        }
        if (best > 0)
            return mst_fail(MST_EUSAGE, "%s: unknown key %s%.64s%s%s%s", source, where, key,
                            nearest != NULL ? " (did you mean " : "", nearest != NULL ? nearest : "",
                            nearest != NULL ? "?)" : "");
    }
    return MST_OK;
}

/* The text's object; *out is the caller's reference. */
static mst_status spec_load_object(const char *source, const char *text, json_t **out)
{
    json_error_t error;
    size_t n = strlen(text);
    if (n > TEXT_MAX)
        return mst_fail(MST_EUSAGE, "%s: longer than %u bytes", source, TEXT_MAX);
    json_t *value = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (value == NULL && json_error_code(&error) == json_error_out_of_memory)
        return mst_fail_memory();
    if (value == NULL)
        return mst_fail(MST_EUSAGE, "%s: not valid JSON at character %d: %s", source, error.position,
                        error.text);
    if (!json_is_object(value)) {
        json_decref(value);
        return mst_fail(MST_EUSAGE, "%s: must be a JSON object, {\"...\": ...}", source);
    }
    *out = value;
    return MST_OK;
}

/* The strings of a list under the key, behind those that the list has; no such key: none. */
static mst_status spec_take_list(const char *source, const char *where, json_t *object, const char *key,
                                 mst_text_list *out)
{
    json_t *list = json_object_get(object, key);
    if (list != NULL && !json_is_array(list))
        return mst_fail(MST_EUSAGE, "%s: %s%s must be a list, [\"...\", ...]", source, where, key);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (text == NULL)
            return mst_fail(MST_EUSAGE, "%s: %s%s: entry %zu is not a string", source, where, key, i + 1);
        if (out->n > MST_CLUSTER_MAX)
            return mst_fail(MST_EUSAGE, "%s: %s%s has more than %d entries", source, where, key,
                            MST_CLUSTER_MAX);
        TRY(mst_text_list_add(out, text));
    }
    return MST_OK;
}

static mst_status spec_take_text(const char *source, json_t *object, const char *key, char **out)
{
    json_t *value = json_object_get(object, key);
    if (value == NULL)
        return MST_OK;
    if (!json_is_string(value))
        return mst_fail(MST_EUSAGE, "%s: %s must be a text", source, key);
    *out = mst_strdup(json_string_value(value));
    return *out != NULL ? MST_OK : mst_fail_memory();
}

mst_status mst_cluster_read_json(const char *text, const mst_cluster_env *env, mst_cluster *out)
{
    mst_status st;
    mst_cluster c = {0};
    spec s = {0};
    json_t *object = NULL;
    TRY_OUT(st, mst_cluster_begin(&c, "MUSTER_CLUSTER"));
    TRY_OUT(st, spec_load_object(c.source, text, &object));
    TRY_OUT(st, spec_check_keys(c.source, "", object, spec_keys));
    TRY_OUT(st, spec_take_list(c.source, "", object, "servers", &s.servers));
    TRY_OUT(st, spec_take_list(c.source, "", object, "workers", &s.workers));
    TRY_OUT(st, spec_take_text(c.source, object, "job", &s.job));
    TRY_OUT(st, spec_take_text(c.source, object, "secret-file", &s.secret_file));
    st = spec_finish(&c, &s, &spec_lists, env, NULL);
out:
    json_decref(object);
    spec_fini(&s);
    return mst_cluster_settle(st, &c, out);
}

/* ---- TF_CONFIG ---- */

/* {"type": "worker", "index": 1}: the role, and the index among muster's workers, of which a chief is the
 * first. */
static mst_status spec_take_task(mst_cluster *c, json_t *task, bool has_chief)
{
    static const char *const keys[] = {"type", "index", "trial", NULL};
    if (!json_is_object(task))
        return mst_fail(MST_EUSAGE, "%s: task must be {\"type\": ..., \"index\": ...}", c->source);
    TRY(spec_check_keys(c->source, "task.", task, keys));
    const char *type = json_string_value(json_object_get(task, "type"));
    json_t *number = json_object_get(task, "index");
    if (type == NULL)
        return mst_fail(MST_EUSAGE, "%s: task.type must be one of ps, worker, chief, master", c->source);
    /* Some launchers write the index as a text. */
    int64_t index = json_is_integer(number) ? json_integer_value(number) : -1;
    if (json_is_string(number) && !mst_parse_int(json_string_value(number), &index))
        index = -1;
    if (number == NULL)
        index = 0;
    if (index < 0 || index >= MST_CLUSTER_MAX)
        return mst_fail(MST_EUSAGE, "%s: task.index must be an integer from 0 to %d", c->source,
                        MST_CLUSTER_MAX - 1);
    bool chief = strcmp(type, "chief") == 0 || strcmp(type, "master") == 0;
    if (strcmp(type, "evaluator") == 0)
        return mst_fail(MST_EUSAGE,
                        "%s: task.type evaluator: muster's worker 0 evaluates; do not start this process",
                        c->source);
    if (!chief && strcmp(type, "worker") != 0 && strcmp(type, "ps") != 0)
        return mst_fail(MST_EUSAGE, "%s: task.type %.64s is not one of ps, worker, chief, master", c->source,
                        type);
    if (chief && (!has_chief || index > 0))
        return mst_fail(MST_EUSAGE, "%s: the cluster has no %s %d", c->source, type, (int)index);
    c->role = strcmp(type, "ps") == 0 ? MST_ROLE_SERVER : MST_ROLE_WORKER;
    c->index = (uint32_t)index + (has_chief && strcmp(type, "worker") == 0);
    c->has_task = true;
    return mst_cluster_check_index(c, c->role, c->index);
}

mst_status mst_cluster_read_tf(const char *text, const mst_cluster_env *env, mst_cluster *out)
{
    static const char *const keys[] = {"cluster",   "task",      "environment", "job",
                                       "rpc_layer", "model_dir", NULL};
    static const char *const jobs[] = {"ps", "worker", "chief", "master", "evaluator", NULL};
    mst_status st;
    mst_cluster c = {0};
    spec s = {0};
    json_t *object = NULL;
    TRY_OUT(st, mst_cluster_begin(&c, "TF_CONFIG"));
    TRY_OUT(st, spec_load_object(c.source, text, &object));
    TRY_OUT(st, spec_check_keys(c.source, "", object, keys));
    json_t *cluster = json_object_get(object, "cluster"), *task = json_object_get(object, "task");
    if (!json_is_object(cluster))
        TRY_OUT(st, mst_fail(MST_EUSAGE, "%s: cluster must be {\"ps\": [...], \"worker\": [...]}", c.source));
    TRY_OUT(st, spec_check_keys(c.source, "cluster.", cluster, jobs));
    TRY_OUT(st, spec_take_list(c.source, "cluster.", cluster, "chief", &s.workers));
    TRY_OUT(st, spec_take_list(c.source, "cluster.", cluster, "master", &s.workers));
    if (s.workers.n > 1)
        TRY_OUT(st,
                mst_fail(MST_EUSAGE,
                         "%s: cluster.chief and cluster.master name %zu processes; at most one is possible",
                         c.source, s.workers.n));
    bool has_chief = s.workers.n == 1;
    TRY_OUT(st, spec_take_list(c.source, "cluster.", cluster, "worker", &s.workers));
    TRY_OUT(st, spec_take_list(c.source, "cluster.", cluster, "ps", &s.servers));
    if (json_array_size(json_object_get(cluster, "evaluator")) > 0)
        mst_info("%s: cluster.evaluator is not used: worker 0 evaluates", c.source);
    TRY_OUT(st, spec_finish(&c, &s, &tf_lists, env, NULL));
    if (task != NULL)
        st = spec_take_task(&c, task, has_chief);
out:
    json_decref(object);
    spec_fini(&s);
    return mst_cluster_settle(st, &c, out);
}

/* ---- which one ---- */

mst_cluster_env mst_cluster_env_read(void)
{
    return (mst_cluster_env){.cluster = getenv("MUSTER_CLUSTER"),
                             .tf_config = getenv("TF_CONFIG"),
                             .secret = getenv("MUSTER_SECRET"),
                             .job = getenv("MUSTER_JOB")};
}

mst_status mst_cluster_find(const char *file, const mst_cluster_env *env, mst_cluster *out)
{
    const char *json = spec_or_null(env->cluster), *tf = spec_or_null(env->tf_config);
    if (file != NULL && (json != NULL || tf != NULL))
        mst_info("the cluster is that of --cluster %s; not used: %s", file,
                 json == NULL ? "TF_CONFIG"
                 : tf == NULL ? "MUSTER_CLUSTER"
                              : "MUSTER_CLUSTER and TF_CONFIG");
    else if (json != NULL && tf != NULL)
        mst_info("the cluster is that of MUSTER_CLUSTER; not used: TF_CONFIG");
    if (file != NULL)
        return mst_cluster_read_yaml(file, env, out);
    if (json != NULL)
        return mst_cluster_read_json(json, env, out);
    if (tf != NULL)
        return mst_cluster_read_tf(tf, env, out);
    *out = (mst_cluster){0};
    return MST_OK;
}
