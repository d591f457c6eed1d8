/* A job's processes from start to end; contract in launch_job.h.
 *
 *   launch_plan (processes on hosts) -> launch_remote (words and scripts) -> supervisor (processes)
 *                                                    policy, here <- lines and ends -> launch_sink
 *
 * Policy:
 * 1. A process that dies is started again, by the restart policy (restarts.h). Ends that no restart helps
 * against are excluded: a stop signal, wrong usage, failures that the process itself reports as such
 * (MST_PARENT_FINAL), and exit code 3 of server 0, which has ended the job in order. Processes that server 0
 * has ended (MST_PARENT_ORIGIN), with the job or alone (--on-nan drop), wait for its own end, and are started
 * again only with it.
 * 2. A worker that took part and is not started again is lost: one line reports it, and the job continues,
 * since the servers decide. This includes workers whose restarts fail. Without servers every worker holds
 * weights, and none can be lost.
 * 3. Any other end than exit code 0 is a failure. The other processes have the grace period to exit, then
 * receive SIGTERM, and SIGKILL after another grace period. If server 0 fails for a reason of its own, the job
 * cannot continue: the others receive SIGTERM after a short pause, in which the origin of the failure can
 * report it.
 * 4. The report names the failure that came first: the first with a reason of its own, else the first. A
 * server that fails with a reason of its own explains why workers failed, unless it names one as the origin:
 * they may have connected to the server of another job, at an address that was not free for theirs.
 * 5. SIGINT, SIGTERM and SIGHUP stop all processes, and those left after the grace period are killed; a
 * second signal kills them at once. SIGUSR1 is sent to server 0. A job that was stopped and saved ends with
 * MST_ESTOPPED and the message of server 0, which has the command that resumes the job.
 * 6. When server 0 (worker 0 if workers hold the weights) has ended well, the job has ended well: the others
 * have the grace period to exit, and count as lost after it.
 * 7. No process is left behind (supervisor.h). */
#include "launch/launch_job_impl.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/parent.h"
#include "base/signals.h"
#include "launch/core_pin.h"
#include "launch/launch_remote.h"
#include "launch/parent_pipe.h"
#include "run/run_dir.h"

#define MOMENT_MS      1000           /* for others to report why server 0 has failed */
#define START_SLACK_NS (500 * MST_MS) /* timers may be early */
#define FINISH_MS      2000 /* for the others to end after server 0 has ended well, however short the grace */

/* ---- ending ---- */

static uint64_t job_grace_ms(const mst_launch *l)
{
    return (uint64_t)l->job->grace_s * 1000;
}

/* Keepers run until the last member has ended; then the end of their input ends them. */
static void job_release_keepers(mst_launch *l)
{
    uint64_t grace_ms =
        job_grace_ms(l) > FINISH_MS ? job_grace_ms(l) : FINISH_MS; /* it has a folder to remove */
    for (uint32_t i = l->members_max; i < l->n_actors; i++)
        if (!l->actors[i].child->stopping)
            mst_child_stop(l->actors[i].child, SIGTERM, grace_ms);
}

/* No process is started again from here on. The failure of one that waits for its restart may have been the
 * first. */
static void job_end_restarts(mst_launch *l)
{
    for (uint32_t i = 0; i < l->n_members; i++) {
        mst_actor *a = &l->actors[i];
        if (!mst_child_cancel(a->child))
            continue;
        l->members_left--;
        a->lost = l->phase == MST_LAUNCH_FINISH;
        if (l->phase == MST_LAUNCH_FAILING && mst_actor_ended_by_peer(l->first) &&
            !mst_actor_ended_by_peer(a) && a->signal == 0)
            l->first = a;
    }
}

static void job_stop_all(mst_launch *l)
{
    int signal_got = mst_supervisor_stopped_by(l->supervisor);
    job_end_restarts(l);
    if (l->phase == MST_LAUNCH_COPY)
        l->members_left = 0; /* none of them has been started */
    l->phase = MST_LAUNCH_STOPPING;
    uv_timer_stop(&l->grace);
    for (uint32_t i = 0; i < l->n_members; i++)
        mst_child_stop(l->actors[i].child, signal_got != 0 ? signal_got : SIGTERM, job_grace_ms(l));
    if (l->members_left == 0)
        job_release_keepers(l);
}

