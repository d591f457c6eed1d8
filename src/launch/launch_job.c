/* A job's processes from start to end; contract in launch_job.h.
 *
 *   launch_plan (who runs where) -> launch_remote (words and scripts) -> launch_procs (processes)
 *                                                policy, here <- lines and ends -> launch_output
 *
 * Policy:
 * 1. A worker that is killed, or that was stopped by a peer's failure (exit code 3), is lost: one line says
 * so, and the job goes on, since the servers decide. Without servers every worker is one, and nobody can be
 * lost.
 * 2. Any other end than exit code 0 is a failure. The others are given the grace to end by themselves, then
 * asked to, and a grace later killed. When server 0 fails for a reason of its own, nobody can go on: the
 * others are asked to end after a moment, in which whoever it blames can say why.
 * 3. What failed first is what is reported: the first failure with a reason of its own, else the first. A
 * server that fails with a reason of its own explains why workers have failed, unless it names one: they may
 * have met the server of another job at an address that theirs could not get.
 * 4. SIGINT, SIGTERM and SIGHUP ask all processes to end and kill those left after the grace; a second one
 * kills them at once. SIGUSR1 goes to server 0. A job that was stopped and saved ends with MST_ESTOPPED, and
 * names the command that resumes it, which server 0 prints.
 * 5. When server 0 (worker 0 where workers host the model) has ended well, the job has: the others are given
 * the grace, and are then lost.
 * 6. Nothing is left behind (launch_procs.h). */
#include "launch/launch_job.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/signals.h"
#include "cli/cli.h"
#include "launch/launch_output.h"
#include "launch/launch_procs.h"
#include "launch/launch_remote.h"
#include "launch/parent_pipe.h"
#include "launch/signal_loop.h"
#include "run/run_dir.h"

#define PROC_NONE    UINT32_MAX
#define SENTENCE_MAX 700
#define MOMENT_MS    1000 /* for others to say why server 0 has failed */
#define FINISH_MS    2000 /* that the others have after server 0's good end, however short the grace */

typedef enum phase {
    PHASE_COPY,     /* the program is on its way to the hosts */
    PHASE_RUN,      /* all members run, or have ended well */
    PHASE_FINISH,   /* server 0 has ended well; the others are about to */
    PHASE_FAILING,  /* one has failed; the others may end by themselves */
    PHASE_STOPPING, /* they are asked to end */
    PHASE_KILLING,  /* they are killed */
} phase;

/* A member of the job, or the keeper of a host's copy of the program (which has no member in the plan). */
typedef struct actor {
    const mst_launch_member *member; /* NULL: a keeper */
    const mst_host *host;            /* NULL: here */
    char name[24];
    uint32_t proc;
    bool started, ended, late, lost,
        killed; /* late: never began; lost: the job went on without; killed: by us */
    int code, signal;
    char sentence[SENTENCE_MAX]; /* the last error it printed */
    char last[SENTENCE_MAX];     /* the last line on standard error */
    char origin[24];             /* the process that its failure began in; "": its own */
} actor;

typedef struct launch {
    const mst_launch_job *job;
    mst_signal_loop loop;
    uv_timer_t grace, start;
    mst_procs *procs;
    mst_output *output;
    actor *actors; /* members, then keepers; index into it is what output knows */
    uint32_t n_actors, n_keepers, n_copied, members_left;
    phase phase;
    actor *first;     /* what failed first */
    actor *witness;   /* the first that was stopped by a peer's failure */
    int stopped_by;   /* signal; 0: nobody */
    mst_error broken; /* a failure of launch itself; code MST_OK: none */
    uint64_t began_ns;
} launch;

/* ---- ending ---- */

static void on_grace(uv_timer_t *timer);

static uint64_t grace_ms(const launch *l)
{
    return (uint64_t)l->job->grace_s * 1000;
}

