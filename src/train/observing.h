/* Between training and what a run writes about itself (observe/observe.h). */
#ifndef MST_TRAIN_OBSERVING_H
#define MST_TRAIN_OBSERVING_H

#include "observe/observe.h"
#include "tensor/grad.h"
#include "train/trainer.h"

/* --trace-steps A:B, A: or :B; NULL: all steps. MST_EUSAGE otherwise. */
mst_status mst_trace_steps_parse(const char *text, uint64_t *from, uint64_t *to);

/* Who watches, and as what: "local", or role and index. */
typedef struct mst_observing {
    const char *role; /* "local", "server", "worker", "rank" */
    unsigned index, n_threads;
    bool guest;    /* another part of the process watches the host */
    uint64_t step; /* that the run stands at */
} mst_observing;

/* As the options ask for; NULL: nothing is to be written, or it cannot be, which was a warning. */
mst_observe *mst_train_observe(const mst_train_options *options, const mst_observing *who);

/* Histograms of the views of params, and of the dense ranges of a gradient (or NULL), at a step. Nothing when
 * they would have cost more than a hundredth of the run's time; *spent_ns and begun_ns are the caller's to
 * keep. */
void mst_observe_weights(mst_observe *observe, uint64_t step, const mst_params *params, const mst_grad *grad,
                         uint64_t begun_ns, uint64_t *spent_ns);

#endif
