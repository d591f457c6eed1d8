/* The communication thread of strategy allreduce, over MPI in one process: sums and their order, wire
 * formats, concurrent reductions, texts, and failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "mpi/fake_mpi.h"
#include "strategy/comm_broadcast.h"
#include "strategy/comm_thread.h"

#define MAX_OPS 24

typedef struct plan {
    int n_ranks;
    size_t sizes[MAX_OPS];
    uint32_t n_ops;
    mst_reduce_way way;
    mst_float_format wire;
    bool copy, on_comm;
    int rounds;
} plan;

typedef struct rank {
    const plan *plan;
    fake_rank fake;
    pthread_t thread;
    float *data[MAX_OPS]; /* sums of the last round */
    mst_comm *comm;
    mst_reduce_op ops[MAX_OPS];
    mst_status status;
    mst_reduce_counts counts;
} rank;

/* What rank r has at i of op k in a round; sums of these are not exact, so that their order shows. */
static float value(int r, uint32_t k, size_t i, int round)
{
    uint32_t x = (uint32_t)(i * 2654435761u) ^ (uint32_t)(r * 40503 + (int)k * 977 + round * 131);
    x ^= x >> 15;
    x *= 0x2c1b3c6du;
    x ^= x >> 12;
    return ((float)(x & 0xffffff) / 16777216.0f - 0.5f) * (float)(1 + r * 37);
}

static mst_status reduce_all(mst_comm *comm, void *arg)
{
    rank *me = arg;
    const plan *p = me->plan;
    for (int round = 0; round < p->rounds; round++) {
        for (uint32_t k = 0; k < p->n_ops; k++)
            for (size_t i = 0; i < p->sizes[k]; i++)
                me->data[k][i] = value(me->fake.rank, k, i, round);
        for (uint32_t k = 0; k < p->n_ops; k++)
            TRY(mst_comm_post(comm, &me->ops[k]));
        for (uint32_t k = p->n_ops; k-- > 0;)
            TRY(mst_comm_wait(comm, &me->ops[k]));
    }
    return MST_OK;
}

static mst_status run_rank(rank *me)
{
    const plan *p = me->plan;
    size_t most = 0;
    mst_comm_options options = {.stall_timeout_ms = 60000, .start = fake_start, .start_arg = &me->fake};
    TRY(mst_comm_new(&options, &me->comm));
    for (uint32_t k = 0; k < p->n_ops; k++) {
        most = p->sizes[k] > most ? p->sizes[k] : most;
        me->data[k] = mst_calloc(p->sizes[k] + 1, sizeof(float));
        me->ops[k] = (mst_reduce_op){.data = me->data[k], .n = p->sizes[k], .way = p->way, .copy = p->copy};
    }
    TRY(mst_comm_shape(me->comm, p->wire, most));
    TRY(p->on_comm ? mst_comm_call(me->comm, reduce_all, me) : reduce_all(me->comm, me));
    mst_comm_counts_get(me->comm, &me->counts);
    return mst_comm_end(me->comm);
}

static void *rank_thread(void *arg)
{
    rank *me = arg;
    me->status = run_rank(me);
    if (me->status != MST_OK)
        fprintf(stderr, "rank %d: %s\n", me->fake.rank, mst_error_text());
    mst_comm_destroy(me->comm, NULL);
    return NULL;
}

static void run_plan(const plan *p, rank *ranks)
{
    fake_world world;
    fake_init(&world, p->n_ranks);
    memset(ranks, 0, (size_t)p->n_ranks * sizeof *ranks);
    for (int r = 0; r < p->n_ranks; r++) {
        ranks[r].plan = p;
        ranks[r].fake = (fake_rank){&world, r};
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, rank_thread, &ranks[r]), 0);
    }
    for (int r = 0; r < p->n_ranks; r++)
        pthread_join(ranks[r].thread, NULL);
    fake_fini(&world);
    for (int r = 0; r < p->n_ranks; r++)
        assert_int_equal(ranks[r].status, MST_OK);
}

static void free_data(const plan *p, rank *ranks)
{
    for (int r = 0; r < p->n_ranks; r++)
        for (uint32_t k = 0; k < p->n_ops; k++)
            mst_free(ranks[r].data[k]);
}

