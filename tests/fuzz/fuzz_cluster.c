/* libFuzzer: any bytes as a cluster file in YAML, as MUSTER_CLUSTER and as TF_CONFIG. An accepted cluster
 * must satisfy the invariants of cluster.c and survive a round trip through its own text. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "net/cluster.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The secret is given, so that no file named by the input is opened. */
static const mst_cluster_env env = {.secret = "0123456789abcdef01234567"};

static void check(mst_status st, mst_cluster *c)
{
    char difference[256];
    if (st != MST_OK) {
        if (c->source != NULL || mst_error_text()[0] == '\0')
            abort();
        return;
    }
    if (c->n_workers == 0 || c->n_servers == 0 || c->n_workers > MST_CLUSTER_MAX ||
        c->n_servers > MST_CLUSTER_MAX)
        abort();
    for (uint32_t i = 0; i < c->n_servers; i++)
        if (mst_address_fault(c->servers[i], false) != NULL)
            abort();
    if (c->has_task && mst_cluster_check_index(c, c->role, c->index) != MST_OK)
        abort();
    mst_cluster again = {0};
    char *text = mst_cluster_text(c);
    if (text == NULL || mst_cluster_read_json(text, &env, &again) != MST_OK ||
        *mst_cluster_difference(c, &again, difference, sizeof difference) != '\0')
        abort();
    mst_free(text);
    mst_cluster_fini(&again);
    mst_cluster_fini(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    char path[64];
    mst_cluster c = {0};
    char *text = malloc(size + 1);
    if (text == NULL || (fd < 0 && (fd = memfd_create("fuzz", 0)) < 0))
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    if (ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    check(mst_cluster_read_yaml(path, &env, &c), &c);
    c = (mst_cluster){0};
    check(mst_cluster_read_json(text, &env, &c), &c);
    c = (mst_cluster){0};
    check(mst_cluster_read_tf(text, &env, &c), &c);
    free(text);
    return 0;
}
