/* Second-order models for rows of features: fm, ffm and fwfm share everything but the interactions of the
 * terms of a row.
 *
 *   margin = bias + sum_i w_i x_i + interactions
 *
 * With --row-norm, x is scaled to length 1.
 * Views: "weight" [features, width], the row of a key: its linear weight, then its factors; "bias" [1]; then
 * those that a model adds. Gradient layout: range 0 is the dense prefix of the weights, then the bias, then
 * the model's own ranges; keys are sparse, with that width. A key that repeats in a row counts as one feature
 * with the sum of the values, if the fields are equal. The loss is that of logreg. */
#ifndef MST_MODEL_FACTOR_MODEL_H
#define MST_MODEL_FACTOR_MODEL_H

#include "model/model.h"

typedef struct mst_factor_model mst_factor_model;

/* A thread's memory. */
typedef struct mst_factor_scratch {
    mst_term *terms; /* of the longest row so far */
    size_t capacity;
    float *floats; /* n_floats of the model */
    /* A step in place: the gradient of the dense ranges, and of the keys in touched->keys. The scratch float
     * of a key holds its number there. */
    float *dense, *g;
    float *direct; /* the gradient of key 0, where gradients are added to keys side by side; or NULL */
    size_t g_capacity;
    mst_touched *touched;
    uint32_t n_touched;
    void *own; /* of the model */
} mst_factor_scratch;

struct mst_factor_model {
    mst_model base;
    uint32_t weight, bias; /* views */
    /* Set by init of the model: */
    uint32_t width;  /* floats of a key */
    size_t n_floats; /* of a scratch */
    bool fields;     /* terms need fields */
    uint64_t n_own;  /* floats of the model's own range, which is the last; 0: it has none */
    /* Prepares the scratch for a batch (NULL: nothing to do); the margin of a row's terms without the bias;
     * their gradient, after their margin; and the end of a batch: adds to the model's own ranges (NULL:
     * nothing to do). */
    void (*begin)(const mst_factor_model *self, mst_factor_scratch *scratch, const mst_weights *w);
    float (*margin)(const mst_factor_model *self, mst_factor_scratch *scratch, const mst_terms *terms);
    void (*gradient)(const mst_factor_model *self, mst_factor_scratch *scratch, const mst_terms *terms,
                     const mst_term_rates *rates);
    void (*end)(const mst_factor_model *self, mst_factor_scratch *scratch, mst_grad *grad);
    /* The gradient of terms with distinct keys, after the margin of all terms of their row, and their update
     * by Adagrad without L1 at once. NULL: there is none. */
    void (*descend)(const mst_factor_model *self, mst_factor_scratch *scratch, const mst_terms *terms,
                    const mst_term_rates *rates, const mst_rule *rule, const mst_terms_ahead *ahead);
};

/* Checks options and shape; the model sets the rest. */
mst_status mst_factor_init(mst_model *self, const mst_model_options *options, const mst_shape *shape);

/* The ranges before the model's own. */
static inline uint32_t mst_factor_ranges(const mst_model *self)
{
    return self->options.bias ? 2 : 1;
}

/* mst_model_ops of these models; declare and layout are completed by a model with views of its own. */
mst_status mst_factor_declare(mst_model *self, mst_params *params);
void mst_factor_layout(const mst_model *self, const mst_params *params, mst_grad *layout);
void mst_factor_start_keys(const mst_model *self, mst_params *params, uint64_t seed, uint64_t first,
                           uint64_t n);
mst_status mst_factor_open(const mst_model *self, uint32_t max_rows, unsigned n_threads, bool training,
                           void **out);
void mst_factor_close(const mst_model *self, void *scratch);
mst_status mst_factor_compute(const mst_model *self, void *scratch, const mst_batch *batch,
                              const mst_weights *w, float scale, mst_grad *grad, mst_step *step,
                              mst_loss_sum *sum);
mst_status mst_factor_gradient(const mst_model *self, void *scratch, const mst_batch *batch,
                               const mst_weights *w, float scale, float *coefs, const mst_weights *g,
                               mst_loss_sum *sum);
mst_status mst_factor_descend_rule(const mst_model *self, void *scratch, const mst_batch *rows,
                                   uint32_t batch_rows, const mst_weights *w, const mst_rule *rules,
                                   mst_touched *touched, mst_loss_sum *sum);
mst_status mst_factor_forward(const mst_model *self, void *scratch, const mst_batch *batch,
                              const mst_weights *w, float *scores);

#endif
