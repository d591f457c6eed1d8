/* Learning-rate schedules.
 *
 * Warm-up comes first: step t of W runs at lr*t/W, so step W has the full rate. The schedule then counts t =
 * 0, 1, ... from the first step after it; without warm-up, step 1 has t = 0 and the full rate.
 *
 *   constant  lr
 *   step      lr * decay^floor(t / decay_steps)
 *   inverse   lr / (1 + t / decay_steps)
 *   cosine    lr * (1 + cos(pi * t / decay_steps)) / 2; 0 from t = decay_steps on */
#include <math.h>

#include "optim/optim.h"

enum {
    CONSTANT,
    STEP,
    INVERSE,
    COSINE,
};

const mst_schedule mst_schedules[MST_N_SCHEDULES + 1] = {
    [CONSTANT] = {.name = "constant", .help = "--lr at every step"},
    [STEP] = {.name = "step", .help = "times --decay every --decay-steps steps"},
    [INVERSE] = {.name = "inverse", .help = "lr/(1 + t/--decay-steps)"},
    [COSINE] = {.name = "cosine", .help = "half a cosine down to 0 at --decay-steps"},
};

/* cos(pi x) for x in [0, 1], to 2e-11: -sin(pi (x - 1/2)) by an odd polynomial (least squares on Chebyshev
 * points). With batch 1 the rate is computed per row, so libm's cosine would be measurable. */
static double cos_pi(double x)
{
    double y = 0.5 - x, q = y * y;
    double p = -0.007000404090536816;
    p = p * q + 0.08203116483244162;
    p = p * q - 0.5992473887966152;
    p = p * q + 2.550162792983406;
    p = p * q - 5.167712741145078;
    p = p * q + 3.1415926532428116;
    return p * y;
}

float mst_learning_rate(const mst_optim_options *o, uint64_t step)
{
    uint64_t warmup = (uint64_t)o->warmup;
    if (warmup > 0 && step <= warmup)
        return (float)(o->lr * (double)step / (double)warmup);
    if (o->schedule == CONSTANT)
        return (float)o->lr;

    uint64_t t = step == 0 ? 0 : step - warmup - 1, every = (uint64_t)o->decay_steps;
    switch (o->schedule) {
    case STEP:
        t /= every; /* whole drops */
        return (float)(o->lr * pow(o->decay, (double)t));
    case INVERSE:
        return (float)(o->lr / (1.0 + (double)t / (double)every));
    case COSINE:
        return t >= every ? 0.0f : (float)(o->lr * 0.5 * (1.0 + cos_pi((double)t / (double)every)));
    default:
        return (float)o->lr;
    }
}
