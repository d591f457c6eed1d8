/* Setting a trainer up: options checked against each other, data opened, model built or restored; see
 * trainer.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "data/cache.h"
#include "data/images.h"
#include "data/origin.h"
#include "data/stream.h"
#include "options/option_tables.h"
#include "train/source.h"
#include "train/trainer_impl.h"

#define SETTLE_MS 1000 /* so that a pipe's first block is what a file's is, where rows come fast */

/* What can be read only once is good for one pass, never holds rows of an earlier one, and nothing else can
 * read it too. */
static mst_status check_read_once(mst_trainer *self)
{
    mst_train_options *o = &self->options;
    const char *once = NULL;
    for (size_t i = 0; i < self->config.files->n && once == NULL; i++)
        if (mst_path_reads_once(self->config.files->items[i]))
            once = self->config.files->items[i];
    if (once == NULL)
        return MST_OK;
    const char *name = strcmp(once, "-") == 0 ? "standard input" : once;
    if (self->config.epochs_given && o->epochs != 1)
        return mst_fail(MST_EUSAGE,
                        "%s can be read only once, and so serves --epochs 1 only: save it to a file first",
                        name);
    if (o->steps_per_epoch > 0)
        return mst_fail(MST_EUSAGE,
                        "%s can be read only once, and --steps-per-epoch repeats the data: save it to a file "
                        "first, or give --steps",
                        name);
    if (self->held_out > 0.0)
        return mst_fail(
            MST_EUSAGE,
            "%s can be read only once, and so --valid %s cannot read it again: save it to a file first, or "
            "give a file to --valid",
            name, o->valid);
    if (o->cache)
        return mst_fail(MST_EUSAGE,
                        "%s can be read only once, and so --cache is of no use: save it to a file first",
                        name);
    if (o->resume_data == MST_RESUME_SAME)
        return mst_fail(MST_EUSAGE,
                        "%s can be read only once, and so --resume-data same has no rows to continue after: "
                        "leave it out to train on every row that arrives",
                        name);
    self->config.epochs_given = true; /* other limits do not lift it */
    o->epochs = 1;
    if (!self->config.shuffle_given)
        o->shuffle_rows = 0; /* a window to shuffle in would hold rows back */
    return MST_OK;
}

/* The rows of a cache are what they are: how they were read holds, whatever the options say. */
static mst_status adopt_cache_options(mst_trainer *self)
{
    json_t *known = mst_cache_options(self->dataset), *value;
    const char *name;
    void *next;
    if (known == NULL) {
        self->reading_unknown =
            self->dataset->origin == NULL && mst_dataset_has(self->dataset, MST_DATA_CACHED);
        return MST_OK;
    }
    json_object_foreach_safe(known, next, name, value)
    {
        if (mst_train_option_is(name, MST_OPTION_OF_FILE | MST_OPTION_OF_SHAPE))
            json_object_del(known, name);
    }
    self->cached =
        (mst_option_group){.title = "data", .table = mst_data_option_table, .base = &self->cached_data};
    mst_data_options *from = &self->cached_data, *to = &self->data;
    mst_status st = mst_options_init(&self->cached, 1);
    if (st == MST_OK)
        st = mst_options_adopt(&self->cached, 1, known);
    if (st == MST_OK && json_object_update(self->data_json, known) != 0)
        st = mst_fail_memory();
    json_decref(known);
    TRY(st);
    to->index_base = from->index_base ? from->index_base : to->index_base;
    to->tf_label = from->tf_label;
    to->tf_index = from->tf_index;
    to->tf_value = from->tf_value;
    to->tf_weight = from->tf_weight;
    to->tf_columns = from->tf_columns;
    to->tf_keys = from->tf_keys;
    to->criteo_numeric = from->criteo_numeric;
    to->hash_seed = from->hash_seed;
    to->cifar_label = from->cifar_label;
    to->image_size = from->image_size;
    to->image_resize = from->image_resize;
    to->image_gray = from->image_gray;
    if (from->image_classes.n > 0)
        to->image_classes = from->image_classes;
    return MST_OK;
}