static void arm(launch *l)
{
    uv_timer_start(&l->grace, on_grace, grace_ms(l), 0);
}

/* Keepers live until the last member has ended; then the end of their input ends them. */
static void release_keepers(launch *l)
{
    for (uint32_t i = 0; i < l->n_actors; i++)
        if (l->actors[i].member == NULL && l->actors[i].proc != PROC_NONE)
            mst_procs_stop(l->procs, l->actors[i].proc);
}

static void stop_all(launch *l)
{
    if (l->phase == PHASE_COPY)
        l->members_left = 0; /* none of them has been started */
    l->phase = PHASE_STOPPING;
    for (uint32_t i = 0; i < l->n_actors; i++)
        if (l->actors[i].member != NULL && l->actors[i].proc != PROC_NONE && !l->actors[i].ended)
            mst_procs_stop_by(l->procs, l->actors[i].proc, l->stopped_by != 0 ? l->stopped_by : SIGTERM);
    if (l->members_left == 0)
        release_keepers(l);
    arm(l);
}

static void kill_all(launch *l)
{
    l->phase = PHASE_KILLING;
    for (uint32_t i = 0; i < l->n_actors; i++) {
        actor *a = &l->actors[i];
        if (a->proc != PROC_NONE && !a->ended) {
            a->killed = true;
            mst_procs_kill(l->procs, a->proc);
        }
    }
}

static void on_grace(uv_timer_t *timer)
{
    launch *l = timer->data;
    for (uint32_t i = 0; l->phase == PHASE_FINISH && i < l->job->plan->n_members; i++)
        if (!l->actors[i].ended)
            mst_cli_note("launch: %s still runs though %s has ended, and is asked to end", l->actors[i].name,
                         l->actors[0].name);
    if (l->phase == PHASE_FINISH || l->phase == PHASE_FAILING)
        stop_all(l);
    else
        kill_all(l);
}

static void on_signal(uv_signal_t *handle, int number)
{
    launch *l = handle->data;
    char name[32];
    if (number == SIGUSR1) {
        if (l->phase == PHASE_RUN && l->actors[0].proc != PROC_NONE)
            mst_procs_checkpoint(l->procs, l->actors[0].proc);
        return;
    }
    if (l->stopped_by != 0) {
        kill_all(l);
        return;
    }
    l->stopped_by = number;
    mst_cli_note("launch: %s: asking all processes to end, for %d s; again kills them",
                 mst_signal_name(number, name, sizeof name), (int)l->job->grace_s);
    if (l->phase != PHASE_KILLING)
        stop_all(l);
}

/* A failure of launch itself: everything that runs is stopped, and the sentence kept for the end. */
static void break_off(launch *l, mst_status st)
{
    if (l->broken.code == MST_OK)
        mst_error_save(&l->broken, st);
    if (l->phase < PHASE_STOPPING)
        stop_all(l);
}

/* ---- failing ---- */

/* The signal that it was asked to stop by and ended in good order; 0: none. */
static int stop_signal(const actor *a)
{
    return a->ended && a->signal == 0 ? mst_signals_of_exit_code(a->code) : 0;
}

/* "exit 1", "killed by SIGKILL", "stopped by SIGTERM", "connection lost"; out is returned. */
static const char *how_it_ended(const actor *a, char *out, size_t size)
{
    char name[32];
    if (a->late)
        snprintf(out, size, "not started in time");
    else if (a->signal != 0)
        snprintf(out, size, "killed by %s", mst_signal_name(a->signal, name, sizeof name));
    else if (stop_signal(a) != 0)
        snprintf(out, size, "stopped by %s", mst_signal_name(stop_signal(a), name, sizeof name));
    else if (a->host != NULL && a->code == 255)
        snprintf(out, size, a->started ? "killed, or the connection to %s lost" : "%s cannot be reached",
                 a->host->name);
    else
        snprintf(out, size, "exit %d", a->code);
    return out;
}

