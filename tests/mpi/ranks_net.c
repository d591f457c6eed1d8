/* The contract of net engines (tests/contract/test_net.c) for engine mpi: rank 0 is the server, rank 1
 * the worker, further ranks are more workers. All ranks run every test at the same time. test_mpi_net.sh
 * runs this program under mpirun. */
#include <pthread.h>
#include <signal.h>

#include "base/alloc.h"
#include "mpi/mpi.h"
#include "net_ends.h"

#define LARGE (64u << 20)

static mst_mpi *mpi;
static bool serves, works; /* rank 0, rank 1 */

/* All ranks are here. */
static void meet(void)
{
    assert_int_equal(mpi->ops->barrier(0), MST_OK);
}

static mst_net_options own_options(void)
{
    return serves ? end_options(MST_ROLE_SERVER, 0) : end_options(MST_ROLE_WORKER, 1 + (uint32_t)mpi->rank);
}

/* A server and its workers that are connected; ranks beyond n have no part. */
static void open_with(end *e, const mst_net_options *options, int n)
{
    char bound[100];
    uint32_t peer;
    if (mpi->rank >= n)
        return;
    end_open(e, &mst_net_mpi, options);
    if (serves) {
        assert_int_equal(mst_net_listen(e->net, "mpi:0", bound, sizeof bound), MST_OK);
        assert_string_equal(bound, "mpi:0");
        PUMP(e, NULL, e->n_up == (unsigned)n - 1);
        return;
    }
    assert_int_equal(mst_net_connect(e->net, "mpi:0", mst_now_ns() + SOON, &peer), MST_OK);
    PUMP(e, NULL, e->n_up == 1);
    assert_int_equal(e->peer, peer);
}

static void open_pair(end *e)
{
    mst_net_options o = own_options();
    open_with(e, &o, 2);
}

/* Waits for the last words of both sides. */
static void close_end(end *e)
{
    if (e->net == NULL)
        return;
    assert_false(e->disordered || e->corrupt);
    end_close(e);
}

/* ---- messages ---- */

static void test_identities(void **state)
{
    (void)state;
    end e = {0};
    char name[200];
    open_pair(&e);
    if (serves) {
        assert_int_equal(e.who.role, MST_ROLE_WORKER);
        assert_int_equal(e.who.index, 2);
        assert_int_equal(e.who.incarnation, 1002);
        assert_string_equal(e.who.job, "a-job");
        mst_net_name_of(e.net, e.peer, name, sizeof name);
        assert_string_equal(name, "worker 2 (mpi:1)");
    }
    if (works) {
        assert_int_equal(e.who.role, MST_ROLE_SERVER);
        assert_int_equal(e.who.incarnation, 1000);
        mst_net_name_of(e.net, e.peer, name, sizeof name);
        assert_string_equal(name, "server 0 (mpi:0)");
        mst_net_name_of(e.net, 77, name, sizeof name);
        assert_string_equal(name, "an unknown peer");
    }
    close_end(&e);
    meet();
}

