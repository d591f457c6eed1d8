/* Scores of rows by many threads; contract in scorer.h. */
#include "train/scorer.h"

#include "base/alloc.h"

void mst_scorers_init(mst_scorers *self, const mst_assembly *assembly, const mst_augment *augment)
{
    *self = (mst_scorers){.model = assembly->model, .augment = augment};
    mst_model_weights(assembly->model, &assembly->params, &self->weights);
    self->weights.version = mst_weights_version();
    pthread_mutex_init(&self->mutex, NULL);
}

static void scorer_free(const mst_scorers *self, mst_scorer *s)
{
    if (s == NULL)
        return;
    mst_model_scratch_free(self->model, s->scratch);
    mst_free(s->scores);
    mst_free(s->images);
    mst_free(s->ramp);
    mst_free(s->numbers);
    mst_free(s);
}

void mst_scorers_fini(mst_scorers *self)
{
    while (self->free != NULL) {
        mst_scorer *s = self->free;
        self->free = s->next;
        scorer_free(self, s);
    }
    if (self->model != NULL)
        pthread_mutex_destroy(&self->mutex);
}

static mst_status scorer_new(const mst_scorers *self, unsigned n_threads, mst_scorer **out)
{
    mst_status st;
    mst_scorer *s = mst_zalloc(sizeof *s);
    if (s == NULL)
        return mst_fail_memory();
    s->n_threads = n_threads;
    TRY_OUT(st, mst_model_scratch_new(self->model, MST_SCORER_ROWS, n_threads, false, &s->scratch));
    s->scores = mst_calloc((size_t)MST_SCORER_ROWS * self->model->n_scores, sizeof *s->scores);
    if (self->augment->any)
        s->images = mst_calloc(MST_SCORER_ROWS * mst_augment_out(self->augment), sizeof *s->images);
    if (s->scores == NULL || (self->augment->any && s->images == NULL))
        TRY_OUT(st, mst_fail_memory());
    *out = s;
    s = NULL;
out:
    scorer_free(self, s);
    return st;
}

mst_status mst_scorers_take(mst_scorers *self, unsigned n_threads, mst_scorer **out)
{
    pthread_mutex_lock(&self->mutex);
    mst_scorer **at = &self->free, *found;
    while (*at != NULL && (*at)->n_threads != n_threads)
        at = &(*at)->next;
    found = *at;
    if (found != NULL)
        *at = found->next;
    pthread_mutex_unlock(&self->mutex);
    if (found == NULL)
        return scorer_new(self, n_threads, out);
    *out = found;
    return MST_OK;
}

void mst_scorers_give_back(mst_scorers *self, mst_scorer *s)
{
    if (s == NULL)
        return;
    pthread_mutex_lock(&self->mutex);
    s->next = self->free;
    self->free = s;
    pthread_mutex_unlock(&self->mutex);
}

static mst_status scorer_fit_ramp(mst_scorer *s, uint32_t n, bool bytes)
{
    if (bytes && !mst_grow(&s->numbers, &s->number_capacity, (size_t)MST_SCORER_ROWS * n, sizeof *s->numbers))
        return mst_fail_memory();
    if (s->ramp_size >= n)
        return MST_OK;
    mst_free(s->ramp);
    s->ramp_size = 0;
    s->ramp = mst_calloc(n, sizeof *s->ramp);
    if (s->ramp == NULL)
        return mst_fail_memory();
    for (uint32_t k = 0; k < n; k++)
        s->ramp[k] = k;
    s->ramp_size = n;
    return MST_OK;
}

/* Makes the numbers beyond the model's dense prefix keys of the row, which has no others. */
static mst_status scorer_shorten(const mst_scorers *self, mst_scorer *s, uint32_t i)
{
    mst_row *row = &s->rows[i];
    uint32_t keep = self->model->shape.n_dense, n = row->n_dense;
    TRY(scorer_fit_ramp(s, n, row->bytes != NULL));
    if (row->bytes != NULL) {
        float *numbers = s->numbers + (size_t)i * n;
        for (uint32_t k = 0; k < n; k++)
            numbers[k] = mst_row_dense(row, k);
        row->dense = numbers;
        row->bytes = NULL;
    }
    row->keys = s->ramp + keep;
    row->values = row->dense + keep;
    row->n_keys = n - keep;
    row->n_dense = keep;
    return MST_OK;
}

mst_status mst_scorers_run(const mst_scorers *self, mst_scorer *s, uint32_t n)
{
    bool net = mst_model_has(self->model->ops, MST_MODEL_NET);
    for (uint32_t i = 0; i < n; i++) {
        if (self->augment->any)
            mst_augment_row(self->augment, false, 0, i, s->images + i * mst_augment_out(self->augment),
                            &s->rows[i]);
        else if (!net && s->rows[i].n_dense > self->model->shape.n_dense)
            TRY(scorer_shorten(self, s, i));
    }
    mst_batch batch = {.rows = s->rows, .n_rows = n};
    return mst_model_score(self->model, s->scratch, &batch, &self->weights, s->scores);
}
