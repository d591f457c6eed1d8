/* Predictions of the public interface; contract in muster/muster.h.
 *
 * The model reads rows in place. If a linear model has a shorter dense prefix than the rows, the numbers
 * beyond it are read as keys. Images go through the augmentation of the training, without its random part,
 * into memory of the scorer. Every call, and every thread of a call, has a scorer of its own. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "api/api_model_impl.h"
#include "base/alloc.h"
#include "base/float_mode.h"
#include "base/team.h"
#include "tensor/dnnl_ops.h"

#define ROWS          128  /* at a time */
#define ROWS_A_THREAD 2048 /* linear models: fewer rows are not worth another thread */

struct mst_api_scorer {
    mst_api_scorer *next;
    unsigned n_threads; /* of the scratch */
    void *scratch;
    float *scores; /* ROWS x n_scores */
    mst_row rows[ROWS];
    float *images;  /* ROWS of them, augmented; or NULL */
    uint32_t *ramp; /* 0, 1, 2, ...: keys of dense numbers beyond the model's prefix; or NULL */
    float *numbers; /* bytes as numbers, of ROWS rows; or NULL */
    size_t ramp_size, number_capacity;
};

/* ---- scorers ---- */

static void scorer_free(const muster_model *model, mst_api_scorer *s)
{
    if (s == NULL)
        return;
    mst_model_scratch_free(model->start.assembly.model, s->scratch);
    mst_free(s->scores);
    mst_free(s->images);
    mst_free(s->ramp);
    mst_free(s->numbers);
    mst_free(s);
}

void mst_api_scorers_free(muster_model *self)
{
    while (self->free != NULL) {
        mst_api_scorer *s = self->free;
        self->free = s->next;
        scorer_free(self, s);
    }
    uint32_t n = self->names != NULL ? muster_model_n_tensors(self) : 0;
    for (uint32_t i = 0; i < n; i++)
        mst_free(self->names[i]);
    mst_free(self->names);
}

static mst_status scorer_new(const muster_model *self, unsigned n_threads, mst_api_scorer **out)
{
    const mst_model *model = self->start.assembly.model;
    mst_status st;
    mst_api_scorer *s = mst_zalloc(sizeof *s);
    if (s == NULL)
        return mst_fail_memory();
    s->n_threads = n_threads;
    TRY_OUT(st, mst_model_scratch_new(model, ROWS, n_threads, false, &s->scratch));
    s->scores = mst_calloc((size_t)ROWS * model->n_scores, sizeof *s->scores);
    if (self->augment.any)
        s->images = mst_calloc(ROWS * mst_augment_out(&self->augment), sizeof *s->images);
    if (s->scores == NULL || (self->augment.any && s->images == NULL))
        TRY_OUT(st, mst_fail_memory());
    *out = s;
    s = NULL;
out:
    scorer_free(self, s);
    return st;
}

/* A free scorer, or a new one. The model is changed under its mutex only. */
static mst_status scorer_take(const muster_model *model, unsigned n_threads, mst_api_scorer **out)
{
    muster_model *self = (muster_model *)model;
    pthread_mutex_lock(&self->mutex);
    mst_api_scorer **at = &self->free, *found;
    while (*at != NULL && (*at)->n_threads != n_threads)
        at = &(*at)->next;
    found = *at;
    if (found != NULL)
        *at = found->next;
    pthread_mutex_unlock(&self->mutex);
    if (found == NULL)
        return scorer_new(model, n_threads, out);
    *out = found;
    return MST_OK;
}

static void scorer_give_back(const muster_model *model, mst_api_scorer *s)
{
    muster_model *self = (muster_model *)model;
    if (s == NULL)
        return;
    pthread_mutex_lock(&self->mutex);
    s->next = self->free;
    self->free = s;
    pthread_mutex_unlock(&self->mutex);
}

/* ---- rows ---- */

