/* Field-weighted factorization machine (Pan et al. 2018): interactions = sum_{i<j} r_f(i),f(j) (v_i . v_j)
 * x_i x_j. View "field_pairs": r of fields f <= g, row after row of the upper triangle; they start at 1,
 * which is fm.
 *
 * With s_f the sum of v_i x_i of field f, interactions = 1/2 sum_f s_f . (sum_(g != f) r_fg s_g) + sum_f r_ff
 * (the products of pairs within f): two products with a matrix per row. A scratch has the matrix r, its
 * gradient, and the sums. */
#include <string.h>

#include "model/factor_model.h"

typedef struct fwfm_model {
    mst_factor_model base;
    uint32_t pairs;  /* view */
    uint32_t stride; /* of a row of the matrix: fields, rounded up to whole vectors */
} fwfm_model;

/* The floats of a scratch. */
typedef struct fwfm_floats {
    float *pairs, *gradient;  /* fields x stride */
    float *sums, *weighted;   /* factors x stride */
    float *diagonal, *within; /* stride */
} fwfm_floats;

static fwfm_floats fwfm_floats_of(const fwfm_model *m, const mst_factor_scratch *s)
{
    size_t matrix = (size_t)m->base.base.shape.n_fields * m->stride,
           sums = (size_t)m->base.base.options.factors * m->stride;
    return (fwfm_floats){.pairs = s->floats,
                         .gradient = s->floats + matrix,
                         .sums = s->floats + 2 * matrix,
                         .weighted = s->floats + 2 * matrix + sums,
                         .diagonal = s->floats + 2 * matrix + 2 * sums,
                         .within = s->floats + 2 * matrix + 2 * sums + m->stride};
}

static void fwfm_begin(const mst_factor_model *self, mst_factor_scratch *s, const mst_weights *w)
{
    const fwfm_model *m = (const fwfm_model *)self;
    uint32_t n = self->base.shape.n_fields;
    const float *r = w->ranges[mst_factor_ranges(&self->base)];
    fwfm_floats f = fwfm_floats_of(m, s);
    memset(f.pairs, 0, (size_t)n * m->stride * 2 * sizeof *f.pairs);
    memset(f.diagonal, 0, m->stride * sizeof *f.diagonal);
    for (uint32_t i = 0; i < n; i++) {
        f.diagonal[i] = *r;
        for (uint32_t j = i; j < n; j++, r++)
            f.pairs[(size_t)i * m->stride + j] = f.pairs[(size_t)j * m->stride + i] = i == j ? 0.0f : *r;
    }
}

static float fwfm_margin(const mst_factor_model *self, mst_factor_scratch *s, const mst_terms *t)
{
    const fwfm_model *m = (const fwfm_model *)self;
    fwfm_floats f = fwfm_floats_of(m, s);
    return self->base.kernels->fwfm_margin(t, self->width - 1, f.pairs, f.diagonal, m->stride, f.sums,
                                           f.weighted, f.within);
}

static void fwfm_gradient(const mst_factor_model *self, mst_factor_scratch *s, const mst_terms *t,
                          const mst_term_rates *rates)
{
    const fwfm_model *m = (const fwfm_model *)self;
    fwfm_floats f = fwfm_floats_of(m, s);
    self->base.kernels->fwfm_gradient(t, self->width - 1, f.diagonal, m->stride, rates, f.sums, f.weighted,
                                      f.within, f.gradient);
}

static void fwfm_end(const mst_factor_model *self, mst_factor_scratch *s, mst_grad *grad)
{
    const fwfm_model *m = (const fwfm_model *)self;
    uint32_t n = self->base.shape.n_fields;
    fwfm_floats f = fwfm_floats_of(m, s);
    float *g = grad->ranges[mst_factor_ranges(&self->base)].g;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = i; j < n; j++)
            *g++ += f.gradient[(size_t)i * m->stride + j];
}

static mst_status fwfm_init(mst_model *self, const mst_model_options *options, const mst_shape *shape)
{
    fwfm_model *m = (fwfm_model *)self;
    TRY(mst_factor_init(self, options, shape));
    if (shape->n_fields > 4096)
        return mst_fail(MST_EINPUT, "fwfm takes up to 4096 fields; the data has %u", shape->n_fields);
    m->stride = (shape->n_fields + MST_LANES_MAX - 1) / MST_LANES_MAX * MST_LANES_MAX;
    m->base.width = 1 + (uint32_t)options->factors;
    m->base.n_floats = (2 * (size_t)shape->n_fields + 2 * (size_t)options->factors + 2) * m->stride;
    m->base.fields = true;
    m->base.n_own = (uint64_t)shape->n_fields * (shape->n_fields + 1) / 2;
    m->base.begin = fwfm_begin;
    m->base.margin = fwfm_margin;
    m->base.gradient = fwfm_gradient;
    m->base.end = fwfm_end;
    return MST_OK;
}

static mst_status fwfm_declare(mst_model *self, mst_params *params)
{
    fwfm_model *m = (fwfm_model *)self;
    TRY(mst_factor_declare(self, params));
    return mst_params_add(params, "field_pairs", MST_VIEW_TRAINABLE, 0, 1, &m->base.n_own, &m->pairs);
}

static void fwfm_start(const mst_model *self, mst_params *params, uint64_t seed)
{
    const mst_view *pairs = &params->views[((const fwfm_model *)self)->pairs];
    (void)seed;
    for (uint64_t i = 0; i < pairs->size; i++)
        params->w[pairs->offset + i] = 1.0f;
}

static void fwfm_layout(const mst_model *self, const mst_params *params, mst_grad *layout)
{
    const mst_view *pairs = &params->views[((const fwfm_model *)self)->pairs];
    mst_factor_layout(self, params, layout);
    layout->ranges[layout->n_ranges++] = (mst_range){.offset = pairs->offset, .size = pairs->size};
}

const mst_model_ops mst_model_fwfm = {
    .name = "fwfm",
    .help = "field-weighted factorization machine: fm with a weight per pair of fields",
    .size = sizeof(fwfm_model),
    .capabilities = MST_MODEL_LINEAR | MST_MODEL_BINARY | MST_MODEL_FACTORS | MST_MODEL_FIELDS,
    .init = fwfm_init,
    .declare = fwfm_declare,
    .start = fwfm_start,
    .start_keys = mst_factor_start_keys,
    .layout = fwfm_layout,
    .open = mst_factor_open,
    .close = mst_factor_close,
    .compute = mst_factor_compute,
    .gradient = mst_factor_gradient,
    .forward = mst_factor_forward,
    .gpu_use = mst_model_gpu_use_sparse,
    .gpu_kind = MST_CUDA_FWFM,
    .descend_rule = mst_factor_descend_rule,
};
