/* Engine mpi: ranks of one MPI job; contract in net.h, frames and channels in mpi_net_impl.h.
 *
 * Addresses are "mpi:RANK". The thread that owns the net is the one that uses MPI (mpi/mpi.h), and there is
 * one net in a process. MPI has no connections; a link is established by four frames: HELLO to the rank that
 * listens, WELCOME (or REFUSE) back, READY, and at the end one last frame each way: DISCONNECT from the side
 * that ends it and CLOSED (or its own DISCONNECT) from the other. After these, no frame of the link is in
 * flight.
 *
 * MPI neither detects a dead rank nor continues without it: a caller that must not hang uses the rank monitor
 * (ranks/rank_monitor.h), and peer_timeout_ms has no meaning here. A poll backs off: it yields the processor,
 * then sleeps 50 us and finally 500 us between tests.
 *
 * Invariants
 * 1. A link's events come between its `up` and its `down`; frames of other links are received and dropped.
 * 2. n_pending counts the peers in the states DIALING, JOINING and ENDED. */
#include <inttypes.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/version.h"
#include "net/mpi_net_impl.h"

#define IDENTITY 56 /* bytes of an identity in a frame */
#define VERSION  16
#define GRACE_NS (2 * MST_S)

static atomic_bool g_there; /* the one net of this process */

static pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER; /* guards g_lost_message */
static atomic_bool g_lost;
static char g_lost_message[MST_ERROR_MAX];

void mst_net_mpi_lost(const char *message)
{
    pthread_mutex_lock(&g_mutex);
    if (!atomic_load(&g_lost))
        snprintf(g_lost_message, sizeof g_lost_message, "%s", message);
    atomic_store(&g_lost, true);
    pthread_mutex_unlock(&g_mutex);
}

static mst_status mpi_fail_lost(void)
{
    pthread_mutex_lock(&g_mutex);
    mst_status st = mst_fail(MST_EPEER, "%s", g_lost_message);
    pthread_mutex_unlock(&g_mutex);
    return st;
}

/* ---- identities ---- */

static void mpi_put_identity(const mst_identity *who, uint8_t out[IDENTITY])
{
    memset(out, 0, IDENTITY);
    mst_put_u32(out, (uint32_t)who->role);
    mst_put_u32(out + 4, who->index);
    mst_put_u64(out + 8, who->incarnation);
    memcpy(out + 16, who->job, strnlen(who->job, MST_JOB_MAX - 1));
}

static void mpi_get_identity(const uint8_t *in, mst_identity *who)
{
    *who = (mst_identity){
        .role = (mst_role)mst_get_u32(in), .index = mst_get_u32(in + 4), .incarnation = mst_get_u64(in + 8)};
    memcpy(who->job, in + 16, MST_JOB_MAX - 1);
}

/* SHA-256 of the link and the secret; false when it cannot be computed. */
static bool mpi_digest_secret(const mst_mpi_net *n, uint64_t link, uint8_t out[32])
{
    uint8_t number[8];
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    mst_put_u64(number, link);
    bool done = hash != NULL && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1 &&
                EVP_DigestUpdate(hash, number, sizeof number) == 1 &&
                EVP_DigestUpdate(hash, n->secret, strlen(n->secret)) == 1 &&
                EVP_DigestFinal_ex(hash, out, NULL) == 1;
    EVP_MD_CTX_free(hash);
    return done;
}

/* ---- peers ---- */

static mst_mpi_peer *mpi_peer_at(const mst_mpi_net *n, uint32_t number)
{
    return number < n->n_peers ? n->peers[number] : NULL;
}

static bool mpi_is_pending(mst_mpi_state state)
{
    return state == MST_MPI_DIALING || state == MST_MPI_JOINING || state == MST_MPI_ENDED;
}