/* Killed, or cut off: nothing that it decided itself. */
static bool was_taken(const actor *a)
{
    return !a->late && (a->signal != 0 || (a->host != NULL && a->started && a->code == 255));
}

/* Rule 1: the job can do without it. */
static bool is_lost(const launch *l, const actor *a)
{
    return a->member->role == MST_ROLE_WORKER && l->job->plan->n_servers > 0 &&
           (was_taken(a) || a->code == 3);
}

/* Whether a worker is left to train. */
static bool has_workers(const launch *l)
{
    for (uint32_t i = 0; i < l->job->plan->n_members; i++)
        if (l->actors[i].member->role == MST_ROLE_WORKER && !l->actors[i].ended)
            return true;
    return false;
}

static bool ended_well(const actor *a)
{
    return a->ended && a->code == 0 && a->signal == 0;
}

/* Rule 5. A worker that starts late would look for server 0 in vain, and learns it from here. */
static void begin_finish(launch *l)
{
    l->phase = PHASE_FINISH;
    for (uint32_t i = 0; i < l->job->plan->n_members; i++)
        if (l->actors[i].proc != PROC_NONE && !l->actors[i].ended)
            (void)mst_procs_write(l->procs, l->actors[i].proc, MST_PARENT_ENDED, 1);
    uv_timer_start(&l->grace, on_grace, grace_ms(l) > FINISH_MS ? grace_ms(l) : FINISH_MS, 0);
}

/* Rule 2: what is left of the grace becomes a moment. */
static void begin_failing(launch *l, const actor *a)
{
    char how[320];
    bool own_reason = a == &l->actors[0] && a->signal == 0 && a->code != 3 && !a->late;
    bool first = l->phase < PHASE_FAILING;
    uint64_t left_ms = first ? grace_ms(l) : uv_timer_get_due_in(&l->grace);
    l->phase = PHASE_FAILING;
    how_it_ended(a, how, sizeof how);
    const char *failed = stop_signal(a) != 0 ? "ended" : "failed";
    if (own_reason)
        mst_cli_note("launch: %s %s (%s)%s", a->name, failed, how,
                     l->members_left > 0 ? "; the others are asked to end" : "");
    else if (first)
        mst_cli_note(l->members_left > 0 ? "launch: %s %s (%s); the others have %d s to end"
                                         : "launch: %s %s (%s)",
                     a->name, failed, how, (int)l->job->grace_s);
    if (first || own_reason)
        uv_timer_start(&l->grace, on_grace, own_reason && left_ms > MOMENT_MS ? MOMENT_MS : left_ms, 0);
}

static void member_ended(launch *l, actor *a)
{
    char how[320];
    l->members_left--;
    if (ended_well(a)) {
        if (a == &l->actors[0] && l->phase == PHASE_RUN)
            begin_finish(l);
        return;
    }
    bool by_peer = a->signal == 0 && a->code == 3;
    if (by_peer && l->witness == NULL)
        l->witness = a;
    if (l->phase >= PHASE_STOPPING) {
        a->lost = ended_well(&l->actors[0]) && l->first == NULL;
        return;
    }
    if (is_lost(l, a)) {
        a->lost = l->phase == PHASE_RUN || l->phase == PHASE_FINISH;
        if (a->lost)
            mst_cli_note("launch: %s is lost (%s)%s%s", a->name, how_it_ended(a, how, sizeof how),
                         a->sentence[0] != '\0' ? ": "
                         : has_workers(l)       ? "; the job continues without it"
                                                : "",
                         a->sentence);
        return;
    }
    bool first_by_peer = l->first != NULL && l->first->signal == 0 && l->first->code == 3;
    bool explains = l->first != NULL && l->first->member->role == MST_ROLE_WORKER &&
                    a->member->role == MST_ROLE_SERVER && a->signal == 0 && (a->code == 1 || a->code == 2);
    if (l->first == NULL || (first_by_peer && !by_peer) || explains)
        l->first = a;
    begin_failing(l, a);
}

