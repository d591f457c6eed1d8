/* `muster list`: the contents of the registries. */
#include <string.h>

#include "base/isa.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "cuda/cuda.h"
#include "dash/http.h"
#include "dash/routes.h"
#include "data/data_kind.h"
#include "data/write.h"
#include "model/executor.h"
#include "mpi/mpi.h"
#include "net/net.h"
#include "optim/optim.h"
#include "strategy/strategy.h"

typedef struct list_options {
    bool json;
} list_options;

typedef void list_fn(mst_table *table);

static void list_add(mst_table *table, const char *name, const char *help)
{
    mst_table_text(table, name);
    mst_table_text(table, help);
}

/* Defines list_ID: the rows of a registry. */
#define LIST_REGISTRY(id, registry)                                                                          \
    static void list_##id(mst_table *table)                                                                  \
    {                                                                                                        \
        for (size_t i = 0; registry[i] != NULL; i++)                                                         \
            list_add(table, registry[i]->name, registry[i]->help);                                           \
    }

LIST_REGISTRY(formats, mst_data_kinds)
LIST_REGISTRY(writers, mst_row_writers)
LIST_REGISTRY(models, mst_models)
LIST_REGISTRY(executors, mst_executors)
LIST_REGISTRY(optimizers, mst_optimizers)
LIST_REGISTRY(engines, mst_net_engines)

static void list_add_commands(mst_table *table, const char *path, const mst_command *const *commands)
{
    for (size_t i = 0; commands[i] != NULL; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s%s", path, commands[i]->name);
        if (commands[i]->run != NULL)
            list_add(table, name, commands[i]->summary);
        if (commands[i]->commands != NULL) {
            strncat(name, " ", sizeof name - strlen(name) - 1);
            list_add_commands(table, name, commands[i]->commands);
        }
    }
}

static void list_commands(mst_table *table)
{
    list_add_commands(table, "", mst_commands);
}

static void list_generators(mst_table *table)
{
    for (size_t i = 0; mst_cmd_data_gen.commands[i] != NULL; i++)
        list_add(table, mst_cmd_data_gen.commands[i]->name, mst_cmd_data_gen.commands[i]->summary);
}

static void list_layers(mst_table *table)
{
    for (size_t i = 0; mst_layers[i] != NULL; i++)
        list_add(table, mst_layers[i]->name, mst_layers[i]->help);
    list_add(table, mst_layer_mlp.name, mst_layer_mlp.help);
    for (size_t i = 0; mst_input_layers[i] != NULL; i++)
        list_add(table, mst_input_layers[i]->name, mst_input_layers[i]->help);
}

static void list_nets(mst_table *table)
{
    for (const mst_known_net *net = mst_known_nets; net->name != NULL; net++)
        list_add(table, net->name, net->help);
}

static void list_schedules(mst_table *table)
{
    for (const mst_schedule *schedule = mst_schedules; schedule->name != NULL; schedule++)
        list_add(table, schedule->name, schedule->help);
}

static void list_strategies(mst_table *table)
{
    for (const mst_strategy_choice *c = mst_strategy_choices; c->name != NULL; c++)
        list_add(table, c->name, c->help);
}

static void list_mpi(mst_table *table)
{
    mst_mpi_info plugins[8];
    uint32_t n = mst_mpi_plugins(plugins, sizeof plugins / sizeof *plugins);
    for (uint32_t i = 0; i < n; i++)
        list_add(table, plugins[i].name, plugins[i].library);
    if (n == 0)
        list_add(table, "none",
                 "MPI was not found when muster was built: install libopenmpi-dev or libmpich-dev, and "
                 "build again");
}

static void list_devices(mst_table *table)
{
    char text[512];
    const mst_cuda_ops *ops;
    mst_cuda_device device;
    uint32_t n = 0;
    list_add(table, "cpu", "the threads of this process");
    if (mst_cuda_load(&ops) == MST_OK && ops->devices(&n) == MST_OK) {
        for (uint32_t i = 0; i < n && ops->device(i, &device) == MST_OK; i++) {
            char name[32];
            snprintf(name, sizeof name, "cuda:%u", i);
            mst_cuda_device_text(&device, text, sizeof text);
            list_add(table, name, text);
        }
        return;
    }
    snprintf(text, sizeof text, "%s", mst_error_text());
    list_add(table, "no GPU", text);
}

static void list_page(mst_table *table)
{
    if (mst_http_library() != NULL)
        list_add(table, "libmicrohttpd", mst_http_library());
    else
        list_add(
            table, "none",
            "libmicrohttpd was not found when muster was built: install libmicrohttpd-dev, and build again");
    list_add(table, mst_assets_uplot ? "uPlot" : "no uPlot",
             mst_assets_uplot ? "draws the plots"
                              : "npm could not fetch it when muster was built: plots are plain lines");
}

