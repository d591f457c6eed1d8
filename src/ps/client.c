/* A worker's side of steps; contract in client.h.
 *
 * A server's share of a request's list is computed once, when the list is pulled: the runs of floats among
 * the request's weights, which are also the runs of floats of its gradient. A push of plain floats is sent
 * directly from those runs; a reply that is one run of plain floats is received into its place.
 *
 * Pulls are numbered consecutively, so that the last MST_LISTS lists that a server keeps are those of the
 * last MST_LISTS pulls; requests without a pull have numbers of their own, from PUSH_ONLY on.
 *
 * Large shares travel in parts: a gradient from its end on, as the backward pass finishes it, and weights
 * from their beginning on, as the forward pass needs them. A part is some floats of a server's share, in
 * their order; the STEP or VALUES at the end carries the rest.
 *
 * Invariants
 * 1. Between a send and the last reply a request is in flight: its buffers and weights belong to the net.
 * 2. A reply is accepted once per server and request, and only with the exact size of the share; each float
 * of parts is accepted once, in order. */
#include "ps/client.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "ps/store.h"

#define PUSH_ONLY 0x80000000u
#define NUMBERS   0x40000000u /* of each kind, before they repeat; a multiple of MST_LISTS */
#define SMALL                                                                                                \
    (64 * 1024) /* bytes up to which the net may copy a message that the system does not accept at once */
#define RUN_PIECES (MST_PIECE_MAX - 2)
#define SLACK      (MST_WORK_SIZE / sizeof(float)) /* after the weights: room for a work item */

/* Floats [first, first + count) of a request's weights. */
typedef struct run {
    uint64_t first, count;
} run;

/* A server's share of a request's list. */
typedef struct client_share {
    run *runs; /* ascending; adjoining ones are joined */
    size_t n_runs, run_capacity;
    uint64_t floats;
    uint64_t awaited;             /* floats of the reply */
    uint64_t taken;               /* of them have arrived */
    uint64_t to_push;             /* floats of the gradient; later ones have left as parts */
    uint64_t early_bytes, flying; /* bytes in flight: of parts of the next push; of the request */
    bool waiting;
    uint8_t *out, *in; /* bytes to send that are stored nowhere else; bytes received */
    size_t out_capacity, in_capacity;
    uint8_t *early; /* converted shares of the gradient, each at its place */
    size_t early_capacity;
} client_share;

typedef enum request_state {
    REQUEST_IDLE,
    REQUEST_FLIGHT,
    REQUEST_READY,
} request_state;

typedef struct client_request {
    request_state state;
    mst_key_list list;
    bool pushable;   /* the servers have the list, and it had no push yet */
    uint32_t pull;   /* number of its pull */
    uint32_t number; /* on the wire, of the request in flight */
    uint32_t n_waiting;
    bool begun; /* an answer of the coordinator has begun to arrive */
    float *weights;
    size_t capacity;      /* floats of weights, the slack included */
    uint64_t floats;      /* of the list as it was pulled */
    client_share *shares; /* n_servers */
    mst_reply reply;
} client_request;

struct mst_client {
    mst_client_options options;
    uint64_t version; /* of the weights that pulls without a push wait for */
    uint32_t *peers;
    uint32_t n_servers, width;
    client_request *requests;
    uint32_t n_pulls, n_push_only;
    mst_key_list share;          /* scratch: a server's share of a list */
    atomic_uint_fast64_t flying; /* sum over all shares; the owner writes, any thread reads */
    bool lost;
    mst_error why;
};

/* ---- the object ---- */

