/* Connections of a web server: limits in all and per address, slow and idle ones, and many threads. */
#include "http/clients.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

#define MANY 32

/* A connection: the ends of a socket pair, and whether the server's has been shut down. */
typedef struct pair {
    int server, client;
    mst_client *entry;
} pair;

static pair pair_open(mst_clients *clients, const char *address)
{
    int fds[2];
    struct sockaddr_in from = {.sin_family = AF_INET};
    inet_pton(AF_INET, address, &from.sin_addr);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    pair p = {.server = fds[0], .client = fds[1]};
    p.entry = mst_clients_add(clients, p.server, (struct sockaddr *)&from);
    assert_non_null(p.entry);
    return p;
}

static bool pair_ended(const pair *p)
{
    char byte;
    return recv(p->client, &byte, 1, MSG_DONTWAIT) == 0;
}

static void pair_close(mst_clients *clients, pair *p)
{
    mst_clients_remove(clients, p->entry);
    close(p->server);
    close(p->client);
}

static void test_limits(void **state)
{
    (void)state;
    mst_clients clients;
    pair all[6];
    mst_clients_init(&clients, 4, 3, 1000 * MST_S);
    for (int i = 0; i < 4; i++)
        all[i] = pair_open(&clients, "10.0.0.1");
    assert_true(pair_ended(&all[0])); /* the oldest of four of one address */
    assert_int_equal(mst_clients_count(&clients), 3);
    mst_clients_set(&clients, all[1].entry, true, false); /* a request that is answered is not closed */
    all[4] = pair_open(&clients, "10.0.0.2");
    assert_int_equal(mst_clients_count(&clients), 4);
    all[5] = pair_open(&clients, "10.0.0.3"); /* too many in all: of the address that has most */
    assert_int_equal(mst_clients_count(&clients), 4);
    assert_true(pair_ended(&all[2]) && !pair_ended(&all[1]) && !pair_ended(&all[3]) && !pair_ended(&all[4]) &&
                !pair_ended(&all[5]));
    for (int i = 0; i < 6; i++)
        assert_ptr_equal(mst_clients_find(&clients, all[i].server), all[i].entry);
    assert_null(mst_clients_find(&clients, all[0].client));
    for (int i = 0; i < 6; i++)
        pair_close(&clients, &all[i]);
    assert_int_equal(mst_clients_count(&clients), 0);
    mst_clients_fini(&clients);
}

static void test_slow_and_idle(void **state)
{
    (void)state;
    mst_clients clients;
    mst_clients_init(&clients, 10, 0, 0); /* every moment is too long */
    pair quiet = pair_open(&clients, "10.0.0.1"), endless = pair_open(&clients, "10.0.0.1"),
         begun = pair_open(&clients, "10.0.0.1"), sent = pair_open(&clients, "10.0.0.1");
    mst_clients_set(&clients, endless.entry, true, true);
    mst_clients_begin(&clients, begun.entry);
    assert_int_equal(send(sent.client, "G", 1, 0), 1);
    assert_int_equal(mst_clients_close_idle(&clients, 1000 * MST_S), 4);
    assert_int_equal(mst_clients_close_idle(&clients, 0), 3); /* no request, and no byte of one */
    assert_true(pair_ended(&quiet) && !pair_ended(&begun) && !pair_ended(&sent) && !pair_ended(&endless));
    mst_clients_close_slow(&clients);
    assert_true(pair_ended(&begun) && pair_ended(&sent) && !pair_ended(&endless));
    assert_int_equal(mst_clients_count(&clients), 1);
    pair_close(&clients, &quiet);
    pair_close(&clients, &endless);
    pair_close(&clients, &begun);
    pair_close(&clients, &sent);
    mst_clients_fini(&clients);
}

typedef struct shared {
    mst_clients clients;
    pair all[MANY];
    atomic_uint left; /* threads that answer */
} shared;

static void *answer(void *arg)
{
    shared *s = arg;
    for (int i = 0; i < 200000; i++) {
        mst_clients_set(&s->clients, s->all[i % MANY].entry, true, false);
        mst_clients_set(&s->clients, s->all[i % MANY].entry, false, false);
    }
    atomic_fetch_sub(&s->left, 1);
    return NULL;
}

/* Connections that answer requests all the time are never slow, whenever another thread looks. */
static void test_threads(void **state)
{
    (void)state;
    static shared s;
    pthread_t threads[3];
    mst_clients_init(&s.clients, MANY, 0, 1000 * MST_S);
    for (int i = 0; i < MANY; i++)
        s.all[i] = pair_open(&s.clients, "10.0.0.1");
    s.left = 3;
    for (int t = 0; t < 3; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, answer, &s), 0);
    while (atomic_load(&s.left) > 0)
        mst_clients_close_slow(&s.clients);
    for (int t = 0; t < 3; t++)
        pthread_join(threads[t], NULL);
    assert_int_equal(mst_clients_count(&s.clients), MANY);
    for (int i = 0; i < MANY; i++)
        pair_close(&s.clients, &s.all[i]);
    mst_clients_fini(&s.clients);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limits), cmocka_unit_test(test_slow_and_idle),
                                       cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
