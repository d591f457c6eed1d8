/* TLS 1.3 of one connection, through OpenSSL: the job's secret is the external pre-shared key, and every
 * session has a Diffie-Hellman exchange of its own (psk_dhe_ke), so that a secret that becomes known later
 * does not open recorded traffic. There are no certificates, no tickets, no early data and no other versions.
 *
 * Reads and writes have the meaning of readv and sendmsg on a non-blocking socket. Written bytes may wait
 * here as ciphertext: at most MST_TLS_BUFFER. Memory: about 30 KB until the handshake is DONE, then 350
 * KB.
 *
 * Thread: one at a time. The keys may be shared by connections of one thread. */
#ifndef MST_NET_TLS_H
#define MST_NET_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/status.h"

#define MST_TLS_HELLO_MAX 1024 /* bytes of a ClientHello that is accepted, its record header included */
#define MST_TLS_BUFFER    (256 * 1024) /* bytes of ciphertext that wait for the socket */

#define MST_TLS_PARTS 2 /* of memory, at most, in a read */

typedef struct mst_tls_keys mst_tls_keys;
typedef struct mst_tls mst_tls;

typedef enum mst_tls_state {
    MST_TLS_RUNNING,
    MST_TLS_DONE,
    MST_TLS_REFUSED, /* the other side has another secret */
    MST_TLS_BROKEN,  /* it does not use TLS, or failed */
    MST_TLS_CLOSED,  /* it closed the connection, or the system failed: errno, 0: closed */
} mst_tls_state;

/* records: after so many, the keys of a direction are replaced; 0: 2^23, below the limit of AES-GCM (2^24.5).
 * *out is the caller's to destroy, after all connections. */
mst_status mst_tls_keys_new(const char *secret, uint64_t records, mst_tls_keys **out);
void mst_tls_keys_destroy(mst_tls_keys *keys); /* NULL-safe */

/* The first bytes of a connection: 0: of a ClientHello, which is not whole yet; its length (of the record, at
 * most MST_TLS_HELLO_MAX); -1: not TLS, or too long. */
int mst_tls_hello_length(const uint8_t *bytes, size_t n);

/* The socket stays the caller's. read: n bytes that were read from it already, at most MST_TLS_HELLO_MAX. */
mst_status mst_tls_new(mst_tls_keys *keys, int fd, bool dialer, const uint8_t *read, size_t n, mst_tls **out);
void mst_tls_destroy(mst_tls *tls); /* NULL-safe; sends nothing */

/* Continues the handshake, with what has arrived. */
mst_tls_state mst_tls_shake(mst_tls *tls);

/* After DONE. As readv: bytes read, 0: the other side has closed, -1: errno; EBADMSG: a record was changed on
 * the way. Reads until nothing has arrived or a fair share was read, so that readiness of the socket means
 * more. */
ssize_t mst_tls_readv(mst_tls *tls, const struct iovec *iov, int n);

/* More is to be read, bytes or the end or an error, for which the socket may not become ready again. */
bool mst_tls_has_more(const mst_tls *tls);

/* After DONE. Bytes taken, 0: none at present; -1: errno. Without iov: only sends what waits here. */
ssize_t mst_tls_writev(mst_tls *tls, const struct iovec *iov, size_t n);

/* Ciphertext waits for the socket. */
bool mst_tls_has_unsent(const mst_tls *tls);

#endif
