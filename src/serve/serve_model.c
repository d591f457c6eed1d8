/* Models of `muster serve`; contract in serve_model.h. */
#include "serve/serve_model.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "data/origin.h"
#include "train/run_log.h"

/* ---- loading ---- */

uint64_t mst_serve_model_features(const mst_serve_model *self)
{
    return self->augment.any ? mst_augment_in(&self->augment) : self->assembly.model->shape.n_features;
}

/* The options that the user has set win over those of the checkpoint. */
static mst_status model_set_options(mst_serve_model *self, const json_t *set)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)set, name, value)
    {
        char *text = mst_option_text(value);
        mst_status st = text != NULL ? mst_options_set(self->groups, 2, name, text) : mst_fail_memory();
        mst_free(text);
        TRY(st);
    }
    mst_data_options_note(&self->reading.data, self->groups, 2);
    return mst_data_options_check_seed(&self->reading.data);
}

static mst_status model_describe(mst_serve_model *self, const json_t *extra)
{
    const json_t *data = json_object_get(extra, "data"), *origin = mst_origin_in(data);
    const mst_shape *shape = &self->assembly.model->shape;
    uint32_t n_scores = self->assembly.model->n_scores;
    int64_t first = self->reading.data.labels_from;
    json_t *model = mst_model_json(self->assembly.model), *all,
           *labels = mst_origin_labels(json_object_get(data, "image-classes"), n_scores == 1 ? 2 : n_scores,
                                       first, json_is_true(json_object_get(extra, MST_LABEL_MINUS_ONE)));
    json_object_set_new(model, "step", json_integer((json_int_t)self->step));
    json_object_set_new(model, "rows", json_integer((json_int_t)self->rows));
    all = json_pack("{s:o, s:{s:s, s:I, s:I, s:O?}, s:{s:I, s:I, s:o}}", "model", model, "input", "format",
                    mst_row_parser_format(self->parser), "features",
                    (json_int_t)mst_serve_model_features(self), "fields", (json_int_t)shape->n_fields,
                    "columns", json_object_get(origin, "columns"), "output", "values", (json_int_t)n_scores,
                    "first_class", (json_int_t)first, "labels", labels);
    char *text = all != NULL ? json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    self->description = text != NULL ? mst_strdup(text) : NULL;
    free(text); /* jansson's allocation */
    json_decref(all);
    return self->description != NULL ? MST_OK : mst_fail_memory();
}

static void model_destroy(mst_serve_model *self)
{
    mst_scorers_fini(&self->scorers);
    mst_row_parser_destroy(self->parser);
    mst_assembly_fini(&self->assembly);
    mst_options_fini(self->groups, 2);
    mst_free(self->checkpoint);
    mst_free(self->description);
    mst_free(self);
}

/* Zeros: there is no manifest. */
static void model_identity(const char *checkpoint, uint64_t *inode, uint64_t *changed_ns)
{
    struct stat info = {0};
    char *path = mst_sprintf("%s/manifest.json", checkpoint);
    bool found = path != NULL && stat(path, &info) == 0;
    mst_free(path);
    *inode = found ? (uint64_t)info.st_ino : 0;
    *changed_ns = found ? (uint64_t)info.st_mtim.tv_sec * MST_S + (uint64_t)info.st_mtim.tv_nsec : 0;
}

