/* The server of predictions (serve_http.h).
 *
 * Design: the calling thread accepts connections and deals them out in turn to the threads of libmicrohttpd,
 * each of which waits for its own connections. A thread reads a request, computes the predictions and writes
 * the answer, unless the model is scored in batches (batcher.h): then the connection is suspended until its
 * batch is done. Another thread looks for newer checkpoints.
 *
 * Invariants
 * 1. A call belongs to its connection from the headers of a request to the end of the answer; it holds the
 * model that it began with. While it is in the batcher, its connection is suspended.
 * 2. Connections (http/clients.h), bodies, rows of a request and rows that wait for a batch are bounded.
 * 3. Errors have the form {"error": "sentence"}. */
#include "serve/serve_http.h"

#include "base/alloc.h"
#include "base/cond.h"
#include "http/endpoint.h"

#ifndef MUSTER_HTTP

mst_status mst_serve_http_new(mst_model_slot *slot, const mst_serve_options *options, mst_serve_http **out)
{
    (void)slot, (void)options, (void)out;
    return mst_endpoint_unsupported("muster serve", "");
}

void mst_serve_http_destroy(mst_serve_http *self)
{
    (void)self;
}

const char *mst_serve_http_url(const mst_serve_http *self)
{
    (void)self;
    return "";
}

mst_status mst_serve_http_run(mst_serve_http *self, const atomic_bool *stop)
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
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/json_text.h"
#include "base/log.h"
#include "serve/batcher.h"
#include "serve/serve_metrics.h"
#include "serve/serve_routes.h"

#define HEADERS_MAX  ((size_t)64 << 10) /* memory of a connection: headers, and parts of a body */
#define STOP_MS      100                /* the longest delay until *stop is noticed */
#define IDLE_MS      100   /* while draining: a connection without a request for so long is closed */
#define QUEUE_ROWS   65536 /* that may wait for a batch */
#define JSON_TYPE    "application/json"
#define METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* A request, from its headers to the end of its answer. */
typedef struct serve_call {
    struct serve_call *next; /* in the list of free ones */
    mst_serve_http *http;
    struct MHD_Connection *connection;
    mst_job *job;
    mst_serve_decision decision;
    uint64_t start_ns;
    uint64_t rows; /* answered */
    int status;    /* of the answer; 0: none yet */
    bool lines;    /* the body is lines, not JSON */
    bool too_large;
    bool submitted;    /* to the batcher */
    mst_status scored; /* by the batcher */
    mst_error error;   /* if not MST_OK */
} serve_call;

struct mst_serve_http {
    mst_serve_options options;
    mst_model_slot *slot;
    mst_clients clients;
    mst_serve_metrics metrics;
    mst_batcher *batcher; /* NULL: requests are computed by the threads that read them */
    struct MHD_Daemon *daemon;
    mst_endpoint endpoint;
    double start_s;
    atomic_bool draining;
    atomic_uint connections; /* accepted and not closed */
    pthread_mutex_t mutex;   /* guards the rest */
    pthread_cond_t leave;
    serve_call *free;
    bool leaving; /* the watching thread ends */
    bool watching;
    pthread_t watcher;
};

/* ---- calls ---- */

static serve_call *call_take(mst_serve_http *self, struct MHD_Connection *connection)
{
    pthread_mutex_lock(&self->mutex);
    serve_call *call = self->free;
    if (call != NULL)
        self->free = call->next;
    pthread_mutex_unlock(&self->mutex);
    if (call == NULL) {
        call = mst_zalloc(sizeof *call);
        if (call == NULL || mst_job_new(&call->job) != MST_OK) {
            mst_free(call);
            return NULL;
        }
    }
    mst_job *job = call->job;
    *call = (serve_call){.http = self, .connection = connection, .job = job, .start_ns = mst_now_ns()};
    job->owner = call;
    return call;
}

static void call_give_back(mst_serve_http *self, serve_call *call)
{
    mst_job_end(call->job);
    pthread_mutex_lock(&self->mutex);
    call->next = self->free;
    self->free = call;
    pthread_mutex_unlock(&self->mutex);
}

/* ---- answers ---- */

