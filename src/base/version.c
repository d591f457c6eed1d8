/* The library's version; contract in version.h. */
#include "base/version.h"

const char *mst_version(void)
{
    return MUSTER_VERSION;
}
