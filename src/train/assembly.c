/* Building models; contract in assembly.h. */
#include "train/assembly.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/origin.h"
#include "model/layer.h"

mst_status mst_assembly_declare(mst_assembly *self, const mst_model_options *options, const mst_shape *shape,
                                const mst_kernels *kernels)
{
    *self = (mst_assembly){0};
    TRY(mst_model_new(options, shape, kernels, &self->model));
    return self->model->ops->declare(self->model, &self->params);
}

mst_status mst_assembly_init(mst_assembly *self, const mst_model_options *options, const mst_shape *shape,
                             const mst_kernels *kernels, const mst_store_spec *store, uint64_t seed)
{
    TRY(mst_assembly_declare(self, options, shape, kernels));
    self->params.by_rows = store->by_rows && mst_model_chain(self->model) == NULL;
    uint32_t n_slots = store->optimizer != NULL ? mst_optimizer_declare(store->optimizer, &self->params) : 0;
    TRY(mst_params_reserve(&self->params, n_slots, store->spare));
    if (self->model->ops->start == NULL)
        return MST_OK;
    if (self->model->ops->start_keys == NULL) /* all of them are filled here, or none */
        TRY(mst_model_check_memory(self->model, &self->params, false, mst_params_bytes(&self->params)));
    self->model->ops->start(self->model, &self->params, seed);
    return MST_OK;
}

void mst_assembly_start_keys(mst_assembly *self, uint64_t seed)
{
    if (self->model->ops->start_keys != NULL)
        self->model->ops->start_keys(self->model, &self->params, seed, 0, self->model->shape.n_features);
}

void mst_assembly_fini(mst_assembly *self)
{
    mst_params_fini(&self->params);
    mst_model_destroy(self->model);
    self->model = NULL;
}

/* The error for images of a shape other than `c`x`h`x`w`. */
static mst_status assembly_other_images(const mst_dataset *d, uint32_t c, uint32_t h, uint32_t w,
                                        const char *whose)
{
    const mst_data_info *i = &d->info;
    char size[64] = "";
    if (d->encoded && i->channels == c)
        snprintf(size, sizeof size, "; give --image-size %ux%u", h, w);
    return mst_fail(MST_EINPUT, "%s: its images are %ux%ux%u, but %s %ux%ux%u%s", d->name, i->channels,
                    i->height, i->width, whose, c, h, w, size);
}

/* The error for rows of a length other than the model's, which has no image size. */
static mst_status assembly_other_length(const mst_dataset *d, uint64_t numbers, uint64_t features)
{
    uint32_t c = d->info.channels;
    char size[128] = "";
    if (d->encoded && features % c == 0) {
        uint32_t side = (uint32_t)lround(sqrt((double)features / c));
        int n = snprintf(size, sizeof size, "; give --image-size HxW with %u x H x W = %llu", c,
                         (unsigned long long)features);
        if ((uint64_t)side * side * c == features)
            snprintf(size + n, sizeof size - (size_t)n, ", such as %ux%u", side, side);
    }
    return mst_fail(MST_EINPUT, "%s: its rows have %llu values%s, but the model expects %llu%s", d->name,
                    (unsigned long long)numbers, c != 0 ? " (images)" : "", (unsigned long long)features,
                    size);
}

/* The length of every row, if all rows have all numbers; 0: rows are sparse. */
static uint64_t assembly_row_length(const mst_data_info *info)
{
    uint64_t n = info->scanned ? info->n_features : info->first_features;
    return info->n_dense == n ? n : 0;
}

