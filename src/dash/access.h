/* Who may look: where the page is served, the token, and which names a browser may have asked for.
 *
 * Whatever is parsed here comes from a command line or from anyone who can open a connection. Nothing here
 * waits but mst_listen, for the resolver. */
#ifndef MST_DASH_ACCESS_H
#define MST_DASH_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/option.h"
#include "base/status.h"

typedef struct mst_address {
    char host[256]; /* without brackets; "": every interface */
    uint16_t port;  /* 0: any */
} mst_address;

/* HOST:PORT, [V6]:PORT, :PORT (every interface) or PORT (loopback). MST_EUSAGE with a sentence. */
mst_status mst_address_parse(const char *text, mst_address *out);

/* Listens there. *fd is the caller's to close, *port the port that it got, *loopback whether only this
 * machine can reach it. MST_EIO, MST_EINPUT (no such host). */
mst_status mst_listen(const mst_address *address, int *fd, uint16_t *port, bool *loopback);

/* Whether the value of a Host header is one under which this page may be asked for: an address in digits,
 * localhost, the name of this machine, or one of the names given. A page elsewhere whose own name is made to
 * lead here (DNS rebinding) says that name, and is refused. NULL: no header, false. */
bool mst_host_allowed(const char *header, const mst_text_list *names);

#define MST_TOKEN_MIN 16
#define MST_TOKEN_MAX 256

/* 32 characters of 192 random bits, and a NUL; MST_EIO when the system gives none. */
mst_status mst_token_make(char out[33]);
/* The first line of the file: MST_TOKEN_MIN to MST_TOKEN_MAX letters, digits, '-', '_' and '.'. The caller
 * frees. */
mst_status mst_token_read(const char *path, char **out);

/* Compares in a time that depends on the lengths only; false when given is NULL. */
bool mst_token_equals(const char *token, const char *given);
/* What stands behind "Bearer " in an Authorization header; NULL: something else. Points into it. */
const char *mst_bearer(const char *header);

#endif
