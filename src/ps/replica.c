/* A server's copies; contract in replica.h. */
#include "ps/replica.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "ps/server_impl.h"
#include "run/sparse_file.h"

#define PIECE_FLOATS (1u << 16)    /* 256 KB: deltas wait behind pieces */
#define WINDOW       4             /* pieces in flight */
#define STATE_NS     (50 * MST_MS) /* between states of the run */
#define PATIENCE_NS  (2 * MST_S)   /* for the coordinator to notice the loss of a partner */

void mst_replica_init(mst_server *s)
{
    s->replica.on = s->options.replicas;
    s->replica.partner = s->index ^ 1u;
}

static void replica_state_fini(mst_replica_state *self)
{
    json_decref(self->run);
    json_decref(self->run_before);
}

void mst_replica_fini(mst_server *s)
{
    mst_delta_fini(&s->replica.step);
    mst_delta_fini(&s->replica.in_delta);
    replica_state_fini(&s->replica.state);
}

static uint32_t replica_peer(const mst_server *s)
{
    return s->servers[s->replica.partner];
}

static float *replica_floats(const mst_server *s, uint32_t slot, uint64_t first)
{
    const mst_params *params = s->model.params;
    return (slot == 0 ? params->w : params->slots[slot - 1]) + first;
}

/* Whether the partner owns floats, so that its loss changes the roster. */
static bool replica_partner_owns(const mst_server *s)
{
    return mst_placement_has(&s->table, s->replica.partner);
}

static mst_status replica_send_copy(mst_server *s, uint32_t flags)
{
    mst_message m = {
        .type = MST_PS_COPY, .flags = flags, .count = s->replica.roster, .step = s->steps.applied};
    return mst_unless_gone(mst_ps_send(s->net, replica_peer(s), &m));
}

mst_status mst_replica_connect(mst_server *s)
{
    const mst_replica *r = &s->replica;
    if (!r->on || r->partner == 0 || r->partner > s->index || replica_peer(s) != MST_PEER_NONE)
        return MST_OK;
    return mst_net_connect(s->net, s->options.servers[r->partner],
                           mst_now_ns() + s->options.start_timeout_ms * MST_MS, &s->servers[r->partner]);
}

/* ---- building a copy ---- */

static mst_status replica_send_state(mst_server *s)
{
    uint64_t at[3];
    mst_takeover_progress(s, at);
    mst_piece piece = {at, sizeof at};
    mst_message m = {.type = MST_PS_STATE, .count = s->replica.roster, .step = s->steps.applied};
    return mst_unless_gone(mst_net_send(s->net, replica_peer(s), &m, &piece, 1, NULL));
}

static mst_status replica_send_pieces(mst_server *s)
{
    mst_replica *r = &s->replica;
    mst_float_piece p;
    if (r->out != MST_COPY_BUILT)
        return MST_OK;
    while (r->in_flight < WINDOW &&
           mst_float_cursor_next(&r->next, &s->owned, s->model.params, PIECE_FLOATS, &p)) {
        const float *from = replica_floats(s, p.slot, p.first);
        mst_message m = {
            .type = MST_PS_PIECE, .count = p.slot, .step = p.first, .request = (uint32_t)p.count};
        size_t size = (size_t)p.count * sizeof *from;
        if (mst_is_zero(from, size)) {
            m.flags = MST_FLOATS_ZERO;
            TRY(mst_unless_gone(mst_ps_send(s->net, replica_peer(s), &m)));
            continue;
        }
        mst_body *piece = mst_body_take(&s->bodies, size);
        if (piece == NULL)
            return mst_fail_memory();
        memcpy(piece->data, from, size);
        piece->restores = MST_BODY_COPY;
        TRY(mst_unless_gone(mst_body_lend(&s->bodies, replica_peer(s), &m, piece, size)));
        r->in_flight++;
    }
    if (!r->next.ended)
        return MST_OK;
    r->out = MST_COPY_WHOLE;
    if (s->co != NULL)
        TRY(replica_send_state(s));
    return replica_send_copy(s, MST_COPY_END);
}

