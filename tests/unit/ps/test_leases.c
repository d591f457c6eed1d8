/* Leases: every row of an epoch once under random takes, ends and losses; limits are exact; remaining work
 * survives as JSON, and invalid JSON is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "ps/leases.h"

#define MAX_EPOCHS  4
#define MAX_WORKERS 8

/* What a worker holds, as the worker knows it: leases in the order they were given. */
typedef struct hands {
    mst_lease leases[512];
    size_t n;
} hands;

typedef struct world {
    mst_lease_options options;
    mst_leases *leases;
    uint16_t *done[MAX_EPOCHS]; /* times that a row was done */
    uint64_t steps, rows;       /* done, and counting for the limits */
    hands hands[MAX_WORKERS];
} world;

static void world_init(world *w, const mst_lease_options *options, uint64_t epoch, uint64_t position)
{
    memset(w, 0, sizeof *w);
    w->options = *options;
    for (int e = 0; e < MAX_EPOCHS; e++) {
        w->done[e] = calloc(options->epoch_rows, sizeof **w->done);
        assert_non_null(w->done[e]);
    }
    assert_int_equal(mst_leases_new(options, epoch, position, &w->leases), MST_OK);
}

static void world_fini(world *w)
{
    for (int e = 0; e < MAX_EPOCHS; e++)
        free(w->done[e]);
    mst_leases_destroy(w->leases);
}

static uint64_t held_by(const world *w, uint32_t worker)
{
    uint64_t rows = 0;
    for (size_t i = 0; i < w->hands[worker].n; i++)
        rows += w->hands[worker].leases[i].to - w->hands[worker].leases[i].from;
    return rows;
}

static bool take(world *w, uint32_t worker)
{
    hands *h = &w->hands[worker];
    mst_lease lease;
    bool got = false;
    assert_true(h->n < 512);
    assert_int_equal(mst_leases_take(w->leases, worker, &lease, &got), MST_OK);
    if (!got)
        return false;
    assert_true(lease.from < lease.to && lease.to <= w->options.epoch_rows);
    assert_true(lease.epoch < w->options.epochs);
    h->leases[h->n++] = lease;
    assert_int_equal(mst_leases_held(w->leases, worker), held_by(w, worker));
    return true;
}

/* One step: a batch of the oldest lease. */
static void do_step(world *w, uint32_t worker)
{
    hands *h = &w->hands[worker];
    if (h->n == 0)
        return;
    mst_lease *l = &h->leases[0];
    uint64_t rows = l->to - l->from < w->options.batch ? l->to - l->from : w->options.batch;
    assert_true(l->epoch < MAX_EPOCHS);
    for (uint64_t i = 0; i < rows; i++)
        w->done[l->epoch][l->from + i]++;
    assert_int_equal(mst_leases_done(w->leases, worker, rows), 0);
    w->steps++;
    w->rows += rows;
    l->from += rows;
    if (l->from == l->to) {
        h->n--;
        memmove(h->leases, h->leases + 1, h->n * sizeof *h->leases);
    }
    assert_int_equal(mst_leases_held(w->leases, worker), held_by(w, worker));
}

static void give_back(world *w, uint32_t worker)
{
    uint64_t rows = 0, held = held_by(w, worker);
    assert_int_equal(mst_leases_return(w->leases, worker, &rows), MST_OK);
    assert_int_equal(rows, held);
    w->hands[worker].n = 0;
    assert_int_equal(mst_leases_held(w->leases, worker), 0);
    assert_int_equal(mst_leases_done(w->leases, worker, 5), 5); /* they were taken back */
}

/* Through JSON and back, as a checkpoint and a resumed run: what is leased and not done is to be done again,
 * by another number of workers. */
static void resume(world *w, mst_rng *rng)
{
    uint64_t epoch, done, epoch_again, done_again;
    json_t *json = mst_leases_json(w->leases);
    mst_leases *again = NULL;
    assert_non_null(json);
    w->options.n_workers = 1 + mst_rng_below(rng, MAX_WORKERS);
    if (w->options.steps != UINT64_MAX)
        w->options.steps -= w->steps;
    if (w->options.rows != UINT64_MAX)
        w->options.rows -= w->rows;
    w->steps = w->rows = 0;
    assert_int_equal(mst_leases_resume(&w->options, json, &again), MST_OK);
    mst_leases_position(w->leases, &epoch, &done);
    mst_leases_position(again, &epoch_again, &done_again);
    assert_int_equal(epoch, epoch_again);
    assert_int_equal(done, done_again);
    json_decref(json);
    mst_leases_destroy(w->leases);
    w->leases = again;
    memset(w->hands, 0, sizeof w->hands);
}

