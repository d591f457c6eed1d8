/* The store of a server: pulls read it, pushes change it like one plain loop over the weights, for every
 * optimizer, wire format and number of threads; invalid messages are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "ps/key_pack.h"
#include "ps/store.h"

enum { N_KEYS = 5000, N_DENSE = 700, BODY = 1 << 20 };

/* A store with a sparse view and a dense one, cut among servers, and one server's store. */
typedef struct fixture {
    mst_params params;
    mst_optimizer optimizer;
    mst_placement table;
    mst_store *store;
    uint64_t dense; /* offset of the dense view */
    uint8_t *bodies[4];
    mst_key_list lists[4];
    uint64_t random;
} fixture;

static uint32_t draw(fixture *f, uint32_t below)
{
    f->random = f->random * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((f->random >> 33) % below);
}

static float draw_float(fixture *f)
{
    return (float)draw(f, 2001) / 1000.0f - 1.0f;
}

typedef struct setup {
    const char *optimizer;
    double clip_norm;
    uint32_t width, n_servers, server, n_workers;
    unsigned n_threads;
    bool clip;
    uint32_t n_keys; /* 0: N_KEYS */
} setup;

static void start(fixture *f, const setup *s)
{
    memset(f, 0, sizeof *f);
    f->random = 7;
    uint64_t sparse[] = {s->n_keys ? s->n_keys : N_KEYS, s->width}, dense[] = {N_DENSE};
    uint32_t view;
    assert_int_equal(mst_params_add(&f->params, "weight", MST_VIEW_TRAINABLE, s->width, 2, sparse, NULL),
                     MST_OK);
    assert_int_equal(mst_params_add(&f->params, "bias", MST_VIEW_TRAINABLE, 0, 1, dense, &view), MST_OK);
    f->dense = f->params.views[view].offset;
    for (int i = 0; mst_optimizers[i] != NULL; i++)
        if (strcmp(mst_optimizers[i]->name, s->optimizer) == 0)
            f->optimizer.ops = mst_optimizers[i];
    assert_non_null(f->optimizer.ops);
    f->optimizer.options = (mst_optim_options){.lr = 0.1,
                                               .momentum = 0.9,
                                               .beta1 = 0.9,
                                               .beta2 = 0.99,
                                               .eps = 1e-6,
                                               .ftrl_beta = 1,
                                               .clip_norm = s->clip_norm};
    if (f->optimizer.ops->n_slots > 0)
        f->optimizer.options.l2 = 0.01;
    assert_int_equal(mst_params_reserve(&f->params, f->optimizer.ops->n_slots, 0), MST_OK);
    for (uint64_t i = 0; i < f->params.size; i++)
        f->params.w[i] = draw_float(f);
    mst_grad layout = {.n_ranges = 1, .ranges = {{.offset = f->dense, .size = N_DENSE}}, .width = s->width};
    assert_int_equal(mst_placement_make(&f->table, &f->params, &layout, s->n_servers, NULL, 0, false),
                     MST_OK);
    mst_store_options options = {.optimizer = &f->optimizer,
                                 .params = &f->params,
                                 .table = &f->table,
                                 .server = s->server,
                                 .n_workers = s->n_workers,
                                 .n_threads = s->n_threads,
                                 .large = s->n_threads > 1 ? 1 : 0,
                                 .clip = s->clip};
    assert_int_equal(mst_store_new(&options, &f->store), MST_OK);
    for (int i = 0; i < 4; i++)
        assert_non_null(f->bodies[i] = malloc(BODY + 1));
}

static void stop(fixture *f)
{
    mst_store_destroy(f->store);
    mst_placement_fini(&f->table);
    mst_params_fini(&f->params);
    for (int i = 0; i < 4; i++) {
        free(f->bodies[i]);
        mst_key_list_fini(&f->lists[i]);
    }
}

