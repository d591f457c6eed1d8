/* Contract in cpu_quota.h.
 *
 * /proc/self/cgroup has lines NUMBER:CONTROLLERS:PATH; version 2 is number 0 without controllers. A limit
 * applies to all groups below it, so every folder from the process's own up to the root is read. A container
 * may see only its own part of the tree: then the path does not exist, and the root has its limit. */
#include "observe/cpu_quota.h"

#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH_MAX_HERE 1024

/* Reads "max 100000" or "20000 100000"; 0: no limit. */
static double quota_v2(const char *folder)
{
    char path[PATH_MAX_HERE + 32];
    double quota = 0, period = 0;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    bool found = fscanf(file, "%lf %lf", &quota, &period) == 2;
    fclose(file);
    return found && quota > 0 && period > 0 ? quota / period : 0;
}

static double quota_read_number(const char *folder, const char *name)
{
    char path[PATH_MAX_HERE + 32];
    double value = 0;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%lf", &value) != 1)
        value = 0;
    fclose(file);
    return value;
}

static double quota_v1(const char *folder)
{
    double quota = quota_read_number(folder, "cpu.cfs_quota_us"),
           period = quota_read_number(folder, "cpu.cfs_period_us");
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* Returns the smallest limit from the folder base + path up to base. */
static double quota_least(const char *base, const char *path, double (*limit_of)(const char *))
{
    char folder[PATH_MAX_HERE];
    double least = 0;
    size_t n_base = strlen(base);
    int n = snprintf(folder, sizeof folder, "%s%s", base, path);
    if (n < 0 || (size_t)n >= sizeof folder)
        return 0;
    for (;;) {
        double limit = limit_of(folder);
        least = limit > 0 && (least == 0 || limit < least) ? limit : least;
        char *slash = strrchr(folder + n_base, '/');
        if (slash == NULL)
            return least;
        *slash = '\0';
    }
}

/* Returns whether "cpu" is one of the controllers up to end. */
static bool quota_has_cpu_controller(const char *at, const char *end)
{
    while (at < end) {
        size_t n = strcspn(at, ",:");
        if (n == 3 && memcmp(at, "cpu", 3) == 0)
            return true;
        at += n + 1;
    }
    return false;
}

double mst_cpu_quota(const char *root)
{
    char path[256], line[PATH_MAX_HERE], base[320];
    double least = 0;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL)
            continue;
        controllers++;
        group[1 + strcspn(group + 1, "\n")] = '\0';
        const char *name = strcmp(group + 1, "/") == 0 ? "" : group + 1;
        double limit = 0;
        if (controllers == group) {
            snprintf(base, sizeof base, "%s/sys/fs/cgroup", root);
            limit = quota_least(base, name, quota_v2);
        } else if (quota_has_cpu_controller(controllers, group)) {
            snprintf(base, sizeof base, "%s/sys/fs/cgroup/cpu", root);
            limit = quota_least(base, name, quota_v1);
        }
        least = limit > 0 && (least == 0 || limit < least) ? limit : least;
    }
    if (file != NULL)
        fclose(file);
    return least;
}

double mst_cpu_allowed(void)
{
    cpu_set_t set;
    double limit = mst_cpu_quota("");
    int cores = sched_getaffinity(getpid(), sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
    bool fewer = cores > 0 && cores < sysconf(_SC_NPROCESSORS_ONLN);
    return fewer && (limit <= 0 || cores < limit) ? cores : limit;
}

unsigned mst_cpu_cores(void)
{
    double allowed = mst_cpu_allowed();
    long cores = allowed > 0.0 ? (long)ceil(allowed) : sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 1 ? (unsigned)cores : 1;
}
