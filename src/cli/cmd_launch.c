/* `muster launch`: starts the servers and workers of a job, on this host or on the hosts of a file, shows
 * their output, and ends when they have ended. This file has the options and their checks; src/launch has the
 * supervisor. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/strings.h"
#include "cli/cli.h"
#include "cli/job_output.h"
#include "cli/launch_attach.h"
#include "launch/core_pin.h"
#include "launch/job_entry.h"
#include "launch/job_state.h"
#include "launch/launch_job.h"
#include "launch/launch_mpi.h"
#include "launch/launch_plan.h"
#include "launch/launch_remote.h"
#include "launch/restarts.h"
#include "mpi/mpi.h"
#include "net/cluster.h"
#include "options/option_tables.h"
#include "run/run_dir.h"
#include "train/settings.h"

typedef struct launch_options {
    int64_t servers, workers, port, grace, start_timeout, ranks, max_restarts, add;
    char *hosts, *logs, *ssh, *job, *mpi_args, *attach;
    bool copy, mpi, detach, pin;
    int deploy, mpi_plugin;
} launch_options;

#define FIELD(name) .offset = offsetof(launch_options, name)
#define WITH_MPI    .option = "mpi", .values = "true"
#define WITHOUT_MPI .option = "mpi", .values = "false"
static const mst_option launch_table[] = {
    {.name = "servers",
     .type = MST_OPTION_INT,
     FIELD(servers),
     .fallback = "1",
     .min = 0,
     .max = MST_CLUSTER_MAX,
     .help = "Servers to start; 0: every worker also holds a share of the model.",
     .needs = {{WITHOUT_MPI}}},
    {.name = "workers",
     .type = MST_OPTION_INT,
     FIELD(workers),
     .fallback = "1",
     .min = 1,
     .max = MST_CLUSTER_MAX,
     .help = "Workers to start.",
     .needs = {{WITHOUT_MPI}}},
    {.name = "deploy",
     .type = MST_OPTION_CHOICE,
     FIELD(deploy),
     .fallback = "none",
     .choices = "none|" MST_DEPLOY_PRESETS,
     .help =
         "Preset for --servers and --workers. single: one process without a server; cluster: 1 server and "
         "2 workers on 2 hosts; cluster2: 1 server and 3 workers on 3 hosts. The server runs beside worker "
         "0, or on a host with slots=0.",
     .needs = {{WITHOUT_MPI}}},
    {.name = "hosts",
     .type = MST_OPTION_TEXT,
     FIELD(hosts),
     .metavar = "FILE",
     .help = "Hosts to start processes on, one per line: HOST [slots=N] [address=A]. Servers, then workers, "
             "are assigned to the hosts in turn, starting with the first; if hosts have slots=0, servers "
             "run on these only. Without it, all processes run on this host."},
    {.name = "copy",
     .type = MST_OPTION_FLAG,
     FIELD(copy),
     .help = "Copy this program to the hosts, and remove the copies at the end.",
     .needs = {{WITHOUT_MPI}}},
    {.name = "pin",
     .type = MST_OPTION_FLAG,
     FIELD(pin),
     .help = "Give each process on this host a core of its own. For jobs that have the host to themselves: "
             "processes then wait less for each other. Not with --hosts.",
     .needs = {{WITHOUT_MPI}}},
    {.name = "port",
     .type = MST_OPTION_INT,
     FIELD(port),
     .fallback = MST_CLUSTER_PORT,
     .min = MST_PORT_MIN,
     .max = MST_PORT_MAX,
     .help = "Server I on the hosts listens at this port + I.",
     .needs = {{WITHOUT_MPI}}},
    {.name = "logs",
     .type = MST_OPTION_TEXT,
     FIELD(logs),
     .metavar = "FOLDER",
     .help = "Folder for one log per process; none: no logs. Default: muster-logs/JOB."},
    {.name = "ssh",
     .type = MST_OPTION_TEXT,
     FIELD(ssh),
     .fallback = MST_REMOTE_SSH,
     .metavar = "COMMAND",
     .help = "Command that connects to a host; the host name and a command are appended."},
    {.name = "grace",
     .type = MST_OPTION_INT,
     FIELD(grace),
     .fallback = "10",
     .min = 0,
     .max = 86400,
     .metavar = "SECONDS",
     .help = "Time that processes have to end after SIGTERM, before they are killed."},
    {.name = "start-timeout",
     .type = MST_OPTION_INT,
     FIELD(start_timeout),
     .fallback = "30",
     .min = 1,
     .max = 86400,
     .metavar = "SECONDS",
     .help = "Time that hosts have to start their processes, and before that to receive a copy.",
     .needs = {{WITHOUT_MPI}}},
    {.name = "job",
     .type = MST_OPTION_TEXT,
     FIELD(job),
     .metavar = "NAME",
     .help = "Name of the job. Default: made from the date."},
    {.name = "mpi",
     .type = MST_OPTION_FLAG,
     FIELD(mpi),
     .help = "Start --ranks processes with mpirun or mpiexec, for train --strategy allreduce or ps, or for "
             "matmul."},
    {.name = "mpi-plugin",
     .type = MST_OPTION_CHOICE,
     FIELD(mpi_plugin),
     .fallback = "auto",
     .choices = MST_MPI_KINDS,
     .help = "MPI implementation; auto: the first one that is installed.",
     .needs = {{WITH_MPI}}},
    {.name = "ranks",
     .type = MST_OPTION_INT,
     FIELD(ranks),
     .fallback = "0",
     .min = 0,
     .max = MST_CLUSTER_MAX,
     .help = "Number of processes to start, also -n N; 0: as many as the hosts have slots, or one per host.",
     .needs = {{WITH_MPI}}},
    {.name = "mpi-args",
     .type = MST_OPTION_TEXT,
     FIELD(mpi_args),
     .metavar = "WORDS",
     .help = "More arguments for mpirun or mpiexec.",
     .needs = {{WITH_MPI}}},
    {.name = "max-restarts",
     .type = MST_OPTION_INT,
     FIELD(max_restarts),
     .fallback = MST_RESTARTS_PER_HOUR,
     .min = 0,
     .max = 1e6,
     .help = "How often within an hour a process that has died is started again; with --mpi, how often the "
             "job is, from its last checkpoint. 0: never."},
    {.name = "detach",
     .type = MST_OPTION_FLAG,
     FIELD(detach),
     .help = "Return when training has begun, or after --start-timeout; the job continues without the "
             "terminal. A job that fails before is reported with its exit code. 'muster jobs' lists it, "
             "'muster launch --attach JOB' shows its output, 'muster stop JOB' ends it."},
    {.name = "add",
     .type = MST_OPTION_INT,
     FIELD(add),
     .min = 1,
     .max = MST_CLUSTER_MAX,
     .metavar = "N",
     .help = "Start N more workers of the running job --job NAME, which has train --elastic."},
    {.name = "attach",
     .type = MST_OPTION_TEXT,
     FIELD(attach),
     .metavar = "JOB",
     .help =
         "Show the output of a job that was started with --detach, until it ends. Ctrl-C ends the view, not "
         "the job."},
    {.name = NULL},
};

typedef struct launch {
    launch_options *options;
    const mst_text_list *words; /* train and the words after it */
    bool json;                  /* the words include --json */
    bool dry_run;               /* the words include --dry-run */
    bool elastic;               /* the words include --elastic */
    bool clips;                 /* the words include --clip-norm */
    bool relaxed;               /* the words have a --mode other than sync, or an option that may set it */
    bool strategy;              /* the words have a strategy, or an option that provides one */
    bool alone;                 /* --deploy single */
    const char *run;            /* --run; NULL: none */
    mst_string command;         /* the command line up to --, quoted for a shell */
    mst_job_entry *entry;       /* NULL: none */
    char job[MST_JOB_MAX], secret[MST_SECRET_DIGITS + 1], folder[64], program[4096];
} launch;

