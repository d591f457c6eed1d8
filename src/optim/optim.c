/* The registry of optimizers, their options and the checks on them; contract in optim.h. */
#include "optim/optim.h"

#include <math.h>

#include "optim/rules.h"

const mst_optimizer_ops *const mst_optimizers[] = {
    &mst_optimizer_sgd,
    &mst_optimizer_momentum,
    &mst_optimizer_adagrad,
    &mst_optimizer_adam,
    &mst_optimizer_ftrl,
    &mst_optimizer_rowwise,
    NULL,
};

#define LEAST     1.18e-38 /* no smaller float is normal */
#define AT(field) offsetof(mst_optim_options, field)
#define RULES     "sgd|momentum|adagrad|adam|ftrl|rowwise"
#define NEEDS_RULE(names)                                                                                    \
    {                                                                                                        \
        {                                                                                                    \
            .option = "optimizer", .or_option = "optimizer-sparse", .values = names                          \
        }                                                                                                    \
    }

/* Upper bounds are well within the range of a float. */
const mst_option mst_optim_option_table[] = {
    {.name = "optimizer",
     .type = MST_OPTION_CHOICE,
     .offset = AT(optimizer),
     .fallback = "sgd",
     .choices = RULES,
     .help = "Update rule.",
     .facts = MST_OPTION_SELF_NAMED},
    {.name = "optimizer-sparse",
     .type = MST_OPTION_CHOICE,
     .offset = AT(optimizer_sparse),
     .fallback = "same",
     .choices = "same|" RULES,
     .help = "Update rule of the weights that have keys: embeddings, factors, sparse linear weights. The "
             "layers of a net, the bias and the field pairs of fwfm keep --optimizer."},
    {.name = "lr-sparse",
     .type = MST_OPTION_REAL,
     .offset = AT(lr_sparse),
     .fallback = "0",
     .min = 0,
     .max = 1e9,
     .metavar = "RATE",
     .help = "Learning rate of the weights that have keys. 0: --lr, or the default of --optimizer-sparse if "
             "it is another rule than --optimizer. --schedule and --warmup apply to both rates."},
    {.name = "lr",
     .type = MST_OPTION_REAL,
     .offset = AT(lr),
     .fallback = "0.1",
     .min = 0,
     .max = 1e9,
     .metavar = "RATE",
     .help = "Learning rate (alpha of ftrl). Default for adam: 0.001.",
     .facts = MST_OPTION_IF_GIVEN},
    {.name = "l1",
     .type = MST_OPTION_REAL,
     .offset = AT(l1),
     .fallback = "0",
     .min = 0,
     .max = 1e9,
     .metavar = "STRENGTH",
     .help = "L1 regularisation, applied per step to the weights that a batch touches (ftrl: to the sum of "
             "all gradients). Small weights become exactly zero."},
    {.name = "l2",
     .type = MST_OPTION_REAL,
     .offset = AT(l2),
     .fallback = "0",
     .min = 0,
     .max = 1e9,
     .metavar = "STRENGTH",
     .help = "L2 regularisation: adds STRENGTH times the weight to the gradient of the weights that a batch "
             "touches (ftrl: to the sum of all gradients)."},
    {.name = "momentum",
     .type = MST_OPTION_REAL,
     .offset = AT(momentum),
     .fallback = "0.9",
     .min = 0,
     .max = 1,
     .metavar = "FACTOR",
     .help = "Fraction of the previous update that is kept; below 1.",
     .needs = NEEDS_RULE("momentum")},
    {.name = "beta1",
     .type = MST_OPTION_REAL,
     .offset = AT(beta1),
     .fallback = "0.9",
     .min = 0,
     .max = 1,
     .metavar = "FACTOR",
     .help = "Decay of the average gradient; below 1.",
     .needs = NEEDS_RULE("adam")},
    {.name = "beta2",
     .type = MST_OPTION_REAL,
     .offset = AT(beta2),
     .fallback = "0.999",
     .min = 0,
     .max = 1,
     .metavar = "FACTOR",
     .help = "Decay of the average squared gradient; below 1.",
     .needs = NEEDS_RULE("adam")},
    {.name = "eps",
     .type = MST_OPTION_REAL,
     .offset = AT(eps),
     .fallback = "1e-8",
     .min = 0,
     .max = 1e9,
     .metavar = "X",
     .help = "Added to the square root in the denominator; above 0.",
     .needs = NEEDS_RULE("adagrad|rowwise|adam")},
    {.name = "ftrl-beta",
     .type = MST_OPTION_REAL,
     .offset = AT(ftrl_beta),
     .fallback = "1",
     .min = 0,
     .max = 1e9,
     .metavar = "X",
     .help = "beta of ftrl: the learning rate of the first steps is about lr/beta; above 0.",
     .needs = NEEDS_RULE("ftrl")},
    {.name = "adagrad-start",
     .type = MST_OPTION_REAL,
     .offset = AT(adagrad_start),
     .fallback = "0",
     .min = 0,
     .max = 1e9,
     .metavar = "X",
     .help = "Initial value of the sums of squares. Above 0 it damps the first step of every weight and "
             "writes state for every weight, touched or not.",
     .needs = NEEDS_RULE("adagrad|rowwise"),
     .facts = MST_OPTION_AT_START},
    {.name = "clip-norm",
     .type = MST_OPTION_REAL,
     .offset = AT(clip_norm),
     .fallback = "0",
     .min = 0,
     .max = 1e30,
     .metavar = "NORM",
     .help = "Scale the gradient of a step down to this L2 norm if its norm is larger; 0: off."},
    {.name = "schedule",
     .type = MST_OPTION_CHOICE,
     .offset = AT(schedule),
     .fallback = "constant",
     .choices = "constant|step|inverse|cosine",
     .help = "Decay of the learning rate; all schedules except constant need --decay-steps."},
    {.name = "warmup",
     .type = MST_OPTION_INT,
     .offset = AT(warmup),
     .fallback = "0",
     .min = 0,
     .max = 1e15,
     .metavar = "STEPS",
     .help = "Number of steps in which the learning rate rises linearly to --lr; the schedule starts after "
             "them."},
    {.name = "decay-steps",
     .type = MST_OPTION_INT,
     .offset = AT(decay_steps),
     .min = 0,
     .max = 1e15,
     .metavar = "STEPS",
     .help = "step: multiply by --decay every STEPS steps; inverse: lr/(1 + t/STEPS); cosine: fall to 0 in "
             "STEPS steps.",
     .needs = {{.option = "schedule", .values = "step|inverse|cosine"}}},
    {.name = "decay",
     .type = MST_OPTION_REAL,
     .offset = AT(decay),
     .fallback = "0.1",
     .min = 0,
     .max = 1,
     .metavar = "FACTOR",
     .help = "Factor by which the learning rate is multiplied.",
     .needs = {{.option = "schedule", .values = "step"}}},
    {.name = NULL},
};

