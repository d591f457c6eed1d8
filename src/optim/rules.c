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

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

#include "base/isa.h"
#include "tensor/rule_one.h"

#define AHEAD  12 /* keys from prefetch to use */
#define BLOCK  16 /* keys of one weight that are updated at once */
#define FAR    64 /* keys from prefetch to use in blocks */
#define RACY   __attribute__((no_sanitize("thread")))
#define INLINE static inline __attribute__((always_inline, no_sanitize("thread")))

INLINE void over_range(mst_rule_one *one, const mst_rule *c, float *restrict w, float *restrict a,
                       float *restrict b, const float *restrict g, size_t n)
{
    for (size_t i = 0; i < n; i++)
        one(c, w, a, b, i, g[i]);
}

/* BLOCK keys of one weight, of n that are there: roots and quotients are vectors. */
INLINE void over_block(mst_rule_one *one, const mst_rule *c, float *w, float *a, float *b, uint32_t n_slots,
                       size_t stride, bool apart, const uint32_t *restrict keys, size_t n,
                       const float *restrict g)
{
    float block[3][BLOCK] = {0};
    for (size_t i = FAR; i < FAR + BLOCK && i < n; i++) {
        size_t soon = keys[i] * stride;
        __builtin_prefetch(&w[soon], 1);
        if (apart)
            __builtin_prefetch(&a[soon], 1);
        if (apart && n_slots > 1)
            __builtin_prefetch(&b[soon], 1);
    }
    for (size_t i = 0; i < BLOCK; i++) {
        size_t at = keys[i] * stride;
        block[0][i] = w[at];
        block[1][i] = a[at];
        if (n_slots > 1)
            block[2][i] = b[at];
    }
    over_range(one, c, block[0], block[1], block[2], g, BLOCK);
    for (size_t i = 0; i < BLOCK; i++) {
        size_t at = keys[i] * stride;
        w[at] = block[0][i];
        a[at] = block[1][i];
        if (n_slots > 1)
            b[at] = block[2][i];
    }
}

/* Keys of several weights in a store by rows. */
INLINE void over_key_rows(mst_rule_one *one, const mst_rule *c, const mst_key_rows *rows,
                          const uint32_t *restrict keys, const float *restrict g, size_t n)
{
    size_t others = rows->width - 1;
    for (size_t i = 0; i < n; i++, g += rows->width) {
        float *first = mst_key_first(rows, keys[i]), *rest = mst_key_rest(rows, keys[i]);
        mst_key_prefetch(rows, keys[i + AHEAD < n ? i + AHEAD : i]);
        one(c, first, first + 1, first + 2, 0, g[0]);
        over_range(one, c, rest, rest + others, rest + 2 * others, g + 1, others);
    }
}

/* Keys of `width` weights, each with its state. */
INLINE void over_keys(mst_rule_one *one, const mst_rule *c, const mst_key_rows *rows, uint32_t n_slots,
                      float *const *slots, const uint32_t *restrict keys, const float *restrict g, size_t n)
{
    float *w = rows->at, *a = n_slots > 0 ? slots[0] : NULL, *b = n_slots > 1 ? slots[1] : NULL;
    size_t width = rows->width, stride = rows->stride;
    bool apart = n_slots > 0 && a != w + width; /* state is elsewhere than behind the weights */
    size_t i = 0;
    if (rows->grouped) {
        over_key_rows(one, c, rows, keys, g, n);
        return;
    }
    for (; width == 1 && n_slots > 0 && i + BLOCK <= n; i += BLOCK)
        over_block(one, c, w, a, b, n_slots, stride, apart, keys + i, n - i, g + i);
    for (; i < n; i++) {
        if (n_slots > 0) { /* without state the processor prefetches far enough */
            size_t soon = keys[i + AHEAD < n ? i + AHEAD : i] * stride, last = soon + width - 1;
            for (size_t j = soon; j < last + 16; j += 16) { /* keys begin anywhere in a line */
                __builtin_prefetch(&w[j < last ? j : last], 1);
                if (apart)
                    __builtin_prefetch(&a[j < last ? j : last], 1);
                if (apart && n_slots > 1)
                    __builtin_prefetch(&b[j < last ? j : last], 1);
            }
        }
        size_t base = keys[i] * stride;
        over_range(one, c, w + base, n_slots > 0 ? a + base : NULL, n_slots > 1 ? b + base : NULL,
                   g + i * width, width);
    }
}

