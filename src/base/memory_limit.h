/* How much memory a process can use before it is killed or an allocation fails. */
#ifndef MST_BASE_MEMORY_LIMIT_H
#define MST_BASE_MEMORY_LIMIT_H

#include <stdint.h>

#include "base/status.h"

typedef struct mst_memory_limit {
    uint64_t bytes; /* at first UINT64_MAX */
    char name[96];  /* of the least limit: "RLIMIT_AS (ulimit -v)", ... */
} mst_memory_limit;

/* Lowers the limit to `bytes` less `used`, if that is less. */
void mst_memory_limit_lower(mst_memory_limit *self, uint64_t bytes, uint64_t used, const char *name);
/* By the resource limits of this process: address space, data. */
void mst_memory_limit_by_process(mst_memory_limit *self);
/* By control groups and the free memory of the host, which `processes` share. */
void mst_memory_limit_by_host(mst_memory_limit *self, uint64_t processes);

/* Fails if a process cannot fill `bytes` that it has reserved: "WHAT need 4.00 GB of memory, but ...". */
mst_status mst_memory_limit_check(uint64_t bytes, const char *what);

#endif
