/* `launch --pin`: one core for each process of a job on this host.
 *
 * A process inherits the cores of the thread that starts it, so that all its threads stay on its core.
 * Servers are spread evenly over the cores: neighbours may be threads of one core, and a server and a worker
 * are not busy at the same time as often as two servers. */
#ifndef MST_LAUNCH_CORE_PIN_H
#define MST_LAUNCH_CORE_PIN_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* MST_EUSAGE if this thread may use fewer cores than the processes need. */
mst_status mst_core_pin_check(uint32_t n_servers, uint32_t n_workers);

/* Which of n_cores cores (n_servers of them for servers) a process gets; n_cores: none is left. */
uint32_t mst_core_pin_of(uint32_t n_cores, uint32_t n_servers, bool server, uint32_t index);

/* Processes that this thread starts until mst_core_pin_end have the core of this server or worker; all cores
 * of this thread if none is left for it. */
typedef struct mst_core_pin {
    cpu_set_t cores; /* of the thread before */
    bool set;
} mst_core_pin;
mst_core_pin mst_core_pin_begin(uint32_t n_servers, bool server, uint32_t index);
void mst_core_pin_end(mst_core_pin *self);

#endif
