/* The handshake between two state machines: accepted and refused peers with their messages; no byte of it can
 * be changed, cut or repeated without detection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "net/handshake.h"

typedef struct side {
    mst_identity self;
    mst_shake_options options;
    mst_shake h;
} side;

static void start(side *s, mst_role role, uint32_t index, bool dialer)
{
    s->self = (mst_identity){.role = role, .index = index, .incarnation = 99 + index, .job = "j1"};
    s->options.self = &s->self;
    if (s->options.version == NULL)
        s->options.version = "0.1.0";
    if (s->options.secret == NULL)
        s->options.secret = "s";
    if (s->options.wire == 0)
        s->options.wire = MST_WIRE_VERSION;
    s->options.address = dialer ? "127.0.0.1:5000" : "10.0.0.3:51234";
    assert_int_equal(mst_shake_init(&s->h, &s->options, dialer), MST_OK);
}

static const int dialer_of[2] = {1, 0};

/* Carries bytes both ways in parts of `part` until nothing moves; byte `flip_at` of the conversation is
 * changed (-1: none). Returns the bytes that travelled. */
static long talk(side *dialer, side *listener, size_t part, long flip_at)
{
    side *sides[2] = {dialer, listener};
    long total = 0;
    for (int idle = 0, turn = 0; idle < 2; turn ^= 1) {
        side *from = sides[turn], *to = sides[dialer_of[turn]];
        uint8_t bytes[MST_SHAKE_MAX];
        size_t n = from->h.n_out;
        memcpy(bytes, from->h.out, n);
        from->h.n_out = 0;
        idle = n == 0 ? idle + 1 : 0;
        for (size_t i = 0; i < n; i++, total++)
            if (total == flip_at)
                bytes[i] ^= 0x20;
        for (size_t at = 0; at < n && to->h.state == MST_SHAKE_RUNNING;) {
            size_t k = part < n - at ? part : n - at;
            size_t used = mst_shake_take(&to->h, bytes + at, k);
            assert_true(used == k || to->h.state != MST_SHAKE_RUNNING);
            at += used;
        }
    }
    return total;
}

static void test_success(void **state)
{
    (void)state;
    for (size_t part = 1; part < 300; part += part < 30 ? 1 : 90) {
        side d = {0}, l = {0};
        start(&d, MST_ROLE_WORKER, 3, true);
        start(&l, MST_ROLE_SERVER, 1, false);
        talk(&d, &l, part, -1);
        assert_int_equal(d.h.state, MST_SHAKE_DONE);
        assert_int_equal(l.h.state, MST_SHAKE_DONE);
        assert_int_equal(l.h.other.role, MST_ROLE_WORKER);
        assert_int_equal(l.h.other.index, 3);
        assert_int_equal(l.h.other.incarnation, 102);
        assert_string_equal(l.h.other.job, "j1");
        assert_int_equal(d.h.other.role, MST_ROLE_SERVER);
        assert_int_equal(d.h.other.index, 1);
    }
}

static void test_bytes_after_the_end(void **state)
{
    (void)state;
    side d = {0}, l = {0};
    uint8_t bytes[MST_SHAKE_MAX + 50];
    start(&d, MST_ROLE_WORKER, 3, true);
    start(&l, MST_ROLE_SERVER, 1, false);
    mst_shake_take(&l.h, d.h.out, d.h.n_out);
    mst_shake_take(&d.h, l.h.out, l.h.n_out);
    mst_shake_take(&l.h, d.h.out, d.h.n_out);
    size_t n = l.h.n_out;
    memcpy(bytes, l.h.out, n);
    memset(bytes + n, 'M', 50);
    assert_int_equal(mst_shake_take(&d.h, bytes, n + 50), n);
    assert_int_equal(d.h.state, MST_SHAKE_DONE);
    assert_int_equal(mst_shake_take(&d.h, bytes, 50), 0);
}

static void expect(const side *d, const side *l, const char *dialer_says, const char *listener_says)
{
    assert_int_equal(d->h.state, MST_SHAKE_FAILED);
    assert_string_equal(d->h.text, dialer_says);
    assert_int_equal(l->h.state, MST_SHAKE_FAILED);
    assert_string_equal(l->h.text, listener_says);
}