static void test_tiny_and_large(void **state)
{
    (void)state;
    end e = {0};
    int token;
    uint8_t *large = pattern_new(3, LARGE), *larger = pattern_new(4, LARGE), one = pattern(2, 0);
    open_pair(&e);
    if (works) {
        assert_int_equal(send_bytes(&e, 16, 1, NULL, 0, NULL), MST_OK);
        assert_int_equal(send_bytes(&e, 65535, 2, &one, 1, NULL), MST_OK);
        assert_int_equal(send_bytes(&e, 20, 3, large, LARGE, &token), MST_OK);
        PUMP(&e, NULL, e.n_sent == 1);
        assert_ptr_equal(e.token, &token);
    }
    if (serves) {
        PUMP(&e, NULL, e.n_messages >= 2);
        PUMP(&e, NULL, e.n_messages == 3);
        assert_int_equal(e.m.type, 20);
        assert_int_equal(e.m.flags, 3);
        assert_int_equal(e.m.count, 9);
        assert_true(e.m.step == 1ull << 40);
        assert_int_equal(e.n_body, 2);
        assert_int_equal(e.m.size, LARGE);
        assert_memory_equal(e.body, large, LARGE);
    }
    /* Both ways at once, with small ones behind the large. */
    if (serves || works) {
        assert_int_equal(send_bytes(&e, 20, 4, larger, LARGE, &token), MST_OK);
        assert_int_equal(send_bytes(&e, 20, 5, NULL, 0, NULL), MST_OK);
        unsigned expected = serves ? 5 : 2, sent = serves ? 1 : 2;
        PUMP(&e, NULL, e.n_messages == expected && e.n_sent == sent);
        assert_int_equal(mst_net_flush(e.net, mst_now_ns() + SOON), MST_OK);
        mst_net_stats s, all;
        mst_net_stats_get(e.net, e.peer, &s);
        mst_net_stats_get(e.net, MST_PEER_NONE, &all);
        uint64_t up = 2 * mst_frame_size(0) + mst_frame_size(1) + 2 * mst_frame_size(LARGE);
        uint64_t back = mst_frame_size(0) + mst_frame_size(LARGE);
        assert_true(s.bytes_in == (serves ? up : back) && s.bytes_out == (serves ? back : up));
        assert_int_equal(s.messages_in, expected);
        assert_memory_equal(&all, &s, sizeof all);
        assert_int_equal(s.queued, 0);
    }
    close_end(&e);
    meet();
    free(large);
    free(larger);
}

static void test_many_in_order(void **state)
{
    (void)state;
    enum { MANY = 20000 };
    end e = {0};
    uint8_t bytes[512];
    open_pair(&e);
    for (uint32_t i = 0; works && i < MANY; i++) {
        size_t size = i % 7 == 0 ? 0 : i % 501;
        for (size_t j = 0; j < size; j++)
            bytes[j] = pattern(i, j);
        assert_int_equal(send_bytes(&e, 20, i, bytes, size, NULL), MST_OK);
        memset(bytes, 0xee, size); /* without a token they may change at once */
        if (i % 1000 == 999)
            assert_int_equal(mst_net_poll(e.net, 0), MST_OK);
    }
    if (works)
        assert_int_equal(mst_net_flush(e.net, mst_now_ns() + SOON), MST_OK);
    if (serves)
        PUMP(&e, NULL, e.n_messages == MANY);
    close_end(&e);
    meet();
}

static void test_pieces(void **state)
{
    (void)state;
    end e = {0};
    uint8_t *bytes = pattern_new(1, 1 << 20);
    int tokens[64];
    static const size_t sizes[] = {1, 0, 40, 70000, 3, 0, 500000, 7};
    open_pair(&e);
    if (works) {
        mst_message m = {.type = 30, .request = 1, .size = 12345 /* is ignored */};
        mst_piece pieces[MST_PIECE_MAX + 1];
        size_t at = 0;
        for (int i = 0; i < MST_PIECE_MAX; at += sizes[i++])
            pieces[i] = (mst_piece){.data = sizes[i] > 0 ? bytes + at : NULL, .size = sizes[i]};
        assert_int_equal(mst_net_send(e.net, e.peer, &m, pieces, MST_PIECE_MAX, NULL), MST_OK);
        assert_int_equal(mst_net_send(e.net, e.peer, &m, pieces, MST_PIECE_MAX + 1, NULL), MST_EUSAGE);
        m.type = MST_NET_TYPES - 1;
        assert_int_equal(mst_net_send(e.net, e.peer, &m, pieces, 1, NULL), MST_EUSAGE);
        for (int i = 0; i < 64; i++) { /* each token comes back once, in order */
            m = (mst_message){.type = 30, .request = 1};
            assert_int_equal(
                mst_net_send(e.net, e.peer, &m, &(mst_piece){.data = bytes, .size = 100000}, 1, &tokens[i]),
                MST_OK);
        }
        assert_int_equal(e.n_sent, 0); /* inside poll only */
        PUMP(&e, NULL, e.n_sent == 64);
        assert_ptr_equal(e.token, &tokens[63]);
    }
    if (serves) {
        PUMP(&e, NULL, e.n_messages >= 1);
        PUMP(&e, NULL, e.n_messages == 65);
        assert_int_equal(e.bytes, 570051 + 64 * 100000);
        e.disordered = false; /* the same number 64 times */
    }
    close_end(&e);
    meet();
    free(bytes);
}

