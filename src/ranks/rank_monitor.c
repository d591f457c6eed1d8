/* The rank monitor; contract in rank_monitor.h.
 *
 * A star: rank 0 listens (on a Unix socket if all ranks are on one host, else on all interfaces, guarded by
 * the secret), the others connect. MPI carries the identities of the ranks and rank 0's addresses before
 * that. The few messages are ALL (rank 0: all ranks have joined), LEAVE (this rank has finished), FAIL (its
 * error, to rank 0), LOST (rank 0: a loss, to all), and those of rank_records.c.
 *
 * Invariants
 * 1. `lost` is called at most once, and not after this rank has begun to leave or to fail.
 * 2. The mutex guards what the caller's threads and the monitor's share: ending, failing, failed, lost,
 * all_joined, broken. The rest is the thread's alone once it runs. */
#include "ranks/rank_monitor.h"

#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/cond.h"
#include "base/strings.h"
#include "base/utf8.h"
#include "ranks/rank_monitor_impl.h"

#define ADDRESS_MAX 96
#define SECRET_MAX  65
#define NAME_TAIL   24 /* random characters of the name of a Unix socket */
#define SEND_NS     MST_S
#define TAG_WHO     21001
#define TAG_INVITED 21002

/* Sent by rank 0 to the others through MPI. */
typedef struct invitation {
    mst_rank_identity zero;
    char secret[SECRET_MAX];
    uint32_t n_addresses; /* 0: rank 0 could not listen */
    char refusal[400];    /* why the job cannot start, if not "" */
    char addresses[MST_RANK_ADDRESSES][ADDRESS_MAX];
} invitation;

static void monitor_name_rank(const mst_rank_monitor *w, int rank, char *out, size_t size)
{
    snprintf(out, size, "rank %d (host %s, process %" PRIu64 ")", rank, w->who[rank].host,
             w->who[rank].process);
}

/* ---- messages ---- */

/* reason: of LOST. */
static void monitor_send(mst_rank_monitor *w, uint32_t peer, uint16_t type, mst_rank_loss reason,
                         const char *text)
{
    mst_message m = {.type = type, .flags = (uint32_t)reason};
    mst_piece piece = {.data = text, .size = text != NULL ? strlen(text) : 0};
    (void)mst_net_send(w->net, peer, &m, &piece, piece.size > 0,
                       NULL); /* to a lost peer nothing can be sent */
}

static void monitor_send_all(mst_rank_monitor *w, uint16_t type, mst_rank_loss reason, const char *text)
{
    for (int r = 0; r < w->size; r++)
        if (w->members[r].peer != MST_RANK_NO_PEER)
            monitor_send(w, w->members[r].peer, type, reason, text);
}

