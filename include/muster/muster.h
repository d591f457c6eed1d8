/* muster trains models by stochastic gradient descent, in one process or in many.
 *
 * This is the public header of libmuster. Symbols that are not declared here may change between versions.
 *
 *   options   names and values as on the command line of `muster train`, and the files to train on
 *   net       a model of built-in and custom layers (not needed for --model logreg, lenet, ...)
 *   reader    rows that the program generates, in place of a file
 *   data      rows in arrays of the program, which are read in place
 *   trainer   trains with local threads, or with a parameter server in threads or processes
 *   model     a trained model from a checkpoint or a trainer, for predictions and further training
 *
 * Rules for all functions, unless stated otherwise:
 * - A status other than MUSTER_OK is a failure; muster_error_text then returns one sentence that states what
 *   happened, where, and what to do. A result (the last argument) is set only on MUSTER_OK.
 * - The library copies texts and arrays that it receives, except for the arrays of a muster_data. Texts that
 *   it returns belong to the handle.
 * - One thread at a time uses a handle; different threads can use different handles. Any number of threads
 * may predict with one model. The log sink is the only global state.
 * - Training and prediction treat subnormal numbers as 0, also in calls of the program's own functions. The
 *   floating-point environment of the caller is the same after a call as before.
 * - The library does not print or exit. For signals, see docs/API.md, "In a larger program". Functions that
 *   wait document their deadline. */
#ifndef MUSTER_MUSTER_H
#define MUSTER_MUSTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the version of the library, e.g. "0.2.0". */
const char *muster_version(void);

/* ---- errors and log lines ---- */

typedef enum muster_status {
    MUSTER_OK = 0,
    MUSTER_EUSAGE = 1,      /* wrong usage: an unknown option, incompatible options */
    MUSTER_EINPUT = 2,      /* an invalid file, row or value */
    MUSTER_EIO = 3,         /* the operating system refused a read or a write */
    MUSTER_ENOMEM = 4,      /* out of memory */
    MUSTER_EEXIST = 5,      /* the run directory exists already */
    MUSTER_ETIMEOUT = 6,    /* a deadline passed */
    MUSTER_ESTOPPED = 7,    /* stopped before there was anything to save */
    MUSTER_EPEER = 8,       /* another process of the job failed; its run can be resumed */
    MUSTER_EUNSUPPORTED = 9 /* not supported by this build or machine */
} muster_status;

/* Returns the last error message of the calling thread, or "". Valid until the next failure on this thread.
 */
const char *muster_error_text(void);

/* Returns the general meaning of a code. Never NULL. */
const char *muster_status_text(muster_status status);

/* Records an error message in printf format and returns the code. For custom readers and layers; the failure
 * is returned by muster_trainer_run. */
muster_status muster_fail(muster_status status, const char *format, ...)
#ifdef __GNUC__
    __attribute__((format(printf, 2, 3)))
#endif
    ;

typedef enum muster_log_level {
    MUSTER_LOG_ERROR = 0,
    MUSTER_LOG_WARN = 1,
    MUSTER_LOG_INFO = 2,
    MUSTER_LOG_DEBUG = 3
} muster_log_level;

/* Sets the sink for log lines of the whole process. Without it, log lines are discarded. Call it before
 * trainers run. Any thread may call sink, with a line without newline; sink must not call the library. */
typedef void muster_log_sink(void *arg, muster_log_level level, const char *line);
void muster_log_set(muster_log_sink *sink, void *arg, muster_log_level level);

/* ---- nets ---- */

/* Dimensions of the input or output of a layer for one row; plain numbers are c x 1 x 1. The memory layout is
 * (n, c, h, w). */
typedef struct muster_dims {
    uint32_t c, h, w;
} muster_dims;

/* The layer that a function is called for. */
typedef struct muster_layer_info {
    void *arg;        /* of the kind */
    const char *name; /* of the layer: "swish1" */
    muster_dims in, out;
    const double *options; /* values, in the order of the kind's option text */
} muster_layer_info;

