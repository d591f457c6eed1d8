/* One core for each process; contract in core_pin.h. */
#include "launch/core_pin.h"

#include <inttypes.h>

/* The cores of this thread; their number is 0 if they are unknown. */
static uint32_t core_pin_cores(cpu_set_t *out)
{
    CPU_ZERO(out);
    return sched_getaffinity(0, sizeof *out, out) == 0 ? (uint32_t)CPU_COUNT(out) : 0;
}

mst_status mst_core_pin_check(uint32_t n_servers, uint32_t n_workers)
{
    cpu_set_t cores;
    uint32_t n = core_pin_cores(&cores);
    uint64_t processes = (uint64_t)n_servers + n_workers;
    if (processes <= n)
        return MST_OK;
    return mst_fail(MST_EUSAGE,
                    "--pin gives each process a core of its own; there are %" PRIu64 " processes and %" PRIu32
                    " cores",
                    processes, n);
}

uint32_t mst_core_pin_of(uint32_t n_cores, uint32_t n_servers, bool server, uint32_t index)
{
    uint32_t of_servers = 0; /* cores before this one that servers have */
    if (server)
        return index < n_servers ? (uint32_t)((uint64_t)index * n_cores / n_servers) : n_cores;
    for (uint32_t i = 0; i < n_cores; i++) {
        if (of_servers < n_servers && (uint64_t)of_servers * n_cores / n_servers == i)
            of_servers++;
        else if (i - of_servers == index)
            return i;
    }
    return n_cores;
}

mst_core_pin mst_core_pin_begin(uint32_t n_servers, bool server, uint32_t index)
{
    mst_core_pin self = {.set = false};
    cpu_set_t one;
    uint32_t n = core_pin_cores(&self.cores), core = mst_core_pin_of(n, n_servers, server, index), at = 0;
    if (core >= n)
        return self;
    for (uint32_t before = 0;; at++)
        if (CPU_ISSET(at, &self.cores) && before++ == core)
            break;
    CPU_ZERO(&one);
    CPU_SET(at, &one);
    self.set = sched_setaffinity(0, sizeof one, &one) == 0;
    return self;
}

void mst_core_pin_end(mst_core_pin *self)
{
    if (self->set)
        sched_setaffinity(0, sizeof self->cores, &self->cores);
    self->set = false;
}
