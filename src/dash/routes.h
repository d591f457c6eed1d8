/* The decision about a request, from its method, path and headers alone.
 *
 * Paths are compared with a fixed list: none ever reaches the file system. */
#ifndef MST_DASH_ROUTES_H
#define MST_DASH_ROUTES_H

#include "http/access.h"
#include "report/assets.h"

typedef enum mst_route {
    MST_ROUTE_REFUSED, /* status and message */
    MST_ROUTE_ASSET,
    MST_ROUTE_EVENTS,  /* server-sent events */
    MST_ROUTE_METRICS, /* for Prometheus */
    MST_ROUTE_STATE,   /* everything but curves, as JSON */
    MST_ROUTE_WELCOME, /* the token is in the address: store it in a cookie and redirect to / */
} mst_route;

typedef struct mst_decision {
    mst_route route;
    int status; /* of HTTP */
    const mst_asset *asset;
    const char *message; /* for people, when refused */
} mst_decision;

mst_decision mst_route_request(const mst_guard *guard, const mst_request *request);

/* In every response. */
extern const char mst_content_policy[];

#endif