/* Initial values of a parameter. */
typedef enum muster_init {
    MUSTER_INIT_GLOROT = 0,  /* uniform in +-sqrt(6 / (fan_in + fan_out)) */
    MUSTER_INIT_HE = 1,      /* normal, sqrt(2 / fan_in) */
    MUSTER_INIT_UNIFORM = 2, /* in +-scale */
    MUSTER_INIT_NORMAL = 3,  /* scale times a standard normal */
    MUSTER_INIT_CONSTANT = 4 /* scale */
} muster_init;

#define MUSTER_LAYER_PARAMS  4
#define MUSTER_LAYER_OPTIONS 8

typedef struct muster_layer_param {
    const char *name; /* "weight": checkpoints call it LAYER.weight; static text */
    uint32_t n_dims;  /* 1 to 4 */
    uint64_t dims[4];
    muster_init init;
    double scale;
    uint64_t fan_in, fan_out; /* for GLOROT and HE */
    /* Nonzero: not trained, such as a running mean; backward sets its new value instead of adding to a
     * gradient. */
    int is_state;
} muster_layer_param;

/* The result of `shape`. */
typedef struct muster_layer_shape {
    muster_dims out;
    uint32_t n_params;
    muster_layer_param params[MUSTER_LAYER_PARAMS];
    uint64_t flops; /* per row, forward; `muster model show` prints it; 0: not counted */
} muster_layer_shape;

/* Context of a pass over rows. Random numbers of a layer should be a function of seed, step, first_row + i
 * and the unit; then training is reproducible for any division of the rows. */
typedef struct muster_pass {
    int training; /* 0: evaluation and prediction */
    uint64_t seed, step;
    uint64_t first_row; /* position of the first row in the batch of all workers */
} muster_pass;

/* A kind of layer. Several threads may call its functions concurrently. forward and backward cannot fail:
 * `shape` refuses invalid inputs. */
typedef struct muster_layer {
    const char *kind;    /* name in nets: a letter, then letters, digits, - and _ */
    const char *options; /* "slope=0.01 size=3": names and defaults, all numbers, at most 8; NULL: none. A
                            bare number sets the first one: "leaky 0.2" */
    void *arg;           /* owned by the program; must outlive every user of the net */
    /* Checks info->in and the options (info->out is not set yet) and fills in *out, which is zeroed. Returns
     * muster_fail(...) on failure. */
    muster_status (*shape)(const muster_layer_info *info, muster_layer_shape *out);
    /* Returns the bytes that forward passes to backward for n rows; NULL: none. */
    size_t (*state_size)(const muster_layer_info *info, uint32_t n);
    /* Computes y from x for n rows. w[i] is parameter i. state is NULL unless training with state_size. */
    void (*forward)(const muster_layer_info *info, void *state, const muster_pass *pass, uint32_t n,
                    const float *x, float *const *w, float *y);
    /* Computes dx from dy (unless dx is NULL), and adds the gradient of parameter i, summed over the rows, to
     * g[i]. Follows forward on the same rows, with the same x, y and state. */
    void (*backward)(const muster_layer_info *info, void *state, const muster_pass *pass, uint32_t n,
                     const float *x, const float *y, const float *dy, float *const *w, float *dx,
                     float *const *g);
} muster_layer;

typedef struct muster_net muster_net;

muster_status muster_net_new(muster_net **net);
/* NULL-safe. Options and models keep a reference to the net they use. */
void muster_net_free(muster_net *net);

/* Adds lines of a net file: "conv 6 kernel=5 pad=2", "relu", "fc1: linear 120", "linear classes". One
 * line is one layer; `muster list` prints the kinds and their options. muster_trainer_new or muster_net_check
 * checks the shapes. MUSTER_EUSAGE after muster_options_set_net. */
muster_status muster_net_add(muster_net *net, const char *lines);

/* Adds a kind of layer. MUSTER_EUSAGE if the name exists or the table is incomplete. */
muster_status muster_net_add_kind(muster_net *net, const muster_layer *kind);

