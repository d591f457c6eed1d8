/* `muster serve`: predictions over HTTP. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/float_mode.h"
#include "base/signals.h"
#include "cli/cmd_apply.h"
#include "serve/serve_http.h"

typedef struct serve_command_options {
    int64_t port, connections, max_body, max_rows;
    char *host, *name, *token_file;
    mst_text_list hosts;
    double deadline, idle_timeout, drain, reload_every;
    int batching;
    mst_use_options use;
    mst_data_options data;
} serve_command_options;

#define FIELD(name) offsetof(serve_command_options, name)
static const mst_option serve_table[] = {
    {.name = "port",
     .type = MST_OPTION_INT,
     .offset = FIELD(port),
     .fallback = "8501",
     .min = 0,
     .max = 65535,
     .help = "Port to listen at; 0: any free port. The address is printed."},
    {.name = "host",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(host),
     .fallback = "127.0.0.1",
     .metavar = "ADDRESS",
     .help = "Address to listen at; \"*\": every interface. Clients on other hosts need the printed token."},
    {.name = "name",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(name),
     .metavar = "NAME",
     .help = "Name of the model in /v1/models/NAME: letters, digits, '_', '-' and '.'. Default: that of the "
             "run."},
    {.name = "token-file",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(token_file),
     .metavar = "FILE",
     .help = "Read the token from the first line of this file, and require it on loopback, too."},
    {.name = "allow-host",
     .type = MST_OPTION_LIST,
     .offset = FIELD(hosts),
     .metavar = "NAMES",
     .help = "Further host names that requests without a token may use. Numeric addresses, localhost and the "
             "name of this host are always allowed."},
    {.name = "reload-every",
     .type = MST_OPTION_REAL,
     .offset = FIELD(reload_every),
     .fallback = "1",
     .min = 0,
     .max = 86400,
     .metavar = "SECONDS",
     .help = "Interval between looks for a newer checkpoint of the run; 0: the model stays."},
    {.name = "batching",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(batching),
     .fallback = "auto",
     .choices = "auto|on|off",
     .help = "Compute requests that arrive together as one batch. auto: for nets, which gain from it."},
    {.name = "max-body",
     .type = MST_OPTION_INT,
     .offset = FIELD(max_body),
     .fallback = "16Mi",
     .min = 1024,
     .max = 2147483648.0,
     .metavar = "BYTES",
     .help = "Size of a request's body."},
    {.name = "max-rows",
     .type = MST_OPTION_INT,
     .offset = FIELD(max_rows),
     .fallback = "10000",
     .min = 1,
     .max = 1e8,
     .metavar = "N",
     .help = "Rows of a request."},
    {.name = "connections",
     .type = MST_OPTION_INT,
     .offset = FIELD(connections),
     .fallback = "1024",
     .min = 1,
     .max = 100000,
     .metavar = "N",
     .help = "Open connections. Beyond it, the one that has waited longest for a request is closed."},
    {.name = "deadline",
     .type = MST_OPTION_REAL,
     .offset = FIELD(deadline),
     .fallback = "10",
     .min = 0.001,
     .max = 86400,
     .metavar = "SECONDS",
     .help = "A request that is not computed within this time is answered with HTTP 504."},
    {.name = "idle-timeout",
     .type = MST_OPTION_REAL,
     .offset = FIELD(idle_timeout),
     .fallback = "60",
     .min = 0.1,
     .max = 86400,
     .metavar = "SECONDS",
     .help = "A connection without a complete request for this time is closed."},
    {.name = "drain",
     .type = MST_OPTION_REAL,
     .offset = FIELD(drain),
     .fallback = "10",
     .min = 0,
     .max = 86400,
     .metavar = "SECONDS",
     .help = "Time after SIGTERM or SIGINT to answer the requests that have arrived."},
    {.name = NULL},
};

static const mst_command_group serve_groups[] = {{"serve", serve_table, 0},
                                                 {"model", mst_use_table, FIELD(use)},
                                                 {"data", mst_data_option_table, FIELD(data)},
                                                 {.table = NULL}};

static bool serve_is_name(const char *text)
{
    for (const char *p = text; *p != '\0'; p++)
        if (!isalnum((unsigned char)*p) && strchr("_-.", *p) == NULL)
            return false;
    return *text != '\0' && strlen(text) <= 128;
}

/* The name of a run or of the run that holds a checkpoint; "model" if it cannot be part of a path. The caller
 * frees. */
