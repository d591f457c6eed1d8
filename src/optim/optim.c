/* The registry of optimizers, their options and the checks on them; contract in optim.h. */
#include "optim/optim.h"

#include <math.h>

#include "optim/rules.h"

const mst_optimizer_ops *const mst_optimizers[] = {
    &mst_optimizer_sgd,  &mst_optimizer_momentum, &mst_optimizer_adagrad,
    &mst_optimizer_adam, &mst_optimizer_ftrl,     NULL,
};

#define AT(field) offsetof(mst_optim_options, field)

/* Upper bounds are well within the range of a float. */
const mst_option mst_optim_option_table[] = {
    {.name = "optimizer",
     .type = MST_OPTION_CHOICE,
     .offset = AT(optimizer),
     .fallback = "sgd",
     .choices = "sgd|momentum|adagrad|adam|ftrl",
     .help = "Update rule.",
     .facts = MST_OPTION_SELF_NAMED},
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
     .needs = {{.option = "optimizer", .values = "momentum"}}},
    {.name = "beta1",
     .type = MST_OPTION_REAL,
     .offset = AT(beta1),
     .fallback = "0.9",
     .min = 0,
     .max = 1,
     .metavar = "FACTOR",
     .help = "Decay of the average gradient; below 1.",
     .needs = {{.option = "optimizer", .values = "adam"}}},
    {.name = "beta2",
     .type = MST_OPTION_REAL,
     .offset = AT(beta2),
     .fallback = "0.999",
     .min = 0,
     .max = 1,
     .metavar = "FACTOR",
     .help = "Decay of the average squared gradient; below 1.",
     .needs = {{.option = "optimizer", .values = "adam"}}},
    {.name = "eps",
     .type = MST_OPTION_REAL,
     .offset = AT(eps),
     .fallback = "1e-8",
     .min = 0,
     .max = 1e9,
     .metavar = "X",
     .help = "Added to the square root in the denominator; above 0.",
     .needs = {{.option = "optimizer", .values = "adagrad|adam"}}},
    {.name = "ftrl-beta",
     .type = MST_OPTION_REAL,
     .offset = AT(ftrl_beta),
     .fallback = "1",
     .min = 0,
     .max = 1e9,
     .metavar = "X",
     .help = "beta of ftrl: the learning rate of the first steps is about lr/beta; above 0.",
     .needs = {{.option = "optimizer", .values = "ftrl"}}},
    {.name = "adagrad-start",
     .type = MST_OPTION_REAL,
     .offset = AT(adagrad_start),
     .fallback = "0",
     .min = 0,
     .max = 1e9,
     .metavar = "X",
     .help = "Initial value of the sums of squares. Above 0 it damps the first step of every weight and "
             "writes state for every weight, touched or not.",
     .needs = {{.option = "optimizer", .values = "adagrad"}}},
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

/* Values are used as floats: a value that rounds to zero is zero. */
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
    mst_params_fill(params, 1, start);
}
