/* The cluster spec: lists, checks, texts; contract in cluster.h. Reading it is in cluster_read.c.
 *
 * Invariants of a cluster that was handed out:
 * 1. 1 to MST_CLUSTER_MAX workers and servers; colocated exactly when the source named no servers.
 * 2. Every server's address is well formed and different from every other address with a port.
 * 3. source and secret are not NULL. */
#include "net/cluster.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "net/cluster_impl.h"

const mst_deploy_preset mst_deploy_presets[] = {
    {"single", 0, 1}, {"cluster", 1, 2}, {"cluster2", 1, 3}, {NULL, 0, 0}};

#define UNIX_MAX 107 /* of sockaddr_un.sun_path, its NUL or the abstract name's leading one taken off */
#define HOST_MAX 253

/* ---- addresses ---- */

static bool cluster_is_host_letter(char c, bool in_brackets)
{
    return isalnum((unsigned char)c) || c == '.' || c == '-' || c == '_' ||
           (in_brackets && (c == ':' || c == '%'));
}

static const char *cluster_unix_fault(const char *rest)
{
    if (*rest != '@' && *rest != '/')
        return "needs @NAME or /PATH after unix:";
    if (rest[1] == '\0')
        return "has no name after unix:";
    return strlen(rest) > UNIX_MAX ? "is longer than the 107 bytes of a Unix socket's name" : NULL;
}

static const char *cluster_port_fault(const char *port)
{
    size_t digits = strspn(port, "0123456789");
    if (digits == 0 || port[digits] != '\0')
        return "has a port that is not a number";
    if (digits > 5 || atoi(port) < 1 || atoi(port) > 65535)
        return "has a port that is not between 1 and 65535";
    return NULL;
}

const char *mst_address_fault(const char *text, bool bare_host_will_do)
{
    if (strncmp(text, "unix:", 5) == 0)
        return cluster_unix_fault(text + 5);
    bool brackets = *text == '[';
    const char *host = text + brackets, *end = host;
    while (cluster_is_host_letter(*end, brackets))
        end++;
    if (end == host)
        return *text == '\0' ? "is empty" : *text == ':' ? "has no host before its port" : "is not a host";
    if (*host == '-')
        return "begins with a dash; a host name does not"; /* nor may it pass for an option of ssh */
    if (end - host > HOST_MAX)
        return "has a host of more than 253 characters";
    if (brackets && *end != ']')
        return "lacks the closing bracket of an IPv6 host";
    end += brackets;
    if (*end == '\0')
        return bare_host_will_do ? NULL : "has no port";
    if (*end != ':')
        return "is not host:port";
    if (!brackets && strchr(end + 1, ':') != NULL)
        return "has several colons; an IPv6 host goes in brackets";
    return cluster_port_fault(end + 1);
}

const char *mst_address_host(const char *text, char *out, size_t size)
{
    bool brackets = *text == '[';
    size_t n = strncmp(text, "unix:", 5) == 0 ? 0 : strcspn(text + brackets, brackets ? "]" : ":");
    snprintf(out, size, "%.*s", (int)n, text + brackets);
    return out;
}

/* ---- lists ---- */

mst_status mst_cluster_begin(mst_cluster *c, const char *source)
{
    *c = (mst_cluster){.source = mst_strdup(source), .secret = mst_strdup("")};
    return c->source != NULL && c->secret != NULL ? MST_OK : mst_fail_memory();
}

mst_status mst_cluster_settle(mst_status st, mst_cluster *c, mst_cluster *out)
{
    if (st == MST_OK)
        *out = *c;
    else
        mst_cluster_fini(c);
    return st;
}

static void cluster_take_workers(mst_cluster *c, mst_text_list *list)
{
    c->workers = list->items;
    c->n_workers = (uint32_t)list->n;
    *list = (mst_text_list){0};
}

static void cluster_take_servers(mst_cluster *c, mst_text_list *list)
{
    c->servers = list->items;
    c->n_servers = (uint32_t)list->n;
    *list = (mst_text_list){0};
}

static bool cluster_has_port(const char *address)
{
    const char *end = strrchr(address, ']');
    return strchr(end != NULL ? end : address, ':') != NULL;
}

/* An address, and whose it is. */
typedef struct entry {
    const char *address;
    int list; /* 0: servers, 1: workers */
    size_t number;
} entry;

