/* A worker's end of steps, with real stores and a net within the process: pulls return the weights of the
 * servers, pushes arrive, for any number of servers, wire format and layout; invalid replies are refused;
 * waits end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "ps/client.h"
#include "ps/store.h"

enum { N_KEYS = 3000, N_DENSE = 600, MOST_SERVERS = 3, FIRST_PEER = 40, QUEUE = 256 };

typedef struct parcel {
    uint32_t server;
    mst_message m;
    uint8_t *body;
} parcel;

/* Servers, a client, and the net between them. */
typedef struct cluster {
    mst_net net;
    mst_client *client;
    mst_optimizer optimizer;
    mst_placement table;
    mst_params params[MOST_SERVERS]; /* each server's own store */
    mst_store *shards[MOST_SERVERS];
    uint32_t n_servers;
    uint64_t versions[MOST_SERVERS], dense;
    parcel queue[QUEUE];
    size_t n_queue;
    uint32_t mute;      /* this server does not answer; UINT32_MAX: all do */
    bool dropped, work; /* what the coordinator says in the next replies */
    bool direct;        /* the last body was received at the start of a request's weights */
    uint32_t n_pieces;  /* of the last send */
    struct {
        mst_store_parts parts;
        uint8_t *values;
    } staged[MOST_SERVERS];      /* pushes that come in parts */
    uint32_t n_early, n_weights; /* parts that were carried */
    uint64_t random;
} cluster;

static uint32_t draw(cluster *c, uint32_t below)
{
    c->random = c->random * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((c->random >> 33) % below);
}

/* ---- the net ---- */

static mst_status carry(mst_net *net, uint32_t peer, const mst_message *m, const mst_piece *pieces,
                        uint32_t n_pieces, void *token)
{
    cluster *c = (cluster *)net;
    parcel *p = &c->queue[c->n_queue++];
    assert_true(c->n_queue <= QUEUE && n_pieces <= MST_PIECE_MAX);
    assert_true(token == NULL || token == c->client);
    *p = (parcel){.server = peer - FIRST_PEER, .m = *m};
    c->n_pieces = n_pieces;
    assert_non_null(p->body = malloc(p->m.size + 1));
    for (size_t i = 0, at = 0; i < n_pieces; at += pieces[i++].size)
        memcpy(p->body + at, pieces[i].data, pieces[i].size);
    return MST_OK;
}

/* A part of a gradient, on the server. */
static mst_status take_part(cluster *c, parcel *p)
{
    mst_store_parts next;
    TRY(mst_store_part(c->shards[p->server], 0, &p->m, &c->staged[p->server].parts, &next));
    size_t size = mst_float_size(next.wire);
    if (c->staged[p->server].values == NULL)
        assert_non_null(c->staged[p->server].values = malloc(next.floats * size));
    memcpy(c->staged[p->server].values + next.from * size, p->body, p->m.size);
    c->staged[p->server].parts = next;
    c->n_early++;
    return MST_OK;
}

/* Parts of an answer; *first is what is left. */
static mst_status answer_parts(cluster *c, parcel *p, const mst_store_request *r, uint64_t *first)
{
    uint32_t part = r->head.part_floats, request = 0;
    uint64_t all = r->pulled != NULL && part != 0 ? mst_key_list_range_floats(r->pulled) : 0;
    for (; *first + part < all; *first += part) {
        mst_message m = {.type = MST_PS_WEIGHTS,
                         .request = p->m.request,
                         .count = (uint32_t)*first,
                         .step = c->versions[p->server],
                         .size = part * mst_float_size(r->wire)};
        void *to = NULL;
        TRY(mst_client_body(c->client, FIRST_PEER + p->server, &m, &to));
        mst_store_reply_part(c->shards[p->server], r, *first, part, to);
        TRY(mst_client_message(c->client, FIRST_PEER + p->server, &m, to));
        c->n_weights++;
        for (request = 0; request < 3 && !mst_client_begun(c->client, request);)
            request++;
        assert_true(request < 3 || p->server != 0);
    }
    return MST_OK;
}