static void mpi_peer_set_state(mst_mpi_net *n, mst_mpi_peer *p, mst_mpi_state state)
{
    n->n_pending += mpi_is_pending(state);
    n->n_pending -= mpi_is_pending(p->state);
    p->state = state;
}

static mst_status mpi_peer_new(mst_mpi_net *n, int rank, mst_mpi_state state, uint32_t *number)
{
    mst_mpi_peer *p = NULL;
    if (mst_mpi_channel_of(n, rank) == NULL ||
        !mst_grow(&n->peers, &n->peers_capacity, n->n_peers + 1, sizeof *n->peers) ||
        (p = mst_zalloc(sizeof *p)) == NULL)
        return mst_fail_memory();
    p->rank = rank;
    p->state = MST_MPI_DOWN;
    p->start_ns = mst_now_ns();
    snprintf(p->name, sizeof p->name, "mpi:%d", rank);
    mpi_peer_set_state(n, p, state);
    *number = (uint32_t)n->n_peers;
    n->peers[n->n_peers++] = p;
    return MST_OK;
}

static void mpi_peer_set_name(mst_mpi_peer *p, const mst_identity *who)
{
    p->who = *who;
    snprintf(p->name, sizeof p->name, "%s %u (mpi:%d)", mst_role_name(who->role), who->index, p->rank);
}

static mst_mpi_peer *mpi_find_link(const mst_mpi_net *n, int rank, uint64_t link, uint32_t *number)
{
    for (size_t i = n->n_peers; i-- > 0;)
        if (n->peers[i]->rank == rank && n->peers[i]->link == link) {
            *number = (uint32_t)i;
            return n->peers[i];
        }
    return NULL;
}

uint32_t mst_mpi_peer_of(const mst_mpi_net *n, int rank, uint64_t link)
{
    uint32_t number;
    const mst_mpi_peer *p = mpi_find_link(n, rank, link, &number);
    return p != NULL && p->state == MST_MPI_UP ? number : MST_PEER_NONE;
}

/* A frame of net's own. */
static mst_status mpi_peer_send_own(mst_mpi_net *n, int rank, uint64_t link, uint16_t type, const void *body,
                                    size_t size)
{
    mst_mpi_channel *channel = mst_mpi_channel_of(n, rank);
    mst_message m = {.type = type, .size = size};
    mst_piece piece = {.data = body, .size = size};
    if (channel == NULL)
        return mst_fail_memory();
    return mst_mpi_channel_send(n, channel, MST_PEER_NONE, link, &m, &piece, size > 0, NULL);
}

/* The last frame of a link; what waits behind messages that are under way is forgotten. */
static void mpi_peer_disconnect(mst_mpi_net *n, uint32_t number, uint16_t type, const char *message)
{
    mst_mpi_peer *p = n->peers[number];
    mst_mpi_channel *channel = mst_mpi_channel_of(n, p->rank);
    size_t length = strnlen(message, MST_WIRE_OWN_MAX - 1);
    if (p->final_out || channel == NULL)
        return;
    mst_mpi_channel_forget(n, channel, number);
    p->final_out = mpi_peer_send_own(n, p->rank, p->link, type, message, length) == MST_OK;
}

static void mpi_peer_end(mst_mpi_net *n, mst_mpi_peer *p, mst_net_reason reason, mst_status code)
{
    p->why.reason = reason;
    mst_error_save(&p->why.error, code);
    mpi_peer_set_state(n, p, MST_MPI_ENDED);
}

void mst_mpi_refuse(mst_mpi_net *n, uint32_t number)
{
    mst_mpi_peer *p = mpi_peer_at(n, number);
    char text[MST_WIRE_OWN_MAX];
    if (p == NULL || p->state != MST_MPI_UP)
        return;
    snprintf(text, sizeof text, "%s", mst_error_text());
    mpi_peer_disconnect(n, number, MST_MPI_DISCONNECT, text);
    mpi_peer_end(n, p, MST_NET_DIED, mst_fail(MST_EPEER, "%s was dropped: %s", p->name, text));
}

