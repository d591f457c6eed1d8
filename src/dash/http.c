/* The page's server (http.h).
 *
 * Design: one thread and no locks: the sockets of libmicrohttpd are polled together with the clock. A
 * listener is a connection to /events whose response never ends; it is suspended while there is no data, and
 * each tick resumes it. sse.c decides what a listener receives, routes.c how a request is answered.
 *
 * Invariants
 * 1. Connections (http/clients.h), listeners and the data queued for a listener are bounded. A listener
 * receives data every second, so a dead one is found.
 * 2. Every response has the content policy; none may be cached or embedded in another site's page. */
#include "dash/http.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "dash/routes.h"
#include "http/endpoint.h"

#ifndef MUSTER_HTTP

const char *mst_http_library(void)
{
    return NULL;
}

mst_status mst_http_new(mst_board *board, const mst_http_options *options, mst_http **out)
{
    (void)board, (void)options, (void)out;
    return mst_endpoint_unsupported("the page", "; 'muster top' shows the same in a terminal");
}

void mst_http_destroy(mst_http *self)
{
    (void)self;
}

const char *mst_http_url(const mst_http *self)
{
    (void)self;
    return "";
}

mst_status mst_http_run(mst_http *self, const atomic_bool *stop)
{
    (void)self, (void)stop;
    return MST_EUNSUPPORTED;
}

#else

#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dash/prometheus.h"
#include "dash/sse.h"

#define CONNECTIONS 256
#define PER_ADDRESS 64
#define LISTENERS   32
#define TIMEOUT_S   20
#define TICK_NS     MST_S
#define STOP_MS     200 /* the longest delay until *stop is noticed */
#define TICK_SHARE  10  /* reading takes at most one in so many */
#define HEADERS_MAX ((size_t)32 << 10)
#define BLOCK       ((size_t)32 << 10)

typedef struct listener {
    mst_http *http;
    struct MHD_Connection *connection;
    mst_listener queue;
    bool suspended;
} listener;

struct mst_http {
    mst_board *board;
    mst_clients clients;
    struct MHD_Daemon *daemon;
    mst_endpoint endpoint; /* the daemon closes its socket once there is one */
    char cookie[32];       /* its name */
    listener *listeners[LISTENERS];
    mst_string common; /* events of the last tick for all listeners */
    bool stopping;
};

const char *mst_http_library(void)
{
    return MHD_get_version();
}

/* ---- answers ---- */

static enum MHD_Result http_answer(struct MHD_Connection *connection, struct MHD_Response *response,
                                   int status, const char *type)
{
    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "Content-Security-Policy", mst_content_policy);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(response, "Cross-Origin-Resource-Policy", "same-origin");
    MHD_add_response_header(response, "Cross-Origin-Opener-Policy", "same-origin");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    enum MHD_Result rc = MHD_queue_response(connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return rc;
}

static enum MHD_Result http_answer_text(struct MHD_Connection *connection, int status, const char *type,
                                        const char *text, size_t n)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(n, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    if (response != NULL && status == 405)
        MHD_add_response_header(response, "Allow", "GET");
    if (response != NULL && status == 401)
        MHD_add_response_header(response, "WWW-Authenticate", "Bearer realm=\"muster dash\"");
    return http_answer(connection, response, status, type);
}

static enum MHD_Result http_refuse(struct MHD_Connection *connection, int status, const char *message)
{
    char line[300];
    int n = snprintf(line, sizeof line, "%s\n", message);
    return http_answer_text(connection, status, "text/plain; charset=utf-8", line, (size_t)n);
}

static enum MHD_Result http_answer_buffer(struct MHD_Connection *connection, const char *type,
                                          mst_string *text)
{
    enum MHD_Result rc = text->failed ? http_refuse(connection, 503, "No memory for an answer; try again.")
                                      : http_answer_text(connection, 200, type, text->text, text->size);
    mst_string_fini(text);
    return rc;
}

static enum MHD_Result http_welcome(mst_http *self, struct MHD_Connection *connection)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    char *cookie = mst_sprintf("%s=%s; Path=/; HttpOnly; SameSite=Lax", self->cookie, self->endpoint.token);
    if (response != NULL && cookie != NULL) {
        MHD_add_response_header(response, "Set-Cookie", cookie);
        MHD_add_response_header(response, "Location", "/");
    }
    mst_free(cookie);
    return http_answer(connection, response, 303, "text/plain; charset=utf-8");
}

static enum MHD_Result http_answer_state(mst_http *self, struct MHD_Connection *connection)
{
    mst_string out = {0};
    json_t *json = mst_board_json(self->board);
    char *head = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    out.failed = head == NULL;
    mst_string_format(&out, "{\"board\":%s,\"runs\":[", head != NULL ? head : "");
    free(head);
    for (size_t i = 0; i < self->board->n; i++) {
        mst_string_add(&out, i > 0 ? ",\n" : "\n");
        mst_string_add(&out, self->board->runs[i]->text);
    }
    mst_string_add(&out, "]}\n");
    return http_answer_buffer(connection, "application/json", &out);
}

