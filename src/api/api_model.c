/* Trained models of the public interface: loading, saving, parameters; contract in muster/muster.h.
 * Predictions are in api_predict.c. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/api_model_impl.h"
#include "base/alloc.h"
#include "data/origin.h"

/* ---- making ---- */

/* The contents of a checkpoint besides the floats, of a state (mst_run_log_state). */
static mst_status model_meta(const mst_start *start, mst_checkpoint_meta *out)
{
    json_int_t step, rows, epoch, position;
    *out = (mst_checkpoint_meta){0};
    if (json_unpack(start->state, "{s:I, s:I, s:I, s:I, s:F, s:F, s:O}", "step", &step, "rows", &rows,
                    "epoch", &epoch, "position", &position, "train_seconds", &out->train_seconds,
                    "eval_seconds", &out->eval_seconds, "extra", &out->extra) != 0)
        return mst_fail(MST_EINPUT, "the model has no valid state");
    out->step = (uint64_t)step;
    out->rows = (uint64_t)rows;
    out->epoch = (uint64_t)epoch;
    out->position = (uint64_t)position;
    out->model = mst_model_json(start->assembly.model);
    out->optimizer = json_pack("{s:s}", "name", start->optimizer);
    if (start->sparse[0] != '\0')
        json_object_set_new(out->optimizer, "sparse", json_string(start->sparse));
    return out->model != NULL && out->optimizer != NULL ? MST_OK : mst_fail_memory();
}

/* The augmentation of images, if there is any. */
static mst_status model_set_augment(muster_model *self, const char *source)
{
    const mst_model *model = self->start.assembly.model;
    mst_checkpoint_meta meta;
    mst_status st = model_meta(&self->start, &meta);
    if (st == MST_OK)
        st = mst_augment_from_checkpoint(&self->augment, &meta, source);
    mst_checkpoint_meta_fini(&meta);
    TRY(st);
    if (self->augment.any && mst_augment_out(&self->augment) != model->shape.n_features)
        return mst_fail(MST_EINPUT,
                        "%s: the augmentation makes images of %u x %u x %u, but the model expects %" PRIu64
                        " numbers",
                        source, self->augment.channels, self->augment.height, self->augment.width,
                        model->shape.n_features);
    return MST_OK;
}

static muster_model *model_new(muster_net *net)
{
    muster_model *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return NULL;
    self->net = mst_api_net_hold(net);
    pthread_mutex_init(&self->mutex, NULL);
    return self;
}

static mst_status model_finish(muster_model *self, const char *source)
{
    mst_scorers_init(&self->scorers, &self->start.assembly, &self->augment);
    return model_set_augment(self, source);
}

mst_status mst_api_model_of(mst_start *from, muster_net *net, muster_model **out)
{
    muster_model *self = model_new(net);
    if (self == NULL) {
        mst_start_fini(from);
        return mst_fail_memory();
    }
    self->start = *from;
    mst_status st = model_finish(self, "the model");
    if (st != MST_OK) {
        muster_model_free(self);
        return st;
    }
    *out = self;
    return MST_OK;
}

const mst_start *mst_api_model_start(const muster_model *self)
{
    return &self->start;
}

static const mst_optimizer_ops *model_optimizer(const char *name)
{
    for (size_t i = 0; mst_optimizers[i] != NULL; i++)
        if (strcmp(mst_optimizers[i]->name, name) == 0)
            return mst_optimizers[i];
    return NULL;
}

static mst_status model_load(muster_model *self, const char *path, bool with_state)
{
    mst_status st;
    char *checkpoint = NULL;
    bool best;
    mst_start *start = &self->start;
    mst_checkpoint_meta meta = {0};
    mst_model_options options = {.kinds = self->net != NULL ? self->net->kinds : NULL};
    mst_shape shape;
    TRY_OUT(st, mst_checkpoint_find_model(path, false, &checkpoint, &best));
    TRY_OUT(st, mst_checkpoint_read_meta(checkpoint, &meta));
    TRY_OUT(st, mst_model_from_json(meta.model, checkpoint, &options, &shape));
    const char *name = json_string_value(json_object_get(meta.optimizer, "name")),
               *of_keys = json_string_value(json_object_get(meta.optimizer, "sparse"));
    mst_optimizer sparse = {.ops = of_keys != NULL ? model_optimizer(of_keys) : NULL},
                  optimizer = {.ops = with_state && name != NULL ? model_optimizer(name) : NULL,
                               .sparse = sparse.ops != NULL ? &sparse : NULL};
    with_state = optimizer.ops != NULL && (sparse.ops != NULL) == (of_keys != NULL);
    mst_store_spec store = {.optimizer = with_state ? &optimizer : NULL, .by_rows = with_state};
    if (with_state) {
        snprintf(start->optimizer, sizeof start->optimizer, "%s", optimizer.ops->name);
        snprintf(start->sparse, sizeof start->sparse, "%s", sparse.ops != NULL ? sparse.ops->name : "");
    }
    TRY_OUT(st, mst_assembly_init(&start->assembly, &options, &shape, mst_kernels_get(mst_isa_best()), &store,
                                  0));
    TRY_OUT(st, mst_checkpoint_load(checkpoint, &start->assembly.params, with_state));
    start->state = json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:O}", "step", (json_int_t)meta.step, "rows",
                             (json_int_t)meta.rows, "epoch", (json_int_t)meta.epoch, "position",
                             (json_int_t)meta.position, "train_seconds", meta.train_seconds, "eval_seconds",
                             meta.eval_seconds, "extra", meta.extra);
    if (start->state == NULL)
        TRY_OUT(st, mst_fail_memory());
    st = model_finish(self, checkpoint);
