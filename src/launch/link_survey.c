/* Links between the hosts of a cluster; contract in link_survey.h. The probes' side is cli/doctor_probe.c.
 *
 * When all probes listen, one pair after the other is measured, so that no measurement disturbs another.
 * Every wait has a deadline on the one timer. Probes end with their standard input, also if this process is
 * killed.
 *
 * Lines to a probe: "listen ADDRESS", "measure ADDRESS". From a probe: "ready", "listening ADDRESS", "result
 * MEDIAN_US GBIT_PER_S", "failed MESSAGE". */
#include "launch/link_survey.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "base/alloc.h"
#include "base/parent.h"
#include "base/strings.h"
#include "launch/launch_remote.h"
#include "launch/parent_pipe.h"
#include "launch/supervisor.h"
#include "net/cluster.h"

#define HOSTS_MAX  64
#define READY_MS   20000
#define MEASURE_MS 30000
#define TEXT_SIZE  512

typedef struct node {
    char host[256];    /* "" for Unix sockets */
    const char *shown; /* the host as tables name it */
    uint32_t n_processes;
    bool remote, listening;
    mst_child *child;
    char address[TEXT_SIZE]; /* where it listens */
    char why[TEXT_SIZE];     /* why it cannot be measured; "": it can */
} node;

typedef struct pair {
    uint32_t from, to;
    double rtt_us, gbit_per_s; /* NAN: not measured */
    char why[TEXT_SIZE];
} pair;

struct mst_link_survey {
    const char *file, *ssh;
    bool ssh_given;
    mst_cluster cluster;
    node *nodes;
    uint32_t n_nodes;
    pair *pairs;
    uint32_t n_pairs, at; /* at: the pair being measured */
    bool measuring;
    mst_supervisor *supervisor;
    uv_timer_t deadline;
    char program[4096], job[24], secret[MST_SECRET_DIGITS + 1];
};

/* ---- who ---- */

static bool survey_is_local(const char *host)
{
    return *host == '\0' || strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0 ||
           strncmp(host, "127.", 4) == 0;
}

static mst_status survey_add_host(mst_link_survey *s, const char *address)
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
        return mst_fail(MST_EUSAGE, "%s: names more than %d hosts; use a smaller file to measure links",
                        s->file, HOSTS_MAX);
    node *n = &s->nodes[s->n_nodes++];
    memcpy(n->host, host, sizeof host);
    n->n_processes = 1;
    n->shown = *n->host != '\0' ? n->host : "this machine (Unix socket)";
    n->remote = s->ssh_given ? *host != '\0' : !survey_is_local(host);
    return MST_OK;
}

/* The pairs: of hosts, and of a host with itself where processes meet on it. */
static mst_status survey_make_pairs(mst_link_survey *s)
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
        return mst_fail(MST_EUSAGE, "%s: has one process on one host; there is no link to measure", s->file);
    return MST_OK;
}

static mst_status survey_find_nodes(mst_link_survey *s)
{
    s->nodes = mst_calloc((size_t)2 * HOSTS_MAX, sizeof *s->nodes);
    if (s->nodes == NULL)
        return mst_fail_memory();
    for (uint32_t i = 0; !s->cluster.colocated && i < s->cluster.n_servers; i++)
        TRY(survey_add_host(s, s->cluster.servers[i]));
    for (uint32_t i = 0; i < s->cluster.n_workers; i++)
        TRY(survey_add_host(s, s->cluster.workers[i]));
    return survey_make_pairs(s);
}

/* ---- measuring ---- */

static void survey_on_deadline(uv_timer_t *timer);

/* Measures the next pair of listening hosts; stops the loop after the last one. */
static void survey_measure_next(mst_link_survey *s)
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
        if (mst_child_write(from->child, command, (size_t)n) != MST_OK) {
            snprintf(p->why, sizeof p->why, "%s", mst_error_text());
            continue;
        }
        s->measuring = true;
        uv_timer_start(&s->deadline, survey_on_deadline, MEASURE_MS, 0);
        return;
    }
    mst_supervisor_quit(s->supervisor);
}

/* Begins once every host listens or is left out. */
static void survey_check_ready(mst_link_survey *s)
{
    for (uint32_t i = 0; i < s->n_nodes; i++)
        if (!s->nodes[i].listening && s->nodes[i].why[0] == '\0')
            return;
    if (!s->measuring && s->at == 0)
        survey_measure_next(s);
}

