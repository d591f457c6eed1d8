/* A relay between the processes of a job: carries the bytes of every connection between two Unix sockets,
 * copies them to a file, and may change one bit.
 *
 *     relay LISTEN TARGET CAPTURE FLIP_AT
 *
 * LISTEN and TARGET are paths. FLIP_AT: after so many bytes from the connecting sides, one bit is flipped,
 * once; 0: never. "ready" on standard output says that it listens. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

typedef struct relay_state {
    _Atomic long carried; /* bytes from the connecting sides */
    long flip_at;
    int capture;
} relay_state;

static int relay_socket(const char *path, bool listens)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    if (fd < 0 || (listens ? bind(fd, (struct sockaddr *)&at, sizeof at) != 0 || listen(fd, 64) != 0
                           : connect(fd, (struct sockaddr *)&at, sizeof at) != 0)) {
        perror(path);
        exit(1);
    }
    return fd;
}

/* One read of one direction; false: the connection has ended. */
static bool relay_carry(relay_state *s, int from, int to, bool counted)
{
    static char bytes[65536];
    ssize_t n = read(from, bytes, sizeof bytes);
    if (n <= 0)
        return false;
    if (write(s->capture, bytes, (size_t)n) != n)
        return false;
    if (counted) {
        long before = atomic_fetch_add(&s->carried, n);
        if (s->flip_at > before && s->flip_at <= before + n)
            bytes[s->flip_at - before - 1] ^= 1;
    }
    for (ssize_t at = 0, m; at < n; at += m)
        if ((m = write(to, bytes + at, (size_t)(n - at))) <= 0)
            return false;
    return true;
}

static void relay_serve(relay_state *s, int near, const char *target)
{
    int far = relay_socket(target, false);
    struct pollfd ends[2] = {{.fd = near, .events = POLLIN}, {.fd = far, .events = POLLIN}};
    for (bool open = true; open && poll(ends, 2, -1) > 0;)
        for (int i = 0; i < 2 && open; i++)
            if (ends[i].revents != 0)
                open = relay_carry(s, ends[i].fd, ends[1 - i].fd, i == 0);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    relay_state *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED || (s->capture = open(argv[3], O_CREAT | O_WRONLY | O_APPEND, 0600)) < 0)
        return 1;
    s->flip_at = atol(argv[4]);
    signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    int listener = relay_socket(argv[1], true);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int near = accept(listener, NULL, NULL);
        if (near < 0)
            continue;
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(listener);
            relay_serve(s, near, argv[2]);
            _exit(0);
        }
        close(near);
    }
}