mst_status mst_serve_model_load(const char *checkpoint, mst_isa isa, const json_t *set, mst_serve_model **out)
{
    mst_status st;
    mst_checkpoint_meta meta = {0};
    mst_serve_model *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->references = 1;
    model_identity(checkpoint, &self->inode, &self->changed_ns); /* before it is read */
    self->groups[0] =
        (mst_option_group){.title = "data", .table = mst_data_option_table, .base = &self->reading.data};
    self->groups[1] = (mst_option_group){
        .title = "augmentation", .table = mst_augment_option_table, .base = &self->reading.augment};
    TRY_OUT(st, mst_options_init(self->groups, 2));
    self->checkpoint = mst_strdup(checkpoint);
    if (self->checkpoint == NULL)
        TRY_OUT(st, mst_fail_memory());
    TRY_OUT(st, mst_assembly_from_checkpoint(&self->assembly, checkpoint, mst_kernels_get(isa), NULL,
                                             self->groups, 2, &meta));
    TRY_OUT(st, model_set_options(self, set));
    TRY_OUT(st, mst_augment_from_checkpoint(&self->augment, &meta, checkpoint));
    self->step = meta.step;
    self->rows = meta.rows;
    mst_scorers_init(&self->scorers, &self->assembly, &self->augment);
    TRY_OUT(st, mst_row_parser_new(&self->reading.data, mst_origin_in(json_object_get(meta.extra, "data")),
                                   self->assembly.model->shape.n_fields > 0, &self->parser));
    TRY_OUT(st, model_describe(self, meta.extra));
    *out = self;
    self = NULL;
out:
    mst_checkpoint_meta_fini(&meta);
    if (self != NULL)
        model_destroy(self);
    return st;
}

void mst_serve_model_hold(mst_serve_model *self)
{
    atomic_fetch_add_explicit(&self->references, 1, memory_order_relaxed);
}

void mst_serve_model_release(mst_serve_model *self)
{
    if (self != NULL && atomic_fetch_sub_explicit(&self->references, 1, memory_order_acq_rel) == 1)
        model_destroy(self);
}

/* ---- the model in use ---- */

mst_status mst_model_slot_init(mst_model_slot *self, const char *path, bool last, mst_isa isa,
                               const json_t *set)
{
    *self = (mst_model_slot){.path = path, .last = last, .isa = isa, .set = set};
    pthread_mutex_init(&self->mutex, NULL);
    char *checkpoint = NULL;
    bool best;
    TRY(mst_checkpoint_find_model(path, last, &checkpoint, &best));
    if (best)
        mst_info("using %s, which has the best valid loss (--last: the newest)", checkpoint);
    mst_status st = mst_serve_model_load(checkpoint, isa, set, &self->model);
    mst_free(checkpoint);
    return st;
}

void mst_model_slot_fini(mst_model_slot *self)
{
    mst_serve_model_release(self->model);
    mst_free(self->refused);
    pthread_mutex_destroy(&self->mutex);
}

mst_serve_model *mst_model_slot_take(mst_model_slot *self)
{
    pthread_mutex_lock(&self->mutex);
    mst_serve_model *model = self->model;
    mst_serve_model_hold(model);
    pthread_mutex_unlock(&self->mutex);
    return model;
}

/* The checkpoint may be removed by the training while it is read: the next look finds a newer one. */
static void slot_refuse(mst_model_slot *self, char *checkpoint)
{
    if (self->refused == NULL || strcmp(self->refused, checkpoint) != 0) {
        atomic_fetch_add(&self->failures, 1);
        mst_warn("%s cannot be loaded, so requests are answered by %s: %s", checkpoint,
                 self->model->checkpoint, mst_error_text());
    }
    mst_free(self->refused);
    self->refused = checkpoint;
}

bool mst_model_slot_refresh(mst_model_slot *self)
{
    char *checkpoint = NULL;
    bool best;
    mst_serve_model *model = NULL, *old;
    if (mst_checkpoint_find_model(self->path, self->last, &checkpoint, &best) != MST_OK)
        return false; /* the run is being replaced: the model in use stays */
    uint64_t inode, changed_ns;
    model_identity(checkpoint, &inode, &changed_ns);
    old = self->model; /* this thread alone replaces it */
    if (strcmp(checkpoint, old->checkpoint) == 0 && inode == old->inode && changed_ns == old->changed_ns) {
        mst_free(checkpoint);
        return false;
    }
    if (mst_serve_model_load(checkpoint, self->isa, self->set, &model) != MST_OK) {
        slot_refuse(self, checkpoint);
        return false;
    }
    mst_free(checkpoint);
    pthread_mutex_lock(&self->mutex);
    self->model = model;
    pthread_mutex_unlock(&self->mutex);
    mst_serve_model_release(old);
    atomic_fetch_add(&self->reloads, 1);
    mst_info("requests are answered by %s", model->checkpoint);
    return true;
}
