/* `muster train`: from options to a trained model, a run directory and a summary. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/figure.h"
#include "base/file.h"
#include "base/float_mode.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/cli.h"
#include "cli/rank_exit.h"
#include "cli/result_table.h"
#include "cli/table.h"
#include "cli/train_view.h"
#include "job/job.h"
#include "launch/parent_pipe.h"
#include "mpi/mpi.h"
#include "options/output_options.h"
#include "run/run_dir.h"
#include "train/settings.h"
#include "train/training.h"

/* All options of the command. */
typedef struct settings {
    mst_settings train;
    mst_output_options output;
} settings;

static void train_begin(mst_call *call)
{
    settings *s = call->options;
    mst_option_group own = {.title = "output", .table = mst_output_option_table, .base = &s->output};
    mst_settings_begin(&s->train, &own);
    call->groups = s->train.groups;
    call->n_groups = s->train.n_groups;
}

static void train_end(mst_call *call)
{
    settings *s = call->options;
    mst_settings_fini(&s->train);
}

/* ---- what is shown at the end ---- */

static uint64_t train_peak_resident_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

static double train_rows_per_s(const mst_train_summary *s)
{
    return s->status.train_seconds > 0.0 ? (double)s->status.rows / s->status.train_seconds : 0.0;
}

/* Counters of each worker over all pieces of the run. */
static mst_status train_print_workers(const json_t *workers, const mst_train_summary *s)
{
    static const mst_column columns[] = {{"worker", false}, {"steps", true},     {"rows", true},
                                         {"dropped", true}, {"compute s", true}, {"wait s", true},
                                         {"input s", true}, {"sent", true},      {"received", true}};
    mst_table *t;
    char step[32];
    size_t i;
    json_t *w;
    TRY(mst_table_new(columns, 9, &t));
    json_array_foreach((json_t *)workers, i, w)
    {
        char name[192];
        const char *state = json_string_value(json_object_get(w, "state"));
        bool lost = state != NULL && strcmp(state, "lost") == 0,
             earlier = state != NULL && strcmp(state, "earlier") == 0;
        snprintf(name, sizeof name, "%s%s", json_string_value(json_object_get(w, "name")),
                 lost      ? ", lost"
                 : earlier ? ", earlier"
                           : "");
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
    if (s->workers_since > 0)
        printf("since step %s:\n", mst_figure_grouped(s->workers_since, step));
    mst_status st = mst_table_print(t, NULL, true);
    mst_table_destroy(t);
    return st;
}

/* The run's verdict.json, if it has one and this process trained. New reference, or NULL. */
static json_t *train_read_verdict(const settings *set, const mst_train_summary *s)
{
    char path[640];
    snprintf(path, sizeof path, "%s/verdict.json", s->run);
    return set->train.train.observe && s->steps_here > 0 ? json_load_file(path, 0, NULL) : NULL;
}

/* The bottleneck, or why it is not known, and the change with the largest gain. */
static void train_print_verdict(const json_t *verdict)
{
    const json_t *best = json_array_get(json_object_get(verdict, "advice"), 0);
    const char *sentence = json_string_value(json_object_get(verdict, "sentence"));
    const char *change = json_string_value(json_object_get(best, "change"));
    bool more = change != NULL && strstr(change, "--hosts") == NULL && strchr(change, ',') == NULL &&
                (strstr(change, "--workers") != NULL || strstr(change, "--servers") != NULL);
    double gain = json_number_value(json_object_get(best, "predicted_gain"));
    if (sentence != NULL && sentence[0] != '\0')
        printf("\n%s\n", sentence);
    if (sentence != NULL && change != NULL)
        printf("What would help most: %s%s: about %.*f times the rows per second, evaluations and saving "
               "included.\n",
               change, more ? ", on cores of their own" : "",
               gain < 2    ? 2
               : gain < 10 ? 1
                           : 0,
               gain);
}

/* Seconds that training waited for rows: in this process, or the mean over the workers. */
static double train_input_wait(const mst_train_summary *s, const json_t *workers)
{
    double sum = 0;
    const json_t *worker;
    size_t i, n = 0;
    json_array_foreach(workers, i, worker)
    {
        const json_t *seconds = json_object_get(worker, "input_seconds");
        sum += json_number_value(seconds);
        n += json_is_number(seconds);
    }
    return n > 0 ? sum / (double)n : s->feed_wait_seconds;
}

/* Lost processes, and the work and time that recoveries took; nothing for a run without losses. */
static void train_add_losses(mst_table *t, const mst_run_losses *l)
{
    if (l->processes > 0)
        mst_table_count(mst_fact(t, "processes lost"), l->processes);
    if (l->n == 0)
        return;
    mst_table_count(mst_fact(t, "recoveries"), l->n);
    mst_table_real(mst_fact(t, "recovery seconds"), l->recovery_seconds, 3);
    mst_table_count(mst_fact(t, "steps trained again"), l->steps);
    mst_table_count(mst_fact(t, "rows trained again"), l->rows);
    mst_table_real(mst_fact(t, "train seconds lost"), l->train_seconds, 3);
    if (l->share_steps > 0) {
        mst_table_count(mst_fact(t, "steps lost by servers"), l->share_steps);
        mst_table_count(mst_fact(t, "rows lost by servers"), l->share_rows);
    }
}

static mst_status train_print_summary(const settings *set, const mst_train_summary *s, json_t *workers)
{
    mst_table *t;
    const mst_train_status *status = &s->status;
    TRY(mst_facts_new(true, &t));
    mst_table_text(mst_fact(t, "end"), mst_end_text(s->end));
    mst_table_count(mst_fact(t, "steps"), status->step);
    mst_table_count(mst_fact(t, "rows"), status->rows);
    if (s->skipped > 0)
        mst_table_count(mst_fact(t, "skipped rows"), s->skipped);
    mst_table_count(mst_fact(t, "batch"), (uint64_t)set->train.resolved.batch);
    mst_table_count(mst_fact(t, "global batch"), (uint64_t)set->train.resolved.global_batch);
    mst_table_real(mst_fact(t, "train seconds"), status->train_seconds, 3);
    mst_table_real(mst_fact(t, "eval seconds"), status->eval_seconds, 3);
    mst_table_real(mst_fact(t, "save seconds"), status->save_seconds, 3);
    mst_table_real(mst_fact(t, "input wait seconds"), train_input_wait(s, workers), 3);
    mst_table_count(mst_fact(t, "rows per s"), (uint64_t)train_rows_per_s(s));
    train_add_losses(t, &s->losses);
    mst_table_real(mst_fact(t, "train loss"), status->train_loss, 5);
    if (isfinite(status->progressive_loss))
        mst_table_real(mst_fact(t, "progressive loss"), status->progressive_loss, 5);
    mst_table_real(mst_fact(t, "train accuracy"), status->train_accuracy, 5);
    mst_facts_add_result(t, "valid", &s->valid, 5);
    if (isfinite(s->best_valid_loss)) {
        mst_table_real(mst_fact(t, "best valid loss"), s->best_valid_loss, 5);
        mst_table_count(mst_fact(t, "best step"), s->best_step);
    }
    mst_facts_add_result(t, "test", &s->test, 5);
    mst_table_bytes(mst_fact(t, "peak resident bytes"), train_peak_resident_bytes());
    mst_table_text(mst_fact(t, "run"), s->run);
    if (s->checkpoint[0] != '\0')
        mst_table_text(mst_fact(t, "checkpoint"), s->checkpoint);
    else
        mst_fact_missing(t, "checkpoint", "none");
    if (s->best_checkpoint[0] != '\0')
        mst_table_text(mst_fact(t, "best checkpoint"), s->best_checkpoint);
    if (s->missing[0] != '\0')
        mst_table_text(mst_fact(t, "missing"), s->missing);
    mst_status st;
    json_t *verdict = train_read_verdict(set, s);
    if (set->output.json) {
        json_t *facts = mst_table_json_facts(t);
        if (workers != NULL)
            json_object_set(facts, "workers", workers);
        if (json_is_true(json_object_get(verdict, "known")))
            json_object_set(facts, "verdict", verdict);
        st = mst_cli_print_json(facts);
    } else {
        st = mst_table_print(t, NULL, false);
        if (st == MST_OK && s->best_checkpoint[0] != '\0')
            printf("\neval and predict use the best checkpoint, --last uses the newest.\n");
        if (st == MST_OK && workers != NULL)
            st = train_print_workers(workers, s);
        if (st == MST_OK)
            train_print_verdict(verdict);
    }
    mst_table_destroy(t);
    json_decref(verdict);
    return st;
}

/* A value as YAML; NULL when there is none. Real numbers have as many digits as they need. The caller frees.
 */
static char *train_value_text(const json_t *value)
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
static void train_print_options(const settings *s, const json_t *options)
{
    const char *title, *name;
    json_t *group, *value, *files = json_array();
    for (size_t i = 0; files != NULL && i < s->train.files.n; i++)
        json_array_append_new(files, json_string(s->train.files.items[i]));
    char *list = files != NULL ? json_dumps(files, JSON_COMPACT) : NULL;
    if (list != NULL)
        printf("files: %s\n", list);
    free(list); /* jansson's allocation */
    json_decref(files);
    json_object_foreach((json_t *)options, title, group)
    {
        if (strcmp(title, "output") == 0)
            continue;
        printf("# %s\n", title);
        json_object_foreach(group, name, value)
        {
            char *text = strcmp(name, "files") != 0 ? train_value_text(value) : NULL;
            if (text != NULL)
                printf("%s%s: %s\n", mst_options_is_set(s->train.groups, s->train.n_groups, name) ? "" : "# ",
                       name, text);
            free(text); /* jansson's allocation */
        }
    }
}

static mst_status train_print_plan(const json_t *plan)
{
    static const char *const counts[] = {"parameters", "epoch_rows", "batch_rows", "batch_entries",
                                         "batch_keys"};
    static const char *const sizes[] = {"weights_bytes",      "optimizer_bytes", "batch_row_bytes",
                                        "batch_weight_bytes", "process_bytes",   "server_bytes",
                                        "worker_bytes"};
    char name[64]; /* a comment, because the options above are a file for --config */
    mst_table *t;
    TRY(mst_facts_new(true, &t));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        snprintf(name, sizeof name, "# %s", counts[i]);
        mst_table_count(mst_fact(t, name), (uint64_t)json_integer_value(json_object_get(plan, counts[i])));
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (json_object_get(plan, sizes[i]) == NULL)
            continue;
        snprintf(name, sizeof name, "# %s", sizes[i]);
        mst_table_bytes(mst_fact(t, name), (uint64_t)json_integer_value(json_object_get(plan, sizes[i])));
    }
    mst_status st = mst_table_print(t, NULL, false);
    mst_table_destroy(t);
    return st;
}