/* Job, secret, folder of the copies, this program. */
static mst_status launch_make_names(launch *l)
{
    char date[32], tail[9];
    time_t now = time(NULL);
    struct tm tm;
    TRY(mst_random_secret(l->secret));
    TRY(mst_random_hex(4, tail));
    strftime(date, sizeof date, "%Y%m%d-%H%M%S", localtime_r(&now, &tm));
    if (l->options->job != NULL && l->options->job[0] == '\0')
        return mst_fail(MST_EUSAGE, "--job: the name is empty");
    if (l->options->job != NULL && !mst_job_name_valid(l->options->job))
        return mst_fail(MST_EUSAGE, "--job %s: at most 24 letters, digits, dots, dashes and underscores",
                        l->options->job);
    if (l->options->job != NULL)
        snprintf(l->job, sizeof l->job, "%s", l->options->job);
    else
        snprintf(l->job, sizeof l->job, "%s-%.4s", date, tail);
    snprintf(l->folder, sizeof l->folder, "/tmp/muster-%s-%s", l->job, tail);
    return mst_own_program(l->program, sizeof l->program);
}

/* The start of the command that resumes the job; MPI ranks read it from their environment. */
static mst_status launch_make_command(launch *l, int argc, char **argv)
{
    mst_string_add(&l->command, "muster launch ");
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        mst_string_shell(&l->command, argv[i]);
        mst_string_add(&l->command, " ");
    }
    mst_string_add(&l->command, "--");
    if (l->command.text == NULL || setenv(MST_RUN_LAUNCH_ENV, l->command.text, 1) != 0)
        return mst_fail_memory();
    return MST_OK;
}

