/* The peers of a server: found by number while they are connected; the table does not grow with those that
 * have left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ps/peer_table.h"

#define LIVE 20

static void past_peers(void **state)
{
    (void)state;
    mst_peer_table table = {0};
    size_t capacity = 0;
    assert_null(mst_peer_table_find(&table, 0));
    mst_peer_table_remove(&table, 7);
    for (uint32_t i = 0; i < 100000; i++) {
        assert_int_equal(mst_peer_table_add(&table, i, MST_PEER_WORKER, i % 5), MST_OK);
        if (i >= LIVE) /* an old one leaves, in a changing order */
            mst_peer_table_remove(&table, i % 2 ? i - LIVE + 1 : i - LIVE - 1);
        if (i == 1000)
            capacity = table.capacity;
        if (i % 1000 == 0)
            for (uint32_t k = i > LIVE ? i - LIVE + 2 : 0; k <= i; k++) {
                const mst_server_peer *p = mst_peer_table_find(&table, k);
                assert_non_null(p);
                assert_int_equal(p->number, k);
                assert_int_equal(p->index, k % 5);
            }
    }
    assert_int_equal(table.capacity, capacity);
    assert_true(table.n <= LIVE + 1);
    assert_null(mst_peer_table_find(&table, 500));
    mst_peer_table_fini(&table);
}

/* Numbers that share a place. */
static void collisions(void **state)
{
    (void)state;
    mst_peer_table table = {0};
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(mst_peer_table_add(&table, i * 1024, MST_PEER_SERVER, i), MST_OK);
    for (uint32_t gone = 0; gone < 7; gone++) {
        mst_peer_table_remove(&table, gone * 1024);
        for (uint32_t i = 0; i < 7; i++) {
            const mst_server_peer *p = mst_peer_table_find(&table, i * 1024);
            assert_int_equal(p != NULL, i > gone);
            assert_true(p == NULL || p->index == i);
        }
    }
    assert_int_equal(table.n, 0);
    mst_peer_table_fini(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(past_peers),
        cmocka_unit_test(collisions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
