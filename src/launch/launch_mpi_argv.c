/* The command lines of Open MPI's and MPICH's launchers; contract in launch_mpi.h.
 *
 * Both get the number of ranks, the hosts with their slots, this folder, tagged lines, and no binding to
 * cores (a rank has threads for reading, communication and monitoring besides the one that computes; two
 * ranks of Open MPI would get one core each by default). The arguments of
 * --mpi-args come last. If they configure binding or mapping, the option against binding is omitted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/parent.h"
#include "launch/launch_mpi.h"
#include "launch/launch_remote.h"
#include "mpi/mpi.h"

static const char *const kind_names[] = {"", "openmpi", "mpich"};
/* In the order in which they are looked for: names that belong to one implementation first. */
static const char *const programs[][4] = {
    {NULL},
    {"mpirun.openmpi", "orterun", "mpirun", NULL},
    {"mpiexec.hydra", "mpiexec.mpich", "mpiexec", NULL},
};

/* ---- which ---- */

static bool argv_on_path(const char *name, char *out, size_t size)
{
    const char *path = getenv("PATH");
    for (const char *p = path != NULL ? path : "/usr/bin:/bin"; p != NULL;) {
        size_t n = strcspn(p, ":");
        struct stat is;
        if (n > 0 && (size_t)snprintf(out, size, "%.*s/%s", (int)n, p, name) < size && stat(out, &is) == 0 &&
            S_ISREG(is.st_mode) && access(out, X_OK) == 0)
            return true;
        p = p[n] == ':' ? p + n + 1 : NULL;
    }
    return false;
}

static bool argv_has_program(mst_mpi_kind kind, char *out, size_t size)
{
    for (const char *const *name = programs[kind]; *name != NULL; name++)
        if (argv_on_path(*name, out, size))
            return true;
    return false;
}

mst_status mst_mpi_launcher_find(mst_mpi_kind kind, mst_mpi_launcher *out)
{
    mst_mpi_info plugins[4];
    uint32_t n = mst_mpi_plugins(plugins, 4);
    const char *broken = NULL, *lonely = NULL;
    for (mst_mpi_kind k = MST_MPI_KIND_OPENMPI; k <= MST_MPI_KIND_MPICH; k++) {
        for (uint32_t i = 0; i < n; i++) {
            if (strcmp(plugins[i].name, kind_names[k]) != 0 || (kind != MST_MPI_KIND_AUTO && kind != k))
                continue;
            if (!plugins[i].loads)
                broken = plugins[i].library;
            else if (!argv_has_program(k, out->program, sizeof out->program))
                lonely = kind_names[k];
            else {
                out->kind = k;
                return MST_OK;
            }
        }
    }
    if (lonely != NULL)
        return mst_fail(MST_EUSAGE, "launch --mpi: the plug-in %s is installed, but %s is not on the PATH",
                        lonely, strcmp(lonely, "mpich") == 0 ? "mpiexec.hydra or mpiexec" : "mpirun");
    if (broken != NULL)
        return mst_fail(MST_EUSAGE, "launch --mpi: %s", broken);
    if (kind == MST_MPI_KIND_AUTO)
        return mst_fail(MST_EUSAGE, "launch --mpi: muster was built without MPI; install Open MPI or MPICH "
                                    "and build it again");
    return mst_fail(MST_EUSAGE,
                    "launch --mpi: there is no plug-in %s: muster was built without it; 'muster "
                    "list' shows the plug-ins",
                    kind_names[kind]);
}

/* ---- words ---- */

/* "a:2,b:1"; the caller frees. */
static char *argv_host_list(const mst_plan *plan)
{
    char *text = mst_strdup("");
    for (size_t i = 0; text != NULL && i < plan->n_hosts; i++) {
        const mst_host *h = &plan->hosts[i];
        if (h->n_workers == 0)
            continue;
        char *longer = mst_sprintf("%s%s%s:%u", text, *text != '\0' ? "," : "", h->name, h->n_workers);
        mst_free(text);
        text = longer;
    }
    return text;
}

static bool argv_starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Variables that Open MPI would not hand on to other hosts. MPICH hands on all. */
static mst_status argv_add_passed_on(mst_text_list *out)
{
    static const char *const passed[] = {"MUSTER_", "OMP_", "DNNL_", "UCX_", "LD_LIBRARY_PATH="};
    for (char **variable = environ; *variable != NULL; variable++) {
        bool pass = false;
        char name[256];
        size_t n = strcspn(*variable, "=");
        for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
            pass = pass || argv_starts(*variable, passed[i]);
        if (!pass || n >= sizeof name || argv_starts(*variable, "MUSTER_CLUSTER=") ||
            argv_starts(*variable, "MUSTER_SECRET=") || argv_starts(*variable, "MUSTER_JOB=") ||
            argv_starts(*variable, MST_PARENT_ENV "=") || argv_starts(*variable, MST_PARENT_LOST_ENV "="))
            continue;
        memcpy(name, *variable, n);
        name[n] = '\0';
        TRY(mst_text_list_add_all(out, (const char *const[]){"-x", name, NULL}));
    }
    return MST_OK;
}

