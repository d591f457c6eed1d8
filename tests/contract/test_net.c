/* The contract of net engines, over the registry: whole messages of all sizes in order, bodies in the
 * receiver's memory, back-pressure, ends with reasons, refusals, deadlines, wakes. test_net_tcp.c has the
 * tests that need processes and sockets. */
#include <pthread.h>
#include <signal.h>

#include "base/alloc.h"
#include "net_ends.h"

#define LARGE (64u << 20)

/* An engine and the kind of address it is tried with. */
typedef struct carrier {
    const mst_net_engine *engine;
    const char *address; /* %d: numbers that make it unique */
    mst_net_tls tls;
    mst_net_seal seal;
    uint32_t busy_poll_us;
} carrier;

static carrier carriers[8];
static unsigned n_carriers;
static unsigned n_names;

static void fresh_address(const carrier *c, char *out, size_t size)
{
    snprintf(out, size, c->address, (int)getpid(), ++n_names);
}

static void listen_on(const carrier *c, end *e, char *bound, size_t size)
{
    char address[100];
    fresh_address(c, address, sizeof address);
    assert_int_equal(mst_net_listen(e->net, address, bound, size), MST_OK);
}

/* A server and a worker that are connected. */
static void open_pair(const carrier *c, end *server, end *worker, const mst_net_options *of_server,
                      const mst_net_options *of_worker)
{
    mst_net_options s = end_options(MST_ROLE_SERVER, 0), w = end_options(MST_ROLE_WORKER, 2);
    char bound[100];
    uint32_t peer;
    end_open(server, c->engine, of_server != NULL ? of_server : &s);
    end_open(worker, c->engine, of_worker != NULL ? of_worker : &w);
    listen_on(c, server, bound, sizeof bound);
    assert_int_equal(mst_net_connect(worker->net, bound, mst_now_ns() + SOON, &peer), MST_OK);
    PUMP(server, worker, server->n_up == 1 && worker->n_up == 1);
    assert_int_equal(worker->peer, peer);
}

static void close_pair(end *server, end *worker)
{
    assert_false(server->disordered || worker->disordered);
    assert_false(server->corrupt || worker->corrupt);
    end_close(worker);
    end_close(server);
}

/* ---- messages ---- */

static void test_identities(void **state)
{
    end server, worker;
    char name[200];
    open_pair(*state, &server, &worker, NULL, NULL);
    assert_int_equal(server.who.role, MST_ROLE_WORKER);
    assert_int_equal(server.who.index, 2);
    assert_int_equal(server.who.incarnation, 1002);
    assert_string_equal(server.who.job, "a-job");
    assert_int_equal(worker.who.role, MST_ROLE_SERVER);
    assert_int_equal(worker.who.incarnation, 1000);
    mst_net_name_of(server.net, server.peer, name, sizeof name);
    assert_ptr_equal(strstr(name, "worker 2"), name);
    mst_net_name_of(worker.net, worker.peer, name, sizeof name);
    assert_ptr_equal(strstr(name, "server 0"), name);
    mst_net_name_of(worker.net, 77, name, sizeof name);
    assert_string_equal(name, "an unknown peer");
    close_pair(&server, &worker);
}

