/* `muster data gen`: writes data that depends on a seed only. */
#include <string.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/cmd_data.h"
#include "data/cache.h"
#include "data/gen.h"
#include "data/origin.h"

/* Options of the generators; each uses some of the fields. */
typedef struct gen_options {
    int64_t rows, first_row, seed, test_rows;
    int64_t features, classes;
    double spread, interactions;
    bool scatter;
    mst_data_out_options out;
    char *config;
} gen_options;

#define FIELD(name) offsetof(gen_options, name)
#define ROWS_ROW(default_rows)                                                                               \
    {                                                                                                        \
        .name = "rows", .type = MST_OPTION_INT, .offset = FIELD(rows), .fallback = default_rows, .min = 1,   \
        .max = 1e15, .help = "Rows to generate."                                                             \
    }
#define SEED_ROW                                                                                             \
    {                                                                                                        \
        .name = "seed", .type = MST_OPTION_INT, .offset = FIELD(seed), .fallback = "1", .min = 0,            \
        .max = 9.2e18, .help = "Row I depends on the seed and on I only."                                    \
    }
#define FIRST_ROW                                                                                            \
    {                                                                                                        \
        .name = "first-row", .type = MST_OPTION_INT, .offset = FIELD(first_row), .fallback = "0", .min = 0,  \
        .max = 1e15,                                                                                         \
        .help = "Number of the first row. Slices with different first rows are parts of one data set."       \
    }

/* The groups of a generator: its rows, its shape, and the options that all have. */
#define GEN_GROUPS(rows_table, shape_table)                                                                  \
    {                                                                                                        \
        {"Rows", rows_table, 0}, {"Shape", shape_table, 0}, {"Output", mst_data_out_table, FIELD(out)},      \
            {"Other", mst_cli_config_table, FIELD(config)}, {.table = NULL},                                 \
    }

/* Opens the sink for rows of numbered features. `of`: a description of the meaning of the numbers; takes the
 * reference; or NULL. */
static mst_status gen_open_sink(mst_data_sink *sink, const mst_data_out_options *out, uint64_t rows,
                                json_t *of)
{
    json_t *origin = mst_origin_numbers();
    if (of != NULL)
        json_object_set_new(origin, "generated", of);
    char *key = mst_cache_key_text(NULL, origin);
    json_decref(origin);
    sink->source_key = key;
    mst_status st = mst_data_sink_open(sink, out, "generating", rows, 0);
    sink->source_key = NULL; /* the writer has its copy */
    mst_free(key);
    return st;
}

/* ---- criteo ---- */

static const mst_option gen_table[] = {ROWS_ROW("1M"), FIRST_ROW, SEED_ROW, {.name = NULL}};

static const mst_option criteo_table[] = {
    {.name = "features",
     .type = MST_OPTION_INT,
     .offset = FIELD(features),
     .fallback = "33762578",
     .min = 128,
     .max = 4294967295.0,
     .help = "Number of features: 13 numeric ones and the vocabularies of 26 fields."},
    {.name = "scatter",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(scatter),
     .help = "Spread the popular categories over the numbers of their field, as hashing does. Default: a "
             "category's number is its popularity rank."},
    {.name = "interactions",
     .type = MST_OPTION_REAL,
     .offset = FIELD(interactions),
     .metavar = "SHARE",
     .fallback = "0",
     .min = 0,
     .max = 0.01,
     .help = "Draw the labels from a factorisation machine of rank 8 instead of a linear model. Categories "
             "that this share of the rows or more are expected to have matter, alone and in pairs: 1e-5 is "
             "100 times in 10M rows. 0: a linear model."},
    {.name = NULL},
};

static const mst_command_group criteo_groups[] = GEN_GROUPS(gen_table, criteo_table);