/* Classes that have names keep them: folders of other sets are matched by name. */
static mst_status settle_classes(mst_trainer *self)
{
    const mst_dataset *d = self->dataset;
    if (d->class_names == NULL)
        return MST_OK;
    self->data.image_classes = (mst_text_list){.items = d->class_names, .n = d->n_class_names};
    json_t *names = json_array();
    for (uint32_t i = 0; i < d->n_class_names; i++)
        json_array_append_new(names, mst_json_text(d->class_names[i]));
    if (json_array_size(names) != d->n_class_names ||
        json_object_set_new(self->data_json, "image-classes", names) != 0)
        return mst_fail_memory();
    return MST_OK;
}

/* The columns of TFRecords that were found in the training data are those of the other sets, whatever else
 * these have or lack. Names that a list cannot hold are left to be found again. */
static mst_status settle_columns(mst_trainer *self)
{
    const json_t *columns = json_object_get(self->dataset->origin, "columns"), *column;
    const char *keys = json_string_value(json_object_get(self->dataset->origin, "keys"));
    bool hashed = keys != NULL && strcmp(keys, "tfrecord") == 0;
    char *list = NULL, *longer;
    size_t i;
    json_array_foreach((json_t *)columns, i, column)
    {
        const char *text = json_string_value(column), *kind = text != NULL ? strrchr(text, ' ') : NULL;
        size_t n = kind != NULL ? (size_t)(kind - text) : 0;
        if (n == 0 || memchr(text, ',', n) != NULL || memmem(text, n, "..", 2) != NULL) {
            mst_free(list);
            return MST_OK;
        }
        longer = mst_sprintf("%s%s%.*s:%s", list != NULL ? list : "", list != NULL ? "," : "", (int)n, text,
                             kind + 1);
        mst_free(list);
        list = longer;
        if (list == NULL)
            return mst_fail_memory();
    }
    if (list == NULL)
        return MST_OK;
    self->columns = self->data.tf_columns = list;
    self->data.tf_keys = hashed ? MST_TF_KEYS_HASH : MST_TF_KEYS_GLOBAL;
    if (json_object_set_new(self->data_json, "tf-columns", json_string(list)) != 0 ||
        json_object_set_new(self->data_json, "tf-keys", json_string(hashed ? "hash" : "global")) != 0)
        return mst_fail_memory();
    return MST_OK;
}

/* What was done to rows, in numbers even where they were found in the data, and the sides of the images that
 * it was done to. */
static mst_status settle_augmentation(mst_trainer *self)
{
    if (!self->augment.any)
        return MST_OK;
    char *text = mst_augment_normalise_text(&self->augment);
    bool kept = text != NULL && json_object_update(self->data_json, self->config.augment_options) == 0 &&
                json_object_set_new(self->data_json, "normalise", json_string(text)) == 0 &&
                json_object_set_new(self->data_json, MST_AUGMENTED_IMAGE,
                                    json_pack("[I, I, I]", (json_int_t)self->augment.channels,
                                              (json_int_t)self->augment.in_height,
                                              (json_int_t)self->augment.in_width)) == 0;
    mst_free(text);
    return kept ? MST_OK : mst_fail_memory();
}

/* What opening the training data settled holds for the other sets, and for whoever loads the checkpoint. */
static mst_status settle_data_options(mst_trainer *self)
{
    static const char *const bases[] = {"auto", "0", "1"};
    const char *name;
    json_t *value;
    void *next;
    self->data_json = self->config.data_options ? json_deep_copy(self->config.data_options) : json_object();
    if (self->data_json == NULL)
        return mst_fail_memory();
    TRY(adopt_cache_options(self));
    self->data.labels_from = self->dataset->labels_from; /* a cache's, whatever the options say */
    if (json_object_set_new(self->data_json, "labels-from", json_integer(self->data.labels_from)) != 0)
        return mst_fail_memory();
    json_object_foreach_safe(self->data_json, next, name, value)
    {
        if (mst_train_option_is(name, MST_OPTION_OF_FILE))
            json_object_del(self->data_json, name);
    }
    if (json_object_set_new(self->data_json, "index-base", json_string(bases[self->data.index_base])) != 0)
        return mst_fail_memory();
    if (self->dataset->origin != NULL &&
        json_object_set_new(self->data_json, MST_ORIGIN, json_deep_copy(self->dataset->origin)) != 0)
        return mst_fail_memory();
    TRY(settle_columns(self));
    TRY(settle_classes(self));
    return settle_augmentation(self);
}