mst_status mst_client_new(const mst_client_options *options, mst_client **out)
{
    mst_status st = MST_OK;
    if (options->n_requests == 0 || options->n_requests > MST_LISTS)
        return mst_fail(MST_EUSAGE, "a client with %" PRIu32 " requests; there can be 1 to %d",
                        options->n_requests, MST_LISTS);
    mst_client *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->options = *options;
    self->n_servers = options->table->n_servers;
    self->width = options->table->width;
    self->requests = mst_calloc(options->n_requests, sizeof *self->requests);
    self->peers = mst_calloc(self->n_servers, sizeof *self->peers);
    bool whole = self->requests != NULL && self->peers != NULL;
    for (uint32_t i = 0; whole && i < options->n_requests; i++)
        whole = (self->requests[i].shares = mst_calloc(self->n_servers, sizeof(client_share))) != NULL;
    if (!whole) {
        st = mst_fail_memory();
        goto out;
    }
    memcpy(self->peers, options->peers, self->n_servers * sizeof *self->peers);
    self->options.peers = self->peers;
    *out = self;
    self = NULL;
out:
    mst_client_destroy(self);
    return st;
}

void mst_client_destroy(mst_client *self)
{
    if (self == NULL)
        return;
    for (uint32_t i = 0; self->requests != NULL && i < self->options.n_requests; i++) {
        client_request *s = &self->requests[i];
        for (uint32_t k = 0; s->shares != NULL && k < self->n_servers; k++) {
            mst_free(s->shares[k].runs);
            mst_free(s->shares[k].out);
            mst_free(s->shares[k].in);
            mst_free(s->shares[k].early);
        }
        mst_free(s->shares);
        mst_free(s->weights);
        mst_key_list_fini(&s->list);
    }
    mst_free(self->requests);
    mst_free(self->peers);
    mst_free(self);
}

mst_key_list *mst_client_list(mst_client *self, uint32_t request)
{
    return &self->requests[request].list;
}

static uint64_t client_key_start_of(const mst_client *self, const mst_key_list *list)
{
    return self->width == 0 ? 0 : (mst_key_list_range_floats(list) + self->width - 1) / self->width;
}

static uint64_t client_floats_of(const mst_client *self, const mst_key_list *list)
{
    if (self->width == 0)
        return mst_key_list_range_floats(list);
    return (client_key_start_of(self, list) + list->n_keys) * self->width;
}

uint64_t mst_client_floats(const mst_client *self, uint32_t request)
{
    return client_floats_of(self, &self->requests[request].list);
}

uint32_t mst_client_key_start(const mst_client *self, uint32_t request)
{
    return (uint32_t)client_key_start_of(self, &self->requests[request].list);
}

float *mst_client_weights(mst_client *self, uint32_t request)
{
    return self->requests[request].weights;
}

const mst_reply *mst_client_reply(const mst_client *self, uint32_t request)
{
    return &self->requests[request].reply;
}

bool mst_client_ready(const mst_client *self, uint32_t request)
{
    return self->requests[request].state == REQUEST_READY;
}

uint64_t mst_client_in_flight(const mst_client *self)
{
    return atomic_load_explicit(&self->flying, memory_order_relaxed);
}

static void client_fly(mst_client *self, uint64_t bytes)
{
    atomic_store_explicit(&self->flying, mst_client_in_flight(self) + bytes, memory_order_relaxed);
}

/* Bytes of the request, or of its answer, have arrived. */
static void client_land(mst_client *self, client_share *p, uint64_t bytes)
{
    bytes = bytes < p->flying ? bytes : p->flying;
    p->flying -= bytes;
    atomic_store_explicit(&self->flying, mst_client_in_flight(self) - bytes, memory_order_relaxed);
}

bool mst_client_begun(const mst_client *self, uint32_t request)
{
    return self->requests[request].state == REQUEST_READY || self->requests[request].begun;
}

bool mst_client_has(const mst_client *self, uint32_t request, uint64_t first, uint64_t count)
{
    const client_request *s = &self->requests[request];
    for (uint32_t k = 0; s->state != REQUEST_READY && k < self->n_servers; k++) {
        const client_share *p = &s->shares[k];
        uint64_t before = 0; /* floats of the runs before i */
        for (size_t i = 0; p->waiting && i < p->n_runs && p->runs[i].first < first + count; i++) {
            uint64_t end = first + count - p->runs[i].first;
            end = before + (end < p->runs[i].count ? end : p->runs[i].count);
            if (p->runs[i].first + p->runs[i].count > first && end > p->taken)
                return false;
            before += p->runs[i].count;
        }
    }
    return true;
}