static enum MHD_Result serve_answer(mst_serve_http *self, serve_call *call, int status, const char *type,
                                    struct MHD_Response *response)
{
    if (response == NULL)
        return MHD_NO;
    call->status = status;
    MHD_add_response_header(response, "Content-Type", type);
    if (atomic_load_explicit(&self->draining, memory_order_relaxed))
        MHD_add_response_header(response, "Connection", "close");
    if (status == 401)
        MHD_add_response_header(response, "WWW-Authenticate", "Bearer realm=\"muster serve\"");
    if (status == 503)
        MHD_add_response_header(response, "Retry-After", "1");
    if (status == 405)
        MHD_add_response_header(response, "Allow",
                                call->decision.route == MST_SERVE_PREDICT ? "POST" : "GET, POST");
    enum MHD_Result rc = MHD_queue_response(call->connection, (unsigned)status, response);
    MHD_destroy_response(response);
    return rc;
}

static enum MHD_Result serve_answer_text(mst_serve_http *self, serve_call *call, int status, const char *type,
                                         const char *text, size_t n)
{
    return serve_answer(self, call, status, type,
                        MHD_create_response_from_buffer(n, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY));
}

static enum MHD_Result serve_refuse(mst_serve_http *self, serve_call *call, int status, const char *message)
{
    json_t *json = json_pack("{s:o}", "error", mst_json_text(message));
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    const char *body = text != NULL ? text : "{\"error\":\"out of memory\"}";
    enum MHD_Result rc = serve_answer_text(self, call, status, JSON_TYPE, body, strlen(body));
    free(text); /* jansson's allocation */
    json_decref(json);
    return rc;
}

/* The answer to a failure. */
static enum MHD_Result serve_fail(mst_serve_http *self, serve_call *call, mst_status st)
{
    int status = st == MST_EINPUT || st == MST_EUSAGE ? 400
                 : st == MST_ETIMEOUT                 ? 504
                 : st == MST_ENOMEM                   ? 503
                                                      : 500;
    return serve_refuse(self, call, status, mst_error_text());
}

static enum MHD_Result serve_status(mst_serve_http *self, serve_call *call, const mst_serve_model *model)
{
    char text[256];
    int n = snprintf(text, sizeof text,
                     "{\"model_version_status\":[{\"version\":\"%llu\",\"state\":\"AVAILABLE\",\"status\":"
                     "{\"error_code\":\"OK\",\"error_message\":\"\"}}]}\n",
                     (unsigned long long)model->step);
    return serve_answer_text(self, call, 200, JSON_TYPE, text, (size_t)n);
}

static enum MHD_Result serve_metadata(mst_serve_http *self, serve_call *call, const mst_serve_model *model)
{
    mst_string text = {0};
    mst_string_format(&text,
                      "{\"model_spec\":{\"name\":\"%s\",\"signature_name\":\"\",\"version\":\"%llu\"},"
                      "\"metadata\":%s}\n",
                      self->options.name, (unsigned long long)model->step, model->description);
    enum MHD_Result rc = text.failed
                             ? serve_refuse(self, call, 503, "there is no memory for an answer; try again")
                             : serve_answer_text(self, call, 200, JSON_TYPE, text.text, text.size);
    mst_string_fini(&text);
    return rc;
}

static enum MHD_Result serve_metrics(mst_serve_http *self, serve_call *call, const mst_serve_model *model)
{
    mst_string text = {0};
    mst_serve_figures f = {.name = self->options.name,
                           .step = model->step,
                           .reloads = atomic_load(&self->slot->reloads),
                           .reload_failures = atomic_load(&self->slot->failures),
                           .connections = mst_clients_count(&self->clients),
                           .start_s = self->start_s};
    if (self->batcher != NULL)
        mst_batcher_count(self->batcher, &f.batches, &f.batched_rows);
    mst_serve_metrics_text(&self->metrics, &f, &text);
    enum MHD_Result rc = text.failed
                             ? serve_refuse(self, call, 503, "there is no memory for an answer; try again")
                             : serve_answer_text(self, call, 200, METRICS_TYPE, text.text, text.size);
    mst_string_fini(&text);
    return rc;
}

/* ---- predictions ---- */

/* The job has scores: its text, which lives until the call is given back, is the answer. */
static enum MHD_Result predict_answer(mst_serve_http *self, serve_call *call)
{
    mst_job *job = call->job;
    mst_status st = mst_job_write(job);
    if (st != MST_OK)
        return serve_fail(self, call, st);
    call->rows = job->n_rows;
    return serve_answer(
        self, call, 200, JSON_TYPE,
        MHD_create_response_from_buffer(job->answer.size, job->answer.text, MHD_RESPMEM_PERSISTENT));
}

/* On a thread of the batcher. */
static void predict_scored(void *arg, mst_job *job, mst_status st)
{
    serve_call *call = job->owner;
    (void)arg;
    call->scored = st;
    if (st != MST_OK)
        mst_error_save(&call->error, st);
    MHD_resume_connection(call->connection); /* the handler is called again */
}

