/* Contract in host_traffic.h. */
#include "report/host_traffic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Bytes from one process to another: as its sender and as its receiver count them. */
typedef struct flow {
    size_t from, to; /* of run->processes */
    double sent, received;
} flow;

typedef struct flow_list {
    flow *items;
    size_t n, capacity;
} flow_list;

static mst_status flows_add(flow_list *self, flow f)
{
    if (!mst_grow(&self->items, &self->capacity, self->n + 1, sizeof *self->items))
        return mst_fail_memory();
    self->items[self->n++] = f;
    return MST_OK;
}

/* The process of a name; n_processes: none. Lines name the processes in turn, so *at is often the next. */
static size_t traffic_find(const mst_run_data *run, const char *name, size_t *at)
{
    for (size_t i = 0; i < run->n_processes; i++) {
        size_t p = (*at + i) % run->n_processes;
        if (strcmp(run->processes[p]->name, name) == 0) {
            *at = (p + 1) % run->n_processes;
            return p;
        }
    }
    return run->n_processes;
}

/* The counts of one process, summed over the lines of its file. */
static mst_status traffic_read(const mst_run_data *run, size_t p, flow *sums, flow_list *out)
{
    const mst_csv *csv = &run->processes[p]->traffic;
    size_t name = mst_csv_column(csv, "process"), in = mst_csv_column(csv, "bytes_in"),
           sent = mst_csv_column(csv, "bytes_out"), at = 0;
    memset(sums, 0, run->n_processes * sizeof *sums);
    for (size_t row = 0; row < csv->n_rows; row++) {
        size_t q = traffic_find(run, mst_csv_text(csv, row, name), &at);
        if (q == run->n_processes)
            continue;
        sums[q].received += fmax(mst_csv_value(csv, row, in), 0); /* of NAN and a number: the number */
        sums[q].sent += fmax(mst_csv_value(csv, row, sent), 0);
    }
    for (size_t q = 0; q < run->n_processes; q++) {
        if (sums[q].sent > 0)
            TRY(flows_add(out, (flow){.from = p, .to = q, .sent = sums[q].sent}));
        if (sums[q].received > 0)
            TRY(flows_add(out, (flow){.from = q, .to = p, .received = sums[q].received}));
    }
    return MST_OK;
}

static int flow_compare(const void *a, const void *b)
{
    const flow *x = a, *y = b;
    return x->from != y->from ? (x->from > y->from) - (x->from < y->from) : (x->to > y->to) - (x->to < y->to);
}

/* Joins the counts of both ends. */
static void flows_join(flow_list *self)
{
    size_t n = 0;
    if (self->n > 0)
        qsort(self->items, self->n, sizeof *self->items, flow_compare);
    for (size_t i = 0; i < self->n; i++)
        if (n > 0 && flow_compare(&self->items[n - 1], &self->items[i]) == 0) {
            self->items[n - 1].sent += self->items[i].sent;
            self->items[n - 1].received += self->items[i].received;
        } else {
            self->items[n++] = self->items[i];
        }
    self->n = n;
}

/* The number of a process's host; it is added if it is new. hosts has room for all processes. */
static size_t traffic_host(mst_host_traffic *self, const char *host)
{
    size_t h = 0;
    while (h < self->n_hosts && strcmp(self->hosts[h], host) != 0)
        h++;
    if (h == self->n_hosts)
        self->hosts[self->n_hosts++] = host;
    return h;
}

mst_status mst_host_traffic_of(const mst_run_data *run, mst_host_traffic *out)
{
    mst_status st = MST_OK;
    mst_host_traffic t = {0};
    flow_list flows = {0};
    flow *sums = mst_calloc(run->n_processes + 1, sizeof *sums);
    size_t *host_of = mst_calloc(run->n_processes + 1, sizeof *host_of);
    t.hosts = mst_calloc(run->n_processes + 1, sizeof *t.hosts);
    if (sums == NULL || host_of == NULL || t.hosts == NULL)
        TRY_OUT(st, mst_fail_memory());
    for (size_t p = 0; p < run->n_processes; p++)
        TRY_OUT(st, traffic_read(run, p, sums, &flows));
    flows_join(&flows);
    for (size_t p = 0; p < run->n_processes; p++) { /* hosts in the order of processes */
        bool any = false;
        for (size_t i = 0; i < flows.n && !any; i++)
            any = flows.items[i].from == p || flows.items[i].to == p;
        host_of[p] = any ? traffic_host(&t, run->processes[p]->host) : 0;
    }
    t.bytes = mst_calloc(t.n_hosts * t.n_hosts + 1, sizeof *t.bytes);
    if (t.bytes == NULL)
        TRY_OUT(st, mst_fail_memory());
    for (size_t i = 0; i < flows.n; i++) {
        const flow *f = &flows.items[i];
        t.bytes[host_of[f->from] * t.n_hosts + host_of[f->to]] += fmax(f->sent, f->received);
    }
    *out = t;
    t = (mst_host_traffic){0};
out:
    mst_host_traffic_fini(&t);
    mst_free(flows.items);
    mst_free(sums);
    mst_free(host_of);
    return st;
}

void mst_host_traffic_fini(mst_host_traffic *self)
{
    mst_free(self->hosts);
    mst_free(self->bytes);
    *self = (mst_host_traffic){0};
}
