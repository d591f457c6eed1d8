/* An MPI job from start to end, restarts included; contract in launch_mpi.h.
 *
 *   launch_plan (ranks on hosts) -> launch_mpi_argv (argv) -> supervisor (the launcher, one process)
 *                                        policy, here <- lines and its end -> launch_sink
 *
 * Policy:
 * 1. The launcher's exit code is the job's: 0 done, 1 and 2 as muster's own, 129, 130 and 143 a rank that was
 * stopped by a signal, 3 and all others a rank that died (Open MPI returns 128 + signal, MPICH ors the codes
 * of its ranks).
 * 2. A job that lost a rank is started again, by the restart policy (restarts.h), unless a signal has
 * arrived. The words are those of the first start, with --resume in the place of --overwrite, and with the
 * run that rank 0 has reported (MST_PARENT_BEGAN); while the run has no checkpoint, it starts from the
 * beginning. Rank 0 gets the time and the reason of the loss (MST_PARENT_LOST_ENV). On other hosts, each host
 * is probed first; the ranks of hosts that cannot be reached are left
 * out, until the next restart.
 * 3. SIGINT, SIGTERM and SIGHUP close the launcher's standard input, which stops rank 0, which saves; after
 * the grace the launcher gets SIGTERM, which ends all ranks, and TERMINATE_MS later it is killed with its
 * descendants. A second signal kills at once. SIGUSR1 is sent to rank 0.
 *
 * Lines: the launcher puts the tag of a rank before every line, and before every part of a line that it
 * received in parts, between which parts of other ranks' lines may come. So a tag anywhere switches to that
 * rank, and the text of a rank is kept until its line ends. Text without a tag is the launcher's own. */
#include "launch/launch_mpi.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <uv.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/signals.h"
#include "launch/launch_remote.h"
#include "launch/parent_pipe.h"
#include "launch/supervisor.h"
#include "run/checkpoint.h"

#define MESSAGE_MAX  MST_CHILD_LINE
#define TERMINATE_MS 5000  /* for the launcher to end its ranks after SIGTERM */
#define PROBE_MS     15000 /* for a host to answer; ssh gives up before */
#define TAG_MAX      32
#define PART_MAX     ((size_t)64 << 10)

/* The beginning of a rank's line on one stream. */
typedef struct part {
    char *text;
    size_t n, capacity;
} part;

typedef struct mpi_launch {
    const mst_mpi_job *job;
    mst_plan plan;
    mst_mpi_launcher launcher;
    mst_supervisor *supervisor;
    mst_child *child; /* the launcher; the children after it are the probes of the hosts */
    uint32_t *slots;  /* ranks that host h has at the first start */
    bool probing;
    uv_timer_t probe_deadline;
    char (*names)[24]; /* of the ranks, then of the launcher */
    part *parts;       /* of rank r on stream s: 2 r + s */
    uint32_t n_ranks;
    char message[MESSAGE_MAX]; /* the first error of a rank */
    char zero[MESSAGE_MAX];    /* the last error of rank 0 */
    char last[MESSAGE_MAX];    /* the launcher's last line */
    char run[MESSAGE_MAX];     /* the run directory; "": training has not begun */
    uint32_t failed_rank;      /* that printed message */
    double lost_at;            /* wall clock, of the first loss since training began; 0: none */
    mst_error broken;          /* a failure of launch itself; code MST_OK: none */
    uint64_t began_ns;
} mpi_launch;

/* ---- lines ---- */

/* The length of the tag that text begins with, and its rank; 0: none. */
static size_t mpi_tag_length(const char *text, size_t n, uint32_t n_ranks, uint32_t *rank)
{
    char copy[TAG_MAX + 1];
    unsigned r = 0;
    int length = 0;
    size_t m = n < TAG_MAX ? n : TAG_MAX;
    if (n < 13 || memcmp(text, "[1,", 3) != 0)
        return 0;
    memcpy(copy, text, m);
    copy[m] = '\0';
    if ((sscanf(copy, "[1,%9u]<stdout>:%n", &r, &length) == 1 && length > 0) ||
        (sscanf(copy, "[1,%9u]<stderr>:%n", &r, &length) == 1 && length > 0)) {
        *rank = r;
        return r < n_ranks ? (size_t)length : 0;
    }
    return 0;
}

