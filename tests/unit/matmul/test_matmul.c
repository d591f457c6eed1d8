/* Products and traces compared with a direct computation in double, on 1 to 5 ranks in threads, with every
 * kind of plan; the check finds a wrong element; errors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "matmul/matmul.h"
#include "matmul/matrix.h"
#include "unit/matmul/fake_mpi.h"

static atomic_bool go_on;
static char folder[64];

typedef struct job {
    mst_matmul_options options;
    mst_status status[FAKE_RANKS];
    char sentence[FAKE_RANKS][MST_ERROR_MAX];
    mst_matmul_plan plan;
    mst_matmul_result result[FAKE_RANKS];
    bool all_taken;
} job;

static void work(mst_mpi *mpi, void *arg)
{
    job *j = arg;
    int rank = mpi != NULL ? mpi->rank : 0;
    mst_matmul_options o = j->options;
    mst_matmul *mm = NULL;
    o.mpi = mpi;
    o.n_threads = 1;
    o.stop = &go_on;
    mst_status st = mst_matmul_new(&o, &mm);
    if (st == MST_OK) {
        if (rank == 0)
            j->plan = *mst_matmul_plan_of(mm);
        st = mst_matmul_run(mm, &j->result[rank]);
    }
    j->status[rank] = st;
    snprintf(j->sentence[rank], MST_ERROR_MAX, "%s", st != MST_OK ? mst_error_text() : "");
    if (mpi != NULL)
        fake_barrier(0); /* others may still read from what this one sends */
    mst_matmul_destroy(mm);
}

/* size 0: without MPI. */
static void run_job(job *j, int size)
{
    j->all_taken = true;
    if (size == 0)
        work(NULL, j);
    else
        j->all_taken = fake_run(size, work, j);
}

static void run_well(job *j, int size)
{
    run_job(j, size);
    assert_true(j->all_taken);
    for (int r = 0; r < (size > 0 ? size : 1); r++)
        if (j->status[r] != MST_OK)
            fail_msg("rank %d of %d: %s", r, size, j->sentence[r]);
}

static float *whole(const mst_matrix *m)
{
    float *out = malloc(m->rows * m->cols * sizeof *out);
    assert_int_equal(mst_matrix_fetch(m, mst_mm_kernels_get(mst_isa_best()), 1, 0, 0, m->rows, m->cols, out),
                     MST_OK);
    return out;
}

/* What the product must be, in double. */
static double *direct(uint64_t m, uint64_t n, uint64_t k, uint64_t seed)
{
    mst_matrix a, b;
    mst_matrix_generated(&a, m, k, seed, 0);
    mst_matrix_generated(&b, k, n, seed, 1);
    float *x = whole(&a), *y = whole(&b);
    double *c = calloc(m * n, sizeof *c);
    for (uint64_t i = 0; i < m; i++)
        for (uint64_t p = 0; p < k; p++)
            for (uint64_t j = 0; j < n; j++)
                c[i * n + j] += (double)x[i * k + p] * (double)y[p * n + j];
    free(x);
    free(y);
    return c;
}

static void assert_product(const char *path, const double *expected, uint64_t m, uint64_t n, uint64_t k)
{
    mst_matrix c;
    assert_int_equal(mst_matrix_open(&c, path), MST_OK);
    assert_int_equal(c.rows, m);
    assert_int_equal(c.cols, n);
    float *got = whole(&c);
    for (uint64_t i = 0; i < m * n; i++)
        if (!(fabs((double)got[i] - expected[i]) <= 1e-6 * (double)(k + 4)))
            fail_msg("element %llu of %llux%llux%llu: %g instead of %g", (unsigned long long)i,
                     (unsigned long long)m, (unsigned long long)k, (unsigned long long)n, (double)got[i],
                     expected[i]);
    free(got);
    mst_matrix_close(&c);
}

/* Nothing but `left` files stand in the folder. */
static void assert_files(int left)
{
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(d);
    assert_int_equal(n, left);
}

static void try_shape(uint64_t m, uint64_t n, uint64_t k)
{
    char path[128];
    double *expected = direct(m, n, k, 3);
    snprintf(path, sizeof path, "%s/c.npy", folder);
    for (int size = 0; size <= 5; size++) {
        for (int placement = 0; placement < 2; placement++) {
            job j = {.options = {.m = m, .n = n, .k = k, .seed = 3, .block = 7, .out = path, .check = true}};
            j.options.placement = (mst_matmul_placement)placement;
            run_well(&j, size);
            assert_product(path, expected, m, n, k);
            double norm2 = 0;
            for (uint64_t i = 0; i < m * n; i++)
                norm2 += expected[i] * expected[i];
            const mst_matmul_result *r = &j.result[0];
            assert_true(fabs(r->norm - sqrt(norm2)) <= 1e-5 * sqrt(norm2) + 1e-12);
            assert_true(r->checked && r->check_share <= 1);
            assert_int_equal(r->moved, j.plan.moved);
            if (placement == MST_PLACEMENT_TOGETHER && size > 1 && m > 28 && n > 28)
                assert_true(r->moved < j.plan.moved_round_robin);
            if (placement == MST_PLACEMENT_ROUND_ROBIN)
                assert_int_equal(r->moved, j.plan.moved_round_robin);
            assert_files(1);
            unlink(path);
        }
    }
    free(expected);
}