static void test_tiny_and_large(void **state)
{
    end server, worker;
    int token;
    uint8_t *large = pattern_new(3, LARGE), one = pattern(2, 0);
    open_pair(*state, &server, &worker, NULL, NULL);
    assert_int_equal(send_bytes(&worker, 16, 1, NULL, 0, NULL), MST_OK);
    assert_int_equal(send_bytes(&worker, 65535, 2, &one, 1, NULL), MST_OK);
    PUMP(&server, &worker, server.n_messages == 2);
    assert_int_equal(server.m.type, 65535);
    assert_int_equal(server.m.flags, 3);
    assert_int_equal(server.m.count, 9);
    assert_true(server.m.step == 1ull << 40);
    assert_int_equal(server.m.size, 1);
    assert_int_equal(server.n_body, 1);

    assert_int_equal(send_bytes(&worker, 20, 3, large, LARGE, &token), MST_OK);
    PUMP(&server, &worker, server.n_messages == 3 && worker.n_sent == 1);
    assert_ptr_equal(worker.token, &token);
    assert_int_equal(server.m.size, LARGE);
    assert_memory_equal(server.body, large, LARGE);

    /* Both ways at once, with small ones behind the large. */
    for (uint32_t i = 0; i < LARGE; i++)
        large[i] = pattern(4, i);
    server.peer = 0;
    assert_int_equal(send_bytes(&worker, 20, 4, large, LARGE, &token), MST_OK);
    assert_int_equal(send_bytes(&server, 20, 4, large, LARGE, &token), MST_OK);
    assert_int_equal(send_bytes(&worker, 20, 5, NULL, 0, NULL), MST_OK);
    assert_int_equal(send_bytes(&server, 20, 5, NULL, 0, NULL), MST_OK);
    PUMP(&server, &worker,
         server.n_messages == 5 && worker.n_messages == 2 && server.n_sent == 1 && worker.n_sent == 2);

    mst_net_stats s, w, all;
    mst_net_stats_get(server.net, server.peer, &s);
    mst_net_stats_get(worker.net, worker.peer, &w);
    mst_net_stats_get(worker.net, MST_PEER_NONE, &all);
    assert_true(s.bytes_in == 2 * mst_frame_size(0) + mst_frame_size(1) + 2 * mst_frame_size(LARGE) &&
                s.messages_in == 5);
    assert_true(w.bytes_out == s.bytes_in && w.messages_out == 5 && w.bytes_in == s.bytes_out);
    assert_memory_equal(&all, &w, sizeof all);
    assert_int_equal(w.queued, 0);
    close_pair(&server, &worker);
    free(large);
}

static void test_many_in_order(void **state)
{
    enum { MANY = 20000 };
    end server, worker;
    uint8_t bytes[512];
    open_pair(*state, &server, &worker, NULL, NULL);
    for (uint32_t i = 0; i < MANY; i++) {
        size_t size = i % 7 == 0 ? 0 : i % 501;
        for (size_t j = 0; j < size; j++)
            bytes[j] = pattern(i, j);
        assert_int_equal(send_bytes(&worker, 20, i, bytes, size, NULL), MST_OK);
        memset(bytes, 0xee, size); /* without a token they may change at once */
        if (i % 1000 == 999)
            pump_once(&server, &worker);
    }
    PUMP(&server, &worker, server.n_messages == MANY);
    close_pair(&server, &worker);
}

static void test_pieces(void **state)
{
    end server, worker;
    uint8_t *bytes = pattern_new(1, 1 << 20);
    int tokens[64];
    open_pair(*state, &server, &worker, NULL, NULL);
    mst_message m = {.type = 30, .request = 1, .size = 12345 /* is ignored */};
    mst_piece pieces[MST_PIECE_MAX + 1];
    size_t at = 0;
    static const size_t sizes[] = {1, 0, 40, 70000, 3, 0, 500000, 7};
    for (int i = 0; i < MST_PIECE_MAX; at += sizes[i++])
        pieces[i] = (mst_piece){.data = sizes[i] > 0 ? bytes + at : NULL, .size = sizes[i]};
    assert_int_equal(mst_net_send(worker.net, worker.peer, &m, pieces, MST_PIECE_MAX, NULL), MST_OK);
    PUMP(&server, &worker, server.n_messages == 1);
    assert_int_equal(server.m.size, at);
    assert_int_equal(mst_net_send(worker.net, worker.peer, &m, pieces, MST_PIECE_MAX + 1, NULL), MST_EUSAGE);
    m.type = MST_NET_TYPES - 1;
    assert_int_equal(mst_net_send(worker.net, worker.peer, &m, pieces, 1, NULL), MST_EUSAGE);

    /* Each token comes back once, in order. */
    server.n_messages = 0;
    for (int i = 0; i < 64; i++) {
        m = (mst_message){.type = 30, .request = 1};
        assert_int_equal(mst_net_send(worker.net, worker.peer, &m,
                                      &(mst_piece){.data = bytes, .size = 100000}, 1, &tokens[i]),
                         MST_OK);
    }
    assert_int_equal(worker.n_sent, 0); /* inside poll only */
    PUMP(&server, &worker, server.n_messages == 64 && worker.n_sent == 64);
    assert_ptr_equal(worker.token, &tokens[63]);
    server.disordered = false; /* the same number 64 times */
    close_pair(&server, &worker);
    free(bytes);
}

