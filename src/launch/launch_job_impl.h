/* Shared by the files of a launched job (launch_job.c, launch_outcome.c). */
#ifndef MST_LAUNCH_LAUNCH_JOB_IMPL_H
#define MST_LAUNCH_LAUNCH_JOB_IMPL_H

#include <uv.h>

#include "launch/launch_job.h"
#include "launch/supervisor.h"

#define MST_ADD_MAX 64 /* workers that can be added */

typedef enum mst_launch_phase {
    MST_LAUNCH_COPY,     /* the program is being copied to the hosts */
    MST_LAUNCH_RUN,      /* all members run, or have ended well */
    MST_LAUNCH_FINISH,   /* server 0 has ended well; the others are about to */
    MST_LAUNCH_FAILING,  /* one has failed; the others may end by themselves */
    MST_LAUNCH_STOPPING, /* they have received SIGTERM, and are killed after the grace period */
} mst_launch_phase;

/* A member of the job, or the keeper of a host's copy of the program (which has no member in the plan). */
typedef struct mst_actor {
    const mst_launch_member *member; /* NULL: a keeper */
    const mst_host *host;            /* NULL: this one */
    mst_child *child;
    bool copied;    /* of a keeper: its host has the program */
    bool late;      /* it did not start in time */
    bool lost;      /* the job continued without it */
    bool dismissed; /* server 0, which is running, has ended it, with the job or alone */
    bool took_part; /* an earlier start of it did not fail for a reason of its own */
    bool limited;   /* --max-restarts does not allow another start */
    int signal;     /* that ended it, also where a shell in between reports it by the exit code */
} mst_actor;

typedef struct mst_launch {
    const mst_launch_job *job;
    mst_supervisor *supervisor;
    uv_timer_t grace, start;
    mst_actor *actors; /* members_max members, then keepers; child i is that of actor i */
    uint32_t n_actors, n_keepers, n_copied, members_left;
    uint32_t n_members, members_max;      /* with the workers that were added */
    mst_launch_member added[MST_ADD_MAX]; /* members n_members of the plan and following */
    mst_launch_phase phase;
    mst_actor *first;         /* the process that failed first */
    mst_actor *witness;       /* the first process that was stopped by a peer's failure */
    char run[MST_CHILD_LINE]; /* the run directory; "": training has not begun */
    mst_error broken;         /* a failure of launch itself; code MST_OK: none */
    uint64_t began_ns;
} mst_launch;

/* ---- how an actor ended (launch_outcome.c) ---- */

bool mst_actor_ended(const mst_actor *a);
bool mst_actor_ended_well(const mst_actor *a);
/* By exit code 3: it stopped because of another process. */
bool mst_actor_ended_by_peer(const mst_actor *a);
/* Killed or disconnected: it did not end by itself. */
bool mst_actor_was_killed(const mst_actor *a);
/* The signal that stopped it in good order; 0: none. */
int mst_actor_stop_signal(const mst_actor *a);
/* "exit 1", "killed by SIGKILL", "stopped by SIGTERM", "connection lost"; out is returned. */
const char *mst_actor_how_ended(const mst_actor *a, char *out, size_t size);

/* The status and the message of a job whose last process has ended; notes one that ended well. */
mst_status mst_launch_outcome(const mst_launch *l);

#endif
