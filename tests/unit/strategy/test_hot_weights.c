/* Hot weights: which keys become private, where their copies lie, that nothing is lost when threads exchange
 * their changes, and that the store is whole again at the end. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "strategy/hot_weights.h"

#define N_DENSE   3
#define FEATURES  12000
#define N_ROWS    256
#define N_THREADS 4

/* logreg with a store, and a sample in which key 10 is in every row, key 20 in every second, key 50 in four,
 * key 81 in three of 256, and a key from 1000 on, each in a line of its own, in one row each. Every fourth
 * row has feature 2 as a key. */
typedef struct bench {
    mst_model *model;
    mst_params params;
    mst_row rows[N_ROWS];
    uint32_t keys[N_ROWS][8];
    float dense[N_DENSE];
    mst_batch sample;
    mst_hot_weights *hot;
} bench;

static void make_model(bench *b, int model, int factors, uint32_t n_dense, uint64_t n_features)
{
    mst_model_options options = {.model = model, .bias = true, .pos_weight = 1, .factors = factors};
    mst_shape shape = {.n_features = n_features, .n_dense = n_dense, .n_classes = 2, .n_fields = 2};
    assert_int_equal(mst_model_new(&options, &shape, mst_kernels_get(MST_ISA_PORTABLE), &b->model), MST_OK);
    assert_int_equal(b->model->ops->declare(b->model, &b->params), MST_OK);
}

static void make_store(bench *b, int model, uint32_t n_dense, uint64_t n_features, uint64_t spare)
{
    make_model(b, model, 0, n_dense, n_features);
    assert_int_equal(mst_params_reserve(&b->params, 0, spare), MST_OK);
    for (uint64_t i = 0; i < b->params.size; i++)
        b->params.w[i] = (float)i;
}

static void make_sample(bench *b)
{
    for (uint32_t i = 0; i < N_ROWS; i++) {
        uint32_t n = 0;
        bool is_short = i % 4 == 3;
        if (is_short)
            b->keys[i][n++] = 2;
        b->keys[i][n++] = 10;
        if (i % 2 == 0)
            b->keys[i][n++] = 20;
        if (i % 64 == 0)
            b->keys[i][n++] = 50;
        if (i % 100 == 0)
            b->keys[i][n++] = 81;
        b->keys[i][n++] = 1000 + 16 * i;
        b->rows[i] = (mst_row){.dense = b->dense,
                               .n_dense = is_short ? 2 : N_DENSE,
                               .keys = b->keys[i],
                               .n_keys = n,
                               .label = 1,
                               .weight = 1};
    }
    b->sample = (mst_batch){.rows = b->rows, .n_rows = N_ROWS};
}

static bench *make(void)
{
    bench *b = calloc(1, sizeof *b);
    make_store(b, 0, N_DENSE, FEATURES, mst_hot_weights_spare(N_THREADS));
    make_sample(b);
    assert_int_equal(mst_hot_weights_new(b->model, &b->params, N_THREADS, true, &b->hot), MST_OK);
    assert_non_null(b->hot);
    return b;
}

static void begin(bench *b, const mst_batch *sample)
{
    mst_hot_weights_begin(b->hot, &sample, 1);
    for (unsigned t = 0; t < N_THREADS; t++)
        mst_hot_weights_join(b->hot, t);
}

/* An exchange after one row; lr 0: all changes add up. */
static void exchange(bench *b, unsigned t, float lr, uint64_t rows_so_far)
{
    mst_rule rule = {.kind = MST_RULE_SGD, .lr = lr};
    mst_hot_weights_exchange(b->hot, t, 1, 1, &rule, 1.0f, rows_so_far);
}

static void unmake(bench *b)
{
    mst_hot_weights_destroy(b->hot);
    mst_model_destroy(b->model);
    mst_params_fini(&b->params);
    free(b);
}

/* Where thread t finds a key. */
static uint32_t place_of(const bench *b, unsigned t, uint32_t key)
{
    mst_row row = {.keys = &key, .n_keys = 1}, translated;
    uint32_t place;
    b->model->kernels->translate(&row, 1, mst_hot_weights_map(b->hot, t), &translated, &place);
    assert_ptr_equal(translated.keys, &place);
    return place;
}

