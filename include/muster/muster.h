/* muster: trains models by stochastic gradient descent, in this process or in many.
 *
 * The public header of libmuster. Symbols that are not declared here may change between versions.
 *
 *   options   by name and text, the same as on the command line of `muster train`, plus the files to train on
 *   net       a model of layers, built-in ones and the program's own (or --model logreg, lenet, ...: no net)
 *   reader    rows that the program makes itself, in place of a file
 *   trainer   trains as the options say: local threads, or a parameter server in threads or in processes
 *   model     a trained model out of a checkpoint, for predictions
 *
 * Rules for all functions, unless one says otherwise:
 * - Failure is a status other than MUSTER_OK; muster_error_text then has one sentence that says what, where
 *   and what to do. A result (the last argument) is set only on MUSTER_OK.
 * - Texts and arrays that are passed in are copied. Texts that are returned belong to the handle.
 * - A handle is used by one thread at a time; different handles by as many threads as you like. There is no
 *   global state but the log sink.
 * - Nothing prints or exits; for signals see docs/API.md, "In a larger program". What waits says for how long. */
#ifndef MUSTER_MUSTER_H
#define MUSTER_MUSTER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library that the program runs with, e.g. "0.2.0". */
const char *muster_version(void);

/* ---- errors and log lines ---- */

typedef enum muster_status {
    MUSTER_OK = 0,
    MUSTER_EUSAGE = 1,      /* wrong usage: an unknown option, options that do not fit together */
    MUSTER_EINPUT = 2,      /* a file, a row or a value that cannot be used */
    MUSTER_EIO = 3,         /* the operating system refused a read or a write */
    MUSTER_ENOMEM = 4,      /* out of memory */
    MUSTER_EEXIST = 5,      /* something is there already (the run directory) */
    MUSTER_ETIMEOUT = 6,    /* a deadline passed */
    MUSTER_ESTOPPED = 7,    /* asked to stop before there was anything to save */
    MUSTER_EPEER = 8,       /* another process of the job failed; its run can be resumed */
    MUSTER_EUNSUPPORTED = 9 /* not possible in this build or on this machine */
} muster_status;

/* The calling thread's last failure, in one sentence; "" when nothing failed. Valid until the next failure on
 * this thread. */
const char *muster_error_text(void);

/* What a code means, without the circumstances. Never NULL. */
const char *muster_status_text(muster_status status);

/* Records a sentence of the program's own and returns the code: for readers and layers, whose failures come
 * out of muster_trainer_run. Format as printf. */
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

/* Where log lines go: nowhere until this is called. For the whole process; to be called before trainers run.
 * sink is called from any thread with a line without its newline, and must not call the library. */
typedef void muster_log_sink(void *arg, muster_log_level level, const char *line);
void muster_log_set(muster_log_sink *sink, void *arg, muster_log_level level);

/* ---- nets ---- */

/* Sides of what goes into or out of a layer, for one row; plain numbers are c x 1 x 1. In memory rows lie one
 * after the other, each plane after plane: (n, c, h, w). */
typedef struct muster_dims {
    uint32_t c, h, w;
} muster_dims;

/* What a layer's functions are told of the layer. */
typedef struct muster_layer_info {
    void *arg;        /* of the kind */
    const char *name; /* of the layer: "swish1" */
    muster_dims in, out;
    const double *options; /* their values, in the order of the kind's text */
} muster_layer_info;

/* How a parameter starts. */
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
    uint64_t fan_in, fan_out; /* of GLOROT and HE */
    /* Not trained but carried along, such as a running mean: backward sets its new value instead of adding to
     * a gradient. */
    int is_state;
} muster_layer_param;

/* What `shape` finds out. */
typedef struct muster_layer_shape {
    muster_dims out;
    uint32_t n_params;
    muster_layer_param params[MUSTER_LAYER_PARAMS];
    uint64_t flops; /* of one row, forward; for what `muster model show` says; 0: not counted */
} muster_layer_shape;

