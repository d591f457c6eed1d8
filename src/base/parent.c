/* The supervisor in the environment; contract in parent.h. */
#include "base/parent.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/option.h"

#define GRACE_MAX 86400
#define LOST_MAX  86400.0

mst_status mst_parent_grace(int64_t *seconds)
{
    const char *text = getenv(MST_PARENT_ENV);
    int64_t value = -1;
    *seconds = -1;
    if (text == NULL || *text == '\0')
        return MST_OK;
    if (!mst_parse_int(text, &value) || value < 0 || value > GRACE_MAX)
        return mst_fail(MST_EUSAGE, MST_PARENT_ENV "=%s: must be a number of seconds", text);
    *seconds = value;
    return MST_OK;
}

bool mst_parent_lost(uint64_t *since_ns, const char **why)
{
    const char *text = getenv(MST_PARENT_LOST_ENV);
    char *end = NULL;
    double at = text != NULL ? strtod(text, &end) : 0;
    if (text == NULL || end == text || *end != ' ')
        return false;
    double ago = mst_wall_s() - at;
    *since_ns = ago >= 0 && ago < LOST_MAX ? mst_now_ns() - (uint64_t)(ago * 1e9) : 0;
    *why = end + 1;
    return true;
}
