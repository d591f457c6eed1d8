/* The processes of a job and their hosts; contract in launch_plan.h. */
#include "launch/launch_plan.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/option.h"

#define FILE_BYTES_MAX (1u << 20)

/* ---- hosts ---- */

static mst_status plan_set_slots(mst_host *host, const char *text, const char *path, size_t line)
{
    int64_t value;
    if (!mst_parse_int(text, &value) || value < 0 || value > MST_CLUSTER_MAX)
        return mst_fail(MST_EUSAGE, "%s:%zu: slots=%.64s: must be a number from 0 to %d", path, line, text,
                        MST_CLUSTER_MAX);
    host->slots = (uint32_t)value;
    return MST_OK;
}

static mst_status plan_set_address(mst_host *host, const char *text, const char *path, size_t line)
{
    const char *fault = mst_address_fault(text, true);
    if (fault == NULL && (strchr(text, ':') != NULL && *text != '['))
        fault = "has a port; ports are chosen by --port";
    if (fault != NULL || strlen(text) >= sizeof host->address)
        return mst_fail(MST_EUSAGE, "%s:%zu: the host %.256s %s", path, line, text,
                        fault != NULL ? fault : "has a name that is too long");
    memcpy(host->address, text, strlen(text) + 1);
    return MST_OK;
}

/* One line of words; it is taken apart in place. No words: host->name is "". */
static mst_status plan_read_host(char *text, const char *path, size_t line, mst_host *host)
{
    char *rest = NULL;
    *host = (mst_host){.slots = MST_SLOTS_ANY};
    text[strcspn(text, "#")] = '\0';
    for (char *word = strtok_r(text, " \t\r", &rest); word != NULL; word = strtok_r(NULL, " \t\r", &rest)) {
        if (host->name[0] == '\0') {
            const char *at = strrchr(word, '@');
            TRY(plan_set_address(host, at != NULL ? at + 1 : word, path, line));
            for (const char *p = word; at != NULL && p < at; p++)
                if (!isalnum((unsigned char)*p) && (strchr("._-", *p) == NULL || (p == word && *p == '-')))
                    return mst_fail(MST_EUSAGE, "%s:%zu: %.256s is not user@host", path, line, word);
            if (at == word || strlen(word) >= sizeof host->name)
                return mst_fail(MST_EUSAGE, "%s:%zu: %.256s is not user@host", path, line, word);
            memcpy(host->name, word, strlen(word) + 1);
        } else if (strncmp(word, "slots=", 6) == 0) {
            TRY(plan_set_slots(host, word + 6, path, line));
        } else if (strncmp(word, "address=", 8) == 0) {
            TRY(plan_set_address(host, word + 8, path, line));
        } else {
            return mst_fail(MST_EUSAGE, "%s:%zu: %.64s is not slots=N or address=HOST; a line has one host",
                            path, line, word);
        }
    }
    return MST_OK;
}

static mst_status plan_read_hosts(const char *path, mst_plan *plan)
{
    mst_status st = MST_OK;
    char *data = NULL, *rest = NULL;
    size_t size, capacity = 0, line = 0;
    TRY(mst_file_read_all(path, FILE_BYTES_MAX, &data, &size));
    if (strlen(data) != size)
        TRY_OUT(st, mst_fail(MST_EUSAGE, "%s: the list of hosts has a zero byte", path));
    rest = data;
    while (rest != NULL) {
        char *text = strsep(&rest, "\n");
        mst_host host;
        line++;
        TRY_OUT(st, plan_read_host(text, path, line, &host));
        if (host.name[0] == '\0')
            continue;
        for (size_t i = 0; i < plan->n_hosts; i++)
            if (strcmp(plan->hosts[i].name, host.name) == 0)
                TRY_OUT(st, mst_fail(MST_EUSAGE,
                                     "%s:%zu: the host %s is named twice; slots=N gives it more workers",
                                     path, line, host.name));
        if (plan->n_hosts == MST_CLUSTER_MAX)
            TRY_OUT(st, mst_fail(MST_EUSAGE, "%s:%zu: more than %d hosts", path, line, MST_CLUSTER_MAX));
        if (!mst_grow(&plan->hosts, &capacity, plan->n_hosts + 1, sizeof *plan->hosts))
            TRY_OUT(st, mst_fail_memory());
        plan->hosts[plan->n_hosts++] = host;
    }
    if (plan->n_hosts == 0)
        st = mst_fail(MST_EUSAGE, "%s: names no hosts; write one per line", path);
out:
    mst_free(data);
    return st;
}