static mst_status open_data(mst_trainer *self, const mst_text_list *files, mst_dataset **out)
{
    const mst_train_config *c = &self->config;
    if (c->open_own != NULL)
        TRY(c->open_own(c->open_arg, files, out));
    if (*out != NULL)
        return MST_OK;
    return mst_open_data(files, &self->data, self->options.cache, self->options.cache_folder, self->n_threads,
                         out);
}

static mst_status open_set(mst_trainer *self, const mst_params *params, const atomic_bool *stop,
                           mst_eval_set *set, const mst_text_list *files, mst_feed_keep keep)
{
    mst_data_options *options = &self->data;
    options->features = (int64_t)(self->augment.any ? mst_augment_in(&self->augment)
                                                    : self->assembly.model->shape.n_features);
    char *labels = options->labels;
    if (keep == MST_KEEP_ALL)
        options->labels = NULL; /* belongs to the training images */
    options->set = keep == MST_KEEP_ALL ? MST_SET_TEST : MST_SET_TRAINING;
    options->any_key = true; /* the evaluator bounds them */
    mst_status st = open_data(self, files, &set->dataset);
    options->any_key = false;
    options->labels = labels;
    TRY(st);
    if (!self->options.force)
        TRY(mst_origin_check(self->dataset->origin, "the model", set->dataset->origin, set->dataset->name));
    TRY(mst_assembly_check_rows(&self->assembly, &self->augment, set->dataset));
    if (self->config.plan)
        return MST_OK;
    mst_evaluator_options eval = {
        .n_threads = self->n_threads,
        .batch = (uint32_t)self->options.eval_batch,
        .first_rows = (uint64_t)self->options.eval_rows,
        .strict_features = self->options.strict_features,
        .valid_seed = self->valid_seed,
        .held_out = self->held_out,
        .keep = keep,
        .stop = stop,
        .augment = self->augment.any ? &self->augment : NULL,
    };
    return mst_evaluator_new(self->assembly.model, params, set->dataset, &eval, &set->evaluator);
}

/* Options for folders of images are for any of the sets, so all of them are open. */
static mst_status check_image_option(const mst_trainer *self)
{
    const mst_dataset *sets[] = {self->test.dataset, self->valid.dataset};
    for (size_t i = 0; i < 2; i++)
        if (sets[i] != NULL && mst_images_options_matter(sets[i]))
            return MST_OK;
    return mst_images_option_check(self->config.image_option, self->dataset);
}

mst_status mst_trainer_open_sets(mst_trainer *self, const mst_params *params, const atomic_bool *stop)
{
    mst_text_list one = {.items = &self->options.valid, .n = 1};
    if (self->options.test.n > 0)
        TRY(open_set(self, params, stop, &self->test, &self->options.test, MST_KEEP_ALL));
    if (self->held_out > 0.0)
        TRY(open_set(self, params, stop, &self->valid, self->config.files, MST_KEEP_HELD_OUT));
    else if (self->options.valid != NULL)
        TRY(open_set(self, params, stop, &self->valid, &one, MST_KEEP_ALL));
    return check_image_option(self);
}

