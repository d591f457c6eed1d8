/* The parameter server trains on every row exactly once per epoch, for any workers, servers and mode.
 *
 * Row i has only feature i, and the optimizer is adam without memory (beta1 = beta2 = 0), whose update is the
 * learning rate times the sign of the gradient, of any size: a weight counts the steps with its row. The
 * number of pushed rows equals the sum of these counts, so no row is twice in one step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "job_trial.h"

#define SINGLES 997
#define MANY    200003    /* several chunks of a cache */
#define LR      0.0078125 /* a power of two: counting is exact */

static void write_singles(const char *name, int rows)
{
    FILE *file = fopen(trial_path(name), "w");
    assert_non_null(file);
    for (int i = 0; i < rows; i++)
        fprintf(file, "%d %d:1\n", i % 3 == 0, i);
    assert_int_equal(fclose(file), 0);
}

static int make_data(void **state)
{
    if (trial_make_root(state) != 0)
        return -1;
    write_singles("single.libsvm", SINGLES);
    write_singles("many.libsvm", MANY);
    return 0;
}

typedef struct rows_case {
    const char *mode;
    int servers, workers, batch, epochs;
    const char *pipeline, *quorum, *shard, *valid, *staleness, *steps, *rows;
    bool stream, many;
} rows_case;

static void set_case(trial *t, const rows_case *c)
{
    trial_int(t, "features", c->many ? MANY : SINGLES);
    trial_set(t, "index-base", "0");
    trial_set(t, "bias", "false");
    trial_set(t, "optimizer", "adam");
    trial_set(t, "beta1", "0");
    trial_set(t, "beta2", "0");
    trial_set(t, "eps", "1e-12");
    trial_set(t, "lr", "0.0078125");
    trial_set(t, "shuffle-rows", c->many ? "20000" : "150");
    trial_set(t, "stall-timeout", "20");
    trial_set(t, "mode", c->mode);
    trial_int(t, "batch", c->batch);
    trial_int(t, "epochs", c->epochs);
    trial_set(t, "cache", c->stream ? "false" : "true");
    trial_set(t, "cache-folder", trial_path("caches"));
    trial_set(t, "pipeline", c->pipeline != NULL ? c->pipeline : "0");
    trial_set(t, "quorum", c->quorum != NULL ? c->quorum : "0");
    trial_set(t, "shard", c->shard != NULL ? c->shard : "auto");
    trial_set(t, "staleness", c->staleness != NULL ? c->staleness : "4");
    trial_set(t, "steps", c->steps != NULL ? c->steps : "0");
    trial_set(t, "rows", c->rows != NULL ? c->rows : "0");
    if (c->valid != NULL)
        trial_set(t, "valid", c->valid);
}

typedef struct counted {
    int least, most; /* times that a row was used */
    int used;        /* rows that were, at all */
    uint64_t uses;
} counted;

/* Rounding of the root and the quotient leaves a count within a hundredth of a whole number. */
static counted count_rows(const trained *r)
{
    counted n = {.least = 1 << 30};
    int rows = (int)r->assembly.model->shape.n_features;
    for (int i = 0; i < rows; i++) {
        double times = (double)r->assembly.params.w[i] / (i % 3 == 0 ? LR : -LR);
        int whole = (int)lround(times);
        assert_true(fabs(times - whole) < 0.01);
        n.least = whole < n.least ? whole : n.least;
        n.most = whole > n.most ? whole : n.most;
        n.used += whole > 0;
        n.uses += (uint64_t)whole;
    }
    return n;
}

static void say_case(const rows_case *c, const counted *n)
{
    print_error("%s, %d servers, %d workers, batch %d, %d epochs, pipeline %s, shard %s: rows used %d to %d "
                "times, %d of them, %llu in all\n",
                c->mode, c->servers, c->workers, c->batch, c->epochs, c->pipeline ? c->pipeline : "0",
                c->shard ? c->shard : "auto", n->least, n->most, n->used, (unsigned long long)n->uses);
}

