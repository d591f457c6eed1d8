/* Any bytes as STEP, EVAL_LIST and DELTA bodies, as parts of gradients and as work items, with a small real
 * store. Accepted messages are applied and answered, whole and in parts, so a list that should not have been
 * stored is followed to its end. Parts are received into room of exactly their size, as in a server.
 *
 * The input is a sequence of messages: one byte for the action, the header's fields in few bits, the length
 * of the body, the body. A body may have the counts of its head corrected, so that not every message fails at
 * its size. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ps/delta.h"
#include "ps/store.h"

enum { N_KEYS = 4096, N_DENSE = 256, N_WORKERS = 2 };

typedef struct input {
    const uint8_t *at;
    size_t left;
} input;

static uint32_t number(input *in, size_t size)
{
    uint32_t v = 0;
    for (size_t i = 0; i < size && in->left > 0; i++, in->left--)
        v = v << 8 | *in->at++;
    return v;
}

static void check(mst_status st)
{
    if (st != MST_OK)
        abort();
}

/* Makes the head's counts fit the body's size: bytes left after the floats and ranges are packed keys. */
static void mend(uint8_t *body, size_t size, uint32_t flags, uint32_t floats, uint32_t ranges, uint32_t keys)
{
    size_t wire = mst_float_size((mst_float_format)(flags >> MST_STEP_WIRE_SHIFT & 3));
    if (size < MST_STEP_HEAD)
        return;
    size_t rest = size - MST_STEP_HEAD;
    mst_step_head head = {.rows = body[16], .push_floats = flags & MST_STEP_PUSH ? floats : 0};
    rest -= head.push_floats * wire <= rest ? head.push_floats * wire : rest;
    if (flags & MST_STEP_PULL) {
        head.pull_ranges = ranges;
        head.pull_keys = keys;
        head.packed_bytes =
            (uint32_t)(rest - (ranges * (size_t)MST_RANGE_SIZE <= rest ? ranges * MST_RANGE_SIZE : 0));
    }
    mst_step_head_encode(&head, body);
}

/* A push that comes in parts, of each worker. */
typedef struct staged {
    mst_store_parts parts;
    uint8_t *values;
} staged;

static void drop(staged *s)
{
    free(s->values);
    *s = (staged){0};
}

static void part(mst_store *store, mst_message m, uint32_t worker, const uint8_t *body, staged *s)
{
    mst_store_parts next;
    m.type = MST_PS_GRADIENT;
    if (s->parts.floats != 0 && (m.step & 1)) /* where the next part belongs */
        m.step = s->parts.from - m.size / mst_float_size(s->parts.wire);
    if (mst_store_part(store, worker, &m, &s->parts, &next) != MST_OK)
        return;
    size_t size = mst_float_size(next.wire);
    if (s->values == NULL && (s->values = malloc(next.floats * size)) == NULL)
        abort();
    memcpy(s->values + next.from * size, body, m.size);
    s->parts = next;
}

/* The answer in parts of the size wished for, and the rest. */
static void answer_parts(mst_store *store, const mst_store_request *r)
{
    uint64_t all = r->pulled != NULL ? mst_key_list_range_floats(r->pulled) : 0, at = 0;
    uint64_t n = r->head.part_floats % 64 + 1;
    for (; at + n < all; at += n) {
        mst_piece pieces[MST_PIECE_MAX];
        uint8_t *out = malloc(n * mst_float_size(r->wire));
        if (out == NULL)
            abort();
        mst_store_reply_part(store, r, at, n, out);
        if (mst_key_list_below(r->pulled, mst_store_reply_place(r, at)) != at)
            abort();
        uint32_t n_pieces = mst_store_reply_pieces(store, r, at, n, pieces, MST_PIECE_MAX);
        size_t before = 0;
        for (uint32_t i = 0; i < n_pieces; before += pieces[i++].size)
            if (memcmp(out + before, pieces[i].data, pieces[i].size) != 0)
                abort();
        free(out);
    }
    if (r->pulled == NULL)
        return;
    uint8_t *rest = malloc(mst_store_reply_size(store, r) - at * mst_float_size(r->wire) + 1);
    if (rest == NULL)
        abort();
    mst_store_reply_rest(store, r, at, rest);
    free(rest);
}

