/* What the files of the worker share (worker.c, worker_events.c, worker_steps.c, worker_work.c,
 * worker_gradient.c, worker_overlap.c, worker_eval.c, worker_watch.c); nobody else includes this. */
#ifndef MST_PS_WORKER_IMPL_H
#define MST_PS_WORKER_IMPL_H

#include <pthread.h>
#include <stdbool.h>

#include "base/queue.h"
#include "ps/client.h"
#include "ps/store.h"
#include "ps/worker.h"
#include "tensor/row_localiser.h"

#define MST_WORKER_ITEMS 256 /* work items that may be waiting */
#define MST_WORKER_CUTS  8   /* evaluations that may be under way */

/* What a slot of the client is used for. */
typedef enum mst_turn_state {
    MST_TURN_FREE,
    MST_TURN_PREPARED, /* rows are taken and localised */
    MST_TURN_PULLED,   /* its weights are asked for */
    MST_TURN_PUSHED,   /* its gradient is sent, and nothing asked for with it */
} mst_turn_state;

/* A batch on its way through a slot: slot i uses lane i of the feed and bank i of the localiser. */
typedef struct mst_turn {
    mst_turn_state state;
    mst_row *rows; /* localised; room for max_rows */
    mst_batch batch;
    uint64_t step;      /* given by the coordinator; 0: not */
    uint64_t first_row; /* where the batch stands in the step's global batch */
    bool exhausted;
    float *g;
    uint64_t g_room;
    /* The push whose reply this slot waits for. */
    bool carries_push;
    uint32_t push_rows;
    uint64_t push_version; /* that its gradient was computed on */
} mst_turn;

/* One evaluation: its values come together from the servers, then it is the evaluation thread's. */
typedef struct mst_eval_cut {
    bool opening; /* the list is there (or not): no values */
    uint32_t cut;
    uint64_t step;      /* the version that its values are of, as server 0 counts */
    uint32_t n_missing; /* servers whose values are not here yet */
    bool *here;         /* by server */
    float *values;
    json_t *result;
    mst_status status;
    mst_error error;
    double seconds;
} mst_eval_cut;

typedef struct mst_worker_eval {
    bool chief, started, opened, failed, empty;
    pthread_t thread;
    mst_queue *todo, *done; /* mst_eval_cut */
    mst_key_list list;      /* the thread's until opened */
    mst_key_list *parts;    /* by server; keys point into list */
    uint32_t *first_keys;   /* by server: number of its first key in the list */
    uint32_t key_start;
    uint64_t floats;
    uint8_t **staging; /* by server: values of its part as they arrive */
    mst_eval_cut *cuts[MST_WORKER_CUTS];
    uint32_t asked, answered; /* cuts to evaluate heard of and answered last, for an empty list */
    uint64_t bytes_out;
} mst_worker_eval;

/* Histograms of gradients (worker_watch.c). */
typedef struct mst_worker_watch {
    bool due;         /* an evaluation is under way that has none */
    const float *g;   /* the gradient that was computed last; NULL: none is whole */
    uint64_t step;    /* that it is of */
    uint64_t written; /* the last step whose histograms were written */
    uint64_t begun_ns, spent_ns;
} mst_worker_watch;

/* Communication beside computation (worker_overlap.c). */
typedef enum mst_overlap_phase {
    MST_OVERLAP_IDLE,
    MST_OVERLAP_RUN,
    MST_OVERLAP_END, /* the training thread wants the net back */
    MST_OVERLAP_QUIT,
} mst_overlap_phase;

typedef struct mst_worker_overlap {
    bool on; /* the model is large enough; there is a thread */
    uint32_t part_floats;
    pthread_t thread;
    pthread_mutex_t lock; /* guards phase and waited_ns */
    pthread_cond_t moved; /* the phase, or what is here */
    mst_overlap_phase phase;
    uint64_t waited_ns; /* in need, for this batch */
    atomic_bool here[MST_RANGE_MAX], final[MST_RANGE_MAX];
    /* Whose the net is: */
    uint32_t slot;
    uint32_t order[MST_RANGE_MAX]; /* ranges, the last of the slot's floats first */
    uint32_t n_sent;               /* of them that the client knows to be final */
    mst_error failure;
} mst_worker_overlap;