static mst_status launch_check_mpi_options(const launch *l, const mst_option_group *group)
{
    for (size_t i = 0; launch_table[i].name != NULL; i++) {
        const mst_option *row = &launch_table[i];
        if ((group->set >> i & 1) == 0 || mst_options_unmet(group, 1, row, MST_NEED_STRICT, NULL) == NULL)
            continue;
        return l->options->mpi
                   ? mst_fail(
                         MST_EUSAGE,
                         "--%s: not with --mpi, where --ranks is the number of processes; to make some of "
                         "them servers, give train --servers after --",
                         row->name)
                   : mst_fail(MST_EUSAGE, "--%s: only with --mpi", row->name);
    }
    if (l->options->mpi && l->options->ranks == 0 && l->options->hosts == NULL)
        return mst_fail(MST_EUSAGE,
                        "launch --mpi: the number of processes is missing; give --ranks N or --hosts FILE");
    return MST_OK;
}

static mst_status launch_check_options(launch *l, const mst_option_group *groups, uint32_t *max_hosts)
{
    const char *command = l->words->n > 0 ? l->words->items[0] : NULL;
    if (command == NULL)
        return mst_fail(
            MST_EUSAGE,
            "launch: put the command to start after --, as in: muster launch --workers 2 -- train FILE");
    if (strcmp(command, "matmul") == 0 && !l->options->mpi)
        return mst_fail(MST_EUSAGE, "launch: matmul runs on MPI ranks; give --mpi before --");
    if (strcmp(command, "train") != 0 && strcmp(command, "matmul") != 0)
        return mst_fail(MST_EUSAGE,
                        "launch: %.64s is not a command of several processes; launch starts train, and with "
                        "--mpi also matmul",
                        command);
    TRY(launch_check_mpi_options(l, groups));
    if (l->options->copy && l->options->hosts == NULL)
        return mst_fail(MST_EUSAGE, "--copy needs --hosts FILE");
    *max_hosts = 0;
    if (l->options->deploy == 0)
        return MST_OK;
    if (mst_options_is_set(groups, 1, "servers") || mst_options_is_set(groups, 1, "workers"))
        return mst_fail(MST_EUSAGE,
                        "--deploy sets the number of servers and workers; remove --servers and --workers");
    const mst_deploy_preset *preset = &mst_deploy_presets[l->options->deploy - 1];
    l->alone = preset->n_servers == 0;
    l->options->servers = preset->n_servers;
    l->options->workers = preset->n_workers;
    *max_hosts = l->options->hosts != NULL ? preset->n_workers : 0;
    if (l->alone)
        l->options->max_restarts = 0; /* `train` does not continue a run without --resume */
    return MST_OK;
}

/* ---- the words after -- ---- */

/* The option of train that a word names, "name" or "no-name" for flags, n letters; NULL: none. */
static const mst_option *launch_train_option(const char *word, size_t n)
{
    char name[64];
    if (n >= sizeof name)
        return NULL;
    snprintf(name, sizeof name, "%.*s", (int)n, word);
    const mst_option *row = mst_train_option(name);
    if (row != NULL || strncmp(name, "no-", 3) != 0)
        return row;
    row = mst_train_option(name + 3);
    return row != NULL && row->type == MST_OPTION_FLAG ? row : NULL;
}

