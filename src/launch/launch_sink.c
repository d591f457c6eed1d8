/* The sink of a launched job; contract in launch_sink.h. */
#include "launch/launch_sink.h"

#include <stdarg.h>
#include <stdio.h>

void mst_launch_note(const mst_launch_sink *sink, const char *format, ...)
{
    char line[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    sink->note(sink->arg, line);
}
