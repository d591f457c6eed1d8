/* The chunk ring: chunks come out in order, a failure after all chunks before it, and a stop ends waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <unistd.h>

#include "data/chunk_ring.h"

#define N_CHUNKS 200

typedef struct maker_state {
    uint64_t fail_at, claimed, end;
    bool stall; /* claim waits until it is false */
    pthread_mutex_t mutex;
    pthread_cond_t go;
} maker_state;

static mst_status claim(void *arg, uint64_t number, mst_raw_block **block, bool *more)
{
    maker_state *s = arg;
    pthread_mutex_lock(&s->mutex);
    while (s->stall)
        pthread_cond_wait(&s->go, &s->mutex);
    assert_int_equal(number, s->claimed);
    *more = number < s->end;
    s->claimed += *more;
    pthread_mutex_unlock(&s->mutex);
    *block = NULL;
    return MST_OK;
}

/* Chunk n has n % 3 rows, whose label is n; even chunks take longer. */
static mst_status make(void *arg, uint64_t number, mst_raw_block *block, mst_chunk_builder *builder,
                       mst_chunk **out)
{
    const maker_state *s = arg;
    (void)block;
    if (number == s->fail_at)
        return mst_fail(MST_EINPUT, "chunk %llu fails", (unsigned long long)number);
    if (number % 2 == 0)
        usleep(200);
    mst_chunk_builder_clear(builder);
    for (uint64_t i = 0; i < number % 3; i++) {
        TRY(mst_chunk_builder_room(builder, 1));
        mst_chunk_builder_add(builder, 0, 1.0f);
        TRY(mst_chunk_builder_end_row(builder, (float)number, 1.0f));
    }
    return mst_chunk_builder_pack(builder, 0, number % 3, out);
}

static maker_state state_of(uint64_t end, uint64_t fail_at)
{
    return (maker_state){
        .fail_at = fail_at, .end = end, .mutex = PTHREAD_MUTEX_INITIALIZER, .go = PTHREAD_COND_INITIALIZER};
}

static mst_chunk_ring *ring_of(maker_state *s, unsigned n_threads)
{
    mst_chunk_ring *ring;
    mst_chunk_maker maker = {.claim = claim, .make = make, .arg = s};
    assert_int_equal(mst_chunk_ring_new(&maker, "test", n_threads, 4, &ring), MST_OK);
    return ring;
}

/* Takes chunks from..to-1 and releases them. */
static void take_chunks(mst_chunk_ring *ring, uint64_t from, uint64_t to)
{
    for (uint64_t n = from; n < to; n++) {
        mst_chunk *chunk;
        assert_int_equal(mst_chunk_ring_take(ring, &chunk), MST_OK);
        assert_non_null(chunk);
        assert_int_equal(chunk->n_rows, n % 3);
        if (chunk->n_rows > 0)
            assert_true(chunk->min_label == (float)n);
        mst_chunk_release(chunk);
    }
}

static void chunks_come_in_order(void **state)
{
    (void)state;
    for (unsigned threads = 0; threads <= 4; threads++) {
        maker_state s = state_of(N_CHUNKS, UINT64_MAX);
        mst_chunk_ring *ring = ring_of(&s, threads);
        mst_chunk *chunk;
        mst_chunk_ring_start(ring, 0, UINT64_MAX);
        take_chunks(ring, 0, N_CHUNKS);
        assert_int_equal(mst_chunk_ring_take(ring, &chunk), MST_OK);
        assert_null(chunk);
        mst_chunk_ring_destroy(ring);
    }
}

static void a_failure_comes_in_its_place(void **state)
{
    (void)state;
    for (unsigned threads = 0; threads <= 4; threads++) {
        maker_state s = state_of(N_CHUNKS, 37);
        mst_chunk_ring *ring = ring_of(&s, threads);
        mst_chunk *chunk;
        mst_chunk_ring_start(ring, 0, UINT64_MAX);
        take_chunks(ring, 0, 37);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(mst_chunk_ring_take(ring, &chunk), MST_EINPUT);
            assert_string_equal(mst_error_text(), "chunk 37 fails");
        }
        mst_chunk_ring_extend(ring, N_CHUNKS); /* does not lift a failure */
        assert_int_equal(mst_chunk_ring_take(ring, &chunk), MST_EINPUT);
        mst_chunk_ring_stop(ring);
        s.fail_at = UINT64_MAX; /* a start does */
        s.claimed = 0;
        mst_chunk_ring_start(ring, 0, 10);
        take_chunks(ring, 0, 10);
        assert_int_equal(mst_chunk_ring_take(ring, &chunk), MST_OK);
        assert_null(chunk);
        mst_chunk_ring_extend(ring, 12);
        take_chunks(ring, 10, 12);
        mst_chunk_ring_destroy(ring);
    }
}