/* Options, memory, and bytes that one step reads and writes. */
static mst_status train_dry_run(const settings *s, mst_training *training)
{
    json_t *plan, *options;
    TRY(mst_training_plan(training, &plan));
    mst_status st = (options = mst_training_options(training)) != NULL ? MST_OK : mst_fail_memory();
    if (st == MST_OK && s->output.json) {
        st = mst_cli_print_json(json_pack("{s:O, s:O}", "options", options, "plan", plan));
    } else if (st == MST_OK) {
        train_print_options(s, options);
        putchar('\n');
        st = train_print_plan(plan);
    }
    json_decref(options);
    json_decref(plan);
    return st;
}

/* A resumed run that had reached its limits already: a warning, or with --fail-if-done a failure. */
static mst_status train_nothing_trained(const settings *s, const mst_train_summary *summary)
{
    const mst_train_options *o = &s->train.train;
    char text[MST_ERROR_MAX / 2] = "";
    const char *file = s->train.files.n > 0 ? s->train.files.items[0] : "the data";
    switch (summary->end) {
    case MST_END_EPOCHS:
        snprintf(text, sizeof text,
                 "the run has done all of --epochs %lld on %s; give new files, or a larger --epochs to "
                 "repeat these",
                 (long long)o->epochs, file);
        break;
    case MST_END_STEPS:
        snprintf(text, sizeof text,
                 "the run has done all of --steps %lld; give a larger --steps, or new files",
                 (long long)o->steps);
        break;
    case MST_END_ROWS:
        snprintf(text, sizeof text, "the run has done all of --rows %lld; give a larger --rows, or new files",
                 (long long)o->rows);
        break;
    case MST_END_SECONDS:
        snprintf(text, sizeof text,
                 "the run has trained for all of --seconds %g; give a larger --seconds, or new files",
                 o->seconds);
        break;
    case MST_END_PATIENCE:
        snprintf(text, sizeof text,
                 "the loss on --valid did not improve in %lld evaluations (--patience); give a larger "
                 "--patience, or new "
                 "files",
                 (long long)o->patience);
        break;
    case MST_END_UNTIL:
        snprintf(text, sizeof text, "--until %s is met; give another condition, or --until never", o->until);
        break;
    case MST_END_STOPPED:
    case MST_END_NO_WORKERS: /* the job has reported it */
        return MST_OK;
    }
    if (o->fail_if_done)
        return mst_fail(MST_EDONE, "nothing was trained: %s", text);
    mst_warn("nothing was trained: %s", text);
    return MST_OK;
}

