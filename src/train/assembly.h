/* Putting a job together: data sets, shape, model, optimizer and parameters from options, fresh or from a
 * checkpoint. Shared by training, evaluation and prediction. */
#ifndef MST_TRAIN_ASSEMBLY_H
#define MST_TRAIN_ASSEMBLY_H

#include <jansson.h>

#include "data/augment.h"
#include "data/dataset.h"
#include "model/model.h"
#include "optim/optim.h"
#include "run/checkpoint.h"

/* Opens files, through their cache when asked. The caller destroys *out, which options must outlive. An index
 * base that was left to be found is settled in options, before the cache is made. */
mst_status mst_open_data(const mst_text_list *files, mst_data_options *options, bool cache,
                         const char *cache_folder, unsigned n_threads, mst_dataset **out);

/* Features, dense prefix and classes of a data set: from the options where given, else from the data, which
 * is scanned for it when need be. */
mst_status mst_find_shape(mst_dataset *dataset, const mst_data_options *options,
                          const mst_model_options *model, unsigned n_threads, mst_shape *out);

/* A model and its parameters. */
typedef struct mst_assembly {
    mst_model *model;
    mst_params params;
} mst_assembly;

/* Declares the model and its views, without memory for them. fini is safe after a failure. */
mst_status mst_assembly_declare(mst_assembly *self, const mst_model_options *options, const mst_shape *shape,
                                const mst_kernels *kernels);

/* Declares and reserves; weights are zero or as the model starts them. fini is safe after a failure. */
mst_status mst_assembly_init(mst_assembly *self, const mst_model_options *options, const mst_shape *shape,
                             const mst_kernels *kernels, uint32_t n_slots, uint64_t spare, uint64_t seed);
void mst_assembly_fini(mst_assembly *self);

/* Whether the rows of a dataset are what the model takes, as far as that is known before they are read; one
 * sentence that names both shapes where they are not. Images that `augment` is for (NULL, or any false: none)
 * must have the sides that it was made for. Images must have the sides of a net's input, or as many numbers
 * as other models of dense rows; rows of which every number is there must be as many as a net of images
 * takes. Sparse rows may be shorter than the model, whose other features are 0 then. */
mst_status mst_assembly_check_rows(const mst_assembly *self, const mst_augment *augment,
                                   const mst_dataset *dataset);

/* Among how rows were read, in checkpoints of models of augmented images: [channels, height, width] of the
 * images before. Like MST_ORIGIN it is no option: whoever has a dataset knows it from there. */
#define MST_AUGMENTED_IMAGE "augmented-image"

/* What training did to images, for rows that come without a dataset; any false: nothing. source is for
 * sentences. */
mst_status mst_augment_from_checkpoint(mst_augment *self, const mst_checkpoint_meta *meta,
                                       const char *source);

/* A model as a checkpoint (its folder) describes it, with its weights; no optimizer state. When groups are
 * given, options that the user has not set are set as they were in training (how rows are read). */
mst_status mst_assembly_from_checkpoint(mst_assembly *self, const char *checkpoint,
                                        const mst_kernels *kernels, mst_option_group *groups, size_t n_groups,
                                        mst_checkpoint_meta *meta);

/* {"name", "features", "dense", "classes", "bias", "pos_weight"}: goes into checkpoints and manifests. */
json_t *mst_model_json(const mst_model *model);
/* And back; source, for the sentence, is what the JSON is from. */
mst_status mst_model_from_json(const json_t *json, const char *source, mst_model_options *options,
                               mst_shape *shape);

/* The options as a manifest has them, where `reading` says how rows were read: what was left to be found
 * (--normalise auto) is there in numbers. options may be NULL. New reference, or NULL when memory is short.
 */
json_t *mst_manifest_options(json_t *options, const json_t *reading);

#endif
