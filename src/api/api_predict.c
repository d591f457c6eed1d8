/* Predictions of the public interface; contract in muster/muster.h.
 *
 * The model reads rows in place. Images go through the augmentation of the training, without its random part,
 * into memory of the scorer. Every call, and every thread of a call, has a scorer (train/scorer.h) of its
 * own. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "api/api_model_impl.h"
#include "base/alloc.h"
#include "base/float_mode.h"
#include "base/team.h"
#include "tensor/dnnl_ops.h"

#define ROWS          MST_SCORER_ROWS
#define ROWS_A_THREAD 2048 /* linear models: fewer rows are not worth another thread */

/* The list of scorers has a mutex of its own: it changes while the model does not. */
static mst_scorers *predict_scorers(const muster_model *model)
{
    return &((muster_model *)model)->scorers;
}

static mst_status predict_take(const muster_model *model, unsigned n_threads, mst_scorer **out)
{
    return mst_scorers_take(predict_scorers(model), n_threads, out);
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

size_t mst_api_row_bytes(const muster_model *self, muster_output what)
{
    return what == MUSTER_CLASSES   ? sizeof(int32_t)
           : what == MUSTER_MARGINS ? muster_model_scores(self) * sizeof(float)
                                    : muster_model_classes(self) * sizeof(float);
}

mst_status mst_api_store(const muster_model *self, const float *scores, muster_output what, uint32_t n,
                         uint64_t first, void *out)
{
    uint32_t n_scores = muster_model_scores(self), classes = muster_model_classes(self);
    TRY(mst_scores_check(scores, n_scores, n, first));
    if (what == MUSTER_MARGINS)
        memcpy(out, scores, (size_t)n * n_scores * sizeof(float));
    for (uint32_t i = 0; i < n && what == MUSTER_PROBABILITIES; i++)
        predict_probabilities(scores + (size_t)i * n_scores, n_scores, (float *)out + (size_t)i * classes);
    for (uint32_t i = 0; i < n && what == MUSTER_CLASSES; i++)
        ((int32_t *)out)[i] = (int32_t)mst_scores_class(scores + (size_t)i * n_scores, n_scores);
    return MST_OK;
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

static mst_status predict_rows(const muster_model *self, mst_scorer *s, const muster_row *rows, size_t n_rows,
                               float *out)
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
            st = mst_scorers_run(&self->scorers, s, n);
        mst_chunk_release(packed);
        if (st == MST_OK)
            st = mst_api_store(self, s->scores, MUSTER_PROBABILITIES, n, from,
                               out + from * muster_model_classes(self));
    }
    mst_chunk_builder_fini(&builder);
    return st;
}

muster_status muster_model_predict(const muster_model *self, const muster_row *rows, size_t n_rows,
                                   float *probabilities)
{
    mst_scorer *s = NULL;
    mst_status st = MST_OK;
    mst_float_mode mode = mst_float_flush();
    for (size_t i = 0; st == MST_OK && i < n_rows; i++)
        st = predict_check_row(self, &rows[i], i);
    if (st == MST_OK)
        st = predict_take(self, 1, &s);
    if (st == MST_OK)
        st = predict_rows(self, s, rows, n_rows, probabilities);
    mst_scorers_give_back(predict_scorers(self), s);
    mst_float_mode_set(mode); /* this thread alone has computed */
    return (muster_status)st;
}

/* ---- rows in arrays ---- */

#define BLOCK_ROWS 1024 /* that are checked and then predicted: their entries stay in the cache */

typedef struct predict_task {
    const muster_model *model;
    const mst_array_rows *rows; /* checked; NULL: the rows of spec, each block of which is checked first */
    const mst_array_spec *spec;
    muster_output what;
    void *out;
    unsigned inner; /* threads of a scorer */
    uint32_t max_dense;
    uint64_t n_rows;
    _Atomic uint64_t next;
    _Atomic uint64_t failed; /* the first row of the first block that failed; UINT64_MAX: none */
    pthread_mutex_t mutex;
    mst_error error; /* of that block; guarded by mutex */
} predict_task;

/* Predicts n rows; `first` is their number among all. */
static mst_status predict_some(const predict_task *t, mst_scorer *s, const mst_array_rows *rows,
                               uint64_t from, uint64_t first, uint32_t n)
{
    for (uint32_t done = 0, some; done < n; done += some) {
        some = n - done < ROWS ? n - done : ROWS;
        for (uint32_t i = 0; i < some; i++)
            mst_array_rows_get(rows, from + done + i, t->max_dense, &s->rows[i]);
        TRY(mst_scorers_run(&t->model->scorers, s, some));
        TRY(mst_api_store(t->model, s->scores, t->what, some, first + done,
                          (char *)t->out + (first + done) * mst_api_row_bytes(t->model, t->what)));
    }
    return MST_OK;
}

