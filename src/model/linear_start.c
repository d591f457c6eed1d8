/* Initial weights of linear models; contract in linear_start.h. */
#include "model/linear_start.h"

#include "base/rng.h"
#include "model/layer.h"

#define PIECE 4096 /* floats */
#define SCALE 0.05 /* bound of uniform and deviation of normal, as in nets */

static const struct {
    bool linear;
    mst_layer_param values;
} starts[] = {
    [MST_START_DEFAULT] = {true, {.init = MST_INIT_CONSTANT}},
    [MST_START_GLOROT] = {false, {0}},
    [MST_START_HE] = {false, {0}},
    [MST_START_UNIFORM] = {true, {.init = MST_INIT_UNIFORM, .init_scale = SCALE}},
    [MST_START_NORMAL] = {true, {.init = MST_INIT_NORMAL, .init_scale = SCALE}},
    [MST_START_CONSTANT] = {false, {0}},
    [MST_START_ZEROS] = {true, {.init = MST_INIT_CONSTANT}},
    [MST_START_ONES] = {true, {.init = MST_INIT_CONSTANT, .init_scale = 1.0}},
    [MST_START_POSITIVE] = {false, {0}},
};

mst_status mst_linear_check_init(const mst_model *self, const mst_model_options *options)
{
    if (starts[options->init].linear)
        return MST_OK;
    return mst_fail(MST_EUSAGE, "--init of %s is zeros, ones, uniform or normal; the others are for nets",
                    self->ops->name);
}

void mst_linear_start(const mst_model *self, mst_params *params, uint64_t seed)
{
    const mst_view *weight = mst_params_find(params, "weight");
    mst_rng rng;
    mst_rng_init(&rng, seed, MST_RNG_INIT, 0);
    const mst_layer_param *values = &starts[self->options.init].values;
    if (values->init == MST_INIT_CONSTANT && values->init_scale == 0.0)
        return;         /* zero already */
    float piece[PIECE]; /* an even number: normal numbers are made in pairs */
    for (uint64_t at = 0; at < weight->size; at += PIECE) {
        uint64_t n = weight->size - at < PIECE ? weight->size - at : PIECE;
        mst_layer_param_start(values, piece, n, &rng);
        mst_params_write(params, 0, weight->offset + at, n, piece);
    }
}
