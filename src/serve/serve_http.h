/* The server of predictions: HTTP over libmicrohttpd.
 *
 * Built without libmicrohttpd, mst_serve_http_new returns MST_EUNSUPPORTED. */
#ifndef MST_SERVE_SERVE_HTTP_H
#define MST_SERVE_SERVE_HTTP_H

#include "http/access.h"
#include "serve/serve_model.h"

typedef enum mst_batching { MST_BATCHING_AUTO, MST_BATCHING_ON, MST_BATCHING_OFF } mst_batching;

typedef struct mst_serve_options {
    mst_address listen;
    const char *token;          /* NULL: generated, unless only this machine can reach the server */
    const mst_text_list *names; /* further host names that requests may use; may be NULL */
    const char *name;           /* of the model */
    unsigned n_threads;
    unsigned connections;
    uint64_t max_body, max_rows;
    double deadline_s, idle_s, drain_s;
    double reload_s; /* between looks for a newer checkpoint; 0: never */
    mst_batching batching;
    bool strict; /* features that the model does not have are refused, else ignored */
} mst_serve_options;

typedef struct mst_serve_http mst_serve_http;

/* Listens; mst_serve_http_run answers. The slot and the data of options must outlive it. *out is the caller's
 * to destroy; set only on MST_OK. */
mst_status mst_serve_http_new(mst_model_slot *slot, const mst_serve_options *options, mst_serve_http **out);
void mst_serve_http_destroy(mst_serve_http *self); /* NULL-safe */

/* "http://HOST:PORT/v1/models/NAME", with "?token=..." where one is required. */
const char *mst_serve_http_url(const mst_serve_http *self);

/* Answers requests until *stop is set. Then no connection is accepted any more, requests that have arrived
 * are answered, and connections are closed: within drain_s. */
mst_status mst_serve_http_run(mst_serve_http *self, const atomic_bool *stop);

#endif
