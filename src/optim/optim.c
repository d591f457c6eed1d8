/* The registry of optimizers, their options and the checks on them; contract in optim.h. */
#include "optim/optim.h"

#include <math.h>

#include "optim/rules.h"

const mst_optimizer_ops *const mst_optimizers[] = {
    &mst_optimizer_sgd,  &mst_optimizer_momentum, &mst_optimizer_adagrad,
    &mst_optimizer_adam, &mst_optimizer_ftrl,     NULL,
};

#define AT(field) offsetof(mst_optim_options, field)

/* Upper bounds are what a float holds with room to spare. */
const mst_option mst_optim_option_table[] = {
    {"optimizer", MST_OPTION_CHOICE, AT(optimizer), "sgd", 0, 0, "sgd|momentum|adagrad|adam|ftrl", NULL,
     "How a gradient changes weights."},
    {"lr", MST_OPTION_REAL, AT(lr), "0.1", 0, 1e9, NULL, "RATE",
     "Learning rate (ftrl: alpha); 0.001 for --optimizer adam when not given."},
    {"l1", MST_OPTION_REAL, AT(l1), "0", 0, 1e9, NULL, "STRENGTH",
     "L1 regularisation, per step on the weights a batch touches (ftrl: against the sum of all gradients); "
     "small "
     "weights become exactly zero."},
    {"l2", MST_OPTION_REAL, AT(l2), "0", 0, 1e9, NULL, "STRENGTH",
     "L2 regularisation, on the weights a batch touches: adds STRENGTH times the weight to its gradient "
     "(ftrl: to "
     "the sum of all gradients)."},
    {"momentum", MST_OPTION_REAL, AT(momentum), "0.9", 0, 1, NULL, "FACTOR",
     "Share of the last update kept by optimizer momentum; below 1."},
    {"beta1", MST_OPTION_REAL, AT(beta1), "0.9", 0, 1, NULL, "FACTOR",
     "Decay of adam's average gradient; below 1."},
    {"beta2", MST_OPTION_REAL, AT(beta2), "0.999", 0, 1, NULL, "FACTOR",
     "Decay of adam's average squared gradient; below 1."},
    {"eps", MST_OPTION_REAL, AT(eps), "1e-8", 0, 1e9, NULL, "X",
     "Added to the root that adagrad and adam divide by; above 0."},
    {"ftrl-beta", MST_OPTION_REAL, AT(ftrl_beta), "1", 0, 1e9, NULL, "X",
     "ftrl's beta: the first steps' rate is about lr/beta; above 0."},
    {"adagrad-start", MST_OPTION_REAL, AT(adagrad_start), "0", 0, 1e9, NULL, "X",
     "First value of adagrad's sums of squares; above 0 it damps the first step of every weight, and writes "
     "state "
     "for every weight, touched or not."},
    {"clip-norm", MST_OPTION_REAL, AT(clip_norm), "0", 0, 1e30, NULL, "NORM",
     "Scales a step's gradient down to this L2 norm when it is longer; 0: off."},
    {"schedule", MST_OPTION_CHOICE, AT(schedule), "constant", 0, 0, "constant|step|inverse|cosine", NULL,
     "How the learning rate falls; all but constant need --decay-steps."},
    {"warmup", MST_OPTION_INT, AT(warmup), "0", 0, 1e15, NULL, "STEPS",
     "Steps over which the learning rate rises linearly to --lr; the schedule starts after them."},
    {"decay-steps", MST_OPTION_INT, AT(decay_steps), "0", 0, 1e15, NULL, "STEPS",
     "step: multiply by --decay every STEPS; inverse: lr/(1 + t/STEPS); cosine: down to 0 after STEPS."},
    {"decay", MST_OPTION_REAL, AT(decay), "0.1", 0, 1, NULL, "FACTOR", "Factor of schedule step."},
    {.name = NULL},
};

/* NaN fails every comparison, so checks are written as what must hold. */
static mst_status check_at_least_zero(const char *name, double value)
{
    if (value >= 0 && isfinite((float)value))
        return MST_OK;
    return mst_fail(MST_EUSAGE, "--%s is %g; it must be a number from 0 up", name, value);
}

/* Values are used as floats: what rounds to zero there is zero. */
static mst_status check_above_zero(const char *name, double value)
{
    if ((float)value > 0 && isfinite((float)value))
        return MST_OK;
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
    static const char *const names[] = {"constant", "step", "inverse", "cosine"};
    if (o->schedule < 0 || o->schedule >= (int)(sizeof names / sizeof *names))
        return mst_fail(MST_EUSAGE, "there is no schedule number %d", o->schedule);
    if (o->warmup < 0)
        return mst_fail(MST_EUSAGE, "--warmup is %lld; it must be 0 or more steps", (long long)o->warmup);
    if (o->schedule == 0)
        return MST_OK;
    if (o->decay_steps <= 0)
        return mst_fail(MST_EUSAGE, "--schedule %s needs --decay-steps, a number of steps above 0",
                        names[o->schedule]);
    if (!(o->decay >= 0 && o->decay <= 1))
        return mst_fail(MST_EUSAGE, "--decay is %g; it must be between 0 and 1", o->decay);
    return MST_OK;
}

mst_status mst_optimizer_init(mst_optimizer *self, const mst_optim_options *o)
{
    int n = 0;
    while (mst_optimizers[n] != NULL)
        n++;
    if (o->optimizer < 0 || o->optimizer >= n)
        return mst_fail(MST_EUSAGE, "there is no optimizer number %d", o->optimizer);
    const mst_optimizer_ops *ops = mst_optimizers[o->optimizer];

    TRY(check_above_zero("lr", o->lr));
    TRY(check_at_least_zero("l1", o->l1));
    TRY(check_at_least_zero("l2", o->l2));
    TRY(check_at_least_zero("clip-norm", o->clip_norm));
    if (ops == &mst_optimizer_momentum)
        TRY(check_below_one("momentum", o->momentum));
    if (ops == &mst_optimizer_adagrad) {
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

void mst_optimizer_start(const mst_optimizer *self, mst_params *params)
{
    float start = (float)self->options.adagrad_start;
    if (self->ops != &mst_optimizer_adagrad || start == 0.0f)
        return;
    float *sums = params->slots[0];
    for (uint64_t i = 0; i < params->size; i++)
        sums[i] = start;
}
