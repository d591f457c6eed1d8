/* The page's server: HTTP over libmicrohttpd, on the thread that calls mst_http_run.
 *
 * Built without libmicrohttpd, mst_http_new returns MST_EUNSUPPORTED. */
#ifndef MST_DASH_HTTP_H
#define MST_DASH_HTTP_H

#include <stdatomic.h>

#include "dash/board.h"
#include "http/access.h"

typedef struct mst_http_options {
    mst_address listen;
    bool other_port;            /* take any free port when that one is in use */
    const char *token;          /* NULL: generated, unless only this machine can reach the page */
    const mst_text_list *names; /* further host names that requests may use; may be NULL */
    unsigned timeout_s;         /* of a connection without traffic; 0: 20 */
} mst_http_options;

typedef struct mst_http mst_http;

/* The version of libmicrohttpd; NULL: built without it. */
const char *mst_http_library(void);

/* Listens; mst_http_run answers. The board and the data of options must outlive it. *out is the caller's to
 * destroy; set only on MST_OK. */
mst_status mst_http_new(mst_board *board, const mst_http_options *options, mst_http **out);
void mst_http_destroy(mst_http *self); /* NULL-safe; closes every connection */

/* The address for a browser, including the token. */
const char *mst_http_url(const mst_http *self);

/* Reads the runs once a second (less often when that takes long: at most a tenth of the time) and answers
 * requests until *stop is set. Returns within a second of that. */
mst_status mst_http_run(mst_http *self, const atomic_bool *stop);

#endif