/* The same where the weights of a key share their state. */
INLINE void over_rows(const mst_rule *c, const mst_key_rows *rows, float *a, const uint32_t *restrict keys,
                      const float *restrict g, size_t n)
{
    size_t width = rows->width;
    for (size_t i = 0; i < n; i++, g += width) {
        float *first = mst_key_first(rows, keys[i]);
        float *state = rows->grouped ? first + 1 : a + (size_t)keys[i] * rows->state_stride;
        mst_key_prefetch(rows, keys[i + AHEAD < n ? i + AHEAD : i]);
        if (!rows->grouped)
            __builtin_prefetch(a + (size_t)keys[i + AHEAD < n ? i + AHEAD : i] * rows->state_stride, 1);
        mst_rule_adagrad_row(c, first, mst_key_rest(rows, keys[i]), state, g, (uint32_t)width - 1);
    }
}

static bool never(const mst_optimizer *self)
{
    (void)self;
    return false;
}

/* ---- sgd ---- */

static bool sgd_is_plain(const mst_optimizer *self)
{
    return self->options.l1 == 0 && self->options.l2 == 0;
}

/* Clipping needs the norm of the whole gradient first. */
static bool sgd_additive(const mst_optimizer *self)
{
    return sgd_is_plain(self) && self->options.clip_norm == 0;
}

static mst_rule sgd_numbers(const mst_optimizer *self, const mst_update *u)
{
    return (mst_rule){.kind = MST_RULE_SGD,
                      .lr = u->lr,
                      .l1 = u->lr * (float)self->options.l1,
                      .l2 = (float)self->options.l2};
}

RACY static void sgd_range(const mst_optimizer *self, const mst_update *u, float *w, float *const *slots,
                           const float *g, size_t n)
{
    mst_rule c = sgd_numbers(self, u);
    (void)slots;
    if (sgd_is_plain(self))
        over_range(mst_rule_sgd_plain, &c, w, NULL, NULL, g, n);
    else
        over_range(mst_rule_sgd, &c, w, NULL, NULL, g, n);
}

RACY static void sgd_keys(const mst_optimizer *self, const mst_update *u, const mst_key_rows *rows,
                          float *const *slots, const uint32_t *keys, const float *g, size_t n)
{
    mst_rule c = sgd_numbers(self, u);
    if (sgd_is_plain(self))
        over_keys(mst_rule_sgd_plain, &c, rows, 0, slots, keys, g, n);
    else
        over_keys(mst_rule_sgd, &c, rows, 0, slots, keys, g, n);
}

const mst_optimizer_ops mst_optimizer_sgd = {
    .name = "sgd",
    .help = "plain gradient descent",
    .lr = 0.1,
    .sums = true,
    .additive = sgd_additive,
    .rule = sgd_numbers,
    .apply_range = sgd_range,
    .apply_keys = sgd_keys,
};

/* Defines NAME_range and NAME_keys: the rule NAME, with its NAME_numbers and slots, over a range and over
 * keys. */
