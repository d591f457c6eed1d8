/* The plan of a job: hosts, placement and addresses of its processes. Starts nothing. */
#ifndef MST_LAUNCH_LAUNCH_PLAN_H
#define MST_LAUNCH_LAUNCH_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/strings.h"
#include "net/cluster.h"

#define MST_HOST_MAX 256

/* A line of the hosts file: HOST [slots=N] [address=A]. */
typedef struct mst_host {
    char name[MST_HOST_MAX];       /* what ssh is given: host or user@host */
    char address[MST_HOST_MAX];    /* the host that others connect to, unless the file has address=A */
    uint32_t slots;                /* workers it may have; 0: it is a host for servers; MST_SLOTS_ANY */
    uint32_t n_workers, n_servers; /* it got */
} mst_host;

#define MST_HOST_LOCAL UINT32_MAX
#define MST_SLOTS_ANY  UINT32_MAX

typedef struct mst_launch_member {
    char name[24]; /* "server 0" */
    mst_role role;
    uint32_t index, host; /* host: MST_HOST_LOCAL, or an index into hosts */
} mst_launch_member;

typedef struct mst_plan {
    mst_host *hosts;
    size_t n_hosts;             /* that are used */
    mst_launch_member *members; /* servers first */
    uint32_t n_members, n_servers, n_workers;
    bool alone; /* one process without a cluster */
    mst_cluster cluster;
} mst_plan;

/* A job as requested. hosts_file NULL: all processes on this host. n_servers 0: every worker holds a share of
 * the weights. max_hosts 0: workers on all hosts of the file that have slots; else on exactly that many.
 * alone: one process, which gets no role; n_servers is 0 and n_workers 1. */
typedef struct mst_plan_request {
    const char *hosts_file, *job;
    uint32_t n_servers, n_workers, max_hosts;
    uint16_t port; /* server I of hosts listens at port + I */
    bool alone;
} mst_plan_request;

/* Servers are placed on the hosts in turn, from the first one on, and so are workers; a host without a free
 * slot is skipped. If there are hosts with slots=0, servers are placed on these only. *out is the caller's to
 * fini; set only on MST_OK. MST_EUSAGE names the file and the line.
 */
mst_status mst_plan_make(const mst_plan_request *request, mst_plan *out);
void mst_plan_fini(mst_plan *plan); /* safe on zeroes */

/* Appends "node1: server 0, worker 0": the processes of host h, or of this host if the plan has no hosts. */
void mst_plan_describe(const mst_plan *plan, size_t h, mst_string *out);

/* The number of workers that the hosts of a file have slots for; a host without slots=N counts as one. */
mst_status mst_plan_slots(const char *hosts_file, uint32_t *out);

/* "1 server and 3 workers", or "1 process", with n_added workers besides those of the plan; out is returned.
 */
const char *mst_plan_count(const mst_plan *plan, uint32_t n_added, char *out, size_t size);

#endif