static void test_shapes(void **state)
{
    (void)state;
    try_shape(1, 1, 1);
    try_shape(1, 5, 3);
    try_shape(2, 1, 40);
    try_shape(13, 17, 11);
    try_shape(31, 29, 37);
    try_shape(64, 40, 3);
    try_shape(7, 70, 100);
}

static void test_grids(void **state)
{
    (void)state;
    char path[128];
    static const uint32_t grids[][2] = {{1, 4}, {2, 2}, {4, 1}};
    double *expected = direct(37, 41, 53, 3);
    snprintf(path, sizeof path, "%s/c.npy", folder);
    for (int g = 0; g < 3; g++) {
        job j = {.options = {.m = 37, .n = 41, .k = 53, .seed = 3, .block = 8, .out = path, .check = true}};
        memcpy(j.options.grid, grids[g], sizeof grids[g]);
        run_well(&j, 4);
        assert_product(path, expected, 37, 41, 53);
        uint64_t moved = 4 * (37 * 53 * (uint64_t)(grids[g][1] - 1) + 53 * 41 * (uint64_t)(grids[g][0] - 1));
        assert_int_equal(j.result[0].moved, moved);
    }
    unlink(path);
    free(expected);
}

/* Less and less memory: shares, then streams, then passes; always the same product; then a refusal. */
static void test_plans(void **state)
{
    (void)state;
    char path[128];
    uint64_t m = 150, n = 130, k = 170, seen_passes = 0, seen_streams = 0, last = 1 << 20;
    double *expected = direct(m, n, k, 3);
    snprintf(path, sizeof path, "%s/c.npy", folder);
    for (int size = 0; size <= 5; size += 5) {
        for (uint64_t memory = last; memory > 1000; memory = memory * 2 / 3) {
            job j = {.options = {.m = m, .n = n, .k = k, .seed = 3, .memory = memory, .out = path}};
            run_job(&j, size);
            if (j.status[0] != MST_OK) {
                assert_int_equal(j.status[0], MST_ENOMEM);
                assert_non_null(strstr(j.sentence[0], "150 x 170 x 130 on"));
                assert_non_null(strstr(j.sentence[0], "--memory leaves"));
                assert_true(memory < 5000);
                continue;
            }
            assert_true(j.plan.total <= memory);
            assert_product(path, expected, m, n, k);
            assert_int_equal(j.result[0].moved, j.plan.moved);
            seen_passes += j.plan.row_passes > 1 && j.plan.col_passes > 1;
            seen_streams += !j.plan.keeps_a && j.plan.row_passes == 1 && j.plan.col_passes == 1;
            unlink(path);
        }
    }
    assert_true(seen_passes > 0 && seen_streams > 0);
    free(expected);
}

static void test_check_finds_errors(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/c.npy", folder);
    for (int size = 0; size <= 3; size += 3) {
        job j = {.options = {
                     .m = 50, .n = 60, .k = 70, .seed = 5, .out = path, .check = true, .spoil = 20 * 60 + 8}};
        run_job(&j, size);
        assert_int_equal(j.status[0], MST_EINPUT);
        assert_non_null(strstr(j.sentence[0], "the result is not the product of A and B"));
        assert_non_null(strstr(j.sentence[0], "row 20 "));
        assert_files(0);

        job good = {.options = {.m = 50, .n = 60, .k = 70, .seed = 5, .out = path, .check = true}};
        run_well(&good, size);
        job verify = {
            .options = {.what = MST_MATMUL_VERIFY, .m = 50, .n = 60, .k = 70, .seed = 5, .c = path}};
        run_well(&verify, size);
        assert_true(verify.result[0].checked);
        FILE *file = fopen(path, "r+b");
        fseek(file, 128 + 4 * (7 * 60 + 3) + 3, SEEK_SET); /* the exponent of element (7, 3) */
        fputc(0x43, file);
        fclose(file);
        run_job(&verify, size);
        assert_int_equal(verify.status[0], MST_EINPUT);
        assert_non_null(strstr(verify.sentence[0], "c.npy is not the product of A and B"));
        assert_non_null(strstr(verify.sentence[0], "row 7 "));
        unlink(path);
    }
}

