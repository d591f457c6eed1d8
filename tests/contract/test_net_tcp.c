/* The contract of engine tcp beyond test_net.c, with real processes and raw sockets: dead and stopped peers,
 * computing peers, cut links, unauthenticated peers of all kinds, other versions, addresses. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/alloc.h"
#include "base/version.h"
#include "net/handshake.h"
#include "net/tcp_address.h"
#include "net_ends.h"

static unsigned n_names;

static void fresh_name(char *out, size_t size)
{
    snprintf(out, size, "unix:@muster-tcp-%d-%u", (int)getpid(), ++n_names);
}

static void open_server(end *server, const mst_net_options *options, const char *address, char bound[100])
{
    mst_net_options o = end_options(MST_ROLE_SERVER, 0);
    end_open(server, &mst_net_tcp, options != NULL ? options : &o);
    assert_int_equal(mst_net_listen(server->net, address, bound, 100), MST_OK);
}

static void connect_to(end *worker, const mst_net_options *options, const char *address)
{
    mst_net_options o = end_options(MST_ROLE_WORKER, 2);
    uint32_t peer;
    end_open(worker, &mst_net_tcp, options != NULL ? options : &o);
    assert_int_equal(mst_net_connect(worker->net, address, mst_now_ns() + SOON, &peer), MST_OK);
}

/* A server still does its work: a worker joins it and is answered. */
static void assert_serves(end *server, const char *bound)
{
    end worker;
    unsigned before = server->n_messages, up = server->n_up, down = server->n_down;
    connect_to(&worker, NULL, bound);
    PUMP(server, &worker, worker.n_up == 1 && server->n_up == up + 1);
    assert_int_equal(send_bytes(&worker, 20, server->m.request + 1, NULL, 0, NULL), MST_OK);
    PUMP(server, &worker, server->n_messages == before + 1);
    end_close(&worker);
    PUMP(server, NULL, server->n_down == down + 1);
}

/* ---- processes ---- */

typedef enum part {
    PART_POLL,     /* connects and polls */
    PART_COMPUTE,  /* connects, does not poll until it receives a byte, then sends a message */
    PART_IN_EVENT, /* the same inside of an event */
    PART_FLOOD,    /* sends large bodies without an end */
    PART_REASON,   /* connects, polls and exits with 10 + the reason of the end */
} part;

typedef struct process {
    pid_t pid;
    int tell; /* to it */
} process;

/* Runs in the child; never returns. Reads the address first. */
static void play(part what, int fd, const mst_net_options *options)
{
    end e = {0};
    char address[100] = "", byte;
    uint32_t peer;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (read(fd, address, sizeof address) <= 0 ||
        mst_net_new(&mst_net_tcp, options, &end_events, &e, &e.net) != MST_OK ||
        mst_net_connect(e.net, address, mst_now_ns() + SOON, &peer) != MST_OK)
        _exit(1);
    if (what == PART_IN_EVENT)
        e.wait_in_message = fd;
    while (e.n_up == 0 && e.n_down == 0)
        mst_net_poll(e.net, mst_now_ns() + SOON);
    if (what == PART_COMPUTE && read(fd, &byte, 1) != 1)
        _exit(2);
    if (what == PART_COMPUTE && send_bytes(&e, 20, 1, NULL, 0, NULL) != MST_OK)
        _exit(3);
    static uint8_t flood[32 << 20];
    for (unsigned sent = 0; e.n_down == 0;) {
        if (what == PART_FLOOD && e.n_sent == sent) {
            for (size_t i = 0; i < sizeof flood; i++)
                flood[i] = pattern(sent, i);
            if (send_bytes(&e, 20, sent++, flood, sizeof flood, flood) != MST_OK)
                break;
        }
        if (what == PART_IN_EVENT && e.n_messages == 1) {
            what = PART_POLL;
            if (send_bytes(&e, 20, 1, NULL, 0, NULL) != MST_OK)
                _exit(4);
        }
        mst_net_poll(e.net, mst_now_ns() + SOON);
    }
    mst_net_destroy(e.net);
    _exit(what == PART_REASON ? 10 + (int)e.reason : 0);
}

