/* Optimizers: how a gradient changes weights. One const table per rule, listed in mst_optimizers.
 *
 * Sparse updates are lazy: state, L1 and L2 act only on the keys a batch touches, once per step per key. With
 * every key present a sparse update equals the dense one bit for bit. Rules are applied to single weights
 * (rowwise: to single keys), so disjoint parts of the vector may be updated by different threads or servers,
 * with the same result as the whole.
 *
 *   sgd       w -= lr * (g + l2*w), then shrink by lr*l1
 *   momentum  m = mu*m + (g + l2*w);  w -= lr*m, then shrink by lr*l1/(1 - mu)
 *   adagrad   s += d^2, d = g + l2*w;  w -= lr*d / (sqrt(s) + eps), then shrink by l1*lr/(sqrt(s) + eps)
 *   rowwise   adagrad whose s of a key's weights is one float: s += mean of their d^2. Weights without keys,
 *             and keys of one weight, have an s of their own
 *   adam      m, v moving averages of d and d^2, bias-corrected with the global step;
 *             w -= lr*m^/(sqrt(v^) + eps), then shrink by l1*lr/(sqrt(v^) + eps)
 *   ftrl      FTRL-Proximal (McMahan et al. 2013): state z, n; alpha = lr; L1 and L2 inside the closed form,
 *             where they weigh against the sum of all gradients, not against each
 *
 * shrink(a): w = sign(w) * max(|w| - a, 0) */
#ifndef MST_OPTIM_OPTIM_H
#define MST_OPTIM_OPTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/option.h"
#include "base/status.h"
#include "tensor/params.h"
#include "tensor/rule.h"

typedef struct mst_optim_options {
    int optimizer;        /* --optimizer sgd|momentum|adagrad|adam|ftrl|rowwise: index into mst_optimizers */
    double lr;            /* --lr */
    int optimizer_sparse; /* --optimizer-sparse same|sgd|...: 0, or the index of a rule plus 1 */
    double lr_sparse;     /* --lr-sparse; 0: --lr, or the default of another rule */
    double l1, l2;        /* --l1, --l2 */
    double momentum;      /* --momentum */
    double beta1, beta2;  /* --beta1, --beta2 (adam) */
    double eps;           /* --eps (adagrad, adam) */
    double ftrl_beta;     /* --ftrl-beta */
    double adagrad_start; /* --adagrad-start: initial sum of squares */
    double clip_norm;     /* --clip-norm: gradient's L2 norm is scaled down to it; 0: off */
    int schedule;         /* --schedule constant|step|inverse|cosine */
    int64_t warmup;       /* --warmup STEPS: lr rises linearly from lr/warmup */
    int64_t
        decay_steps; /* --decay-steps: step: every; inverse: lr/(1 + t/decay_steps); cosine: down to 0 at */
    double decay;    /* --decay: factor of schedule step */
} mst_optim_options;
extern const mst_option mst_optim_option_table[];

/* One step's numbers. */
typedef struct mst_update {
    float lr;
    float lr_sparse; /* of the view with keys, if it has a rule of its own */
    uint64_t step;   /* 1-based: the number of this update */
} mst_update;

typedef struct mst_optimizer mst_optimizer;

typedef struct mst_optimizer_ops {
    const char *name, *help;
    double lr;                            /* --lr when not given */
    uint32_t n_slots;                     /* state vectors as long as the weights */
    bool sums;                            /* state is sums over steps, not moving averages */
    const char *slot_names[MST_SLOT_MAX]; /* in checkpoints: "accumulator", "m", "v", ... */
    const char *row_name; /* of the one slot of keys that have one float of state; NULL: they have `width` */
    /* True when the update is w -= lr*g and nothing else under these options: then contributions may be
     * applied one by one without summing them per key first, and models may update in place. */
    bool (*additive)(const mst_optimizer *self);
    /* The rule with the numbers of a step, for kernels that apply it themselves. */
    mst_rule (*rule)(const mst_optimizer *self, const mst_update *u);
    /* n consecutive weights; slots[i] points at the state of w[0]. */
    void (*apply_range)(const mst_optimizer *self, const mst_update *u, float *w, float *const *slots,
                        const float *g, size_t n);
    /* n distinct keys: rows has the weights of key 0 and the strides; slots[i] points at the state of key 0;
     * g is n * width. The range of keys below `head` (mst_view) is applied with apply_range. */
    void (*apply_keys)(const mst_optimizer *self, const mst_update *u, const mst_key_rows *rows,
                       float *const *slots, const uint32_t *keys, const float *g, size_t n);
} mst_optimizer_ops;

struct mst_optimizer {
    const mst_optimizer_ops *ops;
    mst_optim_options options;
    const mst_optimizer *sparse; /* of the view with keys; NULL: the same as of the others */
};

extern const mst_optimizer_ops *const mst_optimizers[]; /* NULL-terminated; order = choices of --optimizer */

/* Checks that the options make sense together; one message otherwise. */
mst_status mst_optimizer_init(mst_optimizer *self, const mst_optim_options *options);

/* The same, with --optimizer-sparse and --lr-sparse: if they differ from --optimizer and --lr, self->sparse
 * is `sparse`, which must outlive self. */
mst_status mst_optimizer_init_parts(mst_optimizer *self, mst_optimizer *sparse,
                                    const mst_optim_options *options);

/* The optimizer of the view with keys. */
static inline const mst_optimizer *mst_optimizer_of_keys(const mst_optimizer *self)
{
    return self->sparse != NULL ? self->sparse : self;
}

static inline mst_update mst_update_of_keys(const mst_optimizer *self, const mst_update *u)
{
    return (mst_update){.lr = self->sparse != NULL ? u->lr_sparse : u->lr, .step = u->step};
}

/* additive for all views, with one learning rate. */
static inline bool mst_optimizer_additive(const mst_optimizer *self)
{
    return self->sparse == NULL && self->ops->additive(self);
}

/* Declares the state of all trainable views, before mst_params_reserve; returns its n_slots. */
uint32_t mst_optimizer_declare(const mst_optimizer *self, mst_params *params);

/* Fills the state of the fresh parameters [first, first + count) (adagrad_start); nothing to do, and nothing
 * touched, when that is zero. */
void mst_optimizer_start(const mst_optimizer *self, mst_params *params, uint64_t first, uint64_t count);

/* The numbers of a step (1-based), and the update of weights [at, at + n) outside of rows, or of n distinct
 * keys of the sparse view at `offset`, with the rule of each view. */
mst_update mst_optimizer_update(const mst_optimizer *self, uint64_t step);
void mst_optimizer_apply_range(const mst_optimizer *self, const mst_update *u, mst_params *params,
                               uint64_t at, const float *g, size_t n);
/* The same with the weights in w, a copy of the range, which changes; the state is that of params. */
void mst_optimizer_apply_copy(const mst_optimizer *self, const mst_update *u, mst_params *params, uint64_t at,
                              float *w, const float *g, size_t n);
void mst_optimizer_apply_keys(const mst_optimizer *self, const mst_update *u, mst_params *params,
                              uint64_t offset, uint32_t width, const uint32_t *keys, const float *g,
                              size_t n);

#define MST_N_SCHEDULES 4

/* The schedules in order of the choices of --schedule; ends with a name of NULL. */
typedef struct mst_schedule {
    const char *name, *help;
} mst_schedule;
extern const mst_schedule mst_schedules[MST_N_SCHEDULES + 1];

/* Learning rate of a step (1-based). Warm-up comes first; the schedule counts from the step after it. */
float mst_learning_rate(const mst_optim_options *options, uint64_t step);

#endif
