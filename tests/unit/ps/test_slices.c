/* Slices cover every epoch in order; limits are exact. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ps/slices.h"

#define NO_LIMIT UINT64_MAX

static mst_slices made(uint64_t epoch_rows, uint64_t batch, uint64_t epochs)
{
    return (mst_slices){
        .epoch_rows = epoch_rows, .batch = batch, .epochs = epochs, .steps = NO_LIMIT, .rows = NO_LIMIT};
}

static void expect(mst_slices *s, uint64_t step, uint64_t epoch, uint64_t from, uint64_t to)
{
    mst_slice got;
    assert_true(mst_slices_next(s, &got));
    assert_int_equal(got.step, step);
    assert_int_equal(got.epoch, epoch);
    assert_int_equal(got.from, from);
    assert_int_equal(got.to, to);
}

static void expect_end(mst_slices *s)
{
    mst_slice got;
    assert_false(mst_slices_next(s, &got));
    assert_false(mst_slices_next(s, &got));
}

static void regular(void **state)
{
    (void)state;
    mst_slices s = made(25, 10, 2);
    expect(&s, 1, 0, 0, 10);
    expect(&s, 2, 0, 10, 20);
    expect(&s, 3, 0, 20, 25);
    expect(&s, 4, 1, 0, 10);
    expect(&s, 5, 1, 10, 20);
    expect(&s, 6, 1, 20, 25);
    expect_end(&s);
}

static void starts_in_the_middle(void **state)
{
    (void)state;
    mst_slices s = made(25, 10, 2);
    s.step = 7;
    s.done_rows = 40;
    s.epoch = 1;
    s.position = 15;
    expect(&s, 8, 1, 15, 25);
    expect_end(&s);
    s = made(25, 10, 2);
    s.epoch = 1;
    s.position = 25; /* an epoch's end is the next one's beginning */
    expect_end(&s);
}

static void limits(void **state)
{
    (void)state;
    mst_slices s = made(25, 10, 9);
    s.steps = 4;
    for (int i = 0; i < 4; i++) {
        mst_slice got;
        assert_true(mst_slices_next(&s, &got));
    }
    expect_end(&s);
    s = made(25, 10, 9);
    s.rows = 33;
    expect(&s, 1, 0, 0, 10);
    expect(&s, 2, 0, 10, 20);
    expect(&s, 3, 0, 20, 25);
    expect(&s, 4, 1, 0, 8);
    expect_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regular),
        cmocka_unit_test(starts_in_the_middle),
        cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
