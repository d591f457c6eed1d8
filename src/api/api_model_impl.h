/* Shared by api_model.c, api_predict.c and api_files.c; no other file includes this.
 *
 * Invariants
 * 1. After it is made, a model changes only under a mutex: its free scorers and the names of tensors and
 * features. Any number of threads predict with it. */
#ifndef MST_API_API_MODEL_IMPL_H
#define MST_API_API_MODEL_IMPL_H

#include <pthread.h>

#include "api/api_impl.h"
#include "train/scorer.h"

typedef struct mst_api_names mst_api_names;

struct muster_model {
    mst_start start;
    mst_scorers scorers;
    muster_net *net;     /* held, for its kinds; or NULL */
    mst_augment augment; /* of images; any false: none */
    pthread_mutex_t mutex;
    char **names;            /* of tensors of state; guarded by mutex; NULL: none yet */
    mst_api_names *features; /* likewise, of features (api_names.c) */
    char *text;              /* of muster_model_text */
};

void mst_api_names_destroy(mst_api_names *self); /* NULL-safe */

/* Results of n rows from their scores; the first row has number `first`. The bytes that the results of a row
 * take (api_predict.c). */
mst_status mst_api_store(const muster_model *self, const float *scores, muster_output what, uint32_t n,
                         uint64_t first, void *out);
size_t mst_api_row_bytes(const muster_model *self, muster_output what);

/* The names of the fields of an origin (data/origin.h); NULL: they have none. A new reference (api_files.c).
 */
json_t *mst_api_field_names(const json_t *origin);

#endif