static bool is_hot(const bench *b, uint32_t key)
{
    return place_of(b, 0, key) != key;
}

static void popular_keys_are_private(void **state)
{
    (void)state;
    bench *b = make();
    begin(b, &b->sample);
    assert_true(is_hot(b, 10) && is_hot(b, 20) && is_hot(b, 50) && is_hot(b, 81));
    assert_false(is_hot(b, 9) || is_hot(b, 31) || is_hot(b, 16)); /* neighbours of 10 and of 20 */
    assert_false(is_hot(b, 1000) || is_hot(b, 5080) || is_hot(b, FEATURES - 1) || is_hot(b, 64));
    for (unsigned t = 0; t < N_THREADS; t++) {
        const mst_weights *w = mst_hot_weights_of(b->hot, t);
        assert_true(w->sparse[place_of(b, t, 10)] == w->sparse[10]);
        assert_true(w->sparse[place_of(b, t, 20)] == w->sparse[20]);
        for (unsigned other = 0; other < t; other++)
            assert_int_not_equal(place_of(b, t, 10), place_of(b, other, 10));
        /* inside the spare part, and nowhere near the dense ranges' copies */
        const float *at = w->sparse + place_of(b, t, 10);
        assert_true(at >= b->params.w + b->params.size &&
                    at < b->params.w + b->params.size + b->params.spare);
        assert_true(w->ranges[0][0] == 0 && w->ranges[0][2] == 2);
        assert_true(w->ranges[1][0] == (float)mst_params_find(&b->params, "bias")->offset);
    }
    unmake(b);
}

/* A row with a shorter dense prefix reaches the same private copy by key as others do by position. */
static void keys_of_the_prefix(void **state)
{
    (void)state;
    bench *b = make();
    begin(b, &b->sample);
    for (unsigned t = 0; t < N_THREADS; t++) {
        const mst_weights *w = mst_hot_weights_of(b->hot, t);
        for (uint32_t key = 0; key < N_DENSE; key++)
            assert_ptr_equal(w->sparse + place_of(b, t, key), w->ranges[0] + key);
    }
    mst_hot_weights_of(b->hot, 1)->sparse[place_of(b, 1, 2)] += 0.5f;
    exchange(b, 1, 0.0f, 0);
    mst_hot_weights_end(b->hot);
    assert_true(b->params.w[2] == 2.5f);
    unmake(b);
}

static void translation_keeps_rows(void **state)
{
    (void)state;
    bench *b = make();
    static mst_row rows[N_ROWS];
    static uint32_t keys[N_ROWS * 8];
    begin(b, &b->sample);
    b->model->kernels->translate(b->rows, N_ROWS, mst_hot_weights_map(b->hot, 2), rows, keys);
    for (uint32_t i = 0; i < N_ROWS; i++) {
        const mst_row *from = &b->rows[i], *to = &rows[i];
        assert_true(to->n_keys == from->n_keys && to->n_dense == from->n_dense && to->dense == from->dense &&
                    to->label == from->label && to->weight == from->weight && to->values == from->values);
        for (uint32_t j = 0; j < from->n_keys; j++)
            assert_int_equal(to->keys[j], place_of(b, 2, from->keys[j]));
    }
    unmake(b);
}

static void changes_add_up(void **state)
{
    (void)state;
    bench *b = make();
    begin(b, &b->sample);
    uint32_t bias = (uint32_t)mst_params_find(&b->params, "bias")->offset;
    for (int round = 0; round < 3; round++)
        for (unsigned t = 0; t < N_THREADS; t++) {
            const mst_weights *w = mst_hot_weights_of(b->hot, t);
            w->ranges[0][1] += 1;
            w->ranges[1][0] += 2;
            w->sparse[place_of(b, t, 10)] += 4;
            if (round != 1)
                exchange(b, t, 0.0f, 0);
        }
    const mst_weights *last = mst_hot_weights_of(b->hot, N_THREADS - 1); /* published last: has seen all */
    assert_true(last->sparse[place_of(b, N_THREADS - 1, 10)] == 10 + 48);
    assert_true(last->ranges[0][1] == 1 + 12);
    float dense = last->ranges[0][1];
    assert_true(b->params.w[1] == 1 && b->params.w[10] == 10); /* the store waits for the end */
    mst_hot_weights_end(b->hot);
    assert_true(b->params.w[1] == dense && b->params.w[10] == 10 + 48);
    assert_true(b->params.w[bias] == (float)bias + 24);
    assert_true(b->params.w[20] == 20 && b->params.w[81] == 81 && b->params.w[1000] == 1000);

    /* the next round begins with what the store holds now, and with its own sample */
    b->params.w[10] = -1;
    mst_batch none = {0};
    begin(b, &none);
    assert_false(is_hot(b, 10));
    begin(b, &b->sample);
    assert_true(mst_hot_weights_of(b->hot, 3)->sparse[place_of(b, 3, 10)] == -1);
    mst_hot_weights_end(b->hot);
    assert_true(b->params.w[10] == -1 && b->params.w[1] == dense);
    unmake(b);
}