/* --valid 0.1 is a fraction unless a file of that name exists. */
static mst_status parse_valid(mst_trainer *self)
{
    const char *valid = self->options.valid;
    if (valid == NULL || mst_path_exists(valid))
        return MST_OK;
    char *end;
    double fraction = strtod(valid, &end);
    if (end == valid || *end != '\0')
        return MST_OK; /* a file or pattern: opening it says what is wrong */
    if (!(fraction > 0.0 && fraction < 1.0))
        return mst_fail(MST_EUSAGE, "--valid %s: a fraction must lie between 0 and 1", valid);
    self->held_out = fraction;
    self->valid_seed =
        (uint64_t)(self->options.valid_seed < 0 ? self->options.seed : self->options.valid_seed);
    return MST_OK;
}

static mst_status check_same_model(const mst_trainer *self, const mst_checkpoint_meta *meta,
                                   const char *checkpoint)
{
    if (!self->options.force)
        TRY(mst_origin_check(mst_origin_in(json_object_get(meta->extra, "data")), checkpoint,
                             self->dataset->origin, self->dataset->name));
    json_t *mine = mst_model_json(self->assembly.model);
    if (mine == NULL)
        return mst_fail_memory();
    mst_status st = mst_checkpoint_fits(checkpoint, meta->model, mine, self->config.data->features != 0);
    json_decref(mine);
    return st;
}

/* The checkpoint that a run continues from, or starts with: --resume, --init-from. */
static mst_status find_checkpoint(const mst_trainer *self, char **out)
{
    bool best;
    return self->options.resume ? mst_checkpoint_find(self->options.run, out)
                                : mst_checkpoint_find_model(self->options.init_from, false, out, &best);
}

/* Whether the checkpoint that would be loaded is one of this model. */
static mst_status look_at_checkpoint(const mst_trainer *self)
{
    mst_status st;
    char *checkpoint = NULL;
    mst_checkpoint_meta meta = {0};
    TRY_OUT(st, find_checkpoint(self, &checkpoint));
    TRY_OUT(st, mst_checkpoint_read_meta(checkpoint, &meta));
    TRY_OUT(st, check_same_model(self, &meta, checkpoint));
out:
    mst_checkpoint_meta_fini(&meta);
    mst_free(checkpoint);
    return st;
}

/* Loads weights, and everything else when the run resumes. */
static mst_status load_checkpoint(mst_trainer *self)
{
    mst_status st;
    bool resume = self->options.resume;
    char *checkpoint = NULL;
    mst_checkpoint_meta meta = {0};
    TRY_OUT(st, find_checkpoint(self, &checkpoint));
    TRY_OUT(st, mst_checkpoint_read_meta(checkpoint, &meta));
    TRY_OUT(st, check_same_model(self, &meta, checkpoint));
    TRY_OUT(st,
            mst_checkpoint_load(checkpoint, &self->assembly.params, self->optimizer.ops->slot_names, resume));
    if (resume) {
        mst_run_log_resume(self->log, &meta);
        self->progress = *mst_run_log_at(self->log);
    }
out:
    mst_checkpoint_meta_fini(&meta);
    mst_free(checkpoint);
    return st;
}

static mst_status make_run_log(mst_trainer *self)
{
    json_t *source;
    TRY(mst_source_of(self->config.files, self->config.open_own != NULL, &source));
    mst_run_log_options run_log = {
        .train = &self->options,
        .schedule = self->schedule,
        .epochs_given = self->config.epochs_given,
        .global_batch = (uint64_t)self->strategy_options.global_batch,
        .optimizer = &self->optimizer,
        .model_name = self->assembly.model->ops->name,
        .model = mst_model_json(self->assembly.model),
        .data = self->data_json,
        .source = source,
        .reading_unknown = self->reading_unknown,
        .stop = self->config.stop,
        .save_wanted = self->config.save_wanted,
    };
    mst_status st = mst_run_log_new(&run_log, &self->log);
    json_decref(run_log.model);
    json_decref(source);
    return st;
}