/* The server's side of a message. */
static mst_status answer(cluster *c, parcel *p)
{
    mst_store *shard = c->shards[p->server];
    mst_store_request r;
    const mst_store_request *one = &r;
    uint64_t first = 0;
    if (p->m.type == MST_PS_GRADIENT)
        return take_part(c, p);
    uint8_t *staged = p->m.flags & MST_STEP_PUSH ? c->staged[p->server].values : NULL;
    TRY(mst_store_read(shard, 0, &p->m, p->body, staged != NULL ? &c->staged[p->server].parts : NULL, staged,
                       &r));
    if (r.values != NULL) {
        TRY(mst_store_apply(shard, &one, 1, &(mst_update){.lr = 0.5f, .step = ++c->versions[p->server]}));
    }
    if (staged != NULL) {
        free(staged);
        c->staged[p->server].values = NULL;
        c->staged[p->server].parts = (mst_store_parts){0};
    }
    TRY(answer_parts(c, p, &r, &first));
    size_t size = mst_store_reply_size(shard, &r) - first * mst_float_size(r.wire);
    uint8_t *values = malloc(size + MST_WORK_SIZE);
    assert_non_null(values);
    if (r.pulled != NULL)
        mst_store_reply_rest(shard, &r, first, values);
    mst_message m = {
        .type = MST_PS_VALUES, .request = p->m.request, .step = c->versions[p->server], .size = size};
    if (c->dropped)
        m.flags |= MST_VALUES_DROPPED;
    if (c->work && p->server == 0) {
        mst_work_encode(&(mst_work){.kind = MST_WORK_LEASE, .epoch = 2, .from = 10, .to = 30}, values + size);
        m.flags |= MST_VALUES_WORK;
        m.size += MST_WORK_SIZE;
    }
    uint32_t peer = FIRST_PEER + p->server;
    void *to = NULL;
    mst_status st = MST_OK;
    if (m.size > 0) {
        st = mst_client_body(c->client, peer, &m, &to);
        if (st == MST_OK)
            memcpy(to, values, m.size);
    }
    free(values);
    if (st == MST_OK) {
        c->direct = false;
        for (uint32_t i = 0; i < 3; i++)
            c->direct |= to != NULL && to == mst_client_weights(c->client, i);
        st = mst_client_message(c->client, peer, &m, to);
    }
    return st;
}

static mst_status deliver(mst_net *net, uint64_t deadline_ns)
{
    cluster *c = (cluster *)net;
    size_t kept = 0;
    (void)deadline_ns;
    for (size_t i = 0; i < c->n_queue; i++) {
        if (c->queue[i].server == c->mute) {
            c->queue[kept++] = c->queue[i];
            continue;
        }
        mst_status st = answer(c, &c->queue[i]);
        free(c->queue[i].body);
        if (st != MST_OK)
            fail_msg("%s", mst_error_text());
    }
    c->n_queue = kept;
    return MST_OK;
}

static void name_of(const mst_net *net, uint32_t peer, char *out, size_t size)
{
    (void)net;
    snprintf(out, size, "server %u", peer - FIRST_PEER);
}

static const mst_net_engine direct_engine = {
    .name = "direct", .send = carry, .poll = deliver, .name_of = name_of};

/* ---- set-up ---- */

static void start_parts(cluster *c, uint32_t n_servers, uint32_t width, mst_float_format wire, uint32_t part)
{
    memset(c, 0, sizeof *c);
    c->random = 3;
    c->net.engine = &direct_engine;
    c->n_servers = n_servers;
    c->mute = UINT32_MAX;
    c->optimizer.ops = mst_optimizers[0];
    c->optimizer.options.lr = 0.5;
    for (uint32_t k = 0; k < n_servers; k++) {
        uint64_t sparse[] = {N_KEYS, width}, dense[] = {N_DENSE};
        uint32_t view;
        mst_params *params = &c->params[k];
        assert_int_equal(mst_params_add(params, "weight", MST_VIEW_TRAINABLE, width, 2, sparse, NULL),
                         MST_OK);
        assert_int_equal(mst_params_add(params, "bias", MST_VIEW_TRAINABLE, 0, 1, dense, &view), MST_OK);
        assert_int_equal(mst_params_reserve(params, 0, 0), MST_OK);
        c->dense = params->views[view].offset;
        /* small numbers: exact on every wire */
        for (uint64_t i = 0; i < params->size; i++)
            params->w[i] = (float)(i % 97);
        if (k == 0) {
            mst_grad layout = {
                .n_ranges = 1, .ranges = {{.offset = c->dense, .size = N_DENSE}}, .width = width};
            assert_int_equal(mst_placement_make(&c->table, params, &layout, n_servers, NULL, 0, false),
                             MST_OK);
        }
        mst_store_options options = {.optimizer = &c->optimizer,
                                     .params = params,
                                     .table = &c->table,
                                     .server = k,
                                     .n_workers = 1,
                                     .n_threads = 1};
        assert_int_equal(mst_store_new(&options, &c->shards[k]), MST_OK);
    }
    const uint32_t peers[] = {FIRST_PEER, FIRST_PEER + 1, FIRST_PEER + 2};
    mst_client_options options = {.net = &c->net,
                                  .table = &c->table,
                                  .peers = peers,
                                  .wire = wire,
                                  .n_requests = 3,
                                  .part_floats = part};
    assert_int_equal(mst_client_new(&options, &c->client), MST_OK);
}

