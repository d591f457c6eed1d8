/* The search of `muster sweep --auto`: successive halving for the shortest time to a target.
 *
 * All candidates are trained for the same time; if none has reached the target, the better half continues for
 * twice as long, and so on. The candidate that reaches the target in the least training time wins: the others
 * of that round have been trained for at least as long without reaching it, and the rest have been dropped. A
 * single remaining candidate that comes no nearer to the target for MST_HALVING_PATIENCE rounds, each twice
 * as long as the previous one, ends the search. This file only makes decisions. */
#ifndef MST_SWEEP_HALVING_H
#define MST_SWEEP_HALVING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "sweep/sweep_metric.h"

/* The metric of --until, evaluated on a set, or train_loss. high_is_good follows from the comparison. */
typedef struct mst_target {
    mst_sweep_metric metric;
    double value;
} mst_target;

/* MST_EUSAGE when the text is not a condition. */
mst_status mst_target_parse(const char *until, mst_target *out);

/* Whether the manifest's "end" states that the condition was met. */
bool mst_target_reached(const char *end);

/* A candidate after a round. */
typedef struct mst_halving_try {
    bool alive;     /* takes part in rounds; decide clears it */
    bool reached;   /* the target, after `seconds` of training */
    bool over;      /* a limit ended it, or it failed: it cannot continue */
    double seconds; /* of training so far */
    double value;   /* of what the target compares, at the round's end; NAN: none */
    double nearest; /* the value nearest to the target in any round; NAN: none */
    double before;  /* for decide: nearest, after the previous round; NAN at first */
    int stale;      /* for decide: consecutive rounds in which it came no nearer */
} mst_halving_try;

#define MST_HALVING_PATIENCE 2

typedef enum mst_halving_end {
    MST_HALVING_GO_ON, /* train the remaining candidates for twice the time */
    MST_HALVING_FOUND, /* *best reached the target in the least time */
    MST_HALVING_NONE,  /* no candidate is left; *best came nearest, in any round */
    MST_HALVING_STUCK, /* the only one left comes no nearer; *best came nearest */
} mst_halving_end;

/* The value that is nearer to the target; NAN is the farthest. */
double mst_halving_nearer(double a, double b, bool high_is_good);

/* Decides after a round, in which each remaining candidate was trained for the same time or has ended. *best:
 * as above; n when there is none. */
mst_halving_end mst_halving_decide(mst_halving_try *tries, size_t n, bool high_is_good, size_t *best);

#endif