static float rounded(mst_float_format wire, float x)
{
    char bits[4];
    mst_float_encode(wire, &x, 1, bits);
    mst_float_decode(wire, bits, 1, &x);
    return x;
}

/* Every rank has the sum in rank order, to the bit. */
static void check_sums(const plan *p, const rank *ranks)
{
    for (uint32_t k = 0; k < p->n_ops; k++)
        for (size_t i = 0; i < p->sizes[k]; i++) {
            float sum = 0.0f;
            for (int r = 0; r < p->n_ranks; r++) {
                float x = value(r, k, i, p->rounds - 1);
                if (p->n_ranks > 1)
                    x = rounded(p->wire, x);
                sum = r == 0 ? x : sum + x;
            }
            sum = p->n_ranks > 1 ? rounded(p->wire, sum) : sum;
            if (p->copy)
                sum = value(0, k, i, p->rounds - 1);
            for (int r = 0; r < p->n_ranks; r++)
                if (memcmp(&sum, &ranks[r].data[k][i], sizeof sum) != 0)
                    fail_msg("rank %d of %d, op %u of %zu floats, at %zu: %.9g instead of %.9g", r,
                             p->n_ranks, k, p->sizes[k], i, (double)ranks[r].data[k][i], (double)sum);
        }
}

static void run_and_check(plan p)
{
    rank ranks[FAKE_RANKS];
    run_plan(&p, ranks);
    check_sums(&p, ranks);
    free_data(&p, ranks);
}

static void test_sums(void **state)
{
    (void)state;
    for (int n = 1; n <= 5; n++)
        for (int way = 0; way < MST_REDUCE_WAYS; way++)
            for (int wire = 0; wire < 3; wire++) {
                if (way == MST_REDUCE_MPI && wire != 0)
                    continue;
                run_and_check((plan){.n_ranks = n,
                                     .sizes = {1, 15, 16, 17, 1000, 70001},
                                     .n_ops = 6,
                                     .way = (mst_reduce_way)way,
                                     .wire = (mst_float_format)wire,
                                     .rounds = 2});
            }
}

/* Parts of several segments, and slices that there is no room to gather. */
static void test_segments(void **state)
{
    (void)state;
    for (int way = 0; way < MST_REDUCE_MPI; way++)
        for (int wire = 0; wire < 2; wire++)
            run_and_check((plan){.n_ranks = 3,
                                 .sizes = {600000, 599983, 196609},
                                 .n_ops = 3,
                                 .way = (mst_reduce_way)way,
                                 .wire = (mst_float_format)wire,
                                 .rounds = 1});
}

static void test_many_at_a_time(void **state)
{
    plan p = {.n_ranks = 3, .n_ops = MAX_OPS, .way = MST_REDUCE_DIRECT, .rounds = 20};
    (void)state;
    for (uint32_t k = 0; k < MAX_OPS; k++)
        p.sizes[k] = 1 + k * 97;
    run_and_check(p);
    p.on_comm = true;
    run_and_check(p);
    p.way = MST_REDUCE_GATHER;
    run_and_check(p);
}

static void test_copy(void **state)
{
    (void)state;
    for (int n = 1; n <= 3; n++)
        run_and_check((plan){.n_ranks = n, .sizes = {100, 3}, .n_ops = 2, .copy = true, .rounds = 3});
}

/* Bytes: what the algorithms promise. */
static void test_bytes(void **state)
{
    rank ranks[FAKE_RANKS];
    (void)state;
    plan p = {.n_ranks = 4, .sizes = {64000}, .n_ops = 1, .way = MST_REDUCE_DIRECT, .rounds = 1};
    run_plan(&p, ranks);
    for (int r = 0; r < 4; r++) {
        assert_in_range(ranks[r].counts.bytes_out, 64000 * 4 * 6 / 4, 64000 * 4 * 6 / 4 + 16);
        assert_in_range(ranks[r].counts.bytes_in, 64000 * 4 * 6 / 4, 64000 * 4 * 6 / 4 + 16);
        assert_int_equal(ranks[r].counts.reductions[MST_REDUCE_DIRECT], 1);
    }
    free_data(&p, ranks);
    p.wire = MST_FLOAT_BF16;
    p.way = MST_REDUCE_GATHER;
    run_plan(&p, ranks);
    for (int r = 0; r < 4; r++)
        assert_in_range(ranks[r].counts.bytes_out, 64000 * 2 * 3, 64000 * 2 * 3 + 16);
    free_data(&p, ranks);
}