static void test_differences(void **state)
{
    (void)state;
    side d = {0}, l = {0};
    l.options.version = "0.2.0";
    start(&d, MST_ROLE_WORKER, 3, true);
    start(&l, MST_ROLE_SERVER, 0, false);
    talk(&d, &l, 1000, -1);
    expect(&d, &l,
           "refused by server 0 (127.0.0.1:5000): that server runs muster 0.2.0, this worker runs 0.1.0",
           "refused worker 3 (10.0.0.3:51234): that worker runs muster 0.1.0, this server runs 0.2.0");

    d = l = (side){0};
    l.options.wire = 7;
    l.options.version = "3.0";
    start(&d, MST_ROLE_WORKER, 3, true);
    start(&l, MST_ROLE_SERVER, 0, false);
    talk(&d, &l, 1000, -1);
    expect(&d, &l,
           "refused by server 0 (127.0.0.1:5000): that server uses wire version 7 (muster 3.0), this "
           "process uses 4 "
           "(muster 0.1.0)",
           "refused 10.0.0.3:51234: that process uses wire version 4 (muster 0.1.0), this server uses 7 "
           "(muster 3.0)");

    d = l = (side){0};
    start(&d, MST_ROLE_WORKER, 3, true);
    start(&l, MST_ROLE_SERVER, 0, false);
    snprintf(l.h.self.job, sizeof l.h.self.job, "j2");
    talk(&d, &l, 1000, -1);
    expect(&d, &l,
           "refused by server 0 (127.0.0.1:5000): that server belongs to job j2, this worker to job j1",
           "refused worker 3 (10.0.0.3:51234): that worker belongs to job j1, this server to job j2");

    d = l = (side){0};
    l.options.secret = "t";
    start(&d, MST_ROLE_WORKER, 3, true);
    start(&l, MST_ROLE_SERVER, 0, false);
    talk(&d, &l, 1000, -1);
    expect(&d, &l,
           "refused by server 0 (127.0.0.1:5000): its job secret differs from that of this process; use one "
           "secret for all processes of a job",
           "refused worker 3 (10.0.0.3:51234): its job secret differs from that of this process; use one "
           "secret for all processes of a job");
}

/* A listener sends nothing that depends on the secret before the dialer has proved itself: its CHALLENGE has
 * the same bytes with any secret, but for the nonce. */
static void test_listener_proves_last(void **state)
{
    (void)state;
    side d = {0}, l[2];
    memset(l, 0, sizeof l);
    start(&d, MST_ROLE_WORKER, 3, true);
    l[1].options.secret = "another";
    for (int i = 0; i < 2; i++) {
        start(&l[i], MST_ROLE_SERVER, 0, false);
        mst_shake_take(&l[i].h, d.h.out, d.h.n_out);
        assert_int_equal(l[i].h.out[6], MST_SHAKE_CHALLENGE);
        assert_int_equal(l[i].h.n_out, MST_SHAKE_PREFIX + MST_SHAKE_IDENTITY);
        memset(l[i].h.out + MST_SHAKE_PREFIX + MST_SHAKE_VERSION + 16 + MST_JOB_MAX, 0, MST_SHAKE_NONCE);
    }
    assert_memory_equal(l[0].h.out, l[1].h.out, l[0].h.n_out);
}

/* A listener without the secret that accepts any dialer is refused by it. */
static void test_forged_accept(void **state)
{
    (void)state;
    side d = {0}, l = {0};
    start(&d, MST_ROLE_WORKER, 3, true);
    start(&l, MST_ROLE_SERVER, 0, false);
    mst_shake_take(&l.h, d.h.out, d.h.n_out);
    mst_shake_take(&d.h, l.h.out, l.h.n_out);
    uint8_t accept[MST_SHAKE_PREFIX + MST_SHAKE_PROOF];
    memcpy(accept, d.h.out, sizeof accept); /* the dialer's own proof, sent back to it */
    accept[6] = MST_SHAKE_ACCEPT;
    mst_shake_take(&d.h, accept, sizeof accept);
    assert_int_equal(d.h.state, MST_SHAKE_FAILED);
    assert_true(d.h.refused);
    assert_non_null(strstr(d.h.text, "secret"));
}

