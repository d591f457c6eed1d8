/* `muster plan`: the speed, traffic and memory of a job on hosts that are not there yet (docs/PLAN.md). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "launch/trial_job.h"
#include "report/job_plan.h"
#include "train/settings.h"

#define ASSUMED_MAX   8
#define DEFAULT_LINK  1.25e9 /* bytes/s: 10gbit */
#define DEFAULT_RTT_S 1e-4

typedef struct plan_options {
    int64_t servers, workers, hosts, batch, pipeline, cores, shared_cores, max_workers;
    int mode;
    char *link, *rtt;
    double calibrate;
    bool json;
} plan_options;

#define ONLY_PS "only jobs of servers and workers are planned, and only without --quorum"

enum { MODE_SAME, MODE_SYNC, MODE_SSP, MODE_ASYNC };

#define FIELD(name) offsetof(plan_options, name)
static const mst_option plan_table[] = {
    {.name = "servers",
     .type = MST_OPTION_INT,
     .offset = FIELD(servers),
     .min = 1,
     .max = 10000,
     .help = "Servers of the job. Default: as in the run, or 1."},
    {.name = "workers",
     .type = MST_OPTION_INT,
     .offset = FIELD(workers),
     .min = 1,
     .max = 10000,
     .help = "Workers of the job. Default: as in the run, or 1."},
    {.name = "hosts",
     .type = MST_OPTION_INT,
     .offset = FIELD(hosts),
     .min = 1,
     .max = 10000,
     .help = "Hosts. Servers, then workers, are placed on them in turn, as launch does. Default: a host for "
             "each worker, with the servers on the first ones; more are not used."},
    {.name = "link",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(link),
     .metavar = "RATE",
     .help = "Speed of each host's link and direction: 100mbit, 1.8gbit. Default: the fastest path between "
             "hosts that the run has measured, or 10gbit."},
    {.name = "rtt",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(rtt),
     .metavar = "TIME",
     .help = "Round trip between two hosts: 50us, 1ms. Default: the mean of the paths of the run, or 100us. "
             "muster doctor --cluster measures both."},
    {.name = "batch",
     .type = MST_OPTION_INT,
     .offset = FIELD(batch),
     .min = 1,
     .max = MST_BATCH_MAX,
     .help = "Rows of a worker's step. Default: as in the run or in the options of train."},
    {.name = "mode",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(mode),
     .fallback = "same",
     .choices = "same|sync|ssp|async",
     .help = "Mode of the job; same: as in the run or in the options of train."},
    {.name = "pipeline",
     .type = MST_OPTION_INT,
     .offset = FIELD(pipeline),
     .fallback = "-1",
     .min = -1,
     .max = MST_PIPELINE_MAX,
     .help = "Requests in flight besides the one of a step, in async and ssp; -1: as in the run or in the "
             "options of train, 0 in sync."},
    {.name = "cores",
     .type = MST_OPTION_INT,
     .offset = FIELD(cores),
     .min = 1,
     .max = 4096,
     .help = "Cores of each host. Default: those of the measured host."},
    {.name = "shared-cores",
     .type = MST_OPTION_INT,
     .offset = FIELD(shared_cores),
     .min = 1,
     .max = 1e6,
     .help = "Cores that all hosts share, if they are virtual machines or network namespaces of one host. "
             "Default: each host has its own."},
    {.name = "max-workers",
     .type = MST_OPTION_INT,
     .offset = FIELD(max_workers),
     .fallback = "10000",
     .min = 1,
     .max = 10000,
     .help = "The search for the best numbers of servers and workers ends here."},
    {.name = "calibrate",
     .type = MST_OPTION_REAL,
     .offset = FIELD(calibrate),
     .fallback = "1",
     .min = 0.5,
     .max = 60,
     .metavar = "SECONDS",
     .help = "Length of each of the two trials that measure the costs of a step, if no run is given."},
    {.name = "json", .type = MST_OPTION_FLAG, .offset = FIELD(json), .help = "Print the plan as JSON."},
    {.name = NULL},
};

typedef struct plan {
    const plan_options *options;
    mst_job_costs costs;
    mst_job_shape shape;
    mst_job_forecast forecast;
    char *assumed[ASSUMED_MAX];
    size_t n_assumed;
} plan;

