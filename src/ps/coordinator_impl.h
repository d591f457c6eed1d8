/* What coordinator.c, coordinator_run.c and coordinator_work.c share; nobody else includes this. */
#ifndef MST_PS_COORDINATOR_IMPL_H
#define MST_PS_COORDINATOR_IMPL_H

#include "ps/server_impl.h"

/* Synchronous steps that workers know beyond the one that closed last: the one they compute, the one whose
 * weights are on their way, and the one whose rows are being prepared. */
#define MST_AHEAD 3

typedef enum mst_job_phase {
    MST_JOB_START, /* waiting for who must join */
    MST_JOB_RUN,
    MST_JOB_STOP,  /* workers finish what is in flight */
    MST_JOB_FINAL, /* the last evaluation and checkpoint */
} mst_job_phase;

/* How rows are divided. */
typedef enum mst_sharding {
    MST_SHARDING_SLICES, /* synchronous, all workers needed, random access */
    MST_SHARDING_LEASES, /* random access */
    MST_SHARDING_STATIC, /* every worker has its part of a stream */
    MST_SHARDING_LOCAL,  /* every worker has files of its own */
} mst_sharding;

/* A worker, as the coordinator sees it. */
typedef struct mst_member {
    bool joined, welcomed, done; /* done: it has reported for the last time */
    bool lost;
    bool waits;     /* it has nothing to do */
    bool told_stop; /* sync streams: it waits for an epoch's end that does not come */
    uint64_t epoch; /* streams: of its rows */
    bool barren;    /* async streams: a whole epoch had no rows */
    uint64_t rows_before;
    uint64_t granted, steps, rows, dropped_steps, dropped_rows;
    uint64_t heard_ns; /* of its last push */
    uint64_t held_ns;  /* that steps were held open for it alone */
    char name[128];
    json_t *report; /* its newest; NULL: none */
} mst_member;

/* A synchronous step that workers know of. */
typedef struct mst_planned {
    mst_slice slice;
    bool again; /* rows that a lost worker left */
    uint64_t members[16];
    uint32_t n_members;
} mst_planned;

/* A server's restored floats on their way to it. */
typedef struct mst_restore {
    mst_extent *owned;
    uint32_t n, slot, extent; /* where the next piece begins */
    uint64_t at;
    unsigned in_flight;
} mst_restore;

/* A message of a checkpoint that came before the coordinator's own part was taken. */
typedef struct mst_early_part {
    struct mst_early_part *next;
    mst_message m;
    mst_buffer *body;
} mst_early_part;

struct mst_coordinator {
    uint32_t n_workers, n_servers;
    mst_job_phase phase;
    uint64_t began_ns, said_ns, run_ns;
    mst_member *members;
    bool *server_joined, *server_ready;
    mst_restore *restores; /* n_servers */
    json_t *first_join;    /* of the first worker */
    json_t *sample;        /* keys of the joined worker with the lowest index, `sampler`; or NULL */
    uint32_t sampler;
    bool placed; /* the partition table is made */
    mst_server_start start;
    mst_sharding sharding;
    mst_progress progress;
    char waiting[96];    /* what progress.waiting points at */
    uint64_t closed_ns;  /* when the last step closed or push came */
    uint64_t arrived_ns; /* sync: of the last push */

    /* work (coordinator_work.c) */
    mst_slices slices;
    mst_planned planned[MST_AHEAD + 2]; /* by step number */
    uint64_t n_planned;                 /* the newest */
    bool no_more;                       /* nothing beyond it */
    mst_leases *leases;
    uint64_t granted_steps, granted_rows; /* streams */
    uint64_t repeats;                     /* rows trained on twice */

    /* cuts */
    uint32_t chief;      /* UINT32_MAX: none */
    uint32_t n_watching; /* servers that have its list */
    bool eval_due, save_due;
    bool evaluating, saving;
    bool saving_best;           /* what is being saved is what is being evaluated */
    bool best_here, best_known; /* all its floats have come; whether it is the best is known */
    bool best;
    uint32_t eval_cut, save_cut;
    bool at_step; /* sync: a step is complete and not answered: nobody can be beyond it */
    mst_early_part *early, **early_tail;
    uint32_t n_saved;        /* servers whose floats are all here */
    uint64_t evaluated_step; /* UINT64_MAX: none yet */
    uint64_t saved_step;
    bool stopped;    /* asked to stop: no last evaluation */
    bool deserted;   /* no worker is left */
    double silent_s; /* workers left because this server was silent for so long; 0: no */
};

static inline bool mst_alive(const mst_coordinator *co, uint32_t worker)
{
    return co->members[worker].welcomed && !co->members[worker].lost;
}

/* ---- coordinator_run.c ---- */

/* Everybody is ready: welcomes the workers. */
mst_status mst_coordinator_start(mst_server *s);
mst_status mst_coordinator_welcome(mst_server *s, uint32_t worker);
/* ssp: a worker that comes, or comes back, holds nobody up for what it has not pushed. */
void mst_coordinator_catch_up(mst_server *s, uint32_t worker);
/* Looks at what is due, at the end, and at cuts that wait. */
mst_status mst_coordinator_look(mst_server *s);
mst_status mst_coordinator_stop(mst_server *s);
mst_status mst_coordinator_hear_result(mst_server *s, const mst_message *m, const json_t *json);
/* A PART or SAVED of another server. */
mst_status mst_coordinator_hear_part(mst_server *s, const mst_message *m, const void *body);
void mst_coordinator_watch(mst_server *s);
json_t *mst_coordinator_workers(const mst_server *s);

/* ---- coordinator_work.c ---- */

mst_status mst_work_begin(mst_server *s);
/* The first work of a worker that was just welcomed. */
mst_status mst_work_first(mst_server *s, uint32_t worker);
mst_status mst_work_wanted(mst_server *s, uint32_t worker, const mst_message *m);
mst_status mst_work_pushed(mst_server *s, uint32_t worker, uint64_t rows);
/* A step has closed: where training stands now. */
void mst_work_closed(mst_server *s, uint64_t step);
bool mst_deserted(const mst_server *s); /* no worker is left */
/* The worker is lost; its rows go to others. first: the first step its pushes do not count for. */
mst_status mst_work_lost(mst_server *s, uint32_t worker, uint64_t first);
/* Rows to others from a worker that does not move. */
mst_status mst_work_take_back(mst_server *s, uint32_t worker);
/* All rows within the limits are trained on. */
bool mst_work_finished(const mst_server *s);
/* Gives work to those who wait. */
mst_status mst_work_offer(mst_server *s);
/* For a checkpoint: new reference or NULL. */
json_t *mst_work_json(const mst_server *s);
void mst_work_fini(mst_coordinator *co);

#endif
