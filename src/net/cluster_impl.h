/* Shared by cluster.c and cluster_read.c only. */
#ifndef MST_NET_CLUSTER_IMPL_H
#define MST_NET_CLUSTER_IMPL_H

#include "base/option.h"
#include "net/cluster.h"

/* Names of the two lists in the source, for messages. */
typedef struct mst_cluster_keys {
    const char *servers, *workers;
} mst_cluster_keys;

/* A cluster without lists and secret. */
mst_status mst_cluster_begin(mst_cluster *c, const char *source);
/* Hands the cluster over if the status is MST_OK, else ends it. Returns the status. */
mst_status mst_cluster_settle(mst_status st, mst_cluster *c, mst_cluster *out);

/* Checks the lists and moves them into the cluster, which has its source already. On failure they stay the
 * caller's, or are the cluster's to fini. */
mst_status mst_cluster_fill(mst_cluster *c, mst_text_list *servers, mst_text_list *workers,
                            const mst_cluster_keys *keys);

#endif