static enum MHD_Result predict_submit(mst_serve_http *self, serve_call *call)
{
    uint64_t due_ns = call->start_ns + (uint64_t)(self->options.deadline_s * 1e9);
    call->submitted = true;
    MHD_suspend_connection(call->connection);
    if (!mst_batcher_submit(self->batcher, call->job, due_ns)) {
        call->scored = mst_fail(MST_ENOMEM, "too many rows wait for a prediction; try again later");
        mst_error_save(&call->error, call->scored);
        MHD_resume_connection(call->connection);
    }
    return MHD_YES;
}

/* The body is complete, or the batch is done. */
static enum MHD_Result serve_predict(mst_serve_http *self, serve_call *call)
{
    mst_job *job = call->job;
    if (call->submitted)
        return call->scored == MST_OK ? predict_answer(self, call)
                                      : serve_fail(self, call, mst_error_restore(&call->error));
    if (call->too_large) {
        mst_job_body(job, "", job->max_body + 1); /* for its message */
        return serve_refuse(self, call, 413, mst_error_text());
    }
    if ((double)(mst_now_ns() - call->start_ns) > self->options.deadline_s * 1e9)
        return serve_refuse(self, call, 504, "the body took longer than the deadline of a request to arrive");
    mst_status st = mst_job_read(job, call->lines);
    if (st != MST_OK)
        return serve_fail(self, call, st);
    if (job->n_rows > 0 && self->batcher != NULL)
        return predict_submit(self, call);
    st = mst_job_score(job);
    return st == MST_OK ? predict_answer(self, call) : serve_fail(self, call, st);
}

/* ---- requests ---- */

static const char *serve_header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* The decision about the request; a prediction begins with the model in use. A refusal that need not wait for
 * the body is answered at once. */
static enum MHD_Result serve_begin(mst_serve_http *self, serve_call *call, const char *path,
                                   const char *method)
{
    struct MHD_Connection *connection = call->connection;
    mst_request request = {
        .method = method,
        .path = path,
        .host = serve_header(connection, "Host"),
        .origin = serve_header(connection, "Origin"),
        .token = self->endpoint.token != NULL
                     ? MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "token")
                     : NULL,
        .authorization = serve_header(connection, "Authorization"),
    };
    call->decision = mst_serve_decide(&self->endpoint.guard, self->options.name, &request);
    if (call->decision.route == MST_SERVE_REFUSED)
        return strcmp(method, "GET") == 0
                   ? MHD_YES
                   : serve_refuse(self, call, call->decision.status, call->decision.message);
    mst_job_begin(call->job, mst_model_slot_take(self->slot), self->options.max_rows, self->options.max_body,
                  self->options.strict);
    if (call->decision.route != MST_SERVE_PREDICT)
        return MHD_YES;
    const char *type = serve_header(connection, "Content-Type"),
               *length = serve_header(connection, "Content-Length");
    call->lines = type != NULL && strncasecmp(type, "text/plain", 10) == 0;
    call->too_large = length != NULL && strtoull(length, NULL, 10) > self->options.max_body;
    return call->too_large ? serve_predict(self, call) : MHD_YES;
}

static enum MHD_Result serve_complete(mst_serve_http *self, serve_call *call)
{
    const mst_serve_decision *d = &call->decision;
    char text[160];
    if (d->route == MST_SERVE_REFUSED)
        return serve_refuse(self, call, d->status, d->message);
    const mst_serve_model *model = call->job->model;
    if (d->versioned && d->version != model->step) {
        snprintf(text, sizeof text, "version %llu is not loaded; the model in use is version %llu",
                 (unsigned long long)d->version, (unsigned long long)model->step);
        return serve_refuse(self, call, 404, text);
    }
    switch (d->route) {
    case MST_SERVE_PREDICT:
        return serve_predict(self, call);
    case MST_SERVE_STATUS:
        return serve_status(self, call, model);
    case MST_SERVE_METADATA:
        return serve_metadata(self, call, model);
    default:
        return serve_metrics(self, call, model);
    }
}