/* Returns the lines added so far. Valid until the next muster_net_add. */
const char *muster_net_text(const muster_net *net);

/* Infers the shapes for rows of the given dimensions; n_parameters may be NULL. An error names the line. */
muster_status muster_net_check(const muster_net *net, muster_dims in, uint32_t n_classes,
                               uint64_t *n_parameters);

/* ---- rows ---- */

/* A row has n_dense numbers, features 0 to n_dense - 1, as floats or as bytes (byte b is b/255), and n_keys
 * further features by number, in ascending order (in a reader: in any order; to predict with a model that has
 * fields: one key per field, in the order of the fields). A key may repeat; its values add up. All numbers
 * are finite. The reader or the model defines the sizes. */
typedef struct muster_row {
    float *dense;         /* or NULL: bytes are used, or n_dense is 0 */
    unsigned char *bytes; /* or NULL */
    uint32_t *keys;
    float *values; /* NULL in rows to predict: all are 1 */
    uint32_t n_dense, n_keys;
    float label;  /* 0, 1, 2, ...; for two classes, -1 also means 0 */
    float weight; /* importance */
} muster_row;

/* Rows that the program generates. With n_rows, several threads read rows at random. Without, it is a stream:
 * each worker opens it for each pass over the data, and one thread at a time reads it from the first row to
 * the end. Resuming a training requires that the rows are the same in every pass. */
typedef struct muster_reader {
    void *arg;                        /* owned by the program; must outlive the trainers */
    uint64_t n_rows;                  /* 0: a stream */
    uint64_t n_features;              /* keys are below this; 0: n_dense */
    uint32_t n_dense;                 /* dense numbers of every row */
    int bytes;                        /* the dense numbers are bytes; only without keys */
    uint32_t max_keys;                /* largest number of keys of a row */
    uint32_t n_classes;               /* labels are below this; at least 2 */
    uint32_t channels, height, width; /* of images: the product is n_dense; 0: no images */
    /* Stream: starts a pass; read receives *cursor. NULL: read receives arg. */
    muster_status (*open)(void *arg, void **cursor);
    void (*close)(void *cursor); /* ends a pass; NULL: nothing to do */
    /* Fills in row `number`, from 0. dense (or bytes) has n_dense zeros; keys and values have room for
     * max_keys, and values are 1; label is 0, weight 1, n_keys 0. With n_rows, cursor is arg. A stream sets
     * *end = 1 instead of filling in a row after the last. Returns muster_fail(...) on failure. */
    muster_status (*read)(void *cursor, uint64_t number, muster_row *row, int *end);
} muster_reader;

/* ---- rows in arrays ---- */

typedef enum muster_type {
    MUSTER_NONE = 0, /* there is no such array */
    MUSTER_FLOAT32 = 1,
    MUSTER_FLOAT64 = 2,
    MUSTER_UINT8 = 3, /* dense numbers only: byte b is b/255 */
    MUSTER_INT32 = 4,
    MUSTER_UINT32 = 5,
    MUSTER_INT64 = 6
} muster_type;

typedef struct muster_array {
    const void *data; /* aligned to its numbers */
    muster_type type;
} muster_array;

/* A dense matrix (dense), a CSR matrix (starts, columns, values), or both: then the dense numbers are the
 * first features and the columns of the CSR matrix are further ones. Zero the struct first. */