static mst_status launch_no_input(void)
{
    return mst_fail(
        MST_EUSAGE,
        "train -: the processes of a job cannot share standard input; give a file that all can read");
}

static mst_status launch_check_count(const char *name, const char *value, int64_t here)
{
    int64_t n;
    if (!mst_parse_int(value, &n) || n == here)
        return MST_OK; /* train refuses other values */
    return mst_fail(MST_EUSAGE, "--%s %s after -- contradicts launch, which starts %lld; give --%s before --",
                    name, value, (long long)here, name);
}

/* Refuses options that contradict launch; train checks all others. value: "" for flags. */
static mst_status launch_check_option(const launch *l, const mst_option *row, const char *value)
{
    const char *name = row->name;
    if ((row->facts & MST_OPTION_OF_PROCESS) != 0)
        return mst_fail(MST_EUSAGE,
                        "--%s after --: launch sets it for each process; to start one process by hand, run "
                        "'muster train --%s' without launch",
                        name, name);
    if (strcmp(name, "strategy") == 0 && strcmp(value, "local") == 0 && !l->alone)
        return mst_fail(MST_EUSAGE,
                        "--strategy local after --: launch starts servers and workers for --strategy ps%s; "
                        "for one process, run 'muster train' without launch",
                        l->options->mpi ? ", or ranks for --strategy allreduce" : "");
    if (strcmp(name, "strategy") == 0 && strcmp(value, "allreduce") == 0 && !l->options->mpi &&
        (l->options->servers > 0 || l->alone))
        return mst_fail(MST_EUSAGE,
                        "--strategy allreduce after --: it has no servers; give --mpi before --, or "
                        "--servers 0 for allreduce without MPI");
    if ((strcmp(name, "valid") == 0 || strcmp(name, "test") == 0) && strcmp(value, "-") == 0)
        return launch_no_input();
    if (l->options->mpi || l->alone)
        return MST_OK;
    if (strcmp(name, "workers") == 0)
        return launch_check_count(name, value, l->options->workers);
    return strcmp(name, "servers") == 0 ? launch_check_count(name, value, l->options->servers) : MST_OK;
}

/* Checks the words after --. */
static mst_status launch_check_words(launch *l)
{
    bool options = true;
    for (size_t i = 1; i < l->words->n; i++) {
        const char *word = l->words->items[i], *value = "";
        if (!options || strncmp(word, "--", 2) != 0) {
            if (strcmp(word, "-") == 0)
                return launch_no_input();
            continue;
        }
        if (word[2] == '\0') {
            options = false;
            continue;
        }
        size_t n = strcspn(word + 2, "=");
        const mst_option *o = launch_train_option(word + 2, n);
        if (o == NULL)
            continue;
        bool joined = word[2 + n] == '=', flag = o->type == MST_OPTION_FLAG;
        if (joined)
            value = word + 2 + n + 1;
        else if (!flag && i + 1 < l->words->n)
            value = l->words->items[++i];
        if (strcmp(o->name, "json") == 0)
            l->json = strncmp(word, "--no-", 5) != 0 && strcmp(value, "false") != 0;
        if (strcmp(o->name, "dry-run") == 0)
            l->dry_run = strncmp(word, "--no-", 5) != 0 && strcmp(value, "false") != 0;
        if (strcmp(o->name, "elastic") == 0)
            l->elastic = strncmp(word, "--no-", 5) != 0 && strcmp(value, "false") != 0;
        if (strcmp(o->name, "strategy") == 0 || strcmp(o->name, "config") == 0 ||
            strcmp(o->name, "resume") == 0)
            l->strategy = true;
        if (strcmp(o->name, "config") == 0 || strcmp(o->name, "resume") == 0)
            l->relaxed = true;
        if (strcmp(o->name, "clip-norm") == 0)
            l->clips = strtod(value, NULL) > 0.0;
        if (strcmp(o->name, "mode") == 0)
            l->relaxed = strcmp(value, "sync") != 0;
        if (strcmp(o->name, "run") == 0)
            l->run = value;
        TRY(launch_check_option(l, o, value));
    }
    bool servers = !l->options->mpi && !l->alone &&
                   (l->options->servers > 1 || (l->options->servers == 0 && l->options->workers > 1));
    return l->clips && servers && !l->relaxed ? mst_fail_split_norm() : MST_OK;
}

