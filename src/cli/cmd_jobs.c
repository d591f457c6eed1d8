/* `muster jobs` and `muster stop`: the jobs that `muster launch` has started on this host. */
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "launch/job_state.h"

#define TICK_MS 50
#define MORE_S  15 /* that launch takes beyond the grace of its processes */

static const char *jobs_text(const json_t *facts, const char *key)
{
    return json_string_value(json_object_get(facts, key));
}

/* ---- jobs ---- */

static mst_status jobs_run(mst_call *call)
{
    static const mst_column columns[] = {{"job", false},   {"state", false}, {"process", true},
                                         {"began", false}, {"ended", false}, {"command", false}};
    const bool *json = call->options;
    json_t *list, *facts;
    mst_table *table;
    size_t i;
    TRY(mst_job_state_list(&list));
    if (*json)
        return mst_cli_print_json(list);
    mst_status st = mst_table_new(columns, sizeof columns / sizeof *columns, &table);
    if (st == MST_OK) {
        json_array_foreach(list, i, facts)
        {
            char process[24];
            snprintf(process, sizeof process, "%lld",
                     (long long)json_integer_value(json_object_get(facts, "process")));
            mst_table_text(table, jobs_text(facts, "job"));
            mst_table_text(table, jobs_text(facts, "state"));
            mst_table_text(table, process);
            mst_table_text(table, jobs_text(facts, "began"));
            mst_table_text(table, jobs_text(facts, "ended"));
            mst_table_text(table, jobs_text(facts, "command"));
        }
        st = json_array_size(list) > 0 ? mst_table_print(table, NULL, true) : MST_OK;
        mst_table_destroy(table);
    }
    json_decref(list);
    return st;
}

static const mst_command_group jobs_groups[] = {{"Options", mst_cli_json_table, 0}, {.table = NULL}};

const mst_command mst_cmd_jobs = {
    .name = "jobs",
    .summary = "list the jobs that launch has started on this host",
    .run = jobs_run,
    .usage = "jobs [--json]",
    .details =
        "Lists the jobs of this user that run, and of the last week the detached jobs that have ended and "
        "the jobs that were lost. A job whose launching process was killed is lost: its processes have ended "
        "with it.\n",
    .groups = jobs_groups,
    .options_size = sizeof(bool),
    .no_words = true,
    .examples = "muster jobs\n",
};

/* ---- stop ---- */

typedef struct stop_options {
    bool kill;
} stop_options;

static const mst_option stop_table[] = {
    {.name = "kill",
     .type = MST_OPTION_FLAG,
     .offset = offsetof(stop_options, kill),
     .help = "Kill the processes at once, without a final checkpoint."},
    {.name = NULL},
};

static mst_status stop_job(const char *job, bool at_once)
{
    json_t *facts;
    TRY(mst_job_state_read(job, &facts));
    char state[32];
    snprintf(state, sizeof state, "%s", jobs_text(facts, "state"));
    pid_t process = (pid_t)json_integer_value(json_object_get(facts, "process"));
    uint64_t grace_s = (uint64_t)json_integer_value(json_object_get(facts, "grace"));
    json_decref(facts);
    if (strcmp(state, "running") != 0 || process <= 1)
        return mst_fail(MST_EUSAGE, "the job %s is not running (%s)", job, state);
    if (kill(process, SIGTERM) != 0)
        return mst_fail(MST_EIO, "process %d of the job %s cannot be signalled", (int)process, job);
    if (at_once) {
        poll(NULL, 0, TICK_MS); /* SIGTERM is the signal that the job reports; the second signal kills */
        kill(process, SIGINT);
    }
    uint64_t limit_s = (at_once ? 0 : 2 * grace_s) + MORE_S, began = mst_now_ns();
    while (mst_job_state_runs(job)) {
        if (mst_now_ns() - began > limit_s * MST_S)
            return mst_fail(MST_ETIMEOUT, "the job %s has not ended within %llu s; --kill ends it at once",
                            job, (unsigned long long)limit_s);
        poll(NULL, 0, TICK_MS);
    }
    mst_cli_note("the job %s has ended", job);
    return MST_OK;
}

static mst_status stop_run(mst_call *call)
{
    const stop_options *o = call->options;
    if (call->words.n == 0)
        return mst_fail(MST_EUSAGE, "stop: name the job; 'muster jobs' lists them");
    for (size_t i = 0; i < call->words.n; i++)
        TRY(stop_job(call->words.items[i], o->kill));
    return MST_OK;
}

static const mst_command_group stop_groups[] = {{"Options", stop_table, 0}, {.table = NULL}};

const mst_command mst_cmd_stop = {
    .name = "stop",
    .summary = "stop jobs that launch has started on this host",
    .run = stop_run,
    .usage = "stop JOB... [--kill]",
    .details =
        "The processes of the job save and end, as at SIGTERM to launch. Returns when they have ended.\n",
    .groups = stop_groups,
    .options_size = sizeof(stop_options),
    .examples = "muster stop nightly\n",
};
