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
#include "observe/csv_line.h"

#define HEADER   "time,process,kind,text\n"
#define LINE_MAX 2048

/* Adds a CSV field, quoted if necessary, with newlines as spaces. */
static void mark_add_field(mst_csv_line *out, const char *text)
{
    bool quoted = strpbrk(text, ",\"\r\n") != NULL;
    if (quoted)
        mst_csv_line_add(out, "\"");
    for (const char *p = text; *p != 0 && out->n < LINE_MAX - 8; p++)
        mst_csv_line_add(out, *p == '"' ? "\"\"" : "%c", *p == '\n' || *p == '\r' ? ' ' : *p);
    if (quoted)
        mst_csv_line_add(out, "\"");
}

void mst_mark(const char *run, const char *process, const char *kind, const char *text)
{
    static atomic_bool warned;
    char line[LINE_MAX];
    struct stat info;
    struct timespec t;
    mst_csv_line out = {.data = line, .size = sizeof line};
    char *path = mst_sprintf("%s/marks.csv", run);
    if (path == NULL)
        return;
    clock_gettime(CLOCK_REALTIME, &t);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size == 0)
        mst_csv_line_add(&out, HEADER);
    mst_csv_line_add(&out, "%lld.%06ld,", (long long)t.tv_sec, t.tv_nsec / 1000);
    mark_add_field(&out, process);
    mst_csv_line_add(&out, ",");
    mark_add_field(&out, kind);
    mst_csv_line_add(&out, ",");
    mark_add_field(&out, text != NULL ? text : "");
    mst_csv_line_add(&out, "\n");
    if ((fd < 0 || write(fd, line, out.n) != (ssize_t)out.n) && !atomic_exchange(&warned, true))
        mst_warn("%s: cannot be written: %s; marks are not recorded from here on", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    mst_free(path);
}
