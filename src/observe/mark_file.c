/* Contract in mark_file.h. Marks are rare, so the file is opened for each one. */
#include "observe/mark_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/strings.h"

#define HEADER   "time,process,kind,text\n"
#define LINE_MAX 2040 /* after which a field is cut */

/* Adds a CSV field, quoted if necessary, with newlines as spaces. */
static void mark_add_field(mst_string *out, const char *text)
{
    bool quoted = strpbrk(text, ",\"\r\n") != NULL;
    if (quoted)
        mst_string_add(out, "\"");
    for (const char *p = text; *p != 0 && out->size < LINE_MAX; p++)
        mst_string_format(out, *p == '"' ? "\"\"" : "%c", *p == '\n' || *p == '\r' ? ' ' : *p);
    if (quoted)
        mst_string_add(out, "\"");
}

void mst_mark_write(const char *run, const char *process, const char *kind, const char *text)
{
    static atomic_bool warned;
    struct stat info;
    uint64_t us = mst_wall_ns() / 1000;
    mst_string out = {0};
    char *path = mst_sprintf("%s/marks.csv", run);
    if (path == NULL)
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size == 0)
        mst_string_add(&out, HEADER);
    mst_string_format(&out, "%llu.%06llu,", (unsigned long long)(us / 1000000),
                      (unsigned long long)(us % 1000000));
    mark_add_field(&out, process);
    mst_string_add(&out, ",");
    mark_add_field(&out, kind);
    mst_string_add(&out, ",");
    mark_add_field(&out, text != NULL ? text : "");
    mst_string_add(&out, "\n");
    if ((fd < 0 || out.failed || write(fd, out.text, out.size) != (ssize_t)out.size) &&
        !atomic_exchange(&warned, true))
        mst_warn("%s: cannot be written: %s; some marks are missing", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    mst_string_fini(&out);
    mst_free(path);
}
