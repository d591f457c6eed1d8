/* Memory of a gradient; contract in grad.h. Appending happens in the models' inner loops, into room made
 * here. */
#include "tensor/grad.h"

#include <inttypes.h>

#include "base/alloc.h"
#include "base/isa.h"
#include "tensor/past_caches.h"

#define LINE  16 /* floats */
#define LINES 4  /* summed at once */
typedef float line __attribute__((vector_size(LINE * 4), aligned(4), may_alias));

mst_status mst_grad_init(mst_grad *grad, const mst_range *ranges, uint32_t n_ranges, uint64_t sparse_offset,
                         uint32_t width, uint32_t n_owners)
{
    mst_status st = MST_OK;
    memset(grad, 0, sizeof *grad);
    if (n_ranges > MST_RANGE_MAX)
        return mst_fail(MST_EUSAGE, "a gradient of %" PRIu32 " dense ranges; at most %d are possible",
                        n_ranges, MST_RANGE_MAX);
    if (width > 0 && n_owners == 0)
        return mst_fail(MST_EUSAGE, "a sparse gradient without owners");
    for (uint32_t i = 0; i < n_ranges; i++) {
        mst_range *range = &grad->ranges[i];
        size_t size = (size_t)ranges[i].size * sizeof(float);
        *range = (mst_range){.offset = ranges[i].offset,
                             .size = ranges[i].size,
                             .g = mst_alloc_lines(size),
                             .state = ranges[i].state};
        if (range->g == NULL) {
            st =
                mst_fail(MST_ENOMEM, "no memory for a dense gradient of %" PRIu64 " parameters", range->size);
            goto out;
        }
        memset(range->g, 0, size);
        grad->n_ranges = i + 1;
    }
    grad->sparse_offset = sparse_offset;
    grad->width = width;
    if (width > 0) {
        grad->owners = mst_calloc(n_owners, sizeof *grad->owners);
        if (grad->owners == NULL) {
            st = mst_fail_memory();
            goto out;
        }
    }
    grad->n_owners = n_owners;
out:
    if (st != MST_OK)
        mst_grad_fini(grad);
    return st;
}

void mst_grad_fini(mst_grad *grad)
{
    for (uint32_t i = 0; i < grad->n_ranges; i++)
        mst_free(grad->ranges[i].g);
    for (uint32_t i = 0; grad->owners != NULL && i < grad->n_owners; i++) {
        mst_free(grad->owners[i].keys);
        mst_free(grad->owners[i].values);
    }
    mst_free(grad->owners);
    memset(grad, 0, sizeof *grad);
}

void mst_grad_renew(mst_grad *grad)
{
    for (uint32_t i = 0; grad->owners != NULL && i < grad->n_owners; i++)
        grad->owners[i].n = 0;
    grad->fresh = true;
}

void mst_grad_clear(mst_grad *grad)
{
    mst_grad_renew(grad);
    grad->fresh = false;
    for (uint32_t i = 0; i < grad->n_ranges; i++)
        memset(grad->ranges[i].g, 0, (size_t)grad->ranges[i].size * sizeof(float));
}

mst_status mst_grad_room(mst_grad *grad, size_t n)
{
    for (uint32_t i = 0; grad->owners != NULL && i < grad->n_owners; i++) {
        mst_contributions *list = &grad->owners[i];
        if (n <= list->capacity - list->n)
            continue;
        /* Both arrays grow by the same rule; the capacity changes only once both have. */
        size_t keys = list->capacity, values = list->capacity, need = list->n + n;
        if (need < n || !mst_grow(&list->keys, &keys, need, sizeof *list->keys) ||
            !mst_grow(&list->values, &values, need, grad->width * sizeof *list->values))
            return mst_fail_memory();
        list->capacity = keys < values ? keys : values;
    }
    return MST_OK;
}

