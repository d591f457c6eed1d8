/* The local strategy: sync repeats bit for bit and equals one thread to rounding, async counts every row once
 * and learns the same, budgets are exact, and failures are returned. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "fake_dataset.h"
#include "strategy/strategy.h"

#define N_ROWS     700
#define CHUNK_ROWS 64
#define N_DENSE    3
#define UNIQUE     600 /* row i alone has key UNIQUE + i */
#define FEATURES   (UNIQUE + N_ROWS)
#define MANY       5000  /* features beyond which softmax keeps rows sparse */
#define LARGE      70000 /* features of logreg of which few synchronous threads own a part each */

/* Rows: three dense features, a key in every row, popular and rare keys, one of its own. In some chunks every
 * second row lacks feature 1, so that these chunks' dense prefix is one feature long. Labels follow a planted
 * model. */
typedef struct rows_of {
    uint32_t n_classes;
    bool valued; /* even rows */
} rows_of;

static mst_status make_row(void *arg, uint64_t i, mst_chunk_builder *b)
{
    const rows_of *of = arg;
    mst_rng rng;
    mst_rng_init(&rng, 1, MST_RNG_TEST, i);
    double score = 0.0;
    TRY(mst_chunk_builder_room(b, 12));
    for (uint32_t j = 0; j < N_DENSE; j++) {
        float x = (float)mst_rng_normal(&rng);
        if (j == 1 && i / CHUNK_ROWS % 3 == 2 && i % 2 == 1)
            continue;
        mst_chunk_builder_add(b, j, x);
        score += (j == 1 ? -1.0 : 1.0) * (double)x;
    }
    mst_chunk_builder_add(b, 10, 1.0f);
    for (int j = 0; j < 3; j++) {
        uint32_t key = 11 + mst_rng_below(&rng, 12);
        mst_chunk_builder_add(b, key, 0.5f); /* may repeat */
        score += key % 2 ? 0.3 : -0.3;
    }
    for (int j = 0; j < 3; j++)
        mst_chunk_builder_add(b, 40 + mst_rng_below(&rng, 500), 1.0f);
    mst_chunk_builder_add(b, (uint32_t)(UNIQUE + i), 1.0f);
    score += mst_rng_normal(&rng) * 0.5;
    float label = of->n_classes == 2 ? score > 0 : score > 0.7 ? 2.0f : score > -0.7 ? 1.0f : 0.0f;
    return mst_chunk_builder_end_row(b, label, i % 7 == 0 ? 0.5f : 1.0f);
}

/* Rows that all have as many features. */
static mst_status make_even_row(void *arg, uint64_t i, mst_chunk_builder *b)
{
    const rows_of *of = arg;
    mst_rng rng;
    mst_rng_init(&rng, 2, MST_RNG_TEST, i);
    TRY(mst_chunk_builder_room(b, N_DENSE + 10));
    for (uint32_t j = 0; j < N_DENSE; j++)
        mst_chunk_builder_add(b, j, (float)mst_rng_normal(&rng));
    for (int j = 0; j < 9; j++)
        mst_chunk_builder_add(b, 10 + mst_rng_below(&rng, j < 4 ? 12 : 500), of->valued ? 0.5f : 1.0f);
    mst_chunk_builder_add(b, (uint32_t)(UNIQUE + i), 1.0f);
    return mst_chunk_builder_end_row(b, (float)mst_rng_below(&rng, 2), i % 7 == 0 ? 0.5f : 1.0f);
}

#define MANY_THREADS 7 /* enough for the synchronous way of many threads */

/* What to train, and how. */
typedef struct plan {
    int model; /* 0 logreg, 1 softmax */
    uint64_t n_features;
    int mode;
    unsigned threads;
    uint32_t batch;
    mst_optim_options optim;
    uint64_t rows_of_data; /* 0: N_ROWS */
    bool by_vectors;       /* weights and state in vectors of their own */
    bool even, valued;     /* rows that all have as many features, in file order; with values */
    bool by_records;       /* of which threads get the records */
} plan;

typedef struct trainer {
    rows_of of;
    fake_dataset *data;
    mst_model *model;
    mst_params params;
    mst_optimizer optimizer;
    mst_strategy *strategy;
    mst_feed *feed;
    mst_progress progress;
} trainer;

