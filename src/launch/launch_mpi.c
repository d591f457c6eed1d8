/* An MPI job from start to end, restarts included; contract in launch_mpi.h.
 *
 *   launch_plan (ranks on hosts) -> launch_mpi_words (argv) -> launch_procs (the launcher, one process)
 *                                        policy, here <- lines and its end -> launch_output
 *
 * Policy:
 * 1. The launcher's exit code is the job's: 0 done, 1 and 2 as muster's own, 129, 130 and 143 a rank that was
 * asked to stop, 3 and all others a rank that died (Open MPI tells 128 + signal, MPICH ors what its ranks
 * returned).
 * 2. A job that lost a rank is started again while there are restarts left and nobody asked it to end. The
 * words are those of the first start, with --resume in the place of --overwrite; while the run has saved
 * nothing, it begins anew.
 * 3. SIGINT, SIGTERM and SIGHUP close the launcher's standard input, which asks rank 0 to save and end; after
 * the grace the launcher gets SIGTERM, which ends all ranks, and LATE_MS later it is killed with all that
 * descends from it. A second signal kills at once. SIGUSR1 goes to rank 0.
 *
 * Lines: the launcher puts a rank's tag before every line, and before every part of a line that it received
 * in parts, between which parts of other ranks' lines may come. So a tag anywhere switches to that rank, and
 * what it has said so far waits until its line ends. What has no tag is the launcher's own. */
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
#include "cli/cli.h"
#include "launch/launch_output.h"
#include "launch/launch_procs.h"
#include "launch/signal_loop.h"
#include "run/checkpoint.h"

#define SENTENCE_MAX   700
#define LATE_MS        5000 /* for the launcher to end its ranks, once it is asked to */
#define TAG_MAX        32
#define PART_MAX       ((size_t)64 << 10)
#define DESCENDANT_MAX 4096

typedef enum phase { PHASE_RUN, PHASE_STOPPING, PHASE_ENDING, PHASE_KILLING } phase;

/* The beginning of a rank's line on one stream. */
typedef struct part {
    char *text;
    size_t n, capacity;
} part;

typedef struct mpi_launch {
    const mst_mpi_job *job;
    mst_plan plan;
    mst_mpi_launcher launcher;
    mst_signal_loop loop;
    uv_timer_t grace;
    mst_procs *procs;
    mst_output *output;
    char (*names)[24]; /* of the ranks, then of the launcher */
    part *parts;       /* of rank r on stream s: 2 r + s */
    uint32_t n_ranks, proc, restarts;
    phase phase;
    bool running;
    int code, signal;            /* of the launcher's last end */
    char sentence[SENTENCE_MAX]; /* the first error of a rank */
    char zero[SENTENCE_MAX];     /* the last error of rank 0 */
    char last[SENTENCE_MAX];     /* the launcher's last line */
    uint32_t speaker;            /* of sentence */
    int stopped_by;              /* signal; 0: nobody */
    mst_error broken;            /* a failure of launch itself; code MST_OK: none */
    uint64_t began_ns;
} mpi_launch;

/* ---- lines ---- */

/* The length of the tag that text begins with, and its rank; 0: none. */
static size_t tag_length(const char *text, size_t n, uint32_t n_ranks, uint32_t *rank)
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

static void copy_line(char *out, const char *text, size_t n)
{
    snprintf(out, SENTENCE_MAX, "%.*s", (int)(n < SENTENCE_MAX ? n : SENTENCE_MAX), text);
}

static void whole_line(mpi_launch *l, uint32_t rank, bool is_error, const char *text, size_t n)
{
    if (n > 0 && text[n - 1] == '\r') /* Open MPI gives ranks a terminal to print on */
        n--;
    bool fault = n >= 8 && memcmp(text, "muster: ", 8) == 0 &&
                 !(n >= 17 && memcmp(text, "muster: warning: ", 17) == 0);
    if (is_error && fault && rank == 0)
        copy_line(l->zero, text + 8, n - 8);
    if (is_error && fault && l->sentence[0] == '\0') {
        copy_line(l->sentence, text + 8, n - 8);
        l->speaker = rank;
    }
    mst_output_line(l->output, rank, is_error, text, n);
}

/* The launchers' banners have rules above and below, and empty lines. */
static void launcher_line(mpi_launch *l, bool is_error, const char *text, size_t n)
{
    size_t rule = 0;
    while (rule < n && strchr("-= ", text[rule]) != NULL)
        rule++;
    if (rule == n)
        return;
    if (strstr(l->last, "EXIT STRING") == NULL) /* MPICH's banner ends in general advice */
        copy_line(l->last, text + (*text == '=' ? rule : 0), n - (*text == '=' ? rule : 0));
    mst_output_line(l->output, l->n_ranks, is_error, text, n);
}