/* ---- joining ---- */

/* HELLO: magic, version | u32 rank | u64 link | identity | version of muster | proof of the secret. */
static void mpi_put_hello(const mst_mpi_net *n, uint64_t link, uint8_t out[MST_MPI_FIXED])
{
    memset(out, 0, MST_MPI_FIXED);
    mst_put_u32(out, MST_WIRE_MAGIC);
    mst_put_u16(out + 4, MST_WIRE_VERSION);
    mst_put_u32(out + 8, (uint32_t)n->mpi->rank);
    mst_put_u64(out + 16, link);
    mpi_put_identity(&n->options.self, out + 24);
    snprintf((char *)out + 80, VERSION, "%s", mst_version());
    (void)mpi_digest_secret(n, link, out + 96); /* without a proof, the peer refuses this process */
}

/* Why the dialer of this hello cannot come in, as it shall read it; "" when it can. */
static void mpi_judge_hello(const mst_mpi_net *n, const uint8_t *hello, const mst_identity *who, char *out,
                            size_t size)
{
    uint8_t proof[32];
    const mst_identity *self = &n->options.self;
    *out = '\0';
    if (strncmp((const char *)hello + 80, mst_version(), VERSION - 1) != 0)
        snprintf(out, size, "it is muster %s, this %.15s; install the same on all hosts", mst_version(),
                 hello + 80);
    else if (!mpi_digest_secret(n, mst_get_u64(hello + 16), proof) ||
             memcmp(proof, hello + 96, sizeof proof) != 0)
        snprintf(out, size, "%s", MST_WIRE_OTHER_SECRET);
    else if (who->job[0] != '\0' && self->job[0] != '\0' && strcmp(who->job, self->job) != 0)
        snprintf(out, size, "that %s belongs to job %s, this %s to job %s", mst_role_name(self->role),
                 self->job, mst_role_name(who->role), who->job);
}

static mst_status mpi_expect_hello(mst_mpi_net *n)
{
    return n->mpi->ops->irecv(0, n->hello, sizeof n->hello, MST_MPI_ANY, MST_MPI_TAG_HELLO, &n->requests[0]);
}

mst_status mst_mpi_hello_came(mst_mpi_net *n)
{
    uint8_t hello[MST_MPI_FIXED], answer[MST_WIRE_OWN_MAX];
    mst_identity who;
    uint32_t number;
    memcpy(hello, n->hello, sizeof hello);
    TRY(mpi_expect_hello(n));
    uint32_t rank = mst_get_u32(hello + 8);
    uint64_t link = mst_get_u64(hello + 16);
    if (mst_get_u32(hello) != MST_WIRE_MAGIC || mst_get_u16(hello + 4) != MST_WIRE_VERSION ||
        rank >= (uint32_t)n->mpi->size)
        return MST_OK; /* unknown protocol: the peer times out */
    hello[80 + VERSION - 1] = '\0';
    mpi_get_identity(hello + 24, &who);
    mpi_put_identity(&n->options.self, answer);
    mpi_judge_hello(n, hello, &who, (char *)answer + IDENTITY, sizeof answer - IDENTITY);
    size_t length = strlen((char *)answer + IDENTITY);
    if (length > 0) {
        (void)mpi_peer_send_own(n, (int)rank, link, MST_MPI_REFUSE, answer, IDENTITY + length);
        return MST_OK;
    }
    if (mpi_peer_new(n, (int)rank, MST_MPI_JOINING, &number) != MST_OK) /* it may try again */
        return MST_OK;
    mst_mpi_peer *p = n->peers[number];
    p->link = link;
    p->deadline_ns = mst_now_ns() + n->options.hello_timeout_ms * MST_MS;
    mpi_peer_set_name(p, &who);
    if (mpi_peer_send_own(n, p->rank, link, MST_MPI_WELCOME, answer, IDENTITY) != MST_OK)
        mpi_peer_set_state(n, p, MST_MPI_DOWN);
    return MST_OK;
}