static enum MHD_Result serve_handle(void *arg, struct MHD_Connection *connection, const char *path,
                                    const char *method, const char *version, const char *body,
                                    size_t *body_size, void **state)
{
    mst_serve_http *self = arg;
    serve_call *call = *state;
    (void)version;
    if (call == NULL) { /* headers only; libmicrohttpd calls again with the body, and when it is complete */
        call = *state = call_take(self, connection);
        if (call == NULL)
            return MHD_NO;
        atomic_fetch_add_explicit(&self->metrics.in_progress, 1, memory_order_relaxed);
        mst_clients_begin(&self->clients, mst_endpoint_client(connection));
        return serve_begin(self, call, path, method);
    }
    if (*body_size > 0) {
        if (call->decision.route == MST_SERVE_PREDICT && !call->too_large)
            call->too_large = mst_job_body(call->job, body, *body_size) != MST_OK;
        *body_size = 0;
        return MHD_YES;
    }
    mst_clients_set(&self->clients, mst_endpoint_client(connection), true, false);
    return serve_complete(self, call);
}

static void serve_on_completed(void *arg, struct MHD_Connection *connection, void **state,
                               enum MHD_RequestTerminationCode code)
{
    mst_serve_http *self = arg;
    serve_call *call = *state;
    mst_clients_set(&self->clients, mst_endpoint_client(connection), false, false);
    if (call == NULL)
        return;
    bool answered = code == MHD_REQUEST_TERMINATED_COMPLETED_OK;
    mst_serve_metrics_end(&self->metrics, answered ? call->status : 0, mst_now_ns() - call->start_ns,
                          answered ? call->rows : 0);
    atomic_fetch_sub_explicit(&self->metrics.in_progress, 1, memory_order_relaxed);
    *state = NULL;
    call_give_back(self, call);
}

static void serve_on_connection(void *arg, struct MHD_Connection *connection, void **context,
                                enum MHD_ConnectionNotificationCode code)
{
    mst_serve_http *self = arg;
    bool closed = code == MHD_CONNECTION_NOTIFY_CLOSED;
    mst_endpoint_notify(&self->clients, connection, closed, context);
    if (closed)
        atomic_fetch_sub(&self->connections, 1);
}

/* ---- newer checkpoints ---- */

static void *serve_watch(void *arg)
{
    mst_serve_http *self = arg;
    pthread_mutex_lock(&self->mutex);
    while (!self->leaving) {
        uint64_t until = mst_now_ns() + (uint64_t)(self->options.reload_s * 1e9);
        while (!self->leaving && mst_now_ns() < until)
            mst_cond_wait(&self->leave, &self->mutex, until);
        if (self->leaving)
            break;
        pthread_mutex_unlock(&self->mutex);
        mst_model_slot_refresh(self->slot);
        pthread_mutex_lock(&self->mutex);
    }
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

/* ---- life ---- */

/* Connections at most, those that are closing included. libmicrohttpd 0.9.75 may lock up at a limit of its
 * own.
 */
static unsigned serve_most(const mst_serve_http *self)
{
    return 2 * self->options.connections + 1024;
}

static mst_status serve_start_daemon(mst_serve_http *self)
{
    unsigned threads = self->options.n_threads, limit = threads * 2 * serve_most(self); /* never reached */
    struct MHD_OptionItem pool[] = {{MHD_OPTION_THREAD_POOL_SIZE, (intptr_t)threads, NULL},
                                    {MHD_OPTION_END, 0, NULL}};
    self->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC | MHD_ALLOW_SUSPEND_RESUME, 0,
        NULL, NULL, serve_handle, self, MHD_OPTION_CONNECTION_LIMIT, limit, MHD_OPTION_NOTIFY_CONNECTION,
        serve_on_connection, self, MHD_OPTION_NOTIFY_COMPLETED, serve_on_completed, self,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, HEADERS_MAX, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY,
        threads > 1 ? pool : &pool[1], MHD_OPTION_END);
    return self->daemon != NULL ? MST_OK
                                : mst_fail(MST_EIO, "libmicrohttpd could not start: %s", strerror(errno));
}

static mst_status serve_start_batcher(mst_serve_http *self)
{
    const mst_model *model = self->slot->model->assembly.model; /* no other thread runs yet */
    mst_batching batching = self->options.batching;
    if (batching == MST_BATCHING_OFF || (batching == MST_BATCHING_AUTO && !mst_batcher_helps(model)))
        return MST_OK;
    mst_batcher_options options = {
        .n_threads = self->options.n_threads, .queue_rows = QUEUE_ROWS, .done = predict_scored, .arg = self};
    return mst_batcher_new(&options, model, &self->batcher);
}