static void mpi_copy_line(char *out, const char *text, size_t n)
{
    snprintf(out, MESSAGE_MAX, "%.*s", (int)(n < MESSAGE_MAX ? n : MESSAGE_MAX), text);
}

static void mpi_whole_line(mpi_launch *l, uint32_t rank, bool is_error, const char *text, size_t n)
{
    if (n > 0 && text[n - 1] == '\r') /* Open MPI gives ranks a terminal to print on */
        n--;
    size_t length;
    if (is_error && n == strlen(MST_PARENT_FINAL) && memcmp(text, MST_PARENT_FINAL, n) == 0)
        return;
    size_t began = strlen(MST_PARENT_BEGAN);
    if (is_error && n >= began && memcmp(text, MST_PARENT_BEGAN, began) == 0) {
        mpi_copy_line(l->run, text + began, n - began);
        l->lost_at = 0;
        mst_job_entry_started(l->job->entry);
        return;
    }
    const char *error = is_error ? mst_error_line(text, n, &length) : NULL;
    if (error != NULL && rank == 0)
        mpi_copy_line(l->zero, error, length);
    if (error != NULL && l->message[0] == '\0') {
        mpi_copy_line(l->message, error, length);
        l->failed_rank = rank;
    }
    l->job->sink->line(l->job->sink->arg, rank, l->names[rank], is_error, text, n);
}

/* The launchers' banners have rules above and below, and empty lines. */
static void mpi_launcher_line(mpi_launch *l, bool is_error, const char *text, size_t n)
{
    size_t rule = 0;
    while (rule < n && strchr("-= ", text[rule]) != NULL)
        rule++;
    if (rule == n)
        return;
    if (strstr(l->last, "EXIT STRING") == NULL) /* MPICH's banner ends in general advice */
        mpi_copy_line(l->last, text + (*text == '=' ? rule : 0), n - (*text == '=' ? rule : 0));
    l->job->sink->line(l->job->sink->arg, l->n_ranks, l->names[l->n_ranks], is_error, text, n);
}

/* Keeps a part; false: there is no room, and it has to come out as a line. */
static bool part_keep(part *p, const char *text, size_t n)
{
    if (p->n + n > PART_MAX || !mst_grow(&p->text, &p->capacity, p->n + n, 1))
        return false;
    memcpy(p->text + p->n, text, n);
    p->n += n;
    return true;
}

static void mpi_flush(mpi_launch *l, uint32_t rank, bool is_error)
{
    part *p = &l->parts[2 * rank + is_error];
    if (p->n > 0)
        mpi_whole_line(l, rank, is_error, p->text, p->n);
    p->n = 0;
}

/* A piece of what the launcher printed: of a rank, or its own (rank n_ranks). */
static void mpi_piece(mpi_launch *l, uint32_t rank, bool is_error, const char *text, size_t n, bool ends)
{
    if (rank == l->n_ranks) {
        if (n > 0)
            mpi_launcher_line(l, is_error, text, n);
        return;
    }
    part *p = &l->parts[2 * rank + is_error];
    if (ends && p->n == 0) {
        mpi_whole_line(l, rank, is_error, text, n);
        return;
    }
    if (!part_keep(p, text, n)) {
        mpi_flush(l, rank, is_error);
        mpi_whole_line(l, rank, is_error, text, n);
    } else if (ends) {
        mpi_flush(l, rank, is_error);
    }
}

static void mpi_on_line(void *arg, mst_child *child, bool is_error, const char *text, size_t n)
{
    mpi_launch *l = arg;
    uint32_t rank = l->n_ranks, next;
    size_t from = 0, length;
    if (child != l->child)
        return; /* a probe */
    for (size_t i = 0; i < n;) {
        if (text[i] != '[' || (length = mpi_tag_length(text + i, n - i, l->n_ranks, &next)) == 0) {
            i++;
            continue;
        }
        if (i > from)
            mpi_piece(l, rank, is_error, text + from, i - from, false);
        rank = next;
        i = from = i + length;
    }
    mpi_piece(l, rank, is_error, text + from, n - from, true);
}

