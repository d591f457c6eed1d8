/* The data of a training; contract in train_data.h. */
#include "train/train_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/strings.h"
#include "data/cache.h"
#include "data/name_list.h"
#include "data/origin.h"
#include "data/stream.h"
#include "options/option_tables.h"

#define SETTLE_MS 1000 /* lets a pipe that delivers rows fast fill its first block as a file does */

/* A source that can be read only once serves one pass, and nothing else can read it. */
static mst_status train_data_check_read_once(const mst_train_data *self, mst_train_options *o,
                                             bool *epochs_given)
{
    const mst_text_list *files = self->config->files;
    const char *once = NULL;
    for (size_t i = 0; i < files->n && once == NULL; i++)
        if (mst_path_reads_once(files->items[i]))
            once = files->items[i];
    if (once == NULL)
        return MST_OK;
    const char *name = strcmp(once, "-") == 0 ? "standard input" : once;
    if (*epochs_given && o->epochs != 1)
        return mst_fail(MST_EUSAGE,
                        "%s can be read only once, which allows only --epochs 1: save it to a file first",
                        name);
    if (o->steps_per_epoch > 0)
        return mst_fail(MST_EUSAGE,
                        "%s can be read only once, and --steps-per-epoch repeats the data: save it to a file "
                        "first, or give --steps",
                        name);
    if (self->held_out.fraction > 0.0)
        return mst_fail(
            MST_EUSAGE,
            "%s can be read only once, and --valid %s reads it again: save it to a file first, or "
            "give a file to --valid",
            name, o->valid);
    if (o->cache)
        return mst_fail(MST_EUSAGE,
                        "%s can be read only once, so --cache cannot be used: save it to a file first", name);
    if (o->resume_data == MST_RESUME_SAME)
        return mst_fail(MST_EUSAGE,
                        "%s can be read only once, so --resume-data same cannot find its position: "
                        "omit it to train on every row that arrives",
                        name);
    *epochs_given = true; /* other limits do not lift it */
    o->epochs = 1;
    if (!self->config->shuffle_given)
        o->shuffle_rows = 0; /* a window to shuffle in would hold rows back */
    return MST_OK;
}

/* The rows of a cache stay as they were read when it was made; its own record overrides the options. */
static mst_status train_data_adopt_cache_options(mst_train_data *self)
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
        (mst_option_group){.title = "data", .table = mst_data_option_table, .base = &self->cached_options};
    mst_data_options *from = &self->cached_options, *to = &self->read_options;
    mst_status st = mst_options_init(&self->cached, 1);
    if (st == MST_OK)
        st = mst_options_adopt(&self->cached, 1, known);
    if (st == MST_OK && json_object_update(self->reading, known) != 0)
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
    to->vw_fields = from->vw_fields;
    to->csv_columns = from->csv_columns;
    to->csv_label = from->csv_label;
    to->csv_weight = from->csv_weight;
    to->csv_numeric = from->csv_numeric;
    to->min_count = from->min_count;
    to->vocabulary = from->vocabulary;
    to->feature_names = to->feature_names != NULL ? to->feature_names : from->feature_names;
    to->hash_seed = from->hash_seed;
    to->cifar_label = from->cifar_label;
    to->image_size = from->image_size;
    to->image_resize = from->image_resize;
    to->image_gray = from->image_gray;
    if (from->image_classes.n > 0)
        to->image_classes = from->image_classes;
    return MST_OK;
}

/* Names of classes are kept: folders of other sets are matched by name. */
static mst_status train_data_settle_classes(mst_train_data *self)
{
    const mst_dataset *d = self->dataset;
    if (d->class_names == NULL)
        return MST_OK;
    self->read_options.image_classes = (mst_text_list){.items = d->class_names, .n = d->n_class_names};
    json_t *names = mst_json_texts(d->class_names, d->n_class_names);
    return json_object_set_new(self->reading, "image-classes", names) == 0 ? MST_OK : mst_fail_memory();
}

/* Tables of the other sets, and of a resumed run, are read with the list of columns that the training data
 * gave. */
