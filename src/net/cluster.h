/* The cluster spec: which processes a job has, and where its servers listen.
 *
 * It comes from a YAML file (keys servers, workers, job, secret-file), from JSON text with the same keys in
 * MUSTER_CLUSTER, or from TF_CONFIG. Addresses are "host:port", "unix:@name" or "unix:/path"; workers are
 * named by host or host:port, since they do not listen, except where no servers are named: then every worker
 * hosts a server at its own address (colocated).
 *
 * Every function is thread-safe; a cluster belongs to its creator. Failures are MST_EUSAGE, with the
 * source (file or variable), the key and the entry. */
#ifndef MST_NET_CLUSTER_H
#define MST_NET_CLUSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "net/net.h"

#define MST_CLUSTER_MAX 1024 /* servers, and workers */

/* Of an option that takes a port: the usual one of the first server, as text, and the range. */
#define MST_CLUSTER_PORT "52370"

/* Clusters with a name (docs/LAUNCH.md). n_servers 0: one process without a cluster. Workers run on as many
 * hosts. */
typedef struct mst_deploy_preset {
    const char *name;
    uint32_t n_servers, n_workers;
} mst_deploy_preset;
#define MST_DEPLOY_PRESETS "single|cluster|cluster2" /* the names, in the order of the table */
extern const mst_deploy_preset mst_deploy_presets[]; /* ends with name NULL */
#define MST_PORT_MIN 1
#define MST_PORT_MAX 65535

/* Characters of a job's secret, and different ones among them (docs/SECURITY.md has the arithmetic). */
#define MST_SECRET_MIN      24
#define MST_SECRET_MAX      256
#define MST_SECRET_DISTINCT 6

typedef struct mst_cluster {
    char *source;          /* "FILE", "MUSTER_CLUSTER", "TF_CONFIG": for messages; NULL: no spec was found */
    char job[MST_JOB_MAX]; /* "": not named */
    char *secret;          /* "" when there is none; never printed */
    char **servers, **workers; /* [n_servers], [n_workers]; colocated: servers are copies of the workers */
    uint32_t n_servers, n_workers;
    bool colocated;
    bool ranks;     /* of an MPI job: addresses are "mpi:RANK" */
    bool allreduce; /* colocated, as the engine of --strategy allreduce without MPI */
    /* TF_CONFIG also names the role and index of this process; with the others --role and --index do. */
    bool has_task;
    mst_role role;
    uint32_t index;
} mst_cluster;

/* Variables of the environment; each may be NULL. "" counts as unset. */
typedef struct mst_cluster_env {
    const char *cluster;   /* MUSTER_CLUSTER */
    const char *tf_config; /* TF_CONFIG */
    const char *secret;    /* MUSTER_SECRET: has precedence over secret-file */
    const char *job;       /* MUSTER_JOB: has precedence over job */
} mst_cluster_env;

/* The process's own environment; the texts stay getenv's. */
mst_cluster_env mst_cluster_env_read(void);

/* The spec by precedence: file (of --cluster, or NULL), MUSTER_CLUSTER, TF_CONFIG; a log line names those
 * that were ignored. Without any of them MST_OK and out->source NULL. *out is the caller's to fini; set
 * only on MST_OK. */
mst_status mst_cluster_find(const char *file, const mst_cluster_env *env, mst_cluster *out);

/* One source each; secret and job of env as above, env NULL: none. secret-file is relative to the YAML file's
 * folder (JSON: to the current one). */
mst_status mst_cluster_read_yaml(const char *path, const mst_cluster_env *env, mst_cluster *out);
mst_status mst_cluster_read_json(const char *text, const mst_cluster_env *env, mst_cluster *out);
mst_status mst_cluster_read_tf(const char *text, const mst_cluster_env *env, mst_cluster *out);

/* From lists, with the same checks; n_servers 0: colocated. */
mst_status mst_cluster_make(const char *const *servers, size_t n_servers, const char *const *workers,
                            size_t n_workers, mst_cluster *out);
/* Of an MPI job of `size` ranks, the first n_servers of which are servers and the others workers; both there.
 */
mst_status mst_cluster_of_ranks(uint32_t size, uint32_t n_servers, mst_cluster *out);
void mst_cluster_fini(mst_cluster *cluster); /* wipes the secret; safe on zeroes and twice */

/* {"servers": [...], "workers": [...]} in one line, for MUSTER_CLUSTER; without job and secret. The caller
 * frees; NULL when memory is short. */
char *mst_cluster_text(const mst_cluster *cluster);

/* The first difference, as "servers: entry 2 is a:1 here and b:1 there"; "" when there is none. out is
 * returned. */
const char *mst_cluster_difference(const mst_cluster *here, const mst_cluster *there, char *out, size_t size);

/* MST_EUSAGE when the spec has no such process: "FILE: there is no worker 3; it names 3 workers, 0 to 2". */
mst_status mst_cluster_check_index(const mst_cluster *cluster, mst_role role, uint32_t index);

/* NULL when text is "host:port" (port 1 to 65535; IPv6 hosts in brackets), "unix:@name" or "unix:/path", or a
 * bare host where that will do; else what is wrong with it, as "has no port". */
const char *mst_address_fault(const char *text, bool bare_host_will_do);

/* The host of an address or of a worker's name, without brackets; "" for Unix sockets. out is returned. */
const char *mst_address_host(const char *text, char *out, size_t size);

#endif