static void test_seals(void **state)
{
    (void)state;
    for (int of_d = MST_SEAL_NONE; of_d <= MST_SEAL_MAC; of_d++)
        for (int of_l = MST_SEAL_NONE; of_l <= MST_SEAL_MAC; of_l++) {
            side d = {0}, l = {0};
            uint8_t one[MST_SEAL_KEY], other[MST_SEAL_KEY];
            d.options.seal = (mst_seal_kind)of_d;
            l.options.seal = (mst_seal_kind)of_l;
            start(&d, MST_ROLE_WORKER, 3, true);
            start(&l, MST_ROLE_SERVER, 1, false);
            talk(&d, &l, 1000, -1);
            assert_int_equal(l.h.state, MST_SHAKE_DONE);
            assert_int_equal(d.h.seal, of_d > of_l ? of_d : of_l);
            assert_int_equal(l.h.seal, d.h.seal);
            assert_true(mst_shake_key(&d.h, true, one) && mst_shake_key(&l.h, true, other));
            assert_memory_equal(one, other, sizeof one);
            assert_true(mst_shake_key(&l.h, false, other));
            assert_memory_not_equal(one, other, sizeof one);
        }
}

static void test_needs_tls(void **state)
{
    (void)state;
    side d = {0}, l = {0};
    l.options.needs_tls = true;
    start(&d, MST_ROLE_WORKER, 3, true);
    start(&l, MST_ROLE_SERVER, 0, false);
    talk(&d, &l, 1000, -1);
    expect(
        &d, &l,
        "refused by server 0 (127.0.0.1:5000): it accepts connections from other hosts with TLS only; give "
        "this process --tls, or give all processes of the job --no-tls",
        "refused worker 3 (10.0.0.3:51234): it does not use TLS; give it --tls, or give all processes of "
        "the job --no-tls");
}

static void test_other_user(void **state)
{
    (void)state;
    side d = {0}, l = {0};
    l.options.other_user = true;
    start(&d, MST_ROLE_WORKER, 3, true);
    start(&l, MST_ROLE_SERVER, 0, false);
    talk(&d, &l, 1000, -1);
    expect(&d, &l,
           "refused by server 0 (127.0.0.1:5000): it runs as another user; give the job a secret, or start "
           "this process as that user",
           "refused worker 3 (10.0.0.3:51234): it runs as another user, and the job has no secret");
}

/* A dialer without the secret that answers with bytes of the listener. */
static void test_forged_proof(void **state)
{
    (void)state;
    side d = {0}, l = {0};
    start(&d, MST_ROLE_WORKER, 3, true);
    start(&l, MST_ROLE_SERVER, 0, false);
    mst_shake_take(&l.h, d.h.out, d.h.n_out);
    uint8_t forged[MST_SHAKE_PREFIX + MST_SHAKE_PROOF];
    memcpy(forged, l.h.out, MST_SHAKE_PREFIX);
    forged[6] = MST_SHAKE_PROVE;
    mst_put_u16(forged + 8, MST_SHAKE_PROOF);
    memcpy(forged + MST_SHAKE_PREFIX, l.h.out + MST_SHAKE_PREFIX, MST_SHAKE_PROOF);
    mst_shake_take(&l.h, forged, sizeof forged);
    assert_int_equal(l.h.state, MST_SHAKE_FAILED);
    assert_non_null(strstr(l.h.text, "secret"));
}

/* A replayed handshake is refused: the listener's nonce is new. */
static void test_replay(void **state)
{
    (void)state;
    side d = {0}, l = {0}, again = {0};
    uint8_t hello[MST_SHAKE_MAX], proof[MST_SHAKE_MAX];
    start(&d, MST_ROLE_WORKER, 3, true);
    start(&l, MST_ROLE_SERVER, 0, false);
    size_t n_hello = d.h.n_out;
    memcpy(hello, d.h.out, n_hello);
    mst_shake_take(&l.h, hello, n_hello);
    mst_shake_take(&d.h, l.h.out, l.h.n_out);
    size_t n_proof = d.h.n_out;
    memcpy(proof, d.h.out, n_proof);
    mst_shake_take(&l.h, proof, n_proof);
    assert_int_equal(l.h.state, MST_SHAKE_DONE);

    start(&again, MST_ROLE_SERVER, 0, false);
    mst_shake_take(&again.h, hello, n_hello);
    assert_int_equal(again.h.state, MST_SHAKE_RUNNING);
    mst_shake_take(&again.h, proof, n_proof);
    assert_int_equal(again.h.state, MST_SHAKE_FAILED);
}

