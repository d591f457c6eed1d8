/* Log lines; contract in log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include "base/utf8.h"

static struct {
    mst_log_sink *sink;
    void *arg;
    mst_log_level level;
} g_log;

void mst_log_set(mst_log_sink *sink, void *arg, mst_log_level level)
{
    g_log.sink = sink;
    g_log.arg = arg;
    g_log.level = level;
}

void mst_log(mst_log_level level, const char *format, ...)
{
    if (g_log.sink == NULL || level > g_log.level)
        return;
    char line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    mst_utf8_mask(line);
    g_log.sink(g_log.arg, level, line);
}
