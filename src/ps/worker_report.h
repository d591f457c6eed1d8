/* A worker's counts and times, its reports to the coordinator, and the records of its observer.
 *
 * Thread: the owner of the net. */
#ifndef MST_PS_WORKER_REPORT_H
#define MST_PS_WORKER_REPORT_H

#include "ps/worker_link.h"

typedef struct mst_worker_report {
    const mst_worker_job *job;
    mst_worker_link *link;
    mst_worker_counts counts;
    uint64_t eval_bytes_out;
    mst_net_stats start;  /* traffic when training began */
    uint64_t in, out;     /* bytes that the spans have counted, */
    uint64_t counted_ns;  /* and when */
    uint64_t begun_ns;    /* when training began */
    uint64_t reported_ns; /* when the last report was sent */
    mst_ps_clock clock;
} mst_worker_report;

/* Training begins: traffic counts from here on. */
void mst_worker_report_begin(mst_worker_report *self);
/* Sends records and a report, now; flags: MST_REPORT_LAST or 0. */
mst_status mst_worker_report_send(mst_worker_report *self, uint32_t flags);
/* Sends a report if one is due, or updates the bytes of the spans. */
mst_status mst_worker_report_tick(mst_worker_report *self);

#endif