typedef struct muster_arrays {
    size_t size;      /* sizeof(muster_arrays) */
    const char *name; /* for messages; NULL: "X" */
    uint64_t n_rows;
    uint64_t n_features; /* columns of all */
    /* Dense: n_rows x n_dense of float32, float64 or uint8; row_stride numbers from a row to the next (0:
     * n_dense). */
    muster_array dense;
    uint32_t n_dense;
    uint64_t row_stride;
    /* CSR: row i has the entries [starts[i], starts[i + 1]). starts: n_rows + 1 of int32 or int64; columns:
     * n_entries of int32, uint32 or int64, in any order, a repeated one adds up; values: n_entries of float32
     * or float64, or NONE: all are 1. */
    muster_array starts, columns, values;
    uint64_t n_entries;
    /* Fields, for models that need them: of each entry; or NULL: entry i of a row is of field n_dense + i. */
    const uint16_t *fields;
    uint32_t n_fields; /* 0: rows have no fields */
    /* Of any type. labels: 0, 1, ..., n_classes - 1; NONE: rows to predict. weights: NONE: all are 1. */
    muster_array labels, weights;
    uint32_t n_classes;               /* 0: 2 */
    uint32_t channels, height, width; /* of images: the product is n_dense; 0: no images */
} muster_arrays;

typedef struct muster_data muster_data;

/* Checks the rows once, with n_threads (0: one per core): bounds, order of the starts, labels, and that all
 * numbers are finite. MUSTER_EINPUT with a sentence that names the first bad row. The arrays are read in
 * place: they must not change or disappear before muster_data_free, and before trainers that use them are
 * freed. Only arrays of other types than float32 (numbers, labels, weights), uint8 (dense numbers) and 32-bit
 * columns are copied, converted to 4 bytes per number, once; and the columns and values of a CSR matrix
 * without fields whose columns do not ascend in every row, to sort them. */
muster_status muster_data_new(const muster_arrays *arrays, uint32_t n_threads, muster_data **data);
void muster_data_free(muster_data *data); /* NULL-safe; options and trainers keep a reference */
uint64_t muster_data_rows(const muster_data *data);

/* ---- options ---- */

typedef struct muster_options muster_options;

/* Creates options with their defaults. */
muster_status muster_options_new(muster_options **options);
void muster_options_free(muster_options *options); /* NULL-safe; trainers have a copy */

/* Sets an option from text: ("lr", "0.1"), ("strategy", "ps"), ("save", "false"). Names are those of `muster
 * train --help` without the dashes. MUSTER_EUSAGE for an unknown name, with the most similar one, or an
 * invalid value. */
muster_status muster_options_set(muster_options *options, const char *name, const char *value);

/* Returns the value of an option as text, "" if it has none, NULL if there is no such option. Valid until the
 * next call on this handle. */
const char *muster_options_get(muster_options *options, const char *name);

/* Reads a command line as `muster train` does: "--name value", "--name=value", "--flag", "--no-flag"; other
 * words are files to train on. argv does not include the name of the program. */
muster_status muster_options_parse(muster_options *options, int argc, char *const *argv);

/* Reads a YAML file. Options that are already set keep their values. */
muster_status muster_options_load(muster_options *options, const char *path);

/* Returns the help text of all options, 100 columns wide, or NULL without memory. Valid until the next call
 * on this handle. */
const char *muster_options_help(muster_options *options);

/* Adds a file, glob, or reader to train on. */
muster_status muster_options_add_file(muster_options *options, const char *path);

/* Makes the file name `name` (in add_file, parse, and the options "test" and "valid") stand for this reader.
 * It cannot be combined with other files. */
muster_status muster_options_add_reader(muster_options *options, const char *name,
                                        const muster_reader *reader);

/* Makes the file name `name` stand for these rows, in the same way. */
muster_status muster_options_add_data(muster_options *options, const char *name, muster_data *data);

/* Trains in memory: no run directory is written, and muster_trainer_model returns the result. With the option
 * patience that is the model with the best loss on --valid. Strategy local, or ps in threads of the process.
 */
muster_status muster_options_set_memory(muster_options *options);

/* Makes the net the model, in place of --model. The net must not change afterwards; it may be freed. */
muster_status muster_options_set_net(muster_options *options, muster_net *net);

/* Opens the files of the options and describes their rows, as JSON: {"format": "csv", "rows": 0 if not known,
 * "classes": 3, "labels": ["blue", "green", "red"], "field_names": ["age", "city"] if there are any}. Classes
 * and labels of a text are those of its first megabyte. *text is valid until the next call on this handle. */
muster_status muster_options_describe(muster_options *options, const char **text);

