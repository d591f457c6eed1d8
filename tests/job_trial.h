/* Trainings with the parameter server in threads of one process, for tests: options as in trial.h; weights
 * and optimizer state are those of the checkpoint of the run. */
#ifndef MST_TESTS_JOB_TRIAL_H
#define MST_TESTS_JOB_TRIAL_H

#include "job/job.h"
#include "trial.h"

/* What a run has trained: the checkpoint's floats, with the optimizer's state. */
typedef struct trained {
    mst_assembly assembly;
    mst_checkpoint_meta meta;
} trained;

static inline void trained_fini(trained *r)
{
    mst_assembly_fini(&r->assembly);
    mst_checkpoint_meta_fini(&r->meta);
}

/* path: a run, or a checkpoint. */
static inline void trained_load(trained *r, const trial *t, const char *path)
{
    mst_optimizer optimizer, sparse;
    mst_model_options options = {0};
    mst_shape shape;
    char *checkpoint = NULL;
    memset(r, 0, sizeof *r);
    assert_int_equal(mst_optimizer_init_parts(&optimizer, &sparse, &t->optim), MST_OK);
    assert_int_equal(mst_checkpoint_find(path, &checkpoint), MST_OK);
    assert_int_equal(mst_checkpoint_read_meta(checkpoint, &r->meta), MST_OK);
    assert_int_equal(mst_model_from_json(r->meta.model, checkpoint, &options, &shape), MST_OK);
    assert_int_equal(mst_assembly_init(&r->assembly, &options, &shape, mst_kernels_get(mst_isa_best()),
                                       &(mst_store_spec){.optimizer = &optimizer}, 0),
                     MST_OK);
    assert_int_equal(mst_checkpoint_load(checkpoint, &r->assembly.params, true), MST_OK);
    mst_free(checkpoint);
}

/* M servers and N workers, which share batches of `batch` rows each. */
static inline void job_init(trial *t, const char *file, const char *run, int servers, int workers)
{
    trial_init(t, file, run);
    trial_set(t, "strategy", "ps");
    trial_int(t, "servers", servers);
    trial_int(t, "workers", workers);
}

/* workers, unless NULL: the coordinator's table of them; the caller drops the reference. */
static inline mst_status job_run(trial *t, json_t **workers)
{
    mst_train_callbacks observer = {
        .arg = t, .progress = trial_on_progress, .evaluated = trial_on_evaluated, .saved = trial_on_saved};
    mst_job_summary summary;
    json_t *same = json_object();
    json_decref(t->options);
    t->options = mst_options_json(t->groups, 5);
    assert_non_null(t->options);
    mst_train_config config = trial_config(t);
    mst_job_config job = {.train = &config, .same = same};
    mst_status st = t->resolve_status;
    summary = (mst_job_summary){0};
    if (st == MST_OK)
        st = mst_job_embedded(&job, &observer, &summary);
    json_decref(same);
    t->summary = summary.train;
    if (workers != NULL)
        *workers = summary.workers;
    else
        json_decref(summary.workers);
    return st;
}

/* Runs; says why when that fails. */
static inline void job_must_run(trial *t, json_t **workers)
{
    mst_status st = job_run(t, workers);
    if (st != MST_OK)
        print_error("%s\n", mst_error_text());
    assert_int_equal(st, MST_OK);
}

/* Runs and loads what it leaves. */
static inline void job_train(trial *t, trained *r)
{
    job_must_run(t, NULL);
    trained_load(r, t, t->train.run);
}

#endif
