/* Speeds of the process's own connections: those between addresses of this host, idle connections and other
 * files give no speed. tests/mpi/test_allreduce_observed.sh measures a network. */
#include "net/tcp_address.h"
#include "net/tcp_own.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* A connection to an address of this host. */
static void check_own_address(struct sockaddr_in at)
{
    static char data[1 << 16];
    char link[16] = "?";
    mst_tcp_own own = {0};
    socklen_t size = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), unixes[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, unixes), 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &size), 0);
    mst_tcp_own_look(&own); /* sockets that are not connected */
    assert_int_equal(connect(client, (struct sockaddr *)&at, sizeof at), 0);
    int server = accept(listener, NULL, NULL);
    assert_true(server >= 0);
    assert_true(send(client, data, sizeof data, 0) > 0);
    assert_true(recv(server, data, sizeof data, 0) > 0);
    mst_tcp_own_look(&own);
    assert_string_equal(own.link, "");
    assert_true(own.bytes_per_s == 0.0);
    mst_tcp_link_of(client, link, sizeof link);
    assert_string_equal(link, "");
    mst_tcp_link_of(unixes[0], link, sizeof link);
    assert_string_equal(link, "");
    for (int i = 0; i < 2; i++)
        close(unixes[i]);
    close(server);
    close(client);
    close(listener);
}

static void test_own_addresses(void **state)
{
    (void)state;
    struct ifaddrs *all = NULL;
    check_own_address((struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)});
    assert_int_equal(getifaddrs(&all), 0);
    for (const struct ifaddrs *a = all; a != NULL; a = a->ifa_next) /* eth0's own address, if there is one */
        if (a->ifa_addr != NULL && a->ifa_addr->sa_family == AF_INET && (a->ifa_flags & IFF_UP) != 0)
            check_own_address((struct sockaddr_in){
                .sin_family = AF_INET, .sin_addr = ((const struct sockaddr_in *)a->ifa_addr)->sin_addr});
    freeifaddrs(all);
}

/* What was seen before stays where nothing new is seen. */
static void test_nothing_new(void **state)
{
    (void)state;
    mst_tcp_own own = {.link = "eth7", .bytes_per_s = 1e6};
    mst_tcp_own_look(&own);
    assert_string_equal(own.link, "eth7");
    assert_true(own.bytes_per_s == 1e6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_own_addresses),
                                       cmocka_unit_test(test_nothing_new)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
