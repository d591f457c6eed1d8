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
#include "base/figure.h"

#define LINE_FLOATS 16
#define KEY_LIMIT   UINT32_MAX /* keys are 32 bits wide; those of `width` floats may have 2^32 * width */

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
        if (__builtin_mul_overflow(size, dims[i], &size) || size > MST_PARAMS_MAX)
            return mst_fail(MST_EINPUT, "view %s: more than %llu parameters", name, MST_PARAMS_MAX);
    if (width != 0 && size % width != 0)
        return mst_fail(MST_EUSAGE,
                        "view %s: %" PRIu64 " parameters are not a multiple of %" PRIu32 " per key", name,
                        size, width);
    if (width != 0 && size / width > KEY_LIMIT)
        return mst_fail(MST_EINPUT, "view %s: %" PRIu64 " keys; at most %" PRIu32 " are possible", name,
                        size / width, KEY_LIMIT);

    mst_view *view = &params->views[params->n_views];
    *view = (mst_view){.kind = kind, .offset = params->size, .size = size, .width = width, .n_dims = n_dims};
    memcpy(view->name, name, length + 1);
    memcpy(view->dims, dims, n_dims * sizeof *dims);
    params->size = params_round_up(params->size + size); /* at most 128 * 2^42 */
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

/* Reserves n floats, followed by a guard that reaches to `reach` floats if there is address space for it. */
static float *reserve_guarded(mst_params *params, uint64_t floats, uint64_t reach_floats, bool huge)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (params_bytes(floats) + page - 1) / page * page,
           reach = (size_t)reach_floats * sizeof(float);
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

/* ---- rows ---- */

/* Finds the view whose keys get rows. Weights beyond the first, with their state, have up to 16 floats in a
 * power of 2, so that those of a key do not cross a cache line. */
static void params_plan_rows(mst_params *params)
{
    for (uint32_t i = 0; params->by_rows && i < params->n_views; i++) {
        const mst_view *view = &params->views[i];
        uint64_t first = (uint64_t)view->head * view->width;
        uint32_t n_slots = view->state.n_slots, state = view->state.per_key ? 1 : view->width;
        if (view->width == 0 || n_slots == 0 || n_slots > MST_ROW_SLOTS || first >= view->size)
            continue;
        uint32_t rest = (view->width - 1) * (view->state.per_key ? 1 : 1 + n_slots), room = 0;
        while (room < rest)
            room = room == 0 ? 4 : room < LINE_FLOATS ? room * 2 : room + 4;
        params->rows = (mst_key_rows){.width = view->width,
                                      .stride = MST_ROW_FIRST + room,
                                      .state_width = state,
                                      .state_stride = MST_ROW_FIRST + room,
                                      .grouped = view->width > 1,
                                      .n_keys = view->size / view->width,
                                      .first = view->offset + first,
                                      .end = view->offset + view->size};
        return;
    }
}

/* Keys of whole groups. */
static uint64_t rows_round_up(uint64_t n_keys)
{
    return (n_keys + MST_ROW_GROUP - 1) / MST_ROW_GROUP * MST_ROW_GROUP;
}

static uint64_t rows_floats(const mst_params *params)
{
    return params->rows.stride != 0 ? rows_round_up(params->rows.n_keys + params->spare) * params->rows.stride
                                    : 0;
}

/* The part of [first, first + count) of a slot that is in rows, as [*from, *to). */
static void rows_part(const mst_params *params, uint32_t slot, uint64_t first, uint64_t count, uint64_t *from,
                      uint64_t *to)
{
    const mst_key_rows *rows = &params->rows;
    uint64_t end = first + count, rows_end = rows->stride != 0 ? mst_params_rows_end(params, slot) : 0;
    *from = *to = end;
    if (slot > params->keyed.n_slots || first >= rows_end || end <= rows->first)
        return;
    *from = first > rows->first ? first : rows->first;
    *to = end < rows_end ? end : rows_end;
}