mst_status mst_assembly_check_rows(const mst_assembly *self, const mst_augment *augment, const mst_dataset *d)
{
    const mst_chain *chain = mst_model_chain(self->model);
    const mst_shape *shape = &self->model->shape;
    const mst_data_info *i = &d->info;
    bool images = i->channels != 0, changed = augment != NULL && augment->any;
    bool fixed = images || mst_dataset_has(d, MST_DATA_FIXED_ROWS);
    bool sides = chain != NULL && (chain->in.h > 1 || chain->in.w > 1);
    uint64_t numbers = changed ? mst_augment_out(augment) : assembly_row_length(i);
    mst_dims got = {i->channels, i->height, i->width};
    if (changed) {
        if (i->channels != augment->channels || i->height != augment->in_height ||
            i->width != augment->in_width)
            return assembly_other_images(d, augment->channels, augment->in_height, augment->in_width,
                                         "the model expects images of");
        got = (mst_dims){augment->channels, augment->height, augment->width};
    }
    if (sides && images && memcmp(&got, &chain->in, sizeof got) != 0)
        return got.h != i->height || got.w != i->width
                   ? mst_fail(MST_EINPUT, "%s: its images become %ux%ux%u, but the net expects %ux%ux%u",
                              d->name, got.c, got.h, got.w, chain->in.c, chain->in.h, chain->in.w)
                   : assembly_other_images(d, chain->in.c, chain->in.h, chain->in.w, "the net expects");
    if (numbers == 0 || numbers == shape->n_features)
        return MST_OK;
    if (sides)
        return mst_fail(MST_EINPUT, "%s: its rows have %llu values, but the net expects %ux%ux%u", d->name,
                        (unsigned long long)numbers, chain->in.c, chain->in.h, chain->in.w);
    if (fixed && (chain != NULL || shape->n_dense == shape->n_features))
        return assembly_other_length(d, numbers, shape->n_features);
    return MST_OK;
}

mst_status mst_params_kept(const mst_params *params, const mst_dataset *dataset)
{
    TRY(mst_dataset_intact(dataset));
    return mst_params_strayed(params)
               ? mst_fail(MST_EINPUT, "%s was changed while it was in use: a row has a key out of range",
                          dataset->name)
               : MST_OK;
}

json_t *mst_model_json(const mst_model *model)
{
    const mst_chain *chain = mst_model_chain(model);
    const mst_shape *shape = &model->shape;
    json_t *json;
    if (chain != NULL)
        json = json_pack("{s:s, s:I, s:I, s:I, s:[I, I, I], s:s}", "name", model->ops->name, "features",
                         (json_int_t)shape->n_features, "dense", (json_int_t)shape->n_dense, "classes",
                         (json_int_t)shape->n_classes, "image", (json_int_t)chain->in.c,
                         (json_int_t)chain->in.h, (json_int_t)chain->in.w, "net", chain->text);
    else
        json = json_pack("{s:s, s:I, s:I, s:I, s:b, s:f}", "name", model->ops->name, "features",
                         (json_int_t)shape->n_features, "dense", (json_int_t)shape->n_dense, "classes",
                         (json_int_t)shape->n_classes, "bias", (int)model->options.bias, "pos_weight",
                         model->options.pos_weight);
    if (mst_model_has(model->ops, MST_MODEL_FACTORS)) {
        json_object_set_new(json, "factors", json_integer(model->options.factors));
        json_object_set_new(json, "row_norm", json_boolean(model->options.row_norm));
    }
    if (shape->n_fields > 0)
        json_object_set_new(json, "fields", json_integer(shape->n_fields));
    if (model->options.keep_negatives > 0.0 && model->options.keep_negatives < 1.0)
        json_object_set_new(json, "keep_negatives", json_real(model->options.keep_negatives));
    return json;
}

/* Unknown (all zeros), or all three sides. */
static bool model_image_possible(json_int_t c, json_int_t h, json_int_t w)
{
    const json_int_t most = 1 << 28;
    return (c == 0 && h == 0 && w == 0) || (c > 0 && h > 0 && w > 0 && c <= most && h <= most && w <= most);
}

static mst_status model_factors_from_json(const json_t *json, const char *checkpoint,
                                          mst_model_options *options)
{
    json_int_t factors = 0;
    int norm = 0;
    if (json_unpack((json_t *)json, "{s:I, s:b}", "factors", &factors, "row_norm", &norm) != 0 ||
        factors < 1 || factors > MST_FACTORS_MAX)
        return mst_fail(MST_EINPUT, "%s: its manifest does not describe the model", checkpoint);
    options->factors = factors;
    options->row_norm = norm;
    return MST_OK;
}

