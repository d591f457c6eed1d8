/* Declarations shared by the verdict files: the facts (verdict_facts.c, verdict_network.c), the table of
 * causes (verdict_sentences.c), and the advice by a model of a step (verdict_advice.c). The rules are in
 * verdict.c.
 */
#ifndef MST_REPORT_VERDICT_IMPL_H
#define MST_REPORT_VERDICT_IMPL_H

#include <string.h>

#include "report/figures.h"
#include "report/step_model.h"
#include "report/verdict.h"
#include "report/verdict_thresholds.h"

/* One process in the training window. Rates are per second of wall time; NAN: not known. */
typedef struct mst_process_use {
    const mst_process_data *process; /* NULL: of a manifest without processes/ */
    char name[208];
    double seconds, thread_seconds, steps, rows;
    double bytes_in, bytes_out; /* of messages */
    double share[MST_COSTS];    /* of thread_seconds */
    double own_s;               /* own work of a step: seconds, without waits */
    double wait_s;              /* waits of a step for weights or others */
    double cpu;                 /* cores that the process used */
    double cores;               /* of the host */
    double host_busy;           /* of all cores of the host, 0 to 1 */
    double busiest;             /* mean of the busiest core, 0 to 1 */
    double iowait;              /* cores' worth */
    double read_rate, fault_rate;
    double delay;             /* cores for which the process was runnable but not running; NAN: not known */
    double ran, parsing;      /* cores used for training; cores that no phase explains */
    double held;              /* share of training in which steps waited only for this worker */
    double link_in, link_out; /* use of the busiest link whose capacity is known, 0 to 1 */
    double link_bytes;        /* bytes/s of that capacity */
    double link_served; /* of a server: its part of the bytes on that link, which workers beside it share */
    double trip_s;      /* a worker's longest round trip to a server; 0: all are on its host */
} mst_process_use;

/* Evaluations, or checkpoints, by marks.csv. */
typedef struct mst_events {
    bool known;
    double all, during; /* during: before the last step */
    double spacing;     /* steps from one to the next; NAN: not known */
} mst_events;

typedef struct mst_facts {
    const mst_run_data *run;
    mst_run_figures figures;
    mst_loss_figures losses;
    mst_process_use *workers, *servers; /* workers: the processes that train */
    size_t n_workers, n_servers;
    /* of a run that was resumed with other processes: the time and step of that; NAN: the whole run counts */
    double since, since_step;
    bool spans;           /* from spans.csv; else from the manifest only */
    bool ps;              /* there are servers, in this process or others */
    bool ranks;           /* workers are ranks that add up their gradients */
    bool hosted;          /* servers are threads of the workers' processes, each with a share of the model */
    bool given_allreduce; /* such workers stand for ranks */
    double quorum;        /* workers that a step waits for */
    const char *launcher; /* of an MPI job, from the manifest; NULL: not known */
    bool busy_poll;       /* processes poll while they wait: their CPU time is no work */
    bool lockstep;        /* workers wait for each other: sync or ssp */
    bool crowded;         /* several processes or threads of the run saturate the cores of a host */
    const mst_process_use
        *guest; /* the process on the host where other programs use most; the cores that they use */
    double others;
    const char *pipe; /* the name of the pipe that rows come from; NULL: from files */
    bool parses;      /* rows come from text, and not from a cache of it */
    /* mean cores of a worker's process: for training, and those that no phase explains, which are parsing if
     * it parses; NAN: not known */
    double training, parsing;
    bool cores_full; /* the cores that the workers may use are saturated */
    /* parsing waits for the source of rows: it is neither running nor runnable in half of the time in which
     * training waits for rows */
    bool source_waits;
    mst_events evaluations, saves;
    bool sparse;                   /* only the keys of a batch travel */
    double rows_per_s, step_s;     /* of a typical worker: wall time of a step */
    double trained_s;              /* wall time that the verdict covers */
    double eval_share;             /* of the wall time of the run */
    double pull_bytes, push_bytes; /* of a worker's step: what it receives and sends */
    /* ---- by the rules ---- */
    double typical[MST_COSTS]; /* mean share of the workers that do not straggle */
    double own, wait;          /* of those */
    double slowest_ratio;      /* own work of the slowest over the median's; NAN: one worker */
    size_t slowest;            /* index; of those that a step waits for */
    double held;               /* of the worker that steps are held open for, beyond any other's */
    size_t held_worker;
    bool apart;          /* workers and servers, or ranks, are on different hosts, or it is not known */
    bool link_at_worker; /* the link of linked_worker is more used than any server's */
    bool slow_link;      /* and has at most half the capacity of half of the workers' */
    double latency;      /* share of round trips, whether waits or overlapped with work; NAN: not known */
    double trip_s;       /* longest round trip, that of far_worker; NAN: not known */
    size_t far_worker;
    bool one_far; /* all other workers are on the hosts of the servers */
    /* cores for which processes of the run waited; without lockstep a worker waits for its own and for those
     * of one server; INFINITY: not known */
    double core_waits;
    double shared_cores; /* all processes share the cores of one machine: the part of them that they use */
    double server_busy, server_link, worker_link; /* 0 to 1; links NAN when no speed is known */
    double server_apply, server_serve;            /* of the busiest server */
    size_t busiest_server, linked_server, linked_worker;
} mst_facts;