/* ---- units ---- */

/* A number and one of the units, whatever their case. False: it is none, or not above 0. */
static bool plan_parse_unit(const char *text, const char *const *units, const double *factors, double *out)
{
    char *end;
    double value = strtod(text, &end);
    for (size_t i = 0; units[i] != NULL; i++)
        if (end != text && strcasecmp(end, units[i]) == 0) {
            *out = value * factors[i];
            return isfinite(*out) && *out > 0;
        }
    return false;
}

/* s: has the link and the round trip of the run, or zeros. */
static mst_status plan_parse_network(const plan_options *o, mst_job_shape *s)
{
    static const char *const rates[] = {"bit",    "kbit",   "mbit",   "gbit", "bit/s",
                                        "kbit/s", "mbit/s", "gbit/s", NULL};
    static const char *const times[] = {"s", "ms", "us", NULL};
    static const double bits[] = {1, 1e3, 1e6, 1e9, 1, 1e3, 1e6, 1e9}, seconds[] = {1, 1e-3, 1e-6};
    double value = 0;
    if (o->link != NULL && !plan_parse_unit(o->link, rates, bits, &value))
        return mst_fail(MST_EUSAGE, "--link %.64s: give a speed such as 100mbit or 1.8gbit", o->link);
    s->link = o->link != NULL ? value / 8 : s->link > 0 ? s->link : DEFAULT_LINK;
    value = 0;
    if (o->rtt != NULL && strcmp(o->rtt, "0") != 0 && !plan_parse_unit(o->rtt, times, seconds, &value))
        return mst_fail(MST_EUSAGE, "--rtt %.64s: give a time such as 50us or 1ms", o->rtt);
    s->rtt_s = o->rtt != NULL ? value : s->rtt_s > 0 ? s->rtt_s : DEFAULT_RTT_S;
    return MST_OK;
}

/* ---- costs ---- */