/* ---- ending ---- */

static void mpi_on_checkpoint(void *arg)
{
    mpi_launch *l = arg;
    mst_child_checkpoint(l->child);
}

static void mpi_on_stop(void *arg, int number)
{
    mpi_launch *l = arg;
    char name[32];
    mst_launch_note(l->job->sink, "launch: %s: stopping the ranks within %u s; a second signal kills them",
                    mst_signal_name(number, name, sizeof name), l->job->grace_s);
    (void)mst_child_cancel(l->child);
    mst_child_stop(l->child, number, (uint64_t)l->job->grace_s * 1000);
    for (size_t h = 0; h < l->plan.n_hosts; h++)
        mst_child_kill(mst_supervisor_child(l->supervisor, (uint32_t)h + 1));
}

/* ---- starting ---- */

static bool mpi_is_flag(const char *word, const char *name)
{
    return strncmp(word, "--", 2) == 0 && strcmp(word + 2, name) == 0;
}

/* Writes the arguments of a restart (rule 2). The caller ends the list. *from_start: the job does not resume.
 */
static mst_status mpi_restart_words(const mpi_launch *l, mst_text_list *out, bool *from_start)
{
    const mst_mpi_job *job = l->job;
    const char *run = l->run[0] != '\0' ? l->run : job->run;
    bool resumes = false, options = true;
    char *found = NULL;
    struct stat is;
    for (size_t i = 0; i < job->words->n; i++)
        resumes = resumes || mpi_is_flag(job->words->items[i], "resume");
    /* A run that is not on this host is on that of rank 0, which looks for a checkpoint. */
    bool unsaved = run != NULL && stat(run, &is) == 0 && mst_checkpoint_find(run, &found) != MST_OK;
    bool again = l->run[0] == '\0' && !unsaved; /* nothing has happened yet */
    *from_start = !resumes && (unsaved || again);
    mst_free(found);
    TRY(mst_text_list_add(out, job->words->items[0]));
    if (!again)
        TRY(mst_text_list_add(out, *from_start ? "--overwrite" : "--resume"));
    if (!again && job->run == NULL) {
        TRY(mst_text_list_add(out, "--run"));
        TRY(mst_text_list_add(out, run));
    }
    for (size_t i = 1; i < job->words->n; i++) {
        const char *word = job->words->items[i];
        if (options && !again && (mpi_is_flag(word, "overwrite") || mpi_is_flag(word, "resume")))
            continue;
        options = options && strcmp(word, "--") != 0;
        TRY(mst_text_list_add(out, word));
    }
    return MST_OK;
}

/* lost: the value of MST_PARENT_LOST_ENV; NULL: none. */
static mst_status mpi_start(mpi_launch *l, const mst_text_list *words, const char *lost)
{
    mst_status st;
    mst_text_list argv = {0}, env = {0};
    l->message[0] = l->zero[0] = l->last[0] = '\0';
    TRY_OUT(st, mst_mpi_launcher_words(l->job, &l->launcher, &l->plan, words, lost, &argv, &env));
    mst_process_start start = {.argv = (const char *const *)argv.items,
                               .env = (const char *const *)env.items,
                               .by_channel = true,
                               .terminate_ms = TERMINATE_MS};
    st = mst_child_start(l->child, &start);
out:
    mst_text_list_fini(&argv);
    mst_text_list_fini(&env);
    return st;
}

#define EXIT_NOTHING 4 /* with --fail-if-done: a rank's own end, and no reason to start again */

static bool mpi_lost_rank(const mpi_launch *l)
{
    return l->child->signal != 0 || (l->child->code >= 3 && l->child->code != EXIT_NOTHING &&
                                     mst_signals_of_exit_code(l->child->code) == 0);
}

