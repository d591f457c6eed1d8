/* Contract in tls.h.
 *
 * OpenSSL makes the handshake. It reads and writes through a BIO of this file, from and to buffers of
 * ciphertext. After it, records are made and opened directly between these buffers and the caller's memory
 * (tls_records.h), with the secrets of the traffic that OpenSSL passes to its key log. Its input is read
 * without reading ahead, so that records behind the handshake stay in the buffer.
 *
 * The buffer of what is sent leaves with one call for many records, and always has room for one more record:
 * bytes that were taken are as good as sent. */
#include "net/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "net/tls_records.h"

#define RECORD_MAX   (MST_TLS_RECORD + MST_TLS_RECORD_EXTRA)
#define PIECES_MAX   16    /* in one record */
#define SHAKE_BUFFER 4096  /* for what the handshake writes, and reads at a time */
#define SHAKE_BYTES  8192u /* the most that the other side may send in it */
#define INPUT        (RECORD_MAX + 64 * 1024)
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

typedef struct tls_buffer { /* of ciphertext: bytes [at, filled) wait */
    uint8_t *data;
    size_t capacity, at, filled;
} tls_buffer;

struct mst_tls {
    mst_tls_keys *keys;
    SSL *ssl; /* until DONE */
    int fd;
    bool dialer, done;
    bool ended;      /* the other side has closed */
    int error;       /* errno of the socket, or EBADMSG */
    unsigned reads;  /* of the socket, that may still be made */
    size_t n_shaken; /* bytes read in the handshake */
    tls_buffer in, out;
    uint8_t secrets[2][MST_TLS_SECRET]; /* of the listener's and the dialer's traffic, until DONE */
    bool has_secret[2];
    mst_tls_records opens, seals; /* after DONE */
    uint8_t *spill; /* after DONE: a record that did not fit; bytes [spill_at, n_spill) are left */
    size_t spill_at, n_spill;
};

static size_t buffer_left(const tls_buffer *b)
{
    return b->filled - b->at;
}

static void buffer_shift(tls_buffer *b)
{
    if (b->at > 0 && buffer_left(b) > 0)
        memmove(b->data, b->data + b->at, buffer_left(b));
    b->filled -= b->at;
    b->at = 0;
}

/* Reads from the socket what fits. False: nothing. */
static bool tls_receive(mst_tls *s)
{
    if (s->reads == 0 || s->ended || s->error != 0 || (!s->done && s->n_shaken >= SHAKE_BYTES))
        return false;
    s->reads--;
    buffer_shift(&s->in);
    size_t room = s->in.capacity - s->in.filled;
    ssize_t got = recv(s->fd, s->in.data + s->in.filled, room, MSG_DONTWAIT);
    s->ended = got == 0;
    if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        s->error = errno;
    if (got <= 0)
        return false;
    if ((size_t)got < room)
        s->reads = 0; /* the socket is empty; its readiness reports more without another call */
    s->in.filled += (size_t)got;
    if (!s->done)
        s->n_shaken += (size_t)got;
    return true;
}

/* ---- the BIO ---- */

static int tls_bio_read(BIO *bio, char *out, int n)
{
    mst_tls *s = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (buffer_left(&s->in) == 0 && !tls_receive(s)) {
        if (!s->ended && s->error == 0)
            BIO_set_retry_read(bio);
        return s->ended ? 0 : -1;
    }
    size_t take = buffer_left(&s->in) < (size_t)n ? buffer_left(&s->in) : (size_t)n;
    memcpy(out, s->in.data + s->in.at, take);
    s->in.at += take;
    return (int)take;
}

