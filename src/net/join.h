/* A connection before it is authenticated: TLS where it is used (tls.h), then the handshake (handshake.h), on
 * a non-blocking socket. The two ends of it are the unauthenticated peers of a listener and the dials.
 *
 * A listener recognises TLS by its first bytes. It creates the objects of a TLS session only for a whole
 * ClientHello, whose first check is that of the pre-shared key: a stranger costs MST_TLS_HELLO_MAX bytes.
 *
 * Thread: one at a time. */
#ifndef MST_NET_JOIN_H
#define MST_NET_JOIN_H

#include "net/handshake.h"
#include "net/tls.h"

#define MST_JOIN_READ 512 /* bytes read at a time */

typedef enum mst_join_state {
    MST_JOIN_RUNNING,
    MST_JOIN_DONE,
    MST_JOIN_FAILED, /* shake.text, shake.refused */
    MST_JOIN_CLOSED, /* by the other side, or the system failed: errno, 0: closed */
} mst_join_state;

typedef struct mst_join {
    mst_shake shake;
    mst_tls_keys *keys; /* NULL: no TLS */
    mst_tls *tls;       /* NULL: none, or not yet */
    int fd;
    bool shaken; /* TLS is ready for the handshake */
    uint8_t first[MST_TLS_HELLO_MAX];
    size_t n_first;               /* listener: bytes that may be a ClientHello */
    uint8_t bytes[MST_JOIN_READ]; /* DONE: bytes[at .. at + left) were read beyond the handshake */
    size_t at, left;
} mst_join;

/* keys: a dialer's: use TLS; a listener's: accept it. The socket stays the caller's. */
mst_status mst_join_init(mst_join *self, const mst_shake_options *options, bool dialer, mst_tls_keys *keys,
                         int fd);
void mst_join_fini(mst_join *self); /* safe on zeroes and twice */

/* Reads what has arrived and answers; a dialer's first call begins. */
mst_join_state mst_join_step(mst_join *self);

#endif