/* About one key of `every`, and some ranges of the dense view, of the floats the server has. */
static void draw_list(fixture *f, mst_key_list *list, uint32_t server, uint32_t every)
{
    mst_key_list whole = {0};
    uint32_t first;
    assert_int_equal(mst_key_list_room(&whole, N_KEYS), MST_OK);
    for (uint32_t k = 0; k < N_KEYS; k++)
        if (draw(f, every) == 0)
            whole.keys[whole.n_keys++] = k;
    for (uint64_t at = draw(f, 40); at < N_DENSE;) {
        uint64_t n = 1 + draw(f, 100);
        n = n < N_DENSE - at ? n : N_DENSE - at;
        whole.ranges[whole.n_ranges++] = (mst_extent){f->dense + at, n};
        at += n + 1 + draw(f, 60);
    }
    mst_key_list part;
    mst_placement_share(&f->table, &whole, server, &part, &first);
    assert_int_equal(mst_key_list_room(list, part.n_keys), MST_OK);
    memcpy(list->keys, part.keys, part.n_keys * sizeof *part.keys);
    memcpy(list->ranges, part.ranges, part.n_ranges * sizeof *part.ranges);
    list->n_keys = part.n_keys;
    list->n_ranges = part.n_ranges;
    mst_key_list_fini(&whole);
}

/* A STEP: g pushed for request `of` (NULL: nothing), list pulled (NULL: nothing). */
static mst_message make_step(const fixture *f, uint8_t *body, uint32_t request, const float *g, uint64_t n,
                             uint32_t of, uint32_t rows, const mst_key_list *list, mst_float_format wire)
{
    mst_step_head head = {.rows = rows, .push_floats = (uint32_t)n};
    mst_message m = {
        .type = MST_PS_STEP, .request = request, .count = of, .flags = (uint32_t)wire << MST_STEP_WIRE_SHIFT};
    size_t at = MST_STEP_HEAD;
    (void)f;
    if (g != NULL) {
        m.flags |= MST_STEP_PUSH;
        mst_float_encode(wire, g, n, body + at);
        at += n * mst_float_size(wire);
    }
    if (list != NULL) {
        m.flags |= MST_STEP_PULL;
        assert_true(at + mst_step_list_bound(list) <= BODY);
        at += mst_step_list_encode(list, &head, body + at);
    }
    mst_step_head_encode(&head, body);
    m.size = at;
    return m;
}

/* Flat positions of a list's floats, in its order. */
static uint64_t positions(const fixture *f, const mst_key_list *list, uint64_t *out)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < list->n_ranges; i++)
        for (uint64_t j = 0; j < list->ranges[i].count; j++)
            out[n++] = list->ranges[i].first + j;
    for (uint32_t i = 0; i < list->n_keys; i++)
        for (uint32_t c = 0; c < f->table.width; c++)
            out[n++] = f->table.sparse_offset + (uint64_t)list->keys[i] * f->table.width + c;
    return n;
}

static uint64_t g_at[65536];
static float g_floats[4][65536];

/* ---- pulls ---- */

static void check_pull(const setup *s, mst_float_format wire)
{
    fixture f;
    start(&f, s);
    draw_list(&f, &f.lists[0], s->server, 3);
    mst_message m = make_step(&f, f.bodies[0], 5, NULL, 0, 0, 0, &f.lists[0], wire);
    mst_store_request r;
    assert_int_equal(mst_store_read(f.store, 0, &m, f.bodies[0], NULL, NULL, &r), MST_OK);
    assert_null(r.values);
    assert_int_equal(r.pulled->n_keys, f.lists[0].n_keys);
    uint64_t n = positions(&f, &f.lists[0], g_at);
    assert_int_equal(mst_store_reply_size(f.store, &r), n * mst_float_size(wire));
    uint8_t *out = f.bodies[1] + 1; /* unaligned */
    mst_store_reply(f.store, &r, out);
    for (uint64_t i = 0; i < n; i++) {
        uint8_t expected[4];
        mst_float_encode(wire, &f.params.w[g_at[i]], 1, expected);
        assert_memory_equal(out + i * mst_float_size(wire), expected, mst_float_size(wire));
    }
    stop(&f);
}

