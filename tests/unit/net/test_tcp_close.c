/* Engine tcp closes its descriptors: another thread gets their numbers, and the thread sanitizer has seen
 * them closed (tests/tsan_close.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "net/net.h"

#define FILES 32

static atomic_bool g_destroyed; /* relaxed: the threads are not synchronised by it */
static atomic_int g_highest;

/* Opens files and closes them; the highest number. */
static int highest_number(void)
{
    int files[FILES];
    for (int i = 0; i < FILES; i++)
        files[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < FILES; i++)
        close(files[i]);
    return files[FILES - 1];
}

static void *open_files(void *arg)
{
    (void)arg;
    while (!atomic_load_explicit(&g_destroyed, memory_order_relaxed))
        usleep(1000);
    atomic_store_explicit(&g_highest, highest_number(), memory_order_relaxed);
    return NULL;
}

static void test_numbers_are_free(void **state)
{
    const mst_net_options options = {.max_body = 1 << 20, .peer_timeout_ms = 1000, .hello_timeout_ms = 1000};
    const mst_net_events events = {0};
    pthread_t thread;
    mst_net *net;
    (void)state;
    assert_int_equal(mst_net_new(&mst_net_tcp, &options, &events, NULL, &net), MST_OK);
    mst_net_destroy(net); /* libuv keeps descriptors of the first loop for the process */
    int before = highest_number();
    assert_true(before > FILES);
    assert_int_equal(pthread_create(&thread, NULL, open_files, NULL), 0);
    assert_int_equal(mst_net_new(&mst_net_tcp, &options, &events, NULL, &net), MST_OK);
    mst_net_destroy(net);
    atomic_store_explicit(&g_destroyed, true, memory_order_relaxed);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&g_highest), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers_are_free)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