/* "exit 1", "a rank was killed by SIGKILL"; out is returned. */
static const char *mpi_how_ended(const mpi_launch *l, char *out, size_t size)
{
    char name[32];
    if (l->child->signal != 0)
        snprintf(out, size, "%s was killed by %s", l->names[l->n_ranks],
                 mst_signal_name(l->child->signal, name, sizeof name));
    else if (l->child->code > 128 && l->child->code < 128 + 65)
        snprintf(out, size, "a rank was killed by %s",
                 mst_signal_name(l->child->code - 128, name, sizeof name));
    else if (l->child->code > EXIT_NOTHING)
        snprintf(out, size, "a rank died, exit %d", l->child->code);
    else
        snprintf(out, size, "exit %d", l->child->code);
    return out;
}

/* The rank and its error, with ": " in front; out is returned. */
static const char *mpi_why_ended(const mpi_launch *l, char *out, size_t size)
{
    if (l->message[0] != '\0')
        snprintf(out, size, ": %s: %s", l->names[l->failed_rank], l->message);
    else
        snprintf(out, size, "%s%s", l->last[0] != '\0' ? ": " : "", l->last);
    return out;
}

static mst_status mpi_restart(mpi_launch *l)
{
    mst_status st;
    mst_text_list words = {0};
    char how[64], why[MESSAGE_MAX + 32], lost[MESSAGE_MAX + 160];
    bool from_start;
    TRY_OUT(st, mpi_restart_words(l, &words, &from_start));
    mpi_why_ended(l, why, sizeof why);
    why[strcspn(why, ";")] = '\0'; /* how to resume it follows */
    int at = snprintf(lost, sizeof lost, "%.3f ", l->lost_at);
    snprintf(lost + at, sizeof lost - (size_t)at, "the job ended (%s)%s", mpi_how_ended(l, how, sizeof how),
             why);
    mst_launch_note(l->job->sink, "launch: %s; restart %u, %s", lost + at, mst_child_restarts(l->child) + 1,
                    from_start ? "from the beginning: there is no checkpoint" : "with --resume");
    st = mpi_start(l, &words, l->run[0] != '\0' ? lost : NULL);
out:
    mst_text_list_fini(&words);
    return st;
}

/* ---- the hosts that are left ---- */

static mst_child *mpi_probe(const mpi_launch *l, size_t host)
{
    return mst_supervisor_child(l->supervisor, (uint32_t)host + 1);
}

/* All probes have ended: the ranks of hosts that failed are left out. */
static void mpi_probed(mpi_launch *l)
{
    uint32_t n = 0;
    uv_timer_stop(&l->probe_deadline);
    l->probing = false;
    if (mst_supervisor_stopped_by(l->supervisor) != 0)
        return;
    for (size_t h = 0; h < l->plan.n_hosts; h++) {
        bool reached = mpi_probe(l, h)->code == 0 && mpi_probe(l, h)->signal == 0;
        if (!reached)
            mst_launch_note(l->job->sink, "launch: %s cannot be reached; its ranks are left out",
                            l->plan.hosts[h].name);
        l->plan.hosts[h].n_workers = reached ? l->slots[h] : 0;
        n += l->plan.hosts[h].n_workers;
    }
    mst_status st = n > 0 ? MST_OK : mst_fail(MST_EPEER, "launch: no host can be reached any more");
    l->plan.n_workers = n;
    if (st == MST_OK)
        st = mpi_restart(l);
    if (st != MST_OK)
        mst_error_save(&l->broken, st);
}

static void mpi_on_probe_deadline(uv_timer_t *timer)
{
    mpi_launch *l = timer->data;
    for (size_t h = 0; h < l->plan.n_hosts; h++)
        mst_child_kill(mpi_probe(l, h));
}