void mst_replica_sent(mst_server *s)
{
    if (s->replica.in_flight > 0)
        s->replica.in_flight--;
    mst_status st = replica_send_pieces(s);
    if (st != MST_OK)
        mst_server_fail(s, st);
}

/* The partner has requested a copy of this server's floats. */
static mst_status replica_start_copy(mst_server *s)
{
    mst_replica *r = &s->replica;
    if (!r->wanted || r->wanted_roster != r->roster || !s->setup.ready || replica_peer(s) == MST_PEER_NONE)
        return MST_OK;
    r->wanted = false;
    r->out = MST_COPY_BUILT;
    r->next = (mst_float_cursor){0};
    r->n_copied = r->n_sent;
    TRY(replica_send_copy(s, MST_COPY_BEGIN));
    return replica_send_pieces(s);
}

mst_status mst_replica_begin(mst_server *s)
{
    mst_replica *r = &s->replica;
    if (!r->on || !s->setup.ready || replica_peer(s) == MST_PEER_NONE)
        return MST_OK;
    if (r->in == MST_COPY_NONE && replica_partner_owns(s))
        TRY(replica_send_copy(s, MST_COPY_WANTED));
    return replica_start_copy(s);
}

static mst_status replica_take_piece(mst_server *s, const mst_message *m, const uint8_t *body)
{
    uint64_t count = m->request;
    bool zero = (m->flags & MST_FLOATS_ZERO) != 0;
    if (s->replica.in != MST_COPY_BUILT)
        return MST_OK; /* of an earlier roster */
    if (m->size != (zero ? 0 : count * sizeof(float)) ||
        !mst_placement_owns_state(&s->table, s->replica.partner, s->model.params, m->count, m->step, count))
        return mst_fail(MST_EPEER, "a PIECE of floats that server %" PRIu32 " does not own",
                        s->replica.partner);
    float *to = replica_floats(s, m->count, m->step);
    size_t size = (size_t)count * sizeof *to;
    if (!zero)
        memcpy(to, body, size);
    else if (!mst_is_zero(to, size)) /* pages that were never written stay so */
        memset(to, 0, size);
    return MST_OK;
}

static mst_status replica_take_copy(mst_server *s, const mst_message *m)
{
    mst_replica *r = &s->replica;
    if (m->flags == MST_COPY_WANTED) {
        r->wanted = true;
        r->wanted_roster = m->count;
        return replica_start_copy(s);
    }
    if (m->flags == MST_COPY_HERE && s->co != NULL)
        return mst_takeover_copied(s, s->index, m->count, m->step);
    if (m->flags != MST_COPY_BEGIN && m->flags != MST_COPY_END)
        return mst_fail(MST_EPEER, "a COPY with flags 0x%" PRIx32, m->flags);
    if (m->count != r->roster || s->store == NULL)
        return MST_OK;
    if (m->flags == MST_COPY_BEGIN) {
        r->in = MST_COPY_BUILT;
        return MST_OK;
    }
    if (r->in != MST_COPY_BUILT)
        return mst_fail(MST_EPEER, "the end of a copy that has not begun");
    r->in = MST_COPY_WHOLE;
    r->in_step = m->step;
    memcpy(r->state.at, r->state.next, sizeof r->state.at);
    r->in_undoable = false;
    if (s->co != NULL)
        return mst_takeover_copied(s, r->partner, r->roster, m->step);
    mst_message here = {.type = MST_PS_COPY, .flags = MST_COPY_HERE, .count = r->roster, .step = m->step};
    return mst_unless_gone(mst_ps_send(s->net, s->servers[0], &here));
}

/* ---- deltas ---- */

