/* netlab-switch: the Ethernet between the hosts of a lab (docs/NETLAB.md), in one thread of one process.
 *
 * Each host is a network namespace with one TAP device, which this process creates and which disappears with
 * it. A frame read from a TAP at time t passes two links and a delay between them, all in virtual time:
 * nothing is delivered early, and a late wake-up delays a frame without slowing a link.
 *
 *   uplink:   the sender's link carries it from start = max(t, free) to free = start + size / rate.
 *   delay:    its first byte reaches the receiver's link at start + the sender's delay + rtt / 2; this time
 *             determines its position among the frames of all hosts.
 *   downlink: the receiver's link carries it likewise; the switch writes it to the TAP when its last byte has
 *             arrived and the receiver's delay has passed.
 *
 * Each link has a rate, a delay and a loss of its own; `link` changes them while the lab runs.
 *
 * The switch cuts through: between idle links a frame takes size / rate + rtt / 2 + both delays. TAPs carry
 * virtio headers, so TCP passes up to 64 KB in one frame (one read, one write, no checksums); on the wire it
 * counts as its segments, headers included. Loss applies to each segment (segments.c).
 *
 * Invariants
 * 1. Due times in a FIFO never decrease, so only the heads are examined. If the delay of a link is reduced,
 * later frames wait behind earlier ones.
 * 2. A frame read after `now` reaches a downlink after now + rtt / 2. So uplink heads due by then are moved
 * at once, in the order of their times: no later frame can precede them.
 * 3. A queue is the time until its link is free, times its rate. A frame that would exceed `queue` is
 * dropped.
 * 4. The thread sleeps in epoll until a frame, a command or the earliest due time; without frames, no
 * timer runs.
 * 5. A cut port drops all frames from and to its host. Its device stays up, so the cut is silent.
 * 6. Lost segments have used the sender's link and do not use the receiver's. */
#include "netlab.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
    VNET = NETLAB_VNET,
    ETH_HEADER = 14,
    LARGE = 66 * 1024 + VNET, /* a 64 KB IP packet, its Ethernet and virtio headers, and room to spare */
    SMALL = 2048,
    READS_PER_TURN = 8, /* per port, so that deliveries are not held up by a flood */
    COMMAND_SIZE = 128,
    REPLY_SIZE = 8192,
    REPLY_SECONDS = 5,
};

/* The address of host k's device ends in k; scripts/netlab sets it. */
static const unsigned char mac_prefix[5] = {0x02, 'm', 's', 't', 0x00};

typedef struct frame {
    struct frame *next;
    uint64_t due_ns;
    uint32_t size; /* of bytes: virtio header and frame */
    uint32_t wire; /* bytes on the wire */
    int to;        /* port index */
    bool large;    /* room for LARGE bytes, else SMALL */
    unsigned char bytes[];
} frame;

typedef struct lane {
    uint64_t free_ns; /* end of the accepted frames */
    frame *head, *tail;
    uint64_t n_frames, n_bytes, n_dropped;
} lane;

/* The properties of a host's link, the same in both directions. */
typedef struct link_settings {
    double rate;       /* bits per second */
    uint64_t delay_ns; /* one way, in addition to half of the round trip */
    double loss;       /* probability, per segment */
} link_settings;

typedef struct port {
    int fd;
    bool cut, gone; /* gone: the device was removed */
    link_settings link;
    uint64_t n_strange, n_lost;
    lane up, down;
} port;

static struct {
    int n_ports, epoll_fd, timer_fd, control_fd;
    double queue_bytes;
    link_settings link; /* of hosts without settings of their own */
    uint64_t delay_ns;  /* one way, between all hosts */
    uint64_t random;    /* state of the generator */
    bool realtime;
    uint64_t armed_ns; /* the timer's time, 0 when off */
    frame *spare_small, *spare_large;
    frame *in; /* a large one, for the next read */
    port ports[NETLAB_MAX_HOSTS];
} sw;

_Noreturn void netlab_die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("netlab-switch: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

uint64_t netlab_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void netlab_enter(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "/run/netns/%s", name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0)
        netlab_die("cannot enter the network namespace %s: %s", path, strerror(errno));
    close(fd);
}

/* Frames and their memory. Without memory a frame is dropped. */

static frame *frame_new(bool large)
{
    frame **spare = large ? &sw.spare_large : &sw.spare_small;
    frame *f = *spare;
    if (f != NULL)
        *spare = f->next;
    else
        f = malloc(sizeof *f + (large ? LARGE : SMALL));
    if (f != NULL) {
        f->next = NULL;
        f->large = large;
    }
    return f;
}