typedef struct member {
    bench *b;
    unsigned t;
    pthread_t thread;
} member;

#define ROUNDS 2000

static void *exchange_all(void *arg)
{
    member *m = arg;
    const mst_weights *w = mst_hot_weights_of(m->b->hot, m->t);
    uint32_t at = place_of(m->b, m->t, 20);
    for (int i = 0; i < ROUNDS; i++) {
        w->ranges[0][0] += 1;
        w->ranges[1][0] -= 1;
        w->sparse[at] += 1;
        exchange(m->b, m->t, 0.0f, i % 2 == 0 ? 0 : UINT64_MAX);
    }
    return NULL;
}

/* Whole numbers are exact: any lost update would show. */
static void nothing_is_lost_between_threads(void **state)
{
    (void)state;
    bench *b = make();
    member members[N_THREADS];
    uint32_t bias = (uint32_t)mst_params_find(&b->params, "bias")->offset;
    begin(b, &b->sample);
    for (unsigned t = 0; t < N_THREADS; t++) {
        members[t] = (member){.b = b, .t = t};
        assert_int_equal(pthread_create(&members[t].thread, NULL, exchange_all, &members[t]), 0);
    }
    for (unsigned t = 0; t < N_THREADS; t++)
        pthread_join(members[t].thread, NULL);
    mst_hot_weights_end(b->hot);
    assert_true(b->params.w[0] == N_THREADS * ROUNDS &&
                b->params.w[bias] == (float)bias - N_THREADS * ROUNDS);
    assert_true(b->params.w[20] == 20 + N_THREADS * ROUNDS);
    unmake(b);
}

/* More popular keys than there is room for: the rest stay shared, and every weight is right at the end. */
static void more_popular_keys_than_room(void **state)
{
    (void)state;
    enum { N = 2 * MST_HOT_PRIVATE };
    bench *b = calloc(1, sizeof *b);
    static uint32_t keys[N];
    mst_row rows[3];
    make_store(b, 0, N_DENSE, 3 * N, mst_hot_weights_spare(N_THREADS));
    assert_int_equal(mst_hot_weights_new(b->model, &b->params, N_THREADS, true, &b->hot), MST_OK);
    for (uint32_t i = 0; i < N; i++)
        keys[i] = 100 + 2 * i;
    rows[0] = rows[1] = rows[2] = (mst_row){.keys = keys, .n_keys = N, .weight = 1};
    mst_batch sample = {.rows = rows, .n_rows = 3};
    begin(b, &sample);
    unsigned hot = 0;
    for (uint32_t i = 0; i < N; i++) {
        hot += is_hot(b, keys[i]);
        mst_hot_weights_of(b->hot, 1)->sparse[place_of(b, 1, keys[i])] += 0.5f;
    }
    assert_true(hot > MST_HOT_PRIVATE / 2 && hot <= MST_HOT_PRIVATE);
    mst_hot_weights_end(b->hot);
    for (uint32_t i = 0; i < N; i++)
        assert_true(b->params.w[keys[i]] == (float)keys[i] + 0.5f);
    unmake(b);
}

/* Threads descend on c/2 * (goal - margin)^2, where the margin is the sum of the bias and of the first n - 1
 * of the keys 10 and 20, from an exchange to the next; all exchange at the same time. A step of a thread
 * takes the margin `share` of the way. Returns the distance that is left after some intervals. */
