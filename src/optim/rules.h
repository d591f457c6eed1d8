/* The rules that optim.c registers; optim.h states the formulas. */
#ifndef MST_OPTIM_RULES_H
#define MST_OPTIM_RULES_H

#include "optim/optim.h"

extern const mst_optimizer_ops mst_optimizer_sgd;
extern const mst_optimizer_ops mst_optimizer_momentum;
extern const mst_optimizer_ops mst_optimizer_adagrad;
extern const mst_optimizer_ops mst_optimizer_adam;
extern const mst_optimizer_ops mst_optimizer_ftrl;
extern const mst_optimizer_ops mst_optimizer_rowwise;

#endif