static void mpi_peer_up(mst_mpi_net *n, uint32_t number)
{
    mst_mpi_peer *p = n->peers[number];
    mst_identity who = p->who;
    mpi_peer_set_state(n, p, MST_MPI_UP);
    p->was_up = true;
    n->events.up(n->arg, number, &who);
}

/* Handles the answer of a rank that this rank connects to. */
static void mpi_take_answer(mst_mpi_net *n, uint32_t number, const mst_message *m, const uint8_t *body)
{
    mst_mpi_peer *p = n->peers[number];
    mst_identity who;
    if (p->state != MST_MPI_DIALING || m->size < IDENTITY)
        return;
    mpi_get_identity(body, &who);
    mpi_peer_set_name(p, &who);
    if (m->type == MST_MPI_REFUSE)
        mpi_peer_end(n, p, MST_NET_REFUSED,
                     mst_fail(MST_EUSAGE, "refused by %s: %.*s", p->name, (int)(m->size - IDENTITY),
                              (const char *)body + IDENTITY));
    else if (mpi_peer_send_own(n, p->rank, p->link, MST_MPI_READY, NULL, 0) != MST_OK)
        mpi_peer_end(n, p, MST_NET_DIED, MST_ENOMEM);
    else
        mpi_peer_up(n, number);
}

/* ---- endings ---- */

static void mpi_take_disconnect(mst_mpi_net *n, uint32_t number, const mst_message *m, const uint8_t *body)
{
    mst_mpi_peer *p = n->peers[number];
    p->final_in = true;
    mpi_peer_disconnect(n, number, MST_MPI_CLOSED, "");
    if (p->state == MST_MPI_JOINING)
        mpi_peer_set_state(n, p, MST_MPI_DOWN);
    if (p->state != MST_MPI_UP)
        return;
    if (m->size == 0)
        mpi_peer_end(n, p, MST_NET_CLOSED, mst_fail(MST_EPEER, "%s left", p->name));
    else
        mpi_peer_end(
            n, p, MST_NET_REFUSED,
            mst_fail(MST_EPEER, "%s closed the connection: %.*s", p->name, (int)m->size, (const char *)body));
}

mst_status mst_mpi_control(mst_mpi_net *n, int rank, const mst_message *m, uint64_t link, const uint8_t *body)
{
    uint32_t number;
    const mst_mpi_peer *p = mpi_find_link(n, rank, link, &number);
    if (p == NULL || m->size > MST_WIRE_OWN_MAX)
        return MST_OK; /* of a link that is forgotten */
    switch (m->type) {
    case MST_MPI_WELCOME:
    case MST_MPI_REFUSE:
        mpi_take_answer(n, number, m, body);
        break;
    case MST_MPI_READY:
        if (p->state == MST_MPI_JOINING)
            mpi_peer_up(n, number);
        break;
    case MST_MPI_DISCONNECT:
        mpi_take_disconnect(n, number, m, body);
        break;
    case MST_MPI_CLOSED:
        n->peers[number]->final_in = true;
        break;
    default:
        break;
    }
    return MST_OK;
}

/* Deadlines of peers that are not up yet, and removal of closed peers; true: an event was called. */
static bool mpi_peer_settle(mst_mpi_net *n)
{
    bool any = false;
    if (n->n_pending == 0)
        return false;
    uint64_t now = mst_now_ns();
    for (uint32_t i = 0; i < n->n_peers; i++) {
        mst_mpi_peer *p = n->peers[i];
        if (p->state == MST_MPI_DIALING && now >= p->deadline_ns)
            mpi_peer_end(n, p, MST_NET_DIED,
                         mst_fail(MST_ETIMEOUT, "%s was not reached within %.1f s: that rank does not listen",
                                  p->name, (double)(now - p->start_ns) * 1e-9));
        if (p->state == MST_MPI_JOINING && now >= p->deadline_ns) {
            mpi_peer_disconnect(n, i, MST_MPI_DISCONNECT, "");
            mpi_peer_set_state(n, p, MST_MPI_DOWN);
        }
        if (p->state != MST_MPI_ENDED)
            continue;
        mst_net_loss why = p->why;
        mpi_peer_set_state(n, p, MST_MPI_DOWN);
        any = true;
        n->events.down(n->arg, i, &why);
    }
    return any;
}