static void every_row_once_in(const rows_case *c)
{
    trial t;
    trained r;
    json_t *workers = NULL;
    uint64_t rows = c->many ? MANY : SINGLES;
    job_init(&t, c->many ? "many.libsvm" : "single.libsvm", NULL, c->servers, c->workers);
    set_case(&t, c);
    job_must_run(&t, &workers);
    trained_load(&r, &t, t.train.run);
    counted n = count_rows(&r);
    bool good =
        n.least == c->epochs && n.most == c->epochs && t.summary.status.rows == (uint64_t)c->epochs * rows;
    /* if it does not depend on speed, every worker has some */
    for (size_t i = 0; (c->stream || strcmp(c->mode, "sync") == 0) && i < json_array_size(workers); i++)
        good = good && (json_integer_value(json_object_get(json_array_get(workers, i), "rows")) > 0 ||
                        (c->shard != NULL && !c->stream));
    if (!good)
        say_case(c, &n);
    assert_true(good);
    assert_int_equal(r.meta.rows, t.summary.status.rows);
    json_decref(workers);
    trained_fini(&r);
    trial_fini(&t);
}

static const char *const modes[] = {"sync", "async", "ssp"};

static void every_row_once(void **state)
{
    static const int batches[] = {1, 7, 50};
    (void)state;
    for (int mode = 0; mode < 3; mode++)
        for (int workers = 1; workers <= 4; workers++)
            for (int b = 0; b < 3; b++)
                every_row_once_in(&(rows_case){.mode = modes[mode],
                                               .servers = 1 + (workers + b) % 3,
                                               .workers = workers,
                                               .batch = batches[b],
                                               .epochs = b == 0 ? 1 : 3,
                                               .staleness = b == 1 ? "0" : "3"});
}

static void every_row_once_with_requests_in_flight(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 3; workers++)
        for (int mode = 1; mode < 3; mode++)
            every_row_once_in(&(rows_case){.mode = modes[mode],
                                           .servers = 2,
                                           .workers = workers,
                                           .batch = 11,
                                           .epochs = 3,
                                           .pipeline = mode == 1 ? "3" : "1"});
}

/* Static shards: of streams, and of what could be read at random. */
static void every_row_once_of_streams(void **state)
{
    (void)state;
    for (int stream = 0; stream < 2; stream++)
        for (int workers = 1; workers <= 3; workers++)
            for (int mode = 0; mode < 3; mode++)
                every_row_once_in(&(rows_case){.mode = modes[mode],
                                               .servers = 1 + mode % 2,
                                               .workers = workers,
                                               .batch = 13,
                                               .epochs = 2,
                                               .shard = stream ? "auto" : "static",
                                               .pipeline = mode == 1 ? "2" : "0",
                                               .stream = stream});
}

/* Several chunks, windows and segments. */
static void every_row_once_of_many(void **state)
{
    (void)state;
    for (int mode = 0; mode < 3; mode++)
        for (int shard = 0; shard < 2; shard++)
            every_row_once_in(&(rows_case){.mode = modes[mode],
                                           .servers = 2,
                                           .workers = 2 + shard,
                                           .batch = 700,
                                           .epochs = 2,
                                           .pipeline = mode == 1 ? "2" : "0",
                                           .shard = shard ? "static" : "auto",
                                           .many = true});
}

/* --shard local: every worker has all rows for its own. */
static void local_shards_take_all(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        rows_case c = {
            .mode = modes[mode], .servers = 2, .workers = 3, .batch = 10, .epochs = 1, .stream = true};
        trial t;
        trained r;
        c.shard = "local";
        job_init(&t, "single.libsvm", NULL, c.servers, c.workers);
        set_case(&t, &c);
        job_train(&t, &r);
        counted n = count_rows(&r);
        assert_int_equal(t.summary.status.rows, 3 * SINGLES);
        /* sync: the three take the same rows in the same order, hence in the same step */
        if (n.least != (mode == 0 ? 1 : 3) || n.most != (mode == 0 ? 1 : 3))
            say_case(&c, &n);
        assert_int_equal(n.least, mode == 0 ? 1 : 3);
        assert_int_equal(n.most, mode == 0 ? 1 : 3);
        trained_fini(&r);
        trial_fini(&t);
    }
}