/* Keeps a part; false: there is no room, and it has to come out as a line. */
static bool keep(part *p, const char *text, size_t n)
{
    if (p->n + n > PART_MAX || !mst_grow(&p->text, &p->capacity, p->n + n, 1))
        return false;
    memcpy(p->text + p->n, text, n);
    p->n += n;
    return true;
}

static void flush(mpi_launch *l, uint32_t rank, bool is_error)
{
    part *p = &l->parts[2 * rank + is_error];
    if (p->n > 0)
        whole_line(l, rank, is_error, p->text, p->n);
    p->n = 0;
}

/* A piece of what the launcher printed: of a rank, or its own (rank n_ranks). */
static void piece(mpi_launch *l, uint32_t rank, bool is_error, const char *text, size_t n, bool ends)
{
    if (rank == l->n_ranks) {
        if (n > 0)
            launcher_line(l, is_error, text, n);
        return;
    }
    part *p = &l->parts[2 * rank + is_error];
    if (ends && p->n == 0) {
        whole_line(l, rank, is_error, text, n);
        return;
    }
    if (!keep(p, text, n)) {
        flush(l, rank, is_error);
        whole_line(l, rank, is_error, text, n);
    } else if (ends) {
        flush(l, rank, is_error);
    }
}

static void on_line(void *arg, uint32_t tag, bool is_error, const char *text, size_t n)
{
    mpi_launch *l = arg;
    uint32_t rank = l->n_ranks, next;
    size_t from = 0, length;
    (void)tag;
    for (size_t i = 0; i < n;) {
        if (text[i] != '[' || (length = tag_length(text + i, n - i, l->n_ranks, &next)) == 0) {
            i++;
            continue;
        }
        if (i > from)
            piece(l, rank, is_error, text + from, i - from, false);
        rank = next;
        i = from = i + length;
    }
    piece(l, rank, is_error, text + from, n - from, true);
}

/* ---- ending ---- */

/* Kills what descends from a process: ranks lead groups of their own. */
static void kill_descendants(int pid)
{
    int list[DESCENDANT_MAX] = {pid};
    size_t n = 1;
    for (size_t i = 0; i < n; i++) {
        char path[64];
        int child;
        snprintf(path, sizeof path, "/proc/%d/task/%d/children", list[i], list[i]);
        FILE *file = fopen(path, "re");
        while (file != NULL && n < DESCENDANT_MAX && fscanf(file, "%d", &child) == 1)
            list[n++] = child;
        if (file != NULL)
            fclose(file);
    }
    while (n > 1)
        kill(list[--n], SIGKILL);
}

static void kill_job(mpi_launch *l)
{
    l->phase = PHASE_KILLING;
    if (!l->running)
        return;
    kill_descendants(mst_procs_pid(l->procs, l->proc));
    mst_procs_kill(l->procs, l->proc);
}

static void on_grace(uv_timer_t *timer)
{
    mpi_launch *l = timer->data;
    if (l->phase == PHASE_STOPPING && l->running) {
        l->phase = PHASE_ENDING;
        kill(mst_procs_pid(l->procs, l->proc), SIGTERM);
        uv_timer_start(&l->grace, on_grace, LATE_MS, 0);
    } else {
        kill_job(l);
    }
}

static void stop_job(mpi_launch *l)
{
    l->phase = PHASE_STOPPING;
    if (l->running)
        mst_procs_stop_by(l->procs, l->proc, l->stopped_by);
    uv_timer_start(&l->grace, on_grace, (uint64_t)l->job->grace_s * 1000, 0);
}

static void on_signal(uv_signal_t *handle, int number)
{
    mpi_launch *l = handle->data;
    char name[32];
    if (number == SIGUSR1) {
        if (l->phase == PHASE_RUN && l->running)
            mst_procs_checkpoint(l->procs, l->proc);
        return;
    }
    if (l->stopped_by != 0) {
        kill_job(l);
        return;
    }
    l->stopped_by = number;
    mst_cli_note("launch: %s: asking the ranks to end, for %u s; again kills them",
                 mst_signal_name(number, name, sizeof name), l->job->grace_s);
    stop_job(l);
}

/* ---- starting ---- */

static bool is_flag(const char *word, const char *name)
{
    return strncmp(word, "--", 2) == 0 && strcmp(word + 2, name) == 0;
}