/* Bytes of a worker's step, both ways. */
static inline double mst_facts_bytes(const mst_facts *self)
{
    return self->pull_bytes + self->push_bytes;
}

/* The use of a server's link in lockstep, if pushes and answers have these parts of their present bytes. */
double mst_facts_lockstep_link(const mst_facts *self, const mst_process_use *server, double push,
                               double answer);

/* One process trains, by its threads. */
static inline bool mst_facts_alone(const mst_facts *self)
{
    return self->workers != NULL && self->n_workers == 1 && strcmp(self->workers[0].name, "local") == 0;
}

/* The threads of the first worker that have a core each, by the cores of its host, the workers there and its
 * CPU quota; NAN: not known. */
double mst_facts_room(const mst_facts *self);

/* The noun of sentences: "worker", "rank" or "thread". */
static inline const char *mst_facts_noun(const mst_facts *self)
{
    return self->ranks ? "rank" : mst_facts_alone(self) ? "thread" : "worker";
}

/* Workers beside the servers (`near`) and the others, without lockstep. */
typedef struct mst_facts_class {
    double n, steps_per_s;                /* of all of them */
    double own_s, wait_s, step_s, trip_s; /* means */
} mst_facts_class;
/* out: the others, then those beside the servers. Without known round trips all are in the first class. */
void mst_facts_classes(const mst_facts *self, mst_facts_class out[2]);

/* Whether two processes are on different hosts, or it is not known. */
static inline bool mst_facts_apart(const mst_process_use *a, const mst_process_use *b)
{
    return a->process == NULL || b->process == NULL || a->process->host[0] == '\0' ||
           strcmp(a->process->host, b->process->host) != 0;
}

/* A column over the window: its mean rate (NAN: no number is there), the greatest rate of an interval (0
 * then), and the mean over the time of a column that holds shares. */
typedef struct mst_column_use {
    double rate, peak, level;
} mst_column_use;
mst_column_use mst_facts_column(const mst_csv *csv, const char *name, double from, double to);

/* Paths, links and round trips between `from` and `to`. */
void mst_facts_take_network(mst_facts *self, double from, double to);

mst_status mst_facts_of(const mst_run_data *run, mst_facts *out);
void mst_facts_fini(mst_facts *self);

/* The slowest worker exceeds the median MST_VERDICT_SLOWER times and uses all of its CPU quota, and at most
 * half of the workers do. */
bool mst_facts_is_starved(const mst_facts *self);

/* Steps are held open for one worker, and not because of its link or its distance. */
static inline bool mst_facts_is_held(const mst_facts *self)
{
    return self->held >= MST_VERDICT_HELD &&
           !(self->link_at_worker && self->linked_worker == self->held_worker &&
             self->worker_link >= (self->slow_link ? MST_VERDICT_SLOW_LINK : MST_VERDICT_DOMINATES)) &&
           !(self->far_worker == self->held_worker &&
             (self->latency >= MST_VERDICT_DOMINATES ||
              (self->one_far && self->server_link >= MST_VERDICT_DOMINATES)));
}

/* Other programs use enough of a host's cores to be mentioned. */
static inline bool mst_facts_has_guests(const mst_facts *self)
{
    return self->guest != NULL && self->others >= MST_VERDICT_OTHERS * self->guest->cores;
}

/* ---- the table of causes ---- */

/* The process at which each cause was found; NULL: at none in particular. */
typedef struct mst_places {
    const mst_process_use *of[MST_BOTTLENECKS];
} mst_places;

/* Adds advice to the verdict if the model predicts a gain. */
typedef void mst_advise_fn(const mst_facts *facts, mst_verdict *verdict, const mst_step_model *now);
mst_advise_fn mst_advise_workers, mst_advise_threads, mst_advise_wire, mst_advise_servers, mst_advise_cache,
    mst_advise_disk, mst_advise_saves, mst_advise_async, mst_advise_quorum, mst_advise_batch,
    mst_advise_pipeline, mst_advise_evaluations, mst_advise_others;

typedef struct mst_cause {
    const char *name, *title;
    /* Adds figures to the evidence, besides the share; NULL: none. */
    void (*evidence)(const mst_facts *facts, mst_verdict *verdict);
    /* Writes the verdict's sentence if this is the bottleneck; NULL: it never is. */
    void (*sentence)(const mst_facts *facts, mst_verdict *verdict);
    mst_advise_fn *advice[3]; /* changes that shorten this share; NULL ends a shorter list */
} mst_cause;
const mst_cause *mst_cause_of(mst_bottleneck kind);

/* Names the process, and writes the evidence and the sentence of a verdict whose shares and kind are set. */
void mst_verdict_explain(const mst_facts *facts, const mst_places *places, mst_verdict *verdict);
/* Adds the advice of every cause, in the order of verdict.h. */
void mst_verdict_advise(const mst_facts *facts, mst_verdict *verdict);
/* The share of own work together with its waits for cores: what more cores could shorten. */
double mst_verdict_own(const mst_verdict *verdict);

#endif