static mst_status scorer_fit_ramp(mst_api_scorer *s, uint32_t n, bool bytes)
{
    if (bytes && !mst_grow(&s->numbers, &s->number_capacity, (size_t)ROWS * n, sizeof *s->numbers))
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
static mst_status scorer_shorten(const muster_model *self, mst_api_scorer *s, uint32_t i)
{
    mst_row *row = &s->rows[i];
    uint32_t keep = self->start.assembly.model->shape.n_dense, n = row->n_dense;
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

/* Scores rows [0, n) of the scorer, which point at the rows of the program. */
static mst_status scorer_run(const muster_model *self, mst_api_scorer *s, uint32_t n)
{
    const mst_model *model = self->start.assembly.model;
    bool net = mst_model_has(model->ops, MST_MODEL_NET);
    for (uint32_t i = 0; i < n; i++) {
        if (self->augment.any)
            mst_augment_row(&self->augment, false, 0, i, s->images + i * mst_augment_out(&self->augment),
                            &s->rows[i]);
        else if (!net && s->rows[i].n_dense > model->shape.n_dense)
            TRY(scorer_shorten(self, s, i));
    }
    mst_batch batch = {.rows = s->rows, .n_rows = n};
    return mst_model_score(model, s->scratch, &batch, &self->weights, s->scores);
}

/* ---- results ---- */

static void predict_probabilities(const float *scores, uint32_t n, float *out)
{
    if (n > 1) {
        mst_probabilities(scores, n, out);
        return;
    }
    double p = mst_probability((double)scores[0]);
    out[0] = (float)(1.0 - p);
    out[1] = (float)p;
}

static int32_t predict_class(const float *scores, uint32_t n)
{
    uint32_t best = 0;
    if (n == 1)
        return scores[0] > 0.0f;
    for (uint32_t c = 1; c < n; c++)
        best = scores[c] > scores[best] ? c : best;
    return (int32_t)best;
}

/* Results of rows [first, first + n) from the scores of the scorer. */
static void predict_store(const muster_model *self, const mst_api_scorer *s, muster_output what,
                          uint64_t first, uint32_t n, void *out)
{
    uint32_t n_scores = muster_model_scores(self), classes = muster_model_classes(self);
    if (what == MUSTER_MARGINS)
        memcpy((float *)out + first * n_scores, s->scores, (size_t)n * n_scores * sizeof(float));
    for (uint32_t i = 0; i < n && what == MUSTER_PROBABILITIES; i++)
        predict_probabilities(s->scores + (size_t)i * n_scores, n_scores,
                              (float *)out + (first + i) * classes);
    for (uint32_t i = 0; i < n && what == MUSTER_CLASSES; i++)
        ((int32_t *)out)[first + i] = predict_class(s->scores + (size_t)i * n_scores, n_scores);
}

/* ---- rows of the program ---- */

static mst_status predict_check_row(const muster_model *self, const muster_row *row, size_t number)
{
    uint64_t from = row->n_dense, features = muster_model_features(self);
    uint32_t n_fields = self->start.assembly.model->shape.n_fields;
    const mst_augment *a = &self->augment;
    if (a->any && (row->n_dense != features || row->n_keys > 0))
        return mst_fail(MST_EINPUT,
                        "row %zu has %u numbers and %u keys; the model was trained on images of %u x %u x %u",
                        number, row->n_dense, row->n_keys, a->channels, a->in_height, a->in_width);
    if (row->n_dense > features)
        return mst_fail(MST_EINPUT, "row %zu has %u numbers; the model has %" PRIu64 " features", number,
                        row->n_dense, features);
    if (row->n_dense > 0 && row->dense == NULL && row->bytes == NULL)
        return mst_fail(MST_EINPUT, "row %zu has %u numbers, but neither dense nor bytes", number,
                        row->n_dense);
    for (uint32_t k = 0; row->bytes == NULL && k < row->n_dense; k++)
        if (!isfinite(row->dense[k]))
            return mst_fail(MST_EINPUT, "row %zu has %g as number %u", number, (double)row->dense[k], k);
    if (row->n_keys > 0 && row->keys == NULL)
        return mst_fail(MST_EINPUT, "row %zu has %u keys, but none are given", number, row->n_keys);
    if (n_fields > 0 && (uint64_t)row->n_dense + row->n_keys > n_fields)
        return mst_fail(MST_EINPUT, "row %zu has %u numbers and %u keys; the model has %u fields", number,
                        row->n_dense, row->n_keys, n_fields);
    for (uint32_t k = 0; k < row->n_keys; k++) {
        if (row->values != NULL && !isfinite(row->values[k]))
            return mst_fail(MST_EINPUT, "row %zu has %g at key %u", number, (double)row->values[k],
                            row->keys[k]);
        if (row->keys[k] < from || row->keys[k] >= features)
            return mst_fail(
                MST_EINPUT,
                "row %zu has key %u: keys must ascend, after the dense numbers and below the model's "
                "%" PRIu64 " features",
                number, row->keys[k], features);
        from = n_fields > 0 ? from : row->keys[k]; /* fields are positions: keys are in their order */
    }
    return MST_OK;
}

static mst_row predict_row_in_place(const muster_model *self, const muster_row *row)
{
    return (mst_row){
        .dense = row->bytes == NULL ? row->dense : NULL,
        .bytes = row->bytes,
        .keys = row->keys,
        .values = row->values,
        .n_dense = row->n_dense,
        .n_keys = row->n_keys,
        .weight = 1.0f,
        .any_order = self->start.assembly.model->shape.n_fields > 0,
    };
}

static mst_status predict_add_row(mst_chunk_builder *b, const muster_row *row)
{
    TRY(mst_chunk_builder_room(b, (size_t)row->n_dense + row->n_keys));
    for (uint32_t k = 0; k < row->n_dense; k++)
        mst_chunk_builder_add(b, k, row->bytes != NULL ? (float)row->bytes[k] / 255.0f : row->dense[k]);
    for (uint32_t k = 0; k < row->n_keys; k++)
        mst_chunk_builder_add(b, row->keys[k], row->values != NULL ? row->values[k] : 1.0f);
    return mst_chunk_builder_end_row(b, 0.0f, 1.0f);
}

/* Rows with keys and a longer dense prefix than the model's are packed first, as rows of a file would be. */
static mst_status predict_pack(const muster_model *self, const muster_row *rows, uint32_t n,
                               mst_chunk_builder *b, mst_chunk **out)
{
    const mst_shape *shape = &self->start.assembly.model->shape;
    bool pack = false;
    for (uint32_t i = 0; i < n; i++)
        pack |= rows[i].n_dense > shape->n_dense && rows[i].n_keys > 0;
    if (!pack || self->augment.any || mst_model_has(self->start.assembly.model->ops, MST_MODEL_NET))
        return MST_OK;
    mst_chunk_builder_clear(b);
    b->max_dense = shape->n_dense;
    if (shape->n_fields > 0)
        b->order = MST_ORDER_POSITION;
    for (uint32_t i = 0; i < n; i++)
        TRY(predict_add_row(b, &rows[i]));
    return mst_chunk_builder_pack(b, 0, n, out);
}

static mst_status predict_rows(const muster_model *self, mst_api_scorer *s, const muster_row *rows,
                               size_t n_rows, float *out)
{
    mst_chunk_builder builder;
    mst_status st = MST_OK;
    mst_chunk_builder_init(&builder);
    for (size_t from = 0; st == MST_OK && from < n_rows; from += ROWS) {
        uint32_t n = n_rows - from < ROWS ? (uint32_t)(n_rows - from) : ROWS;
        mst_chunk *packed = NULL;
        st = predict_pack(self, rows + from, n, &builder, &packed);
        for (uint32_t i = 0; st == MST_OK && i < n; i++) {
            if (packed != NULL)
                mst_chunk_row(packed, i, &s->rows[i]);
            else
                s->rows[i] = predict_row_in_place(self, &rows[from + i]);
        }
        if (st == MST_OK)
            st = scorer_run(self, s, n);
        mst_chunk_release(packed);
        if (st == MST_OK)
            predict_store(self, s, MUSTER_PROBABILITIES, from, n, out);
    }
    mst_chunk_builder_fini(&builder);
    return st;
}

muster_status muster_model_predict(const muster_model *self, const muster_row *rows, size_t n_rows,
                                   float *probabilities)
{
    mst_api_scorer *s = NULL;
    mst_status st = MST_OK;
    mst_float_mode mode = mst_float_flush();
    for (size_t i = 0; st == MST_OK && i < n_rows; i++)
        st = predict_check_row(self, &rows[i], i);
    if (st == MST_OK)
        st = scorer_take(self, 1, &s);
    if (st == MST_OK)
        st = predict_rows(self, s, rows, n_rows, probabilities);
    scorer_give_back(self, s);
    mst_float_mode_set(mode); /* this thread alone has computed */
    return (muster_status)st;
}

/* ---- rows in arrays ---- */

typedef struct predict_task {
    const muster_model *model;
    const mst_array_rows *rows;
    muster_output what;
    void *out;
    unsigned inner; /* threads of a scorer */
    uint32_t max_dense;
    uint64_t n_rows;
    _Atomic uint64_t next;
    atomic_bool failed;
    pthread_mutex_t mutex;
    mst_error error; /* the first; guarded by mutex */
} predict_task;

static mst_status predict_blocks(predict_task *t, mst_api_scorer *s)
{
    for (uint64_t first; (first = atomic_fetch_add(&t->next, ROWS)) < t->n_rows;) {
        uint32_t n = t->n_rows - first < ROWS ? (uint32_t)(t->n_rows - first) : ROWS;
        if (atomic_load_explicit(&t->failed, memory_order_relaxed))
            return MST_OK;
        for (uint32_t i = 0; i < n; i++)
            mst_array_rows_get(t->rows, first + i, t->max_dense, &s->rows[i]);
        TRY(scorer_run(t->model, s, n));
        predict_store(t->model, s, t->what, first, n, t->out);
    }
    return MST_OK;
}

static void predict_thread(void *arg, unsigned thread)
{
    predict_task *t = arg;
    mst_api_scorer *s = NULL;
    (void)thread;
    mst_status st = scorer_take(t->model, t->inner, &s);
    if (st == MST_OK)
        st = predict_blocks(t, s);
    scorer_give_back(t->model, s);
    if (st == MST_OK)
        return;
    pthread_mutex_lock(&t->mutex);
    if (!atomic_exchange(&t->failed, true))
        mst_error_save(&t->error, st);
    pthread_mutex_unlock(&t->mutex);
}

/* Whether the rows have the shape that the model was trained on. */
static mst_status predict_check_data(const muster_model *self, const mst_array_rows *rows)
{
    const mst_data_info *info = mst_array_rows_info(rows);
    const mst_shape *shape = &self->start.assembly.model->shape;
    uint64_t features = muster_model_features(self);
    uint32_t dense = mst_array_rows_dense(rows);
    if (info->n_features != features)
        return mst_fail(MST_EINPUT, "%s has %" PRIu64 " features, but the model has %" PRIu64,
                        mst_array_rows_name(rows), info->n_features, features);
    if (self->augment.any && dense != features)
        return mst_fail(MST_EINPUT, "%s: the model was trained on images of %u x %u x %u",
                        mst_array_rows_name(rows), self->augment.channels, self->augment.in_height,
                        self->augment.in_width);
    if (shape->n_fields > 0 && info->n_fields == 0 && dense < info->n_features)
        return mst_fail(MST_EINPUT, "%s: its rows have no fields, but the model has %u",
                        mst_array_rows_name(rows), shape->n_fields);
    if (shape->n_fields > 0 && info->n_fields > shape->n_fields)
        return mst_fail(MST_EINPUT, "%s has %u fields, but the model has %u", mst_array_rows_name(rows),
                        info->n_fields, shape->n_fields);
    if (dense > shape->n_dense && dense < info->n_features && !self->augment.any &&
        !mst_model_has(self->start.assembly.model->ops, MST_MODEL_NET))
        return mst_fail(MST_EINPUT, "%s: its rows begin with %u dense numbers, those of the model with %u",
                        mst_array_rows_name(rows), dense, shape->n_dense);
    return MST_OK;
}

static mst_status predict_data(const muster_model *self, const mst_array_rows *rows, muster_output what,
                               unsigned n_threads, void *out)
{
    const mst_model *model = self->start.assembly.model;
    uint64_t n_rows = mst_array_rows_info(rows)->n_rows;
    predict_task task = {.model = self, .rows = rows, .what = what, .out = out, .inner = 1, .n_rows = n_rows};
    uint64_t unit = mst_model_has(model->ops, MST_MODEL_NET) ? ROWS : ROWS_A_THREAD, most = n_rows / unit + 1;
    mst_team *team = NULL;
    if ((unsigned)what > MUSTER_MARGINS)
        return mst_fail(MST_EUSAGE, "%d is not a kind of prediction", (int)what);
    TRY(predict_check_data(self, rows));
    task.max_dense = mst_model_has(model->ops, MST_MODEL_NET) ? UINT32_MAX : model->shape.n_dense;
    n_threads = n_threads < most ? n_threads : (unsigned)most;
    if (mst_model_threads(model)) {
        task.inner = n_threads;
        n_threads = 1;
    }
    pthread_mutex_init(&task.mutex, NULL);
    mst_status st = n_threads > 1 ? mst_team_new(n_threads, &team) : MST_OK;
    if (st == MST_OK && team != NULL)
        mst_team_run(team, predict_thread, &task);
    else if (st == MST_OK)
        predict_thread(&task, 0);
    mst_team_destroy(team);
    pthread_mutex_destroy(&task.mutex);
    if (st == MST_OK && atomic_load(&task.failed))
        st = mst_error_restore(&task.error);
    return st;
}

muster_status muster_model_predict_data(const muster_model *self, const muster_data *data, muster_output what,
                                        uint32_t n_threads, void *out)
{
    mst_float_mode mode = mst_float_flush(); /* for the threads that are made here */
    mst_status st = predict_data(self, data->rows, what, mst_api_threads(n_threads), out);
    mst_float_mode_set(mode);
    mst_dnnl_restore_mode();
    return (muster_status)st;
}
