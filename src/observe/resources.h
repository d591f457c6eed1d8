/* Resource usage of the host and this process, from /proc: the lines of resources.csv (docs/RUNS.md).
 *
 * A reading costs a few reads of open files. It does not allocate and cannot fail: columns of files that are
 * missing in a container are empty. Thread: one owner. The network interfaces are those of the owner thread's
 * network namespace at `new`. */
#ifndef MST_OBSERVE_RESOURCES_H
#define MST_OBSERVE_RESOURCES_H

#include "base/status.h"
#include "base/strings.h"
#include "observe/proc_text.h"

/* One reading. Counters have an arbitrary origin. Figures with a false `has_` are unknown. */
typedef struct mst_usage {
    uint64_t now_ns; /* monotonic */
    bool has_cpu, has_memory, has_vm, has_disk, has_net, has_io, has_rss, has_delay;
    mst_host_cpu cpu;
    mst_host_memory memory;
    uint64_t page_ins, disk_read, disk_write;
    mst_host_net net;
    uint64_t rss, read, write;
    double cpu_user_s, cpu_system_s; /* of the process */
    uint64_t major_faults, switches, waits;
    uint64_t delay_ns; /* time that its living threads were runnable without a core */
} mst_usage;

typedef struct mst_resources mst_resources;

/* Takes the first reading. root is "/proc"; a test passes a folder with such files. */
mst_status mst_resources_new(const char *root, mst_resources **out);
void mst_resources_destroy(mst_resources *self); /* NULL-safe */

/* Takes a reading and keeps the previous one for the difference. */
void mst_resources_read(mst_resources *self);
const mst_usage *mst_resources_now(const mst_resources *self);

/* Adds ",VALUE" with six significant digits, or "," for an unknown value (NAN). */
void mst_resources_add_real(mst_string *out, double value);
/* Writes the header of resources.csv with its newline, with the interfaces of the first reading. */
void mst_resources_header(const mst_resources *self, mst_string *out);
/* Writes the line between the last two readings, with its newline. time is that of the last one in seconds
 * since 1970. */
void mst_resources_line(const mst_resources *self, double time, mst_string *out);

#endif