/* NaN fails every comparison, so checks state the condition that must hold. */
static mst_status check_at_least_zero(const char *name, double value)
{
    if (value >= 0 && isfinite((float)value))
        return MST_OK;
    return mst_fail(MST_EUSAGE, "--%s is %g; it must be 0 or more", name, value);
}

/* Values are used as floats, and subnormal floats as zero (base/float_mode.h). */
static mst_status check_above_zero(const char *name, double value)
{
    if (value >= LEAST && isfinite((float)value))
        return MST_OK;
    if (value > 0 && value < LEAST)
        return mst_fail(MST_EUSAGE, "--%s is %g; it must be at least %g, because smaller numbers count as 0",
                        name, value, LEAST);
    return mst_fail(MST_EUSAGE, "--%s is %g; it must be a number above 0", name, value);
}

static mst_status check_below_one(const char *name, double value)
{
    if (value >= 0 && value < 1)
        return MST_OK;
    return mst_fail(MST_EUSAGE, "--%s is %g; it must be at least 0 and below 1", name, value);
}

static mst_status check_schedule(const mst_optim_options *o)
{
    if (o->schedule < 0 || o->schedule >= MST_N_SCHEDULES)
        return mst_fail(MST_EUSAGE, "there is no schedule number %d", o->schedule);
    if (o->warmup < 0)
        return mst_fail(MST_EUSAGE, "--warmup is %lld; it must be 0 or more steps", (long long)o->warmup);
    if (o->schedule == 0)
        return MST_OK;
    if (o->decay_steps <= 0)
        return mst_fail(MST_EUSAGE, "--schedule %s needs --decay-steps, a number of steps above 0",
                        mst_schedules[o->schedule].name);
    if (!(o->decay >= 0 && o->decay <= 1))
        return mst_fail(MST_EUSAGE, "--decay is %g; it must be between 0 and 1", o->decay);
    return MST_OK;
}

/* lr_name: the option of the learning rate. */
static mst_status optimizer_init(mst_optimizer *self, const mst_optim_options *o, const char *lr_name)
{
    int n = 0;
    while (mst_optimizers[n] != NULL)
        n++;
    if (o->optimizer < 0 || o->optimizer >= n)
        return mst_fail(MST_EUSAGE, "there is no optimizer number %d", o->optimizer);
    const mst_optimizer_ops *ops = mst_optimizers[o->optimizer];

    TRY(check_above_zero(lr_name, o->lr));
    TRY(check_at_least_zero("l1", o->l1));
    TRY(check_at_least_zero("l2", o->l2));
    TRY(check_at_least_zero("clip-norm", o->clip_norm));
    if (ops == &mst_optimizer_momentum)
        TRY(check_below_one("momentum", o->momentum));
    if (ops == &mst_optimizer_adagrad || ops == &mst_optimizer_rowwise) {
        TRY(check_above_zero("eps", o->eps));
        TRY(check_at_least_zero("adagrad-start", o->adagrad_start));
    }
    if (ops == &mst_optimizer_adam) {
        TRY(check_below_one("beta1", o->beta1));
        TRY(check_below_one("beta2", o->beta2));
        TRY(check_above_zero("eps", o->eps));
    }
    if (ops == &mst_optimizer_ftrl)
        TRY(check_above_zero("ftrl-beta", o->ftrl_beta));
    TRY(check_schedule(o));

    *self = (mst_optimizer){.ops = ops, .options = *o};
    return MST_OK;
}

