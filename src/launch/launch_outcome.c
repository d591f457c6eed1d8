/* The end of a launched job: how its processes ended, and the message that names the first failure; contract
 * in launch_job_impl.h. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/signals.h"
#include "launch/launch_job_impl.h"
#include "run/run_dir.h"

/* ---- how an actor ended ---- */

bool mst_actor_ended_by_peer(const mst_actor *a)
{
    return a->signal == 0 && a->child->code == 3;
}

bool mst_actor_ended(const mst_actor *a)
{
    return a->child->n_starts > 0 && !a->child->running;
}

int mst_actor_stop_signal(const mst_actor *a)
{
    return mst_actor_ended(a) && a->signal == 0 ? mst_signals_of_exit_code(a->child->code) : 0;
}

const char *mst_actor_how_ended(const mst_actor *a, char *out, size_t size)
{
    char name[32];
    if (a->late)
        snprintf(out, size, "not started in time");
    else if (a->signal != 0)
        snprintf(out, size, "killed by %s", mst_signal_name(a->signal, name, sizeof name));
    else if (mst_actor_stop_signal(a) != 0)
        snprintf(out, size, "stopped by %s", mst_signal_name(mst_actor_stop_signal(a), name, sizeof name));
    else if (a->host != NULL && a->child->code == 255)
        snprintf(out, size,
                 a->child->remote_started ? "killed, or the connection to %s lost" : "%s cannot be reached",
                 a->host->name);
    else
        snprintf(out, size, "exit %d", a->child->code);
    return out;
}

bool mst_actor_was_killed(const mst_actor *a)
{
    return !a->late &&
           (a->signal != 0 || (a->host != NULL && a->child->remote_started && a->child->code == 255));
}

bool mst_actor_ended_well(const mst_actor *a)
{
    return mst_actor_ended(a) && a->child->code == 0 && a->signal == 0;
}

/* ---- the outcome ---- */

/* "; worker 1 was lost (killed by SIGKILL), worker 2 ..."; out is returned. */
static const char *job_losses(const mst_launch *l, bool taken_only, char *out, size_t size)
{
    char how[320];
    size_t n = 0;
    *out = '\0';
    for (uint32_t i = 0; i < l->n_members && n + 1 < size; i++) {
        const mst_actor *a = &l->actors[i];
        if (!a->lost || (!mst_actor_was_killed(a) && taken_only))
            continue;
        n += (size_t)snprintf(out + n, size - n, "%s %s was lost (%s%s%.*s)", n > 0 ? "," : ";",
                              a->child->name, mst_actor_how_ended(a, how, sizeof how),
                              a->child->error[0] != '\0' ? ": " : "", (int)strcspn(a->child->error, ";"),
                              a->child->error);
    }
    return out;
}

/* "; 2 restarts", or ""; out is returned. */
static const char *job_restarts(const mst_launch *l, char *out, size_t size)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n_members; i++)
        n += mst_child_restarts(l->actors[i].child);
    *out = '\0';
    if (n > 0)
        snprintf(out, size, "; %u restart%s", n, n == 1 ? "" : "s");
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
static const mst_actor *job_origin(const mst_launch *l)
{
    for (uint32_t i = 0; l->first != NULL && i < l->n_members; i++) {
        const mst_actor *a = &l->actors[i];
        if (a != l->first && mst_actor_ended(a) && a->signal == 0 && a->child->code != 0 &&
            a->child->code != 3 && strcmp(l->first->child->origin, a->child->name) == 0)
            return a;
    }
    return l->first;
}

/* "; nothing newer than CHECKPOINT was saved; resume the run with: ..." of a job that did not save at its
 * end;
 * "" if training has not begun. out is returned. */
static const char *job_saved(const mst_launch *l, char *out, size_t size)
{
    char hint[MST_ERROR_MAX / 2];
    *out = '\0';
    if (l->run[0] == '\0')
        return out;
    mst_run_saved_hint(l->run, hint, sizeof hint);
    snprintf(out, size, "; %s", hint);
    return out;
}

