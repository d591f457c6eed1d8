/* The data of a training: the training set with its feed, the evaluation sets, and how their rows are read.
 * Opening the training set settles what the options leave open (index base, columns, classes); the other sets
 * and the checkpoints follow that.
 *
 * Thread: one owner; mst_train_data_open_sets may run on another thread, while no other call does. */
#ifndef MST_TRAIN_TRAIN_DATA_H
#define MST_TRAIN_TRAIN_DATA_H

#include "train/assembly.h"
#include "train/evaluate.h"
#include "train/train_config.h"

typedef struct mst_eval_set {
    mst_dataset *dataset;
    mst_evaluator *evaluator; /* NULL: there is no such set */
} mst_eval_set;

typedef struct mst_train_data {
    const mst_train_config *config;
    const mst_train_options *options;
    unsigned n_threads;
    mst_dataset *dataset;
    mst_feed *feed;
    mst_augment augment; /* applied to rows of every set */
    mst_held_out held_out;
    json_t *reading;               /* how rows are read, for checkpoints */
    bool reading_unknown;          /* a cache that does not record how its rows were read */
    mst_data_options read_options; /* with what opening the training data settled; texts are borrowed */
    mst_option_group cached;       /* how the rows of a cache were read: its base is cached_options */
    mst_data_options cached_options;
    char *columns;    /* TFRecord, csv: those of the training data; or NULL */
    char *vocabulary; /* made for --min-count; or NULL */
    char *vw_fields;  /* vw: the namespaces that are fields of the training data; or NULL */
    mst_eval_set test, valid;
} mst_train_data;

/* Opens the training set and finds the shape that it requires of the model. A source that can be read only
 * once changes *options and *epochs_given. random: rows must be readable in any order. config and options
 * outlive the object; fini is safe after a failure. */
mst_status mst_train_data_open(mst_train_data *self, const mst_train_config *config,
                               mst_train_options *options, bool *epochs_given, bool random, mst_shape *shape);
void mst_train_data_fini(mst_train_data *self);

/* The rows that the options hold out. */
mst_status mst_held_out_parse(const mst_train_options *options, mst_held_out *out);

/* Logs a warning about data that may not be what the user means. */
void mst_train_data_warn(const mst_train_data *self);

/* Logs a warning for each set of which malformed rows were left out. */
void mst_train_data_warn_skipped(const mst_train_data *self);

/* Opens the test and valid sets for a model that was declared. params NULL: weights are given to the
 * evaluators later. */
mst_status mst_train_data_open_sets(mst_train_data *self, const mst_assembly *assembly,
                                    const mst_params *params, const atomic_bool *stop);
void mst_train_data_close_sets(mst_train_data *self); /* those that are open */

/* Makes the feed. lanes: n_lanes, max_take, any_keys, shard, n_shards, stop and prefetch_threads are used,
 * the last unless --prefetch is given. */
mst_status mst_train_data_make_feed(mst_train_data *self, const mst_model *model,
                                    const mst_feed_options *lanes);

/* The entry "data" of the manifest. New reference or NULL. */
json_t *mst_train_data_json(const mst_train_data *self);

#endif