static void step(mst_store *store, const mst_message *m, uint32_t worker, const uint8_t *body, staged *s)
{
    mst_store_request r;
    const mst_store_request *one = &r;
    bool in_parts = s->values != NULL && (m->flags & MST_STEP_PUSH);
    if (mst_store_read(store, worker, m, body, in_parts ? &s->parts : NULL, in_parts ? s->values : NULL,
                       &r) != MST_OK) {
        if (in_parts)
            drop(s);
        return;
    }
    const mst_update u = {.lr = 0.1f, .step = 1};
    if (r.values != NULL && in_parts) {
        check(mst_store_apply_piece(store, &one, 1, &u, 0, N_KEYS * 2 + N_DENSE / 2));
        check(mst_store_apply_piece(store, &one, 1, &u, N_KEYS * 2 + N_DENSE / 2, UINT64_MAX));
    } else if (r.values != NULL) {
        check(mst_store_apply(store, &one, 1, &u));
    }
    size_t size = mst_store_reply_size(store, &r);
    void *reply = malloc(size + 1);
    if (reply == NULL)
        abort();
    mst_store_reply(store, &r, reply);
    free(reply);
    answer_parts(store, &r);
    if (in_parts)
        drop(s);
}

static void watch(mst_store *store, const mst_message *m, const uint8_t *body)
{
    if (mst_store_eval_list(store, m, body) != MST_OK)
        return;
    void *values = malloc(mst_store_eval_size(store) + 1);
    if (values == NULL)
        abort();
    mst_store_eval_values(store, values);
    free(values);
}

static void work(const uint8_t *body, size_t size)
{
    mst_work item;
    uint64_t from, to;
    if (mst_work_decode(body, size, &item) != MST_OK || item.kind != MST_WORK_SLICE)
        return;
    mst_work_share(&item, &from, &to);
    if (from > to || from < item.from || to > item.to)
        abort();
}

/* A delta of server 0, which is copied and undone. mended: the counts of the head fit the list. */
static void delta(mst_params *params, const mst_placement *table, uint8_t *body, size_t size, bool mended,
                  const mst_delta_head *head)
{
    mst_delta copy = {0};
    const uint8_t *values;
    if (mended && size >= MST_DELTA_HEAD)
        mst_delta_head_encode(head, body);
    if (mst_delta_decode(&copy, body, size, params, table, 0, &values) == MST_OK) {
        check(mst_delta_keep(&copy, params, table));
        mst_delta_copy(&copy, values, params, table);
        mst_delta_restore(&copy, params, table);
    }
    mst_delta_fini(&copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mst_params params;
    static mst_placement table;
    static mst_optimizer optimizer = {.options = {.lr = 0.1}};
    if (params.w == NULL) {
        const uint64_t sparse[] = {N_KEYS, 2}, dense[] = {N_DENSE};
        optimizer.ops = mst_optimizers[0];
        check(mst_params_add(&params, "weight", MST_VIEW_TRAINABLE, 2, 2, sparse, NULL));
        check(mst_params_add(&params, "bias", MST_VIEW_TRAINABLE, 0, 1, dense, NULL));
        check(mst_params_reserve(&params, 0, 0));
        mst_grad layout = {
            .n_ranges = 1, .ranges = {{.offset = params.views[1].offset, .size = N_DENSE}}, .width = 2};
        check(mst_placement_make(&table, &params, &layout, 2, NULL, 0, false));
    }
    mst_store *store;
    mst_store_options options = {.optimizer = &optimizer,
                                 .params = &params,
                                 .table = &table,
                                 .server = 1,
                                 .n_workers = N_WORKERS,
                                 .n_threads = 1};
    check(mst_store_new(&options, &store));
    staged pushes[4] = {0};
    input in = {data, size};
    while (in.left > 0) {
        uint32_t what = number(&in, 1), mended = what & 4;
        mst_message m = {
            .type = MST_PS_STEP, .request = number(&in, 1), .count = number(&in, 1), .flags = number(&in, 2)};
        uint32_t floats = number(&in, 1), ranges = number(&in, 1) % 4, keys = number(&in, 1);
        size_t n = number(&in, 2);
        n = n < in.left ? n : in.left;
        uint8_t *body = malloc(n + 1); /* exact, so that reads beyond it are seen */
        if (body == NULL)
            abort();
        memcpy(body, in.at, n);
        in.at += n;
        in.left -= n;
        bool is_delta = (what & 0x43) == 0x40;
        if (mended && !is_delta)
            mend(body, n, m.flags, floats, ranges, keys);
        m.size = n;
        if ((what & 0x27) == 0x21) {
            m.step = floats;
            part(store, m, what >> 3 & 3, body, &pushes[what >> 3 & 3]);
        } else if (is_delta)
            delta(&params, &table, body, n, mended,
                  &(mst_delta_head){.n_ranges = ranges, .n_keys = keys, .packed_bytes = floats});
        else if ((what & 3) == 3)
            work(body, n);
        else if ((what & 3) == 2)
            watch(store, &m, body);
        else
            step(store, &m, what >> 3 & 3, body, &pushes[what >> 3 & 3]);
        free(body);
    }
    for (int i = 0; i < 4; i++)
        drop(&pushes[i]);
    mst_store_destroy(store);
    return 0;
}