/* Calls that visit one float after the other keep its key and its place among the floats of a key. */
typedef struct row_cursor {
    const mst_key_rows *rows;
    uint64_t key;
    float *first, *rest;
    uint32_t c, width, slot;
} row_cursor;

static void row_cursor_aim(row_cursor *self)
{
    self->first = mst_key_first(self->rows, self->key) + self->slot;
    self->rest = mst_key_rest(self->rows, self->key) + (size_t)self->slot * (self->rows->width - 1);
}

static row_cursor rows_cursor(const mst_params *params, uint32_t slot, uint64_t at)
{
    const mst_key_rows *rows = &params->rows;
    uint32_t width = slot == 0 ? rows->width : rows->state_width;
    uint64_t head = rows->n_keys - (rows->end - rows->first) / rows->width;
    at -= rows->first; /* from key `head` on */
    row_cursor self = {
        .rows = rows, .key = head + at / width, .c = (uint32_t)(at % width), .width = width, .slot = slot};
    row_cursor_aim(&self);
    return self;
}

static inline float *row_cursor_next(row_cursor *self)
{
    float *at = self->c == 0 ? self->first : self->rest + self->c - 1;
    if (++self->c == self->width) {
        self->c = 0;
        self->key++;
        row_cursor_aim(self);
    }
    return at;
}

static float *params_vector(const mst_params *params, uint32_t slot)
{
    return slot == 0 ? params->w : params->slots[slot - 1];
}

void mst_params_read(const mst_params *params, uint32_t slot, uint64_t first, uint64_t count, float *out)
{
    const float *vector = params_vector(params, slot);
    uint64_t from, to, end = first + count;
    rows_part(params, slot, first, count, &from, &to);
    memcpy(out, vector + first, (from - first) * sizeof *out);
    if (from < to) {
        row_cursor cursor = rows_cursor(params, slot, from);
        for (uint64_t i = from; i < to; i++)
            out[i - first] = *row_cursor_next(&cursor);
    }
    memcpy(out + (to - first), vector + to, (end - to) * sizeof *out);
}

void mst_params_write(mst_params *params, uint32_t slot, uint64_t first, uint64_t count, const float *in)
{
    float *vector = params_vector(params, slot);
    uint64_t from, to, end = first + count;
    rows_part(params, slot, first, count, &from, &to);
    memcpy(vector + first, in, (from - first) * sizeof *in);
    if (from < to) {
        row_cursor cursor = rows_cursor(params, slot, from);
        for (uint64_t i = from; i < to; i++)
            *row_cursor_next(&cursor) = in[i - first];
    }
    memcpy(vector + to, in + (to - first), (end - to) * sizeof *in);
}

void mst_params_fill(mst_params *params, uint32_t slot, uint64_t first, uint64_t count, float value)
{
    float *vector = params_vector(params, slot);
    uint64_t at = first, piece, n, from, to;
    while (mst_params_next_piece(params, slot, &at, first + count, &piece, &n)) {
        rows_part(params, slot, piece, n, &from, &to);
        for (uint64_t i = piece; i < piece + n; i++)
            if (i < from || i >= to)
                vector[i] = value;
        row_cursor cursor = {0};
        if (from < to)
            cursor = rows_cursor(params, slot, from);
        for (uint64_t i = from; i < to; i++)
            *row_cursor_next(&cursor) = value;
    }
}

bool mst_params_next_piece(const mst_params *params, uint32_t slot, uint64_t *at, uint64_t end,
                           uint64_t *first, uint64_t *count)
{
    if (slot == 0 && *at < end) {
        *first = *at;
        *count = end - *at;
        *at = end;
        return true;
    }
    for (uint32_t i = 0; i < params->n_views && *at < end; i++) {
        const mst_view *view = &params->views[i];
        uint64_t view_end = view->offset + view->size, from = *at > view->offset ? *at : view->offset,
                 to = end < view_end ? end : view_end;
        if (slot > view->state.n_slots || from >= to)
            continue;
        *at = to;
        *first = mst_view_state_at(view, slot, from);
        *count = mst_view_state_at(view, slot, to) - *first;
        if (*count > 0)
            return true;
    }
    *at = end;
    return false;
}