void mst_grad_slice(uint64_t size, unsigned t, unsigned n, uint64_t *from, uint64_t *to)
{
    uint64_t lines = (size + LINE - 1) / LINE;
    *from = lines * t / n * LINE;
    *to = lines * (t + 1) / n * LINE;
    *from = *from < size ? *from : size;
    *to = *to < size ? *to : size;
}

static const float *grad_range_of(const mst_grad *first, size_t stride, unsigned s, uint32_t range)
{
    return ((const mst_grad *)((const char *)first + s * stride))->ranges[range].g;
}

/* Some lines of all gradients at a time, side by side: they come from the caches of other cores, and many of
 * them are under way at once. */
MST_WIDE static void grad_sum_range(const mst_grad *first, size_t stride, unsigned n, uint32_t range,
                                    uint64_t begin, uint64_t end, float *to)
{
    uint64_t i = begin;
    for (; i + LINES * LINE <= end; i += LINES * LINE) {
        const line *from = (const line *)(grad_range_of(first, stride, 0, range) + i);
        line a = from[0], b = from[1], c = from[2], d = from[3], *at = (line *)(to + i);
        for (unsigned s = 1; s < n; s++) {
            from = (const line *)(grad_range_of(first, stride, s, range) + i);
            a += from[0];
            b += from[1];
            c += from[2];
            d += from[3];
        }
        at[0] = a;
        at[1] = b;
        at[2] = c;
        at[3] = d;
    }
    for (; i < end; i++) {
        float sum = grad_range_of(first, stride, 0, range)[i];
        for (unsigned s = 1; s < n; s++)
            sum += grad_range_of(first, stride, s, range)[i];
        to[i] = sum;
    }
}

void mst_grad_sum_slices(const mst_grad *first, size_t stride, unsigned n_grads, unsigned t, unsigned n,
                         mst_grad *to)
{
    for (uint32_t r = 0; r < to->n_ranges; r++) {
        uint64_t begin, end;
        mst_grad_slice(to->ranges[r].size, t, n, &begin, &end);
        if (!to->ranges[r].state && begin < end)
            grad_sum_range(first, stride, n_grads, r, begin, end, to->ranges[r].g);
    }
}

void mst_grad_show(const mst_grad *grad, mst_grad *to)
{
    for (uint32_t r = 0; r < grad->n_ranges; r++)
        if (!grad->ranges[r].state)
            mst_stream_copy(to->ranges[r].g, grad->ranges[r].g, grad->ranges[r].size);
    mst_stream_end();
}

mst_status mst_picks_init(mst_picks *picks, uint32_t n_blocks)
{
    *picks = (mst_picks){.n_blocks = n_blocks, .ends = mst_calloc(n_blocks, sizeof *picks->ends)};
    return picks->ends != NULL ? MST_OK : mst_fail_memory();
}

void mst_picks_fini(mst_picks *picks)
{
    mst_free(picks->ends);
    mst_free(picks->at);
    mst_free(picks->values);
    *picks = (mst_picks){0};
}

mst_status mst_picks_begin(mst_picks *picks, size_t n, bool valued)
{
    enum { PER_LINE = 64 / sizeof *picks->at };
    /* An odd number of lines: blocks that grow side by side are not in the same set of a cache. */
    picks->room = ((n + MST_PICK_SLACK + PER_LINE - 1) / PER_LINE | 1) * PER_LINE;
    picks->valued = valued;
    for (uint32_t b = 0; b < picks->n_blocks; b++)
        picks->ends[b] = b * picks->room;
    size_t need = picks->room * picks->n_blocks;
    if (need > picks->capacity) {
        picks->capacity = 0;
        mst_free(picks->at);
        mst_free(picks->values);
        picks->values = NULL;
        picks->at = mst_alloc_lines(need * sizeof *picks->at);
        if (picks->at == NULL)
            return mst_fail_memory();
        picks->capacity = need;
    }
    if (valued && picks->values == NULL)
        picks->values = mst_alloc_lines(picks->capacity * sizeof *picks->values);
    return valued && picks->values == NULL ? mst_fail_memory() : MST_OK;
}