static void plan_assume(plan *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void plan_assume(plan *p, const char *format, ...)
{
    char text[240];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *copy = mst_strdup(text);
    if (copy != NULL && p->n_assumed < ASSUMED_MAX)
        p->assumed[p->n_assumed++] = copy;
    else
        mst_free(copy);
}

/* Adds the costs of a run, and takes the shape of its job. */
static mst_status plan_take_run(plan *p, const char *path)
{
    mst_run_data *run = NULL;
    mst_status st;
    TRY(mst_run_data_new(path, &run));
    if (mst_run_data_option_is(run, "strategy", "allreduce"))
        TRY_OUT(st, mst_fail(MST_EUSAGE, "plan: %s is a run of --strategy allreduce; " ONLY_PS, path));
    if (mst_run_data_option_real(run, "quorum") > 0)
        TRY_OUT(st, mst_fail(MST_EUSAGE, "plan: %s is a run with --quorum; " ONLY_PS, path));
    TRY_OUT(st, mst_job_costs_add(&p->costs, run));
    double workers = mst_run_data_option_real(run, "workers"), pipeline, replicas;
    pipeline = mst_run_data_option_real(run, "pipeline");
    replicas = mst_run_data_option_real(run, "replicas");
    p->shape.mode = mst_run_data_option_is(run, "mode", "sync")  ? MST_PLAN_SYNC
                    : mst_run_data_option_is(run, "mode", "ssp") ? MST_PLAN_SSP
                                                                 : MST_PLAN_ASYNC;
    p->shape.servers = p->costs.servers;
    p->shape.workers = workers >= 1 ? workers : 1;
    p->shape.batch = p->costs.at[p->costs.n - 1].rows;
    p->shape.pipeline = pipeline > 0 ? pipeline : 0;
    p->shape.replicas = replicas > 0 ? replicas : 0;
out:
    mst_run_data_destroy(run);
    return st;
}

/* Reads the options of train: the shape of the job, and the batch of the trials. */
static mst_status plan_take_options(plan *p, const mst_text_list *words)
{
    mst_settings s;
    mst_text_list files = {0};
    mst_status st;
    if (strcmp(words->items[0], "train") != 0)
        return mst_fail(MST_EUSAGE, "plan: %.64s: put a train command after --", words->items[0]);
    mst_settings_begin(&s, NULL);
    TRY_OUT(st, mst_options_init(s.groups, s.n_groups));
    TRY_OUT(st, mst_options_parse(s.groups, s.n_groups, (int)words->n - 1, words->items + 1, &files));
    if (files.n == 0 || strcmp(files.items[0], "-") == 0)
        TRY_OUT(st, mst_fail(MST_EUSAGE, "plan: name the files of the training data after -- train"));
    if (s.strategy.strategy == MST_STRATEGY_ALLREDUCE)
        TRY_OUT(st, mst_fail(MST_EUSAGE, "plan: --strategy allreduce: " ONLY_PS));
    if (s.strategy.mode == MST_MODE_SYNC && s.strategy.pipeline > 0)
        TRY_OUT(st, mst_fail(MST_EUSAGE, "plan: --pipeline is for --mode async and ssp"));
    if (s.strategy.quorum > 0)
        TRY_OUT(st, mst_fail(MST_EUSAGE, "plan: --quorum: " ONLY_PS));
    double workers =
        p->options->workers > 0 ? (double)p->options->workers : fmax(1, (double)s.strategy.workers);
    p->shape = (mst_job_shape){.mode = s.strategy.mode == MST_MODE_SYNC  ? MST_PLAN_SYNC
                                       : s.strategy.mode == MST_MODE_SSP ? MST_PLAN_SSP
                                                                         : MST_PLAN_ASYNC,
                               .servers = fmax(1, (double)s.strategy.servers),
                               .workers = workers,
                               .batch = s.strategy.global_batch > 0
                                            ? fmax(1, floor((double)s.strategy.global_batch / workers))
                                            : (double)s.strategy.batch,
                               .pipeline = (double)s.strategy.pipeline,
                               .replicas = (double)s.strategy.replicas};
out:
    mst_text_list_fini(&files);
    mst_settings_fini(&s);
    return st;
}

/* Two trials on this host, with the batch and with an eighth or eight times of it. */
static mst_status plan_calibrate(plan *p, const mst_text_list *words)
{
    const char *temporary = getenv("TMPDIR");
    char *folder = mst_sprintf("%s/muster-plan-XXXXXX", temporary != NULL ? temporary : "/tmp"), *run = NULL;
    mst_job_shape shape;
    mst_status st;
    if (folder == NULL)
        return mst_fail_memory();
    if (mkdtemp(folder) == NULL) {
        st = mst_fail(MST_EIO, "%s: cannot be created; set TMPDIR to a folder that can be written", folder);
        mst_free(folder);
        return st;
    }
    TRY_OUT(st, plan_take_options(p, words));
    if (p->options->batch > 0)
        p->shape.batch = (double)p->options->batch;
    shape = p->shape;
    double other = shape.batch >= 8 ? floor(shape.batch / 8) : shape.batch * 8;
    for (int i = 0; i < 2; i++) {
        mst_free(run);
        run = mst_sprintf("%s/run-%d", folder, i);
        if (run == NULL)
            TRY_OUT(st, mst_fail_memory());
        mst_cli_note("plan: measuring a step of %.0f rows for %g s", i == 0 ? shape.batch : other,
                     p->options->calibrate);
        TRY_OUT(st,
                mst_trial_job(words, (int64_t)(i == 0 ? shape.batch : other), p->options->calibrate, run));
        TRY_OUT(st, plan_take_run(p, run));
    }
    p->shape = shape;
    plan_assume(p, "costs of a step: two trials of %g s on this host, one server and one worker",
                p->options->calibrate);
out:
    mst_free(run);
    if (st == MST_OK)
        st = mst_remove_tree(folder);
    else
        (void)mst_remove_tree(folder);
    mst_free(folder);
    return st;
}

static mst_status plan_take_costs(plan *p, const mst_call *call)
{
    const char *train = NULL; /* the word after -- */
    for (int i = 0; i < call->argc; i++)
        if (strcmp(call->argv[i], "--") == 0) {
            train = i + 1 < call->argc ? call->argv[i + 1] : "";
            break;
        }
    if (call->words.n == 0)
        return mst_fail(MST_EUSAGE,
                        "plan: give a run directory, or a training after --: muster plan --workers "
                        "8 -- train FILE");
    if (train != NULL && strcmp(train, call->words.items[0]) != 0)
        return mst_fail(
            MST_EUSAGE,
            "plan: give either %s or a training after --; the costs of a step come from one of them",
            call->words.items[0]);
    if (train != NULL)
        return plan_calibrate(p, &call->words);
    for (size_t i = 0; i < call->words.n; i++)
        TRY(plan_take_run(p, call->words.items[i]));
    plan_assume(p, "costs of a step: those of the run%s", call->words.n > 1 ? "s" : "");
    return MST_OK;
}

static mst_status plan_take_network(plan *p)
{
    const plan_options *o = p->options;
    char text[MST_FIGURE_SIZE];
    p->shape.link = p->costs.link;
    p->shape.rtt_s = p->costs.rtt_s;
    TRY(plan_parse_network(o, &p->shape));
    if (o->link == NULL)
        plan_assume(p, "links of %s: %s", mst_figure_bits(p->shape.link, text),
                    p->costs.link > 0 ? "the fastest path of the run" : "no path was measured; give --link");
    if (o->rtt == NULL)
        plan_assume(p, "round trips of %s: %s", mst_figure_seconds(p->shape.rtt_s, text),
                    p->costs.rtt_s > 0 ? "the mean of the paths of the run"
                                       : "no path was measured; give --rtt");
    return MST_OK;
}

/* Hosts with processes: more than there are workers, or servers, have none. */
static double plan_hosts(const mst_job_shape *s)
{
    double most = fmax(s->workers, s->servers);
    return s->hosts > 0 ? fmin(s->hosts, most) : most;
}

static mst_status plan_take_shape(plan *p)
{
    const plan_options *o = p->options;
    mst_job_shape *s = &p->shape;
    s->servers = o->servers > 0 ? (double)o->servers : s->servers;
    s->workers = o->workers > 0 ? (double)o->workers : s->workers;
    s->batch = o->batch > 0 ? (double)o->batch : s->batch;
    s->pipeline = o->pipeline >= 0 ? (double)o->pipeline : s->pipeline;
    s->hosts = (double)o->hosts;
    s->cores = o->cores > 0 ? (double)o->cores : p->costs.cores;
    s->shared_cores = (double)o->shared_cores;
    if (o->mode != MODE_SAME)
        s->mode = o->mode == MODE_SYNC ? MST_PLAN_SYNC : o->mode == MODE_SSP ? MST_PLAN_SSP : MST_PLAN_ASYNC;
    if (s->mode == MST_PLAN_SYNC && o->pipeline > 0)
        return mst_fail(MST_EUSAGE, "plan: --pipeline is for async and ssp, and the job is sync; see --mode");
    if (s->mode == MST_PLAN_SYNC)
        s->pipeline = 0;
    if (s->hosts > plan_hosts(s))
        plan_assume(p, "%.0f of the %.0f hosts have no process: one for each worker is the most that is used",
                    s->hosts - plan_hosts(s), s->hosts);
    plan_assume(p, "workers are equally fast, on %s",
                s->shared_cores > 0 ? "the shared cores" : "hosts like the measured one");
    if (p->costs.n == 1 && p->costs.sparse && s->batch != p->costs.at[0].rows)
        plan_assume(p, "%s",
                    isnan(p->costs.entries)
                        ? "the keys of a batch grow in proportion to its rows; a second run with "
                          "another --batch shows the growth"
                        : "the keys of a batch grow by Heaps' law through the measured batch; a "
                          "second run with another --batch shows the growth");
    plan_assume(p, "TCP carries 95%% of a link's speed; rows are read as fast as in the measurement");
    return plan_take_network(p);
}

/* ---- output ---- */

static const char *const plan_modes[] = {"sync", "ssp", "async"};

static json_t *plan_forecast_json(const mst_job_shape *s, const mst_job_forecast *f)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:s}", "servers", s->servers, "workers", s->workers, "step_s",
                     f->step_s, "rows_per_s", f->rows_per_s, "bottleneck",
                     mst_bottleneck_name(f->bottleneck));
}

