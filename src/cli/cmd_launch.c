/* `muster launch`: starts the servers and workers of a job, here or on the hosts of a file, shows what they
 * say, and ends when they have ended. Here are its options; what happens with the processes is in
 * launch_job.c and, for jobs that MPI starts, in launch_mpi.c. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/strings.h"
#include "cli/cli.h"
#include "launch/launch_job.h"
#include "launch/launch_mpi.h"
#include "launch/launch_plan.h"
#include "launch/launch_remote.h"
#include "mpi/mpi.h"
#include "run/run_dir.h"

#define SECRET_BYTES 32

typedef struct launch_options {
    int64_t servers, workers, port, grace, start_timeout, ranks, max_restarts;
    char *hosts, *logs, *ssh, *job, *mpi_args;
    bool copy, mpi;
    int deploy, mpi_plugin;
} launch_options;

enum { DEPLOY_NONE, DEPLOY_SINGLE, DEPLOY_CLUSTER, DEPLOY_CLUSTER2 };

#define FIELD(name) .offset = offsetof(launch_options, name)
static const mst_option launch_table[] = {
    {.name = "servers",
     .type = MST_OPTION_INT,
     FIELD(servers),
     .fallback = "1",
     .min = 0,
     .max = MST_CLUSTER_MAX,
     .help = "Servers to start; 0: every worker hosts a share of the model."},
    {.name = "workers",
     .type = MST_OPTION_INT,
     FIELD(workers),
     .fallback = "1",
     .min = 1,
     .max = MST_CLUSTER_MAX,
     .help = "Workers to start."},
    {.name = "deploy",
     .type = MST_OPTION_CHOICE,
     FIELD(deploy),
     .fallback = "none",
     .choices = "none|single|cluster|cluster2",
     .help = "Instead of --servers and --workers: single is 1 server and 1 worker, cluster 1 server and 2 "
             "workers on 2 "
             "hosts, cluster2 1 server and 3 workers on 3 hosts; the server is beside worker 0."},
    {.name = "hosts",
     .type = MST_OPTION_TEXT,
     FIELD(hosts),
     .metavar = "FILE",
     .help = "Hosts to start them on, one per line: HOST [slots=N] [address=A]. Servers, and then workers, "
             "go to the "
             "hosts in turn from the first one on. Without it everything runs here."},
    {.name = "copy",
     .type = MST_OPTION_FLAG,
     FIELD(copy),
     .help = "Bring this program along to the hosts, and remove it at the end."},
    {.name = "port",
     .type = MST_OPTION_INT,
     FIELD(port),
     .fallback = MST_CLUSTER_PORT,
     .min = MST_PORT_MIN,
     .max = MST_PORT_MAX,
     .help = "Server I on the hosts listens at this port + I."},
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
     .help = "What reaches a host; the host and a command are appended to its words."},
    {.name = "grace",
     .type = MST_OPTION_INT,
     FIELD(grace),
     .fallback = "10",
     .min = 0,
     .max = 86400,
     .metavar = "SECONDS",
     .help = "Time for processes to end, once they are asked to, before they are killed."},
    {.name = "start-timeout",
     .type = MST_OPTION_INT,
     FIELD(start_timeout),
     .fallback = "30",
     .min = 1,
     .max = 86400,
     .metavar = "SECONDS",
     .help = "Time for hosts to start their processes, and before that to take a copy."},
    {.name = "job",
     .type = MST_OPTION_TEXT,
     FIELD(job),
     .metavar = "NAME",
     .help = "Name of the job. Default: made from the date."},
    {.name = "mpi",
     .type = MST_OPTION_FLAG,
     FIELD(mpi),
     .help =
         "Start --ranks processes by mpirun or mpiexec, for train --strategy allreduce or ps, and matmul."},
    {.name = "mpi-plugin",
     .type = MST_OPTION_CHOICE,
     FIELD(mpi_plugin),
     .fallback = "auto",
     .choices = MST_MPI_KINDS,
     .help = "Which MPI; auto: the first of them that is there."},
    {.name = "ranks",
     .type = MST_OPTION_INT,
     FIELD(ranks),
     .fallback = "0",
     .min = 0,
     .max = MST_CLUSTER_MAX,
     .help = "With --mpi: processes to start, also -n N; 0: as many as the hosts have slots, or one each."},
    {.name = "mpi-args",
     .type = MST_OPTION_TEXT,
     FIELD(mpi_args),
     .metavar = "WORDS",
     .help = "With --mpi: more words for mpirun or mpiexec."},
    {.name = "max-restarts",
     .type = MST_OPTION_INT,
     FIELD(max_restarts),
     .fallback = "0",
     .min = 0,
     .max = 1e6,
     .help = "With --mpi: how often to start the job again with --resume when a rank has died."},
    {.name = NULL},
};

typedef struct launch {
    launch_options options;
    mst_text_list words; /* train and what follows */
    bool json;           /* among them is --json */
    bool strategy;       /* a strategy, or from where to take one */
    const char *run;     /* --run; NULL: none */
    mst_string command;  /* what was typed up to --, as words of a shell */
    char job[MST_JOB_MAX], secret[2 * SECRET_BYTES + 1], folder[64], program[4096];
} launch;