mst_status mst_replica_before(mst_server *s, const mst_store_request *const *requests, uint32_t n)
{
    mst_replica *r = &s->replica;
    bool undo = mst_is_sync(s) && s->co == NULL;
    if (!r->on || (r->out == MST_COPY_NONE && !undo))
        return MST_OK;
    mst_delta_clear(&r->step);
    for (uint32_t i = 0; i < n; i++)
        if (requests[i]->values != NULL && requests[i]->head.rows > 0)
            TRY(mst_delta_add(&r->step, requests[i]->pushed));
    if (!undo)
        return MST_OK;
    r->undoable = true;
    return mst_delta_keep(&r->step, s->model.params, &s->table);
}

mst_status mst_replica_send_run(mst_server *s)
{
    mst_replica *r = &s->replica;
    uint64_t now = mst_now_ns();
    if (r->out == MST_COPY_NONE || now - r->state_ns < STATE_NS)
        return MST_OK;
    r->state_ns = now;
    json_t *state = mst_takeover_state(s);
    if (state == NULL)
        return MST_OK;
    mst_message m = {
        .type = MST_PS_STATE, .flags = MST_STATE_RUN, .count = r->roster, .step = s->steps.applied};
    return mst_unless_gone(mst_ps_send_json(s->net, replica_peer(s), &m, state));
}

static mst_status replica_take_state(mst_server *s, const mst_message *m, const uint8_t *body)
{
    mst_replica *r = &s->replica;
    json_t *run;
    if (m->count != r->roster)
        return MST_OK;
    if (!(m->flags & MST_STATE_RUN)) {
        if (m->size != MST_STATE_SIZE)
            return mst_fail(MST_EPEER, "a STATE of %" PRIu64 " bytes", m->size);
        memcpy(r->state.next, body, MST_STATE_SIZE);
        return MST_OK;
    }
    TRY(mst_ps_json(m, body, &run));
    json_decref(r->state.run_before);
    r->state.run_before = r->state.run;
    r->state.run = run;
    return MST_OK;
}

mst_status mst_replica_after(mst_server *s)
{
    mst_replica *r = &s->replica;
    if (r->out == MST_COPY_NONE)
        return MST_OK;
    if (s->co != NULL)
        TRY(replica_send_state(s));
    mst_body *body = mst_body_take(&s->bodies, mst_delta_bound(&r->step, s->model.params, &s->table));
    if (body == NULL)
        return mst_fail_memory();
    size_t size = mst_delta_encode(&r->step, s->model.params, &s->table, body->data);
    mst_message m = {
        .type = MST_PS_DELTA, .request = ++r->n_sent, .count = r->roster, .step = s->steps.applied};
    return mst_unless_gone(mst_body_lend(&s->bodies, replica_peer(s), &m, body, size));
}

mst_status mst_replica_report(mst_server *s, uint64_t step)
{
    const mst_replica *r = &s->replica;
    if (!r->on || s->co != NULL || !mst_is_sync(s) || (r->partner == 0 && r->out != MST_COPY_NONE))
        return MST_OK; /* server 0 counts the deltas of its partner */
    mst_message m = {.type = MST_PS_APPLIED, .count = r->roster, .step = step};
    return mst_unless_gone(mst_ps_send(s->net, s->servers[0], &m));
}

static mst_status replica_take_delta(mst_server *s, const mst_message *m, const uint8_t *body)
{
    mst_replica *r = &s->replica;
    const uint8_t *values = NULL;
    if (m->count != r->roster || r->in == MST_COPY_NONE)
        return MST_OK;
    if (body == NULL)
        return mst_fail(MST_EPEER, "a DELTA without a body");
    if (mst_is_sync(s) && r->in == MST_COPY_WHOLE && m->step != r->in_step + 1)
        return mst_fail(MST_EPEER, "a DELTA of step %" PRIu64 " after that of step %" PRIu64, m->step,
                        r->in_step);
    TRY(mst_delta_decode(&r->in_delta, body, m->size, s->model.params, &s->table, r->partner, &values));
    r->in_undoable = mst_is_sync(s);
    if (r->in_undoable)
        TRY(mst_delta_keep(&r->in_delta, s->model.params, &s->table));
    mst_delta_copy(&r->in_delta, values, s->model.params, &s->table);
    r->in_step = m->step;
    memcpy(r->state.at, r->state.next, sizeof r->state.at);
    mst_message copied = {.type = MST_PS_COPIED, .request = m->request, .count = r->roster};
    TRY(mst_unless_gone(mst_ps_send(s->net, replica_peer(s), &copied)));
    return s->co != NULL ? mst_takeover_applied(s, r->partner, r->roster, m->step) : MST_OK;
}