bool mst_params_weights_of(const mst_params *params, uint32_t slot, uint64_t *first, uint64_t *count)
{
    if (slot == 0)
        return true;
    for (uint32_t i = 0; i < params->n_views; i++) {
        const mst_view *view = &params->views[i];
        uint64_t end = view->offset + mst_view_floats(view, slot);
        if (slot > view->state.n_slots || *first < view->offset || *first >= end)
            continue;
        if (*count > end - *first)
            return false;
        uint64_t from = mst_view_weight_at(view, slot, *first);
        *count = mst_view_weight_at(view, slot, *first + *count) - from;
        *first = from;
        return true;
    }
    return false;
}

/* ---- memory ---- */

/* Floats of weights and state outside of rows, with the gaps behind views. */
static uint64_t params_flat_floats(const mst_params *params)
{
    uint64_t floats = params->size - (params->rows.end - params->rows.first);
    for (uint32_t i = 0; i < params->n_views; i++) {
        const mst_view *view = &params->views[i];
        bool rows = params->rows.stride != 0 && params->rows.end == view->offset + view->size;
        uint64_t in_rows = rows ? params->rows.end - params->rows.first : 0;
        for (uint32_t s = 1; s <= view->state.n_slots; s++)
            floats += params_round_up(rows ? view->size : mst_view_floats(view, s)) - in_rows;
    }
    return floats;
}

bool mst_params_huge(const mst_params *params)
{
    return wants_huge_pages(params_flat_floats(params) + params->spare + rows_floats(params));
}

/* w and state in one piece, of which the floats in rows are never touched; then the rows. */
static mst_status params_reserve_rows(mst_params *params, uint32_t n_slots)
{
    mst_key_rows *rows = &params->rows;
    uint64_t step = params_round_up(params->size);
    bool huge = mst_params_huge(params);
    params->w = mst_pages_reserve(params_bytes(step * (n_slots + 1)), false);
    if (params->w == NULL)
        return MST_ENOMEM;
    params->slot_step = step;
    params->n_slots = n_slots;
    for (uint32_t i = 0; i < n_slots; i++)
        params->slots[i] = params->w + (i + 1) * step;
    rows->at = reserve_guarded(params, rows_floats(params),
                               rows->width == 1 ? (1ull << 32) * rows->stride : 0, huge);
    return rows->at != NULL ? MST_OK : MST_ENOMEM;
}

static mst_status params_reserve_vectors(mst_params *params, uint32_t n_slots)
{
    uint64_t reach = 0;
    bool huge = mst_params_huge(params);
    for (uint32_t i = 0; i < params->n_views; i++)
        if (params->views[i].width == 1)
            reach = params->views[i].offset + (1ull << 32);
    params->w = reserve_guarded(params, params->size + params->spare, reach, huge);
    if (params->w == NULL)
        return MST_ENOMEM;
    for (uint32_t i = 0; i < n_slots; i++) {
        params->slots[i] = mst_pages_reserve(params_bytes(params->size), huge);
        if (params->slots[i] == NULL)
            return MST_ENOMEM;
        params->n_slots = i + 1;
    }
    return MST_OK;
}

/* Completes what the views say about state. */
static void params_plan_state(mst_params *params, uint32_t n_slots)
{
    bool given = false, keyed = false;
    for (uint32_t i = 0; i < params->n_views; i++)
        given |= params->views[i].state.n_slots > 0;
    for (uint32_t i = 0; i < params->n_views; i++) {
        mst_view *view = &params->views[i];
        if (!given && view->kind == MST_VIEW_TRAINABLE)
            view->state.n_slots = n_slots;
        if (view->width == 0 || keyed)
            continue;
        keyed = true;
        params->keyed.first = view->offset;
        params->keyed.end = view->offset + view->size;
        params->keyed.n_slots = view->state.n_slots;
        params->keyed.state_width = view->state.per_key ? 1 : view->width;
        params->keyed.state = view->offset + (uint64_t)view->head * (view->width - params->keyed.state_width);
    }
}

