/* The records of one direction of TLS 1.3 after its handshake (RFC 8446, sections 5 and 7): OpenSSL makes the
 * handshake and the AEAD; a record is made here, because SSL_write and SSL_read copy every byte twice and
 * take a microsecond or more per record.
 *
 * Only what muster's peers send is accepted: application data and KeyUpdate, without padding. Thread: one at
 * a time. */
#ifndef MST_NET_TLS_RECORDS_H
#define MST_NET_TLS_RECORDS_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define MST_TLS_RECORD       16384u /* bytes of plaintext, at most */
#define MST_TLS_RECORD_EXTRA 22u    /* that a record has more than its plaintext */
#define MST_TLS_SECRET       32     /* bytes: the hash of all cipher suites in use is SHA-256 */

typedef struct mst_tls_records {
    EVP_CIPHER_CTX *cipher;
    const EVP_CIPHER *kind;
    bool seals;                     /* else opens */
    uint8_t secret[MST_TLS_SECRET]; /* of the traffic, with the present keys */
    uint8_t iv[12];
    uint64_t n;    /* records with the present keys */
    bool prepared; /* the cipher has the nonce of the next record, and the start of its header */
} mst_tls_records;

/* False: no memory, or OpenSSL fails. Needs fini in any case; fini is safe on zeros. */
bool mst_tls_records_init(mst_tls_records *self, const EVP_CIPHER *kind, bool seals,
                          const uint8_t secret[MST_TLS_SECRET]);
void mst_tls_records_fini(mst_tls_records *self);

/* Does ahead the part of the next record that does not depend on it; seal and open do it otherwise. False:
 * OpenSSL fails; then the record fails too. */
bool mst_tls_records_prepare(mst_tls_records *self);

/* Writes the next record, of the pieces, to out. Returns its bytes; 0: OpenSSL fails. */
size_t mst_tls_records_seal(mst_tls_records *self, const struct iovec *pieces, size_t n_pieces, uint8_t *out);

/* Writes a record that announces new keys, and takes them for those that follow. As seal. */
size_t mst_tls_records_update(mst_tls_records *self, uint8_t *out);

/* The bytes of the record that begins here; 0: more bytes are needed; -1: it is none. */
int mst_tls_records_size(const uint8_t *bytes, size_t n);

/* Opens the next record of that size. Its plaintext, size - MST_TLS_RECORD_EXTRA bytes, goes to room, which
 * has space for it. *data: it is application data; else it was a KeyUpdate, whose keys are in use now. False:
 * it was changed, or is neither. */
bool mst_tls_records_open(mst_tls_records *self, const uint8_t *record, size_t size, const struct iovec *room,
                          bool *data);

#endif