static void start(cluster *c, uint32_t n_servers, uint32_t width, mst_float_format wire)
{
    start_parts(c, n_servers, width, wire, 0);
}

static void stop(cluster *c)
{
    mst_client_destroy(c->client);
    for (size_t i = 0; i < c->n_queue; i++)
        free(c->queue[i].body);
    for (uint32_t k = 0; k < c->n_servers; k++) {
        mst_store_destroy(c->shards[k]);
        mst_params_fini(&c->params[k]);
    }
    mst_placement_fini(&c->table);
}

static void fill_list(cluster *c, uint32_t request, uint32_t n_ranges, uint32_t every)
{
    mst_key_list *list = mst_client_list(c->client, request);
    list->n_ranges = list->n_keys = 0;
    uint64_t at = c->dense + 3;
    for (; list->n_ranges < n_ranges; at += 25)
        list->ranges[list->n_ranges++] = (mst_extent){at, 1 + draw(c, n_ranges == 1 ? 590 : 20)};
    assert_int_equal(mst_key_list_room(list, N_KEYS), MST_OK);
    for (uint32_t k = 0; every > 0 && k < N_KEYS; k++)
        if (draw(c, every) == 0)
            list->keys[list->n_keys++] = k;
}

/* The weight of a flat position, on the server that has it. */
static float *weight_at(cluster *c, uint64_t at)
{
    for (uint32_t i = 0; i < c->table.n_partitions; i++) {
        const mst_partition *p = &c->table.partitions[i];
        if (at >= p->first && at < p->first + p->count)
            return &c->params[p->server].w[at];
    }
    fail();
    return NULL;
}

/* Calls out every float of a request: its place among the weights and in the flat vector. */
static uint64_t places(cluster *c, uint32_t request, uint64_t *local, uint64_t *flat)
{
    const mst_key_list *list = mst_client_list(c->client, request);
    uint64_t n = 0, at = 0;
    for (uint32_t i = 0; i < list->n_ranges; i++)
        for (uint64_t j = 0; j < list->ranges[i].count; j++, n++) {
            local[n] = at++;
            flat[n] = list->ranges[i].first + j;
        }
    uint32_t width = c->table.width, key = mst_client_key_start(c->client, request);
    for (uint32_t i = 0; i < list->n_keys; i++, key++)
        for (uint32_t w = 0; w < width; w++, n++) {
            local[n] = (uint64_t)key * width + w;
            flat[n] = c->table.sparse_offset + (uint64_t)list->keys[i] * width + w;
        }
    return n;
}

static uint64_t g_local[20000], g_flat[20000];
static float g_gradient[20000], g_expected[20000];

static void check_weights(cluster *c, uint32_t request)
{
    uint64_t n = places(c, request, g_local, g_flat);
    const float *w = mst_client_weights(c->client, request);
    for (uint64_t i = 0; i < n; i++)
        assert_true(w[g_local[i]] == *weight_at(c, g_flat[i]));
}

static void wait_for(cluster *c, uint32_t request)
{
    assert_int_equal(mst_client_wait(c->client, request, mst_now_ns() + 10 * MST_S), MST_OK);
    assert_true(mst_client_ready(c->client, request));
}

/* ---- steps ---- */