/* Reads the options of the command as its processes do: a wrong one is refused once, before they start. */
static mst_status launch_check_command(const launch *l)
{
    mst_call call;
    bool train = strcmp(l->words->items[0], "train") == 0;
    TRY(mst_call_begin(&call, train ? &mst_cmd_train : &mst_cmd_matmul));
    mst_status st = mst_options_init(call.groups, call.n_groups);
    if (st == MST_OK)
        st = mst_options_parse(call.groups, call.n_groups, (int)l->words->n - 1, l->words->items + 1,
                               &call.words);
    mst_call_end(&call);
    return st;
}

/* The caller calls mst_plan_fini. */
static mst_status launch_make_plan(const launch *l, uint32_t max_hosts, mst_plan *plan)
{
    mst_plan_request request = {.hosts_file = l->options->hosts,
                                .job = l->job,
                                .n_servers = (uint32_t)l->options->servers,
                                .n_workers = (uint32_t)l->options->workers,
                                .max_hosts = max_hosts,
                                .port = (uint16_t)l->options->port,
                                .alone = l->alone};
    return mst_plan_make(&request, plan);
}

/* Prints the processes of each host. */
static mst_status launch_show_plan(const launch *l, uint32_t max_hosts)
{
    mst_plan plan = {0};
    TRY(launch_make_plan(l, max_hosts, &plan));
    size_t n = plan.n_hosts > 0 ? plan.n_hosts : 1;
    bool failed = false;
    for (size_t h = 0; h < n; h++) {
        mst_string line = {0};
        mst_plan_describe(&plan, h, &line);
        failed = failed || line.failed;
        if (!line.failed)
            mst_cli_note("launch: %s", line.text);
        mst_string_fini(&line);
    }
    mst_plan_fini(&plan);
    return failed ? mst_fail_memory() : MST_OK;
}

/* Prints the placement, and becomes one process that prints the options and the cost of the job, since all
 * processes have the same. */
