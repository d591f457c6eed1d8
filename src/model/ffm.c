/* Field-aware factorization machine (Juan et al. 2016): interactions = sum_{i<j} (v_i,f(j) . v_j,f(i)) x_i
 * x_j, with --factors numbers per feature and field of the other feature. */
#include "model/factor_model.h"

static float ffm_margin(const mst_factor_model *m, mst_factor_scratch *s, const mst_terms *t)
{
    (void)s;
    return m->base.kernels->ffm_margin(t, (uint32_t)m->base.options.factors);
}

static void ffm_gradient(const mst_factor_model *m, mst_factor_scratch *s, const mst_terms *t,
                         const mst_term_rates *rates)
{
    (void)s;
    m->base.kernels->ffm_gradient(t, (uint32_t)m->base.options.factors, m->base.shape.n_fields, rates);
}

static void ffm_descend(const mst_factor_model *m, mst_factor_scratch *s, const mst_terms *t,
                        const mst_term_rates *rates, const mst_rule *rule, const mst_terms_ahead *ahead)
{
    m->base.kernels->ffm_descend(t, (uint32_t)m->base.options.factors, m->base.shape.n_fields, rates, rule,
                                 s->floats, ahead);
}

static mst_status ffm_init(mst_model *self, const mst_model_options *options, const mst_shape *shape)
{
    mst_factor_model *m = (mst_factor_model *)self;
    TRY(mst_factor_init(self, options, shape));
    uint64_t width = 1 + (uint64_t)shape->n_fields * (uint64_t)options->factors;
    if (width > UINT16_MAX)
        return mst_fail(MST_EINPUT,
                        "ffm with %u fields and --factors %d has %llu numbers per feature; at most %d "
                        "are possible",
                        shape->n_fields, (int)options->factors, (unsigned long long)width, UINT16_MAX);
    m->width = (uint32_t)width;
    m->fields = true;
    m->margin = ffm_margin;
    m->gradient = ffm_gradient;
    if (options->factors % 4 == 0) {
        m->descend = ffm_descend;
        m->n_floats = MST_FFM_ROOM((size_t)options->factors, shape->n_fields);
    }
    return MST_OK;
}

const mst_model_ops mst_model_ffm = {
    .name = "ffm",
    .help = "field-aware factorization machine: --factors numbers per feature and field",
    .size = sizeof(mst_factor_model),
    .capabilities = MST_MODEL_LINEAR | MST_MODEL_BINARY | MST_MODEL_FACTORS | MST_MODEL_FIELDS,
    .init = ffm_init,
    .declare = mst_factor_declare,
    .start_keys = mst_factor_start_keys,
    .layout = mst_factor_layout,
    .open = mst_factor_open,
    .close = mst_factor_close,
    .compute = mst_factor_compute,
    .gradient = mst_factor_gradient,
    .forward = mst_factor_forward,
    .gpu_use = mst_model_gpu_use_sparse,
    .gpu_kind = MST_CUDA_FFM,
    .descend_rule = mst_factor_descend_rule,
};
