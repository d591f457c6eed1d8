/* The parameter server's data path without training: one server process, one worker process, push and pull of
 * key sets together in one request, as in training: each request pushes for the set pulled before.
 *
 *     bench_ps [--rounds N] [--seconds S] [--sets-1m N] [--threads N] [--only
 * 1k|1m|1k-protection|1m-protection]
 *
 * Keys are distinct and uniform over 33,762,578; every request has another of 1,000 sets (--sets-1m: of the
 * sets of a million keys). The server applies plain sgd on arrival. A key counts once when pushed and pulled.
 * The baseline of the small request is an echo between two processes with plain blocking reads and writes of
 * the same sizes over the same kind of socket; the two take turns, and the median ratio of the rounds counts.
 * Both pairs run with the client on the first processor and the server on the second, where there are two.
 *
 * The lines of protections compare frames with a checksum, with a MAC and inside TLS with frames that have
 * neither, over TCP: four pairs of processes take turns, five per round, and the median ratio counts. A turn
 * ends when all its requests are answered, so that nothing of it runs in the turn of another pair, and each
 * pair has each place in the order equally often.
 *
 * One line `name value unit` per figure; those of Unix sockets end in _unix. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "ps/client.h"
#include "ps/store.h"

enum {
    FEATURES = 33762578,
    SETS = 1000,
    MOST_ROUNDS = 101,
    TURNS = 5, /* of each protection, per round */
    IN_FLIGHT_MAX = 8,
    SMALL_REPLY = 64 * 1024,
};

typedef struct settings {
    unsigned rounds, sets_1m, threads;
    bool small, large, small_protection, large_protection; /* which lines */
    double seconds;                                        /* per round and line */
} settings;

static void die(const char *what)
{
    fprintf(stderr, "bench_ps: %s: %s\n", what, errno != 0 ? strerror(errno) : mst_error_text());
    exit(1);
}

static void need(mst_status st)
{
    if (st != MST_OK) {
        fprintf(stderr, "bench_ps: %s\n", mst_error_text());
        exit(1);
    }
}

static cpu_set_t all_cpus; /* of the first process, before anything is pinned */

