/* Nets through the whole trainer, on small images: sync with T threads equals one thread to rounding, dropout
 * included; async with one thread equals sync; a resumed run continues bit for bit; batch norm's running
 * values are state; a checkpoint of another net is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/executor.h"
#include "trial_images.h"

#define N_ROWS  150
#define SIDE    7
#define CLASSES 4

/* Images, and five nets. */
static int make_data(void **state)
{
    if (trial_make_root(state) != 0)
        return -1;
    trial_images(N_ROWS, SIDE, CLASSES, 1, 2);
    trial_write("drop.net", "conv 5 kernel=3 pad=1\nrelu\nmaxpool 2\ndropout 0.25\nlinear 12\ntanh\n"
                            "dropout 0.5\nlinear classes\n");
    trial_write("parts.net", "conv 5 kernel=3 pad=1\nrelu\nmaxpool 2\ndropout 0.25\nlinear 100\ntanh\n"
                             "linear classes\n");
    trial_write("norm.net", "conv 5 kernel=3\nnorm: batchnorm\nrelu\navgpool 2\nlinear classes\n");
    trial_write("drop-again.net", "# the same net in other words\nconv 5 kernel=3 pad=1\nrelu\n\nmaxpool 2\n"
                                  "dropout 0.25\n  linear 12\ntanh\ndropout 0.5 # half\nlinear classes\n");
    trial_write("other.net", "conv 5 kernel=3 pad=1\nrelu\nmaxpool 2\ndropout 0.25\nlinear 13\ntanh\n"
                             "dropout 0.5\nlinear classes\n");
    return 0;
}

static void set_up(trial *t, const char *net, const char *executor, const char *mode, int threads,
                   const char *run)
{
    trial_init(t, "train-images-idx3-ubyte", run);
    trial_set(t, "model", "net");
    trial_set(t, "net", trial_path(net));
    trial_set(t, "executor", executor);
    trial_set(t, "mode", mode);
    trial_int(t, "threads", threads);
    trial_set(t, "batch", "20");
    trial_set(t, "optimizer", "momentum");
    trial_set(t, "lr", "0.05");
    trial_set(t, "epochs", "3");
}

static void train(trial *t, const char *net, const char *executor, const char *mode, int threads)
{
    set_up(t, net, executor, mode, threads, NULL);
    trial_set(t, "save", "false");
    trial_must_run(t);
    assert_int_equal(t->summary.status.rows, 3 * N_ROWS);
}

/* Whether the executor computes that net. The thread sanitizer does not see how the threads of GNU's OpenMP
 * wait for each other: executors that have them are left out under it. */
static bool runs(const mst_executor *executor, const char *net)
{
    mst_dims in = {1, SIDE, SIDE};
    mst_chain *chain;
    char *text;
    size_t size;
    assert_int_equal(mst_file_read_all(trial_path(net), 1 << 20, &text, &size), MST_OK);
    assert_int_equal(mst_chain_parse(text, net, &in, CLASSES, &chain), MST_OK);
    bool can = executor->can(chain) == MST_OK;
    mst_chain_destroy(chain);
    mst_free(text);
#ifdef __SANITIZE_THREAD__
    can = can && !executor->threads;
#endif
    return can;
}

#define EACH_EXECUTOR(e, net)                                                                                \
    for (const mst_executor *const *e = mst_executors; *e != NULL; e++)                                      \
        if (runs(*e, net))

static void sync_threads_equal_one(void **state)
{
    (void)state;
    EACH_EXECUTOR(e, "drop.net")
    {
        trial one, many;
        train(&one, "drop.net", (*e)->name, "sync", 1);
        assert_true(one.summary.status.train_loss < 1.3);
        for (int threads = 2; threads <= 3; threads++) {
            train(&many, "drop.net", (*e)->name, "sync", threads);
            assert_true(trial_distance(&one, &many) < 2e-4);
            trial_fini(&many);
        }
        trial_fini(&one);
    }
}

static void executors_agree(void **state)
{
    static const char *const nets[] = {"drop.net", "norm.net"};
    (void)state;
    for (int n = 0; n < 2; n++) {
        trial a, b;
        train(&a, nets[n], "plain", "sync", 1);
        EACH_EXECUTOR(e, nets[n])
        {
            train(&b, nets[n], (*e)->name, "sync", 1);
            assert_true(trial_distance(&a, &b) < 5e-4);
            trial_fini(&b);
        }
        trial_fini(&a);
    }
}

static void sync_repeats(void **state)
{
    static const char *const nets[] = {"drop.net", "norm.net"};
    (void)state;
    for (int n = 0; n < 2; n++)
        EACH_EXECUTOR(e, nets[n])
    for (int threads = 1; threads <= 2; threads++) {
        trial first, again;
        train(&first, nets[n], (*e)->name, "sync", threads);
        train(&again, nets[n], (*e)->name, "sync", threads);
        trial_same_bits(&first, &again);
        trial_fini(&first);
        trial_fini(&again);
    }
}

static void train_parts(trial *t, const char *executor, const char *batch, int threads, const char *clip)
{
    set_up(t, "parts.net", executor, "sync", threads, NULL);
    trial_set(t, "batch", batch);
    trial_set(t, "clip-norm", clip);
    trial_set(t, "save", "false");
    trial_must_run(t);
    assert_int_equal(t->summary.status.rows, 3 * N_ROWS);
}

