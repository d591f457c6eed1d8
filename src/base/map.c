/* Mapped files; contract in file.h. A file that changes in place is noticed by its size and time, and where
 * its bytes are gone by the fault (fault.h). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fault.h"
#include "base/file.h"

#define ADVICE "write new data to another file and rename it over the old one"

struct mst_map_file {
    struct stat info; /* when it was opened */
    mst_fault_range *range;
    char path[];
};

static void map_close_file(mst_map_file *file)
{
    if (file == NULL)
        return;
    mst_fault_unguard(file->range);
    mst_free(file);
}

mst_status mst_map_open(const char *path, mst_map *out)
{
    mst_status st = MST_OK;
    void *data = MAP_FAILED;
    size_t length = strlen(path) + 1;
    mst_map_file *file = mst_zalloc(sizeof *file + length);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        TRY_OUT(st, mst_fail(MST_EINPUT, "%s: cannot be opened: %s", path, strerror(errno)));
    if (file == NULL)
        TRY_OUT(st, mst_fail_memory());
    memcpy(file->path, path, length);
    if (fstat(fd, &file->info) != 0)
        TRY_OUT(st, mst_fail(MST_EIO, "%s: cannot be examined: %s", path, strerror(errno)));
    if (!S_ISREG(file->info.st_mode))
        TRY_OUT(st, mst_fail(MST_EINPUT, "%s: is not a plain file", path));
    size_t size = (size_t)file->info.st_size;
    if (size > 0) {
        data = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED)
            TRY_OUT(st, mst_fail(MST_EIO, "%s: cannot be mapped: %s", path, strerror(errno)));
        file->range = mst_fault_guard(data, size, MST_FAULT_FILE);
        if (file->range == NULL)
            TRY_OUT(st, mst_fail_memory());
    }
    *out = (mst_map){.data = size > 0 ? data : NULL, .size = size, .file = file};
    file = NULL;
    data = MAP_FAILED;
out:
    map_close_file(file);
    if (data != MAP_FAILED)
        munmap(data, size);
    if (fd >= 0)
        close(fd);
    return st;
}

mst_status mst_map_check(const mst_map *map)
{
    struct stat now;
    const mst_map_file *file = map->file;
    if (file == NULL)
        return MST_OK;
    const struct stat *then = &file->info;
    /* replacing or removing the file under its name does not affect the mapping */
    bool same = stat(file->path, &now) == 0 && now.st_dev == then->st_dev && now.st_ino == then->st_ino;
    if (same && now.st_size < then->st_size)
        return mst_fail(MST_EINPUT,
                        "%s was cut from %" PRIu64 " to %" PRIu64 " bytes while it was in use; " ADVICE,
                        file->path, (uint64_t)then->st_size, (uint64_t)now.st_size);
    if (same && (now.st_size != then->st_size || now.st_mtim.tv_sec != then->st_mtim.tv_sec ||
                 now.st_mtim.tv_nsec != then->st_mtim.tv_nsec))
        return mst_fail(MST_EINPUT, "%s was overwritten while it was in use; " ADVICE, file->path);
    if (mst_fault_hit(file->range))
        return mst_fail(
            MST_EINPUT,
            "%s could not be read to its end while it was in use: it was truncated, or its disk failed",
            file->path);
    return MST_OK;
}

void mst_map_populate(const mst_map *map, size_t offset, size_t size)
{
#ifdef MADV_POPULATE_READ
    size_t page = (size_t)sysconf(_SC_PAGESIZE), from = offset / page * page;
    madvise((uint8_t *)map->data + from, offset - from + size, MADV_POPULATE_READ);
#else
    (void)map;
    (void)offset;
    (void)size;
#endif
}

void mst_map_close(mst_map *map)
{
    map_close_file(map->file);
    if (map->data != NULL)
        munmap((void *)map->data, map->size);
    *map = (mst_map){0};
}
