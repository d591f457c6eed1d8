/* A short job for measurements; contract in trial_job.h. */
#include "launch/trial_job.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/parent.h"
#include "launch/launch_remote.h"
#include "launch/supervisor.h"
#include "options/option_tables.h"

#define GRACE_MS 5000

typedef struct trial {
    mst_supervisor *supervisor;
    uv_timer_t limit;
    bool late;
} trial;

static void trial_stop(trial *t)
{
    mst_child_stop(mst_supervisor_child(t->supervisor, 0), SIGTERM, GRACE_MS);
}

static void trial_on_line(void *arg, mst_child *child, bool is_error, const char *text, size_t n)
{
    (void)arg, (void)child, (void)is_error, (void)text, (void)n;
}

static void trial_on_ended(void *arg, mst_child *child)
{
    (void)arg, (void)child;
}

static void trial_on_stop(void *arg, int number)
{
    (void)number;
    trial_stop(arg);
}

static void trial_on_limit(uv_timer_t *timer)
{
    trial *t = timer->data;
    t->late = true;
    trial_stop(t);
}

/* Options of the words that describe the job, its end, its evaluation or its files, and not the costs of a
 * step. */
static bool trial_drops(const char *name)
{
    static const char *const names[] = {"strategy",
                                        "servers",
                                        "workers",
                                        "mode",
                                        "quorum",
                                        "staleness",
                                        "pipeline",
                                        "replicas",
                                        "elastic",
                                        "batch",
                                        "shard",
                                        "lr-scale",
                                        "recover",
                                        "global-batch",
                                        "epochs",
                                        "steps",
                                        "rows",
                                        "seconds",
                                        "until",
                                        "patience",
                                        "steps-per-epoch",
                                        "test",
                                        "valid",
                                        "eval-every",
                                        "eval-rows",
                                        "run",
                                        "group",
                                        "resume",
                                        "save",
                                        "keep",
                                        "overwrite",
                                        "init-from",
                                        "observe",
                                        "trace",
                                        "trace-steps",
                                        "tls",
                                        "resume-data",
                                        "resources-every",
                                        "checkpoint-every",
                                        "fail-if-done"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Adds the words without the dropped options and their values. */
static mst_status trial_copy(const mst_text_list *words, size_t end, mst_text_list *out)
{
    for (size_t i = 0; i < end; i++) {
        const char *word = words->items[i];
        char name[64] = "";
        bool option = strncmp(word, "--", 2) == 0, negated = option && strncmp(word, "--no-", 5) == 0;
        if (option)
            snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
        const mst_option *row = option ? mst_train_option(name) : NULL;
        if (row == NULL && negated)
            row = mst_train_option(name + 3);
        bool drops = row != NULL && trial_drops(row->name);
        bool value = row != NULL && row->type != MST_OPTION_FLAG && strchr(word, '=') == NULL && i + 1 < end;
        if (!drops)
            TRY(mst_text_list_add(out, word));
        i += value;
        if (value && !drops)
            TRY(mst_text_list_add(out, words->items[i]));
    }
    return MST_OK;
}

/* The command line of the job. The options of the trial stand before a "--" of the words. */
static mst_status trial_words(const mst_text_list *words, int64_t batch, double seconds, const char *run,
                              const char *program, mst_text_list *out)
{
    static const char *const head[] = {"launch", "--servers=1", "--workers=1", "--logs=none", "--"};
    static const char *const fixed[] = {"--mode=sync", "--epochs=0", "--no-save", "--resources-every=0.25"};
    char value[3][4200];
    size_t end = 0;
    bool tls = true;
    snprintf(value[0], sizeof value[0], "--batch=%lld", (long long)batch);
    snprintf(value[1], sizeof value[1], "--seconds=%.3f", seconds);
    snprintf(value[2], sizeof value[2], "--run=%s", run);
    TRY(mst_text_list_add(out, program));
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        TRY(mst_text_list_add(out, head[i]));
    for (; end < words->n && strcmp(words->items[end], "--") != 0; end++)
        tls = tls && strcmp(words->items[end], "--no-tls") != 0;
    TRY(trial_copy(words, end, out));
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        TRY(mst_text_list_add(out, fixed[i]));
    TRY(mst_text_list_add(out, tls ? "--tls" : "--no-tls"));
    for (size_t i = 0; i < sizeof value / sizeof *value; i++)
        TRY(mst_text_list_add(out, value[i]));
    for (size_t i = end; i < words->n; i++)
        TRY(mst_text_list_add(out, words->items[i]));
    return MST_OK;
}

mst_status mst_trial_job(const mst_text_list *words, int64_t batch, double seconds, const char *run)
{
    static const mst_supervisor_events events = {
        .on_line = trial_on_line, .on_ended = trial_on_ended, .on_stop = trial_on_stop};
    trial t = {0};
    char program[4096];
    const char **argv = NULL;
    mst_text_list all = {0};
    mst_status st;
    TRY_OUT(st, mst_own_program(program, sizeof program));
    TRY_OUT(st, trial_words(words, batch, seconds, run, program, &all));
    argv = mst_calloc(all.n + 1, sizeof *argv);
    if (argv == NULL || setenv(MST_PARENT_ENV, "5", 1) != 0)
        TRY_OUT(st, mst_fail_memory());
    for (size_t i = 0; i < all.n; i++)
        argv[i] = all.items[i];
    TRY_OUT(st, mst_supervisor_new(1, &events, &t, &t.supervisor));
    const mst_child *child = mst_supervisor_child(t.supervisor, 0);
    mst_supervisor_timer(t.supervisor, &t.limit, &t);
    uv_timer_start(&t.limit, trial_on_limit, MST_TRIAL_LIMIT_S * 1000, 0);
    TRY_OUT(st, mst_child_start(mst_supervisor_child(t.supervisor, 0), &(mst_process_start){.argv = argv}));
    mst_supervisor_run(t.supervisor);
    if (mst_supervisor_stopped_by(t.supervisor) != 0)
        st = mst_fail_lead(MST_ESTOPPED, "stopped", " while measuring the costs of a step");
    else if (t.late)
        st = mst_fail(MST_EIO, "the trial with --batch %lld has not ended after %d s", (long long)batch,
                      MST_TRIAL_LIMIT_S);
    else if (child->code != 0 || child->signal != 0)
        st = mst_fail(MST_EIO, "the trial with --batch %lld failed: %s", (long long)batch,
                      child->error[0] != '\0' ? child->error : child->last_line);
out:
    mst_supervisor_destroy(t.supervisor);
    unsetenv(MST_PARENT_ENV);
    mst_text_list_fini(&all);
    mst_free(argv);
    return st;
}