static float approach(float share, int n, int steps)
{
    bench *b = make();
    begin(b, &b->sample);
    uint32_t bias = (uint32_t)mst_params_find(&b->params, "bias")->offset;
    float goal = (float)bias + 10 + 20 + 100, left;
    mst_rule rule = {.kind = MST_RULE_SGD, .lr = 4.0f * share / (float)n}; /* c is at most 1/4 */
    for (int round = 0; round < 400; round++) {
        for (unsigned t = 0; t < N_THREADS; t++) {
            const mst_weights *w = mst_hot_weights_of(b->hot, t);
            float *at[] = {w->ranges[1], &w->sparse[place_of(b, t, 10)], &w->sparse[place_of(b, t, 20)]};
            for (int step = 0; step < steps; step++) {
                float change = share / (float)n * (goal - (*at[0] + *at[1] + *at[2]));
                for (int i = 0; i < n; i++)
                    *at[i] += change;
            }
        }
        for (unsigned t = 0; t < N_THREADS; t++)
            mst_hot_weights_exchange(b->hot, t, (uint32_t)steps, (uint64_t)steps, &rule, 1.0f, 0);
    }
    mst_hot_weights_end(b->hot);
    left = fabsf(goal - b->params.w[bias] - b->params.w[10] - b->params.w[20]);
    unmake(b);
    return left;
}

/* The sum of four such changes overshoots where an interval is half of the way or more, also if several
 * weights make the way together; the mean of small ones would be left with 100 * 0.99^400 = 1.8. */
static void changes_do_not_overshoot(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++) {
        for (int steps = 1; steps <= 1000; steps *= 10)
            for (float share = 0.001f; share < 1.0f; share *= 2) {
                float left = approach(share, n, steps);
                if (!(left < 100))
                    fail_msg("%d weights, share %g, %d steps: %g left", n, (double)share, steps,
                             (double)left);
                if (share * (float)steps > 0.1f && !(left < 1))
                    fail_msg("%d weights, share %g, %d steps: %g is left", n, (double)share, steps,
                             (double)left);
            }
        assert_true(approach(0.01f, n, 1) < 0.1f);
    }
}

/* One copy for synchronous threads: keys alone, in place of the store's, and written back as they are. */
static void one_copy_of_keys(void **state)
{
    (void)state;
    bench *b = calloc(1, sizeof *b);
    uint32_t first;
    make_store(b, 0, N_DENSE, FEATURES, mst_hot_weights_spare(1));
    make_sample(b);
    assert_int_equal(mst_hot_weights_new(b->model, &b->params, 1, true, &b->hot), MST_OK);
    mst_hot_weights_begin(b->hot, &(const mst_batch *){&b->sample}, 1);
    uint32_t n = mst_hot_weights_places(b->hot, &first);
    assert_true(n >= 4 && place_of(b, 0, 10) == first && place_of(b, 0, 20) == first + 1);
    for (uint32_t key = 0; key < N_DENSE; key++)
        assert_int_equal(place_of(b, 0, key), key);
    const mst_weights *w = mst_hot_weights_of(b->hot, 0);
    assert_ptr_equal(w->ranges[0], b->params.w);
    w->sparse[first] = 0.1f;
    mst_hot_weights_end(b->hot);
    assert_true(b->params.w[10] == 0.1f && b->params.w[20] == 20);
    b->params.w[10] = 0.3f; /* without a sample, the same keys, and their values of now */
    mst_hot_weights_begin(b->hot, NULL, 0);
    assert_true(mst_hot_weights_places(b->hot, &first) == n && place_of(b, 0, 10) == first);
    assert_true(w->sparse[first] == 0.3f);
    mst_hot_weights_end(b->hot);
    assert_true(b->params.w[10] == 0.3f);
    unmake(b);
}

