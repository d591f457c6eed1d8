/* Buffers of a server are reused, and those of a flood are freed again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "ps/body_pool.h"

#define N 50

static size_t free_bytes(const mst_body_pool *pool)
{
    size_t n = 0;
    for (const mst_body *body = pool->free; body != NULL; body = body->next)
        n += body->capacity;
    return n;
}

/* Takes and releases n buffers. */
static void use(mst_body_pool *pool, size_t n, size_t size)
{
    mst_body *bodies[N];
    for (size_t i = 0; i < n; i++)
        assert_non_null(bodies[i] = mst_body_take(pool, size));
    for (size_t i = 0; i < n; i++)
        mst_body_release(pool, bodies[i]);
}

static void trim(void **state)
{
    (void)state;
    mst_body_pool pool = {0};
    uint64_t now = 100 * MST_S;
    mst_body_pool_trim(&pool, now);
    use(&pool, 4, 100000);
    size_t usual = free_bytes(&pool);
    mst_body *first = pool.free;
    use(&pool, 1, 100000);
    assert_ptr_equal(pool.free, first); /* reused */
    use(&pool, N, 100000);
    assert_true(free_bytes(&pool) > 10 * usual);
    for (int i = 0; i < 2; i++) { /* the flood was recent */
        mst_body_pool_trim(&pool, now += 10 * MST_S);
        assert_true(free_bytes(&pool) > 10 * usual);
        use(&pool, 4, 100000);
    }
    mst_body_pool_trim(&pool, now + MST_S); /* too early */
    assert_true(free_bytes(&pool) > 10 * usual);
    mst_body_pool_trim(&pool, now += 10 * MST_S);
    assert_int_equal(free_bytes(&pool), usual);
    assert_int_equal(pool.used, 0);
    mst_body_pool_fini(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(trim)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