out:
    mst_checkpoint_meta_fini(&meta);
    mst_free(checkpoint);
    return st;
}

static muster_status model_new_from(const char *path, muster_net *net, bool with_state, muster_model **out)
{
    muster_model *self = model_new(net);
    if (self == NULL)
        return muster_fail(MUSTER_ENOMEM, "%s: no memory for a model", path);
    mst_status st = model_load(self, path, with_state);
    if (st != MST_OK) {
        muster_model_free(self);
        return (muster_status)st;
    }
    *out = self;
    return MUSTER_OK;
}

muster_status muster_model_load(const char *path, muster_net *net, muster_model **out)
{
    return model_new_from(path, net, false, out);
}

muster_status muster_model_load_state(const char *path, muster_net *net, muster_model **out)
{
    return model_new_from(path, net, true, out);
}

void muster_model_free(muster_model *self)
{
    if (self == NULL)
        return;
    uint32_t n = self->names != NULL ? muster_model_n_tensors(self) : 0;
    for (uint32_t i = 0; i < n; i++)
        mst_free(self->names[i]);
    mst_free(self->names);
    mst_api_names_destroy(self->features);
    mst_scorers_fini(&self->scorers);
    mst_start_fini(&self->start);
    pthread_mutex_destroy(&self->mutex);
    muster_net_free(self->net);
    mst_free(self->text);
    mst_free(self);
}

/* ---- saving ---- */

static mst_status model_save(const muster_model *self, const char *folder)
{
    const mst_optimizer_ops *optimizer = model_optimizer(self->start.optimizer);
    mst_checkpointer *checkpointer = NULL;
    mst_checkpoint_meta meta;
    mst_status st;
    TRY_OUT(st, model_meta(&self->start, &meta));
    if (optimizer == NULL) { /* without state */
        json_decref(meta.optimizer);
        meta.optimizer = json_pack("{s:s}", "name", "sgd");
    }
    TRY_OUT(st, mst_checkpointer_new(folder, 1, &checkpointer));
    TRY_OUT(st, mst_checkpointer_begin(checkpointer, &self->start.assembly.params, &meta));
    st = mst_checkpointer_wait(checkpointer, NULL);
out:
    mst_checkpointer_destroy(checkpointer);
    mst_checkpoint_meta_fini(&meta);
    return st;
}

muster_status muster_model_save(const muster_model *self, const char *folder)
{
    return (muster_status)model_save(self, folder);
}

/* ---- the shape ---- */

uint64_t muster_model_features(const muster_model *self)
{
    return self->augment.any ? mst_augment_in(&self->augment) : self->start.assembly.model->shape.n_features;
}

uint32_t muster_model_scores(const muster_model *self)
{
    return self->start.assembly.model->n_scores;
}

uint32_t muster_model_classes(const muster_model *self)
{
    uint32_t n = muster_model_scores(self);
    return n == 1 ? 2 : n;
}

/* The labels of the classes, and the fields with their names. */
static void model_describe_rows(const muster_model *self, const json_t *extra, json_t *out)
{
    const json_t *data = json_object_get(extra, "data");
    json_t *names = mst_api_field_names(mst_origin_in(data));
    json_object_set_new(out, "labels",
                        mst_origin_labels(json_object_get(data, "image-classes"), muster_model_classes(self),
                                          json_integer_value(json_object_get(data, "labels-from")),
                                          json_is_true(json_object_get(extra, MST_LABEL_MINUS_ONE))));
    const json_t *list = json_object_get(data, "feature-names");
    if (json_is_string(list))
        json_object_set(out, "feature_names", (json_t *)list);
    json_object_set_new(out, "fields", json_integer(self->start.assembly.model->shape.n_fields));
    if (names != NULL)
        json_object_set_new(out, "field_names", names);
}