static void frame_free(frame *f)
{
    frame **spare = f->large ? &sw.spare_large : &sw.spare_small;
    f->next = *spare;
    *spare = f;
}

/* Appends a frame that is due at due_ns, or with the frame before it if that is later (invariant 1). */
static void lane_push(lane *l, frame *f, uint64_t due_ns)
{
    f->next = NULL;
    f->due_ns = due_ns;
    if (l->head == NULL) {
        l->head = f;
    } else {
        if (l->tail->due_ns > due_ns)
            f->due_ns = l->tail->due_ns;
        l->tail->next = f;
    }
    l->tail = f;
}

static frame *lane_pop(lane *l)
{
    frame *f = l->head;
    l->head = f->next;
    return f;
}

/* Accepts `wire` bytes that are there at time at_ns; *start_ns is when they begin to move. False: the queue
 * is full. */
static bool lane_accept(lane *l, double rate, uint64_t at_ns, uint32_t wire, uint64_t *start_ns)
{
    double ns_per_byte = 8e9 / rate;
    if (l->free_ns > at_ns && (double)(l->free_ns - at_ns) > sw.queue_bytes * ns_per_byte) {
        l->n_dropped++;
        return false;
    }
    *start_ns = l->free_ns > at_ns ? l->free_ns : at_ns;
    l->free_ns = *start_ns + (uint64_t)(wire * ns_per_byte + 0.5);
    l->n_frames++;
    l->n_bytes += wire;
    return true;
}

static int port_of_mac(const unsigned char *mac)
{
    int k = mac[5] - 1;
    return memcmp(mac, mac_prefix, sizeof mac_prefix) == 0 && k >= 0 && k < sw.n_ports ? k : -1;
}

/* Reads the frames that a host has sent, at most READS_PER_TURN. */
static void port_read(int index)
{
    port *p = &sw.ports[index];
    for (int i = 0; i < READS_PER_TURN; i++) {
        if (sw.in == NULL && (sw.in = frame_new(true)) == NULL)
            return;
        ssize_t n = read(p->fd, sw.in->bytes, LARGE);
        if (n < 0) {
            if (errno != EAGAIN && errno != EINTR) {
                p->gone = true;
                epoll_ctl(sw.epoll_fd, EPOLL_CTL_DEL, p->fd, NULL);
            }
            return;
        }
        uint64_t now = netlab_now_ns(), start_ns;
        uint32_t size = (uint32_t)n;
        if (size < VNET + ETH_HEADER || size == LARGE) {
            p->n_strange++;
            continue;
        }
        int to = port_of_mac(sw.in->bytes + VNET);
        if (to < 0 || to == index) { /* broadcasts too: neighbours are static */
            p->n_strange++;
            continue;
        }
        if (p->cut) {
            p->up.n_dropped++;
            continue;
        }
        uint32_t wire = netlab_segments_of(sw.in->bytes, size).wire;
        if (!lane_accept(&p->up, p->link.rate, now, wire, &start_ns))
            continue;
        frame *f = sw.in;
        if (size <= SMALL) {
            f = frame_new(false);
            if (f == NULL) {
                p->up.n_dropped++;
                continue;
            }
            memcpy(f->bytes, sw.in->bytes, size);
        } else {
            sw.in = NULL;
        }
        f->size = size;
        f->wire = wire;
        f->to = to;
        lane_push(&p->up, f, start_ns + p->link.delay_ns + sw.delay_ns);
    }
}

/* Puts a frame that arrives at time at_ns on the link of its receiver. */
static void enter_downlink(frame *f, uint64_t at_ns)
{
    port *to = &sw.ports[f->to];
    uint64_t start_ns;
    if (lane_accept(&to->down, to->link.rate, at_ns, f->wire, &start_ns))
        lane_push(&to->down, f, to->down.free_ns + to->link.delay_ns);
    else
        frame_free(f);
}

static bool happens(double probability)
{
    if (probability <= 0)
        return false;
    sw.random ^= sw.random << 13; /* xorshift64 */
    sw.random ^= sw.random >> 7;
    sw.random ^= sw.random << 17;
    return (double)(sw.random >> 11) < probability * 0x1p53;
}

