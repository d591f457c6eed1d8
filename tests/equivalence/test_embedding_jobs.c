/* Nets over embeddings in every strategy of one process and with the parameter server in threads: synchronous
 * jobs equal local training to rounding, one asynchronous worker equals it bit for bit, and so does a resumed
 * run. Rows are click logs with a dense prefix, and logs whose keys are in the order of their fields. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "job_trial.h"

#define N_ROWS   240
#define FEATURES 3000

typedef struct net {
    const char *model, *file, *optimizer, *dropout, *sparse; /* sparse: --optimizer-sparse, or NULL */
} net;

static const net nets[] = {
    {"deepfm", "clicks.cache", "adagrad", "0", NULL},   {"dcn", "clicks.tsv", "adam", "0", NULL},
    {"wide-deep", "clicks.tsv", "sgd", "0.2", NULL},    {"dlrm", "clicks.cache", "momentum", "0", NULL},
    {"deepfm", "clicks.cache", "adam", "0", "rowwise"}, {"wide-deep", "clicks.tsv", "sgd", "0", "ftrl"},
};
enum { N_NETS = sizeof nets / sizeof *nets };

/* A log in Criteo's format, with missing fields. */
static void write_log(const char *name)
{
    static char text[N_ROWS * 400];
    size_t n = 0;
    mst_rng rng;
    mst_rng_init(&rng, 1, MST_RNG_TEST, 0);
    for (int r = 0; r < N_ROWS; r++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "%u", mst_rng_below(&rng, 2));
        for (int i = 0; i < 39; i++) {
            bool missing = mst_rng_below(&rng, 8) == 0;
            if (missing)
                n += (size_t)snprintf(text + n, sizeof text - n, "\t");
            else
                n += (size_t)snprintf(text + n, sizeof text - n, i < 13 ? "\t%u" : "\t%08x",
                                      mst_rng_below(&rng, 10) * (i < 13 ? 1 : 0x1234567));
        }
        n += (size_t)snprintf(text + n, sizeof text - n, "\n");
    }
    trial_write(name, text);
}

static int make_data(void **state)
{
    if (trial_make_root(state) != 0)
        return -1;
    trial_clicks("clicks.cache", N_ROWS, 0, FEATURES);
    write_log("clicks.tsv");
    return 0;
}

static void set_net(trial *t, const net *n, int batch)
{
    trial_set(t, "model", n->model);
    trial_int(t, "features", FEATURES);
    if (strstr(n->file, ".tsv") != NULL) {
        trial_set(t, "format", "criteo");
        trial_set(t, "cache", "true");
        trial_set(t, "cache-folder", trial_path("caches"));
    }
    trial_set(t, "embedding", "4");
    trial_set(t, "hidden", "12,8");
    trial_set(t, "dropout", n->dropout);
    trial_set(t, "activation", "tanh");
    trial_set(t, "optimizer", n->optimizer);
    if (n->sparse != NULL) {
        trial_set(t, "optimizer-sparse", n->sparse);
        trial_set(t, "lr-sparse", "0.02");
    }
    trial_set(t, "lr", "0.01");
    trial_set(t, "l2", "0.001");
    trial_set(t, "eps", "0.001");
    trial_set(t, "shuffle-rows", "100");
    trial_int(t, "batch", batch);
    trial_set(t, "epochs", "2");
}

static void train_local(trial *t, const net *n, int batch, const char *mode, int threads)
{
    trial_init(t, n->file, "local");
    trial_set(t, "overwrite", "true");
    trial_set(t, "save", "false");
    set_net(t, n, batch);
    trial_set(t, "mode", mode);
    trial_int(t, "threads", threads);
    trial_must_run(t);
    assert_int_equal(t->summary.status.rows, 2 * N_ROWS);
}

static void begin_job(trial *t, const net *n, const char *run, int servers, int workers, int batch,
                      const char *mode)
{
    job_init(t, n->file, run, servers, workers);
    set_net(t, n, batch);
    trial_set(t, "mode", mode);
    trial_set(t, "pipeline", "0");
    trial_set(t, "stall-timeout", "20");
}

static void train_job(trained *r, const net *n, int servers, int workers, int batch, const char *mode,
                      const char *wire)
{
    trial t;
    begin_job(&t, n, "job", servers, workers, batch, mode);
    trial_set(&t, "overwrite", "true");
    trial_set(&t, "wire", wire);
    job_train(&t, r);
    assert_int_equal(t.summary.status.rows, 2 * N_ROWS);
    trial_fini(&t);
}

static void threads_equal_one(void **state)
{
    (void)state;
    for (int n = 0; n < N_NETS; n++) {
        trial one, async, several;
        train_local(&one, &nets[n], 24, "sync", 1);
        train_local(&async, &nets[n], 24, "async", 1);
        trial_same_bits(&one, &async);
        for (int threads = 2; threads <= 3; threads++) {
            train_local(&several, &nets[n], 24, "sync", threads);
            assert_true(trial_distance(&one, &several) < 1e-5);
            trial_fini(&several);
        }
        trial_fini(&one);
        trial_fini(&async);
    }
}