static void job_on_grace(uv_timer_t *timer)
{
    mst_launch *l = timer->data;
    for (uint32_t i = 0; l->phase == MST_LAUNCH_FINISH && i < l->n_members; i++)
        if (l->actors[i].child->running)
            mst_launch_note(l->job->sink, "launch: %s is still running after %s ended; sending SIGTERM",
                            l->actors[i].child->name, l->actors[0].child->name);
    job_stop_all(l);
}

static void job_on_checkpoint(void *arg)
{
    mst_launch *l = arg;
    if (l->phase == MST_LAUNCH_RUN)
        mst_child_checkpoint(l->actors[0].child);
}

static void job_on_stop(void *arg, int number)
{
    mst_launch *l = arg;
    char name[32];
    mst_launch_note(l->job->sink,
                    "launch: %s: stopping all processes within %d s; a second signal kills them",
                    mst_signal_name(number, name, sizeof name), (int)l->job->grace_s);
    job_stop_all(l);
}

/* A failure of launch itself: everything that runs is stopped, and the message kept for the end. */
static void job_break(mst_launch *l, mst_status st)
{
    if (l->broken.code == MST_OK)
        mst_error_save(&l->broken, st);
    if (l->phase < MST_LAUNCH_STOPPING)
        job_stop_all(l);
}

/* ---- failing ---- */

/* Killed, or ended because of another process. */
static bool actor_ended_by_others(const mst_actor *a)
{
    return mst_actor_was_killed(a) || (!a->late && mst_actor_ended_by_peer(a));
}

/* Rule 2: the job can continue without it. */
static bool job_can_lose(const mst_launch *l, const mst_actor *a)
{
    return a->member->role == MST_ROLE_WORKER && l->job->plan->n_servers > 0 &&
           (actor_ended_by_others(a) || a->took_part);
}

/* Whether a worker is left to train. */
static bool job_has_workers(const mst_launch *l)
{
    for (uint32_t i = 0; i < l->n_members; i++)
        if (l->actors[i].member->role == MST_ROLE_WORKER &&
            (l->actors[i].child->running || l->actors[i].child->waiting))
            return true;
    return false;
}

/* Why the process is not started again: "; --max-restarts 10 is used up", or ""; out is returned. */
static const char *job_limit(const mst_launch *l, const mst_actor *a, char *out, size_t size)
{
    *out = '\0';
    if (a->limited)
        snprintf(out, size, "; it is not started again (--max-restarts %u%s)", l->job->max_restarts,
                 l->job->max_restarts > 0 ? " an hour" : "");
    return out;
}

/* Rule 1. */
static bool job_restart(mst_launch *l, mst_actor *a)
{
    char how[320];
    bool by_others = actor_ended_by_others(a);
    if (l->phase != MST_LAUNCH_RUN || (a == &l->actors[0] && mst_actor_ended_by_peer(a)) || a->late ||
        a->child->final || mst_actor_stop_signal(a) != 0 ||
        (a->signal == 0 && (a->child->code == 2 || a->child->code == 4)))
        return false;
    mst_restart_verdict verdict = mst_child_restart(a->child, l->job->max_restarts, a->signal, by_others);
    bool again = verdict == MST_RESTART_AGAIN;
    a->limited = verdict == MST_RESTART_SPENT;
    if (again)
        mst_launch_note(l->job->sink, "launch: %s died (%s)%s%s; restart %u", a->child->name,
                        mst_actor_how_ended(a, how, sizeof how), a->child->error[0] != '\0' ? ": " : "",
                        a->child->error, a->child->n_starts);
    a->took_part = a->took_part || by_others || !a->child->restarts.from_start;
    return again;
}

/* Rule 6. Notifies late workers, which could not connect to server 0. */
static void job_begin_finish(mst_launch *l)
{
    l->phase = MST_LAUNCH_FINISH;
    job_end_restarts(l);
    for (uint32_t i = 0; i < l->n_members; i++)
        l->actors[i].lost = l->actors[i].lost || l->actors[i].dismissed;
    for (uint32_t i = 0; i < l->n_members; i++)
        if (l->actors[i].child->running)
            (void)mst_child_write(l->actors[i].child, MST_PARENT_ENDED, 1);
    uv_timer_start(&l->grace, job_on_grace, job_grace_ms(l) > FINISH_MS ? job_grace_ms(l) : FINISH_MS, 0);
}