/* fm with the state of Adagrad: weight i is i, its state i / 2. */
static mst_status make_factors(bench *b, int factors, uint32_t n_dense, bool sums)
{
    make_model(b, 2, factors, n_dense, FEATURES);
    b->params.by_rows = true;
    for (uint32_t i = 0; i < b->params.n_views; i++)
        b->params.views[i].state = (mst_view_state){.n_slots = 1};
    assert_int_equal(mst_params_reserve(&b->params, 1, mst_hot_weights_spare(N_THREADS)), MST_OK);
    for (uint64_t i = 0; i < b->params.size; i++)
        for (uint32_t s = 0; s < 2; s++)
            mst_params_write(&b->params, s, i, 1, &(float){(float)i / (float)(1 + s)});
    make_sample(b);
    return mst_hot_weights_new(b->model, &b->params, N_THREADS, sums, &b->hot);
}

/* Adds d to the weights of a key in the copy of thread t, and `square` to their state. */
static void move_key(bench *b, unsigned t, uint32_t key, float d, float square)
{
    const mst_key_rows *rows = &b->params.rows;
    float *first = mst_key_first(rows, place_of(b, t, key)), *rest = mst_key_rest(rows, place_of(b, t, key));
    first[0] += d;
    first[1] += square;
    for (uint32_t i = 0; i < rows->width - 1; i++) {
        rest[i] += d;
        rest[rows->width - 1 + i] += square;
    }
}

static void exchange_factors(bench *b, unsigned t, float lr)
{
    mst_rule rule = {.kind = MST_RULE_ADAGRAD, .lr = lr, .eps = 1e-8f};
    mst_hot_weights_exchange(b->hot, t, 1, 1, &rule, 1.0f, 0);
}

/* The mean change of the weights of a key in the store, and that of their state. */
static void moved(const bench *b, uint32_t key, double *d, double *square)
{
    uint32_t width = b->params.rows.width;
    *d = *square = 0;
    for (uint32_t i = 0; i < width; i++) {
        uint64_t at = (uint64_t)key * width + i;
        float w, a;
        mst_params_read(&b->params, 0, at, 1, &w);
        mst_params_read(&b->params, 1, at, 1, &a);
        *d += (double)w - (double)at;
        *square += (double)a - (double)at / 2;
    }
    *d /= width;
    *square /= width;
}

static void *exchange_factors_all(void *arg)
{
    member *m = arg;
    for (int i = 0; i < ROUNDS; i++) {
        move_key(m->b, m->t, 20, 1, 1);
        if (m->t == 2)
            move_key(m->b, m->t, 81, 1, 1);
        exchange_factors(m->b, m->t, 0.0f);
    }
    return NULL;
}

/* Keys of several weights and their state: changes of threads side by side add up, and keys that a thread
 * leaves alone keep the changes of others. */
static void keys_of_several_weights(void **state)
{
    (void)state;
    double d, square;
    for (int factors = 1; factors <= 16; factors += 5) {
        bench *b = calloc(1, sizeof *b);
        member members[N_THREADS];
        assert_int_equal(make_factors(b, factors, 0, true), MST_OK);
        assert_non_null(b->hot);
        begin(b, &b->sample);
        assert_true(is_hot(b, 10) && is_hot(b, 20) && is_hot(b, 81) && !is_hot(b, 1000));
        for (unsigned t = 0; t < N_THREADS; t++) {
            members[t] = (member){.b = b, .t = t};
            assert_int_equal(pthread_create(&members[t].thread, NULL, exchange_factors_all, &members[t]), 0);
        }
        for (unsigned t = 0; t < N_THREADS; t++)
            pthread_join(members[t].thread, NULL);
        move_key(b, 0, 10, 3, 0.5f);
        exchange_factors(b, 0, 0.0f);
        exchange_factors(b, 1, 0.0f); /* takes it over */
        const float *copy = mst_key_first(&b->params.rows, place_of(b, 1, 10));
        assert_true(copy[0] == (float)(10 * (1 + factors) + 3) &&
                    copy[1] == 5.0f * (float)(1 + factors) + 0.5f);
        mst_hot_weights_end(b->hot);
        moved(b, 20, &d, &square);
        assert_true(d == N_THREADS * ROUNDS && square == N_THREADS * ROUNDS);
        moved(b, 81, &d, &square);
        assert_true(d == ROUNDS && square == ROUNDS);
        moved(b, 10, &d, &square);
        assert_true(d == 3 && square == 0.5);
        moved(b, 11, &d, &square);
        assert_true(d == 0 && square == 0);
        unmake(b);
    }
}