/* ---- events ---- */

static void start_members(launch *l);

static void copy_line(char *out, const char *text, size_t n)
{
    snprintf(out, SENTENCE_MAX, "%.*s", (int)(n < SENTENCE_MAX ? n : SENTENCE_MAX), text);
}

static bool is_text(const char *text, size_t n, const char *expected)
{
    return n == strlen(expected) && memcmp(text, expected, n) == 0;
}

static void on_line(void *arg, uint32_t tag, bool is_error, const char *text, size_t n)
{
    launch *l = arg;
    actor *a = &l->actors[tag];
    if (is_error && is_text(text, n, MST_REMOTE_STARTED)) {
        a->started = true;
        return;
    }
    if (a->member == NULL && !is_error && is_text(text, n, MST_REMOTE_COPIED)) {
        a->started = true;
        if (++l->n_copied == l->n_keepers && l->phase == PHASE_COPY)
            start_members(l);
        return;
    }
    size_t origin = strlen(MST_PARENT_ORIGIN);
    if (is_error && n > origin && memcmp(text, MST_PARENT_ORIGIN, origin) == 0) {
        snprintf(a->origin, sizeof a->origin, "%.*s", (int)(n - origin), text + origin);
        return;
    }
    if (is_error && n >= 8 && memcmp(text, "muster: ", 8) == 0 &&
        !(n >= 17 && memcmp(text, "muster: warning: ", 17) == 0))
        copy_line(a->sentence, text + 8, n - 8);
    if (is_error && n > 0)
        copy_line(a->last, text, n);
    mst_output_line(l->output, tag, is_error, text, n);
}

static void on_ended(void *arg, uint32_t tag, int code, int signal)
{
    launch *l = arg;
    actor *a = &l->actors[tag];
    a->ended = true;
    /* A shell in between tells of a signal as 128 + its number; so does a muster that was asked to stop. */
    bool shell = a->host != NULL && signal == 0 && code > 128 && code < 128 + 65 &&
                 mst_signals_of_exit_code(code) == 0;
    a->code = code;
    a->signal = shell ? code - 128 : signal;
    if (a->member != NULL) {
        member_ended(l, a);
    } else if (!a->started && l->phase == PHASE_COPY) {
        break_off(l, mst_fail(MST_EPEER, "launch: the program cannot be copied to %s%s%s", a->host->name,
                              a->last[0] != '\0' ? ": " : "", a->last));
    }
    if (l->members_left == 0 && l->phase != PHASE_COPY)
        release_keepers(l);
    if (mst_procs_running(l->procs) == 0 && (l->members_left == 0 || l->phase >= PHASE_STOPPING))
        uv_stop(&l->loop.uv);
}

/* A host that does not answer must not keep the job waiting. */
static void on_start_deadline(uv_timer_t *timer)
{
    launch *l = timer->data;
    for (uint32_t i = 0; i < l->n_actors; i++) {
        actor *a = &l->actors[i];
        if (a->host == NULL || a->started || a->ended || a->proc == PROC_NONE)
            continue;
        if (l->phase == PHASE_COPY) {
            break_off(l, mst_fail(MST_ETIMEOUT,
                                  "launch: %s has not taken the program within %d s; is it reachable by "
                                  "'%s %s'?",
                                  a->host->name, (int)l->job->start_s, l->job->ssh, a->host->name));
            mst_procs_kill(l->procs, a->proc);
        } else {
            a->late = true;
            snprintf(a->sentence, sizeof a->sentence,
                     "%s has not answered within %d s; is it reachable by '%s %s'?", a->host->name,
                     (int)l->job->start_s, l->job->ssh, a->host->name);
            mst_procs_kill(l->procs, a->proc);
        }
    }
}

/* ---- starting ---- */

