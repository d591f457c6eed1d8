/* The network of a verdict's facts (verdict_impl.h): the paths between hosts, the use of their links, and
 * round trips. */
#include <math.h>
#include <string.h>

#include "report/verdict_impl.h"

/* ---- paths between hosts ---- */

/* The path that `a` has measured to `b`; NAN: none, or they are on one host. */
static mst_process_path facts_path_of(const mst_process_use *a, const mst_process_use *b)
{
    int64_t index = b->process != NULL ? b->process->index : -1;
    return a->process != NULL && index >= 0 && index < MST_PROCESS_PATHS_MAX && mst_facts_apart(a, b)
               ? a->process->paths[index]
               : (mst_process_path){NAN, NAN};
}

/* One direction of a link: the fastest path that uses it, and the sum of all. NAN: none is known. */
typedef struct facts_capacity {
    double fastest, sum;
    size_t paths;
} facts_capacity;

static void facts_add_path(facts_capacity *to, double bits_per_s)
{
    to->fastest = fmax(to->fastest, bits_per_s / 8); /* of NAN and a number: the number */
    to->sum += mst_or_zero(bits_per_s / 8);
    to->paths += !isnan(bits_per_s);
}

/* The use of one direction; *bytes: its capacity. NAN if the link carries more than any of several paths,
 * and half as much as all of them or more: then the paths are slow at their other ends, and the capacity here
 * is not known; and NAN without traffic. */
static double facts_use_of(const facts_capacity *c, const mst_column_use *traffic, double *bytes)
{
    bool elsewhere =
        c->paths > 1 && traffic->peak > MST_VERDICT_ENDS * c->fastest && 2 * traffic->peak > c->sum;
    *bytes = fmax(c->fastest, traffic->peak);
    return elsewhere || isnan(traffic->rate) ? NAN : fmin(1, traffic->rate / *bytes);
}

/* The resources of the host: a server that is a thread of a worker has no file of its own. */
static const mst_csv *facts_resources(const mst_facts *f, const mst_process_use *p)
{
    for (size_t i = 0; p->process->resources.n_rows == 0 && i < f->n_workers; i++)
        if (!mst_facts_apart(p, &f->workers[i]) && f->workers[i].process->resources.n_rows > 0)
            return &f->workers[i].process->resources;
    return &p->process->resources;
}

/* The link of a process, by its paths to the n others. If no path was measured one way, both ways are alike.
 */
static void facts_take_paths(const mst_facts *f, mst_process_use *to, const mst_process_use *others, size_t n,
                             double from, double until)
{
    facts_capacity in = {.fastest = NAN}, out = in;
    double trip = NAN, in_bytes, out_bytes;
    size_t beside = 0;
    for (size_t i = 0; i < n; i++) {
        mst_process_path there = facts_path_of(to, &others[i]), back = facts_path_of(&others[i], to);
        facts_add_path(&out, there.bits_per_s);
        facts_add_path(&in, back.bits_per_s);
        trip = fmax(trip, fmin(there.trip_s, back.trip_s));
        beside += !mst_facts_apart(to, &others[i]);
    }
    to->trip_s = n > 0 && beside == n ? 0 : trip;
    if (isnan(in.fastest) && isnan(out.fastest))
        return;
    in = isnan(in.fastest) ? out : in;
    out = isnan(out.fastest) ? in : out;
    const mst_csv *resources = facts_resources(f, to);
    mst_column_use received = mst_facts_column(resources, "net_in", from, until);
    mst_column_use sent = mst_facts_column(resources, "net_out", from, until);
    to->link_in = facts_use_of(&in, &received, &in_bytes);
    to->link_out = facts_use_of(&out, &sent, &out_bytes);
    to->link_bytes = to->link_in > to->link_out ? in_bytes : out_bytes;
}

/* Round trips of a step: a synchronous one is one, since the push and the next pull travel together. */
static double facts_trips(const mst_facts *f)
{
    double replicas = mst_run_data_option_real(f->run, "replicas");
    return 1 + (f->quorum < (double)f->n_workers && f->n_servers > 1 ? 0.5 : 0) + (replicas > 0 ? 1 : 0);
}

void mst_facts_classes(const mst_facts *f, mst_facts_class out[2])
{
    out[0] = out[1] = (mst_facts_class){0};
    for (size_t i = 0; i < f->n_workers; i++) {
        const mst_process_use *w = &f->workers[i];
        mst_facts_class *c = &out[f->trip_s > 0 && w->trip_s == 0];
        if (!(w->seconds > 0) || !(w->steps > 0))
            continue;
        c->n++;
        c->steps_per_s += w->steps / w->seconds;
        c->own_s += w->own_s;
        c->wait_s += w->wait_s;
        c->step_s += w->seconds / w->steps;
        c->trip_s += mst_or_zero(w->trip_s);
    }
    for (size_t k = 0; k < 2; k++) {
        double *means[] = {&out[k].own_s, &out[k].wait_s, &out[k].step_s, &out[k].trip_s};
        for (size_t i = 0; i < sizeof means / sizeof *means; i++)
            *means[i] /= fmax(1, out[k].n);
    }
}

/* The share of round trips: in lockstep those of the farthest worker, otherwise each worker's own, of which
 * several requests in flight share one. */
