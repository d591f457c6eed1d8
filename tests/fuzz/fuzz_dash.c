/* libFuzzer: any request to the page of muster dash. Sections of the input, separated by the byte 1, are a
 * method, a path, a Host header, a token, a cookie, an Authorization header and an address to listen at. Only
 * requests that the guard allows are answered with content. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "dash/routes.h"
#include "dash/sse.h"
#include "fuzz.h"

#define PARTS 8
static const char token[] = "0123456789abcdef0123";

static void check_text(const char *text)
{
    char *clean = mst_utf8_clean(text);
    mst_string out = {0};
    FUZZ_CHECK(clean != NULL);
    for (const char *p = clean; *p != '\0';) {
        size_t n = mst_utf8_length(p, strlen(p));
        FUZZ_CHECK(n > 0 && (n > 1 || (unsigned char)*p >= 0x20));
        p += n;
    }
    FUZZ_CHECK(mst_utf8_prefix(clean, 3) <= strlen(clean));
    mst_free(clean);
    mst_sse_add(&out, "x", text);
    /* every line is a field, and only the last one is empty */
    FUZZ_CHECK(strncmp(out.text, "event: x\ndata: ", 15) == 0 && strchr(out.text, '\r') == NULL);
    FUZZ_CHECK(strstr(out.text, "\n\n") == out.text + out.size - 2);
    mst_string_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *parts[PARTS] = {0};
    size_t n = 0, from = 0;
    for (size_t i = 0; i <= size && n < PARTS; i++)
        if (i == size || data[i] == 1) {
            parts[n++] = mst_strndup((const char *)data + from, i - from);
            from = i + 1;
        }
    mst_request r = {.method = parts[0],
                     .path = parts[1] != NULL ? parts[1] : "/",
                     .host = parts[2],
                     .token = parts[3],
                     .cookie = parts[4],
                     .authorization = parts[5],
                     .origin = parts[7]};
    mst_guard open = {0}, guarded = {.token = token};
    mst_decision d = mst_route_request(&open, &r), g = mst_route_request(&guarded, &r);
    bool get = r.method != NULL && strcmp(r.method, "GET") == 0, host = mst_host_allowed(r.host, NULL);
    const char *bearer = mst_bearer(r.authorization);
    bool told = (r.token != NULL && strcmp(r.token, token) == 0) ||
                (r.cookie != NULL && strcmp(r.cookie, token) == 0) ||
                (bearer != NULL && strcmp(bearer, token) == 0);
    FUZZ_CHECK((d.status == 405) == !get);
    FUZZ_CHECK(d.route == MST_ROUTE_REFUSED || (get && host && d.status == 200));
    FUZZ_CHECK(g.route == MST_ROUTE_REFUSED || (get && host && told));
    FUZZ_CHECK((d.route == MST_ROUTE_REFUSED) == (d.message != NULL));
    FUZZ_CHECK((d.route == MST_ROUTE_ASSET) == (d.asset != NULL));
    if (parts[6] != NULL) {
        mst_address a;
        if (mst_address_parse(parts[6], &a) == MST_OK)
            FUZZ_CHECK(strlen(a.host) < sizeof a.host && strpbrk(a.host, "[]") == NULL);
    }
    for (size_t i = 0; i < n; i++) {
        if (parts[i] != NULL)
            check_text(parts[i]);
        mst_free(parts[i]);
    }
    return 0;
}
