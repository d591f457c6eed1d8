/* The seals of frames: the header of a frame and its body each have one, so that a changed, lost, repeated
 * or moved frame is detected before its message is handled (docs/WIRE.md, "Seals").
 *
 * CHECKSUM is CRC-32C: it detects damage, not intent. MAC is AES-256-GMAC with a key of the connection and
 * the direction; the nonce is the number of the frame, which both ends count. NONE is for a stream that TLS
 * protects: all bytes of the seals are zero.
 *
 * An mst_seal is one direction of one connection. For each frame, begin, add for all bytes of the body and
 * end give the seal of the body, and header, before begin, that of the header; next begins the next frame.
 * Thread: one at a time. */
#ifndef MST_NET_SEAL_H
#define MST_NET_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define MST_SEAL_KEY    32 /* bytes */
#define MST_SEAL_BODY   16
#define MST_SEAL_HEADER 12

typedef enum mst_seal_kind { /* by strength */
                             MST_SEAL_NONE,
                             MST_SEAL_CHECKSUM,
                             MST_SEAL_MAC,
} mst_seal_kind;

typedef struct mst_seal {
    mst_seal_kind kind;
    uint64_t frame; /* number of the frame under way */
    uint32_t sum;   /* CHECKSUM: of the body so far */
    bool failed;    /* the library has failed: the connection must end */
    void *mac;      /* MAC: EVP_CIPHER_CTX with the key */
} mst_seal;

/* key: of MAC. MST_ENOMEM or MST_EIO: the seal is NONE and needs no fini. */
mst_status mst_seal_init(mst_seal *self, mst_seal_kind kind, const uint8_t key[MST_SEAL_KEY]);
void mst_seal_fini(mst_seal *self); /* safe on zeroes and twice */

void mst_seal_begin(mst_seal *self);
void mst_seal_add(mst_seal *self, const void *data, size_t n);
/* A body of no bytes has no seal. */
void mst_seal_end(mst_seal *self, uint8_t out[MST_SEAL_BODY]);

/* The seal of the n bytes of a header that precede it. */
void mst_seal_header(mst_seal *self, const uint8_t *header, size_t n, uint8_t out[MST_SEAL_HEADER]);

static inline void mst_seal_next(mst_seal *self)
{
    self->frame++;
}

/* "checksum", "MAC", "none". */
const char *mst_seal_name(mst_seal_kind kind);

#endif
