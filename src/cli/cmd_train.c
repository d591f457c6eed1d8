/* `muster train`: options in, a trained model, a run directory and a summary out. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/table.h"
#include "train/job.h"

typedef struct output_options {
    bool json, dry_run, quiet;
    char *config;
} output_options;

#define FIELD(name) offsetof(output_options, name)
static const mst_option output_table[] = {
    {"config", MST_OPTION_TEXT, FIELD(config), NULL, 0, 0, NULL, "FILE",
     "Options from a YAML file; flags win."},
    {"dry-run", MST_OPTION_FLAG, FIELD(dry_run), "false", 0, 0, NULL, NULL,
     "Print the options as a file for --config, the memory and the bytes per step, and stop."},
    {"json", MST_OPTION_FLAG, FIELD(json), "false", 0, 0, NULL, NULL, "Print the summary as JSON."},
    {"quiet", MST_OPTION_FLAG, FIELD(quiet), "false", 0, 0, NULL, NULL,
     "No progress and no evaluation lines."},
    {0},
};

/* Which process of a cluster this one is. */
typedef struct process_options {
    int role; /* 0: as the cluster spec says, or none */
    int64_t index;
    char *cluster;
} process_options;

#define PROCESS(name) offsetof(process_options, name)
static const mst_option process_table[] = {
    {"role", MST_OPTION_CHOICE, PROCESS(role), "auto", 0, 0, "auto|server|worker", NULL,
     "What this process is in a cluster; auto: as TF_CONFIG says, or a training of its own."},
    {"index", MST_OPTION_INT, PROCESS(index), "0", 0, 1023, NULL, "I",
     "Which server or worker it is, from 0."},
    {"cluster", MST_OPTION_TEXT, PROCESS(cluster), NULL, 0, 0, NULL, "FILE",
     "The cluster: a YAML file with `servers:` and `workers:`; also from MUSTER_CLUSTER or TF_CONFIG."},
    {0},
};

static const mst_option *const tables[] = {
    mst_train_option_table, mst_model_option_table, mst_optim_option_table, mst_strategy_option_table,
    mst_data_option_table,  output_table,           process_table,          NULL,
};

/* Everything the command's options are read into. */
typedef struct settings {
    mst_train_options train;
    mst_model_options model;
    mst_optim_options optim;
    mst_strategy_options strategy;
    mst_data_options data;
    output_options output;
    process_options process;
    mst_option_group groups[7];
    mst_text_list files;
    mst_strategy_options resolved; /* strategy, as it will run */
} settings;

enum { GROUP_DATA = 4, N_GROUPS = 7 };

static void settings_init(settings *s)
{
    *s = (settings){0};
    s->groups[0] =
        (mst_option_group){.title = "training", .table = mst_train_option_table, .base = &s->train};
    s->groups[1] = (mst_option_group){.title = "model", .table = mst_model_option_table, .base = &s->model};
    s->groups[2] =
        (mst_option_group){.title = "optimizer", .table = mst_optim_option_table, .base = &s->optim};
    s->groups[3] =
        (mst_option_group){.title = "strategy", .table = mst_strategy_option_table, .base = &s->strategy};
    s->groups[GROUP_DATA] =
        (mst_option_group){.title = "data", .table = mst_data_option_table, .base = &s->data};
    s->groups[5] = (mst_option_group){.title = "output", .table = output_table, .base = &s->output};
    s->groups[6] = (mst_option_group){.title = "process", .table = process_table, .base = &s->process};
}

static void settings_fini(settings *s)
{
    mst_options_fini(s->groups, N_GROUPS);
    mst_text_list_fini(&s->files);
}

/* Takes a run's options over for those that were not given anew. What has its default stays that: --dry-run
 * tells the two apart. */
static mst_status adopt_values(settings *s, json_t *values)
{
    json_t *now = mst_options_json(s->groups, N_GROUPS), *group, *value;
    const char *title, *name;
    if (now == NULL)
        return mst_fail(MST_ENOMEM, "no memory to resume");
    json_object_foreach(now, title, group)
    {
        json_object_foreach(group, name, value)
        {
            if (strcmp(name, "epochs") != 0 && json_equal(value, json_object_get(values, name)))
                json_object_del(values, name);
        }
    }
    json_decref(now);
    if (mst_options_is_set(s->groups, N_GROUPS, "batch"))
        json_object_del(values, "global-batch"); /* which would win */
    return mst_options_adopt(s->groups, N_GROUPS, values);
}

