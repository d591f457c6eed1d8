/* The update rules. Each is one function on one weight, inlined into a loop over a range, a loop over keys
 * and a loop over keys of several weights, so that the three cannot differ.
 *
 * Invariants
 * 1. Products and sums are rounded separately (no fused multiply-add, whatever the target): vector loops,
 * their scalar ends and the loops over keys give the same bits, on every instruction set.
 * 2. Loops over ranges contain selects but no branches, and vectorise.
 * 3. A weight that is not a number stays so: divergence shows in the loss instead of turning into zeros.
 * 4. Asynchronous threads may run these loops on the same weights at once; a lost update is part of
 * asynchronous SGD, so the loops are excluded from thread sanitizing. */
#include "optim/rules.h"

#include <math.h>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#define AHEAD  12 /* keys from prefetch to use */
#define RACY   __attribute__((no_sanitize("thread")))
#define INLINE static inline __attribute__((always_inline, no_sanitize("thread")))

/* The numbers that a rule needs in one step, in the precision of its computation. */
typedef struct numbers {
    float lr, l1, l2;
    float keep1, add1;  /* momentum: mu; adam: beta1, 1 - beta1 */
    float keep2, add2;  /* adam: beta2, 1 - beta2 */
    float rate, unbias; /* adam: lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t); ftrl: rate = 1 / lr */
    float eps;          /* ftrl: beta */
} numbers;

/* Changes weight i, and its state a[i], b[i], by gradient g. */
typedef void rule(const numbers *c, float *w, float *a, float *b, size_t i, float g);

INLINE float shrink(float w, float by)
{
    return fabsf(w) <= by ? 0.0f : w - copysignf(by, w);
}

/* yes ? a : b in bits, which the compiler does not turn into a branch. */
INLINE float pick(bool yes, float a, float b)
{
    union {
        float f;
        uint32_t u;
    } x = {a}, y = {b};
    uint32_t mask = 0u - (uint32_t)yes;
    x.u = (x.u & mask) | (y.u & ~mask);
    return x.f;
}

INLINE void over_range(rule *one, const numbers *c, float *restrict w, float *restrict a, float *restrict b,
                       const float *restrict g, size_t n)
{
    for (size_t i = 0; i < n; i++)
        one(c, w, a, b, i, g[i]);
}

