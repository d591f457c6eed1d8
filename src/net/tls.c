/* Contract in tls.h.
 *
 * OpenSSL reads and writes through a BIO of this file. Its reads go to the socket, a bounded number of them
 * at a time. Its writes go to a buffer that is sent with one call for many records, and that always has room
 * for one more record: so SSL_write never has to be repeated, and bytes that it takes are as good as sent.
 *
 * Large pieces are encrypted where they lie, 16 KB at a time; small ones, as a header and a short body, are
 * copied into one record. */
#include "net/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"

#define RECORD       16384u /* bytes of plaintext */
#define RECORD_MAX   (RECORD + 512u)
#define SHAKE_BUFFER 4096  /* for what the handshake writes */
#define SHAKE_BYTES  8192u /* the most that the other side may send in it */
#define READ_BUFFER  (64 * 1024)
#define READS_MAX    64 /* of the socket, in one call of readv */
#define KEY_BYTES    32
#define RECORDS      (1ull << 23)
#define SUITES       "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
#define GROUPS       "X25519:P-256"

static const uint8_t suite_id[2] = {0x13, 0x01};                      /* of the PSK: its hash is SHA-256 */
static const uint8_t psk_identity[] = {'m', 'u', 's', 't', 'e', 'r'}; /* travels in the clear */

struct mst_tls_keys {
    SSL_CTX *context;
    BIO_METHOD *method;
    SSL_SESSION *session; /* the PSK */
    uint64_t records;
};

struct mst_tls {
    mst_tls_keys *keys;
    SSL *ssl;
    int fd;
    bool done, ended;
    bool ending;      /* the next read returns no bytes */
    int error;        /* errno of the socket */
    unsigned reads;   /* that the BIO may still make */
    size_t n_shaken;  /* bytes read in the handshake */
    uint64_t records; /* written with the present key */
    uint8_t early[MST_TLS_HELLO_MAX];
    size_t n_early, early_at;
    uint8_t *buffer; /* ciphertext: bytes [sent, filled) wait */
    size_t capacity, sent, filled;
    uint8_t *stage; /* RECORD bytes: small pieces; after DONE */
};

/* ---- the BIO ---- */