static mst_status replica_take_copied(mst_server *s, const mst_message *m)
{
    mst_replica *r = &s->replica;
    if (m->count != r->roster || r->out == MST_COPY_NONE)
        return MST_OK;
    if (m->request > r->n_sent)
        return mst_fail(MST_EPEER, "a COPIED for delta %" PRIu32 " of %" PRIu32, m->request, r->n_sent);
    r->n_copied = m->request;
    return mst_steps_copied(s);
}

/* ---- messages ---- */

bool mst_replica_takes(const mst_server *s, uint32_t server, uint16_t type)
{
    return s->replica.on && server == s->replica.partner &&
           (type == MST_PS_PIECE || type == MST_PS_DELTA || type == MST_PS_COPIED || type == MST_PS_COPY ||
            (type == MST_PS_STATE && server == 0));
}

uint64_t mst_replica_most_bytes(const mst_server *s, uint16_t type)
{
    if (s->store == NULL || !s->replica.on)
        return 0;
    if (type == MST_PS_PIECE)
        return PIECE_FLOATS * sizeof(float);
    uint64_t keys = s->table.width == 0 ? 0 : s->table.key_starts[s->table.n_servers];
    return type != MST_PS_DELTA
               ? 0
               : MST_DELTA_HEAD + (uint64_t)MST_WORKER_MAX * MST_EXTENT_MAX * MST_RANGE_SIZE + 5 * keys +
                     s->table.size * (1 + s->model.params->n_slots) * sizeof(float);
}

mst_status mst_replica_message(mst_server *s, const mst_message *m, const uint8_t *body)
{
    if (m->type == MST_PS_COPY)
        return replica_take_copy(s, m);
    if (s->store == NULL)
        return mst_fail(MST_EPEER, "%s before this server is set up", mst_ps_type_name(m->type));
    return m->type == MST_PS_PIECE   ? replica_take_piece(s, m, body)
           : m->type == MST_PS_DELTA ? replica_take_delta(s, m, body)
           : m->type == MST_PS_STATE ? replica_take_state(s, m, body)
                                     : replica_take_copied(s, m);
}

/* ---- the partner ---- */

void mst_replica_up(mst_server *s)
{
    s->replica.lost_ns = 0;
    mst_status st = mst_replica_begin(s);
    if (st != MST_OK)
        mst_server_fail(s, st);
}

void mst_replica_down(mst_server *s)
{
    mst_replica *r = &s->replica;
    mst_status st = MST_OK;
    r->out = MST_COPY_NONE;
    r->wanted = false;
    r->in_flight = 0;
    r->n_copied = r->n_sent;
    if (s->store == NULL || s->over)
        return;
    if (r->in == MST_COPY_BUILT)
        r->in = MST_COPY_NONE;
    if (replica_partner_owns(s))
        r->lost_ns = mst_now_ns(); /* a roster follows, before which nothing is answered */
    else
        st = mst_steps_copied(s);
    if (st != MST_OK)
        mst_server_fail(s, st);
}

void mst_replica_tick(mst_server *s)
{
    const mst_replica *r = &s->replica;
    if (!r->on || s->co != NULL || r->lost_ns == 0 || r->partner > s->index)
        return;
    if (mst_now_ns() - r->lost_ns > PATIENCE_NS)
        mst_server_fail(s,
                        mst_fail(MST_EAGAIN, "server %" PRIu32 " has lost its connection to server %" PRIu32,
                                 s->index, r->partner));
}

/* ---- rosters ---- */

