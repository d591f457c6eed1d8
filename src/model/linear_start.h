/* Initial weights of linear models (--init). The bias starts at 0. */
#ifndef MST_MODEL_LINEAR_START_H
#define MST_MODEL_LINEAR_START_H

#include "model/model.h"

/* MST_EUSAGE if --init is for nets only. */
mst_status mst_linear_check_init(const mst_model *self, const mst_model_options *options);

/* mst_model_ops.start. Zeros leave the store untouched. Every process writes all weights, in the order of the
 * view, so they are the same bits however many servers share them. */
void mst_linear_start(const mst_model *self, mst_params *params, uint64_t seed);

#endif
