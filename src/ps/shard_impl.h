/* What shard.c, shard_apply.c and shard_gather.c share; nobody else includes this. */
#ifndef MST_PS_SHARD_IMPL_H
#define MST_PS_SHARD_IMPL_H

#include "base/team.h"
#include "ps/shard.h"

#define MST_SHARD_LARGE   65536 /* floats from which a hand-off to other threads pays */
#define MST_SHARD_AHEAD   64    /* keys from prefetch to use */
#define MST_SHARD_THREADS 64
#define MST_SHARD_CHUNK   1024 /* floats that are summed or converted at a time, at least one key */

/* One list of a worker's ring. */
typedef struct mst_shard_list {
    bool known;
    uint32_t request;
    mst_list list;
} mst_shard_list;

static inline const mst_shard_list *mst_shard_list_of(const mst_list *list)
{
    return (const mst_shard_list *)(const void *)((const char *)list - offsetof(mst_shard_list, list));
}

/* A thread's reading position in one push (shard_apply.c). */
typedef struct mst_shard_cursor mst_shard_cursor;
/* A push with its weight (shard_apply.c). */
typedef struct mst_shard_push mst_shard_push;

struct mst_shard {
    mst_shard_options options;
    uint32_t large;
    mst_team *team;            /* NULL: one thread */
    uint64_t key_from, key_to; /* keys of this server */
    mst_extent *owned;         /* floats of this server; adjoining partitions are one */
    uint32_t n_owned;
    mst_shard_list **lists; /* [n_workers] of MST_LISTS, made at a worker's first pull */
    mst_shard_list watched;
    size_t chunk;              /* floats of a chunk: MST_SHARD_CHUNK, at least a key's */
    float *chunks;             /* per thread: one chunk */
    uint32_t *chunk_keys;      /* per thread: chunk / width keys */
    mst_shard_push *pushes;    /* n_workers; made at the first apply */
    mst_shard_cursor *cursors; /* per thread n_workers */
    uint64_t *heaps;           /* per thread n_workers */
    float clip;                /* of the update whose pieces are being applied */
    float *windows;            /* per cursor one chunk; made at the first push that is not plain floats */
};

/* Threads for a request of so many floats. */
static inline unsigned mst_shard_threads(const mst_shard *self, uint64_t floats)
{
    return self->team != NULL && floats >= self->large ? mst_team_size(self->team) : 1;
}

/* Reads floats [from, to) of a list's ranges, and its keys where `keys`, into out, in the wire's format and
 * as they stand in the list (shard_gather.c). */
void mst_shard_gather(mst_shard *self, const mst_list *list, mst_wire wire, uint64_t from, uint64_t to,
                      bool keys, void *out);
/* Weights of n keys as floats; out may lie anywhere. w: of key 0. */
void mst_shard_read_keys(const float *w, uint32_t width, const uint32_t *keys, size_t n, uint8_t *out);

void mst_shard_apply_fini(mst_shard *self); /* frees what shard_apply.c made */

#endif