static int tls_bio_read(BIO *bio, char *out, int n)
{
    mst_tls *s = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (s->early_at < s->n_early) {
        size_t take = s->n_early - s->early_at < (size_t)n ? s->n_early - s->early_at : (size_t)n;
        memcpy(out, s->early + s->early_at, take);
        s->early_at += take;
        return (int)take;
    }
    if (s->reads == 0 || (!s->done && s->n_shaken >= SHAKE_BYTES)) {
        BIO_set_retry_read(bio);
        return -1;
    }
    s->reads--;
    ssize_t got = recv(s->fd, out, (size_t)n, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        BIO_set_retry_read(bio);
    else if (got < 0)
        s->error = errno;
    if (got >= 0 && got < n)
        s->reads = 0; /* the socket is empty; its readiness reports more without another call */
    s->ended = s->ended || got == 0;
    if (got > 0 && !s->done)
        s->n_shaken += (size_t)got;
    return (int)got;
}

static int tls_bio_write(BIO *bio, const char *data, int n)
{
    mst_tls *s = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if ((size_t)n > s->capacity - s->filled)
        return -1; /* only a handshake that is no handshake of muster's writes so much */
    memcpy(s->buffer + s->filled, data, (size_t)n);
    s->filled += (size_t)n;
    return n;
}

static long tls_bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

/* ---- keys ---- */

static int tls_use_session(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *n_id,
                           SSL_SESSION **session)
{
    const mst_tls_keys *keys = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    if (md != NULL && !EVP_MD_is_a(md, "SHA256"))
        return 0;
    *session = SSL_SESSION_dup(keys->session);
    *id = psk_identity;
    *n_id = sizeof psk_identity;
    return *session != NULL;
}

static int tls_find_session(SSL *ssl, const unsigned char *id, size_t n_id, SSL_SESSION **session)
{
    const mst_tls_keys *keys = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    *session = NULL;
    if (n_id == sizeof psk_identity && memcmp(id, psk_identity, n_id) == 0)
        *session = SSL_SESSION_dup(keys->session);
    return 1;
}

static bool tls_keys_make_context(mst_tls_keys *keys)
{
    SSL_CTX *c = keys->context = SSL_CTX_new(TLS_method());
    if (c == NULL || SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_max_proto_version(c, TLS1_3_VERSION) != 1 || SSL_CTX_set_ciphersuites(c, SUITES) != 1 ||
        SSL_CTX_set1_groups_list(c, GROUPS) != 1 || SSL_CTX_set_num_tickets(c, 0) != 1)
        return false;
    SSL_CTX_set_app_data(c, keys);
    SSL_CTX_set_options(c, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_clear_options(c, SSL_OP_ALLOW_NO_DHE_KEX);
    SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_read_ahead(c, 1);
    SSL_CTX_set_default_read_buffer_len(c, READ_BUFFER);
    SSL_CTX_set_psk_use_session_callback(c, tls_use_session);
    SSL_CTX_set_psk_find_session_callback(c, tls_find_session);
    return true;
}

static bool tls_keys_make_session(mst_tls_keys *keys, const char *secret)
{
    static const uint8_t words[] = "muster tls psk 3";
    uint8_t psk[KEY_BYTES];
    unsigned n = 0;
    SSL *ssl = SSL_new(keys->context);
    const SSL_CIPHER *cipher = ssl != NULL ? SSL_CIPHER_find(ssl, suite_id) : NULL;
    keys->session = SSL_SESSION_new();
    bool made = cipher != NULL && keys->session != NULL &&
                HMAC(EVP_sha256(), secret, (int)strlen(secret), words, sizeof words - 1, psk, &n) != NULL &&
                n == sizeof psk && SSL_SESSION_set1_master_key(keys->session, psk, sizeof psk) == 1 &&
                SSL_SESSION_set_cipher(keys->session, cipher) == 1 &&
                SSL_SESSION_set_protocol_version(keys->session, TLS1_3_VERSION) == 1;
    OPENSSL_cleanse(psk, sizeof psk);
    SSL_free(ssl);
    return made;
}

static bool tls_keys_make_method(mst_tls_keys *keys)
{
    keys->method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "muster socket");
    return keys->method != NULL && BIO_meth_set_read(keys->method, tls_bio_read) == 1 &&
           BIO_meth_set_write(keys->method, tls_bio_write) == 1 &&
           BIO_meth_set_ctrl(keys->method, tls_bio_ctrl) == 1;
}

mst_status mst_tls_keys_new(const char *secret, uint64_t records, mst_tls_keys **out)
{
    mst_tls_keys *keys = mst_zalloc(sizeof *keys);
    if (keys == NULL)
        return mst_fail_memory();
    keys->records = records > 0 ? records : RECORDS;
    if (!tls_keys_make_context(keys) || !tls_keys_make_session(keys, secret) || !tls_keys_make_method(keys)) {
        mst_tls_keys_destroy(keys);
        return mst_fail(MST_EIO, "OpenSSL offers no TLS 1.3 with pre-shared keys");
    }
    *out = keys;
    return MST_OK;
}

void mst_tls_keys_destroy(mst_tls_keys *keys)
{
    if (keys == NULL)
        return;
    SSL_SESSION_free(keys->session);
    SSL_CTX_free(keys->context);
    BIO_meth_free(keys->method);
    mst_free(keys);
}

/* ---- life ---- */

int mst_tls_hello_length(const uint8_t *bytes, size_t n)
{
    static const uint8_t start[3] = {SSL3_RT_HANDSHAKE, SSL3_VERSION_MAJOR, 1};
    if (memcmp(bytes, start, n < sizeof start ? n : sizeof start) != 0)
        return -1;
    if (n < SSL3_RT_HEADER_LENGTH)
        return 0;
    int length = SSL3_RT_HEADER_LENGTH + (bytes[3] << 8 | bytes[4]);
    return length > MST_TLS_HELLO_MAX ? -1 : (size_t)length <= n ? length : 0;
}

mst_status mst_tls_new(mst_tls_keys *keys, int fd, bool dialer, const uint8_t *read, size_t n, mst_tls **out)
{
    mst_tls *s = mst_zalloc(sizeof *s);
    BIO *bio = NULL;
    if (s == NULL)
        return mst_fail_memory();
    s->keys = keys;
    s->fd = fd;
    s->capacity = SHAKE_BUFFER;
    s->buffer = mst_alloc(s->capacity);
    s->ssl = SSL_new(keys->context);
    bio = s->ssl != NULL ? BIO_new(keys->method) : NULL;
    if (s->buffer == NULL || bio == NULL) {
        BIO_free(bio);
        mst_tls_destroy(s);
        return mst_fail_memory();
    }
    if (n > 0)
        memcpy(s->early, read, n);
    s->n_early = n;
    BIO_set_data(bio, s);
    BIO_set_init(bio, 1);
    SSL_set_bio(s->ssl, bio, bio);
    if (dialer) {
        SSL_set_verify(s->ssl, SSL_VERIFY_PEER, NULL); /* no certificate is trusted */
        SSL_set_connect_state(s->ssl);
    } else {
        SSL_set_accept_state(s->ssl);
    }
    *out = s;
    return MST_OK;
}

void mst_tls_destroy(mst_tls *s)
{
    if (s == NULL)
        return;
    SSL_free(s->ssl);
    mst_free(s->buffer);
    mst_free(s->stage);
    mst_free(s);
}

/* ---- sending ---- */

bool mst_tls_has_unsent(const mst_tls *s)
{
    return s->sent < s->filled;
}

/* Sends what waits, as far as the system takes it. False: it takes nothing any more. */
static bool tls_flush(mst_tls *s)
{
    while (s->sent < s->filled) {
        ssize_t n = send(s->fd, s->buffer + s->sent, s->filled - s->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
        s->sent += (size_t)n;
    }
    s->sent = s->filled = 0;
    return true;
}

/* Room for one record, and for a change of keys before it. */
static bool tls_has_room(mst_tls *s)
{
    if (s->capacity - s->filled >= RECORD_MAX)
        return true;
    if (!tls_flush(s))
        return false;
    if (s->sent > 0) {
        memmove(s->buffer, s->buffer + s->sent, s->filled - s->sent);
        s->filled -= s->sent;
        s->sent = 0;
    }
    return s->capacity - s->filled >= RECORD_MAX;
}

static bool tls_encrypt(mst_tls *s, const void *data, size_t n)
{
    size_t written = 0;
    ERR_clear_error();
    if (++s->records >= s->keys->records && SSL_key_update(s->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1)
        s->records = 0;
    return SSL_write_ex(s->ssl, data, n, &written) == 1 && written == n;
}

/* The next record's plaintext: from one piece where it lies, or several small ones in the stage. *at counts
 * within iov[*i]. */
static const void *tls_next_record(mst_tls *s, const struct iovec *iov, size_t n_iov, size_t *i, size_t *at,
                                   size_t *size)
{
    size_t filled = 0;
    while (*i < n_iov && filled < RECORD) {
        const uint8_t *data = (const uint8_t *)iov[*i].iov_base + *at;
        size_t left = iov[*i].iov_len - *at, take = left < RECORD - filled ? left : RECORD - filled;
        bool whole = filled == 0 && (take == RECORD || *i + 1 == n_iov);
        if (!whole)
            memcpy(s->stage + filled, data, take);
        filled += take;
        *at += take;
        if (take == left) {
            ++*i;
            *at = 0;
        }
        if (whole) {
            *size = filled;
            return data;
        }
    }
    *size = filled;
    return s->stage;
}

ssize_t mst_tls_writev(mst_tls *s, const struct iovec *iov, size_t n)
{
    size_t i = 0, at = 0, taken = 0;
    if (n == 0)
        return tls_flush(s) ? 0 : -1;
    while (i < n && tls_has_room(s)) {
        size_t size = 0;
        const void *data = tls_next_record(s, iov, n, &i, &at, &size);
        if (size > 0 && !tls_encrypt(s, data, size)) {
            errno = EPROTO;
            return -1;
        }
        taken += size;
    }
    return tls_flush(s) ? (ssize_t)taken : -1;
}

/* ---- receiving ---- */

bool mst_tls_is_ending(const mst_tls *s)
{
    return s->ending;
}

ssize_t mst_tls_readv(mst_tls *s, const struct iovec *iov, int n)
{
    size_t total = 0, at = 0;
    s->reads = READS_MAX;
    ERR_clear_error();
    for (int i = 0; i < n;) {
        size_t got = 0;
        if (SSL_read_ex(s->ssl, (uint8_t *)iov[i].iov_base + at, iov[i].iov_len - at, &got) != 1) {
            int why = SSL_get_error(s->ssl, 0);
            bool dry = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE;
            s->ending = !dry;
            if (total > 0) /* the next call finds the reason again */
                return (ssize_t)total;
            if (why == SSL_ERROR_ZERO_RETURN || s->ended)
                return 0;
            errno = dry ? EAGAIN : s->error != 0 ? s->error : EBADMSG;
            return -1;
        }
        total += got;
        at += got;
        if (at == iov[i].iov_len) {
            i++;
            at = 0;
        }
    }
    return (ssize_t)total;
}

/* ---- the handshake ---- */

/* After DONE connections have the buffers of a stream. */
static bool tls_grow(mst_tls *s)
{
    uint8_t *buffer = mst_alloc(MST_TLS_BUFFER);
    s->stage = mst_alloc(RECORD);
    if (buffer == NULL || s->stage == NULL) {
        mst_free(buffer);
        return false;
    }
    memcpy(buffer, s->buffer + s->sent, s->filled - s->sent);
    s->filled -= s->sent;
    s->sent = 0;
    mst_free(s->buffer);
    s->buffer = buffer;
    s->capacity = MST_TLS_BUFFER;
    return true;
}

/* Whether the failure means another secret: the listener finds that the binder of the ClientHello does not
 * verify, and its alert reaches the dialer. */
static bool tls_is_other_secret(void)
{
    bool other = false;
    for (unsigned long e; (e = ERR_get_error()) != 0;)
        if (ERR_GET_LIB(e) == ERR_LIB_SSL)
            other = other || ERR_GET_REASON(e) == SSL_R_BINDER_DOES_NOT_VERIFY ||
                    ERR_GET_REASON(e) == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER ||
                    ERR_GET_REASON(e) == SSL_R_TLSV1_ALERT_DECRYPT_ERROR;
    return other;
}

mst_tls_state mst_tls_shake(mst_tls *s)
{
    s->reads = READS_MAX;
    ERR_clear_error();
    int done = SSL_do_handshake(s->ssl), why = done == 1 ? SSL_ERROR_NONE : SSL_get_error(s->ssl, done);
    bool open = tls_flush(s); /* also an alert */
    if (done == 1 && SSL_session_reused(s->ssl) != 1)
        return MST_TLS_BROKEN; /* it did not use the PSK */
    if (done == 1) {
        s->done = true;
        return tls_grow(s) ? MST_TLS_DONE : MST_TLS_BROKEN;
    }
    if (why == SSL_ERROR_WANT_READ && s->n_shaken < SHAKE_BYTES && open)
        return MST_TLS_RUNNING;
    if (s->ended || s->error != 0 || !open) {
        errno = s->error;
        return MST_TLS_CLOSED;
    }
    return tls_is_other_secret() ? MST_TLS_REFUSED : MST_TLS_BROKEN;
}