/* Ends a link from here, whatever its state. */
static void mpi_peer_close(mst_mpi_net *n, uint32_t number, const char *message)
{
    mst_mpi_peer *p = n->peers[number];
    mst_mpi_channel *channel = mst_mpi_channel_of(n, p->rank);
    if (p->state == MST_MPI_UP || p->state == MST_MPI_JOINING)
        mpi_peer_disconnect(n, number, MST_MPI_DISCONNECT, message);
    mpi_peer_set_state(n, p, MST_MPI_DOWN);
    if (channel != NULL)
        (void)mst_mpi_channel_detach(n, channel,
                                     number); /* MPI keeps receives that are pending after a second */
}

/* ---- life ---- */

/* Whether the last messages have arrived on both sides. */
static bool mpi_is_quiet(const mst_mpi_net *n)
{
    for (size_t i = 0; i < n->n_channels; i++)
        if (mst_mpi_channel_busy(n->channels[i]))
            return false;
    for (size_t i = 0; i < n->n_peers; i++)
        if (n->peers[i]->was_up && n->peers[i]->final_out && !n->peers[i]->final_in)
            return false;
    return true;
}

static void mpi_destroy(mst_net *net)
{
    mst_mpi_net *n = (mst_mpi_net *)net;
    mst_mpi_backoff backoff = {0};
    uint64_t until = mst_now_ns() + GRACE_NS;
    bool any;
    if (n->requests != NULL)
        (void)n->mpi->ops->cancel(&n->requests[0]);
    for (uint32_t i = 0; i < n->n_peers; i++)
        mpi_peer_close(n, i, "");
    while (!mpi_is_quiet(n) && mst_now_ns() < until && !atomic_load(&g_lost)) {
        any = false;
        if (mst_mpi_channels_turn(n, &any) != MST_OK)
            break;
        if (any)
            mst_mpi_busy(&backoff);
        else
            mst_mpi_idle(&backoff);
    }
    mst_mpi_channels_free(n);
    for (size_t i = 0; i < n->n_peers; i++)
        mst_free(n->peers[i]);
    mst_free(n->peers);
    mst_free(n->scratch);
    mst_free(n->secret);
    mst_free(n);
    atomic_store(&g_there, false);
}

static mst_status mpi_create(const mst_net_options *options, const mst_net_events *events, void *arg,
                             mst_net **out)
{
    mst_mpi *mpi;
    TRY(mst_mpi_start(NULL, &mpi));
    if (atomic_exchange(&g_there, true))
        return mst_fail(MST_EUSAGE, "net mpi: this process has one already; MPI serves only one");
    mst_mpi_net *n = mst_zalloc(sizeof *n);
    if (n == NULL) {
        atomic_store(&g_there, false);
        return mst_fail_memory();
    }
    n->base.engine = &mst_net_mpi;
    n->options = *options;
    n->events = *events;
    n->arg = arg;
    n->mpi = mpi;
    n->secret = mst_strdup(options->secret != NULL ? options->secret : "");
    n->scratch = mst_alloc(MST_MPI_SEGMENT);
    bool room = mst_mpi_channels_room(n, 0);
    if (n->requests != NULL)
        n->requests[0] = MST_MPI_NONE;
    if (n->secret == NULL || n->scratch == NULL || !room) {
        mpi_destroy(&n->base);
        return mst_fail_memory();
    }
    *out = &n->base;
    return MST_OK;
}

