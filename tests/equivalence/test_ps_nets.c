/* Nets with the parameter server, in threads of one process. Sending large steps in parts during computation
 * changes no bit, for any numbers of workers and servers, every mode and wire format. LeNet, with and without
 * dropout, equals local training. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "job_trial.h"
#include "trial_images.h"

#define N_ROWS  96
#define SIDE    28
#define CLASSES 10

/* The thread sanitizer does not see how the threads of GNU's OpenMP wait for each other. */
#ifdef __SANITIZE_THREAD__
#define EXECUTOR "plain"
#else
#define EXECUTOR "auto"
#endif

/* Images, and three nets. */
static int make_data(void **state)
{
    if (trial_make_root(state) != 0)
        return -1;
    trial_images(N_ROWS, SIDE, CLASSES, 2, 3);
    trial_write("lenet.net",
                "conv 6 kernel=5 pad=2\ntanh\navgpool 2\nconv 16 kernel=5\ntanh\navgpool 2\nlinear 120\n"
                "tanh\nlinear 84\ntanh\nlinear classes\n");
    trial_write("lenet-dropout.net",
                "conv 6 kernel=5 pad=2\ntanh\navgpool 2\nconv 16 kernel=5\ntanh\navgpool 2\nlinear 120\n"
                "tanh\ndropout 0.5\nlinear 84\ntanh\ndropout 0.3\nlinear classes\n");
    trial_write("norm.net", "conv 5 kernel=3\nnorm: batchnorm\nrelu\navgpool 2\nlinear 20\nlinear classes\n");
    return 0;
}

/* net: NULL is an mlp of 32,000 parameters. */
static void set_net(trial *t, const char *net, int batch)
{
    trial_set(t, "model", net != NULL ? "net" : "mlp");
    if (net != NULL)
        trial_set(t, "net", trial_path(net));
    else
        trial_set(t, "hidden", "40,20");
    if (net == NULL)
        trial_set(t, "activation", "tanh");
    trial_set(t, "executor", EXECUTOR);
    trial_int(t, "batch", batch);
    trial_set(t, "optimizer", "momentum");
    trial_set(t, "lr", "0.02");
    trial_set(t, "epochs", "2");
}

static void train_local(trial *t, const char *net, int batch)
{
    trial_init(t, "train-images-idx3-ubyte", "local");
    trial_set(t, "overwrite", "true");
    trial_set(t, "save", "false");
    set_net(t, net, batch);
    trial_must_run(t);
}

typedef struct setting {
    int servers, workers, batch, part;
    const char *mode, *wire, *pipeline, *clip, *quorum;
} setting;

static void train_job(const char *net, const setting *s, trained *r)
{
    trial t;
    job_init(&t, "train-images-idx3-ubyte", "job", s->servers, s->workers);
    trial_set(&t, "overwrite", "true");
    set_net(&t, net, s->batch);
    trial_set(&t, "mode", s->mode);
    trial_int(&t, "part", s->part);
    trial_set(&t, "wire", s->wire != NULL ? s->wire : "fp32");
    trial_set(&t, "pipeline", s->pipeline != NULL ? s->pipeline : "0");
    trial_set(&t, "clip-norm", s->clip != NULL ? s->clip : "0");
    trial_set(&t, "quorum", s->quorum != NULL ? s->quorum : "0");
    job_train(&t, r);
    assert_int_equal(t.summary.status.rows, 2 * N_ROWS);
    trial_fini(&t);
}

static void sync_in_parts_is_the_same(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 3; workers++) {
        trial local;
        trained whole;
        train_local(&local, NULL, 12 * workers);
        train_job(NULL, &(setting){1, workers, 12, 0, .mode = "sync"}, &whole);
        assert_true(params_distance(trial_params(&local), &whole.assembly.params) < 1e-5);
        for (int servers = 1; servers <= 3; servers++) {
            trained parts;
            train_job(NULL, &(setting){servers, workers, 12, 1000, .mode = "sync"}, &parts);
            assert_true(params_same_bits(&whole.assembly.params, &parts.assembly.params));
            trained_fini(&parts);
        }
        trained_fini(&whole);
        trial_fini(&local);
    }
}

