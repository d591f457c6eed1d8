/* Status codes and per-thread error sentences; contract in status.h. */
#include "base/status.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

static _Thread_local char g_text[MST_ERROR_MAX];
static _Thread_local unsigned g_lead;

mst_status mst_vfail(mst_status code, const char *format, va_list args)
{
    char text[MST_ERROR_MAX]; /* the arguments may point into g_text */
    vsnprintf(text, sizeof text, format, args);
    mst_utf8_mask(text);
    memcpy(g_text, text, sizeof g_text);
    g_lead = 0;
    return code;
}

mst_status(mst_fail_lead)(mst_status code, const char *lead, const char *format, ...)
{
    char text[MST_ERROR_MAX]; /* the arguments may point into g_text */
    size_t n = strlen(lead) < sizeof text ? strlen(lead) : sizeof text - 1;
    va_list args;
    memcpy(text, lead, n);
    va_start(args, format);
    vsnprintf(text + n, sizeof text - n, format, args);
    va_end(args);
    mst_utf8_mask(text);
    memcpy(g_text, text, sizeof g_text);
    g_lead = (unsigned)n;
    return code;
}

mst_status(mst_fail)(mst_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    mst_vfail(code, format, args);
    va_end(args);
    return code;
}

const char *mst_error_text(void)
{
    return g_text;
}

const char *mst_status_text(mst_status code)
{
    static const char *const texts[] = {
#define X(name, text) text,
        MST_STATUS_MAP(X)
#undef X
    };
    return (unsigned)code < sizeof texts / sizeof *texts ? texts[code] : "unknown status";
}

void mst_error_save(mst_error *out, mst_status code)
{
    out->code = code;
    out->lead = g_lead;
    memcpy(out->text, g_text, sizeof out->text);
}

mst_status mst_error_restore(const mst_error *error)
{
    mst_fail(error->code, "%s", error->text);
    g_lead = error->lead;
    return error->code;
}

int mst_status_exit_code(mst_status code)
{
    switch (code) {
    case MST_OK:
        return 0;
    case MST_EUSAGE:
        return 2;
    case MST_EPEER:
        return 3;
    case MST_EDONE:
        return 4;
    default:
        return 1;
    }
}