static void trainer_init(trainer *t, const plan *p)
{
    *t = (trainer){.of = {p->model == 0 ? 2 : 3, p->valued}};
    mst_model_options model = {.model = p->model, .bias = true, .pos_weight = 1.5};
    mst_shape shape = {.n_features = p->n_features, .n_dense = N_DENSE, .n_classes = t->of.n_classes};
    mst_strategy_options options = {.mode = p->mode, .threads = p->threads, .batch = p->batch};
    t->data = fake_new(FAKE_CHEAP, p->rows_of_data ? p->rows_of_data : N_ROWS, CHUNK_ROWS,
                       p->even ? make_even_row : make_row, &t->of);
    if (p->by_records)
        fake_peeks(t->data);
    assert_int_equal(mst_model_new(&model, &shape, mst_kernels_get(mst_isa_best()), &t->model), MST_OK);
    assert_int_equal(t->model->ops->declare(t->model, &t->params), MST_OK);
    assert_int_equal(mst_optimizer_init(&t->optimizer, &p->optim), MST_OK);
    assert_int_equal(mst_strategy_resolve(&options), MST_OK);
    t->params.by_rows = !p->by_vectors;
    assert_int_equal(mst_params_reserve(&t->params, t->optimizer.ops->n_slots, mst_strategy_spare(&options)),
                     MST_OK);
    mst_optimizer_start(&t->optimizer, &t->params, 0, t->params.size);
    mst_strategy_env env = {.model = t->model, .optimizer = &t->optimizer, .params = &t->params};
    assert_int_equal(mst_strategy_new(&options, &env, &t->strategy), MST_OK);
    mst_feed_options feed = {.seed = 3,
                             .shuffle_rows = p->even ? 0 : 200,
                             .prefetch_threads = 1,
                             .n_lanes = t->strategy->n_lanes,
                             .max_take = t->strategy->max_take};
    assert_int_equal(mst_feed_new(&t->data->base, &feed, &t->feed), MST_OK);
    assert_int_equal(mst_feed_start(t->feed, 0, 0), MST_OK);
}

static void trainer_fini(trainer *t)
{
    mst_feed_destroy(t->feed);
    mst_strategy_destroy(t->strategy);
    mst_model_destroy(t->model);
    mst_params_fini(&t->params);
    mst_dataset_destroy(&t->data->base);
}

static mst_status run(trainer *t, uint64_t steps, uint64_t rows)
{
    mst_budget budget = {.steps = steps, .rows = rows, .deadline_ns = UINT64_MAX};
    return t->strategy->ops->run(t->strategy, t->feed, &budget, &t->progress);
}

static void run_epochs(trainer *t, uint64_t n)
{
    for (uint64_t epoch = 0; epoch < n; epoch++) {
        if (epoch > 0) {
            t->progress.epoch = epoch;
            t->progress.position = 0;
            assert_int_equal(mst_feed_start(t->feed, epoch, 0), MST_OK);
        }
        assert_int_equal(run(t, UINT64_MAX, UINT64_MAX), MST_OK);
        assert_true(t->progress.epoch_ended);
        assert_int_equal(t->progress.position, t->data->n_rows);
    }
}

/* Weights and optimizer state after two epochs; the caller frees. */
static float *train(const plan *p, mst_progress *progress, uint64_t *n)
{
    trainer t;
    trainer_init(&t, p);
    run_epochs(&t, 2);
    *n = t.params.size * (1 + t.params.n_slots);
    float *copy = malloc(*n * sizeof *copy);
    for (uint32_t s = 0; s <= t.params.n_slots; s++)
        mst_params_read(&t.params, s, 0, t.params.size, copy + s * t.params.size);
    if (progress != NULL)
        *progress = t.progress;
    trainer_fini(&t);
    return copy;
}

static void assert_same_floats(const mst_params *a, const mst_params *b)
{
    float *x = malloc(a->size * sizeof *x), *y = malloc(a->size * sizeof *y);
    for (uint32_t s = 0; s <= a->n_slots; s++) {
        mst_params_read(a, s, 0, a->size, x);
        mst_params_read(b, s, 0, b->size, y);
        assert_memory_equal(x, y, a->size * sizeof *x);
    }
    free(x);
    free(y);
}