/* ---- training ---- */

typedef enum muster_event {
    MUSTER_EVENT_STEPS = 0,     /* steps were trained */
    MUSTER_EVENT_EVALUATED = 1, /* set and result are new */
    MUSTER_EVENT_SAVED = 2      /* a checkpoint was taken; it is on disk when muster_trainer_run returns */
} muster_event;

typedef struct muster_result {
    uint64_t rows; /* 0: not evaluated; the other fields are unset */
    double loss, accuracy;
    double auc;  /* NAN: none */
    double top5; /* share of rows whose class has one of the 5 highest scores; NAN: fewer than 6 classes */
    /* Binary models, else NAN. Grouped AUC: with --auc-by. Calibration: mean predicted / mean observed. */
    double grouped_auc, calibration, normalised_entropy;
} muster_result;

/* The progress of a training. Valid during the call. */
typedef struct muster_progress {
    muster_event event;
    uint64_t step, rows, epoch; /* so far; epoch counts from 0 */
    double train_seconds, rows_per_s;
    double loss; /* of recent rows */
    double lr;
    const char *set;      /* EVALUATED: "test" or "valid"; "" otherwise */
    muster_result result; /* EVALUATED */
    const char *path;     /* SAVED: the run directory; "" otherwise */
} muster_progress;

/* Return nonzero to stop. The training then ends with a checkpoint (unless --no-save), and muster_trainer_run
 * returns MUSTER_OK.
 *
 * The callback runs between steps:
 * - with MUSTER_EVENT_STEPS after every `every` steps (0: a few times per second). With strategy local this
 * is exact, and a stop takes effect at that step. With strategy ps the coordinator calls it after about that
 * many steps; workers do not wait for it;
 * - after every evaluation of a set, and after every checkpoint.
 * Thread: that of muster_trainer_run (local), or one other thread of the library (ps). In a cluster of
 * several processes, only the coordinator, server 0, calls it. It must not call functions on its own trainer
 * except muster_trainer_stop. */
typedef int muster_callback(void *arg, const muster_progress *progress);

/* How a training ended. */
typedef struct muster_summary {
    int has_run;     /* 0: this process is not the coordinator of its cluster; the other fields are unset */
    int stopped;     /* by the callback or muster_trainer_stop; can be resumed */
    const char *end; /* "all epochs done", "stop requested", ... */
    uint64_t step, rows;
    double train_seconds, train_loss;
    muster_result test, valid;
    const char *run;        /* the run directory */
    const char *checkpoint; /* for muster_model_load; "": none */
} muster_summary;

typedef struct muster_trainer muster_trainer;
typedef struct muster_model muster_model;

/* Checks the options. With strategy local it also opens the data and creates the model. Writes nothing. The
 * role of this process in a cluster comes from the options role, index and cluster, or from MUSTER_CLUSTER or
 * TF_CONFIG, as in `muster train`. */
muster_status muster_trainer_new(const muster_options *options, muster_trainer **trainer);
void muster_trainer_free(muster_trainer *trainer); /* NULL-safe; not during muster_trainer_run */

/* Trains once and writes the run directory. Returns when a limit of the options is reached, the callback
 * stops the training, or it fails. Waits for peers and data are bounded by the options start-timeout,
 * peer-timeout and stall-timeout. callback and summary may be NULL. The texts of *summary are valid as long
 * as the trainer. A second call is MUSTER_EUSAGE: create a new trainer with the option resume. */
muster_status muster_trainer_run(muster_trainer *trainer, uint64_t every, muster_callback *callback,
                                 void *arg, muster_summary *summary);

/* Ends the training after the current step, like the callback. Any thread or signal handler may call it. Does
 * not wait. */
void muster_trainer_stop(muster_trainer *trainer);

/* Returns the trained model after muster_trainer_run. A trainer in memory hands its model over, with the
 * optimizer state, and can do so once; other trainers load the checkpoint of their run. */
muster_status muster_trainer_model(muster_trainer *trainer, muster_model **model);

