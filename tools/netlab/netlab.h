/* Shared by the two halves of netlab-switch: switch.c carries frames, measure.c measures round trips and
 * rates. An error is one sentence on stderr and exit code 1. */
#ifndef NETLAB_H
#define NETLAB_H

#include <stdint.h>

enum { NETLAB_MAX_HOSTS = 32 };

/* Host k (from 1) has this address in every lab: labs share no network, so they may share addresses. */
#define NETLAB_ADDRESS "10.77.0.%d"

/* Prints "netlab-switch: <sentence>" and exits with 1. */
_Noreturn void netlab_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* CLOCK_MONOTONIC. */
uint64_t netlab_now_ns(void);

/* Moves the calling process into the network namespace /run/netns/<name>, or ends it. */
void netlab_enter(const char *name);

/* measure [--seconds S] NAMESPACE...: prints round trip and bandwidth between the first host and each other
 * one. */
int netlab_measure(int argc, char **argv);

/* serve ADDRESS: prints the port that it listens on and answers probes until it is killed. The first byte of
 * a connection selects the service: 'e' echoes all bytes, 's' counts them, 'g' sends some. */
int netlab_serve(int argc, char **argv);

#endif
