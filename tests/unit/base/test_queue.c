/* The bounded queue: order, deadlines, close, and many threads at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include <pthread.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/queue.h"

static int g_items[8];

static void test_order_and_wrap(void **state)
{
    (void)state;
    mst_queue *q;
    void *item;
    assert_int_equal(mst_queue_new("rows", 3, &q), MST_OK);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 3; i++)
            assert_int_equal(mst_queue_push(q, &g_items[i], 0), MST_OK);
        assert_int_equal(mst_queue_length(q), 3);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(mst_queue_pop(q, &item, 0), MST_OK);
            assert_ptr_equal(item, &g_items[i]);
        }
        assert_int_equal(mst_queue_push(q, &g_items[3], 0), MST_OK);
        for (int i = 2; i < 4; i++) {
            assert_int_equal(mst_queue_pop(q, &item, 0), MST_OK);
            assert_ptr_equal(item, &g_items[i]);
        }
    }
    mst_queue_destroy(q);
    mst_queue_destroy(NULL);
}

static void test_deadlines(void **state)
{
    (void)state;
    mst_queue *q;
    void *item = &g_items[7];
    assert_int_equal(mst_queue_new("prefetch", 1, &q), MST_OK);
    uint64_t start = mst_now_ns();
    assert_int_equal(mst_queue_pop(q, &item, 20), MST_ETIMEOUT);
    assert_true(mst_now_ns() - start >= 20 * MST_MS);
    assert_string_equal(mst_error_text(), "queue prefetch stayed empty for 20 ms");
    assert_ptr_equal(item, &g_items[7]);
    assert_int_equal(mst_queue_push(q, &g_items[0], UINT64_MAX), MST_OK);
    start = mst_now_ns();
    assert_int_equal(mst_queue_push(q, &g_items[1], 20), MST_ETIMEOUT);
    assert_true(mst_now_ns() - start >= 20 * MST_MS);
    assert_string_equal(mst_error_text(), "queue prefetch stayed full (1 items) for 20 ms");
    assert_int_equal(mst_queue_length(q), 1);
    mst_queue_destroy(q);
    assert_int_equal(mst_queue_new("none", 0, &q), MST_EUSAGE);
}

static void test_close(void **state)
{
    (void)state;
    mst_queue *q;
    void *item;
    assert_int_equal(mst_queue_new("prefetch", 2, &q), MST_OK);
    assert_int_equal(mst_queue_push(q, &g_items[0], 0), MST_OK);
    mst_queue_close(q);
    mst_queue_close(q);
    assert_int_equal(mst_queue_push(q, &g_items[1], 1000), MST_ESTOPPED);
    assert_string_equal(mst_error_text(), "queue prefetch is closed");
    assert_int_equal(mst_queue_pop(q, &item, 0), MST_OK);
    assert_ptr_equal(item, &g_items[0]);
    for (int i = 0; i < 2; i++) {
        item = &g_items[7];
        assert_int_equal(mst_queue_pop(q, &item, 1000), MST_OK);
        assert_null(item);
    }
    mst_queue_destroy(q);
}

#define PRODUCERS 3
#define CONSUMERS 3
#define EACH      20000

typedef struct crowd {
    mst_queue *q;
    atomic_int producers_left, failures;
    atomic_uint_fast64_t sum, count;
    uint32_t values[PRODUCERS][EACH];
    atomic_int next;
} crowd;

static void *produce(void *arg)
{
    crowd *c = arg;
    int self = atomic_fetch_add(&c->next, 1);
    for (int i = 0; i < EACH; i++) {
        c->values[self][i] = (uint32_t)(self * EACH + i + 1);
        if (mst_queue_push(c->q, &c->values[self][i], 60000) != MST_OK)
            atomic_fetch_add(&c->failures, 1);
    }
    if (atomic_fetch_sub(&c->producers_left, 1) == 1)
        mst_queue_close(c->q);
    return NULL;
}

static void *consume(void *arg)
{
    crowd *c = arg;
    uint32_t last[PRODUCERS] = {0};
    for (;;) {
        void *item;
        if (mst_queue_pop(c->q, &item, 60000) != MST_OK) {
            atomic_fetch_add(&c->failures, 1);
            return NULL;
        }
        if (item == NULL)
            return NULL;
        uint32_t value = *(uint32_t *)item, from = (value - 1) / EACH;
        if (value <= last[from]) /* one producer's items come in its order */
            atomic_fetch_add(&c->failures, 1);
        last[from] = value;
        atomic_fetch_add(&c->sum, value);
        atomic_fetch_add(&c->count, 1);
    }
}

static void test_crowd(void **state)
{
    (void)state;
    static crowd c;
    pthread_t threads[PRODUCERS + CONSUMERS];
    atomic_store(&c.producers_left, PRODUCERS);
    assert_int_equal(mst_queue_new("crowd", 4, &c.q), MST_OK);
    for (int i = 0; i < PRODUCERS + CONSUMERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < PRODUCERS ? produce : consume, &c), 0);
    for (int i = 0; i < PRODUCERS + CONSUMERS; i++)
        pthread_join(threads[i], NULL);
    uint64_t n = PRODUCERS * EACH;
    assert_int_equal(atomic_load(&c.failures), 0);
    assert_int_equal(atomic_load(&c.count), n);
    assert_int_equal(atomic_load(&c.sum), n * (n + 1) / 2);
    mst_queue_destroy(c.q);
}

static void *close_it(void *arg)
{
    mst_queue_close(arg);
    return NULL;
}

/* Whoever waits when the queue is closed is woken, not left to its deadline. */
static void test_close_wakes(void **state)
{
    (void)state;
    for (int full = 0; full < 2; full++) {
        mst_queue *q;
        pthread_t thread;
        void *item = &g_items[7];
        assert_int_equal(mst_queue_new("woken", 1, &q), MST_OK);
        if (full)
            assert_int_equal(mst_queue_push(q, &g_items[0], 0), MST_OK);
        uint64_t start = mst_now_ns();
        assert_int_equal(pthread_create(&thread, NULL, close_it, q), 0);
        if (full) {
            assert_int_equal(mst_queue_push(q, &g_items[1], 60000), MST_ESTOPPED);
        } else {
            assert_int_equal(mst_queue_pop(q, &item, 60000), MST_OK);
            assert_null(item);
        }
        assert_true(mst_seconds_since(start) < 30);
        pthread_join(thread, NULL);
        mst_queue_destroy(q);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    mst_alloc_stats before, after;
    mst_alloc_stats_get(&before);
    mst_queue *q = NULL;
    for (uint64_t k = 1; k <= 3; k++) {
        mst_alloc_fail_at(k);
        assert_int_equal(mst_queue_new("short", 5, &q), MST_ENOMEM);
        assert_non_null(strstr(mst_error_text(), "out of memory: cannot allocate "));
        assert_null(q);
    }
    mst_alloc_fail_at(0);
    mst_alloc_stats_get(&after);
    assert_int_equal(before.blocks, after.blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_and_wrap), cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_close),          cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_close_wakes),    cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