/* A folder per host, also where hosts share their file systems; out is returned. */
static const char *copy_folder(const launch *l, const actor *a, char *out, size_t size)
{
    snprintf(out, size, "%s-%d", l->job->copy_folder, (int)(a->host - l->job->plan->hosts));
    return out;
}

static mst_status start_member(launch *l, actor *a)
{
    mst_status st;
    char index[16], grace[24], folder[96], copied[112] = "";
    mst_text_list words = {0};
    bool remote = a->host != NULL;
    snprintf(index, sizeof index, "%u", a->member->index);
    snprintf(grace, sizeof grace, "%d", (int)l->job->grace_s);
    const mst_variable variables[] = {{"MUSTER_CLUSTER", l->job->cluster_text},
                                      {"MUSTER_SECRET", l->job->secret},
                                      {"MUSTER_JOB", l->job->name},
                                      {"MUSTER_WATCH_STDIN", grace},
                                      {MST_RUN_LAUNCH_ENV, l->job->command},
                                      {"TF_CONFIG", NULL},
                                      {NULL, NULL}};
    if (remote && l->job->copy_folder != NULL)
        snprintf(copied, sizeof copied, "%s/muster", copy_folder(l, a, folder, sizeof folder));
    TRY_OUT(st, mst_text_list_add(&words, *copied != '\0' ? copied : l->job->program));
    TRY_OUT(st, mst_text_list_add(&words, l->job->words->items[0]));
    TRY_OUT(st, mst_text_list_add(&words, "--role"));
    TRY_OUT(st, mst_text_list_add(&words, a->member->role == MST_ROLE_SERVER ? "server" : "worker"));
    TRY_OUT(st, mst_text_list_add(&words, "--index"));
    TRY_OUT(st, mst_text_list_add(&words, index));
    for (size_t i = 1; i < l->job->words->n; i++)
        TRY_OUT(st, mst_text_list_add(&words, l->job->words->items[i]));
    TRY_OUT(st, mst_text_list_end(&words));
    st = mst_start_anywhere(l->procs, remote ? l->job->ssh : NULL, remote ? a->host->name : NULL, variables,
                            (const char *const *)words.items, (uint32_t)(a - l->actors), &a->proc);
out:
    mst_text_list_fini(&words);
    return st;
}

static void start_members(launch *l)
{
    l->phase = PHASE_RUN;
    for (uint32_t i = 0; i < l->job->plan->n_members; i++) {
        mst_status st = start_member(l, &l->actors[i]);
        if (st != MST_OK) {
            l->members_left -= l->job->plan->n_members - i;
            break_off(l, st);
            return;
        }
    }
    if (l->job->plan->n_hosts > 0)
        uv_timer_start(&l->start, on_start_deadline, (uint64_t)l->job->start_s * 1000, 0);
}

static mst_status start_keeper(launch *l, actor *a)
{
    mst_status st;
    char folder[96];
    mst_text_list argv = {0};
    mst_script script = {0};
    TRY_OUT(st, mst_remote_copy_script(l->job->program, copy_folder(l, a, folder, sizeof folder), &script));
    TRY_OUT(st, mst_remote_argv(l->job->ssh, a->host->name, &argv));
    mst_proc_start start = {.tag = (uint32_t)(a - l->actors),
                            .argv = (const char *const *)argv.items,
                            .input = script.data,
                            .n_input = script.n,
                            .by_channel = true};
    st = mst_procs_start(l->procs, &start, &a->proc);
out:
    mst_text_list_fini(&argv);
    mst_script_fini(&script);
    return st;
}

static mst_status start_keepers(launch *l)
{
    l->phase = PHASE_COPY;
    for (uint32_t i = l->job->plan->n_members; i < l->n_actors; i++)
        TRY(start_keeper(l, &l->actors[i]));
    uv_timer_start(&l->start, on_start_deadline, (uint64_t)l->job->start_s * 1000, 0);
    return MST_OK;
}