static void test_back_pressure(void **state)
{
    enum { PART = 64 << 10, QUEUE = 1 << 20 };
    end server, worker;
    mst_net_options w = end_options(MST_ROLE_WORKER, 2);
    mst_net_stats stats;
    mst_alloc_stats before, after;
    uint8_t *bytes = pattern_new(0, PART);
    w.max_queue = QUEUE;
    open_pair(*state, &server, &worker, NULL, &w);
    mst_alloc_stats_get(&before);
    unsigned accepted = 0;
    mst_status st;
    while ((st = send_bytes(&worker, 20, 256 * accepted, bytes, PART, NULL)) ==
           MST_OK) /* 256: the same pattern */
        assert_true(++accepted < 10000);
    assert_int_equal(st, MST_ETIMEOUT);
    assert_non_null(strstr(mst_error_text(), "server 0"));
    mst_alloc_stats_get(&after);
    mst_net_stats_get(worker.net, worker.peer, &stats);
    assert_true(stats.queued > QUEUE && stats.queued <= QUEUE + PART + 40);
    assert_true(after.bytes - before.bytes < 2 * QUEUE);
    assert_int_equal(stats.messages_out, accepted);
    assert_int_equal(mst_net_flush(worker.net, mst_now_ns() + 20 * MST_MS), MST_ETIMEOUT);
    assert_non_null(strstr(mst_error_text(), "server 0"));
    PUMP(&server, &worker, server.n_messages == accepted);
    assert_true(server.bytes == (uint64_t)accepted * PART);
    assert_int_equal(send_bytes(&worker, 20, 0, bytes, PART, NULL), MST_OK);
    PUMP(&server, &worker, server.n_messages == accepted + 1);
    server.disordered = false;
    close_pair(&server, &worker);
    free(bytes);
}

/* What poll says that it does: reads before messages come, writes what was queued, waits where nothing does.
 */
static void test_doing(void **state)
{
    end server, worker;
    int token;
    uint8_t *large = pattern_new(1, LARGE);
    open_pair(*state, &server, &worker, NULL, NULL);
    memset(server.n_doing, 0, sizeof server.n_doing);
    memset(worker.n_doing, 0, sizeof worker.n_doing);
    assert_int_equal(send_bytes(&worker, 20, 1, large, LARGE, &token), MST_OK);
    mst_net_stats stats;
    mst_net_stats_get(worker.net, MST_PEER_NONE, &stats);
    PUMP(&server, &worker, server.n_messages == 1 && worker.n_sent == 1);
    assert_true(server.n_doing[MST_NET_READS] > 0);
    assert_false(server.misled);
    if (((const carrier *)*state)->engine == &mst_net_tcp) {
        assert_true(stats.queued > 0);
        assert_true(worker.n_doing[MST_NET_WRITES] > 0);
    }
    /* one poll reads heartbeats and continues to wait, unless its deadline has passed meanwhile */
    uint64_t until = mst_now_ns() + MST_S;
    unsigned waits = server.n_doing[MST_NET_WAITS];
    while (mst_now_ns() < until) {
        assert_int_equal(mst_net_poll(server.net, until), MST_OK);
        assert_true(server.doing == MST_NET_WAITS || mst_now_ns() >= until);
    }
    assert_true(server.n_doing[MST_NET_WAITS] > waits);
    assert_int_equal(server.n_messages, 1);
    close_pair(&server, &worker);
    free(large);
}