static mst_status train_data_settle_csv(mst_train_data *self)
{
    json_t *list = json_object_get(self->dataset->origin, MST_ORIGIN_CSV);
    const mst_strategy_options *strategy = self->config->strategy;
    const char *given = self->read_options.csv_columns, *found = json_string_value(list);
    if (found == NULL)
        return mst_fail(MST_EINPUT, "%s: its origin has no list of columns", self->dataset->name);
    if (strategy->strategy == MST_STRATEGY_PS && strategy->shard == MST_SHARD_LOCAL &&
        (given == NULL || strcmp(given, found) != 0))
        return mst_fail(
            MST_EUSAGE,
            "with --shard local, each worker would find columns in its own files; give all of them the "
            "list of one, which muster data stat --json prints as csv_columns: --csv-columns LIST");
    self->columns = self->read_options.csv_columns = mst_strdup(found);
    self->read_options.csv_label = self->read_options.csv_weight = NULL; /* the list has them */
    json_object_del(self->reading, "csv-label");
    json_object_del(self->reading, "csv-weight");
    return self->columns != NULL && json_object_set(self->reading, "csv-columns", list) == 0
               ? MST_OK
               : mst_fail_memory();
}

/* TFRecords of the other sets have the columns of the training data. If a list cannot hold a name, the
 * columns of each set are detected separately. */
static mst_status train_data_settle_columns(mst_train_data *self)
{
    if (json_object_get(self->dataset->origin, MST_ORIGIN_CSV) != NULL)
        return train_data_settle_csv(self);
    const json_t *columns = json_object_get(self->dataset->origin, "columns"), *column;
    const char *keys = json_string_value(json_object_get(self->dataset->origin, "keys"));
    bool hashed = keys != NULL && (strcmp(keys, "tfrecord") == 0 || strcmp(keys, "vocabulary") == 0);
    mst_string list = {0};
    size_t i;
    json_array_foreach((json_t *)columns, i, column)
    {
        const char *text = json_string_value(column), *kind = text != NULL ? strrchr(text, ' ') : NULL;
        size_t n = kind != NULL ? (size_t)(kind - text) : 0;
        if (n == 0 || memchr(text, ',', n) != NULL || memmem(text, n, "..", 2) != NULL) {
            mst_string_fini(&list);
            return MST_OK;
        }
        mst_string_format(&list, "%s%.*s:%s", list.size > 0 ? "," : "", (int)n, text, kind + 1);
    }
    if (list.text == NULL && !list.failed)
        return MST_OK;
    self->columns = self->read_options.tf_columns = list.text;
    self->read_options.tf_keys = hashed ? MST_TF_KEYS_HASH : MST_TF_KEYS_GLOBAL;
    if (list.failed || json_object_set_new(self->reading, "tf-columns", json_string(list.text)) != 0 ||
        json_object_set_new(self->reading, "tf-keys", json_string(hashed ? "hash" : "global")) != 0)
        return mst_fail_memory();
    return MST_OK;
}

/* The namespaces that are fields of the training data are those of the other sets, too, unless a list cannot
 * hold a name. */
static mst_status train_data_settle_fields(mst_train_data *self)
{
    const json_t *names = json_object_get(self->dataset->origin, MST_ORIGIN_FIELDS), *name;
    mst_string list = {0};
    size_t i;
    json_array_foreach((json_t *)names, i, name)
    {
        const char *text = json_string_value(name);
        if (text == NULL || strchr(text, ',') != NULL) {
            mst_string_fini(&list);
            return MST_OK;
        }
        mst_string_format(&list, "%s%s", i > 0 ? "," : "", text);
    }
    if (list.text == NULL && !list.failed)
        return MST_OK;
    self->vw_fields = self->read_options.vw_fields = list.text;
    if (list.failed || json_object_set_new(self->reading, "vw-fields", json_string(list.text)) != 0)
        return mst_fail_memory();
    return MST_OK;
}