/* After a signal, to launch or to one of the members: how process 0, which saves, has ended. */
static mst_status job_stopped_outcome(const mst_launch *l, const mst_actor *member, bool killed)
{
    char how[320], name[32], count[64], saved[MST_ERROR_MAX / 2 + 8], lead[80] = "launch: stopped";
    const mst_actor *zero = &l->actors[0];
    uint32_t n = l->n_members;
    mst_signal_name(member != NULL ? mst_actor_stop_signal(member) : mst_supervisor_stopped_by(l->supervisor),
                    name, sizeof name);
    mst_plan_count(l->job->plan, l->n_members - l->job->plan->n_members, count, sizeof count);
    if (member != NULL)
        snprintf(lead, sizeof lead, "launch: %s was stopped", member->child->name);
    job_saved(l, saved, sizeof saved);
    if (killed)
        return mst_fail(MST_ETIMEOUT, "%s by %s; %s %s killed%s", lead, name, count, n == 1 ? "was" : "were",
                        saved[0] != '\0' ? saved : "; no final checkpoint was saved");
    if (mst_actor_ended(zero) && zero->signal == 0 && zero->child->code != 0 &&
        mst_actor_stop_signal(zero) == 0)
        return mst_fail(status_of(zero->child->code), "%s by %s; %s failed (%s): %s", lead, name,
                        zero->child->name, mst_actor_how_ended(zero, how, sizeof how), zero->child->error);
    if (member != NULL)
        mst_signals_note(mst_actor_stop_signal(member));
    snprintf(count, sizeof count, n == 1 ? "its process" : n == 2 ? "both processes" : "all %u processes", n);
    bool reported = zero->child->error[0] != '\0', in_order = mst_actor_stop_signal(zero) != 0;
    return mst_fail_lead(MST_ESTOPPED, lead, "; %s ended%s%s%s%s%s", count, reported ? "; " : "",
                         reported ? zero->child->name : "", reported ? ": " : "", zero->child->error,
                         in_order ? "" : saved);
}

/* The job failed. */
static mst_status job_failed_outcome(const mst_launch *l)
{
    char how[320], lost[512], saved[MST_ERROR_MAX / 2 + 8];
    const mst_actor *a = job_origin(l);
    bool was_killed = mst_actor_was_killed(a);
    const mst_actor *w =
        was_killed && l->witness != NULL && l->witness->child->error[0] != '\0' ? l->witness : a;
    const char *why = w->child->error[0] != '\0' || was_killed ? w->child->error : w->child->last_line;
    if (!was_killed && status_of(a->child->code) == MST_EDONE)
        return mst_fail(MST_EDONE, "launch: %s", why);
    /* The loss of a server stops the job, which can be resumed. */
    return mst_fail(
        was_killed ? MST_EPEER : status_of(a->child->code), "launch: %s failed first (%s)%s%s%s%s%s%s",
        a->child->name, mst_actor_how_ended(a, how, sizeof how),
        w != a         ? "; "
        : *why != '\0' ? ": "
                       : "",
        w != a ? w->child->name : "", w != a ? ": " : "", why, job_losses(l, true, lost, sizeof lost),
        was_killed && w == a ? job_saved(l, saved, sizeof saved) : "");
}

static mst_status job_outcome(const mst_launch *l)
{
    char count[64], lost[512], times[32];
    uint32_t killed = 0;
    for (uint32_t i = 0; i < l->n_members; i++)
        killed += l->actors[i].child->killed;
    if (l->broken.code != MST_OK)
        return mst_error_restore(&l->broken);
    if (l->first != NULL && mst_actor_stop_signal(job_origin(l)) != 0)
        return job_stopped_outcome(l, job_origin(l), killed > 0);
    if (l->first != NULL)
        return job_failed_outcome(l);
    if (mst_supervisor_stopped_by(l->supervisor) != 0 && !mst_actor_ended_well(&l->actors[0]))
        return job_stopped_outcome(l, NULL, killed > 0);
    mst_plan_count(l->job->plan, l->n_members - l->job->plan->n_members, count, sizeof count);
    mst_launch_note(l->job->sink, "launch: done, %s, %.1f s%s%s", count, mst_seconds_since(l->began_ns),
                    job_restarts(l, times, sizeof times), job_losses(l, false, lost, sizeof lost));
    return MST_OK;
}

mst_status mst_launch_outcome(const mst_launch *l)
{
    mst_error error;
    mst_status st = job_outcome(l);
    if (st == MST_OK || l->run[0] == '\0' || l->actors[0].host != NULL)
        return st;
    mst_error_save(&error, st);
    if (st == MST_ESTOPPED)
        mst_run_end_killed(l->run, "stopped", "end", "stopped without a last checkpoint");
    else
        mst_run_end_killed(l->run,
                           mst_supervisor_stopped_by(l->supervisor) != 0 && st == MST_ETIMEOUT ? "stopped"
                                                                                               : "failed",
                           "error", error.text);
    return mst_error_restore(&error);
}