/* A net of some thousand parameters: threads compute parts of a batch, a fixed one and any others, or there
 * are more threads than parts. */
static void parts_equal_one_thread(void **state)
{
    static const char *const batches[] = {"20", "70", "150"}, *const clips[] = {"0", "0.5"};
    static const int counts[] = {2, 3, 4, 16};
    (void)state;
    EACH_EXECUTOR(e, "parts.net")
    for (size_t i = 0; i < 3 * 4 * 2; i++) {
        trial one, many, again;
        const char *batch = batches[i % 3], *clip = clips[i / 12];
        int threads = counts[i / 3 % 4];
        if (!(*e)->overwrites || (*e)->threads)
            continue;
        train_parts(&one, (*e)->name, batch, 1, clip);
        train_parts(&many, (*e)->name, batch, threads, clip);
        train_parts(&again, (*e)->name, batch, threads, clip);
        assert_true(trial_distance(&one, &many) < 2e-4);
        trial_same_bits(&many, &again);
        assert_true(many.summary.status.train_loss == again.summary.status.train_loss);
        trial_fini(&one);
        trial_fini(&many);
        trial_fini(&again);
    }
}

static void async_of_one_equals_sync(void **state)
{
    (void)state;
    EACH_EXECUTOR(e, "drop.net")
    {
        trial sync, async;
        train(&sync, "drop.net", (*e)->name, "sync", 1);
        train(&async, "drop.net", (*e)->name, "async", 1);
        trial_same_bits(&sync, &async);
        trial_fini(&sync);
        trial_fini(&async);
    }
}

/* Running values move towards the data's, and have no optimizer state. */
static void state_is_replaced(void **state)
{
    static const char *const modes[] = {"sync", "async"};
    (void)state;
    for (int m = 0; m < 2; m++) {
        trial t;
        train(&t, "norm.net", "plain", modes[m], 2);
        const mst_params *params = trial_params(&t);
        const mst_view *var = mst_params_find(params, "norm.running_var"),
                       *mean = mst_params_find(params, "norm.running_mean"),
                       *weight = mst_params_find(params, "norm.weight");
        double moved = 0.0;
        assert_true(params->n_slots > 0);
        for (uint64_t i = 0; i < mean->size; i++) {
            assert_true(params->w[var->offset + i] > 0.0f && params->w[var->offset + i] < 1.0f);
            moved += fabs((double)params->w[mean->offset + i]);
            assert_true(params->slots[0][mean->offset + i] == 0.0f);
            assert_true(params->slots[0][var->offset + i] == 0.0f);
            assert_true(params->slots[0][weight->offset + i] != 0.0f);
        }
        assert_true(moved > 0.01);
        trial_fini(&t);
    }
}

static void resume_continues(void **state)
{
    static const char *const nets[] = {"drop.net", "norm.net"};
    (void)state;
    for (int n = 0; n < 2; n++)
        EACH_EXECUTOR(e, nets[n])
        {
            trial whole, first, rest;
            train(&whole, nets[n], (*e)->name, "sync", 2);
            set_up(&first, nets[n], (*e)->name, "sync", 2, "stopped");
            assert_int_equal(mst_remove_tree(first.train.run), MST_OK);
            trial_set(&first, "steps", "11");
            trial_must_run(&first);
            assert_int_equal(first.summary.status.step, 11);
            trial_fini(&first);
            set_up(&rest, nets[n], (*e)->name, "sync", 2, "stopped");
            trial_set(&rest, "resume", "true");
            trial_must_run(&rest);
            assert_int_equal(rest.summary.status.rows, 3 * N_ROWS);
            trial_same_bits(&whole, &rest);
            trial_fini(&whole);
            trial_fini(&rest);
        }
}

static void another_net_is_refused(void **state)
{
    trial t;
    (void)state;
    set_up(&t, "drop.net", "auto", "sync", 1, "other");
    trial_must_run(&t);
    trial_fini(&t);
    set_up(&t, "other.net", "auto", "sync", 1, "other");
    trial_set(&t, "resume", "true");
    trial_refused(&t, MST_EINPUT, "holds another net: \"linear 12\" there, \"linear 13\" here");
    trial_fini(&t);
    set_up(&t, "norm.net", "auto", "sync", 1, "other");
    trial_set(&t, "model", "mlp");
    mst_free(t.model.net);
    t.model.net = NULL;
    trial_set(&t, "resume", "true");
    trial_refused(&t, MST_EINPUT, "holds another model: net there, mlp here");
    trial_fini(&t);
    set_up(&t, "drop-again.net", "auto", "sync", 1, "other");
    trial_set(&t, "resume", "true");
    trial_set(&t, "epochs", "4");
    trial_must_run(&t);
    trial_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sync_threads_equal_one), cmocka_unit_test(executors_agree),
        cmocka_unit_test(sync_repeats),           cmocka_unit_test(async_of_one_equals_sync),
        cmocka_unit_test(parts_equal_one_thread), cmocka_unit_test(state_is_replaced),
        cmocka_unit_test(resume_continues),       cmocka_unit_test(another_net_is_refused),
    };
    return cmocka_run_group_tests(tests, make_data, trial_remove_root);
}
