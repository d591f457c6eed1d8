/* What the system allows this process, beyond what the host has. Any thread. */
#ifndef MST_OBSERVE_CPU_QUOTA_H
#define MST_OBSERVE_CPU_QUOTA_H

/* Cores' worth of CPU that the process's control groups (either version) allow it; 0: no limit is known.
 * root: "", or where a test has the files proc/self/cgroup and sys/fs/cgroup/... */
double mst_cpu_quota(const char *root);

/* The least of that (of this system) and of the cores that the process may run on (taskset), where those are
 * not all; 0: no limit. Any thread. */
double mst_cpu_allowed(void);

#endif