/* Before the test makes nets of its own, so that no thread is lost in the fork. */
static process spawn(part what, const mst_net_options *options)
{
    mst_net_options o = end_options(MST_ROLE_WORKER, 2);
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    process p = {.pid = fork(), .tell = pipes[1]};
    assert_true(p.pid >= 0);
    if (p.pid == 0) {
        close(pipes[1]);
        play(what, pipes[0], options != NULL ? options : &o);
    }
    close(pipes[0]);
    return p;
}

static void tell(const process *p, const void *bytes, size_t n)
{
    assert_int_equal(write(p->tell, bytes, n), n);
}

/* Waits for its end; kills it first when asked to. */
static int finish(process *p, bool kill_it)
{
    int status = 0;
    if (kill_it)
        kill(p->pid, SIGKILL);
    close(p->tell);
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    return status;
}

static void poll_for(end *e, uint64_t ns)
{
    uint64_t until = mst_now_ns() + ns;
    while (mst_now_ns() < until)
        assert_int_equal(mst_net_poll(e->net, until), MST_OK);
}

static void test_death(void **state)
{
    for (int i = 0; i < 2; i++) {
        process p = spawn(PART_POLL, NULL);
        end server;
        char bound[100], name[100] = "127.0.0.1:0";
        if (i == 1)
            fresh_name(name, sizeof name);
        (void)state;
        open_server(&server, NULL, name, bound);
        tell(&p, bound, sizeof bound);
        PUMP(&server, NULL, server.n_up == 1);
        uint64_t start = mst_now_ns();
        kill(p.pid, SIGKILL);
        PUMP(&server, NULL, server.n_down == 1);
        assert_true(mst_now_ns() - start < 2 * MST_S);
        assert_ptr_equal(strstr(server.why.text, "worker 2"), server.why.text);
        assert_non_null(strstr(server.why.text, " died: the connection"));
        finish(&p, true);
        end_close(&server);
    }
}

static void test_death_amid_a_body(void **state)
{
    (void)state;
    process p = spawn(PART_FLOOD, NULL);
    end server;
    char bound[100];
    open_server(&server, NULL, "127.0.0.1:0", bound);
    tell(&p, bound, sizeof bound);
    PUMP(&server, NULL, server.n_messages >= 2 && server.n_body > server.n_messages);
    kill(p.pid, SIGKILL);
    PUMP(&server, NULL, server.n_down == 1);
    assert_non_null(strstr(server.why.text, " died: the connection"));
    assert_false(server.corrupt || server.disordered);
    finish(&p, true);
    assert_serves(&server, bound);
    end_close(&server);
}

static void test_stopped(void **state)
{
    (void)state;
    process p = spawn(PART_POLL, NULL);
    end server;
    char bound[100];
    mst_net_options s = end_options(MST_ROLE_SERVER, 0);
    s.peer_timeout_ms = 1200;
    open_server(&server, &s, "127.0.0.1:0", bound);
    tell(&p, bound, sizeof bound);
    PUMP(&server, NULL, server.n_up == 1);
    kill(p.pid, SIGSTOP);
    uint64_t start = mst_now_ns();
    PUMP(&server, NULL, server.n_down == 1);
    assert_true(mst_now_ns() - start >= 700 * MST_MS && mst_now_ns() - start < 4 * MST_S);
    assert_non_null(strstr(server.why.text, "worker 2"));
    assert_non_null(strstr(server.why.text, "has been silent for "));
    assert_int_equal(server.reason, MST_NET_SILENT);
    finish(&p, true);
    end_close(&server);
}

/* A process that was stopped and continues learns that it was the silent one: from the other end's
 * DISCONNECT, or by its own clock where a message was under way and no DISCONNECT could follow it. */