/* A thread that joins when others have exchanged takes their changes over, and does not overwrite them. */
static void late_threads_take_over(void **state)
{
    (void)state;
    double d, square;
    bench *b = calloc(1, sizeof *b);
    const mst_batch *sample = &b->sample;
    assert_int_equal(make_factors(b, 8, 0, true), MST_OK);
    for (int round = 1; round <= 2; round++) { /* the second begins with exchanges counted */
        mst_hot_weights_begin(b->hot, &sample, 1);
        mst_hot_weights_join(b->hot, 0);
        for (int i = 0; i < 100; i++) {
            move_key(b, 0, 50, 1, 1);
            exchange_factors(b, 0, 0.0f);
        }
        for (unsigned t = 1; t < N_THREADS; t++)
            mst_hot_weights_join(b->hot, t);
        exchange_factors(b, 1, 0.0f);
        const float *copy = mst_key_first(&b->params.rows, place_of(b, 1, 50));
        assert_true(copy[0] == (float)(50 * 9 + 100 * round));
        mst_hot_weights_end(b->hot);
        moved(b, 50, &d, &square);
        assert_true(d == 100 * round && square == 100 * round);
    }
    unmake(b);
}

/* Steps that change the factors, but neither the linear weight nor its state. */
static void factors_that_move_alone(void **state)
{
    (void)state;
    bench *b = calloc(1, sizeof *b);
    assert_int_equal(make_factors(b, 8, 0, true), MST_OK);
    begin(b, &b->sample);
    for (int i = 0; i < 100; i++) {
        float *rest = mst_key_rest(&b->params.rows, place_of(b, 0, 50));
        rest[0] += 1; /* the first factor */
        rest[8] += 2; /* its state */
        exchange_factors(b, 0, 0.0f);
    }
    mst_hot_weights_end(b->hot);
    uint64_t at = 50 * 9 + 1;
    float w[2];
    for (uint32_t s = 0; s < 2; s++)
        mst_params_read(&b->params, s, at, 1, &w[s]);
    assert_true(w[0] == (float)at + 100 && w[1] == (float)at / 2 + 200);
    unmake(b);
}

/* All popular keys that fit are exchanged while threads train, however many they are. */
static void all_popular_keys_are_exchanged(void **state)
{
    (void)state;
    for (int factors = 1; factors <= 16; factors *= 2) {
        static uint32_t keys[FEATURES];
        bench *b = calloc(1, sizeof *b);
        mst_row rows[3];
        mst_batch sample = {.rows = rows, .n_rows = 3};
        uint32_t n_hot = 0;
        assert_int_equal(make_factors(b, factors, 0, true), MST_OK);
        for (uint32_t i = 0; i < FEATURES; i++)
            keys[i] = i;
        rows[0] = rows[1] = rows[2] = (mst_row){.keys = keys, .n_keys = FEATURES, .weight = 1};
        begin(b, &sample);
        for (uint32_t i = 0; i < FEATURES; i++)
            if (is_hot(b, i))
                move_key(b, 0, i, 1, 1);
        for (unsigned t = 0; t < 2; t++)
            mst_hot_weights_exchange(b->hot, t, 1 << 20, 1, &(mst_rule){.kind = MST_RULE_ADAGRAD}, 1.0f, 0);
        for (uint32_t i = 0; i < FEATURES; i++) {
            const float *first = mst_key_first(&b->params.rows, place_of(b, 1, i));
            bool hot = is_hot(b, i);
            float at = (float)(i * (1 + (uint32_t)factors));
            assert_true(first[0] == (hot ? at + 1 : at));
            n_hot += hot;
        }
        assert_true(n_hot >= 512);
        mst_hot_weights_end(b->hot);
        unmake(b);
    }
}

/* Threads that each go the whole way: their mean remains, and the sum of the squares. Where each goes a
 * small part, changes add up. */
