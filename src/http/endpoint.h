/* Where a web server of muster listens, who may use it, and its connections as libmicrohttpd reports them. */
#ifndef MST_HTTP_ENDPOINT_H
#define MST_HTTP_ENDPOINT_H

#include "http/access.h"
#include "http/clients.h"

struct MHD_Connection;

typedef struct mst_endpoint_options {
    mst_address listen;
    bool other_port;            /* any port, if that one is in use */
    const char *token;          /* NULL: one is made if other machines can reach the server */
    const mst_text_list *names; /* further host names that requests may use; outlives the endpoint */
    const char *path;           /* of its URL, from the slash on */
} mst_endpoint_options;

typedef struct mst_endpoint {
    int fd; /* that it listens at; -1: none, or another's to close */
    uint16_t port;
    char *token, *url; /* url: with the token */
    mst_guard guard;
} mst_endpoint;

/* Listens. A failed endpoint must be closed, too. */
mst_status mst_endpoint_open(mst_endpoint *self, const mst_endpoint_options *options);
void mst_endpoint_close(mst_endpoint *self);

/* The failure of a server without libmicrohttpd; instead: "" or what the user can do besides. */
mst_status mst_endpoint_unsupported(const char *server, const char *instead);

/* A connection is new or, if `closed`, gone; *client is its place among the clients. */
void mst_endpoint_notify(mst_clients *clients, struct MHD_Connection *connection, bool closed, void **client);
/* The client of a connection; NULL: none. */
mst_client *mst_endpoint_client(struct MHD_Connection *connection);

#endif