/* What the leases say of where they stand is what the rows say. */
static void check_position(const world *w)
{
    uint64_t epoch, done, count = 0;
    mst_leases_position(w->leases, &epoch, &done);
    for (uint64_t e = 0; e < epoch && e < MAX_EPOCHS; e++)
        for (uint64_t i = 0; i < w->options.epoch_rows; i++)
            assert_int_equal(w->done[e][i], 1);
    for (uint64_t i = 0; epoch < MAX_EPOCHS && i < w->options.epoch_rows; i++)
        count += w->done[epoch][i];
    assert_int_equal(done, count);
    assert_true(done < w->options.epoch_rows);
}

/* Everybody takes, steps, dies and comes back at random until nothing is left. */
static void live(world *w, mst_rng *rng, bool resumes)
{
    for (int round = 0; !mst_leases_finished(w->leases); round++) {
        assert_true(round < 1000000);
        uint32_t worker = mst_rng_below(rng, w->options.n_workers), what = mst_rng_below(rng, 100);
        if (what < 30)
            take(w, worker);
        else if (what < 96)
            do_step(w, worker);
        else if (what < 98)
            give_back(w, worker);
        else if (resumes && what == 99 && mst_rng_below(rng, 4) == 0)
            resume(w, rng);
        if (round % 64 == 0)
            check_position(w);
    }
    for (uint32_t worker = 0; worker < w->options.n_workers; worker++) {
        assert_int_equal(held_by(w, worker), 0);
        assert_false(take(w, worker));
    }
    assert_true(mst_leases_dry(w->leases));
}

static mst_lease_options random_options(mst_rng *rng)
{
    return (mst_lease_options){.epoch_rows = 1 + mst_rng_below(rng, 700),
                               .batch = 1 + mst_rng_below(rng, 20),
                               .lease_rows = mst_rng_below(rng, 100),
                               .segment_rows = mst_rng_below(rng, 400),
                               .n_workers = 1 + mst_rng_below(rng, MAX_WORKERS),
                               .epochs = 1 + mst_rng_below(rng, MAX_EPOCHS),
                               .steps = UINT64_MAX,
                               .rows = UINT64_MAX};
}

static void every_row_once(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        mst_rng rng;
        world w;
        mst_rng_init(&rng, seed, MST_RNG_TEST, 1);
        mst_lease_options options = random_options(&rng);
        uint64_t epoch = mst_rng_below(&rng, (uint32_t)options.epochs),
                 position = mst_rng_below(&rng, (uint32_t)options.epoch_rows);
        world_init(&w, &options, epoch, position);
        for (uint64_t e = 0; e <= epoch; e++) /* what was done before */
            for (uint64_t i = 0; i < (e < epoch ? options.epoch_rows : position); i++)
                w.done[e][i] = 1;
        live(&w, &rng, seed % 2 == 0);
        for (uint64_t e = 0; e < MAX_EPOCHS; e++)
            for (uint64_t i = 0; i < options.epoch_rows; i++)
                assert_int_equal(w.done[e][i], e < options.epochs);
        uint64_t at_epoch, at_row;
        mst_leases_position(w.leases, &at_epoch, &at_row);
        assert_int_equal(at_epoch, options.epochs);
        assert_int_equal(at_row, 0);
        world_fini(&w);
    }
}

/* Limits are exact to the row and the step even if workers die; no row is done twice. Where a lease is
 * taken back in the middle, or ends with the epoch, steps are smaller: they are steps all the same. */
static void limits_are_exact(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        mst_rng rng;
        world w;
        mst_rng_init(&rng, seed, MST_RNG_TEST, 2);
        mst_lease_options options = random_options(&rng);
        uint64_t all = options.epochs * options.epoch_rows, steps, rows;
        uint64_t limit = mst_rng_below(&rng, (uint32_t)all) + 1;
        if (seed % 2 == 0)
            options.rows = limit;
        else
            options.steps = (limit + options.batch - 1) / options.batch;
        world_init(&w, &options, 0, 0);
        live(&w, &rng, false);
        steps = w.steps;
        rows = w.rows;
        if (seed % 2 == 0)
            assert_int_equal(rows, limit);
        else
            assert_true(steps == options.steps || (steps < options.steps && rows == all));
        for (uint64_t e = 0; e < MAX_EPOCHS; e++)
            for (uint64_t i = 0; i < options.epoch_rows; i++)
                assert_true(w.done[e][i] <= 1);
        world_fini(&w);
    }
}

