/* Contract in tls_records.h. */
#include "net/tls_records.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <string.h>

#define HEADER    5
#define TAG       16
#define HANDSHAKE 22
#define DATA      23

static const uint8_t start[] = {DATA, 3, 3};          /* of each header; the length follows */
static const uint8_t key_update[] = {24, 0, 0, 1, 0}; /* none is requested in return */

/* HKDF-Expand-Label without a context, of at most one hash. */
static bool records_expand(const uint8_t secret[MST_TLS_SECRET], const char *label, uint8_t *out, size_t n)
{
    uint8_t info[32] = {0, (uint8_t)n, (uint8_t)(6 + strlen(label)), 't', 'l', 's', '1', '3', ' '};
    uint8_t hash[EVP_MAX_MD_SIZE];
    size_t length = 9 + strlen(label);
    memcpy(info + 9, label, strlen(label));
    info[length++] = 0; /* context */
    info[length++] = 1; /* first block */
    bool made = HMAC(EVP_sha256(), secret, MST_TLS_SECRET, info, length, hash, NULL) != NULL;
    if (made)
        memcpy(out, hash, n);
    OPENSSL_cleanse(hash, sizeof hash);
    return made;
}

static bool records_take_keys(mst_tls_records *self)
{
    uint8_t key[MST_TLS_SECRET];
    bool taken = records_expand(self->secret, "key", key, (size_t)EVP_CIPHER_get_key_length(self->kind)) &&
                 records_expand(self->secret, "iv", self->iv, sizeof self->iv) &&
                 EVP_CipherInit_ex(self->cipher, self->kind, NULL, key, NULL, self->seals) == 1;
    OPENSSL_cleanse(key, sizeof key);
    self->n = 0;
    self->prepared = false;
    return taken;
}

bool mst_tls_records_init(mst_tls_records *self, const EVP_CIPHER *kind, bool seals,
                          const uint8_t secret[MST_TLS_SECRET])
{
    *self = (mst_tls_records){.cipher = EVP_CIPHER_CTX_new(), .kind = kind, .seals = seals};
    memcpy(self->secret, secret, sizeof self->secret);
    return self->cipher != NULL && records_take_keys(self);
}

void mst_tls_records_fini(mst_tls_records *self)
{
    EVP_CIPHER_CTX_free(self->cipher);
    OPENSSL_cleanse(self, sizeof *self);
}

static bool records_next_keys(mst_tls_records *self)
{
    return records_expand(self->secret, "traffic upd", self->secret, sizeof self->secret) &&
           records_take_keys(self);
}

bool mst_tls_records_prepare(mst_tls_records *self)
{
    uint8_t nonce[sizeof self->iv];
    int none = 0;
    if (self->prepared)
        return true;
    memcpy(nonce, self->iv, sizeof nonce);
    for (int i = 0; i < 8; i++)
        nonce[4 + i] ^= (uint8_t)(self->n >> (56 - 8 * i));
    self->prepared = EVP_CipherInit_ex(self->cipher, NULL, NULL, NULL, nonce, self->seals) == 1 &&
                     EVP_CipherUpdate(self->cipher, NULL, &none, start, sizeof start) == 1;
    return self->prepared;
}

/* Begins the next record; its header is additional data. */
static bool records_begin(mst_tls_records *self, const uint8_t header[HEADER])
{
    int none = 0;
    if (!mst_tls_records_prepare(self))
        return false;
    self->prepared = false;
    self->n++;
    return EVP_CipherUpdate(self->cipher, NULL, &none, header + sizeof start, HEADER - sizeof start) == 1;
}

static bool records_crypt(mst_tls_records *self, uint8_t *out, const uint8_t *in, size_t n)
{
    int done = 0;
    return n == 0 || (EVP_CipherUpdate(self->cipher, out, &done, in, (int)n) == 1 && (size_t)done == n);
}

static size_t records_seal(mst_tls_records *self, uint8_t type, const struct iovec *pieces, size_t n_pieces,
                           uint8_t *out)
{
    uint8_t *at = out + HEADER, rest[TAG];
    size_t n = 0;
    int none = 0;
    bool sealed;
    for (size_t i = 0; i < n_pieces; i++)
        n += pieces[i].iov_len;
    size_t length = n + 1 + TAG;
    memcpy(out, (uint8_t[HEADER]){DATA, 3, 3, (uint8_t)(length >> 8), (uint8_t)length}, HEADER);
    sealed = records_begin(self, out);
    if (n_pieces == 1) {
        sealed =
            sealed && records_crypt(self, at, pieces[0].iov_base, n) && records_crypt(self, at + n, &type, 1);
    } else { /* one call for many small pieces */
        size_t filled = 0;
        for (size_t i = 0; i < n_pieces; i++) {
            memcpy(at + filled, pieces[i].iov_base, pieces[i].iov_len);
            filled += pieces[i].iov_len;
        }
        at[n] = type;
        sealed = sealed && records_crypt(self, at, at, n + 1);
    }
    sealed = sealed && EVP_CipherFinal_ex(self->cipher, rest, &none) == 1 &&
             EVP_CIPHER_CTX_ctrl(self->cipher, EVP_CTRL_AEAD_GET_TAG, TAG, at + n + 1) == 1;
    return sealed ? HEADER + length : 0;
}

size_t mst_tls_records_seal(mst_tls_records *self, const struct iovec *pieces, size_t n_pieces, uint8_t *out)
{
    return records_seal(self, DATA, pieces, n_pieces, out);
}

size_t mst_tls_records_update(mst_tls_records *self, uint8_t *out)
{
    struct iovec piece = {.iov_base = (void *)key_update, .iov_len = sizeof key_update};
    size_t size = records_seal(self, HANDSHAKE, &piece, 1, out);
    return size > 0 && records_next_keys(self) ? size : 0;
}

int mst_tls_records_size(const uint8_t *bytes, size_t n)
{
    if (memcmp(bytes, start, n < sizeof start ? n : sizeof start) != 0)
        return -1;
    if (n < HEADER)
        return 0;
    size_t length = (size_t)bytes[3] << 8 | bytes[4];
    if (length < 1 + TAG || length > MST_TLS_RECORD + 1 + TAG)
        return -1;
    return HEADER + length <= n ? (int)(HEADER + length) : 0;
}

bool mst_tls_records_open(mst_tls_records *self, const uint8_t *record, size_t size, const struct iovec *room,
                          bool *data)
{
    const uint8_t *at = record + HEADER;
    size_t left = size - MST_TLS_RECORD_EXTRA;
    uint8_t type = 0, rest[TAG], first[sizeof key_update] = {0};
    int none = 0;
    if (!records_begin(self, record))
        return false;
    for (; left > 0; room++) {
        size_t take = left < room->iov_len ? left : room->iov_len;
        if (!records_crypt(self, room->iov_base, at, take))
            return false;
        if (size - MST_TLS_RECORD_EXTRA == sizeof first) /* may be a KeyUpdate */
            memcpy(first + sizeof first - left, room->iov_base, take);
        at += take;
        left -= take;
    }
    if (!records_crypt(self, &type, at, 1) ||
        EVP_CIPHER_CTX_ctrl(self->cipher, EVP_CTRL_AEAD_SET_TAG, TAG, (void *)(at + 1)) != 1 ||
        EVP_CipherFinal_ex(self->cipher, rest, &none) != 1)
        return false;
    *data = type == DATA;
    return *data || (type == HANDSHAKE && size - MST_TLS_RECORD_EXTRA == sizeof first &&
                     memcmp(first, key_update, sizeof first) == 0 && records_next_keys(self));
}
