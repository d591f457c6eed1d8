/* The update rules on one weight, for loops over ranges, over keys, and inside kernels that compute a
 * gradient and apply it in one pass.
 *
 * The file that includes this decides whether products and sums are fused: optim/rules.c rounds them
 * separately; kernels fuse them where the instruction set can. */
#ifndef MST_TENSOR_RULE_ONE_H
#define MST_TENSOR_RULE_ONE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "base/racy.h"
#include "tensor/rule.h"

#ifndef MST_RULE_INLINE /* the GPU plug-in defines its own */
#define MST_RULE_INLINE static inline __attribute__((always_inline)) MST_RACY
#endif

/* Changes weight w[i], and its state a[i], b[i], by gradient g. */
typedef void mst_rule_one(const mst_rule *c, float *w, float *a, float *b, size_t i, float g);

MST_RULE_INLINE float mst_rule_shrink(float w, float by)
{
    return fabsf(w) <= by ? 0.0f : w - copysignf(by, w);
}

/* yes ? a : b in bits, which the compiler does not turn into a branch. */
MST_RULE_INLINE float mst_rule_pick(bool yes, float a, float b)
{
    union {
        float f;
        uint32_t u;
    } x = {a}, y = {b};
    uint32_t mask = 0u - (uint32_t)yes;
    x.u = (x.u & mask) | (y.u & ~mask);
    return x.f;
}

MST_RULE_INLINE void mst_rule_sgd(const mst_rule *c, float *w, float *a, float *b, size_t i, float g)
{
    (void)a, (void)b;
    w[i] = mst_rule_shrink(w[i] - c->lr * (g + c->l2 * w[i]), c->l1);
}

/* The same without L1 and L2, which is most runs: a third of the arithmetic, equal bits. */
MST_RULE_INLINE void mst_rule_sgd_plain(const mst_rule *c, float *w, float *a, float *b, size_t i, float g)
{
    (void)a, (void)b;
    w[i] -= c->lr * g;
}

MST_RULE_INLINE void mst_rule_momentum(const mst_rule *c, float *w, float *a, float *b, size_t i, float g)
{
    (void)b;
    float m = c->keep1 * a[i] + (g + c->l2 * w[i]);
    a[i] = m;
    w[i] = mst_rule_shrink(w[i] - c->lr * m, c->l1);
}

MST_RULE_INLINE void mst_rule_adagrad(const mst_rule *c, float *w, float *a, float *b, size_t i, float g)
{
    (void)b;
    float d = g + c->l2 * w[i];
    float s = a[i] + d * d;
    float rate = c->lr / (sqrtf(s) + c->eps);
    a[i] = s;
    w[i] = mst_rule_shrink(w[i] - rate * d, rate * c->l1);
}

/* Row-wise adagrad on the weights of a key, the first and n others, which share the sum *s:
 *   s += mean of d_j^2, d_j = g_j + l2*w_j;  w_j -= lr*d_j / (sqrt(s) + eps), then shrink as adagrad does
 * (Gupta et al. 2020, "Training recommender systems at scale"; DLRM and FBGEMM's rowwise adagrad). The
 * squares are added in four sums in a fixed order. */
MST_RULE_INLINE void mst_rule_adagrad_row(const mst_rule *c, float *first, float *restrict rest, float *s,
                                          const float *restrict g, uint32_t n)
{
    float d0 = g[0] + c->l2 * *first, squares[4] = {d0 * d0};
    uint32_t j = 0;
    g++;
    for (; j + 4 <= n; j += 4)
        for (uint32_t i = 0; i < 4; i++) {
            float d = g[j + i] + c->l2 * rest[j + i];
            squares[i] += d * d;
        }
    for (; j < n; j++) {
        float d = g[j] + c->l2 * rest[j];
        squares[j % 4] += d * d;
    }
    float sum = *s + ((squares[0] + squares[2]) + (squares[1] + squares[3])) / (float)(n + 1);
    float rate = c->lr / (sqrtf(sum) + c->eps);
    *s = sum;
    *first = mst_rule_shrink(*first - rate * d0, rate * c->l1);
    for (j = 0; j < n; j++)
        rest[j] = mst_rule_shrink(rest[j] - rate * (g[j] + c->l2 * rest[j]), rate * c->l1);
}

MST_RULE_INLINE void mst_rule_adam(const mst_rule *c, float *w, float *a, float *b, size_t i, float g)
{
    float d = g + c->l2 * w[i];
    float m = c->keep1 * a[i] + c->add1 * d;
    float v = c->keep2 * b[i] + c->add2 * (d * d);
    float scale = sqrtf(v) * c->unbias + c->eps; /* sqrt(v^) + eps */
    a[i] = m;
    b[i] = v;
    w[i] = mst_rule_shrink(w[i] - c->rate * m / scale, c->l1 / scale);
}

/* The paper's per-coordinate step, with q = (beta + sqrt(n))/alpha + l2 after n += g^2:
 *   z += g - sigma*w, sigma = (sqrt(n) - sqrt(n before))/alpha
 *   w  = 0 where |z| <= l1, otherwise (sign(z)*l1 - z)/q
 * A weight that is not zero determines its z: inverting the second line under n before and inserting it in
 * the first leaves z = g - w*q - sign(w)*l1. That form needs no difference of large sums, starts from weights
 * that were loaded without state, and stays right when alpha follows a schedule: a change of alpha is then
 * one more proximal term, centred at w, where the paper's form would scale every weight by it. z itself is
 * needed only where w is zero. g = 0 changes nothing, in exact arithmetic; the selects make it so in floats.
 */
MST_RULE_INLINE void mst_rule_ftrl(const mst_rule *c, float *w, float *a, float *b, size_t i, float g)
{
    float was = w[i], z_was = a[i]; /* NOLINT(clang-analyzer-core.NullDereference): ftrl has two slots */
    float n = b[i] + g * g;         /* NOLINT(clang-analyzer-core.NullDereference) */
    float q = (c->eps + sqrtf(n)) * c->rate + c->l2;
    float z = mst_rule_pick(was == 0.0f, z_was + g, g - was * q - copysignf(c->l1, was));
    float next = mst_rule_pick(fabsf(z) <= c->l1, 0.0f, (copysignf(c->l1, z) - z) / q);
    a[i] = mst_rule_pick(g == 0.0f, z_was, z);
    w[i] = mst_rule_pick(g == 0.0f, was, next);
    b[i] = n;
}

#endif