static void test_back_pressure(void **state)
{
    (void)state;
    enum { PART = 64 << 10, QUEUE = 1 << 20 };
    end e = {0};
    mst_net_options o = own_options();
    uint8_t *bytes = pattern_new(0, PART);
    unsigned accepted = 0;
    o.max_queue = QUEUE;
    open_with(&e, &o, 2);
    meet();
    if (works) {
        mst_net_stats stats;
        mst_status st;
        while ((st = send_bytes(&e, 20, 256 * accepted, bytes, PART, NULL)) == MST_OK)
            assert_true(++accepted < 10000);
        assert_int_equal(st, MST_ETIMEOUT);
        assert_non_null(strstr(mst_error_text(), "server 0 ("));
        mst_net_stats_get(e.net, e.peer, &stats);
        assert_true(stats.queued > QUEUE && stats.queued <= QUEUE + PART + 40);
        assert_int_equal(stats.messages_out, accepted);
        assert_int_equal(mst_net_flush(e.net, mst_now_ns() + 20 * MST_MS), MST_ETIMEOUT);
        assert_non_null(strstr(mst_error_text(), "server 0 ("));
    }
    assert_int_equal(mpi->ops->broadcast(0, &accepted, sizeof accepted, 1), MST_OK);
    if (works) {
        assert_int_equal(mst_net_flush(e.net, mst_now_ns() + SOON), MST_OK);
        assert_int_equal(send_bytes(&e, 20, 0, bytes, PART, NULL), MST_OK);
        assert_int_equal(mst_net_flush(e.net, mst_now_ns() + SOON), MST_OK);
    }
    if (serves) {
        PUMP(&e, NULL, e.n_messages == accepted + 1);
        assert_true(e.bytes == (uint64_t)(accepted + 1) * PART);
        e.disordered = false;
    }
    close_end(&e);
    meet();
    free(bytes);
}

/* ---- endings ---- */

static void test_peer_closes(void **state)
{
    (void)state;
    end e = {0};
    mst_net_stats stats;
    open_pair(&e);
    if (works) {
        assert_int_equal(send_bytes(&e, 20, 1, NULL, 0, NULL), MST_OK);
        close_end(&e);
    }
    if (serves) {
        PUMP(&e, NULL, e.n_down == 1);
        assert_int_equal(e.n_messages, 1); /* what was sent before has arrived */
        assert_int_equal(e.down_peer, e.peer);
        assert_int_equal(e.why.code, MST_EPEER);
        assert_string_equal(e.why.text, "worker 2 (mpi:1) left");
        assert_int_equal(send_bytes(&e, 20, 1, NULL, 0, NULL), MST_EPEER);
        mst_net_stats_get(e.net, e.peer, &stats);
        assert_int_equal(stats.messages_in, 1);
        for (int i = 0; i < 5; i++)
            assert_int_equal(mst_net_poll(e.net, 0), MST_OK);
        assert_int_equal(e.n_down, 1);
    }
    close_end(&e);
    meet();
}

