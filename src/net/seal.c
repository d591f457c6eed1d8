/* Contract in seal.h.
 *
 * GMAC is AES-GCM of nothing with the sealed bytes as additional data. A nonce is used once: the number of
 * the frame, then 1 for the body and 2 for the header. The header's seal is cut to 12 bytes, the shortest
 * that NIST SP 800-38D allows without a limit on the number of messages. */
#include "net/seal.h"

#include <limits.h>
#include <openssl/evp.h>
#include <string.h>

#include "base/crc.h"
#include "net/wire.h"

#define NONCE       12
#define NONCE_BODY  1
#define NONCE_HEAD  2
#define UPDATE_MOST ((size_t)1 << 30)

const char *mst_seal_name(mst_seal_kind kind)
{
    static const char *const names[] = {
        [MST_SEAL_NONE] = "none", [MST_SEAL_CHECKSUM] = "checksum", [MST_SEAL_MAC] = "MAC"};
    return names[kind];
}

mst_status mst_seal_init(mst_seal *self, mst_seal_kind kind, const uint8_t key[MST_SEAL_KEY])
{
    *self = (mst_seal){.kind = kind};
    if (kind != MST_SEAL_MAC)
        return MST_OK;
    EVP_CIPHER_CTX *mac = EVP_CIPHER_CTX_new();
    if (mac == NULL || EVP_EncryptInit_ex(mac, EVP_aes_256_gcm(), NULL, key, NULL) != 1) {
        EVP_CIPHER_CTX_free(mac);
        *self = (mst_seal){0};
        return mst_fail(MST_EIO, "OpenSSL has no AES-256-GCM for the MAC of a connection");
    }
    self->mac = mac;
    return MST_OK;
}

void mst_seal_fini(mst_seal *self)
{
    EVP_CIPHER_CTX_free(self->mac);
    *self = (mst_seal){0};
}

static void seal_start_mac(mst_seal *self, uint8_t purpose)
{
    uint8_t nonce[NONCE] = {0};
    mst_put_u64(nonce, self->frame);
    nonce[8] = purpose;
    if (EVP_EncryptInit_ex(self->mac, NULL, NULL, NULL, nonce) != 1)
        self->failed = true;
}

static void seal_end_mac(mst_seal *self, uint8_t *out, int n)
{
    int none = 0;
    uint8_t rest[1];
    if (EVP_EncryptFinal_ex(self->mac, rest, &none) != 1 ||
        EVP_CIPHER_CTX_ctrl(self->mac, EVP_CTRL_AEAD_GET_TAG, n, out) != 1)
        self->failed = true;
}

void mst_seal_begin(mst_seal *self)
{
    self->sum = 0;
    if (self->kind == MST_SEAL_MAC)
        seal_start_mac(self, NONCE_BODY);
}

void mst_seal_add(mst_seal *self, const void *data, size_t n)
{
    if (self->kind == MST_SEAL_CHECKSUM)
        self->sum = mst_crc32c(self->sum, data, n);
    if (self->kind != MST_SEAL_MAC)
        return;
    for (const uint8_t *at = data; n > 0;) {
        size_t part = n < UPDATE_MOST ? n : UPDATE_MOST;
        int done = 0;
        if (EVP_EncryptUpdate(self->mac, NULL, &done, at, (int)part) != 1)
            self->failed = true;
        at += part;
        n -= part;
    }
}

void mst_seal_end(mst_seal *self, uint8_t out[MST_SEAL_BODY])
{
    memset(out, 0, MST_SEAL_BODY);
    if (self->kind == MST_SEAL_CHECKSUM)
        mst_put_u32(out, self->sum);
    else if (self->kind == MST_SEAL_MAC)
        seal_end_mac(self, out, MST_SEAL_BODY);
}

void mst_seal_header(mst_seal *self, const uint8_t *header, size_t n, uint8_t out[MST_SEAL_HEADER])
{
    memset(out, 0, MST_SEAL_HEADER);
    if (self->kind == MST_SEAL_CHECKSUM) {
        mst_put_u32(out, mst_crc32c(0, header, n));
    } else if (self->kind == MST_SEAL_MAC) {
        seal_start_mac(self, NONCE_HEAD);
        mst_seal_add(self, header, n);
        seal_end_mac(self, out, MST_SEAL_HEADER);
    }
}