/* Reports a loss: once, and never while this rank ends by itself. */
static void monitor_lose(mst_rank_monitor *w, mst_rank_loss reason, const char *message)
{
    char text[MST_RANK_MESSAGE];
    pthread_mutex_lock(&w->mutex);
    bool own = w->ending || w->failing;
    pthread_mutex_unlock(&w->mutex);
    if (w->reported)
        return;
    w->reported = true;
    snprintf(text, sizeof text, "%s", message);
    mst_utf8_mask(text);
    if (w->rank == 0)
        monitor_send_all(w, LOST, reason, text);
    if (own)
        return;
    w->options.lost(w->options.arg, reason, text);
    pthread_mutex_lock(&w->mutex);
    w->lost = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

static int monitor_rank_of(const mst_rank_monitor *w, uint32_t peer)
{
    for (int r = 0; r < w->size; r++)
        if (w->members[r].peer == peer)
            return r;
    return -1;
}

static void monitor_break(mst_rank_monitor *w, mst_status code)
{
    pthread_mutex_lock(&w->mutex);
    if (w->broken.code == MST_OK)
        mst_error_save(&w->broken, code);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

static void monitor_all_joined(mst_rank_monitor *w)
{
    pthread_mutex_lock(&w->mutex);
    w->all_joined = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

static void monitor_on_up(void *arg, uint32_t peer, const mst_identity *who)
{
    mst_rank_monitor *w = arg;
    uint32_t rank = w->rank == 0 ? who->index : 0;
    if (rank >= (uint32_t)w->size || (w->rank == 0 && rank == 0) || w->members[rank].joined) {
        mst_net_drop(w->net, peer, "");
        return;
    }
    w->members[rank] = (mst_rank_member){.peer = peer, .joined = true};
    w->n_joined++;
    for (uint32_t i = 0; i < w->n_dialled; i++) /* one way to rank 0 is enough */
        if (w->dialled[i] != peer)
            mst_net_drop(w->net, w->dialled[i], "");
    if (w->rank == 0 && w->n_joined + 1 == (uint32_t)w->size) {
        monitor_send_all(w, ALL, MST_RANK_FAILED, NULL);
        monitor_all_joined(w);
    }
}

/* One of several connects failed: the monitor has failed when all have. */
static void monitor_dial_failed(mst_rank_monitor *w, uint32_t peer, const mst_error *why)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < w->n_dialled; i++) {
        if (w->dialled[i] == peer)
            w->dialled[i] = MST_RANK_NO_PEER;
        open += w->dialled[i] != MST_RANK_NO_PEER;
    }
    if (open > 0 || w->members[0].joined)
        return;
    char zero[MST_RANK_HOST + 64];
    monitor_name_rank(w, 0, zero, sizeof zero);
    monitor_break(w, mst_fail(why->code, "rank %d cannot connect to %s, which monitors all ranks: %s",
                              w->rank, zero, why->text));
}

static mst_rank_loss monitor_loss_of(mst_net_reason reason)
{
    return reason == MST_NET_SILENT    ? MST_RANK_SILENT
           : reason == MST_NET_STOPPED ? MST_RANK_STOPPED
                                       : MST_RANK_DIED;
}

static void monitor_on_down(void *arg, uint32_t peer, const mst_net_loss *why)
{
    mst_rank_monitor *w = arg;
    char name[MST_RANK_HOST + 64], text[MST_RANK_MESSAGE];
    int rank = monitor_rank_of(w, peer);
    if (rank < 0) {
        monitor_dial_failed(w, peer, &why->error);
        return;
    }
    w->members[rank].peer = MST_RANK_NO_PEER;
    mst_free(w->members[rank].body);
    w->members[rank].body = NULL;
    if (w->members[rank].left)
        return;
    mst_rank_loss reason = monitor_loss_of(why->reason);
    monitor_name_rank(w, reason == MST_RANK_STOPPED ? w->rank : rank, name, sizeof name);
    if (reason == MST_RANK_STOPPED)
        snprintf(text, sizeof text, "%s was silent for %.1f s and rank %d dropped it", name, why->silent_s,
                 rank);
    else if (reason == MST_RANK_SILENT)
        snprintf(text, sizeof text,
                 "%s has been silent for %.1f s: its process is stopped or the link is cut", name,
                 why->silent_s);
    else
        snprintf(text, sizeof text, "%s died", name);
    monitor_lose(w, reason, text);
}

static mst_status monitor_on_body(void *arg, uint32_t peer, const mst_message *m, void **out)
{
    mst_rank_monitor *w = arg;
    int rank = monitor_rank_of(w, peer);
    if (rank < 0 || m->size >= (m->type == RECORD ? MST_RANK_RECORD_MAX + 1 : MST_RANK_MESSAGE))
        return mst_fail(MST_EINPUT, "a message of %" PRIu64 " bytes is not one of the rank monitor's",
                        m->size);
    mst_free(w->members[rank].body);
    *out = w->members[rank].body = mst_alloc(m->size);
    return *out != NULL ? MST_OK : mst_fail_memory();
}

static mst_status monitor_receive(mst_rank_monitor *w, int rank, const mst_message *m, const void *body)
{
    char name[MST_RANK_HOST + 64], text[MST_RANK_MESSAGE];
    int length = (int)(body != NULL ? m->size : 0);
    switch (m->type) {
    case ALL:
        monitor_all_joined(w);
        break;
    case LEAVE:
        w->members[rank].left = true;
        break;
    case FAIL:
        w->members[rank].left = true;
        monitor_name_rank(w, rank, name, sizeof name);
        snprintf(text, sizeof text, "%s: %.*s", name, length, body != NULL ? (const char *)body : "");
        monitor_lose(w, MST_RANK_FAILED, text);
        break;
    case LOST:
        w->members[rank].left = true;
        snprintf(text, sizeof text, "%.*s", length, body != NULL ? (const char *)body : "");
        monitor_lose(w, m->flags <= MST_RANK_STOPPED ? (mst_rank_loss)m->flags : MST_RANK_DIED, text);
        break;
    default:
        return mst_rank_records_receive(w, rank, m, body);
    }
    return MST_OK;
}

static mst_status monitor_on_message(void *arg, uint32_t peer, const mst_message *m, void *body)
{
    mst_rank_monitor *w = arg;
    int rank = monitor_rank_of(w, peer);
    if (rank < 0)
        return MST_OK;
    mst_status st = monitor_receive(w, rank, m, body);
    mst_free(w->members[rank].body);
    w->members[rank].body = NULL;
    return st;
}

static void monitor_on_sent(void *arg, uint32_t peer, void *token)
{
    (void)arg;
    (void)peer;
    (void)token;
}

/* ---- the thread ---- */

/* Does what other threads requested; true: the monitor ends. */
static bool monitor_serve(mst_rank_monitor *w)
{
    char name[MST_RANK_HOST + 64], text[MST_RANK_MESSAGE];
    pthread_mutex_lock(&w->mutex);
    bool ending = w->ending, failing = w->failing && !w->failed;
    pthread_mutex_unlock(&w->mutex);
    if (failing) {
        monitor_name_rank(w, w->rank, name, sizeof name);
        snprintf(text, sizeof text, "%s: %.*s", name, (int)(MST_RANK_MESSAGE - sizeof name - 4), w->message);
        if (w->rank == 0)
            monitor_send_all(w, LOST, MST_RANK_FAILED, text);
        else if (w->members[0].peer != MST_RANK_NO_PEER)
            monitor_send(w, w->members[0].peer, FAIL, MST_RANK_FAILED, w->message);
        (void)mst_net_flush(w->net, mst_now_ns() + SEND_NS);
        pthread_mutex_lock(&w->mutex);
        w->failed = true;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->mutex);
    }
    if (ending && !w->reported)
        monitor_send_all(w, LEAVE, MST_RANK_FAILED, NULL);
    if (ending)
        (void)mst_net_flush(w->net, mst_now_ns() + SEND_NS);
    return ending;
}