static char *serve_default_name(const char *path)
{
    char *copy = mst_strdup(path), *name = NULL, *base = copy;
    for (int parts = 0; copy != NULL && parts < 3; parts++) {
        size_t n = strlen(copy);
        while (n > 1 && copy[n - 1] == '/')
            copy[--n] = '\0';
        char *slash = strrchr(copy, '/');
        base = slash != NULL ? slash + 1 : copy;
        bool inside = strncmp(base, "step-", 5) == 0 || strcmp(base, "checkpoints") == 0;
        if (!inside || slash == NULL)
            break;
        *slash = '\0';
    }
    if (copy != NULL)
        name = mst_strdup(serve_is_name(base) && *base != '.' ? base : "model");
    mst_free(copy);
    return name;
}

/* {"option": value} of the data options that the user has set; NULL: no memory. */
static json_t *serve_given(const mst_call *call)
{
    json_t *all = mst_options_json(call->groups, call->n_groups), *given = json_object();
    for (const mst_option *row = mst_data_option_table; all != NULL && given != NULL && row->name != NULL;
         row++)
        if (mst_options_is_set(call->groups, call->n_groups, row->name))
            json_object_set(given, row->name, json_object_get(json_object_get(all, "data"), row->name));
    json_decref(all);
    return given;
}

static mst_status serve_run(mst_call *call)
{
    const serve_command_options *o = call->options;
    mst_status st;
    mst_model_slot slot = {0};
    mst_serve_http *http = NULL;
    char *token = NULL, *name = NULL;
    json_t *given = NULL;
    bool opened = false;
    mst_isa isa;
    if (o->data.skip_bad_rows)
        return mst_fail(MST_EUSAGE, "--skip-bad-rows: serve answers every row");
    if (call->words.n != 1)
        return mst_fail(MST_EUSAGE, "give one run or checkpoint: muster %s", call->command->usage);
    mst_serve_options how = {.names = &o->hosts,
                             .n_threads = mst_cli_threads(o->use.threads),
                             .connections = (unsigned)o->connections,
                             .max_body = (uint64_t)o->max_body,
                             .max_rows = (uint64_t)o->max_rows,
                             .deadline_s = o->deadline,
                             .idle_s = o->idle_timeout,
                             .drain_s = o->drain,
                             .reload_s = o->reload_every,
                             .batching = (mst_batching)o->batching,
                             .strict = o->use.strict_features};
    how.listen.port = (uint16_t)o->port;
    if (strlen(o->host) >= sizeof how.listen.host)
        return mst_fail(MST_EUSAGE, "--host: the address is too long");
    snprintf(how.listen.host, sizeof how.listen.host, "%s", strcmp(o->host, "*") == 0 ? "" : o->host);
    if (o->name != NULL && !serve_is_name(o->name))
        return mst_fail(MST_EUSAGE, "--name %s: a name has letters, digits, '_', '-' and '.'", o->name);
    TRY(mst_isa_parse(o->use.isa, &isa));
    mst_float_flush(); /* for the threads made here */
    name = o->name != NULL ? mst_strdup(o->name) : serve_default_name(call->words.items[0]);
    given = serve_given(call);
    if (name == NULL || given == NULL)
        TRY_OUT(st, mst_fail_memory());
    how.name = name;
    if (o->token_file != NULL)
        TRY_OUT(st, mst_token_read(o->token_file, &token));
    how.token = token;
    opened = true;
    TRY_OUT(st, mst_model_slot_init(&slot, call->words.items[0], o->use.last, isa, given));
    mst_signals_install();
    TRY_OUT(st, mst_serve_http_new(&slot, &how, &http));
    printf("%s\n", mst_serve_http_url(http));
    fflush(stdout);
    mst_cli_note("answers requests with step %llu of %s; Ctrl-C ends it",
                 (unsigned long long)slot.model->step, call->words.items[0]);
    st = mst_serve_http_run(http, mst_signals_stop());
out:
    mst_serve_http_destroy(http);
    if (opened)
        mst_model_slot_fini(&slot);
    json_decref(given);
    mst_free(token);
    mst_free(name);
    return st;
}

const mst_command mst_cmd_serve = {
    .name = "serve",
    .summary = "answer requests for predictions over HTTP",
    .run = serve_run,
    .usage = "serve RUN|CHECKPOINT [options]",
    .details = "Loads the model that predict would use and answers POST /v1/models/NAME:predict, as "
               "TensorFlow Serving "
               "does: {\"instances\": [...]} gives {\"predictions\": [...]}. An instance is an object of "
               "named values, an "
               "array of numbers, {\"indices\": [...], \"values\": [...]}, or a line of the format that the "
               "model was "
               "trained on. The address is printed on standard output.\n"
               "A newer checkpoint of the run replaces the model; no request is lost. GET /v1/models/NAME "
               "has the status, "
               "GET /metrics is for Prometheus. SIGTERM answers the requests that have arrived and ends the "
               "server.\n",
    .groups = serve_groups,
    .options_size = sizeof(serve_command_options),
    .hidden = MST_DATA_OPTION_SKIPS,
    .examples = "muster serve runs/clicks --port 8501\n",
};
