/* Shared by store.c, store_apply.c and store_gather.c; no other file includes this. */
#ifndef MST_PS_STORE_IMPL_H
#define MST_PS_STORE_IMPL_H

#include "base/team.h"
#include "ps/store.h"

#define MST_STORE_LARGE   65536 /* floats from which a hand-off to other threads pays */
#define MST_STORE_AHEAD   64    /* keys from prefetch to use */
#define MST_STORE_THREADS 64
#define MST_STORE_CHUNK   1024 /* floats that are summed or converted at a time, at least one key */

/* One list of a worker's ring. */
typedef struct mst_store_list {
    bool known;
    uint32_t request;
    mst_key_list list;
} mst_store_list;

static inline const mst_store_list *mst_store_list_of(const mst_key_list *list)
{
    return (const mst_store_list *)(const void *)((const char *)list - offsetof(mst_store_list, list));
}

/* A thread's reading position in one push (store_apply.c). */
typedef struct mst_store_cursor mst_store_cursor;
/* A push with its weight (store_apply.c). */
typedef struct mst_store_push mst_store_push;

struct mst_store {
    mst_store_options options;
    uint32_t large;
    mst_team *team;            /* NULL: one thread */
    uint64_t key_from, key_to; /* keys of this server */
    mst_extent *owned;         /* floats of this server; adjoining partitions are one */
    uint32_t n_owned;
    mst_store_list **lists;    /* [n_workers] of MST_LISTS, made at a worker's first pull */
    mst_store_list eval;       /* of the chief */
    size_t chunk;              /* floats of a chunk: MST_STORE_CHUNK, at least a key's */
    float *chunks;             /* per thread: one chunk */
    uint32_t *chunk_keys;      /* per thread: chunk / width keys */
    mst_store_push *pushes;    /* n_workers; made at the first apply */
    mst_store_cursor *cursors; /* per thread n_workers */
    uint64_t *heaps;           /* per thread n_workers */
    float clip;                /* of the update whose pieces are being applied */
    float *windows;            /* per cursor one chunk; made at the first push that is not plain floats */
};

/* Threads for a request of this many floats. */
static inline unsigned mst_store_threads(const mst_store *self, uint64_t floats)
{
    return self->team != NULL && floats >= self->large ? mst_team_size(self->team) : 1;
}

/* Reads floats [from, to) of a list's ranges, and its keys where `keys`, into out, in the wire's format and
 * as they stand in the list (store_gather.c). */
void mst_store_gather(mst_store *self, const mst_key_list *list, mst_float_format wire, uint64_t from,
                      uint64_t to, bool keys, void *out);
/* Weights of n keys as floats; out may lie anywhere. w: of key 0. */
void mst_store_read_keys(const float *w, uint32_t width, const uint32_t *keys, size_t n, uint8_t *out);

void mst_store_apply_fini(mst_store *self); /* frees the memory of store_apply.c */

#endif