static void *monitor_main(void *arg)
{
    mst_rank_monitor *w = arg;
    while (!monitor_serve(w)) {
        uint64_t rest = mst_now_ns() + 10 * MST_S, due = mst_rank_records_serve(w);
        mst_status st = mst_net_poll(w->net, due < rest ? due : rest);
        if (st != MST_OK) {
            monitor_break(w, st);
            struct timespec nap = {.tv_nsec = 10000000};
            nanosleep(&nap, NULL);
        }
    }
    return NULL;
}

/* ---- connecting ---- */

/* The addresses at which other hosts may reach this one, for that port. */
static uint32_t monitor_own_addresses(const char *port, char out[MST_RANK_ADDRESSES][ADDRESS_MAX])
{
    struct ifaddrs *all = NULL;
    uint32_t n = 0;
    char host[NI_MAXHOST];
    if (getifaddrs(&all) != 0)
        return 0;
    for (const struct ifaddrs *a = all; a != NULL && n < MST_RANK_ADDRESSES; a = a->ifa_next)
        if (a->ifa_addr != NULL && a->ifa_addr->sa_family == AF_INET && (a->ifa_flags & IFF_UP) != 0 &&
            (a->ifa_flags & IFF_LOOPBACK) == 0 &&
            getnameinfo(a->ifa_addr, sizeof(struct sockaddr_in), host, sizeof host, NULL, 0,
                        NI_NUMERICHOST) == 0)
            snprintf(out[n++], ADDRESS_MAX, "%.60s:%.10s", host, port);
    freeifaddrs(all);
    return n;
}

static mst_status monitor_open_net(mst_rank_monitor *w, const char *secret)
{
    static const mst_net_events events = {.up = monitor_on_up,
                                          .down = monitor_on_down,
                                          .body = monitor_on_body,
                                          .message = monitor_on_message,
                                          .sent = monitor_on_sent};
    mst_net_options options = {
        .self = {.role = w->rank == 0 ? MST_ROLE_SERVER : MST_ROLE_WORKER,
                 .index = (uint32_t)w->rank,
                 .incarnation = (uint64_t)getpid()},
        .secret = secret,
        .tls = w->options.tls,
        .max_body = MST_RANK_RECORD_MAX,
        .max_queue = 4u << 20,
        .peer_timeout_ms = w->options.peer_timeout_ms,
        .hello_timeout_ms = w->options.start_timeout_ms,
    };
    return mst_net_new(&mst_net_tcp, &options, &events, w, &w->net);
}