static void test_drop_in_event(void **state)
{
    (void)state;
    end e = {0};
    open_pair(&e);
    if (works) {
        for (uint32_t i = 0; i < 10; i++)
            assert_int_equal(send_bytes(&e, 20, i, NULL, 0, NULL), MST_OK);
        PUMP(&e, NULL, e.n_down == 1);
        assert_string_equal(e.why.text, "server 0 (mpi:0) closed the connection: enough of you");
    }
    if (serves) {
        e.drop_on_message = true;
        PUMP(&e, NULL, e.n_messages == 1);
        for (int i = 0; i < 50; i++)
            assert_int_equal(mst_net_poll(e.net, mst_now_ns() + MST_MS), MST_OK);
        assert_int_equal(e.n_messages, 1);
        assert_int_equal(e.n_down, 0);
        assert_int_equal(send_bytes(&e, 20, 0, NULL, 0, NULL), MST_EPEER);
        mst_net_drop(e.net, e.peer, "again");
        mst_net_drop(e.net, 77, "nobody");
    }
    close_end(&e);
    meet();
}

static void test_refused_by_event(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        end e = {0};
        uint8_t *bytes = pattern_new(7, 300000);
        const char *expected = i == 0 ? "type 20 is not wanted here" : "message 7 is not wanted here";
        open_pair(&e);
        e.refuse_body = i == 0;
        e.refuse_message = i == 1;
        if (works) {
            assert_int_equal(send_bytes(&e, 20, 7, bytes, i == 0 ? 300000 : 300, bytes), MST_OK);
            PUMP(&e, NULL, e.n_down == 1);
            assert_non_null(strstr(e.why.text, expected));
        }
        if (serves) {
            PUMP(&e, NULL, e.n_down == 1);
            assert_non_null(strstr(e.why.text, "worker 2 (mpi:1) was dropped: "));
            assert_non_null(strstr(e.why.text, expected));
            assert_int_equal(e.n_messages, i);
        }
        close_end(&e);
        meet();
        free(bytes);
    }
}

static void test_oversize_body(void **state)
{
    (void)state;
    end e = {0};
    mst_net_options o = own_options();
    uint8_t *bytes = pattern_new(1, 100001);
    o.max_body = 100000;
    open_with(&e, &o, 2);
    if (works) {
        assert_int_equal(send_bytes(&e, 20, 1, bytes, 100000, NULL), MST_OK);
        assert_int_equal(send_bytes(&e, 20, 2, bytes, 100001, NULL), MST_OK);
    }
    if (works || serves) {
        PUMP(&e, NULL, e.n_down == 1);
        assert_non_null(strstr(e.why.text, "a body of 100001 bytes, at most 100000 are accepted"));
        assert_int_equal(e.n_body, serves);
    }
    close_end(&e);
    meet();
    free(bytes);
}

static void test_destroy_midway(void **state)
{
    (void)state;
    end e = {0};
    uint8_t *bytes = pattern_new(1, 8 << 20), *copy = pattern_new(1, 8 << 20);
    open_pair(&e);
    if (works) {
        assert_int_equal(send_bytes(&e, 20, 1, bytes, 8 << 20, bytes), MST_OK);
        assert_int_equal(send_bytes(&e, 20, 257 /* the same pattern */, bytes, 8 << 20, NULL), MST_OK);
        end_close(&e);
        memset(bytes, 0, 8 << 20);
    }
    if (serves) {
        assert_int_equal(send_bytes(&e, 20, 1, copy, 8 << 20, copy), MST_OK);
        PUMP(&e, NULL, e.n_down == 1);
        assert_false(e.corrupt);
        e.disordered = false;
    }
    close_end(&e);
    meet();
    free(bytes);
    free(copy);
    mst_net_destroy(NULL);
}

/* ---- joining ---- */