static json_t *plan_json(const plan *p, const mst_job_shape *best, size_t n_best)
{
    static const char *const names[] = {"best_servers", "best"};
    const mst_job_shape *s = &p->shape;
    const mst_job_forecast *f = &p->forecast;
    json_t *limits = json_array(), *assumed = json_array();
    for (size_t i = 0; i < f->n_limits; i++)
        json_array_append_new(limits, json_pack("{s:s, s:f, s:f}", "resource",
                                                mst_bottleneck_name(f->limits[i].kind), "step_s",
                                                f->limits[i].seconds, "rows_per_s", f->limits[i].rows_per_s));
    for (size_t i = 0; i < p->n_assumed; i++)
        json_array_append_new(assumed, json_string(p->assumed[i]));
    json_t *out = plan_forecast_json(s, f);
    json_t *more = json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "mode",
                             plan_modes[s->mode], "hosts", s->hosts, "batch", s->batch, "link_bits_per_s",
                             s->link * 8, "rtt_s", s->rtt_s, "shared_cores", s->shared_cores, "push_bytes",
                             f->push_bytes, "pull_bytes", f->pull_bytes, "server_link_in", f->server_in,
                             "server_link_out", f->server_out, "worker_memory_bytes", f->worker_memory,
                             "server_memory_bytes", f->server_memory, "limits", limits, "assumed", assumed);
    bool fine = out != NULL && more != NULL && json_object_update(out, more) == 0;
    for (size_t i = 0; fine && i < n_best; i++) {
        mst_job_forecast forecast;
        mst_job_forecast_of(&p->costs, &best[i], &forecast);
        fine = json_object_set_new(out, names[i], plan_forecast_json(&best[i], &forecast)) == 0;
    }
    json_decref(more);
    if (!fine) {
        json_decref(out);
        out = NULL;
    }
    return out;
}