static void test_was_stopped(void **state)
{
    (void)state;
    static uint8_t large[32 << 20];
    for (int told = 0; told < 2; told++) {
        mst_net_options s = end_options(MST_ROLE_SERVER, 0), w = end_options(MST_ROLE_WORKER, 2);
        s.peer_timeout_ms = w.peer_timeout_ms = 1200;
        process p = spawn(PART_REASON, &w);
        end server;
        char bound[100];
        open_server(&server, &s, "127.0.0.1:0", bound);
        tell(&p, bound, sizeof bound);
        PUMP(&server, NULL, server.n_up == 1);
        kill(p.pid, SIGSTOP);
        if (!told)
            assert_int_equal(send_bytes(&server, 20, 1, large, sizeof large, large), MST_OK);
        PUMP(&server, NULL, server.n_down == 1);
        assert_int_equal(server.reason, MST_NET_SILENT);
        poll_for(&server, MST_S);
        kill(p.pid, SIGCONT);
        int status = finish(&p, false);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 10 + MST_NET_STOPPED);
        end_close(&server);
    }
}

/* Messages of a peer that is busy, within events or outside, still arrive. */
static void test_computing(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        process p = spawn(i == 0 ? PART_COMPUTE : PART_IN_EVENT, NULL);
        end server;
        char bound[100];
        mst_net_options s = end_options(MST_ROLE_SERVER, 0);
        s.peer_timeout_ms = 1500;
        open_server(&server, &s, "127.0.0.1:0", bound);
        tell(&p, bound, sizeof bound);
        PUMP(&server, NULL, server.n_up == 1);
        if (i == 1)
            assert_int_equal(send_bytes(&server, 20, 0, NULL, 0, NULL), MST_OK);
        poll_for(&server, 3000 * MST_MS);
        assert_int_equal(server.n_down, 0);
        tell(&p, "x", 1);
        PUMP(&server, NULL, server.n_messages == 1);
        end_close(&server);
        assert_int_equal(finish(&p, false), 0);
    }
}

/* The owner's own absence is not held against its peers. */
static void test_owner_away(void **state)
{
    (void)state;
    process p = spawn(PART_POLL, NULL);
    end server;
    char bound[100];
    mst_net_options s = end_options(MST_ROLE_SERVER, 0);
    s.peer_timeout_ms = 1000;
    open_server(&server, &s, "127.0.0.1:0", bound);
    tell(&p, bound, sizeof bound);
    PUMP(&server, NULL, server.n_up == 1);
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 500000000}, NULL);
    poll_for(&server, 300 * MST_MS);
    assert_int_equal(server.n_down, 0);
    kill(p.pid, SIGSTOP);
    PUMP(&server, NULL, server.n_down == 1);
    finish(&p, true);
    end_close(&server);
}

/* ---- raw sockets ---- */

static int raw_connect(const char *address)
{
    mst_tcp_address a;
    assert_int_equal(mst_tcp_address_parse(address, &a), MST_OK);
    int fd = socket(a.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a.sa, a.length), 0);
    return fd;
}

/* A listening socket and its address. */
static int raw_listen(char *address, size_t size)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof sa;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof sa), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &length), 0);
    snprintf(address, size, "127.0.0.1:%u", ntohs(sa.sin_port));
    return fd;
}

