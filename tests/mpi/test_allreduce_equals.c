/* Strategy allreduce with ranks in threads of one process (fake_mpi.h): the weights, and the last gradient,
 * equal those of local training with the same global batch; on the communication thread, and with a separate
 * one that reduces gradients while a net computes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "mpi/fake_mpi.h"
#include "strategy/allreduce.h"
#include "trial.h"

#define RANKS 3

typedef struct member {
    trial trial;
    fake_rank fake;
    pthread_t thread;
    mst_status status;
    char error[MST_ERROR_MAX];
    float *gradient; /* rank 0's, at the end; n_gradient floats */
    size_t n_gradient;
} member;

/* The dense part of the last step's gradient, without state; the caller frees. NULL: the strategy has none.
 */
static float *gradient_of(const mst_strategy *s, size_t *n)
{
    const mst_grad *grad = s->ops->gradient(s);
    float *all = NULL;
    size_t capacity = 0;
    *n = 0;
    for (uint32_t r = 0; grad != NULL && r < grad->n_ranges; r++) {
        if (grad->ranges[r].state)
            continue;
        assert_true(mst_grow(&all, &capacity, *n + grad->ranges[r].size + 1, sizeof *all));
        memcpy(all + *n, grad->ranges[r].g, grad->ranges[r].size * sizeof *all);
        *n += grad->ranges[r].size;
    }
    return all;
}

static mst_status set_up(trial *t, mst_comm *comm)
{
    mst_train_config config = trial_config(t);
    config.comm = comm;
    config.role = MST_TRAINING_RANK;
    config.index = (uint32_t)mst_comm_mpi(comm)->rank;
    TRY(t->resolve_status);
    return mst_training_new(&config, &t->training);
}

static mst_status train(member *me, mst_comm *comm)
{
    trial *t = &me->trial;
    mst_allreduce_signals signals = {0};
    mst_train_callbacks observer = {.arg = t, .progress = trial_on_progress, .evaluated = trial_on_evaluated};
    TRY(set_up(t, comm));
    TRY(mst_allreduce_join(t->training->strategy, &signals));
    if (mst_comm_mpi(comm)->rank == 0)
        TRY(mst_training_run(t->training, &observer, &t->summary));
    else
        TRY(mst_allreduce_follow(t->training->strategy, t->training->data.feed));
    if (mst_comm_mpi(comm)->rank == 0)
        me->gradient = gradient_of(t->training->strategy, &me->n_gradient);
    return mst_comm_end(comm);
}

static void *run_member(void *arg)
{
    member *me = arg;
    mst_comm *comm = NULL;
    mst_comm_options options = {.stall_timeout_ms = 100000, .start = fake_start, .start_arg = &me->fake};
    me->status = mst_comm_new(&options, &comm);
    if (me->status == MST_OK)
        me->status = train(me, comm);
    snprintf(me->error, sizeof me->error, "%s", mst_error_text());
    mst_strategy_destroy(me->trial.training != NULL ? me->trial.training->strategy : NULL);
    if (me->trial.training != NULL)
        me->trial.training->strategy = NULL; /* it needs the communication thread */
    mst_comm_destroy(comm, NULL);
    return NULL;
}

/* options: name, value, ..., NULL */
static void set_all(trial *t, const char *const *options)
{
    for (; *options != NULL; options += 2)
        trial_set(t, options[0], options[1]);
}

static void check(const char *file, const char *const *options, double limit)
{
    trial local;
    size_t n_gradient;
    trial_init(&local, file, NULL);
    set_all(&local, options);
    trial_must_run(&local);
    float *gradient = gradient_of(local.training->strategy, &n_gradient);
    assert_true(n_gradient > 0);
    for (int n = 1; n <= RANKS; n++) {
        fake_world world;
        member ranks[RANKS];
        memset(ranks, 0, sizeof ranks);
        fake_init(&world, n);
        for (int r = 0; r < n; r++) {
            trial *t = &ranks[r].trial;
            trial_init(t, file, r == 0 ? NULL : "none");
            set_all(t, options);
            trial_set(t, "strategy", "allreduce");
            trial_int(t, "workers", n);
            if (r == 0)
                trial_set(t, "overwrite", "true");
            t->options = mst_options_json(t->groups, 5);
            ranks[r].fake = (fake_rank){&world, r};
        }
        for (int r = 0; r < n; r++)
            assert_int_equal(pthread_create(&ranks[r].thread, NULL, run_member, &ranks[r]), 0);
        for (int r = 0; r < n; r++)
            pthread_join(ranks[r].thread, NULL);
        for (int r = 0; r < n; r++)
            if (ranks[r].status != MST_OK)
                fail_msg("rank %d of %d: %s", r, n, ranks[r].error);
        assert_int_equal(ranks[0].trial.summary.status.step, local.summary.status.step);
        assert_int_equal(ranks[0].trial.summary.status.rows, local.summary.status.rows);
        assert_true(trial_distance(&local, &ranks[0].trial) <= limit);
        for (int r = 1; r < n; r++)
            trial_same_bits(&ranks[0].trial, &ranks[r].trial);
        assert_int_equal(ranks[0].n_gradient, n_gradient);
        for (size_t i = 0; i < n_gradient; i++)
            assert_true(fabs((double)(ranks[0].gradient[i] - gradient[i])) <= 10 * limit);
        mst_free(ranks[0].gradient);
        for (int r = 0; r < n; r++)
            trial_fini(&ranks[r].trial);
        fake_fini(&world);
    }
    mst_free(gradient);
    trial_fini(&local);
}

static void test_clicks(void **state)
{
    (void)state;
    const char *const options[] = {"optimizer", "adagrad", "lr", "0.1",      "global-batch",
                                   "50",        "epochs",  "2",  "features", "3000",
                                   "threads",   "2",       NULL};
    trial_clicks("clicks.cache", 430, 0, 3000);
    check("clicks.cache", options, 2e-5);
}

/* Beyond 1 MB: slices travel while the backward pass runs. */
static void test_overlap(void **state)
{
    (void)state;
    const char *const options[] = {"model",        "mlp", "hidden",    "2100",     "lr",       "0.1",
                                   "global-batch", "20",  "steps",     "5",        "features", "150",
                                   "classes",      "2",   "optimizer", "momentum", NULL};
    trial_clicks("few.cache", 130, 0, 150);
    check("few.cache", options, 2e-5);
}

/* Rows of a table and layers in one step; with a gradient of a few kB, and beyond 1 MB. */
static void test_embeddings(void **state)
{
    static const char *const sizes[] = {"16,8", "600,400"};
    (void)state;
    trial_clicks("fields.cache", 430, 0, 3000);
    for (int i = 0; i < 2; i++) {
        const char *const options[] = {"model",   "deepfm", "embedding",    "4",     "hidden",    sizes[i],
                                       "dropout", "0.1",    "lr",           "0.005", "optimizer", "adagrad",
                                       "eps",     "0.001",  "features",     "3000",  "epochs",    "1",
                                       "threads", "2",      "global-batch", "50",    NULL};
        check("fields.cache", options, 5e-5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_clicks), cmocka_unit_test(test_overlap),
                                       cmocka_unit_test(test_embeddings)};
    return cmocka_run_group_tests(tests, trial_make_root, trial_remove_root);
}