static mst_optim_options optim_of(int which, int strength)
{
    mst_optim_options o = {.optimizer = which,
                           .lr = which == 3 ? 0.01 : 0.1,
                           .momentum = 0.9,
                           .beta1 = 0.9,
                           .beta2 = 0.999,
                           .eps = 1e-4,
                           .ftrl_beta = 1.0};
    if (strength == 1)
        o.l1 = 1e-3;
    if (strength == 2)
        o.l2 = 1e-2;
    if (strength == 3)
        o.clip_norm = 0.5;
    if (strength == 4) {
        o.l1 = 1e-3;
        o.l2 = 1e-2;
        o.clip_norm = 0.3;
        o.warmup = 5;
    }
    return o;
}

static const struct {
    int model;
    uint64_t n_features;
} shapes[] = {{0, FEATURES}, {0, LARGE}, {1, FEATURES}, {1, MANY}};

/* ---- sync ---- */

static void check_sync(plan p)
{
    uint64_t n, m;
    mst_progress alone, crowd;
    p.mode = MST_MODE_SYNC;
    p.threads = 1;
    p.by_vectors = true;
    float *one = train(&p, &alone, &n);
    p.by_vectors = false;
    assert_int_equal(alone.rows, 2 * N_ROWS);
    assert_int_equal(alone.loss.rows, 2 * N_ROWS);
    assert_int_equal(alone.steps, 2 * ((N_ROWS + p.batch - 1) / p.batch));
    for (p.threads = 1; p.threads <= MANY_THREADS; p.threads += p.threads == 4 ? MANY_THREADS - 4 : 1) {
        float *first = train(&p, &crowd, &m), *again = train(&p, NULL, &m);
        assert_int_equal(m, n);
        assert_memory_equal(first, again, n * sizeof *first);
        assert_int_equal(crowd.rows, alone.rows);
        assert_int_equal(crowd.steps, alone.steps);
        assert_int_equal(crowd.loss.rows, alone.loss.rows);
        assert_true(fabs(crowd.loss.weight - alone.loss.weight) < 1e-6);
        assert_true(fabs(crowd.loss.loss - alone.loss.loss) < 1e-4 * alone.loss.loss);
        for (uint64_t i = 0; i < n; i++)
            if (!(fabs((double)first[i] - (double)one[i]) <= 2e-4 * (1 + fabs((double)one[i]))))
                fail_msg("%s with %s, l1 %g, l2 %g, clip %g, batch %u, %u threads: number %llu is %g, not %g",
                         mst_models[p.model]->name, mst_optimizers[p.optim.optimizer]->name, p.optim.l1,
                         p.optim.l2, p.optim.clip_norm, p.batch, p.threads, (unsigned long long)i,
                         (double)first[i], (double)one[i]);
        free(first);
        free(again);
    }
    free(one);
}

static void sync_repeats_and_equals_one_thread(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int which = 0; mst_optimizers[which] != NULL; which++)
            for (int strength = 0; strength < 5; strength++)
                check_sync((plan){.model = shapes[s].model,
                                  .n_features = shapes[s].n_features,
                                  .batch = 50,
                                  .optim = optim_of(which, strength)});
}

/* Batches that threads cannot share evenly, batches with fewer rows than threads, one batch for all rows. */
static void sync_with_any_batch(void **state)
{
    (void)state;
    static const uint32_t batches[] = {1, 3, 7, 33, 699, 700, 5000};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            if (s != 0 && batches[b] == 1)
                continue; /* 1,400 barriers a run are enough once */
            check_sync((plan){.model = shapes[s].model,
                              .n_features = shapes[s].n_features,
                              .batch = batches[b],
                              .optim = optim_of((int)(b % 2) * 2, 0)});
        }
}