static mst_status make_feed(mst_trainer *self, unsigned n_lanes, uint32_t max_take, uint32_t shard,
                            uint32_t n_shards, const atomic_bool *stop)
{
    const mst_train_options *o = &self->options;
    mst_feed_options feed = {
        .seed = (uint64_t)o->seed,
        .shuffle_rows = (uint64_t)o->shuffle_rows,
        .held_out = self->held_out,
        .valid_seed = self->valid_seed,
        .keep = self->held_out > 0.0 ? MST_KEEP_TRAINING : MST_KEEP_ALL,
        .prefetch_threads = o->prefetch ? (unsigned)o->prefetch : self->n_threads,
        .n_lanes = n_lanes,
        .max_take = max_take,
        .features = self->assembly.model->shape.n_features,
        .any_keys = self->strategy != NULL && self->strategy->any_keys,
        .classes = self->assembly.model->shape.n_classes,
        .stop = stop,
        .shard = shard,
        .n_shards = n_shards,
        .augment = self->augment.any ? &self->augment : NULL,
        .training = true,
    };
    return mst_feed_new(self->dataset, &feed, &self->feed);
}

/* Options, data and the shape that the data ask of the model. */
static mst_status open_training_data(mst_trainer *self, mst_shape *shape)
{
    const mst_train_config *c = &self->config;
    mst_isa isa;
    TRY(mst_run_schedule_parse(&self->options, &self->schedule));
    TRY(parse_valid(self));
    TRY(check_read_once(self));
    TRY(mst_isa_parse(self->options.isa, &isa));
    self->kernels = mst_kernels_get(isa);
    self->strategy_options = *c->strategy;
    TRY(mst_strategy_resolve(&self->strategy_options));
    self->n_threads = (unsigned)self->strategy_options.threads;
    bool ranks = self->strategy_options.strategy == MST_STRATEGY_ALLREDUCE;
    mst_optim_options optim = *c->optim;
    if (ranks && self->strategy_options.lr_scale != 0)
        optim.lr *= (double)self->strategy_options.workers;
    TRY(mst_optimizer_init(&self->optimizer, &optim));
    self->data.set = MST_SET_TRAINING;
    if (self->data.features == 0)
        self->data.features = (int64_t)mst_resumed_of(c).features;
    if (self->data.classes == 0)
        self->data.classes = (int64_t)mst_resumed_of(c).classes;
    self->data.live = true;
    self->data.settle_ms = SETTLE_MS;
    TRY(open_data(self, c->files, &self->dataset));
    self->data.settle_ms = 0;
    if (self->options.test.n == 0 && (self->options.valid == NULL || self->held_out > 0.0))
        TRY(check_image_option(self));
    if (ranks && !self->dataset->random)
        return mst_fail(
            MST_EUSAGE,
            "%s can only be read from beginning to end, and ranks of --strategy allreduce each read "
            "their own rows of a batch: give --cache, or convert it (muster data convert)",
            self->dataset->name);
    if (c->augment != NULL)
        TRY(mst_augment_init(&self->augment, c->augment, self->dataset, (uint64_t)self->options.seed));
    TRY(mst_find_shape(self->dataset, &self->data, c->model, self->n_threads, shape));
    if (self->augment.any) {
        shape->n_features = shape->n_dense = (uint32_t)mst_augment_out(&self->augment);
        shape->c = self->augment.channels;
        shape->h = self->augment.height;
        shape->w = self->augment.width;
    }
    return settle_data_options(self);
}

/* What may not be meant, said by one process. */
static void warn_about_data(const mst_trainer *self)
{
    const mst_dataset *d = self->dataset;
    const mst_data_info *i = &d->info;
    bool multi = !mst_model_has(mst_models[self->config.model->model], MST_MODEL_BINARY);
    mst_dataset_warn_left_out(d);
    if (multi && self->config.data->classes == 0 && i->scanned && i->labels_integral && i->min_label >= 1.0f)
        mst_warn("%s: labels run from %g to %g, and no row is of class 0; if %g is the first class, give "
                 "--labels-from %g",
                 d->name, (double)i->min_label + (double)d->labels_from,
                 (double)i->max_label + (double)d->labels_from, (double)i->min_label + (double)d->labels_from,
                 (double)i->min_label + (double)d->labels_from);
}

