/* The supervisor in the environment; contract in parent.h. */
#include "base/parent.h"

#include <stdlib.h>

#include "base/option.h"

#define GRACE_MAX 86400

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