static mst_status launch_dry_run(const launch *l, uint32_t max_hosts)
{
    mst_status st;
    mst_text_list words = {0};
    char servers[32], workers[32];
    bool in_cluster = !l->options->mpi && !l->alone;
    if (!l->options->mpi)
        TRY(launch_show_plan(l, max_hosts));
    snprintf(servers, sizeof servers, "--servers=%lld", (long long)l->options->servers);
    snprintf(workers, sizeof workers, "--workers=%lld", (long long)l->options->workers);
    TRY_OUT(st, mst_text_list_add(&words, l->program));
    TRY_OUT(st, mst_text_list_add(&words, l->words->items[0]));
    if (!l->strategy && in_cluster)
        TRY_OUT(st, mst_text_list_add(&words, "--strategy=ps"));
    if (in_cluster) {
        TRY_OUT(st, mst_text_list_add(&words, servers));
        TRY_OUT(st, mst_text_list_add(&words, workers));
    }
    for (size_t i = 1; i < l->words->n; i++)
        TRY_OUT(st, mst_text_list_add(&words, l->words->items[i]));
    char **argv = mst_calloc(words.n + 1, sizeof *argv);
    if (argv == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    memcpy(argv, words.items, words.n * sizeof *argv);
    execv(l->program, argv);
    st = mst_fail(MST_EIO, "%s cannot be started: %s", l->program, strerror(errno));
    mst_free(argv);
out:
    mst_text_list_fini(&words);
    return st;
}

static mst_status launch_run_mpi_job(launch *l, const mst_option_group *groups, const mst_launch_sink *sink)
{
    bool train = strcmp(l->words->items[0], "train") == 0;
    if (train && !l->strategy)
        return mst_fail(MST_EUSAGE,
                        "launch --mpi: no strategy given; add --strategy allreduce or ps after --");
    if (!train && l->options->max_restarts > 0 && mst_options_is_set(groups, 1, "max-restarts"))
        return mst_fail(MST_EUSAGE, "--max-restarts: matmul is not started again; it has no checkpoints");
    mst_mpi_job job = {.name = l->job,
                       .program = l->program,
                       .words = l->words,
                       .run = l->run,
                       .hosts_file = l->options->hosts,
                       .ssh = l->options->ssh,
                       .args = l->options->mpi_args,
                       .sink = sink,
                       .entry = l->entry,
                       .kind = (mst_mpi_kind)l->options->mpi_plugin,
                       .n_ranks = (uint32_t)l->options->ranks,
                       .max_restarts = train ? (uint32_t)l->options->max_restarts : 0,
                       .grace_s = (uint32_t)l->options->grace};
    return mst_mpi_job_run(&job);
}

static mst_status launch_run_job(launch *l, uint32_t max_hosts, const mst_launch_sink *sink)
{
    mst_status st;
    mst_plan plan = {0};
    char *cluster_text = NULL;
    TRY_OUT(st, launch_make_plan(l, max_hosts, &plan));
    if (l->options->pin && plan.n_hosts > 0)
        TRY_OUT(st, mst_fail(MST_EUSAGE, "--pin: not with --hosts, which starts processes on other hosts"));
    if (l->options->pin)
        TRY_OUT(st, mst_core_pin_check(plan.n_servers, plan.n_workers));
    cluster_text = mst_cluster_text(&plan.cluster);
    if (cluster_text == NULL)
        TRY_OUT(st, mst_fail_memory());
    mst_launch_job job = {.plan = &plan,
                          .name = l->job,
                          .secret = l->secret,
                          .cluster_text = cluster_text,
                          .program = l->program,
                          .command = l->command.text,
                          .words = l->words,
                          .ssh = l->options->ssh,
                          .copy_folder = l->options->copy ? l->folder : NULL,
                          .sink = sink,
                          .entry = l->entry,
                          .pin = l->options->pin,
                          .elastic = l->elastic,
                          .max_restarts = (uint32_t)l->options->max_restarts,
                          .grace_s = (uint32_t)l->options->grace,
                          .start_s = (uint32_t)l->options->start_timeout};
    st = mst_launch_job_run(&job);
out:
    mst_free(cluster_text);
    mst_plan_fini(&plan);
    return st;
}

/* -n, as for mpirun: --ranks. */
/* Fails if a word before -- is an option of train that launch does not have. */
static mst_status launch_check_place(const char *word)
{
    char name[64];
    size_t n = strcspn(word, "=");
    if (strncmp(word, "--", 2) != 0 || n - 2 >= sizeof name)
        return MST_OK;
    snprintf(name, sizeof name, "%.*s", (int)(n - 2), word + 2);
    const char *of = strncmp(name, "no-", 3) == 0 ? name + 3 : name;
    if (mst_option_row(launch_table, of) != NULL || mst_train_option(of) == NULL)
        return MST_OK;
    return mst_fail(MST_EUSAGE, "--%s is an option of train: write it after '-- train'", name);
}

static bool launch_before(int argc, char **argv, mst_status *st)
{
    static char ranks[] = "--ranks";
    int i = 0;
    for (; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "-n") == 0)
            argv[i] = ranks;
        if ((*st = launch_check_place(argv[i])) != MST_OK)
            return true;
    }
    for (int word = ++i; word < argc; word++) /* of the command after -- */
        if (strcmp(argv[word], "--help") == 0 || strcmp(argv[word], "-h") == 0) {
            *st = mst_cli_dispatch(mst_commands, "", argc - i, argv + i);
            return true;
        }
    return false;
}

/* The entry of the job in the state folder. A job that is not detached does without if there is no folder. */
static mst_status launch_enter(launch *l, const char *logs)
{
    mst_string line = {0};
    mst_string_add(&line, l->command.text);
    for (size_t i = 0; i < l->words->n; i++) {
        mst_string_add(&line, " ");
        mst_string_shell(&line, l->words->items[i]);
    }
    mst_job_entry_info info = {
        .job = l->job, .command = line.text, .logs = logs, .grace_s = (uint32_t)l->options->grace};
    mst_status st = line.failed ? mst_fail_memory() : mst_job_entry_new(&info, &l->entry);
    mst_string_fini(&line);
    return st == MST_EEXIST || l->options->detach ? st : MST_OK;
}

/* In the process that returns to the terminal. */
static mst_status launch_detached(const launch *l, mst_job_detached detached)
{
    if (detached == MST_JOB_DONE)
        mst_cli_note("launch: the job %s is done; 'muster launch --attach %s' shows its output", l->job,
                     l->job);
    else
        mst_cli_note("launch: the job %s %s in the background; 'muster launch --attach %s' shows its output, "
                     "'muster stop %s' ends it",
                     l->job, detached == MST_JOB_BEGAN ? "runs" : "is still starting", l->job, l->job);
    return MST_OK;
}

