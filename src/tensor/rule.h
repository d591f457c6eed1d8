/* An update rule with the numbers of one step; the formulas are in optim/optim.h. */
#ifndef MST_TENSOR_RULE_H
#define MST_TENSOR_RULE_H

#include <stdbool.h>

typedef enum mst_rule_kind {
    MST_RULE_SGD,
    MST_RULE_MOMENTUM,
    MST_RULE_ADAGRAD,
    MST_RULE_ADAM,
    MST_RULE_FTRL,
} mst_rule_kind;

/* State vectors of a rule. */
static inline unsigned mst_rule_slots(mst_rule_kind kind)
{
    return kind == MST_RULE_SGD ? 0 : kind == MST_RULE_MOMENTUM || kind == MST_RULE_ADAGRAD ? 1 : 2;
}

/* The numbers that a rule needs in one step, in the precision of its computation. */
typedef struct mst_rule {
    mst_rule_kind kind;
    bool by_row; /* adagrad: a key of several weights has one sum, that of the means of their squares */
    float lr, l1, l2;
    float keep1, add1;  /* momentum: mu; adam: beta1, 1 - beta1 */
    float keep2, add2;  /* adam: beta2, 1 - beta2 */
    float rate, unbias; /* adam: lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t); ftrl: rate = 1 / lr */
    float eps;          /* ftrl: beta */
} mst_rule;

#endif