static void list_isas(mst_table *table)
{
    for (int isa = 0; isa < MST_ISA_COUNT; isa++)
        list_add(table, mst_isa_name((mst_isa)isa),
                 !mst_isa_supported((mst_isa)isa) ? "not on this machine"
                 : (mst_isa)isa == mst_isa_best() ? "on this machine, used unless --isa selects another"
                                                  : "on this machine");
}

static const struct {
    const char *key, *title;
    list_fn *fill;
} sections[] = {
    {"commands", "Commands", list_commands},
    {"formats", "Formats read (--format)", list_formats},
    {"outputs", "Formats written (--to)", list_writers},
    {"generators", "Generators (data gen)", list_generators},
    {"models", "Models (--model)", list_models},
    {"nets", "Built-in nets (model show, --model)", list_nets},
    {"layers", "Layers of net files (--net)", list_layers},
    {"executors", "Implementations of nets (--executor)", list_executors},
    {"optimizers", "Optimizers (--optimizer)", list_optimizers},
    {"schedules", "Learning-rate schedules (--schedule)", list_schedules},
    {"strategies", "Strategies (--strategy)", list_strategies},
    {"engines", "Messages between processes and threads", list_engines},
    {"mpi", "MPI under mpirun, mpiexec and srun (--mpi-plugin)", list_mpi},
    {"devices", "Devices that train (--device)", list_devices},
    {"page", "Web page (muster dash)", list_page},
    {"instruction_sets", "Instruction sets (--isa)", list_isas},
};
#define N_SECTIONS (sizeof sections / sizeof *sections)

static const mst_column columns[] = {{.key = "name"}, {.key = "help"}};

/* Prints section s, or adds it to all when that is not NULL. */
static mst_status list_section(size_t s, json_t *all, bool first)
{
    mst_status st;
    mst_table *table = NULL;
    TRY_OUT(st, mst_table_new(columns, 2, &table));
    sections[s].fill(table);
    if (all == NULL) {
        if (!first)
            printf("\n");
        st = mst_table_print(table, sections[s].title, false);
    } else if (json_object_set_new(all, sections[s].key, mst_table_json(table)) != 0) {
        st = mst_fail_memory();
    }
out:
    mst_table_destroy(table);
    return st;
}

static mst_status list_check_names(const mst_text_list *names)
{
    const char *keys[N_SECTIONS];
    char suggestion[128];
    for (size_t s = 0; s < N_SECTIONS; s++)
        keys[s] = sections[s].key;
    for (size_t i = 0; i < names->n; i++) {
        size_t s = 0;
        while (s < N_SECTIONS && strcmp(names->items[i], keys[s]) != 0)
            s++;
        if (s == N_SECTIONS)
            return mst_fail(
                MST_EUSAGE, "list %s: nothing of that name is listed%s", names->items[i],
                mst_cli_suggest(names->items[i], keys, N_SECTIONS, suggestion, sizeof suggestion));
    }
    return MST_OK;
}

static bool list_wanted(const mst_text_list *names, const char *key)
{
    for (size_t i = 0; i < names->n; i++)
        if (strcmp(names->items[i], key) == 0)
            return true;
    return names->n == 0;
}

static mst_status list_run(mst_call *call)
{
    const list_options *options = call->options;
    json_t *all = NULL;
    bool first = true;
    mst_status st = MST_OK;
    TRY(list_check_names(&call->words));
    if (options->json && (all = json_object()) == NULL)
        return mst_fail_memory();
    for (size_t s = 0; s < N_SECTIONS; s++) {
        if (!list_wanted(&call->words, sections[s].key))
            continue;
        TRY_OUT(st, list_section(s, all, first));
        first = false;
    }
    if (all != NULL)
        return mst_cli_print_json(all);
out:
    json_decref(all);
    return st;
}

static const mst_command_group list_groups[] = {{"Options", mst_cli_json_table, 0}, {.table = NULL}};

const mst_command mst_cmd_list = {
    .name = "list",
    .summary = "list formats, generators, models, optimizers and other choices",
    .run = list_run,
    .usage = "list [NAME...] [--json]",
    .details =
        "NAME is one of commands, formats, outputs, generators, models, nets, layers, executors, "
        "optimizers, schedules, strategies, engines, mpi, devices, page, instruction_sets; without NAME, all "
        "of them are listed.\n",
    .groups = list_groups,
    .options_size = sizeof(list_options),
    .words =
        "commands|formats|outputs|generators|models|nets|layers|executors|optimizers|schedules|strategies|"
        "engines|mpi|devices|page|instruction_sets",
    .examples = "muster list optimizers\n",
};
