/* Links between the hosts of a cluster; contract in doctor_cluster.h. The probes' side is doctor_probe.c.
 *
 * Every host gets a probe, one with several processes a second one beside it. When all listen, one pair after
 * the other is measured, so that no measurement disturbs another. Every wait has a deadline on the one timer;
 * a host that misses it is left out from there on. Probes end with their standard input, whichever way this
 * process ends. */
#include "launch/doctor_cluster.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/version.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "launch/launch_procs.h"
#include "launch/launch_remote.h"
#include "launch/signal_loop.h"
#include "net/cluster.h"

#define HOSTS_MAX    64
#define READY_MS     20000
#define MEASURE_MS   30000
#define TEXT_SIZE    512
#define SECRET_BYTES 32

typedef struct node {
    char host[256];    /* "" for Unix sockets */
    const char *shown; /* the host as tables name it */
    uint32_t n_processes;
    bool remote, listening, ended;
    uint32_t proc;
    char address[TEXT_SIZE]; /* where it listens */
    char last[TEXT_SIZE];    /* last line of its standard error */
    char why[TEXT_SIZE];     /* why it cannot be measured; "": it can */
} node;

typedef struct pair {
    uint32_t from, to;
    double rtt_us, gbit_per_s; /* NAN: not measured */
    char why[TEXT_SIZE];
} pair;

typedef struct survey {
    const char *file, *ssh;
    bool ssh_given;
    mst_cluster cluster;
    node *nodes;
    uint32_t n_nodes;
    pair *pairs;
    uint32_t n_pairs, at; /* at: the pair being measured */
    bool measuring;
    mst_signal_loop loop;
    uv_timer_t deadline;
    mst_procs *procs;
    char program[4096], job[24], secret[2 * SECRET_BYTES + 1];
} survey;

/* ---- who ---- */

static bool is_this_machine(const char *host)
{
    return *host == '\0' || strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           strncmp(host, "127.", 4) == 0;
}

static mst_status add_host(survey *s, const char *address)
{
    char host[256];
    mst_address_host(address, host, sizeof host);
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        if (strcmp(s->nodes[i].host, host) == 0) {
            s->nodes[i].n_processes++;
            return MST_OK;
        }
    }
    if (s->n_nodes == HOSTS_MAX)
        return mst_fail(MST_EUSAGE, "%s: names more than %d hosts; take a smaller file to measure links",
                        s->file, HOSTS_MAX);
    node *n = &s->nodes[s->n_nodes++];
    memcpy(n->host, host, sizeof host);
    n->n_processes = 1;
    n->shown = *n->host != '\0' ? n->host : "this machine (Unix socket)";
    n->remote = s->ssh_given ? *host != '\0' : !is_this_machine(host);
    return MST_OK;
}

/* The pairs: of hosts, and of a host with itself where processes meet on it. */
static mst_status make_pairs(survey *s)
{
    uint32_t hosts = s->n_nodes;
    s->pairs = mst_calloc((size_t)hosts * (hosts + 1) / 2, sizeof *s->pairs);
    if (s->pairs == NULL)
        return mst_fail_memory();
    for (uint32_t i = 0; i < hosts; i++) {
        if (s->nodes[i].n_processes > 1) {
            node *twin = &s->nodes[s->n_nodes];
            *twin = s->nodes[i];
            s->pairs[s->n_pairs++] = (pair){.from = i, .to = s->n_nodes++, .rtt_us = NAN, .gbit_per_s = NAN};
        }
        for (uint32_t j = i + 1; j < hosts; j++)
            if (s->nodes[i].host[0] != '\0' && s->nodes[j].host[0] != '\0')
                s->pairs[s->n_pairs++] = (pair){.from = i, .to = j, .rtt_us = NAN, .gbit_per_s = NAN};
    }
    if (s->n_pairs == 0)
        return mst_fail(MST_EUSAGE, "%s: has one process on one host, and no link to measure", s->file);
    return MST_OK;
}