/* ---- the outcome ---- */

/* "; worker 1 was lost (killed by SIGKILL), worker 2 ..."; out is returned. */
static const char *losses(const launch *l, bool taken_only, char *out, size_t size)
{
    char how[320];
    size_t n = 0;
    *out = '\0';
    for (uint32_t i = 0; i < l->job->plan->n_members && n + 1 < size; i++) {
        const actor *a = &l->actors[i];
        if (!a->lost || (!was_taken(a) && taken_only))
            continue;
        n += (size_t)snprintf(out + n, size - n, "%s %s was lost (%s%s%.*s)", n > 0 ? "," : ";", a->name,
                              how_it_ended(a, how, sizeof how), a->sentence[0] != '\0' ? ": " : "",
                              (int)strcspn(a->sentence, ";"), a->sentence);
    }
    return out;
}

static mst_status status_of(int code)
{
    switch (code) {
    case 2:
        return MST_EUSAGE;
    case 3:
        return MST_EPEER;
    case 4:
        return MST_EDONE;
    default:
        return MST_EINPUT;
    }
}

/* A server that ends the job because a worker failed reports the worker as the origin: the worker failed
 * first, whichever of the two ended first. */
static const actor *to_blame(const launch *l)
{
    for (uint32_t i = 0; l->first != NULL && i < l->job->plan->n_members; i++) {
        const actor *a = &l->actors[i];
        if (a != l->first && a->ended && a->signal == 0 && a->code != 0 && a->code != 3 &&
            strcmp(l->first->origin, a->name) == 0)
            return a;
    }
    return l->first;
}

/* After a signal, to launch or to one of the members: how process 0, which saves, has ended. */
static mst_status stopped_outcome(const launch *l, const actor *member, bool killed)
{
    char how[320], name[32], count[64], lead[80] = "launch: stopped";
    const actor *zero = &l->actors[0];
    uint32_t n = l->job->plan->n_members;
    mst_signal_name(member != NULL ? stop_signal(member) : l->stopped_by, name, sizeof name);
    mst_plan_count(l->job->plan, count, sizeof count);
    if (member != NULL)
        snprintf(lead, sizeof lead, "launch: %s was stopped", member->name);
    if (killed)
        return mst_fail(MST_ETIMEOUT, "%s by %s; %s %s killed; no final checkpoint was saved", lead, name,
                        count, n == 1 ? "was" : "were");
    if (zero->ended && zero->signal == 0 && zero->code != 0 && stop_signal(zero) == 0)
        return mst_fail(status_of(zero->code), "%s by %s; %s failed (%s): %s", lead, name, zero->name,
                        how_it_ended(zero, how, sizeof how), zero->sentence);
    if (member != NULL)
        mst_signals_note(stop_signal(member));
    snprintf(count, sizeof count, n == 1 ? "its process" : n == 2 ? "both processes" : "all %u processes", n);
    bool reported = zero->sentence[0] != '\0';
    return mst_fail_lead(MST_ESTOPPED, lead, "; %s ended%s%s%s%s", count, reported ? "; " : "",
                         reported ? zero->name : "", reported ? ": " : "", zero->sentence);
}