static void test_refused_at_the_door(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        end e = {0};
        mst_net_options o = own_options();
        uint32_t peer;
        if (works && i == 0)
            snprintf(o.self.job, sizeof o.self.job, "another-job");
        else if (works)
            o.secret = i == 1 ? "open barley" : NULL;
        if (serves || works)
            end_open(&e, &mst_net_mpi, &o);
        if (serves)
            assert_int_equal(mst_net_listen(e.net, "mpi:0", NULL, 0), MST_OK);
        if (works) {
            assert_int_equal(mst_net_connect(e.net, "mpi:0", mst_now_ns() + SOON, &peer), MST_OK);
            assert_int_equal(send_bytes(&e, 20, 1, NULL, 0, NULL), MST_EPEER); /* not up yet */
            PUMP(&e, NULL, e.n_down == 1);
            assert_int_equal(e.down_peer, peer);
            assert_int_equal(e.why.code, MST_EUSAGE);
            assert_non_null(strstr(e.why.text, "server 0 (mpi:0)"));
            assert_non_null(strstr(e.why.text, i == 0 ? "belongs to job a-job, this worker to job another-job"
                                                      : "secret"));
        }
        if (serves)
            for (int k = 0; k < 100; k++)
                assert_int_equal(mst_net_poll(e.net, mst_now_ns() + MST_MS), MST_OK);
        assert_int_equal(e.n_up, 0);
        close_end(&e);
        meet();
    }
}

static void test_connect_before_listen(void **state)
{
    (void)state;
    end e = {0};
    mst_net_options o = own_options();
    uint32_t peer;
    o.self.job[0] = '\0'; /* fits any */
    if (works) {
        end_open(&e, &mst_net_mpi, &o);
        assert_int_equal(mst_net_connect(e.net, "mpi:0", mst_now_ns() + SOON, &peer), MST_OK);
        for (int i = 0; i < 20; i++)
            assert_int_equal(mst_net_poll(e.net, mst_now_ns() + MST_MS), MST_OK);
        assert_int_equal(e.n_up + e.n_down, 0);
    }
    meet();
    if (serves) {
        end_open(&e, &mst_net_mpi, &o);
        assert_int_equal(mst_net_listen(e.net, "mpi:0", NULL, 0), MST_OK);
    }
    if (serves || works)
        PUMP(&e, NULL, e.n_up == 1);
    close_end(&e);
    meet();
}

static void test_nobody_there(void **state)
{
    (void)state;
    end e = {0};
    mst_net_options o = own_options();
    if (works) {
        uint32_t peer;
        end_open(&e, &mst_net_mpi, &o);
        uint64_t start = mst_now_ns();
        assert_int_equal(mst_net_connect(e.net, "mpi:0", start + 300 * MST_MS, &peer), MST_OK);
        PUMP(&e, NULL, e.n_down == 1);
        assert_true(mst_now_ns() - start >= 300 * MST_MS && mst_now_ns() - start < 3 * MST_S);
        assert_int_equal(e.why.code, MST_ETIMEOUT);
        assert_non_null(strstr(e.why.text, "mpi:0 was not reached within 0."));
        assert_non_null(strstr(e.why.text, " s: that rank does not listen"));
        assert_int_equal(e.n_up, 0);
    }
    close_end(&e);
    meet();
    /* An unanswered greeting does not affect later connections. */
    open_pair(&e);
    if (works || serves)
        assert_int_equal(e.n_up, 1);
    close_end(&e);
    meet();
}

static void test_addresses(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "mpi:", "mpi:x", "mpi:1 ", "127.0.0.1:5000", "mpi:99", "mpi:-1"};
    end e = {0};
    mst_net *second = NULL;
    mst_net_options o = own_options();
    char own[32], other[32];
    uint32_t peer;
    snprintf(own, sizeof own, "mpi:%d", mpi->rank);
    snprintf(other, sizeof other, "mpi:%d", mpi->rank == 0);
    end_open(&e, &mst_net_mpi, &o);
    assert_int_equal(mst_net_new(&mst_net_mpi, &o, &end_events, &e, &second), MST_EUSAGE);
    assert_string_equal(mst_error_text(), "net mpi: this process has one already; MPI serves only one");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(mst_net_listen(e.net, bad[i], NULL, 0), MST_EUSAGE);
        assert_int_equal(mst_net_connect(e.net, bad[i], mst_now_ns(), &peer), MST_EUSAGE);
        assert_ptr_equal(strstr(mst_error_text(), bad[i]), mst_error_text());
    }
    assert_int_equal(mst_net_connect(e.net, own, mst_now_ns(), &peer), MST_EUSAGE);
    assert_int_equal(mst_net_listen(e.net, other, NULL, 0), MST_EUSAGE);
    assert_int_equal(mst_net_listen(e.net, own, NULL, 0), MST_OK);
    assert_int_equal(mst_net_listen(e.net, own, NULL, 0), MST_EEXIST);
    close_end(&e);
    meet();
}

