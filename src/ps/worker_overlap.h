/* Communication while a worker computes on a large model.
 *
 * While the training thread computes, the net and every field of the worker that its events touch belong to a
 * loop thread: it receives weights, so that the forward pass starts with the first layer's, and sends parts
 * of the gradient as the backward pass finishes them. The training thread hands the net over before it
 * computes and takes it back afterwards; in between it only reads weights that were announced, writes
 * gradients that it has not announced, and uses the functions of a step.
 *
 *   need   waits until the loop thread has announced the range's weights (here)
 *   ready  announces the range's gradient (final), and wakes the loop thread */
#ifndef MST_PS_WORKER_OVERLAP_H
#define MST_PS_WORKER_OVERLAP_H

#include <pthread.h>

#include "ps/worker_gradient.h"

typedef enum mst_overlap_phase {
    MST_OVERLAP_IDLE,
    MST_OVERLAP_RUN,
    MST_OVERLAP_END, /* the training thread requests the net */
    MST_OVERLAP_QUIT,
} mst_overlap_phase;

typedef struct mst_worker_overlap {
    mst_worker_link *link;
    const mst_worker_gradient *gradient; /* layout and buffers */
    uint32_t stall_timeout_ms;
    bool on; /* the model is large enough; there is a thread */
    uint32_t part_floats;
    pthread_t thread;
    pthread_mutex_t lock; /* guards phase and waited_ns */
    pthread_cond_t moved; /* phase has changed, or weights were announced */
    mst_overlap_phase phase;
    uint64_t waited_ns; /* in need, for this batch */
    atomic_bool here[MST_RANGE_MAX], final[MST_RANGE_MAX];
    /* The owner of the net uses: */
    uint32_t request;
    uint32_t order[MST_RANGE_MAX]; /* ranges, by descending position among the request's floats */
    uint32_t n_sent;               /* of them that were handed to the client as final */
    mst_error failure;
} mst_worker_overlap;

/* A step that overlaps, as the model receives it. */
typedef struct mst_overlap_step {
    mst_step step;
    mst_worker_overlap *overlap;
} mst_overlap_step;

/* With the gradient's layout known: decides whether communication overlaps (on), and starts the thread. */
mst_status mst_worker_overlap_init(mst_worker_overlap *self, const mst_placement *table);
void mst_worker_overlap_fini(mst_worker_overlap *self);

/* Hands the net over for a batch whose weights may still be arriving; sets the step's need. */
void mst_worker_overlap_begin(mst_worker_overlap *self, uint32_t request, mst_overlap_step *step);
/* The next computation is the last of the batch: sets the step's ready. */
void mst_worker_overlap_last(mst_overlap_step *step);
/* Takes the net back; may be called again. Returns the failure of the loop thread. */
mst_status mst_worker_overlap_end(mst_worker_overlap *self);

#endif