/* Rows held out are never trained on, and are the same ones in every mode. */
static void held_out_rows_stay_out(void **state)
{
    uint64_t trained_rows = 0;
    float first[SINGLES];
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        rows_case c = {
            .mode = modes[mode], .servers = 2, .workers = 3, .batch = 9, .epochs = 2, .valid = "0.2"};
        trial t;
        trained r;
        job_init(&t, "single.libsvm", NULL, c.servers, c.workers);
        set_case(&t, &c);
        job_train(&t, &r);
        counted n = count_rows(&r);
        assert_int_equal(n.least, 0);
        assert_int_equal(n.most, 2);
        assert_int_equal(n.uses, 2 * n.used);
        assert_int_equal(t.summary.status.rows, n.uses);
        assert_int_equal(t.summary.valid.rows, SINGLES - n.used);
        if (mode == 0) {
            trained_rows = n.uses;
            memcpy(first, r.assembly.params.w, sizeof first);
        }
        assert_int_equal(n.uses, trained_rows);
        assert_memory_equal(first, r.assembly.params.w, sizeof first);
        trained_fini(&r);
        trial_fini(&t);
    }
}

static uint64_t sum_of(const json_t *workers, const char *name)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < json_array_size(workers); i++)
        sum += (uint64_t)json_integer_value(json_object_get(json_array_get(workers, i), name));
    return sum;
}

/* With backup workers a row is given to one worker; what that pushes late is dropped, and counted. */
static void rows_are_given_once_with_backups(void **state)
{
    (void)state;
    for (int servers = 1; servers <= 3; servers++)
        for (int quorum = 1; quorum <= 2; quorum++) {
            rows_case c = {.mode = "sync", .servers = servers, .workers = 3, .batch = 8, .epochs = 1};
            trial t;
            trained r;
            json_t *workers = NULL;
            c.quorum = quorum == 1 ? "1" : "2";
            job_init(&t, "single.libsvm", NULL, c.servers, c.workers);
            set_case(&t, &c);
            job_must_run(&t, &workers);
            trained_load(&r, &t, t.train.run);
            counted n = count_rows(&r);
            bool good = n.most == 1 && n.uses == t.summary.status.rows && n.uses == sum_of(workers, "rows") &&
                        n.uses + sum_of(workers, "dropped_rows") == SINGLES;
            if (!good) {
                say_case(&c, &n);
                print_error("%llu rows counted, %llu of workers, %llu dropped\n",
                            (unsigned long long)t.summary.status.rows,
                            (unsigned long long)sum_of(workers, "rows"),
                            (unsigned long long)sum_of(workers, "dropped_rows"));
            }
            assert_true(good);
            json_decref(workers);
            trained_fini(&r);
            trial_fini(&t);
        }
}

/* --steps and --rows are exact in every mode; but synchronous streams, whose rows are known only as they
 * come, end with whole steps, those included that workers already have when the limit is reached. */
static void limits_are_exact(void **state)
{
    (void)state;
    for (int mode = 0; mode < 4; mode++) /* the last one: a quorum */
        for (int stream = 0; stream < 2; stream++)
            for (int by_rows = 0; by_rows < 2; by_rows++) {
                bool stepped = mode == 3 || (mode == 0 && stream); /* rows end with a whole step */
                rows_case c = {.mode = modes[mode % 3],
                               .quorum = mode == 3 ? "2" : NULL,
                               .servers = 2,
                               .workers = 3,
                               .batch = 10,
                               .epochs = 2,
                               .stream = stream,
                               .rows = by_rows ? "555" : NULL,
                               .steps = by_rows ? NULL : "23"};
                trial t;
                trained r;
                job_init(&t, "single.libsvm", NULL, c.servers, c.workers);
                set_case(&t, &c);
                job_train(&t, &r);
                counted n = count_rows(&r);
                uint64_t limit = by_rows ? 555 : 23;
                uint64_t got = by_rows ? t.summary.status.rows : t.summary.status.step;
                uint64_t most = by_rows && stepped ? limit + 3 * 30 : limit;
                if (got < limit || got > most || n.uses != t.summary.status.rows)
                    say_case(&c, &n);
                assert_in_range(got, limit, most);
                assert_int_equal(n.uses, t.summary.status.rows);
                assert_int_equal(t.summary.end, by_rows ? MST_END_ROWS : MST_END_STEPS);
                trained_fini(&r);
                trial_fini(&t);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_once),
        cmocka_unit_test(every_row_once_with_requests_in_flight),
        cmocka_unit_test(every_row_once_of_streams),
        cmocka_unit_test(every_row_once_of_many),
        cmocka_unit_test(local_shards_take_all),
        cmocka_unit_test(held_out_rows_stay_out),
        cmocka_unit_test(rows_are_given_once_with_backups),
        cmocka_unit_test(limits_are_exact),
    };
    return cmocka_run_group_tests(tests, make_data, trial_remove_root);
}