/* ---- endings ---- */

static void test_peer_closes(void **state)
{
    end server, worker;
    mst_net_stats stats;
    open_pair(*state, &server, &worker, NULL, NULL);
    assert_int_equal(send_bytes(&worker, 20, 1, NULL, 0, NULL), MST_OK);
    end_close(&worker);
    PUMP(&server, NULL, server.n_down == 1);
    assert_int_equal(server.n_messages, 1); /* what was sent before has arrived */
    assert_int_equal(server.down_peer, server.peer);
    assert_int_equal(server.why.code, MST_EPEER);
    assert_ptr_equal(strstr(server.why.text, "worker 2"), server.why.text);
    assert_non_null(strstr(server.why.text, " left"));
    assert_int_equal(send_bytes(&server, 20, 1, NULL, 0, NULL), MST_EPEER);
    mst_net_stats_get(server.net, server.peer, &stats);
    assert_int_equal(stats.messages_in, 1);
    for (int i = 0; i < 5; i++)
        assert_int_equal(mst_net_poll(server.net, 0), MST_OK);
    assert_int_equal(server.n_down, 1);
    end_close(&server);
}

static void test_drop_in_event(void **state)
{
    end server, worker;
    open_pair(*state, &server, &worker, NULL, NULL);
    server.drop_on_message = true;
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(send_bytes(&worker, 20, i, NULL, 0, NULL), MST_OK);
    PUMP(&server, &worker, worker.n_down == 1);
    assert_non_null(strstr(worker.why.text, "server 0"));
    assert_non_null(strstr(worker.why.text, " closed the connection: enough of you"));
    assert_int_equal(server.n_messages, 1);
    assert_int_equal(server.n_down, 0);
    assert_int_equal(send_bytes(&server, 20, 0, NULL, 0, NULL), MST_EPEER);
    mst_net_drop(server.net, server.peer, "again");
    mst_net_drop(server.net, 77, "nobody");
    close_pair(&server, &worker);
}

static void test_refused_by_event(void **state)
{
    for (int i = 0; i < 2; i++) {
        end server, worker;
        uint8_t *bytes = pattern_new(7, 300000);
        const char *says = i == 0 ? "type 20 is not wanted here" : "message 7 is not wanted here";
        open_pair(*state, &server, &worker, NULL, NULL);
        server.refuse_body = i == 0;
        server.refuse_message = i == 1;
        assert_int_equal(send_bytes(&worker, 20, 7, bytes, i == 0 ? 300000 : 300, bytes), MST_OK);
        PUMP(&server, &worker, worker.n_down == 1 && server.n_down == 1);
        assert_non_null(strstr(worker.why.text, says));
        assert_non_null(strstr(server.why.text, "worker 2"));
        assert_non_null(strstr(server.why.text, "was dropped"));
        assert_non_null(strstr(server.why.text, says));
        assert_int_equal(server.n_messages, i);
        close_pair(&server, &worker);
        free(bytes);
    }
}

static void test_oversize_body(void **state)
{
    end server, worker;
    mst_net_options s = end_options(MST_ROLE_SERVER, 0);
    uint8_t *bytes = pattern_new(1, 1001);
    s.max_body = 1000;
    open_pair(*state, &server, &worker, &s, NULL);
    assert_int_equal(send_bytes(&worker, 20, 1, bytes, 1000, NULL), MST_OK);
    PUMP(&server, &worker, server.n_messages == 1);
    assert_int_equal(send_bytes(&worker, 20, 2, bytes, 1001, NULL), MST_OK);
    PUMP(&server, &worker, worker.n_down == 1 && server.n_down == 1);
    assert_int_equal(server.n_body, 1);
    assert_non_null(strstr(worker.why.text, "a body of 1001 bytes, at most 1000 are accepted"));
    assert_non_null(strstr(server.why.text, "a body of 1001 bytes, at most 1000 are accepted"));
    close_pair(&server, &worker);
    free(bytes);
}