/* ---- layout ---- */

static mst_status client_add_run(client_share *p, uint64_t first, uint64_t count)
{
    run *last = p->n_runs > 0 ? &p->runs[p->n_runs - 1] : NULL;
    p->floats += count;
    if (last != NULL && last->first + last->count == first) {
        last->count += count;
        return MST_OK;
    }
    if (!mst_grow(&p->runs, &p->run_capacity, p->n_runs + 1, sizeof *p->runs))
        return mst_fail_memory();
    p->runs[p->n_runs++] = (run){first, count};
    return MST_OK;
}

/* Finds the runs of a server's share of the list (self->share) among the request's weights. */
static mst_status client_lay_share(mst_client *self, const mst_key_list *list, uint32_t first_key,
                                   client_share *p)
{
    const mst_key_list *share = &self->share;
    uint64_t before = 0; /* floats of the list's ranges before r */
    p->n_runs = 0;
    p->floats = 0;
    for (uint32_t i = 0, r = 0; i < share->n_ranges; i++) {
        while (list->ranges[r].first + list->ranges[r].count <= share->ranges[i].first)
            before += list->ranges[r++].count;
        TRY(client_add_run(p, before + (share->ranges[i].first - list->ranges[r].first),
                           share->ranges[i].count));
    }
    if (share->n_keys > 0)
        TRY(client_add_run(p, (client_key_start_of(self, list) + first_key) * self->width,
                           (uint64_t)share->n_keys * self->width));
    if (p->floats > UINT32_MAX)
        return mst_fail(MST_EUSAGE,
                        "a list of %" PRIu64 " floats of one server; at most %" PRIu32 " fit a message",
                        p->floats, UINT32_MAX);
    return MST_OK;
}

static mst_status client_make_weights(mst_client *self, client_request *s)
{
    uint64_t used = mst_key_list_range_floats(&s->list);
    s->floats = client_floats_of(self, &s->list);
    if (s->floats + SLACK > s->capacity) {
        size_t capacity = (size_t)(s->floats + s->floats / 4 + SLACK);
        mst_free(s->weights);
        s->capacity = 0;
        s->weights = mst_alloc_lines(capacity * sizeof *s->weights);
        if (s->weights == NULL)
            return mst_fail_memory();
        s->capacity = capacity;
    }
    for (uint64_t i = used; self->width != 0 && i < client_key_start_of(self, &s->list) * self->width; i++)
        s->weights[i] = 0.0f;
    return MST_OK;
}

/* ---- sending ---- */

/* Iterates over the runs of floats [from, to) of a server's share among the request's floats, from *i = 0,
 * *before = 0 on; false: there are no more. */
static bool client_next_run(const client_share *p, uint64_t from, uint64_t to, size_t *i, uint64_t *before,
                            run *out)
{
    for (; *i < p->n_runs && *before < to; *before += p->runs[(*i)++].count) {
        uint64_t a = *before > from ? *before : from;
        uint64_t b = *before + p->runs[*i].count < to ? *before + p->runs[*i].count : to;
        if (a >= b)
            continue;
        *out = (run){p->runs[*i].first + (a - *before), b - a};
        *before += p->runs[(*i)++].count;
        return true;
    }
    return false;
}

/* Floats [from, to) of the gradient as at most `most` pieces: their number, or 0 if they must be converted.
 */
static uint32_t client_pieces_of(const mst_client *self, const client_share *p, const float *g, uint64_t from,
                                 uint64_t to, mst_piece *pieces, uint32_t most)
{
    run r;
    uint32_t n = 0;
    size_t i = 0;
    uint64_t before = 0;
    if (self->options.wire != MST_FLOAT_FP32)
        return 0;
    while (client_next_run(p, from, to, &i, &before, &r)) {
        if (n == most)
            return 0;
        pieces[n++] = (mst_piece){g + r.first, (size_t)r.count * sizeof *g};
    }
    return n;
}