static mst_status gen_criteo_run(mst_call *call)
{
    const gen_options *options = call->options;
    mst_data_sink sink = {0};
    mst_status st;
    double planted_loss = 0;
    mst_gen_criteo_options o = {
        .rows = (uint64_t)options->rows,
        .first_row = (uint64_t)options->first_row,
        .features = (uint64_t)options->features,
        .seed = (uint64_t)options->seed,
        .scatter = options->scatter,
        .interactions = options->interactions,
        .n_threads = mst_cli_threads(options->out.threads),
        .planted_loss = &planted_loss,
    };
    char planted[64] = "";
    if (o.interactions > 0)
        snprintf(planted, sizeof planted, ", with interactions from %g of the rows", o.interactions);
    mst_data_info info = {.n_features = o.features,
                          .n_fields = MST_GEN_CRITEO_NUMERIC + MST_GEN_CRITEO_FIELDS};
    TRY_OUT(st, gen_open_sink(&sink, &options->out, o.rows,
                              json_sprintf("criteo of %lld features%s%s", (long long)options->features,
                                           o.scatter ? ", scattered" : "", planted)));
    TRY_OUT(st, mst_gen_criteo(&o, mst_data_sink_take, &sink));
    st = mst_data_sink_commit(&sink, &info);
    if (st == MST_OK && !options->out.quiet)
        mst_info("the planted model has a log loss of %.4f on these rows", planted_loss);
out:
    mst_data_sink_close(&sink);
    return st;
}

static const mst_command cmd_criteo = {
    .name = "criteo",
    .summary =
        "click logs: 13 numbers and 26 categories with Zipf popularity, labels 0/1 from a planted model",
    .run = gen_criteo_run,
    .usage = "data gen criteo --rows N --out FILE [options]",
    .no_words = true,
    .groups = criteo_groups,
    .options_size = sizeof(gen_options),
    .examples = "muster data gen criteo --rows 1M --features 33762578 --out train.cache\n"
                "muster data gen criteo --rows 100k --first-row 1M --out test.cache\n",
};

/* ---- blobs ---- */

static const mst_option blobs_table[] = {
    {.name = "features",
     .type = MST_OPTION_INT,
     .offset = FIELD(features),
     .fallback = "16",
     .min = 1,
     .max = 65536,
     .help = "Number of features, all of them present in every row."},
    {.name = "classes",
     .type = MST_OPTION_INT,
     .offset = FIELD(classes),
     .fallback = "2",
     .min = 2,
     .max = 65536,
     .help = "Number of classes."},
    {.name = "spread",
     .type = MST_OPTION_REAL,
     .offset = FIELD(spread),
     .fallback = "1",
     .min = 1e-6,
     .max = 1e6,
     .help = "Distance between class centres, in standard deviations of the noise."},
    {.name = NULL},
};
static const mst_command_group blobs_groups[] = GEN_GROUPS(gen_table, blobs_table);

static mst_status gen_blobs_run(mst_call *call)
{
    const gen_options *options = call->options;
    mst_data_sink sink = {0};
    mst_status st;
    mst_gen_blobs_options o = {
        .rows = (uint64_t)options->rows,
        .first_row = (uint64_t)options->first_row,
        .dims = (uint32_t)options->features,
        .classes = (uint32_t)options->classes,
        .spread = options->spread,
        .seed = (uint64_t)options->seed,
        .n_threads = mst_cli_threads(options->out.threads),
    };
    mst_data_info info = {.n_features = o.dims};
    TRY_OUT(st, gen_open_sink(&sink, &options->out, o.rows, NULL));
    TRY_OUT(st, mst_gen_blobs(&o, mst_data_sink_take, &sink));
    st = mst_data_sink_commit(&sink, &info);
out:
    mst_data_sink_close(&sink);
    return st;
}

static const mst_command cmd_blobs = {
    .name = "blobs",
    .summary = "dense rows in Gaussian classes",
    .run = gen_blobs_run,
    .usage = "data gen blobs --rows N --features D --classes K --out FILE [options]",
    .no_words = true,
    .groups = blobs_groups,
    .options_size = sizeof(gen_options),
    .examples = "muster data gen blobs --rows 10k --features 16 --classes 4 --out blobs.svm\n",
};

/* ---- digits ---- */

static const mst_option digits_gen_table[] = {ROWS_ROW("60000"), FIRST_ROW, SEED_ROW, {.name = NULL}};
static const mst_option digits_table[] = {
    {.name = "test-rows",
     .type = MST_OPTION_INT,
     .offset = FIELD(test_rows),
     .fallback = "10000",
     .min = 0,
     .max = 1e9,
     .help = "Images in the test files, in addition to --rows; only if --out is a folder."},
    {.name = NULL},
};
static const mst_command_group digits_groups[] = GEN_GROUPS(digits_gen_table, digits_table);

