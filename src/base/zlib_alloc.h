/* zlib's memory through base/alloc.h, for z_stream.zalloc and zfree. */
#ifndef MST_BASE_ZLIB_ALLOC_H
#define MST_BASE_ZLIB_ALLOC_H

#include <zlib.h>

#include "base/alloc.h"

static inline void *mst_zlib_alloc(void *unused, uInt n, uInt size)
{
    (void)unused;
    return mst_calloc(n, size);
}

static inline void mst_zlib_free(void *unused, void *block)
{
    (void)unused;
    mst_free(block);
}

#endif