const char *muster_model_text(muster_model *self)
{
    mst_checkpoint_meta meta;
    char *text = NULL;
    if (model_meta(&self->start, &meta) == MST_OK) {
        json_object_set_new(meta.model, "step", json_integer((json_int_t)meta.step));
        json_object_set_new(meta.model, "rows", json_integer((json_int_t)meta.rows));
        json_object_set_new(meta.model, "optimizer", json_string(self->start.optimizer));
        model_describe_rows(self, meta.extra, meta.model);
        text = json_dumps(meta.model, JSON_SORT_KEYS);
    }
    mst_checkpoint_meta_fini(&meta);
    mst_free(self->text);
    self->text = text != NULL ? mst_strdup(text) : NULL;
    free(text);
    return self->text;
}

/* ---- parameters ---- */

const float *muster_model_weight(const muster_model *self, const char *name, uint64_t *size)
{
    const mst_params *params = &self->start.assembly.params;
    const mst_view *view = mst_params_find(params, name);
    if (view == NULL || mst_params_in_rows(params, view->offset, view->size))
        return NULL;
    if (size != NULL)
        *size = view->size;
    return params->w + view->offset;
}

/* The weights of all views, then the views that have state 0, state 1, ...; NULL: there are fewer. *slot: 0,
 * or the number of the state plus 1. */
static const mst_view *model_view(const muster_model *self, uint32_t number, uint32_t *slot)
{
    const mst_params *params = &self->start.assembly.params;
    for (*slot = 0; *slot <= params->n_slots; ++*slot)
        for (uint32_t v = 0; v < params->n_views; v++)
            if (*slot <= params->views[v].state.n_slots && number-- == 0)
                return &params->views[v];
    return NULL;
}

uint32_t muster_model_n_tensors(const muster_model *self)
{
    const mst_params *params = &self->start.assembly.params;
    uint32_t n = 0;
    for (uint32_t v = 0; v < params->n_views; v++)
        n += 1 + params->views[v].state.n_slots;
    return n;
}

static mst_status model_no_tensor(const muster_model *self, uint32_t number)
{
    return mst_fail(MST_EUSAGE, "there is no tensor %u: the model has %u", number,
                    muster_model_n_tensors(self));
}

/* Names are made once, under the mutex, and live as long as the model. */
static const char *model_tensor_name(muster_model *self, uint32_t number, const mst_view *view, uint32_t slot)
{
    if (slot == 0)
        return view->name;
    pthread_mutex_lock(&self->mutex);
    if (self->names == NULL)
        self->names = mst_calloc(muster_model_n_tensors(self), sizeof *self->names);
    if (self->names != NULL && self->names[number] == NULL)
        self->names[number] = mst_sprintf("optimizer.%s.%s", view->state.names[slot - 1], view->name);
    const char *name = self->names != NULL ? self->names[number] : NULL;
    pthread_mutex_unlock(&self->mutex);
    return name;
}

muster_status muster_model_tensor(const muster_model *self, uint32_t number, muster_tensor *out)
{
    const mst_params *params = &self->start.assembly.params;
    uint32_t slot;
    const mst_view *view = model_view(self, number, &slot);
    if (view == NULL)
        return (muster_status)model_no_tensor(self, number);
    muster_tensor t = {.n_dims = view->n_dims, .size = mst_view_floats(view, slot)};
    t.name = model_tensor_name((muster_model *)self, number, view, slot); /* a cache of texts */
    if (t.name == NULL)
        return (muster_status)mst_fail_memory();
    memcpy(t.dims, view->dims, sizeof t.dims);
    if (t.size != view->size) { /* one float per key */
        memset(t.dims, 0, sizeof t.dims);
        t.n_dims = 1;
        t.dims[0] = t.size;
    }
    t.stride = t.dims[0] > 0 ? t.size / t.dims[0] : 0;
    const mst_key_rows *rows = &params->rows;
    if (!mst_params_in_rows(params, view->offset, view->size)) {
        t.data = (slot == 0 ? params->w : params->slots[slot - 1]) + view->offset;
    } else if (rows->first <= view->offset && !rows->grouped) { /* no part is in front of the rows */
        t.data = mst_key_first(rows, rows->n_keys - (rows->end - rows->first)) + slot;
        t.stride = rows->stride;
    }
    *out = t;
    return MUSTER_OK;
}

muster_status muster_model_read(const muster_model *self, uint32_t number, float *out)
{
    uint32_t slot;
    const mst_view *view = model_view(self, number, &slot);
    if (view == NULL)
        return (muster_status)model_no_tensor(self, number);
    mst_params_read(&self->start.assembly.params, slot, view->offset, mst_view_floats(view, slot), out);
    return MUSTER_OK;
}