INLINE void over_keys(rule *one, const numbers *c, float *restrict w, float *restrict a, float *restrict b,
                      const uint32_t *restrict keys, const float *restrict g, size_t n, uint32_t width)
{
    if (width == 1) {
        for (size_t i = 0; i < n; i++) {
            if (a != NULL) { /* without state the processor prefetches far enough */
                size_t soon = keys[i + AHEAD < n ? i + AHEAD : i];
                __builtin_prefetch(&w[soon], 1);
                __builtin_prefetch(&a[soon], 1);
                if (b != NULL)
                    __builtin_prefetch(&b[soon], 1);
            }
            one(c, w, a, b, keys[i], g[i]);
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        size_t base = (size_t)keys[i] * width;
        for (size_t j = 0; j < width; j++)
            one(c, w, a, b, base + j, g[i * width + j]);
    }
}

static bool never(const mst_optimizer *self)
{
    (void)self;
    return false;
}

/* ---- sgd ---- */

INLINE void sgd(const numbers *c, float *w, float *a, float *b, size_t i, float g)
{
    (void)a, (void)b;
    w[i] = shrink(w[i] - c->lr * (g + c->l2 * w[i]), c->l1);
}

/* The same without L1 and L2, which is most runs: a third of the arithmetic, equal bits. */
INLINE void sgd_plain(const numbers *c, float *w, float *a, float *b, size_t i, float g)
{
    (void)a, (void)b;
    w[i] -= c->lr * g;
}

static bool sgd_is_plain(const mst_optimizer *self)
{
    return self->options.l1 == 0 && self->options.l2 == 0;
}

/* Clipping needs the norm of the whole gradient first. */
static bool sgd_additive(const mst_optimizer *self)
{
    return sgd_is_plain(self) && self->options.clip_norm == 0;
}

static numbers sgd_numbers(const mst_optimizer *self, const mst_update *u)
{
    return (numbers){.lr = u->lr, .l1 = u->lr * (float)self->options.l1, .l2 = (float)self->options.l2};
}

RACY static void sgd_range(const mst_optimizer *self, const mst_update *u, float *w, float *const *slots,
                           const float *g, size_t n)
{
    numbers c = sgd_numbers(self, u);
    (void)slots;
    if (sgd_is_plain(self))
        over_range(sgd_plain, &c, w, NULL, NULL, g, n);
    else
        over_range(sgd, &c, w, NULL, NULL, g, n);
}

RACY static void sgd_keys(const mst_optimizer *self, const mst_update *u, float *w, float *const *slots,
                          const uint32_t *keys, const float *g, size_t n, uint32_t width)
{
    numbers c = sgd_numbers(self, u);
    (void)slots;
    if (sgd_is_plain(self))
        over_keys(sgd_plain, &c, w, NULL, NULL, keys, g, n, width);
    else
        over_keys(sgd, &c, w, NULL, NULL, keys, g, n, width);
}

const mst_optimizer_ops mst_optimizer_sgd = {
    .name = "sgd",
    .help = "plain gradient descent",
    .lr = 0.1,
    .additive = sgd_additive,
    .apply_range = sgd_range,
    .apply_keys = sgd_keys,
};

/* Defines NAME_range and NAME_keys: the rule NAME, with its NAME_numbers and slots, over a range and over
 * keys. */
#define APPLY(name, slot_a, slot_b)                                                                          \
    RACY static void name##_range(const mst_optimizer *self, const mst_update *u, float *w,                  \
                                  float *const *slots, const float *g, size_t n)                             \
    {                                                                                                        \
        numbers c = name##_numbers(self, u);                                                                 \
        over_range(name, &c, w, slot_a, slot_b, g, n);                                                       \
    }                                                                                                        \
    RACY static void name##_keys(const mst_optimizer *self, const mst_update *u, float *w,                   \
                                 float *const *slots, const uint32_t *keys, const float *g, size_t n,        \
                                 uint32_t width)                                                             \
    {                                                                                                        \
        numbers c = name##_numbers(self, u);                                                                 \
        over_keys(name, &c, w, slot_a, slot_b, keys, g, n, width);                                           \
    }

/* ---- momentum ---- */

INLINE void momentum(const numbers *c, float *w, float *a, float *b, size_t i, float g)
{
    (void)b;
    float m = c->keep1 * a[i] + (g + c->l2 * w[i]);
    a[i] = m;
    w[i] = shrink(w[i] - c->lr * m, c->l1);
}

static numbers momentum_numbers(const mst_optimizer *self, const mst_update *u)
{
    numbers c = sgd_numbers(self, u);
    c.keep1 = (float)self->options.momentum;
    /* A steady gradient moves a weight by lr/(1 - mu) a step; L1 must pull as hard to have the same minimum.
     */
    c.l1 = (float)(c.l1 / (1.0 - self->options.momentum));
    return c;
}

APPLY(momentum, slots[0], NULL)

const mst_optimizer_ops mst_optimizer_momentum = {
    .name = "momentum",
    .help = "gradient descent with heavy-ball momentum",
    .lr = 0.1,
    .n_slots = 1,
    .slot_names = {"momentum"},
    .additive = never,
    .apply_range = momentum_range,
    .apply_keys = momentum_keys,
};

/* ---- adagrad ---- */

INLINE void adagrad(const numbers *c, float *w, float *a, float *b, size_t i, float g)
{
    (void)b;
    float d = g + c->l2 * w[i];
    float s = a[i] + d * d;
    float rate = c->lr / (sqrtf(s) + c->eps);
    a[i] = s;
    w[i] = shrink(w[i] - rate * d, rate * c->l1);
}

static numbers adagrad_numbers(const mst_optimizer *self, const mst_update *u)
{
    const mst_optim_options *o = &self->options;
    return (numbers){.lr = u->lr, .l1 = (float)o->l1, .l2 = (float)o->l2, .eps = (float)o->eps};
}

APPLY(adagrad, slots[0], NULL)

const mst_optimizer_ops mst_optimizer_adagrad = {
    .name = "adagrad",
    .help = "a rate per weight that falls with the sum of its squared gradients",
    .lr = 0.1,
    .n_slots = 1,
    .slot_names = {"accumulator"},
    .additive = never,
    .apply_range = adagrad_range,
    .apply_keys = adagrad_keys,
};