/* Whether threads get the records of the rows of the plan. */
static bool gives_records(const plan *p)
{
    trainer t;
    mst_batch batch;
    mst_records records;
    uint64_t position;
    trainer_init(&t, p);
    assert_int_equal(mst_feed_claim(t.feed, 0, 50, &batch, &position), MST_OK);
    assert_int_equal(mst_feed_records(t.feed, 0, 10, 50, &records), MST_OK);
    trainer_fini(&t);
    return records.words != NULL;
}

/* Rows that are made from records while their keys are divided, and rows that are filled before. */
static void sync_by_records_equals_rows(void **state)
{
    (void)state;
    for (int which = 0; mst_optimizers[which] != NULL; which++)
        for (int kind = 0; kind < 8; kind++)
            for (unsigned threads = 2; threads <= MANY_THREADS; threads += MANY_THREADS - 2) {
                uint64_t n, m;
                plan p = {.n_features = kind / 4 == 0 ? FEATURES : LARGE,
                          .mode = MST_MODE_SYNC,
                          .threads = threads,
                          .batch =
                              kind / 2 % 2 == 0 ? 90 : 300, /* in two or three chunks, or in five or six */
                          .optim = optim_of(which, 0),
                          .even = true,
                          .valued = kind % 2 != 0};
                assert_false(gives_records(&p));
                float *rows = train(&p, NULL, &n);
                p.by_records = true;
                assert_true(gives_records(&p));
                float *records = train(&p, NULL, &m);
                assert_int_equal(m, n);
                assert_memory_equal(records, rows, n * sizeof *rows);
                free(rows);
                free(records);
            }
}

/* ---- budgets ---- */

static void budgets_hold_exactly(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++)
        for (unsigned threads = 1; threads <= 3; threads += 2)
            for (int which = 0; which < 3; which += 2) {
                plan p = {.n_features = LARGE, .mode = mode, .threads = threads, .batch = 10};
                p.optim = optim_of(which, 0);
                trainer t;
                trainer_init(&t, &p);
                assert_int_equal(run(&t, 0, UINT64_MAX), MST_OK);
                assert_int_equal(run(&t, UINT64_MAX, 0), MST_OK);
                assert_int_equal(t.progress.steps, 0);
                assert_int_equal(t.progress.rows, 0);
                assert_int_equal(run(&t, 7, UINT64_MAX), MST_OK);
                assert_int_equal(t.progress.steps, 7);
                assert_int_equal(t.progress.rows, 70);
                assert_int_equal(t.progress.position, 70);
                assert_false(t.progress.epoch_ended);
                assert_int_equal(run(&t, UINT64_MAX, 95), MST_OK);
                assert_int_equal(t.progress.rows, 165);
                assert_int_equal(t.progress.steps, 17);
                assert_int_equal(run(&t, 3, 1000), MST_OK);
                assert_int_equal(t.progress.rows, 195);
                assert_int_equal(run(&t, 1000, 4), MST_OK);
                assert_int_equal(t.progress.rows, 199);
                assert_int_equal(t.progress.position, 199);
                assert_int_equal(t.progress.loss.rows, 199);
                assert_int_equal(run(&t, UINT64_MAX, UINT64_MAX), MST_OK);
                assert_int_equal(t.progress.rows, N_ROWS);
                assert_int_equal(t.progress.position, N_ROWS);
                assert_true(t.progress.epoch_ended);
                trainer_fini(&t);
            }
}

/* Sync in pieces of some steps is sync in one go, bit for bit: what --eval-every and a resumed run rely on.
 */
static void pieces_equal_the_whole(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (unsigned threads = 1; threads <= MANY_THREADS; threads += threads == 2 ? MANY_THREADS - 2 : 1)
            for (int which = 0; mst_optimizers[which] != NULL; which++) {
                plan p = {.model = shapes[s].model,
                          .n_features = shapes[s].n_features,
                          .threads = threads,
                          .batch = 9};
                p.optim = optim_of(which, 0);
                p.optim.warmup = 30;
                trainer whole, pieces;
                trainer_init(&whole, &p);
                run_epochs(&whole, 1);
                trainer_init(&pieces, &p);
                for (uint64_t n = 1; !pieces.progress.epoch_ended; n = n % 11 + 3)
                    assert_int_equal(run(&pieces, n, UINT64_MAX), MST_OK);
                assert_int_equal(pieces.progress.steps, whole.progress.steps);
                assert_same_floats(&pieces.params, &whole.params);
                trainer_fini(&whole);
                trainer_fini(&pieces);
            }
}