#define APPLY(name, n_slots)                                                                                 \
    RACY static void name##_range(const mst_optimizer *self, const mst_update *u, float *w,                  \
                                  float *const *slots, const float *g, size_t n)                             \
    {                                                                                                        \
        mst_rule c = name##_numbers(self, u);                                                                \
        over_range(mst_rule_##name, &c, w, slots[0], n_slots > 1 ? slots[1] : NULL, g, n);                   \
    }                                                                                                        \
    RACY MST_WIDE static void name##_keys(const mst_optimizer *self, const mst_update *u,                    \
                                          const mst_key_rows *rows, float *const *slots,                     \
                                          const uint32_t *keys, const float *g, size_t n)                    \
    {                                                                                                        \
        mst_rule c = name##_numbers(self, u);                                                                \
        over_keys(mst_rule_##name, &c, rows, n_slots, slots, keys, g, n);                                    \
    }

/* ---- momentum ---- */

static mst_rule momentum_numbers(const mst_optimizer *self, const mst_update *u)
{
    mst_rule c = sgd_numbers(self, u);
    c.kind = MST_RULE_MOMENTUM;
    c.keep1 = (float)self->options.momentum;
    /* A steady gradient moves a weight by lr/(1 - mu) a step; L1 must pull as hard to have the same minimum.
     */
    c.l1 = (float)(c.l1 / (1.0 - self->options.momentum));
    return c;
}

APPLY(momentum, 1)

const mst_optimizer_ops mst_optimizer_momentum = {
    .name = "momentum",
    .help = "gradient descent with heavy-ball momentum",
    .lr = 0.1,
    .n_slots = 1,
    .slot_names = {"momentum"},
    .additive = never,
    .rule = momentum_numbers,
    .apply_range = momentum_range,
    .apply_keys = momentum_keys,
};

/* ---- adagrad ---- */

static mst_rule adagrad_numbers(const mst_optimizer *self, const mst_update *u)
{
    const mst_optim_options *o = &self->options;
    return (mst_rule){
        .kind = MST_RULE_ADAGRAD, .lr = u->lr, .l1 = (float)o->l1, .l2 = (float)o->l2, .eps = (float)o->eps};
}

APPLY(adagrad, 1)

const mst_optimizer_ops mst_optimizer_adagrad = {
    .name = "adagrad",
    .help = "a rate per weight that falls with the sum of its squared gradients",
    .lr = 0.1,
    .n_slots = 1,
    .sums = true,
    .slot_names = {"accumulator"},
    .additive = never,
    .rule = adagrad_numbers,
    .apply_range = adagrad_range,
    .apply_keys = adagrad_keys,
};

/* ---- rowwise ---- */

static mst_rule rowwise_numbers(const mst_optimizer *self, const mst_update *u)
{
    mst_rule c = adagrad_numbers(self, u);
    c.by_row = true;
    return c;
}

RACY static void rowwise_keys(const mst_optimizer *self, const mst_update *u, const mst_key_rows *rows,
                              float *const *slots, const uint32_t *keys, const float *g, size_t n)
{
    mst_rule c = adagrad_numbers(self, u);
    if (rows->width > 1)
        over_rows(&c, rows, slots[0], keys, g, n);
    else
        over_keys(mst_rule_adagrad, &c, rows, 1, slots, keys, g, n);
}

const mst_optimizer_ops mst_optimizer_rowwise = {
    .name = "rowwise",
    .help = "adagrad with one rate per key: less state for factors and embeddings",
    .lr = 0.1,
    .n_slots = 1,
    .sums = true,
    .slot_names = {"accumulator"},
    .row_name = "row_accumulator",
    .additive = never,
    .rule = rowwise_numbers,
    .apply_range = adagrad_range,
    .apply_keys = rowwise_keys,
};

/* ---- adam ---- */

/* 1 - beta^t, exactly 1 once beta^t is below half a unit in the last place. */
static double adam_correction(double beta, double t)
{
    return t * (1.0 - beta) > 40.0 ? 1.0 : 1.0 - pow(beta, t);
}

static mst_rule adam_numbers(const mst_optimizer *self, const mst_update *u)
{
    const mst_optim_options *o = &self->options;
    double t = (double)u->step;
    return (mst_rule){
        .kind = MST_RULE_ADAM,
        .lr = u->lr,
        .l1 = u->lr * (float)o->l1,
        .l2 = (float)o->l2,
        .keep1 = (float)o->beta1,
        .add1 = (float)(1.0 - o->beta1),
        .keep2 = (float)o->beta2,
        .add2 = (float)(1.0 - o->beta2),
        .rate = (float)(u->lr / (adam_correction(o->beta1, t))),
        .unbias = (float)(1.0 / sqrt(adam_correction(o->beta2, t))),
        .eps = (float)o->eps,
    };
}

APPLY(adam, 2)

const mst_optimizer_ops mst_optimizer_adam = {
    .name = "adam",
    .help = "moving averages of gradient and squared gradient, bias-corrected",
    .lr = 0.001,
    .n_slots = 2,
    .slot_names = {"m", "v"},
    .additive = never,
    .rule = adam_numbers,
    .apply_range = adam_range,
    .apply_keys = adam_keys,
};

/* ---- ftrl ---- */

#define FTRL_LR_MIN 1e-20f /* schedules may end at 0: q stays finite, and the weights stay where they are */

static mst_rule ftrl_numbers(const mst_optimizer *self, const mst_update *u)
{
    const mst_optim_options *o = &self->options;
    return (mst_rule){
        .kind = MST_RULE_FTRL,
        .l1 = (float)o->l1,
        .l2 = (float)o->l2,
        .rate = 1.0f / fmaxf(u->lr, FTRL_LR_MIN),
        .eps = (float)o->ftrl_beta,
    };
}

APPLY(ftrl, 2)

const mst_optimizer_ops mst_optimizer_ftrl = {
    .name = "ftrl",
    .help = "FTRL-Proximal: adagrad's rates with exact zeros under --l1",
    .lr = 0.1,
    .n_slots = 2,
    .sums = true,
    .slot_names = {"z", "n"},
    .additive = never,
    .rule = ftrl_numbers,
    .apply_range = ftrl_range,
    .apply_keys = ftrl_keys,
};