/* What a pass over rows needs to know besides numbers. Whatever is random in a layer should be a function of
 * seed, step, first_row + i and the unit: then training repeats, however rows are divided. */
typedef struct muster_pass {
    int training; /* 0: evaluation and prediction */
    uint64_t seed, step;
    uint64_t first_row; /* of these rows, in the batch of all workers */
} muster_pass;

/* A kind of layer. Functions may be called by several threads at once, and never fail in a step: what does
 * not fit is refused by `shape`. */
typedef struct muster_layer {
    const char *kind;    /* its name in nets: a letter, then letters, digits, - and _ */
    const char *options; /* "slope=0.01 size=3": names and defaults, all numbers, at most 8; NULL: none. The
                            first is what a bare number sets: "leaky 0.2" */
    void *arg;           /* the program's; must outlive whatever uses the net */
    /* Checks info->in and the options (info->out is not known yet) and fills in *out, which is zeroed. A
     * failure is muster_fail's code. */
    muster_status (*shape)(const muster_layer_info *info, muster_layer_shape *out);
    /* Bytes that forward leaves for backward, for n rows; NULL: none. */
    size_t (*state_size)(const muster_layer_info *info, uint32_t n);
    /* y from x, for n rows. w[i] is parameter i. state is NULL unless training and state_size. */
    void (*forward)(const muster_layer_info *info, void *state, const muster_pass *pass, uint32_t n,
                    const float *x, float *const *w, float *y);
    /* dx from dy, and adds the gradient of parameter i, summed over the rows, to g[i]. dx NULL: not wanted.
     * Follows forward on the same rows; x, y and state are what they were there. */
    void (*backward)(const muster_layer_info *info, void *state, const muster_pass *pass, uint32_t n,
                     const float *x, const float *y, const float *dy, float *const *w, float *dx,
                     float *const *g);
} muster_layer;

typedef struct muster_net muster_net;

muster_status muster_net_new(muster_net **net);
/* NULL-safe. Options and models that were given the net keep what they need of it. */
void muster_net_free(muster_net *net);

/* Adds lines of a net file: "conv 6 kernel=5 pad=2", "relu", "fc1: linear 120", "linear classes"; one layer a
 * line; `muster list` names the kinds and their options. Shapes are checked once the data is known, by
 * muster_trainer_new, or by muster_net_check. MUSTER_EUSAGE once options have the net. */
muster_status muster_net_add(muster_net *net, const char *lines);

/* Adds a kind of layer that lines may name. MUSTER_EUSAGE when there is one of that name, or when the table
 * lacks something. */
muster_status muster_net_add_kind(muster_net *net, const muster_layer *kind);

/* The lines so far. Valid until the next muster_net_add. */
const char *muster_net_text(const muster_net *net);

/* Works the shapes out for rows of the given sides; n_parameters may be NULL. A failure names the line. */
muster_status muster_net_check(const muster_net *net, muster_dims in, uint32_t n_classes,
                               uint64_t *n_parameters);

/* ---- rows ---- */

/* A row: n_dense numbers, features 0 to n_dense - 1, as floats or as bytes that stand for byte/255; and
 * n_keys further features by number, in ascending order (those of a reader in any order), where a key may
 * repeat (its values add up). All numbers are finite. How long they are is known to both sides: a reader says
 * it once, and a model has its features. */
typedef struct muster_row {
    float *dense;         /* or NULL: bytes are used, or n_dense is 0 */
    unsigned char *bytes; /* or NULL */
    uint32_t *keys;
    float *values; /* NULL in rows to predict: all one */
    uint32_t n_dense, n_keys;
    float label;  /* 0, 1, 2, ...; for two classes -1 stands for 0 too */
    float weight; /* importance */
} muster_row;

/* Rows that the program makes. With n_rows it is read at random, by several threads at once; without, it is a
 * stream: every opening (of each worker, for each pass over the data) is read from its first row to its end
 * by one thread at a time. Rows may not change from one pass to the next where a training is to be resumed.
 */