/* One worker alone takes the batches that local training takes, in order. */
static void one_alone_takes_all_in_order(void **state)
{
    (void)state;
    mst_lease_options options = {.epoch_rows = 1003,
                                 .batch = 10,
                                 .lease_rows = 64,
                                 .segment_rows = 300,
                                 .n_workers = 1,
                                 .epochs = 3,
                                 .steps = UINT64_MAX,
                                 .rows = UINT64_MAX};
    mst_leases *leases;
    mst_lease lease;
    uint64_t epoch = 0, at = 0;
    bool got;
    assert_int_equal(mst_leases_new(&options, 0, 0, &leases), MST_OK);
    for (;;) {
        assert_int_equal(mst_leases_take(leases, 0, &lease, &got), MST_OK);
        if (!got)
            break;
        assert_int_equal(lease.epoch, epoch);
        assert_int_equal(lease.from, at);
        assert_int_equal(lease.from % 10, 0);
        assert_true(lease.to % 10 == 0 || lease.to == 1003);
        at = lease.to;
        if (at == 1003) {
            epoch++;
            at = 0;
        }
    }
    assert_int_equal(epoch, 3);
    mst_leases_destroy(leases);
}

/* A short epoch, taken in turn by workers of equal speed that hold two batches at most: all of them get their
 * share, to a batch; also if a limit makes a long epoch short. */
static void short_runs_are_shared(void **state)
{
    static const struct {
        uint64_t epoch_rows, epochs, steps, rows;
    } cases[] = {{20000, 1, UINT64_MAX, UINT64_MAX},
                 {1000000, UINT64_MAX, 20, UINT64_MAX},
                 {1000000, 3, UINT64_MAX, 20000},
                 {5000, 4, UINT64_MAX, UINT64_MAX}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        uint64_t batches[5] = {0};
        bool more = true;
        mst_lease_options options = {.epoch_rows = cases[c].epoch_rows,
                                     .batch = 1000,
                                     .lease_rows = 16000,
                                     .segment_rows = 65536,
                                     .n_workers = 64,
                                     .epochs = cases[c].epochs,
                                     .steps = cases[c].steps,
                                     .rows = cases[c].rows};
        mst_leases *leases;
        assert_int_equal(mst_leases_new(&options, 0, 0, &leases), MST_OK);
        mst_leases_divide(leases, 5);
        while (more) {
            more = false;
            for (uint32_t w = 0; w < 5; w++) {
                mst_lease lease;
                bool got = true;
                while (got && mst_leases_held(leases, w) < 2000)
                    assert_int_equal(mst_leases_take(leases, w, &lease, &got), MST_OK);
                if (mst_leases_held(leases, w) == 0)
                    continue;
                assert_int_equal(mst_leases_done(leases, w, 1000), 0);
                batches[w]++;
                more = true;
            }
        }
        for (uint32_t w = 0; w < 5; w++)
            assert_int_equal(batches[w], 4);
        mst_leases_destroy(leases);
    }
}

/* While there is plenty, a worker's next rows follow its last ones; rows of the dead come first of all. */
static void workers_stay_where_they_are(void **state)
{
    (void)state;
    mst_lease_options options = {.epoch_rows = 100000,
                                 .batch = 10,
                                 .lease_rows = 100,
                                 .segment_rows = 1000,
                                 .n_workers = 3,
                                 .epochs = 1,
                                 .steps = UINT64_MAX,
                                 .rows = UINT64_MAX};
    mst_leases *leases;
    mst_lease first[3], next;
    uint64_t rows;
    bool got;
    assert_int_equal(mst_leases_new(&options, 0, 0, &leases), MST_OK);
    for (uint32_t w = 0; w < 3; w++) {
        assert_int_equal(mst_leases_take(leases, w, &first[w], &got), MST_OK);
        assert_true(got);
    }
    for (uint32_t w = 0; w < 2; w++) {
        assert_int_equal(mst_leases_take(leases, w, &next, &got), MST_OK);
        assert_int_equal(next.from, first[w].to);
    }
    assert_int_equal(mst_leases_done(leases, 2, 30), 0);
    assert_int_equal(mst_leases_return(leases, 2, &rows), MST_OK);
    assert_int_equal(rows, 70);
    assert_int_equal(mst_leases_take(leases, 0, &next, &got), MST_OK);
    assert_int_equal(next.from, first[2].from + 30);
    assert_int_equal(next.to, first[2].to);
    mst_leases_destroy(leases);
}