/* Prints the summary and, after an interrupt, how to continue. */
static mst_status train_conclude(const settings *s, const mst_train_summary *summary, json_t *workers,
                                 const char *stopped_by)
{
    mst_cli_unseen("valid", summary->valid.unseen, summary->valid.rows);
    mst_cli_unseen("test", summary->test.unseen, summary->test.rows);
    TRY(train_print_summary(s, summary, workers));
    if (summary->end != MST_END_STOPPED)
        return summary->steps_here > 0 ? MST_OK : train_nothing_trained(s, summary);
    char command[MST_ERROR_MAX / 2], step[32], lead[64] = "stopped"; /* main adds this process's signal */
    if (mst_signals_name() == NULL)
        snprintf(lead, sizeof lead, "stopped by a signal to %s", stopped_by);
    if (mst_signals_name() == NULL && workers != NULL && mst_cli_launched())
        mst_cli_note(MST_PARENT_ORIGIN "%s", stopped_by);
    mst_figure_grouped(summary->status.step, step);
    if (!s->train.train.save)
        return mst_fail_lead(MST_ESTOPPED, lead, " at step %s; nothing was saved (--no-save)", step);
    mst_mpi_launch mpi;
    mst_mpi_launched(&mpi);
    bool peers = !mst_settings_local(&s->train) && (s->train.cluster.source != NULL || mpi.launched);
    peers = peers && getenv(MST_RUN_LAUNCH_ENV) == NULL;
    mst_run_continue_advice(summary->run, peers, command, sizeof command);
    return mst_fail_lead(MST_ESTOPPED, lead, " at step %s; %s%s", step, peers ? "to continue, " : "",
                         command);
}

