/* Channels of engine mpi: frames and bodies to and from one rank; format in mpi_net_impl.h.
 *
 * All requests lie in one array, a fixed number per channel, so that one call of MPI tests them all: the
 * receive of the next frame, those of the body's segments, and the sends. The next frame is received only
 * when the body before it is here, which keeps the order and makes MPI block the sender (back-pressure).
 *
 * Invariants
 * 1. What MPI reads or writes stays until its request is done: out-messages are freed then, bodies of links
 *    that end meanwhile are received to the end first (mst_mpi_channel_busy).
 * 2. Messages leave a channel in the order they were queued, and are reported sent in that order.
 * 3. The request of a slot is none when the slot is free. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "net/mpi_net_impl.h"

#define IN_SLOT  1
#define OUT_SLOT (1 + MST_MPI_IN_SLOTS)

static mst_mpi_request *channel_slots_of(const mst_mpi_net *n, size_t channel)
{
    return n->requests + 1 + channel * MST_MPI_SLOTS;
}

static mst_mpi_request *channel_slots(const mst_mpi_net *n, const mst_mpi_channel *channel)
{
    size_t i = 0;
    while (n->channels[i] != channel)
        i++;
    return channel_slots_of(n, i);
}

static mst_status channel_expect_head(mst_mpi_net *n, mst_mpi_channel *channel, mst_mpi_request *slots)
{
    return n->mpi->ops->irecv(0, channel->head, MST_MPI_HEAD, channel->rank, MST_MPI_TAG_HEAD, &slots[0]);
}

static void channel_free(mst_mpi_channel *channel)
{
    if (channel == NULL)
        return;
    mst_free(channel->head);
    mst_free(channel);
}

bool mst_mpi_channels_room(mst_mpi_net *n, size_t n_channels)
{
    size_t slots = 1 + n_channels * MST_MPI_SLOTS;
    return mst_grow(&n->channels, &n->channels_capacity, n_channels + 1, sizeof *n->channels) &&
           mst_grow(&n->requests, &n->requests_capacity, slots, sizeof *n->requests) &&
           mst_grow(&n->done, &n->done_capacity, slots, sizeof *n->done);
}

mst_mpi_channel *mst_mpi_channel_of(mst_mpi_net *n, int rank)
{
    for (size_t i = 0; i < n->n_channels; i++)
        if (n->channels[i]->rank == rank)
            return n->channels[i];
    if (!mst_mpi_channels_room(n, n->n_channels + 1))
        return NULL;
    mst_mpi_channel *channel = mst_zalloc(sizeof *channel);
    if (channel == NULL || (channel->head = mst_alloc(MST_MPI_HEAD)) == NULL) {
        channel_free(channel);
        return NULL;
    }
    channel->rank = rank;
    channel->out_last = &channel->out;
    mst_mpi_request *own = channel_slots_of(n, n->n_channels);
    for (int i = 0; i < MST_MPI_SLOTS; i++)
        own[i] = MST_MPI_NONE;
    if (channel_expect_head(n, channel, own) != MST_OK) {
        channel_free(channel);
        return NULL;
    }
    n->channels[n->n_channels++] = channel;
    return channel;
}

bool mst_mpi_channel_busy(const mst_mpi_channel *channel)
{
    return channel->out != NULL || channel->in.active;
}

/* Buffers of pending requests are not freed: MPI may read or write them. */
void mst_mpi_channels_free(mst_mpi_net *n)
{
    for (size_t i = 0; i < n->n_channels; i++) {
        mst_mpi_request *slots = channel_slots_of(n, i);
        if (mst_mpi_channel_busy(n->channels[i]))
            continue;
        (void)n->mpi->ops->cancel(&slots[0]);
        channel_free(n->channels[i]);
    }
    mst_free(n->channels);
    mst_free(n->requests);
    mst_free(n->done);
}

/* ---- sending ---- */

static void channel_count_queued(mst_mpi_net *n, const mst_mpi_out *out, bool add)
{
    if (out->bytes == 0)
        return;
    mst_net_stats *s = &n->peers[out->peer]->stats;
    s->queued = add ? s->queued + out->bytes : s->queued - out->bytes;
}

