/* The decision about a request (routes.h).
 *
 * Order: method, host, origin, token, and then the path, so that the answer to a request without access does
 * not depend on the path.
 */
#include "dash/routes.h"

#include <string.h>

const char mst_content_policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static mst_decision route_refuse(int status, const char *message)
{
    return (mst_decision){.route = MST_ROUTE_REFUSED, .status = status, .message = message};
}

mst_decision mst_route_request(const mst_guard *guard, const mst_request *r)
{
    if (r->method == NULL || strcmp(r->method, "GET") != 0)
        return route_refuse(405, "Only GET requests are allowed.");
    switch (mst_guard_check(guard, r)) {
    case MST_ACCESS_HOST:
        return route_refuse(
            421, "The page is not available under this host name. Use the address that muster dash printed, "
                 "or start it with --allow-host NAME.");
    case MST_ACCESS_ORIGIN:
        return route_refuse(403, "Requests of other sites are not answered.");
    case MST_ACCESS_TOKEN:
        return route_refuse(401,
                            "A token is needed: open the address that muster dash printed when it started.");
    default:
        break;
    }
    if (strcmp(r->path, "/") == 0 && guard->token != NULL && r->token != NULL)
        return (mst_decision){.route = MST_ROUTE_WELCOME, .status = 303};
    if (strcmp(r->path, "/events") == 0)
        return (mst_decision){.route = MST_ROUTE_EVENTS, .status = 200};
    if (strcmp(r->path, "/metrics") == 0)
        return (mst_decision){.route = MST_ROUTE_METRICS, .status = 200};
    if (strcmp(r->path, "/state.json") == 0)
        return (mst_decision){.route = MST_ROUTE_STATE, .status = 200};
    for (const mst_asset *a = mst_assets; a->path != NULL; a++)
        if (strcmp(r->path, a->path) == 0)
            return (mst_decision){.route = MST_ROUTE_ASSET, .status = 200, .asset = a};
    return route_refuse(404, "There is no such page; the page is at /.");
}