static void deadline_and_stop(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++)
        for (unsigned threads = 1; threads <= 3; threads += 2) {
            plan p = {.n_features = FEATURES,
                      .mode = mode,
                      .threads = threads,
                      .batch = 10,
                      .optim = optim_of(0, 0)};
            trainer t;
            trainer_init(&t, &p);
            atomic_bool stop = true;
            mst_budget past = {.steps = 100, .rows = 1000, .deadline_ns = mst_now_ns()};
            mst_budget stopped = {.steps = 100, .rows = 1000, .deadline_ns = UINT64_MAX, .stop = &stop};
            assert_int_equal(t.strategy->ops->run(t.strategy, t.feed, &past, &t.progress), MST_OK);
            assert_int_equal(t.strategy->ops->run(t.strategy, t.feed, &stopped, &t.progress), MST_OK);
            assert_int_equal(t.progress.rows, 0);
            assert_false(t.progress.epoch_ended);
            stop = false;
            assert_int_equal(t.strategy->ops->run(t.strategy, t.feed, &stopped, &t.progress), MST_OK);
            assert_int_equal(t.progress.rows, N_ROWS);
            trainer_fini(&t);
        }
}

/* ---- async ---- */

/* One thread's async is sync: bit for bit, whatever the optimizer. */
static void async_with_one_thread_is_sync(void **state)
{
    (void)state;
    static const uint32_t batches[] = {1, 10, 5000};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int which = 0; mst_optimizers[which] != NULL; which++)
            for (size_t b = 0; b < 3; b++) {
                plan p = {.model = shapes[s].model,
                          .n_features = shapes[s].n_features,
                          .threads = 1,
                          .batch = batches[b],
                          .optim = optim_of(which, which == 0 ? 0 : 4)};
                uint64_t n, m;
                mst_progress first, second;
                float *sync = train(&p, &first, &n);
                p.mode = MST_MODE_ASYNC;
                float *async = train(&p, &second, &m);
                assert_int_equal(m, n);
                if (memcmp(sync, async, n * sizeof *sync) != 0)
                    fail_msg("%s with %s, batch %u, differs", mst_models[p.model]->name,
                             mst_optimizers[which]->name, p.batch);
                assert_true(first.loss.loss == second.loss.loss && first.steps == second.steps);
                free(sync);
                free(async);
            }
}

/* Mean loss of the model over all rows. */
static double loss_of(trainer *t)
{
    mst_weights w;
    mst_loss_sum sum = {0};
    mst_grad layout = {0}, grad;
    mst_model_weights(t->model, &t->params, &w);
    t->model->ops->layout(t->model, &t->params, &layout);
    assert_int_equal(
        mst_grad_init(&grad, layout.ranges, layout.n_ranges, layout.sparse_offset, layout.width, 1), MST_OK);
    void *scratch = malloc(t->model->ops->scratch_size(t->model, CHUNK_ROWS));
    for (uint32_t c = 0; c < t->data->base.n_chunks; c++) {
        mst_row rows[CHUNK_ROWS];
        mst_batch batch = {.rows = rows, .n_rows = t->data->chunks[c]->n_rows};
        for (uint32_t i = 0; i < batch.n_rows; i++)
            mst_chunk_row(t->data->chunks[c], i, &rows[i]);
        mst_grad_clear(&grad);
        assert_int_equal(t->model->ops->compute(t->model, scratch, &batch, &w, 1.0f, &grad, NULL, &sum),
                         MST_OK);
    }
    mst_grad_fini(&grad);
    free(scratch);
    return sum.loss / sum.weight;
}