static bool is_job_name(const char *text)
{
    size_t n = 0;
    while (isalnum((unsigned char)text[n]) || (text[n] != '\0' && strchr("._-", text[n]) != NULL))
        n++;
    return n > 0 && n <= 24 && text[n] == '\0';
}

/* Job, secret, folder of the copies, this program. */
static mst_status make_names(launch *l)
{
    char date[32], tail[9];
    time_t now = time(NULL);
    struct tm tm;
    TRY(mst_random_hex(SECRET_BYTES, l->secret));
    TRY(mst_random_hex(4, tail));
    strftime(date, sizeof date, "%Y%m%d-%H%M%S", localtime_r(&now, &tm));
    if (l->options.job != NULL && !is_job_name(l->options.job))
        return mst_fail(MST_EUSAGE, "--job %s: at most 24 letters, digits, dots, dashes and underscores",
                        l->options.job);
    if (l->options.job != NULL)
        snprintf(l->job, sizeof l->job, "%s", l->options.job);
    else
        snprintf(l->job, sizeof l->job, "%s-%.4s", date, tail);
    snprintf(l->folder, sizeof l->folder, "/tmp/muster-%s-%s", l->job, tail);
    return mst_own_program(l->program, sizeof l->program);
}

/* The beginning of the command that resumes the job; ranks of MPI find it in their environment. */
static mst_status make_command(launch *l, int argc, char **argv)
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

static mst_status check_mpi_options(const launch *l, const mst_option_group *groups)
{
    static const char *const others[] = {"servers", "workers", "deploy", "copy", "port", "start-timeout"};
    static const char *const own[] = {"mpi-plugin", "ranks", "mpi-args", "max-restarts"};
    for (size_t i = 0; l->options.mpi && i < sizeof others / sizeof *others; i++)
        if (mst_options_is_set(groups, 1, others[i]))
            return mst_fail(MST_EUSAGE,
                            "--%s: not with --mpi, where --ranks says how many processes there are; servers "
                            "among them are train's --servers, behind --",
                            others[i]);
    for (size_t i = 0; !l->options.mpi && i < sizeof own / sizeof *own; i++)
        if (mst_options_is_set(groups, 1, own[i]))
            return mst_fail(MST_EUSAGE, "--%s: only with --mpi", own[i]);
    if (l->options.mpi && l->options.ranks == 0 && l->options.hosts == NULL)
        return mst_fail(MST_EUSAGE, "launch --mpi: how many processes? Give --ranks N or --hosts FILE");
    return MST_OK;
}

static mst_status check_options(launch *l, const mst_option_group *groups, uint32_t *max_hosts)
{
    static const struct {
        int64_t servers, workers;
        uint32_t hosts;
    } deploys[] = {{0, 0, 0}, {1, 1, 1}, {1, 2, 2}, {1, 3, 3}};
    bool matmul = l->options.mpi && l->words.n > 0 && strcmp(l->words.items[0], "matmul") == 0;
    if (l->words.n == 0 || (strcmp(l->words.items[0], "train") != 0 && !matmul))
        return mst_fail(
            MST_EUSAGE,
            "launch: what is to run goes behind --, as in: muster launch --workers 2 -- train FILE");
    TRY(check_mpi_options(l, groups));
    if (l->options.copy && l->options.hosts == NULL)
        return mst_fail(MST_EUSAGE, "--copy: copies to the hosts of --hosts FILE, which is not given");
    *max_hosts = 0;
    if (l->options.deploy == DEPLOY_NONE)
        return MST_OK;
    if (mst_options_is_set(groups, 1, "servers") || mst_options_is_set(groups, 1, "workers"))
        return mst_fail(MST_EUSAGE,
                        "--deploy says how many servers and workers there are; --servers and --workers "
                        "cannot be given beside it");
    l->options.servers = deploys[l->options.deploy].servers;
    l->options.workers = deploys[l->options.deploy].workers;
    *max_hosts = l->options.hosts != NULL ? deploys[l->options.deploy].hosts : 0;
    return MST_OK;
}