/* ---- connections ---- */

static void http_on_connection(void *arg, struct MHD_Connection *connection, void **context,
                               enum MHD_ConnectionNotificationCode code)
{
    mst_http *self = arg;
    mst_endpoint_notify(&self->clients, connection, code == MHD_CONNECTION_NOTIFY_CLOSED, context);
}

static void http_set_answering(mst_http *self, struct MHD_Connection *connection, bool answering,
                               bool listening)
{
    mst_clients_set(&self->clients, mst_endpoint_client(connection), answering, listening);
}

static void http_on_answered(void *arg, struct MHD_Connection *connection, void **state,
                             enum MHD_RequestTerminationCode code)
{
    (void)state, (void)code;
    http_set_answering(arg, connection, false, false);
}

/* ---- listeners ---- */

static ssize_t http_read_events(void *arg, uint64_t at, char *to, size_t size)
{
    listener *l = arg;
    (void)at;
    if (l->http->stopping)
        return MHD_CONTENT_READER_END_OF_STREAM;
    size_t n = mst_listener_take(&l->queue, l->http->board, l->http->common.text, to, size);
    if (n == SIZE_MAX)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (n == 0) {
        l->suspended = true;
        MHD_suspend_connection(l->connection);
    }
    return (ssize_t)n;
}

static void http_listener_end(void *arg)
{
    listener *l = arg;
    for (size_t i = 0; i < LISTENERS; i++)
        if (l->http->listeners[i] == l)
            l->http->listeners[i] = NULL;
    mst_listener_fini(&l->queue);
    mst_free(l);
}

static enum MHD_Result http_answer_events(mst_http *self, struct MHD_Connection *connection)
{
    size_t slot = 0;
    while (slot < LISTENERS && self->listeners[slot] != NULL)
        slot++;
    if (slot == LISTENERS)
        return http_refuse(connection, 503, "Too many pages are open; close one and try again.");
    listener *l = mst_zalloc(sizeof *l);
    if (l == NULL)
        return http_refuse(connection, 503, "No memory for another page; try again.");
    l->http = self;
    l->connection = connection;
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, http_read_events, l, http_listener_end);
    if (response == NULL) {
        mst_free(l);
        return MHD_NO;
    }
    self->listeners[slot] = l;
    return http_answer(connection, response, 200, "text/event-stream");
}

static void http_wake_listeners(mst_http *self)
{
    for (size_t i = 0; i < LISTENERS; i++) {
        listener *l = self->listeners[i];
        if (l != NULL && l->suspended) {
            l->suspended = false;
            MHD_resume_connection(l->connection);
        }
    }
}

/* ---- requests ---- */

static enum MHD_Result http_handle(void *arg, struct MHD_Connection *connection, const char *path,
                                   const char *method, const char *version, const char *body,
                                   size_t *body_size, void **state)
{
    static int seen;
    mst_http *self = arg;
    mst_string text = {0};
    (void)version, (void)body, (void)body_size;
    if (*state == NULL) { /* headers only; libmicrohttpd calls again when the request is complete */
        *state = &seen;
        if (strcmp(method, "GET") == 0)
            return MHD_YES;
    }
    if (*body_size > 0) { /* a body of a GET request is ignored */
        *body_size = 0;
        return MHD_YES;
    }
    mst_request request = {
        .method = method,
        .path = path,
        .host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host"),
        .origin = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Origin"),
        .token = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "token"),
        .cookie = MHD_lookup_connection_value(connection, MHD_COOKIE_KIND, self->cookie),
        .authorization = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Authorization"),
    };
    mst_decision d = mst_route_request(&self->endpoint.guard, &request);
    http_set_answering(self, connection, true, d.route == MST_ROUTE_EVENTS);
    switch (d.route) {
    case MST_ROUTE_ASSET:
        return http_answer(connection,
                           MHD_create_response_from_buffer(d.asset->size, (void *)(uintptr_t)d.asset->data,
                                                           MHD_RESPMEM_PERSISTENT),
                           200, d.asset->type);
    case MST_ROUTE_EVENTS:
        return http_answer_events(self, connection);
    case MST_ROUTE_METRICS:
        mst_prometheus_text(self->board, &text);
        return http_answer_buffer(connection, "text/plain; version=0.0.4; charset=utf-8", &text);
    case MST_ROUTE_STATE:
        return http_answer_state(self, connection);
    case MST_ROUTE_WELCOME:
        return http_welcome(self, connection);
    default:
        return http_refuse(connection, d.status, d.message);
    }
}

/* ---- life ---- */