/* Rule 3: shortens the rest of the grace period. */
static void job_begin_failing(mst_launch *l, const mst_actor *a)
{
    char how[320], limit[64];
    bool own_reason = a == &l->actors[0] && a->signal == 0 && a->child->code != 3 && !a->late;
    bool first = l->phase < MST_LAUNCH_FAILING;
    uint64_t left_ms = first ? job_grace_ms(l) : uv_timer_get_due_in(&l->grace);
    l->phase = MST_LAUNCH_FAILING;
    job_end_restarts(l);
    mst_actor_how_ended(a, how, sizeof how);
    const char *failed = mst_actor_stop_signal(a) != 0 ? "ended" : "failed";
    if (own_reason)
        mst_launch_note(l->job->sink, "launch: %s %s (%s)%s%s", a->child->name, failed, how,
                        job_limit(l, a, limit, sizeof limit),
                        l->members_left > 0 ? "; stopping the other processes" : "");
    else if (first)
        mst_launch_note(l->job->sink,
                        l->members_left > 0 ? "launch: %s %s (%s)%s; the others have %d s to end"
                                            : "launch: %s %s (%s)%s",
                        a->child->name, failed, how, job_limit(l, a, limit, sizeof limit),
                        (int)l->job->grace_s);
    if (first || own_reason)
        uv_timer_start(&l->grace, job_on_grace, own_reason && left_ms > MOMENT_MS ? MOMENT_MS : left_ms, 0);
}

/* Whether server 0 has ended the job, and this process with it. */
static bool job_dismisses(const mst_launch *l, const mst_actor *a)
{
    const mst_child *zero = l->actors[0].child;
    return l->phase == MST_LAUNCH_RUN && zero->running && mst_actor_ended_by_peer(a) &&
           strcmp(a->child->origin, zero->name) == 0;
}

/* Server 0 does not wait for workers if none is left and none will be started. */
static void job_end_without_workers(mst_launch *l)
{
    if (!l->job->elastic && l->job->plan->n_servers > 0 && !job_has_workers(l))
        (void)mst_child_write(l->actors[0].child, MST_PARENT_NO_WORKERS, 1);
}

static void job_member_ended(mst_launch *l, mst_actor *a)
{
    char how[320], limit[64];
    a->dismissed = job_dismisses(l, a);
    if (!mst_actor_ended_well(a) && !a->dismissed && job_restart(l, a))
        return;
    l->members_left--;
    if (a->dismissed) {
        job_end_without_workers(l);
        return;
    }
    if (mst_actor_ended_well(a)) {
        if (a == &l->actors[0] && l->phase == MST_LAUNCH_RUN)
            job_begin_finish(l);
        return;
    }
    bool by_peer = mst_actor_ended_by_peer(a);
    if (by_peer && l->witness == NULL)
        l->witness = a;
    if (l->phase >= MST_LAUNCH_STOPPING) {
        a->lost = mst_actor_ended_well(&l->actors[0]) && l->first == NULL;
        return;
    }
    if (job_can_lose(l, a)) {
        a->lost = l->phase == MST_LAUNCH_RUN || l->phase == MST_LAUNCH_FINISH;
        if (a->lost)
            mst_launch_note(l->job->sink, "launch: %s is lost (%s)%s%s%s", a->child->name,
                            mst_actor_how_ended(a, how, sizeof how), a->child->error[0] != '\0' ? ": " : "",
                            a->child->error, job_limit(l, a, limit, sizeof limit));
        if (a->lost)
            job_end_without_workers(l);
        return;
    }
    bool first_by_peer = l->first != NULL && mst_actor_ended_by_peer(l->first);
    bool explains = l->first != NULL && l->first->member->role == MST_ROLE_WORKER &&
                    a->member->role == MST_ROLE_SERVER && a->signal == 0 &&
                    (a->child->code == 1 || a->child->code == 2);
    if (l->first == NULL || (first_by_peer && !by_peer) || explains)
        l->first = a;
    job_begin_failing(l, a);
}

/* ---- events ---- */

static void job_start_members(mst_launch *l);

static bool is_text(const char *text, size_t n, const char *expected)
{
    return n == strlen(expected) && memcmp(text, expected, n) == 0;
}

static void job_on_line(void *arg, mst_child *child, bool is_error, const char *text, size_t n)
{
    mst_launch *l = arg;
    mst_actor *a = &l->actors[child->index];
    if (a->member == NULL && !is_error && is_text(text, n, MST_REMOTE_COPIED)) {
        a->copied = true;
        if (++l->n_copied == l->n_keepers && l->phase == MST_LAUNCH_COPY)
            job_start_members(l);
        return;
    }
    l->job->sink->line(l->job->sink->arg, child->index, child->name, is_error, text, n);
}

