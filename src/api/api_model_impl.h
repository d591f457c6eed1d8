/* Shared by api_model.c and api_predict.c; no other file includes this.
 *
 * Invariants
 * 1. After it is made, a model changes only under its mutex: the free scorers and the names of tensors. Any
 * number of threads predict with it. */
#ifndef MST_API_API_MODEL_IMPL_H
#define MST_API_API_MODEL_IMPL_H

#include <pthread.h>

#include "api/api_impl.h"

/* The memory of one prediction; models keep those that are not in use. */
typedef struct mst_api_scorer mst_api_scorer;

struct muster_model {
    mst_start start;
    mst_weights weights;
    muster_net *net;     /* held, for its kinds; or NULL */
    mst_augment augment; /* of images; any false: none */
    pthread_mutex_t mutex;
    mst_api_scorer *free; /* list; guarded by mutex */
    char **names;         /* of tensors of state; guarded by mutex; NULL: none yet */
    char *text;           /* of muster_model_text */
};

void mst_api_scorers_free(muster_model *self);

#endif
