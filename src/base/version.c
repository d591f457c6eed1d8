/* The library's version; contract in muster/muster.h. */
#include "muster/muster.h"

const char *mst_version(void)
{
    return MUSTER_VERSION;
}