/* Loses segments of a frame by the loss of both links. The runs of segments that remain go on as frames. */
static void lose(port *from, frame *f)
{
    port *to = &sw.ports[f->to];
    netlab_segments all = netlab_segments_of(f->bytes, f->size);
    uint32_t first = 0; /* of the current run */
    for (uint32_t i = 0; i <= all.n; i++) {
        bool end = i == all.n;
        bool lost_from = !end && happens(from->link.loss);
        bool lost_to = !end && !lost_from && happens(to->link.loss);
        if (!end && !lost_from && !lost_to)
            continue;
        from->n_lost += lost_from;
        to->n_lost += lost_to;
        if (end && first == 0) { /* nothing was lost */
            enter_downlink(f, f->due_ns);
            return;
        }
        if (i > first) {
            frame *run = frame_new(f->large);
            if (run == NULL) {
                to->down.n_dropped++;
            } else {
                run->size = netlab_segments_copy(&all, f->bytes, first, i, run->bytes);
                run->wire = netlab_segments_of(run->bytes, run->size).wire;
                run->to = f->to;
                enter_downlink(run, f->due_ns);
            }
        }
        first = i + 1;
    }
    frame_free(f);
}

/* Moves frames from uplinks to downlinks in the order of their arrival there (invariant 2). */
static void cross(uint64_t now)
{
    for (;;) {
        port *earliest = NULL;
        for (int i = 0; i < sw.n_ports; i++) {
            port *p = &sw.ports[i];
            if (p->up.head != NULL && p->up.head->due_ns <= now + sw.delay_ns &&
                (earliest == NULL || p->up.head->due_ns < earliest->up.head->due_ns))
                earliest = p;
        }
        if (earliest == NULL)
            return;
        frame *f = lane_pop(&earliest->up);
        if (earliest->link.loss > 0 || sw.ports[f->to].link.loss > 0)
            lose(earliest, f);
        else
            enter_downlink(f, f->due_ns);
    }
}

static void deliver(uint64_t now)
{
    for (int i = 0; i < sw.n_ports; i++) {
        port *p = &sw.ports[i];
        while (p->down.head != NULL && p->down.head->due_ns <= now) {
            frame *f = lane_pop(&p->down);
            if (p->cut || write(p->fd, f->bytes, f->size) < 0) /* EIO: the device is down in its host */
                p->down.n_dropped++;
            frame_free(f);
        }
    }
}

/* Sets the timer to the earliest due time, or off. */
static void arm_timer(void)
{
    uint64_t next = UINT64_MAX;
    for (int i = 0; i < sw.n_ports; i++) {
        const port *p = &sw.ports[i];
        if (p->up.head != NULL && p->up.head->due_ns < next)
            next = p->up.head->due_ns;
        if (p->down.head != NULL && p->down.head->due_ns < next)
            next = p->down.head->due_ns;
    }
    if (next == UINT64_MAX)
        next = 0;
    if (next == sw.armed_ns)
        return;
    sw.armed_ns = next;
    struct itimerspec t = {.it_value = {(time_t)(next / 1000000000u), (long)(next % 1000000000u)}};
    timerfd_settime(sw.timer_fd, TFD_TIMER_ABSTIME, &t, NULL);
}

/* A number with one of the units of a table. */
typedef struct unit {
    const char *name;
    double factor;
} unit;

static const unit rate_units[] = {{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}, {NULL, 0}};
static const unit time_units[] = {{"ms", 1e6}, {"us", 1e3}, {"s", 1e9}, {NULL, 0}};
static const unit size_units[] = {{"mb", 1024.0 * 1024}, {"kb", 1024}, {NULL, 0}};
static const unit share_units[] = {{"%", 0.01}, {NULL, 0}};

typedef struct range {
    const unit *units; /* limits are printed in the first one */
    double least, most;
} range;

static const range rate_range = {rate_units, 1e5, 1e11}, rtt_range = {time_units, 0, 1e10},
                   queue_range = {size_units, 64 * 1024, 64 * 1024 * 1024},
                   loss_range = {share_units, 0, 0.5};

static bool quantity_parse(const char *text, const range *r, double *value)
{
    char *end;
    double number = strtod(text, &end);
    for (const unit *u = r->units; end != text && u->name != NULL; u++) {
        *value = number * u->factor;
        if (strcmp(end, u->name) == 0 && *value >= r->least && *value <= r->most)
            return true;
    }
    return false;
}