typedef struct muster_reader {
    void *arg;                        /* the program's; must outlive the trainers */
    uint64_t n_rows;                  /* 0: a stream */
    uint64_t n_features;              /* 0: n_dense. Keys are below */
    uint32_t n_dense;                 /* of every row */
    int bytes;                        /* the dense numbers are bytes; without keys only */
    uint32_t max_keys;                /* most keys of a row */
    uint32_t n_classes;               /* labels are below; at least 2 */
    uint32_t channels, height, width; /* of rows that are images: their product is n_dense; 0: no images */
    /* Stream: begins a reading; *cursor is then what read is given. NULL: arg is. */
    muster_status (*open)(void *arg, void **cursor);
    void (*close)(void *cursor); /* ends it; NULL: nothing to do */
    /* Fills in row `number`, from 0. dense (or bytes) has room for n_dense numbers, which are zero; keys and
     * values for max_keys, values being one; label is 0, weight 1, n_keys 0. cursor: arg where n_rows is
     * given. Streams: *end = 1 instead of a row after the last. A failure is muster_fail's code. */
    muster_status (*read)(void *cursor, uint64_t number, muster_row *row, int *end);
} muster_reader;

/* ---- options ---- */

typedef struct muster_options muster_options;

/* All options at their defaults. */
muster_status muster_options_new(muster_options **options);
void muster_options_free(muster_options *options); /* NULL-safe; trainers keep a copy */

/* Sets an option from text: ("lr", "0.1"), ("strategy", "ps"), ("save", "false"). Names are those of `muster
 * train --help` without the dashes. MUSTER_EUSAGE for a name or a value that is none, naming the nearest. */
muster_status muster_options_set(muster_options *options, const char *name, const char *value);

/* The value of an option as text; "" when it has none; NULL when there is no such option. Valid until the
 * next call on this handle. */
const char *muster_options_get(muster_options *options, const char *name);

/* Reads a command line as `muster train` does: "--name value", "--name=value", "--flag", "--no-flag"; other
 * words are files to train on. argv without the program's name. */
muster_status muster_options_parse(muster_options *options, int argc, char *const *argv);

/* Reads a YAML file, for options that have not been set. */
muster_status muster_options_load(muster_options *options, const char *path);

/* What all options are, in 100 columns, for a --help. NULL when memory is short. Valid as of get. */
const char *muster_options_help(muster_options *options);

/* A file, pattern, or reader to train on. */
muster_status muster_options_add_file(muster_options *options, const char *path);

/* From here on the file name `name` (in add_file, parse, or as the options "test" and "valid") means this
 * reader, alone and not together with others. */
muster_status muster_options_add_reader(muster_options *options, const char *name,
                                        const muster_reader *reader);

/* Trains this net, in place of --model. The net must not change afterwards; it may be freed. */
muster_status muster_options_set_net(muster_options *options, muster_net *net);

/* ---- training ---- */

typedef enum muster_event {
    MUSTER_EVENT_STEPS = 0,     /* steps were trained */
    MUSTER_EVENT_EVALUATED = 1, /* set and result are new */
    MUSTER_EVENT_SAVED = 2      /* a checkpoint is taken; it is on the disk when muster_trainer_run returns */
} muster_event;

typedef struct muster_result {
    uint64_t rows; /* 0: nothing was evaluated, and the rest is nothing */
    double loss, accuracy;
    double auc; /* NAN: there is none */
    double
        top5; /* share of rows whose class is among the 5 of the highest scores; NAN: not so many classes */
} muster_result;

/* Where a training stands. Valid during the call. */
typedef struct muster_progress {
    muster_event event;
    uint64_t step, rows, epoch; /* trained on so far; epoch: from 0 */
    double train_seconds, rows_per_s;
    double loss; /* of what was trained on lately */
    double lr;
    const char *set;      /* EVALUATED: "test" or "valid"; "" otherwise */
    muster_result result; /* EVALUATED */
    const char *path;     /* SAVED: of the run directory; "" otherwise */
} muster_progress;