/* Checks done, from the entry of the job to its end. */
static mst_status launch_start(launch *l, const mst_option_group *groups, uint32_t max_hosts)
{
    mst_status st;
    mst_job_output *output = NULL;
    char folder[96];
    snprintf(folder, sizeof folder, "muster-logs/%s", l->job);
    const char *logs = l->options->logs != NULL ? l->options->logs : folder;
    logs = strcmp(logs, "none") == 0 ? NULL : logs;
    if (getenv("MUSTER_SECRET") != NULL)
        mst_warn("launch makes a secret for each job and does not use MUSTER_SECRET");
    TRY(launch_enter(l, logs));
    if (l->options->detach) {
        mst_job_detached detached;
        st = mst_job_entry_detach(l->entry, (uint32_t)l->options->start_timeout, &detached);
        if (detached != MST_JOB_CHILD) {
            l->entry = NULL;
            return st == MST_OK ? launch_detached(l, detached) : st;
        }
        if (st != MST_OK)
            goto out;
    }
    TRY_OUT(st, mst_job_output_new(logs, l->json, &output));
    mst_launch_sink sink = mst_job_output_sink(output);
    st = l->options->mpi ? launch_run_mpi_job(l, groups, &sink) : launch_run_job(l, max_hosts, &sink);
out:
    mst_job_output_destroy(output);
    mst_job_entry_end(l->entry, st);
    return st;
}

static mst_status launch_run(mst_call *call)
{
    mst_status st;
    launch l = {.options = call->options, .words = &call->words};
    uint32_t max_hosts;
    if (l.options->attach != NULL)
        return l.words->n == 0
                   ? mst_launch_attach(l.options->attach)
                   : mst_fail(MST_EUSAGE, "--attach: remove the command; the job is already running");
    if (l.options->add > 0 && l.words->n > 0)
        return mst_fail(MST_EUSAGE, "--add: remove the command; the new workers run that of the job");
    if (l.options->add > 0 && l.options->job == NULL)
        return mst_fail(MST_EUSAGE, "--add: name the running job with --job NAME");
    if (l.options->add > 0)
        return mst_launch_add(l.options->job, (uint32_t)l.options->add);
    TRY_OUT(st, launch_check_options(&l, call->groups, &max_hosts));
    TRY_OUT(st, launch_check_words(&l));
    TRY_OUT(st, launch_check_command(&l));
    TRY_OUT(st, launch_make_names(&l));
    if (l.dry_run) {
        st = launch_dry_run(&l, max_hosts);
        goto out;
    }
    TRY_OUT(st, launch_make_command(&l, call->argc, call->argv));
    st = launch_start(&l, call->groups, max_hosts);
out:
    mst_string_fini(&l.command);
    explicit_bzero(l.secret, sizeof l.secret);
    return st;
}

static const mst_command_group launch_groups[] = {{"Options", launch_table, 0}, {.table = NULL}};

const mst_command mst_cmd_launch = {
    .name = "launch",
    .summary = "start the servers and workers of a training job, on this host or on others",
    .run = launch_run,
    .usage = "launch [--servers M] [--workers N] [--hosts FILE] [options] -- train ...\n"
             "       muster launch --mpi [-n RANKS] [--hosts FILE] [options] -- train --strategy "
             "allreduce|ps ...\n"
             "       muster launch --attach JOB\n"
             "       muster launch --add N --job JOB",
    .details = "Each process is 'muster train --role server|worker --index I ...' with the options after --. "
               "Its output is shown with its name at the start of each line, and is saved in one log per "
               "process. Ctrl-C makes all processes save and end; a second Ctrl-C kills them. The last line "
               "names the first process that failed, and the reason.\n",
    .before = launch_before,
    .groups = launch_groups,
    .options_size = sizeof(launch_options),
    .examples = "muster launch --servers 1 --workers 4 -- train clicks.cache --run runs/job\n"
                "muster launch --hosts hosts.txt --workers 8 --copy -- train clicks.cache\n"
                "muster launch --mpi -n 4 -- train clicks.cache --strategy allreduce\n",
};