/* Rank 0: listens where all ranks can connect. */
static mst_status monitor_invite(mst_rank_monitor *w, invitation *out)
{
    char bound[ADDRESS_MAX], name[48], tail[NAME_TAIL + 1];
    bool several = false;
    for (int r = 1; r < w->size; r++)
        several = several || strncmp(w->who[r].host, w->who[0].host, MST_RANK_HOST) != 0;
    TRY(mst_random_hex((SECRET_MAX - 1) / 2, out->secret));
    TRY(mst_random_hex(NAME_TAIL / 2, tail));
    TRY(monitor_open_net(w, out->secret));
    snprintf(name, sizeof name, "unix:@muster-ranks-%s", tail); /* all users of the host can read names */
    TRY(mst_net_listen(w->net, several ? "0.0.0.0:0" : name, bound, sizeof bound));
    if (several) {
        out->n_addresses = monitor_own_addresses(strrchr(bound, ':') + 1, out->addresses);
    } else {
        snprintf(out->addresses[0], ADDRESS_MAX, "%s", bound);
        out->n_addresses = 1;
    }
    return out->n_addresses > 0
               ? MST_OK
               : mst_fail(MST_EIO, "rank 0 (host %s) has no address that the other hosts could reach",
                          w->who[0].host);
}

/* Rank 0: refuses ranks that were started for another purpose. */
static mst_status monitor_compare_purposes(const mst_rank_monitor *w, invitation *out)
{
    char list[200] = "";
    int others = 0;
    const char *first = NULL;
    for (int r = 1; r < w->size; r++) {
        size_t at = strlen(list);
        if (strcmp(w->who[r].purpose, w->who[0].purpose) == 0)
            continue;
        if (others == 0)
            first = w->who[r].purpose;
        if (others++ < 8 && strcmp(first, w->who[r].purpose) == 0)
            snprintf(list + at, sizeof list - at, "%s%d", at > 0 ? ", " : "", r);
    }
    if (others == 0)
        return MST_OK;
    snprintf(out->refusal, sizeof out->refusal,
             "rank 0 was started with %s and rank%s %s%s with %s: give all ranks the same", w->who[0].purpose,
             strchr(list, ',') != NULL ? "s" : "", list, others > 8 ? ", ..." : "", first);
    return mst_fail(MST_EUSAGE, "%s", out->refusal);
}

/* Sends every rank's host and process to rank 0, and its addresses back. A failure of rank 0 is sent to the
 * others as an invitation without addresses. */