/* ---- placement ---- */

/* The host for the next worker, looking from *at on in turn. */
static mst_status plan_next_host(const mst_plan_request *request, mst_plan *plan, size_t *at, uint32_t *out)
{
    for (size_t i = 0; i < plan->n_hosts; i++) {
        mst_host *host = &plan->hosts[*at];
        *out = (uint32_t)*at;
        *at = (*at + 1) % plan->n_hosts;
        if (host->n_workers < host->slots) {
            host->n_workers++;
            return MST_OK;
        }
    }
    return mst_fail(MST_EUSAGE, "%s: the hosts have fewer slots than --workers %u needs", request->hosts_file,
                    request->n_workers);
}

/* The host for the next server: hosts with slots=0 in turn if there are any, else all of them. */
static uint32_t plan_next_server(mst_plan *plan, size_t *at)
{
    bool own = false;
    for (size_t i = 0; i < plan->n_hosts; i++)
        own = own || plan->hosts[i].slots == 0;
    while (own && plan->hosts[*at].slots != 0)
        *at = (*at + 1) % plan->n_hosts;
    uint32_t found = (uint32_t)*at;
    plan->hosts[found].n_servers++;
    *at = (*at + 1) % plan->n_hosts;
    return found;
}

/* Removes the hosts that got no process. */
static void plan_drop_unused(mst_plan *plan)
{
    uint32_t kept = 0;
    for (uint32_t h = 0; h < plan->n_hosts; h++) {
        if (plan->hosts[h].n_workers + plan->hosts[h].n_servers == 0)
            continue;
        for (uint32_t i = 0; i < plan->n_members; i++)
            if (plan->members[i].host == h)
                plan->members[i].host = kept;
        plan->hosts[kept++] = plan->hosts[h];
    }
    plan->n_hosts = kept;
}

static mst_status plan_place(const mst_plan_request *request, mst_plan *plan)
{
    size_t worker_at = 0, server_at = 0;
    plan->members = mst_calloc((size_t)request->n_servers + request->n_workers, sizeof *plan->members);
    if (plan->members == NULL)
        return mst_fail_memory();
    plan->n_servers = request->n_servers;
    plan->n_workers = request->n_workers;
    plan->alone = request->alone;
    for (uint32_t i = 0; i < request->n_servers + request->n_workers; i++) {
        mst_launch_member *m = &plan->members[plan->n_members++];
        bool server = i < request->n_servers;
        m->role = server ? MST_ROLE_SERVER : MST_ROLE_WORKER;
        m->index = server ? i : i - request->n_servers;
        m->host = MST_HOST_LOCAL;
        if (request->alone)
            snprintf(m->name, sizeof m->name, "process");
        else
            snprintf(m->name, sizeof m->name, "%s %u", server ? "server" : "worker", m->index);
        if (plan->n_hosts > 0 && server)
            m->host = plan_next_server(plan, &server_at);
        else if (plan->n_hosts > 0)
            TRY(plan_next_host(request, plan, &worker_at, &m->host));
    }
    plan_drop_unused(plan);
    return MST_OK;
}

/* The address of a member that listens, the name of one that does not; the caller frees. */
static char *plan_address_of(const mst_plan_request *request, const mst_plan *plan,
                             const mst_launch_member *m)
{
    bool listens = m->role == MST_ROLE_SERVER || request->n_servers == 0;
    if (m->host == MST_HOST_LOCAL)
        return listens ? mst_sprintf("unix:@muster-%s-%s-%u", request->job,
                                     m->role == MST_ROLE_SERVER ? "server" : "worker", m->index)
                       : mst_strdup("localhost");
    const char *host = plan->hosts[m->host].address;
    return listens ? mst_sprintf("%s:%u", host, request->port + m->index) : mst_strdup(host);
}