static mst_status find_nodes(survey *s)
{
    s->nodes = mst_calloc((size_t)2 * HOSTS_MAX, sizeof *s->nodes);
    if (s->nodes == NULL)
        return mst_fail_memory();
    for (uint32_t i = 0; !s->cluster.colocated && i < s->cluster.n_servers; i++)
        TRY(add_host(s, s->cluster.servers[i]));
    for (uint32_t i = 0; i < s->cluster.n_workers; i++)
        TRY(add_host(s, s->cluster.workers[i]));
    return make_pairs(s);
}

/* ---- measuring ---- */

static void on_deadline(uv_timer_t *timer);

/* Goes on with the next pair whose ends both listen; stops the loop when there is none left. */
static void measure_next(survey *s)
{
    char command[TEXT_SIZE + 16];
    s->measuring = false;
    for (; s->at < s->n_pairs; s->at++) {
        pair *p = &s->pairs[s->at];
        const node *from = &s->nodes[p->from], *to = &s->nodes[p->to];
        const node *bad = from->why[0] != '\0' ? from : to->why[0] != '\0' ? to : NULL;
        if (bad != NULL) {
            snprintf(p->why, sizeof p->why, "%s", bad->why);
            continue;
        }
        int n = snprintf(command, sizeof command, "measure %s\n", to->address);
        if (mst_procs_write(s->procs, from->proc, command, (size_t)n) != MST_OK) {
            snprintf(p->why, sizeof p->why, "%s", mst_error_text());
            continue;
        }
        s->measuring = true;
        uv_timer_start(&s->deadline, on_deadline, MEASURE_MS, 0);
        return;
    }
    uv_stop(&s->loop.uv);
}

/* Begins once every host listens or is known not to. */
static void check_ready(survey *s)
{
    for (uint32_t i = 0; i < s->n_nodes; i++)
        if (!s->nodes[i].listening && s->nodes[i].why[0] == '\0')
            return;
    if (!s->measuring && s->at == 0)
        measure_next(s);
}

/* The host is left out from here on. */
static void give_up(survey *s, node *n, const char *format, const char *detail)
{
    if (n->why[0] == '\0')
        snprintf(n->why, sizeof n->why, format, n->shown, detail);
    if (s->measuring && (&s->nodes[s->pairs[s->at].from] == n || &s->nodes[s->pairs[s->at].to] == n)) {
        snprintf(s->pairs[s->at].why, TEXT_SIZE, "%s", n->why);
        s->at++;
        measure_next(s);
    } else {
        check_ready(s);
    }
}

static void on_deadline(uv_timer_t *timer)
{
    survey *s = timer->data;
    char seconds[16];
    if (s->measuring) {
        snprintf(seconds, sizeof seconds, "%d s", MEASURE_MS / 1000);
        give_up(s, &s->nodes[s->pairs[s->at].from], "%s has not finished a measurement within %s", seconds);
        return;
    }
    snprintf(seconds, sizeof seconds, "%d s", READY_MS / 1000);
    for (uint32_t i = 0; i < s->n_nodes && !s->measuring; i++)
        if (!s->nodes[i].listening && s->nodes[i].why[0] == '\0')
            give_up(s, &s->nodes[i], "%s does not answer: its probe was not ready within %s", seconds);
}

/* ---- events ---- */

static void on_ready(survey *s, node *n)
{
    char command[TEXT_SIZE];
    int length;
    if (n->host[0] == '\0')
        length =
            snprintf(command, sizeof command, "listen unix:@muster-%s-%d\n", s->job, (int)(n - s->nodes));
    else
        length = snprintf(command, sizeof command,
                          strchr(n->host, ':') != NULL ? "listen [%s]:0\n" : "listen %s:0\n", n->host);
    if (mst_procs_write(s->procs, n->proc, command, (size_t)length) != MST_OK)
        give_up(s, n, "%s: %s", mst_error_text());
}

static void on_result(survey *s, node *n, const char *text)
{
    pair *p = s->measuring ? &s->pairs[s->at] : NULL;
    if (p == NULL || n != &s->nodes[p->from])
        return;
    if (text == NULL || sscanf(text, "%lf %lf", &p->rtt_us, &p->gbit_per_s) != 2)
        p->rtt_us = p->gbit_per_s = NAN;
    s->at++;
    measure_next(s);
}