/* The next piece of `out` that MPI can be given; false: all of it was. */
static bool channel_next_segment(mst_mpi_out *out, mst_piece *segment, int *tag)
{
    if (!out->begun) {
        out->begun = true;
        *segment = (mst_piece){.data = out->head, .size = (size_t)out->frame};
        *tag = MST_MPI_TAG_HEAD;
        return true;
    }
    while (out->at < out->n_pieces && out->at_offset == out->pieces[out->at].size) {
        out->at++;
        out->at_offset = 0;
    }
    if (out->at == out->n_pieces)
        return false;
    const mst_piece *p = &out->pieces[out->at];
    uint64_t left = p->size - out->at_offset;
    *segment = (mst_piece){.data = (const uint8_t *)p->data + out->at_offset,
                           .size = (size_t)(left < MST_MPI_SEGMENT ? left : MST_MPI_SEGMENT)};
    *tag = MST_MPI_TAG_BODY;
    out->at_offset += segment->size;
    return true;
}

/* Gives MPI as much as there are free slots for. */
static mst_status channel_push_out(mst_mpi_net *n, mst_mpi_channel *channel, mst_mpi_request *slots)
{
    for (int i = 0; i < MST_MPI_OUT_SLOTS && channel->next_out != NULL; i++) {
        mst_piece segment;
        int tag;
        if (slots[OUT_SLOT + i].opaque != 0)
            continue;
        while (channel->next_out != NULL && !channel_next_segment(channel->next_out, &segment, &tag)) {
            channel->next_out->posted = true;
            channel->next_out = channel->next_out->next;
        }
        if (channel->next_out == NULL)
            break;
        TRY(n->mpi->ops->isend(0, segment.data, segment.size, channel->rank, tag, &slots[OUT_SLOT + i]));
        if (slots[OUT_SLOT + i].opaque == 0) /* done at once */
            continue;
        channel->owners[i] = channel->next_out;
        channel->next_out->n_under_way++;
    }
    while (channel->next_out != NULL && channel->next_out->begun &&
           channel->next_out->n_pieces == channel->next_out->at) {
        channel->next_out->posted = true;
        channel->next_out = channel->next_out->next;
    }
    return MST_OK;
}

/* The frame and what goes with it. token NULL: pieces are copied. */
static mst_mpi_out *out_new(uint32_t peer, uint64_t link, const mst_message *m, const mst_piece *pieces,
                            uint32_t n_pieces, void *token)
{
    uint64_t room = MST_MPI_HEAD - MST_MPI_FIXED, within = 0;
    uint32_t first = 0; /* pieces before this are within the frame */
    while (first < n_pieces && pieces[first].size <= room - within)
        within += pieces[first++].size;
    uint64_t copies = token == NULL ? m->size - within : 0;
    mst_mpi_out *out = mst_alloc((size_t)(sizeof *out + MST_MPI_FIXED + within + copies));
    if (out == NULL)
        return NULL;
    *out = (mst_mpi_out){.peer = peer,
                         .token = token,
                         .bytes = m->type < MST_NET_TYPES ? 0 : mst_frame_size(m->size),
                         .frame = MST_MPI_FIXED + within,
                         .n_pieces = n_pieces - first};
    memset(out->head, 0, MST_MPI_FIXED);
    mst_message header = *m;
    if (m->type < MST_NET_TYPES) {
        header.type = MST_WIRE_DISCONNECT;
        mst_put_u32(out->head + 84, m->type);
    }
    mst_header_encode(&header, out->head);
    mst_put_u64(out->head + 64, link);
    mst_put_u64(out->head + 72, within);
    mst_put_u32(out->head + 80, out->n_pieces);
    mst_pieces_copy(out->head + MST_MPI_FIXED, pieces, first);
    uint8_t *copy = out->head + out->frame;
    for (uint32_t i = 0; i < out->n_pieces; i++) {
        const mst_piece *p = &pieces[first + i];
        out->pieces[i] = *p;
        mst_put_u64(out->head + 88 + 8 * i, p->size);
        if (token == NULL && p->size > 0) {
            memcpy(copy, p->data, p->size);
            out->pieces[i].data = copy;
            copy += p->size;
        }
    }
    return out;
}

mst_status mst_mpi_channel_send(mst_mpi_net *n, mst_mpi_channel *channel, uint32_t peer, uint64_t link,
                                const mst_message *m, const mst_piece *pieces, uint32_t n_pieces, void *token)
{
    mst_mpi_out *out = out_new(peer, link, m, pieces, n_pieces, token);
    if (out == NULL)
        return mst_fail_memory();
    *channel->out_last = out;
    channel->out_last = &out->next;
    if (channel->next_out == NULL)
        channel->next_out = out;
    channel_count_queued(n, out, true);
    return channel_push_out(n, channel, channel_slots(n, channel));
}