static mst_status plan_print_forecast(const plan *p)
{
    const mst_job_shape *s = &p->shape;
    const mst_job_forecast *f = &p->forecast;
    char text[3 * MST_FIGURE_SIZE], a[MST_FIGURE_SIZE], b[MST_FIGURE_SIZE];
    mst_table *t;
    TRY(mst_facts_new(false, &t));
    double hosts = plan_hosts(s);
    snprintf(text, sizeof text, "%.0f server%s, %.0f worker%s, %.0f host%s", s->servers,
             s->servers == 1 ? "" : "s", s->workers, s->workers == 1 ? "" : "s", hosts,
             hosts == 1 ? "" : "s");
    mst_table_text(mst_fact(t, "job"), text);
    int n = snprintf(text, sizeof text, "%s, %s rows per worker", plan_modes[s->mode],
                     mst_figure_count(s->batch, a));
    if (s->pipeline > 0)
        snprintf(text + n, sizeof text - (size_t)n, ", --pipeline %.0f", s->pipeline);
    mst_table_text(mst_fact(t, "step"), text);
    snprintf(text, sizeof text, "%s each way, round trip %s", mst_figure_bits(s->link, a),
             mst_figure_seconds(s->rtt_s, b));
    mst_table_text(mst_fact(t, "link"), text);
    mst_table_text(mst_fact(t, "step time"), mst_figure_seconds(f->step_s, a));
    mst_table_text(mst_fact(t, "rows/s"), mst_figure_count(f->rows_per_s, a));
    snprintf(text, sizeof text, "%s out, %s in", mst_figure_bytes(f->push_bytes, a),
             mst_figure_bytes(f->pull_bytes, b));
    mst_table_text(mst_fact(t, "messages of a worker's step"), text);
    snprintf(text, sizeof text, "%s in, %s out", mst_figure_rate(f->server_in, a),
             mst_figure_rate(f->server_out, b));
    mst_table_text(mst_fact(t, "link of a server's host"), text);
    snprintf(text, sizeof text, "server %s, worker %s", mst_figure_bytes(f->server_memory, a),
             mst_figure_bytes(f->worker_memory, b));
    mst_table_text(mst_fact(t, "memory of a process"), text);
    mst_table_text(mst_fact(t, "bottleneck"), mst_bottleneck_title(f->bottleneck));
    mst_status st = mst_table_print(t, NULL, false);
    mst_table_destroy(t);
    return st;
}

