/* Contract in marks.h. Marks are rare, so the file is opened for each. */
#include "observe/marks.h"

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
#include "observe/text.h"

#define HEADER   "time,process,kind,text\n"
#define LINE_MAX 2048

/* A field of a CSV line, in quotes where it has to be; lines become one. */
static void add_field(mst_text *out, const char *text)
{
    bool quoted = strpbrk(text, ",\"\r\n") != NULL;
    if (quoted)
        mst_text_add(out, "\"");
    for (const char *p = text; *p != 0 && out->n < LINE_MAX - 8; p++)
        mst_text_add(out, *p == '"' ? "\"\"" : "%c", *p == '\n' || *p == '\r' ? ' ' : *p);
    if (quoted)
        mst_text_add(out, "\"");
}

void mst_mark(const char *run, const char *process, const char *kind, const char *text)
{
    static atomic_bool warned;
    char line[LINE_MAX];
    struct stat info;
    struct timespec t;
    mst_text out = {.data = line, .size = sizeof line};
    char *path = mst_sprintf("%s/marks.csv", run);
    if (path == NULL)
        return;
    clock_gettime(CLOCK_REALTIME, &t);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size == 0)
        mst_text_add(&out, HEADER);
    mst_text_add(&out, "%lld.%06ld,", (long long)t.tv_sec, t.tv_nsec / 1000);
    add_field(&out, process);
    mst_text_add(&out, ",");
    add_field(&out, kind);
    mst_text_add(&out, ",");
    add_field(&out, text != NULL ? text : "");
    mst_text_add(&out, "\n");
    if ((fd < 0 || write(fd, line, out.n) != (ssize_t)out.n) && !atomic_exchange(&warned, true))
        mst_warn("%s: cannot be written: %s; marks are missing from here on", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    mst_free(path);
}