/* ---- adam ---- */

INLINE void adam(const numbers *c, float *w, float *a, float *b, size_t i, float g)
{
    float d = g + c->l2 * w[i];
    float m = c->keep1 * a[i] + c->add1 * d;
    float v = c->keep2 * b[i] + c->add2 * (d * d);
    float scale = sqrtf(v) * c->unbias + c->eps; /* sqrt(v^) + eps */
    a[i] = m;
    b[i] = v;
    w[i] = shrink(w[i] - c->rate * m / scale, c->l1 / scale);
}

static numbers adam_numbers(const mst_optimizer *self, const mst_update *u)
{
    const mst_optim_options *o = &self->options;
    double t = (double)u->step;
    return (numbers){
        .lr = u->lr,
        .l1 = u->lr * (float)o->l1,
        .l2 = (float)o->l2,
        .keep1 = (float)o->beta1,
        .add1 = (float)(1.0 - o->beta1),
        .keep2 = (float)o->beta2,
        .add2 = (float)(1.0 - o->beta2),
        .rate = (float)(u->lr / (1.0 - pow(o->beta1, t))),
        .unbias = (float)(1.0 / sqrt(1.0 - pow(o->beta2, t))),
        .eps = (float)o->eps,
    };
}

APPLY(adam, slots[0], slots[1])

const mst_optimizer_ops mst_optimizer_adam = {
    .name = "adam",
    .help = "moving averages of gradient and squared gradient, bias-corrected",
    .lr = 0.001,
    .n_slots = 2,
    .slot_names = {"m", "v"},
    .additive = never,
    .apply_range = adam_range,
    .apply_keys = adam_keys,
};

/* ---- ftrl ---- */

/* The paper's per-coordinate step, with q = (beta + sqrt(n))/alpha + l2 after n += g^2:
 *   z += g - sigma*w, sigma = (sqrt(n) - sqrt(n before))/alpha
 *   w  = 0 where |z| <= l1, otherwise (sign(z)*l1 - z)/q
 * A weight that is not zero determines its z: inverting the second line under n before and inserting it in
 * the first leaves z = g - w*q - sign(w)*l1. That form needs no difference of large sums, starts from weights
 * that were loaded without state, and stays right when alpha follows a schedule: a change of alpha is then
 * one more proximal term, centred at w, where the paper's form would scale every weight by it. z itself is
 * needed only where w is zero. g = 0 changes nothing, in exact arithmetic; the selects make it so in floats.
 */
INLINE void ftrl(const numbers *c, float *w, float *a, float *b, size_t i, float g)
{
    float was = w[i], z_was = a[i]; /* NOLINT(clang-analyzer-core.NullDereference): ftrl has two slots */
    float n = b[i] + g * g;         /* NOLINT(clang-analyzer-core.NullDereference) */
    float q = (c->eps + sqrtf(n)) * c->rate + c->l2;
    float z = pick(was == 0.0f, z_was + g, g - was * q - copysignf(c->l1, was));
    float next = pick(fabsf(z) <= c->l1, 0.0f, (copysignf(c->l1, z) - z) / q);
    a[i] = pick(g == 0.0f, z_was, z);
    w[i] = pick(g == 0.0f, was, next);
    b[i] = n;
}

#define FTRL_LR_MIN 1e-20f /* schedules may end at 0: q stays finite, and the weights stay where they are */

static numbers ftrl_numbers(const mst_optimizer *self, const mst_update *u)
{
    const mst_optim_options *o = &self->options;
    return (numbers){
        .l1 = (float)o->l1,
        .l2 = (float)o->l2,
        .rate = 1.0f / fmaxf(u->lr, FTRL_LR_MIN),
        .eps = (float)o->ftrl_beta,
    };
}

APPLY(ftrl, slots[0], slots[1])

const mst_optimizer_ops mst_optimizer_ftrl = {
    .name = "ftrl",
    .help = "FTRL-Proximal: adagrad's rates with exact zeros under --l1",
    .lr = 0.1,
    .n_slots = 2,
    .slot_names = {"z", "n"},
    .additive = never,
    .apply_range = ftrl_range,
    .apply_keys = ftrl_keys,
};
