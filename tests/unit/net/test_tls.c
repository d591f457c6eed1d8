/* TLS over a pair of sockets: sessions with one secret, refusals of others, any sizes both ways, new keys
 * while data flows; the ciphertext shows nothing, and a flipped bit ends the stream. The same with OpenSSL's
 * own TLS at the other end. */
#include <errno.h>
#include <openssl/hmac.h>
#include <openssl/ssl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "net/tls.h"

enum { DIALER, LISTENER };

/* Two ends, and a relay in between: ends write to wire[end], the relay carries the bytes on. */
typedef struct pair {
    mst_tls_keys *keys[2];
    mst_tls *tls[2];
    mst_tls_state state[2];
    int fd[2], wire[2]; /* of an end; of the relay, to that end */
    uint8_t *seen;      /* all bytes that the dialer sent */
    size_t n_seen;
} pair;

static void pair_open(pair *p, const char *dialer_secret, const char *listener_secret, uint64_t records)
{
    memset(p, 0, sizeof *p);
    for (int i = 0; i < 2; i++) {
        int both[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, both), 0);
        p->fd[i] = both[0];
        p->wire[i] = both[1];
        assert_int_equal(
            mst_tls_keys_new(i == DIALER ? dialer_secret : listener_secret, records, &p->keys[i]), MST_OK);
        assert_int_equal(mst_tls_new(p->keys[i], p->fd[i], i == DIALER, NULL, 0, &p->tls[i]), MST_OK);
    }
    p->seen = malloc(64 << 20);
}

static void pair_close(pair *p)
{
    for (int i = 0; i < 2; i++) {
        mst_tls_destroy(p->tls[i]);
        mst_tls_keys_destroy(p->keys[i]);
        close(p->fd[i]);
        close(p->wire[i]);
    }
    free(p->seen);
}

/* Carries what waits in both directions; the byte `flip` of those from the dialer is changed. */
static void relay(pair *p, size_t flip)
{
    uint8_t bytes[65536];
    for (int i = 0; i < 2; i++) {
        ssize_t n = recv(p->wire[i], bytes, sizeof bytes, MSG_DONTWAIT);
        if (n <= 0)
            continue;
        if (i == DIALER) {
            memcpy(p->seen + p->n_seen, bytes, (size_t)n);
            if (flip >= p->n_seen && flip < p->n_seen + (size_t)n)
                bytes[flip - p->n_seen] ^= 1;
            p->n_seen += (size_t)n;
        }
        for (ssize_t at = 0; at < n;) {
            ssize_t m = send(p->wire[1 - i], bytes + at, (size_t)(n - at), MSG_NOSIGNAL);
            if (m > 0)
                at += m;
            else
                break;
        }
    }
}

static void shake(pair *p)
{
    for (int turn = 0; turn < 20; turn++) {
        for (int i = 0; i < 2; i++)
            if (p->state[i] == MST_TLS_RUNNING)
                p->state[i] = mst_tls_shake(p->tls[i]);
        relay(p, SIZE_MAX);
    }
}

static void test_secrets(void **state)
{
    (void)state;
    pair p;
    pair_open(&p, "one", "one", 0);
    shake(&p);
    assert_int_equal(p.state[DIALER], MST_TLS_DONE);
    assert_int_equal(p.state[LISTENER], MST_TLS_DONE);
    pair_close(&p);
    pair_open(&p, "one", "another", 0);
    shake(&p);
    assert_int_equal(p.state[DIALER], MST_TLS_REFUSED);
    assert_int_equal(p.state[LISTENER], MST_TLS_REFUSED);
    pair_close(&p);
}