/* Converts floats [from, to) of the gradient. */
static void client_convert_runs(const mst_client *self, const client_share *p, const float *g, uint64_t from,
                                uint64_t to, uint8_t *out)
{
    run r;
    size_t i = 0;
    uint64_t before = 0;
    while (client_next_run(p, from, to, &i, &before, &r)) {
        mst_float_encode(self->options.wire, g + r.first, (size_t)r.count, out);
        out += r.count * mst_float_size(self->options.wire);
    }
}

/* Sends server k floats [from, p->to_push) of the gradient. */
static mst_status client_send_early(mst_client *self, const client_request *s, uint32_t k, const float *g,
                                    uint64_t from)
{
    client_share *p = &s->shares[k];
    mst_piece pieces[MST_PIECE_MAX];
    size_t size = mst_float_size(self->options.wire);
    uint32_t n = client_pieces_of(self, p, g, from, p->to_push, pieces, MST_PIECE_MAX);
    mst_message m = {.type = MST_PS_GRADIENT,
                     .flags = (uint32_t)self->options.wire << MST_STEP_WIRE_SHIFT,
                     .count = s->pull,
                     .step = from};
    if (n == 0) {
        if (!mst_grow(&p->early, &p->early_capacity, (size_t)p->floats * size, 1))
            return mst_fail_memory();
        client_convert_runs(self, p, g, from, p->to_push, p->early + from * size);
        pieces[n++] = (mst_piece){p->early + from * size, (size_t)(p->to_push - from) * size};
    }
    TRY(mst_net_send(self->options.net, self->peers[k], &m, pieces, n, self));
    uint64_t bytes = (p->to_push - from) * size;
    p->early_bytes += bytes;
    client_fly(self, bytes);
    p->to_push = from;
    return MST_OK;
}

mst_status mst_client_push_early(mst_client *self, uint32_t request, const float *g, uint64_t from)
{
    client_request *s = &self->requests[request];
    uint64_t size = self->options.part_floats;
    if (self->lost)
        return mst_error_restore(&self->why);
    if (!s->pushable)
        return mst_fail(MST_EUSAGE, "a push for request %" PRIu32 ", which has no pulled weights", request);
    for (uint32_t k = 0; size != 0 && k < self->n_servers; k++) {
        client_share *p = &s->shares[k];
        uint64_t low = 0; /* floats of this share that are not final */
        for (size_t i = 0; i < p->n_runs && p->runs[i].first < from; i++) {
            uint64_t below = from - p->runs[i].first;
            low += below < p->runs[i].count ? below : p->runs[i].count;
        }
        while (p->floats > size && p->to_push >= low + size)
            TRY(client_send_early(self, s, k, g, p->to_push - size));
    }
    return MST_OK;
}

