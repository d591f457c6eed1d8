/* `muster model show` and `muster model export`: what a checkpoint holds. */
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "train/assembly.h"

/* ---- show ---- */

static const mst_option *const show_tables[] = {mst_cli_json_table, NULL};

/* Loads the one checkpoint named on the command line. */
static mst_status load_one(const mst_text_list *words, const mst_command *command, mst_assembly *assembly,
                           mst_checkpoint_meta *meta)
{
    if (words->n != 1)
        return mst_fail(MST_EUSAGE, "give one checkpoint: muster %s", command->usage);
    return mst_assembly_from_checkpoint(assembly, words->items[0], mst_kernels_get(mst_isa_best()), NULL, 0,
                                        meta);
}

static uint64_t count_nonzero(const mst_params *params, const mst_view *view)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < view->size; i++)
        n += params->w[view->offset + i] != 0.0f;
    return n;
}

static mst_status views_table(const mst_params *params, mst_table **out)
{
    static const mst_column columns[] = {
        {"view", false}, {"shape", true}, {"parameters", true}, {"nonzero", true}};
    TRY(mst_table_new(columns, 4, out));
    for (uint32_t i = 0; i < params->n_views; i++) {
        const mst_view *view = &params->views[i];
        char shape[96] = "";
        for (uint32_t d = 0; d < view->n_dims; d++)
            snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%llu", d > 0 ? " x " : "",
                     (unsigned long long)view->dims[d]);
        mst_table_text(*out, view->name);
        mst_table_text(*out, shape);
        mst_table_count(*out, view->size);
        mst_table_count(*out, count_nonzero(params, view));
    }
    return MST_OK;
}

static mst_status show_run(int argc, char **argv)
{
    mst_cli_json json = {0};
    mst_option_group groups[] = {{.title = "output", .table = mst_cli_json_table, .base = &json}};
    mst_text_list words = {0};
    mst_assembly assembly = {0};
    mst_checkpoint_meta meta = {0};
    mst_table *table = NULL;
    bool helped;
    mst_status st;
    TRY_OUT(st, mst_cli_parse(&mst_cmd_model_show, groups, 1, argc, argv, &words, &helped));
    if (helped)
        goto out;
    TRY_OUT(st, load_one(&words, &mst_cmd_model_show, &assembly, &meta));
    TRY_OUT(st, views_table(&assembly.params, &table));
    if (json.json) {
        st = mst_cli_print_json(json_pack("{s:O, s:O, s:I, s:I, s:I, s:o}", "model", meta.model, "optimizer",
                                          meta.optimizer, "step", (json_int_t)meta.step, "rows",
                                          (json_int_t)meta.rows, "epoch", (json_int_t)meta.epoch, "views",
                                          mst_table_json(table)));
    } else {
        char step[32], rows[32];
        printf("%s, trained by %s for %s steps on %s rows (%llu epochs)\n", assembly.model->ops->name,
               json_string_value(json_object_get(meta.optimizer, "name")), mst_text_count(meta.step, step),
               mst_text_count(meta.rows, rows), (unsigned long long)meta.epoch);
        st = mst_table_print(table, NULL, true);
    }
out:
    mst_table_destroy(table);
    mst_checkpoint_meta_fini(&meta);
    mst_assembly_fini(&assembly);
    mst_text_list_fini(&words);
    mst_options_fini(groups, 1);
    return st;
}

const mst_command mst_cmd_model_show = {
    .name = "show",
    .summary = "describe a checkpoint",
    .run = show_run,
    .usage = "model show CHECKPOINT [options]",
    .tables = show_tables,
};

/* ---- export ---- */

typedef struct export_options {
    char *out;
    bool text;
} export_options;

static const mst_option export_table[] = {
    {"out", MST_OPTION_TEXT, offsetof(export_options, out), "-", 0, 0, NULL, "FILE",
     "Where the weights go; \"-\" is standard output. Names ending in .gz or .zst are compressed."},
    {"text", MST_OPTION_FLAG, offsetof(export_options, text), "true", 0, 0, NULL, NULL,
     "One line per non-zero weight: view, its indices, value."},
    {0},
};
static const mst_option *const export_tables[] = {export_table, NULL};

/* "weight 12 0.25", or "weight 3 12 0.25" in two dimensions; indices count from 0. */
static mst_status export_view(const mst_params *params, const mst_view *view, mst_out *out)
{
    const float *w = params->w + view->offset;
    uint64_t columns = view->n_dims == 2 ? view->dims[1] : 1;
    for (uint64_t i = 0; i < view->size; i++) {
        if (w[i] == 0.0f)
            continue;
        if (view->n_dims == 2)
            TRY(mst_out_printf(out, "%s %llu %llu %.9g\n", view->name, (unsigned long long)(i / columns),
                               (unsigned long long)(i % columns), (double)w[i]));
        else
            TRY(mst_out_printf(out, "%s %llu %.9g\n", view->name, (unsigned long long)i, (double)w[i]));
    }
    return MST_OK;
}

static mst_status export_run(int argc, char **argv)
{
    export_options options = {0};
    mst_option_group groups[] = {{.title = "export", .table = export_table, .base = &options}};
    mst_text_list words = {0};
    mst_assembly assembly = {0};
    mst_checkpoint_meta meta = {0};
    mst_out *out = NULL;
    bool helped;
    mst_status st;
    TRY_OUT(st, mst_cli_parse(&mst_cmd_model_export, groups, 1, argc, argv, &words, &helped));
    if (helped)
        goto out;
    if (!options.text) {
        st = mst_fail(MST_EUSAGE,
                      "--no-text: text is the only form of export; a checkpoint itself is safetensors");
        goto out;
    }
    TRY_OUT(st, load_one(&words, &mst_cmd_model_export, &assembly, &meta));
    TRY_OUT(st, mst_out_open(options.out, &out));
    for (uint32_t i = 0; i < assembly.params.n_views; i++)
        TRY_OUT(st, export_view(&assembly.params, &assembly.params.views[i], out));
    st = mst_out_commit(out);
out:
    mst_out_close(out);
    mst_checkpoint_meta_fini(&meta);
    mst_assembly_fini(&assembly);
    mst_text_list_fini(&words);
    mst_options_fini(groups, 1);
    return st;
}

const mst_command mst_cmd_model_export = {
    .name = "export",
    .summary = "write the non-zero weights of a checkpoint as text",
    .run = export_run,
    .usage = "model export CHECKPOINT [options]",
    .details = "One line per non-zero weight, e.g. \"weight 12 0.25\", indices from 0.\n",
    .tables = export_tables,
};

static const mst_command *const commands[] = {&mst_cmd_model_show, &mst_cmd_model_export, NULL};

const mst_command mst_cmd_model = {
    .name = "model",
    .summary = "look into trained models",
    .usage = "model COMMAND ...",
    .commands = commands,
};
