/* The handshake: how two processes prove to each other that they belong to one job before any message is read
 * (docs/WIRE.md, "Handshake"). Bytes in, bytes out; no sockets, no clock, no allocation.
 *
 *   dialer                                   listener
 *   HELLO      identity, nonce        ->
 *                                     <-     CHALLENGE  identity, nonce
 *   PROOF      proof                  ->
 *                                     <-     ACCEPT     proof
 *
 * A proof is HMAC-SHA256, keyed with the job's secret, over the role of the proving side and the bytes of
 * HELLO and CHALLENGE: it holds for these two nonces, these two identities and this direction only. The
 * dialer proves first, so that a listener sends nothing that depends on the secret to a stranger. Either side
 * may answer REFUSE with a message instead.
 *
 * Each identity names the weakest seal of frames (seal.h) that its side accepts; the stronger of the two is
 * used.
 *
 * Thread: one at a time. Errors: after each call `state` is the progress; `text` is the message of a failure.
 */
#ifndef MST_NET_HANDSHAKE_H
#define MST_NET_HANDSHAKE_H

#include <stdbool.h>

#include "net/seal.h"
#include "net/wire.h"

#define MST_SHAKE_PREFIX   12
#define MST_SHAKE_VERSION  16 /* bytes of muster's version text, with its NUL */
#define MST_SHAKE_NONCE    32
#define MST_SHAKE_PROOF    32
#define MST_SHAKE_IDENTITY (MST_SHAKE_VERSION + 16 + MST_JOB_MAX + MST_SHAKE_NONCE + 4)
#define MST_SHAKE_MESSAGE  240                                        /* bytes of a refusal's message */
#define MST_SHAKE_MAX      (MST_SHAKE_PREFIX + 8 + MST_SHAKE_MESSAGE) /* bytes of the longest message */

typedef enum mst_shake_kind {
    MST_SHAKE_HELLO = 1,
    MST_SHAKE_CHALLENGE,
    MST_SHAKE_PROVE,
    MST_SHAKE_ACCEPT,
    MST_SHAKE_REFUSE,
} mst_shake_kind;

typedef enum mst_shake_state {
    MST_SHAKE_RUNNING,
    MST_SHAKE_DONE,   /* `other` has proved itself */
    MST_SHAKE_FAILED, /* text has the reason; out is still to be sent */
} mst_shake_state;

typedef struct mst_shake_options {
    const mst_identity *self;
    const char *secret;  /* NULL: "" */
    const char *version; /* of muster; at most 15 characters count */
    const char *address; /* of the other end, for messages */
    uint16_t wire;       /* MST_WIRE_VERSION */
    mst_seal_kind seal;  /* the weakest that this side accepts */
    bool needs_tls;      /* a listener that refuses dialers without TLS, and this one has none */
    bool other_user;     /* a listener without a secret, and the dialer runs as another user of this host */
} mst_shake_options;

typedef struct mst_shake {
    mst_shake_state state;
    bool dialer;
    bool named;   /* other is set (it may not be proved yet) */
    bool refused; /* FAILED: both are muster, but do not belong together: another secret, job or version */
    mst_identity self, other;
    bool needs_tls, other_user;
    mst_seal_kind seal;           /* this side's; once the other side is named: the one that is used */
    const char *secret, *address; /* the caller's, until the end */
    uint16_t wire;
    char version[MST_SHAKE_VERSION];
    uint8_t hello[MST_SHAKE_PREFIX + MST_SHAKE_IDENTITY];     /* as sent or received */
    uint8_t challenge[MST_SHAKE_PREFIX + MST_SHAKE_IDENTITY]; /* the same */
    uint8_t in[MST_SHAKE_MAX];
    size_t n_in;
    uint8_t out[MST_SHAKE_MAX]; /* the next n_out bytes to send; the caller sets n_out to 0 when it has taken
                                   them */
    size_t n_out;
    char text[MST_SHAKE_MESSAGE + 200];
} mst_shake;

/* Begins; the dialer's HELLO is in out. MST_EIO when the system has no random bytes. secret and address must
 * stay. */
mst_status mst_shake_init(mst_shake *h, const mst_shake_options *options, bool dialer);

/* Takes some of the n bytes and returns how many: all of them, unless the handshake ends before. Bytes after
 * the end belong to what follows. */
size_t mst_shake_take(mst_shake *h, const void *bytes, size_t n);

/* The handshake begins inside TLS: needs no TLS, and no seals. */
void mst_shake_inside_tls(mst_shake *h);

/* Ends: TLS before the handshake failed, because the other side has another secret, or otherwise. */
void mst_shake_fail_secret(mst_shake *h);
void mst_shake_fail_tls(mst_shake *h);

/* DONE: the key that seals the frames which one side sends. False: it cannot be computed. */
bool mst_shake_key(const mst_shake *h, bool by_dialer, uint8_t out[MST_SEAL_KEY]);

#endif