/* The host is left out from here on. */
static void survey_give_up(mst_link_survey *s, node *n, const char *format, const char *detail)
{
    if (n->why[0] == '\0')
        snprintf(n->why, sizeof n->why, format, n->shown, detail);
    if (s->measuring && (&s->nodes[s->pairs[s->at].from] == n || &s->nodes[s->pairs[s->at].to] == n)) {
        snprintf(s->pairs[s->at].why, TEXT_SIZE, "%s", n->why);
        s->at++;
        survey_measure_next(s);
    } else {
        survey_check_ready(s);
    }
}

static void survey_on_deadline(uv_timer_t *timer)
{
    mst_link_survey *s = timer->data;
    char seconds[16];
    if (s->measuring) {
        snprintf(seconds, sizeof seconds, "%d s", MEASURE_MS / 1000);
        survey_give_up(s, &s->nodes[s->pairs[s->at].from], "%s has not finished a measurement within %s",
                       seconds);
        return;
    }
    snprintf(seconds, sizeof seconds, "%d s", READY_MS / 1000);
    for (uint32_t i = 0; i < s->n_nodes && !s->measuring; i++)
        if (!s->nodes[i].listening && s->nodes[i].why[0] == '\0')
            survey_give_up(s, &s->nodes[i], "%s does not answer: its probe was not ready within %s", seconds);
}

/* ---- events ---- */

static void survey_on_ready(mst_link_survey *s, node *n)
{
    char command[TEXT_SIZE];
    int length;
    if (n->host[0] == '\0')
        length =
            snprintf(command, sizeof command, "listen unix:@muster-%s-%d\n", s->job, (int)(n - s->nodes));
    else
        length = snprintf(command, sizeof command,
                          strchr(n->host, ':') != NULL ? "listen [%s]:0\n" : "listen %s:0\n", n->host);
    if (mst_child_write(n->child, command, (size_t)length) != MST_OK)
        survey_give_up(s, n, "%s: %s", mst_error_text());
}

static void survey_on_result(mst_link_survey *s, node *n, const char *text)
{
    pair *p = s->measuring ? &s->pairs[s->at] : NULL;
    if (p == NULL || n != &s->nodes[p->from])
        return;
    if (text == NULL || sscanf(text, "%lf %lf", &p->rtt_us, &p->gbit_per_s) != 2)
        p->rtt_us = p->gbit_per_s = NAN;
    s->at++;
    survey_measure_next(s);
}

/* The rest of a line after the word; NULL: it begins with another one. */
static const char *survey_word(const char *line, const char *word)
{
    size_t n = strlen(word);
    return strncmp(line, word, n) == 0 && (line[n] == ' ' || line[n] == '\0') ? line + n + (line[n] == ' ')
                                                                              : NULL;
}

static void survey_on_line(void *arg, mst_child *child, bool is_error, const char *text, size_t n)
{
    mst_link_survey *s = arg;
    node *from = &s->nodes[child->index];
    char line[TEXT_SIZE];
    const char *rest;
    if (is_error)
        return;
    snprintf(line, sizeof line, "%.*s", (int)(n < sizeof line ? n : sizeof line), text);
    if (survey_word(line, "ready") != NULL) {
        survey_on_ready(s, from);
    } else if ((rest = survey_word(line, "listening")) != NULL) {
        snprintf(from->address, sizeof from->address, "%s", rest);
        from->listening = true;
        survey_check_ready(s);
    } else if ((rest = survey_word(line, "result")) != NULL) {
        survey_on_result(s, from, rest);
    } else if ((rest = survey_word(line, "failed")) != NULL && !from->listening) {
        survey_give_up(s, from, "%s: its probe cannot listen: %s", rest);
    } else if (rest != NULL && s->measuring) {
        snprintf(s->pairs[s->at].why, TEXT_SIZE, "%s", rest);
        survey_on_result(s, from, NULL);
    }
}

static void survey_on_ended(void *arg, mst_child *child)
{
    mst_link_survey *s = arg;
    char text[32];
    snprintf(text, sizeof text, child->signal != 0 ? "killed by signal %d" : "exit %d",
             child->signal != 0 ? child->signal : child->code);
    survey_give_up(s, &s->nodes[child->index], "%s cannot be probed: %s",
                   child->last_line[0] != '\0' ? child->last_line : text);
}

/* ---- starting ---- */