static mst_status predict_check_data(const muster_model *self, const mst_array_rows *rows);

static mst_status predict_slice(const predict_task *t, mst_scorer *s, uint64_t first, uint32_t n)
{
    int64_t starts[BLOCK_ROWS + 1];
    mst_array_spec slice;
    mst_array_rows *rows = NULL;
    mst_array_spec_slice(t->spec, first, n, starts, &slice);
    TRY(mst_array_rows_new(&slice, 1, &rows));
    mst_status st = predict_check_data(t->model, rows);
    if (st == MST_OK)
        st = predict_some(t, s, rows, 0, first, n);
    mst_array_rows_release(rows);
    return st;
}

static void predict_fail(predict_task *t, uint64_t first, mst_status st)
{
    pthread_mutex_lock(&t->mutex);
    if (first < atomic_load(&t->failed)) {
        atomic_store(&t->failed, first);
        mst_error_save(&t->error, st);
    }
    pthread_mutex_unlock(&t->mutex);
}

static void predict_thread(void *arg, unsigned thread)
{
    predict_task *t = arg;
    mst_scorer *s = NULL;
    (void)thread;
    mst_status st = predict_take(t->model, t->inner, &s);
    if (st != MST_OK)
        predict_fail(t, 0, st);
    for (uint64_t first; st == MST_OK && (first = atomic_fetch_add(&t->next, BLOCK_ROWS)) < t->n_rows &&
                         first < atomic_load_explicit(&t->failed, memory_order_relaxed);) {
        uint32_t n = t->n_rows - first < BLOCK_ROWS ? (uint32_t)(t->n_rows - first) : BLOCK_ROWS;
        st = t->rows != NULL ? predict_some(t, s, t->rows, first, first, n) : predict_slice(t, s, first, n);
        if (st != MST_OK)
            predict_fail(t, first, st);
    }
    mst_scorers_give_back(predict_scorers(t->model), s);
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

/* The n_rows rows of `rows`, or of spec if that is NULL. */
static mst_status predict_data(const muster_model *self, const mst_array_rows *rows,
                               const mst_array_spec *spec, uint64_t n_rows, muster_output what,
                               unsigned n_threads, void *out)
{
    const mst_model *model = self->start.assembly.model;
    predict_task task = {.model = self,
                         .rows = rows,
                         .spec = spec,
                         .what = what,
                         .out = out,
                         .inner = 1,
                         .n_rows = n_rows,
                         .failed = UINT64_MAX};
    uint64_t unit = mst_model_has(model->ops, MST_MODEL_NET) ? BLOCK_ROWS : ROWS_A_THREAD,
             most = n_rows / unit + 1;
    mst_team *team = NULL;
    if ((unsigned)what > MUSTER_MARGINS)
        return mst_fail(MST_EUSAGE, "%d is not a kind of prediction", (int)what);
    if (rows != NULL)
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
    if (st == MST_OK && atomic_load(&task.failed) != UINT64_MAX)
        st = mst_error_restore(&task.error);
    return st;
}

muster_status muster_model_predict_data(const muster_model *self, const muster_data *data, muster_output what,
                                        uint32_t n_threads, void *out)
{
    mst_float_mode mode = mst_float_flush(); /* for the threads that are made here */
    uint64_t n_rows = mst_array_rows_info(data->rows)->n_rows;
    mst_status st = predict_data(self, data->rows, NULL, n_rows, what, mst_api_threads(n_threads), out);
    mst_float_mode_set(mode);
    mst_dnnl_restore_mode();
    return (muster_status)st;
}

muster_status muster_model_predict_arrays(const muster_model *self, const muster_arrays *arrays,
                                          muster_output what, uint32_t n_threads, void *out)
{
    mst_array_spec spec;
    mst_float_mode mode = mst_float_flush(); /* for the threads that are made here */
    mst_status st = mst_api_arrays(arrays, &spec);
    if (st == MST_OK)
        st = mst_array_spec_check(&spec);
    if (st == MST_OK)
        st = predict_data(self, NULL, &spec, spec.n_rows, what, mst_api_threads(n_threads), out);
    mst_float_mode_set(mode);
    mst_dnnl_restore_mode();
    return (muster_status)st;
}