/* ---- what stands behind -- ---- */

/* The option of train that a word names, "name" or "no-name" for flags, n letters; NULL: none. */
static const mst_option *train_option(const char *name, size_t n)
{
    for (const mst_option *const *table = mst_cmd_train.tables; *table != NULL; table++) {
        for (const mst_option *o = *table; o->name != NULL; o++) {
            bool flag = o->type == MST_OPTION_FLAG;
            if ((strlen(o->name) == n && memcmp(o->name, name, n) == 0) ||
                (flag && strlen(o->name) + 3 == n && memcmp(name, "no-", 3) == 0 &&
                 memcmp(o->name, name + 3, n - 3) == 0))
                return o;
        }
    }
    return NULL;
}

static mst_status no_input(void)
{
    return mst_fail(MST_EUSAGE,
                    "train -: the processes of a job share no standard input; give a file that all can read");
}

static mst_status check_count(const char *name, const char *value, int64_t here)
{
    int64_t n;
    if (!mst_parse_int(value, &n) || n == here)
        return MST_OK; /* what is no number is refused by train */
    return mst_fail(MST_EUSAGE,
                    "--%s %s behind -- contradicts launch, which starts %lld; give --%s before --", name,
                    value, (long long)here, name);
}

/* value: "" for flags. What launch decides cannot be said otherwise to the processes; everything else is for
 * train to check. */
static mst_status check_option(const launch *l, const char *name, const char *value)
{
    if (strcmp(name, "role") == 0 || strcmp(name, "index") == 0 || strcmp(name, "cluster") == 0)
        return mst_fail(MST_EUSAGE,
                        "--%s behind --: launch gives each process its own; for a process by hand, run "
                        "'muster train --%s' without launch",
                        name, name);
    if (strcmp(name, "strategy") == 0 && strcmp(value, "local") == 0)
        return mst_fail(MST_EUSAGE,
                        "--strategy local behind --: launch starts servers and workers, which is "
                        "--strategy ps%s; for one process, run 'muster train' without launch",
                        l->options.mpi ? ", or ranks, which is --strategy allreduce" : "");
    if (strcmp(name, "strategy") == 0 && strcmp(value, "allreduce") == 0 && !l->options.mpi)
        return mst_fail(
            MST_EUSAGE,
            "--strategy allreduce behind --: its processes are started by MPI; give --mpi before --");
    if ((strcmp(name, "valid") == 0 || strcmp(name, "test") == 0) && strcmp(value, "-") == 0)
        return no_input();
    if (l->options.mpi)
        return MST_OK;
    if (strcmp(name, "workers") == 0)
        return check_count(name, value, l->options.workers);
    return strcmp(name, "servers") == 0 ? check_count(name, value, l->options.servers) : MST_OK;
}

/* Goes through train's words. */
static mst_status check_words(launch *l)
{
    bool options = true;
    for (size_t i = 1; i < l->words.n; i++) {
        const char *word = l->words.items[i], *value = "";
        if (!options || strncmp(word, "--", 2) != 0) {
            if (strcmp(word, "-") == 0)
                return no_input();
            continue;
        }
        if (word[2] == '\0') {
            options = false;
            continue;
        }
        size_t n = strcspn(word + 2, "=");
        const mst_option *o = train_option(word + 2, n);
        if (o == NULL)
            continue;
        bool joined = word[2 + n] == '=', flag = o->type == MST_OPTION_FLAG;
        if (joined)
            value = word + 2 + n + 1;
        else if (!flag && i + 1 < l->words.n)
            value = l->words.items[++i];
        if (strcmp(o->name, "json") == 0)
            l->json = strncmp(word, "--no-", 5) != 0 && strcmp(value, "false") != 0;
        if (strcmp(o->name, "strategy") == 0 || strcmp(o->name, "config") == 0 ||
            strcmp(o->name, "resume") == 0)
            l->strategy = true;
        if (strcmp(o->name, "run") == 0)
            l->run = value;
        TRY(check_option(l, o->name, value));
    }
    return MST_OK;
}

