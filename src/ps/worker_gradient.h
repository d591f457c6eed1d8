/* Gradients on pulled weights.
 *
 * The floats of a request are the model's dense ranges, in ascending order, then the weights of the batch's
 * keys; a gradient has the same layout. The model computes on them as it would on the whole vector: its
 * ranges and its key 0 point there, and the rows carry localised keys. Keys below the dense prefix keep their
 * numbers, because the prefix is the first range. With --dense-model a request holds the whole vector and
 * rows stay as they are.
 *
 * Sums have the same order as in the local strategy: row by row, key by key.
 *
 * Thread: the training thread. */
#ifndef MST_PS_WORKER_GRADIENT_H
#define MST_PS_WORKER_GRADIENT_H

#include "ps/client.h"
#include "ps/store.h"
#include "ps/worker_report.h"
#include "ps/worker_rows.h"

struct mst_worker_overlap;

typedef struct mst_gradient_buffer {
    float *g;
    uint64_t capacity; /* floats */
} mst_gradient_buffer;

typedef struct mst_worker_gradient {
    const mst_worker_job *job;
    uint64_t seed; /* of this worker's random numbers */
    mst_client *client;
    struct mst_worker_overlap *overlap; /* NULL: communication does not overlap */
    mst_worker_counts *counts;
    mst_grad layout; /* of the model; no buffers */
    mst_grad sparse; /* contributions */
    uint64_t range_at[MST_RANGE_MAX];
    uint32_t n_prefix;
    uint64_t sparse_at; /* position of key 0 among the floats of a request */
    void *scratch;
    float *coefs;
    mst_gradient_buffer buffers[MST_LISTS]; /* by request */
    bool one_buffer; /* all requests use the first: no push is under way when a batch begins */
    /* The gradient computed last: */
    const float *last; /* NULL: it is not complete */
    uint64_t last_step;
} mst_worker_gradient;

/* Reads the model's layout. max_rows: of a batch. */
mst_status mst_worker_gradient_init(mst_worker_gradient *self, uint32_t max_rows);
void mst_worker_gradient_fini(mst_worker_gradient *self);

/* Keys of the sparse view. */
uint64_t mst_worker_gradient_keys(const mst_worker_gradient *self);
/* Sets the ranges of a pull list. */
void mst_worker_gradient_ranges(const mst_worker_gradient *self, mst_key_list *list);

/* The gradient of a request. */
static inline float *mst_worker_gradient_of(const mst_worker_gradient *self, uint32_t request)
{
    return self->buffers[self->one_buffer ? 0 : request].g;
}

/* Computes the mean gradient of the batch at the request's weights. When communication overlaps, the weights
 * may still be arriving, and parts of the gradient may leave before this returns. */
mst_status mst_worker_gradient_compute(mst_worker_gradient *self, uint32_t request,
                                       const mst_worker_batch *batch, mst_loss_sum *sum);

#endif