static void on_line(void *arg, uint32_t tag, bool is_error, const char *text, size_t n)
{
    survey *s = arg;
    node *from = &s->nodes[tag];
    char line[TEXT_SIZE];
    snprintf(line, sizeof line, "%.*s", (int)(n < sizeof line ? n : sizeof line), text);
    if (is_error) {
        if (*line != '\0' && strcmp(line, MST_REMOTE_STARTED) != 0)
            memcpy(from->last, line, sizeof line);
    } else if (strncmp(line, "ready", 5) == 0) {
        on_ready(s, from);
    } else if (strncmp(line, "listening ", 10) == 0) {
        memcpy(from->address, line + 10, sizeof line - 10);
        from->listening = true;
        check_ready(s);
    } else if (strncmp(line, "result ", 7) == 0) {
        on_result(s, from, line + 7);
    } else if (strncmp(line, "failed ", 7) == 0 && !from->listening) {
        give_up(s, from, "%s: its probe cannot listen: %s", line + 7);
    } else if (strncmp(line, "failed ", 7) == 0 && s->measuring) {
        snprintf(s->pairs[s->at].why, TEXT_SIZE, "%s", line + 7);
        on_result(s, from, NULL);
    }
}

static void on_ended(void *arg, uint32_t tag, int code, int signal)
{
    survey *s = arg;
    node *n = &s->nodes[tag];
    char text[32];
    snprintf(text, sizeof text, signal != 0 ? "killed by signal %d" : "exit %d", signal != 0 ? signal : code);
    n->ended = true;
    give_up(s, n, "%s cannot be probed: %s", n->last[0] != '\0' ? n->last : text);
}

/* ---- starting ---- */

static mst_status start_probe(survey *s, node *n)
{
    const char *words[] = {s->program, "doctor", "--probe", NULL};
    const mst_variable variables[] = {{"MUSTER_SECRET", s->secret}, {"MUSTER_JOB", s->job},
                                      {"MUSTER_CLUSTER", NULL},     {"TF_CONFIG", NULL},
                                      {"MUSTER_WATCH_STDIN", NULL}, {NULL, NULL}};
    return mst_start_anywhere(s->procs, n->remote ? s->ssh : NULL, n->host, variables, words,
                              (uint32_t)(n - s->nodes), &n->proc);
}

static mst_status measure(survey *s)
{
    static const mst_proc_events events = {.line = on_line, .ended = on_ended};
    mst_status st;
    TRY_OUT(st, mst_signal_loop_init(&s->loop, NULL, false, s));
    mst_signal_loop_timer(&s->loop, &s->deadline, s);
    TRY_OUT(st, mst_procs_new(&s->loop.uv, &events, s, &s->procs));
    for (uint32_t i = 0; i < s->n_nodes; i++)
        TRY_OUT(st, start_probe(s, &s->nodes[i]));
    uv_timer_start(&s->deadline, on_deadline, READY_MS, 0);
    uv_run(&s->loop.uv, UV_RUN_DEFAULT);
out:
    mst_procs_destroy(s->procs);
    mst_signal_loop_fini(&s->loop);
    return st;
}

/* ---- results ---- */

static const mst_column link_columns[] = {
    {.key = "from"}, {.key = "to"}, {.key = "rtt_us", .right = true}, {.key = "gbit_per_s", .right = true}};

static mst_status make_table(const survey *s, mst_table **out)
{
    TRY(mst_table_new(link_columns, 4, out));
    for (uint32_t i = 0; i < s->n_pairs; i++) {
        const pair *p = &s->pairs[i];
        mst_table_text(*out, s->nodes[p->from].shown);
        mst_table_text(*out, s->nodes[p->to].shown);
        mst_table_real(*out, p->rtt_us, 1);
        mst_table_real(*out, p->gbit_per_s, p->gbit_per_s < 10 ? 3 : 1);
    }
    return MST_OK;
}

/* {"date", "muster", "cluster", "links": [...]}; new reference, or NULL. */
static json_t *make_json(const survey *s, const mst_table *table)
{
    char date[24];
    mst_wall_time(date);
    json_t *links = mst_table_json(table);
    return links != NULL ? json_pack("{s:s, s:s, s:s, s:o}", "date", date, "muster", mst_version(), "cluster",
                                     s->file, "links", links)
                         : NULL;
}

