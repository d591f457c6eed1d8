/* Past connections: their memory is bounded, and the number of a past peer is not that of a later one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "net/net.h"

enum { KEPT = 1500, MORE = 500 }; /* connections until places are used again, and after that */
#define WAIT_NS (20 * MST_S)

typedef struct end {
    mst_net *net;
    uint32_t peer;
    bool up, down;
} end;

static void end_up(void *arg, uint32_t peer, const mst_identity *who)
{
    end *e = arg;
    (void)who;
    e->peer = peer;
    e->up = true;
}

static void end_down(void *arg, uint32_t peer, const mst_net_loss *why)
{
    end *e = arg;
    (void)why;
    assert_int_equal(peer, e->peer);
    e->down = true;
}

static const mst_net_events events = {.up = end_up, .down = end_down};

/* Polls both ends until the flag is set. */
static void poll_until(end *a, end *b, const bool *flag)
{
    for (uint64_t until = mst_now_ns() + WAIT_NS; !*flag && mst_now_ns() < until;) {
        assert_int_equal(mst_net_poll(a->net, mst_now_ns()), MST_OK);
        assert_int_equal(mst_net_poll(b->net, mst_now_ns()), MST_OK);
    }
    assert_true(*flag);
}

/* A connection to the listener that is closed; its number there. */
static uint32_t connect_once(end *listener, end *client, const char *address)
{
    *client = (end){.net = client->net};
    listener->up = listener->down = false;
    assert_int_equal(mst_net_connect(client->net, address, mst_now_ns() + WAIT_NS, &client->peer), MST_OK);
    poll_until(listener, client, &client->up);
    poll_until(listener, client, &listener->up);
    mst_net_drop(client->net, client->peer, NULL);
    poll_until(listener, client, &listener->down);
    return listener->peer;
}

static void test_past_peers(void **state)
{
    (void)state;
    char address[64], name[128];
    end listener = {0}, client = {0};
    mst_net_options options = {
        .max_body = 1024, .max_queue = 1024, .peer_timeout_ms = 10000, .hello_timeout_ms = 10000};
    snprintf(address, sizeof address, "unix:@muster-test-past-%d", (int)getpid());
    assert_int_equal(mst_net_new(&mst_net_tcp, &options, &events, &listener, &listener.net), MST_OK);
    options.self.role = MST_ROLE_WORKER;
    assert_int_equal(mst_net_new(&mst_net_tcp, &options, &events, &client, &client.net), MST_OK);
    assert_int_equal(mst_net_listen(listener.net, address, NULL, 0), MST_OK);
    uint32_t first = connect_once(&listener, &client, address), last = first;
    for (int i = 1; i < KEPT; i++) {
        uint32_t next = connect_once(&listener, &client, address);
        assert_int_not_equal(next, first);
        assert_int_not_equal(next, last);
        last = next;
    }
    mst_alloc_stats before, after;
    mst_alloc_stats_get(&before);
    for (int i = 0; i < MORE; i++)
        connect_once(&listener, &client, address);
    mst_alloc_stats_get(&after);
    assert_true(after.bytes <= before.bytes + 4096);
    mst_message m = {.type = MST_NET_TYPES};
    assert_int_equal(mst_net_send(listener.net, first, &m, NULL, 0, NULL), MST_EPEER);
    mst_net_name_of(listener.net, first, name, sizeof name);
    assert_string_equal(name, "an unknown peer");
    mst_net_destroy(client.net);
    mst_net_destroy(listener.net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_past_peers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
