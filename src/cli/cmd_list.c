/* `muster list`: what this binary knows, straight from the registries. */
#include <string.h>

#include "base/isa.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "dash/http.h"
#include "dash/routes.h"
#include "data/data_kind.h"
#include "data/write.h"
#include "model/executor.h"
#include "mpi/mpi.h"
#include "net/net.h"
#include "optim/optim.h"
#include "strategy/strategy.h"

typedef void fill_fn(mst_table *table);

static void add(mst_table *table, const char *name, const char *help)
{
    mst_table_text(table, name);
    mst_table_text(table, help);
}

static void fill_formats(mst_table *table)
{
    for (size_t i = 0; mst_data_kinds[i] != NULL; i++)
        add(table, mst_data_kinds[i]->name, mst_data_kinds[i]->help);
}

static void fill_writers(mst_table *table)
{
    for (size_t i = 0; mst_row_writers[i] != NULL; i++)
        add(table, mst_row_writers[i]->name, mst_row_writers[i]->help);
}

static void add_commands(mst_table *table, const char *path, const mst_command *const *commands)
{
    for (size_t i = 0; commands[i] != NULL; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s%s", path, commands[i]->name);
        if (commands[i]->run != NULL)
            add(table, name, commands[i]->summary);
        if (commands[i]->commands != NULL) {
            strncat(name, " ", sizeof name - strlen(name) - 1);
            add_commands(table, name, commands[i]->commands);
        }
    }
}

static void fill_commands(mst_table *table)
{
    add_commands(table, "", mst_commands);
}

static void fill_generators(mst_table *table)
{
    for (size_t i = 0; mst_cmd_data_gen.commands[i] != NULL; i++)
        add(table, mst_cmd_data_gen.commands[i]->name, mst_cmd_data_gen.commands[i]->summary);
}

static void fill_models(mst_table *table)
{
    for (size_t i = 0; mst_models[i] != NULL; i++)
        add(table, mst_models[i]->name, mst_models[i]->help);
}

static void fill_nets(mst_table *table)
{
    for (const mst_known_net *net = mst_known_nets; net->name != NULL; net++)
        add(table, net->name, net->help);
}

static void fill_layers(mst_table *table)
{
    for (size_t i = 0; mst_layers[i] != NULL; i++)
        add(table, mst_layers[i]->name, mst_layers[i]->help);
}

static void fill_executors(mst_table *table)
{
    for (size_t i = 0; mst_executors[i] != NULL; i++)
        add(table, mst_executors[i]->name, mst_executors[i]->help);
}

static void fill_optimizers(mst_table *table)
{
    for (size_t i = 0; mst_optimizers[i] != NULL; i++)
        add(table, mst_optimizers[i]->name, mst_optimizers[i]->help);
}

/* Schedules are the choices of --schedule; what each does is in that option's help. */
static void fill_schedules(mst_table *table)
{
    const mst_option *row = mst_optim_option_table;
    while (row->name != NULL && strcmp(row->name, "schedule") != 0)
        row++;
    for (const char *at = row->name != NULL ? row->choices : ""; *at != '\0';) {
        size_t length = strcspn(at, "|");
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        add(table, name,
            strcmp(name, "constant") == 0  ? "--lr at every step"
            : strcmp(name, "step") == 0    ? "times --decay every --decay-steps steps"
            : strcmp(name, "inverse") == 0 ? "lr/(1 + t/--decay-steps)"
            : strcmp(name, "cosine") == 0  ? "half a cosine down to 0 at --decay-steps"
                                           : "");
        at += length + (at[length] == '|');
    }
}

static void fill_strategies(mst_table *table)
{
    for (const mst_strategy_choice *c = mst_strategy_choices; c->name != NULL; c++)
        add(table, c->name, c->help);
}

static void fill_engines(mst_table *table)
{
    for (size_t i = 0; mst_net_engines[i] != NULL; i++)
        add(table, mst_net_engines[i]->name, mst_net_engines[i]->help);
}

static void fill_mpi(mst_table *table)
{
    mst_mpi_info plugins[8];
    uint32_t n = mst_mpi_plugins(plugins, sizeof plugins / sizeof *plugins);
    for (uint32_t i = 0; i < n; i++)
        add(table, plugins[i].name, plugins[i].library);
    if (n == 0)
        add(table, "none",
            "MPI was not found when muster was built: install libopenmpi-dev or libmpich-dev, and "
            "build again");
}