/* "mpi:RANK", of a rank that there is. */
static mst_status mpi_parse_address(const mst_mpi_net *n, const char *address, int *rank)
{
    const char *digits = address + 4;
    size_t length = strncmp(address, "mpi:", 4) == 0 ? strspn(digits, "0123456789") : 0;
    if (length == 0 || length > 9 || digits[length] != '\0')
        return mst_fail(MST_EUSAGE, "%s is not the address of a rank; addresses are mpi:0 to mpi:%d", address,
                        n->mpi->size - 1);
    *rank = atoi(digits);
    if (*rank >= n->mpi->size)
        return mst_fail(MST_EUSAGE, "%s: there is no such rank; there are %d, mpi:0 to mpi:%d", address,
                        n->mpi->size, n->mpi->size - 1);
    return MST_OK;
}

static mst_status mpi_listen(mst_net *net, const char *address, char *bound, size_t bound_size)
{
    mst_mpi_net *n = (mst_mpi_net *)net;
    int rank = 0;
    TRY(mpi_parse_address(n, address, &rank));
    if (rank != n->mpi->rank)
        return mst_fail(MST_EUSAGE, "%s is another process: this one is mpi:%d", address, n->mpi->rank);
    if (n->listening)
        return mst_fail(MST_EEXIST, "%s is in use: this process listens there already", address);
    TRY(mpi_expect_hello(n));
    n->listening = true;
    if (bound != NULL && bound_size > 0)
        snprintf(bound, bound_size, "mpi:%d", rank);
    return MST_OK;
}

static mst_status mpi_connect(mst_net *net, const char *address, uint64_t deadline_ns, uint32_t *peer)
{
    static uint64_t last_link;
    mst_mpi_net *n = (mst_mpi_net *)net;
    mst_mpi_request request;
    uint8_t hello[MST_MPI_FIXED];
    int rank = 0;
    TRY(mpi_parse_address(n, address, &rank));
    if (rank == n->mpi->rank)
        return mst_fail(MST_EUSAGE, "%s is this process itself", address);
    TRY(mpi_peer_new(n, rank, MST_MPI_DIALING, peer));
    mst_mpi_peer *p = n->peers[*peer];
    p->link = mst_now_ns(); /* later than any before it, of this process */
    if (p->link <= last_link)
        p->link = last_link + 1;
    last_link = p->link;
    p->deadline_ns = deadline_ns;
    mpi_put_hello(n, p->link, hello);
    mst_status st = n->mpi->ops->isend(0, hello, sizeof hello, rank, MST_MPI_TAG_HELLO, &request);
    if (st == MST_OK) /* so small a message leaves at once, also if no rank receives it */
        st = mst_mpi_wait(n->mpi, 1, &request, mst_now_ns() + GRACE_NS, "a HELLO to be sent");
    if (st != MST_OK)
        mpi_peer_set_state(n, p, MST_MPI_DOWN);
    return st;
}

/* ---- calls ---- */

static mst_status mpi_send(mst_net *net, uint32_t peer, const mst_message *m, const mst_piece *pieces,
                           uint32_t n_pieces, void *token)
{
    mst_mpi_net *n = (mst_mpi_net *)net;
    mst_mpi_peer *p = mpi_peer_at(n, peer);
    if (p == NULL)
        return mst_fail(MST_EUSAGE, "net mpi: there is no peer %u", peer);
    if (p->state != MST_MPI_UP)
        return mst_fail(MST_EPEER, "%s is not connected", p->name);
    if (p->stats.queued > n->options.max_queue)
        return mst_fail(MST_ETIMEOUT, "%s has not received %" PRIu64 " bytes that were sent to it before",
                        p->name, p->stats.queued);
    mst_mpi_channel *channel = mst_mpi_channel_of(n, p->rank); /* there since it was connected */
    TRY(mst_mpi_channel_send(n, channel, peer, p->link, m, pieces, n_pieces, token));
    mst_count_out(&p->stats, &n->total, m);
    return MST_OK;
}