static void test_destroy_midway(void **state)
{
    const carrier *c = *state;
    end server, worker, other;
    uint8_t *bytes = pattern_new(1, 8 << 20);
    char address[100];
    uint32_t peer;
    mst_net_options w = end_options(MST_ROLE_WORKER, 3);
    open_pair(c, &server, &worker, NULL, NULL);
    end_open(&other, c->engine, &w);
    fresh_address(c, address, sizeof address);
    if (strstr(address, ":0") != NULL)
        snprintf(address, sizeof address, "127.0.0.1:1");
    assert_int_equal(mst_net_connect(other.net, address, mst_now_ns() + SOON, &peer),
                     MST_OK); /* the listener never accepts */
    assert_int_equal(mst_net_poll(other.net, 0), MST_OK);
    assert_int_equal(send_bytes(&worker, 20, 1, bytes, 8 << 20, bytes), MST_OK);
    assert_int_equal(send_bytes(&server, 20, 1, bytes, 8 << 20, bytes), MST_OK);
    assert_int_equal(send_bytes(&worker, 20, 2, bytes, 8 << 20, NULL), MST_OK);
    assert_int_equal(mst_net_poll(server.net, 0), MST_OK);
    end_close(&worker);
    memset(bytes, 0, 8 << 20);
    PUMP(&server, NULL, server.n_down == 1);
    end_close(&other);
    end_close(&server);
    free(bytes);
    mst_net_destroy(NULL);
}

/* ---- joining ---- */

static void test_refused_at_the_door(void **state)
{
    const carrier *c = *state;
    for (int i = 0; i < (c->tls == MST_NET_TLS_ON ? 2 : 3); i++) { /* TLS needs a secret */
        end server, worker;
        mst_net_options s = end_options(MST_ROLE_SERVER, 0), w = end_options(MST_ROLE_WORKER, 2);
        char bound[100];
        uint32_t peer;
        if (i == 0)
            snprintf(w.self.job, sizeof w.self.job, "another-job");
        else
            w.secret = i == 1 ? "open barley" : NULL;
        end_open(&server, c->engine, &s);
        end_open(&worker, c->engine, &w);
        listen_on(c, &server, bound, sizeof bound);
        assert_int_equal(mst_net_connect(worker.net, bound, mst_now_ns() + SOON, &peer), MST_OK);
        assert_int_equal(send_bytes(&worker, 20, 1, NULL, 0, NULL), MST_EPEER); /* not up yet */
        PUMP(&server, &worker, worker.n_down == 1);
        assert_int_equal(worker.down_peer, peer);
        assert_int_equal(worker.n_up + server.n_up + server.n_down, 0);
        assert_int_equal(worker.why.code, MST_EUSAGE);
        if (i != 1 || c->tls != MST_NET_TLS_ON) /* TLS ends before they exchange identities */
            assert_non_null(strstr(worker.why.text, "server 0"));
        assert_non_null(strstr(worker.why.text, bound));
        assert_non_null(strstr(worker.why.text,
                               i == 0 ? "belongs to job a-job, this worker to job another-job" : "secret"));
        close_pair(&server, &worker);
    }
}

static void test_empty_job_fits_any(void **state)
{
    end server, worker;
    mst_net_options w = end_options(MST_ROLE_PROBE, 0);
    w.self.job[0] = '\0';
    open_pair(*state, &server, &worker, NULL, &w);
    assert_int_equal(server.who.role, MST_ROLE_PROBE);
    close_pair(&server, &worker);
}

