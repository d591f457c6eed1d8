/* Deltas: the floats that a step changes arrive on the partner with the same bits, a step can be undone, and
 * invalid bodies are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ps/delta.h"

enum { N_KEYS = 5000, N_DENSE = 700, WIDTH = 2, N_SLOTS = 2 };

/* The same vector on two servers, and the table. */
typedef struct fixture {
    mst_params here, there;
    mst_placement table;
    uint64_t dense; /* offset of the dense view */
    uint64_t random;
} fixture;

static uint32_t draw(fixture *f, uint32_t below)
{
    f->random = f->random * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((f->random >> 33) % below);
}

static void make_params(fixture *f, mst_params *params)
{
    uint64_t sparse[] = {N_KEYS, WIDTH}, dense[] = {N_DENSE};
    uint32_t view;
    assert_int_equal(mst_params_add(params, "weight", MST_VIEW_TRAINABLE, WIDTH, 2, sparse, NULL), MST_OK);
    assert_int_equal(mst_params_add(params, "bias", MST_VIEW_TRAINABLE, 0, 1, dense, &view), MST_OK);
    f->dense = params->views[view].offset;
    assert_int_equal(mst_params_reserve(params, N_SLOTS, 0), MST_OK);
}

static float *vector(mst_params *params, uint32_t slot)
{
    return slot == 0 ? params->w : params->slots[slot - 1];
}

static void start(fixture *f)
{
    memset(f, 0, sizeof *f);
    f->random = 3;
    make_params(f, &f->here);
    make_params(f, &f->there);
    mst_grad layout = {.n_ranges = 1, .ranges = {{.offset = f->dense, .size = N_DENSE}}, .width = WIDTH};
    assert_int_equal(mst_placement_make(&f->table, &f->here, &layout, 2, NULL, 0, false), MST_OK);
}

static void end(fixture *f)
{
    mst_params_fini(&f->here);
    mst_params_fini(&f->there);
    mst_placement_fini(&f->table);
}

/* A list of server 1: its dense floats, and some of its keys. */
static void make_list(fixture *f, mst_key_list *list)
{
    uint32_t from = f->table.key_starts[1], to = f->table.key_starts[2];
    mst_owned owned;
    assert_int_equal(mst_placement_owned(&f->table, 1, &owned), MST_OK);
    memset(list, 0, sizeof *list);
    for (uint32_t i = 0; i < owned.n; i++)
        if (owned.extents[i].first >= f->dense)
            list->ranges[list->n_ranges++] = owned.extents[i];
    mst_free(owned.extents);
    assert_int_equal(mst_key_list_room(list, to - from), MST_OK);
    for (uint32_t key = from; key < to; key++)
        if (draw(f, 5) == 0)
            list->keys[list->n_keys++] = key;
}

/* Changes the floats of the delta's list here, as a step does. */
static void change(fixture *f, const mst_delta *delta)
{
    for (uint32_t slot = 0; slot <= N_SLOTS; slot++) {
        float *w = vector(&f->here, slot);
        for (size_t i = 0; i < delta->list.n_ranges; i++)
            for (uint64_t k = 0; k < delta->list.ranges[i].count; k++)
                w[delta->list.ranges[i].first + k] = (float)draw(f, 1000);
        for (size_t i = 0; i < delta->list.n_keys; i++)
            for (uint32_t k = 0; k < WIDTH; k++)
                w[f->table.sparse_offset + (uint64_t)delta->list.keys[i] * WIDTH + k] = (float)draw(f, 1000);
    }
}

static void assert_same(fixture *f)
{
    for (uint32_t slot = 0; slot <= N_SLOTS; slot++)
        assert_memory_equal(vector(&f->here, slot), vector(&f->there, slot), f->here.size * sizeof(float));
}

