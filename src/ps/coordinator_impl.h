/* The whole coordinator, which the files coordinator*.c share; no other file includes this. */
#ifndef MST_PS_COORDINATOR_IMPL_H
#define MST_PS_COORDINATOR_IMPL_H

#include "ps/coordinator_cuts.h"
#include "ps/coordinator_deadlines.h"
#include "ps/coordinator_members.h"
#include "ps/coordinator_pace.h"
#include "ps/coordinator_recover.h"
#include "ps/coordinator_rows.h"
#include "ps/coordinator_stragglers.h"
#include "ps/server_impl.h"
#include "ps/takeover.h"

typedef enum mst_job_phase {
    MST_JOB_START, /* waiting for processes to join */
    MST_JOB_RUN,
    MST_JOB_STOP,  /* workers finish the requests in flight */
    MST_JOB_FINAL, /* the last evaluation and checkpoint */
} mst_job_phase;

/* Why the job ends. */
typedef struct mst_job_outcome {
    bool stopped;          /* stop requested: no last evaluation */
    bool no_workers;       /* no worker is left */
    uint32_t absent;       /* UINT32_MAX, or the worker whose slot no process has taken */
    uint64_t alone_ns;     /* when the last worker was lost; 0: there are workers */
    uint64_t stop_seen_ns; /* when another server has last reported that this one was stopped; 0: none has */
    double silent_s;       /* workers left because this server was silent for so long; 0: no */
    char nan[256];         /* how --on-nan has dropped the worker that was lost last; "": no */
    bool sent;             /* END has left for all processes */
    mst_error failure;     /* code not MST_OK: of a worker; the job ends with it after a checkpoint */
} mst_job_outcome;

struct mst_coordinator {
    mst_job_phase phase;
    uint64_t run_ns; /* when training began */
    mst_server_start start;
    mst_progress progress;
    mst_job_member *members; /* by worker */
    mst_join_state joins;
    mst_job_rows rows;
    mst_job_pace pace;
    mst_job_stragglers stragglers;
    mst_cut_plan cuts;
    mst_job_deadlines deadlines;
    mst_job_recover recover;
    mst_takeover takeover;
    mst_job_outcome outcome;
};

static inline bool mst_alive(const mst_server *s, uint32_t worker)
{
    return s->co->members[worker].welcomed;
}

/* mst_coordinator_advance when a synchronous step is complete and not answered: no server is beyond it, so
 * that a cut may begin. */
mst_status mst_coordinator_advance_at_step(mst_server *s);
/* Workers finish the requests in flight; the last evaluation and checkpoint follow. */
mst_status mst_coordinator_stop(mst_server *s);
/* The counters of all workers that took part: [{"worker", "steps", ...}, ...]; a new reference or NULL. */
json_t *mst_coordinator_workers(const mst_server *s);
/* STOP, to all workers; flags MST_STOP_* */
mst_status mst_coordinator_send_stop(mst_server *s, uint32_t flags);

#endif