static int quantity_error(const range *r, const char *name, const char *text, char *out, size_t size)
{
    return snprintf(out, size, "%s %s: a number with a unit is required, from %g%s to %g%s", name, text,
                    r->least / r->units->factor, r->units->name, r->most / r->units->factor, r->units->name);
}

/* Commands come as datagrams: "cut K", "heal K", "link K NAME=VALUE ..." or "link K reset", "status". The
 * reply begins with "ok", or with "no" and a reason. */

/* Changes the settings of a link: all of them, or none and a reply with the reason. */
static int link_change(port *p, char *words, char *reply, size_t size)
{
    link_settings link = p->link;
    char *rest;
    for (char *word = strtok_r(words, " ,", &rest); word != NULL; word = strtok_r(NULL, " ,", &rest)) {
        double value;
        const range *r = NULL;
        char *text = strchr(word, '=');
        if (strcmp(word, "reset") == 0) {
            link = sw.link;
            continue;
        }
        if (text != NULL) {
            *text++ = '\0';
            r = strcmp(word, "rate") == 0    ? &rate_range
                : strcmp(word, "delay") == 0 ? &rtt_range
                : strcmp(word, "loss") == 0  ? &loss_range
                                             : NULL;
        }
        if (r == NULL)
            return snprintf(reply, size, "no setting %s of a link: use rate=, delay=, loss= or reset", word);
        if (!quantity_parse(text, r, &value)) {
            int n = snprintf(reply, size, "no link: ");
            return n + quantity_error(r, word, text, reply + n, size - (size_t)n);
        }
        if (r == &rate_range)
            link.rate = value;
        else if (r == &loss_range)
            link.loss = value;
        else
            link.delay_ns = (uint64_t)value;
    }
    p->link = link;
    return snprintf(reply, size, "ok\n");
}

static int status_text(char *out, size_t size)
{
    struct timespec cpu;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    int n = snprintf(out, size, "ok CPU %.3f s at %s priority, queues of %.0f KiB\n",
                     (double)cpu.tv_sec + (double)cpu.tv_nsec / 1e9, sw.realtime ? "real-time" : "normal",
                     sw.queue_bytes / 1024);
    n += snprintf(out + n, size - (size_t)n, "%4s %-5s %12s %14s %9s %12s %14s %9s %8s %9s %9s %6s %8s\n",
                  "host", "link", "sent", "bytes", "dropped", "received", "bytes", "dropped", "strange",
                  "rate_mbit", "delay_ms", "loss_%", "lost");
    for (int i = 0; i < sw.n_ports; i++) {
        const port *p = &sw.ports[i];
        n += snprintf(out + n, size - (size_t)n,
                      "%4d %-5s %12llu %14llu %9llu %12llu %14llu %9llu %8llu %9g %9g %6g %8llu\n", i + 1,
                      p->gone  ? "gone"
                      : p->cut ? "cut"
                               : "up",
                      (unsigned long long)p->up.n_frames, (unsigned long long)p->up.n_bytes,
                      (unsigned long long)p->up.n_dropped, (unsigned long long)p->down.n_frames,
                      (unsigned long long)p->down.n_bytes, (unsigned long long)p->down.n_dropped,
                      (unsigned long long)p->n_strange, p->link.rate / 1e6, (double)p->link.delay_ns / 1e6,
                      p->link.loss * 100, (unsigned long long)p->n_lost);
    }
    return n;
}

static void control_read(void)
{
    char text[COMMAND_SIZE], reply[REPLY_SIZE];
    struct sockaddr_un from;
    socklen_t from_size = sizeof from;
    ssize_t n =
        recvfrom(sw.control_fd, text, sizeof text - 1, MSG_DONTWAIT, (struct sockaddr *)&from, &from_size);
    if (n < 0)
        return;
    text[n] = '\0';
    int host, size, end = 0;
    char verb[8];
    if (strcmp(text, "status") == 0) {
        size = status_text(reply, sizeof reply);
    } else if (sscanf(text, "%7s %d%n", verb, &host, &end) == 2 && (text[end] == '\0' || text[end] == ' ') &&
               (strcmp(verb, "cut") == 0 || strcmp(verb, "heal") == 0 || strcmp(verb, "link") == 0)) {
        if (host < 1 || host > sw.n_ports) {
            size = snprintf(reply, sizeof reply, "no host %d: there are 1 to %d", host, sw.n_ports);
        } else if (verb[0] == 'l') {
            size = link_change(&sw.ports[host - 1], text + end, reply, sizeof reply);
        } else {
            sw.ports[host - 1].cut = verb[0] == 'c';
            size = snprintf(reply, sizeof reply, "ok\n");
        }
    } else {
        size = snprintf(reply, sizeof reply, "no such command: %s", text);
    }
    sendto(sw.control_fd, reply, (size_t)size, MSG_DONTWAIT, (struct sockaddr *)&from, from_size);
}

