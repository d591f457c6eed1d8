/* The store of a server: pushes in parts, from their end to their beginning, equal pushes in one message;
 * invalid parts are refused before they are received; answers in parts equal the answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "ps/store.h"

enum { N = 1000 };

typedef struct fixture {
    mst_params params;
    mst_optimizer optimizer;
    mst_placement table;
    mst_store *store;
    mst_key_list list;
    uint8_t body[MST_STEP_HEAD + 4 * N + 64];
    uint8_t values[4 * N];
    mst_store_parts parts;
} fixture;

static fixture *start(void)
{
    fixture *f = calloc(1, sizeof *f);
    const uint64_t size[] = {N};
    assert_non_null(f);
    f->optimizer.ops = mst_optimizers[0];
    assert_int_equal(mst_params_add(&f->params, "weight", MST_VIEW_TRAINABLE, 0, 1, size, NULL), MST_OK);
    assert_int_equal(mst_params_reserve(&f->params, 0, 0), MST_OK);
    mst_grad layout = {.n_ranges = 1, .ranges = {{.size = N}}};
    assert_int_equal(mst_placement_make(&f->table, &f->params, &layout, 1, NULL, 0, false), MST_OK);
    mst_store_options options = {
        .optimizer = &f->optimizer, .params = &f->params, .table = &f->table, .n_workers = 2, .n_threads = 1};
    assert_int_equal(mst_store_new(&options, &f->store), MST_OK);
    for (int i = 0; i < N; i++)
        f->params.w[i] = (float)i;
    f->list.n_ranges = 2;
    f->list.ranges[0] = (mst_extent){0, 400};
    f->list.ranges[1] = (mst_extent){500, 500};
    return f;
}

static void stop(fixture *f)
{
    mst_store_destroy(f->store);
    mst_placement_fini(&f->table);
    mst_params_fini(&f->params);
    free(f);
}

/* A STEP that pulls the list with `request`, or pushes n floats for it. */
static mst_status step(fixture *f, uint32_t request, const float *g, uint32_t n, mst_float_format wire,
                       mst_store_request *r)
{
    mst_step_head head = {.rows = g != NULL, .push_floats = n, .part_floats = g != NULL ? 0 : 256};
    size_t size = MST_STEP_HEAD;
    mst_message m = {.type = MST_PS_STEP, .flags = (uint32_t)wire << MST_STEP_WIRE_SHIFT};
    if (g == NULL) {
        m.flags |= MST_STEP_PULL;
        m.request = request;
        size += mst_step_list_encode(&f->list, &head, f->body + MST_STEP_HEAD);
    } else {
        m.flags |= MST_STEP_PUSH;
        m.request = 1u << 31;
        m.count = request;
        mst_float_encode(wire, g, n, f->body + MST_STEP_HEAD);
        size += n * mst_float_size(wire);
    }
    mst_step_head_encode(&head, f->body);
    m.size = size;
    bool staged = g != NULL && f->parts.floats != 0;
    return mst_store_read(f->store, 0, &m, f->body, staged ? &f->parts : NULL, staged ? f->values : NULL, r);
}

static mst_message part_of(uint32_t request, uint64_t first, uint64_t n, mst_float_format wire)
{
    return (mst_message){.type = MST_PS_GRADIENT,
                         .flags = (uint32_t)wire << MST_STEP_WIRE_SHIFT,
                         .count = request,
                         .step = first,
                         .size = n * mst_float_size(wire)};
}

static void push_part(fixture *f, uint32_t request, const float *g, uint64_t first, uint64_t n,
                      mst_float_format wire)
{
    mst_message m = part_of(request, first, n, wire);
    mst_store_parts next;
    assert_int_equal(mst_store_part(f->store, 0, &m, &f->parts, &next), MST_OK);
    assert_int_equal(next.from, first);
    assert_int_equal(next.floats, 900);
    mst_float_encode(wire, g + first, n, f->values + first * mst_float_size(wire));
    f->parts = next;
}

static void parts_make_a_push(void **state)
{
    static float g[900], whole[N];
    (void)state;
    for (int i = 0; i < 900; i++)
        g[i] = (float)(i % 7) / 8.0f;
    for (int wire = MST_FLOAT_FP32; wire <= MST_FLOAT_FP16; wire++) {
        const mst_update u = {.lr = 0.5f, .step = 1};
        for (int parts = 0; parts < 2; parts++) {
            fixture *f = start();
            mst_store_request r;
            const mst_store_request *one = &r;
            assert_int_equal(step(f, 5, NULL, 0, (mst_float_format)wire, &r), MST_OK);
            if (parts) {
                push_part(f, 5, g, 600, 300, (mst_float_format)wire);
                push_part(f, 5, g, 599, 1, (mst_float_format)wire);
                push_part(f, 5, g, 70, 529, (mst_float_format)wire);
            }
            assert_int_equal(step(f, 5, g, parts ? 70 : 900, (mst_float_format)wire, &r), MST_OK);
            assert_int_equal(r.head.push_floats, 900);
            assert_int_equal(mst_store_apply(f->store, &one, 1, &u), MST_OK);
            if (parts)
                assert_memory_equal(f->params.w, whole, sizeof whole);
            else
                memcpy(whole, f->params.w, sizeof whole);
            stop(f);
        }
    }
    assert_true(whole[1] == 1.0f - 0.5f / 8.0f && whole[450] == 450.0f);
}

static void refuse(fixture *f, uint32_t worker, mst_message m, const char *sentence)
{
    mst_store_parts next;
    assert_int_equal(mst_store_part(f->store, worker, &m, &f->parts, &next), MST_EINPUT);
    if (strstr(mst_error_text(), sentence) == NULL)
        fail_msg("%s", mst_error_text());
}