/* Readers of the checkpoint may work in another folder. */
static mst_status train_data_settle_vocabulary(mst_train_data *self)
{
    char *full = self->read_options.vocabulary != NULL ? realpath(self->read_options.vocabulary, NULL) : NULL;
    bool kept = full == NULL || json_object_set_new(self->reading, "vocabulary", mst_json_text(full)) == 0;
    free(full);
    return kept ? MST_OK : mst_fail_memory();
}

/* The names of --feature-names must be those of the features. Likewise recorded with the whole path. */
static mst_status train_data_settle_names(mst_train_data *self)
{
    const char *path = self->read_options.feature_names;
    const mst_dataset *d = self->dataset;
    const char *keys = json_string_value(json_object_get(d->origin, "keys"));
    mst_name_list *names = NULL;
    if (path == NULL)
        return MST_OK;
    if ((keys != NULL && strcmp(keys, "numbers") != 0) || json_object_get(d->origin, "columns") != NULL)
        return mst_fail(MST_EUSAGE, "--feature-names %s: the features of %s are not numbered in the data",
                        path, d->name);
    TRY(mst_name_list_load(path, &names));
    uint64_t n = mst_name_list_size(names), features = (uint64_t)self->read_options.features;
    mst_name_list_destroy(names);
    features = features != 0 ? features : d->info.n_features;
    if (features != 0 && features != n)
        return mst_fail(MST_EINPUT, "%s has %llu names, but the rows of %s have %llu features%s", path,
                        (unsigned long long)n, d->name, (unsigned long long)features,
                        self->read_options.features != 0 ? " (--features)" : "");
    char *full = realpath(path, NULL);
    bool kept = full != NULL && json_object_set_new(self->reading, "feature-names", mst_json_text(full)) == 0;
    free(full);
    return kept ? MST_OK : mst_fail_memory();
}

/* Records the augmentation in numbers, also where they were found in the data, and the size of the images
 * before it. */
static mst_status train_data_settle_augmentation(mst_train_data *self)
{
    if (!self->augment.any)
        return MST_OK;
    char *text = mst_augment_normalise_text(&self->augment);
    bool kept = text != NULL && json_object_update(self->reading, self->config->augment_options) == 0 &&
                json_object_set_new(self->reading, "normalise", json_string(text)) == 0 &&
                json_object_set_new(self->reading, MST_AUGMENTED_IMAGE,
                                    json_pack("[I, I, I]", (json_int_t)self->augment.channels,
                                              (json_int_t)self->augment.in_height,
                                              (json_int_t)self->augment.in_width)) == 0;
    mst_free(text);
    return kept ? MST_OK : mst_fail_memory();
}

/* Settles the options for the other sets and for readers of the checkpoint, from the opened training data. */
static mst_status train_data_settle(mst_train_data *self)
{
    static const char *const bases[] = {"auto", "0", "1"};
    const char *name;
    json_t *value;
    void *next;
    self->reading = self->config->data_options ? json_deep_copy(self->config->data_options) : json_object();
    if (self->reading == NULL)
        return mst_fail_memory();
    TRY(train_data_adopt_cache_options(self));
    self->read_options.labels_from = self->dataset->labels_from; /* that of a cache overrides the options */
    if (json_object_set_new(self->reading, "labels-from", json_integer(self->read_options.labels_from)) != 0)
        return mst_fail_memory();
    json_object_foreach_safe(self->reading, next, name, value)
    {
        if (mst_train_option_is(name, MST_OPTION_OF_FILE))
            json_object_del(self->reading, name);
    }
    if (json_object_set_new(self->reading, "index-base", json_string(bases[self->read_options.index_base])) !=
        0)
        return mst_fail_memory();
    if (self->dataset->origin != NULL &&
        json_object_set_new(self->reading, MST_ORIGIN, json_deep_copy(self->dataset->origin)) != 0)
        return mst_fail_memory();
    TRY(train_data_settle_columns(self));
    TRY(train_data_settle_fields(self));
    TRY(train_data_settle_vocabulary(self));
    TRY(train_data_settle_names(self));
    TRY(train_data_settle_classes(self));
    return train_data_settle_augmentation(self);
}

