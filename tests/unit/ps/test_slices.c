/* Slices: regular ones cover every epoch in order; missed rows are taken again before the end of their epoch
 * or, if it is over, before all others; limits are exact. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "ps/slices.h"

#define NO_LIMIT   UINT64_MAX
#define MAX_EPOCHS 4
#define MAX_ROWS   600

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
    mst_slices_fini(s);
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

/* Before its epoch is over. */
static void missed_in_the_epoch(void **state)
{
    (void)state;
    mst_slices s = made(40, 10, 2);
    expect(&s, 1, 0, 0, 10);
    expect(&s, 2, 0, 10, 20);
    assert_int_equal(mst_slices_miss(&s, 0, 5, 10), MST_OK);
    assert_int_equal(mst_slices_miss(&s, 0, 7, 7), MST_OK); /* nothing */
    assert_int_equal(s.done_rows, 15);
    expect(&s, 3, 0, 20, 30);
    expect(&s, 4, 0, 30, 40);
    expect(&s, 5, 0, 5, 10);
    expect(&s, 6, 1, 0, 10);
    mst_slices_fini(&s);
}

/* When the next epoch has been planned already, which is known only later. */
static void missed_across_the_end_of_an_epoch(void **state)
{
    (void)state;
    mst_slices s = made(20, 10, 2);
    expect(&s, 1, 0, 0, 10);
    expect(&s, 2, 0, 10, 20);
    expect(&s, 3, 1, 0, 10);
    assert_int_equal(mst_slices_miss(&s, 0, 13, 20), MST_OK);
    assert_int_equal(mst_slices_miss(&s, 1, 3, 10), MST_OK);
    mst_slice got;
    uint64_t rows[2] = {0};
    while (mst_slices_next(&s, &got))
        rows[got.epoch] += got.to - got.from;
    assert_int_equal(rows[0], 7);
    assert_int_equal(rows[1], 10 + 7);
    mst_slices_fini(&s);
}

/* After the last step of all was planned. */
static void missed_at_the_very_end(void **state)
{
    (void)state;
    mst_slices s = made(20, 10, 1);
    mst_slice got;
    expect(&s, 1, 0, 0, 10);
    expect(&s, 2, 0, 10, 20);
    assert_false(mst_slices_next(&s, &got));
    assert_int_equal(mst_slices_miss(&s, 0, 10, 14), MST_OK);
    expect(&s, 3, 0, 10, 14);
    assert_int_equal(mst_slices_miss(&s, 0, 12, 14), MST_OK); /* and again */
    expect(&s, 4, 0, 12, 14);
    expect_end(&s);
}

/* A long miss is taken up batch by batch. */
static void long_misses(void **state)
{
    (void)state;
    mst_slices s = made(100, 100, 1);
    s.batch = 100;
    expect(&s, 1, 0, 0, 100);
    s.batch = 30;
    assert_int_equal(mst_slices_miss(&s, 0, 10, 90), MST_OK);
    expect(&s, 2, 0, 10, 40);
    expect(&s, 3, 0, 40, 70);
    expect(&s, 4, 0, 70, 90);
    expect_end(&s);
}

/* Whatever is missed and whenever: every row is done once per epoch, and limits hold. Steps are planned a few
 * ahead of the one that closes; a miss is a part of one that has not closed. */
static void random_misses(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        static uint8_t done[MAX_EPOCHS][MAX_ROWS];
        mst_rng rng;
        mst_slice queue[4];
        size_t n = 0;
        uint64_t rows = 0, last_step = 0, closed = 0;
        mst_rng_init(&rng, seed, MST_RNG_TEST, 3);
        memset(done, 0, sizeof done);
        mst_slices s = made(1 + mst_rng_below(&rng, MAX_ROWS), 1 + mst_rng_below(&rng, 90),
                            1 + mst_rng_below(&rng, MAX_EPOCHS));
        uint64_t all = s.epoch_rows * s.epochs;
        if (seed % 3 == 1)
            s.rows = 1 + mst_rng_below(&rng, (uint32_t)all);
        if (seed % 3 == 2)
            s.steps = 1 + mst_rng_below(&rng, 40);
        for (;;) {
            while (n < 3 && mst_slices_next(&s, &queue[n])) {
                assert_int_equal(queue[n].step, ++last_step);
                assert_true(queue[n].epoch < s.epochs && queue[n].from < queue[n].to);
                assert_true(queue[n].to <= s.epoch_rows && queue[n].to - queue[n].from <= s.batch);
                n++;
            }
            if (n == 0)
                break;
            assert_true(closed++ < 100000);
            mst_slice *q = &queue[0];
            uint64_t size = q->to - q->from, cut = size;
            if (mst_rng_below(&rng, 5) == 0) { /* the last share is lost */
                cut = mst_rng_below(&rng, (uint32_t)size + 1);
                assert_int_equal(mst_slices_miss(&s, q->epoch, q->from + cut, q->to), MST_OK);
            }
            for (uint64_t i = q->from; i < q->from + cut; i++)
                assert_int_equal(done[q->epoch][i]++, 0);
            rows += cut;
            n--;
            memmove(queue, queue + 1, n * sizeof *queue);
        }
        assert_int_equal(s.done_rows, rows);
        if (seed % 3 == 0)
            assert_int_equal(rows, all);
        if (seed % 3 == 1)
            assert_int_equal(rows, s.rows < all ? s.rows : all);
        if (seed % 3 == 2)
            assert_true(last_step == s.steps || (last_step < s.steps && rows == all));
        mst_slices_fini(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regular),
        cmocka_unit_test(starts_in_the_middle),
        cmocka_unit_test(limits),
        cmocka_unit_test(missed_in_the_epoch),
        cmocka_unit_test(missed_across_the_end_of_an_epoch),
        cmocka_unit_test(missed_at_the_very_end),
        cmocka_unit_test(long_misses),
        cmocka_unit_test(random_misses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