static void wrong_parts_are_refused(void **state)
{
    static const float g[900];
    fixture *f = start();
    mst_store_request r;
    (void)state;
    refuse(f, 0, part_of(5, 600, 300, MST_FLOAT_FP32), "whose list is not known to server 0");
    assert_int_equal(step(f, 5, NULL, 0, MST_FLOAT_FP32, &r), MST_OK);
    assert_int_equal(step(f, 6, NULL, 0, MST_FLOAT_FP32, &r), MST_OK);
    refuse(f, 1, part_of(5, 600, 300, MST_FLOAT_FP32), "whose list is not known");
    refuse(f, 9, part_of(5, 600, 300, MST_FLOAT_FP32), "whose list is not known");
    refuse(f, 0, part_of(5, 600, 299, MST_FLOAT_FP32), "where 900 floats are to come");
    refuse(f, 0, part_of(5, 601, 300, MST_FLOAT_FP32), "where 900 floats are to come");
    refuse(f, 0, part_of(5, 0, 0, MST_FLOAT_FP32), "a part of 0 bytes");
    refuse(f, 0, part_of(5, UINT64_MAX - 99, 1000, MST_FLOAT_FP32), "where 900 floats are to come");
    refuse(f, 0, part_of(5, 0, UINT64_MAX / 8, MST_FLOAT_FP32), "where 900 floats are to come");
    mst_message odd = part_of(5, 600, 300, MST_FLOAT_FP32);
    odd.size++;
    refuse(f, 0, odd, "a part of 1201 bytes");
    odd = part_of(5, 600, 300, MST_FLOAT_FP32);
    odd.flags = 3u << MST_STEP_WIRE_SHIFT;
    refuse(f, 0, odd, "flags 0x300, some of which are undefined");
    odd.flags = MST_STEP_PUSH;
    refuse(f, 0, odd, "flags 0x1, some of which are undefined");

    push_part(f, 5, g, 600, 300, MST_FLOAT_FP32);
    refuse(f, 0, part_of(5, 600, 300, MST_FLOAT_FP32), "where 600 floats are to come"); /* once more */
    refuse(f, 0, part_of(5, 200, 300, MST_FLOAT_FP32), "where 600 floats are to come"); /* with a gap */
    refuse(f, 0, part_of(5, 300, 301, MST_FLOAT_FP32), "where 600 floats are to come"); /* beyond it */
    refuse(f, 0, part_of(5, 300, 300, MST_FLOAT_BF16), "before request 5 is complete");
    refuse(f, 0, part_of(6, 600, 300, MST_FLOAT_FP32), "before request 5 is complete");
    /* a STEP that does not end it */
    assert_int_equal(step(f, 5, g, 599, MST_FLOAT_FP32, &r), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "where parts left 600 of request 5"));
    assert_int_equal(step(f, 6, g, 600, MST_FLOAT_FP32, &r), MST_EINPUT);
    assert_int_equal(step(f, 5, g, 600, MST_FLOAT_BF16, &r), MST_EINPUT);
    assert_int_equal(step(f, 5, g, 900, MST_FLOAT_FP32, &r), MST_EINPUT);
    assert_int_equal(step(f, 5, g, 600, MST_FLOAT_FP32, &r), MST_OK);
    mst_store_forget(f->store, 0);
    refuse(f, 0, part_of(5, 300, 300, MST_FLOAT_FP32), "whose list is not known");
    stop(f);
}

static void answers_in_parts_are_the_answer(void **state)
{
    fixture *f = start();
    mst_store_request r;
    mst_piece pieces[3];
    float whole[900], part[900];
    (void)state;
    assert_int_equal(step(f, 1, NULL, 0, MST_FLOAT_FP32, &r), MST_OK);
    assert_int_equal(r.head.part_floats, 256);
    assert_int_equal(mst_store_reply_size(f->store, &r), sizeof whole);
    mst_store_reply(f->store, &r, whole);
    for (int i = 0; i < 900; i++)
        assert_true(whole[i] == (float)(i < 400 ? i : i + 100));
    mst_store_reply_part(f->store, &r, 350, 100, part);
    assert_memory_equal(part, whole + 350, 100 * sizeof *part);
    mst_store_reply_rest(f->store, &r, 350, part);
    assert_memory_equal(part, whole + 350, 550 * sizeof *part);
    assert_int_equal(mst_store_reply_pieces(f->store, &r, 350, 100, pieces, 3), 2);
    assert_ptr_equal(pieces[0].data, f->params.w + 350);
    assert_int_equal(pieces[0].size, 50 * sizeof *part);
    assert_ptr_equal(pieces[1].data, f->params.w + 500);
    assert_int_equal(pieces[1].size, 50 * sizeof *part);
    assert_int_equal(mst_store_reply_pieces(f->store, &r, 350, 100, pieces, 1), 0);
    assert_int_equal(mst_store_reply_pieces(f->store, &r, 350, 50, pieces, 1), 1);
    assert_int_equal(mst_store_reply_place(&r, 0), 0);
    assert_int_equal(mst_store_reply_place(&r, 400), 500);
    assert_int_equal(mst_store_reply_place(&r, 900), UINT64_MAX);
    assert_int_equal(mst_key_list_below(r.pulled, 450), 400);
    assert_int_equal(mst_key_list_below(r.pulled, 501), 401);
    assert_int_equal(mst_key_list_below(r.pulled, UINT64_MAX), 900);
    assert_int_equal(step(f, 2, NULL, 0, MST_FLOAT_BF16, &r), MST_OK);
    assert_int_equal(mst_store_reply_pieces(f->store, &r, 0, 10, pieces, 3), 0);
    stop(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_make_a_push),
        cmocka_unit_test(wrong_parts_are_refused),
        cmocka_unit_test(answers_in_parts_are_the_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
