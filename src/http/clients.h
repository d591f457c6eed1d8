/* The connections of a web server: their number, in all and per address, and the time that they take.
 *
 * At a limit, the connection that has waited longest for its request is closed, so that a complete request
 * always gets in. A connection has the timeout to complete a request, however slowly its bytes come, and
 * three times as long to read an answer. Closing is a shutdown of the socket: the HTTP library sees the end
 * of the connection and forgets it. Any thread. */
#ifndef MST_HTTP_CLIENTS_H
#define MST_HTTP_CLIENTS_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sockaddr;

#define MST_CLIENT_CHAINS 1024

/* An address that has connections; fields are private. */
typedef struct mst_client_address {
    struct mst_client_address *next; /* of its chain */
    struct in6_addr address;         /* zeros: not known */
    size_t n_clients;
    size_t n, n_waiting; /* without those that are closing; that wait for a request */
} mst_client_address;

/* A connection; fields are private. */
typedef struct mst_client {
    struct mst_client *previous, *next;
    int fd;
    mst_client_address *from;
    uint64_t since_ns; /* when it was accepted, or its last answer began or ended */
    bool begun;        /* the headers of its request are there */
    bool answering;    /* its request is complete */
    bool endless;      /* the answer has no end */
    bool closing;
} mst_client;

typedef struct mst_clients {
    size_t most, most_per_address; /* 0: any number */
    uint64_t timeout_ns;
    pthread_mutex_t mutex;    /* guards the rest and every client */
    mst_client *first, *last; /* in the order of since_ns */
    size_t n;                 /* without those that are closing */
    mst_client_address *chains[MST_CLIENT_CHAINS];
} mst_clients;

void mst_clients_init(mst_clients *self, size_t most, size_t most_per_address, uint64_t timeout_ns);
void mst_clients_fini(mst_clients *self); /* all are removed */

/* A new connection; closes another one at a limit. from may be NULL. NULL: no memory, and it is closed. */
mst_client *mst_clients_add(mst_clients *self, int fd, const struct sockaddr *from);
void mst_clients_remove(mst_clients *self, mst_client *client); /* NULL-safe */
/* The connection of a socket; NULL: none. */
mst_client *mst_clients_find(mst_clients *self, int fd);

/* The headers of a request are there: it is not idle. NULL-safe. */
void mst_clients_begin(mst_clients *self, mst_client *client);
/* Its request is complete (answering), or its answer is. */
void mst_clients_set(mst_clients *self, mst_client *client, bool answering, bool endless); /* NULL-safe */

/* Closes those beyond their time. */
void mst_clients_close_slow(mst_clients *self);
/* Closes those that have been idle for so long: without the headers of a request. Returns how many
 * connections are left. */
size_t mst_clients_close_idle(mst_clients *self, uint64_t idle_ns);
size_t mst_clients_count(mst_clients *self);

#endif