static void test_pulls(void **state)
{
    (void)state;
    for (uint32_t width = 1; width <= 3; width += 2)
        for (unsigned threads = 1; threads <= 3; threads += 2)
            for (uint32_t servers = 1; servers <= 3; servers += 2)
                for (mst_float_format wire = MST_FLOAT_FP32; wire <= MST_FLOAT_FP16; wire++)
                    check_pull(&(setup){.optimizer = "sgd",
                                        .width = width,
                                        .n_servers = servers,
                                        .server = servers / 2,
                                        .n_workers = 1,
                                        .n_threads = threads},
                               wire);
}

/* ---- pushes ---- */

/* The same by one loop over the weights. */
static void apply_plainly(fixture *f, float *const *values, const uint32_t *rows, uint32_t n,
                          const mst_update *u, float *w, float **slots, double clip)
{
    static float sums[65536];
    static bool touched[65536];
    uint64_t total = 0;
    const mst_optimizer_ops *ops = f->optimizer.ops;
    memset(sums, 0, sizeof sums);
    memset(touched, 0, sizeof touched);
    for (uint32_t p = 0; p < n; p++)
        total += rows[p];
    for (uint32_t p = 0; p < n; p++) {
        float factor = (float)((double)rows[p] / (double)total);
        uint64_t floats = positions(f, &f->lists[p], g_at);
        for (uint64_t i = 0; rows[p] > 0 && i < floats; i++) {
            uint64_t at = g_at[i];
            if (ops->additive(&f->optimizer)) {
                w[at] -= u->lr * factor * values[p][i];
                continue;
            }
            volatile float product = factor * values[p][i];
            sums[at] = touched[at] ? sums[at] + product : product;
            touched[at] = true;
        }
    }
    double square = 0;
    for (uint64_t at = 0; at < f->params.size; at++)
        square += (double)sums[at] * sums[at];
    float scale = clip > 0 && sqrt(square) > clip ? (float)(clip / sqrt(square)) : 1.0f;
    for (uint64_t at = 0; at < f->params.size; at++) {
        float *state[MST_SLOT_MAX];
        for (uint32_t s = 0; s < ops->n_slots; s++)
            state[s] = slots[s] + at;
        sums[at] *= scale;
        if (touched[at])
            ops->apply_range(&f->optimizer, u, w + at, state, &sums[at], 1);
    }
}

typedef struct push_case {
    mst_float_format wire;
    uint32_t n, rows[3];
    bool unaligned, same_lists;
} push_case;

/* The update in pieces of 97 dense floats. */
static mst_status apply_pieces(fixture *f, const mst_store_request *const *requests, uint32_t n,
                               const mst_update *u)
{
    uint64_t from = 0;
    for (uint64_t to = f->dense; to < f->dense + N_DENSE; to += 97) {
        TRY(mst_store_apply_piece(f->store, requests, n, u, from, to));
        from = to;
    }
    return mst_store_apply_piece(f->store, requests, n, u, from, UINT64_MAX);
}