static void factors_do_not_overshoot(void **state)
{
    (void)state;
    double d, square;
    bench *b = calloc(1, sizeof *b);
    assert_int_equal(make_factors(b, 8, 0, true), MST_OK);
    begin(b, &b->sample);
    for (unsigned t = 0; t < N_THREADS; t++) {
        move_key(b, t, 10, 1, 100);
        exchange_factors(b, t, 1e6f);
    }
    for (unsigned t = 0; t < N_THREADS; t++) {
        move_key(b, t, 20, 1, 100);
        exchange_factors(b, t, 1e-6f);
    }
    mst_hot_weights_end(b->hot);
    moved(b, 10, &d, &square);
    assert_true(fabs(d - 1) < 0.01 && square == 100 * N_THREADS);
    moved(b, 20, &d, &square);
    assert_true(fabs(d - N_THREADS) < 0.01 && square == 100 * N_THREADS);
    unmake(b);
}

static void not_for_every_model(void **state)
{
    (void)state;
    const struct {
        int model;
        uint32_t n_dense;
        uint64_t n_features, spare;
    } cases[] = {
        {1, 0, 100, mst_hot_weights_spare(2)},                      /* softmax: dense */
        {1, 0, 5000, mst_hot_weights_spare(2)},                     /* softmax: several weights per key */
        {0, N_DENSE, FEATURES, 0},                                  /* no spare room */
        {0, MST_HOT_DENSE + 1, FEATURES, mst_hot_weights_spare(2)}, /* a long dense prefix */
        {0, MST_HOT_DENSE, FEATURES, mst_hot_weights_spare(2)},     /* no room for the bias */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bench b = {0};
        make_store(&b, cases[i].model, cases[i].n_dense, cases[i].n_features, cases[i].spare);
        b.hot = (mst_hot_weights *)&b;
        assert_int_equal(mst_hot_weights_new(b.model, &b.params, 2, true, &b.hot), MST_OK);
        assert_null(b.hot);
        mst_model_destroy(b.model);
        mst_params_fini(&b.params);
    }
    for (int i = 0; i < 3; i++) { /* fm with state that is no sum, with a dense prefix, with many factors */
        bench b = {0};
        assert_int_equal(make_factors(&b, i == 2 ? 64 : 8, i == 1 ? 3 : 0, i != 0), MST_OK);
        assert_null(b.hot);
        mst_model_destroy(b.model);
        mst_params_fini(&b.params);
    }
}

static void short_memory_is_reported(void **state)
{
    (void)state;
    bench b = {0};
    mst_alloc_stats before, after;
    make_store(&b, 0, N_DENSE, FEATURES, mst_hot_weights_spare(2));
    make_sample(&b);
    mst_alloc_stats_get(&before);
    mst_status st = MST_ENOMEM;
    for (uint64_t k = 1; st != MST_OK; k++) {
        mst_alloc_fail_at(k);
        st = mst_hot_weights_new(b.model, &b.params, 2, true, &b.hot);
        mst_alloc_fail_at(0);
        if (st != MST_OK) {
            assert_int_equal(st, MST_ENOMEM);
            assert_non_null(strstr(mst_error_text(), "out of memory: cannot allocate "));
        }
    }
    mst_alloc_fail_at(1); /* begin has no way to fail: it goes without popular lines */
    mst_hot_weights_begin(b.hot, &(const mst_batch *){&b.sample}, 1);
    mst_alloc_fail_at(0);
    assert_false(is_hot(&b, 10));
    mst_hot_weights_end(b.hot);
    assert_true(b.params.w[10] == 10);
    mst_hot_weights_destroy(b.hot);
    mst_hot_weights_destroy(NULL);
    mst_alloc_stats_get(&after);
    assert_int_equal(after.blocks, before.blocks);
    mst_model_destroy(b.model);
    mst_params_fini(&b.params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(popular_keys_are_private),        cmocka_unit_test(keys_of_the_prefix),
        cmocka_unit_test(translation_keeps_rows),          cmocka_unit_test(changes_add_up),
        cmocka_unit_test(nothing_is_lost_between_threads), cmocka_unit_test(more_popular_keys_than_room),
        cmocka_unit_test(changes_do_not_overshoot),        cmocka_unit_test(one_copy_of_keys),
        cmocka_unit_test(keys_of_several_weights),         cmocka_unit_test(late_threads_take_over),
        cmocka_unit_test(factors_that_move_alone),         cmocka_unit_test(all_popular_keys_are_exchanged),
        cmocka_unit_test(factors_do_not_overshoot),        cmocka_unit_test(not_for_every_model),
        cmocka_unit_test(short_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