/* Pulls, pushes with the next pull, for a few steps, with lists of all shapes. */
static void check_steps(uint32_t n_servers, uint32_t width, mst_float_format wire, uint32_t part)
{
    cluster c;
    start_parts(&c, n_servers, width, wire, part);
    const struct {
        uint32_t n_ranges, every;
    } shapes[] = {{2, 3}, {0, 50}, {24, 7}, {1, 0}, {0, 0}, {5, 1}, {1, 3000}};
    uint32_t request = 0;
    fill_list(&c, request, shapes[0].n_ranges, shapes[0].every);
    assert_int_equal(mst_client_send(c.client, NULL, request), MST_OK);
    assert_false(mst_client_ready(c.client, request));
    for (uint32_t step = 1; step < 40; step++) {
        wait_for(&c, request);
        check_weights(&c, request);
        assert_int_equal(mst_client_reply(c.client, request)->version, step - 1);
        assert_int_equal(mst_client_reply(c.client, request)->dropped, step % 3 == 0 && step > 1);
        assert_int_equal(mst_client_reply(c.client, request)->has_work, step % 4 == 0 && step > 1);
        if (mst_client_reply(c.client, request)->has_work)
            assert_int_equal(mst_client_reply(c.client, request)->work.to, 30);
        c.dropped = (step + 1) % 3 == 0;
        c.work = (step + 1) % 4 == 0;

        uint64_t n = places(&c, request, g_local, g_flat);
        memset(g_gradient, 0, sizeof g_gradient);
        for (uint64_t i = 0; i < n; i++) {
            g_gradient[g_local[i]] = (float)draw(&c, 9) - 4.0f;
            g_expected[i] = *weight_at(&c, g_flat[i]) - 0.5f * g_gradient[g_local[i]];
        }
        uint32_t next = (request + 1) % 3, floats = (uint32_t)mst_client_floats(c.client, request);
        for (uint32_t from = floats; part != 0 && from > floats / 8; from -= from / 3 + 1)
            assert_int_equal(mst_client_push_early(c.client, request, g_gradient, from), MST_OK);
        fill_list(&c, next, shapes[step % 7].n_ranges, shapes[step % 7].every);
        mst_push push = {
            .request = request, .g = g_gradient, .step = step, .rows = 5, .loss = 1, .weight = 5};
        assert_int_equal(mst_client_send(c.client, &push, next), MST_OK);
        wait_for(&c, next);
        for (uint64_t i = 0; i < n; i++)
            assert_true(*weight_at(&c, g_flat[i]) == g_expected[i]);
        request = next;
    }
    assert_int_equal(c.n_early > 0, part != 0);
    assert_true(c.n_weights > 0 ? part != 0 : part == 0 || n_servers > 1);
    stop(&c);
}

static void test_steps(void **state)
{
    (void)state;
    for (uint32_t servers = 1; servers <= MOST_SERVERS; servers++)
        for (uint32_t width = 1; width <= 3; width++)
            for (mst_float_format wire = MST_FLOAT_FP32; wire <= MST_FLOAT_FP16; wire++)
                for (uint32_t part = 0; part <= 256; part += 256)
                    check_steps(servers, width, wire, part);
}

/* Several requests in flight; a push without a pull. */
static void test_in_flight(void **state)
{
    cluster c;
    (void)state;
    start(&c, 2, 1, MST_FLOAT_FP32);
    for (uint32_t request = 0; request < 3; request++) {
        fill_list(&c, request, 2, 5);
        assert_int_equal(mst_client_send(c.client, NULL, request), MST_OK);
    }
    for (uint32_t request = 0; request < 3; request++) {
        wait_for(&c, request);
        check_weights(&c, request);
    }
    mst_push push = {.request = 1, .g = g_gradient, .step = 1, .rows = 5, .flags = MST_STEP_EXHAUSTED};
    assert_int_equal(mst_client_send(c.client, &push, MST_NO_REQUEST), MST_OK);
    assert_int_equal(c.queue[0].m.flags, MST_STEP_PUSH | MST_STEP_EXHAUSTED);
    assert_false(mst_client_ready(c.client, 1));
    assert_int_equal(mst_client_send(c.client, NULL, 1), MST_EUSAGE);
    assert_string_equal(mst_error_text(), "request 1 is in flight already");
    wait_for(&c, 1);
    assert_int_equal(mst_client_reply(c.client, 1)->version, 1);
    /* a list is pushed for once */
    assert_int_equal(mst_client_send(c.client, &push, MST_NO_REQUEST), MST_EUSAGE);
    assert_string_equal(mst_error_text(), "a push for request 1, which has no pulled weights");
    /* nothing at all */
    assert_int_equal(mst_client_send(c.client, NULL, MST_NO_REQUEST), MST_OK);
    assert_int_equal(c.n_queue, 0);
    push.request = 0;
    assert_int_equal(mst_client_send(c.client, &push, 0), MST_EUSAGE);
    assert_int_equal(mst_client_send(c.client, &push, 3), MST_EUSAGE);
    push.request = 3;
    assert_int_equal(mst_client_send(c.client, &push, 0), MST_EUSAGE);
    stop(&c);
}

