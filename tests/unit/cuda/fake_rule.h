/* An update rule on one weight, for the fakes of GPUs. */
#ifndef MST_TESTS_FAKE_RULE_H
#define MST_TESTS_FAKE_RULE_H

#include "tensor/rule_one.h"

/* Changes weight w[at], and its state a[at], b[at], by gradient g. */
static inline void fake_apply(const mst_rule *rule, float *w, float *a, float *b, uint64_t at, float g)
{
    switch (rule->kind) {
    case MST_RULE_SGD:
        mst_rule_sgd(rule, w, a, b, at, g);
        break;
    case MST_RULE_MOMENTUM:
        mst_rule_momentum(rule, w, a, b, at, g);
        break;
    case MST_RULE_ADAGRAD:
        mst_rule_adagrad(rule, w, a, b, at, g);
        break;
    case MST_RULE_ADAM:
        mst_rule_adam(rule, w, a, b, at, g);
        break;
    case MST_RULE_FTRL:
        mst_rule_ftrl(rule, w, a, b, at, g);
        break;
    }
}

#endif
