/* Memory of chunks that is used again: parsing threads make chunks at a high rate, other threads release
 * them, and fresh memory costs page faults. */
#ifndef MST_DATA_CHUNK_POOL_H
#define MST_DATA_CHUNK_POOL_H

#include "data/chunk.h"

/* NULL when memory is short. */
mst_chunk_pool *mst_chunk_pool_new(void);

/* Drops the reference of the owner. Chunks that are still in use keep the pool until they are released.
 * NULL-safe. */
void mst_chunk_pool_release(mst_chunk_pool *self);

/* Memory for a chunk of so many bytes, on a 64-byte boundary, with pool and capacity set; the rest is unset.
 * self NULL: from the heap. NULL when memory is short. mst_chunk_pool_give takes it back. Any thread. */
mst_chunk *mst_chunk_pool_take(mst_chunk_pool *self, size_t bytes);
void mst_chunk_pool_give(mst_chunk *chunk);

#endif