static void *stop_later(void *arg)
{
    usleep(20000);
    mst_chunk_ring_finish(arg);
    return NULL;
}

static void the_end_ends_waits(void **state)
{
    (void)state;
    maker_state s = state_of(N_CHUNKS, UINT64_MAX);
    mst_chunk_ring *ring = ring_of(&s, 2);
    pthread_t thread;
    mst_chunk *chunk;
    s.stall = true;
    mst_chunk_ring_start(ring, 0, UINT64_MAX);
    assert_int_equal(pthread_create(&thread, NULL, stop_later, ring), 0);
    assert_int_equal(mst_chunk_ring_take(ring, &chunk), MST_OK);
    assert_null(chunk);
    pthread_join(thread, NULL);
    pthread_mutex_lock(&s.mutex);
    s.stall = false;
    pthread_cond_broadcast(&s.go);
    pthread_mutex_unlock(&s.mutex);
    mst_chunk_ring_destroy(ring);
}

static void *help_until_the_end(void *arg)
{
    mst_chunk_ring *ring = arg;
    mst_chunk_builder builder;
    uintptr_t made = 0;
    mst_chunk_builder_init(&builder);
    while (mst_chunk_ring_help(ring, &builder))
        made++;
    mst_chunk_builder_fini(&builder);
    return (void *)made;
}

static void others_help_in_order_and_within_the_capacity(void **state)
{
    (void)state;
    maker_state s = state_of(N_CHUNKS, UINT64_MAX);
    mst_chunk_ring *ring = ring_of(&s, 0);
    assert_int_equal((uintptr_t)help_until_the_end(ring), 0); /* it is stopped */
    mst_chunk_ring_start(ring, 0, UINT64_MAX);
    assert_int_equal((uintptr_t)help_until_the_end(ring), 4);
    assert_int_equal(s.claimed, 4);
    assert_true(mst_chunk_ring_ready(ring));
    take_chunks(ring, 0, 2);
    assert_int_equal(s.claimed, 4); /* those at hand are taken first */
    pthread_t threads[3];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 3; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, help_until_the_end, ring), 0);
        uint64_t from = 2 + 8 * (uint64_t)round;
        take_chunks(ring, from, from + 8);
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
    }
    take_chunks(ring, 162, N_CHUNKS);
    assert_false(mst_chunk_ring_ready(ring));
    mst_chunk *none;
    assert_int_equal(mst_chunk_ring_take(ring, &none), MST_OK); /* finds the end */
    assert_null(none);
    assert_true(mst_chunk_ring_ready(ring));
    assert_int_equal((uintptr_t)help_until_the_end(ring), 0);
    mst_chunk_ring_destroy(ring);
}

static mst_status add_rows(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    uint64_t *rows = arg;
    assert_int_equal(first_row, *rows);
    *rows += chunk->n_rows;
    return *rows >= 100 ? mst_fail(MST_ESTOPPED, "enough") : MST_OK;
}

static void each_stops_at_a_failure(void **state)
{
    (void)state;
    for (unsigned threads = 0; threads <= 3; threads++) {
        uint64_t rows = 0;
        maker_state s = state_of(50, UINT64_MAX);
        mst_chunk_maker maker = {.claim = claim, .make = make, .arg = &s};
        assert_int_equal(mst_chunks_each(&maker, "test", threads, UINT64_MAX, add_rows, &rows), MST_OK);
        assert_int_equal(rows, 49);
        s = state_of(N_CHUNKS, UINT64_MAX);
        rows = 0;
        assert_int_equal(mst_chunks_each(&maker, "test", threads, UINT64_MAX, add_rows, &rows), MST_ESTOPPED);
        assert_true(rows >= 100 && rows < 103);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_come_in_order),
        cmocka_unit_test(a_failure_comes_in_its_place),
        cmocka_unit_test(the_end_ends_waits),
        cmocka_unit_test(others_help_in_order_and_within_the_capacity),
        cmocka_unit_test(each_stops_at_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