static mst_status outcome(const launch *l)
{
    char how[320], count[64], lost[512];
    uint32_t killed = 0;
    for (uint32_t i = 0; i < l->job->plan->n_members; i++)
        killed += l->actors[i].killed;
    if (l->broken.code != MST_OK)
        return mst_error_restore(&l->broken);
    if (l->first != NULL && stop_signal(to_blame(l)) != 0)
        return stopped_outcome(l, to_blame(l), killed > 0);
    if (l->first != NULL) {
        const actor *a = to_blame(l), *w = was_taken(a) && l->witness != NULL ? l->witness : a;
        const char *why = w->sentence[0] != '\0' ? w->sentence : w->last;
        if (!was_taken(a) && status_of(a->code) == MST_EDONE)
            return mst_fail(MST_EDONE, "launch: %s", why);
        /* Nobody decided that a server goes: its job was stopped by that, and can be resumed. */
        return mst_fail(was_taken(a) ? MST_EPEER : status_of(a->code),
                        "launch: %s failed first (%s)%s%s%s%s%s", a->name, how_it_ended(a, how, sizeof how),
                        w != a         ? "; "
                        : *why != '\0' ? ": "
                                       : "",
                        w != a ? w->name : "", w != a ? ": " : "", why, losses(l, true, lost, sizeof lost));
    }
    if (l->stopped_by != 0 && !ended_well(&l->actors[0]))
        return stopped_outcome(l, NULL, killed > 0);
    mst_plan_count(l->job->plan, count, sizeof count);
    mst_cli_note("launch: done, %s, %.1f s%s", count, mst_seconds_since(l->began_ns),
                 losses(l, false, lost, sizeof lost));
    return MST_OK;
}

static mst_status prepare_actors(launch *l)
{
    uint32_t n = l->job->plan->n_members;
    l->n_keepers = l->job->copy_folder != NULL ? (uint32_t)l->job->plan->n_hosts : 0;
    l->n_actors = n + l->n_keepers;
    l->members_left = n;
    l->actors = mst_calloc(l->n_actors, sizeof *l->actors);
    if (l->actors == NULL)
        return mst_fail_memory();
    for (uint32_t i = 0; i < l->n_actors; i++) {
        actor *a = &l->actors[i];
        a->member = i < n ? &l->job->plan->members[i] : NULL;
        uint32_t host = a->member != NULL ? a->member->host : i - n;
        a->host = host != MST_HOST_LOCAL ? &l->job->plan->hosts[host] : NULL;
        a->proc = PROC_NONE;
        if (a->member != NULL)
            snprintf(a->name, sizeof a->name, "%s", a->member->name);
        else
            snprintf(a->name, sizeof a->name, "copy %u", host);
    }
    return MST_OK;
}

static mst_status prepare_output(launch *l)
{
    TRY(mst_output_new(l->job->logs, l->n_actors, &l->output));
    for (uint32_t i = 0; i < l->n_actors; i++)
        mst_output_name(l->output, i, l->actors[i].name);
    if (l->job->plain)
        mst_output_plain(l->output, 0);
    return MST_OK;
}

/* The loop from its first to its last turn. */
static mst_status run_loop(launch *l)
{
    mst_status st = MST_OK;
    static const mst_proc_events events = {.line = on_line, .ended = on_ended};
    TRY_OUT(st, mst_signal_loop_init(&l->loop, on_signal, true, l));
    TRY_OUT(st, mst_procs_new(&l->loop.uv, &events, l, &l->procs));
    mst_signal_loop_timer(&l->loop, &l->grace, l);
    mst_signal_loop_timer(&l->loop, &l->start, l);
    if (l->n_keepers > 0) {
        st = start_keepers(l);
        if (st != MST_OK) {
            l->members_left = 0;
            break_off(l, st);
        }
    } else {
        start_members(l);
    }
    if (mst_procs_running(l->procs) > 0)
        uv_run(&l->loop.uv, UV_RUN_DEFAULT);
    st = outcome(l);
out:
    mst_procs_destroy(l->procs);
    mst_signal_loop_fini(&l->loop);
    return st;
}

mst_status mst_launch_job_run(const mst_launch_job *job)
{
    mst_status st;
    launch *l = mst_zalloc(sizeof *l);
    if (l == NULL)
        return mst_fail_memory();
    l->job = job;
    l->began_ns = mst_now_ns();
    TRY_OUT(st, prepare_actors(l));
    TRY_OUT(st, prepare_output(l));
    st = run_loop(l);
out:
    mst_output_destroy(l->output);
    mst_free(l->actors);
    mst_free(l);
    return st;
}