static int cluster_by_address(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    int order = strcmp(x->address, y->address);
    if (order == 0 && x->list != y->list)
        return x->list < y->list ? -1 : 1;
    return order != 0 ? order : (x->number > y->number) - (x->number < y->number);
}

/* No address is named twice, be it as a server or as a worker; bare hosts may be. */
static mst_status cluster_check_twice(const mst_cluster *c, const mst_text_list *servers,
                                      const mst_text_list *workers, const mst_cluster_keys *keys)
{
    size_t n = 0;
    mst_status st = MST_OK;
    entry *all = mst_calloc(servers->n + workers->n + 1, sizeof *all);
    if (all == NULL)
        return mst_fail_memory();
    for (size_t i = 0; i < servers->n; i++)
        all[n++] = (entry){servers->items[i], 0, i + 1};
    for (size_t i = 0; i < workers->n; i++)
        if (cluster_has_port(workers->items[i]))
            all[n++] = (entry){workers->items[i], 1, i + 1};
    qsort(all, n, sizeof *all, cluster_by_address);
    for (const entry *e = all + 1; e < all + n && st == MST_OK; e++)
        if (strcmp(e->address, e[-1].address) == 0)
            st =
                mst_fail(MST_EUSAGE, "%s: the address %s is named twice: entry %zu of %s and entry %zu of %s",
                         c->source, e->address, e[-1].number, e[-1].list == 0 ? keys->servers : keys->workers,
                         e->number, e->list == 0 ? keys->servers : keys->workers);
    mst_free(all);
    return st;
}

static mst_status cluster_check_list(const mst_cluster *c, const mst_text_list *list, const char *key,
                                     bool bare, const char *reason)
{
    if (list->n > MST_CLUSTER_MAX)
        return mst_fail(MST_EUSAGE, "%s: %s has %zu entries; at most %d are possible", c->source, key,
                        list->n, MST_CLUSTER_MAX);
    for (size_t i = 0; i < list->n; i++) {
        const char *fault = mst_address_fault(list->items[i], bare);
        if (fault != NULL)
            return mst_fail(MST_EUSAGE, "%s: %s: entry %zu (%s) %s%s", c->source, key, i + 1, list->items[i],
                            fault, strcmp(fault, "has no port") == 0 ? reason : "");
    }
    return MST_OK;
}

static mst_status cluster_copy_servers(mst_cluster *c)
{
    c->servers = mst_calloc(c->n_workers, sizeof *c->servers);
    for (uint32_t i = 0; c->servers != NULL && i < c->n_workers; i++) {
        c->servers[i] = mst_strdup(c->workers[i]);
        if (c->servers[i] == NULL)
            break;
        c->n_servers++;
    }
    return c->servers != NULL && c->n_servers == c->n_workers ? MST_OK : mst_fail_memory();
}

mst_status mst_cluster_fill(mst_cluster *c, mst_text_list *servers, mst_text_list *workers,
                            const mst_cluster_keys *keys)
{
    bool colocated = servers->n == 0;
    if (workers->n == 0)
        return mst_fail(MST_EUSAGE, "%s: names no workers; list them under %s", c->source, keys->workers);
    TRY(cluster_check_list(c, servers, keys->servers, false, "; servers listen at host:port"));
    TRY(cluster_check_list(c, workers, keys->workers, !colocated,
                           "; without servers every worker hosts one, and listens at host:port"));
    TRY(cluster_check_twice(c, servers, workers, keys));
    cluster_take_workers(c, workers);
    c->colocated = colocated;
    if (colocated)
        return cluster_copy_servers(c);
    cluster_take_servers(c, servers);
    return MST_OK;
}

mst_status mst_cluster_make(const char *const *servers, size_t n_servers, const char *const *workers,
                            size_t n_workers, mst_cluster *out)
{
    static const mst_cluster_keys keys = {"servers", "workers"};
    mst_status st;
    mst_text_list lists[2] = {{0}, {0}};
    mst_cluster c;
    TRY_OUT(st, mst_cluster_begin(&c, "the cluster"));
    for (size_t i = 0; i < n_servers; i++)
        TRY_OUT(st, mst_text_list_add(&lists[0], servers[i]));
    for (size_t i = 0; i < n_workers; i++)
        TRY_OUT(st, mst_text_list_add(&lists[1], workers[i]));
    st = mst_cluster_fill(&c, &lists[0], &lists[1], &keys);
out:
    mst_text_list_fini(&lists[0]);
    mst_text_list_fini(&lists[1]);
    return mst_cluster_settle(st, &c, out);
}

