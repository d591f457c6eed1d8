/* Trained models of the public interface; contract in muster/muster.h.
 *
 * The model reads rows in place. If a linear model has a shorter dense prefix than the rows, they are packed
 * first, as rows of a file would be. Images go through the augmentation of the training, without its random
 * part, into memory of the model object. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "api/api_impl.h"
#include "base/alloc.h"
#include "base/float_mode.h"
#include "train/assembly.h"

#define ROWS 64 /* at a time */

struct muster_model {
    mst_assembly assembly;
    mst_weights weights;
    muster_net *net; /* held, for its kinds; or NULL */
    void *scratch;
    float *scores; /* ROWS x n_scores */
    mst_row rows[ROWS];
    mst_chunk_builder builder;
    mst_augment augment; /* of images; any false: none */
    float *images;       /* ROWS of them, augmented */
};

static mst_status model_load(muster_model *self, const char *path)
{
    mst_status st;
    char *checkpoint = NULL;
    bool best;
    mst_checkpoint_meta meta = {0};
    mst_model_options options = {.kinds = self->net != NULL ? self->net->kinds : NULL};
    mst_shape shape;
    TRY_OUT(st, mst_checkpoint_find_model(path, false, &checkpoint, &best));
    TRY_OUT(st, mst_checkpoint_read_meta(checkpoint, &meta));
    TRY_OUT(st, mst_model_from_json(meta.model, checkpoint, &options, &shape));
    TRY_OUT(st, mst_assembly_init(&self->assembly, &options, &shape, mst_kernels_get(mst_isa_best()),
                                  &(mst_store_spec){0}, 0));
    TRY_OUT(st, mst_checkpoint_load(checkpoint, &self->assembly.params, NULL, false));
    const mst_model *model = self->assembly.model;
    TRY_OUT(st, mst_model_scratch_new(model, ROWS, 1, false, &self->scratch));
    mst_model_weights(model, &self->assembly.params, &self->weights);
    self->scores = mst_calloc((size_t)ROWS * model->n_scores, sizeof *self->scores);
    if (self->scores == NULL)
        TRY_OUT(st, mst_fail_memory());
    TRY_OUT(st, mst_augment_from_checkpoint(&self->augment, &meta, checkpoint));
    if (!self->augment.any)
        goto out;
    if (mst_augment_out(&self->augment) != model->shape.n_features)
        TRY_OUT(st,
                mst_fail(MST_EINPUT,
                         "%s: the augmentation makes images of %u x %u x %u, but the model expects %" PRIu64
                         " numbers",
                         checkpoint, self->augment.channels, self->augment.height, self->augment.width,
                         model->shape.n_features));
    self->images = mst_calloc(ROWS * mst_augment_out(&self->augment), sizeof *self->images);
    if (self->images == NULL)
        st = mst_fail_memory();
out:
    mst_checkpoint_meta_fini(&meta);
    mst_free(checkpoint);
    return st;
}

muster_status muster_model_load(const char *path, muster_net *net, muster_model **out)
{
    muster_model *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return muster_fail(MUSTER_ENOMEM, "%s: no memory for a model", path);
    self->net = mst_api_net_hold(net);
    mst_chunk_builder_init(&self->builder);
    mst_status st = model_load(self, path);
    if (st != MST_OK) {
        muster_model_free(self);
        return (muster_status)st;
    }
    *out = self;
    return MUSTER_OK;
}

void muster_model_free(muster_model *self)
{
    if (self == NULL)
        return;
    if (self->assembly.model != NULL)
        mst_model_scratch_free(self->assembly.model, self->scratch);
    mst_assembly_fini(&self->assembly);
    mst_chunk_builder_fini(&self->builder);
    mst_free(self->scores);
    mst_free(self->images);
    muster_net_free(self->net);
    mst_free(self);
}

uint64_t muster_model_features(const muster_model *self)
{
    return self->augment.any ? mst_augment_in(&self->augment) : self->assembly.model->shape.n_features;
}

uint32_t muster_model_classes(const muster_model *self)
{
    uint32_t n = self->assembly.model->n_scores;
    return n == 1 ? 2 : n;
}

const float *muster_model_weight(const muster_model *self, const char *name, uint64_t *size)
{
    const mst_view *view = mst_params_find(&self->assembly.params, name);
    if (view == NULL)
        return NULL;
    if (size != NULL)
        *size = view->size;
    return self->assembly.params.w + view->offset;
}