static mst_status monitor_exchange(mst_rank_monitor *w, invitation *inv, uint64_t deadline)
{
    mst_mpi *mpi = w->options.mpi;
    const mst_mpi_ops *o = mpi->ops;
    mst_status st = MST_OK;
    if (w->rank != 0) {
        mst_mpi_request two[2];
        TRY(o->irecv(0, inv, sizeof *inv, 0, TAG_INVITED, &two[0]));
        TRY(o->isend(0, &w->who[w->rank], sizeof(mst_rank_identity), 0, TAG_WHO, &two[1]));
        TRY(mst_mpi_wait(mpi, 2, two, deadline, "rank 0's addresses"));
        inv->secret[SECRET_MAX - 1] = inv->zero.host[MST_RANK_HOST - 1] = '\0';
        inv->refusal[sizeof inv->refusal - 1] = '\0';
        w->who[0] = inv->zero;
        if (inv->refusal[0] != '\0')
            return mst_fail(MST_EUSAGE, "%s", inv->refusal);
        if (inv->n_addresses == 0 || inv->n_addresses > MST_RANK_ADDRESSES)
            return mst_fail(MST_EPEER, "rank 0 (host %s) cannot monitor the ranks; see its error",
                            inv->zero.host);
        return MST_OK;
    }
    mst_mpi_request *requests = mst_calloc((size_t)w->size, sizeof *requests);
    if (requests == NULL)
        return mst_fail_memory();
    for (int r = 1; st == MST_OK && r < w->size; r++)
        st = o->irecv(0, &w->who[r], sizeof(mst_rank_identity), r, TAG_WHO, &requests[r]);
    if (st == MST_OK)
        st = mst_mpi_wait(mpi, (uint32_t)w->size, requests, deadline, "the other ranks' names");
    for (int r = 1; r < w->size; r++)
        w->who[r].host[MST_RANK_HOST - 1] = w->who[r].purpose[MST_RANK_PURPOSE - 1] = '\0';
    mst_status mine = st == MST_OK ? monitor_compare_purposes(w, inv) : st;
    if (mine == MST_OK)
        mine = monitor_invite(w, inv);
    mst_error why;
    mst_error_save(&why, mine);
    inv->zero = w->who[0];
    if (mine != MST_OK)
        inv->n_addresses = 0;
    for (int r = 1; st == MST_OK && r < w->size; r++)
        st = o->isend(0, inv, sizeof *inv, r, TAG_INVITED, &requests[r]);
    if (st == MST_OK)
        st = mst_mpi_wait(mpi, (uint32_t)w->size, requests, deadline,
                          "the other ranks to receive rank 0's addresses");
    mst_free(requests);
    return mine != MST_OK ? mst_error_restore(&why) : st;
}

static mst_status monitor_connect_to_zero(mst_rank_monitor *w, invitation *inv, uint64_t deadline)
{
    TRY(monitor_open_net(w, inv->secret));
    for (uint32_t i = 0; i < inv->n_addresses; i++) {
        inv->addresses[i][ADDRESS_MAX - 1] = '\0';
        TRY(mst_net_connect(w->net, inv->addresses[i], deadline, &w->dialled[i]));
        w->n_dialled++;
    }
    return MST_OK;
}

/* ---- life ---- */

