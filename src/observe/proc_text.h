/* Parses the texts of Linux's /proc about the resource usage of a host and a process. No function opens a
 * file: resources.c reads the texts, and tests pass fixtures. Every function accepts any text: missing or
 * malformed values are 0, and it returns whether it found its values. */
#ifndef MST_OBSERVE_PROC_TEXT_H
#define MST_OBSERVE_PROC_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#define MST_NET_MAX  16 /* interfaces with their own columns */
#define MST_NET_NAME 16

/* Clock ticks since the start of the host. */
typedef struct mst_core_ticks {
    uint64_t busy, total;
} mst_core_ticks;

typedef struct mst_host_cpu {
    uint64_t user, system, iowait, idle, steal; /* over all cores; user includes nice, system interrupts */
    uint64_t context_switches;
} mst_host_cpu;

/* /proc/stat. Fills cores for core numbers below n_cores; an offline core stays 0. */
bool mst_proc_stat(const char *text, mst_host_cpu *out, mst_core_ticks *cores, unsigned n_cores);
/* Returns the highest core number of the text plus one. */
unsigned mst_proc_stat_cores(const char *text);

typedef struct mst_host_memory {
    uint64_t total, used, free, cached; /* bytes; used: neither free nor cached */
} mst_host_memory;
bool mst_proc_meminfo(const char *text, mst_host_memory *out);

/* /proc/vmstat: bytes paged in from disks (pgpgin). */
bool mst_proc_vmstat(const char *text, uint64_t *page_ins);

/* /proc/diskstats: bytes of whole disks, without partitions and stacked devices, which would count twice. */
bool mst_proc_diskstats(const char *text, uint64_t *read, uint64_t *written);

typedef struct mst_net_bytes {
    char name[MST_NET_NAME];
    uint64_t in, out;
} mst_net_bytes;
typedef struct mst_host_net {
    uint64_t in, out; /* all except loopback */
    unsigned n;
    mst_net_bytes links[MST_NET_MAX];
} mst_host_net;
/* /proc/net/dev */
bool mst_proc_net_dev(const char *text, mst_host_net *out);

/* /proc/self/io: bytes read from and written to disks. */
bool mst_proc_io(const char *text, uint64_t *read, uint64_t *written);

/* /proc/self/statm: resident bytes. */
bool mst_proc_statm(const char *text, uint64_t page_size, uint64_t *resident);

#endif