/* Ends when every device has been removed. */
static void switch_run(void)
{
    enum { TIMER = NETLAB_MAX_HOSTS, CONTROL };
    struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.u32 = TIMER}; /* edge: it is never read */
    epoll_ctl(sw.epoll_fd, EPOLL_CTL_ADD, sw.timer_fd, &e);
    e = (struct epoll_event){.events = EPOLLIN, .data.u32 = CONTROL};
    epoll_ctl(sw.epoll_fd, EPOLL_CTL_ADD, sw.control_fd, &e);
    for (int i = 0; i < sw.n_ports; i++) {
        e = (struct epoll_event){.events = EPOLLIN, .data.u32 = (uint32_t)i};
        epoll_ctl(sw.epoll_fd, EPOLL_CTL_ADD, sw.ports[i].fd, &e);
    }
    for (;;) {
        struct epoll_event events[NETLAB_MAX_HOSTS + 2];
        int n = epoll_wait(sw.epoll_fd, events, NETLAB_MAX_HOSTS + 2, -1);
        for (int i = 0; i < n; i++) {
            uint32_t source = events[i].data.u32;
            if (source == CONTROL)
                control_read();
            else if (source == TIMER)
                sw.armed_ns = 0;
            else
                port_read((int)source);
        }
        uint64_t now = netlab_now_ns();
        cross(now);
        deliver(now);
        arm_timer();
        int n_gone = 0;
        for (int i = 0; i < sw.n_ports; i++)
            n_gone += sw.ports[i].gone;
        if (n_gone == sw.n_ports)
            return;
    }
}

/* Creates a TAP named eth0 in the current network namespace. It disappears when the descriptor is closed. */
static int tap_open(const char *where)
{
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        netlab_die(
            "cannot open /dev/net/tun: %s; load the module tun, or give this container access to the device",
            strerror(errno));
    struct ifreq ifr = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    snprintf(ifr.ifr_name, sizeof ifr.ifr_name, "eth0");
    if (ioctl(fd, TUNSETIFF, &ifr) != 0)
        netlab_die("cannot create the TAP device eth0 in %s: %s", where, strerror(errno));
    int header = VNET;
    if (ioctl(fd, TUNSETVNETHDRSZ, &header) != 0 ||
        ioctl(fd, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN) != 0)
        netlab_die("the TAP device in %s does not support segmentation offload: %s", where, strerror(errno));
    return fd;
}

/* The value of an option; ends the program with an error if it is invalid or out of range. */
static double quantity(const char *option, const char *text, const range *r)
{
    double value;
    char error[256];
    if (quantity_parse(text, r, &value))
        return value;
    quantity_error(r, option, text, error, sizeof error);
    netlab_die("--%s", error);
}

/* Creates a datagram socket with that name. Abstract names are bound to a network namespace and cannot be
 * used. */
static int bind_at(const char *path, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address->sun_path)
        netlab_die("%s: too long for the name of a socket", path);
    snprintf(address->sun_path, sizeof address->sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)address, sizeof *address) != 0)
        netlab_die("%s: cannot create the socket: %s", path, strerror(errno));
    return fd;
}

/* run --control PATH --rate R --rtt T --queue Q NAMESPACE...: starts the switch in the background, with
 * none of the caller's files open, prints its process id, and returns. */