/* ---- waiting ---- */

static mst_net *g_wake;

static void wake_on_signal(int signal)
{
    (void)signal;
    mst_net_wake(g_wake);
}

static void *wake_thread(void *arg)
{
    mst_net_wake(arg);
    return NULL;
}

static void test_wake(void **state)
{
    (void)state;
    end e = {0};
    mst_net_options o = own_options();
    pthread_t thread;
    end_open(&e, &mst_net_mpi, &o);
    uint64_t start = mst_now_ns();
    mst_net_wake(e.net); /* the next poll returns */
    assert_int_equal(mst_net_poll(e.net, start + 60 * MST_S), MST_OK);
    assert_int_equal(mst_net_poll(e.net, mst_now_ns() + 20 * MST_MS), MST_OK); /* only once: this one waits */
    assert_true(mst_now_ns() - start >= 20 * MST_MS);
    assert_int_equal(pthread_create(&thread, NULL, wake_thread, e.net), 0);
    assert_int_equal(mst_net_poll(e.net, start + 60 * MST_S), MST_OK);
    pthread_join(thread, NULL);
    struct sigaction action = {.sa_handler = wake_on_signal, .sa_flags = SA_RESTART}, before;
    g_wake = e.net;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    assert_int_equal(raise(SIGUSR1), 0);
    assert_int_equal(mst_net_poll(e.net, start + 60 * MST_S), MST_OK);
    sigaction(SIGUSR1, &before, NULL);
    assert_true(mst_now_ns() - start < 30 * MST_S);
    close_end(&e);
    meet();
}

/* ---- several workers ---- */

#define PEERS 64

/* A server that answers each worker with what it sent. */
typedef struct answers {
    mst_net *net;
    uint8_t *bodies[PEERS];
    unsigned n_up, n_down, n_messages;
    bool bad;
} answers;

static void answers_up(void *arg, uint32_t peer, const mst_identity *who)
{
    answers *a = arg;
    a->n_up++;
    a->bad |= peer >= PEERS || who->index >= PEERS;
}

static void answers_down(void *arg, uint32_t peer, const mst_net_loss *why)
{
    (void)peer;
    answers *a = arg;
    a->n_down++;
    a->bad |= why->reason != MST_NET_CLOSED;
}

static mst_status answers_body(void *arg, uint32_t peer, const mst_message *m, void **out)
{
    answers *a = arg;
    free(a->bodies[peer]);
    *out = a->bodies[peer] = malloc((size_t)m->size);
    return *out != NULL ? MST_OK : mst_fail(MST_ENOMEM, "no memory for a body");
}

static mst_status answers_message(void *arg, uint32_t peer, const mst_message *m, void *body)
{
    answers *a = arg;
    mst_piece piece = {.data = body, .size = (size_t)m->size};
    a->n_messages++;
    return mst_net_send(a->net, peer, m, &piece, 1, NULL);
}

static void serve_all(unsigned n_workers, unsigned rounds)
{
    static const mst_net_events events = {.up = answers_up,
                                          .down = answers_down,
                                          .body = answers_body,
                                          .message = answers_message,
                                          .sent = end_sent};
    answers a = {0};
    mst_net_options o = own_options();
    assert_int_equal(mst_net_new(&mst_net_mpi, &o, &events, &a, &a.net), MST_OK);
    assert_int_equal(mst_net_listen(a.net, "mpi:0", NULL, 0), MST_OK);
    uint64_t until = mst_now_ns() + 2 * SOON;
    while (a.n_down < n_workers && mst_now_ns() < until)
        assert_int_equal(mst_net_poll(a.net, until), MST_OK);
    assert_int_equal(a.n_down, n_workers);
    assert_int_equal(a.n_messages, rounds * n_workers);
    assert_false(a.bad);
    mst_net_destroy(a.net);
    for (int i = 0; i < PEERS; i++)
        free(a.bodies[i]);
}