static mst_status keep_figures(const survey *s, const json_t *figures)
{
    mst_status st;
    mst_out *out = NULL;
    char *text = figures != NULL ? json_dumps(figures, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) : NULL;
    char *path = mst_sprintf("%s.links.json", s->file);
    if (text == NULL || path == NULL)
        TRY_OUT(st, mst_fail_memory());
    TRY_OUT(st, mst_out_open(path, &out));
    TRY_OUT(st, mst_out_printf(out, "%s\n", text));
    st = mst_out_commit(out);
out:
    mst_out_close(out);
    mst_free(path);
    free(text);
    return st;
}

/* The hosts without a probe, "a, b, c"; a second probe of a host has nothing to add to its first. */
static uint32_t name_bad_hosts(const survey *s, char *out, size_t size)
{
    uint32_t n_bad = 0;
    size_t n = 0;
    *out = '\0';
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        bool told = s->nodes[i].why[0] == '\0';
        for (uint32_t j = 0; j < i; j++)
            told = told || (s->nodes[j].why[0] != '\0' && strcmp(s->nodes[i].host, s->nodes[j].host) == 0);
        if (told)
            continue;
        if (n < size)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n_bad > 0 ? ", " : "", s->nodes[i].shown);
        n_bad++;
    }
    return n_bad;
}

static mst_status fail_missing(const survey *s, uint32_t missing, const pair *first)
{
    char hosts[MST_ERROR_MAX];
    bool several = name_bad_hosts(s, hosts, sizeof hosts) > 1;
    return mst_fail(MST_EPEER, "%u of %u links cannot be measured%s%s; from %s to %s: %s", missing,
                    s->n_pairs, several ? "; hosts that cannot be probed: " : "", several ? hosts : "",
                    s->nodes[first->from].shown, s->nodes[first->to].shown, first->why);
}

static mst_status report(const survey *s, bool json)
{
    mst_status st;
    mst_table *table = NULL;
    json_t *figures = NULL;
    uint32_t missing = 0;
    const pair *first = NULL;
    for (uint32_t i = 0; i < s->n_pairs; i++) {
        missing += isnan(s->pairs[i].rtt_us);
        first = first == NULL && isnan(s->pairs[i].rtt_us) ? &s->pairs[i] : first;
    }
    TRY_OUT(st, make_table(s, &table));
    figures = make_json(s, table);
    if (missing < s->n_pairs)
        TRY_OUT(st, keep_figures(s, figures));
    if (json)
        TRY_OUT(st, mst_cli_print_json(json_incref(figures)));
    else if (missing < s->n_pairs)
        TRY_OUT(st, mst_table_print(table, "Links", true));
    if (first != NULL)
        st = fail_missing(s, missing, first);
out:
    json_decref(figures);
    mst_table_destroy(table);
    return st;
}

mst_status mst_doctor_cluster(const char *file, const char *ssh, bool json)
{
    mst_status st;
    survey *s = mst_zalloc(sizeof *s);
    char tail[9];
    if (s == NULL)
        return mst_fail_memory();
    s->file = file;
    s->ssh = ssh != NULL ? ssh : MST_REMOTE_SSH;
    s->ssh_given = ssh != NULL;
    TRY_OUT(st, mst_cluster_read_yaml(file, NULL, &s->cluster));
    TRY_OUT(st, find_nodes(s));
    TRY_OUT(st, mst_random_hex(SECRET_BYTES, s->secret));
    TRY_OUT(st, mst_random_hex(4, tail));
    snprintf(s->job, sizeof s->job, "probe-%s", tail);
    TRY_OUT(st, mst_own_program(s->program, sizeof s->program));
    TRY_OUT(st, measure(s));
    st = report(s, json);
out:
    mst_cluster_fini(&s->cluster);
    mst_free(s->nodes);
    mst_free(s->pairs);
    explicit_bzero(s->secret, sizeof s->secret);
    mst_free(s);
    return st;
}