static void job_on_began(void *arg, const char *run)
{
    mst_launch *l = arg;
    snprintf(l->run, sizeof l->run, "%s", run);
    mst_job_entry_started(l->job->entry);
}

static void job_on_ended(void *arg, mst_child *child)
{
    mst_launch *l = arg;
    mst_actor *a = &l->actors[child->index];
    /* A shell in between reports a signal as 128 + its number; so does a muster that was stopped. */
    bool shell = a->host != NULL && child->signal == 0 && child->code > 128 && child->code < 128 + 65 &&
                 mst_signals_of_exit_code(child->code) == 0;
    a->signal = shell ? child->code - 128 : child->signal;
    if (a->member != NULL) {
        job_member_ended(l, a);
    } else if (!a->copied && l->phase == MST_LAUNCH_COPY) {
        job_break(l, mst_fail(MST_EPEER, "launch: the program cannot be copied to %s%s%s", a->host->name,
                              child->last_line[0] != '\0' ? ": " : "", child->last_line));
    }
    if (l->members_left == 0 && l->phase != MST_LAUNCH_COPY)
        job_release_keepers(l);
}

static void job_on_start_deadline(uv_timer_t *timer);

static void job_begin_start_deadline(mst_launch *l)
{
    uv_timer_start(&l->start, job_on_start_deadline, (uint64_t)l->job->start_s * 1000, 0);
}

/* A host that does not answer must not keep the job waiting. */
static void job_on_start_deadline(uv_timer_t *timer)
{
    mst_launch *l = timer->data;
    uint64_t now = mst_now_ns(), start_ns = (uint64_t)l->job->start_s * MST_S;
    for (uint32_t i = 0; i < l->n_actors; i++) {
        mst_actor *a = &l->actors[i];
        if (a->host == NULL || a->child->remote_started || a->copied || !a->child->running)
            continue;
        if (now - a->child->began_ns < start_ns - START_SLACK_NS) { /* it was started again */
            job_begin_start_deadline(l);
            continue;
        }
        if (l->phase == MST_LAUNCH_COPY) {
            job_break(l, mst_fail(MST_ETIMEOUT,
                                  "launch: %s has not received the program within %d s; is it reachable by "
                                  "'%s %s'?",
                                  a->host->name, (int)l->job->start_s, l->job->ssh, a->host->name));
            mst_child_kill(a->child);
        } else {
            a->late = true;
            snprintf(a->child->error, sizeof a->child->error,
                     "%s has not answered within %d s; is it reachable by '%s %s'?", a->host->name,
                     (int)l->job->start_s, l->job->ssh, a->host->name);
            mst_child_kill(a->child);
        }
    }
}

/* ---- starting ---- */

/* A folder per host, also where hosts share their file systems; out is returned. */
static const char *job_copy_folder(const mst_launch *l, const mst_actor *a, char *out, size_t size)
{
    snprintf(out, size, "%s-%d", l->job->copy_folder, (int)(a->host - l->job->plan->hosts));
    return out;
}

static mst_status job_start_member(mst_launch *l, mst_actor *a)
{
    mst_status st;
    char index[16], grace[24], folder[96], copied[112] = "";
    mst_text_list words = {0};
    bool remote = a->host != NULL;
    snprintf(index, sizeof index, "%u", a->member->index);
    snprintf(grace, sizeof grace, "%d", (int)l->job->grace_s);
    bool alone = l->job->plan->alone;
    const mst_variable variables[] = {{"MUSTER_CLUSTER", alone ? NULL : l->job->cluster_text},
                                      {"MUSTER_SECRET", NULL},
                                      {MST_PARENT_SECRET_ENV, "stdin"},
                                      {"MUSTER_JOB", l->job->name},
                                      {MST_PARENT_ENV, grace},
                                      {MST_RUN_LAUNCH_ENV, l->job->command},
                                      {"TF_CONFIG", NULL},
                                      {NULL, NULL}};
    if (remote && l->job->copy_folder != NULL)
        snprintf(copied, sizeof copied, "%s/muster", job_copy_folder(l, a, folder, sizeof folder));
    TRY_OUT(st,
            mst_text_list_add_all(&words, (const char *const[]){*copied != '\0' ? copied : l->job->program,
                                                                l->job->words->items[0], NULL}));
    if (!alone)
        TRY_OUT(st,
                mst_text_list_add_all(&words, (const char *const[]){"--role", mst_role_name(a->member->role),
                                                                    "--index", index, NULL}));
    for (size_t i = 1; i < l->job->words->n; i++)
        TRY_OUT(st, mst_text_list_add(&words, l->job->words->items[i]));
    TRY_OUT(st, mst_text_list_end(&words));
    mst_core_pin pin = {.set = false};
    if (l->job->pin && !remote)
        pin =
            mst_core_pin_begin(l->job->plan->n_servers, a->member->role == MST_ROLE_SERVER, a->member->index);
    st = mst_start_anywhere(a->child, remote ? l->job->ssh : NULL, remote ? a->host->name : NULL,
                            l->job->secret, variables, (const char *const *)words.items);
    mst_core_pin_end(&pin);
out:
    mst_text_list_fini(&words);
    return st;
}

