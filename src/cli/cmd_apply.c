/* The model of a checkpoint and the data to apply it to; contract in cmd_apply.h. */
#include "cli/cmd_apply.h"

#include "base/alloc.h"
#include "base/float_mode.h"
#include "base/log.h"
#include "base/signals.h"
#include "data/origin.h"

#define FIELD(name) offsetof(mst_use_options, name)
const mst_option mst_use_table[] = {
    {.name = "threads",
     .type = MST_OPTION_INT,
     .offset = FIELD(threads),
     .fallback = "0",
     .min = 0,
     .max = 1024,
     .metavar = "N",
     .help = "Number of threads; 0: one per core."},
    {.name = "isa",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(isa),
     .fallback = "auto",
     .metavar = "NAME",
     .help = "Instruction set of the kernels: auto, portable, avx2 or avx512."},
    {.name = "last",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(last),
     .help = "Use the newest checkpoint of a run, even if the run has a best one."},
    {.name = "strict-features",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(strict_features),
     .help = "Refuse rows with features unknown to the model. Without it, such features are ignored."},
    {.name = NULL},
};
#undef FIELD

#define FIELD(name) offsetof(mst_apply_options, name)
const mst_option mst_apply_table[] = {
    {.name = "batch",
     .type = MST_OPTION_INT,
     .offset = FIELD(batch),
     .fallback = "1024",
     .min = 1,
     .max = 1e7,
     .metavar = "N",
     .help = "Rows per batch."},
    {.name = "rows",
     .type = MST_OPTION_INT,
     .offset = FIELD(rows),
     .fallback = "0",
     .min = 0,
     .max = 1e15,
     .metavar = "N",
     .help = "Stop after N rows; 0: use all rows."},
    {.name = "device",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(device.device),
     .fallback = "cpu",
     .metavar = "NAME",
     .help = "Device that computes: cpu, cuda (the first GPU), cuda:N, or auto: a GPU if there are one, its "
             "plug-in (`make cuda`) and support for the model, else the CPU."},
    {.name = "precision",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(device.precision),
     .fallback = "fp32",
     .choices = "fp32|tf32|bf16",
     .help = "Precision of products on a GPU."},
    {.name = "force",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(force),
     .help = "Accept rows whose format or hash differs from that of the training data."},
    {.name = NULL},
};

/* Fails if images do not have the channels that were normalised in training; crops may adjust the sides. */
static mst_status apply_check_channels(const mst_apply *self, const mst_checkpoint_meta *meta)
{
    const json_t *sides = json_object_get(json_object_get(meta->extra, "data"), MST_AUGMENTED_IMAGE);
    const mst_data_info *i = &self->dataset->info;
    json_int_t c = json_integer_value(json_array_get(sides, 0));
    if (c == 0 || i->channels == 0 || i->channels == c)
        return MST_OK;
    return mst_fail(MST_EINPUT, "%s: images are %ux%ux%u, but the model needs images of %lldx%lldx%lld",
                    self->dataset->name, i->channels, i->height, i->width, (long long)c,
                    (long long)json_integer_value(json_array_get(sides, 1)),
                    (long long)json_integer_value(json_array_get(sides, 2)));
}

/* Opens the files and prepares the augmentation of their images. */
static mst_status apply_open_rows(mst_apply *self, const mst_checkpoint_meta *meta)
{
    mst_text_list files = {.items = self->words->items + 1, .n = self->words->n - 1};
    if (self->augment_options.crop != NULL)
        self->data.features = 0; /* images are larger than the crops that the model takes */
    self->data.set = MST_SET_TEST;
    self->data.any_key = true; /* the feed checks the bounds */
    self->data.live = true;
    TRY(mst_dataset_open(&files, &self->data, &self->dataset));
    if (!self->options.force)
        TRY(mst_origin_check(mst_origin_in(json_object_get(meta->extra, "data")), self->words->items[0],
                             self->dataset->origin, self->dataset->name));
    TRY(mst_dataset_check_given(&self->data, (const mst_dataset *const *)&self->dataset, 1));
    TRY(apply_check_channels(self, meta));
    TRY(mst_augment_init(&self->augment, &self->augment_options, self->dataset, 0));
    return mst_assembly_check_rows(&self->assembly, &self->augment, self->dataset);
}

mst_status mst_apply_open(mst_apply *self, mst_call *call)
{
    mst_option_group *groups = call->groups;
    size_t n = call->n_groups;
    mst_isa isa;
    mst_checkpoint_meta meta = {0};
    bool reading_given;
    mst_float_flush();
    self->words = &call->words;
    if (self->words->n < 2)
        return mst_fail(MST_EUSAGE, "%s needs a checkpoint and at least one file: muster %s",
                        call->command->name, call->command->usage);
    TRY(mst_isa_parse(self->use.isa, &isa));
    self->n_threads = mst_cli_threads(self->use.threads);
    reading_given = mst_options_is_set(groups, n, "hash-seed") ||
                    mst_options_is_set(groups, n, "criteo-numeric") ||
                    mst_options_is_set(groups, n, "tf-keys");
    mst_data_options_note(&self->data, groups, n);
    int64_t features = self->data.features;
    bool best;
    TRY(mst_checkpoint_find_model(self->words->items[0], self->use.last, &self->checkpoint, &best));
    if (best)
        mst_info("using %s, which has the best valid loss (--last: the newest)", self->checkpoint);
    mst_status st = mst_assembly_from_checkpoint(&self->assembly, self->checkpoint, mst_kernels_get(isa),
                                                 &self->options.device, groups, n, &meta);
    bool reading_unknown = json_is_true(json_object_get(meta.extra, "reading_unknown"));
    uint64_t has = st == MST_OK ? self->assembly.model->shape.n_features : 0;
    if (st == MST_OK && features != 0 && (uint64_t)features != has)
        st = mst_fail(MST_EUSAGE, "--features %lld: the model has %llu features", (long long)features,
                      (unsigned long long)has);
    if (st == MST_OK) {
        mst_signals_install();
        st = apply_open_rows(self, &meta);
    }
    mst_checkpoint_meta_fini(&meta);
    TRY(st);
    if (reading_unknown && !reading_given && self->dataset->format != NULL && self->dataset->format->hashes)
        mst_warn(
            "%s was trained on a cache that does not record how its rows were read: unless that was with "
            "default options, give --hash-seed, --criteo-numeric and --tf-keys as they were then",
            self->words->items[0]);
    return MST_OK;
}

void mst_apply_close(mst_apply *self)
{
    mst_dataset_destroy(self->dataset);
    mst_assembly_fini(&self->assembly);
    mst_free(self->checkpoint);
}
