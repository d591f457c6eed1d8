/* Shared by api_model.c and api_predict.c; no other file includes this.
 *
 * Invariants
 * 1. After it is made, a model changes only under a mutex: its free scorers and the names of tensors. Any
 * number of threads predict with it. */
#ifndef MST_API_API_MODEL_IMPL_H
#define MST_API_API_MODEL_IMPL_H

#include <pthread.h>

#include "api/api_impl.h"
#include "train/scorer.h"

struct muster_model {
    mst_start start;
    mst_scorers scorers;
    muster_net *net;     /* held, for its kinds; or NULL */
    mst_augment augment; /* of images; any false: none */
    pthread_mutex_t mutex;
    char **names; /* of tensors of state; guarded by mutex; NULL: none yet */
    char *text;   /* of muster_model_text */
};

#endif