static void check_async(plan p)
{
    trainer sync, async;
    p.mode = MST_MODE_SYNC;
    p.threads = 1;
    trainer_init(&sync, &p);
    double start = loss_of(&sync);
    run_epochs(&sync, 3);
    double want = loss_of(&sync);
    assert_true(want < 0.85 * start);
    p.mode = MST_MODE_ASYNC;
    for (p.threads = 2; p.threads <= 4; p.threads++) {
        trainer_init(&async, &p);
        run_epochs(&async, 3);
        assert_int_equal(async.progress.rows, 3 * N_ROWS);
        assert_int_equal(async.progress.loss.rows, 3 * N_ROWS);
        assert_true(fabs(async.progress.loss.weight - sync.progress.loss.weight) < 1e-6);
        /* every row was trained on: its own key has a weight (updates of dense weights may be lost) */
        const mst_view *weight = mst_params_find(&async.params, "weight");
        for (uint32_t i = 0; i < N_ROWS && weight->width != 0; i++) {
            uint64_t at = (uint64_t)(UNIQUE + i) * weight->width;
            float own;
            mst_params_read(&async.params, 0, weight->offset + at, 1, &own);
            if (own == 0.0f)
                fail_msg("%s with %s, %llu features, batch %u, %u threads: row %u was not trained on",
                         mst_models[p.model]->name, mst_optimizers[p.optim.optimizer]->name,
                         (unsigned long long)p.n_features, p.batch, p.threads, i);
        }
        /* Lost updates are part of asynchrony, and how many there are is the scheduler's business: what must
         * be is at least three quarters of what one thread learns. */
        double got = loss_of(&async), slack = fmax(0.05, 0.25 * (start - want));
        if (!(got < want + slack))
            fail_msg("%s with %s, batch %u, %u threads: loss %g after async, %g after sync, %g at the start",
                     mst_models[p.model]->name, mst_optimizers[p.optim.optimizer]->name, p.batch, p.threads,
                     got, want, start);
        trainer_fini(&async);
    }
    trainer_fini(&sync);
}

static void async_learns_from_every_row(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int which = 0; mst_optimizers[which] != NULL; which++) {
            plan p = {
                .model = shapes[s].model, .n_features = shapes[s].n_features, .optim = optim_of(which, 0)};
            p.optim.momentum = 0.5;
            for (p.batch = 1; p.batch <= 20; p.batch += 19)
                if (which < 3 || p.batch == 20)
                    check_async(p);
        }
}

/* With a rate so small that the order of updates hardly matters, hot weights must end where sync leaves them:
 * the popular keys, the bias and the dense prefix (some rows reach it by key). */
static void hot_weights_are_written_back(void **state)
{
    (void)state;
    static const uint32_t batches[] = {1, 8};
    for (size_t b = 0; b < 2; b++) {
        plan p = {.n_features = FEATURES, .threads = 1, .batch = batches[b], .optim = optim_of(0, 0)};
        p.optim.lr = 1e-5 * batches[b];
        uint64_t n, m;
        float *sync = train(&p, NULL, &n);
        p.mode = MST_MODE_ASYNC;
        for (p.threads = 2; p.threads <= 4; p.threads++) {
            float *async = train(&p, NULL, &m);
            for (uint64_t i = 0; i < n; i++) {
                double most = 0.05 * fabs((double)sync[i]) + (i < N_DENSE ? 0.0 : 2e-5);
                if (!(fabs((double)async[i] - (double)sync[i]) <= most))
                    fail_msg("weight %llu is %g, not %g", (unsigned long long)i, (double)async[i],
                             (double)sync[i]);
            }
            free(async);
        }
        free(sync);
    }
}

/* An epoch with fewer rows than threads could take, and one with none. */
static void few_rows(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++)
        for (uint64_t rows = 1; rows < 4; rows++) {
            plan p = {.n_features = LARGE, .mode = mode, .threads = 4, .batch = 2, .rows_of_data = rows};
            p.optim = optim_of(0, 0);
            trainer t;
            trainer_init(&t, &p);
            run_epochs(&t, 3);
            assert_int_equal(t.progress.rows, 3 * rows);
            assert_int_equal(t.progress.loss.rows, 3 * rows);
            trainer_fini(&t);
        }
}

/* ---- failures ---- */