static int cmd_run(int argc, char **argv)
{
    const char *control = NULL;
    double rtt_ns = 0;
    if (close_range(3, ~0u, 0) != 0)
        netlab_die("cannot close the caller's files: %s", strerror(errno));
    int i = 0;
    for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
        const char *option = argv[i] + 2, *value = argv[i + 1];
        if (strcmp(option, "control") == 0)
            control = value;
        else if (strcmp(option, "rate") == 0)
            sw.link.rate = quantity(option, value, &rate_range);
        else if (strcmp(option, "rtt") == 0)
            rtt_ns = quantity(option, value, &rtt_range);
        else if (strcmp(option, "queue") == 0)
            sw.queue_bytes = quantity(option, value, &queue_range);
        else
            netlab_die("unknown option --%s", option);
    }
    sw.n_ports = argc - i;
    if (control == NULL || sw.link.rate == 0 || sw.queue_bytes == 0 || sw.n_ports < 2 ||
        sw.n_ports > NETLAB_MAX_HOSTS)
        netlab_die("run needs --control, --rate, --rtt, --queue and 2 to %d namespaces", NETLAB_MAX_HOSTS);
    sw.random = netlab_now_ns() | 1;
    sw.delay_ns = (uint64_t)((rtt_ns + 1) / 2);

    int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (own < 0)
        netlab_die("/proc/self/ns/net: %s", strerror(errno));
    for (int k = 0; k < sw.n_ports; k++) {
        netlab_enter(argv[i + k]);
        sw.ports[k].fd = tap_open(argv[i + k]);
        sw.ports[k].link = sw.link;
        if (setns(own, CLONE_NEWNET) != 0)
            netlab_die("cannot return from the network namespace %s: %s", argv[i + k], strerror(errno));
    }
    close(own);
    sw.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    sw.timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (sw.epoll_fd < 0 || sw.timer_fd < 0)
        netlab_die("no epoll or timer: %s", strerror(errno));
    struct sockaddr_un address;
    sw.control_fd = bind_at(control, &address);

    pid_t pid = fork();
    if (pid < 0)
        netlab_die("cannot start the switch: %s", strerror(errno));
    if (pid > 0) {
        printf("%d\n", (int)pid);
        return 0;
    }
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP}; /* the caller may ignore them */
    for (size_t k = 0; k < sizeof signals / sizeof signals[0]; k++)
        signal(signals[k], SIG_DFL);
    int null = open("/dev/null", O_RDWR);
    if (setsid() < 0 || chdir("/") != 0 || null < 0)
        _exit(1);
    for (int fd = 0; fd <= 2; fd++)
        dup2(null, fd);
    close(null);
    struct sched_param priority = {.sched_priority = 1}; /* if not permitted, delays vary under load */
    sw.realtime = sched_setscheduler(0, SCHED_FIFO, &priority) == 0;
    switch_run();
    unlink(control);
    return 0;
}

/* control PATH WORD...: sends a command to a running switch and prints the reply. */
static int cmd_control(int argc, char **argv)
{
    char text[COMMAND_SIZE] = "", reply[REPLY_SIZE];
    for (int i = 1; i < argc; i++) {
        size_t n = strlen(text);
        if (snprintf(text + n, sizeof text - n, "%s%s", i > 1 ? " " : "", argv[i]) >= (int)(sizeof text - n))
            netlab_die("%s: too long for a command", argv[i]);
    }
    if (argc < 2)
        netlab_die("control needs the path of the switch's socket and a command");
    char path[sizeof((struct sockaddr_un *)0)->sun_path];
    struct sockaddr_un address;
    struct timeval deadline = {.tv_sec = REPLY_SECONDS};
    if (snprintf(path, sizeof path, "%s.%d", argv[0], (int)getpid()) >= (int)sizeof path)
        netlab_die("%s: too long for the name of a socket", argv[0]);
    int fd = bind_at(path, &address);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", argv[0]);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof deadline);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &deadline, sizeof deadline);
    ssize_t n = connect(fd, (struct sockaddr *)&address, sizeof address);
    if (n == 0)
        n = send(fd, text, strlen(text), 0);
    if (n >= 0)
        n = recv(fd, reply, sizeof reply - 1, 0);
    int error = errno;
    unlink(path);
    if (n < 2)
        netlab_die("the switch does not answer at %s: %s", argv[0],
                   error == EAGAIN ? "it is stuck" : strerror(error));
    reply[n] = '\0';
    close(fd);
    if (strncmp(reply, "ok", 2) != 0)
        netlab_die("%s", reply);
    fputs(reply[2] == ' ' ? reply + 3 : "", stdout);
    return 0;
}

/* check: creates a device in the current namespace (a new one, from the caller) and removes it. */
static int cmd_check(int argc, char **argv)
{
    (void)argc, (void)argv;
    close(tap_open("a network namespace"));
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
    } commands[] = {{"run", cmd_run},
                    {"control", cmd_control},
                    {"check", cmd_check},
                    {"measure", netlab_measure},
                    {"serve", netlab_serve}};
    for (size_t i = 0; argc >= 2 && i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 2, argv + 2);
    fputs("netlab-switch: use one of run, control, check, measure or serve; scripts/netlab calls them\n",
          stderr);
    return 2;
}