static void test_all_ranks(void **state)
{
    (void)state;
    enum { ROUNDS = 300 };
    end e = {0};
    mst_net_options o = own_options();
    if (serves) {
        serve_all((unsigned)mpi->size - 1, ROUNDS);
    } else {
        open_with(&e, &o, mpi->size);
        for (uint32_t i = 0; i < ROUNDS; i++) {
            uint32_t size = i % 50 == 49 ? 1 << 20 : i * 200;
            uint8_t *bytes = pattern_new(i, size + 1);
            unsigned sent = e.n_sent;
            assert_int_equal(send_bytes(&e, 20, i, bytes, size, bytes), MST_OK);
            PUMP(&e, NULL, e.n_messages == i + 1 && e.n_sent == sent + 1);
            free(bytes);
        }
        close_end(&e);
    }
    meet();
}

/* ---- short of memory ---- */

static void test_no_memory(void **state)
{
    (void)state;
    mst_alloc_stats before, after;
    meet();
    mst_alloc_stats_get(&before);
    for (uint64_t k = 1; k < 24; k++) {
        end e = {0};
        mst_net_options o = own_options();
        uint32_t peer = MST_PEER_NONE;
        uint8_t *bytes = pattern_new(1, 1 << 20);
        o.hello_timeout_ms = 100;
        if (serves || works) {
            mst_alloc_fail_at(serves == (k % 2 == 0) ? (k + 1) / 2 : 0);
            mst_status st = mst_net_new(&mst_net_mpi, &o, &end_events, &e, &e.net);
            if (st == MST_OK && serves)
                st = mst_net_listen(e.net, "mpi:0", NULL, 0);
            else if (st == MST_OK)
                st = mst_net_connect(e.net, "mpi:0", mst_now_ns() + 100 * MST_MS, &peer);
            uint64_t until = mst_now_ns() + 150 * MST_MS;
            while (st == MST_OK && mst_now_ns() < until && e.n_down == 0 && e.n_messages < 2) {
                if (works && e.n_up == 1 && e.n_sent == 0 && e.token == NULL) {
                    (void)send_bytes(&e, 20, 1, bytes, 1 << 20, bytes);
                    (void)send_bytes(&e, 20, 2, bytes, 1000, NULL);
                    e.token = bytes;
                }
                assert_int_equal(mst_net_poll(e.net, mst_now_ns() + MST_MS), MST_OK);
            }
            mst_alloc_fail_at(0);
        }
        e.corrupt = e.disordered = false; /* of the second message's pattern */
        end_close(&e);
        meet();
        free(bytes);
    }
    mst_alloc_stats_get(&after);
    assert_int_equal(after.blocks, before.blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identities),
        cmocka_unit_test(test_tiny_and_large),
        cmocka_unit_test(test_many_in_order),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_back_pressure),
        cmocka_unit_test(test_peer_closes),
        cmocka_unit_test(test_drop_in_event),
        cmocka_unit_test(test_refused_by_event),
        cmocka_unit_test(test_oversize_body),
        cmocka_unit_test(test_destroy_midway),
        cmocka_unit_test(test_refused_at_the_door),
        cmocka_unit_test(test_connect_before_listen),
        cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_wake),
        cmocka_unit_test(test_all_ranks),
        cmocka_unit_test(test_no_memory),
    };
    mst_status st = mst_mpi_start(NULL, &mpi);
    if (st != MST_OK) {
        fprintf(stderr, "error: %s\n", mst_error_text());
        return mst_status_exit_code(st);
    }
    serves = mpi->rank == 0;
    works = mpi->rank == 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed != 0)
        return 1;
    return mst_mpi_end(mpi) == MST_OK ? 0 : 1;
}
