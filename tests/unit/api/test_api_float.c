/* Subnormal numbers count as 0 in every thread that computes for the public interface, and the floating-point
 * environment of the program is the same after a call as before. */
#include "unit/api/api_trial.h"

#include <fenv.h>
#include <pthread.h>

#include "base/float_mode.h"
#include "tensor/dnnl_ops.h"

#define OMP_THREADS 3

/* As an operand and as a result. */
static bool flushes(void)
{
    volatile float subnormal = 1e-39f, small = 2e-38f;
    return subnormal * 1e10f == 0.0f && small * 0.25f == 0.0f;
}

/* ---- a layer that observes the thread it runs in ---- */

static atomic_uint passes, wrong;
static pthread_t program;
static atomic_bool others; /* a thread other than the program's computes */

static void observe(void)
{
    atomic_fetch_add(&passes, 1);
    atomic_fetch_add(&wrong, !flushes());
    if (!pthread_equal(pthread_self(), program))
        atomic_store(&others, true);
}

static muster_status probe_shape(const muster_layer_info *info, muster_layer_shape *out)
{
    out->out = info->in;
    return MUSTER_OK;
}

static void probe_forward(const muster_layer_info *info, void *state, const muster_pass *pass, uint32_t n,
                          const float *x, float *const *w, float *y)
{
    (void)state;
    (void)pass;
    (void)w;
    observe();
    memcpy(y, x, (size_t)n * info->in.c * sizeof *x);
}

static void probe_backward(const muster_layer_info *info, void *state, const muster_pass *pass, uint32_t n,
                           const float *x, const float *y, const float *dy, float *const *w, float *dx,
                           float *const *g)
{
    (void)state;
    (void)pass;
    (void)x;
    (void)y;
    (void)w;
    (void)g;
    observe();
    if (dx != NULL)
        memcpy(dx, dy, (size_t)n * info->in.c * sizeof *dx);
}

static const muster_layer probe = {
    .kind = "probe", .shape = probe_shape, .forward = probe_forward, .backward = probe_backward};

/* ---- OpenMP threads, which the program and the library share ---- */

static void count_flushing(void *arg, unsigned i)
{
    (void)i;
    atomic_fetch_add((atomic_uint *)arg, flushes());
}

static unsigned omp_flushing(void)
{
    atomic_uint n = 0;
    int before = mst_dnnl_enter(OMP_THREADS);
    mst_dnnl_each(OMP_THREADS, count_flushing, &n);
    mst_dnnl_leave(before);
    return n;
}

/* ---- tests ---- */

/* The flags of exceptions and the mode are the same after a call as before. */
#define keeps_environment(call)                                                                              \
    do {                                                                                                     \
        feclearexcept(FE_ALL_EXCEPT);                                                                        \
        feraiseexcept(FE_DIVBYZERO);                                                                         \
        muster_status keeps_st_ = (call);                                                                    \
        assert_int_equal(fetestexcept(FE_ALL_EXCEPT), FE_DIVBYZERO);                                         \
        assert_false(flushes());                                                                             \
        assert_int_equal(omp_flushing(), 0);                                                                 \
        ok(keeps_st_);                                                                                       \
    } while (0)

static void training_and_prediction_flush(void **state)
{
    static const char *const ways[][8] = {
        {"threads", "2", "strategy", "local", "executor", "plain", "mode", "sync"},
        {"threads", "2", "strategy", "local", "executor", "plain", "mode", "async"},
        {"threads", "3", "strategy", "local", "executor", "dnnl", "mode", "sync"},
        {"workers", "2", "strategy", "ps", "executor", "plain", "mode", "sync"},
    };
    muster_reader r = dense_reader(500);
    float p[CLASSES], dense[DENSE] = {0, 1, 0, 0, 1, 0};
    muster_row row = {.dense = dense, .n_dense = DENSE};
    (void)state;
    if (MST_FLOAT_FLUSH == 0)
        skip(); /* no mode on this machine */
    program = pthread_self();
    assert_int_equal(omp_flushing(), 0); /* and OpenMP has made its threads, in the mode of the program */
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char run[16];
        muster_net *net = NULL;
        muster_trainer *trainer = NULL;
        muster_summary summary;
        muster_model *model = NULL;
        atomic_store(&passes, 0);
        atomic_store(&others, false);
        snprintf(run, sizeof run, "way-%zu", i);
        const char *const *w = ways[i];
        muster_options *o = prepare(&r, run, "model", "net", "test", "rows", w[0], w[1], w[2], w[3], w[4],
                                    w[5], w[6], w[7], NULL);
        ok(muster_net_new(&net));
        ok(muster_net_add_kind(net, &probe));
        ok(muster_net_add(net, "linear 8\nprobe\nlinear classes\n"));
        ok(muster_options_set_net(o, net));
        keeps_environment(muster_trainer_new(o, &trainer));
        keeps_environment(muster_trainer_run(trainer, 0, NULL, NULL, &summary));
        assert_true(atomic_load(&passes) > 50);
        if (strcmp(w[5], "plain") == 0 && strcmp(w[7], "sync") == 0)
            assert_true(atomic_load(&others)); /* asynchronous threads may come too late for rows */
        ok(muster_model_load(summary.checkpoint, net, &model));
        unsigned before = atomic_load(&passes);
        keeps_environment(muster_model_predict(model, &row, 1, p));
        assert_int_equal(atomic_load(&passes), before + 1);
        assert_int_equal(atomic_load(&wrong), 0);
        muster_model_free(model);
        muster_trainer_free(trainer);
        muster_options_free(o);
        muster_net_free(net);
    }
}

static void openmp_threads_take_over_the_mode(void **state)
{
    (void)state;
    if (MST_FLOAT_FLUSH == 0)
        skip();
    assert_int_equal(omp_flushing(), 0);
    mst_float_mode mode = mst_float_flush();
    assert_int_equal(omp_flushing(), OMP_THREADS);
    assert_int_equal(omp_flushing(), OMP_THREADS);
    mst_float_mode_set(mode);
    mst_dnnl_restore_mode();
    assert_int_equal(omp_flushing(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(openmp_threads_take_over_the_mode),
        cmocka_unit_test(training_and_prediction_flush),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