static mst_status argv_openmpi_words(const mst_mpi_job *job, const mst_plan *plan, bool bound, bool lost,
                                     mst_text_list *out)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    TRY(mst_text_list_add(out, "--tag-output"));
    if (geteuid() == 0)
        TRY(mst_text_list_add(out, "--allow-run-as-root"));
    if (!bound)
        TRY(mst_text_list_add_all(out, (const char *const[]){"--bind-to", "none", NULL}));
    if (plan->n_hosts == 0) {
        if (plan->n_workers > cores && getenv("SLURM_JOB_ID") == NULL)
            TRY(mst_text_list_add(out, "--oversubscribe"));
        return MST_OK;
    }
    TRY(mst_text_list_add_all(out, (const char *const[]){"--mca", "plm", "rsh", "--mca", "plm_rsh_agent",
                                                         job->ssh, "--mca", "plm_rsh_no_tree_spawn", "1",
                                                         "-x", "MUSTER_JOB", "-x", MST_PARENT_ENV, NULL}));
    if (lost)
        TRY(mst_text_list_add_all(out, (const char *const[]){"-x", MST_PARENT_LOST_ENV, NULL}));
    return argv_add_passed_on(out);
}

static bool argv_is_ssh(const char *word, size_t n)
{
    return n >= 3 && memcmp(word + n - 3, "ssh", 3) == 0 && (n == 3 || word[n - 4] == '/');
}

/* Its launcher takes one program, and the words behind that from a variable; called ssh, it adds ssh's -x. */
static mst_status argv_mpich_words(const mst_mpi_job *job, const mst_plan *plan, mst_text_list *out)
{
    char program[4096];
    /* A rank that died is for the others to name, who then end by themselves: it would kill them at once. */
    TRY(mst_text_list_add_all(
        out, (const char *const[]){"-prepend-pattern", MST_MPI_TAG_MPICH, "-disable-auto-cleanup", NULL}));
    if (plan->n_hosts == 0)
        return MST_OK;
    size_t n = strcspn(job->ssh, " ");
    if (n >= sizeof program)
        return mst_fail(MST_EUSAGE, "--ssh: the name of the program is too long");
    memcpy(program, job->ssh, n);
    program[n] = '\0';
    TRY(mst_text_list_add_all(
        out, (const char *const[]){"-launcher", argv_is_ssh(program, n) ? "ssh" : "rsh", NULL}));
    if (strcmp(program, "ssh") != 0)
        TRY(mst_text_list_add_all(out, (const char *const[]){"-launcher-exec", program, NULL}));
    return MST_OK;
}

/* Whether some of the words configure binding or mapping. */
static bool argv_bound(const mst_text_list *args)
{
    bool bound = false;
    for (size_t i = 0; i < args->n; i++)
        bound =
            bound || strstr(args->items[i], "bind-to") != NULL || strstr(args->items[i], "map-by") != NULL;
    return bound;
}

mst_status mst_mpi_launcher_words(const mst_mpi_job *job, const mst_mpi_launcher *launcher,
                                  const mst_plan *plan, const mst_text_list *words, const char *lost,
                                  mst_text_list *argv, mst_text_list *env)
{
    mst_status st;
    bool openmpi = launcher->kind == MST_MPI_KIND_OPENMPI;
    char folder[4096], ranks[16], grace[16], *hosts = NULL;
    mst_text_list args = {0};
    const char *agent_words = strchr(job->ssh, ' ');
    const mst_variable variables[] = {{"MUSTER_JOB", job->name},
                                      {MST_PARENT_ENV, grace},
                                      {MST_PARENT_LOST_ENV, lost},
                                      {"MUSTER_CLUSTER", NULL},
                                      {"MUSTER_SECRET", NULL},
                                      {"TF_CONFIG", NULL},
                                      {openmpi || plan->n_hosts == 0 ? NULL : "HYDRA_LAUNCHER_EXTRA_ARGS",
                                       agent_words != NULL ? agent_words + 1 : NULL},
                                      {NULL, NULL}};
    snprintf(ranks, sizeof ranks, "%u", plan->n_workers);
    snprintf(grace, sizeof grace, "%u", job->grace_s);
    if (getcwd(folder, sizeof folder) == NULL)
        return mst_fail(MST_EIO, "launch: the current folder has no name");
    TRY_OUT(st, mst_local_env(variables, env));
    TRY_OUT(st, mst_text_list_add(argv, launcher->program));
    if (job->args != NULL)
        TRY_OUT(st, mst_text_list_add_split(&args, job->args));
    TRY_OUT(st, openmpi ? argv_openmpi_words(job, plan, argv_bound(&args), lost != NULL, argv)
                        : argv_mpich_words(job, plan, argv));
    if (plan->n_hosts > 0) {
        hosts = argv_host_list(plan);
        if (hosts == NULL)
            TRY_OUT(st, mst_fail_memory());
        TRY_OUT(st, mst_text_list_add_all(argv,
                                          (const char *const[]){openmpi ? "--host" : "-hosts", hosts, NULL}));
    }
    TRY_OUT(st, mst_text_list_add_all(argv, (const char *const[]){"-wdir", folder, NULL}));
    for (size_t i = 0; i < args.n; i++)
        TRY_OUT(st, mst_text_list_add(argv, args.items[i]));
    TRY_OUT(st, mst_text_list_add_all(argv, (const char *const[]){"-n", ranks, job->program, NULL}));
    for (size_t i = 0; i < words->n; i++)
        TRY_OUT(st, mst_text_list_add(argv, words->items[i]));
    st = mst_text_list_end(argv);
out:
    mst_text_list_fini(&args);
    mst_free(hosts);
    return st;
}