static void one_asynchronous_worker_is_local(void **state)
{
    static const char *const modes[] = {"async", "ssp"};
    trial local;
    (void)state;
    train_local(&local, NULL, 16);
    for (int m = 0; m < 2; m++)
        for (int servers = 1; servers <= 2; servers++) {
            trained parts;
            train_job(NULL, &(setting){servers, 1, 16, 1000, .mode = modes[m]}, &parts);
            assert_true(params_same_bits(trial_params(&local), &parts.assembly.params));
            trained_fini(&parts);
        }
    trial_fini(&local);
}

/* Halves on the wire, a limit to the gradient on servers and on workers, state, few parts
 * and many. */
static void other_settings_are_the_same(void **state)
{
    static const struct {
        const char *net;
        setting s;
    } cases[] = {
        {NULL, {2, 2, 12, 1000, .mode = "sync", .wire = "bf16"}},
        {NULL, {1, 1, 12, 700, .mode = "async", .wire = "fp16"}},
        {NULL, {1, 2, 12, 1000, .mode = "sync", .clip = "0.3"}},
        {NULL, {2, 1, 12, 1000, .mode = "async", .clip = "0.3"}},
        {NULL, {1, 2, 12, 31000, .mode = "sync"}},
        {NULL, {3, 2, 12, 256, .mode = "sync"}},
        {"norm.net", {2, 2, 12, 1000, .mode = "sync"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setting s = cases[i].s;
        trained whole, parts;
        train_job(cases[i].net, &s, &parts);
        s.part = 0;
        train_job(cases[i].net, &s, &whole);
        bool same = params_same_bits(&whole.assembly.params, &parts.assembly.params);
        if (!same)
            print_error("case %zu differs\n", i);
        assert_true(same);
        trained_fini(&whole);
        trained_fini(&parts);
    }
}

/* Requests in flight: pulls meet pushes in an order of their own. */
static void pipelines_get_through(void **state)
{
    static const char *const modes[] = {"async", "ssp"};
    (void)state;
    for (int m = 0; m < 2; m++) {
        trained r;
        train_job(NULL, &(setting){2, 2, 4, 1000, .mode = modes[m], .pipeline = "2"}, &r);
        trained_fini(&r);
    }
}

/* Whoever pushes late is dropped, with the parts that were there. */
static void backup_workers_get_through(void **state)
{
    (void)state;
    for (int servers = 1; servers <= 2; servers++) {
        trial t;
        job_init(&t, "train-images-idx3-ubyte", "job", servers, 3);
        trial_set(&t, "overwrite", "true");
        set_net(&t, NULL, 4);
        trial_set(&t, "mode", "sync");
        trial_set(&t, "quorum", "2");
        trial_int(&t, "part", 1000);
        job_must_run(&t, NULL);
        trial_fini(&t);
    }
}

static void lenet_is_local(void **state)
{
    static const char *const nets[] = {"lenet.net", "lenet-dropout.net"};
    (void)state;
    for (int n = 0; n < 2; n++) {
        trial local;
        trained job;
        for (int workers = 2; workers <= 3; workers++) {
            train_local(&local, nets[n], 8 * workers);
            for (int servers = 1; servers <= 3; servers++) {
                train_job(nets[n],
                          &(setting){servers, workers, 8, servers == 2 ? 1000 : 1 << 20, .mode = "sync"},
                          &job);
                assert_true(params_distance(trial_params(&local), &job.assembly.params) < 1e-5);
                trained_fini(&job);
            }
            trial_fini(&local);
        }
        train_local(&local, nets[n], 16);
        train_job(nets[n], &(setting){1, 1, 16, 1 << 20, .mode = "async"}, &job);
        assert_true(params_same_bits(trial_params(&local), &job.assembly.params));
        trained_fini(&job);
        trial_fini(&local);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sync_in_parts_is_the_same),   cmocka_unit_test(one_asynchronous_worker_is_local),
        cmocka_unit_test(other_settings_are_the_same), cmocka_unit_test(pipelines_get_through),
        cmocka_unit_test(backup_workers_get_through),  cmocka_unit_test(lenet_is_local),
    };
    return cmocka_run_group_tests(tests, make_data, trial_remove_root);
}