mst_status mst_optimizer_init(mst_optimizer *self, const mst_optim_options *options)
{
    return optimizer_init(self, options, "lr");
}

mst_status mst_optimizer_init_parts(mst_optimizer *self, mst_optimizer *sparse,
                                    const mst_optim_options *options)
{
    mst_optim_options o = *options;
    TRY(optimizer_init(self, options, "lr"));
    if (o.optimizer_sparse > 0)
        o.optimizer = o.optimizer_sparse - 1;
    bool other = o.optimizer != options->optimizer;
    if (o.lr_sparse != 0.0)
        o.lr = o.lr_sparse;
    else if (other && mst_optimizers[o.optimizer] != NULL)
        o.lr = mst_optimizers[o.optimizer]->lr;
    if (!other && o.lr == options->lr)
        return MST_OK;
    TRY(optimizer_init(sparse, &o, "lr-sparse"));
    self->sparse = sparse;
    return MST_OK;
}

static const mst_optimizer *optimizer_of_view(const mst_optimizer *self, const mst_view *view)
{
    return view->width != 0 ? mst_optimizer_of_keys(self) : self;
}

uint32_t mst_optimizer_declare(const mst_optimizer *self, mst_params *params)
{
    uint32_t n_slots = 0;
    for (uint32_t i = 0; i < params->n_views; i++) {
        mst_view *view = &params->views[i];
        const mst_optimizer_ops *ops = optimizer_of_view(self, view)->ops;
        if (view->kind != MST_VIEW_TRAINABLE)
            continue;
        view->state =
            (mst_view_state){.n_slots = ops->n_slots, .per_key = ops->row_name != NULL && view->width > 1};
        for (uint32_t s = 0; s < ops->n_slots; s++)
            view->state.names[s] = view->state.per_key ? ops->row_name : ops->slot_names[s];
        n_slots = ops->n_slots > n_slots ? ops->n_slots : n_slots;
    }
    return n_slots;
}

void mst_optimizer_start(const mst_optimizer *self, mst_params *params, uint64_t first, uint64_t count)
{
    float start = (float)self->options.adagrad_start;
    for (uint32_t i = 0; start != 0.0f && i < params->n_views; i++) {
        const mst_view *view = &params->views[i];
        const mst_optimizer_ops *ops = optimizer_of_view(self, view)->ops;
        uint64_t view_end = view->offset + view->size, end = first + count,
                 from = first > view->offset ? first : view->offset, to = end < view_end ? end : view_end;
        if (from < to && view->kind == MST_VIEW_TRAINABLE &&
            (ops == &mst_optimizer_adagrad || ops == &mst_optimizer_rowwise))
            mst_params_fill(params, 1, from, to - from, start);
    }
}

/* ---- a step ---- */

mst_update mst_optimizer_update(const mst_optimizer *self, uint64_t step)
{
    mst_update u = {.lr = mst_learning_rate(&self->options, step), .step = step};
    if (self->sparse != NULL)
        u.lr_sparse = mst_learning_rate(&self->sparse->options, step);
    return u;
}

static void optimizer_apply_part(const mst_optimizer *self, const mst_update *u, mst_params *params,
                                 uint64_t at, float *w, const float *g, size_t n)
{
    float *slots[MST_SLOT_MAX];
    mst_params_slots(params, at, slots);
    if (n > 0)
        self->ops->apply_range(self, u, w, slots, g, n);
}

void mst_optimizer_apply_copy(const mst_optimizer *self, const mst_update *u, mst_params *params, uint64_t at,
                              float *w, const float *g, size_t n)
{
    uint64_t end = at + n, from = params->keyed.first, to = params->keyed.end;
    if (self->sparse == NULL || end <= from || at >= to) {
        optimizer_apply_part(self, u, params, at, w, g, n);
        return;
    }
    mst_update of_keys = mst_update_of_keys(self, u);
    from = from > at ? from : at;
    to = to < end ? to : end;
    optimizer_apply_part(self, u, params, at, w, g, from - at);
    optimizer_apply_part(self->sparse, &of_keys, params, from, w + (from - at), g + (from - at), to - from);
    optimizer_apply_part(self, u, params, to, w + (to - at), g + (to - at), end - to);
}

void mst_optimizer_apply_range(const mst_optimizer *self, const mst_update *u, mst_params *params,
                               uint64_t at, const float *g, size_t n)
{
    mst_optimizer_apply_copy(self, u, params, at, params->w + at, g, n);
}

void mst_optimizer_apply_keys(const mst_optimizer *self, const mst_update *u, mst_params *params,
                              uint64_t offset, uint32_t width, const uint32_t *keys, const float *g, size_t n)
{
    const mst_optimizer *of_keys = mst_optimizer_of_keys(self);
    mst_update numbers = mst_update_of_keys(self, u);
    float *slots[MST_SLOT_MAX];
    mst_key_rows rows = mst_params_keys(params, offset, width, slots);
    of_keys->ops->apply_keys(of_keys, &numbers, &rows, slots, keys, g, n);
}