/* Opens files, through their cache with --cache. An index base that the options leave open is set before the
 * cache is made. */
static mst_status train_data_open_files(mst_train_data *self, const mst_text_list *files, mst_dataset **out)
{
    const mst_train_config *c = self->config;
    mst_data_options *options = &self->read_options;
    mst_dataset *dataset;
    if (c->open_own != NULL)
        TRY(c->open_own(c->open_arg, files, out));
    if (*out != NULL)
        return MST_OK;
    if (options->min_count > 0 && options->vocabulary == NULL) { /* of the training files */
        if (!self->options->cache)
            return mst_fail(MST_EUSAGE, "--min-count needs --cache, which keeps its vocabulary");
        TRY(mst_cache_vocabulary_for(files, options, self->options->cache_folder, self->n_threads,
                                     &self->vocabulary));
        options->vocabulary = self->vocabulary;
    }
    TRY(mst_dataset_open(files, options, &dataset));
    if (options->index_base == 0 && mst_dataset_has(dataset, MST_DATA_INDEX_BASE) &&
        dataset->info.index_base <= 1)
        options->index_base = (int)dataset->info.index_base + 1;
    if (!self->options->cache || dataset->load_is_cheap) {
        *out = dataset;
        return MST_OK;
    }
    mst_status st = mst_cache_for(dataset, files, options, self->options->cache_folder, self->n_threads, out);
    mst_dataset_destroy(dataset);
    return st;
}

/* A set of more classes than the model has, if that is known before its rows are read. */
static mst_status train_data_check_classes(const mst_dataset *dataset, uint32_t classes)
{
    const mst_data_info *i = &dataset->info;
    if (!i->scanned || i->n_rows == 0 || classes == 0 || !(i->max_label >= (float)classes))
        return MST_OK;
    return mst_fail(MST_EINPUT, "%s: has labels up to %g, but the model has classes 0 to %u", dataset->name,
                    (double)i->max_label, classes - 1);
}

static mst_status train_data_open_set(mst_train_data *self, const mst_assembly *assembly,
                                      const mst_params *params, const atomic_bool *stop, mst_eval_set *set,
                                      const mst_text_list *files, mst_feed_keep keep)
{
    mst_data_options *options = &self->read_options;
    options->features =
        (int64_t)(self->augment.any ? mst_augment_in(&self->augment) : assembly->model->shape.n_features);
    char *labels = options->labels;
    if (keep == MST_KEEP_ALL)
        options->labels = NULL; /* belongs to the training images */
    options->set = keep == MST_KEEP_ALL ? MST_SET_TEST : MST_SET_TRAINING;
    options->any_key = true; /* the evaluator bounds them */
    mst_status st = train_data_open_files(self, files, &set->dataset);
    options->any_key = false;
    options->labels = labels;
    TRY(st);
    set->dataset->bad.silent = keep == MST_KEEP_HELD_OUT;
    if (!self->options->force)
        TRY(mst_origin_check(self->dataset->origin, "the model", set->dataset->origin, set->dataset->name));
    TRY(mst_assembly_check_rows(assembly, &self->augment, set->dataset));
    if (keep == MST_KEEP_ALL)
        TRY(train_data_check_classes(set->dataset, assembly->model->shape.n_classes));
    if (self->config->plan)
        return MST_OK;
    mst_evaluator_options eval = {
        .n_threads = self->n_threads,
        .batch = (uint32_t)self->options->eval_batch,
        .first_rows = (uint64_t)self->options->eval_rows,
        .strict_features = self->options->strict_features,
        .valid_seed = self->held_out.seed,
        .held_out = self->held_out.fraction,
        .keep = keep,
        .auc_by = self->options->auc_by,
        .stop = stop,
        .augment = self->augment.any ? &self->augment : NULL,
    };
    return mst_evaluator_new(assembly->model, params, set->dataset, &eval, &set->evaluator);
}

/* Options of reading may be for any of the sets, so this runs when all of them are open. A cache of --cache
 * was made with them. */