/* The strategy and its feed. Steps that other ranks share need rows until the loop ends the training. */
static mst_status make_strategy(mst_trainer *self)
{
    mst_strategy_env env = {.model = self->assembly.model,
                            .optimizer = &self->optimizer,
                            .params = &self->assembly.params,
                            .seed = (uint64_t)self->options.seed,
                            .comm = self->config.comm};
    TRY(mst_strategy_new(&self->strategy_options, &env, &self->strategy));
    return make_feed(self, self->strategy->n_lanes, self->strategy->max_take, 0, 0,
                     self->config.comm == NULL ? self->config.stop : NULL);
}

/* For mst_trainer_plan: everything is checked, and a batch can be read. */
static mst_status set_up_plan(mst_trainer *self, const mst_shape *shape)
{
    const mst_train_options *o = &self->options;
    TRY(mst_assembly_declare(&self->assembly, self->config.model, shape, self->kernels));
    TRY(mst_assembly_check_rows(&self->assembly, &self->augment, self->dataset));
    TRY(mst_run_schedule_check(&self->schedule, o, self->assembly.model->n_scores));
    if (o->resume || o->init_from != NULL)
        TRY(look_at_checkpoint(self));
    TRY(mst_trainer_open_sets(self, NULL, self->config.stop));
    return make_feed(self, 1, (uint32_t)self->strategy_options.batch, 0, 0, self->config.stop);
}

mst_status mst_trainer_set_up(mst_trainer *self)
{
    mst_shape shape;
    TRY(open_training_data(self, &shape));
    warn_about_data(self);
    if (self->config.plan)
        return set_up_plan(self, &shape);
    TRY(mst_assembly_init(&self->assembly, self->config.model, &shape, self->kernels,
                          self->optimizer.ops->n_slots, mst_strategy_spare(&self->strategy_options),
                          (uint64_t)self->options.seed));
    TRY(mst_assembly_check_rows(&self->assembly, &self->augment, self->dataset));
    TRY(mst_run_schedule_check(&self->schedule, &self->options, self->assembly.model->n_scores));
    TRY(make_run_log(self));
    mst_params_populate(&self->assembly.params);
    mst_optimizer_start(&self->optimizer, &self->assembly.params);
    if (self->options.resume || self->options.init_from != NULL)
        TRY(load_checkpoint(self));
    TRY(mst_trainer_open_sets(self, &self->assembly.params, self->config.stop));
    return make_strategy(self);
}

mst_status mst_trainer_set_up_rank(mst_trainer *self)
{
    mst_shape shape;
    TRY(open_training_data(self, &shape));
    TRY(mst_assembly_init(&self->assembly, self->config.model, &shape, self->kernels,
                          self->optimizer.ops->n_slots, 0, (uint64_t)self->options.seed));
    TRY(mst_assembly_check_rows(&self->assembly, &self->augment, self->dataset));
    mst_params_populate(&self->assembly.params);
    mst_optimizer_start(&self->optimizer, &self->assembly.params);
    return make_strategy(self);
}

mst_status mst_trainer_set_up_worker(mst_trainer *self, uint32_t index)
{
    mst_shape shape;
    const mst_strategy_options *o = &self->strategy_options;
    TRY(open_training_data(self, &shape));
    if (index == 0)
        warn_about_data(self);
    TRY(mst_assembly_declare(&self->assembly, self->config.model, &shape, self->kernels));
    TRY(mst_assembly_check_rows(&self->assembly, &self->augment, self->dataset));
    TRY(mst_run_schedule_check(&self->schedule, &self->options, self->assembly.model->n_scores));
    bool whole = o->shard == MST_SHARD_LOCAL || (o->shard == MST_SHARD_AUTO && self->dataset->random);
    /* steps that others share with this worker need its rows until the coordinator ends the job */
    const atomic_bool *stop = self->dataset->random ? NULL : self->config.stop;
    return make_feed(self, (unsigned)o->pipeline + 2,
                     (uint32_t)(o->global_batch > o->batch ? o->global_batch : o->batch), whole ? 0 : index,
                     whole ? 0 : (uint32_t)o->workers, stop);
}
