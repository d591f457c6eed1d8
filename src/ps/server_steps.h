/* Pushes on a server, and the steps that they make.
 *
 * A push is applied when it arrives (async, ssp) or waits for its step (sync). The answer leaves after the
 * coordinator has counted the push, so that a cut or the next work item travels before or with the answer.
 *
 * With sparse_async (sync) the keys of a push are updated when it arrives, its ranges when the step closes.
 * Cuts are of closed steps, and no key of step t + 1 is updated before a cut of step t is taken: the
 * coordinator begins cuts only when a step closes, before any worker can push for the next, and a worker's
 * marker of a cut that is not here yet delays its keys. So a job that returns to a checkpoint uses every row
 * once. If a worker is lost between the servers, its successor pushes for the same step again: a server that
 * has updated keys for that worker and step (keys_step) does not do so again.
 *
 * Invariants
 * 1. Steps close in order: applied counts them, and only pushes labelled applied + 1 count for the next.
 * 2. A worker has at most one push waiting.
 * 3. The pushes of a step are added in worker order. */
#ifndef MST_PS_SERVER_STEPS_H
#define MST_PS_SERVER_STEPS_H

#include "ps/server_peers.h"
#include "strategy/strategy.h"

#define MST_WORKER_WORDS (MST_WORKER_MAX / 64) /* u64 words of a bitmap of workers */
_Static_assert(MST_WORKER_MAX == 64 * MST_WORKER_WORDS, "a bitmap has one bit per worker");

/* A server's record of a worker. */
typedef struct mst_server_worker {
    uint32_t peer;               /* MST_PEER_NONE: not connected */
    uint64_t incarnation, up_ns; /* of the process that connected, and when it did */
    bool member;                 /* the coordinator has admitted this process, and it is not lost */
    bool gone;                   /* lost, or left */
    uint64_t gone_from;          /* quorum: the first step that its pushes do not count for */
    uint64_t drain_ns;           /* sync: not 0: it is lost elsewhere; its connection is read until then */
    bool undecided;              /* slots: it is lost, and whether its last push counts is not decided */
    const char *fault;           /* not NULL: the loop drops it for this reason, outside of a step */
    uint32_t n_nan;              /* its last pushes in a row that were not finite */
    bool exhausted;              /* no rows until the next epoch */
    uint32_t marker;             /* the newest cut it has marked; */
    uint64_t marker_step, marker_ns; /* one that is not announced yet: sync: its version; and when it came */
    /* sync: the push that waits for its step */
    bool pending;
    uint64_t label;     /* its step */
    bool orphan;        /* its process is gone: it is not answered */
    bool applied;       /* it is part of the last step, and not answered */
    uint64_t keys_step; /* sparse_async: the last step whose keys are updated */
    mst_store_request request;
    mst_body *body, *values; /* values: of a push that arrived in parts, or NULL */
    uint64_t answered;       /* floats of the answer that have left as parts */
    uint64_t largest;        /* bytes of its largest answer */
    /* asynchronous */
    uint32_t n_held; /* of mst_server_steps.held */
    uint64_t pushes; /* ssp: raised to those of the slowest worker when this one (re)joins */
    mst_store_request deferred[MST_LISTS]; /* pulls whose answers are held back: ssp, or until */
    uint32_t deltas[MST_LISTS];            /* the partner has copied the delta of their push */
    uint32_t n_deferred;
} mst_server_worker;

/* A STEP that is held. async: it arrived after its worker's marker, and waits until the cut is taken; or
 * while training waits. sync: a pull of a successor for a version that is not complete here. */
typedef struct mst_held_step {
    struct mst_held_step *next;
    uint32_t worker;
    mst_message m;
    mst_body *body;
    mst_staged staged;
} mst_held_step;

/* sync with a quorum: the pushes that count for a step, as the coordinator decides. */
typedef struct mst_step_close {
    uint64_t step;
    uint64_t workers[MST_WORKER_WORDS];
} mst_step_close;

typedef struct mst_server_steps {
    uint64_t applied;
    bool unanswered;        /* sync: the last step is applied, and its pushes are not answered */
    mst_step_close *closes; /* decisions that are not carried out yet */
    size_t n_closes, close_capacity;
    mst_held_step *held, **held_tail;
    uint64_t nan_ns;   /* when a push that was not finite was last logged; 0: never */
    bool lacks;        /* quorum: the coordinator was informed of a push that does not arrive */
    uint64_t set_hash; /* sync: of all (step, worker) that were averaged, in order */
} mst_server_steps;

static inline bool mst_bit(const uint64_t *bits, uint32_t i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

static inline void mst_bit_set(uint64_t *bits, uint32_t i)
{
    bits[i / 64] |= 1ull << (i % 64);
}

/* Whether a push of the worker waits for the step to close. */
static inline bool mst_steps_waits_for(const mst_server_worker *w, uint64_t step)
{
    return w->pending && w->label == step && !w->exhausted;
}

/* Takes a STEP; consumes body and staged. A failure means that the message is invalid. */
mst_status mst_steps_take(mst_server *s, uint32_t worker, const mst_message *m, mst_body *body,
                          mst_staged staged);
/* A GRADIENT is arriving: room for its floats. */
mst_status mst_steps_part_body(mst_server *s, uint32_t peer, const mst_message *m, void **out);
/* CLOSE: keeps the coordinator's decision, and closes the steps that can be closed. */
mst_status mst_steps_close(mst_server *s, const mst_message *m, const uint64_t *workers);
/* sync: closes the steps that can be closed. */
mst_status mst_steps_try_close(mst_server *s);
/* The partner has copied deltas, or has no copy: answers the pushes that waited for it. */
mst_status mst_steps_copied(mst_server *s);
/* Answers the pushes of workers that are not ahead any more (ssp), and whose delta is copied. */
mst_status mst_steps_release_deferred(mst_server *s);
/* async: a cut is taken; takes the steps that were held for it. */
mst_status mst_steps_release_held(mst_server *s);
/* Forgets a worker that is gone. Its pending push stays if it counts, or if that is not decided. */
void mst_steps_forget(mst_server *s, uint32_t worker);
/* Slots: the lost worker's pushes up to `step` count; one that waits for a later step is discarded. */
mst_status mst_steps_decide(mst_server *s, uint32_t worker, uint64_t step);
/* Forgets all pushes and requests. */
void mst_steps_reset(mst_server *s);
void mst_steps_fini(mst_server *s);

#endif