/* A step that overlaps: what the model is given. */
typedef struct mst_overlap_step {
    mst_step step;
    mst_worker *worker;
} mst_overlap_step;

struct mst_worker {
    mst_worker_options options;
    char **servers;
    mst_net *net;
    uint32_t *peers; /* by server */
    bool *up;
    uint32_t n_up;
    json_t *job_json, *welcome;
    void **bodies; /* by server: of messages other than values */
    size_t *body_capacity;

    /* Set inside poll. */
    bool starting;      /* until the coordinator has said what the job is */
    mst_error failure;  /* code MST_OK: none; a server's end, or what went wrong in an event */
    bool final_failure; /* no use waiting whether the coordinator has a better word for it */
    bool ended;         /* the coordinator's word is here: */
    mst_error end;
    uint64_t heard_ns; /* when the coordinator last sent something */

    /* Of the run. */
    const mst_worker_job *job;
    bool stopped;   /* no new batch is begun */
    bool leaving;   /* told the coordinator that it was asked to stop; goes on until that says so */
    bool abandoned; /* what is in flight is given up */
    mst_placement table;
    mst_client *client;
    mst_row_localiser *localiser;
    uint32_t n_slots, max_rows;
    mst_turn *turns;
    bool
        one_gradient; /* all turns compute into the first one's g: no push is under way when a batch begins */
    uint32_t flight[MST_LISTS];  /* slots that wait for a reply, oldest first */
    uint32_t n_flight, prepared; /* prepared: a slot, or MST_NO_REQUEST */
    uint64_t own_steps;
    uint64_t last_report_ns;
    mst_net_stats start_stats;
    uint64_t told_in, told_out, told_ns; /* bytes that the spans know of, since when */
    mst_ps_clock clock;
    mst_worker_counts counts;

    /* Work. */
    mst_work items[MST_WORKER_ITEMS];
    uint32_t first_item, n_items;
    bool begun;             /* the feed is at `at` of `epoch` */
    uint64_t epoch, at, to; /* leases and slices: where the feed stands; leases: where the range ends */
    uint64_t granted;       /* rows of the own stream that may be taken */
    bool input_late;        /* the own stream's next rows are not there yet */
    bool epoch_over;        /* the own stream has none left in this epoch */
    bool end_told;          /* and the coordinator knows (async) */
    bool wants;             /* work comes on request: leases, or grants of asynchronous training */
    bool want_sent;
    bool asked_idle;     /* asked with nothing in flight */
    uint64_t last_lease; /* rows */

    /* The gradient. */
    mst_grad layout; /* of the model; no buffers */
    mst_grad sparse; /* contributions */
    uint64_t range_at[MST_RANGE_MAX];
    uint32_t n_prefix;
    uint64_t sparse_at; /* of key 0 among a slot's floats */
    void *scratch;
    float *coefs;
    double waited_seconds; /* for weights, by the batch that was computed last */

    mst_worker_overlap overlap;
    mst_worker_eval eval;
    mst_worker_watch watch;
};

/* ---- events and waiting (worker_events.c) ---- */

extern const mst_net_events mst_worker_events;

/* Keeps what went wrong in an event; the first counts. */
void mst_worker_note(mst_worker *self, mst_status status, bool final);
/* Handles what has arrived, waiting for something at most until the deadline and never long, and attends to
 * everything but steps: evaluation, reports, the wish to stop, failures. A failure is MST_EPEER or worse;
 * that the coordinator has ended the job is not: self->ended. */
mst_status mst_worker_turn(mst_worker *self, uint64_t deadline_ns);
/* The second half of that. */
mst_status mst_worker_attend(mst_worker *self);
/* A send failed with MST_EPEER: its server's end, or the coordinator's word, is about to be heard and says
 * more.
 */