/* Sends server k its share of the push for `from` and of the pull of `to` (NULL: none). */
static mst_status client_send_share(mst_client *self, uint32_t k, const mst_push *push,
                                    const client_request *from, client_request *to, mst_message *m,
                                    client_share *reply)
{
    client_share *pushed = from != NULL ? &from->shares[k] : NULL;
    mst_step_head head = {0};
    uint32_t first_key = 0, n = 0;
    mst_piece pieces[MST_PIECE_MAX];
    if (pushed != NULL)
        n = client_pieces_of(self, pushed, push->g, 0, pushed->to_push, pieces + 1, RUN_PIECES);
    bool convert = pushed != NULL && n == 0 && pushed->to_push > 0;
    size_t converted = convert ? (size_t)pushed->to_push * mst_float_size(self->options.wire) : 0;
    size_t room = MST_STEP_HEAD + converted;
    if (push != NULL && pushed != NULL) {
        head.loss = push->loss;
        head.weight = push->weight;
        head.rows = push->rows;
        head.correct = push->correct;
        head.push_floats = (uint32_t)pushed->to_push;
    }
    reply->awaited = reply->taken = 0;
    if (to != NULL) {
        mst_placement_share(self->options.table, &to->list, k, &self->share, &first_key);
        TRY(client_lay_share(self, &to->list, first_key, reply));
        room += mst_step_list_bound(&self->share);
        reply->awaited = reply->to_push = reply->floats;
        head.part_floats = reply->floats > self->options.part_floats ? self->options.part_floats : 0;
    }
    if (!mst_grow(&reply->out, &reply->out_capacity, room, 1))
        return mst_fail_memory();

    if (convert)
        client_convert_runs(self, pushed, push->g, 0, pushed->to_push, reply->out + MST_STEP_HEAD);
    pieces[0] = (mst_piece){reply->out, MST_STEP_HEAD + converted};
    n++;
    if (to != NULL) {
        uint8_t *list = reply->out + MST_STEP_HEAD + converted;
        pieces[n] = (mst_piece){list, mst_step_list_encode(&self->share, &head, list)};
        n += pieces[n].size > 0;
    }
    mst_step_head_encode(&head, reply->out);
    size_t size = 0;
    for (uint32_t i = 0; i < n; i++)
        size += pieces[i].size;
    TRY(mst_net_send(self->options.net, self->peers[k], m, pieces, n, size > SMALL ? self : NULL));
    uint64_t fresh = size + reply->awaited * mst_float_size(self->options.wire);
    client_fly(self, fresh);
    reply->flying = fresh + (pushed != NULL ? pushed->early_bytes : 0);
    if (pushed != NULL)
        pushed->early_bytes = 0;
    return MST_OK;
}

static mst_status client_check_send(const mst_client *self, const mst_push *push, uint32_t pull)
{
    uint32_t n = self->options.n_requests, pushed = push != NULL ? push->request : n;
    uint32_t reply = pull != MST_NO_REQUEST ? pull : pushed;
    if (reply >= n || (push != NULL && (push->request >= n || push->request == pull)))
        return mst_fail(MST_EUSAGE,
                        "a push and a pull of requests that a client of %" PRIu32
                        " does not have, or of the same request",
                        n);
    if (self->requests[reply].state == REQUEST_FLIGHT)
        return mst_fail(MST_EUSAGE, "request %" PRIu32 " is in flight already", reply);
    if (push == NULL)
        return MST_OK;
    const client_request *s = &self->requests[push->request];
    uint32_t age = (self->n_pulls - s->pull) & (NUMBERS - 1);
    if (s->state != REQUEST_READY || !s->pushable)
        return mst_fail(MST_EUSAGE, "a push for request %" PRIu32 ", which has no pulled weights",
                        push->request);
    if (age >= MST_LISTS + (pull == MST_NO_REQUEST))
        return mst_fail(MST_EUSAGE,
                        "a push for request %" PRIu32 ", pulled %" PRIu32 " pulls ago; servers keep %d lists",
                        push->request, age, MST_LISTS);
    return MST_OK;
}

/* Whether the gradient arrives without NaN and infinite values. */
static bool client_is_finite(const mst_client *self, const client_request *s, const float *g)
{
    for (uint32_t k = 0; k < self->n_servers; k++)
        for (size_t i = 0; i < s->shares[k].n_runs; i++) {
            const run *r = &s->shares[k].runs[i];
            if (!mst_float_encodes_finite(self->options.wire, g + r->first, (size_t)r->count))
                return false;
        }
    return true;
}

void mst_client_await_version(mst_client *self, uint64_t version)
{
    self->version = version;
}