typedef struct folder_progress {
    mst_bar bar;
    bool quiet;
    uint64_t rows;
} folder_progress;

static mst_status gen_folder_progress(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    folder_progress *progress = arg;
    (void)first_row;
    TRY(mst_signals_check("nothing was written"));
    progress->rows += chunk->n_rows;
    if (!progress->quiet)
        mst_bar_update(&progress->bar, progress->rows, progress->rows);
    return MST_OK;
}

/* Writes four IDX files to a folder, with the names of the MNIST files. */
static mst_status gen_digits_to_folder(const gen_options *gen)
{
    const mst_data_out_options *out = &gen->out;
    static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                        "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
    char train[32], test[32];
    if (gen->first_row != 0)
        return mst_fail(MST_EUSAGE, "--first-row needs a file, for example --to cache, not a folder");
    if (gen->rows > UINT32_MAX)
        return mst_fail(MST_EUSAGE, "--rows %lld: an IDX file holds at most 4294967295 images",
                        (long long)gen->rows);
    if (!out->overwrite) /* existing images may be the original MNIST */
        TRY(mst_data_check_free(out->out, names, sizeof names / sizeof *names));
    folder_progress progress = {.quiet = out->quiet};
    mst_signals_install();
    mst_bar_start(&progress.bar, "generating", "images", (uint64_t)(gen->rows + gen->test_rows));
    mst_status st = mst_gen_digits(out->out, (uint32_t)gen->rows, (uint32_t)gen->test_rows,
                                   (uint64_t)gen->seed, gen_folder_progress, &progress);
    mst_bar_end(&progress.bar);
    TRY(st);
    if (!out->quiet)
        mst_info("%s: %s training and %s test images of 28 x 28", out->out,
                 mst_figure_grouped((uint64_t)gen->rows, train),
                 mst_figure_grouped((uint64_t)gen->test_rows, test));
    return MST_OK;
}

static mst_status gen_digits_to_file(const gen_options *gen)
{
    mst_gen_digits_options o = {
        .rows = (uint64_t)gen->rows,
        .first_row = (uint64_t)gen->first_row,
        .seed = (uint64_t)gen->seed,
        .n_threads = mst_cli_threads(gen->out.threads),
    };
    mst_data_info info = {.n_features = MST_GEN_DIGIT_PIXELS,
                          .channels = 1,
                          .height = MST_GEN_DIGIT_SIDE,
                          .width = MST_GEN_DIGIT_SIDE};
    mst_data_sink sink = {0};
    mst_status st;
    TRY_OUT(st, gen_open_sink(&sink, &gen->out, o.rows, NULL));
    TRY_OUT(st, mst_gen_digits_rows(&o, mst_data_sink_take, &sink));
    st = mst_data_sink_commit(&sink, &info);
out:
    mst_data_sink_close(&sink);
    return st;
}

static mst_status gen_digits_run(mst_call *call)
{
    const gen_options *options = call->options;
    const mst_data_out_options *out = &options->out;
    const mst_row_writer_ops *ops;
    if (out->out == NULL)
        return mst_fail(MST_EUSAGE, "no output folder given; add --out FOLDER");
    if (out->to != NULL || mst_row_writer_find(NULL, out->out, &ops) == MST_OK)
        return gen_digits_to_file(options);
    return gen_digits_to_folder(options);
}

static const mst_command cmd_digits = {
    .name = "digits",
    .summary = "images of 28 x 28 that resemble handwriting, in ten classes",
    .run = gen_digits_run,
    .usage = "data gen digits --out FOLDER [options]",
    .details = "Writes four IDX files to FOLDER, with the names of the MNIST files. With --to, or if the "
               "suffix of --out names a format, one file of rows is written instead.\n",
    .no_words = true,
    .groups = digits_groups,
    .options_size = sizeof(gen_options),
    .examples = "muster data gen digits --out digits\n",
};

static const mst_command *const commands[] = {&cmd_criteo, &cmd_digits, &mst_cmd_data_gen_images, &cmd_blobs,
                                              NULL};

const mst_command mst_cmd_data_gen = {
    .name = "gen",
    .summary = "generate data from a seed",
    .commands = commands,
};