mst_status mst_worker_lost(mst_worker *self, mst_status status);
mst_status mst_worker_report(mst_worker *self, uint32_t flags);
/* A sentence as JSON: what is not UTF-8 in it (a file's name) becomes '?'. New reference or NULL. */
json_t *mst_worker_text(const char *text);
/* "server 1 at host:port, server 2 at ..." of those that are not up. */
void mst_worker_missing(const mst_worker *self, char *out, size_t size);

/* ---- work (worker_work.c) ---- */

mst_status mst_worker_add_item(mst_worker *self, const mst_work *work);
/* Takes the next batch's rows into a slot and localises them; *slot is MST_NO_REQUEST when there is no work
 * at hand. Waits for the feed only. */
mst_status mst_worker_prepare(mst_worker *self, uint32_t *slot);
/* Nothing is in flight or at hand: asks once more, so that the coordinator knows that all rows it gave are
 * done (and that the own stream's epoch is over), and thinks of this worker when there are rows again. */
mst_status mst_worker_want_idle(mst_worker *self);
/* Forgets what is not begun. */
void mst_worker_drop_work(mst_worker *self);
/* Keys that the first batches touch, for the partition table: a new reference, or NULL in *out for a model
 * without sparse weights. */
mst_status mst_worker_sample(mst_worker *self, json_t **out);

/* ---- the gradient (worker_gradient.c) ---- */

/* The turn that has the slot's gradient. */
static inline mst_turn *mst_worker_gradient_of(mst_worker *self, uint32_t slot)
{
    return &self->turns[self->one_gradient ? 0 : slot];
}

/* Reads the model's layout; then sets every slot's ranges. */
mst_status mst_worker_gradient_init(mst_worker *self);
void mst_worker_gradient_fini(mst_worker *self);
/* The ranges of a pull list. */
void mst_worker_ranges(const mst_worker *self, mst_key_list *list);
/* The mean gradient of the slot's rows at its weights, into the g of mst_worker_gradient_of. Where
 * communication overlaps, the weights need only have begun to come, and parts of the gradient may have left.
 */
mst_status mst_worker_compute(mst_worker *self, uint32_t slot, mst_loss_sum *sum);

/* ---- communication beside computation (worker_overlap.c) ---- */

/* With table and layout known: decides whether there is something to overlap (overlap.on). */
mst_status mst_worker_overlap_init(mst_worker *self);
void mst_worker_overlap_fini(mst_worker *self);
/* Hands the net over for a batch, whose weights may still be coming: sets the step's need. Until the end
 * nothing of the worker may be touched but the batch, its gradient and the weights that need has said are
 * there. */
void mst_worker_overlap_begin(mst_worker *self, uint32_t slot, mst_overlap_step *step);
/* What the model computes next is the last of the batch: sets the step's ready. */
void mst_worker_overlap_last(mst_overlap_step *step);
/* Takes the net back, once or more often. A failure is the loop thread's. */
mst_status mst_worker_overlap_end(mst_worker *self);

/* ---- steps (worker_steps.c) ---- */

/* Trains until there is no more work, or the coordinator ends the job. */
mst_status mst_worker_steps(mst_worker *self);
/* With --trace: the counter of bytes in flight, as they are now. Threads that are not watched: nothing. */
void mst_worker_trace_flight(mst_worker *self);

/* ---- evaluation (worker_eval.c) ---- */

/* Inside events. */
mst_status mst_worker_eval_body(mst_worker *self, uint32_t server, const mst_message *m, void **out);
mst_status mst_worker_eval_values(mst_worker *self, uint32_t server, const mst_message *m);
void mst_worker_eval_asked(mst_worker *self, uint32_t cut);
/* Outside: starts the thread, sends the list, sends results. */
mst_status mst_worker_eval_attend(mst_worker *self);
/* Ends the thread, also in mid-evaluation. */
void mst_worker_eval_fini(mst_worker *self);

/* ---- what is shown of gradients (worker_watch.c) ---- */

/* Writes histograms of the gradient at hand where an evaluation wants them, as often as they cost a hundredth
 * of the time. */
void mst_worker_watch_gradient(mst_worker *self);

#endif