/* A resumed run has the options and files it was started with, unless given anew. */
static mst_status adopt_manifest(settings *s, const json_t *manifest, const char *source)
{
    static const char *const own[] = {"run",  "resume", "overwrite", "init-from", "config", "dry-run",
                                      "json", "quiet",  "role",      "index",     "cluster"};
    json_t *groups = json_object_get(manifest, "options"), *files = json_object_get(manifest, "files"),
           *values;
    const char *title;
    if (!json_is_object(groups) || !json_is_array(files))
        return mst_fail(MST_EINPUT, "%s: not the manifest of a muster run", source);
    json_object_foreach(groups, title, values)
    {
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            json_object_del(values, own[i]);
        if (json_is_false(json_object_get(manifest, "epochs_given")))
            json_object_del(values, "epochs"); /* a default, which other limits lift */
        TRY(adopt_values(s, values));
    }
    size_t n_files = s->files.n == 0 ? json_array_size(files) : 0;
    for (size_t i = 0; i < n_files; i++) {
        const char *file = json_string_value(json_array_get(files, i));
        TRY(mst_text_list_add(&s->files, file ? file : ""));
    }
    return MST_OK;
}

static mst_status adopt_run(settings *s)
{
    mst_status st = MST_OK;
    char *path = mst_sprintf("%s/manifest.json", s->train.run), *text = NULL;
    size_t size;
    json_t *manifest = NULL;
    if (path == NULL)
        return mst_fail(MST_ENOMEM, "no memory to resume");
    TRY_OUT(st, mst_file_read_all(path, 64u << 20, &text, &size));
    manifest = json_loadb(text, size, 0, NULL);
    st = adopt_manifest(s, manifest, path);
out:
    json_decref(manifest);
    mst_free(text);
    mst_free(path);
    return st;
}

/* ---- what is shown on the way ---- */

typedef struct view {
    mst_bar bar;
    bool quiet;
    uint64_t epochs; /* 0: unlimited */
} view;

static void format_status(const mst_train_status *s, char *out, size_t size)
{
    char step[32], rate[32];
    double share = s->epoch_rows > 0 ? 100.0 * (double)s->epoch_position / (double)s->epoch_rows : 0.0;
    int n = snprintf(out, size, "epoch %llu", (unsigned long long)s->epoch + 1);
    if (s->epoch_rows > 0)
        n += snprintf(out + n, size - (size_t)n, " %3.0f%%", share);
    n += snprintf(out + n, size - (size_t)n, "  step %s  %s rows/s  loss %.4f", mst_text_count(s->step, step),
                  mst_text_count((uint64_t)s->rows_per_s, rate), s->train_loss);
    if (isfinite(s->eta_seconds))
        snprintf(out + n, size - (size_t)n, "  %.0f s left", s->eta_seconds);
}

static void on_progress(void *arg, const mst_train_status *s)
{
    view *v = arg;
    char line[256];
    if (v->quiet || !mst_bar_due(&v->bar))
        return;
    format_status(s, line, sizeof line);
    mst_bar_show(line);
}

static void on_evaluated(void *arg, const mst_train_status *s, const char *set, const mst_result *r)
{
    view *v = arg;
    char step[32], auc[32] = "";
    if (v->quiet)
        return;
    if (isfinite(r->auc))
        snprintf(auc, sizeof auc, "  auc %.4f", r->auc);
    mst_cli_note("step %-10s %-5s loss %.4f  accuracy %.4f%s  (trained %.2f s, evaluated in %.2f s)",
                 mst_text_count(s->step, step), set, r->loss, r->accuracy, auc, s->train_seconds, r->seconds);
}

/* ---- what is shown at the end ---- */

static uint64_t peak_resident_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

static double rows_per_s(const mst_train_summary *s)
{
    return s->status.train_seconds > 0.0 ? (double)s->status.rows / s->status.train_seconds : 0.0;
}