static mst_status mpi_start_probe(mpi_launch *l, size_t host)
{
    static const char script[] = "exit 0\n";
    mst_status st;
    mst_text_list argv = {0};
    TRY_OUT(st, mst_remote_argv(l->job->ssh, l->plan.hosts[host].name, &argv));
    mst_process_start start = {.argv = (const char *const *)argv.items,
                               .input = script,
                               .n_input = sizeof script - 1,
                               .by_channel = true};
    st = mst_child_start(mpi_probe(l, host), &start);
out:
    mst_text_list_fini(&argv);
    return st;
}

static void mpi_on_restart(void *arg, mst_child *child)
{
    mpi_launch *l = arg;
    (void)child;
    mst_status st = MST_OK;
    l->probing = l->plan.n_hosts > 0;
    for (size_t h = 0; st == MST_OK && h < l->plan.n_hosts; h++)
        st = mpi_start_probe(l, h);
    if (l->probing && st == MST_OK)
        uv_timer_start(&l->probe_deadline, mpi_on_probe_deadline, PROBE_MS, 0);
    else if (st == MST_OK)
        st = mpi_restart(l);
    if (st != MST_OK)
        mst_error_save(&l->broken, st);
}

static void mpi_on_ended(void *arg, mst_child *child)
{
    mpi_launch *l = arg;
    if (child != l->child) {
        bool running = false;
        for (size_t h = 0; h < l->plan.n_hosts; h++)
            running = running || mpi_probe(l, h)->running;
        if (l->probing && !running)
            mpi_probed(l);
        return;
    }
    for (uint32_t r = 0; r < l->n_ranks; r++) {
        mpi_flush(l, r, false);
        mpi_flush(l, r, true);
    }
    /* A rank that was lost counts as a signal from outside, unless it crashed. */
    int number = child->signal != 0 ? child->signal : child->code > 128 ? child->code - 128 : SIGKILL;
    if (l->lost_at == 0)
        l->lost_at = mst_wall_s();
    if (mpi_lost_rank(l))
        (void)mst_child_restart(child, l->job->max_restarts, number, false);
}

/* ---- the whole ---- */

static mst_status mpi_outcome(const mpi_launch *l)
{
    char how[64], why[MESSAGE_MAX + 32], times[64] = "";
    if (mst_child_restarts(l->child) > 0)
        snprintf(times, sizeof times, "; %u restart%s", mst_child_restarts(l->child),
                 mst_child_restarts(l->child) == 1 ? "" : "s");
    if (l->broken.code != MST_OK)
        return mst_error_restore(&l->broken);
    int stopped_by = mst_supervisor_stopped_by(l->supervisor);
    if (stopped_by == 0)
        stopped_by = mst_signals_of_exit_code(l->child->code);
    if (stopped_by != 0 && l->child->signal == 0 && l->child->code == 0)
        stopped_by = 0; /* it was done */
    bool failed =
        l->child->signal == 0 && l->child->code > 0 && l->child->code < 3; /* to save, for instance */
    if (stopped_by != 0 && !failed) {
        char ranks[32];
        bool reported = l->zero[0] != '\0';
        uint32_t n = l->n_ranks;
        mst_signals_note(stopped_by);
        mst_signal_name(stopped_by, how, sizeof how);
        if (l->child->killed)
            return mst_fail(MST_ETIMEOUT,
                            "launch: stopped by %s; %u rank%s killed; no final checkpoint was saved%s", how,
                            n, n == 1 ? " was" : "s were", times);
        snprintf(ranks, sizeof ranks, n == 1 ? "its rank" : n == 2 ? "both ranks" : "all %u ranks", n);
        return mst_fail_lead(MST_ESTOPPED, "launch: stopped", "; %s ended%s%s%s", ranks, times,
                             reported ? "; rank 0: " : "", l->zero);
    }
    if (l->child->code == EXIT_NOTHING && l->message[0] != '\0')
        return mst_fail(MST_EDONE, "launch: %s", l->message);
    if (l->child->code != 0 || l->child->signal != 0)
        return mst_fail(mpi_lost_rank(l)                 ? MST_EPEER
                        : l->child->code == EXIT_NOTHING ? MST_EDONE
                        : l->child->code == 2            ? MST_EUSAGE
                                                         : MST_EINPUT,
                        "launch: the job failed (%s)%s%s", mpi_how_ended(l, how, sizeof how),
                        mpi_why_ended(l, why, sizeof why), times);
    mst_launch_note(l->job->sink, "launch: done, %u rank%s, %.1f s%s", l->n_ranks, l->n_ranks == 1 ? "" : "s",
                    mst_seconds_since(l->began_ns), times);
    return MST_OK;
}