/* ---- texts ---- */

static void *text_thread(void *arg)
{
    rank *me = arg;
    char mine[64], *heard = NULL, **all = NULL;
    mst_comm_options options = {.stall_timeout_ms = 60000, .start = fake_start, .start_arg = &me->fake};
    me->status = mst_comm_new(&options, &me->comm);
    snprintf(mine, sizeof mine, "rank %d", me->fake.rank);
    if (me->status == MST_OK)
        me->status = mst_comm_broadcast_text(me->comm, me->fake.rank == 0 ? "do this" : "nothing", &heard);
    if (me->status == MST_OK)
        me->status = mst_comm_gather_texts(me->comm, mine, &all);
    bool good =
        me->status == MST_OK && strcmp(heard, "do this") == 0 && (me->fake.rank == 0) == (all != NULL);
    for (int r = 0; all != NULL && r < 3; r++) {
        snprintf(mine, sizeof mine, "rank %d", r);
        good = good && strcmp(all[r], mine) == 0;
        mst_free(all[r]);
    }
    mst_free(all);
    mst_free(heard);
    if (me->status == MST_OK)
        me->status = mst_comm_end(me->comm);
    if (!good && me->status == MST_OK)
        me->status = MST_EINPUT;
    mst_comm_destroy(me->comm, NULL);
    return NULL;
}

static void test_texts(void **state)
{
    fake_world world;
    rank ranks[3] = {0};
    (void)state;
    fake_init(&world, 3);
    for (int r = 0; r < 3; r++) {
        ranks[r].fake = (fake_rank){&world, r};
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, text_thread, &ranks[r]), 0);
    }
    for (int r = 0; r < 3; r++)
        pthread_join(ranks[r].thread, NULL);
    for (int r = 0; r < 3; r++)
        assert_int_equal(ranks[r].status, MST_OK);
    fake_fini(&world);
}

/* ---- failures ---- */

static mst_status refuse(void *arg, mst_mpi **out)
{
    (void)arg;
    (void)out;
    return mst_fail(MST_EUSAGE, "no MPI today");
}

static void test_no_mpi(void **state)
{
    mst_comm *comm = NULL;
    mst_comm_options options = {.start = refuse};
    (void)state;
    assert_int_equal(mst_comm_new(&options, &comm), MST_EUSAGE);
    assert_string_equal(mst_error_text(), "no MPI today");
    assert_null(comm);
}

/* The other rank never posts: the wait ends at its deadline, and the error names the missing message. */
static void test_deadline(void **state)
{
    fake_world world;
    float data[4] = {1};
    mst_reduce_op op = {.data = data, .n = 4, .way = MST_REDUCE_GATHER};
    mst_comm *comm = NULL;
    (void)state;
    fake_init(&world, 2);
    fake_rank fake = {&world, 0};
    mst_comm_options options = {.stall_timeout_ms = 50, .start = fake_start, .start_arg = &fake};
    assert_int_equal(mst_comm_new(&options, &comm), MST_OK);
    assert_int_equal(mst_comm_shape(comm, MST_FLOAT_FP32, 4), MST_OK);
    assert_int_equal(mst_comm_post(comm, &op), MST_OK);
    assert_int_equal(mst_comm_wait(comm, &op), MST_ETIMEOUT);
    assert_non_null(strstr(mst_error_text(), "rank 0 has waited 0 s for the sum of a gradient"));
    mst_reduce_op longer = {.data = data, .n = 5};
    assert_int_equal(mst_comm_post(comm, &longer), MST_EUSAGE);
    mst_comm_destroy(comm, "gone");
    fake_fini(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),   cmocka_unit_test(test_segments), cmocka_unit_test(test_many_at_a_time),
        cmocka_unit_test(test_copy),   cmocka_unit_test(test_bytes),    cmocka_unit_test(test_texts),
        cmocka_unit_test(test_no_mpi), cmocka_unit_test(test_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