static void add_result(mst_table *t, const char *set, const mst_result *r)
{
    char name[32];
    const struct {
        const char *name;
        double value;
    } figures[] = {{"loss", r->loss}, {"accuracy", r->accuracy}, {"auc", r->auc}};
    for (size_t i = 0; r->rows > 0 && i < sizeof figures / sizeof *figures; i++) {
        if (!isfinite(figures[i].value))
            continue;
        snprintf(name, sizeof name, "%s %s", set, figures[i].name);
        mst_table_text(t, name);
        mst_table_real(t, figures[i].value, 5);
    }
}

/* What each worker did. */
static mst_status print_workers(const json_t *workers)
{
    static const mst_column columns[] = {{"worker", false}, {"steps", true},     {"rows", true},
                                         {"dropped", true}, {"compute s", true}, {"wait s", true},
                                         {"input s", true}, {"sent", true},      {"received", true}};
    mst_table *t;
    size_t i;
    json_t *w;
    TRY(mst_table_new(columns, 9, &t));
    json_array_foreach((json_t *)workers, i, w)
    {
        char name[192];
        const char *state = json_string_value(json_object_get(w, "state"));
        snprintf(name, sizeof name, "%s%s", json_string_value(json_object_get(w, "name")),
                 state != NULL && strcmp(state, "lost") == 0 ? ", lost" : "");
        mst_table_text(t, name);
        mst_table_count(t, (uint64_t)json_integer_value(json_object_get(w, "steps")));
        mst_table_count(t, (uint64_t)json_integer_value(json_object_get(w, "rows")));
        mst_table_count(t, (uint64_t)json_integer_value(json_object_get(w, "dropped_steps")));
        mst_table_real(t, json_number_value(json_object_get(w, "compute_seconds")), 3);
        mst_table_real(t, json_number_value(json_object_get(w, "wait_seconds")), 3);
        mst_table_real(t, json_number_value(json_object_get(w, "input_seconds")), 3);
        mst_table_bytes(t, (uint64_t)json_integer_value(json_object_get(w, "bytes_out")));
        mst_table_bytes(t, (uint64_t)json_integer_value(json_object_get(w, "bytes_in")));
    }
    putchar('\n');
    mst_status st = mst_table_print(t, NULL, true);
    mst_table_destroy(t);
    return st;
}

static mst_status print_summary(const settings *set, const mst_train_summary *s, json_t *workers)
{
    static const mst_column columns[] = {{"name", false}, {"value", true}};
    mst_table *t;
    const mst_train_status *status = &s->status;
    TRY(mst_table_new(columns, 2, &t));
    mst_table_text(t, "end");
    mst_table_text(t, mst_end_text(s->end));
    mst_table_text(t, "steps");
    mst_table_count(t, status->step);
    mst_table_text(t, "rows");
    mst_table_count(t, status->rows);
    mst_table_text(t, "batch");
    mst_table_count(t, (uint64_t)set->resolved.batch);
    mst_table_text(t, "global batch");
    mst_table_count(t, (uint64_t)set->resolved.global_batch);
    mst_table_text(t, "train seconds");
    mst_table_real(t, status->train_seconds, 3);
    mst_table_text(t, "eval seconds");
    mst_table_real(t, status->eval_seconds, 3);
    mst_table_text(t, "save seconds");
    mst_table_real(t, status->save_seconds, 3);
    mst_table_text(t, "input wait seconds");
    mst_table_real(t, s->feed_wait_seconds, 3);
    mst_table_text(t, "rows per s");
    mst_table_count(t, (uint64_t)rows_per_s(s));
    mst_table_text(t, "train loss");
    mst_table_real(t, status->train_loss, 5);
    add_result(t, "valid", &s->valid);
    if (isfinite(s->best_valid_loss)) {
        mst_table_text(t, "best valid loss");
        mst_table_real(t, s->best_valid_loss, 5);
        mst_table_text(t, "best step");
        mst_table_count(t, s->best_step);
    }
    add_result(t, "test", &s->test);
    mst_table_text(t, "peak resident bytes");
    mst_table_bytes(t, peak_resident_bytes());
    mst_table_text(t, "run");
    mst_table_text(t, s->run);
    mst_table_text(t, "checkpoint");
    mst_table_text(t, s->checkpoint[0] ? s->checkpoint : NULL);
    mst_status st;
    if (set->output.json) {
        json_t *facts = mst_table_json_facts(t);
        if (workers != NULL)
            json_object_set(facts, "workers", workers);
        st = mst_cli_print_json(facts);
    } else {
        st = mst_table_print(t, NULL, false);
    }
    mst_table_destroy(t);
    return st == MST_OK && workers != NULL && !set->output.json ? print_workers(workers) : st;
}