static mst_status train_data_check_given(const mst_train_data *self)
{
    const mst_dataset *sets[] = {self->dataset, self->test.dataset, self->valid.dataset};
    return self->options->cache
               ? MST_OK
               : mst_dataset_check_given(self->config->data, sets, sizeof sets / sizeof *sets);
}

mst_status mst_train_data_open_sets(mst_train_data *self, const mst_assembly *assembly,
                                    const mst_params *params, const atomic_bool *stop)
{
    char *valid = self->options->valid;
    mst_text_list one = {.items = &valid, .n = 1};
    if (self->options->test.n > 0)
        TRY(train_data_open_set(self, assembly, params, stop, &self->test, &self->options->test,
                                MST_KEEP_ALL));
    if (self->held_out.fraction > 0.0)
        TRY(train_data_open_set(self, assembly, params, stop, &self->valid, self->config->files,
                                MST_KEEP_HELD_OUT));
    else if (self->options->valid != NULL)
        TRY(train_data_open_set(self, assembly, params, stop, &self->valid, &one, MST_KEEP_ALL));
    return train_data_check_given(self);
}

/* --valid 0.1 is a fraction unless a file of that name exists. */
mst_status mst_held_out_parse(const mst_train_options *options, mst_held_out *out)
{
    const char *valid = options->valid;
    *out = (mst_held_out){0};
    if (valid == NULL || mst_path_exists(valid))
        return MST_OK;
    char *end;
    double fraction = strtod(valid, &end);
    if (end == valid || *end != '\0')
        return MST_OK; /* a file or pattern: opening it reports errors */
    if (!(fraction > 0.0 && fraction < 1.0))
        return mst_fail(MST_EUSAGE, "--valid %s: a fraction must lie between 0 and 1", valid);
    *out = (mst_held_out){.fraction = fraction,
                          .seed = (uint64_t)(options->valid_seed < 0 ? options->seed : options->valid_seed)};
    return MST_OK;
}

mst_status mst_train_data_make_feed(mst_train_data *self, const mst_model *model,
                                    const mst_feed_options *lanes)
{
    const mst_train_options *o = self->options;
    mst_feed_options feed = *lanes;
    feed.seed = (uint64_t)o->seed;
    feed.shuffle_rows = (uint64_t)o->shuffle_rows;
    feed.held_out = self->held_out.fraction;
    feed.valid_seed = self->held_out.seed;
    feed.keep_negatives = model->options.keep_negatives;
    feed.keep = self->held_out.fraction > 0.0 ? MST_KEEP_TRAINING : MST_KEEP_ALL;
    if (o->prefetch != 0)
        feed.prefetch_threads = (unsigned)o->prefetch;
    feed.features = model->shape.n_features;
    feed.fields = model->shape.n_fields;
    feed.classes = model->shape.n_classes;
    feed.augment = self->augment.any ? &self->augment : NULL;
    feed.training = true;
    return mst_feed_new(self->dataset, &feed, &self->feed);
}

/* Checks the labels: multi: classes from 0 on; otherwise 0/1 or -1/+1. */
static mst_status train_data_check_labels(const mst_dataset *dataset, bool multi)
{
    float low = dataset->info.min_label, top = dataset->info.max_label;
    bool whole = dataset->info.labels_integral;
    const char *name = dataset->name;
    if (!whole)
        return mst_fail(MST_EINPUT,
                        "%s: some labels between %g and %g are not whole numbers, but classes are", name,
                        (double)low, (double)top);
    if (multi && (low < 0.0f || top >= 0x1p24f))
        return mst_fail(MST_EINPUT, "%s: labels from %g to %g are not classes 0, 1, 2, ...; %s", name,
                        (double)low, (double)top,
                        low == -1.0f && top <= 1.0f ? "--model logreg takes -1 and +1"
                                                    : "number the classes from 0");
    if (!multi && (low < -1.0f || top > 1.0f))
        return mst_fail(
            MST_EINPUT,
            "%s: labels from %g to %g are not 0/1 or -1/+1, which a model of two classes takes; %s", name,
            (double)low, (double)top,
            low == 1.0f && top == 2.0f ? "--labels-from 1 reads 1 and 2 as 0 and 1"
            : low < 0.0f               ? "--model softmax takes more classes, numbered from 0"
                                       : "--model softmax takes classes 0, 1, 2, ...");
    return MST_OK;
}