/* ---- trained models ---- */

/* Loads a model. path is a checkpoint, a run directory (its newest checkpoint; after --patience its best), or
 * RUN/checkpoints (the newest). net provides the kinds of custom layers, if the model has any, else NULL; it
 * must not change afterwards. The lines of the net come from the checkpoint. */
muster_status muster_model_load(const char *path, muster_net *net, muster_model **model);
/* Loads the optimizer state too, which further training needs. */
muster_status muster_model_load_state(const char *path, muster_net *net, muster_model **model);
void muster_model_free(muster_model *model); /* NULL-safe */

/* Writes a checkpoint below the folder, which may exist: muster_model_load, `muster predict` and --init-from
 * accept it. */
muster_status muster_model_save(const muster_model *model, const char *folder);

/* Makes trainers of these options start with the weights of the model and, if they have its optimizer, with
 * its state; steps and epochs count on, and limits such as epochs count from here. The model is copied when
 * the trainer is created, with strategy ps when it runs, and must exist until then. Strategy local, or ps in
 * threads of the process. NULL: no model. */
muster_status muster_options_set_model(muster_options *options, const muster_model *model);

/* Return the number of features of a row to predict, and the number of classes. */
uint64_t muster_model_features(const muster_model *model);
uint32_t muster_model_classes(const muster_model *model);

/* Computes the probabilities of every class: n_rows x muster_model_classes floats, row after row. Labels are
 * ignored. Rows have the form of the training rows: --crop, --crop-pad and --normalise of the training apply
 * here too, as in `muster predict` (the centre of every image, which has muster_model_features numbers before
 * the crop). MUSTER_EINPUT for a row with features that the model does not have, and for an image of another
 * size. */
muster_status muster_model_predict(const muster_model *model, const muster_row *rows, size_t n_rows,
                                   float *probabilities);

typedef enum muster_output {
    MUSTER_PROBABILITIES = 0, /* float: n_rows x muster_model_classes */
    MUSTER_CLASSES = 1,       /* int32_t: n_rows */
    MUSTER_MARGINS = 2        /* float: n_rows x muster_model_scores, before the sigmoid or softmax */
} muster_output;

/* Predicts all rows of the data, in n_threads (0: one per core), into an array of the program. Labels are
 * ignored. The rows must have the features of the model. */
muster_status muster_model_predict_data(const muster_model *model, const muster_data *data,
                                        muster_output what, uint32_t n_threads, void *out);
/* The same for rows that are predicted once: they are checked as muster_data_new does, some at a time before
 * they are predicted, which is faster. On a failure, which names the first bad row, some results are set. */
muster_status muster_model_predict_arrays(const muster_model *model, const muster_arrays *arrays,
                                          muster_output what, uint32_t n_threads, void *out);
uint32_t muster_model_scores(const muster_model *model); /* 1 for two classes, unless the model has two */

typedef struct muster_predictions muster_predictions;

/* Predicts all rows of files, of any format, in their order and in n_threads (0: one per core). A file may be
 * a glob. They are read as the training data of the model was; rows of another origin are MUSTER_EINPUT, and
 * features that the model does not have count as 0 (docs/DATA.md). with_labels: the rows must have labels,
 * which are kept; 0: labels are ignored. */
muster_status muster_model_predict_files(const muster_model *model, const char *const *files, size_t n_files,
                                         muster_output what, int with_labels, uint32_t n_threads,
                                         muster_predictions **predictions);
void muster_predictions_free(muster_predictions *predictions); /* NULL-safe */
uint64_t muster_predictions_rows(const muster_predictions *predictions);
/* The results, as muster_model_predict_data writes them, and the labels as they were read: class numbers, or
 * -1 and 1. NULL: without labels. Valid as long as the predictions. */
const void *muster_predictions_values(const muster_predictions *predictions);
const float *muster_predictions_labels(const muster_predictions *predictions);