/* A value as YAML; NULL when there is none. Real numbers have as many digits as they need. The caller frees.
 */
static char *value_text(const json_t *value)
{
    char *text = NULL;
    if (json_is_null(value))
        return NULL;
    for (size_t digits = 6; digits <= 17; digits++) {
        free(text); /* jansson's allocation */
        text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(digits));
        if (text == NULL || !json_is_real(value) || strtod(text, NULL) == json_real_value(value))
            break;
    }
    return text;
}

/* The options as a file that --config takes: those that were given, and as comments those that were not. */
static void print_options(const settings *s, const json_t *options)
{
    const char *title, *name;
    json_t *group, *value;
    json_object_foreach((json_t *)options, title, group)
    {
        if (strcmp(title, "output") == 0)
            continue;
        printf("# %s\n", title);
        json_object_foreach(group, name, value)
        {
            char *text = value_text(value);
            if (text != NULL)
                printf("%s%s: %s\n", mst_options_is_set(s->groups, N_GROUPS, name) ? "" : "# ", name, text);
            free(text); /* jansson's allocation */
        }
    }
}

static mst_status print_plan(const json_t *plan)
{
    static const mst_column columns[] = {{"name", false}, {"value", true}};
    static const char *const counts[] = {"parameters", "epoch_rows", "batch_rows", "batch_entries",
                                         "batch_keys"};
    static const char *const sizes[] = {"weights_bytes", "optimizer_bytes", "batch_row_bytes",
                                        "batch_weight_bytes"};
    char name[64]; /* a comment, as the options above it are a file for --config */
    mst_table *t;
    TRY(mst_table_new(columns, 2, &t));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        snprintf(name, sizeof name, "# %s", counts[i]);
        mst_table_text(t, name);
        mst_table_count(t, (uint64_t)json_integer_value(json_object_get(plan, counts[i])));
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(name, sizeof name, "# %s", sizes[i]);
        mst_table_text(t, name);
        mst_table_bytes(t, (uint64_t)json_integer_value(json_object_get(plan, sizes[i])));
    }
    mst_status st = mst_table_print(t, NULL, false);
    mst_table_destroy(t);
    return st;
}

/* What the run would do and cost: options, memory, and what one step reads and writes. */
static mst_status dry_run(const settings *s, mst_trainer *trainer, json_t *options)
{
    json_t *plan;
    TRY(mst_trainer_plan(trainer, &plan));
    if (s->output.json)
        return mst_cli_print_json(json_pack("{s:O, s:o}", "options", options, "plan", plan));
    print_options(s, options);
    putchar('\n');
    mst_status st = print_plan(plan);
    json_decref(plan);
    return st;
}

/* The summary; after an interrupt, how to go on. */
static mst_status conclude(const settings *s, const mst_train_summary *summary, json_t *workers)
{
    mst_bar_end(NULL);
    TRY(print_summary(s, summary, workers));
    if (summary->end != MST_END_STOPPED)
        return MST_OK;
    const char *who = mst_signals_name() != NULL ? mst_signals_name() : "a worker";
    if (!s->train.save)
        return mst_fail(MST_ESTOPPED, "stopped by %s at step %llu; nothing was saved (--no-save)", who,
                        (unsigned long long)summary->status.step);
    return mst_fail(MST_ESTOPPED, "stopped by %s at step %llu; continue with: muster train --run %s --resume",
                    who, (unsigned long long)summary->status.step, summary->run);
}

static mst_status train(settings *s, mst_trainer *trainer, const mst_observer *observer)
{
    mst_train_summary summary;
    TRY(mst_trainer_run(trainer, observer, &summary));
    return conclude(s, &summary, NULL);
}

/* ---- clusters ---- */

