/* Time. Durations come from the monotonic clock, in nanoseconds; dates from the wall clock. */
#ifndef MST_BASE_CLOCK_H
#define MST_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#define MST_MS 1000000ull
#define MST_S  1000000000ull

static inline uint64_t mst_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * MST_S + (uint64_t)t.tv_nsec;
}

static inline double mst_seconds_since(uint64_t start_ns)
{
    return (double)(mst_now_ns() - start_ns) * 1e-9;
}

/* Since 1970. */
static inline uint64_t mst_wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * MST_S + (uint64_t)t.tv_nsec;
}

static inline double mst_wall_s(void)
{
    return (double)mst_wall_ns() * 1e-9;
}

/* "2026-01-31T12:34:56Z"; out holds at least 21 bytes. */
static inline void mst_wall_time(char *out)
{
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(out, 21, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

#endif
