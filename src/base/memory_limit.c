/* Memory limits of a process; contract in memory_limit.h. A margin is kept for MPI, oneDNN and the C library.
 */
#include "base/memory_limit.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/figure.h"

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

void mst_memory_limit_lower(mst_memory_limit *self, uint64_t bytes, uint64_t used, const char *name)
{
    bytes = bytes > used ? bytes - used : 0;
    if (bytes >= self->bytes)
        return;
    self->bytes = bytes;
    snprintf(self->name, sizeof self->name, "%s", name);
}

static void lower_by_resource(mst_memory_limit *self, __rlimit_resource_t resource, const char *used,
                              const char *name)
{
    struct rlimit limit;
    if (getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        mst_memory_limit_lower(self, limit.rlim_cur, read_kilobytes("/proc/self/status", used) + MARGIN,
                               name);
}

void mst_memory_limit_by_process(mst_memory_limit *self)
{
    lower_by_resource(self, RLIMIT_AS, "VmSize", "RLIMIT_AS (ulimit -v)");
    lower_by_resource(self, RLIMIT_DATA, "VmData", "RLIMIT_DATA (ulimit -d)");
}

/* Control groups, version 2 (own group, then the root that a container sees) and 1. */
static void lower_by_group(mst_memory_limit *self, uint64_t processes)
{
    const char *name = processes > 1 ? "the control group's memory limit over the ranks of this host"
                                     : "the control group's memory limit";
    char line[512], path[600];
    uint64_t bytes;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::", 3) != 0)
            continue;
        snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.max", line + 3);
        if (read_u64(path, &bytes))
            mst_memory_limit_lower(self, bytes / processes, MARGIN, name);
    }
    if (file != NULL)
        fclose(file);
    if (read_u64("/sys/fs/cgroup/memory.max", &bytes) ||
        read_u64("/sys/fs/cgroup/memory/memory.limit_in_bytes", &bytes))
        mst_memory_limit_lower(self, bytes / processes, MARGIN, name);
}

void mst_memory_limit_by_host(mst_memory_limit *self, uint64_t processes)
{
    lower_by_group(self, processes);
    uint64_t available = read_kilobytes("/proc/meminfo", "MemAvailable") / processes;
    if (available > 0)
        mst_memory_limit_lower(self, available, available / 20,
                               processes > 1 ? "the host's free memory over its ranks"
                                             : "the host's free memory");
}

mst_status mst_memory_limit_check(uint64_t bytes, const char *what)
{
    char need[MST_FIGURE_SIZE], least[MST_FIGURE_SIZE];
    mst_memory_limit limit = {.bytes = UINT64_MAX};
    mst_memory_limit_by_host(&limit, 1);
    return bytes <= limit.bytes
               ? MST_OK
               : mst_fail(MST_ENOMEM, "%s need %s of memory, but %s leaves %s", what,
                          mst_figure_size(bytes, need), limit.name, mst_figure_size(limit.bytes, least));
}