static mst_status http_make_common(mst_http *self)
{
    json_t *json = mst_board_json(self->board);
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(14)) : NULL;
    json_decref(json);
    mst_string_fini(&self->common);
    mst_sse_add(&self->common, "board", text);
    for (size_t i = 0; i < self->board->dropped.n; i++)
        mst_sse_add(&self->common, "drop", self->board->dropped.items[i]);
    bool failed = text == NULL || self->common.failed;
    free(text);
    return failed ? mst_fail_memory() : MST_OK;
}

mst_status mst_http_new(mst_board *board, const mst_http_options *options, mst_http **out)
{
    mst_status st;
    mst_http *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->board = board;
    unsigned timeout_s = options->timeout_s > 0 ? options->timeout_s : TIMEOUT_S;
    mst_clients_init(&self->clients, CONNECTIONS, PER_ADDRESS, timeout_s * MST_S);
    mst_endpoint_options where = {.listen = options->listen,
                                  .other_port = options->other_port,
                                  .token = options->token,
                                  .names = options->names,
                                  .path = "/"};
    TRY_OUT(st, mst_endpoint_open(&self->endpoint, &where));
    snprintf(self->cookie, sizeof self->cookie, "muster_dash_%u", self->endpoint.port);
    TRY_OUT(st, http_make_common(self));
    self->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, http_handle, self, MHD_OPTION_LISTEN_SOCKET,
        self->endpoint.fd, MHD_OPTION_CONNECTION_LIMIT, 2 * (unsigned)CONNECTIONS, /* some are closing */
        MHD_OPTION_CONNECTION_TIMEOUT, timeout_s, MHD_OPTION_NOTIFY_CONNECTION, http_on_connection, self,
        MHD_OPTION_NOTIFY_COMPLETED, http_on_answered, self, MHD_OPTION_CONNECTION_MEMORY_LIMIT, HEADERS_MAX,
        MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
    if (self->daemon == NULL)
        TRY_OUT(st, mst_fail(MST_EIO, "libmicrohttpd could not start: %s", strerror(errno)));
    self->endpoint.fd = -1; /* the daemon closes it */
    *out = self;
    self = NULL;
out:
    mst_http_destroy(self);
    return st;
}

void mst_http_destroy(mst_http *self)
{
    if (self == NULL)
        return;
    self->stopping = true;
    if (self->daemon != NULL) {
        http_wake_listeners(self);
        MHD_run(self->daemon);
        http_wake_listeners(self);
        MHD_stop_daemon(self->daemon);
    }
    mst_clients_fini(&self->clients);
    mst_string_fini(&self->common);
    mst_endpoint_close(&self->endpoint);
    mst_free(self);
}

const char *mst_http_url(const mst_http *self)
{
    return self->endpoint.url;
}

static mst_status http_tick(mst_http *self)
{
    mst_clients_close_slow(&self->clients);
    TRY(mst_board_update(self->board));
    TRY(http_make_common(self));
    for (size_t i = 0; i < LISTENERS; i++)
        if (self->listeners[i] != NULL)
            mst_listener_offer(&self->listeners[i]->queue, self->board, self->common.text);
    http_wake_listeners(self);
    return MST_OK;
}

/* Milliseconds until the next tick, or until libmicrohttpd has to look at its timeouts. */
static int http_wait_ms(const mst_http *self, uint64_t due_ns)
{
    MHD_UNSIGNED_LONG_LONG own;
    uint64_t now = mst_now_ns(), ms = due_ns > now ? (due_ns - now) / MST_MS + 1 : 0;
    if (MHD_get_timeout(self->daemon, &own) == MHD_YES && own < ms)
        ms = own;
    return (int)(ms < STOP_MS ? ms : STOP_MS);
}

mst_status mst_http_run(mst_http *self, const atomic_bool *stop)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(self->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    uint64_t due_ns = mst_now_ns() + TICK_NS;
    if (info == NULL)
        return mst_fail(MST_EUNSUPPORTED, "this libmicrohttpd was built without epoll");
    while (!atomic_load(stop)) {
        struct pollfd fd = {.fd = info->epoll_fd, .events = POLLIN};
        if (poll(&fd, 1, http_wait_ms(self, due_ns)) < 0 && errno != EINTR)
            return mst_fail(MST_EIO, "the page's connections: %s", strerror(errno));
        if (MHD_run(self->daemon) != MHD_YES)
            return mst_fail(MST_EIO, "libmicrohttpd failed while it ran");
        uint64_t now = mst_now_ns();
        if (now < due_ns)
            continue;
        TRY(http_tick(self));
        uint64_t cost = (mst_now_ns() - now) * TICK_SHARE;
        due_ns = now + (cost > TICK_NS ? cost : TICK_NS);
        MHD_run(self->daemon);
    }
    return MST_OK;
}

#endif