/* Nonzero: stop. The training ends with a checkpoint (unless --no-save) and muster_trainer_run returns
 * MUSTER_OK.
 *
 * Called between steps, never while one is computed:
 * - with MUSTER_EVENT_STEPS after every `every` steps (0: a few times a second). With strategy local that is
 *   exactly every so many, and the step that is told of is the last when the answer is to stop. With strategy
 * ps it is when the coordinator looks after that many: workers do not wait for the callback;
 * - after every evaluation of a set; after every checkpoint.
 * Thread: that of muster_trainer_run (local), or one other thread of the library (ps). In a cluster of
 * several processes only the coordinator, server 0, hears of it. Must not call functions on its own trainer
 * but muster_trainer_stop. */
typedef int muster_callback(void *arg, const muster_progress *progress);

/* How a training ended. */
typedef struct muster_summary {
    int has_run;     /* 0: a process of a cluster that is not its coordinator: there is nothing else here */
    int stopped;     /* by the callback or muster_trainer_stop: it can be resumed */
    const char *end; /* "all epochs done", "asked to stop", ... */
    uint64_t step, rows;
    double train_seconds, train_loss;
    muster_result test, valid;
    const char *run;        /* its directory */
    const char *checkpoint; /* "": none; for muster_model_load */
} muster_summary;

typedef struct muster_trainer muster_trainer;

/* Checks the options; for strategy local also opens the data and makes the model. Nothing is written yet.
 * Which process of a cluster this one is comes from the options role, index and cluster, or from
 * MUSTER_CLUSTER or TF_CONFIG, as for `muster train`. */
muster_status muster_trainer_new(const muster_options *options, muster_trainer **trainer);
void muster_trainer_free(muster_trainer *trainer); /* NULL-safe; not while it runs */

/* Trains, once, and writes the run directory. Returns when the training is over: by its options' limits, by
 * the callback, by a failure. Waits for peers and data by the options' deadlines (start-timeout,
 * peer-timeout, stall-timeout). callback may be NULL. *summary may be NULL; its
 * texts are valid as long as the trainer. A second call is MUSTER_EUSAGE: make a new trainer, with the option
 * resume. */
muster_status muster_trainer_run(muster_trainer *trainer, uint64_t every, muster_callback *callback,
                                 void *arg, muster_summary *summary);

/* Asks a training to end after the step under way, as a callback does. Any thread, also a signal handler;
 * does not wait. */
void muster_trainer_stop(muster_trainer *trainer);

/* ---- trained models ---- */

typedef struct muster_model muster_model;

/* Loads a model: path is a checkpoint, a run directory (its newest; after --patience its best), or
 * RUN/checkpoints (the newest). net: NULL, unless the model
 * has layers of the program's own, whose kinds are looked up there (the lines are those of the checkpoint);
 * it must not change afterwards. */
muster_status muster_model_load(const char *path, muster_net *net, muster_model **model);
void muster_model_free(muster_model *model); /* NULL-safe */

/* How many features a row to predict has. */
uint64_t muster_model_features(const muster_model *model);
uint32_t muster_model_classes(const muster_model *model);

/* Probabilities of every class: n_rows x muster_model_classes floats, row after row. Labels are not looked
 * at. Rows are as those trained on were: what --crop, --crop-pad and --normalise did to them is done here,
 * too, as `muster predict` does it (the centre of every image, which has muster_model_features numbers before
 * it is cut). MUSTER_EINPUT for a row with features that the model does not have, and for an image of another
 * size. */
muster_status muster_model_predict(muster_model *model, const muster_row *rows, size_t n_rows,
                                   float *probabilities);

/* A parameter by its name in checkpoints ("conv1.weight"), or NULL; *size (may be NULL) is how many numbers.
 * Valid as long as the model. */
const float *muster_model_weight(const muster_model *model, const char *name, uint64_t *size);

#ifdef __cplusplus
}
#endif

#endif
