/* Strangers at the door of a server: connections without the secret, of all kinds, until a number of them
 * were made.
 *
 *     strangers ADDRESS N SEED
 *
 * ADDRESS is "unix:@name". Kinds: nothing and a close; random bytes; another protocol; a slow sender of one
 * byte now and then; a whole HELLO without a proof; a HELLO and a wrong proof; a HELLO with changed bytes;
 * bytes that begin as TLS. OPEN of them are open at a time. Prints how many were made. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/rng.h"
#include "base/version.h"
#include "net/handshake.h"
#include "net/tcp_address.h"

enum { OPEN = 200 };

static int stranger_connect(const mst_tcp_address *a)
{
    for (;;) {
        int fd = socket(AF_UNIX, SOCK_STREAM, 0); /* waits while the queue of the listener is full */
        if (fd >= 0 && connect(fd, (const struct sockaddr *)&a->sa, a->length) == 0)
            return fd;
        if (fd >= 0)
            close(fd);
        if (errno != EAGAIN && errno != EINTR)
            return -1;
    }
}

static void stranger_send(int fd, const void *bytes, size_t n)
{
    (void)!send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void stranger_act(int fd, mst_rng *rng)
{
    static const mst_identity self = {.role = MST_ROLE_WORKER, .index = 1, .incarnation = 7};
    mst_shake_options options = {.self = &self,
                                 .secret = "not the secret of the job",
                                 .version = mst_version(),
                                 .address = "there",
                                 .wire = MST_WIRE_VERSION};
    mst_shake h;
    uint8_t noise[600];
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)mst_rng_below(rng, 256);
    if (mst_shake_init(&h, &options, true) != MST_OK)
        exit(1);
    switch (mst_rng_below(rng, 8)) {
    case 0:
        break;
    case 1:
        stranger_send(fd, noise, 1 + mst_rng_below(rng, sizeof noise));
        break;
    case 2:
        stranger_send(fd, "GET / HTTP/1.1\r\n\r\n", 18);
        break;
    case 3:
        stranger_send(fd, h.out, 1 + mst_rng_below(rng, MST_SHAKE_PREFIX));
        break;
    case 4:
        stranger_send(fd, h.out, h.n_out);
        break;
    case 5:
        stranger_send(fd, h.out, h.n_out);
        h.out[6] = MST_SHAKE_PROVE;
        mst_put_u16(h.out + 8, MST_SHAKE_PROOF);
        stranger_send(fd, h.out, MST_SHAKE_PREFIX + MST_SHAKE_PROOF);
        break;
    case 6:
        h.out[mst_rng_below(rng, h.n_out)] ^= (uint8_t)(1 + mst_rng_below(rng, 255));
        stranger_send(fd, h.out, h.n_out);
        break;
    default:
        memcpy(noise, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
        stranger_send(fd, noise, mst_rng_below(rng, 2) == 0 ? 517 : 100);
        break;
    }
}

int main(int argc, char **argv)
{
    mst_tcp_address a;
    mst_rng rng;
    int open[OPEN];
    if (argc != 4 || mst_tcp_address_parse(argv[1], &a) != MST_OK)
        return 2;
    long n = atol(argv[2]), made = 0;
    mst_rng_init(&rng, (uint64_t)atol(argv[3]), MST_RNG_TEST, 0);
    memset(open, -1, sizeof open);
    for (; made < n; made++) {
        int *place = &open[mst_rng_below(&rng, OPEN)], *slow = &open[mst_rng_below(&rng, OPEN)];
        if (*place >= 0)
            close(*place);
        if ((*place = stranger_connect(&a)) < 0)
            break; /* the job has ended */
        stranger_act(*place, &rng);
        if (*slow >= 0)
            stranger_send(*slow, "M", 1);
    }
    printf("%ld\n", made);
    return 0;
}