static void job_start_members(mst_launch *l)
{
    l->phase = MST_LAUNCH_RUN;
    for (uint32_t i = 0; i < l->n_members; i++) {
        mst_status st = job_start_member(l, &l->actors[i]);
        if (st != MST_OK) {
            l->members_left -= l->n_members - i;
            job_break(l, st);
            return;
        }
    }
    if (l->job->plan->n_hosts > 0)
        job_begin_start_deadline(l);
}

static void job_restart_member(mst_launch *l, mst_actor *a)
{
    mst_status st = job_start_member(l, a);
    if (st != MST_OK) {
        l->members_left--;
        job_break(l, st);
    } else if (a->host != NULL && !uv_is_active((uv_handle_t *)&l->start)) {
        job_begin_start_deadline(l);
    }
}

static void job_on_restart(void *arg, mst_child *child)
{
    mst_launch *l = arg;
    job_restart_member(l, &l->actors[child->index]);
    for (uint32_t i = 1; child->index == 0 && i < l->n_members && l->phase == MST_LAUNCH_RUN; i++) {
        mst_actor *a = &l->actors[i];
        if (!a->dismissed)
            continue;
        a->dismissed = false;
        l->members_left++;
        job_restart_member(l, a);
    }
}

static mst_status job_start_keeper(mst_launch *l, mst_actor *a)
{
    mst_status st;
    char folder[96];
    mst_text_list argv = {0};
    mst_string script = {0};
    TRY_OUT(st,
            mst_remote_copy_script(l->job->program, job_copy_folder(l, a, folder, sizeof folder), &script));
    TRY_OUT(st, mst_remote_argv(l->job->ssh, a->host->name, &argv));
    mst_process_start start = {.argv = (const char *const *)argv.items,
                               .input = script.text,
                               .n_input = script.size,
                               .by_channel = true};
    st = mst_child_start(a->child, &start);
out:
    mst_text_list_fini(&argv);
    mst_string_fini(&script);
    return st;
}

static mst_status job_start_keepers(mst_launch *l)
{
    l->phase = MST_LAUNCH_COPY;
    for (uint32_t i = l->members_max; i < l->n_actors; i++)
        TRY(job_start_keeper(l, &l->actors[i]));
    job_begin_start_deadline(l);
    return MST_OK;
}

/* ---- the whole ---- */

static void job_prepare_actor(mst_launch *l, uint32_t i, const mst_launch_member *member, uint32_t host)
{
    mst_actor *a = &l->actors[i];
    a->member = member;
    a->host = host != MST_HOST_LOCAL ? &l->job->plan->hosts[host] : NULL;
    a->child = mst_supervisor_child(l->supervisor, i);
    if (member != NULL)
        snprintf(a->child->name, sizeof a->child->name, "%s", member->name);
    else
        snprintf(a->child->name, sizeof a->child->name, "copy %u", host);
}

static mst_status job_prepare(mst_launch *l)
{
    uint32_t n = l->job->plan->n_members;
    l->n_actors = l->members_max + l->n_keepers;
    l->members_left = l->n_members = n;
    l->actors = mst_calloc(l->n_actors, sizeof *l->actors);
    if (l->actors == NULL)
        return mst_fail_memory();
    for (uint32_t i = 0; i < n; i++)
        job_prepare_actor(l, i, &l->job->plan->members[i], l->job->plan->members[i].host);
    for (uint32_t h = 0; h < l->n_keepers; h++)
        job_prepare_actor(l, l->members_max + h, NULL, h);
    mst_supervisor_timer(l->supervisor, &l->grace, l);
    mst_supervisor_timer(l->supervisor, &l->start, l);
    return MST_OK;
}