void mst_mpi_channel_forget(mst_mpi_net *n, mst_mpi_channel *channel, uint32_t peer)
{
    for (mst_mpi_out **at = &channel->out; *at != NULL;) {
        mst_mpi_out *out = *at;
        if (out->peer != peer || out->begun) {
            at = &out->next;
            continue;
        }
        *at = out->next;
        if (channel->next_out == out)
            channel->next_out = out->next;
        channel_count_queued(n, out, false);
        mst_free(out);
    }
    channel->out_last = &channel->out;
    while (*channel->out_last != NULL)
        channel->out_last = &(*channel->out_last)->next;
}

/* Reports messages at the front that have left to their peers. */
static bool channel_report_sent(mst_mpi_net *n, mst_mpi_channel *channel)
{
    bool any = false;
    while (channel->out != NULL && channel->out->posted && channel->out->n_under_way == 0) {
        mst_mpi_out *out = channel->out;
        uint32_t peer = out->peer;
        void *token = out->token;
        channel->out = out->next;
        if (channel->out == NULL)
            channel->out_last = &channel->out;
        channel_count_queued(n, out, false);
        mst_free(out);
        any = true;
        if (token != NULL && n->peers[peer]->state == MST_MPI_UP)
            n->events.sent(n->arg, peer, token);
    }
    return any;
}

/* ---- receiving ---- */

/* Posts receives for what is still to come of the body. */
static mst_status channel_pull_in(mst_mpi_net *n, mst_mpi_channel *channel)
{
    mst_mpi_in *in = &channel->in;
    mst_mpi_request *slots = channel_slots(n, channel);
    for (int i = 0; i < MST_MPI_IN_SLOTS && in->at < in->n_pieces; i++) {
        if (slots[IN_SLOT + i].opaque != 0)
            continue;
        if (in->discard && in->n_under_way > 0) /* one after the other into the same place */
            return MST_OK;
        while (in->at < in->n_pieces && in->at_offset == in->sizes[in->at]) {
            in->at++;
            in->at_offset = 0;
        }
        if (in->at == in->n_pieces)
            return MST_OK;
        uint64_t left = in->sizes[in->at] - in->at_offset;
        size_t size = (size_t)(left < MST_MPI_SEGMENT ? left : MST_MPI_SEGMENT);
        TRY(n->mpi->ops->irecv(0, in->discard ? n->scratch : in->body + in->filled, size, channel->rank,
                               MST_MPI_TAG_BODY, &slots[IN_SLOT + i]));
        in->at_offset += size;
        in->filled += size;
        in->n_under_way++;
    }
    return MST_OK;
}

/* The whole message is here. */
static mst_status channel_deliver(mst_mpi_net *n, mst_mpi_channel *channel)
{
    mst_mpi_in in = channel->in;
    channel->in.active = false;
    mst_mpi_peer *p = in.discard ? NULL : n->peers[in.peer];
    if (p != NULL && p->state == MST_MPI_UP) {
        mst_count_in(&p->stats, &n->total, &in.m);
        if (n->events.message(n->arg, in.peer, &in.m, in.body) != MST_OK)
            mst_mpi_refuse(n, in.peer);
    }
    return channel_expect_head(n, channel, channel_slots(n, channel));
}

/* Reads the sizes in the frame; false: it is not a frame of muster. */
static bool channel_read_sizes(const uint8_t *head, mst_mpi_in *in, uint64_t size, uint64_t *within)
{
    *within = mst_get_u64(head + 72);
    in->n_pieces = mst_get_u32(head + 80);
    if (*within > MST_MPI_HEAD - MST_MPI_FIXED || in->n_pieces > MST_PIECE_MAX)
        return false;
    uint64_t sum = *within;
    for (uint32_t i = 0; i < in->n_pieces; i++) {
        in->sizes[i] = mst_get_u64(head + 88 + 8 * i);
        if (in->sizes[i] > size || sum > size - in->sizes[i])
            return false;
        sum += in->sizes[i];
    }
    return sum == size;
}