/* True once the other end has closed; reads what it says meanwhile. */
static bool closed(int fd)
{
    char bytes[1000];
    ssize_t n;
    while ((n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        ;
    return n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

/* The handshake by hand, while e polls. */
static void raw_shake(int fd, mst_shake *h, end *e)
{
    uint64_t until = mst_now_ns() + SOON;
    bool over = false;
    while (!over && mst_now_ns() < until) {
        uint8_t bytes[1];
        if (h->n_out > 0)
            assert_int_equal(send(fd, h->out, h->n_out, MSG_NOSIGNAL), h->n_out);
        h->n_out = 0;
        assert_int_equal(mst_net_poll(e->net, mst_now_ns() + MST_MS), MST_OK);
        ssize_t n;
        while (h->state == MST_SHAKE_RUNNING && h->n_out == 0 &&
               (n = recv(fd, bytes, 1, MSG_DONTWAIT)) >= 0) {
            over = n == 0;
            if (over || mst_shake_take(h, bytes, 1) == 0)
                break;
        }
        over = over || (h->state != MST_SHAKE_RUNNING && h->n_out == 0);
    }
    assert_true(over);
}

static void raw_init(mst_shake *h, const mst_identity *self, const char *version, uint16_t wire, bool dialer)
{
    mst_shake_options options = {
        .self = self, .secret = "open sesame", .version = version, .address = "here", .wire = wire};
    assert_int_equal(mst_shake_init(h, &options, dialer), MST_OK);
}

static const mst_identity raw_self = {.role = MST_ROLE_WORKER, .index = 7, .job = "a-job"};

static void test_garbage(void **state)
{
    (void)state;
    static const char http[] = "GET / HTTP/1.1\r\nHost: server\r\n\r\n";
    end server;
    char bound[100];
    mst_alloc_stats before, after;
    open_server(&server, NULL, "127.0.0.1:0", bound);
    assert_serves(&server, bound);
    mst_alloc_stats_get(&before);
    for (int i = 0; i < 20; i++) {
        uint8_t noise[5000];
        for (size_t j = 0; j < sizeof noise; j++)
            noise[j] = pattern((uint32_t)i, j);
        int fd = raw_connect(bound);
        ssize_t n =
            i == 0 ? send(fd, http, sizeof http, MSG_NOSIGNAL) : send(fd, noise, sizeof noise, MSG_NOSIGNAL);
        assert_true(n > 0);
        PUMP(&server, NULL, closed(fd));
        close(fd);
    }
    poll_for(&server, MST_MS);
    mst_alloc_stats_get(&after);
    assert_int_equal(before.blocks, after.blocks);
    assert_int_equal(server.n_up, 1);
    assert_serves(&server, bound);
    end_close(&server);
}

static void test_half_open(void **state)
{
    enum { MANY = 150 };
    (void)state;
    end server;
    char bound[100];
    int fds[MANY], drip;
    mst_net_options s = end_options(MST_ROLE_SERVER, 0);
    mst_alloc_stats before, after;
    mst_shake h;
    s.hello_timeout_ms = 700;
    open_server(&server, &s, "127.0.0.1:0", bound);
    mst_alloc_stats_get(&before);
    for (int i = 0; i < MANY; i++) {
        fds[i] = raw_connect(bound);
        assert_int_equal(mst_net_poll(server.net, mst_now_ns() + MST_MS), MST_OK);
    }
    mst_alloc_stats_get(&after);
    assert_true(after.bytes - before.bytes < 64 * 4096);
    assert_serves(&server, bound); /* at once, not when they have timed out */

    /* One that says a byte now and then does not live longer. */
    raw_init(&h, &raw_self, mst_version(), MST_WIRE_VERSION, true);
    drip = raw_connect(bound);
    uint64_t start = mst_now_ns();
    for (size_t i = 0; !closed(drip); i++) {
        if (i < h.n_out)
            (void)send(drip, h.out + i, 1, MSG_NOSIGNAL);
        poll_for(&server, 20 * MST_MS);
        assert_true(mst_now_ns() - start < SOON);
    }
    assert_true(mst_now_ns() - start >= 600 * MST_MS);
    for (int i = 0; i < MANY; i++) {
        PUMP(&server, NULL, closed(fds[i]));
        close(fds[i]);
    }
    close(drip);
    assert_serves(&server, bound);
    end_close(&server);
}

static void test_other_versions(void **state)
{
    (void)state;
    end server, worker;
    char bound[100], address[100];
    mst_shake h;
    open_server(&server, NULL, "127.0.0.1:0", bound);
    int fd = raw_connect(bound);
    raw_init(&h, &raw_self, "0.0.9", MST_WIRE_VERSION, true);
    raw_shake(fd, &h, &server);
    assert_int_equal(h.state, MST_SHAKE_FAILED);
    assert_non_null(strstr(h.text, "refused by server 0 (here): that server runs muster "));
    assert_non_null(strstr(h.text, "this worker runs 0.0.9"));
    close(fd);
    fd = raw_connect(bound);
    raw_init(&h, &raw_self, "0.0.9", 200, true);
    raw_shake(fd, &h, &server);
    assert_non_null(strstr(h.text, "that server uses wire version 4 (muster "));
    assert_non_null(strstr(h.text, "this process uses 200 (muster 0.0.9)"));
    close(fd);
    assert_int_equal(server.n_up, 0);
    end_close(&server);

    /* The other direction: the dialing worker receives the reason. */
    int listener = raw_listen(address, sizeof address);
    connect_to(&worker, NULL, address);
    mst_net_poll(worker.net, mst_now_ns() + MST_MS);
    fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0);
    raw_init(&h, &raw_self, "7.0.0", MST_WIRE_VERSION, false);
    raw_shake(fd, &h, &worker);
    PUMP(&worker, NULL, worker.n_down == 1);
    assert_non_null(strstr(worker.why.text, "refused by worker 7 (127.0.0.1:"));
    assert_non_null(strstr(worker.why.text, "that worker runs muster 7.0.0, this worker runs "));
    close(fd);
    close(listener);
    end_close(&worker);
}

static void test_no_muster_there(void **state)
{
    (void)state;
    end worker;
    char address[100];
    int listener = raw_listen(address, sizeof address);
    connect_to(&worker, NULL, address);
    mst_net_poll(worker.net, mst_now_ns() + MST_MS);
    int fd = accept(listener, NULL, NULL);
    assert_int_equal(send(fd, "220 mail.example.org ESMTP\r\n", 28, MSG_NOSIGNAL), 28);
    PUMP(&worker, NULL, worker.n_down == 1);
    assert_ptr_equal(strstr(worker.why.text, address), worker.why.text);
    assert_non_null(strstr(worker.why.text, "is not a muster process"));
    close(fd);
    close(listener);
    end_close(&worker);
}

/* Authenticated peers that break the format. */
static void test_bad_frames(void **state)
{
    (void)state;
    static const struct {
        uint64_t size;
        size_t at;
        uint8_t value;
        const char *says;
    } breaks[] = {
        {1ull << 60, 0, 'M', "a body of 1152921504606846976 bytes"},
        {0, 0, 'X', "instead of \"MSTR\""},
        {0, 4, 9, "wire version 9"},
        {0, 20, 1, "the header of a message was changed on the way: its checksum does not match"},
    };
    end server;
    char bound[100];
    open_server(&server, NULL, "127.0.0.1:0", bound);
    for (size_t i = 0; i < sizeof breaks / sizeof *breaks; i++) {
        mst_shake h;
        uint8_t header[MST_WIRE_HEADER], answer[1000];
        int fd = raw_connect(bound);
        raw_init(&h, &raw_self, mst_version(), MST_WIRE_VERSION, true);
        raw_shake(fd, &h, &server);
        assert_int_equal(h.state, MST_SHAKE_DONE);
        mst_header_encode(&(mst_message){.type = 20, .size = breaks[i].size}, header);
        header[breaks[i].at] = breaks[i].value;
        assert_int_equal(send(fd, header, sizeof header, MSG_NOSIGNAL), sizeof header);
        unsigned down = (unsigned)i + 1;
        PUMP(&server, NULL, server.n_down == down);
        assert_non_null(strstr(server.why.text, "worker 7 (127.0.0.1:"));
        assert_non_null(strstr(server.why.text, breaks[i].says));
        ssize_t n = recv(fd, answer, sizeof answer - 1, 0); /* a DISCONNECT with the same */
        assert_true(n > MST_WIRE_HEADER);
        answer[n] = '\0';
        assert_int_equal(mst_get_u16(answer + 6), MST_WIRE_DISCONNECT);
        assert_non_null(strstr((char *)answer + MST_WIRE_HEADER, breaks[i].says));
        close(fd);
    }
    assert_int_equal(server.n_body, 0);
    assert_serves(&server, bound);
    end_close(&server);
}

/* ---- a link that goes silent ---- */

/* Carries bytes between two sockets, both ways. */
static void relay(int a, int b)
{
    uint8_t bytes[4096];
    ssize_t n;
    while ((n = recv(a, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        assert_int_equal(send(b, bytes, (size_t)n, MSG_NOSIGNAL), n);
    while ((n = recv(b, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        assert_int_equal(send(a, bytes, (size_t)n, MSG_NOSIGNAL), n);
}

static void test_link_cut(void **state)
{
    (void)state;
    end server, worker;
    char bound[100], address[100];
    mst_net_options s = end_options(MST_ROLE_SERVER, 0), w = end_options(MST_ROLE_WORKER, 2);
    s.peer_timeout_ms = w.peer_timeout_ms = 1500;
    open_server(&server, &s, "127.0.0.1:0", bound);
    int listener = raw_listen(address, sizeof address);
    connect_to(&worker, &w, address);
    mst_net_poll(worker.net, mst_now_ns() + MST_MS);
    int a = accept(listener, NULL, NULL), b = raw_connect(bound);
    uint64_t start = mst_now_ns();
    while ((worker.n_up == 0 || server.n_up == 0) && mst_now_ns() - start < SOON) {
        relay(a, b);
        pump_once(&server, &worker);
    }
    start = mst_now_ns();
    while (mst_now_ns() - start < 2500 * MST_MS) { /* idle for more than the timeout: heartbeats carry it */
        relay(a, b);
        pump_once(&server, &worker);
    }
    assert_int_equal(server.n_down + worker.n_down, 0);
    assert_int_equal(send_bytes(&worker, 20, 1, NULL, 0, NULL), MST_OK);
    start = mst_now_ns();
    PUMP(&server, &worker, server.n_down == 1 && worker.n_down == 1);
    assert_true(mst_now_ns() - start < 5 * MST_S);
    assert_int_equal(server.n_messages, 0);
    assert_non_null(strstr(server.why.text, "the link is cut (peer timeout 1.5 s)"));
    assert_non_null(strstr(worker.why.text, "server 0"));
    close(a);
    close(b);
    close(listener);
    end_close(&worker);
    end_close(&server);
}

/* ---- addresses ---- */

static void test_unix_paths(void **state)
{
    (void)state;
    char folder[] = "/tmp/muster-net-XXXXXX", address[200], path[100], bound[100], again[100];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/socket", folder);
    snprintf(address, sizeof address, "unix:%s", path);
    end server, other;
    mst_net_options o = end_options(MST_ROLE_SERVER, 1);
    open_server(&server, NULL, address, bound);
    assert_string_equal(bound, address);
    end_open(&other, &mst_net_tcp, &o);
    assert_int_equal(mst_net_listen(other.net, address, again, sizeof again), MST_EEXIST); /* alive */
    assert_ptr_equal(strstr(mst_error_text(), address), mst_error_text());
    assert_serves(&server, bound);
    end_close(&server);
    assert_int_equal(access(path, F_OK), -1);

    /* What a dead process left is replaced; what is no socket is not. */
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    memcpy(sun.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sun, sizeof sun), 0);
    close(fd);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(mst_net_listen(other.net, address, again, sizeof again), MST_OK);
    assert_serves(&other, address);
    end_close(&other);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    close(fd);
    end_open(&other, &mst_net_tcp, &o);
    assert_int_equal(mst_net_listen(other.net, address, again, sizeof again), MST_EEXIST);
    end_close(&other);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void test_without_secret(void **state)
{
    (void)state;
    end server, worker;
    mst_net_options s = end_options(MST_ROLE_SERVER, 0), w = end_options(MST_ROLE_WORKER, 2);
    char bound[100];
    uint32_t peer;
    s.secret = w.secret = NULL;
    end_open(&server, &mst_net_tcp, &s);
    assert_int_equal(mst_net_listen(server.net, "0.0.0.0:0", bound, sizeof bound), MST_EUSAGE);
    assert_non_null(strstr(mst_error_text(), "give the job a secret"));
    assert_int_equal(mst_net_listen(server.net, "127.0.0.1:0", bound, sizeof bound), MST_OK);
    connect_to(&worker, &w, bound);
    PUMP(&server, &worker, server.n_up == 1 && worker.n_up == 1);
    assert_int_equal(mst_net_connect(worker.net, "10.1.2.3:5000", mst_now_ns() + SOON, &peer), MST_OK);
    PUMP(&server, &worker, worker.n_down == 1);
    assert_int_equal(worker.down_peer, peer);
    assert_non_null(strstr(worker.why.text, "10.1.2.3:5000 is on another machine"));
    end_close(&worker);
    end_close(&server);
}

static void test_bad_addresses(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "host",
        ":5000",
        "host:",
        "host:x",
        "host:65536",
        "::1:50",
        "unix:",
        "unix:@",
        "host:-1",
        "[]:5",
        "host:5 ",
        "unix:/a-path-that-is-longer-than-any-unix-socket-path-may-be-because-it-has-more-"
        "than-one-hundred-and-eight-characters"};
    end e;
    mst_net_options o = end_options(MST_ROLE_SERVER, 0);
    char bound[100];
    uint32_t peer;
    end_open(&e, &mst_net_tcp, &o);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(mst_net_listen(e.net, bad[i], bound, sizeof bound), MST_EUSAGE);
        assert_int_equal(mst_net_connect(e.net, bad[i], mst_now_ns() + SOON, &peer), MST_EUSAGE);
        assert_ptr_equal(strstr(mst_error_text(), bad[i]), mst_error_text());
    }
    end_close(&e);
}

static void test_ipv6(void **state)
{
    (void)state;
    end server;
    mst_net_options o = end_options(MST_ROLE_SERVER, 0);
    char bound[100];
    end_open(&server, &mst_net_tcp, &o);
    if (mst_net_listen(server.net, "[::1]:0", bound, sizeof bound) != MST_OK) {
        end_close(&server);
        skip(); /* a machine without IPv6 */
    }
    assert_ptr_equal(strstr(bound, "[::1]:"), bound);
    assert_serves(&server, bound);
    end_close(&server);
}

/* Last: the look-up of names starts threads that stay. */
static void test_names(void **state)
{
    (void)state;
    end server, worker;
    mst_net_options w = end_options(MST_ROLE_WORKER, 2);
    char bound[100];
    uint32_t peer;
    open_server(&server, NULL, "localhost:0", bound);
    assert_ptr_equal(strstr(bound, "localhost:"), bound);
    assert_serves(&server, bound);
    end_close(&server);
    end_open(&worker, &mst_net_tcp, &w);
    assert_int_equal(
        mst_net_connect(worker.net, "no-such-host.invalid:5000", mst_now_ns() + 200 * MST_MS, &peer), MST_OK);
    PUMP(&worker, NULL, worker.n_down == 1);
    assert_int_equal(worker.why.code, MST_ETIMEOUT);
    assert_non_null(strstr(worker.why.text, "no-such-host.invalid:5000 was not reached within 0."));
    assert_int_equal(mst_net_connect(worker.net, "localhost:1", mst_now_ns() + SOON, &peer), MST_OK);
    assert_int_equal(mst_net_poll(worker.net, 0), MST_OK);
    end_close(&worker); /* amid a look-up */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_death),          cmocka_unit_test(test_death_amid_a_body),
        cmocka_unit_test(test_stopped),        cmocka_unit_test(test_was_stopped),
        cmocka_unit_test(test_computing),      cmocka_unit_test(test_owner_away),
        cmocka_unit_test(test_garbage),        cmocka_unit_test(test_half_open),
        cmocka_unit_test(test_other_versions), cmocka_unit_test(test_no_muster_there),
        cmocka_unit_test(test_bad_frames),     cmocka_unit_test(test_link_cut),
        cmocka_unit_test(test_unix_paths),     cmocka_unit_test(test_without_secret),
        cmocka_unit_test(test_bad_addresses),  cmocka_unit_test(test_ipv6),
        cmocka_unit_test(test_names),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