static mst_status train_run_local(settings *s, mst_training *training, mst_train_view *view)
{
    mst_train_summary summary;
    mst_train_callbacks callbacks = mst_train_view_callbacks(view);
    mst_status st = mst_training_run(training, &callbacks, &summary);
    mst_train_view_end(view);
    TRY(st);
    return train_conclude(s, &summary, NULL, "this process");
}

static mst_status train_run_job(settings *s, const mst_train_config *config, mst_train_view *view)
{
    mst_job_summary summary;
    mst_train_callbacks callbacks = mst_train_view_callbacks(view);
    const mst_train_options *o = &s->train.train;
    mst_job_lost lost = {.call = mst_rank_exit_lost,
                         .arg = !o->save         ? NULL
                                : o->run != NULL ? o->run
                                                 : "FOLDER"};
    mst_status st = mst_job_run(&s->train, config, &lost, &callbacks, &summary);
    mst_train_view_end(view);
    if (st == MST_OK && summary.coordinated)
        st = train_conclude(s, &summary.train, summary.workers,
                            summary.stopped_by[0] ? summary.stopped_by : "a worker");
    else if (st == MST_OK && mst_signals_name() != NULL && !s->train.strategy.elastic) /* it has left */
        st = mst_fail_lead(MST_ESTOPPED, "stopped", "; server 0 has ended the job");
    json_decref(summary.workers);
    return st;
}

static bool train_take_requests(void *arg)
{
    (void)arg;
    return mst_signals_take_checkpoint();
}

static mst_status train_run(mst_call *call)
{
    settings *s = call->options;
    mst_settings *set = &s->train;
    mst_training *training = NULL;
    mst_status st;
    mst_float_flush();
    set->files = call->words;
    call->words = (mst_text_list){0};
    TRY_OUT(st, mst_settings_settle(set, s->output.dry_run));
    mst_signals_install();
    mst_rank_exit_prepare((uint32_t)(set->strategy.start_timeout * 1000));
    mst_train_config config = mst_settings_config(set);
    config.stop = mst_signals_stop();
    config.job_ended = mst_parent_pipe_job_ended();
    config.no_workers = mst_parent_pipe_no_workers();
    config.take_requests = train_take_requests;
    bool local = mst_settings_local(set);
    config.plan = s->output.dry_run;
    if (local || s->output.dry_run)
        TRY_OUT(st, mst_training_new(&config, &training));
    if (s->output.dry_run) {
        st = train_dry_run(s, training);
    } else {
        mst_train_view view;
        bool ranks = set->strategy.strategy == MST_STRATEGY_ALLREDUCE;
        mst_train_view_begin(&view, s->output.quiet, ranks ? "the other ranks" : NULL);
        st = local ? train_run_local(s, training, &view) : train_run_job(s, &config, &view);
    }
out:
    mst_training_destroy(training);
    return st;
}

const mst_command mst_cmd_train = {
    .name = "train",
    .summary = "train a model",
    .run = train_run,
    .usage = "train FILE... [options]",
    .details = "Trains on files in any format that `muster list` names. FILE may be one file, several, a "
               "pattern, a folder, or \"-\" for standard input; gzip and zstd are decompressed. The run "
               "directory contains the manifest, metrics.csv and checkpoints.\n",
    .begin = train_begin,
    .end = train_end,
    .options_size = sizeof(settings),
    .examples =
        "muster train clicks.cache --test clicks-test.cache --optimizer adagrad --lr 0.05 --threads 0\n"
        "muster train clicks.cache --strategy ps --workers 4 --mode async --run runs/async\n"
        "muster train clicks.cache --run runs/async --resume --epochs 2\n"
        "mpirun -n 4 muster train clicks.cache --strategy allreduce\n",
};
