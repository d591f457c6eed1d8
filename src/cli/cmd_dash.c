/* `muster dash`: a live page of runs. */
#include <stdio.h>

#include "base/alloc.h"
#include "base/signals.h"
#include "cli/cli.h"
#include "dash/http.h"
#include "dash/routes.h"

typedef struct dash_options {
    char *listen, *token_file;
    mst_text_list hosts;
} dash_options;

#define DEFAULT_LISTEN "127.0.0.1:8450"

static const mst_option dash_table[] = {
    {.name = "listen",
     .type = MST_OPTION_TEXT,
     .offset = offsetof(dash_options, listen),
     .metavar = "HOST:PORT",
     .help = "Address of the page; port 0: any free port. Viewers from other hosts need the token in the "
             "printed address. Default: " DEFAULT_LISTEN ", or another port if that one is in use."},
    {.name = "token-file",
     .type = MST_OPTION_TEXT,
     .offset = offsetof(dash_options, token_file),
     .metavar = "FILE",
     .help = "Read the token from the first line of this file, and require it on loopback, too."},
    {.name = "allow-host",
     .type = MST_OPTION_LIST,
     .offset = offsetof(dash_options, hosts),
     .metavar = "NAMES",
     .help = "Further host names that browsers may use for the page, for example that of a proxy. Numeric "
             "addresses, localhost and the name of this host are always allowed."},
    {.name = NULL},
};

static mst_status dash_serve(mst_call *call)
{
    const dash_options *options = call->options;
    mst_status st;
    mst_board *board = NULL;
    mst_http *http = NULL;
    char *token = NULL;
    mst_http_options how = {.names = &options->hosts, .other_port = options->listen == NULL};
    if (call->words.n == 0)
        return mst_fail(MST_EUSAGE, "give the folder of a run, or a folder of runs: muster %s",
                        mst_cmd_dash.usage);
    TRY_OUT(st, mst_address_parse(options->listen != NULL ? options->listen : DEFAULT_LISTEN, &how.listen));
    if (options->token_file != NULL)
        TRY_OUT(st, mst_token_read(options->token_file, &token));
    how.token = token;
    TRY_OUT(st, mst_board_new(&call->words, true, &board));
    TRY_OUT(st, mst_http_new(board, &how, &http));
    mst_signals_install();
    printf("%s\n", mst_http_url(http));
    fflush(stdout);
    mst_cli_note("the page shows %zu run%s; Ctrl-C ends it and does not affect training", board->n,
                 board->n == 1 ? "" : "s");
    if (!mst_assets_uplot)
        mst_cli_note("this muster was built without uPlot: the page draws simple plots");
    st = mst_http_run(http, mst_signals_stop());
out:
    mst_http_destroy(http);
    mst_board_destroy(board);
    mst_free(token);
    return st;
}

static const mst_command_group dash_groups[] = {{"dash", dash_table, 0}, {.table = NULL}};

const mst_command mst_cmd_dash = {
    .name = "dash",
    .summary = "show runs live on a web page, and export metrics to Prometheus",
    .run = dash_serve,
    .usage = "dash RUN... [options]",
    .details = "Serves a page that shows runs, live or finished, one or several side by side, and prints its "
               "address. For a folder of runs, new runs appear. /metrics is for Prometheus. Only reads "
               "files, so it can be ended at any time.\n",
    .groups = dash_groups,
    .options_size = sizeof(dash_options),
    .examples = "muster dash runs\n",
};
