/* The CPU time that the system allows this process. Thread: any. */
#ifndef MST_OBSERVE_CPU_QUOTA_H
#define MST_OBSERVE_CPU_QUOTA_H

/* Returns the number of cores that the control groups (version 1 or 2) of the process allow, 0 without a
 * limit. root is ""; a test passes a folder with proc/self/cgroup and sys/fs/cgroup/... */
double mst_cpu_quota(const char *root);

/* Returns the minimum of mst_cpu_quota("") and the cores of the process's affinity mask (taskset), 0 without
 * a limit. */
double mst_cpu_allowed(void);

/* Cores for the threads of this process: mst_cpu_allowed, rounded up, or those of the host; at least 1. */
unsigned mst_cpu_cores(void);

#endif