/* Sends n bytes in pieces of the sizes of a message, and compares what arrives. False: the stream ended. */
static bool transfer(pair *p, int from, size_t n, size_t flip)
{
    uint8_t *out = malloc(n + 1), *in = calloc(n + 1, 1);
    size_t sent = 0, got = 0;
    bool open = true;
    for (size_t i = 0; i < n; i++)
        out[i] = (uint8_t)(i * 31 + i / 251);
    while (got < n && open) {
        size_t first = n - sent < 64 ? n - sent : 64, rest = n - sent - first;
        struct iovec pieces[3] = {{.iov_base = out + sent, .iov_len = first},
                                  {.iov_base = out + sent + first, .iov_len = rest / 3},
                                  {.iov_base = out + sent + first + rest / 3, .iov_len = rest - rest / 3}};
        ssize_t k =
            sent < n ? mst_tls_writev(p->tls[from], pieces, 3) : mst_tls_writev(p->tls[from], NULL, 0);
        assert_true(k >= 0);
        sent += (size_t)k;
        relay(p, flip);
        struct iovec room[2] = {{.iov_base = in + got, .iov_len = (n - got + 1) / 2},
                                {.iov_base = in + got + (n - got + 1) / 2, .iov_len = (n - got) / 2 + 1}};
        k = mst_tls_readv(p->tls[1 - from], room, room[1].iov_len > 1 ? 2 : 1);
        open = k > 0 || (k < 0 && errno == EAGAIN);
        if (!open)
            assert_int_equal(errno, EBADMSG);
        got += k > 0 ? (size_t)k : 0;
        assert_memory_equal(in, out, got);
    }
    free(out);
    free(in);
    return open;
}

static void test_sizes(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 63, 64, 65, 5000, 16384, 16385, 100000, 3000000};
    pair p;
    pair_open(&p, "one", "one", 10); /* a new key every 10 records */
    shake(&p);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_true(transfer(&p, DIALER, sizes[i], SIZE_MAX));
        assert_true(transfer(&p, LISTENER, sizes[i], SIZE_MAX));
    }
    assert_false(mst_tls_has_unsent(p.tls[DIALER]));
    pair_close(&p);
}

static void test_flipped_bits(void **state)
{
    (void)state;
    for (size_t at = 0; at < 6000; at += 97) {
        pair p;
        pair_open(&p, "one", "one", 0);
        shake(&p);
        size_t flip = p.n_seen + at;
        bool open = true; /* a flipped length waits for more bytes first */
        for (int i = 0; i < 8 && open; i++)
            open = transfer(&p, DIALER, 5000, flip);
        assert_false(open);
        pair_close(&p);
    }
}

static bool contains(const uint8_t *bytes, size_t n, const void *what, size_t size)
{
    return memmem(bytes, n, what, size) != NULL;
}

static void test_ciphertext(void **state)
{
    (void)state;
    static const char secret[] = "0123456789abcdef01234567", name[] = "a-job-with-a-name";
    pair p;
    pair_open(&p, secret, secret, 0);
    shake(&p);
    struct iovec piece = {.iov_base = (void *)name, .iov_len = sizeof name};
    assert_int_equal(mst_tls_writev(p.tls[DIALER], &piece, 1), sizeof name);
    assert_true(transfer(&p, LISTENER, 100, SIZE_MAX));
    relay(&p, SIZE_MAX);
    assert_true(p.n_seen > 300);
    assert_false(contains(p.seen, p.n_seen, name, sizeof name - 1));
    assert_false(contains(p.seen, p.n_seen, secret, sizeof secret - 1));
    assert_true(contains(p.seen, p.n_seen, "muster", 6)); /* the identity of the key, in the ClientHello */
    pair_close(&p);
}

/* ---- OpenSSL's TLS at the other end ---- */

static int use_session(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *n_id,
                       SSL_SESSION **session)
{
    static const uint8_t words[] = "muster tls psk 3", suite[] = {0x13, 0x01};
    uint8_t psk[32];
    (void)md;
    HMAC(EVP_sha256(), "one", 3, words, sizeof words - 1, psk, NULL);
    *session = SSL_SESSION_new();
    *id = (const unsigned char *)"muster";
    *n_id = 6;
    return SSL_SESSION_set1_master_key(*session, psk, sizeof psk) &&
           SSL_SESSION_set_cipher(*session, SSL_CIPHER_find(ssl, suite)) &&
           SSL_SESSION_set_protocol_version(*session, TLS1_3_VERSION);
}

static void other_reads(SSL *ssl, uint8_t *to, size_t n, size_t *got)
{
    size_t more = 0;
    while (*got < n && SSL_read_ex(ssl, to + *got, n - *got, &more) == 1)
        *got += more;
}

