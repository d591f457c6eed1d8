/* `muster data gen images`: fake photographs in classes, as files that describe how to generate them, or as
 * rows. */
#include "base/alloc.h"
#include "base/figure.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/cmd_data.h"
#include "cli/table.h"
#include "data/gen.h"
#include "data/images.h"

typedef struct images_options {
    int64_t rows, test_rows, first_row, classes, seed;
    char *size;
    mst_data_out_options out;
    char *config;
} images_options;

#define FIELD(name) offsetof(images_options, name)
static const mst_option images_table[] = {
    {.name = "rows",
     .type = MST_OPTION_INT,
     .offset = FIELD(rows),
     .fallback = "5000",
     .min = 1,
     .max = 1e15,
     .help = "Images to generate."},
    {.name = "test-rows",
     .type = MST_OPTION_INT,
     .offset = FIELD(test_rows),
     .fallback = "1000",
     .min = 1,
     .max = 1e15,
     .help = "Images of the test set in FOLDER; they follow the training images and differ from them."},
    {.name = "first-row",
     .type = MST_OPTION_INT,
     .offset = FIELD(first_row),
     .fallback = "0",
     .min = 0,
     .max = 1e15,
     .help = "Number of the first image. Slices with different first rows are parts of one data set."},
    {.name = "classes",
     .type = MST_OPTION_INT,
     .offset = FIELD(classes),
     .fallback = "50",
     .min = 2,
     .max = 10000,
     .help = "Number of classes, all equally frequent."},
    {.name = "size",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(size),
     .fallback = "3x224x224",
     .metavar = "CxHxW",
     .help = "Shape of the images, channels x height x width."},
    {.name = "seed",
     .type = MST_OPTION_INT,
     .offset = FIELD(seed),
     .fallback = "1",
     .min = 0,
     .max = 9.2e18,
     .help = "Image I depends on the seed and on I only."},
    {.name = NULL},
};
static const mst_command_group images_groups[] = {
    {"Images", images_table, 0},
    {"Output", mst_data_out_table, FIELD(out)},
    {"Other", mst_cli_config_table, FIELD(config)},
    {.table = NULL},
};

static mst_status gen_images_save_part(const char *folder, const char *name, const mst_gen_images_options *o)
{
    char *path = mst_sprintf("%s/%s.gen", folder, name);
    if (path == NULL)
        return mst_fail_memory();
    mst_status st = mst_gen_images_save(o, path);
    mst_free(path);
    return st;
}

/* train.gen and test.gen, each a few lines long. */
static mst_status gen_images_to_folder(const mst_gen_images_options *o, uint64_t test_rows,
                                       const mst_data_out_options *out)
{
    const char *folder = out->out;
    static const char *const names[] = {"train.gen", "test.gen"};
    char train[32], test[32];
    mst_gen_images_options later = *o;
    later.first_row = o->first_row + o->rows;
    later.rows = test_rows;
    if (!out->overwrite)
        TRY(mst_data_check_free(folder, names, 2));
    TRY(mst_make_folders(folder));
    TRY(gen_images_save_part(folder, "test", &later));
    TRY(gen_images_save_part(folder, "train", o));
    if (!out->quiet)
        mst_info(
            "%s: train.gen and test.gen make %s and %s images of %u x %u x %u in %u classes as they are read",
            folder, mst_figure_grouped(o->rows, train), mst_figure_grouped(test_rows, test), o->channels,
            o->height, o->width, o->classes);
    return MST_OK;
}

static mst_status gen_images_to_file(const mst_gen_images_options *o, const mst_data_out_options *out)
{
    mst_data_info info = {.n_features = (uint64_t)o->channels * o->height * o->width,
                          .channels = o->channels,
                          .height = o->height,
                          .width = o->width};
    mst_data_sink sink = {0};
    mst_status st;
    TRY_OUT(st, mst_data_sink_open(&sink, out, "generating", o->rows, 0));
    TRY_OUT(st, mst_gen_images(o, mst_data_sink_take, &sink));
    st = mst_data_sink_commit(&sink, &info);
out:
    mst_data_sink_close(&sink);
    return st;
}

static mst_status gen_images_run(mst_call *call)
{
    const images_options *images = call->options;
    const mst_data_out_options *out = &images->out;
    const mst_row_writer_ops *ops;
    if (out->out == NULL)
        return mst_fail(MST_EUSAGE, "no output folder given; add --out FOLDER");
    mst_gen_images_options o = {
        .rows = (uint64_t)images->rows,
        .first_row = (uint64_t)images->first_row,
        .classes = (uint32_t)images->classes,
        .seed = (uint64_t)images->seed,
        .n_threads = mst_cli_threads(out->threads),
    };
    TRY(mst_parse_sides("size", images->size, &o.channels, &o.height, &o.width));
    if (out->to == NULL && mst_ends_with(out->out, ".gen")) {
        TRY(mst_cli_check_free(out->out, out->overwrite));
        return mst_gen_images_save(&o, out->out);
    }
    if (out->to != NULL || mst_row_writer_find(NULL, out->out, &ops) == MST_OK)
        return gen_images_to_file(&o, out);
    return gen_images_to_folder(&o, (uint64_t)images->test_rows, out);
}

const mst_command mst_cmd_data_gen_images = {
    .name = "images",
    .summary = "fake photographs in balanced classes",
    .run = gen_images_run,
    .usage = "data gen images --out FOLDER [options]",
    .details =
        "Writes train.gen and test.gen to FOLDER. They are read like other data and take almost no space: "
        "images are generated when they are read. If --out is FILE.gen, one such file is written. With --to, "
        "or if the suffix of --out names a format (x.cache), the rows themselves are written.\n",
    .no_words = true,
    .groups = images_groups,
    .options_size = sizeof(images_options),
    .examples = "muster data gen images --classes 50 --rows 5000 --out fake\n",
};