/* ---- workers that are added ---- */

/* The host with the fewest workers that has a free slot; MST_HOST_LOCAL without hosts, n_hosts if all are
 * full. */
static uint32_t job_free_host(const mst_launch *l)
{
    const mst_plan *plan = l->job->plan;
    uint32_t best = (uint32_t)plan->n_hosts, fewest = UINT32_MAX;
    for (uint32_t h = 0; h < plan->n_hosts; h++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < l->n_members; i++)
            n += l->actors[i].member->role == MST_ROLE_WORKER && l->actors[i].host == &plan->hosts[h] &&
                 (l->actors[i].child->running || l->actors[i].child->waiting);
        if (n < fewest && n < plan->hosts[h].slots) {
            best = h;
            fewest = n;
        }
    }
    return plan->n_hosts > 0 ? best : MST_HOST_LOCAL;
}

/* A worker that no plan named: the servers decide whether they admit it, and its end never fails the job. */
static mst_status job_add_one(mst_launch *l)
{
    uint32_t i = l->n_members, host = job_free_host(l);
    mst_launch_member *m = &l->added[i - l->job->plan->n_members];
    if (host == l->job->plan->n_hosts)
        return mst_fail(MST_EUSAGE, "--add: no host has a free slot");
    m->role = MST_ROLE_WORKER;
    m->index = i - l->job->plan->n_servers;
    m->host = host;
    snprintf(m->name, sizeof m->name, "worker %u", m->index);
    job_prepare_actor(l, i, m, host);
    l->actors[i].took_part = true;
    TRY(job_start_member(l, &l->actors[i]));
    l->n_members++;
    l->members_left++;
    mst_launch_note(l->job->sink, "launch: %s added", m->name);
    return MST_OK;
}

static mst_status job_add(void *arg, uint32_t n)
{
    mst_launch *l = arg;
    if (!l->job->elastic)
        return mst_fail(MST_EUSAGE, "--add: the job %s was started without train --elastic", l->job->name);
    if (l->phase != MST_LAUNCH_RUN)
        return mst_fail(MST_EUSAGE, "--add: the job %s is starting or ending", l->job->name);
    if (n > l->members_max - l->n_members)
        return mst_fail(MST_EUSAGE, "--add %u: the job %s takes at most %u more workers", n, l->job->name,
                        l->members_max - l->n_members);
    for (; n > 0; n--)
        TRY(job_add_one(l));
    if (l->job->plan->n_hosts > 0 && !uv_is_active((uv_handle_t *)&l->start))
        job_begin_start_deadline(l);
    return MST_OK;
}

static mst_status job_run(mst_launch *l)
{
    static const mst_supervisor_events events = {.on_line = job_on_line,
                                                 .on_began = job_on_began,
                                                 .on_ended = job_on_ended,
                                                 .on_restart = job_on_restart,
                                                 .on_stop = job_on_stop,
                                                 .on_checkpoint = job_on_checkpoint};
    uint32_t n_keepers = l->job->copy_folder != NULL ? (uint32_t)l->job->plan->n_hosts : 0;
    l->members_max = l->job->plan->n_members + (l->job->elastic ? MST_ADD_MAX : 0);
    TRY(mst_supervisor_new(l->members_max + n_keepers, &events, l, &l->supervisor));
    l->n_keepers = n_keepers;
    TRY(job_prepare(l));
    mst_job_entry_serve(l->job->entry, mst_supervisor_loop(l->supervisor), job_add, l);
    if (l->n_keepers > 0) {
        mst_status st = job_start_keepers(l);
        if (st != MST_OK) {
            l->members_left = 0;
            job_break(l, st);
        }
    } else {
        job_start_members(l);
    }
    mst_supervisor_run(l->supervisor);
    return mst_launch_outcome(l);
}

mst_status mst_launch_job_run(const mst_launch_job *job)
{
    mst_launch *l = mst_zalloc(sizeof *l);
    if (l == NULL)
        return mst_fail_memory();
    l->job = job;
    l->began_ns = mst_now_ns();
    mst_status st = job_run(l);
    mst_supervisor_destroy(l->supervisor);
    mst_free(l->actors);
    mst_free(l);
    return st;
}