mst_status mst_params_reserve(mst_params *params, uint32_t n_slots, uint64_t spare)
{
    if (n_slots > MST_SLOT_MAX)
        return mst_fail(MST_EUSAGE, "%" PRIu32 " state vectors; a store has at most %d", n_slots,
                        MST_SLOT_MAX);
    const mst_view *last = params->n_views ? &params->views[params->n_views - 1] : NULL;
    uint64_t end = last ? last->offset + last->size : 0;
    if (end > MST_PARAMS_MAX)
        return mst_fail(MST_EINPUT, "the model has %" PRIu64 " parameters; at most %llu are possible", end,
                        MST_PARAMS_MAX);
    params->spare = spare;
    params_plan_state(params, n_slots);
    params_plan_rows(params);
    if ((params->rows.stride != 0 ? params_reserve_rows : params_reserve_vectors)(params, n_slots) == MST_OK)
        return MST_OK;
    char need[MST_FIGURE_SIZE];
    const char *what = n_slots == 0 ? "" : " and their optimizer state";
    mst_figure_size(mst_params_bytes(params), need);
    mst_params_fini(params);
    return mst_fail(MST_ENOMEM, "no memory for %" PRIu64 " parameters%s: %s", end, what, need);
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
    uint64_t from, to;
    if (count == 0 || !mst_params_huge(params))
        return;
    for (uint32_t i = 0; i <= params->n_slots; i++) {
        uint64_t at = first, piece, n;
        while (mst_params_next_piece(params, i, &at, first + count, &piece, &n)) {
            rows_part(params, i, piece, n, &from, &to);
            if (piece < from)
                params_populate(params_vector(params, i) + piece, from - piece);
            if (to < piece + n)
                params_populate(params_vector(params, i) + to, piece + n - to);
        }
    }
    rows_part(params, 0, first, count, &from, &to);
    if (from < to) {
        size_t bytes;
        const float *memory = mst_params_row_memory(params, 0, from, to - from, &bytes);
        params_populate((float *)memory, bytes / sizeof *memory);
    }
}

void mst_params_populate(mst_params *params)
{
    mst_params_populate_part(params, 0, params->size);
    if (params->spare > 0 && params->rows.stride == 0 && mst_params_huge(params))
        params_populate(params->w + params->size, params->spare);
}

void mst_params_fini(mst_params *params)
{
    mst_fault_unguard(params->guard);
    if (params->rows.stride != 0) {
        if (params->rows.at != NULL)
            mst_pages_release(params->rows.at,
                              params->reach ? params->reach : params_bytes(rows_floats(params)));
        if (params->w != NULL)
            mst_pages_release(params->w, params_bytes(params->slot_step * (params->n_slots + 1)));
    } else {
        if (params->w != NULL)
            mst_pages_release(params->w,
                              params->reach ? params->reach : params_bytes(params->size + params->spare));
        for (uint32_t i = 0; i < params->n_slots; i++)
            mst_pages_release(params->slots[i], params_bytes(params->size));
    }
    memset(params, 0, sizeof *params);
}

const mst_view *mst_params_find(const mst_params *params, const char *name)
{
    for (uint32_t i = 0; i < params->n_views; i++)
        if (strcmp(params->views[i].name, name) == 0)
            return &params->views[i];
    return NULL;
}

mst_key_rows mst_params_planned_rows(const mst_params *params)
{
    mst_params plan = *params;
    if (plan.w == NULL)
        params_plan_rows(&plan);
    return plan.rows;
}

uint64_t mst_params_bytes(const mst_params *params)
{
    mst_params plan = *params;
    plan.rows = mst_params_planned_rows(params);
    uint64_t in_rows = plan.rows.end - plan.rows.first;
    uint64_t rows = in_rows > 0 ? rows_round_up(in_rows / plan.rows.width) * plan.rows.stride : 0;
    return (params_flat_floats(&plan) + rows) * sizeof(float);
}

uint64_t mst_params_count(const mst_params *params)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < params->n_views; i++)
        n += params->views[i].size;
    return n;
}