static void check_push(const setup *s, const push_case *c)
{
    fixture f;
    mst_store_request requests[3];
    const mst_store_request *order[3];
    float *decoded[3], *w, *slots[MST_SLOT_MAX] = {0};
    start(&f, s);
    size_t bytes = f.params.size * sizeof(float);
    assert_non_null(w = malloc(bytes));
    memcpy(w, f.params.w, bytes);
    for (uint32_t k = 0; k < f.params.n_slots; k++)
        assert_non_null(slots[k] = calloc(1, bytes));
    for (uint32_t p = 0; p < c->n; p++) {
        uint64_t random = f.random;
        draw_list(&f, &f.lists[p], s->server, 2 + p);
        if (c->same_lists && p > 0) {
            f.random = random;
            mst_key_list_fini(&f.lists[p]);
            mst_key_list *l = &f.lists[p];
            *l = f.lists[0];
            l->key_capacity = 0;
        }
    }
    mst_update u = {.lr = 0.1f, .step = 1};
    for (uint32_t round = 0; round < 2; round++, u.step++) {
        for (uint32_t p = 0; p < c->n; p++) {
            uint8_t *body = f.bodies[p] + c->unaligned;
            mst_message m = make_step(&f, body, round, NULL, 0, 0, 0, &f.lists[p], c->wire);
            assert_int_equal(mst_store_read(f.store, p, &m, body, NULL, NULL, &requests[p]), MST_OK);
            uint64_t n = positions(&f, &f.lists[p], g_at);
            for (uint64_t i = 0; i < n; i++)
                g_floats[p][i] = draw_float(&f);
            m = make_step(&f, body, round, g_floats[p], n, round, c->rows[p], NULL, c->wire);
            assert_int_equal(mst_store_read(f.store, p, &m, body, NULL, NULL, &requests[p]), MST_OK);
            assert_non_null(requests[p].values);
            mst_float_decode(c->wire, body + MST_STEP_HEAD, n, g_floats[p]);
            decoded[p] = g_floats[p];
            order[p] = &requests[p];
        }
        assert_int_equal(round == 0 ? mst_store_apply(f.store, order, c->n, &u)
                                    : apply_pieces(&f, order, c->n, &u),
                         MST_OK);
        apply_plainly(&f, decoded, c->rows, c->n, &u, w, slots, s->clip ? s->clip_norm : 0);
    }
    if (s->clip) /* the norm is summed in another order */
        for (uint64_t i = 0; i < f.params.size; i++)
            assert_true(fabsf(w[i] - f.params.w[i]) <= 1e-5f * (1 + fabsf(w[i])));
    else
        assert_memory_equal(w, f.params.w, bytes);
    for (uint32_t k = 0; k < f.params.n_slots && !s->clip; k++)
        assert_memory_equal(slots[k], f.params.slots[k], bytes);
    for (uint32_t k = 0; k < f.params.n_slots; k++)
        free(slots[k]);
    free(w);
    stop(&f);
}

