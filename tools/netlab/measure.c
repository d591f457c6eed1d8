/* Measures the network of a lab: round trips of small TCP messages and the rate of a TCP stream, between the
 * first host and each other one, then from all others to the first at once.
 *
 * One process serves in the first host's namespace and forks for each connection; one process per probe runs
 * in another host's and returns its figures through a pipe. All of them end with their parent, and no
 * wait is longer than the probe plus DEADLINE_S. */
#include "netlab.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    DEADLINE_S = 5,
    PING_SIZE = 64,
    N_PINGS_MOST = 1000,
    BLOCK_SIZE = 256 * 1024,
    CATCH_UP_MOST = 8 << 20, /* no socket keeps more */
};

typedef enum job { JOB_ECHO = 'e', JOB_SINK = 's', JOB_SOURCE = 'g' } job;

/* The first message on a connection; the figures return at the end of JOB_SINK or through the pipe of a
 * probe. */
typedef struct request {
    unsigned char job;
    unsigned char tenths; /* JOB_SOURCE: how long */
} request;

typedef struct figures {
    double p50_ms, p90_ms;                /* JOB_ECHO */
    uint64_t n_bytes, began_ns, ended_ns; /* the others; one clock for all processes of the machine */
} figures;

typedef struct probe {
    pid_t pid;
    int fd; /* its figures come here */
} probe;

static unsigned char block[BLOCK_SIZE];

static void set_options(int fd)
{
    struct timeval deadline = {.tv_sec = DEADLINE_S};
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &deadline, sizeof deadline);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static void send_all(int fd, const void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = send(fd, (const char *)bytes + done, size - done, MSG_NOSIGNAL);
        if (n < 0)
            netlab_die("a probe could not send: %s", strerror(errno));
        done += (size_t)n;
    }
}

static void receive_all(int fd, void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = recv(fd, (char *)bytes + done, size - done, 0);
        if (n <= 0)
            netlab_die("a probe got no answer: %s", n == 0 ? "the connection was closed" : strerror(errno));
        done += (size_t)n;
    }
}

static double gbit_per_s(const figures *f)
{
    uint64_t ns = f->ended_ns - f->began_ns;
    return f->ended_ns > f->began_ns ? (double)f->n_bytes * 8 / (double)ns : 0;
}

/* Receives until the peer ends. If this process got no core in time, earlier bytes are queued: it reads them
 * first and starts the clock when the queue is empty. */
static figures drain(int fd)
{
    figures f = {0};
    size_t early = 0;
    bool caught_up = false;
    for (;;) {
        ssize_t n = recv(fd, block, sizeof block, early > 0 && !caught_up ? MSG_DONTWAIT : 0);
        bool none = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) && early > 0 && !caught_up;
        if (n < 0 && !none)
            netlab_die("a stream stopped: %s", strerror(errno));
        if (n == 0)
            return f;
        f.ended_ns = netlab_now_ns();
        if (caught_up) {
            f.n_bytes += (uint64_t)n;
            continue;
        }
        early += none ? 0 : (size_t)n;
        caught_up = none || early >= CATCH_UP_MOST;
        f.began_ns = f.ended_ns;
    }
}

static void fill(int fd, double seconds)
{
    uint64_t end_ns = netlab_now_ns() + (uint64_t)(seconds * 1e9);
    while (netlab_now_ns() < end_ns)
        send_all(fd, block, sizeof block);
    shutdown(fd, SHUT_WR);
}

/* The serving end of one connection. */
static void answer(int fd)
{
    request r;
    figures f = {0};
    set_options(fd);
    receive_all(fd, &r.job, 1);
    if (r.job == JOB_ECHO) {
        struct timeval none = {0};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none,
                   sizeof none); /* ends with the server, or with the peer */
        for (ssize_t n; (n = recv(fd, block, sizeof block, 0)) > 0;)
            send_all(fd, block, (size_t)n);
    } else if (r.job == JOB_SINK) {
        f = drain(fd);
        send_all(fd, &f, sizeof f);
    } else if (r.job == JOB_SOURCE) {
        receive_all(fd, &r.tenths, 1);
        fill(fd, r.tenths / 10.0);
    }
}

static int listen_at(const char *address, int *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t size = sizeof at;
    if (inet_pton(AF_INET, address, &at.sin_addr) != 1)
        netlab_die("%s: not an IPv4 address", address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, NETLAB_MAX_HOSTS) != 0 ||
        getsockname(fd, (struct sockaddr *)&at, &size) != 0)
        netlab_die("cannot listen at %s: %s", address, strerror(errno));
    *port = ntohs(at.sin_port);
    return fd;
}

/* Serves until killed. */
static _Noreturn void serve(int listener)
{
    signal(SIGCHLD, SIG_IGN); /* no zombies */
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            continue;
        pid_t parent = getpid(), pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() == parent)
                answer(fd);
            _exit(0);
        }
        close(fd);
    }
}