static mst_status plan_print_limits(const mst_job_forecast *f)
{
    static const mst_column columns[] = {{"limit", false}, {"time per step", true}, {"rows/s", true}};
    char a[MST_FIGURE_SIZE];
    mst_table *t;
    TRY(mst_table_new(columns, 3, &t));
    for (size_t i = 0; i < f->n_limits; i++) {
        mst_table_text(t, mst_bottleneck_title(f->limits[i].kind));
        mst_table_text(t, mst_figure_seconds(f->limits[i].seconds, a));
        mst_table_text(t, mst_figure_count(f->limits[i].rows_per_s, a));
    }
    putchar('\n');
    mst_status st = mst_table_print(t, NULL, true);
    mst_table_destroy(t);
    return st;
}

static mst_status plan_print_best(const plan *p, const mst_job_shape *best, size_t n)
{
    static const mst_column columns[] = {{"best", false},     {"servers", true}, {"workers", true},
                                         {"step time", true}, {"rows/s", true},  {"bottleneck", false}};
    char a[MST_FIGURE_SIZE], name[48];
    mst_table *t;
    TRY(mst_table_new(columns, 6, &t));
    for (size_t i = 0; i < n; i++) {
        mst_job_forecast f;
        mst_job_forecast_of(&p->costs, &best[i], &f);
        if (i == 0)
            snprintf(name, sizeof name, "servers for these workers");
        else
            snprintf(name, sizeof name, "up to %s workers",
                     mst_figure_count((double)p->options->max_workers, a));
        mst_table_text(t, name);
        mst_table_count(t, (uint64_t)best[i].servers);
        mst_table_count(t, (uint64_t)best[i].workers);
        mst_table_text(t, mst_figure_seconds(f.step_s, a));
        mst_table_text(t, mst_figure_count(f.rows_per_s, a));
        mst_table_text(t, mst_bottleneck_title(f.bottleneck));
    }
    putchar('\n');
    mst_status st = mst_table_print(t, NULL, true);
    mst_table_destroy(t);
    return st;
}

static mst_status plan_print(const plan *p, const mst_job_shape *best, size_t n)
{
    if (p->options->json)
        return mst_cli_print_json(plan_json(p, best, n));
    TRY(plan_print_forecast(p));
    TRY(plan_print_limits(&p->forecast));
    TRY(plan_print_best(p, best, n));
    printf("\nAssumed:\n");
    for (size_t i = 0; i < p->n_assumed; i++)
        printf("- %s\n", p->assumed[i]);
    return MST_OK;
}

static mst_status plan_run(mst_call *call)
{
    plan p = {.options = call->options};
    mst_job_shape best[2];
    mst_status st;
    TRY_OUT(st, plan_parse_network(p.options, &p.shape)); /* before the trials */
    TRY_OUT(st, plan_take_costs(&p, call));
    TRY_OUT(st, plan_take_shape(&p));
    mst_job_forecast_of(&p.costs, &p.shape, &p.forecast);
    best[0] = mst_job_best(&p.costs, &p.shape, p.shape.workers, true);
    best[1] = mst_job_best(&p.costs, &p.shape, (double)p.options->max_workers, false);
    st = plan_print(&p, best, 2);
out:
    for (size_t i = 0; i < p.n_assumed; i++)
        mst_free(p.assumed[i]);
    return st;
}

static const mst_command_group plan_groups[] = {{"Options", plan_table, 0}, {.table = NULL}};

const mst_command mst_cmd_plan = {
    .name = "plan",
    .summary = "predict the speed of a job on other hosts, links and numbers of processes",
    .run = plan_run,
    .usage = "plan [options] RUN [RUN]\n"
             "       muster plan [options] -- train FILE... [options of train]",
    .details =
        "Predicts step time, rows per second, traffic, memory and the bottleneck of a job of servers and "
        "workers, and the best numbers of both. The costs of a step come from a run of muster launch, or "
        "from "
        "two that differ in their batch, or from two short trials on this host. docs/PLAN.md has the "
        "formulas.\n",
    .groups = plan_groups,
    .options_size = sizeof(plan_options),
    .examples =
        "muster plan runs/job --workers 64 --servers 4 --link 10gbit --rtt 100us\n"
        "muster plan --workers 8 --link 1gbit --rtt 500us -- train clicks.cache --batch 1000 --mode sync\n",
};