static mst_status survey_start_probe(mst_link_survey *s, node *n)
{
    const char *words[] = {s->program, "doctor", "--probe", NULL};
    const mst_variable variables[] = {{"MUSTER_SECRET", NULL},
                                      {MST_PARENT_SECRET_ENV, "stdin"},
                                      {"MUSTER_JOB", s->job},
                                      {"MUSTER_CLUSTER", NULL},
                                      {"TF_CONFIG", NULL},
                                      {MST_PARENT_ENV, NULL},
                                      {NULL, NULL}};
    return mst_start_anywhere(n->child, n->remote ? s->ssh : NULL, n->host, s->secret, variables, words);
}

static mst_status survey_measure(mst_link_survey *s)
{
    static const mst_supervisor_events events = {.on_line = survey_on_line, .on_ended = survey_on_ended};
    mst_status st = MST_OK;
    TRY(mst_supervisor_new(s->n_nodes, &events, s, &s->supervisor));
    mst_supervisor_timer(s->supervisor, &s->deadline, s);
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        s->nodes[i].child = mst_supervisor_child(s->supervisor, i);
        TRY_OUT(st, survey_start_probe(s, &s->nodes[i]));
    }
    uv_timer_start(&s->deadline, survey_on_deadline, READY_MS, 0);
    mst_supervisor_run(s->supervisor);
out:
    mst_supervisor_destroy(s->supervisor);
    return st;
}

/* ---- results ---- */

/* The hosts without a probe, "a, b, c"; a second probe of a host has nothing to add to its first. */
static uint32_t survey_bad_hosts(const mst_link_survey *s, char *out, size_t size)
{
    uint32_t n_bad = 0;
    size_t n = 0;
    *out = '\0';
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        bool listed = s->nodes[i].why[0] == '\0';
        for (uint32_t j = 0; j < i; j++)
            listed =
                listed || (s->nodes[j].why[0] != '\0' && strcmp(s->nodes[i].host, s->nodes[j].host) == 0);
        if (listed)
            continue;
        if (n < size)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n_bad > 0 ? ", " : "", s->nodes[i].shown);
        n_bad++;
    }
    return n_bad;
}

mst_status mst_link_survey_check(const mst_link_survey *s)
{
    char hosts[MST_ERROR_MAX];
    uint32_t missing = 0;
    const pair *first = NULL;
    for (uint32_t i = 0; i < s->n_pairs; i++) {
        missing += isnan(s->pairs[i].rtt_us);
        first = first == NULL && isnan(s->pairs[i].rtt_us) ? &s->pairs[i] : first;
    }
    if (first == NULL)
        return MST_OK;
    bool several = survey_bad_hosts(s, hosts, sizeof hosts) > 1;
    return mst_fail(MST_EPEER, "%u of %u links cannot be measured%s%s; from %s to %s: %s", missing,
                    s->n_pairs, several ? "; hosts that cannot be probed: " : "", several ? hosts : "",
                    s->nodes[first->from].shown, s->nodes[first->to].shown, first->why);
}

size_t mst_link_survey_count(const mst_link_survey *s)
{
    return s->n_pairs;
}

mst_link mst_link_survey_get(const mst_link_survey *s, size_t i)
{
    const pair *p = &s->pairs[i];
    return (mst_link){.from = s->nodes[p->from].shown,
                      .to = s->nodes[p->to].shown,
                      .rtt_us = p->rtt_us,
                      .gbit_per_s = p->gbit_per_s};
}

/* ---- life ---- */

void mst_link_survey_destroy(mst_link_survey *s)
{
    if (s == NULL)
        return;
    mst_cluster_fini(&s->cluster);
    mst_free(s->nodes);
    mst_free(s->pairs);
    explicit_bzero(s->secret, sizeof s->secret);
    mst_free(s);
}

mst_status mst_link_survey_run(const char *file, const char *ssh, mst_link_survey **out)
{
    mst_status st;
    mst_link_survey *s = mst_zalloc(sizeof *s);
    char tail[9];
    if (s == NULL)
        return mst_fail_memory();
    s->file = file;
    s->ssh = ssh != NULL ? ssh : MST_REMOTE_SSH;
    s->ssh_given = ssh != NULL;
    TRY_OUT(st, mst_cluster_read_yaml(file, NULL, &s->cluster));
    TRY_OUT(st, survey_find_nodes(s));
    TRY_OUT(st, mst_random_secret(s->secret));
    TRY_OUT(st, mst_random_hex(4, tail));
    snprintf(s->job, sizeof s->job, "probe-%s", tail);
    TRY_OUT(st, mst_own_program(s->program, sizeof s->program));
    TRY_OUT(st, survey_measure(s));
    *out = s;
    s = NULL;
out:
    mst_link_survey_destroy(s);
    return st;
}