static void workers_equal_local(void **state)
{
    (void)state;
    for (int n = 0; n < N_NETS; n++)
        for (int workers = 1; workers <= 3; workers++) {
            trial local;
            train_local(&local, &nets[n], 8 * workers, "sync", 1);
            for (int servers = 1; servers <= 3; servers++) {
                trained job;
                train_job(&job, &nets[n], servers, workers, 8, "sync", "fp32");
                double distance = params_distance(trial_params(&local), &job.assembly.params);
                if (!(distance < 1e-5))
                    fail_msg("%s, %d workers, %d servers: %g", nets[n].model, workers, servers, distance);
                trained_fini(&job);
            }
            trial_fini(&local);
        }
}

static void one_asynchronous_worker_is_local(void **state)
{
    static const char *const modes[] = {"async", "ssp"};
    (void)state;
    for (int n = 0; n < N_NETS; n++) {
        trial local;
        train_local(&local, &nets[n], 16, "sync", 1);
        for (int m = 0; m < 2; m++)
            for (int servers = 1; servers <= 2; servers++) {
                trained job;
                train_job(&job, &nets[n], servers, 1, 16, modes[m], "fp32");
                double distance = params_distance(trial_params(&local), &job.assembly.params);
                if (!(distance < 1e-6))
                    fail_msg("%s, %s, %d servers: %g", nets[n].model, modes[m], servers, distance);
                trained_fini(&job);
            }
        trial_fini(&local);
    }
}

static void other_jobs_get_through(void **state)
{
    trained job;
    (void)state;
    train_job(&job, &nets[0], 2, 3, 8, "async", "bf16");
    trained_fini(&job);
    train_job(&job, &nets[1], 2, 2, 8, "ssp", "fp16");
    trained_fini(&job);
}

/* Stopped at any step and resumed, a run gives the bits of the undisturbed one. */
static void resumed_runs_are_the_same(void **state)
{
    (void)state;
    for (int n = 0; n < N_NETS; n++)
        for (int ps = 0; ps < 2; ps++) {
            trained whole, parts;
            trial t;
            begin_job(&t, &nets[n], "whole", 2, 2, 12, "sync");
            if (!ps)
                trial_set(&t, "strategy", "local");
            trial_set(&t, "overwrite", "true");
            if (ps)
                job_must_run(&t, NULL);
            else
                trial_must_run(&t);
            trained_load(&whole, &t, t.train.run);
            trial_fini(&t);
            assert_int_equal(mst_remove_tree(trial_path("parts")), MST_OK);
            for (int part = 0; part < 2; part++) {
                begin_job(&t, &nets[n], "parts", 2, 2, 12, "sync");
                if (!ps)
                    trial_set(&t, "strategy", "local");
                t.stop_at = part == 0 ? 5 : 0;
                if (part > 0)
                    trial_set(&t, "resume", "true");
                if (ps)
                    job_must_run(&t, NULL);
                else
                    trial_must_run(&t);
                if (part > 0)
                    trained_load(&parts, &t, t.train.run);
                trial_fini(&t);
            }
            if (!params_same_bits(&whole.assembly.params, &parts.assembly.params))
                fail_msg("%s, %s: differs", nets[n].model, ps ? "ps" : "local");
            trained_fini(&whole);
            trained_fini(&parts);
        }
}

/* --sparse-mode async: with sgd, N workers are close to synchronous ones with N times the learning rate of
 * the table, and equal to rounding unless a server answers one worker after it has updated keys by the next
 * push of another; one worker equals synchronous training bit for bit with every optimizer. */
static void tables_are_asynchronous(void **state)
{
    (void)state;
    for (int n = 0; n < N_NETS; n++) {
        bool sgd = strcmp(nets[n].optimizer, "sgd") == 0 && nets[n].sparse == NULL;
        for (int workers = 1; workers <= (sgd ? 3 : 1); workers += 2)
            for (int servers = 1; servers <= 2; servers++) {
                trial t;
                trained sync, async;
                for (int which = 0; which < 2; which++) {
                    job_init(&t, nets[n].file, NULL, servers, workers);
                    set_net(&t, &nets[n], 20);
                    trial_set(&t, "dropout", "0");
                    if (sgd) { /* L2 acts once for each push that has the key */
                        trial_set(&t, "l2", "0");
                        trial_set(&t, "lr-sparse", which == 0 && workers == 3 ? "0.03" : "0.01");
                    }
                    trial_set(&t, "sparse-mode", which == 0 ? "same" : "async");
                    job_train(&t, which == 0 ? &sync : &async);
                    trial_fini(&t);
                }
                if (workers == 1)
                    assert_true(params_same_bits(&sync.assembly.params, &async.assembly.params));
                else
                    assert_true(params_distance(&sync.assembly.params, &async.assembly.params) < 1e-3);
                trained_fini(&sync);
                trained_fini(&async);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_equal_one),
        cmocka_unit_test(workers_equal_local),
        cmocka_unit_test(one_asynchronous_worker_is_local),
        cmocka_unit_test(other_jobs_get_through),
        cmocka_unit_test(resumed_runs_are_the_same),
        cmocka_unit_test(tables_are_asynchronous),
    };
    return cmocka_run_group_tests(tests, make_data, trial_remove_root);
}