mst_status mst_client_send(mst_client *self, const mst_push *push, uint32_t pull)
{
    mst_push declared;
    if (push == NULL && pull == MST_NO_REQUEST)
        return MST_OK;
    if (self->lost)
        return mst_error_restore(&self->why);
    TRY(client_check_send(self, push, pull));
    client_request *from = push != NULL ? &self->requests[push->request] : NULL;
    client_request *to = pull != MST_NO_REQUEST ? &self->requests[pull] : NULL;
    client_request *reply = to != NULL ? to : from;
    mst_message m = {.type = MST_PS_STEP, .flags = (uint32_t)self->options.wire << MST_STEP_WIRE_SHIFT};
    m.count = MST_NO_REQUEST;
    m.step = self->version;
    if (to != NULL) {
        TRY(client_make_weights(self, to));
        m.flags |= MST_STEP_PULL;
        m.request = self->n_pulls;
        self->n_pulls = (self->n_pulls + 1) & (NUMBERS - 1);
    } else {
        m.request = PUSH_ONLY | self->n_push_only;
        self->n_push_only = (self->n_push_only + 1) & (NUMBERS - 1);
    }
    if (push != NULL) {
        m.flags |= MST_STEP_PUSH | push->flags;
        m.count = from->pull;
        m.step = push->step;
        from->pushable = false;
        if (push->rows > 0 && !client_is_finite(self, from, push->g)) { /* all servers leave it out */
            declared = *push;
            declared.loss = NAN;
            push = &declared;
        }
    }
    reply->state = REQUEST_FLIGHT;
    reply->number = m.request;
    reply->n_waiting = 0;
    reply->reply = (mst_reply){0};
    reply->begun = false;
    for (uint32_t k = 0; k < self->n_servers; k++) {
        reply->shares[k].waiting = self->peers[k] != MST_PEER_NONE;
        reply->n_waiting += reply->shares[k].waiting;
    }
    if (to != NULL) {
        to->pull = m.request;
        to->pushable = true;
    }
    /* The coordinator is last: a push that it counts towards a quorum has left for all servers, so that a
     * worker that is stopped meanwhile delays no step. */
    for (uint32_t k = self->n_servers; k-- > 0;)
        if (self->peers[k] != MST_PEER_NONE)
            TRY(client_send_share(self, k, push, from, to, &m, &reply->shares[k]));
    return MST_OK;
}

/* ---- receiving ---- */

/* Finds the request and the server of a VALUES or WEIGHTS. */
static mst_status client_find_share(mst_client *self, uint32_t peer, const mst_message *m,
                                    client_request **out, uint32_t *server)
{
    uint32_t k = 0, i = 0;
    while (k < self->n_servers && self->peers[k] != peer)
        k++;
    while (i < self->options.n_requests &&
           (self->requests[i].state != REQUEST_FLIGHT || self->requests[i].number != m->request))
        i++;
    if (k == self->n_servers || i == self->options.n_requests || !self->requests[i].shares[k].waiting)
        return mst_fail(MST_EINPUT, "a %s for request %" PRIu32 ", which was not sent or has been answered",
                        mst_ps_type_name(m->type), m->request);
    const client_share *p = &self->requests[i].shares[k];
    uint64_t wire = mst_float_size(self->options.wire), left = (p->awaited - p->taken) * wire;
    uint64_t size = left + (m->flags & MST_VALUES_WORK ? MST_WORK_SIZE : 0);
    if (m->type == MST_PS_WEIGHTS &&
        (m->flags != 0 || m->count != p->taken || m->size == 0 || m->size % wire != 0 || m->size > left))
        return mst_fail(MST_EINPUT,
                        "server %" PRIu32 " answers request %" PRIu32 " with a part of %" PRIu64
                        " bytes from float %" PRIu32 " on, where %" PRIu64 " bytes follow float %" PRIu64,
                        k, m->request, m->size, m->count, left, p->taken);
    if (m->type != MST_PS_WEIGHTS && m->size != size)
        return mst_fail(MST_EINPUT,
                        "server %" PRIu32 " answers request %" PRIu32 " with %" PRIu64
                        " bytes; it has %" PRIu64,
                        k, m->request, m->size, size);
    *out = &self->requests[i];
    *server = k;
    return MST_OK;
}

/* Floats of the reply that a message carries. */
static uint64_t client_brought(const mst_client *self, const client_share *p, const mst_message *m)
{
    return m->type == MST_PS_WEIGHTS ? m->size / mst_float_size(self->options.wire) : p->awaited - p->taken;
}

/* The place where plain floats can be received directly, or NULL: they are one run, and if a work item
 * follows, no floats of another server lie behind it. */