mst_status mst_model_from_json(const json_t *json, const char *checkpoint, mst_model_options *options,
                               mst_shape *shape)
{
    const char *name, *net = NULL;
    json_int_t features, dense, classes, c = 0, h = 0, w = 0, fields = 0;
    double pos_weight = 0.0, keep_negatives = 1.0;
    int bias = -1;
    if (json == NULL ||
        json_unpack((json_t *)json, "{s:s, s:I, s:I, s:I, s?b, s?F, s?F, s?s, s?[I, I, I], s?I}", "name",
                    &name, "features", &features, "dense", &dense, "classes", &classes, "bias", &bias,
                    "pos_weight", &pos_weight, "keep_negatives", &keep_negatives, "net", &net, "image", &c,
                    &h, &w, "fields", &fields) != 0)
        return mst_fail(MST_EINPUT, "%s: its manifest does not describe the model", checkpoint);
    if (features < 1 || features > UINT32_MAX || dense < 0 || dense > features || classes < 2 ||
        classes > 1 << 24 || !(keep_negatives > 0.0 && keep_negatives <= 1.0) || fields < 0 ||
        fields > MST_FIELDS_MAX || !model_image_possible(c, h, w))
        return mst_fail(MST_EINPUT, "%s: its manifest describes an impossible model", checkpoint);
    *shape = (mst_shape){.n_features = (uint64_t)features,
                         .n_dense = (uint32_t)dense,
                         .n_classes = (uint32_t)classes,
                         .c = (uint32_t)c,
                         .h = (uint32_t)h,
                         .w = (uint32_t)w,
                         .n_fields = (uint32_t)fields};
    for (int i = 0; mst_models[i] != NULL; i++)
        if (strcmp(mst_models[i]->name, name) == 0) {
            if (!(mst_model_has(mst_models[i], MST_MODEL_NET) ? net != NULL : bias >= 0 && pos_weight > 0.0))
                return mst_fail(MST_EINPUT, "%s: its manifest does not describe the model", checkpoint);
            options->model = i;
            options->net_text = net;
            if (mst_model_has(mst_models[i], MST_MODEL_FACTORS))
                TRY(model_factors_from_json(json, checkpoint, options));
            options->keep_negatives = keep_negatives;
            if (net == NULL) {
                options->bias = bias;
                options->pos_weight = pos_weight;
            }
            return MST_OK;
        }
    return mst_fail(MST_EINPUT, "%s: unknown model \"%s\"", checkpoint, name);
}

mst_status mst_augment_from_checkpoint(mst_augment *self, const mst_checkpoint_meta *meta, const char *source)
{
    mst_augment_options options = {0};
    mst_option_group group = {.title = "augmentation", .table = mst_augment_option_table, .base = &options};
    json_t *data = json_object_get(meta->extra, "data");
    json_int_t c = 0, h = 0, w = 0;
    mst_status st;
    *self = (mst_augment){0};
    if (json_object_get(data, MST_AUGMENTED_IMAGE) != NULL &&
        (json_unpack(json_object_get(data, MST_AUGMENTED_IMAGE), "[I, I, I]", &c, &h, &w) != 0 ||
         !model_image_possible(c, h, w)))
        c = h = w = 0;
    TRY_OUT(st, mst_options_init(&group, 1));
    TRY_OUT(st, mst_options_adopt_known(&group, data));
    TRY_OUT(st, mst_augment_init_for(self, &options, source, (uint32_t)c, (uint32_t)h, (uint32_t)w));
out:
    mst_options_fini(&group, 1);
    return st;
}

mst_status mst_assembly_from_checkpoint(mst_assembly *self, const char *checkpoint,
                                        const mst_kernels *kernels, const mst_scoring_device *device,
                                        mst_option_group *groups, size_t n_groups, mst_checkpoint_meta *meta)
{
    mst_status st;
    mst_model_options options = {0};
    mst_shape shape;
    *self = (mst_assembly){0};
    *meta = (mst_checkpoint_meta){0};
    TRY_OUT(st, mst_checkpoint_read_meta(checkpoint, meta));
    TRY_OUT(st, mst_model_from_json(meta->model, checkpoint, &options, &shape));
    options.use = MST_DEVICE_COMPUTES;
    options.device = device != NULL ? device->device : NULL;
    options.precision = device != NULL ? device->precision : 0;
    if (groups != NULL) {
        char features[24];
        json_t *options_then = json_copy(json_object_get(meta->extra, "data"));
        json_object_del(options_then, MST_AUGMENTED_IMAGE);
        json_object_del(options_then, MST_ORIGIN);
        st = mst_options_adopt(groups, n_groups, options_then);
        json_decref(options_then);
        if (st != MST_OK)
            goto out;
        snprintf(features, sizeof features, "%llu", (unsigned long long)shape.n_features);
        TRY_OUT(st, mst_options_set(groups, n_groups, "features", features));
    }
    TRY_OUT(st, mst_assembly_init(self, &options, &shape, kernels, &(mst_store_spec){0}, 0));
    TRY_OUT(st, mst_checkpoint_load(checkpoint, &self->params, false));
out:
    return st;
}
