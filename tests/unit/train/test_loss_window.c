/* The rows in the mean of the training loss. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "train/loss_window.h"

static mst_loss_sum rows(uint64_t n, double loss)
{
    return (mst_loss_sum){.loss = loss * (double)n, .weight = (double)n, .rows = n};
}

static void near(double value, double wanted)
{
    if (!(fabs(value - wanted) < 1e-9))
        fail_msg("%.12g, wanted %.12g", value, wanted);
}

static double mean(const mst_loss_window *w, uint64_t n, double loss)
{
    const mst_loss_sum sum = rows(n, loss);
    const mst_loss_sum all = mst_loss_window_sum(w, &sum);
    return mst_mean_loss(&all);
}

static void close_interval(mst_loss_window *w, uint64_t n, double loss)
{
    const mst_loss_sum sum = rows(n, loss);
    mst_loss_window_close(w, &sum);
}

static void test_whole_intervals_stand_alone(void **state)
{
    mst_loss_window w = {0};
    (void)state;
    assert_true(isnan(mean(&w, 0, 0.0)));
    near(mean(&w, 3, 0.5), 0.5); /* nothing was before */
    close_interval(&w, 5000, 2.0);
    near(mean(&w, 5000, 1.0), 1.0);
    near(mean(&w, 2500, 1.0), 1.0); /* half of the one before is enough */
    close_interval(&w, 0, 0.0);     /* no interval */
    near(mean(&w, 2499, 1.0), (2499 * 1.0 + 5000 * 2.0) / 7499);
}

/* The end comes three steps after an evaluation: its line also covers the whole previous interval. */
static void test_a_sliver_at_the_end(void **state)
{
    mst_loss_window w = {0};
    (void)state;
    close_interval(&w, 100000, 3.0);
    close_interval(&w, 100000, 1.0);
    near(mean(&w, 300, 0.1), (100000 * 1.0 + 300 * 0.1) / 100300);
    near(mean(&w, 0, 0.0), 1.0); /* the first line after an evaluation, before any row */
}

/* An evaluation after every step of ten rows: no single batch is a mean, however it came out, and what is
 * long ago does not count. */
static void test_small_intervals_add_up(void **state)
{
    mst_loss_window w = {0};
    (void)state;
    near(mean(&w, 10, 1.0), 1.0);
    for (int i = 0; i < 10000; i++) {
        close_interval(&w, 10, i < 9000 ? 9.0 : 1.0);
        assert_true(w.n <= MST_LOSS_NEWEST);
    }
    double lucky = mean(&w, 10, 0.0);
    assert_true(lucky > 0.98 && lucky < 1.0);
    for (uint64_t size = 1; size < 3000; size += 7) { /* whatever their size, enough of them are kept */
        mst_loss_window v = {0};
        for (uint64_t i = 0; i < 3000; i += size) {
            uint64_t kept = 0;
            close_interval(&v, size, 1.0);
            for (uint32_t k = 0; k < v.n; k++)
                kept += v.parts[k].rows;
            assert_true(v.n <= MST_LOSS_NEWEST);
            assert_true(kept >= (i + size < MST_LOSS_ROWS ? i + size : MST_LOSS_ROWS));
        }
    }
}

static void test_kept_in_checkpoints(void **state)
{
    mst_loss_window w = {0}, back = {.n = 3};
    (void)state;
    for (int i = 0; i < 40; i++)
        close_interval(&w, 30, 1.0 / (i + 3));
    json_t *json = mst_loss_window_json(&w);
    assert_non_null(json);
    char *text = json_dumps(json, 0); /* as a file has it */
    json_decref(json);
    json = json_loads(text, 0, NULL);
    mst_loss_window_restore(&back, json);
    assert_int_equal(back.n, w.n);
    assert_int_equal(back.interval_rows, 30);
    assert_memory_equal(back.parts, w.parts, w.n * sizeof *w.parts);
    static const char *const bad[] = {"null", "{\"interval_rows\": -1, \"parts\": []}",
                                      "{\"interval_rows\": 9, \"parts\": [[1, 1, 1], [1, 1, -1]]}",
                                      "{\"interval_rows\": 9, \"parts\": [[1, 1]]}",
                                      "{\"parts\": [1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9]}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *other = json_loads(bad[i], JSON_DECODE_ANY, NULL);
        assert_non_null(other);
        mst_loss_window_restore(&back, other);
        assert_int_equal(back.n, 0);
        assert_int_equal(back.interval_rows, 0);
        json_decref(other);
    }
    json_decref(json);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_intervals_stand_alone),
        cmocka_unit_test(test_a_sliver_at_the_end),
        cmocka_unit_test(test_small_intervals_add_up),
        cmocka_unit_test(test_kept_in_checkpoints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