static int tls_bio_write(BIO *bio, const char *data, int n)
{
    mst_tls *s = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if ((size_t)n > s->out.capacity - s->out.filled)
        return -1; /* only a handshake that is no handshake of muster's writes so much */
    memcpy(s->out.data + s->out.filled, data, (size_t)n);
    s->out.filled += (size_t)n;
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

/* "CLIENT_TRAFFIC_SECRET_0 RANDOM SECRET", in hexadecimal; the client is the dialer. */
static void tls_on_key_log(const SSL *ssl, const char *line)
{
    static const char *const labels[] = {"SERVER_TRAFFIC_SECRET_0 ", "CLIENT_TRAFFIC_SECRET_0 "};
    mst_tls *s = SSL_get_app_data(ssl);
    const char *hex = strrchr(line, ' ');
    for (int i = 0; s != NULL && hex != NULL && i < 2; i++) {
        if (strncmp(line, labels[i], strlen(labels[i])) != 0 || strlen(hex + 1) != 2 * MST_TLS_SECRET)
            continue;
        size_t n = 0;
        s->has_secret[i] = OPENSSL_hexstr2buf_ex(s->secrets[i], MST_TLS_SECRET, &n, hex + 1, '\0') == 1 &&
                           n == MST_TLS_SECRET;
    }
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
    SSL_CTX_set_keylog_callback(c, tls_on_key_log);
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

static bool buffer_grow(tls_buffer *b, size_t capacity)
{
    uint8_t *data = mst_alloc(capacity);
    if (data == NULL)
        return false;
    buffer_shift(b);
    if (b->filled > 0)
        memcpy(data, b->data, b->filled);
    mst_free(b->data);
    b->data = data;
    b->capacity = capacity;
    return true;
}

mst_status mst_tls_new(mst_tls_keys *keys, int fd, bool dialer, const uint8_t *read, size_t n, mst_tls **out)
{
    mst_tls *s = mst_zalloc(sizeof *s);
    BIO *bio = NULL;
    if (s == NULL)
        return mst_fail_memory();
    s->keys = keys;
    s->fd = fd;
    s->dialer = dialer;
    s->ssl = SSL_new(keys->context);
    bio = s->ssl != NULL ? BIO_new(keys->method) : NULL;
    if (bio == NULL || !buffer_grow(&s->in, SHAKE_BUFFER) || !buffer_grow(&s->out, SHAKE_BUFFER)) {
        BIO_free(bio);
        mst_tls_destroy(s);
        return mst_fail_memory();
    }
    if (n > 0)
        memcpy(s->in.data, read, n);
    s->in.filled = n;
    BIO_set_data(bio, s);
    BIO_set_init(bio, 1);
    SSL_set_bio(s->ssl, bio, bio);
    SSL_set_app_data(s->ssl, s);
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
    mst_tls_records_fini(&s->opens);
    mst_tls_records_fini(&s->seals);
    OPENSSL_cleanse(s->secrets, sizeof s->secrets);
    mst_free(s->in.data);
    mst_free(s->out.data);
    mst_free(s->spill);
    mst_free(s);
}

/* ---- sending ---- */

bool mst_tls_has_unsent(const mst_tls *s)
{
    return buffer_left(&s->out) > 0;
}

/* Sends what waits, as far as the system takes it. False: it takes nothing any more. */
static bool tls_flush(mst_tls *s)
{
    while (buffer_left(&s->out) > 0) {
        ssize_t n = send(s->fd, s->out.data + s->out.at, buffer_left(&s->out), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS;
        s->out.at += (size_t)n;
    }
    s->out.at = s->out.filled = 0;
    return true;
}

/* Room for one record, and for a change of keys before it. */
static bool tls_has_room(mst_tls *s)
{
    if (s->out.capacity - s->out.filled >= 2 * RECORD_MAX)
        return true;
    if (!tls_flush(s))
        return false;
    buffer_shift(&s->out);
    return s->out.capacity - s->out.filled >= 2 * RECORD_MAX;
}

static bool tls_put(mst_tls *s, size_t record)
{
    s->out.filled += record;
    return record > 0;
}

/* The pieces of the next record, from *at within iov[*i] on; returns their number. */
static size_t tls_next_pieces(const struct iovec *iov, size_t n_iov, size_t *i, size_t *at,
                              struct iovec pieces[PIECES_MAX], size_t *size)
{
    size_t n = 0;
    *size = 0;
    while (*i < n_iov && *size < MST_TLS_RECORD && n < PIECES_MAX) {
        size_t left = iov[*i].iov_len - *at, most = MST_TLS_RECORD - *size, take = left < most ? left : most;
        if (take > 0)
            pieces[n++] = (struct iovec){.iov_base = (uint8_t *)iov[*i].iov_base + *at, .iov_len = take};
        *size += take;
        *at += take;
        if (take == left) {
            ++*i;
            *at = 0;
        }
    }
    return n;
}

ssize_t mst_tls_writev(mst_tls *s, const struct iovec *iov, size_t n)
{
    size_t i = 0, at = 0, taken = 0;
    if (n == 0)
        return tls_flush(s) ? 0 : -1;
    while (i < n && tls_has_room(s)) {
        struct iovec pieces[PIECES_MAX];
        size_t size, n_pieces = tls_next_pieces(iov, n, &i, &at, pieces, &size);
        if (n_pieces == 0)
            break;
        if ((s->seals.n >= s->keys->records &&
             !tls_put(s, mst_tls_records_update(&s->seals, s->out.data + s->out.filled))) ||
            !tls_put(s, mst_tls_records_seal(&s->seals, pieces, n_pieces, s->out.data + s->out.filled))) {
            errno = EPROTO;
            return -1;
        }
        taken += size;
    }
    if (!tls_flush(s))
        return -1;
    (void)mst_tls_records_prepare(&s->opens); /* while the other side handles what was sent */
    (void)mst_tls_records_prepare(&s->seals);
    return (ssize_t)taken;
}

/* ---- receiving ---- */

bool mst_tls_has_more(const mst_tls *s)
{
    return s->ended || s->error != 0 || s->spill_at < s->n_spill ||
           mst_tls_records_size(s->in.data + s->in.at, buffer_left(&s->in)) != 0;
}

typedef struct tls_room { /* of a call of readv */
    struct iovec parts[MST_TLS_PARTS];
    size_t n, i; /* parts; the first that is not full */
    size_t total;
} tls_room;

static void room_fill(tls_room *room, size_t n)
{
    room->total += n;
    while (room->i < room->n && n >= room->parts[room->i].iov_len) {
        n -= room->parts[room->i].iov_len;
        room->i++;
    }
    if (room->i < room->n) {
        room->parts[room->i].iov_base = (uint8_t *)room->parts[room->i].iov_base + n;
        room->parts[room->i].iov_len -= n;
    }
}

static void tls_take_spill(mst_tls *s, tls_room *room)
{
    while (s->spill_at < s->n_spill && room->i < room->n) {
        size_t left = s->n_spill - s->spill_at, most = room->parts[room->i].iov_len;
        size_t take = left < most ? left : most;
        memcpy(room->parts[room->i].iov_base, s->spill + s->spill_at, take);
        s->spill_at += take;
        room_fill(room, take);
    }
}

/* Opens a record of that size in the room, or in the spill if it does not fit. */
static bool tls_open_record(mst_tls *s, size_t size, tls_room *room)
{
    struct iovec spill = {.iov_base = s->spill, .iov_len = MST_TLS_RECORD};
    size_t n = size - MST_TLS_RECORD_EXTRA, space = 0;
    bool data = false;
    for (size_t i = room->i; i < room->n; i++)
        space += room->parts[i].iov_len;
    bool fits = n <= space;
    if (!mst_tls_records_open(&s->opens, s->in.data + s->in.at, size, fits ? room->parts + room->i : &spill,
                              &data))
        return false;
    s->in.at += size;
    if (data && fits) {
        room_fill(room, n);
    } else if (data) {
        s->spill_at = 0;
        s->n_spill = n;
    }
    return true;
}

ssize_t mst_tls_readv(mst_tls *s, const struct iovec *iov, int n)
{
    tls_room room = {.n = (size_t)n};
    memcpy(room.parts, iov, (size_t)n * sizeof *iov);
    s->reads = READS_MAX;
    tls_take_spill(s, &room);
    while (room.i < room.n && s->error == 0) {
        int size = mst_tls_records_size(s->in.data + s->in.at, buffer_left(&s->in));
        if (size == 0 && !tls_receive(s))
            break;
        if (size < 0 || (size > 0 && !tls_open_record(s, (size_t)size, &room)))
            s->error = EBADMSG;
        tls_take_spill(s, &room);
    }
    if (room.total > 0) /* the next call finds the reason again */
        return (ssize_t)room.total;
    if (s->ended && s->error == 0)
        return 0;
    errno = s->error != 0 ? s->error : EAGAIN;
    return -1;
}

/* ---- the handshake ---- */

/* The handshake is done: connections have the keys and the buffers of a stream. */
static bool tls_begin_records(mst_tls *s)
{
    const SSL_CIPHER *suite = SSL_get_current_cipher(s->ssl);
    const EVP_CIPHER *kind = suite != NULL && SSL_CIPHER_get_cipher_nid(suite) == NID_aes_128_gcm
                                 ? EVP_aes_128_gcm()
                                 : EVP_chacha20_poly1305(); /* SUITES has no others */
    if (!s->has_secret[0] || !s->has_secret[1] ||
        !mst_tls_records_init(&s->opens, kind, false, s->secrets[!s->dialer]) ||
        !mst_tls_records_init(&s->seals, kind, true, s->secrets[s->dialer]) || !buffer_grow(&s->in, INPUT) ||
        !buffer_grow(&s->out, MST_TLS_BUFFER) || (s->spill = mst_alloc(MST_TLS_RECORD)) == NULL)
        return false;
    OPENSSL_cleanse(s->secrets, sizeof s->secrets);
    SSL_free(s->ssl);
    s->ssl = NULL;
    s->done = true;
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
    if (done == 1)
        return tls_begin_records(s) ? MST_TLS_DONE : MST_TLS_BROKEN;
    if (why == SSL_ERROR_WANT_READ && s->n_shaken < SHAKE_BYTES && open)
        return MST_TLS_RUNNING;
    if (s->ended || s->error != 0 || !open) {
        errno = s->error;
        return MST_TLS_CLOSED;
    }
    return tls_is_other_secret() ? MST_TLS_REFUSED : MST_TLS_BROKEN;
}
