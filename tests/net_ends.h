/* Ends of net connections for tests: each records its events and answers according to its script. */
#ifndef TESTS_NET_ENDS_H
#define TESTS_NET_ENDS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "net/net.h"
#include "net/wire.h"

#define SOON (10 * MST_S) /* nothing in these tests takes this long */

typedef struct end {
    mst_net *net;
    /* What happened. */
    unsigned n_up, n_down, n_body, n_messages, n_sent;
    uint32_t peer; /* the last that came up */
    mst_identity who;
    mst_error why; /* of the last down */
    mst_net_reason reason;
    uint32_t down_peer;
    mst_message m; /* the last message */
    uint8_t *body; /* and its body */
    uint64_t bytes;
    void *token; /* of the last sent */
    bool disordered, corrupt;
    unsigned n_doing[MST_NET_WRITES + 1];
    mst_net_doing doing; /* what it last said that it was about to do */
    bool misled;         /* a message came while it did something else than reading */
    /* What to do. */
    bool refuse_body, refuse_message, drop_on_message, echo;
    int wait_in_message; /* descriptor to read a byte from inside the event; 0: none */
} end;

static inline uint8_t pattern(uint32_t request, uint64_t i)
{
    return (uint8_t)(i * 31 + (i >> 8) + request * 7);
}

static inline void end_up(void *arg, uint32_t peer, const mst_identity *who)
{
    end *e = arg;
    e->n_up++;
    e->peer = peer;
    e->who = *who;
}

static inline void end_down(void *arg, uint32_t peer, const mst_net_loss *why)
{
    end *e = arg;
    e->n_down++;
    e->down_peer = peer;
    e->why = why->error;
    e->reason = why->reason;
}

static inline mst_status end_body(void *arg, uint32_t peer, const mst_message *m, void **out)
{
    (void)peer;
    end *e = arg;
    e->n_body++;
    if (e->refuse_body)
        return mst_fail(MST_EINPUT, "type %u is not wanted here", m->type);
    free(e->body);
    e->body = malloc((size_t)m->size);
    *out = e->body;
    return e->body != NULL ? MST_OK : mst_fail(MST_ENOMEM, "no memory for a body");
}

static inline mst_status end_message(void *arg, uint32_t peer, const mst_message *m, void *body)
{
    end *e = arg;
    e->misled |= e->n_doing[MST_NET_READS] > 0 && e->doing != MST_NET_READS;
    if (e->n_messages > 0 && m->request != e->m.request + 1)
        e->disordered = true;
    if (m->size > 0 && body != e->body)
        e->corrupt = true;
    if (m->size == 0 && body != NULL)
        e->corrupt = true;
    for (uint64_t i = 0; i < m->size; i += i < 4096 || i > m->size - 4096 ? 1 : 1021)
        if (((uint8_t *)body)[i] != pattern(m->request, i))
            e->corrupt = true;
    e->n_messages++;
    e->bytes += m->size;
    e->m = *m;
    if (e->wait_in_message != 0) {
        char byte;
        if (read(e->wait_in_message, &byte, 1) != 1)
            return mst_fail(MST_EIO, "the test's pipe broke");
    }
    if (e->refuse_message)
        return mst_fail(MST_EINPUT, "message %u is not wanted here", m->request);
    if (e->drop_on_message)
        mst_net_drop(e->net, peer, "enough of you");
    if (e->echo) {
        mst_message reply = *m;
        mst_piece piece = {.data = body, .size = (size_t)m->size};
        return mst_net_send(e->net, peer, &reply, &piece, 1, NULL);
    }
    return MST_OK;
}

static inline void end_sent(void *arg, uint32_t peer, void *token)
{
    (void)peer;
    end *e = arg;
    e->n_sent++;
    e->token = token;
}

static inline void end_doing(void *arg, mst_net_doing what)
{
    end *e = arg;
    e->n_doing[what]++;
    e->doing = what;
}

static const mst_net_events end_events = {
    .up = end_up,
    .down = end_down,
    .body = end_body,
    .message = end_message,
    .sent = end_sent,
    .doing = end_doing,
};

static mst_net_tls end_tls; /* of all ends that are made from here on */
static mst_net_seal end_seal;
static uint32_t end_busy_poll_us;

static inline mst_net_options end_options(mst_role role, uint32_t index)
{
    return (mst_net_options){
        .self = {.role = role, .index = index, .incarnation = 1000 + index, .job = "a-job"},
        .secret = "open sesame",
        .tls = end_tls,
        .seal = end_seal,
        .busy_poll_us = end_busy_poll_us,
        .max_body = 256u << 20,
        .max_queue = 1u << 30,
        .peer_timeout_ms = 20000,
        .hello_timeout_ms = 5000,
    };
}

static inline void end_open(end *e, const mst_net_engine *engine, const mst_net_options *options)
{
    memset(e, 0, sizeof *e);
    assert_int_equal(mst_net_new(engine, options, &end_events, e, &e->net), MST_OK);
}

static inline void end_close(end *e)
{
    mst_net_destroy(e->net);
    free(e->body);
    e->net = NULL;
    e->body = NULL;
}

/* Polls both (b may be NULL) until the condition holds; fails the test when that takes too long. */
#define PUMP(a, b, condition)                                                                                \
    do {                                                                                                     \
        uint64_t pump_until_ = mst_now_ns() + SOON;                                                          \
        while (!(condition)) {                                                                               \
            if (mst_now_ns() > pump_until_)                                                                  \
                fail_msg("%s:%d: waited in vain for %s", __FILE__, __LINE__, #condition);                    \
            pump_once(a, b);                                                                                 \
        }                                                                                                    \
    } while (0)

static inline void pump_once(end *a, end *b)
{
    if (b == NULL) {
        assert_int_equal(mst_net_poll(a->net, mst_now_ns() + 50 * MST_MS), MST_OK);
        return;
    }
    assert_int_equal(mst_net_poll(a->net, 0), MST_OK);
    assert_int_equal(mst_net_poll(b->net, mst_now_ns() + MST_MS), MST_OK);
}

/* Sends `size` bytes of pattern from `from`, which must hold them. */
static inline mst_status send_bytes(end *e, uint16_t type, uint32_t request, const uint8_t *from, size_t size,
                                    void *token)
{
    mst_message m = {.type = type, .flags = 3, .request = request, .count = 9, .step = 1ull << 40};
    mst_piece piece = {.data = from, .size = size};
    return mst_net_send(e->net, e->peer, &m, &piece, size > 0 ? 1 : 0, token);
}

static inline uint8_t *pattern_new(uint32_t request, size_t size)
{
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = pattern(request, i);
    return bytes;
}

#endif