static void test_trace(void **state)
{
    (void)state;
    static const uint64_t sides[][2] = {{1, 1}, {1, 9}, {17, 5}, {33, 40}, {90, 61}, {300, 310}};
    for (size_t s = 0; s < sizeof sides / sizeof *sides; s++) {
        uint64_t m = sides[s][0], k = sides[s][1];
        double *c = direct(m, m, k, 9), expected = 0, first = 0;
        for (uint64_t i = 0; i < m; i++)
            expected += c[i * m + i];
        free(c);
        for (int size = 0; size <= 5; size++) {
            for (int way = 0; way < 4; way++) {
                job j = {
                    .options = {.what = MST_MATMUL_TRACE, .m = m, .n = m, .k = k, .seed = 9, .block = 16}};
                if (way == 1)
                    j.options.memory = 16 * 16 * 4 * 6 + 8192; /* too little to keep the larger ones */
                if (way == 2)
                    j.options.placement = MST_PLACEMENT_ROUND_ROBIN;
                if (way == 3)
                    j.options.what = MST_MATMUL_TRACE_BY_PRODUCT;
                run_well(&j, size);
                double got = j.result[0].trace, off = fabs(got - expected);
                assert_true(off <= (way == 3 ? 1e-5 : 1e-11) * (double)(m + k));
                assert_int_equal(j.result[0].moved, way == 2 ? j.plan.moved_round_robin : 0);
                if (size == 5 && m == 300)
                    assert_true(j.plan.moved_round_robin > 100000);
                if (way == 0 && size == 0)
                    first = got;
                if (way == 1 && size == 0)
                    assert_true(got == first); /* however it was read */
                for (int r = 1; r < size; r++)
                    assert_true(j.result[r].trace == got);
            }
        }
    }
}

static void refused(mst_matmul_options o, int size, mst_status code, const char *sentence)
{
    job j = {.options = o};
    run_job(&j, size);
    for (int r = 0; r < (size > 0 ? size : 1); r++) {
        assert_int_equal(j.status[r], code);
        if (strstr(j.sentence[r], sentence) == NULL)
            fail_msg("\"%s\" does not say: %s", j.sentence[r], sentence);
    }
}

static void test_refusals(void **state)
{
    (void)state;
#define GOLDEN(name) MUSTER_TEST_DATA "/golden/npy/" name
    mst_matmul_options o = {.m = 4, .n = 5, .k = 6, .what = MST_MATMUL_TRACE};
    refused(o, 3, MST_EINPUT, "the product is 4 x 5; only a square one has a trace");
    o = (mst_matmul_options){.m = 4, .n = 5, .k = 6, .grid = {2, 2}};
    refused(o, 3, MST_EUSAGE, "--grid 2x2 needs 4 ranks, but there are 3");
    o = (mst_matmul_options){.a = GOLDEN("a.npy"), .b = GOLDEN("c.npy")};
    refused(o, 2, MST_EINPUT, "as many columns as the second has rows");
    o = (mst_matmul_options){.a = GOLDEN("a.npy"), .b = "/nowhere/b.npy"};
    refused(o, 0, MST_EINPUT, "/nowhere/b.npy: cannot be opened");
    o = (mst_matmul_options){.a = GOLDEN("a.npy"), .b = GOLDEN("b.npy"), .out = "/nowhere/c.npy"};
    refused(o, 0, MST_EIO, "/nowhere/c.npy: cannot be created");
    o = (mst_matmul_options){
        .a = GOLDEN("a.npy"), .b = GOLDEN("b.npy"), .c = GOLDEN("a.npy"), .what = MST_MATMUL_VERIFY};
    refused(o, 0, MST_EINPUT, "a.npy is 3 x 5, but the product is 3 x 4");
    o.c = GOLDEN("c.npy");
    job j = {.options = o};
    run_well(&j, 2);
    o.a = GOLDEN("too_large.npy");
    o.b = GOLDEN("too_large.npy");
    refused(o, 0, MST_EINPUT, "too_large.npy");
}

/* A stop in the middle leaves nothing behind. */
static void stop_soon(void *arg, double done, double total)
{
    (void)arg;
    if (done > total / 3)
        atomic_store(&go_on, true);
}

static void test_stop(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/c.npy", folder);
    for (int size = 0; size <= 3; size += 3) {
        job j = {.options = {.m = 100, .n = 100, .k = 1000, .seed = 3, .block = 10, .out = path}};
        j.options.progress = stop_soon;
        run_job(&j, size);
        for (int r = 0; r < (size > 0 ? size : 1); r++)
            assert_int_equal(j.status[r], MST_ESTOPPED);
        assert_files(0);
        atomic_store(&go_on, false);
    }
}

static int set_up(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/mst_matmul_XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    return mst_remove_tree(folder) != MST_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes), cmocka_unit_test(test_grids),
        cmocka_unit_test(test_plans),  cmocka_unit_test(test_check_finds_errors),
        cmocka_unit_test(test_trace),  cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