/* The words of a restart (rule 2). The caller ends the list. *anew: it does not resume. */
static mst_status restart_words(const mst_mpi_job *job, mst_text_list *out, bool *anew)
{
    bool resumes = false, options = true;
    char *found = NULL;
    struct stat is;
    for (size_t i = 0; i < job->words->n; i++)
        resumes = resumes || is_flag(job->words->items[i], "resume");
    /* A run that is not here is on the host of rank 0, whose business it is to find a checkpoint. */
    *anew = !resumes && stat(job->run, &is) == 0 && mst_checkpoint_find(job->run, &found) != MST_OK;
    mst_free(found);
    TRY(mst_text_list_add(out, job->words->items[0]));
    TRY(mst_text_list_add(out, *anew ? "--overwrite" : "--resume"));
    for (size_t i = 1; i < job->words->n; i++) {
        const char *word = job->words->items[i];
        if (options && (is_flag(word, "overwrite") || is_flag(word, "resume")))
            continue;
        options = options && strcmp(word, "--") != 0;
        TRY(mst_text_list_add(out, word));
    }
    return MST_OK;
}

static mst_status start_job(mpi_launch *l, const mst_text_list *words)
{
    mst_status st;
    mst_text_list argv = {0}, env = {0};
    l->sentence[0] = l->zero[0] = l->last[0] = '\0';
    TRY_OUT(st, mst_mpi_launcher_words(l->job, &l->launcher, &l->plan, words, &argv, &env));
    mst_proc_start start = {
        .argv = (const char *const *)argv.items, .env = (const char *const *)env.items, .by_channel = true};
    TRY_OUT(st, mst_procs_start(l->procs, &start, &l->proc));
    l->running = true;
out:
    mst_text_list_fini(&argv);
    mst_text_list_fini(&env);
    return st;
}

#define EXIT_NOTHING 4 /* with --fail-if-done: a rank's own end, and no reason to start again */

static bool lost_a_rank(const mpi_launch *l)
{
    return l->signal != 0 ||
           (l->code >= 3 && l->code != EXIT_NOTHING && mst_signals_of_exit_code(l->code) == 0);
}

/* "exit 1", "a rank was killed by SIGKILL"; out is returned. */
static const char *how_it_ended(const mpi_launch *l, char *out, size_t size)
{
    char name[32];
    if (l->signal != 0)
        snprintf(out, size, "%s was killed by %s", l->names[l->n_ranks],
                 mst_signal_name(l->signal, name, sizeof name));
    else if (l->code > 128 && l->code < 128 + 65)
        snprintf(out, size, "a rank was killed by %s", mst_signal_name(l->code - 128, name, sizeof name));
    else if (l->code > EXIT_NOTHING)
        snprintf(out, size, "a rank died, exit %d", l->code);
    else
        snprintf(out, size, "exit %d", l->code);
    return out;
}

/* Who said why, with ": " in front; out is returned. */
static const char *why_it_ended(const mpi_launch *l, char *out, size_t size)
{
    if (l->sentence[0] != '\0')
        snprintf(out, size, ": %s: %s", l->names[l->speaker], l->sentence);
    else
        snprintf(out, size, "%s%s", l->last[0] != '\0' ? ": " : "", l->last);
    return out;
}

static mst_status restart(mpi_launch *l)
{
    mst_status st;
    mst_text_list words = {0};
    char how[64], why[SENTENCE_MAX + 32];
    bool anew;
    l->restarts++;
    TRY_OUT(st, restart_words(l->job, &words, &anew));
    why_it_ended(l, why, sizeof why);
    why[strcspn(why, ";")] = '\0'; /* how to resume it follows */
    mst_cli_note("launch: the job ended (%s)%s; restart %u of %u, %s", how_it_ended(l, how, sizeof how), why,
                 l->restarts, l->job->max_restarts,
                 anew ? "from the beginning: there is no checkpoint" : "with --resume");
    st = start_job(l, &words);
out:
    mst_text_list_fini(&words);
    return st;
}

static void on_ended(void *arg, uint32_t tag, int code, int signal)
{
    mpi_launch *l = arg;
    (void)tag;
    for (uint32_t r = 0; r < l->n_ranks; r++) {
        flush(l, r, false);
        flush(l, r, true);
    }
    l->running = false;
    l->code = code;
    l->signal = signal;
    if (l->phase == PHASE_RUN && lost_a_rank(l) && l->restarts < l->job->max_restarts) {
        mst_status st = restart(l);
        if (st == MST_OK)
            return;
        mst_error_save(&l->broken, st);
    }
    uv_stop(&l->loop.uv);
}

/* ---- the whole ---- */