static mst_status monitor_start_thread(mst_rank_monitor *w)
{
    sigset_t all, before; /* signals are for the program's own threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(&w->thread, NULL, monitor_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (e != 0)
        return mst_fail(MST_EIO, "no thread for the rank monitor: %s", strerror(e));
    w->thread_made = true;
    return MST_OK;
}

static mst_status monitor_await_all(mst_rank_monitor *w, uint64_t deadline)
{
    mst_status st = MST_OK;
    pthread_mutex_lock(&w->mutex);
    while (!w->all_joined && w->broken.code == MST_OK && mst_now_ns() < deadline)
        mst_cond_wait(&w->changed, &w->mutex, deadline);
    if (!w->all_joined && w->broken.code != MST_OK)
        st = mst_error_restore(&w->broken);
    else if (!w->all_joined)
        st = mst_fail(MST_ETIMEOUT, "rank %d: %s did not join the job within %.1f s", w->rank,
                      w->rank == 0 ? "the other ranks" : "some of the other ranks",
                      w->options.start_timeout_ms / 1000.0);
    pthread_mutex_unlock(&w->mutex);
    return st;
}

/* Only rank 0 can name the missing ranks. */
static mst_status monitor_name_missing(mst_rank_monitor *w, mst_status st)
{
    char list[400] = "";
    size_t at = 0;
    int missing = 0;
    if (st != MST_ETIMEOUT || w->rank != 0)
        return st;
    for (int r = 1; r < w->size; r++) {
        if (w->members[r].joined)
            continue;
        if (missing++ < 4)
            at += (size_t)snprintf(list + at, sizeof list - at, "%srank %d (host %s, process %" PRIu64 ")",
                                   missing > 1 ? ", " : "", r, w->who[r].host, w->who[r].process);
    }
    return mst_fail(MST_ETIMEOUT,
                    "%d of %d ranks did not connect to rank 0 (host %s) within %.1f s: %s%s; is there a "
                    "firewall between the hosts?",
                    missing, w->size, w->who[0].host, w->options.start_timeout_ms / 1000.0, list,
                    missing > 4 ? ", ..." : "");
}

static void monitor_end_thread(mst_rank_monitor *w)
{
    if (!w->thread_made)
        return;
    pthread_mutex_lock(&w->mutex);
    w->ending = true;
    pthread_mutex_unlock(&w->mutex);
    mst_net_wake(w->net);
    pthread_join(w->thread, NULL);
    w->thread_made = false;
}

void mst_rank_monitor_destroy(mst_rank_monitor *w)
{
    if (w == NULL)
        return;
    monitor_end_thread(w);
    mst_net_destroy(w->net);
    pthread_mutex_destroy(&w->mutex);
    pthread_mutex_destroy(&w->records.mutex);
    pthread_cond_destroy(&w->changed);
    for (int r = 0; w->members != NULL && r < w->size; r++)
        mst_free(w->members[r].body);
    mst_free(w->who);
    mst_free(w->members);
    mst_free(w);
}

static mst_status monitor_set_up(mst_rank_monitor *w)
{
    uint64_t deadline = mst_now_ns() + w->options.start_timeout_ms * MST_MS;
    invitation *inv = mst_zalloc(sizeof *inv);
    mst_status st = MST_OK;
    if (inv == NULL)
        return mst_fail_memory();
    if (w->size > 1) {
        st = monitor_exchange(w, inv, deadline);
        if (st == MST_OK && w->rank != 0)
            st = monitor_connect_to_zero(w, inv, deadline);
        if (st == MST_OK)
            st = monitor_start_thread(w);
        if (st == MST_OK)
            st = monitor_await_all(w, deadline);
    }
    explicit_bzero(inv, sizeof *inv);
    mst_free(inv);
    if (st != MST_OK) {
        mst_error why;
        mst_error_save(&why, st);
        monitor_end_thread(w);
        mst_error_restore(&why);
        st = monitor_name_missing(w, st);
    }
    return st;
}

mst_status mst_rank_monitor_new(const mst_rank_monitor_options *options, mst_rank_monitor **out)
{
    mst_rank_monitor *w = mst_zalloc(sizeof *w);
    if (w == NULL)
        return mst_fail_memory();
    pthread_mutex_init(&w->mutex, NULL);
    pthread_mutex_init(&w->records.mutex, NULL);
    mst_cond_init(&w->changed);
    w->options = *options;
    w->rank = options->mpi->rank;
    w->size = options->mpi->size;
    w->who = mst_calloc((size_t)w->size, sizeof *w->who);
    w->members = mst_calloc((size_t)w->size, sizeof *w->members);
    mst_status st = w->who == NULL || w->members == NULL ? mst_fail_memory() : MST_OK;
    if (st == MST_OK) {
        for (int r = 0; r < w->size; r++)
            w->members[r].peer = MST_RANK_NO_PEER;
        snprintf(w->who[w->rank].host, MST_RANK_HOST, "%s", options->mpi->host);
        snprintf(w->who[w->rank].purpose, MST_RANK_PURPOSE, "%s",
                 options->purpose != NULL ? options->purpose : "");
        w->who[w->rank].process = (uint64_t)getpid();
        st = monitor_set_up(w);
    }
    if (st != MST_OK) {
        mst_rank_monitor_destroy(w);
        return st;
    }
    *out = w;
    return MST_OK;
}

bool mst_rank_monitor_await_lost(mst_rank_monitor *w, uint32_t timeout_ms)
{
    uint64_t deadline = mst_now_ns() + timeout_ms * MST_MS;
    if (w == NULL || !w->thread_made)
        return false;
    pthread_mutex_lock(&w->mutex);
    while (!w->lost && mst_now_ns() < deadline)
        mst_cond_wait(&w->changed, &w->mutex, deadline);
    bool lost = w->lost;
    pthread_mutex_unlock(&w->mutex);
    return lost;
}

void mst_rank_monitor_fail(mst_rank_monitor *w, const char *message)
{
    uint64_t deadline = mst_now_ns() + SEND_NS;
    if (w == NULL || !w->thread_made)
        return;
    pthread_mutex_lock(&w->mutex);
    if (!w->failing) {
        w->failing = true;
        snprintf(w->message, sizeof w->message, "%s", message);
    }
    pthread_mutex_unlock(&w->mutex);
    mst_net_wake(w->net);
    pthread_mutex_lock(&w->mutex);
    while (!w->failed && mst_now_ns() < deadline)
        mst_cond_wait(&w->changed, &w->mutex, deadline);
    pthread_mutex_unlock(&w->mutex);
}