/* Bytes of the bodies that the net carries now. */
static uint64_t carried(const cluster *c)
{
    uint64_t n = 0;
    for (size_t i = 0; i < c->n_queue; i++)
        n += c->queue[i].m.size;
    return n;
}

/* What was sent, with parts of the gradient that went before, and what is to come back. */
static void check_bytes_in_flight(mst_float_format wire, uint32_t part)
{
    cluster c;
    start_parts(&c, 2, 1, wire, part);
    uint64_t answer = N_DENSE * mst_float_size(wire);
    for (uint32_t request = 0; request < 2; request++) {
        mst_key_list *list = mst_client_list(c.client, request);
        list->ranges[0] = (mst_extent){c.dense, N_DENSE};
        list->n_ranges = 1;
    }
    assert_int_equal(mst_client_in_flight(c.client), 0);
    assert_int_equal(mst_client_send(c.client, NULL, 0), MST_OK);
    assert_int_equal(mst_client_in_flight(c.client), carried(&c) + answer);
    wait_for(&c, 0);
    assert_int_equal(mst_client_in_flight(c.client), 0);

    assert_int_equal(mst_client_push_early(c.client, 0, g_gradient, 0), MST_OK);
    assert_int_equal(mst_client_in_flight(c.client), carried(&c));
    assert_true((carried(&c) > 0) == (part > 0));
    mst_push push = {.request = 0, .g = g_gradient, .step = 1, .rows = 5};
    assert_int_equal(mst_client_send(c.client, &push, 1), MST_OK);
    assert_true(carried(&c) > answer); /* the gradient has as many floats */
    assert_int_equal(mst_client_in_flight(c.client), carried(&c) + answer);
    c.mute = 1; /* one server answers, the other does not */
    assert_int_equal(mst_client_wait(c.client, 1, mst_now_ns()), MST_ETIMEOUT);
    uint64_t left = mst_client_in_flight(c.client);
    assert_true(left >= carried(&c) && left <= carried(&c) + answer);
    c.mute = UINT32_MAX;
    wait_for(&c, 1);
    assert_int_equal(mst_client_in_flight(c.client), 0);

    push.request = 1; /* a push alone */
    assert_int_equal(mst_client_send(c.client, &push, MST_NO_REQUEST), MST_OK);
    assert_int_equal(mst_client_in_flight(c.client), carried(&c));
    wait_for(&c, 1);
    assert_int_equal(mst_client_in_flight(c.client), 0);
    stop(&c);
}

static void test_bytes_in_flight(void **state)
{
    (void)state;
    for (uint32_t part = 0; part <= 256; part += 256) {
        check_bytes_in_flight(MST_FLOAT_FP32, part);
        check_bytes_in_flight(MST_FLOAT_BF16, part);
    }
}

/* A list that the servers have forgotten is not pushed for. */
static void test_forgotten(void **state)
{
    cluster c;
    (void)state;
    start(&c, 1, 1, MST_FLOAT_FP32);
    for (uint32_t i = 0; i < MST_LISTS; i++) {
        uint32_t request = i == 0 ? 0 : 1;
        fill_list(&c, request, 1, 100);
        assert_int_equal(mst_client_send(c.client, NULL, request), MST_OK);
        wait_for(&c, request);
    }
    mst_push push = {.request = 0, .g = g_gradient, .rows = 1};
    assert_int_equal(mst_client_send(c.client, &push, 2), MST_EUSAGE);
    assert_string_equal(mst_error_text(), "a push for request 0, pulled 16 pulls ago; servers keep 16 lists");
    assert_int_equal(mst_client_send(c.client, &push, MST_NO_REQUEST), MST_OK); /* just in time */
    wait_for(&c, 0);
    stop(&c);
}

