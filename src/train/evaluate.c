/* Evaluation; contract in evaluate.h. Rows go through a feed in file order; each thread scores batches of its
 * own and counts into one tally, whose sums do not depend on who counted what. Batches are claimed one thread
 * at a time, so that they are the same rows however many threads there are: a loss is rounded per batch. */
#include "train/evaluate.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/team.h"

typedef struct scorer {
    void *scratch;
    float *scores;
    mst_status status;
    mst_error error;
} scorer;

struct mst_evaluator {
    const mst_model *model;
    const mst_params *params;
    mst_evaluator_options options;
    mst_feed *feed;
    mst_team *team;
    scorer *scorers;
    mst_tally tally;
    mst_weights weights;
    pthread_mutex_t claiming;
    atomic_bool failed;
};

mst_status mst_evaluator_new(const mst_model *model, const mst_params *params, mst_dataset *dataset,
                             const mst_evaluator_options *options, mst_evaluator **out)
{
    mst_status st;
    mst_evaluator *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail(MST_ENOMEM, "no memory for evaluation");
    self->model = model;
    self->params = params;
    self->options = *options;
    pthread_mutex_init(&self->claiming, NULL);
    mst_model_weights(model, params, &self->weights);
    mst_feed_options feed = {
        .seed = options->seed,
        .held_out = options->held_out,
        .keep = options->keep,
        .first_rows = options->first_rows,
        .prefetch_threads = options->n_threads,
        .n_lanes = options->n_threads,
        .max_take = options->batch,
        .features = model->shape.n_features,
        .classes = model->shape.n_classes,
        .stop = options->stop,
    };
    mst_tally_init(&self->tally, model);
    TRY_OUT(st, mst_team_new(options->n_threads, &self->team));
    st = mst_fail(MST_ENOMEM, "no memory to evaluate batches of %u rows", options->batch);
    self->scorers = mst_calloc(options->n_threads, sizeof *self->scorers);
    if (self->scorers == NULL)
        goto out;
    for (unsigned t = 0; t < options->n_threads; t++) {
        scorer *s = &self->scorers[t];
        s->scratch = mst_alloc_lines(model->ops->scratch_size(model, options->batch));
        s->scores = mst_calloc((size_t)options->batch * model->n_scores, sizeof *s->scores);
        if (s->scratch == NULL || s->scores == NULL)
            goto out;
    }
    TRY_OUT(st, mst_feed_new(dataset, &feed, &self->feed));
    *out = self;
    self = NULL;
out:
    mst_evaluator_destroy(self);
    return st;
}

void mst_evaluator_destroy(mst_evaluator *self)
{
    if (self == NULL)
        return;
    mst_feed_destroy(self->feed);
    mst_team_destroy(self->team);
    for (unsigned t = 0; self->scorers != NULL && t < self->options.n_threads; t++) {
        mst_free(self->scorers[t].scratch);
        mst_free(self->scorers[t].scores);
    }
    mst_free(self->scorers);
    mst_tally_fini(&self->tally);
    pthread_mutex_destroy(&self->claiming);
    mst_free(self);
}

static void score_thread(void *arg, unsigned t)
{
    mst_evaluator *self = arg;
    scorer *s = &self->scorers[t];
    s->status = MST_OK;
    while (!atomic_load(&self->failed)) {
        mst_batch batch;
        uint64_t position;
        pthread_mutex_lock(&self->claiming);
        s->status = mst_feed_claim(self->feed, t, self->options.batch, &batch, &position);
        pthread_mutex_unlock(&self->claiming);
        if (s->status != MST_OK) {
            mst_error_save(&s->error, s->status);
            atomic_store(&self->failed, true);
        }
        if (s->status != MST_OK || batch.n_rows == 0)
            return;
        s->status = mst_feed_fill(self->feed, t, 0, batch.n_rows);
        if (s->status != MST_OK) {
            mst_error_save(&s->error, s->status);
            atomic_store(&self->failed, true);
            return;
        }
        self->model->ops->forward(self->model, s->scratch, &batch, &self->weights, s->scores);
        mst_tally_add(&self->tally, self->model, &batch, s->scores);
    }
}

mst_status mst_evaluator_run(mst_evaluator *self, mst_result *out)
{
    uint64_t start = mst_now_ns();
    mst_tally_clear(&self->tally);
    atomic_store(&self->failed, false);
    TRY(mst_feed_start(self->feed, 0, 0));
    mst_team_run(self->team, score_thread, self);
    for (unsigned t = 0; t < self->options.n_threads; t++)
        if (self->scorers[t].status != MST_OK)
            return mst_error_restore(&self->scorers[t].error);
    mst_tally_result(&self->tally, out);
    out->seconds = mst_seconds_since(start);
    return MST_OK;
}