int netlab_serve(int argc, char **argv)
{
    int port;
    if (argc != 1)
        netlab_die("serve needs an address");
    int listener = listen_at(argv[0], &port);
    printf("%d\n", port);
    fflush(stdout);
    serve(listener);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static figures ping(int fd, double seconds)
{
    static double times[N_PINGS_MOST];
    unsigned char message[PING_SIZE] = {0};
    uint64_t end_ns = netlab_now_ns() + (uint64_t)(seconds * 1e9);
    int n = 0;
    send_all(fd, message, sizeof message); /* the first one warms the caches */
    receive_all(fd, message, sizeof message);
    do {
        uint64_t began_ns = netlab_now_ns();
        send_all(fd, message, sizeof message);
        receive_all(fd, message, sizeof message);
        times[n++] = (double)(netlab_now_ns() - began_ns) / 1e6;
    } while (n < N_PINGS_MOST && netlab_now_ns() < end_ns);
    qsort(times, (size_t)n, sizeof times[0], by_value);
    return (figures){.p50_ms = times[n / 2], .p90_ms = times[n * 9 / 10]};
}

/* Starts a probe in the namespace of one host towards the server in the first. */
static probe probe_start(const char *name, int port, job what, double seconds)
{
    int ends[2];
    pid_t parent = getpid();
    if (pipe(ends) != 0)
        netlab_die("no pipe for a probe: %s", strerror(errno));
    pid_t pid = fork();
    if (pid < 0)
        netlab_die("cannot start a probe: %s", strerror(errno));
    if (pid > 0) {
        close(ends[1]);
        return (probe){pid, ends[0]};
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    netlab_enter(name);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    char address[32];
    snprintf(address, sizeof address, NETLAB_ADDRESS, 1);
    inet_pton(AF_INET, address, &to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    set_options(fd);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        netlab_die("%s cannot connect to the first host: %s", name,
                   errno == EINPROGRESS ? "no answer, is its link cut?" : strerror(errno));
    request r = {.job = (unsigned char)what, .tenths = (unsigned char)(seconds * 10 + 0.5)};
    figures f = {0};
    send_all(fd, &r, what == JOB_SOURCE ? 2 : 1);
    if (what == JOB_ECHO) {
        f = ping(fd, seconds);
    } else if (what == JOB_SINK) {
        fill(fd, seconds);
        receive_all(fd, &f, sizeof f);
    } else {
        f = drain(fd);
    }
    if (write(ends[1], &f, sizeof f) != sizeof f)
        _exit(1);
    _exit(0);
}

/* Waits for the figures of a probe; ends the program if they do not arrive. */
static figures probe_end(probe p, const char *name, double seconds)
{
    figures f;
    struct pollfd wait = {.fd = p.fd, .events = POLLIN};
    int ready = poll(&wait, 1, (int)(seconds * 1000) + 3 * DEADLINE_S * 1000);
    if (ready != 1 || read(p.fd, &f, sizeof f) != sizeof f)
        netlab_die("the probe in %s %s", name, ready == 0 ? "has not ended in time" : "has failed");
    close(p.fd);
    waitpid(p.pid, NULL, 0);
    return f;
}

int netlab_measure(int argc, char **argv)
{
    double seconds = 1;
    if (argc >= 2 && strcmp(argv[0], "--seconds") == 0) {
        seconds = atof(argv[1]);
        if (!(seconds >= 0.1 && seconds <= 20))
            netlab_die("--seconds %s: a number from 0.1 to 20 is required", argv[1]);
        argc -= 2, argv += 2;
    }
    if (argc < 2 || argc > NETLAB_MAX_HOSTS)
        netlab_die("measure needs 2 to %d namespaces", NETLAB_MAX_HOSTS);

    char address[32];
    int port;
    netlab_enter(argv[0]);
    snprintf(address, sizeof address, NETLAB_ADDRESS, 1);
    int listener = listen_at(address, &port);
    pid_t parent = getpid(), server = fork();
    if (server < 0)
        netlab_die("cannot start the serving probe: %s", strerror(errno));
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        serve(listener);
    }
    close(listener);

    printf("%4s %11s %11s %12s %14s\n", "host", "rtt_p50_ms", "rtt_p90_ms", "to_1_gbit_s", "from_1_gbit_s");
    for (int k = 1; k < argc; k++) {
        figures rtt = probe_end(probe_start(argv[k], port, JOB_ECHO, seconds), argv[k], seconds);
        figures to = probe_end(probe_start(argv[k], port, JOB_SINK, seconds), argv[k], seconds);
        figures from = probe_end(probe_start(argv[k], port, JOB_SOURCE, seconds), argv[k], seconds);
        printf("%4d %11.3f %11.3f %12.3f %14.3f\n", k + 1, rtt.p50_ms, rtt.p90_ms, gbit_per_s(&to),
               gbit_per_s(&from));
        fflush(stdout);
    }
    probe probes[NETLAB_MAX_HOSTS];
    figures all = {.began_ns = UINT64_MAX}; /* from the first of them to the last */
    for (int k = 1; k < argc; k++)
        probes[k] = probe_start(argv[k], port, JOB_SINK, seconds);
    for (int k = 1; k < argc; k++) {
        figures f = probe_end(probes[k], argv[k], seconds);
        all.n_bytes += f.n_bytes;
        all.began_ns = f.began_ns < all.began_ns ? f.began_ns : all.began_ns;
        all.ended_ns = f.ended_ns > all.ended_ns ? f.ended_ns : all.ended_ns;
    }
    printf(" all %11s %11s %12.3f %14s\n", "-", "-", gbit_per_s(&all), "-");
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    return 0;
}