/* Returns a parameter by its name in checkpoints ("conv1.weight"), or NULL; sets *size (unless NULL) to the
 * number of its values. Valid as long as the model. NULL also for weights that are stored next to their
 * optimizer state: use muster_model_tensor or muster_model_read. */
const float *muster_model_weight(const muster_model *model, const char *name, uint64_t *size);

/* A parameter, or the optimizer state of one. Valid as long as the model. */
typedef struct muster_tensor {
    const char *name; /* as in checkpoints: "weight", "optimizer.sum.weight" */
    uint32_t n_dims;
    uint64_t dims[4];
    uint64_t size;     /* product of dims */
    const float *data; /* index i of the first dimension is at data + i * stride; NULL: in pieces,
                          muster_model_read copies them */
    uint64_t stride;
} muster_tensor;
uint32_t muster_model_n_tensors(const muster_model *model);
muster_status muster_model_tensor(const muster_model *model, uint32_t number, muster_tensor *tensor);
/* Copies the size floats of the tensor of that number. */
muster_status muster_model_read(const muster_model *model, uint32_t number, float *out);

/* Returns what the model is, as JSON: {"name": "logreg", "features": ..., "step": ..., "labels": of the
 * classes in the training data, "field_names": ..., "feature_names": the file of --feature-names}. Valid as
 * long as the model; NULL without memory. */
const char *muster_model_text(muster_model *model);

/* Copies the name of a feature, at most size - 1 bytes and a NUL, and sets *length (unless NULL) to its
 * length: a line of --feature-names, the column of a number, or COLUMN=CATEGORY of the vocabulary of
 * --min-count (docs/DATA.md). Length 0: it has no name, as hashed features. The first call reads the file,
 * which the training has named; MUSTER_EINPUT or MUSTER_EIO without it. Any thread. */
muster_status muster_model_feature_name(const muster_model *model, uint64_t feature, char *out, size_t size,
                                        size_t *length);

/* Finds the feature of a value, as files of the training's format would give it: by hash, by vocabulary or by
 * name. csv and Criteo: field is the column, value the text in the file ("": missing); the feature of a
 * column of numbers is that of any value. VW: field is the namespace, value the name. libffm: field is the
 * number of the field, value the index. libsvm: field is empty, value a name of --feature-names or an index.
 * MUSTER_EINPUT: there is none. Any thread. */
muster_status muster_model_feature(const muster_model *model, const char *field, size_t n_field,
                                   const char *value, size_t n_value, uint32_t *feature);

/* ---- hashes of names ---- */

/* Features of names and values, as the formats compute them: a model that was trained on VW, Criteo or csv
 * files takes rows that any program makes. docs/SERVING.md, "Hashes", defines them byte by byte. Texts need
 * no terminating NUL. seed: --hash-seed of the training (default 0); features: muster_model_features, from 1
 * to 2^32 - 1. Any thread. */

/* A feature of VW text, "|space name". */
uint32_t muster_hash_vw(const char *space, size_t n_space, const char *name, size_t n_name, uint64_t seed,
                        uint64_t features);

/* A value of a csv column of kind category; a bucket is the value "0", "1", ..., a missing value "".
 * n_numbers: columns of the kinds number, standard and log, which are features 0, 1, ... and must be below
 * features. */
uint32_t muster_hash_csv(const char *column, size_t n_column, const char *value, size_t n_value,
                         uint32_t n_numbers, uint64_t seed, uint64_t features);

/* A field of a Criteo row: columns 0 to 12 are the integers, 13 to 38 the categories; n_text 0: it is empty.
 * n_numbers: 0, or 13 with --criteo-numeric log and both. MUSTER_EINPUT: not an integer or not a category. */
muster_status muster_hash_criteo(uint32_t column, const char *text, size_t n_text, uint32_t n_numbers,
                                 uint64_t seed, uint64_t features, uint32_t *key);
/* Feature 0 to 12 of an integer with --criteo-numeric log and both: log(1 + v) / 4, and 0 for v below 0. */
float muster_criteo_log(int64_t v);

#ifdef __cplusplus
}
#endif

#endif
