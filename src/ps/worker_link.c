/* A worker's connections; contract in worker_link.h. */
#include "ps/worker_link.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

#define POLL_NS  (200 * MST_MS) /* the longest poll: how late the stop flag may be noticed */
#define GRACE_NS (2 * MST_S)    /* for the coordinator's END after another server is lost */

static mst_status link_copy_servers(mst_worker_link *self, const mst_worker_options *options)
{
    uint32_t n = self->n_servers;
    self->addresses = mst_calloc(n, sizeof *self->addresses);
    self->peers = mst_calloc(n, sizeof *self->peers);
    self->counted = mst_calloc(n, sizeof *self->counted);
    self->up = mst_calloc(n, sizeof *self->up);
    self->absent = mst_calloc(n, sizeof *self->absent);
    if (self->addresses == NULL || self->peers == NULL || self->counted == NULL || self->up == NULL ||
        self->absent == NULL)
        return mst_fail_memory();
    for (uint32_t s = 0; s < n; s++) {
        self->peers[s] = self->counted[s].peer = MST_PEER_NONE;
        self->addresses[s] = mst_strdup(options->servers[s]);
        if (self->addresses[s] == NULL)
            return mst_fail_memory();
    }
    return MST_OK;
}

mst_status mst_worker_link_init(mst_worker_link *self, const mst_worker_options *options,
                                const mst_net_events *events, void *arg)
{
    if (options->n_servers == 0)
        return mst_fail(MST_EUSAGE, "a worker needs at least one server");
    self->n_servers = options->n_servers;
    self->starting = true;
    TRY(link_copy_servers(self, options));
    TRY(mst_net_new(options->engine, &options->net, events, arg, &self->net));
    uint64_t deadline = mst_now_ns() + options->start_timeout_ms * MST_MS;
    for (uint32_t s = 0; s < self->n_servers; s++)
        TRY(mst_net_connect(self->net, self->addresses[s], deadline, &self->peers[s]));
    return MST_OK;
}

void mst_worker_link_fini(mst_worker_link *self)
{
    mst_net_destroy(self->net);
    for (uint32_t s = 0; self->addresses != NULL && s < self->n_servers; s++)
        mst_free(self->addresses[s]);
    mst_free(self->addresses);
    mst_free(self->peers);
    mst_free(self->counted);
    mst_free(self->up);
    mst_free(self->absent);
    mst_free(self->body);
}

uint32_t mst_worker_link_server(const mst_worker_link *self, uint32_t peer)
{
    for (uint32_t s = 0; s < self->n_servers; s++)
        if (self->peers[s] == peer)
            return s;
    return UINT32_MAX;
}

mst_status mst_worker_link_without(mst_worker_link *self, const json_t *absent)
{
    const json_t *index;
    size_t i;
    json_array_foreach(absent, i, index)
    {
        json_int_t s = json_integer_value(index);
        if (s <= 0 || s >= self->n_servers)
            return mst_fail(MST_EINPUT, "server 0 takes part without server %lld of %" PRIu32, (long long)s,
                            self->n_servers);
        if (self->absent[s])
            continue;
        self->absent[s] = true;
        self->up[s] = false;
        mst_net_drop(self->net, self->peers[s], "this server takes no part yet");
        self->peers[s] = MST_PEER_NONE;
    }
    return MST_OK;
}

bool mst_worker_link_whole(const mst_worker_link *self)
{
    for (uint32_t s = 0; s < self->n_servers; s++)
        if (!self->up[s] && !self->absent[s])
            return false;
    return true;
}

void mst_worker_link_missing(const mst_worker_link *self, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (uint32_t s = 0; s < self->n_servers && n < size; s++)
        if (!self->up[s] && !self->absent[s]) {
            int wrote = snprintf(out + n, size - n, "%sserver %" PRIu32 " at %s", n > 0 ? ", " : "", s,
                                 self->addresses[s]);
            n += wrote > 0 ? (size_t)wrote : 0;
        }
}

void mst_worker_link_note(mst_worker_link *self, mst_status status, bool final)
{
    if (self->failure.code == MST_OK || (final && !self->failure_is_final))
        mst_error_save(&self->failure, status);
    self->failure_is_final = self->failure_is_final || final;
}

mst_status mst_worker_link_poll(mst_worker_link *self, uint64_t deadline_ns)
{
    uint64_t soon = mst_now_ns() + POLL_NS;
    mst_status st = mst_net_poll(self->net, deadline_ns < soon ? deadline_ns : soon);
    mst_trace_next(&self->net_op, NULL, (mst_trace_output){0});
    return st == MST_OK ? self->attend(self->attend_arg) : st;
}

mst_status mst_worker_link_failed(mst_worker_link *self)
{
    uint64_t deadline = mst_now_ns() + GRACE_NS;
    while (!self->ended && !self->failure_is_final && (self->up[0] || self->starting) &&
           mst_now_ns() < deadline)
        TRY(mst_net_poll(self->net, deadline));
    self->failure_is_final = true;
    return self->ended ? MST_OK : mst_error_restore(&self->failure);
}

mst_status mst_worker_link_lost(mst_worker_link *self, mst_status status)
{
    mst_error error;
    mst_error_save(&error, status);
    uint64_t deadline = mst_now_ns() + GRACE_NS;
    while (!self->ended && self->failure.code == MST_OK && mst_now_ns() < deadline)
        if (mst_net_poll(self->net, deadline) != MST_OK)
            break;
    if (self->failure.code == MST_OK)
        return self->ended ? MST_OK : mst_error_restore(&error);
    return mst_worker_link_failed(self);
}

mst_status mst_worker_link_end(mst_worker_link *self, const mst_message *m, const void *body)
{
    json_t *json = NULL;
    TRY(mst_ps_json(m, body, &json));
    self->ended = true;
    mst_ps_read_error(json, &self->end);
    json_decref(json);
    return MST_OK;
}

mst_status mst_worker_link_end_status(const mst_worker_link *self)
{
    return self->end.code == MST_OK ? MST_OK : mst_error_restore(&self->end);
}
