/* The parameter store; contract in params.h.
 *
 * Every view's end is rounded up to a cache line, so the next view, and the spare floats after the last,
 * start on one. Huge pages make random access to a large model faster, but a touched weight then costs 2 MB;
 * they are used only while the whole store is a small part of this machine's memory, so that a sparse model
 * larger than memory uses memory only for the weights it touches. */
#include "tensor/params.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/fault.h"

#define LINE_FLOATS 16
#define SIZE_LIMIT  UINT32_MAX /* floats: keys are 32 bits wide */

static uint64_t params_round_up(uint64_t floats)
{
    return (floats + LINE_FLOATS - 1) / LINE_FLOATS * LINE_FLOATS;
}

mst_status mst_params_add(mst_params *params, const char *name, mst_view_kind kind, uint32_t width,
                          uint32_t n_dims, const uint64_t *dims, uint32_t *out)
{
    size_t length = strlen(name);
    if (params->w != NULL)
        return mst_fail(MST_EUSAGE, "view %s: declared after the store was reserved", name);
    if (length == 0 || length >= sizeof params->views->name)
        return mst_fail(MST_EUSAGE, "view \"%s\": a name has 1 to %zu characters", name,
                        sizeof params->views->name - 1);
    if (mst_params_find(params, name) != NULL)
        return mst_fail(MST_EUSAGE, "view %s: declared twice", name);
    if (params->n_views == MST_VIEW_MAX)
        return mst_fail(MST_EUSAGE, "view %s: a store has at most %d views", name, MST_VIEW_MAX);
    if (n_dims == 0 || n_dims > MST_VIEW_NDIM)
        return mst_fail(MST_EUSAGE, "view %s: %" PRIu32 " dimensions; there must be 1 to %d", name, n_dims,
                        MST_VIEW_NDIM);
    uint64_t size = 1;
    for (uint32_t i = 0; i < n_dims; i++)
        if (__builtin_mul_overflow(size, dims[i], &size) || size > SIZE_LIMIT)
            return mst_fail(MST_EINPUT, "view %s: more than %" PRIu32 " parameters", name, SIZE_LIMIT);
    if (width != 0 && size % width != 0)
        return mst_fail(MST_EUSAGE,
                        "view %s: %" PRIu64 " parameters are not a multiple of %" PRIu32 " per key", name,
                        size, width);

    mst_view *view = &params->views[params->n_views];
    *view = (mst_view){.kind = kind, .offset = params->size, .size = size, .width = width, .n_dims = n_dims};
    memcpy(view->name, name, length + 1);
    memcpy(view->dims, dims, n_dims * sizeof *dims);
    params->size = params_round_up(params->size + size); /* at most 128 * 2^32 */
    if (out != NULL)
        *out = params->n_views;
    params->n_views++;
    return MST_OK;
}

/* Never zero: an empty store still has an address. */
static size_t params_bytes(uint64_t floats)
{
    return (size_t)(floats ? floats : LINE_FLOATS) * sizeof(float);
}

static bool wants_huge_pages(uint64_t floats)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 && floats * sizeof(float) <= (uint64_t)pages * (uint64_t)page / 4;
}

/* Reserves w, with a guard if a view needs one and there is address space for it. */
static float *reserve_weights(mst_params *params, uint64_t floats, bool huge)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (params_bytes(floats) + page - 1) / page * page,
           reach = 0;
    for (uint32_t i = 0; i < params->n_views; i++)
        if (params->views[i].width == 1)
            reach = (size_t)(params->views[i].offset + (1ull << 32)) * sizeof(float);
    if (reach <= size)
        return mst_pages_reserve(params_bytes(floats), huge);
    reach = (reach + page - 1) / page * page;
    uint8_t *w = mst_pages_reserve_guarded(size, reach, huge);
    if (w != NULL)
        params->guard = mst_fault_guard(w + size, reach - size, MST_FAULT_GUARD);
    if (params->guard != NULL) {
        params->reach = reach;
        return (float *)w;
    }
    if (w != NULL)
        mst_pages_release(w, reach);
    return mst_pages_reserve(params_bytes(floats), huge);
}

bool mst_params_strayed(const mst_params *params)
{
    return mst_fault_hit(params->guard);
}

mst_status mst_params_reserve(mst_params *params, uint32_t n_slots, uint64_t spare)
{
    if (n_slots > MST_SLOT_MAX)
        return mst_fail(MST_EUSAGE, "%" PRIu32 " state vectors; a store has at most %d", n_slots,
                        MST_SLOT_MAX);
    const mst_view *last = params->n_views ? &params->views[params->n_views - 1] : NULL;
    uint64_t end = last ? last->offset + last->size : 0;
    if (end > SIZE_LIMIT)
        return mst_fail(MST_EINPUT, "the model has %" PRIu64 " parameters; at most %" PRIu32 " are possible",
                        end, SIZE_LIMIT);

    bool huge = wants_huge_pages(params->size * (n_slots + 1) + spare);
    float *w = reserve_weights(params, params->size + spare, huge);
    if (w == NULL)
        return mst_fail(MST_ENOMEM, "no memory for %" PRIu64 " parameters", end);
    params->w = w;
    params->spare = spare;
    for (uint32_t i = 0; i < n_slots; i++) {
        params->slots[i] = mst_pages_reserve(params_bytes(params->size), huge);
        if (params->slots[i] == NULL) {
            mst_params_fini(params);
            return mst_fail(MST_ENOMEM, "no memory for the optimizer state of %" PRIu64 " parameters", end);
        }
        params->n_slots = i + 1;
    }
    return MST_OK;
}

/* Whole pages of 4 KB. Touching adjacent pages at either end is harmless. */
static void params_populate(float *from, uint64_t count)
{
    uintptr_t start = (uintptr_t)from & ~(uintptr_t)4095;
    uintptr_t end = ((uintptr_t)(from + count) + 4095) & ~(uintptr_t)4095;
    mst_pages_populate((void *)start, end - start);
}

void mst_params_populate_part(mst_params *params, uint64_t first, uint64_t count)
{
    if (count == 0 || !wants_huge_pages(params->size * (params->n_slots + 1) + params->spare))
        return;
    params_populate(params->w + first, count);
    for (uint32_t i = 0; i < params->n_slots; i++)
        params_populate(params->slots[i] + first, count);
}

void mst_params_populate(mst_params *params)
{
    mst_params_populate_part(params, 0, params->size);
    if (params->spare > 0 && wants_huge_pages(params->size * (params->n_slots + 1) + params->spare))
        params_populate(params->w + params->size, params->spare);
}

void mst_params_fini(mst_params *params)
{
    mst_fault_unguard(params->guard);
    if (params->w != NULL)
        mst_pages_release(params->w,
                          params->reach ? params->reach : params_bytes(params->size + params->spare));
    for (uint32_t i = 0; i < params->n_slots; i++)
        mst_pages_release(params->slots[i], params_bytes(params->size));
    memset(params, 0, sizeof *params);
}

const mst_view *mst_params_find(const mst_params *params, const char *name)
{
    for (uint32_t i = 0; i < params->n_views; i++)
        if (strcmp(params->views[i].name, name) == 0)
            return &params->views[i];
    return NULL;
}

uint64_t mst_params_count(const mst_params *params)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < params->n_views; i++)
        n += params->views[i].size;
    return n;
}