mst_status mst_cluster_of_ranks(uint32_t size, uint32_t n_servers, mst_cluster *out)
{
    mst_status st;
    mst_text_list lists[2] = {{0}, {0}};
    char name[32];
    mst_cluster c;
    TRY_OUT(st, mst_cluster_begin(&c, "MPI"));
    c.ranks = true;
    for (uint32_t i = 0; i < size; i++) {
        snprintf(name, sizeof name, "mpi:%u", i);
        TRY_OUT(st, mst_text_list_add(&lists[i >= n_servers], name));
    }
    for (int i = 0; i < 2; i++)
        if (lists[i].n == 0 || lists[i].n > MST_CLUSTER_MAX)
            TRY_OUT(st, mst_fail(MST_EUSAGE,
                                 "%u ranks with %u servers: there must be 1 to %d servers and workers", size,
                                 n_servers, MST_CLUSTER_MAX));
    cluster_take_servers(&c, &lists[0]);
    cluster_take_workers(&c, &lists[1]);
out:
    mst_text_list_fini(&lists[0]);
    mst_text_list_fini(&lists[1]);
    return mst_cluster_settle(st, &c, out);
}

void mst_cluster_fini(mst_cluster *c)
{
    for (uint32_t i = 0; i < c->n_servers; i++)
        mst_free(c->servers[i]);
    for (uint32_t i = 0; i < c->n_workers; i++)
        mst_free(c->workers[i]);
    mst_free(c->servers);
    mst_free(c->workers);
    mst_free(c->source);
    if (c->secret != NULL)
        explicit_bzero(c->secret, strlen(c->secret));
    mst_free(c->secret);
    *c = (mst_cluster){0};
}

/* ---- texts ---- */

static bool cluster_add_names(json_t *object, const char *key, char *const *names, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        if (json_array_append_new(list, json_string(names[i])) != 0) {
            json_decref(list);
            return false;
        }
    return json_object_set_new(object, key, list) == 0;
}

char *mst_cluster_text(const mst_cluster *c)
{
    json_t *object = json_object();
    char *text = NULL, *copy;
    if (cluster_add_names(object, "servers", c->servers, c->colocated ? 0 : c->n_servers) &&
        cluster_add_names(object, "workers", c->workers, c->n_workers))
        text = json_dumps(object, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(object);
    copy = text != NULL ? mst_strdup(text) : NULL;
    free(text);
    return copy;
}

/* True when the lists differ, with the difference in out. */
static bool cluster_differ(const char *key, char *const *here, uint32_t n_here, char *const *there,
                           uint32_t n_there, char *out, size_t size)
{
    if (n_here != n_there) {
        snprintf(out, size, "%s: %u here and %u there", key, n_here, n_there);
        return true;
    }
    for (uint32_t i = 0; i < n_here; i++) {
        if (strcmp(here[i], there[i]) != 0) {
            snprintf(out, size, "%s: entry %u is %s here and %s there", key, i + 1, here[i], there[i]);
            return true;
        }
    }
    return false;
}

const char *mst_cluster_difference(const mst_cluster *here, const mst_cluster *there, char *out, size_t size)
{
    *out = '\0';
    if (here->colocated != there->colocated)
        snprintf(out, size, "servers: %s here and %s there", here->colocated ? "none" : "some",
                 there->colocated ? "none" : "some");
    else if (!cluster_differ("servers", here->servers, here->n_servers, there->servers, there->n_servers, out,
                             size))
        cluster_differ("workers", here->workers, here->n_workers, there->workers, there->n_workers, out,
                       size);
    return out;
}

mst_status mst_cluster_check_index(const mst_cluster *c, mst_role role, uint32_t index)
{
    bool server = role == MST_ROLE_SERVER;
    uint32_t n = server ? c->n_servers : c->n_workers;
    if (server && c->colocated)
        return mst_fail(MST_EUSAGE, "%s: names no servers, so every worker hosts one; there is no server %u",
                        c->source, index);
    if (index < n)
        return MST_OK;
    const char *noun = server ? "server" : "worker";
    if (n == 1)
        return mst_fail(MST_EUSAGE, "%s: there is no %s %u; the cluster has one, %s 0", c->source, noun,
                        index, noun);
    return mst_fail(MST_EUSAGE, "%s: there is no %s %u; the cluster has %u, from 0 to %u", c->source, noun,
                    index, n, n - 1);
}