static mst_status outcome(const mpi_launch *l)
{
    char how[64], why[SENTENCE_MAX + 32], times[64] = "";
    if (l->restarts > 0)
        snprintf(times, sizeof times, "; %u restart%s", l->restarts, l->restarts == 1 ? "" : "s");
    if (l->broken.code != MST_OK)
        return mst_error_restore(&l->broken);
    int stopped_by = l->stopped_by != 0 ? l->stopped_by : mst_signals_of_exit_code(l->code);
    if (stopped_by != 0 && l->signal == 0 && l->code == 0)
        stopped_by = 0;                                         /* it was done */
    bool failed = l->signal == 0 && l->code > 0 && l->code < 3; /* to save, for instance */
    if (stopped_by != 0 && !failed) {
        char ranks[32];
        bool reported = l->zero[0] != '\0';
        uint32_t n = l->n_ranks;
        mst_signals_note(stopped_by);
        mst_signal_name(stopped_by, how, sizeof how);
        if (l->phase >= PHASE_ENDING)
            return mst_fail(MST_ETIMEOUT,
                            "launch: stopped by %s; %u rank%s killed; no final checkpoint was saved%s", how,
                            n, n == 1 ? " was" : "s were", times);
        snprintf(ranks, sizeof ranks, n == 1 ? "its rank" : n == 2 ? "both ranks" : "all %u ranks", n);
        return mst_fail_lead(MST_ESTOPPED, "launch: stopped", "; %s ended%s%s%s", ranks, times,
                             reported ? "; rank 0: " : "", l->zero);
    }
    if (l->code == EXIT_NOTHING && l->sentence[0] != '\0')
        return mst_fail(MST_EDONE, "launch: %s", l->sentence);
    if (l->code != 0 || l->signal != 0)
        return mst_fail(lost_a_rank(l)            ? MST_EPEER
                        : l->code == EXIT_NOTHING ? MST_EDONE
                        : l->code == 2            ? MST_EUSAGE
                                                  : MST_EINPUT,
                        "launch: the job failed (%s)%s%s", how_it_ended(l, how, sizeof how),
                        why_it_ended(l, why, sizeof why), times);
    mst_cli_note("launch: done, %u rank%s, %.1f s%s", l->n_ranks, l->n_ranks == 1 ? "" : "s",
                 mst_seconds_since(l->began_ns), times);
    return MST_OK;
}

/* MPI's host lists have neither users nor second addresses. */
static mst_status check_hosts(const mpi_launch *l)
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

static mst_status prepare(mpi_launch *l)
{
    const mst_mpi_job *job = l->job;
    uint32_t n = job->n_ranks;
    TRY(mst_mpi_launcher_find(job->kind, &l->launcher));
    if (n == 0)
        TRY(mst_plan_slots(job->hosts_file, &n));
    mst_plan_wish wish = {.hosts_file = job->hosts_file, .job = job->name, .n_workers = n, .port = 1};
    TRY(mst_plan_make(&wish, &l->plan));
    TRY(check_hosts(l));
    l->names = mst_calloc((size_t)n + 1, sizeof *l->names);
    l->parts = mst_calloc((size_t)n * 2, sizeof *l->parts);
    if (l->names == NULL || l->parts == NULL)
        return mst_fail_memory();
    l->n_ranks = n;
    TRY(mst_output_new(job->logs, n + 1, &l->output));
    for (uint32_t r = 0; r <= n; r++) {
        if (r < n)
            snprintf(l->names[r], sizeof l->names[r], "rank %u", r);
        else
            snprintf(l->names[r], sizeof l->names[r], "%s",
                     l->launcher.kind == MST_MPI_KIND_OPENMPI ? "mpirun" : "mpiexec");
        mst_output_name(l->output, r, l->names[r]);
    }
    if (job->plain)
        mst_output_plain(l->output, 0);
    return MST_OK;
}

static mst_status run_loop(mpi_launch *l)
{
    mst_status st;
    static const mst_proc_events events = {.line = on_line, .ended = on_ended};
    TRY_OUT(st, mst_signal_loop_init(&l->loop, on_signal, true, l));
    TRY_OUT(st, mst_procs_new(&l->loop.uv, &events, l, &l->procs));
    mst_signal_loop_timer(&l->loop, &l->grace, l);
    TRY_OUT(st, start_job(l, l->job->words));
    uv_run(&l->loop.uv, UV_RUN_DEFAULT);
    st = outcome(l);
out:
    mst_procs_destroy(l->procs);
    mst_signal_loop_fini(&l->loop);
    return st;
}

mst_status mst_mpi_job_run(const mst_mpi_job *job)
{
    mst_status st;
    mpi_launch *l = mst_zalloc(sizeof *l);
    if (l == NULL)
        return mst_fail_memory();
    l->job = job;
    l->began_ns = mst_now_ns();
    TRY_OUT(st, prepare(l));
    st = run_loop(l);
out:
    for (uint32_t i = 0; l->parts != NULL && i < 2 * l->n_ranks; i++)
        mst_free(l->parts[i].text);
    mst_output_destroy(l->output);
    mst_plan_fini(&l->plan);
    mst_free(l->parts);
    mst_free(l->names);
    mst_free(l);
    return st;
}