static void fill_page(mst_table *table)
{
    if (mst_http_library() != NULL)
        add(table, "libmicrohttpd", mst_http_library());
    else
        add(table, "none",
            "libmicrohttpd was not found when muster was built: install libmicrohttpd-dev, and build again");
    add(table, mst_assets_uplot ? "uPlot" : "no uPlot",
        mst_assets_uplot ? "draws the plots"
                         : "npm could not fetch it when muster was built: plots are plain lines");
}

static void fill_isas(mst_table *table)
{
    for (int isa = 0; isa < MST_ISA_COUNT; isa++)
        add(table, mst_isa_name((mst_isa)isa),
            !mst_isa_supported((mst_isa)isa) ? "not on this machine"
            : (mst_isa)isa == mst_isa_best() ? "on this machine, used unless --isa says otherwise"
                                             : "on this machine");
}

static const struct {
    const char *key, *title;
    fill_fn *fill;
} sections[] = {
    {"commands", "Commands", fill_commands},
    {"formats", "Formats read (--format)", fill_formats},
    {"outputs", "Formats written (--to)", fill_writers},
    {"generators", "Generators (data gen)", fill_generators},
    {"models", "Models (--model)", fill_models},
    {"nets", "Nets that come with muster (model show, --model)", fill_nets},
    {"layers", "Layers of net files (--net)", fill_layers},
    {"executors", "How nets are computed (--executor)", fill_executors},
    {"optimizers", "Optimizers (--optimizer)", fill_optimizers},
    {"schedules", "Learning-rate schedules (--schedule)", fill_schedules},
    {"strategies", "Strategies (--strategy)", fill_strategies},
    {"engines", "Messages between processes and threads", fill_engines},
    {"mpi", "MPI under mpirun, mpiexec and srun (--mpi-plugin)", fill_mpi},
    {"page", "What serves and draws the page of muster dash", fill_page},
    {"instruction_sets", "Instruction sets (--isa)", fill_isas},
};
#define N_SECTIONS (sizeof sections / sizeof *sections)

static const mst_column columns[] = {{.key = "name"}, {.key = "help"}};
static const mst_option *const tables[] = {mst_cli_json_table, NULL};

/* Prints section s, or adds it to all when that is not NULL. */
static mst_status show_section(size_t s, json_t *all, bool first)
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

static mst_status check_names(const mst_text_list *names)
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

static bool wanted(const mst_text_list *names, const char *key)
{
    for (size_t i = 0; i < names->n; i++)
        if (strcmp(names->items[i], key) == 0)
            return true;
    return names->n == 0;
}

static mst_status run(int argc, char **argv)
{
    mst_cli_json json = {0};
    mst_option_group groups[] = {{.title = "Options", .table = mst_cli_json_table, .base = &json}};
    mst_text_list names = {0};
    json_t *all = NULL;
    bool helped, first = true;
    mst_status st;
    TRY_OUT(st, mst_cli_parse(&mst_cmd_list, groups, 1, argc, argv, &names, &helped));
    if (helped)
        goto out;
    TRY_OUT(st, check_names(&names));
    if (json.json && (all = json_object()) == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    for (size_t s = 0; s < N_SECTIONS; s++) {
        if (!wanted(&names, sections[s].key))
            continue;
        TRY_OUT(st, show_section(s, all, first));
        first = false;
    }
    if (all != NULL) {
        st = mst_cli_print_json(all);
        all = NULL;
    }
out:
    json_decref(all);
    mst_text_list_fini(&names);
    mst_options_fini(groups, 1);
    return st;
}

const mst_command mst_cmd_list = {
    .name = "list",
    .summary = "list formats, generators, models, optimizers and other choices",
    .run = run,
    .usage = "list [NAME...] [--json]",
    .details = "NAME is one of commands, formats, outputs, generators, models, nets, layers, executors, "
               "optimizers, schedules, strategies, engines, mpi, page, instruction_sets; without NAME, all "
               "of them are listed.\n",
    .tables = tables,
    .words =
        "commands|formats|outputs|generators|models|nets|layers|executors|optimizers|schedules|strategies|"
        "engines|mpi|page|instruction_sets",
    .examples = "muster list optimizers\n",
};
