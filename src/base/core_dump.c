/* Core dumps; contract in core_dump.h. */
#include "base/core_dump.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

void mst_core_dump_disable(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_CORE, &limit) == 0) {
        limit.rlim_cur = 0;
        setrlimit(RLIMIT_CORE, &limit);
    }
    int fd = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t n = write(fd, "0", 1); /* no kind of mapping */
    (void)n;
    close(fd);
}
