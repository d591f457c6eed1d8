/* Probes of the paths to servers; contract in worker_probe.h. */
#include "ps/worker_probe.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"

#define SLOW_NS     (100 * MST_MS) /* of a message: the path is slow, and smaller ones suffice */
#define SLOW_TRIPS  16             /* and it took more round trips than a window needs to grow, both ways */
#define PATIENCE_NS (1 * MST_S)    /* for all servers, and for one answer */
#define AGAIN_NS    (2 * MST_MS)   /* before another request, when the server measures another path */

/* Polls until an answer arrives; 0: not in time, or the job has ended. */
static mst_status probe_await(mst_worker_probe *self, mst_worker_link *link, uint64_t deadline_ns,
                              uint32_t *answer)
{
    while (self->answer == 0 && !link->ended && mst_now_ns() < deadline_ns)
        TRY(mst_worker_link_poll(link, deadline_ns));
    *answer = self->answer;
    return MST_OK;
}

static mst_status probe_ask(mst_worker_probe *self, mst_worker_link *link, uint32_t server, uint64_t size,
                            uint32_t *answer)
{
    mst_piece piece = {.data = self->data, .size = size};
    mst_message m = {.type = MST_PS_PROBE, .flags = size > 0 ? MST_PROBE_DATA : MST_PROBE_ASK};
    self->answer = 0;
    TRY(mst_net_send(link->net, link->peers[server], &m, &piece, size > 0, NULL));
    return probe_await(self, link, mst_now_ns() + PATIENCE_NS, answer);
}

/* Whether bytes, not round trips, made a message slow. */
static bool probe_is_slow(uint64_t ns, double trip_s)
{
    return ns >= SLOW_NS && (double)ns > SLOW_TRIPS * trip_s * (double)MST_S;
}

/* Measures the path to a server that has granted it. */
static mst_status probe_measure(mst_worker_probe *self, mst_worker_link *link, uint32_t server)
{
    /* the window of the connection grows; two of the size at which most paths have a figure */
    static const uint64_t sizes[] = {65536, 262144, 1048576, 1048576, MST_PROBE_MAX};
    size_t n = sizeof sizes / sizeof *sizes;
    for (size_t i = 0; i < n; i++) {
        mst_net_stats stats;
        uint64_t begin = mst_now_ns();
        uint32_t answer;
        TRY(probe_ask(self, link, server, sizes[i], &answer));
        mst_net_stats_get(link->net, link->peers[server], &stats);
        if (answer != MST_PROBE_DATA ||
            (stats.rate > 0 && (i + 2 >= n || probe_is_slow(mst_now_ns() - begin, stats.trip_s))))
            break;
    }
    mst_message done = {.type = MST_PS_PROBE, .flags = MST_PROBE_DONE};
    return mst_ps_send(link->net, link->peers[server], &done);
}

static mst_status probe_server(mst_worker_probe *self, mst_worker_link *link, uint32_t server, uint32_t index,
                               uint64_t deadline_ns)
{
    uint32_t answer = MST_PROBE_BUSY;
    while (answer == MST_PROBE_BUSY && mst_now_ns() < deadline_ns) {
        TRY(probe_ask(self, link, server, 0, &answer));
        if (answer == MST_PROBE_GO)
            return probe_measure(self, link, server);
        self->answer = 0;
        if (answer == MST_PROBE_BUSY) { /* workers that start together ask at different times */
            TRY(probe_await(self, link, mst_now_ns() + AGAIN_NS + index % 8 * MST_MS, &answer));
            answer = link->ended ? 0 : MST_PROBE_BUSY;
        }
    }
    return MST_OK;
}

mst_status mst_worker_probe_run(mst_worker_probe *self, mst_worker_link *link, uint32_t index)
{
    mst_status st = MST_OK;
    uint64_t deadline = mst_now_ns() + PATIENCE_NS;
    for (uint32_t s = 0; s < link->n_servers && st == MST_OK && !link->ended; s++) {
        mst_net_stats stats;
        if (!link->up[s] || link->absent[s])
            continue;
        mst_net_stats_get(link->net, link->peers[s], &stats);
        if (stats.link[0] == '\0') /* on this host */
            continue;
        if (self->data == NULL) {
            mst_rng rng;
            mst_rng_init(&rng, 0, MST_RNG_NET, index); /* no path compresses it */
            if ((self->data = mst_alloc(MST_PROBE_MAX)) == NULL)
                return mst_fail_memory();
            for (size_t i = 0; i < MST_PROBE_MAX; i += sizeof(uint64_t))
                memcpy(self->data + i, &(uint64_t){mst_rng_u64(&rng)}, sizeof(uint64_t));
        }
        st = probe_server(self, link, s, index, deadline);
    }
    mst_free(self->data);
    self->data = NULL;
    return st;
}

mst_status mst_worker_probe_body(mst_worker_probe *self, const mst_message *m, void **out)
{
    if (self->data == NULL || m->size > MST_PROBE_MAX)
        return mst_fail(MST_EINPUT, "a worker expects no PROBE of %" PRIu64 " bytes", m->size);
    *out = self->data;
    return MST_OK;
}

void mst_worker_probe_take(mst_worker_probe *self, const mst_message *m)
{
    self->answer = m->flags;
}