/* The rows of the last pushes are leased again, also those that ended an epoch. */
static void last_pushes_are_done_again(void **state)
{
    (void)state;
    const mst_lease_options options = {.epoch_rows = 100,
                                       .batch = 10,
                                       .lease_rows = 50,
                                       .segment_rows = 50,
                                       .n_workers = 1,
                                       .epochs = 2,
                                       .steps = UINT64_MAX,
                                       .rows = UINT64_MAX};
    mst_leases *leases = NULL;
    mst_lease lease;
    uint64_t rows, epoch, done;
    bool got;
    assert_int_equal(mst_leases_new(&options, 0, 0, &leases), MST_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(mst_leases_take(leases, 0, &lease, &got), MST_OK);
    for (int i = 0; i < 11; i++)
        assert_int_equal(mst_leases_done(leases, 0, 10), 0);
    mst_leases_position(leases, &epoch, &done);
    assert_int_equal(epoch, 1);
    assert_int_equal(done, 10);
    assert_int_equal(mst_leases_return(leases, 0, &rows), MST_OK); /* the worker is lost */
    assert_int_equal(rows, 40);
    assert_int_equal(mst_leases_redo(leases, 0, 2, &rows), MST_OK);
    assert_int_equal(rows, 20);
    mst_leases_position(leases, &epoch, &done);
    assert_int_equal(epoch, 0);
    assert_int_equal(done, 90);
    assert_int_equal(mst_leases_redo(leases, 0, 2, &rows), MST_OK);
    assert_int_equal(rows, 0);
    for (uint64_t all = 0; all < 110; all += rows) {
        assert_int_equal(mst_leases_take(leases, 0, &lease, &got), MST_OK);
        assert_true(got);
        rows = lease.to - lease.from;
        assert_int_equal(mst_leases_done(leases, 0, rows), 0);
    }
    assert_true(mst_leases_finished(leases));
    mst_leases_destroy(leases);
}

static void refuse(const mst_lease_options *options, const char *text, const char *sentence)
{
    mst_leases *leases = NULL;
    json_t *json = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(json);
    if (mst_leases_resume(options, json, &leases) != MST_EINPUT)
        fail_msg("%s was taken", text);
    assert_null(leases);
    assert_non_null(strstr(mst_error_text(), sentence));
    json_decref(json);
}

static void foreign_json_is_refused(void **state)
{
    static const char *const texts[] = {
        "{}",
        "[]",
        "7",
        "{\"next\": [0, 0]}",
        "{\"next\": [0], \"todo\": []}",
        "{\"next\": \"x\", \"todo\": []}",
        "{\"next\": [-1, 0], \"todo\": []}",
        "{\"next\": [0, -5], \"todo\": []}",
        "{\"next\": [0, 100], \"todo\": []}",
        "{\"next\": [0, 9223372036854775807], \"todo\": []}",
        "{\"next\": [0.5, 0], \"todo\": []}",
        "{\"next\": [0, 50], \"todo\": {}}",
        "{\"next\": [0, 50], \"todo\": [[0, 0]]}",
        "{\"next\": [0, 50], \"todo\": [7]}",
        "{\"next\": [0, 50], \"todo\": [[0, 10, 10]]}",
        "{\"next\": [0, 50], \"todo\": [[0, 20, 10]]}",
        "{\"next\": [0, 50], \"todo\": [[0, -1, 10]]}",
        "{\"next\": [0, 50], \"todo\": [[-1, 0, 10]]}",
        "{\"next\": [0, 50], \"todo\": [[0, 40, 60]]}", /* has not begun */
        "{\"next\": [0, 50], \"todo\": [[1, 0, 10]]}",
        "{\"next\": [1, 50], \"todo\": [[0, 90, 101]]}",
        "{\"next\": [0, 50], \"todo\": [[\"0\", \"0\", \"10\"]]}",
        "{\"next\": [9223372036854775807, 50], \"todo\": [[0, 0, 10]]}",
    };
    mst_lease_options options = {.epoch_rows = 100,
                                 .batch = 10,
                                 .lease_rows = 10,
                                 .segment_rows = 10,
                                 .n_workers = 2,
                                 .epochs = UINT64_MAX,
                                 .steps = UINT64_MAX,
                                 .rows = UINT64_MAX};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        refuse(&options, texts[i], "do not match the data of 100 rows");
    refuse(&options, "{\"next\": [0, 50], \"todo\": [[0, 0, 30], [0, 20, 50]]}", "overlap");
    refuse(&options, "{\"next\": [0, 50], \"todo\": [[0, 0, 10], [0, 5, 15]]}", "overlap");
    refuse(&options, "{\"next\": [0, 50], \"todo\": [[0, 0, 10], [0, 20, 30], [0, 0, 10]]}", "overlap");
}

/* ---- slices: leases of one batch, taken as of one worker ---- */

static mst_leases *made_slices(mst_lease_options o, uint64_t epoch, uint64_t position)
{
    mst_leases *slices = NULL;
    o.lease_rows = o.segment_rows = o.batch;
    o.n_workers = 1;
    assert_int_equal(mst_leases_new(&o, epoch, position, &slices), MST_OK);
    return slices;
}

static void expect_slice(mst_leases *slices, uint64_t epoch, uint64_t from, uint64_t to)
{
    mst_lease got;
    bool any;
    assert_int_equal(mst_leases_take(slices, 0, &got, &any), MST_OK);
    assert_true(any);
    assert_int_equal(got.epoch, epoch);
    assert_int_equal(got.from, from);
    assert_int_equal(got.to, to);
}

static void expect_no_slice(mst_leases *slices)
{
    mst_lease got;
    bool any;
    assert_int_equal(mst_leases_take(slices, 0, &got, &any), MST_OK);
    assert_false(any);
    mst_leases_destroy(slices);
}

static void slices_are_whole_batches_of_an_epoch(void **state)
{
    (void)state;
    mst_lease_options o = {
        .epoch_rows = 25, .batch = 10, .epochs = 2, .steps = UINT64_MAX, .rows = UINT64_MAX};
    mst_leases *s = made_slices(o, 0, 0);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        expect_slice(s, epoch, 0, 10);
        expect_slice(s, epoch, 10, 20);
        expect_slice(s, epoch, 20, 25);
    }
    expect_no_slice(s);
    s = made_slices(o, 1, 15);
    expect_slice(s, 1, 15, 25);
    expect_no_slice(s);
    expect_no_slice(made_slices(o, 1, 25)); /* an epoch's end is the next one's beginning */
    o.epochs = 9;
    o.rows = 33;
    s = made_slices(o, 0, 0);
    expect_slice(s, 0, 0, 10);
    expect_slice(s, 0, 10, 20);
    expect_slice(s, 0, 20, 25);
    expect_slice(s, 1, 0, 8);
    expect_no_slice(s);
}

