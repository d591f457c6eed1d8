/* Access to the web servers of muster: their address, the token, and the host names that requests may use.
 *
 * Input comes from the command line or from anyone who can open a connection. Only mst_listen waits, for the
 * resolver. */
#ifndef MST_HTTP_ACCESS_H
#define MST_HTTP_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/option.h"
#include "base/status.h"

typedef struct mst_address {
    char host[256]; /* without brackets; "": every interface */
    uint16_t port;  /* 0: any */
} mst_address;

/* HOST:PORT, [V6]:PORT, :PORT (every interface) or PORT (loopback). MST_EUSAGE with a message. */
mst_status mst_address_parse(const char *text, mst_address *out);

/* Listens there. *fd: the caller's to close; *port: the port in use; *loopback: whether only this machine can
 * reach it. MST_EIO, MST_EINPUT (no such host). */
mst_status mst_listen(const mst_address *address, int *fd, uint16_t *port, bool *loopback);

/* "http://HOST:PORT" for clients on other hosts, where the address is theirs to use. The caller frees; NULL
 * when memory is short. */
char *mst_address_url(const mst_address *address, uint16_t port);

/* Whether a request may have this Host header: a numeric address, localhost, the name of this machine, or one
 * of the names given. This refuses DNS rebinding, where the name of another site resolves to this address.
 * NULL: no header, false. */
bool mst_host_allowed(const char *header, const mst_text_list *names);

/* Whether a request with this Origin header, which browsers send on behalf of a page, comes from the page
 * itself: it must have the host and port of the Host header. NULL: no header, true. */
bool mst_origin_allowed(const char *origin, const char *host);

#define MST_TOKEN_MIN 16
#define MST_TOKEN_MAX 256

/* 32 characters of 192 random bits, and a NUL; MST_EIO if the system has no random bytes. */
mst_status mst_token_make(char out[33]);
/* The first line of the file: MST_TOKEN_MIN to MST_TOKEN_MAX letters, digits, '-', '_' and '.'. The caller
 * frees. */
mst_status mst_token_read(const char *path, char **out);

/* Compares in a time that depends on the lengths only; false when given is NULL. */
bool mst_token_equals(const char *token, const char *given);
/* The token after "Bearer " in an Authorization header; NULL: another scheme. Points into it. */
const char *mst_bearer(const char *header);

/* The token that requests must have: the one given, else a new one, else NULL when only this machine can
 * reach the server. The caller frees. */
mst_status mst_token_require(const char *given, bool loopback, char **out);
/* Whether a request with these values has the required token; NULL: none is required, or not there. */
bool mst_token_admits(const char *token, const char *query, const char *cookie, const char *authorization);

/* ---- requests ---- */

typedef struct mst_request { /* NULL: not there */
    const char *method, *path, *host, *origin, *token, *cookie, *authorization;
} mst_request;

typedef struct mst_guard {
    const char *token;          /* NULL: none is required */
    const mst_text_list *names; /* further host names that requests may use */
} mst_guard;

typedef enum mst_access {
    MST_ACCESS_OK,
    MST_ACCESS_HOST,   /* 421: not available under this host name */
    MST_ACCESS_ORIGIN, /* 403: a page of another site sends it */
    MST_ACCESS_TOKEN,  /* 401 */
} mst_access;

/* Checks host, origin and token, in this order. */
mst_access mst_guard_check(const mst_guard *guard, const mst_request *request);

#endif