static void facts_take_latency(mst_facts *f)
{
    double sum = 0, n = 0;
    f->latency = f->trip_s = NAN;
    for (size_t i = 0; i < f->n_workers; i++) {
        const mst_process_use *w = &f->workers[i];
        if (isnan(w->trip_s) || !(w->steps > 0) || !(w->seconds > 0))
            continue;
        if (!(w->trip_s <= f->trip_s)) {
            f->trip_s = w->trip_s;
            f->far_worker = i;
        }
        sum += w->trip_s * w->steps / w->seconds;
        n++;
    }
    double pipeline = mst_run_data_option_real(f->run, "pipeline");
    if (n == 0)
        return;
    mst_facts_class c[2];
    mst_facts_classes(f, c);
    f->one_far = c[0].n == 1 && c[1].n > 0;
    f->latency = f->lockstep ? f->trip_s / f->step_s : sum / n / (pipeline > 0 ? 1 + pipeline : 1);
    f->latency = fmin(1, f->latency * facts_trips(f));
}

/* The processes of a list that are on the host of another one, and their bytes. */
static double facts_beside(const mst_process_use *p, const mst_process_use *list, size_t n, double *bytes)
{
    double count = 0;
    *bytes = 0;
    for (size_t i = 0; i < n; i++)
        if (!mst_facts_apart(p, &list[i])) {
            count++;
            *bytes += list[i].bytes_in + list[i].bytes_out;
        }
    return count;
}

/* The link of a server's host carries the server's messages with workers elsewhere, and those of the workers
 * beside it with servers elsewhere. */
static void facts_take_served(const mst_facts *f, mst_process_use *s)
{
    double of_servers, of_workers, n_servers = (double)f->n_servers, n_workers = (double)f->n_workers;
    double servers = facts_beside(s, f->servers, f->n_servers, &of_servers);
    double workers = facts_beside(s, f->workers, f->n_workers, &of_workers);
    of_servers *= (n_workers - workers) / n_workers;
    of_workers *= (n_servers - servers) / n_servers;
    s->link_served = of_servers > 0 ? of_servers / (of_servers + of_workers) : 1;
}

double mst_facts_lockstep_link(const mst_facts *f, const mst_process_use *s, double push, double answer)
{
    mst_facts_class c[2];
    mst_facts_classes(f, c);
    double served = s->link_served > 0 ? s->link_served : 1,
           bytes = f->pull_bytes / fmax(1, (double)f->n_servers);
    /* workers beside it push while others push to it */
    double in = fmax(s->link_in * served, s->link_out * (1 - served)) * push;
    double out = fmax(s->link_out * served, s->link_in * (1 - served)) * answer;
    /* a direction carries its bytes one after the other */
    double both_in = s->link_in * (served * push + (1 - served) * answer);
    double both_out = s->link_out * (served * answer + (1 - served) * push);
    return fmin(1, fmax(fmax(both_in, both_out), mst_step_link(in, out, c[0].n, answer * bytes)));
}

/* In lockstep the transfers of a step in both directions are sequential, as far as all workers take part;
 * otherwise they overlap. NAN: no speed is known. */
static double facts_link_use(const mst_facts *f, const mst_process_use *p, bool server)
{
    double both = p->link_in + p->link_out;
    if (isnan(both))
        return NAN;
    return !f->lockstep ? fmax(p->link_in, p->link_out)
           : server     ? mst_facts_lockstep_link(f, p, 1, 1)
                        : fmin(1, both);
}

/* The busiest link of servers, and of hosts with workers only. */
static void facts_take_busiest(mst_facts *f)
{
    for (size_t i = 0; i < f->n_servers; i++) {
        double link = facts_link_use(f, &f->servers[i], true);
        if (!(link <= f->server_link) && !isnan(link)) {
            f->server_link = link;
            f->linked_server = i;
        }
    }
    for (size_t i = 0; i < f->n_workers; i++) {
        double link = facts_link_use(f, &f->workers[i], false), bytes;
        bool beside = facts_beside(&f->workers[i], f->servers, f->n_servers, &bytes) > 0;
        if (!(link <= f->worker_link) && !isnan(link) &&
            !beside) { /* the link of a server is counted there */
            f->worker_link = link;
            f->linked_worker = i;
        }
    }
    /* Both ends carry the same bytes: the more used one counts. Capacities are lower bounds, and workers that
     * share the link of a server may measure parts of it. */
    f->link_at_worker = !isnan(f->worker_link) && !(f->server_link * MST_VERDICT_ENDS >= f->worker_link);
    size_t known = 0, faster = 0;
    for (size_t i = 0; f->link_at_worker && i < f->n_workers; i++) {
        known += !isnan(f->workers[i].link_bytes);
        faster += f->workers[i].link_bytes >= 2 * f->workers[f->linked_worker].link_bytes;
    }
    f->slow_link = faster > 0 && 2 * faster >= known;
}

void mst_facts_take_network(mst_facts *f, double from, double to)
{
    for (size_t i = 0; i < f->n_servers; i++)
        facts_take_paths(f, &f->servers[i], f->workers, f->n_workers, from, to);
    for (size_t i = 0; i < f->n_workers && f->n_servers > 0; i++)
        facts_take_paths(f, &f->workers[i], f->servers, f->n_servers, from, to);
    for (size_t i = 0; i < f->n_servers; i++)
        facts_take_served(f, &f->servers[i]);
    facts_take_latency(f);
    facts_take_busiest(f);
}