static void test_every_byte_counts(void **state)
{
    (void)state;
    side d = {0}, l = {0};
    start(&d, MST_ROLE_WORKER, 3, true);
    start(&l, MST_ROLE_SERVER, 0, false);
    long total = talk(&d, &l, 1000, -1);
    assert_int_equal(total, MST_SHAKE_PREFIX * 4 + MST_SHAKE_IDENTITY * 2 + MST_SHAKE_PROOF * 2);
    for (long i = 0; i < total; i++) {
        d = l = (side){0};
        start(&d, MST_ROLE_WORKER, 3, true);
        start(&l, MST_ROLE_SERVER, 0, false);
        talk(&d, &l, 1000, i);
        if (i < total - MST_SHAKE_PREFIX - MST_SHAKE_PROOF) /* ACCEPT is the last message */
            assert_int_not_equal(l.h.state, MST_SHAKE_DONE);
        assert_int_not_equal(d.h.state, MST_SHAKE_DONE);
    }
}

static void test_garbage(void **state)
{
    (void)state;
    side l = {0}, d = {0};
    static const char http[] = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    start(&l, MST_ROLE_SERVER, 0, false);
    assert_true(mst_shake_take(&l.h, http, sizeof http) <= MST_SHAKE_PREFIX);
    assert_int_equal(l.h.state, MST_SHAKE_FAILED);
    assert_int_equal(l.h.n_out, 0);
    start(&d, MST_ROLE_WORKER, 0, true);
    mst_shake_take(&d.h, http, sizeof http);
    assert_int_equal(d.h.state, MST_SHAKE_FAILED);
    assert_string_equal(
        d.h.text,
        "127.0.0.1:5000 is not a muster process, or it failed: its first bytes are not a handshake");

    /* A message that is not due, and one that is too long. */
    start(&d, MST_ROLE_WORKER, 0, true);
    l = (side){0};
    start(&l, MST_ROLE_SERVER, 0, true);
    mst_shake_take(&d.h, l.h.out, l.h.n_out); /* HELLO to a dialer */
    assert_int_equal(d.h.state, MST_SHAKE_FAILED);
    start(&d, MST_ROLE_WORKER, 0, true);
    uint8_t refusal[MST_SHAKE_PREFIX] = {'M', 'S', 'T', 'R', 1, 0, MST_SHAKE_REFUSE, 0, 0xff, 0xff, 0, 0};
    mst_shake_take(&d.h, refusal, sizeof refusal);
    assert_int_equal(d.h.state, MST_SHAKE_FAILED);
    assert_non_null(strstr(d.h.text, "wrong length"));
}

static void test_refusal_is_cleaned(void **state)
{
    (void)state;
    side d = {0};
    start(&d, MST_ROLE_WORKER, 0, true);
    uint8_t refusal[MST_SHAKE_PREFIX + 12] = {'M', 'S', 'T', 'R', 1, 0, MST_SHAKE_REFUSE, 0, 12, 0, 0, 0};
    memcpy(refusal + MST_SHAKE_PREFIX + 8, "a\x1b[2", 4);
    mst_shake_take(&d.h, refusal, sizeof refusal);
    assert_string_equal(d.h.text, "refused by server 0 (127.0.0.1:5000): a?[2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_success),
        cmocka_unit_test(test_bytes_after_the_end),
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_forged_proof),
        cmocka_unit_test(test_listener_proves_last),
        cmocka_unit_test(test_forged_accept),
        cmocka_unit_test(test_seals),
        cmocka_unit_test(test_needs_tls),
        cmocka_unit_test(test_other_user),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_every_byte_counts),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_refusal_is_cleaned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