static void test_connect_before_listen(void **state)
{
    const carrier *c = *state;
    end server, worker;
    mst_net_options s = end_options(MST_ROLE_SERVER, 0), w = end_options(MST_ROLE_WORKER, 2);
    char address[100], bound[100];
    uint32_t peer;
    end_open(&server, c->engine, &s);
    listen_on(c, &server, bound, sizeof bound); /* finds a free port, then frees it */
    end_close(&server);
    snprintf(address, sizeof address, "%s", bound);
    end_open(&worker, c->engine, &w);
    assert_int_equal(mst_net_connect(worker.net, address, mst_now_ns() + SOON, &peer), MST_OK);
    for (int i = 0; i < 20; i++)
        assert_int_equal(mst_net_poll(worker.net, mst_now_ns() + MST_MS), MST_OK);
    assert_int_equal(worker.n_up + worker.n_down, 0);
    end_open(&server, c->engine, &s);
    assert_int_equal(mst_net_listen(server.net, address, bound, sizeof bound), MST_OK);
    PUMP(&server, &worker, worker.n_up == 1 && server.n_up == 1);
    close_pair(&server, &worker);
}

static void test_nobody_there(void **state)
{
    const carrier *c = *state;
    end server, worker;
    mst_net_options s = end_options(MST_ROLE_SERVER, 0), w = end_options(MST_ROLE_WORKER, 2);
    char bound[100];
    uint32_t peer;
    end_open(&server, c->engine, &s);
    listen_on(c, &server, bound, sizeof bound);
    end_close(&server);
    end_open(&worker, c->engine, &w);
    uint64_t start = mst_now_ns();
    assert_int_equal(mst_net_connect(worker.net, bound, start + 300 * MST_MS, &peer), MST_OK);
    PUMP(&worker, NULL, worker.n_down == 1);
    assert_true(mst_now_ns() - start >= 300 * MST_MS && mst_now_ns() - start < 3 * MST_S);
    assert_int_equal(worker.why.code, MST_ETIMEOUT);
    assert_ptr_equal(strstr(worker.why.text, bound), worker.why.text);
    assert_non_null(strstr(worker.why.text, "was not reached within 0."));
    assert_int_equal(worker.n_up, 0);
    end_close(&worker);
}

