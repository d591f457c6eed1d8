/* The processes of a job: joins, admission, set-up of the other servers, losses.
 *
 * The first worker to join brings the model's shape: the store is made from it, and the run is opened. Once
 * enough workers have joined, the keys that the one with the lowest index has sampled make the partition
 * table, so that the table does not depend on the order of joins, and the other servers are set up. Training
 * begins when all servers are ready.
 *
 * A process that joins later takes part too: a worker that is late, or the successor of a lost one (a process
 * with the same index). It is admitted when all servers have reported the loss of the predecessor; the
 * servers are informed with MEMBER, and it is welcomed when all have answered. */
#ifndef MST_PS_COORDINATOR_MEMBERS_H
#define MST_PS_COORDINATOR_MEMBERS_H

#include <jansson.h>

#include "ps/coordinator.h"
#include "ps/coordinator_stragglers.h"
#include "ps/float_cursor.h"

#define MST_SERVER_WORDS MST_WORKER_WORDS /* a cluster has at most as many servers as workers */

/* The coordinator's record of a worker. */
typedef struct mst_job_member {
    bool joined;
    bool announced;     /* MEMBER is sent: the servers count its process as a member */
    uint32_t n_answers; /* of other servers to MEMBER */
    bool leaving;       /* it is lost, and not all other servers have reported that */
    uint32_t n_reports; /* of other servers that it is gone: */
    uint64_t reported[MST_SERVER_WORDS];
    /* slots: what the reports state of its pushes: the fewest and most that are complete on a server, and the
     * most steps that are applied on one */
    uint64_t fewest_pushes, most_pushes, most_applied;
    uint64_t first_step; /* slots: the first step of the next process; 0: none has taken part */
    uint64_t lost_ns;    /* when it was lost */
    bool guest;          /* slots: it runs in the process of another worker, until a successor connects */
    uint64_t asked_ns;   /* slots: when a worker was last requested to run it too; 0: none was, */
    uint32_t asked;      /* and which */
    bool welcomed;       /* it takes part */
    bool returns;        /* it was sent away to join again, because a server was lost */
    uint32_t n_joins;    /* how often a process took part as this worker */
    bool done;           /* it has sent its last report */
    bool left;           /* it has left the job, which continues (elastic) */
    char name[128];
    json_t *report;        /* the newest; NULL: none */
    uint32_t report_joins; /* n_joins when it arrived */
    json_t *earlier;       /* the sum of the last reports of earlier processes; NULL: none */
    /* coordinator_rows.c */
    bool idle;             /* it has no rows */
    bool stop_sent;        /* sync streams: it waits for the end of an epoch that does not come */
    bool no_rows_in_epoch; /* async streams: a whole epoch had no rows */
    uint64_t epoch, granted;
    uint64_t rows_before; /* rows at the end of the last epoch, or when it joined */
    uint64_t stream_from; /* sync streams: rows of its epoch that were trained on before it joined */
    /* coordinator_stragglers.c */
    mst_straggler straggler;
    /* coordinator_pace.c */
    uint64_t steps, rows, dropped_steps, dropped_rows;
    uint64_t pushed_ns; /* time of its last push */
    uint64_t held_ns;   /* for which steps were held open for it alone */
} mst_job_member;

/* A server, until training begins. */
typedef struct mst_join_server {
    bool joined, ready;
    uint64_t lost_ns; /* recovery: when the connection of its predecessor, or an earlier one of it, ended, */
    mst_net_reason lost_by; /* why, */
    double silent_s;        /* and after which silence; 0: none */
    bool keeps;             /* it is the process of before and has its floats */
    mst_owned owned;        /* restored floats that it receives, */
    mst_float_cursor next;  /* the first of them that is not sent, */
    unsigned in_flight;     /* and pieces that are being sent */
} mst_join_server;

typedef struct mst_join_state {
    uint64_t began_ns, notice_ns;     /* when waiting began, and when it was last logged */
    char logged[MST_ERROR_MAX - 128]; /* the processes that the last line names */
    uint64_t lost_ns;                 /* when the loss of a worker without work was last logged; 0: never */
    mst_join_server *servers;
    json_t *first;     /* JOIN of the first worker, */
    uint64_t first_ns; /* and when it arrived */
    json_t *sample;    /* keys of the joined worker with the lowest index, `sampler`; or NULL */
    uint32_t sampler;
    bool placed; /* the partition table is made */
    bool again;  /* a worker took part in the job before: it starts again */
} mst_join_state;

mst_status mst_members_init(mst_server *s);
/* Counts the report of a server that a worker is gone, once. */
void mst_members_count_report(mst_server *s, uint32_t server, uint32_t worker);
void mst_members_fini(mst_server *s);
mst_status mst_members_join(mst_server *s, bool worker, uint32_t index, const json_t *join);
/* Begins training if it can begin. */
mst_status mst_members_maybe_start(mst_server *s);
/* A server has its floats. */
mst_status mst_members_ready(mst_server *s, uint32_t server);
/* Admits workers that joined; not during a cut, which they would not mark. */
mst_status mst_members_welcome_joined(mst_server *s);
/* Another server has answered MEMBER, or has reported that the worker is gone (GONE). */
void mst_members_noted(mst_server *s, uint32_t worker);
void mst_members_reported(mst_server *s, uint32_t server, const mst_message *m, const char *why);
/* The number of workers with which training begins: those that close a step, or all if no other worker has
 * their rows. */
uint32_t mst_members_to_start(const mst_server *s);
bool mst_members_none_left(const mst_server *s); /* no worker is left */
/* Slots: no process takes part as the worker, whose place waits for a successor. */
bool mst_members_slot_empty(const mst_server *s, uint32_t worker);
/* Slots: whether steps cannot continue because a slot is empty, and all servers have reached the last step
 * that can be complete. */
bool mst_members_slots_end(const mst_server *s);

#endif
