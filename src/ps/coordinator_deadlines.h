/* Time limits of workers: to join, to evaluate, to report their end; of empty slots; and of the whole job
 * after a stop request. */
#ifndef MST_PS_COORDINATOR_DEADLINES_H
#define MST_PS_COORDINATOR_DEADLINES_H

#include "ps/server_steps.h"

typedef struct mst_job_deadlines {
    uint64_t stop_ns;    /* when the stop request was seen; 0: none */
    bool hurried;        /* the workers that had not finished were dropped since */
    uint64_t end_ns;     /* when the workers were to finish their requests; 0: not yet */
    uint64_t chief_ns;   /* when the chief was named, or its evaluation began */
    uint64_t longest_ns; /* the longest evaluation so far */
} mst_job_deadlines;

/* Drops the workers that are over a limit, and ends the job at that of a stop request. */
void mst_deadlines_check(mst_server *s);
/* Before training: logs the processes that are missing, and ends the job at the time limit. */
void mst_deadlines_await(mst_server *s);
/* Slots: requests workers to take over the slots that no process has taken for a while. */
void mst_deadlines_check_slots(mst_server *s, uint64_t now);
/* No worker is left, or a slot is empty: whether the time for a process to join is over. */
bool mst_deadlines_abandoned(mst_server *s);
/* The chief is named, or begins to evaluate; and it has evaluated. */
void mst_deadlines_chief_begins(mst_server *s);
void mst_deadlines_chief_evaluated(mst_server *s);

#endif