/* Rows that asynchronous workers left in several places are trained on once, and only they. */
static void slices_take_what_is_left(void **state)
{
    (void)state;
    mst_lease_options o = {.epoch_rows = 25,
                           .batch = 10,
                           .lease_rows = 10,
                           .segment_rows = 10,
                           .n_workers = 1,
                           .epochs = 2,
                           .steps = UINT64_MAX,
                           .rows = UINT64_MAX};
    mst_leases *s = NULL;
    json_t *left = json_pack("{s:[i, i], s:[[i, i, i], [i, i, i]]}", "next", 1, 5, "todo", 0, 3, 6, 0, 8, 22);
    assert_int_equal(mst_leases_resume(&o, left, &s), MST_OK);
    json_decref(left);
    expect_slice(s, 0, 3, 6);
    expect_slice(s, 0, 8, 18);
    uint64_t epoch, rows;
    assert_int_equal(mst_leases_done(s, 0, 3), 0);
    mst_leases_position(s, &epoch, &rows);
    assert_int_equal(epoch, 0);
    assert_int_equal(rows, 25 - 14);
    expect_slice(s, 0, 18, 22);
    expect_slice(s, 1, 5, 15);
    expect_slice(s, 1, 15, 25);
    expect_no_slice(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_once),
        cmocka_unit_test(limits_are_exact),
        cmocka_unit_test(one_alone_takes_all_in_order),
        cmocka_unit_test(short_runs_are_shared),
        cmocka_unit_test(workers_stay_where_they_are),
        cmocka_unit_test(last_pushes_are_done_again),
        cmocka_unit_test(foreign_json_is_refused),
        cmocka_unit_test(slices_are_whole_batches_of_an_epoch),
        cmocka_unit_test(slices_take_what_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