static void copies_have_the_same_bits(void **state)
{
    fixture f;
    mst_delta delta = {0}, copy = {0};
    mst_key_list lists[3];
    const uint8_t *values;
    (void)state;
    start(&f);
    for (int step = 0; step < 20; step++) {
        mst_delta_clear(&delta);
        for (int i = 0; i < 3; i++) {
            make_list(&f, &lists[i]);
            assert_int_equal(mst_delta_add(&delta, &lists[i]), MST_OK);
        }
        assert_int_equal(delta.list.n_ranges, lists[0].n_ranges);
        for (size_t i = 1; i < delta.list.n_keys; i++)
            assert_true(delta.list.keys[i - 1] < delta.list.keys[i]);
        assert_int_equal(mst_delta_keep(&delta, &f.here, &f.table), MST_OK);
        change(&f, &delta);
        if (step % 3 == 2) {
            mst_delta_restore(&delta, &f.here, &f.table);
            assert_same(&f);
            change(&f, &delta);
        }
        size_t bound = mst_delta_bound(&delta, &f.here, &f.table);
        uint8_t *body = malloc(bound);
        size_t size = mst_delta_encode(&delta, &f.here, &f.table, body);
        assert_true(size <= bound);
        assert_int_equal(mst_delta_decode(&copy, body, size, &f.there, &f.table, 1, &values), MST_OK);
        assert_int_equal(mst_delta_keep(&copy, &f.there, &f.table), MST_OK);
        mst_delta_copy(&copy, values, &f.there, &f.table);
        assert_same(&f);
        if (step % 4 == 3) { /* both return to the step before */
            mst_delta_restore(&delta, &f.here, &f.table);
            mst_delta_restore(&copy, &f.there, &f.table);
            assert_same(&f);
        }
        free(body);
        for (int i = 0; i < 3; i++)
            mst_key_list_fini(&lists[i]);
    }
    mst_delta_fini(&delta);
    mst_delta_fini(&copy);
    end(&f);
}

static void refuse(fixture *f, const uint8_t *body, size_t size, uint32_t server)
{
    mst_delta copy = {0};
    const uint8_t *values;
    assert_int_equal(mst_delta_decode(&copy, body, size, &f->there, &f->table, server, &values), MST_EPEER);
    mst_delta_fini(&copy);
}

static void invalid_bodies_are_refused(void **state)
{
    fixture f;
    mst_delta delta = {0};
    mst_key_list list;
    (void)state;
    start(&f);
    make_list(&f, &list);
    assert_int_equal(mst_delta_add(&delta, &list), MST_OK);
    uint8_t *body = malloc(mst_delta_bound(&delta, &f.here, &f.table) + 4);
    size_t size = mst_delta_encode(&delta, &f.here, &f.table, body);
    refuse(&f, body, size, 0); /* floats of another server */
    refuse(&f, body, size - 4, 1);
    refuse(&f, body, size + 4, 1);
    refuse(&f, body, 7, 1);
    for (size_t i = 0; i < MST_DELTA_HEAD; i++) {
        body[i] ^= 0x40;
        refuse(&f, body, size, 1);
        body[i] ^= 0x40;
    }
    if (list.n_ranges > 0) {
        body[MST_DELTA_HEAD + 7] = 1; /* beyond the vector */
        refuse(&f, body, size, 1);
    }
    free(body);
    mst_key_list_fini(&list);
    mst_delta_fini(&delta);
    end(&f);
}

static void a_share_moves_and_returns(void **state)
{
    fixture f;
    mst_placement moved, again;
    (void)state;
    start(&f);
    for (uint32_t from = 0; from < 2; from++) {
        mst_owned owned;
        assert_int_equal(mst_placement_copy(&f.table, &moved), MST_OK);
        mst_placement_move(&moved, from, 1 - from);
        assert_int_equal(mst_placement_owned(&moved, from, &owned), MST_OK);
        assert_int_equal(owned.floats, 0);
        mst_free(owned.extents);
        assert_true(mst_placement_owns(&moved, 1 - from, 0, moved.size));
        assert_false(mst_placement_owns(&f.table, 1 - from, 0, f.table.size));
        json_t *json = mst_placement_json(&moved);
        assert_int_equal(mst_placement_from_json(&again, json), MST_OK);
        json_decref(json);
        mst_placement_fini(&again);
        mst_placement_fini(&moved);
    }
    end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_have_the_same_bits),
        cmocka_unit_test(invalid_bodies_are_refused),
        cmocka_unit_test(a_share_moves_and_returns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
