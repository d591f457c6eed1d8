/* A model with its parameters, from options and data or from a checkpoint. Shared by training, evaluation and
 * prediction. */
#ifndef MST_TRAIN_ASSEMBLY_H
#define MST_TRAIN_ASSEMBLY_H

#include <jansson.h>

#include "data/augment.h"
#include "data/dataset.h"
#include "model/model.h"
#include "optim/optim.h"
#include "run/checkpoint.h"

/* A model and its parameters. */
typedef struct mst_assembly {
    mst_model *model;
    mst_params params;
} mst_assembly;

/* Declares the model and its views, without memory for them. fini is safe after a failure. */
mst_status mst_assembly_declare(mst_assembly *self, const mst_model_options *options, const mst_shape *shape,
                                const mst_kernels *kernels);

/* The memory of a model's parameters: mst_params_reserve and mst_params.by_rows (not of nets). */
typedef struct mst_store_spec {
    const mst_optimizer *optimizer; /* NULL: the weights only, without state */
    uint64_t spare;
    bool by_rows;
} mst_store_spec;

/* Declares and reserves; weights are zero or the model's initial values, except for those that depend on a
 * key (mst_model_ops.start_keys). fini is safe after a failure. */
mst_status mst_assembly_init(mst_assembly *self, const mst_model_options *options, const mst_shape *shape,
                             const mst_kernels *kernels, const mst_store_spec *store, uint64_t seed);
/* The initial values of all keys. */
void mst_assembly_start_keys(mst_assembly *self, uint64_t seed);
void mst_assembly_fini(mst_assembly *self);

/* Checks that the model can take the rows of a dataset, as far as that is known before they are read; the
 * error names both shapes. Images for `augment` (NULL, or any false: none) must have the size that it was
 * made for. Images must have the size of a net's input, or the length that other models of dense rows take;
 * rows with all numbers must have the length that a net of images takes. Sparse rows may be shorter than the
 * model: the missing features are 0. */
mst_status mst_assembly_check_rows(const mst_assembly *self, const mst_augment *augment,
                                   const mst_dataset *dataset);

/* After rows of the dataset were used with these weights, their keys possibly unchecked
 * (mst_feed_options.any_keys): MST_EINPUT if its files have changed meanwhile. */
mst_status mst_params_kept(const mst_params *params, const mst_dataset *dataset);

/* Entry of how rows are read, in checkpoints of models of augmented images: [channels, height, width] of the
 * images before augmentation. Like MST_ORIGIN it is no option: a dataset records it itself. */
#define MST_AUGMENTED_IMAGE "augmented-image"

/* The augmentation of a training, for rows that come without a dataset; any false: none. source is for
 * errors. */
mst_status mst_augment_from_checkpoint(mst_augment *self, const mst_checkpoint_meta *meta,
                                       const char *source);

/* --device and --precision of commands that apply a model. */
typedef struct mst_scoring_device {
    char *device;
    int precision;
} mst_scoring_device;

/* A model with its weights, without optimizer state, from a checkpoint folder. device NULL: the CPU. With
 * groups, options that the user has not set get their values of the training (how rows are read). */
mst_status mst_assembly_from_checkpoint(mst_assembly *self, const char *checkpoint,
                                        const mst_kernels *kernels, const mst_scoring_device *device,
                                        mst_option_group *groups, size_t n_groups, mst_checkpoint_meta *meta);

/* {"name", "features", "dense", "classes", "bias", "pos_weight", "keep_negatives"}, of fm and its kind also
 * {"factors", "row_norm"}, for checkpoints and manifests. */
json_t *mst_model_json(const mst_model *model);
/* The reverse; source, the origin of the JSON, is for errors. */
mst_status mst_model_from_json(const json_t *json, const char *source, mst_model_options *options,
                               mst_shape *shape);

#endif