/* sync: returns to step T = steps, from it or from the step after it. */
static mst_status replica_align(mst_server *s, uint64_t steps)
{
    mst_replica *r = &s->replica;
    if (s->steps.applied == steps + 1 && r->undoable)
        mst_delta_restore(&r->step, s->model.params, &s->table);
    else if (s->steps.applied != steps && s->owned.floats > 0)
        return mst_fail(MST_EAGAIN,
                        "server %" PRIu32 " is at step %" PRIu64 " and cannot return to step %" PRIu64,
                        s->index, s->steps.applied, steps);
    if (r->in == MST_COPY_WHOLE && r->in_step == steps + 1 && r->in_undoable)
        mst_delta_restore(&r->in_delta, s->model.params, &s->table);
    else if (r->in == MST_COPY_WHOLE && r->in_step != steps)
        r->in = MST_COPY_NONE;
    s->steps.applied = r->in_step = steps;
    return MST_OK;
}

static mst_status replica_replace_table(mst_server *s, mst_placement *table)
{
    mst_store_destroy(s->store);
    s->store = NULL;
    mst_free(s->owned.extents);
    s->owned = (mst_owned){0};
    mst_placement_fini(&s->table);
    s->table = *table;
    *table = (mst_placement){0};
    return mst_server_make_store(s);
}

/* Whether this server owns floats of its partner in another table. */
static bool replica_gains(const mst_server *s, const mst_placement *table)
{
    for (uint32_t i = 0; i < table->n_partitions && i < s->table.n_partitions; i++)
        if (table->partitions[i].server == s->index && s->table.partitions[i].server == s->replica.partner)
            return true;
    return false;
}

mst_status mst_replica_set_roster(mst_server *s, uint32_t roster, mst_placement *table, uint64_t steps,
                                  uint32_t cut, bool copied, const char *why)
{
    mst_replica *r = &s->replica;
    if (mst_is_sync(s))
        TRY(replica_align(s, steps));
    if (r->in != MST_COPY_WHOLE && replica_gains(s, table))
        return mst_fail(MST_EAGAIN, "server %" PRIu32 " has no copy of the weights of server %" PRIu32,
                        s->index, r->partner);
    mst_server_reset_workers(s, why);
    TRY(replica_replace_table(s, table));
    r->roster = roster;
    r->lost_ns = 0;
    r->undoable = r->in_undoable = false;
    r->n_sent = r->n_copied = 0;
    r->out = r->in = copied ? MST_COPY_WHOLE : MST_COPY_NONE;
    r->state_ns = 0;
    s->cut.number = s->cut.taken = cut;
    s->cut.holds = false;
    s->cut.chief = UINT32_MAX;
    return mst_replica_begin(s);
}

mst_status mst_replica_take_roster(mst_server *s, const json_t *json)
{
    json_int_t roster, steps, cut;
    json_t *json_table;
    int copied;
    mst_placement table = {0};
    if (!s->replica.on || s->store == NULL ||
        json_unpack((json_t *)json, "{s:I, s:o, s:I, s:I, s:b}", "roster", &roster, "table", &json_table,
                    "steps", &steps, "cut", &cut, "copied", &copied) != 0)
        return mst_fail(MST_EPEER, "server 0 sent an invalid ROSTER");
    TRY(mst_placement_from_json(&table, json_table));
    mst_status st = table.size == s->table.size
                        ? mst_replica_set_roster(s, (uint32_t)roster, &table, (uint64_t)steps, (uint32_t)cut,
                                                 copied, "the servers of the job have changed")
                        : mst_fail(MST_EPEER, "server 0 sent a ROSTER of another model");
    mst_placement_fini(&table);
    TRY(st);
    s->replica.answers = true;
    mst_checkpoint_stream_abandon(s);
    return mst_replica_roster_ready(s);
}

mst_status mst_replica_roster_ready(mst_server *s)
{
    if (!s->replica.answers || s->checkpoint.in_flight > 0)
        return MST_OK;
    s->replica.answers = false;
    mst_message ready = {.type = MST_PS_READY, .flags = MST_READY_ROSTER, .count = s->replica.roster};
    return mst_unless_gone(mst_ps_send(s->net, s->servers[0], &ready));
}

