/* What the two halves of netlab-switch share: switch.c carries the frames, measure.c sends some to be
 * carried. Everything here runs as one process of the lab's owner; errors are one sentence on stderr and exit
 * code 1. */
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
 * a connection says what happens to the rest: 'e' all bytes come back, 's' they are counted, 'g' some are
 * sent. */
int netlab_serve(int argc, char **argv);

#endif