static mst_status run_mpi_job(launch *l)
{
    char folder[96];
    bool train = strcmp(l->words.items[0], "train") == 0;
    if (train && !l->strategy)
        return mst_fail(MST_EUSAGE,
                        "launch --mpi: which strategy? Give --strategy allreduce or ps behind --");
    if (l->options.max_restarts > 0 && (!train || l->run == NULL))
        return mst_fail(MST_EUSAGE,
                        "--max-restarts: give train --run FOLDER behind --, so that the job finds "
                        "its checkpoints when it starts again");
    snprintf(folder, sizeof folder, "muster-logs/%s", l->job);
    const char *logs = l->options.logs != NULL ? l->options.logs : folder;
    mst_mpi_job job = {.name = l->job,
                       .program = l->program,
                       .words = &l->words,
                       .run = l->run,
                       .hosts_file = l->options.hosts,
                       .ssh = l->options.ssh,
                       .args = l->options.mpi_args,
                       .logs = strcmp(logs, "none") == 0 ? NULL : logs,
                       .plain = l->json,
                       .kind = (mst_mpi_kind)l->options.mpi_plugin,
                       .n_ranks = (uint32_t)l->options.ranks,
                       .max_restarts = (uint32_t)l->options.max_restarts,
                       .grace_s = (uint32_t)l->options.grace};
    return mst_mpi_job_run(&job);
}

static mst_status run_job(launch *l, uint32_t max_hosts)
{
    mst_status st;
    mst_plan plan = {0};
    char *cluster_text = NULL, folder[96];
    mst_plan_wish wish = {.hosts_file = l->options.hosts,
                          .job = l->job,
                          .n_servers = (uint32_t)l->options.servers,
                          .n_workers = (uint32_t)l->options.workers,
                          .max_hosts = max_hosts,
                          .port = (uint16_t)l->options.port};
    TRY_OUT(st, mst_plan_make(&wish, &plan));
    cluster_text = mst_cluster_text(&plan.cluster);
    if (cluster_text == NULL)
        TRY_OUT(st, mst_fail_memory());
    snprintf(folder, sizeof folder, "muster-logs/%s", l->job);
    const char *logs = l->options.logs != NULL ? l->options.logs : folder;
    mst_launch_job job = {.plan = &plan,
                          .name = l->job,
                          .secret = l->secret,
                          .cluster_text = cluster_text,
                          .program = l->program,
                          .command = l->command.text,
                          .words = &l->words,
                          .ssh = l->options.ssh,
                          .copy_folder = l->options.copy ? l->folder : NULL,
                          .logs = strcmp(logs, "none") == 0 ? NULL : logs,
                          .plain = l->json,
                          .grace_s = (uint32_t)l->options.grace,
                          .start_s = (uint32_t)l->options.start_timeout};
    st = mst_launch_job_run(&job);
out:
    mst_free(cluster_text);
    mst_plan_fini(&plan);
    return st;
}

static mst_status run(int argc, char **argv)
{
    mst_status st;
    launch l = {0};
    bool helped;
    uint32_t max_hosts;
    mst_option_group groups[] = {{.title = "Options", .table = launch_table, .base = &l.options}};
    static char ranks[] = "--ranks"; /* what everybody types in front of mpirun's words */
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "-n") == 0)
            argv[i] = ranks;
    TRY_OUT(st, mst_cli_parse(&mst_cmd_launch, groups, 1, argc, argv, &l.words, &helped));
    if (helped)
        goto out;
    TRY_OUT(st, check_options(&l, groups, &max_hosts));
    TRY_OUT(st, check_words(&l));
    TRY_OUT(st, make_names(&l));
    TRY_OUT(st, make_command(&l, argc, argv));
    st = l.options.mpi ? run_mpi_job(&l) : run_job(&l, max_hosts);
out:
    mst_text_list_fini(&l.words);
    mst_string_fini(&l.command);
    mst_options_fini(groups, 1);
    explicit_bzero(l.secret, sizeof l.secret);
    return st;
}

static const mst_option *const tables[] = {launch_table, NULL};

const mst_command mst_cmd_launch = {
    .name = "launch",
    .summary = "start the servers and workers of a training job, here or on other hosts",
    .run = run,
    .usage =
        "launch [--servers M] [--workers N] [--hosts FILE] [options] -- train ...\n"
        "       muster launch --mpi [-n RANKS] [--hosts FILE] [options] -- train --strategy allreduce|ps ...",
    .details =
        "Each process is 'muster train --role server|worker --index I ...' with the options behind --. "
        "Their\n"
        "lines are shown with their names in front and kept in a log per process. Ctrl-C asks all of them "
        "to\n"
        "save and end; a second one kills them. The last line says which process failed first, and why.\n",
    .tables = tables,
};
