/* Shared by the files of netlab-switch: switch.c carries frames, segments.c divides them, measure.c measures
 * round trips and rates. An error is one sentence on stderr and exit code 1. */
#ifndef NETLAB_H
#define NETLAB_H

#include <linux/virtio_net.h>
#include <stdint.h>

enum {
    NETLAB_MAX_HOSTS = 32,
    NETLAB_VNET = sizeof(struct virtio_net_hdr), /* before each frame of a TAP */
};

/* Host k (from 1) has this address in every lab: labs share no network, so they may share addresses. */
#define NETLAB_ADDRESS "10.77.0.%d"

/* Prints "netlab-switch: <sentence>" and exits with 1. */
_Noreturn void netlab_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* CLOCK_MONOTONIC. */
uint64_t netlab_now_ns(void);

/* Moves the calling process into the network namespace /run/netns/<name>, or ends it. */
void netlab_enter(const char *name);

/* The segments that a frame of a TAP represents: one, or several TCP segments with a common header. */
typedef struct netlab_segments {
    uint32_t n;
    uint32_t wire;          /* bytes of all of them on a wire */
    uint32_t header, bytes; /* of one segment; with n == 1, not set */
    uint32_t size;          /* of the whole */
} netlab_segments;

/* bytes: virtio header and frame, size bytes in all, at least an Ethernet header. */
netlab_segments netlab_segments_of(const unsigned char *bytes, uint32_t size);

/* Writes the segments first to end - 1 of a frame as a frame to out, which has room for all of them. Returns
 * its size. */
uint32_t netlab_segments_copy(const netlab_segments *all, const unsigned char *bytes, uint32_t first,
                              uint32_t end, unsigned char *out);

/* measure [--seconds S] NAMESPACE...: prints round trip and bandwidth between the first host and each other
 * one. */
int netlab_measure(int argc, char **argv);

/* serve ADDRESS: prints the port that it listens on and answers probes until it is killed. The first byte of
 * a connection selects the service: 'e' echoes all bytes, 's' counts them, 'g' sends some. */
int netlab_serve(int argc, char **argv);

#endif
