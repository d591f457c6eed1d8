/* The decision about a request; contract in serve_routes.h.
 *
 * Order: host, origin, token, and then path and method, so that the answer to a request without access does
 * not depend on the path. */
#include "serve/serve_routes.h"

#include <string.h>

static mst_serve_decision route_refuse(int status, const char *message)
{
    return (mst_serve_decision){.route = MST_SERVE_REFUSED, .status = status, .message = message};
}

/* Decimal digits at p; returns where they end, NULL: none, or too many. */
static const char *route_number(const char *p, uint64_t *out)
{
    const char *start = p;
    *out = 0;
    for (; *p >= '0' && *p <= '9' && p - start < 18; p++)
        *out = *out * 10 + (uint64_t)(*p - '0');
    return p > start ? p : NULL;
}

static mst_serve_decision route_model(const mst_serve_decision *found, const char *rest, bool get, bool post)
{
    mst_serve_decision d = *found;
    if (strcmp(rest, ":predict") == 0) {
        if (!post)
            return route_refuse(405, "Predictions are asked for with POST.");
        d.route = MST_SERVE_PREDICT;
        return d;
    }
    if (strcmp(rest, ":classify") == 0 || strcmp(rest, ":regress") == 0)
        return route_refuse(404, "Only :predict is supported; signature_name \"class\" gives classes.");
    d.route = *rest == '\0'                    ? MST_SERVE_STATUS
              : strcmp(rest, "/metadata") == 0 ? MST_SERVE_METADATA
                                               : MST_SERVE_REFUSED;
    if (d.route == MST_SERVE_REFUSED)
        return route_refuse(404, "There is no such path; predictions are at /v1/models/NAME:predict.");
    return get ? d : route_refuse(405, "This path takes GET only.");
}

mst_serve_decision mst_serve_decide(const mst_guard *guard, const char *name, const mst_request *r)
{
    static const char models[] = "/v1/models/", versions[] = "/versions/";
    mst_serve_decision d = {.route = MST_SERVE_REFUSED};
    bool get = strcmp(r->method, "GET") == 0, post = strcmp(r->method, "POST") == 0;
    switch (mst_guard_check(guard, r)) {
    case MST_ACCESS_HOST:
        if (guard->token == NULL)
            return route_refuse(421, "The server is not available under this host name; start it with "
                                     "--allow-host NAME.");
        if (!mst_token_admits(guard->token, r->token, r->cookie, r->authorization))
            return route_refuse(401, "A token is needed: send Authorization: Bearer TOKEN.");
        break;
    case MST_ACCESS_ORIGIN:
        return route_refuse(403, "Requests of web pages are not answered.");
    case MST_ACCESS_TOKEN:
        return route_refuse(401, "A token is needed: send Authorization: Bearer TOKEN.");
    default:
        break;
    }
    if (strcmp(r->path, "/metrics") == 0) {
        d.route = MST_SERVE_METRICS;
        return get ? d : route_refuse(405, "This path takes GET only.");
    }
    size_t n = strlen(name);
    if (strncmp(r->path, models, sizeof models - 1) != 0)
        return route_refuse(404, "There is no such path; predictions are at /v1/models/NAME:predict.");
    const char *rest = r->path + sizeof models - 1;
    if (strncmp(rest, name, n) != 0 || (rest[n] != '\0' && rest[n] != '/' && rest[n] != ':'))
        return route_refuse(404,
                            "There is no model of this name; muster serve printed its path, and --name sets "
                            "it.");
    rest += n;
    if (strncmp(rest, versions, sizeof versions - 1) == 0) {
        rest = route_number(rest + sizeof versions - 1, &d.version);
        if (rest == NULL)
            return route_refuse(404, "A version is the number of a training step.");
        d.versioned = true;
    }
    return route_model(&d, rest, get, post);
}