/* ---- after the loss of the coordinator ---- */

mst_status mst_replica_keep(mst_server *s, mst_replica_kept **out)
{
    mst_replica *r = &s->replica;
    *out = NULL;
    if (!r->on || s->store == NULL)
        return MST_OK;
    mst_replica_kept *kept = mst_zalloc(sizeof *kept);
    if (kept == NULL)
        return mst_fail_memory();
    mst_status st = mst_placement_copy(&s->table, &kept->table);
    if (st != MST_OK) {
        mst_free(kept);
        return st;
    }
    kept->whole = r->in == MST_COPY_WHOLE;
    kept->in_step = r->in_step;
    kept->step = r->step;
    kept->in_delta = r->in_delta;
    kept->undoable = r->undoable;
    kept->in_undoable = r->in_undoable;
    kept->state = r->state;
    r->step = r->in_delta = (mst_delta){0};
    r->state = (mst_replica_state){0};
    *out = kept;
    return MST_OK;
}

void mst_replica_kept_destroy(mst_replica_kept *self)
{
    if (self == NULL)
        return;
    mst_placement_fini(&self->table);
    mst_delta_fini(&self->step);
    mst_delta_fini(&self->in_delta);
    replica_state_fini(&self->state);
    mst_free(self);
}

/* sync: the state of the copy's step; otherwise the older of two states of the run, whose rows have arrived
 * on all servers. */
static json_t *replica_kept_copy(const mst_server *s, const mst_replica_kept *kept)
{
    bool older = !mst_is_sync(s) && kept->state.run_before != NULL;
    const json_t *run = older ? kept->state.run_before : kept->state.run;
    json_t *log = json_object_get(run, "log"), *plan = json_object_get(run, "plan");
    const uint64_t *at = kept->state.at;
    if (log == NULL || plan == NULL)
        return NULL;
    if (mst_is_sync(s))
        return json_pack("{s:I, s:o, s:[I, I, I, I], s:O, s:O}", "step", (json_int_t)kept->in_step, "table",
                         mst_placement_json(&kept->table), "at", (json_int_t)kept->in_step, (json_int_t)at[0],
                         (json_int_t)at[1], (json_int_t)at[2], "log", log, "plan", plan);
    return json_pack("{s:I, s:o, s:[O, O, O, O], s:O, s:O}", "step", (json_int_t)kept->in_step, "table",
                     mst_placement_json(&kept->table), "at", json_object_get(log, "step"),
                     json_object_get(log, "rows"), json_object_get(log, "epoch"),
                     json_object_get(log, "position"), "log", log, "plan", plan);
}

json_t *mst_replica_kept_json(const mst_server *s)
{
    const mst_server_kept *kept = s->options.kept;
    const mst_replica_kept *replica = kept->replica;
    json_t *json = json_pack("{s:s, s:I, s:b, s:b}", "key", kept->key, "steps", (json_int_t)kept->steps,
                             "owns", (int)(replica != NULL && mst_placement_has(&replica->table, s->index)),
                             "undo", (int)(replica != NULL && replica->undoable));
    if (json != NULL && replica != NULL && replica->whole && s->index == 1) {
        json_t *copy = replica_kept_copy(s, replica);
        if (copy != NULL)
            json_object_set_new(json, "copy", copy);
    }
    return json;
}

mst_status mst_replica_recall(mst_server *s, mst_replica_kept *kept, uint64_t had, uint64_t steps)
{
    if (kept == NULL || !mst_is_sync(s))
        return MST_OK;
    if (had == steps + 1 && kept->undoable)
        mst_delta_restore(&kept->step, s->model.params, &kept->table);
    else if (had != steps)
        return mst_fail(MST_EPEER, "server 0 continues from step %" PRIu64 ", but this server is at %" PRIu64,
                        steps, had);
    return MST_OK;
}

void mst_server_kept_fini(mst_server_kept *self)
{
    mst_replica_kept_destroy(self->replica);
    *self = (mst_server_kept){0};
}