/* Moves the calling thread to the cpu-th processor; -1: back to all. */
static void pin(int cpu)
{
    cpu_set_t one;
    int n = 0;
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all_cpus) && n++ == cpu)
            CPU_SET(i, &one);
    if (CPU_COUNT(&all_cpus) > 1)
        sched_setaffinity(0, sizeof one, cpu < 0 ? &all_cpus : &one);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, unsigned n)
{
    qsort(values, n, sizeof *values, by_value);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* ---- key sets ---- */

typedef struct pool {
    uint32_t n_sets, n_keys;
    uint32_t *keys; /* n_sets * n_keys */
} pool;

/* Marks random keys in a bitmap until there are enough, and reads them off in order. */
static pool pool_new(uint32_t n_sets, uint32_t n_keys)
{
    size_t n_words = (FEATURES + 63) / 64;
    uint64_t *bits = calloc(n_words, sizeof *bits), x = 88172645463325252ull + n_keys;
    pool p = {.n_sets = n_sets, .n_keys = n_keys, .keys = malloc((size_t)n_sets * n_keys * sizeof *p.keys)};
    if (bits == NULL || p.keys == NULL)
        die("no memory for the key sets");
    uint32_t *out = p.keys;
    for (uint32_t s = 0; s < n_sets; s++) {
        for (uint32_t n = 0; n < n_keys;) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            uint32_t key = (uint32_t)((x >> 32) * FEATURES >> 32);
            uint64_t bit = 1ull << key % 64;
            n += (bits[key / 64] & bit) == 0;
            bits[key / 64] |= bit;
        }
        for (size_t w = 0; w < n_words; w++) {
            for (uint64_t word = bits[w]; word != 0; word &= word - 1)
                *out++ = (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(word);
            bits[w] = 0;
        }
    }
    free(bits);
    return p;
}

/* ---- protections ---- */

typedef enum protection { CHECKSUM, BARE, MAC, TLS, N_PROTECTIONS } protection;

static mst_net_options net_options(mst_role role, protection with)
{
    return (mst_net_options){.self = {.role = role, .incarnation = 1 + role},
                             .secret = with == TLS || with == MAC ? "a secret of the benchmark" : NULL,
                             .tls = with == TLS ? MST_NET_TLS_ON : MST_NET_TLS_OFF,
                             .seal = with == BARE  ? MST_NET_SEAL_NONE
                                     : with == MAC ? MST_NET_SEAL_MAC
                                                   : MST_NET_SEAL_AUTO,
                             .max_body = 1u << 30,
                             .max_queue = 1u << 30,
                             .peer_timeout_ms = 10000,
                             .hello_timeout_ms = 10000};
}

/* ---- the server ---- */

typedef struct reply_buffer {
    struct reply_buffer *next; /* free ones */
    uint8_t *data;
    size_t capacity;
} reply_buffer;

typedef struct server {
    mst_net *net;
    mst_store *store;
    uint8_t *body;
    size_t body_capacity;
    reply_buffer *free;
    uint64_t step;
    bool left;
} server;

static void server_up(void *arg, uint32_t peer, const mst_identity *who)
{
    (void)arg, (void)peer, (void)who;
}

static void server_down(void *arg, uint32_t peer, const mst_net_loss *why)
{
    (void)peer, (void)why;
    ((server *)arg)->left = true;
}

static mst_status server_body(void *arg, uint32_t peer, const mst_message *m, void **out)
{
    server *s = arg;
    (void)peer;
    if (!mst_grow(&s->body, &s->body_capacity, (size_t)m->size, 1))
        return mst_fail(MST_ENOMEM, "no memory for a request");
    *out = s->body;
    return MST_OK;
}

static void server_sent(void *arg, uint32_t peer, void *token)
{
    server *s = arg;
    reply_buffer *b = token;
    (void)peer;
    b->next = s->free;
    s->free = b;
}

static mst_status server_message(void *arg, uint32_t peer, const mst_message *m, void *body)
{
    server *s = arg;
    mst_store_request r;
    TRY(mst_store_read(s->store, 0, m, body, NULL, NULL, &r));
    size_t size = mst_store_reply_size(s->store, &r);
    reply_buffer *b = s->free != NULL ? s->free : mst_zalloc(sizeof *b);
    if (b == NULL || !mst_grow(&b->data, &b->capacity, size, 1))
        return mst_fail(MST_ENOMEM, "no memory for a reply");
    s->free = b->next;
    s->step += r.values != NULL;
    TRY(mst_store_step(s->store, &r, &(mst_update){.lr = 0.01f, .step = s->step}, b->data));
    mst_message reply = {.type = MST_PS_VALUES, .request = m->request, .step = s->step};
    mst_piece piece = {.data = b->data, .size = size};
    mst_status st = mst_net_send(s->net, peer, &reply, &piece, 1, size > SMALL_REPLY ? b : NULL);
    if (size <= SMALL_REPLY)
        server_sent(s, peer, b);
    return st;
}

/* The model of both sides: one sparse view. */
static void describe(mst_params *params, mst_placement *table)
{
    const uint64_t dims[] = {FEATURES};
    memset(params, 0, sizeof *params);
    need(mst_params_add(params, "weight", MST_VIEW_TRAINABLE, 1, 1, dims, NULL));
    mst_grad layout = {.width = 1};
    need(mst_placement_make(table, params, &layout, 1, NULL, 0, false));
}

static void write_all(int fd, const void *data, size_t size)
{
    for (const char *at = data; size > 0;) {
        ssize_t n = write(fd, at, size);
        if (n <= 0)
            die("write");
        at += n;
        size -= (size_t)n;
    }
}

static bool read_all(int fd, void *data, size_t size)
{
    for (char *at = data; size > 0;) {
        ssize_t n = read(fd, at, size);
        if (n < 0 && errno != EINTR)
            die("read");
        if (n == 0)
            return false;
        at += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Serves one worker; its address goes to `address_fd` once the store is there. */
static void serve(const char *address, int address_fd, unsigned n_threads, protection with)
{
    server s = {0};
    mst_params params;
    mst_placement table;
    mst_optimizer optimizer;
    mst_optim_options optim = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .decay_steps = 1};
    char bound[256] = {0};
    pin(-1);
    describe(&params, &table);
    need(mst_optimizer_init(&optimizer, &optim));
    need(mst_params_reserve(&params, 0, 0));
    mst_params_populate(&params);
    mst_store_options options = {
        .optimizer = &optimizer, .params = &params, .table = &table, .n_workers = 1, .n_threads = n_threads};
    need(mst_store_new(&options, &s.store));
    pin(1); /* the loop; apply threads go where there is room */
    mst_net_options net = net_options(MST_ROLE_SERVER, with);
    mst_net_events events = {server_up, server_down, server_body, server_message, server_sent, NULL};
    need(mst_net_new(&mst_net_tcp, &net, &events, &s, &s.net));
    need(mst_net_listen(s.net, address, bound, sizeof bound));
    write_all(address_fd, bound, sizeof bound);
    while (!s.left)
        need(mst_net_poll(s.net, mst_now_ns() + MST_S));
    mst_net_destroy(s.net);
    mst_store_destroy(s.store);
    mst_placement_fini(&table);
    mst_params_fini(&params);
    mst_free(s.body);
    for (reply_buffer *b = s.free; b != NULL;) {
        reply_buffer *next = b->next;
        mst_free(b->data);
        mst_free(b);
        b = next;
    }
}

/* ---- the worker ---- */

typedef struct worker {
    mst_net *net;
    mst_client *client;
    mst_params params;
    mst_placement table;
    uint32_t server;
    bool up;
    pid_t pid; /* of the server */
    float *g[IN_FLIGHT_MAX + 1];
    size_t g_size;
    uint32_t next_set;
    uint32_t in_flight, oldest, free_slot; /* slots in flight follow each other from oldest on */
} worker;

static void worker_up(void *arg, uint32_t peer, const mst_identity *who)
{
    (void)peer, (void)who;
    ((worker *)arg)->up = true;
}

static void worker_down(void *arg, uint32_t peer, const mst_net_loss *why)
{
    (void)arg, (void)peer;
    fprintf(stderr, "bench_ps: %s\n", why->error.text);
    exit(1);
}

static mst_status worker_body(void *arg, uint32_t peer, const mst_message *m, void **out)
{
    return mst_client_body(((worker *)arg)->client, peer, m, out);
}

static mst_status worker_message(void *arg, uint32_t peer, const mst_message *m, void *body)
{
    return mst_client_message(((worker *)arg)->client, peer, m, body);
}

static void worker_sent(void *arg, uint32_t peer, void *token)
{
    (void)arg, (void)peer, (void)token;
}

/* Starts a server and connects to it. */
static void worker_start(worker *w, bool unix_socket, unsigned n_threads, protection with)
{
    int address_fd[2];
    char address[256];
    memset(w, 0, sizeof *w);
    snprintf(address, sizeof address, unix_socket ? "unix:@bench_ps-%ld" : "127.0.0.1:0", (long)getpid());
    fflush(stdout);
    if (pipe(address_fd) != 0 || (w->pid = fork()) < 0)
        die("a server cannot be started");
    if (w->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(address_fd[0]);
        serve(address, address_fd[1], n_threads, with);
        _exit(0);
    }
    close(address_fd[1]);
    if (!read_all(address_fd[0], address, sizeof address))
        die("the server has not started");
    close(address_fd[0]);
    describe(&w->params, &w->table);
    mst_net_options net = net_options(MST_ROLE_WORKER, with);
    mst_net_events events = {worker_up, worker_down, worker_body, worker_message, worker_sent, NULL};
    need(mst_net_new(&mst_net_tcp, &net, &events, w, &w->net));
    need(mst_net_connect(w->net, address, mst_now_ns() + 10 * MST_S, &w->server));
    while (!w->up)
        need(mst_net_poll(w->net, mst_now_ns() + 10 * MST_S));
    mst_client_options options = {
        .net = w->net, .table = &w->table, .peers = &w->server, .n_requests = IN_FLIGHT_MAX + 1};
    need(mst_client_new(&options, &w->client));
}

static void worker_stop(worker *w)
{
    mst_net_destroy(w->net);
    mst_client_destroy(w->client);
    mst_placement_fini(&w->table);
    mst_params_fini(&w->params);
    for (size_t i = 0; i <= IN_FLIGHT_MAX; i++)
        free(w->g[i]);
    int status;
    if (waitpid(w->pid, &status, 0) != w->pid || status != 0)
        die("the server failed");
}

static void send_next(worker *w, const pool *p, const mst_push *push, uint32_t slot)
{
    mst_key_list *list = mst_client_list(w->client, slot);
    list->keys = p->keys + (size_t)w->next_set * p->n_keys;
    list->n_keys = p->n_keys;
    w->next_set = (w->next_set + 1) % p->n_sets;
    need(mst_client_send(w->client, push, slot));
}

/* Fills the pipe: from here on one request is sent for every reply. */
static void fill(worker *w, const pool *p, uint32_t in_flight)
{
    w->in_flight = in_flight;
    w->oldest = 0;
    w->free_slot = in_flight;
    for (uint32_t i = 0; i <= in_flight; i++) {
        if (w->g[i] == NULL && (w->g[i] = malloc(p->n_keys * sizeof(float))) == NULL)
            die("no memory for gradients");
        for (uint32_t k = 0; k < p->n_keys; k++)
            w->g[i][k] = (float)(k % 7) - 3.0f;
    }
    for (uint32_t slot = 0; slot < in_flight; slot++)
        send_next(w, p, NULL, slot);
}

/* Waits for what is in flight. */
static void drain(worker *w)
{
    for (uint32_t i = 0; i < w->in_flight; i++)
        need(mst_client_wait(w->client, (w->oldest + i) % (w->in_flight + 1), mst_now_ns() + 10 * MST_S));
}

/* Requests for so many seconds; returns their number. */
static uint64_t request_for(worker *w, const pool *p, double seconds)
{
    uint64_t start = mst_now_ns(), end = start + (uint64_t)(seconds * 1e9), now = start, n = 0;
    while (now < end) {
        uint32_t slot = w->oldest;
        need(mst_client_wait(w->client, slot, now + 10 * MST_S));
        mst_push push = {.request = slot, .g = w->g[slot], .step = n, .rows = 1, .loss = 1, .weight = 1};
        send_next(w, p, &push, w->free_slot);
        w->free_slot = slot;
        w->oldest = (slot + 1) % (w->in_flight + 1);
        n++;
        now = mst_now_ns();
    }
    return n;
}

/* The same; returns seconds per request. */
static double go(worker *w, const pool *p, double seconds)
{
    uint64_t start = mst_now_ns(), n = request_for(w, p, seconds);
    return (double)(mst_now_ns() - start) * 1e-9 / (double)n;
}

/* Bytes per request in each direction, headers included. */
static void sizes(worker *w, const pool *p, double *out, double *in)
{
    mst_net_stats before, after;
    mst_net_stats_get(w->net, w->server, &before);
    go(w, p, 0.2);
    mst_net_stats_get(w->net, w->server, &after);
    double n = (double)(after.messages_out - before.messages_out);
    *out = (double)(after.bytes_out - before.bytes_out) / n;
    *in = (double)(after.bytes_in - before.bytes_in) / (double)(after.messages_in - before.messages_in);
}

/* ---- the echo ---- */

typedef struct echo {
    int fd;
    pid_t pid;
    char *buffer;
    size_t request, reply;
} echo;

static int echo_socket(bool unix_socket, int *other)
{
    int pair[2];
    if (unix_socket) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
            die("socketpair");
        *other = pair[1];
        return pair[0];
    }
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    if (listener < 0 || fd < 0 || bind(listener, (struct sockaddr *)&at, length) != 0 ||
        listen(listener, 1) != 0 || getsockname(listener, (struct sockaddr *)&at, &length) != 0 ||
        connect(fd, (struct sockaddr *)&at, length) != 0 || (*other = accept(listener, NULL, NULL)) < 0)
        die("echo over TCP");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(*other, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    close(listener);
    return fd;
}

static void echo_start(echo *e, bool unix_socket, size_t request, size_t reply)
{
    int other;
    *e = (echo){.request = request, .reply = reply};
    e->fd = echo_socket(unix_socket, &other);
    e->buffer = calloc(1, request > reply ? request : reply);
    fflush(stdout);
    if (e->buffer == NULL || (e->pid = fork()) < 0)
        die("an echo cannot be started");
    if (e->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pin(1);
        close(e->fd);
        while (read_all(other, e->buffer, request))
            write_all(other, e->buffer, reply);
        _exit(0);
    }
    close(other);
}

static void echo_stop(echo *e)
{
    close(e->fd);
    free(e->buffer);
    waitpid(e->pid, NULL, 0);
}

static double echo_go(echo *e, double seconds)
{
    uint64_t start = mst_now_ns(), end = start + (uint64_t)(seconds * 1e9), now = start, n = 0;
    while (now < end) {
        write_all(e->fd, e->buffer, e->request);
        if (!read_all(e->fd, e->buffer, e->reply))
            die("the echo ended");
        n++;
        now = mst_now_ns();
    }
    return (double)(now - start) * 1e-9 / (double)n;
}

/* ---- lines ---- */

static void small_lines(const settings *s, const pool *p, bool unix_socket)
{
    const char *tail = unix_socket ? "_unix" : "";
    double ratios[MOST_ROUNDS], times[MOST_ROUNDS], echoes[MOST_ROUNDS], rates[MOST_ROUNDS], out, in;
    worker w;
    echo e;
    worker_start(&w, unix_socket, s->threads, CHECKSUM);
    fill(&w, p, 1);
    sizes(&w, p, &out, &in);
    echo_start(&e, unix_socket, (size_t)out, (size_t)in);
    echo_go(&e, 0.1);
    for (unsigned r = 0; r < s->rounds; r++) {
        echoes[r] = echo_go(&e, s->seconds);
        times[r] = go(&w, p, s->seconds);
        ratios[r] = times[r] / echoes[r];
    }
    echo_stop(&e);
    drain(&w);
    fill(&w, p, IN_FLIGHT_MAX);
    go(&w, p, 0.1);
    for (unsigned r = 0; r < s->rounds; r++)
        rates[r] = p->n_keys / go(&w, p, s->seconds);
    drain(&w);
    worker_stop(&w);
    printf("ps_pushpull_1k_over_echo%s %.3f ratio\n", tail, median(ratios, s->rounds));
    printf("ps_pushpull_1k_us%s %.1f us\n", tail, median(times, s->rounds) * 1e6);
    printf("ps_echo_1k_us%s %.1f us\n", tail, median(echoes, s->rounds) * 1e6);
    printf("ps_pushpull_1k_x8_keys_per_s%s %.0f keys/s\n", tail, median(rates, s->rounds));
    if (!unix_socket)
        printf("ps_bytes_per_key_1k %.3f bytes\n", (out + in) / p->n_keys);
}

static void large_lines(const settings *s, const pool *p, bool unix_socket)
{
    double rates[MOST_ROUNDS], out, in;
    worker w;
    worker_start(&w, unix_socket, s->threads, CHECKSUM);
    fill(&w, p, 4);
    sizes(&w, p, &out, &in);
    for (unsigned r = 0; r < s->rounds; r++)
        rates[r] = p->n_keys / go(&w, p, s->seconds);
    drain(&w);
    worker_stop(&w);
    printf("ps_pushpull_1m_keys_per_s%s %.0f keys/s\n", unix_socket ? "_unix" : "", median(rates, s->rounds));
    if (!unix_socket)
        printf("ps_bytes_per_key_1m %.3f bytes\n", (out + in) / p->n_keys);
}

/* Processor time of both sides, in seconds. */
static double cpu_time(const worker *w)
{
    clockid_t of_server;
    struct timespec own, other;
    if (clock_getcpuclockid(w->pid, &of_server) != 0 || clock_gettime(of_server, &other) != 0 ||
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own) != 0)
        die("processor time");
    return (double)(own.tv_sec + other.tv_sec) + (double)(own.tv_nsec + other.tv_nsec) * 1e-9;
}

/* Seconds per request, and processor seconds of both sides, from the first request to the last answer. */
static void take_turn(worker *w, const pool *p, uint32_t in_flight, double seconds, double *each, double *cpu)
{
    uint64_t start = mst_now_ns();
    double before = cpu_time(w);
    fill(w, p, in_flight);
    double n = in_flight + (double)request_for(w, p, seconds);
    drain(w);
    *each = (double)(mst_now_ns() - start) * 1e-9 / n;
    *cpu = (cpu_time(w) - before) / n;
}

static void protection_lines(const settings *s, const pool *p, uint32_t in_flight, const char *size)
{
    static const char *const names[] = {
        [CHECKSUM] = "checksum", [BARE] = "bare", [MAC] = "mac", [TLS] = "tls"};
    static double ratios[N_PROTECTIONS][MOST_ROUNDS * TURNS], cpu_ratios[N_PROTECTIONS][MOST_ROUNDS * TURNS];
    double times[N_PROTECTIONS], cpus[N_PROTECTIONS], bare[MOST_ROUNDS * TURNS];
    worker w[N_PROTECTIONS];
    unsigned n_turns = s->rounds * TURNS;
    for (int i = 0; i < N_PROTECTIONS; i++) {
        worker_start(&w[i], false, s->threads, (protection)i);
        take_turn(&w[i], p, in_flight, 0.1, &times[i], &cpus[i]);
    }
    for (unsigned r = 0; r < n_turns; r++) {
        for (unsigned k = 0; k < N_PROTECTIONS; k++) {
            unsigned i = (r + k) % N_PROTECTIONS;
            take_turn(&w[i], p, in_flight, s->seconds / TURNS, &times[i], &cpus[i]);
        }
        for (int i = 0; i < N_PROTECTIONS; i++) {
            ratios[i][r] = times[i] / times[BARE];
            cpu_ratios[i][r] = cpus[i] / cpus[BARE];
        }
        bare[r] = times[BARE];
    }
    printf("ps_bare_%s_us %.1f us\n", size, median(bare, n_turns) * 1e6);
    for (int i = 0; i < N_PROTECTIONS; i++) {
        worker_stop(&w[i]);
        if (i == BARE)
            continue;
        printf("ps_%s_overhead_%s %.1f %%\n", names[i], size, 100 * (median(ratios[i], n_turns) - 1));
        printf("ps_%s_cpu_overhead_%s %.1f %%\n", names[i], size, 100 * (median(cpu_ratios[i], n_turns) - 1));
    }
}

static bool set_option(settings *s, const char *name, const char *text)
{
    double value = atof(text);
    if (strcmp(name, "--rounds") == 0 && value >= 1 && value <= MOST_ROUNDS)
        s->rounds = (unsigned)value;
    else if (strcmp(name, "--seconds") == 0 && value > 0)
        s->seconds = value;
    else if (strcmp(name, "--sets-1m") == 0 && value >= 1)
        s->sets_1m = (unsigned)value;
    else if (strcmp(name, "--threads") == 0 && value >= 1)
        s->threads = (unsigned)value;
    else if (strcmp(name, "--only") == 0) {
        s->small = strcmp(text, "1k") == 0;
        s->large = strcmp(text, "1m") == 0;
        s->small_protection = strcmp(text, "1k-protection") == 0;
        s->large_protection = strcmp(text, "1m-protection") == 0;
        return s->small || s->large || s->small_protection || s->large_protection;
    } else {
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    settings s = {.rounds = 5,
                  .seconds = 1.0,
                  .sets_1m = SETS,
                  .threads = 2,
                  .small = true,
                  .large = true,
                  .small_protection = true,
                  .large_protection = true};
    for (int i = 1; i < argc; i += 2)
        if (i + 1 == argc || !set_option(&s, argv[i], argv[i + 1])) {
            fprintf(stderr, "usage: bench_ps [--rounds N] [--seconds S] [--sets-1m N] [--threads N] [--only "
                            "1k|1m|1k-protection|1m-protection]\n");
            return 2;
        }
    sched_getaffinity(0, sizeof all_cpus, &all_cpus);
    pin(0);
    if (s.small || s.small_protection) {
        pool p = pool_new(SETS, 1000);
        if (s.small)
            small_lines(&s, &p, false);
        if (s.small)
            small_lines(&s, &p, true);
        if (s.small_protection)
            protection_lines(&s, &p, 1, "1k");
        free(p.keys);
    }
    if (s.large || s.large_protection) {
        pool p = pool_new(s.sets_1m, 1000000);
        if (s.large)
            large_lines(&s, &p, false);
        if (s.large)
            large_lines(&s, &p, true);
        if (s.large_protection)
            protection_lines(&s, &p, 4, "1m");
        free(p.keys);
    }
    return 0;
}
