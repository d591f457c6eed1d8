/* The decision about a request to `muster serve`, from its method, path and headers alone: TensorFlow
 * Serving's REST paths, and /metrics. */
#ifndef MST_SERVE_SERVE_ROUTES_H
#define MST_SERVE_SERVE_ROUTES_H

#include "http/access.h"

typedef enum mst_serve_route {
    MST_SERVE_REFUSED,  /* status and message */
    MST_SERVE_PREDICT,  /* POST /v1/models/NAME[/versions/STEP]:predict */
    MST_SERVE_STATUS,   /* GET /v1/models/NAME[/versions/STEP] */
    MST_SERVE_METADATA, /* GET /v1/models/NAME[/versions/STEP]/metadata */
    MST_SERVE_METRICS,  /* GET /metrics */
} mst_serve_route;

typedef struct mst_serve_decision {
    mst_serve_route route;
    int status;          /* of HTTP, when refused */
    const char *message; /* for people, when refused */
    bool versioned;      /* the path names a version, which must be that of the model */
    uint64_t version;
} mst_serve_decision;

/* name: of the model. A server whose guard has a token answers under any host name: a page of another site
 * does not have the token. */
mst_serve_decision mst_serve_decide(const mst_guard *guard, const char *name, const mst_request *request);

#endif