static void test_pushes(void **state)
{
    (void)state;
    const char *optimizers[] = {"sgd", "momentum", "adagrad", "adam", "ftrl"};
    const push_case cases[] = {
        {.n = 1, .rows = {10}},
        {.n = 1, .rows = {10}, .unaligned = true},
        {.n = 1, .rows = {10}, .wire = MST_FLOAT_BF16},
        {.n = 3, .rows = {10, 20, 3}},
        {.n = 3, .rows = {10, 10, 10}, .same_lists = true},
        {.n = 3, .rows = {10, 0, 7}, .wire = MST_FLOAT_FP16},
        {.n = 2, .rows = {0, 9}},
        {.n = 2, .rows = {0, 0}},
    };
    for (size_t o = 0; o < 5; o++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
            for (unsigned threads = 1; threads <= 3; threads += 2)
                for (uint32_t width = 1; width <= 3; width += 2)
                    check_push(&(setup){.optimizer = optimizers[o],
                                        .width = width,
                                        .n_servers = 2,
                                        .server = (uint32_t)c % 2,
                                        .n_workers = 3,
                                        .n_threads = threads},
                               &cases[c]);
}

static void test_clip(void **state)
{
    (void)state;
    const push_case cases[] = {
        {.n = 1, .rows = {10}},
        {.n = 3, .rows = {10, 20, 3}},
        {.n = 2, .rows = {3, 4}, .wire = MST_FLOAT_BF16},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (unsigned threads = 1; threads <= 3; threads += 2)
            for (int o = 0; o < 2; o++) {
                setup s = {.optimizer = o ? "adagrad" : "sgd",
                           .width = 1,
                           .n_servers = 1,
                           .n_workers = 3,
                           .n_threads = threads,
                           .clip_norm = 0.5,
                           .clip = true};
                check_push(&s, &cases[c]);
                s.clip_norm = 1e9;
                check_push(&s, &cases[c]);
                s.clip = false; /* the coordinator clips */
                s.clip_norm = 0.5;
                check_push(&s, &cases[c]);
            }
}

/* One walk gives what a push and then a pull give, for dense and thin lists. */
static void test_step(void **state)
{
    (void)state;
    const uint32_t n_keys = 60000;
    const struct {
        const char *optimizer;
        uint32_t push_every, pull_every;
        mst_float_format wire;
        unsigned n_threads;
    } cases[] = {
        {"sgd", 3, 4, MST_FLOAT_FP32, 1},   {"sgd", 3, 4, MST_FLOAT_FP32, 3},
        {"sgd", 10, 1, MST_FLOAT_FP32, 3},  {"sgd", 2, 14, MST_FLOAT_FP32, 1},
        {"sgd", 3, 4, MST_FLOAT_BF16, 1},   {"adagrad", 3, 4, MST_FLOAT_FP32, 1},
        {"sgd", 500, 3, MST_FLOAT_FP32, 1},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        fixture f;
        mst_store_request r[2];
        float *values[2];
        uint8_t *body = malloc(BODY);
        setup s = {.optimizer = cases[c].optimizer,
                   .width = 1,
                   .n_servers = 1,
                   .n_workers = 2,
                   .n_threads = cases[c].n_threads,
                   .n_keys = n_keys};
        start(&f, &s);
        assert_non_null(body);
        for (uint32_t i = 0; i < 2; i++) {
            mst_key_list *l = &f.lists[i];
            uint32_t every = i == 0 ? cases[c].push_every : cases[c].pull_every;
            assert_int_equal(mst_key_list_room(l, n_keys), MST_OK);
            for (uint32_t k = i == 0 ? 100 : 0; k < n_keys - (i == 0 ? 0 : 100); k++)
                if (draw(&f, every) == 0)
                    l->keys[l->n_keys++] = k;
            l->ranges[l->n_ranges++] = (mst_extent){f.dense + i, 50};
        }
        uint64_t n = mst_key_list_floats(&f.lists[0], 1);
        for (uint64_t i = 0; i < n; i++)
            g_floats[0][i] = draw_float(&f);
        size_t bytes = f.params.size * sizeof(float);
        float *before = malloc(bytes), *after = malloc(bytes);
        assert_true(before != NULL && after != NULL);
        memcpy(before, f.params.w, bytes);
        for (uint32_t way = 0; way < 2; way++) {
            const mst_store_request *one = &r[way];
            mst_update u = {.lr = 0.1f, .step = 1};
            memcpy(f.params.w, before, bytes);
            for (uint32_t k = 0; k < f.params.n_slots; k++)
                memset(f.params.slots[k], 0, bytes);
            mst_message m = make_step(&f, body, 0, NULL, 0, 0, 0, &f.lists[0], cases[c].wire);
            assert_int_equal(mst_store_read(f.store, way, &m, body, NULL, NULL, &r[way]), MST_OK);
            m = make_step(&f, body, 1, g_floats[0], n, 0, 1, &f.lists[1], cases[c].wire);
            assert_int_equal(mst_store_read(f.store, way, &m, body, NULL, NULL, &r[way]), MST_OK);
            assert_non_null(values[way] = calloc(1, mst_store_reply_size(f.store, &r[way])));
            if (way == 0) {
                assert_int_equal(mst_store_apply(f.store, &one, 1, &u), MST_OK);
                mst_store_reply(f.store, &r[way], values[way]);
                memcpy(after, f.params.w, bytes);
            } else {
                assert_int_equal(mst_store_step(f.store, &r[way], &u, values[way]), MST_OK);
                assert_memory_equal(after, f.params.w, bytes);
                assert_memory_equal(values[0], values[1], mst_store_reply_size(f.store, &r[way]));
            }
        }
        free(values[0]);
        free(values[1]);
        free(before);
        free(after);
        free(body);
        stop(&f);
    }
}

/* ---- lists ---- */

static const setup plain = {.optimizer = "sgd", .width = 1, .n_servers = 2, .n_workers = 2, .n_threads = 1};

static void test_ring(void **state)
{
    fixture f;
    mst_store_request r, held;
    (void)state;
    start(&f, &plain);
    uint32_t keys[] = {1, 2};
    mst_key_list list = {.n_keys = 2, .keys = keys};
    const float g[] = {1, 2};
    for (uint32_t request = 100; request < 100 + MST_LISTS; request++) {
        mst_message m = make_step(&f, f.bodies[0], request, NULL, 0, 0, 0, &list, MST_FLOAT_FP32);
        assert_int_equal(mst_store_read(f.store, 0, &m, f.bodies[0], NULL, NULL, &r), MST_OK);
    }
    mst_message push = make_step(&f, f.bodies[1], 1u << 31, g, 2, 100, 1, NULL, MST_FLOAT_FP32);
    assert_int_equal(mst_store_read(f.store, 0, &push, f.bodies[1], NULL, NULL, &held), MST_OK);
    assert_ptr_not_equal(held.pushed, NULL);
    assert_int_equal(held.pushed_request, 100);
    /* a push and a pull that need the same place */
    mst_message both = make_step(&f, f.bodies[0], 116, g, 2, 100, 1, &list, MST_FLOAT_FP32);
    assert_int_equal(mst_store_read(f.store, 0, &both, f.bodies[0], NULL, NULL, &r), MST_EINPUT);
    assert_string_equal(mst_error_text(),
                        "worker 0 pulls with request 116 a list in place of the one it pushes for, of "
                        "request 100");
    /* the 17th replaces the first, also under a push that was read before */
    mst_message m = make_step(&f, f.bodies[0], 116, NULL, 0, 0, 0, &list, MST_FLOAT_FP32);
    assert_int_equal(mst_store_read(f.store, 0, &m, f.bodies[0], NULL, NULL, &r), MST_OK);
    assert_int_equal(mst_store_read(f.store, 0, &push, f.bodies[1], NULL, NULL, &r), MST_EINPUT);
    assert_string_equal(mst_error_text(),
                        "worker 0 pushes for its request 100, whose list is not known to server 0");
    const mst_store_request *one = &held;
    float before = f.params.w[1];
    assert_int_equal(mst_store_apply(f.store, &one, 1, &(mst_update){.lr = 1}), MST_EINPUT);
    assert_string_equal(mst_error_text(), "worker 0 replaced a list that its push of 2 floats belongs to");
    assert_true(f.params.w[1] == before);
    /* another worker's lists are its own */
    push.count = 116;
    assert_int_equal(mst_store_read(f.store, 1, &push, f.bodies[1], NULL, NULL, &r), MST_EINPUT);
    assert_int_equal(mst_store_read(f.store, 0, &push, f.bodies[1], NULL, NULL, &held), MST_OK);
    mst_store_forget(f.store, 1);
    mst_store_forget(f.store, 0);
    assert_int_equal(mst_store_read(f.store, 0, &push, f.bodies[1], NULL, NULL, &r), MST_EINPUT);
    assert_int_equal(mst_store_apply(f.store, &one, 1, &(mst_update){.lr = 1}), MST_OK);
    assert_true(f.params.w[1] == before - 1);
    stop(&f);
}

static void refuse(fixture *f, const mst_message *m, const char *sentence)
{
    mst_store_request r;
    assert_int_equal(mst_store_read(f->store, 0, m, f->bodies[0], NULL, NULL, &r), MST_EINPUT);
    if (strstr(mst_error_text(), sentence) == NULL)
        fail_msg("\"%s\" has not \"%s\"", mst_error_text(), sentence);
}

static void test_refused(void **state)
{
    fixture f;
    mst_store_request r;
    (void)state;
    start(&f, &plain);
    uint32_t cut = f.table.key_starts[1], keys[] = {3, cut - 1, cut};
    mst_owned owned;
    assert_int_equal(mst_placement_owned(&f.table, 0, &owned), MST_OK);
    assert_true(owned.n > 0);
    uint64_t end = owned.extents[owned.n - 1].first + owned.extents[owned.n - 1].count;
    mst_free(owned.extents);
    mst_key_list list = {.n_keys = 2, .keys = keys, .n_ranges = 1, .ranges = {{end - 2, 2}}};
    uint8_t *body = f.bodies[0];
    mst_message m = make_step(&f, body, 1, NULL, 0, 0, 0, &list, MST_FLOAT_FP32);
    assert_int_equal(mst_store_read(f.store, 0, &m, body, NULL, NULL, &r), MST_OK);
    assert_int_equal(mst_store_read(f.store, 2, &m, body, NULL, NULL, &r), MST_EINPUT);
    assert_string_equal(mst_error_text(), "a STEP of worker 2; there are 2");

    list.n_keys = 3;
    m = make_step(&f, body, 1, NULL, 0, 0, 0, &list, MST_FLOAT_FP32);
    assert_int_equal(mst_store_read(f.store, 0, &m, body, NULL, NULL, &r), MST_EINPUT);
    /* a refused list leaves its place unknown */
    const float g[8] = {0};
    m = make_step(&f, body, 2, g, 4, 1, 1, NULL, MST_FLOAT_FP32);
    refuse(&f, &m, "whose list is not known");

    list.n_keys = 2;
    m = make_step(&f, body, 1, NULL, 0, 0, 0, &list, MST_FLOAT_FP32);
    assert_int_equal(mst_store_read(f.store, 0, &m, body, NULL, NULL, &r), MST_OK);
    m = make_step(&f, body, 2, g, 5, 1, 1, NULL, MST_FLOAT_FP32);
    refuse(&f, &m, "worker 0 pushes 5 floats for its request 1, whose list has 4");

    const struct {
        mst_extent ranges[2];
        const char *sentence;
    } wrong[] = {
        {{{end - 2, 3}}, "is not wholly on server 0"},
        {{{end - 2, 2}, {end - 2, 2}}, "is empty or not behind the range before it"},
        {{{end - 2, 2}, {end - 3, 1}}, "is empty or not behind the range before it"},
        {{{end - 2, 0}}, "is empty or not behind"},
        {{{UINT64_MAX - 1, 5}}, "is empty or not behind"},
        {{{f.table.size, 1}}, "is not wholly on server 0"},
        {{{5, UINT64_MAX - 5}}, "is not wholly on server 0"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memcpy(list.ranges, wrong[i].ranges, sizeof wrong[i].ranges);
        list.n_ranges = 1 + (wrong[i].ranges[1].first != 0);
        m = make_step(&f, body, 1, NULL, 0, 0, 0, &list, MST_FLOAT_FP32);
        refuse(&f, &m, wrong[i].sentence);
    }

    /* counts that the bytes do not justify */
    mst_step_head head = {.pull_keys = 4000000000u, .packed_bytes = 10};
    m = (mst_message){.type = MST_PS_STEP, .flags = MST_STEP_PULL, .size = MST_STEP_HEAD + 10};
    mst_step_head_encode(&head, body);
    refuse(&f, &m, "a list of 4000000000 keys; server 0 has");
    head.pull_keys = 322;
    mst_step_head_encode(&head, body);
    refuse(&f, &m, "a list of 322 keys packed in 10 bytes");
    head.pull_keys = 0;
    mst_step_head_encode(&head, body);
    refuse(&f, &m, "a list without keys has 10 bytes of packed keys");
    stop(&f);
}

static void test_watch(void **state)
{
    fixture f;
    (void)state;
    start(&f, &plain);
    assert_int_equal(mst_store_eval_size(f.store), 0);
    draw_list(&f, &f.lists[0], 0, 2);
    mst_message m = make_step(&f, f.bodies[0], 0, NULL, 0, 0, 0, &f.lists[0], MST_FLOAT_FP32);
    m.type = MST_PS_EVAL_LIST;
    assert_int_equal(mst_store_eval_list(f.store, &m, f.bodies[0]), MST_OK);
    m.flags = 0;
    assert_int_equal(mst_store_eval_list(f.store, &m, f.bodies[0]), MST_OK);
    uint64_t n = positions(&f, &f.lists[0], g_at);
    assert_int_equal(mst_store_eval_size(f.store), n * sizeof(float));
    float *out = malloc(n * sizeof *out);
    assert_non_null(out);
    mst_store_eval_values(f.store, out);
    for (uint64_t i = 0; i < n; i++)
        assert_true(out[i] == f.params.w[g_at[i]]);
    free(out);
    m.flags = MST_STEP_PUSH;
    assert_int_equal(mst_store_eval_list(f.store, &m, f.bodies[0]), MST_EINPUT);
    assert_string_equal(mst_error_text(), "message EVAL_LIST with flags 0x1, some of which are undefined");
    m.flags = 0;
    m.size--;
    assert_int_equal(mst_store_eval_list(f.store, &m, f.bodies[0]), MST_EINPUT);
    stop(&f);
}

static void test_wrong_options(void **state)
{
    fixture f;
    mst_store *store;
    (void)state;
    start(&f, &plain);
    mst_store_options options = {.optimizer = &f.optimizer,
                                 .params = &f.params,
                                 .table = &f.table,
                                 .server = 2,
                                 .n_workers = 1,
                                 .n_threads = 1};
    assert_int_equal(mst_store_new(&options, &store), MST_EUSAGE);
    options.server = 0;
    options.n_threads = 0;
    assert_int_equal(mst_store_new(&options, &store), MST_EUSAGE);
    options.n_threads = 1;
    f.table.size += 16;
    assert_int_equal(mst_store_new(&options, &store), MST_EUSAGE);
    f.table.size -= 16;
    mst_store_request r = {.values = g_floats, .head = {.rows = 1}};
    const mst_store_request *all[3] = {&r, &r, &r};
    assert_int_equal(mst_store_apply(f.store, all, 3, &(mst_update){.lr = 1}), MST_EUSAGE);
    assert_string_equal(mst_error_text(), "3 pushes for one update; there are 2 workers");
    stop(&f);
}

/* Every allocation fails once: a sentence, and nothing lost. */
static void test_short_memory(void **state)
{
    fixture f;
    bool whole = false;
    (void)state;
    start(&f, &plain);
    f.optimizer.options.clip_norm = 1;
    draw_list(&f, &f.lists[0], 0, 2);
    uint64_t n = positions(&f, &f.lists[0], g_at);
    memset(g_floats, 0, sizeof g_floats);
    for (uint64_t k = 1; !whole; k++) {
        mst_store *store = NULL;
        mst_store_request r;
        const mst_store_request *one = &r;
        mst_store_options options = {.optimizer = &f.optimizer,
                                     .params = &f.params,
                                     .table = &f.table,
                                     .n_workers = 2,
                                     .n_threads = 2,
                                     .clip = true};
        mst_message pull = make_step(&f, f.bodies[0], 0, NULL, 0, 0, 0, &f.lists[0], MST_FLOAT_BF16);
        mst_message push = make_step(&f, f.bodies[1], 1, g_floats[0], n, 0, 1, NULL, MST_FLOAT_BF16);
        mst_alloc_fail_at(k);
        mst_status st = mst_store_new(&options, &store);
        if (st == MST_OK)
            st = mst_store_read(store, 0, &pull, f.bodies[0], NULL, NULL, &r);
        if (st == MST_OK)
            st = mst_store_read(store, 0, &push, f.bodies[1], NULL, NULL, &r);
        if (st == MST_OK)
            st = mst_store_apply(store, &one, 1, &(mst_update){.lr = 1});
        mst_alloc_fail_at(0);
        whole = st == MST_OK;
        if (!whole)
            assert_int_equal(st, MST_ENOMEM);
        mst_store_destroy(store);
        assert_true(k < 100);
    }
    mst_store_destroy(NULL);
    stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pulls),        cmocka_unit_test(test_pushes),
        cmocka_unit_test(test_clip),         cmocka_unit_test(test_step),
        cmocka_unit_test(test_ring),         cmocka_unit_test(test_refused),
        cmocka_unit_test(test_watch),        cmocka_unit_test(test_wrong_options),
        cmocka_unit_test(test_short_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
