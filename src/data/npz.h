/* Members of .npz files, which are zip archives of .npy files: stored or deflated, with zip64 or without. */
#ifndef MST_DATA_NPZ_H
#define MST_DATA_NPZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* The bytes of an array: in the archive, or in memory of their own. */
typedef struct mst_npz_member {
    const uint8_t *data; /* NULL: there is no such member */
    size_t size;
    uint8_t *owned; /* freed with mst_free; or NULL */
} mst_npz_member;

/* Finds NAME.npy in the archive of n bytes. MST_EINPUT, naming path, for a damaged archive. */
mst_status mst_npz_find(const char *path, const uint8_t *data, size_t n, const char *name,
                        mst_npz_member *out);

#endif
