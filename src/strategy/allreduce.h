/* Strategy allreduce: every rank of an MPI job holds all weights and applies the same
 * updates; gradients are added up over the ranks.
 *
 * Rank 0 runs the training loop: every call of the strategy's run becomes orders to all ranks, "so many steps
 * from here", and the others follow (mst_allreduce_follow). So rank 0 alone decides when to end, save or
 * evaluate. A request to stop or to save that another rank gets is sent to rank 0 with the loss at the end of
 * an order.
 *
 *   all ranks   mst_strategy_new with env.comm, a feed, mst_allreduce_join
 *   rank 0      run, run, ... then report, which ends the others
 *   the others  mst_allreduce_follow
 *
 * Step t's global batch is the next slice of the epoch's order of rows, of which rank r of N takes the rows
 * [n r / N, n (r + 1) / N): the same rows as local training with that batch. Sums have the order of ranks
 * (reducer.h), so that all ranks keep the same bits, and a run repeats bit for bit with as many ranks
 * and threads. */
#ifndef MST_STRATEGY_ALLREDUCE_H
#define MST_STRATEGY_ALLREDUCE_H

#include <jansson.h>

#include "strategy/comm_thread.h"
#include "strategy/strategy.h"

/* The stop and save signals of a rank, and its progress; any thread. */
typedef struct mst_allreduce_signals {
    const atomic_bool *stop;             /* or NULL */
    bool (*save_wanted)(void *save_arg); /* true once for every request; or NULL */
    void *save_arg;
    /* Ranks other than 0, after every order: the step that training has reached. Or NULL. */
    void (*at)(void *arg, uint64_t step);
    void *at_arg;
} mst_allreduce_signals;

/* On all ranks, before anything is trained: weights and optimizer state become rank 0's, and the ways of
 * reducing are chosen by measuring. Waits for all ranks while none is lost. */
mst_status mst_allreduce_join(mst_strategy *self, const mst_allreduce_signals *signals);

/* On ranks other than 0: carries out the orders of rank 0 until it ends the training. */
mst_status mst_allreduce_follow(mst_strategy *self, mst_feed *feed);

/* On rank 0: the requests of other ranks since the last call; *stopped_by is a rank, or -1. */
void mst_allreduce_requested(mst_strategy *self, int *stopped_by, bool *save);

#endif