static float *client_place_of(const mst_client *self, const client_request *s, const client_share *p,
                              const mst_message *m)
{
    uint64_t n = client_brought(self, p, m), before = 0;
    size_t i = 0;
    run r;
    if (self->options.wire != MST_FLOAT_FP32 || n == 0 ||
        !client_next_run(p, p->taken, p->taken + n, &i, &before, &r) || r.count != n)
        return NULL;
    if ((m->flags & MST_VALUES_WORK) && r.first + r.count != s->floats)
        return NULL;
    return s->weights + r.first;
}

mst_status mst_client_body(mst_client *self, uint32_t peer, const mst_message *m, void **out)
{
    client_request *s;
    uint32_t k;
    TRY(client_find_share(self, peer, m, &s, &k));
    client_share *p = &s->shares[k];
    *out = client_place_of(self, s, p, m);
    if (*out != NULL)
        return MST_OK;
    if (!mst_grow(&p->in, &p->in_capacity, (size_t)m->size, 1))
        return mst_fail_memory();
    *out = p->in;
    return MST_OK;
}

mst_status mst_client_message(mst_client *self, uint32_t peer, const mst_message *m, void *body)
{
    client_request *s;
    uint32_t k;
    TRY(client_find_share(self, peer, m, &s, &k));
    client_share *p = &s->shares[k];
    const uint8_t *at = body;
    size_t size = mst_float_size(self->options.wire);
    uint64_t n = client_brought(self, p, m), before = 0;
    if (n != 0 && (void *)client_place_of(self, s, p, m) != body) {
        run r;
        size_t i = 0;
        while (client_next_run(p, p->taken, p->taken + n, &i, &before, &r)) {
            mst_float_decode(self->options.wire, at, (size_t)r.count, s->weights + r.first);
            at += r.count * size;
        }
    } else {
        at += n * size;
    }
    s->begun = s->begun || k == 0;
    if (m->type == MST_PS_WEIGHTS) {
        if (k == 0)
            s->reply.version = m->step;
        p->taken += n;
        client_land(self, p, m->size);
        return MST_OK;
    }
    client_land(self, p, UINT64_MAX);
    if (k == 0) {
        s->reply.version = m->step;
        s->reply.dropped = (m->flags & MST_VALUES_DROPPED) != 0;
        if (m->flags & MST_VALUES_WORK) {
            TRY(mst_work_decode(at, MST_WORK_SIZE, &s->reply.work));
            s->reply.has_work = true;
        }
    }
    p->waiting = false;
    if (--s->n_waiting == 0)
        s->state = REQUEST_READY;
    return MST_OK;
}

void mst_client_down(mst_client *self, uint32_t peer, const mst_error *why)
{
    for (uint32_t k = 0; k < self->n_servers && !self->lost; k++)
        if (self->peers[k] == peer) {
            self->lost = true;
            self->why = *why;
            self->why.code = MST_EPEER;
        }
}

/* Names the servers that have not answered the request. */
static mst_status client_fail_late(const mst_client *self, const client_request *s)
{
    char names[512];
    size_t used = 0;
    names[0] = '\0';
    for (uint32_t k = 0; k < self->n_servers && used + 1 < sizeof names; k++) {
        char name[128];
        if (!s->shares[k].waiting)
            continue;
        mst_net_name_of(self->options.net, self->peers[k], name, sizeof name);
        int n = snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", name);
        used += n > 0 ? (size_t)n : 0;
    }
    return mst_fail(MST_ETIMEOUT, "no answer to a step in time from %s", names);
}

mst_status mst_client_wait(mst_client *self, uint32_t request, uint64_t deadline_ns)
{
    const client_request *s = &self->requests[request];
    if (s->state == REQUEST_IDLE)
        return mst_fail(MST_EUSAGE, "request %" PRIu32 " is not in flight", request);
    while (s->state != REQUEST_READY) {
        if (self->lost)
            return mst_error_restore(&self->why);
        TRY(mst_net_poll(self->options.net, deadline_ns));
        if (s->state != REQUEST_READY && !self->lost && mst_now_ns() >= deadline_ns)
            return client_fail_late(self, s);
    }
    return MST_OK;
}
