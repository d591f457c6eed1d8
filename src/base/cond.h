/* Conditions whose waits end by the monotonic clock (clock.h). */
#ifndef MST_BASE_COND_H
#define MST_BASE_COND_H

#include <pthread.h>
#include <stdbool.h>

#include "base/clock.h"

static inline void mst_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* Under the mutex: waits for a signal until the time, and at most a second; the caller looks again. */
static inline void mst_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t until_ns)
{
    uint64_t most = mst_now_ns() + MST_S, at = until_ns < most ? until_ns : most;
    struct timespec t = {.tv_sec = (time_t)(at / MST_S), .tv_nsec = (long)(at % MST_S)};
    pthread_cond_timedwait(cond, mutex, &t);
}

/* Sets the flag, which the mutex guards, and wakes all that wait. */
static inline void mst_cond_set(pthread_cond_t *cond, pthread_mutex_t *mutex, bool *flag)
{
    pthread_mutex_lock(mutex);
    *flag = true;
    pthread_cond_broadcast(cond);
    pthread_mutex_unlock(mutex);
}

#endif