/* A frame has come. */
static mst_status channel_take_head(mst_mpi_net *n, mst_mpi_channel *channel)
{
    const uint8_t *head = channel->head;
    mst_mpi_in *in = &channel->in;
    mst_message m;
    uint64_t within = 0, link = mst_get_u64(head + 64);
    uint32_t peer = mst_mpi_peer_of(n, channel->rank, link);
    *in = (mst_mpi_in){.active = true, .discard = true, .peer = peer};
    if (mst_header_decode(head, MST_WIRE_HEADER, UINT64_MAX, &m) != MST_OK ||
        !channel_read_sizes(head, in, m.size, &within))
        return mst_fail(MST_EPEER, "mpi:%d sent a message that is not a muster message", channel->rank);
    in->m = m;
    if (m.type < MST_NET_TYPES) {
        m.type = (uint16_t)mst_get_u32(head + 84);
        mst_status st = mst_mpi_control(n, channel->rank, &m, link, head + MST_MPI_FIXED);
        in->active = false;
        TRY(st);
        return channel_expect_head(n, channel, channel_slots(n, channel));
    }
    if (peer != MST_PEER_NONE &&
        mst_header_decode(head, MST_WIRE_HEADER, n->options.max_body, &m) != MST_OK) {
        mst_mpi_refuse(n, peer);
    } else if (peer != MST_PEER_NONE) {
        void *body = NULL;
        mst_status st = m.size > 0 ? n->events.body(n->arg, peer, &m, &body) : MST_OK;
        if (st != MST_OK && n->peers[peer]->state == MST_MPI_UP)
            mst_mpi_refuse(n, peer);
        in->discard = st != MST_OK || n->peers[peer]->state != MST_MPI_UP;
        in->body = body;
    }
    if (!in->discard && in->body != NULL && within > 0)
        memcpy(in->body, head + MST_MPI_FIXED, (size_t)within);
    in->filled = within;
    TRY(channel_pull_in(n, channel));
    return in->n_under_way == 0 ? channel_deliver(n, channel) : MST_OK;
}

mst_status mst_mpi_channel_detach(mst_mpi_net *n, mst_mpi_channel *channel, uint32_t peer)
{
    mst_mpi_in *in = &channel->in;
    if (!in->active || in->discard || in->peer != peer)
        return MST_OK;
    if (in->n_under_way > 0)
        TRY(mst_mpi_wait(n->mpi, MST_MPI_IN_SLOTS, channel_slots(n, channel) + IN_SLOT, mst_now_ns() + MST_S,
                         "the rest of a message of a rank that was dropped"));
    in->n_under_way = 0;
    in->discard = true;
    TRY(channel_pull_in(n, channel));
    return in->n_under_way == 0 ? channel_deliver(n, channel) : MST_OK;
}

/* ---- turns ---- */

static mst_status channel_turn(mst_mpi_net *n, size_t number, bool *any)
{
    mst_mpi_channel *channel = n->channels[number];
    const bool *done = n->done + 1 + number * MST_MPI_SLOTS;
    bool head = done[0], body = false, out = false;
    for (int i = 0; i < MST_MPI_IN_SLOTS; i++) {
        body |= done[IN_SLOT + i];
        channel->in.n_under_way -= done[IN_SLOT + i];
    }
    for (int i = 0; i < MST_MPI_OUT_SLOTS; i++)
        if (done[OUT_SLOT + i]) {
            out = true;
            channel->owners[i]->n_under_way--;
        }
    *any |= head || body;
    if (out)
        TRY(channel_push_out(n, channel, channel_slots_of(n, number)));
    if (channel->out != NULL)
        *any |= channel_report_sent(n, channel);
    if (body) {
        TRY(channel_pull_in(n, channel));
        if (channel->in.n_under_way == 0)
            TRY(channel_deliver(n, channel));
    }
    return head ? channel_take_head(n, channel) : MST_OK;
}

mst_status mst_mpi_channels_turn(mst_mpi_net *n, bool *any)
{
    uint32_t n_done = 0;
    size_t n_channels = n->n_channels; /* an event may add one */
    TRY(n->mpi->ops->test_some((uint32_t)(1 + n_channels * MST_MPI_SLOTS), n->requests, n->done, &n_done));
    if (n_done == 0)
        return MST_OK;
    bool hello = n->done[0];
    for (size_t i = 0; i < n_channels; i++)
        TRY(channel_turn(n, i, any));
    if (!hello)
        return MST_OK;
    *any = true;
    return mst_mpi_hello_came(n);
}
