/* Version, errors and log lines of the public interface; contract in muster/muster.h. */
#include "api/api_impl.h"
#include "base/log.h"
#include "base/version.h"

#define SAME(name) _Static_assert((int)MUSTER_##name == (int)MST_##name, #name)
SAME(OK);
SAME(EUSAGE);
SAME(EINPUT);
SAME(EIO);
SAME(ENOMEM);
SAME(EEXIST);
SAME(ETIMEOUT);
SAME(ESTOPPED);
SAME(EPEER);
SAME(EUNSUPPORTED);
SAME(LOG_ERROR);
SAME(LOG_DEBUG);

const char *muster_version(void)
{
    return mst_version();
}

const char *muster_error_text(void)
{
    return mst_error_text();
}

const char *muster_status_text(muster_status status)
{
    return mst_status_text((mst_status)status);
}

muster_status muster_fail(muster_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    mst_vfail((mst_status)status, format, args);
    va_end(args);
    return status;
}

void mst_api_forget(void)
{
    mst_fail(MST_OK, "%s", "");
}

mst_status mst_api_answer(muster_status status, const char *who)
{
    mst_status st = (mst_status)status;
    if (status == MUSTER_OK)
        return MST_OK;
    if ((unsigned)status > MUSTER_EUNSUPPORTED)
        return mst_fail(MST_EINPUT, "%s failed with %d, which is not a status", who, (int)status);
    return mst_error_text()[0] != '\0' ? st : mst_fail(st, "%s failed: %s", who, mst_status_text(st));
}

/* The log sink of the process (log.h), which calls the function of the program. */
static struct {
    muster_log_sink *sink;
    void *arg;
} g_sink;

static void api_log_line(void *arg, mst_log_level level, const char *line)
{
    (void)arg;
    g_sink.sink(g_sink.arg, (muster_log_level)level, line);
}

void muster_log_set(muster_log_sink *sink, void *arg, muster_log_level level)
{
    g_sink.sink = sink;
    g_sink.arg = arg;
    mst_log_set(sink != NULL ? api_log_line : NULL, NULL, (mst_log_level)level);
}