static void test_other_end(void **state)
{
    (void)state;
    enum { SIZE = 700000 };
    static const char *const suites[] = {"TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"};
    uint8_t *out = malloc(SIZE), *in = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        out[i] = (uint8_t)(i * 31 + i / 251);
    for (int suite = 0; suite < 2; suite++) {
        int fd[2];
        mst_tls_keys *keys;
        mst_tls *tls;
        mst_tls_state shaken = MST_TLS_RUNNING;
        SSL_CTX *context = SSL_CTX_new(TLS_method());
        SSL_CTX_set_ciphersuites(context, suites[suite]);
        SSL_CTX_set_psk_use_session_callback(context, use_session);
        SSL *ssl = SSL_new(context);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fd), 0);
        assert_int_equal(mst_tls_keys_new("one", 10, &keys), MST_OK); /* a new key every 10 records */
        assert_int_equal(mst_tls_new(keys, fd[0], false, NULL, 0, &tls), MST_OK);
        SSL_set_fd(ssl, fd[1]);
        SSL_set_connect_state(ssl);
        for (int turn = 0; turn < 20 && (shaken == MST_TLS_RUNNING || !SSL_is_init_finished(ssl)); turn++) {
            SSL_do_handshake(ssl);
            if (shaken == MST_TLS_RUNNING)
                shaken = mst_tls_shake(tls);
        }
        assert_int_equal(shaken, MST_TLS_DONE);
        assert_int_equal(SSL_version(ssl), TLS1_3_VERSION);
        assert_string_equal(SSL_get_cipher_name(ssl), suites[suite]);

        size_t sent = 0, got = 0;
        memset(in, 0, SIZE);
        for (int turn = 0; got < SIZE && turn < 10000; turn++) {
            struct iovec piece[2] = {
                {.iov_base = out + sent, .iov_len = (SIZE - sent) / 2},
                {.iov_base = out + sent + (SIZE - sent) / 2, .iov_len = SIZE - sent - (SIZE - sent) / 2}};
            ssize_t k = mst_tls_writev(tls, piece, sent < SIZE ? 2 : 0);
            assert_true(k >= 0);
            sent += (size_t)k;
            other_reads(ssl, in, SIZE, &got);
        }
        assert_memory_equal(in, out, SIZE);

        memset(in, 0, SIZE);
        for (sent = got = 0; got < SIZE;) {
            size_t part = SIZE - sent < 30000 ? SIZE - sent : 30000, written = 0;
            if (part > 0) {
                assert_int_equal(SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
                assert_int_equal(SSL_write_ex(ssl, out + sent, part, &written), 1);
            }
            sent += written;
            while (got < sent) { /* small parts, so that records do not fit */
                struct iovec room = {.iov_base = in + got, .iov_len = SIZE - got < 7001 ? SIZE - got : 7001};
                ssize_t k = mst_tls_readv(tls, &room, 1);
                assert_true(k > 0);
                got += (size_t)k;
            }
        }
        assert_memory_equal(in, out, SIZE);

        SSL_shutdown(ssl); /* an alert, which muster's peers do not send */
        struct iovec room = {.iov_base = in, .iov_len = SIZE};
        assert_int_equal(mst_tls_readv(tls, &room, 1), -1);
        assert_int_equal(errno, EBADMSG);
        mst_tls_destroy(tls);
        mst_tls_keys_destroy(keys);
        SSL_free(ssl);
        SSL_CTX_free(context);
        close(fd[0]);
        close(fd[1]);
    }
    free(out);
    free(in);
}

static void test_hello_length(void **state)
{
    (void)state;
    static const uint8_t hello[] = {0x16, 3, 1, 0, 4, 1, 2, 3, 4}, long_one[] = {0x16, 3, 1, 9, 9};
    for (size_t n = 1; n < sizeof hello; n++)
        assert_int_equal(mst_tls_hello_length(hello, n), 0);
    assert_int_equal(mst_tls_hello_length(hello, sizeof hello), sizeof hello);
    assert_int_equal(mst_tls_hello_length(long_one, sizeof long_one), -1);
    assert_int_equal(mst_tls_hello_length((const uint8_t *)"MSTR", 4), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_secrets),      cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_flipped_bits), cmocka_unit_test(test_ciphertext),
        cmocka_unit_test(test_other_end),    cmocka_unit_test(test_hello_length)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
