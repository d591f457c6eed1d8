/* What the system allows this process, beyond what the host has. Any thread. */
#ifndef MST_OBSERVE_LIMITS_H
#define MST_OBSERVE_LIMITS_H

/* Cores' worth of CPU that the process's control groups (either version) allow it; 0: no limit is known.
 * root: "", or where a test has the files proc/self/cgroup and sys/fs/cgroup/... */
double mst_cpu_limit(const char *root);

#endif