/* Features, dense prefix and classes of the training set: from the options, else from the rows, which are
 * scanned if necessary. */
static mst_status train_data_find_shape(mst_train_data *self, mst_shape *out)
{
    mst_dataset *dataset = self->dataset;
    const mst_data_options *options = &self->read_options;
    bool multi = !mst_model_has(mst_models[self->config->model->model], MST_MODEL_BINARY);
    uint64_t features = (uint64_t)options->features;
    uint32_t classes = (uint32_t)options->classes;
    if (!multi && classes > 2)
        return mst_fail(MST_EUSAGE, "--classes %u: logreg supports two classes; use --model softmax for more",
                        classes);
    if (features != 0 && features < dataset->info.n_dense && dataset->format == NULL)
        return mst_fail(MST_EUSAGE, "--features %llu: the rows of %s are %u numbers",
                        (unsigned long long)features, dataset->name, dataset->info.n_dense);
    if (features == 0 && dataset->format != NULL && !dataset->info.scanned)
        features = dataset->info.n_features; /* the size that keys are hashed into */
    bool fields_unknown = dataset->format != NULL && dataset->format->fields && dataset->info.n_fields == 0 &&
                          mst_stream_reads_once(dataset) == NULL;
    if (!dataset->info.scanned && (features == 0 || fields_unknown || (multi && classes == 0))) {
        if (mst_stream_reads_once(dataset) == NULL)
            mst_info("reading %s once to find its features and labels (%s that)", dataset->name,
                     fields_unknown ? "--features and --fields save"
                     : multi        ? "--features and --classes save"
                                    : "--features saves");
        TRY(mst_dataset_scan(dataset, self->n_threads));
    }
    if (dataset->info.scanned && dataset->info.n_rows == 0 && (dataset->random || dataset->format != NULL))
        return mst_fail(MST_EINPUT, "%s: no rows to train on", dataset->name);
    if (features == 0)
        features = dataset->info.n_features;
    if (classes == 0 && dataset->info.scanned) {
        float top = dataset->info.max_label;
        TRY(train_data_check_labels(dataset, multi));
        classes = top < 1.0f ? 2 : (uint32_t)top + 1;
    }
    *out = (mst_shape){
        .n_features = features,
        .n_dense = dataset->info.n_dense,
        .n_classes = classes ? classes : 2,
        .c = dataset->info.channels,
        .h = dataset->info.height,
        .w = dataset->info.width,
        .n_fields = dataset->info.n_fields,
    };
    if (out->n_dense > features)
        out->n_dense = (uint32_t)features;
    uint32_t fields = mst_resumed_of(self->config).fields;
    if (out->n_fields > 0 && out->n_fields < fields && dataset->format != NULL && dataset->format->fields)
        out->n_fields = fields;
    return MST_OK;
}

mst_status mst_train_data_open(mst_train_data *self, const mst_train_config *c, mst_train_options *options,
                               bool *epochs_given, bool random, mst_shape *shape)
{
    self->config = c;
    self->options = options;
    self->n_threads = (unsigned)c->strategy->threads;
    self->read_options = *c->data;
    TRY(mst_held_out_parse(options, &self->held_out));
    TRY(train_data_check_read_once(self, options, epochs_given));
    self->read_options.set = MST_SET_TRAINING;
    if (self->read_options.features == 0)
        self->read_options.features = (int64_t)mst_resumed_of(c).features;
    if (self->read_options.classes == 0)
        self->read_options.classes = (int64_t)mst_resumed_of(c).classes;
    self->read_options.live = true;
    self->read_options.settle_ms = SETTLE_MS;
    TRY(train_data_open_files(self, c->files, &self->dataset));
    self->read_options.settle_ms = 0;
    if (self->options->test.n == 0 && (self->options->valid == NULL || self->held_out.fraction > 0.0))
        TRY(train_data_check_given(self));
    if (random && !self->dataset->random)
        return mst_fail(
            MST_EUSAGE,
            "%s can only be read from beginning to end, but each rank of --strategy allreduce reads its own "
            "rows of a batch: give --cache, or convert it (muster data convert)",
            self->dataset->name);
    if (c->augment != NULL)
        TRY(mst_augment_init(&self->augment, c->augment, self->dataset, (uint64_t)self->options->seed));
    TRY(train_data_find_shape(self, shape));
    if (self->augment.any) {
        shape->n_features = shape->n_dense = (uint32_t)mst_augment_out(&self->augment);
        shape->c = self->augment.channels;
        shape->h = self->augment.height;
        shape->w = self->augment.width;
    }
    return train_data_settle(self);
}