static void test_address_in_use(void **state)
{
    const carrier *c = *state;
    end server, other;
    mst_net_options s = end_options(MST_ROLE_SERVER, 0);
    char bound[100], again[100];
    end_open(&server, c->engine, &s);
    end_open(&other, c->engine, &s);
    listen_on(c, &server, bound, sizeof bound);
    assert_int_equal(mst_net_listen(other.net, bound, again, sizeof again), MST_EEXIST);
    assert_ptr_equal(strstr(mst_error_text(), bound), mst_error_text());
    end_close(&server);
    assert_int_equal(mst_net_listen(other.net, bound, again, sizeof again), MST_OK); /* free again */
    end_close(&other);
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

static void *signal_thread(void *arg)
{
    pthread_kill(*(pthread_t *)arg, SIGUSR1);
    return NULL;
}

static void test_wake(void **state)
{
    const carrier *c = *state;
    end e;
    mst_net_options o = end_options(MST_ROLE_SERVER, 0);
    pthread_t thread, self = pthread_self();
    end_open(&e, c->engine, &o);
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
    assert_int_equal(pthread_create(&thread, NULL, signal_thread, &self), 0);
    assert_int_equal(mst_net_poll(e.net, start + 60 * MST_S), MST_OK);
    pthread_join(thread, NULL);
    sigaction(SIGUSR1, &before, NULL);
    assert_true(mst_now_ns() - start < 30 * MST_S);
    assert_int_equal(mst_net_poll(e.net, 0), MST_OK);
    end_close(&e);
}

static void test_idle_uses_no_processor(void **state)
{
    const carrier *c = *state;
    end server, worker;
    struct timespec before, after;
    if (!c->engine->sleeps)
        skip();
    open_pair(c, &server, &worker, NULL, NULL);
    mst_net_poll(worker.net, 0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    uint64_t until = mst_now_ns() + MST_S;
    while (mst_now_ns() < until)
        assert_int_equal(mst_net_poll(server.net, until), MST_OK);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    double used = (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) * 1e-9;
    assert_true(used < 0.01);
    close_pair(&server, &worker);
}

/* ---- threads ---- */

typedef struct thread_end {
    const carrier *carrier;
    char bound[100];
    pthread_mutex_t mutex;
    pthread_cond_t listening;
    bool ready;
} thread_end;

static void *echo_thread(void *arg)
{
    thread_end *t = arg;
    end server = {.echo = true};
    mst_net_options s = end_options(MST_ROLE_SERVER, 0);
    char address[100];
    fresh_address(t->carrier, address, sizeof address);
    mst_status st = mst_net_new(t->carrier->engine, &s, &end_events, &server, &server.net);
    pthread_mutex_lock(&t->mutex);
    if (st == MST_OK)
        st = mst_net_listen(server.net, address, t->bound, sizeof t->bound);
    t->ready = true;
    pthread_cond_signal(&t->listening);
    pthread_mutex_unlock(&t->mutex);
    uint64_t until = mst_now_ns() + SOON;
    while (st == MST_OK && server.n_down == 0 && mst_now_ns() < until)
        st = mst_net_poll(server.net, until);
    mst_net_flush(server.net, until);
    mst_net_destroy(server.net);
    free(server.body);
    return server.n_down == 1 && !server.corrupt ? arg : NULL;
}

static void test_threads(void **state)
{
    thread_end t = {
        .carrier = *state, .mutex = PTHREAD_MUTEX_INITIALIZER, .listening = PTHREAD_COND_INITIALIZER};
    end worker;
    mst_net_options w = end_options(MST_ROLE_WORKER, 1);
    pthread_t thread;
    uint32_t peer;
    void *result;
    assert_int_equal(pthread_create(&thread, NULL, echo_thread, &t), 0);
    pthread_mutex_lock(&t.mutex);
    while (!t.ready)
        pthread_cond_wait(&t.listening, &t.mutex);
    pthread_mutex_unlock(&t.mutex);
    end_open(&worker, t.carrier->engine, &w);
    assert_int_equal(mst_net_connect(worker.net, t.bound, mst_now_ns() + SOON, &peer), MST_OK);
    PUMP(&worker, NULL, worker.n_up == 1);
    for (uint32_t i = 0; i < 500; i++) {
        uint32_t size = i % 50 == 49 ? 1 << 20 : i * 8;
        uint8_t *bytes = pattern_new(i, size + 1);
        unsigned sent = worker.n_sent;
        assert_int_equal(send_bytes(&worker, 20, i, bytes, size, bytes), MST_OK);
        PUMP(&worker, NULL, worker.n_messages == i + 1 && worker.n_sent == sent + 1);
        free(bytes);
    }
    /* Sent with a flush before the end: all of it arrives. */
    uint8_t *bytes = pattern_new(500, 3 << 20);
    worker.n_messages = 0;
    assert_int_equal(send_bytes(&worker, 20, 500, bytes, 3 << 20, NULL), MST_OK);
    assert_int_equal(mst_net_flush(worker.net, mst_now_ns() + SOON), MST_OK);
    PUMP(&worker, NULL, worker.n_messages == 1);
    assert_false(worker.corrupt);
    end_close(&worker);
    pthread_join(thread, &result);
    assert_ptr_equal(result, &t);
    free(bytes);
}

/* ---- short of memory ---- */

static void test_no_memory(void **state)
{
    const carrier *c = *state;
    mst_alloc_stats before, after;
    mst_alloc_stats_get(&before);
    for (uint64_t k = 1; k < 40; k++) {
        end server = {0}, worker = {0};
        mst_net_options s = end_options(MST_ROLE_SERVER, 0), w = end_options(MST_ROLE_WORKER, 2);
        char bound[100], address[100];
        uint32_t peer;
        uint8_t *bytes = pattern_new(1, 1 << 20);
        fresh_address(c, address, sizeof address);
        mst_alloc_fail_at(k);
        if (mst_net_new(c->engine, &s, &end_events, &server, &server.net) == MST_OK &&
            mst_net_new(c->engine, &w, &end_events, &worker, &worker.net) == MST_OK &&
            mst_net_listen(server.net, address, bound, sizeof bound) == MST_OK &&
            mst_net_connect(worker.net, bound, mst_now_ns() + 200 * MST_MS, &peer) == MST_OK) {
            for (int i = 0; i < 2000 && worker.n_up + worker.n_down == 0; i++)
                pump_once(&server, &worker);
            assert_true(worker.n_up + worker.n_down > 0);
            for (int i = 0; i < 4 && worker.n_down == 0; i++)
                (void)send_bytes(&worker, 20, 256 * (uint32_t)i + 1, bytes, 1 << 20,
                                 i % 2 == 0 ? bytes : NULL);
            for (int i = 0; i < 20 && server.n_messages < 4; i++)
                pump_once(&server, &worker);
        }
        mst_alloc_fail_at(0);
        assert_false(server.corrupt);
        end_close(&worker);
        end_close(&server);
        free(bytes);
    }
    mst_alloc_stats_get(&after);
    assert_int_equal(after.blocks, before.blocks);
}

#define TEST(f)                                                                                              \
    {                                                                                                        \
#f, f                                                                                                \
    }

int main(void)
{
    static const struct {
        const char *name;
        CMUnitTestFunction f;
    } suite[] = {
        TEST(test_identities),
        TEST(test_tiny_and_large),
        TEST(test_many_in_order),
        TEST(test_pieces),
        TEST(test_back_pressure),
        TEST(test_doing),
        TEST(test_peer_closes),
        TEST(test_drop_in_event),
        TEST(test_refused_by_event),
        TEST(test_oversize_body),
        TEST(test_destroy_midway),
        TEST(test_refused_at_the_door),
        TEST(test_empty_job_fits_any),
        TEST(test_connect_before_listen),
        TEST(test_nobody_there),
        TEST(test_address_in_use),
        TEST(test_wake),
        TEST(test_idle_uses_no_processor),
        TEST(test_threads),
        TEST(test_no_memory),
    };
    enum { N_SUITE = sizeof suite / sizeof *suite };
    for (int i = 0; mst_net_engines[i] != NULL; i++) {
        const mst_net_engine *engine = mst_net_engines[i];
        if (engine == &mst_net_mpi) /* both ends in one process: not with MPI; see tests/mpi/ranks_net.c */
            continue;
        if (engine == &mst_net_tcp)
            for (int protection = 0; protection < 3; protection++)
                carriers[n_carriers++] =
                    (carrier){engine, "127.0.0.1:0", protection == 1 ? MST_NET_TLS_ON : MST_NET_TLS_AUTO,
                              protection == 2 ? MST_NET_SEAL_MAC : MST_NET_SEAL_AUTO, 0};
        carriers[n_carriers++] = (carrier){engine, "unix:@muster-test-%d-%u", MST_NET_TLS_AUTO,
                                           MST_NET_SEAL_AUTO, 0}; /* a name is a name to inproc */
        if (engine == &mst_net_tcp) {
            carriers[n_carriers] = carriers[n_carriers - 1];
            carriers[n_carriers++].busy_poll_us = 300;
        }
    }
    int failed = 0;
    for (unsigned i = 0; i < n_carriers; i++) {
        struct CMUnitTest tests[N_SUITE] = {0};
        char group[100];
        snprintf(group, sizeof group, "%s %s%s%s%s", carriers[i].engine->name, carriers[i].address,
                 carriers[i].tls == MST_NET_TLS_ON ? " with TLS" : "",
                 carriers[i].seal == MST_NET_SEAL_MAC ? " with MAC" : "",
                 carriers[i].busy_poll_us > 0 ? " polling" : "");
        end_tls = carriers[i].tls;
        end_seal = carriers[i].seal;
        end_busy_poll_us = carriers[i].busy_poll_us;
        for (int j = 0; j < N_SUITE; j++)
            tests[j] = (struct CMUnitTest){
                .name = suite[j].name, .test_func = suite[j].f, .initial_state = &carriers[i]};
        failed += cmocka_run_group_tests_name(group, tests, NULL, NULL);
    }
    return failed;
}
