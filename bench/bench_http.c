/* Load on an HTTP server: keep-alive connections that each send one request after the other, on one thread.
 *
 *     bench_http PORT PATH BODIES SECONDS CONNECTIONS
 *
 * BODIES is a file of request bodies, one per line, which are sent in turn by POST to 127.0.0.1. The first
 * tenth of the time does not count. Prints `requests_per_s`, `p50_ms`, `p99_ms`, `max_ms` and `failures`:
 * answers that are not 200, and connections that ended. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BUCKETS 200000 /* of the latency: 1 us each */
#define ANSWER  65536

typedef struct request {
    char *text;
    size_t n;
} request;

typedef struct connection {
    int fd;
    size_t next; /* the request that it sends next */
    uint64_t sent_ns;
    char answer[ANSWER];
    size_t n;
} connection;

static request *requests;
static size_t n_requests;
static uint64_t latency[BUCKETS + 1];
static uint64_t n_done, n_failed;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
    fprintf(stderr, "bench_http: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void read_bodies(const char *file, const char *path)
{
    char *line = NULL;
    size_t size = 0, capacity = 0;
    ssize_t n;
    FILE *in = fopen(file, "r");
    if (in == NULL)
        die(file);
    while ((n = getline(&line, &size, in)) > 0) {
        if (n_requests == capacity) {
            capacity = capacity > 0 ? 2 * capacity : 1024;
            requests = realloc(requests, capacity * sizeof *requests);
            if (requests == NULL)
                die("memory");
        }
        n -= line[n - 1] == '\n';
        char *text = malloc((size_t)n + strlen(path) + 200);
        if (text == NULL)
            die("memory");
        int head = sprintf(text,
                           "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                           "Content-Length: %zd\r\n\r\n",
                           path, n);
        memcpy(text + head, line, (size_t)n);
        requests[n_requests++] = (request){text, (size_t)(head + n)};
    }
    free(line);
    fclose(in);
    if (n_requests == 0) {
        fprintf(stderr, "bench_http: %s has no lines\n", file);
        exit(1);
    }
}

static void connect_to(connection *c, int port, int epoll, size_t first)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int on = 1;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof to) != 0)
        die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->next = first % n_requests;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event) != 0)
        die("epoll_ctl");
}

static void send_next(connection *c)
{
    const request *r = &requests[c->next];
    c->next = (c->next + 1) % n_requests;
    c->n = 0;
    c->sent_ns = now_ns();
    for (size_t at = 0; at < r->n;) {
        ssize_t n = send(c->fd, r->text + at, r->n - at, MSG_NOSIGNAL);
        if (n < 0)
            die("send");
        at += (size_t)n;
    }
}

/* Whether the answer is complete: a head with its Content-Length, and so many bytes. */
static bool is_complete(connection *c)
{
    c->answer[c->n] = '\0';
    char *end = strstr(c->answer, "\r\n\r\n"), *length = strcasestr(c->answer, "\r\nContent-Length:");
    return end != NULL && length != NULL && length < end &&
           c->n >= (size_t)(end - c->answer) + 4 + strtoul(length + 17, NULL, 10);
}

static void take(connection *c, bool counts)
{
    ssize_t n = recv(c->fd, c->answer + c->n, ANSWER - 1 - c->n, 0);
    if (n <= 0)
        die("the server ended a connection");
    c->n += (size_t)n;
    if (!is_complete(c))
        return;
    uint64_t us = (now_ns() - c->sent_ns) / 1000;
    if (counts) {
        n_done++;
        latency[us < BUCKETS ? us : BUCKETS]++;
        n_failed += strncmp(c->answer, "HTTP/1.1 200", 12) != 0;
    }
    send_next(c);
}

static double quantile_ms(double q)
{
    uint64_t sum = 0;
    for (size_t i = 0; i <= BUCKETS; i++) {
        sum += latency[i];
        if ((double)sum >= q * (double)n_done)
            return (double)i / 1000.0;
    }
    return (double)BUCKETS / 1000.0;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: bench_http PORT PATH BODIES SECONDS CONNECTIONS\n");
        return 2;
    }
    int port = atoi(argv[1]), n = atoi(argv[5]), epoll = epoll_create1(0);
    double seconds = atof(argv[4]);
    read_bodies(argv[3], argv[2]);
    connection *all = calloc((size_t)n, sizeof *all);
    if (all == NULL || epoll < 0)
        die("memory");
    for (int i = 0; i < n; i++)
        connect_to(&all[i], port, epoll, (size_t)i * 997);
    uint64_t start = now_ns(), from = start + (uint64_t)(seconds * 1e8),
             end = start + (uint64_t)(seconds * 1e9), now;
    for (int i = 0; i < n; i++)
        send_next(&all[i]);
    while ((now = now_ns()) < end) {
        struct epoll_event events[64];
        int ready = epoll_wait(epoll, events, 64, 100);
        for (int i = 0; i < ready; i++)
            take(events[i].data.ptr, now >= from);
    }
    printf("requests_per_s %.0f\np50_ms %.3f\np99_ms %.3f\nmax_ms %.3f\nfailures %llu\n",
           (double)n_done / ((double)(end - from) * 1e-9), quantile_ms(0.5), quantile_ms(0.99),
           quantile_ms(1.0), (unsigned long long)n_failed);
    return n_failed > 0;
}