/* Plain floats are sent from where they lie, and received in their place. */
static void test_no_copies(void **state)
{
    cluster c;
    (void)state;
    start(&c, 1, 1, MST_FLOAT_FP32);
    for (uint32_t request = 0; request < 2; request++) {
        c.work = request == 1; /* a work item lands behind the weights */
        fill_list(&c, request, 2, 3);
        assert_int_equal(mst_client_send(c.client, NULL, request), MST_OK);
        assert_int_equal(c.n_pieces, 2);
        wait_for(&c, request);
        assert_true(c.direct);
        assert_int_equal(mst_client_reply(c.client, request)->has_work, request == 1);
        check_weights(&c, request);
    }
    mst_push push = {.request = 0, .g = g_gradient, .rows = 1};
    fill_list(&c, 2, 0, 3);
    assert_int_equal(mst_client_send(c.client, &push, 2), MST_OK);
    assert_int_equal(c.n_pieces, 3);
    wait_for(&c, 2);
    stop(&c);
}

/* ---- replies that do not fit, waits that end ---- */

static void refuse(cluster *c, uint32_t peer, mst_message m, const char *sentence)
{
    void *to;
    assert_int_equal(mst_client_body(c->client, peer, &m, &to), MST_EINPUT);
    if (strstr(mst_error_text(), sentence) == NULL)
        fail_msg("\"%s\" has not \"%s\"", mst_error_text(), sentence);
    assert_int_equal(mst_client_message(c->client, peer, &m, g_gradient), MST_EINPUT);
}

static void test_wrong_replies(void **state)
{
    cluster c;
    (void)state;
    start(&c, 2, 1, MST_FLOAT_FP32);
    mst_key_list *list = mst_client_list(c.client, 0);
    assert_int_equal(mst_key_list_room(list, 3), MST_OK);
    for (list->n_keys = 0; list->n_keys < 3; list->n_keys++)
        list->keys[list->n_keys] = list->n_keys; /* all on server 0 */
    mst_message m = {.type = MST_PS_VALUES, .size = 12};
    refuse(&c, FIRST_PEER, m, "a VALUES for request 0, which was not sent or has been answered");
    assert_int_equal(mst_client_send(c.client, NULL, 0), MST_OK);
    m.request = c.queue[0].m.request;
    m.size = 13;
    refuse(&c, FIRST_PEER, m, "server 0 answers request 0 with 13 bytes; it has 12");
    m.size = 12;
    refuse(&c, FIRST_PEER + 1, m, "server 1 answers request 0 with 12 bytes; it has 0");
    refuse(&c, FIRST_PEER + 2, m, "which was not sent");
    m.request++;
    refuse(&c, FIRST_PEER, m, "which was not sent");
    m.request--;
    m.flags = MST_VALUES_WORK;
    refuse(&c, FIRST_PEER, m, "with 12 bytes; it has 60");
    /* a work item that is none */
    m.size = 60;
    uint8_t *to;
    assert_int_equal(mst_client_body(c.client, FIRST_PEER, &m, (void **)&to), MST_OK);
    memset(to, 0, 60);
    assert_int_equal(mst_client_message(c.client, FIRST_PEER, &m, to), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "work item of unknown kind 0"));

    c.mute = 1;
    assert_int_equal(deliver(&c.net, 0), MST_OK);
    assert_false(mst_client_ready(c.client, 0));
    m.flags = 0;
    m.size = 12;
    refuse(&c, FIRST_PEER, m, "has been answered"); /* a second answer of one server */
    c.mute = UINT32_MAX;
    wait_for(&c, 0);
    stop(&c);
}