/* MPI's host lists have neither users nor second addresses. */
static mst_status mpi_check_hosts(const mpi_launch *l)
{
    for (size_t i = 0; i < l->plan.n_hosts; i++) {
        const mst_host *h = &l->plan.hosts[i];
        if (strcmp(h->name, h->address) != 0)
            return mst_fail(
                MST_EUSAGE,
                "%s: %s: with --mpi a host has one name; put users and addresses into ~/.ssh/config "
                "and /etc/hosts",
                l->job->hosts_file, h->name);
    }
    return MST_OK;
}

static mst_status mpi_prepare(mpi_launch *l)
{
    const mst_mpi_job *job = l->job;
    uint32_t n = job->n_ranks;
    TRY(mst_mpi_launcher_find(job->kind, &l->launcher));
    if (n == 0)
        TRY(mst_plan_slots(job->hosts_file, &n));
    mst_plan_request request = {.hosts_file = job->hosts_file, .job = job->name, .n_workers = n, .port = 1};
    TRY(mst_plan_make(&request, &l->plan));
    TRY(mpi_check_hosts(l));
    l->names = mst_calloc((size_t)n + 1, sizeof *l->names);
    l->parts = mst_calloc((size_t)n * 2, sizeof *l->parts);
    l->slots = mst_calloc(l->plan.n_hosts + 1, sizeof *l->slots);
    if (l->names == NULL || l->parts == NULL || l->slots == NULL)
        return mst_fail_memory();
    l->n_ranks = n;
    for (size_t h = 0; h < l->plan.n_hosts; h++)
        l->slots[h] = l->plan.hosts[h].n_workers;
    for (uint32_t r = 0; r <= n; r++) {
        if (r < n)
            snprintf(l->names[r], sizeof l->names[r], "rank %u", r);
        else
            snprintf(l->names[r], sizeof l->names[r], "%s",
                     l->launcher.kind == MST_MPI_KIND_OPENMPI ? "mpirun" : "mpiexec");
    }
    return MST_OK;
}

static mst_status mpi_run(mpi_launch *l)
{
    static const mst_supervisor_events events = {.on_line = mpi_on_line,
                                                 .on_ended = mpi_on_ended,
                                                 .on_restart = mpi_on_restart,
                                                 .on_stop = mpi_on_stop,
                                                 .on_checkpoint = mpi_on_checkpoint};
    TRY(mpi_prepare(l));
    TRY(mst_supervisor_new(1 + (uint32_t)l->plan.n_hosts, &events, l, &l->supervisor));
    mst_supervisor_timer(l->supervisor, &l->probe_deadline, l);
    l->child = mst_supervisor_child(l->supervisor, 0);
    TRY(mpi_start(l, l->job->words, NULL));
    if (strcmp(l->job->words->items[0], "train") != 0)
        mst_job_entry_started(l->job->entry);
    mst_supervisor_run(l->supervisor);
    return mpi_outcome(l);
}

mst_status mst_mpi_job_run(const mst_mpi_job *job)
{
    mpi_launch *l = mst_zalloc(sizeof *l);
    if (l == NULL)
        return mst_fail_memory();
    l->job = job;
    l->began_ns = mst_now_ns();
    mst_status st = mpi_run(l);
    mst_supervisor_destroy(l->supervisor);
    for (uint32_t i = 0; l->parts != NULL && i < 2 * l->n_ranks; i++)
        mst_free(l->parts[i].text);
    mst_plan_fini(&l->plan);
    mst_free(l->parts);
    mst_free(l->names);
    mst_free(l->slots);
    mst_free(l);
    return st;
}
