/* Integers in little-endian order, and a growing buffer for records. Without memory it sets `failed` and
 * ignores further additions. One owner. */
#ifndef MST_OBSERVE_BYTES_H
#define MST_OBSERVE_BYTES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"

/* The lowest n bytes of the value. */
static inline void mst_put_little(uint8_t *at, uint64_t value, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

static inline uint64_t mst_get_little(const uint8_t *at, unsigned n)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < n; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

typedef struct mst_bytes {
    uint8_t *data;
    size_t n, capacity;
    bool failed;
} mst_bytes;

static inline void mst_bytes_fini(mst_bytes *self)
{
    mst_free(self->data);
    *self = (mst_bytes){0};
}

/* Makes room for n more bytes; false without memory. */
static inline bool mst_bytes_room(mst_bytes *self, size_t n)
{
    if (!self->failed && self->n + n > self->capacity)
        self->failed = !mst_grow(&self->data, &self->capacity, self->n + n, 1);
    return !self->failed;
}

static inline void mst_bytes_add(mst_bytes *self, const void *data, size_t n)
{
    if (n == 0 || !mst_bytes_room(self, n))
        return;
    memcpy(self->data + self->n, data, n);
    self->n += n;
}

#endif
