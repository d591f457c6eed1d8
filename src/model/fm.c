/* Factorization machine (Rendle 2010): interactions = sum_{i<j} (v_i . v_j) x_i x_j, with --factors numbers
 * v_i per feature. Computed as 1/2 sum_f ((sum_i v_if x_i)^2 - sum_i v_if^2 x_i^2). */
#include "model/factor_model.h"

static float fm_margin(const mst_factor_model *m, mst_factor_scratch *s, const mst_terms *t)
{
    return m->base.kernels->fm_margin(t, m->width - 1, s->floats);
}

static void fm_gradient(const mst_factor_model *m, mst_factor_scratch *s, const mst_terms *t,
                        const mst_term_rates *rates)
{
    m->base.kernels->fm_gradient(t, m->width - 1, rates, s->floats);
}

static void fm_descend(const mst_factor_model *m, mst_factor_scratch *s, const mst_terms *t,
                       const mst_term_rates *rates, const mst_rule *rule, const mst_terms_ahead *ahead)
{
    m->base.kernels->fm_descend(t, m->width - 1, rates, rule, s->floats, ahead);
}

static mst_status fm_init(mst_model *self, const mst_model_options *options, const mst_shape *shape)
{
    mst_factor_model *m = (mst_factor_model *)self;
    TRY(mst_factor_init(self, options, shape));
    m->width = 1 + (uint32_t)options->factors;
    m->n_floats = m->width - 1 + MST_LANES_MAX; /* the sums over the terms */
    self->shape.n_fields = 0;                   /* not used */
    m->margin = fm_margin;
    m->gradient = fm_gradient;
    m->descend = fm_descend;
    return MST_OK;
}

const mst_model_ops mst_model_fm = {
    .name = "fm",
    .help = "factorization machine: logreg and products of --factors numbers per feature",
    .size = sizeof(mst_factor_model),
    .capabilities = MST_MODEL_LINEAR | MST_MODEL_BINARY | MST_MODEL_FACTORS,
    .init = fm_init,
    .declare = mst_factor_declare,
    .start_keys = mst_factor_start_keys,
    .layout = mst_factor_layout,
    .open = mst_factor_open,
    .close = mst_factor_close,
    .compute = mst_factor_compute,
    .forward = mst_factor_forward,
    .gpu_can = mst_model_gpu_sparse_can,
    .gpu_kind = MST_CUDA_FM,
    .descend_rule = mst_factor_descend_rule,
};
