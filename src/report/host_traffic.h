/* The bytes that the hosts of a run have sent to each other, from the traffic.csv of its processes. */
#ifndef MST_REPORT_HOST_TRAFFIC_H
#define MST_REPORT_HOST_TRAFFIC_H

#include "report/run_read.h"

typedef struct mst_host_traffic {
    const char **hosts; /* "" for processes whose host is not known; the texts are the run's */
    size_t n_hosts;
    double *bytes; /* [from * n_hosts + to]; from == to: between processes of one host, without the network */
} mst_host_traffic;

/* Both ends of a connection count its bytes, and the larger count of the two is taken: a process that was
 * killed lacks its last seconds. Without traffic, n_hosts is 0. The caller calls fini. */
mst_status mst_host_traffic_of(const mst_run_data *run, mst_host_traffic *out);
void mst_host_traffic_fini(mst_host_traffic *self);

#endif