/* ---- predicting ---- */

static mst_status model_check_row(const muster_model *self, const muster_row *row, size_t number)
{
    uint64_t from = row->n_dense, features = muster_model_features(self);
    uint32_t n_fields = self->assembly.model->shape.n_fields;
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

static mst_row model_row_in_place(const muster_model *self, const muster_row *row)
{
    return (mst_row){
        .dense = row->bytes == NULL ? row->dense : NULL,
        .bytes = row->bytes,
        .keys = row->keys,
        .values = row->values,
        .n_dense = row->n_dense,
        .n_keys = row->n_keys,
        .weight = 1.0f,
        .any_order = self->assembly.model->shape.n_fields > 0,
    };
}

static mst_status model_add_row(mst_chunk_builder *b, const muster_row *row)
{
    TRY(mst_chunk_builder_room(b, (size_t)row->n_dense + row->n_keys));
    for (uint32_t k = 0; k < row->n_dense; k++)
        mst_chunk_builder_add(b, k, row->bytes != NULL ? (float)row->bytes[k] / 255.0f : row->dense[k]);
    for (uint32_t k = 0; k < row->n_keys; k++)
        mst_chunk_builder_add(b, row->keys[k], row->values != NULL ? row->values[k] : 1.0f);
    return mst_chunk_builder_end_row(b, 0.0f, 1.0f);
}

static mst_status model_score(muster_model *self, const muster_row *rows, uint32_t n)
{
    const mst_model *model = self->assembly.model;
    mst_chunk *chunk = NULL;
    bool pack = false;
    for (uint32_t i = 0; i < n && !mst_model_has(model->ops, MST_MODEL_NET) && !self->augment.any; i++)
        pack |= rows[i].n_dense > model->shape.n_dense;
    if (pack) {
        mst_chunk_builder_clear(&self->builder);
        self->builder.max_dense = model->shape.n_dense;
        if (model->shape.n_fields > 0)
            self->builder.order = MST_ORDER_POSITION;
        for (uint32_t i = 0; i < n; i++)
            TRY(model_add_row(&self->builder, &rows[i]));
        TRY(mst_chunk_builder_pack(&self->builder, 0, n, &chunk));
    }
    for (uint32_t i = 0; i < n; i++) {
        if (pack)
            mst_chunk_row(chunk, i, &self->rows[i]);
        else
            self->rows[i] = model_row_in_place(self, &rows[i]);
        if (self->augment.any)
            mst_augment_row(&self->augment, false, 0, i, self->images + i * mst_augment_out(&self->augment),
                            &self->rows[i]);
    }
    mst_batch batch = {.rows = self->rows, .n_rows = n};
    mst_status st = mst_model_score(model, self->scratch, &batch, &self->weights, self->scores);
    mst_chunk_release(chunk);
    return st;
}

static void model_probabilities(const float *scores, uint32_t n, float *out)
{
    if (n > 1) {
        mst_probabilities(scores, n, out);
        return;
    }
    double p = mst_probability((double)scores[0]);
    out[0] = (float)(1.0 - p);
    out[1] = (float)p;
}

static mst_status model_predict(muster_model *self, const muster_row *rows, size_t n_rows, float *out)
{
    uint32_t n_scores = self->assembly.model->n_scores, classes = muster_model_classes(self);
    for (size_t i = 0; i < n_rows; i++)
        TRY(model_check_row(self, &rows[i], i));
    for (size_t from = 0; from < n_rows; from += ROWS) {
        uint32_t n = n_rows - from < ROWS ? (uint32_t)(n_rows - from) : ROWS;
        TRY(model_score(self, rows + from, n));
        for (uint32_t i = 0; i < n; i++)
            model_probabilities(self->scores + (size_t)i * n_scores, n_scores, out + (from + i) * classes);
    }
    return MST_OK;
}

muster_status muster_model_predict(muster_model *self, const muster_row *rows, size_t n_rows,
                                   float *probabilities)
{
    mst_float_mode mode = mst_float_flush();
    mst_status st = model_predict(self, rows, n_rows, probabilities); /* in this thread alone */
    mst_float_mode_set(mode);
    return (muster_status)st;
}