/* Whether processes of one job may differ in an option. */
static bool may_differ(const char *name)
{
    static const char *const names[] = {
        "run",     "resume",     "overwrite",    "init-from",     "save",         "checkpoint-every",
        "keep",    "isa",        "prefetch",     "cache",         "cache-folder", "threads",
        "test",    "eval-every", "epochs",       "steps",         "rows",         "seconds",
        "until",   "patience",   "eval-rows",    "eval-batch",    "valid",        "servers",
        "workers", "strategy",   "peer-timeout", "start-timeout", "stall-timeout"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* What all processes must agree on: how rows are ordered, the model, the optimizer, the strategy. */
static json_t *shared_options(const json_t *options)
{
    static const char *const titles[] = {"training", "model", "optimizer", "strategy"};
    json_t *same = json_object();
    for (size_t i = 0; same != NULL && i < sizeof titles / sizeof *titles; i++) {
        const char *name;
        json_t *value;
        json_object_foreach(json_object_get(options, titles[i]), name, value)
        {
            if (!may_differ(name))
                json_object_set(same, name, value);
        }
    }
    return same;
}

typedef struct adoption {
    settings *settings;
    json_t *same; /* what the coordinator compares: follows the options */
} adoption;

/* A worker of a resumed run: its options come from the coordinator, which has the run directory. */
static mst_status adopt_job(void *arg, const json_t *job)
{
    adoption *a = arg;
    settings *s = a->settings;
    if (!json_is_true(json_object_get(job, "resume")) || !s->train.resume)
        return s->files.n > 0 ? MST_OK : mst_fail(MST_EUSAGE, "no training data given: muster train FILE...");
    json_t *copy = json_deep_copy(job);
    mst_status st = adopt_manifest(s, copy, "what the coordinator sent");
    json_decref(copy);
    TRY(st);
    json_t *options = mst_options_json(s->groups, N_GROUPS), *same = shared_options(options);
    if (options == NULL || same == NULL || json_object_update(a->same, same) != 0)
        st = mst_fail(MST_ENOMEM, "no memory to resume");
    json_decref(options);
    json_decref(same);
    return st;
}

static mst_status run_job(settings *s, const mst_cluster *cluster, const mst_train_config *config,
                          const mst_observer *observer)
{
    mst_job_summary summary = {0};
    mst_worker_counts counts = {0};
    adoption adopted = {s, shared_options(config->options)};
    mst_job_config job = {
        .train = config,
        .cluster = cluster,
        .index = (uint32_t)s->process.index,
        .engine = &mst_net_tcp,
        .same = adopted.same,
        .adopt = adopt_job,
        .adopt_arg = &adopted,
    };
    mst_status st;
    if (job.same == NULL)
        st = mst_fail(MST_ENOMEM, "no memory for the options");
    else if (cluster->source == NULL)
        st = mst_job_embedded(&job, observer, &summary);
    else if (s->process.role == 1)
        st = mst_job_server(&job, observer, &summary);
    else
        st = mst_job_worker(&job, observer, &counts, &summary);
    json_decref(job.same);
    if (st == MST_OK && summary.coordinated)
        st = conclude(s, &summary.train, summary.workers);
    json_decref(summary.workers);
    return st;
}

/* Finds the cluster this process belongs to, if any (source NULL: none). */
static mst_status find_cluster(settings *s, mst_cluster *out)
{
    bool named = s->process.role != 0 || s->process.cluster != NULL;
    if (!named && s->strategy.strategy == MST_STRATEGY_LOCAL &&
        mst_options_is_set(s->groups, N_GROUPS, "strategy"))
        return MST_OK; /* --strategy local means it */
    mst_cluster_env env = mst_cluster_env_read();
    TRY(mst_cluster_find(s->process.cluster, &env, out));
    if (out->source == NULL)
        return s->process.role == 0
                   ? MST_OK
                   : mst_fail(MST_EUSAGE, "--role needs --cluster FILE, or MUSTER_CLUSTER or TF_CONFIG");
    if (s->process.role == 0 && !out->has_task)
        return mst_fail(MST_EUSAGE, "%s names a cluster: say which process this is with --role and --index",
                        out->source);
    if (s->process.role == 0) {
        s->process.role = out->role == MST_ROLE_SERVER ? 1 : 2;
        s->process.index = out->index;
    }
    s->strategy.strategy = MST_STRATEGY_PS;
    s->strategy.servers = out->n_servers;
    s->strategy.workers = out->n_workers;
    return mst_cluster_check_index(out, s->process.role == 1 ? MST_ROLE_SERVER : MST_ROLE_WORKER,
                                   (uint32_t)s->process.index);
}

/* Whether this process opens the run directory. */
static bool keeps_run(const settings *s)
{
    return s->process.role == 0 || (s->process.role == 1 && s->process.index == 0);
}

static mst_status check_usage(settings *s)
{
    if (s->files.n == 0 && s->process.role == 0)
        return mst_fail(MST_EUSAGE, "no training data given: muster train FILE... (\"-\" is standard input)");
    if (!s->output.dry_run && !s->train.resume && !s->train.overwrite && s->train.run != NULL &&
        keeps_run(s) && mst_path_exists(s->train.run)) /* before the data is read */
        return mst_fail(
            MST_EEXIST,
            "%s: there already: choose another name, or give --resume to continue it or --overwrite "
            "to replace it",
            s->train.run);
    s->resolved = s->strategy;
    return mst_strategy_resolve(&s->resolved);
}

static mst_status run(int argc, char **argv)
{
    settings s;
    mst_trainer *trainer = NULL;
    json_t *options = NULL;
    mst_cluster cluster = {0};
    bool helped;
    mst_status st;
    settings_init(&s);
    TRY_OUT(st, mst_cli_parse(&mst_cmd_train, s.groups, N_GROUPS, argc, argv, &s.files, &helped));
    if (helped)
        goto out;
    TRY_OUT(st, find_cluster(&s, &cluster));
    if (s.train.resume && s.train.run != NULL && keeps_run(&s))
        TRY_OUT(st, adopt_run(&s));
    TRY_OUT(st, check_usage(&s));
    options = mst_options_json(s.groups, N_GROUPS);
    if (options == NULL) {
        st = mst_fail(MST_ENOMEM, "no memory for the options");
        goto out;
    }
    mst_signals_install();
    mst_train_config config = {
        .files = &s.files,
        .train = &s.train,
        .data = &s.data,
        .model = &s.model,
        .optim = &s.optim,
        .strategy = &s.strategy,
        .options = options,
        .data_options = json_object_get(options, s.groups[GROUP_DATA].title),
        .epochs_given = mst_options_is_set(s.groups, N_GROUPS, "epochs"),
        .stop = mst_signals_stop(),
        .save_wanted = mst_signals_take_checkpoint,
    };
    view v = {.quiet = s.output.quiet};
    mst_observer observer = {.arg = &v, .progress = on_progress, .evaluated = on_evaluated};
    bool local = s.strategy.strategy == MST_STRATEGY_LOCAL;
    mst_strategy_options as_local = s.strategy;
    if (local || s.output.dry_run) { /* what a step of one worker costs is the same in a cluster */
        as_local.strategy = MST_STRATEGY_LOCAL;
        as_local.mode = as_local.mode == MST_MODE_SSP ? MST_MODE_ASYNC : as_local.mode;
        config.strategy = &as_local;
        TRY_OUT(st, mst_trainer_new(&config, &trainer));
    }
    mst_bar_start(&v.bar, "training", "rows", 0);
    if (s.output.dry_run)
        st = dry_run(&s, trainer, options);
    else
        st = local ? train(&s, trainer, &observer) : run_job(&s, &cluster, &config, &observer);
    mst_bar_end(&v.bar);
out:
    mst_trainer_destroy(trainer);
    mst_cluster_fini(&cluster);
    json_decref(options);
    settings_fini(&s);
    return st;
}

const mst_command mst_cmd_train = {
    .name = "train",
    .summary = "train a model",
    .run = run,
    .usage = "train FILE... [options]",
    .details = "Trains on files of any format that `muster list` names (one, many, globs; gzip and zstd too; "
               "\"-\" is\n"
               "standard input) and leaves a run directory with a manifest, metrics.csv and checkpoints.\n",
    .tables = tables,
};
