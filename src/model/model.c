/* Registry and life of models; contract in model.h. */
#include "model/model.h"

#include "base/alloc.h"

extern const mst_model_ops mst_model_logreg, mst_model_softmax;

const mst_model_ops *const mst_models[] = {&mst_model_logreg, &mst_model_softmax, NULL};

#define FIELD(name) offsetof(mst_model_options, name)
const mst_option mst_model_option_table[] = {
    {"model", MST_OPTION_CHOICE, FIELD(model), "logreg", 0, 0, "logreg|softmax", NULL, "What to train."},
    {"bias", MST_OPTION_FLAG, FIELD(bias), "true", 0, 0, NULL, NULL,
     "Add a bias (one per class for softmax)."},
    {"pos-weight", MST_OPTION_REAL, FIELD(pos_weight), "1", 1e-6, 1e6, NULL, "X",
     "Weight of rows with a positive label, on top of their own (logreg)."},
    {0},
};

mst_status mst_model_new(const mst_model_options *options, const mst_shape *shape, const mst_kernels *kernels,
                         mst_model **out)
{
    const mst_model_ops *ops = mst_models[options->model];
    mst_model *self = mst_zalloc(ops->size);
    if (self == NULL)
        return mst_fail(MST_ENOMEM, "no memory for model %s", ops->name);
    self->ops = ops;
    self->kernels = kernels;
    self->options = *options;
    self->shape = *shape;
    mst_status st = ops->init(self, options, shape);
    if (st != MST_OK) {
        mst_model_destroy(self);
        return st;
    }
    *out = self;
    return MST_OK;
}

void mst_model_destroy(mst_model *self)
{
    mst_free(self);
}

void mst_model_weights(const mst_model *self, const mst_params *params, mst_weights *out)
{
    mst_grad layout = {0};
    self->ops->layout(self, params, &layout);
    for (uint32_t i = 0; i < layout.n_ranges; i++)
        out->ranges[i] = params->w + layout.ranges[i].offset;
    out->sparse = layout.width != 0 ? params->w + layout.sparse_offset : NULL;
    out->map = NULL;
    out->map_scratch = NULL;
}