void mst_train_data_warn(const mst_train_data *self)
{
    const mst_dataset *d = self->dataset;
    const mst_data_info *i = &d->info;
    bool multi = !mst_model_has(mst_models[self->config->model->model], MST_MODEL_BINARY);
    mst_dataset_warn(d);
    if (multi && self->config->data->classes == 0 && i->scanned && i->labels_integral && i->min_label >= 1.0f)
        mst_warn("%s: labels run from %g to %g, and no row is of class 0; if %g is the first class, give "
                 "--labels-from %g",
                 d->name, (double)i->min_label + (double)d->labels_from,
                 (double)i->max_label + (double)d->labels_from, (double)i->min_label + (double)d->labels_from,
                 (double)i->min_label + (double)d->labels_from);
}

void mst_train_data_warn_skipped(const mst_train_data *self)
{
    mst_dataset_warn_skipped(self->dataset);
    mst_dataset_warn_skipped(self->valid.dataset);
    mst_dataset_warn_skipped(self->test.dataset);
}

json_t *mst_train_data_json(const mst_train_data *self)
{
    const mst_dataset *d = self->dataset;
    const mst_data_info *i = &d->info;
    json_t *json =
        json_pack("{s:o, s:s, s:b, s:b, s:I, s:I}", "source", mst_json_text(d->name), "format", d->kind->name,
                  "parsed", (int)mst_data_kind_has(d->kind, MST_DATA_PARSED), "random_access", (int)d->random,
                  "bytes", (json_int_t)i->bytes, "dense", (json_int_t)i->n_dense);
    if (json == NULL)
        return NULL;
    if (d->live)
        json_object_set_new(json, "live", json_true());
    if (i->index_base <= 1)
        json_object_set_new(json, "index_base", json_integer(i->index_base));
    if (d->left_out.n > 0)
        json_object_set_new(json, "left_out", mst_json_texts(d->left_out.items, d->left_out.n));
    if (i->scanned) {
        json_object_set_new(json, "rows", json_integer((json_int_t)i->n_rows));
        json_object_set_new(json, "features", json_integer((json_int_t)i->n_features));
        json_object_set_new(json, "entries", json_integer((json_int_t)i->n_entries));
        json_object_set_new(json, "labels", json_pack("[f, f]", (double)i->min_label, (double)i->max_label));
        json_object_set_new(json, "positive", json_integer((json_int_t)i->n_positive));
    }
    return json;
}

static void eval_set_fini(mst_eval_set *set)
{
    mst_evaluator_destroy(set->evaluator);
    mst_dataset_destroy(set->dataset);
    *set = (mst_eval_set){0};
}

void mst_train_data_close_sets(mst_train_data *self)
{
    eval_set_fini(&self->test);
    eval_set_fini(&self->valid);
}

void mst_train_data_fini(mst_train_data *self)
{
    json_decref(self->reading);
    mst_free(self->columns);
    mst_free(self->vw_fields);
    mst_free(self->vocabulary);
    mst_train_data_close_sets(self);
    mst_feed_destroy(self->feed);
    mst_dataset_destroy(self->dataset);
    if (self->cached.table != NULL)
        mst_options_fini(&self->cached, 1);
}