static void mpi_drop(mst_net *net, uint32_t peer, const char *message)
{
    mst_mpi_net *n = (mst_mpi_net *)net;
    if (mpi_peer_at(n, peer) != NULL)
        mpi_peer_close(n, peer, message != NULL ? message : "");
}

/* Tests all requests and deadlines once; *any: an event was called. */
static mst_status mpi_look(mst_mpi_net *n, bool *any)
{
    if (atomic_load_explicit(&g_lost, memory_order_relaxed))
        return mpi_fail_lost();
    n->polling = true;
    mst_status st = mst_mpi_channels_turn(n, any);
    *any |= mpi_peer_settle(n);
    n->polling = false;
    return st;
}

static mst_status mpi_poll(mst_net *net, uint64_t deadline_ns)
{
    mst_mpi_net *n = (mst_mpi_net *)net;
    for (;;) {
        bool any = false;
        TRY(mpi_look(n, &any));
        if (any) {
            mst_mpi_busy(&n->backoff);
            return MST_OK;
        }
        if (atomic_exchange(&n->woken, false) || deadline_ns == 0 || mst_now_ns() >= deadline_ns)
            return MST_OK;
        mst_mpi_idle(&n->backoff);
    }
}

static void mpi_wake(mst_net *net)
{
    atomic_store(&((mst_mpi_net *)net)->woken, true); /* a poll sleeps for 500 us at most */
}

static mst_status mpi_flush(mst_net *net, uint64_t deadline_ns)
{
    mst_mpi_net *n = (mst_mpi_net *)net;
    if (n->polling)
        return mst_fail(MST_EUSAGE, "net mpi: flush was called inside an event");
    for (;;) {
        const mst_mpi_peer *slow = NULL;
        bool any = false;
        for (size_t i = 0; i < n->n_peers && slow == NULL; i++)
            if (n->peers[i]->stats.queued > 0)
                slow = n->peers[i];
        if (slow == NULL)
            return MST_OK;
        if (mst_now_ns() >= deadline_ns)
            return mst_fail(MST_ETIMEOUT,
                            "%s has not received everything that was sent to it: %" PRIu64 " bytes wait here",
                            slow->name, slow->stats.queued);
        TRY(mpi_look(n, &any));
        if (any)
            mst_mpi_busy(&n->backoff);
        else
            mst_mpi_idle(&n->backoff);
    }
}

static void mpi_stats(const mst_net *net, uint32_t peer, mst_net_stats *out)
{
    const mst_mpi_net *n = (const mst_mpi_net *)net;
    const mst_mpi_peer *p = mpi_peer_at(n, peer);
    *out = p != NULL ? p->stats : n->total;
    if (peer == MST_PEER_NONE)
        for (size_t i = 0; i < n->n_peers; i++)
            out->queued += n->peers[i]->stats.queued;
}

static void mpi_name_of(const mst_net *net, uint32_t peer, char *out, size_t size)
{
    const mst_mpi_peer *p = mpi_peer_at((const mst_mpi_net *)net, peer);
    snprintf(out, size, "%s", p != NULL ? p->name : "an unknown peer");
}

const mst_net_engine mst_net_mpi = {
    .name = "mpi",
    .help = "ranks of an MPI job (mpirun, mpiexec, srun); an idle process polls every 500 us",
    .detects_death = false,
    .survives_death = false,
    .sleeps = false,
    .create = mpi_create,
    .destroy = mpi_destroy,
    .listen = mpi_listen,
    .connect = mpi_connect,
    .send = mpi_send,
    .drop = mpi_drop,
    .poll = mpi_poll,
    .wake = mpi_wake,
    .flush = mpi_flush,
    .stats = mpi_stats,
    .name_of = mpi_name_of,
};