static void failures_of_the_feed_come_through(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++)
        for (unsigned threads = 1; threads <= MANY_THREADS; threads += threads == 4 ? MANY_THREADS - 4 : 1)
            for (int which = 0; which < 3; which += 2) {
                plan p = {.n_features = LARGE, .mode = mode, .threads = threads, .batch = 10};
                p.optim = optim_of(which, 0);
                trainer t;
                trainer_init(&t, &p);
                t.data->fail_chunk = 5;
                assert_int_equal(mst_feed_start(t.feed, 0, 0), MST_OK);
                assert_int_equal(run(&t, UINT64_MAX, UINT64_MAX), MST_EINPUT);
                assert_string_equal(mst_error_text(), "fake.data: chunk 5 is broken");
                assert_true(t.progress.rows < N_ROWS);
                t.data->fail_chunk = UINT32_MAX; /* and the strategy can continue */
                t.progress = (mst_progress){0};
                assert_int_equal(mst_feed_start(t.feed, 1, 0), MST_OK);
                assert_int_equal(run(&t, UINT64_MAX, UINT64_MAX), MST_OK);
                assert_int_equal(t.progress.rows, N_ROWS);
                trainer_fini(&t);
            }
}

static void short_memory_is_reported(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++)
        for (int which = 0; which < 3; which += 2) {
            plan p = {.n_features = LARGE,
                      .mode = kind == 0 ? MST_MODE_ASYNC : MST_MODE_SYNC,
                      .threads = kind == 2 ? MANY_THREADS : 3,
                      .batch = 10,
                      .optim = optim_of(which, 0)};
            trainer t;
            mst_alloc_stats before, after;
            trainer_init(&t, &p);
            mst_strategy_env env = t.strategy->env;
            mst_strategy_options options = t.strategy->options;
            mst_status st = MST_ENOMEM;
            mst_alloc_stats_get(&before);
            for (uint64_t k = 1; st != MST_OK; k++) {
                mst_strategy *strategy = NULL;
                mst_progress progress = {0};
                mst_budget budget = {.steps = 30, .rows = UINT64_MAX, .deadline_ns = UINT64_MAX};
                assert_int_equal(mst_feed_start(t.feed, 0, 0), MST_OK);
                mst_alloc_fail_at(k);
                st = mst_strategy_new(&options, &env, &strategy);
                if (st == MST_OK)
                    st = strategy->ops->run(strategy, t.feed, &budget, &progress);
                mst_alloc_fail_at(0);
                if (st != MST_OK)
                    assert_int_equal(st, MST_ENOMEM);
                mst_strategy_destroy(strategy);
            }
            trainer_fini(&t);
            mst_alloc_stats_get(&after);
            assert_true(after.blocks <= before.blocks);
        }
}

static void options_are_resolved(void **state)
{
    (void)state;
    mst_strategy_options o = {.threads = 0, .batch = 100};
    assert_int_equal(mst_strategy_resolve(&o), MST_OK);
    assert_true(o.threads >= 1);
    assert_int_equal(o.global_batch, 100);
    o = (mst_strategy_options){.threads = 2, .batch = 100, .global_batch = 64};
    assert_int_equal(mst_strategy_resolve(&o), MST_OK);
    assert_int_equal(o.batch, 64);
    assert_int_equal(o.threads, 2);
    for (int mode = 0; mode < 2; mode++) {
        o.mode = mode == 0 ? MST_MODE_SYNC : MST_MODE_ASYNC;
        o.threads = mode == 0 ? MANY_THREADS : 2;
        assert_true(mst_strategy_spare(&o) > 0);
        o.threads = mode == 0 ? 2 : 1;
        assert_int_equal(mst_strategy_spare(&o), 0);
    }
    mst_strategy_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sync_repeats_and_equals_one_thread),
        cmocka_unit_test(sync_with_any_batch),
        cmocka_unit_test(sync_by_records_equals_rows),
        cmocka_unit_test(budgets_hold_exactly),
        cmocka_unit_test(pieces_equal_the_whole),
        cmocka_unit_test(deadline_and_stop),
        cmocka_unit_test(async_with_one_thread_is_sync),
        cmocka_unit_test(async_learns_from_every_row),
        cmocka_unit_test(hot_weights_are_written_back),
        cmocka_unit_test(few_rows),
        cmocka_unit_test(failures_of_the_feed_come_through),
        cmocka_unit_test(short_memory_is_reported),
        cmocka_unit_test(options_are_resolved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