/* Parts of an answer: each float once, in order; what is there is known. */
static void test_parts_of_an_answer(void **state)
{
    cluster c;
    uint8_t *to;
    (void)state;
    start_parts(&c, 1, 1, MST_FLOAT_FP32, 256);
    mst_key_list *list = mst_client_list(c.client, 0);
    list->n_ranges = 1;
    list->ranges[0] = (mst_extent){c.dense, N_DENSE};
    assert_int_equal(mst_client_send(c.client, NULL, 0), MST_OK);
    mst_message m = {.type = MST_PS_WEIGHTS, .request = c.queue[0].m.request, .size = 1024, .step = 7};
    m.flags = 1;
    refuse(&c, FIRST_PEER, m, "with a part of 1024 bytes from float 0 on, where 2400 bytes follow float 0");
    m.flags = 0;
    m.count = 256;
    refuse(&c, FIRST_PEER, m, "from float 256 on");
    m.count = 0;
    m.size = 2404;
    refuse(&c, FIRST_PEER, m, "a part of 2404 bytes");
    m.size = 1023;
    refuse(&c, FIRST_PEER, m, "a part of 1023 bytes");
    m.size = 1024;
    assert_false(mst_client_has(c.client, 0, 0, 1));
    assert_int_equal(mst_client_body(c.client, FIRST_PEER, &m, (void **)&to), MST_OK);
    assert_ptr_equal(to, mst_client_weights(c.client, 0)); /* where it belongs */
    assert_int_equal(mst_client_message(c.client, FIRST_PEER, &m, to), MST_OK);
    assert_true(mst_client_has(c.client, 0, 0, 256));
    assert_true(mst_client_has(c.client, 0, 255, 1));
    assert_false(mst_client_has(c.client, 0, 255, 2));
    assert_false(mst_client_has(c.client, 0, 599, 1));
    assert_true(mst_client_begun(c.client, 0));
    assert_int_equal(mst_client_reply(c.client, 0)->version, 7);
    refuse(&c, FIRST_PEER, m, "where 1376 bytes follow float 256"); /* once more */
    m.type = MST_PS_VALUES;
    m.size = 2400;
    refuse(&c, FIRST_PEER, m, "with 2400 bytes; it has 1376");
    stop(&c);
}

static void test_waits_end(void **state)
{
    cluster c;
    (void)state;
    start(&c, 3, 1, MST_FLOAT_FP32);
    assert_int_equal(mst_client_wait(c.client, 0, 0), MST_EUSAGE);
    fill_list(&c, 0, 2, 5);
    assert_int_equal(mst_client_send(c.client, NULL, 0), MST_OK);
    c.mute = 1;
    assert_int_equal(mst_client_wait(c.client, 0, mst_now_ns()), MST_ETIMEOUT);
    assert_string_equal(mst_error_text(), "no answer to a step in time from server 1");
    mst_error why = {.code = MST_EINPUT, .text = "server 1 is gone"};
    mst_client_down(c.client, FIRST_PEER + 7, &why); /* not a server */
    assert_int_equal(mst_client_wait(c.client, 0, mst_now_ns()), MST_ETIMEOUT);
    mst_client_down(c.client, FIRST_PEER + 1, &why);
    assert_int_equal(mst_client_wait(c.client, 0, mst_now_ns() + 10 * MST_S), MST_EPEER);
    assert_string_equal(mst_error_text(), "server 1 is gone");
    fill_list(&c, 1, 2, 5);
    assert_int_equal(mst_client_send(c.client, NULL, 1), MST_EPEER);
    stop(&c);
}

static void test_wrong_options(void **state)
{
    cluster c;
    mst_client *client;
    (void)state;
    start(&c, 1, 1, MST_FLOAT_FP32);
    const uint32_t peer = FIRST_PEER;
    mst_client_options options = {.net = &c.net, .table = &c.table, .peers = &peer};
    assert_int_equal(mst_client_new(&options, &client), MST_EUSAGE);
    options.n_requests = MST_LISTS + 1;
    assert_int_equal(mst_client_new(&options, &client), MST_EUSAGE);
    options.n_requests = 2;
    for (uint64_t k = 1; k <= 5; k++) {
        mst_alloc_fail_at(k);
        assert_int_equal(mst_client_new(&options, &client), MST_ENOMEM);
    }
    mst_alloc_fail_at(0);
    mst_client_destroy(NULL);
    stop(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_in_flight),
        cmocka_unit_test(test_bytes_in_flight),
        cmocka_unit_test(test_forgotten),
        cmocka_unit_test(test_no_copies),
        cmocka_unit_test(test_wrong_replies),
        cmocka_unit_test(test_parts_of_an_answer),
        cmocka_unit_test(test_waits_end),
        cmocka_unit_test(test_wrong_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