static mst_status plan_make_cluster(const mst_plan_request *request, mst_plan *plan)
{
    mst_status st = MST_OK;
    char **addresses = mst_calloc(plan->n_members, sizeof *addresses);
    if (addresses == NULL)
        return mst_fail_memory();
    for (uint32_t i = 0; i < plan->n_members; i++) {
        addresses[i] = plan_address_of(request, plan, &plan->members[i]);
        if (addresses[i] == NULL)
            TRY_OUT(st, mst_fail_memory());
    }
    const char *const *all = (const char *const *)addresses;
    st = mst_cluster_make(all, plan->n_servers, all + plan->n_servers, plan->n_workers, &plan->cluster);
out:
    for (uint32_t i = 0; i < plan->n_members; i++)
        mst_free(addresses[i]);
    mst_free(addresses);
    return st;
}

/* Leaves the first max_hosts hosts that have slots, and the hosts for servers. */
static mst_status plan_limit_hosts(const mst_plan_request *request, mst_plan *plan)
{
    size_t n = 0, kept = 0;
    for (size_t h = 0; h < plan->n_hosts; h++)
        if (plan->hosts[h].slots == 0 || n++ < request->max_hosts || request->max_hosts == 0)
            plan->hosts[kept++] = plan->hosts[h];
    plan->n_hosts = kept;
    if (n == 0)
        return mst_fail(MST_EUSAGE, "%s: all hosts have slots=0, so none is left for workers",
                        request->hosts_file);
    if (n < request->max_hosts)
        return mst_fail(MST_EUSAGE, "%s: names %zu hosts for workers; --deploy needs %u", request->hosts_file,
                        n, request->max_hosts);
    return MST_OK;
}

mst_status mst_plan_make(const mst_plan_request *request, mst_plan *out)
{
    mst_status st = MST_OK;
    mst_plan plan = {0};
    uint32_t listening = request->n_servers > 0 ? request->n_servers : request->n_workers;
    if (request->hosts_file != NULL) {
        TRY_OUT(st, plan_read_hosts(request->hosts_file, &plan));
        TRY_OUT(st, plan_limit_hosts(request, &plan));
        if (request->port + listening - 1 > 65535)
            TRY_OUT(st, mst_fail(MST_EUSAGE, "--port %u: the last of %u ports would be above 65535",
                                 request->port, listening));
    }
    TRY_OUT(st, plan_place(request, &plan));
    TRY_OUT(st, plan_make_cluster(request, &plan));
    *out = plan;
    plan = (mst_plan){0};
out:
    mst_plan_fini(&plan);
    return st;
}

mst_status mst_plan_slots(const char *hosts_file, uint32_t *out)
{
    mst_plan plan = {0};
    uint64_t n = 0;
    mst_status st = plan_read_hosts(hosts_file, &plan);
    for (size_t i = 0; i < plan.n_hosts; i++)
        n += plan.hosts[i].slots != MST_SLOTS_ANY ? plan.hosts[i].slots : 1;
    mst_plan_fini(&plan);
    TRY(st);
    if (n > MST_CLUSTER_MAX)
        return mst_fail(MST_EUSAGE, "%s: the hosts have more than %d slots", hosts_file, MST_CLUSTER_MAX);
    *out = (uint32_t)n;
    return MST_OK;
}

void mst_plan_fini(mst_plan *plan)
{
    mst_free(plan->hosts);
    mst_free(plan->members);
    mst_cluster_fini(&plan->cluster);
    *plan = (mst_plan){0};
}

void mst_plan_describe(const mst_plan *plan, size_t h, mst_string *out)
{
    const char *separator = ": ";
    mst_string_add(out, plan->n_hosts > 0 ? plan->hosts[h].name : "this host");
    for (uint32_t i = 0; i < plan->n_members; i++) {
        if (plan->n_hosts > 0 && plan->members[i].host != h)
            continue;
        mst_string_format(out, "%s%s", separator, plan->members[i].name);
        separator = ", ";
    }
}

const char *mst_plan_count(const mst_plan *plan, uint32_t n_added, char *out, size_t size)
{
    if (plan->alone) {
        snprintf(out, size, "1 process");
        return out;
    }
    char servers[32] = "";
    if (plan->n_servers > 0)
        snprintf(servers, sizeof servers, "%u server%s and ", plan->n_servers,
                 plan->n_servers == 1 ? "" : "s");
    uint32_t n_workers = plan->n_workers + n_added;
    snprintf(out, size, "%s%u worker%s", servers, n_workers, n_workers == 1 ? "" : "s");
    return out;
}
