/* The memory limit of a rank: the least of --memory, its resource limits, its control group's share and the
 * host's memory divided by the ranks on it. A margin is kept for MPI, oneDNN and the C library. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "matmul/matmul_impl.h"

#define MARGIN ((uint64_t)96 << 20)

static bool read_u64(const char *path, uint64_t *out)
{
    FILE *file = fopen(path, "re");
    bool ok = file != NULL && fscanf(file, "%" SCNu64, out) == 1;
    if (file != NULL)
        fclose(file);
    return ok;
}

/* A field of /proc/meminfo or /proc/self/status, in bytes; 0: not there. */
static uint64_t read_kilobytes(const char *path, const char *name)
{
    char line[256];
    uint64_t value = 0, n = strlen(name);
    FILE *file = fopen(path, "re");
    while (file != NULL && value == 0 && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, name, n) == 0 && line[n] == ':')
            sscanf(line + n + 1, "%" SCNu64, &value);
    if (file != NULL)
        fclose(file);
    return value * 1024;
}

typedef struct least {
    uint64_t bytes;
    char *name;
    size_t name_size;
} least;

static void limit_lower(least *l, uint64_t bytes, uint64_t used, const char *name)
{
    bytes = bytes > used ? bytes - used : 0;
    if (bytes >= l->bytes)
        return;
    l->bytes = bytes;
    snprintf(l->name, l->name_size, "%s", name);
}

static void lower_by_resource(least *l, __rlimit_resource_t resource, const char *used, const char *name)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        limit_lower(l, limit.rlim_cur, read_kilobytes("/proc/self/status", used) + MARGIN, name);
}

/* Control groups, version 2 (own group, then the root that a container sees) and 1. */
static void lower_by_group(least *l, uint64_t ranks)
{
    char line[512], path[600], *own;
    uint64_t bytes;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::", 3) != 0)
            continue;
        own = line + 3;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", own);
        if (read_u64(path, &bytes))
            limit_lower(l, bytes / ranks, MARGIN,
                        "the control group's memory.max over the ranks of this host");
    }
    if (file != NULL)
        fclose(file);
    if (read_u64("/sys/fs/cgroup/memory.max", &bytes) ||
        read_u64("/sys/fs/cgroup/memory/memory.limit_in_bytes", &bytes))
        limit_lower(l, bytes / ranks, MARGIN, "the control group's memory limit over the ranks of this host");
}

void mst_mm_limit(const mst_matmul_options *o, uint64_t *bytes, char *name, size_t name_size)
{
    least l = {.bytes = UINT64_MAX, .name = name, .name_size = name_size};
    int local = o->mpi != NULL ? o->mpi->launch.local_size : 1;
    uint64_t ranks = local > 0 ? (uint64_t)local : o->mpi != NULL ? (uint64_t)o->mpi->size : 1;
    snprintf(name, name_size, "nothing");
    if (o->memory > 0)
        limit_lower(&l, o->memory, 0, "--memory");
    lower_by_resource(&l, RLIMIT_AS, "VmSize", "RLIMIT_AS (ulimit -v)");
    lower_by_resource(&l, RLIMIT_DATA, "VmData", "RLIMIT_DATA (ulimit -d)");
    lower_by_group(&l, ranks);
    uint64_t available = read_kilobytes("/proc/meminfo", "MemAvailable");
    if (available > 0)
        limit_lower(&l, available / ranks, available / ranks / 20, "the host's free memory over its ranks");
    *bytes = l.bytes;
}