mst_status mst_serve_http_new(mst_model_slot *slot, const mst_serve_options *options, mst_serve_http **out)
{
    mst_status st;
    char *path = NULL;
    mst_serve_http *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->options = *options;
    self->slot = slot;
    self->endpoint.fd = -1;
    self->start_s = mst_wall_s();
    pthread_mutex_init(&self->mutex, NULL);
    mst_cond_init(&self->leave);
    mst_clients_init(&self->clients, options->connections, 0, (uint64_t)(options->idle_s * 1e9));
    path = mst_sprintf("/v1/models/%s", options->name);
    if (path == NULL)
        TRY_OUT(st, mst_fail_memory());
    TRY_OUT(st, mst_endpoint_open(&self->endpoint, &(mst_endpoint_options){.listen = options->listen,
                                                                           .token = options->token,
                                                                           .names = options->names,
                                                                           .path = path}));
    TRY_OUT(st, serve_start_batcher(self));
    TRY_OUT(st, serve_start_daemon(self));
    if (options->reload_s > 0.0) {
        if (pthread_create(&self->watcher, NULL, serve_watch, self) != 0)
            TRY_OUT(st, mst_fail(MST_EIO, "cannot start a thread"));
        self->watching = true;
    }
    *out = self;
    self = NULL;
out:
    mst_free(path);
    mst_serve_http_destroy(self);
    return st;
}

void mst_serve_http_destroy(mst_serve_http *self)
{
    if (self == NULL)
        return;
    mst_cond_set(&self->leave, &self->mutex, &self->leaving);
    if (self->watching)
        pthread_join(self->watcher, NULL);
    mst_batcher_stop(self->batcher); /* no connection stays suspended */
    if (self->daemon != NULL)
        MHD_stop_daemon(self->daemon);
    mst_batcher_destroy(self->batcher);
    while (self->free != NULL) {
        serve_call *call = self->free;
        self->free = call->next;
        mst_job_destroy(call->job);
        mst_free(call);
    }
    mst_clients_fini(&self->clients);
    pthread_cond_destroy(&self->leave);
    pthread_mutex_destroy(&self->mutex);
    mst_endpoint_close(&self->endpoint);
    mst_free(self);
}

const char *mst_serve_http_url(const mst_serve_http *self)
{
    return self->endpoint.url;
}

/* Accepts the connections that wait. */
static mst_status serve_accept(mst_serve_http *self)
{
    while (atomic_load(&self->connections) < serve_most(self)) {
        struct sockaddr_storage from = {0};
        socklen_t size = sizeof from;
        int fd = accept4(self->endpoint.fd, (struct sockaddr *)&from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
            mst_clients_close_slow(&self->clients); /* the connection waits until there is room */
            return MST_OK;
        }
        if (fd < 0)
            return errno == EAGAIN ? MST_OK
                                   : mst_fail(MST_EIO, "cannot accept connections: %s", strerror(errno));
        atomic_fetch_add(&self->connections, 1);
        /* here, since a thread that comes late to its connections must not count them as the newest */
        mst_client *client = mst_clients_add(&self->clients, fd, (struct sockaddr *)&from);
        if (MHD_add_connection(self->daemon, fd, (struct sockaddr *)&from, size) != MHD_YES) {
            mst_clients_remove(&self->clients, client); /* it is closed */
            atomic_fetch_sub(&self->connections, 1);
        }
    }
    nanosleep(&(struct timespec){.tv_nsec = MST_MS}, NULL); /* until some are closed */
    return MST_OK;
}

/* No more connections; those with a request are answered, the others closed. */
static void serve_drain(mst_serve_http *self)
{
    uint64_t end_ns = mst_now_ns() + (uint64_t)(self->options.drain_s * 1e9);
    atomic_store(&self->draining, true);
    close(self->endpoint.fd);
    self->endpoint.fd = -1;
    while (mst_clients_close_idle(&self->clients, IDLE_MS * MST_MS) > 0 && mst_now_ns() < end_ns)
        nanosleep(&(struct timespec){.tv_nsec = 10 * MST_MS}, NULL);
}

mst_status mst_serve_http_run(mst_serve_http *self, const atomic_bool *stop)
{
    uint64_t due_ns = mst_now_ns() + MST_S;
    while (!atomic_load(stop)) {
        struct pollfd fd = {.fd = self->endpoint.fd, .events = POLLIN};
        if (poll(&fd, 1, STOP_MS) < 0 && errno != EINTR)
            return mst_fail(MST_EIO, "cannot wait for connections: %s", strerror(errno));
        if (fd.revents != 0)
            TRY(serve_accept(self));
        if (mst_now_ns() < due_ns)
            continue;
        mst_clients_close_slow(&self->clients);
        due_ns = mst_now_ns() + MST_S;
    }
    TRY(serve_accept(self));
    serve_drain(self);
    return MST_OK;
}

#endif
